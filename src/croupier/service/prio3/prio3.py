"""Prio3SumVec of draft-irtf-cfrg-vdaf (version 18): a vector of counts in shares, and proofs that servers check without seeing it.

Everything but `shard` is for many reports at once: rows of arrays. A row that is malformed is refused, and spoils no other.

*The field* is a prime field of 64 bits whose elements are entries of numpy arrays; the draft's test vectors need another one, in
the tests. What works on it has a compiled path, which is taken once it pays.

*The proof* says that every count of a vector is in range (the draft's FLP of SumVec with ParallelSum of Mul). A count is encoded by
numbers that must be 0 or 1, each with a weight; the weights add up to the largest count, so that zeros and ones stand for nothing
else. For chunks of them the gadget adds up r^j x_j (x_j - 1), with r the joint randomness; the proof is the gadget's polynomial by
its values at roots of unity, and a seed for each of its wires that hides them.
"""

from __future__ import annotations

import hashlib
import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cache, cached_property
from math import comb
from typing import Any, Final, Protocol

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from ...validation import whole
from ..wire.documents import WireError

Elements = NDArray[Any]
Words = NDArray[np.uint64]

_LOW: Final = np.uint64(0xFFFFFFFF)  # also 2^64 modulo the field of 64 bits
_HALF: Final = np.uint64(32)


