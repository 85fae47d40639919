"""Makes verified.json, which a client in another language can be checked against: python tests/service/vectors/make_verified.py

Written from docs/protocol.md with Python's whole numbers (helpers_prio3) and another implementation of HPKE (pyhpke); nothing of
croupier. The random bytes are fixed, which nobody else may do: so it makes the same bytes again.
"""

from __future__ import annotations

import hashlib
import json
import struct
import sys
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from pyhpke import AEADId, CipherSuite, KDFId, KEMId, KEMKey, KEMKeyPair

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from helpers_prio3 import P64, SlowSumVec  # noqa: E402

SUITE = CipherSuite.new(KEMId.DHKEM_X25519_HKDF_SHA256, KDFId.HKDF_SHA256, AEADId.AES128_GCM)
SHUFFLER = Ed25519PrivateKey.from_private_bytes(bytes(range(32, 64)))
SEAL = X25519PrivateKey.from_private_bytes(bytes(range(96, 128)))
DIGEST = hashlib.sha256(b"a round").digest()
CASES = [([3, 0], 5, 2), ([0, 50, 31, 32, 7], 50, 5), ([1], 1, 1)]  # counts, g + b, chunk length


def made() -> dict[str, Any]:
    """Reports of these counts, and what the shuffler tells the analyzer of them."""
    reports = [report(number, *case) for number, case in enumerate(CASES)]
    return {
        "round": DIGEST.hex(),
        "recipient": keys_of(SEAL),
        "shuffler": keys_of(SHUFFLER),
        "verify key": verify_key().hex(),
        "reports": reports,
    }


def keys_of(key: Any) -> dict[str, str]:
    return {"private": key.private_bytes_raw().hex(), "public": key.public_key().public_bytes_raw().hex()}


def verify_key() -> bytes:
    y, p = int.from_bytes(SHUFFLER.public_key().public_bytes_raw(), "little") % 2**255, 2**255 - 19
    point = X25519PublicKey.from_public_bytes(((1 + y) * pow(1 - y, p - 2, p) % p).to_bytes(32, "little"))
    return HKDF(SHA256(), 32, None, b"croupier verify key v1 " + DIGEST).derive(SEAL.exchange(point))


def report(number: int, counts: list[int], most: int, chunk: int) -> dict[str, Any]:
    prio3 = SlowSumVec(len(counts), most, chunk, 3, 2, b"croupier report v1 verified-sum " + DIGEST, P64, 0xFFFFFFFF)
    nonce, rand = bytes([number]) * 16, bytes((number + 3 * k) % 256 for k in range(128))
    public, (leader, helper) = prio3.shard(counts, nonce, rand)
    ephemeral = X25519PrivateKey.from_private_bytes(bytes([number + 1]) * 32)
    envelope = sealed(helper, ephemeral)
    head = struct.pack("<4sBBHII", b"CRPR", 1, 3, 0, len(counts), most)
    told = prio3.verifier_share(verify_key(), 0, nonce, public, leader)
    return {
        "counts": counts,
        "messages a coordinate": most,
        "chunk length": chunk,
        "nonce": nonce.hex(),
        "seeds (helper, helper's blind, leader's blind, prove)": rand.hex(),
        "ephemeral": ephemeral.private_bytes_raw().hex(),
        "helper share": helper.hex(),
        "report": (head + DIGEST + envelope + nonce + public + leader).hex(),
        "part": (envelope + nonce + public + told).hex(),
    }


def sealed(content: bytes, ephemeral: X25519PrivateKey) -> bytes:
    info = b"croupier report v1 verified-sum " + DIGEST + (2**32 - 1).to_bytes(4, "little")
    pair = KEMKeyPair(KEMKey.from_pyca_cryptography_key(ephemeral), KEMKey.from_pyca_cryptography_key(ephemeral.public_key()))
    key = KEMKey.from_pyca_cryptography_key(SEAL.public_key())
    encapsulated, context = SUITE.create_sender_context(key, info=info, eks=pair)
    return encapsulated + context.seal(content)


if __name__ == "__main__":
    (HERE / "verified.json").write_text(json.dumps(made(), indent=1) + "\n")
