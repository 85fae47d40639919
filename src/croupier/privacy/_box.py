"""What clipping rotated coordinates to a box moves a vector by: a bound for its length, and a smaller one for each coordinate.

Both are root mean squares over rotations, for a vector x of norm 1 that is fixed before the rotation and a box of t / sqrt(d'). No
guarantee rests on them: they are about accuracy alone. Notation, lemma and the first two bounds are in docs/accounting.md, section
10: psi for the whole vector, and C E_0 for E V^2, V = mean_j c(y_j) what one coordinate moves by.

*The second bound for one coordinate.* Fix any concave sequence m_1, m_2, ..., m_N = 1, with m_0 = 0.

(1) If n of the p_l add up to m_n or more, the lemma gives E V^2 <= C E_(n, m_n).

(2) Otherwise x is spread. Signs may be multiplied by the signs of any row, so the law of (y_j, y_k) depends on j + k alone, and
E V^2 = mean_k E c(y_0) c(y_k). Where y_0 and y_k have different signs the product is at most 0. Where they have the same, it is at
most (|U| - t)_+^2 for U = (y_0 + y_k)/2, as a b <= (a + b)^2/4. Now y_0 = sum_l s_l x_l and y_k = sum_l s_l chi_l(k) x_l, so U is
the sum over the l with chi_l(k) = 1, and its variance is at most (1 + rho_k)/2, rho_k = sum_l p_l chi_l(k). By the lemma E V^2 <=
psi mean_k K(rho_k), K(rho) = E f(sqrt((1 + rho)/2) G) / E_0, which rises from K(-1) = 0 to K(1) = 1.

With v = (1 + rho)/2 and s = u/sqrt(v), K' is proportional to E (sqrt(v) |G| - u)_+ = 2 sqrt(v) (phi(s) - s Q(s)), whose derivative
by v is phi(s)/sqrt(v). As phi(s) - s Q(s) <= phi(s)/(1 + s^2), d ln K'/dv >= (1 + s^2)/(2 v), that is

    d ln K' / d ln rho  >=  rho (1 + rho + 2 u^2) / (2 (1 + rho)^2),

which rises with rho in [0, 1] and is above 3 at 1/4 if u >= 4.3. From there on K'/rho^3 rises, so K is a convex function of rho^4,
and below its chord: K <= K(1/4) + rho^4. For smaller rho K <= K(1/4).

rho^2 is the Walsh transform of p * p, so by Parseval and Young's inequality mean_k rho_k^4 = ||p * p||_2^2 <= (sum_l p_l^(4/3))^3.
The partial sums of the p_l in falling order are below the m_n, so p is majorized by the steps m_n - m_(n-1), and the sum, which is
convex, is at most theirs. So E V^2 <= psi (K(1/4) + (sum_n (m_n - m_(n-1))^(4/3))^3).

The larger of (1) and (2) bounds E V^2. The sequence min(1, 2.75 sqrt(n + 1/2) / t^2) makes both about equal.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, ndtr

Floats = NDArray[np.float64]
# Doubles are off by less than this part of a bound for boxes up to 9; for larger ones rounding raises the bound.
_UP = 1 + 1e-9
# Smaller boxes have u < 4.3, and in larger ones the second bound would take long.
_SPREAD_FROM, _SPREAD_TO = 4.7, 9.0
_UNRELATED = 0.25


def cubes(below: Floats, std: Floats) -> Floats:
    """E (std G - below)_+^3 for a Gaussian G."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        z = below / std
        density = np.exp(-z * z / 2) / math.sqrt(2 * math.pi)
        found = std**3 * ((z * z + 2) * density - z * (z * z + 3) * ndtr(-z))
    return np.where(std > 0, np.maximum(found, 0.0), np.maximum(-below, 0.0) ** 3)


def mixed_cubes(flat: int, mass: float, start: float) -> float:
    """E (|X| - start)_+^3 for X = sqrt(mass / flat) (so many signs) + sqrt(1 - mass) G."""
    signs = np.arange(flat + 1)
    weights = np.exp(gammaln(flat + 1) - gammaln(signs + 1) - gammaln(flat - signs + 1) - flat * math.log(2))
    below = np.asarray(start - (2 * signs - flat) * math.sqrt(mass / max(1, flat)), dtype=np.float64)
    return 2 * float(weights @ cubes(below, np.full(flat + 1, math.sqrt(max(0.0, 1 - mass)))))


@lru_cache(maxsize=1024)
def vector_bias(box: float, padded: int) -> float:
    """sqrt(psi(t)): how long the part is that is clipped, at most; 0 where no coordinate is ever that large."""
    if box * box >= padded:
        return 0.0
    start = _start(box)
    return min(1.0, _UP * math.sqrt(_square(box, start) * mixed_cubes(0, 0.0, start)))


@lru_cache(maxsize=1024)
def coordinate_bias(box: float, padded: int) -> float:
    """sqrt(chi(t)): what any one coordinate of the vector is moved by, at most."""
    if box * box >= padded:
        return 0.0
    start = _start(box)
    farthest = (5 * box + math.sqrt(25 * box * box - 24 * box * start)) / 6  # where (1 - t/y)^2 / (y - u)^3 is largest
    factor = (1 - box / farthest) ** 2 / (farthest - start) ** 3
    whole = mixed_cubes(0, 0.0, start)
    psi = _square(box, start) * whole
    bound = min(psi, factor * whole)
    if _SPREAD_FROM <= box <= _SPREAD_TO:
        bound = min(bound, max(psi * _related(box, start), factor * _concentrated(box, start)))
    return min(1.0, _UP * math.sqrt(bound))


def _start(box: float) -> float:
    """u: where the cube begins that is above the square of what is clipped; any number from 0 to t will do."""
    return max(box - 1.1 / box, box / 2)


def _square(box: float, start: float) -> float:
    """The largest (y - t)_+^2 / (y - u)^3, at y = 3 t - 2 u."""
    return 4 / (27 * (box - start))


def _masses(box: float) -> Floats:
    """m_1, m_2, ..., 1: vectors are spread if no n squares of entries add up to m_n."""
    share = 2.75 / box**2
    return np.asarray(np.minimum(1.0, share * np.sqrt(np.arange(1, math.ceil(share**-2 - 0.5) + 1) + 0.5)), dtype=np.float64)


def _related(box: float, start: float) -> float:
    """For spread vectors: K(1/4) + (sum p^(4/3))^3."""
    entries = np.diff(_masses(box), prepend=0.0)
    std = math.sqrt((1 + _UNRELATED) / 2)
    unrelated = 2 * float(cubes(np.array([start]), np.array([std]))[0]) / mixed_cubes(0, 0.0, start)
    return unrelated + float(np.sum(entries ** (4 / 3))) ** 3


def _concentrated(box: float, start: float) -> float:
    """For other vectors: the largest E_(n, m_n)."""
    return max(mixed_cubes(number, float(mass), start) for number, mass in enumerate(_masses(box), 1))
