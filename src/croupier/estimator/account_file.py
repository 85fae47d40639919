"""The file of an account: its terms in the first line, then one line a fit. Several processes append to it at once."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .. import files
from ..privacy import Guarantee, round_up
from ..privacy._filter import Caps
from ..statistics.holdout import Part
from ..validation import ArgumentError, Found, one_of, real

FORMAT, VERSION = "croupier account", 2
UNITS = ("row", "person", "user")
# The delta of an account for which none was chosen.
COMMON_DELTA = 1e-6
_EDITED = "Do not edit an account by hand; begin a new one."


@dataclass(frozen=True)
class Spent:
    """One fit.

    Attributes
    ----------
    what : str
        The estimator.
    users : int
        On how many users.
    guarantee : Guarantee or None
        None where its randomness was seeded.
    run : str
        The run's name: a fit that goes on from a checkpoint is the same run, and is counted once.
    unit : str
        Whom the guarantee protects: "row" (every row was a user), "person" (all rows of a person were one), or "user" (whatever the
        population calls one).
    part : Part or None
        The part of the people that was asked, where they were set aside; None for everybody.
    """

    what: str
    users: int
    guarantee: Guarantee | None
    run: str
    unit: str
    part: Part | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON; with a digest where the entry names a part, since that takes it out of the sum of others."""
        guarantee = self.guarantee and self.guarantee.to_dict()
        plain = {"what": self.what, "users": self.users, "guarantee": guarantee, "run": self.run, "unit": self.unit}
        if self.part is None:
            return plain
        plain |= {"part": self.part.to_dict()}
        return plain | {"digest": _digest(plain)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Spent:
        """An entry as it was written.

        Raises
        ------
        ArgumentError
            Where it names a part that it cannot be about, or that was put there or changed after it was written.
        """
        guarantee = None if values["guarantee"] is None else Guarantee.from_dict(values["guarantee"])
        unit = one_of("unit", values["unit"], UNITS, _EDITED)
        part = None if values.get("part") is None else Part.from_dict(values["part"])
        spent = cls(values["what"], values["users"], guarantee, values["run"], unit, part)
        if part is not None:
            part.require(spent.users, unit)
            if values.get("digest") != _digest({name: value for name, value in values.items() if name not in ("id", "digest")}):
                raise ArgumentError("part", str(part), "as it was when the fit was written down", _EDITED)
        return spent


@dataclass(frozen=True)
class Limit:
    """What everybody is promised altogether, and the caps that keep it.

    Attributes
    ----------
    epsilon, delta : float
        The promise.
    caps : Caps
        On squares of mu and on slacks.
    """

    epsilon: float
    delta: float
    caps: Caps

    @classmethod
    def of(cls, epsilon: float | None, delta: float) -> Limit | None:
        """The limit for such a promise; None where there is none."""
        return None if epsilon is None else cls(epsilon, delta, Caps.of_limit(epsilon, delta))

    def __str__(self) -> str:
        return f"limit epsilon = {round_up(self.epsilon)}, delta = {round_up(self.delta)}"


@dataclass(frozen=True)
class Terms:
    """What is fixed for an account before anything is released.

    Attributes
    ----------
    limit : Limit or None
        None where fits are counted without one.
    first_cap : float
        The odometer's smallest cap, by the first fit.
    delta : float
        That of every figure, and of the limit.
    """

    limit: Limit | None
    first_cap: float
    delta: float

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        fixed = {"limit": self.limit and asdict(self.limit), "first_cap": self.first_cap, "delta": self.delta}
        return {"format": FORMAT, "version": VERSION} | fixed

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Terms:
        """Terms as they were written; caps that do not keep the limit are refused.

        Raises
        ------
        ArgumentError
            Where this is no first line of an account of this version.
        """
        remedy = "Begin a new file, with a limit that leaves room for what the old one has spent."
        if values.get("format") != FORMAT or values.get("version") != VERSION:
            allowed = f"of format {FORMAT!r}, version {VERSION}, which says whom every fit protects and fixes the limit"
            raise ArgumentError("first line", values.get("format", "an account without terms"), allowed, remedy)
        first = real("first_cap", values["first_cap"], above=0, remedy=remedy)
        if values["limit"] is None:
            # files from before this was written down are counted at the delta that accounts had where none was chosen
            return cls(None, first, real("delta", values.get("delta", COMMON_DELTA), above=0, below=1, remedy=remedy))
        caps = Caps(**{name: real(name, value, above=0, remedy=remedy) for name, value in values["limit"]["caps"].items()})
        epsilon = real("epsilon", values["limit"]["epsilon"], above=0, remedy=remedy)
        delta = real("delta", values["limit"]["delta"], above=0, below=1, remedy=remedy)
        if not caps.keep(epsilon, delta):
            raise ArgumentError("caps", str(caps), f"such that they keep epsilon = {epsilon!r}, delta = {delta!r}", remedy)
        return cls(Limit(epsilon, delta, caps), first, delta)


def is_account(path: Path) -> bool:
    """Whether this file begins as accounts do, of whatever version."""
    try:
        with path.open("rb") as file:
            first = json.loads(file.readline(10_000))
    except (OSError, ValueError):
        return False
    return isinstance(first, dict) and first.get("format") == FORMAT


def append(path: Path, entry: dict[str, Any]) -> None:
    """One more line, on the disk when this returns."""
    line = (json.dumps(entry) + "\n").encode()
    if path.exists() and path.stat().st_size and not path.read_bytes().endswith(b"\n"):
        line = b"\n" + line  # a line that was cut off stays one line, and is refused when read
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        files.append(handle, line, path)
    finally:
        os.close(handle)


def read(path: Path) -> tuple[Terms | None, list[Spent]]:
    """The terms and the fits in a file; None and no fits where it is empty or not there.

    Two processes that begin a file at once both write terms: the first line counts.

    Raises
    ------
    ArgumentError
        Where a line was cut off, or an earlier version wrote it.
    """
    entries = [_entry(path, *numbered) for numbered in enumerate(path.read_text().splitlines(), start=1)] if path.exists() else []
    if not entries:
        return None, []
    try:
        terms = Terms.from_dict(entries[0])
        cancelled = {entry["cancelled"] for entry in entries if "cancelled" in entry}
        return terms, [Spent.from_dict(entry) for entry in entries if "id" in entry and entry["id"] not in cancelled]
    except (KeyError, TypeError) as problem:
        raise ArgumentError(
            str(path), Found(f"cannot be read ({type(problem).__name__}: {problem})"), "complete", _EDITED
        ) from None


def _digest(plain: dict[str, Any]) -> str:
    """Tells an entry from one that was changed by hand. It has no key, so it does not stop a forger."""
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def _entry(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except json.JSONDecodeError:
        remedy = "A fit was cut off while it was written down: count it as spent, and mend the line by hand."
        raise ArgumentError(f"{path}, line {number}", Found("is not JSON"), "a whole entry", remedy) from None
    if not isinstance(entry, dict):
        raise ArgumentError(
            f"{path}, line {number}", Found("is no JSON object"), "an entry of an account", "Give a file of its own."
        )
    return entry
