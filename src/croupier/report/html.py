"""The report: one HTML file that says in plain words what a model promises, how training went, and what is assumed."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import Any

import numpy as np

from ..estimator.intervals import RegressionTable
from ..optimizer import Result
from ..optimizer.phases import Phase
from ..optimizer.training import BAND, noise_norms
from ..privacy import Guarantee, NoCertificateError, SumPlan, plan_lots, plan_sum
from ..privacy import _statements as words
from ..privacy._statements import counted, round_up
from ..privacy.plan import REQUEST_FIELDS
from ..validation import ArgumentError, Found
from ._intervals import intervals_page, kind_of, summaries_of, weights_section, without_rounds
from ._svg import (
    Axis,
    Figure,
    bytes_text,
    crowd_item,
    epsilon_items,
    facts_table,
    figure_item,
    ours_class,
    rendered,
    score_text,
    unbroken,
    value_text,
    wide_table,
)
from .baselines import alone_request, central, local
from .compare import Comparison, Method, public_comparison

# The report's figures: how training went, and what another epsilon would mean.

# The epsilons that the trade-off is drawn for.
_EPSILONS = (0.1, 0.15, 0.25, 0.4, 0.6, 1.0, 1.5, 2.5, 4.0, 6.0, 8.0)
_EPSILON_TICKS = (0.1, 0.3, 1.0, 3.0, 8.0)


def gradient_figure(result: Result) -> str:
    """The length of every round's mean gradient, and of the noise alone; not of rounds that ask about rows or search a line."""
    asked = [entry for entry in result.history if result.schedule.phases[entry.phase - 1].descends]
    history = asked or result.history
    rounds = [float(entry.index) for entry in history]
    phases = [result.schedule.phases[entry.phase - 1] for entry in history]
    mean_of = [phase.mean_of if phase.lots else float(entry.users) for phase, entry in zip(phases, history, strict=True)]
    ends = [noise_norms(phase.plan, entry.users, some) for phase, entry, some in zip(phases, history, mean_of, strict=True)]
    low, high = [end[0] for end in ends], [end[1] for end in ends]
    least = 0.7 * min(low)  # the logarithm's axis begins here
    norms = [max(least, float(np.linalg.norm(entry.gradient))) for entry in history]
    figure = Figure(
        name="gradient",
        title="Length of the private mean gradient in every round",
        description=f"It begins at {norms[0]:.3g} and ends at {norms[-1]:.3g}. "
        f"Noise alone would be between {low[-1]:.3g} and {high[-1]:.3g}.",
        x=_rounds_axis(rounds),
        y=Axis.over("length of the mean gradient", [*norms, *high, least, 1.2 * max(norms)], log=True),
    )
    figure.band([rounds[0] - 0.5, *rounds, rounds[-1] + 0.5], [low[0], *low, low[-1]], [high[0], *high, high[-1]])
    figure.line(rounds, norms, "faint")
    figure.dots(rounds, norms)
    figure.label(rounds[-1], low[-1], "noise alone", anchor="end", shift=16)
    early = min(range(len(norms)), key=lambda i: (-norms[i], i))
    figure.label(rounds[early], norms[early], "one dot per round", anchor="start" if early < len(norms) / 2 else "end", shift=-9)
    others = " Rounds that asked about rows, or for how far to go, have no dot." if len(history) < len(result.history) else ""
    where = sum(norm <= top for norm, top in zip(norms, high, strict=True))
    return _captioned(
        figure,
        f"Each dot is the length of a round's mean gradient, noise included. The band holds {BAND:.0%} of the "
        f"lengths that the noise alone would have. {where:,} of {counted(len(norms), 'round')} "
        f"{'lies' if where == 1 else 'lie'} in or below it: there the people's own "
        f"gradient was too small to stand out, as in a finished training, or in one with too little budget.{others}",
    )


