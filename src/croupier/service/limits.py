"""How large a task may be, checked before anything of that size is made."""

from __future__ import annotations

from typing import Any

from .documents import WireError

# A round's document holds theta as text, and has at most 64 MiB.
MOST_COORDINATES = 1 << 22


def require_coordinates(values: Any) -> None:
    """Refuse words of a task with more coordinates than a round's theta can have.

    Parameters
    ----------
    values : Any
        JSON values, of which every `dim` is looked at.

    Raises
    ------
    WireError
        Where one is more than 2^22.
    """
    if isinstance(values, dict):
        dim = values.get("dim", 0)
        if isinstance(dim, int | float) and not dim <= MOST_COORDINATES:
            raise WireError(f"a task of more than {MOST_COORDINATES:,} coordinates")
        values = list(values.values())
    for value in values if isinstance(values, list) else ():
        require_coordinates(value)
