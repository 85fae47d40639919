"""How a user's counts reach the analyzer so that it sees their sum alone: three transports with the same view.

*messages*, the paper's: each labelled bit in an envelope of its own; the shuffler permutes the envelopes under each label.
*masked-sum*, for scale: the counts plus a mask modulo 2^k to the shuffler, who adds them up, and the mask's seed in an envelope
to the analyzer, who takes the masks away.
*verified-sum*, for strangers' devices: the counts as two shares, one for each server, with proofs that each count is in range.
In all of them the shuffler sees nothing of the counts, and the analyzer nothing but their sum; together they see all. Every
envelope is bound to the signed round, and a bit to its label too.

A transport is one class in `TRANSPORTS`: nothing else compares its name.
"""

from __future__ import annotations

import hashlib
import os
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, Self

import numpy as np
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives import hpke
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from numpy.typing import NDArray

from ...privacy import SumPlan
from ...protocol import Counts
from ...protocol import Report as Bits
from ...protocol._sampling import permutation
from ...protocol.randomness import KeyedRandom, RandomSource
from ..prio3.prio3 import exchange_key, exchange_public_key, verify_key
from .documents import BATCH, RELEASE, SIGNATURE_BYTES, VERSION, WireError, header, signed_bytes
from .reports import (
    MOST_WIDTH,
    SEAL_BYTES,
    TOKEN_BYTES,
    VerifiedSizes,
    checkable,
    count_width,
    decided,
    leader_sum,
    modulo,
    packed,
    packed_bytes,
    require_padding,
    shared_counts,
    total_counts,
    unpacked,
    unpacked_rows,
    unwrapped,
)

_SUITE = hpke.Suite(hpke.KEM.X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.AES_128_GCM)
_SEED = 0xFFFFFFFF  # in the place of a label
SEED_BYTES = 32  # in an envelope, before the token
ENCAPSULATED = 32  # bytes of the key at the beginning of an envelope: no two envelopes share one
DIGEST_BYTES = 32
SEALED_BIT, SEALED_SEED = SEAL_BYTES + 1, SEAL_BYTES + SEED_BYTES
_Bytes = NDArray[np.uint8]


def block_digest(round_digest: bytes, block: int | None) -> bytes:
    """Return what reports of one block of a round are bound to, in the place of the round's digest; None: there are no blocks."""
    if block is None:
        return round_digest
    return hashlib.sha256(b"croupier block v1 " + round_digest + block.to_bytes(4, "little")).digest()


# Bytes on the wire: a user's report, a shuffled batch, a released sum. docs/protocol.md is the specification.
#
# Whole numbers are little-endian. Everything has a header of 16 bytes, a magic word and a version, and is read strictly: a
# length that does not fit, an unknown version or a rest at the end is refused. Reading holds little more than it was given.

_REPORT = struct.Struct("<4sBBHII")  # CRPR, version, transport, bits of a masked count, dim, messages per coordinate
REPORT_HEAD = _REPORT.size + DIGEST_BYTES  # header and the round's digest
_BATCH = struct.Struct("<4sBBHII")  # CRPB, version, transport, 0, dim, users
_RELEASE = struct.Struct("<4sBBHII")  # CRPS, version, transport, bits of a number, dim, users
_WORD = 64  # bits of numbers that are not packed
_TOGETHER = 256  # reports whose numbers are unpacked together


def _nothing() -> _Bytes:
    return np.zeros(0, np.uint8)


