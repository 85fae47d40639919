"""Tasks and rounds as documents: they come back whole, and what cannot be proved or does not belong is refused."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

import croupier as cr
from croupier import problem as problems
from croupier.optimizer.phases import objective_of
from croupier.privacy.calibration import is_proved
from croupier.problem import domains, losses
from croupier.problem.classification import Weighted
from croupier.service.wire.documents import Document, WireError
from croupier.service.wire.task import Task, TaskRound

EVERY_LOSS = [
    losses.Logistic(),
    losses.CappedLogistic(),
    losses.CappedMultinomial(classes=2),
    losses.Hinge(),
    losses.SmoothedHinge(width=0.25),
    losses.SquaredHinge(),
    losses.Squared(target_bound=2.5),
    losses.Huber(kappa=0.3),
    losses.Pinball(quantile=0.9),
    losses.Absolute(),
    losses.EpsilonInsensitive(width=0.2),
    losses.Multinomial(classes=2),
    Weighted(losses.Logistic(), (0.25, 1.0)),
]
EVERY_DOMAIN = [
    domains.Ball(dim=2, radius=5.0),
    domains.Ball(dim=2, radius=0.1, center=(1.0, -1 / 3)),
    domains.L1Ball(dim=2, radius=2.5),
    domains.Box(dim=2, lower=-1, upper=(2.0, 1 / 3)),
    domains.Simplex(dim=2, total=2.0),
    domains.WholeSpace(dim=2, distance=3.0),
]

# How records become rows, as the shared vectors have it.
RECORDS = json.loads((Path(__file__).parent / "vectors" / "records.json").read_text())["records"]


# All but two, whose gradients have no bound.
PAIRS = [
    (loss, domain)
    for loss in EVERY_LOSS
    for domain in EVERY_DOMAIN
    if np.isfinite(loss.slope_bound(1.0) * domain.norm_bound) or not isinstance(loss, losses.Squared | losses.SquaredHinge)
]


def named(part) -> str:
    return type(part).__name__


def classes_of(module, base: type) -> set[str]:
    """The public losses or domains that there are."""
    found = {name: value for name, value in vars(module).items() if isinstance(value, type) and issubclass(value, base)}
    return {name for name, value in found.items() if value is not base and not name.startswith("_")}


def refused(roles, change, match: str) -> None:
    """A task that the analyzer signed with these changed words is not read."""
    document = roles.edited(roles.task().document(roles.analyzer), change)
    with pytest.raises(WireError, match=match):
        Task.read(Document.from_bytes(document.to_bytes()), roles.analyzer.public_key())


def refused_round(roles, task: Task, document: Document, match: str) -> None:
    with pytest.raises(WireError, match=match):
        TaskRound.read(Document.from_bytes(document.to_bytes()), task, roles.analyzer.public_key())


# --- there and back


def test_the_lists_above_hold_every_loss_and_domain():
    assert {named(loss) for loss in EVERY_LOSS} == classes_of(problems, losses.Loss)
    assert {named(domain) for domain in EVERY_DOMAIN} == classes_of(problems, domains.Domain)


@pytest.mark.parametrize(("loss", "domain"), PAIRS, ids=named)
def test_a_task_comes_back_for_every_loss_and_domain(roles, loss, domain):
    problem = cr.Problem(loss=loss, domain=domain, feature_norm=1.5, l2=0.25 if np.isfinite(domain.norm_bound) else 0.0)
    task = roles.task(problem=problem, records=RECORDS, patience=2.5)
    document = Document.from_bytes(task.document(roles.analyzer).to_bytes())
    again = Task.read(document, roles.analyzer.public_key())
    assert again.query.problem == problem
    assert again.schedule == task.schedule
    assert (again.id, again.transport, again.users) == (task.id, task.transport, task.users)
    assert (again.query.records, again.patience) == (RECORDS, 2.5)
    assert again.shuffler.public_bytes_raw() == roles.shuffler.public_key().public_bytes_raw()
    assert again.document(roles.analyzer) == document


@pytest.mark.parametrize("transport", ["messages", "masked-sum"])
@pytest.mark.parametrize("interactivity", ["sequential", "full"])
def test_a_task_comes_back_for_every_way_to_run_it(roles, transport, interactivity):
    task = roles.task(transport, interactivity)
    again = Task.read(task.document(roles.analyzer), roles.analyzer.public_key())
    assert (again.transport, again.schedule) == (transport, task.schedule)
    one, other = (roles.round(task=again.id, id=name) for name in ("b1", "b2"))
    assert (again.slot(one) == again.slot(other)) == (interactivity == "sequential")  # asked once, or once a round


def test_a_task_has_the_words_of_the_specification(roles):
    values = json.loads(roles.task().document(roles.analyzer).text)
    assert set(values) == {"id", "name", "transport", "users", "problem", "schedule", "shuffler", "records", "patience", "pace"}
    assert values["problem"]["loss"] == {"kind": "Logistic"}
    assert values["problem"]["domain"] == {"kind": "Ball", "dim": 2, "radius": 5.0, "center": None}
    assert values["shuffler"] == roles.shuffler.public_key().public_bytes_raw().hex()
    assert cr.Schedule.from_json(json.dumps(values["schedule"])) == roles.task().schedule


def test_a_round_comes_back_to_the_last_bit(roles):
    theta = np.array([1 / 3, -1e-310])
    made = roles.round(theta=theta, number=2)
    document = Document.from_bytes(made.document(roles.analyzer).to_bytes())
    again = TaskRound.read(document, roles.task(), roles.analyzer.public_key())
    assert (again.task, again.id, again.number, again.phase) == (roles.task().id, "b1", 2, 1)
    assert again.theta.tobytes() == theta.tobytes()
    assert again.key.public_bytes_raw() == roles.seal.public_key().public_bytes_raw()
    assert set(json.loads(document.text)) == {"task", "id", "number", "phase", "theta", "key"}
    assert again.document(roles.analyzer) == document


# --- what a client does not believe


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("noise_bits", 1),
        ("noise_bits", 8),
        ("noise_probability", 0.01),
        ("levels", 50),
        ("mu", 0.5),
        ("slack", 0.0),
        ("epsilon", 1.0),
        ("delta", 1e-9),
        ("honest", 0.25),
        ("rounds", 3),
        ("noise_bits", 10**400),
        ("levels", 10**400),
        ("noise_bits", -1),
        ("noise_bits", "9"),
        ("noise_bits", None),
        ("calibration", "none"),
        ("neighbours", "nobody"),
        ("surprise", 1),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_plan_that_is_weaker_than_it_claims_is_refused(roles, name, value):
    """Signed by the analyzer itself: its signature does not make a promise true."""

    def weaken(values):
        values["schedule"]["phases"][0]["plan"][name] = value

    assert is_proved(roles.task().schedule.phases[0].plan)
    refused(roles, weaken, "a task that says something impossible|not JSON")


def test_more_noise_than_was_claimed_is_no_reason_to_refuse(roles):
    """The figures that count are the ones proved here: they are smaller than before."""

    def strengthen(values):
        values["schedule"]["phases"][0]["plan"]["noise_bits"] += 10

    original = roles.task()
    document = roles.edited(original.document(roles.analyzer), strengthen)
    again = Task.read(document, roles.analyzer.public_key())
    assert again.schedule.phases[0].plan.mu < original.schedule.phases[0].plan.mu


def test_a_plan_that_claims_less_than_it_proves_counts_as_what_it_proves(roles):
    def understate(values):
        values["schedule"]["phases"][0]["plan"]["mu"] *= 2

    document = roles.edited(roles.task().document(roles.analyzer), understate)
    assert Task.read(document, roles.analyzer.public_key()).schedule == roles.task().schedule


@pytest.mark.parametrize(
    "kind", ["_Margin", "_Residual", "Loss", "os", "np", "ABC", "math", "Ball", "ArgumentError", "__name__", "", 1, None]
)
def test_a_loss_can_name_nothing_but_a_loss(roles, kind):
    refused(roles, lambda values: values["problem"]["loss"].update(kind=kind), "impossible")


@pytest.mark.parametrize("kind", ["Domain", "Logistic", "os", "np", "ABC", "field", "__builtins__", ["Ball"], {}])
def test_a_domain_can_name_nothing_but_a_domain(roles, kind):
    refused(roles, lambda values: values["problem"]["domain"].update(kind=kind), "impossible")


def test_a_class_that_is_no_loss_or_is_private_cannot_be_named_even_if_it_could_be_made(roles, monkeypatch):
    @dataclass(frozen=True)
    class Elsewhere:
        pass

    class _Hidden(losses.Logistic):
        pass

    for kind in (Elsewhere, _Hidden):
        monkeypatch.setattr(problems, kind.__name__, kind, raising=False)
        refused(roles, lambda values, kind=kind: values["problem"]["loss"].update(kind=kind.__name__), "one of Logistic, ")


def test_a_schedule_for_more_users_than_there_are_is_refused(roles):
    """8 users are asked once each: with 7 somebody would be asked twice."""
    assert roles.task().users == sum(phase.users for phase in roles.task().schedule.phases)
    for users in (7, 0, -8, 7.5, "8", True, None):
        refused(roles, lambda values, users=users: values.update(users=users), "impossible")


@pytest.mark.parametrize(
    ("name", "value"),
    [("rounds", 3), ("rounds", 0), ("batch", 2), ("batch", 5), ("batch", 100), ("users", 4), ("users", 100)],
)
def test_a_phase_that_does_not_fit_its_plan_is_refused(roles, name, value):
    refused(roles, lambda values: values["schedule"]["phases"][0].update({name: value}), "impossible")


def test_more_rounds_of_the_same_users_than_the_plan_covers_are_refused(roles):
    document = roles.task(interactivity="full").document(roles.analyzer)
    edited = roles.edited(document, lambda values: values["schedule"]["phases"][0].update(rounds=3))
    with pytest.raises(WireError, match=r"phase\.rounds = 3"):
        Task.read(edited, roles.analyzer.public_key())


def test_asking_everybody_in_every_round_is_refused_under_plans_for_one_round(roles):
    """The phases of a run that asks once, declared as one that asks the same users again."""
    refused(roles, lambda values: values["schedule"].update(interactivity="full"), "impossible")


@pytest.mark.parametrize(
    "change",
    [
        {"transport": "plain"},
        {"transport": ["masked-sum"]},
        {"transport": None},
        {"shuffler": "00"},
        {"shuffler": "x" * 64},
        {"shuffler": None},
        {"schedule": None},
        {"schedule": {}},
        {"problem": None},
        {"problem": []},
        {"patience": -1},
        {"patience": "soon"},
        {"patience": float("nan")},
        {"id": "../../elsewhere"},
        {"id": "/etc/passwd"},
        {"id": ""},
        {"id": "a" * 65},
        {"id": 5},
        {"id": "a\n"},
    ],
    ids=str,
)
def test_a_task_that_says_something_impossible_is_refused(roles, change):
    refused(roles, lambda values: values.update(change), "task|not JSON")


@pytest.mark.parametrize("name", ["id", "name", "transport", "users", "problem", "schedule", "shuffler", "records", "patience"])
def test_a_task_without_one_of_its_words_is_refused(roles, name):
    refused(roles, lambda values: values.pop(name), name)


def test_the_identity_of_a_task_is_that_of_every_word_in_it(roles):
    """Rounds name it, and reports are bound to rounds: who changes a word changes what reports can be opened for."""
    task = roles.task()
    others = [
        replace(task, patience=5.0),
        replace(task, name="again"),
        replace(task, query=replace(task.query, records={"schema": {}})),
    ]
    assert len({task.id, *(other.id for other in others)}) == 4
    refused(roles, lambda values: values.update(id=others[0].id), "digest of what the task says")
    with pytest.raises(WireError, match="not of this task"):
        TaskRound.read(roles.round().document(roles.analyzer), others[0], roles.analyzer.public_key())


def test_a_task_whose_batches_no_database_keeps_is_refused(roles):
    huge = cr.schedule(roles.task().query.problem, 3_000_000, epsilon=1.0, delta=1e-6, rounds=1, method="acsa", lots="open")
    for transport, fits in (("masked-sum", True), ("messages", False)):
        document = roles.task(transport, users=3_000_000, schedule=huge).document(roles.analyzer)
        if fits:
            Task.read(document, roles.analyzer.public_key())
        else:
            with pytest.raises(WireError, match="use masked-sum"):
                Task.read(document, roles.analyzer.public_key())


def test_plans_of_another_dimension_than_the_problem_are_refused(roles):
    refused(roles, lambda values: values["problem"]["domain"].update(dim=3), "do not fit")


@pytest.mark.parametrize(("name", "value"), [("feature_norm", -1), ("l2", -1), ("l2", "0"), ("feature_norm", None)])
def test_a_problem_that_cannot_be_is_refused(roles, name, value):
    refused(roles, lambda values: values["problem"].update({name: value}), "impossible")


def test_a_task_of_somebody_else_is_refused(roles):
    with pytest.raises(WireError, match="signature"):
        Task.read(roles.task().document(roles.stranger), roles.analyzer.public_key())


def test_a_round_is_no_task_and_a_task_no_round(roles):
    task, made, key = roles.task(), roles.round(), roles.analyzer.public_key()
    with pytest.raises(WireError, match="kind 2 where kind 1"):
        Task.read(made.document(roles.analyzer), key)
    with pytest.raises(WireError, match="kind 1 where kind 2"):
        TaskRound.read(task.document(roles.analyzer), task, key)


# --- rounds


def test_a_round_of_another_task_is_refused(roles):
    refused_round(roles, roles.task(), roles.round(task="a2" * 32).document(roles.analyzer), "not of this task")


def test_a_round_of_somebody_else_is_refused(roles):
    refused_round(roles, roles.task(), roles.round().document(roles.stranger), "signature")


@pytest.mark.parametrize(
    "change",
    [
        {"theta": [0.5]},
        {"theta": [0.5, 1.0, 2.0]},
        {"theta": [[0.5, 1.0]]},
        {"theta": []},
        {"theta": [[0.5], 1.0]},
        {"theta": 0.5},
        {"theta": None},
        {"theta": [None, 0.5]},
        {"theta": [float("nan"), 0.5]},
        {"theta": [float("inf"), 0.5]},
        {"theta": [1e400, 0.5]},
        {"theta": [10**400, 1]},
        {"theta": ["a", "b"]},
        {"theta": {"0": 1}},
        {"phase": 0},
        {"phase": -1},
        {"phase": 2},
        {"phase": 10**30},
        {"phase": 1.0},
        {"phase": "1"},
        {"phase": None},
        {"number": 0},
        {"number": "one"},
        {"key": "00"},
        {"key": None},
        {"key": "g" * 64},
        {"id": "../b"},
        {"id": None},
    ],
    ids=str,
)
def test_a_round_that_says_something_impossible_is_refused(roles, change):
    document = roles.edited(roles.round().document(roles.analyzer), lambda values: values.update(change))
    refused_round(roles, roles.task(), document, "round|not JSON")


@pytest.mark.parametrize("name", ["task", "id", "number", "phase", "theta", "key"])
def test_a_round_without_one_of_its_words_is_refused(roles, name):
    document = roles.edited(roles.round().document(roles.analyzer), lambda values: values.pop(name))
    refused_round(roles, roles.task(), document, name)


# --- what a user computes


@pytest.mark.parametrize("loss", EVERY_LOSS, ids=named)
def test_a_user_answers_the_mean_of_its_gradients(roles, loss):
    problem = cr.Problem(loss=loss, domain=domains.Ball(dim=2, radius=5.0), l2=0.1)
    features = 2 // loss.outputs
    X = np.random.default_rng(1).normal(size=(5, features)) / 3
    y = np.array([0.0, 1.0, 1.0, 0.0, 1.0])
    made = roles.round()
    one_by_one = [problem.gradients(made.theta, X[row : row + 1], y[row : row + 1])[0] for row in range(5)]
    assert made.vector(roles.task(problem=problem), X, y) == pytest.approx(np.sum(one_by_one, axis=0) / 5, rel=1e-12)


def test_a_user_answers_on_the_envelope_where_the_phase_is_smoothed(roles):
    """The gradient of a Moreau envelope is beta times the step that the prox takes."""
    problem = cr.Problem(loss=losses.Hinge(), domain=domains.Ball(dim=2, radius=5.0))
    schedule = roles.task().schedule
    smoothed = replace(schedule, phases=tuple(replace(phase, smoothing=2.0) for phase in schedule.phases))
    task, made = roles.task(problem=problem, schedule=smoothed), roles.round()
    X, y = np.array([[0.8, -0.4]]), np.array([1.0])
    prox = problem.prox(made.theta, X, y, 2.0)[0]
    assert made.vector(task, X, y) == pytest.approx(2.0 * (made.theta - prox), rel=1e-12)
    assert not np.allclose(made.vector(task, X, y), problem.gradients(made.theta, X, y)[0])
    assert objective_of(problem, made.phase_of(task)) == problem.smoothed(2.0)


def test_a_user_refuses_records_that_do_not_fit(roles):
    with pytest.raises(cr.ArgumentError, match=r"X\.shape"):
        roles.round().vector(roles.task(), np.zeros((1, 3)), np.zeros(1))
    with pytest.raises(cr.ArgumentError, match="0 or 1"):
        roles.round().vector(roles.task(), np.zeros((1, 2)), np.array([7.0]))


def test_a_round_has_a_number_of_its_phase(roles):
    """Who is drawn for a round goes by its number, the plan by its phase: an analyzer cannot mix them."""
    one = roles.task()
    phases = (*one.schedule.phases, *one.schedule.phases)
    task = replace(one, users=16, schedule=replace(one.schedule, phases=phases))
    key = roles.analyzer.public_key()
    for number in range(1, 7):
        for phase in (1, 2):
            document = roles.round(task=task.id, number=number, phase=phase).document(roles.analyzer)
            if (phase == 1 and number in (1, 2)) or (phase == 2 and number in (3, 4)):
                assert TaskRound.read(document, task, key).number == number
            else:
                with pytest.raises(WireError, match="none of its phase"):
                    TaskRound.read(document, task, key)


def test_secret_lots_are_refused_where_no_time_ends_their_rounds(roles):
    secret = cr.schedule(
        roles.task().query.problem,
        roles.task().users,
        epsilon=4.0,
        delta=1e-2,
        rounds=2,
        method="acsa",
        lots="secret",
        max_inflation=2.0,
    )
    document = replace(roles.task(), schedule=secret).document(roles.analyzer)
    with pytest.raises(WireError, match="Say for how many seconds"):
        Task.read(document, roles.analyzer.public_key())


def test_a_task_with_a_word_that_nobody_knows_is_refused(roles):
    """The attack: a later version's word that changes what is asked, signed, and passed over."""
    document = roles.edited(roles.task().document(roles.analyzer), lambda values: values.update(twice=True))
    with pytest.raises(WireError, match=r"task\.twice is true; it must be left out: this version does not know it"):
        Task.read(document, roles.analyzer.public_key())
