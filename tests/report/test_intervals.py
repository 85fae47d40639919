"""The report of regressions with intervals, and `croupier show` of them: every figure of the summary, and no others."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

from croupier import ArgumentError
from croupier.cli.app import app
from croupier.estimator import ShuffleLinearRegression, ShuffleLogisticRegression, ShuffleLogit
from croupier.report import html_report
from croupier.report._intervals import _effects, summaries_of


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(8_000, 2)) / 1.5
    return X, rng.random(8_000) < 1 / (1 + np.exp(-3 * X[:, 0])), 50 + 30 * X[:, 0] + rng.normal(scale=5, size=8_000)


@pytest.fixture(scope="module")
def models(people):
    X, label, target = people
    ranges = [(0.0, 100.0), (0.0, 200.0)]
    return [
        ShuffleLogit(epsilon=4.0, classes=[False, True], method="moments", random_state=1).fit(X, label),
        ShuffleLinearRegression(epsilon=4.0, target_range=(0, 100), method="moments", random_state=1).fit(X, target),
        ShuffleLinearRegression(epsilon=4.0, target_range=ranges, random_state=1).fit(X, np.column_stack([target, 2 * target])),
    ]


@pytest.mark.parametrize("which", [0, 1, 2])
def test_the_page_has_every_coefficient_and_its_interval(models, which):
    model = models[which]
    page, tables = html_report(model, title="Ours & theirs"), summaries_of(model)
    assert len(tables) == (2 if which == 2 else 1)
    assert page.count("<svg") == len(tables)
    assert "Ours &amp; theirs" in page
    for table in tables:
        for coef, std in zip(table.coef, table.std, strict=True):
            assert f">{coef:.4g}<" in page
            assert f">{std:.3g}<" in page
    assert page.count('class="dot main"') == 2 * len(tables)  # the intercept is in the table alone
    assert ("log-odds of True" in page) == (which == 0)
    assert "http" not in re.sub(r"http://www.w3.org\S*", "", page)


@pytest.mark.parametrize("epsilon", [0.05, 0.01])  # with 0.01 nothing is seen, not even the intercept
def test_what_cannot_be_told_is_said_and_not_drawn(people, epsilon):
    X, label, _ = people
    # what a seed's noise shows differs between processors, by the last bits of a plan: the first seed that shows nothing
    fits = (ShuffleLogit(epsilon=epsilon, classes=[False, True], random_state=seed).fit(X / 20, label) for seed in range(1, 9))
    model = next(fitted for fitted in fits if not fitted.summary().determined[:2].any())
    page = html_report(model)
    assert "there is nothing to draw" in page
    assert page.count("-∞ to ∞") == (~model.summary().determined).sum()  # with the intercept, or without
    assert "The data do not decide" in page
    bounded = html_report(model.set_params(coef_bound=5.0))
    assert "∞" not in bounded
    assert "<svg" in bounded
    assert "coef" in str(model.summary())


def test_a_seeded_model_is_marked_and_public_rows_are_compared_on(people, models):
    X, label, target = people
    assert "NOT PRIVATE" in html_report(ShuffleLogit(classes=[False, True], random_state=1).fit(X, label))
    private = ShuffleLogit(epsilon=4.0, classes=[False, True], method="moments").fit(X, label)
    page = html_report(private, X=X, y=label, data_is_public=True)
    assert "without privacy" in page
    assert "except for the comparison on data declared public" in page
    with pytest.raises(ArgumentError, match="data_is_public"):
        html_report(models[0], X=X, y=label)
    with pytest.raises(ArgumentError, match="several targets"):
        html_report(models[2], X=X, y=target, data_is_public=True)


def test_show_prints_the_table_and_the_promise(people, models, tmp_path):
    path = tmp_path / "model.json"
    models[0].save(path)
    shown = CliRunner().invoke(app, ["show", str(path)])
    assert shown.exit_code == 0
    assert str(models[0].summary()) in shown.output
    assert "Assumptions about the shuffler" in shown.output
    found = json.loads(CliRunner().invoke(app, ["show", str(path), "--json"]).output)
    assert [row["name"] for row in found["coefficients"][0]["rows"]] == ["x0", "x1", "(intercept)"]
    assert found["coefficients"][0]["rows"][0]["coef"] == pytest.approx(models[0].coef_[0, 0])
    assert CliRunner().invoke(app, ["report", str(path), "-o", str(tmp_path / "page.html")]).exit_code == 0
    X, label, _ = people
    ShuffleLogisticRegression(classes=[False, True], rounds=3).fit(X, label).save(path)
    plain = CliRunner().invoke(app, ["show", str(path)])
    assert plain.exit_code == 0
    assert "coefficients and intercept estimate" in plain.output


def test_the_crowd_is_that_of_a_round_and_not_of_all(models, people):
    """Who answers in a group, or in a round of one's own, is hidden by those in it alone."""
    X, label, _ = people
    groups, once = html_report(models[0]), html_report(models[1])
    assert "in all; at least 2,000 whose answers are mixed together" in groups
    assert "<b>8,000</b><span>whose answers are mixed together" in once
    trained = ShuffleLogisticRegression(classes=[False, True], lots="open").fit(X, label)
    least = min(trained.result_.batch_sizes)
    assert f"in all; at least {least:,} whose answers are mixed together" in html_report(trained)
    full = ShuffleLogisticRegression(classes=[False, True], interactivity="full").fit(X, label)
    assert "<b>8,000</b><span>whose answers are mixed together" in html_report(full)


def test_effects_are_drawn_per_half_range_and_the_table_keeps_units(people):
    X, _, target = people
    ranges = [(-1.0, 1.0), (-1000.0, 1000.0)]
    model = ShuffleLinearRegression(epsilon=4.0, target_range=(0, 100), feature_range=ranges, method="moments")
    model.fit(X * [1.0, 1000.0], target)
    table = model.summary()
    effects, step = _effects(model, table, 0, given=False)
    np.testing.assert_allclose(effects.coef, table.coef * [1.0, 1000.0, 1.0])
    np.testing.assert_allclose(effects.intervals, table.intervals * np.array([[1.0], [1000.0], [1.0]]))
    assert "middle to the end" in step
    page = html_report(model)
    assert step in page
    assert f">{table.coef[1]:.4g}<" in page
    in_units, _ = _effects(model, table, 0, given=True)  # of a schema: the model's own rows are what is drawn
    np.testing.assert_allclose(in_units.coef, table.coef)
