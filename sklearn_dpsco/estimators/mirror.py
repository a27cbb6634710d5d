"""Linear models by noisy mirror descent in l_p geometry, and by its defaults: the front door."""

from __future__ import annotations

from .._types import ClassificationLoss, MirrorSet, MirrorSolver, RegressionLoss, Units
from ..geometry import Geometry
from ..losses import Loss
from ..solvers import Descent, Localized, MirrorDescent, NoisyMD, NoisySFW, Proximal, Solver
from ..solvers.base import by_name
from ._base import DPClassifier, DPRegressor, estimator
from ._inference import Inference


class MirrorModel(Inference):
    """What the models of noisy mirror descent share.

    Parameters
    ----------
    delta : "auto" or float in (0, 1), default="auto"
        ... Must be positive: no form is pure.
    fit_intercept : bool, default=True
        Whether to fit an intercept. A share of the budget then buys a private centre of the
        targets or the frequencies of the classes, and another one private means of the features,
        about which the rows are centred. A model without one goes through 0 of X (behind a
        `PublicEncoder`, of what that makes); columns whose bounds lie far from 0 then have little
        to tell them apart.
    loss : str or Loss
        In scaled units. A loss that is not smooth works, with smaller steps; one that is not convex
        works, too.
    feasible_set : {"auto", "l2", "l1", "linf", "simplex"} or Geometry, default="auto"
        The set of the scaled coefficients, of all solvers but "descent": a ball of the l2,
        l1 or l-infinity norm, the simplex (non-negative, summing to 1, with
        ``fit_intercept=False``), or an object with a radius of its own, such as ``L1Ball(3.0)`` or
        for other l_p norms ``LpBall(radius, p)``. "auto" is no set where the solver is "descent",
        else "l2", or "l1" where there are 100 features or more and the noise is too large for any
        model but a sparse one.
    units : {"auto", "bounds", "learned"}, default="auto"
        Of features and targets, in which the solver works: those of the bounds (see `bounds_X`), or
        units that a part of the budget buys. "descent" learns a matrix of its own and takes bounds
        that are far too wide; the other solvers, whose sets rotations would change, learn centres
        and widths of the columns, of sparse X widths alone. "auto" is "learned" with "descent",
        else "bounds".
    solver : str or Solver, default="auto"
        "descent", "noisy-md", "localized", "proximal", "noisy-sfw", or an object with settings:
        `solvers.Descent`, `solvers.NoisyMD`, `solvers.Localized`, `solvers.Proximal`,
        `solvers.NoisySFW`. "descent" is mirror descent with the Euclidean map in learned units,
        without a set. "auto" is "descent" where no set is declared and the loss is the squared, the
        logistic or Welsch's, but not in regression with a very small n times epsilon; else
        "noisy-md".

    Attributes
    ----------
    plan_ : UnitDescentPlan or MirrorDescentPlan
        ...

    Notes
    -----
    Learned units: every release is a mean of vectors of norm at most 1, one for each record, or a
    median by the exponential mechanism, so that sensitivities do not depend on what was learned
    (doc/privacy, sections 4.5 and 4.5c).

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

    _solvers = by_name(MirrorDescent, Descent, NoisyMD, Localized, Proximal, NoisySFW)
    _may_plan_set = True


@estimator
class DPMirrorRegressor(MirrorModel, DPRegressor):
    """Linear regression, private by noisy mirror descent.

    By default gradient descent on noisy mean gradients, in units that are learned privately. With
    a set or another solver it minimizes the mean of l(m + <w, x - c> + b, y) over a set of (w, b),
    in scaled units, m and c being private means of the targets and the features.

    Parameters that are not described here: see `MirrorModel`, and `DPRegressor` and
    `DPLinearModel` in `_base.py`.

    Parameters
    ----------
    loss : str or Loss, default="squared"
        ... "squared", "huber", "absolute", "quantile" or "epsilon_insensitive"; not convex are
        "welsch", "log_absolute" and "mcp_absolute". "welsch" suits targets with gross errors.
    feasible_set : {"auto", "l2", "l1", "linf", "simplex"} or Geometry, default="auto"
        ... Of a name, the radius is 2 for "l2" and "l1", 1 for "simplex" and
        3 / sqrt(n_features + 1) for "linf" (without an intercept, the 1 under the root is left
        out); with "noisy-sfw" a quarter of that, but for "simplex".

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

    loss: RegressionLoss | Loss = "squared"
    feasible_set: MirrorSet | Geometry = "auto"
    units: Units = "auto"
    solver: MirrorSolver | Solver = "auto"


