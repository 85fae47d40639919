"""Secret lots: one of `rounds` rounds, drawn at random and kept secret, holds a user's report (accounting, Theorem L).

A hockey-stick divergence of the two hypotheses is E (W_1 + ... + W_T)_+ / T for independent copies of one W = a X + b - g Y of a
normal z, where X = exp(mu z - mu^2/2) and Y = exp(-mu z - mu^2/2). So three moves are safe: to raise W, to spread it with its mean
kept, and to add weight. W is spread onto a lattice, all doubt goes up, and what is cut off above is charged. The law of the
sum is the T-th power of a Fourier transform. It is tilted by exp(theta W), so that errors of the transform and sums
that come around the lattice weigh little, and they are charged as well. Nothing is renormalised.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft, rfft
from scipy.special import ndtr, ndtri

from ..validation import real, whole
from .gaussian import gaussian_delta

Floats = NDArray[np.float64]
Number = TypeVar("Number", np.float64, np.complex128)

MAX_ROUNDS = 10**6
# Slacks that a delta of a composition is tried with.
SLACKS = tuple(10.0**-k for k in range(3, 12))
# Beyond this exp(epsilon) is no float, and nothing is known but what one known round reveals.
_LARGEST_EPSILON = 700.0
# Outside of this, rounding errors of X are more than its spread, or its mean is beyond normal quantiles: the same.
_LEAST_MU, _LARGEST_MU = 1e-9, 10.0
_UNIT = 2.0**-53
# Normal quantiles that are told apart; probabilities beyond are below 1e-315.
_FARTHEST = 38.0
# How far above its mean W is followed, in standard deviations of z: deeper where a bound is not this many times what was cut off.
_DEPTHS, _NEGLIGIBLE = (6.0, 7.5, 9.0, 12.0), 300
# Replace-one: W is cut where it is this many times e^epsilon T.
_LONGEST_CUT = 3
# The part of the best tilt that is taken: with all of it, sums of several cuts have so much weight that they come around.
_GENTLE = 0.65
# How far the window of sums reaches, in 1 / theta; and below their tilted mean, in standard deviations.
_REACH, _REACH_DOWN = 30.0, 8.0
# Points of a window of sums: of a figure, of a line of a curve, and the most that one round's law may have. A first look at how
# deep a lattice should be takes a part of them.
POINTS, _CURVE_POINTS, _MOST_POINTS, _COARSER = 1 << 16, 1 << 13, 1 << 22, 8
# Exponents beyond this are refused: weights would underflow.
_LARGEST_TILT = 600.0
# Lines of a curve, from epsilon 0 to where delta is so small.
_LINES, _LEAST_DELTA = 48, 2e-12
# Relative error allowed for a sum, a product and a difference of vertices; their own errors are far below.
_ARITHMETIC = 1e-12
# Absolute and relative error allowed for differences of normal quantiles.
_QUANTILES = 1e-9


@dataclass(frozen=True, kw_only=True)
class Allocation:
    """One report in one of `rounds` secret rounds, each with a zero-out certificate of `mu` (accounting, Theorem L).

    `mu`: Above 0, at most 1000. One round's pair (blank, report) is a post-processing of (N(0, 1), N(mu, 1)), except for a slack
    that is kept elsewhere. `rounds`: From 1 to 10^6: the rounds among which the lot was drawn, uniformly and independently of all
    else.

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
        return max(divergences(self.mu, self.rounds, epsilon, neighbours))

    def known(self, neighbours: str) -> float:
        """Give the mu of the Gaussian that holds where the lot is known: that of one round."""
        return 2 * self.mu if neighbours == "replace-one" else self.mu

    def gaussian(self, neighbours: str, slack: float) -> float:
        """Find a mu such that every test's power is at most the Gaussian one of mu plus `slack`, in both orders.

        So the allocation composes with anything as this Gaussian does, if `slack` is added to delta (accounting, Theorem L).
        """
        known = self.known(neighbours)
        if slack <= 0:
            return known
        return min(known, max(curve.gaussian(slack) for curve in power_curves(self.mu, self.rounds, neighbours)))

    def given_up(self, residue: float, neighbours: str) -> float:
        """Bound what is added to delta where a round's mu holds except for `residue`: s + w(s), or g(s) (accounting, Theorem E).

        Only one round holds a report, so its law is within s = `residue` of one with mu; a test's level moves by as much.
        """
        if residue == 0:
            return 0.0
        power = _power_at(self.mu, self.rounds, neighbours, residue) * (1 + _ARITHMETIC)
        return residue + power if neighbours == "replace-one" else power

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


