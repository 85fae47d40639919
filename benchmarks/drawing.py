"""Pictures as SVG: one style, the same bytes for the same figures, and no more digits than a screen shows."""

from __future__ import annotations

import io
import re
from contextlib import ContextDecorator
from typing import cast

import matplotlib
from matplotlib.figure import Figure

STYLE = {
    "svg.fonttype": "none",  # text stays text
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
DIGITS = 2
FONTS = "'DejaVu Sans', Verdana, sans-serif"


def style(name: str, **changes: object) -> ContextDecorator:
    """Return a decorator: the function draws and writes in the style of the benchmark of this name."""
    return cast(ContextDecorator, matplotlib.rc_context(STYLE | {"svg.hashsalt": f"croupier {name}"} | changes))


def svg(figure: Figure) -> str:
    """Return a figure as SVG: numbers rounded to hundredths of a point, one family of fonts, an element a line, no names."""
    written = io.StringIO()
    figure.savefig(written, format="svg", metadata={"Date": None})
    text = re.sub(r"<!-- .*? -->", "", written.getvalue())
    text = re.sub(r"(?<!scale\()-?\d+\.\d{3,}", _rounded, text)
    text = re.sub(r"font-family: [^;\"]*(; )?", "", text)
    text = text.replace("<svg ", f'<svg style="font-family: {FONTS}" ', 1)
    text = re.sub(r'<g id="[^"]*"', "<g", text)  # nothing refers to a group
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return re.sub(r"\n(?!<)", " ", "\n".join(lines)) + "\n"


def _rounded(number: re.Match[str]) -> str:
    short = f"{float(number[0]):.{DIGITS}f}".rstrip("0").rstrip(".")
    return "0" if short == "-0" else short
