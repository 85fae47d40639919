"""Losses of linear models: one number per user and score, convex in the score z = <theta, x>.

A loss knows, from public facts alone, how steep it can be (`slope_bound`) and how curved (`curvature`, None where it has a
kink), and the slope of its Moreau envelope (`prox_slope`). The gradient in theta is slope times x, for the loss and for its
envelope alike; `Problem` multiplies. Prox formulas: with q = ||x||^2 / beta, prox(theta) = theta - (g / beta) x for the g that
`prox_slope` returns.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_softmax, softmax, wrightomega

from ..invalid import numbers_or_nan
from ..validation import ArgumentError, RecordError, real, whole

Floats = NDArray[np.float64]
_NEWTON_STEPS = 60
# Users per unit of residual, for targets that fill [-1, 1] and residuals of a tenth; an intercept puts all energy in one direction.
_RESIDUALS_AT_KINK = 4.0


class Loss(ABC):
    """A convex loss of a linear model with `outputs` scores per user."""

    outputs: int = 1
    curvature: float | None = None

    @property
    def usual_curvature(self) -> float | None:
        """How curved the mean loss is on real data, times the share of features' energy that lies in one direction: a rule of
        thumb for step sizes, without a proof. Losses whose curvature does not fall keep their bound. A mean over users has no
        kink: its curvature is the slope's jump there times the density of users, for targets that fill [-1, 1]."""
        return self.curvature

    @abstractmethod
    def value(self, scores: Floats, targets: Floats) -> Floats:
        """The loss of each user."""

    @abstractmethod
    def slope(self, scores: Floats, targets: Floats) -> Floats:
        """Its derivative in the score; at a kink, one of its subgradients."""

    @abstractmethod
    def prox_slope(self, scores: Floats, targets: Floats, q: Floats) -> Floats:
        """The derivative in the score of the Moreau envelope, q = ||x||^2 / beta > 0."""

    @abstractmethod
    def slope_bound(self, score_bound: float) -> float:
        """A bound on the norm of the slope wherever the norm of the scores is at most score_bound, for every target."""

    def targets(self, y: NDArray[np.generic]) -> Floats:
        """A user's label or target as the loss wants it: a map of each record alone, so that nothing is read off the data."""
        numbers = _numbers(y)
        if not np.all(np.isfinite(numbers)):
            raise RecordError("y", float(numbers[~np.isfinite(numbers)][0]), "finite", "Fill in or leave out missing targets.")
        return numbers

    def valid(self, y: NDArray[np.generic]) -> NDArray[np.bool_]:
        """Whose label or target `targets` takes: a map of each record alone."""
        return self._takes(np.asarray(numbers_or_nan(y), dtype=np.float64))

    def _takes(self, numbers: Floats) -> NDArray[np.bool_]:
        return np.isfinite(numbers)


class _Margin(Loss):
    """Losses of the margin m = y z, y in {-1, +1}; labels 0 and -1 mean the first class, 1 the second."""

    def targets(self, y: NDArray[np.generic]) -> Floats:
        labels = _numbers(y)
        known = self._takes(labels)
        if not known.all():
            raise RecordError(
                "y", float(labels[~known][0]), "0 or 1 (or -1 or 1) for a binary loss", "Map your two classes to these."
            )
        return np.asarray(2.0 * (labels == 1) - 1.0)

    def _takes(self, numbers: Floats) -> NDArray[np.bool_]:
        return np.asarray((numbers == 1) | (numbers == 0) | (numbers == -1))


class _Residual(Loss):
    """Losses of the residual r = z - y."""


