"""Private evaluation: the scores that scikit-learn computes, error bars that cover, ranges that hold, bad input costs nothing."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from scipy.special import expit
from sklearn import metrics

import croupier as cr
from benchmarks.surrogate import SurrogatePopulation
from croupier.estimator import PrivacyAccount
from croupier.protocol import SumEstimate
from croupier.statistics import Moments, check
from croupier.statistics.evaluating import Classification, Regression
from croupier.validation import ArgumentError


class Logit:
    """A model that knows the truth."""

    classes_ = np.array(["no", "yes"])

    def decision_function(self, X):
        return 2.0 * X[:, 0] - 0.5

    def predict_proba(self, X):
        p = expit(self.decision_function(X))
        return np.column_stack([1 - p, p])

    def predict(self, X):
        return self.classes_[(self.decision_function(X) > 0).astype(int)]


class Margin:
    classes_ = np.array(["no", "yes"])
    decision_function, predict = Logit.decision_function, Logit.predict


class Three:
    classes_ = np.array([0, 1, 2])

    def predict(self, X):
        return np.clip(np.round(X[:, 0]), 0, 2).astype(int)


class Line:
    target_range_ = (-4.0, 4.0)

    def predict(self, X):
        return X[:, 0]


def people(rng, users):
    X = rng.normal(size=(users, 1))
    return X, np.where(rng.random(users) < expit(2.0 * X[:, 0] - 0.5), "yes", "no")


ROWS, LABELS = people(np.random.default_rng(0), 4_000)
WHOLE = np.random.default_rng(1).integers(0, 3, 4_000)


@pytest.mark.parametrize(
    ("query", "y"),
    [
        (Classification(Logit()), LABELS),
        (Classification(Margin(), bins=10), LABELS),
        (Classification(Three()), WHOLE),
        (Regression(Line(), -1.0, 1.0), ROWS[:, 0] + 0.3),
    ],
)
def test_no_record_leaves_the_range(query, y):
    with np.errstate(all="ignore"):
        assert check(query, ROWS, y) == []
    assert query.norm <= query.diameter <= 2 * query.norm


def test_the_diameter_of_a_classifiers_cells_is_attained():
    """Right in one block, wrong in the other: sqrt(2 (1 - w^2) + 4 w^2) if both are as long as can be."""
    query = Classification(Three())
    vectors = query(np.array([[0.0], [1.0]]), np.array([0, 2]))
    assert np.linalg.norm(vectors[0] - vectors[1]) == pytest.approx(query.diameter, rel=1e-12)


def test_scores_are_those_of_scikit_learn():
    """At an epsilon where noise is nothing: counts are right to a person, AUC and log-loss to the width of a bin."""
    found = cr.evaluate(Logit(), (ROWS, LABELS), epsilon=80.0, delta=1e-6, seed=0)
    p, predicted = Logit().predict_proba(ROWS)[:, 1], Logit().predict(ROWS)
    scores = found.scores
    assert scores["accuracy"].value == pytest.approx((predicted == LABELS).mean(), abs=2e-3)
    assert scores["balanced accuracy"].value == pytest.approx(metrics.balanced_accuracy_score(LABELS, predicted), abs=2e-3)
    assert scores["AUC"].value == pytest.approx(metrics.roc_auc_score(LABELS == "yes", p), abs=4e-3)
    assert scores["log-loss"].value == pytest.approx(metrics.log_loss(LABELS == "yes", p), abs=1e-2)
    assert found.counts.confusion == pytest.approx(metrics.confusion_matrix(LABELS, predicted), abs=15)
    assert scores["accuracy"].baseline == pytest.approx(max((LABELS == "no").mean(), (LABELS == "yes").mean()), abs=2e-3)
    false, true = found.counts.roc
    assert false[0] == true[0] == 0
    assert false[-1] == pytest.approx(1)
    middle, people_in, share, error = found.counts.calibration.T
    many = people_in > 100
    assert np.all(np.abs(share - middle)[many] < 6 * error[many] + 0.03)


def test_more_classes_have_a_confusion_matrix():
    y = np.clip(np.round(ROWS[:, 0] + np.random.default_rng(2).normal(scale=0.5, size=4_000)), 0, 2).astype(int)
    found = cr.evaluate(Three(), (ROWS, y), epsilon=80.0, delta=1e-6, seed=0)
    assert found.counts.confusion == pytest.approx(metrics.confusion_matrix(y, Three().predict(ROWS)), abs=15)
    assert found.scores["accuracy"].value == pytest.approx((y == Three().predict(ROWS)).mean(), abs=2e-3)
    balanced = metrics.balanced_accuracy_score(y, Three().predict(ROWS))
    assert found.scores["balanced accuracy"].value == pytest.approx(balanced, abs=5e-3)
    assert "AUC" not in found.scores


def test_margins_have_no_log_loss():
    assert set(cr.evaluate(Margin(), (ROWS, LABELS), epsilon=1.0, delta=1e-6, seed=0).scores) == {
        "accuracy",
        "balanced accuracy",
        "AUC",
    }


def test_numbers_have_errors():
    y = ROWS[:, 0] + np.random.default_rng(3).normal(scale=0.5, size=4_000)
    found = cr.evaluate(Line(), (ROWS, y), epsilon=80.0, delta=1e-6, seed=0).scores
    clipped = np.clip(y, -4, 4)
    assert found["MSE"].value == pytest.approx(metrics.mean_squared_error(clipped, ROWS[:, 0]), abs=0.05)
    assert found["MAE"].value == pytest.approx(metrics.mean_absolute_error(clipped, ROWS[:, 0]), abs=0.03)
    assert found["R^2"].value == pytest.approx(metrics.r2_score(clipped, ROWS[:, 0]), abs=0.03)
    assert found["MSE"].baseline == pytest.approx(clipped.var(), rel=0.03)
    assert found["at or below"].value == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize(("model", "names"), [(Logit(), ("accuracy", "AUC", "log-loss")), (Line(), ("MSE", "R^2"))])
def test_error_bars_cover(model, names):
    """100 samples of 2 000 people at epsilon 1, fixed seeds; 95 per cent intervals cover the truth 88 to 100 times."""
    rng = np.random.default_rng(7)
    many, labels = people(rng, 400_000)
    y = many[:, 0] + rng.normal(scale=0.5, size=400_000) if isinstance(model, Line) else labels
    if isinstance(model, Line):
        clipped, answer = np.clip(y, -4, 4), np.clip(many[:, 0], -4, 4)
        truth = {"MSE": np.mean((clipped - answer) ** 2), "R^2": metrics.r2_score(clipped, answer)}
    else:
        p = model.predict_proba(many)[:, 1]
        truth = {
            "accuracy": np.mean(model.predict(many) == y),
            "AUC": metrics.roc_auc_score(y == "yes", p),
            "log-loss": metrics.log_loss(y == "yes", p),
        }
    covered = dict.fromkeys(names, 0)
    for seed in range(100):
        some = rng.integers(400_000, size=2_000)
        scores = cr.evaluate(model, SurrogatePopulation(many[some], y[some]), epsilon=1.0, delta=1e-6, seed=seed).scores
        for name in names:
            covered[name] += scores[name].interval[0] <= truth[name] <= scores[name].interval[1]
    assert all(88 <= times <= 100 for times in covered.values()), covered


def test_it_is_private_charged_and_says_so():
    account = PrivacyAccount(epsilon=1.1, delta=1e-5)
    found = cr.evaluate(Logit(), (ROWS, LABELS), epsilon=1.0, delta=1e-6, account=account)
    assert found.guarantee.delta(1.0) <= 1e-6
    assert found.users == 4_000
    assert "NOT PRIVATE" not in str(found)
    assert "constant answer" in str(found)
    assert found.to_dict()["guarantee"] is not None
    assert account.spent() > 0.5
    assert "NOT PRIVATE" in str(cr.evaluate(Logit(), (ROWS, LABELS), epsilon=1.0, delta=1e-6, seed=0))


@pytest.mark.parametrize(
    ("model", "data", "options", "message"),
    [
        ("model", (ROWS, LABELS), {}, "model = 'str'"),
        (Logit(), ROWS, {}, "data is X alone; it must be"),
        (Line(), ROWS, {}, "data is X alone; it must be"),
        (Logit(), (ROWS, np.where(LABELS == "no", "maybe", LABELS)), {}, "y = 'maybe'"),
        (Line(), (ROWS, ROWS[:, 0]), {"target_range": (1, 1)}, "target_range"),
        (Line(), (ROWS, ROWS[:, 0]), {"target_range": "wide"}, "target_range"),
        (Logit(), (ROWS, LABELS), {"epsilon": math.nan}, "epsilon"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_spent(model, data, options, message):
    account = PrivacyAccount()
    with pytest.raises(cr.ArgumentError) as error:
        cr.evaluate(model, data, **{"epsilon": 1.0, "delta": 1e-6, "account": account} | options)
    assert str(error.value).startswith(message)
    assert account.fits == ()


def test_what_a_regressor_declares_is_used():
    """A quantile is the baseline of the share below; a regressor without a range needs one."""

    class Median(Line):
        def __init__(self):
            self.quantile = 0.5

    class Unranged:
        def predict(self, X):
            return X[:, 0]

    data, budget = (ROWS, ROWS[:, 0]), {"epsilon": 1.0, "delta": 1e-6}
    assert cr.evaluate(Median(), data, **budget).scores["at or below"].baseline == 0.5
    assert cr.evaluate(Line(), data, **budget).scores["at or below"].baseline is None
    assert cr.evaluate(Unranged(), data, **budget, target_range=(-2, 2)).counts.width == 4.0
    with pytest.raises(cr.ArgumentError, match="target_range = None"):
        cr.evaluate(Unranged(), data, **budget)


def test_no_score_is_beyond_its_range():
    """200 people at epsilon 0.1: noise alone would give an AUC above 1, and losses below 0."""
    X = np.random.default_rng(0).normal(size=(200, 2))
    y = np.where(Logit().decision_function(X) > 0, "yes", "no")
    ends = {"accuracy": (0, 1), "balanced accuracy": (0, 1), "AUC": (0, 1), "log-loss": (0, 20), "R^2": (-math.inf, 1)}
    ends |= {"MAE": (0, 8), "MSE": (0, 64), "at or below": (0, 1)}
    for seed in range(5):
        numbers = cr.evaluate(Line(), (X, X[:, 0]), epsilon=0.1, delta=1e-6, target_range=(-4, 4), seed=seed)
        labels = cr.evaluate(Logit(), (X, y), epsilon=0.1, delta=1e-6, seed=seed)
        for name, score in (numbers.scores | labels.scores).items():
            low, high = ends[name]
            assert low <= score.interval[0] <= score.value <= score.interval[1] <= high, name
            assert score.baseline is None or low <= score.baseline <= high, name
        share = labels.counts.calibration[:, 2]
        assert ((share >= 0) & (share <= 1) | np.isnan(share)).all()


@pytest.mark.parametrize("query", [Moments(2), Regression(Line(), 0.0, 1.0)])
def test_text_as_a_target_is_refused_untold_before_anything_is_spent(query):
    account, y = PrivacyAccount(), np.array(["1.5"] * 199 + ["a diagnosis"])
    with pytest.raises(ArgumentError, match="not a number") as caught:
        cr.ask(query, (np.zeros((200, 2)), y), epsilon=1.0, delta=1e-6, account=account)
    assert "diagnosis" not in str(caught.value)
    assert not account.fits


def test_a_label_that_a_worker_refuses_is_not_told_elsewhere():
    with pytest.raises(ArgumentError, match="a diagnosis") as caught:
        Classification(Logit()).check_records(np.zeros((1, 2)), np.array(["a diagnosis"]))
    assert "a diagnosis" not in str(pickle.loads(pickle.dumps(caught.value)))


class Faulty(Logit):
    """Has no score for some rows."""

    def decision_function(self, X):
        return np.where(X[:, 0] > 1, np.nan, X[:, 0])


class Outside:
    """Answers with a class that it does not declare."""

    classes_ = np.array([0, 1, 2])

    def predict(self, X):
        return np.where(X[:, 0] > 1, 7, 1)


class Empty:
    target_range_ = (0.0, 1.0)

    def predict(self, X):
        return np.where(X[:, 0] > 1, np.nan, 0.5)


class Narrow(Logit):
    """Takes rows of another length."""

    def decision_function(self, X):
        return X @ np.ones(7)


@pytest.mark.parametrize("model", [Faulty(), Outside(), Empty(), Narrow()])
def test_a_model_that_cannot_score_some_rows_is_refused_before_anything_is_spent(model):
    X = np.random.default_rng(0).normal(size=(500, 2))
    labels = getattr(model, "classes_", np.array([0.2, 0.4]))
    y, account = np.resize(labels, 500), PrivacyAccount()
    with pytest.raises(ValueError):  # noqa: PT011  (ours, or numpy's own about shapes)
        cr.evaluate(model, (X, y), epsilon=1.0, delta=1e-6, account=account)
    assert account.fits == ()


def test_a_function_of_another_shape_is_refused_before_anything_is_spent():
    account = PrivacyAccount()
    with pytest.raises(ArgumentError, match="shape"):
        cr.ask(cr.statistics.CustomQuery(lambda X, y: X, dim=3), np.ones((50, 2)), epsilon=1.0, delta=1e-6, account=account)
    assert account.fits == ()


def test_a_score_of_exactly_one_half_is_a_vote_for_the_first_class_as_in_predict():
    class Undecided(Logit):
        def decision_function(self, X):
            return np.zeros(len(X))

    y = np.where(np.arange(5_000) % 10 == 0, "yes", "no")
    X = np.zeros((5_000, 1))
    found = cr.evaluate(Undecided(), (X, y), epsilon=4.0, delta=1e-6, seed=0).scores["accuracy"]
    assert found.value == pytest.approx(np.mean(Undecided().predict(X) == y), abs=0.05)


def test_classes_may_be_in_any_order():
    class Backwards(Logit):
        classes_ = np.array(["yes", "no"])

        def predict_proba(self, X):
            return super().predict_proba(X)[:, ::-1]

        def predict(self, X):
            return self.classes_[self.predict_proba(X).argmax(axis=1)]

    X = np.random.default_rng(0).normal(size=(5_000, 1))
    y = np.where(2 * X[:, 0] > 0.5, "yes", "no")
    assert cr.evaluate(Backwards(), (X, y), epsilon=4.0, delta=1e-6, seed=0).scores["accuracy"].value > 0.95
    three = np.array(["b", "c", "a"])
    query = Classification(type("Three", (), {"classes_": three, "predict": lambda self, X: three[X[:, 0].astype(int)]})())
    assert query.cell_of(np.array([[0.0], [1.0], [2.0]]), three).tolist() == [0, 4, 8]


def answering(base, **methods):
    """A model of some class whose methods answer otherwise."""
    return type("Odd", (base,), {name: lambda self, X, act=act: act(X) for name, act in methods.items()})()


@pytest.mark.parametrize(
    ("model", "method"),
    [
        (answering(Logit, predict_proba=lambda X: np.ones((len(X), 1))), "predict_proba"),
        (answering(Logit, predict_proba=lambda X: np.full((len(X), 3), 1 / 3)), "predict_proba"),  # its second column was taken
        (answering(Logit, predict_proba=lambda X: np.ones(len(X))), "predict_proba"),
        (answering(Logit, predict_proba=lambda X: [["likely", "no"]] * len(X)), "predict_proba"),
        (answering(Margin, decision_function=lambda X: np.ones((len(X), 2))), "decision_function"),
        (answering(Three, predict=lambda X: np.zeros((len(X), 2))), "predict"),
        (answering(Line, predict=lambda X: np.zeros((len(X), 2))), "predict"),
        (answering(Line, predict=lambda X: np.zeros(len(X) - 1)), "predict"),
        (answering(Line, predict=lambda X: 3.0), "predict"),
    ],
)
def test_a_model_that_answers_in_another_shape_costs_nothing(model, method):
    account, y = PrivacyAccount(), LABELS if hasattr(model, "decision_function") else WHOLE
    with pytest.raises(ArgumentError, match=rf"model\.{method}\(X\).*nothing was spent"):
        cr.evaluate(model, (ROWS, y), epsilon=1.0, delta=1e-6, account=account)
    assert account.fits == ()


def test_a_single_column_of_answers_is_one_answer_a_row():
    column = answering(Line, predict=lambda X: Line().predict(X)[:, np.newaxis])
    plain, found = (cr.evaluate(model, (ROWS, ROWS[:, 0]), epsilon=1.0, delta=1e-6, seed=0) for model in (Line(), column))
    assert plain.scores == found.scores


@pytest.mark.parametrize("model", [Logit(), Three()])
def test_people_without_a_score_are_not_counted_among_the_others(model):
    """Devices whose record has no score send zero, here every third: the others' scores are as they would be without them."""
    y = LABELS if len(model.classes_) == 2 else np.asarray(model.predict(ROWS))
    query = Classification(model)
    vectors = query(ROWS, y)
    vectors[::3] = 0.0
    kept = np.arange(len(ROWS)) % 3 != 0
    noise = np.random.default_rng(0).normal(0, 2.0, vectors.shape[1])
    found = query.decode(SumEstimate(sum=vectors.sum(axis=0) + noise, users=len(ROWS), noise_std=2.0, guarantee=None))
    accuracy = float(np.mean(np.asarray(model.predict(ROWS))[kept] == y[kept]))
    assert abs(found.scores["accuracy"].value - accuracy) < 0.01
    assert abs(found.users - kept.sum()) < 60
    few = query(ROWS, y).sum(axis=0) + noise
    assert query.decode(SumEstimate(sum=few, users=len(ROWS), noise_std=2.0, guarantee=None)).users == len(ROWS)


