"""The scikit-learn API: estimators whose fit is a private training run, a private scaler, and an account of what fits spend."""

from .account import BudgetWarning, PrivacyAccount, total_guarantee
from .choosing import choose
from .classification import ShuffleLinearSVC, ShuffleLogisticRegression
from .files import load_model
from .inference import ShuffleLinearRegression, ShuffleLogit
from .intervals import WideIntervalsWarning
from .regression import ShuffleHuberRegressor, ShuffleQuantileRegressor, ShuffleRidge
from .scaler import ShuffleScaler
from .warnings import (
    FeatureNormWarning,
    FewPeopleWarning,
    MostlyNoiseWarning,
    PublicDataWarning,
    RadiusWarning,
    WeakPrivacyWarning,
)

__all__ = [
    "BudgetWarning",
    "FeatureNormWarning",
    "FewPeopleWarning",
    "MostlyNoiseWarning",
    "PrivacyAccount",
    "PublicDataWarning",
    "RadiusWarning",
    "ShuffleHuberRegressor",
    "ShuffleLinearRegression",
    "ShuffleLinearSVC",
    "ShuffleLogisticRegression",
    "ShuffleLogit",
    "ShuffleQuantileRegressor",
    "ShuffleRidge",
    "ShuffleScaler",
    "WeakPrivacyWarning",
    "WideIntervalsWarning",
    "choose",
    "load_model",
    "total_guarantee",
]
