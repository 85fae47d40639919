"""Models and questions as games: regressions, classifiers with weights, logistic training by secret lots, a model's scores, words,
tables, streams and choices.

The player looks at every question that is asked, as the party that asks knows it, and computes what each record would have added:
so one player serves all estimators, whatever they ask for, and however a question depends on earlier answers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from ..estimator import (
    PrivacyAccount,
    ShuffleLinearRegression,
    ShuffleLinearSVC,
    ShuffleLogisticRegression,
    ShuffleLogit,
    ShuffleRidge,
)
from ..estimator.choosing import Contest
from ..population import ArrayPopulation, Query
from ..population.population import Question
from ..privacy import Guarantee
from ..protocol import SumEstimate
from ..statistics import HeavyHitters, Stream, Table, evaluate
from ..statistics.asking import answered, plan_for
from ..statistics.evaluating import evaluation_query
from ..statistics.streams import RunningStream
from ._games import Coins, Kind, Mechanism

Floats = NDArray[np.float64]
Records = tuple[Floats, NDArray[Any]]
_USERS = 24
_ROUNDS = 3
_DAYS = 3
# Of secret lots: the fewest rounds, so that the lot hides least and the game sees most.
_SECRET_ROUNDS = 2


class _Played(ArrayPopulation):
    """Notes of every question what either of two records of user 0 would have made of the answer, in units of the noise.

    `shifts` are (log-likelihood of the first record, of the second, whether user 0 was asked), against no record at all.
    """

    ends: Records

    def answer(self, question: Question) -> SumEstimate:
        estimate = super().answer(question)
        members = question.batch.members(0, self.users)
        others = members[members != 0]
        rest = np.zeros(question.plan.dim)
        if others.size:
            rest = np.asarray(question.query(self.X[others], np.asarray(self.y)[others]), dtype=np.float64).sum(axis=0)
        left = (np.asarray(estimate.sum) - rest) / question.plan.noise_std**2
        vectors = np.asarray(question.query(*self.ends), dtype=np.float64)
        first, second = (float(left @ one - one @ one / (2 * question.plan.noise_std**2)) for one in vectors)
        self.shifts = [*getattr(self, "shifts", []), (first, second, members.size > others.size)]
        return estimate


def _known(shifts: list[tuple[float, float, bool]]) -> float:
    """The ratio of likelihoods where the player knows in which rounds user 0 was asked."""
    return sum(second - first for first, second, asked in shifts if asked)


def _secret(shifts: list[tuple[float, float, bool]]) -> float:
    """The same where it is one of the rounds, and nobody knows which."""
    first, second, _ = np.array(shifts, dtype=np.float64).T
    return float(logsumexp(second) - logsumexp(first))


@dataclass(frozen=True)
class _Fit:
    """One estimator's game: how it is made, others' records, over and over, the two of user 0, and the claim."""

    made: Callable[[float, float, int | None], Any]
    others: tuple[tuple[list[float], float], ...]
    ends: tuple[tuple[list[float], float], tuple[list[float], float]]
    claim: Callable[[Any, int], Guarantee]
    number: Callable[[list[tuple[float, float, bool]]], float] = _known
    users: int = _USERS

    def __call__(self, epsilon: float, delta: float, coins: Coins) -> tuple[Guarantee, Mechanism]:
        features = len(self.others[0][0])
        rest = [self.others[place % len(self.others)] for place in range(self.users - 1)]

        def fitted(neighbour: bool) -> tuple[Any, _Played]:
            model = self.made(epsilon, delta, coins.seed())
            rows = [self.ends[neighbour], *rest, *self.ends]
            X, y = model.records(np.array([row for row, _ in rows]), np.array([target for _, target in rows]))
            population = _Played(X[: self.users], y[: self.users])
            population.ends = X[self.users :], y[self.users :]
            return model.fit_population(population, features=features), population

        return self.claim(fitted(False)[0], self.users), lambda neighbour: self.number(fitted(neighbour)[1].shifts)


def _common(epsilon: float, delta: float, seed: int | None) -> dict[str, Any]:
    return {"epsilon": epsilon, "delta": delta, "account": PrivacyAccount(), "random_state": seed}


def _scheduled(model: Any, users: int) -> Guarantee:
    guarantee: Guarantee = model.plan(users, 1).guarantee
    return guarantee


def _logistic(epsilon: float, delta: float, seed: int | None) -> Any:
    """Gradients are clipped to a norm that each of them reaches within the ball, so that the person's is at an end of the plan."""
    return ShuffleLogisticRegression(
        **_common(epsilon, delta, seed),
        classes=[0, 1],
        lots="secret",
        rounds=_SECRET_ROUNDS,
        radius=0.25,
        clip=0.4,
        fit_intercept=False,
    )


