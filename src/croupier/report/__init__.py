"""What people look at: tables, the HTML report, and the baselines that figures stand beside."""

from ..privacy._statements import guarantee_line
from .answers import answer_page
from .baselines import Baseline, central, local, simulate_central, simulate_local
from .compare import Comparison, Method, compare
from .description import describe_page, description_table
from .html import html_report
from .intervals import summaries_of
from .tables import certified, compare_table, described_lines, lots_table, plan_table, promise_lines, proof_table, schema_facts

__all__ = [
    "Baseline",
    "Comparison",
    "Method",
    "answer_page",
    "central",
    "certified",
    "compare",
    "compare_table",
    "describe_page",
    "described_lines",
    "description_table",
    "guarantee_line",
    "html_report",
    "local",
    "lots_table",
    "plan_table",
    "promise_lines",
    "proof_table",
    "schema_facts",
    "simulate_central",
    "simulate_local",
    "summaries_of",
]
