"""The membership game against everything that the package releases.

`croupier.privacy.audit` holds the mathematics of the game and imports nothing of ours. What is played against is here: the real
protocol, optimizers, estimators and deployed roles, on neighbouring populations that are as far apart as the guarantee allows.
"""

from .kinds import Coins, Kind
from .play import DEPLOYED, FALSE_ALARM, KINDS, QUICK_TRIALS, TRIALS, Finding, Findings, play_all, runs_of

__all__ = [
    "DEPLOYED",
    "FALSE_ALARM",
    "KINDS",
    "QUICK_TRIALS",
    "TRIALS",
    "Coins",
    "Finding",
    "Findings",
    "Kind",
    "play_all",
    "runs_of",
]
