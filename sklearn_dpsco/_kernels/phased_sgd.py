"""Stochastic gradient descent, record by record, inside one loop.

A record's row is r = s [x - center, bias], s = weight min(1, bound / norm), and the step is

    w <- w - learning_rate l'(offset + <r, w>, y) r.

A record of weight 0 is skipped. After each `block` of records w is projected onto the ball
of the given radius and, once `first` records are done, added to `total`; the functions
return how many iterates were added.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .jit import njit
from .pointwise import smoothed_derivative

__all__ = ["csr_steps", "dense_steps", "gather_rows"]


# Sums of products in an order that suits the machine: the error bound of the plan is that of
# any order. Nothing else in the kernels may be reordered.
@njit(cache=True, fastmath={"reassoc", "contract"})
def _dense_products(row: Any, center: Any, w: Any) -> Any:
    """<x - center, w> and the squared norm of x - center."""
    product, square = 0.0, 0.0
    for j in range(center.size):
        value = row[j] - center[j]
        product += value * w[j]
        square += value * value
    return product, square


@njit(cache=True, fastmath={"reassoc", "contract"})
def _inner_product(a: Any, b: Any) -> float:
    total = 0.0
    for j in range(a.size):
        total += a[j] * b[j]
    return total


@njit(cache=True, inline="always")
def _close_block(w: Any, radius: float, is_averaged: bool, total: Any) -> int:
    """Project w, and add it to `total` if it is averaged."""
    norm = math.sqrt(_inner_product(w, w))
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
    X: Any, weight: Any, y: Any, center: Any, bias: float, offset: float,
    bound: float, learning_rate: float, radius: float, loss_id: int, parameter: float,
    beta: float, clip: float, block: int, first: int, w: Any, total: Any,
) -> int:  # fmt: skip
    """Descend over the rows of X in their order; w and `total` are changed in place."""
    n, d, count = y.size, center.size, 0
    for start in range(0, n, block):
        end = min(n, start + block)
        for t in range(start, end):
            if weight[t] > 0.0:
                row = X[t]
                product, square = _dense_products(row, center, w)
                s = weight[t] * (bound / max(bound, math.sqrt(square + bias)))
                z = offset + s * (product + bias * w[d])
                slope = smoothed_derivative(loss_id, z, y[t], parameter, beta, clip)
                step = learning_rate * slope * s
                for j in range(d):
                    w[j] -= step * (row[j] - center[j])
                w[d] -= step * bias
        count += _close_block(w, radius, end > first, total)
    return count


@njit(cache=True)
def csr_steps(
    data: Any, indices: Any, indptr: Any, norm_error: float,
    weight: Any, y: Any, center: Any, bias: float, offset: float,
    bound: float, learning_rate: float, radius: float, loss_id: int, parameter: float,
    beta: float, clip: float, block: int, first: int, w: Any, total: Any,
) -> int:  # fmt: skip
    """Descend over the rows of a CSR matrix in their order.

    Within a block the coefficients are w + shift * center, so that a step changes only
    what the row stores. `norm_error` is the relative error to add to a squared norm.
    """
    n, d, count = y.size, center.size, 0
    center_square = _inner_product(center, center)
    for start in range(0, n, block):
        end = min(n, start + block)
        shift = 0.0
        center_w = _inner_product(center, w[:d])
        for t in range(start, end):
            if weight[t] > 0.0:
                row_w, row_center, square = 0.0, 0.0, 0.0
                for k in range(indptr[t], indptr[t + 1]):
                    x, column = data[k], np.uint64(indices[k])  # as in `sparse.py`
                    row_w += x * w[column]
                    row_center += x * center[column]
                    square += x * x
                norm = square - 2.0 * row_center + center_square
                norm = max(norm, 0.0) + norm_error * (square + center_square)
                s = weight[t] * (bound / max(bound, math.sqrt(norm + bias)))
                product = row_w - center_w + shift * (row_center - center_square)
                z = offset + s * (product + bias * w[d])
                slope = smoothed_derivative(loss_id, z, y[t], parameter, beta, clip)
                step = learning_rate * slope * s
                for k in range(indptr[t], indptr[t + 1]):
                    w[np.uint64(indices[k])] -= step * data[k]
                w[d] -= step * bias
                center_w -= step * row_center
                shift += step
        if shift != 0.0:
            for j in range(d):
                w[j] += shift * center[j]
        count += _close_block(w, radius, end > first, total)
    return count
