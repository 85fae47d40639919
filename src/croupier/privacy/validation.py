"""Checks of arguments, with one wording: the argument, its value, what is allowed, and what to do."""

from __future__ import annotations

import math
import operator
from typing import Any


class ArgumentError(ValueError):
    """An argument outside its allowed range; raised before anything private is touched."""

    def __init__(self, name: str, value: object, allowed: str, remedy: str) -> None:
        self.name, self.value, self.allowed, self.remedy = name, value, allowed, remedy
        super().__init__(f"{name} = {value!r} is not allowed: it must be {allowed}. {remedy}")


def real(
    name: str,
    value: Any,
    *,
    above: float = -math.inf,
    below: float = math.inf,
    at_most: float = math.inf,
    remedy: str,
) -> float:
    """`value` as a finite float with above < value < below and value <= at_most."""
    bounds = [f"greater than {above:g}" for _ in (1,) if above > -math.inf]
    bounds += [f"less than {below:g}" for _ in (1,) if below < math.inf]
    bounds += [f"at most {at_most:g}" for _ in (1,) if at_most < math.inf]
    allowed = " and ".join(["a finite number", *bounds])
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ArgumentError(name, value, allowed, remedy) from None
    if isinstance(value, bool) or not math.isfinite(number) or not (above < number < below and number <= at_most):
        raise ArgumentError(name, value, allowed, remedy)
    return number


def whole(name: str, value: Any, *, at_least: int, at_most: int | None = None, remedy: str) -> int:
    """`value` as an int with at_least <= value <= at_most; 3.0 counts as whole, 3.5 and True do not."""
    allowed = f"a whole number of at least {at_least}" + (f" and at most {at_most}" if at_most is not None else "")
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    try:
        number = operator.index(value)
    except TypeError:
        raise ArgumentError(name, value, allowed, remedy) from None
    if isinstance(value, bool) or number < at_least or (at_most is not None and number > at_most):
        raise ArgumentError(name, value, allowed, remedy)
    return number


def one_of(name: str, value: object, choices: tuple[str, ...], remedy: str) -> str:
    """`value` if it is one of the choices."""
    if not isinstance(value, str) or value not in choices:
        raise ArgumentError(name, value, "one of " + ", ".join(map(repr, choices)), remedy)
    return value
