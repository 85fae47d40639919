"""Where random bits come from: secure and seeded are different types, and results know which was used.

All are ChaCha20 keystreams, so every law in `_sampling` runs on the same code with either; they differ in the key. Nothing
here or there passes through floating point randomness.
"""

from __future__ import annotations

import hashlib
import operator
import os
import threading
import warnings
import weakref
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from numpy.typing import NDArray

from ..validation import whole

# ChaCha20 counts 64-byte blocks in 32 bits (256 GiB); a new key comes long before that.
_BYTES_PER_KEY = 1 << 36
_ZEROS = memoryview(bytes(1 << 20))


class NotPrivateWarning(UserWarning):
    """Seeded randomness is in use: anyone who knows the seed can subtract the noise."""


_SOURCES: weakref.WeakSet[RandomSource] = weakref.WeakSet()


class RandomSource(ABC):
    """A stream of independent, uniformly random bytes. Safe to share between threads.

    A kind of source gives its keys; the bytes are the ChaCha20 keystream of each key in turn.

    Examples
    --------
    >>> isinstance(SecureRandom(), RandomSource)
    True
    """

    @property
    @abstractmethod
    def private(self) -> bool:
        """Whether what is made with this source may be called private."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._keys = 0
        self._start()
        _SOURCES.add(self)

    def draw_bytes(self, count: int) -> NDArray[np.uint8]:
        """Draw the next bytes of the stream.

        Parameters
        ----------
        count : int
            Number of bytes, at least 0.

        Returns
        -------
        numpy.ndarray of uint8, shape (count,)
            The bytes.

        Requires
        --------
        An attacker does not have the source's key. No two sources continue from the same place of one keystream:
        those that are copied, sent or forked start anew or refuse
        (docs/accounting.md#8-one-secret-a-run-asking-again-dealing-going-on).

        Ensures
        -------
        To them the bytes cannot be told from independent, uniformly random ones, unless ChaCha20 can
        (docs/accounting.md#8-one-secret-a-run-asking-again-dealing-going-on). No byte of the stream is given twice.
        """
        out = np.empty(count, dtype=np.uint8)
        with self._lock:
            if self._left < count or self._stale():
                self._start()
            self._left -= count
            view = out.data
            for start in range(0, count, len(_ZEROS)):
                part = view[start : start + len(_ZEROS)]
                self._cipher.update_into(_ZEROS[: len(part)], part)
        return out

    @abstractmethod
    def _key(self, index: int) -> bytes:
        """The 32 bytes of the index-th key."""

    def _stale(self) -> bool:
        """Whether the present key must not be used any more."""
        return False

    def _after_fork(self) -> None:
        """In the child: the lock may be held by a thread that does not exist here."""
        self._lock = threading.Lock()

    def _start(self) -> None:
        key = algorithms.ChaCha20(self._key(self._keys), bytes(16))
        self._cipher = Cipher(key, mode=None).encryptor()
        self._keys += 1
        self._left = _BYTES_PER_KEY


class SecureRandom(RandomSource):
    """Bytes that nobody can predict: ChaCha20 keyed by the operating system. The source to use with real data.

    A copy, an unpickled object and a forked process start a keystream of their own: noise is never used twice.

    Examples
    --------
    >>> source = SecureRandom()
    >>> source.private, source.draw_bytes(4).shape
    (True, (4,))
    """

    @property
    def private(self) -> bool:
        """True: what is made with this source may be called private."""
        return True

    def _key(self, index: int) -> bytes:
        self._process = os.getpid()
        return os.urandom(32)

    # The parent of a forked process keeps using its key: the child must not. Two guards, because process numbers can be equal
    # (containers) and a fork behind Python's back runs no hook (some servers).
    def _stale(self) -> bool:
        return self._process != os.getpid()

    def _after_fork(self) -> None:
        super()._after_fork()
        self._left = -1

    def __reduce__(self) -> tuple[type[SecureRandom], tuple[()]]:
        return SecureRandom, ()


class SeededRandom(RandomSource):
    """Bytes fixed by a seed, for tests and reproducible experiments. Results are marked as not private.

    The first one in a process gives a `NotPrivateWarning`. It can neither be copied nor sent.

    Parameters
    ----------
    seed : int
        At least 0; the same seed gives the same bytes.

    Attributes
    ----------
    seed : int
        The same seed.

    Examples
    --------
    >>> bool((SeededRandom(7).draw_bytes(4) == SeededRandom(7).draw_bytes(4)).all()), SeededRandom(7).private
    (True, False)
    """

    _warned: ClassVar[bool] = False

    def __init__(self, seed: int) -> None:
        self.seed = whole("seed", seed, at_least=0, remedy="Give a seed of 0 or more, or use SecureRandom().")
        if not SeededRandom._warned:
            SeededRandom._warned = True
            warnings.warn(
                "seeded randomness: results are reproducible and NOT private; use SecureRandom for real data",
                NotPrivateWarning,
                stacklevel=2,
            )
        super().__init__()

    @property
    def private(self) -> bool:
        """False: anyone who knows the seed can subtract the noise."""
        return False

    def __reduce__(self) -> str:
        raise TypeError(
            "a SeededRandom cannot be copied or sent: its place in the stream would be lost. Make a new one with the seed."
        )

    def _key(self, index: int) -> bytes:
        return hashlib.sha256(f"croupier seed {self.seed} key {index}".encode()).digest()


class KeyedRandom(RandomSource):
    """Bytes fixed by a key, which nobody without the key can predict. See `Secret`, which makes such keys.

    A forked process has to make its own from the secret: two that continued from one place would use the same bytes.
    """

    def __init__(self, key: bytes, private: bool) -> None:
        self._root, self._private = key, private
        super().__init__()

    def _after_fork(self) -> None:
        super()._after_fork()
        self._left = -1  # the next draw asks for a key, and there is none

    def _start(self) -> None:
        if self._keys and self._left < 0:
            raise RuntimeError("a KeyedRandom does not work in a forked process: make one there from the Secret")
        super()._start()

    @property
    def private(self) -> bool:
        """Whether nobody can guess the key."""
        return self._private

    def __reduce__(self) -> str:
        raise TypeError("a KeyedRandom cannot be copied or sent: its place in the stream would be lost. Send the Secret.")

    def _key(self, index: int) -> bytes:
        return hashlib.blake2b(index.to_bytes(8, "big"), key=self._root, digest_size=32, person=b"keystream").digest()


def _after_fork_in_child() -> None:
    for source in _SOURCES:
        source._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


# One secret per run, from which all its randomness is derived: asking the same again draws the same, anything else draws anew.
#
# A round that is asked twice, because a machine was lost or the program was killed, must not be released twice with different
# noise, since the mean of two noisy versions has less noise than was promised. Nor may one noise serve two sums, since their
# difference would have none. So the key of every draw is derived from the secret and from all that the draw is for.


@dataclass(frozen=True, repr=False)
class Secret:
    """32 secret bytes: an attacker who has them can see the noise.

    `derive` is a pseudo-random function (keyed BLAKE2b) of its labels: secrets derived under different labels look independent to
    anyone who does not have this one, and say nothing about it.

    `key`: The 32 bytes. `private`: Whether nobody can guess them: False for those of a seed.

    Guarantee
    ---------
    A question that is asked again draws the same noise. Different questions draw noise that looks independent, unless BLAKE2b or
    ChaCha20 can be told from random (docs/accounting.md#8-one-secret-a-run-asking-again-dealing-going-on).
    """

    key: bytes
    private: bool

    @classmethod
    def fresh(cls) -> Secret:
        """Draw a secret from the operating system."""
        return cls(os.urandom(32), True)

    @classmethod
    def of_seed(cls, seed: int) -> Secret:
        """Make a secret from a seed, for tests and reproducible experiments: NOT private."""
        return cls(SeededRandom(seed).draw_bytes(32).tobytes(), False)

    def derive(self, *labels: str | int | bytes) -> Secret:
        """Derive the secret for one purpose. Labels of different kinds or lengths are never confused."""
        digest = hashlib.blake2b(key=self.key, digest_size=32, person=b"croupier")
        for label in labels:
            if isinstance(label, bytes):
                kind, content = b"b", label
            elif isinstance(label, str):
                kind, content = b"s", label.encode()
            else:
                kind, content = b"i", str(operator.index(label)).encode()
            digest.update(kind + len(content).to_bytes(8, "big") + content)
        return Secret(digest.digest(), self.private)

    def source(self) -> KeyedRandom:
        """Give the random bytes of this secret, from their beginning."""
        return KeyedRandom(self.key, self.private)

    def __repr__(self) -> str:
        return f"Secret({'private' if self.private else 'NOT private'})"
