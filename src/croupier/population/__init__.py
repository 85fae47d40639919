"""Who answers: users in memory, in files, on a cluster, behind one interface that optimizers use."""

from typing import TYPE_CHECKING, Any

from .arrays import ArrayPopulation
from .cluster import RayPopulation
from .population import Population, Query, WorkerError

if TYPE_CHECKING:
    from .parquet import ParquetPopulation

__all__ = [
    "ArrayPopulation",
    "ParquetPopulation",
    "Population",
    "Query",
    "RayPopulation",
    "WorkerError",
]


def __getattr__(name: str) -> Any:
    """Files need Arrow, which a device that takes part has no use for: it is loaded when it is asked for."""
    if name == "ParquetPopulation":
        from . import parquet  # noqa: PLC0415

        return parquet.ParquetPopulation
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
