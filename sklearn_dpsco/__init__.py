"""scikit-learn compatible linear models trained under differential privacy."""

from .estimators.heavy_tail import HeavyTailDPClassifier, HeavyTailDPRegressor
from .estimators.lasso import DPLassoFW, DPLassoFWClassifier
from .estimators.mirror import DPMirrorClassifier, DPMirrorRegressor
from .estimators.phased import DPPhasedSGDClassifier, DPPhasedSGDRegressor
from .estimators.streaming import DPFTRLClassifier, DPFTRLRegressor
from .exceptions import (
    BoundsNotDeclaredWarning,
    PrivacyBudgetError,
    PrivacyLeakWarning,
    PrivacyParameterWarning,
)
from .metrics import DPScore, dp_score, plan_score
from .privacy.accountant import BudgetAccountant
from .privacy.budget import PrivacyBudget
from .privacy.guarantee import Guarantee

__version__ = "0.1.0.dev0"

__all__ = [
    "BoundsNotDeclaredWarning",
    "BudgetAccountant",
    "DPFTRLClassifier",
    "DPFTRLRegressor",
    "DPLassoFW",
    "DPLassoFWClassifier",
    "DPMirrorClassifier",
    "DPMirrorRegressor",
    "DPPhasedSGDClassifier",
    "DPPhasedSGDRegressor",
    "DPScore",
    "Guarantee",
    "HeavyTailDPClassifier",
    "HeavyTailDPRegressor",
    "PrivacyBudget",
    "PrivacyBudgetError",
    "PrivacyLeakWarning",
    "PrivacyParameterWarning",
    "__version__",
    "dp_score",
    "plan_score",
]
