"""A private description for people to look at: a table for the terminal, and a page with pictures."""

from __future__ import annotations

import math
from html import escape
from importlib.resources import files
from itertools import pairwise
from string import Template

import numpy as np
from numpy.typing import NDArray
from rich.console import Group
from rich.markup import escape as escaped
from rich.table import Table

from .. import __version__
from ..privacy import _statements as words
from ..privacy._statements import round_up
from ..statistics import Description
from ..statistics._columns import LevelSummary, NumberSummary
from ._svg import Axis, Figure, Row, figure_item, linear_ticks, number, premise_text, rows_picture, unbroken, wide_table

_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
# Bars of a histogram, and levels that are drawn.
_BARS, _FEWEST_BARS, _MOST_LEVELS, _FEW_LEVELS = 24, 8, 30, 8
# Bars are so many that each has, on average, this part of the people for every standard deviation of the noise.
_CLEAR = 0.2


def description_table(description: Description) -> Group:
    """Return every column's quantiles, mean, shares and what is missing, with error bars, as tables."""
    numbers, levels = Table("column", show_lines=True), Table("column", "missing", "shares", show_lines=True)
    numbers.add_column("missing", justify="right", no_wrap=True)
    for heading in ("5 %", "50 %", "95 %", "mean"):
        numbers.add_column(heading, justify="right")
    for name, summary in description.columns.items():
        missing = share_text(summary.missing.value, summary.missing.std)
        if isinstance(summary, NumberSummary):
            points = [f"{short(summary.quantile(q))}\n{interval_text(summary, q)}" for q in (0.05, 0.5, 0.95)]
            numbers.add_row(escaped(name), missing, *points, mean_text(summary))
        else:
            scores = sorted(summary.levels.items(), key=lambda item: -item[1].value)
            parts = [f"{level} {share_text(score.value, score.std)}" for level, score in scores[:_FEW_LEVELS]]
            more = [f"{len(scores) - _FEW_LEVELS} rarer levels"] if len(scores) > _FEW_LEVELS else []
            parts += [*more, f"other {share_text(summary.other.value, summary.other.std)}"]
            levels.add_row(escaped(name), missing, escaped("; ".join(parts)))
    return Group(*(table for table in (numbers, levels) if table.row_count))


def describe_page(description: Description, *, title: str = "A private look at a table") -> str:
    """Show a description as one self-contained HTML page: a picture and the figures of every column."""
    template = Template(files(__package__).joinpath("report.html").read_text(encoding="utf-8"))
    sections = [_promise(description), _overview(description), *column_sections(description)]
    alarm = "" if description.guarantee else f'<p class="alarm">{escape(words.not_private(words.SEEDED))}</p>'
    private = "Everything on it comes from one private round, which the promise covers: sharing it costs no privacy."
    return template.substitute(
        title=escape(title),
        version=escape(__version__),
        subtitle=escape(f"{description.people}, each asked once, about {len(description.columns)} columns."),
        alarms=alarm,
        sections="\n".join(f"<section>\n{section}\n</section>" for section in sections),
        footer=private if description.guarantee else "It is not private: treat this page like the data.",
    )


def column_sections(description: Description) -> list[str]:
    """Every column's picture and figures, as HTML."""
    sections, scale = [], _common_scale(description)
    for place, (name, summary) in enumerate(description.columns.items()):
        body = (
            _level_section(f"column{place}", name, summary, scale)
            if isinstance(summary, LevelSummary)
            else _number_section(f"column{place}", name, summary)
        )
        hint = description.hints.get(name)
        note = f'<p class="note">{escape(hint)}: a better guess would reveal more.</p>' if hint else ""
        sections.append(f"<h2>{escape(name)}</h2>\n{note}{body}")
    return sections


def _promise(description: Description) -> str:
    plan = description.answer.plan
    return f"""<h2>The promise</h2>
<p>{unbroken(f"One private round for all columns together: {description.promise}.")}{premise_text(description.guarantee)}
Ranges and levels were guessed beforehand, without the data. Error bars are 95 % intervals and include both privacy noise and
sampling.</p>
<ul class="figures">
{figure_item("epsilon", round_up(plan.epsilon), f"smaller is more private; {words.SCALE}")}
{figure_item("delta", round_up(plan.delta), "probability that more is revealed")}
{figure_item("people", f"{description.users:,}", "asked once each")}
</ul>"""


