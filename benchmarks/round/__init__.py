"""One private round in figures: noise and bits over a grid, throughput against numpy and the keystream, planning time.

Speeds are medians of interleaved repeats and are given as ratios to a peer measured in the same run: absolute times depend on the
machine.
"""

from __future__ import annotations

from ..protocol import no_figures as figures
from ..protocol import no_options as options
from ..protocol import no_verdicts as judge
from .measuring import measure
from .writing import page

__all__ = ["figures", "judge", "measure", "options", "page"]
