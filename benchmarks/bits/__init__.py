"""What a person sends: bits of a report with and without a rotation, and what they do to a model's accuracy.

Models are fitted by secret lots at epsilon 1, delta 1e-6, replace-one, with the defaults, beside the same fit without a rotation
and with the limit on noise that was the default before (1.05), in the same run; accuracies are those of test rows, medians of
--seeds fits. Sums are plans: bits per coordinate, padding included. A verified sum's length is the whole report's. Exits with 1
where reports are longer, or models worse, than was asked for. --quick: plans alone.
"""

from __future__ import annotations

from ..protocol import no_figures as figures
from .measuring import measure, options
from .writing import judge, page

__all__ = ["figures", "judge", "measure", "options", "page"]
