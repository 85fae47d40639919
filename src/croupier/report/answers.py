"""The answer to any question of one private round, as a page with pictures."""

from __future__ import annotations

from html import escape
from importlib.resources import files
from itertools import pairwise
from string import Template
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import __version__
from ..privacy import _statements as words
from ..privacy._rounding import round_up
from ..statistics import Answer, Description, Evaluation
from ..statistics.histogram import HistogramAnswer
from ..statistics.scores import CellCounts, QuantileBins
from ._svg import Axis, Figure, figure_item, premise_text, unbroken, wide_table
from .description import describe_page, short
from .intervals import infinite


def answer_page(answer: Any, *, title: str) -> str:
    """Show what one private round said as one self-contained HTML page."""
    if isinstance(answer, Description):
        return describe_page(answer, title=title)
    if isinstance(answer, Evaluation):
        return _page(title, answer.answer, _evaluation(answer))
    if isinstance(answer, Answer) and isinstance(answer.value, HistogramAnswer):
        return _page(title, answer, [f"<h2>Histogram</h2>\n{_histogram(answer.value)}"])
    release = Answer(None, answer.estimate_, answer.plan_)
    return _page(title, release, [f"<h2>Coefficients</h2>\n{_coefficients(answer)}"])


def _page(title: str, answer: Answer, sections: list[str]) -> str:
    plan = answer.plan
    promise = f"""<h2>The promise</h2>
<p>{unbroken(f"One private round: {words.brief(plan.epsilon, plan.delta, plan.neighbours)}.")}{premise_text(answer.guarantee)}
Error bars are for 95 %.</p>
<ul class="figures">
{figure_item("epsilon", round_up(plan.epsilon), f"smaller is more private; {words.SCALE}")}
{figure_item("delta", round_up(plan.delta), "chance that more is revealed")}
{figure_item("people", f"{answer.users:,}", "asked once each")}
</ul>"""
    template = Template(files(__package__).joinpath("report.html").read_text(encoding="utf-8"))
    private = "Everything on it comes out of one private round, which the promise covers: showing it costs nothing."
    return template.substitute(
        title=escape(title),
        version=escape(__version__),
        subtitle=escape(f"{answer.users:,} people, each asked once."),
        alarms="" if answer.private else f'<p class="alarm">{escape(words.not_private(words.SEEDED))}</p>',
        sections="\n".join(f"<section>\n{section}\n</section>" for section in [promise, *sections]),
        footer=private if answer.private else "It is not private: treat the page as you treat the data.",
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
        x=Axis.over("false positives, share", [0.0, 1.0]),
        y=Axis.over("true positives, share", [0.0, 1.0]),
    )
    figure.line([0.0, 1.0], [0.0, 1.0], "faint")
    figure.line(wrong.tolist(), right.tolist())
    figure.label(0.97, 0.08, f"area {area.value:.3f} +- {1.96 * area.std:.3f}", anchor="end")
    return f"<figure>\n{figure.render()}\n<figcaption>From noisy counts; the diagonal is chance.</figcaption>\n</figure>"


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
        return "<p>Too few people in every bin to tell.</p>"
    at, shares, errors = rows[:, 0], rows[:, 2], 1.96 * rows[:, 3]
    figure.band(at.tolist(), np.clip(shares - errors, 0, 1).tolist(), np.clip(shares + errors, 0, 1).tolist())
    figure.line(*ideal, "faint")
    figure.dots(at.tolist(), shares.tolist())
    words = f"{caption}, but for the band, which is the 95 % error bar."
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
        y=Axis.over("per cent of the people", [0.0, float(heights.max()) + error]),
    )
    figure.band(steps, np.maximum(heights - error, 0).tolist(), (heights + error).tolist())
    figure.line([edges[0], *steps, edges[-1]], [0.0, *heights.tolist(), 0.0])
    figure.upright(histogram.quantile(0.5), f"median {short(histogram.quantile(0.5))}")
    caption = "Shares of the people; the band is the 95 % error bar of the noise."
    return f"<figure>\n{figure.render()}\n<figcaption>{caption}</figcaption>\n</figure>"


def _coefficients(model: Any) -> str:
    table = model.summary()
    rows = []
    for name, coef, std, (low, high) in zip(table.names, table.coef, table.std, table.intervals, strict=True):
        interval = f"{infinite(low, f'{low:.4g}')} .. {infinite(high, f'{high:.4g}')}"
        error = infinite(std, f"{std:.3g}")
        rows.append((escape(name), {"coefficient": f"{coef:.4g}", "standard error": error, "95 % interval": interval}, False))
    share = "" if table.r2 is None else f"<p>{table.r2_text}.</p>\n"
    return share + wide_table("column", rows, left=())
