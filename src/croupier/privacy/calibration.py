"""From what is asked to a plan that provably gives it: `plan_sum` and `plan_scalar_sum`."""

from __future__ import annotations

from dataclasses import asdict
from functools import lru_cache
from types import ModuleType

from ..validation import ArgumentError, one_of, real
from . import _paper as paper
from . import _tight as tight
from .certificate import NoCertificateError
from .plan import MOST_COORDINATES, REQUEST_FIELDS, SumPlan, SumRequest, padded_length

# The range of rotated gradients, in norms / sqrt(coordinates): one as long as the norm is shortened by 5 % on average. They steer
# a model, which no single coordinate decides; what clipping does to them on average is `SumPlan.bias_rms`.
GRADIENT_BOX = 2.0
ROTATIONS = ("auto", "gradients")
_ROTATION_REMEDY = "Use 'auto', 'gradients', None, or a number such as 3: the range in norms / sqrt(coordinates)."


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
    diameter: float | None = None,
    rotation: str | float | None = "auto",
    answers: int | None = None,
    transport: str = "messages",
) -> SumPlan:
    """Plan a private sum of `users` vectors of `dim` coordinates and l2 norm at most `norm`.

    Finds the fewest bits per coordinate whose noise is within `max_inflation` of the central analytic Gaussian mechanism,
    or, where `max_bits` is given, the least noise within that many bits (max_inflation is then not used).

    Parameters
    ----------
    epsilon, delta : float
        The guarantee, for a user who takes part in all `rounds` rounds: epsilon above 0, delta between 0 and 1.
    users : int
        Users in one round, from 1 to 10^12.
    dim : int
        Coordinates of a user's vector, from 1 to 10^9.
    norm : float, default 1.0
        Public bound on a vector's l2 norm, in units of the data; longer vectors are clipped on the user's side.
    honest : float, default 1.0
        Fraction of the users that is trusted to add its noise. The others' noise may be missing without harm to privacy;
        when it does arrive it is still noise, so `inflation` grows by 1 / sqrt(honest).
    rounds : int, default 1
        Rounds that each user takes part in.
    neighbours : {"replace-one", "zero-out"}, default "replace-one"
        The paper's relation, or a user's vector against the zero vector (the relation to set beside add/remove figures of other
        libraries).
    calibration : {"tight", "paper", "paper-scaled"}, default "tight"
        Theorem B of docs/accounting.md; the paper's Theorem 3.2 as printed; or the same with data scaled to unit range first, so
        that the levels do not depend on the unit of `norm`.
    max_inflation : float, default 1.05
        Noise allowed relative to a trusted curator's, above 1. It bounds the noise of the honest users, which is the part that a
        plan can choose.
    max_bits : int, optional
        Bits per coordinate that one user may send, at least 2.
    diameter : float, optional
        A proved bound on the l2 distance of any two users' vectors, the zero vector of a blank answer among them; default:
        twice the norm. Vectors without negative entries have sqrt(2) times the norm, which is 29 per cent less noise. The sum
        clips to the norm alone: if you give a diameter, send vectors of a set that has it (`croupier.statistics`). Under
        "zero-out" it changes nothing.
    rotation : {"auto", "gradients", None} or float, default "auto"
        Whether vectors are turned by a public random rotation before they are encoded, and coordinates clipped to a few norms /
        sqrt(dim): several times fewer bits for the same noise from some 30 coordinates on. "auto" takes whichever is shorter, and
        a range so wide that clipping moves no coordinate of the sum by more than a tenth of the noise (`SumPlan.bias_bound`).
        "gradients" takes a range of 2 norms / sqrt(coordinates) where that is shorter: it moves single sums visibly, and models
        not (`SumPlan.bias_rms`). A number is the range in norms / sqrt(coordinates). None encodes vectors as they are.
    answers : int, optional
        The query's claim that a vector has at most this many entries other than 0, all of size norm / sqrt(answers), as one-hot
        vectors have one: a rotation then needs a range of sqrt(answers), and clips nothing. Accuracy alone rests on it.
    transport : {"messages", "masked", "verified"}, default "messages"
        How reports will travel, and so what makes them long: in masked and verified sums noise bits cost next to nothing.

    Returns
    -------
    SumPlan
        The plan, certified in full.

    Raises
    ------
    ArgumentError
        If an argument is out of range, or `max_bits` or `max_inflation` leaves no plan.
    NoCertificateError
        If nothing can be certified for the request.

    Guarantee
    ---------
    `plan.guarantee`: at `epsilon` its delta is at most the delta asked for, if the users and the shuffler do as
    `plan.guarantee.honest` and `VectorSum` say, and, with a
    diameter, no two vectors that users may send are further apart
    (docs/accounting.md#3-theorem-b-the-whole-round-random-rounding-included).

    References
    ----------
    Cheu, Joseph, Mao, Peng, "Shuffle Private Stochastic Convex Optimization", ICLR 2022, Section 3.

    Examples
    --------
    >>> plan = plan_sum(epsilon=1, delta=1e-6, users=10_000, dim=100)
    >>> plan.bits_per_user, plan.inflation <= 1.05, plan.certified_delta <= 1e-6
    (3584, True, True)
    >>> plan_sum(epsilon=1, delta=1e-6, users=10_000, dim=100, rotation=None).bits_per_user
    5000
    >>> histogram = plan_sum(epsilon=1, delta=1e-6, users=10_000, dim=100, diameter=2**0.5)
    >>> histogram.noise_std <= 0.72 * plan.noise_std
    True
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
            diameter=diameter,
            answers=answers,
        ),
        rotation,
        transport,
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

    Parameters
    ----------
    epsilon, delta : float
        The guarantee, for a user who takes part in all `rounds` rounds.
    users : int
        Users in one round.
    width : float, default 1.0
        Width of the public interval that the numbers lie in, in units of the data.
    honest : float, default 1.0
        Fraction of the users that is trusted to add its noise.
    rounds : int, default 1
        Rounds that each user takes part in.
    calibration : {"tight", "paper", "paper-scaled"}, default "tight"
        As in `plan_sum`; the paper's is Lemma 3.1.
    max_inflation : float, default 1.05
        Noise allowed relative to a trusted curator's, above 1.
    max_bits : int, optional
        Bits that one user may send, at least 2.

    Returns
    -------
    SumPlan
        For `ScalarSum`; certified in full.

    Raises
    ------
    ArgumentError
        If an argument is out of range.

    Examples
    --------
    >>> plan_scalar_sum(epsilon=1, delta=1e-6, users=1000, width=10.0).central_noise_std  # doctest: +ELLIPSIS
    42.24...
    """
    real("width", width, above=0, remedy="State the width of the public interval that contains the numbers.")
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


