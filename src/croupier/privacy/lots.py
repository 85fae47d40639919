"""Planning secret lots: T rounds of M reports, each user in one of them by a lot that nobody learns (accounting, Theorem L).

What depends on the others' lots alone is charged once: a round that they fill, and cheats who crowd into one. A round's noise
comes from all of its M reports but those of cheats; blanks carry noise like any report. Rounds may ask different questions, each
under a plan of its own: the theorem asks for one mu that holds in every round, and for the windows of all of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property, lru_cache
from typing import Any, NamedTuple

from scipy.optimize import brentq

from ..files import JsonText
from ..validation import ArgumentError, real, whole
from . import _tight as tight
from ._allocation import MAX_ROUNDS, Allocation, divergences
from ._crowd import (
    cheats_in_round,
    exclusions_in_round,
    honest_total,
    least_in_round,
    overflow,
    round_size,
    shortage,
    smallest_batch,
)
from ._statements import exact, round_up
from .calibration import plan as make_plan
from .certificate import RESIDUE, NoCertificateError, certify
from .gaussian import central_noise_std, gaussian_mu
from .guarantee import Guarantee, known_fields
from .plan import SumPlan, SumRequest, padded_length

THEOREM = "accounting Theorem L"
NO_CERTIFICATE = "no certificate: too few users answer together"
# Parts of delta: a full round, cheats in a round, and users with the same lot, where it is known. Windows take TAIL_SHARE.
OVERFLOW_SHARE = CHEATS_SHARE = BATCH_SHARE = 0.01
# The most of delta for a round to which too few people come, where blanks are bounded; and of what the plan has left of delta.
SHORTAGE_SHARE, _LEFT_SHARE = 0.01, 0.5
# What Theorem E may give up, before it is carried through the lots.
SPARE_SHARE = 1e-4
# The lattice of a search: coarse, and an upper bound all the same. The winner is certified on the full one.
_SEARCH_POINTS = 1 << 14
# Where a search begins, and its steps, in log(mu): the first guess is within 15 % of most certified figures.
_TAIL_COST = 0.02
_STRIDE = 0.1
# The noise that blocks may cost where nobody chose how many.
_BLOCKS_COST = 1.3


class Opening(NamedTuple):
    """First rounds that ask another question: how many, of how many coordinates, with which bound on the norm.

    With blocks each of them is a lot, and vectors are encoded as the other rounds' are; without, coordinates are read one by one,
    and clipping must not move them. `max_inflation` is that of the other rounds where it is None.
    """

    rounds: int
    dim: int
    norm: float
    blocks: int = 1
    max_inflation: float | None = None


@dataclass(frozen=True)
class Stage:
    """Rounds of a plan that ask the same question: how many there are, and the plan of each one's sum."""

    rounds: int
    plan: SumPlan


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
        Number of rounds there are.
    honest : float
        The fraction of all users that is relied on.
    neighbours : {"replace-one", "zero-out"}
        The neighbouring relation of the whole run.
    one_round : SumPlan
        The plan of each round's sum: `one_round.users` is M, the public number of reports, blanks included. Its own promise is
        about a report against a blank in a round that is known.
    opening : tuple of Stage, default ()
        The first rounds, where they ask other questions than the rest: how many, and under which plan. `one_round` is then the plan
        of the rounds after them. All rounds have M reports, and one draw of lots is for all of them.
    turnout : float, default 1.0
        The fraction of all users that would come whichever round they draw; others are replaced by blanks. Only
        `guarantee.if_watched` counts on it, since the maker of the blanks may reveal their coins; with `blanks`, `guarantee` too.
    blanks : int, optional
        The most blanks in a round, if another party than the shuffler counts them; default: as many as a round has reports. Then
        `guarantee.if_watched` holds to a shuffler that puts as many blanks as it can in the places of people, if lots are drawn
        fairly: it counts on no more cheats in a round than a fair draw puts there.

    Guarantee
    ---------
    `guarantee` holds to anyone who sees all sums and not the lots, and `guarantee.if_watched` to an attacker who also knows when
    each user answered, even if it is the shuffler who tells (docs/accounting.md#9-secret-lots).

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
    opening: tuple[Stage, ...] = ()
    turnout: float = 1.0
    blanks: int | None = None

    def __post_init__(self) -> None:
        request = self._request
        for name in ("epsilon", "delta", "users", "honest", "neighbours"):
            object.__setattr__(self, name, getattr(request, name))
        object.__setattr__(self, "rounds", _rounds(self.rounds))
        remedy = "State which fraction of users comes to its round; 1 is all."
        object.__setattr__(self, "turnout", real("turnout", self.turnout, above=0, at_most=1, remedy=remedy))
        remedy = "Use the plan as plan_lots made it."
        if self.blanks is not None:
            whole("blanks", self.blanks, at_least=1, at_most=self.size - 1, remedy="Use the plan as with_bounded_blanks made it.")
        for name, plan in [("one_round", self.one_round), *(("opening", stage.plan) for stage in self.opening)]:
            if not isinstance(plan, SumPlan) or (plan.neighbours, plan.rounds) != ("zero-out", 1):
                raise ArgumentError(name, str(plan), "a plan of one round with zero-out neighbours", remedy)
            if plan.diameter is not None:  # the figure for known lots would believe it, and nobody has proved it of these vectors
                raise ArgumentError(f"{name}.diameter", plan.diameter, "left out of rounds with secret lots", remedy)
            whole(f"{name}.users", plan.users, at_least=self.size, at_most=self.size, remedy=remedy)
        for stage in self.opening:
            whole("opening.rounds", stage.rounds, at_least=1, remedy=remedy)
        whole("opening", sum(stage.rounds for stage in self.opening), at_least=0, at_most=self.rounds - 1, remedy=remedy)

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
    def stages(self) -> tuple[Stage, ...]:
        """All rounds in their order: those of the opening, and the others under `one_round`."""
        return (*self.opening, Stage(self.rounds - sum(stage.rounds for stage in self.opening), self.one_round))

    @property
    def blocks(self) -> int:
        """m: a lot is a round and one of this many blocks of the rotated vector. Rounds of an opening have their own number."""
        return self.one_round.blocks

    @property
    def lots(self) -> int:
        """The lots that there are: the pairs of a round and one of its blocks. All are equally likely."""
        return sum(stage.rounds * stage.plan.blocks for stage in self.stages)

    @cached_property
    def most_excluded(self) -> int:
        """Reports that may be left out of a round: those that the premise says are honest, beyond what the round counts on."""
        most = max(stage.plan.honest_users for stage in self.stages)
        return max(0, _counted_on(self._request, self.lots, self.size) - most)

    @property
    def users_in_round(self) -> float:
        """What estimates of a mean divide by: the public number of users that a round has on average, not of those that drew it."""
        return self.users_in(self.one_round)

    def users_in(self, plan: SumPlan) -> float:
        """The same of a round under one of the plans: `users` / `rounds` where all rounds have equally many blocks.

        Parameters
        ----------
        plan : SumPlan
            That of one of `stages`.

        Returns
        -------
        float
            All users, times the plan's share of the lots.
        """
        return self.users * plan.blocks / self.lots

    @property
    def overflow(self) -> float:
        """Probability, part of delta, that the others' lots leave no room in some round."""
        return overflow(self.users, self.lots, self.size)

    @property
    def least_people(self) -> int:
        """People that every round has reports of, whoever fills it up: 0 where nobody counts the blanks."""
        return 0 if self.blanks is None else self.size - self.blanks

    @property
    def shortage(self) -> float:
        """Probability, part of delta, that some round has room for more blanks than there may be; 0 where nobody counts them."""
        return 0.0 if self.blanks is None else shortage(self.users, self.turnout, self.lots, self.least_people)

    def with_bounded_blanks(self) -> LotsPlan:
        """Let another party count the blanks: as few as fill up rounds, except for what is left of delta.

        Returns
        -------
        LotsPlan
            The same rounds, with `blanks`.

        Raises
        ------
        ArgumentError
            If rounds are so small that nobody may come to one.
        """
        open_plan = replace(self, blanks=None)
        chance = min(SHORTAGE_SHARE * self.delta, _LEFT_SHARE * (self.delta - open_plan.certified_delta))
        least = least_in_round(self.users, self.turnout, self.lots, chance) if chance > 0 else 0
        if least < 1:
            remedy = "Use more users, fewer rounds, or a higher turnout: otherwise a round may be all blanks."
            raise ArgumentError("users", self.users, f"so many that people surely come to each of {self.lots} lots", remedy)
        return replace(self, blanks=self.size - least)

    @property
    def noise_std(self) -> float:
        """Standard deviation per coordinate of a round's estimated sum, at its largest over all inputs.

        With blocks, of `blocks` times the sum of the blocks' estimates: each user sends one of them.
        """
        return self.one_round.noise_std

    @property
    def open_noise_std(self) -> float:
        """Noise of a trusted curator in each round, if users' rounds were known: what a plain sequential run pays at least."""
        return central_noise_std(self.epsilon, self.delta, self._request.sensitivity)

    @property
    def bits_per_user(self) -> int:
        """Messages that one user sends in the whole run, at most: in the stage whose round takes the most."""
        return max(stage.plan.bits_per_user for stage in self.stages)

    @property
    def guarantee(self) -> Guarantee:
        """What a user is promised, computed from the parameters alone."""
        return _guarantee(self)

    @property
    def if_timing_known(self) -> Guarantee:
        """What holds to an attacker who knows when each user answered, and not which block, while the shuffler reveals nothing.

        As the network might: the blocks of a round are left to guess, the fewest of them at worst, and blanks count.
        `guarantee.if_watched` is against an attacker who knows the block, and the blanks, too.
        """
        (allocation,) = self.guarantee.allocations
        fewer = replace(allocation, rounds=min(stage.plan.blocks for stage in self.stages))
        # what Theorem E gives up weighs more among fewer lots: added to what the plan's slack has of it already
        slack = min(1.0, self.guarantee.slack + fewer.given_up(RESIDUE, self.neighbours))
        return replace(self.guarantee, slack=slack, allocations=(fewer,), watched=None)

    @property
    def certified_delta(self) -> float:
        """The delta certified at `epsilon`: at most the delta asked for."""
        return self.guarantee.delta(self.epsilon)

    def to_dict(self) -> dict[str, Any]:
        """The fields, then the figures that follow from them, in plain JSON types.

        Returns
        -------
        dict
            Input of `from_dict`.
        """
        own = {name: getattr(self, name) for name in _FIELDS} | {"one_round": self.one_round.to_dict()}
        own |= {} if self.turnout == 1 else {"turnout": self.turnout}
        own |= {} if self.blanks is None else {"blanks": self.blanks}
        if self.opening:
            own["opening"] = [{"rounds": stage.rounds, "plan": stage.plan.to_dict()} for stage in self.opening]
        return own | {name: getattr(self, name) for name in _DERIVED} | {"guarantee": self.guarantee.to_dict()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> LotsPlan:
        """Read a plan from its dictionary. What it promises is certified again; a plan that promises too much is refused.

        Parameters
        ----------
        values : dict
            Output of `to_dict`.

        Returns
        -------
        LotsPlan
            With the figures that are certified here.

        Raises
        ------
        ArgumentError
            If a field is unknown or missing, or the plan promises too much.
        """
        if not isinstance(values, dict):
            raise ArgumentError("plan", values, "a JSON object", "Pass what LotsPlan.to_json() gave.")
        own = {name: value for name, value in values.items() if name not in (*_DERIVED, "guarantee")}
        known_fields(cls, own, defaults=True)
        plans = {"one_round": SumPlan.from_dict(own["one_round"]), "opening": _read_stages(own.get("opening", []))}
        plan = cls(**own | plans)
        if plan.certified_delta > plan.delta:
            allowed = f"one whose claim follows from its parameters; they give delta {round_up(plan.certified_delta)}"
            raise ArgumentError("plan", str(plan), allowed, "Do not use it; ask for the output of plan_lots.")
        return plan

    def __str__(self) -> str:
        return (
            f"({round_up(self.epsilon)}, {round_up(self.delta)})-DP, {self.users} users in {self.rounds} secret rounds of "
            f"{self.size} reports: "
            f"noise {self.noise_std:.4g} per round; certified delta {round_up(self.certified_delta)}; {self.guarantee}"
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
    opening: Sequence[Opening | tuple[int, int, float]] = (),
    rotation: str | float | None = "auto",
    blocks: int | str = 1,
    transport: str = "messages",
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
        Most bits per coordinate; the plan has the least noise that fits in them.
    exclusions : bool, default False
        Whether reports may be left out of a round: with `honest` below 1, rounds then count on so many fewer.
    opening : sequence of (int, int, float), default ()
        Where the first rounds ask other questions: how many rounds, of how many coordinates, with which bound on the norm. Then
        `dim` and `norm` are those of the rounds after them. What is asked may depend on all that was released before. An
        `Opening` (croupier.privacy.lots) also says into how many blocks their vectors are cut, and how much noise they may have.
    rotation : {"auto", "gradients", None} or float, default "auto"
        As in `plan_sum`. Rounds of an opening without blocks have a rotation of their own: "auto", unless it is None.
    blocks : int or "auto", default 1
        A power of two: the rotated vector is cut into this many blocks, and a user's lot is a round and a block, which is all it
        sends. "auto" takes as many as cost next to no noise where there are many more coordinates than users in a round.
    transport : {"messages", "masked", "verified"}, default "messages"
        As in `plan_sum`.

    Returns
    -------
    LotsPlan
        The plan, certified in full.

    Raises
    ------
    ArgumentError
        If an argument is out of range.
    NoCertificateError
        If nothing can be certified for this request.

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
    rounds = _rounds(rounds)
    remedy = "The rounds of the opening are among `rounds`; at least one is left for the question of `dim` and `norm`."
    first = [Opening(*stage) for stage in opening]
    for stage in first:
        whole("opening.rounds", stage.rounds, at_least=1, remedy=remedy)
    whole("opening", sum(stage.rounds for stage in first), at_least=0, at_most=rounds - 1, remedy=remedy)
    encoder = _Encoder(rotation, _blocks(blocks, request, rounds, rotation, bool(opening)), transport)
    others = tuple(_opening(request, encoder, stage) for stage in first)
    last = rounds - sum(stage.rounds for stage in others)
    return _plan(exclusions, (*others, _Asked(last, request, encoder)))


@dataclass(frozen=True)
class _Encoder:
    """How rounds are encoded."""

    rotation: str | float | None
    blocks: int
    transport: str

    def plan(self, request: SumRequest) -> SumPlan:
        """The plan of one round."""
        if self.blocks > 1:
            request = replace(request, range=1.0, blocks=self.blocks)
        return make_plan(request, self.rotation, self.transport)


@dataclass(frozen=True)
class _Asked:
    """Rounds that ask one question: how many, what, and how its sums are encoded."""

    rounds: int
    request: SumRequest
    encoder: _Encoder

    @property
    def lots(self) -> int:
        return self.rounds * self.encoder.blocks


def _opening(request: SumRequest, encoder: _Encoder, opening: Opening) -> _Asked:
    """What the rounds of an opening ask, and how."""
    limit = request.max_inflation if opening.max_inflation is None else opening.max_inflation
    asked = replace(request, dim=opening.dim, norm=opening.norm, max_inflation=limit)
    blocks = _power_of_two("opening.blocks", opening.blocks, asked, encoder.rotation)
    rotation = encoder.rotation if encoder.rotation is None or blocks > 1 else "auto"
    return _Asked(opening.rounds, asked, replace(encoder, rotation=rotation, blocks=blocks))


def _blocks(blocks: int | str, request: SumRequest, rounds: int, rotation: str | float | None, opening: bool) -> int:
    """The number of blocks that was asked for, or that the rule chooses."""
    if blocks == "auto":
        return 1 if rotation is None or opening else _chosen_blocks(request, rounds)
    return _power_of_two("blocks", blocks, request, rotation)


def _power_of_two(name: str, blocks: int | str, request: SumRequest, rotation: str | float | None) -> int:
    """A number of blocks that a rotated vector can be cut into."""
    remedy = "Use a power of two: a user sends one of this many blocks."
    count = whole(name, blocks, at_least=1, at_most=padded_length(request.dim), remedy=remedy)
    if count & (count - 1):
        raise ArgumentError(name, blocks, "a power of two", remedy)
    if count > 1 and rotation is None:
        raise ArgumentError(name, blocks, "1 without a rotation", "Leave rotation out.")
    return count


def _chosen_blocks(request: SumRequest, rounds: int) -> int:
    """Blocks that cost at most _BLOCKS_COST in noise, where a round has at most half as many users as coordinates."""
    padded, users = padded_length(request.dim), request.users / rounds
    chosen = 1
    if padded < 2 * users:
        return chosen
    alone = _largest_mu(request.epsilon, request.delta, rounds, request.neighbours)
    while 2 * chosen <= padded / users and 2 * chosen * rounds <= MAX_ROUNDS:
        more = 2 * chosen
        mu = _largest_mu(request.epsilon, request.delta, rounds * more, request.neighbours)
        if math.sqrt(more) * alone / mu > _BLOCKS_COST:
            break
        chosen = more
    return chosen


@lru_cache(maxsize=256)
def _plan(exclusions: bool, asked: tuple[_Asked, ...]) -> LotsPlan:
    request, rounds, lots = asked[-1].request, sum(stage.rounds for stage in asked), sum(stage.lots for stage in asked)
    whole("rounds * blocks", lots, at_least=1, at_most=MAX_ROUNDS, remedy="Lots are rounds and blocks: take fewer.")
    size = round_size(request.users, lots, OVERFLOW_SHARE * request.delta)
    counted = _counted_on(request, lots, size)
    if exclusions:
        counted -= exclusions_in_round(request.users, request.honest, lots, counted)
    shares = tight.TAIL_SHARE + tight.SPARE + OVERFLOW_SHARE + (CHEATS_SHARE if request.honest < 1 else 0)
    target = _largest_mu(request.epsilon, request.delta * (1 - shares), lots, request.neighbours)
    # The search takes a round's windows to be those of a report against a blank; the certificate those of two reports.
    for strictness in (0.9995, 0.998, 0.995, 0.99, 0.97, 0.95, 0.9):
        try:
            *opening, last = (Stage(stage.rounds, _one_round(stage, lots, size, counted, target * strictness)) for stage in asked)
            plan = LotsPlan(
                epsilon=request.epsilon,
                delta=request.delta,
                users=request.users,
                rounds=rounds,
                honest=request.honest,
                neighbours=request.neighbours,
                one_round=last.plan,
                opening=tuple(opening),
            )
            if _known_part(plan)[0].delta(plan.epsilon) <= plan.delta and plan.certified_delta <= plan.delta:
                return plan
        except NoCertificateError:
            continue
    secret = f"{lots:,} secret round{'' if lots == 1 else 's'}"
    raise tight.no_certificate(request, secret, "Choose open lots, fewer rounds or a smaller epsilon")


def _one_round(asked: _Asked, lots: int, size: int, counted: int, mu: float) -> SumPlan:
    """The plan of a round that gives up at most its share of delta and has about this mu, at most."""
    request = asked.request
    delta = request.delta / (2 * lots)
    epsilon = Guarantee(mu=mu, theorem=tight.THEOREM).epsilon(delta * (1 - tight.TAIL_SHARE - tight.SPARE))
    if epsilon == 0:
        remedy = (
            "With so large a delta no smaller epsilon can be told apart: choose a smaller delta, a larger epsilon, or open lots."
        )
        raise ArgumentError("delta", request.delta, f"smaller beside epsilon = {exact(request.epsilon)} with secret lots", remedy)
    round_request = SumRequest(
        **asdict(request)
        | {"epsilon": epsilon, "delta": delta, "users": size, "honest": counted / size, "neighbours": "zero-out", "rounds": 1}
    )
    try:
        return asked.encoder.plan(round_request)
    except ArgumentError as problem:
        if problem.name not in ("epsilon", "delta"):
            raise
        raise ArgumentError(problem.name, getattr(request, problem.name), problem.allowed, problem.remedy) from None  # as asked


@lru_cache(maxsize=256)
def _guarantee(plan: LotsPlan) -> Guarantee:
    """Theorem L for the plan's parameters, and Theorem B where the lots are known."""
    known, slack, residue = _known_part(plan)
    slack += known.allocations[0].given_up(residue, plan.neighbours)
    return replace(known, slack=min(1.0, slack * (1 + 1e-12)))


@lru_cache(maxsize=256)
def _known_part(plan: LotsPlan) -> tuple[Guarantee, float, float]:
    """The guarantee before what Theorem E gives up, which takes the longest to compute; its slack, and Theorem E's residue."""
    pair = plan.neighbours == "zero-out"
    most, mu, windows, residue = _counted_on(plan._request, plan.lots, plan.size), 0.0, 0.0, 0.0
    for stage in plan.stages:  # a smaller shift is a post-processing of a larger one: the largest mu holds in every round
        one_round = stage.plan
        certificate = certify(
            min(one_round.honest_users, most) * one_round.noise_bits,
            one_round.noise_probability,
            shift=one_round.encoded_shift(one_round.levels),
            reach=_as_neighbours(plan, one_round).encoded_reach(one_round.levels),  # two reports and a blank have one window
            dim=one_round.coordinates,
            tail=tight.TAIL_SHARE * plan.delta / (2 * plan.lots * one_round.coordinates),
            spare=SPARE_SHARE * plan.delta,
        )
        mu, residue = max(mu, certificate.mu), max(residue, certificate.residue)
        every = stage.rounds * one_round.blocks * one_round.coordinates
        windows += every * certificate.tau * (1 if pair else 2)  # the blank is between the two reports
    cheats = CHEATS_SHARE * plan.delta if plan.honest < 1 else 0.0
    slack = windows + plan.overflow + plan.shortage + cheats
    known = Guarantee(
        mu=0.0,
        slack=min(1.0, slack),
        neighbours=plan.neighbours,
        honest=plan.honest,
        theorem=f"{THEOREM}, by Theorem E" if residue else THEOREM,
        allocations=(Allocation(mu=mu, rounds=plan.lots),),
        watched=_if_watched(plan),
    )
    return known, slack, residue


def _as_neighbours(plan: LotsPlan, one_round: SumPlan) -> SumRequest:
    """A round's own plan is of a report against a blank: this one is of the run's neighbours."""
    return replace(one_round, neighbours=plan.neighbours)


def _if_watched(plan: LotsPlan) -> Guarantee:
    """One plain round of the honest users with the same lot, without the blanks: what holds if the shuffler tells all it knows."""
    chance, share = BATCH_SHARE * plan.delta, _honest_who_come(plan)
    honest = smallest_batch(plan.users, share, plan.lots, chance)
    if (
        plan.blanks is not None
    ):  # a shuffler that lets nobody in whom it can replace: all are people but the blanks, and few are cheats
        cheats = plan.size - _counted_on(plan._request, plan.lots, plan.size)
        honest, chance = min(honest, plan.least_people - cheats), chance + (CHEATS_SHARE * plan.delta if plan.honest < 1 else 0.0)
    honest = max(1, honest - plan.most_excluded)
    mu = windows = residue = 0.0
    try:
        for one_round in (stage.plan for stage in plan.stages):  # a user is in one of them: the worst counts
            request = _as_neighbours(plan, one_round)
            certificate = certify(
                honest * one_round.noise_bits,
                one_round.noise_probability,
                shift=request.encoded_shift(one_round.levels),
                reach=request.encoded_reach(one_round.levels),
                dim=one_round.coordinates,
                tail=tight.TAIL_SHARE * plan.delta / one_round.coordinates,
                spare=SPARE_SHARE * plan.delta,
            )
            mu, windows = max(mu, certificate.mu), max(windows, one_round.coordinates * certificate.tau)
            residue = max(residue, certificate.residue)
    except NoCertificateError:
        return Guarantee(mu=0.0, slack=1.0, neighbours=plan.neighbours, honest=share, theorem=NO_CERTIFICATE)
    # users who are left out of a round that is too full may be honest, and those who stay cheats
    slack = min(1.0, chance + windows + residue + (plan.overflow if share < 1 else 0.0))
    theorem = tight.THEOREMS["E" if residue else "B"]
    return Guarantee(mu=mu, slack=slack, neighbours=plan.neighbours, honest=share, theorem=theorem)


def _honest_who_come(plan: LotsPlan) -> float:
    """The fraction of users that is honest and comes, at least: anyone who stays away may be honest, and all cheats may come."""
    if max(plan.honest, plan.turnout) == 1:
        return min(plan.honest, plan.turnout)
    both = honest_total(plan.users, plan.honest) + honest_total(plan.users, plan.turnout) - plan.users
    return max(1, both) / plan.users


def _counted_on(request: SumRequest, lots: int, size: int) -> int:
    """Reports of a lot whose noise is counted on: all but those of cheats, and at least the user's own."""
    if honest_total(request.users, request.honest) == request.users:
        return size
    return size - min(size - 1, cheats_in_round(request.users, request.honest, lots, CHEATS_SHARE * request.delta))


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
        bound = max(divergences(math.exp(log_mu), rounds, epsilon, neighbours, _SEARCH_POINTS))
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


def _read_stages(values: Any) -> tuple[Stage, ...]:
    """The opening of a plan from its dictionary; its plans are certified again."""
    remedy = "Use the plan as plan_lots made it."
    if not isinstance(values, list) or not all(isinstance(value, dict) and set(value) == {"rounds", "plan"} for value in values):
        raise ArgumentError("opening", values, "a list of objects with rounds and plan", remedy)
    counts = [whole("opening.rounds", value["rounds"], at_least=1, remedy=remedy) for value in values]
    return tuple(Stage(count, SumPlan.from_dict(value["plan"])) for count, value in zip(counts, values, strict=True))


def _rounds(rounds: int) -> int:
    return whole("rounds", rounds, at_least=1, at_most=MAX_ROUNDS, remedy="State the number of rounds among which lots are drawn.")
