"""The membership game: run the real mechanism on neighbouring populations and try to tell which it was.

At delta = 1e-6 a bound on epsilon alone has no power: nobody runs enough trials to see a one-in-a-million event. Error rates
of a threshold test do: under mu-Gaussian privacy they satisfy beta >= Phi(Phi^-1(1 - alpha) - mu), so Clopper-Pearson upper bounds
on both give a lower bound on mu, and from that on epsilon (Nasr et al. 2023, for Gaussian-DP auditing).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri
from scipy.stats import beta as beta_law

from ..privacy._statements import exact, round_down, round_up
from ..privacy.gaussian import gaussian_mu
from ..privacy.guarantee import Guarantee
from ..validation import ArgumentError, Found, real, whole

Floats = NDArray[np.float64]
Mechanism = Callable[[bool], ArrayLike]
_EPSILONS = np.concatenate([np.linspace(0, 20, 401), np.linspace(21, 60, 40)])


@dataclass(frozen=True, kw_only=True)
class EmpiricalAudit:
    """What the membership game found.

    `passed`: False only if the claim is refuted at the stated false-alarm rate. `mu_estimate`: The mu of the error rates as they
    were found. `mu_lower`, `epsilon_lower`: Lower bounds that hold with probability 1 - false_alarm; epsilon at `delta`.
    `mu_claimed`: The claim as one mu. `mu_detectable`: The mu of a mechanism that this many trials would expose against the claim
    half of the time: above it the game has power, below it passing says little. Infinite where so few trials can refute nothing.
    `delta`: The delta at which epsilon is reported. `false_positive_bound`, `false_negative_bound`: Clopper-Pearson upper bounds of
    the test's error rates. `trials`: Runs of the mechanism on each side. `false_alarm`: The probability, at most, of refuting a
    claim that is true. `neighbours`: The claim's neighbouring relation.

    Examples
    --------
    >>> from croupier.privacy import Guarantee
    >>> noise = np.random.default_rng(7)
    >>> claim = Guarantee(mu=0.5, theorem="none: the noise is too small")
    >>> audit = empirical_audit(lambda neighbour: 3.0 * neighbour + noise.normal(), claim=claim, delta=1e-6, trials=1000)
    >>> audit.passed, audit.mu_lower > 0.5
    (False, True)
    """

    passed: bool
    mu_estimate: float
    mu_lower: float
    epsilon_lower: float
    mu_claimed: float
    mu_detectable: float
    delta: float
    false_positive_bound: float
    false_negative_bound: float
    trials: int
    false_alarm: float
    neighbours: str

    def to_dict(self) -> dict[str, Any]:
        """Give the findings in plain JSON types; `mu_detectable` is None if so few trials can refute nothing."""
        return asdict(self) | {"mu_detectable": self.mu_detectable if math.isfinite(self.mu_detectable) else None}

    def __str__(self) -> str:
        verdict = "passed" if self.passed else "REFUTED"
        power = (
            f"would notice mu >= {round_up(self.mu_detectable)}" if math.isfinite(self.mu_detectable) else "could notice nothing"
        )
        return (
            f"{verdict}: mu >= {round_down(self.mu_lower)} (epsilon >= {round_down(self.epsilon_lower)} at delta "
            f"{exact(self.delta)}) from {self.trials} trials per side, claimed mu <= {round_up(self.mu_claimed)}; {power}; "
            f"false-alarm rate {round_up(self.false_alarm)}, {self.neighbours} neighbours"
        )


def empirical_audit(
    mechanism: Mechanism,
    *,
    claim: Guarantee,
    delta: float,
    trials: int = 10_000,
    false_alarm: float = 1e-6,
    progress: Callable[[int], None] | None = None,
) -> EmpiricalAudit:
    """Play the membership game `trials` times on each side and test the claim.

    The projection and the threshold of the test are chosen on the first quarter of the trials and judged on the others, so they
    cannot overfit.

    Parameters
    ----------
    mechanism : callable
        `mechanism(neighbour)` runs the mechanism once, on the population or, where `neighbour` is True, on its neighbour. It
        returns what is released: a number, which the test compares with a threshold, or a vector, which it first projects on the
        difference of the means.
    claim : Guarantee
        What is tested.
    delta : float
        The delta at which epsilon is reported, above 0 and below 1.
    trials : int, default 10000
        Runs on each side, at least 100.
    false_alarm : float, default 1e-6
        The probability, at most, of refuting a claim that is true.
    progress : callable, optional
        Called with the number of runs so far, of both sides together.

    Returns
    -------
    EmpiricalAudit
        What was found.

    Raises
    ------
    ArgumentError
        If an argument is out of range, or the mechanism releases NaN or infinity.

    Guarantee
    ---------
    A claim that is true is refuted with probability at most `false_alarm`. A claim that passes is not proved.

    Examples
    --------
    >>> from croupier.privacy import Guarantee
    >>> noise = np.random.default_rng(7)
    >>> claim = Guarantee(mu=0.5, theorem="Gaussian mechanism")
    >>> empirical_audit(lambda neighbour: 0.5 * neighbour + noise.normal(), claim=claim, delta=1e-6, trials=1000).passed
    True
    """
    whole("trials", trials, at_least=100, remedy="Fewer trials cannot refute anything.")
    real("false_alarm", false_alarm, above=0, below=1, remedy="At 1e-6 a test practically never fails by chance.")
    real("delta", delta, above=0, below=1, remedy="State the delta at which epsilon is reported.")
    releases: list[Floats] = []
    for neighbour in (False, True):
        rows = []
        for trial in range(1, trials + 1):
            rows.append(np.atleast_1d(np.asarray(mechanism(neighbour), dtype=np.float64)))
            if progress:
                progress(neighbour * trials + trial)
        releases.append(np.stack(rows))
        if not np.all(np.isfinite(releases[-1])):
            raise ArgumentError(
                "mechanism",
                Found("released NaN or infinity"),
                "a function that releases finite numbers",
                "Map failures to a number.",
            )
    for_choosing = trials // 4
    direction = releases[1][:for_choosing].mean(axis=0) - releases[0][:for_choosing].mean(axis=0)
    base, moved = releases[0] @ direction, releases[1] @ direction
    threshold = _best_threshold(base[:for_choosing], moved[:for_choosing])
    judged = trials - for_choosing
    errors = int(np.sum(base[for_choosing:] > threshold)), int(np.sum(moved[for_choosing:] <= threshold))
    alpha, beta = (_upper(count, judged, false_alarm / 2) for count in errors)
    mu_lower = _mu_from_errors(alpha, min(1.0, beta + claim.slack))
    return EmpiricalAudit(
        passed=beta >= _trade_off(claim, alpha) and alpha >= _trade_off(claim, beta),
        mu_estimate=_mu_from_errors(*((count + 0.5) / (judged + 1) for count in errors)),
        mu_lower=mu_lower,
        epsilon_lower=Guarantee(mu=mu_lower, theorem="empirical audit").epsilon(delta),
        mu_claimed=_gaussian_equivalent(claim, delta),
        mu_detectable=_detectable(_gaussian_equivalent(claim, delta), judged, false_alarm),
        delta=delta,
        false_positive_bound=alpha,
        false_negative_bound=beta,
        trials=trials,
        false_alarm=false_alarm,
        neighbours=claim.neighbours,
    )


def _upper(successes: int, trials: int, level: float) -> float:
    """Clopper-Pearson: the rate is below this with probability 1 - level."""
    return 1.0 if successes == trials else float(beta_law.isf(level, successes + 1, trials - successes))


def _mu_from_errors(alpha: float, beta: float) -> float:
    if alpha >= 1 or beta >= 1:
        return 0.0
    return max(0.0, float(ndtri(1 - alpha) - ndtri(beta)))


def _best_threshold(base: Floats, moved: Floats) -> float:
    """The threshold with the fewest errors on these trials: for Gaussian-like noise the middle loses least."""
    candidates = np.unique(np.concatenate([base, moved]))
    right = np.searchsorted(np.sort(base), candidates, side="right") / base.size
    wrong = np.searchsorted(np.sort(moved), candidates, side="right") / moved.size
    best = int(np.argmax(right - wrong))
    return float((candidates[best] + candidates[min(best + 1, candidates.size - 1)]) / 2)  # between two outcomes that were seen


def _trade_off(claim: Guarantee, alpha: float) -> float:
    """The smallest false-negative rate that the claim allows at false-positive rate alpha (Dong, Roth and Su 2019, prop. 5).

    Any epsilon gives a bound that holds. The bound is concave in e^epsilon, so the best one is found by halving.
    """

    @cache
    def bound(place: int) -> float:
        epsilon = float(_EPSILONS[place])
        return 1 - claim.delta(epsilon) - math.exp(epsilon) * alpha

    low, high = 0, len(_EPSILONS) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if bound(middle) < bound(middle + 1) else (low, middle)
    return max(0.0, bound(low))


def _gaussian_equivalent(claim: Guarantee, delta: float) -> float:
    """The claim as one mu: its own, or that of the Gaussian with the same epsilon at delta."""
    return gaussian_mu(claim.epsilon(delta), delta) if claim.pure_rounds or claim.allocations else claim.mu


def _detectable(mu: float, trials: int, false_alarm: float) -> float:
    """The mu whose expected error rates at the middle threshold, with their Clopper-Pearson bounds, would give `mu`."""
    low, high = mu, mu + 20.0
    for _ in range(60):
        middle = (low + high) / 2
        errors = _upper(round(trials * float(ndtr(-middle / 2))), trials, false_alarm / 2)
        low, high = (low, middle) if _mu_from_errors(errors, errors) > mu else (middle, high)
    return high if high < mu + 20.0 else math.inf
