"""Regression in secret rounds that zoom in: each asks moments, scores and squared scores where earlier rounds have led.

A round asks about a view: rows u are turned to z = M u, residuals taken about weights, rows longer than R and scores longer than B
cut. What is sent, the rule that finds the next view, estimate and covariance are in docs/statistics-theory.md#eight-secret-rounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtri, expit, ndtr

from ..arithmetic import row_dots, row_squares
from ..population import Query
from ..protocol._sparse import symmetric_matrix
from ..validation import ArgumentError, Found
from .moments import PRODUCTS, ROWS, SQUARES, Coefficients, Moments
from .query import finite, require_numbers, unit_rows

Floats = NDArray[np.float64]
# Rounds of a run, and how many of them find the shape of the data; those after them measure.
ROUNDS, EARLY = 8, 4
# How far off another round's K may be: this part of a step counts as unknown.
_OTHER_ROUND = 0.05
# The same of what is of second order in a logistic step.
_SECOND_ORDER = 0.05
# The share of a coefficient that may lie in directions which the noise hides before the data no longer decide it.
_LOST = 1e-4
# By how many standard deviations the rounds together must see a direction before anything about it is decided; how many of them
# count as what is of second order in 1 / K; and how many steps the search for the least seen direction takes.
_CERTAIN, _INVERSE, _SEARCHES = 3.0, 3.0, 12
_PARTS = np.array([[1.0], [0.3], [0.1], [0.03], [0.0]])
# A logistic round is left out, or a fit said not to have settled, where noise would lead so far from the last weights so rarely.
_FAR, _UNSETTLED = 1e-3, 1e-2
# The cosine of two ways from which on the second goes on as the first.
_ONWARD = 0.5
# Weights longer than this belong to no row of length 1: only noise leads there.
_LONGEST = 1e3
# A direction is narrow where the square of the longest row that there can be is so many times the mean; a share of rows below the
# other is too small to own it.
_NARROW, _FEW = 1e3, 1e-3


@dataclass(frozen=True, eq=False)
class Lens:
    """Where a round looks: coordinates z = turn u, weights about which residuals are taken, the longest row, the longest score."""

    turn: Floats
    weights: Floats
    reach: float = 1.0
    most: float = 1.0

    @classmethod
    def first(cls, columns: int) -> Lens:
        """Rows as they are, about 0."""
        return cls(np.eye(columns), np.zeros(columns))

    @classmethod
    def of(cls, point: Floats) -> Lens:
        """Read the view from its numbers."""
        columns = int((math.sqrt(4 * len(point) - 7) - 1) / 2 + 0.5)
        return cls(point[columns:-2].reshape(columns, columns), point[:columns], float(point[-2]), float(point[-1]))

    @property
    def point(self) -> Floats:
        """All of it in one row of numbers."""
        return np.concatenate([self.weights, self.turn.ravel(), [self.reach, self.most]])


@dataclass(frozen=True, eq=False)
class Zoomed(Query):
    """What a user sends of its row and target, seen from a view; at most 1 long whatever record and view are.

    With z = M u of length q, direction v = z / q, m = min(q, R) / R and t = min(q, R^2/q) r / B cut to [-1, 1], these are (a k m^2
    svec(v v'), b t v, c t^2, f t^2 svec(v v'), h o, l). Linear: k is 1 where t was not cut, else 0, and o is 1 - k, so that h = a
    costs nothing. Logistic: k = 4p(1 - p), where r = y - p, and o = min(q^2 / 4R^2, 1). Where q is above R, l is b, or what the
    other parts leave of length 1 if that is less, so that it costs nothing either; elsewhere it is 0.

    `view`: Where it looks. `parts`: a, b, c, f and h, such that vectors are at most 1 long. Without f, no squares by direction are
    sent. `logistic`: Whether residuals are those of probabilities.
    """

    view: Lens
    parts: tuple[float, float, float, float, float]
    logistic: bool = False

    norm = 1.0
    diameter = 2.0
    parallel = True

    @property
    def columns(self) -> int:
        """Columns of a row."""
        return len(self.view.weights)

    @property
    def dim(self) -> int:
        """Coordinates of a vector."""
        return size_of(self.columns, bool(self.parts[3]))

    def check_records(self, X: Any, y: Any) -> None:
        """Refuse records of another shape, or without targets."""
        if X.shape[1] != self.columns:
            raise ArgumentError("X.shape", X.shape, f"(users, {self.columns})", "Plan for as many columns.")
        if y is None:
            raise ArgumentError("data", Found("is X alone"), "(X, y)", "Pass the targets.")
        require_numbers(y)

    def __call__(self, X: Any, y: Any) -> Floats:
        view, (a, b, c, f, h) = self.view, self.parts
        rows, targets = unit_rows(X), np.asarray(y, dtype=np.float64)
        with np.errstate(all="ignore"):  # what overflows is not finite, and is sent as nothing
            z = np.einsum("ij,kj->ik", rows, view.turn)  # not by BLAS: each row by itself, or others' cuts might tell of it
            largest = np.abs(z).max(axis=1, initial=0.0)
            z = z / np.maximum(largest, 1e-300)[:, np.newaxis]
            length = np.sqrt(row_squares(z))
            v = z / np.maximum(length, 1e-300)[:, np.newaxis]
            q = length * largest
            short = np.minimum(q / view.reach, 1.0)
            scores = row_dots(rows, view.weights)
            if self.logistic:
                p = expit(scores)
                residual = np.where(targets == 1, 1 - p, -p)
                known = np.isin(targets, (-1.0, 0.0, 1.0))
                kept, odd = np.minimum(4 * p * (1 - p), 1.0), np.minimum((q / (2 * view.reach)) ** 2, 1.0)
            else:
                residual = np.clip(targets, -1.0, 1.0) - scores
                known = np.isfinite(targets)
            # of a row longer than R both R^2/q and R/q are at most R: no weight is larger
            whole = np.minimum(q, view.reach * np.minimum(view.reach / np.maximum(q, 1e-300), 1.0)) * residual / view.most
            t = np.clip(whole, -1.0, 1.0)
            if not self.logistic:
                kept, odd = (t == whole).astype(np.float64), (t != whole).astype(np.float64)
            first, second = np.triu_indices(self.columns)
            products = v[:, first] * v[:, second] * np.where(first == second, 1.0, math.sqrt(2))
            own = [(a * kept * short**2)[:, np.newaxis] * products, (b * t)[:, np.newaxis] * v, (c * t**2)[:, np.newaxis]]
            own += [(f * t**2)[:, np.newaxis] * products] if f else []
            vectors = np.hstack([*own, (h * odd)[:, np.newaxis]])
            left = np.sqrt(np.maximum(1 - row_squares(vectors), 0.0))
            vectors = np.column_stack([vectors, np.where(q > view.reach, np.minimum(left, b), 0.0)])
            vectors = np.where((known & (q > 0))[:, np.newaxis], vectors, 0.0)
        return unit_rows(finite(vectors))


def size_of(columns: int, squares: bool) -> int:
    """Return how many coordinates a round has."""
    pairs = columns * (columns + 1) // 2
    return pairs * (1 + squares) + columns + 3


@dataclass(frozen=True, eq=False)
class Seen:
    """What a round has shown, in its view: A, the mean of k w z z'; g, of w r z; v, of |w r z|^2; S, of (w r)^2 z z'; the odd rest.

    `long` is at most the share of rows longer than R. The fields that end in `_std` are the noise of an entry, of matrices on the
    diagonal.
    """

    view: Lens
    A: Floats
    g: Floats
    v: float
    S: Floats | None
    odd: float
    long: float
    A_std: float
    g_std: float
    v_std: float
    odd_std: float
    long_std: float

    def in_turn(self, turn: Floats) -> Floats:
        """What leads from its coordinates to others."""
        return np.asarray(turn @ np.linalg.inv(self.view.turn))


@dataclass(frozen=True, eq=False)
class Pooled:
    """The mean of some rounds' A in common coordinates, by its spectrum; its noise; and each round's size beside it.

    `rounds` has each round's A over its noise, and that noise's shape, in the same coordinates; `weights`, of length 1, two ways to
    add rounds up: all alike, which is best where the last ones tell most, or by the noise of their own views.
    """

    A: Floats
    std: float
    sizes: tuple[float, ...]
    rounds: tuple[tuple[Floats, Floats], ...]
    weights: tuple[Floats, ...]
    values: Floats = field(init=False)
    vectors: Floats = field(init=False)

    def __post_init__(self) -> None:
        values, vectors = np.linalg.eigh((self.A + self.A.T) / 2)
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "vectors", vectors)

    @classmethod
    def over(cls, seen: Sequence[Seen], turn: Floats) -> Pooled:
        """Pool rounds, each by the noise that it has in these coordinates."""
        turns = [one.in_turn(turn) for one in seen]
        every = [by @ one.A @ by.T for by, one in zip(turns, seen, strict=True)]
        shares = np.array([(one.A_std * float(np.sum(by**2)) / len(turn)) ** -2 for by, one in zip(turns, seen, strict=True)])
        A = np.einsum("r,rij->ij", shares / shares.sum(), np.array(every))
        trace = max(float(np.trace(A)), 1e-9)
        sizes = tuple(min(max(float(np.trace(one)) / trace, 0.5), 2.0) for one in every)
        rounds = tuple((own / one.A_std, by @ by.T) for own, by, one in zip(every, turns, seen, strict=True))
        own = np.array([1 / one.A_std for one in seen])
        weights = tuple(one / np.linalg.norm(one) for one in (np.ones(len(seen)), own))
        return cls(A, float(shares.sum()) ** -0.5, sizes, rounds, weights)

    @property
    def edge(self) -> float:
        """The largest eigenvalue of the noise alone."""
        return self.std * math.sqrt(2 * (len(self.A) + 1))

    @cached_property
    def raised(self) -> Floats:
        """Eigenvalues, at least half of the edge."""
        return np.maximum(self.values, self.edge / 2)

    @cached_property
    def seen(self) -> NDArray[np.bool_]:
        """Which directions stand out of the noise."""
        return np.asarray(self.values > self.edge / 2)

    @cached_property
    def unsure(self) -> tuple[Floats, float]:
        """Directions that noise may have made, as orthonormal columns, and by how many standard deviations all others are seen.

        Views follow from earlier noise, which has made rows alike in all directions: eigenvalues near 1 prove nothing. But given
        its view, a round's v'A v has noise of a size that is known before. So in a direction in which rows are 0 the sum over
        rounds of v'A v, each over its own noise, is normal, whatever the views were.
        """
        lost, kept = self.vectors[:, ~self.seen], self.vectors[:, self.seen]
        while kept.shape[1]:
            sight, direction = max((self._least_seen(kept, weights) for weights in self.weights), key=lambda found: found[0])
            if sight > _CERTAIN:
                return lost, sight
            lost = np.column_stack([lost, kept @ direction])
            kept = kept @ np.linalg.svd(direction[np.newaxis])[2][1:].T
        return lost, math.inf

    def _least_seen(self, basis: Floats, weights: Floats) -> tuple[float, Floats]:
        """The direction within these that rounds together see least, in their coordinates, from the one that each sees least."""
        own = np.array([basis.T @ one @ basis for one, _ in self.rounds])
        noise = np.array([basis.T @ shape @ basis for _, shape in self.rounds])
        least, found = math.inf, basis[0]
        for start in (*own, own.sum(axis=0)):
            v = np.linalg.eigh(start)[1][:, 0]
            for _ in range(_SEARCHES):
                a, q = (own @ v) @ v, (noise @ v) @ v
                # v is the last eigenvector of this where the sum is least, and elsewhere the sum falls towards it
                slope = np.tensordot(weights / q, own, 1) - np.tensordot(weights * a / q**2, noise, 1)
                towards = np.linalg.eigh(slope)[1][:, 0]
                ways = v + _PARTS * (np.copysign(1.0, towards @ v) * towards - v)
                sights = weights @ (((ways @ own) * ways).sum(axis=2) / ((ways @ noise) * ways).sum(axis=2))
                best = int(np.argmin(sights))
                v = ways[best] / np.linalg.norm(ways[best])
                if sights[best] < least:
                    least, found = float(sights[best]), v
        return least, found

    @property
    def positive(self) -> Floats:
        """Eigenvalues, at least 0."""
        return np.maximum(self.values, 0.0)

    def matrix(self, values: Floats) -> Floats:
        """The matrix with the same directions and these eigenvalues."""
        return np.asarray((self.vectors * values) @ self.vectors.T)


@dataclass(frozen=True)
class Zoom:
    """The rule: what each round asks, the view that follows from what came back, and the estimate at the end.

    `columns`: Of a row as it is sent, the constant included. `users`: All people. `noise`: Of a coordinate of each round's sum.
    """

    columns: int
    users: int
    noise: tuple[float, ...]

    logistic: ClassVar[bool] = False
    shape: ClassVar[tuple[float, ...]] = (0.80, 0.55, 0.25, 0.0)
    measure: ClassVar[tuple[float, ...]] = (0.50, 0.80, 0.25, 0.25)
    used: ClassVar[int] = 1  # the first round that the estimate rests on, counted from 0
    curvature: ClassVar[float] = 1.0  # K over A

    @classmethod
    def parts(cls, number: int) -> tuple[float, float, float, float, float]:
        """The weights of a round's parts, after the first: vectors are then at most 1 long."""
        parts = np.array(cls.shape if number < EARLY else cls.measure)
        a, b, c, f = parts / np.linalg.norm(parts)
        return float(a), float(b), float(c), float(f), float(a)

    @classmethod
    def stages(cls, columns: int) -> tuple[tuple[int, int, float], ...]:
        """Rounds, coordinates and norm of each stage: one rough round, those that find the shape, those that measure."""
        rough = Moments(columns)
        return (
            (1, rough.dim, rough.norm),
            (EARLY - 1, size_of(columns, bool(cls.parts(1)[3])), 1.0),
            (ROUNDS - EARLY, size_of(columns, bool(cls.parts(EARLY)[3])), 1.0),
        )

    @property
    def in_round(self) -> float:
        """What a round's sum is divided by."""
        return self.users / ROUNDS

    def query(self, number: int, point: Floats) -> Query:
        """What a round asks, counted from 0."""
        if number == 0:
            return Moments(self.columns)
        return Zoomed(Lens.of(point), self.parts(number), self.logistic)

    def run(self, ask: Callable[[Callable[[Floats], Query], Floats], Floats]) -> Floats:
        """Ask in all rounds, one after the other; returns the weights."""
        seen: list[Seen] = []
        for number in range(ROUNDS):
            view = self.next_view(seen)
            answer = ask(lambda point, number=number: self.query(number, point), view.point)  # type: ignore[misc]
            seen.append(self.read(number, view.point, answer))
        return self.estimate(seen).coef

    def read(self, number: int, point: Floats, answer: Floats) -> Seen:
        """What a round's mean says."""
        view, pairs, noise = Lens.of(point), self.columns * (self.columns + 1) // 2, self.noise[number] / self.in_round
        a, b, c, f, h = (ROWS, PRODUCTS, SQUARES, 0.0, math.inf) if number == 0 else self.parts(number)
        far = math.inf if number == 0 else b
        row, score = view.reach**2, view.most**2
        after = pairs + self.columns + 1
        return Seen(
            view,
            symmetric_matrix(answer[:pairs]) * (row / a),
            answer[pairs : after - 1] * (view.most / b),
            float(answer[after - 1]) * (score / c),
            symmetric_matrix(answer[after:-2]) * (score / f) if f else None,
            float(answer[-2]) / h,
            float(answer[-1]) / far,
            noise * row / a,
            noise * view.most / b,
            noise * score / c,
            noise / h,
            noise / far,
        )

    def next_view(self, seen: Sequence[Seen]) -> Lens:
        """Where to look next: coordinates in which rows have no shape, about the weights that a step leads to."""
        if not seen:
            return Lens.first(self.columns)
        last, number = seen[-1], len(seen)
        pooled = Pooled.over(seen[1:] or seen, last.view.turn)
        step = pooled.matrix(pooled.seen / pooled.raised) @ last.g  # none where nothing is seen: it would be noise
        weights = _limited(last.view.weights + last.view.turn.T @ step)
        energy = max(float(np.sum(pooled.positive / pooled.raised)), 1.0)
        reach = math.sqrt(self._room(number) * energy)
        variance = self._residual(last, pooled, step, number)
        return Lens(
            pooled.matrix(pooled.raised**-0.5) @ last.view.turn,
            weights,
            reach,
            max(min(self.deviations * math.sqrt(variance * energy), 2 * reach), 1e-9),
        )

    @property
    def deviations(self) -> float:
        """How many standard deviations of residuals are not cut."""
        return min(max(1.2 * math.sqrt(self.users / self.columns) / (self.noise[-1] * math.sqrt(ROUNDS)), 3.0), 8.0)

    def _room(self, number: int) -> float:
        """R^2 over the mean square of rows' length: the same in all rounds where people are many, so that all weigh rows alike."""
        room = max(self._quiet, min(2 * self._quiet, 4.0))
        return min(max(room, 1.5 if number < EARLY else 3.0), 12.0)

    @property
    def _quiet(self) -> float:
        """The room that leaves the noise's edge at 0.075, if A were all that is sent."""
        edge = self.noise[-1] * self.columns * math.sqrt(2 * (self.columns + 1)) / (self.in_round * math.sqrt(ROUNDS / 2))
        return 0.075 / edge

    @staticmethod
    def _residual(last: Seen, pooled: Pooled, step: Floats, number: int) -> float:
        """The variance of residuals, at the safe side."""
        if number == 1:
            left = max(last.v - 2 * float(last.g @ step) + float(step @ pooled.A @ step), 0.0)
            left += last.v_std + 2 * last.g_std * float(np.linalg.norm(step))
            left = min(left, max(last.v, 0.0) + 2 * last.v_std)
            return left + float(np.sum(last.g_std**2 * pooled.positive / pooled.raised**2))
        bound = last.view.most**2
        share = min((max(last.v, 0.0) + last.v_std) / bound, 0.95)
        return bound / _deviations_of(share) ** 2 / max(float(pooled.positive.sum()), 1.0)

    # The estimate. Given all before, a round's score is g = K h + sampling + noise, h from its weights to the truth.

    def estimate(self, seen: Sequence[Seen], bounds: Floats | None = None) -> Coefficients:
        """Weights of rows as they are sent, with their covariance; undecided where a run was cut short, or noise hides a direction.

        `bounds` are declared sizes of the weights, which keep intervals finite.
        """
        if len(seen) < ROUNDS:
            weights = seen[-1].view.weights if seen else np.zeros(self.columns)
            free = Coefficients(weights, np.zeros((self.columns, self.columns)), np.zeros(self.columns, dtype=bool), self.users)
            return free if bounds is None else _bounded(free, np.eye(self.columns), bounds)
        turn = seen[-1].view.turn
        back = np.linalg.inv(turn).T
        pooled, sizes = self._groups(seen, turn)
        K = pooled.matrix(pooled.raised) * self.curvature
        inverse = pooled.matrix(pooled.seen / pooled.raised) / self.curvature
        scores, starts, samplings, noises, weighed = [], [], [], [], []
        for one, size in zip(seen, sizes, strict=True):
            if size is None:
                continue
            across = one.in_turn(turn)
            score, noise, start = self._score(one, seen, pooled)
            g, noise = across @ score / size, across @ noise @ across.T / size**2
            v = self._square(seen[-1] if one is seen[0] else one, pooled)
            model = v * pooled.matrix(pooled.raised) / float(pooled.raised.sum()) / (self.in_round * size**2)
            rest = self._rest(g, inverse @ g, pooled)
            scores.append(g)
            starts.append(back @ start)
            noises.append(noise + rest)
            weighed.append(model + noise + rest)
            samplings.append(None if one.S is None else across @ one.S @ across.T / (self.in_round * size**2))
        known = [sampling for sampling in samplings if sampling is not None]
        usual = sum(known) / len(known)
        precise = [np.linalg.inv(one) for one in weighed]
        total = np.linalg.inv(sum(precise))
        shares = [total @ one for one in precise]
        step = sum(share @ score for share, score in zip(shares, scores, strict=True))
        start = np.linalg.solve(K, sum(share @ K @ start for share, start in zip(shares, starts, strict=True)))
        moved = inverse @ step
        sampling = sum(share @ (usual if one is None else one) @ share.T for share, one in zip(shares, samplings, strict=True))
        noise = sum(share @ one @ share.T for share, one in zip(shares, noises, strict=True))
        noise = noise + _of_matrix_noise(pooled.std * self.curvature, moved)
        out = turn.T @ inverse
        by_people, by_noise = out @ sampling @ out.T, out @ noise @ out.T
        # the noise in S must not take more away than there can be: each variance by people is at least a tenth of that by noise
        lift = np.maximum(0.1 * by_noise.diagonal() - by_people.diagonal(), 0.0)
        unseen, (lost, sight) = pooled.vectors[:, ~pooled.seen], pooled.unsure
        usual_sight = sight + math.sqrt(2 * (self.columns + 1))  # the least of all directions is that much below
        covariance = (by_people + by_noise + np.diag(lift)) / (1 - (_INVERSE / usual_sight) ** 2) ** 2
        directions = np.linalg.qr(turn.T @ lost)[0]
        decided = np.asarray((directions**2).sum(axis=1) <= _LOST)
        found = start + moved
        found = found - unseen @ (unseen.T @ found)  # what noise has led to where nothing is seen
        solution = Coefficients(turn.T @ found, covariance, decided, users=self.users)
        if bounds is None:
            return solution
        hidden, unknown = lost.T @ back, np.where(decided, 0.0, 1.0)[:, np.newaxis]
        most = float(np.linalg.norm(np.abs(hidden) @ (bounds + np.abs(solution.coef))))
        more = (unknown * out) @ (unknown * out).T * (pooled.std * self.curvature * most) ** 2 / 2
        wider = Coefficients(solution.coef, covariance + more, decided, self.users)
        return _bounded(wider, unknown * (turn.T @ lost @ hidden), bounds)

    def _score(self, one: Seen, seen: Sequence[Seen], pooled: Pooled) -> tuple[Floats, Floats, Floats]:
        """A round's score, the covariance of its noise, and the weights that it is about."""
        noise = one.g_std**2 * np.eye(self.columns)
        if one is not seen[0]:
            return one.g, noise, one.view.weights
        weights = seen[-1].view.weights  # moments are about any weights
        return one.g - one.A @ weights, noise + _of_matrix_noise(one.A_std, weights), weights

    def _groups(self, seen: Sequence[Seen], turn: Floats) -> tuple[Pooled, list[float | None]]:
        """K, and each round's size beside it; None where a round is not used."""
        pooled = Pooled.over(seen[1:], turn)
        return pooled, [max(pooled.sizes), *pooled.sizes]

    @staticmethod
    def _square(one: Seen, pooled: Pooled) -> float:
        """The mean square of a round's scores, above what is noise."""
        return max(one.v, 0.004 * one.view.most**2)

    @staticmethod
    def _rest(g: Floats, moved: Floats, pooled: Pooled) -> Floats:
        """What is not known of a round's step: its own K is not that of all."""
        return _OTHER_ROUND**2 * np.outer(g, g)

    def explained(self, seen: Sequence[Seen], constant: float) -> tuple[float | None, float | None]:
        """Estimate R^2 with its standard error: residuals of the last rounds beside the first round's variance."""
        if len(seen) < ROUNDS:
            return None, None
        first, late = seen[0], seen[EARLY:]
        mean = float(first.g[-1]) / constant
        variance = first.v - mean**2
        spread = math.hypot(first.v_std, 2 * mean * first.g_std / constant, math.sqrt(max(first.v, 0.0) / self.in_round))
        if variance <= 3 * spread:
            return None, None
        traces = [max(float(np.trace(one.A)), 1e-9) for one in late]
        left = float(np.mean([one.v / trace for one, trace in zip(late, traces, strict=True)]))
        noise = math.sqrt(sum((one.v_std / trace) ** 2 for one, trace in zip(late, traces, strict=True))) / len(late)
        noise = math.hypot(noise, left * math.sqrt(3 / (self.in_round * len(late))))
        share = min(max(1 - left / variance, 0.0), 1.0)
        return share, math.hypot(noise, (1 - share) * spread) / variance

    def settled(self, seen: Sequence[Seen]) -> bool:
        """Whether rounds have come to rest: a parabola has its minimum one step away."""
        return True

    @staticmethod
    def odd_share(seen: Sequence[Seen]) -> tuple[float, float]:
        """The share of people whose residual was cut in the last rounds, and its noise."""
        return _late_mean([(one.odd, one.odd_std) for one in seen[EARLY:]])

    def owned_by_few(self, seen: Sequence[Seen]) -> float | None:
        """The share of rows that are weighed down, where some direction is so narrow that they may own it; otherwise None.

        A row at most 1 long is at most |M| long in a round's coordinates, in which a usual one is sqrt(d) long. Where |M| is that
        much larger, few rows can decide a coefficient of least squares; and if there are such rows, rounds fit the others.
        """
        share, noise = _late_mean([(one.long, one.long_std) for one in seen[EARLY:]])
        narrow = bool(seen) and float(np.linalg.norm(seen[-1].view.turn, 2)) ** 2 > _NARROW * self.columns
        return share if narrow and share > max(_FEW, 2 * noise) else None

    # The forecast, from public facts alone.

    @property
    def hidden(self) -> float:
        """About how much of the least direction noise hides: below 0.2 little, above 0.7 expect no interval."""
        size = self.columns * math.sqrt(2 * (self.columns + 1))
        return 1.5 * self.noise[1] * size / (self.parts(1)[0] * self.in_round * math.sqrt(EARLY - 1))

    @property
    def width(self) -> float:
        """Width of intervals over that of least squares, or of the maximum of the likelihood, on all people."""
        kept = sum(1 / (1 + self._price(number) ** 2) for number in range(max(self.used, 1), ROUNDS))
        return (1 + self.hidden) * math.sqrt(ROUNDS / kept)

    def _price(self, number: int) -> float:
        """A round's noise in a score, over what people's own spread makes of it."""
        s, k, N = self.noise[number], self.deviations, self.in_round
        cut = 1 + s * k**2 / (self.parts(number)[2] * N)
        return s * k * math.sqrt(cut * self.columns / N) / self.parts(number)[1]


