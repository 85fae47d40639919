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
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from numpy.typing import NDArray

from ..privacy import SumPlan
from ..protocol import Counts
from .packing import modulo, width_for
from .transport import ENCAPSULATED, SEED_BYTES, mask, open_envelope, seed_info
from .verified.keys import exchange_key, exchange_public_key, verify_key
from .verified.reports import checkable, decided, leader_sum, total_counts
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

    def shuffler_secret(self, key: Ed25519PrivateKey, round_key: X25519PublicKey, round_digest: bytes) -> bytes:
        """Return the secret of a round that its two servers share, as the shuffler computes it.

        Parameters
        ----------
        key : Ed25519PrivateKey
            The shuffler's key.
        round_key : X25519PublicKey
            The round's key.
        round_digest : bytes
            Digest of the round's signed document.

        Returns
        -------
        bytes
            Empty where the transport needs none.
        """
        return b""

    def analyzer_secret(self, key: X25519PrivateKey, shuffler: Ed25519PublicKey, round_digest: bytes) -> bytes:
        """Return the secret of a round that its two servers share, as the analyzer computes it.

        Parameters
        ----------
        key : X25519PrivateKey
            The round's private key.
        shuffler : Ed25519PublicKey
            The shuffler's key.
        round_digest : bytes
            Digest of the round's signed document.

        Returns
        -------
        bytes
            Empty where the transport needs none.
        """
        return b""

    @abstractmethod
    def parts(self, reports: Sequence[SealedReport], plan: SumPlan, secret: bytes = b"") -> NDArray[np.uint8]:
        """Return what the analyzer checks of reports; the shuffler makes it, and all are of one length.

        Parameters
        ----------
        reports : sequence of SealedReport
            Users' reports, of the right shape; at least one.
        plan : SumPlan
            The round's plan.
        secret : bytes, default b""
            From `shuffler_secret`.

        Returns
        -------
        ndarray of uint8, shape (reports, part_bytes)
            One row a report.
        """

    @abstractmethod
    def check(
        self,
        batch: SealedBatch,
        plan: SumPlan,
        key: X25519PrivateKey,
        pool: Executor | None = None,
        admits: Callable[[bytes], bool] | None = None,
        secret: bytes = b"",
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
        secret : bytes, default b""
            From `analyzer_secret`.

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

    def parts(self, reports: Sequence[SealedReport], plan: SumPlan, secret: bytes = b"") -> NDArray[np.uint8]:
        return np.stack([report.sealed for report in reports])

    def check(
        self,
        batch: SealedBatch,
        plan: SumPlan,
        key: X25519PrivateKey,
        pool: Executor | None = None,
        admits: Callable[[bytes], bool] | None = None,
        secret: bytes = b"",
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


class VerifiedSum(CheckedTransport):
    """The transport "verified-sum": reports prove that their counts are in range, and both servers check it together.

    Examples
    --------
    >>> VerifiedSum().name
    'verified-sum'
    """

    name = "verified-sum"

    def shuffler_secret(self, key: Ed25519PrivateKey, round_key: X25519PublicKey, round_digest: bytes) -> bytes:
        return verify_key(exchange_key(key), round_key, round_digest)

    def analyzer_secret(self, key: X25519PrivateKey, shuffler: Ed25519PublicKey, round_digest: bytes) -> bytes:
        return verify_key(key, exchange_public_key(shuffler), round_digest)

    def parts(self, reports: Sequence[SealedReport], plan: SumPlan, secret: bytes = b"") -> NDArray[np.uint8]:
        sealed, messages, dim = np.stack([report.sealed for report in reports]), plan.bits_per_coordinate, plan.dim
        return checkable(sealed, _shares(reports), messages, dim, reports[0].round, secret)

    def check(
        self,
        batch: SealedBatch,
        plan: SumPlan,
        key: X25519PrivateKey,
        pool: Executor | None = None,
        admits: Callable[[bytes], bool] | None = None,
        secret: bytes = b"",
    ) -> Verdict:
        info, seen = seed_info(self.name, batch.round), set[bytes]()

        def opens(envelope: bytes) -> bytes | None:
            new = envelope[:ENCAPSULATED] not in seen
            seen.add(envelope[:ENCAPSULATED])
            return open_envelope(envelope, key, info) if new else None

        accepted, share = decided(batch.sealed, plan.bits_per_coordinate, plan.dim, batch.round, secret, opens, admits)
        return Verdict(tuple(np.flatnonzero(~accepted).tolist()), share)

    def summed(self, reports: Sequence[SealedReport], plan: SumPlan) -> NDArray[np.uint64]:
        return leader_sum(_shares(reports), plan.bits_per_coordinate, plan.dim, reports[0].round)

    def counts(self, released: NDArray[np.uint64], share: NDArray[np.uint64], users: int, plan: SumPlan) -> Counts | None:
        total = total_counts(released, share)
        if total.max(initial=0) > users * plan.bits_per_coordinate:
            return None
        return Counts(total.astype(np.int64), users, private=True)


def _shares(reports: Sequence[SealedReport]) -> NDArray[np.uint8]:
    return np.stack([report.shares for report in reports if report.shares is not None])


_CHECKED: dict[str, CheckedTransport] = {one.name: one for one in (MaskedSum(), VerifiedSum())}


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


def batch_of(
    reports: Sequence[SealedReport], order: NDArray[np.int64], transport: CheckedTransport, plan: SumPlan, secret: bytes = b""
) -> SealedBatch:
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
    secret : bytes, default b""
        The servers' secret of the round.

    Returns
    -------
    SealedBatch
        What is forwarded to the analyzer.
    """
    parts = transport.parts([reports[which] for which in order.tolist()], plan, secret)
    return SealedBatch(transport.name, reports[0].round, plan.dim, len(reports), parts)
