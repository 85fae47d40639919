"""From a file of records and guesses to a private description, and from that to a schema: what `croupier describe` does."""

from __future__ import annotations

import math
import os
import re
import tomllib
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import parquet

from ..estimator import PrivacyAccount
from ..population import ArrayPopulation
from ..protocol import SumEstimate
from ..statistics import Answer, Description, Table, ask
from ..statistics._columns import LEAST_TAIL, WIDEST, LevelGuess, NumberGuess, NumberSummary
from ..statistics._holdout import HoldOut
from ..statistics.asking import plan_for
from ..statistics.describing import Summaries, on_part, part_of
from ..statistics.describing import described as description_of
from ..validation import ArgumentError, FileError, Found, unreadable
from ._encode import Encoder, column_numbers, column_texts, is_nobody, level_codes
from ._population import RowStore, TableWarning, Watcher
from ._read import Piece, Source, other_separator, shown
from .schema import Category, Column, Described, Keys, Label, Numeric, Schema, Target, as_text, outwards

# What is guessed of a table before anybody is asked: a TOML file like a schema, but ranges may be far too wide, or left out.


Guess = NumberGuess | LevelGuess
# What is said of columns of which nothing was.
_UNSAID = f"numbers from {-WIDEST:g} to {WIDEST:g}, because nothing was declared about them"
_COST = "Each takes a part of the budget: use --range or --levels, or --leave-out if it is text."
# Of longer lists of levels this many are shown.
_FEW = 6
_REMEDY = "Write what you can justify without having seen the data; docs/statistics.md has an example."