# Power curves: how well a pair of hypotheses can be told apart, as a polygon with safely rounded vertices.


@dataclass(frozen=True, eq=False)
class PowerCurve:
    """An upper bound on the power of every test of one hypothesis against another, given its level.

    The bound is the polygon through (levels, powers), from level 0 to (1, 1). It is 1 - f, where f is the trade-off function.

    `levels`: Ascending, rounded down. `powers`: Ascending, rounded up.
    """

    levels: Floats
    powers: Floats

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


@lru_cache(maxsize=256)
def power_curves(mu: float, rounds: int, neighbours: str) -> tuple[PowerCurve, ...]:
    """Bound the power of every test in each order: a divergence of delta at c makes it at most delta + c a at level a."""
    factors, found = [], []
    for epsilon in _line_epsilons(mu, rounds, neighbours):
        factors.append(math.exp(epsilon))
        found.append(divergences(mu, rounds, float(epsilon), neighbours, _CURVE_POINTS))
    slopes, orders = np.array(factors), np.array(found).T
    # a test's complement has the other order's divergence at 1 / c: H(1/c) = 1 - 1/c + H'(c) / c
    return tuple(
        _envelope(np.concatenate([slopes, 1 / slopes]), np.concatenate([order, 1 - 1 / slopes + other / slopes]))
        for order, other in zip(orders, orders[::-1], strict=True)
    )


def _line_epsilons(mu: float, rounds: int, neighbours: str) -> Floats:
    """Where the lines of a curve touch it: from 0 to an epsilon whose delta is next to nothing."""
    last = 1.0
    while last < _LARGEST_EPSILON and max(divergences(mu, rounds, last, neighbours, _CURVE_POINTS)) > _LEAST_DELTA:
        last *= 1.5
    while last > _LEAST_MU and max(divergences(mu, rounds, last / 1.5, neighbours, _CURVE_POINTS)) <= _LEAST_DELTA:
        last /= 1.5
    epsilons: Floats = min(last, _LARGEST_EPSILON) * (np.arange(_LINES) / (_LINES - 1)) ** 1.5
    return epsilons


@lru_cache(maxsize=1024)
def _power_at(mu: float, rounds: int, neighbours: str, level: float) -> float:
    """The larger power of the two curves at a small level, by the few lines that matter there: the steepest, until they lie higher.

    Any lines bound the power; these are those of `power_curves` around the level, for a fraction of its time.
    """
    factors, found = [], []
    for epsilon in _line_epsilons(mu, rounds, neighbours)[::-1]:
        factors.append(math.exp(epsilon))
        found.append(divergences(mu, rounds, float(epsilon), neighbours, _CURVE_POINTS))
        heights = np.array(found[-4:]) + level * np.array(factors[-4:])[:, np.newaxis]
        if len(heights) == 4 and np.all(np.diff(heights, axis=0) > 0):
            break
    curves = [_envelope(np.array(factors), order) for order in np.array(found).T]
    return max(float(np.interp(level, curve.levels, curve.powers)) for curve in curves)


def _envelope(slopes: Floats, heights: Floats) -> PowerCurve:
    """The least of the lines height + slope a, and of 1, between the levels 0 and 1; a vertex is on or above both of its lines."""
    lines = sorted(zip([*slopes, 0.0], [*heights * (1 + _ARITHMETIC) + 1e-15, 1.0], strict=True), reverse=True)
    kept: list[tuple[float, float]] = []
    starts: list[float] = []  # the level from which a line is the least one
    for slope, height in lines:
        while kept:
            steeper, lower = kept[-1]
            start = (height - lower) / (steeper - slope) if steeper > slope else (0.0 if height < lower else math.inf)
            if start > starts[-1]:
                break
            kept.pop()
            starts.pop()
        if not kept:
            start = 0.0
        if start < 1:
            kept.append((slope, height))
            starts.append(start)
    levels, powers = [0.0], [kept[0][1]]
    for (steeper, lower), (slope, height), start in zip(kept, kept[1:], starts[1:], strict=False):
        levels.append(start * (1 - _ARITHMETIC))
        powers.append(max(lower + steeper * start, height + slope * start) * (1 + _ARITHMETIC))
    return PowerCurve(np.array([*levels, 1.0]), np.minimum([*powers, 1.0], 1.0))


