"""`SumPlan.prove`: a plan's guarantee as enclosures by ball arithmetic, and the certificate that a reader checks."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import Any, NamedTuple

from flint import arb, arb_poly, ctx, fmpq
from scipy.special import ndtri

from ..validation import ArgumentError
from ._tight import THEOREMS, certificate_of
from .certificate import BEND_LENGTHS, RESIDUE, SHIFT_MARGIN, Certificate, NoCertificateError, bend
from .plan import SumPlan

__all__ = ["Enclosure", "Proof", "prove"]

# Theorem B in ball arithmetic (Arb): enclosures of its constants, whatever floating point does.
#
# Every number here is a ball, a midpoint with a radius that is proved to hold the real number; `flint.arb` widens it with each
# operation. So a bound that is read off a ball's end is a theorem about Bin(trials, p) as such, with p the dyadic number that the
# float is. It shares no formula with `certificate`: the mass is summed from the tails, the scores are inverted by Arb, wide windows
# are bounded by concavity, as follows. Needs the extra `proof` (python-flint).
#
# Wide windows. Windows of more than 30 000 points are met in blocks a..b. Claim. Where F(y) <= 1/2, log phi(z(y)) is a concave
# function of the integer y. Proof. F is log-concave, as sums of a log-concave f are. Let I = phi(Phi^-1), and q = Phi(-t), t >=
# 0. The slope of log I over log q is q I'(q) / I(q) = t R(t), R Mills' ratio. t R(t) is not negative and grows with t, for its
# derivative (1 + t^2) R(t) - t is positive, as R(t) > t / (1 + t^2). So log I is a concave and increasing function of log q for q
# <= 1/2, and such a function of the concave log F is concave. QED. So on a block below the median log phi(z) is at least its
# chord. log f is concave, and above its chord by at most v (b - a)^2 / 8, v the largest of minus its second differences, log(1 +
# 1/y) + log(1 + 1/(N - y)). The bound of log f(y) - log phi(z(y - 1)) that follows is linear in y, so it is largest at y = a + 1
# or y = b. Above the median the same holds for the mirror image N - 1 - y; one block about the median is bounded by its largest f
# and its smallest phi(z). Sums of f over a block come from the same chord: f(a + j) is the geometric chord times exp(x), with x
# between v' j (b - a - j) / 2 and v j (b - a - j) / 2, v' the smallest of minus the second differences. There mu = ct S.

# Bits of a midpoint. Log-gammas at 10^12 lose 45 of them, sums over a window 20: more than 100 are left.
PRECISION = 192
# Windows up to this many points are met point by point, as in `certificate`; wider ones in blocks of these parts of a standard
# deviation: ct in the first, which bounds it to 1e-5, tails in the second, which encloses them to 1e-9.
SCAN_POINTS = 30_000
SLOPE_BLOCK = Fraction(1, 200)
TAIL_BLOCK = Fraction(1, 1000)
# Sums over a tail end where the rest is below this part of what was summed: the rest is bounded, not left out.
_REST = 2.0**-100
_REST_OF_BLOCKS = 2.0**-40


class Constants(NamedTuple):
    """Balls around the constants of Theorem B for one window.

    `step`: c; None if the window was met in blocks. `slope`: ct. `bulge`: kappa; None if the window was met in blocks. `tau`, `mu`:
    What the certificate is made of. `bend`: nu of Theorem E; None if mu is by Theorem B.
    """

    step: arb | None
    slope: arb
    bulge: arb | None
    tau: arb
    mu: arb
    bend: arb | None = None


def ball_constants(
    trials: int, probability: float, *, shift: Fraction, reach: int, dim: int, low: int, high: int, theorem: str = "B"
) -> Constants:
    """Enclose the constants of Theorem B, or E, for Bin(trials, probability) on the window low..high.

    Guarantee
    ---------
    The real constants are in the balls (docs/certificates.md).
    """
    if not (low >= 0 and low + reach < high <= trials - 1 and reach >= 1 and 0 < probability < 1):
        raise NoCertificateError(f"{low}..{high} is not a window of Theorem B for {trials} trials and a reach of {reach}")
    with ctx.workprec(PRECISION):
        p = Fraction(probability)
        left, right = _Half(trials, p), _Half(trials, 1 - p)
        # right is the mirror image: its point y is trials - 1 - y, its tail is what lies above y
        ends = _mirrored(trials, low, high)
        step: arb | None = None
        bulge: arb | None = None
        nu: arb | None = None
        if high - low < SCAN_POINTS:
            scan = _scan(left, right, low, high, ends)
            c, slope, extreme = scan.step, scan.slope, scan.extreme
            kappa = (c * (1 - c / slope)).min(slope * slope * extreme.max(2 * c) / 8)
            S = _exact(shift)
            mu = (slope * S).min(c * S + kappa * arb(dim).sqrt())
            if theorem == "E":
                k, nu = _proved_bend(slope, dim)
                mu = c * S + 2 * c * k * arb(dim).sqrt() + nu
            step, bulge = c, kappa
            lost = scan.lost(reach)
        else:
            slope = _slope_by_blocks(left, right, low, high)
            mu = slope * _exact(shift)
            # only a few points: each from its own tail
            below = [left.mass_by_blocks(y) for y in (low + 1, low + reach + 1)]
            above = [right.mass_by_blocks(y) for y in (ends[0] + 1, ends[0] + reach + 1)]
            lost = below[0] + above[1], below[1] + above[0]
        tau = lost[0].max(lost[1])
        for ball in (slope, tau, mu):
            if not (ball.is_finite() and ball > 0):
                raise NoCertificateError(f"a constant of Theorem B could not be enclosed: {ball}")
        return Constants(step, slope, bulge, tau, mu, nu)


def gaussian_delta_ball(epsilon: Fraction, mu: arb) -> arb:
    """Enclose deltaG(epsilon; mu). It grows with mu, so it is enclosed at the two ends of mu's ball."""
    with ctx.workprec(PRECISION):
        at_ends = [_gaussian_delta(_exact(epsilon), end) for end in (mu.lower(), mu.upper())]
        return at_ends[0].union(at_ends[1])


