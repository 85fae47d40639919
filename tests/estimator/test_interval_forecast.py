"""Intervals that are never blank: a forecast before anybody is asked, infinite ends where nothing is known, and declared bounds."""

from __future__ import annotations

import json
import math
import warnings

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import binom
from typer.testing import CliRunner

import croupier as cr
from benchmarks.surrogate import SurrogatePopulation
from croupier.cli.app import app
from croupier.cli.terminal import Stopped
from croupier.estimator import PrivacyAccount, ShuffleLinearRegression, ShuffleLogit, WideIntervalsWarning, load_model
from croupier.statistics import Moments
from croupier.statistics.asking import plan_for
from croupier.statistics.moments import MomentSums, least_squares

KINDS = {"linear": {"target_range": (-1, 1), "feature_norm": 1.0}, "logit": {"classes": [False, True], "feature_norm": 1.0}}


def model_from_dict(kind, **options):
    return {"linear": ShuffleLinearRegression, "logit": ShuffleLogit}[kind](**KINDS[kind] | {"method": "moments"} | options)


def columns_of(rng, kind, users, features):
    """Rows of length below 1: independent, one pair that goes together, a common factor, or a column that hardly varies."""
    X = rng.uniform(-1, 1, size=(users, features)) / math.sqrt(features)
    if kind == "pair":
        X[:, 1] = 0.9 * X[:, 0] + 0.1 * X[:, 1]
    elif kind == "factor":
        X = 0.8 * X[:, :1] + 0.2 * X
    elif kind == "still":
        X[:, 0] /= 20
    return X


def noisy_moments(rng, X, y, epsilon):
    """One round's moments of rows with a constant, the plan's noise as Gaussian: what `Moments.decode` would read."""
    users, columns = X.shape[0], X.shape[1] + 1
    query = Moments(columns)
    plan = plan_for(query, users, epsilon=epsilon, delta=1e-6)
    blank = query.decode(cr.SumEstimate(sum=np.zeros(query.dim), users=users, noise_std=plan.noise_std, guarantee=None))
    rows = np.column_stack([X, np.ones(users)]) / math.sqrt(2)
    noise = np.triu(rng.normal(size=(columns, columns)) * np.sqrt(blank.matrix_variance))
    return MomentSums(
        rows.T @ rows / users + noise + np.triu(noise, 1).T,
        blank.matrix_variance,
        (rows.T @ y / users + rng.normal(size=columns) * blank.products_std)[:, np.newaxis],
        blank.products_std,
        np.array([np.mean(y**2) + rng.normal() * blank.squares_std]),
        blank.squares_std,
        users,
    )


@pytest.mark.parametrize("kind", ["linear", "logit"])
def test_sixty_people_are_warned_about_before_anything_is_spent(kind):
    rng, account = np.random.default_rng(0), PrivacyAccount()
    X, y = rng.uniform(-0.5, 0.5, size=(60, 3)), rng.random(60) < 0.5
    with pytest.warns(WideIntervalsWarning, match="60 people, 3 columns and epsilon 1: the noise hides every slope"):
        model_from_dict(kind).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(WideIntervalsWarning):
            model_from_dict(kind, account=account).fit(X, y)
    assert not account.fits
    assert model_from_dict(kind).forecast(60, 3).useless
    assert not model_from_dict(kind).forecast(20_000, 3).useless
    assert model_from_dict(kind).forecast(60, 3).to_dict()["half_width"] is None
    for wrong in ({"users": 1, "features": 3}, {"users": 900, "features": 0}):
        with pytest.raises(cr.ArgumentError, match="users = 1" if wrong["users"] == 1 else "features"):
            model_from_dict(kind).forecast(**wrong)


def test_explain_has_the_forecast():
    X = np.random.default_rng(0).uniform(-0.5, 0.5, size=(3_000, 3))
    for kind in KINDS:
        model = model_from_dict(kind, random_state=0)
        assert "forecast(users, features)" in model.explain()
        model.fit_population(SurrogatePopulation(*model.records(X, X[:, 0] > 0)), 3)
        assert str(model.forecast(3_000, 3)) in model.explain()