def _overview(description: Description) -> str:
    """All columns at a glance: numbers in one table, levels in another."""
    numbers, levels = [], []
    for name, summary in description.columns.items():
        missing = share_text(summary.missing.value, summary.missing.std)
        if isinstance(summary, LevelSummary):
            level, score = max(summary.levels.items(), key=lambda item: item[1].value)
            other = share_text(summary.other.value, summary.other.std)
            most = f"{escape(level)} {share_text(score.value, score.std)}"
            cells = {"levels": f"{len(summary.levels):,}", "most frequent": most, "other": other, "missing": missing}
            levels.append((escape(name), cells, False))
        else:
            low, middle, high = (short(summary.quantile(q)) for q in (0.05, 0.5, 0.95))
            cells = {"5 %": low, "median": middle, "95 %": high, "mean": mean_text(summary), "missing": missing}
            numbers.append((escape(name), cells, False))
    tables = [wide_table("column", rows, left=()) for rows in (numbers, levels) if rows]
    return "<h2>All columns at a glance</h2>\n" + "\n".join(tables)


def _common_scale(description: Description) -> Axis:
    """One axis for the levels of all columns, so that bars of different columns compare."""
    tops = [
        score.value + 1.96 * score.std
        for summary in description.columns.values()
        if isinstance(summary, LevelSummary)
        for score in (*summary.levels.values(), summary.other, summary.missing)
    ]
    return Axis.over("% of people, the same scale for all columns", [0.0, 100 * max(tops, default=1.0)])


def _number_section(identity: str, name: str, summary: NumberSummary) -> str:
    rows = []
    for q in _QUANTILES:
        cells = {"value": short(summary.quantile(q)), "95 % interval": interval_text(summary, q)}
        rows.append((f"{q:.0%} are below".replace("%", " %"), cells, False))
    rows.append(
        ("mean (extremes clipped)", {"value": mean_text(summary).split(" +-")[0], "95 % interval": mean_interval(summary)}, False)
    )
    missing = share_text(summary.missing.value, summary.missing.std)
    caption = f"Shares of the people; thin lines are 95 % error bars. Missing: {missing}."
    picture = f"<figure>\n{_histogram(identity, name, summary).render()}\n<figcaption>{caption}</figcaption>\n</figure>\n"
    return picture + wide_table("share", rows, left=())


def _histogram(identity: str, name: str, summary: NumberSummary) -> Figure:
    """Shares of the people in some ranges, as bars with error bars."""
    edges, shares, errors, log = histogram_bars(summary)
    unit = float(f"{(edges[-1] - edges[0]) / (len(edges) - 1):.1g}")
    widths = [1.0 if log else (high - low) / unit for low, high in pairwise(edges)]
    shares, errors = ([value / width for value, width in zip(values, widths, strict=True)] for values in (shares, errors))
    tops = [share + error for share, error in zip(shares, errors, strict=True)]
    at = [math.asinh(edge) if log else edge for edge in edges]
    heights, highs = [100 * share for share in shares], [100 * max(top, 0.0) for top in tops]
    lows = [100 * max(share - error, 0.0) for share, error in zip(shares, errors, strict=True)]
    room = 0.02 * (at[-1] - at[0])
    ticks = _ratio_ticks(edges[0], edges[-1]) if log else linear_ticks(at[0], at[-1])
    figure = Figure(
        name=identity,
        title=f"Distribution of {name}",
        description="; ".join(f"{short(summary.quantile(q))} at {q:.0%}" for q in _QUANTILES),
        x=Axis(name, at[0] - room, at[-1] + room, False, tuple(t for t in ticks if at[0] - room <= t <= at[-1] + room)),
        y=Axis.over("% of people" if log else f"% of people (bins of {short(unit)})", [0.0, *highs]),
    )
    if log:
        figure.x_text = {math.asinh(value): number(value) for value in map(math.sinh, ticks)}
    figure.bars(at, heights, lows, highs)
    middle = summary.quantile(0.5)
    figure.upright(math.asinh(middle) if log else middle, f"median {short(middle)}")
    return figure


