"""The benchmark `ridge_choice`: sums from products of columns are those of everybody's vectors, and rows have norm 1."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.ridge_choice.measuring import KINDS, from_gram, rows
from benchmarks.ridge_choice.writing import gains, judge
from croupier.estimator import ShuffleRidge
from croupier.protocol import SumEstimate


class Silent:
    """No noise."""

    def normal(self, mean, std):
        return mean


@pytest.mark.parametrize("kind", KINDS)
def test_the_sum_from_products_of_columns_is_that_of_all_vectors(kind):
    rng = np.random.default_rng(2)
    X = rows(kind, 500, 7, rng)
    np.testing.assert_allclose(np.linalg.norm(X, axis=1), 1)
    y = rng.uniform(-1, 1, size=500)
    sent = np.column_stack([X, np.ones(500)]) / np.sqrt(2)
    gram = np.column_stack([sent, y])
    model = ShuffleRidge(target_range=(-1, 1), method="moments")
    assert from_gram(model, gram.T @ gram, 500, Silent()) > 0
    other = ShuffleRidge(target_range=(-1, 1), method="moments")
    total = model._query()(*other.records(X, y)).sum(axis=0)
    np.testing.assert_allclose(model.estimate_.sum, total, atol=1e-9)
    assert isinstance(model.estimate_, SumEstimate)
    assert model.coef_.shape == (7,)


def test_gains_are_gathered_by_the_edge():
    cells = [{"edge": 0.1, "moments": 0.5, "sequential": 0.4, "full": 0.6}, {"edge": 3.0, "moments": 0.0, "sequential": 0.4}]
    results = {"cells": cells}
    assert gains(results, "sequential", 0, 1) == [pytest.approx(0.1)]
    assert [verdict.holds for verdict in judge(results)] == [True, True, None, False, False, None]
