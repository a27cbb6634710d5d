"""Sums over records: how they are cut into pieces, and how far rounding can carry them.

Every sum over records is accumulated in float64, in chunks of `chunk_rows(n, d)` rows or
blocks of `BLOCK_ROWS`, whose partial sums are added up. Plans add `summation_error`, a bound on
the relative error, to their sensitivities.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "BLOCK_ROWS",
    "UNIT_ROUNDOFF",
    "chunk_rows",
    "gamma",
    "norm_error",
    "piece_rows",
    "sum_over_records",
    "summation_error",
]

UNIT_ROUNDOFF = 2.0**-53
_CHUNK_BYTES = 2**20  # a chunk stays in the cache between its two products
_DOUBLINGS = 128  # of the number of pieces
BLOCK_ROWS = 65536  # a block is summed by one product
# A public number of rows: the number of stored values in a piece depends on private data.
_SPARSE_PIECE = 8192


def chunk_rows(n_samples: int, n_features: int) -> int:
    """Rows per chunk; public facts only, since the bound on the summation error uses it."""
    fitting = _CHUNK_BYTES // (8 * max(1, n_features))
    return int(max(1, min(n_samples, max(256, min(fitting, BLOCK_ROWS)))))


def piece_rows(n_samples: int, n_features: int, is_sparse: bool) -> int:
    """Rows that a single pass takes at a time: few enough for the cache if dense."""
    return _SPARSE_PIECE if is_sparse else chunk_rows(n_samples, n_features)


def gamma(k: float) -> float:
    r""":math:`\gamma_k = k u / (1 - k u)`, the relative error of k roundings together.

    Raises
    ------
    ValueError
        If k u > 1/2: near 1 the bound says nothing, and beyond that it would be negative.
    """
    if not k * UNIT_ROUNDOFF <= 0.5:  # NaN must not pass
        raise ValueError(f"sums of {k:.3g} numbers have no bound on their float error")
    return k * UNIT_ROUNDOFF / (1 - k * UNIT_ROUNDOFF)


def sum_over_records(values: NDArray[np.float64]) -> Any:
    """Sums of the columns, or of a vector, each in blocks: over rows numpy adds one by one."""
    if values.ndim == 1:
        return values.sum()
    return np.array([np.ascontiguousarray(column).sum() for column in values.T])


def norm_error(n_columns: int) -> float:
    """Bound on the relative error of the squared norm of a row, centred or not, in any order.

    Each of its sums errs by at most (d + 4) u times the sum of the absolute values.
    """
    return 4 * (n_columns + 8) * UNIT_ROUNDOFF


def summation_error(n_samples: int, n_features: int) -> float:
    r"""Relative error of a chunked float64 mean over the records.

    A sum of m terms in any order errs by at most :math:`\gamma_{m}` times the sum of
    their absolute values, :math:`\gamma_k = k u / (1 - k u)`, :math:`u = 2^{-53}`; the
    chunks' totals, which threads add up in groups, add their number and 1 to m, and forming each
    term and dividing adds 5. Pieces of a table elsewhere (`pieces`) have sums of their own, which
    are added pairwise: once for each doubling of their number (doc/privacy, section 2.5).
    """
    sizes = chunk_rows(n_samples, n_features), min(n_samples, BLOCK_ROWS)
    k = max(rows + math.ceil(n_samples / rows) for rows in sizes) + 6 + _DOUBLINGS
    return gamma(k)
