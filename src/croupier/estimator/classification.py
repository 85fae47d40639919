"""Classifiers: logistic regression for two or more classes, and the support vector machine."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax
from sklearn.utils.validation import check_is_fitted

from ..problem import CappedLogistic, CappedMultinomial, Hinge, Logistic, Loss, Multinomial, SmoothedHinge, SquaredHinge
from ..problem.classification import Weighted
from ..validation import ArgumentError, one_of
from ._linear import LinearModel
from ._parameters import documented
from ._rows import DeclaredClasses, Floats, weighted_loss

# Log-odds this close to 0 are 0 except for rounding.
TIE_TOLERANCE = 1e-9


@dataclass(kw_only=True, eq=False, repr=False)
class LinearClassifier(DeclaredClasses, LinearModel):
    """Labels from declared classes, scores, and the class of the largest."""

    class_weight: dict[Any, float] | None = None

    def _declare_target(self, y: NDArray[Any] | None) -> None:
        self._declare_classes(y)

    def _targets(self, y: NDArray[Any]) -> NDArray[Any]:
        return self._class_indices(y)

    def _set_weights(self, weights: Floats, intercepts: Floats) -> None:
        self.coef_, self.intercept_ = weights, intercepts

    def decision_function(self, X: Any) -> Floats:
        """Return the scores of rows.

        Parameters
        ----------
        X : array-like or sparse array of shape (rows, features)
            Rows; clipped to feature_range and scaled down to feature_norm, as in training.

        Returns
        -------
        ndarray
            One score per row for two classes, positive for the second; one per row and class for more.

        Raises
        ------
        NotFittedError
            Before `fit`.
        """
        return _flat(self._scores(X))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class of the largest score.

        Parameters
        ----------
        X : array-like or sparse array of shape (rows, features)
            Rows; clipped to feature_range and scaled down to feature_norm, as in training.

        Returns
        -------
        ndarray of shape (rows,)
            One of `classes_` for every row.

        Raises
        ------
        NotFittedError
            Before `fit`.
        """
        scores = _flat(self._scores(X))
        return np.asarray(self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)])


