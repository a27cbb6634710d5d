"""Confidence intervals of scores from noisy counts and sums, and the law of their noise alone.

Each interval holds the values that a test would not reject: for a value r of the score, a
statistic T(r) of the noisy numbers has the mean 0, and r is kept if T(r) is within its quantiles,
given the variance that sampling and noise have at this r. Nothing is divided by a noisy number,
so that an interval is as wide as the score's whole range where noise hides it. Noisy numbers that
are impossible are moved to the nearest possible ones first, which moves them towards the truth.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

Array = NDArray[np.float64]
Ends = tuple[Any, Any]

_GRID = np.linspace(0.0, 1.0, 401)
_REFINED = 20  # bisections of a cell of the grid


@dataclass(frozen=True)
class Law:
    """Of the noise on each number, and the confidence of intervals."""

    variance: float
    confidence: float
    is_normal: bool  # else it is Laplace noise

    @property
    def quantile(self) -> float:
        """Of standardized sums of noise and sampling variation, at each end of an interval."""
        tail = (1 - self.confidence) / 2
        normal = -float(ndtri(tail))
        # sums of Laplace and normal variables lie between the two laws
        return normal if self.is_normal else max(normal, -math.log(2 * tail) / math.sqrt(2))


def _smallest(accepts: Callable[[Array], Any], grid: Array) -> Array:
    """For each cell the first accepted point of the grid, refined outward; the last if none is."""
    # `accepts` takes points of shape (m, 1) or (n_cells,)
    accepted = np.atleast_2d(accepts(grid[:, None]))
    first = np.where(accepted.any(axis=0), accepted.argmax(axis=0), len(grid) - 1)
    inside, outside = grid[first], grid[np.maximum(first - 1, 0)]
    for _ in range(_REFINED):
        middle = (inside + outside) / 2
        good = np.ravel(accepts(middle))
        inside, outside = np.where(good, middle, inside), np.where(good, outside, middle)
    return np.where(first == 0, grid[0], outside)


def _ends(
    law: Law,
    statistic: Callable[[Array], Any],
    deviation: Callable[[Array], Any],
    slack: float = 0.0,
    grid: Array = _GRID,
) -> Ends:
    """Where a statistic that falls in r is not too far above 0, and not too far below it."""
    low = _smallest(lambda r: statistic(r) <= law.quantile * deviation(r) + slack, grid)
    high = _smallest(lambda r: statistic(r) >= -law.quantile * deviation(r) - slack, grid[::-1])
    return low, high


def share_interval(count: Array, n: int, terms: int, law: Law) -> Ends:
    """Of the probability p of what was counted `count` times among n, in `terms` noisy numbers."""
    count = np.clip(count, 0, n)
    return _ends(
        law,
        lambda p: count - n * p,
        lambda p: np.sqrt(n * p * (1 - p) + terms * law.variance),
        slack=0.5,  # counts are integers
    )


def ratio_interval(hits: Array, misses: Array, terms: Any, law: Law) -> Ends:
    """Of the probability r of a hit, from sums of `terms` noisy counts each (Fieller's method)."""
    hits, misses = np.maximum(hits, 0), np.maximum(misses, 0)
    of_hits, of_misses = (number * law.variance for number in terms)
    total = hits + misses
    return _ends(
        law,
        lambda r: (1 - r) * hits - r * misses,
        lambda r: np.sqrt(total * r * (1 - r) + (1 - r) ** 2 * of_hits + r**2 * of_misses),
        slack=0.5,
    )


def auc_interval(positive: Array, negative: Array, law: Law) -> tuple[float, float]:
    r"""Of the area under the ROC curve, from noisy histograms of the scores of both classes.

    T(a) = sum over i, j of p_i n_j (h_ij - a), h_ij = 1 where bin i is above bin j. In a common
    bin h may be anything in [0, 1], since order within a bin is not known: 0 for the lower end,
    1 for the upper. Given the numbers P and N of both classes, sampling adds at most
    a (1 - a) P N max(P, N) to the variance (a two-sample U-statistic with a kernel in [0, 1]),
    noise v times the squared slopes of T in all counts.
    """
    below = np.cumsum(negative) - negative
    above = np.cumsum(positive[::-1])[::-1] - positive
    P, N = float(positive.sum()), float(negative.sum())
    if P <= 0 or N <= 0:
        return 0.0, 1.0
    sampling = P * N * max(P, N)

    def ends(tie: float) -> Ends:
        lower, higher = below + tie * negative, above + tie * positive
        area = min(max(float(positive @ lower), 0.0), P * N)

        def deviation(a: Array) -> Any:
            slopes = 0.0
            for values, total in ((lower, N), (higher, P)):
                # the sum of (values - a total)^2
                center = a * total
                slopes += values @ values - 2 * center * values.sum() + values.size * center**2
            return np.sqrt(slopes * law.variance + a * (1 - a) * sampling)

        return _ends(law, lambda a: area - a * P * N, deviation)

    return float(ends(0.0)[0][0]), float(ends(1.0)[1][0])


def mean_interval(
    total: float, square_gap: float, n: float, widths: tuple[float, float], law: Law
) -> Ends:
    """Of the mean of u in [-1, 1] over n records, from noisy sums of u and of 1 - u^2.

    `widths` are those of the noise on `square_gap` and on n, in units of that on `total`.
    """
    noisy = total, square_gap, n, widths, law
    total = min(max(total, -n), n)
    return _ends(
        law,
        lambda m: total - n * m,
        lambda m: np.sqrt(n * _spread(m, *noisy) + law.variance * (1 + (widths[1] * m) ** 2)),
        grid=2 * _GRID - 1,
    )


def _spread(
    m: Array, total: float, square_gap: float, n: float, widths: tuple[float, float], law: Law
) -> Array:
    """An upper estimate of the variance of u, where m is its mean.

    That of the records is g - M^2, with their mean M and g = 1 - mean (1 - u^2), plus one quantile
    of the noise in that. If m is not M, the records lack values on the side of m: at worst at the
    end e of the range, (m - M) / (e - M) of them, which adds (m - M) (e - M). With values at the
    ends alone it is 1 - m^2, and never more (Bhatia and Davis 2000); 1 - M^2 is allowed, too, as
    a few large values say little about what is below them.
    """
    mean, gap = float(np.clip(total / n, -1, 1)), float(np.clip(square_gap / n, 0, 1))
    of_n = widths[1] * (gap + 2 * mean**2)
    noise = law.variance / n**2 * (widths[0] ** 2 + 4 * mean**2 + of_n**2)
    own = max(1 - gap - mean**2 + law.quantile * math.sqrt(noise), 0.0)
    missing = (m - mean) * np.where(m > mean, 1 - mean, -1 - mean)
    return np.minimum(own + missing, 1 - np.minimum(np.abs(m), abs(mean)) ** 2)


def r2_interval(
    errors: tuple[float, float],
    targets: tuple[float, float],
    largest: float,
    n: float,
    scales: tuple[float, float, float, float],
    law: Law,
) -> tuple[float, float]:
    r"""Of R^2 = 1 - rho, from noisy sums of u and 1 - u^2, and of t and 1 - t^2.

    u = 2 e^2 / E^2 - 1 is the squared error on its range, with E^2 = `largest`, and t the target,
    in units in which it is in [-1, 1]. T(rho) = sum e^2 - rho sum (t - mean)^2, whose standard
    deviation is at most sqrt(n) (s_e + rho s_t) by sampling, s_e^2 as in `_spread` at the mean of
    the records, or for larger rho at the upper end of its interval if it is larger there, and
    s_t^2 <= s^2 ((1 + abs(mean))^2 - s^2), s^2 the variance of t; and noise is added. `scales`
    are those of the noise on the sums of u, t and 1 - t^2 and on n, in units of that on a number.
    """
    of_u, of_t, of_gap, of_n = scales
    own = Law(law.variance * of_u**2, law.confidence, law.is_normal)
    noisy = *errors, n, (of_gap / of_t, of_n / of_u), own
    means = np.array([np.clip(errors[0] / n, -1, 1), mean_interval(*noisy)[1][0]])
    found, most = largest / 2 * np.sqrt(_spread(means, *noisy))
    mean = float(np.clip(targets[0] / n, -1, 1))
    squares = largest / 2 * max(n + errors[0], 0.0)
    variation = n - targets[1] - n * mean**2
    share = float(np.clip(variation / n, 0, 1))
    s_t = math.sqrt(share * max(0.0, (1 + abs(mean)) ** 2 - share))
    noise_e = law.variance * (largest / 2 * of_u) ** 2
    noise_t = law.variance * (of_gap**2 + (2 * mean * of_t) ** 2 + of_t**2 / n)

    def deviation(rho: Array) -> Any:
        s_e = np.where(rho * variation > squares, max(found, most), found)
        sampling = n * (s_e + rho * s_t) ** 2
        noise_n = law.variance * (of_n * (largest / 2 - rho * (1 + mean**2))) ** 2
        return np.sqrt(sampling + noise_e + rho**2 * noise_t + noise_n)

    # a ratio from 0 to infinity, on a grid that is dense near 0
    low, high = _ends(
        law,
        lambda x: (1 - x) * squares - x * variation,
        lambda x: (1 - x) * deviation(x / np.maximum(1 - x, 1e-12)),
    )
    worst = -math.inf if high[0] >= 1 else 1 - float(high[0] / (1 - high[0]))
    return worst, 1 - float(low[0] / (1 - low[0])) if low[0] < 1 else -math.inf
