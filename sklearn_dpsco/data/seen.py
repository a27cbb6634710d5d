"""What each estimator was fitted on last, so that nobody scores it on the same records.

Held in memory of this process only, and without keeping the records alive: a pickled, copied or
cloned estimator has forgotten it.
"""

from __future__ import annotations

import weakref
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

__all__ = ["overlaps", "remember_fit"]

_MOST_WORK: Any = 10_000  # candidates that numpy tries to tell two layouts of memory apart


@dataclass(frozen=True)
class _Place:
    """Where the values of an array lie: as long as their owner is alive, even if a view is not."""

    owner: weakref.ref[Any]
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, values: Any) -> _Place | None:
        values = _stored(values)
        if not isinstance(values, np.ndarray):
            return None
        owner = values
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        offset = values.__array_interface__["data"][0] - owner.__array_interface__["data"][0]
        return cls(weakref.ref(owner), offset, values.shape, values.strides, values.dtype)

    def meets(self, values: Any) -> bool:
        """Whether any byte is shared; a question too hard to decide counts as no."""
        values = _stored(values)
        owner = self.owner()
        if owner is None or not isinstance(values, np.ndarray):
            return False
        if not np.may_share_memory(owner, values):
            return False
        try:
            buffer = owner.T if owner.flags.f_contiguous else owner
            place: Any = np.ndarray(self.shape, self.dtype, buffer, self.offset, self.strides)
            return bool(np.shares_memory(place, values, max_work=_MOST_WORK))
        except (np.exceptions.TooHardError, TypeError, ValueError, AttributeError):
            return False


@dataclass(frozen=True)
class _Fit:
    table: weakref.ref[Any] | None
    place: _Place | None
    index: Any


_fits: weakref.WeakKeyDictionary[Any, _Fit] = weakref.WeakKeyDictionary()


def remember_fit(estimator: Any, X: Any) -> None:
    """Note that `estimator` was fitted on X, in place of what it was fitted on before."""
    try:
        table = weakref.ref(X)
    except TypeError:  # such as a list
        table = None
    with suppress(TypeError):  # an estimator that cannot be hashed or held weakly
        _fits[estimator] = _Fit(table, _Place.of(X), _labels(X))


def overlaps(estimator: Any, X: Any) -> bool:
    """Whether X is known to hold records of the last fit of `estimator`.

    It is the same object, shares memory with what was fitted on, or is a data frame whose index
    is not the default one and has a label in common.
    """
    fit = None
    with suppress(TypeError):
        fit = _fits.get(estimator)
    if fit is None:
        return False
    if fit.table is not None and fit.table() is X:
        return True
    if fit.place is not None and fit.place.meets(X):
        return True
    index = _labels(X)
    if index is None or fit.index is None or _is_default(index):
        return False
    return bool(index.isin(fit.index).any())


def _stored(values: Any) -> Any:
    """The array of an array or a sparse matrix, which some formats have not."""
    return getattr(values, "data", None) if sparse.issparse(values) else values


def _labels(X: Any) -> Any:
    """The index of a pandas frame; None of anything else."""
    index = None if hasattr(X, "__dask_graph__") else getattr(X, "index", None)
    return index if hasattr(X, "columns") and hasattr(index, "isin") else None


def _is_default(index: Any) -> bool:
    """Whether it counts rows, so that two tables share labels without sharing records."""
    return type(index).__name__ == "RangeIndex"
