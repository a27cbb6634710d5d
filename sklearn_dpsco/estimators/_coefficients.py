"""The coefficients of a model as a data frame, by the names that the user knows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._checks import import_pandas

__all__ = ["Affine", "coefficient_frame", "feature_index"]

Array = NDArray[np.float64]

_INTERCEPT = "(intercept)"


class Affine(NamedTuple):
    """A linear model of several outputs: shapes (n_outputs, n_features) and (n_outputs,)."""

    coef: Array
    intercept: Array

    def of_features(self, shift: Array, width: Array) -> Affine:
        """The same function of z, where the model's features are (z - shift) / width."""
        coef = self.coef / width
        return Affine(coef, self.intercept - coef @ shift)

    def in_features(self, shift: Array, width: Array) -> Affine:
        """The same function of (x - shift) / width, x being the model's features."""
        return Affine(self.coef * width, self.intercept + self.coef @ shift)


def feature_index(names: Any, n_features: int, encoder: Any) -> tuple[Any, Any]:
    """An index of the features and the intercept, and the encoder's output columns, if it tells.

    Raises
    ------
    ValueError
        If the encoder has another number of outputs than the model has features.
    """
    pandas = import_pandas("coef_frame")
    if encoder is None:
        names = [f"x{k}" for k in range(n_features)] if names is None else names
        return pandas.Index([*names, _INTERCEPT], name="feature"), None
    names = encoder.get_feature_names_out()
    if len(names) != n_features:
        raise ValueError(
            f"encoder has {len(names)} output columns, but the model has {n_features} features: "
            "give the step right before it"
        )
    if not hasattr(encoder, "output_columns"):
        return pandas.Index([*names, _INTERCEPT], name="feature"), None
    columns = encoder.output_columns()
    pairs = [(c.source, "" if c.category is None else c.category) for c in columns]
    levels = ["column", "category"]
    return pandas.MultiIndex.from_tuples([*pairs, (_INTERCEPT, "")], names=levels), columns


def coefficient_frame(model: Affine, index: Any, labels: Sequence[Any]) -> Any:
    """A row for each feature and the intercept, a column for each output."""
    pandas = import_pandas("coef_frame")
    return pandas.DataFrame(np.vstack((model.coef.T, model.intercept)), index, list(labels))
