"""The page."""

from __future__ import annotations

from typing import Any

from ..protocol import Results
from ..tables import table


def headline(results: dict[str, Any]) -> str:
    """All of it in one sentence."""
    figures = results["fits"][0]["ns_per_entry"]
    earlier = f", {figures['an earlier version']:.1f} before" if "an earlier version" in figures else ""
    best = figures["compiled, rows in single precision, two threads"]
    return (
        f"{figures['numpy']:.1f} ns per user, coordinate and round by numpy alone, {figures['compiled']:.1f} compiled on one core, "
        f"{best:.1f} on two with rows in single precision{earlier}."
    )


def page(results: Results) -> str:
    """The stored figures as tables."""
    versions = f"croupier {results['version']}, Python {results['python']}, numpy {results['numpy']}, numba {results['numba']}"
    text = (
        f"# Speed of the training path\n\n{versions}; the machine is shared, so ratios within a column say more than figures.\n\n"
    )
    text += "Nanoseconds per entry (users times coordinates times rounds) of a whole logistic fit in the full model with secure\n"
    text += "randomness: planning, gradients, clipping, rounding, noise. All ways but those in single precision give the same bits"
    text += f" ({results['same_sum']} of {results['same_sum']} checked).\n"
    if results["earlier"]:
        text += f"The earlier version is the one before this path was built ({results['earlier']}).\n"
    text += "\n" + summary(results)
    text += (
        "\nWhere the time goes: a round of the first shape, compiled, one core, rows in single precision, by Python's profiler.\n"
    )
    whole = sum(results["profile"].values())
    text += "\n| | ns per entry | share |\n|---|--:|--:|\n"
    ranked = sorted(results["profile"].items(), key=lambda item: -item[1])
    return text + "".join(f"| {name} | {value:.2f} | {value / whole:.0%} |\n" for name, value in ranked)


def summary(results: Results) -> str:
    """Nanoseconds per user, coordinate and round of each way, for each size of data."""
    shapes = [f"{row['users']:,} x {row['dim']}" for row in results["fits"]]
    lines = {name: [row["ns_per_entry"][name] for row in results["fits"]] for name in results["fits"][0]["ns_per_entry"]}
    lines["*limit*: one byte of keystream an entry"] = [row["keystream"] for row in results["fits"]]
    lines["*no privacy*: scores and mean gradient by BLAS"] = [row["matrix_products"] for row in results["fits"]]
    return table(("", *shapes), [(name, *(f"{value:.2f}" for value in values)) for name, values in lines.items()], left=1)