@documented("coef_", "intercept_", "classes_", "capped_", "feature_norm_", "schedule_", "result_")
@dataclass(kw_only=True, eq=False, repr=False)
class ShuffleLogisticRegression(LinearClassifier):
    """Classification with probabilities, from people who keep their records.

    Algorithm: AC-SA on a capped logistic loss, or on the cross-entropy of the softmax, its slopes capped, for more than two
    `classes`. With interactivity="full", every user is asked in every round: more accurate, more bits. The cap halves the noise and
    leaves the minimiser where it is: on data from a logistic model, `coef_` and `intercept_` estimate its parameters (except for
    l2), for several classes up to a constant added to all of them. rule="bound", or a `clip`, trains on the logistic loss itself;
    where its gradients are clipped, `decision_function` and `predict_proba` undo what that does to scores, and `coef_` do not.

    Choose it for most classification; ShuffleLinearSVC where only the sign matters.

    Guarantee
    ---------
    (epsilon, delta) for each user, for the model and everything the analyzer saw while it was made (`guarantee_`, `explain()`).
    `classes`, `class_weight`, `feature_range`, `feature_norm` and `radius` are treated as public and never taken from the data,
    except with data_is_public=True.

    References
    ----------
    Cheu, Joseph, Mao, Peng, "Shuffle Private Stochastic Convex Optimization", ICLR 2022, Theorems 4.3 and 4.8.

    Examples
    --------
    >>> import numpy as np
    >>> from croupier.estimator import ShuffleLogisticRegression
    >>> X = np.random.default_rng(0).normal(size=(20_000, 3)) / 3
    >>> model = ShuffleLogisticRegression(epsilon=1.0, classes=["no", "yes"]).fit(X, np.where(X[:, 0] > 0, "yes", "no"))
    >>> print(model)  # doctest: +ELLIPSIS
    ShuffleLogisticRegression of 20000 users: epsilon = 1, delta = 1e-06, neighbours replace-one, sequential interactivity...
    >>> model.predict([[2.0, 0.0, 0.0]]).tolist()
    ['yes']
    """

    def _declare_target(self, y: NDArray[Any] | None) -> None:
        super()._declare_target(y)
        self.capped_ = self._caps()

    def _caps(self) -> bool:
        """Whether these parameters train on the capped loss."""
        return self.rule in ("centred", "scaled", "whitened") or (self.rule != "bound" and self.clip is None)

    def _check_plans(self, planned: Any) -> None:
        """Refuse another loss than rule, clip and the plans say."""
        super()._check_plans(planned)
        steepest = self._problem().lipschitz if self.capped_ is True else math.inf
        longer = any(phase.plan.norm > steepest * (1 + 1e-9) for phase in planned.phases if not phase.opens)
        if self.capped_ is not self._caps() or longer:
            allowed = f"{self._caps()}, by rule = {self.rule!r}, clip = {self.clip} and the plans beside them"
            raise ArgumentError("capped_", self.capped_, allowed, "Do not use this file.")

    def _loss(self) -> Loss:
        classes = len(self.classes_)
        if classes == 2:
            loss: Loss = CappedLogistic() if self.capped_ else Logistic()
        else:
            loss = (CappedMultinomial if self.capped_ else Multinomial)(classes=classes)
        return weighted_loss(loss, self.class_weight, self.classes_)

    def _meaning(self) -> list[str]:
        if "result_" not in vars(self):
            return []
        recast = any(phase.share is not None and phase.algorithm == "acsa" for phase in self.schedule_.phases)
        if recast:
            text = "Gradients were clipped on centred rows: coefficients have the signs of a logistic model's, not their size"
            if any(phase.algorithm == "line" for phase in self.schedule_.phases):
                text += ". The last rounds chose how long they are, by gradients that were clipped for all classes alike"
            else:
                text += ", and probabilities are those of clipped gradients"
            return [f"{text}.", *self._chosen_rule()]
        if not self.capped_ and self._clips():
            text = "Gradients of the logistic loss were clipped: coefficients are not the parameters of a logistic model, but have "
            return [f"{text}their signs. Predicted log-odds and probabilities are still what they say.", *self._chosen_rule()]
        alike = "" if len(self.classes_) == 2 else ", up to what is added to all classes alike"
        shrunk = "; l2 draws them towards 0" if self.l2 else ""
        text = "If labels follow a logistic model, coefficients and intercept estimate its parameters (log-odds per unit of a "
        focused = "If not, probabilities far from even may be too bold: people with even odds counted most, which gains accuracy. "
        focus = f' {focused}rule="whitened" lets all count alike.' if any(phase.focus for phase in self.schedule_.phases) else ""
        text += f"feature, for rows within the declared norm){alike}{shrunk}. They have no error bars; those of a logit do.{focus}"
        return [text, *self._chosen_rule()]

    def _clips(self) -> bool:
        """Whether gradients of the trained model's loss can be longer than what they were clipped to."""
        longest = self._problem().lipschitz
        return bool(self.schedule_.phases[-1].plan.norm < longest * (1 - 1e-9))

    def decision_function(self, X: Any) -> Floats:
        """Return the log-odds of rows: `predict_proba` is their sigmoid, or their softmax for more than two classes.

        Where gradients were clipped, the loss's minimiser is not the log-odds: among people whose scores give the probabilities p,
        class k has a share in proportion to p_k / w_k, w_k being the factor by which its gradients were scaled down.

        Parameters
        ----------
        X : array-like or sparse array of shape (rows, features)
            Rows; clipped to feature_range and scaled down to feature_norm, as in training.

        Returns
        -------
        ndarray
            One number per row for two classes, positive for the second; one per row and class for more.

        Raises
        ------
        NotFittedError
            Before `fit`.
        """
        scores = self._scores(X)
        if self.capped_:
            return _flat(scores)
        loss = self._loss()
        weights = np.asarray(loss.weights if isinstance(loss, Weighted) else np.ones(len(self.classes_)))
        return log_odds(scores, self._row_lengths(X), weights, self.schedule_.phases[-1].plan.norm)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the likeliest class.

        Where clipped gradients leave two classes alike, the score decides that was trained.

        Parameters
        ----------
        X : array-like or sparse array of shape (rows, features)
            Rows; clipped to feature_range and scaled down to feature_norm, as in training.

        Returns
        -------
        ndarray of shape (rows,)
            One of `classes_` for every row.

        Raises
        ------
        NotFittedError
            Before `fit`.
        """
        check_is_fitted(self)
        if self.capped_:
            return super().predict(X)
        odds = self.decision_function(X)
        if odds.ndim == 1:
            return np.asarray(self.classes_[(np.where(np.abs(odds) > TIE_TOLERANCE, odds, self._scores(X)[:, 0]) > 0).astype(int)])
        return np.asarray(self.classes_[odds.argmax(axis=1)])

    def predict_proba(self, X: Any) -> Floats:
        """Return one probability per row and class.

        With `class_weight` they are probabilities among people who count by these weights, and the largest is `predict`'s class.
        Those among people as they are: divide each column by its class's weight, and each row by its sum.

        Parameters
        ----------
        X : array-like or sparse array of shape (rows, features)
            Rows; clipped to feature_range and scaled down to feature_norm, as in training.

        Returns
        -------
        ndarray of shape (rows, classes)
            In the order of `classes_`; every row adds up to 1.

        Raises
        ------
        NotFittedError
            Before `fit`.
        """
        scores = self.decision_function(X)
        return np.asarray(softmax(scores, axis=1)) if scores.ndim == 2 else np.column_stack([expit(-scores), expit(scores)])

    def predict_log_proba(self, X: Any) -> Floats:
        """Return the logarithms of `predict_proba`.

        Parameters
        ----------
        X : array-like or sparse array of shape (rows, features)
            Rows; clipped to feature_range and scaled down to feature_norm, as in training.

        Returns
        -------
        ndarray of shape (rows, classes)
            In the order of `classes_`; -inf where a probability is 0.

        Raises
        ------
        NotFittedError
            Before `fit`.
        """
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))


@documented("coef_", "intercept_", "classes_", "feature_norm_", "schedule_", "result_")
@dataclass(kw_only=True, eq=False, repr=False)
class ShuffleLinearSVC(LinearClassifier):
    """Two classes, separated by a wide margin, from people who keep their records.

    Algorithm: AC-SA on the Moreau envelope of the hinge loss; on the loss itself for `loss="smoothed_hinge"` and
    "squared_hinge".

    Choose it where only the sign of the score matters; ShuffleLogisticRegression gives probabilities and more classes.

    Guarantee
    ---------
    (epsilon, delta) for each user, for the model and everything the analyzer saw while it was made (`guarantee_`, `explain()`).
    `classes`, `class_weight`, `feature_range`, `feature_norm` and `radius` are treated as public and never taken from the data,
    except with data_is_public=True.

    References
    ----------
    Cheu, Joseph, Mao, Peng, "Shuffle Private Stochastic Convex Optimization", ICLR 2022, Theorem 4.7.

    Examples
    --------
    >>> import numpy as np
    >>> from croupier.estimator import ShuffleLinearSVC
    >>> X = np.random.default_rng(0).normal(size=(5000, 2)) / 3
    >>> model = ShuffleLinearSVC(classes=[-1, 1], radius=10.0).fit(X, np.sign(X[:, 0]).astype(int))
    >>> model.predict([[2.0, 0.0], [-2.0, 0.0]]).tolist()
    [1, -1]
    """

    loss: Literal["hinge", "smoothed_hinge", "squared_hinge"] = "hinge"

    def _loss(self) -> Loss:
        losses = {"hinge": Hinge, "smoothed_hinge": SmoothedHinge, "squared_hinge": SquaredHinge}
        loss: Loss = losses[one_of("loss", self.loss, tuple(losses), "'hinge' is the usual one.")]()
        return weighted_loss(loss, self.class_weight, self.classes_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


def log_odds(scores: Floats, lengths: Floats, weights: Floats, norm: float) -> Floats:
    """Undo what the clipping of a logistic loss's gradients does to scores."""
    if scores.shape[1] == 1:
        slopes = np.column_stack([expit(scores[:, 0]), expit(-scores[:, 0])])
    else:
        p = np.asarray(softmax(scores, axis=1))
        slopes = np.sqrt(np.maximum(np.sum(p**2, axis=1, keepdims=True) - 2 * p + 1, 0.0))
    shorter = np.log(np.maximum(1.0, lengths[:, np.newaxis] * slopes * weights / norm))
    return np.asarray(scores[:, 0] + shorter[:, 1] - shorter[:, 0] if scores.shape[1] == 1 else scores + shorter)


def _flat(scores: Floats) -> Floats:
    """One score per row for two classes, one per row and class for more."""
    return scores[:, 0] if scores.shape[1] == 1 else scores
