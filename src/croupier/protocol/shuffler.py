"""The shuffler cuts the link between people and messages, and withholds a batch that is too small to hide anybody.

What travels: a user's labelled bits, the shuffled bits of a batch, and the counts that are equivalent to them. Bits are kept in one
row per label (coordinate). The label is public and every user sends the same number of bits under each, so a row's position says
nothing about anybody.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..privacy import ArgumentError, SumPlan
from ..privacy._statements import honest_users
from ..validation import Found
from ._sampling import permutation
from .randomness import RandomSource

Bits = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Report:
    """All messages of one user.

    Parameters
    ----------
    bits : numpy.ndarray of bool, shape (dim, levels + noise_bits)
        Row j holds the bits with label j.
    private : bool
        Whether the noise came from a secure source.

    Examples
    --------
    >>> list(Report(np.array([[True, False]]), private=False).messages())
    [(0, True), (0, False)]
    """

    bits: Bits
    private: bool

    def messages(self) -> Iterator[tuple[int, bool]]:
        """Give the messages one by one.

        Yields
        ------
        tuple of int and bool
            A label (the coordinate's number) and a bit.
        """
        for label, row in enumerate(self.bits):
            for bit in row:
                yield label, bool(bit)


@dataclass(frozen=True, eq=False)
class ShuffledBatch:
    """The analyzer's view of a round: for every label the bits of all users in uniformly random order.

    `bits` (dim, users * (levels + noise_bits)): Row j holds the bits with label j. `private`: Whether all noise and the shuffling
    came from secure sources.

    Examples
    --------
    >>> from croupier import plan_sum
    >>> plan = plan_sum(epsilon=1.0, delta=1e-6, users=100, dim=2)
    >>> batch = ShuffledBatch(np.ones((2, 100 * plan.bits_per_coordinate), dtype=bool), private=False)
    >>> batch.counts(plan).users
    100
    """

    bits: Bits
    private: bool

    def counts(self, plan: SumPlan) -> Counts:
        """Count the ones under each label. The counts are all the information there is in the batch."""
        labels, messages = self.bits.shape if self.bits.ndim == 2 else (0, 0)
        users, rest = divmod(messages, plan.bits_per_coordinate)
        if labels != plan.coordinates or rest or self.bits.dtype != np.bool_:
            raise ArgumentError(
                "batch.bits.shape",
                self.bits.shape if self.bits.dtype == np.bool_ else f"{self.bits.shape} of {self.bits.dtype}",
                f"({plan.coordinates}, users x {plan.bits_per_coordinate}) bits under this plan",
                "Analyze a batch with the plan that its users followed.",
            )
        return Counts(self.bits.sum(axis=1, dtype=np.int64), users, self.private)


@dataclass(frozen=True, eq=False)
class Encoded:
    """Rounded encodings of some users added up, still without noise: not for release, and the analyzer refuses it.

    `ones` (dim,): The sum of the users' rounded encodings, in levels. `users`: How many users they are.
    """

    ones: NDArray[np.int64]
    users: int

    def __add__(self, other: Encoded) -> Encoded:
        """The sum over two disjoint groups of users."""
        return Encoded(_added(self.ones, other.ones), self.users + other.users)


@dataclass(frozen=True, eq=False)
class Counts:
    """Ones per coordinate over all users that arrived, their noise included: equivalent to the shuffled batch.

    Parameters
    ----------
    ones : numpy.ndarray of int64, shape (dim,)
        The ones, in levels.
    users : int
        Number of users who sent them.
    private : bool
        Whether the noise came from a secure source.

    Examples
    --------
    >>> both = Counts(np.array([9]), users=2, private=True) + Counts(np.array([5]), users=1, private=False)
    >>> both.ones.tolist(), both.users, both.private
    ([14], 3, False)
    """

    ones: NDArray[np.int64]
    users: int
    private: bool

    def __add__(self, other: Counts) -> Counts:
        """The counts of two disjoint groups of users of one batch."""
        return Counts(_added(self.ones, other.ones), self.users + other.users, self.private and other.private)


def _added(ones: NDArray[np.int64], others: NDArray[np.int64]) -> NDArray[np.int64]:
    if ones.shape != others.shape:
        raise ArgumentError("other.ones.shape", others.shape, str(ones.shape), "Add counts of one plan.")
    return ones + others


class BatchTooSmallError(ValueError):
    """Fewer users arrived than the noise was calibrated for: releasing the batch would break the guarantee."""


def require_crowd(plan: SumPlan, users: int) -> None:
    """Refuse a batch below the honest minimum. The analyzer cannot repair what is missing, so nothing is released."""
    if users < plan.honest_users:
        raise BatchTooSmallError(
            f"users = {users} arrived, but the plan's guarantee needs {honest_users(plan.honest_users, plan.users)}. "
            f"Nothing was released: wait for more users, or plan with fewer users or a smaller honest fraction."
        )


class Shuffler:
    """The shuffler of a plan: checks a whole batch, permutes it uniformly under each label, and forwards it once.

    Parameters
    ----------
    plan : SumPlan
        The plan that the users follow.

    Attributes
    ----------
    plan : SumPlan
        The same plan.

    Guarantee
    ---------
    What is forwarded is a function of the number of ones under each label and of coins that have nothing to do with users. A batch
    with fewer users than the plan counts on is withheld.

    Examples
    --------
    >>> from croupier import SecureRandom, VectorSum, plan_sum
    >>> plan = plan_sum(epsilon=1.0, delta=1e-6, users=20, dim=2)
    >>> reports = [VectorSum(plan).randomize([0.5, 0.5]) for user in range(20)]
    >>> Shuffler(plan).shuffle(reports, SecureRandom()).counts(plan).users
    20
    """

    def __init__(self, plan: SumPlan) -> None:
        self.plan = plan

    def shuffle(self, reports: Sequence[Report], random: RandomSource) -> ShuffledBatch:
        """Put the bits of a batch into uniformly random order, under each label alone: labels are public, and their order is fixed.

        Parameters
        ----------
        reports : sequence of Report
            One report of every user that arrived.
        random : RandomSource
            Where the permutations come from.

        Returns
        -------
        ShuffledBatch
            The bits under each label.

        Raises
        ------
        BatchTooSmallError
            If fewer users arrived than the plan's guarantee counts on.
        ArgumentError
            If a report was not made under this plan, or is there twice.
        """
        require_crowd(self.plan, len(reports))
        shape = (self.plan.coordinates, self.plan.bits_per_coordinate)
        for index, report in enumerate(reports):
            if not isinstance(report, Report) or report.bits.shape != shape or report.bits.dtype != np.bool_:
                what = f"{report.bits.shape} of {report.bits.dtype}" if isinstance(report, Report) else type(report).__name__
                raise ArgumentError(f"reports[{index}]", what, f"a Report of {shape} bits under this plan", "Drop this report.")
        if len({id(report) for report in reports}) < len(reports):
            raise ArgumentError(
                "reports", Found("has one report more than once"), "one report per user", "A user takes part once; drop the copy."
            )
        shuffled = np.empty((self.plan.coordinates, len(reports) * self.plan.bits_per_coordinate), dtype=np.bool_)
        for label in range(self.plan.coordinates):
            sent = np.concatenate([report.bits[label] for report in reports])
            shuffled[label] = sent[permutation(random, sent.size)]
        return ShuffledBatch(shuffled, random.private and all(report.private for report in reports))
