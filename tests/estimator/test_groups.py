"""The unit of privacy is a user: ten rows of one person are one contribution."""

from __future__ import annotations

import numpy as np
import pytest

from croupier.estimator import ShuffleLogisticRegression, ShuffleScaler
from croupier.population import population
from croupier.protocol import VectorSum

OPTIONS = {"classes": [False, True], "interactivity": "full", "rounds": 1, "fit_intercept": False}


@pytest.fixture
def contributions(monkeypatch):
    """Every vector that users hand to a round, as it is before clipping and noise."""
    seen = []

    class Watched(VectorSum):
        def counts(self, chunks, random):
            chunks = [np.asarray(chunk) for chunk in chunks]
            seen.append((np.vstack(chunks), self.plan))
            return super().counts(chunks, random)

    monkeypatch.setattr(population, "VectorSum", Watched)
    return seen


def test_a_person_with_ten_rows_is_one_person(people, contributions):
    X, score = people
    groups = np.repeat(np.arange(500), 10)
    model = ShuffleLogisticRegression(**OPTIONS).fit(X, score > 0, groups=groups)
    vectors, plan = contributions[0]
    assert model.n_users_ == plan.users == len(vectors) == 500
    # at theta = 0 the gradient of a row is -y x / 2: a person's is the mean over their rows
    expected = (-np.where(score > 0, 1, -1)[:, np.newaxis] * X / 2).reshape(500, 10, 3).mean(axis=1)
    order = np.lexsort(vectors.T), np.lexsort(expected.T)
    np.testing.assert_allclose(vectors[order[0]], expected[order[1]], atol=1e-12)


def test_no_person_moves_a_sum_further_than_the_noise_covers(people, contributions):
    X, score = people
    groups = np.repeat(np.arange(500), 10)
    wild, y = X.copy(), score > 0
    wild[:10] = 1e6  # one person with ten huge rows
    for rows in (X, wild):
        ShuffleLogisticRegression(**OPTIONS).fit(rows, y, groups=groups)
    (before, plan), (after, _) = contributions
    assert np.linalg.norm(before, axis=1).max() <= plan.norm * (1 + 1e-9)
    assert np.linalg.norm(after.sum(axis=0) - before.sum(axis=0)) <= 2 * plan.norm
    # rows that count as people move it up to ten times as far
    assert np.linalg.norm((wild[:10] / np.linalg.norm(wild[:10], axis=1)[:, None] / 2).sum(axis=0)) > 2 * plan.norm


def test_one_row_each_is_no_groups(people):
    X, score = people
    labels = np.array([f"person {i}" for i in range(len(X))])
    alone, grouped = (
        ShuffleLogisticRegression(classes=[False, True], random_state=3).fit(X, score > 0, groups=groups)
        for groups in (None, labels)
    )
    assert alone.n_users_ == grouped.n_users_ == 5000
    assert alone.schedule_ == grouped.schedule_


def test_the_scaler_counts_people_too(people, contributions):
    X, _ = people
    scaler = ShuffleScaler(feature_range=(-1, 1)).fit(X, groups=np.repeat(np.arange(500), 10))
    vectors, plan = contributions[0]
    assert scaler.n_users_ == plan.users == len(vectors) == 500
    u = np.hstack([X, 2 * X**2 - 1]).reshape(500, 10, 6).mean(axis=1)
    np.testing.assert_allclose(vectors.sum(axis=0), u.sum(axis=0), atol=1e-9)


def test_groups_must_match_the_rows(people):
    X, score = people
    with pytest.raises(ValueError, match="groups"):
        ShuffleLogisticRegression(classes=[False, True]).fit(X, score > 0, groups=[1, 2, 3])
