"""Checks of arguments, with one wording: the argument, its value, what is allowed, and what to do; and of records."""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray


class Found(str):
    """What was found out about an argument, as a predicate ("contains NaN"), where there is no value to show in an error."""

    __slots__ = ()


class ArgumentError(ValueError):
    """An argument outside its allowed range; raised before anything private is touched.

    Parameters
    ----------
    name : str
        The argument.
    value : object
        What it was, or what was `Found` out about it.
    allowed : str
        What it must be, to follow "it must be".
    remedy : str
        What to do, as a sentence.

    Attributes
    ----------
    name, value, allowed, remedy : str or object
        The parameters as given.

    Examples
    --------
    >>> print(ArgumentError("users", 0, "at least 1", "Count the users."))
    users = 0 is not allowed: it must be at least 1. Count the users.
    >>> print(ArgumentError("y", Found("contains NaN"), "finite", "Drop users without a target."))
    y contains NaN; it must be finite. Drop users without a target.
    """

    def __init__(self, name: str, value: object, allowed: str, remedy: str) -> None:
        self.name, self.value, self.allowed, self.remedy = name, value, allowed, remedy
        super().__init__(self._text())

    def _text(self) -> str:
        wrong = f" {self.value};" if isinstance(self.value, Found) else f" = {_short(self.value)} is not allowed:"
        return f"{self.name}{wrong} it must be {self.allowed}. {self.remedy}"

    def __reduce__(self) -> tuple[type[ArgumentError], tuple[str, object, str, str]]:
        return ArgumentError, (self.name, self.value, self.allowed, self.remedy)  # to survive the way out of a worker process


class RecordError(ArgumentError):
    """A record that is refused. Its owner is told what it is and where; once it has left the process, the error says neither."""

    def __init__(self, name: str, value: object, allowed: str, remedy: str, public: str | None = None) -> None:
        super().__init__(name, value, allowed, remedy)
        self.public = name if public is None else public

    def __reduce__(self) -> tuple[type[RecordError], tuple[str, object, str, str]]:
        return RecordError, (self.public, _NOT_SHOWN, self.allowed, self.remedy)


class FileError(ArgumentError):
    """Something in a file that cannot be used, described for a person who looks at the file."""

    def __init__(self, name: str, value: str, allowed: str, remedy: str, text: str | None = None) -> None:
        self._line = text
        super().__init__(name, value, allowed, remedy)

    def _text(self) -> str:
        return self._line or f"{self.name}: {self.value}; it should be {self.allowed}. {self.remedy}"

    def __reduce__(self) -> tuple[type[FileError], tuple[str, str, str, str, str | None]]:  # type: ignore[override]
        return FileError, (self.name, str(self.value), self.allowed, self.remedy, self._line)


def unreadable(name: str, path: object, problem: Exception, kind: str, remedy: str) -> ArgumentError:
    """The error of an argument whose file is not there, cannot be opened, or is of another kind."""
    if isinstance(problem, FileNotFoundError):
        return ArgumentError(name, Found(f"names no file: {str(path)!r} does not exist"), kind, remedy)
    reason = getattr(problem, "strerror", None) or str(problem)
    if isinstance(problem, json.JSONDecodeError):
        reason = f"invalid JSON at line {problem.lineno}, column {problem.colno}"
    return ArgumentError(name, Found(f"names a file that cannot be read, {str(path)!r} ({reason})"), kind, remedy)


class FileRecordError(RecordError):
    """A record in a file that is refused, described for a person who looks at the file. As `RecordError`, it travels without it."""

    def _text(self) -> str:
        if self.value is MISSING:
            return f"{self.name}: the value is missing; it should be {self.allowed}. {self.remedy}"
        shown_value = "a value that is not shown" if self.value is _NOT_SHOWN else _short(self.value)
        return f"{self.name}: {shown_value} should be {self.allowed}. {self.remedy}"

    def __reduce__(self) -> tuple[type[RecordError], tuple[str, object, str, str]]:
        return _travelled, (self.public, self.allowed, self.remedy)  # type: ignore[return-value]


_NOT_SHOWN = Found("has a value that is not shown")
MISSING = Found("is missing")


def _travelled(name: str, allowed: str, remedy: str) -> FileRecordError:
    """The error as it is once it has left the process."""
    return FileRecordError(name, _NOT_SHOWN, allowed, remedy)


