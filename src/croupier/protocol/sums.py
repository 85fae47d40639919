"""The two protocols of Section 3: P_1D, the scalar sum (Algorithm 1), and P_vec, the vector sum (Algorithm 2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from ..privacy import ArgumentError, SumPlan
from ..validation import one_of, real, whole
from .analyzer import Analyzer, SumEstimate
from .encoding import as_numbers, as_vectors, require_finite
from .messages import Counts, Encoded, Report, ShuffledBatch
from .randomizer import Randomizer
from .randomness import RandomSource, SecureRandom
from .rejection import MAX_TRIALS
from .shuffler import Shuffler, require_crowd

MODES = ("counting", "faithful")
# Entries worked on at a time: a few arrays of this size fit the processor's cache.
_CHUNK_ENTRIES = 1 << 17
# Messages that a faithful round may hold in memory, one byte each.
_MAX_MESSAGES = 1 << 30


class VectorSum:
    """P_vec (Algorithm 2): the sum of vectors of bounded l2 norm, one shuffle round.

    The three parts can run on three machines: `randomize` on a user's device, `shuffle` at the shuffler, `analyze` at the
    analyst. `run` does a whole round in memory, in one of two modes with the same law: "counting" adds integers; "faithful" makes
    every labelled bit, permutes the bits uniformly and counts them.

    Guarantee: what the plan says, for the analyst's view of one round, if at least `plan.honest_users` of the users that arrive
    follow the protocol and the shuffler does its work.

    >>> import numpy as np
    >>> from croupier import VectorSum, plan_sum
    >>> plan = plan_sum(epsilon=1.0, delta=1e-6, users=1000, dim=3)
    >>> estimate = VectorSum(plan).run(np.full((1000, 3), 0.5))
    >>> bool(np.abs(estimate.sum - 500).max() < 8 * plan.noise_std)
    True
    """

    def __init__(self, plan: SumPlan) -> None:
        if not isinstance(plan, SumPlan):
            raise ArgumentError("plan", plan, "a SumPlan", "Make one with plan_sum(...).")
        self.plan = plan
        self._randomizer, self._shuffler, self._analyzer = Randomizer(plan), Shuffler(plan), Analyzer(plan)

    def randomize(self, vector: ArrayLike, random: RandomSource | None = None) -> Report:
        """One user's labelled bits. Longer vectors are clipped to the plan's norm; NaN and infinity are refused."""
        return self._randomizer.randomize(vector, _source(random))

    def shuffle(self, reports: Sequence[Report], random: RandomSource | None = None) -> ShuffledBatch:
        """The users' bits in uniformly random order; refused below the plan's honest minimum."""
        return self._shuffler.shuffle(reports, _source(random))

    def analyze(self, batch: ShuffledBatch | Counts) -> SumEstimate:
        """The unbiased estimate from a shuffled batch."""
        return self._analyzer.analyze(batch)

    def run(
        self,
        vectors: ArrayLike,
        *,
        mode: str = "counting",
        random: RandomSource | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> SumEstimate:
        """A whole round in memory: one row of `vectors` per user.

        Everything is checked before the first bit is drawn. `random` is SecureRandom() unless given; `progress` is called with the
        number of users done. Memory beyond the input is bounded in counting mode; a faithful round holds every bit.
        """
        array = as_vectors(vectors, self.plan.dim)
        if len(array) == 0:
            raise ArgumentError("vectors", "an empty batch", "at least one user", "Pass one row per user.")
        rows = range(0, len(array), max(1, _CHUNK_ENTRIES // self.plan.dim))
        self.check_round(len(array), mode)
        random = _source(random)
        require_finite(array, rows)
        chunks = (array[start : start + rows.step] for start in rows)
        return self.run_chunks(chunks, users=len(array), mode=mode, random=random, progress=progress)

    def run_chunks(
        self,
        chunks: Iterable[ArrayLike],
        *,
        users: int,
        mode: str = "counting",
        random: RandomSource | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> SumEstimate:
        """A whole round over `users` users whose vectors come in pieces, so that they need not be in memory together.

        Each piece is checked before its users randomize, and nothing is released unless all of them could be.
        """
        self.check_round(users, mode)
        source, tell = _source(random), progress or (lambda done: None)
        if mode == "faithful":
            reports = list(self.reports(chunks, source, tell))
            _require_all(users, len(reports))
            return self.analyze(self.shuffle(reports, source))
        counts = self.counts(chunks, source, tell)
        _require_all(users, counts.users)
        return self.analyze(counts)

    def counts(
        self, chunks: Iterable[ArrayLike], random: RandomSource, progress: Callable[[int], None] = lambda done: None
    ) -> Counts:
        """The ones of some of a round's users, their noise included, by counting: to be added up over all of its users."""
        total = Encoded(np.zeros(self.plan.dim, dtype=np.int64), 0)
        for chunk in chunks:
            total += self._randomizer.encoded(chunk, random)
            progress(total.users)
        return self._randomizer.with_noise(total, random)

    def reports(
        self, chunks: Iterable[ArrayLike], random: RandomSource, progress: Callable[[int], None] = lambda done: None
    ) -> Iterator[Report]:
        """The messages of some of a round's users, one report each, to be shuffled with those of all of its users."""
        done = 0
        for chunk in chunks:
            vectors = as_vectors(chunk, self.plan.dim)
            require_finite(vectors, range(0, len(vectors), max(1, len(vectors))))
            for vector in vectors:
                yield self.randomize(vector, random)
                done += 1
                progress(done)

    def blank_counts(self, count: int, random: RandomSource) -> Counts:
        """The ones of so many blanks, reports of the zero vector, their noise included, by counting."""
        return self._randomizer.with_noise(self._randomizer.encoded_zeros(count, random), random)

    def blank_reports(self, count: int, random: RandomSource) -> Iterator[Report]:
        """The same, message by message."""
        zero = np.zeros(self.plan.dim)
        return (self.randomize(zero, random) for _ in range(count))

    def check_round(self, users: int, mode: str = "counting") -> None:
        """Refuse a round that is too small for its guarantee or too large to be run, before anybody is asked."""
        one_of("mode", mode, MODES, "'counting' is fast, 'faithful' makes every message; the law is the same.")
        users = whole("users", users, at_least=1, remedy="Count the users of the round.")
        require_crowd(self.plan, users)
        noise = users * self.plan.noise_bits
        if noise > MAX_TRIALS:
            raise ArgumentError(
                "plan",
                f"{noise:.2g} noise bits in a coordinate",
                f"at most {MAX_TRIALS:.2g} to be counted without error",
                "Plan with fewer users in a round or a larger epsilon; the paper's calibrations are for comparison only.",
            )
        messages = users * self.plan.bits_per_user
        if mode == "faithful" and messages > _MAX_MESSAGES:
            raise ArgumentError(
                "mode",
                "faithful",
                f"'counting' for {messages} messages (at most {_MAX_MESSAGES} are made in memory)",
                "Counting mode has the same law.",
            )