def _weighted(epsilon: float, delta: float, seed: int | None) -> Any:
    """The person is of the class that counts more, the others of the class that counts less."""
    return ShuffleLinearSVC(
        **_common(epsilon, delta, seed),
        classes=[0, 1],
        class_weight={0: 1.0, 1: 4.0},
        interactivity="full",
        rounds=_ROUNDS,
        radius=0.2,
        fit_intercept=False,
    )


def _linear(epsilon: float, delta: float, seed: int | None) -> Any:
    return ShuffleLinearRegression(**_common(epsilon, delta, seed), target_range=(-1, 1), fit_intercept=False, method="moments")


def _logit(epsilon: float, delta: float, seed: int | None) -> Any:
    return ShuffleLogit(**_common(epsilon, delta, seed), classes=[0, 1], fit_intercept=False, method="moments")


def _ridge(epsilon: float, delta: float, seed: int | None) -> Any:
    return ShuffleRidge(**_common(epsilon, delta, seed), target_range=(-1, 1), method="moments", fit_intercept=False)


class _Answers:
    """A model that is scored: it says the second class with the probability that a row holds."""

    classes_ = np.array([0, 1])

    def predict_proba(self, X: Any) -> Floats:
        return np.column_stack([1 - X[:, 0], X[:, 0]])

    def predict(self, X: Any) -> NDArray[np.int64]:
        return np.asarray(X[:, 0] > 0.5, dtype=np.int64)


def _scores(epsilon: float, delta: float, coins: Coins) -> tuple[Guarantee, Mechanism]:
    """`evaluate`: the person's cell is one of the two that are farthest apart."""
    model, rows = _Answers(), np.linspace(0, 1, 21)
    X, y = np.tile(rows, 2)[:, np.newaxis], np.repeat([0, 1], len(rows))
    vectors = evaluation_query(model)(X, y)
    apart = np.linalg.norm(vectors[:, np.newaxis] - vectors[np.newaxis], axis=2)
    ends = [int(end) for end in np.unravel_index(apart.argmax(), apart.shape)]
    towards = vectors[ends[1]] - vectors[ends[0]]

    def scored(neighbour: bool) -> Any:
        who = [ends[neighbour]] + [0] * (_USERS - 1)
        asked: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "seed": coins.seed(), "account": PrivacyAccount()}
        return evaluate(model, (X[who], y[who]), **asked).answer

    return scored(False).plan.guarantee, lambda neighbour: float(np.asarray(scored(neighbour).estimate.sum) @ towards)


def _question(query: Query, others: Any, ends: tuple[Any, Any]) -> Callable[[float, float, Coins], tuple[Guarantee, Mechanism]]:
    """Any query that everybody is asked once: the person's record is one of two, everybody else's is the same."""

    def game(epsilon: float, delta: float, coins: Coins) -> tuple[Guarantee, Mechanism]:
        rows = np.asarray(query.encode([*ends, *[others] * (_USERS - 1)]))
        first, second = query(rows[:2], None)
        plan = plan_for(query, _USERS, epsilon=epsilon, delta=delta)
        people = [ArrayPopulation(np.vstack([rows[place], rows[2:]])) for place in range(2)]

        def along(
            neighbour: bool,
        ) -> float:  # the noise is the same in all coordinates: the likelihood ratio is along the difference
            return float(np.asarray(answered(query, people[neighbour], plan, coins.seed()).sum) @ (second - first))

        return plan.guarantee, along

    return game


