"""Derivatives of the losses, known by number (see `losses.Loss.loss_id`)."""

from __future__ import annotations

import math

from numba import njit

__all__ = ["clipped_derivative"]


@njit(cache=True, inline="always")
def _pointwise_derivative(loss_id: int, z: float, y: float, parameter: float) -> float:
    if loss_id == 0:  # squared
        return z - y
    if loss_id == 1:  # huber
        return min(max(z - y, -parameter), parameter)
    if loss_id == 2:  # logistic; beyond 700 exp would overflow
        return -y / (1.0 + math.exp(min(y * z, 700.0)))
    # smoothed hinge
    return -y * min(max((1.0 - y * z) / parameter, 0.0), 1.0)


@njit(cache=True, inline="always")
def clipped_derivative(loss_id: int, z: float, y: float, parameter: float, clip: float) -> float:
    """dl/dz clipped to [-clip, clip]."""
    return min(max(_pointwise_derivative(loss_id, z, y, parameter), -clip), clip)
