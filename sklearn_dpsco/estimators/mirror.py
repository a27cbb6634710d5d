"""Linear models by noisy mirror descent in l_p geometry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._checks import auto_or, check_choice, check_int, check_real, check_size
from ..accounting import PrivacyBudget
from ..geometry import Geometry, get_geometry
from ..losses import get_loss
from ..solvers.base import Problem
from ..solvers.mirror_descent import FORMS, MirrorDescent, default_feasible_set
from ._base import DPClassifier, DPRegressor

__all__ = ["DPMirrorClassifier", "DPMirrorRegressor"]

_MIRROR_MAPS = ("auto", "power", "euclidean", "entropy")


class _MirrorMixin:
    """Reads the solver's settings off the parameters."""

    _task: str
    _budget: Callable[[], PrivacyBudget]
    _radius: Callable[[], float | None]

    loss: Any
    fit_intercept: Any
    solver: Any
    feasible_set: Any
    radius: Any
    mirror_map: Any
    l2_penalty: Any
    gradient_clip: Any
    data_norm: Any
    max_iter: Any
    n_phases: Any
    batch_size: Any
    learning_rate: Any

    def _solver(self) -> MirrorDescent:
        form = check_choice("solver", self.solver, ("auto", *FORMS))
        # a Frank-Wolfe step is a weight
        most = {"high": 1} if form == "noisy-sfw" else {}
        mirror_map = check_choice("mirror_map", self.mirror_map, _MIRROR_MAPS)
        batch_size = self.batch_size
        if batch_size is not None:
            batch_size = check_int("batch_size", batch_size, low=1)
        return MirrorDescent(
            form=form,
            max_iter=auto_or(check_int, "max_iter", self.max_iter, low=1),
            learning_rate=auto_or(check_size, "learning_rate", self.learning_rate, **most),
            gradient_clip=auto_or(check_size, "gradient_clip", self.gradient_clip),
            data_norm=auto_or(check_size, "data_norm", self.data_norm),
            l2_penalty=check_real("l2_penalty", self.l2_penalty, low=0, high=1e50),
            batch_size=batch_size,
            mirror_map=None if mirror_map == "auto" else mirror_map,
            n_phases=auto_or(check_int, "n_phases", self.n_phases, low=1),
        )

    def _feasible_set(
        self, n_samples: int, n_features: int, n_models: int
    ) -> Geometry | type[Geometry]:
        radius = self._radius()
        if not isinstance(self.feasible_set, str) or self.feasible_set != "auto":
            return get_geometry(self.feasible_set, radius)
        loss, fit_intercept = get_loss(self.loss, self._task), bool(self.fit_intercept)
        problem = Problem(n_samples, n_features, loss, Geometry, fit_intercept, n_models)
        kind = default_feasible_set(problem, self._budget())
        return kind if radius is None else kind(radius)

    def _least_samples(self) -> int:
        return max(2, self._solver().least_samples)


