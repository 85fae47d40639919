"""What is promised: guarantees, the Gaussian-dominance certificate, and the plans that rest on them."""

from ..validation import ArgumentError
from ._rounding import round_up
from .allocation import Allocation
from .calibration import is_proved, plan_scalar_sum, plan_sum
from .certificate import Certificate, NoCertificateError, certify
from .crowd import cheats_in_round, honest_in_batch, overflow, round_size, smallest_batch
from .gaussian import central_noise_std, gaussian_delta, gaussian_mu
from .guarantee import Guarantee
from .lots import LotsPlan, plan_lots
from .plan import SumPlan, default_delta

__all__ = [
    "Allocation",
    "ArgumentError",
    "Certificate",
    "Guarantee",
    "LotsPlan",
    "NoCertificateError",
    "SumPlan",
    "central_noise_std",
    "certify",
    "cheats_in_round",
    "default_delta",
    "gaussian_delta",
    "gaussian_mu",
    "honest_in_batch",
    "is_proved",
    "overflow",
    "plan_lots",
    "plan_scalar_sum",
    "plan_sum",
    "round_size",
    "round_up",
    "smallest_batch",
]
