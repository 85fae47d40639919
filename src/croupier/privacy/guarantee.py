"""What is promised: a guarantee is a value that can be asked, composed, compared, printed and sent."""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import MISSING, asdict, dataclass, fields, replace
from typing import Any, Literal, get_args

import numpy as np
from scipy.optimize import brentq
from scipy.special import gammaln

from ..files import Figures, JsonText
from ..validation import ArgumentError, Found, one_of, real, whole
from ._allocation import SLACKS, Allocation
from ._statements import certified_line, exact, round_up
from .gaussian import gaussian_delta

Neighbours = Literal["replace-one", "zero-out"]
NEIGHBOURS: tuple[str, ...] = get_args(Neighbours)
_ROUND_UP = 1 + 1e-9
# Fields that only guarantees with secret lots have in JSON, and what the others have in their place.
_OF_LOTS: dict[str, Any] = {"allocations": (), "watched": None}


@dataclass(frozen=True, kw_only=True)
class Guarantee(JsonText, Figures):
    """An upper bound on what the analyst's view reveals about one user.

    The view of neighbouring populations is no easier to tell apart than N(0, 1) from N(mu, 1) together with
    `pure_rounds` independent randomized responses of `pure_epsilon`, except for an event of probability `slack`:

        delta(eps) <= slack + E_L[ deltaG(eps - L; mu) ],   L the loss of the randomized responses.

    Our own accounting (Theorem B) uses mu and slack only; the paper's theorems give (epsilon, delta) and use
    `pure_epsilon` and slack, so that both compose through one class (Kairouz, Oh and Viswanath for the latter).

    Parameters
    ----------
    mu : float
        The shift of the Gaussian, at least 0.
    slack : float, default 0.0
        Probability of the event that mu does not cover; adds to delta.
    neighbours : {"replace-one", "zero-out"}, default "replace-one"
        A user's vector against any other, or against the zero vector.
    honest : float, default 1.0
        The fraction of users assumed to follow the protocol, above 0.
    theorem : str
        The statement that the bound rests on.
    pure_epsilon : float, default 0.0
        The loss of one randomized response.
    pure_rounds : int, default 0
        How many randomized responses there are.
    allocations : tuple of Allocation, default ()
        Runs with secret lots, each with lots of its own (accounting, Theorem L). One alone is bounded by its own curve; several,
        or one with anything else, by Gaussians that dominate them except for a slack.
    watched : Guarantee, optional
        What holds against an attacker who also knows when each user answered, where that differs (`if_watched`).

    Guarantee
    ---------
    `epsilon` and `delta` are upper bounds, rounded up (docs/accounting.md#4-rounds-compose-as-gaussians).

    Examples
    --------
    >>> Guarantee(mu=0.2, slack=1e-9, theorem="accounting Theorem B").epsilon(1e-6)  # doctest: +ELLIPSIS
    0.83...
    """

    mu: float
    slack: float = 0.0
    neighbours: str = "replace-one"
    honest: float = 1.0
    theorem: str
    pure_epsilon: float = 0.0
    pure_rounds: int = 0
    allocations: tuple[Allocation, ...] = ()
    watched: Guarantee | None = None

    def __post_init__(self) -> None:
        hint = "Guarantees come from plan_sum; do not make one by hand unless you have a proof."
        real("mu", self.mu, at_least=0, remedy=hint)
        real("slack", self.slack, at_least=0, at_most=1, remedy=hint)
        one_of("neighbours", self.neighbours, NEIGHBOURS, hint)
        real("honest", self.honest, above=0, at_most=1, remedy=hint)
        real("pure_epsilon", self.pure_epsilon, at_least=0, remedy=hint)
        whole("pure_rounds", self.pure_rounds, at_least=0, remedy=hint)
        if not isinstance(self.theorem, str) or not self.theorem:
            raise ArgumentError("theorem", self.theorem, "the name of a theorem", hint)
        if not (isinstance(self.allocations, tuple) and all(isinstance(a, Allocation) for a in self.allocations)):
            raise ArgumentError("allocations", self.allocations, "a tuple of Allocation", hint)
        if self.watched is not None and (not isinstance(self.watched, Guarantee) or self.watched.allocations):
            raise ArgumentError("watched", self.watched, "a guarantee without secret lots", hint)

    @property
    def if_watched(self) -> Guarantee:
        """What holds against an attacker who also knows when each user answered; without secret lots, this guarantee itself."""
        return self.watched if self.watched is not None else self

    def delta(self, epsilon: float) -> float:
        """Give the smallest delta that is certified at this epsilon.

        Parameters
        ----------
        epsilon : float
            At least 0.

        Returns
        -------
        float
            Rounded up; at most 1.
        """
        real("epsilon", epsilon, at_least=0, remedy="Ask for a privacy loss of 0 or more.")
        return self._delta(epsilon)

    def _delta(self, epsilon: float) -> float:
        if not self.allocations:
            return self._gaussian_delta(epsilon)
        if self._alone:
            return min(1.0, self.slack + self.allocations[0].delta(epsilon, self.neighbours))
        return min(self.as_gaussian(slack)._gaussian_delta(epsilon) for slack in (0.0, *SLACKS))

    def as_gaussian(self, slack: float) -> Guarantee:
        """Give a guarantee without secret lots that this one implies.

        Parameters
        ----------
        slack : float
            What may be added to this guarantee's slack, for all allocations together; 0 counts the lots as known.

        Returns
        -------
        Guarantee
            The power of every test, in both orders, is at most that against its `mu` (and randomized responses) plus its `slack`.
            Such guarantees compose: mus add in squares and slacks add. This guarantee itself where it has no allocations.

        Examples
        --------
        >>> lots = Guarantee(mu=0.0, theorem="accounting Theorem L", allocations=(Allocation(mu=0.49, rounds=20),))
        >>> lots.as_gaussian(1e-8).mu < 2 * 0.49, lots.as_gaussian(1e-8).slack
        (True, 1e-08)
        """
        real("slack", slack, at_least=0, below=1, remedy="Choose a small part of delta.")
        if not self.allocations:
            return self
        share = slack / len(self.allocations) * (1 - 1e-15)
        squares = [
            times * allocation.gaussian(self.neighbours, share) ** 2 for allocation, times in Counter(self.allocations).items()
        ]
        total = math.sqrt(math.fsum([self.mu**2, *squares])) * _ROUND_UP
        return replace(self, mu=total, slack=min(1.0, self.slack + slack), allocations=())

    def _gaussian_delta(self, epsilon: float) -> float:
        if self.pure_rounds == 0 or self.pure_epsilon == 0:
            return min(1.0, self.slack + gaussian_delta(epsilon, self.mu))
        # k randomized responses: loss (k - 2 j) eps0 with binomial probabilities (optimal composition).
        k = self.pure_rounds
        j = np.arange(k + 1)
        losses = (k - 2 * j) * self.pure_epsilon
        log_weights = gammaln(k + 1) - gammaln(j + 1) - gammaln(k - j + 1)
        log_weights -= j * self.pure_epsilon + k * math.log1p(math.exp(-self.pure_epsilon))
        terms = [gaussian_delta(epsilon - loss, self.mu) for loss in losses]
        return min(1.0, self.slack + float(np.exp(log_weights) @ np.array(terms)) * _ROUND_UP)

    def epsilon(self, delta: float) -> float:
        """Give the smallest epsilon that is certified at this delta.

        Parameters
        ----------
        delta : float
            Above the slack and below 1.

        Returns
        -------
        float
            Rounded up.

        Raises
        ------
        ArgumentError
            If delta is out of range.
        """
        real("delta", delta, above=0, below=1, remedy="Choose delta well below 1 / users; 1e-6 is a common value.")
        if self.slack >= 1:
            remedy = "Secret lots promise more to an attacker who knows when each user answered if there are more users."
            raise ArgumentError("guarantee", Found("promises nothing: its slack is 1"), "of less slack to have an epsilon", remedy)
        if delta < self.slack or (delta == self.slack and (self.mu > 0 or self.allocations)):
            raise ArgumentError(
                "delta",
                delta,
                f"greater than {round_up(self.slack)}, the slack of this guarantee",
                "Ask for a larger delta, or plan with the delta you need.",
            )
        if self._delta(0.0) <= delta:
            return 0.0
        low, high = 0.0, 1.0
        while self._delta(high) > delta:
            low, high = high, 2 * high
        if self._alone:  # each delta takes a transform: fewer steps, to seven digits
            root = float(brentq(lambda epsilon: math.log(max(self._delta(epsilon), 1e-300) / delta), low, high, rtol=1e-8))
            return next(e for e in (root, root * (1 + 1e-7), root * (1 + 1e-5), root * (1 + 1e-3), high) if self._delta(e) <= delta)
        while high - low > 1e-12 * high:
            middle = (low + high) / 2
            if middle in (low, high):
                break
            low, high = (low, middle) if self._delta(middle) <= delta else (middle, high)
        return high

    @property
    def _alone(self) -> bool:
        """Whether there is one run with secret lots and nothing else."""
        return len(self.allocations) == 1 and self.mu == 0 and (self.pure_rounds == 0 or self.pure_epsilon == 0)

    def compose(self, *others: Guarantee) -> Guarantee:
        """Give the guarantee of one user who takes part in all of these, one after the other and adaptively.

        Gaussians add in squares, slacks add (accounting, section 4). Randomized responses of different epsilon are
        counted at the largest, which is an upper bound. Secret lots are taken to be drawn afresh in each; for the same lots in
        several runs see `Allocation.same_lots`.

        Parameters
        ----------
        *others : Guarantee
            For the same neighbours; fixed before the first of them is run (otherwise see `croupier.PrivacyAccount`).

        Returns
        -------
        Guarantee
            Of all of them together.
        """
        return _together((self, *others), "composition")

    def repeated(self, rounds: int) -> Guarantee:
        """Give the guarantee of taking part in several rounds of this kind.

        Parameters
        ----------
        rounds : int
            At least 1.

        Returns
        -------
        Guarantee
            Of all rounds together.
        """
        whole("rounds", rounds, at_least=1, remedy="State the number of rounds that each user takes part in.")
        return replace(
            self,
            mu=self.mu * math.sqrt(rounds) * (_ROUND_UP if rounds > 1 else 1),
            slack=min(1.0, self.slack * rounds),
            pure_rounds=self.pure_rounds * rounds,
            allocations=self.allocations * rounds,
            watched=self.watched and self.watched.repeated(rounds),
        )

    def worst_of(self, *others: Guarantee) -> Guarantee:
        """Give the guarantee where each user takes part in only one of these (disjoint batches, chosen without the data).

        Parameters
        ----------
        *others : Guarantee
            For the same neighbours.

        Returns
        -------
        Guarantee
            One that is no better than any of them.
        """
        every = (self, *others)
        _same_relation(every)
        return replace(
            self,
            mu=max(g.mu for g in every),
            slack=max(g.slack for g in every),
            honest=max(g.honest for g in every),
            theorem=_theorems(every, "worst of disjoint batches"),
            pure_epsilon=max(g.pure_epsilon for g in every),
            pure_rounds=max(g.pure_rounds for g in every),
            allocations=_worst_allocations(every),
            watched=_watched(every, lambda first, *rest: first.worst_of(*rest)),
        )

    def to_dict(self) -> dict[str, Any]:
        """The fields in plain JSON types; those of secret lots only where there are some.

        Returns
        -------
        dict
            The fields by name.
        """
        values = asdict(self)
        values["allocations"] = list(values["allocations"])
        values["watched"] = self.watched and self.watched.to_dict()
        return {name: value for name, value in values.items() if value or name not in _OF_LOTS}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Guarantee:
        """Read a guarantee from its dictionary.

        Parameters
        ----------
        values : dict
            Output of `to_dict`; a field that is unknown or missing is refused.

        Returns
        -------
        Guarantee
            The same.
        """
        known_fields(cls, _OF_LOTS | values if isinstance(values, dict) else values)
        values = _OF_LOTS | values
        for allocation in values["allocations"]:
            known_fields(Allocation, allocation)
        return cls(
            **values
            | {
                "allocations": tuple(Allocation(**allocation) for allocation in values["allocations"]),
                "watched": cls.from_dict(values["watched"]) if values["watched"] else None,
            }
        )

    def figures(self) -> list[dict[str, Any]]:
        """Return what is promised at some deltas, each epsilon rounded up.

        Returns
        -------
        list of dict
            "delta", "epsilon", "neighbours", "honest" and "theorem".
        """
        deltas = [delta for delta in (1e-5, 1e-6, 1e-7, 1e-8) if delta > 2 * self.slack]
        facts = {"neighbours": self.neighbours, "honest": exact(self.honest), "theorem": self.theorem}
        return [{"delta": exact(delta), "epsilon": round_up(self.epsilon(delta))} | facts for delta in deltas]

    def to_dp_event(self, cover: float = 1e-9) -> Any:
        """Return the guarantee as an event of dp_accounting, for its accountants. Needs the package dp-accounting.

        A Gaussian of mu is `GaussianDpEvent(1 / mu)` for add-or-remove neighbours there, whichever neighbours it protects here. An
        event has no place for a probability that nothing is known of: **add `slack`, and `cover` where there are secret lots, to
        every delta** that an accountant reports. Secret lots are a `RandomAllocationDpEvent` for zero-out neighbours where the
        installed version has one; otherwise a Gaussian that covers them except for `cover`.

        Parameters
        ----------
        cover : float, default 1e-9
            What a Gaussian in place of secret lots may leave out, above 0.

        Returns
        -------
        dp_accounting.DpEvent
            An event that is no better than this guarantee, slack and cover apart.

        Raises
        ------
        ImportError
            If dp-accounting is not installed.
        ArgumentError
            If it has randomized responses (the paper's calibration), for which there is no event of these neighbours.

        Examples
        --------
        >>> import pytest
        >>> dp_event = pytest.importorskip("dp_accounting").dp_event
        >>> Guarantee(mu=0.5, slack=1e-9, theorem="accounting Theorem B").to_dp_event().noise_multiplier <= 2
        True
        """
        try:
            from dp_accounting import dp_event  # noqa: PLC0415  (an optional package)
        except ImportError as error:
            raise ImportError("to_dp_event needs dp-accounting: pip install dp-accounting") from error
        if self.pure_rounds:
            remedy = "Use the tight calibration, whose guarantees are Gaussian."
            raise ArgumentError("pure_rounds", self.pure_rounds, "0: events of responses are for other neighbours", remedy)
        drawn: Any = getattr(dp_event, "RandomAllocationDpEvent", None) if self.neighbours == "zero-out" else None
        plain = self if drawn is not None or not self.allocations else self.as_gaussian(cover)
        events: list[Any] = []
        if plain.mu:
            events.append(dp_event.GaussianDpEvent(math.nextafter(1 / plain.mu, 0.0)))
        for lots in plain.allocations:
            one = dp_event.GaussianDpEvent(math.nextafter(1 / lots.mu, 0.0))
            events.append(drawn(event=one, num_selected=1, num_steps=lots.rounds))
        if not events:
            return dp_event.NoOpDpEvent()
        return events[0] if len(events) == 1 else dp_event.ComposedDpEvent(events)

    def __str__(self) -> str:
        """(epsilon, delta) first, at delta = 1e-6 or at the smallest power of ten that the slack allows, then by what."""
        return certified_line(self)


