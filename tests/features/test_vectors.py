"""The vectors that clients in other languages are checked against are those of the code."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from make_vectors import made


def test_the_vectors_are_those_that_python_makes():
    stored, now = json.loads((Path(__file__).parent / "vectors.json").read_text()), json.loads(json.dumps(made()))
    assert stored["weights"] == now["weights"]
    for one, other in zip(stored["records"], now["records"], strict=True):
        assert (one["words"], one["people"], one["targets"]) == (other["words"], other["people"], other["targets"])
        assert np.abs(np.subtract(one["rows"], other["rows"])).max() < one["tolerance"]
    assert len(stored["maps"]) == len(now["maps"]) == 6
    for one, other in zip(stored["maps"], now["maps"], strict=True):
        assert (one["features"], one["rows"]) == (other["features"], other["rows"])
        assert np.abs(np.subtract(one["mapped"], other["mapped"])).max() < stored["tolerance"] / 10
