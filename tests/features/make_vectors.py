"""Makes vectors.json beside it, against which clients in other languages check their maps: python tests/features/make_vectors.py"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from croupier.features import FeatureMap, FourierFeatures, GroupNorm, Projection, Scattering
from croupier.features.maps import public_weights
from croupier.problem import Ball, Logistic, Problem
from croupier.service.wire.queries import TrainingQuery, records_to_dict
from croupier.table import Schema
from croupier.table.model import Request
from croupier.table.schema import Image, Numeric, Target

HERE = Path(__file__).parent
MAPS = {
    "fourier": (FeatureMap([FourierFeatures(12, scale=0.7, seed=3)]), 5),
    "projection": (FeatureMap([Projection(7, seed=2**53 - 1)]), 40),
    "groups": (FeatureMap([GroupNorm(4, epsilon=1e-3)]), 20),
    "scattering": (FeatureMap([Scattering((8, 12))]), 96),
    "digits": (FeatureMap([Scattering((8, 8)), GroupNorm(27), Projection(20, seed=1)]), 64),
    "kernel of groups": (FeatureMap([GroupNorm(2), FourierFeatures(8, scale=3.0, seed=0), Projection(3)]), 6),
}


def row(columns: int, number: int) -> list[float]:
    """Numbers between -1 and 1 that every language computes alike."""
    return [((7 * place * place + 3 * place * number + 11 * number) % 33 - 16) / 16 for place in range(columns)]


def made() -> dict[str, Any]:
    """The first weights of two streams, and for each map its document, rows, and their features."""
    weights = [
        {"kind": kind, "seed": seed, "weights": public_weights(kind, seed, 1, 12).ravel().tolist()}
        for kind, seed in (("fourier", 0), ("fourier", 3), ("projection", 2**53 - 1))
    ]
    maps = []
    for name, (feature_map, columns) in MAPS.items():
        rows = [row(columns, number) for number in range(2)] + [[0.0] * columns]
        features = feature_map.transform(rows).tolist()
        maps.append({"map": name, "features": feature_map.to_dict(), "rows": rows, "mapped": features})
    return {"tolerance": 1e-9, "weights": weights, "maps": maps, "records": [records_of(*case) for case in record_cases()]}


def record_cases() -> list[tuple[Schema, list[dict[str, Any]]]]:
    """Schemas with maps and pictures, and people: a picture may be missing, and a pixel beyond white."""
    target = Target("y", classes=("no", "yes"))
    pictures = [[127.5 + 127.5 * entry for entry in row(64, number)] for number in range(2)]
    people = [{"image": picture, "age": age, "y": "yes"} for picture, age in zip(pictures, (40, None), strict=True)]
    people += [{"image": None, "age": 7.0, "y": "no"}, {"image": [1000.0, -3.0] * 32, "age": -5, "y": "no"}]
    columns = {"image": Image((8, 8)), "age": Numeric(0, 100)}
    bright = {"image": Image((8, 8), -10.0, 300.0)}
    return [
        (Schema({"age": columns["age"]}, target, features=FeatureMap([FourierFeatures(6, scale=0.3, seed=5)]).to_dict()), people),
        (Schema(bright, target, features=MAPS["digits"][0].to_dict()), people),
        (Schema(columns, target, features=FeatureMap([Projection(9)]).to_dict()), people),
        (Schema(columns, target), people),
        (Schema(columns, target, rows="as-is"), people),
    ]


def records_of(schema: Schema, people: list[dict[str, Any]]) -> dict[str, Any]:
    """The words of a task about records, and the rows and targets of some people, the constant included."""
    words = records_to_dict(schema, Request("classify", {"epsilon": 1.0}, None))
    weights = len(words["features"]) + 1
    reader = TrainingQuery(Problem(loss=Logistic(), domain=Ball(dim=weights, radius=1.0)), words)
    rows, targets = zip(*(reader.read_records(person) for person in people), strict=True)
    return {
        "words": words,
        "people": [{name: person[name] for name in (*schema.columns, "y")} for person in people],
        "rows": [one[0].astype(float).tolist() for one in rows],
        "targets": [float(one[0]) for one in targets],
        "tolerance": 2.0**-22,  # of entries that are rounded to single precision
    }


if __name__ == "__main__":
    (HERE / "vectors.json").write_text(json.dumps(made(), indent=1) + "\n")
