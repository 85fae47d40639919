"""Honest users in a random batch: against the exact hypergeometric law."""

from __future__ import annotations

import math

import pytest
from scipy.stats import hypergeom

from croupier.privacy import ArgumentError, honest_in_batch


@pytest.mark.parametrize("users", [2, 10, 1000, 100_000])
@pytest.mark.parametrize("honest", [0.3, 0.5, 0.9, 0.999, 1.0])
@pytest.mark.parametrize("share", [0.001, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("chance", [1e-3, 1e-8])
def test_fewer_honest_users_are_as_improbable_as_stated(users, honest, share, chance):
    batch = max(1, round(share * users))
    try:
        counted = honest_in_batch(users, honest, batch, chance)
    except ArgumentError:
        # refused: then even one honest user beside the one at stake could not be promised by the bound
        assert batch < users
        return
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


def test_batches_too_small_for_a_promise_are_refused():
    with pytest.raises(ArgumentError, match="fewer rounds"):
        honest_in_batch(10_000, 0.5, 10, 1e-8)
