r"""Private means of heavy-tailed samples (KLZ22, Algorithms 3 and 4), without bounds.

Only a moment bound is needed: E abs(X_j - center_j)^k <= moment_bound scale_j^k, k >= 2. How
the influence of a record is bounded is described in `solvers.heavy_tail.oracles`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ._checks import SMALLEST, auto_or, check_choice, check_count, check_real, check_size
from ._fitting import Accounting
from ._overview import Overviewed
from ._types import Array, Auto, Oracle, Precision, RandomState, Relation
from .data.bounds import check_numbers
from .data.cells import as_numbers
from .data.rows import Rows
from .mechanisms import Gaussian, Laplace, Release, additive_noise
from .privacy.accountant import accountant_in_force
from .privacy.budget import PrivacyBudget
from .privacy.guarantee import Guarantee
from .randomness.stream import check_random_state, stream_from_random_state
from .solvers.heavy_tail import oracles

__all__ = [
    "MeanPlan",
    "clipped_mean",
    "clipped_median_of_means",
    "norm_clipped_mean",
    "plan_mean",
    "smoothed_truncated_mean",
]


@dataclass(frozen=True)
class MeanPlan(Overviewed):
    """All that a private mean depends on besides X; made before any data is read.

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

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_dpsco.means import plan_mean
    >>> plan = plan_mean(10_000, 2, epsilon=1.0, center=100, scale=10)
    >>> sample = np.random.default_rng(0).normal(105, 10, (10_000, 2))
    >>> bool(np.all(np.abs(plan.release(sample) - 105) < 2))
    True
    """

    _headline = "means of {0.n_features} columns on {0.n_samples} records"

    oracle: oracles.MeanOracle
    budget: PrivacyBudget
    n_samples: int
    n_features: int
    center: Array
    scale: Array
    noise: Gaussian | Laplace
    guarantee: Guarantee

    def statistic(self, X: Any) -> Array:
        """The mean to which the noise is added. Not private."""
        X = _check_sample(X)
        if X.shape != (self.n_samples, self.n_features):
            raise ValueError(
                f"X must have the plan's shape ({self.n_samples}, {self.n_features}), got {X.shape}"
            )
        with np.errstate(all="ignore"):  # what numpy warns of may be the value of one record
            V = (X - self.center) / self.scale
            V = np.clip(np.where(np.isnan(V), 0.0, V), -oracles.LARGEST, oracles.LARGEST)
            rows = Rows(V, has_intercept=False)
            limits = self.oracle.limits(rows, self.noise.order)
            return self.oracle.mean(rows, np.ones(self.n_samples), limits)

    def release(self, X: Any, *, random_state: RandomState = None) -> Array:
        """The private mean of X, shape (n_features,)."""
        stream = stream_from_random_state(random_state)
        return self.center + self.scale * self.noise.release(self.statistic(X), stream)


def _check_sample(X: Any) -> Array:
    if len(getattr(X, "shape", ())) == 1 and np.asarray(X).dtype.kind == "O":
        X = list(X)  # whose entries may be rows
    with np.errstate(all="ignore"):  # a cast may warn of a single value
        X = np.asarray(as_numbers("X", X, strict=False), dtype=np.float64)
    if X.ndim == 1:
        X = X[:, None]
    if X.ndim != 2 or X.shape[0] < 1 or X.shape[1] < 1:
        raise ValueError(f"X must have shape (n_samples, n_features), got {X.shape}")
    return X


def _per_column(name: str, value: Any, n_features: int, **limits: float) -> Array:
    """A number or one number per column, as an array of shape (n_features,)."""
    array = check_numbers(name, value, **limits)
    if array.shape not in ((), (n_features,)):
        raise ValueError(
            f"{name} must be a number or an array of shape ({n_features},), got shape {array.shape}"
        )
    return np.broadcast_to(array.copy(), (n_features,))  # takes no memory by column


def plan_mean(
    n_samples: int,
    n_features: int,
    *,
    oracle: Oracle = "clipped",
    epsilon: float = 1.0,
    delta: float | Auto = "auto",
    relation: Relation | Auto = "auto",
    max_rows_per_user: int | Auto = "auto",
    moment_order: float = 2.0,
    moment_bound: float = 1.0,
    center: Any = 0.0,
    scale: Any = 1.0,
    tau: float | Auto = "auto",
    n_buckets: int | Auto = "auto",
    precision: Precision = "exact",
    accountant: Any = None,
) -> MeanPlan:
    """The plan of a private mean; reads no data and spends nothing.

    Parameters
    ----------
    n_samples, n_features : int in [1, 1e15]
    oracle : {"clipped", "median-of-means", "smoothed", "coordinate-clipped"}, default="clipped"
    epsilon, delta, relation, precision
        As in `PrivacyBudget`. delta = 0 asks for pure epsilon-DP, by Laplace noise; "auto" is the
        accountant's, or without one min(1e-6, 1 / (10 n_samples)) and "replace-one".
    max_rows_per_user : "auto" or int in [1, 1e15], default="auto"
        The guarantee is for all rows of a user together, of whom nobody has more than this.
        "auto" is the accountant's, or without one 1.
    moment_order : float >= 2, default=2.0
        k.
    moment_bound : float in [1e-50, 1e50], default=1.0
        Bound on E abs((X_j - center_j) / scale_j)^k, for every column j.
    center, scale : float or array-like of shape (n_features,), default=0.0 and 1.0
        Within [-1e50, 1e50] and [1e-50, 1e50]. Public guesses of the mean and of the spread
        about it. The error is larger where `center` is far from the mean, or `scale` far from
        the spread.
    tau : "auto" or float in [1e-50, 1e50], default="auto"
        In units of scale. "clipped": bound on the norm of a record. "smoothed": the scale of
        the function. Others: coordinates are clipped to [-3 tau, 3 tau].
    n_buckets : "auto" or int in [1, 1e15], default="auto"
        For "median-of-means".
    accountant : None, BudgetAccountant or Branch, default=None
        Whose delta "auto" stands for. The functions that release a mean charge it, before
        anything is computed from X; `plan_mean` charges nothing.

    Raises
    ------
    ValueError
        If a parameter is out of range or there are fewer records than buckets, or if one has no
        effect: `n_buckets` with another oracle, or moments beside a `tau`.

    Examples
    --------
    >>> from sklearn_dpsco.means import plan_mean
    >>> plan = plan_mean(10_000, 5, oracle="median-of-means", epsilon=1.0, scale=100)
    >>> plan.guarantee.epsilon
    1.0
    >>> wider = plan_mean(10_000, 5, oracle="median-of-means", epsilon=0.5, scale=100)
    >>> bool(wider.noise.scale > plan.noise.scale)
    True
    """
    n = check_count("n_samples", n_samples)
    d = check_count("n_features", n_features)
    check_choice("oracle", oracle, oracles.ORACLES)
    order = check_real("moment_order", moment_order, low=2)
    moments = order, check_size("moment_bound", moment_bound)
    threshold = auto_or(check_size, "tau", tau)
    buckets = auto_or(check_count, "n_buckets", n_buckets)
    if buckets is not None and oracle != "median-of-means":
        raise ValueError(f"n_buckets is for oracle='median-of-means', got {n_buckets!r}")
    if threshold is not None:
        oracles.check_moments_decide(moments)
    accounting = Accounting.of(epsilon, delta, relation, max_rows_per_user, precision, accountant)

    def within(budget: PrivacyBudget) -> MeanPlan:
        allowance = budget.gaussian_allowance
        kind, amount, factor = additive_noise(allowance), allowance.amount, budget.record_factor
        norm = kind.order
        noise = factor / n * (math.sqrt(2) / amount if norm == 1 else 1 / math.sqrt(2 * amount))
        facts: dict[str, Any] = {"n_samples": n, "dimension": d, "noise": noise, "order": norm}
        facts |= {"size": d ** (1 / norm), "moments": moments}
        mean = oracles.make_oracle(oracle, threshold, buckets, **facts)
        mechanism = kind.calibrate(mean.sensitivity(n, d, d, factor, norm), allowance, dimension=d)
        guarantee = Guarantee.of(budget, [Release(f"{oracle} mean", mechanism)], allowance.kind)
        about = _per_column("center", center, d), _per_column("scale", scale, d, low=SMALLEST)
        return MeanPlan(mean, budget, n, d, *about, mechanism, guarantee)

    return accounting.plan(n, within)


def _estimate(X: Any, oracle: Oracle, settings: dict[str, Any], random_state: Any) -> Array:
    X = _check_sample(X)
    check_random_state(random_state)
    accountant = accountant_in_force(settings.pop("accountant", None))
    plan = plan_mean(*X.shape, oracle=oracle, accountant=accountant, **settings)
    if accountant is not None:
        accountant.spend(plan, estimator=f"{oracle} mean", noise_is_secret=random_state is None)
    return plan.release(X, random_state=random_state)


def clipped_median_of_means(X: Any, *, random_state: RandomState = None, **settings: Any) -> Array:
    """Private mean by medians of means of clipped coordinates (KLZ22 Algorithm 3).

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features) or (n_samples,)
        Any numbers; those of shape (n_samples,), such as a Series, are one column. Infinities
        count as 2^300 scales; NaN, and in lists or objects what is no number, as `center`.
    random_state : None, int or RandomState, default=None
        An int makes the result reproducible and *not private*.
    **settings
        Those of `plan_mean` except `oracle`.

    Returns
    -------
    ndarray of shape (n_features,)

    See Also
    --------
    plan_mean : the settings; it gives the noise and the guarantee without data.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_dpsco.means import clipped_median_of_means
    >>> sample = 50 * np.random.default_rng(0).standard_t(3, (10_000, 2)) + 1000
    >>> found = clipped_median_of_means(sample, epsilon=1.0, center=1000, scale=100)
    >>> bool(np.all(np.abs(found - 1000) < 50))
    True
    """
    return _estimate(X, "median-of-means", settings, random_state)


def smoothed_truncated_mean(X: Any, *, random_state: RandomState = None, **settings: Any) -> Array:
    """Private mean of smoothly truncated coordinates (KLZ22 Algorithm 4).

    Parameters and result as for `clipped_median_of_means`, without buckets.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_dpsco.means import smoothed_truncated_mean
    >>> sample = np.random.default_rng(0).exponential(20, (10_000, 2))
    >>> found = smoothed_truncated_mean(sample, epsilon=1.0, center=0, scale=50)
    >>> bool(np.all(np.abs(found - 20) < 10))
    True
    """
    return _estimate(X, "smoothed", settings, random_state)


def clipped_mean(X: Any, *, random_state: RandomState = None, **settings: Any) -> Array:
    """Private mean of clipped coordinates, as a baseline.

    Parameters and result as for `clipped_median_of_means`, without buckets.

    Examples
    --------
    One gross error moves nothing much:

    >>> import numpy as np
    >>> from sklearn_dpsco.means import clipped_mean
    >>> sample = np.random.default_rng(0).normal(5, 1, (10_000, 1))
    >>> sample[0] = 1e9
    >>> bool(abs(clipped_mean(sample, epsilon=1.0, center=4, scale=2)[0] - 5) < 0.5)
    True
    """
    return _estimate(X, "coordinate-clipped", settings, random_state)


def norm_clipped_mean(X: Any, *, random_state: RandomState = None, **settings: Any) -> Array:
    """Private mean of records shrunk to a bounded norm.

    Parameters and result as for `clipped_median_of_means`, without buckets.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_dpsco import BudgetAccountant
    >>> from sklearn_dpsco.means import norm_clipped_mean
    >>> accountant = BudgetAccountant(epsilon=1.0)
    >>> sample = np.random.default_rng(0).normal(size=(10_000, 2))
    >>> norm_clipped_mean(sample, epsilon=0.5, accountant=accountant).shape
    (2,)
    >>> len(accountant.ledger)
    1
    """
    return _estimate(X, "clipped", settings, random_state)
