"""Accuracies beside those that were asked for."""

from __future__ import annotations

from ..protocol import Results, Verdict


def judge(results: Results) -> list[Verdict]:
    """Every median accuracy, which must be at least what was asked for."""
    verdicts = []
    for row in results["accuracy"]:
        what = f"{row['task']}, {row['interactivity']}, {row['lots']} lots, {row['rule']}, epsilon {row['epsilon']:g}: accuracy"
        verdicts.append(Verdict(what, f"at least {row['asked']:g}", f"{row['median']:.4f}", row["median"] >= row["asked"]))
    return verdicts
