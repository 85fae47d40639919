"""The report of a regression with intervals: the promise, the table that statisticians know, and a picture of the intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from ..privacy import _statements as words
from ..privacy._rounding import round_up
from ._svg import WIDTH, Axis, bytes_text, crowd_item, facts_table, figure_item, number, rendered, unbroken, value_text, wide_table
from .compare import bits_per_user

# Intervals that a picture holds; of more columns, those that stand out most.
_MOST = 40
_ROW, _NAMES, _TOP, _BOTTOM, _RIGHT = 22, 132, 12, 46, 14


def has_intervals(model: Any) -> bool:
    """Tell whether a model is a regression with standard errors, fitted."""
    return hasattr(type(model), "summary") and hasattr(model, "promise_")


def without_rounds(model: Any) -> bool:
    """Tell whether a model is a fitted regression that was not trained in rounds."""
    return all(hasattr(model, name) for name in ("promise_", "coef_")) and not hasattr(model, "result_")


def summaries_of(model: Any) -> list[Any]:
    """Return the tables of coefficients with intervals of a model: one per target, none of a model without intervals."""
    if not has_intervals(model):
        return []
    targets = len(getattr(model, "target_range_", (0,)))
    return [model.summary(target=target) for target in range(targets)] if targets > 1 else [model.summary()]


def intervals_page(
    model: Any, title: str, public_facts: Mapping[str, str], tables: Sequence[Any] = (), how_good: str = "", compared: bool = False
) -> str:
    """Show a regression that was not trained in rounds as one self-contained HTML page. The guarantee covers all but `how_good`."""
    tables = tables or summaries_of(model)
    alarms = []
    if model.guarantee_ is None:
        alarms.append("<strong>NOT PRIVATE</strong>: made with a seed or a stand-in. This model promises nothing.")
    if model.read_off_data_:
        alarms.append(escape(words.not_covered(model.read_off_data_)))
    private, but = model.guarantee_ is not None, ", but for the comparison on data declared public," if compared else ""
    return rendered(
        title=escape(title),
        subtitle=escape(f"{type(model).__name__}, learned from {model.n_users_:,} people. {model._asked_how()[1]}"),
        alarms="\n".join(f'<p class="alarm">{alarm}</p>' for alarm in alarms),
        sections=[
            _promise(model),
            how_good,
            *(_coefficients(model, table, i, len(tables)) for i, table in enumerate(tables)),
            *([] if tables else [_weights(model)]),
            _assumed(model, public_facts),
        ],
        footer=f"Everything on it{but} follows from what the analyzer saw and the promise covers: showing it costs nothing."
        if private
        else "It comes from a model that is not private: treat the page as you treat the data.",
    )


def _words(model: Any) -> words.PromiseWords:
    stated = model.promise_
    return words.PromiseWords(
        claim=words.Claim.of(stated.epsilon, stated.delta, model.guarantee_),
        neighbours=stated.neighbours,
        honest=stated.honest,
        kept=model.guarantee_ is not None,
    )


def _promise(model: Any) -> str:
    stated, promise = model.promise_, _words(model)
    bits, plans = bits_per_user(model), [model.plan_] if hasattr(model, "plan_") else model.rounds_.planned.plans
    return f"""<h2>The promise</h2>
