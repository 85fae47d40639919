"""A prime field of 64 bits whose elements are entries of numpy arrays; the draft's test vectors need another one, in the tests.

What works on it has a compiled path, which is taken once it pays.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from functools import cache
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

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
