"""Derivatives of the losses, known by number (see `losses.Loss.loss_id`)."""

from __future__ import annotations

import math
from typing import Any

from numba.extending import overload

from .arguments import MULTINOMIAL, Slope, Tables
from .jit import njit

__all__ = ["clipped_derivative", "derivative", "joint_derivative"]


@njit(cache=True, inline="always")
def _pointwise_derivative(loss_id: int, z: float, y: float, parameter: float) -> float:
    if loss_id == 0:  # squared
        return z - y
    if loss_id == 1:  # huber
        return min(max(z - y, -parameter), parameter)
    if loss_id == 2:  # logistic; beyond 700 exp would overflow
        return -y / (1.0 + math.exp(min(y * z, 700.0)))
    if loss_id == 3:  # smoothed hinge
        return -y * min(max((1.0 - y * z) / parameter, 0.0), 1.0)
    if loss_id == 4:  # absolute
        return (1.0 if z > y else 0.0) - (1.0 if z < y else 0.0)
    if loss_id == 5:  # quantile
        return (1.0 - parameter if z > y else 0.0) - (parameter if z < y else 0.0)
    if loss_id == 6:  # epsilon-insensitive
        return (1.0 if z - y > parameter else 0.0) - (1.0 if y - z > parameter else 0.0)
    if loss_id == 7:  # hinge
        return -y if y * z < 1.0 else 0.0
    if loss_id == 8:  # squared hinge
        return -y * max(1.0 - y * z, 0.0)
    if loss_id == 9:  # welsch
        return (z - y) * math.exp(-(((z - y) / parameter) ** 2))
    if loss_id == 10:  # sigmoid
        e = math.exp(-abs(y * z))
        return -y * e / ((1.0 + e) * (1.0 + e))
    sign = (1.0 if z > y else 0.0) - (1.0 if z < y else 0.0)
    if loss_id == 11:  # log-absolute
        return sign * (parameter / (parameter + abs(z - y)))
    # mcp-absolute
    return sign * max(1.0 - abs(z - y) / parameter, 0.0)


@njit(cache=True, inline="always")
def _envelope_derivative(loss_id: int, z: float, y: float, parameter: float, beta: float) -> float:
    if loss_id == 0:  # squared
        return (z - y) * (beta / (1.0 + beta))
    if loss_id == 1:  # huber
        return min(max((z - y) * (beta / (1.0 + beta)), -parameter), parameter)
    if loss_id == 3:  # smoothed hinge
        return -y * min(max((1.0 - y * z) / (parameter + 1.0 / beta), 0.0), 1.0)
    if loss_id == 4:  # absolute
        return min(max(beta * (z - y), -1.0), 1.0)
    if loss_id == 5:  # quantile
        return min(max(beta * (z - y), -parameter), 1.0 - parameter)
    if loss_id == 6:  # epsilon-insensitive
        return math.copysign(min(max(beta * (abs(z - y) - parameter), 0.0), 1.0), z - y)
    if loss_id == 7:  # hinge
        return -y * min(max(beta * (1.0 - y * z), 0.0), 1.0)
    if loss_id == 8:  # squared hinge
        return -y * max(1.0 - y * z, 0.0) * (beta / (1.0 + beta))
    m = abs(z - y)
    if loss_id == 11:  # log-absolute
        total = m + parameter
        root = math.sqrt(max(total * total - 4.0 * parameter / beta, 0.0))
        return math.copysign(min(beta * m, 2.0 * parameter / (total + root), 1.0), z - y)
    # mcp-absolute
    falling = (1.0 - m / parameter) * (beta / (beta - 1.0 / parameter))
    return math.copysign(min(max(min(beta * m, falling), 0.0), 1.0), z - y)


@njit(cache=True, inline="always")
def _clipped(value: float, clip: float) -> float:
    """The value within [-clip, clip]; NaN, which only infinite predictions give, at its end."""
    below = value if value < clip else clip  # compiled without branches
    return below if below > -clip else -clip


@njit(cache=True, inline="always")
def clipped_derivative(slope: Slope, prediction: float, y: float) -> float:
    """The derivative that `slope` describes."""
    z, parameter = slope.offset + prediction, slope.parameter
    if slope.beta == math.inf:
        return _clipped(_pointwise_derivative(slope.loss_id, z, y, parameter), slope.clip)
    return _clipped(_envelope_derivative(slope.loss_id, z, y, parameter, slope.beta), slope.clip)


@njit(cache=True)
def _tabulated_derivative(tables: Tables, prediction: float, number: float) -> float:
    """The function of that number, by bisection; NaN as the left end."""
    z = tables.offset + prediction
    knots, values = tables.knots[int(number)], tables.values[int(number)]
    low, high = 0, knots.size - 1
    if not z > knots[low]:
        return _clipped(values[low], tables.clip)
    if z >= knots[high]:
        return _clipped(values[high], tables.clip)
    while high - low > 1:
        middle = (low + high) // 2
        if knots[middle] <= z:
            low = middle
        else:
            high = middle
    share = (z - knots[low]) / (knots[high] - knots[low])
    return _clipped(values[low] + share * (values[high] - values[low]), tables.clip)


def derivative(slope: Slope | Tables, prediction: float, y: float) -> float:
    """The derivative by a `Slope` or by `Tables`: code of one kind knows nothing of the other."""
    if isinstance(slope, Tables):
        return _tabulated_derivative(slope, prediction, y)
    return clipped_derivative(slope, prediction, y)


@overload(derivative, inline="always", strict=False)  # lambdas have no annotations
def _compiled_derivative(slope: Any, prediction: Any, y: Any) -> Any:
    """`derivative`, for the type of the argument."""
    if slope.instance_class is Tables:
        return lambda slope, prediction, y: _tabulated_derivative(slope, prediction, y)
    return lambda slope, prediction, y: clipped_derivative(slope, prediction, y)


@njit(cache=True, inline="always")
def joint_derivative(slope: Slope | Tables, z: Any, y: Any, out: Any) -> None:
    """Derivatives at the predictions z of a record's outputs, offsets included, into `out`.

    That of the multinomial loss is not clipped, the others each: derivatives that were clipped
    together would not be those of a convex function.
    """
    if slope.loss_id != MULTINOMIAL:
        for k in range(z.size):
            out[k] = derivative(slope, z[k], y[k])
        return
    top, total = z[0], 0.0
    for k in range(z.size):
        top = max(top, z[k])
    for k in range(z.size):
        out[k] = math.exp(z[k] - top)
        total += out[k]
    for k in range(z.size):
        out[k] /= total
        if y[k] > 0.0:
            out[k] -= 1.0
