"""Prio3SumVec once more, slowly and in the open: Python's whole numbers, polynomials by Lagrange's formula, one report at a time.

The second route to every byte of `croupier.service.prio3`. It shares with it the text of the draft and the hash function.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from Crypto.Hash import TurboSHAKE128

from croupier.service.prio3.prio3 import PrimeField

P64, P128 = 2**64 - 2**32 + 1, 2**66 * 4611686018427387897 + 1
ROOT = {P64: (pow(7, 2**32 - 1, P64), 2**32), P128: (pow(7, 4611686018427387897, P128), 2**66)}


def interpolated(p, xs, ys, t):
    """The value at t of the polynomial through these points."""
    total = 0
    for i, (x, y) in enumerate(zip(xs, ys, strict=True)):
        up, down = y, 1
        for k, other in enumerate(xs):
            if k != i:
                up, down = up * (t - other) % p, down * (x - other) % p
        total += up * pow(down, -1, p)
    return total % p


@dataclass
class SlowSumVec:
    length: int
    most: int
    chunk: int
    proofs: int
    shares: int
    context: bytes
    p: int
    algorithm: int

    def __post_init__(self):
        self.bits = self.most.bit_length()
        self.n = self.length * self.bits
        self.calls = (self.n + self.chunk - 1) // self.chunk
        self.nodes = 2
        while self.nodes < self.calls + 1:
            self.nodes *= 2
        self.size = 8 if self.p == P64 else 16
        generator, order = ROOT[self.p]
        root = pow(generator, order // (2 * self.nodes), self.p)
        self.at = [pow(root, k, self.p) for k in range(2 * self.nodes)]
        self.weights = [2**k for k in range(self.bits - 1)]
        self.weights.append(self.most - sum(self.weights))

    def xof(self, seed, use, binder):
        tag = bytes([18, 0]) + self.algorithm.to_bytes(4, "big") + use.to_bytes(2, "big") + self.context
        return TurboSHAKE128.new(domain=1).update(len(tag).to_bytes(2, "little") + tag + bytes([len(seed)]) + seed + binder)

    def vector(self, seed, use, binder, length):
        stream, numbers = self.xof(seed, use, binder), []
        while len(numbers) < length:
            number = int.from_bytes(stream.read(self.size), "little")
            if number < self.p:
                numbers.append(number)
        return numbers

    def packed(self, numbers):
        return b"".join(number.to_bytes(self.size, "little") for number in numbers)

    def encoded(self, counts):
        found = []
        for count in counts:
            last = int(count >= 2 ** (self.bits - 1))
            rest = count - last * self.weights[-1]
            found += [rest >> k & 1 for k in range(self.bits - 1)] + [last]
        return found

    def inputs(self, meas, joint, shares):
        """What each of the gadget's calls is given."""
        padded, inverse = meas + [0] * (self.calls * self.chunk - self.n), pow(shares, -1, self.p)
        calls = []
        for i in range(self.calls):
            wires = []
            for j in range(self.chunk):
                x = padded[i * self.chunk + j]
                wires += [pow(joint[i], j + 1, self.p) * x % self.p, (x - inverse) % self.p]
            calls.append(wires)
        return calls

    def gadget(self, wires):
        return sum(wires[2 * j] * wires[2 * j + 1] for j in range(self.chunk)) % self.p

    def wires_at(self, seeds, calls, t):
        nothing = [[0] * 2 * self.chunk] * (self.nodes - 1 - self.calls)
        values = [seeds, *calls, *nothing]
        return [interpolated(self.p, self.at[::2], [row[j] for row in values], t) for j in range(2 * self.chunk)]

    def proof(self, meas, seeds, joint):
        calls = self.inputs(meas, joint, 1)
        return seeds + [self.gadget(self.wires_at(seeds, calls, t)) for t in self.at[:-1]]

    def query(self, meas, proof, t, joint):
        seeds, values = proof[: 2 * self.chunk], proof[2 * self.chunk :]

        # a polynomial of so low a degree is known by all values but the last
        def poly(x):
            return interpolated(self.p, self.at[:-1], values, x)

        outcome = sum(poly(self.at[2 * (i + 1)]) for i in range(self.calls)) % self.p
        return [outcome, *self.wires_at(seeds, self.inputs(meas, joint, self.shares), t), poly(t)]

    def parted(self, numbers, length):
        return [numbers[i : i + length] for i in range(0, len(numbers), length)]

    def joint(self, parts):
        seed = self.xof(bytes(32), 6, b"".join(parts)).read(32)
        return seed, self.parted(self.vector(seed, 3, bytes([self.proofs]), self.calls * self.proofs), self.calls)

    def helper(self, number, seed):
        length = (2 * self.chunk + 2 * self.nodes - 1) * self.proofs
        return self.vector(seed, 1, bytes([number]), self.n), self.vector(seed, 2, bytes([self.proofs, number]), length)

    def part(self, number, blind, meas, nonce):
        return self.xof(blind, 7, bytes([number]) + nonce + self.packed(meas)).read(32)

    def shard(self, counts, nonce, rand):
        seeds = [rand[i : i + 32] for i in range(0, len(rand), 32)]
        meas, helpers = self.encoded(counts), [(seeds[2 * k], seeds[2 * k + 1]) for k in range(self.shares - 1)]
        leader, parts = list(meas), []
        for k, (seed, blind) in enumerate(helpers, start=1):
            share, _ = self.helper(k, seed)
            leader = [(a - b) % self.p for a, b in zip(leader, share, strict=True)]
            parts.append(self.part(k, blind, share, nonce))
        parts.insert(0, self.part(0, seeds[-2], leader, nonce))
        _, joint = self.joint(parts)
        wires = self.parted(self.vector(seeds[-1], 4, bytes([self.proofs]), 2 * self.chunk * self.proofs), 2 * self.chunk)
        proofs = [x for seed, r in zip(wires, joint, strict=True) for x in self.proof(meas, seed, r)]
        for k, (seed, _) in enumerate(helpers, start=1):
            proofs = [(a - b) % self.p for a, b in zip(proofs, self.helper(k, seed)[1], strict=True)]
        return b"".join(parts), [self.packed(leader + proofs) + seeds[-2], *(a + b for a, b in helpers)]

    def verifier_share(self, key, number, nonce, public, share):
        if number == 0:
            numbers = [int.from_bytes(share[i : i + self.size], "little") for i in range(0, len(share) - 32, self.size)]
            meas, proofs = numbers[: self.n], numbers[self.n :]
        else:
            meas, proofs = self.helper(number, share[:32])
        parts = self.parted(public, 32)
        parts[number] = self.part(number, share[-32:], meas, nonce)
        _, joint = self.joint(parts)
        points = self.vector(key, 5, bytes([self.proofs]) + nonce, self.proofs)
        length = 2 * self.chunk + 2 * self.nodes - 1
        told = []
        for proof, t, r in zip(self.parted(proofs, length), points, joint, strict=True):
            told += self.query(meas, proof, t, r)
        return self.packed(told) + parts[number]


