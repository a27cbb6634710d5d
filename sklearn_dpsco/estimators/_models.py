"""Fitted linear models: predictions, by what may be sent to whoever holds the rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.extmath import safe_sparse_dot

from .._types import Array
from ..data.cells import clear_rows, nonfinite_rows
from ..data.compressed import canonical, with_values
from ._records import Reader

_SMALL = 2.0**-600  # any float times this times a coefficient is finite


def predicted(
    coef: Array,
    intercept: Any,
    origin: Array,
    is_strict: bool,
    made_of_scores: Callable[[Array], Any] | None,
    limits: tuple[Array, Array] | None,
    X: Any,
) -> Any:
    """Raw predictions of a fitted linear model for the rows of X, or what is made of them.

    `coef` is in the user's units, as `intercept`, with a row for each output; `origin` is the row
    in the place of one that is invalid, unless that is an error; features are clipped to `limits`.
    """

    def linear(X: Any) -> Any:
        if limits is not None:
            low, high = limits
            if sparse.issparse(X) and np.all(low <= 0) and np.all(high >= 0):  # which stays so
                X = canonical(X.tocsr())
                X = with_values(X, np.clip(X.data, low[X.indices], high[X.indices]))
            else:
                X = np.clip(X.toarray() if sparse.issparse(X) else X, low, high)
        raw = safe_sparse_dot(X, coef.T, dense_output=True) + intercept
        beyond = ~np.isfinite(raw if raw.ndim == 2 else raw[:, None]).all(axis=1)
        if np.any(beyond):  # terms or partial sums overflow, even if their sum does not
            small = X[beyond].astype(np.float64) * _SMALL
            raw[beyond] = safe_sparse_dot(small, coef.T, dense_output=True) / _SMALL
            raw[beyond] += intercept
        return raw

    with np.errstate(all="ignore"):
        if is_strict:
            raw = linear(X)
        else:
            X = canonical(X) if sparse.issparse(X) else X
            invalid = nonfinite_rows(X)
            raw = linear(clear_rows(X, invalid, X))
            raw[invalid] = linear(origin[None, :])
    return raw if made_of_scores is None else made_of_scores(raw)


def read_and_predict(
    reader: Reader,
    predict: Callable[[Any], Any],
    n_features: int,
    names: list[str] | None,
    X: Any,
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
    return predict(reader.features(X))


def scores(raw: Array) -> Array:
    """Raw predictions as `decision_function` gives them."""
    return raw.ravel() if raw.shape[1] == 1 else raw


def likeliest(classes: NDArray[Any], raw: Array) -> NDArray[Any]:
    """The class with the largest score."""
    found = scores(raw)
    index = (found > 0).astype(int) if found.ndim == 1 else found.argmax(axis=1)
    return classes[index]


def probabilities(loss: Any, is_log: bool, raw: Array) -> Array:
    """Probability of each class, or its logarithm."""
    found: Array = loss.probability(scores(raw))
    found = np.column_stack((1 - found, found)) if found.ndim == 1 else found
    with np.errstate(divide="ignore"):
        return np.log(found) if is_log else found
