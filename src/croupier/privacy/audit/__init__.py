"""Ways to catch ourselves: exact enumeration, another library's accountant, and the membership game.

Each takes numbers or functions, never our protocol: the audit must not share code with what it audits.
"""

from .empirical import EmpiricalAudit, empirical_audit
from .exact import count_law, exact_delta, hockey_stick
from .pld import loss_distribution, pld_delta

__all__ = ["EmpiricalAudit", "count_law", "empirical_audit", "exact_delta", "hockey_stick", "loss_distribution", "pld_delta"]
