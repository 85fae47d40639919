"""What a public sample shows of a column of numbers: a range that outliers do not stretch, whether they spread over orders of
magnitude, whether they only number the rows."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
# Numbers of a column that are kept for its quantiles; of a longer one, every second, fourth, ... is.
_KEPT = 1 << 17
# The quantiles that bound a range, and how far beyond them, in parts of their distance, an extreme may lie to be the bound itself.
_TAIL = 0.01
_NEAR = 0.5
# Positive numbers whose 95 % quantile is this many times their 5 % quantile spread over orders of magnitude.
_ORDERS = 100.0
# Fewer rows than this say nothing about whether they are numbered.
_FEW_ROWS = 10
_ID_NAME = re.compile(r"(^|[^A-Za-z])(id|key|index|row|uuid|nr|no)$|^unnamed\b|^$", flags=re.IGNORECASE)
_CAMEL_ID = re.compile(r"[a-z](Id|ID|Key|Index)$")


@dataclass
class Numbers:
    """Figures of a column of numbers, gathered batch by batch."""

    low: float = math.inf
    high: float = -math.inf
    rows: int = 0
    _missing: bool = False
    _whole: bool = True
    _counts_up: bool = True
    _step: int = 1
    _kept: list[Floats] = field(default_factory=list)

    def add(self, values: Floats) -> None:
        """Take in the next values; NaN is missing."""
        finite = values[np.isfinite(values)]
        self._missing = self._missing or len(finite) < len(values)
        if len(finite):
            self._counts_up = self._counts_up and self._goes_on(values)
            self.low, self.high = min(self.low, float(finite.min())), max(self.high, float(finite.max()))
            self._whole = self._whole and bool(np.all(finite == np.floor(finite)))
        self.rows += len(values)
        self._kept.append(finite[:: self._step])
        while sum(map(len, self._kept)) > 2 * _KEPT:
            self._kept, self._step = [np.concatenate(self._kept)[::2]], 2 * self._step

    def _goes_on(self, values: Floats) -> bool:
        first = self.low if self.rows else values[0]
        return bool(np.array_equal(values, first + self.rows + np.arange(len(values))))

    def numbering(self, name: str) -> str | None:
        """Why a column of this name only numbers the rows; None where it does not."""
        if self.rows < _FEW_ROWS or self._missing or not self._whole:
            return None
        if self._counts_up and self.low in (0, 1):
            return f"row numbers, {self.low:.0f} to {self.high:.0f}"
        sample = np.concatenate(self._kept)
        if len(np.unique(sample)) < len(sample):
            return None
        if self._step == 1 and self.high - self.low == self.rows - 1 and self.low in (0, 1):
            return f"every number from {self.low:.0f} to {self.high:.0f} once: row numbers in another order"
        if _ID_NAME.search(name.strip()) or _CAMEL_ID.search(name):
            return "another number in every row, and named like an id"
        return None

    def range(self) -> tuple[float, float, str]:
        """A range that few values lie outside of, rounded outwards, and the scale that suits them: "linear" or "log"."""
        sample = np.sort(np.concatenate(self._kept))
        if self._spreads(sample):
            low, high = _bounds(np.log1p(sample - self.low), math.log1p(self.high - self.low))
            ends = self.low + math.expm1(low), self.low + math.expm1(high)
            return *outwards(max(self.low, ends[0]), min(self.high, ends[1])), "log"
        low, high = _bounds(sample - self.low, self.high - self.low)
        return *outwards(self.low + low, self.low + high), "linear"

    def _spreads(self, sample: Floats) -> bool:
        """Whether numbers are positive and spread over orders of magnitude, above the unit that the log scale has."""
        positive = sample[sample > 0]
        if self.low < 0 or self.high - self.low < _ORDERS or len(positive) < _FEW_ROWS:
            return False
        ends = np.quantile(positive, [0.05, 0.95])
        return bool(ends[1] >= _ORDERS * ends[0])

    @property
    def note(self) -> str:
        """The extremes, in words."""
        return f"{self.low:g} to {self.high:g} in the sample"


def _bounds(ranked: Floats, most: float) -> tuple[float, float]:
    """The ends of a range for ranked numbers between 0 and `most`: quantiles, or extremes that are near them."""
    low, high = (float(end) for end in np.quantile(ranked, [_TAIL, 1 - _TAIL]))
    if not low < high:  # nearly all are the same
        return 0.0, most
    room = _NEAR * (high - low)
    return 0.0 if low <= room else low, most if most - high <= room else high


def outwards(low: float, high: float) -> tuple[float, float]:
    """The range rounded outwards to two digits of its width: a round figure, and none of somebody's."""
    unit = 10.0 ** (math.floor(math.log10(high - low)) - 1)
    digits = max(0, -round(math.log10(unit)))
    return round(math.floor(low / unit) * unit, digits), round(math.ceil(high / unit) * unit, digits)


def decimal_comma(texts: Any) -> bool:
    """Whether texts are numbers with a decimal comma, all of them."""
    some = [text.strip() for text in texts if isinstance(text, str) and text.strip()]
    return (
        bool(some)
        and all(re.fullmatch(r"[+-]?\d*([.\s]\d{3})*,\d+|[+-]?\d+", text) for text in some)
        and any("," in text for text in some)
    )