def _gaussian_delta(epsilon: arb, mu: arb) -> arb:
    return _normal_cdf(mu / 2 - epsilon / mu) - epsilon.exp() * _normal_cdf(-mu / 2 - epsilon / mu)


def _normal_cdf(z: arb) -> arb:
    return (-z / arb(2).sqrt()).erfc() / 2


def _exact(value: Fraction) -> arb:
    return arb(fmpq(value.numerator, value.denominator))


def _mirrored(trials: int, low: int, high: int) -> tuple[int, int]:
    return trials - 1 - high, trials - 1 - low


def _score(mass: arb) -> arb:
    """Phi^-1 of a probability."""
    return -(2 * mass).erfcinv() * arb(2).sqrt()


def _density(score: arb) -> arb:
    return (-score * score / 2).exp() / (2 * arb.pi()).sqrt()


@dataclass(frozen=True)
class _Half:
    """Bin(trials, p) seen from its lower end."""

    trials: int
    p: Fraction

    def pmf(self, y: int) -> arb:
        """f(y), from log-gammas."""
        N, p, q = self.trials, _exact(self.p), _exact(1 - self.p)
        logs = arb(N + 1).lgamma() - arb(y + 1).lgamma() - arb(N - y + 1).lgamma()
        return (logs + y * p.log() + (N - y) * q.log()).exp()

    def rise(self, y: int) -> arb:
        """f(y) / f(y - 1): falls as y grows."""
        p = self.p
        return arb(fmpq((self.trials - y + 1) * p.numerator, y * (p.denominator - p.numerator)))

    def rest(self, y: int, pmf: arb) -> arb | None:
        """A ball around what lies below y, given f(y): between 0 and a geometric series; None if that does not end."""
        if y == 0:
            return arb(0)
        fall = 1 / self.rise(y)
        if not fall < 1:
            return None
        return arb(0).union(pmf * fall / (1 - fall))

    def mass(self, y: int) -> arb:
        """F(y), point by point down to where the rest is negligible."""
        term = total = self.pmf(y)
        while True:
            rest = self.rest(y, term)
            if rest is not None and rest.upper() <= total.lower() * _REST:
                return total + rest
            term /= self.rise(y)
            total += term
            y -= 1

    def points(self, low: int, high: int) -> Iterator[tuple[arb, arb]]:
        """(f(y), F(y)) for y from low to high."""
        pmf, mass = self.pmf(low), self.mass(low)
        yield pmf, mass
        for y in range(low + 1, high + 1):
            pmf *= self.rise(y)
            mass += pmf
            yield pmf, mass

    # --- blocks

    def block(self, width: Fraction) -> int:
        """Points in a block of this part of a standard deviation."""
        variance = self.trials * self.p * (1 - self.p)
        return max(1, int(width * math.isqrt(int(variance))))

    def sag(self, start: int, end: int) -> arb:
        """How far log f may rise above its chord on start..end (`bends`, times at most m^2 / 8 for m points)."""
        return _exact(self.bends(start, end)[1] * (end - start) ** 2 / 8)

    def bends(self, start: int, end: int) -> tuple[Fraction, Fraction]:
        """Bounds of minus the second difference of log f at y strictly between start and end.

        It is log(1 + 1/y) + log(1 + 1/(N - y)), between 1/(y + 1) + 1/(N - y + 1) and 1/y + 1/(N - y).
        """
        if end - start < 2:
            return Fraction(0), Fraction(0)
        N = self.trials
        return Fraction(1, end) + Fraction(1, N - start), Fraction(1, start + 1) + Fraction(1, N - end + 1)

    def between(self, start: int, end: int, first: arb, last: arb) -> arb:
        """A ball around the sum of f over start + 1..end, from f(start) and f(end).

        f(start + j) is the chord of log f at j, times exp(x), x between the bends times j (m - j) / 2. The mean of that over
        j = 1..m is (m^2 - 1) / 12, and differs by at most the largest ratio of weights where the chord weighs it.
        """
        m = end - start
        if m == 1:
            return last
        ratio = ((last / first).log() / m).exp()
        chord = (last - first) * ratio / (ratio - 1)
        if not chord.is_finite():  # a flat block: 0/0
            chord = (first.min(last) * m).lower().union((first.max(last) * m).upper())
        uneven = (first / last).max(last / first)
        least, most = (_exact(bend * (m * m - 1) / 12) for bend in self.bends(start, end))
        # 1 + x <= exp(x) <= 1 + x (1 + x) for x <= 1
        lower, upper = 1 + least / uneven, 1 + most * uneven * (1 + self.sag(start, end))
        if not self.sag(start, end) < 1:
            raise NoCertificateError("a block of the noise is too wide")
        return (chord * lower).lower().union((chord * upper).upper())

    def mass_by_blocks(self, y: int) -> arb:
        """F(y), in blocks down to where the rest is negligible."""
        block = self.block(TAIL_BLOCK)
        pmf = self.pmf(y)
        total = arb(0)
        while True:
            rest = self.rest(y, pmf)
            if rest is not None and rest.upper() <= (total + pmf).lower() * _REST_OF_BLOCKS:
                return total + pmf + rest
            lower = max(0, y - block)
            lower_pmf = self.pmf(lower)
            total += self.between(lower, y, lower_pmf, pmf)
            y, pmf = lower, lower_pmf

    def slope_of_lower_half(self, low: int, high: int) -> tuple[arb, arb, arb]:
        """A ball around max f(y) / phi(z(y - 1)) over low < y <= high, in blocks; then f(high) and z(high).

        F(high) <= 1/2 has to hold. There log phi(z(y)) is concave in y, as log f is: the first is at least its chord, the second
        at most its chord and the sag, and a difference of chords is largest at an end (docs/certificates.md, "Wide windows").
        """
        block = self.block(SLOPE_BLOCK)
        pmf, mass = self.pmf(low), self.mass_by_blocks(low)
        z = _score(mass)
        least, most = arb(0), arb(0)
        start = low
        while start < high:
            end = min(start + block, high)
            next_pmf = self.pmf(end)
            mass += self.between(start, end, pmf, next_pmf)
            next_z = _score(mass)
            growth = (z * z - next_z * next_z) / (2 * (end - start))  # of log phi(z), a point
            at_start = pmf * ((next_pmf / pmf).log() / (end - start)).exp() / _density(z)
            at_end = next_pmf * growth.exp() / _density(next_z)
            most = most.max((at_start.max(at_end) * self.sag(start, end).exp()).upper())
            least = least.max((next_pmf / _density(_score(mass - next_pmf))).lower())
            start, pmf, z = end, next_pmf, next_z
        if not mass <= 0.5:
            raise NoCertificateError("the lower half of the window is more than half of the noise")
        return least.union(most), pmf, z


