"""Small figures as inline SVG: axes, lines, bands, labels beside what they name. Colours are the page's, through CSS classes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from itertools import pairwise
from string import Template
from typing import Any

import numpy as np

from .. import __version__
from ..privacy import Guarantee
from ..privacy import _statements as words
from ..privacy._statements import round_up

WIDTH, HEIGHT = 480, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 16, 34, 52
# Points beyond this many are averaged in groups: a run of 10 000 rounds should not make a page of a megabyte.
_MOST_POINTS = 240


@dataclass(frozen=True)
class Axis:
    """A range of values and where its ticks are; `label` is what it measures."""

    label: str
    low: float
    high: float
    log: bool = False
    ticks: tuple[float, ...] = ()

    @classmethod
    def over(cls, label: str, values: Sequence[float], *, log: bool = False, ticks: tuple[float, ...] = ()) -> Axis:
        """An axis on which these values have room: from 0 on where it is linear and they begin near 0."""
        low, high = min(values), max(values)
        if log:
            return cls(label, low / 1.25, high * 1.25, True, ticks or _log_ticks(low, high))
        low = 0.0 if 0 <= low < 0.6 * high else low
        room = 0.06 * ((high - low) or abs(high) or 1.0)
        low, high = (low if low == 0 else low - room), high + room
        return cls(label, low, high, False, ticks or linear_ticks(low, high))

    def place(self, value: float) -> float:
        """From 0 at the low end to 1 at the high end."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


