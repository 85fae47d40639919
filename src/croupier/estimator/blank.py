"""Estimators with invalid="blank": data as scikit-learn wants it but for single values, and blanks where these are not valid.

A blank is a row of zeros, the intercept's constant too, with target 0: its loss has gradient 0 whatever the weights are. Of a
person with several rows each bad one is such a row. The person's vector is the mean over all its rows; no row's vector is longer
than the bound, so the mean is not, and it is clipped to the bound all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_consistent_length, column_or_1d, validate_data

from ..invalid import finite_rows, numbers_or_nan, one_by_one, zeroed

# What is the same for whoever may be blank: no arithmetic with NaN or infinity, which would warn.
Maker = Callable[[Any], Any]


def validated(estimator: Any, X: Any, **options: Any) -> Any:
    """X as `validate_data` gives it, with NaN for every value that is not a finite number."""
    if hasattr(X, "iloc"):  # a data frame keeps the names of its columns
        X = type(X)(numbers_or_nan(X), columns=X.columns)
    elif not hasattr(X, "tocsr"):
        X = numbers_or_nan(X)
    return validate_data(estimator, X, accept_sparse="csr", ensure_all_finite=False, **options)


def target_column(X: Any, y: Any) -> NDArray[Any]:
    """y as a column as long as X, values not looked at."""
    column: NDArray[Any] = column_or_1d(one_by_one(y))
    check_consistent_length(X, column)
    return column


def blanked(X: Any, y: NDArray[Any], rows: Maker, targets: Maker) -> tuple[Any, NDArray[np.float64]]:
    """What `rows` and `targets` make of the valid records, and rows of zeros with target 0 for the others.

    `targets` gives NaN for what is no target.
    """
    X = numbers_or_nan(X)
    finite, values = finite_rows(X), np.asarray(targets(y), dtype=np.float64)
    valid = finite & np.isfinite(values)
    return zeroed(rows(zeroed(X, finite)), valid), zeroed(values, valid)
