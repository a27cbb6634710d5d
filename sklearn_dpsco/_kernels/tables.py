"""Tables of non-decreasing, piecewise linear functions of bounded slope."""

from __future__ import annotations

from typing import Any

from .jit import njit

_UP = 2.0**-50  # some units in the last place: gaps are rounded up


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
