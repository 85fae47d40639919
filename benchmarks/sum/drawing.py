"""The picture: error and bits over the users, one column per dimension."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from ..drawing import style, svg
from ..protocol import Results
from .measuring import CENTRAL, GAUSSIAN_16, LOCAL, MASKED, OURS, PAPER, SHUFFLED, SKELLAM_16, SKELLAM_ENOUGH

SHOWN_EPSILON = 1.0  # in the figure
# Okabe and Ito's colours, which colour-blind people can tell apart; each line has its own marker as well
LINES: dict[str, dict[str, Any]] = {
    CENTRAL: {"color": "#999999", "lw": 6, "alpha": 0.6, "solid_capstyle": "round"},
    OURS: {"color": "#000000", "marker": "o", "lw": 1.6, "zorder": 5},
    MASKED: {"color": "#000000", "marker": "s", "lw": 1.2, "ls": "--", "mfc": "none", "zorder": 5},
    SKELLAM_ENOUGH: {"color": "#009e73", "marker": "^", "lw": 1.2, "ls": "--", "ms": 9, "mfc": "none", "zorder": 6},
    SKELLAM_16: {"color": "#0072b2", "marker": "s", "lw": 1.2},
    GAUSSIAN_16: {"color": "#56b4e9", "marker": "D", "lw": 1.2, "ls": ":", "ms": 8, "mfc": "none"},
    SHUFFLED: {"color": "#d55e00", "marker": "v", "lw": 1.2},
    LOCAL: {"color": "#cc79a7", "marker": "P", "lw": 1.2, "ls": "-.", "ms": 8, "mfc": "none"},
    PAPER: {"color": "#e69f00", "marker": "X", "lw": 1.2},
}


@style("sum", **{"axes.titlesize": 10})
def figures(results: Results) -> dict[str, str]:
    """Error above, bits per user below, over the users at epsilon 1; one column per dimension."""
    cells = [at for at in results["cells"] if at["epsilon"] == SHOWN_EPSILON]
    dims = sorted({at["dim"] for at in cells})
    drawing = Figure(figsize=(10.5, 7.6), layout="constrained")
    panels = drawing.subplots(2, len(dims), sharex=True, sharey="row", squeeze=False)
    for column, dim in enumerate(dims):
        here = [at for at in cells if at["dim"] == dim]
        for panel, key in zip(panels[:, column], ("error", "bits"), strict=True):
            for name, line in LINES.items():
                points = [(at["users"], at["methods"][name][key]) for at in here if key in at["methods"][name]]
                panel.loglog(*zip(*points, strict=True), label=name, **{"ms": 5} | line)
            panel.grid(color="#dddddd", lw=0.5)
            panel.xaxis.set_minor_locator(NullLocator())
            panel.yaxis.set_minor_locator(NullLocator())
        runs = [at for at in results["measured"] if (at["epsilon"], at["dim"]) == (SHOWN_EPSILON, dim)]
        panels[0, column].plot(
            [at["users"] for at in runs],
            [at["error"] for at in runs],
            "o",
            ms=14,
            mfc="none",
            mec="black",
            label="Croupier, measured",
        )
        panels[0, column].axhline(1, color="#999999", lw=0.8, ls=(0, (1, 2)))
        panels[0, column].set_title(f"{dim:,} coordinates", loc="left")
        panels[1, column].set_xlabel("users")
    panels[0, 0].annotate(
        "an answer of 0",
        (0.02, 1),
        (0, -2),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        va="top",
        fontsize=8,
        color="#666666",
    )
    panels[0, 0].set_ylabel(f"error of the mean (l2), epsilon = {SHOWN_EPSILON:g}")
    panels[1, 0].set_ylabel("bits per user")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    drawing.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False)
    return {"sum.svg": svg(drawing)}
