"""Sweeps over sparse matrices that read each stored value once per iteration."""

from __future__ import annotations

from typing import Any

import numpy as np

from .jit import njit
from .pointwise import clipped_derivative

__all__ = [
    "csc_transposed_product",
    "csr_transposed_product",
    "gradient_after_move",
    "gradient_at",
    "row_norms",
]


# Positions are unsigned throughout: numba then drops its test for negative indices, which
# makes a scatter as fast as scipy's.


@njit(cache=True, inline="always")
def _scatter(data: Any, indices: Any, start: Any, end: Any, r: float, out: Any) -> None:
    """Add r times one row to `out`."""
    for k in range(start, end):
        out[np.uint64(indices[k])] += r * data[k]


@njit(cache=True, inline="always")
def _position(indices: Any, start: Any, end: Any, column: Any) -> Any:
    """Where the row stores `column`, if it does. Counting is vectorized, a search is not."""
    smaller = np.int32(0)
    for k in range(start, end):
        smaller = np.int32(smaller + np.int32(indices[k] < column))
    return start + np.uint64(smaller)


@njit(cache=True)
def gradient_at(
    data: Any, indices: Any, indptr: Any, weight: Any, y: Any,
    coef: Any, intercept: float, offset: float,
    loss_id: int, parameter: float, clip: float, chunk_rows: int, total: Any,
) -> float:  # fmt: skip
    """Add sum_i weight_i l'(z_i) x_i to `total`; return the intercept's component.

    z_i = offset + weight_i (<x_i, coef> + intercept).
    """
    n = indptr.size - 1
    part = np.zeros(total.size)
    total_b = 0.0
    for first in range(0, n, chunk_rows):
        part[:] = 0.0
        part_b = 0.0
        for i in range(first, min(n, first + chunk_rows)):
            start, end = np.uint64(indptr[i]), np.uint64(indptr[i + 1])
            product = intercept
            for k in range(start, end):
                product += data[k] * coef[np.uint64(indices[k])]
            z = offset + weight[i] * product
            r = weight[i] * clipped_derivative(loss_id, z, y[i], parameter, clip)
            part_b += r
            _scatter(data, indices, start, end, r, part)
        total += part
        total_b += part_b
    return total_b


@njit(cache=True)
def gradient_after_move(
    data: Any, indices: Any, indptr: Any, weight: Any, y: Any,
    product: Any, decay: float, coordinate: int, amount: float, offset: float,
    loss_id: int, parameter: float, clip: float, chunk_rows: int, total: Any,
) -> float:  # fmt: skip
    """Move the products to decay * product + amount * x_i[coordinate], then as above.

    `coordinate` equal to the number of columns means the intercept's column of ones.
    Column indices are sorted and unique within each row.
    """
    n = indptr.size - 1
    column = np.int32(coordinate)
    part = np.zeros(total.size)
    total_b = 0.0
    for first in range(0, n, chunk_rows):
        part[:] = 0.0
        part_b = 0.0
        for i in range(first, min(n, first + chunk_rows)):
            start, end = np.uint64(indptr[i]), np.uint64(indptr[i + 1])
            moved = decay * product[i]
            if coordinate == total.size:
                moved += amount
            else:
                at = _position(indices, start, end, column)
                if at < end and indices[at] == column:
                    moved += amount * data[at]
            product[i] = moved
            z = offset + weight[i] * moved
            r = weight[i] * clipped_derivative(loss_id, z, y[i], parameter, clip)
            part_b += r
            _scatter(data, indices, start, end, r, part)
        total += part
        total_b += part_b
    return total_b


@njit(cache=True)
def row_norms(data: Any, indptr: Any) -> Any:
    """Squared l2 norm of each row."""
    out = np.zeros(indptr.size - 1)
    for i in range(out.size):
        for k in range(indptr[i], indptr[i + 1]):
            out[i] += float(data[k]) * float(data[k])
    return out


@njit(cache=True)
def csr_transposed_product(
    data: Any, indices: Any, indptr: Any, r: Any, chunk_rows: int, total: Any
) -> None:
    """Add X^T r to `total`, summed over chunks of rows."""
    n = indptr.size - 1
    part = np.zeros(total.size)
    for first in range(0, n, chunk_rows):
        part[:] = 0.0
        for i in range(first, min(n, first + chunk_rows)):
            _scatter(data, indices, np.uint64(indptr[i]), np.uint64(indptr[i + 1]), r[i], part)
        total += part


@njit(cache=True)
def csc_transposed_product(
    data: Any, indices: Any, indptr: Any, r: Any, chunk: int, total: Any
) -> None:
    """Add X^T r to `total`, each column summed over chunks of stored values."""
    for j in range(total.size):
        for start in range(indptr[j], indptr[j + 1], chunk):
            part = 0.0
            for k in range(start, min(indptr[j + 1], start + chunk)):
                part += data[k] * r[np.uint64(indices[k])]
            total[j] += part
