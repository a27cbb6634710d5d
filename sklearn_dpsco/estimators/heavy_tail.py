"""Linear models for heavy-tailed tables whose bounds nobody knows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .._checks import check_bool, shown
from .._types import (
    HeavyTailClassificationLoss,
    HeavyTailRegressionLoss,
    HeavyTailSolver,
    Magnitude,
    Magnitudes,
    MirrorSet,
)
from ..data import bounds
from ..geometry import Geometry
from ..losses import Loss
from ..solvers import SCOF, HeavyTail, SCOFSlices, Solver, UnboundedDescent
from ..solvers.base import Plan, by_name
from ..solvers.defaults import HEAVY_TAIL
from ._base import DPClassifier, DPLinearModel, DPRegressor, Settings, estimator

# Whether they must be above 0.
_MAGNITUDES = {"scale_X": True, "center_X": False, "scale_y": True, "center_y": False}


@dataclass(kw_only=True, repr=False, eq=False)
class _HeavyTailMixin(DPLinearModel):
    """What both models without bounds on the data share: the solver's settings, and the units.

    Parameters
    ----------
    delta : "auto" or float in [0, 1), default="auto"
        ... 0 asks for pure epsilon-DP, which costs much accuracy here.
    scale_X : "private", float > 0, array-like of shape (n_features,) or dict, default="private"
        How far values typically lie from the centre of their column. "private" estimates it
        for each column as a power of two between 2^-64 and 2^64. Numbers are public guesses
        in [1e-50, 1e50] from domain knowledge, which cost nothing; one that is off by a factor of
        ten or more costs accuracy. A dict names every column of a data frame. In scaled units a
        feature is (x - centre) / scale.
    center_X : "private", float, array-like of shape (n_features,) or dict, default="private"
        Where the values of each column lie; numbers in [-1e50, 1e50] and dicts as for `scale_X`.
        "private" estimates means of clipped values. Without an intercept it is 0: nothing is
        estimated, and other numbers are refused. Sparse X needs 0. Give a number for a column
        that lies more than some hundred times its spread from 0.
    fit_intercept : bool, default=True
        Whether to fit an intercept. A part of the budget then buys a private mean of the
        targets ("scof": a tenth); where only an intercept is learned, all that is left of it.
    loss : str or Loss
        In scaled units. Must be smooth.
    feasible_set : {"auto", "l2", "l1", "linf", "simplex"} or Geometry, default="auto"
        The set of the scaled coefficients. Must have a Euclidean projection. "auto" is no set
        where the solver is "descent", else "l2".
    solver : str or Solver, default="auto"
        "descent", gradient descent in learned units, as the models with bounds have it, within
        released limits of the columns; "scof", in which each step uses all records; "scof-slices",
        in which each has a slice of its own with the whole budget of the steps (KLZ22's strongly
        convex case; nearly always noisier); or an object with settings:
        `solvers.UnboundedDescent`, `solvers.SCOF`, `solvers.SCOFSlices`. "auto" is "descent" where
        no set is declared, delta is not 0, the loss is the squared, the logistic or Welsch's, X has
        at most 1000 features, and n times epsilon is not very small; else "scof".
    nonfinite : {"raise", "zero"}, default="raise"
        ... Such a row lies at `center_X_`. To let infinities count as the largest of values,
        replace them by large numbers, such as 1e300, before `fit`.

    Attributes
    ----------
    scale_X_, center_X_ : ndarray of shape (n_features,) or None
        The units that were used, private like the coefficients. None if only an intercept was
        learned.
    limits_X_ : tuple of two ndarrays of shape (n_features,), or None
        What features were clipped to, in the fit and in predictions.
    plan_ : UnboundedDescentPlan or HeavyTailPlan
        ...

    Notes
    -----
    At epsilon = 1 and delta = 1e-6, about 210 records are needed to learn coefficients of a
    regression, and 170 of a classification; half of these under zero-out, and roughly in proportion
    to 1 / epsilon. With fewer, a `PrivacyParameterWarning` says so, and only an intercept is
    learned, unless `scale_X`, `center_X` and in regression `center_y` are given, or `max_iter`
    of the solver is a number. A column about whose scale the records say little has nearly that of
    all columns together; where noise hides all columns' own, they share one.

    Targets of which nearly all are equal to `center_y`, or 0, say nothing about their scale: where
    their number does not show in the noise, the model predicts (nearly) that value, and for
    tables so small that it could not show, the scale is at most 1 in the units of the data.

    Predictions are linear in features that are clipped to `limits_X_`, as in the fit: further out
    nothing was learned, and a column that is nearly always the same would multiply noise without
    limit. ``X @ coef_ + intercept_`` goes on beyond. Take logarithms of columns that spread over
    orders of magnitude.

    References
    ----------
    Kamath, Liu, Zhang (2022), KLZ22 above, Algorithms 1 to 4. Derivations: doc/privacy,
    section 7.
    """

    # there are no bounds, and units are learned unless scales and centres are declared
    bounds_X: Any = field(default=None, init=False)
    bounds_y: Any = field(default=None, init=False)
    units: Any = field(default="auto", init=False)

    scale_X: Magnitudes = bounds.PRIVATE
    center_X: Magnitudes = bounds.PRIVATE
    feasible_set: MirrorSet | Geometry = "auto"
    solver: HeavyTailSolver | Solver = "auto"

    _solvers = by_name(HeavyTail, UnboundedDescent, SCOF, SCOFSlices)
    _may_plan_set = True

    def _solver(self) -> Solver:
        private = {}
        for name, positive in _MAGNITUDES.items():
            value = getattr(self, name, 0.0 if name == "center_y" else 1.0)  # of a classifier
            bounds.check_magnitude(name, value, positive=positive)
            if name.endswith("y") and (isinstance(value, Mapping) or np.ndim(value) != 0):
                raise ValueError(f"{name} must be 'private' or a number, got {shown(value)}")
            private[f"private_{name}"] = is_private = isinstance(value, str)
            numbers = list(value.values()) if isinstance(value, Mapping) else value
            is_shift = not (positive or is_private) and np.any(np.asarray(numbers) != 0)
            if is_shift and not check_bool("fit_intercept", self.fit_intercept):
                raise ValueError(
                    f"{name} needs fit_intercept=True: a centre is part of the intercept"
                )
        return super()._solver().with_facts(**private)

    def _feature_scaling(self, ends: Any, empty: Any) -> bounds.FeatureScaling:
        is_private = isinstance(self.center_X, str) and self.fit_intercept
        if is_private and not isinstance(empty, np.ndarray):
            raise ValueError(bounds.SHIFTING_CENTER)
        names = self._feature_names()
        center = bounds.by_column("center_X", self.center_X, names)
        scale = bounds.by_column("scale_X", self.scale_X, names)
        return bounds.guessed_feature_scaling(center, scale, empty.shape[1])

    def _plan(self, settings: Settings, shape: tuple[Any, Any], *facts: Any) -> Plan:
        plan = super()._plan(settings, shape, *facts)
        for name in ("scale_X", "center_X"):
            value = getattr(self, name)
            is_of_columns = isinstance(value, Mapping) or np.ndim(value) > 0
            if is_of_columns and len(value) != (d := plan.problem.n_features):
                raise ValueError(f"{name} has {len(value)} columns, but n_features={d}")
        return plan

    def _units_used(self, scaling: bounds.FeatureScaling, units: Any) -> dict[str, Any]:
        used = super()._units_used(scaling, units)
        if units is None:
            return used | dict.fromkeys(("scale_X_", "center_X_", "limits_X_"))
        scale, center = scaling.width * units.width, scaling.shift + scaling.width * units.shift
        limits = tuple(scaling.shift + scaling.width * end for end in (units.low, units.high))
        released = {"scale_X_": scale, "center_X_": center, "limits_X_": limits}
        return used | released | {"_origin": center, "_width": scale, "_whole": 1.0}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = not (isinstance(self.center_X, str) and bool(self.fit_intercept))
        return tags


@estimator
class HeavyTailDPRegressor(_HeavyTailMixin, DPRegressor):
    """Linear regression without bounds on the data, private by clipped mean gradients.

    Spends a part of the budget on how large the values of every column and of the target are,
    clips them to a multiple of that, and goes on as `DPLinearRegression` does. Small tables, sets
    and other losses: it learns scales and centres, and minimizes, in those units, the mean of
    l(m + <w, x> + b, y) by gradient descent whose gradients are private means, m being a private
    mean of the targets. A record's gradient is shrunk to a norm of at most tau. Either way neither
    a far-off row nor a far-off target can move the model much.

    Parameters that are not described here: see `_HeavyTailMixin`, and `DPLinearModel` in
    `_base.py`.

    Parameters
    ----------
    scale_y : "private" or float in [1e-50, 1e50], default="private"
        How far targets typically lie from their centre; see `scale_X`.
    center_y : "private" or float in [-1e50, 1e50], default="private"
        Where the targets lie; see `center_X`. In scaled units a target is (y - centre) / scale.
        Give a number for targets that are all far from 0, such as years: below an n mu of about
        500 (2500 records at epsilon 1 under zero-out), up to one fit in ten finds no such place.
    loss : {"squared", "huber", "welsch"} or Loss, default="squared"
        ... "welsch" is not convex, and suits targets with gross errors.
    feasible_set : {"auto", "l2", "l1", "linf", "simplex"} or Geometry, default="auto"
        ... Of a name, the radius is 20, which hardly ever binds.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_dpsco import HeavyTailDPRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.lognormal(8, 1, (20000, 2))
    >>> y = X @ [0.3, 0.1] + 1000 * rng.standard_t(3, 20000)
    >>> model = HeavyTailDPRegressor(random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.5)
    True
    """

    _least = HEAVY_TAIL["regression"].descent

    scale_y: Magnitude = bounds.PRIVATE
    center_y: Magnitude = bounds.PRIVATE
    loss: HeavyTailRegressionLoss | Loss = "squared"

    def _target_scaling(self, n_targets: int) -> bounds.TargetScaling:
        given = {"middle": self.center_y, "half": self.scale_y}
        numbers: Any = {name: float(v) for name, v in given.items() if not isinstance(v, str)}
        return bounds.TargetScaling(**numbers)


@estimator
class HeavyTailDPClassifier(_HeavyTailMixin, DPClassifier):
    """Linear classification without bounds on the data, private by clipped mean gradients.

    Spends a part of the budget on how large the values of every column are, clips them to a
    multiple of that, and goes on as `DPLogisticRegression` does. Small tables, sets and other
    losses: it learns scales and centres, and minimizes, in those units, the mean of
    l(m + <w, x> + b, y), y being -1 or +1 and m the best constant for the private mean of y, by
    gradient descent whose gradients are private means. A record's gradient is shrunk to a norm of
    at most tau. Either way a far-off row cannot move the model much.

    Parameters that are not described here: see `_HeavyTailMixin`, and `DPClassifier` and
    `DPLinearModel` in `_base.py`.

    Parameters
    ----------
    classes : list of labels or None, default=None
        ...
    loss : {"logistic", "smoothed_hinge", "squared_hinge", "sigmoid"} or Loss, default="logistic"
        ... "sigmoid" is not convex.
    feasible_set : {"auto", "l2", "l1", "linf", "simplex"} or Geometry, default="auto"
        ... Of a name, the radius is 70, which hardly ever binds.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_dpsco import HeavyTailDPClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.lognormal(8, 1, (10000, 2))
    >>> y = np.where(X[:, 0] > X[:, 1], "more", "less")
    >>> model = HeavyTailDPClassifier(classes=["less", "more"], random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.8)
    True
    """

    _least = HEAVY_TAIL["classification"].descent

    loss: HeavyTailClassificationLoss | Loss = "logistic"
