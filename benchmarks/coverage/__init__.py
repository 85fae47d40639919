"""How often 95 % intervals of regressions in secret rounds hold the truth, on synthetic populations and on real tables.

--data is a folder with adult.npz, covtype.npz and load.py. Every fit draws people with replacement from a population whose
least-squares or logistic coefficients are known; the noise of the plans is drawn as Gaussian. epsilon = 1, delta = 1e-6, nothing
tuned. --quick: few fits.
"""

from __future__ import annotations

from ..protocol import no_figures as figures
from .measuring import measure, options
from .writing import judge, page

__all__ = ["figures", "judge", "measure", "options", "page"]
