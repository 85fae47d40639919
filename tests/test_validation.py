"""Refusals: one wording, and they survive the way out of a worker process."""

from __future__ import annotations

import ast
import pickle
from pathlib import Path

import numpy as np
import pytest

import croupier as cr
from croupier.estimator import ShuffleRidge
from croupier.population import ArrayPopulation
from croupier.statistics import Histogram
from croupier.validation import ArgumentError, Found, one_of, real, whole


def test_an_argument_error_survives_pickling():
    error = ArgumentError("epsilon", -1, "greater than 0", "Choose another.")
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)
    assert (again.name, again.value, again.allowed, again.remedy) == ("epsilon", -1, "greater than 0", "Choose another.")


def test_what_was_found_survives_pickling():
    error = ArgumentError("y", Found("contains NaN"), "finite", "Impute it.")
    assert str(pickle.loads(pickle.dumps(error))) == str(error) == "y contains NaN; it must be finite. Impute it."


def test_long_values_are_shortened():
    assert len(str(ArgumentError("x", "a" * 10_000, "short", "Cut it."))) < 300
    assert "a int" in str(ArgumentError("x", 10**10_000, "small", "Less."))


@pytest.mark.parametrize("value", [True, "1", b"1", None, 10**400, float("nan"), float("inf"), 0.0, 1.0, -3])
def test_real_refuses(value):
    with pytest.raises(ArgumentError, match="greater than 0 and less than 1"):
        real("x", value, above=0, below=1, remedy="-")


def test_what_is_allowed_is_returned():
    assert real("x", 1, at_least=1, at_most=1, remedy="-") == 1.0
    assert whole("n", 3.0, at_least=1, remedy="-") == 3
    assert one_of("c", "a", ("a", "b"), "-") == "a"


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: ArrayPopulation(np.zeros((3, 1)), [1.0, np.nan, 0.0]), "y contains NaN or infinity; it must be finite"),
        (
            lambda: ArrayPopulation(np.zeros((3, 1)), groups=[1] * 5),
            "groups has 5 entries, but X has 3 rows; it must be as long as X",
        ),
        (lambda: ShuffleRidge.from_json("{} {}"), "model is not a model file (invalid JSON at line 1, column 4); it must be"),
        (
            lambda: cr.ask(Histogram(0, 1), ArrayPopulation(np.zeros((3, 1))), groups=[1], epsilon=1.0),
            "groups is given; it must be left",
        ),
        (
            lambda: ShuffleRidge(target_range=(0, 1)).fit([[0.0], [1.0]], [0, 1], sample_weight=[1, 1]),
            "sample_weight is given; it must be left out",
        ),
    ],
)
def test_what_is_no_value_is_not_shown_as_one(call, text):
    """ "y = 'NaN or infinity' is not allowed" names a value that nobody gave."""
    with pytest.raises(ArgumentError) as refused:
        call()
    assert str(refused.value).startswith(text)


def test_no_error_shows_words_of_ours_as_a_value():
    """A literal text in the place of the value is either a predicate, `Found`, or a word that a caller may have given."""
    given = {"practical", "faithful"}
    for path in sorted(Path(cr.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("ArgumentError", "RecordError"):
                value = node.args[1] if len(node.args) > 1 else None
                shown = isinstance(value, ast.JoinedStr) or (isinstance(value, ast.Constant) and isinstance(value.value, str))
                assert not shown or getattr(value, "value", None) in given, f"{path}:{node.lineno}"
