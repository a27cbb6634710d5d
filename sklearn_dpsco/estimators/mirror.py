"""Linear models by noisy mirror descent in l_p geometry."""

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
    MirrorMapName,
    MirrorSet,
    MirrorSolver,
    Nonfinite,
    Precision,
    RandomState,
    RegressionLoss,
    Relation,
)
from ..geometry import Geometry
from ..losses import Loss
from ..privacy.branches import Account
from ..solvers.defaults import MOST_PHASES, MOST_STEPS
from ..solvers.mirror_descent import FORMS, MirrorDescent
from ._base import DPClassifier, DPRegressor
from ._stationarity import HasFeasibleSet

__all__ = ["DPMirrorClassifier", "DPMirrorRegressor"]

_MIRROR_MAPS = ("auto", "power", "euclidean", "entropy")


class _MirrorMixin(HasFeasibleSet):
    """What both models of noisy mirror descent share: the solver's settings.

    Parameters
    ----------
    delta : "auto" or float in (0, 1), default="auto"
        ... Must be positive: no form is pure.
    fit_intercept : bool, default=True
        Whether to fit an intercept. A share of the budget then buys a private centre of the
        targets or the frequencies of the classes, and another one private means of the features,
        about which the rows are centred.
    loss : str or Loss
        In scaled units. A loss that is not smooth works, with smaller steps; one that is not convex
        works, too.
    feasible_set : {"auto", "l2", "l1", "linf", "simplex"} or Geometry, default="auto"
        The set of the scaled coefficients, of all solvers but "learned-units": a ball of the l2,
        l1 or l-infinity norm, the simplex (non-negative, summing to the radius, with
        ``fit_intercept=False``), or for other l_p norms ``LpBall(radius, p)``. "auto" is "l2", or
        "l1" where there are 100 features or more and the noise is too large for any model but a
        sparse one.
    mirror_map : {"auto", "power", "euclidean", "entropy"}, default="auto"
        What measures a step: half the squared l_p norm with the p of the set (p = 1 + 1 / ln d
        for the l1 ball and the simplex, at most 2; 2 for p > 2), half the squared l2 norm, or, on
        the l1 ball and the simplex, the entropy (exponentiated gradient). "auto" is "power".
    l2_penalty : float in [0, 1e50], default=0.0
        Weight of half the squared l2 norm of the scaled coefficients, intercept's correction
        included.
    gradient_clip : "auto" or float in [1e-50, 1e50], default="auto"
        ... "auto" is 0.12 in regression and 0.3 in classification where the noise is large, and
        rises to 1 as it vanishes; times sqrt(2) for several classes, sqrt(K) for K targets. With
        "learned-units" it follows from what was learned.
    solver : {"auto", "learned-units", "noisy-md", "localized", "proximal", ...}, default="auto"
        Also "noisy-sfw". "learned-units" is gradient descent in units that a part of the budget
        buys: centre and spread of the targets, centre and length of the rows and, where n is large
        against d, their second moments. It needs no bounds that are tight, no set and no step, and
        has none; for the squared, the logistic and Welsch's loss. Up to 1000 features and 2^28
        numbers of X are copied, densely; wider X, such as texts, stays as it is, and noisy
        frequencies of the features take the place of second moments. "noisy-md"
        is mirror descent on all records, or on random batches, in the units of the bounds.
        "localized" runs it in phases on disjoint parts of the records, "noisy-sfw" is one pass of
        stochastic Frank-Wolfe, for p <= 2; for a loss that is not convex in rounds of growing
        length, whose result is drawn from all points. These two use each record in one part only,
        and are less accurate than "noisy-md" unless n is in the tens of thousands. "proximal", for
        losses that are not convex, runs it in rounds on disjoint parts, on the loss plus a proximal
        term about the last round's result that makes it strongly convex, and returns the result of
        a round drawn uniformly (of a convex loss, the last): near a stationary point in theory, and
        less accurate than "noisy-md" on tables. "auto" is "learned-units" if no set, radius, map,
        penalty, clip, norm, step or batch is declared, but not for up to 1000 features with more
        than 2^28 numbers in X, nor in regression with a very small n times epsilon; else
        "noisy-md".
    max_iter : "auto" or int in [1, 1e9], default="auto"
        Number of steps; of each phase for "localized" and each round for "proximal". With
        "learned-units" and "noisy-md", more steps cost time and hardly change the accuracy: the
        noise of each step grows with their number, and averages out. "auto" is 16 to 100 with
        "learned-units", which has momentum, and 60 to 400 with "noisy-md", as many as some tenths
        of a second allow; with "proximal" that over the number of rounds, but 16 at least. Must be
        "auto", like `learning_rate`, for "noisy-sfw" with a loss that is not convex.
    n_phases : "auto" or int in [1, 100], default="auto"
        Number of phases of "localized"; each has about half of the records of the one before.
        "auto" is log2(n + 1), rounded down and at most 6. Rounds of "proximal", on equal parts;
        "auto" balances their number and the noise of each, and is at most 100.
    n_restarts : "auto" or int in [1, 100], default="auto"
        Runs on disjoint parts of the records, each with twice as many as the one before and from
        its result. Not with "learned-units". "auto" is 1, or with an `l2_penalty` for "localized"
        and "noisy-sfw" ceil(log2 log2 n), which makes use of the strong convexity.
    batch_size : None or int in [1, 1e15], default=None
        Records in each step of "noisy-md". None takes all. Else batches are random: of this size
        under "replace-one", of this expected size under "zero-out". The budget is then tracked
        by `dp_accounting`, which takes seconds when a plan is made. Full batches need less noise
        in all; batches save time on large tables.
    learning_rate : "auto" or float in [1e-50, 1e50], default="auto"
        Step in scaled units. For "noisy-md", "auto" adapts to the released gradients (scalar
        AdaGrad), within bounds made of the noise. For "localized" it is eta of the first phase,
        which falls to a quarter from phase to phase, and for "noisy-sfw" the weight of the new
        point, at most 1; "auto" is then a function of n, d and the noise.

    Attributes
    ----------
    plan_ : UnitDescentPlan or MirrorDescentPlan
        ...

    Notes
    -----
    Learned units: every release is a mean of vectors of norm at most 1, one for each record, or a
    median by the exponential mechanism, so that sensitivities do not depend on what was learned
    (doc/privacy, section 4.5).

    Full batches of "noisy-md": T releases of the mean gradient, each coordinate with Gaussian noise
    of standard deviation r sqrt(T) / mu, r = 2 c B / n under replace-one and half of that under
    zero-out, mu the steps' share in the largest Gaussian-DP budget that implies (epsilon,
    delta), or under an accountant in the largest zCDP budget, mu^2 / 2 = rho. With
    ``precision="float"`` and a map of p < 2, noise of the generalized Gaussian law takes its
    place where it is smaller. Slices and batches: the proofs are in doc/privacy, sections
    2.6, 3.5, 4 and 8.

    References
    ----------
    Bassily, Guzman, Nandi (2021), Algorithms 2 and 3; Asi, Feldman, Koren, Talwar (2021),
    Algorithms 1, 2, 5 and 6; Bassily, Guzman, Menart (2021), Algorithms 2 and 6; with
    the calibration of doc/privacy.
    """

    solver: Any
    mirror_map: Any
    l2_penalty: Any
    gradient_clip: Any
    data_norm: Any
    max_iter: Any
    n_phases: Any
    n_restarts: Any
    batch_size: Any
    learning_rate: Any

    def _solver(self) -> MirrorDescent:
        form = check_choice("solver", self.solver, ("auto", *FORMS))
        # a Frank-Wolfe step is a weight
        most = {"high": 1} if form == "noisy-sfw" else {}
        mirror_map = check_choice("mirror_map", self.mirror_map, _MIRROR_MAPS)
        batch_size = self.batch_size
        if batch_size is not None:
            batch_size = check_count("batch_size", batch_size)
        return MirrorDescent(
            form=form,
            max_iter=auto_or(check_count, "max_iter", self.max_iter, high=MOST_STEPS),
            learning_rate=auto_or(check_size, "learning_rate", self.learning_rate, **most),
            gradient_clip=auto_or(check_size, "gradient_clip", self.gradient_clip),
            data_norm=auto_or(check_size, "data_norm", self.data_norm),
            l2_penalty=check_size("l2_penalty", self.l2_penalty, low=0),
            batch_size=batch_size,
            mirror_map=None if mirror_map == "auto" else mirror_map,
            n_phases=auto_or(check_count, "n_phases", self.n_phases, high=MOST_PHASES),
            n_restarts=auto_or(check_count, "n_restarts", self.n_restarts, high=MOST_PHASES),
            radius=auto_or(check_size, "radius", self.radius),
        )

    def _feasible_set(self) -> Geometry | type[Geometry]:
        if isinstance(self.feasible_set, str) and self.feasible_set == "auto":
            return Geometry  # the plan chooses
        return super()._feasible_set()


