"""Planning secret lots: T rounds of M reports, each user in one of them by a lot that nobody learns (accounting, Theorem L).

What depends on the others' lots alone is charged once: a round that they fill, and cheats who crowd into one. A round's noise
comes from all of its M reports but those of cheats; blanks carry noise like any report.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import cache, lru_cache
from typing import Any

from scipy.optimize import brentq

from ..files import JsonText
from ..validation import ArgumentError, real, whole
from . import _tight as tight
from ._rounding import round_up
from .allocation import MAX_ROUNDS, Allocation, power_curves, relation_curves
from .calibration import prove
from .certificate import NoCertificateError, certify
from .crowd import cheats_in_round, exclusions_in_round, honest_total, overflow, round_size, smallest_batch
from .gaussian import central_noise_std, gaussian_mu
from .guarantee import Guarantee, known_fields
from .plan import SumPlan, SumRequest

THEOREM = "accounting Theorem L"
NO_CERTIFICATE = "no certificate: too few users answer together"
# Parts of delta: a full round, cheats in a round, and users with the same lot, where it is known. Windows take TAIL_SHARE.
OVERFLOW_SHARE = CHEATS_SHARE = BATCH_SHARE = 0.01
# The lattice of a search: coarse, and an upper bound all the same. The winner is certified on the full one.
_SEARCH_POINTS = 1 << 16
_SEARCH_DEPTH = 6.0
# Where a search begins, and its steps, in log(mu): the first guess is within 7 % of certified figures.
_TAIL_COST = 0.08
_STRIDE = 0.03


@dataclass(frozen=True, kw_only=True)
class LotsPlan(JsonText):
    """How to ask every user once, in one of `rounds` rounds that only the dealer knows. Made by `plan_lots`; frozen; JSON.

    Parameters
    ----------
    epsilon, delta : float
        What was asked for, of the whole run.
    users : int
        All users, before lots are drawn.
    rounds : int
        How many rounds there are.
    honest : float
        The fraction of all users that is counted on.
    neighbours : {"replace-one", "zero-out"}
        The neighbouring relation of the whole run.
    one_round : SumPlan
        The plan of each round's sum: `one_round.users` is M, the public number of reports, blanks included. Its own promise is
        about a report against a blank in a round that is known.
    turnout : float, default 1.0
        The fraction of all users that would come whichever round they draw; others are replaced by blanks. Only
        `guarantee.if_watched` counts on it, since whoever made the blanks may tell their coins.

    Guarantee
    ---------
    `guarantee` holds to whoever sees all sums and not the lots, and `guarantee.if_watched` to somebody who also knows when each
    user answered, even if it is the shuffler who tells (docs/accounting.md#9-secret-lots).

    Examples
    --------
    >>> plan = plan_lots(epsilon=1, delta=1e-6, users=10_000, rounds=20, dim=10)
    >>> plan.certified_delta <= 1e-6, plan.guarantee.epsilon(1e-6) < plan.guarantee.if_watched.epsilon(1e-6)
    (True, True)
    """

    epsilon: float
    delta: float
    users: int
    rounds: int
    honest: float
    neighbours: str
    one_round: SumPlan
    turnout: float = 1.0

    def __post_init__(self) -> None:
        request = self._request
        for name in ("epsilon", "delta", "users", "honest", "neighbours"):
            object.__setattr__(self, name, getattr(request, name))
        object.__setattr__(self, "rounds", _rounds(self.rounds))
        remedy = "Say which fraction of users comes to its round; 1 is all."
        object.__setattr__(self, "turnout", real("turnout", self.turnout, above=0, at_most=1, remedy=remedy))
        if not isinstance(self.one_round, SumPlan) or (self.one_round.neighbours, self.one_round.rounds) != ("zero-out", 1):
            remedy = "Use the plan as plan_lots made it."
            raise ArgumentError("one_round", str(self.one_round), "a plan of one round with zero-out neighbours", remedy)

    @property
    def _request(self) -> SumRequest:
        """The whole run's request, as if every user were asked in one round."""
        return SumRequest(
            epsilon=self.epsilon,
            delta=self.delta,
            users=self.users,
            dim=self.one_round.dim,
            norm=self.one_round.norm,
            honest=self.honest,
            neighbours=self.neighbours,
        )

    @property
    def size(self) -> int:
        """M: reports in every round, blanks included. Public."""
        return self.one_round.users

    @property
    def most_excluded(self) -> int:
        """Reports that may be left out of a round: those that the premise says are honest, beyond what the round counts on."""
        return max(0, _counted_on(self._request, self.rounds, self.size) - self.one_round.honest_users)

    @property
    def users_in_round(self) -> float:
        """What estimates of a mean divide by: the public `users` / `rounds`, not the number that drew the round's lot."""
        return self.users / self.rounds

    @property
    def overflow(self) -> float:
        """Probability, part of delta, that the others' lots leave no room in some round."""
        return overflow(self.users, self.rounds, self.size)

    @property
    def noise_std(self) -> float:
        """Standard deviation per coordinate of a round's estimated sum, at its largest over all inputs."""
        return self.one_round.noise_std

    @property
    def open_noise_std(self) -> float:
        """Noise of a trusted curator in each round, if users' rounds were known: what a plain sequential run pays at least."""
        return central_noise_std(self.epsilon, self.delta, self._request.sensitivity)

    @property
    def bits_per_user(self) -> int:
        """Messages that one user sends in the whole run."""
        return self.one_round.bits_per_user

    @property
    def guarantee(self) -> Guarantee:
        """What a user is promised, computed from the parameters alone."""
        return _guarantee(self)

    @property
    def certified_delta(self) -> float:
        """The delta certified at `epsilon`: at most the delta asked for."""
        return self.guarantee.delta(self.epsilon)

    def to_dict(self) -> dict[str, Any]:
        """The fields, then the figures that follow from them, in plain JSON types.

        Returns
        -------
        dict
            What `from_dict` reads.
        """
        own = {name: getattr(self, name) for name in _FIELDS} | {"one_round": self.one_round.to_dict()}
        own |= {} if self.turnout == 1 else {"turnout": self.turnout}
        return own | {name: getattr(self, name) for name in _DERIVED} | {"guarantee": self.guarantee.to_dict()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> LotsPlan:
        """Read a plan from its dictionary. What it promises is certified anew; a plan that promises too much is refused.

        Parameters
        ----------
        values : dict
            What `to_dict` gave.

        Returns
        -------
        LotsPlan
            With the figures that are certified here.

        Raises
        ------
        ArgumentError
            Where a field is unknown or missing, or the plan promises too much.
        """
        if not isinstance(values, dict):
            raise ArgumentError("plan", values, "a JSON object", "Pass what LotsPlan.to_json() gave.")
        own = {name: value for name, value in values.items() if name not in (*_DERIVED, "guarantee")}
        known_fields(cls, own, defaults=True)
        plan = cls(**own | {"one_round": SumPlan.from_dict(own["one_round"])})
        if plan.certified_delta > plan.delta:
            allowed = f"one whose claim follows from its parameters; they give delta {round_up(plan.certified_delta)}"
            raise ArgumentError("plan", str(plan), allowed, "Do not use it; ask for the output of plan_lots.")
        return plan

    def __str__(self) -> str:
        return (
            f"({round_up(self.epsilon)}, {round_up(self.delta)})-DP, {self.users} users in {self.rounds} secret rounds of "
            f"{self.size} reports: "
            f"noise {self.noise_std:.4g} a round; certified delta {round_up(self.certified_delta)}; {self.guarantee}"
        )


_FIELDS = ("epsilon", "delta", "users", "rounds", "honest", "neighbours")
_DERIVED = ("size", "users_in_round", "overflow", "noise_std", "open_noise_std", "bits_per_user", "certified_delta")


def plan_lots(
    *,
    epsilon: float,
    delta: float,
    users: int,
    rounds: int,
    dim: int,
    norm: float = 1.0,
    honest: float = 1.0,
    neighbours: str = "replace-one",
    max_inflation: float = 1.05,
    max_bits: int | None = None,
    exclusions: bool = False,
) -> LotsPlan:
    """Plan `rounds` private sums in which every user takes part once, in a round drawn by lot and kept secret.

    Parameters
    ----------
    epsilon, delta : float
        The guarantee, over all rounds together.
    users : int
        All users.
    rounds : int
        The rounds among which each user's lot is drawn, from 1 to 10^6.
    dim : int
        Coordinates of a user's vector.
    norm : float, default 1.0
        Public bound on a vector's l2 norm, in units of the data.
    honest : float, default 1.0
        Fraction of all users, fixed before lots are drawn, that is trusted to add its noise. Blanks add theirs.
    neighbours : {"replace-one", "zero-out"}, default "replace-one"
        A user's vector against any other, or against the zero vector, that is, a blank.
    max_inflation : float, default 1.05
        Noise of a round, relative to the Gaussian noise that Theorem L asks for.
    max_bits : int, optional
        Bits per coordinate; finds the least noise within them.
    exclusions : bool, default False
        Whether reports may be left out of a round: with `honest` below 1, rounds then count on so many fewer.

    Returns
    -------
    LotsPlan
        The plan, certified in full.

    Raises
    ------
    ArgumentError
        Where an argument is out of range.
    NoCertificateError
        Where nothing can be certified for this request.

    Examples
    --------
    >>> plan = plan_lots(epsilon=1, delta=1e-6, users=10_000, rounds=20, dim=100)
    >>> plan.size, plan.certified_delta <= 1e-6, plan.noise_std < 2.2 < 8 < plan.open_noise_std
    (639, True, True)
    """
    request = SumRequest(
        epsilon=epsilon,
        delta=delta,
        users=users,
        dim=dim,
        norm=norm,
        honest=honest,
        neighbours=neighbours,
        max_inflation=max_inflation,
        max_bits=max_bits,
    )
    return _plan(request, _rounds(rounds), exclusions)


@lru_cache(maxsize=256)
def _plan(request: SumRequest, rounds: int, exclusions: bool = False) -> LotsPlan:
    size = round_size(request.users, rounds, OVERFLOW_SHARE * request.delta)
    counted = _counted_on(request, rounds, size)
    if exclusions:
        counted -= exclusions_in_round(request.users, request.honest, rounds, counted)
    shares = tight.TAIL_SHARE + tight.SPARE + OVERFLOW_SHARE + (CHEATS_SHARE if request.honest < 1 else 0)
    target = _largest_mu(request.epsilon, request.delta * (1 - shares), rounds, request.neighbours)
    # The search takes a round's windows to be those of a report against a blank; the certificate those of two reports.
    for strictness in (0.9995, 0.998, 0.995, 0.99, 0.97, 0.95, 0.9):
        try:
            one_round = _one_round(request, rounds, size, counted, target * strictness)
            plan = LotsPlan(
                epsilon=request.epsilon,
                delta=request.delta,
                users=request.users,
                rounds=rounds,
                honest=request.honest,
                neighbours=request.neighbours,
                one_round=one_round,
            )
            if plan.certified_delta <= plan.delta:
                return plan
        except NoCertificateError:
            continue
    raise NoCertificateError(f"no certificate for {rounds} secret rounds and {request}: nothing can be released under it")


def _one_round(request: SumRequest, rounds: int, size: int, counted: int, mu: float) -> SumPlan:
    """The plan of a round that gives up at most its share of delta and has about this mu, at most."""
    delta = request.delta / (2 * rounds)
    epsilon = Guarantee(mu=mu, theorem=tight.THEOREM).epsilon(delta * (1 - tight.TAIL_SHARE - tight.SPARE))
    round_request = SumRequest(
        **asdict(request)
        | {"epsilon": epsilon, "delta": delta, "users": size, "honest": counted / size, "neighbours": "zero-out", "rounds": 1}
    )
    return prove(round_request, *tight.parameters(round_request))


@lru_cache(maxsize=256)
def _guarantee(plan: LotsPlan) -> Guarantee:
    """Theorem L for the plan's parameters, and Theorem B where the lots are known."""
    request, one_round = plan._request, plan.one_round
    counted = min(one_round.honest_users, _counted_on(request, plan.rounds, plan.size))
    pair = plan.neighbours == "zero-out"
    certificate = certify(
        counted * one_round.noise_bits,
        one_round.noise_probability,
        shift=one_round.encoded_shift(one_round.levels),
        reach=request.encoded_reach(one_round.levels),  # two reports and a blank have one window
        dim=one_round.dim,
        tail=tight.TAIL_SHARE * plan.delta / (2 * plan.rounds * one_round.dim),
    )
    windows = plan.rounds * one_round.dim * certificate.tau * (1 if pair else 2)  # the blank is between the two reports
    cheats = CHEATS_SHARE * plan.delta if plan.honest < 1 else 0.0
    return Guarantee(
        mu=0.0,
        slack=min(1.0, (windows + plan.overflow + cheats) * (1 + 1e-12)),
        neighbours=plan.neighbours,
        honest=plan.honest,
        theorem=THEOREM,
        allocations=(Allocation(mu=certificate.mu, rounds=plan.rounds),),
        watched=_if_watched(plan, request),
    )


def _if_watched(plan: LotsPlan, request: SumRequest) -> Guarantee:
    """One plain round of the honest users with the same lot, without the blanks: what holds if the shuffler tells all it knows."""
    one_round, chance, share = plan.one_round, BATCH_SHARE * plan.delta, _honest_who_come(plan)
    honest = max(1, smallest_batch(plan.users, share, plan.rounds, chance) - plan.most_excluded)
    try:
        certificate = certify(
            honest * one_round.noise_bits,
            one_round.noise_probability,
            shift=request.encoded_shift(one_round.levels),
            reach=request.encoded_reach(one_round.levels),
            dim=one_round.dim,
            tail=tight.TAIL_SHARE * plan.delta / one_round.dim,
        )
    except NoCertificateError:
        return Guarantee(mu=0.0, slack=1.0, neighbours=plan.neighbours, honest=share, theorem=NO_CERTIFICATE)
    # users who are left out of a round that is too full may be honest, and those who stay cheats
    slack = chance + one_round.dim * certificate.tau + (plan.overflow if share < 1 else 0.0)
    return Guarantee(mu=certificate.mu, slack=slack, neighbours=plan.neighbours, honest=share, theorem=tight.THEOREM)


def _honest_who_come(plan: LotsPlan) -> float:
    """The fraction of users that is honest and comes, at least: whoever stays away may be honest, and all cheats may come."""
    if max(plan.honest, plan.turnout) == 1:
        return min(plan.honest, plan.turnout)
    both = honest_total(plan.users, plan.honest) + honest_total(plan.users, plan.turnout) - plan.users
    return max(1, both) / plan.users


def _counted_on(request: SumRequest, rounds: int, size: int) -> int:
    """Reports of a round whose noise is counted on: all but those of cheats, and at least the user's own."""
    if honest_total(request.users, request.honest) == request.users:
        return size
    return size - min(size - 1, cheats_in_round(request.users, request.honest, rounds, CHEATS_SHARE * request.delta))


@lru_cache(maxsize=256)
def _largest_mu(epsilon: float, delta: float, rounds: int, neighbours: str) -> float:
    """A mu as large as a cheap search finds such that `Allocation(mu, rounds)` has at most `delta` at `epsilon`.

    Within a part in a thousand of the largest, as far as the coarse lattice tells; never less than one known round allows.
    """
    alone = gaussian_mu(epsilon, delta) / (2 if neighbours == "replace-one" else 1)
    if rounds == 1:
        return alone

    @cache
    def excess(log_mu: float) -> float:
        curves = relation_curves(
            *power_curves(math.exp(log_mu), rounds, depth=_SEARCH_DEPTH, most_points=_SEARCH_POINTS), neighbours
        )
        bound = max(curve.delta(epsilon) for curve in curves)
        return math.log(max(bound, 1e-300) / delta)

    # The likelihood ratio of T secret rounds has variance (e^(mu^2) - 1) / T; its longer tail costs a few percent of mu.
    variance = math.log1p(rounds * alone**2)
    low = high = math.log(max(alone, math.sqrt(variance) / (1 + _TAIL_COST * variance)))
    while excess(low) > 0:
        high, low = low, low - _STRIDE
        if low <= math.log(alone):
            return alone
    while excess(high) <= 0:
        low, high = high, high + _STRIDE
    tolerance = 3e-4
    root = float(brentq(excess, low, high, xtol=tolerance))
    while root > low and excess(root) > 0:
        root -= tolerance
    return math.exp(max(root, low, math.log(alone)))


def _rounds(rounds: int) -> int:
    return whole("rounds", rounds, at_least=1, at_most=MAX_ROUNDS, remedy="Give the number of rounds among which lots are drawn.")