# What the draft has, and no deployed role needs: Prio3SumVec with one proof over 128 bits, and what both servers say together.

SUM_VEC = 0x00000003


class Field128(PrimeField):
    """Modulo 2^66 * 4611686018427387897 + 1, in Python's whole numbers."""

    def __init__(self):
        modulus = 2**66 * 4611686018427387897 + 1
        super().__init__(modulus, 16, pow(7, 4611686018427387897, modulus), 2**66)

    def elements(self, values):
        return np.asarray(np.array(values, dtype=object) % self.modulus, dtype=object)

    def add(self, a, b):
        return (a + b) % self.modulus

    def subtract(self, a, b):
        return (a - b) % self.modulus

    def multiply(self, a, b):
        return (a * b) % self.modulus

    def sum(self, a, axis):
        return np.asarray(a.sum(axis=axis) % self.modulus, dtype=object)

    def to_bytes(self, a):
        data = b"".join(int(value).to_bytes(16, "little") for value in a.ravel())
        return np.frombuffer(data, np.uint8).reshape(*a.shape[:-1], a.shape[-1] * 16)

    def from_bytes(self, data):
        rows = [bytes(row) for row in data]
        numbers = [[int.from_bytes(row[i : i + 16], "little") for i in range(0, len(row), 16)] for row in rows]
        values = np.array(numbers, dtype=object).reshape(len(rows), data.shape[1] // 16)
        return values, np.asarray((values >= self.modulus).any(axis=1), dtype=np.bool_)


FIELD128 = Field128()


def agreed(prepared, messages):
    """Of which reports the server used the joint randomness that all parts make (the draft's verify_next)."""
    return (prepared.joint_seeds == messages).all(axis=1) & ~prepared.refused


def unshard(vdaf, aggregate_shares):
    """Aggregate shares put together."""
    total = sum(vdaf.field.from_bytes(np.frombuffer(share, np.uint8)[None])[0][0].astype(object) for share in aggregate_shares)
    return [int(number) for number in total % vdaf.field.modulus]
