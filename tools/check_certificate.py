"""Check a certificate of Theorem B with Python and mpmath, and with no code of the library: check_certificate.py FILE.

It goes through the window point by point in 60-digit arithmetic: some seconds for most plans, a quarter of an hour for every ten
million points. docs/certificates.md says what the fields mean.
"""

import json
import sys
from fractions import Fraction
from statistics import NormalDist

try:
    from mpmath import erfc, exp, log, loggamma, mp, mpf, pi, sqrt
except ModuleNotFoundError:
    sys.exit("check_certificate.py needs mpmath: pip install mpmath")

mp.dps = 60


def cdf(z):
    """Phi."""
    return erfc(-z / sqrt(2)) / 2


def density(z):
    """phi."""
    return exp(-z * z / 2) / sqrt(2 * pi)


def noise(N, p, first, last):
    """f(y) and z(y) = Phi^-1(F(y)) of Bin(N, p) for y = first..last, F summed from its lower end."""
    f = exp(loggamma(N + 1) - loggamma(first + 1) - loggamma(N - first + 1) + first * log(p) + (N - first) * log(1 - p))

    def rise(y):
        return (N - y + 1) * p / (y * (1 - p))  # f(y) / f(y - 1)

    F, term, y, points = f, f, first, []
    while y > 0 and (y > N * p or term > F * mpf(10) ** -50):
        term, y = term / rise(y), y - 1
        F += term
    for y in range(first, last + 1):
        z = mpf(NormalDist().inv_cdf(float(F)))
        for _ in range(3):
            z -= (cdf(z) - F) / density(z)  # Newton: 16 digits, 32, 60
        points.append((f, z))
        f *= rise(y + 1)
        F += f
    return [f for f, z in points], [z for f, z in points]


def encoding(plan):
    """The least S (with the margin for the encoder's rounding) and K, and d: docs/accounting.md, section 10. None: no such plan."""
    g, m, norm, d = plan["levels"], plan["blocks"], Fraction(plan["norm"]), plan["dim"]
    rotated, bounded, replaced = plan["range"] is not None, plan["diameter"] is not None, plan["neighbours"] == "replace-one"
    R, D = Fraction(plan["range"] if rotated else 1), Fraction(plan["diameter"] if bounded else 2 * norm)
    d = 1 << (d - 1).bit_length() if rotated else d  # zeros are appended
    if not (R > 0 and 0 < norm <= D and (m == 1 or (rotated and not bounded and 1 < m <= d and d % m == 0))):
        return None
    distance = (D if replaced else norm) / norm
    if m > 1:
        distance *= Fraction(int(2**100 * (1 + sqrt(mpf(m) / d)) / sqrt(m)) + 1, 2**100)  # rho, rounded up
    S = g * distance / (2 * R) * (1 + Fraction(1, 10**9))
    return S, min(S, Fraction(g, 1 if replaced else 2)), d // m


def holds(certificate):
    """Whether every upper end is at or above what is computed here."""
    plan, bounds = certificate["plan"], {name: Fraction(upper) for name, (lower, upper) in certificate["bounds"].items()}
    N, K, d, T, low, high = (certificate[name] for name in ("trials", "reach", "dim", "rounds", "low", "high"))
    p, S, epsilon = (Fraction(certificate[name]) for name in ("probability", "shift", "epsilon"))
    said = (plan["noise_bits"] * plan["honest_users"], Fraction(plan["noise_probability"]), plan["rounds"])
    least = encoding(plan)
    same = (N, p, T) == said and least is not None and least[2] == d
    if not (same and least[0] <= S and least[1] <= K and 0 <= low < low + K < high < N):
        return False
    p, S, epsilon = (mpf(x.numerator) / x.denominator for x in (p, S, epsilon))
    middle = min(max(low, int(N * p)), high - 1)
    (f, z), (g, mirrored) = noise(N, p, low, middle + 1), noise(N, 1 - p, N - 1 - high, N - 2 - middle)
    f, z = f + g[:0:-1], z[:-1] + [-x for x in reversed(mirrored)]  # g(y) = f(N - y), each score from its own tail
    c = max(z[i] - z[i - 1] for i in range(1, len(z)))
    ct = max(f[i] / min(density(z[i - 1]), density(z[i])) for i in range(1, len(z)))
    kappa = min(c * (1 - c / ct), ct**2 * max(-z[0], z[-1], 2 * c) / 8)
    tau = max(cdf(z[1]) + cdf(-z[-K - 2]), cdf(z[K + 1]) + cdf(-z[-2]))
    one = min(ct * S, c * S + kappa * sqrt(d))
    mu = one * sqrt(T)
    delta = cdf(mu / 2 - epsilon / mu) - exp(epsilon) * cdf(-mu / 2 - epsilon / mu) + T * d * tau
    real = {"step": c, "slope": ct, "bulge": kappa, "tau": tau, "mu": one, "delta": delta}
    return {"tau", "mu", "delta"} <= set(bounds) and all(
        name in real and real[name] <= mpf(x.numerator) / x.denominator for name, x in bounds.items()
    )


if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        certificate = json.load(file)
    plan, epsilon = certificate["plan"], Fraction(certificate["epsilon"])
    shown = float(epsilon) if float(epsilon) >= epsilon else epsilon
    print(f"{plan['honest_users']} honest users, {plan['dim']} coordinates, {plan['rounds']} round(s), {plan['neighbours']}:")
    if holds(certificate):
        result = "holds"
    else:
        result = "is NOT proved" + (" (Theorem E, which this program does not know)" if "bend" in certificate["bounds"] else "")
    print(f"epsilon {shown}, delta <= {certificate['bounds']['delta'][1]} {result}")