def _short(value: object) -> str:
    """The value as text, its middle left out where it is long (a number of a thousand digits, an array)."""
    try:
        text = repr(value)
    except ValueError:  # Python will not print whole numbers of more than some thousand digits
        text = f"a {type(value).__name__}"
    return text if len(text) <= 200 else f"{text[:100]} ... {text[-50:]}"


def _exact(limit: float) -> str:
    """A limit in as many digits as it takes: one that was rounded might allow what is refused."""
    text = f"{limit:g}"
    return text if float(text) == limit else repr(float(limit))


def real(
    name: str,
    value: Any,
    *,
    above: float = -math.inf,
    at_least: float = -math.inf,
    below: float = math.inf,
    at_most: float = math.inf,
    remedy: str,
) -> float:
    """Take a value as a finite float within limits."""
    try:
        number = math.nan if isinstance(value, bool | str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not (math.isfinite(number) and above < number < below and at_least <= number <= at_most):
        limits = (("greater than", above), ("at least", at_least), ("less than", below), ("at most", at_most))
        within = " and ".join(f"{words} {_exact(limit)}" for words, limit in limits if math.isfinite(limit))
        raise ArgumentError(name, value, f"a finite number {within}".strip(), remedy)
    return number


def whole(name: str, value: Any, *, at_least: int, at_most: int | None = None, remedy: str) -> int:
    """Take a value as an int within limits; 3.0 counts as whole, 3.5 and True do not."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or number < at_least or (at_most is not None and number > at_most):
        allowed = f"a whole number of at least {at_least}" + (f" and at most {at_most}" if at_most is not None else "")
        raise ArgumentError(name, value, allowed, remedy)
    return number


def one_of(name: str, value: object, choices: tuple[str, ...], remedy: str) -> str:
    """Take a value that has to be one of some words."""
    if not isinstance(value, str) or value not in choices:
        raise ArgumentError(name, value, "one of " + ", ".join(map(repr, choices)), remedy)
    return value


def how_to_install(extra: str) -> str:
    """The command that adds an extra to this copy of croupier, from where this copy came and never by its name from an index."""
    # Imported when something is missing, not by every program that checks an argument.
    import json  # noqa: PLC0415
    import re  # noqa: PLC0415
    import shlex  # noqa: PLC0415
    from importlib import metadata  # noqa: PLC0415
    from pathlib import Path  # noqa: PLC0415
    from urllib.parse import urlsplit  # noqa: PLC0415
    from urllib.request import url2pathname  # noqa: PLC0415

    checkout = Path(__file__).resolve().parents[2]
    if (checkout / "pyproject.toml").is_file():  # an editable install, or PYTHONPATH, whatever else is installed
        return shlex.join(["pip", "install", "-e", f"{checkout}[{extra}]"])
    try:
        copy = metadata.distribution("croupier")
    except metadata.PackageNotFoundError:
        return "the extra's packages are listed in pyproject.toml"
    origin = json.loads(copy.read_text("direct_url.json") or "{}")  # PEP 610; none where an index was asked
    url, repository = origin.get("url", "file:///nowhere"), origin.get("vcs_info")
    if urlsplit(url).scheme != "file" or Path(url2pathname(urlsplit(url).path)).exists():
        url = f"{repository['vcs']}+{url}@{repository['commit_id']}" if repository else url
        return shlex.join(["pip", "install", f"croupier[{extra}] @ {url}"])
    needed = [line.partition(";")[0].strip() for line in copy.requires or [] if re.search(rf"extra == ['\"]{extra}['\"]", line)]
    return shlex.join(["pip", "install", *needed])


# Records that are not valid, as numbers: which they are, each by itself, and what stands in their place.
#
# "refuse" stops before anybody is asked. Anyone who sees that learns that a record is not valid, so the guarantee needs the
# premise that all are. "blank" lets such a record count as a public default, whatever it holds, and needs no premise.


Invalid = Literal["refuse", "blank"]
INVALID: tuple[str, ...] = get_args(Invalid)
Mask = NDArray[np.bool_]


def blanks(invalid: Any) -> bool:
    """Tell whether invalid records count as blanks."""
    remedy = "'refuse' stops at an invalid record, before anybody is asked; 'blank' counts it as a public default."
    return one_of("invalid", invalid, INVALID, remedy) == "blank"


def numbers_or_nan(values: Any) -> Any:
    """Take numbers as they are; of anything else each value by itself as a float, NaN where it is none.

    A list is taken value by value, too: as an array of numpy's own choosing, one text in it would make texts of all numbers.
    A data frame's columns of dates or complex numbers are refused, since types are public: each of their rows would be blank.
    """
    if hasattr(values, "indptr"):
        return values
    for name, kind in getattr(values, "dtypes", {}).items() if hasattr(values, "iloc") and values.ndim == 2 else ():
        if getattr(kind, "kind", "O") in "mMc":
            raise ArgumentError(
                "X", Found(f"has a column {name!r} of type {kind}"), "a table of numbers", "Encode it, or leave it out."
            )
    array = one_by_one(values)
    if array.dtype.kind not in "OUS":
        return array
    numbers = np.array([_number(value) for value in array.ravel().tolist()], dtype=np.float64)
    return numbers.reshape(array.shape)


def one_by_one(values: Any) -> NDArray[Any]:
    """Make an array in which no value is another because of those beside it: lists are objects, and what is masked is None.

    Arrow's whole numbers beside a gap would become floats, which may not hold them: they are objects, too.
    """
    if np.ma.isMaskedArray(values):
        objects: NDArray[Any] = np.ma.getdata(values).astype(object)
        objects[np.ma.getmaskarray(values)] = None
        return objects
    if getattr(values, "null_count", 0) and hasattr(values, "to_pylist") and "int" in str(values.type):
        values = values.to_pylist()
    return np.array(values, dtype=object) if isinstance(values, list | tuple) else np.asarray(values)


def _number(value: Any) -> float:
    if isinstance(value, np.complexfloating):  # numpy's would be taken by its real part, with a warning
        return float("nan")
    try:
        return float(value)
    except Exception:  # whatever an object raises that somebody put there: it is not a number
        return float("nan")


def known_place(places: dict[Any, int], label: Any) -> int:
    """Find where a label stands among known ones, by Python's equality."""
    try:
        return places.get(label, -1)
    except Exception:  # not hashable, though its type says so, or not to be compared
        return -1


def is_missing(value: Any) -> bool:
    """Tell whether a value says that there is none."""
    try:
        return value is None or bool(value != value)  # noqa: PLR0124  (NaN and NaT, alone, differ from themselves)
    except (TypeError, ArithmeticError):  # pandas.NA does not say whether it differs, nor does a signalling NaN
        return True


def name_of(label: Any) -> Any:
    """Take a label as something that can be compared and hashed."""
    try:
        hash(label)
        return label.decode() if isinstance(label, bytes) else label
    except Exception:  # no UTF-8, or an object that cannot be hashed
        return None


def finite_rows(X: Any) -> Mask:
    """Find which rows, or entries of a column, are finite throughout."""
    entries = X.data if hasattr(X, "indptr") else X
    with np.errstate(all="ignore"):
        if entries.dtype.kind not in "fc" or np.isfinite(np.sum(entries)):  # a sum with NaN or infinity in it is not finite
            return np.ones(X.shape[0], dtype=bool)
    finite = np.isfinite(entries)
    if hasattr(X, "indptr"):
        whole = np.ones(X.shape[0], dtype=bool)
        whole[np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))[~finite]] = False
        return whole
    return np.asarray(finite if X.ndim == 1 else finite.all(axis=1))


def zeroed(X: Any, kept: Mask) -> Any:
    """Put zeros where nothing is to be kept of a row."""
    if kept.all():
        return X
    copy = X.copy()
    if hasattr(X, "indptr"):
        copy.data[np.repeat(~kept, np.diff(X.indptr))] = 0
    else:
        copy[~kept] = 0
    return copy


def taken(takes: Callable[[slice], object], count: int) -> Mask:
    """Find which of some entries a function takes.

    By halves, so that few odd ones among many are found soon.
    """
    is_taken = np.zeros(count, dtype=bool)
    open_slices = [slice(0, count)] if count else []
    while open_slices:
        some = open_slices.pop()
        try:
            takes(some)
        except (ArgumentError, ValueError, TypeError):
            if some.stop - some.start > 1:
                middle = (some.start + some.stop) // 2
                open_slices += [slice(some.start, middle), slice(middle, some.stop)]
        else:
            is_taken[some] = True
    return is_taken
