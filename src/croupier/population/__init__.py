"""Who answers: users in memory, in files, on a cluster, behind one interface that optimizers use."""

from .arrays import ArrayPopulation
from .blocks import Block, BlockPopulation
from .cluster import RayPopulation
from .deal import Batch, Order, deal
from .parquet import ParquetBlock, ParquetPopulation, row_group_runs
from .population import Population, Query, Question, UnreachableError
from .records import Records

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
    "UnreachableError",
    "deal",
    "row_group_runs",
]