@dataclass(frozen=True)
class Logistic(_Margin):
    """log(1 + exp(-y z)): binary classification with probabilities."""

    curvature = 0.25

    @property
    def usual_curvature(self) -> float:
        return 0.05  # p (1 - p) is about 0.1 for a useful model, and half of the features' energy lies in one direction

    def value(self, scores: Floats, targets: Floats) -> Floats:
        return np.logaddexp(0.0, -targets * scores)

    def slope(self, scores: Floats, targets: Floats) -> Floats:
        return np.asarray(-targets * expit(-targets * scores))

    def prox_slope(self, scores: Floats, targets: Floats, q: Floats) -> Floats:
        # margin w at the prox solves w = m + q s(-w), s the sigmoid; the root lies in [m, m + q]
        margin = targets * scores
        # and, as s(-w) <= exp(-w), no further than m + omega(log q - m), omega + log omega the identity
        low, high = margin.copy(), margin + np.minimum(q, wrightomega(np.log(q) - margin))
        w = high
        for _ in range(_NEWTON_STEPS):
            excess = w - margin - q * expit(-w)
            low, high = np.where(excess < 0, w, low), np.where(excess < 0, high, w)
            step = w - excess / (1 + q * expit(w) * expit(-w))
            moved = np.where((step >= low) & (step <= high), step, (low + high) / 2)
            near = np.abs(moved - w) <= 1e-15 * (1 + np.abs(w))
            if near.all():
                break
            w = np.where(near, w, moved)  # who has arrived stays, however long others take
        return np.asarray(-targets * expit(-w))

    def slope_bound(self, score_bound: float) -> float:
        return float(expit(score_bound))


@dataclass(frozen=True)
class Hinge(_Margin):
    """max(0, 1 - y z): the support vector machine's loss, with a kink."""

    @property
    def usual_curvature(self) -> float:
        return 0.2  # four users in ten per unit of margin, and half of the features' energy in one direction

    def value(self, scores: Floats, targets: Floats) -> Floats:
        return np.maximum(0.0, 1 - targets * scores)

    def slope(self, scores: Floats, targets: Floats) -> Floats:
        return np.where(targets * scores < 1, -targets, 0.0)

    def prox_slope(self, scores: Floats, targets: Floats, q: Floats) -> Floats:
        return -targets * np.clip(1 - targets * scores, 0, q) / q

    def slope_bound(self, score_bound: float) -> float:
        return 1.0


@dataclass(frozen=True)
class SmoothedHinge(_Margin):
    """The hinge with its kink replaced by a parabola of width `width`: curvature 1 / width."""

    width: float = 0.5

    def __post_init__(self) -> None:
        remedy = "Small is close to the hinge and strongly curved; 0.5 is usual."
        object.__setattr__(self, "width", real("width", self.width, above=0, remedy=remedy))

    @property
    def curvature(self) -> float:  # type: ignore[override]
        return 1 / self.width

    def value(self, scores: Floats, targets: Floats) -> Floats:
        gap = np.maximum(0.0, 1 - targets * scores)
        curved = np.minimum(gap, self.width)
        return curved / self.width * (gap - curved / 2)

    def slope(self, scores: Floats, targets: Floats) -> Floats:
        return -targets * np.clip((1 - targets * scores) / self.width, 0, 1)

    def prox_slope(self, scores: Floats, targets: Floats, q: Floats) -> Floats:
        return -targets * np.clip((1 - targets * scores) / (self.width + q), 0, 1)

    def slope_bound(self, score_bound: float) -> float:
        return min(1.0, (1 + score_bound) / self.width)


@dataclass(frozen=True)
class SquaredHinge(_Margin):
    """max(0, 1 - y z)^2 / 2; as steep as the scores allow."""

    curvature = 1.0

    def value(self, scores: Floats, targets: Floats) -> Floats:
        return np.maximum(0.0, 1 - targets * scores) ** 2 / 2

    def slope(self, scores: Floats, targets: Floats) -> Floats:
        return -targets * np.maximum(0.0, 1 - targets * scores)

    def prox_slope(self, scores: Floats, targets: Floats, q: Floats) -> Floats:
        return -targets * np.maximum(0.0, 1 - targets * scores) / (1 + q)

    def slope_bound(self, score_bound: float) -> float:
        return 1 + score_bound


