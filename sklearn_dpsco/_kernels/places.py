"""Counts of numbers by their place on a grid."""

from __future__ import annotations

from typing import Any

import numpy as np

from .jit import njit

_BLOCK = 64


@njit(cache=True, nogil=True)
def count_places(values: Any, present: Any, grid: Any, counts: Any) -> None:
    """Add to counts[k] how many present values exceed k numbers of the increasing grid; NaN all.

    The grid is filled up with infinities to a length of 2^m - 1, so that all searches take m
    halvings: the compiler can take each for several values at once.
    """
    places = np.zeros(_BLOCK, dtype=np.int64)
    for first in range(0, values.size, _BLOCK):
        size = min(_BLOCK, values.size - first)
        places[:] = 0
        step = (grid.size + 1) // 2
        while step > 0:
            for t in range(size):
                is_above = not values[first + t] <= grid[places[t] + step - 1]
                places[t] += step if is_above else 0
            step //= 2
        for t in range(size):
            if present[first + t]:
                counts[min(places[t], counts.size - 1)] += 1.0
