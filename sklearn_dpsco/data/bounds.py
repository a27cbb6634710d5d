"""Public bounds of the data: clip to them, scale by them, and map coefficients back.

Internally every feature lies in [-1, 1]. A feature with bounds (low, high) becomes
``(x - mid) / half``. Where one end is 0, it is divided by the size of the other end and
not centred, so that zeros stay zero: a centred 0/1 column would be -1 or 1 in every row.
No constant is computed from the data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from .._checks import SMALLEST, listed, shown, warn_user
from ..exceptions import BoundsNotDeclaredWarning
from .cells import check_numbers
from .compressed import canonical, stored_columns, value_parts, with_values
from .threads import on_threads

__all__ = [
    "OTHER_COLUMNS",
    "FeatureScaling",
    "TargetScaling",
    "by_column",
    "check_feature_bounds",
    "check_target_bounds",
    "feature_scaling",
    "is_declaring",
    "is_nonnegative",
    "target_scaling",
]

Array = NDArray[np.float64]

_NARROWEST = SMALLEST  # high - low, and in units of the larger end:
_FINEST = 1e-12
_APART = f"at least {_NARROWEST:g} and {_FINEST:g} times the larger end apart"

OTHER_COLUMNS = (
    "What hands on fewer or more columns (RFE, SequentialFeatureSelector, ClassifierChain, bagging "
    "with max_features) needs scalars, the same for all columns"
)

_CHECK_ROWS_BYTES = 2**20


@dataclass(frozen=True)
class FeatureScaling:
    """The map x -> (clip(x, low, high) - shift) / width, by column.

    Attributes
    ----------
    low, high, shift, width : ndarray of shape (n_features,)
    """

    low: Array
    high: Array
    shift: Array
    width: Array

    def transform(self, X: Any) -> Any:
        """Scaled X: one copy, or X itself where nothing needs to change, dense in C order.

        Parameters
        ----------
        X : ndarray or CSR or CSC matrix of shape (n, d)

        Returns
        -------
        The same kind: dense in X's dtype, sparse canonical, in X's dtype if all columns have a
        middle of 0 and a width of 1, else in float64.
        """
        with np.errstate(invalid="ignore"):  # a warning about a NaN would reveal a record
            return self._transform_sparse(X) if sparse.issparse(X) else self._transform_dense(X)

    def _is_identity(self) -> bool:
        return bool(np.all(self.shift == 0) and np.all(self.width == 1))

    def _contains(self, block: Any) -> bool:
        low, high = self.low[0], self.high[0]
        if np.all(self.low == low) and np.all(self.high == high):  # ten times faster
            return bool(block.min() >= low and block.max() <= high)
        return bool(np.all(block >= self.low) and np.all(block <= self.high))

    def _transform_dense(self, X: Any) -> Any:
        step = max(1, _CHECK_ROWS_BYTES // (X.itemsize * max(1, X.shape[1])))
        parts = [slice(start, start + step) for start in range(0, X.shape[0], step)]
        # A copy is in C order and aligned, and products of other arrays may round differently.
        # Whether a value of one record is out of bounds must not change those of other records.
        like_a_copy = X.flags.c_contiguous and X.flags.aligned
        is_identity = self._is_identity()
        if like_a_copy and is_identity and all(self._contains(X[part]) for part in parts):
            return X
        out = np.empty(X.shape, dtype=X.dtype)

        def fill(part: slice) -> None:
            block = np.ascontiguousarray(X[part])  # in one order, the rest is far faster
            if is_identity and self._contains(block):
                out[part] = block
                return
            block = np.clip(block, self.low, self.high)
            if not is_identity:
                block = (block - self.shift) / self.width
            # the division may round past 1
            np.clip(block, -1.0, 1.0, out=out[part], casting="same_kind")

        on_threads(fill, parts, uses_blas=False)
        return out

    def _transform_sparse(self, X: Any) -> Any:
        if np.any(self.shift != 0):
            raise ValueError(
                "sparse X needs bounds_X with one end at 0 or symmetric about 0 in every column, "
                "since other bounds would shift its zeros"
            )
        X = canonical(X)
        parts = value_parts(X)
        # Values of an identity are clipped to -1, 0 and 1, which all types of floats hold exactly.
        is_identity = self._is_identity()
        if is_identity and self._contains_all(X, parts):
            return X
        values = np.empty(X.nnz, dtype=X.dtype if is_identity else np.float64)
        for part in parts:
            columns = stored_columns(X, part)
            clipped = np.clip(X.data[part], self.low[columns], self.high[columns])
            clipped = clipped / self.width[columns]
            np.clip(clipped, -1.0, 1.0, out=values[part], casting="same_kind")
        return with_values(X, values)

    def _contains_all(self, X: Any, parts: list[slice]) -> bool:
        for part in parts:
            columns, values = stored_columns(X, part), X.data[part]
            if np.any(values < self.low[columns]) or np.any(values > self.high[columns]):
                return False
        return True

    def unscale(self, coef: Array, intercept: Any) -> tuple[Array, Any]:
        """Coefficients and intercept for unscaled features, with the same predictions.

        Of one output, shape (n_features,), or of several, (n_outputs, n_features).
        """
        coef = coef / self.width
        intercept = intercept - coef @ self.shift
        return coef, float(intercept) if coef.ndim == 1 else intercept


@dataclass(frozen=True)
class TargetScaling:
    """The map y -> (clip(y, low, high) - middle) / half, with ends for all targets or for each."""

    low: Any
    high: Any

    @property
    def middle(self) -> Any:
        """The target that a raw prediction of 0 stands for."""
        return self.low / 2 + self.high / 2

    @property
    def half(self) -> Any:
        """One scaled unit, in the user's units."""
        return self.high / 2 - self.low / 2

    def transform(self, y: Any) -> Array:
        """Scaled targets in [-1, 1], a new array."""
        with np.errstate(invalid="ignore"):  # as for the features
            y = np.clip(np.asarray(y, dtype=np.float64), self.low, self.high)
            return np.clip((y - self.middle) / self.half, -1.0, 1.0)

    def unscale(self, coef: Array, intercept: Any) -> tuple[Array, Any]:
        """Coefficients and intercept that predict in the user's units."""
        return (coef.T * self.half).T, intercept * self.half + self.middle


