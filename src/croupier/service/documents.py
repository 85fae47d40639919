"""Signed documents, and what they share with all that travels: the header, the signature and the error."""

from __future__ import annotations

import hashlib
import json
import struct
from dataclasses import dataclass
from typing import Any, Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

VERSION = 1
TASK, ROUND, BATCH, ARRIVALS, EXCLUSIONS, RELEASE = 1, 2, 3, 4, 5, 6  # kinds of what is signed
SIGNATURE_BYTES = 64
# More than any task or round should have: nobody fills its memory because a server says so.
MOST_DOCUMENT_BYTES = 1 << 26
_DOCUMENT = struct.Struct("<4sBBHII")  # CRPD, version, kind, 0, length, 0


class WireError(ValueError):
    """Bytes that are not what they should be. The text is fit for whoever sent them: it holds nothing secret."""


@dataclass(frozen=True)
class Document:
    """A JSON object and its author's signature over kind and bytes, kept as they were signed.

    Parameters
    ----------
    kind : int
        What it is: a task, a round, a count of arrivals or a list of exclusions.
    text : bytes
        The JSON text.
    signature : bytes
        64 bytes, Ed25519.

    Attributes
    ----------
    digest : bytes
        SHA-256 of the whole document.
    """

    kind: int
    text: bytes
    signature: bytes

    @classmethod
    def signed(cls, kind: int, values: dict[str, Any], key: Ed25519PrivateKey) -> Self:
        """Write values down as JSON, and sign them.

        Parameters
        ----------
        kind : int
            What the document is.
        values : dict
            Plain JSON values.
        key : Ed25519PrivateKey
            The author's key.

        Returns
        -------
        Document
            The signed document.
        """
        text = canonical(values)
        return cls(kind, text, key.sign(signed_bytes(kind, text)))

    def verified(self, kind: int, key: Ed25519PublicKey) -> dict[str, Any]:
        """Return what the document says, if it is of this kind and signed by this key.

        Parameters
        ----------
        kind : int
            The kind that is expected.
        key : Ed25519PublicKey
            The author's key.

        Returns
        -------
        dict
            The values.

        Raises
        ------
        WireError
            Where the signature, the kind or the JSON is wrong.
        """
        try:
            key.verify(self.signature, signed_bytes(self.kind, self.text))
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
        """Return the document as it travels.

        Returns
        -------
        bytes
            Header, text and signature.
        """
        return _DOCUMENT.pack(b"CRPD", VERSION, self.kind, 0, len(self.text), 0) + self.text + self.signature

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read a document, strictly. Its signature is not checked yet: `verified` does that.

        Parameters
        ----------
        data : bytes
            What came over the wire.

        Returns
        -------
        Document
            The document.

        Raises
        ------
        WireError
            Where the header is wrong, or the length is not what it says.
        """
        kind, zero, length, also_zero = header(_DOCUMENT, b"CRPD", data)
        if zero or also_zero or len(data) != _DOCUMENT.size + length + SIGNATURE_BYTES:
            raise WireError("a document of another length than its header says")
        text = data[_DOCUMENT.size : -SIGNATURE_BYTES]
        return cls(kind, text, data[-SIGNATURE_BYTES:])


def canonical(values: dict[str, Any]) -> bytes:
    """Return values as JSON with sorted names and without spaces.

    Parameters
    ----------
    values : dict
        Plain JSON values; NaN and infinity are refused.

    Returns
    -------
    bytes
        The text.
    """
    return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def sha256(data: bytes) -> str:
    """Return the SHA-256 digest of some bytes.

    Parameters
    ----------
    data : bytes
        The bytes.

    Returns
    -------
    str
        64 hexadecimal digits.
    """
    return hashlib.sha256(data).hexdigest()


def header(layout: struct.Struct, magic: bytes, data: bytes) -> tuple[int, int, int, int]:
    """Kind and three numbers of a header with this magic word and our version; others are refused."""
    if len(data) < layout.size + SIGNATURE_BYTES:
        raise WireError(f"{len(data)} bytes, too few for anything")
    word, version, kind, zero, first, second = layout.unpack_from(data)
    if word != magic:
        raise WireError(f"not {magic.decode()}")
    if version != VERSION:
        raise WireError(f"version {version}; this is version {VERSION}")
    return kind, zero, first, second


def signed_bytes(kind: int, data: bytes) -> bytes:
    """What is signed: no signature of one kind is one of another."""
    return b"croupier signature v1" + bytes([kind]) + data
