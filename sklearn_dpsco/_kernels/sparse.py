"""Sweeps over sparse matrices that read each stored value once per iteration."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from .pointwise import clipped_derivative

__all__ = [
    "csc_transposed_product",
    "csr_transposed_product",
    "gradient_after_move",
    "gradient_at",
    "row_norms",
]


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
    for start in range(0, n, chunk_rows):
        part[:] = 0.0
        part_b = 0.0
        for i in range(start, min(n, start + chunk_rows)):
            product = intercept
            for k in range(indptr[i], indptr[i + 1]):
                product += data[k] * coef[np.uint64(indices[k])]
            z = offset + weight[i] * product
            r = weight[i] * clipped_derivative(loss_id, z, y[i], parameter, clip)
            part_b += r
            for k in range(indptr[i], indptr[i + 1]):
                part[np.uint64(indices[k])] += r * data[k]
        for j in range(total.size):
            total[j] += part[j]
        total_b += part_b
    return total_b


@njit(cache=True)
def gradient_after_move(
    data: Any, indices: Any, indptr: Any, weight: Any, y: Any,
    product: Any, decay: float, coordinate: int, amount: float, offset: float,
    loss_id: int, parameter: float, clip: float, chunk_rows: int, total: Any,
) -> float:  # fmt: skip
    """Move the products <x_i, coef> to decay * product + amount * x_i[coordinate], then as above.

    `coordinate` equal to the number of columns means the intercept's column of ones. Column
    indices are sorted within each row.
    """
    n = indptr.size - 1
    n_columns = total.size
    part = np.zeros(n_columns)
    total_b = 0.0
    for start in range(0, n, chunk_rows):
        part[:] = 0.0
        part_b = 0.0
        for i in range(start, min(n, start + chunk_rows)):
            moved = decay * product[i]
            if coordinate == n_columns:
                moved += amount
            else:
                left, right = indptr[i], indptr[i + 1]
                while left < right:
                    middle = (left + right) // 2
                    if indices[middle] < coordinate:
                        left = middle + 1
                    else:
                        right = middle
                if left < indptr[i + 1] and indices[left] == coordinate:
                    moved += amount * data[left]
            product[i] = moved
            z = offset + weight[i] * moved
            r = weight[i] * clipped_derivative(loss_id, z, y[i], parameter, clip)
            part_b += r
            for k in range(indptr[i], indptr[i + 1]):
                part[np.uint64(indices[k])] += r * data[k]
        for j in range(n_columns):
            total[j] += part[j]
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
    for start in range(0, n, chunk_rows):
        part[:] = 0.0
        for i in range(start, min(n, start + chunk_rows)):
            for k in range(indptr[i], indptr[i + 1]):
                part[np.uint64(indices[k])] += r[i] * data[k]
        for j in range(total.size):
            total[j] += part[j]


@njit(cache=True)
def csc_transposed_product(
    data: Any, indices: Any, indptr: Any, r: Any, chunk: int, total: Any
) -> None:
    """Add X^T r to `total`, each column summed over chunks of stored values."""
    for j in range(total.size):
        for start in range(indptr[j], indptr[j + 1], chunk):
            part = 0.0
            for k in range(start, min(indptr[j + 1], start + chunk)):
                part += data[k] * r[indices[k]]
            total[j] += part
