"""The paper's own calibration, apart from ours: Lemma 3.1, Theorem 3.2, the robustness claim of Appendix A.3, Algorithm 5's split.

Printed constants, with the errata of docs/deviations.md; what a statement does not cover is refused. Kept for comparison and
for reproducing the paper: the noise is hundreds of times what is needed.
"""

from __future__ import annotations

import math

from ..validation import ArgumentError
from .guarantee import Guarantee
from .plan import SumRequest

# ln((1 + a) / (1 - a)) <= 3 a, a step of Lemma 3.1's proof, holds up to here (erratum 5).
MAX_ALPHA = 0.8585
MAX_EPSILON = 15.0
MIN_HONEST = 1 / 3


def guarantee(request: SumRequest, levels: int, noise_bits: int, probability: float) -> Guarantee:
    """State what the paper proves of exactly these parameters."""
    if (levels, noise_bits, probability) != parameters(request):
        raise ArgumentError(
            "levels, noise_bits, noise_probability",
            (levels, noise_bits, probability),
            f"{parameters(request)} under the paper's calibration",
            "Use the plan as plan_sum made it.",
        )
    epsilon, delta = _round_budget(request)
    return Guarantee(
        mu=0.0,
        slack=delta,
        neighbours=request.neighbours,
        honest=request.honest,
        theorem=_theorem(request),
        pure_epsilon=epsilon,
        pure_rounds=1,
    ).repeated(request.rounds)


def parameters(request: SumRequest) -> tuple[int, int, float]:
    """Compute (g, b, p) as printed.

    g is that of Theorem 3.2's proof (or of Lemma 3.1), b > 180 g^2 ln(2/delta) / (eps^2 n), and p is half that bound over b.
    """
    epsilon, delta = _round_budget(request)
    epsilon *= request.honest  # Claim A.3: noise for eps gives eps / gamma when a fraction gamma is honest.
    # Section 3.1: users may scale to Delta = 1 first, which makes g free of units (calibration "paper-scaled").
    width = 2 * request.norm if request.calibration == "paper" else 1.0
    if request.scalar:
        levels = math.ceil(max(width * math.sqrt(request.users), 1.0 if request.honest == 1 else 3.0))  # Claim A.3: g >= 3
    else:
        levels = math.ceil(max(width * math.sqrt(request.users), math.sqrt(request.dim), 4.0))
        delta /= request.dim + 1
        epsilon /= 18 * math.sqrt(math.log(1 / delta))
    alpha = epsilon / (3 * request.honest * levels)
    if alpha > MAX_ALPHA:
        raise ArgumentError(
            "epsilon",
            request.epsilon,
            f"at most {3 * MAX_ALPHA * levels:.4g} for {levels} levels (Lemma 3.1's proof needs eps / (3 g) <= {MAX_ALPHA})",
            "Use the tight calibration, which has no such limit, or more users.",
        )
    if epsilon < 1e-9 * levels:
        raise ArgumentError(
            "epsilon", request.epsilon, "larger: the paper's noise would be too large to count", "Use the tight calibration."
        )
    strength = levels**2 * math.log(2 / delta) / (epsilon**2 * request.users)
    noise_bits = math.floor(180 * strength) + 1
    return levels, noise_bits, 90 * strength / noise_bits


def _theorem(request: SumRequest) -> str:
    name = "paper Lemma 3.1" if request.scalar else "paper Theorem 3.2"
    return name if request.honest == 1 else f"{name} with Claim A.3"


def _round_budget(request: SumRequest) -> tuple[float, float]:
    """(epsilon, delta) of one round, after checking that the paper covers the request."""
    use_tight = "Use the tight calibration."
    if request.neighbours != "replace-one":
        raise ArgumentError("neighbours", request.neighbours, "'replace-one' in the paper's calibration", use_tight)
    if request.max_bits is not None:
        raise ArgumentError("max_bits", request.max_bits, "left out: the paper's constants fix the bits", use_tight)
    _at_most("epsilon", request.epsilon, MAX_EPSILON)
    if request.delta >= 0.5:
        raise ArgumentError("delta", request.delta, "below 1/2 in the paper's calibration", "Choose a smaller delta.")
    if request.honest < 1:
        if request.honest < MIN_HONEST:
            raise ArgumentError("honest", request.honest, "at least 1/3 (Claim A.3)", use_tight)
        _at_most("epsilon", request.epsilon, 1 / request.honest)
    if request.rounds == 1:
        return request.epsilon, request.delta
    rounds = request.rounds
    # Algorithm 5: each of T rounds gets epsilon / (2 sqrt(2 T log(1/delta))) and delta / (T + 1).
    epsilon = request.epsilon / (2 * math.sqrt(2 * rounds * math.log(1 / request.delta)))
    delta = request.delta / (rounds + 1)
    together = Guarantee(mu=0.0, slack=delta, theorem="Algorithm 5", pure_epsilon=epsilon, pure_rounds=1).repeated(rounds)
    if together.delta(request.epsilon) > request.delta:  # erratum 7: the printed split fails for large delta
        raise ArgumentError(
            "delta",
            request.delta,
            f"smaller for {rounds} rounds (Algorithm 5's split of epsilon does not hold here)",
            "Choose a smaller delta, or the tight calibration.",
        )
    return epsilon, delta


def _at_most(name: str, value: float, bound: float) -> None:
    if value > bound:
        raise ArgumentError(
            name, value, f"at most {bound:g} in the paper's calibration", "Use the tight calibration, which has no such limit."
        )
