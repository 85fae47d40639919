"""Which way ShuffleRidge takes: one round of moments beside training in rounds, on synthetic people.

Three kinds of rows of norm 1: in all directions alike, in directions that matter less and less, and tables of numbers and one-hot
categories. R^2 on 20 000 other people, negative ones counted as 0, means of 6 populations of 1000 people, 3 of 10 000, and one
of more; without privacy about 0.5. The noise of the plans is drawn as Gaussian. Cells are gathered by the figure that the rule
looks at: the edge of the moments' noise over the mean eigenvalue that rows of norm 1 can have. --quick: 1000 people, few columns.
"""

from __future__ import annotations

from ..protocol import no_figures as figures
from ..protocol import no_options as options
from .measuring import measure
from .writing import judge, page

__all__ = ["figures", "judge", "measure", "options", "page"]