def distance_figure(result: Result, radius: float | None = None) -> str:
    """How far every round was from the start."""
    moved = [float(np.linalg.norm(entry.theta - result.start)) for entry in result.history]
    final = float(np.linalg.norm(result.theta - result.start))
    rounds = [float(entry.index) for entry in result.history]
    limit = radius if radius is not None and max(final, *moved) >= radius / 2 else None
    figure = Figure(
        name="distance",
        title="Distance of the weights from their start",
        description=f"From 0 to {final:.3g} over {counted(len(rounds), 'round')}."
        + (f" The radius is {limit:.3g}." if limit is not None else ""),
        x=_rounds_axis([*rounds, rounds[-1] + 1]),
        y=Axis.over("distance from the start", [0.0, *moved, final or 1.0, *([] if limit is None else [1.1 * limit])]),
    )
    if limit is not None:
        figure.rule(limit, f"radius {limit:.3g} (limit)")
    figure.line([*rounds, rounds[-1] + 1], [*moved, final])
    figure.dots([rounds[-1] + 1], [final], "other")
    figure.label(rounds[-1] + 1, final, "the model", anchor="end", shift=-10 if final >= max(moved) * 0.9 else 22)
    return _captioned(
        figure,
        "The point that each round asked about; the square is the model. A line that still rises steeply at the end suggests more "
        "rounds." + (" A line that runs along the radius suggests a larger one." if limit is not None else ""),
    )


def course_figure(comparison: Comparison) -> str:
    """The score on public rows, round by round."""
    rounds, scores = [float(index) for index, _ in comparison.course], [score for _, score in comparison.course]
    rules = {method.name: method.scores[comparison.metric] for method in _references(comparison)}
    figure = Figure(
        name="course",
        title=f"{comparison.metric} on public rows during training",
        description=f"From {scores[0]:.3g} to {scores[-1]:.3g}; "
        + ", ".join(f"{name}: {value:.3g}" for name, value in rules.items()),
        x=_rounds_axis(rounds),
        y=Axis.over(comparison.metric, [*scores, *rules.values()]),
    )
    for name, value in rules.items():
        figure.rule(value, name)
    figure.line(rounds, scores)
    return _captioned(figure, f"The {escape(comparison.metric)} at the points that rounds asked about, on rows declared public.")


def _references(comparison: Comparison) -> list[Method]:
    """The constant answer and the non-private fit, which stand in figures as lines."""
    return [method for method in comparison.methods if method.kind == "reference"]


def plans_over_epsilon(phase: Phase, chosen: float) -> dict[float, SumPlan]:
    """The plan of a round at other epsilons, where one can be certified; at the chosen one, the plan itself."""
    plan, lots = phase.plan, phase.lots
    request = {name: getattr(plan, name) for name in REQUEST_FIELDS if name not in ("scalar", "range", "blocks")}
    request |= {"rotation": None if plan.range is None else "gradients"}
    plans = {chosen: plan}
    if lots is not None:
        whole_run = {name: getattr(lots, name) for name in ("delta", "users", "rounds", "honest", "neighbours")}
        request = {name: request[name] for name in ("dim", "norm", "max_inflation", "max_bits", "rotation")} | whole_run
        request |= {"blocks": plan.blocks}
    for epsilon in _EPSILONS:
        if epsilon == chosen:
            continue
        try:
            asked = request | {"epsilon": epsilon}
            plans[epsilon] = plan_sum(**asked) if lots is None else plan_lots(**asked).one_round
        except (ArgumentError, NoCertificateError):  # too few people for so small an epsilon, or beyond the paper's theorems
            continue
    return dict(sorted(plans.items()))


