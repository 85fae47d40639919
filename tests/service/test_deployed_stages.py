"""Rounds of a deployed task that ask different questions: about rows first, then for gradients in coordinates that were found."""

from __future__ import annotations

import itertools
import json
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from helpers_exclusions import bring
from helpers_node import asked, needs_node
from helpers_roles import Web, World, randomness, soon, training
from helpers_tasks import Analyzer, Service, bearer
from test_counted_blanks import SIGNERS
from test_counted_blanks import Device as Invited
from test_counted_blanks import deployed as with_enroller
from test_deployed_lots import COVERED, ENOUGH, SECRET, Clock, Device, blank_coins, deployed, loaded, of_round

from croupier import problem as losses
from croupier.arithmetic import LinearVectors, products
from croupier.optimizer._gradients import RowMoments
from croupier.problem.problem import Coordinates
from croupier.protocol._encoding import clip_to_ball
from croupier.service.analyzer.app import files_of
from croupier.service.analyzer.dashboard import Dashboard, all_plan_words, plan_words
from croupier.service.analyzer.task_file import TaskFile
from croupier.service.client.client import Client
from croupier.service.net.http import ServerError
from croupier.service.net.registry import front_app
from croupier.service.net.server import Served
from croupier.service.shuffler import role as shuffler
from croupier.service.wire import queries
from croupier.service.wire.documents import Document, WireError
from croupier.service.wire.task import Task, TaskRound
from croupier.table import Schema, TableModel, fit_table
from croupier.validation import ArgumentError

pytestmark = pytest.mark.process

# One round of an opening, two of gradients.
ASKED = {"users": 30, "method": "auto", "rounds": 3, "max_inflation": 1e9, "secret": SECRET, "constant": 1.0}
STAGED = {
    "whitened": {"rule": "whitened"},
    "centred": {"rule": "centred", "loss": losses.CappedMultinomial(2), "dim": 3},
    "squares": {"rule": "whitened", "loss": losses.Squared(1.0)},
    "scaled": {"rule": "scaled"},
    "line": {"rule": "centred", "loss": losses.CappedMultinomial(3), "dim": 6, "rounds": 12},
}
FOCUS = 0.75
# Second moments of one round in two secret blocks, and four rounds of gradients.
IN_BLOCKS = {"rule": "whitened", "loss": losses.Squared(1.0), "users": 60, "dim": 15, "rounds": 6, "max_inflation": None}


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(shuffler, "time", made)
    return made


@pytest.fixture
def seeded_blanks(monkeypatch):
    numbers = itertools.count(1)
    monkeypatch.setattr(shuffler, "SecureRandom", lambda: blank_coins(next(numbers)))


@pytest.fixture
def make(make_world):
    return lambda **asked_for: make_world(**ASKED | asked_for)


def focused(world: World) -> World:
    """The same, where later rounds may ask people by their odds."""
    opening, descent = world.task.schedule.phases
    world.task = replace(world.task, schedule=replace(world.task.schedule, phases=(opening, replace(descent, focus=FOCUS))))
    return world


def members(world: World) -> list[list[int]]:
    """Users by their lots."""
    return [of_round(world, lot) for lot in range(1, world.task.schedule.phases[0].lots.lots + 1)]


def answer_all(world: World, running, role, url, clock, secret, away: int | None = None) -> np.ndarray:
    """Everybody but one answers by a client of its own; theta."""
    devices = [Device(user, world, url) for user in range(world.users) if user != away]
    for device in devices:
        device._task = devices[0].task()  # proved once: it takes a while
    for number in range(1, world.task.schedule.rounds + 1):
        soon(lambda wanted=number: (now := role.current()) and world.read(now).number == wanted)
        for device in devices:
            device.take_part(*device.rows)
        soon(lambda: role._blanks._round)
        clock.now = secret.leaves(clock.now)
    return running.result()


# --- the same model as in memory