@dataclass(frozen=True)
class Squared(_Residual):
    """(z - y)^2 / 2 for targets in [-target_bound, target_bound]; targets beyond are clipped on the user's side."""

    target_bound: float = 1.0
    curvature = 1.0

    def __post_init__(self) -> None:
        remedy = "Give a public bound on abs(y)."
        object.__setattr__(self, "target_bound", real("target_bound", self.target_bound, above=0, remedy=remedy))

    def targets(self, y: NDArray[np.generic]) -> Floats:
        return np.clip(super().targets(y), -self.target_bound, self.target_bound)

    def value(self, scores: Floats, targets: Floats) -> Floats:
        return (scores - targets) ** 2 / 2

    def slope(self, scores: Floats, targets: Floats) -> Floats:
        return scores - targets

    def prox_slope(self, scores: Floats, targets: Floats, q: Floats) -> Floats:
        return (scores - targets) / (1 + q)

    def slope_bound(self, score_bound: float) -> float:
        return score_bound + self.target_bound


@dataclass(frozen=True)
class Huber(_Residual):
    """Squared up to `kappa`, then linear: regression that outliers cannot pull."""

    kappa: float = 1.0
    curvature = 1.0

    def __post_init__(self) -> None:
        remedy = "Give the residual from which on the loss is linear."
        object.__setattr__(self, "kappa", real("kappa", self.kappa, above=0, remedy=remedy))

    def value(self, scores: Floats, targets: Floats) -> Floats:
        size = np.abs(scores - targets)
        curved = np.minimum(size, self.kappa)
        return curved * (size - curved / 2)

    def slope(self, scores: Floats, targets: Floats) -> Floats:
        return np.clip(scores - targets, -self.kappa, self.kappa)

    def prox_slope(self, scores: Floats, targets: Floats, q: Floats) -> Floats:
        return np.clip((scores - targets) / (1 + q), -self.kappa, self.kappa)

    def slope_bound(self, score_bound: float) -> float:
        return self.kappa


@dataclass(frozen=True)
class Pinball(_Residual):
    """The quantile loss: its minimiser predicts the `quantile`-quantile of the target."""

    quantile: float = 0.5

    def __post_init__(self) -> None:
        remedy = "0.5 is the median."
        object.__setattr__(self, "quantile", real("quantile", self.quantile, above=0, below=1, remedy=remedy))

    @property
    def usual_curvature(self) -> float:
        return _RESIDUALS_AT_KINK

    def value(self, scores: Floats, targets: Floats) -> Floats:
        residual = scores - targets
        return np.maximum((1 - self.quantile) * residual, -self.quantile * residual)

    def slope(self, scores: Floats, targets: Floats) -> Floats:
        return np.where(scores > targets, 1 - self.quantile, -self.quantile)

    def prox_slope(self, scores: Floats, targets: Floats, q: Floats) -> Floats:
        return np.clip(scores - targets, -self.quantile * q, (1 - self.quantile) * q) / q

    def slope_bound(self, score_bound: float) -> float:
        return max(self.quantile, 1 - self.quantile)


@dataclass(frozen=True)
class Absolute(_Residual):
    """abs(z - y): median regression."""

    @property
    def usual_curvature(self) -> float:
        return 2 * _RESIDUALS_AT_KINK

    def value(self, scores: Floats, targets: Floats) -> Floats:
        return np.abs(scores - targets)

    def slope(self, scores: Floats, targets: Floats) -> Floats:
        return np.sign(scores - targets)

    def prox_slope(self, scores: Floats, targets: Floats, q: Floats) -> Floats:
        return np.clip(scores - targets, -q, q) / q

    def slope_bound(self, score_bound: float) -> float:
        return 1.0


@dataclass(frozen=True)
class EpsilonInsensitive(_Residual):
    """max(0, abs(z - y) - width): support vector regression. The width is called so because epsilon is taken."""

    width: float = 0.1

    def __post_init__(self) -> None:
        remedy = "Residuals up to the width cost nothing; Absolute has width 0."
        object.__setattr__(self, "width", real("width", self.width, above=0, remedy=remedy))

    @property
    def usual_curvature(self) -> float:
        return 2 * _RESIDUALS_AT_KINK  # two kinks

    def value(self, scores: Floats, targets: Floats) -> Floats:
        return np.maximum(0.0, np.abs(scores - targets) - self.width)

    def slope(self, scores: Floats, targets: Floats) -> Floats:
        residual = scores - targets
        return np.where(np.abs(residual) > self.width, np.sign(residual), 0.0)

    def prox_slope(self, scores: Floats, targets: Floats, q: Floats) -> Floats:
        residual = scores - targets
        return np.sign(residual) * np.clip(np.abs(residual) - self.width, 0, q) / q

    def slope_bound(self, score_bound: float) -> float:
        return 1.0


