"""How fast the training path is: an earlier version, numpy alone, the compiled pass, both cores; and where the time goes.

The cost of training is one random rounding per user and coordinate, in the full model once a round; so all is in nanoseconds per
entry, users times coordinates times rounds, of a whole logistic fit with secure randomness. Medians of interleaved repeats.
--earlier is the src folder of a version to be measured beside this one.
"""

from __future__ import annotations

from ..protocol import no_figures as figures
from ..protocol import no_verdicts as judge
from .measuring import measure, options
from .writing import headline, page, summary

__all__ = ["figures", "headline", "judge", "measure", "options", "page", "summary"]
