r"""Private means of heavy-tailed samples (KLZ22, Algorithms 3 and 4), without bounds.

Only a moment bound is needed: E abs(X_j - center_j)^k <= moment_bound scale_j^k, k >= 2.
Each estimator limits what one record can add, averages, and adds noise:

``"median-of-means"``
    Coordinates clipped, means of buckets of records, their median in each coordinate.
``"smoothed"``
    Coordinates passed through a smooth, bounded, odd function.
``"clipped"``
    Whole vectors shrunk to a bounded norm: one record moves the mean by a vector of that
    norm, without the factor sqrt(d) that the others pay.
``"coordinate-clipped"``
    Coordinates clipped, then averaged.

The oracles are used on samples by the functions here, and on gradients, which are rows
times scalars and never stored, by `solvers.heavy_tail`. Sensitivities are derived in
doc/privacy.rst, section 7.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf, ndtr

from ._checks import auto_or, check_choice, check_int, check_real, check_size
from ._linear import UNIT_ROUNDOFF, Rows, make_rows, summation_error
from ._random import stream_from_random_state
from .accounting import (
    Allowance,
    Guarantee,
    PrivacyBudget,
    accountant_in_force,
)
from .mechanisms import Gaussian, Laplace, Release, additive_noise

__all__ = [
    "ORACLES",
    "MeanOracle",
    "MeanPlan",
    "clipped_mean",
    "clipped_median_of_means",
    "default_threshold",
    "make_oracle",
    "norm_clipped_mean",
    "plan_mean",
    "smoothed_truncated_mean",
    "smoothed_truncation",
]

Array = NDArray[np.float64]

_BLOCK_ROWS = 65536  # rows summed in one go, see `summation_error`
_INTERVAL = 3.0  # KLZ22 clip to 3 tau
_SMOOTHING = 1 / 3  # c, the variance of the multiplicative noise that is averaged over
_SMOOTHED_BOUND = 2 * math.sqrt(2) / 3 * float(erf(1 / math.sqrt(2 * _SMOOTHING)))
_FAILURE = 0.1  # beta: KLZ22's bucket count is for an error that holds with 1 - beta
_LARGEST = 2.0**300  # whatever is larger, infinities included, counts as this
_SHORTEST = 1e-150  # norms below count as this, since squares of what is smaller underflow


# ------------------------------------------------------------------------------- oracles


@dataclass(frozen=True)
class MeanOracle:
    """A mean of vectors that one of them can change by a bounded amount only.

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
        self, n_samples: int, n_features: int, dimension: int, record_factor: float, order: int
    ) -> float:
        """Change by one record, in the norm of order 1 or 2.

        Parameters
        ----------
        n_samples : int
            Number of slots, empty ones included.
        n_features : int
            Columns, which decide how sums are chunked.
        dimension : int
            Coordinates of the mean.
        record_factor : {1.0, 2.0}
            `PrivacyBudget.record_factor`.
        order : {1, 2}
        """
        # a record's influence in each coordinate is at most `bound`, so that a mean errs by
        # at most the relative error of a sum times that
        numerical = 2 * summation_error(n_samples, n_features)
        per_coordinate = self.bound * (self._change(n_samples, record_factor) + numerical)
        return per_coordinate * (dimension if order == 1 else math.sqrt(dimension))

    @property
    def bound(self) -> float:
        """Largest influence of a record, in one coordinate."""
        raise NotImplementedError

    def _change(self, n_samples: int, record_factor: float) -> float:
        """Change of a coordinate by a record, in units of `bound`."""
        return record_factor / n_samples

    def mean(self, rows: Rows, r: Array, limits: Array | None) -> Array:
        """Mean of the bounded r_i [x_i, 1] over the rows, shape (dimension,)."""
        raise NotImplementedError

    def limits(self, rows: Rows, order: int) -> Array | None:
        """What `mean` needs to know of the rows, computed once."""
        return None


@dataclass(frozen=True)
class NormClipped(MeanOracle):
    """Mean of vectors shrunk to a norm of at most tau."""

    name: ClassVar[str] = "clipped"

    def sensitivity(
        self, n_samples: int, n_features: int, dimension: int, record_factor: float, order: int
    ) -> float:
        numerical = 2 * summation_error(n_samples, n_features)
        return self.tau * (record_factor / n_samples + numerical)

    @property
    def bound(self) -> float:
        return self.tau

    def limits(self, rows: Rows, order: int) -> Array:
        """Bound on abs(r_i), shape (n,): tau over the norm of [x_i, 1]."""
        norms = rows.norms() if order == 2 else _l1_norms(rows)
        # the division and the products to come round
        return self.tau * (1 - 8 * UNIT_ROUNDOFF) / np.maximum(norms, _SHORTEST)

    def mean(self, rows: Rows, r: Array, limits: Array | None) -> Array:
        assert limits is not None
        return rows.weighted_sum(np.clip(r, -limits, limits)) / rows.n_samples


