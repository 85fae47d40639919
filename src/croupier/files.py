"""Files that survive: written whole or not at all, appended line by line, and locked. A leaf: it imports nothing of ours.

What these functions have written is on the disk when they return, its name in the folder included.
"""

from __future__ import annotations

import errno
import json
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any, Self

try:
    import fcntl
except ImportError:  # Windows has no such locks
    fcntl = None  # type: ignore[assignment]


@contextmanager
def written_whole(path: Path, *, private: bool = False) -> Iterator[Path]:
    """A file to write to, which takes its name only once it is complete: nobody ever sees half of it."""
    path = path.resolve()
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=path.suffix, dir=path.parent)
    os.close(handle)
    part = Path(name)
    try:
        yield part
        if not private:
            part.chmod(0o666 & ~_umask())
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        part.replace(path)
        sync_folder(path.parent)
    finally:
        part.unlink(missing_ok=True)


def write_whole(path: Path, data: bytes, *, private: bool = False) -> None:
    """Write a file that is there with all of these bytes, or not at all; one of the same name is replaced."""
    with written_whole(path, private=private) as part:
        part.write_bytes(data)


def create_private(path: Path, data: bytes) -> None:
    """Write a new file for its owner alone, such as a key."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    sync_folder(path.parent)


def append(handle: int, data: bytes, path: Path) -> None:
    """Write these bytes at once to a file that is open for appending."""
    if os.write(handle, data) != len(data):
        raise OSError(errno.ENOSPC, "could not be written completely", str(path))
    os.fsync(handle)


def lock(handle: int) -> None:
    """Lock an open file until it is closed, so that one process at a time has it. Does nothing where the system has no such
    locks."""
    if fcntl is not None:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def sync_folder(folder: Path) -> None:
    """Make sure that the names in a folder survive a power cut, as the files' content does."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


# Values that travel as JSON: text is made of a dictionary and read as one, in one place.


def json_line(values: dict[str, Any]) -> bytes:
    """One line of a file that grows by lines: an object, and the line break that says that it is whole."""
    return (json.dumps(values) + "\n").encode()


def json_object(text: str | bytes) -> dict[str, Any] | None:
    """The object in a line; None if it is none, cut off say."""
    try:
        values = json.loads(text)
    except ValueError:
        return None
    return values if isinstance(values, dict) else None


class Figures(ABC):
    """A result that has rows of figures: a frame for those who compute with it, and a table where a notebook shows it."""

    @abstractmethod
    def figures(self) -> list[dict[str, Any]]:
        """Return the rows, each by the names of its columns.

        Returns
        -------
        list of dict
            Plain values.
        """

    def to_frame(self) -> Any:
        """Return the figures as a frame. Needs pandas.

        Returns
        -------
        pandas.DataFrame
            One row per figure.
        """
        try:
            import pandas  # type: ignore[import-untyped]  # noqa: PLC0415  (not needed otherwise)
        except ImportError as error:
            raise ImportError("to_frame needs pandas: pip install pandas") from error
        return pandas.DataFrame(self.figures())

    def _repr_html_(self) -> str:
        rows = self.figures()
        head, *_ = str(self).splitlines()
        caption = f"<p>{escape(head)}</p>\n"
        if not rows:
            return caption
        names = "".join(f"<th>{escape(str(name))}</th>" for name in rows[0])
        body = "\n".join(
            "<tr>" + "".join(f"<td>{escape(_short(value))}</td>" for value in row.values()) + "</tr>" for row in rows[:_MOST]
        )
        more = f"<p>{len(rows) - _MOST:,} more</p>" if len(rows) > _MOST else ""
        return f"{caption}<table>\n<thead><tr>{names}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>{more}"


# Rows that a notebook shows.
_MOST = 60


def _short(value: Any) -> str:
    """A figure for people; figures of a promise come as text, rounded already."""
    return f"{value:,.4g}" if isinstance(value, float) else "" if value is None else str(value)


class JsonText(ABC):
    """A value that has a dictionary of plain JSON types, and so a text."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Give the value in plain JSON types.

        Returns
        -------
        dict
            Input of `from_dict`.
        """

    @classmethod
    @abstractmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Read a value from its dictionary.

        Parameters
        ----------
        values : dict
            Output of `to_dict`.

        Returns
        -------
        Self
            The value, checked.
        """

    def to_json(self) -> str:
        """Write the value as JSON.

        Returns
        -------
        str
            Input of `from_json`.
        """
        return json.dumps(self.to_dict())

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read a value from JSON; see `from_dict`.

        Parameters
        ----------
        text : str
            Output of `to_json`.

        Returns
        -------
        Self
            The value, checked as `from_dict` does.

        Raises
        ------
        ArgumentError
            If `from_dict` refuses it.
        """
        return cls.from_dict(json.loads(text))
