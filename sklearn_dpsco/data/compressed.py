"""CSR and CSC matrices: their structure is checked, and their arrays are never copied in passing.

scipy's constructor from three arrays copies 64-bit indices to 32 bits where the numbers are small
enough, in memory also where they came from a file.
"""

from __future__ import annotations

from contextlib import suppress
from copy import copy
from typing import Any

import numpy as np
from scipy import sparse

_INDEX_TYPES = (np.dtype(np.int32), np.dtype(np.int64))
_PART_VALUES = 2**18
_NO_MATRIX = "sparse X is no matrix: its indices point to places outside of it"


def with_arrays(X: Any, data: Any, indices: Any, indptr: Any) -> Any:
    """A matrix like X that holds these arrays themselves; a CSR one has the rows of `indptr`."""
    shape = (indptr.size - 1, X.shape[1]) if X.format == "csr" else X.shape
    out = type(X)(shape, dtype=data.dtype)
    # not as a subclass such as `memmap`, which kernels would be compiled for again
    out.data, out.indices, out.indptr = (np.asarray(part) for part in (data, indices, indptr))
    return out


def with_values(X: Any, data: Any) -> Any:
    """Other values in the places of X."""
    return with_arrays(X, data, X.indices, X.indptr)


def compressed(X: Any) -> Any:
    """Sparse X as CSR, or CSC if it is that, if its indices are within the shape; others as is.

    Real numbers become float64 unless they are floats of 32 or 64 bits. Nothing is added up: scipy
    does so where it converts, in an order that other records decide, see `canonical`.
    """
    if not sparse.issparse(X) or X.ndim != 2:  # which scikit-learn refuses
        return X
    if X.format not in ("csr", "csc"):
        entries: Any = None
        # (scipy would put the values of all later rows in other places)
        is_whole = X.format != "lil" or [*map(len, X.rows)] == [*map(len, X.data)]
        with suppress(ValueError, IndexError):  # which quote an index, also as a context
            entries = X.tocoo() if is_whole else None
        if entries is None or not all(
            places.size == entries.data.size and np.all((places >= 0) & (places < size))
            for places, size in zip((entries.row, entries.col), X.shape, strict=True)
        ):
            raise ValueError(_NO_MATRIX)
        entries = copy(entries)
        entries.has_canonical_format = True  # or scipy would add some of them up
        X = entries.tocsr()
    indices, indptr = np.asarray(X.indices), np.asarray(X.indptr)
    for kind in (indices.dtype, indptr.dtype):
        if kind not in _INDEX_TYPES:
            raise ValueError(f"sparse X needs indices of type int32 or int64, got {kind}")
    n_major, n_minor = X.shape if X.format == "csr" else X.shape[::-1]
    is_right = (
        indptr.shape == (n_major + 1,)
        and indptr[0] == 0
        and np.all(indptr[1:] >= indptr[:-1])
        and indptr[-1] <= min(indices.size, X.data.size)
    )
    # scipy and compiled loops read and write where indices say, without a test
    for part in value_parts(X) if is_right else ():
        block = indices[part]
        is_right = is_right and block.min() >= 0 and block.max() < n_minor
    if not is_right:
        raise ValueError(_NO_MATRIX)
    if X.dtype in (np.float64, np.float32) or X.dtype.kind not in "biuf":  # which are refused
        return X
    with np.errstate(all="ignore"):  # a warning would tell of some record
        return with_values(X, X.data.astype(np.float64))


def canonical(X: Any) -> Any:
    """CSR or CSC X with sorted entries and one for each place; a copy only if it must change.

    Two entries of one place may be within the bounds, or finite, while their sum is not. So
    this comes before all checks of values. Dense X is returned as it is.
    """
    if not sparse.issparse(X):
        return X
    indices, indptr = X.indices, X.indptr
    if indices.dtype != indptr.dtype:
        # both as the larger type, which holds all of them
        kind = np.promote_types(indices.dtype, indptr.dtype)
        indices, indptr = indices.astype(kind, copy=False), indptr.astype(kind, copy=False)
    n_stored = int(indptr[-1])  # what is behind that is no entry
    # a fresh object: the flag that scipy caches may be stale
    X = with_arrays(X, X.data[:n_stored], indices[:n_stored], indptr)
    if X.has_canonical_format:
        return X
    # Two transpositions sort the entries, those of one place as they come: scipy's sort changes the
    # order of these. If they cancel out (1e16 - 1e16 + 1), a record would change the values of
    # others, as all lines are sorted where one is out of order.
    X = X.tocsc().tocsr() if X.format == "csr" else X.tocsr().tocsc()
    X.sum_duplicates()
    return X


def row_range(X: Any, which: slice) -> Any:
    """A range of rows, of a CSR matrix without the copies that scipy would make."""
    if getattr(X, "format", None) != "csr":
        return X[which]
    start, stop, _ = which.indices(X.shape[0])
    stop = max(start, stop)
    stored = slice(X.indptr[start], X.indptr[stop])
    indptr = X.indptr[start : stop + 1] - X.indptr[start]
    return with_arrays(X, X.data[stored], X.indices[stored], indptr)


def value_parts(X: Any) -> list[slice]:
    """Ranges of stored values that are small enough to make arrays of their length."""
    return slices(X.nnz, _PART_VALUES)


def stored_places(X: Any, part: slice, axis: int) -> Any:
    """The row (axis 0) or the column (axis 1) of each stored value in the part."""
    if (X.format == "csr") == (axis == 1):
        return X.indices[part]
    return np.searchsorted(X.indptr, np.arange(part.start, part.stop), side="right") - 1


def slices(part: int | slice, size: int) -> list[slice]:
    """Of a range, or of range(n), each of this size but the last."""
    start, stop = (part.start, part.stop) if isinstance(part, slice) else (0, part)
    return [slice(i, min(stop, i + size)) for i in range(start, stop, size)]
