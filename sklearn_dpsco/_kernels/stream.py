"""One pass over rows that adds up clipped gradients at fixed coefficients.

Added is s l'(offset + <r, w>, y) r for every row, r = [x - center, bias], where
s = weight min(1, bound / norm of r). `w` and `total` have a last coordinate for the
intercept, whatever the bias; `norm_error` is the relative error to add to a squared norm.
"""

from __future__ import annotations

import math
from typing import Any

from .jit import njit
from .phased_sgd import _dense_products, _inner_product
from .pointwise import clipped_derivative

__all__ = ["csr_gradient_sum", "dense_gradient_sum"]


@njit(cache=True)
def dense_gradient_sum(
    X: Any, weight: Any, y: Any, center: Any, bias: float, offset: float, norm_error: float,
    bound: float, loss_id: int, parameter: float, clip: float, w: Any, total: Any,
) -> None:  # fmt: skip
    """Over the rows of a dense array."""
    d = center.size
    for i in range(y.size):
        if weight[i] > 0.0:
            row = X[i]
            product, square = _dense_products(row, center, w)
            norm = math.sqrt(square * (1.0 + norm_error) + bias)
            s = weight[i] * (bound / max(bound, norm))
            z = product + bias * w[d] + offset
            slope = s * clipped_derivative(loss_id, z, y[i], parameter, clip)
            for j in range(d):
                total[j] += slope * (row[j] - center[j])
            total[d] += slope * bias


@njit(cache=True)
def csr_gradient_sum(
    data: Any, indices: Any, indptr: Any, weight: Any, y: Any, center: Any, bias: float,
    offset: float, norm_error: float, bound: float, loss_id: int, parameter: float, clip: float,
    w: Any, total: Any,
) -> None:  # fmt: skip
    """Over the rows of a CSR matrix. The centre is subtracted from the total, which has 0s before.

    A centre other than 0 needs bias 1.
    """
    d = center.size
    center_square = _inner_product(center, center)
    center_w = _inner_product(center, w[:d])
    for i in range(y.size):
        if weight[i] > 0.0:
            product, row_center, square = 0.0, 0.0, 0.0
            for k in range(indptr[i], indptr[i + 1]):
                x, j = data[k], indices[k]
                product += x * w[j]
                row_center += x * center[j]
                square += x * x
            far = (math.sqrt(square) + math.sqrt(center_square)) ** 2
            square = max(square - 2.0 * row_center + center_square, 0.0) + norm_error * far
            s = weight[i] * (bound / max(bound, math.sqrt(square + bias)))
            z = product - center_w + bias * w[d] + offset
            slope = s * clipped_derivative(loss_id, z, y[i], parameter, clip)
            for k in range(indptr[i], indptr[i + 1]):
                total[indices[k]] += slope * data[k]
            total[d] += slope * bias
    for j in range(d):
        total[j] -= center[j] * total[d]
