"""The membership game against everything that the package releases.

`croupier.privacy.audit` holds the mathematics of the game and imports nothing of ours. What is played against is here: the real
protocol, optimizers and estimators, on neighbouring populations that are as far apart as the guarantee allows.
"""

from .kinds import KINDS, Coins, Kind
from .play import FALSE_ALARM, QUICK_TRIALS, TRIALS, Finding, Findings, play_all

__all__ = ["FALSE_ALARM", "KINDS", "QUICK_TRIALS", "TRIALS", "Coins", "Finding", "Findings", "Kind", "play_all"]
