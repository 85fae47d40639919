"""User-defined losses: their author is responsible for gradients and constants."""

from __future__ import annotations

import functools
import hashlib
import math
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..validation import ArgumentError, real
from .domains import Domain, Floats

# What a function of one's own is, as text: enough to notice that it has changed between two processes.

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


@dataclass(frozen=True)
class CustomProblem:
    """Bring your own loss: a function from (theta, X, y) to one gradient per user, and its constants.

    The constants are yours to prove; `check` samples for violations.

    Parameters
    ----------
    gradient : callable
        From (theta, X, y) to an array of shape (users, dim), one gradient per record. It must map each record alone.
    domain : Domain
        Where theta may lie.
    lipschitz : float
        A bound on the l2 norm of a user's gradient, above 0. Longer gradients are clipped to it.
    smoothness : float or None, default None
        A bound on how fast a user's gradient changes, above 0; None for a nonsmooth loss.
    strong_convexity : float, default 0.0
        How strongly convex a user's loss is at least: 0 to smoothness.
    value : callable or None, default None
        From (theta, X, y) to an array of shape (users,), one loss per record: for `check`, which then compares it with gradients.

    Raises
    ------
    ArgumentError
        If a constant is out of its range.

    Guarantee
    ---------
    Privacy does not depend on the constants: gradients are clipped to `lipschitz`. It does depend on `gradient` mapping each
    record alone.

    Examples
    --------
    >>> import numpy as np
    >>> from croupier.problem import Ball, CustomProblem
    >>> problem = CustomProblem(lambda theta, X, y: theta - X, Ball(dim=2, radius=1.0), lipschitz=2.0, smoothness=1.0)
    >>> problem.gradients(np.zeros(2), np.array([[0.5, -0.5]]), None).tolist()
    [[-0.5, 0.5]]
    """

    gradient: Callable[[Floats, Any, Any], Floats]
    domain: Domain
    lipschitz: float
    smoothness: float | None = None
    strong_convexity: float = 0.0
    value: Callable[[Floats, Any, Any], Floats] | None = None

    def __post_init__(self) -> None:
        real("lipschitz", self.lipschitz, above=0, remedy="State a bound on the l2 norm of a user's gradient.")
        if self.smoothness is not None:
            real("smoothness", self.smoothness, above=0, remedy="Leave it out for a nonsmooth loss.")
        most = math.inf if self.smoothness is None else self.smoothness
        real(
            "strong_convexity",
            self.strong_convexity,
            at_least=0,
            at_most=most,
            remedy="0 is plain convex; no more than smoothness.",
        )

    @property
    def fingerprint(self) -> str:
        """Tells this problem from others, in any process."""
        constants = self.lipschitz, self.smoothness, self.strong_convexity
        return f"own loss {fingerprint(self.gradient)} over {self.domain!r}, {constants}"

    @property
    def dim(self) -> int:
        """The number of parameters."""
        return self.domain.dim

    def gradients(self, theta: Floats, X: Any, y: Any) -> Floats:
        """Call `gradient`, and refuse what is not one gradient per record.

        Parameters
        ----------
        theta : numpy.ndarray of shape (dim,)
            The parameters.
        X, y : array_like
            The records, as `gradient` takes them.

        Returns
        -------
        numpy.ndarray of shape (users, dim)
            One gradient per user.

        Raises
        ------
        ArgumentError
            If the gradients have another shape.
        """
        rows = np.asarray(self.gradient(theta, X, y), dtype=np.float64)
        if rows.ndim != 2 or rows.shape != (np.shape(X)[0], self.dim):
            allowed = f"({np.shape(X)[0]}, {self.dim})"
            raise ArgumentError("gradient(theta, X, y).shape", rows.shape, allowed, "Return one gradient per record.")
        return rows
