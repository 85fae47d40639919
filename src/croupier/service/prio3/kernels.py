"""The compiled path (extra `fast`), where numba is installed and works: the same bits as the plain one, sooner."""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

# Elements that the plain path works on in the time that it takes to load numba: those of some thousand short reports.
PATIENCE = 2_000_000


class CompiledKernels(Protocol):
    """What `compiled` offers; see there."""

    def gadget_values(self, meas: Any, seeds: Any, joint: Any, roots: Any, calls: int, shares: int) -> NDArray[np.uint64]:
        """Give the values of the gadget's polynomial that a proof consists of."""

    def queried(self, meas: Any, proofs: Any, points: Any, joint: Any, roots: Any, calls: int, shares: int) -> NDArray[np.uint64]:
        """Give the verifier's values."""

    def truncated(self, meas: Any, weights: Any) -> NDArray[np.uint64]:
        """Give the counts that (shares of) encoded vectors stand for."""


class CompiledSponge(Protocol):
    """What `sponge` offers; see there."""

    def squeezed(self, messages: Any, length: int, below: bool) -> NDArray[np.uint64]:
        """Give the words that TurboSHAKE128 squeezes out of messages."""


@cache
def _compiled() -> Any:
    try:
        compiled = importlib.import_module(f"{__package__}.compiled")
        compiled.squeezed(np.zeros((1, 1), np.uint8), 1, True)
        compiled.truncated(np.zeros((1, 1), np.uint64), np.ones(1, np.uint64))
    except Exception:
        return None
    return compiled if hasattr(compiled.permuted, "signatures") else None


def kernels(fast: bool | None = True, work: int = 0) -> CompiledKernels | None:
    """Return the compiled loops of proofs, where they are wanted."""
    return _compiled() if _wanted(fast, work) else None


def sponge_kernels(fast: bool | None = True, work: int = 0) -> CompiledSponge | None:
    """Return the compiled hash function, where it is wanted."""
    return _compiled() if _wanted(fast, work) else None


class _Done:
    """Elements that this process has worked on."""

    elements = 0


def _wanted(fast: bool | None, work: int) -> bool:
    _Done.elements += work
    return _Done.elements > PATIENCE if fast is None else fast
