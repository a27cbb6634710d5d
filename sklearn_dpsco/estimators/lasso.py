"""DP-Lasso: linear models in the l1 ball, trained by noisy Frank-Wolfe."""

from __future__ import annotations

from typing import Any

from .._checks import auto_or, check_choice, check_count, check_size
from .._types import (
    Auto,
    Bounds,
    ClassificationLoss,
    ClassLabels,
    ClassWeight,
    FeatureBounds,
    FrankWolfeSolver,
    Nonfinite,
    Precision,
    RandomState,
    RegressionLoss,
    Relation,
    SetName,
)
from ..geometry import Geometry
from ..losses import Loss
from ..privacy.branches import Account
from ..solvers.defaults import MOST_PHASES, MOST_STEPS
from ..solvers.frank_wolfe import FORMS, FrankWolfe
from ._base import DPClassifier, DPRegressor
from ._stationarity import HasFeasibleSet

__all__ = ["DPLassoFW", "DPLassoFWClassifier"]


class _FrankWolfeMixin(HasFeasibleSet):
    """What both models of noisy Frank-Wolfe share: the solver's settings.

    Parameters
    ----------
    delta : "auto" or float in [0, 1), default="auto"
        ... 0 asks for pure epsilon-DP.
    fit_intercept : bool, default=True
        Whether to fit an intercept. A share of the budget, a tenth to a half, then buys a
        private mean of the targets, and with ``solver="gradient"``, "rounds" and "tree" a
        twentieth buys private means of the features, about which the rows are centred. In
        regression, where a tenth leaves the targets' mean too noisy, the share buys their centre
        in the sense of Huber's loss instead (only with "gradient"). The intercept's correction to
        the mean or centre is one more coordinate of the feasible set.
    loss : str or Loss
        In scaled units. Frank-Wolfe needs a smooth loss: one with a kink is replaced by its
        Moreau envelope of parameter 2.8 c sqrt(T), c the bound on its derivative and T the number
        of steps, which is below it by at most c / (5.6 sqrt(T)). For a loss that is not convex the
        parameter is at least twice its weak convexity.
    feasible_set : {"l1", "simplex", "l2", "linf"} or Geometry, default="l1"
        The set of the scaled coefficients. "simplex" (non-negative, summing to the radius) and
        ``Polytope(points)``, the convex hull of given points, need ``fit_intercept=False``. "l2"
        and "linf" have no vertices to select: they are for ``solver="gradient"``.
    radius : "auto" or float in [1e-50, 1e50], default="auto"
        ... "auto" is chosen from the numbers of records, features and outputs and the budget, and
        falls as the noise grows; "learned-units" has none.
    gradient_clip : "auto" or float in [1e-50, 1e50], default="auto"
        ... "auto" is 0.15 in regression and 0.5 in classification where the noise is large, and
        rises to 1 as it vanishes, times sqrt(2) for several classes, sqrt(K) for K targets; the
        derivative's own bound for a loss with a kink. With "learned-units" it follows from what
        was learned.
    data_norm : "auto" or float in [1e-50, 1e50], default="auto"
        ... Used by ``solver="gradient"`` only.
    l2_penalty : float in [0, 1e50], default=0.0
        Weight of half the squared l2 norm of the scaled coefficients, intercept's correction
        included. Not with "learned-units".
    solver : str, default="auto"
        "auto", "selection", "gradient", "learned-units", "rounds", "tree" or "spider". What
        each Frank-Wolfe step releases: a vertex of the feasible set ("selection"), or a noisy
        gradient. "learned-units" is no Frank-Wolfe method and has no set: it is the default of
        `DPMirrorRegressor` and `DPMirrorClassifier`, gradient descent in units that a part of the
        budget buys. It is the more accurate one for models that are not sparse, above all where
        bounds are too wide or columns correlated. "auto" takes it if the loss is squared, logistic
        or Welsch's, the set "l1" and everything else "auto", for fewer than 80 features or where n
        times epsilon is large against them, but never for more than 1000 features, 2^28 numbers in
        X or, in regression, so small an n times epsilon that nothing can be learned about units.
        Else it takes the one of the other two that the sizes and epsilon favour; where the noise
        would be too large for either and `max_iter` is "auto", it spends the whole budget on the
        intercept and leaves the coefficients at the centre of the feasible set, 0 for "l1".

        "rounds", "tree" and "spider" select vertices in a single pass: every record is read once,
        and every step corrects an estimate of the gradient by a batch of fresh records. They take
        a hundredth to a tenth of the time of "selection" on large tables; "auto" never takes them.
        With epsilon = 1 under zero-out, "rounds" first explains half of what a model without
        privacy explains at 500 to 2000 records if five of 20 to 100 columns count ("selection": 250
        to 2000), and at 4000 to 30,000 and more if forty do ("selection": 1000 to 4000). "tree"
        takes up to four times as many, and "spider", whose steps have one record each, 10,000 to
        several million. With delta=0, "selection" and these three are possible.
    max_iter : "auto" or int in [1, 1e9], default="auto"
        Number of steps T, each of which costs a part of the budget; in a single pass those of the
        last run, at most 65,536, of "tree" rounded down to a power of 2. "auto" for "spider". With
        ``solver="selection"``, at most T coefficients of all outputs together are not 0.
    n_restarts : "auto" or int in [1, 100], default="auto"
        Runs of a single pass, on disjoint parts of the records, each with twice as many records
        and steps as the one before and from its result. "auto" is 1, or ceil(log2 log2 n) with an
        `l2_penalty`.
    min_selections : int in [1, 1e9], default=1
        From 2 on, the model is sparser: a coefficient that is not larger than one selection fewer
        can make it is 0, and the model is the last iterate instead of the mean of the second half.
        With 2, hardly any column is left that the noise alone selected, since among many vertices
        it selects few twice. Columns of small effect go, too; where steps are few or epsilon is
        small, all may go, and predictions be worse. With ``solver="selection"``, which "auto" then
        is, and ``feasible_set="l1"`` only. At most the number of steps.
    learning_rate : "auto" or float in [1e-50, 1], default="auto"
        Step eta of (1 - eta) w + eta u; "auto" is 2 / (t + 12) at step t = 0, 1, ...; in a single
        pass 2 / (t + 9) in regression and 2 / (t + 6) in classification, and for "spider" a
        constant of about log(n) / (2 n).

    Attributes
    ----------
    plan_ : FrankWolfePlan, SinglePassPlan or UnitDescentPlan
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
    doc/privacy, sections 3.1 to 3.4 and 4.5.
    """

    solver: Any
    max_iter: Any
    learning_rate: Any
    gradient_clip: Any
    data_norm: Any
    l2_penalty: Any
    n_restarts: Any
    min_selections: Any

    def _solver(self) -> FrankWolfe:
        return FrankWolfe(
            form=check_choice("solver", self.solver, ("auto", *FORMS, "learned-units")),
            max_iter=auto_or(check_count, "max_iter", self.max_iter, high=MOST_STEPS),
            learning_rate=auto_or(check_size, "learning_rate", self.learning_rate, high=1),
            gradient_clip=auto_or(check_size, "gradient_clip", self.gradient_clip),
            data_norm=auto_or(check_size, "data_norm", self.data_norm),
            l2_penalty=check_size("l2_penalty", self.l2_penalty, low=0),
            n_restarts=auto_or(check_count, "n_restarts", self.n_restarts, high=MOST_PHASES),
            min_selections=check_count("min_selections", self.min_selections, high=MOST_STEPS),
        )