@estimator
class DPMirrorClassifier(MirrorModel, DPClassifier):
    """Linear classification, private by noisy mirror descent.

    By default gradient descent on noisy mean gradients, in units that are learned privately. With
    a set or another solver it minimizes the mean of l(m + <w, x - c> + b, y) over a set of (w, b),
    in scaled units, y being -1 or +1, m the best constant for the private mean of y (its log-odds
    for the logistic loss) and c private means of the features.

    Parameters that are not described here: see `MirrorModel`, and `DPClassifier` and
    `DPLinearModel` in `_base.py`.

    Parameters
    ----------
    loss : str or Loss, default="logistic"
        ... "logistic", "smoothed_hinge", "hinge" or "squared_hinge"; not convex is "sigmoid".
    feasible_set : {"auto", "l2", "l1", "linf", "simplex"} or Geometry, default="auto"
        ... Of a name, the radius is 10 for "l2" and "l1", 1 for "simplex" and
        15 / sqrt(n_features + 1) for "linf" (without an intercept, the 1 under the root is left
        out); with "noisy-sfw" a quarter of that, but for "simplex".

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

    loss: ClassificationLoss | Loss = "logistic"
    feasible_set: MirrorSet | Geometry = "auto"
    units: Units = "auto"
    solver: MirrorSolver | Solver = "auto"


@estimator
class DPLinearRegression(MirrorModel, DPRegressor):
    """Linear regression by least squares under differential privacy: the model to start with.

    What `DPMirrorRegressor` does by default: gradient descent on noisy mean gradients of the
    squared loss, in units that a part of the budget buys, so that bounds may be far too wide.
    Nothing is to be tuned.

    Parameters that are not described here: see `MirrorModel`, and `DPRegressor` and
    `DPLinearModel` in `_base.py`.

    Examples
    --------
    Bounds by column, from what is known of the field; the plan costs nothing:

    >>> import numpy as np
    >>> import pandas as pd
    >>> from sklearn_dpsco import DPLinearRegression
    >>> rng = np.random.default_rng(0)
    >>> X = pd.DataFrame({"age": rng.uniform(20, 80, 5000), "dose": rng.uniform(0, 10, 5000)})
    >>> y = 100 + X["age"] + 2 * X["dose"] + rng.normal(0, 5, 5000)
    >>> bounds_X = {"age": (0, 120), "dose": (0, 20)}
    >>> model = DPLinearRegression(epsilon=1.0, bounds_X=bounds_X, bounds_y=(0, 400))
    >>> model.plan(n_samples=5000, n_features=2).guarantee.epsilon
    1.0
    >>> bool(model.fit(X, y).score(X, y) > 0.9)  # the score itself is not private
    True
    """

    loss = "squared"
    feasible_set = units = solver = "auto"
    _with_settings = DPMirrorRegressor


@estimator
class DPLogisticRegression(MirrorModel, DPClassifier):
    """Logistic regression under differential privacy: the model to start with.

    What `DPMirrorClassifier` does by default: gradient descent on noisy mean gradients of the
    logistic loss, of several classes the multinomial one, in units that a part of the budget buys,
    so that bounds may be far too wide. Nothing is to be tuned.

    Parameters that are not described here: see `MirrorModel`, and `DPClassifier` and
    `DPLinearModel` in `_base.py`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_dpsco import DPLogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 10, (6000, 2))
    >>> y = np.where(X[:, 0] > X[:, 1], "more", "less")
    >>> model = DPLogisticRegression(bounds_X=(0, 10), classes=["less", "more"]).fit(X, y)
    >>> model.predict([[9, 1], [1, 9]]).tolist()
    ['more', 'less']
    >>> model.predict_proba([[9, 1]]).shape
    (1, 2)
    """

    loss = "logistic"
    feasible_set = units = solver = "auto"
    _with_settings = DPMirrorClassifier
