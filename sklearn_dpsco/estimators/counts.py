"""Generalized linear models with a logarithmic link: counts and costs, also per exposure."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from sklearn.metrics import d2_tweedie_score
from sklearn.utils.validation import check_is_fitted

from .._checks import check_bool, check_real, saying, says_level, unwarned
from .._types import Array, Bounds
from ..data.blocks import here
from ..data.bounds import TargetScaling, largest_weight, number_bounds, rate_scaling
from ..data.cells import as_weights, check_in_memory, check_lengths, check_order, numbers_of_records
from ..losses import Tweedie
from ..solvers import Descent
from ..solvers.defaults import RATES
from ._base import DPRegressor, Settings, estimator
from ._inference import Inference

_TINIEST, _LARGEST = 5e-324, 1e300  # of rates
_LOWEST = -700.0  # logarithm of a mean that is predicted, which is above 0
_TOGETHER = (
    "exposure and bounds_exposure go together: declare bounds_exposure=(low, high) from domain "
    "knowledge, and give the exposure of each record, in the fit as afterwards"
)


@dataclass(kw_only=True, repr=False, eq=False)
class RateModel(Inference, DPRegressor):
    r"""What the models of counts and costs share.

    Parameters
    ----------
    bounds_y : pair (low, high) or None, default=None
        Bounds of the target from domain knowledge, never from the data, scalars: 0, or for
        `DPGammaRegressor` the smallest cost there is, and the largest count or cost that a record
        may have. Values outside are clipped, with an exposure those that no exposure within its
        bounds allows per unit of it; far too wide bounds cost little. None stands for (0, 1), or
        (.001, 1), and warns `BoundsNotDeclaredWarning`.
    bounds_exposure : pair (low, high) or None, default=None
        Bounds of the exposure above 0, if `fit` is given one: person-years, area, length. Take the
        lower end rather too small, as a day for years, (1 / 365, 1): of counts that costs nothing.
        The upper end of `bounds_y` over it is the largest rate that counts; a count beyond it is
        that of a longer exposure. Where most exposures are far below the lower end, means are too
        low, and nothing tells: by a quarter where it was twelve times the mean of them. An event
        that ends its exposure needs the bounds (0, 1) of y. None: no method takes an exposure.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        What the logarithm of the mean changes by as a feature grows by 1: its exponential is the
        rate ratio.
    intercept_ : float
        The logarithm of the mean where all features are 0, per unit of exposure.

    Notes
    -----
    The mean of y is :math:`\mu = e \exp(\langle w, x \rangle + b)`, e the exposure. The loss is
    that of y / e with weights :math:`e^{2 - p}` over their largest, p the power of the variance,
    which has the same derivatives. The number of targets above 0, their size and their mean buy a
    start and a clip that few derivatives exceed; a descent in learned units follows and, where
    there are enough rows, Newton steps. The level is between that of the fit and that of the mean
    by their noise (doc/privacy, sections 4.5d and 10.2).

    References
    ----------
    McCullagh, Nelder (1989), chapters 6 and 8; Jorgensen (1987) for the powers between 1 and 2;
    with the calibration of doc/privacy.
    """

    _task, _least = "rates", RATES.least
    _lowest = 0.0
    _solvers = {"descent": Descent}
    _may_plan_set = True

    bounds_exposure: Bounds | None = None
    fit_intercept: bool = field(default=True, init=False)
    feasible_set = units = "auto"
    solver = "descent"

    def _target_scaling(self, n_targets: int) -> TargetScaling:
        return rate_scaling(self.bounds_y, self.bounds_exposure, with_zero=self._lowest == 0)

    def _settings(self) -> Settings:
        with unwarned():  # what is said later on
            self._target_scaling(1)
        settings = super()._settings()
        low, high = number_bounds(self.bounds_exposure, "bounds_exposure") or (1.0, 1.0)
        facts = {"largest_rate": (low / high) ** (2 - self.loss.power)}
        _, most = number_bounds(self.bounds_y, "bounds_y") or (0.0, 1.0)
        if self.loss == Tweedie(1):  # between that of costs and 2, as rare counts are hardly above
            facts["usual_rate"] = min(0.5, max(math.sqrt(most / 8), 2.0) / most)
            facts["one_count"] = facts["largest_rate"] / most
        return settings._replace(facts=settings.facts | facts)

    def _exposure(self, exposure: Any, n: int | None = None) -> Array:
        """As numbers; NaN for one that is not above 0 or no number, unless that is an error.

        With n those of so many rows, of whom one number may be for all.
        """
        if self.bounds_exposure is None:  # means are of a record, and not of a unit
            raise ValueError(_TOGETHER)
        check_order(exposure=exposure)
        check_in_memory("a model with exposure", exposure)
        if n is not None and not (isinstance(exposure, (list, tuple)) or np.ndim(exposure)):
            exposure = np.full(n, exposure)
        rule = (
            "finite numbers above 0. Say nonfinite='zero', so that a record with another one "
            "contributes nothing"
        )
        e = numbers_of_records("exposure", exposure, rule, strict=self._is_strict, above_zero=True)
        if n is not None and len(e) != n:
            raise ValueError(f"exposure has {len(e)} numbers, and X has {n} rows")
        return e

    def _per_exposure(self, y: Any, exposure: Any, sample_weight: Any) -> tuple[Any, Any]:
        """Targets over exposures, and weights with which they have the same derivatives."""
        if exposure is None:
            if self.bounds_exposure is not None:
                raise ValueError(_TOGETHER)
            return y, sample_weight
        low, most = number_bounds(self.bounds_exposure, "bounds_exposure") or (1.0, 1.0)
        check_in_memory("a model with exposure", y)
        y, e = self._reader.targets(y), self._exposure(exposure)
        check_lengths(y=y, exposure=e)
        with np.errstate(all="ignore"):
            # finite targets stay finite, and those above 0 so
            rates = np.clip((y.T / e).T, np.where(y > 0, _TINIEST, 0.0), _LARGEST)
        power = 2 - self.loss.power
        if power > 0:
            largest = self._reader.max_weight
            weights = np.minimum(e / most, 1.0) ** power
            # what bounds take off a rate its weight makes up for: events of short exposures count
            with unwarned(), np.errstate(all="ignore"):
                beyond = rates.reshape(len(e), -1)[:, 0] / self._target_scaling(1).high
            beyond = np.fmax(np.minimum(beyond, _LARGEST), 1.0)
            weights = np.minimum(weights * beyond, np.maximum(weights, (low / most) ** power))
            if sample_weight is not None:
                if _is_same(exposure, sample_weight):
                    raise ValueError(
                        "exposure is given as sample_weight as well, and would count twice: the "
                        "fit weighs records by it. Leave sample_weight out"
                    )
                given = as_weights(sample_weight, largest, strict=self._is_strict)
                check_lengths(y=y, sample_weight=given)
                weights = weights * given
            sample_weight = weights * largest
        return np.where(np.isfinite(y), rates, y), sample_weight

    @saying({"offset": "exposure=np.exp(offset), and declare bounds_exposure"})
    def fit(
        self, X: Any, y: Any, *, exposure: Any = None, groups: Any = None, sample_weight: Any = None
    ) -> Self:
        """Fit the model.

        Parameters
        ----------
        X, y, groups, sample_weight
            As in `DPLinearRegression.fit`; y holds one target. Fractions of counts are taken as
            they are. A target below 0, of `DPGammaRegressor` also 0, is an error, or with
            ``nonfinite="zero"`` an empty record.
        exposure : array-like of shape (n_samples,) or None, default=None
            What the mean is proportional to, in memory; needs `bounds_exposure`. One that is
            missing or not above 0 is an error, or with ``nonfinite="zero"`` an empty record. One
            beyond the bounds keeps its rate, y / exposure, with at most the weight of the upper
            end. What is cut off a rate, more weight makes up for, up to that of the lower end: a
            count loses nothing. Where the fit weighs records by exposures (not of Gamma), the same
            array as `sample_weight` is an error.

        Returns
        -------
        self
        """
        settings = self._settings()  # a parameter that is wrong is named before the data
        largest_weight(self.max_weight, has_weights=sample_weight is not None)
        check_order(X=X, y=y, exposure=exposure, groups=groups, sample_weight=sample_weight)
        y, sample_weight = self._per_exposure(y, exposure, sample_weight)
        return self._fit(settings, X, y, groups, sample_weight)

    def predict(self, X: Any, return_std: bool = False, *, exposure: Any = None) -> Any:
        """The mean, ``exposure * exp(X @ coef_ + intercept_)``, shape (n_samples,).

        It is at most what the bounds allow, the upper end of `bounds_y` over the lower end of
        `bounds_exposure` per unit of exposure. Without inference it is also at most four times a
        released size that few of the targets exceed, and, as a ratio, no further below their mean
        than that is above.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        return_std : bool, default=False
            Whether to return the standard errors of the means as well, by the delta method. They
            need ``inference=True`` in the fit, and rows in memory.
        exposure : array-like of shape (n_samples,), float or None, default=None
            None stands for 1. It needs `bounds_exposure`.
        """
        check_is_fitted(self)
        check_bool("return_std", return_std)  # and no exposure
        check_order(X=X, exposure=exposure)
        top, frame = math.log(self._targets.scaling.high), self._scaled_model.frame
        middle = top + frame.target_center
        ends = max(_LOWEST, middle - frame.reach), min(top, middle + frame.reach)
        means = self._predicted(X, functools.partial(_means, ends))
        means = means if exposure is None else means * self._exposure(exposure, len(means))
        return (means, means * self._prediction_std(X)) if return_std else means

    @says_level
    def predict_interval(
        self, X: Any, *, level: float = 0.95, of: str = "mean", exposure: Any = None
    ) -> Array:
        """Intervals of the means for rows of X, each by itself: see `predict`.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features), in memory
        level : float in [0.5, 1), default=.95
        of : "mean"
        exposure : array-like of shape (n_samples,), float or None, default=None

        Returns
        -------
        ndarray of shape (n_samples, 2)
        """
        if of != "mean":
            raise ValueError(f"of must be 'mean' for {type(self).__name__}, got {of!r}")
        check_order(X=X, exposure=exposure)
        ends = super().predict_interval(X, level=level)
        return ends if exposure is None else (ends.T * self._exposure(exposure, len(ends))).T

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, exposure: Any = None) -> float:
        """D2, the part of the deviance that is explained. **Not private**.

        With exposure, which is needed after a fit with it, of y / exposure with weights
        exposure^(2 - p): that of y against one rate for all.
        """
        if exposure is None and self.bounds_exposure is not None:
            raise ValueError(
                "exposure must be given: the estimator has bounds_exposure. A Pipeline leaves it "
                "out: model[-1].score(model[:-1].transform(X), y, exposure=...)"
            )
        check_order(X=X, y=y, exposure=exposure, sample_weight=sample_weight)
        if exposure is not None:
            y, e = here(y), self._exposure(exposure)
            check_lengths(y=y, exposure=e)
            y = y / e
            weights = e ** (2 - self.loss.power)
            sample_weight = weights if sample_weight is None else weights * sample_weight
        metric = functools.partial(d2_tweedie_score, power=self.loss.power)
        return self._score(metric, X, y, sample_weight)


def _is_same(first: Any, second: Any) -> bool:
    """Whether both are one array, or columns that lie in one place; reads no value."""
    arrays = [getattr(values, "values", values) for values in (first, second)]
    if not all(isinstance(array, np.ndarray) for array in arrays):
        return first is second
    return bool(arrays[0].ctypes.data == arrays[1].ctypes.data)


def _means(ends: tuple[float, float], raw: Array) -> Array:
    return np.exp(np.clip(raw, *ends))


@estimator
class DPPoissonRegressor(RateModel):
    """Poisson regression with a logarithmic link under differential privacy: counts and rates.

    Only the mean is modelled: with ``inference=True``, intervals hold for counts whose variance is
    larger than their mean, too.

    Parameters that are not described here: see `RateModel`, and `DPRegressor` and
    `DPLinearModel` in `_base.py`.

    Examples
    --------
    Claims by person-year; exp(.5) times as many where the first feature is 1 larger:

    >>> import numpy as np
    >>> from sklearn_dpsco import DPPoissonRegressor
    >>> rng = np.random.default_rng(0)
    >>> X, years = rng.uniform(-1, 1, (20_000, 2)), rng.uniform(0.1, 1, 20_000)
    >>> claims = rng.poisson(years * np.exp(0.5 * X[:, 0] - 1))
    >>> model = DPPoissonRegressor(
    ...     bounds_X=(-1, 1), bounds_y=(0, 50), bounds_exposure=(0.1, 1), epsilon=3.0)
    >>> model = model.fit(X, claims, exposure=years)
    >>> bool(abs(model.coef_[0] - 0.5) < 0.2)
    True
    """

    loss = Tweedie(1)


@estimator
class DPGammaRegressor(RateModel):
    """Gamma regression with a logarithmic link under differential privacy: costs above 0.

    Suits targets whose standard deviation grows as their mean. Only the mean is modelled: with
    ``inference=True``, intervals hold for other laws, too.

    Parameters that are not described here: see `RateModel`, and `DPRegressor` and
    `DPLinearModel` in `_base.py`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_dpsco import DPGammaRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (20_000, 2))
    >>> costs = rng.gamma(2.0, 500 * np.exp(0.5 * X[:, 0]))
    >>> model = DPGammaRegressor(bounds_X=(-1, 1), bounds_y=(1, 100_000), epsilon=3.0).fit(X, costs)
    >>> bool(abs(model.coef_[0] - 0.5) < 0.2)
    True
    """

    loss = Tweedie(2)
    _lowest = _TINIEST


@estimator
class DPTweedieRegressor(RateModel):
    """Regression with a logarithmic link and a power of the mean as variance: costs with zeros.

    Parameters that are not described here: see `RateModel`, and `DPRegressor` and
    `DPLinearModel` in `_base.py`.

    Parameters
    ----------
    power : float in [1, 2), default=1.5
        p, of the variance :math:`\\phi \\mu^p`. Between 1 and 2 are sums of a Poisson number of
        Gamma amounts.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_dpsco import DPTweedieRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (20_000, 2))
    >>> costs = rng.gamma(2.0, 500, 20_000) * rng.binomial(1, 0.2 * np.exp(0.5 * X[:, 0]))
    >>> model = DPTweedieRegressor(bounds_X=(-1, 1), bounds_y=(0, 100_000), epsilon=3.0)
    >>> model = model.fit(X, costs)
    >>> bool(abs(model.coef_[0] - 0.5) < 0.3)
    True
    """

    power: float = 1.5

    @property  # type: ignore[misc]
    def loss(self) -> Tweedie:
        check_real("power", self.power, low=1, high=2, high_open=True)
        return Tweedie(self.power)