class DPMirrorRegressor(_MirrorMixin, DPRegressor):
    """Linear regression, private by noisy mirror descent.

    Minimizes the mean of l(m + <w, x - c> + b, y) + l2_penalty / 2 norm((w, b))^2 over a
    set of (w, b), in scaled units, m and c being private means of the targets and the
    features. By default the set is a Euclidean ball and the method projected gradient
    descent on noisy mean gradients, with a step made of public facts.

    Parameters
    ----------
    epsilon : float > 0, default=1.0
        Privacy loss. Smaller is more private and less accurate.
    delta : float in (0, 1), default=1e-6
        Slack of the guarantee, in units of probability: for any set of outcomes, its
        probability is at most e^epsilon times that on a neighbouring table, plus delta.
        Should be well below 1 / n_samples. Must be positive here: no form is pure.
    relation : {"replace-one", "zero-out"}, default="replace-one"
        Which tables the guarantee cannot tell apart: two that differ in the values of one
        row, or one where a row is replaced by a record that contributes nothing. The
        number of rows is public in both. Zero-out needs half the noise, and its
        (epsilon, delta) implies replace-one (2 epsilon, (1 + e^epsilon) delta).
    bounds_X : pair (low, high), dict or None, default=None
        Bounds of the features from domain knowledge, never from the data: scalars,
        arrays of shape (n_features,), or for a data frame ``{column: (low, high)}``.
        Values outside are clipped. A feature becomes (x - middle) / half width in
        [-1, 1]; one with an end at 0 is divided by the other end and not centred. Sparse
        X needs bounds with an end at 0 or symmetric about 0. None stands for (-1, 1) and
        warns `BoundsNotDeclaredWarning`.
    bounds_y : pair (low, high) or None, default=None
        Bounds of the target from domain knowledge. Values outside are clipped; the
        middle is what a model with zero coefficients predicts. None stands for (-1, 1)
        and warns.
    fit_intercept : bool, default=True
        Whether to fit an intercept. A share of the budget, a tenth or more, then buys a
        private mean of the targets, or where that would be too noisy their centre in the
        sense of Huber's loss, and a twentieth private means of the features, about which
        the rows are centred; the intercept's correction is one more coordinate of the
        feasible set.
    loss : {"squared", "huber"} or Loss, default="squared"
        In scaled units. A loss that is not smooth works, with smaller steps.
    feasible_set : {"auto", "l2", "l1", "linf", "simplex"} or Geometry, default="auto"
        Where the scaled coefficients live: a ball of the l2, l1 or l-infinity norm, the
        simplex (non-negative, summing to the radius, with ``fit_intercept=False``), or
        for other l_p norms ``LpBall(radius, p)``. "auto" is "l2", or "l1" where there are
        100 features or more and the noise would drown all but a sparse model.
    radius : "auto" or float > 0, default="auto"
        Size of the feasible set, for targets and features scaled to [-1, 1]. It bounds the
        coefficients and the intercept's correction together. "auto" is 2 for "l2" and
        "l1", 1 for "simplex". Must be "auto" with a Geometry object.
    mirror_map : {"auto", "power", "euclidean", "entropy"}, default="auto"
        What measures a step: half the squared l_p norm with the p of the set (p = 1 + 1 /
        ln d for the l1 ball and the simplex, 2 for p > 2), half the squared l2 norm, or,
        on the l1 ball and the simplex, the entropy (exponentiated gradient). "auto" is
        "power".
    l2_penalty : float >= 0, default=0.0
        Weight of half the squared l2 norm, intercept's correction included.
    gradient_clip : "auto" or float > 0, default="auto"
        Bound c on the absolute derivative of the loss in the raw prediction, in scaled
        units; derivatives beyond it are clipped. Noise is proportional to c.
    data_norm : "auto" or float > 0, default="auto"
        Bound B on the l2 norm of a scaled row with the intercept's 1; longer rows are
        scaled down. Noise is proportional to B. "auto" is max(1, sqrt(n_features + 1) /
        2), half of the largest possible norm (without an intercept, the 1 under the root
        is left out). Set it lower where rows are known to be short.
    solver : {"auto", "noisy-md", "localized", "noisy-sfw"}, default="auto"
        "noisy-md" is mirror descent on all records, or on random batches. "localized"
        runs it in phases on disjoint parts of the records, "noisy-sfw" is one pass of
        stochastic Frank-Wolfe, for p <= 2: two methods of theory that use each record in
        one part only and pay for that unless n is in the tens of thousands. "auto" is
        "noisy-md".
    max_iter : "auto" or int >= 1, default="auto"
        Number of steps; of each phase for "localized". More steps cost time, hardly
        accuracy: the noise of a step grows with their number and averages out.
    n_phases : "auto" or int >= 1, default="auto"
        Number of phases of "localized"; each has about half of the records of the one
        before. "auto" is log2(n), at most 6.
    batch_size : None or int >= 1, default=None
        Records in each step of "noisy-md". None takes all. Else batches are random: of
        this size under "replace-one", of this expected size under "zero-out". The budget
        is then tracked by `dp_accounting`, which takes seconds when a plan is made.
        Full batches need less noise in all; batches save time on large tables.
    learning_rate : "auto" or float > 0, default="auto"
        Step in scaled units; at most 1 for "noisy-sfw", where it is the weight of the new
        point. "auto" adapts to the released gradients (scalar AdaGrad), within bounds made
        of the noise.
    precision : {"exact", "float"}, default="exact"
        Arithmetic of the noise. "exact" samples the stated laws to the last bit. "float" is
        a little faster, and the low bits of what it publishes may betray a record.
    nonfinite : {"raise", "zero"}, default="raise"
        What `fit` does with a record that holds NaN or an infinity. "raise" raises a
        `ValueError`, which tells one bit of the data that lies outside the guarantee. "zero"
        makes it an empty record, which contributes nothing and is still counted; nothing
        shows, and the guarantee covers such records, too. `predict` then takes such a row
        for one whose scaled features are all 0.
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
    n_iter_ : int
        Number of steps, at least 1.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        If X had column names.
    plan_ : MirrorDescentPlan
        Every sensitivity, noise scale, step and clip of the run.
    guarantee_ : Guarantee
        epsilon, delta, relation, and `dp_event` for `dp_accounting`.
    noise_is_secret_ : bool
        False if `random_state` was given: then whoever knows it can subtract the noise,
        and `guarantee_` does not hold against them.

    Notes
    -----
    Full batches: T releases of the mean gradient, each coordinate with Gaussian noise of
    standard deviation r sqrt(T) / mu, r = 2 c B / n under replace-one and half of that under
    zero-out, mu the steps' share in the largest Gaussian-DP budget that implies (epsilon,
    delta). Slices and batches: the proofs are in doc/privacy.rst, sections 2.6, 3.5 and 4.

    References
    ----------
    Bassily, Guzman, Nandi (2021), Algorithms 2 and 3; Asi, Feldman, Koren, Talwar (2021),
    Algorithms 1, 2, 5 and 6; with the calibration of doc/privacy.rst.
    """

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        relation: str = "replace-one",
        bounds_X: Any = None,
        bounds_y: Any = None,
        fit_intercept: bool = True,
        loss: Any = "squared",
        feasible_set: Any = "auto",
        radius: Any = "auto",
        mirror_map: str = "auto",
        l2_penalty: float = 0.0,
        gradient_clip: Any = "auto",
        data_norm: Any = "auto",
        solver: str = "auto",
        max_iter: Any = "auto",
        n_phases: Any = "auto",
        batch_size: Any = None,
        learning_rate: Any = "auto",
        precision: str = "exact",
        nonfinite: str = "raise",
        accountant: Any = None,
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.relation = relation
        self.bounds_X = bounds_X
        self.bounds_y = bounds_y
        self.fit_intercept = fit_intercept
        self.loss = loss
        self.feasible_set = feasible_set
        self.radius = radius
        self.mirror_map = mirror_map
        self.l2_penalty = l2_penalty
        self.gradient_clip = gradient_clip
        self.data_norm = data_norm
        self.solver = solver
        self.max_iter = max_iter
        self.n_phases = n_phases
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.precision = precision
        self.nonfinite = nonfinite
        self.accountant = accountant
        self.random_state = random_state


