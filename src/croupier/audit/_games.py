"""Every kind of result that is released, as a game: two neighbouring populations, one run, and one number from what was seen.

The neighbours are the farthest that the guarantee allows: one person's vector turns from one end of the ball to the other. All
others stand at one end, where rounding is exact, so that nothing but the noise hides that person. The player knows their records.
The number is the statistic of the likelihood ratio test for Gaussian noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from ..estimator import PrivacyAccount, ShuffleLinearSVC, ShuffleLogisticRegression, ShuffleScaler
from ..optimizer import PanPrivate, minimize, schedule
from ..optimizer._gradients import MEAN_SHARE
from ..optimizer.algorithms import Iterate
from ..optimizer.training import run
from ..population import ArrayPopulation
from ..population.population import Question
from ..privacy import Guarantee, SumPlan, plan_lots, plan_scalar_sum, plan_sum
from ..privacy.lots import Opening
from ..problem import Ball, CappedLogistic, CustomProblem, Problem
from ..protocol import ScalarSum, SecureRandom, SeededRandom, SumEstimate, VectorSum
from ..protocol._encoding import Rotation
from ..protocol.randomness import RandomSource

Floats = NDArray[np.float64]
Mechanism = Callable[[bool], float]
_USERS = 20
_USERS_OF_STREAM = 8
_ROUNDS = 3
_ROUNDS_WITH_LINE = 12
# The two values u for which the moments (u, 2 u^2 - 1) are farthest apart: from u = 1 the root of u^2 + u + 1/8 = 0.
_SCALER_ENDS = (1.0, (math.sqrt(0.5) - 1) / 2)


class Coins:
    """Randomness for run after run: secure, or from a seed, so that a test can be repeated."""

    def __init__(self, seed: int | None = None) -> None:
        self._seeds = None if seed is None else count(seed * 1_000_000)
        self.source: RandomSource = SecureRandom() if seed is None else SeededRandom(seed)

    def seed(self) -> int | None:
        """Return the seed of the next run."""
        return None if self._seeds is None else next(self._seeds)


@dataclass(frozen=True)
class Kind:
    """One kind of result.

    `name`: What is released. `seen`: What the player sees, and what the neighbouring populations are. `game`: From (epsilon, delta,
    coins) to what is claimed and a function that runs the real thing once, on the population (False) or on its neighbour (True),
    and returns the player's number. `share`: The share of a session's runs that this game has: less where a run takes long.
    """

    name: str
    seen: str
    game: Callable[[float, float, Coins], tuple[Guarantee, Mechanism]]
    share: float = 1.0


def _neighbours(users: int, dim: int, ends: tuple[float, float]) -> tuple[Floats, Floats]:
    """User 0, the one at stake, at these two places of the first axis; all others at its end."""
    population = np.zeros((users, dim))
    population[:, 0] = 1.0
    neighbour = population.copy()
    population[0, 0], neighbour[0, 0] = ends
    return population, neighbour


def _sum(plan: SumPlan, coins: Coins, times: int = 1, axis: int = 0) -> tuple[Guarantee, Mechanism]:
    """`times` sums of the same people, of whom as many take part as the guarantee counts on, along one axis."""
    other_end = 1.0 if plan.neighbours == "replace-one" else 0.0
    populations = [np.roll(vectors, axis, axis=1) for vectors in _neighbours(plan.honest_users, plan.dim, (-1.0, other_end))]
    protocol = VectorSum(plan)

    def released(neighbour: bool) -> float:
        return float(sum(protocol.run(populations[neighbour], random=coins.source).sum[axis] for _ in range(times)))

    return plan.guarantee.compose(*[plan.guarantee] * (times - 1)), released


def _vector_sum(epsilon: float, delta: float, coins: Coins) -> tuple[Guarantee, Mechanism]:
    return _sum(plan_sum(epsilon=epsilon, delta=delta, users=_USERS, dim=2), coins)


def _rotated_sum(epsilon: float, delta: float, coins: Coins) -> tuple[Guarantee, Mechanism]:
    """The estimate of one axis is a sum of all rotated coordinates, padding included. What is the same in all of them, such as a
    wrong mean of the noise, falls on the first axis: this is another."""
    return _sum(plan_sum(epsilon=epsilon, delta=delta, users=_USERS, dim=12, rotation=1.0), coins, axis=1)


def _zero_out_sum(epsilon: float, delta: float, coins: Coins) -> tuple[Guarantee, Mechanism]:
    return _sum(plan_sum(epsilon=epsilon, delta=delta, users=_USERS, dim=2, neighbours="zero-out"), coins)


def _half_honest_sum(epsilon: float, delta: float, coins: Coins) -> tuple[Guarantee, Mechanism]:
    return _sum(plan_sum(epsilon=epsilon, delta=delta, users=2 * _USERS, dim=2, honest=0.5), coins)


def _two_sums(epsilon: float, delta: float, coins: Coins) -> tuple[Guarantee, Mechanism]:
    return _sum(plan_sum(epsilon=epsilon / 2, delta=delta / 2, users=_USERS, dim=2), coins, times=2)


def _scalar_sum(epsilon: float, delta: float, coins: Coins) -> tuple[Guarantee, Mechanism]:
    plan = plan_scalar_sum(epsilon=epsilon, delta=delta, users=_USERS, width=2.0)
    populations, protocol = _neighbours(_USERS, 1, (-1.0, 1.0)), ScalarSum(plan, lower=-1.0)
    return plan.guarantee, lambda neighbour: float(protocol.run(populations[neighbour][:, 0], random=coins.source).sum)


def _scaler(epsilon: float, delta: float, coins: Coins) -> tuple[Guarantee, Mechanism]:
    populations = _neighbours(_USERS, 1, _SCALER_ENDS)
    moments = [np.array([u, 2 * u**2 - 1]) for u in _SCALER_ENDS]

    def fitted(neighbour: bool) -> ShuffleScaler:
        scaler = ShuffleScaler(
            epsilon=epsilon, delta=delta, feature_range=(-1, 1), account=PrivacyAccount(), random_state=coins.seed()
        )
        return scaler.fit(populations[neighbour])

    guarantee: Guarantee = fitted(False).plan_.guarantee
    return guarantee, lambda neighbour: float(fitted(neighbour).estimate_.sum @ (moments[1] - moments[0]))


class _Watched(ArrayPopulation):
    """Notes in which rounds user 0 was asked. The guarantee does not count on that being hidden, so the player is told."""

    with_user: tuple[bool, ...] = ()

    def answer(self, question: Question) -> SumEstimate:
        in_batch = question.batch.members(0, 1).size > 0
        self.with_user = (*self.with_user, in_batch)
        return super().answer(question)


class _Allotted(ArrayPopulation):
    """Notes how many of the others, who all stand at one end, were in each round: the player knows their lots, not user 0's."""

    def answer(self, question: Question) -> SumEstimate:
        others = question.batch.size - question.batch.members(0, 1).size
        self.others = [*getattr(self, "others", []), others]
        return super().answer(question)


