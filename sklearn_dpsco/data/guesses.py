"""Public guesses of how large the columns are, in place of bounds.

x becomes (x - center) / scale, where both are guesses of the user, or neutral where the plan
releases them (`solvers.heavy_tail.magnitudes`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from .._checks import SMALLEST, shown
from .bounds import OTHER_COLUMNS, FeatureScaling, TargetScaling
from .cells import check_numbers
from .compressed import canonical, stored_columns, value_parts, with_values

__all__ = ["PRIVATE", "FeatureMagnitudes", "TargetMagnitude", "check_magnitude"]

Array = NDArray[np.float64]

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


def _is_private(value: Any) -> bool:
    return isinstance(value, str)


# ------------------------------------------------------------------------ public guesses


class FeatureMagnitudes(FeatureScaling):
    """The map x -> (x - shift) / width by column, without bounds."""

    @classmethod
    def of(cls, center: Any, scale: Any, n_features: int) -> FeatureMagnitudes:
        """From guesses, of which "private" ones are left to the plan.

        Raises
        ------
        ValueError
            If an array has another length than there are columns.
        """
        columns = []
        for name, value, neutral in (("center_X", center, 0.0), ("scale_X", scale, 1.0)):
            array = np.asarray(neutral if _is_private(value) else value, dtype=np.float64)
            if array.ndim == 1 and array.size != n_features:
                raise ValueError(
                    f"{name} must hold a scalar or {n_features} numbers, got {array.size}. "
                    f"{OTHER_COLUMNS}"
                )
            columns.append(np.broadcast_to(array, (n_features,)).copy())
        infinite = np.full(n_features, np.inf)
        return cls(-infinite, infinite, *columns)

    def transform(self, X: Any) -> Any:
        """(X - shift) / width; X itself where nothing changes. Infinities stay."""
        if sparse.issparse(X):
            if np.any(self.shift != 0):
                raise ValueError("sparse X needs center_X=0, since a centre would shift its zeros")
            X = canonical(X)
            if self._is_identity():
                return X
            data = np.empty(X.nnz)
            with np.errstate(over="ignore", invalid="ignore"):
                for part in value_parts(X):
                    np.divide(X.data[part], self.width[stored_columns(X, part)], out=data[part])
            return with_values(X, data)
        if self._is_identity():
            return X
        with np.errstate(over="ignore", invalid="ignore"):
            return ((X - self.shift) / self.width).astype(X.dtype, copy=False)


@dataclass(frozen=True)
class TargetMagnitude(TargetScaling):
    """The map y -> (y - center) / scale, without bounds."""

    center: float
    scale: float

    @classmethod
    def of(cls, center: Any, scale: Any) -> TargetMagnitude:
        """From guesses, of which "private" ones are left to the plan."""
        middle = 0.0 if _is_private(center) else float(center)
        half = 1.0 if _is_private(scale) else float(scale)
        return cls(-math.inf, math.inf, middle, half)

    # not computed from low and high, which are infinite here

    @property
    def middle(self) -> float:
        return self.center

    @property
    def half(self) -> float:
        return self.scale

    def transform(self, y: Any) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            return (np.asarray(y, dtype=np.float64) - self.middle) / self.half
