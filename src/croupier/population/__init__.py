"""Who answers: users in memory, in files, on a cluster, behind one interface that optimizers use."""

from typing import TYPE_CHECKING, Any

from .arrays import ArrayPopulation
from .blocks import Block, BlockPopulation
from .cluster import RayPopulation
from .deal import Batch, Order, deal
from .population import Population, Query, Question, UnreachableError, WorkerError
from .records import Records
from .surrogate import SurrogatePopulation

if TYPE_CHECKING:
    from .parquet import ParquetBlock, ParquetPopulation, row_group_runs

__all__ = [
    "ArrayPopulation",
    "Batch",
    "Block",
    "BlockPopulation",
    "Order",
    "ParquetBlock",
    "ParquetPopulation",
    "Population",
    "Query",
    "Question",
    "RayPopulation",
    "Records",
    "SurrogatePopulation",
    "UnreachableError",
    "WorkerError",
    "deal",
    "row_group_runs",
]


def __getattr__(name: str) -> Any:
    """Files need Arrow, which a device that takes part has no use for: it is loaded when it is asked for."""
    if name in ("ParquetBlock", "ParquetPopulation", "row_group_runs"):
        from . import parquet  # noqa: PLC0415

        return getattr(parquet, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
