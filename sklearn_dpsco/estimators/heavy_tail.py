"""Linear models for heavy-tailed tables whose bounds nobody knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .._checks import auto_or, check_bool, check_choice, check_count, check_real, check_size, shown
from .._types import (
    Auto,
    ClassLabels,
    ClassWeight,
    HeavyTailClassificationLoss,
    HeavyTailRegressionLoss,
    HeavyTailSolver,
    Magnitude,
    Magnitudes,
    Nonfinite,
    Oracle,
    Precision,
    RandomState,
    Relation,
    SetName,
)
from ..data.bounds import FeatureScaling, TargetScaling, by_column
from ..data.guesses import PRIVATE, FeatureMagnitudes, TargetMagnitude, check_magnitude
from ..geometry import Geometry
from ..losses import Loss
from ..privacy.branches import Account
from ..solvers.defaults import HEAVY_TAIL, MOST_SLICES, MOST_STEPS
from ..solvers.heavy_tail import FORMS, HeavyTail
from ..solvers.heavy_tail.oracles import ORACLES
from ._base import DPClassifier, DPLinearModel, DPRegressor, Run, Settings
from ._tables import BlocksTable, LocalTable

__all__ = ["HeavyTailDPClassifier", "HeavyTailDPRegressor"]


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
        estimated, and other numbers are refused. Sparse X needs 0.
    scale_share : "auto" or float in [1e-6, 0.7], default="auto"
        Largest share of the budget for the scales and centres of the features; "auto" is 0.3.
        Less is spent where that is enough; what was spent is in `guarantee_`. If the share is
        too small to tell the scales from noise, only an intercept is learned.
    fit_intercept : bool, default=True
        Whether to fit an intercept. A tenth of the budget then buys a private mean of the
        targets; where only an intercept is learned, all that is left of it.
    loss : str or Loss
        In scaled units. Must be smooth.
    l2_penalty : float in [0, 1e50], default=0.0
        Adds l2_penalty / 2 times the squared norm of the scaled coefficients, without the
        intercept.
    feasible_set : {"l2", "l1", "linf", "simplex"} or Geometry, default="l2"
        The set of the scaled coefficients. Must have a Euclidean projection.
    oracle : {"clipped", "median-of-means", "smoothed", "coordinate-clipped"}, default="clipped"
        The mean of the gradients: whole gradients shrunk to the norm tau; or, coordinate by
        coordinate, medians of means of clipped values (KLZ22 Algorithm 3), smooth truncation
        (Algorithm 4), or clipping. The first needs the least noise.
    moment_order : float >= 2, default=2.0
        k, the order of the moments of the gradients' coordinates that are bounded. It decides on
        tau, and in regression on the clip of the target's mean: the larger k, the smaller they
        usually are. For a loss whose derivative is bounded, tau depends on it only through
        moment_bound^(1 / k).
    moment_bound : float in [1e-50, 1e50], default=1.0
        Bound on the k-th moment of a coordinate, in scaled units.
    tau : "auto" or float in [1e-50, 1e50], default="auto"
        Size of the gradients that pass unchanged, in scaled units: for "clipped" their norm (l2,
        or l1 with delta=0); for "median-of-means" and "coordinate-clipped", coordinates pass up
        to 3 tau; for "smoothed", those far below tau pass nearly unchanged. "auto" balances the
        bias of the clipping with the noise.
    n_buckets : "auto" or int in [1, 1e15], default="auto"
        Number of the means of "median-of-means". "auto" grows like the logarithm of the number
        of features.
    solver : {"scof", "scof-slices"}, default="scof"
        Whether each step uses all records, or each a slice of its own with the whole budget of
        the steps (KLZ22's strongly convex case; nearly always noisier).
    max_iter : "auto" or int in [1, 1e9], default="auto"
        Number of steps T, at most 10^4 with "scof-slices". A number also has the coefficients
        learned however noisy they are.
    learning_rate : "auto" or float in [1e-50, 1e50], default="auto"
        Step size in scaled units. "auto" follows from the noise.
    nonfinite : {"raise", "zero"}, default="raise"
        ... Such a row lies at `center_X_`. To let infinities count as the largest of values,
        replace them by large numbers, such as 1e300, before `fit`.

    Attributes
    ----------
    scale_X_, center_X_ : ndarray of shape (n_features,) or None
        The units that were used, private like the coefficients. None if only an intercept was
        learned.
    plan_ : HeavyTailPlan
        ...

    Notes
    -----
    At epsilon = 1 and delta = 1e-6, about 300 records are needed to learn coefficients; half of
    these under zero-out, and roughly in proportion to 1 / epsilon. With fewer, only an intercept is
    learned, unless `scale_X`, `center_X` and in regression `center_y` are given, or `max_iter`
    is a number. A column about whose scale the records say little has nearly that of all columns
    together; where noise hides all columns' own, they share one.

    Targets of which nearly all are equal to `center_y`, or 0, say nothing about their scale: where
    their number does not show in the noise, the model predicts (nearly) that value, and for
    tables so small that it could not show, the scale is at most 1 in the units of the data.

    A row that is far from the others has little influence on the model, but predictions are
    linear all the same: where the relation is not linear so far out, they can be worse than a
    constant. Take logarithms of columns that spread over orders of magnitude.

    References
    ----------
    Kamath, Liu, Zhang (2022), KLZ22 above, Algorithms 1 to 4. Derivations: doc/privacy,
    section 7.
    """

    # there are no bounds; the base class asks for them
    bounds_X: Any = None
    bounds_y: Any = None

    scale_X: Any
    center_X: Any
    scale_share: Any
    oracle: Any
    moment_order: Any
    moment_bound: Any
    tau: Any
    n_buckets: Any
    l2_penalty: Any
    solver: Any
    max_iter: Any
    learning_rate: Any

    def _solver(self) -> HeavyTail:
        self._check_magnitudes()
        most = HEAVY_TAIL[self._task].largest_share
        form = check_choice("solver", self.solver, FORMS)
        most_steps = MOST_SLICES if form == "scof-slices" else MOST_STEPS
        return HeavyTail(
            form=form,
            oracle=check_choice("oracle", self.oracle, tuple(ORACLES)),
            moment_order=check_real("moment_order", self.moment_order, low=2),
            moment_bound=check_size("moment_bound", self.moment_bound),
            tau=auto_or(check_size, "tau", self.tau),
            n_buckets=auto_or(check_count, "n_buckets", self.n_buckets),
            max_iter=auto_or(check_count, "max_iter", self.max_iter, high=most_steps),
            learning_rate=auto_or(check_size, "learning_rate", self.learning_rate),
            l2_penalty=check_size("l2_penalty", self.l2_penalty, low=0),
            scale_share=auto_or(check_real, "scale_share", self.scale_share, low=1e-6, high=most),
            **{f"private_{name}": value for name, value in self._private().items()},
        )

    def _private(self) -> dict[str, bool]:
        """Which scales and centres the plan releases."""
        names = ("scale_X", "center_X", "scale_y", "center_y")
        return {name: isinstance(getattr(self, name, 0.0), str) for name in names}

    def _check_magnitudes(self) -> None:
        check_magnitude("scale_X", self.scale_X, positive=True)
        check_magnitude("center_X", self.center_X, positive=False)
        center = self.center_X
        center = list(center.values()) if isinstance(center, Mapping) else center
        is_public = not isinstance(center, str)
        if (
            not check_bool("fit_intercept", self.fit_intercept)
            and is_public
            and np.any(np.asarray(center) != 0)
        ):
            raise ValueError("center_X needs fit_intercept=True: a centre is part of the intercept")

    def _feature_scaling(self, n_features: int) -> FeatureScaling:
        names = self._feature_names()
        center = by_column("center_X", self.center_X, names)
        return FeatureMagnitudes.of(center, by_column("scale_X", self.scale_X, names), n_features)

    def _check_plan_sizes(
        self, settings: Settings, n_samples: Any, n_features: Any
    ) -> tuple[int, int]:
        sizes = super()._check_plan_sizes(settings, n_samples, n_features)
        for name in ("scale_X", "center_X"):
            value = getattr(self, name)
            is_single = isinstance(value, str) or not (isinstance(value, Mapping) or np.ndim(value))
            if not is_single and len(value) != sizes[1]:
                raise ValueError(f"{name} has {len(value)} columns, but n_features={sizes[1]}")
        return sizes

    def _charge(self, settings: Settings, table: LocalTable | BlocksTable) -> Run:
        if (
            not isinstance(table.empty, np.ndarray)
            and isinstance(self.center_X, str)
            and self.fit_intercept
        ):
            raise ValueError("sparse X needs center_X=0, since a centre would shift its zeros")
        return super()._charge(settings, table)

    def _units_used(self, scaling: FeatureScaling, units: Any) -> dict[str, Any]:
        used = super()._units_used(scaling, units) | {"scale_X_": None, "center_X_": None}
        if units is not None:
            used["scale_X_"] = scaling.width * units.scale
            used["center_X_"] = scaling.shift + scaling.width * units.center
            used |= {"_origin": used["center_X_"], "_width": used["scale_X_"]}
        return used

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        is_centred = isinstance(self.center_X, str) and bool(self.fit_intercept)
        tags.input_tags.sparse = not is_centred
        return tags


