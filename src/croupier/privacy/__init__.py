"""What is promised: guarantees, the Gaussian-dominance certificate, and the plans that rest on them."""

from ..validation import ArgumentError
from .calibration import plan_scalar_sum, plan_sum
from .certificate import Certificate, NoCertificateError, certify
from .gaussian import central_noise_std
from .guarantee import Guarantee
from .lots import LotsPlan, plan_lots
from .plan import SumPlan

__all__ = [
    "ArgumentError",
    "Certificate",
    "Guarantee",
    "LotsPlan",
    "NoCertificateError",
    "SumPlan",
    "central_noise_std",
    "certify",
    "plan_lots",
    "plan_scalar_sum",
    "plan_sum",
]