@dataclass(frozen=True)
class TableGuess:
    """Guesses for the columns of a table, and which of them is to be predicted.

    `columns`: By name, the target among them. `target`: The column to predict, for a schema. `classes`: All labels of the target,
    where it is one of several classes. `user`: The column that identifies the person each row belongs to. `left_out`: Columns that
    are not described, each with the reason. `undeclared`: Columns of a CSV file that are taken for numbers since nothing at all was
    said of them.
    """

    columns: Mapping[str, Guess]
    target: str | None = None
    classes: tuple[Label, ...] | None = None
    user: str | None = None
    left_out: tuple[str, ...] = field(default=())
    undeclared: tuple[str, ...] = field(default=())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> TableGuess:
        """Read the guesses in a TOML file."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as problem:
            raise unreadable("--guess", path, problem, "a TOML file in UTF-8", _REMEDY) from None
        return cls.from_toml(text, str(path))

    @classmethod
    def from_toml(cls, text: str, name: str = "guess") -> TableGuess:
        """Read the guesses that a TOML text states."""
        try:
            values = tomllib.loads(text)
        except tomllib.TOMLDecodeError as problem:
            raise ArgumentError(name, Found(f"is not TOML ({problem})"), "TOML", _REMEDY) from None
        return cls.from_dict(values, name)

    @classmethod
    def from_dict(cls, values: Any, name: str = "guess") -> TableGuess:
        """Read the guesses that a dictionary of plain values states."""
        keys = Keys(name, values)
        user, target, columns = keys.get("user", None), keys.get("target", None), keys.get("columns", {})
        keys.nothing_else()
        found = {column: _guess(f"{name}: columns.{column}", facts) for column, facts in Keys(name, columns).items()}
        if target is None:
            return cls(found, user=user).checked(name)
        column, classes, guess = _target(f"{name}: target", target)
        if column in found:
            raise ArgumentError(f"{name}: target", column, "a column that is not listed twice", f"Delete [columns.{column}].")
        return cls(found | {column: guess}, column, classes, user).checked(name)

    def to_list(self) -> list[dict[str, Any]]:
        """Return the guesses of all columns, the target among them, in their order and in plain values."""
        return [
            {"name": name, "levels": list(guess.levels)}
            if isinstance(guess, LevelGuess)
            else {
                "name": name,
                "low": guess.low,
                "high": guess.high,
                "whole": guess.whole,
                "bins": guess.bins,
                "edges": guess.edges.tolist(),
            }
            for name, guess in self.columns.items()
        ]

    def lines(self) -> list[str]:
        """Say what every column is taken for; to be read before anything is spent on it."""
        unsaid, ranges, levels = [], [], []
        for name, guess in self.columns.items():
            if isinstance(guess, LevelGuess):
                more = f", ... ({len(guess.levels)} levels)" if len(guess.levels) > _FEW else ""
                levels.append(f"{name} ({', '.join(guess.levels[:_FEW])}{more})")
            elif guess.says_nothing:
                unsaid.append(name)
            else:
                kind, low, high = "whole, " if guess.whole else "", guess.low, guess.high
                ranges.append(f"{name} ({kind}{low:.10g} to {high:.10g})")
        return [
            *([f"Numbers: {', '.join(ranges)}."] if ranges else []),
            *([f"Levels: {', '.join(levels)}."] if levels else []),
            *([f"Treated as {_UNSAID}: {', '.join(unsaid)}. {_COST}"] if unsaid else []),
        ]

    def checked(self, name: str = "guess") -> TableGuess:
        """Check that there is a column, and that none has two roles."""
        if self.user is not None and (not isinstance(self.user, str) or self.user in self.columns):
            raise ArgumentError(
                f"{name}: user", self.user, "a column that is not described", "The owner of a row cannot be a feature."
            )
        if not self.columns:
            raise ArgumentError(f"{name}: columns", Found("is empty"), "at least one column", _REMEDY)
        return self


def guess_for(
    source: Source,
    guess: TableGuess | None = None,
    *,
    target: str | None = None,
    user: str | None = None,
    ranges: Mapping[str, str] | None = None,
    levels: Mapping[str, str] | None = None,
    whole: Iterable[str] = (),
    leave_out: Iterable[str] = (),
) -> TableGuess:
    """Complete guesses by options and, where there are none for a table, by its header.

    The names of columns are treated as public, and for Parquet their types. A column of CSV of which nothing is said is taken for a
    number of any size.
    """
    ranges, levels, whole, leave_out = ranges or {}, levels or {}, tuple(whole), tuple(leave_out)
    user = user or (guess.user if guess else None)
    source.require([*ranges, *levels, *whole, *leave_out, *filter(None, [target, user])])
    if guess is None and not {*ranges, *levels, *whole} & set(source.names):
        _require_separated(source)
    columns: dict[str, Guess] = dict(guess.columns) if guess else {}
    left_out: list[str] = []
    undeclared: list[str] = []
    for name, kind in {} if guess else _types(source).items():
        if name not in (user, *leave_out):
            by_type = _by_type(kind)
            undeclared += [name] if kind is None and name not in (*ranges, *levels, *whole) else []
            if by_type is not None:
                columns[name] = by_type
            elif name not in (*ranges, *levels, *whole):
                left_out.append(f"{name}: of type {kind}, without listed levels (--levels)")
    columns |= {name: _range(name, text, columns.get(name)) for name, text in ranges.items()}
    columns |= {name: LevelGuess(tuple(part.strip() for part in text.split(","))) for name, text in levels.items()}
    for name in whole:
        columns[name] = _whole(name, columns.get(name, NumberGuess()))
    for other in (*leave_out, user or ""):
        columns.pop(other, None)
    column = target or (guess.target if guess else None)
    if column is not None and column not in columns:
        columns[column] = NumberGuess()
    known = columns.get(column or "")
    classes = guess.classes if guess and column == guess.target else None
    if classes is None and isinstance(known, LevelGuess):
        classes = known.levels
    return TableGuess(columns, column, classes, user, tuple(left_out), tuple(undeclared)).checked()


def _require_separated(source: Source) -> None:
    """Refuse a CSV file whose header was read as one name: all of epsilon would be spent on a column that there is not."""
    other = other_separator(source.names, source.dialect, source.files[0])
    if other is not None and source.row_groups(source.files[0]) is None:
        remedy = f"Its values seem to be separated by {shown(other)}: add --sep {shown(other)}. Nobody was asked."
        text = f"{source.files[0]} is read as one column, {source.names[0]!r}. {remedy}"
        raise FileError(str(source.files[0]), "one column", "separated values", remedy, text)


def _types(source: Source) -> dict[str, Any]:
    """The columns, with their types where the file states them: Parquet does, CSV does not."""
    if source.row_groups(source.files[0]) is None:
        return dict.fromkeys(source.names)
    stored = parquet.read_schema(source.files[0])
    return dict(zip(stored.names, stored.types, strict=True))


def _by_type(kind: Any) -> Guess | None:
    if kind is None or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return NumberGuess()
    if pa.types.is_integer(kind):
        return NumberGuess(whole=True)
    return LevelGuess(("false", "true")) if pa.types.is_boolean(kind) else None


def _range(name: str, text: str, known: Guess | None) -> NumberGuess:
    found = re.fullmatch(r"\s*(\S+?)\s*\.\.\s*(\S+)\s*", text)
    try:
        low, high = (float(end) for end in found.groups()) if found else (math.nan, math.nan)
    except ValueError:
        low = high = math.nan
    if not low < high:
        raise ArgumentError(f"--range {name}", text, "LOW..HIGH, such as 0..200", _REMEDY)
    return NumberGuess(low, high, whole=isinstance(known, NumberGuess) and known.whole)


def _whole(name: str, known: Guess) -> NumberGuess:
    if isinstance(known, LevelGuess):
        raise ArgumentError("--whole", name, "a column of numbers", "It has levels.")
    return replace(known, whole=True)


def _guess(name: str, values: Any) -> Guess:
    keys = Keys(name, values)
    levels = keys.get("levels", None)
    if levels is not None:
        keys.nothing_else()
        if not isinstance(levels, list) or not all(isinstance(level, str | int) for level in levels):
            raise ArgumentError(f"{name}.levels", levels, "a list of levels", _REMEDY)
        return LevelGuess(tuple(as_text(level) for level in levels))
    low, high, edges = keys.get("low", NumberGuess.low), keys.get("high", NumberGuess.high), keys.get("edges", None)
    if edges is not None and not isinstance(edges, list):
        raise ArgumentError(f"{name}.edges", edges, "a list of numbers", _REMEDY)
    stated = None if edges is None else tuple(edges)
    guess = NumberGuess(low, high, keys.get("whole", False), keys.get("bins", NumberGuess.bins), stated)
    keys.nothing_else()
    return guess


def _target(name: str, values: Any) -> tuple[str, tuple[Label, ...] | None, Guess]:
    keys = Keys(name, values)
    column, classes, ends = keys.need("column"), keys.get("classes", None), keys.get("range", None)
    whole = keys.get("whole", False)
    keys.nothing_else()
    if classes is not None:
        guess = _guess(name, {"levels": classes})
        return column, tuple(classes), guess
    if ends is not None and (not isinstance(ends, list) or len(ends) != 2):
        raise ArgumentError(f"{name}.range", ends, "[low, high]", _REMEDY)
    low, high = ends or (NumberGuess.low, NumberGuess.high)
    return column, None, NumberGuess(low, high, whole)


# Where noise hides the outermost people, a range goes on as it does from this many times their share to their share: as far as an
# exponential tail would, to the least share.
_NEARER = 4.0
# A column of which more than this share is missing or not a number, told from none by this many deviations, is not one of numbers.
# A column of numbers is mistaken for such a one with probability 3e-7, however much noise there is.
_MOST, _SURE = 0.5, 5.0
# Positive numbers whose 95 % quantile is this many times their 5 % quantile spread over orders of magnitude.
_ORDERS = 100.0


def describe_table(
    source: Source | str | os.PathLike[str],
    guess: TableGuess,
    *,
    epsilon: float,
    delta: float | None = None,
    share: float | None = None,
    honest: float = 1.0,
    seed: int | None = None,
    account: PrivacyAccount | None = None,
    work_dir: str | os.PathLike[str] | None = None,
    watcher: Watcher | None = None,
) -> Description:
    """Look at all columns of a file in one private round.

    The file is read piece by piece, so it may be larger than memory. All of it is read before anybody is asked. No value is
    refused: what is not a number, or no text, counts as missing.

    Parameters
    ----------
    source : Source or path-like
        CSV or Parquet, a file or a folder of files.
    guess : TableGuess
        What is guessed of the columns; `guess_for` completes it.
    epsilon : float
        Epsilon of the promise to everybody who is asked.
    delta : float, optional
        Default: 1e-6, or 0.1 / users if that is less.
    share : float, optional
        Ask only about this share of the people, chosen by their places or, with a user column, by their names.
    honest : float, default 1.0
        The fraction of people that is trusted to add its noise.
    seed : int, optional
        Fixes the noise, for tests: the description is NOT private.
    account : PrivacyAccount, optional
        Counts what is spent on the people who are asked.
    work_dir : path-like, optional
        The folder for rows while the file is read; default: the system's for temporary files.
    watcher : Watcher, optional
        Hears how many rows were read.

    Returns
    -------
    Description
        With error bars, and the guarantee.

    Raises
    ------
    ArgumentError
        A column is missing, the file cannot be read, or there are too few people; nobody was asked.

    Guarantee
    ---------
    `epsilon` and `delta` for each user who is asked, who is one row, or all rows of one name in the user column. The header, the
    guesses and the number of people are public; with a user column and `share`, so are names.

    Examples
    --------
    >>> import random, tempfile
    >>> from pathlib import Path
    >>> from croupier.table import describe_table, schema_from
    >>> from croupier.table.describe import TableGuess
    >>> file = Path(tempfile.mkdtemp(), "people.csv")
    >>> ages = [random.Random(number).randint(18, 90) for number in range(2000)]
    >>> _ = file.write_text("age,ill\\n" + "".join(f"{age},{'yes' if age > 55 else 'no'}\\n" for age in ages))
    >>> text = '[target]\\ncolumn = "ill"\\nclasses = ["no", "yes"]\\n[columns.age]\\nlow = 0\\nhigh = 1000\\nwhole = true\\n'
    >>> guess = TableGuess.from_toml(text)
    >>> description = describe_table(file, guess, epsilon=1.0)
    >>> schema, notes = schema_from(description, guess)
    >>> schema.columns["age"].high < 200, schema.described.epsilon
    (True, 1.0)
    """
    source = source if isinstance(source, Source) else Source(source)
    query, aside = Summaries(guess.columns), None if share is None else HoldOut.fresh(share)
    types = {name: pa.binary() for name in [*guess.columns, *([guess.user] if guess.user else [])]}
    source.require(list(types))
    place = 0
    # in double precision: 0.1 in single lies above a guess of 0 to 0.1
    with RowStore(work_dir, np.float64) as store:
        with (watcher or Watcher()).reading(source.path.name) as tell:
            for piece in source.pieces(types, max(1, (1 << 20) // len(types))):
                rows, users = values_of(piece, guess.columns), _users(piece, guess.user)
                asked = np.ones(len(piece), dtype=bool) if users is None else users[1]
                if aside is not None:
                    asked = asked & (aside.places(place, len(piece)) if users is None else aside.names(users[0]))
                store.append(rows[asked], np.zeros(int(asked.sum())), None if users is None else users[0][asked])
                place += len(piece)
                tell(len(piece))
        people = len(store) if store.users is None else len(np.unique(store.users))
        if people < 2:
            found = Found(f"has {people} people to ask")
            raise ArgumentError(str(source.path), found, "a file with at least two", "Check the file, or set more people aside.")
        _check_people(query, people, epsilon=epsilon, delta=delta, honest=honest)
        answer = ask(
            query,
            ArrayPopulation(store.rows, groups=store.users, invalid="blank"),
            epsilon=epsilon,
            delta=delta,
            honest=honest,
            seed=seed,
            account=account if aside is None else on_part(account, part_of(aside, place, guess.user)),
        )
    if aside is None:
        return description_of(answer)
    return description_of(answer, aside, place if guess.user is None else None, names=guess.user)


# Where three deviations of noise are half of all people, the median cannot be told from an end: a range would be noise. A quarter
# of them hides the quartiles: ranges are rough.
_USELESS, _ROUGH = 0.5, 0.25


def _check_people(query: Summaries, people: int, **budget: Any) -> None:
    """Refuse, or warn, from public facts and before anybody is asked, where noise would hide what ranges are read off."""
    plan = plan_for(query, people, **budget)
    blank = query.decode(SumEstimate(sum=np.zeros(query.dim), users=people, noise_std=plan.noise_std, guarantee=None))
    numbers = [3 * summary.tail_noise for summary in blank.values() if isinstance(summary, NumberSummary)]
    noise = max(numbers, default=0.0)
    said = f"noise is up to {min(noise, 9.99):.0%} of the people in every quantile of {len(blank)} columns"
    if noise >= _USELESS:
        least = math.ceil(people * noise / _USELESS)  # the sum's noise hardly depends on how many people share it
        hidden = f"With so few, noise hides every quantile of {len(blank)} columns."
        remedy = f"{hidden} Ask more people, describe fewer columns, or allow a larger epsilon. Nobody was asked."
        raise ArgumentError("people", people, f"about {least:,} or more for epsilon {budget['epsilon']:g}", remedy)
    if noise > _ROUGH:
        text = f"{people:,} people are few for epsilon {budget['epsilon']:g}: {said}. Ranges will be rough: check them."
        warnings.warn(text, TableWarning, stacklevel=3)


def table_of(
    source: Source,
    query: Table,
    *,
    epsilon: float,
    delta: float | None = None,
    user: str | None = None,
    watcher: Watcher | None = None,
    **options: Any,
) -> Answer:
    """Ask for a table of a file's columns, in one private round. Who has several rows is counted in parts, one person in all."""
    guesses = {axis.name: axis.guess for axis in query.axes}
    types = {name: pa.binary() for name in dict.fromkeys([*guesses, *([user] if user else [])])}
    source.require(list(types))
    with RowStore(None, np.float64) as store:
        with (watcher or Watcher()).reading(source.path.name) as tell:
            for piece in source.pieces(types, max(1, (1 << 20) // len(types))):
                rows, users = values_of(piece, guesses), _users(piece, user)
                asked = np.ones(len(piece), dtype=bool) if users is None else users[1]
                store.append(rows[asked], np.zeros(int(asked.sum())), None if users is None else users[0][asked])
                tell(len(piece))
        if len(store) == 0:
            raise ArgumentError(str(source.path), Found("has nobody to ask"), "a file with people", "Check the file.")
        people = ArrayPopulation(store.rows, groups=store.users, invalid="blank")
        return ask(query, people, epsilon=epsilon, delta=delta, **options)


def texts_of(source: Source, column: str, user: str | None = None, watcher: Watcher | None = None) -> list[Any]:
    """One text per row, or with a user column a list of texts for each person: what `HeavyHitters` takes."""
    types = {name: pa.binary() for name in dict.fromkeys([column, *([user] if user else [])])}
    source.require(list(types))
    texts: list[Any] = []
    owned: dict[int, list[str]] = {}
    with (watcher or Watcher()).reading(source.path.name) as tell:
        for piece in source.pieces(types):
            values, users = column_texts(piece, column, True).to_pylist(), _users(piece, user)
            if users is None:
                texts += values
            else:
                for text, number, somebody in zip(values, *users, strict=True):
                    if somebody:
                        owned.setdefault(int(number), []).append(text)
            tell(len(piece))
    return texts if user is None else list(owned.values())


def values_of(piece: Piece, guesses: Any) -> NDArray[np.float64]:
    """The guessed columns of some records as numbers: of levels their places in the list, NaN where there is nothing."""
    return np.column_stack([_values(piece, name, guess) for name, guess in guesses.items()])


def _values(piece: Piece, name: str, guess: Guess) -> NDArray[np.float64]:
    if isinstance(guess, LevelGuess):
        codes = level_codes(piece, name, guess.levels, True).astype(np.float64)
        return np.where(is_nobody(column_texts(piece, name, True)), np.nan, codes)
    numbers, _ = column_numbers(piece, name, True)
    return numbers


def _users(piece: Piece, user: str | None) -> tuple[NDArray[np.uint64], NDArray[np.bool_]] | None:
    """A number for the owner of each record, and whether it has one; None if every record is a person."""
    if user is None:
        return None
    somebody = ~is_nobody(column_texts(piece, user, True))
    numbers = np.zeros(len(piece), dtype=np.uint64)
    schema = Schema({}, Target(""), user)
    found = Encoder(schema, "blank")
    owned = found.users(found.owned(piece))
    assert owned is not None
    numbers[somebody] = owned
    return numbers, somebody


def schema_from(description: Description, guess: TableGuess) -> tuple[Schema, dict[str, str]]:
    """A schema for `fit_table`, with ranges from the description. This is post-processing, which costs no privacy.

    A range leaves out about half a per cent of the people at either end. Where noise hides so few, it is extended from the
    outermost visible ones, as far as an exponential tail would go. It is rounded outwards. Numbers that are positive and spread
    over orders of magnitude get `scale = "log"`. A column that was taken for numbers leaves the schema where most of its answers
    are missing or not numbers: a fit would refuse it, or learn nothing from it.

    Parameters
    ----------
    description : Description
        Of a table.
    guess : TableGuess
        The guesses that it was asked with, with the target.

    Returns
    -------
    schema : Schema
        Ready for a fit.
    notes : dict of str
        For each column, what was described; for one that is left out, why.

    Raises
    ------
    ArgumentError
        If no target is named, the target or every column beside it is not a number, the description is for zero-out neighbours, or
        people were set aside otherwise than a fit with this schema would find them.

    Examples
    --------
    >>> import numpy as np, croupier as cr
    >>> from croupier.statistics._columns import NumberGuess
    >>> from croupier.table import schema_from
    >>> from croupier.table.describe import TableGuess
    >>> rng = np.random.default_rng(0)
    >>> guess = TableGuess({"age": NumberGuess(0, 1000), "pay": NumberGuess(0, 1e7)}, target="pay")
    >>> people = np.column_stack([rng.uniform(20, 60, 20_000), rng.uniform(1e4, 1e5, 20_000)])
    >>> schema, _ = schema_from(cr.describe(people, guess.columns, epsilon=1.0, delta=1e-6), guess)
    >>> 15 <= schema.columns["age"].low <= 25, schema.target.range[1] < 200_000
    (True, True)
    """
    if guess.target is None:
        raise ArgumentError("target", None, f"one of {', '.join(guess.columns)}", "A schema states which column to predict.")
    plan = description.answer.plan
    if plan.neighbours != "replace-one":
        remedy = "A schema's promise is added to that of a fit: describe the data with the same neighbours as fits have."
        raise ArgumentError("description", Found(f"is for {plan.neighbours} neighbours"), "one for replace-one neighbours", remedy)
    if description.aside is not None and description.names != guess.user:
        remedy = "Describe the file itself with describe_table: a fit finds people by the names in its user column, or by position."
        by = f"set aside by {description.names or 'places'}"
        raise ArgumentError("description", by, f"set aside by {guess.user or 'places'}, as the schema says", remedy)
    columns: dict[str, Column] = {}
    notes: dict[str, str] = {}
    target = Target(guess.target, classes=guess.classes) if guess.classes is not None else None
    for name, summary in description.columns.items():
        if not isinstance(summary, NumberSummary):
            common = sorted(summary.levels.items(), key=lambda item: -item[1].value)[:8]
            notes[name] = "shares: " + ", ".join(f"{level} {score.value:.1%}" for level, score in common)
            if name != guess.target:
                columns[name] = Category(summary.guess.levels)
            continue
        if summary.missing.value > max(_MOST, _SURE * summary.missing.std):
            odd = f"{summary.missing.value:.0%} missing or not a number"
            if name == guess.target:
                remedy = "List its classes, and describe the data again; this answer is already spent."
                raise ArgumentError("target", name, f"a column of numbers, but {odd} were found", remedy)
            notes[name] = f"{odd}. If it is text, list its levels."
            continue
        low, high, scale = range_of(summary)
        end = max(0.05, summary.tail)  # further out are figures of noise, which contradict the range
        notes[name] = ", ".join(f"{100 * q:.3g} % {summary.quantile(q):.4g}" for q in (end, 0.5, 1 - end))
        notes[name] += "" if end == 0.05 else "; noise hides those further out"
        notes[name] += "" if not _is_there(summary.missing) else f"; {summary.missing.value:.1%} missing"
        if name == guess.target:
            target = Target(name, range=(low, high))
        else:
            columns[name] = Numeric(low, high, _is_there(summary.missing), scale)
    assert target is not None
    if not columns:
        remedy = "List the levels of text columns, and describe the data again; this answer is already spent."
        found = ", ".join(name for name in notes if name != guess.target)
        raise ArgumentError("columns", found, "columns of numbers, but most values are missing or not a number", remedy)
    rows = description.of if description.aside is not None else None
    release = Described(plan.epsilon, plan.delta, description.users, description.guarantee is not None, description.aside, rows)
    return Schema(columns, target, guess.user, target.usual_rows, release).checked("schema"), notes


def range_of(summary: NumberSummary) -> tuple[float, float, str]:
    """A range that few people lie outside of, rounded outwards, and the scale that suits it: "linear" or "log"."""
    guess, tail = summary.guess, summary.tail
    further = math.log(tail / LEAST_TAIL, _NEARER)
    middle = summary.quantile(0.5)
    inner_low, low = (min(summary.quantile(q), middle) for q in (_NEARER * tail, tail))
    inner_high, high = (max(summary.quantile(1 - q), middle) for q in (_NEARER * tail, tail))
    positive = low >= 0
    log = positive and _spreads(summary, tail)
    low, high = low - further * (inner_low - low), high + further * (high - inner_high)
    low = max(low, float(guess.low), 0.0 if positive else -math.inf)
    high = min(high, float(guess.high))
    if not low < high:  # nearly all are the same: the bin that they are in, and those beside it
        low, high = summary.interval(tail)[0], summary.interval(1 - tail)[1]
        margin = max(1.0, 1e-6 * abs(middle))
        low, high = (low, high) if low < high else (middle - margin, middle + margin)
    low, high = outwards(low, high)
    low = max(low, 0.0) if positive else low
    return low, high if low < high else low + 1.0, "log" if log else "linear"


def _spreads(summary: NumberSummary, tail: float) -> bool:
    """Whether positive numbers spread over orders of magnitude, above the unit that the log scale has."""
    lows, highs = summary.guess.ends
    above = summary.shares[:-1] * (highs > 0.5 if summary.guess.whole else highs > 0)
    reached = np.cumsum(above) / max(float(above.sum()), 1e-12)
    edge = min(max(0.05, tail / max(float(above.sum()), tail)), 0.25)
    first, last = (min(int(np.searchsorted(reached, q)), len(lows) - 1) for q in (edge, 1 - edge))  # of nobody: the last
    low, high = float(lows[first] + highs[first]) / 2, float(lows[last] + highs[last]) / 2
    return float(above.sum()) > tail and high >= _ORDERS * max(low, 1e-12) and high >= _ORDERS


def _is_there(missing: Any) -> bool:
    """Whether some values are missing, as far as noise lets one tell."""
    return bool(missing.value > 2 * missing.std)
