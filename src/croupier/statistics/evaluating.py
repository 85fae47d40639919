"""`evaluate`: a model on people who were not trained on, in one private round."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Any, NoReturn, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ..files import Figures
from ..population import Query
from ..privacy import Guarantee
from ..privacy import _statements as words
from ..privacy.guarantee import Neighbours
from ..protocol import SumEstimate
from ..validation import ArgumentError, Found, RecordError, real
from ._scores import BINS as QUANTILE_BINS
from ._scores import LOSS, RANKS, RIGHT_OF_SEVERAL, SQUARE, CellCounts, Errors, OneVsRest, QuantileBins, cell_vectors, class_vectors
from ._scores import WEIGHT as CELL
from .asking import Account, Answer, ask
from .histogram import Score, scored_total, unit_root
from .query import finite, require_numbers

# How good a model is on people who were not trained on, in one private round: the queries, and what is read from their sums.
#
# A classifier's cells are (score bin, label) for two classes, (predicted, true) for more. A user sends its cell, for two classes by
# a square root of prefix sums, and whether the prediction is right. Both are linear in the counts of cells, and the number of users
# is known, so least squares gives the counts, and every score with the covariance of its noise. Of more than two classes with
# probabilities it also sends what `one_vs_rest` says. docs/statistics-theory.md has the ranges.

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
# Weight of "right or wrong" in a classifier's vector: accuracy is what is looked at first.
RIGHT = math.sqrt(0.2)
BINS = 40
# Weights of a regressor's six numbers: the squared error is what is looked at first, and the smallest.
WEIGHTS = np.array([0.5, 1.0, 0.25, 0.5, 0.5, 0.3])


@runtime_checkable
class RangedModel(Protocol):
    """A regressor that declares the range of its target: (low, high), or one pair per target."""

    target_range_: Any


@runtime_checkable
class QuantileModel(Protocol):
    """A regressor that predicts a quantile of the target."""

    quantile: float


@dataclass(frozen=True)
class Classification(Query):
    """The cells of a classifier's answers, and whether they are right.

    The vector is (sqrt(1 - w^2) v, w r), v a vector of length at most 1 without negative entries, r = +-1 for right or wrong: norm
    1, and two are at most sqrt(2 (1 - w^2) + 4 w^2) apart. v is the cell; of more than two classes with probabilities the cell and
    `class_vectors`, which have their shares of its squared length. An answer that is not finite is sent as zero.
    """

    model: Any
    bins: int = BINS

    @cached_property
    def classes(self) -> NDArray[Any]:
        """The model's classes."""
        return np.asarray(self.model.classes_)

    @property
    def binary(self) -> bool:
        """Whether there are two classes, so that answers have a score."""
        return len(self.classes) == 2

    @property
    def probabilities(self) -> bool:
        """Whether the score is a probability."""
        return hasattr(self.model, "predict_proba")

    @property
    def one_vs_rest(self) -> bool:
        """Whether there are more than two classes, and probabilities of them."""
        return not self.binary and self.probabilities

    @property
    def weight(self) -> float:
        """Of "right or wrong", w."""
        return RIGHT_OF_SEVERAL if self.one_vs_rest else RIGHT

    @cached_property
    def edges(self) -> Floats:
        """Of score bins in [0, 1]: finer at the ends, one edge where the model decides."""
        edges = np.sin(np.linspace(0, np.pi / 2, self.bins + 1)) ** 2
        edges[self.bins // 2] = 0.5  # as computed it is less, and a score of 1/2, which predicts the first class, lay above it
        if self.threshold != 0.5:  # as many bins on either side of where the model decides
            middle = self.bins // 2
            edges[: middle + 1] *= 2 * self.threshold
            edges[middle:] = 1 - 2 * (1 - self.threshold) * (1 - edges[middle:])
            edges[middle] = self.threshold
        return np.asarray(edges)

    @cached_property
    def threshold(self) -> float:
        """The score above which the model says the second class: 1/2, or one that it states as scikit-learn's do."""
        for name in ("best_threshold_", "threshold"):
            stated = getattr(self.model, name, None)
            if isinstance(stated, Real) and not isinstance(stated, bool):
                score = float(stated) if self.probabilities else float(expit(float(stated)))
                return score if 0.01 < score < 0.99 else 0.5
        return 0.5

    @property
    def cells(self) -> int:
        return 2 * self.bins if self.binary else len(self.classes) ** 2

    @cached_property
    def right(self) -> Floats:
        """+1 for the cells of right answers, -1 for the others. Cells of label 0 come first, then of label 1."""
        if self.binary:
            above = np.arange(self.bins) >= self.bins // 2
            return np.concatenate([np.where(above, -1.0, 1.0), np.where(above, 1.0, -1.0)])
        return np.where(np.eye(len(self.classes), dtype=bool).ravel(), 1.0, -1.0)

    @cached_property
    def measured(self) -> Floats:
        """What is sent of each cell, in columns: linear in the counts of cells."""
        block = unit_root(self.bins) if self.binary else np.eye(self.cells)
        parts = np.kron(np.eye(2), block) if self.binary else block
        others = RANKS + LOSS + SQUARE if self.one_vs_rest else 0.0
        return np.vstack([math.sqrt(1 - self.weight**2 - others) * parts, self.weight * self.right])

    norm = 1.0

    @property
    def diameter(self) -> float:
        return math.sqrt(2 * (1 - self.weight**2) + 4 * self.weight**2)

    @property
    def dim(self) -> int:
        return self.cells + 1 + (2 * self.bins * len(self.classes) + 2 if self.one_vs_rest else 0)

    def check_records(self, X: Any, y: Any) -> None:
        """Refuse labels that the model does not know, and rows that it cannot score."""
        if y is None:
            raise ArgumentError("data", Found("is X alone"), "(X, y)", "Pass the true labels.")
        known = np.isin(np.asarray(y), self.classes)
        if not known.all():
            odd = np.asarray(y)[~known][:1].tolist()[0]
            raise RecordError(
                "y", odd, f"one of the model's classes {self.classes.tolist()}", "Drop such people; nobody was asked."
            )
        _require_scores((self.cell_of(X, y) >= 0).all())
        if self.one_vs_rest:
            _require_scores(not np.isnan(self._class_probabilities(X)).any())

    def __call__(self, X: Any, y: Any) -> Floats:
        cells = self.cell_of(X, y)
        vectors = self.measured.T[np.maximum(cells, 0)]
        if self.one_vs_rest:
            probabilities = self._class_probabilities(X)
            cells = np.where(np.isnan(probabilities).any(axis=1), -1, cells)
            label = np.maximum(cells, 0) % len(self.classes)
            vectors = np.hstack([vectors, class_vectors(probabilities, label, self.edges)])
        return finite(np.where((cells >= 0)[:, np.newaxis], vectors, 0.0))

    def cell_of(self, X: Any, y: Any) -> Integers:
        """The cell of every record; -1 where the label is not known or the score is not a number."""
        label = np.where(np.isin(y, self.classes), self._places(y), -1)
        if not self.binary:
            said = _one_a_row("predict", self.model.predict(X), len(label))
            answer = self._places(said)
            return np.where((label < 0) | (self.classes[answer] != said), -1, answer * len(self.classes) + label)
        score = self._class_probabilities(X)[:, 1] if self.probabilities else expit(self._margins(X))
        place = np.clip(np.searchsorted(self.edges, score, side="left") - 1, 0, self.bins - 1)
        # on the side of what the model says: it may decide elsewhere than where its scores are alike
        half, said = self.bins // 2, _one_a_row("predict", self.model.predict(X), len(label)) == self.classes[1]
        place = np.where(said, np.maximum(place, half), np.minimum(place, half - 1))
        return np.where((label < 0) | np.isnan(score), -1, label * self.bins + place)

    def _class_probabilities(self, X: Any) -> Floats:
        """One column per class."""
        found, shape = _numbers("predict_proba", self.model.predict_proba(X)), (np.shape(X)[0], len(self.classes))
        if found.shape != shape:
            _refuse_answers("predict_proba", f"an array of shape {found.shape}", f"{shape}: a row per record, a column per class")
        return found

    def _margins(self, X: Any) -> Floats:
        return _one_a_row("decision_function", _numbers("decision_function", self.model.decision_function(X)), np.shape(X)[0])

    def _places(self, labels: Any) -> Integers:
        """Where labels stand among the classes, in whatever order the model has them; any place for others."""
        order = np.argsort(self.classes)
        found = np.searchsorted(self.classes, labels, sorter=order)
        return np.asarray(order[np.minimum(found, len(order) - 1)])

    def decode(self, estimate: SumEstimate) -> CellCounts:
        """Counts of cells by least squares, with the known number of people imposed, and the covariance of their noise.

        Of devices some may have sent zero, having no score: where that is beyond doubt, only the others are counted.
        """
        first, rest = np.split(np.asarray(estimate.sum), [self.cells + 1])
        counts, covariance, scored = scored_total(self.measured, first, estimate.noise_std, estimate.users)
        classes = tuple(self.classes.tolist())
        return CellCounts(
            counts=counts,
            covariance=covariance,
            users=scored,
            right=self.right,
            classes=classes,
            edges=self.edges if self.binary else None,
            probabilities=self.binary and self.probabilities,
            one_vs_rest=OneVsRest.read(rest, estimate.noise_std, scored, classes, self.bins) if self.one_vs_rest else None,
        )


@dataclass(frozen=True)
class Regression(Query):
    """A regressor's errors: |r|, r^2, r^4, y, y^2 and whether y is at most the prediction, each in [0, 1] times its weight.

    r is the error divided by the width of the target's range, predictions and targets clipped to it. Two vectors differ by at most
    the weight in each coordinate: norm and diameter are the length of the weights. Of a quantile regressor it also sends the
    `cell_vectors` of weight c: they add c^2 to the squared norm, and 2 c^2 to the squared diameter.
    """

    model: Any
    low: float
    high: float

    @cached_property
    def quantile(self) -> float | None:
        """The quantile that the model predicts; None if it predicts something else."""
        declared = self.model.quantile if isinstance(self.model, QuantileModel) else None
        return float(declared) if isinstance(declared, Real) and 0 < float(declared) < 1 else None

    @property
    def dim(self) -> int:
        return len(WEIGHTS) + (0 if self.quantile is None else 2 * QUANTILE_BINS)

    @property
    def norm(self) -> float:
        return math.hypot(*WEIGHTS, 0.0 if self.quantile is None else CELL)

    @property
    def diameter(self) -> float:
        return math.hypot(*WEIGHTS, 0.0 if self.quantile is None else math.sqrt(2) * CELL)

    def check_records(self, X: Any, y: Any) -> None:
        """Refuse records without targets."""
        if y is None:
            raise ArgumentError("data", Found("is X alone"), "(X, y)", "Pass the true targets.")
        require_numbers(y)
        _require_scores(not np.isnan(self._answers(X)).any())

    def __call__(self, X: Any, y: Any) -> Floats:
        width = self.high - self.low
        target = (np.clip(np.asarray(y, dtype=np.float64), self.low, self.high) - self.low) / width
        answer = (np.clip(self._answers(X), self.low, self.high) - self.low) / width
        error = np.abs(target - answer)
        below = target <= answer
        vectors = np.column_stack([error, error**2, error**4, target, target**2, below.astype(np.float64)]) * WEIGHTS
        if self.quantile is not None:
            vectors = np.hstack([vectors, cell_vectors(answer, below)])
        known = ~(np.isnan(target) | np.isnan(answer))
        return finite(vectors) * known[:, np.newaxis]

    def _answers(self, X: Any) -> Floats:
        return _one_a_row("predict", _numbers("predict", self.model.predict(X)), np.shape(X)[0])

    def decode(self, estimate: SumEstimate) -> Errors:
        """Mean errors in the target's unit; of a quantile regressor also its calibration."""
        numbers, bins = len(WEIGHTS), None
        if self.quantile is not None:
            sums, ends = np.asarray(estimate.sum)[numbers - 1 :], (self.low, self.high)
            bins = QuantileBins.read(sums, WEIGHTS[-1], estimate.noise_std, estimate.users, self.quantile, ends)
        means, noise = estimate.mean[:numbers] / WEIGHTS, estimate.mean_noise_std / WEIGHTS
        return Errors(means, noise, estimate.users, self.high - self.low, bins)


def _numbers(method: str, found: Any) -> Floats:
    """What a model answers, as numbers."""
    try:
        return np.asarray(found, dtype=np.float64)
    except (TypeError, ValueError):
        _refuse_answers(method, "something that is not a number", "numbers")


def _one_a_row(method: str, found: Any, rows: int) -> NDArray[Any]:
    """What a model answers, one entry for each record; a single column is one, too."""
    answers = np.asarray(found)
    if answers.shape not in ((rows,), (rows, 1)):
        _refuse_answers(method, f"an array of shape {answers.shape}", f"({rows},): an entry per record")
    return answers.reshape(rows)


def _refuse_answers(method: str, found: str, allowed: str) -> NoReturn:
    """Refuse a model that answers in another shape than it should."""
    remedy = "Correct the model; nobody was asked, and nothing was spent."
    raise ArgumentError(f"model.{method}(X)", found, allowed, remedy)


def _require_scores(all_there: Any) -> None:
    """Refuse a model that answers some rows with what is no score: counted as nothing, they would bias the others' scores."""
    if not all_there:
        remedy = "Correct the model, or drop rows that it cannot score; nobody was asked."
        raise RecordError("model", Found("has no number for some row"), "one that scores every row", remedy)


@dataclass(frozen=True, eq=False)
class Evaluation(Figures):
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
        Number of people asked.
    guarantee : Guarantee or None
        What the scores reveal about one user; None if they are NOT private.

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
        """What the scores reveal about one user; None if it was seeded: NOT private then."""
        return self.answer.guarantee

    def to_dict(self) -> dict[str, Any]:
        """Return scores with error bars and baselines, and the guarantee, in plain JSON types.

        Returns
        -------
        dict
            "users", "scores" and "guarantee", which is None if the scores are NOT private.
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

    def figures(self) -> list[dict[str, Any]]:
        """Return one row per score.

        Returns
        -------
        list of dict
            "score", "value", "std", "low", "high" and "baseline".
        """
        rows = []
        for name, score in self.shown.items():
            low, high = score.interval
            facts = {"score": name, "value": score.value, "std": score.std, "low": low, "high": high}
            rows.append(facts | {"baseline": score.baseline})
        return rows

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
        Epsilon of the promise to each user.
    delta : float, optional
        Delta of the promise to each user; below 1 / users. Default: 1e-6, or 0.1 / users if that is less.
    groups : array_like, optional
        For data in memory: the person of each row.
    honest : float, default 1.0
        Fraction of the users whose noise is counted on.
    neighbours : {"replace-one", "zero-out"}, default "replace-one"
        The relation for which the guarantee is certified; see `plan_sum`.
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
        targets at or below the prediction, for a quantile regressor also by bins of the prediction. All scores come with the
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
    """Return the evaluation that an answer to `evaluation_query` gives."""
    promise = words.brief(answer.plan.epsilon, answer.plan.delta, answer.plan.neighbours)
    return Evaluation(answer.value, answer, promise if answer.private else f"NOT PRIVATE ({words.SEEDED})")


def evaluation_query(model: Any, target_range: tuple[float, float] | None = None) -> Classification | Regression:
    """Return the query that `evaluate` asks about a model."""
    if not hasattr(model, "predict"):
        raise ArgumentError("model", type(model).__name__, "a fitted estimator with predict", "Fit one, or load_model a file.")
    if hasattr(model, "classes_"):
        classes = np.asarray(model.classes_)
        scored = hasattr(model, "predict_proba") or hasattr(model, "decision_function")
        if classes.ndim != 1 or len(classes) < 2 or (len(classes) == 2 and not scored):
            allowed = "a classifier of one target with scores"
            raise ArgumentError("model", type(model).__name__, allowed, "It needs predict_proba or decision_function.")
        return Classification(model)
    remedy = "State (low, high) that you can justify without having seen the data; targets outside are clipped to it."
    declared = model.target_range_ if target_range is None and isinstance(model, RangedModel) else target_range
    ends: Any = None
    with contextlib.suppress(TypeError, ValueError):
        ends = np.asarray(declared, dtype=np.float64).ravel()
    if ends is None or ends.shape != (2,):
        raise ArgumentError("target_range", target_range, "(low, high) of one target", remedy)
    low = real("target_range", ends[0], above=-1e100, below=1e100, remedy=remedy)
    return Regression(model, low, real("target_range", ends[1], above=low, below=1e100, remedy=remedy))
