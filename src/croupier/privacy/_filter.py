"""Mechanisms that are chosen one after the other, each after looking at the last: a filter and an odometer.

Adding up guarantees is right for mechanisms that were fixed beforehand. Where what comes next, or when to stop, depends on what
was released, sums have to be held against caps that were fixed before anything was. Statements and proofs: docs/accounting.md,
section 4.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import count

from scipy.special import erfinv, ndtri_exp

from ..validation import ArgumentError, Found, real
from .gaussian import gaussian_delta, gaussian_mu
from .guarantee import Guarantee

# The part of a limit's delta that slacks may use up. It costs 1 to 2 % of mu, and leaves room for 25 of our plans at that delta.
SLACK_SHARE = 0.25
# The odometer's caps on mu: the first is the first mechanism's own, each next one greater by this factor.
_RATIO = 2**0.25
_LEAST_MU, _MOST_MU = 1e-3, 1e3
_ROUND_UP = 1 + 1e-12
_GAUSSIAN_SHARE = (1 - SLACK_SHARE) * (1 - 1e-12)  # so that both shares together are at most 1, as floats too
# What a guarantee says; one that says more is not known here.
_KNOWN = {"mu", "slack", "neighbours", "honest", "theorem", "pure_epsilon", "pure_rounds", "allocations", "watched"}
# Secret lots are bounded by a Gaussian but for this part of their own slack, at least so much.
_LOTS_SHARE, _LOTS_LEAST = 0.5, 1e-14


@dataclass(frozen=True)
class GaussianBound:
    """At most as telling as N(mu, 1) against N(0, 1), but for `slack`: delta(eps) <= deltaG(eps; mu) + slack for every real eps.

    Parameters
    ----------
    mu : float
        The shift of the Gaussian.
    slack : float
        What is added to delta.
    """

    mu: float
    slack: float


def gaussian_bound(guarantee: Guarantee) -> GaussianBound:
    """A Gaussian and a slack that bound a guarantee at every epsilon; what a filter and an odometer count.

    The one place that knows the forms of guarantees: a form for which there is no proof that it is bounded so is refused.
    """
    unknown = sorted({field.name for field in fields(guarantee)} - _KNOWN)
    if unknown:
        remedy = "Nothing bounds such a guarantee by a Gaussian at every epsilon: it cannot be counted with others on an account."
        raise ArgumentError("guarantee", Found(f"is made of {', '.join(unknown)}"), f"made of {', '.join(sorted(_KNOWN))}", remedy)
    guarantee = without_lots(guarantee)
    responses = math.sqrt(guarantee.pure_rounds) * response_mu(guarantee.pure_epsilon)
    return GaussianBound(math.hypot(guarantee.mu, responses) * _ROUND_UP if responses else guarantee.mu, guarantee.slack)


def without_lots(guarantee: Guarantee) -> Guarantee:
    """Give a guarantee of which secret lots are no part any more, for some more slack."""
    return guarantee.as_gaussian(max(_LOTS_SHARE * guarantee.slack, _LOTS_LEAST))


def response_mu(epsilon: float) -> float:
    """The mu of the Gaussian pair that randomized response of `epsilon` is a post-processing of, rounded up.

    2 Phi^-1(e^eps / (1 + e^eps)): the Gaussian trade-off curve through the corner of the polygon.
    """
    real("epsilon", epsilon, at_least=0, remedy="Give the privacy loss of one randomized response.")
    if epsilon < 1:
        return 2 * math.sqrt(2) * float(erfinv(math.tanh(epsilon / 2))) * _ROUND_UP
    return -2 * float(ndtri_exp(-(epsilon + math.log1p(math.exp(-epsilon))))) * _ROUND_UP


@dataclass(frozen=True)
class Caps:
    """A filter: what the squares of mu and the slacks of all mechanisms together may come to, each for itself.

    Guarantee
    ---------
    Mechanisms may be chosen one after the other in any way that depends on what was released before. If each is refused that would
    take the sum of mu^2 beyond `mu`^2, or the sum of slacks beyond `slack`, all together are mu-Gaussian private but for slack.

    Parameters
    ----------
    mu : float
        Cap on the root of the sum of squares.
    slack : float
        Cap on the sum of slacks.
    """

    mu: float
    slack: float

    @classmethod
    def of_limit(cls, epsilon: float, delta: float) -> Caps:
        """Give the caps that keep (epsilon, delta): a quarter of delta for slacks, and the largest mu that the rest allows."""
        return cls(gaussian_mu(epsilon, _GAUSSIAN_SHARE * delta), SLACK_SHARE * delta)

    def keep(self, epsilon: float, delta: float) -> bool:
        """Tell whether these caps prove (epsilon, delta)."""
        return gaussian_delta(epsilon, self.mu) + self.slack <= delta

    def use(self, bounds: Sequence[GaussianBound]) -> tuple[float, float]:
        """Which parts of the two caps some mechanisms use up, rounded up; above 1 is too much."""
        part = _mu(bounds) / self.mu
        return part * part, math.fsum(bound.slack for bound in bounds) / self.slack * _ROUND_UP


def first_cap(bound: GaussianBound | None) -> float:
    """Give the smallest cap of an odometer whose first mechanism is this one; it has to be fixed before that is run."""
    return max(_LEAST_MU, bound.mu if bound else 0.0)


def odometer(bounds: Sequence[GaussianBound], delta: float, first: float) -> float:
    """An epsilon for some mechanisms that holds whenever one stops, whatever was chosen after looking at what.

    Guarantee
    ---------
    Let e be the figure at the moment at which one stops, a random number. Then P(E) <= E_Q[e^e; E] + delta for every event E and
    neighbours P, Q: the loss exceeds the printed figure with probability delta at most, in this sense, over all moments together.
    For a figure that was fixed beforehand that is (e, delta)-differential privacy.
    """
    real("delta", delta, above=0, below=1, remedy="Choose delta well below 1 / users; 1e-6 is a common value.")
    if not bounds:
        return 0.0
    mu = _mu(bounds)
    if mu > _MOST_MU or math.fsum(bound.slack for bound in bounds) > SLACK_SHARE * delta:
        return math.inf
    place, cap = next((k, cap) for k in count() if (cap := _cap(first, k)) >= mu)
    share = _GAUSSIAN_SHARE * delta / ((place + 1) * (place + 2))
    return Guarantee(mu=cap, theorem="accounting, section 4").epsilon(share)


def _mu(bounds: Sequence[GaussianBound]) -> float:
    """The root of the sum of squares, rounded up."""
    return math.hypot(*(bound.mu for bound in bounds)) * _ROUND_UP


def _cap(first: float, place: int) -> float:
    return first * _RATIO**place * (1 + 1e-9)  # a little more, so that four equal mechanisms have exactly twice the mu of one
