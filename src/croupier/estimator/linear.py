"""What all linear models share: public facts as parameters, and a fit that is a private training run."""

from __future__ import annotations

import copy
import math
import os
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted, validate_data

from ..optimizer import Result, Round, Schedule, run, schedule
from ..optimizer.planning import RENAMED
from ..population import Population, require_population
from ..privacy import Guarantee, words
from ..problem import Ball, Loss, Problem
from ..problem.rows import clip_rows, row_norms, with_constant
from ..validation import ArgumentError, one_of, real, refuse_renamed, whole
from .blank import blanked, target_column, validated
from .private import Floats, PrivateEstimator
from .warnings import warn_of_few, warn_of_radius


@dataclass(kw_only=True, eq=False, repr=False)
class LinearModel(PrivateEstimator):
    """A linear model that the optimizers train: rows of norm at most `feature_norm`, weights in a ball.

    feature_norm : longer rows are scaled down to it, in training and prediction; a public choice, never read off the data.
    radius : the largest norm of the weights (of several classes, in root mean square), for rows divided by feature_norm (and
        targets scaled to [-1, 1]).
    l2 : adds (l2 / 2) |weights|^2, for such rows. fit_intercept, intercept_scaling : a constant beside a row of norm 1.
    interactivity, lots, method, rule, rounds, clip, curvature, calibration, honest, neighbours, callbacks : see
        `croupier.minimize`.
    epsilon, delta : what each user is promised. random_state : seeds the noise; NOT private. account : counts what fits spend.
    data_is_public : allows public facts that were left out to be read off the data.
    invalid : "refuse" stops at a record that is not valid (NaN, infinity, a label that was not declared) before anybody is asked,
        and the guarantee takes for granted that all are valid, wherever that can be seen. "blank" counts it as a record whose loss
        has gradient 0, says nothing of it, and needs no premise; public facts must then be declared.
    """

    feature_norm: float | None = 1.0
    radius: float = 50.0
    l2: float = 0.0
    fit_intercept: bool = True
    intercept_scaling: float = 1.0
    interactivity: str = "sequential"
    method: str = "auto"
    rule: str = "practical"
    rounds: int | None = None
    clip: float | None = None
    curvature: float | None = None
    lots: str = "auto"
    callbacks: tuple[Callable[[Round], None], ...] = ()

    _numeric_target = False

    def __new__(cls, *args: Any, **given: Any) -> Self:
        """Refuse parameters by the names that they had: scikit-learn wants an __init__ that names every parameter."""
        refuse_renamed(cls.__name__, {name: value for name, value in given.items() if name in RENAMED}, RENAMED)
        model: Self = super().__new__(cls)
        return model

    @abstractmethod
    def _loss(self) -> Loss:
        """The loss of one row, for targets that `_targets` gives and scores of rows of norm 1."""

    @abstractmethod
    def _declare_target(self, y: NDArray[Any] | None) -> None:
        """Set the attributes that hold public facts about the target: as declared, or read off y."""

    @abstractmethod
    def _targets(self, y: NDArray[Any]) -> NDArray[Any]:
        """Labels or targets as the loss wants them, by these facts."""

    @abstractmethod
    def _set_weights(self, weights: Floats, intercepts: Floats) -> None:
        """coef_ and intercept_ from one row of weights per output, for rows as they come."""

    def fit(self, X: Any, y: Any, groups: Any = None, *, checkpoint: str | os.PathLike[str] | None = None, **refused: Any) -> Self:
        """Train on users' rows X with labels or targets y, privately; rows with the same entry in `groups` are one user.

        `checkpoint` is a file in which the run is written down, so that the same fit can go on if it is cut off.
        """
        self._forget()
        if self.invalid == "blank":
            X = validated(self, X, dtype=(np.float64, np.float32), ensure_min_samples=2)
            rows, targets = self.records(X, target_column(X, y))
            self._declare(X.shape[1])
            return self._train(self._population(rows, targets, groups, refused), checkpoint)
        X, y = validate_data(
            self,
            X,
            y,
            accept_sparse="csr",
            dtype=(np.float64, np.float32),
            y_numeric=self._numeric_target,
            ensure_min_samples=2,
        )
        self._declare_target(y)
        targets = self._targets(y)
        self._declare_norm(lambda: float(max(row_norms(X.astype(np.float64)).max(), 1e-12)))
        return self._train(self._population(self._rows(X, self._constant()), targets, groups, refused), checkpoint)

    def fit_population(
        self,
        population: Population,
        features: int,
        *,
        read_off: tuple[str, ...] = (),
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Train on people whose records are rows and targets as `records` makes them, of so many features, wherever they are.

        For data that is not in memory. Public facts must be declared; `read_off` names those that were read off the data all the
        same, which the guarantee then says that it does not cover. `checkpoint` as in `fit`.
        """
        self._forget()
        require_population(population)
        self._declare(features)
        self.check_request(population.users)
        self.read_off_data_ = read_off
        return self._train(population, checkpoint)

    def records(self, X: Any, y: Any) -> tuple[Any, NDArray[Any]]:
        """What each user does to its own record, by public facts alone: rows scaled down, the constant beside them; targets."""
        declared = copy.copy(self)
        declared._declare(X.shape[1])
        if self.invalid == "blank":
            return blanked(X, y, lambda some: declared._rows(some, declared._constant()), declared._targets)
        return declared._rows(X, declared._constant()), declared._targets(np.asarray(y))

    def schedule_for(self, users: int, features: int) -> Schedule:
        """The schedule that a fit on so many users with so many features would run; no data is touched."""
        declared = copy.copy(self)
        declared._declare(features)
        declared.check_request(users)
        return schedule(self.problem_for(features), users, **declared._schedule_options())

    def problem_for(self, features: int) -> Problem:
        """What a fit on so many features minimises, for rows as `records` makes them."""
        declared = copy.copy(self)
        declared._declare(features)
        return declared._problem(features, declared._constant())

    def _declare(self, features: int) -> None:
        """Set what a fit would find in X and y, from the parameters alone."""
        self.n_features_in_ = whole("features", features, at_least=1, remedy="Count the columns without the constant.")
        self._declare_target(None)
        self._declare_norm(None)

    def _declare_norm(self, read: Callable[[], float] | None) -> None:
        how = "Pass a length that you can defend without having seen the data; longer rows are scaled down to it."
        norm = self._read_off("feature_norm", self.feature_norm, how, read)
        self.feature_norm_ = real("feature_norm", norm, above=1e-100, at_most=1e100, remedy=how)

    def _train(self, population: Population, checkpoint: str | os.PathLike[str] | None) -> Self:
        """Ask them, round by round; public facts are set."""
        constant = self._constant()
        problem = self._problem(self.n_features_in_, constant)
        chosen = schedule(problem, population.users, **self._schedule_options())
        warn_of_few(chosen, population.users, self.epsilon)
        self.result_ = run(
            problem,
            population,
            chosen,
            start=problem.domain.start(),
            seed=self.random_state,
            callbacks=self.callbacks,
            checkpoint=checkpoint,
            invalid=self.invalid,
            pay=lambda name: self._charge(population, chosen.guarantee, name),
        )
        warn_of_radius(self.result_, problem, self.radius)
        self.constant_ = constant
        self._set_theta()
        self.promise_ = self._promise()
        return self

    def _set_theta(self) -> None:
        """coef_ and intercept_ from the result's theta."""
        theta = self.result_.theta.reshape(self._loss().outputs, -1)
        intercepts = theta[:, -1] * self.constant_ if self.constant_ else np.zeros(len(theta))
        self._set_weights(theta[:, : self.n_features_in_] / self.feature_norm_, intercepts)

    def check_learned(self) -> None:
        """Refuse coefficients that are not those of the result's theta."""
        if "result_" not in vars(self):
            return
        again = copy.copy(self)
        again._set_theta()
        stored, derived = (np.append(np.ravel(m.coef_), m.intercept_) for m in (self, again))
        shapes = np.shape(self.coef_) == np.shape(again.coef_) and np.shape(self.intercept_) == np.shape(again.intercept_)
        if not (shapes and np.isfinite(stored).all() and np.allclose(stored, derived, rtol=1e-9)):
            raise ArgumentError("coef_", np.shape(self.coef_), "those of the result beside them", "Do not use this file.")

    def _constant(self) -> float:
        """The entry that everybody's scaled row gets for the intercept; 0 where there is none."""
        remedy = "It is the constant beside a row of norm 1; 1 is usual. Use fit_intercept=False for no intercept."
        scaling = real("intercept_scaling", self.intercept_scaling, above=0, at_most=1e6, remedy=remedy)
        return scaling if self.fit_intercept else 0.0

    def _rows(self, X: Any, constant: float) -> Any:
        """Rows as the problem has them: at most 1 long, with the constant at the end."""
        if self.feature_norm_ == 1 and not constant:
            return X  # the problem scales long rows down itself: bit for bit what the optimizer does
        rows = clip_rows(X, self.feature_norm_)
        rows = rows if self.feature_norm_ == 1 else rows * (1 / self.feature_norm_)
        return with_constant(rows, constant) if constant else rows

    def _problem(self, features: int, constant: float) -> Problem:
        loss = self._loss()
        radius = real("radius", self.radius, above=0, remedy="50 suits classifiers, 2 regressors.") * math.sqrt(loss.outputs)
        domain = Ball(dim=loss.outputs * (features + bool(constant)), radius=radius)
        return Problem(loss=loss, domain=domain, feature_norm=math.hypot(1.0, constant), l2=self.l2)

    def _schedule_options(self) -> dict[str, Any]:
        remedy = "'sequential' asks each user once, 'full' asks all users in every round; for streams there is PanPrivate."
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "method": self.method,
            "interactivity": one_of("interactivity", self.interactivity, ("sequential", "full"), remedy),
            "calibration": self.calibration,
            "honest": self.honest,
            "rule": self.rule,
            "rounds": self.rounds,
            "clip": self.clip,
            "curvature": self.curvature,
            "lots": self.lots,
            "neighbours": self.neighbours,
        }

    def _scores(self, X: Any) -> Floats:
        """<coef_, x> + intercept_ for rows scaled down to feature_norm, as they were in training."""
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=(np.float64, np.float32), reset=False)
        return np.asarray(clip_rows(X, self.feature_norm_) @ self.coef_.T + self.intercept_)

    def _row_lengths(self, X: Any) -> Floats:
        """How long the rows of X are as the problem has them, with their constant: as the gradients were clipped by."""
        rows = validate_data(self, X, accept_sparse="csr", dtype=(np.float64, np.float32), reset=False)
        return np.asarray(np.hypot(row_norms(clip_rows(rows, self.feature_norm_)) / self.feature_norm_, self.constant_))

    @property
    def schedule_(self) -> Schedule:
        """The schedule that was run, with the plan of every round."""
        return self.result_.schedule

    @property
    def n_users_(self) -> int:
        """How many people the model was trained on."""
        return self.result_.users

    @property
    def guarantee_(self) -> Guarantee | None:
        """What the whole training reveals about one user; None where it was seeded."""
        return self._covering(self.result_.guarantee)

    def _watched(self, delta: float) -> str:
        result: Result | None = vars(self).get("result_")
        secret = result is not None and result.schedule.secret_lots
        return words.watched_line((self.guarantee_ or self.schedule_.guarantee), delta) if secret else ""

    def _asked_how(self) -> tuple[str, str]:
        result: Result | None = vars(self).get("result_")
        interactivity = self.interactivity if result is None else result.schedule.interactivity
        once = "Each user is asked at most once" if interactivity == "sequential" else "All users are asked in every round"
        secret = " in a round that is drawn by lot and kept secret" if result is not None and result.schedule.secret_lots else ""
        asked = f"{once}{secret}, for the noisy sum of their gradients."
        if result is not None and result.stopped:
            asked += f" Training was cut short after {result.rounds} of {result.schedule.rounds} rounds."
        return f"{interactivity} interactivity", asked

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
