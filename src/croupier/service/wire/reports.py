"""Reports by verified-sum: what a client sends, what the shuffler makes of it for the analyzer, and what the analyzer decides.

The shuffler is the draft's leader: its share is long, and travels once, unsealed, from the client. The analyzer is the helper: its
share is two seeds, which are sealed. So a report is as short as it can be, and a batch too. docs/protocol.md has the bytes.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Self

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from numpy.typing import NDArray

from ...privacy import SumPlan
from ..prio3.field import FIELD64
from ..prio3.prio3 import NONCE_BYTES, Prio3SumVec
from ..prio3.xof import SEED_BYTES
from .documents import (
    ARRIVALS,
    BATCH,
    EXCLUSIONS,
    MOST_DOCUMENT_BYTES,
    RELEASE,
    ROUND,
    SIGNATURE_BYTES,
    TASK,
    VERSION,
    Document,
    WireError,
    canonical,
    header,
    sha256,
    signed_bytes,
)

__all__ = [
    "ARRIVALS",
    "BATCH",
    "DIGEST_BYTES",
    "EXCLUSIONS",
    "MOST_DOCUMENT_BYTES",
    "RELEASE",
    "ROUND",
    "SEALED_BIT",
    "SEALED_SEED",
    "SEAL_BYTES",
    "SIGNATURE_BYTES",
    "TASK",
    "TOKEN_BYTES",
    "TRANSPORTS",
    "VERSION",
    "Document",
    "SealedBatch",
    "SealedReport",
    "WireError",
    "batch_bytes",
    "canonical",
    "part_bytes",
    "report_bytes",
    "sha256",
    "transport_of",
    "verified_bytes",
]


# Masked counts on the wire: d numbers modulo 2^k, of k bits each, one after the other without gaps. See docs/protocol.md.
#
# k is the fewest bits that hold the count of all users together, so that a sum of masked counts loses nothing. It follows from
# public figures: the plan's users and messages.

# A number that begins within a byte reaches into the next ones: so many bits fit into 64 with a byte's offset.
MOST_WIDTH = 57


def count_width(users: int, messages: int) -> int:
    """Return k, the bits of a masked count: the least number with 2^k > users x messages."""
    width = (users * messages).bit_length()
    if not 1 <= width <= MOST_WIDTH:
        raise WireError(f"counts up to {users} x {messages}, of {width} bits, where there are 1 to {MOST_WIDTH}")
    return width


def width_for(transport: str, plan: SumPlan) -> int:
    """Return the bits of a masked count under a plan; 0 where counts are not masked."""
    return count_width(plan.users, plan.bits_per_coordinate) if transport == "masked-sum" else 0


def packed_bytes(dim: int, width: int) -> int:
    """Return how many bytes so many numbers take."""
    return -(-dim * width // 8)


def packed(numbers: NDArray[np.uint64], width: int) -> bytes:
    """Return numbers modulo 2^width, without gaps: bit i of number j is bit j x width + i, bytes from their lowest bit."""
    places = np.arange(width, dtype=np.uint64)
    bits = (np.asarray(numbers, dtype=np.uint64)[:, np.newaxis] >> places) & np.uint64(1)
    return np.packbits(bits.astype(np.uint8).ravel(), bitorder="little").tobytes()


def unpacked(data: bytes | NDArray[np.uint8], dim: int, width: int) -> NDArray[np.uint64]:
    """Return the numbers that `packed` made these bytes of."""
    touched = (width + 14) // 8  # bytes, wherever in a byte the number begins
    padded = np.zeros(packed_bytes(dim, width) + touched, dtype=np.uint8)
    padded[: packed_bytes(dim, width)] = np.frombuffer(data, np.uint8) if isinstance(data, bytes) else data
    first = np.arange(dim) * width
    numbers = np.zeros(dim, dtype=np.uint64)
    for place in range(touched):
        numbers |= padded[first // 8 + place].astype(np.uint64) << np.uint64(8 * place)
    return modulo(numbers >> (first % 8).astype(np.uint64), width)


def modulo(numbers: NDArray[np.uint64], width: int) -> NDArray[np.uint64]:
    """Return numbers modulo 2^width."""
    return numbers & np.uint64((1 << width) - 1)


def require_padding(data: NDArray[np.uint8], dim: int, width: int) -> None:
    """Refuse packed numbers whose last byte holds anything beyond them."""
    used = dim * width % 8
    if used and len(data) and int(data[-1]) >> used:
        raise WireError("masked counts with something after the last of them")


PROOFS = 3
# Coordinates, and messages of each, that proofs are about at most.
_MOST = 1 << 31
# What surrounds the helper's share: HPKE's encapsulated key and tag.
_SEAL_BYTES = 32 + 16
_Bytes = NDArray[np.uint8]


@lru_cache(maxsize=8)
def vdaf_for(dim: int, messages: int, round_digest: bytes) -> Prio3SumVec:
    """Return the scheme of a round: its counts, three proofs, two servers, bound to the round."""
    return Prio3SumVec(dim, messages, proofs=PROOFS, context=b"croupier report v1 verified-sum " + round_digest)


@dataclass(frozen=True)
class VerifiedSizes:
    """Lengths of what travels, in bytes.

    Parameters
    ----------
    dim : int
        Coordinates.
    messages : int
        The largest count, g + b.

    Attributes
    ----------
    sealed : int
        The envelope with the helper's share.
    open : int
        The rest of a report: nonce, public share and the leader's share.
    report : int
        All of a report, but for header and round.
    part : int
        What the analyzer checks of a report: envelope, nonce, public share and the leader's verifier share.
    """

    dim: int
    messages: int

    def __post_init__(self) -> None:
        if not 1 <= self.dim <= _MOST or not 1 <= self.messages <= _MOST:
            raise WireError(f"{self.dim} coordinates of {self.messages} messages, which no proof is about")

    @property
    def sealed(self) -> int:
        """The envelope with the helper's share."""
        return _SEAL_BYTES + self._vdaf.helper_bytes

    @property
    def open(self) -> int:
        """The rest of a report: nonce, public share and the leader's share."""
        return NONCE_BYTES + self._vdaf.public_bytes + self._vdaf.leader_bytes

    @property
    def report(self) -> int:
        """All of a report, but for header and round."""
        return self.sealed + self.open

    @property
    def part(self) -> int:
        """What the analyzer checks of a report: envelope, nonce, public share and the leader's verifier share."""
        return self.sealed + NONCE_BYTES + self._vdaf.public_bytes + self._vdaf.verifier_bytes

    @cached_property
    def _vdaf(self) -> Prio3SumVec:
        """Not kept: sizes are asked for by whoever sends a header."""
        return Prio3SumVec(self.dim, self.messages, proofs=PROOFS)


