"""How columns go together: counts of all combinations of some columns, and numbers within groups, from one private round."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..files import Figures
from ..population import Query
from ..protocol import SumEstimate
from ..protocol._sparse import SparseVectors
from ..validation import ArgumentError, Found, one_by_one, real, whole
from ._columns import LevelGuess, NumberGuess, NumberSummary
from .describing import numbers_of
from .histogram import possible_shares, to_simplex, unit_root

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
OTHER = "other"
MOST_CELLS = 1_000_000
# Tables of more cells are sent by their entries: a rotation would make all of them.
_DENSE = 4_096


@dataclass(frozen=True)
class TableColumn:
    """One column of a table: where each of its values stands, and what stands there. The last place is for all else."""

    name: str
    guess: LevelGuess | NumberGuess
    labels: tuple[str, ...]
    edges: tuple[float, ...] | None = None

    def places(self, values: Floats) -> Integers:
        """Where values stand: levels by their number in the list, numbers by the bin that they are in, clipped to the ends."""
        if self.edges is None:
            known = (values >= 0) & (values < len(self.labels) - 1)
            return np.where(known, np.where(known, values, 0.0), len(self.labels) - 1).astype(np.int64)
        ends = np.asarray(self.edges)
        found = np.clip(np.searchsorted(ends, values, side="right") - 1, 0, len(ends) - 2)
        return np.where(np.isnan(values), len(self.labels) - 1, found).astype(np.int64)


def as_column(name: str, facts: Any, bins: int) -> TableColumn:
    """A column from what a caller states of it: levels, (low, high), ends of bins, or a schema's column."""
    if isinstance(facts, LevelGuess | NumberGuess) or hasattr(facts, "levels") or hasattr(facts, "low"):
        facts = facts.levels if hasattr(facts, "levels") else (facts.low, facts.high)
    remedy = "State levels, (low, high), or the edges of bins: they are public, and chosen without having seen the data."
    if not isinstance(facts, Sequence) or isinstance(facts, str) or len(facts) < 1:
        raise ArgumentError(f"schema[{name!r}]", facts, "a list of levels, (low, high), or the edges of bins", remedy)
    if all(isinstance(level, str) for level in facts):
        guess = LevelGuess(tuple(facts))
        return TableColumn(name, guess, (*guess.levels, OTHER))
    ends = [real(f"schema[{name!r}]", end, above=-1e30, below=1e30, remedy=remedy) for end in facts]
    if len(ends) == 2:
        ends = np.linspace(ends[0], ends[1], bins + 1).tolist()
    if len(ends) < 2 or not all(one < other for one, other in pairwise(ends)):
        raise ArgumentError(f"schema[{name!r}]", facts, "numbers that ascend", remedy)
    labels = [f"{low:g} .. {high:g}" for low, high in pairwise(ends)]
    return TableColumn(name, NumberGuess(ends[0], ends[-1]), (*labels, OTHER), tuple(ends))


def facts_of(schema: Any) -> Any:
    """What is known of columns: a mapping as it is, or a Schema's columns and target."""
    if not hasattr(schema, "columns") or not hasattr(schema, "target"):
        return schema
    target = schema.target.range if schema.target.classes is None else [str(label) for label in schema.target.classes]
    return schema.columns | ({} if target is None else {schema.target.column: target})