def histogram_bars(summary: NumberSummary) -> tuple[list[float], list[float], list[float], bool]:
    """Edges, shares and 95 per cent errors of some bars, and whether they are to be drawn in equal ratios.

    Bins are put together so that bars are about equally wide between the outermost quantiles that can be told from noise.
    """
    low, high = summary.quantile(summary.tail), summary.quantile(1 - summary.tail)
    inner, outer = summary.quantile(0.25), summary.quantile(0.75)
    spread = max(outer - inner, summary.quantile(0.5) if outer > inner else 1.0, 1e-12)
    log = low >= 0 and high > max(100, 30 * spread, 2 * low)
    lows, highs = summary.guess.ends
    ends = np.unique(np.concatenate([lows, highs]))
    room = 0.05 * (high - low)
    inside = ends[(ends >= low - room) & (ends <= high + room)]
    below, above = ends[ends < low - room][-1:], ends[ends > high + room][:1]
    inside = np.concatenate([below, inside, above])
    if len(inside) < 2:
        inside = ends
    placed = np.arcsinh(inside) if log else inside
    bars = min(max(int(_CLEAR / max(summary.tail_noise, 1e-12)), _FEWEST_BARS), _BARS)
    wanted = np.linspace(placed[0], placed[-1], bars + 1)
    chosen_places = _without_slivers(np.unique(placed[np.argmin(np.abs(placed[:, np.newaxis] - wanted), axis=0)]), bars)
    edges = inside[np.isin(placed, chosen_places)]
    middles = (lows + highs) / 2
    shares, errors = [], []
    for first, last in pairwise(edges):
        chosen = np.append((middles >= first) & (middles < last), False).astype(np.float64)
        share = float(chosen @ summary.shares)
        variance = max(float(chosen @ summary.covariance @ chosen), 0.0) + share * (1 - share) / summary.users
        shares.append(share)
        errors.append(1.96 * math.sqrt(variance))
    return edges.tolist(), shares, errors, log


def _without_slivers(places: NDArray[np.float64], bars: int) -> NDArray[np.float64]:
    """The ends of bars, less those that cut off less than half of a usual bar: its error bar would dwarf all others."""
    least, kept = 0.5 * (places[-1] - places[0]) / bars, [places[0]]
    for place in places[1:-1]:
        if min(place - kept[-1], places[-1] - place) >= least:
            kept.append(place)
    return np.array([*kept, places[-1]])


def _level_section(identity: str, name: str, summary: LevelSummary, scale: Axis) -> str:
    scores = sorted(summary.levels.items(), key=lambda item: -item[1].value)
    shown = [*scores[:_MOST_LEVELS], ("other", summary.other), ("missing", summary.missing)]
    rows = [
        Row(
            level,
            100 * max(score.value, 0.0),
            100 * max(score.value - 1.96 * score.std, 0.0),
            100 * max(score.value + 1.96 * score.std, 0.0),
            share_text(score.value, score.std),
        )
        for level, score in shown
    ]
    more = f" {len(scores) - _MOST_LEVELS} rarer levels are not shown." if len(scores) > _MOST_LEVELS else ""
    picture = rows_picture(identity, f"Shares of {name}", rows, scale, bars=True)
    return f"<figure>\n{picture}\n<figcaption>Thin lines are 95 % error bars.{more}</figcaption>\n</figure>"


def _ratio_ticks(low: float, high: float) -> tuple[float, ...]:
    """Places of 0 and of powers of ten on an axis of equal ratios."""
    powers = [10.0**power for power in range(0, math.ceil(math.log10(max(high, 10.0))) + 1)]
    ticks = [0.0, *powers] if low <= 0 else powers
    return tuple(math.asinh(tick) for tick in ticks if low <= tick <= high)


def share_text(share: float, std: float) -> str:
    """A share with its 95 per cent error."""
    return f"{100 * share:.1f} +- {196 * std:.1f} %"


def short(value: float) -> str:
    """A number of a column, short."""
    return number(value) if value else "0"


def with_error(value: float, error: float) -> str:
    """A value with its error: the error to two digits, the value to as many decimals."""
    if not 0 < error < math.inf:
        return f"{short(value)} +- {short(error)}"
    decimals = max(0, 1 - math.floor(math.log10(error)))
    return f"{value:,.{decimals}f} +- {error:,.{decimals}f}" if decimals <= 6 else f"{value:.4g} +- {error:.2g}"


def interval_text(summary: NumberSummary, q: float) -> str:
    """The 95 per cent interval of a quantile."""
    low, high = summary.interval(q)
    return f"{short(low)} .. {short(high)}"


def mean_text(summary: NumberSummary) -> str:
    """The mean of the middle 99 per cent with its 95 per cent error."""
    score = summary.middle_mean
    return with_error(score.value, 1.96 * score.std)


def mean_interval(summary: NumberSummary) -> str:
    """The 95 per cent interval of the mean of the middle 99 per cent."""
    low, high = summary.middle_mean.interval
    return f"{short(low)} .. {short(high)}"
