"""Inner products and norms of rows, factors on them, and the places of numbers on a grid."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .arguments import Compressed
from .jit import njit

_LARGEST_SQUARE = 1e60  # of a norm, so that its row fits into float32
_AT_ONCE = 64  # numbers whose places are looked for together


# The compiler may reorder the sums of these functions: the error bound of the plan holds
# for any order. Nothing else in the kernels may be reordered.
@njit(cache=True, fastmath={"reassoc", "contract"})
def dense_products(row: Any, center: Any, w: Any) -> Any:
    """<x - center, w> and the squared norm of x - center."""
    product, square = 0.0, 0.0
    for j in range(center.size):
        value = row[j] - center[j]
        product += value * w[j]
        square += value * value
    return product, square


@njit(cache=True, fastmath={"reassoc", "contract"})
def inner_product(a: Any, b: Any) -> float:
    """<a, b>."""
    total = 0.0
    for j in range(a.size):
        total += a[j] * b[j]
    return total


@njit(cache=True, fastmath={"reassoc", "contract"})
def add_rows(X: Any, factors: Any, total: Any) -> None:
    """Add the rows times their factors. Four at a time, so that `total` is read less often."""
    whole = factors.size - factors.size % 4
    for i in range(0, whole, 4):
        x0, x1, x2, x3 = X[i], X[i + 1], X[i + 2], X[i + 3]
        r0, r1, r2, r3 = factors[i], factors[i + 1], factors[i + 2], factors[i + 3]
        for j in range(total.size):
            total[j] += (r0 * x0[j] + r1 * x1[j]) + (r2 * x2[j] + r3 * x3[j])
    for i in range(whole, factors.size):
        x, r = X[i], factors[i]
        for j in range(total.size):
            total[j] += r * x[j]


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def squared_norms(X: Any, center: Any, unit: Any, out: Any) -> None:
    """The squared norm of unit (x_i - center) for every row."""
    for i in range(out.size):
        row, total = X[i], 0.0
        for j in range(center.size):
            value = (row[j] - center[j]) * unit[j]
            total += value * value
        out[i] = total


@njit(cache=True, fastmath={"reassoc", "contract"})
def plain_sum(values: Any) -> float:
    """The sum of a vector."""
    total = 0.0
    for i in range(values.size):
        total += values[i]
    return total


@njit(cache=True, fastmath={"reassoc", "contract"})
def _norm(row: Any, is_present: bool, norm_error: float) -> float:
    """The norm of a row, rounded up; infinite if it is not present or beyond all measure.

    `norm_error` is as in `RowForm`.
    """
    square = 0.0
    for j in range(row.size):
        value = np.float64(row[j])
        square += value * value
    square *= 1.0 + norm_error
    return math.sqrt(square) if is_present and square < _LARGEST_SQUARE else math.inf


@njit(cache=True, nogil=True)
def row_products(X: Any, w: Any, out: Any) -> None:
    """<x_i, w> for every row, each by the same steps wherever the row lies."""
    for i in range(out.size):
        out[i] = inner_product(X[i], w)


@njit(cache=True, inline="always")
def stored_products(X: Compressed, i: int, center: Any, w: Any) -> Any:
    """<x, w>, <x, center> and the squared norm of x, the row i of a CSR matrix."""
    data, indices, indptr = X
    product, row_center, square = 0.0, 0.0, 0.0
    for k in range(indptr[i], indptr[i + 1]):
        x, j = np.float64(data[k]), np.uint64(indices[k])  # unsigned: see `sparse_sums`
        product += x * w[j]
        row_center += x * center[j]
        square += x * x
    return product, row_center, square


@njit(cache=True, inline="always")
def row_factor(scale: float, square: float, bound: float) -> float:
    """The factor s of `RowForm`, from the squared norm of [x - center, bias], its error added."""
    return scale * (bound / max(bound, math.sqrt(square)))


@njit(cache=True, nogil=True)
def centered_rows(X: Any, center: Any, by: Any, out: Any) -> None:
    """The rows (x - center) by into `out`; numpy would make an array of each step."""
    for i in range(X.shape[0]):
        for j in range(X.shape[1]):
            out[i, j] = (X[i, j] - center[j]) * by[j]


@njit(cache=True, nogil=True)
def measure_rows(X: Any, present: Any, norm_error: float, norms: Any) -> None:
    """The `_norm` of each row into `norms`; rows of which it is infinite become 0."""
    for i in range(norms.size):
        norms[i] = _norm(X[i], present[i], norm_error)
        if norms[i] == math.inf:
            X[i] = 0.0


@njit(cache=True, nogil=True)
def add_by_user(X: Any, factors: Any, order: Any, starts: Any, ends: Any, total: Any) -> None:
    """Add the rows [x_i, 1] times their factors of K outputs to the sums of their users.

    Those of user u are ``order[starts[u]:ends[u]]``. `total` may have no column for the 1.
    """
    for u in range(starts.size):
        _add_rows_of(X, factors, order[starts[u] : ends[u]], total[u])


@njit(cache=True, inline="always")
def _add_rows_of(X: Any, factors: Any, rows: Any, sums: Any) -> None:
    """Add these rows [x_i, 1], or x_i, times their factors to sums."""
    n_outputs, d = factors.shape[1], X.shape[1]
    for i in rows:
        x = X[i]
        for c in range(n_outputs):
            r = factors[i, c]
            for j in range(d):
                sums[j * n_outputs + c] += r * x[j]
            if sums.size > d * n_outputs:
                sums[d * n_outputs + c] += r


@njit(cache=True, nogil=True)
def shortened_user_sum(
    X: Any, factors: Any, order: Any, starts: Any, ends: Any, unit: Any, clip: float, norms: Any
) -> Any:
    """The sum over users of what `add_by_user` makes of each, scaled down to a norm of `clip`.

    The norm is that of the user's vector times `unit`, times what is in `norms`, where it is
    written. One that is beyond all measure counts as 0.
    """
    total, sums = np.zeros(unit.size), np.empty(unit.size)
    for u in range(starts.size):
        sums[:] = 0.0
        _add_rows_of(X, factors, order[starts[u] : ends[u]], sums)
        square = 0.0
        for j in range(sums.size):
            square += (unit[j] * sums[j]) ** 2
        norms[u] *= math.sqrt(square)
        if norms[u] < math.inf:
            total += sums * (clip / max(clip, norms[u]))
        else:
            norms[u] = math.inf
    return total


@njit(cache=True, nogil=True)
def shortened_sum(
    X: Any, center: Any, by: Any, present: Any, norm_error: float, bound: float
) -> Any:
    """Sum of the rows (x - center) by, of a norm of `bound` at most.

    Longer ones than 1 are divided by their norm, and all multiplied by the bound.
    """
    total, z = np.zeros(X.shape[1]), np.empty(X.shape[1])
    for i in range(present.size):
        for j in range(z.size):
            z[j] = (X[i, j] - center[j]) * by[j]
        norm = _norm(z, present[i], norm_error)
        factor = bound / max(1.0, norm)
        if norm < math.inf:
            for j in range(z.size):
                total[j] += factor * z[j]
    return total


@njit(cache=True, nogil=True)
def shortened_rows(X: Any, present: Any, norm_error: float, bound: float, out: Any) -> None:
    """The rows into `out`, those longer than 1 divided by their norm, and all times the bound."""
    for i in range(present.size):
        norm = _norm(X[i], present[i], norm_error)
        factor = bound / max(1.0, norm) * (1.0 - 2.0**-50)
        for j in range(out.shape[1]):
            out[i, j] = factor * X[i, j] if norm < math.inf else 0.0


@njit(cache=True, nogil=True)
def octave_sum(
    X: Any, present: Any, is_centred: bool, usual: float, most: float, norm_error: float, total: Any
) -> None:
    """Add what `mean_octaves` is the mean of for pairs of rows, of shape (2, d)."""
    d, longest = X.shape[1], most * math.sqrt(X.shape[1])
    octaves, is_equal = np.empty(d), np.empty(d)
    bits = octaves.view(np.int64)
    for i in range(0, present.size - 1, 2):
        if not (present[i] and present[i + 1]):
            continue
        for j in range(d):
            a, b = X[i, j], X[i + 1, j]
            octaves[j] = abs(a - b) if is_centred else max(abs(a), abs(b))
        square = 0.0
        for j in range(d):
            # exponent and digits, read as one number
            octave = np.float64(bits[j] >> 20) * 2.0**-32 - 1023.0 - usual
            is_equal[j] = most if octaves[j] == 0.0 else 0.0
            octaves[j] = 0.0 if octaves[j] == 0.0 else octave
            square += octaves[j] * octaves[j] + is_equal[j] * is_equal[j]
        norm = math.sqrt(square * (1.0 + norm_error))
        factor = (1.0 - 2.0**-50) / max(longest, norm)
        for j in range(d):
            total[0, j] += factor * octaves[j]
            total[1, j] += factor * is_equal[j]


@njit(cache=True, nogil=True)
def shares_of_first(values: Any, order: Any, starts: Any, ends: Any, most: float, out: Any) -> None:
    """What counts of each value >= 0 if a user's first ones count until they add up to `most`."""
    for u in range(starts.size):
        left = most
        for k in range(starts[u], ends[u]):
            value = values[order[k]]
            if value > left:
                out[order[k]] = left / value
            left -= min(value, left)