class Table(Query):
    """Counts of all combinations of one to three columns; or, with `by`, one column of numbers within groups.

    A person is counted in one cell, so norm 1 and diameter sqrt(2) hold for any records. Each column has a place for what is none
    of its levels, and no number: so the cells of all people add up to their number, which is known.

    Parameters
    ----------
    *columns : str
        Names of one to three columns; with `by` of one column of numbers.
    schema : Schema or mapping of str to facts
        What is publicly known of them: a list of levels, (low, high) for a number, or the ends of its bins.
    by : str or sequence of str, optional
        One or two columns whose combinations are groups: the answer has means and quantiles of the number in each.
    bins : int, default 8
        Bins of a number of which (low, high) is stated; with `by`, default 64.
    marginals : float, default 0.0
        Part of the squared norm, below 1, that is for the columns' own counts beside those of the cells. With 0 cells have the
        least noise. With more, single columns have less than the sums of their cells, and both are made to agree.

    Attributes
    ----------
    dim : int
        Coordinates of a vector.
    norm : float
        Bound on the l2 norm of a vector: 1.
    diameter : float
        Bound on the l2 distance of two vectors: sqrt(2).
    blanks : bool
        True: what is missing is counted as such.

    Raises
    ------
    ArgumentError
        If a column is not stated, or there are too many cells.

    Guarantee
    ---------
    That of the plan under which it is asked, for any records.

    Examples
    --------
    >>> import numpy as np, croupier as cr
    >>> rng = np.random.default_rng(0)
    >>> people = {"region": rng.choice(["north", "south"], 20_000), "age": rng.integers(0, 90, 20_000)}
    >>> table = cr.Table("region", "age", schema={"region": ["north", "south"], "age": [0, 18, 65, 120]})
    >>> answer = cr.ask(table, people, epsilon=1.0, delta=1e-6)
    >>> answer.counts.shape, answer.labels["age"]
    ((3, 4), ['0 .. 18', '18 .. 65', '65 .. 120', 'other'])
    >>> count, error = answer.marginal("region")["north"]
    >>> bool(abs(count - (people["region"] == "north").sum()) < 6 * error)
    True
    """

    norm = 1.0
    diameter = math.sqrt(2)
    blanks = True
    parallel = True

    def __init__(
        self,
        *columns: str,
        schema: Any = None,
        by: str | Sequence[str] | None = None,
        bins: int | None = None,
        marginals: float = 0.0,
    ) -> None:
        groups = () if by is None else (by,) if isinstance(by, str) else tuple(by)
        facts = facts_of(schema)
        remedy = 'For example Table("region", "age", schema={"region": ["north", "south"], "age": [0, 18, 65, 120]}).'
        if not isinstance(facts, Mapping):
            raise ArgumentError("schema", schema, "a Schema, or a mapping from columns to levels or edges of bins", remedy)
        names = (*groups, *columns)
        if not 1 <= len(names) <= 3 or len(set(names)) < len(names) or (groups and len(columns) != 1):
            allowed = "one column of numbers, and one or two other ones in by" if groups else "one to three different columns"
            raise ArgumentError("columns", names, allowed, remedy)
        for name in names:
            if name not in facts:
                raise ArgumentError("columns", name, f"one of {', '.join(map(str, facts))}", "State it in the schema.")
        count = whole("bins", (64 if groups else 8) if bins is None else bins, at_least=1, at_most=4_096, remedy="8 is usual.")
        self.marginals = real("marginals", marginals, at_least=0, below=1, remedy="0 is best for cells, 0.3 for columns.")
        self.by, self.columns = groups, names
        self.axes = tuple(as_column(name, facts[name], count) for name in names)
        if groups and (self.axes[-1].edges is None or marginals):
            raise ArgumentError("by", by, "left out for a column of levels, and with marginals", remedy)
        if self.cells > MOST_CELLS:
            raise ArgumentError(
                "columns", Found(f"make {self.cells:,} cells"), f"at most {MOST_CELLS:,}", "Use fewer columns or wider bins."
            )

    def __repr__(self) -> str:
        return f"Table({', '.join(map(repr, self.columns))}, cells={self.shape})"

    @property
    def shape(self) -> tuple[int, ...]:
        """Places of each column."""
        return tuple(len(axis.labels) for axis in self.axes)

    @property
    def cells(self) -> int:
        """How many cells there are."""
        return math.prod(self.shape)

    @property
    def dim(self) -> int:
        """Coordinates of a vector: the cells, and the columns' own counts where these are sent."""
        return self.cells + (sum(self.shape) if self._both else 0)

    @property
    def _both(self) -> bool:
        return self.marginals > 0 and len(self.axes) > 1

    @property
    def answers(self) -> int | None:
        """How many equal entries a vector has at most."""
        return None if self.by or self._both else 1

    @property
    def entries(self) -> int | None:
        """How many entries a vector has, where they are few."""
        return None if self.by or self.dim <= _DENSE else 1 + (len(self.axes) if self._both else 0)

    @cached_property
    def _part(self) -> Floats:
        """With `by`, what is sent of each bin, in columns: a square root of prefix sums, as in a description."""
        return unit_root(self.shape[-1])

    def encode(self, data: Any) -> Floats:
        """Return the columns as numbers: of levels their places in the list, NaN where there is nothing.

        Parameters
        ----------
        data : data frame, Arrow table, mapping of columns, or array_like
            Columns by name; of an array all columns of the table in their order. For one column, its values alone.

        Returns
        -------
        ndarray of shape (n, columns)
            The records that the query takes.
        """
        if isinstance(data, Mapping):
            missing = [axis.name for axis in self.axes if axis.name not in data]
            if missing:
                raise ArgumentError("data", missing[0], f"one of {', '.join(map(str, data))}", "Pass the table's columns.")
            parts = [one_by_one(data[axis.name]).astype(object) for axis in self.axes]
            if len({len(part) for part in parts}) != 1:
                raise ArgumentError(
                    "data", Found("has columns of different lengths"), "one value per person in each", "Pass a frame."
                )
            data = np.column_stack(parts)
        elif len(self.axes) == 1 and not hasattr(data, "columns") and not hasattr(data, "column_names") and np.ndim(data) == 1:
            data = one_by_one(data).astype(object)[:, np.newaxis]  # one value per person, of the only column
        return numbers_of(data, {axis.name: axis.guess for axis in self.axes})

    def check_records(self, X: Any, y: Any) -> None:
        """Refuse records that have not one column for each of the table's.

        Parameters
        ----------
        X : array_like of shape (n, columns)
            Some users' records.
        y : array_like or None
            Not used.

        Raises
        ------
        ArgumentError
            Where X has another number of columns.
        """
        if X.shape[1] != len(self.axes):
            raise ArgumentError(
                "data", Found(f"has {X.shape[1]} columns"), f"{len(self.axes)} columns", "Pass the table's columns."
            )

    def __call__(self, X: Any, y: Any) -> Floats:
        return np.asarray(self.vectors(X, y))

    def vectors(self, X: Any, y: Any) -> Floats | SparseVectors:
        """Return the users' vectors, by their entries where these are few.

        Parameters
        ----------
        X : array_like of shape (n, columns)
            Some users' records.
        y : array_like or None
            Not used.

        Returns
        -------
        ndarray of shape (n, dim) or SparseVectors
            One vector per record.
        """
        rows = np.asarray(X, dtype=np.float64)
        places = [axis.places(rows[:, column]) for column, axis in enumerate(self.axes)]
        if self.by:
            groups = np.ravel_multi_index(places[:-1], self.shape[:-1])
            vectors = np.zeros((len(rows), self.cells // self.shape[-1], self.shape[-1]))
            vectors[np.arange(len(rows)), groups] = self._part.T[places[-1]]
            return vectors.reshape(len(rows), self.cells)
        columns = [np.ravel_multi_index(places, self.shape)]
        sizes = [math.sqrt(1 - self.marginals) if self._both else 1.0]
        if self._both:
            firsts = self.cells + np.cumsum([0, *self.shape])
            columns += [first + place for first, place in zip(firsts, places, strict=False)]
            sizes += [math.sqrt(self.marginals / len(self.axes))] * len(self.axes)
        cells = np.column_stack(columns).astype(np.int64)
        sparse = SparseVectors(self.dim, [(cells, np.tile(sizes, (len(rows), 1)))])
        return np.asarray(sparse) if self.entries is None else sparse

    def decode(self, estimate: SumEstimate) -> TableAnswer | GroupedAnswer:
        """Read the table from the noisy sum. This is post-processing, which costs no privacy.

        Parameters
        ----------
        estimate : SumEstimate
            The noisy sum.

        Returns
        -------
        TableAnswer or GroupedAnswer
            Counts with error bars; with `by` means and quantiles in each group.
        """
        sums, noise = np.asarray(estimate.sum, dtype=np.float64), estimate.noise_std
        return self._grouped(sums, noise, estimate.users) if self.by else self._counted(sums, noise, estimate.users)

    def _counted(self, sums: Floats, noise: float, users: int) -> TableAnswer:
        """Least squares over cells and the columns' own counts, all of which add up to the known number of people.

        The noise is independent and equal in all cells, and in all counts of a column. So a table falls apart into orthogonal parts
        that each know nothing of the others: its mean, which is known; for each column what its counts differ by; and the rest.
        """
        size = math.sqrt(1 - self.marginals) if self._both else 1.0
        table, cell_variance = sums[: self.cells].reshape(self.shape) / size, (noise / size) ** 2
        table = table + (users - table.sum()) / self.cells
        left, variances, first = self.cells - 1, {}, self.cells
        spread = 0.0  # the trace of the covariance of cells, over the parts
        for axis, length in enumerate(self.shape):
            others, variance = self.cells // length, cell_variance
            if self._both:
                weight = math.sqrt(self.marginals / len(self.shape))
                own, own_variance = sums[first : first + length] / weight, (noise / weight) ** 2
                first += length
                variance = 1 / (1 / cell_variance + others / own_variance)
                across = tuple(other for other in range(len(self.shape)) if other != axis)
                differs = (own - own.mean()) - (table.sum(axis=across) - users / length)
                moved = differs * (others * variance / own_variance) / others
                table = table + np.expand_dims(moved, across)
            variances[self.columns[axis]] = others * variance * (1 - 1 / length)
            left -= length - 1
            spread += (length - 1) * variance
        cell_std = math.sqrt((spread + left * cell_variance) / self.cells)
        labels = {axis.name: list(axis.labels) for axis in self.axes}
        return TableAnswer(labels, table, cell_std, {name: math.sqrt(v) for name, v in variances.items()}, users)

    def _grouped(self, sums: Floats, noise: float, users: int) -> GroupedAnswer:
        """Each group's distribution over the bins by least squares; how many it has is read from it, too."""
        part, axis = self._part, self.axes[-1]
        assert axis.edges is not None
        inverse = np.linalg.inv(part.T @ part)
        guess = NumberGuess(axis.edges[0], axis.edges[-1], bins=max(8, len(axis.edges) - 1), stated=axis.edges)
        groups, sizes = {}, {}
        for place, group in zip(np.ndindex(self.shape[:-1]), sums.reshape(-1, self.shape[-1]), strict=True):
            name = tuple(one.labels[at] for one, at in zip(self.axes, place, strict=False))
            counts = inverse @ (part.T @ group)
            size = min(max(float(counts.sum()), 1.0), float(users))
            shares = possible_shares(part, group, counts, round(size))
            covariance = np.asarray(noise**2 * inverse / size**2, dtype=np.float64)
            groups[name if len(name) > 1 else name[0]] = NumberSummary(
                guess, _into_guess(guess, shares), _into_guess(guess, _into_guess(guess, covariance).T), round(size)
            )
            sizes[name if len(name) > 1 else name[0]] = (float(counts.sum()), noise * math.sqrt(float(inverse.sum())))
        return GroupedAnswer(self.by, axis.name, groups, sizes, users)


def _into_guess(guess: NumberGuess, values: Floats) -> Floats:
    """The bins of a table's column among those of a guess, which also has some below it, at 0, above it."""
    inside = [place for place, (low, high) in enumerate(zip(*guess.ends, strict=True)) if low < high]
    spread = np.zeros((guess.size, *values.shape[1:]))
    spread[[*inside, guess.size - 1]] = values
    return spread


@dataclass(frozen=True, eq=False)
class TableAnswer(Figures):
    """Counts of people in all combinations of some columns, each with an error bar for the privacy noise.

    `labels`: What stands at each place of each column, in their order. `counts`: Noisy counts, one axis per column; some may be
    negative. They add up to `users`. `count_std`: Standard error of a cell. `marginal_std`: Standard error of a count of one
    column. `users`: How many people answered. `shares`: Share of the people in each cell.
    """

    labels: dict[str, list[str]]
    counts: Floats
    count_std: float
    marginal_std: dict[str, float]
    users: int

    @property
    def shares(self) -> Floats:
        """Share of the people in each cell."""
        return self.counts / self.users

    def marginal(self, column: str) -> dict[str, tuple[float, float]]:
        """Return the counts of one column, which are the sums of its cells, with their standard errors.

        `column`: One of the table's columns.
        """
        if column not in self.labels:
            raise ArgumentError("column", column, f"one of {', '.join(self.labels)}", "Ask for a column of the table.")
        axis = list(self.labels).index(column)
        sums = self.counts.sum(axis=tuple(other for other in range(self.counts.ndim) if other != axis))
        return {label: (float(count), self.marginal_std[column]) for label, count in zip(self.labels[column], sums, strict=True)}

    def possible(self) -> TableAnswer:
        """Return the nearest table, in least squares, without negative counts that adds up to the number of people.

        It is nearer to the truth than before; error bars are those of the noisy one.
        """
        counts = self.users * to_simplex(self.shares.ravel()).reshape(self.counts.shape)
        return TableAnswer(self.labels, counts, self.count_std, self.marginal_std, self.users)

    def to_dict(self) -> dict[str, Any]:
        """Return counts and standard errors in plain JSON types: "users", "labels", "counts", "std" and "marginal_std"."""
        return {
            "users": self.users,
            "labels": self.labels,
            "counts": self.counts.tolist(),
            "std": self.count_std,
            "marginal_std": self.marginal_std,
        }

    def figures(self) -> list[dict[str, Any]]:
        """Return one row per cell: the label of each column, "count" and "std"."""
        names = list(self.labels)
        return [
            {name: self.labels[name][at] for name, at in zip(names, place, strict=True)}
            | {"count": float(self.counts[place]), "std": self.count_std}
            for place in np.ndindex(self.counts.shape)
        ]

    def __str__(self) -> str:
        names = list(self.labels)
        width = max(len(label) for name in names for label in self.labels[name]) + 2
        lines = [f"{self.users:,} people; each cell +- {1.96 * self.count_std:.3g} (95 %)"]
        heads = self.labels[names[-1]]
        lines.append("".join([" " * width * (len(names) - 1), *(f"{head:>{max(width, 10)}}" for head in heads)]))
        for place in np.ndindex(self.counts.shape[:-1]):
            row = "".join(f"{self.labels[name][at]:{width}}" for name, at in zip(names, place, strict=False))
            lines.append(row + "".join(f"{count:>{max(width, 10)},.0f}" for count in self.counts[place]))
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class GroupedAnswer(Figures):
    """A number within groups: its mean and quantiles in each, with error bars for privacy noise and sampling.

    `by`: The columns whose combinations are groups. `column`: The number. `groups`: By the group's label, or labels: `mean`,
    `quantile`, `interval`, `missing`. `sizes`: How many people are in each group, with the standard error of the privacy noise.
    `users`: How many people answered.
    """

    by: tuple[str, ...]
    column: str
    groups: dict[Any, NumberSummary]
    sizes: dict[Any, tuple[float, float]]
    users: int

    def to_dict(self) -> dict[str, Any]:
        """Return sizes, means and quartiles of all groups in plain JSON types: "users", "by", "column" and "groups", each with
        "group", "size", "mean" and "quantiles"."""
        rows = []
        for name, summary in self.groups.items():
            mean, (size, std) = summary.mean, self.sizes[name]
            quantiles = {f"{q:g}": [summary.quantile(q), *summary.interval(q)] for q in (0.25, 0.5, 0.75)}
            group = list(name) if isinstance(name, tuple) else [name]
            rows.append(
                {
                    "group": group,
                    "size": {"count": size, "std": std},
                    "mean": {"value": mean.value, "std": mean.std},
                    "quantiles": quantiles,
                }
            )
        return {"users": self.users, "by": list(self.by), "column": self.column, "groups": rows}

    def figures(self) -> list[dict[str, Any]]:
        """Return one row per group: the labels of the group, "size", "size_std", "mean", "mean_std", "median", "low" and "high"."""
        rows = []
        for name, summary in self.groups.items():
            size, std = self.sizes[name]
            low, high = summary.interval(0.5)
            labels = dict(zip(self.by, (name,) if isinstance(name, str) else name, strict=True))
            mean = {"mean": summary.mean.value, "mean_std": summary.mean.std}
            median = {"median": summary.quantile(0.5), "low": low, "high": high}
            rows.append(labels | {"size": size, "size_std": std} | mean | median)
        return rows

    def __str__(self) -> str:
        lines = [f"{self.column} by {', '.join(self.by)}; {self.users:,} people; errors are 95 %"]
        for name, summary in self.groups.items():
            label, (size, std), mean = name if isinstance(name, str) else ", ".join(name), self.sizes[name], summary.mean
            low, high = summary.interval(0.5)
            lines.append(
                f"{label:20} {size:>10,.0f} +- {1.96 * std:<6,.0f} mean {mean.value:.4g} +- {1.96 * mean.std:.2g}, "
                f"median {summary.quantile(0.5):.4g} ({low:.4g} .. {high:.4g})"
            )
        return "\n".join(lines)
