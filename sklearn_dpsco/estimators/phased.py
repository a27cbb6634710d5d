"""Linear models by phased stochastic gradient descent."""

from __future__ import annotations

from typing import Any

from .._checks import auto_or, check_bool, check_count, check_size
from .._types import (
    Auto,
    Bounds,
    ClassLabels,
    ClassWeight,
    FeatureBounds,
    Nonfinite,
    PhasedClassificationLoss,
    PhasedRegressionLoss,
    PhasedSet,
    Precision,
    RandomState,
    Relation,
)
from ..geometry import Geometry
from ..losses import Loss
from ..privacy.branches import Account
from ..solvers.defaults import MOST_PHASES, MOST_STEPS
from ..solvers.phased_sgd import PhasedSGD
from ._base import DPClassifier, DPRegressor
from ._stationarity import HasFeasibleSet

__all__ = ["DPPhasedSGDClassifier", "DPPhasedSGDRegressor"]


class _PhasedMixin(HasFeasibleSet):
    """What both models of phased stochastic gradient descent share: the solver's settings.

    Parameters
    ----------
    delta : "auto" or float in (0, 1), default="auto"
        ... Must be positive: no form is pure.
    fit_intercept : bool, default=True
        Whether to fit an intercept. A part of the budget or of the records then buys private
        means of the targets and of the features, about which the rows are centred, and the
        intercept's correction is one more coordinate of the feasible set.
    feasible_set : {"l2", "unconstrained"} or L2Ball, default="l2"
        The set of the scaled coefficients.
    radius : "auto" or float in [1e-50, 1e50], default="auto"
        ... Must be "auto" with "unconstrained", too.
    rank_bound : None or int in [1, 1e15], default=None
        For ``feasible_set="unconstrained"``: a bound on the rank of X that is known beforehand,
        at most n_features. The smaller it is, the larger is the default step, since noise
        outside the span of the rows does not change the predictions.
    gradient_clip : "auto" or float in [1e-50, 1e50], default="auto"
        ... "auto" is 0.35 in regression and 0.5 in classification for smooth losses, rising to 1
        as the noise vanishes, and the derivative's own bound for the others and for several
        classes. In learned units (see Notes) it is stated in those.
    n_phases : "auto" or int in [1, 100], default="auto"
        Number of slices that the records are cut into. Each phase descends over one of them from
        the noisy result of the one before, with a third of its step, and has the whole budget of
        the phases, since no record is in two of them. "auto" is 3 for one pass and 1 for more.
    max_iter : "auto" or int in [1, 1e9], default="auto"
        Number of passes over the records. More passes share the budget of each phase; the mean
        of the second half of their results is the model. "auto" takes what some tenths of a
        second allow: 40 passes for small tables, and a single one from about
        n_samples * n_features = 3e7 on.
    learning_rate : "auto" or float in [1e-50, 1e50], default="auto"
        Step of the last phase, for scaled rows. At most 2 over the product of the loss's
        smoothness and B^2, beyond which the proof fails; a non-smooth loss, or one of your own,
        is smoothed as little as its step allows. "auto" is a function of n, d and the noise.
    shuffle : bool, default=True
        Whether the records are put into a secret random order first. The guarantee does not need
        it; the accuracy does where the order of the table is related to its values. Without it,
        a pass over a large table takes less than half of the time.

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

    Where the default is several passes, of X with at most 3e7 numbers and 1000 columns, and
    everything but `loss`, `fit_intercept` and `shuffle` is left "auto", the passes run in learned
    units, as in `DPMirrorRegressor`: a part of the budget buys the centre and spread of the
    targets, the centre and length of the rows and, where n is large against d, their second
    moments, which whiten them.
    Bounds may then be far too wide. Not for losses with a parameter in the units of the targets
    ("huber", "epsilon_insensitive"), nor, in regression, for a very small n times epsilon. The
    coefficients of the feasible set are then those in learned units. X is copied, densely.

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

    rank_bound: Any
    gradient_clip: Any
    data_norm: Any
    n_phases: Any
    max_iter: Any
    learning_rate: Any
    shuffle: Any

    def _solver(self) -> PhasedSGD:
        rank_bound = self.rank_bound
        if rank_bound is not None:
            rank_bound = check_count("rank_bound", rank_bound)
        return PhasedSGD(
            max_iter=auto_or(check_count, "max_iter", self.max_iter, high=MOST_STEPS),
            n_phases=auto_or(check_count, "n_phases", self.n_phases, high=MOST_PHASES),
            learning_rate=auto_or(check_size, "learning_rate", self.learning_rate),
            gradient_clip=auto_or(check_size, "gradient_clip", self.gradient_clip),
            data_norm=auto_or(check_size, "data_norm", self.data_norm),
            rank_bound=rank_bound,
            shuffle=check_bool("shuffle", self.shuffle),
        )


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
    radius : "auto" or float in [1e-50, 1e50], default="auto"
        ... "auto" is 10 for "l2".

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
        loss: PhasedRegressionLoss | Loss = "squared",
        feasible_set: PhasedSet | Geometry = "l2",
        radius: float | Auto = "auto",
        rank_bound: int | None = None,
        gradient_clip: float | Auto = "auto",
        data_norm: float | Auto = "auto",
        n_phases: int | Auto = "auto",
        max_iter: int | Auto = "auto",
        learning_rate: float | Auto = "auto",
        shuffle: bool = True,
        precision: Precision = "exact",
        nonfinite: Nonfinite = "raise",
        accountant: Account | None = None,
        random_state: RandomState = None,
        verbose: int = 0,
    ) -> None:
        self._store(locals())


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
    radius : "auto" or float in [1e-50, 1e50], default="auto"
        ... "auto" is 100 for "l2".

    Examples
    --------
    A support vector machine in a single pass over the records:

    >>> import numpy as np
    >>> from sklearn_dpsco import DPPhasedSGDClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (20000, 5))
    >>> y = np.where(X[:, 0] + 0.1 * rng.normal(size=20000) > 0, "yes", "no")
    >>> model = DPPhasedSGDClassifier(
    ...     loss="hinge", bounds_X=(-1, 1), classes=["no", "yes"], max_iter=1
    ... ).fit(X, y)
    >>> model.n_iter_, bool(model.score(X, y) > 0.85)
    (1, True)
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
        loss: PhasedClassificationLoss | Loss = "logistic",
        feasible_set: PhasedSet | Geometry = "l2",
        radius: float | Auto = "auto",
        rank_bound: int | None = None,
        gradient_clip: float | Auto = "auto",
        data_norm: float | Auto = "auto",
        n_phases: int | Auto = "auto",
        max_iter: int | Auto = "auto",
        learning_rate: float | Auto = "auto",
        shuffle: bool = True,
        precision: Precision = "exact",
        nonfinite: Nonfinite = "raise",
        accountant: Account | None = None,
        random_state: RandomState = None,
        verbose: int = 0,
    ) -> None:
        self._store(locals())
