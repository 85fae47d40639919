"""The mean of private vectors: error and bits per user of Croupier beside other ways, over users, coordinates and epsilon.

Everything is for replace-one neighbours. Others are computed from their published accounting (mechanisms.py); Croupier's stated
error is also measured by running the protocol. Exits with 1 where a measured error is above the stated one by more than chance. A
run that was cut off goes on where it was.
"""

from __future__ import annotations

from ..cells import options
from .drawing import figures
from .judging import judge
from .measuring import measure
from .writing import headline, page, summary

__all__ = ["figures", "headline", "judge", "measure", "options", "page", "summary"]
