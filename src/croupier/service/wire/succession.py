"""Signing keys that follow each other: each new one is announced in a document that the one before has signed.

Whoever knows the old key, from elsewhere than the network, so learns the new one. The new one signs the old one in turn: otherwise
anybody could name somebody else's key as a successor, and act for it. A key announces one successor, ever: a second one
is evidence that the key leaked, and is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from .documents import Document, WireError

SUCCESSION = 19  # the kind of what is signed
# What the new key signs: these words, and the old key's 32 bytes.
_PROOF = b"croupier succession v1"
# Keys that follow each other, at most: nobody follows a chain for ever because a server says so.
MOST_SUCCESSIONS = 100


def hex_of(key: Ed25519PrivateKey | Ed25519PublicKey) -> str:
    """The public key as everybody writes it: 64 hex digits."""
    public = key.public_key() if isinstance(key, Ed25519PrivateKey) else key
    return public.public_bytes_raw().hex()


def succession(old: Ed25519PrivateKey, new: Ed25519PrivateKey) -> Document:
    """The old key's word that the new one follows, with the new one's proof that it is of the same owner."""
    proof = new.sign(_PROOF + old.public_key().public_bytes_raw())
    return Document.signed(SUCCESSION, {"key": hex_of(new), "proof": proof.hex()}, old)


def successor(document: Document, key: str) -> str:
    """The key that follows this one, in a document that this one signed and that the other one agrees to."""
    values = document.said(SUCCESSION, Ed25519PublicKey.from_public_bytes(bytes.fromhex(key)))
    new, proof = values.get("key"), values.get("proof")
    if set(values) != {"key", "proof"} or not isinstance(new, str) or not re.fullmatch(r"[0-9a-f]{64}", new) or new == key:
        raise WireError("a succession that names no other key")
    if not isinstance(proof, str) or not re.fullmatch(r"[0-9a-f]{128}", proof):
        raise WireError("a succession without a proof of the new key")
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(new)).verify(bytes.fromhex(proof), _PROOF + bytes.fromhex(key))
    except (InvalidSignature, ValueError):
        raise WireError("a succession whose new key has not signed the old one") from None
    return new


def followed(key: str, documents: Iterable[Document]) -> list[str]:
    """The key and all that follow it, the newest last. Documents of other keys are passed over; two successors are refused."""
    known, chain = list(documents), [key]
    while len(chain) <= MOST_SUCCESSIONS:
        following = set()
        for document in known:
            try:
                following.add(successor(document, chain[-1]))
            except WireError:
                continue  # another key's
        if len(following) > 1:
            raise WireError(f"two successors of the key {chain[-1][:8]}...: it has leaked, and neither is believed")
        if not following or following <= set(chain):
            return chain
        chain += following
    raise WireError(f"more than {MOST_SUCCESSIONS} keys that follow each other")
