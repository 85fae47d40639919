"""The vector sum P_vec (Algorithm 2 of Section 3): one shuffle round, in parts or as a whole; and the analyst who counts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..files import JsonText
from ..privacy import ArgumentError, Guarantee, SumPlan
from ..privacy.calibration import is_proved
from ..validation import Found, one_of, real, whole
from ._encoding import Rotation, as_numbers, as_vectors, require_finite
from ._randomizer import Randomizer
from ._sampling import MAX_TRIALS
from ._sparse import SparseVectors
from .randomness import RandomSource, SecureRandom
from .shuffler import Counts, Encoded, Report, ShuffledBatch, Shuffler, require_crowd

# The analyst's side (A_1D, A_vec): count ones, subtract the noise's mean, rescale.


@dataclass(frozen=True, eq=False, kw_only=True)
class SumEstimate(JsonText):
    """An unbiased estimate of the users' sum, with its noise and what it reveals.

    Parameters
    ----------
    sum : numpy.ndarray of shape (dim,)
        The estimate, in units of the data; a number for a scalar sum.
    users : int
        The users that arrived.
    noise_std : float
        Standard deviation per coordinate of `sum`, at its largest over all inputs, in units of the data.
    guarantee : Guarantee or None
        What is promised to every user. None if the randomness was seeded, or where the plan was edited so that its claim
        has no proof: such a result is not private.

    Examples
    --------
    >>> estimate = SumEstimate(sum=np.array([3.0, 5.0]), users=10, noise_std=0.5, guarantee=None)
    >>> estimate.mean.tolist(), estimate.mean_noise_std, estimate.private
    ([0.3, 0.5], 0.05, False)
    """

    sum: NDArray[np.float64]
    users: int
    noise_std: float
    guarantee: Guarantee | None

    @property
    def private(self) -> bool:
        """Whether the estimate has a guarantee."""
        return self.guarantee is not None

    @property
    def mean(self) -> NDArray[np.float64]:
        """The sum divided by the users that arrived."""
        return self.sum / self.users

    @property
    def mean_noise_std(self) -> float:
        """Standard deviation per coordinate of `mean`."""
        return self.noise_std / self.users

    def to_dict(self) -> dict[str, Any]:
        return {
            "sum": self.sum.tolist(),
            "users": self.users,
            "noise_std": self.noise_std,
            "guarantee": self.guarantee.to_dict() if self.guarantee else None,
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> SumEstimate:
        guarantee = values["guarantee"]
        return cls(
            sum=np.asarray(values["sum"], dtype=np.float64),
            users=values["users"],
            noise_std=values["noise_std"],
            guarantee=Guarantee.from_dict(guarantee) if guarantee else None,
        )

    def __str__(self) -> str:
        shape = "a number" if self.sum.ndim == 0 else f"{self.sum.size} coordinates"
        promise = str(self.guarantee) if self.guarantee else "NOT PRIVATE (seeded randomness, or a plan without proof)"
        return f"sum over {self.users} users, {shape}, noise {self.noise_std:.4g} per coordinate; {promise}"


class Analyzer:
    """The analyst's side of a plan: turns a shuffled batch, or the counts that are equivalent to it, into an estimate.

    Parameters
    ----------
    plan : SumPlan
        The plan that the users of the batch followed.
    seed : bytes, optional
        Under a plan with a rotation, the bytes that the users' rotation was made from.
    block : int, default 0
        Under a plan with blocks, the block that the batch is of; the estimate is then that block's part, and parts add up.

    Attributes
    ----------
    plan : SumPlan
        The same plan.

    Guarantee
    ---------
    The estimate is a function of the batch and of public figures, so it reveals no more than the batch does. No estimate is made of
    a batch that is too small for the plan's guarantee.

    Examples
    --------
    >>> from croupier import plan_sum
    >>> plan = plan_sum(epsilon=1.0, delta=1e-6, users=100, dim=2)
    >>> expected = 100 * (plan.levels / 2 + plan.noise_bits * plan.noise_probability)
    >>> counts = Counts(np.array([expected + plan.levels, expected]), users=100, private=False)
    >>> Analyzer(plan).analyze(counts).sum.tolist()
    [2.0, 0.0]
    """

    def __init__(self, plan: SumPlan, seed: bytes | None = None, block: int = 0) -> None:
        self.plan, self.block = plan, whole("block", block, at_least=0, at_most=plan.blocks - 1, remedy="Count blocks from 0.")
        self._rotation = None if plan.range is None else Rotation.of(plan, seed)

    def analyze(self, batch: ShuffledBatch | Counts) -> SumEstimate:
        """Estimate the sum of the vectors of the users that arrived.

        The estimate is (2 Delta / g)(C - p b n') - n' Delta, n' the users that arrived. It is unbiased for them
        (docs/accounting.md#5-noise-and-unbiasedness). With a rotation Delta is the range, and the estimate is turned back; its mean
        is off by `plan.bias_bound` at most.

        Parameters
        ----------
        batch : ShuffledBatch or Counts
            The bits of all users after shuffling, or their number of ones per coordinate.

        Returns
        -------
        SumEstimate
            The estimate; its guarantee is None if the noise was not secure or the plan is not certified.

        Raises
        ------
        BatchTooSmallError
            If fewer users arrived than the plan's guarantee counts on.
        ArgumentError
            If the batch was not made under this plan.
        """
        counts = batch.counts(self.plan) if isinstance(batch, ShuffledBatch) else batch
        if not isinstance(counts, Counts):
            raise ArgumentError("batch", type(batch).__name__, "a ShuffledBatch or Counts", "Shuffle the users' reports first.")
        plan = self.plan
        require_crowd(plan, counts.users)  # no estimate under a guarantee that does not hold
        if counts.ones.shape != (plan.coordinates,):
            remedy = "Analyze counts with the plan they were made under."
            raise ArgumentError("counts.ones.shape", counts.ones.shape, f"({plan.coordinates},)", remedy)
        # C - p b n' - n' g / 2 in one go: exact while below 2^53, so nothing cancels badly
        centre = counts.users * (plan.noise_probability * plan.noise_bits + plan.levels / 2)
        sums = np.asarray(plan.step(plan.levels) * (counts.ones - centre), dtype=np.float64)
        return SumEstimate(
            sum=sums if self._rotation is None else self._rotation.back(sums, self.block),
            users=counts.users,
            noise_std=plan.noise_std_for(counts.users) / plan.blocks**1.5,
            guarantee=plan.guarantee if counts.private and is_proved(plan) else None,
        )


MODES = ("counting", "faithful")
# Entries worked on at a time: a few arrays of this size fit the processor's cache.
CHUNK_ENTRIES = 1 << 17
# Messages that a faithful round may hold in memory, one byte each.
_MAX_MESSAGES = 1 << 30
_SEED_BYTES = 32


class VectorSum:
    """P_vec (Algorithm 2): the sum of vectors of bounded l2 norm, one shuffle round.

    The three parts can run on three machines: `randomize` on a user's device, `shuffle` at the shuffler, `analyze` at the
    analyst. `run` does a whole round in memory, in one of two modes with the same distribution: "counting" adds integers;
    "faithful" makes every labelled bit, permutes the bits uniformly and counts them.

    Parameters
    ----------
    plan : SumPlan
        From `plan_sum`.
    seed : bytes, optional
        Under a plan with a rotation, the public bytes that it is made from; where the three parts run on three machines, the same
        on all of them, and fresh in every round. Left out, it is drawn here, and by `run` for every round.
    block : int, default 0
        Under a plan with blocks (`plan_lots`), the block that this sum is of.

    Attributes
    ----------
    plan : SumPlan
        The same plan.

    Guarantee
    ---------
    What the plan says, for the analyst's view of one round, if at least `plan.honest_users` of the users that arrive
    follow the protocol and the shuffler does its work.

    Examples
    --------
    >>> import numpy as np
    >>> from croupier import VectorSum, plan_sum
    >>> plan = plan_sum(epsilon=1.0, delta=1e-6, users=1000, dim=3)
    >>> estimate = VectorSum(plan).run(np.full((1000, 3), 0.5))
    >>> bool(np.abs(estimate.sum - 500).max() < 8 * plan.noise_std)
    True
    """

    def __init__(self, plan: SumPlan, *, seed: bytes | None = None, block: int = 0) -> None:
        if not isinstance(plan, SumPlan):
            raise ArgumentError("plan", plan, "a SumPlan", "Make one with plan_sum(...).")
        self.plan, self._seed = plan, seed
        if seed is None and plan.range is not None:
            seed = os.urandom(_SEED_BYTES)
        self._randomizer, self._shuffler = Randomizer(plan, seed, block), Shuffler(plan)
        self._analyzer = Analyzer(plan, seed, block)

    def randomize(self, vector: ArrayLike, random: RandomSource | None = None) -> Report:
        """Make one user's labelled bits. Longer vectors are clipped to the plan's norm; NaN and infinity are refused.

        Parameters
        ----------
        vector : array_like of shape (dim,)
            The user's vector.
        random : RandomSource, optional
            Where the coins come from; default: SecureRandom().

        Returns
        -------
        Report
            All that leaves the user.
        """
        return self._randomizer.randomize(vector, _source(random))

    def shuffle(self, reports: Sequence[Report], random: RandomSource | None = None) -> ShuffledBatch:
        """Put the users' bits into uniformly random order; refused below the plan's honest minimum.

        Parameters
        ----------
        reports : sequence of Report
            One of every user that arrived.
        random : RandomSource, optional
            Where the order comes from; default: SecureRandom().

        Returns
        -------
        ShuffledBatch
            All that the analyzer sees.
        """
        return self._shuffler.shuffle(reports, _source(random))

    def analyze(self, batch: ShuffledBatch | Counts) -> SumEstimate:
        """Estimate the sum from a shuffled batch, without bias.

        Parameters
        ----------
        batch : ShuffledBatch or Counts
            The batch that the shuffler forwarded, or its counts.

        Returns
        -------
        SumEstimate
            The sum, its noise and its guarantee.
        """
        return self._analyzer.analyze(batch)

    def run(
        self,
        vectors: ArrayLike,
        *,
        mode: str = "counting",
        random: RandomSource | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> SumEstimate:
        """Run a whole round in memory: one row of `vectors` per user.

        Everything is checked before the first bit is drawn. Memory beyond the input is bounded in counting mode. A faithful round
        holds every bit.

        Parameters
        ----------
        vectors : array_like or scipy sparse matrix, of shape (users, dim)
            Finite numbers; rows longer than the plan's norm are clipped. Of sparse rows only the entries are encoded one by one.
        mode : {"counting", "faithful"}, default "counting"
            Whether to add integers or to make and shuffle every bit; the distribution of the estimate is the same.
        random : RandomSource, optional
            Where the coins come from; default: SecureRandom().
        progress : callable, optional
            Called with the number of users that have been randomized so far.

        Returns
        -------
        SumEstimate
            The sum, its noise and its guarantee.

        Raises
        ------
        BatchTooSmallError
            If there are fewer users than the plan's guarantee counts on.
        ArgumentError
            If `vectors` or another argument is not allowed.
        """
        if hasattr(vectors, "tocsr"):
            return self._run_sparse(vectors, mode, _source(random), progress)
        array = as_vectors(vectors, self.plan.dim)
        if len(array) == 0:
            raise ArgumentError("vectors", Found("is empty"), "at least one user", "Pass one row per user.")
        rows = range(0, len(array), max(1, CHUNK_ENTRIES // self.plan.padded))
        self.check_round(len(array), mode)
        random = _source(random)
        require_finite(array, rows)
        chunks = (array[start : start + rows.step] for start in rows)
        return self.run_chunks(chunks, users=len(array), mode=mode, random=random, progress=progress)

    def _run_sparse(self, matrix: Any, mode: str, random: RandomSource, progress: Callable[[int], None] | None) -> SumEstimate:
        """`run` over the rows of a sparse matrix, all of which are checked before the first bit is drawn."""
        rows = matrix.tocsr()
        users = int(rows.shape[0])
        if users == 0:
            raise ArgumentError("vectors", Found("is empty"), "at least one user", "Pass one row per user.")
        self.check_round(users, mode)
        step = max(1, CHUNK_ENTRIES // max(1, -(-rows.nnz // users)))
        pieces = [SparseVectors.of(rows[first : first + step], self.plan.dim) for first in range(0, users, step)]
        # a rotated vector has no zeros left; nor where every bit is made, or numbers are of an odd size
        dense, rotated = max(1, CHUNK_ENTRIES // self.plan.padded), self.plan.range is not None
        if rotated or mode == "faithful" or not all(piece.usual(self.plan.norm) for piece in pieces):
            chunks: Iterable[Any] = (rows[first : first + dense].toarray() for first in range(0, users, dense))
        else:
            chunks = pieces
        return self.run_chunks(chunks, users=users, mode=mode, random=random, progress=progress)

    def run_chunks(
        self,
        chunks: Iterable[ArrayLike],
        *,
        users: int,
        mode: str = "counting",
        random: RandomSource | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> SumEstimate:
        """Run a whole round over users whose vectors come in pieces, so that they need not be in memory together.

        Each piece is checked before its users randomize, and nothing is released unless all of them could be.

        Parameters
        ----------
        chunks : iterable of array_like
            Pieces of shape (some users, dim).
        users : int
            Number of users in all pieces together.
        mode : {"counting", "faithful"}, default "counting"
            As in `run`.
        random : RandomSource, optional
            As in `run`.
        progress : callable, optional
            As in `run`.

        Returns
        -------
        SumEstimate
            The sum, its noise and its guarantee.

        Raises
        ------
        ArgumentError
            If a piece is not allowed, or the pieces hold another number of users.
        """
        self.check_round(users, mode)
        source, tell = _source(random), progress or (lambda users: None)
        one_round = self
        if self.plan.range is not None and self._seed is None:  # a rotation of its own, which a seeded source fixes, too
            seed = source.draw_bytes(_SEED_BYTES).tobytes()
            one_round = VectorSum(self.plan, seed=seed, block=self._randomizer.block)
        if mode == "faithful":
            reports = list(one_round.reports(chunks, source, tell))
            _require_all(users, len(reports))
            return one_round.analyze(one_round.shuffle(reports, source))
        counts = one_round.counts(chunks, source, tell)
        _require_all(users, counts.users)
        return one_round.analyze(counts)

    def counts(
        self, chunks: Iterable[ArrayLike], random: RandomSource, progress: Callable[[int], None] = lambda users: None
    ) -> Counts:
        """Count the ones of some of a round's users, their noise included: to be added up over all of its users.

        Parameters
        ----------
        chunks : iterable of array_like
            Pieces of shape (some users, dim).
        random : RandomSource
            Where the coins come from.
        progress : callable, optional
            Called with the number of users that have been encoded so far.

        Returns
        -------
        Counts
            Of these users.
        """
        total = Encoded(np.zeros(self.plan.coordinates, dtype=np.int64), 0)
        for chunk in chunks:
            total += self._randomizer.encoded(chunk, random)
            progress(total.users)
        return self._randomizer.with_noise(total, random)

    def reports(
        self, chunks: Iterable[ArrayLike], random: RandomSource, progress: Callable[[int], None] = lambda users: None
    ) -> Iterator[Report]:
        """Make the messages of some of a round's users, to be shuffled with those of all of its users.

        Parameters
        ----------
        chunks : iterable of array_like
            Pieces of shape (some users, dim).
        random : RandomSource
            Where the coins come from.
        progress : callable, optional
            Called with the number of reports that have been made so far.

        Yields
        ------
        Report
            One for each user.
        """
        reports = 0
        for chunk in chunks:
            vectors = as_vectors(chunk, self.plan.dim)
            require_finite(vectors, range(0, len(vectors), max(1, len(vectors))))
            for vector in vectors:
                yield self.randomize(vector, random)
                reports += 1
                progress(reports)

    def blank_counts(self, count: int, random: RandomSource) -> Counts:
        """Count the ones of blanks, which are reports of the zero vector, their noise included.

        Parameters
        ----------
        count : int
            Number of blanks, at least 0.
        random : RandomSource
            Where the coins come from.

        Returns
        -------
        Counts
            Of the blanks, of the same law as those of users whose vectors are zero.
        """
        return self._randomizer.with_noise(self._randomizer.encoded_zeros(count, random), random)

    def blank_reports(self, count: int, random: RandomSource) -> Iterator[Report]:
        """Make blanks, which are reports of the zero vector, one after the other.

        Parameters
        ----------
        count : int
            Number of blanks, at least 0.
        random : RandomSource
            Where the coins come from.

        Returns
        -------
        iterator of Report
            One report per blank.
        """
        zero = np.zeros(self.plan.dim)
        return (self.randomize(zero, random) for _ in range(count))

    def check_round(self, users: int, mode: str = "counting") -> None:
        """Refuse a round that is too small for its guarantee or too large to be run, before anybody is asked.

        Parameters
        ----------
        users : int
            The users of the round, at least 1.
        mode : {"counting", "faithful"}, default "counting"
            How it is to be run.

        Raises
        ------
        BatchTooSmallError
            If the users are fewer than the plan's guarantee counts on.
        ArgumentError
            If the round has more noise bits, or in faithful mode more messages, than can be handled.
        """
        one_of("mode", mode, MODES, "'counting' is fast, 'faithful' makes every message; the distribution is the same.")
        users = whole("users", users, at_least=1, remedy="Count the users of the round.")
        require_crowd(self.plan, users)
        noise = users * self.plan.noise_bits
        if noise > MAX_TRIALS:
            raise ArgumentError(
                "plan",
                Found(f"has {noise:.2g} noise bits in a coordinate"),
                f"at most {MAX_TRIALS:.2g} to be counted without error",
                "Plan with fewer users in a round or a larger epsilon; the paper's calibrations are for comparison only.",
            )
        messages = users * self.plan.bits_per_user
        if mode == "faithful" and messages > _MAX_MESSAGES:
            raise ArgumentError(
                "mode",
                "faithful",
                f"'counting' for {messages} messages (at most {_MAX_MESSAGES} are made in memory)",
                "Counting mode has the same distribution.",
            )


def _require_all(users: int, arrived: int) -> None:
    if arrived != users:
        raise ArgumentError(
            "users", users, f"{arrived}, the number of vectors in chunks", "Count the vectors; nothing was released."
        )


def _source(random: RandomSource | None) -> RandomSource:
    """The source given, or a secure one. A number is not a source: anyone who passes a seed must say SeededRandom."""
    if random is None:
        return SecureRandom()
    if not isinstance(random, RandomSource):
        raise ArgumentError("random", random, "a RandomSource", "Leave it out for secure randomness, or pass SeededRandom(seed).")
    return random


# The scalar sum P_1D (Algorithm 1): the vector sum in one dimension about the middle of the interval.


class ScalarSum:
    """P_1D (Algorithm 1): the sum of numbers in the interval from `lower` to `lower` + width, one shuffle round.

    The paper's interval is [0, Delta]. Numbers outside are clipped to it.

    Parameters
    ----------
    plan : SumPlan
        From `plan_scalar_sum`, which takes the width.
    lower : float, default 0.0
        The lower end of the public interval, in units of the data.

    Attributes
    ----------
    plan : SumPlan
        The same plan.

    Guarantee
    ---------
    As for `VectorSum`: what the plan says, if enough users are honest and the shuffler does its work.

    Examples
    --------
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
            real("lower", lower, above=-1e100, below=1e100, remedy="State the lower end of the public interval.") + plan.norm
        )
        self._vector = VectorSum(plan)

    def randomize(self, value: float, random: RandomSource | None = None) -> Report:
        """Make one user's bits.

        Parameters
        ----------
        value : float
            The user's number; clipped to the interval.
        random : RandomSource, optional
            As in `VectorSum.randomize`.

        Returns
        -------
        Report
            All that leaves the user.
        """
        return self._vector.randomize(self._centred([value], "value")[0], random)

    def shuffle(self, reports: Sequence[Report], random: RandomSource | None = None) -> ShuffledBatch:
        """Put the users' bits into uniformly random order; see `VectorSum.shuffle`.

        Parameters
        ----------
        reports : sequence of Report
            One of every user that arrived.
        random : RandomSource, optional
            As in `VectorSum.shuffle`.

        Returns
        -------
        ShuffledBatch
            All that the analyzer sees.
        """
        return self._vector.shuffle(reports, random)

    def analyze(self, batch: ShuffledBatch | Counts) -> SumEstimate:
        """Estimate the sum of the numbers: (Delta / g)(count - p b n') + n' lower.

        Parameters
        ----------
        batch : ShuffledBatch or Counts
            The batch that the shuffler forwarded, or its counts.

        Returns
        -------
        SumEstimate
            Its `sum` is a number.
        """
        return self._uncentred(self._vector.analyze(batch))

    def run(
        self,
        values: ArrayLike,
        *,
        mode: str = "counting",
        random: RandomSource | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> SumEstimate:
        """Run a whole round in memory, one number per user.

        Parameters
        ----------
        values : array_like of shape (users,)
            Finite numbers; those outside the interval are clipped to it.
        mode : {"counting", "faithful"}, default "counting"
            As in `VectorSum.run`.
        random : RandomSource, optional
            As in `VectorSum.run`.
        progress : callable, optional
            As in `VectorSum.run`.

        Returns
        -------
        SumEstimate
            Its `sum` is a number.
        """
        return self._uncentred(self._vector.run(self._centred(values), mode=mode, random=random, progress=progress))

    def _centred(self, values: ArrayLike, name: str = "values") -> np.ndarray:
        array = as_numbers(values, name, "Pass one number per user.")
        if array.ndim != 1:
            raise ArgumentError(f"{name}.shape", array.shape, "(users,)", "Pass one number per user.")
        if array.size == 0:
            raise ArgumentError(name, Found("is empty"), "at least one user", "Pass one number per user.")
        column = array[:, np.newaxis]
        require_finite(column, range(0, len(column), CHUNK_ENTRIES), name)
        clipped = np.clip(column.astype(np.float64), self._middle - self.plan.norm, self._middle + self.plan.norm)
        return np.asarray(clipped - self._middle)

    def _uncentred(self, estimate: SumEstimate) -> SumEstimate:
        return replace(estimate, sum=estimate.sum[0] + estimate.users * self._middle)
