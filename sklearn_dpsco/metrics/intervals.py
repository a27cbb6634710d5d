"""Confidence intervals of scores from noisy counts and sums, and the law of their noise alone.

Each interval holds the values that a test would not reject: for a value r of the score, a
statistic T(r) of the noisy numbers has the mean 0, and r is kept if T(r) is within its quantiles,
given the variance that sampling and noise have at this r. Nothing is divided by a noisy number,
so that an interval is as wide as the score's whole range where noise hides it. Noisy numbers that
are impossible are moved to the nearest possible ones first, which moves them towards the truth.
Where T cannot be as far on one side as noise alone reaches, the other side has the chance of both.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri, owens_t

from .._types import Array
from ..solvers.statistics import TINY

Ends = tuple[Any, Any]

_GRID = np.linspace(0.0, 1.0, 401)
_STEPS = np.linspace(0.0, 1.0, 65)[:, None]  # of a cell of the grid
_REFINED = 3  # times
_TOGETHER = 0.8  # of the covariance of squared errors and targets, where little tells it
_UNSEEN = 0.6  # of the variance of large values that a sample lacks at worst: the rule of three
_SHARES = np.linspace(1e-9, 1 - 1e-9, 65)  # of the variance of a sum, its Laplace part


@functools.lru_cache
def _quantiles(confidence: float) -> Array:
    """Of a standardized Laplace variable plus a normal one, at each of `_SHARES` of the former."""
    b, s = np.sqrt(_SHARES / 2), np.sqrt(1 - _SHARES)
    e, low, high = s**2 / b**2 / 2, np.zeros(b.size), np.full(b.size, 64.0)
    for _ in range(60):
        x = (low + high) / 2
        noise = np.exp(e - x / b + log_ndtr(x / s - s / b))
        tail = 2 * ndtr(-x / s) + noise - np.exp(e + x / b + log_ndtr(-x / s - s / b))
        is_below = tail > 1 - confidence
        low, high = np.where(is_below, x, low), np.where(is_below, high, x)
    return high


@dataclass(frozen=True)
class Law:
    """Of the noise on each number, and the confidence of intervals."""

    variance: Any  # or an array of those of several sums
    confidence: float
    laplace: float  # excess kurtosis, 1 that of Laplace noise, 0 of normal noise
    rows: int = 1  # of one user: at worst all alike, which multiplies variances by sampling

    def reach(self, sampling: Any, *noises: tuple[Any, Any], other: Any = None) -> Any:
        """How far from its mean a sum of sampling variation and of noises is at most.

        `sampling` is a variance; of each kind of noise, how many numbers there are, and the square
        of what they are multiplied by. One Laplace variable stands for all, such that the excess
        kurtosis of the whole is as it is. `other` is how far the sum can be on the other side.
        """
        total, fourth = self.rows * sampling, 0.0
        for number, square in noises:
            total = total + number * square * self.variance
            fourth = fourth + number * (square * self.variance) ** 2
        share = np.sqrt(self.laplace * fourth) / np.maximum(total, TINY)
        both = np.interp(share, _SHARES, _quantiles(self.confidence)) * np.sqrt(total)
        if other is None:
            return both
        law = replace(self, confidence=max(2 * self.confidence - 1, 0.0))
        return np.where(other <= self.reach(0.0, *noises), law.reach(sampling, *noises), both)

    @property
    def slack(self) -> float:
        """Half a step between counts, where noise leaves steps."""
        return max(0.5 - math.sqrt(self.variance), 0.0)


def _ends(test: Callable[[Array, int], Ends], grid: Array = _GRID) -> Ends:
    """Where a statistic that falls in r is not too far above 0, and not too far below it.

    `test` tells of points and a sign the statistic, and how far from 0 it may be: above for 1,
    below for -1. For each cell the first such point from either end of the grid, or the last.
    Between it and the point before, a finer grid is laid, and so on.
    """
    ends = []
    for sign, points in ((1, grid[:, None]), (-1, grid[::-1, None])):
        for _ in range(1 + _REFINED):
            statistic, reach = test(points, sign)
            is_near = sign * statistic <= reach
            first = np.where(is_near.any(axis=0), is_near.argmax(axis=0), len(points) - 1)
            of_cells, cells = np.broadcast_to(points, is_near.shape), np.arange(first.size)
            inside, outside = of_cells[first, cells], of_cells[np.maximum(first - 1, 0), cells]
            points = outside + (inside - outside) * _STEPS
        ends.append(outside.squeeze())
    return ends[0], ends[1]


def share_interval(count: Any, n: int, terms: int, law: Law) -> Ends:
    """Of the probability p of what was counted `count` times among n, in `terms` noisy numbers."""
    count, noise = np.clip(count, 0, n), (terms, 1)
    return _ends(lambda p, _: (count - n * p, law.reach(n * p * (1 - p), noise) + law.slack))


def ratio_interval(
    hits: Array, misses: Array, terms: Any, law: Law, of_compared: Any = 0.0
) -> Ends:
    """Of the probability r of a hit, from sums of `terms` noisy counts each (Fieller's method).

    Longer by the noise in a sum of predictions that r is compared with, of which `of_compared` is
    the variance in units of that of a number.
    """
    hits, misses = np.maximum(hits, 0), np.maximum(misses, 0)
    total, (of_hits, of_misses) = hits + misses, terms

    def test(r: Array, _: int) -> Any:
        noises = (of_hits, (1 - r) ** 2), (of_misses, r**2), (1, of_compared)
        reach = law.reach(total * r * (1 - r), *noises) + law.slack
        return (1 - r) * hits - r * misses, reach

    return _ends(test)


def auc_interval(positive: Array, negative: Array, law: Law) -> Ends:
    r"""Of the area under the ROC curve, from noisy histograms of the scores of both classes.

    T(a) = sum over i, j of p_i n_j (h_ij - a), h_ij = 1 where bin i is above bin j. In a common
    bin h may be anything in [0, 1], since order within a bin is not known: 0 for the lower end,
    1 for the upper. Where that alone moves T as far as ends are off, the truth is missed at one of
    them at most (Imbens and Manski 2004). Noise adds v times the squared slopes of T in all counts.
    """
    below = np.cumsum(negative) - negative
    above = np.cumsum(positive[::-1])[::-1] - positive
    P, N = float(positive.sum()), float(negative.sum())
    if P <= 0 or N <= 0:
        return 0.0, 1.0

    lower, higher = (below, below + negative), (above, above + positive)  # for both h
    areas = np.clip([positive @ values for values in lower], 0.0, P * N)
    numbers = 2 * positive.size
    sums = [
        (total, np.array([(values @ values, values.sum()) for values in of_both]).T)
        for total, of_both in ((N, lower), (P, higher))
    ]

    def test(a: Array, sign: int) -> Any:
        slopes = 0.0
        for total, (squares, linear) in sums:
            # the sum of (values - a total)^2
            center = a * total
            slopes = slopes + (squares - 2 * center * linear + positive.size * center**2)
        spread = _of_area(a, P, N), (numbers, slopes / numbers)
        is_one_sided = areas[1] - areas[0] >= law.reach(*spread)
        other = np.where(is_one_sided, 0.0, P * N * (a if sign > 0 else 1 - a))
        return areas - a * P * N, law.reach(*spread, other=other)

    low, high = _ends(test)
    return low[0], high[1]


def _of_area(a: Array, P: float, N: float) -> Array:
    """Variance of the pairs in order by sampling, of P N pairs, a in the mean.

    Of normal scores that spread alike in both classes: two pairs with a record in common are both
    in order as often as two normal variables with a correlation of 1/2 are both positive.
    """
    alone = a * (1 - a)
    in_common = alone - 2 * owens_t(ndtri(a), 3**-0.5)
    return P * N * (alone + max(P + N - 2, 0) * in_common)


def rank_interval(signs: float, P: float, N: float, widths: tuple[float, float], law: Law) -> Ends:
    """Of the area under the ROC curve, from noisy sums of signs / 2 over pairs and of both classes.

    `widths` are those of the noise on the sum of signs and on P and N.
    """
    signs = min(max(signs, -P * N / 2), P * N / 2)

    def test(a: Array, sign: int) -> Any:
        of_counts = ((a - 0.5) * widths[1]) ** 2
        noises = (1, widths[0] ** 2), (1, of_counts * P**2), (1, of_counts * N**2)
        other = P * N * (a if sign > 0 else 1 - a)
        return signs - (a - 0.5) * P * N, law.reach(_of_area(a, P, N), *noises, other=other)

    return _ends(test)


def _of_records(observed: Any, m: Array, of_noise: Any) -> Array:
    """The records' own mean if m is that of the population, and noise has moved what is observed.

    Noise explains its share of the distance, by which their variance is less than is observed if
    the mean is farther from 0. If it is nearer, half of that is taken: all makes ends too long.
    """
    part = np.where(np.abs(m) > np.abs(observed), 1.0, 0.5)
    return np.clip(observed + part * of_noise * (m - observed), -1, 1)


def mean_interval(total: Any, square_gap: Any, n: Any, width: Any, law: Law) -> Ends:
    """Of the mean m of u in [-1, 1] over n records, from noisy sums of u and of 1 - u^2.

    All may be arrays. `width` is that of the noise on n, in units of that on `total`.

    Of the records the mean is M, as in `_of_records`, and the variance is g - M^2, with g = 1 -
    mean (1 - u^2). If m is not M, the records lack values on the side of m: at worst at the end e
    of the range, (m - M) / (e - M) of them, which adds (m - M) (e - M). Three fifths of it are
    allowed for where noise does not hide what a few such values do. With values at the ends alone
    the variance is 1 - m^2, and never more (Bhatia and Davis 2000); 1 - M^2 is allowed, too, as a
    few large values say little about what is below them.
    """
    total = np.clip(total, -n, n)
    observed, gap = np.clip(total / n, -1, 1), np.clip(square_gap / n, 0, 1)

    def test(m: Array, sign: int) -> Any:
        noise = law.variance / n * (1 + (width * m) ** 2)
        of_rows = law.rows * np.maximum(1 - gap - observed**2, 0.0)
        of_noise = noise / np.maximum(noise + of_rows, TINY)
        mean = _of_records(observed, m, of_noise)
        missing = (m - mean) * (np.where(m > mean, 1, -1) - mean) / (1 + law.variance)
        spread = np.maximum(1 - gap - mean**2, 0) + _UNSEEN * missing
        spread = np.minimum(spread, 1 - np.minimum(np.abs(m), np.abs(mean)) ** 2)
        reach = law.reach(n * spread, (1, 1), (1, (width * m) ** 2), other=n * (1 + sign * m))
        return total - n * m, reach

    return _ends(test, grid=2 * _GRID - 1)


def r2_interval(sums: Array, widths: Array, largest: float, n: float, law: Law) -> Ends:
    r"""Of R^2 = 1 - rho, from noisy sums of u, h, h t, h g, t, g, g t and g t^2.

    u = 2 e^2 / E^2 - 1 is the squared error on its range, with E^2 = `largest`, t the target, in
    units in which it is in [-1, 1], h = 1 - u^2 and g = 1 - t^2; `widths` are those of the noise on
    each sum, and on n, in units of that on a number. T(rho) = sum e^2 - rho sum (t - mean)^2, whose
    variance by sampling is n (s_e^2 - 2 rho c + rho^2 s_t^2), as in `_second_moments`. It is taken
    to be that of normal errors and targets, with four fifths of c, but for what is released: not
    less than min(rho, 1)^2 / 4 standard deviations of its noise above that, nor more than one. As
    in `mean_interval`, noise explains its share of what T is off 0, here in the mean of u that s_e
    is about, and for larger rho the sample may lack large errors.
    """
    half, (mean_u, g, mean) = largest / 2, np.clip(sums[[0, 5, 4]] / n, (-1, 0, -1), 1)
    squares, share = half * n * (1 + mean_u), 1 - g - mean**2
    variation = n * share
    moments, of_noise = _second_moments(sums / n, widths, half, law.variance / n**2)
    unseen = _UNSEEN * half * (1 - mean_u) / (1 + 2 * law.variance * widths[0] ** 2)

    # of a ratio from 0 to infinity, on a grid that is dense near 0
    def test(x: Array, sign: int) -> Any:
        rho = x / np.maximum(1 - x, 1e-12)
        powers = np.stack([np.ones_like(rho), -2 * rho, rho**2])
        noises = (
            (half * widths[0]) ** 2,
            (rho * widths[5]) ** 2,
            (rho * widths[4]) ** 2 * (4 * mean**2 + 1 / n),
            (widths[8] * (half - rho * (1 + mean**2))) ** 2,
        )
        off, found = squares - rho * variation, np.tensordot(moments, powers, 1)
        both = law.rows * n * np.maximum(found, 0) + law.variance * sum(noises)
        of_u = law.variance * noises[0] / np.maximum(both, TINY)
        of_records = _of_records(mean_u, mean_u - off / (half * n), of_u)
        found = found + half**2 * (mean_u**2 - of_records**2)
        noise = np.sqrt(np.einsum("i...,ij,j...", powers, of_noise, powers))
        together = _TOGETHER * np.minimum(rho, 1 / np.maximum(rho, 1))
        normal = 4 * (1 - together) * (rho * share) ** 2
        least = np.minimum(rho, 1) ** 2 / 4
        own = np.maximum(np.clip(normal, found + least * noise, found + noise), 0)
        variance = n * own + unseen * np.maximum(-off, 0)
        other = rho * variation if sign > 0 else largest * n - rho * variation
        reach = law.reach(variance, *((1, noise) for noise in noises), other=other)
        return (1 - x) * squares - x * variation, (1 - x) * reach

    low, high = _ends(test)
    worst, best = (1 - float(x / (1 - x)) if x < 1 else -math.inf for x in (high, low))
    return worst, best


def _second_moments(
    means: Array, widths: Array, half: float, variance: float
) -> tuple[Array, Array]:
    """Variances of e^2 and (t - mean)^2, and between them c, how they vary together; and the noise.

    The latter is a matrix. (t - mean)^2 is g + 2 mean t but for its sign and a constant. h E^2 / 4
    is e^2 less e^4 / E^2: c is that of h over the part of the variance of e^2 that is left in h, as
    that of a beta law with its mean and variance. No law has more left in it than mean h / mean
    2 (1 + u): c is that at least, but if more, at most four fifths of s_e s_t, which may be three
    standard deviations of their noise larger.
    """
    u, h, h_t, h_g, mean, g, g_t, g_tt = means.tolist()
    u, mean, share = min(max(u, -1), 1), min(max(mean, -1), 1), 1 - g - mean**2
    left = -u * h / max(1 - u**2 + max(1 - h - u**2, 0), 1e-9)
    left = min(max(left, 0.2), 1)
    most_left = min(max(h / max(2 + 2 * u, 1e-9), left), 1)
    quarter = half / 2 / left
    of_errors = half**2 * (1 - h - u**2)
    between = quarter * (h * (g + 2 * mean**2) - h_g - 2 * mean * h_t)
    of_targets = g - g_tt - g**2 + 4 * mean * (g_t + mean * (share - g))
    moments = np.array([of_errors, between, of_targets])
    slopes = np.zeros((3, 9))
    slopes[0, :2] = -2 * half**2 * u, -(half**2)
    slopes[1, 1:4] = quarter * np.array([g + 2 * mean**2, -2 * mean, -1])
    slopes[2, 5:8] = 1 - 2 * g - 8 * mean**2, 4 * mean, -1
    slopes *= widths
    of_noise = variance * slopes @ slopes.T
    e, _, t = np.maximum(moments + 3 * np.sqrt(np.diagonal(of_noise)), 0)
    most = max(_TOGETHER * math.sqrt(e * t), moments[1] * left / most_left)
    moments[1] = min(moments[1], most)
    return moments, of_noise
