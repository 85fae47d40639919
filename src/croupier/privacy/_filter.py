"""Mechanisms that are chosen one after the other, each after looking at the last: a filter and an odometer.

Adding up guarantees is right for mechanisms that were fixed beforehand. Where what comes next, or when to stop, depends on what
was released, sums have to be held against caps that were fixed before anything was. Theorem F: docs/accounting.md,
section 4; its proof is below.

The odometer has m_k = m_0 2^(k/4), m_0 the first fit's mu (at least 0.001), deltaG(eps_k; m_k) = w_k (3 delta / 4), w_k = 1 / ((k
+ 1) (k + 2)), which add up to 1, and a cap of delta / 4 on slacks. More than what it prints is revealed with probability at most
delta, over all moments together. For one fit that is 5 % more than its own epsilon; for more, 10 to 40 % more than the sum of
fits that were fixed beforehand.

A limit and the odometer are two promises, each at delta. The smaller of the two figures is chosen after looking, and holds at 2
delta only: a stopping rule reaches 1.37, 1.50 and 1.60 delta with 2, 4 and 15 fits (tests/privacy/test_filter.py). So one of them
is printed: the limit where there is one. To an observer of arrival times the limit does not apply: for them the largest of their
own odometer, of the odometer for others and of the limit is printed. With a delta chosen after looking, a stopping rule would use
up the odometers of all deltas: delta is fixed before the first fit.

Randomized response of some epsilon (the paper's plans, by Kairouz, Oh and Viswanath) is a post-processing of the Gaussian pair
with mu = 2 Phi^-1(e^epsilon / (1 + e^epsilon)): its trade-off function is the polygon through (0, 1), (a, a), (1, 0), a = 1 / (1
+ e^epsilon), and the Gaussian curve, convex with the same ends, passes through (a, a), so it is nowhere above. k of them count as
k mu^2.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from itertools import count

from scipy.special import erfinv, ndtri_exp

from ..validation import ArgumentError, Found, real
from .gaussian import gaussian_delta, gaussian_mu
from .guarantee import Guarantee

# Proof of Theorem F. Write p_i, q_i for the densities of mechanism i's outcome, given what was released before. Its guarantee
# says
#
#     integral of (p_i - gamma q_i)+  <=  G(gamma; mu_i) + s_i     for all gamma > 0.                                  (1)
#
# For gamma < 1 this follows from P and Q exchanged: integral (p - gamma q)+ = 1 - gamma + gamma integral (q - p/gamma)+, and
# likewise for G.
#
# (i) Slack can be cut off. If s_i < 1, there is a p' <= p_i whose integral is at least 1 - s_i with integral (p' - gamma q_i)+ <=
# G(gamma; mu_i) for all gamma > 0. Namely p' = min(p_i, c q_i), c the smallest number with H(c) = s_i, where H(gamma) = integral
# (p_i - gamma q_i)+ falls continuously from 1 to P(q_i = 0) <= s_i; c is infinite only if P(q_i = 0) = s_i. The part cut off has
# mass H(c) = s_i. For gamma <= c, (p' - gamma q_i)+ = (p_i - gamma q_i)+ - (p_i - c q_i)+ pointwise, so the integral is H(gamma)
# - s_i <= G(gamma; mu_i) by (1); beyond c it is 0.
#
# (ii) One Gaussian after the other. integral of p'(x) G(gamma q_i(x)/p'(x); r) dx <= G(gamma; sqrt(mu_i^2 + r^2)). The left side
# is the integral over x and y of (p'(x) phi(y - r) - gamma q_i(x) phi(y))+. Over x first, it is for every y at most phi(y - r)
# G(gamma phi(y)/phi(y - r); mu_i) by (i). That is the same expression with phi(x - mu_i), phi(x) in place of p', q_i: the
# divergence of N((mu_i, r), 1) from N(0, 1) in the plane, where only the length of the shift matters.
#
# (iii) Induction. After some steps let M and S be the sums of mu_i^2 and s_i so far, and W(t) the integral of (p - t gamma_K q)+
# over what is still to come and K < infinity, given what was released; at the beginning t = 1. Claim: if S <= s,
#
#     W(t)  <=  sum over k with m_k^2 >= M of G(t gamma_k; sqrt(m_k^2 - M))  +  s - S.
#
# If nothing comes any more, W(t) is 0, or (1 - t gamma_K)+ = G(t gamma_K; 0), at most the term of K, as G grows with mu.
# Otherwise let mechanism i come next. If S + s_i > s, K is infinite and W = 0. Else W(t) is the integral over x of what remains,
# with p_i(x) as a factor of p and q_i(x) of q. Putting p' for p_i takes away at most s_i, since (a + b - c)+ <= (a - c)+ + b and
# what remains integrates to 1. So W(t) <= s_i + integral p'(x) W_x(t q_i(x)/p'(x)) dx, W_x being W after outcome x. By induction,
# with M + mu_i^2 and S + s_i, and by (ii), term for term, that is at most s_i + (s - S - s_i) + sum_k G(t gamma_k; sqrt(m_k^2 -
# M)). QED

# The delta of figures for which none was chosen.
COMMON_DELTA = 1e-6
# The part of a limit's delta that slacks may use up. It costs 1 to 2 % of mu, and leaves room for 25 of our plans at that delta.
SLACK_SHARE = 0.25
# The odometer's caps on mu: the first is the first mechanism's own, each next one greater by this factor.
_RATIO = 2**0.25
_LEAST_MU, _MOST_MU = 1e-3, 1e3
_ROUND_UP = 1 + 1e-12
_GAUSSIAN_SHARE = (1 - SLACK_SHARE) * (1 - 1e-12)  # so that both shares together are at most 1, as floats too
# What a guarantee says; one that says more is not known here.
_KNOWN = {"mu", "slack", "neighbours", "honest", "theorem", "pure_epsilon", "pure_rounds", "allocations", "watched"}
# Secret lots are bounded by a Gaussian except for this part of their own slack, at least so much.
_LOTS_SHARE, _LOTS_LEAST = 0.5, 1e-14


@dataclass(frozen=True)
class GaussianBound:
    """At most as telling as N(mu, 1) against N(0, 1), except for `slack`: delta(eps) <= deltaG(eps; mu) + slack for every real eps.

    `mu`: The shift of the Gaussian. `slack`: What is added to delta.
    """

    mu: float
    slack: float


def require_countable(guarantee: Guarantee) -> None:
    """Refuse a form of guarantee for which there is no proof that a Gaussian bounds it; the one place that knows the forms."""
    unknown = sorted({field.name for field in fields(guarantee)} - _KNOWN)
    if unknown:
        remedy = "Nothing bounds such a guarantee by a Gaussian at every epsilon: it cannot be counted with others on an account."
        raise ArgumentError("guarantee", Found(f"is made of {', '.join(unknown)}"), f"made of {', '.join(sorted(_KNOWN))}", remedy)


def gaussian_bound(guarantee: Guarantee) -> GaussianBound:
    """A Gaussian and a slack that bound a guarantee at every epsilon; what a filter and an odometer count."""
    require_countable(guarantee)
    guarantee = without_lots(guarantee)
    responses = math.sqrt(guarantee.pure_rounds) * response_mu(guarantee.pure_epsilon)
    return GaussianBound(math.hypot(guarantee.mu, responses) * _ROUND_UP if responses else guarantee.mu, guarantee.slack)


def without_lots(guarantee: Guarantee) -> Guarantee:
    """Give a guarantee of which secret lots are not a part any more, for some more slack."""
    return guarantee.as_gaussian(max(_LOTS_SHARE * guarantee.slack, _LOTS_LEAST))


def response_mu(epsilon: float) -> float:
    """The mu of the Gaussian pair that randomized response of `epsilon` is a post-processing of, rounded up.

    2 Phi^-1(e^eps / (1 + e^eps)): the Gaussian trade-off curve through the corner of the polygon.
    """
    real("epsilon", epsilon, at_least=0, remedy="State the privacy loss of one randomized response.")
    if epsilon < 1:
        return 2 * math.sqrt(2) * float(erfinv(math.tanh(epsilon / 2))) * _ROUND_UP
    return -2 * float(ndtri_exp(-(epsilon + math.log1p(math.exp(-epsilon))))) * _ROUND_UP


@dataclass(frozen=True)
class Caps:
    """A filter: what the squares of mu and the slacks of all mechanisms together may come to, each for itself.

    `mu`: Cap on the root of the sum of squares. `slack`: Cap on the sum of slacks.

    Guarantee
    ---------
    Mechanisms may be chosen one after the other in any way that depends on what was released before. If each is refused that would
    take the sum of mu^2 beyond `mu`^2, or the sum of slacks beyond `slack`, all together are mu-Gaussian private except for slack.
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


