"""The tight calibration: the fewest bits, or the least noise, that Theorem B certifies.

The noise that privacy needs is proportional to the levels g, so in units of the data it is the same for every g, and
rounding adds less the more levels there are: noise falls with g and bits grow with it. The fewest bits are therefore those of
the fewest levels whose noise is within the limit; the least noise within given bits is that of the most levels which leave
enough bits for noise. A probability below 1/2 makes up for b being a whole number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from ..validation import ArgumentError
from ._statements import exact
from .certificate import MAX_TRIALS, Certificate, NoCertificateError, certify, presume
from .gaussian import gaussian_mu
from .guarantee import Guarantee
from .plan import MAX_RANGE, SumRequest, padded_length

THEOREM = "accounting Theorem B"
THEOREMS = {"B": THEOREM, "E": "accounting Theorem E"}
# Part of delta given to the event that a coordinate leaves its window; more costs mu, less costs width.
TAIL_SHARE = 0.01
# delta is aimed at with this much to spare, so that rounding up the certified delta never exceeds it.
SPARE = 1e-6
MAX_LEVELS = 1 << 31
# Noise probabilities have at most ten significant binary digits: finer ones gain nothing, and each digit costs the sampler a draw.
PROBABILITIES = sorted({k / 2**r for r in range(10, 44) for k in range(512, 1025) if k / 2**r <= 0.5})

Parameters = tuple[int, int, float]


def guarantee(request: SumRequest, levels: int, noise_bits: int, probability: float) -> Guarantee:
    """State what Theorem B, or E, proves of these parameters for a user who takes part in all rounds (accounting, section 4)."""
    certificate = certificate_of(request, levels, noise_bits, probability)
    theorem = THEOREMS[certificate.theorem]
    one_round = Guarantee(
        mu=certificate.mu,
        slack=request.coordinates * certificate.tau + certificate.residue,
        neighbours=request.neighbours,
        honest=request.honest,
        theorem=theorem if request.diameter is None else f"{theorem}, by diameter",
    )
    return one_round.repeated(request.rounds)


def certificate_of(request: SumRequest, levels: int, noise_bits: int, probability: float) -> Certificate:
    """Certify one round with these parameters."""
    return certify(
        noise_bits * request.honest_users,
        probability,
        shift=request.encoded_shift(levels),
        reach=request.encoded_reach(levels),
        dim=request.coordinates,
        tail=_tail(request),
        spare=_spare(request),
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
    raise no_certificate(request, f"{request.rounds:,} round{'' if request.rounds == 1 else 's'}", "Choose a smaller epsilon")


def no_certificate(request: SumRequest, rounds: str, remedy: str) -> NoCertificateError:
    """The refusal of a request that no plan was certified for."""
    return NoCertificateError(
        f"epsilon = {exact(request.epsilon)} at delta = {exact(request.delta)} cannot be certified for {request.users:,} users, "
        f"{request.dim:,} coordinates and {rounds}: so few noise bits have no proof. {remedy}, or a larger "
        "delta; or ask more users. Nothing was asked or spent."
    )


# Beyond these it is they that no plan can be certified for, and not the noise that is allowed.
_LARGE_EPSILON, _SMALL_DELTA = 100.0, 1e-100


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
            dim=self.request.coordinates,
            tail=_tail(self.request),
            spare=_spare(self.request),
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

    def quiet_probability(levels: int) -> float | None:
        """A p that hides `levels` levels with the fewest noise bits and is quiet, if there is one."""
        noise_bits = hidden.fewest_noise_bits(levels)
        if noise_bits is None:
            return None
        if quiet(levels, noise_bits, 0.5):  # the noisiest, and known to hide
            return 0.5
        # some p hides and is quiet if and only if the largest quiet one hides
        loud = _bisect(lambda index: not quiet(levels, noise_bits, PROBABILITIES[index]), -1, len(PROBABILITIES) - 1)
        return PROBABILITIES[loud - 1] if loud > 0 and hidden(levels, noise_bits, PROBABILITIES[loud - 1]) else None

    levels = _first(lambda levels: quiet_probability(levels) is not None, MAX_LEVELS)
    if levels is None:
        reach = f"within reach of a certified plan (at most {MAX_LEVELS} levels and {MAX_TRIALS} noise bits of all users together)"
        if request.epsilon > _LARGE_EPSILON:
            remedy = (
                "So little noise has tails beyond floating point, and gives no privacy: 1 is a strong promise, 4 a moderate one."
            )
            raise ArgumentError("epsilon", request.epsilon, reach, remedy)
        if request.delta < _SMALL_DELTA:
            raise ArgumentError("delta", request.delta, reach, "Choose a larger delta, well below 1 / users; 1e-6 is usual.")
        remedy = "Allow more noise; or, if epsilon is very small, enlarge it."
        raise ArgumentError("max_inflation", request.max_inflation, reach, remedy)
    noise_bits = hidden.fewest_noise_bits(levels) or 1
    # Where the better of Theorems B and E changes from one p to the next, hiding is not quite monotone in p, and the bisection for
    # the smallest may end above the one that is known to be quiet.
    smallest = min(hidden.smallest_probability(levels, noise_bits), quiet_probability(levels) or 0.5)
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
    return TAIL_SHARE * request.delta / (request.coordinates * request.rounds)


def _spare(request: SumRequest) -> float:
    """What one round may give up besides, for Theorem E: a tenth of the windows' share."""
    return 0.1 * TAIL_SHARE * request.delta / request.rounds


