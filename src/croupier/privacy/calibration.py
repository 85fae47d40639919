"""From what is asked to a plan that provably gives it: `plan_sum` and `plan_scalar_sum`."""

from __future__ import annotations

from dataclasses import asdict
from functools import lru_cache
from types import ModuleType

from ..validation import ArgumentError, real
from . import paper, tight
from .certificate import NoCertificateError
from .plan import REQUEST_FIELDS, SumPlan, SumRequest


def plan_sum(
    *,
    epsilon: float,
    delta: float,
    users: int,
    dim: int,
    norm: float = 1.0,
    honest: float = 1.0,
    rounds: int = 1,
    neighbours: str = "replace-one",
    calibration: str = "tight",
    max_inflation: float = 1.05,
    max_bits: int | None = None,
) -> SumPlan:
    """Plan a private sum of `users` vectors of `dim` coordinates and l2 norm at most `norm`.

    Finds the fewest bits per coordinate whose noise is within `max_inflation` of the central analytic Gaussian mechanism,
    or, where `max_bits` is given, the least noise within that many bits (max_inflation is then not used).

    Parameters
    ----------
    epsilon, delta : the guarantee, for a user who takes part in all `rounds` rounds.
    users : users in one round. norm : public bound; longer vectors are clipped on the user's side.
    honest : fraction of the users that is trusted to add its noise. The others' noise may be missing without harm to privacy;
        when it does arrive it is noise all the same, so `inflation` grows by 1 / sqrt(honest). `max_inflation` bounds the
        noise of the honest users, which is the part a plan can choose.
    neighbours : "replace-one", the paper's relation, or "zero-out", a user's vector against the zero vector (the
        relation to set beside add/remove figures of other libraries).
    calibration : "tight" (Theorem B of docs/accounting.md), "paper" (Theorem 3.2 as printed) or "paper-scaled" (the same
        with data scaled to unit range first, so that the levels do not depend on the unit of `norm`).

    Examples
    --------
    >>> plan = plan_sum(epsilon=1, delta=1e-6, users=10_000, dim=100)
    >>> plan.bits_per_coordinate, plan.inflation <= 1.05, plan.certified_delta <= 1e-6
    (50, True, True)

    Reference: Cheu, Joseph, Mao, Peng, "Shuffle Private Stochastic Convex Optimization", ICLR 2022, Section 3.
    """
    return plan(
        SumRequest(
            epsilon=epsilon,
            delta=delta,
            users=users,
            dim=dim,
            norm=norm,
            honest=honest,
            rounds=rounds,
            neighbours=neighbours,
            calibration=calibration,
            max_inflation=max_inflation,
            max_bits=max_bits,
        )
    )


def plan_scalar_sum(
    *,
    epsilon: float,
    delta: float,
    users: int,
    width: float = 1.0,
    honest: float = 1.0,
    rounds: int = 1,
    calibration: str = "tight",
    max_inflation: float = 1.05,
    max_bits: int | None = None,
) -> SumPlan:
    """Plan a private sum of numbers in an interval of the given `width` (the paper's Delta, Algorithm 1).

    The plan is that of a one-dimensional vector of norm width / 2 about the middle of the interval.

    >>> plan_scalar_sum(epsilon=1, delta=1e-6, users=1000, width=10.0).central_noise_std  # doctest: +ELLIPSIS
    42.24...
    """
    real("width", width, above=0, remedy="Give the width of the public interval that the numbers lie in.")
    return plan(
        SumRequest(
            epsilon=epsilon,
            delta=delta,
            users=users,
            dim=1,
            norm=width / 2,
            honest=honest,
            rounds=rounds,
            calibration=calibration,
            max_inflation=max_inflation,
            max_bits=max_bits,
            scalar=True,
        )
    )


def plan(request: SumRequest) -> SumPlan:
    """The plan for a checked request."""
    return prove(request, *_theory(request).parameters(request))


def prove(request: SumRequest, levels: int, noise_bits: int, probability: float) -> SumPlan:
    """The plan with these parameters, its guarantee computed from them alone."""
    guarantee = _theory(request).guarantee(request, levels, noise_bits, probability)
    asked = asdict(request)
    return SumPlan(
        **{name: asked[name] for name in REQUEST_FIELDS},
        levels=levels,
        noise_bits=noise_bits,
        noise_probability=probability,
        mu=guarantee.mu or None,
        slack=guarantee.slack,
        pure_epsilon=guarantee.pure_epsilon,
        theorem=guarantee.theorem,
    )


@lru_cache(maxsize=256)
def is_proved(plan: SumPlan) -> bool:
    """Whether the guarantee that a plan carries follows from its parameters: False for one that was edited by hand.

    Guarantee
    ---------
    True only where no figure of the plan is below the proved one, by however little.
    """
    try:
        proved = prove(plan, plan.levels, plan.noise_bits, plan.noise_probability)
    except (ArgumentError, NoCertificateError):
        return False
    return claims_at_most(plan, proved) and proved.certified_delta <= proved.delta


def claims_at_most(plan: SumPlan, proved: SumPlan, tolerance: float = 0.0) -> bool:
    """Whether no figure of a plan is stronger than the proved plan's, but for a part `tolerance` of it.

    A tolerance is for plans whose figures are thrown away for the proved ones, as in `SumPlan.from_dict`: another processor may
    have computed them with other last digits.
    """
    figures = ((plan.mu or 0.0, proved.mu or 0.0), (plan.slack, proved.slack), (plan.pure_epsilon, proved.pure_epsilon))
    return all(claimed >= figure * (1 - tolerance) for claimed, figure in figures)


def _theory(request: SumRequest) -> ModuleType:
    """The module whose `parameters` and `guarantee` this calibration uses."""
    return tight if request.calibration == "tight" else paper
