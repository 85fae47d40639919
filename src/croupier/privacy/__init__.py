"""What is promised: guarantees, the Gaussian-dominance certificate, and the plans that rest on them."""

from ..validation import ArgumentError
from .calibration import is_proved, plan_scalar_sum, plan_sum
from .certificate import Certificate, NoCertificateError, certify
from .crowd import honest_in_batch
from .gaussian import central_noise_std, gaussian_delta, gaussian_mu
from .guarantee import Guarantee
from .plan import SumPlan
from .rounding import round_up

__all__ = [
    "ArgumentError",
    "Certificate",
    "Guarantee",
    "NoCertificateError",
    "SumPlan",
    "central_noise_std",
    "certify",
    "gaussian_delta",
    "gaussian_mu",
    "honest_in_batch",
    "is_proved",
    "plan_scalar_sum",
    "plan_sum",
    "round_up",
]
