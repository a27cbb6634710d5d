r"""The optimal accounting of adaptively chosen selections and Gaussian releases.

:math:`H_k(\gamma)` is the largest hockey-stick divergence :math:`\sup_S P(S) - \gamma Q(S)` of k
selections of bounded range eta, each chosen after looking at the earlier outcomes. It is computed
on a grid as an upper bound, whose only error is that of chords. Where selections are many, or next
to other releases, a Gaussian curve above H_k bounds them (`selections_mu`). The recursion, the
computation and all proofs are in doc/privacy, section 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, partial

import numpy as np
from scipy.special import erfcx, ndtr

from .._types import AnyArray, Array, Indices

# Beyond, selections compose as groups of this size under one Gaussian curve each, which costs
# less than 0.5 % of the noise and less time.
_GROUP = 128

# Rounding of one step, of a sum and of the Gaussian part, with room to spare.
_STEP_ROUNDING = 1 + 1e-11
_FINAL_ROUNDING = 1 + 1e-8
_TOLERANCE = 1e-4  # of the search for eta, whose lower end is returned
_BEYOND_GRID = 1e-4  # what lies beyond the grid's end, relative to delta

# Where differences of curves would be rounding: below this mu and this range bounds are used.
# Beyond the largest range, no mu below `LARGEST_MU` is enough.
_SMALL_MU, _SMALLEST_ETA, _LARGEST_ETA = 1e-4, 1e-9, 50.0
_FAR = 40.0  # where a normal density is below all floats

# The two laws then differ so much that 1 - H is lost to rounding.
LARGEST_MU = 8.0

# Beyond this epsilon the grid would be long, and every analysis gives nearly no noise.
_LARGEST_EPSILON = 100.0
_LEAST_EPSILON, _LEAST_DELTA = 1e-9, 1e-100  # far below, floats have no room
_LARGEST_DELTA = 1 - 1e-6  # nearer to 1, the room for rounding leaves none


def bracketed(
    is_enough: Callable[[float], bool], tolerance: float, low: float = 0.0, high: float = 1.0
) -> tuple[float, float]:
    """A bracket of the least number above `low` that is enough: to that part of itself."""
    while not is_enough(high):
        high *= 2
    for _ in range(200):  # that of 0 would have no end
        if high - low <= tolerance * high:
            break
        middle = (low + high) / 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return low, high


def has_optimum(epsilon: float, delta: float, count: int) -> bool:
    """Whether `selection_epsilon` finds the optimum of so many selections in good time."""
    is_usual = _LEAST_EPSILON <= epsilon <= _LARGEST_EPSILON
    return count <= _GROUP and is_usual and _LEAST_DELTA <= delta <= _LARGEST_DELTA


def _cells(count: int) -> int:
    """Cells of the grid per eta; the interpolation's part of delta is about 10 / cells**2."""
    return 64 if count <= 16 else 32 if count <= 100 else 24


def gaussian_delta(epsilon: AnyArray, mu: float) -> Array:
    r"""Hockey-stick divergence of :math:`N(\mu, 1)` and N(0, 1) at e^epsilon, elementwise."""
    size = np.abs(epsilon)
    if mu == 0:
        at_size = np.zeros_like(size)
    else:
        with np.errstate(over="ignore", under="ignore"):
            # Phi(-a) - e^size Phi(-b) with both Mills ratios under one density
            a, b = size / mu - mu / 2, size / mu + mu / 2
            mills = erfcx(np.maximum(a, 0) / math.sqrt(2)) - erfcx(b / math.sqrt(2))
            density = np.exp(-(a**2) / 2)
            near = ndtr(-a) - density * erfcx(b / math.sqrt(2)) / 2
            at_size = np.where(a > 0, density * mills / 2, near)
            if mu < _SMALL_MU:
                # the difference of nearly equal terms would be rounding error. A bound: mu times
                # the slope of the Mills ratio at a, which is too large by 1 + mu at most.
                ratio = math.sqrt(math.pi / 2) * erfcx(np.minimum(a, _FAR) / math.sqrt(2))
                at_size = mu * density * np.maximum(0.0, 1 - a * ratio) / math.sqrt(2 * math.pi)
    return np.where(epsilon >= 0, at_size, -np.expm1(-size) + np.exp(-size) * at_size)


