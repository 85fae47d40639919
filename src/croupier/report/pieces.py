"""Pieces of the report's HTML: figures, tables, and values as text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

import numpy as np

from .. import __version__
from ..privacy import Guarantee
from ..privacy import _statements as words
from .svg import number


def rendered(*, title: str, subtitle: str, alarms: str, sections: Iterable[str], footer: str) -> str:
    """The whole page of a report; all parts are HTML already, and empty sections are left out."""
    template = Template(files(__package__).joinpath("report.html").read_text(encoding="utf-8"))
    return template.substitute(
        title=title,
        version=escape(__version__),
        subtitle=subtitle,
        alarms=alarms,
        sections="\n".join(f"<section>\n{section}\n</section>" for section in sections if section),
        footer=footer,
    )


def figure_item(name: str, value: str, what: str) -> str:
    return f"<li>{escape(name)}<b>{escape(value)}</b><span>{escape(what)}</span></li>"


def crowd_item(people: int, least: int) -> str:
    """How many people there are, and of how many a round is that hides whoever answers in it: `least` at least."""
    apart = "in the crowd that hides each of them"
    return figure_item("people", f"{people:,}", apart if least >= people else f"in all; at least {least:,} {apart}")


def unbroken(text: str) -> str:
    """A sentence whose figures are not broken over two lines."""
    return re.sub(r"(?:epsilon|delta) = [^ ,;)]+|1 in [\d,]+|[\d.]+ %", r'<span class="kept">\g<0></span>', escape(text))


def premise_text(guarantee: Guarantee | None) -> str:
    """What an answer's promise assumes of people, where that is not all of them: a sentence after another one, or nothing."""
    if guarantee is None or guarantee.honest == 1:
        return ""
    return unbroken(f" It holds if {words.crowd(guarantee.honest)} follow the protocol.")


def ours_class(ours: bool) -> str:
    return ' class="ours"' if ours else ""


def wide_table(first: str, rows: list[tuple[str, dict[str, str], bool]], left: tuple[str, ...]) -> str:
    """A table that becomes a list of cards on a phone; cells are HTML already."""
    kinds = {name: "left" if name in left else "n" for name in rows[0][1]}
    head = f"<th>{first}</th>" + "".join(f'<th class="{kinds[name]}">{escape(name)}</th>' for name in kinds)
    body = [
        f"<tr{ours_class(ours)}><td>{name}</td>"
        + "".join(_cell(kinds[column], column, cell) for column, cell in cells.items())
        + "</tr>"
        for name, cells, ours in rows
    ]
    return f'<table class="wide">\n<thead><tr>{head}</tr></thead>\n<tbody>\n' + "\n".join(body) + "\n</tbody>\n</table>"


def _cell(kind: str, column: str, cell: str) -> str:
    return f'<td class="{kind}{" none" if cell == "-" else ""}" data-name="{escape(column)}">{cell}</td>'


def facts_table(facts: Mapping[str, str]) -> str:
    rows = "\n".join(f'<tr><th scope="row">{escape(name)}</th><td>{escape(value)}</td></tr>' for name, value in facts.items())
    return f'<table class="facts">\n{rows}\n</table>'


def score_text(name: str, value: float) -> str:
    return f"{100 * value:.2f} %" if name == "accuracy" else f"{value:.4f}" if 1e-3 < value < 10 else number(value)


def value_text(value: Any) -> str:
    """A parameter as text, long lists cut short."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value[:30])) + (f" and {len(value) - 30} more" if len(value) > 30 else "")
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def bytes_text(bits: int) -> str:
    size = bits / 8
    return f"{size:,.0f} bytes" if size < 10_000 else f"{size / 1000:,.0f} kB" if size < 1e7 else f"{size / 1e6:,.0f} MB"
