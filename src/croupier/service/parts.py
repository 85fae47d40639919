"""Losses and domains on the wire: by the names and parameters of this library."""

from __future__ import annotations

from dataclasses import Field, fields
from typing import Any

from .. import problem as problems
from ..problem import Domain, Loss
from ..validation import ArgumentError


def parameters_of(part: Loss | Domain) -> dict[str, Any]:
    values = {given.name: getattr(part, given.name) for given in _given(type(part))}
    return {"kind": type(part).__name__} | {
        name: parameters_of(value) if isinstance(value, Loss) else value for name, value in values.items()
    }


def named_part(base: type, values: dict[str, Any]) -> Any:
    """One of our losses or domains by its name; nothing else can be named."""
    kind = getattr(problems, str(values["kind"]), None)
    if not isinstance(kind, type) or not issubclass(kind, base) or kind.__name__.startswith("_"):
        raise ArgumentError("kind", values["kind"], f"a {base.__name__.lower()} of this library", "Use the same version.")
    return kind(**{one.name: _value(base, values[one.name]) for one in _given(kind)})


def _value(base: type, value: Any) -> Any:
    """A parameter of a loss or a domain: a number, several, or another one of the same base."""
    if isinstance(value, dict):
        return named_part(base, value)
    return tuple(value) if isinstance(value, list) else value


def _given(kind: Any) -> list[Field[Any]]:
    """What a loss or a domain is made from; what it computes from that does not travel."""
    return [known for known in fields(kind) if known.init]
