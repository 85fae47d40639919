"""Shared by the protocol tests: sources of chosen bytes, and the one test of a law against a sample.

Every statistical check has a false-alarm rate of at most 1e-6 and runs on a fixed seed: it passes or fails, it cannot flake.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from croupier.protocol import SeededRandom
from croupier.protocol.randomness import RandomSource

# The asymptotic p-values below are good to a factor of a few where 25 or more are expected per cell, hence 1e-7 for a rate of 1e-6.
NOMINAL = 1e-7
LEAST_EXPECTED = 25


class ScriptedRandom(RandomSource):
    """Gives the bytes of a script, in order, and fails the test when they run out."""

    private = False

    def __init__(self, script: bytes | bytearray) -> None:
        self.script, self.drawn = bytes(script), 0
        super().__init__()

    def draw_bytes(self, count: int) -> np.ndarray:
        if self.drawn + count > len(self.script):
            pytest.fail(f"the script has {len(self.script)} bytes and {self.drawn + count} were asked for")
        self.drawn += count
        return np.frombuffer(self.script[self.drawn - count : self.drawn], dtype=np.uint8).copy()

    def _key(self, index: int) -> bytes:
        return bytes(32)


class UntouchedRandom(ScriptedRandom):
    """Fails the test as soon as anything is drawn: for refusals that must come before the first random bit."""

    private = True

    def __init__(self) -> None:
        super().__init__(b"")


def check_law(sample: np.ndarray, law: np.ndarray) -> None:
    """Chi-square test of a sample of 0..len(law)-1 against a law, false-alarm rate at most 1e-6.

    Cells are merged, in order, until at least 25 are expected in each. What the law excludes must not occur at all.
    """
    sample = np.asarray(sample).ravel()
    assert sample.min() >= 0
    assert sample.max() < len(law)
    assert np.isclose(law.sum(), 1, rtol=0, atol=1e-9)
    observed = np.bincount(sample, minlength=len(law))
    assert not observed[law == 0].any()
    cells: list[list[float]] = [[0.0, 0.0]]
    for seen, expected in zip(observed, law * sample.size, strict=True):
        if cells[-1][1] >= LEAST_EXPECTED:
            cells.append([0.0, 0.0])
        cells[-1][0] += seen
        cells[-1][1] += expected
    if cells[-1][1] < LEAST_EXPECTED and len(cells) > 1:
        seen, expected = cells.pop()
        cells[-1][0] += seen
        cells[-1][1] += expected
    assert len(cells) > 1, "too small a sample to tell anything"
    table = np.array(cells)
    statistic = float(((table[:, 0] - table[:, 1]) ** 2 / table[:, 1]).sum())
    assert stats.chi2.sf(statistic, len(cells) - 1) > NOMINAL, f"chi-square {statistic:.1f} on {len(cells) - 1} degrees of freedom"


def check_mean(sample: np.ndarray, mean: np.ndarray | float, variance: float) -> None:
    """Normal test of the mean (of every column) where the variance is known; false-alarm rate at most 1e-6 in all."""
    sample = np.asarray(sample, dtype=np.float64)
    z = (sample.mean(axis=0) - mean) / np.sqrt(variance / len(sample))
    assert np.abs(z).max() < stats.norm.isf(NOMINAL / 2 / np.size(z)), f"mean off by {np.abs(z).max():.1f} standard errors"


def check_variance(sample: np.ndarray, mean: np.ndarray | float, variance: float) -> None:
    """Chi-square bounds, both ways, on the variance about a known mean; false-alarm rate at most 1e-6."""
    squares = (np.asarray(sample, dtype=np.float64) - mean) ** 2
    statistic, freedom = squares.sum() / variance, squares.size
    low, high = stats.chi2.ppf(NOMINAL / 2, freedom), stats.chi2.isf(NOMINAL / 2, freedom)
    assert low < statistic < high, f"variance {statistic / freedom:.4f} x what it should be"


@pytest.fixture(scope="session")
def scripted() -> type[ScriptedRandom]:
    return ScriptedRandom


@pytest.fixture(scope="session")
def untouched() -> UntouchedRandom:
    return UntouchedRandom()


@pytest.fixture(scope="session")
def law_of() -> Callable[[np.ndarray, np.ndarray], None]:
    return check_law


@pytest.fixture(scope="session")
def mean_of() -> Callable[[np.ndarray, np.ndarray | float, float], None]:
    return check_mean


@pytest.fixture(scope="session")
def variance_of() -> Callable[[np.ndarray, np.ndarray | float, float], None]:
    return check_variance


@pytest.fixture
def counting():
    """Makes a seeded source that counts the bytes drawn."""

    class Counting(SeededRandom):
        drawn = 0

        def draw_bytes(self, count):
            self.drawn += count
            return super().draw_bytes(count)

    return Counting