@dataclass(frozen=True, eq=False)
class SealedReport:
    """What one user sends in a round: envelopes for the analyzer, and what the shuffler adds up."""

    transport: str  # the transport's name
    round: bytes  # digest of the round's signed document, or `block_digest`
    dim: int  # coordinates
    messages: int  # messages per coordinate
    sealed: _Bytes  # envelopes: sealed bits of shape (dim, messages, 49), or one that holds a seed or a share
    unsealed: _Bytes = field(default_factory=_nothing)  # nothing, packed masked counts, or nonce and shares for the shuffler
    width: int = 0  # bits of a masked count, where counts are masked

    def to_bytes(self) -> bytes:
        """Return the report as it travels."""
        head = _REPORT.pack(b"CRPR", VERSION, TRANSPORTS[self.transport].number, self.width, self.dim, self.messages)
        return head + self.round + self.sealed.tobytes() + self.unsealed.tobytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> SealedReport:
        """Read a report, strictly."""
        number, width, dim, messages = header(_REPORT, b"CRPR", data)
        about, body = data[_REPORT.size :][:DIGEST_BYTES], memoryview(data)[REPORT_HEAD:]
        return _numbered(number).parse(about, dim, messages, width, body)

    @classmethod
    def read_alike(cls, bodies: Sequence[bytes]) -> list[SealedReport]:
        """Read reports of one round that were checked when they came: the first says what all of them are."""
        if not bodies:
            return []
        first, before = cls.from_bytes(bytes(bodies[0])), REPORT_HEAD
        rows = np.frombuffer(b"".join(bodies), np.uint8).reshape(len(bodies), -1)
        sealed = rows[:, before : before + first.sealed.size].reshape(len(bodies), *first.sealed.shape)
        about = (first.transport, first.round, first.dim, first.messages)
        unsealed = rows[:, before + first.sealed.size :]
        return [cls(*about, envelopes, rest, first.width) for envelopes, rest in zip(sealed, unsealed, strict=True)]


@dataclass(frozen=True, eq=False)
class SealedBatch:
    """What the shuffler forwards of a full round, once, in random order: all sealed bits, or what can be checked of each report."""

    transport: str  # the transport's name
    round: bytes  # digest of the round's signed document
    dim: int  # coordinates
    users: int  # how many reports are in it
    sealed: _Bytes  # sealed bits of shape (dim, users x messages, 49), or checkable parts of shape (users, bytes of a part)

    def to_bytes(self, key: Ed25519PrivateKey) -> bytes:
        """Return the batch as it travels, with the shuffler's signature at the end."""
        head = _BATCH.pack(b"CRPB", VERSION, TRANSPORTS[self.transport].number, 0, self.dim, self.users)
        data = head + self.round + self.sealed.tobytes()
        return data + key.sign(signed_bytes(BATCH, data))

    @classmethod
    def from_bytes(cls, data: bytes, messages: int, key: Ed25519PublicKey) -> Self:
        """Read a batch that this shuffler signed, strictly."""
        number, zero, dim, users = header(_BATCH, b"CRPB", data)
        transport = _numbered(number)
        token = transport.token_bytes(len(data) - transport.batch_bytes(dim, users, messages), users)
        if zero or token is None:
            raise WireError("a batch whose length differs from its header")
        content = _verified(BATCH, data, key)
        about = content[_BATCH.size :][:DIGEST_BYTES]
        rest = np.frombuffer(content, np.uint8, offset=_BATCH.size + DIGEST_BYTES)
        part = transport.lengths(dim, messages).part + token
        return cls(transport.name, about, dim, users, rest.reshape(transport.batch_shape(dim, users, messages, part)))


@dataclass(frozen=True, eq=False)
class Release:
    """The shuffler's sum over the reports of a round that are not excluded. There is one for a round."""

    transport: str  # the transport's name
    round: bytes  # digest of the round's signed document
    exclusions: bytes  # digest of the analyzer's signed commitment
    users: int  # how many reports are in the sum
    sums: NDArray[np.uint64]  # one number per coordinate
    width: int = _WORD  # bits of a number; fewer than 64 are packed

    def to_bytes(self, key: Ed25519PrivateKey) -> bytes:
        """Return the release as it travels, with the shuffler's signature at the end."""
        number = TRANSPORTS[self.transport].number
        head = _RELEASE.pack(b"CRPS", VERSION, number, self.width, len(self.sums), self.users)
        sums = self.sums.astype("<u8").tobytes() if self.width == _WORD else packed(self.sums, self.width)
        data = head + self.round + self.exclusions + sums
        return data + key.sign(signed_bytes(RELEASE, data))

    @classmethod
    def from_bytes(cls, data: bytes, key: Ed25519PublicKey) -> Self:
        """Read a release that this shuffler signed, strictly."""
        number, width, dim, users = header(_RELEASE, b"CRPS", data)
        if not (width == _WORD or 1 <= width <= MOST_WIDTH) or len(data) != release_bytes(dim, width):
            raise WireError("a release whose length differs from its header")
        content = _verified(RELEASE, data, key)[_RELEASE.size :]
        digests, numbers = content[: 2 * DIGEST_BYTES], np.frombuffer(content, np.uint8, offset=2 * DIGEST_BYTES)
        if width == _WORD:
            sums = numbers.view("<u8").astype(np.uint64)
        else:
            require_padding(numbers, dim, width)
            sums = unpacked(numbers, dim, width)
        return cls(_numbered(number).name, digests[:DIGEST_BYTES], digests[DIGEST_BYTES:], users, sums, width)