@dataclass(frozen=True)
class CoordinateClipped(MeanOracle):
    """Mean of vectors whose coordinates are clipped to [-3 tau, 3 tau]."""

    name: ClassVar[str] = "coordinate-clipped"

    @property
    def bound(self) -> float:
        return _INTERVAL * self.tau

    def mean(self, rows: Rows, r: Array, limits: Array | None) -> Array:
        return self._bucket_sums(rows, r, 1)[0] / rows.n_samples

    def _bucket_sums(self, rows: Rows, r: Array, n_buckets: int) -> Array:
        from ._kernels.means import clipped_sums, csr_clipped_sums

        total = np.zeros((n_buckets, rows.dimension))
        kernel, storage = _storage(rows, clipped_sums, csr_clipped_sums)
        kernel(*storage, r, rows.has_intercept, self.bound, _BLOCK_ROWS, total)
        return total


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

    def mean(self, rows: Rows, r: Array, limits: Array | None) -> Array:
        sums = self._bucket_sums(rows, r, self.n_buckets)
        sizes = np.full(self.n_buckets, rows.n_samples // self.n_buckets)
        sizes[: rows.n_samples % self.n_buckets] += 1
        return np.median(sums / sizes[:, None], axis=0)


@dataclass(frozen=True)
class SmoothedTruncation(MeanOracle):
    """Mean of tau psi(x / tau) in each coordinate (KLZ22 Algorithm 4).

    psi is `smoothed_truncation`, evaluated to 9e-5.
    """

    name: ClassVar[str] = "smoothed"

    @property
    def bound(self) -> float:
        return self.tau * _SMOOTHED_BOUND

    def mean(self, rows: Rows, r: Array, limits: Array | None) -> Array:
        from ._kernels.means import csr_smoothed_sums, smoothed_sums

        total = np.zeros(rows.dimension)
        kernel, storage = _storage(rows, smoothed_sums, csr_smoothed_sums)
        kernel(*storage, r, rows.has_intercept, 1 / self.tau, _SMOOTHED_BOUND, _BLOCK_ROWS, total)
        return self.tau * total / rows.n_samples


ORACLES: dict[str, type[MeanOracle]] = {
    kind.name: kind for kind in (NormClipped, MedianOfMeans, SmoothedTruncation, CoordinateClipped)
}


def _storage(rows: Rows, dense: Any, compressed: Any) -> tuple[Any, tuple[Any, ...]]:
    """The kernel for the rows' storage, and its first arguments."""
    X = rows.X
    if isinstance(X, np.ndarray):
        return dense, (X,)
    return compressed, (X.data, X.indices, X.indptr)


def _l1_norms(rows: Rows) -> Array:
    """l1 norms of the rows [x, 1], rounded up."""
    X = rows.X
    sums = np.asarray(abs(X).sum(axis=1, dtype=np.float64)).ravel() + rows.has_intercept
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


def make_oracle(
    name: str, tau: float | None, n_buckets: int | None, *, n_samples: int, dimension: int,
    noise: float, order: int, size: float, moment_order: float, moment_bound: float,
) -> MeanOracle:  # fmt: skip
    """The oracle of that name; `None` leaves a value to the rules above.

    Parameters
    ----------
    name : str
        One of `ORACLES`.
    tau : float or None
    n_buckets : int or None
        For "median-of-means".
    n_samples, dimension : int
    noise : float
        Standard deviation of a coordinate's noise for a mean of vectors of norm at most 1.
    order : {1, 2}
        Of the norm that the noise is calibrated to.
    size : float
        Norm of a vector whose coordinates are at their moment bound.
    moment_order, moment_bound : float

    Raises
    ------
    ValueError
        If there are more buckets than records.
    """
    if name == "clipped":
        whole = noise * math.sqrt(dimension)
        return NormClipped(tau or size * default_threshold(whole, moment_order, moment_bound))
    moments = moment_order, moment_bound
    noise *= dimension ** (1 / order)  # a vector of ones is so long
    if name == "smoothed":
        return SmoothedTruncation(tau or default_threshold(noise, *moments) / _SMOOTHED_BOUND)
    if name == "coordinate-clipped":
        return CoordinateClipped(tau or default_threshold(noise, *moments) / _INTERVAL)
    buckets = n_buckets or default_buckets(n_samples, dimension)
    if buckets > n_samples:
        raise ValueError(
            f"n_buckets={buckets} is more than there are records ({n_samples}): a bucket "
            "would be empty"
        )
    spread = buckets * (0.5 if buckets % 2 == 0 else 1.0)
    bound = default_threshold(noise * spread, *moments)
    return MedianOfMeans(tau or bound / _INTERVAL, buckets)


# --------------------------------------------------------------------- means of a sample


@dataclass(frozen=True)
class MeanPlan:
    """Everything that decides a private mean, made before any data is read.

    Attributes
    ----------
    oracle : MeanOracle
    budget : PrivacyBudget
    n_samples, n_features : int
    center, scale : ndarray of shape (n_features,)
        The sample is shifted and divided by these first.
    noise : Gaussian or Laplace
        On the mean of (X - center) / scale.
    guarantee : Guarantee
    """

    oracle: MeanOracle
    budget: PrivacyBudget
    n_samples: int
    n_features: int
    center: Array
    scale: Array
    noise: Gaussian | Laplace
    guarantee: Guarantee

    def statistic(self, X: Any) -> Array:
        """What the noise is added to. Not private."""
        X = _check_sample(X)
        if X.shape != (self.n_samples, self.n_features):
            raise ValueError(
                f"X must have the plan's shape ({self.n_samples}, {self.n_features}), got {X.shape}"
            )
        with np.errstate(over="ignore", invalid="ignore"):
            V = (X - self.center) / self.scale
        V = np.clip(np.where(np.isnan(V), 0.0, V), -_LARGEST, _LARGEST)
        rows = make_rows(np.ascontiguousarray(V), has_intercept=False)
        limits = self.oracle.limits(rows, 1 if self.budget.is_pure else 2)
        return self.oracle.mean(rows, np.ones(self.n_samples), limits)

    def release(self, X: Any, *, random_state: Any = None) -> Array:
        """The private mean of X, shape (n_features,)."""
        stream = stream_from_random_state(random_state)
        return self.center + self.scale * self.noise.release(self.statistic(X), stream)


def _check_sample(X: Any) -> Array:
    try:
        X = np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError("X must hold numbers") from None
    if X.ndim != 2 or X.shape[0] < 1 or X.shape[1] < 1:
        raise ValueError(f"X must have shape (n_samples, n_features), got {X.shape}")
    return X


def _per_column(name: str, value: Any, n_features: int, *, positive: bool) -> Array:
    """A number or one number per column, as an array of shape (n_features,)."""
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        array = np.array(np.nan)
    if array.ndim > 1 or (array.ndim == 1 and array.size != n_features):
        raise ValueError(
            f"{name} must be a number or an array of shape ({n_features},), got shape {array.shape}"
        )
    if not np.all(np.isfinite(array)) or (positive and np.any(array <= 0)):
        raise ValueError(f"{name} must be finite{' and positive' if positive else ''}")
    return np.broadcast_to(array, (n_features,)).copy()


def _budget(
    epsilon: Any, delta: Any, rho: Any, relation: str, precision: Any, accountant: Any
) -> tuple[PrivacyBudget, Allowance]:
    currency: Any = "auto" if accountant is None else "zcdp"
    if rho is None:
        budget = PrivacyBudget(epsilon, delta, relation, precision, currency)
        return budget, budget.gaussian_allowance
    rho = check_real("rho", rho, low=0, low_open=True)
    if delta == 0:
        raise ValueError("rho needs delta > 0, at which its epsilon is stated")
    PrivacyBudget(1.0, delta, relation, precision)
    budget = PrivacyBudget(_epsilon_for(rho, delta), delta, relation, precision, "zcdp")
    return budget, Allowance("zcdp", rho, precision)


def _epsilon_for(rho: float, delta: float) -> float:
    """An epsilon, little more than the least, whose budget allows rho."""
    low, high = 0.0, 1.0
    while PrivacyBudget(high, delta).rho < rho:
        low, high = high, 2 * high
    for _ in range(30):
        middle = (low + high) / 2
        if PrivacyBudget(middle, delta).rho < rho:
            low = middle
        else:
            high = middle
    return high


def plan_mean(
    n_samples: int, n_features: int, *, oracle: str = "clipped", epsilon: float = 1.0,
    delta: float = 1e-6, rho: float | None = None, relation: str = "replace-one",
    moment_order: float = 2.0, moment_bound: float = 1.0, center: Any = 0.0, scale: Any = 1.0,
    tau: Any = "auto", n_buckets: Any = "auto", precision: Any = "exact", accountant: Any = None,
) -> MeanPlan:  # fmt: skip
    """The plan of a private mean; reads no data and spends nothing.

    Parameters
    ----------
    n_samples, n_features : int >= 1
    oracle : {"clipped", "median-of-means", "smoothed", "coordinate-clipped"}
    epsilon, delta, relation, precision
        As in `PrivacyBudget`. delta = 0 asks for pure epsilon-DP, by Laplace noise.
    rho : float > 0 or None
        A budget of zero-concentrated DP in place of epsilon. The guarantee then states the
        epsilon that it implies at delta.
    moment_order : float >= 2
        k.
    moment_bound : float in [1e-50, 1e50]
        Bound on E abs((X_j - center_j) / scale_j)^k, for every column j.
    center, scale : float or array-like of shape (n_features,)
        Public guesses of where the mean is and of the spread about it. The error grows with
        both what they miss and what they overstate.
    tau : "auto" or float in [1e-50, 1e50]
        In units of scale. "clipped": bound on the norm of a record. "smoothed": the scale of
        the function. Else coordinates are clipped to [-3 tau, 3 tau].
    n_buckets : "auto" or int >= 1
        For "median-of-means".
    accountant : None or BudgetAccountant

    Returns
    -------
    MeanPlan

    Raises
    ------
    ValueError
        If a parameter is out of range or there are fewer records than buckets.
    """
    n = check_int("n_samples", n_samples, low=1)
    d = check_int("n_features", n_features, low=1)
    check_choice("oracle", oracle, tuple(ORACLES))
    order = check_real("moment_order", moment_order, low=2)
    moment = check_size("moment_bound", moment_bound)
    tau = auto_or(check_size, "tau", tau)
    n_buckets = auto_or(check_int, "n_buckets", n_buckets, low=1)
    budget, allowance = _budget(epsilon, delta, rho, relation, precision, accountant)
    norm = 1 if budget.is_pure else 2
    per_unit = math.sqrt(2) / allowance.amount if norm == 1 else 1 / math.sqrt(2 * allowance.amount)
    mean = make_oracle(
        oracle, tau, n_buckets, n_samples=n, dimension=d, order=norm, size=d ** (1 / norm),
        noise=budget.record_factor / n * per_unit, moment_order=order, moment_bound=moment,
    )  # fmt: skip
    sensitivity = mean.sensitivity(n, d, d, budget.record_factor, norm)
    mechanism = additive_noise(allowance).calibrate(sensitivity, allowance, dimension=d)
    guarantee = Guarantee(
        budget.epsilon, budget.delta, budget.relation, allowance.kind,
        (Release(f"{oracle} mean", mechanism),),
    )  # fmt: skip
    return MeanPlan(
        mean, budget, n, d, _per_column("center", center, d, positive=False),
        _per_column("scale", scale, d, positive=True), mechanism, guarantee,
    )  # fmt: skip


def _estimate(X: Any, oracle: str, settings: dict[str, Any], random_state: Any) -> Array:
    X = _check_sample(X)
    accountant = accountant_in_force(settings.pop("accountant", None))
    plan = plan_mean(*X.shape, oracle=oracle, accountant=accountant, **settings)
    if accountant is not None:
        accountant.spend(plan.guarantee)
    return plan.release(X, random_state=random_state)


def clipped_median_of_means(X: Any, *, random_state: Any = None, **settings: Any) -> Array:
    """Private mean by medians of means of clipped coordinates (KLZ22 Algorithm 3).

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Any numbers. Infinities count as the largest of values, NaN as `center`.
    random_state : None, int or RandomState, default=None
        An int makes the result reproducible and *not private*.
    **settings
        Those of `plan_mean` except `oracle`.

    Returns
    -------
    ndarray of shape (n_features,)

    See Also
    --------
    plan_mean : the settings, and the noise and the guarantee before any data.
    """
    return _estimate(X, "median-of-means", settings, random_state)


def smoothed_truncated_mean(X: Any, *, random_state: Any = None, **settings: Any) -> Array:
    """Private mean of smoothly truncated coordinates (KLZ22 Algorithm 4).

    Parameters and result as for `clipped_median_of_means`, without buckets.
    """
    return _estimate(X, "smoothed", settings, random_state)


def clipped_mean(X: Any, *, random_state: Any = None, **settings: Any) -> Array:
    """Private mean of clipped coordinates: the baseline.

    Parameters and result as for `clipped_median_of_means`, without buckets.
    """
    return _estimate(X, "coordinate-clipped", settings, random_state)


def norm_clipped_mean(X: Any, *, random_state: Any = None, **settings: Any) -> Array:
    """Private mean of records shrunk to a bounded norm.

    Parameters and result as for `clipped_median_of_means`, without buckets.
    """
    return _estimate(X, "clipped", settings, random_state)
