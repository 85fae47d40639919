"""The audit on one page, from stored JSON: the membership games, and other libraries' accountants beside ours.

    croupier audit --all --json > benchmarks/results/audit.json
    python -m benchmarks accountants
    python -m benchmarks audit [--results DIR] [--out FILE]

By default from benchmarks/results to docs/audit.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from croupier.privacy._statements import round_down, round_up

from .command import read
from .protocol import Results
from .protocol import no_figures as pictures
from .tables import table

__all__ = ["page", "pictures"]

OPENING = """\
# Audit

Can our promises be refuted? Three independent checks tried: the membership game, played against the real protocol, optimizers,
estimators and deployed roles; `dp_accounting`; and `PLD_accounting`. A claim that any of them refutes is a defect.
Every figure comes from stored results. You can check [certificates](certificates.md) yourself.
"""
GAMES = """\
## The membership game

Two populations differ in one person, as far as the guarantee allows. A player who knows all other records sees what was released
and guesses which population it was. The player's error rates bound mu from below (beta >= Phi(Phi^-1(1 - alpha) - mu)); a bound
above the claim would refute it. *Estimate* is the mu of the observed error rates; *at least* is the lower bound, by
Clopper and Pearson. *Would notice* is the mu of a mechanism that the game would expose half of the time: below 1.41 times the
claim, the game notices if half of the noise bits are missing, below 2 if three quarters are.

`croupier audit` prints what the player sees in each game, and who differs.

    croupier audit --all            # ten minutes or so; --quick takes two or three
"""
AFTER_GAMES = """\
Each game has an equal share of the error probability of all kinds listed. The paper's own constants are not in the table: their
noise hides everything. Tests play the same games against sabotaged code (less noise, rows counted as
people, no clipping, too many reports left out, cover that does not hide the lot) and expect them to be refuted.

Deployed rounds run through a real shuffler with its database, and real reports; the player is the analyzer. Where it cheats, a
fifth of all users add no noise, everyone except the person identifies their reports to it, and it leaves out as many
honest ones as the shuffler allows. With secret lots the player also watches the network: without cover it sees in which round
the person's device sends a report, has the coins of the blanks, and plays against *if watched*, which counts on the fewest users
that a round has except with probability 1e-8; with cover it has all traffic of the device and plays against the figure for secret
lots. The game has its own clock, and requests do not go through HTTP: it does not measure how long a device or server takes.
"""
OTHERS = """\
## Other accountants

delta at the epsilon of each row, by {versions}. *The bound*: another library's figure for the Gaussians, randomized responses
and small probabilities that make up the claim; it must agree. *The protocol*: the laws of the real counts, in the worst
directions that we know of, composed over coordinates and rounds; it must not be above the claim. Upper ends by `dp_accounting`;
both ends, and `PLD_accounting`, are in `benchmarks/results/accountants.md`.

    python -m benchmarks accountants
"""


def page(folder: Path) -> str:
    """Return the page, from audit.json and accountants.json in this folder."""
    return text(read("audit", folder), read("accountants", folder))


def text(games: Results, accountants: Results) -> str:
    """Return the page, from the games and the accountants' figures."""
    refuted = sum(not row["passed"] for row in games["rows"])
    verdict = "No claim was refuted." if not refuted else f"**Claims refuted: {refuted}.**"
    facts = (
        f"{games['trials']:,} runs on each side of every game that is not slow, "
        f"{'secure' if games['private'] else 'seeded'} coins. If all claims hold, any of them is refuted with probability at most "
        f"{games['false_alarm']:g}; each row has an equal share. {verdict}"
    )
    versions = ", ".join(f"{name} {version}" for name, version in accountants["versions"].items() if version)
    others = OTHERS.format(versions=versions)
    tables = games_table(games["rows"]), accountants_table(accountants["rows"])
    return "\n".join([OPENING, GAMES, facts + "\n", tables[0], AFTER_GAMES, others, tables[1]])


def games_table(rows: list[dict[str, Any]]) -> str:
    """Claim, estimate and bound of every game; claims rounded up, bounds down."""
    heads = ("result", "runs", "claim: mu", "estimate", "at least", "would notice")
    lines = []
    for row in rows:
        noticed = "nothing" if row["mu_detectable"] is None else f"{row['mu_detectable']:.3g}"
        name = row["kind"] if row["passed"] else f"**REFUTED** {row['kind']}"
        figures = (round_up(row["mu_claimed"]), f"{row['mu_estimate']:.3g}", round_down(row["mu_lower"]))
        lines.append((name, f"{row['trials']:,}", *figures, noticed))
    return table(heads, lines)


def accountants_table(rows: list[dict[str, Any]]) -> str:
    """Claims beside the upper ends of another library's figures."""
    lines = []
    for row in rows:
        laws = "too wide to enumerate" if row["laws"] is None else round_up(row["laws"][1]) if row["laws"][1] > 0 else "below 1e-13"
        lines.append((row["kind"], f"{row['epsilon']:g}", round_up(row["claimed_delta"]), round_up(row["bound"][1]), laws))
    return table(("guarantee", "epsilon", "claimed", "the bound", "the protocol"), lines)
