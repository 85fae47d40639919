"""What travels: a user's labelled bits, the shuffled bits of a batch, and the counts that are equivalent to them.

Bits are kept in one row per label (coordinate). The label is public and every user sends the same number of bits under
each, so a row's position says nothing about anybody.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..privacy import ArgumentError, SumPlan

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

    Parameters
    ----------
    bits : numpy.ndarray of bool, shape (dim, users * (levels + noise_bits))
        Row j holds the bits with label j.
    private : bool
        Whether all noise and the shuffling came from secure sources.

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
        """Count the ones under each label. The counts are all the information there is in the batch.

        Parameters
        ----------
        plan : SumPlan
            The plan that the users followed.

        Returns
        -------
        Counts
            Ones per coordinate, and the number of users.

        Raises
        ------
        ArgumentError
            Where the batch does not have the plan's labels, or not a whole number of users' bits.
        """
        labels, messages = self.bits.shape if self.bits.ndim == 2 else (0, 0)
        users, rest = divmod(messages, plan.bits_per_coordinate)
        if labels != plan.dim or rest or self.bits.dtype != np.bool_:
            raise ArgumentError(
                "batch.bits.shape",
                self.bits.shape if self.bits.dtype == np.bool_ else f"{self.bits.shape} of {self.bits.dtype}",
                f"({plan.dim}, users x {plan.bits_per_coordinate}) bits under this plan",
                "Analyze a batch with the plan that its users followed.",
            )
        return Counts(self.bits.sum(axis=1, dtype=np.int64), users, self.private)


@dataclass(frozen=True, eq=False)
class Encoded:
    """Rounded encodings of some users added up, still without noise: not for release, and the analyzer refuses it.

    Parameters
    ----------
    ones : numpy.ndarray of int64, shape (dim,)
        The sum of the users' rounded encodings, in levels.
    users : int
        How many users they are.
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
        How many users sent them.
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
