"""Bits beside what was asked for, and accuracies beside those of the encoder before."""

from __future__ import annotations

from typing import Any

from ..protocol import Results, Verdict
from ..tables import table

# Bits of a whole fit by task and transport; bits per coordinate of sums by users, coordinates and limit.
ASKED = {
    ("adult", "messages"): 1_000,
    ("covtype", "messages"): 1_300,
    ("mnist10", "messages"): 45_000,
    ("mnist10", "masked"): 60_000,
    ("mnist10", "verified"): 1_200_000,
}
ASKED_OF_SUMS = {(10_000, 1000, 1.05): 19.0, (10_000, 1000, 1.15): 9.0, (100_000, 1000, 1.05): 31.0}
# Accuracy that fewer bits may cost, and processor time that a fit may take, over the encoder before.
MOST_LOST = 0.003
SLOWER = {"covtype": 1.3, "mnist10": 2.0}
SPARSE = """\
Sparse vectors: a rotated vector has no zeros left. Questions whose vectors have few entries (unknown words, large tables, streams,
second moments in one round) are planned without a rotation, and take the time of their entries alone. Gradients, and the second
moments that a training opens with, are rotated whatever rows are. Of a sparse matrix in a sum whose plan has a rotation a few rows
at a time are made dense; `rotation=None` encodes its entries alone.
"""


def judge(results: Results) -> list[Verdict]:
    """Each line of the table that was asked for."""
    found = []
    for line in results["models"]:
        asked = ASKED.get((line["task"], line["transport"])) if line["way"] == "now" else None
        if asked is not None:
            rule = "" if line["rule"] == "practical" else f" by rule {line['rule']}"
            name = f"{line['task']}, {line['transport']}: bits a person sends{rule}"
            found.append(Verdict(name, f"at most {asked:,}", f"{line['bits']:,}", line["bits"] <= asked))
    for line in results["sums"]:
        asked = ASKED_OF_SUMS.get((line["users"], line["dim"], line["limit"])) if line["way"] == "rotated" else None
        if asked is not None:
            name = f"sum of {line['users']:,} x {line['dim']:,} at {line['limit']:g}: bits per coordinate"
            found.append(Verdict(name, f"at most {asked:g}", f"{line['bits']:.1f}", line["bits"] <= asked))
    before = {fit["task"]: fit for fit in results["fits"] if fit["way"] == "before"}
    for fit in results["fits"]:
        if fit["way"] == "before":
            continue
        lost, times = before[fit["task"]]["accuracy"] - fit["accuracy"], fit["cpu_seconds"] / before[fit["task"]]["cpu_seconds"]
        name = f"{fit['task']}, {fit['way']}"
        found.append(Verdict(f"{name}: accuracy lost", f"at most {MOST_LOST}", f"{lost:+.4f}", lost <= MOST_LOST))
        limit = SLOWER.get(fit["task"]) if fit["way"] == "messages" else None
        asked_time = "" if limit is None else f"at most {limit:g}"
        found.append(
            Verdict(f"{name}: processor time over before", asked_time, f"{times:.2f}", None if limit is None else times <= limit)
        )
    return found


def _encoder(line: dict[str, Any]) -> str:
    blocks = "" if line["blocks"] == 1 else f", one of {line['blocks']} blocks"
    rotated = "" if line["box"] is None else f" rotated, t = {line['box']:.2f}"
    return f"{line['levels']} + {line['noise_bits']}, {line['coordinates']:,} coordinates{rotated}{blocks}"


def page(results: Results) -> str:
    """Plans, fits and verdicts."""
    sums = [
        (f"{s['users']:,}", f"{s['dim']:,}", f"{s['limit']:g}", s["way"], _encoder(s), f"{s['bits']:.1f}", f"{s['inflation']:.3f}")
        for s in results["sums"]
    ]
    models = [
        (
            m["task"],
            m["rule"],
            m["transport"],
            m["way"],
            ", ".join(f"{stage['rounds']} {stage['asks']}: {stage['bits']:,}" for stage in m["stages"]),
            _encoder(m),
            f"{m['bits']:,}",
            f"{m['inflation']:.3f}",
        )
        for m in results["models"]
    ]
    fits = [
        (f["task"], f["way"], f"{f['accuracy']:.4f}", f"{f['least']:.4f} to {f['most']:.4f}", f"{f['cpu_seconds']:.2f}")
        for f in results["fits"]
    ]
    verdicts = [(v.what, v.limit, v.measured, {True: "yes", False: "NO", None: ""}[v.holds]) for v in judge(results)]
    heads = ("users", "coordinates", "limit", "encoder", "levels + noise bits", "bits per coordinate", "x central")
    return "\n".join(
        [
            "# What a person sends\n",
            f"croupier {results['version']}; epsilon 1, delta 1e-6, replace-one. Bits include padding.\n",
            table(heads, sums, left=5),
            "Models: rounds and the bits of their reports; levels and noise bits are those of gradients.\n",
            table(
                ("task", "rule", "transport", "encoder", "rounds: bits", "levels + noise bits", "bits", "x Gaussian"),
                models,
                left=6,
            ),
            table(("task", "way", "test accuracy", "least to most", "processor seconds"), fits, left=2) if fits else "",
            table(("what", "asked", "measured", "holds"), verdicts),
            SPARSE,
        ]
    )
