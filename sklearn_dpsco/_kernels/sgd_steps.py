"""Stochastic gradient descent, record by record, inside one loop.

The step for a record, whose row r is formed as in `RowForm`, is

    w <- w - learning_rate l'(offset + <r, w>, y) r.

A record of weight 0 is skipped. After each block of records w is projected onto a ball and,
once the first records are done, added to `total`; the functions return how many were added.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .arguments import Compressed, RowForm, Slope, Steps
from .derivatives import smoothed_derivative
from .jit import njit
from .products import dense_products, inner_product, row_factor, stored_products

__all__ = ["csr_steps", "dense_steps", "gather_rows"]


@njit(cache=True, inline="always")
def _close_block(w: Any, radius: float, is_averaged: bool, total: Any) -> int:
    """Project w, and add it to `total` if it is averaged."""
    norm = math.sqrt(inner_product(w, w))
    if norm > radius:
        for j in range(w.size):
            w[j] *= radius / norm
    if not is_averaged:
        return 0
    for j in range(w.size):
        total[j] += w[j]
    return 1


@njit(cache=True)
def gather_rows(X: Any, order: Any, out: Any) -> None:
    """Copy the rows X[order] to `out`."""
    for t in range(order.size):
        i = order[t]
        for j in range(out.shape[1]):
            out[t, j] = X[i, j]


@njit(cache=True)
def dense_steps(
    X: Any, weight: Any, y: Any, form: RowForm, slope: Slope, steps: Steps, w: Any, total: Any
) -> int:
    """Descend over the rows of X in their order; w and `total` are changed in place."""
    center, bias, bound, norm_error = form
    n, d, count = y.size, center.size, 0
    for start in range(0, n, steps.block):
        end = min(n, start + steps.block)
        for t in range(start, end):
            if weight[t] > 0.0:
                row = X[t]
                product, square = dense_products(row, center, w)
                s = row_factor(weight[t], square * (1.0 + norm_error) + bias, bound)
                r = smoothed_derivative(slope, steps.beta, s * (product + bias * w[d]), y[t])
                step = steps.learning_rate * r * s
                for j in range(d):
                    w[j] -= step * (row[j] - center[j])
                w[d] -= step * bias
        count += _close_block(w, steps.radius, end > steps.first, total)
    return count


@njit(cache=True)
def csr_steps(
    X: Compressed,
    weight: Any,
    y: Any,
    form: RowForm,
    slope: Slope,
    steps: Steps,
    w: Any,
    total: Any,
) -> int:
    """Descend over the rows of a CSR matrix in their order.

    Within a block the coefficients are w + shift * center, so that a step changes only
    what the row stores.
    """
    data, indices, indptr = X
    center, bias, bound, norm_error = form
    n, d, count = y.size, center.size, 0
    center_square = inner_product(center, center)
    for start in range(0, n, steps.block):
        end = min(n, start + steps.block)
        shift = 0.0
        center_w = inner_product(center, w[:d])
        for t in range(start, end):
            if weight[t] > 0.0:
                row_w, row_center, square = stored_products(X, t, center, w)
                error = norm_error * (square + center_square)
                square = max(square - 2.0 * row_center + center_square, 0.0) + error
                s = row_factor(weight[t], square + bias, bound)
                product = row_w - center_w + shift * (row_center - center_square)
                r = smoothed_derivative(slope, steps.beta, s * (product + bias * w[d]), y[t])
                step = steps.learning_rate * r * s
                for k in range(indptr[t], indptr[t + 1]):
                    w[np.uint64(indices[k])] -= step * data[k]
                w[d] -= step * bias
                center_w -= step * row_center
                shift += step
        if shift != 0.0:
            for j in range(d):
                w[j] += shift * center[j]
        count += _close_block(w, steps.radius, end > steps.first, total)
    return count