class _Scan(NamedTuple):
    """What a scan of the window found."""

    step: arb
    slope: arb
    extreme: arb
    below: list[arb]  # F(low), F(low + 1), ... up to the middle
    above: list[arb]  # 1 - F(high), 1 - F(high - 1), ... down to the middle

    def lost(self, reach: int) -> tuple[arb, arb]:
        """The two sums whose maximum is tau."""

        def tail(side: list[arb], other: list[arb], index: int) -> arb:
            if index < len(side):
                return side[index]
            return 1 - other[len(side) + len(other) - 1 - index]

        below = [tail(self.below, self.above, index) for index in (1, reach + 1)]
        above = [tail(self.above, self.below, index) for index in (1, reach + 1)]
        return below[0] + above[1], below[1] + above[0]


def _scan(left: _Half, right: _Half, low: int, high: int, ends: tuple[int, int]) -> _Scan:
    """c, ct and max |z| on low..high, point by point: each half from its own tail, and the step between the halves."""
    middle = min(max(low, int(left.trials * left.p)), high - 1)
    step, slope = arb(0), arb(0)
    masses: list[list[arb]] = []
    inner: list[arb] = []
    outer: list[arb] = []
    for half, start, stop in ((left, low, middle), (right, ends[0], left.trials - 2 - middle)):
        side: list[arb] = []
        z = density = arb(0)
        for pmf, mass in half.points(start, stop):
            next_z = _score(mass)
            next_density = _density(next_z)
            if side:
                step = step.max(next_z - z)
                slope = slope.max(pmf / next_density.min(density))
            else:
                outer.append(next_z)
            z, density = next_z, next_density
            side.append(mass)
        masses.append(side)
        inner.append(z)
    # the upper half's scores are minus its mirror's; F is 1 - above at middle + 1
    pmf = left.pmf(middle + 1)
    if not (masses[0][-1] + masses[1][-1] + pmf).overlaps(arb(1)):
        raise NoCertificateError("the two halves of the noise do not add up to 1")
    step = step.max(-inner[1] - inner[0])
    slope = slope.max(pmf / _density(inner[0]).min(_density(inner[1])))
    return _Scan(step, slope, abs(outer[0]).max(abs(outer[1])), *masses)


