"""Fitted linear models: predictions, by what may be sent to whoever holds the rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.extmath import safe_sparse_dot

from .._types import Array
from ..data.cells import clear_rows, nonfinite_rows
from ..data.compressed import canonical, with_values
from ._records import Reader

_SMALL = 2.0**-600  # any float times this times a coefficient is finite


class LinearModel(NamedTuple):
    """What predictions need of a fitted model, and nothing else, so that it can be sent about."""

    coef: Array  # in the user's units, as the intercept, with a row for each output
    intercept: Any
    origin: Array  # the row in the place of one that is invalid
    is_strict: bool  # whether an invalid row is an error
    made_of_scores: Callable[[Array], Any] | None  # what is made of raw predictions
    limits: tuple[Array, Array] | None = None  # what features are clipped to

    def __call__(self, X: Any) -> Any:
        with np.errstate(all="ignore"):
            if self.is_strict:
                raw = self._linear(X)
            else:
                X = canonical(X) if sparse.issparse(X) else X
                invalid = nonfinite_rows(X)
                raw = self._linear(clear_rows(X, invalid, X))
                raw[invalid] = self._linear(self.origin[None, :])
        return raw if self.made_of_scores is None else self.made_of_scores(raw)

    def _linear(self, X: Any) -> Any:
        if self.limits is not None:
            X = _clipped(X, *self.limits)
        raw = safe_sparse_dot(X, self.coef.T, dense_output=True) + self.intercept
        beyond = ~np.isfinite(raw if raw.ndim == 2 else raw[:, None]).all(axis=1)
        if np.any(beyond):  # terms or partial sums overflow, even if their sum does not
            small = X[beyond].astype(np.float64) * _SMALL
            raw[beyond] = safe_sparse_dot(small, self.coef.T, dense_output=True) / _SMALL
            raw[beyond] += self.intercept
        return raw


def _clipped(X: Any, low: Array, high: Array) -> Any:
    """Features within their limits; sparse ones stay so if 0 lies between all of them."""
    if not sparse.issparse(X):
        return np.clip(X, low, high)
    if np.any(low > 0) or np.any(high < 0):
        return np.clip(X.toarray(), low, high)
    X = canonical(X.tocsr())
    return with_values(X, np.clip(X.data, low[X.indices], high[X.indices]))


def read_and_predict(
    reader: Reader, model: LinearModel, n_features: int, names: list[str] | None, X: Any
) -> Any:
    """Predictions for a block, whose columns must be those of the fit."""
    found = list(X.columns) if hasattr(X, "columns") else None
    if names is not None and found is not None and found != names:
        raise ValueError("The feature names should match those that were passed during fit.")
    if np.ndim(X) == 2 and X.shape[1] != n_features:
        raise ValueError(
            f"X has {X.shape[1]} features, but {reader.name} is expecting {n_features} features "
            "as input"
        )
    return model(reader.features(X))


def scores(raw: Array) -> Array:
    """Raw predictions as `decision_function` gives them."""
    return raw.ravel() if raw.shape[1] == 1 else raw


def likeliest(classes: NDArray[Any], raw: Array) -> NDArray[Any]:
    """The class with the largest score."""
    found = scores(raw)
    index = (found > 0).astype(int) if found.ndim == 1 else found.argmax(axis=1)
    return classes[index]


def probabilities(loss: Any, raw: Array) -> Array:
    """Probability of each class."""
    found: Array = loss.probability(scores(raw))
    return np.column_stack((1 - found, found)) if found.ndim == 1 else found


def log_probabilities(loss: Any, raw: Array) -> Array:
    """Their logarithms."""
    with np.errstate(divide="ignore"):
        return np.log(probabilities(loss, raw))
