"""The report of a regression with intervals: the promise, the table that statisticians know, and a picture of the intervals."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from typing import Any

import numpy as np

from ..privacy import _statements as words
from ._svg import (
    Axis,
    Row,
    bytes_text,
    crowd_item,
    epsilon_items,
    facts_table,
    figure_item,
    number,
    rendered,
    rows_picture,
    unbroken,
    value_text,
    wide_table,
)
from .compare import bits_per_user

# Intervals that a picture holds; of more columns, those that stand out most.
_MOST = 40
# The public fact that says what the columns of a model's rows are.
ROWS = "rows"


def has_intervals(model: Any) -> bool:
    """Tell whether a model is a regression with standard errors, fitted."""
    return hasattr(type(model), "summary") and hasattr(model, "promise_")


def kind_of(model: Any) -> str:
    """What a model is in words, for readers who know no class names: "Logistic regression"."""
    name = type(model).__name__.removeprefix("Shuffle")
    first, *rest = re.findall(r"[A-Z]+(?![a-z])|[A-Z][a-z]*", name) or [name]
    return " ".join([first, *(word if word.isupper() else word.lower() for word in rest)])


def without_rounds(model: Any) -> bool:
    """Tell whether a model is a fitted regression that has intervals, or was not trained in rounds."""
    fitted = all(hasattr(model, name) for name in ("promise_", "coef_"))
    return fitted and (has_intervals(model) or not hasattr(model, "result_"))


def summaries_of(model: Any, level: float = 0.95) -> list[Any]:
    """Return the tables of coefficients with intervals of a model: one per target, none of a model without intervals."""
    if not has_intervals(model):
        return []
    targets = len(getattr(model, "target_range_", (0,)))
    return [model.summary(level, target=target) for target in range(targets)] if targets > 1 else [model.summary(level)]


def intervals_page(
    model: Any, title: str, public_facts: Mapping[str, str], tables: Sequence[Any] = (), how_good: str = "", compared: bool = False
) -> str:
    """Show a regression that was not trained in rounds as one self-contained HTML page. The guarantee covers all but `how_good`."""
    given, tables = bool(tables), tables or summaries_of(model)
    alarms = []
    if model.guarantee_ is None:
        alarms.append("<strong>NOT PRIVATE</strong>: it was made with a seed or a stand-in. This model promises nothing.")
    if model.read_off_data_:
        alarms.append(escape(words.not_covered(model.read_off_data_)))
    private, but = model.guarantee_ is not None, ", except for the comparison on data declared public," if compared else ""
    return rendered(
        title=escape(title),
        subtitle=escape(f"{kind_of(model)}, learned from {model.n_users_:,} people. {model._asked_how()[1]}"),
        alarms="\n".join(f'<p class="alarm">{alarm}</p>' for alarm in alarms),
        sections=[
            _promise(model),
            how_good,
            *(_coefficients(model, table, i, len(tables), given) for i, table in enumerate(tables)),
            *([] if tables else [weights_section(model, public_facts)]),
            _assumed(model, public_facts),
        ],
        footer=f"Everything on it{but} follows from what the analyzer saw, which the promise covers: sharing it costs no privacy."
        if private
        else "It comes from a model that is not private: treat this page like the data.",
    )


def _words(model: Any) -> words.PromiseWords:
    stated = model.promise_
    return words.PromiseWords(
        claim=words.Claim.of(stated.epsilon, stated.delta, model.guarantee_),
        neighbours=stated.neighbours,
        honest=stated.honest,
        kept=model.guarantee_ is not None,
        watched=model._watched(stated.delta),
    )


def _promise(model: Any) -> str:
    stated, promise = model.promise_, _words(model)
    bits, plans = bits_per_user(model), _plans(model)
    planned = model.guarantee_ or (model.schedule_.guarantee if hasattr(model, "result_") else None)
    watched = f"\n<p>{unbroken(promise.if_watched)}</p>" if promise.watched else ""
    return f"""<h2>The promise</h2>
