"""How a user's counts reach the analyzer so that it sees their sum alone: three ways with the same view.

*messages*, the paper's: each labelled bit in an envelope of its own; the shuffler permutes the envelopes under each label.
*masked-sum*, for scale: the counts plus a mask modulo 2^k to the shuffler, who adds them up, and the mask's seed in an envelope
to the analyzer, who takes the masks away (checked.py).
*verified-sum*, for strangers' devices: the counts as two shares, one for each server, with proofs that each count is in range.
In all of them the shuffler sees nothing of the counts, and the analyzer nothing but their sum; together they see all. Every
envelope is bound to the signed round, and a bit to its label too.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hpke
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from numpy.typing import NDArray

from ...privacy import SumPlan
from ...protocol import Counts
from ...protocol import Report as Bits
from ...protocol.randomness import KeyedRandom, RandomSource
from ...protocol.sampling import permutation
from ..prio3.prio3 import exchange_key, exchange_public_key, verify_key
from .documents import WireError
from .reports import (
    SEALED_BIT,
    SealedBatch,
    SealedReport,
    batch_bytes,
    checkable,
    decided,
    leader_sum,
    modulo,
    packed_bytes,
    report_bytes,
    shared_counts,
    total_counts,
    unpacked,
    width_for,
)

_SUITE = hpke.Suite(hpke.KEM.X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.AES_128_GCM)
_SEED = 0xFFFFFFFF  # in the place of a label
SEED_BYTES = 32  # in an envelope, before the token
ENCAPSULATED = 32  # bytes of the key at the beginning of an envelope: no two envelopes share one


def sealed_report(
    transport: str, round_digest: bytes, bits: Bits, key: X25519PublicKey, width: int = 0, token: bytes = b""
) -> SealedReport:
    """Seal a user's labelled bits, as they leave its device. Seals are random: keep the bytes for a retry.

    Guarantee
    ---------
    The report by itself shows the shuffler nothing of the bits: envelopes open with the round's private key alone. What a role can
    learn from a whole run is in docs/threat-model.md.
    """
    try:
        return _sealed(transport, round_digest, bits, key, width, token)
    except ValueError:  # a point of low order
        raise WireError("a round whose key is none that anything can be sealed for") from None


def _sealed(transport: str, round_digest: bytes, bits: Bits, key: X25519PublicKey, width: int, token: bytes) -> SealedReport:
    labels, messages = bits.bits.shape
    if transport == "messages":
        # The bits of a label are in no order that says anything: ones first, before the shuffler permutes them.
        sealed = b"".join(
            _SUITE.encrypt(bytes([bit]), key, info=_info(transport, round_digest, label))
            for label, row in enumerate(bits.bits)
            for bit in row.tolist()
        )
        return SealedReport(
            transport, round_digest, messages, np.frombuffer(sealed, np.uint8).reshape(labels, messages, SEALED_BIT)
        )
    if transport == "verified-sum":
        share, shares = shared_counts(bits.bits.sum(axis=1, dtype=np.int64), messages, round_digest)
        envelope = np.frombuffer(_SUITE.encrypt(share + token, key, info=seed_info(transport, round_digest)), np.uint8)
        return SealedReport(transport, round_digest, messages, envelope, shares=shares, coordinates=labels)
    seed = os.urandom(SEED_BYTES)
    masked = modulo(bits.bits.sum(axis=1, dtype=np.uint64) + mask(seed, labels, width), width)
    envelope = np.frombuffer(_SUITE.encrypt(seed + token, key, info=seed_info(transport, round_digest)), np.uint8)
    return SealedReport(transport, round_digest, messages, envelope, masked, width)


def check_shape(report: SealedReport, transport: str, round_digest: bytes, plan: SumPlan) -> None:
    """Refuse a report that is not of this round, or has not exactly the messages that the plan says."""
    if report.transport != transport:
        raise WireError(f"a report by {report.transport} in a task by {transport}")
    if report.round != round_digest:
        raise WireError("a report for another round")
    if (report.dim, report.messages) != (plan.dim, plan.bits_per_coordinate):
        shape = f"{plan.dim} coordinates of {plan.bits_per_coordinate} messages"
        raise WireError(f"{report.dim} coordinates of {report.messages} messages where the plan has {shape}")
    if report.width != (width := width_for(transport, plan)):
        raise WireError(f"masked counts of {report.width} bits where the plan has {width}")


def report_length(transport: str, plan: SumPlan) -> int:
    """Return the length of every report of a round."""
    return report_bytes(transport, plan.dim, plan.bits_per_coordinate, width_for(transport, plan))


def batch_length(transport: str, plan: SumPlan) -> int:
    """Return the length of the batch of a round in which all users have answered."""
    return batch_bytes(transport, plan.dim, plan.users, plan.bits_per_coordinate)


def shuffled(reports: Sequence[SealedReport], random: RandomSource) -> SealedBatch:
    """Return the batch of these reports by "messages", in uniformly random order: nothing in it says who sent what.

    Guarantee
    ---------
    The envelopes of each label are uniformly permuted.
    """
    first = reports[0]
    labels = [
        np.concatenate([report.sealed[label] for report in reports])[permutation(random, len(reports) * first.messages)]
        for label in range(first.dim)
    ]
    return SealedBatch(first.transport, first.round, first.dim, len(reports), np.stack(labels))


@dataclass(frozen=True, eq=False)
class OpenedBatch:
    """The ones of a batch by "messages", and how many envelopes were not as they should be.

    Parameters
    ----------
    counts : Counts
        The ones of each coordinate.
    malformed : int
        Envelopes that do not open, hold something else than a bit, or are sent again. Each counts as a zero.
    cheats : int
        How many clients have sent them, at least: each has a fixed number of envelopes in a coordinate.
    """

    counts: Counts
    malformed: int = 0
    cheats: int = 0


def opened(batch: SealedBatch, plan: SumPlan, key: X25519PrivateKey, pool: Executor | None = None) -> OpenedBatch:
    """Open a batch by "messages" and count its ones.

    An envelope that does not open, holds something else than a bit or repeats an encapsulated key counts as a zero: a cheat who
    sends it could have sent a zero. It is a function of what the analyzer sees anyway, and no second release.
    """
    private, labels = key.private_bytes_raw(), range(batch.dim)
    work = [batch.sealed[label].tobytes() for label in labels], [private] * batch.dim, [batch.round] * batch.dim, labels
    found = np.array(list((pool.map if pool else map)(_opened_label, *work)), dtype=np.int64)
    malformed = found[:, 1]
    cheats = -(-int(malformed.max()) // plan.bits_per_coordinate)
    return OpenedBatch(Counts(found[:, 0], batch.users, private=True), int(malformed.sum()), cheats)


def mask(seed: bytes, dim: int, width: int) -> NDArray[np.uint64]:
    """Return numbers modulo 2^width that look random to whoever has not got the seed: its keystream."""
    return unpacked(KeyedRandom(seed, private=True).draw_bytes(packed_bytes(dim, width)), dim, width)


def _opened_label(envelopes: bytes, private: bytes, round_digest: bytes, label: int) -> tuple[int, int]:
    """The ones among the sealed bits of a label, and the envelopes that hold no bit of their own."""
    key, info, ones, malformed = X25519PrivateKey.from_private_bytes(private), _info("messages", round_digest, label), 0, 0
    seen = set[bytes]()
    for start in range(0, len(envelopes), SEALED_BIT):
        envelope = envelopes[start : start + SEALED_BIT]
        bit = None if envelope[:ENCAPSULATED] in seen else open_envelope(envelope, key, info)
        seen.add(envelope[:ENCAPSULATED])
        ones += bit == b"\1"
        malformed += bit not in (b"\0", b"\1")
    return ones, malformed


def open_envelope(envelope: bytes, key: X25519PrivateKey, info: bytes) -> bytes | None:
    """Return what is in an envelope."""
    try:
        return _SUITE.decrypt(envelope, key, info=info)
    except (InvalidTag, ValueError):
        return None


def seed_info(transport: str, round_digest: bytes) -> bytes:
    """Return what the envelope of a seed is bound to."""
    return _info(transport, round_digest, _SEED)


def _info(transport: str, round_digest: bytes, label: int) -> bytes:
    """What an envelope is bound to: it opens for this transport, round and label alone."""
    return b"croupier report v1 " + transport.encode() + b" " + round_digest + label.to_bytes(4, "little")


# Transports whose reports the analyzer checks one by one before one sum over the good ones is released.
#
# The shuffler sends the checkable part of every report, in random order. The analyzer commits to the places that are bad. The
# shuffler then adds up what it holds of the others and sends that sum, which says nothing without the analyzer's share of it.


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
        """Return the bits of a number in a release."""
        return 64

    def shuffler_secret(self, key: Ed25519PrivateKey, round_key: X25519PublicKey, round_digest: bytes) -> bytes:
        """Return the secret of a round that its two servers share, as the shuffler computes it."""
        return b""

    def analyzer_secret(self, key: X25519PrivateKey, shuffler: Ed25519PublicKey, round_digest: bytes) -> bytes:
        """Return the secret of a round that its two servers share, as the analyzer computes it."""
        return b""

    @abstractmethod
    def parts(self, reports: Sequence[SealedReport], plan: SumPlan, secret: bytes = b"") -> NDArray[np.uint8]:
        """Return what the analyzer checks of reports; the shuffler makes it, and all are of one length."""

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
        """Check all parts of a batch; the analyzer does. The same batch has the same verdict."""

    @abstractmethod
    def summed(self, reports: Sequence[SealedReport], plan: SumPlan) -> NDArray[np.uint64]:
        """Add up the shuffler's shares of the reports that are not excluded."""

    @abstractmethod
    def counts(self, released: NDArray[np.uint64], share: NDArray[np.uint64], users: int, plan: SumPlan) -> Counts | None:
        """Put both shares of a sum together; the analyzer does."""


class MaskedSum(CheckedTransport):
    """The transport "masked-sum": what can be checked is whether a seed opens, that no envelope is there twice, and its token."""

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
    """The transport "verified-sum": reports prove that their counts are in range, and both servers check it together."""

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
    """Return the transport of this name if its reports are checked before a sum is released."""
    return _CHECKED.get(name)


def batch_of(
    reports: Sequence[SealedReport], order: NDArray[np.int64], transport: CheckedTransport, plan: SumPlan, secret: bytes = b""
) -> SealedBatch:
    """Return the batch of the checkable parts of these reports."""
    parts = transport.parts([reports[which] for which in order.tolist()], plan, secret)
    return SealedBatch(transport.name, reports[0].round, plan.dim, len(reports), parts)
