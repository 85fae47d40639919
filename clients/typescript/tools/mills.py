"""Makes src/mills.ts: Chebyshev coefficients of Mills' ratio, fitted in 60 digits. python tools/mills.py

(1 + 2 x) exp(x^2) erfc(x) for x >= 0 is a smooth function of y = (x - k) / (x + k) in [-1, 1], whose values at the ends are 1 and
2 / sqrt(pi). Its Chebyshev series converges geometrically; the script prints the largest relative error that floats make of it.
"""

from pathlib import Path

from mpmath import chebyt, cos, erfc, exp, mp, mpf, pi, sqrt

mp.dps = 60
K, TERMS = mpf("3.75"), 26


def smooth(y):
    if y >= 1:
        return 2 / sqrt(pi)
    x = K * (1 + y) / (1 - y)
    if x > 1e6:
        return (1 + 2 * x) / (x * sqrt(pi)) * (1 - 1 / (2 * x * x) + mpf(3) / (4 * x**4))
    return (1 + 2 * x) * exp(x * x) * erfc(x)


def coefficients():
    nodes = 120
    angles = [pi * (j + mpf(1) / 2) / nodes for j in range(nodes)]
    values = [smooth(cos(a)) for a in angles]
    series = [2 * sum(v * cos(k * a) for v, a in zip(values, angles, strict=True)) / nodes for k in range(TERMS)]
    series[0] /= 2
    return series


if __name__ == "__main__":
    series = coefficients()
    cut = max(
        abs(sum(c * chebyt(k, y) for k, c in enumerate(series)) / smooth(y) - 1) for y in (mpf(j) / 50 for j in range(-50, 51))
    )
    print("the series cut off is wrong by", mp.nstr(cut, 3), "the last coefficient is", mp.nstr(series[-1], 3))
    lines = ",\n".join(f"  {float(c)!r}" for c in series)
    text = (
        "// Made by tools/mills.py: Chebyshev coefficients of (1 + 2 x) exp(x^2) erfc(x) in (x - 3.75) / (x + 3.75), x >= 0.\n"
        f"export const CENTRE = {float(K)};\n"
        f"export const COEFFICIENTS: readonly number[] = [\n{lines},\n];\n"
    )
    (Path(__file__).parent.parent / "src" / "mills.ts").write_text(text)