def known_fields(kind: type, values: dict[str, Any], *, defaults: bool = False) -> None:
    """Refuse JSON with a field we do not know or without one we need: it was made by something else."""
    if not isinstance(values, dict):
        raise ArgumentError(kind.__name__, values, "a JSON object", "Pass what to_json() gave.")
    names = {f.name for f in fields(kind)}
    needed = {f.name for f in fields(kind) if not (defaults and f.default is not MISSING)}
    if not needed <= set(values) <= names:
        odd = sorted((set(values) - names) | (needed - set(values)))
        raise ArgumentError(
            f"{kind.__name__} JSON", ", ".join(odd), "exactly the fields of this version", "Pass what to_json() gave."
        )


def _together(every: tuple[Guarantee, ...], how: str) -> Guarantee:
    _same_relation(every)
    return replace(
        every[0],
        mu=math.sqrt(math.fsum(g.mu**2 for g in every)) * (_ROUND_UP if len(every) > 1 else 1),
        slack=min(1.0, math.fsum(g.slack for g in every)),
        honest=max(g.honest for g in every),
        theorem=_theorems(every, how),
        pure_epsilon=max(g.pure_epsilon for g in every),
        pure_rounds=sum(g.pure_rounds for g in every),
        allocations=tuple(allocation for g in every for allocation in g.allocations),
        watched=_watched(every, lambda *rest: _together(rest, how)),
    )


def _watched(every: Iterable[Guarantee], combined: Callable[..., Guarantee]) -> Guarantee | None:
    """What is left of all of these to an attacker who knows when users answered; None if none of them has secret lots."""
    every = tuple(every)
    return combined(*(g.if_watched for g in every)) if any(g.watched for g in every) else None


def _worst_allocations(every: Iterable[Guarantee]) -> tuple[Allocation, ...]:
    """Allocations that are together no better than those of any of these: the worst of the largest, of the second largest, ..."""
    ranked = (sorted(g.allocations, key=lambda a: a.mu, reverse=True) for g in every)
    return tuple(functools.reduce(Allocation.worse_of, filter(None, level)) for level in itertools.zip_longest(*ranked))


def _same_relation(every: Iterable[Guarantee]) -> None:
    relations = {g.neighbours for g in every}
    if len(relations) > 1:
        raise ArgumentError("neighbours", sorted(relations), "the same for all guarantees", "Plan every round with one relation.")


def _theorems(every: Iterable[Guarantee], how: str) -> str:
    names = list(dict.fromkeys(g.theorem for g in every))
    return names[0] if len(names) == 1 else f"{how} of " + "; ".join(names)
