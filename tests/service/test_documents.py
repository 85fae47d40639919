"""Signed documents of every kind, changed at random: the Python and the TypeScript client refuse the same ones."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from importlib.resources import files

import numpy as np
import pytest
from helpers_node import asked, needs_node
from helpers_roles import World
from test_tokens import keys_of
from test_typescript import ANALYZER, VECTORS, secret_values
from test_typescript_questions import STORED, task_of

import croupier as cr
import croupier.problem as problems
from croupier.optimizer.planning import METHODS
from croupier.privacy._filter import bounds_of
from croupier.service.client.budget import BudgetLimit, DeviceBudget
from croupier.service.wire.documents import Document, End, WireError, canonical, cleaned, sha256, signed_bytes
from croupier.service.wire.queries import STATISTICS, TrainingQuery, records_to_dict
from croupier.service.wire.task import Task, TaskRound
from croupier.service.wire.transports import TRANSPORTS
from croupier.table import Schema
from croupier.table.model import TASKS, Request

pytestmark = pytest.mark.process

KEY = ANALYZER.public_key()
TASK, ROUND, ARRIVALS, EXCLUSIONS, END, REFUSAL, HEARD = 1, 2, 4, 5, 16, 17, 18
DIGEST = "60b3743502f1001c6471a6546a0bd30ce485b4d08b93c9319b66d4317ea4271b"
# What takes the place of a value: of every type, at the ends of ranges and beyond them.
ODD = [None, True, False, 0, 1, -1, 2, 3.0, 0.5, -1.5, 1e308, 1e-320, 10**30, "", "x", "1", "full", "blank", "a\u202eb", "\x00"]
ODD += [[], {}, [1.0], ["a"], {"kind": "Ball"}, "replace-one", "query", 2**53, 1e12, 5]


def table_task(about: str) -> dict:
    """The words of a task that says how records become rows."""
    labels = {"classify": ["no", "yes", "so"], "svm": [1, 2]}
    target = {"column": "y", "classes": labels[about]} if about in labels else {"column": "y", "range": [0.0, 9.0]}
    columns = {"age": {"low": 0.0, "high": 100.0, "missing": True}, "pay": {"low": 0.0, "high": 1e6, "scale": "log"}}
    columns |= {"town": {"levels": ["a", "b"], "unknown": "refuse"}, "sex": {"levels": ["f", "m"], "reference": "f"}}
    facts = Schema.from_dict({"target": target, "columns": columns})
    more = {"quantile": {"quantile": 0.3}, "regress-huber": {"kappa": 0.2}}.get(about, {})
    parameters = {"epsilon": 8.0, "interactivity": "sequential", "honest": 0.9, "invalid": "blank", "rounds": 1} | more
    request = Request(about, parameters, 1e-2)
    estimator = request.estimator(facts, 40)
    estimator.lots, estimator._exclusions, estimator._stages = "open", True, False
    features = len(records_to_dict(facts, request)["features"])
    records = records_to_dict(facts, request)
    query = TrainingQuery(estimator.problem_for(features), records)
    task = Task("masked-sum", 40, query, estimator.plan(40, features), KEY, pace=1.0)
    return json.loads(task.document(ANALYZER).text)


def domain_task(loss, domain, method="auto") -> dict:
    problem = cr.Problem(loss=loss, domain=domain, feature_norm=1.5, l2=0.0)
    chosen = cr.schedule(problem, 40, epsilon=8.0, delta=1e-2, rounds=1, lots="open", max_inflation=3.0, method=method)
    return json.loads(Task("verified-sum", 40, TrainingQuery(problem), chosen, KEY).document(ANALYZER).text)


def world_task(folder, **about) -> dict:
    folder.mkdir(parents=True)
    world = World(folder, **about)
    world.close()
    return json.loads(replace(world.task).document(ANALYZER).text)


@cache
def of_vectors(name: str) -> dict:
    return json.loads(json.loads((VECTORS / "documents.json").read_text())[name]["text"])


def originals(folder) -> list[tuple[int, dict]]:
    """Valid documents of every kind, several of the kind that says most."""
    losses = domains = problems
    tasks = [
        of_vectors("task"),
        secret_values(),
        world_task(folder / "a", enroller=keys_of(1, "https://enroller.example")),
        world_task(folder / "b", interactivity="full", enroller=keys_of(3, "https://enroller.example")),
        world_task(folder / "c", calibration="paper-scaled", delta=9e-3, users=30),
        domain_task(losses.Weighted(losses.Multinomial(3), (1.0, 0.5, 0.2)), domains.Box(dim=6, lower=-1.0, upper=1.0)),
        domain_task(losses.SmoothedHinge(0.5), domains.L1Ball(dim=3, radius=2.0)),
        domain_task(losses.Squared(2.0), domains.Simplex(dim=3, total=1.0)),
        domain_task(losses.Pinball(0.3), domains.Ball(dim=2, radius=2.0, center=(0.5, 0.1))),
        *map(table_task, ("classify", "svm", "regress-huber", "regress-mean", "quantile")),
        *(json.loads(task_of(one["words"]).document(ANALYZER).text) for one in STORED),
    ]
    return [
        *((TASK, words) for words in tasks),
        *[(ROUND, of_vectors("round"))] * 3,
        (END, {"task": DIGEST, "rounds": 2, "reason": "the analyzer has stopped"}),
        (END, {"task": DIGEST, "rounds": 2, "reason": None}),
        (ARRIVALS, {"task": DIGEST, "round": 1, "arrived": 7}),
        (EXCLUSIONS, {"task": DIGEST, "round": "b1", "batch": DIGEST, "places": [0, 3, 8]}),
        (REFUSAL, {"task": DIGEST, "reason": "rounds of 3 are too small"}),
        (HEARD, {"task": DIGEST}),
        (TASK, secret_values(60, blocks=2)),
        *[(TASK, secret_values(rule=rule)) for rule in ("whitened", "centred")] * 2,
    ]


def staged_rounds() -> tuple[dict, list[dict]]:
    """The words of a task with stages, and of rounds of it: about rows, and in coordinates of both kinds."""
    words = secret_values(rule="whitened")
    common = of_vectors("round") | {"task": words["id"]}
    one, five = "0000803f", [0.5, -1.0, 0.25, 0.0, 1.0]
    later = common | {"number": 2, "phase": 2, "theta": five}
    rounds = [
        common | {"number": 1, "phase": 1, "theta": [0.0]},
        later | {"coordinates": {"turn": one * 25}},
        later | {"coordinates": {"turn": one * 5, "centre": one * 4 + "00000000"}},
    ]
    return words, rounds


def changed(words: dict, generator) -> dict:
    """The words with one place of them changed: another value, a value nearby, a field more, a field less."""
    made = json.loads(json.dumps(words))
    place, key = made, str(generator.choice(sorted(made)))
    while isinstance(place[key], dict | list) and place[key] and generator.random() < 0.93:
        place = place[key]
        key = str(generator.choice(sorted(place))) if isinstance(place, dict) else int(generator.integers(len(place)))
    old, pick = place[key], generator.random()
    if pick < 0.08 and isinstance(place, dict):
        place[str(generator.choice(["unheard", "diameter", "lots", "user", "share", "__proto__", "constructor"]))] = old
    elif pick < 0.16:
        del place[key]
    elif pick < 0.22 and isinstance(place, list):
        place.append(old)
    elif isinstance(old, int | float) and not isinstance(old, bool) and pick < 0.6:
        factor = float(generator.choice([0.0, -1.0, 0.5, 0.99, 1.01, 2.0, 1e3, 1e-3, 1e300]))
        scaled = min(old * factor, 1.7e308)  # an infinity is no JSON
        place[key] = [scaled, int(scaled), old + 1, float(old), str(old)][generator.integers(5)]
    elif isinstance(old, str) and pick < 0.4:
        place[key] = [old.upper(), old + " ", " " + old, old[:-1], old + "\n"][generator.integers(5)]
    else:
        place[key] = ODD[generator.integers(len(ODD))]
    return made


def bent(text: bytes, generator) -> bytes:
    """A JSON text with something that JSON has not, or some parsers take."""
    at = int(generator.integers(1, len(text)))
    pieces = [
        b"NaN",
        b"1e999",
        b"0" * 401,
        b"\xff",
        b"\\ud800",
        b" ",
        b"\x0b",
        b'"id":1,',
        b"[" * 120,
        b"//",
        b"-",
        b"+1",
        b"01",
        b"\x00",
    ]
    return [
        text[:at] + pieces[generator.integers(len(pieces))] + text[at:],
        b"\xef\xbb\xbf" + text,
        text.decode().encode("utf-16"),
        text[:at],
        b"[" + text + b"]",
        text + b" \n",
        text[:1] + b'"task":"",' + text[1:],
        text.replace(b":1,", b":1e0,", 1),
        text.replace(b"1", b"NaN", 1),
        text.replace(b'"', b'"\\u0061', 1),
    ][generator.integers(10)]


def mutants(kind: int, words: dict, count: int, generator) -> list[Document]:
    """Signed documents with something changed; a task's id is made anew, as its analyzer would."""
    documents = []
    for _ in range(count):
        made = changed(words, generator)
        if made and generator.random() < 0.1:
            made = changed(made, generator)
        share_lots(made.get("schedule") if kind == TASK else None)
        if kind == TASK and "id" in made and generator.random() < 0.97:
            made["id"] = sha256(
                json.dumps({k: v for k, v in made.items() if k != "id"}, sort_keys=True, separators=(",", ":")).encode()
            )
        text = json.dumps(made, sort_keys=True, separators=(",", ":")).encode()
        if generator.random() < 0.04:
            text = bent(text, generator)
        documents.append(Document(kind, text, ANALYZER.sign(signed_bytes(kind, text))))
    return documents


