"""DP-Lasso: linear models in the l1 ball, trained by noisy Frank-Wolfe."""

from __future__ import annotations

from dataclasses import dataclass

from .._types import ClassificationLoss, FrankWolfeSolver, RegressionLoss, SetName, Units
from ..geometry import Geometry
from ..losses import Loss
from ..solvers import FrankWolfe, Gradient, Rounds, Selection, Solver, Spider, Tree
from ..solvers.base import by_name
from ._base import DPClassifier, DPLinearModel, DPRegressor, estimator


@dataclass(kw_only=True, repr=False, eq=False)
class _FrankWolfeMixin(DPLinearModel):
    """What both models of noisy Frank-Wolfe share.

    Parameters
    ----------
    delta : "auto" or float in [0, 1), default="auto"
        ... 0 asks for pure epsilon-DP.
    fit_intercept : bool, default=True
        Whether to fit an intercept. A tenth to a half of the budget, or of what learned units
        leave of it, then buys a private mean of the targets, and with "gradient", "rounds" and
        "tree" a twentieth buys private means of the features, about which rows are centred. In
        regression, where a tenth leaves the targets' mean too noisy, the share buys their centre
        in the sense of Huber's loss instead (only with "gradient"). The intercept's correction to
        the mean or centre is one more coordinate of the feasible set.
    loss : str or Loss
        In scaled units. Frank-Wolfe needs a smooth loss: one with a kink is replaced by its
        Moreau envelope of parameter 2.8 c sqrt(T), c the bound on its derivative and T the number
        of steps, which is below it by at most c / (5.6 sqrt(T)). For a loss that is not convex the
        parameter is at least twice its weak convexity.
    feasible_set : {"l1", "simplex", "l2", "linf"} or Geometry, default="l1"
        The set of the scaled coefficients. Of a name, the plan chooses the radius from the numbers
        of records, features and outputs and the budget; it falls as the noise grows and, in learned
        units, the rarer one of two classes is. An object has its own: ``L1Ball(3.0)``. "simplex"
        (non-negative, summing to the radius) and ``Polytope(points)``, the convex hull of given
        points, need ``fit_intercept=False``. "l2" and "linf" have no vertices to select: they are
        for ``solver="gradient"``.
    units : {"auto", "bounds", "learned"}, default="auto"
        Of features and targets, in which the solver works: those of the bounds (see `bounds_X`), or
        learned ones, for which a part of the budget buys a centre and a width of each column and of
        the targets, so that bounds may be far too wide. "auto" is "learned" with "gradient", where
        n times epsilon is large against the number of features, there are at most 1000 of them, the
        bounds do not come with the length of the rows, and no number in units of the bounds is
        declared (a set with its radius, `gradient_clip`, `data_norm`, `learning_rate` or
        `l2_penalty` of the solver), as it is by the simplex of a regression, whose sum is 1. X is
        copied then; sparse X stays sparse and is not centred, so that its model is another one than
        that of the same numbers stored densely. Not with delta=0.
    solver : str or Solver, default="auto"
        "selection", "gradient", "rounds", "tree", "spider", or an object with settings:
        `solvers.Selection`, `solvers.Gradient`, `solvers.Rounds`, `solvers.Tree`,
        `solvers.Spider`. What each Frank-Wolfe step releases: a vertex of the feasible set
        ("selection"), or a noisy gradient. "auto" takes the one of these two that the sizes and
        epsilon favour; where the noise would be too large for either, it spends the whole budget
        on the intercept and leaves the coefficients at the centre of the feasible set, 0 for
        "l1". For models that are not sparse, `DPLinearRegression` and `DPLogisticRegression` are
        more accurate. "rounds", "tree" and "spider" select vertices in a single pass: every record
        is read once; "auto" never takes them. With delta=0, "selection" and these three are
        possible.

    Attributes
    ----------
    plan_ : FrankWolfePlan or SinglePassPlan
        ...

    Notes
    -----
    Let T be the number of steps and r the largest change of what a step releases when one record
    changes. A selection adds Gumbel noise of scale r sqrt(T / (8 rho)) to the scores of the
    vertices, r = 4 s c / n on the l1 ball of radius s, or less noise where another analysis
    allows it (`guarantee_.composition`). A gradient step adds Gaussian noise of standard
    deviation r sqrt(T / (2 rho)) to each coordinate of the mean gradient, r = 2 c B / n. rho is
    the share of the steps in the largest zCDP budget that implies (epsilon, delta); for Gaussian
    noise in mu^2 / 2 of Gaussian DP, which is larger, unless an accountant adds this fit to
    others. Under zero-out r is half of that.

    In a single pass a record has a part in several estimates. With r_j the range of what it changes
    in the scores of step j, all steps have Gumbel noise of scale
    sqrt(max over records of sum_j r_j^2 / (8 rho)), or max sum_j r_j / epsilon where that is less
    noise; the sizes of the batches are such that the sums are the same for all records.

    References
    ----------
    Talwar, Thakurta, Zhang (2015), "Nearly optimal private LASSO"; Bassily, Guzman,
    Menart (2021), Algorithm 5 ("selection") and 1 ("rounds"); Asi, Feldman, Koren, Talwar (2021),
    Algorithm 3 ("tree"); Bassily, Guzman, Nandi (2021), Algorithm 1 ("spider"). Derivations:
    doc/privacy, sections 3.1 to 3.4 and 4.5c.
    """

    _solvers = by_name(FrankWolfe, Selection, Gradient, Rounds, Tree, Spider)

    feasible_set: SetName | Geometry = "l1"
    units: Units = "auto"
    solver: FrankWolfeSolver | Solver = "auto"


