"""Medians by the exponential mechanism on public grids. (doc/privacy, section 4.5)"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ..data.summation import BLOCK_ROWS
from ..data.threads import slices, sum_on_threads
from ..mechanisms import SelectVertex
from ..randomness.stream import RandomStream

__all__ = ["median_on_grid", "place_counts", "scale_on_grid"]

Array = NDArray[np.float64]
Counts = Callable[[Array], Array]

_OCTAVES = 18  # of the grids of scales, four candidates in each


def place_counts(values: Array, present: NDArray[np.bool_], grid: Array) -> Array:
    """Of the values of present records, the number in each interval that ends on a grid.

    The last count is that of the values beyond the grid. Shape (grid.size + 1,).
    """

    def counted(part: slice) -> Array:
        places = np.searchsorted(grid, values[part])[present[part]]
        return np.bincount(places, minlength=grid.size + 1).astype(np.float64)

    return np.asarray(sum_on_threads(counted, slices(values.size, BLOCK_ROWS)))


def median_on_grid(
    counts_of: Counts,
    n_samples: int,
    grid: Array,
    log_prior: Array,
    mechanism: SelectVertex,
    stream: RandomStream,
) -> float:
    """A private median on an increasing grid; `counts_of` makes its `place_counts`.

    The score of a candidate is minus the number of records by which the interval from the
    candidate below it misses the median. An empty record counts as a half on either side.
    """
    counts = counts_of(grid)
    half_empty = (n_samples - counts.sum()) / 2
    upper = np.cumsum(counts[:-1]) + half_empty
    lower = np.concatenate(([half_empty], upper[:-1]))
    scores = -np.maximum(0.0, np.maximum(lower - n_samples / 2, n_samples / 2 - upper))
    return float(grid[mechanism.release(mechanism.with_prior(scores, log_prior), stream)])


def scale_on_grid(
    counts_of: Counts,
    n_samples: int,
    largest: float,
    guess: float,
    mechanism: SelectVertex | None,
    stream: RandomStream,
) -> float:
    """A private median of sizes up to `largest`, or the guess."""
    if mechanism is None:
        return guess
    octaves = np.arange(-_OCTAVES, 0.01, 0.25)
    grid = largest * 2.0**octaves
    log_prior = -0.5 * np.abs(octaves - math.log2(guess / largest))
    return median_on_grid(counts_of, n_samples, grid, log_prior, mechanism, stream)
