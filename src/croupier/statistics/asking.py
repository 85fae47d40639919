"""`ask`: one private round for any query over any population."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ..files import Figures
from ..population import ArrayPopulation, Population, Query
from ..population.population import Batch, Question
from ..privacy import Guarantee, SumPlan, plan_sum
from ..privacy.guarantee import Neighbours
from ..privacy.plan import default_delta
from ..protocol import SumEstimate
from ..protocol.randomness import Secret
from ..validation import ArgumentError, Found, real, whole
from ._holdout import Part

Floats = NDArray[np.float64]


class Account(Protocol):
    """What counts the privacy spent on the same people: `croupier.estimator.PrivacyAccount` is one."""

    def charge(self, what: str, users: int, guarantee: Guarantee | None, *, unit: str) -> Any:
        """Write the release down before anybody is asked, or refuse it."""
        ...


@runtime_checkable
class PartAccount(Account, Protocol):
    """An account that knows parts of the people, and does not add up what is spent on the two sides of a split."""

    def of_part(self, part: Part) -> Account:
        """Return the account for releases about a part of the people."""
        ...


@dataclass(frozen=True, eq=False)
class Answer:
    """The answer to one private round.

    Parameters
    ----------
    value : object
        What the query's decoder returned for the noisy sum, with its error bars.
    estimate : SumEstimate
        The noisy sum itself.
    plan : SumPlan
        What users sent, and what is certified.

    Attributes
    ----------
    guarantee : Guarantee or None
        What the answer reveals about one user; None if it is NOT private.
    private : bool
        Whether there is a guarantee.
    users : int
        Number of people who answered.
    mean_noise_std : float
        Error bar of one coordinate of the mean vector.
    words, counts, ... : object
        Whatever else `value` has.

    Guarantee
    ---------
    That of `plan`, where `guarantee` is not None.

    Examples
    --------
    >>> import numpy as np, croupier as cr
    >>> X = np.random.default_rng(0).uniform(size=(5_000, 1))
    >>> answer = cr.ask(cr.statistics.Histogram(0, 1, bins=4), X, epsilon=1.0, delta=1e-6)
    >>> answer.private, answer.users, answer.value.counts.shape
    (True, 5000, (4,))
    """

    value: Any
    estimate: SumEstimate
    plan: SumPlan

    @property
    def guarantee(self) -> Guarantee | Any:
        """What the answer reveals about one user; None if it was seeded, or on a stand-in: NOT private then."""
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

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or "value" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.value, name)

    def _repr_html_(self) -> str:
        shown = self.value._repr_html_() if isinstance(self.value, Figures) else f"<pre>{escape(str(self.value))}</pre>"
        return f"{shown}\n<p>{escape(str(self.estimate))}</p>"

    def __str__(self) -> str:
        return f"{self.value}\n{self.estimate}"


def ask(
    query: Query,
    data: Any,
    *,
    epsilon: float,
    delta: float | None = None,
    groups: Any = None,
    honest: float = 1.0,
    neighbours: Neighbours = "replace-one",
    max_inflation: float = 1.05,
    seed: int | None = None,
    account: Account | None = None,
) -> Answer:
    """Ask everybody one question, in one private round.

    Parameters
    ----------
    query : Query
        What is asked: a `Histogram`, `Moments`, a `CustomQuery`, or a `croupier.population.Query` of your own.
    data : tuple of (X, y), array_like or Population
        Records and targets, records alone, or users wherever they are. Some queries take what they can make records of: a list
        of texts for `HeavyHitters`.
    epsilon : float
        Epsilon of the promise to each user.
    delta : float, optional
        Delta of the promise to each user; below 1 / users. Default: 1e-6, or 0.1 / users if that is less.
    groups : array_like, optional
        For data in memory: the person of each row. A person with several rows answers with the mean of their vectors.
    honest : float, default 1.0
        Fraction of the users whose noise is counted on.
    neighbours : {"replace-one", "zero-out"}, default "replace-one"
        The relation for which the guarantee is certified; see `plan_sum`.
    max_inflation : float, default 1.05
        How much noise above a curator's is accepted for fewer bits; see `plan_sum`.
    seed : int, optional
        Fixes the noise, for tests: the answer is NOT private.
    account : Account, optional
        Charged before anybody is asked.

    Returns
    -------
    Answer
        The decoded `value`, with `guarantee`, `estimate` and `plan`.

    Raises
    ------
    ArgumentError
        A bad argument or bad records; nobody was asked, and nothing was spent.
    NoCertificateError
        If no plan can be certified for this request; nobody was asked.

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
    if not (isinstance(query, Query) and hasattr(query, "dim")):
        allowed = "a Query, with dim, norm and diameter"
        remedy = "Use Histogram(...), HeavyHitters(...), or CustomQuery(function, dim=..., norm=...)."
        raise ArgumentError("query", query, allowed, remedy)
    population = people(data if _is_population(data) else query.encode(data), groups, blank=query.blanks)
    plan = plan_for(
        query, population.users, epsilon=epsilon, delta=delta, honest=honest, neighbours=neighbours, max_inflation=max_inflation
    )
    if seed is not None:
        whole("seed", seed, at_least=0, remedy="Leave it out: a seed makes the answer reproducible, NOT private.")
    if account is not None and not hasattr(account, "charge"):
        raise ArgumentError("account", account, "a PrivacyAccount", "For a file: PrivacyAccount(path).")
    population.prepare(query.test)
    if account is not None:
        private = seed is None and population.private
        guarantee = plan.guarantee if private else None
        account.charge(type(query).__name__, population.users, guarantee, unit=population.unit)
    estimate = answered(query, population, plan, seed)
    return Answer(query.decode(estimate), estimate, plan)


