"""Linear models for heavy-tailed tables whose bounds nobody knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .._checks import auto_or, check_choice, check_int, check_real, check_size
from .._linear import Rows
from .._random import RandomStream
from ..bounds import FeatureScaling, TargetScaling
from ..magnitudes import (
    PRIVATE,
    FeatureMagnitudes,
    TargetMagnitude,
    by_column,
    check_magnitude,
)
from ..means import ORACLES
from ..solvers.heavy_tail import FORMS, LARGEST_SCALE_SHARE, HeavyTail, ScaledRows
from ._base import DPClassifier, DPRegressor

__all__ = ["HeavyTailDPClassifier", "HeavyTailDPRegressor"]


class _HeavyTailMixin:
    """Reads the solver's settings off the parameters."""

    # there are no bounds; the base class asks for them
    bounds_X: Any = None
    bounds_y: Any = None

    scale_X: Any
    center_X: Any
    scale_share: Any
    fit_intercept: Any
    oracle: Any
    moment_order: Any
    moment_bound: Any
    tau: Any
    n_buckets: Any
    l2_penalty: Any
    radius: Any
    solver: Any
    max_iter: Any
    learning_rate: Any
    accountant: Any

    def _solver(self) -> HeavyTail:
        positive: dict[str, Any] = {"low": 0, "low_open": True}
        self._check_magnitudes()
        return HeavyTail(
            form=check_choice("solver", self.solver, FORMS),
            oracle=check_choice("oracle", self.oracle, tuple(ORACLES)),
            moment_order=check_real("moment_order", self.moment_order, low=2),
            moment_bound=check_size("moment_bound", self.moment_bound),
            tau=auto_or(check_size, "tau", self.tau),
            n_buckets=auto_or(check_int, "n_buckets", self.n_buckets, low=1),
            max_iter=auto_or(check_int, "max_iter", self.max_iter, low=1),
            learning_rate=auto_or(check_size, "learning_rate", self.learning_rate),
            l2_penalty=check_real("l2_penalty", self.l2_penalty, low=0, high=1e50),
            scale_share=auto_or(
                check_real, "scale_share", self.scale_share, high=LARGEST_SCALE_SHARE, **positive
            ),
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
        if not self.fit_intercept and is_public and np.any(np.asarray(center) != 0):
            raise ValueError("center_X needs fit_intercept=True: a centre is part of the intercept")

    def _least_samples(self) -> int:
        # a bucket needs a record
        return self.n_buckets if isinstance(self.n_buckets, int) and self.n_buckets > 2 else 2

    def _feature_scaling(self, n_features: int) -> FeatureScaling:
        names = self._feature_names()  # type: ignore[attr-defined]
        center = by_column("center_X", self.center_X, names)
        return FeatureMagnitudes.of(center, by_column("scale_X", self.scale_X, names), n_features)

    def _check_plan_sizes(self, n_samples: Any, n_features: Any) -> tuple[int, int]:
        sizes: tuple[int, int] = super()._check_plan_sizes(n_samples, n_features)  # type: ignore[misc]
        for name in ("scale_X", "center_X"):
            value = getattr(self, name)
            is_single = isinstance(value, str) or not (isinstance(value, Mapping) or np.ndim(value))
            if not is_single and len(value) != sizes[1]:
                raise ValueError(f"{name} has {len(value)} columns, but n_features={sizes[1]}")
        return sizes

    def _charge(self, X: Any, n_models: int) -> Any:
        if not isinstance(X, np.ndarray) and isinstance(self.center_X, str) and self.fit_intercept:
            raise ValueError("sparse X needs center_X=0, since a centre would shift its zeros")
        return super()._charge(X, n_models)  # type: ignore[misc]

    def _prepare(self, rows: Rows, solver: Any, plan: Any, stream: RandomStream) -> Rows:
        self.scale_X_ = self.center_X_ = None
        if plan.search_X is None:
            return rows
        rows = solver.prepare(rows, plan, stream.substream("magnitudes"))
        assert isinstance(rows, ScaledRows)
        guess = self._feature_scaling(rows.n_columns)
        self.scale_X_ = guess.width * rows.magnitudes.scale
        self.center_X_ = guess.shift + guess.width * rows.magnitudes.center
        # what `predict` takes for a missing row
        self._origin = self.center_X_
        return rows

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        is_centred = isinstance(self.center_X, str) and bool(self.fit_intercept)
        tags.input_tags.sparse = not is_centred
        return tags


class HeavyTailDPRegressor(_HeavyTailMixin, DPRegressor):
    """Linear regression without bounds on the data, private by clipped mean gradients.

    Spends a part of the budget on the scale and the centre of every column and of the
    target, and minimizes, in those units, the mean of l(m + <w, x> + b, y) by gradient
    descent whose gradients are private means. A record's gradient is shrunk to a norm of at
    most tau, so that neither a far-off row nor a far-off target can move the model much.

    Parameters
    ----------
    epsilon : float > 0, default=1.0
        Privacy loss. Smaller is more private and less accurate.
    delta : float in [0, 1), default=1e-6
        Slack of the guarantee, in units of probability: for any set of outcomes, its
        probability is at most e^epsilon times that on a neighbouring table, plus delta.
        Should be well below 1 / n_samples. 0 asks for pure epsilon-DP, which costs much
        accuracy here.
    relation : {"replace-one", "zero-out"}, default="replace-one"
        Which tables the guarantee cannot tell apart: two that differ in the values of one
        row, or one where a row is replaced by a record that contributes nothing. The
        number of rows is public in both. Zero-out needs half the noise, and its
        (epsilon, delta) implies replace-one (2 epsilon, (1 + e^epsilon) delta).
    scale_X : "private", float > 0, array-like of shape (n_features,) or dict, default="private"
        How far values typically lie from the centre of their column. "private" estimates it
        for each column as a power of two between 2^-64 and 2^64. Numbers are public guesses
        from domain knowledge, which cost nothing; one that is off by a factor of ten or more
        costs accuracy. A dict names every column of a data frame.
    scale_y : "private" or float > 0, default="private"
        The same for the target.
    center_X : "private", float, array-like of shape (n_features,) or dict, default="private"
        Where the values of each column lie, a dict by its name. "private" estimates means of
        clipped values. Not estimated without an intercept. Sparse X needs 0.
    center_y : "private" or float, default="private"
        The same for the target.
    scale_share : "auto" or float in (0, 0.7], default="auto"
        Largest share of the budget for the scales and centres of the features; "auto" is
        0.3. The target's take at most another 0.12. Less is spent where that is enough; what
        was spent is in `guarantee_`. If the share would buy guesswork only, the plan learns
        nothing but an intercept.
    fit_intercept : bool, default=True
        Whether to fit an intercept. A tenth of the budget then buys a private mean of the
        targets.
    loss : {"squared", "huber"} or Loss, default="squared"
        In scaled units. Must be smooth.
    l2_penalty : float >= 0, default=0.0
        Adds l2_penalty / 2 times the squared norm of the scaled coefficients, without the
        intercept.
    feasible_set : {"l2", ...} or Geometry, default="l2"
        Where the scaled coefficients live. Must have a Euclidean projection.
    radius : "auto" or float > 0, default="auto"
        Size of the feasible set in scaled units; "auto" is 20, which hardly ever binds.
        Must be "auto" with a Geometry object.
    oracle : {"clipped", "median-of-means", "smoothed", "coordinate-clipped"}, default="clipped"
        The mean of the gradients: whole gradients shrunk to the norm tau; or, coordinate by
        coordinate, medians of means of clipped values (KLZ22 Algorithm 3), smooth truncation
        (Algorithm 4), or clipping. The first needs the least noise.
    moment_order : float >= 2, default=2.0
        k, the order of the moments of the gradients' coordinates that are bounded. Only
        sets tau and the clip of the target's mean: the larger k, the smaller they are.
    moment_bound : float in [1e-50, 1e50], default=1.0
        Bound on the k-th moment of a coordinate, in scaled units.
    tau : "auto" or float in [1e-50, 1e50], default="auto"
        Size of the gradients, or of their coordinates, that pass unchanged, in scaled
        units. "auto" balances the bias of the clipping with the noise.
    n_buckets : "auto" or int >= 1, default="auto"
        For "median-of-means".
    solver : {"scof", "scof-slices"}, default="scof"
        Whether each step uses all records, or each a slice of its own with the whole
        budget (KLZ22's strongly convex case; nearly always noisier).
    max_iter : "auto" or int >= 1, default="auto"
        Number of steps T.
    learning_rate : "auto" or float > 0, default="auto"
        Step size. "auto" follows from the noise.
    precision : {"exact", "float"}, default="exact"
        Arithmetic of the noise. "exact" samples the stated laws to the last bit. "float" is
        a little faster, and the low bits of what it publishes may betray a record.
    nonfinite : {"raise", "zero"}, default="raise"
        What `fit` does with a record that holds NaN or an infinity. "raise" raises a
        `ValueError`, which tells one bit of the data that lies outside the guarantee. "zero"
        makes it an empty record, which contributes nothing and is still counted. `predict`
        then takes such a row for one at `center_X_`. To let infinities count as the largest
        of values, replace them by large numbers, such as 1e300, before `fit`.
    accountant : None or BudgetAccountant, default=None
        Where `fit` charges its guarantee, in full and before it computes anything from
        the values. None stands for the accountant whose ``with`` block is open, if any.
    random_state : None, int or RandomState, default=None
        None draws noise from a cipher keyed by the operating system. An int makes the
        fit reproducible and *not private*: whoever knows it can subtract the noise. Use
        it for tests only.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        In the units of X and y, float64.
    intercept_ : float
    scale_X_, center_X_ : ndarray of shape (n_features,) or None
        The units that were used, private like the coefficients. None if only an intercept
        was learned.
    n_iter_ : int
        Number of steps, at least 1.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        If X had column names.
    plan_ : HeavyTailPlan
        Every sensitivity, noise scale, step and clip of the run.
    guarantee_ : Guarantee
        epsilon, delta, relation, and `dp_event` for `dp_accounting`.
    noise_is_secret_ : bool
        False if `random_state` was given: then whoever knows it can subtract the noise,
        and `guarantee_` does not hold against them.

    Notes
    -----
    It takes some n epsilon to find scales: 250 sqrt(n_features) records or a few more at
    epsilon = 1 and delta = 1e-6, and 500 to find the target's centre (half under zero-out).
    With fewer, only an intercept is learned, unless `scale_X` and `center_X`, and `center_y`,
    are given or `max_iter` insists.

    A row that is far out counts little, and predictions are linear all the same: where the
    relation bends far out, they can be worse than a constant. Take logarithms of columns
    that spread over orders of magnitude.

    References
    ----------
    Kamath, Liu, Zhang (2022), Algorithms 1 to 4. Derivations: doc/privacy.rst, section 7.

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
        delta: float = 1e-6,
        relation: str = "replace-one",
        scale_X: Any = PRIVATE,
        scale_y: Any = PRIVATE,
        center_X: Any = PRIVATE,
        center_y: Any = PRIVATE,
        scale_share: Any = "auto",
        fit_intercept: bool = True,
        loss: Any = "squared",
        l2_penalty: float = 0.0,
        feasible_set: Any = "l2",
        radius: Any = "auto",
        oracle: str = "clipped",
        moment_order: float = 2.0,
        moment_bound: float = 1.0,
        tau: Any = "auto",
        n_buckets: Any = "auto",
        solver: str = "scof",
        max_iter: Any = "auto",
        learning_rate: Any = "auto",
        precision: str = "exact",
        nonfinite: str = "raise",
        accountant: Any = None,
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.relation = relation
        self.scale_X = scale_X
        self.scale_y = scale_y
        self.center_X = center_X
        self.center_y = center_y
        self.scale_share = scale_share
        self.fit_intercept = fit_intercept
        self.loss = loss
        self.l2_penalty = l2_penalty
        self.feasible_set = feasible_set
        self.radius = radius
        self.oracle = oracle
        self.moment_order = moment_order
        self.moment_bound = moment_bound
        self.tau = tau
        self.n_buckets = n_buckets
        self.solver = solver
        self.max_iter = max_iter
        self.learning_rate = learning_rate
        self.precision = precision
        self.nonfinite = nonfinite
        self.accountant = accountant
        self.random_state = random_state

    def _check_magnitudes(self) -> None:
        super()._check_magnitudes()
        check_magnitude("scale_y", self.scale_y, positive=True)
        check_magnitude("center_y", self.center_y, positive=False)
        for name in ("scale_y", "center_y"):
            value = getattr(self, name)
            if not isinstance(value, str) and np.ndim(value) != 0:
                raise ValueError(f"{name} must be 'private' or a number, got {value!r}")
        if not self.fit_intercept and not isinstance(self.center_y, str) and self.center_y != 0:
            raise ValueError("center_y needs fit_intercept=True: a centre is part of the intercept")

    def _target_scaling(self) -> TargetScaling:
        return TargetMagnitude.of(self.center_y, self.scale_y)


class HeavyTailDPClassifier(_HeavyTailMixin, DPClassifier):
    """Linear classification without bounds on the data, private by clipped mean gradients.

    Spends a part of the budget on the scale and the centre of every column, and minimizes,
    in those units, the mean of l(m + <w, x> + b, y), y being -1 or +1 and m the log-odds of
    the private mean of y, by gradient descent whose gradients are private means. A record's
    gradient is shrunk to a norm of at most tau, so that a far-off row cannot move the model
    much. With K > 2 classes, one model for each against the rest; the scales and centres
    are paid for once, and each model has a K-th of what is left.

    Parameters
    ----------
    epsilon : float > 0, default=1.0
        Privacy loss. Smaller is more private and less accurate.
    delta : float in [0, 1), default=1e-6
        Slack of the guarantee, in units of probability: for any set of outcomes, its
        probability is at most e^epsilon times that on a neighbouring table, plus delta.
        Should be well below 1 / n_samples. 0 asks for pure epsilon-DP, which costs much
        accuracy here.
    relation : {"replace-one", "zero-out"}, default="replace-one"
        Which tables the guarantee cannot tell apart: two that differ in the values of one
        row, or one where a row is replaced by a record that contributes nothing. The
        number of rows is public in both. Zero-out needs half the noise, and its
        (epsilon, delta) implies replace-one (2 epsilon, (1 + e^epsilon) delta).
    scale_X : "private", float > 0, array-like of shape (n_features,) or dict, default="private"
        How far values typically lie from the centre of their column. "private" estimates it
        for each column as a power of two between 2^-64 and 2^64. Numbers are public guesses
        from domain knowledge, which cost nothing; one that is off by a factor of ten or more
        costs accuracy. A dict names every column of a data frame.
    center_X : "private", float, array-like of shape (n_features,) or dict, default="private"
        Where the values of each column lie, a dict by its name. "private" estimates means of
        clipped values. Not estimated without an intercept. Sparse X needs 0.
    scale_share : "auto" or float in (0, 0.7], default="auto"
        Largest share of the budget for the scales and centres of the features; "auto" is
        0.3. Less is spent where that is enough; what was spent is in `guarantee_`. If the
        share would buy guesswork only, the plan learns nothing but an intercept.
    classes : list of labels or None, default=None
        The labels that may occur. None takes them from y, which is outside the guarantee,
        and warns `PrivacyLeakWarning`.
    fit_intercept : bool, default=True
        Whether to fit an intercept. A tenth of the budget then buys a private mean of the
        targets.
    loss : {"logistic", "smoothed_hinge"} or Loss, default="logistic"
        In scaled units. Must be smooth.
    l2_penalty : float >= 0, default=0.0
        Adds l2_penalty / 2 times the squared norm of the scaled coefficients, without the
        intercept.
    feasible_set : {"l2", ...} or Geometry, default="l2"
        Where the scaled coefficients live. Must have a Euclidean projection.
    radius : "auto" or float > 0, default="auto"
        Size of the feasible set in scaled units; "auto" is 70, which hardly ever binds.
        Must be "auto" with a Geometry object.
    oracle : {"clipped", "median-of-means", "smoothed", "coordinate-clipped"}, default="clipped"
        The mean of the gradients: whole gradients shrunk to the norm tau; or, coordinate by
        coordinate, medians of means of clipped values (KLZ22 Algorithm 3), smooth truncation
        (Algorithm 4), or clipping. The first needs the least noise.
    moment_order : float >= 2, default=2.0
        k, the order of the moments of the gradients' coordinates that are bounded. It
        matters for losses whose derivative is unbounded, and sets tau.
    moment_bound : float in [1e-50, 1e50], default=1.0
        Bound on the k-th moment of a coordinate, in scaled units.
    tau : "auto" or float in [1e-50, 1e50], default="auto"
        Size of the gradients, or of their coordinates, that pass unchanged, in scaled
        units. "auto" balances the bias of the clipping with the noise.
    n_buckets : "auto" or int >= 1, default="auto"
        For "median-of-means".
    solver : {"scof", "scof-slices"}, default="scof"
        Whether each step uses all records, or each a slice of its own with the whole
        budget (KLZ22's strongly convex case; nearly always noisier).
    max_iter : "auto" or int >= 1, default="auto"
        Number of steps T.
    learning_rate : "auto" or float > 0, default="auto"
        Step size. "auto" follows from the noise.
    precision : {"exact", "float"}, default="exact"
        Arithmetic of the noise. "exact" samples the stated laws to the last bit. "float" is
        a little faster, and the low bits of what it publishes may betray a record.
    nonfinite : {"raise", "zero"}, default="raise"
        What `fit` does with a record that holds NaN, an infinity, a missing label or one
        that was not declared. "raise" raises a `ValueError`, which tells one bit of the data
        that lies outside the guarantee. "zero" makes it an empty record, which contributes
        nothing and is still counted. `predict` then takes such a row for one at
        `center_X_`. To let infinities count as the largest of values, replace them by large
        numbers, such as 1e300, before `fit`.
    accountant : None or BudgetAccountant, default=None
        Where `fit` charges its guarantee, in full and before it computes anything from
        the values. None stands for the accountant whose ``with`` block is open, if any.
    random_state : None, int or RandomState, default=None
        None draws noise from a cipher keyed by the operating system. An int makes the
        fit reproducible and *not private*: whoever knows it can subtract the noise. Use
        it for tests only.

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        In the units of X, float64.
    intercept_ : ndarray of shape (1,) or (n_classes,)
    classes_ : ndarray of shape (n_classes,)
        The sorted labels.
    scale_X_, center_X_ : ndarray of shape (n_features,) or None
        The units that were used, private like the coefficients. None if only an intercept
        was learned.
    n_iter_ : int
        Number of steps, at least 1.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        If X had column names.
    plan_ : HeavyTailPlan
        Every sensitivity, noise scale, step and clip of the run.
    guarantee_ : Guarantee
        epsilon, delta, relation, and `dp_event` for `dp_accounting`.
    noise_is_secret_ : bool
        False if `random_state` was given: then whoever knows it can subtract the noise,
        and `guarantee_` does not hold against them.

    Notes
    -----
    It takes some n epsilon to find scales: 250 sqrt(n_features) records or a few more at
    epsilon = 1 and delta = 1e-6 (half under zero-out). With fewer, only an intercept is
    learned, unless `scale_X` and `center_X` are given or `max_iter` insists.

    A row that is far out counts little, and predictions are linear all the same: where the
    relation bends far out, they can be worse than a constant. Take logarithms of columns
    that spread over orders of magnitude.

    References
    ----------
    Kamath, Liu, Zhang (2022), Algorithms 1 to 4. Derivations: doc/privacy.rst, section 7.

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
        delta: float = 1e-6,
        relation: str = "replace-one",
        scale_X: Any = PRIVATE,
        center_X: Any = PRIVATE,
        scale_share: Any = "auto",
        classes: Any = None,
        fit_intercept: bool = True,
        loss: Any = "logistic",
        l2_penalty: float = 0.0,
        feasible_set: Any = "l2",
        radius: Any = "auto",
        oracle: str = "clipped",
        moment_order: float = 2.0,
        moment_bound: float = 1.0,
        tau: Any = "auto",
        n_buckets: Any = "auto",
        solver: str = "scof",
        max_iter: Any = "auto",
        learning_rate: Any = "auto",
        precision: str = "exact",
        nonfinite: str = "raise",
        accountant: Any = None,
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.relation = relation
        self.scale_X = scale_X
        self.center_X = center_X
        self.scale_share = scale_share
        self.classes = classes
        self.fit_intercept = fit_intercept
        self.loss = loss
        self.l2_penalty = l2_penalty
        self.feasible_set = feasible_set
        self.radius = radius
        self.oracle = oracle
        self.moment_order = moment_order
        self.moment_bound = moment_bound
        self.tau = tau
        self.n_buckets = n_buckets
        self.solver = solver
        self.max_iter = max_iter
        self.learning_rate = learning_rate
        self.precision = precision
        self.nonfinite = nonfinite
        self.accountant = accountant
        self.random_state = random_state