@pytest.mark.parametrize("threshold", [0.2, 0.5, 0.9])
@pytest.mark.parametrize("states_it", [True, False])
def test_accuracy_is_that_of_what_the_model_says(threshold, states_it):
    """A model that decides elsewhere than at 1/2: as scikit-learn's that states its threshold, and one that does not."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(20_000, 1))
    y = rng.random(20_000) < expit(2 * X[:, 0] - 0.5)

    class Deciding:
        classes_ = np.array([False, True])

        def predict_proba(self, X):
            return np.column_stack([expit(0.5 - 2 * X[:, 0]), expit(2 * X[:, 0] - 0.5)])

        def predict(self, X):
            return self.predict_proba(X)[:, 1] >= threshold

    model = Deciding()
    if states_it:
        model.best_threshold_ = threshold
    found = cr.evaluate(model, (X, y), epsilon=50.0, delta=1e-9, seed=0)
    said = model.predict(X)
    assert found.scores["accuracy"].value == pytest.approx(np.mean(said == y), abs=0.001)
    recalls = np.mean([np.mean(said[y]), np.mean(~said[~y])])
    assert found.scores["balanced accuracy"].value == pytest.approx(recalls, abs=0.001)
    np.testing.assert_allclose(found.counts.confusion, metrics.confusion_matrix(y, said), atol=30)
    if states_it:  # otherwise scores between 1/2 and the threshold are in one bin
        assert found.scores["AUC"].value == pytest.approx(metrics.roc_auc_score(y, model.predict_proba(X)[:, 1]), abs=0.003)
        assert found.scores["log-loss"].value == pytest.approx(metrics.log_loss(y, model.predict_proba(X)), abs=0.005)