def noise_figure(epsilon: float, plans: Mapping[float, SumPlan], phase: Phase) -> str:
    """Noise over epsilon, beside the local model's."""

    def share(noise_std: float, plan: SumPlan) -> float:
        return math.sqrt(plan.dim) * noise_std / (plan.users if phase.lots is None else phase.mean_of) / plan.norm

    epsilons = list(plans)
    ours = [share(plan.noise_std, plan) for plan in plans.values()]
    locals_ = [
        share(local(plan if phase.lots is None else alone_request(phase, other)).noise_std, plan) for other, plan in plans.items()
    ]
    here = share(plans[epsilon].noise_std, plans[epsilon])
    figure = Figure(
        name="noise",
        title="Noise in a round's mean gradient over epsilon",
        description=f"{here:.3g} of the longest gradient at epsilon {round_up(epsilon)}; it falls from {ours[0]:.3g} to "
        f"{ours[-1]:.3g}, the local model's from {locals_[0]:.3g} to {locals_[-1]:.3g}.",
        x=_epsilon_axis(epsilons),
        y=Axis.over("noise / longest gradient", [*ours, *locals_, min(ours) / 2], log=True),
    )
    figure.line(epsilons, locals_, "other")
    figure.line(epsilons, ours)
    middle = len(epsilons) // 3
    figure.label(epsilons[1], locals_[1], "local model", shift=-6)
    figure.label(epsilons[middle], ours[middle], "shuffled", anchor="end", shift=22)
    figure.mark(epsilon, here, f"this model: {here:.2g}", falling=True)
    return _captioned(
        figure,
        "Length of the noise in one round's mean gradient, as a fraction of the longest gradient that one person can send. Well "
        "below 1, the data stands out; averaging over the rounds removes more of the noise.",
    )


def bits_figure(epsilon: float, plans: Mapping[float, SumPlan], times: int, most: int) -> str:
    """Bits over epsilon, of a person who takes part in this many rounds; in all phases a person sends at most `most`."""
    bits = [float(plan.bits_per_user * times) for plan in plans.values()]
    here = float(plans[epsilon].bits_per_user * times)
    figure = Figure(
        name="bits",
        title="Bits sent per person, by epsilon",
        description=f"{here:,.0f} bits at epsilon {round_up(epsilon)}, between {min(bits):,.0f} and {max(bits):,.0f} elsewhere.",
        x=_epsilon_axis(list(plans)),
        y=Axis.over("bits per person", [0.0, *bits]),
    )
    figure.line(list(plans), bits)
    before = bits[max(0, list(plans).index(epsilon) - 1)]
    figure.mark(epsilon, here, f"this model: {here:,.0f}", falling=before > 1.2 * here)
    plan = plans[epsilon]
    within = f"that keep the noise within {plan.max_inflation - 1:.0%} of a curator's"
    why = within if plan.calibration == "tight" else "that the paper's theorems allow"
    caption = f"The fewest bits {why}. A weaker promise has less noise, so values must be rounded more finely."
    only = f" These are rounds for gradients; over the whole training, a person sends at most {most:,} bits." if most > here else ""
    return _captioned(figure, caption + only)


def sweep_figure(epsilon: float, comparison: Comparison) -> str:
    """The score on public rows over epsilon."""
    epsilons, scores = zip(*comparison.sweep, strict=True)
    rules = {method.name: method.scores[comparison.metric] for method in _references(comparison)}
    figure = Figure(
        name="sweep",
        title=f"{comparison.metric} over epsilon, on public rows",
        description="; ".join(f"epsilon {round_up(other)}: {score:.4g}" for other, score in comparison.sweep),
        x=_epsilon_axis(list(epsilons)),
        y=Axis.over(comparison.metric, [*scores, *rules.values()]),
    )
    for name, value in rules.items():
        figure.rule(value, name)
    figure.line(epsilons, scores)
    figure.dots(epsilons, scores)
    return _captioned(
        figure,
        f"One new fit per epsilon on public rows, so every dot includes some luck. This model has epsilon {round_up(epsilon)}.",
    )


def _captioned(figure: Figure, caption: str) -> str:
    return f"<figure>\n{figure.render()}\n<figcaption>{caption}</figcaption>\n</figure>"


def _rounds_axis(rounds: list[float]) -> Axis:
    axis = Axis.over("round", [0.0, *rounds])
    ticks = tuple(tick for tick in axis.ticks if tick == round(tick) <= max(rounds))
    return replace(axis, low=0.0, high=max(rounds) + max(0.5, 0.03 * max(rounds)), ticks=ticks)


