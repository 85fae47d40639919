"""Bytes on the wire: signed documents, a user's report, a shuffled batch. docs/protocol.md is the specification.

Whole numbers are little-endian. Everything has a header of 16 bytes, a magic word and a version, and is read strictly: a
length that does not fit, an unknown version or a rest at the end is refused. Reading holds little more than it was given.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Self

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from numpy.typing import NDArray

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
from .packing import MOST_WIDTH, packed, packed_bytes, require_padding, unpacked
from .verified.reports import VerifiedSizes

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
        """Return the report as it travels.

        Returns
        -------
        bytes
            Header, round, envelopes, and masked counts or shares.
        """
        head = _REPORT.pack(b"CRPR", VERSION, TRANSPORTS[self.transport], self.width, self.dim, self.messages)
        rest = packed(self.masked, self.width) if self.masked is not None else b"" if self.shares is None else self.shares.tobytes()
        return head + self.round + self.sealed.tobytes() + rest

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read a report, strictly.

        Parameters
        ----------
        data : bytes
            What came over the wire.

        Returns
        -------
        SealedReport
            The report.

        Raises
        ------
        WireError
            Where the header is wrong, or the length is not what it says.
        """
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
    """Return how many bytes of each envelope are a token, by how much longer they all are than without.

    Parameters
    ----------
    transport : {"messages", "masked-sum", "verified-sum"}
        How reports travel; by "messages" there are no tokens.
    more : int
        Bytes beyond those without tokens.
    users : int
        How many envelopes there are.

    Returns
    -------
    int or None
        0 or `TOKEN_BYTES`; None where it is neither.
    """
    if more == 0:
        return 0
    return TOKEN_BYTES if transport != "messages" and more == users * TOKEN_BYTES else None


def report_bytes(transport: str, dim: int, messages: int, width: int = 0) -> int:
    """Return the length of a report.

    Parameters
    ----------
    transport : {"messages", "masked-sum", "verified-sum"}
        How it travels.
    dim : int
        Coordinates.
    messages : int
        Messages per coordinate.
    width : int, default 0
        For "masked-sum": bits of a masked count, `width_for` of the plan.

    Returns
    -------
    int
        Bytes.
    """
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
        """Return the batch as it travels, with the shuffler's signature at the end.

        Parameters
        ----------
        key : Ed25519PrivateKey
            The shuffler's key.

        Returns
        -------
        bytes
            Header, round, envelopes and signature.
        """
        head = _BATCH.pack(b"CRPB", VERSION, TRANSPORTS[self.transport], 0, self.dim, self.users)
        data = head + self.round + self.sealed.tobytes()
        return data + key.sign(signed_bytes(BATCH, data))

    @classmethod
    def from_bytes(cls, data: bytes, messages: int, key: Ed25519PublicKey) -> Self:
        """Read a batch that this shuffler signed, strictly.

        Parameters
        ----------
        data : bytes
            What came over the wire.
        messages : int
            Messages per user and coordinate, by the round's plan.
        key : Ed25519PublicKey
            The shuffler's key.

        Returns
        -------
        SealedBatch
            The batch.

        Raises
        ------
        WireError
            Where the header or the signature is wrong, or the length is not what the header says.
        """
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
    """Return the length of the batch of so many users.

    Parameters
    ----------
    transport : {"messages", "masked-sum", "verified-sum"}
        How reports travel.
    dim : int
        Coordinates.
    users : int
        How many reports are in it.
    messages : int
        Messages per user and coordinate.

    Returns
    -------
    int
        Bytes, the signature included.
    """
    body = dim * messages * SEALED_BIT if transport == "messages" else part_bytes(transport, dim, messages)
    return _BATCH.size + DIGEST_BYTES + users * body + SIGNATURE_BYTES


def part_bytes(transport: str, dim: int, messages: int) -> int:
    """Return the length of what the analyzer checks of one report, in a transport whose reports are checked.

    Parameters
    ----------
    transport : {"masked-sum", "verified-sum"}
        How reports travel.
    dim : int
        Coordinates.
    messages : int
        Messages per user and coordinate.

    Returns
    -------
    int
        Bytes.
    """
    return VerifiedSizes(dim, messages).part if transport == "verified-sum" else SEALED_SEED


def verified_bytes(kind: int, data: bytes, key: Ed25519PublicKey) -> bytes:
    """Return what the shuffler signed, without the signature at its end.

    Parameters
    ----------
    kind : int
        What is signed.
    data : bytes
        What came over the wire.
    key : Ed25519PublicKey
        The shuffler's key.

    Returns
    -------
    bytes
        The signed bytes.

    Raises
    ------
    WireError
        Where the signature is another's.
    """
    content = data[:-SIGNATURE_BYTES]
    try:
        key.verify(data[-SIGNATURE_BYTES:], signed_bytes(kind, content))
    except InvalidSignature:
        raise WireError("the signature is not the shuffler's") from None
    return content


def transport_of(number: int) -> str:
    """Return the name of a transport, as headers number them.

    Parameters
    ----------
    number : int
        The number in a header.

    Returns
    -------
    str
        The name.

    Raises
    ------
    WireError
        Where no transport has the number.
    """
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
