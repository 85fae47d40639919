"""The answer to any question of one private round, as a page with pictures."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from importlib.resources import files
from itertools import pairwise
from string import Template
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import __version__
from ..privacy import _statements as words
from ..privacy._statements import round_up
from ..statistics import Answer, Description, Evaluation
from ..statistics._scores import CellCounts, QuantileBins
from ..statistics.heavy_hitters import Words
from ..statistics.histogram import HistogramAnswer
from ..statistics.streams import StreamAnswer
from ..statistics.tables import GroupedAnswer, TableAnswer
from ._description import describe_page, short
from ._intervals import infinite
from ._svg import Axis, Figure, figure_item, premise_text, unbroken, wide_table

_MOST_WORDS = 60


def answer_page(answer: Any, *, title: str) -> str:
    """Show what one private round said as one self-contained HTML page."""
    if isinstance(answer, Description):
        return describe_page(answer, title=title)
    if isinstance(answer, Evaluation):
        return _page(title, answer.answer, _evaluation(answer))
    if isinstance(answer, Answer) and type(answer.value) in _SHOWN:
        heading, shown = _SHOWN[type(answer.value)]
        return _page(title, answer, [f"<h2>{heading}</h2>\n{shown(answer.value)}"])
    release = Answer(None, answer.estimate_, answer.plan_)
    return _page(title, release, [f"<h2>Coefficients</h2>\n{_coefficients(answer)}"])


def _page(title: str, answer: Answer, sections: list[str]) -> str:
    plan, stream = answer.plan, isinstance(answer.value, StreamAnswer)
    what = "One promise for all days together" if stream else "One private round"
    promise = f"""<h2>The promise</h2>
