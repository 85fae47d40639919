"""The tight calibration: the fewest bits, or the least noise, that Theorem B certifies.

The noise that privacy needs is proportional to the levels g, so in units of the data it is the same for every g, and
rounding adds less the more levels there are: noise falls with g and bits grow with it. The fewest bits are therefore those of
the fewest levels whose noise is within the limit; the least noise within given bits is that of the most levels which leave
enough bits for noise. A probability below 1/2 makes up for b being a whole number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from ..validation import ArgumentError
from .certificate import MAX_TRIALS, Certificate, NoCertificateError, certify, presume
from .gaussian import gaussian_mu
from .guarantee import Guarantee
from .plan import SumRequest

THEOREM = "accounting Theorem B"
# Part of delta given to the event that a coordinate leaves its window; more costs mu, less costs width.
TAIL_SHARE = 0.01
# delta is aimed at with this much to spare, so that rounding up the certified delta never exceeds it.
SPARE = 1e-6
MAX_LEVELS = 1 << 31
# Noise probabilities have at most ten significant binary digits: finer ones gain nothing, and each digit costs the sampler a draw.
PROBABILITIES = sorted({k / 2**r for r in range(10, 44) for k in range(512, 1025) if k / 2**r <= 0.5})

Parameters = tuple[int, int, float]


def guarantee(request: SumRequest, levels: int, noise_bits: int, probability: float) -> Guarantee:
    """State what Theorem B proves of these parameters for a user who takes part in all rounds (accounting, section 4)."""
    certificate = certificate_of(request, levels, noise_bits, probability)
    one_round = Guarantee(
        mu=certificate.mu,
        slack=request.dim * certificate.tau,
        neighbours=request.neighbours,
        honest=request.honest,
        theorem=THEOREM if request.diameter is None else f"{THEOREM}, by diameter",
    )
    return one_round.repeated(request.rounds)


def certificate_of(request: SumRequest, levels: int, noise_bits: int, probability: float) -> Certificate:
    """Certify one round with these parameters."""
    return certify(
        noise_bits * request.honest_users,
        probability,
        shift=request.encoded_shift(levels),
        reach=request.encoded_reach(levels),
        dim=request.dim,
        tail=_tail(request),
    )


@lru_cache(maxsize=256)
def parameters(request: SumRequest) -> Parameters:
    """Search for the best plan whose full certificate meets the request."""
    target = gaussian_mu(request.epsilon, request.delta * (1 - TAIL_SHARE - SPARE)) / math.sqrt(request.rounds)
    search = _fewest_bits if request.max_bits is None else _least_noise
    # The search trusts the window's ends; should a full scan say otherwise, search again with a stricter target.
    for strictness in (1.0, 0.998, 0.995, 0.99, 0.95, 0.9):
        candidate = search(_Hidden(request, target * strictness))
        try:
            if guarantee(request, *candidate).delta(request.epsilon) <= request.delta:
                return candidate
        except NoCertificateError:
            continue
    raise NoCertificateError(f"no certificate for {request}: nothing can be released under it")


@dataclass(frozen=True)
class _Hidden:
    """Which (levels, noise bits, probability) hide a user well enough, as far as the window's ends tell."""

    request: SumRequest
    target: float

    def __call__(self, levels: int, noise_bits: int, probability: float) -> bool:
        mu = presume(
            noise_bits * self.request.honest_users,
            probability,
            shift=self.request.encoded_shift(levels),
            reach=self.request.encoded_reach(levels),
            dim=self.request.dim,
            tail=_tail(self.request),
        )
        return mu <= self.target

    def fewest_noise_bits(self, levels: int) -> int | None:
        """The fewest noise bits that hide `levels` levels, at p = 1/2."""
        return _first(lambda b: self(levels, b, 0.5), MAX_TRIALS // self.request.honest_users)

    def smallest_probability(self, levels: int, noise_bits: int) -> float:
        """The smallest p that hides `levels` levels, given that 1/2 does."""

        def hides(index: int) -> bool:
            return self(levels, noise_bits, PROBABILITIES[index])

        last = len(PROBABILITIES) - 1
        octave = last - 512  # p = 1/4, which hides only where one noise bit is many too many
        smallest = _bisect(hides, -1, octave) if hides(octave) else _bisect(hides, octave, last)
        return float(PROBABILITIES[smallest])


def _fewest_bits(hidden: _Hidden) -> Parameters:
    """The fewest levels, and the fewest noise bits for them, whose noise is within the limit."""
    request = hidden.request
    limit = request.max_inflation * request.central_noise_std

    def quiet(levels: int, noise_bits: int, probability: float) -> bool:
        # The honest users' noise is what the guarantee counts on; no plan escapes what the others add to it.
        return request.noise_std_with(levels, noise_bits, probability, request.honest_users) <= limit

    def within(levels: int) -> bool:
        noise_bits = hidden.fewest_noise_bits(levels)
        if noise_bits is None:
            return False
        if quiet(levels, noise_bits, 0.5):  # the noisiest, and known to hide
            return True
        # some p hides and is quiet if and only if the largest quiet one hides
        loud = _bisect(lambda index: not quiet(levels, noise_bits, PROBABILITIES[index]), -1, len(PROBABILITIES) - 1)
        return loud > 0 and hidden(levels, noise_bits, PROBABILITIES[loud - 1])

    levels = _first(within, MAX_LEVELS)
    if levels is None:
        raise ArgumentError(
            "max_inflation",
            request.max_inflation,
            f"within reach of a certified plan (at most {MAX_LEVELS} levels and {MAX_TRIALS} noise bits of all users together)",
            "Allow more noise; or, if epsilon or delta is very small, enlarge it; or, if epsilon is in the hundreds, lessen it, "
            "since so little noise has tails beyond floating point.",
        )
    noise_bits = hidden.fewest_noise_bits(levels) or 1
    smallest = hidden.smallest_probability(levels, noise_bits)
    # Of the probabilities that add next to no noise beyond the least, the one with the fewest digits: it is the quickest to sample.
    enough = min(limit, 1.002 * request.noise_std_with(levels, noise_bits, smallest, request.honest_users))
    rounded_up = (math.ceil(smallest * 2**digits) / 2**digits for digits in range(1, 54))
    probability = next(
        p for p in rounded_up if p <= 0.5 and request.noise_std_with(levels, noise_bits, p, request.honest_users) <= enough
    )
    return levels, noise_bits, probability


def _least_noise(hidden: _Hidden) -> Parameters:
    """The most levels that leave enough noise bits, then the noise bits and the p that add the least noise."""
    bits = hidden.request.max_bits or 2
    # fewer levels would leave more noise bits than can be certified
    fewest = max(1, bits - MAX_TRIALS // hidden.request.honest_users)
    if bits <= fewest or not hidden(fewest, bits - fewest, 0.5):
        noise_bits = hidden.fewest_noise_bits(1)
        raise ArgumentError(
            "max_bits",
            bits,
            f"at least {1 + noise_bits} for this guarantee" if noise_bits else "larger, or the guarantee weaker",
            "Allow more bits per coordinate, or ask for a larger epsilon or delta.",
        )
    levels = _bisect(lambda g: not hidden(g, bits - g, 0.5), fewest, bits) - 1
    # Skewed noise is dearer, so all bits left at a small p may be worse than a few of them at a p near 1/2.
    least = hidden.fewest_noise_bits(levels) or bits - levels
    choices: list[Parameters] = [
        (levels, b, hidden.smallest_probability(levels, b)) for b in range(least, min(least + 3, bits - levels + 1))
    ]

    def noise(choice: Parameters) -> float:
        return hidden.request.noise_std_with(*choice, hidden.request.users)

    return min(choices, key=noise)


def _first(good: Callable[[int], bool], limit: int) -> int | None:
    """The smallest good whole number from 1 to `limit`, if there is one; goodness does not end."""
    bad, tried = 0, 1
    while not good(tried):
        if tried >= limit:
            return None
        bad, tried = tried, min(2 * tried, limit)
    return _bisect(good, bad, tried)


def _bisect(good: Callable[[int], bool], bad: int, known: int) -> int:
    """The smallest good whole number in (bad, known], where `known` is good and goodness does not end."""
    while known - bad > 1:
        middle = (bad + known) // 2
        bad, known = (bad, middle) if good(middle) else (middle, known)
    return known


def _tail(request: SumRequest) -> float:
    """Probability per coordinate and round of leaving the window, so that all of them take TAIL_SHARE of delta."""
    return TAIL_SHARE * request.delta / (request.dim * request.rounds)
