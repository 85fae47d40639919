"""Proofs in the field of 64 bits, compiled by numba, report by report: to the last bit what `prio3` computes without."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

# TurboSHAKE128 for many messages, compiled by numba: to the last bit what `xof` makes with the library's.

_Function = TypeVar("_Function", bound=Callable[..., Any])
MODULUS = np.uint64(2**64 - 2**32 + 1)
# Bytes that a permutation absorbs or gives.
_RATE = 168
_NONE = np.uint64(0)
# Of the last 12 rounds of Keccak-f[1600].
_CONSTANTS = np.array(
    [
        0x000000008000808B, 0x800000000000008B, 0x8000000000008089, 0x8000000000008003, 0x8000000000008002, 0x8000000000000080,
        0x000000000000800A, 0x800000008000000A, 0x8000000080008081, 0x8000000000008080, 0x0000000080000001, 0x8000000080008008,
    ],
    dtype=np.uint64,
)  # fmt: skip


def compiled_loop(function: _Function) -> _Function:
    """Compiled on first use, without the interpreter's lock; kept on disk where there is a place to write to."""
    try:
        return cast(_Function, njit(nogil=True, cache=True)(function))
    except RuntimeError:  # no folder for the cache can be written
        return cast(_Function, njit(nogil=True)(function))


@compiled_loop
def _turned(word, by):
    return (word << np.uint64(by)) | (word >> np.uint64(64 - by))


@compiled_loop
def permuted(state):  # noqa: PLR0915
    """Apply Keccak-p[1600, 12]."""
    a0, a1, a2, a3, a4 = state[0], state[1], state[2], state[3], state[4]
    a5, a6, a7, a8, a9 = state[5], state[6], state[7], state[8], state[9]
    a10, a11, a12, a13, a14 = state[10], state[11], state[12], state[13], state[14]
    a15, a16, a17, a18, a19 = state[15], state[16], state[17], state[18], state[19]
    a20, a21, a22, a23, a24 = state[20], state[21], state[22], state[23], state[24]
    for constant in _CONSTANTS:
        c0 = a0 ^ a5 ^ a10 ^ a15 ^ a20
        c1 = a1 ^ a6 ^ a11 ^ a16 ^ a21
        c2 = a2 ^ a7 ^ a12 ^ a17 ^ a22
        c3 = a3 ^ a8 ^ a13 ^ a18 ^ a23
        c4 = a4 ^ a9 ^ a14 ^ a19 ^ a24
        d0 = c4 ^ _turned(c1, 1)
        d1 = c0 ^ _turned(c2, 1)
        d2 = c1 ^ _turned(c3, 1)
        d3 = c2 ^ _turned(c4, 1)
        d4 = c3 ^ _turned(c0, 1)
        b0 = a0 ^ d0
        b1 = _turned(a6 ^ d1, 44)
        b2 = _turned(a12 ^ d2, 43)
        b3 = _turned(a18 ^ d3, 21)
        b4 = _turned(a24 ^ d4, 14)
        b5 = _turned(a3 ^ d3, 28)
        b6 = _turned(a9 ^ d4, 20)
        b7 = _turned(a10 ^ d0, 3)
        b8 = _turned(a16 ^ d1, 45)
        b9 = _turned(a22 ^ d2, 61)
        b10 = _turned(a1 ^ d1, 1)
        b11 = _turned(a7 ^ d2, 6)
        b12 = _turned(a13 ^ d3, 25)
        b13 = _turned(a19 ^ d4, 8)
        b14 = _turned(a20 ^ d0, 18)
        b15 = _turned(a4 ^ d4, 27)
        b16 = _turned(a5 ^ d0, 36)
        b17 = _turned(a11 ^ d1, 10)
        b18 = _turned(a17 ^ d2, 15)
        b19 = _turned(a23 ^ d3, 56)
        b20 = _turned(a2 ^ d2, 62)
        b21 = _turned(a8 ^ d3, 55)
        b22 = _turned(a14 ^ d4, 39)
        b23 = _turned(a15 ^ d0, 41)
        b24 = _turned(a21 ^ d1, 2)
        a0 = b0 ^ (~b1 & b2) ^ constant
        a1 = b1 ^ (~b2 & b3)
        a2 = b2 ^ (~b3 & b4)
        a3 = b3 ^ (~b4 & b0)
        a4 = b4 ^ (~b0 & b1)
        a5 = b5 ^ (~b6 & b7)
        a6 = b6 ^ (~b7 & b8)
        a7 = b7 ^ (~b8 & b9)
        a8 = b8 ^ (~b9 & b5)
        a9 = b9 ^ (~b5 & b6)
        a10 = b10 ^ (~b11 & b12)
        a11 = b11 ^ (~b12 & b13)
        a12 = b12 ^ (~b13 & b14)
        a13 = b13 ^ (~b14 & b10)
        a14 = b14 ^ (~b10 & b11)
        a15 = b15 ^ (~b16 & b17)
        a16 = b16 ^ (~b17 & b18)
        a17 = b17 ^ (~b18 & b19)
        a18 = b18 ^ (~b19 & b15)
        a19 = b19 ^ (~b15 & b16)
        a20 = b20 ^ (~b21 & b22)
        a21 = b21 ^ (~b22 & b23)
        a22 = b22 ^ (~b23 & b24)
        a23 = b23 ^ (~b24 & b20)
        a24 = b24 ^ (~b20 & b21)
    state[0], state[1], state[2], state[3], state[4] = a0, a1, a2, a3, a4
    state[5], state[6], state[7], state[8], state[9] = a5, a6, a7, a8, a9
    state[10], state[11], state[12], state[13], state[14] = a10, a11, a12, a13, a14
    state[15], state[16], state[17], state[18], state[19] = a15, a16, a17, a18, a19
    state[20], state[21], state[22], state[23], state[24] = a20, a21, a22, a23, a24