def release_bytes(dim: int, width: int = _WORD) -> int:
    """Return the length of a release."""
    return _RELEASE.size + 2 * DIGEST_BYTES + packed_bytes(dim, width) + SIGNATURE_BYTES


def _verified(kind: int, data: bytes, key: Ed25519PublicKey) -> bytes:
    """What the shuffler signed, without the signature at its end."""
    content = data[:-SIGNATURE_BYTES]
    try:
        key.verify(data[-SIGNATURE_BYTES:], signed_bytes(kind, content))
    except InvalidSignature:
        raise WireError("the signature is not the shuffler's") from None
    return content


# What all transports have in common.


class Lengths(NamedTuple):
    """Bytes of a report's envelopes, of its rest, and of what is forwarded of it; without headers and tokens."""

    sealed: int
    unsealed: int
    part: int


@dataclass(frozen=True, eq=False)
class Verdict:
    """What the analyzer found in a batch."""

    bad: int  # reports that are left out, or envelopes that count as zeros
    cheats: int  # how many clients have sent them, at least
    places: tuple[int, ...] = ()  # places of the reports that are left out, ascending
    share: NDArray[np.uint64] | None = None  # the analyzer's share of the sum of the others, where the shuffler releases that sum
    counts: Counts | None = None  # the ones of each coordinate, where the batch holds them all


Admits = Callable[[bytes], bool]


