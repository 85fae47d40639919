"""Fast certificates compared with ball arithmetic: where the fast figure is not above the enclosure, it is wrong.

Random plans, each proved, and corners: trials to 10^12, probabilities 2^-k and 1 - 2^-k, tails to 1e-300. Stored are how many were
proved and refused, how far the fast figures are above the enclosures, and the time of a proof. Finished sweeps are kept in
proofs.cells.jsonl. --quick: ten plans, and the corners with few trials. Needs the extra `proof`.
"""

from __future__ import annotations

from ..protocol import no_figures as figures
from .judging import judge
from .measuring import measure, options
from .writing import page

__all__ = ["figures", "judge", "measure", "options", "page"]
