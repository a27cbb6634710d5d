r"""Means of heavy-tailed vectors, on which each vector has a bounded influence.

Each oracle bounds the contribution of a record, and averages (KLZ22, Algorithms 3 and 4):

``"median-of-means"``
    Coordinates clipped, means of buckets of records, their median in each coordinate.
``"smoothed"``
    Coordinates passed through a smooth, bounded, odd function.
``"clipped"``
    Whole vectors shrunk to a bounded norm: one record moves the mean by a vector of that
    norm, without the factor sqrt(d) that the others pay.
``"coordinate-clipped"``
    Coordinates clipped, then averaged.

They are used on samples by `means`, and by the solver on gradients, which are rows times
scalars and never stored. Sensitivities: doc/privacy, section 7.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf

from ..._checks import check_size
from ..._kernels.arguments import Compressed
from ...data.rows import Objective, Rows, times_rows
from ...data.summation import BLOCK_ROWS, UNIT_ROUNDOFF, slices
from ...losses import clipped_derivative, clipped_rows
from ..statistics import coordinate_mean, mean_of_numbers

__all__ = [
    "LARGEST",
    "ORACLES",
    "MeanOracle",
    "OracleFacts",
    "default_threshold",
    "make_oracle",
]

Array = NDArray[np.float64]
# Bounds on the norms of the r_i, shape (n,), and the order of the norm, 1 or 2.
Limits = tuple[Array, float]

_INTERVAL = 3.0  # KLZ22 clip to 3 tau
_SMOOTHING = 1 / 3  # c, the variance of the multiplicative noise that is averaged over
_SMOOTHED_BOUND = 2 * math.sqrt(2) / 3 * float(erf(1 / math.sqrt(2 * _SMOOTHING)))
_FAILURE = 0.1  # beta: KLZ22's bucket count is for an error that holds with 1 - beta
LARGEST = 2.0**300  # larger values, infinities included, count as this
_SHORTEST = 1e-150  # smaller norms count as this, since their squares underflow


@dataclass(frozen=True)
class MeanOracle:
    """A mean of vectors, on which each vector has a bounded influence."""

    tau: float  # size of the values that pass nearly unchanged, in [1e-50, 1e50]

    name: ClassVar[str]

    def __post_init__(self) -> None:
        check_size("tau", self.tau)

    def sensitivity(
        self, n_samples: int, n_features: int, dimension: int, record_factor: float, order: float
    ) -> float:
        """Change by one record, in the norm of order 1 or 2.

        `n_samples` counts empty slots, too; `n_features` decides how sums are chunked, and
        `dimension` is that of the mean.
        """
        change = self._change(n_samples, record_factor)
        return coordinate_mean(self.bound, change, n_samples, n_features, dimension, order)

    def _change(self, n_samples: int, record_factor: float) -> float:
        """Change of a coordinate by a record, in units of `bound`."""
        return record_factor / n_samples

    @property
    def bound(self) -> float:
        """Largest influence of a record, in one coordinate."""
        return self.tau

    def limits(self, rows: Rows, order: float) -> Limits | None:
        """Numbers that `mean` needs for each row, computed once; None if it needs none."""
        return None

    def mean(self, rows: Rows, r: Array, limits: Limits | None) -> Array:
        """Mean of the bounded v_i r_i [x_i, 1] over the rows, shape (dimension,).

        v_i is the record's weight. With r of shape (n, K), that of the bounded matrices
        v_i [x_i, 1] r_i^T, (dimension, K).
        """
        return self.mean_of(self.sums(rows, r, limits), rows.n_samples)

    def sums(self, rows: Rows, r: Array, limits: Limits | None, first: int = 0) -> Array:
        """What pieces of the rows add to it; `first` is the number of the first of these rows."""
        raise NotImplementedError

    def gradient_sums(
        self, rows: Rows, coef: Array, objective: Objective, limits: Limits | None, first: int
    ) -> Array:
        """`sums` of the derivatives times [x_i, 1], at predictions of rows without centre."""
        y, offset, loss, clip = objective
        r = clipped_derivative(loss, rows.product(coef) + offset, y, clip)
        return self.sums(rows, rows.without_empty(r), limits, first)

    def mean_of(self, sums: Array, n_samples: int) -> Array:
        """The mean, of the sums of all pieces."""
        return sums / n_samples


@dataclass(frozen=True)
class NormClipped(MeanOracle):
    """Mean of vectors shrunk to a norm of at most tau, then times their weights."""

    name: ClassVar[str] = "clipped"

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

    def gradient_sums(
        self, rows: Rows, coef: Array, objective: Objective, limits: Limits | None, first: int
    ) -> Array:
        assert limits is not None
        bounds, order = limits
        if coef.ndim > 1 and order == 1:
            return super().gradient_sums(rows, coef, objective, limits, first)
        # one pass; the rows' scales are 0 for empty records, and 1
        return rows.gradient_sum(coef, objective, bounds)


@dataclass(frozen=True)
class CoordinateClipped(MeanOracle):
    """Mean of vectors whose coordinates are clipped to [-3 tau, 3 tau]."""

    name: ClassVar[str] = "coordinate-clipped"

    @property
    def bound(self) -> float:
        return _INTERVAL * self.tau

    def sums(self, rows: Rows, r: Array, limits: Limits | None, first: int = 0) -> Array:
        return _kernel_sums(rows, r, (1, rows.dimension), self.bound)[0]


@dataclass(frozen=True)
class MedianOfMeans(CoordinateClipped):
    """Median, in each coordinate, of the clipped means of buckets (KLZ22 Algorithm 3).

    Record i falls into bucket i mod m.
    """

    n_buckets: int = 1  # m

    name: ClassVar[str] = "median-of-means"

    def _change(self, n_samples: int, record_factor: float) -> float:
        # the midpoint of the two middle means moves by half of what one of them does
        halved = 0.5 if self.n_buckets % 2 == 0 else 1.0
        return halved * record_factor / (n_samples // self.n_buckets)

    def sums(self, rows: Rows, r: Array, limits: Limits | None, first: int = 0) -> Array:
        shape = self.n_buckets, rows.dimension
        return np.roll(_kernel_sums(rows, r, shape, self.bound), first, axis=0)

    def mean_of(self, sums: Array, n_samples: int) -> Array:
        sizes = np.full(self.n_buckets, n_samples // self.n_buckets)
        sizes[: n_samples % self.n_buckets] += 1
        return np.median(sums / sizes.reshape(-1, *(1,) * (sums.ndim - 1)), axis=0)


@dataclass(frozen=True)
class SmoothedTruncation(MeanOracle):
    r"""Mean of tau psi(x / tau) in each coordinate (KLZ22 Algorithm 4), evaluated to 9e-5.

    psi(a) = E phi(a (1 + N)), N ~ N(0, 1/3), :math:`\phi(u) = u - u^3 / 6` on
    :math:`[-\sqrt 2, \sqrt 2]` and constant beyond. psi is odd, bounded by about 0.863, and
    a (1 - O(a^2)) near 0.
    """

    name: ClassVar[str] = "smoothed"

    @property
    def bound(self) -> float:
        return self.tau * _SMOOTHED_BOUND

    def sums(self, rows: Rows, r: Array, limits: Limits | None, first: int = 0) -> Array:
        shape = (1, rows.dimension)
        return self.tau * _kernel_sums(rows, r, shape, _SMOOTHED_BOUND, 1 / self.tau)[0]


ORACLES: dict[str, type[MeanOracle]] = {
    kind.name: kind for kind in (NormClipped, MedianOfMeans, SmoothedTruncation, CoordinateClipped)
}


def _kernel_sums(
    rows: Rows, r: Array, shape: tuple[int, int], bound: float, factor: float = 0.0
) -> Array:
    """Sums by bucket of clipped coordinates, or of smoothed ones; several outputs come last."""
    from ..._kernels.bounded_sums import bounded_sums, csr_bounded_sums

    kernel: Any = bounded_sums
    X = rows.X
    if not isinstance(X, np.ndarray):
        kernel, X = csr_bounded_sums, Compressed.of(X)
    r = times_rows(r, rows.sample_weight)
    total = np.zeros((*r.shape[1:], *shape))
    weights = np.ascontiguousarray(r.reshape(r.shape[0], -1).T)
    for of_output, sums in zip(weights, total.reshape(-1, *shape), strict=True):
        kernel(X, of_output, rows.has_intercept, factor, bound, BLOCK_ROWS, sums)
    return total if r.ndim == 1 else np.moveaxis(total, 0, -1)


# ------------------------------------------------------------------------------ defaults


def default_threshold(noise: float, moment_order: float, moment_bound: float) -> float:
    r"""The clipping bound b that minimizes the bias plus the noise, for moments up to k.

    A variable with :math:`E |X|^k \le \gamma` has
    :math:`E (|X| - b)_+ \le \gamma \frac{(k - 1)^{k-1}}{k^k} b^{1 - k}`, and the noise is
    :math:`b \nu`. Their sum is least at
    :math:`b = \frac{k - 1}{k} (\gamma / \nu)^{1/k}`, which has the exponent of KLZ22,
    Corollary 4.2, and its own constant. `noise` is nu, the standard deviation per unit of b.
    """
    k = moment_order
    return (k - 1) / k * (moment_bound / noise) ** (1 / k)


@dataclass(frozen=True)
class OracleFacts:
    """Public facts that the rules for an oracle's numbers need."""

    n_samples: int
    dimension: int
    noise: float  # standard deviation in a coordinate, for a mean of vectors of norm at most 1
    order: float  # of the norm that the noise is calibrated to, 1 or 2
    size: float  # norm of a vector whose coordinates are at their moment bound
    moment_order: float
    moment_bound: float