# Rotated plans (accounting, section 10): the range of a coordinate is t / sqrt(d') norms in place of one, p is 1/2, and the step is
# the smallest that the certificate allows. Levels and noise bits are then whole numbers of a few units, and all are tried.

# The bias of the box is at most this part of a curator's noise, in every coordinate.
BIAS_SHARE = 0.1
# Noise bits that a report may have where they hardly make it longer.
_FREE_NOISE = 30
# Noise bits up to which all numbers are tried; beyond them, one in each step of a part in sixteen.
_EVERY_NOISE = 48

Rotated = tuple[SumRequest, Parameters]


def safe_box(request: SumRequest) -> float:
    """The smallest t, to a part in a thousand, whose bias is BIAS_SHARE of a curator's noise; 1, 2^(1/2), ... where vectors are so
    many answers, which are never clipped."""
    if request.answers is not None:
        return math.sqrt(request.answers)
    root, scale, most = math.sqrt(padded_length(request.dim)), 1000, BIAS_SHARE * request.central_noise_std
    unbiased = math.ceil(root * scale)
    return _bisect(lambda t: replace(request, range=t / scale / root).bias_bound <= most, 0, unbiased) / scale


def usual_spread(users: int, levels: int, noise_bits: int) -> int:
    """How far apart two counts of this many users are, except with a probability of 1.2e-15 on either side."""
    return users * levels + math.ceil(8 * math.sqrt(users * noise_bits))


def modulus_bits(users: int, levels: int, noise_bits: int) -> int:
    """Bits of a modulus in which masked counts add up: that of the data's range and eight standard deviations of fair noise bits on
    either side, or of the worst case where that is less (accounting, section 10)."""
    return min(usual_spread(users, levels, noise_bits), users * (levels + noise_bits)).bit_length()


class Wire(NamedTuple):
    """What a way to send a coordinate takes, by users, levels and noise bits; and whether noise bits hardly add to it."""

    cost: Callable[[int, int, int], int]
    free_noise: bool


# Bits by messages and in masked sums, field elements in verified ones.
WIRES = {
    "messages": Wire(lambda users, levels, noise_bits: levels + noise_bits, False),
    "masked": Wire(modulus_bits, True),
    "verified": Wire(lambda users, levels, noise_bits: (levels + noise_bits).bit_length(), True),
}


def cost(request: SumRequest, levels: int, noise_bits: int, transport: str) -> int:
    """What a report takes."""
    return request.coordinates * WIRES[transport].cost(request.users, levels, noise_bits)


@lru_cache(maxsize=256)
def rotated(request: SumRequest, box: float, transport: str = "messages") -> Rotated | None:
    """Search for the shortest plan with a rotation and a range of at least `box` / sqrt(d'), as `parameters` does without one.

    None if there is none, or where the range would be that of the norm, as for a few coordinates.
    """
    padded = padded_length(request.dim)
    if box * box >= padded:
        return None
    target = gaussian_mu(request.epsilon, request.delta * (1 - TAIL_SHARE - SPARE)) / math.sqrt(request.rounds)
    for strictness in (1.0, 0.998, 0.995, 0.99, 0.95, 0.9):
        search = _Boxes(replace(request, range=1.0), target * strictness, box, transport)
        found = search.shortest() if request.max_bits is None else search.quietest()
        if found is None:
            return None
        try:
            if guarantee(*flat(found)).delta(request.epsilon) <= request.delta:
                return found
        except NoCertificateError:
            continue
    return None


def flat(found: Rotated) -> tuple[SumRequest, int, int, float]:
    """A rotated plan as the arguments of `guarantee`."""
    return found[0], *found[1]