def test_a_forecast_says_what_it_assumes_and_what_the_other_method_would_give():
    options = {"target_range": (0, 100), "feature_norm": 1.0, "random_state": 0}
    auto = ShuffleLinearRegression(**options)
    chosen = auto.forecast(20_000, 3)
    other = ShuffleLinearRegression(method="rounds", **options).forecast(20_000, 3)
    assert chosen.method == "moments"
    assert chosen.other_half_width == pytest.approx(other.half_width, rel=0.05)  # chosen by a figure that takes no plan
    assert chosen.to_dict()["other_half_width"] == chosen.other_half_width
    assert "Residuals are assumed to have a standard deviation of 20 % of the target's range" in str(chosen)
    assert 'takes "moments", whose forecast is narrower; that of "rounds" is about +- ' in str(chosen)
    assert 'if yours are small, take the method "rounds"' in str(chosen)
    assert 'method="auto"' not in str(other)
    X = np.random.default_rng(0).uniform(-0.5, 0.5, size=(20_000, 3))
    fitted = auto.fit(X, 50 + 30 * X[:, 0])
    assert str(chosen) in fitted.explain()
    assert str(chosen) in fitted.set_params(epsilon=5.0).explain()  # by what was promised
    assert "epsilon 5:" in str(fitted.forecast(20_000, 3))
    named = ShuffleLinearRegression(method="rounds", **options).fit(X, 50 + 30 * X[:, 0])
    assert 'Asked by the method "rounds".' in named.explain()
    wide = ShuffleLinearRegression(**options).forecast(15_000, 30)
    assert 'takes "rounds", whose forecast is narrower; that of "moments" is infinite' in str(wide)
    assert wide.to_dict()["other_half_width"] is None
    logit = ShuffleLogit(classes=[False, True], feature_norm=1.0).forecast(20_000, 3)
    assert "in log-odds." in str(logit).partition('The method "auto" takes')[2]


