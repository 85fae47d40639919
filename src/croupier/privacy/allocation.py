"""Secret lots: one of `rounds` rounds, drawn at random and kept secret, holds a user's report (accounting, Theorem L).

The hypotheses are B = N(0, I) (the user's report is blank in every round) and P = mean over t of N(mu e_t, I). The likelihood
ratio dP/dB is S / T, S the sum of T independent X = exp(mu z - mu^2/2). Any law that is below S in the increasing concave order
gives a pair that is easier to tell apart, once what its mean lacks is given to P alone. So every step here may
only spread X or lower it: it is spread onto a lattice with its mean kept, numerical doubt is lowered, and the cyclic
convolution takes S modulo the lattice's length, which lowers it, but for sums below the lattice, which are charged. Errors of
the FFT are taken off every weight. Nothing is renormalised.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft, rfft
from scipy.special import ndtr, ndtri

from ..validation import real, whole
from .gaussian import gaussian_delta

# Power curves: how well a pair of hypotheses can be told apart, as a polygon with safely rounded vertices.

Floats = NDArray[np.float64]

# Relative error allowed for an interpolation, a product and a difference of vertices; their own errors are far below.
_ARITHMETIC = 1e-12
# Absolute and relative error allowed for differences of normal quantiles.
_QUANTILES = 1e-9


@dataclass(frozen=True, eq=False)
class PowerCurve:
    """An upper bound on the power of every test of one hypothesis against another, given its level.

    The bound is the polygon through (levels, powers), from level 0 to (1, 1). It is 1 - f, where f is the trade-off function.

    Parameters
    ----------
    levels : numpy.ndarray of float64
        Ascending, rounded down.
    powers : numpy.ndarray of float64
        Ascending, rounded up.
    """

    levels: Floats
    powers: Floats

    def delta(self, epsilon: float) -> float:
        """Compute the hockey-stick divergence: a polygon is farthest from a line at one of its vertices."""
        gaps = self.powers * (1 + _ARITHMETIC) - math.exp(epsilon) * (1 - _ARITHMETIC) * self.levels
        return min(1.0, max(0.0, float(np.max(gaps))))

    def after(self, first: PowerCurve) -> PowerCurve:
        """Join two steps: a test of level a has at most first(a) under the middle, and so self(first(a)) at the end."""
        corners = np.interp(first.powers * (1 + _ARITHMETIC), self.levels, self.powers) * (1 + _ARITHMETIC)
        preimages = np.interp(self.levels, first.powers, first.levels, left=0.0) * (1 - _ARITHMETIC)
        start = float(corners[0])
        levels = np.concatenate([first.levels, preimages])
        powers = np.concatenate([corners, np.maximum(self.powers, start)])
        return PowerCurve(levels, np.minimum(powers, 1.0))

    def gaussian(self, slack: float) -> float:
        """Find a mu whose Gaussian power curve, raised by `slack`, lies on or above this one at every level.

        It is enough to look at the vertices: between them this curve is its chord, and the Gaussian one is above its own.
        """
        needed = self.powers - slack
        telling = needed > 0
        if not telling.any():
            return 0.0
        levels, needed = self.levels[telling], needed[telling]
        if np.any(levels <= 0):
            return math.inf
        quantiles = ndtri(np.minimum(needed, 1.0)), ndtri(np.minimum(levels, 1.0))
        inside = (needed < 1.0) & (levels < 1.0)  # at level 1 every power is allowed
        if np.any((needed >= 1.0) & (levels < 1.0)):
            return math.inf
        if not inside.any():
            return 0.0
        largest = float(np.max(quantiles[0][inside] - quantiles[1][inside]))
        return max(0.0, largest + _QUANTILES * (1 + abs(largest)))


Complexes = NDArray[np.complex128]

MAX_ROUNDS = 10**6
_UNIT = 2.0**-53
# Relative error of lattice points, edges of cells and likelihood ratios; their own is below 1e-14.
_PLACE = 1e-13
# Absolute error allowed for a sum of at most 2^20 weights that add up to at most 1, added pairwise.
_TOTAL = 1e-14
# Lattices have this many standard deviations of X in a step, or as many points as are allowed.
_FINENESS = 0.05
_FEWEST_POINTS, _MOST_POINTS = 1 << 14, 1 << 17
# How far the lattice reaches, in standard deviations of z: each deeper one takes a finer or longer lattice.
_DEPTHS = (6.0, 6.75, 7.75)
# How far below its mean a sum of many is followed, in standard deviations; of fewer it is followed all the way.
_REACH_DOWN, _MANY = 8.0, 64
# A bound is computed anew with a deeper lattice where it is not so many times as large as what was cut off.
_NEGLIGIBLE = 100
# Beyond this exp(epsilon) is no float, and nothing is known but what one known round reveals.
_LARGEST_EPSILON = 700.0
# Below this, rounding errors of X are more than its spread, and nothing is known but that, either.
_LEAST_MU = 1e-9
# Slacks that a delta of a composition is tried with.
SLACKS = tuple(10.0**-k for k in range(3, 12))


@dataclass(frozen=True, kw_only=True)
class Allocation:
    """One report in one of `rounds` secret rounds, each with a zero-out certificate of `mu` (accounting, Theorem L).

    Parameters
    ----------
    mu : float
        Above 0, at most 1000. One round's pair (blank, report) is a post-processing of (N(0, 1), N(mu, 1)), but for a slack that is
        kept elsewhere.
    rounds : int
        From 1 to 10^6: the rounds among which the lot was drawn, uniformly and independently of all else.

    Guarantee
    ---------
    `delta` and `gaussian` bound what the sums of all rounds reveal about a user whose lot is secret
    (docs/accounting.md#9-secret-lots). The rounds' own slack is not in them.
    """

    mu: float
    rounds: int

    def __post_init__(self) -> None:
        hint = "Allocations come from plan_lots; do not make one by hand unless you have a proof."
        object.__setattr__(self, "mu", real("mu", self.mu, above=0, at_most=1e3, remedy=hint))
        object.__setattr__(self, "rounds", whole("rounds", self.rounds, at_least=1, at_most=MAX_ROUNDS, remedy=hint))

    def delta(self, epsilon: float, neighbours: str) -> float:
        """Bound the hockey-stick divergence at `epsilon`, in the worse order."""
        known = gaussian_delta(epsilon, self.known(neighbours))
        if self.rounds == 1 or self.mu < _LEAST_MU or epsilon > _LARGEST_EPSILON:
            return known
        best = known
        for depth in _DEPTHS:
            curves = _curves(self.mu, self.rounds, neighbours, depth)
            best = min(best, max(curve.delta(epsilon) for curve in curves))
            if best > _NEGLIGIBLE * max(float(curve.powers[0]) for curve in curves):
                break
        return best

    def known(self, neighbours: str) -> float:
        """Give the mu of the Gaussian that holds where the lot is known: that of one round."""
        return 2 * self.mu if neighbours == "replace-one" else self.mu

    def gaussian(self, neighbours: str, slack: float) -> float:
        """Find a mu such that every test's power is at most the Gaussian one of mu plus `slack`, in both orders.

        So the allocation composes with anything as this Gaussian does, if `slack` is added to delta (accounting, Theorem L).
        """
        return _gaussian(self.mu, self.rounds, neighbours, slack)

    def worse_of(self, other: Allocation) -> Allocation:
        """Make an allocation that is no better than either: the larger mu, the fewer rounds."""
        return Allocation(mu=max(self.mu, other.mu), rounds=min(self.rounds, other.rounds))

    def same_lots(self, *others: Allocation) -> Allocation:
        """Join several questions in one round, or several runs with the same lots: their mus add in squares before a lot is
        drawn."""
        for other in others:
            whole(
                "rounds",
                other.rounds,
                at_least=self.rounds,
                at_most=self.rounds,
                remedy="The same lots have the same number of rounds; compose guarantees where they are drawn afresh.",
            )
        squares = math.fsum(allocation.mu**2 for allocation in (self, *others))
        return Allocation(mu=math.sqrt(squares) * (1 + 1e-12), rounds=self.rounds)


@lru_cache(maxsize=4096)
def _gaussian(mu: float, rounds: int, neighbours: str, slack: float) -> float:
    known = Allocation(mu=mu, rounds=rounds).known(neighbours)
    if rounds == 1 or mu < _LEAST_MU or slack <= 0:
        return known
    best = known
    for depth in _DEPTHS:
        curves = _curves(mu, rounds, neighbours, depth)
        best = min(best, max(curve.gaussian(slack) for curve in curves))
        if slack > _NEGLIGIBLE * max(float(curve.powers[0]) for curve in curves):
            break
    return best


@lru_cache(maxsize=8)
def _curves(mu: float, rounds: int, neighbours: str, depth: float) -> tuple[PowerCurve, ...]:
    return relation_curves(*power_curves(mu, rounds, depth=depth), neighbours)


def relation_curves(to_blank: PowerCurve, from_blank: PowerCurve, neighbours: str) -> tuple[PowerCurve, ...]:
    """Join the two curves of blank and report as a neighbouring relation asks."""
    return (from_blank.after(to_blank),) if neighbours == "replace-one" else (to_blank, from_blank)


def power_curves(
    mu: float, rounds: int, *, depth: float = _DEPTHS[0], most_points: int = _MOST_POINTS
) -> tuple[PowerCurve, PowerCurve]:
    """Bound the power of tests at a level under P, and at a level under B: 1 - f1 and 1 - f2 of Theorem L."""
    ratios, weights, misplaced = _likelihood_ratio(mu, rounds, depth, most_points)
    shifted = weights * ratios
    only_blank = max(0.0, 1 - float(weights.sum())) + _TOTAL + misplaced
    only_report = max(0.0, 1 - float(shifted.sum())) + _TOTAL + misplaced * float(ratios[-1]) * 1.01
    rounding = ratios.size * _UNIT * 1.01 + 1e-15  # k - 1 additions of positive numbers err by at most so much
    rising = _polygon(shifted, weights, only_blank, rounding)
    falling = _polygon(weights[::-1], shifted[::-1], only_report, rounding)
    return rising, falling


def _polygon(level_steps: Floats, power_steps: Floats, start: float, rounding: float) -> PowerCurve:
    levels = np.concatenate([[0.0], np.cumsum(level_steps) * (1 - rounding), [1.0]])
    powers = np.concatenate([[0.0], np.cumsum(power_steps), [1.0]]) + start
    return PowerCurve(np.minimum(levels, 1.0), np.minimum(powers * (1 + rounding), 1.0))


def _likelihood_ratio(mu: float, rounds: int, depth: float, most_points: int) -> tuple[Floats, Floats, float]:
    """Values of a law below S / T in the increasing concave order, ascending, and lower bounds of their probabilities.

    What the probabilities lack of 1 belongs to the value 0. All this but for a probability, which is returned as well, that a
    sum was below the lattice and stands among the largest.
    """
    lattice = _lattice(mu, rounds, depth, most_points)
    points = lattice.points
    law = _one_round(mu, lattice)
    # Deep in the tails errors of float64 would outweigh what is left; longer floats are slower, and the same where there are none.
    floats = np.float64 if depth <= _DEPTHS[0] else np.longdouble
    unit = float(np.finfo(floats).eps) / 2
    spectrum = rfft(law.astype(floats))
    sizes = np.abs(spectrum).astype(np.float64)
    # Each output of a transform of 2^k points sums its inputs over paths of k butterflies: a complex product with a
    # rounded root of unity and an addition, together within 8 units (sqrt 5 + 1 + 1 are needed, Brent et al. 2007).
    transform = 8 * unit * math.log2(points)
    doubt = rounds * transform * (sizes + transform) ** (rounds - 1) + (3 * unit * rounds + transform) * sizes**rounds
    error = 2 * float(doubt.sum()) / points * 1.001  # all frequencies but two stand for a conjugate pair
    weights = (irfft(_power(spectrum, rounds), points) - error).astype(np.float64) * (1 - 4 * _UNIT)
    weights = np.roll(weights, rounds * lattice.start - lattice.first)
    kept = np.flatnonzero(weights > 0)
    ratios: Floats = (lattice.first + kept).astype(np.float64) * (lattice.step / rounds) * (1 - _PLACE)
    return ratios, weights[kept], _below(law, rounds, lattice)


def _below(law: Floats, rounds: int, lattice: _Lattice) -> float:
    """Upper bound (Chernoff) on the probability that a sum of lattice points is below those that are told apart."""
    missed = lattice.first - rounds * lattice.start
    if missed == 0:
        return 0.0
    distances = np.arange(law.size) - missed / rounds
    # sums, not dot products, which for vectors of this length wake up threads: milliseconds where other work is under way
    spread = math.sqrt(float(np.sum(law * distances**2)))
    rates = _REACH_DOWN / (spread * math.sqrt(rounds)) * np.array([0.8, 1.0, 1.25])
    bounds = (rounds * math.log(float(np.sum(law * np.exp(np.maximum(-rate * distances, -300.0))))) for rate in rates)
    return min(1.0, math.exp(min(bounds)) * (1 + 1e-6))


@dataclass(frozen=True)
class _Lattice:
    """Where X and S may be: X at (start + i) * step, S at (first + i) * step, i < points."""

    start: int
    first: int
    step: float
    points: int


def _lattice(mu: float, rounds: int, depth: float, most_points: int) -> _Lattice:
    """Any choice is safe, since all that it leaves out is charged; this one leaves out little."""
    spread = math.sqrt(math.expm1(min(mu * mu, 600.0)))
    lowest = math.exp(-mu * (depth + 1.5) - mu * mu / 2)
    bulk = spread * math.sqrt(rounds - 1)
    lowest_sum = rounds * lowest
    if rounds >= _MANY:
        lowest_sum = max(lowest_sum, rounds - (_REACH_DOWN + mu) * bulk)
    highest_sum = math.exp(min(mu * depth + mu * mu / 2, 600.0)) + (rounds - 1) + depth * bulk
    length = highest_sum - lowest_sum
    points = 1 << max(0, math.ceil(math.log2(length / (_FINENESS * spread))))
    points = min(most_points, max(_FEWEST_POINTS, points))
    step = length / (points - 2)
    start = math.floor(lowest / step)
    cut = lowest_sum > rounds * lowest
    return _Lattice(start, math.floor(lowest_sum / step) if cut else rounds * start, step, points)


def _one_round(mu: float, lattice: _Lattice) -> Floats:
    """Weights of a law on (start + i) * step, i < points, that is below X in the increasing concave order.

    In the cell [a, b] X has probability p and mean m / p; a gets (b p - m) / step and b gets (m - a p) / step, which keeps
    the mean. All doubt goes to a, or, where the probability itself is in doubt, to 0, which stands for what is lacking.
    """
    step, points = lattice.step, lattice.points
    places = (lattice.start + np.arange(points)) * step
    with np.errstate(divide="ignore"):
        edges = np.clip((np.log(places) + mu * mu / 2) / mu, -38.0, 38.0)
    mass, mass_error = _cells(edges)
    mean, mean_error = _cells(edges - mu)
    left, right = places[:-1], places[1:]
    certain = np.maximum(mass - mass_error, 0.0)
    upper = (mean - mean_error - left * (mass + mass_error) * (1 + 4 * _UNIT)) / step - 2 * _PLACE * right / step * mass
    upper = np.clip(upper, 0.0, certain)
    weights = np.zeros(points)
    weights[:-1] = (certain - upper) * (1 - 4 * _UNIT)
    weights[1:] += upper * (1 - 4 * _UNIT)
    weights[-1] += ndtr(-edges[-1]) * (1 - 1e-11)  # all that is beyond
    return weights


def _cells(edges: Floats) -> tuple[Floats, Floats]:
    """Normal probabilities between neighbouring edges, each from its nearer tail, and bounds on their errors."""
    lower, upper = ndtr(edges), ndtr(-edges)
    left = edges[1:] <= 0
    cells = np.where(left, np.diff(lower), -np.diff(upper))
    tails = np.where(left, lower[1:], upper[:-1])
    reach = np.maximum(edges[1:] ** 2, edges[:-1] ** 2)
    return np.maximum(cells, 0.0), 8e-16 * (4 + reach) * tails


def _power(values: Complexes, exponent: int) -> Complexes:
    """Powers by squaring: `exponent` - 1 products in the expanded tree, each within sqrt 5 units."""
    result: Complexes | None = None
    while exponent:
        if exponent & 1:
            result = values if result is None else result * values
        exponent >>= 1
        if exponent:
            values = values * values
    return values if result is None else result