<p>{unbroken(f"{what}: {words.brief(plan.epsilon, plan.delta, plan.neighbours)}.")}{premise_text(answer.guarantee)}
Error bars are for 95 %.</p>
<ul class="figures">
{figure_item("epsilon", round_up(plan.epsilon), f"smaller is more private; {words.SCALE}")}
{figure_item("delta", round_up(plan.delta), "probability that more is revealed")}
{figure_item("people", f"{answer.users:,}", "on the last day" if stream else "asked once each")}
</ul>"""
    template = Template(files(__package__).joinpath("report.html").read_text(encoding="utf-8"))
    release = "private sums" if stream else "one private round"
    private = f"Everything on it comes from {release}, which the promise covers: sharing it costs no privacy."
    private += " How many people answered each day is public." if stream else ""
    return template.substitute(
        title=escape(title),
        version=escape(__version__),
        subtitle=escape(f"{answer.users:,} people{', day by day' if stream else ', each asked once'}."),
        alarms="" if answer.private else f'<p class="alarm">{escape(words.not_private(words.SEEDED))}</p>',
        sections="\n".join(f"<section>\n{section}\n</section>" for section in [promise, *sections]),
        footer=private if answer.private else "It is not private: treat this page like the data.",
    )


def _evaluation(evaluation: Evaluation) -> list[str]:
    rows = []
    for name, score in evaluation.shown.items():
        low, high = score.interval
        constant = "-" if score.baseline is None else f"{score.baseline:.4g}"
        cells = {"score": f"{score.value:.4g}", "95 % interval": f"{low:.4g} .. {high:.4g}", "constant answer": constant}
        rows.append((escape(name), cells, False))
    sections = ["<h2>Scores</h2>\n" + wide_table("score", rows, left=())]
    counts = evaluation.counts
    if not isinstance(counts, CellCounts):
        return sections if counts.bins is None else [*sections, f"<h2>Calibration</h2>\n{_quantiles(counts.bins)}"]
    if counts.edges is not None:
        sections.append(f"<h2>ROC</h2>\n{_roc(counts)}")
        sections.append(f"<h2>Calibration</h2>\n{_calibration(counts)}")
    error = 1.96 * float(counts.confusion_std.max())
    table = []
    for label, row in zip(counts.classes, counts.confusion, strict=True):
        said = {f"said {answer}": f"{count:,.0f}" for answer, count in zip(counts.classes, row, strict=True)}
        table.append((f"is {escape(str(label))}", said, False))
    sections.append(
        f"<h2>Confusion</h2>\n<p>People, each count +- {error:,.0f} at most.</p>\n{wide_table('truth', table, left=())}"
    )
    return sections


def _roc(counts: CellCounts) -> str:
    wrong, right = counts.roc
    area = counts.scores["AUC"]
    figure = Figure(
        name="roc",
        title="ROC curve",
        description=f"The area below is {area.value:.3f}.",
        x=Axis.over("false positive rate", [0.0, 1.0]),
        y=Axis.over("true positive rate", [0.0, 1.0]),
    )
    figure.line([0.0, 1.0], [0.0, 1.0], "faint")
    figure.line(wrong.tolist(), right.tolist())
    figure.label(0.97, 0.08, f"area {area.value:.3f} +- {1.96 * area.std:.3f}", anchor="end")
    return f"<figure>\n{figure.render()}\n<figcaption>From noisy counts; the diagonal is pure chance.</figcaption>\n</figure>"


def _calibration(counts: CellCounts) -> str:
    rows = counts.calibration
    rows = rows[np.isfinite(rows).all(axis=1) & (rows[:, 3] < 0.25)]
    figure = Figure(
        name="calibration",
        title="Calibration",
        description="The share of the second class among people with a score, over that score.",
        x=Axis.over("score", [0.0, 1.0]),
        y=Axis.over(f"share that is {counts.classes[1]}", [0.0, 1.0]),
    )
    return _shares(figure, rows, ([0.0, 1.0], [0.0, 1.0]), "A calibrated model's dots lie on the diagonal")


def _quantiles(bins: QuantileBins) -> str:
    ends = [float(bins.edges[0]), float(bins.edges[-1])]
    figure = Figure(
        name="calibration",
        title="Calibration",
        description=f"The share of people at or below the prediction, over the prediction; it should be {bins.quantile:g}.",
        x=Axis.over("prediction", ends),
        y=Axis.over("share at or below", [0.0, 1.0]),
    )
    caption = f"A calibrated model's dots lie at {bins.quantile:g}"
    return _shares(figure, bins.calibration[bins.told], (ends, [bins.quantile] * 2), caption)


def _shares(figure: Figure, rows: NDArray[np.float64], ideal: tuple[list[float], list[float]], caption: str) -> str:
    """Shares with their error bars, one dot per bin, and the line on which a calibrated model's are."""
    if len(rows) < 2:
        return "<p>Every bin has too few people to tell.</p>"
    at, shares, errors = rows[:, 0], rows[:, 2], 1.96 * rows[:, 3]
    figure.band(at.tolist(), np.clip(shares - errors, 0, 1).tolist(), np.clip(shares + errors, 0, 1).tolist())
    figure.line(*ideal, "faint")
    figure.dots(at.tolist(), shares.tolist())
    words = f"{caption}, except for the band, which is the 95 % error bar."
    return f"<figure>\n{figure.render()}\n<figcaption>{words}</figcaption>\n</figure>"


def _histogram(histogram: HistogramAnswer) -> str:
    shares, error = 100 * histogram.shares, 100 * 1.96 * histogram.count_std / histogram.users
    edges = histogram.edges.tolist()
    steps = [edge for low, high in pairwise(edges) for edge in (low, high)]
    heights = np.repeat(shares, 2)
    figure = Figure(
        name="histogram",
        title="Histogram",
        description=f"The median is {histogram.quantile(0.5):.4g}.",
        x=Axis.over("value", [edges[0], edges[-1]]),
        y=Axis.over("% of people", [0.0, float(heights.max()) + error]),
    )
    figure.band(steps, np.maximum(heights - error, 0).tolist(), (heights + error).tolist())
    figure.line([edges[0], *steps, edges[-1]], [0.0, *heights.tolist(), 0.0])
    figure.upright(histogram.quantile(0.5), f"median {short(histogram.quantile(0.5))}")
    caption = "Shares of the people; the band is the 95 % error bar of the noise."
    return f"<figure>\n{figure.render()}\n<figcaption>{caption}</figcaption>\n</figure>"


