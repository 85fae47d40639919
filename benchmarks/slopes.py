"""Slopes of power laws."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def slope(x: Sequence[float], y: Sequence[float] | np.ndarray) -> float:
    """Return the slope of the least-squares line through the logarithms."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])
