"""What the two servers say to each other about a round whose reports are checked: which are left out, and the sum of the rest."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from numpy.typing import NDArray

from .documents import EXCLUSIONS, RELEASE, SIGNATURE_BYTES, VERSION, Document, WireError, header, signed_bytes
from .packing import MOST_WIDTH, packed, packed_bytes, require_padding, unpacked
from .wire import DIGEST_BYTES, TRANSPORTS, transport_of, verified_bytes

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
        """Return the commitment as a document that the analyzer signs.

        Parameters
        ----------
        key : Ed25519PrivateKey
            The analyzer's key.

        Returns
        -------
        Document
            The signed commitment.
        """
        values = {"task": self.task, "round": self.round, "batch": self.batch, "places": list(self.places)}
        return Document.signed(EXCLUSIONS, values, key)

    @classmethod
    def read(cls, document: Document, key: Ed25519PublicKey) -> Self:
        """Read a commitment of this analyzer.

        Parameters
        ----------
        document : Document
            What came over the wire.
        key : Ed25519PublicKey
            The analyzer's key.

        Returns
        -------
        Exclusions
            The commitment.

        Raises
        ------
        WireError
            Where the signature is not the analyzer's, or the places are no ascending whole numbers.
        """
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
        """Return the release as it travels, with the shuffler's signature at the end.

        Parameters
        ----------
        key : Ed25519PrivateKey
            The shuffler's key.

        Returns
        -------
        bytes
            Header, digests, sums and signature.
        """
        head = _RELEASE.pack(b"CRPS", VERSION, TRANSPORTS[self.transport], self.width, len(self.sums), self.users)
        sums = self.sums.astype("<u8").tobytes() if self.width == _WORD else packed(self.sums, self.width)
        data = head + self.round + self.exclusions + sums
        return data + key.sign(signed_bytes(RELEASE, data))

    @classmethod
    def from_bytes(cls, data: bytes, key: Ed25519PublicKey) -> Self:
        """Read a release that this shuffler signed, strictly.

        Parameters
        ----------
        data : bytes
            What came over the wire.
        key : Ed25519PublicKey
            The shuffler's key.

        Returns
        -------
        Release
            The release.

        Raises
        ------
        WireError
            Where the header or the signature is wrong, or the length is not what the header says.
        """
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
    """Return the length of a release.

    Parameters
    ----------
    dim : int
        Coordinates.
    width : int, default 64
        Bits of a number.

    Returns
    -------
    int
        Bytes, the signature included.
    """
    return _RELEASE.size + 2 * DIGEST_BYTES + packed_bytes(dim, width) + SIGNATURE_BYTES