def plan(request: SumRequest, rotation: str | float | None = None, transport: str = "messages") -> SumPlan:
    """Make the plan for a checked request: rotated or not, whichever is shorter, or with `max_bits` has less noise."""
    one_of("transport", transport, tuple(tight.WIRES), "It says how reports travel; 'messages' is the usual choice.")
    found = _rotated(request, rotation, transport)
    if found is not None and (isinstance(rotation, float | int) or request.blocks > 1):
        return found
    try:
        plain = prove(request, *_theory(request).parameters(request))
    except ArgumentError:
        if found is None:
            raise
        return found
    return plain if found is None else shorter(plain, found, transport)


def shorter(plain: SumPlan, rotated: SumPlan, transport: str) -> SumPlan:
    """The plan with the shorter reports, or with `max_bits` the one with less noise; the plain one of equals."""
    if plain.max_bits is not None:
        return min(plain, rotated, key=lambda one: one.noise_std)
    return min(plain, rotated, key=lambda one: tight.cost(one, one.levels, one.noise_bits, transport))


def _rotated(request: SumRequest, rotation: str | float | None, transport: str) -> SumPlan | None:
    """The plan with a rotation; None if none is wanted, or where it has no advantage."""
    if rotation is None:
        return None
    usable = request.calibration == "tight" and not request.scalar and request.dim <= MOST_COORDINATES
    if isinstance(rotation, str):
        one_of("rotation", rotation, ROTATIONS, _ROTATION_REMEDY)
        if not usable:
            return None
        box = GRADIENT_BOX if rotation == "gradients" else tight.safe_box(request)
    else:
        box = real("rotation", rotation, above=0, remedy=_ROTATION_REMEDY)
    found = tight.rotated(request, box, transport) if usable else None
    if found is None and not isinstance(rotation, str):
        allowed = f"below sqrt({padded_length(request.dim)}), with tight calibration, and a noise that can be certified"
        raise ArgumentError("rotation", rotation, allowed, "Leave it out for whatever is shorter.")
    return None if found is None else prove(*tight.flat(found))


def prove(request: SumRequest, levels: int, noise_bits: int, probability: float) -> SumPlan:
    """Make the plan with these parameters, its guarantee computed from them alone."""
    guarantee = _theory(request).guarantee(request, levels, noise_bits, probability)
    request_fields = asdict(request)
    return SumPlan(
        **{name: request_fields[name] for name in REQUEST_FIELDS},
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
    """Tell whether the guarantee that a plan carries follows from its parameters: False for one that was edited by hand.

    Guarantee
    ---------
    True only where no figure of the plan is below the certified one, by however little.
    """
    try:
        proved = prove(plan, plan.levels, plan.noise_bits, plan.noise_probability)
    except (ArgumentError, NoCertificateError):
        return False
    return claims_at_most(plan, proved) and proved.certified_delta <= proved.delta


def claims_at_most(plan: SumPlan, proved: SumPlan, tolerance: float = 0.0) -> bool:
    """Tell whether no figure of a plan is stronger than the certified plan's, except for a part `tolerance` of it.

    A tolerance is for plans whose figures are thrown away for the certified ones, as in `SumPlan.from_dict`: another processor may
    have computed them with other last digits.
    """
    figures = ((plan.mu or 0.0, proved.mu or 0.0), (plan.slack, proved.slack), (plan.pure_epsilon, proved.pure_epsilon))
    return all(claimed >= figure * (1 - tolerance) for claimed, figure in figures)


def _theory(request: SumRequest) -> ModuleType:
    """The module whose `parameters` and `guarantee` this calibration uses."""
    return tight if request.calibration == "tight" else paper
