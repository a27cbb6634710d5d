"""One pass over rows that adds up clipped gradients at fixed coefficients.

The second is for dense rows, in C order, as `sparse_sums.gradient_at` is for those in CSR storage.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from . import products
from .arguments import RowForm, Slope
from .derivatives import derivative, replace_by_derivatives
from .jit import njit

_BLOCK = 256  # rows: they fit into a cache, and any number of lanes divides them


@njit(cache=True)
def gradient_sum(
    X: Any, stored: Any, factor: Any, y: Any, form: RowForm, slope: Slope, w: Any, total: Any
) -> None:
    """Add s l'(offset + <r, w>, y) r for every row, where r = [x - center, bias] is not scaled.

    s is that of `RowForm`, with the record's factor, scale times weight, as its scale. `w` and
    `total` have a last coordinate for the intercept, whatever the bias; `total` has 0s before. For
    X and `stored` see `dense_or_stored`: of the latter the centre is subtracted from the total, and
    one other than 0 needs bias 1.
    """
    center, bias, bound, norm_error = form
    d, product, square = center.size, 0.0, 0.0
    center_square = products.inner_product(center, center)
    center_w = products.inner_product(center, w[:d])
    for i in range(y.size):
        if factor[i] > 0.0:
            if X is not None:
                product, square = products.dense_products(X[i], center, w)
                square *= 1.0 + norm_error
            if stored is not None:
                product, row_center, square = products.stored_products(stored, i, center, w)
                error = norm_error * (math.sqrt(square) + math.sqrt(center_square)) ** 2
                square = max(square - 2.0 * row_center + center_square, 0.0) + error
                product -= center_w
            s = products.row_factor(factor[i], square + bias * bias, bound)
            r = s * derivative(slope, product + bias * w[d], y[i])
            if X is not None:
                for j in range(d):
                    total[j] += r * (X[i, j] - center[j])
            if stored is not None:
                for k in range(stored.indptr[i], stored.indptr[i + 1]):
                    total[stored.indices[k]] += r * stored.data[k]
            total[d] += r * bias
    if stored is not None:
        total[:d] -= center * total[d]


@njit(cache=True, nogil=True)
def dense_gradient_at(X: Any, records: Any, chunks: Any, coef: Any, of_loss: Any) -> Any:
    """Sum of factor_i r_i [x_i, 1], r_i the clipped derivatives of the K outputs, as (K, d + 1).

    At ``offset + scale_i <[x_i, 1], coef>``, over the rows of ``range(*chunks)``, by its step; the
    loss is given by offset and slope. `coef` has shape (K, d + 1). `records` are y of shape (n, K),
    scale, factor, and bounds on the l2 norms of the derivatives beside the loss's clip; of these
    arrays, those of shape (0,) stand for ones.

    The rows of a block stay in the cache from their products to their sum.
    """
    (begin, last, chunk), d, n_outputs = chunks, X.shape[1], records[0].shape[1]
    total, part = np.zeros((n_outputs, d + 1)), np.empty((n_outputs, d + 1))
    # of a block: predictions, targets, bounds, and one to work in
    z, targets = np.zeros((n_outputs, _BLOCK)), np.zeros((n_outputs, _BLOCK))
    clips, work = np.full(_BLOCK, of_loss[1].clip), np.empty(_BLOCK)
    buffers = z, targets, clips, work
    for first in range(begin, last, chunk):
        part[:] = 0.0
        end = min(last, first + chunk)
        for start in range(first, end, _BLOCK):
            stop = min(end, start + _BLOCK)
            for k in range(n_outputs):
                products.row_products(X[start:stop], coef[k, :d], z[k, : stop - start])
                for t in range(_BLOCK):
                    z[k, t] += coef[k, d]
            _add_block(X[start:stop], records, start, of_loss, buffers, part)
        total += part
    return total


@njit(cache=True, inline="always")
def _add_block(X: Any, records: Any, start: int, of_loss: Any, buffers: Any, part: Any) -> None:
    """Add the sum over the rows of a block, whose products are in the first buffer."""
    (z, targets, clips, work), (offset, slope) = buffers, of_loss
    (size, d), own = X.shape, slice(start, start + X.shape[0])
    # slices, as no place in them is negative, which the compiler would have to look for
    y, scale, factor, bounds = records
    y, scale, factor, bounds = y[own], scale[own], factor[own], bounds[own]
    for k in range(z.shape[0]):
        line = z[k]
        for t in range(size):
            targets[k, t] = y[t, k]
        for t in range(scale.size):
            line[t] *= scale[t]
        for t in range(line.size):
            line[t] += offset[k]
    for t in range(bounds.size):
        clips[t] = min(slope.clip, bounds[t])
    replace_by_derivatives(slope, z, targets, clips, work)
    for k in range(z.shape[0]):
        line = z[k, :size]
        for t in range(factor.size):
            line[t] *= factor[t]
        products.add_rows(X, line, part[k, :d])
        part[k, d] += products.plain_sum(line)
