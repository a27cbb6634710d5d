"""What a fit makes of y: targets for each model, and coefficients in the user's terms."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._checks import check_size, shown
from ..data.bounds import TargetScaling
from ..data.cells import check_classes, is_missing
from ..solvers.base import SolverResult

__all__ = [
    "Labels",
    "Numbers",
    "check_class_weight",
    "check_classes",
    "class_weights",
    "n_outputs_of",
    "n_targets_of",
]

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Numbers:
    """Targets of a regression, shape (n,) or (n, n_targets), and their public scaling."""

    y: Array
    scaling: TargetScaling
    class_weight: None = None
    record_weight: None = None

    @property
    def n_outputs(self) -> int:
        return n_targets_of(self.y)

    @property
    def attributes(self) -> dict[str, Any]:
        """What is public of the targets."""
        return {}

    @cached_property
    def is_empty(self) -> Flags:
        """Flags the records whose target is invalid."""
        columns = self.y if self.y.ndim == 2 else self.y[:, None]
        return np.any([is_missing(column) for column in columns.T], axis=0)

    def without_records(self) -> Numbers:
        """What is public of the targets."""
        return replace(self, y=self.y[:0])

    def scaled(self) -> Array:
        """In [-1, 1]; 0 for an invalid record. Several targets have a column each."""
        scaled = self.scaling.transform(self.y)
        scaled[self.is_empty] = 0.0
        return scaled.ravel() if self.n_outputs == 1 else scaled

    def model(self, result: SolverResult) -> dict[str, Any]:
        """Coefficients in the user's units; if y is a matrix, with a row for each target."""
        coef, intercept = self.scaling.unscale(result.coef, result.intercept)
        if self.y.ndim == 2:
            coef, intercept = np.atleast_2d(coef), np.atleast_1d(intercept)
        return {"coef_": coef, "intercept_": intercept}


@dataclass(frozen=True)
class Labels:
    """Labels by their position among the sorted classes, -1 for one that is not among them.

    `class_weight` is that of `solvers.base.Problem`.
    """

    codes: NDArray[np.int_]
    classes: NDArray[Any]
    class_weight: tuple[float, ...] | str | None = None

    @property
    def record_weight(self) -> Array | None:
        """The declared weight of each record's class, 0 for none; None without such weights."""
        if not isinstance(self.class_weight, tuple):
            return None
        return np.array([*self.class_weight, 0.0])[self.codes]

    @property
    def n_outputs(self) -> int:
        return n_outputs_of(self.classes.size)

    @property
    def attributes(self) -> dict[str, Any]:
        """What is public of the labels."""
        return {"classes_": self.classes}

    @cached_property
    def is_empty(self) -> Flags:
        """Flags the records whose label is invalid."""
        return self.codes < 0

    def without_records(self) -> Labels:
        """What is public of the labels."""
        return replace(self, codes=self.codes[:0])

    def scaled(self) -> Array:
        """+1 for the second of two classes and -1 for the first, of several a column for each."""
        if self.classes.size == 2:
            return np.where(self.codes == 1, 1.0, -1.0)
        return np.where(self.codes[:, None] == np.arange(self.classes.size), 1.0, -1.0)

    def model(self, result: SolverResult) -> dict[str, Any]:
        """Coefficients with a row for each output."""
        return {
            "coef_": np.atleast_2d(result.coef),
            "intercept_": np.atleast_1d(result.intercept),
        }


def n_targets_of(y: Array) -> int:
    """Number of columns."""
    return 1 if y.ndim == 1 else y.shape[1]


def n_outputs_of(n_classes: int) -> int:
    """How many outputs tell so many classes apart."""
    return 1 if n_classes == 2 else n_classes


def check_class_weight(class_weight: Any) -> None:
    """Raise unless it is None, "balanced" or a dict of weights of at least 0, not all 0."""
    if class_weight is None or (isinstance(class_weight, str) and class_weight == "balanced"):
        return
    if not isinstance(class_weight, dict):
        raise ValueError(
            "class_weight must be None, 'balanced' or a dict {label: weight}, got "
            f"{shown(class_weight)}"
        )
    for label, weight in class_weight.items():
        check_size(f"class_weight[{shown(label)}]", weight, low=0)


def class_weights(class_weight: Any, classes: NDArray[Any]) -> tuple[float, ...] | str | None:
    """The weights of the sorted classes over the largest, 1 before that for one without any.

    "balanced" stays as it is, and None stands for equal weights.
    """
    if class_weight is None or class_weight == "balanced":
        return None if class_weight is None else "balanced"
    labels = classes.tolist()
    unknown = [label for label in class_weight if label not in labels]
    if unknown:
        raise ValueError(
            f"class_weight has labels that are not among the classes: {shown(unknown)}"
        )
    weights = [float(class_weight.get(label, 1.0)) for label in labels]
    largest = max(weights)
    if largest == 0:
        raise ValueError("class_weight must be positive for at least one class, got 0 for all")
    return None if min(weights) == largest else tuple(weight / largest for weight in weights)
