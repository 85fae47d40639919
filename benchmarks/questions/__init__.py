"""What analysts ask first, beside what is claimed of it: unknown words, joint tables, counts over time.

Words are of 6 bytes, held by 100 000 people by a Zipf law, at epsilon 1, delta 1e-6; another population in every one of --runs runs
of the protocol itself, with secure randomness. Local privacy is by formula. Tables and streams are run as often; their errors stand
beside a central Gaussian's, and beside what no factorisation can fall below. --quick: few people, three runs.
"""

from __future__ import annotations

from ..protocol import no_figures as figures
from .measuring import measure, options
from .writing import judge, page

__all__ = ["figures", "judge", "measure", "options", "page"]