class PrimeField(ABC):
    """A prime field with a subgroup of order a power of two."""

    def __init__(self, modulus: int, bytes_per_element: int, generator: int, order: int) -> None:
        self.modulus, self.bytes_per_element, self._generator, self._order = modulus, bytes_per_element, generator, order

    @abstractmethod
    def elements(self, values: Any) -> Elements:
        """Return whole numbers as elements."""

    @abstractmethod
    def add(self, a: Elements, b: Elements) -> Elements:
        """Return a + b."""

    @abstractmethod
    def subtract(self, a: Elements, b: Elements) -> Elements:
        """Return a - b."""

    @abstractmethod
    def multiply(self, a: Elements, b: Elements) -> Elements:
        """Return a b."""

    @abstractmethod
    def sum(self, a: Elements, axis: int) -> Elements:
        """Return the sum along an axis."""

    @abstractmethod
    def to_bytes(self, a: Elements) -> NDArray[np.uint8]:
        """Return elements as they travel, the last axis as bytes."""

    @abstractmethod
    def from_bytes(self, data: NDArray[np.uint8]) -> tuple[Elements, NDArray[np.bool_]]:
        """Read rows of elements."""

    def root(self, order: int) -> int:
        """Return a primitive root of unity."""
        return pow(self._generator, self._order // order, self.modulus)

    def roots(self, order: int) -> Elements:
        """Return all powers of a primitive root of unity, the 0-th first."""
        root, powers = self.root(order), [1]
        for _ in range(order - 1):
            powers.append(powers[-1] * root % self.modulus)
        return self.elements(powers)

    def inverse(self, value: int) -> int:
        """Return 1 / value."""
        return pow(value, -1, self.modulus)


class _Field64(PrimeField):
    """Modulo 2^64 - 2^32 + 1, in words of 64 bits."""

    def __init__(self) -> None:
        modulus = 2**64 - 2**32 + 1
        super().__init__(modulus, 8, pow(7, 2**32 - 1, modulus), 2**32)
        self._modulus = np.uint64(modulus)

    def elements(self, values: Any) -> Elements:
        return np.asarray(np.array(values, dtype=object) % self.modulus, dtype=np.uint64)

    def add(self, a: Elements, b: Elements) -> Elements:
        total = a + b
        total += _LOW * (total < a)  # 2^64 is 2^32 - 1 here; this cannot wrap again
        return self._reduced(total)

    def subtract(self, a: Elements, b: Elements) -> Elements:
        difference: Elements = a - b
        return difference - _LOW * (a < b)

    def multiply(self, a: Elements, b: Elements) -> Elements:
        a0, a1, b0, b1 = a & _LOW, a >> _HALF, b & _LOW, b >> _HALF
        low, middle = a0 * b0, a1 * b0
        middle += low >> _HALF
        other = a0 * b1 + (middle & _LOW)
        high = a1 * b1 + (middle >> _HALF) + (other >> _HALF)
        low = (low & _LOW) | (other << _HALF)
        # 2^64 = 2^32 - 1 and 2^96 = -1
        top = high >> _HALF
        value = low - top
        value -= _LOW * (low < top)
        rest = (high & _LOW) * _LOW
        total = value + rest
        total += _LOW * (total < rest)
        return self._reduced(total)

    def sum(self, a: Elements, axis: int) -> Elements:
        # Kept as arrays of some axis: numpy warns of scalars that wrap.
        low, high = (part.sum(axis=axis, dtype=np.uint64, keepdims=True) for part in (a & _LOW, a >> _HALF))
        return self.add(self._reduced(low), self.multiply(self._reduced(high), self.elements([2**32]))).squeeze(axis)

    def to_bytes(self, a: Elements) -> NDArray[np.uint8]:
        return np.ascontiguousarray(a, dtype="<u8").view(np.uint8)

    def from_bytes(self, data: NDArray[np.uint8]) -> tuple[Elements, NDArray[np.bool_]]:
        numbers = np.ascontiguousarray(data).view("<u8").astype(np.uint64)
        return numbers, np.asarray((numbers >= self._modulus).any(axis=1))

    def _reduced(self, a: Elements) -> Elements:
        result: Elements = a - self._modulus * (a >= self._modulus)
        return result


FIELD64: Final[PrimeField] = _Field64()


# The compiled path (extra `fast`), where numba is installed and works: the same bits as the plain one, sooner.

# Elements that the plain path works on in the time that it takes to load numba: those of some thousand short reports.
PATIENCE = 2_000_000


class CompiledKernels(Protocol):
    """What `compiled` offers; see there."""

    def gadget_values(self, meas: Any, seeds: Any, joint: Any, roots: Any, calls: int, shares: int) -> NDArray[np.uint64]:
        """Give the values of the gadget's polynomial that a proof consists of."""

    def queried(self, meas: Any, proofs: Any, points: Any, joint: Any, roots: Any, calls: int, shares: int) -> NDArray[np.uint64]:
        """Give the verifier's values."""

    def truncated(self, meas: Any, weights: Any) -> NDArray[np.uint64]:
        """Give the counts that (shares of) encoded vectors stand for."""


class CompiledSponge(Protocol):
    """What `sponge` offers; see there."""

    def squeezed(self, messages: Any, length: int, below: bool) -> NDArray[np.uint64]:
        """Give the words that TurboSHAKE128 squeezes out of messages."""


@cache
def _compiled() -> Any:
    try:
        compiled = importlib.import_module(f"{__package__}.compiled")
        compiled.squeezed(np.zeros((1, 1), np.uint8), 1, True)
        compiled.truncated(np.zeros((1, 1), np.uint64), np.ones(1, np.uint64))
    except Exception:
        return None
    return compiled if hasattr(compiled.permuted, "signatures") else None


def kernels(fast: bool | None = True, work: int = 0) -> CompiledKernels | None:
    """Return the compiled loops of proofs, where they are wanted."""
    return _compiled() if _wanted(fast, work) else None


def sponge_kernels(fast: bool | None = True, work: int = 0) -> CompiledSponge | None:
    """Return the compiled hash function, where it is wanted."""
    return _compiled() if _wanted(fast, work) else None


class _Done:
    """Elements that this process has worked on."""

    elements = 0


def _wanted(fast: bool | None, work: int) -> bool:
    _Done.elements += work
    return _Done.elements > PATIENCE if fast is None else fast


def chunk_length(elements: int) -> int:
    """Return the length of chunks with the shortest proof, which is near the square root of the number of elements."""
    best, best_length, nodes = elements, 2 * elements + 3, 2
    while nodes // 2 <= elements:
        chunk = -(-elements // (nodes - 1))
        if (length := 2 * chunk + 2 * nodes - 1) < best_length:
            best, best_length = chunk, length
        nodes *= 2
    return best


class SumVecCircuit:
    """Vectors of counts in range, and proofs of it."""

    def __init__(self, field: PrimeField, length: int, max_measurement: int, chunk: int | None = None) -> None:
        remedy = "A vector has at least one count, and a count at least two values."
        self.field, self.length = field, whole("length", length, at_least=1, remedy=remedy)
        self.max_measurement = whole("max_measurement", max_measurement, at_least=1, at_most=2**32, remedy=remedy)
        self.bits = max_measurement.bit_length()
        self.elements = length * self.bits
        self.chunk = chunk_length(self.elements) if chunk is None else whole("chunk", chunk, at_least=1, remedy=remedy)
        self.calls = -(-self.elements // self.chunk)
        self.nodes = 1 << self.calls.bit_length()
        self.proof_length = 2 * self.chunk + 2 * self.nodes - 1
        self.verifier_length = 2 * self.chunk + 2
        self._last_weight = max_measurement - (2 ** (self.bits - 1) - 1)
        self._weights = field.elements([2**bit for bit in range(self.bits - 1)] + [self._last_weight])

    @cached_property
    def _roots(self) -> Elements:
        return self.field.roots(2 * self.nodes)

    def encoded(self, measurement: NDArray[np.int64]) -> Elements:
        """Encode a vector of counts."""
        values = np.asarray(measurement, dtype=np.int64)
        if values.shape != (self.length,) or values.min() < 0 or values.max() > self.max_measurement:
            raise ValueError(f"a measurement must be {self.length} counts from 0 to {self.max_measurement}")
        last = values >= 2 ** (self.bits - 1)
        rest = values - self._last_weight * last
        low = rest[:, None] >> np.arange(self.bits - 1) & 1
        return self.field.elements(np.concatenate([low, last[:, None]], axis=1).ravel())

    def truncated(self, meas: Elements, *, fast: bool | None = None) -> Elements:
        """Return the counts that (shares of) encoded vectors stand for."""
        compiled = kernels(fast, meas.size) if self.field is FIELD64 else None
        if compiled is not None:
            return compiled.truncated(meas, self._weights)
        counts = meas.reshape(len(meas), self.length, self.bits)
        return self.field.sum(self.field.multiply(counts, self._weights), axis=2)

    def proofs(self, meas: Elements, seeds: Elements, joint: Elements, *, fast: bool | None = None) -> Elements:
        """Prove that one encoded vector consists of zeros and ones."""
        compiled = kernels(fast, meas.size * len(seeds)) if self.field is FIELD64 else None
        if compiled is not None:
            values = compiled.gadget_values(meas, seeds, joint, self._roots, self.calls, 1)
        else:
            values = self._gadget_values(meas, seeds, joint)
        return np.concatenate([seeds, values[:, :-1]], axis=1)

    def queried(
        self, meas: Elements, proofs: Elements, points: Elements, joint: Elements, shares: int, *, fast: bool | None = None
    ) -> tuple[Elements, NDArray[np.bool_]]:
        """Make of shares of encoded vectors and proofs the shares of what is decided on."""
        field, inverse = self.field, self.field.elements(self.field.inverse(shares))
        powers = points
        for _ in range(self.nodes.bit_length() - 1):
            powers = field.multiply(powers, powers)
        refused = (powers == field.elements(1)).any(axis=1)
        compiled = kernels(fast, meas.size * points.shape[1]) if field is FIELD64 else None
        if compiled is not None:
            return compiled.queried(meas, proofs, points, joint, self._roots, self.calls, shares), refused
        chunks = self._chunks(meas)  # (reports, calls, chunk)
        seeds, values = proofs[..., : 2 * self.chunk], self._completed(proofs[..., 2 * self.chunk :])
        wires, gadget = self._lagrange(points, 2), self._lagrange(points, 1)
        at_calls = wires[..., 1 : self.calls + 1, None]
        left = field.multiply(field.multiply(self._powers(joint), chunks[:, None]), at_calls)
        right = field.multiply(field.subtract(chunks, inverse)[:, None], at_calls)
        sums = np.stack([field.sum(left, axis=2), field.sum(right, axis=2)], axis=-1).reshape(*points.shape, 2 * self.chunk)
        at_point = field.add(sums, field.multiply(wires[..., :1], seeds))
        outcome = field.sum(values[..., 2 : 2 * self.calls + 1 : 2], axis=2)
        return np.concatenate(
            [outcome[..., None], at_point, field.sum(field.multiply(gadget, values), axis=2)[..., None]], axis=2
        ), refused

    def accepted(self, verifiers: Elements) -> NDArray[np.bool_]:
        """Decide on verifiers whose shares were added up."""
        field = self.field
        gadget = field.sum(field.multiply(verifiers[..., 1:-1:2], verifiers[..., 2:-1:2]), axis=2)
        holds = (verifiers[..., 0] == field.elements(0)) & (gadget == verifiers[..., -1])
        return np.asarray(holds.all(axis=1), dtype=np.bool_)

    def _chunks(self, meas: Elements) -> Elements:
        padded = np.zeros((len(meas), self.calls * self.chunk), dtype=meas.dtype)
        padded[:, : self.elements] = meas
        return padded.reshape(len(meas), self.calls, self.chunk)

    def _powers(self, joint: Elements) -> Elements:
        """The first powers of the joint randomness, one for each element of a chunk: shape (..., calls, chunk)."""
        powers = [joint]
        for _ in range(self.chunk - 1):
            powers.append(self.field.multiply(powers[-1], joint))
        return np.stack(powers, axis=-1)

    def _completed(self, values: Elements) -> Elements:
        """All values of polynomials of degree 2 nodes - 2: their coefficient of x^(2 nodes - 1) is 0, which gives the last one."""
        field = self.field
        total = field.sum(field.multiply(values, self._roots[:-1]), axis=values.ndim - 1)
        last = field.multiply(field.subtract(field.elements(0), total), self._roots[1])
        return np.concatenate([values, last[..., None]], axis=-1)

    def _lagrange(self, points: Elements, step: int) -> Elements:
        """Lagrange's polynomials of every step-th root of unity, at points. By products, so that nothing is divided by."""
        field, roots = self.field, self._roots[::step]
        factors = [field.subtract(points, root) for root in roots]
        after = [np.broadcast_to(field.elements(1), points.shape)]
        for factor in factors[:0:-1]:
            after.append(field.multiply(after[-1], factor))
        before, products = after[0], []
        for factor, rest in zip(factors, reversed(after), strict=True):
            products.append(field.multiply(before, rest))
            before = field.multiply(before, factor)
        scale = field.multiply(roots, field.elements(field.inverse(len(roots))))
        return field.multiply(np.stack(products, axis=-1), scale)

    def _gadget_values(self, meas: Elements, seeds: Elements, joint: Elements) -> Elements:
        field, chunks = self.field, self._chunks(meas[None])
        wires = np.zeros((len(seeds), 2 * self.chunk, self.nodes), dtype=meas.dtype)
        wires[:, :, 0] = seeds
        wires[:, 0::2, 1 : self.calls + 1] = field.multiply(self._powers(joint), chunks).swapaxes(1, 2)
        wires[:, 1::2, 1 : self.calls + 1] = field.subtract(chunks, field.elements(1)).swapaxes(1, 2)
        backward = np.concatenate([self._roots[:1], self._roots[-2:0:-2]])
        coefficients = field.multiply(_transformed(field, wires, backward), field.elements(field.inverse(self.nodes)))
        between = _transformed(field, field.multiply(coefficients, self._roots[: self.nodes]), self._roots[::2])
        values = [field.sum(field.multiply(at[:, 0::2], at[:, 1::2]), axis=1) for at in (wires, between)]
        return np.stack(values, axis=-1).reshape(len(seeds), 2 * self.nodes)


def _transformed(field: PrimeField, a: Elements, roots: Elements) -> Elements:
    """The values at the roots, in their order, of polynomials whose coefficients are along the last axis."""
    if a.shape[-1] == 1:
        return a
    even, odd = _transformed(field, a[..., 0::2], roots[::2]), _transformed(field, a[..., 1::2], roots[::2])
    odd = field.multiply(odd, roots[: len(roots) // 2])
    return np.concatenate([field.add(even, odd), field.subtract(even, odd)], axis=-1)


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
