"""The audit on one page, from stored JSON: the membership games, and other libraries' accountants beside ours.

    croupier audit --all --json > benchmarks/results/audit.json
    python -m benchmarks accountants
    python -m benchmarks audit [--results DIR] [--out FILE]

By default from benchmarks/results to docs/audit.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from croupier.privacy._rounding import round_down, round_up

from .command import read
from .pages import section
from .protocol import Results, benchmark
from .tables import table

OPENING = """\
# Audit

Can what we promise be shown to be wrong? Three kinds of outside eyes looked: the membership game, played with the real protocol,
optimizers, estimators and deployed roles; `dp_accounting`; and `PLD_accounting`. A claim that any of them refutes is a defect.
Every figure on this page comes from stored results; the commands beside the tables make them again.
"""
GAMES = """\
## The membership game

Two populations differ in one person, as far as the guarantee allows. A player who knows all other records sees what was released
and has to say which population it was. Error rates of such a player bound mu from below
(beta >= Phi(Phi^-1(1 - alpha) - mu)), so a bound above the claim would refute it. *Estimate* is the mu of the error rates as
found; *at least* is the lower bound, by Clopper and Pearson. *Would notice* is the mu of a mechanism that the game would expose
half of the time; below the square root of 2 times the claim, the game notices that half of the noise bits are missing, below 2 that
three quarters are. Games whose runs take long have fewer of them (*runs*).

    croupier audit --all            # ten minutes or so; --quick takes two or three
"""
AFTER_GAMES = """\
Estimates stand close to the claims: the accounting gives away little. The scaler's stays at four fifths of it, since values and
their squares do not fill the ball that its plan is made for. The paper's own constants are not in the table: their noise is
hundreds of times what is needed, so that no game of this length sees anything. Tests play the same games against sabotaged code
(less noise, rows of one person counted as people, vectors that are not clipped, a shuffler that lets too many honest reports be
left out, cover that does not hide the lot) and expect them to be refuted.

Deployed rounds run through a real shuffler with its database, and real reports, by *masked-sum* and by *verified-sum*; the player
is the analyzer. Where it cheats, a fifth of all users are cheats who add no noise, all but the person tell it which reports are
theirs, and it leaves out as many honest ones as the shuffler lets it.

With secret lots, the player also watches the network. Without cover it sees in which round the person's device sends a report, and
plays against the figure *if watched*; since that is to hold for the shuffler too, it also has the coins of the blanks. Its estimate
stays at about three fifths of the claim, which counts on the fewest users that a round has except with probability 1e-8. With cover
the device sends a report in every round; the player has all its traffic and the moment when each batch leaves, and plays against
the figure for secret lots. A client that does not send cover, or a shuffler that ends a round once all have come, tells it the lot.
The game's clock is not the machine's, and requests do not go through HTTP: how long a device or a server takes is not played.

`croupier.audit` plays them from Python. It stands above service, estimators and optimizers, which it runs; `croupier.audit`
has the mathematics of the game and shares no code with what is audited.
"""


def page(folder: Path) -> str:
    """Return the page, from audit.json and accountants.json in this folder."""
    return text(read("audit", folder), read("accountants", folder))


def text(games: Results, accountants: Results) -> str:
    """Return the page, from the games and the accountants' figures."""
    refuted = sum(not row["passed"] for row in games["rows"])
    verdict = "No claim was refuted." if not refuted else f"**Claims refuted: {refuted}.**"
    facts = (
        f"{games['trials']:,} runs on each side of every game that is not slow, epsilons at delta {games['delta']:g}, "
        f"{'secure' if games['private'] else 'seeded'} coins. If all claims hold, any of them is refuted with probability at most "
        f"{games['false_alarm']:g}; each row has an equal share. {verdict}"
    )
    others = section("Other accountants", benchmark("accountants").page(accountants))
    return "\n".join([OPENING, GAMES, facts + "\n", games_table(games["rows"]), AFTER_GAMES, others])


def games_table(rows: list[dict[str, Any]]) -> str:
    """Claim, estimate and bound of every game; claims rounded up, bounds down."""
    heads = ("result", "the player sees; who differs", "runs", "claim: mu", "epsilon", "estimate: mu", "at least: mu", "epsilon")
    lines = []
    for row in rows:
        noticed = "nothing" if row["mu_detectable"] is None else f"mu {row['mu_detectable']:.3g}"
        claim, bound = (
            (round_up(row["mu_claimed"]), round_up(row["epsilon_claimed"])),
            (round_down(row["mu_lower"]), round_down(row["epsilon_lower"])),
        )
        verdict = "holds" if row["passed"] else "**REFUTED**"
        lines.append(
            (row["kind"], row["seen"], f"{row['trials']:,}", *claim, f"{row['mu_estimate']:.3g}", *bound, noticed, verdict)
        )
    return table((*heads, "would notice", "verdict"), lines)
