"""Derivatives of the losses, known by number (see `losses.kernel_id`)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba.extending import overload, register_jitable

from .. import losses
from .arguments import MULTINOMIAL, Slope, Tables, UsualSlope
from .jit import njit

# All is inlined by LLVM (`forceinline`), which makes the same code as numba's own inlining: that
# copies the long lists of cases before types are known, several seconds for each kernel.

_SQUARED, _LOGISTIC = losses.kernel_id(losses.Squared()), losses.kernel_id(losses.Logistic())

# exp(r) = sum r^k / k!, to the last bit but one for abs(r) <= log(2) / 2
_TAYLOR = tuple(1 / math.factorial(k) for k in range(14))
_PER_LOG_2 = 1 / math.log(2)
_LOG_2, _LOG_2_REST = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_TO_INTEGER = 1.5 * 2.0**52  # added to a small number, leaves the nearest integer in its last bits


def _or_else(loss_id: int, formula: Any, others: Any) -> Any:
    """The formula for that number of a loss, for the rest the others."""
    formula = njit(cache=False, forceinline=True)(formula)

    @njit(cache=False, forceinline=True)
    def chosen(number: int, z: float, y: float, parameter: float, beta: float) -> Any:
        if others is None or number == loss_id:
            return formula(z, y, parameter, beta)
        return others(number, z, y, parameter, beta)

    return chosen


# what the formulas of `losses` call
register_jitable(forceinline=True)(losses.pull)
register_jitable(forceinline=True)(losses.shrunk)
overload(losses.clip, jit_options={"forceinline": True}, strict=False)(
    lambda x, low, high: lambda x, low, high: min(max(x, low), high)
)

_derivative: Any = None  # the first formula comes first: it is added last
for _number, _formula in reversed([*enumerate(losses.FORMULAS)]):
    _derivative = _or_else(_number, _formula, _derivative)
_usual: Any = None
for _kind in losses.USUAL:
    _usual = _or_else(losses.FORMULAS.index(_kind.formula), _kind.formula, _usual)


@njit(cache=True, forceinline=True)
def _clipped(value: float, clip: float) -> float:
    """The value within [-clip, clip]; NaN, which only infinite predictions give, at its end."""
    below = value if value < clip else clip  # compiled without branches
    return below if below > -clip else -clip


@njit(cache=True, forceinline=True)
def clipped_derivative(slope: Slope, prediction: float, y: float) -> float:
    """The derivative that `slope` describes."""
    z = slope.offset + prediction
    return _clipped(_derivative(slope.loss_id, z, y, slope.parameter, slope.beta), slope.clip)


@njit(cache=True, forceinline=True)
def usual_derivative(slope: UsualSlope, prediction: float, y: float) -> float:
    """The same of `losses.USUAL` alone."""
    z = slope.offset + prediction
    return _clipped(_usual(slope.loss_id, z, y, slope.parameter, slope.beta), slope.clip)


@njit(cache=True)
def _tabulated_derivative(tables: Tables, prediction: float, number: float) -> float:
    """The function of that number, by bisection; NaN as the left end."""
    z = tables.offset + prediction
    knots, values = tables.knots[int(number)], tables.values[int(number)]
    if not z > knots[0]:
        return _clipped(values[0], tables.clip)
    if z >= knots[-1]:
        return _clipped(values[-1], tables.clip)
    high = np.searchsorted(knots, z, side="right")
    low = high - 1
    share = (z - knots[low]) / (knots[high] - knots[low])
    return _clipped(values[low] + share * (values[high] - values[low]), tables.clip)


def derivative(slope: Slope | Tables, prediction: float, y: float) -> float:
    """The derivative by a slope or by `Tables`: code of one kind knows nothing of the others."""
    if isinstance(slope, Tables):
        return _tabulated_derivative(slope, prediction, y)
    return clipped_derivative(slope, prediction, y)


# (not strict: lambdas have no annotations)
@overload(derivative, jit_options={"forceinline": True}, strict=False)
def _compiled_derivative(slope: Any, prediction: Any, y: Any) -> Any:
    if slope.instance_class is Tables:
        return lambda slope, prediction, y: _tabulated_derivative(slope, prediction, y)
    if slope.instance_class is UsualSlope:
        return lambda slope, prediction, y: usual_derivative(slope, prediction, y)
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


def replace_by_derivatives(slope: Any, z: Any, y: Any, bounds: Any, work: Any) -> None:
    """Put clipped derivatives in the place of the predictions z of shape (K, block), with offsets.

    The slope has no offset, and its clip bounds each derivative; `bounds` are on the l2 norms of
    the records' K derivatives. `work` is overwritten.
    """
    (_in_lanes if isinstance(slope, UsualSlope) else _one_by_one)(slope, z, y, bounds, work)


@overload(replace_by_derivatives, jit_options={"forceinline": True}, strict=False)
def _compiled_replacement(slope: Any, z: Any, y: Any, bounds: Any, work: Any) -> Any:
    if slope.instance_class is UsualSlope:
        return lambda slope, z, y, bounds, work: _in_lanes(slope, z, y, bounds, work)
    return lambda slope, z, y, bounds, work: _one_by_one(slope, z, y, bounds, work)


@njit(cache=True, error_model="numpy")
def _one_by_one(slope: Slope, z: Any, y: Any, bounds: Any, work: Any) -> None:
    """By branches for each number."""
    for k in range(z.shape[0]):
        for t in range(work.size):
            z[k, t] = clipped_derivative(slope, z[k, t], y[k, t])
    _shorten(z, slope.clip, bounds, work)


@njit(cache=True, error_model="numpy")
def _in_lanes(slope: UsualSlope, z: Any, y: Any, bounds: Any, work: Any) -> None:
    """By loops of which the compiler takes several numbers at a time."""
    n_outputs = z.shape[0]
    if slope.loss_id == MULTINOMIAL:
        work[:] = -math.inf
        for k in range(n_outputs):
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
    elif slope.loss_id == _SQUARED:
        for k in range(n_outputs):
            for t in range(work.size):
                z[k, t] -= y[k, t]
    else:  # of rates
        for k in range(n_outputs):
            for t in range(work.size):
                score = _clipped(z[k, t], losses.FAR)
                of_target = y[k, t] * _exp((1.0 - slope.parameter) * score)
                z[k, t] = _exp((2.0 - slope.parameter) * score) - of_target
    _shorten(z, slope.clip, bounds, work)


@njit(cache=True, error_model="numpy")
def _shorten(z: Any, clip: float, bounds: Any, work: Any) -> None:
    """As `losses.clipped_to` and `losses.clipped_rows`: numbers are clipped first."""
    if z.shape[0] == 1:
        for t in range(work.size):
            z[0, t] = _clipped(z[0, t], min(bounds[t], clip))
        return
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