@dataclass
class Figure:
    """One figure, put together piece by piece; `name` is unique on its page, `description` is for those who do not see it."""

    name: str
    title: str
    description: str
    x: Axis
    y: Axis
    parts: list[str] = field(default_factory=list)
    x_text: dict[float, str] = field(default_factory=dict)  # what stands at ticks of x in place of their numbers

    def band(self, xs: Sequence[float], lows: Sequence[float], highs: Sequence[float]) -> None:
        """The area between two lines."""
        there, back = (list(map(self._at, *thinned(xs, ys))) for ys in (highs, lows))
        self.parts.append(f'<path class="band" d="M{" L".join([*there, *reversed(back)])} Z"/>')

    def line(self, xs: Sequence[float], ys: Sequence[float], style: str = "main") -> None:
        """A line through points; `style` is main, other or faint."""
        xs, ys = thinned(xs, ys)
        self.parts.append(f'<path class="line {style}" d="M{" L".join(map(self._at, xs, ys))}"/>')

    def dots(self, xs: Sequence[float], ys: Sequence[float], style: str = "main") -> None:
        """A round dot at every point; a square where the style is other."""
        for x, y in zip(*thinned(xs, ys), strict=True):
            across, down = self._across(x), self._down(y)
            if style == "other":
                self.parts.append(f'<rect class="dot other" x="{across - 4:.1f}" y="{down - 4:.1f}" width="8" height="8"/>')
            else:
                self.parts.append(
                    f'<circle class="dot {style}" cx="{across:.1f}" cy="{down:.1f}" r="{4 if len(xs) < 40 else 2.5}"/>'
                )

    def bars(self, edges: Sequence[float], heights: Sequence[float], lows: Sequence[float], highs: Sequence[float]) -> None:
        """A bar between every two edges, from 0 up to its height, with an error bar from low to high in its middle."""
        foot = self._down(0.0)
        for (left, right), height, low, high in zip(pairwise(edges), heights, lows, highs, strict=True):
            start, end, top = self._across(left), self._across(right), self._down(max(height, 0.0))
            middle, down, up = (start + end) / 2, self._down(low), self._down(high)
            self.parts.append(f'<path class="bar" d="M{start + 0.5:.1f} {foot:.1f} V{top:.1f} H{end - 0.5:.1f} V{foot:.1f} Z"/>')
            self.parts.append(
                f'<path class="error" d="M{middle:.1f} {down:.1f} V{up:.1f} m-3 0 h6 M{middle - 3:.1f} {down:.1f} h6"/>'
            )

    def rule(self, y: float, text: str) -> None:
        """A dashed horizontal line with its name above it, at the right."""
        down = self._down(y)
        self.parts.append(f'<path class="rule" d="M{_LEFT} {down:.1f} H{WIDTH - _RIGHT}"/>')
        self._text(WIDTH - _RIGHT - 2, down - 6, text, "end")

    def upright(self, x: float, text: str) -> None:
        """A dashed vertical line with its name beside its top, on the side where there is more room."""
        across = self._across(x)
        self.parts.append(f'<path class="rule" d="M{across:.1f} {_TOP} V{HEIGHT - _BOTTOM}"/>')
        left = across > WIDTH / 2
        self._text(across + (-5 if left else 5), _TOP + 10, text, "end" if left else "start")

    def mark(self, x: float, y: float, text: str, *, falling: bool = False) -> None:
        """A ring around a point of a line, named where the line is not: above, to the right of a falling one, else to the left."""
        across, down = self._across(x), self._down(y)
        self.parts.append(f'<circle class="ring" cx="{across:.1f}" cy="{down:.1f}" r="8"/>')
        right = across < (WIDTH / 2 + 40 if falling else WIDTH / 3)
        if falling and not right:
            self._text(across - 12, down + 20, text, "end")
        else:
            self._text(across + (8 if right else 4), down - 14, text, "start" if right else "end")

    def label(self, x: float, y: float, text: str, *, anchor: str = "start", shift: float = -8) -> None:
        """The name of a line or band, beside it: above, or with a positive shift below."""
        self._text(self._across(x), self._down(y) + shift, text, anchor)

    def render(self) -> str:
        frame = [self._gridline(tick) for tick in self.y.ticks] + [self._x_tick(tick) for tick in self.x.ticks]
        titles = (
            f'<text class="name" x="2" y="16">{escape(self.y.label)}</text>'
            f'<text class="name" x="{WIDTH - _RIGHT}" y="{HEIGHT - 8}" text-anchor="end">{escape(self.x.label)}</text>'
        )
        return (
            f'<svg role="img" viewBox="0 0 {WIDTH} {HEIGHT}" aria-labelledby="{self.name}-title {self.name}-text">'
            f'<title id="{self.name}-title">{escape(self.title)}</title>'
            f'<desc id="{self.name}-text">{escape(self.description)}</desc>'
            f"{''.join(frame)}{titles}{''.join(self.parts)}</svg>"
        )

    def _across(self, x: float) -> float:
        return _LEFT + self.x.place(x) * (WIDTH - _LEFT - _RIGHT)

    def _down(self, y: float) -> float:
        return HEIGHT - _BOTTOM - self.y.place(y) * (HEIGHT - _TOP - _BOTTOM)

    def _at(self, x: float, y: float) -> str:
        return f"{self._across(x):.1f} {self._down(y):.1f}"

    def _text(self, across: float, down: float, text: str, anchor: str) -> None:
        down = min(max(down, _TOP + 8), HEIGHT - _BOTTOM - 5)
        self.parts.append(f'<text class="label" x="{across:.1f}" y="{down:.1f}" text-anchor="{anchor}">{escape(text)}</text>')

    def _gridline(self, tick: float) -> str:
        down = self._down(tick)
        return (
            f'<path class="grid" d="M{_LEFT} {down:.1f} H{WIDTH - _RIGHT}"/>'
            f'<text class="tick" x="{_LEFT - 6}" y="{down + 5:.1f}" text-anchor="end">{number(tick)}</text>'
        )

    def _x_tick(self, tick: float) -> str:
        across, down = self._across(tick), HEIGHT - _BOTTOM
        text = escape(self.x_text.get(tick) or number(tick))
        return (
            f'<path class="grid" d="M{across:.1f} {down} v5"/>'
            f'<text class="tick" x="{across:.1f}" y="{down + 20}" text-anchor="middle">{text}</text>'
        )


@dataclass(frozen=True)
class Row:
    """One line of `rows_picture`: its name, a value with the ends of its error bar, and what stands at the right."""

    name: str
    value: float | None
    low: float
    high: float
    text: str = ""


# Sizes of `rows_picture`: a row, the column of names, the room for the axis below and for texts at the right.
_ROW, _NAMES, _BELOW, _TEXTS = 22, 150, 46, 96
_LONGEST_NAME = 18


