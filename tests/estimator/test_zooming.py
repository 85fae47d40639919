"""Regressions with intervals in secret rounds: which way is taken, both promises, files, checkpoints, blanks, refusals."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.special import expit

import croupier as cr
from croupier.estimator import PrivacyAccount, ShuffleLinearRegression, ShuffleLogit, load_model
from croupier.estimator.intervals import CutResidualsWarning, FarRowsWarning
from croupier.optimizer import Schedule, StopTraining
from croupier.optimizer.training import FinishedRunWarning
from croupier.report import html_report

USERS = 6_000
OPTIONS = {
    ShuffleLinearRegression: {"target_range": (-2, 2), "feature_norm": math.sqrt(3)},
    ShuffleLogit: {"classes": [False, True], "feature_norm": math.sqrt(3)},
}
KINDS = list(OPTIONS)


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(USERS, 3))
    y = 0.5 * X[:, 0] - 0.25 * X[:, 1] + 0.1 + rng.normal(scale=0.3, size=USERS)
    return X, {ShuffleLinearRegression: y, ShuffleLogit: rng.random(USERS) < expit(2 * X[:, 0] - X[:, 1])}


def made(kind, **options):
    return kind(**OPTIONS[kind] | {"method": "rounds"} | options)


@pytest.fixture(scope="module", params=KINDS)
def fitted(request, people):
    X, y = people
    return made(request.param).fit(X, y[request.param])


def test_a_fit_finds_the_truth_and_prints_both_promises(fitted):
    table = fitted.summary(0.999999)
    truth = [0.5, -0.25, 0.0, 0.1] if isinstance(fitted, ShuffleLinearRegression) else [2.0, -1.0, 0.0, 0.0]
    assert ((table.intervals[:, 0] < truth) & (truth < table.intervals[:, 1])).all()
    assert "eight secret rounds" in str(table)
    np.testing.assert_allclose(np.ravel(fitted.std_), table.std[:-1])
    np.testing.assert_allclose(fitted.intercept_std_, table.std[-1])
    guarantee = fitted.guarantee_
    assert guarantee.delta(1.0) <= fitted.promise_.delta
    watched = guarantee.if_watched.epsilon(fitted.promise_.delta)
    assert watched > 2
    page = html_report(fitted)
    assert "<b>The lots.</b>" in page
    for text in (str(fitted), fitted.explain(), page):
        assert f"{watched:.2f}"[:3] in text
    assert "to an attacker who also knows when each user answered" in str(fitted)
    if table.r2 is not None:  # noise may hide the variance of so few people's targets
        assert table.r2 == pytest.approx(0.54, abs=6 * table.r2_std)
    assert "as wide as without privacy" in fitted.explain()


def test_a_file_gives_it_again_and_a_stronger_claim_is_refused(fitted, tmp_path):
    fitted.save(tmp_path / "model.json")
    again = load_model(tmp_path / "model.json")
    np.testing.assert_array_equal(again.intervals(), fitted.intervals())
    values = json.loads(fitted.to_json())
    values["fitted"]["coef_"]["of"]["values"] = (np.asarray(fitted.coef_) + 1).tolist()
    with pytest.raises(cr.ArgumentError, match="coef_"):
        type(fitted).from_dict(values)
    values = json.loads(fitted.to_json())
    values["fitted"]["promise_"]["of"]["epsilon"] = 0.5
    with pytest.raises(cr.ArgumentError, match="promise"):
        type(fitted).from_dict(values)


def test_the_way_is_the_narrower_forecast_and_is_decided_by_public_facts():
    for kind in KINDS:
        ways = {method: made(kind, method=method).forecast(20_000, 10) for method in ("rounds", "moments", "auto")}
        assert ways["rounds"].half_width < ways["moments"].half_width
        assert ways["auto"] == replace(ways["rounds"], other_half_width=ways["moments"].half_width)
        assert isinstance(made(kind, method="auto").plan(20_000, 10), Schedule)
        assert not isinstance(made(kind, method="auto").plan(60, 3), Schedule)
    linear = made(ShuffleLinearRegression, method="auto", epsilon=8.0)
    assert not isinstance(linear.plan(100_000, 2), Schedule)  # hardly any noise: one round is as good as least squares
    several = made(ShuffleLinearRegression, method="auto", target_range=[(-2, 2), (-2, 2)])
    assert not isinstance(several.plan(20_000, 3), Schedule)


def test_what_rounds_cannot_do_is_refused_before_anything_is_spent(people, fitted):
    X, y = people
    account = PrivacyAccount()
    several = made(ShuffleLinearRegression, target_range=[(-2, 2), (-2, 2)], account=account)
    with pytest.raises(cr.ArgumentError, match="several targets"):
        several.fit(X, np.column_stack([y[ShuffleLinearRegression]] * 2))
    for kind in KINDS:
        with pytest.raises(cr.ArgumentError, match="calibration"):
            made(kind, calibration="paper", account=account).fit(X, y[kind])
        with pytest.raises(cr.ArgumentError, match="method"):
            made(kind, method="groups", account=account).fit(X, y[kind])
        model = made(kind, account=account)
        population = cr.population.ArrayPopulation(*model.records(X, y[kind]))
        with pytest.raises(cr.ArgumentError, match="schedule"):  # that of other columns
            model.fit_population(population, 3, schedule=model.plan(USERS, 4))
        once = made(kind, method="moments", account=account)
        with pytest.raises(cr.ArgumentError, match="nothing was spent"):  # that of more people was charged, and failed
            once.fit_population(population, 3, schedule=once.plan(USERS + 1, 3))
    assert not account.fits
    if isinstance(fitted, ShuffleLinearRegression):
        with pytest.raises(cr.ArgumentError, match="method='moments'"):
            fitted.summary(columns=[0, 1])


def test_a_run_that_is_cut_off_goes_on_and_is_charged_once(people, tmp_path):
    X, y = people
    account, heard = PrivacyAccount(), []
    model = made(ShuffleLinearRegression, account=account)
    rows = model.records(X, y[ShuffleLinearRegression])

    class GoneError(RuntimeError):
        pass

    def leave(answered):
        heard.append(answered.index)
        if answered.index == 5:
            raise GoneError

    population = cr.population.ArrayPopulation(*rows)
    with pytest.raises(GoneError):
        model.fit_population(population, 3, checkpoint=tmp_path / "run", on_round=leave)
    model.fit_population(population, 3, checkpoint=tmp_path / "run", on_round=lambda answered: heard.append(answered.index))
    assert heard == [*range(1, 6), *range(1, 9)]
    assert len(account.fits) == 1
    assert model.summary().determined.all()
    first = model.coef_.copy()
    with pytest.warns(FinishedRunWarning):
        model.fit_population(population, 3, checkpoint=tmp_path / "run")
    np.testing.assert_array_equal(model.coef_, first)


def test_a_run_that_is_stopped_decides_nothing(people):
    X, y = people

    def stop(answered):
        if answered.index == 3:
            raise StopTraining

    model = made(ShuffleLogit)
    model.fit_population(cr.population.ArrayPopulation(*model.records(X, y[ShuffleLogit])), 3, on_round=stop)
    table = model.summary()
    assert np.isinf(table.intervals).all()
    assert "Cut short after 3 of 8 rounds" in str(table)
    assert (np.abs(model.set_params(coef_bound=9.0).intervals()) <= 9).all()


def test_blanks_rows_of_one_person_and_sparse_rows(people):
    X, y = people
    for kind in KINDS:
        clean = made(kind, random_state=0).fit(X, y[kind])
        same = made(kind, random_state=0, invalid="blank").fit(X, y[kind])
        np.testing.assert_array_equal(clean.coef_, same.coef_)
        np.testing.assert_allclose(made(kind, random_state=0).fit(csr_array(X), y[kind]).coef_, clean.coef_, rtol=1e-6)
        odd = X.astype(object)
        odd[5, 0], odd[6, 1] = np.inf, "text"
        assert np.isfinite(made(kind, random_state=0, invalid="blank").fit(odd, y[kind]).coef_).all()
    assert made(ShuffleLinearRegression).fit(X, y[ShuffleLinearRegression], groups=np.arange(USERS) // 2).n_users_ == USERS // 2


def test_many_cut_residuals_are_warned_about():
    """One residual in 25 is 50 times as large as the others, and 10 columns leave room for three standard deviations alone."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, size=(6_000, 10))
    y = 0.1 * X[:, 0] + np.where(rng.random(6_000) < 0.04, 1.0, 0.02) * rng.choice([-1.0, 1.0], size=6_000)
    model = ShuffleLinearRegression(target_range=(-2, 2), feature_norm=math.sqrt(10), method="rounds", random_state=0)
    with pytest.warns(CutResidualsWarning, match="standard deviations"):
        model.fit(X, y)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_may_own_a_coefficient_are_warned_about_wherever_intervals_are(kind):
    """Two columns that go together in 98 of 100 rows, and are far apart in the others."""
    rng = np.random.default_rng(2)
    x = rng.uniform(-0.5, 0.5, size=12_000)
    other = x + np.where(rng.random(12_000) < 0.02, 0.5, 0.005) * rng.uniform(-1, 1, size=12_000)
    y = 0.3 * x + rng.normal(scale=0.1, size=12_000) if kind is ShuffleLinearRegression else rng.random(12_000) < expit(x)
    model = made(kind, feature_norm=1.0, random_state=0)
    with pytest.warns(FarRowsWarning, match="weighed down"):
        model.fit(np.column_stack([x, other]), y)
    for text in (str(model.summary()), model.explain(), html_report(model)):
        assert "these intervals are approximate" in text