def _words(found: Words) -> str:
    """The most frequent words as bars, and from where on a word is found."""
    most = float(found.counts.max(initial=1.0))
    items = [
        f"<li><b>{escape(word)}</b>: {count:,.0f} +- {1.96 * std:,.0f}"
        f'<span class="bar" style="width:{max(0.4, 100 * count / most):.2f}%"></span></li>'
        for word, count, std in zip(found.words[:_MOST_WORDS], found.counts, found.count_std, strict=False)
    ]
    more = f"<p>{len(found.words) - _MOST_WORDS} rarer ones are not shown.</p>" if len(found.words) > _MOST_WORDS else ""
    lengths = [length for length in (4, 8, 16, 32) if length <= found.query.max_bytes]
    rows = [(f"{length} bytes", {"found from": f"at least {found.found_from(length):,.0f} people"}, False) for length in lengths]
    bound = f"<p>On average at most {found.mistakes:g} of them belong to nobody. People needed to find a word (99 %):</p>"
    return f'<ul class="scale">\n{"".join(items)}\n</ul>{more}\n{bound}\n{wide_table("length", rows, left=())}'


def _table(table: TableAnswer) -> str:
    """The counts as a table, darker where there are more people; of three columns one table for each value of the first."""
    names, most = list(table.labels), float(np.abs(table.counts).max(initial=1.0))
    parts = table.counts if table.counts.ndim == 3 else [table.counts.reshape(-1, table.counts.shape[-1])]
    shown = []
    for place, counts in enumerate(parts):
        head = f"<h3>{escape(names[0])}: {escape(table.labels[names[0]][place])}</h3>\n" if table.counts.ndim == 3 else ""
        rows = []
        for label, row in zip(table.labels[names[-2]] if len(names) > 1 else ["people"], counts, strict=True):
            cells = {column: _shaded(count, most) for column, count in zip(table.labels[names[-1]], row.tolist(), strict=True)}
            rows.append((escape(label), cells, False))
        corner = f"{names[-2]} / {names[-1]}" if len(names) > 1 else names[-1]
        shown.append(head + wide_table(escape(corner), rows, left=()))
    errors = "; ".join(f"{escape(name)} +- {1.96 * std:,.0f}" for name, std in table.marginal_std.items())
    caption = f"<p>People; each cell +- {1.96 * table.count_std:,.1f} (95 %). Sums over the other columns: {errors}.</p>"
    return "\n".join([caption, *shown])


def _shaded(count: float, most: float) -> str:
    share = max(0.0, min(1.0, count / most))
    return f'{count:,.0f}<span class="bar" style="width:{max(0.4, 100 * share):.1f}%"></span>'


