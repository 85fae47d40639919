"""Honest users in a random batch: against the exact hypergeometric law."""

from __future__ import annotations

import math

import pytest
from scipy.stats import hypergeom

from croupier.privacy._crowd import honest_in_batch, surely_honest


@pytest.mark.parametrize("users", [2, 10, 1000, 100_000])
@pytest.mark.parametrize("honest", [0.3, 0.5, 0.9, 0.999, 1.0])
@pytest.mark.parametrize("share", [0.001, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("chance", [1e-3, 1e-8])
def test_fewer_honest_users_are_as_improbable_as_stated(users, honest, share, chance):
    batch = max(1, round(share * users))
    counted = honest_in_batch(users, honest, batch, chance)
    total = math.ceil(honest * users)
    assert 1 <= counted <= min(batch, total)
    # the user at stake is honest; the others are drawn from the rest
    fewer = hypergeom.cdf(counted - 2, users - 1, total - 1, batch - 1) if counted >= 2 else 0.0
    assert fewer <= chance * (1 + 1e-9)


def test_the_margin_is_no_larger_than_it_need_be():
    """Within one and a half times the exact margin, in the middle of the range."""
    users, honest, batch, chance = 100_000, 0.9, 2_000, 1e-8
    exact = 1 + hypergeom.ppf(chance, users - 1, 90_000 - 1, batch - 1)
    assert honest * batch - honest_in_batch(users, honest, batch, chance) <= 1.5 * (honest * batch - exact)


def test_of_small_batches_only_the_user_itself_is_counted_on():
    assert honest_in_batch(10_000, 0.5, 10, 1e-8) == 1
    assert honest_in_batch(10_000, 0.5, 1, 1e-8) == 1


@pytest.mark.parametrize(("honest", "batch", "sure"), [(1.0, 7, 7), (0.5, 100, 50), (0.5, 60, 10), (0.5, 50, 1), (0.9, 95, 85)])
def test_what_is_sure_is_what_is_left_if_all_others_are_in_the_batch(honest, batch, sure):
    assert surely_honest(100, honest, batch) == sure