def _slope_by_blocks(left: _Half, right: _Half, low: int, high: int) -> arb:
    """A ball around ct on low..high in blocks: each half from its own tail, and one block about the middle."""
    mean = int(left.trials * left.p)
    block = left.block(SLOPE_BLOCK)
    lower, upper = mean - block, mean + block
    if not low < lower < upper < high:
        raise NoCertificateError("the window does not hold the middle of the noise")
    first, pmf, z = left.slope_of_lower_half(low, lower)
    second, other_pmf, other_z = right.slope_of_lower_half(*_mirrored(left.trials, upper, high))
    # right's f at the mirror of `upper` is f(upper + 1): the block about the middle is lower..upper + 1
    middle = pmf.max(other_pmf) * left.sag(lower, upper + 1).exp() / _density(z).min(_density(other_z))
    least, most = first.lower().max(second.lower()), first.upper().max(second.upper()).max(middle.upper())
    return least.union(most)


# Theorem E in ball arithmetic: how large a Gaussian is above d coordinates whose scores are bent by k (accounting, section 3).

# The lattice of losses, in k; scores beyond are given up; a window of sums, in standard deviations and in k.
BEND_STEP = Fraction(1, 5)
DEEPEST_SCORE = 10
WINDOW_SPREADS, WINDOW_MORE = 10, 90


