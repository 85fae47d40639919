"""Who answers: users in memory, in files, on a cluster, behind one interface that optimizers use."""

from typing import TYPE_CHECKING, Any

from .arrays import ArrayPopulation, SurrogatePopulation
from .blocks import Block, BlockPopulation, CheckedBlock, NamedBlock
from .cluster import RayPopulation
from .dealing import Batch, Order, deal, draw_lots
from .population import (
    ParallelQuery,
    Population,
    ProductQuery,
    Query,
    Question,
    RangedQuery,
    SparseQuery,
    UnreachableError,
    WorkerError,
    require_population,
)
from .records import Records

if TYPE_CHECKING:
    from .parquet import ParquetBlock, ParquetPopulation, row_group_runs

__all__ = [
    "ArrayPopulation",
    "Batch",
    "Block",
    "BlockPopulation",
    "CheckedBlock",
    "NamedBlock",
    "Order",
    "ParallelQuery",
    "ParquetBlock",
    "ParquetPopulation",
    "Population",
    "ProductQuery",
    "Query",
    "Question",
    "RangedQuery",
    "RayPopulation",
    "Records",
    "SparseQuery",
    "SurrogatePopulation",
    "UnreachableError",
    "WorkerError",
    "deal",
    "draw_lots",
    "require_population",
    "row_group_runs",
]


def __getattr__(name: str) -> Any:
    """Files need Arrow, which a device that takes part has no use for: it is loaded when it is asked for."""
    if name in ("ParquetBlock", "ParquetPopulation", "row_group_runs"):
        from . import parquet  # noqa: PLC0415

        return vars(parquet)[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
