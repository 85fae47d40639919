"""docs/audit.md is what the stored results generate, and says what they say."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks import audit_page
from croupier.game import KINDS

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
GAMES, ACCOUNTANTS = (json.loads((RESULTS / f"{name}.json").read_text()) for name in ("audit", "accountants"))


def test_page_is_that_of_the_stored_results():
    assert (ROOT / "docs" / "audit.md").read_text() == audit_page.page(GAMES, ACCOUNTANTS)


def test_stored_games_are_of_every_kind_and_none_was_refuted():
    assert [(row["kind"], row["seen"]) for row in GAMES["rows"]] == [(kind.name, kind.seen) for kind in KINDS]
    assert GAMES["private"]
    assert GAMES["passed"]
    for row in GAMES["rows"]:
        assert row["mu_lower"] <= row["mu_claimed"]
        assert row["mu_detectable"] < 2**0.5 * row["mu_claimed"]  # half of the noise bits would be noticed


def test_stored_accountants_refute_nothing():
    for row in ACCOUNTANTS["rows"]:
        assert row["bound"][0] <= row["claimed_delta"] + 1e-13
        assert row["laws"] is None or row["laws"][1] <= row["claimed_delta"]
        if row["allocation"]:
            assert row["allocation"]["low"] <= row["claimed_delta"] <= row["allocation"]["high"] * (1 + 1e-6)
            assert row["allocation"].get("laws", 0.0) <= row["claimed_delta"]


def test_a_refuted_claim_is_printed_as_such():
    rows = [GAMES["rows"][0] | {"passed": False}, *GAMES["rows"][1:]]
    text = audit_page.page(GAMES | {"rows": rows}, ACCOUNTANTS)
    assert "Claims refuted: 1." in text
    assert "**REFUTED**" in text


def test_figures_are_rounded_to_the_safe_side():
    assert (audit_page.up(1.00001), audit_page.down(1.99999)) == ("1.001", "1.999")
    assert audit_page.bracket([1.23456e-7, 1.23456e-7]) == "1.234e-07 to 1.235e-07"


def test_page_is_in_the_navigation():
    assert "audit.md" in (ROOT / "mkdocs.yml").read_text()
