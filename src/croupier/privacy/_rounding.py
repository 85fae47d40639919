"""Privacy figures as text, rounded to the safe side. Nothing else in the package turns such a figure into text.

Losses (epsilon, delta, mu, slack, what somebody can guess) are rounded up. So are assumptions (the honest fraction): to assume
more than the proof needs is safe, to print less than it needs is not. What an audit found to be at least so large is rounded down.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any

# Below this, floats have fewer digits than we print; a loss that is smaller is printed as this.
_SMALLEST = 1e-300
_DIGITS_OF_EXP = 40


def round_up(value: float, digits: int = 4) -> str:
    """A loss as text, never smaller than it is.

    Parameters
    ----------
    value : float
        An epsilon, delta, mu, slack or another figure of which more is worse.
    digits : int
        Significant digits.

    Returns
    -------
    str
        A decimal number that is at least `value`.

    Examples
    --------
    >>> round_up(0.123456789), round_up(1e-6)
    ('0.1235', '1e-06')
    """
    value = float(value)
    if not math.isfinite(value):
        return f"{value:g}"
    return _rounded(Decimal(repr(max(value, _SMALLEST) if value > 0 else value)), digits, ROUND_CEILING)


def round_down(value: float, digits: int = 4) -> str:
    """A lower bound as text, never larger than it is: what an audit has shown, or a limit that must not be passed.

    Parameters
    ----------
    value : float
        The lower bound or limit.
    digits : int
        Significant digits.

    Returns
    -------
    str
        A decimal number that is at most `value`.

    Examples
    --------
    >>> round_down(0.123456789), round_down(0.01 / 16606, 1)
    ('0.1234', '6e-07')
    """
    value = float(value)
    if not math.isfinite(value):
        return f"{value:g}"
    return _rounded(Decimal(repr(0.0 if 0 < value < _SMALLEST else value)), digits, ROUND_FLOOR)


def loss(value: Any) -> str:
    """`round_up` of a number; what is not a number, as it is, for texts about parameters that nobody has checked yet.

    Parameters
    ----------
    value : Any
        A parameter.

    Returns
    -------
    str
        The number rounded up, or the value's repr.
    """
    number = _number(value)
    return repr(value) if number is None else round_up(number)


def exact(value: float) -> str:
    """A number that somebody chose, in as many digits as it takes.

    Parameters
    ----------
    value : float
        A limit or another setting, not a result.

    Returns
    -------
    str
        Text that reads back as the same number.

    Examples
    --------
    >>> exact(1.0), exact(1.23456789e-7)
    ('1', '1.23456789e-07')
    """
    text = f"{value:g}"
    return text if float(text) == value else repr(float(value))


def percent_up(share: Any, digits: int = 4) -> str:
    """A share as a percentage, never smaller than it is: an honest fraction that a proof needs, or the chance of a right guess.

    Parameters
    ----------
    share : float
        Between 0 and 1; what is not a number, as it is.
    digits : int
        Significant digits of the percentage.

    Returns
    -------
    str
        A percentage that is at least `share`, and at most 100 %.

    Examples
    --------
    >>> percent_up(0.0149), percent_up(1 / 3), percent_up(0.0149, 1), percent_up(0.999999)
    ('1.49 %', '33.34 %', '2 %', '100 %')
    """
    number = _number(share)
    if number is None or not math.isfinite(number):
        return repr(share)
    exactly = 100 * Decimal(repr(max(number, _SMALLEST)))
    return f"{_rounded(min(exactly, Decimal(100)), digits, ROUND_CEILING)} %"


def factor_up(epsilon: float, digits: int = 3) -> str:
    """e^epsilon as text, never smaller than it is.

    Parameters
    ----------
    epsilon : float
        A privacy loss.
    digits : int
        Significant digits.

    Returns
    -------
    str
        The factor, with commas between thousands, or as a power of ten from a million on.

    Examples
    --------
    >>> factor_up(1.0), factor_up(10.0), factor_up(100.0)
    ('2.72', '22,100', '2.69e+43')
    """
    precise = Context(prec=_DIGITS_OF_EXP)
    exponential = precise.exp(Decimal(repr(float(epsilon))))  # to nearest, so that the next number is above e^epsilon
    if epsilon != 0:
        exponential = precise.next_plus(exponential)
    factor = Context(prec=digits, rounding=ROUND_CEILING).create_decimal(exponential)
    return f"{factor:,f}" if factor < 10**6 and factor == factor.to_integral_value() else _rounded(factor, digits, ROUND_CEILING)


def one_in(delta: float) -> str:
    """A probability as "1 in so many", never smaller than it is, and no smaller than `round_up` prints it.

    Parameters
    ----------
    delta : float
        A probability above 0.

    Returns
    -------
    str
        Such as "1 in 1,000,000".

    Examples
    --------
    >>> one_in(1e-6), one_in(1.23456e-7)
    ('1 in 1,000,000', '1 in 8,097,165')
    """
    return f"1 in {int((1 / Decimal(round_up(delta))).to_integral_value(ROUND_FLOOR)):,}"


def _rounded(value: Decimal, digits: int, way: str) -> str:
    return f"{float(Context(prec=digits, rounding=way).create_decimal(value)):.{digits}g}"


def _number(value: Any) -> float | None:
    """The value of a number, of numpy's too; None for anything else."""
    try:
        return None if isinstance(value, bool | str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError):
        return None
