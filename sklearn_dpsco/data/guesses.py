"""Public guesses of how large the columns are, in place of bounds.

x becomes (x - center) / scale, where both are guesses of the user, or neutral where the plan
releases them (`solvers.heavy_tail.magnitudes`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from .._checks import SMALLEST, shown
from .bounds import OTHER_COLUMNS, FeatureScaling, TargetScaling
from .cells import check_numbers

__all__ = ["PRIVATE", "check_magnitude", "guessed_feature_scaling", "guessed_target_scaling"]

PRIVATE: Literal["private"] = "private"


def check_magnitude(name: str, value: Any, *, positive: bool) -> None:
    """Raise unless `value` is "private", or in range: a number, an array, or a dict of numbers."""
    if isinstance(value, Mapping):
        for column, number in value.items():
            if isinstance(number, (str, Mapping)) or np.ndim(number) != 0:
                raise ValueError(f"{name}[{column!r}] must be a number, got {shown(number)}")
            check_magnitude(f"{name}[{column!r}]", number, positive=positive)
    elif isinstance(value, str):
        if value != PRIVATE:
            raise ValueError(f"{name} must be 'private' or numbers, got {shown(value)}")
    elif check_numbers(name, value, **({"low": SMALLEST} if positive else {})).ndim > 1:
        raise ValueError(
            f"{name} must be 'private', a scalar or one number for each column, got {shown(value)}"
        )


def guessed_feature_scaling(center: Any, scale: Any, n_features: int) -> FeatureScaling:
    """The map without bounds that guesses make, of which "private" ones are left to the plan."""
    columns = []
    for name, value, neutral in (("center_X", center, 0.0), ("scale_X", scale, 1.0)):
        array = np.asarray(neutral if isinstance(value, str) else value, dtype=np.float64)
        if array.ndim == 1 and array.size != n_features:
            raise ValueError(
                f"{name} must hold a scalar or {n_features} numbers, got {array.size}. "
                f"{OTHER_COLUMNS}"
            )
        columns.append(np.broadcast_to(array, (n_features,)).copy())
    infinite = np.full(n_features, np.inf)
    return FeatureScaling(-infinite, infinite, *columns)


def guessed_target_scaling(center: Any, scale: Any) -> TargetScaling:
    """The same for the target."""
    middle = 0.0 if isinstance(center, str) else float(center)
    half = 1.0 if isinstance(scale, str) else float(scale)
    return TargetScaling(-math.inf, math.inf, middle, half)
