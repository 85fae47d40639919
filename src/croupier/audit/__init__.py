"""Ways to catch ourselves: exact enumeration, another library's accountant, and the membership game.

`empirical`, `exact` and `pld` take numbers or functions, never our protocol: they share no code with what they
audit. `games`, `models` and `deployed` hold what is played against: the real protocol, estimators and roles, on neighbours as
far apart as the guarantee allows.
"""

from .empirical import EmpiricalAudit, empirical_audit
from .exact import count_law, exact_delta, hockey_stick
from .games import Coins, Kind
from .play import DEPLOYED, FALSE_ALARM, KINDS, QUICK_TRIALS, TRIALS, Finding, Findings, play_all, runs_of
from .pld import loss_distribution, pld_delta

__all__ = [
    "DEPLOYED",
    "FALSE_ALARM",
    "KINDS",
    "QUICK_TRIALS",
    "TRIALS",
    "Coins",
    "EmpiricalAudit",
    "Finding",
    "Findings",
    "Kind",
    "count_law",
    "empirical_audit",
    "exact_delta",
    "hockey_stick",
    "loss_distribution",
    "play_all",
    "pld_delta",
    "runs_of",
]