class ZoomLogit(Zoom):
    """The same for probabilities: no residual is cut, A is the mean of 4p(1 - p) w z z', and steps are those of Newton.

    Where |r| is large p(1 - p) is small, and where q is far from R so is t: vectors are shorter than their parts together.
    """

    logistic: ClassVar[bool] = True
    shape: ClassVar[tuple[float, ...]] = (0.80, 0.70, 0.20, 0.0, 0.30)
    measure: ClassVar[tuple[float, ...]] = (0.72, 0.80, 0.20, 0.25, 0.30)
    used: ClassVar[int] = 3
    curvature: ClassVar[float] = 0.25

    @classmethod
    def parts(cls, number: int) -> tuple[float, float, float, float, float]:
        """The weights of a round's parts, divided by the largest length that a vector can have; a part in a thousand is spare."""
        return _shortened(cls.shape if number < EARLY else cls.measure)

    def next_view(self, seen: Sequence[Seen]) -> Lens:
        """Where to look next, from the last two rounds' curvature; a step is at most 3 in log-odds, in the mean."""
        if not seen:
            return Lens.first(self.columns)
        last, number = seen[-1], len(seen)
        pooled = Pooled.over((seen[1:] or seen)[-2:], last.view.turn)
        # labels are -1 and 1 in the first round: least squares gives tanh(score / 2) to first order, half the score
        factor = 2.0 if number == 1 else 1 / self.curvature
        step = factor * pooled.matrix(pooled.seen / pooled.raised) @ last.g
        if number > 1:
            step = step * min(1.0, 3.0 / max(math.sqrt(max(float(step @ pooled.A @ step), 0.0)), 1e-12))
        weights = _limited(last.view.weights + last.view.turn.T @ step)
        energy = max(float(np.sum(pooled.positive / pooled.raised)), 1.0)
        # coordinates of curvature make rows of rare classes long
        longer = 1.0 if number == 1 else 4 * last.view.reach**2 * last.odd / max(float(pooled.positive.sum()), 0.5)
        reach = math.sqrt(self._room(number) * energy * min(max(longer, 1.0), 6.0))
        return Lens(pooled.matrix(pooled.raised**-0.5) @ last.view.turn, weights, reach, reach)

    def _room(self, number: int) -> float:
        if number < EARLY:
            return 1.5
        most = self.users / (4 * self.columns * self.noise[-1] ** 2 * ROUNDS)
        return max(min(self._quiet, 8.0, most), 3.0)

    def _groups(self, seen: Sequence[Seen], turn: Floats) -> tuple[Pooled, list[float | None]]:
        pooled = Pooled.over(seen[EARLY:], turn)
        near = [self._near(seen, number, pooled, _FAR) for number in range(self.used, ROUNDS)]
        return pooled, [*[None] * self.used, *(1.0 if one else None for one in near)]

    def _near(self, seen: Sequence[Seen], number: int, pooled: Pooled, chance: float) -> bool:
        """Whether a round's weights are no further from the last ones than sampling and noise of the steps to both explain."""
        back = self.curvature * pooled.matrix(pooled.raised) @ self._way(seen, number, ROUNDS - 1)
        spread = sum(one.g_std**2 + max(one.v, 0.0) / (self.columns * self.in_round) for one in (seen[number - 1], seen[-2]))
        return float(back @ back) <= spread * float(chdtri(self.columns, chance))

    @staticmethod
    def _way(seen: Sequence[Seen], start: int, end: int) -> Floats:
        """From one round's weights to another's, in the last round's coordinates."""
        return np.asarray(np.linalg.solve(seen[-1].view.turn.T, seen[end].view.weights - seen[start].view.weights))

    def settled(self, seen: Sequence[Seen]) -> bool:
        """Whether rounds have come to rest: not so far from their end as here, on the way that they came.

        Noise leads back as often as onward; slopes that are still growing go on as they went.
        """
        if len(seen) < ROUNDS:
            return True
        pooled, middle = Pooled.over(seen[EARLY:], seen[-1].view.turn), ROUNDS - 3
        before, after = self._way(seen, self.used, middle), self._way(seen, middle, ROUNDS - 1)
        along = float(before @ pooled.matrix(pooled.positive) @ after)
        lengths = [float(way @ pooled.matrix(pooled.positive) @ way) for way in (before, after)]
        return along <= _ONWARD * math.sqrt(lengths[0] * lengths[1]) or self._near(seen, middle, pooled, _UNSETTLED)

    def _score(self, one: Seen, seen: Sequence[Seen], pooled: Pooled) -> tuple[Floats, Floats, Floats]:
        """By the trapezoidal rule: between a round's weights and the last ones' the curvature is the mean of both ends'."""
        across = one.in_turn(seen[-1].view.turn)
        back = np.linalg.inv(across)
        h: Floats = np.asarray(np.linalg.solve(one.view.turn.T, seen[-1].view.weights - one.view.weights), dtype=np.float64)
        g = one.g - self.curvature / 2 * (one.A - back @ pooled.A @ back.T) @ h
        noise: Floats = one.g_std**2 * np.eye(self.columns)
        noise = noise + _of_matrix_noise(self.curvature / 2 * one.A_std, h)
        return g, noise, one.view.weights

    @staticmethod
    def _square(one: Seen, pooled: Pooled) -> float:
        return max(one.v, 0.05 * float(np.trace(pooled.A)) / 4)

    @staticmethod
    def _rest(g: Floats, moved: Floats, pooled: Pooled) -> Floats:
        second = _SECOND_ORDER * float(moved @ pooled.matrix(pooled.positive) @ moved)
        return _OTHER_ROUND**2 * np.outer(g, g) + second**2 * np.eye(len(g))

    def _price(self, number: int) -> float:
        room = self._room(number)
        return 2 * self.noise[number] * math.sqrt(room * self.columns / self.in_round) / self.parts(number)[1]


