"""One of the two parts that setting people aside makes of them: what an account needs to know whom a release was about."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from ..validation import ArgumentError, one_of, whole
from .set_aside import SetAside

SIDES = ("aside", "rest")
# What stands in the place of a column's name where people were told apart by labels in memory (groups=).
LABELS = "groups="
_REMEDY = "Take the part from the description or the schema that set people aside, and do not edit it."
Counted = TypeVar("Counted")


@dataclass(frozen=True)
class Part:
    """Those who were set aside, or the others. Nobody is in both, so what either part spends is not added to the other's.

    Parameters
    ----------
    aside : SetAside
        How people were set aside.
    side : {"aside", "rest"}
        Which of the two this is.
    rows : int, optional
        How many rows there are in all, where people were set aside by their places.
    names : str, optional
        The column of their names, where they were by these; "groups=" for labels in memory.

    Raises
    ------
    ArgumentError
        Where not exactly one of `rows` and `names` is given, or the side is neither.

    Guarantee
    ---------
    A user is on one side of a split, whatever their record holds, if splits are by places and neighbours differ in the record at
    one place, or by names and they differ in the records of one name. So releases about the two sides compose as the worse of
    both (accounting, section 4). Sides of different splits overlap, and are added up.

    Examples
    --------
    >>> part = Part(SetAside(0.1, "0" * 32), "aside", rows=10_000)
    >>> part.users, part.other.users, part.split == part.other.split
    (1003, 8997, True)
    """

    aside: SetAside
    side: str
    rows: int | None = None
    names: str | None = None

    def __post_init__(self) -> None:
        one_of("side", self.side, SIDES, _REMEDY)
        if not isinstance(self.aside, SetAside):
            raise ArgumentError("aside", self.aside, "a SetAside", _REMEDY)
        if (self.rows is None) == (self.names is None) or not isinstance(self.names, str | None):
            raise ArgumentError("rows, names", (self.rows, self.names), "a number of rows or a column of names", _REMEDY)
        if self.rows is not None:
            object.__setattr__(self, "rows", whole("rows", self.rows, at_least=2, remedy=_REMEDY))

    @property
    def split(self) -> Part:
        """What both sides have in common: those set aside stand for the split."""
        return Part(self.aside, "aside", self.rows, self.names)

    @property
    def other(self) -> Part:
        """The other side."""
        return Part(self.aside, "rest" if self.side == "aside" else "aside", self.rows, self.names)

    @property
    def users(self) -> int | None:
        """How many people are in it; None where they are told apart by names, which nobody has counted here."""
        if self.rows is None:
            return None
        return _chosen(self.aside, self.rows) if self.side == "aside" else self.rows - _chosen(self.aside, self.rows)

    def require(self, users: int, unit: str) -> None:
        """Refuse a release that cannot have been about this part.

        Parameters
        ----------
        users : int
            How many users it asked.
        unit : str
            What a user is: "row" or "person".

        Raises
        ------
        ArgumentError
            Where users are not what the split tells apart, or there are more or fewer of them than in the part.
        """
        needed = "person" if self.rows is None else "row"
        if unit != needed:
            how = "names" if self.rows is None else "places"
            remedy = (
                f"People were set aside by their {how}: somebody counted by {unit} may be on both sides. Count it on everybody."
            )
            raise ArgumentError("unit", unit, f"{needed!r}, as in the split", remedy)
        if self.users not in (None, users):
            remedy = "Ask exactly those of the part, or count the release on everybody: leave the part out."
            raise ArgumentError("users", users, f"{self.users:,}, as many as are in this part", remedy)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values.

        Returns
        -------
        dict
            What `from_dict` reads.
        """
        by: dict[str, Any] = {"names": self.names} if self.rows is None else {"rows": self.rows}
        return {"side": self.side, "share": self.aside.share, "seed": self.aside.seed} | by

    @classmethod
    def from_dict(cls, values: Any) -> Part:
        """Read a part as it was written.

        Parameters
        ----------
        values : dict
            What `to_dict` gave; a field that is unknown or missing is refused.

        Returns
        -------
        Part
            The same.

        Raises
        ------
        ArgumentError
            Where this is no part.
        """
        by = {"rows", "names"} & set(values) if isinstance(values, Mapping) else set()
        if len(by) != 1 or set(values) != {"side", "share", "seed"} | by:
            raise ArgumentError("part", values, "side, share, seed, and rows or names", _REMEDY)
        return cls(SetAside(values["share"], values["seed"]), values["side"], values.get("rows"), values.get("names"))

    def __str__(self) -> str:
        count = "" if self.users is None else f"{self.users:,} "
        if self.side == "rest":
            return f"the other {count}people of split {self.aside.seed[:8]}"
        return f"the {count}people set aside by split {self.aside.seed[:8]}"


def by_split(counted: list[tuple[Part | None, Counted]]) -> tuple[list[Counted], dict[Part, dict[str, list[Counted]]]]:
    """Sort what was counted into what is about everybody, and the two sides of every split.

    Parameters
    ----------
    counted : list of (Part or None, object)
        Each with the part that it is about; None for everybody.

    Returns
    -------
    everybody : list
        What was counted without a part.
    splits : dict of Part to dict of str to list
        By split, in the order in which they appear: what was counted on "aside" and on "rest".
    """
    splits: dict[Part, dict[str, list[Counted]]] = {}
    for part, value in counted:
        if part is not None:
            splits.setdefault(part.split, {side: [] for side in SIDES})[part.side].append(value)
    return [value for part, value in counted if part is None], splits


@functools.lru_cache(maxsize=64)
def _chosen(aside: SetAside, rows: int) -> int:
    """How many of so many places are set aside; piece by piece, so that a long table needs little memory."""
    step = 1 << 22
    return sum(int(aside.places(first, min(step, rows - first)).sum()) for first in range(0, rows, step))