@compiled_loop
def _squeezed(padded, found, below):
    """Absorb rows of words, padded to whole blocks, and fill the rows of `found`, with numbers below the prime where asked for."""
    rate = _RATE // 8
    state = np.empty(25, dtype=np.uint64)
    for row in range(len(padded)):
        state[:] = _NONE
        for start in range(0, padded.shape[1], rate):
            for word in range(rate):
                state[word] ^= padded[row, start + word]
            permuted(state)
        filled, at = 0, 0
        while filled < found.shape[1]:
            if at == rate:
                permuted(state)
                at = 0
            if not below or state[at] < MODULUS:
                found[row, filled] = state[at]
                filled += 1
            at += 1


def squeezed(messages, length, below):
    """Give the words that TurboSHAKE128 squeezes out of messages, with the domain byte 1."""
    rows, size = messages.shape
    padded = np.zeros((rows, (size // _RATE + 1) * _RATE), np.uint8)
    padded[:, :size] = messages
    padded[:, size] = 1
    padded[:, -1] ^= 0x80
    found = np.empty((rows, length), dtype=np.uint64)
    _squeezed(padded.view("<u8").astype(np.uint64, copy=False), found, below)
    return found


_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_ZERO, _ONE = np.uint64(0), np.uint64(1)


@compiled_loop
def _add(a, b):
    total = a + b
    if total < a:
        total += _LOW
    return total - MODULUS if total >= MODULUS else total


@compiled_loop
def _subtract(a, b):
    return a - b if a >= b else a - b - _LOW


@intrinsic
def _upper_half(typing_context, a, b):
    """The upper half of the product of two words: one instruction of the processor."""

    def made(context, builder, signature, arguments):
        double = ir.IntType(128)
        left, right = (builder.zext(argument, double) for argument in arguments)
        return builder.trunc(builder.lshr(builder.mul(left, right), ir.Constant(double, 64)), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), made


@compiled_loop
def _multiply(a, b):
    high: Any = _upper_half(a, b)
    return _reduced(a * b, high, _ZERO)


@compiled_loop
def _reduced(low, high, top):
    """A number of two words, and of a third that is below 2^32, modulo the prime: 2^64 = 2^32 - 1, 2^96 = -1, 2^128 = -2^32."""
    upper = high >> _HALF
    value = low - upper
    if low < upper:
        value -= _LOW
    rest = (high & _LOW) * _LOW
    total = value + rest
    if total < rest:
        total += _LOW
    total = total - MODULUS if total >= MODULUS else total
    return _subtract(total, top << _HALF)


@compiled_loop
def _accumulated(low, high, top, a, b):
    """A number of three words with a b added."""
    upper: Any = _upper_half(a, b)
    product = a * b
    low += product
    if low < product:
        upper += _ONE  # at most 2^64 - 1 by now, since elements are below the prime
    high += upper
    if high < upper:
        top += _ONE
    return low, high, top


@compiled_loop
def _inverse_of_power(order):
    """1 / order, of a power of two: 2^96 is -1 in the field, so that 2^192 is 1."""
    exponent = 0
    while order > 1:
        order >>= 1
        exponent += 1
    result = _ONE
    for _ in range(192 - exponent):
        result = _add(result, result)
    return result


@compiled_loop
def _transform(a, roots, step, backward):
    """In place: values at roots of unity of the polynomial with these coefficients, or with `backward` the other way round."""
    size, many = len(a), len(roots)
    j = 0
    for i in range(1, size):  # the order of reversed bits
        bit = size >> 1
        while j & bit:
            j ^= bit
            bit >>= 1
        j |= bit
        if i < j:
            a[i], a[j] = a[j], a[i]
    half = 1
    while half < size:
        stride = step * (size // (2 * half))
        for start in range(0, size, 2 * half):
            for k in range(half):
                root = roots[(many - k * stride) % many] if backward else roots[k * stride]
                odd = _multiply(a[start + half + k], root)
                even = a[start + k]
                a[start + k] = _add(even, odd)
                a[start + half + k] = _subtract(even, odd)
        half *= 2
    if backward:
        scale = _inverse_of_power(size)
        for k in range(size):
            a[k] = _multiply(a[k], scale)


@compiled_loop
def _gadget_values(meas, seeds, joint, roots, calls, inverse):
    proofs, wires, double = len(seeds), seeds.shape[1], len(roots)
    nodes, chunk = double // 2, wires // 2
    values = np.zeros((proofs, double), dtype=np.uint64)
    left, right = np.empty(nodes, dtype=np.uint64), np.empty(nodes, dtype=np.uint64)
    powers = np.empty(calls, dtype=np.uint64)
    for proof in range(proofs):
        powers[:] = _ONE
        for j in range(chunk):
            left[:], right[:] = _ZERO, _ZERO
            left[0], right[0] = seeds[proof, 2 * j], seeds[proof, 2 * j + 1]
            for i in range(calls):
                powers[i] = _multiply(powers[i], joint[proof, i])
                at = i * chunk + j
                element = meas[at] if at < len(meas) else _ZERO
                left[i + 1] = _multiply(powers[i], element)
                right[i + 1] = _subtract(element, inverse)
            for k in range(nodes):
                values[proof, 2 * k] = _add(values[proof, 2 * k], _multiply(left[k], right[k]))
            for wire in (left, right):
                _transform(wire, roots, 2, True)
                for k in range(nodes):
                    wire[k] = _multiply(wire[k], roots[k])
                _transform(wire, roots, 2, False)
            for k in range(nodes):
                values[proof, 2 * k + 1] = _add(values[proof, 2 * k + 1], _multiply(left[k], right[k]))
    return values


def gadget_values(meas, seeds, joint, roots, calls, shares):
    """Give the values of the gadget's polynomial that a proof consists of."""
    inverse = np.uint64(pow(shares, -1, int(MODULUS)))
    return _gadget_values(meas, np.ascontiguousarray(seeds), np.ascontiguousarray(joint), roots, calls, inverse)


@compiled_loop
def _lagrange(point, roots, step, scale, found, after):
    """Lagrange's polynomials of every step-th root of unity at a point, by products."""
    size = len(roots) // step
    after[size - 1] = _ONE
    for k in range(size - 1, 0, -1):
        after[k - 1] = _multiply(after[k], _subtract(point, roots[k * step]))
    before = scale
    for k in range(size):
        found[k] = _multiply(_multiply(before, after[k]), roots[k * step])
        before = _multiply(before, _subtract(point, roots[k * step]))


@compiled_loop
def _queried(meas, proofs, points, joint, roots, calls, inverse, verifiers):
    reports, many, double = len(meas), proofs.shape[1], len(roots)
    chunk, nodes, elements = (verifiers.shape[2] - 2) // 2, double // 2, meas.shape[1]
    wires, gadget = np.empty(nodes, dtype=np.uint64), np.empty(double, dtype=np.uint64)
    after, powers = np.empty(double, dtype=np.uint64), np.empty(calls, dtype=np.uint64)
    small, large = _inverse_of_power(nodes), _inverse_of_power(double)
    for report in range(reports):
        for proof in range(many):
            given, result, point = proofs[report, proof], verifiers[report, proof], points[report, proof]
            _lagrange(point, roots, 2, small, wires, after)
            _lagrange(point, roots, 1, large, gadget, after)
            known = _ZERO
            for i in range(calls):
                powers[i] = wires[i + 1]
                known = _add(known, wires[i + 1])
            known = _multiply(known, inverse)
            for j in range(chunk):
                # Sums of products are reduced once: the first words, the second ones, and what they carry.
                low, high, top = _ZERO, _ZERO, _ZERO
                also_low, also_high, also_top = _ZERO, _ZERO, _ZERO
                for i in range(calls):
                    powers[i] = _multiply(powers[i], joint[report, proof, i])
                    at = i * chunk + j
                    if at < elements:
                        low, high, top = _accumulated(low, high, top, powers[i], meas[report, at])
                        also_low, also_high, also_top = _accumulated(also_low, also_high, also_top, wires[i + 1], meas[report, at])
                low, high, top = _accumulated(low, high, top, wires[0], given[2 * j])
                also_low, also_high, also_top = _accumulated(also_low, also_high, also_top, wires[0], given[2 * j + 1])
                result[1 + 2 * j] = _reduced(low, high, top)
                result[2 + 2 * j] = _subtract(_reduced(also_low, also_high, also_top), known)
            outcome, at_point, last = _ZERO, _ZERO, _ZERO
            for k in range(double - 1):
                value = given[2 * chunk + k]
                last = _add(last, _multiply(value, roots[k]))
                at_point = _add(at_point, _multiply(value, gadget[k]))
            for i in range(calls):
                outcome = _add(outcome, given[2 * chunk + 2 * (i + 1)])
            last = _multiply(_subtract(_ZERO, last), roots[1])
            result[0] = outcome
            result[1 + 2 * chunk] = _add(at_point, _multiply(last, gadget[double - 1]))


def queried(meas, proofs, points, joint, roots, calls, shares):
    """Give the verifier's values."""
    wires = proofs.shape[2] - (len(roots) - 1)
    verifiers = np.empty((*points.shape, wires + 2), dtype=np.uint64)
    inverse = np.uint64(pow(shares, -1, int(MODULUS)))
    _queried(meas, proofs, points, np.ascontiguousarray(joint), roots, calls, inverse, verifiers)
    return verifiers


@compiled_loop
def truncated(meas, weights):
    """Give the counts that (shares of) encoded vectors stand for."""
    bits = len(weights)
    counts = np.zeros((len(meas), meas.shape[1] // bits), dtype=np.uint64)
    for report in range(len(meas)):
        for count in range(counts.shape[1]):
            for bit in range(bits):
                counts[report, count] = _add(counts[report, count], _multiply(meas[report, count * bits + bit], weights[bit]))
    return counts
