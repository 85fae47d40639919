"""Statistics in one round beside what is claimed of them: least squares, its intervals, evaluation, diameters,
private descriptions.

--data is a folder with adult.npz, covtype.npz and `load.py`, which has `load(task, normalise)` and `unit_rows`. Adult's target is
age, Covertype's elevation; all other columns, one-hot, are features. delta = 1e-6, replace-one neighbours, medians of 5 fits. R^2
and times are of the protocol itself, with secure randomness. Coverage and evaluation draw the plan's noise as Gaussian, over many
populations. Finished parts are kept in private_statistics.cells.jsonl. --quick: 20 000 people for training, few populations.
"""

from __future__ import annotations

from ..protocol import no_figures as figures
from .judging import judge
from .measuring import measure, options
from .writing import headline, page, summary

__all__ = ["figures", "headline", "judge", "measure", "options", "page", "summary"]
