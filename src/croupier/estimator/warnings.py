"""What a careful person would want to hear about a fit, from public facts before it and from what it released after it."""

from __future__ import annotations

import math
import sys
import warnings

import numpy as np

from ..optimizer import Result, Schedule
from ..problem import Problem

# Noise in the mean of all gradients, relative to the largest gradient that one user can have.
_MOSTLY_NOISE = 0.5
# docs/choosing.md, "How many people": the rule's own factor, and how many times that a model worth having needs at least.
_PEOPLE_FACTOR, _PEOPLE_TIMES = 30.0, 10.0
# Weights as long as this part of the radius press against it.
_PRESSING = 0.95


class FewPeopleWarning(UserWarning):
    """Fewer people than the rule of thumb asks for with so many features and this epsilon: expect a poor model."""


class MostlyNoiseWarning(UserWarning):
    """Too few users for this budget: what was learned is mostly noise."""


class FeatureNormWarning(UserWarning):
    """Neither `feature_range` nor `feature_norm` is declared: rows of raw columns would be cut to length 1."""


class RadiusWarning(UserWarning):
    """The weights press against `radius`: a larger one may fit better."""


class PublicDataWarning(UserWarning):
    """A fact that the guarantee treats as public was taken from the data, because data_is_public=True allows it."""


class WeakPrivacyWarning(UserWarning):
    """epsilon is so large that the guarantee says little."""


def warn_caller(text: str, category: type[Warning]) -> None:
    """A warning about the line that called us, however deep in this package we are."""
    level = 2
    while level < 20 and sys._getframe(level - 1).f_globals.get("__name__", "").startswith(("croupier.", "contextlib")):
        level += 1
    warnings.warn(text, category, stacklevel=level)


def warn_of_undeclared_rows(norm: object, ranges: object) -> None:
    """Warn where nothing is declared about rows, whatever they are: a warning that read their lengths would be a release."""
    if ranges is None and isinstance(norm, str):
        warn_caller(
            "neither feature_range nor feature_norm is declared: every row longer than 1 is scaled down to length 1, which leaves "
            "next to nothing of raw columns such as ages or incomes. Declare public ranges, for example "
            "feature_range=[(0, 100), (0, 200_000)], and columns are scaled by them; or, for rows of length about 1, "
            "feature_norm=1.0. This warning does not depend on your rows.",
            FeatureNormWarning,
        )


def people_needed(weights: int, epsilon: float) -> int:
    """How many people one pass of training needs to be worth having, by the rule of thumb of docs/choosing.md."""
    return math.ceil(_PEOPLE_TIMES * _PEOPLE_FACTOR * math.sqrt(weights) / epsilon)


def warn_of_few(chosen: Schedule, users: int, epsilon: float) -> None:
    """Warn, from public facts alone and before anybody is asked, where people are too few for this budget."""
    phases = [phase for phase in chosen.phases if phase.descends]
    noise = math.sqrt(math.fsum(p.rounds * p.plan.dim * (p.plan.noise_std / p.plan.norm) ** 2 for p in phases))
    share = noise / sum(p.rounds * p.mean_of for p in phases)
    if share > _MOSTLY_NOISE:
        warn_caller(
            f"{users} users are too few for this budget: the noise is {share:.2g} times the largest gradient. The guarantee holds, "
            f"but the model will say little. Ask more users, use fewer features, or spend a larger epsilon.",
            MostlyNoiseWarning,
        )
        return
    warn_of_few_people(users, phases[0].plan.dim, epsilon)


def warn_of_few_people(users: int, weights: int, epsilon: float) -> None:
    """Warn where people are fewer than the rule of thumb asks for."""
    needed = people_needed(weights, epsilon)
    if users < needed:
        warn_caller(
            f"{users:,} users are few for {weights:,} weights: by the rule of thumb, 300 sqrt(weights) / epsilon, you "
            f"need about {needed:,}. The guarantee holds, but the model may be poor, and will differ from fit to fit. "
            f"Ask more users, use fewer features, or spend a larger epsilon.",
            FewPeopleWarning,
        )


def presses(result: Result, radius: float) -> bool:
    """Whether the released weights, or those of most of the later rounds, are about as long as the radius allows."""
    late = [entry.theta for entry in result.history[len(result.history) // 2 :]]
    lengths = [float(np.linalg.norm(theta)) for theta in (result.theta, *late)]
    return lengths[0] >= _PRESSING * radius or float(np.median(lengths)) >= _PRESSING * radius


def warn_of_radius(result: Result, problem: Problem, radius: float) -> None:
    """Warn where the weights press against the radius. The weights are released, so that saying it costs nothing."""
    if presses(result, problem.domain.norm_bound):
        warn_of_pressing(radius)


def warn_of_pressing(radius: float) -> None:
    """Say that the weights press against the radius."""
    warn_caller(
        f"the weights press against radius = {radius:g}: a larger one, such as {2 * radius:g}, may fit better. The radius is a "
        f"public choice, and this warning follows from the released weights, so acting on it reveals no more; but another "
        f"fit spends more budget. With few people, noise may also drive them there.",
        RadiusWarning,
    )
