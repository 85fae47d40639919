"""The picture: seconds over users with the fit, and speed by variant."""

from __future__ import annotations

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from ..drawing import style, svg
from ..protocol import Results
from .grid import FUSED, KEPT, NUMPY, STREAMED
from .judging import analysis, seconds_of, shown

COLOURS = {
    FUSED: "#bbbbbb",
    NUMPY: "#777777",
    STREAMED: "#1b6ca8",
    KEPT: "#5aa9d6",
    "ray 1": "#e2a36f",
    "ray 2": "#c1561b",
}


@style("scale")
def figures(results: Results) -> dict[str, str]:
    """Left: seconds of a streamed round over users, with the fit. Right: entries a second of every variant over features."""
    drawing = Figure(figsize=(10, 4), layout="constrained")
    left, right = drawing.subplots(1, 2)
    fit, cells = analysis(results)["fit"], results["cells"]
    dims = sorted({cell["dim"] for cell in cells})
    for dim, shade in zip(dims, np.linspace(0.35, 0.95, len(dims)), strict=True):
        colour = matplotlib.colormaps["Blues"](shade)
        row = [cell for cell in cells if cell["dim"] == dim]
        n = np.array([cell["users"] for cell in row])
        left.plot(n, [seconds_of(cell, STREAMED) for cell in row], "o", color=colour, ms=4, label=f"d = {dim}")
        left.plot(n, fit["round"] + fit["user"] * n + fit["entry"] * n * dim, color=colour, lw=1)
    left.set(xscale="log", yscale="log", xlabel="users", ylabel="seconds of a round")
    left.set_title("One process, streamed: measured, and the fit", loc="left")
    left.legend(frameon=False)
    users = max((cell["users"] for cell in cells), key=lambda n: sum(len(c["seconds"]) for c in cells if c["users"] == n))
    row = sorted((cell for cell in cells if cell["users"] == users), key=lambda cell: cell["dim"])
    for name, colour in COLOURS.items():
        some = [(cell["dim"], users * cell["dim"] / seconds_of(cell, name)) for cell in row if name in cell["seconds"]]
        if some:
            right.plot(*zip(*some, strict=True), "o-", color=colour, ms=4, lw=1, label=name)
    right.set(xscale="log", yscale="log", xlabel="features", ylabel="entries a second")
    right.set_title(f"By variant, {shown(users)} users", loc="left")
    right.legend(frameon=False)
    return {"scale.svg": svg(drawing)}
