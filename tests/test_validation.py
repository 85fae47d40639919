"""Refusals: one wording, and they survive the way out of a worker process."""

from __future__ import annotations

import pickle

import pytest

from croupier.validation import ArgumentError, one_of, real, whole


def test_an_argument_error_survives_pickling():
    error = ArgumentError("epsilon", -1, "greater than 0", "Choose another.")
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)
    assert (again.name, again.value, again.allowed, again.remedy) == ("epsilon", -1, "greater than 0", "Choose another.")


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
