"""What all linear models share: public facts as parameters, and a fit that is a private training run."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import numpy as np

from ..arithmetic import ConstantBeside
from ..optimizer import Result, Schedule, schedule
from ..optimizer.result import Round
from ..optimizer.training import prepared
from ..population import Population
from ..privacy import _statements as words
from ..problem import Ball, Loss, Problem
from ..problem.problem import clip_rows, row_norms, with_constant
from ..validation import ArgumentError, one_of, real
from ._rounds import Ready
from ._rows import Floats, LinearRows
from .warnings import warn_of_few, warn_of_radius


@dataclass(kw_only=True, eq=False, repr=False)
class LinearModel(LinearRows):
    """A linear model that the optimizers train: rows of norm at most `feature_norm`, weights in a ball."""

    radius: float | None = 50.0
    l2: float = 0.0
    interactivity: Literal["sequential", "full"] = "sequential"
    method: str = "auto"
    rule: Literal["practical", "bound", "plain", "centred", "scaled", "whitened"] = "practical"
    rounds: int | None = None
    clip: float | None = None
    curvature: float | None = None
    max_inflation: float | None = None
    lots: Literal["auto", "secret", "open"] = "auto"
    callbacks: tuple[Callable[[Round], None], ...] = ()

    _exclusions = False  # whether reports may be left out of a round: in deployed tasks
    _stages = True  # whether rounds may ask different questions: not where a deployed task's would be too long
    _why = ""  # the reason for the rule, where a deployed task's file has another one
    _transport = "messages"  # that of their plans
    _blocks = cast(int | str, 1)  # of their rotated gradients, with secret lots

    @abstractmethod
    def _loss(self) -> Loss:
        """The loss of one row, for targets that `_targets` gives and scores of rows of norm 1."""

    @abstractmethod
    def _set_weights(self, weights: Floats, intercepts: Floats) -> None:
        """coef_ and intercept_ from one row of weights per output, for rows as they come."""

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
            If a parameter is outside its range.
        """
        return self._declared(features)._problem()

    def _rows(self, X: Any) -> Any:
        """Rows as the problem has them: at most 1 long, with the constant at the end."""
        X = self._scaled(X)
        if self.feature_norm_ == 1 and not self.constant_:
            return X  # the problem scales long rows down itself: bit for bit what the optimizer does
        rows = clip_rows(X, self.feature_norm_)
        rows = rows if self.feature_norm_ == 1 else rows * (1 / self.feature_norm_)
        if not self.constant_:
            return rows
        late = isinstance(rows, np.ndarray) and self.invalid != "blank"
        return ConstantBeside(rows, self.constant_, finite=True) if late else with_constant(rows, self.constant_)

    def _problem(self) -> Problem:
        loss = self._loss()
        domain = Ball(
            dim=loss.outputs * (self.n_features_in_ + bool(self.constant_)), radius=self._radius() * math.sqrt(loss.outputs)
        )
        norm, constant = math.hypot(1.0, self.constant_), self.constant_ if self._stages else 0.0
        return Problem(loss=loss, domain=domain, feature_norm=norm, l2=self.l2, constant=constant)

    def _radius(self) -> float:
        """The largest norm of the weights of one output."""
        return real("radius", self.radius, above=0, remedy="50 suits classifiers, 2 suits regressors.")

    def _plan(self, users: int, *, checkpoint: Any = None, turnout: float | None = None) -> Any:
        remedy = "'sequential' asks each user once, 'full' asks all users in every round; for streams there is PanPrivate."
        planned = schedule(
            self._problem(),
            users,
            epsilon=self.epsilon,
            delta=self._delta(users),
            method=self._algorithm(),
            interactivity=one_of("interactivity", self.interactivity, ("sequential", "full"), remedy),
            calibration=self.calibration,
            honest=self.honest,
            rule="plain" if self.rule == "practical" and not self._stages else self.rule,
            rounds=self.rounds,
            clip=self.clip,
            curvature=self.curvature,
            max_inflation=self.max_inflation,
            lots=self.lots,
            exclusions=self._exclusions,
            transport=self._transport,
            blocks=self._blocks,
            neighbours=self.neighbours,
        )
        planned = replace(planned, why=self._why) if self._why else planned
        return planned if turnout is None else planned.with_turnout(turnout)  # remote users may stay away

    def _algorithm(self) -> str:
        return self.method

    def _prepared(self, population: Population, planned: Any, checkpoint: Any) -> AbstractContextManager[Ready]:
        return self._in_rounds(population, planned, checkpoint)

    @contextmanager
    def _in_rounds(self, population: Population, planned: Schedule, checkpoint: Any) -> Iterator[Ready]:
        """Training, with its journal open for as long as the context is."""
        problem = self._problem()
        with prepared(
            problem,
            population,
            planned,
            start=problem.domain.start(),
            seed=self.random_state,
            callbacks=self.callbacks,
            checkpoint=checkpoint,
            invalid=self.invalid,
        ) as run:
            yield Ready(lambda on_round: {"result_": run.result(on_round)}, run.name)

    def _set_coefficients(self) -> None:
        self._set_theta(self._theta())

    def _set_theta(self, theta: Floats) -> None:
        """coef_ and intercept_, in the columns' own units, from theta or from another point on the way."""
        theta = theta.reshape(self._loss().outputs, -1)
        intercepts = theta[:, -1] * self.constant_ if self.constant_ else np.zeros(len(theta))
        self._set_weights(*self._in_columns_units(theta[:, : self.n_features_in_] / self.feature_norm_, intercepts))

    def _theta(self) -> Floats:
        """The weights of rows as `records` makes them, all outputs in a row."""
        result: Result = self.result_
        return result.theta

    def _chosen_rule(self) -> list[str]:
        """By which rule training went, and why: a line of `explain`."""
        planned = self.schedule_
        why = planned.why if planned.bound is None else f'rule "bound": {planned.why}'
        chosen = self.rule == "practical" and any(phase.share is not None for phase in planned.phases)
        return [f"Trained by {why}." + " Public facts alone decide this; the option rule overrides it." * chosen]

    def _meaning(self) -> list[str]:
        return self._chosen_rule() if "result_" in vars(self) else []

    def _check_plans(self, planned: Any) -> None:
        if not isinstance(planned, Schedule):
            raise ArgumentError("schedule", type(planned).__name__, "a Schedule of rounds", "Pass what plan() returned.")

    def _warn_of_plan(self, planned: Any, users: int) -> None:
        warn_of_few(planned, users, self.epsilon)

    def _warn_of_result(self) -> None:
        warn_of_radius(self.result_, self._problem(), self._radius())

    def _row_lengths(self, X: Any) -> Floats:
        """How long the rows of X are as the problem has them, with their constant: as the gradients were clipped by."""
        return np.asarray(np.hypot(row_norms(self._taken(X)) / self.feature_norm_, self.constant_))

    @property
    def schedule_(self) -> Schedule:
        """The schedule that was run, with the plan of every round."""
        result: Result = self.result_
        return result.schedule

    def _planned(self) -> Any:
        return self.schedule_

    def _watched(self, delta: float) -> str:
        result: Result | None = vars(self).get("result_")
        secret = result is not None and result.schedule.secret_lots
        return words.watched_line((self.guarantee_ or self.schedule_.guarantee), delta) if secret else ""

    def _asked_how(self) -> tuple[str, str]:
        result: Result | None = vars(self).get("result_")
        interactivity = self.interactivity if result is None else result.schedule.interactivity
        once = "Each user is asked at most once" if interactivity == "sequential" else "All users are asked in every round"
        secret = " in a round that is drawn by lot and kept secret" if result is not None and result.schedule.secret_lots else ""
        how = f"{once}{secret}, for the noisy sum of {'their gradients' if result is None else asked_for(result.schedule)}."
        if result is not None and result.stopped:
            how += f" Training was cut short after {result.rounds} of {result.schedule.rounds} rounds."
        return f"{interactivity} interactivity", how


def asked_for(planned: Schedule) -> str:
    """What the rounds of a schedule ask for, in words."""
    names = {"mean": "their rows", "spread": "their rows and squares", "moments": "products of their rows' entries"}
    opening = [
        f"{names[phase.algorithm]} in the first {'round' if phase.rounds == 1 else f'{phase.rounds} rounds'} "
        f"({phase.plan.bits_per_user:,} bits per report)"
        for phase in planned.phases
        if phase.opens
    ]
    if not opening:
        return "their gradients"
    return ", and of ".join([*opening, f"their gradients after that ({planned.phases[-1].plan.bits_per_user:,} bits)"])