def make_oracle(
    name: str, tau: float | None, n_buckets: int | None, facts: OracleFacts
) -> MeanOracle:
    """The oracle of that name, one of `ORACLES`; `None` leaves a value to rules.

    Raises
    ------
    ValueError
        If there are more buckets than records.
    """
    moments = facts.moment_order, facts.moment_bound
    if name == "clipped":
        whole = facts.noise * math.sqrt(facts.dimension)
        return NormClipped(tau or facts.size * default_threshold(whole, *moments))
    noise = facts.noise * facts.dimension ** (1 / facts.order)  # times the norm of a vector of ones
    if name == "smoothed":
        return SmoothedTruncation(tau or default_threshold(noise, *moments) / _SMOOTHED_BOUND)
    if name == "coordinate-clipped":
        return CoordinateClipped(tau or default_threshold(noise, *moments) / _INTERVAL)
    # 4 log(2 d / beta) of KLZ22, made even, and at most n
    wanted = 2 * math.ceil(2 * math.log(2 * facts.dimension / _FAILURE))
    buckets = n_buckets or max(1, min(wanted, facts.n_samples // 2 * 2))
    if buckets > facts.n_samples:
        raise ValueError(
            f"n_buckets={buckets} is more than there are records ({facts.n_samples}): a bucket "
            "would be empty"
        )
    spread = buckets * (0.5 if buckets % 2 == 0 else 1.0)
    bound = default_threshold(noise * spread, *moments)
    return MedianOfMeans(tau or bound / _INTERVAL, buckets)
