"""One pass over rows that adds up clipped gradients at fixed coefficients.

Added is s l'(offset + <r, w>, y) r for every row, where r = [x - center, bias] is not scaled
and s is the factor of `RowForm`. `w` and `total` have a last coordinate for the intercept,
whatever the bias.
"""

from __future__ import annotations

import math
from typing import Any

from .arguments import Compressed, RowForm, Slope
from .derivatives import clipped_derivative
from .jit import njit
from .products import dense_products, inner_product, row_factor, stored_products

__all__ = ["csr_gradient_sum", "dense_gradient_sum"]


@njit(cache=True)
def dense_gradient_sum(
    X: Any, weight: Any, y: Any, form: RowForm, slope: Slope, w: Any, total: Any
) -> None:
    """Over the rows of a dense array."""
    center, bias, bound, norm_error = form
    d = center.size
    for i in range(y.size):
        if weight[i] > 0.0:
            row = X[i]
            product, square = dense_products(row, center, w)
            s = row_factor(weight[i], square * (1.0 + norm_error) + bias, bound)
            r = s * clipped_derivative(slope, product + bias * w[d], y[i])
            for j in range(d):
                total[j] += r * (row[j] - center[j])
            total[d] += r * bias


@njit(cache=True)
def csr_gradient_sum(
    X: Compressed, weight: Any, y: Any, form: RowForm, slope: Slope, w: Any, total: Any
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
        if weight[i] > 0.0:
            product, row_center, square = stored_products(X, i, center, w)
            error = norm_error * (math.sqrt(square) + math.sqrt(center_square)) ** 2
            square = max(square - 2.0 * row_center + center_square, 0.0) + error
            s = row_factor(weight[i], square + bias, bound)
            r = s * clipped_derivative(slope, product - center_w + bias * w[d], y[i])
            for k in range(indptr[i], indptr[i + 1]):
                total[indices[k]] += r * data[k]
            total[d] += r * bias
    for j in range(d):
        total[j] -= center[j] * total[d]
