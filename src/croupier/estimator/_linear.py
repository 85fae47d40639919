"""What all linear models share: public facts as parameters, and a fit that is a private training run."""

from __future__ import annotations

import copy
import math
import os
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted, validate_data

from ..optimizer import Result, Schedule, schedule
from ..optimizer.result import Round
from ..optimizer.training import run
from ..population import Population
from ..population.population import require_population
from ..privacy import Guarantee
from ..privacy import _statements as words
from ..problem import Ball, Loss, Problem
from ..problem.problem import clip_rows, row_norms, with_constant
from ..validation import ArgumentError, one_of, real, whole
from ._base import (
    Floats,
    PrivateEstimator,
    blanked,
    centres,
    checked_ranges_of_features,
    require_numbers,
    scaled_columns,
    target_column,
    validated,
)
from .warnings import warn_of_few, warn_of_radius, warn_of_undeclared_rows

_NO_RANGE: Floats | None = None  # as in models of files that know of none


@dataclass(kw_only=True, eq=False, repr=False)
class LinearModel(PrivateEstimator):
    """A linear model that the optimizers train: rows of norm at most `feature_norm`, weights in a ball."""

    feature_norm: float | Literal["auto"] | None = "auto"
    feature_range: ArrayLike | None = None
    radius: float | None = 50.0
    l2: float = 0.0
    fit_intercept: bool = True
    intercept_scaling: float = 1.0
    interactivity: Literal["sequential", "full"] = "sequential"
    method: str = "auto"
    rule: Literal["practical", "bound"] = "practical"
    rounds: int | None = None
    clip: float | None = None
    curvature: float | None = None
    lots: Literal["auto", "secret", "open"] = "auto"
    callbacks: tuple[Callable[[Round], None], ...] = ()

    feature_range_ = _NO_RANGE
    _numeric_target = False
    _exclusions = False  # whether reports may be left out of a round: in deployed tasks

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
        """Train on users' rows and their labels or targets, privately.

        Parameters
        ----------
        X : array-like or sparse array of shape (rows, features)
            The rows.
        y : array-like of shape (rows,)
            Their labels or targets.
        groups : array-like of shape (rows,), optional
            Whose the rows are: those with the same entry are one user. Every row is a user unless given.
        checkpoint : path-like, optional
            A file in which the run is written down, so that the same fit can go on if it is cut off.
        **refused : object
            `sample_weight` is refused with the reason, anything else as unknown.

        Returns
        -------
        self
            Fitted.

        Raises
        ------
        ArgumentError
            Where a parameter or a record is not valid. Nobody was asked, nothing was spent.
        BudgetExceededError
            Where `account` has no room for this fit.
        """
        self._forget()
        warn_of_undeclared_rows(self.feature_norm, self.feature_range)
        if self.invalid == "blank":
            X = validated(self, X, dtype=(np.float64, np.float32), ensure_min_samples=2)
            rows, targets = self.records(X, target_column(X, y))
            self._declare(X.shape[1])
            return self._train(self._population(rows, targets, groups, refused), checkpoint)
        if self._numeric_target:
            require_numbers(np.asarray(y))
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
        self._declare_rows(lambda: float(max(row_norms(self._scaled(X.astype(np.float64), self._constant())).max(), 1e-12)))
        return self._train(self._population(self._rows(X, self._constant()), targets, groups, refused), checkpoint)

    def fit_population(
        self,
        population: Population,
        features: int,
        *,
        read_off: tuple[str, ...] = (),
        checkpoint: str | os.PathLike[str] | None = None,
        on_round: Callable[[Round], None] | None = None,
    ) -> Self:
        """Train on people whose records are not in memory. Public facts must be declared.

        Parameters
        ----------
        population : Population
            The people, wherever they are; their records are rows and targets as `records` makes them.
        features : int
            Columns of X, without the constant.
        read_off : tuple of str, optional
            Public facts that were read off the data all the same; the guarantee says that it does not cover them.
        checkpoint : path-like, optional
            As in `fit`.
        on_round : callable, optional
            Called after each round of training, after the estimator's `callbacks`; what it raises ends training as theirs does.

        Returns
        -------
        self
            Fitted.

        Raises
        ------
        ArgumentError
            As in `fit`, and for what is not a population.
        """
        self._forget()
        require_population(population)
        warn_of_undeclared_rows(self.feature_norm, self.feature_range)
        self._declare(features)
        self.check_request(population.users)
        self.read_off_data_ = read_off
        return self._train(population, checkpoint, on_round)

    def records(self, X: Any, y: Any) -> tuple[Any, NDArray[Any]]:
        """Do what each user does to its own record, by public facts alone.

        Parameters
        ----------
        X : ndarray or sparse array of shape (rows, features)
            Rows as they come.
        y : array-like of shape (rows,)
            Labels or targets as they come.

        Returns
        -------
        tuple of arrays
            Rows scaled down, with the constant beside them; targets as the loss wants them.

        Raises
        ------
        ArgumentError
            Where a public fact was not declared, or a record is not valid and `invalid` is "refuse".
        """
        declared = copy.copy(self)
        declared._declare(X.shape[1])
        if self.invalid == "blank":
            return blanked(X, y, lambda some: declared._rows(some, declared._constant()), declared._targets)
        return declared._rows(X, declared._constant()), declared._targets(np.asarray(y))

    def schedule_for(self, users: int, features: int) -> Schedule:
        """Return the schedule that a fit would run; no data is touched.

        Parameters
        ----------
        users : int
            How many people.
        features : int
            Columns of X, without the constant.

        Returns
        -------
        Schedule
            Rounds, plans and the guarantee.

        Raises
        ------
        ArgumentError
            Where a parameter is outside its range.
        """
        declared = copy.copy(self)
        declared._declare(features)
        declared.check_request(users)
        return schedule(self.problem_for(features), users, **declared._schedule_options(users))

    def problem_for(self, features: int) -> Problem:
        """Return what a fit minimises, for rows as `records` makes them.

        Parameters
        ----------
        features : int
            Columns of X, without the constant.

        Returns
        -------
        Problem
            The loss and the ball of weights.

        Raises
        ------
        ArgumentError
            Where a parameter is outside its range.
        """
        declared = copy.copy(self)
        declared._declare(features)
        return declared._problem(features, declared._constant())

    def _declare(self, features: int) -> None:
        """Set what a fit would find in X and y, from the parameters alone."""
        self.n_features_in_ = whole("features", features, at_least=1, remedy="Count the columns without the constant.")
        self._declare_target(None)
        self._declare_rows(None)

    def _declare_rows(self, read: Callable[[], float] | None) -> None:
        """Set `feature_range_` and `feature_norm_`: as declared, or the norm read off the scaled rows."""
        ranges = self.feature_range
        self.feature_range_ = None if ranges is None else checked_ranges_of_features(ranges, self.n_features_in_)
        norm = self.feature_norm
        if isinstance(norm, str) and norm == "auto":  # columns in [-1, 1] make no longer rows than that
            norm = 1.0 if ranges is None else math.sqrt(self.n_features_in_)
        how = "Pass a length that you can defend without having seen the data; longer rows are scaled down to it."
        norm = self._read_off("feature_norm", norm, how, read)
        self.feature_norm_ = real("feature_norm", norm, above=1e-100, at_most=1e100, remedy=how)

    def _train(
        self,
        population: Population,
        checkpoint: str | os.PathLike[str] | None,
        on_round: Callable[[Round], None] | None = None,
    ) -> Self:
        """Ask them, round by round; public facts are set."""
        constant = self._constant()
        problem = self._problem(self.n_features_in_, constant)
        planned = schedule(problem, population.users, **self._schedule_options(population.users))
        planned = planned.with_turnout(getattr(population, "turnout", 1.0))  # remote users may stay away
        warn_of_few(planned, population.users, self.epsilon)
        self.result_ = run(
            problem,
            population,
            planned,
            start=problem.domain.start(),
            seed=self.random_state,
            callbacks=self.callbacks if on_round is None else (*self.callbacks, on_round),
            checkpoint=checkpoint,
            invalid=self.invalid,
            pay=lambda name: self._charge(population, planned.guarantee, name),
        )
        warn_of_radius(self.result_, problem, self._radius())
        self.constant_ = constant
        self._set_theta()
        self.promise_ = self._promise()
        return self

    def _set_theta(self, theta: Floats | None = None) -> None:
        """coef_ and intercept_, in the columns' own units, from theta or from another point on the way."""
        theta = (self._theta() if theta is None else theta).reshape(self._loss().outputs, -1)
        intercepts = theta[:, -1] * self.constant_ if self.constant_ else np.zeros(len(theta))
        weights = theta[:, : self.n_features_in_] / self.feature_norm_
        if self.feature_range_ is not None:
            middle, half = centres(self.feature_range_, bool(self.constant_))
            weights = weights / half
            intercepts = intercepts - weights @ middle
        self._set_weights(weights, intercepts)

    def _theta(self) -> Floats:
        """The weights of rows as `records` makes them, all outputs in a row."""
        return self.result_.theta

    def check_learned(self) -> None:
        """Refuse coefficients that are not those of the result's theta."""
        if "result_" in vars(self):
            self._check_theta()

    def _check_theta(self) -> None:
        again = copy.copy(self)
        again._set_theta()
        stored, derived = (np.append(*map(np.ravel, m._scaled_weights())) for m in (self, again))
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
        X = self._scaled(X, constant)
        if self.feature_norm_ == 1 and not constant:
            return X  # the problem scales long rows down itself: bit for bit what the optimizer does
        rows = clip_rows(X, self.feature_norm_)
        rows = rows if self.feature_norm_ == 1 else rows * (1 / self.feature_norm_)
        return with_constant(rows, constant) if constant else rows

    def _scaled(self, X: Any, constant: float) -> Any:
        """Rows with every column from its declared range to [-1, 1]; as they come where none is declared."""
        return X if self.feature_range_ is None else scaled_columns(X, self.feature_range_, bool(constant))

    def _taken(self, X: Any) -> Any:
        """Rows as they were in training, but for the constant and a factor: scaled by the ranges, then down to the norm."""
        rows = validate_data(self, X, accept_sparse="csr", dtype=(np.float64, np.float32), reset=False)
        return clip_rows(self._scaled(rows, self.constant_), self.feature_norm_)

    def _scaled_weights(self) -> tuple[Floats, Any]:
        """What `_taken` rows are multiplied by, and what is added: coef_ and intercept_ where no range is declared."""
        if self.feature_range_ is None:
            return self.coef_, self.intercept_
        middle, half = centres(self.feature_range_, bool(self.constant_))
        return self.coef_ * half, self.intercept_ + self.coef_ @ middle

    def _problem(self, features: int, constant: float) -> Problem:
        loss = self._loss()
        domain = Ball(dim=loss.outputs * (features + bool(constant)), radius=self._radius() * math.sqrt(loss.outputs))
        return Problem(loss=loss, domain=domain, feature_norm=math.hypot(1.0, constant), l2=self.l2)

    def _radius(self) -> float:
        """The largest norm of the weights of one output."""
        return real("radius", self.radius, above=0, remedy="50 suits classifiers, 2 regressors.")

    def _schedule_options(self, users: int) -> dict[str, Any]:
        remedy = "'sequential' asks each user once, 'full' asks all users in every round; for streams there is PanPrivate."
        return {
            "epsilon": self.epsilon,
            "delta": self._delta(users),
            "method": self.method,
            "interactivity": one_of("interactivity", self.interactivity, ("sequential", "full"), remedy),
            "calibration": self.calibration,
            "honest": self.honest,
            "rule": self.rule,
            "rounds": self.rounds,
            "clip": self.clip,
            "curvature": self.curvature,
            "lots": self.lots,
            "exclusions": self._exclusions,
            "neighbours": self.neighbours,
        }

    def _scores(self, X: Any) -> Floats:
        """<coef_, x> + intercept_ for rows within feature_range and scaled down to feature_norm, as they were in training."""
        check_is_fitted(self)
        coef, intercept = self._scaled_weights()
        return np.asarray(self._taken(X) @ coef.T + intercept)

    def _row_lengths(self, X: Any) -> Floats:
        """How long the rows of X are as the problem has them, with their constant: as the gradients were clipped by."""
        return np.asarray(np.hypot(row_norms(self._taken(X)) / self.feature_norm_, self.constant_))

    @property
    def schedule_(self) -> Schedule:
        """The schedule that was run, with the plan of every round."""
        return self.result_.schedule

    @property
    def n_users_(self) -> int:
        """How many people the model was trained on."""
        return self.result_.users

    @property
    def guarantee_(self) -> Guarantee | Any:
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
        how = f"{once}{secret}, for the noisy sum of their gradients."
        if result is not None and result.stopped:
            how += f" Training was cut short after {result.rounds} of {result.schedule.rounds} rounds."
        return f"{interactivity} interactivity", how

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