def bend_factor(k: Fraction, dim: int) -> float:
    """Prove a factor, in thousandths: with nu = factor * k * sqrt(2 dim) Theorem E holds for `dim` coordinates, a power of two.

    Guarantee
    ---------
    Every test of level a under P' has power at most G_nu(a) + RESIDUE under P (docs/accounting.md, Theorem E).
    """
    with ctx.workprec(PRECISION):
        weights, start, lost = _summed_losses(k, dim)
        step = _exact(k * BEND_STEP)
        scale = _exact(k) * arb(2 * dim).sqrt()
        # Tests that reject where the loss is at least so large: their probabilities under P' (levels) and under P (needed).
        level, power = arb(0), lost - _exact(Fraction(repr(RESIDUE)))
        if not power <= 0:
            raise NoCertificateError(f"a bend of {float(k):g} in {dim} coordinates gives up too much")
        ratio, rise = (-step * (start + len(weights) - 1)).exp(), step.exp()
        tests: list[tuple[arb, arb]] = []
        for weight in reversed(weights):
            level, power, ratio = level + weight * ratio, power + weight, ratio * rise
            if not (power <= 0 or power <= level):  # no Gaussian is below its level
                tests.append((level, power))
        guesses = [(-_quantile(level), _quantile(power)) for level, power in tests]
        factor = math.ceil(max(score + other for score, other in guesses) / float(scale.mid()) * 1000 * (1 + 1e-6)) / 1000
        nu = _exact(Fraction(repr(factor))) * scale
        for (level, needed), (guess, _) in zip(tests, guesses, strict=True):
            score = arb(guess) + 1e-9  # at least -Phi^-1(level): then G_nu(level) >= Phi(nu - score)
            if not (_normal_cdf(-score) <= level and _normal_cdf(nu - score) >= needed):
                raise NoCertificateError(f"a bend of {float(k):g} in {dim} coordinates is not proved")
        return factor


def _proved_bend(slope: arb, dim: int) -> tuple[arb, arb]:
    """k and nu of Theorem E as `certificate` looks them up, for a slope; the table's factor is proved anew."""
    found = bend(float((slope * slope / 8).upper()) * (1 + 1e-15), dim)
    length = next((length for length in BEND_LENGTHS if length >= dim), 0)
    if found is None or not bend_factor(Fraction(found[0]), length) * found[0] * math.sqrt(2 * length) <= found[1]:
        raise NoCertificateError(f"a bend of {slope * slope / 8} in {dim} coordinates is not proved")
    return arb(found[0]), arb(found[1])


def _quantile(probability: arb) -> float:
    """About Phi^-1, each half from its own tail."""
    below, above = float(probability.mid()), float((1 - probability).mid())
    return float(ndtri(below) if below < 0.5 else -ndtri(above))


