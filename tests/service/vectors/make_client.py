"""Makes client.json beside it, which clients in other languages are checked against: python tests/service/vectors/make_client.py

What a client computes before it seals: canonical texts, draws, encodings, gradients, rows and figures of privacy, for fixed random
bytes. `exact` parts are the same bit for bit on every machine; the others are right to the tolerance that stands beside them, since
libraries' exp and log differ in last digits (clients/computing.md, "What is exact").
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import croupier.problem as problems
from croupier.arithmetic import LinearVectors
from croupier.optimizer._gradients import Gradients, Rows, opening_query
from croupier.privacy import LotsPlan, plan_lots, plan_sum
from croupier.privacy._allocation import Allocation
from croupier.privacy._crowd import honest_in_batch, overflow, surely_honest
from croupier.privacy._filter import Caps, GaussianBound
from croupier.privacy.certificate import bend
from croupier.privacy.gaussian import gaussian_delta, gaussian_mu
from croupier.privacy.lots import Opening
from croupier.problem import Ball, Problem
from croupier.problem.problem import Coordinates, Recast
from croupier.protocol import VectorSum
from croupier.protocol._encoding import Rotation, clip_to_ball, encode
from croupier.protocol._randomizer import Randomizer
from croupier.protocol._sampling import binomial, round_at_random
from croupier.protocol.randomness import KeyedRandom
from croupier.service.wire.documents import canonical, sha256
from croupier.service.wire.queries import TrainingQuery
from croupier.service.wire.reports import count_width
from croupier.service.wire.transports import block_digest
from croupier.table._read import Piece

HERE = Path(__file__).parent
# Quantities that pass through exp or log agree to this, in parts of the largest number of a vector.
BOUNDED = 1e-12


def made() -> dict[str, Any]:
    return {
        "texts": [text_vector(values) for values in texts()],
        "samplers": [sampler_vector(number, *case) for number, case in enumerate(sampler_cases())],
        "roundings": [rounding_vector(number, levels) for number, levels in enumerate((1, 3, 40, 255, 256, 5000))],
        "encodings": [encoding_vector(number) for number in range(40)],
        "rotations": [rotation_vector(number) for number in range(12)],
        "blocks": [block_vector(number) for number in range(12)],
        "gradients": [gradient_vector(number, *case) for number, case in enumerate(gradient_cases())],
        "stages": [stage_vector(number, *case) for number, case in enumerate(stage_cases())],
        "rows": [rows_vector(*case) for case in rows_cases()],
        "accounting": accounting(),
    }


def key(*purpose: str | int) -> bytes:
    return bytes.fromhex(sha256(" ".join(map(str, ("client vector", *purpose))).encode()))


def generator(*purpose: str | int) -> np.random.Generator:
    return np.random.default_rng(int.from_bytes(key(*purpose)[:8], "big"))


def texts() -> list[dict[str, Any]]:
    numbers = [
        0.0,
        -0.0,
        5.0,
        5,
        1e-6,
        1e-4,
        0.0001234,
        1e15,
        1e16,
        1.5e16,
        123456789012345680.0,
        1e22,
        5e-324,
        1.7976931348623157e308,
    ]
    numbers += [0.1, -2.5, 1 / 3, 2**53, 2**60, -7, 1e5, 100000.0, 3e-5]
    words = ["", "Ulm", 'a"b\\c/d', "\x00\x1f\x7f\u0080", "é ü ß", "\U0001f600 \uffff", "\b\f\n\r\t", "\u2028"]
    names = {"\U0001f600": 1, "\uffff": 2, "b": {"z": [], "a": {}}, "a": None, "B": [True, False]}
    return [{"numbers": numbers}, {"words": words}, {"names": names}]


def text_vector(values: dict[str, Any]) -> dict[str, Any]:
    text = canonical(values)
    return {"given": json.dumps(values, ensure_ascii=False, indent=1), "canonical": text.decode(), "digest": sha256(text)}


def sampler_cases() -> list[tuple[int, float, int]]:
    few = [(trials, p, 7) for trials in (1, 5, 8, 17, 33, 63) for p in (0.5, 0.375, 0.2734375, 1 / 3)]
    more = [(trials, p, 5) for trials in (64, 65, 100, 127, 128, 500, 1000) for p in (0.5, 0.46875, 0.3)]
    return [*few, *more, (1000, 0.1, 900), (3, 0.46875, 500), (40, 1e-3, 300), (900, 0.1, 8000)]


def sampler_vector(number: int, trials: int, probability: float, size: int) -> dict[str, Any]:
    source = KeyedRandom(key("sampler", number), private=False)
    draws = binomial(source, trials, probability, size)
    return {
        "seed": key("sampler", number).hex(),
        "trials": trials,
        "probability": probability,
        "size": size,
        "draws": draws.tolist() if size <= 900 else [],
        "digest": sha256(",".join(map(str, draws.tolist())).encode()),
        "next": source.draw_bytes(8).tobytes().hex(),  # so many bytes were used, and no more
    }


def rounding_vector(number: int, levels: int) -> dict[str, Any]:
    rng = generator("rounding", number)
    numbers = rng.uniform(0, levels, 600)
    numbers[::7] = np.floor(numbers[::7])
    numbers[1::7] = np.floor(numbers[1::7] * 256) / 256
    source = KeyedRandom(key("rounding", number), private=False)
    rounded = round_at_random(source, numbers, levels)
    after = source.draw_bytes(8).tobytes().hex()
    seed = key("rounding", number).hex()
    return {"seed": seed, "numbers": numbers.tolist(), "rounded": np.asarray(rounded).tolist(), "next": after}


def encoding_vector(number: int) -> dict[str, Any]:
    rng = generator("encoding", number)
    dim = int(rng.integers(1, 40))
    plan = plan_sum(
        epsilon=1.0, delta=1e-6, users=int(rng.integers(100, 3000)), dim=dim, norm=float(rng.choice([1.0, 0.7, 2.5])), rotation=None
    )
    vector = rng.normal(size=dim) * float(rng.choice([0.01, 0.3, 3.0, 1e60, 1e120])) / math.sqrt(dim)
    (unit,) = clip_to_ball(LinearVectors.of(vector[np.newaxis]), plan.norm)
    report = VectorSum(plan).randomize(vector, KeyedRandom(key("encoding", number), private=False))
    return {
        "seed": key("encoding", number).hex(),
        "plan": plan.to_dict(),
        "vector": vector.tolist(),
        # the length of a vector that is clipped is added up in the order of numpy on x86-64; elsewhere it may end on another digit
        "clipped": bool(np.linalg.norm(vector / np.abs(vector).max()) * np.abs(vector).max() > plan.norm),
        "exact": encode(unit.numbers(), plan.levels)[0].tolist(),
        "counts": report.bits.sum(axis=1).tolist(),
    }


def rotation_vector(number: int) -> dict[str, Any]:
    rng, context = generator("rotation", number), key("round", number)
    dim, norm = int(rng.integers(20, 300)), float(rng.choice([1.0, 0.7, 2.5]))
    users, box = int(rng.integers(100, 3000)), float(rng.choice([1.5, 3.0, 3.7]))
    plan = plan_sum(epsilon=1.0, delta=1e-6, users=users, dim=dim, norm=norm, rotation=box, max_inflation=1.3)
    vector = rng.normal(size=dim) * float(rng.choice([0.01, 0.3, 3.0, 1e60, 1e120])) / math.sqrt(dim)
    if number % 4 == 3:  # on one axis, and zero
        vector[1:] = 0.0
        vector[0] *= number % 8 == 3
    (unit,) = clip_to_ball(LinearVectors.of(vector[np.newaxis]), plan.norm)
    protocol = Randomizer(plan, context)
    report = protocol.randomize(vector, KeyedRandom(key("rotated", number), private=False))
    return {
        "seed": key("rotated", number).hex(),
        "round": context.hex(),
        "plan": plan.to_dict(),
        "vector": vector.tolist(),
        "exact": encode(protocol.numbers(unit), plan.levels)[0].tolist(),
        "counts": report.bits.sum(axis=1).tolist(),
        "bits a masked count": count_width(plan),
    }


def block_vector(number: int) -> dict[str, Any]:
    rng, context = generator("block", number), key("round of blocks", number)
    dim, norm, blocks = int(rng.integers(20, 300)), float(rng.choice([1.0, 0.7, 2.5])), 2 << number % 3
    request: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-5, "users": int(rng.integers(500, 3000)), "rounds": 3}
    box = float(rng.choice([1.5, 3.0, 3.7]))
    plan = plan_lots(**request, dim=dim, norm=norm, rotation=box, blocks=blocks, max_inflation=2.0).one_round
    vector = rng.normal(size=dim) * float(rng.choice([0.01, 0.3, 3.0, 1e60, 1e120])) / math.sqrt(dim)
    block = int(rng.integers(blocks))
    protocol = Randomizer(plan, context, block)
    if number % 4 == 3:  # all of it in this block, which is clipped to its norm; and zero
        sent = np.zeros(plan.coordinates)
        sent[:3] = (3.0 * plan.norm, -plan.norm, 0.01) if number % 8 == 3 else 0.0
        vector = Rotation(plan, context).back(sent, block)
    (unit,) = clip_to_ball(LinearVectors.of(vector[np.newaxis]), plan.norm)
    report = protocol.randomize(vector, KeyedRandom(key("block", number), private=False))
    return {
        "seed": key("block", number).hex(),
        "round": context.hex(),
        "block": block,
        "bound to": block_digest(context, block).hex(),
        "plan": plan.to_dict(),
        "vector": vector.tolist(),
        "exact": encode(protocol.numbers(unit), plan.levels)[0].tolist(),
        "counts": report.bits.sum(axis=1).tolist(),
    }


def gradient_cases() -> list[tuple[dict[str, Any], float, float | None]]:
    plain: list[dict[str, Any]] = [
        {"kind": "Logistic"},
        {"kind": "CappedLogistic"},
        {"kind": "CappedMultinomial", "classes": 3},
        {"kind": "Hinge"},
        {"kind": "SmoothedHinge", "width": 0.5},
        {"kind": "SquaredHinge"},
        {"kind": "Multinomial", "classes": 4},
        {"kind": "Squared", "target_bound": 1.0},
        {"kind": "Huber", "kappa": 0.25},
        {"kind": "Pinball", "quantile": 0.75},
        {"kind": "Absolute"},
        {"kind": "EpsilonInsensitive", "width": 0.125},
        {"kind": "Weighted", "loss": {"kind": "Logistic"}, "weights": [0.25, 1.0]},
        {"kind": "Weighted", "loss": {"kind": "Multinomial", "classes": 3}, "weights": [0.5, 1.0, 0.125]},
    ]
    return [(loss, l2, beta) for loss in plain for l2, beta in ((0.0, None), (0.01, None), (0.0, 2.0), (0.05, 30.0))]


def made_loss(values: dict[str, Any]) -> Any:
    given = {name: value for name, value in values.items() if name != "kind"}
    if "loss" in given:
        given = {"loss": made_loss(given["loss"]), "weights": tuple(given["weights"])}
    return getattr(problems, values["kind"])(**given)


def gradient_vector(number: int, loss_values: dict[str, Any], l2: float, beta: float | None) -> dict[str, Any]:
    rng = generator("gradient", number)
    loss, features = made_loss(loss_values), int(rng.integers(1, 12))
    dim = loss.outputs * features
    problem = Problem(loss=loss, domain=Ball(dim=dim, radius=20.0), feature_norm=1.5, l2=l2)
    rows = int(rng.integers(1, 6))
    X = rng.normal(size=(rows, features)) * rng.choice([0.2, 1.0, 9.0], size=(rows, 1))
    kinds = (loss_values["kind"], loss_values.get("loss", {}).get("kind"))
    if loss.outputs > 1:
        y = rng.integers(0, loss.outputs, rows).astype(float)
    elif {"Logistic", "CappedLogistic", "Hinge", "SmoothedHinge", "SquaredHinge"} & set(kinds):
        y = rng.integers(0, 2, rows).astype(float)
    else:
        y = rng.uniform(-1.5, 1.5, rows)
    theta = rng.normal(size=dim) * rng.choice([0.1, 3.0])
    objective = problem if beta is None else problem.smoothed(beta)
    gradient = np.asarray(Gradients(objective, theta)(X, y)).mean(axis=0)
    stated = {
        "loss": loss_values,
        "domain": {"kind": "Ball", "dim": dim, "radius": 20.0, "center": None},
        "feature_norm": 1.5,
        "l2": l2,
    }
    return {
        "problem": stated,
        "smoothing": beta,
        "theta": theta.tolist(),
        "rows": X.tolist(),
        "targets": y.tolist(),
        "gradient": gradient.tolist(),
        "tolerance": BOUNDED,
    }


def stage_cases() -> list[tuple[dict[str, Any], str]]:
    """Losses that a staged run may have, and what its rounds ask."""
    some = [loss for loss, l2, beta in gradient_cases() if l2 == 0 and beta is None]
    return [(loss, asks) for loss in some for asks in ("mean", "spread", "moments", "descent", "acsa")] + [
        (loss, "line") for loss in some
    ]


def stage_vector(number: int, loss_values: dict[str, Any], asks: str) -> dict[str, Any]:
    rng = generator("stage", number)
    loss, features = made_loss(loss_values), int(rng.integers(2, 9))
    constant = float(rng.choice([0.0, 1.0]))
    problem = Problem(
        loss=loss, domain=Ball(dim=loss.outputs * features, radius=20.0), feature_norm=math.sqrt(2.0), constant=constant
    )
    rows, share, norm = int(rng.integers(1, 4)), float(rng.choice([0.1, 0.4])), float(rng.choice([0.05, 0.3]))
    X = rng.normal(size=(rows, features)) * rng.choice([0.2, 1.0, 9.0], size=(rows, 1))
    y = rng.integers(0, 2, rows).astype(float)
    theta = rng.normal(size=problem.dim) * rng.choice([0.1, 3.0])
    turn = rng.normal(size=(2, features) if asks == "line" else features if number % 2 else (features, features))
    centre = np.append(rng.normal(size=features - 1), 0.0) if constant else None
    coordinates = Coordinates(turn, centre, constant)
    opens = asks in ("mean", "spread", "moments")
    query = opening_query(asks, Rows(problem, share), False) if opens else None
    vectors = (query or Gradients(Recast(problem, coordinates, norm, alike=asks != "acsa"), theta))(X, y)
    return {
        "problem": {"loss": loss_values}
        | {word: part for word, part in TrainingQuery(problem).to_dict()["problem"].items() if word != "loss"},
        "algorithm": asks,
        "share": share,
        "norm": norm,
        "theta": [0.0] if opens else theta.tolist(),
        "coordinates": None if opens else coordinates.to_dict(),
        "rows": X.tolist(),
        "targets": y.tolist(),
        "vector": np.asarray(vectors).mean(axis=0).tolist(),
        "tolerance": BOUNDED,
    }


def rows_cases() -> list[tuple[dict[str, Any], list[dict[str, str]]]]:
    columns = [
        {"name": "age", "low": 18.0, "high": 90.0, "missing": True},
        {"name": "income", "low": 0.0, "high": 1e6, "scale": "log"},
        {"name": "town", "levels": ["Ulm", "Bonn", "Ürzig"]},
        {"name": "smokes", "levels": ["true", "false"], "unknown": "refuse"},
    ]
    people = [
        {"age": "42", "income": "31000.5", "town": "Bonn", "smokes": "True", "y": "yes"},
        {"age": "", "income": "-5", "town": " Ürzig ", "smokes": "false", "y": "no"},
        {"age": "NA", "income": "1e7", "town": "Paris", "smokes": "FALSE", "y": "yes"},
        {"age": "17.25", "income": "0", "town": "", "smokes": "true", "y": "no"},
    ]
    bad = [
        {"age": "old", "income": "1", "town": "Ulm", "smokes": "true", "y": "no"},
        {"age": "50", "income": "1", "town": "Ulm", "smokes": "perhaps", "y": "no"},
        {"age": "50", "income": "1", "town": "Ulm", "smokes": "true", "y": "maybe"},
    ]
    usual = {"task": "classify", "parameters": {"epsilon": 1.0}, "features": features_of(columns)}
    classes = {"column": "y", "classes": ["yes", "no"]}
    cases = []
    for how in ("unit", "as-is"):
        words = usual | {"schema": {"version": 1, "rows": how, "target": classes, "columns": columns}}
        cases.append((words, people))
        cases.append((words | {"parameters": {"epsilon": 1.0, "invalid": "blank"}}, [*people, *bad]))
    numbers = [{**person, "y": value} for person, value in zip(people, ("1.5", "-3", "99", "0.1"), strict=True)]
    ranged = {"version": 1, "rows": "unit", "target": {"column": "y", "range": [-2.0, 10.0]}, "columns": columns}
    cases.append((usual | {"schema": ranged, "task": "regress-huber"}, numbers))
    whole = [{**person, "y": value} for person, value in zip(people, ("10", "9", "2", "10"), strict=True)]
    numbered = {"version": 1, "rows": "unit", "target": {"column": "y", "classes": [10, 9, 2]}, "columns": columns}
    cases.append((usual | {"schema": numbered}, whole))
    return cases


def features_of(columns: list[dict[str, Any]]) -> list[str]:
    made_of: list[str] = []
    for column in columns:
        name = column["name"]
        made_of += [f"{name}={level}" for level in column["levels"]] if "levels" in column else [name]
        made_of += [f"{name} missing"] if column.get("missing") else []
    return made_of


def rows_vector(words: dict[str, Any], people: list[dict[str, str]]) -> dict[str, Any]:
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.csv as arrow_csv  # noqa: PLC0415

    from croupier.table._read import NULLS  # noqa: PLC0415

    weights = len(words["features"]) + 1
    reader = TrainingQuery(Problem(loss=problems.Logistic(), domain=Ball(dim=weights, radius=1.0)), words)
    names = list(people[0])
    text = "\n".join([",".join(names), *(",".join(person[name] for name in names) for person in people), ""])
    types = reader.columns
    options = arrow_csv.ConvertOptions(column_types=types, include_columns=list(types), null_values=NULLS)
    table = arrow_csv.read_csv(pa.py_buffer(text.encode()), convert_options=options)
    pieces = [Piece(batch=batch, file="people.csv", first=1) for batch in table.to_batches()]
    X, y = reader.read_pieces(pieces, "people.csv")
    return {
        "records": words,
        "file": text,
        "rows": np.asarray(X, dtype=np.float64).tolist(),
        "targets": np.asarray(y, dtype=np.float64).tolist(),
        "tolerance": 2.0**-23,  # of float32, where log1p ends on another digit
    }


def lots_vector(plan: LotsPlan) -> dict[str, Any]:
    guarantee = plan.guarantee
    return {
        "plan": plan.to_dict(),
        "slack": guarantee.slack,
        "epsilon": guarantee.epsilon(plan.delta),
        "if_watched": guarantee.if_watched.epsilon(plan.delta),
    }


def accounting() -> dict[str, Any]:
    pairs = [(epsilon, mu) for epsilon in (0.0, 0.1, 1.0, 4.0, 20.0) for mu in (1e-3, 0.05, 0.24, 1.0, 5.0)]
    requests: list[dict[str, Any]] = [
        {"epsilon": 1.0, "delta": 1e-6, "users": 10_000, "dim": 100},
        {"epsilon": 0.5, "delta": 1e-8, "users": 1000, "dim": 10, "honest": 0.5},
        {"epsilon": 4.0, "delta": 1e-5, "users": 60, "dim": 2, "rounds": 4},
        {"epsilon": 2.0, "delta": 1e-9, "users": 300, "dim": 50, "norm": 0.25},
        {"epsilon": 1.0, "delta": 1e-6, "users": 100_000, "dim": 3, "rounds": 30},
        {"epsilon": 2.0, "delta": 1e-6, "users": 3332, "dim": 4096, "max_bits": 14},  # by Theorem E
        {"epsilon": 1.0, "delta": 1e-6, "users": 2_000, "dim": 300, "rotation": "auto", "max_inflation": 1.2},
        {"epsilon": 1.0, "delta": 1e-6, "users": 2_000, "dim": 300, "rotation": "auto", "diameter": 1.3, "answers": 1},
    ]
    plans = []
    for request in requests:
        plan = plan_sum(**{"rotation": None} | request)
        guarantee = plan.guarantee
        epsilon = guarantee.epsilon(request["delta"])
        plans.append({"plan": plan.to_dict(), "mu": guarantee.mu, "slack": guarantee.slack, "epsilon": epsilon})
    lots = [(0.5, 20), (0.25, 200), (1.5, 2), (2.0, 20)]
    lots_requests: list[dict[str, Any]] = [
        {"epsilon": 1.0, "delta": 1e-6, "users": 10_000, "rounds": 20, "dim": 30, "rotation": None},
        {"epsilon": 2.0, "delta": 1e-5, "users": 3_000, "rounds": 10, "dim": 5, "honest": 0.9},
        {"epsilon": 2.0, "delta": 1e-5, "users": 3_000, "rounds": 10, "dim": 5, "honest": 0.9, "exclusions": True},
        {"epsilon": 1.0, "delta": 1e-6, "users": 10_000, "rounds": 20, "dim": 100, "rotation": "gradients", "max_inflation": 1.5},
        {"epsilon": 1.0, "delta": 1e-6, "users": 60_000, "rounds": 20, "dim": 4000, "rotation": "gradients", "max_inflation": 1.5},
    ]
    # as deployed tasks have them: not all who are drawn come, and reports may be left out
    lots_plans = [plan_lots(**request) for request in lots_requests]
    some_come = plan_lots(**lots_requests[1] | {"users": 8_000, "exclusions": True})
    lots_plans += [replace(lots_plans[0], turnout=0.8), replace(lots_plans[2], turnout=0.95), replace(some_come, turnout=0.8)]
    # with blocks a lot is a round and a block; an enroller may count the blanks
    in_blocks = {
        "users": 16_000,
        "rounds": 5,
        "dim": 300,
        "exclusions": True,
        "blocks": 4,
        "max_inflation": 1.2,
        "transport": "masked",
    }
    cut = plan_lots(**lots_requests[1] | {"epsilon": 1.0, "delta": 1e-6} | in_blocks)
    lots_plans += [cut, replace(cut, turnout=0.8).with_bounded_blanks()]
    # first rounds may ask another question, in whole vectors or in blocks
    staged = {"users": 16_000, "rounds": 12, "dim": 21, "norm": 0.3, "exclusions": True, "epsilon": 1.0, "delta": 1e-6}
    for opening in (Opening(3, 231, 1.0), Opening(1, 1540, 1.0, blocks=8, max_inflation=2.0)):
        asked = plan_lots(**lots_requests[1] | staged, opening=[opening])
        lots_plans += [replace(asked, turnout=0.8), replace(asked, turnout=0.8).with_bounded_blanks()]
    relations = ("replace-one", "zero-out")
    bounds = [GaussianBound(0.1, 1e-9), GaussianBound(0.15, 3e-8)]
    return {
        "tolerance": 1e-7,
        "gaussian": [{"epsilon": e, "mu": mu, "delta": gaussian_delta(e, mu)} for e, mu in pairs],
        "gaussian_mu": [{"epsilon": e, "delta": d, "mu": gaussian_mu(e, d)} for e, d in ((1.0, 1e-6), (0.1, 1e-10), (8.0, 1e-3))],
        "plans": plans,
        "lots_plans": [lots_vector(plan) for plan in lots_plans],
        "lots": [
            {
                "mu": mu,
                "rounds": rounds,
                "neighbours": how,
                "epsilon": epsilon,
                "delta": Allocation(mu=mu, rounds=rounds).delta(epsilon, how),
            }
            for mu, rounds in lots
            for how in relations
            for epsilon in (0.0, 1.0, 3.0, 7.0)
        ],
        "lots_gaussian": [
            {"mu": mu, "rounds": rounds, "slack": 1e-7, "gaussian": Allocation(mu=mu, rounds=rounds).gaussian("replace-one", 1e-7)}
            for mu, rounds in lots
        ],
        "bends": [
            {"least": least, "dim": dim, "bend": bend(least, dim)}
            for least in (1e-7, 2.0**-17, 1.9e-4, 31.5 / 32 * 2.0**-10, 0.0151, 2.0**-6, 0.1)
            for dim in (1, 600, 4096, 8192, 8193)
        ],
        "overflow": [
            {"users": users, "rounds": rounds, "size": size, "chance": overflow(users, rounds, size)}
            for users, rounds, size in ((10_000, 20, 600), (10_000, 20, 639), (300, 5, 110), (1_000_000, 100, 10_700))
        ],
        "honest": [
            {
                "users": u,
                "honest": h,
                "batch": b,
                "chance": c,
                "held": honest_in_batch(u, h, b, c),
                "surely": surely_honest(u, h, b),
            }
            for u, h, b, c in ((100_000, 0.9, 2_000, 1e-8), (1000, 0.5, 100, 1e-9), (500, 1.0, 50, 1e-6), (800, 0.99, 800, 1e-6))
        ],
        "budget": {
            "epsilon": 2.0,
            "delta": 1e-6,
            "bounds": [{"mu": bound.mu, "slack": bound.slack} for bound in bounds],
            "use": max(Caps.of_limit(2.0, 1e-6).use(bounds)),
        },
    }


if __name__ == "__main__":
    (HERE / "client.json").write_text(json.dumps(made(), ensure_ascii=True) + "\n")
