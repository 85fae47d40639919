"""`describe`: what a table looks like, in one private round, from wide public guesses."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..files import Figures
from ..population import ArrayPopulation, Query
from ..privacy import Guarantee
from ..privacy import _statements as words
from ..privacy.guarantee import Neighbours
from ..protocol import SumEstimate
from ..validation import ArgumentError, Found, is_missing, known_place, name_of, numbers_or_nan, one_by_one
from ._columns import ColumnSummary, Guess, LevelGuess, LevelSummary, NumberGuess, NumberSummary
from ._holdout import LABELS, HoldOut, Part, name_number
from .asking import Account, Answer, PartAccount, ask
from .histogram import known_total, possible_shares, to_simplex, unit_root

# All columns of a table in one private round: the query, by bins of public guesses.
#
# A record is sent as one vector per column, each with its part of the squared norm: that of its bin's column in a square root of
# prefix sums for numbers, a unit vector for levels. docs/statistics-theory.md has the range and its proof.

Floats = NDArray[np.float64]
MOST_COLUMNS = 1_000
# Part of the squared norm of a column of levels, beside 1 for numbers: a prefix sum of 130 bins has 2.6 times the noise of a count,
# so that this makes the sum of both variances least.
LEVELS_WEIGHT = 0.4


@dataclass(frozen=True)
class Summaries(Query):
    """Counts of all columns in the bins of public guesses.

    X has one column for each guess, in their order: numbers, or numbers of levels (see `LevelGuess.places`); NaN is missing.

    `guesses`: What is guessed of each column, by its name. `dim`: Coordinates of a vector: all bins of all columns. `norm`: Bound
    on the l2 norm of a vector: 1. `diameter`: Bound on the l2 distance of two vectors: sqrt(2). `blanks`: True: values that are not
    finite are counted, not refused.

    Guarantee
    ---------
    That of the plan under which it is asked, for any records.
    """

    guesses: Mapping[str, Guess]
    blanks = True

    def __post_init__(self) -> None:
        if not isinstance(self.guesses, Mapping) or not 1 <= len(self.guesses) <= MOST_COLUMNS:
            found = len(self.guesses) if isinstance(self.guesses, Mapping) else type(self.guesses).__name__
            raise ArgumentError("columns", found, f"1 to {MOST_COLUMNS} columns", "Name columns, each with its guess.")
        for name, guess in self.guesses.items():
            if not isinstance(guess, NumberGuess | LevelGuess):
                raise ArgumentError(f"columns[{name!r}]", guess, "a NumberGuess or LevelGuess", "Guess a range, or list levels.")

    norm = 1.0
    diameter = math.sqrt(2)

    @cached_property
    def parts(self) -> list[Floats]:
        """What is sent of each bin, in columns, for each column of the table."""
        total = math.fsum(_weight(guess) for guess in self.guesses.values())
        return [_measured(guess, _weight(guess) / total) for guess in self.guesses.values()]

    @cached_property
    def dim(self) -> int:
        """Coordinates of a vector: all bins of all columns."""
        return sum(guess.size for guess in self.guesses.values())

    def check_records(self, X: Any, y: Any) -> None:
        """Refuse records that have not one column for each guess."""
        if X.shape[1] != len(self.guesses):
            raise ArgumentError(
                "X", Found(f"has {X.shape[1]} columns"), f"{len(self.guesses)} columns, those guessed", "Leave out the others."
            )

    def __call__(self, X: Any, y: Any) -> Floats:
        rows = np.asarray(X, dtype=np.float64)
        vectors = np.empty((len(rows), self.dim))
        first = 0
        for column, (guess, part) in enumerate(zip(self.guesses.values(), self.parts, strict=True)):
            vectors[:, first : first + guess.size] = part.T[guess.places(rows[:, column])]
            first += guess.size
        return vectors

    def decode(self, estimate: SumEstimate) -> dict[str, ColumnSummary]:
        """Read every column's counts from the noisy sum. This is post-processing, which costs no privacy."""
        found: dict[str, ColumnSummary] = {}
        first = 0
        for (name, guess), part in zip(self.guesses.items(), self.parts, strict=True):
            sums = np.asarray(estimate.sum[first : first + guess.size])
            first += guess.size
            counts, covariance = known_total(part, sums, estimate.noise_std, estimate.users)
            share_covariance = covariance / estimate.users**2
            if isinstance(guess, NumberGuess):
                shares = possible_shares(part, sums, counts, estimate.users)
                found[name] = NumberSummary(guess, shares, share_covariance, estimate.users)
            else:
                found[name] = LevelSummary(guess, to_simplex(counts / estimate.users), share_covariance, estimate.users)
        return found


