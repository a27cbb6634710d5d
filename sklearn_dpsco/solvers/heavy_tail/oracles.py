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
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf, ndtr

from ..._checks import check_size
from ..._kernels.arguments import Compressed
from ...data.rows import Objective, Rows, times_rows
from ...data.summation import BLOCK_ROWS, UNIT_ROUNDOFF
from ...losses import clipped_derivative, clipped_rows
from ..sensitivity import coordinate_mean, mean_of_numbers

__all__ = [
    "LARGEST",
    "ORACLES",
    "MeanOracle",
    "OracleFacts",
    "default_threshold",
    "make_oracle",
    "smoothed_truncation",
]

Array = NDArray[np.float64]

_INTERVAL = 3.0  # KLZ22 clip to 3 tau
_SMOOTHING = 1 / 3  # c, the variance of the multiplicative noise that is averaged over
_SMOOTHED_BOUND = 2 * math.sqrt(2) / 3 * float(erf(1 / math.sqrt(2 * _SMOOTHING)))
_FAILURE = 0.1  # beta: KLZ22's bucket count is for an error that holds with 1 - beta
LARGEST = 2.0**300  # larger values, infinities included, count as this
_SHORTEST = 1e-150  # smaller norms count as this, since their squares underflow


class Limits(NamedTuple):
    """Bounds on the norms of the r_i, shape (n,), and the order of the norm, 1 or 2."""

    bounds: Array
    order: float


@dataclass(frozen=True)
class MeanOracle:
    """A mean of vectors, on which each vector has a bounded influence.

    Parameters
    ----------
    tau : float in [1e-50, 1e50]
        Size of the values that pass nearly unchanged.
    """

    tau: float

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

    @property
    def bound(self) -> float:
        """Largest influence of a record, in one coordinate."""
        raise NotImplementedError

    def _change(self, n_samples: int, record_factor: float) -> float:
        """Change of a coordinate by a record, in units of `bound`."""
        return record_factor / n_samples

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

    def limits(self, rows: Rows, order: float) -> Limits | None:
        """Numbers that `mean` needs for each row, computed once; None if it needs none."""
        return None


@dataclass(frozen=True)
class NormClipped(MeanOracle):
    """Mean of vectors shrunk to a norm of at most tau, then times their weights."""

    name: ClassVar[str] = "clipped"

    def sensitivity(
        self, n_samples: int, n_features: int, dimension: int, record_factor: float, order: float
    ) -> float:
        return self.tau * mean_of_numbers(n_samples, n_features, record_factor)

    @property
    def bound(self) -> float:
        return self.tau

    def limits(self, rows: Rows, order: float) -> Limits:
        """Bounds on the norms of the r_i: tau over the norm of [x_i, 1]."""
        norms = rows.norms() if order == 2 else _l1_norms(rows)
        # for the rounding of the division and of the products that follow
        return Limits(self.tau * (1 - 8 * UNIT_ROUNDOFF) / np.maximum(norms, _SHORTEST), order)

    def sums(self, rows: Rows, r: Array, limits: Limits | None, first: int = 0) -> Array:
        assert limits is not None
        r = clipped_rows(r, limits.bounds, limits.order)
        return rows.weighted_sum(times_rows(r, rows.sample_weight))

    def gradient_sums(
        self, rows: Rows, coef: Array, objective: Objective, limits: Limits | None, first: int
    ) -> Array:
        assert limits is not None
        if coef.ndim > 1 and limits.order == 1:
            return super().gradient_sums(rows, coef, objective, limits, first)
        # one pass; the rows' scales are 0 for empty records, and 1
        return rows.gradient_sum(coef, objective, limits.bounds)


