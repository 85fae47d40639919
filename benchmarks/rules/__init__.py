"""Which practical rule: plain, centred, scaled and whitened runs, and settings about the chosen one, on held-out training rows.

--data is a folder with `load.py`, as for `accuracy`. Every seed holds out another part of the training rows; no test row is read.
The noise of the plans is drawn as Gaussian. For every kind of problem the setting is chosen by its mean score with each table left
out in turn, and judged on the table that was left out. Synthetic tables of several classes have a weak signal. --quick: one seed,
fewer people.
"""

from __future__ import annotations

from ..protocol import no_figures as figures
from .measuring import measure, options
from .writing import judge, page

__all__ = ["figures", "judge", "measure", "options", "page"]
