"""What people look at: tables, and the baselines that figures stand beside."""

from .baselines import Baseline, central, local, simulate_central, simulate_local
from .tables import certified, compare_table, guarantee_line, plan_table

__all__ = [
    "Baseline",
    "central",
    "certified",
    "compare_table",
    "guarantee_line",
    "local",
    "plan_table",
    "simulate_central",
    "simulate_local",
]
