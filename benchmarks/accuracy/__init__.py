"""Test accuracy of private training on real data sets, and what privacy costs in time.

--data is a folder with `load.py`, which has `load(task)` -> train X, train y, test X, test y, rows of norm 1: tasks adult, covtype,
mnist_odd, mnist10; and `load(task, normalise=False)`, rows by public scales alone, for public feature maps; and covtype.npz, whose
y has the seven classes, those of its n_train training rows first, for few people and rare classes. Every figure is the
median over fits with secure randomness; nothing is tuned but the radius, which is stated. The cost of privacy is the time of a fit
over that of the same schedule in plain numpy, alternating in one run. --quick: sequential runs only, one seed.
"""

from __future__ import annotations

from ..protocol import no_figures as figures
from .judging import judge
from .measuring import measure, options
from .writing import page

__all__ = ["figures", "judge", "measure", "options", "page"]
