"""Proves the table of Theorem E that certificates look up, in ball arithmetic (extra `proof`): python tools/bends.py [LENGTH ...]

For each number of coordinates, a power of two, it prints the factors of the octaves of k, 2^-17 to 2^-16 first: the largest of
the 16 numbers with five binary digits in an octave. Minutes for all. The same table stands in
src/croupier/privacy/certificate.py and in clients/typescript/src/certificate.ts; a test proves parts of it again.
"""

from __future__ import annotations

import sys
from fractions import Fraction

from croupier.privacy._proof import bend_factor
from croupier.privacy.certificate import BEND_LENGTHS, FIRST_OCTAVE, LAST_OCTAVE


def factors(length: int) -> list[float]:
    """The factors of all octaves."""
    return [
        max(bend_factor(Fraction(digits, 32) * Fraction(2) ** octave, length) for digits in range(16, 32))
        for octave in range(FIRST_OCTAVE, LAST_OCTAVE + 1)
    ]


if __name__ == "__main__":
    for length in map(int, sys.argv[1:] or BEND_LENGTHS):
        print(f"    {length}: {tuple(factors(length))},", flush=True)