def shared_counts(
    counts: NDArray[np.int64], messages: int, round_digest: bytes, *, nonce: bytes | None = None, rand: bytes | None = None
) -> tuple[bytes, _Bytes]:
    """Share a user's counts between the two servers, with proofs that each is from 0 to g + b.

    Guarantee
    ---------
    Each of the two by itself is independent of the counts, as far as TurboSHAKE128 is a random oracle.
    """
    vdaf = vdaf_for(len(counts), messages, round_digest)
    nonce = os.urandom(NONCE_BYTES) if nonce is None else nonce
    public, (leader, helper) = vdaf.shard(counts, nonce, os.urandom(vdaf.rand_bytes) if rand is None else rand)
    return helper, np.frombuffer(nonce + public + leader, np.uint8)


def checkable(sealed: _Bytes, opened: _Bytes, messages: int, dim: int, round_digest: bytes, verify_key: bytes) -> _Bytes:
    """Make of reports what the analyzer checks of them; the shuffler does."""
    vdaf = vdaf_for(dim, messages, round_digest)
    nonces, publics, shares = _split(vdaf, opened)
    prepared = vdaf.prepare(verify_key, 0, nonces, publics, shares)
    return np.concatenate([sealed, nonces, publics, prepared.verifier_shares], axis=1)


