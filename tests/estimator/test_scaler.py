"""The private scaler against numpy's moments."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.sparse
from scipy.optimize import minimize
from scipy.spatial.distance import cdist

from croupier.estimator import PrivacyAccount, ShuffleScaler, load_model
from croupier.estimator.scaler import ColumnMoments
from croupier.privacy import plan_sum
from croupier.validation import ArgumentError

RANGES = [(0, 100), (-10, 0), (0, 1)]


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(1)
    return np.column_stack([rng.normal(40, 12, 20_000), rng.uniform(-8, -2, 20_000), rng.random(20_000) < 0.2])


@pytest.mark.usefixtures("without_noise")
def test_without_noise_the_moments_are_numpys(table):
    scaler = ShuffleScaler(feature_range=RANGES).fit(table)
    clipped = np.clip(table, *np.array(RANGES).T)
    np.testing.assert_allclose(scaler.mean_, clipped.mean(axis=0), rtol=1e-9)
    np.testing.assert_allclose(scaler.var_, clipped.var(axis=0), rtol=1e-9)
    expected = (table - clipped.mean(axis=0)) / clipped.std(axis=0)
    np.testing.assert_allclose(scaler.transform(table), expected, rtol=1e-9)


def test_with_noise_the_moments_are_within_it(table):
    """Fixed seed; 6 standard deviations would be exceeded with probability 6 x 2e-9 by another."""
    scaler = ShuffleScaler(feature_range=RANGES, random_state=0).fit(table)
    half = np.array([50, 5, 0.5])
    noise = scaler.estimate_.mean_noise_std
    clipped = np.clip(table, *np.array(RANGES).T)
    assert (np.abs(scaler.mean_ - clipped.mean(axis=0)) <= 6 * noise * half).all()
    assert (np.abs(scaler.var_ - clipped.var(axis=0)) <= 6 * 3 * noise * half**2).all()
    assert scaler.guarantee_ is None


def test_the_guarantee_is_that_of_its_one_plan(table):
    scaler = ShuffleScaler(epsilon=0.3, delta=1e-7, feature_range=RANGES).fit(table)
    assert scaler.guarantee_ == scaler.plan_.guarantee
    assert scaler.guarantee_.delta(0.3) <= 1e-7
    assert scaler.plan_.norm == pytest.approx(np.sqrt(6))
    assert scaler.n_users_ == 20_000


def test_no_row_is_longer_than_the_plan_says():
    """(u, 2 u^2 - 1) on a grid, ends included: the norm is reached and never exceeded, so nobody is clipped unawares."""
    u = np.linspace(-1, 1, 2001)
    lengths = np.hypot(u, 2 * u**2 - 1)
    assert lengths.max() == pytest.approx(np.sqrt(2), rel=1e-12)


def test_no_two_rows_are_further_apart_than_the_plan_says():
    """A grid and a climb over both values, and odd rows; blank ones are zero. The bound is attained, so no less would hold."""
    u = np.linspace(-1, 1, 2001)
    curve = np.column_stack([u, 2 * u**2 - 1])
    asked = ColumnMoments(np.zeros(1), np.ones(1))
    furthest = cdist(curve, np.vstack([curve, np.zeros((1, 2))])).max()
    climb = max(
        -minimize(lambda z: -np.linalg.norm(np.subtract(*asked(z.reshape(2, 1), None))), start, method="Nelder-Mead").fun
        for start in np.random.default_rng(0).uniform(-2, 2, (20, 2))
    )
    assert max(furthest, climb) <= asked.diameter * (1 + 1e-12)
    assert climb == pytest.approx(asked.diameter, rel=1e-7)
    rng = np.random.default_rng(1)
    many = ColumnMoments(np.array([50.0, -5.0, 0.5]), np.array([50.0, 5.0, 0.5]))
    odd = rng.choice([0.0, 100.0, -10.0, 1e300, -1e300, np.nan, np.inf, 27.1, 0.93], size=(300, 3))
    vectors = many(np.vstack([odd, rng.normal(size=(300, 3)) * [50, 5, 1]]), None)
    assert cdist(vectors, vectors).max() <= many.diameter
    assert np.linalg.norm(vectors, axis=1).max() <= many.norm * (1 + 1e-12)


def test_noise_is_for_the_diameter_where_a_proof_knows_what_to_do_with_it(table, tmp_path, monkeypatch):
    scaler = ShuffleScaler(feature_range=RANGES).fit(table)
    by_norm = plan_sum(epsilon=1.0, delta=1e-6, users=20_000, dim=6, norm=scaler.plan_.norm)
    assert scaler.plan_.noise_std == pytest.approx(0.802 * by_norm.noise_std, rel=0.03)
    scaler.save(tmp_path / "by_diameter.json")
    assert load_model(tmp_path / "by_diameter.json").plan_ == scaler.plan_
    monkeypatch.setattr("croupier.estimator.scaler.MOST_COORDINATES", 1)
    larger = ShuffleScaler(feature_range=RANGES).fit(table)
    assert larger.plan_.diameter is None
    larger.save(tmp_path / "by_norm.json")
    assert load_model(tmp_path / "by_norm.json").plan_ == larger.plan_
    monkeypatch.undo()
    with pytest.raises(ArgumentError, match="plan"):
        load_model(tmp_path / "by_norm.json")
    claimed = json.loads((tmp_path / "by_diameter.json").read_text())
    text = json.dumps(claimed).replace(f'"diameter": {scaler.plan_.diameter!r}', f'"diameter": {scaler.plan_.norm!r}')
    assert text != json.dumps(claimed)
    (tmp_path / "claimed.json").write_text(text)
    with pytest.raises(ArgumentError):
        load_model(tmp_path / "claimed.json")


def test_a_constant_column_does_not_explode(table):
    X = np.column_stack([table, np.full(len(table), 3.0)])
    scaler = ShuffleScaler(feature_range=[*RANGES, (0, 10)], random_state=0).fit(X)
    assert np.abs(scaler.transform(X)[:, 3]).max() < 1.5
    assert scaler.scale_[3] < 2


def test_values_outside_the_range_count_as_its_ends_and_are_transformed_as_they_are(table):
    wild = table.copy()
    wild[0] = [1e9, -1e9, 1e9]
    ends = table.copy()
    ends[0] = [100, -10, 1]
    a, b = (ShuffleScaler(feature_range=RANGES, random_state=0).fit(X) for X in (wild, ends))
    np.testing.assert_array_equal(a.mean_, b.mean_)
    assert a.transform(wild)[0, 0] > 1e6


def test_rows_can_be_limited_in_norm(table):
    scaler = ShuffleScaler(feature_range=RANGES, norm=1.0, random_state=0)
    lengths = np.linalg.norm(scaler.fit_transform(table), axis=1)
    assert lengths.max() <= 1 + 1e-12
    with pytest.raises(ArgumentError, match="norm"):
        scaler.set_params(norm=0).transform(table)


def test_mean_and_deviation_can_be_left_alone(table):
    both, mean, std = (
        ShuffleScaler(feature_range=RANGES, random_state=0, with_mean=m, with_std=s).fit(table)
        for m, s in ((True, True), (True, False), (False, True))
    )
    np.testing.assert_allclose(mean.transform(table), table - both.mean_)
    np.testing.assert_allclose(std.transform(table), table / both.scale_)


def test_sparse_needs_its_zeros(table):
    sparse = scipy.sparse.csr_array(table)
    with pytest.raises(ArgumentError, match="with_mean=False"):
        ShuffleScaler(feature_range=RANGES).fit(sparse)
    dense, kept = (ShuffleScaler(feature_range=RANGES, random_state=0, with_mean=False).fit(X) for X in (table, sparse))
    assert scipy.sparse.issparse(kept.transform(sparse))
    np.testing.assert_allclose(kept.transform(sparse).toarray(), dense.transform(table), rtol=1e-9)


@pytest.mark.parametrize("high", [5e-324, 1e-320])
def test_a_range_whose_half_is_no_number_is_refused_before_anything_is_spent(high):
    account = PrivacyAccount()
    with pytest.raises(ArgumentError, match="feature_range"):
        ShuffleScaler(feature_range=(0, high), account=account).fit(np.zeros((1_000, 1)))
    assert not account.fits
