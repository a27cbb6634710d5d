"""Linear models by phased stochastic gradient descent."""

from __future__ import annotations

from typing import Any

from .._checks import auto_or, check_bool, check_int, check_size
from ..solvers.phased_sgd import PhasedSGD
from ._base import DPClassifier, DPRegressor

__all__ = ["DPPhasedSGDClassifier", "DPPhasedSGDRegressor"]


class _PhasedMixin:
    """Reads the solver's settings off the parameters."""

    radius: Any
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
            rank_bound = check_int("rank_bound", rank_bound, low=1)
        return PhasedSGD(
            max_iter=auto_or(check_int, "max_iter", self.max_iter, low=1),
            n_phases=auto_or(check_int, "n_phases", self.n_phases, low=1),
            learning_rate=auto_or(check_size, "learning_rate", self.learning_rate),
            gradient_clip=auto_or(check_size, "gradient_clip", self.gradient_clip),
            data_norm=auto_or(check_size, "data_norm", self.data_norm),
            rank_bound=rank_bound,
            shuffle=check_bool("shuffle", self.shuffle),
        )

    def _least_samples(self) -> int:
        return max(2, self._solver().n_phases or 1)

    def _least_features(self) -> int:
        return self._solver().rank_bound or 1


class DPPhasedSGDRegressor(_PhasedMixin, DPRegressor):
    """Linear regression, private by phased stochastic gradient descent in one pass.

    Minimizes the mean of l(m + <w, x - c> + b, y) over norm((w, b)) <= radius or over all
    (w, b), in scaled units, m and c being private means of the targets and the features.
    For many records, and for smooth and non-smooth losses alike.

    Parameters
    ----------
    epsilon : float > 0, default=1.0
        Privacy loss. Smaller is more private and less accurate.
    delta : float in (0, 1), default=1e-6
        Slack of the guarantee, in units of probability: for any set of outcomes, its
        probability is at most e^epsilon times that on a neighbouring table, plus delta.
        Should be well below 1 / n_samples. Must be positive: no form is pure.
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
        Whether to fit an intercept. A part of the budget or of the records then buys private
        means of the targets and of the features, about which the rows are centred, and the
        intercept's correction is one more coordinate of the feasible set.
    loss : str or Loss, default="squared"
        In scaled units: "squared", "huber", "absolute", "quantile" (`losses.Quantile` sets
        the level) or "epsilon_insensitive".
    feasible_set : {"l2", "unconstrained"} or L2Ball, default="l2"
        Where the scaled coefficients live.
    radius : "auto" or float > 0, default="auto"
        Radius of the ball of (w, b) in scaled units; "auto" is 10. Must be "auto" with an
        L2Ball object and with "unconstrained".
    rank_bound : None or int >= 1, default=None
        For ``feasible_set="unconstrained"``: a bound on the rank of X that is known
        beforehand, at most n_features. The default step rises as it falls, since noise
        outside the span of the rows costs nothing.
    gradient_clip : "auto" or float > 0, default="auto"
        Bound c on the absolute derivative of the loss in the raw prediction, in scaled
        units; derivatives beyond it are clipped. Noise is proportional to c. "auto" is
        0.35 for smooth losses, rising to 1 as the noise vanishes, and the derivative's own
        bound for the others.
    data_norm : "auto" or float > 0, default="auto"
        Bound B on the l2 norm of a scaled row with the intercept's 1; longer rows are
        scaled down. Noise is proportional to B. "auto" is max(1, sqrt(n_features + 1) / 2),
        half of the largest possible norm (without an intercept, the 1 under the root is
        left out). Set it lower where rows are known to be short.
    n_phases : "auto" or int >= 1, default="auto"
        Number of slices that the records are cut into. Each phase descends over one of
        them from the noisy result of the one before, with a third of its step, and has
        the whole budget. "auto" is 3 for one pass and 1 for more.
    max_iter : "auto" or int >= 1, default="auto"
        Number of passes over the records. More passes share the budget of each phase; the
        mean of the second half of their results is the model. "auto" takes what some
        tenths of a second allow, 40 passes for small tables and a single one from about
        n_samples * n_features = 3e7 on.
    learning_rate : "auto" or float > 0, default="auto"
        Step of the last phase, for scaled rows. At most 2 over the smoothness of the loss
        times B^2, beyond which the proof fails; a non-smooth loss is smoothed as little as
        its step allows. "auto" is a function of n, d and the noise.
    shuffle : bool, default=True
        Whether the records are put into a secret random order first. The guarantee does not
        need it; a table that is sorted by anything does. Without it, a pass over a large
        table takes less than half of the time.
    precision : {"exact", "float"}, default="exact"
        Arithmetic of the noise. "exact" samples the stated laws to the last bit. "float" is
        a little faster, and the low bits of what it publishes may betray a record.
    nonfinite : {"raise", "zero"}, default="raise"
        What `fit` does with a record that holds NaN or an infinity. "raise" raises a
        `ValueError`, which tells one bit of the data that lies outside the guarantee. "zero"
        makes it an empty record, which contributes nothing and is still counted; nothing
        shows, and the guarantee covers such records, too. `predict` always raises.
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
        Number of passes.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        If X had column names.
    plan_ : PhasedSGDPlan
        Every sensitivity, noise scale, step and clip of the run.
    guarantee_ : Guarantee
        epsilon, delta, relation, and `dp_event` for `dp_accounting`.
    noise_is_secret_ : bool
        False if `random_state` was given: then whoever knows it can subtract the noise,
        and `guarantee_` does not hold against them.

    Notes
    -----
    One record moves the result of a phase by the length of one step, 2 eta c B (half of that
    under zero-out), whatever the length of the phase, so that the noise relative to a pass of
    n steps falls like 1 / n. Time is O(n_samples n_features), or the number of stored values,
    for each pass; rows are read in a random order, by far the largest part of it. The last
    quarter of a phase's iterates is averaged.

    With one pass over many records, a sixteenth of them is set aside for the intercept, the
    feature means and the mean row factor; otherwise these share the budget of the phases.

    A user's own loss is refused: the guarantee rests on the loss being convex and as smooth
    as it states.

    References
    ----------
    Feldman, Koren, Talwar (2020), "Private stochastic convex optimization: optimal rates in
    linear time"; Bassily, Guzman, Menart (2021), Algorithms 3 and 4. Derivations:
    doc/privacy.rst, section 5.
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
        feasible_set: Any = "l2",
        radius: Any = "auto",
        rank_bound: Any = None,
        gradient_clip: Any = "auto",
        data_norm: Any = "auto",
        n_phases: Any = "auto",
        max_iter: Any = "auto",
        learning_rate: Any = "auto",
        shuffle: bool = True,
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
        self.rank_bound = rank_bound
        self.gradient_clip = gradient_clip
        self.data_norm = data_norm
        self.n_phases = n_phases
        self.max_iter = max_iter
        self.learning_rate = learning_rate
        self.shuffle = shuffle
        self.precision = precision
        self.nonfinite = nonfinite
        self.accountant = accountant
        self.random_state = random_state


class DPPhasedSGDClassifier(_PhasedMixin, DPClassifier):
    """Linear classification, private by phased stochastic gradient descent in one pass.

    Minimizes the mean of l(m + <w, x - c> + b, y) over norm((w, b)) <= radius or over all
    (w, b), in scaled units, y being -1 or +1, m the best constant for the private mean of y
    and c private means of the features. For many records, and for smooth and non-smooth
    losses alike. With K > 2 classes, one model for each against the rest, each with a K-th
    of the budget and its own random stream.

    Parameters
    ----------
    epsilon : float > 0, default=1.0
        Privacy loss. Smaller is more private and less accurate.
    delta : float in (0, 1), default=1e-6
        Slack of the guarantee, in units of probability: for any set of outcomes, its
        probability is at most e^epsilon times that on a neighbouring table, plus delta.
        Should be well below 1 / n_samples. Must be positive: no form is pure.
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
        Whether to fit an intercept. A part of the budget or of the records then buys private
        means of the targets and of the features, about which the rows are centred, and the
        intercept's correction is one more coordinate of the feasible set.
    loss : str or Loss, default="logistic"
        In scaled units: "logistic", which alone has probabilities, "smoothed_hinge",
        "hinge" or "squared_hinge".
    feasible_set : {"l2", "unconstrained"} or L2Ball, default="l2"
        Where the scaled coefficients live.
    radius : "auto" or float > 0, default="auto"
        Radius of the ball of (w, b) in scaled units; "auto" is 100. Must be "auto" with an
        L2Ball object and with "unconstrained".
    rank_bound : None or int >= 1, default=None
        For ``feasible_set="unconstrained"``: a bound on the rank of X that is known
        beforehand, at most n_features. The default step rises as it falls, since noise
        outside the span of the rows costs nothing.
    gradient_clip : "auto" or float > 0, default="auto"
        Bound c on the absolute derivative of the loss in the raw prediction, in scaled
        units; derivatives beyond it are clipped. Noise is proportional to c. "auto" is
        0.5 for smooth losses, rising to 1 as the noise vanishes, and the derivative's own
        bound for the others.
    data_norm : "auto" or float > 0, default="auto"
        Bound B on the l2 norm of a scaled row with the intercept's 1; longer rows are
        scaled down. Noise is proportional to B. "auto" is max(1, sqrt(n_features + 1) / 2),
        half of the largest possible norm (without an intercept, the 1 under the root is
        left out). Set it lower where rows are known to be short.
    n_phases : "auto" or int >= 1, default="auto"
        Number of slices that the records are cut into. Each phase descends over one of
        them from the noisy result of the one before, with a third of its step, and has
        the whole budget. "auto" is 3 for one pass and 1 for more.
    max_iter : "auto" or int >= 1, default="auto"
        Number of passes over the records. More passes share the budget of each phase; the
        mean of the second half of their results is the model. "auto" takes what some
        tenths of a second allow, 40 passes for small tables and a single one from about
        n_samples * n_features = 3e7 on.
    learning_rate : "auto" or float > 0, default="auto"
        Step of the last phase, for scaled rows. At most 2 over the smoothness of the loss
        times B^2, beyond which the proof fails; a non-smooth loss is smoothed as little as
        its step allows. "auto" is a function of n, d and the noise.
    shuffle : bool, default=True
        Whether the records are put into a secret random order first. The guarantee does not
        need it; a table that is sorted by anything does. Without it, a pass over a large
        table takes less than half of the time.
    precision : {"exact", "float"}, default="exact"
        Arithmetic of the noise. "exact" samples the stated laws to the last bit. "float" is
        a little faster, and the low bits of what it publishes may betray a record.
    nonfinite : {"raise", "zero"}, default="raise"
        What `fit` does with a record that holds NaN, an infinity, a missing label or one
        that was not declared. "raise" raises a `ValueError`, which tells one bit of the data
        that lies outside the guarantee. "zero" makes it an empty record, which contributes
        nothing and is still counted; nothing shows, and the guarantee covers such records,
        too. `predict` always raises.
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
        Number of passes.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        If X had column names.
    plan_ : PhasedSGDPlan
        Every sensitivity, noise scale, step and clip of the run.
    guarantee_ : Guarantee
        epsilon, delta, relation, and `dp_event` for `dp_accounting`.
    noise_is_secret_ : bool
        False if `random_state` was given: then whoever knows it can subtract the noise,
        and `guarantee_` does not hold against them.

    Notes
    -----
    One record moves the result of a phase by the length of one step, 2 eta c B (half of that
    under zero-out), whatever the length of the phase, so that the noise relative to a pass of
    n steps falls like 1 / n. Time is O(n_samples n_features), or the number of stored values,
    for each pass; rows are read in a random order, by far the largest part of it. The last
    quarter of a phase's iterates is averaged.

    With one pass over many records, a sixteenth of them is set aside for the intercept, the
    feature means and the mean row factor; otherwise these share the budget of the phases.

    A user's own loss is refused: the guarantee rests on the loss being convex and as smooth
    as it states.

    References
    ----------
    Feldman, Koren, Talwar (2020), "Private stochastic convex optimization: optimal rates in
    linear time"; Bassily, Guzman, Menart (2021), Algorithms 3 and 4. Derivations:
    doc/privacy.rst, section 5.
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
        feasible_set: Any = "l2",
        radius: Any = "auto",
        rank_bound: Any = None,
        gradient_clip: Any = "auto",
        data_norm: Any = "auto",
        n_phases: Any = "auto",
        max_iter: Any = "auto",
        learning_rate: Any = "auto",
        shuffle: bool = True,
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
        self.rank_bound = rank_bound
        self.gradient_clip = gradient_clip
        self.data_norm = data_norm
        self.n_phases = n_phases
        self.max_iter = max_iter
        self.learning_rate = learning_rate
        self.shuffle = shuffle
        self.precision = precision
        self.nonfinite = nonfinite
        self.accountant = accountant
        self.random_state = random_state
