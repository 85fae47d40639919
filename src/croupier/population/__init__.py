"""Who answers: users in memory, behind one interface that optimizers use."""

from .arrays import ArrayPopulation
from .population import Population, Query

__all__ = ["ArrayPopulation", "Population", "Query"]
