"""Small figures as inline SVG: axes, lines, bands, labels beside what they name. Colours are the page's, through CSS classes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

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
        return cls(label, low, high, False, ticks or _linear_ticks(low, high))

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


def _linear_ticks(low: float, high: float) -> tuple[float, ...]:
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
    return tuple(tick for tick in _linear_ticks(low, high) if tick > 0)
