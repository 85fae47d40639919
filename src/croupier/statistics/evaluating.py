"""`evaluate`: a model on people who were not trained on, in one private round."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..privacy import Guarantee, words
from ..validation import ArgumentError, real
from .asking import Account, Answer, ask
from .evaluation import Classification, Regression
from .scores import CellCounts, Errors, Score


@dataclass(frozen=True, eq=False)
class Evaluation:
    """How good a model is, with error bars for sampling and privacy noise together.

    Attributes
    ----------
    scores : by name, each with `value`, `std`, `interval` and `baseline`, that of the best constant answer.
    counts : what they were made from: `CellCounts` (confusion, roc, calibration) or `Errors`.
    answer : the round, with its plan and guarantee.
    """

    counts: CellCounts | Errors
    answer: Answer
    promise: str

    @property
    def scores(self) -> dict[str, Score]:
        return self.counts.scores

    @property
    def users(self) -> int:
        """How many people were asked."""
        return self.answer.users

    @property
    def guarantee(self) -> Guarantee | None:
        """What the scores reveal about one user; None where it was seeded: NOT private then."""
        return self.answer.guarantee

    def to_dict(self) -> dict[str, Any]:
        """Scores with error bars and baselines, and the guarantee, in plain JSON types."""
        found: dict[str, Any] = {
            name: {"value": score.value, "std": score.std, "baseline": score.baseline} for name, score in self.scores.items()
        }
        if isinstance(self.counts, CellCounts):
            found["confusion"] = {
                "classes": list(self.counts.classes),
                "counts": self.counts.confusion.tolist(),
                "std": self.counts.confusion_std.tolist(),
            }
        return {"users": self.users, "scores": found, "guarantee": self.guarantee.to_dict() if self.guarantee else None}

    def __str__(self) -> str:
        lines = [
            f"{self.users:,} people, one private round; {self.promise}",
            f"{'':18} {'score':>9}    {'95 % interval':<20} constant answer",
        ]
        for name, score in self.scores.items():
            low, high = score.interval
            constant = "" if score.baseline is None else f"{score.baseline:.4g}"
            lines.append(f"{name:18} {score.value:>9.4g}    {f'{low:.4g} .. {high:.4g}':<20} {constant}")
        return "\n".join(lines)


def evaluate(
    model: Any,
    data: Any,
    *,
    epsilon: float,
    delta: float,
    groups: Any = None,
    honest: float = 1.0,
    neighbours: str = "replace-one",
    target_range: tuple[float, float] | None = None,
    seed: int | None = None,
    account: Account | None = None,
) -> Evaluation:
    """Score a model on people whose truth is known, privately: they are asked once.

    Parameters
    ----------
    model : a fitted classifier (with `classes_`, and `predict_proba`, `decision_function` or, for more classes, `predict`) or
        regressor. data : (X, y), or a population of them. target_range : (low, high) of a regressor's target; its own unless given.
    epsilon, delta, groups, honest, neighbours, seed, account : as in `ask`.

    Returns
    -------
    Evaluation : accuracy, balanced accuracy, confusion matrix, for two classes AUC, ROC, calibration and log-loss; for numbers MAE,
        MSE, R^2 and the share of targets at or below the prediction. All beside the best constant answer.

    Guarantee
    ---------
    (epsilon, delta) for each user, for all scores together.

    Examples
    --------
    >>> import numpy as np, croupier as cr
    >>> from sklearn.linear_model import LogisticRegression
    >>> X = np.random.default_rng(0).normal(size=(20_000, 2))
    >>> y = X[:, 0] + np.random.default_rng(1).normal(size=20_000) > 0
    >>> found = cr.evaluate(LogisticRegression().fit(X[:99], y[:99]), (X, y), epsilon=1.0, delta=1e-6)
    >>> found.scores["accuracy"].std < 0.005, 0.7 < found.scores["accuracy"].value < 0.8
    (True, True)
    """
    query = _query(model, target_range)
    answer = ask(
        query, data, epsilon=epsilon, delta=delta, groups=groups, honest=honest, neighbours=neighbours, seed=seed, account=account
    )
    promise = words.brief(answer.plan.epsilon, answer.plan.delta, neighbours)
    return Evaluation(answer.value, answer, promise if answer.private else f"NOT PRIVATE ({words.SEEDED})")


def _query(model: Any, target_range: Any) -> Classification | Regression:
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
    ends: Any = None
    with contextlib.suppress(TypeError, ValueError):
        ends = np.asarray(getattr(model, "target_range_", None) if target_range is None else target_range, dtype=np.float64).ravel()
    if ends is None or ends.shape != (2,):
        raise ArgumentError("target_range", target_range, "(low, high) of one target", remedy)
    low = real("target_range", ends[0], above=-1e100, below=1e100, remedy=remedy)
    return Regression(model, low, real("target_range", ends[1], above=low, below=1e100, remedy=remedy))
