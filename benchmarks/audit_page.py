"""docs/audit.md from stored JSON: the membership games, and other libraries' accountants beside ours.

croupier audit --all --json > benchmarks/results/audit.json
python -m benchmarks.accountants
python -m benchmarks.audit_page [--results DIR] [--out FILE]
"""

from __future__ import annotations

import argparse
import json
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
OPENING = """\
# Audit

Can what we promise be shown to be wrong? Three kinds of outside eyes looked: the membership game, played with the real protocol,
optimizers and estimators; `dp_accounting`; and `PLD_accounting`. A claim that any of them refutes is a defect. Every figure on
this page comes from stored results; the commands beside the tables make them again.
"""
GAMES = """\
## The membership game

Two populations differ in one person, as far as the guarantee allows. A player who knows all other records sees what was released
and has to say which population it was. Error rates of such a player bound mu from below
(beta >= Phi(Phi^-1(1 - alpha) - mu)), so a bound above the claim would refute it. *Estimate* is the mu of the error rates as
found; *at least* is the lower bound, by Clopper and Pearson. *Would notice* is the mu of a mechanism that the game would expose
half of the time; below the square root of 2 times the claim, the game notices that half of the noise bits are missing.

    croupier audit --all            # some minutes; --quick takes one
"""
AFTER_GAMES = """\
Estimates stand close to the claims: the accounting gives away little. The scaler's stays at four fifths of it, since values and
their squares do not fill the ball that its plan is made for. The paper's own constants are not in the table: their noise is
hundreds of times what is needed, so that no game of this length sees anything. Tests play the same games against sabotaged code
(half of the noise, rows of one person counted as people, vectors that are not clipped) and expect them to be refuted.

`croupier.game` plays them from Python. It stands above estimators and optimizers, which it runs; `croupier.privacy.audit` has the
mathematics of the game and shares no code with what is audited.
"""
ACCOUNTANTS = """\
## Other accountants

delta at the epsilon of each row. *Claimed* is ours. *The bound by ...*: what another library makes of the Gaussians, randomized
responses and small probabilities that the claim is composed of; it must agree. *The protocol by ...*: the laws of the real counts,
in the worst directions that we know of (everything in one coordinate; all coordinates alike), composed over coordinates and rounds;
it must not be above the claim. Brackets are the two ways of rounding losses. `PLD_accounting` takes one coordinate and whole steps.

    python -m benchmarks.accountants
"""


def page(games: dict[str, Any], accountants: dict[str, Any]) -> str:
    """The whole page."""
    refuted = sum(not row["passed"] for row in games["rows"])
    verdict = "No claim was refuted." if not refuted else f"**Claims refuted: {refuted}.**"
    facts = (
        f"{games['trials']:,} runs on each side of every game, epsilons at delta {games['delta']:g}, "
        f"{'secure' if games['private'] else 'seeded'} coins. If all claims hold, any of them is refuted with probability at most "
        f"{games['false_alarm']:g}; each row has an equal share. {verdict}"
    )
    versions = ", ".join(f"{name} {version}" for name, version in accountants["versions"].items() if version)
    parts = [OPENING, GAMES, facts + "\n", games_table(games["rows"]), AFTER_GAMES]
    return "\n".join([*parts, ACCOUNTANTS, f"By {versions}.\n", accountants_table(accountants["rows"])])


def games_table(rows: list[dict[str, Any]]) -> str:
    """Claim, estimate and bound of every game; claims rounded up, bounds down."""
    heads = ("result", "the player sees; who differs", "claim: mu", "epsilon", "estimate: mu", "at least: mu", "epsilon")
    lines = []
    for row in rows:
        noticed = "nothing" if row["mu_detectable"] is None else f"mu {row['mu_detectable']:.3g}"
        claim, bound = (up(row["mu_claimed"]), up(row["epsilon_claimed"])), (down(row["mu_lower"]), down(row["epsilon_lower"]))
        verdict = "holds" if row["passed"] else "**REFUTED**"
        lines.append((row["kind"], row["seen"], *claim, f"{row['mu_estimate']:.3g}", *bound, noticed, verdict))
    return table((*heads, "would notice", "verdict"), lines)


def accountants_table(rows: list[dict[str, Any]]) -> str:
    """Our delta beside the others'."""
    heads = ("guarantee", "epsilon", "claimed", "the bound by dp_accounting", "by PLD_accounting")
    lines = []
    for row in rows:
        other = row["allocation"] or {}
        bound = bracket([other["low"], other["high"]]) if "high" in other else "-"
        laws = up(other["laws"]) if "laws" in other else "-"
        ours = (row["kind"], f"{row['epsilon']:g}", up(row["claimed_delta"]))
        lines.append((*ours, bracket(row["bound"]), bound, bracket(row["laws"]), laws))
    return table((*heads, "the protocol by dp_accounting", "by PLD_accounting"), lines)


def table(heads: tuple[str, ...], lines: list[tuple[str, ...]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, ("---",) * len(heads), *lines)) + "\n"


def bracket(ends: list[float] | None) -> str:
    """Lower end rounded down, upper end up."""
    if ends is None:
        return "too wide to enumerate"
    return f"{down(ends[0])} to {up(ends[1])}" if ends[1] > 0 else "below 1e-13"


def up(value: float) -> str:
    return _rounded(value, ROUND_CEILING)


def down(value: float) -> str:
    return _rounded(value, ROUND_FLOOR)


def _rounded(value: float, way: str) -> str:
    return f"{float(Context(prec=4, rounding=way).create_decimal(repr(value))):.4g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=HERE / "results", help="folder with the stored JSON")
    parser.add_argument("--out", type=Path, default=HERE.parent / "docs" / "audit.md", help="the page")
    arguments = parser.parse_args()
    stored = (json.loads((arguments.results / f"{name}.json").read_text()) for name in ("audit", "accountants"))
    arguments.out.write_text(page(*stored))


if __name__ == "__main__":
    main()
