"""scikit-learn's face: estimators whose fit is a private training run, a private scaler, and an account of what fits spend."""

from .account import BudgetWarning, PrivacyAccount
from .classifiers import ShuffleLinearSVC, ShuffleLogisticRegression
from .files import load_model
from .logit import ShuffleLogit
from .private import PublicDataWarning, WeakPrivacyWarning
from .regression import ShuffleLinearRegression
from .regression_table import RegressionTable, WideIntervalsWarning, WidthForecast
from .regressors import ShuffleHuberRegressor, ShuffleQuantileRegressor
from .ridge import ShuffleRidge
from .scaler import ShuffleScaler
from .total import total_guarantee
from .warnings import FeatureNormWarning, FewPeopleWarning, MostlyNoiseWarning, RadiusWarning

__all__ = [
    "BudgetWarning",
    "FeatureNormWarning",
    "FewPeopleWarning",
    "MostlyNoiseWarning",
    "PrivacyAccount",
    "PublicDataWarning",
    "RadiusWarning",
    "RegressionTable",
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
    "WidthForecast",
    "load_model",
    "total_guarantee",
]