@cache
def _shortened(parts: tuple[float, ...]) -> tuple[float, float, float, float, float]:
    """Parts of a logistic vector, over its largest length: by |r| and by q / R on a grid. The device cuts what is left."""
    a, b, c, f, h = np.square(parts)
    r, x = np.meshgrid(np.linspace(0, 1, 201), np.linspace(0, 3, 301))
    t = np.minimum(x, 1 / np.maximum(x, 1e-9)) * r
    squares = a * (4 * r * (1 - r)) ** 2 * np.minimum(x, 1) ** 4 + b * t**2 + (c + f) * t**4 + h * np.minimum(x / 2, 1) ** 4
    a, b, c, f, h = np.array(parts) / (1.001 * math.sqrt(float(squares.max())))
    return float(a), float(b), float(c), float(f), float(h)


def _late_mean(found: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The mean of what rounds found, and its noise."""
    many = max(len(found), 1)
    return sum(value for value, _ in found) / many, math.hypot(*(noise for _, noise in found)) / many


def _limited(weights: Floats) -> Floats:
    return np.asarray(weights * min(1.0, _LONGEST / max(float(np.linalg.norm(weights)), 1e-300)))


def _of_matrix_noise(std: float, h: Floats) -> Floats:
    """Covariance of E h, E symmetric noise of this size on the diagonal and sqrt 2 less off it."""
    return std**2 / 2 * (float(h @ h) * np.eye(len(h)) + np.outer(h, h))


def _bounded(solution: Coefficients, lost: Floats, bounds: Floats) -> Coefficients:
    """The solution with what declared bounds leave: `lost` takes weights to their part in directions that are not seen."""
    bias = np.abs(lost) @ bounds + np.abs(lost @ solution.coef)
    return Coefficients(
        solution.coef, solution.covariance, solution.determined, solution.users, bias, np.column_stack([-bounds, bounds])
    )


_AT = np.geomspace(0.05, 60, 600)
_CUT = 2 * ((ndtr(_AT) - 0.5 - _AT * np.exp(-(_AT**2) / 2) / math.sqrt(2 * math.pi)) / _AT**2 + ndtr(-_AT))


def _deviations_of(share: float) -> float:
    """At how many standard deviations a normal variable is cut if its square, in units of the cut, has this mean."""
    return float(np.interp(-share, -_CUT, _AT))
