"""A helper for people who bring their own loss: sample for violations of the constants they state."""

from __future__ import annotations

from typing import Any

import numpy as np

from .custom import CustomProblem
from .domains import Domain, Floats
from .objective import Objective
from .problem import Problem


def check(problem: Objective, X: Any, y: Any, *, samples: int = 200, seed: int = 0, tolerance: float = 1e-6) -> list[str]:
    """Look for violations of the convexity, Lipschitz, smoothness and strong-convexity constants at random points.

    Samples pairs of points of the domain and compares every user's gradients there. This is not private: use public or made-up
    records.

    Parameters
    ----------
    problem : Objective
        Whose gradients and constants are compared; of a Problem, or a CustomProblem with `value`, the values too.
    X, y : array_like
        Public or made-up records, one row and one target per user; y may be None where the problem needs none.
    samples : int, default 200
        How many pairs of points are drawn.
    seed : int, default 0
        The seed of the points.
    tolerance : float, default 1e-6
        The relative excess up to which a constant counts as kept.

    Returns
    -------
    list of str
        The worst violation of each kind; empty where none was found, which does not prove that there is none.

    Examples
    --------
    >>> import numpy as np
    >>> from croupier.problem import Ball, CustomProblem, check
    >>> wrong = CustomProblem(lambda theta, X, y: theta - X, Ball(dim=2, radius=1.0), lipschitz=1.0, smoothness=1.0)
    >>> check(wrong, np.ones((5, 2)), None)[0]  # doctest: +ELLIPSIS
    'lipschitz: a gradient has norm ..., stated 1'
    """
    rng = np.random.default_rng(seed)
    worst: dict[str, tuple[float, str]] = {}

    def report(name: str, excess: float, text: str) -> None:
        if excess > tolerance and excess > worst.get(name, (0.0, ""))[0]:
            worst[name] = (excess, f"{name}: {text}")

    for _ in range(samples):
        a, b = (_random_point(problem.domain, rng) for _ in range(2))
        b = a + 10 ** (-3 * rng.random()) * (b - a)  # near and far
        at_a, at_b = (problem.gradients(theta, X, y) for theta in (a, b))
        if not (np.all(np.isfinite(at_a)) and np.all(np.isfinite(at_b))):
            return ["gradient: not finite at some point of the domain"]
        steepest = float(np.linalg.norm(at_a, axis=1).max())
        report("lipschitz", steepest / problem.lipschitz - 1, f"a gradient has norm {steepest:.6g}, stated {problem.lipschitz:.6g}")
        gap = float(np.linalg.norm(a - b))
        if gap == 0:
            continue
        change = float(np.linalg.norm(at_a - at_b, axis=1).max()) / gap
        if problem.smoothness is not None:
            text = f"gradients change by {change:.6g} times the distance, stated {problem.smoothness:.6g}"
            report("smoothness", (change - 1e-12 * problem.lipschitz / gap) / problem.smoothness - 1, text)  # less rounding
        curved = float(((at_a - at_b) @ (a - b)).min()) / gap**2
        text = f"<g(a) - g(b), a - b> is {curved:.6g} |a - b|^2, stated at least {problem.strong_convexity:.6g}"
        scale = max(problem.strong_convexity, change, 1e-9 * problem.lipschitz / gap)  # the last: rounding
        report("convexity", (problem.strong_convexity - curved) / scale, text)
        _compare_with_values(problem, X, y, a, b, report)
    return [text for _, text in worst.values()]


def _compare_with_values(problem: Objective, X: Any, y: Any, a: Floats, b: Floats, report: Any) -> None:
    """Gradients against values, where there are values: by central differences on the way from a to b, so inside the domain, or,
    where the loss may be nonsmooth, by f(b) >= f(a) + <g(a), b - a>."""
    value = problem.losses if isinstance(problem, Problem) else problem.value if isinstance(problem, CustomProblem) else None
    if value is None:
        return
    gap = float(np.linalg.norm(b - a))
    direction, middle = (b - a) / gap, (a + b) / 2
    if problem.smoothness is None:
        f = value(a, X, y)
        short = float(np.max(f + problem.gradients(a, X, y) @ (b - a) - value(b, X, y)))
        rounding = 1e-12 * float(np.max(np.abs(f)))
        report("gradient", (short - rounding) / (problem.lipschitz * gap), f"f(a) + <g(a), b - a> exceeds f(b) by {short:.3g}")
        return
    step = min(gap / 4, 1e-5 * max(1.0, float(np.linalg.norm(middle))))
    slope = (value(middle + step * direction, X, y) - value(middle - step * direction, X, y)) / (2 * step)
    off = float(np.max(np.abs(slope - problem.gradients(middle, X, y) @ direction)))
    # differences may be off by smoothness x step, and by rounding: reported from 1e-4 lipschitz on
    excess = (off - problem.smoothness * step) / (1e2 * problem.lipschitz)
    report("gradient", excess, f"differs from the value's differences by {off:.3g}")


def _random_point(domain: Domain, rng: np.random.Generator) -> Floats:
    scale = domain.diameter if np.isfinite(domain.diameter) else 10.0
    return domain.project(domain.start() + scale * rng.random() * rng.normal(size=domain.dim) / np.sqrt(domain.dim))
