"""The practical rules: which rounds of a run ask what, with which clips and steps, chosen by public facts alone.

A run under secret lots may open with rounds about rows (`_gradients`) and descend in the coordinates that they find: "centred"
takes the rows' mean off, "scaled" makes columns alike, too, and "whitened" makes rows alike in all directions. Constants and gates
come from `python -m benchmarks rules`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from ..problem import Multinomial, Problem, Squared, Weighted
from ..problem.classification import Logistic
from ..problem.problem import Objective
from ..validation import ArgumentError, real, whole
from .phases import Phase

# All rounds of a run, and those of its opening.
CENTRED_ROUNDS, SCALED_ROUNDS, WHITENED_ROUNDS = (50, 3), (50, 4), (50, 10)
MOMENTUM_ROUNDS, LONG_ROUNDS = (200, 10), (100, 8)
# Those of several classes where noise leaves little: equal steps go as far in fewer rounds, whose reports are shorter. Noise leaves
# little of a run whose mean gradient has at least this much of it for each unit of clip.
FAINT_ROUNDS, FAINT_RUN = (36, 1), 0.05
# The same noise of two classes of many columns above which fewer and longer rounds do better.
SHORT_RUN = 0.01
# The part of a row's squared length that the constant has beside features that are at most 1 long; and that of several classes'
# centred rows, whose intercepts need no more.
CONSTANT_SHARE, CONSTANT_SHARE_OF_SEVERAL = 0.1, 0.05
# Second moments of more columns take too many bits and too much time: above, classes are centred, least squares is plain. Several
# classes gain less by them.
MOST_COLUMNS, MOST_COLUMNS_OF_SEVERAL = 600, 128
# How much of the length that people's gradients have by chance counts as noise of a mean gradient of classes.
_CHANCE = 0.3
# People of a round, on average and at least: fewer people are shared out among fewer rounds.
_LEAST_BATCH = 4
# The noise of a run of two classes below which people count by their odds; and of two classes or least squares below which more
# rounds do better, though they cost more to an attacker who knows when each user answered.
QUIET_CLASSES, QUIETEST = 0.0002, 0.0001
# Least squares of targets in [-1, 1]: rounds, the length that gradients are shortened to, the longest step, and momentum, by the
# noise of 23 rounds at length 0.3 above which they do best. Noise asks for short gradients, which predict skewed targets worse.
SQUARES = (
    (0.007, (16, 4), 0.12, 2.0, 0.0),
    (0.004, (23, 6), 0.12, 2.0, 0.5),
    (0.0015, (23, 8), 0.15, 1.0, 0.8),
    (QUIETEST, (23, 8), 0.3, 1.0, 0.7),
    (-1.0, LONG_ROUNDS, 0.3, 1.0, 0.8),
)
# The edge of the noise that all rounds of a run would leave in second moments, over rows' energy in one of so many equal
# directions, above which columns' own sizes do better for two classes, and centred rows for several.
LARGEST_EDGE, LARGEST_EDGE_OF_SEVERAL = 0.5, 0.45
# Of two classes: how much less people count whose odds are far from even.
FOCUS = 0.5
# Fewer rounds are not shared out between an opening and descent unless that is asked for.
LEAST_ROUNDS = 4
# Several classes: the part of a run's rounds that search a line, at least so many, in runs of at least so many rounds.
_LINE, _LEAST_LINE, _LEAST_WITH_LINE = 0.06, 2, 7


@dataclass(frozen=True)
class Staged:
    """A run of rounds that may open with a question about rows.

    Parameters
    ----------
    name : str
        Of the rule: "centred", "scaled" or "whitened".
    opening : str or None
        What the opening asks for: "mean", "spread", "moments" or nothing.
    rounds, opening_rounds : int
        All rounds, and those of the opening.
    clip : float
        The length that gradients are shortened to.
    share : float
        The part of a row's squared length that the constant has.
    curvature, damping : float
        AC-SA's: the curvature of the mean loss, and the factor of the noise's part of its damping. 0 for descent.
    step : float or None, default None
        Descent's step, over the largest share of rows' energy in one direction; None for AC-SA.
    momentum : float, default 0.0
        Descent's: the part of the last move that is made again.
    focus : float, default 0.0
        Of two classes: how much less people count in later rounds whose odds are far from even.
    several : bool, default False
        Whether the last rounds search the line to the weights that descent has found: for several classes.
    """

    name: str
    opening: str | None
    rounds: int
    opening_rounds: int
    clip: float
    share: float
    curvature: float = 0.0
    damping: float = 0.0
    step: float | None = None
    momentum: float = 0.0
    focus: float = 0.0
    several: bool = False

    @property
    def line_rounds(self) -> int:
        """Of all rounds, those that search a line; 0 in short runs."""
        return max(_LEAST_LINE, round(_LINE * self.rounds)) if self.several and self.rounds >= _LEAST_WITH_LINE else 0

    def with_rounds(self, rounds: int) -> Staged:
        """The same with this many rounds, the opening's in proportion."""
        some = max(1, round(self.opening_rounds * rounds / self.rounds)) if self.opening else 0
        return replace(self, rounds=rounds, opening_rounds=some)


