"""Where things lie."""

from __future__ import annotations

import os
from pathlib import Path

HERE = Path(__file__).parent
# In a checkout; an installed package has neither.
RESULTS, DOCS = HERE / "results", HERE.parent / "docs"


def environment() -> dict[str, str]:
    """Return this process's environment for another that has to import this package, by the name that it has here."""
    root = HERE.parents[__name__.count(".") - 1]
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])])}
