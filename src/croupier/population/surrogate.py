"""A stand-in for users, for sweeps that release nothing: the plan's noise, without anybody's randomness. NOT private."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..protocol import SumEstimate, VectorSum
from ..protocol._encoding import as_linear, clip_to_ball
from ..validation import ArgumentError
from .arrays import ArrayPopulation
from .population import Question


class SurrogatePopulation(ArrayPopulation):
    """NOT private: the exact sum of the users' clipped vectors, with Gaussian noise of the plan's variance.

    For choosing a schedule or drawing a curve on data that are public or made up. A private round costs one random rounding per
    user and coordinate; this one a multiplication. Mean and largest variance are those of a private round, the noise is not: no
    estimate or result that is made with it has a guarantee.

    Parameters
    ----------
    *args, **kwargs : Any
        As in `ArrayPopulation`; `mode` can be "counting" alone.

    Attributes
    ----------
    private : bool
        False: a fit on it is charged as one without a guarantee.

    Raises
    ------
    ArgumentError
        Where `mode` is not "counting", or ArrayPopulation refuses an argument.

    Examples
    --------
    >>> import numpy as np
    >>> from croupier import minimize
    >>> from croupier.population import SurrogatePopulation
    >>> from croupier.problem import Ball, Logistic, Problem
    >>> X = np.random.default_rng(0).normal(size=(2000, 3)) / 3
    >>> problem = Problem(loss=Logistic(), domain=Ball(dim=3, radius=5.0))
    >>> result = minimize(problem, SurrogatePopulation(X, X[:, 0] > 0), epsilon=1.0, delta=1e-6)
    >>> result.private, result.guarantee
    (False, None)
    """

    private = False  # a fit on it is charged as one without a guarantee

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.mode != "counting":
            raise ArgumentError("mode", self.mode, "'counting' for a stand-in", "Messages are those of an ArrayPopulation.")

    def answer(self, question: Question) -> SumEstimate:
        plan, users = question.plan, question.size
        VectorSum(plan).check_round(users)
        total, noise_std = np.zeros(plan.dim), plan.noise_std_for(users)
        for placed in self.shard.placed:
            for vectors in self.shard.vectors_of(placed, question):
                for unit in clip_to_ball(as_linear(vectors, plan.dim), plan.norm):
                    total += plan.norm * unit.total()
        rng = np.random.default_rng(list(question.secret.derive("surrogate").key))
        return SumEstimate(sum=rng.normal(total, noise_std), users=users, noise_std=noise_std, guarantee=None)