class Transport(ABC):
    """How a report travels and how a batch becomes a sum, for a client and both servers. Nothing is remembered between calls."""

    name: ClassVar[str]  # as tasks say it
    number: ClassVar[int]  # in headers
    planned_as: ClassVar[str]  # the `transport` of its plans
    checked: ClassVar[bool] = True  # reports are checked one by one, each with its token, before one sum over the good ones leaves
    uses_pool: ClassVar[bool] = False  # processes share the work of opening a batch
    description: ClassVar[str]  # how counts travel, in words
    travel: ClassVar[str]  # how a person's noisy bits get into a report, in words
    cheat: ClassVar[str] = "one cheating client can shift a count by no more than any report could"
    bad_words: ClassVar[str] = "reports are left out"
    lost_remedy: ClassVar[str] = "Ask again by verified-sum, where no client can do that, in a task with another name"

    # A client's report.

    def seal(self, bits: Bits, plan: SumPlan, round_digest: bytes, key: X25519PublicKey, token: bytes = b"") -> SealedReport:
        """Seal a user's labelled bits, as they leave its device. Seals are random: keep the bytes for a retry.

        Guarantee
        ---------
        The report by itself shows the shuffler nothing of the bits: envelopes open with the round's private key alone. What a role
        can learn from a whole run is in docs/threat-model.md.
        """
        width, (dim, messages) = self.width(plan), bits.bits.shape
        try:
            sealed, unsealed = self._sealed(bits.bits, round_digest, key, width, token)
        except ValueError:  # a point of low order
            raise WireError("a round whose key is none that anything can be sealed for") from None
        return SealedReport(self.name, round_digest, dim, messages, sealed, unsealed, width)

    @abstractmethod
    def _sealed(
        self, bits: NDArray[np.bool_], round_digest: bytes, key: X25519PublicKey, width: int, token: bytes
    ) -> tuple[_Bytes, _Bytes]:
        """Envelopes, and the rest of the report."""

    # Lengths.

    @abstractmethod
    def lengths(self, dim: int, messages: int, width: int = 0) -> Lengths:
        """Return the lengths of a report's parts."""

    def width(self, plan: SumPlan) -> int:
        """Return the bits of a masked count; 0 where counts are not masked."""
        return 0

    def report_bytes(self, dim: int, messages: int, width: int = 0) -> int:
        """Return the length of a report without a token."""
        lengths = self.lengths(dim, messages, width)
        return _REPORT.size + DIGEST_BYTES + lengths.sealed + lengths.unsealed

    def report_length(self, plan: SumPlan) -> int:
        """Return the length of every report of a round, without a token."""
        return self.report_bytes(plan.coordinates, plan.bits_per_coordinate, self.width(plan))

    def batch_bytes(self, dim: int, users: int, messages: int) -> int:
        """Return the length of the batch of so many users, without tokens."""
        return _BATCH.size + DIGEST_BYTES + users * self.lengths(dim, messages).part + SIGNATURE_BYTES

    def batch_length(self, plan: SumPlan) -> int:
        """Return the length of the batch of a round in which all users have answered, without tokens."""
        return self.batch_bytes(plan.coordinates, plan.users, plan.bits_per_coordinate)

    def token_bytes(self, more: int, users: int) -> int | None:
        """Return how many bytes of each envelope are a token, by how much longer they all are than without; None if it can't be."""
        if more == 0:
            return 0
        return TOKEN_BYTES if self.checked and more == users * TOKEN_BYTES else None

    # What a server reads.

    def parse(self, round_digest: bytes, dim: int, messages: int, width: int, body: memoryview) -> SealedReport:
        """Read the body of a report with this header, strictly."""
        if not self._may_be_width(width):
            raise WireError(f"masked counts of {width} bits by {self.name}")
        lengths, before = self.lengths(dim, messages, width), _REPORT.size + DIGEST_BYTES
        length = lengths.sealed + lengths.unsealed
        token = self.token_bytes(len(body) - length, 1)
        if token is None:
            raise WireError(f"a report of {before + len(body)} bytes where its header makes {before + length}")
        sealed, unsealed = np.split(np.frombuffer(body, np.uint8), [lengths.sealed + token])
        require_padding(unsealed, dim, width)
        return SealedReport(self.name, round_digest, dim, messages, self._shaped(sealed, dim, messages), unsealed, width)

    def _may_be_width(self, width: int) -> bool:
        return width == 0

    def _shaped(self, sealed: _Bytes, dim: int, messages: int) -> _Bytes:
        return sealed

    def batch_shape(self, dim: int, users: int, messages: int, part: int) -> tuple[int, ...]:
        """Return the shape of a batch's bytes, by the bytes that it has of each report."""
        return users, part

    def carries(self, sent: SealedReport | SealedBatch | Release) -> bool:
        """Return whether it came by this transport."""
        return sent.transport == self.name

    def check_shape(self, report: SealedReport, round_digest: bytes, plan: SumPlan) -> None:
        """Refuse a report that is not of this round, or has not exactly the messages that the plan says."""
        if not self.carries(report):
            raise WireError(f"a report by {report.transport} in a task by {self.name}")
        if report.round != round_digest:
            raise WireError("a report for another round")
        if (report.dim, report.messages) != (plan.coordinates, plan.bits_per_coordinate):
            shape = f"{plan.coordinates} coordinates of {plan.bits_per_coordinate} messages"
            raise WireError(f"{report.dim} coordinates of {report.messages} messages where the plan has {shape}")
        if report.width != (width := self.width(plan)):
            raise WireError(f"masked counts of {report.width} bits where the plan has {width}")

    def fits(self, batch: SealedBatch, plan: SumPlan, token: int) -> bool:
        """Return whether a batch is of this transport and plan, with tokens of so many bytes."""
        if not self.carries(batch) or batch.dim != plan.coordinates:
            return False
        return batch.sealed.size == batch.users * (self.lengths(plan.coordinates, plan.bits_per_coordinate).part + token)

    # A round, from the batch to its counts.

    def shuffler_secret(self, key: Ed25519PrivateKey, round_key: X25519PublicKey, round_digest: bytes) -> bytes:
        """Return the secret of a round that its two servers share, as the shuffler computes it."""
        return b""

    def analyzer_secret(self, key: X25519PrivateKey, shuffler: Ed25519PublicKey, round_digest: bytes) -> bytes:
        """Return the secret of a round that its two servers share, as the analyzer computes it."""
        return b""

    @abstractmethod
    def batch(
        self, reports: Sequence[SealedReport], plan: SumPlan, random: RandomSource, secret: bytes = b""
    ) -> tuple[SealedBatch, NDArray[np.int64] | None]:
        """Return the batch of these reports in uniformly random order, and that order where reports are checked."""

    @abstractmethod
    def check(
        self,
        batch: SealedBatch,
        plan: SumPlan,
        key: X25519PrivateKey,
        pool: Executor | None = None,
        admits: Admits | None = None,
        secret: bytes = b"",
    ) -> Verdict:
        """Open a batch and check all that is in it; the analyzer does. The same batch has the same verdict."""

    def most_cheats(self, users: int, plan: SumPlan, margin: int) -> int:
        """Count the users of a batch who may send what is bad, where so many reports may be left out."""
        return margin

    def spoiled(self, verdict: Verdict, users: int, most: int) -> str:
        """Say that a batch of so many users has more that is bad than is allowed."""
        return f"{verdict.bad} of {users} reports {'is' if verdict.bad == 1 else 'are'} bad, more than the {most} allowed"

    @abstractmethod
    def release(self, reports: Sequence[SealedReport], plan: SumPlan, exclusions: bytes) -> Release:
        """Return the shuffler's sum over the reports that are not left out, bound to the digest of that commitment."""

    @abstractmethod
    def counts(self, release: Release, share: NDArray[np.uint64], plan: SumPlan) -> Counts | None:
        """Put both shares of a sum together; the analyzer does. None if no users could have sent that."""


