"""The picture: small multiples over epsilon n."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, NullFormatter, NullLocator

from ..drawing import style, svg
from ..protocol import Results

LINES = {"n": ("#1b6ca8", "o", "over $n$"), "epsilon": ("#c1561b", "s", "over $\\varepsilon$")}


@style("rates")
def figures(results: Results) -> dict[str, str]:
    """Small multiples over epsilon n: medians with quartiles, fits, the paper's slope and the explicit bound."""
    drawing = Figure(figsize=(11, 11.2), layout="constrained")
    panels = drawing.subplots(math.ceil(len(results["rows"]) / 4), 4)
    for panel, row in zip(panels.flat, results["rows"], strict=False):
        draw_panel(panel, row)
    for panel in panels.flat[len(results["rows"]) :]:
        panel.set_axis_off()
    for panel in panels.flat[max(0, len(results["rows"]) - 4) : len(results["rows"])]:
        panel.set_xlabel("$\\varepsilon n$")
    for panel in panels[:, 0]:
        panel.set_ylabel("excess population loss")
    handles, labels = panels.flat[0].get_legend_handles_labels()
    order = sorted(range(len(labels)), key=lambda i: (labels[i].split("$")[0], "n" not in labels[i].split("$")[-2:]))
    drawing.legend([handles[i] for i in order], [labels[i] for i in order], loc="outside lower center", ncols=4, frameon=False)
    return {"rates.svg": svg(drawing)}


def draw_panel(panel: Any, row: dict[str, Any]) -> None:
    """One curve: medians with quartiles, fits, the paper's slope and the explicit bound."""
    panel.set(xscale="log", yscale="log")
    middles, lowest = [], math.inf
    for axis, (colour, marker, label) in LINES.items():
        points = row[axis]["points"]
        x = np.array([point["users"] * point["epsilon"] for point in points])
        low, median, high = np.quantile([point["excess"] for point in points], [0.25, 0.5, 0.75], axis=1)
        shifted = x * (0.97 if axis == "n" else 1.03)  # both axes have the same values of epsilon n
        panel.errorbar(
            shifted, median, [median - low, high - median], fmt=marker, color=colour, ms=4, lw=0.9, label=f"median {label}"
        )
        middles.append(np.exp(np.mean(np.log([x, median]), axis=1)))
        panel.plot(x, middles[-1][1] * (x / middles[-1][0]) ** row[axis]["slope"], color=colour, lw=1.1, label=f"fit {label}")
        panel.plot(x, [point["bound"] for point in points], color=colour, lw=0.7, alpha=0.6, label=f"explicit bound {label}")
        lowest = min(lowest, *low)
    x0, y0 = np.exp(np.mean(np.log(middles), axis=0))
    panel.plot(x, 2.2 * y0 * (x / x0) ** -row["exponent"], "k--", lw=0.9, label="the paper's slope")
    panel.set_ylim(bottom=lowest / 4)
    panel.set_title(f"{row['theorem']} ({row['interactivity']})\n{row['name']}", loc="left")
    decades = 10.0 ** np.arange(8)
    shown = [tick for tick in np.outer(decades, (1, 2, 5)).flat if 0.9 * x[0] < tick < 1.1 * x[-1]]
    panel.set_xticks(shown, labels=[EngFormatter(sep="")(tick) for tick in shown])
    panel.xaxis.set_minor_locator(NullLocator())
    panel.yaxis.set_minor_formatter(NullFormatter())
    slopes = [f"paper {-row['exponent']:.2f}", *(f"{LINES[axis][2]} {row[axis]['slope']:.2f}" for axis in LINES)]
    panel.text(0.03, 0.04, "\n".join(slopes), transform=panel.transAxes, fontsize=8, va="bottom")