@lru_cache(maxsize=16)
def _optimum(count: int, m: int, h: float, end: int) -> Array:
    """Upper bounds of H_count at the points gamma = e^(j h), j = 0, ..., end; m h = eta.

    One more selection at a time, with the maximum over t in closed form between two chords:
    doc/privacy, section 1, "Computation from above", (a) to (c), also for z and y.
    """
    log_below = np.arange(-m, 0) * h
    below = np.exp(log_below)
    kink, values = -np.expm1(log_below), np.zeros(1)
    for number in range(1, count + 1):
        # from the point number * m on H is 0, as the losses of all selections add up to less
        n_points = min(end, number * m) + 1
        values = np.append(values, np.zeros(n_points - values.size))
        # all points are those of j = -m, ...; i is the left one of each pair of cells i, i + m
        i, j = np.arange(-m, n_points - 1), np.arange(n_points)
        # H(gamma) - (1 - gamma)_+ at all points, which is accurate on both sides of 1, by
        # H(1/g) = 1 - 1/g + H(g) / g
        excess = np.concatenate((below * values[m:0:-1], values, np.full(m, values[-1])))
        # slopes and constants of the chords; each slope times the point at its left
        slope = (excess[:-1] - excess[1:]) / math.expm1(h)
        constant = excess[:-1] + slope
        d_slope = slope[: i.size] - slope[m:] * math.exp(-m * h)
        d_slope[:m] += below  # of (1 - gamma)_+ between the two cells, in units of the left point
        d_constant = constant[: i.size] - constant[m:] + (i < 0)
        # ln z / h lies in [i + 1, i + m]; where nothing bends, the objective is flat
        bends = (d_slope > 0) & (d_constant > 0)
        log_z = np.log(np.where(bends, d_constant, 1.0)) - np.log(np.where(bends, d_slope, 1.0))
        log_z = np.clip(log_z / h + i, i + 1, i + m)
        y = np.where(bends, log_z - 2 * i, -np.inf)
        # at gamma_j: increasing all over cell i if y_i >= m - j + 2, decreasing if <= m - j
        least_before = np.minimum.accumulate(y)
        largest_after = np.maximum.accumulate(y[::-1])[::-1]
        first = np.searchsorted(-least_before, j - (m + 2.0), side="right") - m
        last = np.searchsorted(-largest_after, j - float(m), side="left") - m - 1
        first = np.clip(first, j - m, j - 1)
        last = np.clip(last, first, j - 1)
        excess[:m] += kink
        best = np.zeros(values.size)
        for offset in range(int(np.max(last - first)) + 1):
            cell = np.minimum(first + offset, last)
            at = np.clip((log_z[cell + m] + j - m) / 2, cell, cell + 1)
            np.maximum(best, _objective(at, cell, excess, m, h), out=best)
        values = np.minimum(best * _STEP_ROUNDING, 1.0)
    return np.append(values, np.zeros(end + 1 - values.size))


def _objective(at: Array, cell: Indices, full: Array, m: int, h: float) -> Array:
    """p_t H(gamma_j e^-t) + (1 - p_t) H(gamma_j e^(eta - t)), ln(gamma_j e^-t) = at h."""
    t = (np.arange(at.size) - at) * h
    part = np.expm1((at - cell) * h) / math.expm1(h)
    left, right = full[cell + m], full[cell + 2 * m]
    left = left + part * (full[cell + m + 1] - left)
    right = right + part * (full[cell + 2 * m + 1] - right)
    likely = np.expm1(t - m * h) / math.expm1(-m * h)
    rare = np.exp(t - m * h) * np.expm1(-t) / math.expm1(-m * h)
    return np.asarray(likely * left + rare * right)


def selection_delta(
    epsilon: float, eta: float, count: int, mu: float = 0.0, scale: float = 1e-6
) -> float:
    """Upper bound on delta at `epsilon` of a Gaussian release and `count` selections.

    `eta` is the range of each selection, which may be chosen after looking at all earlier outcomes;
    `mu` is of all Gaussian releases together, before, between or after the selections; `scale` the
    size of the delta that matters: the bound is loose by about 1e-4 of it. The mean over the
    release's privacy loss is exact for a function of chords (doc/privacy, section 1, (d)).
    """
    m = _cells(count)
    h = eta / m
    rho = count * eta**2 / 8
    reach = rho + math.sqrt(4 * rho * math.log(1 / (_BEYOND_GRID * scale)))
    end = min(count * m, max(m, math.ceil(reach / h)))
    values = _optimum(count, m, h, end)
    log_gamma = np.arange(-end, end + 1) * h
    below = np.exp(log_gamma[:end])
    excess = np.concatenate((below * values[:0:-1], values))
    # below the points H = 1 - gamma + gamma H(infinity), above them it is H(infinity)
    before = -values[-1] * math.exp(log_gamma[0])
    slopes = (excess[:-1] - excess[1:]) / math.expm1(h)
    weights = np.concatenate(([before], slopes * math.exp(h))) - np.concatenate((slopes, [0.0]))
    weights[end] += 1.0
    terms = np.maximum(weights, 0.0) * gaussian_delta(epsilon - log_gamma, mu)
    return min(1.0, float(terms.sum() + values[-1]) * _FINAL_ROUNDING)


@lru_cache(maxsize=1024)
def selection_epsilon(epsilon: float, delta: float, count: int, mu: float = 0.0) -> float:
    """Largest range of each of `count` selections within (epsilon, delta), to 1e-4; 0 if none.

    Of all models together, next to Gaussian releases of all models that are mu-Gaussian-DP. The
    `selection_delta` of the range is at most `delta`.
    """
    # where Gaussian DP alone reaches (epsilon, delta), a little above
    point = np.array([epsilon])
    _, total = bracketed(lambda mu: not gaussian_delta(point, mu)[0] < delta, 1e-9)
    if mu >= total * (1 - 1e-6):  # selections could only be of ranges below all use
        return 0.0
    target = math.sqrt(-math.log(delta))

    def slack(inverse: float) -> float:
        """Non-negative where 1 / eta = inverse is private; nearly linear in it."""
        bound = selection_delta(epsilon, 1 / inverse, count, mu, delta)
        return math.sqrt(-math.log(max(bound, 1e-300))) - target

    # the start: many selections are nearly Gaussian; few of them alone compose purely
    start = math.sqrt(count / (total**2 - mu**2)) / 2
    start = start if mu else min(start, count / epsilon)
    return 1 / _smallest_root(slack, start)


