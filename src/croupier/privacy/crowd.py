"""How many honest users a random batch of a population holds, but for a small chance."""

from __future__ import annotations

import math

from ..validation import real, whole


def honest_in_batch(users: int, honest: float, batch: int, chance: float) -> int:
    """At least this many of `batch` users are honest, but for probability `chance`, if `honest` of all `users` are.

    The batch holds one honest user, whose privacy is at stake, and is otherwise a uniformly random part of the others. The
    number of honest ones among m drawn without replacement is at most k < p m with probability at most exp(-m KL(k/m || p))
    (Hoeffding 1963, Theorems 1 and 4).

    >>> honest_in_batch(100_000, 0.9, 2_000, 1e-8)
    1715
    """
    whole("users", users, at_least=1, remedy="Give the number of all users.")
    whole("batch", batch, at_least=1, at_most=users, remedy="A batch is a part of the users.")
    real("honest", honest, above=0, at_most=1, remedy="Give the fraction of all users that is counted on.")
    real("chance", chance, above=0, below=1, remedy="Give the probability that a batch may hold fewer.")
    total = math.ceil(honest * users * (1 - 1e-12))
    if users in (total, batch):
        return min(total, batch)
    drawn, others = batch - 1, (total - 1) / (users - 1)
    few, many = -1, math.ceil(others * drawn)  # few: improbable enough; many: not
    while many - few > 1:
        middle = (few + many) // 2
        improbable = drawn * _divergence(middle / drawn, others) >= -math.log(chance) * (1 + 1e-9)
        few, many = (middle, many) if improbable else (few, middle)
    return few + 2  # more than `few` of the others, and the user itself


def surely_honest(users: int, honest: float, batch: int) -> int:
    """At least this many of any batch that holds the user at stake are honest, whoever is in it."""
    return max(1, math.ceil(honest * users * (1 - 1e-12)) - (users - batch))


def _divergence(a: float, p: float) -> float:
    """KL(Bernoulli(a) || Bernoulli(p)) for a <= p; 0 beyond, where there is nothing to bound."""
    if a >= p:
        return 0.0
    return (a * math.log(a / p) if a else 0.0) + (1 - a) * math.log((1 - a) / (1 - p))
