"""Binomial noise is dominated by a Gaussian: the certificate of accounting Theorem B, or E (docs/accounting.md).

The analyst sees, per coordinate, the sum of the users' integers plus Bin(trials, p). For neighbouring populations the real
encodings differ by s with ||s||_2 <= shift and |s_j| <= reach. The certificate is a pair (mu, tau) such that one round of
`dim` coordinates satisfies

    delta(eps) <= deltaG(eps; mu) + dim * tau      for every eps >= 0.

Where a caller can spare it, Theorem E gives a smaller mu for many coordinates and few noise bits, and adds `residue` to that. It is
computed in floating point from quantities whose own errors are measured in the tests against 50-digit and ball arithmetic, and
inflated by a margin well above them (`SumPlan.prove` needs no margin).
Where it cannot be computed there is none: `NoCertificateError`, never a pass.
"""

from __future__ import annotations

import math
import warnings
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betaincc, ndtri_exp
from scipy.special._ufuncs import _binom_pmf, _binom_ppf

from ..validation import real, whole

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Inflation of shift (covers the encoder's rounding to fixed point, protocol.encoding) and of slopes (covers scipy's errors).
SHIFT_MARGIN = 1e-9
SLOPE_MARGIN = 1e-8
# Beyond these the errors of scipy's binomial were not measured; smaller tails are floats with fewer digits, and lose half of them.
MAX_TRIALS = 10**12
LEAST_TAIL = 1e-307
# Below this scipy warns of quantiles that it does not find exactly; what the window loses is computed whatever they are.
_TINY_TAIL = 1e-280
# Scores are right to 2e-12. Steps below this are no longer right to a fourth of SLOPE_MARGIN as differences of scores.
FINE_STEP = 1e-3
# Windows up to this many points are scanned one by one, wider ones in blocks whose bound is loose by about this factor.
SCAN_POINTS = 30_000
BLOCK_LOOSENESS = 2e-3
_CHUNK = 1 << 16
# Theorem E: what it gives up beside the windows, and the part of Theorem B's mu that its own has to be within to be worth it.
RESIDUE = 1e-12
WORTH_IT = 0.97
# nu of Theorem E over k sqrt(2 d), for k from 2^(octave - 1) to 2^octave with five binary digits, proved by tools/bends.py.
FIRST_OCTAVE, LAST_OCTAVE = -16, -6
_BENDS = {
    512: (1.023, 1.024, 1.026, 1.027, 1.028, 1.03, 1.031, 1.032, 1.033, 1.034, 1.036),
    2048: (1.007, 1.007, 1.008, 1.008, 1.008, 1.009, 1.009, 1.009, 1.01, 1.01, 1.011),
    4096: (1.005, 1.005, 1.005, 1.005, 1.005, 1.005, 1.006, 1.006, 1.006, 1.006, 1.006),
    8192: (1.003, 1.003, 1.003, 1.003, 1.004, 1.004, 1.004, 1.004, 1.004, 1.004, 1.004),
}
BEND_LENGTHS = tuple(_BENDS)


class NoCertificateError(ArithmeticError):
    """Theorem B gives no bound for these parameters: nothing may be released under them."""


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """One round's certified figures: the constants of Theorem B, or of Theorem E, on the window low..high.

    Parameters
    ----------
    mu : float
        The round is as telling as N(mu, 1) against N(0, 1), at most, except for `tau` per coordinate.
    tau : float
        Probability per coordinate of leaving the window; dim * tau adds to delta.
    low, high : int
        The window, in levels.
    step : float
        c: largest increment of Phi^-1(F) over one integer; nan where the window was bounded in blocks.
    slope : float
        ct: largest slope of Phi^-1(F) between integers.
    bulge : float
        kappa: largest excess of Phi^-1(F) over `step` times the distance; nan where the window was bounded in blocks.
    bend : float, default 0.0
        nu of Theorem E; 0 where mu is by Theorem B.
    residue : float, default 0.0
        What Theorem E gives up beside the windows: adds to delta once; 0 where mu is by Theorem B.

    Guarantee
    ---------
    One round of dim coordinates has delta(eps) <= deltaG(eps; mu) + dim * tau + residue for every eps >= 0
    (docs/accounting.md#3-theorem-b-the-whole-round-random-rounding-included).

    Examples
    --------
    >>> round(certify(10_000, 0.5, shift=4.0, reach=4, dim=10, tail=1e-9).mu, 3)
    0.081
    """

    mu: float
    tau: float
    low: int
    high: int
    step: float
    slope: float
    bulge: float
    bend: float = 0.0
    residue: float = 0.0

    @property
    def theorem(self) -> str:
        """The theorem of docs/accounting.md that mu is by: "B" or "E"."""
        return "E" if self.residue else "B"


