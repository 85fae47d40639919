"""Some of the people, chosen by randomness that knows nothing of them, for one release; the others are kept for the next."""

from __future__ import annotations

import functools
import hashlib
import math
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from numbers import Rational, Real
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..validation import ArgumentError, is_missing, one_of, real, whole

Mask = NDArray[np.bool_]
_WORD = 1 << 64


@dataclass(frozen=True)
class HoldOut:
    """A share of the people, chosen by a seed and by where they stand, or by their names: never by what their records hold.

    A person who is set aside answers one release and no other; the others answer any other. A release about the first, followed by
    one about the others that uses the first one's answer, is as private as the worse of the two: nobody is in both.

    `share`: The share of the people, above 0 and below 1. `seed`: 32 hexadecimal digits. It may be public; it must have been drawn
    without looking at the data, as `fresh` does.

    Guarantee
    ---------
    Let the first release be (e1, d1)-private and the second (e2, d2)-private whatever the first one said. A person who is set aside
    has (e1, d1), since the second is computed from the first and from others' records; everybody else has (e2, d2), since the
    first does not touch their record. This holds for each choice of places, so for a random one. It needs that a neighbour's
    record stands in the same place, under the same name: that a person's record is replaced, and no other's moved.
    """

    share: float
    seed: str

    def __post_init__(self) -> None:
        share = real("share", self.share, above=0, below=1, remedy="0.1 sets a tenth of the people aside.")
        object.__setattr__(self, "share", share)  # a float, as files hold it, whatever kind of number was given
        if not isinstance(self.seed, str) or not re.fullmatch(r"[0-9a-f]{32}", self.seed):
            raise ArgumentError("seed", self.seed, "32 hexadecimal digits", "Keep the table as croupier describe wrote it.")

    @classmethod
    def fresh(cls, share: float) -> HoldOut:
        """Choose by a new seed."""
        return cls(share, secrets.token_hex(16))

    def places(self, first: int, count: int) -> Mask:
        """Say which of some places are set aside."""
        source = np.random.Philox(counter=first // 4, key=self._key)
        return self._chosen(source.random_raw(first % 4 + count)[first % 4 :])

    def names(self, numbers: Any) -> Mask:
        """Say which of some people are set aside, by the numbers that stand for their names."""
        words = np.asarray(numbers, dtype=np.uint64)
        for half in divmod(self._key, _WORD):
            words = _mixed(words ^ np.uint64(half))
        return self._chosen(words)

    @property
    def _key(self) -> int:
        return int(self.seed, 16)

    def _chosen(self, words: NDArray[np.uint64]) -> Mask:
        return np.asarray(words < np.uint64(min(int(self.share * _WORD), _WORD - 1)))


def name_number(label: Any) -> int:
    """A name as 64 bits, the same in every process and in files. Two that share them are on the same side, which harms nobody.

    Labels that are equal have the same text here, whatever their types: a person on both sides would be asked twice. Of text and
    numbers we know which are equal; anything else is refused.
    """
    if is_missing(label):
        text = ""
    elif isinstance(label, str):
        text = str.__str__(label)  # of an enumeration its value, which is what it equals
    elif isinstance(label, Rational):
        text = str(Fraction(label))
    elif isinstance(label, Real | Decimal):
        number: Any = label  # of floats and decimals, numpy's too
        text = str(Fraction(*number.as_integer_ratio())) if math.isfinite(number) else str(float(number))
    else:
        remedy = "Name people by text or by numbers, such as str(label): equal labels must mean one person in every process."
        raise ArgumentError("groups", type(label).__name__, "text or numbers where a share is set aside", remedy)
    return int.from_bytes(hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest(), "big")


def _mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Words whose every bit depends on all bits of the old one: the last steps of SplitMix64."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(words ^ (words >> np.uint64(31)))


# One of the two parts that setting people aside makes of them: what an account needs to know whom a release was about.

SIDES = ("aside", "rest")
# What stands in the place of a column's name where people were told apart by labels in memory (groups=).
LABELS = "groups="
_REMEDY = "Use the part of the description or schema that set people aside, and do not edit it."
Counted = TypeVar("Counted")


@dataclass(frozen=True)
class Part:
    """Those who were set aside, or the others. Nobody is in both, so what either part spends is not added to the other's.

    `aside`: How people were set aside. `side`: Which of the two this is. `rows`: How many rows there are in all, where people were
    set aside by their places. `names`: The column of their names, where they were by these; "groups=" for labels in memory.

    Guarantee
    ---------
    A user is on one side of a split, whatever their record holds, if splits are by places and neighbours differ in the record at
    one place, or by names and they differ in the records of one name. So releases about the two sides compose as the worse of
    both (accounting, section 4). Sides of different splits overlap, and are added up.
    """

    aside: HoldOut
    side: str
    rows: int | None = None
    names: str | None = None

    def __post_init__(self) -> None:
        one_of("side", self.side, SIDES, _REMEDY)
        if not isinstance(self.aside, HoldOut):
            raise ArgumentError("aside", self.aside, "a HoldOut", _REMEDY)
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
        """How many people are in it; None if they are told apart by names, which nobody has counted here."""
        if self.rows is None:
            return None
        return _chosen(self.aside, self.rows) if self.side == "aside" else self.rows - _chosen(self.aside, self.rows)

    def require(self, users: int, unit: str) -> None:
        """Refuse a release that cannot have been about this part."""
        needed = "person" if self.rows is None else "row"
        if unit != needed:
            how = "names" if self.rows is None else "places"
            remedy = (
                f"People were set aside by their {how}: a person counted by {unit} may be on both sides. Count it on everybody."
            )
            raise ArgumentError("unit", unit, f"{needed!r}, as in the split", remedy)
        if self.users not in (None, users):
            remedy = "Ask exactly the people of the part, or leave the part out to count the release on everybody."
            raise ArgumentError("users", users, f"{self.users:,}, as many as are in this part", remedy)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        by: dict[str, Any] = {"names": self.names} if self.rows is None else {"rows": self.rows}
        return {"side": self.side, "share": self.aside.share, "seed": self.aside.seed} | by

    @classmethod
    def from_dict(cls, values: Any) -> Part:
        """Read a part as it was written."""
        by = {"rows", "names"} & set(values) if isinstance(values, Mapping) else set()
        if len(by) != 1 or set(values) != {"side", "share", "seed"} | by:
            raise ArgumentError("part", values, "side, share, seed, and rows or names", _REMEDY)
        return cls(HoldOut(values["share"], values["seed"]), values["side"], values.get("rows"), values.get("names"))

    def __str__(self) -> str:
        count = "" if self.users is None else f"{self.users:,} "
        if self.side == "rest":
            return f"the other {count}people of split {self.aside.seed[:8]}"
        return f"the {count}people set aside by split {self.aside.seed[:8]}"


def by_split(counted: list[tuple[Part | None, Counted]]) -> tuple[list[Counted], dict[Part, dict[str, list[Counted]]]]:
    """Sort what was counted into what is about everybody, and the two sides of every split."""
    splits: dict[Part, dict[str, list[Counted]]] = {}
    for part, value in counted:
        if part is not None:
            splits.setdefault(part.split, {side: [] for side in SIDES})[part.side].append(value)
    return [value for part, value in counted if part is None], splits


@functools.lru_cache(maxsize=64)
def _chosen(aside: HoldOut, rows: int) -> int:
    """How many of this many places are set aside; piece by piece, so that a long table needs little memory."""
    step = 1 << 22
    return sum(int(aside.places(first, min(step, rows - first)).sum()) for first in range(0, rows, step))