def _weight(guess: Guess) -> float:
    """A column's part of the squared norm, before all are divided by their sum."""
    return LEVELS_WEIGHT if isinstance(guess, LevelGuess) else 1.0


def _measured(guess: Guess, part: float) -> Floats:
    """What is sent of each bin, in columns whose squared length is at most `part`, without negative entries."""
    sent = np.eye(guess.size) if isinstance(guess, LevelGuess) else unit_root(guess.size)
    return np.asarray(math.sqrt(part) * sent)


QUANTILES = (0.05, 0.5, 0.95)


@dataclass(frozen=True, eq=False)
class Description(Figures):
    """What a table looks like: every column with its error bars.

    Parameters
    ----------
    columns : dict of str to NumberSummary or LevelSummary
        By name, in the order of the guesses.
    answer : Answer
        The private round, with its plan and guarantee.
    promise : str
        The guarantee in words, or that there is none.
    aside : HoldOut, optional
        Who was asked, where not everybody was.
    of : int, optional
        Number of people there are in all, where a share of them was set aside; None if that is not public.
    asked : ndarray of bool, optional
        For data in memory of which a share was set aside: the rows that were asked. Use the others from now on.
    names : str, optional
        The column of names by which people were set aside; "groups=" for labels in memory; None if it was by places.

    Attributes
    ----------
    users : int
        Number of people asked.
    guarantee : Guarantee or None
        What the description reveals about one of them; None if it is NOT private.
    part, rest : Part or None
        Those who were set aside and asked, and the others, for `PrivacyAccount.of_part`; None if everybody was asked.

    Guarantee
    ---------
    That of `answer`, for all columns together.

    Examples
    --------
    >>> import numpy as np, croupier as cr
    >>> ages = np.random.default_rng(0).integers(18, 90, size=(20_000, 1))
    >>> description = cr.describe(ages, {"age": (0, 150)}, epsilon=0.5, delta=1e-6)
    >>> description.users, list(description.columns)
    (20000, ['age'])
    """

    columns: dict[str, ColumnSummary]
    answer: Answer
    promise: str
    aside: HoldOut | None = None
    of: int | None = None
    asked: NDArray[np.bool_] | None = field(default=None, repr=False)
    names: str | None = None

    @property
    def part(self) -> Part | None:
        """Those who were set aside and asked; None if everybody was asked."""
        return None if self.aside is None else part_of(self.aside, self.of, self.names)

    @property
    def rest(self) -> Part | None:
        """Those who were not asked; None if everybody was."""
        return None if self.part is None else self.part.other

    @property
    def users(self) -> int:
        """How many people were asked."""
        return self.answer.users

    @property
    def guarantee(self) -> Guarantee | Any:
        """What the description reveals about one user; None if it was seeded: NOT private then."""
        return self.answer.guarantee

    @property
    def people(self) -> str:
        """How many people were asked, and of how many, in words."""
        of = "" if self.aside is None else f" of {self.of:,}" if self.of is not None else f", about {self.aside.share:.0%} of all,"
        return f"{self.users:,}{of} people"

    @property
    def hints(self) -> dict[str, str]:
        """What to guess differently next time, by column: guesses that miss many people."""
        found = {}
        for name, summary in self.columns.items():
            if isinstance(summary, NumberSummary):
                odd = {"missing or not a number": summary.missing, "below the guess": summary.below, "above it": summary.above}
            else:
                odd = {"missing": summary.missing, "none of the levels": summary.other}
            many = [f"{score.value:.0%} {what}" for what, score in odd.items() if score.value > max(0.05, 3 * score.std)]
            if many:
                found[name] = ", ".join(many)
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return every column's figures with error bars, and the guarantee, in plain JSON types.

        Returns
        -------
        dict
            "users", "columns" and "guarantee", which is None if the description is NOT private; "part" where a share of the
            people was set aside.
        """
        columns = {name: summary_figures(summary) for name, summary in self.columns.items()}
        asked = {} if self.part is None else {"part": self.part.to_dict()}
        return {"users": self.users, "columns": columns, "guarantee": self.guarantee.to_dict() if self.guarantee else None} | asked

    def figures(self) -> list[dict[str, Any]]:
        """Return one row per figure of each column.

        Returns
        -------
        list of dict
            "column", "figure", "value", "low" and "high", the ends of the 95 per cent interval.
        """
        rows = []
        for name, summary in self.columns.items():
            scores = {"missing": summary.missing}
            if isinstance(summary, NumberSummary):
                for q in QUANTILES:
                    low, high = summary.interval(q)
                    rows.append({"column": name, "figure": f"{q:.0%}", "value": summary.quantile(q), "low": low, "high": high})
                scores = {"mean": summary.middle_mean} | scores
            else:
                scores = summary.levels | {"other": summary.other} | scores
            for figure, score in scores.items():
                low, high = score.interval
                rows.append({"column": name, "figure": figure, "value": score.value, "low": low, "high": high})
        return rows

    def __str__(self) -> str:
        lines = [f"{self.people}, one private round; {self.promise}"]
        width = max(map(len, self.columns))
        for name, summary in self.columns.items():
            missing = f"missing {summary.missing.value:.1%} +- {1.96 * summary.missing.std:.1%}"
            if isinstance(summary, NumberSummary):
                points = [f"{q:.0%}: {summary.quantile(q):.4g} ({bounds(summary.interval(q))})" for q in QUANTILES]
                lines.append(f"{name:{width}}  {'; '.join(points)}; {missing}")
            else:
                shares = [f"{level} {score.value:.1%} +- {1.96 * score.std:.1%}" for level, score in summary.levels.items()]
                lines.append(f"{name:{width}}  {'; '.join(shares[:20])}; other {summary.other.value:.1%}; {missing}")
        return "\n".join(lines)


def bounds(interval: tuple[float, float]) -> str:
    """An interval as text."""
    return f"{interval[0]:.4g} .. {interval[1]:.4g}"


def summary_figures(summary: ColumnSummary) -> dict[str, Any]:
    """A column's figures in plain JSON types."""
    missing = {"share": summary.missing.value, "std": summary.missing.std}
    if isinstance(summary, NumberSummary):
        low, high = (ends.tolist() for ends in summary.guess.ends)
        return {
            "kind": "number",
            "missing": missing,
            "below_guess": summary.below.value,
            "above_guess": summary.above.value,
            "quantiles": {f"{q:g}": [summary.quantile(q), *summary.interval(q)] for q in (0.01, *QUANTILES, 0.25, 0.75, 0.99)},
            "bins": {"low": low, "high": high, "shares": summary.shares[:-1].tolist()},
        }
    levels = {level: {"share": score.value, "std": score.std} for level, score in summary.levels.items()}
    return {"kind": "levels", "missing": missing, "other": summary.other.value, "levels": levels}