@lru_cache(maxsize=1024)
def certify(trials: int, probability: float, *, shift: float, reach: int, dim: int, tail: float, spare: float = 0.0) -> Certificate:
    """Certify Bin(trials, probability) by Theorem B or E: the smallest mu we can prove with tau <= tail.

    Parameters
    ----------
    trials : int
        Noise bits of all honest users in a coordinate, at least 1. Beyond 10^12 there is no certificate.
    probability : float
        Of a noise bit, above 0 and below 1.
    shift : float
        S: l2 distance of neighbouring encodings, above 0, in levels.
    reach : int
        K: their distance in one coordinate, rounded up, at least 1.
    dim : int
        Coordinates, at least 1.
    tail : float
        Probability, per coordinate, of the event that is given up, above 0 and below 1; `dim * tau` adds to delta.
    spare : float, default 0.0
        Probability that may be given up besides. Where it is at least 1e-12, `residue` may be that, and mu may be by Theorem E.

    Returns
    -------
    Certificate
        mu and tau, rounded up, and the constants that they come from.

    Raises
    ------
    ArgumentError
        If an argument is out of range.
    NoCertificateError
        If the noise is too narrow or its tails are beyond floating point: nothing may be released then.

    Requires
    --------
    The counts of a coordinate are the users' encodings, rounded at random, plus noise that has the law Bin(trials, probability), is
    independent of records and over coordinates, and may have anything independent added to it. Real encodings of neighbours differ
    by at most shift (1 + 1e-9) in l2 norm and by at most `reach` in every coordinate (docs/accounting.md#1-setting).

    Ensures
    -------
    One round has delta(eps) <= deltaG(eps; mu) + dim * tau + residue for every eps >= 0, tau <= tail and residue <= spare
    (docs/accounting.md#3-theorem-b-the-whole-round-random-rounding-included). mu and tau are inflated by margins that are well
    above the measured errors of floating point (docs/accounting.md#6-what-the-code-does-about-floating-point).

    Examples
    --------
    >>> certificate = certify(10_000, 0.5, shift=4.0, reach=4, dim=10, tail=1e-9)
    >>> certificate.tau <= 1e-9, 4 / 50 < certificate.mu < 1.05 * 4 / 50  # the noise has a standard deviation of 50
    (True, True)
    """
    trials = whole("trials", trials, at_least=1, remedy="Count the noise bits of all honest users together.")
    real("probability", probability, above=0, below=1, remedy="The noise bits need to be random.")
    real("shift", shift, above=0, remedy="State the l2 distance of neighbouring encodings.")
    whole("reach", reach, at_least=1, remedy="State the largest distance in one coordinate, rounded up.")
    whole("dim", dim, at_least=1, remedy="Count the coordinates.")
    real("tail", tail, above=0, below=1, remedy="Choose a small part of delta.")
    low, high, tau = _window(trials, probability, reach, tail)
    if high - low < SCAN_POINTS:
        step, slope, extreme = _scan(trials, probability, low, high)
        return _certificate(low, high, tau, step, slope, extreme, shift, dim, spare)
    slope = _slope_by_blocks(trials, probability, low, high)
    mu = slope * (1 + SLOPE_MARGIN) * shift * (1 + SHIFT_MARGIN)
    return Certificate(mu=_proved(mu), tau=tau, low=low, high=high, step=math.nan, slope=slope, bulge=math.nan)


def presume(trials: int, probability: float, *, shift: float, reach: int, dim: int, tail: float, spare: float = 0.0) -> float:
    """Guess the mu that `certify` would find if its maxima stand at the window's ends, as they did wherever we looked.

    Cheap guidance for a search, not a proof. What is released is certified in full.
    """
    ends = _ends(trials, probability, reach, tail)
    if ends is None:
        return math.inf
    try:
        mu = _certificate(*ends, shift, dim, spare).mu
    except NoCertificateError:
        return math.inf
    return mu if ends.high - ends.low < SCAN_POINTS else mu * (1 + BLOCK_LOOSENESS)


class _Ends(NamedTuple):
    """A window, and the maxima of Theorem B as its ends alone tell them."""

    low: int
    high: int
    tau: float
    step: float
    slope: float
    extreme: float


@lru_cache(maxsize=1 << 14)
def _ends(trials: int, probability: float, reach: int, tail: float) -> _Ends | None:
    """What `presume` needs that no shift changes; searches ask for a window with many shifts. None without a certificate."""
    try:
        low, high, tau = _window(trials, probability, reach, tail)
        steps, log_slopes, z = _differences(np.array([low, low + 1, high - 1, high]), trials, probability)
    except NoCertificateError:
        return None
    step, slope = max(steps[0], steps[2]), math.exp(max(log_slopes[0], log_slopes[2]))
    return _Ends(low, high, tau, step, max(slope, step), max(-z[0], z[-1]))