def _lots(epsilon: float, delta: float, coins: Coins) -> tuple[Guarantee, Mechanism]:
    """Training by secret lots. The number is the ratio of likelihoods that user 0 is at one end in some round, or at the other."""
    users = _ROUNDS * _USERS
    populations = _neighbours(users, 1, (-1.0, 1.0))

    def model() -> ShuffleLinearSVC:
        return _svc(epsilon, delta, "sequential", coins, lots="secret")

    phase = model().plan(users, 1).phases[0]
    scale, precision = phase.mean_of, phase.plan.norm / phase.plan.noise_std**2

    def released(neighbour: bool) -> float:
        X, trained = populations[neighbour], model()
        population = _Allotted(*trained.records(X, np.ones(len(X), dtype=int)))
        history = trained.fit_population(population, features=1).result_.history
        left = np.array([-scale * round.gradient[0] for round in history]) - np.array(population.others)
        return float(logsumexp(precision * left) - logsumexp(-precision * left))

    return phase.guarantee, released


def _stages(rule: Literal["scaled", "whitened"], epsilon: float, delta: float, coins: Coins) -> tuple[Guarantee, Mechanism]:
    """Training whose first rounds ask about rows, by secret lots. All others' rows are 0: their lots do not matter.

    The number is the ratio of likelihoods that user 0's row is 1 in some round, or 0 in all: a moment of 1, or a row of 1 beside
    its square, and a gradient as long as the clip, which is how long a capped gradient is at any point if the row is long in the
    coordinates that were found.
    """
    users = _ROUNDS * _USERS
    others = np.zeros((users, 1))
    populations = [others, np.vstack([[[1.0]], others[1:]])]

    def model() -> ShuffleLogisticRegression:
        return ShuffleLogisticRegression(
            epsilon=epsilon,
            delta=delta,
            classes=[0, 1],
            rule=rule,
            rounds=_ROUNDS,
            feature_norm=1.0,
            fit_intercept=False,
            neighbours="zero-out",
            account=PrivacyAccount(),
            random_state=coins.seed(),
        )

    phases = model().plan(users, 1).phases
    said = np.sqrt([MEAN_SHARE, 1 - MEAN_SHARE]) if rule == "scaled" else np.ones(1)
    ends = {1: said, 2: np.array([-phases[1].plan.norm])}  # what user 0 sends with the row 1 and the second label

    def released(neighbour: bool) -> float:
        trained = model().fit(populations[neighbour], np.ones(users, dtype=int))
        ratios = []
        for asked in trained.result_.history:
            phase, end = phases[asked.phase - 1], ends[asked.phase]
            ratios.append(end @ (asked.gradient * phase.mean_of - end / 2) / phase.plan.noise_std**2)
        return float(logsumexp(ratios))

    return phases[0].guarantee, released