@dataclass(frozen=True)
class _Boxes:
    """Which (levels, noise bits) hide a user with which step, as far as the window's ends tell."""

    request: SumRequest  # with a range, whatever it is
    target: float
    box: float
    transport: str

    def with_step(self, levels: int, noise_bits: int) -> Rotated | None:
        """The request with the smallest range that is wide enough for the box and hides a user; None if none is allowed."""
        shift = self._largest_shift(levels, noise_bits)
        if shift is None:
            return None
        unit = self.request.sensitivity / self.request.norm * self.request.block_norm
        range_ = max(unit / shift * levels / 2, self.box / math.sqrt(self.request.padded))
        if range_ > MAX_RANGE:
            return None
        return replace(self.request, range=range_), (levels, noise_bits, 0.5)

    def _largest_shift(self, levels: int, noise_bits: int) -> float | None:
        """The largest S with mu(S) <= target. mu is concave: two chords from the right give a point just below."""
        trials, tail, spare = noise_bits * self.request.honest_users, _tail(self.request), _spare(self.request)
        reach = levels if self.request.neighbours == "replace-one" else (levels + 1) // 2

        def mu(shift: float) -> float:
            return presume(trials, 0.5, shift=shift, reach=reach, dim=self.request.coordinates, tail=tail, spare=spare)

        if trials > MAX_TRIALS:
            return None
        far = self.target * math.sqrt(trials) / 2  # no less noise than a Gaussian's
        at_far = mu(far)
        if not math.isfinite(at_far):
            return None
        near = far * self.target / max(at_far, self.target * (1 + 1e-9))
        for _ in range(8):
            at_near = mu(near)
            if at_near <= self.target:
                return near
            root = near - (at_near - self.target) * (far - near) / (at_far - at_near) if at_far > at_near else 0.0
            if root <= 0:
                return None
            far, at_far, near = near, at_near, root * (1 - 1e-9)
        return None

    def noise(self, found: Rotated) -> float:
        """The noise of the honest users, which is what a plan can choose, with all blocks together."""
        request, (levels, noise_bits, p) = found
        return request.noise_std_with(levels, noise_bits, p, request.honest_users)

    def shortest(self) -> Rotated | None:
        """The shortest report whose noise is within the limit; of equally short ones the least noise."""
        request = self.request
        limit = request.max_inflation * request.central_noise_std
        free = WIRES[self.transport].free_noise
        best, least = None, math.inf
        noise_bits = 1
        while free or best is None or cost(request, 2, noise_bits, self.transport) <= least:
            if noise_bits > (_FREE_NOISE if free and best is not None else MAX_TRIALS // request.honest_users):
                break
            found = self._fewest_levels(noise_bits, limit)
            if found is not None:
                key = cost(found[0], *found[1][:2], self.transport)
                if key < least or (best is not None and key == least and self.noise(found) < self.noise(best)):
                    best, least = found, key
            noise_bits += 1 if noise_bits < _EVERY_NOISE else noise_bits // 16
            if noise_bits > 1 << 16:
                break
        return best

    def _fewest_levels(self, noise_bits: int, limit: float) -> Rotated | None:
        """With this many noise bits, the fewest levels, from two on, whose noise is within the limit. An even number of them has 0
        among its levels, and adds less by rounding."""
        finest = self.with_step(2, noise_bits)
        if finest is None:
            return None
        if self.noise(finest) <= limit:
            return finest
        request, wanted = finest[0], self.box / math.sqrt(self.request.padded)
        honest, norm = self.request.honest_users * self.request.blocks**2, self.request.norm
        quiet = limit / norm / math.sqrt(honest * noise_bits / 4)  # the widest step without rounding
        levels = max(2, math.floor(2 * wanted / quiet))
        most = math.ceil(2 * wanted / (limit / norm / math.sqrt(honest * (noise_bits + 1) / 4))) + 4
        while levels <= min(most, MAX_LEVELS):
            found = self.with_step(levels, noise_bits)
            if found is None:
                return None
            request = found[0]
            if self.noise(found) <= limit:
                return found
            if request.range is not None and request.range > wanted * (1 + 1e-9) and levels % 2 == 0:
                return None  # the step is the least already: more levels do not help
            levels += 1
        return None

    def quietest(self) -> Rotated | None:
        """The least noise within the bits allowed, counted over all coordinates."""
        request = self.request
        bits = (request.max_bits or 2) * request.dim // request.coordinates
        choices = (self.with_step((bits - b) // 2 * 2, b) for b in _spread(1, bits - 2))
        found = [choice for choice in choices if choice is not None]
        return min(found, key=self.noise, default=None)


def _spread(low: int, high: int) -> list[int]:
    """All whole numbers from `low` to `high`, or where they are many, some of them."""
    every = range(low, high + 1)
    if len(every) <= _EVERY_NOISE:
        return list(every)
    return sorted({every[i * (len(every) - 1) // _EVERY_NOISE] for i in range(_EVERY_NOISE + 1)})