def plan_for(query: Query, users: int, *, epsilon: float, delta: float | None = None, **options: Any) -> SumPlan:
    """Return the plan under which `ask` would ask this many users. No data is touched.

    Guarantee
    ---------
    (epsilon, delta) for each user, as long as vectors have the query's norm and diameter.
    """
    whole("users", users, at_least=2, remedy="A single person cannot be hidden.")
    delta = default_delta(users) if delta is None else delta
    real("delta", delta, above=0, below=1 / users, remedy="1 / users would allow publishing a person's record; choose much less.")
    chosen = {"rotation": "auto" if query.entries is None else None, "answers": query.answers} | options
    if chosen["rotation"] is None:  # a rotation's range alone depends on it
        chosen["answers"] = None
    return plan_sum(
        epsilon=epsilon,
        delta=delta,
        users=users,
        dim=query.dim,
        norm=query.norm,
        diameter=min(query.diameter, 2 * query.norm),
        **chosen,
    )


def answered(query: Query, population: Population, plan: SumPlan, seed: int | None) -> SumEstimate:
    """The round itself: everybody is asked, with randomness of this question alone."""
    secret = Secret.fresh() if seed is None else Secret.of_seed(seed)
    return population.answer(Question(query, Batch.everyone(population.users), plan, secret))


def _is_population(data: Any) -> bool:
    """Whether data can be asked as they are. Of the type: a table may have columns of these names."""
    return hasattr(type(data), "answer") and hasattr(data, "users")


def people(data: Any, groups: Any = None, *, blank: bool = False) -> Population:
    """`data` as a population: one already, (X, y), or X alone; with `blank`, values that are not finite are left to the query."""
    if _is_population(data):
        if groups is not None:
            raise ArgumentError("groups", Found("is given"), "left out for a population", "Give it to the population.")
        population: Population = data
        return population
    if isinstance(data, list) or (isinstance(data, tuple) and len(data) != 2):
        allowed = "(X, y), X or a Population"
        raise ArgumentError("data", type(data).__name__, allowed, "Pass a tuple of features and targets, or an array.")
    X, y = data if isinstance(data, tuple) else (data, None)
    return ArrayPopulation(X, y, groups=groups, invalid="blank" if blank else "refuse")