def kind_of(problem: Objective) -> str | None:
    """Which rules know the problem: "two", "several" for that many classes, "squares", or None if no rule but plain does."""
    if not isinstance(problem, Problem) or problem.l2:
        return None
    loss = problem.loss.loss if isinstance(problem.loss, Weighted) else problem.loss
    if isinstance(loss, Logistic):
        return "two"
    if isinstance(loss, Multinomial):
        return "several"
    return "squares" if isinstance(loss, Squared) else None


def centred(problem: Problem, noise: Callable[[int], float], users: int) -> Staged:
    """Rule C: the mean of rows, then descent on centred rows. Without a constant there is nothing to take a mean off.

    Several classes descend by AC-SA, whose steps are equal where noise bounds them (`Phase.steady`). Two descend with momentum in
    more and shorter rounds, along small directions, too: AC-SA in a ball of the radius ends before these are found.
    """
    several = problem.loss.outputs > 1
    rounds, opening = CENTRED_ROUNDS if several else MOMENTUM_ROUNDS
    noisy = noise_share(problem, noise(rounds), users, rounds, 1.0) > (FAINT_RUN if several else SHORT_RUN)
    if noisy:
        rounds, opening = FAINT_ROUNDS if several else CENTRED_ROUNDS
    constant = CONSTANT_SHARE_OF_SEVERAL if several else CONSTANT_SHARE
    asks, opening, share = ("mean", opening, constant) if problem.constant else (None, 0, 0.0)
    staged = Staged("centred", asks, rounds, opening, _slope(problem) / (2.5 if several else 2), share, several=several)
    if several:
        return replace(staged, curvature=0.05 / problem.loss.outputs, damping=0.25)
    # what noise adds to a score of a row of length 1 grows with the way that all rounds go together
    step = min(200.0, 0.014 * users / (staged.clip * noise(rounds) * rounds))
    return replace(staged, step=step, momentum=0.9)


def scaled(problem: Problem, noise: Callable[[int], float], users: int) -> Staged:
    """Means and mean squares of columns, then descent on columns of mean 0 and equal size: for two classes and much noise."""
    rounds, opening = SCALED_ROUNDS
    clip, share = _slope(problem) / 4, CONSTANT_SHARE if problem.constant else 0.0
    rho = noise_share(problem, noise(rounds), users, rounds, clip)
    return Staged("scaled", "spread", rounds, opening, clip, share, step=min(12.0, 0.003 / rho), momentum=0.6)


def whitened(problem: Problem, noise: Callable[[int], float], users: int) -> Staged:
    """Rules W and, for squares, R: second moments of rows, then descent on whitened rows.

    `noise` gives that of one of this many rounds' sums at norm 1. The larger the run's noise is, the shorter are its steps.
    Momentum goes along directions that the opening could not tell from noise, which whitening leaves flat.
    """
    share, outputs = CONSTANT_SHARE if problem.constant else 0.0, problem.loss.outputs
    if isinstance(problem.loss, Squared):
        rho = noise_share(problem, noise(23), users, 23, 0.3)
        _, counts, clip, step, momentum = next(row for row in SQUARES if rho > row[0])
        clip, step = clip * problem.loss.target_bound, min(step, 0.04 / rho)
        return Staged("whitened", "moments", *counts, clip, share, step=step, momentum=momentum)
    rounds, opening = WHITENED_ROUNDS
    clip = _slope(problem) / (4 if outputs == 1 else 6)
    # few people leave much to chance even where there is no noise
    rho = math.hypot(noise_share(problem, noise(rounds), users, rounds, clip), _CHANCE * clip / math.sqrt(users))
    focus = FOCUS if outputs == 1 and rho < QUIET_CLASSES else 0.0
    if outputs == 1 and rho < QUIETEST:
        return Staged("whitened", "moments", *LONG_ROUNDS, clip, share, step=12.0, momentum=0.8, focus=focus)
    step = min(30.0, 0.01 / rho) if outputs == 1 else min(25.0, 0.004 * math.sqrt(outputs) / rho)
    return Staged("whitened", "moments", rounds, opening, clip, share, step=step, focus=focus, several=outputs > 1)


def _slope(problem: Problem) -> float:
    """How steep the loss is at most at theta = 0."""
    return problem.loss.slope_bound(0.0)


def edge(problem: Problem, noise: Callable[[int], float], users: int) -> float:
    """The edge of the noise in second moments of all users' rows, over rows' energy in a direction if all had the same."""
    columns, rounds = problem.features, SCALED_ROUNDS[0]
    return columns * math.sqrt(2 * columns) * noise(rounds) * math.sqrt(rounds) / users


def noise_share(problem: Objective, noise: float, users: int, rounds: int, clip: float) -> float:
    """rho: the noise of a whole run's mean gradient, `noise` being that of one round's sum at norm 1."""
    return clip * noise * math.sqrt(rounds * problem.dim) / users


