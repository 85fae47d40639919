"""Accuracies beside those that were asked for."""

from __future__ import annotations

from typing import Any

from ..protocol import Results, Verdict


def judge(results: Results) -> list[Verdict]:
    """Every median accuracy, which must be at least what was asked for."""
    verdicts = []
    for row in results["accuracy"]:
        what = f"{row['task']}, {row['interactivity']}, {row['lots']} lots, {row['rule']}, epsilon {row['epsilon']:g}: accuracy"
        verdicts.append(Verdict(what, f"at least {row['asked']:g}", f"{row['median']:.4f}", row["median"] >= row["asked"]))
    for row in [row for row in results.get("estimators", []) if row["asked"] is not None]:
        what = f"{row['task']}, the estimator as it comes, epsilon {row['epsilon']:g}: {kind_of(row)}"
        verdicts.append(Verdict(what, f"at least {row['asked']:g}", f"{row['median']:.4f}", row["median"] >= row["asked"]))
    for row in results.get("few", []):
        what = f"covtype, {row['task']}, the estimator as it comes, epsilon {row['epsilon']:g}: {row['score']}, held-out rows"
        verdicts.append(Verdict(what, f"at least {row['asked']:g}", f"{row['median']:.4f}", row["median"] >= row["asked"]))
    for row in results.get("maps", []):
        what = f"{row['task']}, {row['map']}, the estimator as it comes, epsilon {row['epsilon']:g}: accuracy"
        verdicts.append(Verdict(what, f"at least {row['asked']:g}", f"{row['median']:.4f}", row["median"] >= row["asked"]))
    if cost := results["cost"]:
        what = "covtype: time of a sequential fit with secret lots over the same schedule without privacy"
        ratio, asked = cost["private_ratio"], cost["asked"]
        verdicts.append(Verdict(what, f"at most {asked:g}", f"{ratio:.1f}", ratio <= asked))
        what = "covtype: time of a practical sequential fit with secret lots over that with open lots, both with planning"
        ratio, asked = cost["practical_secret_ratio"], cost["secret_asked"]
        verdicts.append(Verdict(what, f"at most {asked:g}", f"{ratio:.2f}", ratio <= asked))
    return verdicts + [fewer_bits(row, full) for row, full in asked_once_and_in_every_round(results)]


def kind_of(row: dict[str, Any]) -> str:
    """What the score of a row is."""
    return "R^2" if ", " in row["task"] else "accuracy"


def asked_once_and_in_every_round(results: Results) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Full models, each after the row of secret lots that is as accurate as was asked in the fewest bits, all else the same."""
    same = ("task", "rule", "radius", "epsilon", "delta")
    full = {tuple(row[key] for key in same): row for row in results["accuracy"] if row["interactivity"] == "full"}
    secret = [row for row in results["accuracy"] if row["lots"] == "secret" and row["median"] >= row["asked"]]
    fewest = {tuple(row[key] for key in same): row for row in sorted(secret, key=lambda row: -row["bits_per_user"])}
    return [(row, full[key]) for key, row in fewest.items() if key in full]


def fewer_bits(secret: dict[str, Any], full: dict[str, Any]) -> Verdict:
    """How many times as many bits a user sends in the full model as with secret lots."""
    behind = 100 * (full["median"] - secret["median"])
    what = f"{secret['task']}, epsilon {secret['epsilon']:g}: bits of the full model, {behind:.1f} points ahead, over those of lots"
    times = full["bits_per_user"] / secret["bits_per_user"]
    return Verdict(what, "above 10", f"{times:.1f}", times > 10)