# Divergences at one epsilon. Why each step bounds E (W_1 + ... + W_T)_+ / T from above:
#
# 1. Cut. (sum W)_+ <= (sum min(W, H))_+ + sum (W - H)_+, so a cut at H costs E (W - H)_+ = a Phi(mu - zH) + (b - H) Phi(-zH) - g
#    Phi(-zH - mu), zH the place where W is H; another z gives less, by its error squared, and 1e-9 of the first term is added.
#    For a report against a blank the cut at c (T - 1) is exact, since a sum with one X >= c T is linear in it; a blank against a
#    report has W < 1, and nothing is cut.
# 2. Lattice of step h. In the cell [l, l + h], with probability p and partial mean m, l + h gets (m - l p) / h and l the rest.
#    Values below the lattice are raised to its first point. Errors of p and m go up: normal tails, each from its own side, are
#    right to 8e-16 (4 + z^2), measured against 50 digits. The edge of a cell is wrong by at most k (a X + |b| + g Y), k =
#    `doubt`: with W clipped to its cell, m is larger by at most k times the mean of that size, which is added to it, and E (sum
#    W)_+ is at most E (sum of clipped W)_+ + k E (sum of sizes; sum W > 0). Where sum W > 0, the negative part of the sizes is
#    less than the positive one, whose mean is at most T: 2 k is added.
# 3. Tilt. Weights are multiplied by e^(theta w) / M, so that they add up to 1; the law of the sum is the T-th power of their
#    transform, times M^T e^(-theta s). Any theta > 0 will do.
# 4. Transform. A weight is wrong by at most the mean over frequencies of T e (|phi| + e)^(T-1) + (3 T u + e) |phi|^T, e = 8 j u
#    for 2^j points and 3 T u for the power by repeated squaring. It is added to every weight.
# 5. Window. Sums below it come around raised. Sums above it come around lowered, which M^T s e^(-theta s) / T at the window's end
#    s >= 1 / theta covers, as s e^(-theta s) falls there; nothing is charged where no sum is so large.


@lru_cache(maxsize=4096)
def divergences(mu: float, rounds: int, epsilon: float, neighbours: str, points: int = POINTS) -> tuple[float, ...]:
    """Bound the hockey-stick divergences of the two hypotheses at `epsilon`: one of replace-one, two of zero-out."""
    known, factor = gaussian_delta(epsilon, 2 * mu if neighbours == "replace-one" else mu), math.exp(min(epsilon, _LARGEST_EPSILON))
    if neighbours == "replace-one":
        variables = [_Variable(mu, epsilon, 1.0, 0.0, factor)]
    else:  # a report against a blank, and a blank against a report
        variables = [_Variable(mu, epsilon, 1.0, -factor, 0.0), _Variable(mu, epsilon, 0.0, 1.0, factor)]
    if rounds == 1 or not _LEAST_MU <= mu <= _LARGEST_MU or epsilon > _LARGEST_EPSILON:
        return (known,) * len(variables)
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is no bound
        return tuple(min(known, _stop_loss(one, rounds, points)) for one in variables)


@dataclass(frozen=True)
class _Variable:
    """W = a X + b - g Y, which grows with z; g is 0 or e^epsilon. Its places are computed within `doubt` (a X + |b| + g Y)."""

    mu: float
    epsilon: float
    a: float
    b: float
    g: float

    @property
    def doubt(self) -> float:
        return 1e-13 + 16 * _UNIT * (_FARTHEST * self.mu + self.mu**2 + self.epsilon)

    def at(self, z: Floats) -> Floats:
        exponents = self.mu * z, self.mu * self.mu / 2
        rising, falling = exponents[0] - exponents[1], -exponents[0] - exponents[1]
        values: Floats = self.a * np.exp(rising) + self.b - self.g * np.exp(np.minimum(falling, 700.0))
        return values

    def inverse(self, values: Floats) -> Floats:
        mu, half = self.mu, self.mu**2 / 2
        with np.errstate(divide="ignore"):
            if self.a and self.g:  # W = 2 exp((epsilon - mu^2) / 2) sinh(mu z - epsilon / 2)
                z = (np.arcsinh(values * (math.exp(half - self.epsilon / 2) / 2)) + self.epsilon / 2) / mu
            elif self.a:
                z = (np.log(np.maximum(values - self.b, 0.0)) + half) / mu
            else:
                z = -(np.log(np.maximum(self.b - values, 0.0) / self.g) + half) / mu
        return np.clip(z, -_FARTHEST, _FARTHEST)

    def cells(self, edges: Floats) -> tuple[Floats, Floats, Floats, Floats, Floats]:
        """Between neighbouring edges: the probability and the part of W's mean, each with a bound on its error, and that of
        a X + |b| + g Y."""
        mass, mass_error = _cells(edges)
        mean, error, size = self.b * mass, abs(self.b) * mass_error, abs(self.b) * mass
        for factor, shift in ((self.a, -self.mu), (-self.g, self.mu)):
            if factor:
                part, part_error = _cells(edges + shift)
                mean, error, size = mean + factor * part, error + abs(factor) * part_error, size + abs(factor) * part
        return mass, mass_error, mean, error, size

    def beyond(self, cut: float, z: float) -> float:
        """E (W - cut)_+, from above, where W is `cut` at about z: with another z it would be less, by next to nothing."""
        if not self.a:
            return 0.0
        first = float(ndtr(self.mu - z))
        rest = (cut - self.b) * float(ndtr(-z)) + self.g * float(ndtr(-z - self.mu))
        return max(0.0, first - rest) + 1e-9 * first