class DPLassoFW(_FrankWolfeMixin, DPRegressor):
    """Linear regression in the l1 ball (Lasso), private by noisy Frank-Wolfe.

    Minimizes the mean of l(m + <w, x - c> + b, y) over norm(w, b) <= radius, in scaled units, m
    and c being private means of the targets and the features (c = 0 with "selection" and "spider";
    with "rounds" and "tree" columns are also divided by 1 + abs(c)); or without a set, in learned
    units, where that is better (`solver`).

    Parameters that are not described here: see `_FrankWolfeMixin`, and `DPRegressor` and
    `DPLinearModel` in `_base.py`.

    Parameters
    ----------
    loss : str or Loss, default="squared"
        ... "squared", "huber", "absolute", "quantile" (`losses.Quantile` sets the level) or
        "epsilon_insensitive"; not convex are "welsch", "log_absolute" and "mcp_absolute".
    radius : "auto" or float in [1e-50, 1e50], default="auto"
        ... For "simplex" it is 1.

    Examples
    --------
    Three of 100 columns count. Selections leave few coefficients that are not 0:

    >>> import numpy as np
    >>> from sklearn_dpsco import DPLassoFW
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (5000, 100))
    >>> y = X[:, :3].sum(axis=1) + 0.1 * rng.normal(size=5000)
    >>> model = DPLassoFW(
    ...     epsilon=4.0, bounds_X=(-1, 1), bounds_y=(-4, 4), solver="selection", max_iter=30
    ... ).fit(X, y)
    >>> sorted(np.argsort(-np.abs(model.coef_))[:3].tolist())
    [0, 1, 2]
    >>> bool(np.count_nonzero(model.coef_) <= 30)
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
        bounds_X: FeatureBounds | None = None,
        bounds_y: Bounds | None = None,
        fit_intercept: bool = True,
        loss: RegressionLoss | Loss = "squared",
        feasible_set: SetName | Geometry = "l1",
        radius: float | Auto = "auto",
        gradient_clip: float | Auto = "auto",
        data_norm: float | Auto = "auto",
        l2_penalty: float = 0.0,
        solver: FrankWolfeSolver = "auto",
        max_iter: int | Auto = "auto",
        n_restarts: int | Auto = "auto",
        min_selections: int = 1,
        learning_rate: float | Auto = "auto",
        precision: Precision = "exact",
        nonfinite: Nonfinite = "raise",
        accountant: Account | None = None,
        random_state: RandomState = None,
        verbose: int = 0,
    ) -> None:
        self._store(locals())


class DPLassoFWClassifier(_FrankWolfeMixin, DPClassifier):
    """Linear classification in the l1 ball, private by noisy Frank-Wolfe.

    Minimizes the mean of l(m + <w, x - c> + b, y) over norm(w, b) <= radius, in scaled units, y
    being -1 or +1, m the best constant for the private mean of y (its log-odds for the logistic
    loss) and c private means of the features (c = 0 with "selection" and "spider"; with "rounds"
    and "tree" columns are also divided by 1 + abs(c)); or without a set, in learned units, where
    that is better (`solver`).

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

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float | Auto = "auto",
        relation: Relation = "replace-one",
        max_rows_per_user: int = 1,
        max_weight: float = 1.0,
        bounds_X: FeatureBounds | None = None,
        classes: ClassLabels | None = None,
        class_weight: ClassWeight | None = None,
        fit_intercept: bool = True,
        loss: ClassificationLoss | Loss = "logistic",
        feasible_set: SetName | Geometry = "l1",
        radius: float | Auto = "auto",
        gradient_clip: float | Auto = "auto",
        data_norm: float | Auto = "auto",
        l2_penalty: float = 0.0,
        solver: FrankWolfeSolver = "auto",
        max_iter: int | Auto = "auto",
        n_restarts: int | Auto = "auto",
        min_selections: int = 1,
        learning_rate: float | Auto = "auto",
        precision: Precision = "exact",
        nonfinite: Nonfinite = "raise",
        accountant: Account | None = None,
        random_state: RandomState = None,
        verbose: int = 0,
    ) -> None:
        self._store(locals())
