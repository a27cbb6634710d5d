"""Sweeps over matrices in CSR storage that read each stored value once per iteration."""

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
    X: Compressed, records: Any, coef: Any, slope: Slope, chunk: int, total: Any
) -> float:
    """Add sum_i factor_i l'(z_i) x_i to `total`; return the intercept's component.

    `records` are scale, factor and y, and z_i = offset + scale_i <[x_i, 1], coef>, without the 1 if
    coef has no such coordinate.
    """
    (data, indices, indptr), (scale, factor, y) = X, records
    n = indptr.size - 1
    intercept = coef[total.size] if coef.size > total.size else 0.0
    part = np.zeros(total.size)
    total_b = 0.0
    for first in range(0, n, chunk):
        part[:] = 0.0
        part_b = 0.0
        for i in range(first, min(n, first + chunk)):
            start, end = np.uint64(indptr[i]), np.uint64(indptr[i + 1])
            z = intercept
            for k in range(start, end):
                z += data[k] * coef[np.uint64(indices[k])]
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
def add_product(X: Compressed, w: Any, out: Any) -> None:
    """Add X w to `out`; w has shape (d, K), `out` (n, K). In float64 also if X is not."""
    data, indices, indptr = X
    for i in range(out.shape[0]):
        for k in range(indptr[i], indptr[i + 1]):
            row, value = w[np.uint64(indices[k])], data[k]
            for output in range(w.shape[1]):
                out[i, output] += value * row[output]


@njit(cache=True)
def add_transposed_product(X: Compressed, r: Any, chunk: int, total: Any) -> None:
    """Add X^T r to `total`, summed over chunks of rows; r has shape (n, K), `total` (d, K)."""
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