def share_lots(schedule) -> None:
    """Give all phases the lots of the first, and the plans of these: otherwise they would differ, and nothing else be looked at."""
    phases = schedule.get("phases") if isinstance(schedule, dict) else None
    lots = phases[0].get("lots") if isinstance(phases, list) and phases and isinstance(phases[0], dict) else None
    if not isinstance(lots, dict) or not all(isinstance(phase, dict) for phase in phases):
        return
    stages = lots.get("opening", [])
    plans = [stage.get("plan") if isinstance(stage, dict) else None for stage in stages] if isinstance(stages, list) else []
    for phase, plan in zip(phases, [*plans, lots.get("one_round")], strict=False):
        phase.update(plan=plan, lots=lots)


def refused_here(document: Document, task: Task) -> str | None:
    """Why Python's client refuses a document; None where it takes it."""
    try:
        if document.kind == TASK:
            Task.read(document, KEY).query.columns  # noqa: B018
        elif document.kind == ROUND:
            TaskRound.read(document, task, KEY)
        elif document.kind == END:
            End.read(document, task.id, KEY)
        else:
            document.verified(document.kind, KEY)
    except WireError as refusal:
        return str(refusal)
    return None


def check(documents: list[Document], words: dict | None = None) -> tuple[int, list[str]]:
    """How many documents both clients take, rounds as those of a task with these words, and those they think differently of."""
    origin = Document.signed(TASK, words or of_vectors("task"), ANALYZER)
    task = Task.read(origin, KEY)
    given = [{"kind": one.kind, "document": one.to_bytes().hex()} for one in documents]
    answers = asked("documents", documents=given, key=KEY.public_bytes_raw().hex(), task=origin.to_bytes().hex())
    taken, apart = 0, []
    for document, there in zip(documents, answers, strict=True):
        here = refused_here(document, task)
        taken += here is None and there is None
        if (here is None) != (there is None):
            apart.append(
                f"kind {document.kind}: Python {here or 'takes it'}; TypeScript {there or 'takes it'}\n{document.text[:3000]!r}"
            )
    return taken, apart


