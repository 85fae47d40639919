"""A part of the accuracies can be measured anew; the rest stays as stored."""

from __future__ import annotations

from benchmarks import command
from benchmarks.accuracy import judge, page
from benchmarks.accuracy.measuring import joined
from benchmarks.paths import RESULTS


def test_rows_measured_anew_take_the_place_of_the_stored_ones():
    stored = command.read("accuracy", RESULTS)
    (old,) = [row for row in stored["estimators"] if (row["task"], row["epsilon"]) == ("covtype", 0.5)]
    new = old | {"median": 0.123}
    rows = joined(stored, "estimators", [new])
    assert [row for row in rows if row is not new] == [row for row in stored["estimators"] if row is not old]
    assert rows.index(new) == stored["estimators"].index(old)
    assert joined({}, "estimators", list(reversed(stored["estimators"]))) == stored["estimators"]
    assert joined(stored, "maps", []) == stored["maps"]


def test_a_row_of_which_nothing_was_asked_is_shown_and_not_judged():
    stored = command.read("accuracy", RESULTS)
    (free,) = [row for row in stored["estimators"] if (row["task"], row["epsilon"]) == ("adult", 4.0)]
    assert free["asked"] is None
    assert f"| **{free['median']:.4f}** | {free['least']:.4f} | {free['most']:.4f} | - | - | {free['seeds']} |" in page(stored)
    judged = [verdict.what for verdict in judge(stored)]
    assert "adult, the estimator as it comes, epsilon 1: accuracy" in judged
    assert "adult, the estimator as it comes, epsilon 4: accuracy" not in judged