def leader_sum(opened: _Bytes, messages: int, dim: int, round_digest: bytes) -> NDArray[np.uint64]:
    """Add up the leader's shares of the counts of reports that were accepted."""
    vdaf = vdaf_for(dim, messages, round_digest)
    _, _, shares = _split(vdaf, opened)
    total = np.zeros(dim, np.uint64)
    for start in range(0, len(shares), 256):
        elements, refused = FIELD64.from_bytes(shares[start : start + 256, : vdaf.circuit.elements * FIELD64.bytes_per_element])
        elements[refused] = 0
        total = FIELD64.add(total, FIELD64.sum(vdaf.circuit.truncated(elements), axis=0))
    return total


def decided(
    parts: _Bytes,
    messages: int,
    dim: int,
    round_digest: bytes,
    verify_key: bytes,
    opens: Callable[[bytes], bytes | None],
    admits: Callable[[bytes], bool] | None = None,
) -> tuple[NDArray[np.bool_], NDArray[np.uint64]]:
    """Decide which reports of a batch count; the analyzer does, for both servers."""
    vdaf, accepted, total = vdaf_for(dim, messages, round_digest), np.zeros(len(parts), np.bool_), np.zeros(dim, np.uint64)
    told_bytes = NONCE_BYTES + vdaf.public_bytes + vdaf.verifier_bytes
    envelope = parts.shape[1] - told_bytes  # longer than the share where there are tokens
    for start in range(0, len(parts), 256):
        some = parts[start : start + 256]
        contents = [opens(row.tobytes()) for row in some[:, :envelope]]
        good = np.array([content is not None for content in contents], np.bool_)
        whole = [content for content in contents if content is not None]
        if not good.any():
            continue
        rows = some[good, envelope:]
        nonces, publics, told = np.split(rows, [NONCE_BYTES, NONCE_BYTES + vdaf.public_bytes], axis=1)
        helper = np.frombuffer(b"".join(content[: vdaf.helper_bytes] for content in whole), np.uint8)
        helper = helper.reshape(len(rows), vdaf.helper_bytes)
        mine = vdaf.prepare(verify_key, 1, nonces, publics, helper)
        _, holds = vdaf.decide([told, mine.verifier_shares])
        # Both servers have used the joint randomness of all true parts if and only if these are the ones in the public share.
        parted = np.concatenate([told[:, -SEED_BYTES:], mine.verifier_shares[:, -SEED_BYTES:]], axis=1)
        holds &= (parted == publics).all(axis=1) & told.any(axis=1) & ~mine.refused
        if admits is not None:
            for place in np.flatnonzero(holds):
                holds[place] = admits(whole[place][vdaf.helper_bytes :])
        accepted[start + np.flatnonzero(good)[holds]] = True
        total = FIELD64.add(total, FIELD64.sum(mine.out_shares[holds], axis=0))
    return accepted, total