def _summed_losses(k: Fraction, dim: int) -> tuple[list[arb], int, arb]:
    """Weights of the sum of `dim` losses ln dP/dP' on lattice points, the first point, and a probability that was given up.

    Losses are spread with the mean of the ratio dP'/dP kept, or raised; a window is kept of each doubling.
    """
    weights, start, beyond = _one_loss(k)
    lost, times = beyond * dim, 1
    while times < dim:
        times *= 2
        doubled = (arb_poly(weights) * arb_poly(weights)).coeffs()
        half = int((WINDOW_SPREADS * math.sqrt(2 * times) + WINDOW_MORE) / BEND_STEP)
        first, last = max(0, -half - 2 * start), min(len(doubled) - 1, half - 2 * start)
        weights, start = doubled[first : last + 1], 2 * start + first
        weights[0] += sum(doubled[:first], arb(0))  # raised
        lost += sum(doubled[last + 1 :], arb(0)) * (dim // times)
    return weights, start, lost


def _one_loss(k: Fraction) -> tuple[list[arb], int, arb]:
    """The same of one coordinate. A score z has the loss -ln(1 - k) - z^2 (k - k^2/2) where it is above 0, and
    -ln(1 + k) + z^2 (k + k^2/2) below."""
    bend, step = _exact(k), _exact(k * BEND_STEP)
    end = math.ceil(DEEPEST_SCORE**2 / BEND_STEP)

    def masses(index: int) -> tuple[arb, arb]:
        """The probabilities, under P and P', of a loss of at most this many steps."""
        above = -((1 - bend).log() + index * step) / (bend - bend**2 / 2)
        below = ((1 + bend).log() + index * step) / (bend + bend**2 / 2)
        above, below = (square.sqrt() if square > 0 else arb(0) for square in (above, below))  # positive scores from, negative to
        under_p = _normal_cdf(-above) + arb(0.5) - _normal_cdf(-below)
        return under_p, _normal_cdf(-(1 - bend) * above) + arb(0.5) - _normal_cdf(-(1 + bend) * below)

    weights = [arb(0)] * (2 * end + 1)
    before = masses(-end)
    weights[0] = before[0]  # lower losses are raised to the first
    for index in range(-end, end):
        after = masses(index + 1)
        larger, smaller = (-step * index).exp(), (-step * (index + 1)).exp()  # the ratios at the two ends
        mass, other = after[0] - before[0], after[1] - before[1]
        upper = (mass * larger - other) / (larger - smaller)
        weights[index + end] += mass - upper
        weights[index + end + 1] += upper
        before = after
    return weights, -end, 1 - before[0]


VERSION = 1
# What a certificate tells of the plan: all that N, p, S, K and d of Theorem B follow from.
_PARAMETERS = (
    "users",
    "honest_users",
    "dim",
    "rounds",
    "neighbours",
    "levels",
    "noise_bits",
    "noise_probability",
    "norm",
    "diameter",
    "range",
    "blocks",
)
_DIGITS = 20
# The margin of `certify` for the encoder's rounding, as a decimal number.
SHIFT_FACTOR = 1 + Fraction(repr(SHIFT_MARGIN))


@dataclass(frozen=True)
class Enclosure:
    """Two decimal numbers with a real number between them: `lower` was rounded down, `upper` up.

    Parameters
    ----------
    lower, upper : decimal.Decimal
        The ends, in 20 significant digits.

    Examples
    --------
    >>> print(Enclosure(Decimal("0.21"), Decimal("0.22")))
    [0.21, 0.22]
    """

    lower: Decimal
    upper: Decimal

    @classmethod
    def of(cls, number: arb) -> Enclosure:
        """Read the ends of a ball, rounded outward.

        Parameters
        ----------
        number : arb
            A ball.

        Returns
        -------
        Enclosure
            In decimal numbers.

        Raises
        ------
        NoCertificateError
            If the ball is not finite.
        """
        if not number.is_finite():
            raise NoCertificateError(f"a figure could not be enclosed: {number}")
        with ctx.workprec(PRECISION):
            return cls(_decimal(number.lower(), ROUND_FLOOR), _decimal(number.upper(), ROUND_CEILING))

    def rounded(self, digits: int) -> Enclosure:
        """Round the ends outward again.

        Parameters
        ----------
        digits : int
            Significant digits.

        Returns
        -------
        Enclosure
            A wider one that holds this one.
        """
        lower, upper = (Context(prec=digits, rounding=way) for way in (ROUND_FLOOR, ROUND_CEILING))
        return Enclosure(lower.plus(self.lower), upper.plus(self.upper))

    def __str__(self) -> str:
        return f"[{self.lower}, {self.upper}]"


@dataclass(frozen=True, kw_only=True)
class Proof:
    """What ball arithmetic proves of a plan: a certificate that holds for the real numbers, not up to floating-point errors.

    Parameters
    ----------
    plan : SumPlan
        The plan that was proved.
    low, high : int
        The window of Theorem B that the figures hold for.
    shift : fractions.Fraction
        S of Theorem B with the encoder's margin of 1e-9.
    step : Enclosure or None
        c; None if the window was bounded in blocks, and mu is ct S.
    slope : Enclosure
        ct.
    bulge : Enclosure or None
        kappa; None if the window was bounded in blocks.
    tau, mu : Enclosure
        tau and mu of one round.
    delta : Enclosure
        deltaG(epsilon; sqrt(rounds) mu) + rounds (dim tau + residue): what is lost at the plan's epsilon over all its rounds.
    bend : Enclosure or None, default None
        nu of Theorem E; None if mu is by Theorem B, and there is no residue.

    Guarantee
    ---------
    One user's loss over all rounds of the plan is at most (epsilon, `delta.upper`), by accounting Theorem B (or E) and section 4.

    Examples
    --------
    >>> from croupier import plan_sum
    >>> proof = prove(plan_sum(epsilon=1.0, delta=1e-6, users=100, dim=2))
    >>> proof.delta.lower <= proof.delta.upper <= Decimal("1e-6")
    True
    """

    plan: SumPlan
    low: int
    high: int
    shift: Fraction
    step: Enclosure | None
    slope: Enclosure
    bulge: Enclosure | None
    tau: Enclosure
    mu: Enclosure
    delta: Enclosure
    bend: Enclosure | None = None

    def enclosures(self) -> dict[str, Enclosure]:
        """Give the enclosures there are.

        Returns
        -------
        dict of str to Enclosure
            By name: step, slope, bulge, bend, tau, mu, delta.
        """
        figures = {name: getattr(self, name) for name in ("step", "slope", "bulge", "bend", "tau", "mu", "delta")}
        return {name: figure for name, figure in figures.items() if figure is not None}

    def to_dict(self) -> dict[str, Any]:
        """Give the certificate: what was proved of which noise (docs/certificates.md).

        Returns
        -------
        dict
            In plain JSON types, numbers as exact or outward rounded decimals.
        """
        plan = self.plan
        return {
            "certificate": f"croupier {THEOREMS['B' if self.bend is None else 'E']}",
            "version": VERSION,
            "plan": {name: getattr(plan, name) for name in _PARAMETERS},
            "trials": plan.noise_bits * plan.honest_users,
            "probability": str(Fraction(plan.noise_probability)),
            "shift": str(self.shift),
            "reach": plan.encoded_reach(plan.levels),
            "dim": plan.coordinates,
            "rounds": plan.rounds,
            "epsilon": str(Fraction(plan.epsilon)),
            "low": self.low,
            "high": self.high,
            "bounds": {name: [str(figure.lower), str(figure.upper)] for name, figure in self.enclosures().items()},
        }

    def to_json(self) -> str:
        """Write the certificate as JSON.

        Returns
        -------
        str
            Indented, for people to read, too.
        """
        return json.dumps(self.to_dict(), indent=2)

    def __str__(self) -> str:
        lines = [f"{name} in {figure}" for name, figure in self.enclosures().items()]
        return f"window {self.low}..{self.high}: " + ", ".join(lines)


def prove(plan: SumPlan) -> Proof:
    """Prove a plan in ball arithmetic: see `SumPlan.prove`.

    Parameters
    ----------
    plan : SumPlan
        A plan with the tight calibration.

    Returns
    -------
    Proof
        Its enclosures.

    Raises
    ------
    ArgumentError
        For the paper's calibrations, which do not rest on Theorem B.
    NoCertificateError
        If a figure of the plan is not above its enclosure, or cannot be enclosed.

    Examples
    --------
    >>> from croupier import plan_sum
    >>> plan = plan_sum(epsilon=1.0, delta=1e-6, users=100, dim=2)
    >>> float(prove(plan).tau.upper) * plan.dim <= plan.slack
    True
    """
    if plan.calibration != "tight":
        raise ArgumentError(
            "calibration",
            plan.calibration,
            "'tight' for a proof in ball arithmetic",
            "The paper's calibrations do not rest on Theorem B; their guarantee is a formula of the paper.",
        )
    fast = certificate_of(plan, plan.levels, plan.noise_bits, plan.noise_probability)
    shift = _encoded_shift(plan) * SHIFT_FACTOR
    constants = ball_constants(
        plan.noise_bits * plan.honest_users,
        plan.noise_probability,
        shift=shift,
        reach=plan.encoded_reach(plan.levels),
        dim=plan.coordinates,
        low=fast.low,
        high=fast.high,
        theorem=fast.theorem,
    )
    with ctx.workprec(PRECISION):
        whole_mu = constants.mu * arb(plan.rounds).sqrt()
        slack = (
            constants.tau * plan.coordinates + (0 if constants.bend is None else _exact(Fraction(repr(RESIDUE))))
        ) * plan.rounds
        delta = gaussian_delta_ball(Fraction(plan.epsilon), whole_mu) + slack
        _below_claims(plan, fast, constants, {"mu": whole_mu, "slack": slack, "certified_delta": delta})
        step, bulge, nu = (
            None if constant is None else Enclosure.of(constant) for constant in (constants.step, constants.bulge, constants.bend)
        )
        return Proof(
            plan=plan,
            low=fast.low,
            high=fast.high,
            shift=shift,
            step=step,
            slope=Enclosure.of(constants.slope),
            bulge=bulge,
            tau=Enclosure.of(constants.tau),
            mu=Enclosure.of(constants.mu),
            delta=Enclosure.of(delta),
            bend=nu,
        )


def _encoded_shift(plan: SumPlan) -> Fraction:
    """`SumPlan.encoded_shift` in exact numbers, rounded up where rho, of blocks, is not rational."""
    distance = Fraction(plan.sensitivity) / Fraction(plan.norm)
    if plan.blocks > 1:  # five roundings
        distance *= Fraction(plan.block_norm) * (1 + Fraction(1, 2**50))
    return plan.levels * distance / (2 * Fraction(1.0 if plan.range is None else plan.range))


def _below_claims(plan: SumPlan, fast: Certificate, constants: Constants, whole: dict[str, arb]) -> None:
    """Refuse where a figure that the plan promises, or its certificate rests on, is not proved."""
    claims = [(name, getattr(plan, name), figure) for name, figure in whole.items()]
    claims += [("mu of one round", fast.mu, constants.mu), ("tau", fast.tau, constants.tau)]
    for name, claimed, figure in claims:
        if not figure <= arb(claimed):
            raise NoCertificateError(
                f"{name} = {claimed} of this plan is not proved: ball arithmetic gives {Enclosure.of(figure)} by "
                f"{THEOREMS[fast.theorem]}. Do not use the plan; ask for the output of plan_sum."
            )


def _decimal(end: arb, rounding: str) -> Decimal:
    """An exact binary number in _DIGITS decimal digits."""
    mantissa, exponent = (int(part) for part in end.man_exp())
    top, bottom = (mantissa << exponent, 1) if exponent >= 0 else (mantissa, 1 << -exponent)
    context = Context(prec=_DIGITS, rounding=rounding, Emin=-(10**6), Emax=10**6)
    return context.divide(Decimal(top), Decimal(bottom))