class Messages(Transport):
    """The paper's transport: every bit in an envelope of its own, and no sum but that of all reports."""

    name, number, planned_as = "messages", 1, "messages"
    checked, uses_pool = False, True
    description = "every bit in an envelope of its own, which the shuffler permutes"
    travel = "each in an envelope of its own"
    bad_words = "envelopes count as zeros"

    def _sealed(
        self, bits: NDArray[np.bool_], round_digest: bytes, key: X25519PublicKey, width: int, token: bytes
    ) -> tuple[_Bytes, _Bytes]:
        # The bits of a label are in no order that says anything: ones first, before the shuffler permutes them.
        sealed = b"".join(
            _SUITE.encrypt(bytes([bit]), key, info=_info(self.name, round_digest, label))
            for label, row in enumerate(bits)
            for bit in row.tolist()
        )
        return self._shaped(np.frombuffer(sealed, np.uint8), *bits.shape), _nothing()

    def lengths(self, dim: int, messages: int, width: int = 0) -> Lengths:
        return Lengths(dim * messages * SEALED_BIT, 0, dim * messages * SEALED_BIT)

    def _shaped(self, sealed: _Bytes, dim: int, messages: int) -> _Bytes:
        return sealed.reshape(dim, messages, SEALED_BIT)

    def batch_shape(self, dim: int, users: int, messages: int, part: int) -> tuple[int, ...]:
        return dim, users * messages, SEALED_BIT

    def batch(
        self, reports: Sequence[SealedReport], plan: SumPlan, random: RandomSource, secret: bytes = b""
    ) -> tuple[SealedBatch, NDArray[np.int64] | None]:
        """Return the batch of these reports, in uniformly random order: nothing in it says who sent what.

        Guarantee
        ---------
        The envelopes of each label are uniformly permuted.
        """
        first = reports[0]
        labels = [
            np.concatenate([report.sealed[label] for report in reports])[permutation(random, len(reports) * first.messages)]
            for label in range(first.dim)
        ]
        return SealedBatch(self.name, first.round, first.dim, len(reports), np.stack(labels)), None

    def check(
        self,
        batch: SealedBatch,
        plan: SumPlan,
        key: X25519PrivateKey,
        pool: Executor | None = None,
        admits: Admits | None = None,
        secret: bytes = b"",
    ) -> Verdict:
        """Open a batch and count its ones.

        An envelope that does not open, holds something else than a bit or repeats an encapsulated key counts as a zero: a cheat who
        sends it could have sent a zero. It is a function of what the analyzer sees anyway, and no second release. Each client has a
        fixed number of envelopes in a coordinate, which says how many cheats there are at least.
        """
        private, labels = key.private_bytes_raw(), range(batch.dim)
        work = [batch.sealed[label].tobytes() for label in labels], [private] * batch.dim, [batch.round] * batch.dim, labels
        found = np.array(list((pool.map if pool else map)(_opened_label, *work)), dtype=np.int64)
        malformed = found[:, 1]
        cheats = -(-int(malformed.max()) // plan.bits_per_coordinate)
        return Verdict(int(malformed.sum()), cheats, counts=Counts(found[:, 0], batch.users, private=True))

    def most_cheats(self, users: int, plan: SumPlan, margin: int) -> int:
        return users - plan.honest_users

    def spoiled(self, verdict: Verdict, users: int, most: int) -> str:
        return f"{verdict.bad} envelopes hold no bit, so that more than the {most} users allowed are cheats"

    def release(self, reports: Sequence[SealedReport], plan: SumPlan, exclusions: bytes) -> Release:
        raise WireError(f"a sum by {self.name}, where the batch holds all counts")

    def counts(self, release: Release, share: NDArray[np.uint64], plan: SumPlan) -> Counts | None:
        raise WireError(f"a sum by {self.name}, where the batch holds all counts")


def _opened_label(envelopes: bytes, private: bytes, round_digest: bytes, label: int) -> tuple[int, int]:
    """The ones among the sealed bits of a label, and the envelopes that hold no bit of their own."""
    opens = _opener(X25519PrivateKey.from_private_bytes(private), _info(Messages.name, round_digest, label))
    bits = [opens(envelopes[start : start + SEALED_BIT]) for start in range(0, len(envelopes), SEALED_BIT)]
    ones, zeros = bits.count(b"\1"), bits.count(b"\0")
    return ones, len(bits) - ones - zeros


class CheckedTransport(Transport):
    """A transport whose reports the analyzer checks one by one before one sum over the good ones is released.

    The shuffler sends the checkable part of every report, in random order. The analyzer commits to the places that are bad. The
    shuffler then adds up what it holds of the others and sends that sum, which says nothing without the analyzer's share of it.
    """

    def batch(
        self, reports: Sequence[SealedReport], plan: SumPlan, random: RandomSource, secret: bytes = b""
    ) -> tuple[SealedBatch, NDArray[np.int64] | None]:
        order = permutation(random, len(reports))
        parts = self.parts([reports[which] for which in order.tolist()], plan, secret)
        return SealedBatch(self.name, reports[0].round, plan.coordinates, len(reports), parts), order

    def parts(self, reports: Sequence[SealedReport], plan: SumPlan, secret: bytes = b"") -> _Bytes:
        """Return what the analyzer checks of reports; the shuffler makes it, and all are of one length."""
        return np.stack([report.sealed for report in reports])

    def release(self, reports: Sequence[SealedReport], plan: SumPlan, exclusions: bytes) -> Release:
        width = self.width(plan) or _WORD
        return Release(self.name, reports[0].round, exclusions, len(reports), self._summed(reports, plan), width)

    def counts(self, release: Release, share: NDArray[np.uint64], plan: SumPlan) -> Counts | None:
        if (release.width, release.sums.shape) != (self.width(plan) or _WORD, (plan.coordinates,)):
            raise WireError("a release of another shape than the task's")
        counts = self._total(release.sums, share, release.users, plan)
        return None if counts is None else Counts(counts, release.users, private=True)

    @abstractmethod
    def _summed(self, reports: Sequence[SealedReport], plan: SumPlan) -> NDArray[np.uint64]:
        """The shuffler's shares of these reports, added up."""

    @abstractmethod
    def _total(
        self, released: NDArray[np.uint64], share: NDArray[np.uint64], users: int, plan: SumPlan
    ) -> NDArray[np.int64] | None:
        """Both shares of a sum, put together; None if no users could have sent that."""


class MaskedSum(CheckedTransport):
    """Masked counts: what can be checked is whether a seed opens, that no envelope is there twice, and its token."""

    name, number, planned_as = "masked-sum", 2, "masked"
    description = "masked counts, which the shuffler adds up, and the seed of the mask in an envelope"
    travel = "as masked counts"
    cheat = "one cheating client can shift sums by any amount, or spoil a round; verified-sum rules that out"

    def width(self, plan: SumPlan) -> int:
        return count_width(plan)

    def _may_be_width(self, width: int) -> bool:
        return 1 <= width <= MOST_WIDTH

    def lengths(self, dim: int, messages: int, width: int = 0) -> Lengths:
        return Lengths(SEALED_SEED, packed_bytes(dim, width), SEALED_SEED)

    def _sealed(
        self, bits: NDArray[np.bool_], round_digest: bytes, key: X25519PublicKey, width: int, token: bytes
    ) -> tuple[_Bytes, _Bytes]:
        seed = os.urandom(SEED_BYTES)
        masked = modulo(bits.sum(axis=1, dtype=np.uint64) + mask(seed, len(bits), width), width)
        return seal_seed(seed + token, key, seed_info(self.name, round_digest)), np.frombuffer(packed(masked, width), np.uint8)

    def check(
        self,
        batch: SealedBatch,
        plan: SumPlan,
        key: X25519PrivateKey,
        pool: Executor | None = None,
        admits: Admits | None = None,
        secret: bytes = b"",
    ) -> Verdict:
        opens, share, bad = _opener(key, seed_info(self.name, batch.round)), np.zeros(plan.coordinates, dtype=np.uint64), []
        width, length, masks = self.width(plan), packed_bytes(plan.coordinates, self.width(plan)), list[bytes]()
        for place, part in enumerate(batch.sealed):
            content = opens(part.tobytes())
            if content is None or (admits is not None and not admits(content[SEED_BYTES:])):
                bad.append(place)
            else:
                masks.append(_keystream(content[:SEED_BYTES], length))
        for start in range(0, len(masks), _TOGETHER):
            some = np.frombuffer(b"".join(masks[start : start + _TOGETHER]), np.uint8).reshape(-1, length)
            share += unpacked_rows(some, plan.coordinates, width).sum(axis=0, dtype=np.uint64)
        return Verdict(len(bad), len(bad), tuple(bad), share)

    def _summed(self, reports: Sequence[SealedReport], plan: SumPlan) -> NDArray[np.uint64]:
        total = np.zeros(plan.coordinates, dtype=np.uint64)
        for start in range(0, len(reports), _TOGETHER):
            some = np.stack([report.unsealed for report in reports[start : start + _TOGETHER]])
            total += unpacked_rows(some, plan.coordinates, self.width(plan)).sum(axis=0, dtype=np.uint64)
        return modulo(total, self.width(plan))

    def _total(
        self, released: NDArray[np.uint64], share: NDArray[np.uint64], users: int, plan: SumPlan
    ) -> NDArray[np.int64] | None:
        width = self.width(plan)
        return unwrapped(modulo(released - share, width), width, users, plan)


class VerifiedSum(CheckedTransport):
    """Counts in two shares: reports prove that their counts are in range, and both servers check it together."""

    name, number, planned_as = "verified-sum", 3, "verified"
    description = "counts as two shares, one for each server, with proofs that each count is in range"
    travel = "as counts in two shares, with proofs"
    lost_remedy = "No client can do that by verified-sum: ask the shuffler's operator, who signed the sum"

    def lengths(self, dim: int, messages: int, width: int = 0) -> Lengths:
        sizes = VerifiedSizes(dim, messages)
        return Lengths(sizes.sealed, sizes.open, sizes.part)

    def _sealed(
        self, bits: NDArray[np.bool_], round_digest: bytes, key: X25519PublicKey, width: int, token: bytes
    ) -> tuple[_Bytes, _Bytes]:
        share, shares = shared_counts(bits.sum(axis=1, dtype=np.int64), bits.shape[1], round_digest)
        envelope = _SUITE.encrypt(share + token, key, info=seed_info(self.name, round_digest))
        return np.frombuffer(envelope, np.uint8), shares

    def shuffler_secret(self, key: Ed25519PrivateKey, round_key: X25519PublicKey, round_digest: bytes) -> bytes:
        return verify_key(exchange_key(key), round_key, round_digest)

    def analyzer_secret(self, key: X25519PrivateKey, shuffler: Ed25519PublicKey, round_digest: bytes) -> bytes:
        return verify_key(key, exchange_public_key(shuffler), round_digest)

    def parts(self, reports: Sequence[SealedReport], plan: SumPlan, secret: bytes = b"") -> _Bytes:
        sealed, shares = super().parts(reports, plan), np.stack([report.unsealed for report in reports])
        return checkable(sealed, shares, plan.bits_per_coordinate, plan.coordinates, reports[0].round, secret)

    def check(
        self,
        batch: SealedBatch,
        plan: SumPlan,
        key: X25519PrivateKey,
        pool: Executor | None = None,
        admits: Admits | None = None,
        secret: bytes = b"",
    ) -> Verdict:
        opens = _opener(key, seed_info(self.name, batch.round))
        accepted, share = decided(batch.sealed, plan.bits_per_coordinate, plan.coordinates, batch.round, secret, opens, admits)
        bad = np.flatnonzero(~accepted).tolist()
        return Verdict(len(bad), len(bad), tuple(bad), share)

    def _summed(self, reports: Sequence[SealedReport], plan: SumPlan) -> NDArray[np.uint64]:
        shares = np.stack([report.unsealed for report in reports])
        return leader_sum(shares, plan.bits_per_coordinate, plan.coordinates, reports[0].round)

    def _total(
        self, released: NDArray[np.uint64], share: NDArray[np.uint64], users: int, plan: SumPlan
    ) -> NDArray[np.int64] | None:
        total = total_counts(released, share)
        return None if total.max(initial=0) > users * plan.bits_per_coordinate else total.astype(np.int64)


TRANSPORTS: dict[str, Transport] = {one.name: one for one in (Messages(), MaskedSum(), VerifiedSum())}
# Of a task that does not say how reports travel: the first where its reports have at most so many bytes, the second otherwise.
DEFAULT_TRANSPORT, LONG_TRANSPORT, MOST_DEFAULT_BYTES = VerifiedSum.name, MaskedSum.name, 1_000_000


def _numbered(number: int) -> Transport:
    """A transport by its number in a header."""
    transport = next((one for one in TRANSPORTS.values() if one.number == number), None)
    if transport is None:
        raise WireError(f"transport {number}, which is not known")
    return transport


# Envelopes and masks.


def mask(seed: bytes, dim: int, width: int) -> NDArray[np.uint64]:
    """Return numbers modulo 2^width that look random to whoever has not got the seed: its keystream."""
    return unpacked(_keystream(seed, packed_bytes(dim, width)), dim, width)


def _keystream(seed: bytes, length: int) -> bytes:
    return KeyedRandom(seed, private=True).draw_bytes(length).tobytes()


def _opener(key: X25519PrivateKey, info: bytes) -> Callable[[bytes], bytes | None]:
    """Opens envelopes one after the other, but none with an encapsulated key that was there before: nobody is counted twice."""
    seen = set[bytes]()

    def opens(envelope: bytes) -> bytes | None:
        new = envelope[:ENCAPSULATED] not in seen
        seen.add(envelope[:ENCAPSULATED])
        return open_envelope(envelope, key, info) if new else None

    return opens


def open_envelope(envelope: bytes, key: X25519PrivateKey, info: bytes) -> bytes | None:
    """Return what is in an envelope."""
    try:
        return _SUITE.decrypt(envelope, key, info=info)
    except (InvalidTag, ValueError):
        return None


def seal_seed(content: bytes, key: X25519PublicKey, info: bytes) -> _Bytes:
    """Return the envelope of a mask's seed, and the token after it where there is one; bound to `info`, from `seed_info`."""
    return np.frombuffer(_SUITE.encrypt(content, key, info=info), np.uint8)


def seed_info(transport: str, round_digest: bytes) -> bytes:
    """Return what the envelope of a seed is bound to."""
    return _info(transport, round_digest, _SEED)


def _info(transport: str, round_digest: bytes, label: int) -> bytes:
    """What an envelope is bound to: it opens for this transport, round and label alone."""
    return b"croupier report v1 " + transport.encode() + b" " + round_digest + label.to_bytes(4, "little")