class DPMirrorClassifier(_MirrorMixin, DPClassifier):
    """Linear classification, private by noisy mirror descent.

    Minimizes the mean of l(m + <w, x - c> + b, y) + l2_penalty / 2 norm((w, b))^2 over a
    set of (w, b), in scaled units, y being -1 or +1, m the log-odds of the private mean of
    y and c private means of the features. By default the set is a Euclidean ball and the
    method projected gradient descent on noisy mean gradients, with a step made of public
    facts. With K > 2 classes, one model for each against the rest, each with a K-th of the
    budget and its own random stream.

    Parameters
    ----------
    epsilon : float > 0, default=1.0
        Privacy loss. Smaller is more private and less accurate.
    delta : float in (0, 1), default=1e-6
        Slack of the guarantee, in units of probability: for any set of outcomes, its
        probability is at most e^epsilon times that on a neighbouring table, plus delta.
        Should be well below 1 / n_samples. Must be positive here: no form is pure.
    relation : {"replace-one", "zero-out"}, default="replace-one"
        Which tables the guarantee cannot tell apart: two that differ in the values of one
        row, or one where a row is replaced by a record that contributes nothing. The
        number of rows is public in both. Zero-out needs half the noise, and its
        (epsilon, delta) implies replace-one (2 epsilon, (1 + e^epsilon) delta).
    bounds_X : pair (low, high), dict or None, default=None
        Bounds of the features from domain knowledge, never from the data: scalars,
        arrays of shape (n_features,), or for a data frame ``{column: (low, high)}``.
        Values outside are clipped. A feature becomes (x - middle) / half width in
        [-1, 1]; one with an end at 0 is divided by the other end and not centred. Sparse
        X needs bounds with an end at 0 or symmetric about 0. None stands for (-1, 1) and
        warns `BoundsNotDeclaredWarning`.
    classes : list of labels or None, default=None
        The labels that may occur. None takes them from y, which is outside the guarantee,
        and warns `PrivacyLeakWarning`.
    fit_intercept : bool, default=True
        Whether to fit an intercept. A share of the budget, a tenth or more, then buys a
        private mean of the targets and a twentieth private means of the features, about
        which the rows are centred; the intercept's correction is one more coordinate of
        the feasible set.
    loss : {"logistic", "smoothed_hinge"} or Loss, default="logistic"
        In scaled units. A loss that is not smooth works, with smaller steps.
    feasible_set : {"auto", "l2", "l1", "linf", "simplex"} or Geometry, default="auto"
        Where the scaled coefficients live: a ball of the l2, l1 or l-infinity norm, the
        simplex (non-negative, summing to the radius, with ``fit_intercept=False``), or
        for other l_p norms ``LpBall(radius, p)``. "auto" is "l2", or "l1" where there are
        100 features or more and the noise would drown all but a sparse model.
    radius : "auto" or float > 0, default="auto"
        Size of the feasible set, for targets and features scaled to [-1, 1]. It bounds the
        coefficients and the intercept's correction together. "auto" is 10 for "l2" and
        "l1", 1 for "simplex". Must be "auto" with a Geometry object.
    mirror_map : {"auto", "power", "euclidean", "entropy"}, default="auto"
        What measures a step: half the squared l_p norm with the p of the set (p = 1 + 1 /
        ln d for the l1 ball and the simplex, 2 for p > 2), half the squared l2 norm, or,
        on the l1 ball and the simplex, the entropy (exponentiated gradient). "auto" is
        "power".
    l2_penalty : float >= 0, default=0.0
        Weight of half the squared l2 norm, intercept's correction included.
    gradient_clip : "auto" or float > 0, default="auto"
        Bound c on the absolute derivative of the loss in the raw prediction, in scaled
        units; derivatives beyond it are clipped. Noise is proportional to c.
    data_norm : "auto" or float > 0, default="auto"
        Bound B on the l2 norm of a scaled row with the intercept's 1; longer rows are
        scaled down. Noise is proportional to B. "auto" is max(1, sqrt(n_features + 1) /
        2), half of the largest possible norm (without an intercept, the 1 under the root
        is left out). Set it lower where rows are known to be short.
    solver : {"auto", "noisy-md", "localized", "noisy-sfw"}, default="auto"
        "noisy-md" is mirror descent on all records, or on random batches. "localized"
        runs it in phases on disjoint parts of the records, "noisy-sfw" is one pass of
        stochastic Frank-Wolfe, for p <= 2: two methods of theory that use each record in
        one part only and pay for that unless n is in the tens of thousands. "auto" is
        "noisy-md".
    max_iter : "auto" or int >= 1, default="auto"
        Number of steps; of each phase for "localized". More steps cost time, hardly
        accuracy: the noise of a step grows with their number and averages out.
    n_phases : "auto" or int >= 1, default="auto"
        Number of phases of "localized"; each has about half of the records of the one
        before. "auto" is log2(n), at most 6.
    batch_size : None or int >= 1, default=None
        Records in each step of "noisy-md". None takes all. Else batches are random: of
        this size under "replace-one", of this expected size under "zero-out". The budget
        is then tracked by `dp_accounting`, which takes seconds when a plan is made.
        Full batches need less noise in all; batches save time on large tables.
    learning_rate : "auto" or float > 0, default="auto"
        Step in scaled units; at most 1 for "noisy-sfw", where it is the weight of the new
        point. "auto" adapts to the released gradients (scalar AdaGrad), within bounds made
        of the noise.
    precision : {"exact", "float"}, default="exact"
        Arithmetic of the noise. "exact" samples the stated laws to the last bit. "float" is
        a little faster, and the low bits of what it publishes may betray a record.
    nonfinite : {"raise", "zero"}, default="raise"
        What `fit` does with a record that holds NaN, an infinity, a missing label or one
        that was not declared. "raise" raises a `ValueError`, which tells one bit of the data
        that lies outside the guarantee. "zero" makes it an empty record, which contributes
        nothing and is still counted; nothing shows, and the guarantee covers such records,
        too. `predict` then takes such a row for one whose scaled features are all 0.
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
    n_iter_ : int
        Number of steps, at least 1.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        If X had column names.
    plan_ : MirrorDescentPlan
        Every sensitivity, noise scale, step and clip of the run.
    guarantee_ : Guarantee
        epsilon, delta, relation, and `dp_event` for `dp_accounting`.
    noise_is_secret_ : bool
        False if `random_state` was given: then whoever knows it can subtract the noise,
        and `guarantee_` does not hold against them.

    Notes
    -----
    Full batches: T releases of the mean gradient, each coordinate with Gaussian noise of
    standard deviation r sqrt(T) / mu, r = 2 c B / n under replace-one and half of that under
    zero-out, mu the steps' share in the largest Gaussian-DP budget that implies (epsilon,
    delta). Slices and batches: the proofs are in doc/privacy.rst, sections 2.6, 3.5 and 4.

    References
    ----------
    Bassily, Guzman, Nandi (2021), Algorithms 2 and 3; Asi, Feldman, Koren, Talwar (2021),
    Algorithms 1, 2, 5 and 6; with the calibration of doc/privacy.rst.
    """

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        relation: str = "replace-one",
        bounds_X: Any = None,
        classes: Any = None,
        fit_intercept: bool = True,
        loss: Any = "logistic",
        feasible_set: Any = "auto",
        radius: Any = "auto",
        mirror_map: str = "auto",
        l2_penalty: float = 0.0,
        gradient_clip: Any = "auto",
        data_norm: Any = "auto",
        solver: str = "auto",
        max_iter: Any = "auto",
        n_phases: Any = "auto",
        batch_size: Any = None,
        learning_rate: Any = "auto",
        precision: str = "exact",
        nonfinite: str = "raise",
        accountant: Any = None,
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.relation = relation
        self.bounds_X = bounds_X
        self.classes = classes
        self.fit_intercept = fit_intercept
        self.loss = loss
        self.feasible_set = feasible_set
        self.radius = radius
        self.mirror_map = mirror_map
        self.l2_penalty = l2_penalty
        self.gradient_clip = gradient_clip
        self.data_norm = data_norm
        self.solver = solver
        self.max_iter = max_iter
        self.n_phases = n_phases
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.precision = precision
        self.nonfinite = nonfinite
        self.accountant = accountant
        self.random_state = random_state
