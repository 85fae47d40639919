"""Shared data and stand-ins for estimator tests."""

from __future__ import annotations

import dataclasses
import functools
import importlib

import numpy as np
import pytest

import croupier as cr
from croupier.population import ArrayPopulation
from croupier.privacy.calibration import plan as make_plan
from croupier.protocol import SumEstimate


@functools.cache
def _unit_plan(**request):
    return cr.plan_sum(**request)


def remembered_plan(*, norm=1.0, diameter=None, **request):
    """plan_sum, computed once per request: without a diameter the certificate does not depend on the norm."""
    if diameter is not None:
        return _unit_plan(norm=norm, diameter=diameter, **request)
    return dataclasses.replace(_unit_plan(**request), norm=norm)


_unit_request_plan = functools.cache(make_plan)


def remembered_request_plan(request, rotation=None, transport="messages"):
    """The plan of gradients, computed once per request: the certificate does not depend on the norm."""
    unit = _unit_request_plan(dataclasses.replace(request, norm=1.0), rotation, transport)
    return dataclasses.replace(unit, norm=request.norm)


@pytest.fixture(autouse=True)
def _fast_plans(monkeypatch):
    """Plans are remembered: scikit-learn's checks alone fit hundreds of times on data of few shapes. Every run proves its plans."""
    monkeypatch.setattr(importlib.import_module("croupier.optimizer.planning"), "make_plan", remembered_request_plan)
    monkeypatch.setattr(importlib.import_module("croupier.estimator.scaler"), "plan_sum", remembered_plan)


class ExactPopulation(ArrayPopulation):
    """Answers with the exact sum of the clipped vectors, no noise and no rounding; remembers how large they were."""

    def answer(self, question):
        vectors, plan = np.vstack(list(self.shard.vectors(question))), question.plan
        lengths = np.linalg.norm(vectors, axis=1)
        vectors = vectors * np.minimum(1.0, plan.norm / np.maximum(lengths, 1e-300))[:, np.newaxis]
        return SumEstimate(sum=vectors.sum(axis=0), users=question.batch.size, noise_std=0.0, guarantee=None)


@pytest.fixture
def without_noise(monkeypatch):
    """Fits that see exact sums: what the estimators compute when privacy costs nothing."""
    monkeypatch.setattr(importlib.import_module("croupier.estimator._base"), "ArrayPopulation", ExactPopulation)


@pytest.fixture(scope="session")
def people():
    """5 000 people, 3 features of norm at most 1, and a score that labels and targets are made from."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(5000, 3))
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))
    return X, X @ [3.0, -2.0, 0.0] + 0.5 + rng.logistic(size=5000) / 2