class DPMirrorRegressor(_MirrorMixin, DPRegressor):
    """Linear regression, private by noisy mirror descent.

    By default gradient descent on noisy mean gradients, in units that are learned privately. With
    a set, a penalty or another solver it minimizes the mean of l(m + <w, x - c> + b, y) +
    l2_penalty / 2 norm((w, b))^2 over a set of (w, b), in scaled units, m and c being private means
    of the targets and the features.

    Parameters that are not described here: see `_MirrorMixin`, and `DPRegressor` and
    `DPLinearModel` in `_base.py`.

    Parameters
    ----------
    loss : str or Loss, default="squared"
        ... "squared", "huber", "absolute", "quantile" or "epsilon_insensitive"; not convex are
        "welsch", "log_absolute" and "mcp_absolute". "welsch" suits targets with gross errors.
    radius : "auto" or float in [1e-50, 1e50], default="auto"
        ... "auto" is 2 for "l2" and "l1", 1 for "simplex" and 3 / sqrt(n_features + 1) for "linf"
        (without an intercept, the 1 under the root is left out); with ``solver="noisy-sfw"`` a
        quarter of that, but for "simplex".

    Examples
    --------
    Bounds by column, from what is known of the field; the plan costs nothing:

    >>> import numpy as np
    >>> import pandas as pd
    >>> from sklearn_dpsco import DPMirrorRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = pd.DataFrame({"age": rng.uniform(20, 80, 5000), "dose": rng.uniform(0, 10, 5000)})
    >>> y = 100 + X["age"] + 2 * X["dose"] + rng.normal(0, 5, 5000)
    >>> bounds_X = {"age": (0, 120), "dose": (0, 20)}
    >>> model = DPMirrorRegressor(epsilon=1.0, bounds_X=bounds_X, bounds_y=(0, 400))
    >>> model.plan(n_samples=5000, n_features=2).guarantee.epsilon
    1.0
    >>> bool(model.fit(X, y).score(X, y) > 0.9)  # the score itself is not private
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
        feasible_set: MirrorSet | Geometry = "auto",
        radius: float | Auto = "auto",
        mirror_map: MirrorMapName = "auto",
        l2_penalty: float = 0.0,
        gradient_clip: float | Auto = "auto",
        data_norm: float | Auto = "auto",
        solver: MirrorSolver = "auto",
        max_iter: int | Auto = "auto",
        n_phases: int | Auto = "auto",
        n_restarts: int | Auto = "auto",
        batch_size: int | None = None,
        learning_rate: float | Auto = "auto",
        precision: Precision = "exact",
        nonfinite: Nonfinite = "raise",
        accountant: Account | None = None,
        random_state: RandomState = None,
        verbose: int = 0,
    ) -> None:
        self._store(locals())


class DPMirrorClassifier(_MirrorMixin, DPClassifier):
    """Linear classification, private by noisy mirror descent.

    By default gradient descent on noisy mean gradients, in units that are learned privately. With
    a set, a penalty or another solver it minimizes the mean of l(m + <w, x - c> + b, y) +
    l2_penalty / 2 norm((w, b))^2 over a set of (w, b), in scaled units, y being -1 or +1, m the
    best constant for the private mean of y (its log-odds for the logistic loss) and c private
    means of the features.

    Parameters that are not described here: see `_MirrorMixin`, and `DPClassifier` and
    `DPLinearModel` in `_base.py`.

    Parameters
    ----------
    loss : str or Loss, default="logistic"
        ... "logistic", "smoothed_hinge", "hinge" or "squared_hinge"; not convex is "sigmoid".
    radius : "auto" or float in [1e-50, 1e50], default="auto"
        ... "auto" is 10 for "l2" and "l1", 1 for "simplex" and 15 / sqrt(n_features + 1) for
        "linf" (without an intercept, the 1 under the root is left out); with
        ``solver="noisy-sfw"`` a quarter of that, but for "simplex".

    Examples
    --------
    Three classes in one model, with probabilities:

    >>> import numpy as np
    >>> from sklearn_dpsco import DPMirrorClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (6000, 2))
    >>> y = np.array(["low", "middle", "high"])[np.digitize(X[:, 0], [-0.3, 0.3])]
    >>> model = DPMirrorClassifier(bounds_X=(-1, 1), classes=["low", "middle", "high"])
    >>> model.fit(X, y).coef_.shape
    (3, 2)
    >>> model.predict([[-1, 0], [1, 0]]).tolist()
    ['low', 'high']
    >>> model.predict_proba([[1, 0]]).shape
    (1, 3)
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
        feasible_set: MirrorSet | Geometry = "auto",
        radius: float | Auto = "auto",
        mirror_map: MirrorMapName = "auto",
        l2_penalty: float = 0.0,
        gradient_clip: float | Auto = "auto",
        data_norm: float | Auto = "auto",
        solver: MirrorSolver = "auto",
        max_iter: int | Auto = "auto",
        n_phases: int | Auto = "auto",
        n_restarts: int | Auto = "auto",
        batch_size: int | None = None,
        learning_rate: float | Auto = "auto",
        precision: Precision = "exact",
        nonfinite: Nonfinite = "raise",
        accountant: Account | None = None,
        random_state: RandomState = None,
        verbose: int = 0,
    ) -> None:
        self._store(locals())
