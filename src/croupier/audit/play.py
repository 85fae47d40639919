"""Play every game, at one false-alarm rate for all of them together."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ..estimator import (
    BudgetWarning,
    FeatureNormWarning,
    FewPeopleWarning,
    MostlyNoiseWarning,
    RadiusWarning,
    WeakPrivacyWarning,
    WideIntervalsWarning,
)
from ..validation import ArgumentError, Found, real, whole
from ._games import PROTOCOL, Coins, Kind
from ._models import MODELS
from .empirical import EmpiricalAudit, empirical_audit

try:
    from . import _deployed as deployed
except ModuleNotFoundError:  # the extra "service" is not installed
    DEPLOYED: tuple[Kind, ...] = ()
else:
    DEPLOYED = deployed.DEPLOYED

EPSILON, DELTA = 8.0, 1e-6
FALSE_ALARM = 1e-6
# Runs on each side, of which slow games have a share. Both are enough for the others to notice that noise bits were halved (but for
# the scaler).
TRIALS, QUICK_TRIALS = 6_000, 1_500
_FEWEST = 100
KINDS = (*PROTOCOL, *MODELS, *DEPLOYED)
_NOT_MEANT_HERE = (
    BudgetWarning,
    FeatureNormWarning,
    FewPeopleWarning,
    MostlyNoiseWarning,
    RadiusWarning,
    WeakPrivacyWarning,
    WideIntervalsWarning,
)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The result of one game.

    `kind`: What was released. `seen`: What the player saw. `epsilon_claimed`: The claim's epsilon at the delta of the game, rounded
    up. `theorem`: What the claim rests on. `audit`: The claim as mu, the point estimate, the lower bound and the verdict. `passed`:
    False only where the claim is refuted.
    """

    kind: str
    seen: str
    epsilon_claimed: float
    theorem: str
    audit: EmpiricalAudit

    @property
    def passed(self) -> bool:
        """False only where the claim is refuted."""
        return self.audit.passed

    def to_dict(self) -> dict[str, Any]:
        """Return the finding in plain JSON types."""
        plain = {"kind": self.kind, "seen": self.seen, "epsilon_claimed": self.epsilon_claimed, "theorem": self.theorem}
        return plain | self.audit.to_dict()


@dataclass(frozen=True, kw_only=True)
class Findings:
    """The results of all games, one row a kind.

    `rows`: In the order of the kinds. `delta`: The delta at which epsilons are given. `trials`: Runs on each side of every game
    that is not slow; each row has its own number. `false_alarm`: Probability that any of the rows refutes a claim that holds. Each
    row has an equal share of it. `private`: Whether the coins were secure, as they are where results are released. `passed`: False
    where any claim is refuted.

    Guarantee
    ---------
    If all claims hold, `passed` is False with probability at most `false_alarm`.

    Examples
    --------
    >>> from croupier.audit.play import KINDS, play_all
    >>> findings = play_all(KINDS[:1], trials=200)
    >>> findings.passed, findings.trials, findings.private
    (True, 200, True)
    """

    rows: tuple[Finding, ...]
    delta: float
    trials: int
    false_alarm: float
    private: bool

    @property
    def passed(self) -> bool:
        """False where any claim is refuted."""
        return all(row.passed for row in self.rows)

    def to_dict(self) -> dict[str, Any]:
        """Return the findings in plain JSON types: the fields, "passed", and one dict per row."""
        facts = {"passed": self.passed, "delta": self.delta, "trials": self.trials, "false_alarm": self.false_alarm}
        return facts | {"private": self.private, "rows": [row.to_dict() for row in self.rows]}

    def to_json(self) -> str:
        """Return what `croupier audit --all --json` prints: JSON text."""
        return json.dumps(self.to_dict(), indent=2)


def play_all(
    kinds: Sequence[Kind] = KINDS,
    *,
    epsilon: float = EPSILON,
    delta: float = DELTA,
    trials: int = TRIALS,
    false_alarm: float = FALSE_ALARM,
    seed: int | None = None,
    progress: Callable[[str, int], None] | None = None,
) -> Findings:
    """Play the membership game against every kind of result.

    Parameters
    ----------
    kinds : sequence of Kind
        What is played against; default: everything that is released.
    epsilon, delta : float
        What the runs promise. A game tells most with the fewest runs where epsilon is about 8: errors are neither rare nor even.
    trials : int
        Runs on each side of a game; slow ones have their `share` of that, and at least 100.
    false_alarm : float
        Probability that any claim which holds is refuted. It is divided equally among the kinds.
    seed : int, optional
        For tests that have to be repeated. Left out, coins are secure, as where results are released.
    progress : callable, optional
        Called with the kind's name and the number of its runs so far.

    Returns
    -------
    Findings
        One row per kind.

    Raises
    ------
    ArgumentError
        If there is nothing to play against, or an argument is out of range.

    Examples
    --------
    >>> from croupier.audit.play import KINDS, play_all
    >>> play_all(KINDS[:1], trials=200).passed
    True
    """
    if not kinds:
        raise ArgumentError("kinds", Found("is empty"), "at least one kind of result", "Default: all kinds.")
    whole("trials", trials, at_least=_FEWEST, remedy="Fewer trials cannot refute anything.")
    real("false_alarm", false_alarm, above=0, below=1, remedy="At 1e-6 a test practically never fails by chance.")
    rows = []
    with quiet():
        for kind in kinds:
            coins = Coins(seed)
            claim, mechanism = kind.game(epsilon, delta, coins)
            audit = empirical_audit(
                mechanism,
                claim=claim,
                delta=delta,
                trials=runs_of(kind, trials),
                false_alarm=false_alarm / len(kinds),
                progress=_tell(progress, kind.name),
            )
            rows.append(
                Finding(kind=kind.name, seen=kind.seen, epsilon_claimed=claim.epsilon(delta), theorem=claim.theorem, audit=audit)
            )
    return Findings(rows=tuple(rows), delta=delta, trials=trials, false_alarm=false_alarm, private=seed is None)


def runs_of(kind: Kind, trials: int) -> int:
    """Return the runs on each side of one game."""
    return max(_FEWEST, round(kind.share * trials))


@contextmanager
def quiet() -> Iterator[None]:
    """Without what is said to people who hold real data, and what a shuffler tells its operator: the people here are invented."""
    log = logging.getLogger("croupier")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            for category in _NOT_MEANT_HERE:
                warnings.simplefilter("ignore", category)
            yield
    finally:
        log.setLevel(level)


def _tell(progress: Callable[[str, int], None] | None, name: str) -> Callable[[int], None] | None:
    return None if progress is None else lambda runs: progress(name, runs)
