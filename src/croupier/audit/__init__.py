"""Ways to catch ourselves: exact enumeration, another library's accountant, and the membership game.

`empirical`, `exact` and `pld` take numbers or functions, never our protocol: they share no code with what they
audit. `games`, `models` and `deployed` hold what is played against: the real protocol, estimators and roles, on neighbours as
far apart as the guarantee allows.
"""

from .empirical import empirical_audit
from .play import play_all

__all__ = [
    "empirical_audit",
    "play_all",
]
