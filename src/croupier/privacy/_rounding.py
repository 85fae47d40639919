"""Privacy figures as text, rounded to the safe side. Nothing else in the package turns such a figure into text.

Losses (epsilon, delta, mu, slack, what an attacker can guess) are rounded up. So are assumptions (the honest fraction): to assume
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
    """A loss as text, never smaller than it is."""
    value = float(value)
    if not math.isfinite(value):
        return f"{value:g}"
    return _rounded(Decimal(repr(max(value, _SMALLEST) if value > 0 else value)), digits, ROUND_CEILING)


def round_down(value: float, digits: int = 4) -> str:
    """A lower bound as text, never larger than it is: what an audit has shown, or a limit that must not be passed."""
    value = float(value)
    if not math.isfinite(value):
        return f"{value:g}"
    return _rounded(Decimal(repr(0.0 if 0 < value < _SMALLEST else value)), digits, ROUND_FLOOR)


def loss(value: Any) -> str:
    """`round_up` of a number; what is not a number, as it is, for texts about parameters that nobody has checked yet."""
    number = _number(value)
    return repr(value) if number is None else round_up(number)


def exact(value: float) -> str:
    """A number that a person chose, in as many digits as it takes."""
    text = f"{value:g}"
    return text if float(text) == value else repr(float(value))


def percent_up(share: Any, digits: int = 4) -> str:
    """A share as a percentage, never smaller than it is: an honest fraction that a proof needs, or the chance of a right guess."""
    number = _number(share)
    if number is None or not math.isfinite(number):
        return repr(share)
    exactly = 100 * Decimal(repr(max(number, _SMALLEST)))
    return f"{_rounded(min(exactly, Decimal(100)), digits, ROUND_CEILING)} %"


def factor_up(epsilon: float, digits: int = 3) -> str:
    """e^epsilon as text, never smaller than it is."""
    precise = Context(prec=_DIGITS_OF_EXP)
    exponential = precise.exp(Decimal(repr(float(epsilon))))  # to nearest, so that the next number is above e^epsilon
    if epsilon != 0:
        exponential = precise.next_plus(exponential)
    factor = Context(prec=digits, rounding=ROUND_CEILING).create_decimal(exponential)
    return f"{factor:,f}" if factor < 10**6 and factor == factor.to_integral_value() else _rounded(factor, digits, ROUND_CEILING)


def one_in(delta: float) -> str:
    """A probability as "1 in so many", never smaller than it is, and no smaller than `round_up` prints it."""
    return f"1 in {int((1 / Decimal(round_up(delta))).to_integral_value(ROUND_FLOOR)):,}"


def _rounded(value: Decimal, digits: int, way: str) -> str:
    return f"{float(Context(prec=digits, rounding=way).create_decimal(value)):.{digits}g}"


def _number(value: Any) -> float | None:
    """The value of a number, of numpy's too; None for anything else."""
    try:
        return None if isinstance(value, bool | str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError):
        return None
