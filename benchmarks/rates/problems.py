"""Problems whose population minimiser and excess loss are known exactly, and a stream fed a batch at a time."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

import croupier as cr
from croupier.optimizer.algorithms import Iterate
from croupier.optimizer.phases import objective_of
from croupier.protocol._randomizer import Randomizer

SIGNS = np.array([1.0, -1.0, 1.0, -1.0])


@dataclass(frozen=True)
class Instance:
    """A problem whose population is known: how to draw users, where the minimiser is, and the exact excess loss of any theta."""

    problem: Any
    start: np.ndarray
    minimiser: np.ndarray
    value: Callable[[np.ndarray], float]
    draw: Callable[[np.random.Generator, int], tuple[np.ndarray, np.ndarray | None]]

    def excess(self, theta: np.ndarray) -> float:
        return self.value(theta) - self.value(self.minimiser)


def categories(loss: Any, centres: np.ndarray, minimiser: np.ndarray, spread: float, exact: float, l2: float = 0.0) -> Instance:
    """Each user is in one of four categories (x one-hot) with target centre + xi; xi is 0 with probability `exact`, else +-spread.

    The minimiser lies on the sphere that bounds the domain, and the start opposite: their distance is the schedule's D.
    """
    xi, chances, d = np.array([0.0, spread, -spread]), [exact, (1 - exact) / 2, (1 - exact) / 2], len(centres)

    def value(theta: np.ndarray) -> float:
        losses = [loss.value(theta, centres + x).mean() for x in xi]
        return float(np.dot(chances, losses) + l2 / 2 * theta @ theta)

    def draw(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        category = rng.integers(d, size=n)
        return np.eye(d)[category], centres[category] + rng.choice(xi, size=n, p=chances)

    ball = cr.domains.Ball(dim=d, radius=float(np.linalg.norm(minimiser)))
    return Instance(cr.Problem(loss=loss, domain=ball, l2=l2), -minimiser, minimiser, value, draw)


def kink() -> Instance:
    """Medians of four categories: absolute loss, half of the users exactly at the median, so that the population has the kink."""
    return categories(cr.losses.Absolute(), SIGNS / 2, SIGNS / 2, spread=0.1, exact=0.5)


def smooth() -> Instance:
    """Huber's loss, L = 0.2 and beta = 1: mostly linear far from the minimiser, and curved near it."""
    return categories(cr.losses.Huber(0.2), SIGNS / 2, SIGNS / 2, spread=0.1, exact=0.0)


def strong_kink() -> Instance:
    """Absolute loss with l2 = 1/2: two coordinates end at a kink, two where only the regulariser curves."""
    centres, minimiser = np.array([1.0, -1.0, 0.25, -0.25]), np.array([0.5, -0.5, 0.25, -0.25])
    return categories(cr.losses.Absolute(), centres, minimiser, spread=0.1, exact=0.5, l2=0.5)


def strong_smooth(spread: float = 0.1) -> Instance:
    """The mean of points near 0 in 16 dimensions, loss |theta - x|^2 / 2: the instance of the lower bound d / (eps n)^2.

    The minimiser is the centre of the ball and the start on its sphere, so that L is hardly more than strong convexity demands.
    The points are `spread` away from the centre: the excess that sampling alone leaves is spread^2 / (2 n).
    """
    d = 16

    def draw(rng: np.random.Generator, n: int) -> tuple[np.ndarray, None]:
        return spread * rng.choice([-1.0, 1.0], size=(n, 1)) * np.eye(d)[rng.integers(d, size=n)], None

    problem = cr.CustomProblem(
        lambda theta, X, y: theta - X,
        cr.domains.Ball(dim=d, radius=1.0),
        lipschitz=1 + spread,
        smoothness=1.0,
        strong_convexity=1.0,
    )
    return Instance(problem, np.full(d, -1 / math.sqrt(d)), np.zeros(d), lambda theta: float(theta @ theta) / 2, draw)


INSTANCES = {
    "kink": kink,
    "smooth": smooth,
    "strong kink": strong_kink,
    "strong smooth": strong_smooth,
    "strong smooth, close": partial(strong_smooth, 0.02),
}


class Stream(cr.PanPrivate):
    """PanPrivate fed a batch at a time: its own noise, state and steps; only the loop over records is inside numpy."""

    def feed_batch(self, X: np.ndarray, y: np.ndarray | None) -> None:
        phase, state = self._phase, self.state
        point = Iterate(state.round, state.theta, state.aggregate).middle(phase.paper_steps)
        gradients = objective_of(self.problem, phase).gradients(point, X, y)
        encoded = Randomizer(phase.plan).encoded(gradients, self._random()).ones
        self.state = self._stepped(replace(state, taken=len(X), counts=state.counts + encoded), phase)

    def feed_all(self, X: np.ndarray, y: np.ndarray | None) -> np.ndarray:
        first = 0
        while not self.finished:
            batch = slice(first, first + self._phase.batch)
            first = batch.stop
            self.feed_batch(X[batch], None if y is None else y[batch])
        return self.theta
