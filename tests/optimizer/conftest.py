"""Shared data and stand-ins for optimizer tests."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize as scipy_minimize

from croupier.population import ArrayPopulation
from croupier.protocol import SumEstimate


class ExactPopulation(ArrayPopulation):
    """Answers with the exact sum, no noise and no rounding: what the algorithms do without privacy."""

    def answer(self, question):
        total = sum(vectors.sum(axis=0) for vectors in self.shard.vectors(question))
        return SumEstimate(sum=total, users=question.batch.size, noise_std=0.0, guarantee=None)


@pytest.fixture(scope="session")
def binary():
    """4 000 users, 3 features of norm at most 1, noisy labels."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 3))
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))
    y = (X @ [2.0, -1.0, 0.5] + rng.logistic(size=4000) > 0).astype(float)
    return X, y


def best_loss(problem, X, y):
    """The smallest mean loss over the problem's ball, by a general-purpose solver started from several points."""
    radius = problem.domain.radius

    def objective(theta):
        return float(problem.losses(problem.domain.project(theta), X, y).mean())

    starts = [np.zeros(problem.dim), np.full(problem.dim, radius / 4)]
    found = [
        scipy_minimize(objective, start, method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-10, "maxiter": 4000})
        for start in starts
    ]
    return min(result.fun for result in found)