def describe(
    data: Any,
    columns: Mapping[str, Any],
    *,
    epsilon: float,
    delta: float | None = None,
    groups: Any = None,
    share: float | None = None,
    honest: float = 1.0,
    neighbours: Neighbours = "replace-one",
    seed: int | None = None,
    account: Account | None = None,
) -> Description:
    """Look at all columns of a table in one private round, from wide public guesses.

    Parameters
    ----------
    data : array_like, data frame, Arrow table or Population
        One row per person. A table with names has its columns taken by name, an array in the order of `columns`.
    columns : mapping of str to guess
        What is guessed of each column without having seen it: (low, high) or `NumberGuess` for a number, a list of levels or
        `LevelGuess`, None for a number of which nothing is known.
    epsilon : float
        Epsilon of the promise to each user.
    delta : float, optional
        Delta of the promise to each user; below 1 / users. Default: 1e-6, or 0.1 / users if that is less.
    groups : array_like, optional
        For data in memory: the person of each row. With `share`, labels are text or numbers.
    share : float, optional
        Ask only about this share of the people, chosen by a seed and their places, or their names in `groups`; the others have
        spent nothing. `Description.asked` says who was asked. The seed in `Description.aside` names the same people anywhere.
    honest : float, default 1.0
        Fraction of the users whose noise is counted on.
    neighbours : {"replace-one", "zero-out"}, default "replace-one"
        The relation for which the guarantee is certified; see `plan_sum`.
    seed : int, optional
        Fixes the noise, for tests: the description is NOT private.
    account : Account, optional
        Charged before anybody is asked: that of the people who are asked.

    Returns
    -------
    Description
        Shares, quantiles, means and what is missing, with error bars.

    Raises
    ------
    ArgumentError
        A bad argument, or a column that is not there; nobody was asked, and nothing was spent.

    Guarantee
    ---------
    (epsilon, delta) for each user who is asked, for all columns together. Names of columns and guesses are treated as public, and
    the number of people; with `share` also who stands where.

    Examples
    --------
    >>> import numpy as np, croupier as cr
    >>> rng = np.random.default_rng(0)
    >>> people = np.column_stack([rng.normal(40, 12, 20_000), rng.exponential(30_000, 20_000)])
    >>> description = cr.describe(people, {"age": (0, 200), "income": (0, 1e7)}, epsilon=1.0, delta=1e-6)
    >>> bool(abs(description.columns["age"].quantile(0.5) - 40) < 2)
    True
    """
    if not isinstance(columns, Mapping):
        remedy = 'Name every column with a guess: {"age": (0, 200), "city": ["Rome", "Paris"], "income": None}.'
        raise ArgumentError("columns", columns, "a mapping from a column's name to a guess", remedy)
    query = Summaries({name: as_guess(name, guess) for name, guess in columns.items()})
    aside = None if share is None else HoldOut.fresh(share)
    asked = of = None
    if hasattr(type(data), "answer") and hasattr(data, "users"):
        if aside is not None:
            raise ArgumentError("share", share, "left out for a population", "Pass the population of the people to ask.")
        population = data
    else:
        rows = numbers_of(data, query.guesses)
        if aside is not None:
            labels = None if groups is None else one_by_one(groups)
            if labels is not None and labels.shape != (len(rows),):
                found = Found(f"has the shape {labels.shape}, but data has {len(rows)} rows")
                raise ArgumentError("groups", found, "one label per row", "Name the person of every row, by text or a number.")
            asked, of = _chosen(aside, len(rows), labels)
            rows, groups = rows[asked], None if labels is None else labels[asked]
            if not len(rows):
                raise ArgumentError("share", share, "one that sets at least two people aside", "Choose a larger share.")
        population = ArrayPopulation(rows, groups=groups, invalid="blank")
    names = None if aside is None or groups is None else LABELS
    answer = ask(
        query,
        population,
        epsilon=epsilon,
        delta=delta,
        honest=honest,
        neighbours=neighbours,
        seed=seed,
        account=account if aside is None else on_part(account, part_of(aside, of, names)),
    )
    return described(answer, aside, of, asked, names)