<p class="big">{escape(promise.difference)}</p>
<p>{unbroken(promise.headline)} {unbroken(promise.meaning)}</p>
<ul class="figures">
{figure_item("epsilon", round_up(stated.epsilon), f"smaller is more private; {words.SCALE}")}
{figure_item("delta", round_up(stated.delta), "chance that more is revealed")}
{figure_item("best guess", promise.claim.best_guess, "of somebody who knows all the others; 50 % is chance")}
{crowd_item(model.n_users_, min(plan.users for plan in plans))}
{figure_item("asked", "once", "each of them")}
{figure_item("bits", f"{bits:,}", "sent by a person, at most: " + bytes_text(bits))}
</ul>"""


def _coefficients(model: Any, table: Any, which: int, targets: int) -> str:
    logistic = hasattr(model, "classes_")
    unit = f"log-odds of {model.classes_[1]!s} per unit of the column" if logistic else "units of the target per unit of the column"
    rows = []
    for name, coef, std, (low, high), p in zip(table.names, table.coef, table.std, table.intervals, table.p_values, strict=True):
        told = {
            "std err": infinite(std, f"{std:.3g}"),
            "p-value": "&lt; 0.001" if p < 0.001 else f"{p:.3f}",
            f"{table.level:.4g} interval": f"{_end(low)} to {_end(high)}",
        }
        rows.append((escape(name), {"coefficient": f"{coef:.4g}", **told}, False))
    of = f" of target {which}" if targets > 1 else ""
    r2 = "" if table.r2 is None else f" {table.r2_text}."
    r2 += f" {escape(table.undecided_text)}" if table.undecided_text else ""
    return (
        f"<h2>Coefficients{of}</h2>\n<p>In {escape(unit)}. Standard errors count sampling and the privacy noise together.{r2}</p>\n"
        f"{_picture(table, which, unit)}\n{wide_table('column', rows, left=())}"
    )


def _end(end: float) -> str:
    return infinite(end, "") or number(float(f"{end:.4g}"))


def infinite(value: float, otherwise: str) -> str:
    """Return the sign for infinity, or what a finite value is shown as."""
    return otherwise if np.isfinite(value) else "∞" if value > 0 else "-∞"


def _weights(model: Any) -> str:
    """The coefficients of a model that has no standard errors."""
    names = getattr(model, "feature_names_in_", [f"x{column}" for column in range(model.n_features_in_)])
    rows = [(escape(str(name)), {"coefficient": f"{coef:.4g}"}, False) for name, coef in zip(names, model.coef_, strict=True)]
    rows += [("(intercept)", {"coefficient": f"{model.intercept_:.4g}"}, False)] if model.constant_ else []
    said = " ".join(escape(line) for line in model._meaning())
    said += " Each coefficient is for one unit of a column of the rows as they were sent."
    return f"<h2>Coefficients</h2>\n<p>{said}</p>\n{wide_table('column', rows, left=())}"


def _picture(table: Any, which: int, unit: str) -> str:
    """One line per coefficient with a finite interval, about a line at 0; the intercept is in the table alone."""
    drawn = [i for i, name in enumerate(table.names) if np.isfinite(table.intervals[i]).all() and name != "(intercept)"]
    if not drawn:
        return '<p class="note">No interval is finite: there is nothing to draw.</p>'
    kept = sorted(sorted(drawn, key=lambda i: -abs(table.coef[i] / table.std[i]))[:_MOST])
    ends = np.append(table.intervals[kept].ravel(), 0.0)
    axis = Axis.over("", ends.tolist())
    bottom = _TOP + _ROW * len(kept)

    def across(value: float) -> float:
        return _NAMES + axis.place(value) * (WIDTH - _NAMES - _RIGHT)

    parts = [
        f'<path class="grid" d="M{across(tick):.1f} {_TOP} V{bottom}"/>'
        f'<text class="tick" x="{across(tick):.1f}" y="{bottom + 16}" text-anchor="middle">{number(tick)}</text>'
        for tick in axis.ticks
    ]
    parts.append(f'<path class="rule" d="M{across(0.0):.1f} {_TOP} V{bottom}"/>')
    for row, i in enumerate(kept):
        down, (low, high) = _TOP + _ROW * (row + 0.5), table.intervals[i]
        column = table.names[i].split(" (against ")[0]  # the table says against what
        column = column if len(column) <= 20 else column[:19] + "…"
        parts.append(f'<text class="label" x="{_NAMES - 8}" y="{down + 4:.1f}" text-anchor="end">{escape(column)}</text>')
        parts.append(f'<path class="line main" d="M{across(low):.1f} {down:.1f} H{across(high):.1f}"/>')
        if low <= table.coef[i] <= high:  # an estimate beyond a declared bound is noise
            parts.append(f'<circle class="dot main" cx="{across(table.coef[i]):.1f}" cy="{down:.1f}" r="4"/>')
    told = sum(bool(table.intervals[i][0] > 0 or table.intervals[i][1] < 0) for i in kept)
    left = len(table.names) - 1 - len(kept) if "(intercept)" in table.names else len(table.names) - len(kept)
    absent = f" The table has {left:,} more." if left else ""
    name, height = f"intervals-{which}", bottom + _BOTTOM
    title = f"{len(kept)} coefficients with {100 * table.level:.4g} % intervals; {told} do not hold 0"
    parts.append(f'<text class="name" x="{WIDTH - _RIGHT}" y="{height - 8}" text-anchor="end">{escape(unit)}</text>')
    return (
        f'<figure>\n<svg role="img" viewBox="0 0 {WIDTH} {height}" aria-labelledby="{name}"><title id="{name}">{title}</title>'
        f"{''.join(parts)}</svg>\n<figcaption>Each dot is a coefficient, each line its {100 * table.level:.4g} % interval. "
        f"{told} of {len(kept)} do not hold 0.{absent}</figcaption>\n</figure>"
    )


def _assumed(model: Any, facts: Mapping[str, str]) -> str:
    stated, promise = model.promise_, _words(model)
    items = [
        f"<b>The shuffler.</b> {escape(words.SHUFFLER)}",
        f"<b>The others.</b> {unbroken(promise.crowd)}",
        f"<b>The records.</b> {escape(words.RECORDS.get(stated.invalid, words.RECORDS['refuse']))}",
        f"<b>The machines.</b> {escape(words.MACHINES)}",
        f"<b>Once.</b> {escape(words.ONCE)}",
    ]
    if has_intervals(model):
        clipped = ", targets clipped to their range." if hasattr(model, "target_range_") else "."
        sent = "longer ones scaled down to feature_norm"
        items.append(f"<b>The intervals</b> take the model for true of the rows as they were sent: {sent}{clipped}")
    names = ("classes", "target_range", "feature_norm", "fit_intercept", "invalid")
    public = {name: value_text(getattr(model, f"{name}_", getattr(model, name, None))) for name in names if hasattr(model, name)}
    listed = "\n".join(f"<li>{item}</li>" for item in items)
    return f"<h2>What is assumed</h2>\n<ul>\n{listed}\n</ul>\n<h2>Taken as public</h2>\n{facts_table(public | dict(facts))}"
