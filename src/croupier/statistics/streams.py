"""The same count day after day with one promise for all days: running totals from sums whose noise is shared by the days.

With S the square root of prefix sums, S S x are the running totals of daily counts x. On day t everybody sends entry t of S times
their own days, so each day is one private sum, and all days together are one vector per person: one plan covers them. The analyst
multiplies by S once more, for which it needs no later day. docs/statistics-theory.md has the range and the lower bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..files import Figures
from ..population import Query
from ..privacy import Guarantee, SumPlan
from ..protocol import SecureRandom, SeededRandom, SumEstimate, VectorSum
from ..validation import ArgumentError, Found, whole
from .asking import Account, Answer, plan_for
from .histogram import Score, falling_column, root_of_prefix_sums

# Proof that one plan covers all days, also where what people do depends on earlier totals. Neighbours are two rules for one
# person, each a function of all sums told before, with the same days of answering; others may follow any rules of their own.
# Given the sums before day t and the others' answers to it, its noise is fresh. By Theorem B for one coordinate day t is
# mu_t-Gaussian private with slack tau, mu_t the smaller of ct |s_t| and c |s_t| + kappa, where s_t, in levels, is what the two
# rules send apart on that day. It depends on the sums before. But along every path the person counts on at most `per_person` days
# under either rule, and no day that was told changes, so (s_1, ..., s_d) is the difference of two vectors of the range, without
# the days of a person who is away: at most S long. So the sum of mu_t^2 is at most min(ct S, c S + kappa sqrt(d))^2 = mu^2 on
# every path (Minkowski), and Theorem F with the single cap mu, and d tau for slacks, is Theorem B's bound. QED
#
# Theorem E, day by day: the kernels from (P, Q) to the two laws of a day, and the shifts m_t = c |s_t| + 2 c k, may depend on the
# history. (Q, P') is, day by day, a Gaussian pair of shift m_t, and on every path these have length at most mu', so by Theorem F
# the power under P' is at most G_mu'. (P', P) does not depend on the history, and the rest of its proof stands as it is. QED
#
# People who are away on day t are missing from its sum. Let k of n answer, drawn regardless of their days. n / k times their sum
# has the right mean, and the variance n^2 (1/k - 1/n) n/(n - 1) v, v the variance of what n people would send. Numbers in [0, m]
# with the mean a have v <= a (m - a). Standard errors of several days are added up (Minkowski): the same people may be away on
# all.

Floats = NDArray[np.float64]
MOST_DAYS = 4_096
# More than the rounding of a vector's length and distance.
_ROUNDING = 1 + 1e-9


@dataclass(frozen=True)
class Stream(Query):
    """How many, day by day: running totals over a number of days, with one promise for all of them together.

    `croupier.ask` takes a table with one row per person and one column per day: 1 where the person counts on that day, 0 or NaN
    where not, or an amount between. `start` begins a stream whose days are added as they come.

    Parameters
    ----------
    days : int
        How many days there are, at most 4096.
    per_person : int, default 1
        On how many days a person counts at most, or the sum of their amounts. What is beyond is left out, the first days first.
        Noise grows faster than its square root.

    Attributes
    ----------
    dim : int
        Coordinates of a vector: the days.
    norm : float
        Bound on the l2 norm of a vector: that of a person who counts on the first `per_person` days.
    diameter : float
        Bound on the l2 distance of two vectors.
    blanks : bool
        True: NaN is a day on which a person does not count.

    Raises
    ------
    ArgumentError
        If a parameter is out of range.

    Guarantee
    ---------
    That of the plan under which it is asked, for all days of a person together, also where what people do on a day depends on the
    totals of the days before (docs/statistics-theory.md). Who answered on which day is not hidden.

    Examples
    --------
    >>> import numpy as np, croupier as cr
    >>> rng = np.random.default_rng(0)
    >>> people = np.zeros((20_000, 30))
    >>> people[np.arange(20_000), rng.integers(30, size=20_000)] = 1  # everybody falls ill on one of 30 days
    >>> answer = cr.ask(cr.Stream(days=30), people, epsilon=1.0, delta=1e-6)
    >>> bool(np.abs(answer.totals - people.sum(axis=0).cumsum()).max() < 6 * answer.total_std.max())
    True
    """

    days: int
    per_person: int = 1

    def __post_init__(self) -> None:
        whole("days", self.days, at_least=1, at_most=MOST_DAYS, remedy="30 is a month, 365 a year.")
        whole(
            "per_person", self.per_person, at_least=1, at_most=self.days, remedy="State on how many days a person counts at most."
        )

    blanks = True
    parallel = True

    @cached_property
    def root(self) -> Floats:
        """S with S S = prefix sums: lower triangular, and no entry is negative."""
        return root_of_prefix_sums(self.days)

    @cached_property
    def falling(self) -> Floats:
        """The first column of S: what a person who counts on a day adds on that day and on each day after it."""
        return falling_column(self.days)

    @property
    def dim(self) -> int:
        """Coordinates of a vector: the days."""
        return self.days

    @property
    def entries(self) -> int:
        """As many as there are days: vectors are not rotated, so that each day can be told as it comes."""
        return self.days

    @cached_property
    def norm(self) -> float:
        """Columns of S overlap most where they are early and near: the first days of all have the longest sum.

        Sums are added up in order, here and below: clients in other languages have the same digits.
        """
        totals = np.cumsum(self.falling)
        totals[self.per_person :] -= totals[: -self.per_person].copy()
        return math.sqrt(float(np.cumsum(totals * totals)[-1])) * _ROUNDING

    @cached_property
    def diameter(self) -> float:
        """Of one day by trying all pairs, and nobody; of more, vectors without negative entries are at most sqrt(2) norms apart."""
        if self.per_person > 1:
            return math.sqrt(2) * self.norm
        falling = self.falling
        squares = np.cumsum(falling * falling)  # of the last columns: those with this many days left, and one
        most = float(squares[-1])
        for apart in range(1, self.days):
            products = np.cumsum(falling[: self.days - apart] * falling[apart:])
            most = max(most, float((squares[apart:] + squares[: self.days - apart] - 2 * products).max()))
        return math.sqrt(most) * _ROUNDING

    def check_records(self, X: Any, y: Any) -> None:
        """Refuse records that have not one column per day.

        Parameters
        ----------
        X : array_like of shape (n, days)
            Some users' records.
        y : array_like or None
            Not used.

        Raises
        ------
        ArgumentError
            Where X has another number of columns.
        """
        if X.shape[1] != self.days:
            raise ArgumentError("data", Found(f"has {X.shape[1]} columns"), f"{self.days}, one per day", "Pass one column per day.")

    def counted(self, X: Any) -> Floats:
        """Return the amounts that count: between 0 and 1 on each day, and at most `per_person` in all.

        Parameters
        ----------
        X : array_like of shape (n, some days)
            The first days of some users.

        Returns
        -------
        ndarray of shape (n, some days)
            What counts of them.
        """
        amounts = np.clip(np.nan_to_num(np.asarray(X, dtype=np.float64), nan=0.0, posinf=1.0, neginf=0.0), 0.0, 1.0)
        reached = np.minimum(np.cumsum(amounts, axis=1), self.per_person)
        return np.maximum(np.diff(reached, axis=1, prepend=0.0), 0.0)

    def __call__(self, X: Any, y: Any) -> Floats:
        return np.asarray(self.counted(X) @ self.root.T)

    def decode(self, estimate: SumEstimate) -> StreamAnswer:
        """Read the running totals from the noisy sum. This is post-processing, which costs no privacy.

        Parameters
        ----------
        estimate : SumEstimate
            The noisy sum.

        Returns
        -------
        StreamAnswer
            Totals and daily counts with error bars.
        """
        arrived = np.full(self.days, estimate.users)
        return StreamAnswer(self, np.asarray(estimate.sum), np.full(self.days, estimate.noise_std), estimate.users, arrived)

    def start(
        self,
        users: int,
        *,
        epsilon: float,
        delta: float | None = None,
        honest: float = 1.0,
        max_inflation: float = 1.05,
        seed: int | None = None,
        account: Account | None = None,
    ) -> RunningStream:
        """Start a stream: all days are paid for at once, and each is released when it is over.

        Parameters
        ----------
        users : int
            Largest number of people, by their places.
        epsilon : float
            Epsilon of the promise to each user, for all days together.
        delta : float, optional
            Below 1 / users. Default: 1e-6, or 0.1 / users if that is less.
        honest : float, default 1.0
            Fraction of the users whose noise is counted on every day: this many have to be there for a day to be told.
        max_inflation : float, default 1.05
            As in `plan_sum`.
        seed : int, optional
            Fixes the noise, for tests: the totals are NOT private.
        account : Account, optional
            Charged for all days now.

        Returns
        -------
        RunningStream
            The stream, to which days are added.

        Guarantee
        ---------
        (epsilon, delta) for all days of a person together, as `Stream` says.
        """
        plan = plan_for(self, users, epsilon=epsilon, delta=delta, honest=honest, max_inflation=max_inflation)
        if seed is not None:
            whole("seed", seed, at_least=0, remedy="Leave it out: a seed makes the totals reproducible, NOT private.")
        if account is not None:
            account.charge("Stream", users, plan.guarantee if seed is None else None, unit="row")
        return RunningStream(self, plan, seed)


class RunningStream:
    """A stream whose days are added as they come. Days may be fewer people than there are, but not fewer than are counted on.

    `query`: What is asked. `plan`: What is sent on all days together, and what is certified. `seed`: Fixes the noise; NOT private
    then. `answer`: Totals so far, with `guarantee` and `plan`. `guarantee`: What all days reveal together; None if it is NOT
    private.
    """

    def __init__(self, query: Stream, plan: SumPlan, seed: int | None = None) -> None:
        self.query, self.plan, self._seed = query, plan, seed
        self._amounts = np.zeros((plan.users, 0))
        self._sums: list[float] = []
        self._noise: list[float] = []
        self._arrived: list[int] = []

    @property
    def guarantee(self) -> Guarantee | None:
        """What all days reveal together."""
        return self.plan.guarantee if self._seed is None else None

    @property
    def answer(self) -> Answer:
        """The totals of the days so far."""
        if not self._sums:
            raise ArgumentError("answer", Found("has no day yet"), "at least one day", "Add a day first.")
        sums, noise, arrived = np.array(self._sums), np.array(self._noise), np.array(self._arrived)
        estimate = SumEstimate(sum=sums, users=int(arrived[-1]), noise_std=float(noise.max()), guarantee=self.guarantee)
        return Answer(StreamAnswer(self.query, sums, noise, self.plan.users, arrived), estimate, self.plan)

    def add(self, values: Any, *, away: Any = None) -> Score:
        """Add a day, and return the running total of all days so far, with its error bar.

        People who are away are missing from it: see `StreamAnswer.scaled`.

        `values` (users,): 1 for a person who counts, 0 for one who does not, or an amount between; NaN for one who does not count
        and sends nothing. `away` (users,): Who sends nothing on this day, whatever their value is: it is told of from the day on
        which they are back, as devices do it. How many answer is public. Default: those with NaN. ArgumentError: If there is not
        one value per user, or all days are over; the day is not told. BatchTooSmallError: If fewer people are there than the
        guarantee counts on; the day is not told, and can be added again.
        """
        day = len(self._sums)
        if day == self.query.days:
            raise ArgumentError("values", Found("is one day too many"), f"{self.query.days} days", "Start another stream.")
        column = np.asarray(values, dtype=np.float64)
        if column.shape != (self.plan.users,):
            raise ArgumentError("values", Found(f"has the shape {column.shape}"), f"({self.plan.users},)", "One value per user.")
        gone = np.isnan(column)
        if away is not None:
            mask = np.asarray(away)
            if mask.shape != gone.shape or mask.dtype != bool:
                raise ArgumentError(
                    "away", Found(f"is {mask.dtype} of the shape {mask.shape}"), "one bool per user", "Pass a mask."
                )
            gone |= mask
        amounts = np.column_stack([self._amounts, column])
        sent = self.query.counted(amounts)[~gone] @ self.query.root[day, : day + 1]
        random = SecureRandom() if self._seed is None else SeededRandom(self._seed * MOST_DAYS + day)
        # coordinate `day` of the vectors that the plan is for: the same levels and noise as all other days
        estimate = VectorSum(replace(self.plan, dim=1)).run(sent[:, np.newaxis], random=random)
        self._amounts = amounts
        self._sums.append(float(estimate.sum[0]))
        self._noise.append(estimate.noise_std)
        self._arrived.append(estimate.users)
        total: Score = self.answer.value.total(day)
        return total


@dataclass(frozen=True, eq=False)
class StreamAnswer(Figures):
    """Running totals and daily counts of the people who came, with error bars for the privacy noise.

    `query`: What was asked. `sums`: The noisy sums, one per day so far. `noise_std`: Standard deviation of the noise of each.
    `users`: How many people there are. `arrived`: How many of them answered, one number per day so far. `away_std`: Standard error
    of each sum from guessing what the others would have sent. Default: none was guessed. `totals`, `total_std`: For each day, how
    many counted on it or before, and the standard error. `daily`, `daily_std`: For each day, how many counted on it, and the
    standard error. `away`: The share of the people who did not answer, over all days so far.
    """

    query: Stream
    sums: Floats
    noise_std: Floats
    users: int
    arrived: NDArray[np.int64]
    away_std: Floats | None = None

    @cached_property
    def _root(self) -> Floats:
        return self.query.root[: len(self.sums), : len(self.sums)]

    @property
    def totals(self) -> Floats:
        """How many counted on each day or before."""
        return np.asarray(self._root @ self.sums)

    @property
    def total_std(self) -> Floats:
        """Standard error of the totals."""
        return self._std(self._root)

    @property
    def away(self) -> float:
        """The share of the people who did not answer, over all days so far."""
        return float(1 - np.mean(self.arrived) / self.users)

    def scaled(self) -> StreamAnswer:
        """Count people who were away like those who came. This is post-processing, which costs no privacy.

        Each day's sum is multiplied by the people there are over those who answered. That is right if who is away has nothing to do
        with what they would have said, and wrong by any amount otherwise: if the ill stay away, the total stays too low. Deployed
        devices leave out days before their first answer: with 20 % away the first days come out a few percent too low. Returns
        totals for everybody. Error bars also hold the chance of who was away, whether the same people were on all days or not.
        """
        if self.away_std is not None:
            return self
        factor = self.users / self.arrived
        # The variance of numbers between 0 and `most` with the mean m is at most m (most - m).
        most = np.cumsum(np.where(np.arange(len(self.sums)) < self.query.per_person, self.query.falling[: len(self.sums)], 0.0))
        mean, error = self.sums / self.arrived, 2 * self.noise_std / self.arrived
        mean = np.clip(most / 2, np.clip(mean - error, 0, most), np.clip(mean + error, 0, most))
        chance = self.users * np.sqrt(np.maximum(factor - 1, 0) / max(self.users - 1, 1) * mean * (most - mean))
        return replace(self, sums=factor * self.sums, noise_std=factor * self.noise_std, away_std=chance)

    @property
    def daily(self) -> Floats:
        """How many counted on each day."""
        return np.diff(self.totals, prepend=0.0)

    @property
    def daily_std(self) -> Floats:
        """Standard error of the daily counts."""
        return self._std(np.diff(self._root, axis=0, prepend=0.0))

    def total(self, day: int) -> Score:
        """Return how many counted on a day or before.

        `day`: The day, counted from 0.
        """
        return self.between(0, day)

    def between(self, first: int, last: int) -> Score:
        """Return how many counted on some days.

        `first`, `last`: The first and the last day, counted from 0.
        """
        whole("last", last, at_least=0, at_most=len(self.sums) - 1, remedy="Days are counted from 0.")
        whole("first", first, at_least=0, at_most=last, remedy="Days are counted from 0.")
        weights = self._root[last] - (self._root[first - 1] if first else 0.0)
        most = float(self.users * min(last - first + 1, self.query.per_person))
        return Score(float(weights @ self.sums), float(self._std(weights[np.newaxis])[0]), None, 0.0, most)

    def _std(self, weights: Floats) -> Floats:
        noise = (weights * self.noise_std) ** 2 @ np.ones(len(self.sums))
        # errors of guesses may go together on all days, where the same people are away: then they add up
        guesses = 0.0 if self.away_std is None else np.abs(weights) @ self.away_std
        return np.asarray(np.sqrt(noise + np.square(guesses)))

    def to_dict(self) -> dict[str, Any]:
        """Return totals and daily counts with standard errors in plain JSON types: "users", "days", "arrived", "totals",
        "total_std", "daily" and "daily_std", and the same four of `scaled` where somebody was away."""
        names = ("totals", "total_std", "daily", "daily_std")
        figures = {name: getattr(self, name).tolist() for name in ("arrived", *names)}
        scaled = {f"scaled_{name}": getattr(self.scaled(), name).tolist() for name in names} if self.away else {}
        return {"users": self.users, "days": self.query.days} | figures | scaled

    def figures(self) -> list[dict[str, Any]]:
        """Return one row per day: "day", "arrived", "daily", "daily_std", "total", "total_std", and "scaled_total" and
        "scaled_total_std" (`scaled`)."""
        scaled = self.scaled()
        columns = {"arrived": self.arrived, "daily": self.daily, "daily_std": self.daily_std, "total": self.totals}
        columns |= {"total_std": self.total_std, "scaled_total": scaled.totals, "scaled_total_std": scaled.total_std}
        rows = zip(*(column.tolist() for column in columns.values()), strict=True)
        return [{"day": day} | dict(zip(columns, row, strict=True)) for day, row in enumerate(rows)]

    def __str__(self) -> str:
        lines = [f"{len(self.sums)} of {self.query.days} days; errors are 95 %"]
        rows = zip(self.arrived, self.daily, self.daily_std, self.totals, self.total_std, strict=True)
        for day, (came, count, count_std, total, total_std) in enumerate(rows):
            shown = f"{day:>5} {count:>12,.0f} +- {1.96 * count_std:<8,.0f} total {total:>12,.0f} +- {1.96 * total_std:<8,.0f}"
            lines.append(f"{shown} of {came:,} people" if self.away else shown.rstrip())
        return "\n".join(lines + ([self.shortfall] if self.away else []))

    @property
    def shortfall(self) -> str:
        """What people who were away do to the last total, in a sentence; empty if nobody was."""
        if not self.away:
            return ""
        everybody = self.scaled()
        total = f"{everybody.totals[-1]:,.0f} +- {1.96 * everybody.total_std[-1]:,.0f}"
        here = f"Per day {100 * self.away:.3g} % of the {self.users:,} people did not answer"
        if self.away_std is not None:
            return f"{here}; they are counted like those who did."
        alike = "if they are like those who did, and all began on the first day"
        return f"{here} and are missing from these totals; {alike}, the last total is {total}."
