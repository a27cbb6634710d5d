"""Stochastic gradient descent, record by record, inside one loop.

The step for a record, whose row r is formed as in `RowForm`, is

    w <- w - learning_rate v l'(offset + <r, w>, y) r,

v the record's weight, which is not in r. `records` are the scales, the weights and y.
With K outputs, w and `total` have shape (d + 1, K), y (n, K), and `offset` (K,).
A record of scale 0 is skipped. After each block of records w is projected onto a ball and,
once the first records are done, added to `total`; the functions return how many were added.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .arguments import RowForm, Steps
from .derivatives import derivative, joint_derivative
from .jit import njit
from .products import dense_products, inner_product, row_factor, stored_products


@njit(cache=True, inline="always")
def _close_block(w: Any, radius: float, is_averaged: bool, total: Any) -> int:
    flat, flat_total = w.ravel(), total.ravel()  # views
    norm = math.sqrt(inner_product(flat, flat))
    if norm > radius:
        for j in range(flat.size):
            flat[j] *= radius / norm
    if not is_averaged:
        return 0
    for j in range(flat.size):
        flat_total[j] += flat[j]
    return 1


@njit(cache=True)
def dense_steps(
    X: Any, records: Any, form: RowForm, slope: Any, steps: Steps, w: Any, total: Any
) -> int:
    """Descend over the rows of X in their order; w and `total` are changed in place."""
    scale, weight, y = records
    center, bias, bound, norm_error = form
    n, d, count = y.size, center.size, 0
    for start in range(0, n, steps.block):
        end = min(n, start + steps.block)
        for t in range(start, end):
            if scale[t] > 0.0:
                row = X[t]
                product, square = dense_products(row, center, w)
                s = row_factor(scale[t], square * (1.0 + norm_error) + bias * bias, bound)
                r = derivative(slope, s * (product + bias * w[d]), y[t])
                step = steps.learning_rate * r * s * weight[t]
                for j in range(d):
                    w[j] -= step * (row[j] - center[j])
                w[d] -= step * bias
        count += _close_block(w, steps.radius, end > steps.first, total)
    return count


@njit(cache=True)
def csr_steps(
    X: Any, records: Any, form: RowForm, slope: Any, steps: Steps, w: Any, total: Any
) -> int:
    """Descend over the rows of a CSR matrix in their order.

    Within a block the coefficients are w + shift * center, so that a step changes only
    what the row stores.
    """
    data, indices, indptr = X
    scale, weight, y = records
    center, bias, bound, norm_error = form
    n, d, count = y.size, center.size, 0
    center_square = inner_product(center, center)
    for start in range(0, n, steps.block):
        end = min(n, start + steps.block)
        shift = 0.0
        center_w = inner_product(center, w[:d])
        for t in range(start, end):
            if scale[t] > 0.0:
                row_w, row_center, square = stored_products(X, t, center, w)
                error = norm_error * (square + center_square)
                square = max(square - 2.0 * row_center + center_square, 0.0) + error
                s = row_factor(scale[t], square + bias * bias, bound)
                product = row_w - center_w + shift * (row_center - center_square)
                r = derivative(slope, s * (product + bias * w[d]), y[t])
                step = steps.learning_rate * r * s * weight[t]
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


@njit(cache=True)
def joint_dense_steps(
    X: Any, records: Any, form: RowForm, slope: Any, offset: Any, steps: Steps, w: Any, total: Any
) -> int:
    """`dense_steps` for K outputs."""
    scale, weight, y = records
    center, bias, bound, norm_error = form
    n, d, count = y.shape[0], center.size, 0
    z, r = np.empty(w.shape[1]), np.empty(w.shape[1])
    for start in range(0, n, steps.block):
        end = min(n, start + steps.block)
        for t in range(start, end):
            if scale[t] > 0.0:
                row, square = X[t], 0.0
                for k in range(z.size):
                    z[k] = bias * w[d, k]
                for j in range(d):
                    value = row[j] - center[j]
                    square += value * value
                    for k in range(z.size):
                        z[k] += value * w[j, k]
                s = row_factor(scale[t], square * (1.0 + norm_error) + bias * bias, bound)
                for k in range(z.size):
                    z[k] = offset[k] + s * z[k]
                joint_derivative(slope, z, y[t], r)
                for k in range(z.size):
                    r[k] *= steps.learning_rate * s * weight[t]
                for j in range(d):
                    value = row[j] - center[j]
                    for k in range(z.size):
                        w[j, k] -= r[k] * value
                for k in range(z.size):
                    w[d, k] -= r[k] * bias
        count += _close_block(w, steps.radius, end > steps.first, total)
    return count


@njit(cache=True)
def joint_csr_steps(
    X: Any, records: Any, form: RowForm, slope: Any, offset: Any, steps: Steps, w: Any, total: Any
) -> int:
    """`csr_steps` for K outputs: within a block the coefficients are w + center shift^T."""
    data, indices, indptr = X
    scale, weight, y = records
    center, bias, bound, norm_error = form
    n, d, count = y.shape[0], center.size, 0
    n_outputs = w.shape[1]
    z, r, row_w = np.empty(n_outputs), np.empty(n_outputs), np.empty(n_outputs)
    center_w, shift = np.empty(n_outputs), np.empty(n_outputs)
    center_square = inner_product(center, center)
    for start in range(0, n, steps.block):
        end = min(n, start + steps.block)
        shift[:] = 0.0
        center_w[:] = 0.0
        for i in range(d):
            for k in range(n_outputs):
                center_w[k] += center[i] * w[i, k]
        for t in range(start, end):
            if scale[t] > 0.0:
                row_w[:] = 0.0
                row_center, square = 0.0, 0.0
                for e in range(indptr[t], indptr[t + 1]):
                    x, j = np.float64(data[e]), np.uint64(indices[e])
                    row_center += x * center[j]
                    square += x * x
                    for k in range(n_outputs):
                        row_w[k] += x * w[j, k]
                error = norm_error * (square + center_square)
                square = max(square - 2.0 * row_center + center_square, 0.0) + error
                s = row_factor(scale[t], square + bias * bias, bound)
                for k in range(n_outputs):
                    product = row_w[k] - center_w[k] + shift[k] * (row_center - center_square)
                    z[k] = offset[k] + s * (product + bias * w[d, k])
                joint_derivative(slope, z, y[t], r)
                for k in range(n_outputs):
                    r[k] *= steps.learning_rate * s * weight[t]
                    w[d, k] -= r[k] * bias
                    center_w[k] -= r[k] * row_center
                    shift[k] += r[k]
                for e in range(indptr[t], indptr[t + 1]):
                    x, j = np.float64(data[e]), np.uint64(indices[e])
                    for k in range(n_outputs):
                        w[j, k] -= r[k] * x
        for i in range(d):
            for k in range(n_outputs):
                w[i, k] += shift[k] * center[i]
        count += _close_block(w, steps.radius, end > steps.first, total)
    return count