def run(folder, each: int, seed: int) -> None:
    generator, total = np.random.default_rng(seed), 0
    documents = []
    for kind, words in originals(folder):
        documents += [Document(kind, canonical(words), ANALYZER.sign(signed_bytes(kind, canonical(words))))]
        documents += mutants(kind, words, each, generator)
    taken, apart = check(documents)
    staged, rounds = staged_rounds()
    kinds = [one for words in rounds for one in (signed_again(ROUND, words), *mutants(ROUND, words, 3 * each, generator))]
    more, others = check(kinds, staged)
    assert more >= len(rounds)
    documents, taken, apart = documents + kinds, taken + more, apart + others
    total = len(documents)
    print(f"{total} documents, {taken} of them taken by both clients, {len(apart)} by one alone")
    assert not apart, "\n\n".join(apart[:8])
    assert taken >= len(originals(folder / "again"))  # the originals, at least


ATTACKS = {
    "a name that is no text": (TASK, lambda words: words.update(name=7)),
    "a name that would fill a ledger": (TASK, lambda words: words.update(name="n" * 501)),
    "more users than there are people": (TASK, lambda words: words.update(users=1e308)),
    "users as a float": (TASK, lambda words: words.update(users=8.0)),
    "an unknown word in problem": (TASK, lambda words: words["problem"].update(twice=True)),
    "an unknown word in a loss": (TASK, lambda words: words["problem"]["loss"].update(twice=True)),
    "an unknown word in a domain": (TASK, lambda words: words["problem"]["domain"].update(twice=True)),
    "a round's unknown word": (ROUND, lambda words: words.update(twice=True)),
    "theta as text": (ROUND, lambda words: words.update(theta=["0.5", "-1.25"])),
    "a float as a round's number": (ROUND, lambda words: words.update(number=1.0)),
    "a truth value as a round's phase": (ROUND, lambda words: words.update(phase=True)),
    "a reason that turns the writing": (END, lambda words: words.update(reason="a\u202eb")),
    "a whole number that is no float": (TASK, lambda words: words["schedule"].update(bound=2**53)),
    "too few people": (TASK, lambda words: words.update(users=0)),
    "coordinates where rows are taken as they come": (ROUND, lambda words: words.update(coordinates={"turn": "0000803f" * 2})),
    "a stage of open rounds": (TASK, lambda words: words["schedule"]["phases"][0].update(share=0.1)),
}
NONSENSE = [
    {"epsilon": "much"},
    {"rounds": 0},
    {"rounds": 2.0},
    {"honest": 7},
    {"rule": "none"},
    {"radius": -1.0},
    {"kappa": 0.1},
    {"delta": 1e-6},
]


