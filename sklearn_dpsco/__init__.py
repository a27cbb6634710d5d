"""scikit-learn compatible linear models trained under differential privacy."""

from .compilation import compile_kernels
from .estimators.checks import expected_failed_checks
from .estimators.counts import DPGammaRegressor, DPPoissonRegressor, DPTweedieRegressor
from .estimators.heavy_tail import HeavyTailDPClassifier, HeavyTailDPRegressor
from .estimators.lasso import DPLassoFW, DPLassoFWClassifier
from .estimators.mirror import (
    DPLinearRegression,
    DPLogisticRegression,
    DPMirrorClassifier,
    DPMirrorRegressor,
)
from .estimators.phased import DPPhasedSGDClassifier, DPPhasedSGDRegressor
from .estimators.streaming import DPFTRLClassifier, DPFTRLRegressor
from .exceptions import (
    BlocksChangedError,
    BoundsNotDeclaredWarning,
    PrivacyBudgetError,
    PrivacyLeakWarning,
    PrivacyParameterWarning,
    TasksLostError,
)
from .inspection.budgets import LedgerDisplay, PlanDisplay, TradeoffCurveDisplay
from .inspection.calibration import CalibrationDisplay
from .inspection.models import (
    CoefficientDisplay,
    PrivacyUtilityDisplay,
    coef_frame,
    predict_interval,
)
from .inspection.power import PowerDisplay, epsilon_needed, rows_needed
from .inspection.survival import survival_curve
from .metrics import DPScore, dp_score, plan_score
from .model_selection import DPGridSearchCV, DPRandomizedSearchCV
from .moments import PrivateMoments
from .preprocessing.encoder import PublicEncoder
from .preprocessing.leaks import LeakFinding, LeakReport, check_pipeline
from .preprocessing.person_periods import person_periods
from .preprocessing.quantiles import plan_private_bounds, private_bounds
from .preprocessing.scaler import DPScaler
from .preprocessing.vocabulary import PrivateVocabulary
from .privacy.accountant import BudgetAccountant
from .privacy.budget import PrivacyBudget
from .privacy.guarantee import Guarantee

__version__ = "0.1.0"

__all__ = [
    "BlocksChangedError",
    "BoundsNotDeclaredWarning",
    "BudgetAccountant",
    "CalibrationDisplay",
    "CoefficientDisplay",
    "DPFTRLClassifier",
    "DPFTRLRegressor",
    "DPGammaRegressor",
    "DPGridSearchCV",
    "DPLassoFW",
    "DPLassoFWClassifier",
    "DPLinearRegression",
    "DPLogisticRegression",
    "DPMirrorClassifier",
    "DPMirrorRegressor",
    "DPPhasedSGDClassifier",
    "DPPhasedSGDRegressor",
    "DPPoissonRegressor",
    "DPRandomizedSearchCV",
    "DPScaler",
    "DPScore",
    "DPTweedieRegressor",
    "Guarantee",
    "HeavyTailDPClassifier",
    "HeavyTailDPRegressor",
    "LeakFinding",
    "LeakReport",
    "LedgerDisplay",
    "PlanDisplay",
    "PowerDisplay",
    "PrivacyBudget",
    "PrivacyBudgetError",
    "PrivacyLeakWarning",
    "PrivacyParameterWarning",
    "PrivacyUtilityDisplay",
    "PrivateMoments",
    "PrivateVocabulary",
    "PublicEncoder",
    "TasksLostError",
    "TradeoffCurveDisplay",
    "__version__",
    "check_pipeline",
    "coef_frame",
    "compile_kernels",
    "dp_score",
    "epsilon_needed",
    "expected_failed_checks",
    "person_periods",
    "plan_private_bounds",
    "plan_score",
    "predict_interval",
    "private_bounds",
    "rows_needed",
    "survival_curve",
]