def _groups(answer: GroupedAnswer) -> str:
    """Means with error bars in a picture, and all figures in a table."""
    names = [name for name, (size, std) in answer.sizes.items() if size > 3 * std]
    rows = []
    for name in names:
        summary, (size, std) = answer.groups[name], answer.sizes[name]
        low, high = summary.interval(0.5)
        label = escape(name if isinstance(name, str) else ", ".join(name))
        cells = {
            "people": f"{size:,.0f} +- {1.96 * std:,.0f}",
            "mean": f"{short(summary.mean.value)} +- {short(1.96 * summary.mean.std)}",
            "median": f"{short(summary.quantile(0.5))} ({short(low)} .. {short(high)})",
        }
        rows.append((label, cells, False))
    if not rows:
        return "<p>Every group is indistinguishable from noise.</p>"
    means = [answer.groups[name].mean for name in names]
    at = [float(place) for place in range(len(names))]
    lows, highs = ([mean.value + sign * 1.96 * mean.std for mean in means] for sign in (-1, 1))
    figure = Figure(
        name="groups",
        title=f"Mean of {answer.column}",
        description="; ".join(f"{name}: {mean.value:.4g}" for name, mean in zip(names, means, strict=True)),
        x=Axis(" and ".join(answer.by), -0.5, len(names) - 0.5, ticks=tuple(at)),
        y=Axis.over(f"mean of {answer.column}", [*lows, *highs]),
    )
    figure.x_text = {place: str(name if isinstance(name, str) else name[-1])[:8] for place, name in zip(at, names, strict=True)}
    for place, low, high in zip(at, lows, highs, strict=True):
        figure.line([place, place], [low, high], "faint")
    figure.dots(at, [mean.value for mean in means])
    caption = "The line at each dot is the 95 % error bar: privacy noise and sampling."
    picture = f"<figure>\n{figure.render()}\n<figcaption>{caption}</figcaption>\n</figure>\n"
    return picture + wide_table(escape(" / ".join(answer.by)), rows, left=())


def _stream(answer: StreamAnswer) -> str:
    """Running totals and daily counts, each with a band for its error, and beside them what people who were away leave out."""
    shown, scaled = [], answer.scaled()
    for name, counts, stds, everybody in (
        ("running total", answer.totals, answer.total_std, scaled.totals),
        ("people per day", answer.daily, answer.daily_std, scaled.daily),
    ):
        errors, days = 1.96 * stds, [float(day + 1) for day in range(len(counts))]
        lines = [counts - errors, counts + errors] + ([everybody] if answer.away else [])
        figure = Figure(
            name=name.replace(" ", "-"),
            title=name.capitalize(),
            description=f"{counts[-1]:,.0f} on the last of {len(days)} days. {answer.shortfall}",
            x=Axis.over("day", [days[0], days[-1] + 1e-6]),
            y=Axis.over(name, np.concatenate(lines).tolist()),
        )
        figure.band(days, (counts - errors).tolist(), (counts + errors).tolist())
        figure.line(days, counts.tolist())
        caption = "The band is the 95 % error bar of the noise."
        if answer.away:
            figure.line(days, everybody.tolist(), "other")
            caption += " The dashed line is an estimate for everybody, if those who were away resemble those who came."
        shown.append(f"<figure>\n{figure.render()}\n<figcaption>{caption}</figcaption>\n</figure>")
    if answer.away:
        fewest, most = int(answer.arrived.min()), int(answer.arrived.max())
        came = f"{fewest:,}" if fewest == most else f"{fewest:,} to {most:,}"
        shown.insert(0, f"<p>On each day {came} people answered. {escape(answer.shortfall)}</p>")
    return "\n".join(shown)


def _coefficients(model: Any) -> str:
    table = model.summary()
    rows = []
    for name, coef, std, (low, high) in zip(table.names, table.coef, table.std, table.intervals, strict=True):
        interval = f"{infinite(low, f'{low:.4g}')} .. {infinite(high, f'{high:.4g}')}"
        error = infinite(std, f"{std:.3g}")
        head = f"coefficient, {escape(table.of)}" if table.of else "coefficient"
        rows.append((escape(name), {head: f"{coef:.4g}", "standard error": error, "95 % interval": interval}, False))
    share = "" if table.r2 is None else f"<p>{table.r2_text}.</p>\n"
    return share + wide_table("column", rows, left=())


# How the answers of queries are shown, by the class of their value.
_SHOWN: dict[type, tuple[str, Callable[[Any], str]]] = {
    HistogramAnswer: ("Histogram", _histogram),
    Words: ("Words", _words),
    TableAnswer: ("Table", _table),
    GroupedAnswer: ("Groups", _groups),
    StreamAnswer: ("Over time", _stream),
}
