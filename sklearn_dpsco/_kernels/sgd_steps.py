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

from .arguments import NORM_BLOCK, RowForm, Steps
from .derivatives import derivative, joint_derivative
from .jit import njit
from .products import dense_products, inner_product, row_factor, stored_products

_UP = 2.0**-50  # some units in the last place: gaps are rounded up


@njit(cache=True, inline="always")
def _close_block(w: Any, radius: float, is_averaged: bool, total: Any) -> int:
    flat, square = w.ravel(), 0.0
    for start in range(0, flat.size, NORM_BLOCK):
        part = flat[start : start + NORM_BLOCK]
        square += inner_product(part, part)
    norm = math.sqrt(square)
    if norm > radius:
        w *= radius / norm
    if not is_averaged:
        return 0
    total += w
    return 1


@njit(cache=True)
def single_steps(
    X: Any, stored: Any, records: Any, form: RowForm, slope: Any, steps: Steps, w: Any, total: Any
) -> int:
    """Descend over the rows in their order; w and `total` are changed in place.

    For X and `stored` see `dense_or_stored`: of the latter the coefficients within a block are
    w + shift * center, so that a step changes only what the row stores.
    """
    scale, weight, y = records
    center, bias, bound, norm_error = form
    n, d, count, product, square = y.size, center.size, 0, 0.0, 0.0
    center_square, center_w, shift = inner_product(center, center), 0.0, 0.0
    for start in range(0, n, steps.block):
        end = min(n, start + steps.block)
        if stored is not None:
            center_w, shift = inner_product(center, w[:d]), 0.0
        for t in range(start, end):
            if scale[t] > 0.0:
                if X is not None:
                    product, square = dense_products(X[t], center, w)
                    square *= 1.0 + norm_error
                if stored is not None:
                    product, row_center, square = stored_products(stored, t, center, w)
                    error = norm_error * (square + center_square)
                    square = max(square - 2.0 * row_center + center_square, 0.0) + error
                    product = product - center_w + shift * (row_center - center_square)
                s = row_factor(scale[t], square + bias * bias, bound)
                r = derivative(slope, s * (product + bias * w[d]), y[t])
                step = steps.learning_rate * r * s * weight[t]
                w[d] -= step * bias
                if X is not None:
                    for j in range(d):
                        w[j] -= step * (X[t, j] - center[j])
                if stored is not None:
                    for k in range(stored.indptr[t], stored.indptr[t + 1]):
                        w[np.uint64(stored.indices[k])] -= step * stored.data[k]
                    center_w -= step * row_center
                    shift += step
        if stored is not None and shift != 0.0:
            w[:d] += shift * center
        count += _close_block(w, steps.radius, end > steps.first, total)
    return count


@njit(cache=True)
def _add_products(X: Any, stored: Any, t: int, center: Any, w: Any, z: Any) -> Any:
    """Add <x - center, w> to z, shape (K,); returns 0 and the squared norm of x - center.

    Of stored rows add <x, w>, and return <x, center> and the squared norm of x.
    """
    row_center, square = 0.0, 0.0
    if X is not None:
        for j in range(center.size):
            value = X[t, j] - center[j]
            square += value * value
            for k in range(z.size):
                z[k] += value * w[j, k]
    if stored is not None:
        for e in range(stored.indptr[t], stored.indptr[t + 1]):
            x, at = np.float64(stored.data[e]), np.uint64(stored.indices[e])
            row_center += x * center[at]
            square += x * x
            for k in range(z.size):
                z[k] += x * w[at, k]
    return row_center, square


@njit(cache=True)
def joint_steps(
    X: Any, stored: Any, records: Any, form: RowForm, slopes: Any, steps: Steps, w: Any, total: Any
) -> int:
    """`single_steps` for K outputs; `slopes` are the slope and the offsets."""
    (scale, weight, y), (slope, offset) = records, slopes
    center, bias, bound, norm_error = form
    n, d, n_outputs, count = y.shape[0], center.size, w.shape[1], 0
    z, r = np.empty(n_outputs), np.empty(n_outputs)
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
                for k in range(n_outputs):
                    z[k] = bias * w[d, k] if X is not None else 0.0
                row_center, square = _add_products(X, stored, t, center, w, z)
                if X is not None:
                    square *= 1.0 + norm_error
                if stored is not None:
                    error = norm_error * (square + center_square)
                    square = max(square - 2.0 * row_center + center_square, 0.0) + error
                    for k in range(n_outputs):
                        z[k] = z[k] - center_w[k] + shift[k] * (row_center - center_square)
                        z[k] += bias * w[d, k]
                s = row_factor(scale[t], square + bias * bias, bound)
                for k in range(n_outputs):
                    z[k] = offset[k] + s * z[k]
                joint_derivative(slope, z, y[t], r)
                for k in range(n_outputs):
                    r[k] *= steps.learning_rate * s * weight[t]
                    w[d, k] -= r[k] * bias
                    center_w[k] -= r[k] * row_center
                    shift[k] += r[k]
                if X is not None:
                    for j in range(d):
                        for k in range(n_outputs):
                            w[j, k] -= r[k] * (X[t, j] - center[j])
                if stored is not None:
                    for e in range(stored.indptr[t], stored.indptr[t + 1]):
                        for k in range(n_outputs):
                            w[np.uint64(stored.indices[e]), k] -= r[k] * stored.data[e]
        if stored is not None:
            w[:d] += np.outer(center, shift)
        count += _close_block(w, steps.radius, end > steps.first, total)
    return count


# ------------------------------------------ tables of non-decreasing functions of bounded slope


@njit(cache=True)
def _gap(width: float, rise: float, beta: float) -> float:
    """At least ``rise / beta`` in exact arithmetic, and about `width` if that is more."""
    return max(width, rise / beta) * (1.0 + _UP)


@njit(cache=True)
def lay_knots(values: Any, targets: Any, grid: Any, beta: float, knots: Any) -> None:
    """Make the values of each row non-decreasing, and find knots that keep slopes within beta.

    `values` holds a function at ``targets[i] + grid``, and is changed in place: outwards from the
    middle of the grid, a value that would turn back is that of its neighbour. The knots are these
    points, moved away from where the function crosses 0 so that in exact arithmetic

        knots[i, j + 1] - knots[i, j] >= (values[i, j + 1] - values[i, j]) / beta.
    """
    n, m = values.shape
    middle = m // 2
    for i in range(n):
        t, u = values[i], knots[i]
        for j in range(middle + 1, m):
            t[j] = max(t[j], t[j - 1])
        for j in range(middle - 1, -1, -1):
            t[j] = min(t[j], t[j + 1])
        stays = 0  # the last value that is not positive
        while stays + 1 < m and t[stays + 1] <= 0.0:
            stays += 1
        u[stays] = targets[i] + grid[stays]
        if t[stays] < 0.0 and stays + 1 < m:
            width, rise = grid[stays + 1] - grid[stays], t[stays + 1] - t[stays]
            u[stays] += t[stays] / rise * (_gap(width, rise, beta) - width)
        for j in range(stays, m - 1):
            end = u[j] + _gap(grid[j + 1] - grid[j], t[j + 1] - t[j], beta)
            u[j + 1] = end + _UP * abs(end)
        for j in range(stays, 0, -1):
            end = u[j] - _gap(grid[j] - grid[j - 1], t[j] - t[j - 1], beta)
            u[j - 1] = end - _UP * abs(end)
