"""Proofs in the field of 64 bits, compiled by numba, report by report: to the last bit what `circuit` computes without."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .sponge import MODULUS as _MODULUS
from .sponge import compiled_loop as _compiled

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_ZERO, _ONE = np.uint64(0), np.uint64(1)


@_compiled
def _add(a, b):
    total = a + b
    if total < a:
        total += _LOW
    return total - _MODULUS if total >= _MODULUS else total


@_compiled
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


@_compiled
def _multiply(a, b):
    high: Any = _upper_half(a, b)  # type: ignore[call-arg]
    return _reduced(a * b, high, _ZERO)


@_compiled
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
    total = total - _MODULUS if total >= _MODULUS else total
    return _subtract(total, top << _HALF)


@_compiled
def _accumulated(low, high, top, a, b):
    """A number of three words with a b added."""
    upper: Any = _upper_half(a, b)  # type: ignore[call-arg]
    product = a * b
    low += product
    if low < product:
        upper += _ONE  # at most 2^64 - 1 by now, since elements are below the prime
    high += upper
    if high < upper:
        top += _ONE
    return low, high, top


@_compiled
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


@_compiled
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


@_compiled
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
    """Give the values of the gadget's polynomial that a proof consists of.

    Parameters
    ----------
    meas : numpy.ndarray of uint64, shape (elements,)
        The encoded vector.
    seeds : numpy.ndarray of uint64, shape (proofs, 2 chunk)
        The wires' first values.
    joint : numpy.ndarray of uint64, shape (proofs, calls)
        The joint randomness.
    roots : numpy.ndarray of uint64, shape (2 nodes,)
        Roots of unity.
    calls : int
        Chunks.
    shares : int
        Among how many the vector is shared.

    Returns
    -------
    numpy.ndarray of uint64, shape (proofs, 2 nodes)
        The values at the roots.
    """
    inverse = np.uint64(pow(shares, -1, int(_MODULUS)))
    return _gadget_values(meas, np.ascontiguousarray(seeds), np.ascontiguousarray(joint), roots, calls, inverse)


@_compiled
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


@_compiled
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
    """Give the verifier's values.

    Parameters
    ----------
    meas : numpy.ndarray of uint64, shape (reports, elements)
        Shares of encoded vectors.
    proofs : numpy.ndarray of uint64, shape (reports, proofs, length)
        Shares of their proofs.
    points : numpy.ndarray of uint64, shape (reports, proofs)
        Where polynomials are compared.
    joint : numpy.ndarray of uint64, shape (reports, proofs, calls)
        The joint randomness.
    roots : numpy.ndarray of uint64, shape (2 nodes,)
        Roots of unity.
    calls : int
        Chunks.
    shares : int
        Among how many the vectors are shared.

    Returns
    -------
    numpy.ndarray of uint64, shape (reports, proofs, values)
        The values.
    """
    wires = proofs.shape[2] - (len(roots) - 1)
    verifiers = np.empty((*points.shape, wires + 2), dtype=np.uint64)
    inverse = np.uint64(pow(shares, -1, int(_MODULUS)))
    _queried(meas, proofs, points, np.ascontiguousarray(joint), roots, calls, inverse, verifiers)
    return verifiers


@_compiled
def truncated(meas, weights):
    """Give the counts that (shares of) encoded vectors stand for.

    Parameters
    ----------
    meas : numpy.ndarray of uint64, shape (reports, elements)
        Encoded vectors, or shares of such.
    weights : numpy.ndarray of uint64, shape (bits,)
        What each element of a count stands for.

    Returns
    -------
    numpy.ndarray of uint64, shape (reports, counts)
        The counts.
    """
    bits = len(weights)
    counts = np.zeros((len(meas), meas.shape[1] // bits), dtype=np.uint64)
    for report in range(len(meas)):
        for count in range(counts.shape[1]):
            for bit in range(bits):
                counts[report, count] = _add(counts[report, count], _multiply(meas[report, count * bits + bit], weights[bit]))
    return counts
