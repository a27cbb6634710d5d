"""DP-Lasso: linear models in the l1 ball, trained by noisy Frank-Wolfe."""

from __future__ import annotations

from typing import Any

from .._checks import auto_or, check_choice, check_int, check_size
from ..solvers.frank_wolfe import FrankWolfe
from ._base import DPClassifier, DPRegressor

__all__ = ["DPLassoFW", "DPLassoFWClassifier"]

_SOLVERS = ("auto", "selection", "gradient")


class _FrankWolfeMixin:
    """Reads the solver's settings off the parameters."""

    solver: Any
    max_iter: Any
    learning_rate: Any
    gradient_clip: Any
    data_norm: Any
    radius: Any

    def _solver(self) -> FrankWolfe:
        return FrankWolfe(
            form=check_choice("solver", self.solver, _SOLVERS),
            max_iter=auto_or(check_int, "max_iter", self.max_iter, low=1),
            learning_rate=auto_or(check_size, "learning_rate", self.learning_rate, high=1),
            gradient_clip=auto_or(check_size, "gradient_clip", self.gradient_clip),
            data_norm=auto_or(check_size, "data_norm", self.data_norm),
        )


class DPLassoFW(_FrankWolfeMixin, DPRegressor):
    """Linear regression in the l1 ball (Lasso), private by noisy Frank-Wolfe.

    Minimizes the mean of l(m + <w, x - c> + b, y) over norm(w, b) <= radius, in scaled
    units, m and c being private means of the targets and the features.

    Parameters
    ----------
    epsilon : float > 0, default=1.0
        Privacy loss. Smaller is more private and less accurate.
    delta : float in [0, 1), default=1e-6
        Slack of the guarantee, in units of probability: for any set of outcomes, its
        probability is at most e^epsilon times that on a neighbouring table, plus delta.
        Should be well below 1 / n_samples. 0 asks for pure epsilon-DP.
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
        sense of Huber's loss (and with ``solver="gradient"`` a twentieth private means of
        the features, about which the rows are centred), and the intercept is one more
        coordinate of the feasible set.
    loss : {"squared", "huber"} or Loss, default="squared"
        In scaled units. Must be smooth.
    feasible_set : {"l1", "simplex"} or Geometry, default="l1"
        Where the scaled coefficients live. "simplex" (non-negative, summing to the
        radius) needs ``fit_intercept=False``.
    radius : "auto" or float > 0, default="auto"
        Size of the feasible set, for targets and features scaled to [-1, 1]. It bounds the
        coefficients and the intercept's correction to the private mean of the targets
        together. Must be "auto" with a Geometry object.
    gradient_clip : "auto" or float > 0, default="auto"
        Bound c on the absolute derivative of the loss in the raw prediction, in scaled
        units; derivatives beyond it are clipped. Noise is proportional to c.
    data_norm : "auto" or float > 0, default="auto"
        Bound B on the l2 norm of a scaled row with the intercept's 1; longer rows are
        scaled down. For ``solver="gradient"``, whose noise is proportional to B. "auto"
        is max(1, sqrt(n_features + 1) / 2), half of the largest possible norm (without
        an intercept, the 1 under the root is left out). Set it
        lower where rows are known to be short, such as counts of few words among many.
    solver : {"auto", "selection", "gradient"}, default="auto"
        What each step releases: a vertex of the feasible set, or a noisy gradient.
        "auto" takes the one that the sizes and epsilon favour, and below a threshold
        spends everything on the intercept and leaves the coefficients at the centre of
        the feasible set, which is 0 for "l1". With delta=0 only
        "selection" is possible.
    max_iter : "auto" or int >= 1, default="auto"
        Number of steps T, each of which costs a part of the budget.
    learning_rate : "auto" or float in (0, 1], default="auto"
        Step eta of (1 - eta) w + eta u; "auto" is 2 / (t + 12) at step t = 0, 1, ...
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
    plan_ : FrankWolfePlan
        Every sensitivity, noise scale, step and clip of the run.
    guarantee_ : Guarantee
        epsilon, delta, relation, and `dp_event` for `dp_accounting`.
    noise_is_secret_ : bool
        False if `random_state` was given: then whoever knows it can subtract the noise,
        and `guarantee_` does not hold against them.

    Notes
    -----
    T steps at a record's change r of what a step releases: Gumbel noise of scale
    r sqrt(T / (8 rho)) on the vertices' scores, or less where another analysis allows it
    (`guarantee_.composition`), r = 4 s c / n on the l1 ball of radius s;
    or Gaussian noise of standard deviation r sqrt(T / (2 rho)) on each coordinate of the
    mean gradient, r = 2 c B / n. rho is the share of the steps in the largest zCDP budget
    that implies (epsilon, delta); for Gaussian noise in mu^2 / 2 of Gaussian DP, which is
    larger, unless an accountant adds this fit to others. Under zero-out r is half of that.

    References
    ----------
    Talwar, Thakurta, Zhang (2015), "Nearly optimal private LASSO"; Bassily, Guzman,
    Menart (2021), Algorithm 5. Derivations: doc/privacy.rst, sections 3.1 and 3.1b.
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
        feasible_set: Any = "l1",
        radius: Any = "auto",
        gradient_clip: Any = "auto",
        data_norm: Any = "auto",
        solver: str = "auto",
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
        self.bounds_X = bounds_X
        self.bounds_y = bounds_y
        self.fit_intercept = fit_intercept
        self.loss = loss
        self.feasible_set = feasible_set
        self.radius = radius
        self.gradient_clip = gradient_clip
        self.data_norm = data_norm
        self.solver = solver
        self.max_iter = max_iter
        self.learning_rate = learning_rate
        self.precision = precision
        self.nonfinite = nonfinite
        self.accountant = accountant
        self.random_state = random_state


class DPLassoFWClassifier(_FrankWolfeMixin, DPClassifier):
    """Linear classification in the l1 ball, private by noisy Frank-Wolfe.

    Minimizes the mean of l(m + <w, x - c> + b, y) over norm(w, b) <= radius, in scaled
    units, y being -1 or +1, m the log-odds of the private mean of y and c private means
    of the features. With K > 2 classes, one model for each against the rest, each with a
    K-th of the budget's rho and its own random stream.

    Parameters
    ----------
    epsilon : float > 0, default=1.0
        Privacy loss. Smaller is more private and less accurate.
    delta : float in [0, 1), default=1e-6
        Slack of the guarantee, in units of probability: for any set of outcomes, its
        probability is at most e^epsilon times that on a neighbouring table, plus delta.
        Should be well below 1 / n_samples. 0 asks for pure epsilon-DP.
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
        private mean of the targets (and with ``solver="gradient"`` a twentieth private
        means of the features, about which the rows are centred), and the intercept is one
        more coordinate of the feasible set.
    loss : {"logistic", "smoothed_hinge"} or Loss, default="logistic"
        In scaled units. Must be smooth.
    feasible_set : {"l1", "simplex"} or Geometry, default="l1"
        Where the scaled coefficients live. "simplex" (non-negative, summing to the
        radius) needs ``fit_intercept=False``.
    radius : "auto" or float > 0, default="auto"
        Size of the feasible set, for targets and features scaled to [-1, 1]. It bounds the
        coefficients and the intercept's correction to the private mean of the targets
        together. Must be "auto" with a Geometry object.
    gradient_clip : "auto" or float > 0, default="auto"
        Bound c on the absolute derivative of the loss in the raw prediction, in scaled
        units; derivatives beyond it are clipped. Noise is proportional to c.
    data_norm : "auto" or float > 0, default="auto"
        Bound B on the l2 norm of a scaled row with the intercept's 1; longer rows are
        scaled down. For ``solver="gradient"``, whose noise is proportional to B. "auto"
        is max(1, sqrt(n_features + 1) / 2), half of the largest possible norm (without
        an intercept, the 1 under the root is left out). Set it
        lower where rows are known to be short, such as counts of few words among many.
    solver : {"auto", "selection", "gradient"}, default="auto"
        What each step releases: a vertex of the feasible set, or a noisy gradient.
        "auto" takes the one that the sizes and epsilon favour, and below a threshold
        spends everything on the intercept and leaves the coefficients at the centre of
        the feasible set, which is 0 for "l1". With delta=0 only
        "selection" is possible.
    max_iter : "auto" or int >= 1, default="auto"
        Number of steps T, each of which costs a part of the budget.
    learning_rate : "auto" or float in (0, 1], default="auto"
        Step eta of (1 - eta) w + eta u; "auto" is 2 / (t + 12) at step t = 0, 1, ...
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
    plan_ : FrankWolfePlan
        Every sensitivity, noise scale, step and clip of the run.
    guarantee_ : Guarantee
        epsilon, delta, relation, and `dp_event` for `dp_accounting`.
    noise_is_secret_ : bool
        False if `random_state` was given: then whoever knows it can subtract the noise,
        and `guarantee_` does not hold against them.

    Notes
    -----
    T steps at a record's change r of what a step releases: Gumbel noise of scale
    r sqrt(T / (8 rho)) on the vertices' scores, or less where another analysis allows it
    (`guarantee_.composition`), r = 4 s c / n on the l1 ball of radius s;
    or Gaussian noise of standard deviation r sqrt(T / (2 rho)) on each coordinate of the
    mean gradient, r = 2 c B / n. rho is the share of the steps in the largest zCDP budget
    that implies (epsilon, delta); for Gaussian noise in mu^2 / 2 of Gaussian DP, which is
    larger, unless an accountant adds this fit to others. Under zero-out r is half of that.

    References
    ----------
    Talwar, Thakurta, Zhang (2015), "Nearly optimal private LASSO"; Bassily, Guzman,
    Menart (2021), Algorithm 5. Derivations: doc/privacy.rst, sections 3.1 and 3.1b.
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
        feasible_set: Any = "l1",
        radius: Any = "auto",
        gradient_clip: Any = "auto",
        data_norm: Any = "auto",
        solver: str = "auto",
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
        self.bounds_X = bounds_X
        self.classes = classes
        self.fit_intercept = fit_intercept
        self.loss = loss
        self.feasible_set = feasible_set
        self.radius = radius
        self.gradient_clip = gradient_clip
        self.data_norm = data_norm
        self.solver = solver
        self.max_iter = max_iter
        self.learning_rate = learning_rate
        self.precision = precision
        self.nonfinite = nonfinite
        self.accountant = accountant
        self.random_state = random_state