def _epsilon_axis(epsilons: list[float]) -> Axis:
    inside = tuple(tick for tick in _EPSILON_TICKS if min(epsilons) / 1.2 <= tick <= max(epsilons) * 1.2)
    return Axis.over("epsilon (smaller is more private)", epsilons, log=True, ticks=inside)


# Parameters that are objects of the process which fitted, or said elsewhere on the page.
_LEFT_OUT = ("account", "callbacks", "epsilon", "delta", "honest", "neighbours", "random_state", "data_is_public")


def html_report(
    model: Any,
    *,
    X: Any = None,
    y: Any = None,
    data_is_public: bool = False,
    title: str = "What this model promises",
    epsilons: Iterable[float] = (),
    public_facts: Mapping[str, str] | None = None,
    comparison: Comparison | None = None,
    tables: Sequence[RegressionTable] = (),
) -> str:
    """Show a fitted estimator, or the Result of a run, as one self-contained HTML page.

    Everything on it follows from what the guarantee covers, unless X and y are given.

    Parameters
    ----------
    model : PrivateEstimator or Result
        What the page is about. Of a regression with intervals it shows the coefficients, as a table and as a picture.
    X, y : array-like, optional
        Public rows: the page then compares the model on them with one without privacy.
    data_is_public : bool, default False
        Must be True if X and y are given.
    title : str, default "What this model promises"
        Headline.
    epsilons : iterable of float, optional
        Fitted again on X, to show accuracy over epsilon.
    public_facts : mapping of str to str, optional
        Shown beside the parameters, as columns and their ranges.
    comparison : Comparison, optional
        Replaces the one with X and y.
    tables : sequence of RegressionTable, optional
        Of a regression with intervals: shown in place of its own, as those in the units of a schema (`TableModel.summary`).

    Returns
    -------
    str
        The page.

    Raises
    ------
    ArgumentError
        If the model is not fitted, X and y are not declared public, or one of them is missing.

    Examples
    --------
    >>> import numpy as np
    >>> from croupier.estimator import ShuffleLogisticRegression
    >>> from croupier.report import html_report
    >>> X = np.random.default_rng(0).normal(size=(2000, 3)) / 3
    >>> page = html_report(ShuffleLogisticRegression(classes=[False, True]).fit(X, X[:, 0] > 0))
    >>> page.startswith("<!DOCTYPE html>"), "accuracy" in page
    (True, False)
    """
    if X is not None or y is not None or comparison is not None:
        if len(summaries_of(model)) > 1:
            remedy = "Leave X, y and comparison out; croupier.evaluate scores it on other people, privately."
            raise ArgumentError("X", Found("is given"), "left out for a regression with several targets", remedy)
        comparison = public_comparison(model, X, y, data_is_public, epsilons, comparison)
    if without_rounds(model):
        how_good = _how_good(comparison)
        if comparison is not None and comparison.sweep:
            how_good += sweep_figure(model.promise_.epsilon, comparison)
        return intervals_page(model, title, public_facts or {}, tables, how_good, comparison is not None)
    shown = _Shown.of(model, public_facts or {})
    sections = [
        _promise(shown),
        _how_good(comparison),
        "" if isinstance(model, Result) else weights_section(model, shown.facts),
        _training(shown, comparison),
        _noise(shown),
        _trade_off(shown, comparison),
        _assumed(shown),
        _details(shown),
    ]
    return rendered(
        title=escape(title),
        subtitle=escape(shown.subtitle),
        alarms=_alarms(shown),
        sections=sections,
        footer=_footer(shown, comparison),
    )