@njit(cache=True, nogil=True)
def scaled_rows(X: Any, factors: Any, out: Any) -> None:
    """The rows [x_i, 1] times their factors into `out`, which may have no column for the 1."""
    d = X.shape[1]
    for i in range(factors.size):
        for j in range(d):
            out[i, j] = factors[i] * X[i, j]
        if out.shape[1] > d:
            out[i, d] = factors[i]


@njit(cache=True, nogil=True, error_model="numpy")
def rows_in_bounds(
    X: Any, low: Any, high: Any, shift: Any, width: Any, largest: float, out: Any
) -> None:
    """(x - shift) / width for x clipped to its column's ends, within [-largest, largest].

    Sizes beyond 1 can be no more than what the division rounds. NaN stays NaN. (Python's error
    model would look for a width of 0 at each number.)
    """
    for i in range(X.shape[0]):
        for j in range(X.shape[1]):
            x: Any = np.float64(X[i, j])
            x = low[j] if x < low[j] else x
            x = high[j] if x > high[j] else x
            x = (x - shift[j]) / width[j]
            x = -largest if x < -largest else x
            out[i, j] = largest if x > largest else x


@njit(cache=True, nogil=True)
def count_places(values: Any, present: Any, grid: Any, counts: Any) -> None:
    """Add to counts[k] how many present values exceed k numbers of the increasing grid; NaN all.

    The grid is filled up with infinities to a length of 2^m - 1, so that all searches take m
    halvings: the compiler can take each for several values at once. Places are unsigned, as
    negative ones would have to be looked for.
    """
    places = np.zeros(_AT_ONCE, dtype=np.uint64)
    for first in range(0, values.size, _AT_ONCE):
        some, counted = values[first : first + _AT_ONCE], present[first : first + _AT_ONCE]
        places[:] = 0
        step = (grid.size + 1) // 2
        while step > 0:
            for t in range(some.size):
                is_above = not some[t] <= grid[places[t] + np.uint64(step - 1)]
                places[t] += np.uint64(step if is_above else 0)
            step //= 2
        for t in range(some.size):
            if counted[t]:
                counts[min(places[t], np.uint64(counts.size - 1))] += 1.0
