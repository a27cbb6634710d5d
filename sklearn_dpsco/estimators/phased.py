"""Linear models by phased stochastic gradient descent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .._types import PhasedClassificationLoss, PhasedRegressionLoss, PhasedSet, Units
from ..geometry import Geometry
from ..losses import Loss
from ..solvers import PhasedSGD, Solver
from ..solvers.base import by_name
from ._base import DPClassifier, DPLinearModel, DPRegressor, estimator

_Solver = Literal["auto", "phased-sgd"]


@dataclass(kw_only=True, repr=False, eq=False)
class _PhasedMixin(DPLinearModel):
    """What both models of phased stochastic gradient descent share.

    Parameters
    ----------
    delta : "auto" or float in (0, 1), default="auto"
        ... Must be positive: no form is pure.
    fit_intercept : bool, default=True
        Whether to fit an intercept. A part of the budget or of the records then buys private
        means of the targets and of the features, about which the rows are centred, and the
        intercept's correction is one more coordinate of the feasible set.
    feasible_set : {"l2", "unconstrained"} or L2Ball, default="l2"
        The set of the scaled coefficients; ``L2Ball(3.0)`` has a radius of its own.
    units : {"auto", "bounds", "learned"}, default="auto"
        Of features and targets, in which the solver works: those of the bounds (see `bounds_X`), or
        learned ones, as in `DPMirrorRegressor`: a part of the budget buys the centre and spread of
        the targets, the centre and length of the rows and, where n is large against d, their second
        moments, which whiten them. Bounds may then be far too wide. Set, `gradient_clip` and
        `learning_rate` are stated in these units. X is copied, densely, up to 1000 features and
        2^28 numbers. "auto" is "learned" for several passes, unless a number in units of the
        bounds is declared (a set with its radius, `gradient_clip`, `data_norm` or `learning_rate`
        of the solver), the loss has a parameter in units of the targets ("huber",
        "epsilon_insensitive"), or, in regression, n times epsilon is very small.
    solver : {"auto", "phased-sgd"} or PhasedSGD, default="auto"
        `solvers.PhasedSGD` has settings; both names stand for its defaults.

    Attributes
    ----------
    n_iter_ : int
        Number of passes.
    plan_ : PhasedSGDPlan
        ...

    Notes
    -----
    One record moves the result of a phase by the length of one step, 2 eta c B (half of that
    under zero-out), whatever the length of the phase, so that the noise relative to a pass of
    n steps falls like 1 / n. Time is O(n_samples n_features), or the number of stored values,
    for each pass; most of it goes into reading the rows in a random order. The last quarter of a
    phase's iterates is averaged.

    With one pass over many records, a sixteenth of them is set aside for the intercept, the
    feature means and the mean row factor; otherwise these share the budget of the phases.

    A loss of your own must declare `is_convex`, but the guarantee rests neither on that nor on its
    smoothness. Its derivatives are put into tables at 193 predictions about each target (in
    classification, about both labels), made non-decreasing and no steeper than the step allows. It
    is the loss itself, if that is as smooth as it says, up to the resolution of the tables: 0.002
    of half the width of `bounds_y` at the target and an eighth of the distance far from it.

    References
    ----------
    Feldman, Koren, Talwar (2020), "Private stochastic convex optimization: optimal rates in
    linear time"; Bassily, Guzman, Menart (2021), Algorithms 3 and 4. Derivations:
    doc/privacy, section 5.
    """

    _solvers = by_name(PhasedSGD)

    feasible_set: PhasedSet | Geometry = "l2"
    units: Units = "auto"
    solver: _Solver | Solver = "auto"


@estimator
class DPPhasedSGDRegressor(_PhasedMixin, DPRegressor):
    """Linear regression, private by phased stochastic gradient descent.

    Minimizes the mean of l(m + <w, x - c> + b, y) over norm((w, b)) <= radius or over all
    (w, b), in scaled units, m and c being private means of the targets and the features. For
    many records, which are read once if there are very many, and for smooth and non-smooth
    losses alike.

    Parameters that are not described here: see `_PhasedMixin`, and `DPRegressor` and
    `DPLinearModel` in `_base.py`.

    Parameters
    ----------
    loss : str or Loss, default="squared"
        In scaled units: "squared", "huber", "absolute", "quantile" (`losses.Quantile` sets the
        level) or "epsilon_insensitive", or a convex `Loss` of your own.
    feasible_set : {"l2", "unconstrained"} or L2Ball, default="l2"
        ... "l2" has the radius 10.

    Examples
    --------
    A quantile, whose loss has a kink: 90 % of the targets are to be below the predictions.

    >>> import numpy as np
    >>> from sklearn_dpsco import DPPhasedSGDRegressor
    >>> from sklearn_dpsco.losses import Quantile
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 1, (20000, 2))
    >>> y = X[:, 0] + rng.exponential(0.2, 20000)
    >>> model = DPPhasedSGDRegressor(loss=Quantile(0.9), bounds_X=(0, 1), bounds_y=(0, 3))
    >>> bool(0.8 < np.mean(y < model.fit(X, y).predict(X)) < 0.97)
    True
    """

    loss: PhasedRegressionLoss | Loss = "squared"


@estimator
class DPPhasedSGDClassifier(_PhasedMixin, DPClassifier):
    """Linear classification, private by phased stochastic gradient descent.

    Minimizes the mean of l(m + <w, x - c> + b, y) over norm((w, b)) <= radius or over all
    (w, b), in scaled units, y being -1 or +1, m the best constant for the private mean of y and
    c private means of the features. For many records, which are read once if there are very
    many, and for smooth and non-smooth losses alike.

    Parameters that are not described here: see `_PhasedMixin`, and `DPClassifier` and
    `DPLinearModel` in `_base.py`.

    Parameters
    ----------
    loss : str or Loss, default="logistic"
        In scaled units: "logistic", which alone has probabilities, "smoothed_hinge", "hinge" or
        "squared_hinge", or a convex `Loss` of your own.
    feasible_set : {"l2", "unconstrained"} or L2Ball, default="l2"
        ... "l2" has the radius 100.

    Examples
    --------
    A support vector machine in a single pass over the records:

    >>> import numpy as np
    >>> from sklearn_dpsco import DPPhasedSGDClassifier
    >>> from sklearn_dpsco.solvers import PhasedSGD
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (20000, 5))
    >>> y = np.where(X[:, 0] + 0.1 * rng.normal(size=20000) > 0, "yes", "no")
    >>> model = DPPhasedSGDClassifier(
    ...     loss="hinge", bounds_X=(-1, 1), classes=["no", "yes"], solver=PhasedSGD(max_iter=1)
    ... ).fit(X, y)
    >>> model.n_iter_, bool(model.score(X, y) > 0.85)
    (1, True)
    """

    loss: PhasedClassificationLoss | Loss = "logistic"