@dataclass(frozen=True)
class Multinomial(Loss):
    """Cross-entropy of the softmax over `classes` classes 0..classes-1; theta holds one row of weights per class, flattened."""

    classes: int = 2
    curvature = 0.5  # largest eigenvalue of diag(p) - p p'

    def __post_init__(self) -> None:
        object.__setattr__(self, "classes", whole("classes", self.classes, at_least=2, remedy="Give the number of classes."))

    @property
    def outputs(self) -> int:  # type: ignore[override]
        return self.classes

    @property
    def usual_curvature(self) -> float:
        return 0.2 / self.classes  # 1 / classes at theta = 0, and then as for Logistic

    def targets(self, y: NDArray[np.generic]) -> Floats:
        labels = _numbers(y)
        odd = labels[~self._takes(labels)]
        if odd.size:
            allowed = f"a whole number from 0 to {self.classes - 1}"
            raise RecordError("y", float(odd[0]), allowed, "Map your classes to these, or declare more classes.")
        return np.eye(self.classes)[labels.astype(np.int64)]

    def _takes(self, numbers: Floats) -> NDArray[np.bool_]:
        return np.asarray((numbers == np.floor(numbers)) & (numbers >= 0) & (numbers < self.classes))

    def value(self, scores: Floats, targets: Floats) -> Floats:
        return np.asarray(-np.sum(targets * log_softmax(scores, axis=-1), axis=-1))

    def slope(self, scores: Floats, targets: Floats) -> Floats:
        return np.asarray(softmax(scores, axis=-1) - targets)

    def prox_slope(self, scores: Floats, targets: Floats, q: Floats) -> Floats:
        # w minimises |w - scores|^2 / 2 + q (logsumexp(w) - w_y), so q p_j = omega(scores_j + k) for j != y and q p_y =
        # omega(scores_y + q + k), omega + log omega the identity. One k per user makes the p_j add up: Newton on a convex
        # increasing function, from the right. omega(q + a) - q is a - log omega(q + a), which does not cancel for large q.
        q, scores = q[:, np.newaxis], scores - np.max(scores, axis=-1, keepdims=True)
        right = targets > 0
        k = np.log(q) - np.max(np.where(right, scores, scores - q), axis=-1, keepdims=True)
        for _ in range(_NEWTON_STEPS):
            omega = wrightomega(np.where(right, scores + q, scores) + k)
            surplus = np.where(right, np.where(omega < 1, omega - q, scores + k - np.log(np.maximum(omega, 1))), omega)
            step = np.sum(surplus, axis=-1, keepdims=True) / np.sum(omega / (1 + omega), axis=-1, keepdims=True)
            near = np.abs(step) <= 1e-15 * (1 + np.abs(k))
            if near.all():
                break
            k = np.where(near, k, k - step)  # who has arrived stays, however long others take
        wrong = np.where(right, 0.0, wrightomega(scores + k) / q)
        return np.asarray(wrong - targets * np.sum(wrong, axis=-1, keepdims=True))

    def slope_bound(self, score_bound: float) -> float:
        # |p - e_y|^2 <= (1 - p_y)^2 + (1 - p_y) max p_j over j != y, and no score exceeds another by more than sqrt(2) |scores|
        apart, others = math.sqrt(2) * score_bound, math.log(self.classes - 1)
        wrong = float(expit(apart + others))
        return math.sqrt(wrong * (wrong + min(wrong, float(expit(apart - others)))))


def _numbers(y: NDArray[np.generic]) -> Floats:
    try:
        return np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ArgumentError("y", type(y).__name__, "numbers, one per user", "Map labels to numbers.") from None