class _Noted(ArrayPopulation):
    """Notes what every round asked, and the sum that came back."""

    def answer(self, question: Question) -> SumEstimate:
        estimate = super().answer(question)
        self.seen = [*getattr(self, "seen", []), (question.plan, question.query, estimate.sum)]
        return estimate


def _line(epsilon: float, delta: float, coins: Coins) -> tuple[Guarantee, Mechanism]:
    """Training of three classes, whose last rounds ask for slopes along a line, by secret lots. All others' rows are 0.

    The number is the ratio of likelihoods that user 0's row is 1 in some round, or 0 in all, by the vector that the row has there.
    """
    users = _ROUNDS_WITH_LINE * _USERS
    populations = [np.zeros((users, 1)), np.vstack([[[1.0]], np.zeros((users - 1, 1))])]
    public: dict[str, Any] = {"classes": [0, 1, 2], "feature_norm": 1.0, "fit_intercept": False, "neighbours": "zero-out"}

    def model() -> ShuffleLogisticRegression:
        chosen: dict[str, Any] = {"rule": "centred", "rounds": _ROUNDS_WITH_LINE, "random_state": coins.seed()}
        return ShuffleLogisticRegression(epsilon=epsilon, delta=delta, account=PrivacyAccount(), **public, **chosen)

    planned = model().plan(users, 1)

    def released(neighbour: bool) -> float:
        trained = model()
        people = _Noted(*trained.records(populations[neighbour], np.ones(users, dtype=int)))
        trained.fit_population(people, features=1)
        ratios = []
        for plan, query, total in people.seen:
            end = np.asarray(query(*trained.records(np.ones((1, 1)), np.ones(1, dtype=int))))[0]
            ratios.append(end @ (total - end / 2) / plan.noise_std**2)
        return float(logsumexp(ratios))

    return planned.guarantee, released


class _Blocks(ArrayPopulation):
    """Notes the released sum of every block of a round, with the round's public rotation."""

    def answer(self, question: Question) -> SumEstimate:
        estimate = super().answer(question)
        self.seen = [*getattr(self, "seen", []), (question.plan, question.rotation, question.block, estimate.sum)]
        return estimate


def _blocks(epsilon: float, delta: float, coins: Coins) -> tuple[Guarantee, Mechanism]:
    """Rounds of secret lots and blocks. All others' vectors are 0, as blanks are: their lots do not matter.

    The number is the ratio of likelihoods that user 0's vector is as long as it can be in some block of some round, or 0 in all.
    """
    users, dim = 2 * _USERS, 16
    vector = np.eye(1, dim, 1)  # not the first axis, on which what is the same in all rotated coordinates falls
    populations = [np.zeros((users, dim)), np.vstack([vector, np.zeros((users - 1, dim))])]
    problem = CustomProblem(lambda theta, X, y: np.asarray(X), Ball(dim=dim, radius=1.0), lipschitz=1.0, smoothness=1e3)
    asked: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "rounds": 2, "lots": "secret", "blocks": 2}
    asked |= {"neighbours": "zero-out", "method": "acsa", "rule": "plain", "max_inflation": 1.05}

    def released(neighbour: bool) -> float:
        people = _Blocks(populations[neighbour])
        minimize(problem, people, **asked, seed=coins.seed())
        ratios = []
        for plan, seed, block, seen in people.seen:
            rotation = Rotation(plan, seed)
            sent = plan.norm * plan.range * rotation.back(rotation.turned(vector, block)[0], block)
            ratios.append(float(sent @ (seen - sent / 2)) / (plan.noise_std / plan.blocks) ** 2)
        return float(logsumexp(ratios))

    return schedule(problem, users, **asked).guarantee, released


