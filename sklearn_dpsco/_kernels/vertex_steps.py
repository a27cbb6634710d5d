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

from .arguments import Compressed, Slope
from .derivatives import derivative
from .jit import njit


@njit(cache=True)
def add_column(X: Compressed, column: int, rows: Any, amount: float, product: Any) -> None:
    """Add amount x_ij to product_i for the rows that store column j; theirs are sorted."""
    data, indices, indptr = X
    for i in rows:
        place = np.searchsorted(indices[indptr[i] : indptr[i + 1]], column)
        product[i] += amount * data[indptr[i] + place]


@njit(cache=True)
def contribute(
    X: Compressed, rows: Any, records: Any, secant: Any, slope: Slope, found: Any, groups: Any
) -> None:
    """Bring what the listed rows contribute to both sums up to date.

    `records` are scale, factor, y, and product_i = <x_i, u>, with the coefficients s u for a factor
    s, the intercept's left out. `secant` is two factors s, whether there is an intercept, it, and
    a power of 2: derivatives are taken at s (product_i + intercept), and times that cut to
    integers. `found` is what each row contributed so far for either factor, unit factor_i l'(z_i),
    of shape (n, 2), and the sums, int64 of shape (d + 1, 2) or (d, 2), the intercept's last if
    there is one. `groups` are `bits`, `bounds` and `is_loose` of
    `randomness.stream.GroupedScores`, and whether the bounds are kept valid; if not, all of them
    must be made anew.
    """
    scale, factor, y, product = records
    r, sums = found
    bits, bounds, is_loose, widens = groups
    left, right, has_intercept, intercept, unit = secant
    data, indices, indptr = X
    last, shift = np.uint64(sums.shape[0] - 1), np.uint64(bits)
    for i in rows:
        start, end = np.uint64(indptr[i]), np.uint64(indptr[i + 1])
        total, weight = product[i] + intercept, unit * factor[i]
        for side in range(2):
            s = right if side else left
            old, new = r[i, side], weight * derivative(slope, scale[i] * (s * total), y[i])
            if new == old:
                continue
            r[i, side] = new
            for k in range(start, end):
                j, x = np.uint64(indices[k]), data[k]
                sums[j, side] += np.int64(new * x) - np.int64(old * x)
                if widens:
                    _widen(j >> shift, side, sums[j, side], bounds, is_loose)
            if has_intercept:
                sums[last, side] += np.int64(new) - np.int64(old)
                if widens:
                    _widen(last >> shift, side, sums[last, side], bounds, is_loose)


@njit(cache=True, inline="always")
def _widen(group: Any, side: int, value: Any, bounds: Any, is_loose: Any) -> None:
    """Make the bounds of a group hold for a sum that has changed."""
    # without branches, which would be hard to foresee
    bounds[group, 2 * side] = min(bounds[group, 2 * side], value)
    bounds[group, 2 * side + 1] = max(bounds[group, 2 * side + 1], value)
    is_loose[group] = True
