"""What regressions with intervals print, and how wide the intervals will be, from public facts before anybody is asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..files import Figures
from ..privacy._statements import counted, round_up
from ..statistics.moments import Coefficients
from ..validation import ArgumentError, real
from .warnings import warn_caller

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class RegressionTable(Figures):
    """The table that statisticians know: one row per coefficient, in the units of the data.

    `names`: Of the coefficients, the intercept's last. `coef`: The coefficients. `std`: Their standard errors; infinity if the data
    do not decide a coefficient and no bound was declared. `intervals` (coefficients, 2): Low and high ends at `level`: (-inf, inf)
    where the data do not decide a coefficient and no bound was declared. `p_values`: Of the hypothesis that a coefficient is 0; 1
    where nothing is known of it. `determined`: Whether the data decide a coefficient. False: the noise hides its direction.
    `level`: The intervals' coverage. `r2`: Estimated share of the target's variance that is explained; None without an intercept,
    or where the noise hides it. `users`: People that were asked. `promise`: The guarantee, in brief. `method`: How it was made, for
    the first line. `covariance` (coefficients, coefficients): Of the coefficients, sampling and privacy noise together. `r2_std`:
    Standard error of `r2`. `bias`, `limits`: What a declared bound leaves of coefficients that the data do not decide, as in
    `croupier.statistics.moments.Coefficients`. `settled`: False where a logistic regression's last step is longer than noise
    explains: nothing is then decided, whatever the noise. `caveat`: What else is to be said of the intervals. `of`: What
    coefficients are in, per unit of their column: the target's units, or log-odds of one class against the other.
    """

    names: tuple[str, ...]
    coef: Floats
    std: Floats
    intervals: Floats
    p_values: Floats
    determined: NDArray[np.bool_]
    level: float
    r2: float | None
    users: int
    promise: str
    method: str = "Least squares in one private round"
    covariance: Floats | None = None
    r2_std: float | None = None
    bias: Floats | None = None
    limits: Floats | None = None
    settled: bool = True
    caveat: str = ""
    of: str = ""

    @property
    def r2_text(self) -> str:
        """R^2 in a sentence, with its 95 % error bar; empty if there is none."""
        if self.r2 is None:
            return ""
        bar = "" if self.r2_std is None else f" +- {1.96 * self.r2_std:.2g}"
        return f"R^2, estimated from the same answers: {self.r2:.3f}{bar}"

    def transformed(self, matrix: Floats, names: Sequence[str]) -> RegressionTable:
        """Return the same regression for linear combinations of its coefficients, as in other units."""
        if self.covariance is None:
            raise ArgumentError("covariance", None, "given", "Pass the table that a model's summary() returns.")
        known = Coefficients(self.coef, self.covariance, self.determined, self.users, self.bias, self.limits)
        return replace(self, names=tuple(names), **shown(known.combined(np.asarray(matrix)), self.level))

    def to_dict(self) -> dict[str, Any]:
        """Return the table in plain JSON types."""

        def told(value: float) -> float | None:
            return float(value) if np.isfinite(value) else None

        rows = [
            {
                "name": name,
                "coef": float(coef),
                "std": told(std),
                "p_value": float(p),
                "interval": [told(end) for end in ends],
                "decided": bool(decided),
            }
            for name, coef, std, p, ends, decided in zip(
                self.names, self.coef, self.std, self.p_values, self.intervals, self.determined, strict=True
            )
        ]
        return {
            "method": self.method,
            "of": self.of or None,
            "users": self.users,
            "promise": self.promise,
            "level": self.level,
            "r2": self.r2,
            "r2_std": self.r2_std,
            "rows": rows,
            "caveat": self.caveat or None,
        }

    def figures(self) -> list[dict[str, Any]]:
        """Return one row per coefficient: "name", "coef", "std", "low", "high" and "p"."""
        rows = zip(self.names, self.coef, self.std, self.intervals, self.p_values, strict=True)
        return [
            {"name": name, "coef": float(coef), "std": float(std), "low": float(low), "high": float(high), "p": float(p)}
            for name, coef, std, (low, high), p in rows
        ]

    def __str__(self) -> str:
        width = max(12, *(len(name) for name in self.names))
        head = f"{'':{width}} {'coef':>11} {'std err':>10} {'z':>8} {'P>|z|':>7}   {self.level:.4g} interval"
        of = f"{self.of}, " if self.of else ""
        lines = [f"{self.method}, {of}{self.users:,} people; {self.promise}", head]
        for name, coef, std, ends, p in zip(self.names, self.coef, self.std, self.intervals, self.p_values, strict=True):
            z = f"{coef / std:.2f}" if np.isfinite(std) and std > 0 else "-"  # 0 where nothing was seen
            interval = f"({ends[0]:.4g}, {ends[1]:.4g})" if np.isinf(ends).all() else f"[{ends[0]:.4g}, {ends[1]:.4g}]"
            lines.append(f"{name:{width}} {coef:>11.4g} {std:>10.4g} {z:>8} {p:>7.3f}   {interval}")
        if self.undecided_text:
            lines.append(self.undecided_text)
        if self.caveat:
            lines.append(self.caveat)
        if self.r2 is not None:
            lines.append(self.r2_text)
        return "\n".join(lines)

    @property
    def undecided_text(self) -> str:
        """A sentence about coefficients that the data do not decide; empty if there are none."""
        if self.determined.all():
            return ""
        if not self.settled:
            rest = "rest on the declared coef_bound" if self.limits is not None else "are (-inf, inf)"
            return (
                f"The last step is longer than noise explains, so that coefficients may be further off than standard errors say: "
                f"intervals {rest}. It is so where slopes are steep: more people or a larger epsilon do not help. "
                f"ShuffleLogisticRegression (--task classify) fits such a model, without intervals."
            )
        some = f"The data do not decide {int((~self.determined).sum())} of {len(self.coef)} coefficients at this noise"
        if self.limits is not None:
            return f"{some}; their intervals rest on the declared coef_bound."
        return f"{some}: nothing is known of them. A declared coef_bound would keep their intervals finite."


def shown(solution: Coefficients, level: float) -> dict[str, Any]:
    """Return the fields of a `RegressionTable` that follow from the coefficients, so that all tables have the same ones."""
    return {
        "coef": solution.coef,
        "std": solution.std,
        "intervals": solution.intervals(level),
        "p_values": solution.p_values,
        "determined": solution.determined,
        "covariance": solution.covariance,
        "level": level,
        "bias": solution.bias,
        "limits": solution.limits,
    }


FORECAST_FIRST = "forecast(users, features) says how wide its intervals will be, from public facts, before anybody is asked."


def check_coef_bound(bound: Any) -> None:
    """Refuse what is no bound on coefficients."""
    if bound is not None:
        remedy = "Give a size that no true coefficient exceeds, in the units of the data; leave it out if you cannot justify one."
        real("coef_bound", bound, above=0, at_most=1e100, remedy=remedy)


class WideIntervalsWarning(UserWarning):
    """By a forecast from public facts, before anybody is asked, intervals will exclude nothing: too few people for this budget."""


class CutResidualsWarning(UserWarning):
    """Many residuals were cut by a regression in rounds: it is then not quite that of least squares."""


class FarRowsWarning(UserWarning):
    """Few rows may own a coefficient, and were weighed down by a regression in rounds: its intervals are approximate."""


# A slope whose effect, from the middle to the end of a column's range, is as large as this says all there is to say: half of the
# target's range, or log-odds that lead from a probability of 1/2 to one of 0.98.
_LARGEST = {"linear": 1.0, "logistic": 4.0}
# The variance of residuals that a forecast assumes, of a target in [-1, 1]: half of that of an evenly spread one.
RESIDUAL = 1 / 6


@dataclass(frozen=True)
class WidthForecast:
    """How wide intervals will be, from public facts alone: people, columns, epsilon and ranges.

    It takes columns for independent and evenly spread over their ranges. Those that go together, or use a small part of their
    range, have wider intervals.

    `kind`: The regression. `users`: People. `columns`: Features, without the intercept. `epsilon`: What each of them is promised.
    `half_width`: Of a slope's 95 % interval, times half of its column's range; in halves of the target's range, or in log-odds.
    Infinity where the data will not decide slopes. `least_spread`: A direction of the columns whose standard deviation is below
    this part of an even spread's gets (-inf, inf). In rounds 0: they zoom in on such a direction. `method`: How people would be
    asked. `ratio`: In rounds: the width over that without privacy. `approximate`: In rounds: whether so few people answer for so
    many columns that intervals held the truth less often in trials. `other_half_width`: With method="auto", the half-width by the
    method that was not taken. `useless`: Whether the intervals would hold every slope that
    there can be.
    """

    kind: str
    users: int
    columns: int
    epsilon: float
    half_width: float
    least_spread: float
    method: str = "moments"
    ratio: float | None = None
    approximate: bool = False
    other_half_width: float | None = None

    @property
    def useless(self) -> bool:
        """Whether the intervals would hold every slope that there can be."""
        return not self.half_width < _LARGEST[self.kind]

    def __str__(self) -> str:
        asked = f"Forecast for {self.users:,} people, {counted(self.columns, 'column')} and epsilon {round_up(self.epsilon)}"
        ideal = "if columns are independent and evenly spread over their ranges"
        if np.isinf(self.half_width):
            return f"{asked}: the noise hides every slope, even {ideal}. Intervals will be (-inf, inf)."
        size = self._size(self.half_width)
        verdict = " No slope that is possible lies outside such an interval." if self.useless else ""
        typical = f"{asked}: 95 % intervals of about +- {size} for a column from the middle to the end of its range, {ideal}."
        if self.ratio is not None:
            size = f"Eight secret rounds make them about {self.ratio:.2g} times as wide as without privacy"
            rest = "Columns that go together cost little." if not self.approximate else "With so few people they are approximate."
            return f"{typical}{verdict} Narrower columns get wider intervals. {size}. {rest}{self._assumed}"
        hidden = f"With less than {100 * self.least_spread:.0f} % of that spread, as of columns that go together, (-inf, inf)."
        return f"{typical}{verdict} Narrower columns get wider intervals. {hidden}{self._assumed}"

    def _size(self, half_width: float) -> str:
        return f"{50 * half_width:.2g} % of the target's range" if self.kind == "linear" else f"{half_width:.2g} in log-odds"

    @property
    def _assumed(self) -> str:
        """Which residuals are assumed, which method is taken, and what the other's forecast is."""
        text = ""
        if self.kind == "linear":
            text = f" Residuals are assumed to have a standard deviation of {50 * RESIDUAL**0.5:.0f} % of the target's range."
        if self.other_half_width is None:
            return text
        why = "whose forecast is narrower" if self.half_width <= self.other_half_width else "which the options need"
        other = "rounds" if self.method == "moments" else "moments"
        beside = "infinite" if np.isinf(self.other_half_width) else f"about +- {self._size(self.other_half_width)}"
        text += f' The method "auto" takes "{self.method}", {why}; that of "{other}" is {beside}.'
        if self.kind == "linear" and self.method == "moments":
            text += ' Smaller residuals narrow the intervals of "rounds" most: if yours are small, take the method "rounds".'
        return text

    def to_dict(self) -> dict[str, Any]:
        """Return the forecast in plain JSON types."""
        widths = {name: getattr(self, name) for name in ("half_width", "other_half_width")}
        finite = {name: width if width is not None and np.isfinite(width) else None for name, width in widths.items()}
        return asdict(self) | finite | {"useless": self.useless}

    def warn(self) -> None:
        """Warn where the intervals would be useless, before anything is spent."""
        if self.useless:
            remedy = "Nothing is spent yet. Ask more people, use fewer columns or a larger epsilon"
            warn_caller(f"{self} {remedy}; or train a model without intervals.", WideIntervalsWarning)


def slope_half_width(
    variance: float, edge: float, threshold: float, *, slopes: int, residual: float, users: int, noise: float
) -> float:
    """Forecast the half-width of a slope's 95 % interval, where all slopes have the same variance in their columns.

    The noise spreads equal eigenvalues over a semicircle of radius `edge`; a slope's variance is the mean over it of
    (sampling + noise) / eigenvalue^2.
    """
    values = variance + edge * _semicircle(slopes)
    if values[0] < threshold:
        return float("inf")
    return float(1.96 * np.sqrt(np.mean((residual * values / users + noise) / values**2)))


def least_spread(variance: float, edge: float, threshold: float, slopes: int) -> float:
    """Return which part of an even spread's standard deviation a direction needs to be seen, by the rule of `slope_half_width`."""
    return float(np.sqrt((threshold - edge * _semicircle(slopes)[0]) / variance))


def _semicircle(count: int) -> Floats:
    """Quantiles of the law of a noise matrix's eigenvalues, in units of its edge: by its distribution function on a grid."""
    at = np.linspace(-1, 1, 2_001)
    below = 0.5 + (at * np.sqrt(1 - at**2) + np.arcsin(at)) / np.pi
    return np.asarray(np.interp((np.arange(count) + 0.5) / count, below, at))
