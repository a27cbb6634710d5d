"""Sweeps over sparse matrices that read each stored value once per iteration."""

from __future__ import annotations

from typing import Any

import numpy as np

from .arguments import Compressed, Slope
from .derivatives import derivative
from .jit import njit

# Positions are unsigned throughout: numba then drops its test for negative indices, which
# makes a scatter as fast as scipy's.


@njit(cache=True)
def gradient_at(
    X: Compressed, records: Any, point: Any, slope: Slope, chunk: int, total: Any
) -> float:
    """Add sum_i factor_i l'(z_i) x_i to `total`; return the intercept's component.

    `records` are scale, factor and y, z_i = offset + scale_i product_i, and `point` is (coef,
    product, move). The products are <[x_i, 1], coef>, without the 1 if coef has no such coordinate;
    or where there is a move, the given ones, which move. Then column indices must be sorted and
    unique within each row.
    """
    (data, indices, indptr), (scale, factor, y), (coef, product, move) = X, records, point
    n = indptr.size - 1
    intercept = coef[total.size] if coef.size > total.size else 0.0
    column = np.int32(move.coordinate)
    part = np.zeros(total.size)
    total_b = 0.0
    for first in range(0, n, chunk):
        part[:] = 0.0
        part_b = 0.0
        for i in range(first, min(n, first + chunk)):
            start, end = np.uint64(indptr[i]), np.uint64(indptr[i + 1])
            if move.coordinate < 0:
                z = intercept
                for k in range(start, end):
                    z += data[k] * coef[np.uint64(indices[k])]
            else:
                z = move.decay * product[i]
                if move.coordinate == total.size:
                    z += move.amount
                else:
                    smaller = np.int32(0)  # counting is vectorized, a search is not
                    for k in range(start, end):
                        smaller = np.int32(smaller + np.int32(indices[k] < column))
                    at = start + np.uint64(smaller)
                    if at < end and indices[at] == column:
                        z += move.amount * data[at]
                product[i] = z
            r = factor[i] * derivative(slope, scale[i] * z, y[i])
            part_b += r
            for k in range(start, end):
                part[np.uint64(indices[k])] += r * data[k]
        total += part
        total_b += part_b
    return total_b


@njit(cache=True)
def row_norms(X: Compressed, weights: Any) -> Any:
    """Sum of weights_j x_ij^2 over each row."""
    data, indices, indptr = X
    out = np.zeros(indptr.size - 1)
    for i in range(out.size):
        for k in range(indptr[i], indptr[i + 1]):
            value = np.float64(data[k])
            out[i] += weights[np.uint64(indices[k])] * value * value
    return out


@njit(cache=True)
def csr_transposed_product(X: Compressed, r: Any, chunk: int, total: Any) -> None:
    """Add X^T r to `total`, summed over chunks of rows; r has shape (n, K), `total` (d, K).

    In float64 also if X is not. The storage of X is that of X^T by columns: so these two are X r,
    as well, for matrices in the other storage.
    """
    data, indices, indptr = X
    n, n_outputs = r.shape
    part = np.zeros(total.shape)
    for first in range(0, n, chunk):
        part[:] = 0.0
        for i in range(first, min(n, first + chunk)):
            for k in range(indptr[i], indptr[i + 1]):
                row, value = part[np.uint64(indices[k])], data[k]
                for output in range(n_outputs):
                    row[output] += value * r[i, output]
        total += part


@njit(cache=True)
def csc_transposed_product(X: Compressed, r: Any, chunk: int, total: Any) -> None:
    """The same, each column summed over chunks of stored values."""
    data, indices, indptr = X
    part = np.zeros(r.shape[1])
    for j in range(total.shape[0]):
        for start in range(indptr[j], indptr[j + 1], chunk):
            for k in range(start, min(indptr[j + 1], start + chunk)):
                row, value = r[np.uint64(indices[k])], data[k]
                for output in range(part.size):
                    part[output] += value * row[output]
            for output in range(part.size):
                total[j, output] += part[output]
                part[output] = 0.0