class _Opened(ArrayPopulation):
    """Notes of every block of every round how much likelier its released sum is with the record `end` in it than without."""

    end: tuple[Floats, NDArray[np.int64]]

    def answer(self, question: Question) -> SumEstimate:
        estimate, plan = super().answer(question), question.plan
        unit = np.asarray(question.query(*self.end), dtype=np.float64) / plan.norm
        unit /= max(1.0, float(np.linalg.norm(unit)))
        sent = plan.norm * unit[0]
        if plan.range is not None:
            rotation, block = Rotation(plan, question.rotation), question.block
            sent = plan.norm * plan.range * rotation.back(rotation.turned(unit, block)[0], block)
        ratio = float(sent @ (np.asarray(estimate.sum) - sent / 2)) / (plan.noise_std / plan.blocks) ** 2
        self.ratios = [*getattr(self, "ratios", []), ratio]
        return estimate


def _opening_blocks(epsilon: float, delta: float, coins: Coins) -> tuple[Guarantee, Mechanism]:
    """Training whose first round asks for second moments in secret blocks, with the fewest lots that there can be: two blocks, and
    one round of gradients. All others' rows are 0, as blanks are: their lots do not matter.

    The number is the ratio of likelihoods that user 0's row, of length 1, is in a block or in the round of gradients, or in none.
    """
    users, columns = 2 * _USERS, 22  # 253 moments of 256 rotated coordinates: the longer a block, the nearer its norm to the clip
    problem = Problem(CappedLogistic(), Ball(dim=columns, radius=10.0), feature_norm=1.0)
    asked: dict[str, Any] = {"rule": "whitened", "rounds": 2, "neighbours": "zero-out", "max_inflation": 1.05}
    usual = schedule(problem, users, epsilon=epsilon, delta=delta, **asked)
    moments, descent = usual.phases
    lots = plan_lots(
        epsilon=epsilon,
        delta=delta,
        users=users,
        rounds=2,
        dim=columns,
        norm=descent.plan.norm,
        neighbours="zero-out",
        opening=[Opening(1, moments.plan.dim, moments.plan.norm, blocks=2)],
    )
    phases = [
        replace(phase, plan=stage.plan, rounds=stage.rounds, batch=lots.size, lots=lots)
        for phase, stage in zip((moments, descent), lots.stages, strict=True)
    ]
    chosen = replace(usual, phases=tuple(phases))
    rows, labels = np.zeros((users, columns)), np.ones(users, dtype=np.int64)
    end = np.eye(1, columns, 1), labels[:1]
    populations = [rows, np.vstack([end[0], rows[1:]])]

    def released(neighbour: bool) -> float:
        people = _Opened(populations[neighbour], labels)
        people.end = end
        run(problem, people, chosen, start=np.zeros(columns), seed=coins.seed())
        return float(logsumexp(people.ratios))

    return chosen.guarantee, released


Interactivity = Literal["sequential", "full"]


def _svc(
    epsilon: float, delta: float, interactivity: Interactivity, coins: Coins, lots: Literal["secret", "open"]
) -> ShuffleLinearSVC:
    """The hinge loss over a ball in which nobody's margin is reached, so that gradients are -y x wherever training goes."""
    return ShuffleLinearSVC(
        epsilon=epsilon,
        delta=delta,
        classes=[0, 1],
        interactivity=interactivity,
        lots=lots,
        rounds=_ROUNDS,
        radius=0.25,
        feature_norm=1.0,
        fit_intercept=False,
        account=PrivacyAccount(),
        random_state=coins.seed(),
    )


def _training(
    interactivity: Interactivity, rows_of_a_person: int = 1
) -> Callable[[float, float, Coins], tuple[Guarantee, Mechanism]]:
    """Training with open lots."""

    def game(epsilon: float, delta: float, coins: Coins) -> tuple[Guarantee, Mechanism]:
        users = _ROUNDS * _USERS
        person_of_row = np.repeat(np.arange(users), [rows_of_a_person, *[1] * (users - 1)])
        populations = [rows[person_of_row] for rows in _neighbours(users, 1, (-1.0, 1.0))]

        def model() -> ShuffleLinearSVC:
            return _svc(epsilon, delta, interactivity, coins, lots="open")

        def released(neighbour: bool) -> float:
            X, trained = populations[neighbour], model()
            groups = None if rows_of_a_person == 1 else person_of_row
            population = _Watched(*trained.records(X, np.ones(len(X), dtype=int)), groups=groups)
            history = trained.fit_population(population, features=1).result_.history
            seen = zip(history, population.with_user, strict=True)
            return float(sum(round.users * round.gradient[0] for round, with_user in seen if with_user))

        return model().plan(users, 1).guarantee, released

    return game


