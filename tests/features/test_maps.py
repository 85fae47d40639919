"""Public maps: decided by parameters alone, the same everywhere, rows of length 1 whatever comes in."""

from __future__ import annotations

import hashlib
import math

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

from croupier.estimator import ShuffleLogisticRegression, total_guarantee
from croupier.features import FeatureMap, FourierFeatures, GroupNorm, Projection, Scattering
from croupier.features.maps import public_weights
from croupier.validation import ArgumentError

RNG = np.random.default_rng(20261117)
DIGITS = FeatureMap([Scattering((8, 12)), GroupNorm(27), Projection(30, seed=4)])
TABLE = FeatureMap([FourierFeatures(60, scale=0.7, seed=2)])


def by_the_book(kind, seed, count):
    """The first weights, from the words of clients/computing.md alone: hash, hash, keystream, count of ones."""
    root = hashlib.blake2b(f"croupier features {kind} {seed}".encode(), digest_size=32).digest()
    key = hashlib.blake2b(bytes(8), key=root, digest_size=32, person=b"keystream").digest()
    stream = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(32 * count))
    return [(int.from_bytes(stream[32 * k : 32 * k + 32], "big").bit_count() - 128) / 8 for k in range(count)]


@pytest.mark.parametrize(("kind", "seed"), [("fourier", 0), ("projection", 2**53 - 1)])
def test_weights_are_those_of_the_book(kind, seed):
    found = public_weights(kind, seed, 3, 5)
    assert found.ravel().tolist() == by_the_book(kind, seed, 15)
    assert np.array_equal(public_weights(kind, seed, 5, 3).ravel(), found.ravel())
    with pytest.raises(ValueError, match="read-only"):
        found[0] = 0


def test_weights_that_are_drawn_in_parts_are_the_same(monkeypatch):
    whole = public_weights("fourier", 11, 40, 7)
    monkeypatch.setattr("croupier.features.maps._BYTES_AT_ONCE", 96)
    assert np.array_equal(public_weights.__wrapped__("fourier", 11, 40, 7), whole)


def test_weights_have_the_moments_of_a_gaussian():
    """400 000 entries; bands of five standard errors, which fail with probability 6e-7 each for another stream."""
    weights = public_weights("projection", 1, 400, 1000).ravel()
    error = 5 / math.sqrt(len(weights))
    assert abs(weights.mean()) < error
    assert abs((weights**2).mean() - 1) < error * math.sqrt(2)
    assert abs((weights**3).mean()) < error * math.sqrt(15)
    assert abs((weights**4).mean() - (3 - 2 / 256)) < error * math.sqrt(96)
    assert not np.array_equal(weights, public_weights("projection", 2, 400, 1000).ravel())


def test_fourier_features_are_those_of_a_gaussian_kernel():
    rows = RNG.uniform(-1, 1, size=(20, 6))
    features = FourierFeatures(40_000, scale=1.3, seed=5).fit_transform(rows)
    distances = ((rows[:, np.newaxis] - rows) ** 2).sum(axis=2)
    assert np.abs(features @ features.T - np.exp(-distances / (2 * 1.3**2))).max() < 5.5 / math.sqrt(20_000)
    assert np.allclose(np.linalg.norm(features, axis=1), 1, atol=1e-12)


def test_fourier_features_by_hand():
    weights = np.array(by_the_book("fourier", 3, 4)).reshape(2, 2) / 0.5
    x = np.array([0.3, -0.8])
    angles = [x[0] * weights[0, k] + x[1] * weights[1, k] for k in range(2)]
    expected = [math.cos(angle) / math.sqrt(2) for angle in angles] + [math.sin(angle) / math.sqrt(2) for angle in angles]
    assert np.allclose(FourierFeatures(4, scale=0.5, seed=3).fit_transform([x])[0], expected, rtol=0, atol=1e-15)


def test_projection_and_group_norm_by_hand():
    x = RNG.normal(size=6)
    weights = np.array(by_the_book("projection", 9, 12)).reshape(6, 2)
    assert np.allclose(Projection(2, seed=9).fit_transform([x])[0], x @ weights / math.sqrt(2), rtol=0, atol=1e-14)
    groups = [(part - part.mean()) / math.sqrt(part.var() + 0.25) for part in x.reshape(3, 2)]
    assert np.allclose(GroupNorm(3, epsilon=0.25).fit_transform([x])[0], np.concatenate(groups), rtol=0, atol=1e-14)


@pytest.mark.parametrize(("made", "columns"), [(DIGITS, 96), (TABLE, 5)])
def test_a_map_looks_at_no_data(made, columns):
    X, other = RNG.uniform(size=(40, columns)), RNG.normal(size=(7, columns)) * 1e6
    one, two, unfitted = clone(made).fit(X), clone(made).fit(other), clone(made)
    assert np.array_equal(one.transform(X), two.transform(X))
    assert np.array_equal(one.transform(X), unfitted.transform(X))
    assert vars(one).keys() == vars(two).keys() == {"steps", "n_features_in_"}  # what fit has noted
    assert np.allclose(one.transform(X[3:4]), one.transform(X)[3:4], rtol=0, atol=1e-12)


