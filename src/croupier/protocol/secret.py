"""One secret per run, from which all its randomness is derived: asking the same again draws the same, anything else draws anew.

A round that is asked twice, because a machine was lost or the program was killed, must not be released twice with different
noise, since the mean of two noisy versions has less noise than was promised. Nor may one noise serve two sums, since their
difference would have none. So the key of every draw is derived from the secret and from all that the draw is for.
"""

from __future__ import annotations

import hashlib
import operator
import os
from dataclasses import dataclass

from .randomness import KeyedRandom, SeededRandom


@dataclass(frozen=True, repr=False)
class Secret:
    """32 bytes that whoever should not see the noise must not have.

    `derive` is a pseudo-random function (keyed BLAKE2b) of its labels: secrets derived under different labels look independent to
    whoever has not got this one, and say nothing about it.

    Parameters
    ----------
    key : bytes
        The 32 bytes.
    private : bool
        Whether nobody can guess them: False for those of a seed.

    Guarantee
    ---------
    A question that is asked again draws the same noise. Different questions draw noise that looks independent, unless BLAKE2b or
    ChaCha20 can be told from random (docs/accounting.md#8-one-secret-a-run-asking-again-dealing-going-on).

    Examples
    --------
    >>> secret = Secret.fresh()
    >>> secret.derive("round", 3) == secret.derive("round", 3), secret.derive("round", 3) == secret.derive("round", "3")
    (True, False)
    >>> secret
    Secret(private)
    """

    key: bytes
    private: bool

    @classmethod
    def fresh(cls) -> Secret:
        """Draw a secret from the operating system.

        Returns
        -------
        Secret
            One that nobody can guess.
        """
        return cls(os.urandom(32), True)

    @classmethod
    def of_seed(cls, seed: int) -> Secret:
        """Make a secret from a seed, for tests and reproducible experiments: NOT private.

        Parameters
        ----------
        seed : int
            At least 0.

        Returns
        -------
        Secret
            The same for the same seed; not private.
        """
        return cls(SeededRandom(seed).draw_bytes(32).tobytes(), False)

    def derive(self, *labels: str | int | bytes) -> Secret:
        """Derive the secret for one purpose. Labels of different kinds or lengths are never confused.

        Parameters
        ----------
        *labels : str, int or bytes
            All that the purpose depends on.

        Returns
        -------
        Secret
            As private as this one.
        """
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
        """Give the random bytes of this secret, from their beginning.

        Returns
        -------
        KeyedRandom
            A new stream; two of one secret give the same bytes.
        """
        return KeyedRandom(self.key, self.private)

    def __repr__(self) -> str:
        return f"Secret({'private' if self.private else 'NOT private'})"
