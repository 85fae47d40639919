"""What a regression says: coefficients with standard errors, p-values and intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..statistics import Coefficients
from ..validation import ArgumentError
from .private import Floats


@dataclass(frozen=True, eq=False)
class RegressionTable:
    """The table that statisticians know: one row per coefficient, in the units of the data.

    Parameters
    ----------
    names : tuple of str
        Of the coefficients, the intercept's last.
    coef : ndarray
        The coefficients.
    std : ndarray
        Their standard errors; NaN where `determined` is False.
    intervals : ndarray of shape (coefficients, 2)
        Low and high ends at `level`; NaN where `determined` is False.
    p_values : ndarray
        Of the hypothesis that a coefficient is 0; NaN where `determined` is False.
    determined : ndarray of bool
        Whether the data in a coefficient's direction can be told from noise.
    level : float
        The intervals' coverage.
    r2 : float or None
        Estimated share of the target's variance that is explained; None without an intercept, or where it is not told from noise.
    users : int
        People that were asked.
    promise : str
        The guarantee, in brief.
    method : str, default "Least squares in one private round"
        How it was made, for the first line.
    covariance : ndarray of shape (coefficients, coefficients), optional
        Of the coefficients, sampling and privacy noise together.
    r2_std : float, optional
        Standard error of `r2`.

    Examples
    --------
    >>> import numpy as np
    >>> from croupier.estimator import ShuffleLinearRegression
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(20_000, 1))
    >>> table = ShuffleLinearRegression(target_range=(0, 100)).fit(X, 50 + 30 * X[:, 0]).summary()
    >>> table.names, bool(table.determined.all())
    (('x0', '(intercept)'), True)
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

    @property
    def r2_text(self) -> str:
        """R^2 in a sentence, with its 95 % error bar; empty where there is none."""
        if self.r2 is None:
            return ""
        bar = "" if self.r2_std is None else f" +- {1.96 * self.r2_std:.2g}"
        return f"R^2, estimated from the same round: {self.r2:.3f}{bar}"

    def transformed(self, matrix: Floats, names: Sequence[str]) -> RegressionTable:
        """Return the same regression for linear combinations of its coefficients, as in other units.

        Parameters
        ----------
        matrix : ndarray of shape (new, coefficients)
            The combinations.
        names : sequence of str
            Of the new coefficients.

        Returns
        -------
        RegressionTable
            With standard errors from the covariance. A combination is told from noise where all of its parts are.

        Raises
        ------
        ArgumentError
            Where the table has no covariance.
        """
        if self.covariance is None:
            raise ArgumentError("covariance", None, "given", "Take the table that summary() of a model returns.")
        parts = np.asarray(matrix) != 0
        combined = Coefficients(
            coef=matrix @ self.coef,
            covariance=matrix @ self.covariance @ matrix.T,
            determined=np.array([bool(self.determined[some].all()) for some in parts]),
            users=self.users,
        )
        return replace(
            self,
            names=tuple(names),
            coef=combined.coef,
            std=combined.std,
            intervals=combined.intervals(self.level),
            p_values=combined.p_values,
            determined=combined.determined,
            covariance=combined.covariance,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the table in plain JSON types.

        Returns
        -------
        dict
            One entry per coefficient under "rows"; None where it is not told from noise.
        """

        def told(value: float) -> float | None:
            return None if np.isnan(value) else float(value)

        rows = [
            {"name": name, "coef": float(coef), "std": told(std), "p_value": told(p), "interval": [told(end) for end in ends]}
            for name, coef, std, p, ends in zip(self.names, self.coef, self.std, self.p_values, self.intervals, strict=True)
        ]
        return {
            "method": self.method,
            "users": self.users,
            "promise": self.promise,
            "level": self.level,
            "r2": self.r2,
            "r2_std": self.r2_std,
            "rows": rows,
        }

    def __str__(self) -> str:
        width = max(12, *(len(name) for name in self.names))
        head = f"{'':{width}} {'coef':>11} {'std err':>10} {'z':>8} {'P>|z|':>7}   {self.level:.4g} interval"
        lines = [f"{self.method}, {self.users:,} people; {self.promise}", head]
        for name, coef, std, ends, p, known in zip(
            self.names, self.coef, self.std, self.intervals, self.p_values, self.determined, strict=True
        ):
            told = f"{std:>10.4g} {coef / std:>8.2f} {p:>7.3f}   [{ends[0]:.4g}, {ends[1]:.4g}]" if known else "not told from noise"
            lines.append(f"{name:{width}} {coef:>11.4g} {told}")
        if not self.determined.all():
            lines.append(f"{int((~self.determined).sum())} of {len(self.coef)} coefficients are not told from the privacy noise.")
        if self.r2 is not None:
            lines.append(self.r2_text)
        return "\n".join(lines)
