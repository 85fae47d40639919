"""What is promised: a guarantee is a value that can be asked, composed, compared, printed and sent."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import MISSING, asdict, dataclass, fields, replace
from typing import Any

import numpy as np
from scipy.special import gammaln

from ..validation import ArgumentError, one_of, real, whole
from .gaussian import gaussian_delta
from .rounding import round_up
from .words import proved_line

NEIGHBOURS = ("replace-one", "zero-out")
_ROUND_UP = 1 + 1e-9


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """An upper bound on what the analyst's view reveals about one user.

    The view of neighbouring populations is no easier to tell apart than N(0, 1) from N(mu, 1) together with
    `pure_rounds` independent randomized responses of `pure_epsilon`, but for an event of probability `slack`:

        delta(eps) <= slack + E_L[ deltaG(eps - L; mu) ],   L the loss of the randomized responses.

    Our own accounting (Theorem B) uses mu and slack only; the paper's theorems give (epsilon, delta) and use
    `pure_epsilon` and slack, so that both compose through one class (Kairouz, Oh and Viswanath for the latter).

    `neighbours` is "replace-one" (a user's vector against any other) or "zero-out" (against the zero vector); `honest`
    is the fraction of users assumed to follow the protocol; `theorem` is the statement that the bound rests on.

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

    def delta(self, epsilon: float) -> float:
        """Smallest delta we can promise at this epsilon, rounded up; at most 1."""
        real("epsilon", epsilon, at_least=0, remedy="Ask for a privacy loss of 0 or more.")
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
        """Smallest epsilon we can promise at this delta, rounded up; an error where none can be."""
        real("delta", delta, above=0, below=1, remedy="Choose delta well below 1 / users; 1e-6 is a common value.")
        if delta < self.slack or (delta == self.slack and self.mu > 0):
            raise ArgumentError(
                "delta",
                delta,
                f"greater than {round_up(self.slack)}, the slack of this guarantee",
                "Ask for a larger delta, or plan with the delta you need.",
            )
        if self.delta(0.0) <= delta:
            return 0.0
        low, high = 0.0, 1.0
        while self.delta(high) > delta:
            low, high = high, 2 * high
        while high - low > 1e-12 * high:
            middle = (low + high) / 2
            if middle in (low, high):
                break
            low, high = (low, middle) if self.delta(middle) <= delta else (middle, high)
        return high

    def compose(self, *others: Guarantee) -> Guarantee:
        """The guarantee of one user taking part in all of these, one after the other and adaptively.

        Gaussians add in squares, slacks add (accounting, section 4). Randomized responses of different epsilon are
        counted at the largest, which is an upper bound.
        """
        return _together((self, *others), "composition")

    def repeated(self, rounds: int) -> Guarantee:
        """The guarantee of taking part in `rounds` rounds of this kind."""
        whole("rounds", rounds, at_least=1, remedy="Give the number of rounds one user takes part in.")
        return replace(
            self,
            mu=self.mu * math.sqrt(rounds) * (_ROUND_UP if rounds > 1 else 1),
            slack=min(1.0, self.slack * rounds),
            pure_rounds=self.pure_rounds * rounds,
        )

    def worst_of(self, *others: Guarantee) -> Guarantee:
        """The guarantee where each user takes part in only one of these (disjoint batches, chosen without the data)."""
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
        )

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def to_json(self) -> str:
        return json.dumps(self.to_dict())

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Guarantee:
        known_fields(cls, values)
        return cls(**values)

    @classmethod
    def from_json(cls, text: str) -> Guarantee:
        return cls.from_dict(json.loads(text))

    def __str__(self) -> str:
        """(epsilon, delta) first, at delta = 1e-6 or at the smallest power of ten that the slack allows, then how it was proved."""
        return proved_line(self)


def known_fields(cls: type, values: dict[str, Any], *, defaults: bool = False) -> None:
    """Refuse JSON with a field we do not know or without one we need: it was made by something else.

    With `defaults`, fields that have one may be missing: a later version may add such fields and still read what this one wrote.
    """
    if not isinstance(values, dict):
        raise ArgumentError(cls.__name__, values, "a JSON object", "Pass what to_json() gave.")
    names = {f.name for f in fields(cls)}
    needed = {f.name for f in fields(cls) if not (defaults and f.default is not MISSING)}
    if not needed <= set(values) <= names:
        odd = sorted((set(values) - names) | (needed - set(values)))
        raise ArgumentError(
            f"{cls.__name__} JSON", ", ".join(odd), "exactly the fields of this version", "Pass what to_json() gave."
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
    )


def _same_relation(every: Iterable[Guarantee]) -> None:
    relations = {g.neighbours for g in every}
    if len(relations) > 1:
        raise ArgumentError("neighbours", sorted(relations), "the same for all guarantees", "Plan every round with one relation.")


def _theorems(every: Iterable[Guarantee], how: str) -> str:
    names = list(dict.fromkeys(g.theorem for g in every))
    return names[0] if len(names) == 1 else f"{how} of " + "; ".join(names)