@needs_node
def test_what_one_client_took_is_refused_by_both():
    """The attacks that one of the clients took."""
    documents = []
    for kind, change in ATTACKS.values():
        words = {TASK: of_vectors("task"), ROUND: of_vectors("round"), END: {"task": DIGEST, "rounds": 2, "reason": None}}[kind]
        made = json.loads(json.dumps(words))
        change(made)
        documents.append(signed_again(kind, made))
    for nonsense in NONSENSE:
        made = table_task("classify")
        made["records"]["parameters"] |= nonsense
        documents.append(signed_again(TASK, made))
    taken, apart = check(documents)
    assert (taken, apart) == (0, [])
    assert check([signed_again(TASK, table_task("classify"))]) == (1, [])


@needs_node
def test_a_name_that_turns_the_writing_is_clean_in_the_typescript_client():
    """The task's id is still that of the name as it was signed."""
    document = signed_again(TASK, of_vectors("task") | {"name": "a\u202eb\x1b"})
    (answer,) = asked("tasks", documents=[document.to_bytes().hex()], key=KEY.public_bytes_raw().hex(), delta=1e-2)
    assert (answer["name"], answer["id"]) == ("a\ufffdb\ufffd", Task.read(document, KEY).id)
    assert cleaned("a\u202eb\x1b") == "a\ufffdb\ufffd"


@needs_node
def test_both_ledgers_add_up_the_same_for_an_observer_of_arrival_times(tmp_path):
    task = Task.read(Document.signed(TASK, secret_values(), ANALYZER), KEY)
    budget = DeviceBudget(tmp_path / "budget.json")
    entries = []
    for number in range(2):
        budget.charge(f"{number}" * 64, "lots", "ab" * 32, task.schedule.guarantee)
        own, watched = (bounds_of([budget.entries()[0].guarantee], watched=watched)[0] for watched in (False, True))
        sums = {"mu": own.mu, "slack": own.slack, "watched": {"mu": watched.mu, "slack": watched.slack}}
        entries.append({"slot": f"{number}", "task": f"{number}" * 64, "round": 1, "phase": 1, **sums})
    delta = 16 * max(own.slack, watched.slack)
    budget.allow(BudgetLimit(100.0, delta, 86400.0))
    there = asked("ledger", entries=entries, delta=delta)
    assert there == [pytest.approx(budget.spent(), rel=1e-6), pytest.approx(budget.spent(watched=True), rel=1e-6)]
    assert there[1] > there[0]
    del entries[0]["watched"]  # an earlier version's: what it would be is not known
    assert asked("ledger", entries=entries, delta=delta) == [there[0], "endless"]


def signed_again(kind: int, words: dict) -> Document:
    if kind == TASK:
        words = words | {"id": sha256(canonical({name: value for name, value in words.items() if name != "id"}))}
    return Document.signed(kind, words, ANALYZER)


def test_the_description_knows_what_the_library_has():
    """A loss, a domain, a transport or a method that it does not know is refused by both clients: add it to documents.json."""
    shapes = json.loads((files("croupier.service.wire") / "documents.json").read_text())["shapes"]
    named = {
        base: {name for name, one in vars(problems).items() if isinstance(one, type) and issubclass(one, base)}
        for base in (problems.Loss, problems.Domain)
    }
    assert set(shapes["loss"]["kinds"]) == named[problems.Loss] - {"Loss"}
    assert set(shapes["domain"]["kinds"]) == named[problems.Domain] - {"Domain"}
    assert set(shapes["task"]["fields"]["transport"]["words"]) == set(TRANSPORTS)
    assert set(shapes["records"]["kinds"]) == set(TASKS)
    assert set(shapes["question"]["kinds"]) == set(STATISTICS)
    methods = {method for some in METHODS.values() for method in some} | {"auto", "moments", "rounds"}
    assert set(shapes["parameters"]["fields"]["method?"]["words"]) == methods


@needs_node
def test_both_clients_refuse_the_same_documents(tmp_path):
    run(tmp_path, each=10, seed=5)


@needs_node
@pytest.mark.slow
def test_both_clients_refuse_the_same_of_ten_thousand_documents(tmp_path):
    run(tmp_path, each=260, seed=2026)