@pytest.mark.parametrize("transport", ["masked-sum", "messages", "verified-sum"])
def test_a_line_is_searched_over_sockets_as_in_memory(make, clock, seeded_blanks, transport):
    """Frequencies by the constant alone, descent, and slopes in a few directions: every round states its own coordinates."""
    world = make(**STAGED["line"], transport=transport)
    assert [(phase.algorithm, phase.rounds) for phase in world.task.schedule.phases] == [("mean", 1), ("acsa", 9), ("line", 2)]
    with deployed(world) as (running, role, url):
        theta = answer_all(world, running, role, url, clock, SECRET)
        documents = [
            json.loads(Document.from_bytes(stored).text) for (stored,) in world.rows("analyzer", "SELECT document FROM asked")
        ]
    assert np.array_equal(theta, world.theta_in_memory(members(world), blank_coins))
    numbers = [len(document["coordinates"]["turn"]) // 8 for document in documents[1:]]
    assert numbers == [6] * 9 + [24] * 2  # a factor for each column; a direction for each class, and the constant
    assert ["centre" in document["coordinates"] for document in documents[1:]] == [False] + [True] * 10


@pytest.mark.parametrize(
    ("transport", "secret", "kind"),
    [
        ("masked-sum", COVERED, "whitened"),
        ("messages", SECRET, "squares"),
        ("verified-sum", SECRET, "centred"),
        ("messages", SECRET, "scaled"),
    ],
)
def test_over_sockets_theta_is_that_of_the_run_in_memory_with_the_same_lots(make, clock, seeded_blanks, transport, secret, kind):
    world = make(**STAGED[kind], transport=transport, secret=secret)
    opening, descent = world.task.schedule.phases
    assert opening.opens
    assert world.task.stages
    assert (opening.rounds, descent.rounds) == (1, 2)
    with deployed(world) as (running, role, url):
        who = members(world)
        away = who[1][0]  # never comes: a blank takes its place
        theta = answer_all(world, running, role, url, clock, secret, away)
        answered = running.population.answered()
        shown = Dashboard(running.population).state()
        documents = [
            json.loads(Document.from_bytes(stored).text) for (stored,) in world.rows("analyzer", "SELECT document FROM asked")
        ]
    came = [[user for user in some if user != away] for some in who]
    assert np.array_equal(theta, world.theta_in_memory(came, blank_coins))
    assert np.linalg.norm(theta) > 0
    assert [entry.phase for entry in answered] == [1, 2, 2]
    assert ["coordinates" in document for document in documents] == [False, True, True]
    assert [len(document["theta"]) for document in documents] == [1, world.task.query.dim, world.task.query.dim]
    assert (shown["rounds"]["phase"], shown["rounds"]["phases"]) == (2, 2)
    assert [point["phase"] for point in shown["curve"]] == [1, 2, 2]
    swapped = [came[1], came[0], came[2]]  # other people in the opening: another model
    assert not np.array_equal(theta, world.theta_in_memory(swapped, blank_coins))


def test_second_moments_in_secret_blocks_give_the_model_of_the_run_in_memory(make, clock, seeded_blanks):
    world = make(**IN_BLOCKS, transport="messages", epsilon=8.0)
    opening, descent = world.task.schedule.phases
    assert (opening.plan.blocks, descent.plan.blocks, world.task.blocks) == (2, 1, 2)
    with deployed(world) as (running, role, url):
        theta = answer_all(world, running, role, url, clock, SECRET)
    assert np.array_equal(theta, world.theta_in_memory(members(world), blank_coins))
    assert np.linalg.norm(theta) > 0


def test_with_an_enroller_openings_have_tokens_and_blanks_like_any_round(make_world, clock, seeded_blanks):
    planned = ASKED | STAGED["whitened"] | {"users": 60, "rounds": 2, "max_inflation": 1.5, "dim": 3}
    with with_enroller(make_world, **planned, transport="masked-sum") as (world, running, role, made):
        assert len(SIGNERS) == world.task.schedule.phases[0].lots.lots == 2
        who = members(world)
        away = who[0][0]
        devices = {user: made(Invited, user) for user in range(world.users) if user != away}
        read = next(iter(devices.values())).task()
        for number in (1, 2):
            soon(lambda wanted=number: (now := role.current()) and world.read(now).number == wanted)
            for user in who[number - 1]:
                if user != away:
                    devices[user]._task = read
                    assert devices[user].take_part(*devices[user].rows).round == number
            soon(lambda: role._blanks._round)
            clock.now = SECRET.leaves(clock.now)
        theta = running.result()
    assert np.array_equal(theta, world.theta_in_memory([[user for user in some if user != away] for some in who], blank_coins))


@pytest.mark.parametrize("transport", ["masked-sum", "verified-sum"])
def test_an_analyzer_that_stops_in_an_opening_or_between_stages_asks_nobody_twice(make, clock, transport):
    """Five rounds, of which two are about rows; the process ends before and after each answer, and the same rounds go on."""
    world = make(rule="whitened", rounds=10, users=60, transport=transport)
    assert [phase.rounds for phase in world.task.schedule.phases] == [2, 8]
    role = world.shuffler()
    theta, seen = None, []
    for number in range(1, 11):
        with training(world) as running:  # a new process, on the same journal and database
            document = running.next_round(number - 1)
        with training(world) as running:
            assert running.next_round(number - 1) == document  # the very same round
            seen.append(world.read(document))
            role.open(document)
            for user in of_round(world, number):
                role.receive(world.names[user], world.report(user, document))
            clock.now += 2 * SECRET.seconds
            role.close_late()
            bring(role, running.population)
            if number == 10:
                theta = running.result()
            else:
                soon(lambda wanted=number: len(running.population.answered()) == wanted)
    assert [(one.phase, one.coordinates is None) for one in seen] == [(1, True)] * 2 + [(2, False)] * 8
    assert len({one.coordinates.digest for one in seen[2:]}) == 1
    assert np.linalg.norm(theta) > 0


def test_an_analyzer_on_another_processor_goes_on_with_the_round_that_is_open(make, clock, monkeypatch):
    """One entry of the coordinates is one unit of single precision off there: reports wait for the very round that was opened."""
    world = make(rule="whitened", rounds=10, users=60, transport="masked-sum")
    role, computed, seen = world.shuffler(), RowMoments.found, []

    def nudged(*arguments):
        view = computed(*arguments)
        turn = np.array(view.coordinates.turn, dtype=np.float32)
        turn[0, 1] = np.nextafter(turn[0, 1], np.float32(9))
        return replace(view, coordinates=replace(view.coordinates, turn=turn))

    for number in range(1, 11):
        with training(world) as running:
            document = running.next_round(number - 1)
        monkeypatch.setattr(RowMoments, "found", nudged if number % 2 else computed)
        with training(world) as running:
            assert running.next_round(number - 1) == document
            seen.append(world.read(document))
            role.open(document)
            for user in of_round(world, number):
                role.receive(world.names[user], world.report(user, document))
            clock.now += 2 * SECRET.seconds
            role.close_late()
            bring(role, running.population)
            soon(lambda wanted=number: len(running.population.answered()) == wanted)
            if number == 10:
                assert np.linalg.norm(running.result()) > 0
    assert len({one.coordinates.digest for one in seen[2:]}) == 1


def test_a_run_whose_rows_have_no_mean_to_take_off_states_its_public_coordinates(make):
    world = make(rule="centred", constant=0.0)
    (phase,) = world.task.schedule.phases
    assert (phase.share, phase.opens) == (0.0, False)
    with training(world) as running:
        asked_for = world.read(running.next_round())
    assert asked_for.coordinates.turn.tolist() == [float(np.float32(1 / 3))] * 5  # one over the norm of rows
    assert asked_for.coordinates.centre is None
    assert Task.read(world.task.document(world.analyzer_key), world.analyzer_key.public_key()).stages


# --- a hostile analyzer


def hostile(features: int) -> list[Coordinates]:
    """Maps that blow rows up, shut them off, or make all but one entry vanish."""
    largest, least = float(np.finfo(np.float32).max), float(np.finfo(np.float32).smallest_subnormal)
    spike = np.zeros((features, features))
    spike[0, 1] = largest
    signs = np.where(np.arange(features**2).reshape(features, features) % 2, largest, -largest)
    return [
        Coordinates(np.full(features, largest), np.append(np.full(features - 1, -largest), 0.0), 1.0),
        Coordinates(np.full(features, least)),
        Coordinates(np.zeros(features)),
        Coordinates(spike),
        Coordinates(signs),
        Coordinates(signs, np.full(features, largest), 1.0),
    ]


def round_at(world: World, number: int, theta, coordinates=None) -> TaskRound:
    phase = next(n for n in range(1, 3) if number in world.task.rounds_of(n))
    key = X25519PrivateKey.from_private_bytes(bytes(range(32))).public_key()
    return TaskRound(world.task.id, "b1", number, phase, np.asarray(theta, dtype=np.float64), key, coordinates=coordinates)


def sent_length(made: TaskRound, world: World, X, y) -> float:
    """The length of a device's vector, in norms of its round; what is encoded of it is in the unit ball, without rounding."""
    norm = made.phase_of(world.task).plan.norm
    vector = made.vector(world.task, X, y)
    assert np.isfinite(vector).all()
    (unit,) = clip_to_ball(LinearVectors.of(vector[np.newaxis]), norm)
    assert sum(Fraction(entry) ** 2 for entry in products(unit.rows, unit.coefficients)[0]) <= 1
    return float(np.linalg.norm(vector)) / norm


@pytest.mark.parametrize("kind", STAGED)
def test_no_coordinates_and_no_theta_make_a_device_send_more_than_the_rounds_norm(make, kind):
    """Hostile maps and thetas, over rows of all sizes; and a search by hill climbing for the longest vector."""
    world, generator = make(**STAGED[kind]), np.random.default_rng(7)
    query, targets = world.task.query, (0.0, 1.0)
    features = query.problem.features
    rows = [generator.normal(size=(1, features)) * scale for scale in (1e-200, 1.0, 1e200)]
    thetas = [np.zeros(query.dim), np.full(query.dim, 1.7e308), np.where(np.arange(query.dim) % 2, 1.7e308, -1.7e308)]
    for coordinates, theta, X, y in itertools.product(hostile(features), thetas, rows, targets):
        made = round_at(world, 2, theta, coordinates)
        assert sent_length(made, world, X, np.array([y])) <= 1 + 1e-9
    if kind in ("whitened", "scaled"):
        focused(world)
        for coordinates, theta, X, y in itertools.product(hostile(features), thetas, rows, targets):
            made = round_at(world, 2, theta, replace(coordinates, focus=FOCUS))
            assert sent_length(made, world, X, np.array([y])) <= 1 + 1e-9
    if kind == "line":
        few = [replace(coordinates, turn=np.tile(coordinates.turn, (2, 1))[:2]) for coordinates in hostile(features)]
        for coordinates, theta, X, y in itertools.product([*hostile(features), *few], thetas, rows, targets):
            made = round_at(world, 3, theta, coordinates)
            assert sent_length(made, world, X, np.array([y])) <= 1 + 1e-9
    for X, y in itertools.product(rows, targets):
        assert sent_length(round_at(world, 1, [0.0]), world, X, np.array([y])) <= 1 + 1e-9
    best, found = 0.0, (np.zeros(query.dim), np.eye(features), np.ones((1, features)))
    for _ in range(300):
        theta, turn, X = (part + generator.normal(size=part.shape) * 10 ** generator.uniform(-3, 3) for part in found)
        length = max(sent_length(round_at(world, 2, theta, Coordinates(turn)), world, X, np.array([y])) for y in targets)
        if length > best:
            best, found = length, (theta, turn, X)
    assert 0.99 < best <= 1 + 1e-9  # the search comes to the limit, and not beyond it


def test_a_person_of_several_rows_sends_their_mean_and_a_blank_says_nothing(make):
    world = make(**STAGED["squares"])
    asked_for = replace(world.task.query, records={"parameters": {"invalid": "blank"}})
    task = replace(world.task, query=asked_for)
    coordinates = Coordinates(np.eye(5))
    for made in (round_at(world, 1, [0.0]), round_at(world, 2, np.ones(5), coordinates)):
        one, other = (made.vector(world.task, world.X[user : user + 1], world.y[user : user + 1]) for user in (0, 1))
        assert made.vector(world.task, world.X[:2], world.y[:2]) == pytest.approx((one + other) / 2)
        nothing = np.full((1, 5), np.nan)
        with pytest.raises(ValueError, match=r"finite|NaN"):
            made.vector(world.task, nothing, np.zeros(1))
        blank = replace(made, task=task.id)
        assert not blank.vector(task, nothing, np.zeros(1)).any()
        assert np.array_equal(blank.vector(task, world.X[:1], world.y[:1]), one)


def test_a_person_of_many_rows_needs_no_more_memory_than_some_of_them_take(make, monkeypatch):
    """A device that runs out of memory sends nothing, and that would tell how many rows it has."""
    world = make(**STAGED["squares"])
    X, y = np.tile(world.X, (4_000, 1)), np.tile(world.y, 4_000)
    for made in (round_at(world, 1, [0.0]), round_at(world, 2, np.ones(5), Coordinates(np.eye(5)))):
        few = made.vector(world.task, world.X, world.y)
        monkeypatch.setattr(queries, "_MOST_NUMBERS", 7_000)
        tracemalloc.start()
        many = made.vector(world.task, X, y)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert many == pytest.approx(few, rel=1e-9, abs=1e-12)
        assert most < X.nbytes  # a vector of every row would be many times that
        monkeypatch.undo()


def test_a_round_states_coordinates_where_its_phase_has_some_and_nowhere_else(make):
    world = make(**STAGED["centred"])
    key, features = world.analyzer_key.public_key(), 3
    centred = Coordinates(np.ones(features), np.array([0.1, 0.2, 0.0]), 1.0)
    theta = np.linspace(-1, 1, 6)
    good = round_at(world, 2, theta, centred).document(world.analyzer_key)
    read = TaskRound.read(good, world.task, key)
    assert (read.coordinates.digest, read.theta.tolist()) == (centred.digest, theta.tolist())
    words = json.loads(good.text)["coordinates"]
    assert words == {"turn": "0000803f" * 3, "centre": "cdcccc3dcdcc4c3e00000000"}
    first = round_at(world, 1, [0.0]).document(world.analyzer_key)
    assert TaskRound.read(first, world.task, key).coordinates is None

    def refused(document, change) -> str:
        values = json.loads(document.text)
        change(values)
        with pytest.raises(WireError) as problem:
            TaskRound.read(Document.signed(2, values, world.analyzer_key), world.task, key)
        return str(problem.value)

    assert "does not state them" in refused(good, lambda values: values.pop("coordinates"))
    assert "as they come" in refused(first, lambda values: values.update(coordinates=words))
    for turn in (
        "",
        "0000803f" * 2,
        "0000803f" * 4,
        "0000803f" * 8,
        "0000803",
        "0000c07f" * 3,
        "0000807f" * 3,
        "g" * 24,
        "3F80" * 6,
    ):
        refused(good, lambda values, turn=turn: values["coordinates"].update(turn=turn))
    for centre in ("0000803f", "0000c07f" * 3, "0000803f" * 9):
        refused(good, lambda values, centre=centre: values["coordinates"].update(centre=centre))
    for other in ([], "x", None, {"turn": 1}, {"centre": "0000803f" * 3}, words | {"more": "00000000"}):
        refused(good, lambda values, other=other: values.update(coordinates=other))
    assert "1000000" in refused(good, lambda values: values["coordinates"].update(turn="00" * 500_001))
    plain = make(rule="plain", constant=0.0)
    stated = round_at(plain, 1, np.zeros(5), Coordinates(np.ones(5))).document(plain.analyzer_key)
    with pytest.raises(WireError, match="as they come"):
        TaskRound.read(stated, plain.task, plain.analyzer_key.public_key())
    no_constant = make(rule="whitened", constant=0.0)  # a centre is taken off along the constant
    stated = round_at(no_constant, 2, np.zeros(5), Coordinates(np.eye(5), np.zeros(5), 1.0)).document(no_constant.analyzer_key)
    with pytest.raises(WireError, match="constant"):
        TaskRound.read(stated, no_constant.task, no_constant.analyzer_key.public_key())


def test_a_round_states_how_people_count_by_their_odds_as_its_task_allows(make):
    world = focused(make(**STAGED["whitened"]))
    theta, features = np.linspace(-1, 1, 5), 5
    key = world.analyzer_key.public_key()
    stated = round_at(world, 2, theta, Coordinates(np.eye(features), focus=FOCUS)).document(world.analyzer_key)
    assert json.loads(stated.text)["coordinates"]["focus"] == FOCUS
    read = TaskRound.read(stated, world.task, key)
    plain = TaskRound.read(round_at(world, 2, theta, Coordinates(np.eye(features))).document(world.analyzer_key), world.task, key)
    assert (read.coordinates.focus, plain.coordinates.focus) == (FOCUS, 0.0)
    assert read.coordinates.digest != plain.coordinates.digest
    row, label = np.array([[0.3, -0.5, 0.2, 0.1, 1.0]]), np.ones(1)
    score = float(row[0] @ theta)
    weight = 1 - FOCUS * (1 - (1 / np.cosh(score / 2) ** 2) ** 2)  # by another route: 4 p (1 - p) is sech^2 of half the log-odds
    assert read.vector(world.task, row, label) == pytest.approx(weight * plain.vector(world.task, row, label))
    for other in (0.5, 1.0, -0.75, 0, "0.75", None, float("1e-300")):
        values = json.loads(stated.text)
        values["coordinates"]["focus"] = other
        with pytest.raises(WireError):
            TaskRound.read(Document.signed(2, values, world.analyzer_key), world.task, key)
    without = make(**STAGED["whitened"])
    with pytest.raises(WireError, match="otherwise than its task"):
        TaskRound.read(
            round_at(without, 2, theta, Coordinates(np.eye(features), focus=FOCUS)).document(without.analyzer_key),
            without.task,
            without.analyzer_key.public_key(),
        )


def weaker(values: dict) -> None:
    """Less noise in the opening than its figures are proved for."""
    for phase in values["schedule"]["phases"]:
        phase["lots"]["opening"][0]["plan"]["noise_bits"] = 1
    values["schedule"]["phases"][0]["plan"]["noise_bits"] = 1


def other_order(values: dict) -> None:
    values["schedule"]["phases"].reverse()


def more_rounds(values: dict) -> None:
    values["schedule"]["phases"][0]["rounds"] += 1


def other_lots(values: dict) -> None:
    values["schedule"]["phases"][1]["lots"]["users"] += 1


def no_opening(values: dict) -> None:
    del values["schedule"]["phases"][1]["lots"]["opening"]


def with_l2(values: dict) -> None:
    values["problem"]["l2"] = 0.1


def no_share(values: dict) -> None:
    del values["schedule"]["phases"][0]["share"]


def with_step(values: dict) -> None:
    values["schedule"]["phases"][0]["step"] = 1.0


def smoothed(values: dict) -> None:
    values["schedule"]["phases"][1]["smoothing"] = 1.0


def hasty(values: dict) -> None:
    values["schedule"]["phases"][0]["momentum"] = 0.5


def focused_opening(values: dict) -> None:
    values["schedule"]["phases"][0]["focus"] = 0.5


def too_focused(values: dict) -> None:
    values["schedule"]["phases"][1]["focus"] = 1.5


def long_constant(values: dict) -> None:
    values["problem"]["constant"] = 3.0


FALSE = [weaker, other_order, more_rounds, other_lots, no_opening, with_l2, no_share, with_step, smoothed, hasty, long_constant]
FALSE += [focused_opening, too_focused]


def focused_squares(values: dict) -> None:
    values["schedule"]["phases"][1]["focus"] = 0.5


def false(kind: str) -> list:
    """Changes that make a task claim what it does not prove; scores of squares and of several classes are no log-odds."""
    return FALSE + [focused_squares] * (kind in ("squares", "centred"))


@pytest.mark.parametrize("kind", STAGED)
def test_a_staged_task_comes_back_and_one_that_claims_what_it_does_not_prove_is_refused(make, roles, kind):
    task = replace(make(**STAGED[kind]).task, shuffler=roles.shuffler.public_key())
    document = task.document(roles.analyzer)
    read = Task.read(document, roles.analyzer.public_key())
    assert (read.id, read.stages, read.query.problem) == (task.id, True, task.query.problem)
    assert read.schedule.guarantee == task.schedule.guarantee
    for change in false(kind):
        with pytest.raises(WireError):
            Task.read(roles.edited(document, change), roles.analyzer.public_key())


# --- the client of browsers and phones


def public(world: World) -> str:
    return world.analyzer_key.public_key().public_bytes_raw().hex()


@needs_node
@pytest.mark.parametrize("kind", [*STAGED, "several", "weighted", "acsa"])
def test_both_clients_make_the_same_vectors_of_a_stage(make, kind):
    others = {
        "several": {"rule": "whitened", "loss": losses.CappedMultinomial(3), "dim": 4},
        "weighted": {"rule": "whitened", "loss": losses.Weighted(losses.CappedLogistic(), (1.0, 0.3))},
        "acsa": {"rule": "centred", "loss": losses.Weighted(losses.CappedMultinomial(3), (1.0, 0.5, 0.2)), "dim": 4},
    }
    world, generator = make(**(STAGED | others)[kind]), np.random.default_rng(3)
    world = focused(world) if kind in ("whitened", "scaled", "weighted") else world
    features, dim = world.task.query.problem.features, world.task.query.dim
    rows = [generator.normal(size=features) * scale for scale in (1e-3, 0.3, 1.0, 50.0)] + [np.zeros(features)]
    for row in rows[:-1]:
        row[-1] = 1.0
    centre = np.append(generator.normal(size=features - 1), 0.0)
    maps = [Coordinates(generator.normal(size=features), centre, 1.0), Coordinates(generator.normal(size=(features, features)))]
    rounds = [round_at(world, 1, [0.0]), *(round_at(world, 2, generator.normal(size=dim), one) for one in maps)]
    rounds += [round_at(world, 2, np.full(dim, 1e3), one) for one in maps]
    if kind in ("whitened", "scaled", "weighted"):
        rounds += [round_at(world, 2, generator.normal(size=dim), replace(one, focus=FOCUS)) for one in maps]
    cases = [
        {
            "document": made.document(world.analyzer_key).to_bytes().hex(),
            "rows": [{"x": row.tolist(), "y": label} for row in rows for label in (0, 1)],
        }
        for made in rounds
    ]
    task = world.task.document(world.analyzer_key).to_bytes().hex()
    there = iter(asked("stages", task=task, key=public(world), cases=cases))
    for made, row, label in itertools.product(rounds, rows, (0, 1)):
        here = made.vector(world.task, row[np.newaxis], np.array([label]))
        assert next(there)["vector"] == pytest.approx(here.tolist(), rel=1e-12, abs=1e-15)


@needs_node
def test_no_coordinates_make_a_device_in_node_send_more_than_the_rounds_norm(make):
    world, generator = make(**STAGED["centred"]), np.random.default_rng(7)
    features, dim = world.task.query.problem.features, world.task.query.dim
    thetas = [np.zeros(dim), np.full(dim, 1.7e308), np.where(np.arange(dim) % 2, 1.7e308, -1.7e308)]
    rounds = [round_at(world, 2, theta, one) for theta in thetas for one in hostile(features)] + [round_at(world, 1, [0.0])]
    rows = [
        {"x": (generator.normal(size=features) * scale).tolist(), "y": label} for scale in (1e-200, 1.0, 1e200) for label in (0, 1)
    ]
    cases = [{"document": made.document(world.analyzer_key).to_bytes().hex(), "rows": rows} for made in rounds]
    task = world.task.document(world.analyzer_key).to_bytes().hex()
    for answer in asked("stages", task=task, key=public(world), cases=cases):
        assert sum(Fraction(entry) ** 2 for entry in answer["unit"]) <= 1


# So many users that something is promised if their lots are known.
WATCHED = {"users": 240, "epsilon": 2.0, "max_inflation": 1.2, "honest": 0.95, "exclusions": True, "rounds": 3, "dim": 4}


@needs_node
def test_a_client_in_node_proves_both_figures_and_answers_stages_beside_python_clients(make, clock, seeded_blanks):
    world = make(**WATCHED | {"rule": "whitened", "secret": COVERED})
    world.task = replace(world.task, schedule=world.task.schedule.with_turnout(0.9))
    plan, guarantee = world.task.schedule.phases[0].lots, world.task.schedule.guarantee
    assert plan.most_excluded > 0
    watched = guarantee.if_watched.epsilon(1e-2)
    document = world.task.document(world.analyzer_key).to_bytes().hex()
    (read,) = asked("tasks", documents=[document], key=public(world), delta=1e-2)
    assert read["epsilon"] == pytest.approx(guarantee.epsilon(1e-2), rel=1e-4)
    assert read["watched"] == pytest.approx(watched, rel=1e-6)
    with deployed(world) as (running, role, url), ThreadPoolExecutor(1) as pool:
        who = members(world)
        refuses, *mine = [who[0][0], *[user for some in who for user in some[1:3]]]
        devices = [Device(user, world, url) for some in who for user in some[3:5]]
        for device in devices:
            device._task = devices[0].task()
        senders = {device.user for device in devices} | set(mine)
        in_node = [
            {
                "token": world.tokens[user],
                "folder": str(world.folder / f"node{user}"),
                "rows": [{"x": world.X[user].tolist(), "y": world.y[user]}],
                "seeds": {number: randomness(user, number)._root.hex() for number in (1, 2, 3)},
                "watched": (0.999 if user == refuses else 1.001) * watched,
            }
            for user in (refuses, *mine)
        ]
        running_in_node = pool.submit(
            asked, "devices", shuffler=url, key=public(world), epsilon=2.0, delta=1e-2, devices=in_node, wait=600
        )
        for number in (1, 2, 3):
            soon(lambda wanted=number: (now := role.current()) and world.read(now).number == wanted)
            for device in devices:
                device.take_part(*device.rows)
            soon(lambda: world.rows("shuffler", "SELECT count(*) FROM reports") == [(len(senders),)])
            soon(lambda: role._blanks._round)
            clock.now = COVERED.leaves(clock.now)
        refusal, *answers = running_in_node.result()
        theta = running.result()
    assert "knows when each person answered" in refusal["refused"]
    for user, answer in zip(mine, answers, strict=True):
        (lot,) = [lot for lot, some in enumerate(who, start=1) if user in some]
        assert [int(number) for number in answer["said"]] == [lot]
        assert [len(counts) for counts in answer["said"].values()] == [world.task.round_phases[min(lot, 2) - 1].plan.coordinates]
    came = [[user for user in some if user in senders] for some in who]
    assert np.array_equal(theta, world.theta_in_memory(came, blank_coins))


@needs_node
def test_a_client_in_node_sends_its_block_of_an_opening_and_refuses_what_is_not_proved(make, roles, clock, seeded_blanks):
    world = make(**IN_BLOCKS, transport="messages", epsilon=8.0)
    with deployed(world) as (running, role, url), ThreadPoolExecutor(1) as pool:
        who = members(world)
        values = [
            {
                "token": world.tokens[user],
                "folder": str(world.folder / f"node{user}"),
                "rows": [{"x": world.X[user].tolist(), "y": world.y[user]}],
                "seeds": {number: randomness(user, number)._root.hex() for number in range(1, 6)},
            }
            for user in (some[0] for some in who)
        ]
        soon(role.current)
        said = pool.submit(asked, "devices", shuffler=url, key=public(world), epsilon=8.01, delta=1e-2, devices=values, wait=600)
        for number in range(1, 6):
            soon(lambda wanted=number: (now := role.current()) and world.read(now).number == wanted)
            lots_here = len(world.task.lots_of(number))
            soon(lambda wanted=lots_here: world.rows("shuffler", "SELECT count(*) FROM reports") == [(wanted,)])
            soon(lambda: role._blanks._round)
            clock.now = SECRET.leaves(clock.now)
        answers, theta = said.result(), running.result()
    assert [list(answer["said"]) for answer in answers] == [["1"], ["1"], ["2"], ["3"], ["4"], ["5"]]
    assert np.array_equal(theta, world.theta_in_memory([some[:1] for some in who], blank_coins))


@needs_node
@pytest.mark.parametrize("kind", STAGED)
def test_both_clients_refuse_the_same_stages(make, roles, kind):
    task = replace(make(**STAGED[kind]).task, shuffler=roles.shuffler.public_key())
    document = task.document(roles.analyzer)
    documents = [document, *(roles.edited(document, change) for change in false(kind))]
    key = roles.analyzer.public_key().public_bytes_raw().hex()
    first, *others = asked("tasks", documents=[one.to_bytes().hex() for one in documents], key=key, delta=1e-2)
    assert first["epsilon"] == pytest.approx(task.schedule.guarantee.epsilon(1e-2), rel=1e-4)
    assert all(one["refused"].startswith("WireError") for one in others), others


# --- task files


def test_a_task_file_takes_the_practical_rule_of_a_fit_and_names_what_each_round_asks(tmp_path):
    task = loaded(tmp_path).task()
    assert [phase.algorithm for phase in task.schedule.phases] == ["moments", "descent"]
    words = dict(all_plan_words(task))
    assert "second moments of rows" in words["model"]
    assert "1 round asks for second moments of rows, 4 rounds for gradients" in words["method"]
    assert "1 of 2: 1 round of" in words["phase"]
    assert "3 coordinates, clipped to length 1" in words["vectors"]
    assert "coordinates that earlier rounds found" in words["phase 2: model"]
    assert "2 coordinates" in words["phase 2: gradients"]
    assert dict(plan_words(task, 2))["model"] == words["phase 2: model"]
    centred = loaded(tmp_path, 'rule = "centred"').task()
    assert [phase.algorithm for phase in centred.schedule.phases] == ["mean", "descent"]
    for line in ('rule = "plain"', 'rule = "bound"', 'lots = "open"', 'interactivity = "full"'):
        plain = loaded(tmp_path, line).task()
        assert not plain.stages
        assert "constant" not in plain.query.to_dict()["problem"]
    open_lots = dict(all_plan_words(loaded(tmp_path, 'lots = "open"').task()))
    assert 'rule "plain", because lots are not secret: practical steps' in open_lots["method"]
    with pytest.raises(ArgumentError, match="rule"):
        loaded(tmp_path, 'rule = "whitened"', 'lots = "open"').task()


def test_rules_whose_coordinates_are_too_long_are_refused_or_not_taken(tmp_path):
    columns = ", ".join(f"c{number} = {{low = 0, high = 1}}" for number in range(353))
    loaded(tmp_path)
    (tmp_path / "schema.toml").write_text(f'target = {{column = "ill", classes = ["yes", "no"]}}\ncolumns = {{{columns}}}\n')
    text = (tmp_path / "task.toml").read_text()
    taken = TaskFile.load(tmp_path / "task.toml").task().schedule  # a factor for each column is short
    assert [phase.algorithm for phase in taken.phases] == ["spread", "descent"]
    (tmp_path / "task.toml").write_text(f'{text}\nrule = "whitened"')
    with pytest.raises(ArgumentError, match=r"must be 'plain' for over 353 columns"):
        TaskFile.load(tmp_path / "task.toml").task()
    (tmp_path / "schema.toml").write_text(f'target = {{column = "score", range = [0, 1]}}\ncolumns = {{{columns}}}\n')
    (tmp_path / "task.toml").write_text(f'{text}\ntask = "regress-mean"')
    plain = TaskFile.load(tmp_path / "task.toml").task()
    assert not plain.stages
    because = 'because rule "whitened" would make long messages (set rule = "whitened" to use it all the same): practical steps'
    assert f'rule "plain", {because}' in dict(all_plan_words(plain))["method"]
    wide = losses.Problem(losses.CappedLogistic(), losses.Ball(dim=125_001, radius=50.0), feature_norm=2**0.5, constant=1.0)
    phases = [SimpleNamespace(algorithm="spread", share=0.1), SimpleNamespace(algorithm="descent", share=0.1)]
    with pytest.raises(ArgumentError, match=r"'scaled' .* must be 'plain' for over 125000 columns"):
        queries.check_coordinates(wide, SimpleNamespace(phases=phases))
    queries.check_coordinates(replace(wide, domain=losses.Ball(dim=125_000, radius=50.0)), SimpleNamespace(phases=phases))


# --- many tasks in one service, from files to models

SCHEMA = 'target = {column = "ill", classes = ["yes", "no"]}\ncolumns = {age = {low = 0, high = 100}, dose = {low = 0, high = 9}}\n'
TRAINING = """
schema = "schema.toml"
name = "{name}"
users = 24
rounds = 4
epsilon = 8.0
delta = 1e-2
honest = 1.0
rule = "{rule}"
pace = 0.05
round_seconds = 4
transport = "{transport}"
shuffler_key = "{key}"
"""


def test_two_staged_tasks_of_one_service_end_with_model_files_like_those_of_a_fit(tmp_path):
    with ExitStack() as stack:
        analyzer, service = Analyzer(tmp_path / "ann", stack), Service(tmp_path, stack)
        service.enrol(24, tmp_path)
        (tmp_path / "schema.toml").write_text(SCHEMA)
        url = stack.enter_context(Served(front_app("shuffler", service.host, service.host.people))).url
        clients: dict[str, list[Client]] = {}
        for name, rule, transport in (("scaled", "practical", "verified-sum"), ("centre", "centred", "masked-sum")):
            file = tmp_path / f"{name}.toml"
            file.write_text(TRAINING.format(name=name, rule=rule, transport=transport, key=service.key))
            with Web(front_app("analyzer", analyzer.host, analyzer.host.store)) as web:
                body = json.dumps({"name": name, "files": files_of(file)}).encode()
                assert web.post("/v1/admin/tasks", body, bearer(analyzer.token)).status == 200
            about = {"name": name, "analyzer": f"{analyzer.url}/tasks/{name}", "analyzer_key": analyzer.key}
            assert service.post("/v1/admin/tasks", about, service.operator).status == 200
            soon(lambda where=name: service.web.get(f"/tasks/{where}/v1/task").status == 200)
            at = f"{url}/tasks/{name}"
            clients[name] = [
                Client(at, one.token, analyzer.key, folder=tmp_path / f"{name}{one.number}", at_once=True, **ENOUGH)
                for one in service.people
            ]
            for one in clients[name]:
                one._task = clients[name][0].task()
                assert one._task.stages

        def everybody_answers(name: str) -> None:
            waiting = dict(enumerate(clients[name]))
            while not service.ended(name):
                for number, one in list(waiting.items()):
                    record = {"age": float(number * 4), "dose": float(number % 9), "ill": ["yes", "no"][number % 2]}
                    with suppress(ServerError):
                        if one.take_part_with(record):
                            del waiting[number]
                time.sleep(0.05)

        with ThreadPoolExecutor(2) as pool:
            for done in [pool.submit(everybody_answers, name) for name in clients]:
                done.result()
        tasks = analyzer.folder / "tasks"
        models = {name: soon(lambda where=name: next((tasks / where).glob("**/model.json"), None)) for name in clients}
        words = {name: json.loads(path.read_text()) for name, path in models.items()}
    (tmp_path / "people.csv").write_text(
        "age,dose,ill\n" + "".join(f"{number % 100},{number % 9},{['yes', 'no'][number % 2]}\n" for number in range(100))
    )
    options = {"epsilon": 8.0, "rounds": 4}
    fitted = fit_table(tmp_path / "people.csv", Schema.load(tmp_path / "schema.toml"), delta=1e-3, **options)
    fitted.save(tmp_path / "fitted.json")
    like = json.loads((tmp_path / "fitted.json").read_text())
    for name, asks in (("scaled", "means and squares of columns"), ("centre", "the mean of rows")):
        assert shape_of(words[name]) == shape_of(like)
        model = TableModel.load(models[name])
        assert asks in model.estimator.explain()
        assert [entry.phase for entry in model.estimator.result_.history] == [1, 2, 2, 2]


def shape_of(words) -> dict:
    """The names of a model file's words, two levels deep."""
    return {name: sorted(part) if isinstance(part, dict) else None for name, part in words.items()}
