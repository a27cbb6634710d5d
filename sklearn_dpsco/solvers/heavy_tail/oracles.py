r"""Means of heavy-tailed vectors, on which each vector has a bounded influence.

`means` uses the oracles on samples, and the solver on gradients, which are rows times scalars and
never stored. Sensitivities: doc/privacy, section 7.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
from scipy.special import erf

from ..._checks import check_size
from ..._kernels.arguments import dense_or_stored
from ..._types import Array, Oracle
from ...data.compressed import slices
from ...data.rows import BLOCK_ROWS, UNIT_ROUNDOFF, Rows, SolverData, Terms, times_rows
from ...losses import clipped_derivative, clipped_rows
from ..statistics import coordinate_mean, mean_of_numbers

# Bounds on the norms of the r_i, shape (n,), and the order of the norm, 1 or 2.
Limits = tuple[Array, float]

_INTERVAL = 3.0  # KLZ22 clip to 3 tau
_SMOOTHING = 1 / 3  # c, the variance of the multiplicative noise that is averaged over
_SMOOTHED_BOUND = 2 * math.sqrt(2) / 3 * float(erf(1 / math.sqrt(2 * _SMOOTHING)))
_FAILURE = 0.1  # beta: KLZ22's bucket count is for an error that holds with 1 - beta
ORACLES: tuple[str, ...] = get_args(Oracle)
LARGEST = 2.0**300  # larger values, infinities included, count as this
_SHORTEST = 1e-150  # smaller norms count as this, since their squares underflow


@dataclass(frozen=True)
class MeanOracle:
    """A mean of vectors, on which each vector has a bounded influence.

    `sensitivity` is its change by one record, in the norm of order 1 or 2: `n_samples` counts empty
    slots, too, `n_features` decides how sums are chunked, and `dimension` is that of the mean.
    `sums` are what pieces of the rows add to it, `first` being the number of the first of these.
    """

    tau: float  # size of the values that pass nearly unchanged, in [1e-50, 1e50]

    def __post_init__(self) -> None:
        check_size("tau", self.tau)

    def limits(self, rows: Rows, order: float) -> Limits | None:
        """Numbers that `mean` needs for each row, computed once; None if it needs none."""
        return None

    def mean(self: Any, rows: Rows, r: Array, limits: Limits | None) -> Array:
        """Mean of the bounded v_i [x_i, 1] r_i^T, v_i the weight; shape (dimension,), or with K."""
        return self.mean_of(self.sums(rows, r, limits), rows.n_samples)

    def gradient_sums(self: Any, part: SolverData, first: int, coef: Array, terms: Terms) -> Array:
        """`sums` of the derivatives l'(z_i, y_i) times [x_i, 1], of rows without centre."""
        rows, y = part.rows, part.y
        z = rows.product(coef) + terms.offset
        r = clipped_derivative(terms.loss, z, y, terms.clip)
        return self.sums(rows, rows.without_empty(r), part.numbers, first)

    def mean_of(self, sums: Array, n_samples: int) -> Array:
        """The mean, of the sums of all pieces."""
        return sums / n_samples


@dataclass(frozen=True)
class NormClipped(MeanOracle):
    """Mean of vectors shrunk to a norm of at most tau, then times their weights.

    One record moves it by a vector of that norm, without the factor sqrt(d) that the others pay.
    """

    def sensitivity(
        self, n_samples: int, n_features: int, dimension: int, record_factor: float, order: float
    ) -> float:
        return self.tau * mean_of_numbers(n_samples, n_features, record_factor)

    def limits(self, rows: Rows, order: float) -> Limits:
        """Bounds on the norms of the r_i: tau over the norm of [x_i, 1]."""
        if order == 2:
            norms = rows.norms()
        else:
            norms = np.empty(rows.n_samples)
            for part in slices(rows.n_samples, BLOCK_ROWS):
                # scipy adds up in the type of the values
                sizes = abs(rows.part(part).X).astype(np.float64).sum(axis=1)
                norms[part] = np.asarray(sizes).ravel() + rows.has_intercept
            norms *= 1 + 2 * (rows.dimension + 4) * UNIT_ROUNDOFF
        # for the rounding of the division and of the products that follow
        return self.tau * (1 - 8 * UNIT_ROUNDOFF) / np.maximum(norms, _SHORTEST), order

    def sums(self, rows: Rows, r: Array, limits: Limits | None, first: int = 0) -> Array:
        assert limits is not None
        return rows.weighted_sum(times_rows(clipped_rows(r, *limits), rows.sample_weight))

    def gradient_sums(self, part: SolverData, first: int, coef: Array, terms: Terms) -> Array:
        bounds, order = part.numbers
        if coef.ndim > 1 and order == 1:
            return super().gradient_sums(part, first, coef, terms)
        # one pass; the rows' scales are 0 for empty records, and 1
        return part.rows.gradient_sum(coef, part.y, terms, bounds)