def _stream(epsilon: float, delta: float, coins: Coins) -> tuple[Guarantee, Mechanism]:
    """All days of a stream as they are told, one by one: the person counts on one of the two days that are farthest apart."""
    query = Stream(days=_DAYS)
    columns = query.root.T
    apart = np.linalg.norm(columns[:, np.newaxis] - columns, axis=2)
    ends = np.unravel_index(apart.argmax(), apart.shape)
    towards = columns[ends[1]] - columns[ends[0]]

    plan = plan_for(query, _USERS, epsilon=epsilon, delta=delta)

    def told(neighbour: bool) -> float:
        stream = RunningStream(query, plan, coins.seed())
        for day in range(_DAYS):
            stream.add([float(day == ends[neighbour]), *[0.0] * (_USERS - 1)])
        return float(np.asarray(stream.answer.sums) @ towards)

    return plan.guarantee, told


# The two records whose second moments are farthest apart, and of the others one between them.
_MOMENT_ENDS = (([1.0, 0.0], 1.0), ([-0.5, 0.75**0.5], 1.0))
_BETWEEN = (([0.5, 0.75**0.5], 1.0),)
# Labels that follow no row: so that weights stay near 0, where rows and labels show most.
_EVEN = tuple((row, label) for row in ([1.0, 0.0], [0.0, 1.0]) for label in (0.0, 1.0))
_TURNED = (([-1.0], 1.0), ([1.0], 1.0))
_LEVELS: dict[str, Any] = {"a": ["0", "1"], "b": ["0", "1"]}
MODELS = (
    Kind(
        "logistic training, secret lots",
        "the transcript and the others' lots, not the person's; one person's row turned round",
        _Fit(_logistic, (([1.0], 1.0),), _TURNED, _scheduled, _secret, 2 * _USERS),
        share=0.5,
    ),
    Kind(
        "weighted classes",
        "the transcript of full training; one person's row turned round, of the class that counts four times",
        _Fit(_weighted, (([1.0], 0.0),), _TURNED, _scheduled),
        share=0.25,
    ),
    Kind(
        "linear regression",
        "second moments; one person's record at the two points whose moments are farthest apart",
        _Fit(_linear, _BETWEEN, _MOMENT_ENDS, lambda model, _: model.plan_.guarantee),
        share=0.5,
    ),
    Kind(
        "ridge regression, moments",
        "second moments; one person's record at the two points whose moments are farthest apart",
        _Fit(_ridge, _BETWEEN, _MOMENT_ENDS, lambda model, _: model.plan_.guarantee),
        share=0.25,
    ),
    Kind(
        "logistic regression, intervals",
        "the sums of all three groups, and who is in which; one person's record at two points",
        _Fit(_logit, _EVEN, _MOMENT_ENDS, lambda model, _: model.rounds_.planned.guarantee, users=10 * _USERS),
        share=0.25,
    ),
    Kind(
        "a model's scores",
        "the sum of an evaluation; one person's score and label where two cells are farthest apart",
        _scores,
        share=0.25,
    ),
    Kind(
        "unknown words",
        "the table; one person's word is another one",
        _question(HeavyHitters(max_bytes=4, cells=256, hash_seed=5), "ab", ("same", "else")),
        share=0.25,
    ),
    Kind(
        "a joint table",
        "all cells, and the columns' own counts; one person is in another row and column",
        _question(Table("a", "b", schema=_LEVELS, marginals=0.3), [0.0, 1.0], ([0.0, 0.0], [1.0, 1.0])),
        share=0.25,
    ),
    Kind(
        "numbers within groups",
        "the sums of all groups; one person is in the other group, with the other number",
        _question(Table("x", by="a", schema=_LEVELS | {"x": (0, 1)}, bins=4), [0.0, 0.5], ([0.0, 0.0], [1.0, 0.0])),
        share=0.25,
    ),
    Kind(
        "counts over time",
        "every day's sum; one person counts on another day",
        _stream,
        share=0.25,
    ),
    Kind(
        "a choice among fits",
        "all candidates' scores; all are right about one person, or none is",
        _question(Contest(("a", "b", "c")), [1.0, 1.0, 1.0], ([0.0, 0.0, 0.0], [1.0, 1.0, 1.0])),
        share=0.25,
    ),
)
