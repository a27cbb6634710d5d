"""scikit-learn compatible linear models trained under differential privacy."""

from .accounting import Guarantee, PrivacyBudget
from .estimators.lasso import DPLassoFW, DPLassoFWClassifier
from .exceptions import BoundsNotDeclaredWarning, PrivacyLeakWarning, PrivacyParameterWarning

__version__ = "0.1.0.dev0"

__all__ = [
    "BoundsNotDeclaredWarning",
    "DPLassoFW",
    "DPLassoFWClassifier",
    "Guarantee",
    "PrivacyBudget",
    "PrivacyLeakWarning",
    "PrivacyParameterWarning",
    "__version__",
]
