"""Public feature maps: what a linear model sees of a record, computed on the device without a look at anybody's data."""

from .composition import FeatureMap
from .maps import FourierFeatures, GroupNorm, Projection
from .scattering import Scattering

__all__ = ["FeatureMap", "FourierFeatures", "GroupNorm", "Projection", "Scattering"]
