"""Bytes on the wire: signed documents, a user's report, a shuffled batch. docs/protocol.md is the specification.

Whole numbers are little-endian. Everything has a header of 16 bytes, a magic word and a version, and is read strictly: a
length that does not fit, an unknown version or a rest at the end is refused. Reading never allocates more than it was given.
"""

from __future__ import annotations

import hashlib
import json
import struct
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from numpy.typing import NDArray

VERSION = 1
TASK, ROUND, BATCH, ARRIVALS = 1, 2, 3, 4  # kinds of what is signed
TRANSPORTS = {"messages": 1, "masked-sum": 2}
SIGNATURE_BYTES, DIGEST_BYTES = 64, 32
# HPKE, X25519 and AES-128-GCM: an encapsulated key and a tag around what is sealed.
SEAL_BYTES = 32 + 16
SEALED_BIT, SEALED_SEED = SEAL_BYTES + 1, SEAL_BYTES + 32

_DOCUMENT = struct.Struct("<4sBBHII")  # CRPD, version, kind, 0, length, 0
_REPORT = struct.Struct("<4sBBHII")  # CRPR, version, transport, 0, dim, messages per coordinate
_BATCH = struct.Struct("<4sBBHII")  # CRPB, version, transport, 0, dim, users


# More than any task or round should have: nobody fills its memory because a server says so.
MOST_DOCUMENT_BYTES = 1 << 26


class WireError(ValueError):
    """Bytes that are not what they should be. The text is fit for whoever sent them: it holds nothing secret."""


@dataclass(frozen=True)
class Document:
    """A JSON object and its maker's signature over kind and bytes, kept as they were signed."""

    kind: int
    text: bytes
    signature: bytes

    @classmethod
    def signed(cls, kind: int, values: dict[str, Any], key: Ed25519PrivateKey) -> Self:
        text = canonical(values)
        return cls(kind, text, key.sign(_signed_bytes(kind, text)))

    def verified(self, kind: int, key: Ed25519PublicKey) -> dict[str, Any]:
        """What it says, if it is of this kind and signed by this key."""
        try:
            key.verify(self.signature, _signed_bytes(self.kind, self.text))
        except InvalidSignature:
            raise WireError("the signature is not the expected key's") from None
        if self.kind != kind:
            raise WireError(f"a document of kind {self.kind} where kind {kind} belongs")
        try:
            values = json.loads(self.text)
        except (ValueError, RecursionError):
            raise WireError("a document that is not JSON") from None
        if not isinstance(values, dict):
            raise WireError("a document that is not a JSON object")
        return values

    @property
    def digest(self) -> bytes:
        """SHA-256 of the whole document: what reports, seals and batches are bound to."""
        return hashlib.sha256(self.to_bytes()).digest()

    def to_bytes(self) -> bytes:
        return _DOCUMENT.pack(b"CRPD", VERSION, self.kind, 0, len(self.text), 0) + self.text + self.signature

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        kind, zero, length, also_zero = _header(_DOCUMENT, b"CRPD", data)
        if zero or also_zero or len(data) != _DOCUMENT.size + length + SIGNATURE_BYTES:
            raise WireError("a document of another length than its header says")
        text = data[_DOCUMENT.size : -SIGNATURE_BYTES]
        return cls(kind, text, data[-SIGNATURE_BYTES:])


def canonical(values: dict[str, Any]) -> bytes:
    """JSON with sorted names and without spaces."""
    return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True, eq=False)
class SealedReport:
    """What one user sends in a round: sealed bits, one row per coordinate, or a sealed seed and a masked vector.

    `sealed` is (dim, messages, 49) bytes, or (80,); `masked` is dim numbers modulo 2^64, or None.
    """

    transport: str
    round: bytes
    messages: int
    sealed: NDArray[np.uint8]
    masked: NDArray[np.uint64] | None = None

    @property
    def dim(self) -> int:
        return len(self.sealed if self.masked is None else self.masked)

    def to_bytes(self) -> bytes:
        head = _REPORT.pack(b"CRPR", VERSION, TRANSPORTS[self.transport], 0, self.dim, self.messages)
        return head + self.round + self.sealed.tobytes() + (b"" if self.masked is None else self.masked.astype("<u8").tobytes())

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        number, zero, dim, messages = _header(_REPORT, b"CRPR", data)
        transport = _transport(number)
        length = report_bytes(transport, dim, messages)
        if zero or len(data) != length:
            raise WireError(f"a report of {len(data)} bytes where its header makes {length}")
        body, after = np.frombuffer(data, np.uint8, offset=_REPORT.size + DIGEST_BYTES), data[_REPORT.size :]
        if transport == "messages":
            return cls(transport, after[:DIGEST_BYTES], messages, body.reshape(dim, messages, SEALED_BIT))
        return cls(transport, after[:DIGEST_BYTES], messages, body[:SEALED_SEED], body[SEALED_SEED:].view("<u8"))