def _identity(theta: Floats) -> Floats:
    return theta


def _stream(look: str) -> Callable[[float, float, Coins], tuple[Guarantee, Mechanism]]:
    """A stream of one batch, with a linear loss; its steps are so short that none is cut off at the ball."""

    def game(epsilon: float, delta: float, coins: Coins) -> tuple[Guarantee, Mechanism]:
        populations = _neighbours(_USERS_OF_STREAM, 1, (-1.0, 1.0))
        problem = CustomProblem(lambda theta, X, y: np.asarray(X), Ball(dim=1, radius=1.0), lipschitz=1.0, smoothness=1e3)

        def stream() -> PanPrivate:
            return PanPrivate(problem, _USERS_OF_STREAM, epsilon=epsilon, delta=delta, rounds=1, seed=coins.seed())

        phase = stream().schedule.phases[0]
        plan = phase.plan
        start = Iterate(1, problem.domain.start(), problem.domain.start())
        # what a count of one more does to the output, by the public rule of the step
        slope = float(start.step(np.ones(1), _identity, cast(float, phase.damping), phase.paper_steps).aggregate[0])
        slope *= 2 * plan.norm / (plan.levels * phase.batch)

        def released(neighbour: bool) -> float:
            fed = stream()
            before = fed.state.counts[0]
            for number, row in enumerate(populations[neighbour]):
                fed.feed(row)
                if look == "after" and number == 0:
                    return float(fed.state.counts[0])
            return float(fed.theta[0] / slope - before)

        guarantees = [phase.plan.guarantee for phase in stream().schedule.phases]
        return guarantees[0].worst_of(*guarantees[1:]), released

    return game


_REPLACED = "one person's vector at one end of the ball or at the other"
PROTOCOL = (
    Kind("vector sum", f"the sum; {_REPLACED}", _vector_sum),
    Kind("vector sum, rotated", f"the sum, turned back; {_REPLACED}", _rotated_sum),
    Kind("vector sum, zero-out", "the sum; one person's vector at an end of the ball or 0", _zero_out_sum),
    Kind("vector sum, half honest", f"the sum over the honest half alone; {_REPLACED}", _half_honest_sum),
    Kind("scalar sum", "the sum; one person's number at one end of the interval or at the other", _scalar_sum),
    Kind("two sums, composed", f"both sums of the same people; {_REPLACED}", _two_sums),
    Kind("scaler", "means and squares; one person's value at the two points whose moments are farthest apart", _scaler),
    Kind("sequential training", "the transcript and the batches; one person's row turned round", _training("sequential")),
    Kind(
        "sequential training, secret lots",
        "the transcript and the others' lots, not the person's; one person's row turned round",
        _lots,
    ),
    Kind(
        "moments, then gradients, secret lots",
        "the transcript of rounds that ask different questions; one person's row as long as it can be, or 0",
        partial(_stages, "whitened"),
    ),
    Kind(
        "spreads, then gradients, secret lots",
        "the same where the first rounds ask for means and squares of columns",
        partial(_stages, "scaled"),
    ),
    Kind(
        "gradients, then slopes along a line, secret lots",
        "the transcript; one person's row as long as it can be, or 0",
        _line,
        share=0.25,
    ),
    Kind(
        "secret blocks, secret lots",
        "the sums of all blocks of all rounds, and their rotations; one person's vector as long as it can be, or 0",
        _blocks,
        share=0.25,
    ),
    Kind(
        "moments in secret blocks, secret lots",
        "the sums of both blocks of second moments and of the gradients, and their rotations; one person's row of length 1, or 0",
        _opening_blocks,
        share=0.25,
    ),
    Kind("full training", "the transcript; one person's row turned round", _training("full")),
    Kind("several rows per person", "the transcript of full training; all rows of one person turned round", _training("full", 5)),
    Kind("pan-private, after", "the state right after the record came; the record turned round", _stream("after")),
    Kind("pan-private, before", "the state before the record and the output; the record turned round", _stream("before")),
)
