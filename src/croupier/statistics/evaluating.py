"""`evaluate`: a model on people who were not trained on, in one private round."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..privacy import Guarantee
from ..privacy import _statements as words
from ..privacy.guarantee import Neighbours
from ..validation import ArgumentError, real
from .asking import Account, Answer, ask
from .error_bars import Score
from .evaluation import Classification, RangedModel, Regression
from .scores import CellCounts, Errors


@dataclass(frozen=True, eq=False)
class Evaluation:
    """How good a model is, with error bars for sampling and privacy noise together.

    Parameters
    ----------
    counts : CellCounts or Errors
        What the scores follow from. `CellCounts` also has the confusion matrix, the ROC curve and the calibration, `Errors` of a
        quantile regressor its calibration in `bins`.
    answer : Answer
        The private round, with its plan and guarantee.
    promise : str
        The guarantee in words, or that there is none.

    Attributes
    ----------
    scores : dict of str to Score
        By name, each with `value`, `std`, `interval` and `baseline`, the score of the best constant answer.
    shown : dict of str to Score
        The scores, and of more than two classes the AUC of each against the rest.
    users : int
        How many people were asked.
    guarantee : Guarantee or None
        What the scores reveal about one user; None where they are NOT private.

    Guarantee
    ---------
    That of `answer`, for all scores together.

    Examples
    --------
    >>> import numpy as np, croupier as cr
    >>> from sklearn.linear_model import LogisticRegression
    >>> X = np.random.default_rng(0).normal(size=(5_000, 2))
    >>> model = LogisticRegression().fit(X[:99], X[:99, 0] > 0)
    >>> evaluation = cr.evaluate(model, (X, X[:, 0] > 0), epsilon=1.0, delta=1e-6)
    >>> evaluation.users, sorted(evaluation.scores)
    (5000, ['AUC', 'accuracy', 'balanced accuracy', 'log-loss'])
    """

    counts: CellCounts | Errors
    answer: Answer
    promise: str

    @property
    def scores(self) -> dict[str, Score]:
        """The scores by name, with error bars and baselines."""
        return self.counts.scores

    @property
    def shown(self) -> dict[str, Score]:
        """The scores, and of more than two classes the AUC of each against the rest."""
        counts = self.counts
        if not isinstance(counts, CellCounts) or counts.one_vs_rest is None:
            return self.scores
        return self.scores | {f"AUC of {label}": area for label, area in counts.one_vs_rest.areas.items()}

    @property
    def users(self) -> int:
        """How many people were asked."""
        return self.answer.users

    @property
    def guarantee(self) -> Guarantee | Any:
        """What the scores reveal about one user; None where it was seeded: NOT private then."""
        return self.answer.guarantee

    def to_dict(self) -> dict[str, Any]:
        """Return scores with error bars and baselines, and the guarantee, in plain JSON types.

        Returns
        -------
        dict
            "users", "scores" and "guarantee", which is None where the scores are NOT private.
        """
        scores: dict[str, Any] = {
            name: {"value": score.value, "std": score.std, "baseline": score.baseline} for name, score in self.scores.items()
        }
        if isinstance(self.counts, CellCounts):
            scores["confusion"] = {
                "classes": list(self.counts.classes),
                "counts": self.counts.confusion.tolist(),
                "std": self.counts.confusion_std.tolist(),
            }
            if self.counts.one_vs_rest is not None:
                scores["AUC"]["classes"] = [
                    {"class": label, "value": area.value, "std": area.std} for label, area in self.counts.one_vs_rest.areas.items()
                ]
        elif self.counts.bins is not None:
            scores["at or below"]["bins"] = self.counts.bins.to_list()
        return {"users": self.users, "scores": scores, "guarantee": self.guarantee.to_dict() if self.guarantee else None}

    def __str__(self) -> str:
        lines = [
            f"{self.users:,} people, one private round; {self.promise}",
            f"{'':18} {'score':>9}    {'95 % interval':<20} constant answer",
        ]
        for name, score in self.shown.items():
            low, high = score.interval
            constant = "" if score.baseline is None else f"{score.baseline:.4g}"
            lines.append(f"{name:18} {score.value:>9.4g}    {f'{low:.4g} .. {high:.4g}':<20} {constant}")
        if isinstance(self.counts, Errors) and self.counts.bins is not None:
            lines.append(str(self.counts.bins))
        return "\n".join(lines)


def evaluate(
    model: Any,
    data: Any,
    *,
    epsilon: float,
    delta: float | None = None,
    groups: Any = None,
    honest: float = 1.0,
    neighbours: Neighbours = "replace-one",
    target_range: tuple[float, float] | None = None,
    seed: int | None = None,
    account: Account | None = None,
) -> Evaluation:
    """Score a model privately on people whose truth is known. Each person is asked once.

    Parameters
    ----------
    model : estimator
        A fitted regressor, or a fitted classifier (with `classes_`, and `predict_proba`, `decision_function` or, for more classes,
        `predict`).
    data : tuple of (X, y) or Population
        The people, with their true labels or targets.
    epsilon : float
        What each user is promised, with delta.
    delta : float, optional
        What each user is promised, with epsilon; below 1 / users. Default: 1e-6, or 0.1 / users if that is less.
    groups : array_like, optional
        For data in memory: whose row each is.
    honest : float, default 1.0
        Fraction of the users whose noise is counted on.
    neighbours : {"replace-one", "zero-out"}, default "replace-one"
        The relation for which the guarantee is proved; see `plan_sum`.
    target_range : tuple of (float, float), optional
        Lowest and highest target of a regressor; the model's own `target_range_` where it is left out.
    seed : int, optional
        Fixes the noise, for tests: the scores are NOT private.
    account : Account, optional
        Charged before anybody is asked.

    Returns
    -------
    Evaluation
        Accuracy, balanced accuracy and confusion matrix; for two classes also AUC, ROC, calibration and log-loss, for more classes
        with probabilities AUC of each against the rest, their mean, and log-loss. For numbers MAE, MSE, R^2 and the share of
        targets at or below the prediction, for a quantile regressor also by bins of the prediction. All scores stand beside the
        best constant answer.

    Raises
    ------
    ArgumentError
        A bad argument, a model that cannot be scored, or labels that it does not know; nobody was asked, and nothing was spent.

    Guarantee
    ---------
    (epsilon, delta) for each user, for all scores together.

    Examples
    --------
    >>> import numpy as np, croupier as cr
    >>> from sklearn.linear_model import LogisticRegression
    >>> X = np.random.default_rng(0).normal(size=(20_000, 2))
    >>> y = X[:, 0] + np.random.default_rng(1).normal(size=20_000) > 0
    >>> evaluation = cr.evaluate(LogisticRegression().fit(X[:99], y[:99]), (X, y), epsilon=1.0, delta=1e-6)
    >>> accuracy = evaluation.scores["accuracy"]
    >>> accuracy.std < 0.005, 0.7 < accuracy.value < 0.8
    (True, True)
    """
    query = evaluation_query(model, target_range)
    answer = ask(
        query, data, epsilon=epsilon, delta=delta, groups=groups, honest=honest, neighbours=neighbours, seed=seed, account=account
    )
    return evaluated(answer)


def evaluated(answer: Answer) -> Evaluation:
    """Return the evaluation that an answer to `evaluation_query` gives.

    Parameters
    ----------
    answer : Answer
        The round.

    Returns
    -------
    Evaluation
        With the promise in words.
    """
    promise = words.brief(answer.plan.epsilon, answer.plan.delta, answer.plan.neighbours)
    return Evaluation(answer.value, answer, promise if answer.private else f"NOT PRIVATE ({words.SEEDED})")


def evaluation_query(model: Any, target_range: tuple[float, float] | None = None) -> Classification | Regression:
    """Return the query that `evaluate` asks about a model.

    Parameters
    ----------
    model : estimator
        A fitted regressor or classifier, as `evaluate` takes it.
    target_range : tuple of (float, float), optional
        Lowest and highest target of a regressor; the model's own where it is left out.

    Returns
    -------
    Statistic
        With its norm, its diameter and its decoder.

    Raises
    ------
    ArgumentError
        For a model that cannot be scored.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> evaluation_query(LogisticRegression().fit([[0.0], [1.0]], [0, 1])).norm
    1.0
    """
    if not hasattr(model, "predict"):
        raise ArgumentError("model", type(model).__name__, "a fitted estimator with predict", "Fit one, or load_model a file.")
    if hasattr(model, "classes_"):
        classes = np.asarray(model.classes_)
        scored = hasattr(model, "predict_proba") or hasattr(model, "decision_function")
        if classes.ndim != 1 or len(classes) < 2 or (len(classes) == 2 and not scored):
            allowed = "a classifier of one target with scores"
            raise ArgumentError("model", type(model).__name__, allowed, "It needs predict_proba or decision_function.")
        return Classification(model)
    remedy = "Give (low, high) that you can defend without having seen the data; targets outside are clipped to it."
    declared = model.target_range_ if target_range is None and isinstance(model, RangedModel) else target_range
    ends: Any = None
    with contextlib.suppress(TypeError, ValueError):
        ends = np.asarray(declared, dtype=np.float64).ravel()
    if ends is None or ends.shape != (2,):
        raise ArgumentError("target_range", target_range, "(low, high) of one target", remedy)
    low = real("target_range", ends[0], above=-1e100, below=1e100, remedy=remedy)
    return Regression(model, low, real("target_range", ends[1], above=low, below=1e100, remedy=remedy))