@dataclass(frozen=True)
class Limit:
    """What is promised of all mechanisms together, and the caps that keep it: the core of an account and of a device's budget.

    `epsilon`, `delta`: The promise. `caps`: Those that were fixed with it; by default the ones that `Caps.of_limit` gives.
    """

    epsilon: float
    delta: float
    caps: Caps = field(default=None, compare=False, kw_only=True)  # type: ignore[assignment]

    def __post_init__(self) -> None:
        if self.caps is None:
            object.__setattr__(self, "caps", Caps.of_limit(self.epsilon, self.delta))

    def use(self, guarantees: Sequence[Guarantee]) -> tuple[float, float]:
        """Return which parts of the caps on squares of mu and on slacks are used up, rounded up; above 1 is too much."""
        return self.caps.use(bounds_of(guarantees)) if guarantees else (0.0, 0.0)

    def keeps(self, guarantees: Sequence[Guarantee]) -> bool:
        """Tell whether all these are within the limit: by its caps, or one alone by itself, and then nothing is after it."""
        alone = guarantees[0] if len(guarantees) == 1 else None
        return max(self.use(guarantees)) <= 1 or bool(alone and alone.delta(self.epsilon) <= self.delta)


def bounds_of(guarantees: Sequence[Guarantee], *, watched: bool = False) -> list[GaussianBound]:
    """What a filter and an odometer count of guarantees; with `watched`, to an attacker who also knows when each user answered."""
    return [_bound(guarantee, watched) for guarantee in guarantees]


@functools.lru_cache(maxsize=1024)
def _bound(guarantee: Guarantee, watched: bool) -> GaussianBound:
    return gaussian_bound(guarantee.if_watched if watched else guarantee)


def spent(guarantees: Sequence[Guarantee], delta: float, *, first: float | None = None, watched: bool = False) -> float:
    """The `odometer` of what one user was asked; its smallest cap is the first one's own, unless another was fixed before it."""
    bounds = bounds_of(guarantees, watched=watched)
    return odometer(bounds, delta, first_cap(bounds[0]) if first is None else first) if bounds else 0.0


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