def _pair(name: str, bounds: Any) -> tuple[Array, Array]:
    is_array = isinstance(bounds, np.ndarray) and bounds.ndim > 0
    if not is_array and (not isinstance(bounds, Sequence) or isinstance(bounds, (str, bytes))):
        raise ValueError(f"{name} must be a pair (low, high), got {shown(bounds)}")
    if len(bounds):
        _refuse_pairs(name, bounds)
    if len(bounds) != 2:
        raise ValueError(f"{name} must be a pair (low, high), got {shown(bounds)}")
    low, high = (check_numbers(name, end) for end in bounds)
    return low, high


def _refuse_pairs(name: str, bounds: Sequence[Any]) -> None:
    """Raise for a pair (low, high) for each column, which two columns would let pass as ends.

    A tuple of two lists or arrays is (lows, highs); another container of pairs has two readings.
    """
    is_pair_of_lists = isinstance(bounds, tuple) and not any(isinstance(x, tuple) for x in bounds)
    if (is_pair_of_lists and len(bounds) == 2) or not all(map(_is_pair, bounds)):
        return
    of_what, by_name = "column", ", or for a data frame a dict {column: (low, high)}"
    if name == "bounds_y":
        of_what, by_name = "target", ""
    pairs = np.asarray(bounds).tolist()
    by_end = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    if len(pairs) == 2 and all(map(_is_pair, by_end)):
        raise ValueError(
            f"{name} has two readings, {shown(bounds)}: a pair (low, high) for each of two "
            f"{of_what}s, or the lows and the highs. Write a tuple of two lists (lows, highs), "
            f"{shown(by_end)} for the first reading, {shown(tuple(pairs))} for the second{by_name}"
        )
    here = "" if len(pairs) > 10 else f", here {by_end!r}"
    raise ValueError(
        f"{name} holds a pair for each {of_what}: write a tuple of two lists (lows, highs)"
        f"{here}{by_name}"
    )


def _is_pair(value: Any) -> bool:
    """Whether it is a list, a tuple or an array of two numbers low < high."""
    is_list = isinstance(value, (list, tuple)) or np.ndim(value) == 1
    if not is_list or len(value) != 2:
        return False
    low, high = value
    return isinstance(low, Real) and isinstance(high, Real) and bool(low < high)


def _is_wide_enough(low: Array, high: Array) -> bool:
    """Whether low < high in every column, and far enough for floating point.

    Else the rounding of the middle, or of a division by the width, would show in predictions.
    """
    size = np.maximum(np.abs(low), np.abs(high))
    return bool(np.all(high - low >= np.maximum(_NARROWEST, _FINEST * size)))


def by_column(name: str, value: Any, columns: Sequence[str] | None) -> Any:
    """The values of a dict by column name as an array; anything else unchanged."""
    if not isinstance(value, Mapping):
        return value
    if columns is None:
        raise ValueError(
            f"{name} is a dict, which needs X to be a data frame with text as names of its columns "
            "(X.columns = X.columns.astype(str)). Meta-estimators such as RFE hand on an array: "
            "there give one pair (low, high), behind a PublicEncoder (-1, 1)"
        )
    missing = [column for column in columns if column not in value]
    unknown = [column for column in value if column not in set(columns)]
    faults = (missing, "columns are not named"), (unknown, "names are no columns")
    found = [f"{len(names)} {what} ({listed(names)})" for names, what in faults if names]
    if found:
        raise ValueError(f"{name} must name every column of X and no other: {', '.join(found)}")
    return np.array([value[column] for column in columns], dtype=np.float64)