def _certificate(
    low: int, high: int, tau: float, step: float, slope: float, extreme: float, shift: float, dim: int, spare: float
) -> Certificate:
    """mu = min(ct S, c S + kappa sqrt d), or c S + 2 c k sqrt d + nu by Theorem E, with every constant inflated."""
    c, ct, S = step * (1 + SLOPE_MARGIN), slope * (1 + SLOPE_MARGIN), shift * (1 + SHIFT_MARGIN)
    # Lemma C: between integers zt'' = zt zt'^2, so zt strays from its chord by at most max |z| ct^2 / 8.
    bulge = min(c * max(0.0, 1 - step / slope) + c * SLOPE_MARGIN, ct**2 * max(extreme, 2 * c) / 8)
    mu, nu, residue = min(ct * S, c * S + bulge * math.sqrt(dim)), 0.0, 0.0
    bent = bend(ct**2 / 8, dim) if spare >= RESIDUE else None
    if bent is not None:
        by_bend = c * S + 2 * c * bent[0] * math.sqrt(dim) + bent[1]
        if by_bend <= WORTH_IT * mu:
            mu, nu, residue = by_bend, bent[1], RESIDUE
    return Certificate(mu=_proved(mu), tau=tau, low=low, high=high, step=step, slope=slope, bulge=bulge, bend=nu, residue=residue)


def bend(least: float, dim: int) -> tuple[float, float] | None:
    """A k of at least `least` and its nu of Theorem E for at least `dim` coordinates; None if the table has none."""
    digits, octave = math.frexp(max(least, 2.0 ** (FIRST_OCTAVE - 1)))  # 1/2 <= digits < 1
    k, octave = math.frexp(math.ldexp(math.ceil(digits * 32) / 32, octave))
    length = next((length for length in BEND_LENGTHS if length >= dim), None)
    if length is None or not octave <= LAST_OCTAVE:
        return None
    k = math.ldexp(k, octave)
    return k, _BENDS[length][octave - FIRST_OCTAVE] * k * math.sqrt(2 * length) * (1 + 1e-12)


def _proved(mu: float) -> float:
    if not (math.isfinite(mu) and mu > 0):
        raise NoCertificateError(f"the certificate came out as mu = {mu}")
    return mu


def _window(trials: int, probability: float, reach: int, tail: float) -> tuple[int, int, float]:
    """The window low..high that loses at most `tail`, and what it loses exactly (tau of Theorem B)."""
    if trials > MAX_TRIALS:
        raise NoCertificateError(f"{trials} noise bits are more than the {MAX_TRIALS} that the certificate covers")
    # The upper quantile is the lower one of trials - eta: scipy's isf goes through 1 - tail and loses tails below 1e-16.
    with warnings.catch_warnings(action="ignore") if tail < _TINY_TAIL else nullcontext():
        ends = _binom_ppf(tail / 2, float(trials), np.array([probability, 1 - probability]))
    if not np.all(np.isfinite(ends)):
        raise NoCertificateError("the quantiles of the noise could not be computed")
    low, high = max(0, int(ends[0]) - reach - 2), min(trials - 1, trials - int(ends[1]) + reach + 1)
    if high - low <= reach:
        raise NoCertificateError(f"Bin({trials}, {probability:g}) is too narrow to hide a difference of {reach}")
    below = _cdf(np.array([low + 1, low + reach + 1]), trials, probability)
    above = _sf(np.array([high - reach - 1, high - 1]), trials, probability)
    tau = float(np.max(below + above)) * (1 + SLOPE_MARGIN)
    if not tau <= tail:
        raise NoCertificateError(
            f"Bin({trials}, {probability:g}) leaves the window that hides a difference of {reach} with probability "
            f"{tau:.3g}, more than the {tail:.3g} allowed"
        )
    return low, high, tau


def _scores(y: Integers, trials: int, probability: float) -> Floats:
    """z = Phi^-1(F(y)), each value from its own tail so that no digit is lost."""
    upper_half = y >= trials * probability
    tails = np.empty(y.size)
    for part, tail in ((~upper_half, _cdf), (upper_half, _sf)):
        if part.any():
            tails[part] = tail(y[part], trials, probability)
    if not np.all((tails >= LEAST_TAIL) & (tails < 1)):
        raise NoCertificateError("a tail of the noise is beyond floating point")
    z: Floats = ndtri_exp(np.log(tails))
    return np.where(upper_half, -z, z)