@pytest.mark.parametrize(("made", "columns"), [(DIGITS, 96), (TABLE, 5)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [0.0, 1e-30, 1.0, 1e18])
def test_no_row_is_longer_than_1(made, columns, dtype, size):
    X = (size * np.random.default_rng(96).normal(size=(50, columns))).astype(dtype)
    rows = made.fit_transform(X)
    lengths = np.linalg.norm(rows.astype(np.float64), axis=1)
    assert rows.dtype == dtype
    assert np.isfinite(rows).all()
    assert lengths.max() <= 1
    assert lengths.min() > (1 - 1e-6 if size >= 1 or made is TABLE else -1)


def test_no_row_of_single_precision_is_longer_than_1_once_rounded():
    made = FeatureMap([Projection(301, seed=2)])  # 300 squares added up in float32 are off by more than the room for rounding
    rows = made.fit_transform(np.random.default_rng(5).normal(size=(4000, 20)).astype(np.float32))
    lengths = np.linalg.norm(rows.astype(np.float64), axis=1)
    assert lengths.max() <= 1
    assert lengths.min() > 1 - 3e-7


def test_a_row_that_is_not_finite_stays_so_and_spoils_no_other():
    X = RNG.uniform(size=(6, 96))
    clean = DIGITS.fit_transform(X)
    X[1, 5], X[4, 0] = np.nan, np.inf
    rows = DIGITS.fit_transform(X)
    finite = np.isfinite(rows).all(axis=1)
    assert finite.tolist() == [True, False, True, True, False, True]
    assert np.allclose(rows[finite], clean[finite], rtol=0, atol=1e-12)
    assert not np.isfinite(TABLE.fit_transform([[0, 1, np.inf, 0, 0]])).all()


@pytest.mark.parametrize(("made", "columns"), [(DIGITS, 96), (TABLE, 5)])
def test_single_precision_loses_nothing_and_blocks_change_nothing(made, columns, monkeypatch):
    X = RNG.uniform(size=(70, columns))
    double = made.fit_transform(X)
    assert np.abs(made.transform(X.astype(np.float32)) - double).max() < 1e-6
    monkeypatch.setattr("croupier.features.maps._AT_ONCE", 1000)
    assert np.allclose(made.transform(X), double, rtol=0, atol=1e-13)


def test_a_map_is_a_step_of_a_pipeline_that_costs_nothing():
    X = np.random.default_rng(7).uniform(-1, 1, size=(4000, 2))
    y = X[:, 0] * X[:, 1] > 0  # a linear model of the columns tells three of the four quadrants at most
    private = ShuffleLogisticRegression(classes=[False, True], epsilon=4.0, feature_norm=1.0, random_state=1)
    model = make_pipeline(FeatureMap([FourierFeatures(40, scale=0.7)]), private).fit(X, y)
    assert model.score(X, y) > 0.9
    assert clone(private).fit(X, y).score(X, y) < 0.75
    assert total_guarantee(make_pipeline(TABLE, private)) is None  # seeded; asked without public_steps


@pytest.mark.parametrize("made", [DIGITS, TABLE])
def test_a_document_states_the_map(made):
    plain = made.to_dict()
    again = FeatureMap.from_dict(plain)
    assert again.to_dict() == plain
    X = RNG.uniform(size=(3, 96 if made is DIGITS else 5))
    assert np.array_equal(again.transform(X), made.transform(X))
    assert made.get_feature_names_out is not None
    assert len(clone(made).fit(X).get_feature_names_out()) == made.outputs(X.shape[1])


@pytest.mark.parametrize(
    ("document", "named"),
    [
        (None, "features"),
        ({"steps": "fourier"}, "features"),
        ({"steps": []}, "steps"),
        ({"steps": [{"kind": "fourier"}], "norm": 3}, "features"),
        ({"steps": [{"kind": "neural"}]}, r"features.steps\[0\].kind"),
        ({"steps": [{"kind": "fourier"}, {"kind": "projection", "rank": 3}]}, r"features.steps\[1\].rank"),
        ({"steps": [{"kind": "group-norm"}] * 17}, "steps"),
    ],
)
def test_a_document_that_states_none_is_refused(document, named):
    with pytest.raises(ArgumentError, match=f"^{named}"):
        FeatureMap.from_dict(document)


@pytest.mark.parametrize(
    ("made", "columns", "named"),
    [
        (FourierFeatures(7), 3, "size = 7 is not allowed: it must be even"),
        (FourierFeatures(0), 3, "size"),
        (FourierFeatures(8, scale=0), 3, "scale"),
        (FourierFeatures(8, seed=-1), 3, "seed"),
        (FourierFeatures(8, seed=2**53), 3, "seed"),
        (FourierFeatures(1 << 20), 1000, "size"),
        (Projection(1.5), 3, "size"),
        (GroupNorm(6), 6, "groups = 6 is not allowed: .* A column alone in its group would become 0"),
        (GroupNorm(4), 6, "groups = 4 is not allowed: it must be a number that divides the 6 columns"),
        (GroupNorm(2, epsilon=0), 6, "epsilon"),
        (Scattering((8, 10)), 80, "shape is 8 x 10; it must be of sides that are multiples of 4"),
        (Scattering((4, 8)), 32, "shape"),
        (Scattering(28), 784, "shape"),
        (Scattering((28, 28)), 783, "X has 783 columns; it must be rows of 784 pixels"),
        (FeatureMap([]), 3, "steps"),
        (FeatureMap([make_pipeline(Projection(3))]), 3, "steps"),
        (FeatureMap([Projection(10), GroupNorm(3)]), 3, "groups"),
    ],
)
def test_a_map_that_does_not_fit_is_refused(made, columns, named):
    for use in (made.fit, made.transform):
        with pytest.raises(ArgumentError, match=f"^{named}"):
            use(np.zeros((2, columns)))


@pytest.mark.parametrize(
    "made",
    [FourierFeatures(10), Projection(3), GroupNorm(1), FeatureMap([FourierFeatures(10)])],
    ids=lambda made: type(made).__name__,
)
def test_check_estimator(made):
    check_estimator(made, on_skip=None)
