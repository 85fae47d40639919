"""Prio3SumVec of draft-irtf-cfrg-vdaf (version 18): a vector of counts in shares, and proofs that servers check without seeing it.

Everything but `shard` is for many reports at once: rows of arrays. A row that is malformed is refused, and spoils no other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from math import comb
from typing import Any, Final

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from ...validation import whole
from ..wire.documents import WireError
from .circuit import SumVecCircuit
from .field import FIELD64, Elements, PrimeField, sponge_kernels

# XofTurboShake128 of the draft: bytes and field elements from a seed, for many reports at once.


SEED_BYTES = 32


def _sponge() -> Callable[[bytes], Any]:
    from Crypto.Hash import TurboSHAKE128  # noqa: PLC0415 (clients of other transports do not load it)

    return lambda message: TurboSHAKE128.new(domain=1).update(message)


def _messages(seeds: NDArray[np.uint8], tag: bytes, binders: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Rows of what is absorbed: the tag's length and the tag, the seed's length and the seed, the binder."""
    head = np.frombuffer(len(tag).to_bytes(2, "little") + tag + bytes([seeds.shape[1]]), np.uint8)
    rows = max(len(seeds), len(binders))
    parts = (np.broadcast_to(part, (rows, part.shape[-1])) for part in (head, seeds, binders))
    return np.concatenate(list(parts), axis=1)


