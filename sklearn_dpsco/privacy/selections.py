r"""The optimal accounting of adaptively chosen selections, after a Gaussian release.

A selection with Gumbel noise (the exponential mechanism) has **bounded range** eta: between
neighbours the logarithm of the probability ratio stays, over all outcomes, in an interval of
length eta. Let :math:`H_k(\gamma)` be the largest hockey-stick divergence
:math:`\sup_S P(S) - \gamma Q(S)` that k such selections can have, each chosen after looking
at the earlier outcomes. Then :math:`H_0(\gamma) = (1 - \gamma)_+` and

.. math:: H_k(\gamma) = \max_{0 \le t \le \eta}
          p_t H_{k-1}(\gamma e^{-t}) + (1 - p_t) H_{k-1}(\gamma e^{\eta - t}),
          \qquad p_t = \frac{1 - e^{t - \eta}}{1 - e^{-\eta}} .

It is computed on a grid as an upper bound, whose only error is interpolation: H_k is convex
in gamma, so chords between grid points lie above it, and for a function made of chords the
maximum over all real t has a closed form. Proofs: doc/privacy, section 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, ndtr

__all__ = ["MOST_SELECTIONS", "selection_delta", "selection_epsilon"]

Array = NDArray[np.float64]

MOST_SELECTIONS = 1000  # more would take seconds

# Rounding of one step, of a sum and of the Gaussian part, with room to spare.
_STEP_ROUNDING = 1 + 1e-11
_FINAL_ROUNDING = 1 + 1e-8
_TOLERANCE = 1e-4  # of the search for eta, whose lower end is returned
_BEYOND_GRID = 1e-4  # what lies beyond the grid's end, relative to delta


def _cells(count: int) -> int:
    """Cells of the grid per eta; the interpolation's part of delta is about 10 / cells**2."""
    return 64 if count <= 16 else 32 if count <= 100 else 24 if count <= 300 else 16


class _Grid:
    """The points log gamma = j h, j = -m, ..., N + m, with m h = eta.

    Arrays over the points hold H(gamma) - (1 - gamma)_+, which is accurate on both sides.
    """

    def __init__(self, m: int, h: float, end: int) -> None:
        self.m, self.h, self.end = m, h, end
        self.gamma = np.exp(np.arange(-m, end + m + 1) * h)
        self.widths = self.gamma[:-1] * math.expm1(h)
        self.kink = np.maximum(-np.expm1(np.arange(-m, end + m + 1) * h), 0.0)
        self.left = np.arange(-m, end)  # the left one of each pair of cells i, i + m

    def extended(self, values: Array) -> Array:
        """From 0, ..., N to all points, by H(1/g) = 1 - 1/g + H(g) / g."""
        m = self.m
        mirrored = self.gamma[:m] * values[m:0:-1]
        return np.concatenate((mirrored, values, np.full(m, values[-1])))


def _gaussian_delta(epsilon: NDArray[np.floating[Any]], mu: float) -> Array:
    r"""Hockey-stick divergence of :math:`N(\mu, 1)` and N(0, 1) at e^epsilon, elementwise."""
    size = np.abs(epsilon)
    if mu == 0:
        at_size = np.zeros_like(size)
    else:
        # Phi(-a) - e^size Phi(-b) with both Mills ratios under one density
        a, b = size / mu - mu / 2, size / mu + mu / 2
        mills = erfcx(np.maximum(a, 0) / math.sqrt(2)) - erfcx(b / math.sqrt(2))
        tail = np.exp(-(a**2) / 2) * mills / 2
        near = ndtr(-a) - np.exp(-(a**2) / 2) * erfcx(b / math.sqrt(2)) / 2
        at_size = np.where(a > 0, tail, near)
    return np.where(epsilon >= 0, at_size, -np.expm1(-size) + np.exp(-size) * at_size)


def _next(values: Array, grid: _Grid) -> Array:
    r"""One more selection: bounds of H_k at the points 0, ..., N from those of H_{k-1}.

    With :math:`x = \gamma e^{-t}` in cell i, x and :math:`x e^\eta` run along one chord each,
    :math:`H = \alpha - \beta x`, and the objective is a constant :math:`- A / x - B x`:
    concave, and largest at :math:`x^2 = \gamma e^{-\eta} z_i`, where :math:`z_i = (\alpha_i -
    \alpha_{i+m}) / (\beta_i - \beta_{i+m})`. The sign of its slope tells which cells can
    hold the maximum.
    """
    m, h, i = grid.m, grid.h, grid.left
    excess = grid.extended(values)
    slope = (excess[:-1] - excess[1:]) / grid.widths
    constant = excess[:-1] + slope * grid.gamma[:-1]
    crosses = i < 0  # then the kink of (1 - gamma)_+ lies between the two cells
    d_slope = slope[: i.size] - slope[m:] + crosses
    d_constant = constant[: i.size] - constant[m:] + crosses
    # ln z / h lies in [i + 1, i + m]; where nothing bends, the objective is flat
    bends = (d_slope > 0) & (d_constant > 0)
    z = np.divide(d_constant, d_slope, out=np.ones_like(d_slope), where=bends)
    log_z = np.clip(np.log(z) / h, i + 1, i + m)
    y = np.where(bends, log_z - 2 * i, -np.inf)
    # at gamma_j: increasing all over cell i if y_i >= m - j + 2, decreasing if <= m - j
    j = np.arange(values.size)
    least_before = np.minimum.accumulate(y)
    largest_after = np.maximum.accumulate(y[::-1])[::-1]
    first = np.searchsorted(-least_before, j - (m + 2.0), side="right") - m
    last = np.searchsorted(-largest_after, j - float(m), side="left") - m - 1
    first = np.clip(first, j - m, j - 1)
    last = np.clip(last, first, j - 1)
    excess += grid.kink
    best = np.zeros(values.size)
    for offset in range(int(np.max(last - first)) + 1):
        cell = np.minimum(first + offset, last)
        at = np.clip((log_z[cell + m] + j - m) / 2, cell, cell + 1)
        np.maximum(best, _objective(at, cell, excess, grid), out=best)
    return np.minimum(best * _STEP_ROUNDING, 1.0)


