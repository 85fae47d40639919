"""Every kind of guarantee beside dp_accounting, at small sizes: `python -m benchmarks accountants`."""

from __future__ import annotations

import dataclasses
import functools

import pytest

from benchmarks import command
from benchmarks.accountants import judge, writing
from benchmarks.accountants import measuring as accountants
from benchmarks.accountants.judging import FLOOR
from benchmarks.paths import RESULTS

cases = functools.cache(lambda: {case.kind: case for case in accountants.cases(users=150)})
KINDS = [
    "one sum, replace-one",
    "one sum, zero-out",
    "one sum, half of all honest",
    "one scalar sum",
    "five sums, repeated",
    "two different sums, composed",
    "scaler",
    "full training",
    "sequential training, worst of the phases",
    "pan-private, one draw of noise",
    "one sum, the paper's constants",
    "20 sums, the paper's constants",
    "one scalar sum, the paper's constants",
    "ours and the paper's, composed",
]


def test_every_kind_is_there():
    assert list(cases()) == KINDS


@pytest.mark.parametrize("kind", KINDS)
def test_the_bound_is_what_dp_accounting_makes_of_its_parts(kind):
    """Composition, worst-of and the Gaussian's delta, by another library: never below its lower figure, and as it says."""
    case = cases()[kind]
    claimed = case.claim.delta(case.epsilon)
    low, high = (accountants.delta_of_bound(case, pessimistic=pessimistic) for pessimistic in (False, True))
    assert low - FLOOR <= claimed
    assert claimed == pytest.approx(high, rel=5e-3)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "the paper's" not in kind])
def test_the_real_counts_stay_below_the_claim(kind):
    """The laws of the protocol itself in the worst directions that we know of; and close below, but for the scaler's."""
    case = cases()[kind]
    found = max(accountants.delta_of_laws(law, case.epsilon, pessimistic=True) for law in case.laws)
    claimed = case.claim.delta(case.epsilon)
    assert found <= claimed
    if kind != "scaler":  # whose records do not fill the ball
        assert found > 0.3 * claimed


def test_a_claim_that_is_too_good_is_noticed_both_ways():
    case = cases()["full training"]
    better = dataclasses.replace(case.claim, mu=0.9 * case.claim.mu)
    assert better.delta(case.epsilon) < accountants.delta_of_bound(case, pessimistic=False)
    half = dataclasses.replace(case.claim, mu=0.7 * case.claim.mu)
    assert half.delta(case.epsilon) < max(accountants.delta_of_laws(law, case.epsilon, pessimistic=False) for law in case.laws)


def test_the_stored_figures_are_of_every_kind_and_refute_nothing():
    stored = command.read("accountants", RESULTS)
    assert [row["kind"] for row in stored["rows"]] == KINDS
    assert all(verdict.holds for verdict in judge(stored))
    for row in stored["rows"]:
        if row["allocation"]:
            assert row["claimed_delta"] <= row["allocation"]["high"] * (1 + 1e-6)


@pytest.mark.parametrize(
    ("change", "by"),
    [
        (lambda row: row | {"claimed_delta": 0.995 * row["bound"][0]}, ["the claim beside its bound by dp_accounting"]),
        (lambda row: row | {"claimed_delta": 1.01 * row["bound"][1]}, ["dp_accounting", "PLD_accounting"]),
        (lambda row: row | {"laws": [row["laws"][0], 1.01 * row["claimed_delta"]]}, ["delta of the protocol by dp_accounting"]),
        (
            lambda row: row | {"allocation": row["allocation"] | {"low": 1.01 * row["claimed_delta"]}},
            ["the claim beside its bound by PLD_accounting"],
        ),
        (
            lambda row: row | {"allocation": row["allocation"] | {"laws": 1.01 * row["claimed_delta"]}},
            ["delta of the protocol by PLD_accounting"],
        ),
    ],
)
def test_what_another_accountant_refutes_is_noticed(change, by):
    stored = command.read("accountants", RESULTS)
    rows = [change(stored["rows"][0]), *stored["rows"][1:]]
    missed = [verdict.what for verdict in judge(stored | {"rows": rows}) if not verdict.holds]
    assert len(missed) == len(by)
    assert all(what.endswith(name) for what, name in zip(missed, by, strict=True))


def test_brackets_are_rounded_to_the_safe_side():
    assert writing.bracket([1.23456e-7, 1.23456e-7]) == "1.234e-07 to 1.235e-07"