class ScalarSum:
    """P_1D (Algorithm 1): the sum of numbers in the interval from `lower` to `lower` + width, one shuffle round.

    The paper's interval is [0, Delta]. Numbers outside are clipped to it. Plan it with `plan_scalar_sum`.

    >>> from croupier import ScalarSum, plan_scalar_sum
    >>> ages = ScalarSum(plan_scalar_sum(epsilon=1.0, delta=1e-6, users=1000, width=100.0))
    >>> bool(abs(ages.run([40.0] * 1000).sum - 40_000) < 8 * ages.plan.noise_std)
    True
    """

    def __init__(self, plan: SumPlan, *, lower: float = 0.0) -> None:
        if not isinstance(plan, SumPlan) or not plan.scalar:
            raise ArgumentError("plan", plan, "a plan for a scalar sum", "Make one with plan_scalar_sum(...).")
        self.plan = plan
        # Algorithm 1 on [lower, lower + Delta] is Algorithm 2 in one dimension about the middle of the interval.
        self._middle = (
            real("lower", lower, above=-1e100, below=1e100, remedy="Give the lower end of the public interval.") + plan.norm
        )
        self._vector = VectorSum(plan)

    def randomize(self, value: float, random: RandomSource | None = None) -> Report:
        """One user's bits."""
        return self._vector.randomize(self._centred([value], "value")[0], random)

    def shuffle(self, reports: Sequence[Report], random: RandomSource | None = None) -> ShuffledBatch:
        """The users' bits in uniformly random order; refused below the plan's honest minimum."""
        return self._vector.shuffle(reports, random)

    def analyze(self, batch: ShuffledBatch | Counts) -> SumEstimate:
        """(Delta / g)(count - p b n') + n' lower."""
        return self._uncentred(self._vector.analyze(batch))

    def run(
        self,
        values: ArrayLike,
        *,
        mode: str = "counting",
        random: RandomSource | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> SumEstimate:
        """A whole round in memory, one number per user; see `VectorSum.run`."""
        return self._uncentred(self._vector.run(self._centred(values), mode=mode, random=random, progress=progress))

    def _centred(self, values: ArrayLike, name: str = "values") -> np.ndarray:
        array = as_numbers(values, name, "Pass one number per user.")
        if array.ndim != 1:
            raise ArgumentError(f"{name}.shape", array.shape, "(users,)", "Pass one number per user.")
        if array.size == 0:
            raise ArgumentError(name, "an empty batch", "at least one user", "Pass one number per user.")
        column = array[:, np.newaxis]
        require_finite(column, range(0, len(column), _CHUNK_ENTRIES), name)
        clipped = np.clip(column.astype(np.float64), self._middle - self.plan.norm, self._middle + self.plan.norm)
        return np.asarray(clipped - self._middle)

    def _uncentred(self, estimate: SumEstimate) -> SumEstimate:
        return replace(estimate, sum=estimate.sum[0] + estimate.users * self._middle)


def _require_all(users: int, arrived: int) -> None:
    if arrived != users:
        raise ArgumentError(
            "users", users, f"{arrived}, the number of vectors in chunks", "Count the vectors; nothing was released."
        )


def _source(random: RandomSource | None) -> RandomSource:
    """The source given, or a secure one. A number is not a source: whoever passes a seed must say SeededRandom."""
    if random is None:
        return SecureRandom()
    if not isinstance(random, RandomSource):
        raise ArgumentError("random", random, "a RandomSource", "Leave it out for secure randomness, or pass SeededRandom(seed).")
    return random
