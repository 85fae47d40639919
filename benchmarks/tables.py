"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Sequence


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, left: int | None = None) -> str:
    """Return a table with a line for its heads and one for every row.

    Parameters
    ----------
    heads : sequence of str
        The first line.
    rows : sequence of sequences of str
        The others.
    left : int, optional
        So many columns stand on the left of their cells and those after them, figures, on the right. All on the left unless given.
    """
    words = len(heads) if left is None else left
    rule = "|" + "---|" * words + "--:|" * (len(heads) - words)
    lines = ["| " + " | ".join(heads) + " |", rule, *("| " + " | ".join(row) + " |" for row in rows)]
    return "\n".join(lines) + "\n"
