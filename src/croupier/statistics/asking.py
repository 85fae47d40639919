"""`ask`: one private round for any query over any population."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..population import ArrayPopulation, Batch, Population, Question
from ..privacy import Guarantee, SumPlan, plan_sum
from ..protocol import Secret, SumEstimate
from ..validation import ArgumentError, real, whole
from .query import Statistic

Floats = NDArray[np.float64]


class Account(Protocol):
    """What counts the privacy spent on the same people: `croupier.estimator.PrivacyAccount`."""

    def charge(self, what: str, users: int, guarantee: Guarantee | None, *, unit: str) -> Any:
        """Write the release down before anybody is asked, or refuse."""
        ...


@dataclass(frozen=True, eq=False)
class Answer:
    """What one private round said.

    Attributes
    ----------
    value : what the query's decoder made of the noisy sum, with its error bars.
    estimate : the noisy sum itself. plan : what users sent, and what is proved.
    """

    value: Any
    estimate: SumEstimate
    plan: SumPlan

    @property
    def guarantee(self) -> Guarantee | None:
        """What the answer reveals about one user; None where it was seeded, or on a stand-in: NOT private then."""
        return self.estimate.guarantee

    @property
    def private(self) -> bool:
        """Whether there is a guarantee."""
        return self.guarantee is not None

    @property
    def users(self) -> int:
        """How many people answered."""
        return self.estimate.users

    @property
    def mean_noise_std(self) -> float:
        """Error bar of one coordinate of the mean vector: the standard deviation of the noise, at its largest over all data."""
        return self.estimate.mean_noise_std

    def __str__(self) -> str:
        return f"{self.value}\n{self.estimate}"


def ask(
    query: Statistic,
    data: Any,
    *,
    epsilon: float,
    delta: float,
    groups: Any = None,
    honest: float = 1.0,
    neighbours: str = "replace-one",
    max_inflation: float = 1.05,
    seed: int | None = None,
    account: Account | None = None,
) -> Answer:
    """Ask everybody one question, in one private round.

    Parameters
    ----------
    query : what is asked: `Histogram`, `Moments`, `CustomQuery`, or anything with the shape of `Statistic`.
    data : (X, y), X alone, or a Population.
    epsilon, delta : what each user is promised.
    groups : for data in memory, whose row is whose; someone with several rows answers with the mean of their vectors.
    honest : fraction of users that is counted on. neighbours, max_inflation : see `plan_sum`.
    seed : fixes the noise, for tests: NOT private. account : a PrivacyAccount that is charged before anybody is asked.

    Returns
    -------
    Answer : `value`, `guarantee`, `estimate`, `plan`.

    Raises
    ------
    ArgumentError : a bad argument or bad records; nobody was asked, nothing was spent.

    Guarantee
    ---------
    (epsilon, delta) for each user, for the answer and all that the analyzer saw. It rests on the query's norm, to which vectors are
    clipped, and its diameter, which the query's own encoder enforces.

    Examples
    --------
    >>> import numpy as np, croupier as cr
    >>> ages = np.random.default_rng(0).normal(40, 10, size=(20_000, 1))
    >>> answer = cr.ask(cr.statistics.Histogram(0, 100, bins=10), ages, epsilon=1.0, delta=1e-6)
    >>> bool(abs(answer.value.quantile(0.5) - 40) < 1), answer.guarantee.delta(1.0) <= 1e-6
    (True, True)
    """
    population = people(data, groups)
    plan = plan_for(
        query, population.users, epsilon=epsilon, delta=delta, honest=honest, neighbours=neighbours, max_inflation=max_inflation
    )
    if seed is not None:
        whole("seed", seed, at_least=0, remedy="Leave it out: a seed makes the answer reproducible, NOT private.")
    if account is not None and not hasattr(account, "charge"):
        raise ArgumentError("account", account, "a PrivacyAccount", "For a file: PrivacyAccount(path).")
    population.prepare(_look_at(query))
    if account is not None:
        private = seed is None and population.private
        guarantee = plan.guarantee if private else None
        account.charge(type(query).__name__, population.users, guarantee, unit=population.unit)
    estimate = answered(query, population, plan, seed)
    return Answer(query.decode(estimate), estimate, plan)


def plan_for(query: Statistic, users: int, *, epsilon: float, delta: float, **options: Any) -> SumPlan:
    """The plan under which `ask` asks so many users; no data is touched. `options` go to `plan_sum`."""
    whole("users", users, at_least=2, remedy="One person alone has nowhere to hide.")
    real("delta", delta, above=0, below=1 / users, remedy="1 / users would allow publishing somebody's record; take much less.")
    return plan_sum(
        epsilon=epsilon,
        delta=delta,
        users=users,
        dim=query.dim,
        norm=query.norm,
        diameter=min(query.diameter, 2 * query.norm),
        **options,
    )


def answered(query: Statistic, population: Population, plan: SumPlan, seed: int | None) -> SumEstimate:
    """The round itself: everybody is asked, with randomness of this question alone."""
    secret = Secret.fresh() if seed is None else Secret.of_seed(seed)
    return population.answer(Question(query, Batch.everyone(population.users), plan, secret))


def people(data: Any, groups: Any = None) -> Population:
    """`data` as a population: one already, (X, y), or X alone."""
    if hasattr(type(data), "answer") and hasattr(data, "users"):  # of the type: a table may have columns of these names
        if groups is not None:
            raise ArgumentError("groups", "given", "left out beside a population", "Give it to the population.")
        found: Population = data
        return found
    if isinstance(data, list) or (isinstance(data, tuple) and len(data) != 2):
        allowed = "(X, y), X or a Population"
        raise ArgumentError("data", type(data).__name__, allowed, "Pass a tuple of features and targets, or an array.")
    X, y = data if isinstance(data, tuple) else (data, None)
    return ArrayPopulation(X, y, groups=groups)


def _look_at(query: Statistic) -> Any:
    """The query's own test of records, if it has one."""
    return getattr(query, "check_records", _accept)


def _accept(X: Any, y: Any) -> None:
    """Any records: the query makes something of whatever there is."""
