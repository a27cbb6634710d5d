"""The filter that turns released values into noisy prefix sums, on a single coordinate."""

from __future__ import annotations

from typing import Any

import numpy as np

from .jit import njit


@njit(cache=True)
def prefix_response(rates: Any, weights: Any, n_steps: int) -> Any:
    """How a unit of noise in the first released value enters each prefix sum."""
    state = np.zeros(rates.size)
    out = np.empty(n_steps)
    total_weight = weights.sum()
    released, prefix = 1.0, 0.0
    for t in range(n_steps):
        state *= rates
        x = (released - np.sum(weights * state)) / total_weight
        state += x
        prefix += x
        out[t] = prefix
        released = 0.0
    return out