def total_counts(released: NDArray[np.uint64], share: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Put both servers' sums together."""
    return FIELD64.add(FIELD64.elements(released), share)


def _split(vdaf: Prio3SumVec, opened: _Bytes) -> tuple[_Bytes, _Bytes, _Bytes]:
    """Nonces, public shares and leader's shares."""
    nonces, publics, shares = np.split(opened, [NONCE_BYTES, NONCE_BYTES + vdaf.public_bytes], axis=1)
    return nonces, publics, shares


# Bytes on the wire: signed documents, a user's report, a shuffled batch. docs/protocol.md is the specification.
#
# Whole numbers are little-endian. Everything has a header of 16 bytes, a magic word and a version, and is read strictly: a
# length that does not fit, an unknown version or a rest at the end is refused. Reading holds little more than it was given.

TRANSPORTS = {"messages": 1, "masked-sum": 2, "verified-sum": 3}
DIGEST_BYTES = 32
# HPKE, X25519 and AES-128-GCM: an encapsulated key and a tag around what is sealed.
SEAL_BYTES = 32 + 16
SEALED_BIT, SEALED_SEED = SEAL_BYTES + 1, SEAL_BYTES + 32
# In a task with an enroller there is a token beside the seed in its envelope: 32 random bytes, and an RSA signature.
TOKEN_BYTES = 32 + 256
_REPORT = struct.Struct("<4sBBHII")  # CRPR, version, transport, bits of a masked count, dim, messages per coordinate
_BATCH = struct.Struct("<4sBBHII")  # CRPB, version, transport, 0, dim, users


@dataclass(frozen=True, eq=False)
class SealedReport:
    """What one user sends in a round: sealed bits, one row per coordinate; a sealed seed and a masked vector; or two shares.

    Parameters
    ----------
    transport : {"messages", "masked-sum", "verified-sum"}
        How the report travels.
    round : bytes
        Digest of the round's signed document.
    messages : int
        Messages per coordinate.
    sealed : ndarray of uint8
        Sealed bits of shape (dim, messages, 49), a sealed seed of shape (80,), or a sealed share of shape (112,).
    masked : ndarray of uint64, optional
        For "masked-sum": `dim` numbers modulo 2^width.
    width : int, default 0
        For "masked-sum": bits of a masked count.
    shares : ndarray of uint8, optional
        For "verified-sum": nonce, public share and the shuffler's share.
    coordinates : int, default 0
        For "verified-sum".

    Attributes
    ----------
    dim : int
        Coordinates.
    """

    transport: str
    round: bytes
    messages: int
    sealed: NDArray[np.uint8]
    masked: NDArray[np.uint64] | None = None
    width: int = 0
    shares: NDArray[np.uint8] | None = None
    coordinates: int = 0

    @property
    def dim(self) -> int:
        """Coordinates."""
        return self.coordinates or len(self.sealed if self.masked is None else self.masked)

    def to_bytes(self) -> bytes:
        """Return the report as it travels."""
        head = _REPORT.pack(b"CRPR", VERSION, TRANSPORTS[self.transport], self.width, self.dim, self.messages)
        rest = packed(self.masked, self.width) if self.masked is not None else b"" if self.shares is None else self.shares.tobytes()
        return head + self.round + self.sealed.tobytes() + rest

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read a report, strictly."""
        number, width, dim, messages = header(_REPORT, b"CRPR", data)
        transport = _transport(number, width)
        length = report_bytes(transport, dim, messages, width)
        token = tokens_in(transport, len(data) - length, 1)
        if token is None:
            raise WireError(f"a report of {len(data)} bytes where its header makes {length}")
        body, about = np.frombuffer(data, np.uint8, offset=_REPORT.size + DIGEST_BYTES), data[_REPORT.size :][:DIGEST_BYTES]
        if transport == "messages":
            return cls(transport, about, messages, body.reshape(dim, messages, SEALED_BIT))
        if transport == "verified-sum":
            sealed, shares = np.split(body, [VerifiedSizes(dim, messages).sealed + token])
            return cls(transport, about, messages, sealed, shares=shares, coordinates=dim)
        masked = _counts(body[SEALED_SEED + token :], dim, width)
        return cls(transport, about, messages, body[: SEALED_SEED + token], masked, width)


def tokens_in(transport: str, more: int, users: int) -> int | None:
    """Return how many bytes of each envelope are a token, by how much longer they all are than without."""
    if more == 0:
        return 0
    return TOKEN_BYTES if transport != "messages" and more == users * TOKEN_BYTES else None


def report_bytes(transport: str, dim: int, messages: int, width: int = 0) -> int:
    """Return the length of a report."""
    if transport == "verified-sum":
        return _REPORT.size + DIGEST_BYTES + VerifiedSizes(dim, messages).report
    body = dim * messages * SEALED_BIT if transport == "messages" else SEALED_SEED + packed_bytes(dim, width)
    return _REPORT.size + DIGEST_BYTES + body


@dataclass(frozen=True, eq=False)
class SealedBatch:
    """What the shuffler forwards of a full round, once, in random order: all sealed bits, or what can be checked of each report.

    Parameters
    ----------
    transport : {"messages", "masked-sum", "verified-sum"}
        How reports travelled.
    round : bytes
        Digest of the round's signed document.
    dim : int
        Coordinates.
    users : int
        How many reports are in it.
    sealed : ndarray of uint8
        Sealed bits of shape (dim, users x messages, 49), or the checkable parts of reports, of shape (users, bytes of a part).
    """

    transport: str
    round: bytes
    dim: int
    users: int
    sealed: NDArray[np.uint8]

    def to_bytes(self, key: Ed25519PrivateKey) -> bytes:
        """Return the batch as it travels, with the shuffler's signature at the end."""
        head = _BATCH.pack(b"CRPB", VERSION, TRANSPORTS[self.transport], 0, self.dim, self.users)
        data = head + self.round + self.sealed.tobytes()
        return data + key.sign(signed_bytes(BATCH, data))

    @classmethod
    def from_bytes(cls, data: bytes, messages: int, key: Ed25519PublicKey) -> Self:
        """Read a batch that this shuffler signed, strictly."""
        number, zero, dim, users = header(_BATCH, b"CRPB", data)
        transport = transport_of(number)
        token = tokens_in(transport, len(data) - batch_bytes(transport, dim, users, messages), users)
        if zero or token is None:
            raise WireError("a batch of another length than its header says")
        content = verified_bytes(BATCH, data, key)
        about = content[_BATCH.size :][:DIGEST_BYTES]
        rest = np.frombuffer(content, np.uint8, offset=_BATCH.size + DIGEST_BYTES)
        if transport == "messages":
            return cls(transport, about, dim, users, rest.reshape(dim, users * messages, SEALED_BIT))
        return cls(transport, about, dim, users, rest.reshape(users, part_bytes(transport, dim, messages) + token))


def batch_bytes(transport: str, dim: int, users: int, messages: int) -> int:
    """Return the length of the batch of so many users."""
    body = dim * messages * SEALED_BIT if transport == "messages" else part_bytes(transport, dim, messages)
    return _BATCH.size + DIGEST_BYTES + users * body + SIGNATURE_BYTES


def part_bytes(transport: str, dim: int, messages: int) -> int:
    """Return the length of what the analyzer checks of one report, in a transport whose reports are checked."""
    return VerifiedSizes(dim, messages).part if transport == "verified-sum" else SEALED_SEED


def verified_bytes(kind: int, data: bytes, key: Ed25519PublicKey) -> bytes:
    """Return what the shuffler signed, without the signature at its end."""
    content = data[:-SIGNATURE_BYTES]
    try:
        key.verify(data[-SIGNATURE_BYTES:], signed_bytes(kind, content))
    except InvalidSignature:
        raise WireError("the signature is not the shuffler's") from None
    return content


def transport_of(number: int) -> str:
    """Return the name of a transport, as headers number them."""
    name = next((name for name, known in TRANSPORTS.items() if known == number), None)
    if name is None:
        raise WireError(f"transport {number}, which is not known")
    return name


def _transport(number: int, width: int) -> str:
    """By its number; with masked counts of a possible width, or none."""
    name = transport_of(number)
    if not (1 <= width <= MOST_WIDTH if name == "masked-sum" else width == 0):
        raise WireError(f"masked counts of {width} bits by {name}")
    return name


def _counts(data: NDArray[np.uint8], dim: int, width: int) -> NDArray[np.uint64]:
    require_padding(data, dim, width)
    return unpacked(data, dim, width)


# What the two servers say to each other about a round whose reports are checked: which are left out, and the sum of the rest.

_RELEASE = struct.Struct("<4sBBHII")  # CRPS, version, transport, bits of a number, dim, users
_WORD = 64  # bits of numbers that are not packed


@dataclass(frozen=True)
class Exclusions:
    """The analyzer's commitment: the places in a batch whose reports are not as they should be.

    Parameters
    ----------
    task : str
        The task's id.
    round : str
        The round's id.
    batch : str
        SHA-256 of the batch that was checked, signature included; hex.
    places : tuple of int
        Places in the batch, counted from 0, ascending.
    """

    task: str
    round: str
    batch: str
    places: tuple[int, ...]

    def document(self, key: Ed25519PrivateKey) -> Document:
        """Return the commitment as a document that the analyzer signs."""
        values = {"task": self.task, "round": self.round, "batch": self.batch, "places": list(self.places)}
        return Document.signed(EXCLUSIONS, values, key)

    @classmethod
    def read(cls, document: Document, key: Ed25519PublicKey) -> Self:
        """Read a commitment of this analyzer."""
        values = document.verified(EXCLUSIONS, key)
        places = values.pop("places")
        if any(after <= before for before, after in pairwise(places)):
            raise WireError("exclusions that are no ascending places")
        return cls(**values, places=tuple(places))


@dataclass(frozen=True, eq=False)
class Release:
    """The shuffler's sum over the reports of a round that are not excluded. There is one for a round.

    Parameters
    ----------
    transport : str
        How reports travelled.
    round : bytes
        Digest of the round's signed document.
    exclusions : bytes
        Digest of the analyzer's signed commitment.
    users : int
        How many reports are in the sum.
    sums : ndarray of uint64
        One number per coordinate.
    width : int, default 64
        Bits of a number; fewer than 64 are packed.
    """

    transport: str
    round: bytes
    exclusions: bytes
    users: int
    sums: NDArray[np.uint64]
    width: int = _WORD

    def to_bytes(self, key: Ed25519PrivateKey) -> bytes:
        """Return the release as it travels, with the shuffler's signature at the end."""
        head = _RELEASE.pack(b"CRPS", VERSION, TRANSPORTS[self.transport], self.width, len(self.sums), self.users)
        sums = self.sums.astype("<u8").tobytes() if self.width == _WORD else packed(self.sums, self.width)
        data = head + self.round + self.exclusions + sums
        return data + key.sign(signed_bytes(RELEASE, data))

    @classmethod
    def from_bytes(cls, data: bytes, key: Ed25519PublicKey) -> Self:
        """Read a release that this shuffler signed, strictly."""
        number, width, dim, users = header(_RELEASE, b"CRPS", data)
        if not (width == _WORD or 1 <= width <= MOST_WIDTH) or len(data) != release_bytes(dim, width):
            raise WireError("a release of another length than its header says")
        content = verified_bytes(RELEASE, data, key)[_RELEASE.size :]
        digests, numbers = content[: 2 * DIGEST_BYTES], np.frombuffer(content, np.uint8, offset=2 * DIGEST_BYTES)
        if width == _WORD:
            sums = numbers.view("<u8").astype(np.uint64)
        else:
            require_padding(numbers, dim, width)
            sums = unpacked(numbers, dim, width)
        return cls(transport_of(number), digests[:DIGEST_BYTES], digests[DIGEST_BYTES:], users, sums, width)


def release_bytes(dim: int, width: int = _WORD) -> int:
    """Return the length of a release."""
    return _RELEASE.size + 2 * DIGEST_BYTES + packed_bytes(dim, width) + SIGNATURE_BYTES