def _objective(at: Array, cell: NDArray[np.int_], full: Array, grid: _Grid) -> Array:
    """p_t H(gamma_j e^-t) + (1 - p_t) H(gamma_j e^(eta - t)), ln(gamma_j e^-t) = at h."""
    m, h = grid.m, grid.h
    t = (np.arange(at.size) - at) * h
    part = np.expm1((at - cell) * h) / math.expm1(h)
    left, right = full[cell + m], full[cell + 2 * m]
    left = left + part * (full[cell + m + 1] - left)
    right = right + part * (full[cell + 2 * m + 1] - right)
    likely = np.expm1(t - m * h) / math.expm1(-m * h)
    rare = np.expm1(t) / math.expm1(m * h)
    return np.asarray(likely * left + rare * right)


def _after_gaussian(values: Array, h: float, epsilon: float, mu: float) -> float:
    r"""E[H(e^(epsilon - L))], L the privacy loss of a mu-Gaussian-DP release.

    The chords are :math:`H(\gamma) = H(\infty) + \sum_j w_j (\gamma_j - \gamma)_+` with
    weights :math:`w_j \ge 0`, so the mean is exact: :math:`H(\infty) + \sum_j w_j \gamma_j
    \delta_\mu(\epsilon - \ln \gamma_j)`.
    """
    end = values.size - 1
    log_gamma = np.arange(-end, end + 1) * h
    gamma = np.exp(log_gamma)
    excess = np.concatenate((gamma[:end] * values[:0:-1], values))
    slopes = (excess[:-1] - excess[1:]) / (gamma[:-1] * math.expm1(h))
    # below the points H = 1 - gamma + gamma H(infinity), above them it is H(infinity)
    slopes = np.concatenate(([-values[-1]], slopes, [0.0]))
    weights = slopes[:-1] - slopes[1:]
    weights[end] += 1.0
    terms = np.maximum(weights, 0.0) * gamma * _gaussian_delta(epsilon - log_gamma, mu)
    return float(terms.sum() + values[-1])


def selection_delta(
    epsilon: float, eta: float, count: int, mu: float = 0.0, scale: float = 1e-6
) -> float:
    """Upper bound on delta at `epsilon` of a Gaussian release and `count` selections.

    Parameters
    ----------
    epsilon : float >= 0
    eta : float > 0
        Range of each selection, which may be chosen after looking at all earlier outcomes.
    count : int >= 1
    mu : float >= 0, default=0.0
        The releases that do not depend on the selections are together mu-Gaussian-DP.
    scale : float in (0, 1), default=1e-6
        Size of the delta that matters: the bound is loose by about 1e-4 of it.

    Returns
    -------
    float
        At most 1.
    """
    m = _cells(count)
    h = eta / m
    rho = count * eta**2 / 8
    reach = rho + math.sqrt(4 * rho * math.log(1 / (_BEYOND_GRID * scale)))
    grid = _Grid(m, h, min(count * m, max(m, math.ceil(reach / h))))
    values = np.zeros(grid.end + 1)
    for _ in range(count):
        values = _next(values, grid)
    return min(1.0, _after_gaussian(values, h, epsilon, mu) * _FINAL_ROUNDING)


@lru_cache(maxsize=1024)
def selection_epsilon(epsilon: float, delta: float, count: int, mu: float = 0.0) -> float:
    """Largest range of each of `count` selections within (epsilon, delta); 0 if none.

    Parameters
    ----------
    epsilon : float > 0
    delta : float in (0, 1)
    count : int >= 1
        Selections by all models together.
    mu : float >= 0, default=0.0
        As in `selection_delta`: the Gaussian part, over all models.

    Returns
    -------
    float
        An eta whose `selection_delta` is at most `delta`, and to 1e-4 the largest.
    """

    total = _largest_mu(epsilon, delta)
    if mu >= total:
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


def _largest_mu(epsilon: float, delta: float) -> float:
    """Where Gaussian DP alone reaches (epsilon, delta), a little above."""
    low, high = 0.0, 1.0
    point = np.array([epsilon])
    while _gaussian_delta(point, high)[0] < delta:
        high *= 2
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        if _gaussian_delta(point, middle)[0] < delta:
            low = middle
        else:
            high = middle
    return high


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
            private, at_private = middle, value
        else:
            other, at_other = middle, value
        side = -1.0 if value >= 0 else 1.0
        in_a_row = in_a_row + 1 if side == moved else 0
        moved = side
    return private
