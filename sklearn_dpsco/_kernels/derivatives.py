"""Derivatives of the losses, known by number (see `losses.kernel_id`)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba.extending import overload

from .arguments import MULTINOMIAL, Slope, Tables
from .jit import njit

# All is inlined by LLVM (`forceinline`), which makes the same code as numba's own inlining: that
# copies the long lists of cases before types are known, several seconds for each kernel.

_SQUARED, _LOGISTIC = 0, 5  # their numbers

# exp(r) = sum r^k / k!, to the last bit but one for abs(r) <= log(2) / 2
_TAYLOR = tuple(1 / math.factorial(k) for k in range(14))
_PER_LOG_2 = 1 / math.log(2)
_LOG_2, _LOG_2_REST = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_TO_INTEGER = 1.5 * 2.0**52  # added to a small number, leaves the nearest integer in its last bits


@njit(cache=True, forceinline=True)
def _pointwise_derivative(loss_id: int, z: float, y: float, parameter: float) -> float:
    if loss_id == 0:  # squared
        return z - y
    if loss_id == 1:  # huber
        return min(max(z - y, -parameter), parameter)
    if loss_id == 2:  # absolute
        return (1.0 if z > y else 0.0) - (1.0 if z < y else 0.0)
    if loss_id == 3:  # quantile
        return (1.0 - parameter if z > y else 0.0) - (parameter if z < y else 0.0)
    if loss_id == 4:  # epsilon-insensitive
        return (1.0 if z - y > parameter else 0.0) - (1.0 if y - z > parameter else 0.0)
    if loss_id == 5:  # logistic; beyond 700 exp would overflow
        return -y / (1.0 + math.exp(min(y * z, 700.0)))
    if loss_id == 6:  # smoothed hinge
        return -y * min(max((1.0 - y * z) / parameter, 0.0), 1.0)
    if loss_id == 7:  # hinge
        return -y if y * z < 1.0 else 0.0
    if loss_id == 8:  # squared hinge
        return -y * max(1.0 - y * z, 0.0)
    if loss_id == 9:  # welsch
        return (z - y) * math.exp(-(((z - y) / parameter) ** 2))
    if loss_id == 12:  # sigmoid
        e = math.exp(-abs(y * z))
        return -y * e / ((1.0 + e) * (1.0 + e))
    sign = (1.0 if z > y else 0.0) - (1.0 if z < y else 0.0)
    if loss_id == 10:  # log-absolute
        return sign * (parameter / (parameter + abs(z - y)))
    if loss_id == 13:  # tweedie
        z = min(max(z, -300.0), 300.0)
        return math.exp((2.0 - parameter) * z) - y * math.exp((1.0 - parameter) * z)
    # mcp-absolute
    return sign * max(1.0 - abs(z - y) / parameter, 0.0)


@njit(cache=True, forceinline=True)
def _envelope_derivative(loss_id: int, z: float, y: float, parameter: float, beta: float) -> float:
    if loss_id == 0:  # squared
        return (z - y) * (beta / (1.0 + beta))
    if loss_id == 1:  # huber
        return min(max((z - y) * (beta / (1.0 + beta)), -parameter), parameter)
    if loss_id == 2:  # absolute
        return min(max(beta * (z - y), -1.0), 1.0)
    if loss_id == 3:  # quantile
        return min(max(beta * (z - y), -parameter), 1.0 - parameter)
    if loss_id == 4:  # epsilon-insensitive
        return math.copysign(min(max(beta * (abs(z - y) - parameter), 0.0), 1.0), z - y)
    if loss_id == 6:  # smoothed hinge
        return -y * min(max((1.0 - y * z) / (parameter + 1.0 / beta), 0.0), 1.0)
    if loss_id == 7:  # hinge
        return -y * min(max(beta * (1.0 - y * z), 0.0), 1.0)
    if loss_id == 8:  # squared hinge
        return -y * max(1.0 - y * z, 0.0) * (beta / (1.0 + beta))
    m = abs(z - y)
    if loss_id == 10:  # log-absolute
        total = m + parameter
        root = math.sqrt(max(total * total - 4.0 * parameter / beta, 0.0))
        return math.copysign(min(beta * m, 2.0 * parameter / (total + root), 1.0), z - y)
    # mcp-absolute
    falling = (1.0 - m / parameter) * (beta / (beta - 1.0 / parameter))
    return math.copysign(min(max(min(beta * m, falling), 0.0), 1.0), z - y)


@njit(cache=True, forceinline=True)
def _clipped(value: float, clip: float) -> float:
    """The value within [-clip, clip]; NaN, which only infinite predictions give, at its end."""
    below = value if value < clip else clip  # compiled without branches
    return below if below > -clip else -clip


@njit(cache=True, forceinline=True)
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


# (not strict: lambdas have no annotations)
@overload(derivative, jit_options={"forceinline": True}, strict=False)
def _compiled_derivative(slope: Any, prediction: Any, y: Any) -> Any:
    if slope.instance_class is Tables:
        return lambda slope, prediction, y: _tabulated_derivative(slope, prediction, y)
    return lambda slope, prediction, y: clipped_derivative(slope, prediction, y)


@njit(cache=True, forceinline=True)
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


@njit(cache=True, forceinline=True)
def _exp(x: float) -> float:
    """exp(x) for abs(x) <= 700, in steps that the compiler can take for several x at a time."""
    shifted = x * _PER_LOG_2 + _TO_INTEGER
    k = shifted - _TO_INTEGER
    r = (x - k * _LOG_2) - k * _LOG_2_REST
    total = _TAYLOR[13]
    for i in range(12, -1, -1):
        total = total * r + _TAYLOR[i]
    exponent = np.float64(shifted).view(np.int64) + np.int64(1023)
    return total * np.int64(exponent << np.int64(52)).view(np.float64)


# Of blocks of records: all arrays have the length of a block, whatever the number of records in it,
# since the end of a shorter array would be taken by other steps, of other rounding.


@njit(cache=True, error_model="numpy")
def replace_by_derivatives(slope: Slope, z: Any, y: Any, bounds: Any, work: Any) -> None:
    """Put clipped derivatives in the place of the predictions z of shape (K, block), with offsets.

    The slope has no offset, and its clip bounds each derivative; `bounds` are on the l2 norms of
    the records' K derivatives. `work` is overwritten.
    """
    n_outputs = z.shape[0]
    if slope.loss_id == MULTINOMIAL:
        work[:] = z[0]
        for k in range(1, n_outputs):
            for t in range(work.size):
                work[t] = max(work[t], z[k, t])
        for k in range(n_outputs):
            for t in range(work.size):
                z[k, t] = _exp(_clipped(z[k, t] - work[t], 700.0))
        work[:] = 0.0
        for k in range(n_outputs):
            for t in range(work.size):
                work[t] += z[k, t]
        for k in range(n_outputs):
            for t in range(work.size):
                z[k, t] = z[k, t] / work[t] - (1.0 if y[k, t] > 0.0 else 0.0)
    elif slope.loss_id == _LOGISTIC:
        for k in range(n_outputs):
            for t in range(work.size):
                z[k, t] = -y[k, t] / (1.0 + _exp(_clipped(y[k, t] * z[k, t], 700.0)))
    elif slope.loss_id == _SQUARED and slope.beta == math.inf:
        z -= y
    else:  # branches for each number
        for k in range(n_outputs):
            for t in range(work.size):
                z[k, t] = clipped_derivative(slope, z[k, t], y[k, t])
    if n_outputs == 1:
        for t in range(work.size):
            z[0, t] = _clipped(z[0, t], min(bounds[t], slope.clip))
    else:
        _shorten(z, slope.clip, bounds, work)


@njit(cache=True, error_model="numpy")
def _shorten(z: Any, clip: float, bounds: Any, work: Any) -> None:
    """As `losses.clipped_to` and `losses.clipped_rows`: numbers are clipped first."""
    work[:] = 0.0
    for k in range(z.shape[0]):
        for t in range(work.size):
            z[k, t] = _clipped(z[k, t], clip)
            size = z[k, t] / max(bounds[t], 1e-300)  # whose square does not overflow
            work[t] += size * size
    rounded_up = 1.0 + (z.shape[0] + 8) * 2.0**-52
    for t in range(work.size):
        work[t] = max(math.sqrt(work[t]) * rounded_up, 1.0)
    for k in range(z.shape[0]):
        for t in range(work.size):
            z[k, t] /= work[t]
