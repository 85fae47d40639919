"""The report as a reader meets it: well-formed, alone, harmless, with the model's own figures, and silent about private people."""

from __future__ import annotations

import dataclasses
import math
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from scipy.stats import chi2

import croupier as cr
from croupier.estimator import ShuffleLinearSVC, ShuffleLogisticRegression, ShuffleQuantileRegressor, ShuffleRidge, ShuffleScaler
from croupier.optimizer.training import noise_norms
from croupier.privacy._statements import RECORDS, round_up
from croupier.report import compare, html_report
from croupier.report._svg import Axis, Figure, number, thinned
from croupier.report.compare import Comparison, Method
from croupier.report.html import bits_figure, distance_figure, plans_over_epsilon

VOID = {"meta", "br", "link", "img", "input", "hr"}


class Page(HTMLParser):
    """Tags that are open and shut in order, the text outside of style, and what is referred to."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.text += data

    @property
    def words(self) -> str:
        return " ".join(self.text.split())


def people(users=3000, seed=0):
    X = np.random.default_rng(seed).normal(size=(users, 3)) / 3
    return X, np.where(X[:, 0] + 0.1 * X[:, 1] > 0, "yes", "no")


@pytest.fixture(scope="module")
def model():
    return ShuffleLogisticRegression(epsilon=1.0, classes=["no", "yes"]).fit(*people())


@pytest.fixture(scope="module")
def public(model):
    X, y = people()
    return html_report(model, X=X, y=y, data_is_public=True, epsilons=(0.5, 4.0), title="Public people")


@pytest.mark.parametrize("which", ["private", "public"])
def test_well_formed_and_alone(which, model, public):
    text = public if which == "public" else html_report(model)
    page = Page(text)
    assert page.open == []
    assert text.startswith("<!DOCTYPE html>")
    assert not re.search(r"https?:|//|url\(|@import|<script|<link|<img|<iframe", text)
    assert not [attrs for _, attrs in page.seen if {"src", "href"} & set(attrs)]
    assert "$" not in page.text
    assert "nan" not in page.words.lower().split()
    ids = [attrs["id"] for _, attrs in page.seen if "id" in attrs]
    assert len(ids) == len(set(ids))


def test_every_figure_has_a_role_a_title_and_a_description(public):
    page = Page(public)
    figures = [attrs for tag, attrs in page.seen if tag == "svg"]
    assert len(figures) == 7
    ids = {attrs["id"] for tag, attrs in page.seen if tag in ("title", "desc") and "id" in attrs}
    for figure in figures:
        assert figure["role"] == "img"
        assert set(figure["aria-labelledby"].split()) <= ids
    assert "prefers-color-scheme: dark" in public
    assert "@media print" in public


def test_nothing_is_wider_than_a_phone(public):
    page = Page(public)
    for tag, attrs in page.seen:
        assert "width" not in attrs or tag == "rect"  # a mark inside a figure, which scales
        for width in re.findall(r"width:\s*([\d.]+)(\S*?)[;\"]", (attrs.get("style") or "") + ";"):
            assert width[1] == "%"
            assert float(width[0]) <= 100
    style = public.split("<style>")[1].split("</style>")[0]
    for value, unit in re.findall(r"[{;\s](?:min-)?width:\s*([\d.]+)(px|rem|em|ch|%)", style):
        assert unit == "%" or float(value) <= 2
        assert unit != "%" or float(value) <= 100
    assert "width=device-width" in public


def test_figures_are_those_of_the_guarantee_rounded_up(model):
    words = Page(html_report(model)).words
    guarantee, plan = model.guarantee_, model.schedule_.phases[-1].plan
    assert f"epsilon = {round_up(model.epsilon)}" in words
    assert f"delta = {round_up(1e-6)}" in words
    assert "1 in 1,000,000" in words
    assert f"{round_up(50 * (1 + guarantee.delta(0.0)), 3)} %" in words
    assert f"factor of at most {round_up(math.e, 3)}" in words
    assert "(1, 1e-06)-differentially private for replace-one neighbours" in words
    assert guarantee.delta(1.0) <= 1e-6
    (lots,) = guarantee.allocations
    assert f"(mu = {round_up(lots.mu)} in one of {lots.rounds} secret rounds, slack = {round_up(guarantee.slack)})" in words
    assert f"it is epsilon {round_up(guarantee.if_watched.epsilon(1e-6))} at delta 1e-06" in words
    assert f"{model.schedule_.bits_per_user:,} in the whole training" in words
    assert f"{plan.noise_std:.4g}" in words
    assert f"{plan.central_noise_std:.4g}" in words
    assert "NOT PRIVATE" not in words


def test_a_factor_and_an_epsilon_are_never_rounded_down():
    X, y = people()
    words = Page(html_report(ShuffleLogisticRegression(epsilon=0.123456, delta=1.23456e-7, classes=["no", "yes"]).fit(X, y))).words
    assert "epsilon = 0.1235" in words
    assert "delta = 1.235e-07 " in words
    assert "1 in 8,097,165" in words
    assert "1.14 (e^epsilon)," in words  # e^0.123456 = 1.1314


def test_no_word_on_accuracy_of_private_people(model):
    text = html_report(model)
    words = Page(text).words.lower()
    for word in ("accuracy", "log-loss", "without privacy (", "logisticregression, fitted"):
        assert word not in words
    assert 'id="course-title"' not in text
    assert 'id="sweep-title"' not in text


@pytest.mark.parametrize("value", [False, 1, "yes", None])
def test_scores_need_a_declaration(model, value):
    X, y = people()
    made = Comparison("accuracy", 1, (Method("this model", {"accuracy": 0.5}),))
    for given in ({"X": X, "y": y}, {"X": X}, {"comparison": made}):
        with pytest.raises(cr.ArgumentError, match="data_is_public"):
            html_report(model, data_is_public=value, **given)


def test_public_data_brings_a_comparison(model, public):
    words = Page(public).words
    X, y = people()
    made = compare(model, X, y)
    none, plain, ours = (method.scores for method in made.methods)
    assert none["accuracy"] < ours["accuracy"] <= plain["accuracy"] + 0.02
    assert none["log-loss"] == pytest.approx(math.log(2), abs=0.01)
    for method in made.methods:
        assert f"{100 * method.scores['accuracy']:.2f} %" in words
    assert "except for the comparison on data declared public" in words
    assert [index for index, _ in made.course][-1] == model.result_.rounds


def test_declared_public_data_that_is_not_given_changes_nothing(model):
    assert html_report(model, data_is_public=True) == html_report(model)


def test_what_comes_from_data_is_escaped():
    X, y = people()
    bad = "<script>alert('&')</script>"
    model = ShuffleLogisticRegression(classes=[bad, "no"]).fit(X, np.where(y == "no", "no", bad))
    text = html_report(
        model, X=X, y=np.where(y == "no", "no", bad), data_is_public=True, title=bad, public_facts={bad: f"$x {bad}", '"': "<b>"}
    )
    assert "<script" not in text
    page = Page(text)
    assert page.open == []
    assert page.words.count(bad) >= 4
    assert "$x" in page.words
    odd = Comparison(bad, 1, (Method(bad, {bad: 0.5}, trust=bad, kind="reference"),), course=((1, 0.5),), note=bad)
    assert "<script" not in html_report(model, comparison=odd, data_is_public=True)


def test_a_seeded_model_says_first_of_all_that_it_is_not_private():
    X, y = people()
    page = Page(html_report(ShuffleLogisticRegression(classes=["no", "yes"], random_state=0).fit(X, y)))
    assert page.words.index("NOT PRIVATE") < page.words.index("The promise")
    assert "It promises" not in page.words
    assert "none: not private" in page.words
    assert "treat this page like the data" in page.words


@pytest.mark.filterwarnings("ignore::croupier.estimator.PublicDataWarning")
def test_facts_read_off_the_data_are_named_at_the_top():
    X, y = people()
    words = Page(html_report(ShuffleLogisticRegression(data_is_public=True).fit(X, y))).words
    assert words.index("NOT COVERED: classes") < words.index("The promise")


@pytest.mark.filterwarnings("ignore::croupier.estimator.MostlyNoiseWarning")
@pytest.mark.parametrize(
    "made",
    [
        ShuffleLinearSVC(classes=["no", "yes"], interactivity="full", rounds=3),
        ShuffleLogisticRegression(classes=["no", "yes", "maybe"], honest=0.5, calibration="tight"),
        ShuffleLogisticRegression(classes=["no", "yes"], neighbours="zero-out", rounds=1, epsilon=12.0),
        ShuffleLogisticRegression(classes=["no", "yes"], rule="bound", l2=0.1),
    ],
)
@pytest.mark.filterwarnings("ignore::croupier.estimator.WeakPrivacyWarning")
def test_every_kind_of_classifier_has_a_page(made):
    X, y = people()
    made.fit(X, y)
    page = Page(html_report(made, X=X, y=y, data_is_public=True))
    assert page.open == []
    assert f"{made.schedule_.bits_per_user:,}" in page.words
    assert made.honest == 1 or "At least 50 % of all people" in page.words


@pytest.mark.parametrize("kind", [ShuffleRidge, ShuffleQuantileRegressor])
def test_regressors_are_judged_in_the_target_s_unit(kind):
    X, _ = people()
    y = 50 + 30 * X[:, 0]
    words = Page(html_report(kind(target_range=(0, 100), epsilon=4.0).fit(X, y), X=X, y=y, data_is_public=True)).words
    assert "mean absolute error" in words
    assert "accuracy" not in words


def test_data_frames_with_names_give_no_warning():
    pandas = pytest.importorskip("pandas")
    X, y = people()
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    model = ShuffleLogisticRegression(classes=["no", "yes"]).fit(frame, y)
    ours = compare(model, frame[["c", "b", "a"]], y).methods[-1]
    assert ours.scores["accuracy"] == compare(model, X, y).methods[-1].scores["accuracy"]


def test_a_result_has_a_page_and_no_scores():
    X, y = people()
    problem = cr.Problem(loss=cr.losses.Logistic(), domain=cr.domains.Ball(dim=3, radius=5.0), feature_norm=1.0)
    result = cr.minimize(problem, (X, y == "yes"), epsilon=0.7, delta=1e-6, honest=0.9)
    words = Page(html_report(result)).words
    assert "epsilon = 0.7" in words
    assert "At least 90 % of all people" in words
    with pytest.raises(cr.ArgumentError, match="cannot predict"):
        html_report(result, X=X, y=y, data_is_public=True)


def test_what_has_no_training_is_refused():
    X, _ = people()
    for other in (ShuffleScaler(feature_range=(-3, 3)).fit(X), ShuffleLogisticRegression(), None):
        with pytest.raises(cr.ArgumentError, match="a fitted classifier or regressor"):
            html_report(other)


@pytest.mark.parametrize("invalid", ["refuse", "blank"])
def test_what_is_assumed_of_records_stands_among_the_assumptions(invalid):
    made = ShuffleLogisticRegression(classes=["no", "yes"], invalid=invalid).fit(*people())
    text = Page(html_report(made)).words
    said = RECORDS[invalid].removeprefix("Assumptions about the records: ")
    assert f"The records. {said[0].upper()}{said[1:]}" in text
    assert made.explain().count(RECORDS[invalid]) == 1
    assert "The records. If others can see a refusal" in Page(html_report(made.result_)).words  # a result does not say


def test_a_stopped_run_says_so():
    def stop(done):
        if done.index == 3:
            raise cr.optimizer.StopTraining

    model = ShuffleLogisticRegression(classes=["no", "yes"], callbacks=(stop,)).fit(*people())
    assert f"3 rounds of {model.schedule_.rounds:,} planned" in Page(html_report(model)).words


def test_a_run_of_one_round_is_not_said_to_have_several():
    made = ShuffleLogisticRegression(classes=["no", "yes"], rounds=1).fit(*people())
    words = Page(html_report(made)).words
    assert "in 1 round." in words
    assert "of 1 round lie" in words
    assert "1 rounds" not in words


def test_the_band_holds_what_noise_alone_gives():
    """200 rounds of people who send zero: about 95 % of the lengths lie in the band."""
    plan = cr.plan_sum(epsilon=1.0, delta=1e-6, users=400, dim=5)
    low, high = noise_norms(plan, 400)
    protocol = cr.VectorSum(plan)
    lengths = [float(np.linalg.norm(protocol.run(np.zeros((400, 5))).mean)) for _ in range(200)]
    inside = sum(low <= length <= high for length in lengths)
    assert inside >= 170  # 190 expected; below 170 has probability 1e-8
    assert low == pytest.approx(plan.noise_std / 400 * math.sqrt(chi2.ppf(0.025, 5)))


def test_plans_over_epsilon_keep_everything_else_and_leave_out_what_cannot_be_proved():
    plan = cr.plan_sum(epsilon=1.0, delta=1e-6, users=500, dim=3, rounds=2)
    phase = ShuffleLogisticRegression(classes=[0, 1], lots="open").plan(500, 2).phases[0]
    plans = plans_over_epsilon(dataclasses.replace(phase, plan=plan), 1.0)
    assert plans[1.0] is plan
    assert list(plans) == sorted(plans)
    noises = [made.noise_std for made in plans.values()]
    assert noises == sorted(noises, reverse=True)
    assert {(made.users, made.dim, made.rounds) for made in plans.values()} == {(500, 3, 2)}
    paper = cr.plan_sum(epsilon=1.0, delta=1e-6, users=500, dim=3, calibration="paper")
    assert 1.0 in plans_over_epsilon(dataclasses.replace(phase, plan=paper), 1.0)
    lots = ShuffleLogisticRegression(classes=[0, 1], rounds=5).plan(500, 2).phases[0]
    noises = [made.noise_std for made in plans_over_epsilon(lots, 1.0).values()]
    assert len(noises) > 3
    assert noises == sorted(noises, reverse=True)


def test_the_chart_of_bits_says_that_it_is_of_gradients_where_other_rounds_take_more():
    plans = {epsilon: cr.plan_sum(epsilon=epsilon, delta=1e-6, users=1_000, dim=3, norm=1.0) for epsilon in (0.5, 1.0)}
    bits = plans[1.0].bits_per_user
    assert "at most" not in bits_figure(1.0, plans, 1, bits)
    assert f"a person sends at most {bits + 1_000:,} bits" in bits_figure(1.0, plans, 1, bits + 1_000)


def test_axes_have_round_ticks_inside():
    for low, high in ((0.0, 1.0), (0.76, 0.9), (3.0, 7e5), (1e-9, 2e-9)):
        axis = Axis.over("", [low, high])
        assert 3 <= len(axis.ticks) <= 7
        assert all(axis.low <= tick <= axis.high for tick in axis.ticks)
        log = Axis.over("", [max(low, 1e-3), high], log=True) if high > 1e-3 else axis
        assert 2 <= len(log.ticks) <= 8
        assert all(0 <= log.place(tick) <= 1 for tick in log.ticks)
    assert Axis.over("", [5.0, 5.0]).ticks


def test_long_runs_are_thinned_and_stay_small():
    xs = [float(i) for i in range(10_000)]
    some, means = thinned(xs, xs)
    assert len(some) <= 240
    assert some == means
    assert means[0] == np.mean(range(math.ceil(10_000 / 240)))
    figure = Figure("a", "b", "c", Axis.over("", xs), Axis.over("", xs))
    figure.band(xs, xs, xs)
    figure.line(xs, xs)
    assert len(figure.render()) < 20_000


def test_one_round_and_a_still_model_can_be_drawn():
    model = ShuffleLogisticRegression(classes=["no", "yes"], rounds=1, interactivity="full").fit(*people())
    still = replace(model.result_, theta=model.result_.start)
    assert Page(html_report(still)).open == []


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0"), (0.05, "0.05"), (1000.0, "1,000"), (1e6, "1,000,000"), (1e-9, "1e-09"), (3e8, "3e+08")]
)
def test_numbers_are_for_people(value, text):
    assert number(value) == text


@pytest.mark.parametrize("factor", [1.02, 4.0])
def test_the_radius_is_a_line_where_weights_come_near_it(model, factor):
    """Of two models with the same weights, one of which had much more room."""
    moved = float(np.linalg.norm(model.result_.theta))
    figure = distance_figure(model.result_, factor * max(moved, *(float(np.linalg.norm(r.theta)) for r in model.result_.history)))
    assert ("(limit)" in figure) is (factor < 2)
    assert ("suggests a larger one" in figure) is (factor < 2)


def test_a_page_knows_the_radius_of_its_model():
    X = np.random.default_rng(0).normal(size=(4000, 3)) / 3
    pressed = ShuffleLogisticRegression(classes=[0, 1, 2], radius=0.1, random_state=0).fit(
        X, (X[:, 0] > 0) + (X[:, 1] > 0).astype(int)
    )
    assert "radius 0.173 (limit)" in html_report(pressed)  # 0.1 in root mean square over three classes


def test_both_figures_of_secret_lots_stand_on_one_card(model):
    text, known = html_report(model), round_up(model.guarantee_.if_watched.epsilon(1e-6))
    card = text.split('<li class="two">')[1].split("</li>")[0]
    assert re.findall("<b>(.*?)</b>", card) == [round_up(1.0), known]
    assert float(known) > 1
    X, y = people()
    opened = html_report(ShuffleLogisticRegression(classes=["no", "yes"], lots="open", rounds=2).fit(X, y))
    assert 'class="two"' not in opened
    assert "if watched" not in opened


def test_a_default_fit_shows_its_coefficients(model):
    section = html_report(model).split("<h2>Coefficients</h2>")[1].split("</section>")[0]
    cells = re.findall(r'data-name="coefficient, towards yes">(.*?)</td>', section)
    assert cells == [f"{value:.4g}" for value in (*model.coef_[0], model.intercept_[0])]
    assert "Classes are sorted: no, yes. A positive coefficient speaks for yes, a negative one for no." in section
    assert section.count('class="bar"') == 3
    assert section.count("no error bars") == 1
    assert f"to the right it makes {model.classes_[1]} more likely, to the left {model.classes_[0]}." in section
    X, y = people()
    three = ShuffleLogisticRegression(classes=["no", "yes", "so"], rounds=2).fit(X, y)
    section = html_report(three).split("<h2>Coefficients</h2>")[1].split("</section>")[0]
    most = int(np.argmax(three.coef_[:, 0]))
    assert f"{three.classes_[most]} ({three.coef_[most, 0]:+.3g})" in section
    assert "Classes are sorted: no, so, yes. Each class has its own coefficients" in section
    assert "<svg" not in section