@dataclass(frozen=True)
class CoordinateClipped(MeanOracle):
    """Mean of vectors whose coordinates are clipped to [-3 tau, 3 tau]."""

    name: ClassVar[str] = "coordinate-clipped"

    @property
    def bound(self) -> float:
        return _INTERVAL * self.tau

    def sums(self, rows: Rows, r: Array, limits: Limits | None, first: int = 0) -> Array:
        return self._bucket_sums(rows, r, 1)[0]

    def _bucket_sums(self, rows: Rows, r: Array, n_buckets: int) -> Array:
        """Shape (n_buckets, dimension), or (n_buckets, dimension, K)."""
        from ..._kernels.bounded_sums import clipped_sums, csr_clipped_sums

        kernel, X = _storage(rows, clipped_sums, csr_clipped_sums)
        total = np.zeros((*r.shape[1:], n_buckets, rows.dimension))
        outputs = total.reshape(-1, n_buckets, rows.dimension)
        for of_output, sums in zip(_columns(rows, r), outputs, strict=True):
            kernel(X, of_output, rows.has_intercept, self.bound, BLOCK_ROWS, sums)
        return total if r.ndim == 1 else np.moveaxis(total, 0, -1)


@dataclass(frozen=True)
class MedianOfMeans(CoordinateClipped):
    """Median, in each coordinate, of the clipped means of buckets (KLZ22 Algorithm 3).

    Record i falls into bucket i mod m.

    Parameters
    ----------
    tau : float > 0
    n_buckets : int >= 1
        m.
    """

    n_buckets: int = 1

    name: ClassVar[str] = "median-of-means"

    def _change(self, n_samples: int, record_factor: float) -> float:
        # the midpoint of the two middle means moves by half of what one of them does
        halved = 0.5 if self.n_buckets % 2 == 0 else 1.0
        return halved * record_factor / (n_samples // self.n_buckets)

    def sums(self, rows: Rows, r: Array, limits: Limits | None, first: int = 0) -> Array:
        return np.roll(self._bucket_sums(rows, r, self.n_buckets), first, axis=0)

    def mean_of(self, sums: Array, n_samples: int) -> Array:
        sizes = np.full(self.n_buckets, n_samples // self.n_buckets)
        sizes[: n_samples % self.n_buckets] += 1
        return np.median(sums / sizes.reshape(-1, *(1,) * (sums.ndim - 1)), axis=0)


@dataclass(frozen=True)
class SmoothedTruncation(MeanOracle):
    """Mean of tau psi(x / tau) in each coordinate (KLZ22 Algorithm 4).

    psi is `smoothed_truncation`, evaluated to 9e-5.
    """

    name: ClassVar[str] = "smoothed"

    @property
    def bound(self) -> float:
        return self.tau * _SMOOTHED_BOUND

    def sums(self, rows: Rows, r: Array, limits: Limits | None, first: int = 0) -> Array:
        from ..._kernels.bounded_sums import csr_smoothed_sums, smoothed_sums

        kernel, X = _storage(rows, smoothed_sums, csr_smoothed_sums)
        total = np.zeros((*r.shape[1:], rows.dimension))
        outputs = total.reshape(-1, rows.dimension)
        for of_output, sums in zip(_columns(rows, r), outputs, strict=True):
            kernel(
                X, of_output, rows.has_intercept, 1 / self.tau, _SMOOTHED_BOUND, BLOCK_ROWS, sums
            )
        return self.tau * total.T


ORACLES: dict[str, type[MeanOracle]] = {
    kind.name: kind for kind in (NormClipped, MedianOfMeans, SmoothedTruncation, CoordinateClipped)
}


def _storage(rows: Rows, dense: Any, compressed: Any) -> tuple[Any, Any]:
    """The kernel for the rows' storage, and its argument X."""
    X = rows.X
    return (dense, X) if isinstance(X, np.ndarray) else (compressed, Compressed.of(X))


def _columns(rows: Rows, r: Array) -> Array:
    """The weighted derivatives of each output, shape (K, n)."""
    r = times_rows(r, rows.sample_weight)
    return np.ascontiguousarray(r.reshape(r.shape[0], -1).T)


def _l1_norms(rows: Rows) -> Array:
    """l1 norms of the rows [x, 1], rounded up."""
    sums = np.empty(rows.n_samples)
    for first in range(0, rows.n_samples, BLOCK_ROWS):
        part = slice(first, first + BLOCK_ROWS)
        # scipy adds up in the type of the values
        sizes = abs(rows.part(part).X).astype(np.float64).sum(axis=1)
        sums[part] = np.asarray(sizes).ravel() + rows.has_intercept
    return sums * (1 + 2 * (rows.dimension + 4) * UNIT_ROUNDOFF)


def smoothed_truncation(a: Any) -> Array:
    r"""psi(a) = E phi(a (1 + N)), N ~ N(0, 1/3), of KLZ22 Algorithm 4, in closed form.

    :math:`\phi(u) = u - u^3 / 6` on :math:`[-\sqrt 2, \sqrt 2]` and constant beyond. psi is
    odd, bounded by about 0.863, and a (1 - O(a^2)) near 0.

    Parameters
    ----------
    a : array-like

    Returns
    -------
    ndarray of the same shape
    """
    a = np.asarray(a, dtype=np.float64)
    # near 0 the formula is 0 / 0, and far out its terms cancel
    size = np.clip(np.abs(a), 1e-8, 1e3)
    root = math.sqrt(2)
    k = size * math.sqrt(_SMOOTHING)
    low, high = -(root + size) / k, (root - size) / k
    density_low, density_high = (np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi) for z in (low, high))
    m0 = ndtr(high) - ndtr(low)
    m1 = density_low - density_high
    m2 = m0 + low * density_low - high * density_high
    m3 = (low**2 + 2) * density_low - (high**2 + 2) * density_high
    psi = (
        2 * root / 3 * (ndtr(-high) - ndtr(low))
        + (size - size**3 / 6) * m0
        + (k - size**2 * k / 2) * m1
        - size * k**2 / 2 * m2
        - k**3 / 6 * m3
    )
    psi = np.where(np.abs(a) < 1e-8, np.abs(a), np.where(np.abs(a) > 1e3, _SMOOTHED_BOUND, psi))
    return np.copysign(np.minimum(psi, _SMOOTHED_BOUND), a)


# ------------------------------------------------------------------------------ defaults


def default_threshold(noise: float, moment_order: float, moment_bound: float) -> float:
    r"""The clipping bound b that minimizes the bias plus the noise, for moments up to k.

    A variable with :math:`E |X|^k \le \gamma` has
    :math:`E (|X| - b)_+ \le \gamma \frac{(k - 1)^{k-1}}{k^k} b^{1 - k}`, and the noise is
    :math:`b \nu`. Their sum is least at
    :math:`b = \frac{k - 1}{k} (\gamma / \nu)^{1/k}`, which has the exponent of KLZ22,
    Corollary 4.2, and its own constant.

    Parameters
    ----------
    noise : float > 0
        nu, the standard deviation of the noise per unit of b.
    moment_order : float >= 2
        k.
    moment_bound : float > 0
        gamma.
    """
    k = moment_order
    return (k - 1) / k * (moment_bound / noise) ** (1 / k)


def default_buckets(n_samples: int, dimension: int) -> int:
    """4 log(2 d / beta) of KLZ22, beta = 0.1, made even, and at most n."""
    wanted = 2 * math.ceil(2 * math.log(2 * dimension / _FAILURE))
    return max(1, min(wanted, n_samples // 2 * 2))


@dataclass(frozen=True)
class OracleFacts:
    """Public facts that the rules for an oracle's numbers need.

    Attributes
    ----------
    n_samples, dimension : int
    noise : float
        Standard deviation of a coordinate's noise for a mean of vectors of norm at most 1.
    order : {1, 2}
        Of the norm that the noise is calibrated to.
    size : float
        Norm of a vector whose coordinates are at their moment bound.
    moment_order, moment_bound : float
    """

    n_samples: int
    dimension: int
    noise: float
    order: float
    size: float
    moment_order: float
    moment_bound: float


def make_oracle(
    name: str, tau: float | None, n_buckets: int | None, facts: OracleFacts
) -> MeanOracle:
    """The oracle of that name, one of `ORACLES`; `None` leaves a value to the rules above.

    Parameters
    ----------
    name : str
    tau : float or None
    n_buckets : int or None
        For "median-of-means".
    facts : OracleFacts

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
    buckets = n_buckets or default_buckets(facts.n_samples, facts.dimension)
    if buckets > facts.n_samples:
        raise ValueError(
            f"n_buckets={buckets} is more than there are records ({facts.n_samples}): a bucket "
            "would be empty"
        )
    spread = buckets * (0.5 if buckets % 2 == 0 else 1.0)
    bound = default_threshold(noise * spread, *moments)
    return MedianOfMeans(tau or bound / _INTERVAL, buckets)
