"""Other libraries' accountants beside ours, for every kind of guarantee: dp_accounting, and PLD_accounting where it is installed.

The audit page (`python -m benchmarks audit`) shows the figures beside the membership games. --quick: few users in a round.
"""

from __future__ import annotations

from ..protocol import no_figures as figures
from ..protocol import no_options as options
from .judging import judge
from .measuring import measure
from .writing import page

__all__ = ["figures", "judge", "measure", "options", "page"]