def _stop_loss(variable: _Variable, rounds: int, points: int) -> float:
    """Bound E (W_1 + ... + W_T)_+ / T; 1 where nothing can be said. A coarse lattice finds how deep the full one has to be."""
    coarse: dict[float, float] = {}
    for depth in _DEPTHS:
        bound, charge = _bound(variable, rounds, depth, points // _COARSER)
        coarse[depth] = bound if math.isfinite(bound) else 1.0
        if min(coarse.values()) > _NEGLIGIBLE * charge:
            break
    best = min(coarse, key=lambda depth: coarse[depth])
    full, _ = _bound(variable, rounds, best, points)
    return min(full, coarse[best]) if math.isfinite(full) else coarse[best]


def _bound(variable: _Variable, rounds: int, depth: float, points: int) -> tuple[float, float]:
    """One lattice's bound, and the part of it that was cut off above. Any cut, tilt, window and step are safe."""
    factor = math.exp(variable.epsilon)
    if not variable.a:  # W < 1, and where one W is below 1 - T no sum is positive
        cut, lowest = 1.0, -max(1.0, rounds - 1.0)
    else:
        cut, lowest = float(variable.at(np.array(variable.mu + depth))), -factor
        cut = min(cut, _LONGEST_CUT * factor * rounds if variable.g else factor * (rounds - 1))
        if cut <= 0:
            return 1.0, 0.0
    theta, log_total, mean, spread = _tilt(variable, rounds, cut, lowest)
    bottom = min((_REACH - min(0.0, log_total)) / theta, max(0.0, -mean) + _REACH_DOWN * spread + 1 / theta)
    top = _REACH / theta
    if not variable.a:
        top = min(top, rounds * (1.01 + 2 * (1.01 * rounds + bottom) / points))  # no sum is larger
    fraction, exponent = math.frexp((top + bottom) / (points - 2))
    step = math.ldexp(math.ceil(fraction * 2**20), exponent - 20)  # so few digits that multiples are exact
    start = math.floor(-bottom / step if variable.a and variable.g else max(-bottom, lowest) / step)
    if not cut / step - start < _MOST_POINTS:
        return 1.0, 0.0
    end = max(start + 2, math.ceil(cut / step))
    if not theta * step * (end - start) <= _LARGEST_TILT:
        return 1.0, 0.0
    law, charge = _lattice_law(variable, start, end, step)

    # The tilted law and the T-th power of its transform: index 0 of `weights` is the sum first * step.
    exponents = theta * step * np.arange(start - end, 1)
    tilted = law * np.exp(exponents)
    total = float(tilted.sum())
    log_scale = rounds * (math.log(total) + theta * step * end)
    if not log_scale < _LARGEST_EPSILON:
        return 1.0, 0.0
    folded = np.zeros(-(-tilted.size // points) * points)
    folded[: tilted.size] = tilted * ((1 + 1e-12) / total)
    first = -math.ceil(bottom / step)
    weights = np.roll(_convolved(folded.reshape(-1, points).sum(0), rounds), rounds * start - first)
    sums = (first + np.arange(points)) * step
    losses = weights[1 - first :] * sums[1 - first :] * np.exp(-theta * sums[1 - first :])
    # 1e-9 and 4e-12 T are for the inflation above, T times, and for errors of exponents up to 600.
    main = math.exp(log_scale) * float(losses.sum()) / rounds * (1 + 1e-9 + 4e-12 * rounds)
    # Sums above the window come around downwards, so they are charged; those below it come around upwards.
    window = (first + points) * step
    lost = 0.0
    if window < rounds * end * step:
        largest = max(window, 1 / theta)
        lost = math.exp(log_scale - theta * largest) * largest / rounds * 1.01
    return main + charge + lost + 2 * variable.doubt, charge


def _tilt(variable: _Variable, rounds: int, cut: float, lowest: float) -> tuple[float, float, float, float]:
    """A tilt theta > 0 that makes sums about as large as matter; then, of the tilted sum, roughly: log M^T, mean and deviation."""
    z = _GRID + (variable.mu / 2 if variable.a else -variable.mu / 2)
    values = np.minimum(variable.at(z), cut)
    if not variable.a:
        values = np.maximum(values, lowest)
    logs = -z * z / 2
    logs -= math.log(float(np.exp(logs).sum()))

    def tilted(theta: float) -> tuple[float, float, float]:
        exponents = theta * values + logs
        most = float(exponents.max())
        weights = np.exp(exponents - most)
        total = float(weights.sum())
        mean = float((weights * values).sum()) / total
        return rounds * (most + math.log(total)), rounds * mean, rounds * float((weights * (values - mean) ** 2).sum()) / total

    scale = max(float(values.max()), 1e-300)
    low, high = math.log(1e-9 / scale), math.log(_LARGEST_TILT / scale)
    while high - low > 0.01:
        middle = (low + high) / 2
        log_total, mean, _ = tilted(math.exp(middle))
        if mean * math.exp(middle) > 1 or log_total < -60:  # a delta below 1e-26 is not needed
            high = middle
        else:
            low = middle
    theta = _GENTLE * math.exp(low)
    log_total, mean, variance = tilted(theta)
    return theta, log_total, mean, math.sqrt(variance)


_GRID = np.linspace(-14, 14, 1001)


def _lattice_law(variable: _Variable, start: int, end: int, step: float) -> tuple[Floats, float]:
    """Weights on the points start..end of a law that is above min(W, last) in the increasing convex order, and E (W - last)_+.

    In the cell [l, l + step] W has probability p and partial mean m; l + step gets (m - l p) / step and l the rest, which
    keeps the mean. All doubt goes up.
    """
    places: Floats = np.arange(start, end + 1, dtype=np.float64) * step
    edges = variable.inverse(places)
    mass, mass_error, mean, mean_error, size = variable.cells(edges)
    left = places[:-1]
    most, least = (mass + mass_error) * (1 + 8 * _UNIT), np.maximum(mass - mass_error, 0.0)
    above = mean + mean_error + (variable.doubt + 8 * _UNIT) * size - left * np.where(left > 0, least, most)
    upper = np.clip((above + 8 * _UNIT * np.abs(left) * most) / step, 0.0, most)
    law = np.zeros(places.size)
    law[:-1] = most - upper
    law[1:] += upper
    law[0] += float(ndtr(edges[0])) * (1 + 1e-11)  # lower values are raised to the first
    law[-1] += float(ndtr(-edges[-1])) * (1 + 1e-11)
    return law, variable.beyond(float(places[-1]), float(edges[-1]))


def _cells(edges: Floats) -> tuple[Floats, Floats]:
    """Normal probabilities between neighbouring edges, ascending, each from its nearer tail, and bounds on their errors."""
    left = int(np.searchsorted(edges[1:], 0.0, side="right"))  # so many cells end at or below 0
    lower, upper = ndtr(edges[: left + 1]), ndtr(-edges[left:])
    cells = np.concatenate([np.diff(lower), -np.diff(upper)])
    tails = np.concatenate([lower[1:], upper[:-1]])
    reach = np.maximum(edges[1:] ** 2, edges[:-1] ** 2)
    return np.maximum(cells, 0.0), 8e-16 * (4 + reach) * tails


def _convolved(law: Floats, times: int) -> Floats:
    """Upper bounds of the cyclic convolution of `times` copies of a law on 2^k points whose weights add up to about 1."""
    spectrum = rfft(law)
    sizes = np.abs(spectrum)
    # Each output of a transform of 2^k points sums its inputs over paths of k butterflies: a complex product with a
    # rounded root of unity and an addition, together within 8 units (sqrt 5 + 1 + 1 are needed, Brent et al. 2007).
    transform = 8 * _UNIT * math.log2(law.size)
    doubt = times * transform * _power(sizes + transform, times - 1) + (3 * _UNIT * times + transform) * _power(sizes, times)
    error = 2 * float(doubt.sum()) / law.size * 1.01  # all frequencies but two stand for a conjugate pair
    weights: Floats = np.maximum(irfft(_power(spectrum, times), law.size) + error, 0.0)
    return weights


def _power(values: NDArray[Number], exponent: int) -> NDArray[Number]:
    """Powers by squaring: `exponent` - 1 products in the expanded tree, each within sqrt 5 units."""
    if not exponent:
        return np.ones_like(values)
    result: NDArray[Number] | None = None
    while exponent:
        if exponent & 1:
            result = values if result is None else result * values
        exponent >>= 1
        if exponent:
            values = values * values
    return values if result is None else result