@dataclass(frozen=True)
class MedianOfMeans(MeanOracle):
    r"""Median, in each coordinate, of the means of buckets of clipped or smoothed coordinates.

    They are clipped to [-3 tau, 3 tau], and record i falls into bucket i mod m (KLZ22 Algorithm 3).
    With a single bucket it is the mean of clipped coordinates. Smoothed (Algorithm 4), a coordinate
    x becomes tau psi(x / tau), evaluated to 9e-5, where psi(a) = E phi(a (1 + N)), N ~ N(0, 1/3),
    :math:`\phi(u) = u - u^3 / 6` on :math:`[-\sqrt 2, \sqrt 2]` and constant beyond. psi is odd,
    bounded by about 0.863, and a (1 - O(a^2)) near 0.
    """

    n_buckets: int = 1  # m
    is_smoothed: bool = False

    def sensitivity(
        self, n_samples: int, n_features: int, dimension: int, record_factor: float, order: float
    ) -> float:
        # the midpoint of the two middle means moves by half of what one of them does
        halved = 0.5 if self.n_buckets % 2 == 0 else 1.0
        change = halved * record_factor / (n_samples // self.n_buckets)
        bound = self.tau * (_SMOOTHED_BOUND if self.is_smoothed else _INTERVAL)
        return coordinate_mean(bound, change, n_samples, n_features, dimension, order)

    def sums(self, rows: Rows, r: Array, limits: Limits | None, first: int = 0) -> Array:
        """By bucket; several outputs come last."""
        from ..._kernels.bounded_sums import bounded_sums

        X, factor, bound, unit = dense_or_stored(rows.X), 0.0, _INTERVAL * self.tau, 1.0
        if self.is_smoothed:
            factor, bound, unit = 1 / self.tau, _SMOOTHED_BOUND, self.tau
        r, shape = times_rows(r, rows.sample_weight), (self.n_buckets, rows.dimension)
        total = np.zeros((*r.shape[1:], *shape))
        weights = np.ascontiguousarray(r.reshape(r.shape[0], -1).T)
        for of_output, sums in zip(weights, total.reshape(-1, *shape), strict=True):
            bounded_sums(*X, of_output, rows.has_intercept, factor, bound, BLOCK_ROWS, sums)
        total = unit * (total if r.ndim == 1 else np.moveaxis(total, 0, -1))
        return np.roll(total, first, axis=0)

    def mean_of(self, sums: Array, n_samples: int) -> Array:
        if self.n_buckets == 1:
            return sums[0] / n_samples
        sizes = np.full(self.n_buckets, n_samples // self.n_buckets)
        sizes[: n_samples % self.n_buckets] += 1
        return np.median(sums / sizes.reshape(-1, *(1,) * (sums.ndim - 1)), axis=0)


# ------------------------------------------------------------------------------ defaults


def default_threshold(noise: float, moment_order: float, moment_bound: float) -> float:
    r"""The clipping bound b that minimizes the bias plus the noise, for moments up to k.

    For :math:`E |X|^k \le \gamma` the bias :math:`E (|X| - b)_+` is at most
    :math:`\gamma \frac{(k - 1)^{k-1}}{k^k} b^{1 - k}`, as :math:`(x - b)_+ x^{-k}` is largest at
    :math:`x = b k / (k - 1)`; the noise is :math:`b \nu`, where `noise` is nu. Their sum is least
    at :math:`b = \frac{k - 1}{k} (\gamma / \nu)^{1/k}`, which has the exponent of KLZ22,
    Corollary 4.2, and its own constant.
    """
    k = moment_order
    return (k - 1) / k * (moment_bound / noise) ** (1 / k)


def check_moments_decide(moments: tuple[float, float]) -> None:
    """Raise if they are not the usual ones, where a threshold is declared."""
    if moments != (2.0, 1.0):
        raise ValueError(
            "moment_order and moment_bound decide on tau, and have no effect beside it: give either"
        )


def make_oracle(
    name: str,
    tau: float | None,
    n_buckets: int | None,
    *,
    n_samples: int,
    dimension: int,
    noise: float,
    order: float,
    size: float,
    moments: tuple[float, float],
) -> NormClipped | MedianOfMeans:
    """The oracle of that name; `None` leaves a value to rules.

    `noise` is the standard deviation in a coordinate of a mean of vectors of norm at most 1, in the
    norm of that order, 1 or 2. `size` is the norm of a vector whose coordinates are at their moment
    bound; `moments` are the order of the moments and that bound.
    """
    if name == "clipped":
        whole = noise * math.sqrt(dimension)
        return NormClipped(tau or size * default_threshold(whole, *moments))
    noise *= dimension ** (1 / order)  # times the norm of a vector of ones
    if name == "smoothed":
        tau = tau or default_threshold(noise, *moments) / _SMOOTHED_BOUND
        return MedianOfMeans(tau, is_smoothed=True)
    buckets = 1
    if name == "median-of-means":
        # 4 log(2 d / beta) of KLZ22, made even, and at most n
        wanted = 2 * math.ceil(2 * math.log(2 * dimension / _FAILURE))
        buckets = n_buckets or max(1, min(wanted, n_samples // 2 * 2))
    if buckets > n_samples:
        raise ValueError(
            f"n_buckets={buckets} is more than there are records ({n_samples}): a bucket "
            "would be empty"
        )
    spread = buckets * (0.5 if buckets % 2 == 0 else 1.0)
    return MedianOfMeans(tau or default_threshold(noise * spread, *moments) / _INTERVAL, buckets)
