"""The people who were not set aside for a schema: those whom a fit may ask."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from .described import Described
from .read import Piece

Mask = NDArray[np.bool_]


def not_aside_by_place(described: Described | None, first: int, count: int) -> Mask:
    """Which of some rows belong to people who were not set aside by their places; all of them where nobody was."""
    if described is None or described.aside is None or described.rows is None:
        return np.ones(count, dtype=bool)
    return ~described.aside.places(first, count)


def not_aside_by_name(described: Described, users: Any) -> Mask:
    """Which of some rows belong to people who were not set aside by their names; all of them where nobody was."""
    if described.aside is None or described.rows is not None:
        return np.ones(len(users), dtype=bool)
    return ~described.aside.names(users)


def others(piece: Piece, described: Described | None, first: int) -> Piece:
    """The records of a piece, whose first has this place, without those set aside by their places."""
    kept = not_aside_by_place(described, first, len(piece))
    return piece if kept.all() else replace(piece, batch=piece.batch.filter(pa.array(kept)))
