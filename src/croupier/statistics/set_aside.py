"""Some of the people, chosen by randomness that knows nothing of them, for one release; the others are kept for the next."""

from __future__ import annotations

import hashlib
import math
import re
import secrets
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from numbers import Rational, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..invalid import is_missing
from ..validation import ArgumentError, real

Mask = NDArray[np.bool_]
_WORD = 1 << 64


@dataclass(frozen=True)
class SetAside:
    """A share of the people, chosen by a seed and by where they stand, or by their names: never by what their records hold.

    Whoever is set aside answers one release and no other; the others answer any other. A release about the first, followed by one
    about the others that uses the first one's answer, is as private as the worse of the two: nobody is in both.

    Parameters
    ----------
    share : float
        The share of the people, above 0 and below 1.
    seed : str
        32 hexadecimal digits. It may be public; it must have been drawn without looking at the data, as `fresh` does.

    Raises
    ------
    ArgumentError
        Where the share or the seed is out of range.

    Guarantee
    ---------
    Let the first release be (e1, d1)-private and the second (e2, d2)-private whatever the first one said. Whoever is set aside
    has (e1, d1), since the second is computed from the first and from others' records; everybody else has (e2, d2), since the
    first does not touch their record. This holds for each choice of places, so for a random one. It needs that a neighbour's
    record stands in the same place, under the same name: that a person's record is replaced, and no other's moved.

    Examples
    --------
    >>> aside = SetAside(0.1, "0" * 32)
    >>> int(aside.places(0, 10_000).sum()), bool((aside.places(0, 10_000)[77:99] == aside.places(77, 22)).all())
    (1003, True)
    """

    share: float
    seed: str

    def __post_init__(self) -> None:
        share = real("share", self.share, above=0, below=1, remedy="0.1 sets a tenth of the people aside.")
        object.__setattr__(self, "share", share)  # a float, as files hold it, whatever kind of number was given
        if not isinstance(self.seed, str) or not re.fullmatch(r"[0-9a-f]{32}", self.seed):
            raise ArgumentError("seed", self.seed, "32 hexadecimal digits", "Leave the table as croupier describe wrote it.")

    @classmethod
    def fresh(cls, share: float) -> SetAside:
        """Choose by a new seed.

        Parameters
        ----------
        share : float
            The share of the people.

        Returns
        -------
        SetAside
            With a seed from the system's source of randomness.
        """
        return cls(share, secrets.token_hex(16))

    def places(self, first: int, count: int) -> Mask:
        """Say which of some places are set aside.

        Parameters
        ----------
        first : int
            The first place, counted from 0.
        count : int
            How many places.

        Returns
        -------
        ndarray of bool
            True for those set aside.
        """
        source = np.random.Philox(counter=first // 4, key=self._key)
        return self._chosen(source.random_raw(first % 4 + count)[first % 4 :])

    def names(self, numbers: Any) -> Mask:
        """Say which of some people are set aside, by the numbers that stand for their names.

        Parameters
        ----------
        numbers : array_like of uint64
            One for each person or row; equal numbers are one person.

        Returns
        -------
        ndarray of bool
            True for those set aside.
        """
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
        remedy = "Name people by text or by numbers, str(label) say: equal labels have to be one person in every process."
        raise ArgumentError("groups", type(label).__name__, "text or numbers where a share is set aside", remedy)
    return int.from_bytes(hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest(), "big")


def _mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Words whose every bit depends on all bits of the old one: the last steps of SplitMix64."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(words ^ (words >> np.uint64(31)))