@pytest.mark.parametrize(("features", "users", "epsilon"), [(3, 2_000, 0.5), (10, 5_000, 1.0), (10, 20_000, 1.0), (20, 5_000, 4.0)])
def test_the_forecast_is_what_is_measured(features, users, epsilon):
    """Fixed seeds. The median half-width was within 8 % of the forecast; a figure off by a constant of 1.3 fails."""
    rng, widths = np.random.default_rng(features), []
    for _ in range(8):
        X = columns_of(rng, "even", users, features)
        coef = rng.normal(size=features)
        coef *= math.sqrt(features / 2) / np.linalg.norm(coef)  # half of a variance of 1/3
        y = X @ coef + rng.uniform(-1, 1, size=users) * math.sqrt(0.5)
        low, high = least_squares(noisy_moments(rng, X, y, epsilon)).intervals()[:-1].T
        widths += ((high - low) / 2 / math.sqrt(2 * features)).tolist()
    forecast = model_from_dict("linear", epsilon=epsilon).forecast(users, features)
    assert np.median(widths) == pytest.approx(forecast.half_width, rel=0.2)
    few = model_from_dict("linear", epsilon=epsilon).forecast(users // 10, features)
    assert few.useless
    assert few.least_spread > 1 > forecast.least_spread


@pytest.mark.parametrize(("users", "epsilon", "wider"), [(20_000, 1.0, 1.1), (5_000, 4.0, 1.3)])
def test_the_forecast_of_logistic_regression_is_what_is_measured(users, epsilon, wider):
    """Fixed seeds; too hopeful by up to 1.5 where slopes are only just decided, since earlier groups' noise is left out."""
    rng, widths = np.random.default_rng(5), []
    for seed in range(3):
        X = columns_of(rng, "even", users, 6)
        model = model_from_dict("logit", epsilon=epsilon, random_state=seed)
        model.fit_population(SurrogatePopulation(*model.records(X, rng.random(users) < expit(3 * X[:, 0]))), 6)
        widths += (np.diff(model.intervals()[:-1], axis=1)[:, 0] / 2 / math.sqrt(6)).tolist()
    ratio = np.median(widths) / model_from_dict("logit", epsilon=epsilon).forecast(users, 6).half_width
    assert 0.85 < ratio < wider


@pytest.mark.parametrize("kind", ["pair", "still"])
def test_one_hidden_direction_leaves_the_other_intervals_finite_and_covering(kind):
    """Per coefficient: two of ten columns, or one, are hidden, in every run; the others keep intervals that cover.

    95 % intervals of 60 runs hold fewer than 88 % of about 480 truths with probability below 1e-6.
    """
    rng, covered, hidden, decided = np.random.default_rng(11), [], 0, 0
    own = 2 if kind == "pair" else 1
    for _ in range(60):
        X = columns_of(rng, kind, 12_000, 10)
        coef = rng.normal(size=10) / 4
        y = np.clip(X @ coef + rng.normal(scale=0.2, size=len(X)), -1, 1)
        fit = least_squares(noisy_moments(rng, X, y, 1.0))
        low, high = fit.intervals().T
        truth = math.sqrt(2) * coef
        hidden += int(np.isinf(low[:own]).sum())
        decided += int(np.isfinite(low[own:10]).sum())
        covered += ((low[:10] <= truth) & (truth <= high[:10]))[fit.determined[:10]].tolist()
    assert hidden >= 57 * own  # a direction without data is taken for seen in 1 of 160
    assert decided > 0.8 * 60 * (10 - own)
    assert binom.cdf(math.floor(0.87 * len(covered)), len(covered), 0.95) < 1e-6
    assert np.mean(covered) > 0.87


@pytest.mark.parametrize("part", [0.1, 0.05, 0.02])
def test_a_column_that_goes_together_with_a_hidden_one_is_not_decided(part):
    """The second column is a small part of the first, and all that counts: the slope of the first is 0, and was never covered.

    Fixed seeds. A column that goes together with a hidden one was decided and missed in 24, 40 and 40 of 40 fits.
    """
    rng, missed = np.random.default_rng(13), 0
    for _ in range(40):
        first = rng.uniform(-1, 1, size=50_000)
        X = np.column_stack([first, part * first + rng.normal(scale=1e-3, size=len(first))]) / 1.1
        y = np.clip(0.5 / part * 1.1 * X[:, 1] + rng.normal(scale=0.1, size=len(first)), -1, 1)
        low, high = least_squares(noisy_moments(rng, X, y, 1.0)).intervals()[0]
        missed += not low <= 0 <= high
    assert missed <= 4


@pytest.mark.parametrize("kind", ["even", "pair", "factor", "still"])
@pytest.mark.parametrize("users", [60, 2_000, 12_000])
def test_with_a_declared_bound_all_intervals_are_finite_and_hold_the_truth(kind, users):
    """Truths anywhere within the bound: at random, at its corners, and along the direction that the noise hides most.

    Fixed seeds: none of them misses; more than 3 % would be unlike the 19 142 that were measured, none of which did.
    """
    rng, missed, open_ones, bound = np.random.default_rng(users), 0, 0, 1.5
    for run in range(15):
        X = columns_of(rng, kind, users, 8)
        weakest = np.linalg.eigh(X.T @ X)[1][:, 0]
        coef = [rng.uniform(-1, 1, size=8), rng.choice([-1.0, 1.0], size=8), weakest / np.abs(weakest).max()][run % 3] * bound
        y = X @ coef + rng.normal(scale=0.1, size=users)
        size = max(1.0, np.abs(y).max())
        bounds = math.sqrt(2) / size * np.append(np.full(8, bound), size + bound * math.sqrt(8))
        fit = least_squares(noisy_moments(rng, X, y / size, 1.0), bounds=bounds)
        low, high = fit.intervals().T
        assert np.isfinite([low, high]).all()
        assert (np.abs([low, high]) <= bounds + 1e-12)[:, ~fit.determined].all()
        truth = math.sqrt(2) / size * np.append(coef, 0.0)
        missed += int(((truth < low - 1e-12) | (truth > high + 1e-12))[~fit.determined].sum())
        open_ones += int((~fit.determined).sum())
    assert missed <= 0.03 * open_ones


@pytest.mark.parametrize("kind", ["even", "pair", "factor", "still"])
def test_with_a_declared_bound_logistic_intervals_are_finite_and_hold_the_truth(kind):
    """Fixed seeds; as above, in log-odds."""
    missed, bound = 0, 3.0
    for run, users in enumerate((60, 3_000, 12_000)):
        rng = np.random.default_rng(run)
        X, coef = columns_of(rng, kind, users, 5), rng.uniform(-bound, bound, size=5)
        y = rng.random(users) < expit(X @ coef + 0.3)
        model = model_from_dict("logit", random_state=run, coef_bound=bound)
        table = model.fit_population(SurrogatePopulation(*model.records(X, y)), 5).summary()
        assert np.isfinite(table.intervals).all()
        assert (np.abs(table.intervals)[~table.determined] <= bound + 1e-9).all()
        low, high = table.intervals.T
        truth = np.append(coef, 0.3)
        missed += int(((truth < low) | (truth > high))[~table.determined].sum())
    assert missed == 0


def test_a_bound_is_in_the_units_of_the_data_and_leaves_decided_coefficients_alone(tmp_path):
    """Two columns that are the same, beside one that is decided; targets in [0, 1000], rows of length up to 40."""
    rng = np.random.default_rng(2)
    X = 40 * columns_of(rng, "even", 6_000, 3)
    X[:, 1] = X[:, 0]
    y = 500 + 4 * X[:, 0] - 8 * X[:, 2] + rng.normal(scale=20, size=6_000)
    options = {"target_range": (0, 1_000), "feature_norm": 40.0, "epsilon": 4.0, "random_state": 0}
    plain = ShuffleLinearRegression(**options).fit(X, y)
    bounded = ShuffleLinearRegression(**options, coef_bound=15.0).fit(X, y)
    np.testing.assert_array_equal(bounded.coef_, plain.coef_)
    assert np.isinf(plain.intervals()[:2]).all()
    ends = bounded.intervals()
    assert np.isfinite(ends).all()
    assert (np.abs(ends[:2]) <= 15 + 1e-9).all()
    assert (ends[:2, 0] <= [4, 0]).all()
    assert (ends[:2, 1] >= [4, 0]).all()
    np.testing.assert_allclose(ends[2:], plain.intervals()[2:])
    bounded.save(tmp_path / "model.json")
    np.testing.assert_array_equal(load_model(tmp_path / "model.json").intervals(), ends)
    for bad in (0, -1, math.inf, math.nan, "5"):
        for kind in KINDS:
            with pytest.raises(cr.ArgumentError, match="coef_bound"):
                model_from_dict(kind, coef_bound=bad).fit(X, y > 500)


@pytest.mark.parametrize(
    ("task", "target"), [("linear", 'column = "y"\nrange = [0, 1]'), ("logit", 'column = "y"\nclasses = [0, 1]')]
)
def test_the_command_refuses_sixty_people_before_anything_is_spent(tmp_path, task, target):
    rng = np.random.default_rng(0)
    lines = [f"{a:.3f},{b:.3f},{int(a + b > 1)}" for a, b in rng.random((60, 2))]
    (tmp_path / "people.csv").write_text("\n".join(["a,b,y", *lines, ""]))
    (tmp_path / "schema.toml").write_text(f"[target]\n{target}\n[columns.a]\nlow = 0\nhigh = 1\n[columns.b]\nlow = 0\nhigh = 1\n")
    account, output = tmp_path / "account.jsonl", tmp_path / "model.json"

    def fit(*words):
        asked = [tmp_path / "people.csv", "--schema", tmp_path / "schema.toml", "--task", task, "--account", account, "-o", output]
        return CliRunner().invoke(app, ["fit", *map(str, asked), *words])

    refused = fit()
    assert isinstance(refused.exception, Stopped)
    assert refused.exception.code == 2
    assert "nothing was spent: Forecast for 60 people, 2 columns and epsilon 1" in str(refused.exception)
    assert not output.exists()
    assert not account.exists() or not PrivacyAccount(account).fits
    found = json.loads(fit("--any-width", "--json", "--method", "moments", "--seed", "1").stdout)
    rows = found["coefficients"]["rows"]
    assert [row["interval"] for row in rows if not row["decided"]] == [[None, None]] * sum(not row["decided"] for row in rows)
    assert not rows[0]["decided"]
    assert "(-inf, inf)" in CliRunner().invoke(app, ["show", str(output)]).output
    bounded = fit("--any-width", "--coef-bound", "2", "--force")
    assert bounded.exit_code == 0, bounded.output
    assert "-inf, inf)" not in bounded.stdout
    assert "Forecast for 60 people" in bounded.output
    wrong = CliRunner().invoke(
        app, ["fit", str(tmp_path / "people.csv"), "--schema", str(tmp_path / "schema.toml"), "--coef-bound", "2"]
    )
    assert "--coef-bound" in str(wrong.exception)
