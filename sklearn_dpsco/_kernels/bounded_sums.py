"""Sums of bounded influences over rows times scalars; the (n, d) products are never stored.

Rows are given as by `dense_or_stored`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .jit import njit

# A polynomial in s = (a - 1) / (a + 1), lowest power first, that times a / (1 + a) is within
# 9e-5 of the closed form of psi (tests/test_means.py) for every a >= 0. Being a constant of
# the module it is unrolled, which makes it several times faster than a table.
_SMOOTH = np.array([
    1.4095326462876858, -0.3102841310192933, -1.0962224984769469, 1.169374327659424,
    1.3887884099024523, -3.532612030784562, -1.051241078324911, 6.964174436564122,
    -0.6063426780480327, -8.149082975646627, 2.2066268854518114, 5.101358670719878,
    -1.8682855377783725, -1.310860438954744, 0.5493324333470181,
])  # fmt: skip
_LAST = _SMOOTH.size - 1


@njit(cache=True, inline="always")
def _bounded(value: float, is_smooth: bool, bound: float) -> float:
    """The value, or its smoothed truncation, clipped to [-bound, bound]; 0 at 0."""
    if not is_smooth:
        return min(max(value, -bound), bound)
    a = min(abs(value), 1e15)
    inverse = 1.0 / (a + 1.0)
    s = (a - 1.0) * inverse
    h = _SMOOTH[_LAST]
    for k in range(_LAST - 1, -1, -1):
        h = _SMOOTH[k] + s * h
    return math.copysign(min(h * (a * inverse), bound), value)


@njit(cache=True, error_model="numpy")
def bounded_sums(
    X: Any, stored: Any, r: Any, with_one: bool, factor: float, bound: float, chunk: int, total: Any
) -> None:
    """Add the coordinates r_i [x_i, 1], each clipped to [-bound, bound], to `total`.

    Where the factor is not 0, add the smoothed truncations of them times the factor instead. Row i
    goes to row i mod m of `total`, which has shape (m, d) or, with the one, (m, d + 1).
    """
    d = total.shape[1] - with_one
    part, is_smooth = np.zeros(total.shape), factor != 0.0
    for first in range(0, r.size, chunk):
        part[:] = 0.0
        for i in range(first, min(r.size, first + chunk)):
            bucket = part[i % total.shape[0]]
            weight = r[i] * factor if is_smooth else r[i]
            if X is not None:
                for j in range(d):
                    bucket[j] += _bounded(weight * X[i, j], is_smooth, bound)
            if stored is not None:
                for k in range(stored.indptr[i], stored.indptr[i + 1]):
                    value = weight * stored.data[k]
                    bucket[np.uint64(stored.indices[k])] += _bounded(value, is_smooth, bound)
            if with_one:
                bucket[d] += _bounded(weight, is_smooth, bound)
        total += part


@njit(cache=True, inline="always")
def _count(value: float, center: float, low: int, counts: Any) -> None:
    """Count the octave of abs(value - center); zeros and deviations of 0 are left out."""
    deviation, last = abs(value - center), counts.size - 1
    if value == 0.0 or deviation == 0.0:
        return
    octave = math.frexp(deviation)[1] - low if deviation < 1e308 else last
    counts[min(max(octave, 0), last)] += 1


@njit(cache=True)
def octave_counts(X: Any, stored: Any, present: Any, center: Any, low: int, counts: Any) -> None:
    """Count, for each column, the b with 2^(b-1) <= abs(x - center) < 2^b.

    `counts` has shape (d, m); entry k counts b = low + k, the ends what lies beyond.
    """
    for i in range(present.size):
        if present[i]:
            if X is not None:
                for j in range(center.size):
                    _count(X[i, j], center[j], low, counts[j])
            if stored is not None:
                for k in range(stored.indptr[i], stored.indptr[i + 1]):
                    column = np.uint64(stored.indices[k])
                    _count(stored.data[k], center[column], low, counts[column])
