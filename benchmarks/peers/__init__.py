"""Croupier compared with the alternatives: accuracy, wall time, bits per user and trust, on real data.

--data is a folder with `load.py`, which has `load(name, normalise=True)` -> train X, train y, test X, test y and `unit_rows`.
Every method tries its four settings on the same held-out tenth of the training rows, at each data set, loss and epsilon; the best
is fitted to all of these rows and judged on the test rows. Finished fits are kept in peers.cells.jsonl: the same command goes on
where it was cut off. Opacus and diffprivlib get virtual environments of their own in --venvs, made on first use; where that fails,
their cells say why. Exits with 1 where a line of "asked" is missed. --quick: Adult and Covertype, logistic, epsilon 1, two seeds,
two settings.
"""

from __future__ import annotations

from .drawing import figures, front
from .judging import judge
from .measuring import measure, options
from .writing import headline, page, summary

__all__ = ["figures", "front", "headline", "judge", "measure", "options", "page", "summary"]
