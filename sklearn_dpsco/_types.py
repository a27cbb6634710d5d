"""Arrays, and what parameters of several signatures may be; tests hold the checks to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

# as all modules call them
AnyArray = NDArray[Any]
Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
Indices = NDArray[np.intp]
Integers = NDArray[np.int64]
Words = NDArray[np.uint64]
Which = slice | Indices

Auto = Literal["auto"]
Relation = Literal["replace-one", "zero-out"]
Precision = Literal["exact", "float"]
Nonfinite = Literal["raise", "zero"]
Disjoint = Literal["rows", "users"]
RandomState = int | np.random.RandomState | None


class Declaring(Protocol):
    """A transformer, of which estimators take what it declares of its outputs."""

    def transform(self, X: Any) -> Any: ...


# pairs (low, high), of scalars or arrays
Bounds = tuple[ArrayLike, ArrayLike] | list[Any] | NDArray[Any]
FeatureBounds = Bounds | Mapping[Any, Any] | Declaring
Magnitude = float | Literal["private"]
Magnitudes = ArrayLike | Mapping[Any, float]
ClassLabels = list[Any] | tuple[Any, ...] | NDArray[Any]
ClassWeight = Mapping[Any, float] | Literal["balanced"]

FrankWolfeSolver = Literal["auto", "selection", "gradient", "rounds", "tree", "spider"]
MirrorSolver = Literal["auto", "descent", "noisy-md", "localized", "proximal", "noisy-sfw"]
HeavyTailSolver = Literal["auto", "descent", "scof", "scof-slices"]
Units = Literal["auto", "bounds", "learned"]
MirrorMapName = Literal["auto", "power", "euclidean", "entropy"]
Oracle = Literal["clipped", "median-of-means", "smoothed", "coordinate-clipped"]

SetName = Literal["l2", "l1", "linf", "simplex"]
MirrorSet = Auto | SetName
PhasedSet = Literal["l2", "unconstrained"]

PhasedRegressionLoss = Literal["squared", "huber", "absolute", "quantile", "epsilon_insensitive"]
RegressionLoss = PhasedRegressionLoss | Literal["welsch", "log_absolute", "mcp_absolute"]
HeavyTailRegressionLoss = Literal["squared", "huber", "welsch"]
PhasedClassificationLoss = Literal["logistic", "smoothed_hinge", "hinge", "squared_hinge"]
ClassificationLoss = PhasedClassificationLoss | Literal["sigmoid"]
HeavyTailClassificationLoss = Literal["logistic", "smoothed_hinge", "squared_hinge", "sigmoid"]

Missing = Literal["middle", "indicator", "zero", "keep"]
Unknown = Literal["none", "other"]
Outside = Literal["clip", "missing"]
Extra = Literal["raise", "drop"]
SearchScoring = Literal[
    "auto", "accuracy", "neg_log_loss", "neg_mean_absolute_error", "neg_mean_squared_error"
]
_LabelScoring = Literal["accuracy", "balanced_accuracy", "confusion_matrix"]
_ProbabilityScoring = Literal[
    "roc_auc",
    "roc_curve",
    "calibration_curve",
    "calibration_in_the_large",
    "neg_brier_score",
    "neg_log_loss",
]
_NumberScoring = Literal[
    "r2", "neg_mean_absolute_error", "neg_mean_squared_error", "mean_bias", "binned_means"
]
Scoring = Literal[_LabelScoring, _ProbabilityScoring, _NumberScoring]
