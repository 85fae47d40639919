"""What a function of one's own is, as text: enough to notice that it has changed between two processes."""

from __future__ import annotations

import functools
import hashlib
from types import CodeType
from typing import Any

import numpy as np


def fingerprint(function: Any) -> str:
    """A digest of a function's name, code, defaults and what it encloses. Globals that it uses are not looked into."""
    return hashlib.sha256(repr(_described(function)).encode()).hexdigest()[:32]


def _described(value: Any) -> Any:
    """The value as plain data whose repr is the same in every process."""
    if isinstance(value, functools.partial):
        return "partial", _described(value.func), _described(value.args), _described(sorted(value.keywords.items()))
    if isinstance(value, CodeType):
        return value.co_name, value.co_code, value.co_names, value.co_varnames, _described(value.co_consts)
    if isinstance(value, np.ndarray | np.generic):
        return str(value.dtype), value.shape, hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
    if isinstance(value, tuple | list):
        return type(value).__name__, [_described(entry) for entry in value]
    if isinstance(value, frozenset | set):
        return type(value).__name__, sorted(repr(_described(entry)) for entry in value)
    if isinstance(value, dict):
        return "dict", [(repr(key), _described(entry)) for key, entry in value.items()]
    if hasattr(value, "__code__"):
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        bound = _described(getattr(value, "__self__", None))
        named = value.__module__, value.__qualname__
        return named, _described(value.__code__), _described(value.__defaults__ or ()), _described(cells), bound
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        return value
    state = getattr(value, "__dict__", None)
    return type(value).__module__, type(value).__qualname__, None if state is None else _described(dict(state))