def check_feature_bounds(bounds: Any, n_features: int | None = None) -> None:
    """Raise `ValueError` for `bounds_X` that are wrong for that number of features, or for any."""
    if isinstance(bounds, Mapping):
        if n_features not in (None, len(bounds)):
            raise ValueError(f"bounds_X names {len(bounds)} columns, but n_features={n_features}")
        for name in bounds:
            low, high = _pair(f"bounds_X[{name!r}]", bounds[name])
            if low.ndim or high.ndim or not _is_wide_enough(low, high):
                raise ValueError(
                    f"bounds_X[{name!r}] must be two numbers with low < high, {_APART}, "
                    f"got {shown(bounds[name])}"
                )
    elif bounds is not None and not is_declaring(bounds):
        low, high = _pair("bounds_X", bounds)
        _check_shapes(low, high, n_features)
        if not _is_wide_enough(low, high):
            raise ValueError(
                f"bounds_X must have low < high in every column, {_APART}; it is one pair "
                "(low, high) of scalars or of arrays over the columns, or a dict of pairs by "
                "column name"
            )


def is_nonnegative(bounds: Any) -> bool:
    """Whether all bounds begin at 0, so that no scaled feature is negative."""
    if bounds is None:
        return False
    pairs = bounds.values() if isinstance(bounds, Mapping) else (bounds,)
    return all(bool(np.all(_pair("bounds_X", pair)[0] == 0)) for pair in pairs)


def is_declaring(bounds: Any) -> bool:
    """Whether `bounds_X` is a transformer that declares them, in the place of numbers."""
    return hasattr(bounds, "transform") or hasattr(bounds, "declared_output")


def _check_shapes(low: Array, high: Array, n_features: int | None) -> None:
    if low.ndim > 1 or high.ndim > 1:
        raise ValueError("bounds_X must hold scalars or arrays of shape (n_features,)")
    if low.ndim and high.ndim and low.shape != high.shape:
        raise ValueError(f"bounds_X has ends of shapes {low.shape} and {high.shape}")
    for end in (low, high):
        if n_features is not None and end.ndim == 1 and end.size != n_features:
            raise ValueError(
                f"bounds_X must hold scalars or arrays of shape ({n_features},), got shapes "
                f"{low.shape} and {high.shape}. {OTHER_COLUMNS}"
            )


def feature_scaling(
    bounds: Any, n_features: int, feature_names: Sequence[str] | None = None
) -> FeatureScaling:
    """The scaling that `bounds_X` declares.

    Parameters
    ----------
    bounds : None, pair of scalars or arrays of shape (n_features,), or dict
        None stands for (-1, 1) and warns. A dict maps each column's name to its pair.
    n_features : int
    feature_names : sequence of str or None

    Raises
    ------
    ValueError
        If the bounds are not within [-1e50, 1e50], of the wrong length, or somewhere not
        low < high or so close that floating point cannot tell values between them apart.
    """
    if bounds is None:
        warn_user(
            "bounds_X was not given: features are clipped to (-1, 1). Declare the bounds from "
            "domain knowledge, not from the data.",
            BoundsNotDeclaredWarning,
        )
        bounds = (-1.0, 1.0)
    if isinstance(bounds, Mapping):
        check_feature_bounds(bounds)
        low, high = by_column("bounds_X", bounds, feature_names).T
    else:
        check_feature_bounds(bounds, n_features)
        low, high = _pair("bounds_X", bounds)
    low, high = (np.broadcast_to(end, (n_features,)).copy() for end in (low, high))
    one_sided = (low == 0) | (high == 0)
    shift = np.where(one_sided, 0.0, low / 2 + high / 2)
    width = np.where(one_sided, np.maximum(np.abs(low), np.abs(high)), high / 2 - low / 2)
    return FeatureScaling(low, high, shift, width)


def check_target_bounds(bounds: Any, n_targets: int | None = None) -> None:
    """Raise `ValueError` for `bounds_y` that are wrong for that number of targets, or for any."""
    if bounds is None:
        return
    low, high = _pair("bounds_y", bounds)
    shapes = {end.shape for end in (low, high)} - {()}
    if len(shapes) > 1 or max(low.ndim, high.ndim) > 1 or not _is_wide_enough(low, high):
        raise ValueError(
            f"bounds_y must be two numbers with low < high, {_APART}, or two arrays of such "
            f"numbers over the targets, got {shown(bounds)}"
        )
    if n_targets is not None and shapes - {(n_targets,)}:
        raise ValueError(f"bounds_y has the ends of {shapes.pop()[0]} targets, y has {n_targets}")


def target_scaling(bounds: Any, n_targets: int = 1) -> TargetScaling:
    """The scaling that `bounds_y` declares; None stands for (-1, 1) and warns.

    Raises
    ------
    ValueError
        If the bounds are not numbers within [-1e50, 1e50], two for all targets or two for each,
        with low < high, or so close that floating point cannot tell values between them apart.
    """
    if bounds is None:
        warn_user(
            "bounds_y was not given: targets are clipped to (-1, 1). Declare the bounds from "
            "domain knowledge, not from the data.",
            BoundsNotDeclaredWarning,
        )
        bounds = (-1.0, 1.0)
    check_target_bounds(bounds, n_targets)
    low, high = _pair("bounds_y", bounds)
    if n_targets == 1:
        return TargetScaling(low.item(), high.item())
    return TargetScaling(*(np.broadcast_to(end, (n_targets,)).copy() for end in (low, high)))
