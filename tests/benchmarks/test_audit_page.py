"""docs/audit.md is what the stored results generate, and says what they say."""

from __future__ import annotations

from pathlib import Path

from benchmarks import audit, command
from croupier.audit.play import KINDS, runs_of

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
GAMES, ACCOUNTANTS = (command.read(name, RESULTS) for name in ("audit", "accountants"))


def test_page_is_that_of_the_stored_results():
    assert (ROOT / "docs" / "audit.md").read_text() == audit.page(RESULTS)


def test_stored_games_are_of_every_kind_and_none_was_refuted():
    assert [(row["kind"], row["seen"]) for row in GAMES["rows"]] == [(kind.name, kind.seen) for kind in KINDS]
    assert GAMES["private"]
    assert GAMES["passed"]
    for row, kind in zip(GAMES["rows"], KINDS, strict=True):
        assert row["mu_lower"] <= row["mu_claimed"]
        assert row["trials"] == runs_of(kind, GAMES["trials"])
        # half of the noise bits would be noticed if they were missing, and three quarters where runs are few
        assert row["mu_detectable"] < (2**0.5 if kind.share == 1 else 2) * row["mu_claimed"]


def test_a_refuted_claim_is_printed_as_such():
    rows = [GAMES["rows"][0] | {"passed": False}, *GAMES["rows"][1:]]
    text = audit.text(GAMES | {"rows": rows}, ACCOUNTANTS)
    assert "Claims refuted: 1." in text
    assert "**REFUTED**" in text


def test_page_is_in_the_navigation():
    assert "audit.md" in (ROOT / "mkdocs.yml").read_text()
