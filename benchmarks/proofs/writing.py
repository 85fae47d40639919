"""The page."""

from __future__ import annotations

from croupier.privacy._statements import round_down

from ..protocol import Results
from ..tables import table
from .judging import judge, margins
from .measuring import REFUSED

INTRODUCTION = """\
The certificate of a plan is computed in floating point with margins. Here its figures stand beside enclosures in ball arithmetic,
whose ends are proved. *Headroom* is {headroom}.
"""


def page(results: Results) -> str:
    """The stored figures as tables, and whether a fast figure is below its enclosure."""
    quick = " A quick run: few plans and corners." if results["quick"] else ""
    parts = [
        "# Fast certificates compared with ball arithmetic\n",
        f"croupier {results['version']}, Python {results['python']}, by `python -m benchmarks proofs`.{quick}\n",
        *([f"Note on the stored run: {results['note']}.\n"] if results["note"] else []),
        INTRODUCTION.format(headroom=results["headroom"]),
        conclusion(results),
        "## Headroom\n",
        table(("figure", "compared", "least", "median", "most"), [(name, *spread(one)) for name, one in margins(results)], left=1),
        "## Random plans\n",
        plans_table(results),
    ]
    return "\n".join(parts)


def conclusion(results: Results) -> str:
    """How much was compared, and what was found to be wrong."""
    proved = sum(figures["proved"] for figures in results["plans"].values())
    corners = results["corners"]["tau"]["count"]
    wrong = [verdict.what for verdict in judge(results) if verdict.holds is False]
    found = f"**Below its enclosure: {'; '.join(wrong)}.**" if wrong else "No fast figure is below its enclosure."
    return f"{proved} random plans and {corners} corners; {results['corners'][REFUSED]} more corners have no certificate. {found}\n"


def plans_table(results: Results) -> str:
    """Proofs of random plans: how many, in blocks or not, and their seconds."""
    rows = [
        (
            seed,
            f"{figures['proved']}",
            f"{figures['of them in blocks']}",
            f"{figures['requests without a plan']}",
            f"{figures['seconds']['median']:.2g}",
            f"{figures['seconds']['most']:.2g}",
        )
        for seed, figures in results["plans"].items()
    ]
    heads = ("", "proved", "of them in blocks", "requests without a plan", "seconds of a proof, median", "most")
    return table(heads, rows, left=1)


def spread(figures: dict[str, float]) -> tuple[str, ...]:
    """How many, the least, rounded down, the median and the most."""
    return (f"{figures['count']}", round_down(figures["least"], 2), f"{figures['median']:.2g}", f"{figures['most']:.2g}")
