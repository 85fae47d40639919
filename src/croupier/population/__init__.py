"""Who answers: users in memory, in files, on a cluster, behind one interface that optimizers use."""

from .arrays import ArrayPopulation
from .blocks import Block, BlockPopulation
from .deal import Batch, Order, deal
from .population import Population, Query, Question, UnreachableError
from .records import Records

__all__ = [
    "ArrayPopulation",
    "Batch",
    "Block",
    "BlockPopulation",
    "Order",
    "Population",
    "Query",
    "Question",
    "Records",
    "UnreachableError",
    "deal",
]
