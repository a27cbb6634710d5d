"""One pass over rows that adds up clipped gradients at fixed coefficients.

The first two add s l'(offset + <r, w>, y) r for every row, where r = [x - center, bias] is not
scaled and s is that of `RowForm`, with the record's factor, scale times weight, as its scale. `w`
and `total` have a last coordinate for the intercept, whatever the bias. `dense_gradient_at` is the
form for dense rows of `sparse_sums.gradient_at`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .arguments import Change, Compressed, RowForm, Slope
from .derivatives import clipped_derivative
from .jit import njit
from .products import (
    add_four_rows,
    dense_products,
    inner_product,
    row_factor,
    stored_products,
)

__all__ = ["csr_gradient_sum", "dense_change_at", "dense_gradient_at", "dense_gradient_sum"]


@njit(cache=True)
def dense_gradient_sum(
    X: Any, factor: Any, y: Any, form: RowForm, slope: Slope, w: Any, total: Any
) -> None:
    """Over the rows of a dense array."""
    center, bias, bound, norm_error = form
    d = center.size
    for i in range(y.size):
        if factor[i] > 0.0:
            row = X[i]
            product, square = dense_products(row, center, w)
            s = row_factor(factor[i], square * (1.0 + norm_error) + bias * bias, bound)
            r = s * clipped_derivative(slope, product + bias * w[d], y[i])
            for j in range(d):
                total[j] += r * (row[j] - center[j])
            total[d] += r * bias


@njit(cache=True)
def csr_gradient_sum(
    X: Compressed, factor: Any, y: Any, form: RowForm, slope: Slope, w: Any, total: Any
) -> None:
    """Over the rows of a CSR matrix. The centre is subtracted from the total, which has 0s before.

    A centre other than 0 needs bias 1.
    """
    data, indices, indptr = X
    center, bias, bound, norm_error = form
    d = center.size
    center_square = inner_product(center, center)
    center_w = inner_product(center, w[:d])
    for i in range(y.size):
        if factor[i] > 0.0:
            product, row_center, square = stored_products(X, i, center, w)
            error = norm_error * (math.sqrt(square) + math.sqrt(center_square)) ** 2
            square = max(square - 2.0 * row_center + center_square, 0.0) + error
            s = row_factor(factor[i], square + bias * bias, bound)
            r = s * clipped_derivative(slope, product - center_w + bias * w[d], y[i])
            for k in range(indptr[i], indptr[i + 1]):
                total[indices[k]] += r * data[k]
            total[d] += r * bias
    for j in range(d):
        total[j] -= center[j] * total[d]


@njit(cache=True, nogil=True)
def dense_gradient_at(
    X: Any, scale: Any, factor: Any, y: Any, coef: Any, slope: Slope, chunk: int, total: Any
) -> float:
    """As `sparse_sums.gradient_at`. Four rows at a time, so that `part` is read less often."""
    n, d = X.shape
    coefs, intercept = coef[:d], coef[d] if coef.size > d else 0.0
    part = np.empty(d)
    total_b = 0.0
    for first in range(0, n, chunk):
        part[:] = 0.0
        part_b = 0.0
        end = min(n, first + chunk)
        whole = end - (end - first) % 4
        for i in range(first, whole, 4):
            # one by one: the compiler then keeps each sum in one register
            z0, z1 = inner_product(X[i], coefs), inner_product(X[i + 1], coefs)
            z2, z3 = inner_product(X[i + 2], coefs), inner_product(X[i + 3], coefs)
            r0 = _weighted(scale[i], factor[i], z0 + intercept, y[i], slope)
            r1 = _weighted(scale[i + 1], factor[i + 1], z1 + intercept, y[i + 1], slope)
            r2 = _weighted(scale[i + 2], factor[i + 2], z2 + intercept, y[i + 2], slope)
            r3 = _weighted(scale[i + 3], factor[i + 3], z3 + intercept, y[i + 3], slope)
            part_b += (r0 + r1) + (r2 + r3)
            add_four_rows(X, i, (r0, r1, r2, r3), part)
        for i in range(whole, end):
            z = inner_product(X[i], coefs) + intercept
            r = _weighted(scale[i], factor[i], z, y[i], slope)
            part_b += r
            for j in range(d):
                part[j] += r * X[i, j]
        total += part
        total_b += part_b
    return total_b


@njit(cache=True, nogil=True)
def dense_change_at(
    X: Any, which: Any, scale: Any, factor: Any, y: Any, coef: Any, before: Any, change: Change,
    slope: Slope, chunk: int, total: Any,
) -> float:  # fmt: skip
    """Sum over the rows `which` of clip(l'(z) - kept l'(z')) x, at the points `coef` and `before`.

    Row and target i are those of record which[i]; its scale is in z and z', and its factor on the
    result. The sum's coordinates go to `total`, that of the intercept is returned.
    """
    n, d = which.size, X.shape[1]
    intercept, intercept_before = 0.0, 0.0
    if coef.size > d:
        intercept, intercept_before = coef[d], before[d]
    part, total_b = np.empty(d), 0.0
    for first in range(0, n, chunk):
        part[:] = 0.0
        part_b = 0.0
        for t in range(first, min(n, first + chunk)):
            i = which[t]
            row = X[i]
            z = inner_product(row, coef[:d]) + intercept
            r = clipped_derivative(slope, scale[i] * z, y[i])
            if change.kept > 0.0:
                z = inner_product(row, before[:d]) + intercept_before
                r -= change.kept * clipped_derivative(slope, scale[i] * z, y[i])
                r = min(max(r, -change.largest), change.largest)
            r *= factor[i]
            part_b += r
            for j in range(d):
                part[j] += r * row[j]
        total += part
        total_b += part_b
    return total_b


@njit(cache=True, inline="always")
def _weighted(scale: float, factor: float, product: float, y: float, slope: Slope) -> float:
    return factor * clipped_derivative(slope, scale * product, y)