def part_of(aside: HoldOut, of: int | None, names: str | None) -> Part:
    """Those who were set aside, by the places of this many rows or by names."""
    return Part(aside, "aside", of if names is None else None, names)


def on_part(account: Account | None, part: Part) -> Account | None:
    """The account for a release about a part of the people; one that knows no parts counts it on everybody, which is safe."""
    return account.of_part(part) if isinstance(account, PartAccount) else account


def described(
    answer: Answer, aside: HoldOut | None = None, of: int | None = None, asked: Any = None, names: str | None = None
) -> Description:
    """The description that an answer to `Summaries` gives."""
    promise = words.brief(answer.plan.epsilon, answer.plan.delta, answer.plan.neighbours)
    promise = promise if answer.private else f"NOT PRIVATE ({words.SEEDED})"
    return Description(answer.value, answer, promise, aside, of, asked, names)


def as_guess(name: str, guess: Any) -> Guess:
    """A guess from what a caller writes: (low, high), a list of levels, None, or a guess already."""
    if isinstance(guess, NumberGuess | LevelGuess):
        return guess
    if guess is None:
        return NumberGuess()
    if isinstance(guess, list | tuple) and guess and all(isinstance(level, str) for level in guess):
        return LevelGuess(tuple(guess))
    if isinstance(guess, list | tuple) and len(guess) == 2:
        return NumberGuess(guess[0], guess[1])
    raise ArgumentError(f"columns[{name!r}]", guess, "(low, high), a list of texts, or None", "Guess a range, or list levels.")