@lru_cache(maxsize=1024)
def selections_mu(eta: float, count: int) -> float:
    """A mu such that `count` selections of range eta are mu-Gaussian-DP.

    For groups of up to 128 the least one, with a Gaussian curve that is nowhere below :math:`H_k`.
    The mu of several groups compose by the root of the sum of their squares. Each selection may be
    chosen after looking at all earlier outcomes. inf where it would be above about `LARGEST_MU`.
    """
    groups, rest = divmod(count, _GROUP)
    of_groups = math.sqrt(groups) * _group_mu(eta, _GROUP) if groups else 0.0
    return math.hypot(of_groups, _group_mu(eta, rest) if rest else 0.0)


@lru_cache(maxsize=1024)
def selections_of_mu(mu: float, count: int) -> float:
    """Largest range of `count` selections that are mu-Gaussian-DP, to 1e-4; mu <= `LARGEST_MU`."""
    if not mu <= LARGEST_MU:
        raise ValueError(f"mu must be at most {LARGEST_MU}, got {mu!r}")
    eta = 2 * mu / math.sqrt(count)
    for _ in range(100):
        found = selections_mu(eta, count)
        if mu * (1 - _TOLERANCE) <= found <= mu:
            return eta
        eta *= mu * (1 - _TOLERANCE / 2) / found  # mu is nearly linear in eta
    raise AssertionError("no range was found")


@lru_cache(maxsize=256)
def _group_mu(eta: float, count: int) -> float:
    if eta > _LARGEST_ETA:
        return math.inf
    if eta < _SMALLEST_ETA:
        # differences of the curve would be rounding; mu is proportional to eta, up to terms of
        # the relative size count * eta
        return eta / _SMALLEST_ETA * _group_mu(_SMALLEST_ETA, count) * (1 + 1e-6)
    m = _cells(count)
    h = eta / m
    values = _optimum(count, m, h, count * m) * _FINAL_ROUNDING

    high = eta * math.sqrt(count) / 2
    while not _is_above(values, h, high):
        high *= 1.1
        if high > 1.3 * LARGEST_MU:
            return math.inf
    low = high / 1.1
    while _is_above(values, h, low):
        low, high = low / 1.1, low
    return bracketed(partial(_is_above, values, h), _TOLERANCE / 10, low, high)[1]


def _is_above(values: Array, h: float, mu: float) -> bool:
    """Whether the Gaussian curve is nowhere below the chords."""
    # the gap is convex over a cell, so it is above its tangent in the middle of the cell
    left = np.arange(values.size - 1) * h
    half = math.expm1(h) / 2  # of the cell's width
    middle = left + math.log1p(half)
    # for a tiny mu, `gaussian_delta` is a bound from above
    below = gaussian_delta(middle, mu) / (1 + mu if mu < _SMALL_MU else 1)
    gap = below - (values[:-1] + values[1:]) / 2
    # slopes times the left point: of the curve, -gamma Phi(-b) with the Mills ratio at b
    with np.errstate(under="ignore", over="ignore"):
        density = np.exp(-((middle / mu - mu / 2) ** 2) / 2)
        curve = density * erfcx((middle / mu + mu / 2) / math.sqrt(2)) / 2 / (1 + half)
    chord = (values[:-1] - values[1:]) / (2 * half)
    return bool(np.all(gap - np.abs(curve - chord) * half >= 0))


def _smallest_root(slack: Callable[[float], float], start: float) -> float:
    """Where the increasing function `slack` is at least 0, and is not _TOLERANCE below."""
    private = other = start
    at_private = at_other = slack(start)
    growth = 1.01
    while at_private < 0:
        other, at_other = private, at_private
        private, growth = private * growth, growth**2
        at_private = slack(private)
    while at_other >= 0:
        private, at_private = other, at_other
        other, growth = other / growth, growth**2
        at_other = slack(other)
    moved, in_a_row = 0.0, 0
    while private - other > _TOLERANCE * private:
        # the root of the chord, moved by half a tolerance so that both ends converge
        root = other + (private - other) * at_other / (at_other - at_private)
        half = _TOLERANCE * private / 2
        middle = min(private - half, max(other + half, root + moved * half))
        if in_a_row > 2:
            middle, in_a_row = (private + other) / 2, 0
        value = slack(middle)
        if value >= 0:
            private, at_private, side = middle, value, -1.0
        else:
            other, at_other, side = middle, value, 1.0
        in_a_row, moved = in_a_row + 1 if side == moved else 0, side
    return private
