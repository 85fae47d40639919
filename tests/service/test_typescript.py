"""The TypeScript client against the Python one: the same bytes of the same randomness, the same refusals, one task for both."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from helpers_node import CLIENT, PAGE, ROOT, asked, needs_node, node
from helpers_roles import World, randomness
from test_deployed import deployed, devices_of, members

import croupier as cr
import croupier.problem as problems
from croupier import SumPlan, plan_sum
from croupier.protocol import VectorSum
from croupier.protocol.randomness import KeyedRandom
from croupier.service.wire.documents import TASK, Document, WireError
from croupier.service.wire.enrolment import EnrollerKeys
from croupier.service.wire.queries import TrainingQuery
from croupier.service.wire.task import SecretRounds, Task
from croupier.service.wire.transports import TRANSPORTS

pytestmark = pytest.mark.process

VECTORS = ROOT / "tests" / "service" / "vectors"
built = (CLIENT / "node_modules" / "esbuild").exists()
needs_esbuild = pytest.mark.skipif(not built, reason="npm install was not run in clients/typescript")
ANALYZER = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))


def test_the_published_digests_are_those_of_the_files_that_are_served():
    lines = [line.split("  ") for line in (PAGE / "SHA256SUMS").read_text().splitlines()]
    assert {name for _, name in lines} == {file.name for file in PAGE.iterdir()} - {"SHA256SUMS"}
    for digest, name in lines:
        assert hashlib.sha256((PAGE / name).read_bytes()).hexdigest() == digest, name


@needs_node
@needs_esbuild
def test_what_is_served_is_made_of_the_sources(tmp_path):
    node(CLIENT / "tools" / "build.mjs", "--to", tmp_path)
    for file in sorted(PAGE.iterdir()):
        assert (tmp_path / file.name).read_bytes() == file.read_bytes(), f"{file.name}: run npm run build in clients/typescript"
    node(CLIENT / "node_modules" / "typescript" / "bin" / "tsc", "--noEmit", "-p", CLIENT)


def test_the_vectors_are_those_that_python_makes():
    spec = importlib.util.spec_from_file_location("make_client", VECTORS / "make_client.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made, stored = json.loads(json.dumps(module.made())), json.loads((VECTORS / "client.json").read_text())
    for part in ("texts", "samplers", "roundings"):
        assert made[part] == stored[part]
    for one, other in zip(made["encodings"], stored["encodings"], strict=True):
        # A clipped vector's length is added up in numpy's order, which another processor may have another of.
        assert np.allclose(one["exact"], other["exact"], rtol=1e-14, atol=0)
        assert one["clipped"] or (one["exact"], one["counts"]) == (other["exact"], other["counts"])
    for part, name in (("gradients", "gradient"), ("stages", "vector"), ("rows", "rows")):
        for one, other in zip(made[part], stored[part], strict=True):
            assert np.allclose(one[name], other[name], rtol=1e-6, atol=1e-12)
    for one, other in zip(made["accounting"]["lots"], stored["accounting"]["lots"], strict=True):
        assert one["delta"] == pytest.approx(other["delta"], rel=1e-6)
    for one, other in zip(made["accounting"]["lots_plans"], stored["accounting"]["lots_plans"], strict=True):
        for figure in ("slack", "epsilon", "if_watched"):
            assert one[figure] == pytest.approx(other[figure], rel=1e-6), figure


def test_the_vectors_of_promises_are_those_that_python_makes():
    spec = importlib.util.spec_from_file_location("make_promises", VECTORS / "make_promises.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made, stored = json.loads(json.dumps(module.made())), json.loads((VECTORS / "promises.json").read_text())
    for part in ("samplers", "periods"):
        assert made[part] == stored[part]
    for part in ("paper", "paper_refused"):
        for one, other in zip(made[part], stored[part], strict=True):
            same = ("levels", "noise_bits", "users", "calibration", "honest", "rounds")
            assert [one["plan"][name] for name in same] == [other["plan"][name] for name in same]
    for one, other in zip(made["budgets"], stored["budgets"], strict=True):
        for event, before in zip(one["events"], other["events"], strict=True):
            for name in ("refusal", "counted", "answers"):
                assert event[name] == before[name]
            assert event["used"] == pytest.approx(before["used"], rel=1e-9)


def test_every_loss_of_a_task_has_a_vector():
    """A loss that the TypeScript client does not know makes it refuse the task: add it to clients/typescript/src/losses.ts."""
    kinds = {one["problem"]["loss"]["kind"] for one in json.loads((VECTORS / "client.json").read_text())["gradients"]}
    known = {name for name, kind in vars(problems).items() if isinstance(kind, type) and issubclass(kind, problems.Loss)}
    assert kinds == known - {"Loss"}


@needs_node
@needs_esbuild
def test_the_page_says_what_rounds_about_rows_ask():
    node("--test", CLIENT / "test" / "asked.test.mjs")


@needs_node
@pytest.mark.parametrize("name", ["vectors", "client"])
def test_every_vector_passes_in_node_and_the_client_keeps_its_word(name):
    node("--test", CLIENT / "test" / f"{name}.test.mjs")


@needs_node
def test_random_vectors_under_random_plans_make_the_same_counts_in_both():
    check_encodings(np.random.default_rng(7), plans=16, many=40)


def random_plan(generator) -> SumPlan:
    """A plan of any calibration, for gradients or questions, for many noise bits or few."""
    asked_for = {"epsilon": float(generator.uniform(0.3, 4)), "delta": 1e-6, "norm": float(generator.uniform(0.1, 3))}
    asked_for |= {"users": int(generator.integers(50, 4000)), "dim": int(generator.integers(1, 60)), "max_inflation": 1.5}
    kind = generator.integers(8)
    if kind == 0:  # thousands of noise bits, and more
        asked_for |= {"users": int(generator.integers(2, 20)), "max_inflation": 1.001, "dim": int(generator.integers(1, 6))}
    elif kind == 1:
        asked_for |= {"honest": float(generator.uniform(0.4, 1)), "rounds": int(generator.integers(1, 9))}
    elif kind == 2:
        asked_for |= {"diameter": asked_for["norm"] * float(generator.uniform(1, 2))}
    elif kind == 3:
        calibration = str(generator.choice(["paper", "paper-scaled"]))
        asked_for |= {"calibration": calibration, "epsilon": 4.0, "norm": 0.3, "delta": 1e-3, "dim": int(generator.integers(1, 4))}
    elif kind == 4:
        asked_for |= {"neighbours": "zero-out"}
    elif kind == 5:
        asked_for |= {"dim": int(generator.integers(30, 300)), "rotation": float(generator.uniform(1, 5))}
    return plan_sum(**{"rotation": None} | asked_for)


def check_encodings(generator, plans: int, many: int) -> int:
    """Random vectors under random plans, in both languages; how many there were. Of plans with long reports there are few."""
    cases, wanted = [], []
    for _ in range(plans):
        plan = random_plan(generator)
        size = many if plan.bits_per_user < 100_000 else max(1, many // 50)
        vectors = generator.normal(size=(size, plan.dim)) * generator.choice([0.01, 0.5, 5.0, 1e200], size=(size, 1))
        seeds = [generator.bytes(32) for _ in vectors]
        sources = [KeyedRandom(seed, private=False) for seed in seeds]
        wanted.append(
            [
                VectorSum(plan, seed=bytes(32)).randomize(v, s).bits.sum(axis=1).tolist()
                for v, s in zip(vectors, sources, strict=True)
            ]
        )
        given = [{"vector": v.tolist(), "seed": s.hex()} for v, s in zip(vectors, seeds, strict=True)]
        cases.append({"plan": plan.to_dict(), "vectors": given})
    assert asked("encodings", cases=cases) == wanted
    return sum(map(len, wanted))


def mutated(values, generator):
    """The words with one of their values changed, at random."""
    changed = json.loads(json.dumps(values))
    place, key = changed, generator.choice(sorted(changed))
    while isinstance(place[key], dict | list) and place[key] and generator.random() < 0.9:
        place = place[key]
        key = generator.choice(sorted(place)) if isinstance(place, dict) else int(generator.integers(len(place)))
    old = place[key]
    if isinstance(old, bool) or old is None or not isinstance(old, int | float):
        new = [None, 0, 1, -1.5, "", "full", [], {}, True, "replace-one", 3.0][generator.integers(11)]
    else:
        factor = generator.choice([0.0, -1.0, 0.5, 0.99, 1.01, 2.0, 1e3, 1e-3])
        new = [old * float(factor), int(old * factor), old + 1, str(old), None][generator.integers(5)]
    if generator.random() < 0.05 and isinstance(place, dict):
        place["unheard"] = new
    elif generator.random() < 0.05 and isinstance(place, dict):
        del place[key]
    else:
        place[key] = new
    return changed


def fuzzed(values: dict, count: int, seed: int) -> list[Document]:
    """Signed tasks with a word changed, half of them words of their lots, their ids made anew."""
    from croupier.service.wire.documents import canonical, sha256  # noqa: PLC0415

    generator, documents = np.random.default_rng(seed), []
    for _ in range(count):
        changed = json.loads(json.dumps(values))
        phases = changed["schedule"]["phases"] if "secret" in values else [{}]
        last = phases[-1]
        if "lots" in last and generator.random() < 0.25:
            for phase, lots in zip(phases, [mutated(last["lots"], generator)] * len(phases), strict=True):
                phase["lots"] = lots
        elif "lots" in last and generator.random() < 0.25:
            stages, which = last["lots"].get("opening", []), int(generator.integers(len(phases)))
            plan = phases[which]["plan"] = mutated(phases[which]["plan"], generator)
            place, name = (last["lots"], "one_round") if which == len(stages) else (stages[which], "plan")
            place[name] = plan
            for phase in phases:
                phase["lots"] = last["lots"]
        else:
            changed = mutated(values, generator)
        if "id" in changed and generator.random() < 0.97:
            changed["id"] = sha256(canonical({name: value for name, value in changed.items() if name != "id"}))
        documents.append(Document.signed(TASK, changed, ANALYZER))
    return documents


def secret_values(dim: int = 5, counted: bool = False, blocks: int = 1, rule: str = "plain") -> dict:
    """The words of a task with secret lots, of whose users not all come, and whose reports may be left out."""
    about = {"feature_norm": 3.0, "constant": 0.0 if rule == "plain" else 1.0}
    problem = cr.Problem(loss=cr.losses.Logistic(), domain=cr.domains.Ball(dim=dim, radius=5.0), **about)
    asked_for = {"epsilon": 1.0, "delta": 1e-2, "method": "acsa", "rounds": 3, "max_inflation": 1.1, "honest": 0.95}
    asked_for |= {"rule": rule, "lots": "secret", "exclusions": True, "blocks": blocks}
    asked_for["method"] = "acsa" if rule == "plain" else "auto"
    chosen = cr.schedule(problem, 90, **asked_for).with_turnout(0.8)
    enroller = None
    if counted:  # by an enroller that signs tokens for blanks
        chosen = chosen.with_bounded_blanks()
        enroller = EnrollerKeys("https://e.example", tuple((1 << 2047) + odd for odd in (1, 3, 5)), chosen.phases[0].lots.blanks)
    about = {"secret": SecretRounds(100.0), "enroller": enroller}
    task = Task("masked-sum", 90, TrainingQuery(problem), chosen, ANALYZER.public_key(), **about)
    return json.loads(task.document(ANALYZER).text)


@needs_node
@pytest.mark.parametrize(
    "lots", ["open", "secret", "secret and counted", "secret and rotated", "secret and in blocks", "secret, counted and in stages"]
)
def test_a_changed_task_is_never_taken_that_python_refuses(lots):
    if lots == "open":
        values = json.loads(json.loads((VECTORS / "documents.json").read_text())["task"]["text"])
    else:
        rotated, cut = lots in ("secret and rotated", "secret and in blocks"), lots == "secret and in blocks"
        rule = "whitened" if lots.endswith("stages") else "plain"
        values = secret_values(60 if rotated else 5, "counted" in lots, 2 if cut else 1, rule)
        assert ("range" in values["schedule"]["phases"][-1]["plan"]) == rotated
        assert ("blocks" in values["schedule"]["phases"][-1]["plan"]) == cut
    check_refusals(fuzzed(values, 400 if lots in ("open", "secret") else 200, seed=11))


def check_refusals(documents: list[Document]) -> int:
    """Whatever Python refuses is refused in Node; what both take has the same promise. How many both take."""
    key = ANALYZER.public_key()
    answers = asked("tasks", documents=[d.to_bytes().hex() for d in documents], key=key.public_bytes_raw().hex(), delta=1e-2)
    taken = 0
    for document, answer in zip(documents, answers, strict=True):
        try:
            task = Task.read(document, key)
        except WireError:
            assert "refused" in answer, document.text
            continue
        if "refused" not in answer:
            taken += 1
            promise = task.schedule.guarantee
            assert answer["id"] == task.id
            assert answer["epsilon"] == pytest.approx(promise.epsilon(1e-2), rel=1e-6)
            if promise.watched is None or promise.watched.slack >= 1e-2:
                assert answer["watched"] is None  # as JSON has infinity
            else:
                assert answer["watched"] == pytest.approx(promise.watched.epsilon(1e-2), rel=1e-6)
    assert taken > len(documents) / 50
    return taken


def rows_of(world: World, user: int):
    return [{"x": world.X[user].tolist(), "y": world.y[user]}]


def seeds_of(user: int, rounds: int) -> dict[int, str]:
    return {number: randomness(user, number)._root.hex() for number in range(1, rounds + 1)}


# By the paper's calibration: 68,216 noise bits per coordinate.
PAPERS = {"calibration": "paper-scaled", "delta": 9e-3}
ROTATED = {"dim": 60, "max_inflation": 1.2}


@needs_node
@pytest.mark.parametrize(
    ("transport", "more"), [*((one, {}) for one in sorted(TRANSPORTS)), ("masked-sum", PAPERS), ("masked-sum", ROTATED)]
)
def test_python_and_node_clients_make_the_model_of_the_run_in_memory_together(tmp_path, transport, more):
    world = World(tmp_path, transport=transport, interactivity="sequential", users=30, **more)
    stopped = threading.Event()
    with deployed(world) as (running, url, _), ThreadPoolExecutor(17) as pool:
        devices = devices_of(world, url)
        others = {user: device for user, device in enumerate(devices) if user % 2 == 0}
        mine = [user for user in range(30) if user not in others]
        values = {
            "shuffler": url,
            "key": world.analyzer_key.public_key().public_bytes_raw().hex(),
            "epsilon": 8.01,
            "delta": 1e-2,
            "devices": [
                {"token": world.tokens[u], "folder": str(tmp_path / f"node{u}"), "rows": rows_of(world, u), "seeds": seeds_of(u, 3)}
                for u in mine
            ],
        }
        in_node = pool.submit(asked, "devices", **values)
        list(pool.map(lambda device: device.keep_answering(1, stopped), others.values()))
        answers = in_node.result()
        theta = running.result()
    assert [answer["answered"] for answer in answers] == [1] * 15
    who = members(list(others.values()), 3)
    for user, answer in zip(mine, answers, strict=True):
        (number,) = map(int, answer["said"])
        who[number - 1].append(user)
    assert np.array_equal(theta, world.theta_in_memory([sorted(some) for some in who]))
    world.close()


def speeds(dim: int, transport: str = "masked-sum", reports: int = 20) -> list[float]:
    """Milliseconds of reports in Node: `python -c "..."` prints them, no test asserts on them."""
    plan = plan_sum(epsilon=1.0, delta=1e-6, users=10_000, dim=dim, rotation=None)
    key = X25519PrivateKey.generate().public_key().public_bytes_raw().hex()
    return asked("speed", plan=plan.to_dict(), key=key, transport=transport, reports=reports)