def rows_picture(identity: str, title: str, rows: Sequence[Row], axis: Axis, *, bars: bool) -> str:
    """Named values below each other on one axis: bars from 0, or dots about a line at 0, with their error bars."""
    top, bottom = 8, 8 + _ROW * len(rows)
    height = bottom + _BELOW
    right = WIDTH - (_TEXTS if any(row.text for row in rows) else _RIGHT)

    def across(value: float) -> float:
        return _NAMES + axis.place(value) * (right - _NAMES)

    parts = [
        f'<path class="grid" d="M{across(tick):.1f} {top} V{bottom}"/>'
        f'<text class="tick" x="{across(tick):.1f}" y="{bottom + 16}" text-anchor="middle">{number(tick)}</text>'
        for tick in axis.ticks
    ]
    zero = across(0.0)
    for place, row in enumerate(rows):
        down = top + _ROW * (place + 0.5)
        name = row.name if len(row.name) <= _LONGEST_NAME else row.name[: _LONGEST_NAME - 1] + "…"
        parts.append(f'<text class="label" x="{_NAMES - 8}" y="{down + 4:.1f}" text-anchor="end">{escape(name)}</text>')
        start, end = across(row.low), across(row.high)
        if bars and row.value is not None:
            parts.append(f'<path class="bar" d="M{zero:.1f} {down - 7:.1f} H{across(row.value):.1f} v14 H{zero:.1f} Z"/>')
        if bars and row.low < row.high:
            parts.append(f'<path class="error" d="M{start:.1f} {down:.1f} H{end:.1f} m0 -3 v6 M{start:.1f} {down - 3:.1f} v6"/>')
        elif not bars:
            parts.append(f'<path class="line main" d="M{start:.1f} {down:.1f} H{end:.1f}"/>')
        if not bars and row.value is not None:
            parts.append(f'<circle class="dot main" cx="{across(row.value):.1f}" cy="{down:.1f}" r="4"/>')
        if row.text:
            parts.append(f'<text class="tick" x="{WIDTH}" y="{down + 4:.1f}" text-anchor="end">{escape(row.text)}</text>')
    parts.append(f'<path class="rule" d="M{zero:.1f} {top} V{bottom}"/>')
    parts.append(f'<text class="name" x="{right}" y="{height - 8}" text-anchor="end">{escape(axis.label)}</text>')
    return (
        f'<svg class="rows" role="img" viewBox="0 0 {WIDTH} {height}" aria-labelledby="{identity}">'
        f'<title id="{identity}">{escape(title)}</title>{"".join(parts)}</svg>'
    )


def thinned(xs: Sequence[float], ys: Sequence[float]) -> tuple[list[float], list[float]]:
    """The points, or means of neighbouring ones where there are too many to draw."""
    size = math.ceil(len(xs) / _MOST_POINTS)
    groups = [range(start, min(start + size, len(xs))) for start in range(0, len(xs), max(1, size))]
    return [math.fsum(xs[i] for i in g) / len(g) for g in groups], [math.fsum(ys[i] for i in g) / len(g) for g in groups]


def number(value: float) -> str:
    """A number for people: 1,000 and 0.05, not 1e+03."""
    if value and (abs(value) >= 1e7 or abs(value) < 1e-4):
        return f"{value:.2g}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def linear_ticks(low: float, high: float) -> tuple[float, ...]:
    """About five round numbers between the ends."""
    rough = (high - low) / 4
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * unit for factor in (1, 2, 2.5, 5, 10) if factor * unit >= rough)
    return tuple(float(f"{i * step:.10g}") for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1))


def _log_ticks(low: float, high: float) -> tuple[float, ...]:
    """Powers of ten, with 3 or with 2 and 5 times them where there would be few, every second one where there are many."""
    low, high = low / 1.25, high * 1.25
    for factors in ((1,), (1, 3), (1, 2, 5)):
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        inside = tuple(tick for power in powers for factor in factors if low <= (tick := factor * 10.0**power) <= high)
        if len(inside) >= 3:
            return inside[:: math.ceil(len(inside) / 7)]
    return tuple(tick for tick in linear_ticks(low, high) if tick > 0)


# Pieces of the report's HTML: figures, tables, and values as text.


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


def epsilon_items(epsilon: float, delta: float, guarantee: Guarantee | None) -> str:
    """The cards of epsilon and delta; where lots are secret, what an observer of arrival times learns stands beside the first."""
    first = figure_item("epsilon", round_up(epsilon), f"smaller is more private; {words.SCALE}")
    if guarantee is not None and guarantee.watched is not None:
        known = words.watched_epsilon(guarantee, delta)
        first = (
            f'<li class="two"><div>epsilon<b>{round_up(epsilon)}</b><span>to anyone who does not know when each person answered; '
            f"{escape(words.SCALE)}</span></div>\n<div>epsilon, if watched<b>{known or 'none'}</b>"
            f"<span>to an attacker who also knows when each person answered</span></div></li>"
        )
    return f"{first}\n{figure_item('delta', round_up(delta), 'probability that more is revealed')}"


def crowd_item(people: int, least: int) -> str:
    """How many people there are, and how many a round has to hide those who answer in it: `least` at least."""
    apart = "whose answers are mixed together"
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
