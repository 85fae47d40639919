"""What a function of one's own is, as text: enough to notice that it has changed between two processes."""

from __future__ import annotations

import functools
import hashlib
import types
from typing import Any

import numpy as np

# Classes whose code is not looked into: it changes with a release, not between two runs of a program.
_OWN = __name__.partition(".")[0]
_ON_HEAP = 1 << 9
_KNOWN = ("builtins", "abc", "typing", "numpy", "scipy", "functools", _OWN)


class UndescribableError(TypeError):
    """A value whose content cannot be seen, so that a change of it would go unnoticed."""


def fingerprint(function: Any) -> str:
    """A digest of a function's code and defaults, of what it encloses, and of the code of classes that it is a method of.

    Globals that it uses are not looked into.
    """
    return hashlib.sha256(repr(_described(function, {})).encode()).hexdigest()[:32]


def is_known(kind: type) -> bool:
    return kind.__module__.partition(".")[0] in _KNOWN


def _described(value: Any, seen: dict[int, tuple[int, Any]]) -> Any:  # noqa: PLR0912  (a table of cases)
    """The value as plain data whose repr is the same in every process; what was seen before, by its number."""
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        return value
    if isinstance(value, np.ndarray | np.generic) and not value.dtype.hasobject:
        return str(value.dtype), value.shape, hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
    if id(value) in seen:
        return "seen", seen[id(value)][0]
    seen[id(value)] = len(seen), value  # kept, so that no other takes its place in memory
    inside = functools.partial(_described, seen=seen)
    if isinstance(value, tuple | list | np.ndarray):
        return type(value).__name__, [inside(entry) for entry in value]
    if isinstance(value, frozenset | set):
        return type(value).__name__, sorted(repr(_described(entry, {})) for entry in value)
    if isinstance(value, dict | types.MappingProxyType):
        return "dict", [(repr(_described(key, {})), inside(entry)) for key, entry in value.items()]
    if isinstance(value, functools.partial):
        return "partial", inside(value.func), inside(value.args), inside(value.keywords)
    if isinstance(value, types.CodeType):
        return value.co_name, value.co_code, value.co_names, value.co_varnames, inside(value.co_consts)
    if isinstance(value, types.MethodType):
        return "method", inside(value.__func__), inside(value.__self__)
    if isinstance(value, types.FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        return value.__qualname__, inside(value.__code__), inside(value.__defaults__), inside(value.__kwdefaults__), inside(cells)
    if isinstance(value, types.BuiltinFunctionType | types.ModuleType | np.ufunc):
        return type(value).__name__, str(getattr(value, "__module__", "")), value.__name__
    if isinstance(value, property | classmethod | staticmethod):
        return type(value).__name__, [inside(getattr(value, name, None)) for name in ("fget", "__func__")]
    if isinstance(value, type):
        return _described_class(value, seen)
    return "object", _described_class(type(value), seen), [(name, inside(entry)) for name, entry in _state(value)]


def _described_class(kind: type, seen: dict[int, tuple[int, Any]]) -> Any:
    """Names, and the code of classes that are the user's own."""
    own = [base for base in kind.__mro__ if not is_known(base)]
    code = [
        (name, _described(member, seen))
        for base in own
        for name, member in vars(base).items()
        if isinstance(member, types.FunctionType | property | classmethod | staticmethod)
    ]
    return kind.__module__, kind.__qualname__, code


def _state(value: Any) -> list[tuple[str, Any]]:
    """The attributes of an object; refused where it may have others that cannot be seen."""
    kinds = [base for base in type(value).__mro__ if base is not object]
    # A class written in Python is on the heap, and has a dictionary or slots; others may keep things where nobody sees them.
    if not all(base.__flags__ & _ON_HEAP and ("__slots__" in vars(base) or hasattr(value, "__dict__")) for base in kinds):
        raise UndescribableError(f"a {type(value).__module__}.{type(value).__qualname__}")
    slots = [(name, getattr(value, name)) for base in kinds for name in _slots(base) if hasattr(value, name)]
    return [*getattr(value, "__dict__", {}).items(), *slots]


def _slots(base: type) -> tuple[str, ...]:
    named = vars(base).get("__slots__", ())
    names = (named,) if isinstance(named, str) else tuple(named)
    return tuple(name for name in names if name not in ("__dict__", "__weakref__"))
