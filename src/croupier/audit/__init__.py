"""Ways to catch ourselves: exact enumeration, another library's accountant, and the membership game.

`empirical`, `exact` and `pld` take numbers or functions, never our protocol: they share no code with what they
audit. `games`, `models` and `deployed` hold what is played against: the real protocol, estimators and roles, on neighbours as
far apart as the guarantee allows.
"""

from .empirical import EmpiricalAudit, empirical_audit
from .exact import count_law, exact_delta, hockey_stick
from .play import Findings, play_all
from .pld import pld_delta

__all__ = [
    "EmpiricalAudit",
    "Findings",
    "count_law",
    "empirical_audit",
    "exact_delta",
    "hockey_stick",
    "play_all",
    "pld_delta",
]
