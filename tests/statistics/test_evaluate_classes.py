"""More than two classes with probabilities: AUC of each against the rest and log-loss, by scikit-learn, with bars that cover."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import softmax
from sklearn import metrics

import croupier as cr
from benchmarks.surrogate import SurrogatePopulation
from croupier.estimator import PrivacyAccount
from croupier.report._answers import answer_page
from croupier.statistics import check
from croupier.statistics._scores import CAP, LOSS, RANKS, SQUARE, class_vectors, joint_spread, rank_weights
from croupier.statistics.evaluating import Classification
from croupier.validation import ArgumentError

CENTRES = np.array([[0.0, 1.5], [1.5, -0.5], [-1.5, -0.5], [0.5, 0.2]])


class Softmax:
    """Knows the truth, of classes of different sizes."""

    def __init__(self, classes=3):
        self.classes_ = np.array(["a", "b", "c", "d"])[:classes]

    def predict_proba(self, X):
        size = len(self.classes_)
        return softmax(1.2 * np.asarray(X) @ CENTRES[:size].T - 0.7 * np.arange(size), axis=1)

    def predict(self, X):
        return self.classes_[np.argmax(self.predict_proba(X), axis=1)]


class Certain(Softmax):
    """Gives probability 0 to some labels."""

    def predict_proba(self, X):
        return np.eye(3)[np.argmax(Softmax.predict_proba(self, X), axis=1)]


def people(rng, users, model):
    X = rng.normal(size=(users, 2))
    chosen = (model.predict_proba(X).cumsum(axis=1) < rng.random((users, 1))).sum(axis=1)
    return X, model.classes_[np.minimum(chosen, len(model.classes_) - 1)]


@pytest.mark.parametrize("model", [Softmax(), Softmax(4), Certain()])
def test_no_record_leaves_the_range(model):
    X, y = people(np.random.default_rng(0), 2_000, model)
    query = Classification(model)
    with np.errstate(all="ignore"):
        assert check(query, X, y) == []
    vectors = query(X, y)
    assert query.dim == vectors.shape[1] == len(model.classes_) ** 2 + 1 + 80 * len(model.classes_) + 2
    right = len(model.classes_) ** 2
    assert (np.delete(vectors, right, axis=1) >= 0).all()  # what the diameter's proof counts on


def test_a_search_for_probabilities_that_break_the_range_finds_none():
    """Any probabilities, even ones that are none: ends of bins, 0, 1, negative, above 1, infinite; any label."""
    rng, edges = np.random.default_rng(1), Classification(Softmax()).edges
    odd = np.concatenate([edges, np.nextafter(edges, 2), np.nextafter(edges, -2), [-5.0, 7.0, np.inf, -np.inf, 1e-320]])
    probabilities = rng.choice(odd, size=(20_000, 3))
    vectors = class_vectors(probabilities, rng.integers(3, size=20_000), edges)
    assert (vectors >= 0).all()
    squares = (vectors**2).sum(axis=1)
    assert squares.max() <= (RANKS + LOSS + SQUARE) * (1 + 1e-12)
    assert squares.max() > 0.95 * (RANKS + LOSS + SQUARE)  # the bound is nearly attained, so a larger share would be seen


@pytest.mark.parametrize("classes", [3, 4, 10])
def test_weights_of_ranks_are_the_best_for_classes_of_one_size(classes):
    """Beside a search: the least noise of an area is that of these weights."""
    other, own = rank_weights(classes)
    assert own + (classes - 1) * other == pytest.approx(RANKS, rel=1e-12)
    weights = np.linspace(0.01, 0.99, 9_801) * RANKS
    noise = classes**2 / weights + (classes / (classes - 1)) ** 2 * (classes - 1) / (RANKS - weights)
    assert own == pytest.approx(weights[noise.argmin()], abs=1e-3)


def test_scores_are_those_of_scikit_learn():
    """At an epsilon where noise is nothing: AUC to the width of a bin, the log-loss without any."""
    model = Softmax()
    X, y = people(np.random.default_rng(2), 20_000, model)
    found = cr.evaluate(model, (X, y), epsilon=80.0, delta=1e-6, seed=0)
    p, predicted = model.predict_proba(X), model.predict(X)
    auc = metrics.roc_auc_score(y, p, multi_class="ovr", average="macro")
    assert found.scores["AUC"].value == pytest.approx(auc, abs=4e-3)
    assert found.scores["log-loss"].value == pytest.approx(metrics.log_loss(y, p), abs=4e-3)
    shares = np.array([(y == label).mean() for label in model.classes_])
    assert found.scores["log-loss"].baseline == pytest.approx(-(shares @ np.log(shares)), abs=4e-3)
    assert found.scores["AUC"].baseline == 0.5
    assert found.scores["accuracy"].value == pytest.approx((predicted == y).mean(), abs=2e-3)
    assert found.counts.confusion == pytest.approx(metrics.confusion_matrix(y, predicted), abs=40)
    for k, (label, area) in enumerate(found.counts.one_vs_rest.areas.items()):
        assert area.value == pytest.approx(metrics.roc_auc_score(y == label, p[:, k]), abs=5e-3)
    plain = found.to_dict()["scores"]
    assert [one["class"] for one in plain["AUC"]["classes"]] == ["a", "b", "c"]
    assert "AUC of a" in str(found)
    assert "AUC of a" in answer_page(found, title="Test")


def test_a_certain_mistake_costs_the_cap():
    model = Certain()
    X, y = people(np.random.default_rng(3), 5_000, Softmax())
    found = cr.evaluate(model, (X, y), epsilon=80.0, delta=1e-6, seed=0).scores["log-loss"]
    assert found.value == pytest.approx(CAP * (model.predict(X) != y).mean(), abs=0.05)


@pytest.mark.parametrize("classes", [3, 4])
def test_error_bars_cover(classes):
    """60 samples of 3 000 people at epsilon 1, fixed seeds; 95 per cent intervals cover the truth 53 to 60 times.

    The bar of AUC is a bound, so 60 is right; that it is no wild one is tested by its size.
    """
    rng, model = np.random.default_rng(4), Softmax(classes)
    X, y = people(rng, 400_000, model)
    p = model.predict_proba(X)
    truth = {"AUC": metrics.roc_auc_score(y, p, multi_class="ovr"), "log-loss": metrics.log_loss(y, p)}
    covered, values, bars = dict.fromkeys(truth, 0), {name: [] for name in truth}, {name: [] for name in truth}
    for seed in range(60):
        some = rng.integers(400_000, size=3_000)
        scores = cr.evaluate(model, SurrogatePopulation(X[some], y[some]), epsilon=1.0, delta=1e-6, seed=seed).scores
        for name, right in truth.items():
            covered[name] += scores[name].interval[0] <= right <= scores[name].interval[1]
            values[name].append(scores[name].value)
            bars[name].append(scores[name].std)
    assert all(53 <= times <= 60 for times in covered.values()), covered
    for name in truth:
        assert 0.7 < np.mean(bars[name]) / np.std(values[name]) < 1.6, name


class Gaps(Softmax):
    def predict_proba(self, X):
        found = Softmax.predict_proba(self, X)
        found[np.asarray(X)[:, 0] > 1, 1] = np.nan
        return found

    predict = Softmax().predict


class Flat(Softmax):
    def predict_proba(self, X):
        return Softmax.predict_proba(self, X)[:, :2]

    predict = Softmax().predict


@pytest.mark.parametrize("model", [Gaps(), Flat()])
def test_a_model_without_probabilities_for_some_is_refused_before_anything_is_spent(model):
    X, y = people(np.random.default_rng(5), 500, Softmax())
    account = PrivacyAccount()
    with pytest.raises(ArgumentError, match="model"):
        cr.evaluate(model, (X, y), epsilon=1.0, delta=1e-6, account=account)
    assert account.fits == ()


def test_what_has_no_probability_is_sent_as_nothing():
    X, y = np.array([[2.0, 0.0], [0.0, 0.0]]), np.array(["a", "b"])
    vectors = Classification(Gaps())(X, y)
    assert not vectors[0].any()
    assert np.linalg.norm(vectors[1]) > 0.5


def test_no_score_is_beyond_its_range():
    X, y = people(np.random.default_rng(6), 200, Softmax())
    for seed in range(5):
        found = cr.evaluate(Softmax(), (X, y), epsilon=0.1, delta=1e-6, seed=seed)
        for name, high in (("AUC", 1.0), ("log-loss", CAP)):
            low_end, high_end = found.scores[name].interval
            assert 0 <= low_end <= found.scores[name].value <= high_end <= high
            assert math.isfinite(found.scores[name].std)


def test_the_bar_of_the_mean_area_bounds_whatever_people_of_each_label_bring():
    """Random variances, split among labels at random and where the bound is reached: equal classes, split evenly."""
    rng = np.random.default_rng(5)
    for classes in (3, 4, 7):
        off = 1 - np.eye(classes)
        cases = [(rng.exponential(size=classes), rng.exponential(size=(classes, classes)) * off) for _ in range(200)]
        for own, parts in [*cases, (np.zeros(classes), off)]:
            spread = np.linalg.norm(np.sqrt(own) + np.sqrt(parts).sum(axis=0))
            bound = joint_spread(parts.sum(axis=1), own)
            assert spread <= bound * (1 + 1e-12)
        assert spread == pytest.approx(bound)
