"""scikit-learn compatible linear models trained under differential privacy."""

from .accounting import BudgetAccountant, Guarantee, PrivacyBudget
from .estimators.lasso import DPLassoFW, DPLassoFWClassifier
from .exceptions import (
    BoundsNotDeclaredWarning,
    PrivacyBudgetError,
    PrivacyLeakWarning,
    PrivacyParameterWarning,
)

__version__ = "0.1.0.dev0"

__all__ = [
    "BoundsNotDeclaredWarning",
    "BudgetAccountant",
    "DPLassoFW",
    "DPLassoFWClassifier",
    "Guarantee",
    "PrivacyBudget",
    "PrivacyBudgetError",
    "PrivacyLeakWarning",
    "PrivacyParameterWarning",
    "__version__",
]
