"""The proof that every count of a vector is in range (the draft's FLP of SumVec with ParallelSum of Mul), for many reports at once.

A count is encoded by numbers that must be 0 or 1, each with a weight; the weights add up to the largest count, so that zeros
and ones stand for nothing else. For chunks of them the gadget adds up r^j x_j (x_j - 1), with r the joint randomness; the proof
is the gadget's polynomial by its values at roots of unity, and a seed for each of its wires that hides them.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ...validation import whole
from .field import FIELD64, Elements, PrimeField, kernels


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
