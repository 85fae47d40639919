"""A loss of one's own is known again in another process, and told from others."""

from __future__ import annotations

import dataclasses
import functools
import subprocess
import sys

import numpy as np
import pandas
import pytest

from croupier import ArgumentError, CustomProblem, minimize
from croupier.problem import Ball, Logistic, Problem
from croupier.problem.custom import UndescribableError, fingerprint


def scaled(by, about=None, flags=frozenset("abc")):
    return lambda theta, X, y, power=1: by * theta - X + (0 if about is None else about.sum()) * power * len(flags)


class Own:
    def __init__(self, by):
        self.by = by

    def gradient(self, theta, X, y):
        return self.by * theta - X


FUNCTIONS = {
    "two": scaled(2.0),
    "three": scaled(3.0),
    "array": scaled(2.0, np.arange(5000.0)),
    "other array": scaled(2.0, np.append(np.arange(4999.0), 0)),
    "other set": scaled(2.0, flags=frozenset("abd")),
    "method": Own(2.0).gradient,
    "other method": Own(3.0).gradient,
    "partial": functools.partial(scaled(2.0), power=2),
    "other partial": functools.partial(scaled(2.0), power=3),
    "nested": lambda theta, X, y: max(X, key=lambda t: 2 * t),
    "other nested": lambda theta, X, y: max(X, key=lambda t: 3 * t),
}


def test_functions_that_differ_have_other_fingerprints():
    assert len({fingerprint(function) for function in FUNCTIONS.values()}) == len(FUNCTIONS)


@pytest.mark.parametrize("seed", ["1", "2"])
@pytest.mark.process
def test_the_same_functions_have_the_same_fingerprints_in_another_process(seed):
    """Whatever the order of sets, and wherever objects lie in memory."""
    script = "import test_fingerprint as t; print(*[t.fingerprint(f) for f in t.FUNCTIONS.values()])"
    command, folder = [sys.executable, "-c", script], __file__.rpartition("/")[0]
    out = subprocess.run(command, cwd=folder, env={"PYTHONHASHSEED": seed, "PATH": ""}, capture_output=True, text=True, check=True)
    assert out.stdout.split() == [fingerprint(function).replace("\n", "") for function in FUNCTIONS.values()]


def test_problems_are_told_apart_by_loss_domain_and_constants():
    problems = [
        CustomProblem(FUNCTIONS["two"], Ball(dim=2, radius=1.0), lipschitz=1.0),
        CustomProblem(FUNCTIONS["three"], Ball(dim=2, radius=1.0), lipschitz=1.0),
        CustomProblem(FUNCTIONS["two"], Ball(dim=2, radius=2.0), lipschitz=1.0),
        CustomProblem(FUNCTIONS["two"], Ball(dim=2, radius=1.0), lipschitz=2.0),
        Problem(Logistic(), Ball(dim=2, radius=1.0)),
        Problem(Logistic(), Ball(dim=2, radius=1.0), l2=0.1),
    ]
    assert len({problem.fingerprint for problem in problems}) == len(problems)


class Call:
    def __call__(self, theta, X, y):
        return theta - X


class OtherCall:
    def __call__(self, theta, X, y):
        return X - theta


OtherCall.__qualname__ = Call.__qualname__


class Slots:
    __slots__ = ("by",)

    def __init__(self, by):
        self.by = by

    def gradient(self, theta, X, y):
        return self.by * theta - X


def keyword(by):
    def gradient(theta, X, y, *, by=by):
        return by * theta - X

    return gradient


def calling_itself(by):
    def gradient(theta, X, y):
        return gradient(theta, X, y) if by is None else by * theta - X

    return gradient


@dataclasses.dataclass(frozen=True)
class Mine(Logistic):
    def slope(self, scores, targets):
        return 0 * scores


@dataclasses.dataclass(frozen=True)
class Other(Logistic):
    def slope(self, scores, targets):
        return 1 + 0 * scores


Other.__qualname__, Other.__name__ = Mine.__qualname__, Mine.__name__


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Call(), OtherCall()),
        (Slots(1.0).gradient, Slots(2.0).gradient),
        (keyword(1.0), keyword(2.0)),
        (calling_itself(1.0), calling_itself(2.0)),
    ],
    ids=["call", "slots", "keyword", "calling itself"],
)
def test_changes_in_odd_places_are_seen(one, other):
    assert fingerprint(one) != fingerprint(other)
    assert fingerprint(one) == fingerprint(one)


def test_a_loss_of_ones_own_class_is_known_by_its_code():
    ball = Ball(dim=2, radius=1.0)
    assert repr(Problem(Mine(), ball)) == repr(Problem(Other(), ball))
    assert Problem(Mine(), ball).fingerprint != Problem(Other(), ball).fingerprint


def test_what_cannot_be_looked_into_is_refused(tmp_path):
    frame = pandas.DataFrame({"a": [1.0]})
    problem = CustomProblem(lambda theta, X, y: theta - X + frame["a"][0], Ball(dim=2, radius=1.0), lipschitz=4.0)
    with pytest.raises(UndescribableError):
        fingerprint(problem.gradient)
    with pytest.raises(ArgumentError, match="cannot be identified"):
        minimize(problem, np.zeros((500, 2)), epsilon=1.0, delta=1e-6, checkpoint=tmp_path / "run")
