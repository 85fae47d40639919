"""The public facts about one column: the range of a number, the levels of a category."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

from ..validation import ArgumentError, Found, one_of, real
from .toml_text import PUBLIC, Keys

UNKNOWN = ("zero", "refuse")
Label = str | int | bool
# Beyond this a number has no float32 beside it that is told apart; also keeps high - low finite.
_LIMIT = 1e30


@dataclass(frozen=True)
class Numeric:
    """A number between `low` and `high`: mapped to [-1, 1], clipped there. Missing is the middle.

    Parameters
    ----------
    low, high : float
        The range.
    missing : bool, default False
        Whether one more feature is 1 where the number is missing.
    scale : {"linear", "log"}, default "linear"
        With "log" equal ratios of (value - low + 1) are equal steps, for amounts and counts that spread over orders of magnitude.

    Examples
    --------
    >>> Numeric(0, 100)
    Numeric(low=0, high=100, missing=False, scale='linear')
    """

    low: float
    high: float
    missing: bool = False
    scale: str = "linear"


@dataclass(frozen=True)
class Category:
    """One of the declared levels, as text.

    Parameters
    ----------
    levels : tuple of str
        All that count.
    unknown : {"zero", "refuse"}, default "zero"
        Whether anything else counts as none of them, or is refused.
    reference : str, optional
        A level that gets no feature of its own: the others are counted against it. For regressions with intervals.

    Examples
    --------
    >>> Category(("f", "m"))
    Category(levels=('f', 'm'), unknown='zero', reference=None)
    """

    levels: tuple[str, ...]
    unknown: str = "zero"
    reference: str | None = None


Column = Numeric | Category


def column_from(name: str, values: Any) -> Column:
    """Read the public facts about a column.

    Parameters
    ----------
    name : str
        What errors call it.
    values : dict
        As `column_facts` gives them.

    Returns
    -------
    Numeric or Category
        Checked.

    Raises
    ------
    ArgumentError
        Where a key is missing or not known, or a value is outside its range.
    """
    keys = Keys(name, values)
    column: Column
    if "levels" in values:
        levels = labels_from(f"{name}.levels", keys.need("levels"), at_least=1)
        unknown = one_of(f"{name}.unknown", keys.get("unknown", "zero"), UNKNOWN, "'zero' counts it as none of the levels.")
        column = _category(name, tuple(as_text(level) for level in levels), unknown, keys.get("reference", None))
    elif "low" in values or "high" in values:
        low, high = range_from(name, [keys.need("low"), keys.need("high")])
        scale = one_of(f"{name}.scale", keys.get("scale", "linear"), ("linear", "log"), "'log' is for amounts and counts.")
        column = Numeric(low, high, _flag(f"{name}.missing", keys.get("missing", False)), scale)
    else:
        for key in ("low", "high", "levels"):
            keys.get(key, None)
        keys.nothing_else()
        raise ArgumentError(name, values, "low and high of a number, or levels of a category", PUBLIC)
    keys.nothing_else()
    return column


def _category(name: str, levels: tuple[str, ...], unknown: str, reference: Any) -> Category:
    """With a reference that is one of several levels, or none."""
    if reference is not None:
        reference = as_text(reference).strip()
        if reference not in levels or len(levels) < 2:
            remedy = "The others are counted against it: name one of two levels or more."
            raise ArgumentError(f"{name}.reference", reference, f"one of the levels {', '.join(levels[:20])}", remedy)
    return Category(levels, unknown, reference)


def labels_from(name: str, values: Any, at_least: int) -> tuple[Label, ...]:
    """Texts, whole numbers or truth values: all of one kind, each once."""
    kinds = {type(value) for value in values} if isinstance(values, list | tuple) else set()
    if len(kinds) != 1 or not kinds <= {str, int, bool} or len(values) < at_least:
        allowed = f"a list of at least {at_least}, all texts, all whole numbers or all true/false"
        raise ArgumentError(name, values, allowed, PUBLIC)
    text, times = Counter(as_text(value).strip() for value in values).most_common(1)[0]
    if times > 1:
        raise ArgumentError(
            name, Found(f"has {text!r} {times} times"), "a list in which everything is there once", "Spaces around do not count."
        )
    return tuple(value.strip() if isinstance(value, str) else value for value in values)


def range_from(name: str, ends: Any) -> tuple[float, float]:
    """Read [low, high] with low < high."""
    if not isinstance(ends, list | tuple) or len(ends) != 2:
        raise ArgumentError(name, ends, "[low, high]", PUBLIC)
    low, high = (real(name, end, above=-_LIMIT, below=_LIMIT, remedy=PUBLIC) for end in ends)
    if not (low < high and math.isfinite(2 / (high - low))):
        remedy = "A column that is the same for everybody says nothing: leave it out."
        raise ArgumentError(name, Found(f"has low = {low:g}, high = {high:g}"), "low < high", remedy)
    return low, high


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ArgumentError(name, value, "true or false", "true adds a feature that says where the number is missing.")
    return value


def as_text(value: Label) -> str:
    """A label as it stands in a file."""
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def column_facts(column: Column) -> dict[str, Any]:
    """Return the facts in plain values; what is as usual is left out.

    Parameters
    ----------
    column : Numeric or Category
        The column.

    Returns
    -------
    dict
        What `column_from` reads.
    """
    if isinstance(column, Category):
        unknown = {} if column.unknown == "zero" else {"unknown": column.unknown}
        reference = {} if column.reference is None else {"reference": column.reference}
        return {"levels": list(column.levels)} | unknown | reference
    facts: dict[str, Any] = {"low": column.low, "high": column.high}
    facts |= {"missing": True} if column.missing else {}
    return facts | ({} if column.scale == "linear" else {"scale": column.scale})
