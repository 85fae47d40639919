"""Pictures of a description."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import croupier as cr
from croupier.report._description import histogram_bars


@pytest.mark.parametrize("top", [120, 200])
def test_no_bar_is_a_sliver_of_the_others(top):
    """Ends of bins are not equally far apart; a bar of a fifth of a percent of the people had an error bar of 15 %."""
    ages = np.random.default_rng(0).uniform(18, 90, 20_000)
    summary = cr.describe(ages[:, np.newaxis], {"age": (0, top)}, epsilon=1.0, delta=1e-6, seed=1).columns["age"]
    edges, shares, errors, log = histogram_bars(summary)
    widths = [high - low for low, high in pairwise(edges)]
    assert not log
    assert min(widths) >= 0.35 * np.median(widths)
    assert sum(shares) == pytest.approx(1.0, abs=0.1)
    assert max(error / width for error, width in zip(errors, widths, strict=True)) <= 2.5 * np.median(errors) / np.median(widths)
