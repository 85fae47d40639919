"""Transports whose reports the analyzer checks one by one before one sum over the good ones is released.

The shuffler sends the checkable part of every report, in random order. The analyzer commits to the places that are bad. The
shuffler then adds up what it holds of the others and sends that sum, which says nothing without the analyzer's share of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from numpy.typing import NDArray

from ..privacy import SumPlan
from ..protocol import Counts
from .packing import modulo, width_for
from .transport import ENCAPSULATED, SEED_BYTES, mask, open_envelope, seed_info
from .wire import SealedBatch, SealedReport


@dataclass(frozen=True, eq=False)
class Verdict:
    """What the analyzer found in a batch.

    Parameters
    ----------
    bad : tuple of int
        Places of the reports that are not as they should be, ascending.
    share : ndarray of uint64
        The analyzer's share of the sum of the others.
    """

    bad: tuple[int, ...]
    share: NDArray[np.uint64]


class CheckedTransport(ABC):
    """A transport whose reports are checked: what each server does. Nothing here is remembered between two calls.

    Attributes
    ----------
    name : str
        The transport's name.
    """

    name: str

    def width(self, plan: SumPlan) -> int:
        """Return the bits of a number in a release.

        Parameters
        ----------
        plan : SumPlan
            The round's plan.

        Returns
        -------
        int
            64 unless they are packed.
        """
        return 64

    @abstractmethod
    def part(self, report: SealedReport, plan: SumPlan) -> NDArray[np.uint8]:
        """Return what the analyzer checks of a report; the shuffler makes it, and all are of one length.

        Parameters
        ----------
        report : SealedReport
            A user's report, of the right shape.
        plan : SumPlan
            The round's plan.

        Returns
        -------
        ndarray of uint8
            `part_bytes` bytes.
        """

    @abstractmethod
    def check(
        self,
        batch: SealedBatch,
        plan: SumPlan,
        key: X25519PrivateKey,
        pool: Executor | None = None,
        admits: Callable[[bytes], bool] | None = None,
    ) -> Verdict:
        """Check all parts of a batch; the analyzer does. The same batch has the same verdict.

        Parameters
        ----------
        batch : SealedBatch
            What the shuffler forwarded.
        plan : SumPlan
            The round's plan.
        key : X25519PrivateKey
            The round's private key.
        pool : Executor, optional
            Shares the work.
        admits : callable, optional
            Takes the token of a report that is good otherwise, b"" where it has none, and says whether the report counts.

        Returns
        -------
        Verdict
            Which are bad, and the analyzer's share of the sum of the others.
        """

    @abstractmethod
    def summed(self, reports: Sequence[SealedReport], plan: SumPlan) -> NDArray[np.uint64]:
        """Add up the shuffler's shares of the reports that are not excluded.

        Parameters
        ----------
        reports : sequence of SealedReport
            At least one.
        plan : SumPlan
            The round's plan.

        Returns
        -------
        ndarray of uint64
            One number per coordinate.
        """

    @abstractmethod
    def counts(self, released: NDArray[np.uint64], share: NDArray[np.uint64], users: int, plan: SumPlan) -> Counts | None:
        """Put both shares of a sum together; the analyzer does.

        Parameters
        ----------
        released : ndarray of uint64
            The shuffler's share.
        share : ndarray of uint64
            The analyzer's.
        users : int
            How many reports are in the sum.
        plan : SumPlan
            The round's plan.

        Returns
        -------
        Counts or None
            None where no users could have sent such counts.
        """


class MaskedSum(CheckedTransport):
    """The transport "masked-sum": what can be checked is whether a seed opens, that no envelope is there twice, and its token.

    Examples
    --------
    >>> MaskedSum().name
    'masked-sum'
    """

    name = "masked-sum"

    def width(self, plan: SumPlan) -> int:
        return width_for(self.name, plan)

    def part(self, report: SealedReport, plan: SumPlan) -> NDArray[np.uint8]:
        return report.sealed

    def check(
        self,
        batch: SealedBatch,
        plan: SumPlan,
        key: X25519PrivateKey,
        pool: Executor | None = None,
        admits: Callable[[bytes], bool] | None = None,
    ) -> Verdict:
        info, share, bad, seen = seed_info(self.name, batch.round), np.zeros(plan.dim, dtype=np.uint64), [], set[bytes]()
        for place, part in enumerate(batch.sealed):
            envelope = part.tobytes()
            content = None if envelope[:ENCAPSULATED] in seen else open_envelope(envelope, key, info)
            seen.add(envelope[:ENCAPSULATED])
            if content is None or (admits is not None and not admits(content[SEED_BYTES:])):
                bad.append(place)
            else:
                share += mask(content[:SEED_BYTES], plan.dim, self.width(plan))
        return Verdict(tuple(bad), share)

    def summed(self, reports: Sequence[SealedReport], plan: SumPlan) -> NDArray[np.uint64]:
        total = np.zeros(plan.dim, dtype=np.uint64)
        for report in reports:
            if report.masked is not None:
                total += report.masked
        return modulo(total, self.width(plan))

    def counts(self, released: NDArray[np.uint64], share: NDArray[np.uint64], users: int, plan: SumPlan) -> Counts | None:
        total = modulo(released - share, self.width(plan))
        if total.max(initial=0) > users * plan.bits_per_coordinate:
            return None
        return Counts(total.astype(np.int64), users, private=True)


_CHECKED: dict[str, CheckedTransport] = {one.name: one for one in (MaskedSum(),)}


def checked_transport(name: str) -> CheckedTransport | None:
    """Return the transport of this name if its reports are checked before a sum is released.

    Parameters
    ----------
    name : str
        The task's transport.

    Returns
    -------
    CheckedTransport or None
        None for "messages".
    """
    return _CHECKED.get(name)


def batch_of(reports: Sequence[SealedReport], order: NDArray[np.int64], transport: CheckedTransport, plan: SumPlan) -> SealedBatch:
    """Return the batch of the checkable parts of these reports.

    Parameters
    ----------
    reports : sequence of SealedReport
        At least one; all of one round.
    order : ndarray of int64
        Which report is in each place.
    transport : CheckedTransport
        Theirs.
    plan : SumPlan
        The round's plan.

    Returns
    -------
    SealedBatch
        What is forwarded to the analyzer.
    """
    parts = np.stack([transport.part(reports[which], plan) for which in order.tolist()])
    return SealedBatch(transport.name, reports[0].round, plan.dim, len(reports), parts)
