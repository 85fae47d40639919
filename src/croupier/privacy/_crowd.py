"""How many users, honest users and cheats a random batch or a secret round holds, except with small probability."""

from __future__ import annotations

import math

from scipy.special import betainc, betaincc

from ..validation import real, whole
from ._allocation import MAX_ROUNDS
from ._tight import _bisect

# Relative error allowed for binomial tails; theirs is far below (certificate.SLOPE_MARGIN).
_TAILS = 1e-8
# The chance that a round holds more cheats than may be left out, where as many are cheats as the premise allows.
_ENDS = 1e-4


def honest_in_batch(users: int, honest: float, batch: int, chance: float) -> int:
    """Count the honest users that a random batch holds at least, except with probability `chance`.

    The batch holds one honest user, whose privacy is at stake, and is otherwise a uniformly random part of the others. The
    number of honest ones among m drawn without replacement is at most k < p m with probability at most exp(-m KL(k/m || p))
    (Hoeffding 1963, Theorems 1 and 4).
    """
    whole("users", users, at_least=1, remedy="State the number of all users.")
    whole("batch", batch, at_least=1, at_most=users, remedy="A batch is a part of the users.")
    real("honest", honest, above=0, at_most=1, remedy="State the fraction of all users that you rely on.")
    real("chance", chance, above=0, below=1, remedy="State the probability that a batch may hold fewer.")
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


def exclusions_in_batch(users: int, honest: float, batch: int, held: int) -> int:
    """Choose how many reports of a batch may be left out: the cheats that it is likely to hold, and at most half of the honest."""
    return min(batch - honest_in_batch(users, honest, batch, _ENDS), held // 2)


def exclusions_in_round(users: int, honest: float, rounds: int, held: int) -> int:
    """Choose how many reports of a round may be left out where lots are secret, as `exclusions_in_batch` does."""
    return min(cheats_in_round(users, honest, rounds, _ENDS), held // 2)


def surely_honest(users: int, honest: float, batch: int) -> int:
    """Count the honest users that any batch with the user at stake holds at least, whoever is in it."""
    return max(1, math.ceil(honest * users * (1 - 1e-12)) - (users - batch))


def overflow(users: int, rounds: int, size: int) -> float:
    """Bound the probability that some round has at least `size` of the other `users` - 1 users.

    Whether it happens does not depend on the user at stake, who has room in every round where it does not. It adds to delta
    once (accounting, Theorem L).
    """
    return min(1.0, rounds * _at_least(size, users - 1, rounds))


def round_size(users: int, rounds: int, chance: float) -> int:
    """Find the smallest public size of a round that the others' lots reach with probability at most `chance`."""
    _check(users, rounds, chance)
    return _bisect(lambda size: overflow(users, rounds, size) <= chance, 0, users)


def cheats_in_round(users: int, honest: float, rounds: int, chance: float) -> int:
    """Count the users who are not honest in any one round, at most, except with probability `chance`.

    Who is honest is fixed before the lots are drawn.
    """
    _check(users, rounds, chance)
    cheats = users - honest_total(users, honest)
    return _bisect(lambda most: rounds * _at_least(most + 1, cheats, rounds) <= chance, -1, cheats)


def smallest_batch(users: int, honest: float, rounds: int, chance: float) -> int:
    """Count the honest users who have the same lot as the user at stake, at least, except with probability `chance`."""
    _check(users, rounds, chance)
    others = honest_total(users, honest) - 1

    # the largest number that is improbable is one below the smallest that is not
    few = _bisect(lambda number: _at_most(number, others, rounds) > chance, -1, others) - 1
    return few + 2


def shortage(users: int, turnout: float, rounds: int, least: int) -> float:
    """Bound the probability that fewer than `least` of the others come to some round.

    Who comes whichever round it draws is fixed before lots are drawn. It is about the others' lots alone, and adds to delta once.
    """
    others = honest_total(users, turnout) - 1
    return min(1.0, rounds * _at_most(least - 1, others, rounds))


def least_in_round(users: int, turnout: float, rounds: int, chance: float) -> int:
    """Find the most people who come to every round, not counting the user at stake, except with probability `chance`."""
    _check(users, rounds, chance)
    others = honest_total(users, turnout) - 1
    return max(0, _bisect(lambda least: shortage(users, turnout, rounds, least + 1) > chance, -1, others))


def honest_total(users: int, honest: float) -> int:
    """Compute ceil(honest * users), the user at stake among them."""
    real("honest", honest, above=0, at_most=1, remedy="State the fraction of users that you trust to add their noise; 1 is all.")
    return min(users, max(1, math.ceil(honest * users * (1 - 1e-15))))


def _divergence(a: float, p: float) -> float:
    """KL(Bernoulli(a) || Bernoulli(p)) for a <= p; 0 beyond, where there is nothing to bound."""
    if a >= p:
        return 0.0
    return (a * math.log(a / p) if a else 0.0) + (1 - a) * math.log((1 - a) / (1 - p))


def _check(users: int, rounds: int, chance: float) -> None:
    whole("users", users, at_least=1, at_most=10**12, remedy="State the number of all users.")
    whole("rounds", rounds, at_least=1, at_most=MAX_ROUNDS, remedy="State the number of rounds among which lots are drawn.")
    real("chance", chance, above=0, below=1, remedy="Choose a small part of delta.")


def _at_least(successes: int, trials: int, rounds: int) -> float:
    """Upper bound on P(Bin(trials, 1 / rounds) >= successes)."""
    if successes <= 0:
        return 1.0
    if successes > trials:
        return 0.0
    share = min(1.0, math.nextafter(1 / rounds, 2))  # the tail grows with it
    return min(1.0, float(betainc(float(successes), trials - successes + 1.0, share)) * (1 + _TAILS))


def _at_most(successes: int, trials: int, rounds: int) -> float:
    """Upper bound on P(Bin(trials, 1 / rounds) <= successes)."""
    if successes < 0:
        return 0.0
    if successes >= trials:
        return 1.0
    share = math.nextafter(1 / rounds, 0)  # the tail falls with it
    return min(1.0, float(betaincc(successes + 1.0, float(trials - successes), share)) * (1 + _TAILS))