def choose(
    problem: Objective,
    users: int,
    noise: Callable[[int], float],
    rule: str,
    secret: bool,
    given: Mapping[str, Any],
) -> tuple[Staged | None, str]:
    """The rule for this problem and this many users, and the reason in words; None for the plain one. No data is touched.

    `given` are what was asked for of method, rounds, clip and curvature.
    """
    if rule == "plain":
        return None, plain("as asked")
    # a problem of one's own may have other gradients: stages would not ask for them
    kind, known = kind_of(problem) if type(problem) is Problem else None, cast(Problem, problem)
    practical = rule == "practical"
    if practical:
        if because := _why_plain(problem, kind, users, secret, given):
            return None, plain(because)
        columns, most = known.features, MOST_COLUMNS_OF_SEVERAL if kind == "several" else MOST_COLUMNS
        few = columns <= most
        rule, size = "whitened" if few else "centred", f"{'at most' if few else 'above'} {most}"
        hides = LARGEST_EDGE_OF_SEVERAL if kind == "several" else LARGEST_EDGE
        if few and kind != "squares" and edge(known, noise, users) > hides:
            rule, size = "centred" if kind == "several" else "scaled", "whose products noise would hide"
        why = f'rule "{rule}", for {_KINDS[cast(str, kind)]} of {columns:,} columns, {size}'
    else:
        why = f'rule "{rule}", as asked'
    if given["method"] is not None:
        raise ArgumentError("method", given["method"], f"left out with rule={rule!r}", "The rule has its own steps.")
    if kind is None or not secret or rule not in _HAVE[kind]:
        has = "two classes 'centred', 'scaled' and 'whitened', several 'centred' and 'whitened', squares 'whitened'"
        allowed = f"'plain', or what the loss has: {has}"
        remedy = "They need secret lots, so sequential rounds with tight calibration, and no l2. 'practical' takes what there is."
        raise ArgumentError("rule", rule, allowed, remedy)
    staged = {"centred": centred, "scaled": scaled, "whitened": whitened}[rule](known, noise, users)
    if not practical:
        staged = replace(staged, focus=0.0)
    clip, curvature, rounds = (given[name] for name in ("clip", "curvature", "rounds"))
    if clip is not None:
        staged = replace(staged, clip=real("clip", clip, above=0, remedy="State the norm to which gradients are clipped."))
    if curvature is not None:
        staged = replace(staged, curvature=real("curvature", curvature, above=0, remedy="Half of the rule's choice is bold."))
    if rounds is None and users < _LEAST_BATCH * staged.rounds:
        staged = staged.with_rounds(max(LEAST_ROUNDS, users // _LEAST_BATCH))
    if rounds is not None:
        remedy = "One round at least asks about rows and one for gradients, and users are shared among all of them."
        staged = staged.with_rounds(whole("rounds", rounds, at_least=2, at_most=users, remedy=remedy))
    return staged, why


def plain(because: str) -> str:
    """What a schedule says of the plain rule, and why it was taken."""
    return f'rule "plain", {because}'


def _why_plain(problem: Objective, kind: str | None, users: int, secret: bool, given: Mapping[str, Any]) -> str:
    """Why no other practical rule goes with what was asked for; empty if one does."""
    if kind is None:
        without = replace(problem, l2=0.0) if isinstance(problem, Problem) else problem
        return "the only one for this loss" if kind_of(without) is None else "because l2 was given"
    if not secret:
        return "because lots are not secret"
    for name in ("method", "clip", "curvature"):
        if given[name] is not None:
            return f"because {name} was given"
    if given["rounds"] is not None and given["rounds"] < LEAST_ROUNDS:
        return f"because fewer than {LEAST_ROUNDS} rounds were asked for"
    if users < LEAST_ROUNDS * _LEAST_BATCH:
        return f"because there are fewer than {LEAST_ROUNDS * _LEAST_BATCH} users"
    if kind == "squares" and cast(Problem, problem).features > MOST_COLUMNS:
        return f"for least squares of more than {MOST_COLUMNS} columns"
    return ""


# What openings ask, in words; and the rules that every kind has.
ASKS = {"mean": "the mean of rows", "spread": "means and squares of columns", "moments": "second moments of rows"}
_HAVE = {"two": ("centred", "scaled", "whitened"), "several": ("centred", "whitened"), "squares": ("whitened",)}
_KINDS = {"two": "two classes", "several": "several classes", "squares": "least squares"}


def asks(phases: Sequence[Phase]) -> str:
    """What the rounds of a run ask, in words."""
    parts = []
    for phase in phases:
        rounds = "1 round" if phase.rounds == 1 else f"{phase.rounds} rounds"
        if phase.opens:
            blocks = "" if phase.plan.blocks == 1 else f" in {phase.plan.blocks} blocks"
            parts.append(f"{rounds} {'asks' if phase.rounds == 1 else 'ask'} for {ASKS[phase.algorithm]}{blocks}")
        elif phase.descends:
            parts.append(f"{rounds} for gradients{', in which people with even odds may count most' if phase.focus else ''}")
        else:
            parts.append(f"{rounds} for how far to go")
    return ", ".join(parts)
