"""Figures beside what was asked for."""

from __future__ import annotations

from statistics import median

from ..protocol import Results, Verdict
from ..tables import table

# From an issue: what is found at least, what is found wrongly at most, and how long it takes.
HELD, WRONG, SECONDS = 600, 1, 10.0
# A trial before: one bucket and 48 bits a word, majority; words found, and bytes of a masked report.
TRIAL_FOUND, TRIAL_BYTES, TRIAL_RAREST = 39, 160_000, 202
CELLS, STREAMS, YEAR = 1.05, 1.2, 365
# Errors of so many cells, as found, are within 5 % of what they are in the mean.
CHANCE = 1.05


def judge(results: Results) -> list[Verdict]:
    """What was asked for."""
    words = results["words"]
    missed, wrong, slowest = max(words["missed"]), sum(words["wrong"]), max(words["cpu_seconds"])
    found = [
        Verdict(f"words that {HELD} people hold are found", f"missed below {HELD}", f"missed up to {missed}", missed < HELD),
        Verdict(f"words that nobody holds, in {words['runs']} runs", f"at most {WRONG}", str(wrong), wrong <= WRONG),
        Verdict("processor seconds of an answer", f"below {SECONDS:g}", f"{slowest:.1f}", slowest < SECONDS),
        Verdict(
            "words found, beside the trial's", f"above {TRIAL_FOUND}", str(min(words["found"])), min(words["found"]) > TRIAL_FOUND
        ),
        Verdict(
            "bytes of a masked report, beside the trial's",
            f"about {TRIAL_BYTES:,}",
            f"{words['masked_bytes']:,}",
            words["masked_bytes"] <= 1.05 * TRIAL_BYTES,
        ),
    ]
    for line in results["tables"]:
        name = f"{' x '.join(map(str, line['shape']))} cells"
        if not line["marginals"]:
            holds = line["planned"] <= CELLS and line["cell"] <= CELLS * CHANCE
            found.append(Verdict(f"{name}: noise over a central Gaussian's", f"at most {CELLS:g}", f"{line['planned']:.3f}", holds))
            ratio = line["column"] / (line["planned"] * line["column_by_theory"])
            limit = f"at most {CHANCE**2:.3g} times {line['column_by_theory']:.2f} cells'"
            found.append(Verdict(f"{name}: error of a column", limit, f"{ratio:.3f} times", ratio <= CHANCE**2))
    for line in results["streams"]:
        limit = STREAMS if line["days"] >= YEAR else None  # a year was asked about
        for what, value in (("largest", line["largest"]), ("root mean square", line["rms"])):
            ratio = value * line["inflation"] / line["least"]
            name = f"{line['days']} days: {what} error, the plan's noise included, over what no factorisation can fall below"
            asked = "" if limit is None else f"at most {limit:g}"
            found.append(Verdict(name, asked, f"{ratio:.3f}", None if limit is None else ratio <= limit))
        found.append(Verdict(f"{line['days']} days: error found over error stated", "", f"{line['found']:.3f}", None))
    return found


def page(results: Results) -> str:
    """Words, tables, streams and verdicts."""
    words = results["words"]

    def ends(values: list[float]) -> str:
        return f"{min(values):,.0f} to {max(values):,.0f}"

    rows = [
        (
            f"**one private sum** ({words['dim']:,} coordinates)",
            ends(words["found"]),
            str(sum(words["wrong"])),
            ends(words["rarest"]),
            f"{max(words['missed']) + 1:,} ({max(words['stated']):,.0f} stated, 99 %)",
            f"{words['masked_bytes']:,}",
            f"{median(words['cpu_seconds']):.1f}",
        ),
        (
            "one bucket and 48 bits a word, majority (a trial)",
            str(TRIAL_FOUND),
            "0",
            str(TRIAL_RAREST),
            "-",
            f"{TRIAL_BYTES:,}",
            "-",
        ),
        ("local privacy, words listed beforehand (formula)", "-", "-", "-", f"{words['listed']:,.0f}", "-", "-"),
        ("local privacy, unknown words (formula)", "-", "-", "-", f"{words['unlisted']:,.0f}", "-", "-"),
    ]
    tables = [
        (
            " x ".join(map(str, line["shape"])),
            f"{line['marginals']:g}",
            f"{line['cell']:.3f}",
            f"{line['stated_cell']:.3f}",
            f"{line['column']:.3f}",
            f"{line['stated_column']:.3f}",
        )
        for line in results["tables"]
    ]
    streams = [
        (
            str(line["days"]),
            f"{line['largest']:.3f}",
            f"{line['rms']:.3f}",
            f"{line['least']:.3f}",
            f"{line['tree'][0]:.3f}, {line['tree'][1]:.3f}",
            f"{line['inflation']:.3f}",
            f"{line['diameter']:.3f}",
            f"{line['found']:.3f}",
        )
        for line in results["streams"]
    ]
    verdicts = [(v.what, v.limit, v.measured, {True: "yes", False: "NO", None: ""}[v.holds]) for v in judge(results)]
    first, of_streams = results["tables"][0], results["streams"][0]
    heads = (
        "way",
        "words found",
        "of these wrong",
        "rarest found, people",
        "every word found from",
        "bytes masked",
        "processor seconds",
    )
    of_table = ("cells", "marginals", "cell", "stated", "column", "stated")
    of_stream = (
        "days",
        "largest error",
        "root mean square",
        "no factorisation below",
        "binary tree, daily, at the end",
        "x central",
        "x norm sqrt 2",
        "found / stated",
    )
    about = (
        f"croupier {results['version']}; epsilon 1, delta 1e-6, replace-one. {words['people']:,} people, words of 6 bytes by a "
        f"Zipf law (exponent 1.25, 200 000 words), {words['runs']} runs with secure randomness, each on another population. Every "
        "word is found from: one more than the most people of a word that any run missed.\n"
    )
    tabled = (
        f"Tables of {first['people']:,} people, {first['runs']} runs: root mean square errors, in units of a central Gaussian's "
        "noise of a cell.\n"
    )
    streamed = (
        "Streams: errors of running totals in units of the noise of a count of one day, by formula; the plan's noise beside a "
        f"central Gaussian's; the diameter beside sqrt 2 norms; and errors of {of_streams['runs']} runs "
        f"({of_streams['people']:,} people) over those stated.\n"
    )
    last = table(("what", "asked", "measured", "holds"), verdicts)
    parts = [
        about,
        table(heads, rows, left=1),
        tabled,
        table(of_table, tables, left=2),
        streamed,
        table(of_stream, streams, left=1),
    ]
    return "\n".join(["# What analysts ask first\n", *parts, last])