# These, _binom_ppf and _binom_pmf are what scipy.stats.binom calls, which checks arguments for half a millisecond.
def _cdf(y: Integers, trials: int, probability: float) -> Floats:
    return np.where(y < trials, betaincc(y + 1.0, np.maximum(trials - y, 1.0), probability), 1.0)


def _sf(y: Integers, trials: int, probability: float) -> Floats:
    return np.where(y < trials, betainc(y + 1.0, np.maximum(trials - y, 1.0), probability), 0.0)


def _log_density(z: Floats) -> Floats:
    return -z * z / 2 - math.log(2 * math.pi) / 2


def _log_pmf(y: Integers, trials: int, probability: float) -> Floats:
    # log(pmf), not logpmf: the latter takes differences of log-gammas and is wrong by 4e-8 at 1e7 trials, 4e-4 at 1e11.
    with np.errstate(divide="ignore"):
        logs: Floats = np.log(_binom_pmf(y.astype(float), float(trials), probability))
    return logs


def _differences(y: Integers, trials: int, probability: float) -> tuple[Floats, Floats, Floats]:
    """The steps of z between neighbours in y, the logarithms of the slopes there, and z."""
    z = _scores(y, trials, probability)
    log_density = _log_density(z)
    log_pmf = _log_pmf(y[1:], trials, probability)
    log_slopes = log_pmf - np.minimum(log_density[1:], log_density[:-1])
    steps = _steps(z, log_pmf)
    if not (np.all(np.isfinite(log_slopes)) and np.all(steps > 0)):
        raise NoCertificateError("the slopes of the noise could not be computed")
    return steps, log_slopes, z


def _steps(z: Floats, log_pmf: Floats) -> Floats:
    """z(y) - z(y - 1), where it is small from f(y), the integral of phi over the step, whose digits are not lost.

    With m the step's middle and h its length, f = phi(m) * integral of cosh(m t) exp(-t^2 / 2) over |t| <= h / 2, and that is
    h sinh(x) / x * (1 - h^2 / 24), x = m h / 2, except for a part of h^2 x^2 / 50 + h^4 / 600: below 1e-11 where it is used.
    """
    steps = np.diff(z)
    fine = (steps < FINE_STEP) & (steps > 0)
    if fine.any():
        length, middle = steps[fine], (z[1:] + z[:-1])[fine] / 2
        x = middle * length / 2
        widened = np.where(np.abs(x) < 1e-3, 1 + x * x / 6, np.sinh(x) / np.where(x == 0, 1, x))
        steps[fine] = np.exp(log_pmf[fine] - _log_density(middle)) * (1 + length**2 / 24) / widened
    return steps


def _scan(trials: int, probability: float, low: int, high: int) -> tuple[float, float, float]:
    """c, ct and max |z| over low..high, point by point, in chunks."""
    step, slope, extreme = 0.0, 0.0, 0.0
    for start in range(low, high, _CHUNK):
        steps, log_slopes, z = _differences(np.arange(start, min(start + _CHUNK, high) + 1), trials, probability)
        step, extreme = max(step, float(np.max(steps))), max(extreme, float(np.max(np.abs(z))))
        slope = max(slope, math.exp(float(np.max(log_slopes))))
    return step, max(slope, step), extreme


def _slope_by_blocks(trials: int, probability: float, low: int, high: int) -> float:
    """An upper bound of ct at a cost that does not grow with the number of trials.

    On a block without the mode strictly inside, f is at most its value at the end nearer the mode and phi(z) at least its
    value at the farther end. Blocks shrink with |z|, so that each is loose by about the same factor.
    """
    mode = math.floor((trials + 1) * probability)
    std = math.sqrt(trials * probability * (1 - probability))
    reach = max(high - mode, mode - low, 1) / std
    if reach > 60:  # exp(-60^2 / 2) is no float; and the blocks would be too many to hold
        raise NoCertificateError("a tail of the noise is beyond floating point")
    count = math.ceil(reach**2 / (2 * BLOCK_LOOSENESS)) + 1
    offsets = reach * np.sqrt(np.linspace(0, 1, count)) * std  # density of ends grows with |z|
    ends = np.concatenate([mode - offsets, mode + offsets, [low, high, mode]])
    y = np.unique(np.clip(np.round(ends), low, high).astype(np.int64))
    log_pmf = _log_pmf(y, trials, probability)
    log_density = _log_density(_scores(y, trials, probability))
    bounds = np.maximum(log_pmf[1:], log_pmf[:-1]) - np.minimum(log_density[1:], log_density[:-1])
    if not np.all(np.isfinite(bounds)):
        raise NoCertificateError("the slopes of the noise could not be computed")
    return math.exp(float(np.max(bounds)))