def numbers_of(data: Any, guesses: Mapping[str, Guess]) -> NDArray[np.float64]:
    """The guessed columns as numbers: of levels their places in the list, NaN where there is nothing."""
    if hasattr(data, "column_names") or hasattr(data, "columns"):
        names = list(data.column_names if hasattr(data, "column_names") else data.columns)
        for name in guesses:
            if names.count(name) != 1:
                raise ArgumentError("columns", name, f"one of {', '.join(map(str, names[:50]))}", "Guess only columns that exist.")
        parts = [one_by_one(data[name]) for name in guesses]
    else:
        table = one_by_one(data)
        if table.ndim != 2 or table.shape[1] != len(guesses):
            allowed = f"a table of {len(guesses)} columns, one per guess"
            raise ArgumentError("data", Found(f"has the shape {table.shape}"), allowed, "Name every column, in their order.")
        parts = list(table.T)
    found = [
        numbers_or_nan(part) if isinstance(guess, NumberGuess) else _places(part, guess)
        for part, guess in zip(parts, guesses.values(), strict=True)
    ]
    return np.column_stack([part.astype(np.float64) for part in found])


def _places(part: NDArray[Any], guess: LevelGuess) -> NDArray[np.float64]:
    places = {level: place for place, level in enumerate(guess.levels)}
    return np.array([_place(places, value) for value in part.tolist()], dtype=np.float64)


def _place(places: dict[Any, int], value: Any) -> float:
    """Where a value stands among the levels, as text; NaN where it is missing."""
    try:
        value = value.decode() if isinstance(value, bytes) else value
        value = value.strip() if isinstance(value, str) else value
        if is_missing(value) or (isinstance(value, str) and not value):
            return float("nan")
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        return float(known_place(places, ("true" if value else "false") if isinstance(value, bool) else str(value)))
    except Exception:  # whatever an object raises that somebody put there: it is none of the levels
        return -1.0


def _chosen(aside: HoldOut, rows: int, labels: Any) -> tuple[NDArray[np.bool_], int]:
    """The rows that are asked, and of how many people: by places, or by names, whose order may depend on what others hold."""
    if labels is None:
        return aside.places(0, rows), rows
    people = [name_of(label) for label in labels.tolist()]  # as a population takes them, which leaves out nobody's rows
    numbers = np.array([name_number(label) for label in people], dtype=np.uint64)
    return aside.names(numbers), len({label for label in people if not is_missing(label)})
