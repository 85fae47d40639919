"""What people look at: tables, the HTML report, and the baselines that figures stand beside."""

from .baselines import central, local
from .compare import compare
from .html import html_report

__all__ = [
    "central",
    "compare",
    "html_report",
    "local",
]
