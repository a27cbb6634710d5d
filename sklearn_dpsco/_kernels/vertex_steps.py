"""Steps of full-batch Frank-Wolfe that touch only the rows which store the selected column.

A record contributes to coordinate j of a sum the integer ``trunc(r x_ij)``, with r its clipped
derivative times its factor and a public unit. Sums of integers are exact, so that a sum which is
changed by what a record contributes now, less what it did before, is that over the records as they
are now, to the last bit. There are two sums: of derivatives at a larger and at a smaller factor of
the coefficients, between which the walk interpolates.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .arguments import Compressed, Secant, Slope
from .derivatives import clipped_derivative
from .jit import njit

__all__ = ["add_column", "contribute", "rows_by_column"]


@njit(cache=True)
def rows_by_column(indices: Any, indptr: Any, starts: Any, rows: Any) -> None:
    """The rows that store column j, in order, into ``rows[starts[j]:starts[j + 1]]``.

    `indices` and `indptr` are those of CSR storage with d columns. `starts` has d + 2 places, all
    of them 0.
    """
    for k in range(indices.size):
        starts[np.uint64(indices[k]) + np.uint64(2)] += 1
    for j in range(2, starts.size):
        starts[j] += starts[j - 1]
    # now starts[j + 1] is where column j begins; it moves on to where it ends
    for i in range(indptr.size - 1):
        for k in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            place = np.uint64(indices[k]) + np.uint64(1)
            rows[starts[place]] = i
            starts[place] += 1


@njit(cache=True)
def add_column(X: Compressed, column: int, rows: Any, amount: float, product: Any) -> None:
    """Add amount x_ij to product_i for the rows that store column j; theirs are sorted."""
    data, indices, indptr = X
    for i in rows:
        low, high = indptr[i], indptr[i + 1]
        while high - low > 1:
            middle = (low + high) // 2
            if indices[middle] <= column:
                low = middle
            else:
                high = middle
        product[i] += amount * data[low]


@njit(cache=True)
def contribute(
    X: Compressed, rows: Any, scale: Any, factor: Any, y: Any, product: Any, secant: Secant,
    slope: Slope, r: Any, sums: Any, bits: int, bounds: Any, is_loose: Any, widens: bool,
) -> None:  # fmt: skip
    """Bring what the listed rows contribute to both sums up to date.

    Parameters
    ----------
    rows : ndarray of int
    scale, factor, y, product : ndarray of shape (n,)
        product_i = <x_i, u>, with the coefficients s u for a factor s, the intercept's left out.
    secant : Secant
    slope : Slope
        Its clip bounds abs(l').
    r : ndarray of shape (n, 2)
        What each row contributed so far, for either factor: unit factor_i l'(z_i).
    sums : ndarray of int64 of shape (d + 1, 2) or (d, 2)
        The intercept's last, if there is one.
    bits, bounds, is_loose
        Of groups of coordinates, see `randomness.exact.GroupedScores`.
    widens : bool
        Whether the bounds are kept valid; if not, all of them must be made anew.
    """
    data, indices, indptr = X
    has_intercept, last = secant.has_intercept, sums.shape[0] - 1
    for i in rows:
        total = product[i] + secant.intercept
        old_left, old_right = r[i, 0], r[i, 1]
        left = clipped_derivative(slope, scale[i] * (secant.left * total), y[i])
        right = clipped_derivative(slope, scale[i] * (secant.right * total), y[i])
        left, right = secant.unit * (factor[i] * left), secant.unit * (factor[i] * right)
        r[i, 0], r[i, 1] = left, right
        if left == old_left and right == old_right:
            continue
        start, end = np.uint64(indptr[i]), np.uint64(indptr[i + 1])
        if left == old_left:  # at the start of an epoch
            for k in range(start, end):
                j, x = np.uint64(indices[k]), data[k]
                sums[j, 1] += np.int64(right * x) - np.int64(old_right * x)
                if widens:
                    _widen(j, sums, bits, bounds, is_loose)
        else:
            for k in range(start, end):
                j, x = np.uint64(indices[k]), data[k]
                sums[j, 0] += np.int64(left * x) - np.int64(old_left * x)
                sums[j, 1] += np.int64(right * x) - np.int64(old_right * x)
                if widens:
                    _widen(j, sums, bits, bounds, is_loose)
        if has_intercept:
            sums[last, 0] += np.int64(left) - np.int64(old_left)
            sums[last, 1] += np.int64(right) - np.int64(old_right)
            if widens:
                _widen(np.uint64(last), sums, bits, bounds, is_loose)


@njit(cache=True, inline="always")
def _widen(j: Any, sums: Any, bits: int, bounds: Any, is_loose: Any) -> None:
    """Make the bounds of the group of coordinate j hold for it."""
    group = j >> np.uint64(bits)
    bounds[group, 0] = min(bounds[group, 0], sums[j, 0])
    bounds[group, 1] = max(bounds[group, 1], sums[j, 0])
    bounds[group, 2] = min(bounds[group, 2], sums[j, 1])
    bounds[group, 3] = max(bounds[group, 3], sums[j, 1])
    is_loose[group] = True