@estimator
class DPLassoFW(_FrankWolfeMixin, DPRegressor):
    """Linear regression in the l1 ball (Lasso), private by noisy Frank-Wolfe.

    Minimizes the mean of l(m + <w, x - c> + b, y) over norm(w, b) <= radius, in scaled units, m
    and c being private means of the targets and the features (c = 0 with "selection" and "spider";
    with "rounds" and "tree" columns are also divided by 1 + abs(c)).

    Parameters that are not described here: see `_FrankWolfeMixin`, and `DPRegressor` and
    `DPLinearModel` in `_base.py`.

    Parameters
    ----------
    loss : str or Loss, default="squared"
        ... "squared", "huber", "absolute", "quantile" (`losses.Quantile` sets the level) or
        "epsilon_insensitive"; not convex are "welsch", "log_absolute" and "mcp_absolute".

    Examples
    --------
    Three of 100 columns count. Selections leave few coefficients that are not 0:

    >>> import numpy as np
    >>> from sklearn_dpsco import DPLassoFW
    >>> from sklearn_dpsco.solvers import Selection
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (5000, 100))
    >>> y = X[:, :3].sum(axis=1) + 0.1 * rng.normal(size=5000)
    >>> model = DPLassoFW(
    ...     epsilon=4.0, bounds_X=(-1, 1), bounds_y=(-4, 4), solver=Selection(max_iter=30)
    ... ).fit(X, y)
    >>> sorted(np.argsort(-np.abs(model.coef_))[:3].tolist())
    [0, 1, 2]
    >>> bool(np.count_nonzero(model.coef_) <= 30)
    True
    """

    loss: RegressionLoss | Loss = "squared"


@estimator
class DPLassoFWClassifier(_FrankWolfeMixin, DPClassifier):
    """Linear classification in the l1 ball, private by noisy Frank-Wolfe.

    Minimizes the mean of l(m + <w, x - c> + b, y) over norm(w, b) <= radius, in scaled units, y
    being -1 or +1, m the best constant for the private mean of y (its log-odds for the logistic
    loss) and c private means of the features (c = 0 with "selection" and "spider"; with "rounds"
    and "tree" columns are also divided by 1 + abs(c)).

    Parameters that are not described here: see `_FrankWolfeMixin`, and `DPClassifier` and
    `DPLinearModel` in `_base.py`.

    Parameters
    ----------
    loss : str or Loss, default="logistic"
        ... "logistic", "smoothed_hinge", "hinge" or "squared_hinge"; not convex is "sigmoid".

    Examples
    --------
    Pure epsilon-DP, without any delta:

    >>> import numpy as np
    >>> from sklearn_dpsco import DPLassoFWClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (5000, 20))
    >>> y = X[:, 0] - X[:, 1] > 0
    >>> model = DPLassoFWClassifier(
    ...     epsilon=2.0, delta=0.0, bounds_X=(-1, 1), classes=[False, True]
    ... ).fit(X, y)
    >>> model.guarantee_.delta, model.guarantee_.composition
    (0.0, 'pure')
    >>> bool(model.coef_[0, 0] > 0 > model.coef_[0, 1])
    True
    """

    loss: ClassificationLoss | Loss = "logistic"