<p class="big">{escape(promise.difference)}</p>
<p>{unbroken(promise.headline)} {unbroken(promise.meaning)}</p>{watched}
<ul class="figures">
{epsilon_items(stated.epsilon, stated.delta, planned)}
{figure_item("best guess", promise.claim.best_guess, "of an attacker who knows everybody else; 50 % is pure chance")}
{crowd_item(model.n_users_, min(plan.users for plan in plans))}
{figure_item("asked", "once", "each of them")}
{figure_item("bits", f"{bits:,}", "sent by a person, at most: " + bytes_text(bits))}
</ul>"""


def _plans(model: Any) -> list[Any]:
    """The plans of all kinds of rounds."""
    if hasattr(model, "result_"):
        return [phase.plan for phase in model.schedule_.phases]
    return [model.plan_] if hasattr(model, "plan_") else list(model.rounds_.planned.plans)


def _coefficients(model: Any, table: Any, which: int, targets: int, given: bool) -> str:
    of_what = table.of if hasattr(model, "classes_") else "units of the target"
    rows = []
    for name, coef, std, (low, high), p in zip(table.names, table.coef, table.std, table.intervals, table.p_values, strict=True):
        told = {
            "std err": infinite(std, f"{std:.3g}"),
            "p-value": "&lt; 0.001" if p < 0.001 else f"{p:.3f}",
            f"{100 * table.level:.4g} % interval": f"{_end(low)} to {_end(high)}",
        }
        rows.append((escape(name), {"coefficient": f"{coef:.4g}", **told}, False))
    of = f" of target {which}" if targets > 1 else ""
    r2 = "" if table.r2 is None else f" {table.r2_text}."
    r2 += "".join(f" {escape(text)}" for text in (table.undecided_text, table.caveat) if text)
    effects, step = _effects(model, table, which, given)
    return (
        f"<h2>Coefficients{of}</h2>\n<p>Standard errors include both sampling and privacy noise.{r2}</p>\n"
        f"{_picture(effects, which, of_what, step)}\n<p>In {escape(of_what)} per unit of the column:</p>\n"
        f"{wide_table('column', rows, left=())}"
    )


# What one step along a column is, where public ranges make the columns comparable, and where they do not.
_STEPS = {
    True: "moving a column from the middle to the end of its public range, or a level against its reference",
    False: "one unit of a column; without declared public ranges, columns are not comparable",
}


def _effects(model: Any, table: Any, which: int, given: bool) -> tuple[Any, str]:
    """Return what the columns do on one axis, each per half of its public range, and what such a step is in words.

    A table that is given is in the units of a schema, whose rows run from -1 to 1 over the ranges: the model's own is the one.
    """
    own = summaries_of(model, table.level)
    if given and which < len(own) and 0 <= len(table.coef) - len(own[which].coef) <= 1:
        return replace(own[which], names=table.names[: len(own[which].coef)]), _STEPS[True]
    if given or model.feature_range_ is None:
        return table, _STEPS[False]
    halves = np.append(model._centres()[1], 1.0)[: len(table.coef)]
    return table.transformed(np.diag(halves), table.names), _STEPS[True]


def _end(end: float) -> str:
    return infinite(end, "") or number(float(f"{end:.4g}"))


def infinite(value: float, otherwise: str) -> str:
    """Return the sign for infinity, or what a finite value is shown as."""
    return otherwise if np.isfinite(value) else "∞" if value > 0 else "-∞"


def weights_section(model: Any, facts: Mapping[str, str]) -> str:
    """The coefficients of a model that has no standard errors: drawn where there is one per column, and the largest in a table."""
    names = [str(name) for name in getattr(model, "feature_names_in_", [f"x{i}" for i in range(model.n_features_in_)])]
    weights = np.atleast_2d(model.coef_)
    effects = weights * model._centres()[1]  # per half of a declared range: what can be compared
    kept = sorted(np.argsort(-np.abs(effects).max(axis=0), kind="stable")[:_MOST].tolist())
    how = model._chosen_rule() if hasattr(model, "result_") else []  # said where the page says how the model was made
    said = [*model._speaks_for(), *(line for line in model._meaning() if line not in how)]
    if not any("no error bars" in line for line in said):
        said.append("The coefficients have no error bars: small ones may be noise.")
    if model.feature_range_ is None:
        said.append(f"Each is for one unit of a column as it was sent{': ' + facts[ROWS] if ROWS in facts else ''}.")
    if len(kept) < len(names):
        said.append(f"These are the {len(kept)} largest of {len(names):,} columns.")
    text = f"<h2>Coefficients</h2>\n<p>{escape(' '.join(said))}</p>"
    if len(weights) > 1:
        rows = [(escape(names[i]), _pulls(weights[:, i], model.classes_), False) for i in kept]
        return f"{text}\n{wide_table('column', rows, left=())}"
    what = f"towards {model.classes_[1]!s}" if hasattr(model, "classes_") else "units of the target"
    head = f"coefficient, {escape(what)}"
    rows = [(escape(names[i]), {head: f"{weights[0, i]:.4g}"}, False) for i in kept]
    rows += [("(intercept)", {head: f"{float(np.ravel(model.intercept_)[0]):.4g}"}, False)] if model.constant_ else []
    bars = [Row(names[i], effects[0, i], effects[0, i], effects[0, i]) for i in kept]
    axis = Axis.over(what, [*effects[0, kept].tolist(), 0.0, *([] if effects.any() else [1.0])])
    picture = rows_picture("coefficients", f"{len(kept)} coefficients", bars, axis, bars=True)
    half = " for half of a column's declared range" if model.feature_range_ is not None else ""
    ways = "raises the prediction, to the left it lowers it"
    if hasattr(model, "classes_"):
        ways = f"makes {model.classes_[1]!s} more likely, to the left {model.classes_[0]!s}"
    caption = escape(f"Each bar is a coefficient{half}: to the right it {ways}.")
    return f"{text}\n<figure>\n{picture}\n<figcaption>{caption}</figcaption>\n</figure>\n{wide_table('column', rows, left=())}"


def _pulls(weights: Any, classes: Any) -> dict[str, str]:
    """Towards which of several classes a column speaks most, and against which."""
    most, least = int(np.argmax(weights)), int(np.argmin(weights))
    return {
        "speaks most for": f"{escape(str(classes[most]))} ({weights[most]:+.3g})",
        "and against": f"{escape(str(classes[least]))} ({weights[least]:+.3g})",
    }


def _picture(table: Any, which: int, of_what: str, step: str) -> str:
    """One line per coefficient with a finite interval, about a line at 0; the intercept is in the table alone."""
    drawn = [i for i, name in enumerate(table.names) if np.isfinite(table.intervals[i]).all() and name != "(intercept)"]
    if not drawn:
        return '<p class="note">No interval is finite: there is nothing to draw.</p>'
    clear = [abs(coef) / std if std > 0 else 0.0 for coef, std in zip(table.coef, table.std, strict=True)]  # 0: nothing was seen
    kept = sorted(sorted(drawn, key=lambda i: -clear[i])[:_MOST])
    rows = []
    for i in kept:
        low, high = table.intervals[i]
        inside = low <= table.coef[i] <= high  # an estimate beyond a declared bound is noise
        rows.append(Row(table.names[i].split(" (against ")[0], table.coef[i] if inside else None, low, high))
    told = sum(bool(table.intervals[i][0] > 0 or table.intervals[i][1] < 0) for i in kept)
    left = len(table.names) - 1 - len(kept) if "(intercept)" in table.names else len(table.names) - len(kept)
    absent = f" Coefficients in the table only: {left:,}." if left else ""
    level = f"{100 * table.level:.4g} %"
    axis = Axis.over(of_what, np.append(table.intervals[kept].ravel(), 0.0).tolist())
    title = f"{len(kept)} coefficients with {level} intervals; {told} exclude 0"
    return (
        f"<figure>\n{rows_picture(f'intervals-{which}', title, rows, axis, bars=False)}\n<figcaption>Each dot is the effect of "
        f"{step}; each line is its {level} interval. {told} of the {len(kept)} intervals exclude 0.{absent}</figcaption>\n</figure>"
    )


def _assumed(model: Any, facts: Mapping[str, str]) -> str:
    stated, promise = model.promise_, _words(model)
    items = [
        f"<b>The shuffler.</b> {escape(words.SHUFFLER)}",
        *([f"<b>The lots.</b> {escape(words.LOTS)}"] if promise.watched else []),
        f"<b>The others.</b> {unbroken(promise.crowd)}",
        f"<b>The records.</b> {escape(words.of_records(stated.invalid))}",
        f"<b>The machines.</b> {escape(words.MACHINES)}",
        f"<b>Once.</b> {escape(words.ONCE)}",
    ]
    if has_intervals(model):
        clipped = ", targets clipped to their range." if hasattr(model, "target_range_") else "."
        sent = "longer ones scaled down to the norm"
        items.append(f"<b>The intervals</b> assume that the model is true of the rows as they were sent: {sent}{clipped}")
    names = ("classes", "target_range", "feature_norm", "fit_intercept", "invalid")
    public = {
        name.replace("_", " "): value_text(getattr(model, f"{name}_", getattr(model, name, None)))
        for name in names
        if hasattr(model, name)
    }
    listed = "\n".join(f"<li>{item}</li>" for item in items)
    return f"<h2>Assumptions</h2>\n<ul>\n{listed}\n</ul>\n<h2>Treated as public</h2>\n{facts_table(public | dict(facts))}"
