"""The pictures: score over epsilon, one panel per data set and loss; and the panels of the front page."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ..drawing import style, svg
from ..protocol import Results
from .catalogue import DEFAULT, EPSILONS, NO_PRIVACY, OURS, TITLES
from .judging import Findings

COLOURS = {
    "Croupier full": "#0b4f9e",
    "Croupier sequential": "#3d9be0",
    "Croupier open lots": "#9cc7ea",
    DEFAULT: "#1b8a5a",
    "DP-GD": "#444444",
    "Opacus": "#d9781e",
    "diffprivlib": "#8a5aa8",
    "PrivUnit": "#b3423a",
}
# The front page shows these, under names that say who has to be trusted. Local privacy is a line of text: drawn, it would squeeze
# the rest.
FRONT = ("adult/logistic", "covtype/logistic", "mnist10/logistic")
LOCAL = "PrivUnit"
FRONT_NAMES = {
    DEFAULT: "Croupier, asked once, nothing tuned (shuffler)",
    "Croupier full": "Croupier, asked in every round (shuffler)",
    "DP-GD": "DP-GD (curator)",
    "Opacus": "Opacus, DP-SGD (curator)",
}


@style("peers", **{"axes.titlesize": 9, "axes.spines.top": True, "axes.spines.right": True})
def figures(results: Results) -> dict[str, str]:
    """Score over epsilon, one panel per data set and loss; a line is the median, a band least to most."""
    findings = Findings(results)
    columns = min(3, len(findings.problems))
    rows = math.ceil(len(findings.problems) / columns)
    figure = Figure(figsize=(4.2 * columns, 3.1 * rows + 0.6), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for panel, problem in zip(panels, findings.problems, strict=False):
        draw_panel(panel, findings, problem)
    for panel in panels[len(findings.problems) :]:
        panel.set_axis_off()
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4, frameon=False)
    return {"peers.svg": svg(figure)}


@style("peers", **{"axes.titlesize": 9, "axes.spines.top": True, "axes.spines.right": True})
def front(results: Results) -> dict[str, str]:
    """The picture of the front page: fewer panels and methods; none where these data sets were not measured."""
    findings = Findings(results)
    problems = [problem for problem in FRONT if problem in findings.problems]
    if not problems or not findings.defaults:
        return {}
    figure = Figure(figsize=(3.4 * len(problems), 3.6), layout="constrained")
    panels = figure.subplots(1, len(problems), squeeze=False).ravel()
    for panel, problem in zip(panels, problems, strict=True):
        draw_panel(panel, findings, problem, tuple(FRONT_NAMES))
        least, most = seen(findings, problem, [*FRONT_NAMES, NO_PRIVACY])
        span = max(most - least, 4.0)  # a few tenths of a point are not to look like much
        panel.set_ylim(most - 1.2 * span, most + 0.08 * span)
        if local := seen(findings, problem, [LOCAL]):
            text = f"local, PrivUnit (trusts nobody): {local[0]:.0f} to {local[1]:.0f} %"
            panel.text(0.97, 0.04, text, transform=panel.transAxes, ha="right", fontsize=8, color=COLOURS[LOCAL])
        users = findings.results["problems"][problem]["users"]
        panel.set_title(f"{TITLES[problem].split(',')[0]}: {users:,} people".replace(",", " "))
        panel.set_xlabel("epsilon (smaller is more private)", fontsize=8)
        panel.set_ylabel("test accuracy, %", fontsize=8)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, [FRONT_NAMES.get(name, name) for name in labels], loc="outside upper center", ncols=3, frameon=False)
    return {"front.svg": svg(figure)}


def seen(findings: Findings, problem: str, names: Sequence[str]) -> tuple[float, ...]:
    """Least and most of these methods' scores, in per cent; nothing where none was measured."""
    epsilons = [*findings.epsilons(problem), None]
    scores = [100 * findings.score(problem, name, epsilon) for name in names for epsilon in epsilons]
    known = [score for score in scores if not math.isnan(score)]
    return (min(known), max(known)) if known else ()


def draw_panel(panel: Any, findings: Findings, problem: str, names: Sequence[str] = tuple(COLOURS)) -> None:
    """One data set and loss: the score of every method over epsilon."""
    scale, unit = (1, "R²") if problem.endswith("ridge") else (100, "accuracy, %")
    plain = scale * findings.score(problem, NO_PRIVACY, None)
    panel.axhline(plain, color="#888888", linestyle=":", label="scikit-learn, no privacy")
    shown: set[float] = set()
    bands: list[tuple[list[float], list[float], list[float], str]] = []
    for name in names:
        colour = COLOURS[name]
        found = [(epsilon, findings.fits(problem, name, epsilon)) for epsilon in EPSILONS]
        points = [(epsilon, [scale * fit["score"] for fit in fits]) for epsilon, fits in found if fits]
        if points:
            at = [epsilon for epsilon, _ in points]
            shown.update(at)
            style = {"color": colour, "marker": "o", "markersize": 3, "linewidth": 2 if name in (*OURS, DEFAULT) else 1.2}
            panel.plot(at, [statistics.median(scores) for _, scores in points], label=name, **style)
            bands.append((at, [min(scores) for _, scores in points], [max(scores) for _, scores in points], colour))
    scores = [scale * findings.score(problem, name, epsilon) for name in names for epsilon in findings.epsilons(problem)]
    low = min([value for value in scores if not math.isnan(value)], default=0.0)
    floor = max(low, plain - (0.6 if scale == 1 else 35))  # what is far below would flatten the rest
    bottom = floor - 0.04 * (plain - floor) - 1e-9
    far = bottom - 10 * (plain - floor)  # viewers draw bands wrong that reach thousands of heights below
    for at, least, most, colour in bands:
        panel.fill_between(at, np.maximum(least, far), np.maximum(most, far), color=colour, alpha=0.15)
    panel.set_ylim(bottom, plain + 0.08 * (plain - floor) + 1e-9)
    panel.set_xscale("log")
    panel.set_xticks(sorted(shown), [f"{epsilon:g}" for epsilon in sorted(shown)])
    panel.minorticks_off()
    panel.set_title(TITLES[problem].split(":")[0], fontsize=9)
    panel.set_xlabel("epsilon", fontsize=8)
    panel.set_ylabel(unit, fontsize=8)
    panel.tick_params(labelsize=8)
