"""What a fit makes of y: targets for each model, and coefficients in the user's terms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._checks import shown
from ..data.bounds import TargetScaling
from ..data.records import is_missing
from ..solvers.base import SolverResult

__all__ = ["Labels", "Numbers", "check_classes", "n_models_of"]

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Numbers:
    """Targets of a regression, and the public map that scales them."""

    y: Array
    scaling: TargetScaling

    @property
    def n_models(self) -> int:
        return 1

    @property
    def attributes(self) -> dict[str, Any]:
        """What is public of the targets."""
        return {}

    @cached_property
    def is_empty(self) -> Flags:
        """Flags the records whose target is invalid."""
        return is_missing(self.y)

    def scaled(self) -> list[Array]:
        """In [-1, 1] for each model; 0 for an invalid one."""
        return [np.where(self.is_empty, 0.0, self.scaling.transform(self.y))]

    def model(self, results: Sequence[SolverResult]) -> dict[str, Any]:
        """Coefficients in the user's units."""
        coef, intercept = self.scaling.unscale(results[0].coef, results[0].intercept)
        return {"coef_": coef, "intercept_": intercept}


@dataclass(frozen=True)
class Labels:
    """Labels by their position among the sorted classes, -1 for one that is not among them."""

    codes: NDArray[np.int_]
    classes: NDArray[Any]

    @property
    def n_models(self) -> int:
        return n_models_of(self.classes.size)

    @property
    def attributes(self) -> dict[str, Any]:
        """What is public of the labels."""
        return {"classes_": self.classes}

    @cached_property
    def is_empty(self) -> Flags:
        """Flags the records whose label is invalid."""
        return self.codes < 0

    def scaled(self) -> list[Array]:
        """+1 for one class and -1 for the rest, for each model."""
        positives = range(self.classes.size) if self.classes.size > 2 else [1]
        return [np.where(self.codes == code, 1.0, -1.0) for code in positives]

    def model(self, results: Sequence[SolverResult]) -> dict[str, Any]:
        """Coefficients with a row for each model."""
        return {
            "coef_": np.array([result.coef for result in results]),
            "intercept_": np.array([result.intercept for result in results]),
        }


def n_models_of(n_classes: int) -> int:
    """How many models tell so many classes apart."""
    return 1 if n_classes == 2 else n_classes


def check_classes(classes: Any) -> NDArray[Any]:
    """The declared labels, sorted."""
    try:
        declared = np.unique(np.asarray(classes))
    except TypeError:
        raise ValueError(f"classes must be of one kind, got {shown(classes)}") from None
    if np.ndim(classes) != 1 or declared.size != len(classes) or declared.size < 2:
        raise ValueError(
            f"classes must be None or a list of at least two different labels, got {shown(classes)}"
        )
    return declared
