"""What the figures of the gallery share: two colours that also differ in lightness, few lines, reproducible SVG."""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

PRIVATE, PLAIN, GREY = "#0b6e4f", "#c84c09", "#7a7a7a"
plt.rcParams.update(
    {
        "svg.hashsalt": "croupier",
        "font.size": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "figure.constrained_layout.use": True,
        "legend.frameon": False,
    }
)


parser = argparse.ArgumentParser()
parser.add_argument("--out", type=Path, default=Path(__file__).parent.parent / "docs" / "gallery", help="folder of the figure")


def save(figure: plt.Figure, name: str) -> None:
    """Write the figure to --out. An example adds its own options to the parser, and parses them before it computes."""
    folder = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.svg"
    figure.savefig(path, metadata={"Date": None})
    print(f"wrote {path}")
