"""Many users: throughput of a private round against plain numpy, locally and on Ray, with overhead, memory and growth.

A round asks all users for their logistic gradients. Records are generated, except for one folder of Parquet files. The variants of
a cell take turns in one process of its own, and what is said of them are medians and ratios: absolute times depend on the machine.
Exits with 1 where one of the limits in `judging` is missed.
"""

from __future__ import annotations

from ..protocol import no_options as options
from .drawing import figures
from .judging import judge
from .measuring import measure
from .writing import page

__all__ = ["figures", "judge", "measure", "options", "page"]