class HeavyTailDPRegressor(_HeavyTailMixin, DPRegressor):
    """Linear regression without bounds on the data, private by clipped mean gradients.

    Spends a part of the budget on the scale and the centre of every column and of the
    target, and minimizes, in those units, the mean of l(m + <w, x> + b, y) by gradient
    descent whose gradients are private means, m being a private mean of the targets. A record's
    gradient is shrunk to a norm of at most tau, so that neither a far-off row nor a far-off
    target can move the model much.

    Parameters that are not described here: see `_HeavyTailMixin`, and `DPLinearModel` in
    `_base.py`.

    Parameters
    ----------
    scale_y : "private" or float in [1e-50, 1e50], default="private"
        How far targets typically lie from their centre; see `scale_X`.
    center_y : "private" or float in [-1e50, 1e50], default="private"
        Where the targets lie; see `center_X`. In scaled units a target is (y - centre) / scale.
    scale_share : "auto" or float in [1e-6, 0.7], default="auto"
        ... The target's scale and centre take at most another 0.12, or 0.6 where only an
        intercept is learned.
    loss : {"squared", "huber", "welsch"} or Loss, default="squared"
        ... "welsch" is not convex, and suits targets with gross errors.
    radius : "auto" or float in [1e-50, 1e50], default="auto"
        ... "auto" is 20, which hardly ever binds.

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

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float | Auto = "auto",
        relation: Relation = "replace-one",
        max_rows_per_user: int = 1,
        max_weight: float = 1.0,
        scale_X: Magnitudes = PRIVATE,
        scale_y: Magnitude = PRIVATE,
        center_X: Magnitudes = PRIVATE,
        center_y: Magnitude = PRIVATE,
        scale_share: float | Auto = "auto",
        fit_intercept: bool = True,
        loss: HeavyTailRegressionLoss | Loss = "squared",
        l2_penalty: float = 0.0,
        feasible_set: SetName | Geometry = "l2",
        radius: float | Auto = "auto",
        oracle: Oracle = "clipped",
        moment_order: float = 2.0,
        moment_bound: float = 1.0,
        tau: float | Auto = "auto",
        n_buckets: int | Auto = "auto",
        solver: HeavyTailSolver = "scof",
        max_iter: int | Auto = "auto",
        learning_rate: float | Auto = "auto",
        precision: Precision = "exact",
        nonfinite: Nonfinite = "raise",
        accountant: Account | None = None,
        random_state: RandomState = None,
        verbose: int = 0,
    ) -> None:
        self._store(locals())

    def _check_magnitudes(self) -> None:
        super()._check_magnitudes()
        check_magnitude("scale_y", self.scale_y, positive=True)
        check_magnitude("center_y", self.center_y, positive=False)
        for name in ("scale_y", "center_y"):
            value = getattr(self, name)
            if isinstance(value, Mapping) or np.ndim(value) != 0:
                raise ValueError(f"{name} must be 'private' or a number, got {shown(value)}")
        if not self.fit_intercept and not isinstance(self.center_y, str) and self.center_y != 0:
            raise ValueError("center_y needs fit_intercept=True: a centre is part of the intercept")

    def _target_scaling(self, n_targets: int) -> TargetScaling:
        return TargetMagnitude.of(self.center_y, self.scale_y)


class HeavyTailDPClassifier(_HeavyTailMixin, DPClassifier):
    """Linear classification without bounds on the data, private by clipped mean gradients.

    Spends a part of the budget on the scale and the centre of every column, and minimizes,
    in those units, the mean of l(m + <w, x> + b, y), y being -1 or +1 and m the best constant
    for the private mean of y (its log-odds for the logistic loss), by gradient descent whose
    gradients are private means. A record's gradient is shrunk to a norm of at most tau, so that
    a far-off row cannot move the model much.

    Parameters that are not described here: see `_HeavyTailMixin`, and `DPClassifier` and
    `DPLinearModel` in `_base.py`.

    Parameters
    ----------
    classes : list of labels or None, default=None
        ...
    loss : {"logistic", "smoothed_hinge", "squared_hinge", "sigmoid"} or Loss, default="logistic"
        ... "sigmoid" is not convex.
    radius : "auto" or float in [1e-50, 1e50], default="auto"
        ... "auto" is 70, which hardly ever binds.

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

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float | Auto = "auto",
        relation: Relation = "replace-one",
        max_rows_per_user: int = 1,
        max_weight: float = 1.0,
        scale_X: Magnitudes = PRIVATE,
        center_X: Magnitudes = PRIVATE,
        scale_share: float | Auto = "auto",
        classes: ClassLabels | None = None,
        class_weight: ClassWeight | None = None,
        fit_intercept: bool = True,
        loss: HeavyTailClassificationLoss | Loss = "logistic",
        l2_penalty: float = 0.0,
        feasible_set: SetName | Geometry = "l2",
        radius: float | Auto = "auto",
        oracle: Oracle = "clipped",
        moment_order: float = 2.0,
        moment_bound: float = 1.0,
        tau: float | Auto = "auto",
        n_buckets: int | Auto = "auto",
        solver: HeavyTailSolver = "scof",
        max_iter: int | Auto = "auto",
        learning_rate: float | Auto = "auto",
        precision: Precision = "exact",
        nonfinite: Nonfinite = "raise",
        accountant: Account | None = None,
        random_state: RandomState = None,
        verbose: int = 0,
    ) -> None:
        self._store(locals())
