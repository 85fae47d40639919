"""Measured rates beside the paper's: excess population loss over the users n and over epsilon, one line per theorem.

Every problem has a known population minimiser and an exact excess loss, so nothing is estimated on a test set. Runs are the real
protocol with seeded randomness. The privacy terms of the paper depend on epsilon n, so both axes have the same exponent; delta is
fixed, so that logarithms do not bend a slope. Exits with 1 where a fitted slope is shallower than the paper's exponent by more than
0.15. An interrupted run resumes.
"""

from __future__ import annotations

from ..cells import options
from .drawing import figures
from .judging import judge
from .measuring import measure
from .writing import headline, page, summary

__all__ = ["figures", "headline", "judge", "measure", "options", "page", "summary"]