def derive_seeds(
    seeds: NDArray[np.uint8], tag: bytes, binders: NDArray[np.uint8], *, fast: bool | None = None
) -> NDArray[np.uint8]:
    """Derive a seed for each row."""
    messages = _messages(seeds, tag, binders)
    compiled = sponge_kernels(fast, messages.size // 8)
    if compiled is not None:
        return compiled.squeezed(messages, SEED_BYTES // 8, False).view(np.uint8)
    sponge = _sponge()
    data = b"".join(sponge(message.tobytes()).read(SEED_BYTES) for message in messages)
    return np.frombuffer(data, np.uint8).reshape(len(messages), SEED_BYTES)


def expand(
    field: PrimeField,
    seeds: NDArray[np.uint8],
    tag: bytes,
    binders: NDArray[np.uint8],
    length: int,
    *,
    fast: bool | None = None,
) -> Elements:
    """Expand seeds into uniformly random field elements, by rejection."""
    messages = _messages(seeds, tag, binders)
    compiled = sponge_kernels(fast, len(messages) * length) if field is FIELD64 else None
    if compiled is not None:
        return compiled.squeezed(messages, length, True)
    sponge = _sponge()
    rows = [_sampled(field, sponge(message.tobytes()), length) for message in messages]
    return np.stack(rows)


def _sampled(field: PrimeField, stream: Any, length: int) -> Elements:
    """The first so many numbers of a stream that are below the prime. Both primes are just below a power of 256."""
    found = field.elements([])
    while len(found) < length:
        data = np.frombuffer(stream.read((length - len(found)) * field.bytes_per_element), np.uint8)
        numbers, refused = field.from_bytes(data.reshape(-1, field.bytes_per_element))
        found = np.concatenate([found, numbers[~refused, 0]])
    return found


NONCE_BYTES: Final = 16
VERSION: Final = 18  # of the draft
# The number of experiments: the variant of Prio3SumVec with several proofs has none of its own.
SUM_VEC_WITH_MULTIPROOF: Final = 0xFFFFFFFF
_MEAS_SHARE, _PROOF_SHARE, _JOINT, _PROVE, _QUERY, _JOINT_SEED, _JOINT_PART = range(1, 8)
_ZEROS: Final = np.zeros((1, SEED_BYTES), np.uint8)
_Bytes = NDArray[np.uint8]
# Reports that are worked on at once: few enough that they stay in the processor's cache.
_PIECE = 32


@dataclass(frozen=True, eq=False)
class PreparedReports:
    """What one server makes of its shares of some reports."""

    out_shares: Elements  # its shares of the counts, to be added up for reports that are accepted
    joint_seeds: _Bytes  # the seed of the joint randomness that it used
    verifier_shares: _Bytes  # what it tells the others: its shares of the verifiers, and its part of the joint randomness
    refused: NDArray[np.bool_]  # rows that are malformed


class Prio3SumVec:
    """Vectors of counts from 0 to `max_measurement`, shared among servers, with proofs."""

    def __init__(
        self,
        length: int,
        max_measurement: int,
        *,
        proofs: int = 3,
        shares: int = 2,
        chunk: int | None = None,
        context: bytes = b"",
        field: PrimeField = FIELD64,
        algorithm: int = SUM_VEC_WITH_MULTIPROOF,
        fast: bool | None = None,
    ) -> None:
        remedy = "Three proofs and two servers are what a task has."
        self.proofs = whole("proofs", proofs, at_least=1, at_most=255, remedy=remedy)
        self.shares = whole("shares", shares, at_least=2, at_most=255, remedy=remedy)
        self.circuit, self.field, self._context = SumVecCircuit(field, length, max_measurement, chunk), field, context
        self._algorithm, self._fast = algorithm, fast
        size = field.bytes_per_element
        self.rand_bytes = 2 * shares * SEED_BYTES
        self.public_bytes = shares * SEED_BYTES
        self._meas_bytes, self._proof_bytes = self.circuit.elements * size, self.circuit.proof_length * proofs * size
        self.leader_bytes = self._meas_bytes + self._proof_bytes + SEED_BYTES
        self.helper_bytes = 2 * SEED_BYTES
        self.verifier_bytes = self.circuit.verifier_length * proofs * size + SEED_BYTES

    def soundness_error(self, guesses: float = 1.0) -> float:
        """Return a bound on the probability that a vector out of range passes: docs/protocol.md has the formula."""
        circuit, prime = self.circuit, self.field.modulus
        joint, query = circuit.chunk / prime, 2 * (circuit.nodes - 1) / (prime - circuit.nodes)
        ways = (min(1.0, guesses * comb(self.proofs, lucky) * joint**lucky) for lucky in range(self.proofs + 1))
        return float(sum(way * query ** (self.proofs - lucky) for lucky, way in enumerate(ways)))

    def shard(self, measurement: NDArray[np.int64], nonce: bytes, rand: bytes) -> tuple[bytes, list[bytes]]:
        """Share a vector of counts among the servers, with proofs."""
        if len(nonce) != NONCE_BYTES or len(rand) != self.rand_bytes:
            raise ValueError(f"a nonce has {NONCE_BYTES} bytes and rand {self.rand_bytes}")
        return self._sharded(self.circuit.encoded(measurement), nonce, rand)

    def _sharded(self, meas: Elements, nonce: bytes, rand: bytes) -> tuple[bytes, list[bytes]]:
        """As `shard`, of elements that are taken as they are."""
        field, seeds = self.field, np.frombuffer(rand, np.uint8).reshape(-1, SEED_BYTES)
        helpers = seeds[:-2].reshape(self.shares - 1, 2, SEED_BYTES)
        blind, prove = seeds[-2:-1], seeds[-1:]
        nonces = np.frombuffer(nonce, np.uint8)[None]
        share, parts, proof_shares = meas[None], [], []
        for number, helper in enumerate(helpers, start=1):
            helper_meas = self._helper_meas(number, helper[:1])
            share = field.subtract(share, helper_meas)
            parts.append(self._joint_part(number, helper[1:], helper_meas, nonces))
            proof_shares.append(self._helper_proofs(number, helper[:1]))
        parts.insert(0, self._joint_part(0, blind, share, nonces))
        public = np.concatenate(parts, axis=1)
        joint = self._joint(self._joint_seed(public))[0]
        wire_seeds = self._expand(_PROVE, prove, [self.proofs], 2 * self.circuit.chunk * self.proofs).reshape(self.proofs, -1)
        proofs = self.circuit.proofs(meas, wire_seeds, joint, fast=self._fast).reshape(1, -1)
        for proof_share in proof_shares:
            proofs = field.subtract(proofs, proof_share)
        leader = field.to_bytes(share).tobytes() + field.to_bytes(proofs).tobytes() + blind.tobytes()
        return public.tobytes(), [leader, *(helper.tobytes() for helper in helpers)]

    def prepare(
        self, verify_key: bytes, server: int, nonces: _Bytes, public_shares: _Bytes, input_shares: _Bytes
    ) -> PreparedReports:
        """Make of one server's shares what it tells the others (the draft's verify_init)."""
        starts = range(0, max(len(nonces), 1), _PIECE)
        rows = ([rows[start : start + _PIECE] for rows in (nonces, public_shares, input_shares)] for start in starts)
        pieces = [self._prepared(verify_key, server, *piece) for piece in rows]
        return PreparedReports(
            *(np.concatenate([getattr(piece, part.name) for piece in pieces]) for part in fields(PreparedReports))
        )

    def _prepared(
        self, verify_key: bytes, server: int, nonces: _Bytes, public_shares: _Bytes, input_shares: _Bytes
    ) -> PreparedReports:
        field, circuit, reports = self.field, self.circuit, len(nonces)
        if server == 0:
            numbers, refused = field.from_bytes(input_shares[:, : self._meas_bytes + self._proof_bytes])
            numbers[refused] = 0
            meas, proofs = np.ascontiguousarray(numbers[:, : circuit.elements]), numbers[:, circuit.elements :]
            blinds = input_shares[:, self._meas_bytes + self._proof_bytes :]
        else:
            refused = np.zeros(reports, np.bool_)
            meas = self._helper_meas(server, input_shares[:, :SEED_BYTES])
            proofs = self._helper_proofs(server, input_shares[:, :SEED_BYTES])
            blinds = input_shares[:, SEED_BYTES:]
        part = self._joint_part(server, blinds, meas, nonces)
        parts = public_shares.copy()
        parts[:, SEED_BYTES * server : SEED_BYTES * (server + 1)] = part
        joint_seeds = self._joint_seed(parts)
        key = np.frombuffer(verify_key, np.uint8)[None]
        many = np.full((reports, 1), self.proofs, np.uint8)
        points = self._expand(_QUERY, key, np.concatenate([many, nonces], axis=1), self.proofs)
        proofs = np.ascontiguousarray(proofs).reshape(reports, self.proofs, circuit.proof_length)
        verifiers, leaks = circuit.queried(meas, proofs, points, self._joint(joint_seeds), self.shares, fast=self._fast)
        told = np.concatenate([field.to_bytes(verifiers.reshape(reports, -1)), part], axis=1)
        told[refused | leaks] = 0  # nothing is told of them
        return PreparedReports(circuit.truncated(meas, fast=self._fast), joint_seeds, told, refused | leaks)

    def decide(self, verifier_shares: Sequence[_Bytes]) -> tuple[_Bytes, NDArray[np.bool_]]:
        """Put the servers' verifier shares together and decide (the draft's verifier_shares_to_message)."""
        field, length = self.field, self.verifier_bytes - SEED_BYTES
        reports = len(verifier_shares[0])
        total, refused = (
            np.broadcast_to(field.elements(0), (reports, length // field.bytes_per_element)),
            np.zeros(reports, np.bool_),
        )
        for shares in verifier_shares:
            numbers, wrong = field.from_bytes(shares[:, :length])
            numbers[wrong] = 0
            total, refused = field.add(total, numbers), refused | wrong
        accepted = self.circuit.accepted(total.reshape(reports, self.proofs, -1)) & ~refused
        return self._joint_seed(np.concatenate([shares[:, length:] for shares in verifier_shares], axis=1)), accepted

    def aggregate(self, out_shares: Elements) -> bytes:
        """Add up shares of counts."""
        return self.field.to_bytes(self.field.sum(out_shares, axis=0)).tobytes()

    def _tag(self, use: int) -> bytes:
        return bytes([VERSION, 0]) + self._algorithm.to_bytes(4, "big") + use.to_bytes(2, "big") + self._context

    def _expand(self, use: int, seeds: _Bytes, binder: _Bytes | list[int], length: int) -> Elements:
        binders = np.array([binder], np.uint8) if isinstance(binder, list) else binder
        return expand(self.field, seeds, self._tag(use), binders, length, fast=self._fast)

    def _helper_meas(self, server: int, seeds: _Bytes) -> Elements:
        return self._expand(_MEAS_SHARE, seeds, [server], self.circuit.elements)

    def _helper_proofs(self, server: int, seeds: _Bytes) -> Elements:
        return self._expand(_PROOF_SHARE, seeds, [self.proofs, server], self.circuit.proof_length * self.proofs)

    def _joint_part(self, server: int, blinds: _Bytes, meas: Elements, nonces: _Bytes) -> _Bytes:
        numbers = np.full((len(nonces), 1), server, np.uint8)
        binders = np.concatenate([numbers, nonces, self.field.to_bytes(meas)], axis=1)
        return derive_seeds(blinds, self._tag(_JOINT_PART), binders, fast=self._fast)

    def _joint_seed(self, parts: _Bytes) -> _Bytes:
        return derive_seeds(_ZEROS, self._tag(_JOINT_SEED), parts, fast=self._fast)

    def _joint(self, seeds: _Bytes) -> Elements:
        joint = self._expand(_JOINT, seeds, [self.proofs], self.circuit.calls * self.proofs)
        return joint.reshape(len(seeds), self.proofs, self.circuit.calls)


# The verify key of a round: a secret that its two servers share and that no message carries.
#
# It comes from a Diffie-Hellman exchange between the round's key, which the analyzer made, and the shuffler's signing key, taken to
# the same curve by the usual map (RFC 7748, section 4.1). Both are in signed documents before any report is made, so that neither
# server can choose it once it has seen reports; and no client can compute it.

_P = 2**255 - 19


def exchange_key(key: Ed25519PrivateKey) -> X25519PrivateKey:
    """Return the shuffler's private key for exchanges."""
    return X25519PrivateKey.from_private_bytes(hashlib.sha512(key.private_bytes_raw()).digest()[:32])


def exchange_public_key(key: Ed25519PublicKey) -> X25519PublicKey:
    """Return the shuffler's public key for exchanges."""
    y = int.from_bytes(key.public_bytes_raw(), "little") % 2**255
    if y % _P == 1:
        raise WireError("a shuffler whose key is none that a secret can be shared with")
    return X25519PublicKey.from_public_bytes(((1 + y) * pow(1 - y, -1, _P) % _P).to_bytes(32, "little"))


def verify_key(mine: X25519PrivateKey, theirs: X25519PublicKey, round_digest: bytes) -> bytes:
    """Return the verify key of a round, as either server computes it."""
    try:
        shared = mine.exchange(theirs)
    except ValueError:  # a point of low order
        raise WireError("a key that no secret can be shared with") from None
    return HKDF(SHA256(), 32, None, b"croupier verify key v1 " + round_digest).derive(shared)
