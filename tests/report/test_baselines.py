"""The baselines must be fair: unbiased, and as noisy as we print them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import chi2

from croupier import plan_sum
from croupier.report import central, local
from croupier.report.baselines import simulate_central, simulate_local

RUNS = 400


@pytest.mark.parametrize(
    ("epsilon", "simulate", "baseline"),
    [(1.0, simulate_central, central), (1.0, simulate_local, local), (8.0, simulate_local, local)],
)
def test_simulated_noise_is_what_is_printed_and_the_sum_is_unbiased(epsilon, simulate, baseline):
    plan = plan_sum(epsilon=epsilon, delta=1e-6, users=50, dim=8, norm=2.0)
    vectors = np.zeros((50, 8))  # the local sphere is at its noisiest at zero, where the printed figure holds exactly
    rng = np.random.default_rng(5)
    errors = np.array([simulate(vectors, plan, rng) for _ in range(RUNS)])
    # coordinates are uncorrelated and nearly Gaussian: a wide chi-square band, false-alarm rate 1e-6
    scaled = np.sum(errors**2) / baseline(plan).noise_std ** 2
    low, high = chi2.ppf([5e-7, 1 - 5e-7], RUNS * 8)
    assert low < scaled < high
    assert np.abs(errors.mean(axis=0)).max() < 5.5 * baseline(plan).noise_std / math.sqrt(RUNS)


def test_local_sphere_is_unbiased_for_full_length_vectors():
    plan = plan_sum(epsilon=1.0, delta=1e-6, users=2000, dim=5)
    vectors = np.tile(np.array([0.6, 0.0, -0.8, 0.0, 0.0]), (2000, 1))
    rng = np.random.default_rng(6)
    mean = np.mean([simulate_local(vectors, plan, rng) for _ in range(50)], axis=0)
    assert local(plan).name.startswith("local (Duchi")
    # five coordinates at 5.5 standard errors: false-alarm rate below 1e-6
    assert np.abs(mean - vectors.sum(axis=0)).max() < 5.5 * local(plan).noise_std / math.sqrt(50)


def test_one_dimensional_sphere_is_randomized_response():
    plan = plan_sum(epsilon=1.0, delta=1e-6, users=100, dim=1)
    assert local(plan).noise_std == pytest.approx(10 / math.tanh(0.5))


def test_large_epsilon_prefers_local_gaussian():
    assert local(plan_sum(epsilon=20.0, delta=1e-6, users=100, dim=50)).name == "local Gaussian"
