"""The verify key of a round: a secret that its two servers share and that no message carries.

It comes from a Diffie-Hellman exchange between the round's key, which the analyzer made, and the shuffler's signing key, taken to
the same curve by the usual map (RFC 7748, section 4.1). Both are in signed documents before any report is made, so that neither
server can choose it once it has seen reports; and no client can compute it.
"""

from __future__ import annotations

import hashlib

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from ..documents import WireError

_P = 2**255 - 19


def exchange_key(key: Ed25519PrivateKey) -> X25519PrivateKey:
    """Return the shuffler's private key for exchanges.

    Parameters
    ----------
    key : Ed25519PrivateKey
        Its signing key.

    Returns
    -------
    X25519PrivateKey
        Of the same secret scalar.
    """
    return X25519PrivateKey.from_private_bytes(hashlib.sha512(key.private_bytes_raw()).digest()[:32])


def exchange_public_key(key: Ed25519PublicKey) -> X25519PublicKey:
    """Return the shuffler's public key for exchanges.

    Parameters
    ----------
    key : Ed25519PublicKey
        The key that its signatures are verified with.

    Returns
    -------
    X25519PublicKey
        The same point, by its Montgomery coordinate u = (1 + y) / (1 - y).

    Raises
    ------
    WireError
        Where the key is no point that has one.
    """
    y = int.from_bytes(key.public_bytes_raw(), "little") % 2**255
    if y % _P == 1:
        raise WireError("a shuffler whose key is none that a secret can be shared with")
    return X25519PublicKey.from_public_bytes(((1 + y) * pow(1 - y, -1, _P) % _P).to_bytes(32, "little"))


def verify_key(mine: X25519PrivateKey, theirs: X25519PublicKey, round_digest: bytes) -> bytes:
    """Return the verify key of a round, as either server computes it.

    Parameters
    ----------
    mine : X25519PrivateKey
        The analyzer's key of the round, or the shuffler's `exchange_key`.
    theirs : X25519PublicKey
        The other server's.
    round_digest : bytes
        Digest of the round's signed document.

    Returns
    -------
    bytes
        32 bytes.

    Raises
    ------
    WireError
        Where no secret can be shared with the other's key.
    """
    try:
        shared = mine.exchange(theirs)
    except ValueError:  # a point of low order
        raise WireError("a key that no secret can be shared with") from None
    return HKDF(SHA256(), 32, None, b"croupier verify key v1 " + round_digest).derive(shared)