@dataclass(frozen=True)
class _Shown:
    """What the page is about, whichever kind of model it came from."""

    name: str
    result: Result
    guarantee: Guarantee | None
    epsilon: float
    delta: float
    honest: float
    neighbours: str
    not_covered: tuple[str, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    invalid: str = "refuse"  # a result does not say; the premise is stated where it may be needed
    radius: float | None = None  # how far the weights could move

    @classmethod
    def of(cls, model: Any, facts: Mapping[str, str]) -> _Shown:
        if isinstance(model, Result):
            schedule = model.schedule
            plan = schedule.phases[0].lots or schedule.phases[0].plan
            promised = (plan.epsilon, plan.delta + schedule.shortfall, schedule.honest, plan.neighbours)
            return cls("A model", model, model.guarantee, *promised, facts=facts)
        if not isinstance(getattr(model, "result_", None), Result):
            remedy = "Fit an estimator of croupier.estimator first, or pass what croupier.minimize returned."
            raise ArgumentError("model", type(model).__name__, "a fitted classifier or regressor, or a Result", remedy)
        promise = model.promise_
        parameters = {name: value for name, value in model.get_params(deep=False).items() if name not in _LEFT_OUT}
        return cls(
            kind_of(model),
            model.result_,
            model.guarantee_,
            promise.epsilon,
            promise.delta,
            promise.honest,
            promise.neighbours,
            tuple(model.read_off_data_),
            parameters | {name: getattr(model, f"{name}_") for name in ("classes", "feature_norm") if hasattr(model, f"{name}_")},
            facts,
            promise.invalid,
            model._radius() * math.sqrt(len(model.result_.theta) / (model.n_features_in_ + bool(model.constant_))),
        )

    @property
    def planned(self) -> Guarantee:
        """The guarantee, or where there is none that which the plan and secure randomness would have given."""
        return self.guarantee or self.result.schedule.guarantee

    @property
    def promise(self) -> words.PromiseWords:
        """What is promised, or would be, in words."""
        claim = words.Claim.of(self.epsilon, self.delta, self.planned)
        watched = words.watched_line(self.planned, self.delta) if self.planned.watched else ""
        kept = self.guarantee is not None
        return words.PromiseWords(claim=claim, neighbours=self.neighbours, honest=self.honest, kept=kept, watched=watched)

    @property
    def last(self) -> Phase:
        """The phase that the model comes from."""
        return self.result.schedule.phases[max((entry.phase for entry in self.result.history), default=1) - 1]

    @property
    def full(self) -> bool:
        return self.result.schedule.interactivity == "full"

    @property
    def least(self) -> int:
        """Of how many people the smallest round is; of all where nobody knows who is in which."""
        sizes = self.result.batch_sizes
        return self.result.users if self.full or self.result.schedule.secret_lots or not sizes else min(sizes)

    @property
    def subtitle(self) -> str:
        how_often = "all of them asked in every round" if self.full else "each asked at most once"
        cut = f" of {self.result.schedule.rounds:,} planned" if self.result.stopped else ""
        return (
            f"{self.name}, learned from {self.result.users:,} people, {how_often}, in {counted(self.result.rounds, 'round')}{cut}."
        )


# --- sections -------------------------------------------------------------------------------------------------------------------


def _alarms(shown: _Shown) -> str:
    alarms = []
    if shown.guarantee is None:
        alarms.append(
            f"{escape(words.not_private(words.SEEDED_OR_STAND_IN))} The figures below are what secure randomness would have "
            "promised; this model promises nothing."
        )
    if shown.not_covered:
        alarms.append(escape(words.not_covered(shown.not_covered)))
    strong = [re.sub("^NOT [A-Z]+", r"<strong>\g<0></strong>", alarm) for alarm in alarms]
    return "\n".join(f'<p class="alarm">{alarm}</p>' for alarm in strong)


def _footer(shown: _Shown, comparison: Comparison | None) -> str:
    """Why the page may be shown to anybody, or may not."""
    if shown.guarantee is None:
        return "What it says about training comes from a model that is not private: treat this page like the data."
    but = ", except for the comparison on data declared public" if comparison else ""
    return (
        f"What it says about training comes from what the analyzer saw, which the promise covers: sharing it costs no privacy{but}."
    )


def _promise(shown: _Shown) -> str:
    promise = shown.promise
    return f"""<h2>The promise</h2>
<p class="big">{escape(promise.difference)}</p>
<p>{unbroken(promise.headline)} {unbroken(promise.meaning)}</p>
<p>{unbroken(promise.guess)} {escape(words.IN_GENERAL)}</p>{_if_watched(promise)}
<ul class="figures">
{epsilon_items(shown.epsilon, shown.delta, shown.planned)}
{figure_item("best guess", promise.claim.best_guess, "of an attacker who knows everybody else; 50 % is pure chance")}
{crowd_item(shown.result.users, shown.least)}
{figure_item("rounds", f"{shown.result.rounds:,}", "each person in " + ("all of them" if shown.full else "one at most"))}
{figure_item("bits", f"{shown.result.bits_per_user:,}", "sent by a person, at most: " + bytes_text(shown.result.bits_per_user))}
</ul>"""


def _if_watched(promise: words.PromiseWords) -> str:
    return f"\n<p>{unbroken(promise.if_watched)}</p>" if promise.watched else ""


def _how_good(comparison: Comparison | None) -> str:
    if comparison is None:
        return (
            '<h2>How good is it?</h2>\n<p class="note">Not reported: scores measured on private records would themselves leak '
            "information. Use <code>croupier evaluate --epsilon</code>, or <code>--data</code> with public data; then this page "
            "compares the model with one made without privacy.</p>"
        )
    names = list(comparison.methods[0].scores)
    extra = [
        column
        for column, used in (
            ("epsilon", any(method.epsilon is not None for method in comparison.methods)),
            ("must trust", True),
            ("bits per person", any(method.bits_per_user is not None for method in comparison.methods)),
            ("seconds", any(method.seconds is not None for method in comparison.methods)),
        )
        if used
    ]
    rows = []
    for method in comparison.methods:
        cells = _cells(method)
        rows.append((escape(method.name), {name: cells[name] for name in (*names, *extra)}, method.kind == "ours"))
    note = f" {escape(comparison.note)}" if comparison.note else ""
    return (
        f"<h2>How good is it?</h2>\n<p>On {comparison.rows:,} rows that were declared public for this comparison.{note}</p>\n"
        f"{wide_table('method', rows, left=('must trust',))}"
    )


def _cells(method: Method) -> dict[str, str]:
    return {name: score_text(name, value) for name, value in method.scores.items()} | {
        "epsilon": "-" if method.epsilon is None else round_up(method.epsilon),
        "must trust": escape(method.trust),
        "bits per person": "-" if method.bits_per_user is None else f"{method.bits_per_user:,}",
        "seconds": "-" if method.seconds is None else f"{method.seconds:.1f}",
    }


def _training(shown: _Shown, comparison: Comparison | None) -> str:
    figures = [gradient_figure(shown.result), distance_figure(shown.result, shown.radius)]
    if comparison is not None and comparison.course:
        figures.append(course_figure(comparison))
    which = "The first two figures are" if len(figures) > 2 else "Both figures are"
    covered = ", which the promise covers" if shown.guarantee else ""
    return f"<h2>How training went</h2>\n<p>{which} drawn from what the analyzer saw{covered}.</p>\n" + "\n".join(figures)


def _noise(shown: _Shown) -> str:
    plan = shown.last.plan
    base, alone = central(plan), local(alone_request(shown.last, shown.epsilon))
    ways = [
        (base.name, base.noise_std, base.trust),
        ("shuffled", plan.noise_std, "a shuffler"),
        (alone.name, alone.noise_std, "nobody"),
    ]
    most = max(noise for _, noise, _ in ways)
    items = []
    for name, noise, trust in ways:
        times = "" if noise == base.noise_std else f", {noise / base.noise_std:.3g} times the curator's"
        items.append(
            f"<li{ours_class(name == 'shuffled')}><b>{escape(name)}</b>: {noise:.4g}{times}; must trust {escape(trust)}"
            f'<span class="bar" style="width:{max(0.4, 100 * noise / most):.2f}%"></span></li>'
        )
    return f"""<h2>What it costs not to trust a curator</h2>
<p>The same promise can be kept by a curator who sees all the data and adds Gaussian noise, by a shuffler that sees only mixed noisy
bits, or by each person alone. The noise in one coordinate of a round's sum of gradients, as a standard deviation:</p>
<ul class="scale">
{"".join(items)}
</ul>
<p>Each person sends {plan.bits_per_coordinate:,} bits per coordinate and {plan.bits_per_user:,} per round,
at most {shown.result.bits_per_user:,} in the whole training. A curator would be sent the record itself, and the local model
{64 * plan.dim:,} bits per round as numbers of 64 bits.</p>"""


def _trade_off(shown: _Shown, comparison: Comparison | None) -> str:
    plans = plans_over_epsilon(shown.last, shown.epsilon)
    figures = []
    if len(plans) > 1:
        figures = [
            noise_figure(shown.epsilon, plans, shown.last),
            bits_figure(shown.epsilon, plans, shown.last.rounds if shown.full else 1, shown.result.bits_per_user),
        ]
    if comparison is not None and comparison.sweep:
        figures.append(sweep_figure(shown.epsilon, comparison))
    if not figures:
        return ""
    return (
        "<h2>With another epsilon</h2>\n<p>The same rounds with the same people, planned for another promise. Noise and bits "
        f"follow from public facts, not from the data.</p>\n{''.join(figures)}"
    )


def _assumed(shown: _Shown) -> str:
    items = [
        f"<b>The shuffler.</b> {escape(words.SHUFFLER)}",
        *([f"<b>The lots.</b> {escape(words.LOTS)}"] if shown.promise.watched else []),
        f"<b>The others.</b> {unbroken(shown.promise.crowd)}",
        "<b>A person</b> is one row, or all rows declared to be theirs. For someone who is in the data "
        "under two names, epsilon doubles, and delta grows.",
        f"<b>The records.</b> {escape(words.of_records(shown.invalid))}",
        f"<b>The machines.</b> {escape(words.MACHINES)}",
        "<b>The public facts</b> below were chosen without looking at the data"
        + (", except for those named at the top." if shown.not_covered else "."),
        f"<b>Once.</b> {escape(words.ONCE)}",
    ]
    return "<h2>Assumptions</h2>\n<ul>\n" + "\n".join(f"<li>{item}</li>" for item in items) + "\n</ul>"


def _details(shown: _Shown) -> str:
    result, plan, guarantee = shown.result, shown.last.plan, shown.planned
    bound = "none" if result.bound is None else f"expected excess {result.schedule.bound_on} loss at most {result.bound:.4g}"
    certified = words.certified_line(guarantee, shown.epsilon, shown.delta)
    facts = {
        "method": f"{result.method}, {result.schedule.interactivity} interactivity; {result.schedule.why}",
        "rounds": ", then ".join(_rounds(phase) for phase in result.schedule.phases),
        "gradients": f"{plan.dim:,} coordinates, clipped to length {plan.norm:.4g}",
        "message": f"{plan.levels:,} levels and {plan.noise_bits:,} noise bits of probability {plan.noise_probability:.4g} per "
        f"coordinate",
        "calibration": f"{plan.calibration}, by {guarantee.theorem}",
        "certified": certified if shown.guarantee else "none: not private",
        "bound on the loss": bound,
    }
    public = {name.replace("_", " "): value_text(value) for name, value in shown.parameters.items() if value is not None} | dict(
        shown.facts
    )
    parts = ["<h2>Treated as public</h2>", facts_table(public)] if public else []
    return "\n".join([*parts, "<h2>How it was made</h2>", facts_table(facts)])


def _rounds(phase: Phase) -> str:
    who = "people" if phase.lots is None else "reports, blanks included, by secret lots"
    return f"{phase.rounds:,} of {phase.batch:,} {who}"