def report_bytes(transport: str, dim: int, messages: int) -> int:
    """How long a report is."""
    body = dim * messages * SEALED_BIT if transport == "messages" else SEALED_SEED + 8 * dim
    return _REPORT.size + DIGEST_BYTES + body


@dataclass(frozen=True, eq=False)
class SealedBatch:
    """What the shuffler forwards, once: all sealed bits of a coordinate in random order, or the masked sum and seeds likewise.

    `sealed` is (dim, users x messages, 49) bytes, or (users, 80); `masked` is dim numbers modulo 2^64, or None.
    """

    transport: str
    round: bytes
    users: int
    sealed: NDArray[np.uint8]
    masked: NDArray[np.uint64] | None = None

    @property
    def dim(self) -> int:
        return len(self.sealed if self.masked is None else self.masked)

    def to_bytes(self, key: Ed25519PrivateKey) -> bytes:
        """With the shuffler's signature at the end."""
        head = _BATCH.pack(b"CRPB", VERSION, TRANSPORTS[self.transport], 0, self.dim, self.users)
        data = head + self.round + (b"" if self.masked is None else self.masked.astype("<u8").tobytes()) + self.sealed.tobytes()
        return data + key.sign(_signed_bytes(BATCH, data))

    @classmethod
    def from_bytes(cls, data: bytes, messages: int, key: Ed25519PublicKey) -> Self:
        """A batch that this shuffler signed, of `messages` messages per user and coordinate."""
        number, zero, dim, users = _header(_BATCH, b"CRPB", data)
        transport, content = _transport(number), data[:-SIGNATURE_BYTES]
        if zero or len(data) != batch_bytes(transport, dim, users, messages):
            raise WireError("a batch of another length than its header says")
        try:
            key.verify(data[-SIGNATURE_BYTES:], _signed_bytes(BATCH, content))
        except InvalidSignature:
            raise WireError("the signature is not the shuffler's") from None
        about = content[_BATCH.size :][:DIGEST_BYTES]
        rest = np.frombuffer(content, np.uint8, offset=_BATCH.size + DIGEST_BYTES)
        if transport == "messages":
            return cls(transport, about, users, rest.reshape(dim, users * messages, SEALED_BIT))
        return cls(transport, about, users, rest[8 * dim :].reshape(users, SEALED_SEED), rest[: 8 * dim].view("<u8"))


def batch_bytes(transport: str, dim: int, users: int, messages: int) -> int:
    """How long the batch of so many users is."""
    body = dim * users * messages * SEALED_BIT if transport == "messages" else 8 * dim + users * SEALED_SEED
    return _BATCH.size + DIGEST_BYTES + body + SIGNATURE_BYTES


def _header(layout: struct.Struct, magic: bytes, data: bytes) -> tuple[int, int, int, int]:
    if len(data) < layout.size + SIGNATURE_BYTES:
        raise WireError(f"{len(data)} bytes, too few for anything")
    found, version, kind, zero, first, second = layout.unpack_from(data)
    if found != magic:
        raise WireError(f"not {magic.decode()}")
    if version != VERSION:
        raise WireError(f"version {version}; this is version {VERSION}")
    return kind, zero, first, second


def _transport(number: int) -> str:
    name = next((name for name, known in TRANSPORTS.items() if known == number), None)
    if name is None:
        raise WireError(f"transport {number}, which is not known")
    return name


def _signed_bytes(kind: int, data: bytes) -> bytes:
    """What is signed: no signature of one kind is one of another."""
    return b"croupier signature v1" + bytes([kind]) + data
