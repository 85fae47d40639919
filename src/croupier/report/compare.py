"""How a model does beside one without privacy, on data that everyone may see. Scores of private people would be releases."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..optimizer import Result
from ..validation import ArgumentError, Found

# Rows that are enough to compare with: an error of a third of a per cent.
_MOST_ROWS = 100_000
_MOST_SCORED = 20_000
# Linear programming, which quantiles are fitted by, is slow beyond this.
_MOST_QUANTILE_ROWS = 5_000
_MOST_ROUNDS = 40
_TEST_SHARE = 0.2


@dataclass(frozen=True)
class Method:
    """One way to get a model.

    `name`: Name of the method. `scores`: How well it does. `epsilon`: What is promised; None for nothing. `trust`: Who must be
    trusted. `bits_per_user`: What a user sends. `seconds`: How long it took. `kind`: A reference is drawn as a line to compare
    with.
    """

    name: str
    scores: Mapping[str, float]
    epsilon: float | None = None
    trust: str = "-"
    bits_per_user: int | None = None
    seconds: float | None = None
    kind: str = "other"


@dataclass(frozen=True)
class Comparison:
    """Methods on the same public rows.

    `metric`: The score that figures show. `rows`: How many rows were scored. `methods`: What is compared. `course`: Rounds, and the
    score at the point that each asked about. `sweep`: Epsilons, and the score of a model fitted with each. `note`: What a reader
    has to know beside it.

    Examples
    --------
    >>> from croupier.report.compare import Comparison, Method
    >>> comparison = Comparison("accuracy", 200, (Method("this model", {"accuracy": 0.8}, epsilon=1.0),))
    >>> comparison.methods[0].scores["accuracy"]
    0.8
    """

    metric: str
    rows: int
    methods: tuple[Method, ...]
    course: tuple[tuple[int, float], ...] = ()
    sweep: tuple[tuple[float, float], ...] = ()
    note: str = ""


def compare(model: Any, X: Any, y: Any, *, epsilons: Iterable[float] = ()) -> Comparison:
    """Compare a model with a non-private fit and the best constant, on public rows.

    Four fifths of the rows train what has to be trained. All methods are scored on the rest. The model itself may have seen those.

    Parameters
    ----------
    model : PrivateEstimator
        A fitted classifier or regressor.
    X, y : array-like
        Rows that everyone may see, and their labels or targets.
    epsilons : iterable of float, optional
        Fit the model's kind again with each of them, every row a user.

    Returns
    -------
    Comparison
        With a constant, a fit without privacy, and the model.

    Raises
    ------
    ArgumentError
        If the rows are of one class only.

    Examples
    --------
    >>> import numpy as np
    >>> from croupier.estimator import ShuffleLogisticRegression
    >>> from croupier.report import compare
    >>> X = np.random.default_rng(0).normal(size=(2_000, 3)) / 3
    >>> model = ShuffleLogisticRegression(classes=[False, True]).fit(X, X[:, 0] > 0)
    >>> [method.name for method in compare(model, X, X[:, 0] > 0).methods]
    ['best constant answer', 'without privacy', 'this model']
    """
    model, X = _without_names(model, X)
    X, y = _some(X, np.asarray(y), _MOST_ROWS)
    train, test = _split(len(y))
    plain, constant, name = _without_privacy(model)
    fitted_on = train[:_MOST_QUANTILE_ROWS] if hasattr(model, "quantile") else train
    rows = as_trained(model, X)
    if hasattr(model, "classes_") and len(np.unique(y[train])) < 2:
        raise ArgumentError("DATA", Found("has one class only"), "rows of two classes or more", "Compare on data that has them.")
    plain.fit(rows[fitted_on], y[fitted_on])
    constant.fit(rows[train], y[train])
    promise = getattr(model, "promise_", None)
    methods = (
        Method("best constant answer", scores(constant, rows[test], y[test], like=model), kind="reference"),
        Method("without privacy", scores(plain, rows[test], y[test], like=model), trust="a curator", kind="reference"),
        Method(
            "this model",
            scores(model, X[test], y[test]),
            epsilon=promise.epsilon if promise and model.guarantee_ is not None else None,
            trust="a shuffler",
            bits_per_user=bits_per_user(model),
            kind="ours",
        ),
    )
    some = test[:_MOST_SCORED]
    return Comparison(
        metric=next(iter(methods[0].scores)),
        rows=len(test),
        methods=methods,
        course=course(model, X[some], y[some]),
        sweep=tuple((epsilon, _refitted(model, epsilon, X, y, train, test)) for epsilon in epsilons),
        note=f"Without privacy: scikit-learn's {name}, fitted on {len(fitted_on):,} other rows.",
    )


def public_comparison(
    model: Any, X: Any, y: Any, data_is_public: bool, epsilons: Iterable[float], comparison: Comparison | None
) -> Comparison:
    """The comparison on a page: refused unless the rows are public."""
    if data_is_public is not True:
        raise ArgumentError(
            "data_is_public",
            data_is_public,
            "True where X and y are given",
            "No guarantee covers scores on private records: leave X and y out, or use public rows.",
        )
    if comparison is not None:
        return comparison
    if X is None or y is None:
        raise ArgumentError("X, y", Found("are not both given"), "given together", "Pass rows and their labels or targets.")
    if isinstance(model, Result):
        raise ArgumentError("model", Found("is a Result"), "an estimator where X and y are given", "A Result alone cannot predict.")
    return compare(model, X, y, epsilons=epsilons)


def scores(model: Any, X: Any, y: NDArray[Any], *, like: Any = None) -> dict[str, float]:
    """Scores of predictions; the first is the one that figures show."""
    task = model if like is None else like
    if not hasattr(task, "classes_"):
        error = y - model.predict(X)
        values = {"mean absolute error": float(np.mean(np.abs(error))), "root mean square error": float(np.sqrt(np.mean(error**2)))}
        quantile = getattr(task, "quantile", None)
        if quantile is None:
            return values
        return {"pinball loss": float(np.mean(np.maximum(quantile * error, (quantile - 1) * error)))} | values
    values = {"accuracy": float(np.mean(model.predict(X) == y))}
    if hasattr(task, "predict_proba"):
        place = {label: index for index, label in enumerate(model.classes_.tolist())}
        chances = np.column_stack([model.predict_proba(X), np.zeros(len(y))])  # the last for a class that it has never seen
        likely = chances[np.arange(len(y)), [place.get(label, -1) for label in y.tolist()]]
        values["log-loss"] = float(-np.mean(np.log(np.maximum(likely, 1e-12))))
    return values


def course(model: Any, X: Any, y: NDArray[Any]) -> tuple[tuple[int, float], ...]:
    """Scores at points that rounds asked about, except for the very first, where nothing has been learned."""
    model, X = _without_names(model, X)
    if not hasattr(model, "result_") or not hasattr(model, "_set_theta"):  # not trained in rounds, or not by gradients
        return ()
    result = model.result_
    asked = [entry for entry in result.history if result.schedule.phases[entry.phase - 1].descends]
    history = asked[1:] or asked or result.history
    places = sorted({round(i * (len(history) - 1) / (_MOST_ROUNDS - 1)) for i in range(_MOST_ROUNDS)})
    return tuple((history[i].index, next(iter(scores(_at(model, history[i].theta), X, y).values()))) for i in places)


def as_trained(model: Any, X: Any) -> Any:
    """Rows as the model takes them: within feature_range, and those longer than feature_norm scaled down to it."""
    from ..estimator._linear import LinearModel  # noqa: PLC0415  (needed here for public data only)
    from ..problem.problem import clip_rows  # noqa: PLC0415

    return model._taken(X) if isinstance(model, LinearModel) else clip_rows(X, model.feature_norm_)


def bits_per_user(model: Any) -> int:
    """What a person sends at most."""
    if hasattr(model, "result_"):
        return int(model.schedule_.bits_per_user)
    plans = [model.plan_] if hasattr(model, "plan_") else model.rounds_.planned.plans
    return max(int(plan.bits_per_user) for plan in plans)


def _at(model: Any, theta: NDArray[np.float64]) -> Any:
    """The model with other weights: those of a point on the way."""
    there = copy.copy(model)
    there._set_theta(theta)
    return there


def _refitted(model: Any, epsilon: float, X: Any, y: NDArray[Any], train: NDArray[np.int64], test: NDArray[np.int64]) -> float:
    from sklearn import clone  # noqa: PLC0415

    from ..estimator import PrivacyAccount  # noqa: PLC0415

    # an account of its own: nobody's budget is spent by fitting public data again
    fresh = clone(model).set_params(epsilon=epsilon, account=PrivacyAccount())
    return next(iter(scores(fresh.fit(X[train], y[train]), X[test], y[test]).values()))


def _without_privacy(model: Any) -> tuple[Any, Any, str]:
    """scikit-learn's estimator for the same task, the best constant, and the former's name."""
    from sklearn import dummy, linear_model, svm  # noqa: PLC0415  (slow to import, and needed with public data only)

    if hasattr(model, "predict_proba"):
        plain: Any = linear_model.LogisticRegression(C=100.0, max_iter=500)
    elif hasattr(model, "classes_"):
        plain = svm.LinearSVC(dual=False)
    elif hasattr(model, "quantile"):
        plain = linear_model.QuantileRegressor(quantile=model.quantile, alpha=0.0)
    else:
        plain = linear_model.Ridge(alpha=1e-3)
    if hasattr(model, "classes_"):
        constant: Any = dummy.DummyClassifier(strategy="prior")
    else:
        constant = dummy.DummyRegressor(strategy="quantile", quantile=getattr(model, "quantile", 0.5))
    return plain, constant, type(plain).__name__


def _without_names(model: Any, X: Any) -> tuple[Any, Any]:
    """The model and its rows as plain arrays, columns in the model's order."""
    model = copy.copy(model)
    names = vars(model).pop("feature_names_in_", None)
    if names is not None and hasattr(X, "columns"):
        X = X[list(names)]
    return model, X.tocsr() if hasattr(X, "tocsr") else np.asarray(X)


def _some(X: Any, y: NDArray[Any], most: int) -> tuple[Any, NDArray[Any]]:
    if len(y) <= most:
        return X, y
    some = np.sort(np.random.default_rng(0).permutation(len(y))[:most])
    return X[some], y[some]


def _split(rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    order = np.random.default_rng(0).permutation(rows)
    tests = max(1, round(_TEST_SHARE * rows))
    return order[tests:], order[:tests]
