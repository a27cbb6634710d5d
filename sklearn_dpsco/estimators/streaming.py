"""Models of a stream that are private at every moment: `fit`, and `partial_fit` in chunks."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from .._checks import auto_or, check_bool, check_choice, check_int, check_size
from .._linear import piece_rows
from .._prefix_sum import FACTORIZATIONS
from .._random import RandomStream, stream_from_random_state
from .._records import is_missing
from ..accounting import Guarantee
from ..bounds import FeatureScaling, TargetScaling
from ..solvers.base import SolverResult
from ..solvers.ftrl import FTRL, LONGEST_STREAM, FTRLPlan, FTRLRun
from ._base import DPClassifier, DPLinearModel, DPRegressor, check_classes

__all__ = ["DPFTRLClassifier", "DPFTRLRegressor"]

Array = NDArray[np.float64]

_NO_HORIZON = LONGEST_STREAM  # epochs are planned up to here
_MIRROR_MAPS = ("auto", "euclidean", "power", "entropy")


@dataclass
class _Progress:
    """What `partial_fit` carries from one chunk to the next; never public.

    A pickle or a copy holds no key and no noise that is still to be added.
    """

    plan: FTRLPlan
    features: FeatureScaling
    targets: TargetScaling | None
    runs: list[FTRLRun]
    noise: list[RandomStream] | None
    lock: Any = field(default_factory=threading.Lock, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"noise": None, "lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, lock=threading.Lock())

    def streams(self, random_state: Any) -> list[RandomStream]:
        """One stream of noise per model; fresh ones after a pickle or a copy."""
        if self.noise is None:
            # with a seed, another part of the stream than any that was used before
            root = stream_from_random_state(random_state).substream("restored")
            self.noise = _noise_streams(root, self.runs)
        return self.noise


def _noise_streams(root: RandomStream, runs: list[FTRLRun]) -> list[RandomStream]:
    names = [() if run.n_seen == 0 else (run.n_seen,) for run in runs]
    return [root.substream("model", k).substream("noise", *name) for k, name in enumerate(names)]


class _StreamingModel(DPLinearModel):
    """Reads the solver's settings off the parameters, and runs streams."""

    horizon: Any
    batch_size: Any
    mirror_map: Any
    factorization: Any
    gradient_clip: Any
    data_norm: Any
    learning_rate: Any
    average: Any
    shuffle: Any

    _stream: _Progress | None
    plan_: FTRLPlan
    guarantee_: Guarantee
    n_iter_: int

    def _solver(self) -> FTRL:
        mirror_map = check_choice("mirror_map", self.mirror_map, _MIRROR_MAPS)
        return FTRL(
            batch_size=auto_or(check_int, "batch_size", self.batch_size, low=1),
            learning_rate=auto_or(check_size, "learning_rate", self.learning_rate),
            gradient_clip=auto_or(check_size, "gradient_clip", self.gradient_clip),
            data_norm=auto_or(check_size, "data_norm", self.data_norm),
            mirror_map=None if mirror_map == "auto" else mirror_map,
            factorization=check_choice("factorization", self.factorization, FACTORIZATIONS),
            average=check_bool("average", self.average),
            shuffle=check_bool("shuffle", self.shuffle),
        )

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.horizon is not None:
            check_int("horizon", self.horizon, low=1)

    def fit(self, X: Any, y: Any) -> Any:
        """Fit the model to a whole table in one pass; a stream in progress is forgotten.

        `partial_fit` refuses more records afterwards, which would cost more.

        Parameters
        ----------
        X : {array-like, CSR or CSC matrix} of shape (n_samples, n_features)
            Values outside `bounds_X` are clipped.
        y : array-like of shape (n_samples,)
            Targets, which are clipped to `bounds_y`, or labels among `classes`.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a parameter or the shape of the data is wrong, X or y has a missing or
            infinite value, or y a label that was not declared. Nothing is spent then.
        PrivacyBudgetError
            If the accountant refuses the charge. Nothing is spent then, either.
        """
        super().fit(X, y)
        self.n_seen_ = self.plan_.problem.n_samples
        return self

    def _charge(self, X: Any, n_models: int) -> tuple[Any, FeatureScaling]:
        charged = super()._charge(X, n_models)
        self._stream = None  # also if the fit is interrupted later on
        return charged

    def finish(self) -> Any:
        """End the stream, and forget its un-noised sums.

        The model stays as it is. A pickle of it then holds nothing that is not private, and
        `partial_fit` refuses more records.

        Returns
        -------
        self

        Raises
        ------
        NotFittedError
            If no stream has begun.
        """
        check_is_fitted(self)
        self._stream = None
        return self

    # ------------------------------------------------------------ parts of `partial_fit`

    def _progress(self) -> _Progress | None:
        """The stream in progress, None before the first chunk."""
        if not hasattr(self, "_stream"):
            self._check_parameters()
            return None
        if self._stream is None:
            raise ValueError(
                "the stream of this model has ended (by fit, by finish or by its horizon): "
                "more records would cost more than its guarantee. Clone it to begin another."
            )
        return self._stream

    def _validate_chunk(self, X: Any, y: Any, progress: _Progress | None) -> tuple[Any, Any]:
        X, y = self._validate(X, y, reset=progress is None, min_samples=1)
        if progress is None:
            n_seen, horizon = 0, self.horizon or _NO_HORIZON
        else:
            n_seen, horizon = progress.runs[0].n_seen, progress.plan.problem.n_samples
        if n_seen + X.shape[0] > horizon:
            raise ValueError(
                f"{n_seen} records were seen and {X.shape[0]} more are given, which is beyond "
                f"horizon={horizon}"
            )
        return X, y

    def _begin(self, X: Any, n_models: int, targets: TargetScaling | None = None) -> _Progress:
        """Plan and charge the whole stream; reads no value of X."""
        n_features = X.shape[1]
        if self.horizon is not None:
            self._warn_if_delta_is_large(self.horizon)
        solver = replace(self._solver(), doubling=self.horizon is None)
        problem = self._problem(self.horizon or _NO_HORIZON, n_features, n_models)
        plan = solver.plan(problem, self._budget())
        features = self._spend(plan, X)
        runs = [FTRLRun(plan) for _ in range(n_models)]
        root = stream_from_random_state(self.random_state)
        self.noise_is_secret_ = root.is_secure
        self.plan_ = plan
        self.n_seen_ = 0
        self._stream = _Progress(plan, features, targets, runs, _noise_streams(root, runs))
        return self._stream

    def _take(
        self, progress: _Progress, X: Any, targets: list[Array], is_empty: Any
    ) -> list[SolverResult]:
        """Feed one chunk to all models; sets what has changed but the coefficients.

        An error or an interrupt leaves the stream before the chunk, and nothing has been
        published then: no record enters twice if the call is repeated.
        """
        if sparse.issparse(X) and X.format == "csc":
            X = X.tocsr()
        size = piece_rows(X)
        with progress.lock:
            streams = progress.streams(None if self.noise_is_secret_ else self.random_state)
            runs = [run.copy() for run in progress.runs]
            for start in range(0, X.shape[0], size):
                part = slice(start, min(start + size, X.shape[0]))
                rows = self._rows(
                    X[part], progress.features, progress.plan.problem.fit_intercept, is_empty[part]
                )
                for run, target, stream in zip(runs, targets, streams, strict=True):
                    run.add(rows, target[part], stream)
            n_seen = runs[0].n_seen
            results = []
            for run in runs:
                result = run.result()
                coef, intercept = progress.features.unscale(result.coef, result.intercept)
                results.append(SolverResult(coef, intercept, result.n_iter))
            guarantee = progress.plan.guarantee_after(n_seen)
            # nothing un-noised outlives the last release
            stream_left = None if n_seen == progress.plan.problem.n_samples else progress
            # no interrupt comes between these two
            progress.runs = runs
            self.__dict__.update(
                _stream=stream_left, n_seen_=n_seen, guarantee_=guarantee, n_iter_=results[0].n_iter
            )
        return results


class DPFTRLRegressor(_StreamingModel, DPRegressor):
    """Linear regression on a stream, private at every moment.

    Follows the regularized leader on noisy sums of the clipped gradients of
    l(m + <w, x - c> + b, y), in scaled units, m and c being private means of the first
    records' targets and features. `partial_fit` takes the stream in chunks of any size.

    Parameters
    ----------
    epsilon : float > 0, default=1.0
        Privacy loss. Smaller is more private and less accurate.
    delta : float in (0, 1), default=1e-6
        Slack of the guarantee, in units of probability: for any set of outcomes, its
        probability is at most e^epsilon times that on a neighbouring stream, plus delta.
        Should be well below 1 over the number of records. There is no form with delta=0.
    relation : {"replace-one", "zero-out"}, default="replace-one"
        Which streams the guarantee cannot tell apart: two that differ in the values of one
        record, or one where a record is replaced by one that contributes nothing. The
        number of records is public in both. Zero-out needs half the noise, and its
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
        Whether to fit an intercept. The first records (two to thirty percent of a known
        horizon, else as many as the noise demands) then buy private means of the targets
        and the features, about which the others are centred, and serve for nothing else.
    horizon : int >= 1 or None, default=None
        Number of records that `partial_fit` will see in all, at most 2^40; more are
        refused. None: not known; the stream is cut into epochs that double, each with the
        full budget on records of its own, which costs some accuracy. `fit` knows its
        number of records.
    batch_size : "auto" or int >= 1, default="auto"
        Records per step. The model changes after every step. "auto" makes 256 steps of the
        stream, or of each epoch, but none of fewer than 4 records.
    loss : str or Loss, default="squared"
        One of "squared", "huber", "absolute", "quantile", "epsilon_insensitive"
        or an object. In scaled units; need not be smooth.
    feasible_set : {"l2", "l1", "linf", "simplex"} or Geometry, default="l2"
        Where the scaled coefficients live. "simplex" (non-negative, summing to the
        radius) needs ``fit_intercept=False``.
    radius : "auto" or float > 0, default="auto"
        Size of the feasible set, for targets and features scaled to [-1, 1]. It bounds the
        coefficients and the intercept's correction together; "auto" is 3, or 1 for the simplex.
        Must be "auto" with a Geometry object.
    mirror_map : "auto", "euclidean", "power" or "entropy", default="auto"
        The regularizer: half the squared l2 norm, half the squared l_p norm, or entropy
        (on "l1" and "simplex"). "auto" is "euclidean", or "power" where the noise in that
        many columns is large for so few records.
    factorization : {"toeplitz", "tree", "honaker"}, default="toeplitz"
        How the noise of the steps is correlated, see `mechanisms.PrefixSum`. Both trees
        have several times the noise.
    gradient_clip : "auto" or float > 0, default="auto"
        Bound c on the absolute derivative of the loss in the raw prediction, in scaled
        units; derivatives beyond it are clipped. Noise is proportional to c.
    data_norm : "auto" or float > 0, default="auto"
        Bound B on the l2 norm of a scaled row with the intercept's 1; the gradients of
        longer rows are scaled down. Noise is proportional to B. "auto" is
        max(1, sqrt(n_features + 1) / 2), half of the largest possible norm (without an
        intercept, the 1 under the root is left out).
    learning_rate : "auto" or float > 0, default="auto"
        Factor of a step's mean gradient; "auto" takes the largest that is stable and keeps
        the noise in the coefficients in bounds, by public facts.
    average : bool, default=True
        Whether the model is the average of the iterates, later ones weighing more, or the
        last iterate.
    shuffle : bool, default=True
        Whether `fit` takes the records in random order. `partial_fit` never changes it.
    precision : {"exact", "float"}, default="exact"
        Arithmetic of the noise. "exact" samples the stated law to the last bit. "float" is
        a little faster, and the low bits of what it publishes may betray a record.
    nonfinite : {"raise", "zero"}, default="raise"
        What is done with a record that holds NaN, an infinity or, in classification, a
        label that was not declared. "raise" raises a `ValueError`, which tells one bit of
        the data that lies outside the guarantee. "zero" makes it an empty record, which
        contributes nothing and is still counted; nothing shows, and the guarantee covers
        such records, too. `predict` always raises.
    accountant : None or BudgetAccountant, default=None
        Where `fit`, or the first call of `partial_fit`, charges the guarantee of the whole
        stream, in full and before it computes anything from the values. None stands for
        the accountant whose ``with`` block is open, if any.
    random_state : None, int or RandomState, default=None
        None draws noise from a cipher keyed by the operating system. An int makes the
        model reproducible and *not private*: whoever knows it can subtract the noise. Use
        it for tests only.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        In the units of X and y, float64; private at every moment.
    intercept_ : float
    n_seen_ : int
        Records taken in so far; those of an unfinished step do not show in `coef_` yet.
    n_iter_ : int
        Number of steps, at least 1.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        If X had column names.
    plan_ : FTRLPlan
        Every sensitivity, noise scale, epoch and clip of the stream.
    guarantee_ : Guarantee
        epsilon, delta, relation, and `dp_event`, of what was released so far.
    noise_is_secret_ : bool
        False if `random_state` was given: then whoever knows it can subtract the noise,
        and `guarantee_` does not hold against them.

    Notes
    -----
    Noise: Gaussian, of standard deviation 2 c B sqrt(sum of c_k^2) / mu on what is released
    of each step's sum of gradients, where c_k, k < number of steps, are the coefficients of
    (1 - q)^(-1/2); half of that under zero-out. (epsilon, delta) holds for everything that
    is ever published of the stream, at all times together, provided that **each record is
    fed once**: one that is fed twice composes.

    A stream in progress holds un-noised sums over its records. So does a pickle or a copy of
    the estimator: keep it as you keep the data, or call `finish` first. A restored copy draws
    fresh noise; go on with one copy only, since two that go on release the past twice: they
    compose. Going back to an older pickle counts as a second copy, unless nothing that the
    later one gave was seen.

    References
    ----------
    Arora, Marinov, Ullah (2020) for the aim, whose own noise is too small; Fichtenberger,
    Henzinger, Upadhyay (2023) and Denisov et al. (2022) for the noise. Derivations:
    doc/privacy.rst, sections 2.4 and 6.
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
        horizon: Any = None,
        batch_size: Any = "auto",
        loss: Any = "squared",
        feasible_set: Any = "l2",
        radius: Any = "auto",
        mirror_map: str = "auto",
        factorization: str = "toeplitz",
        gradient_clip: Any = "auto",
        data_norm: Any = "auto",
        learning_rate: Any = "auto",
        average: bool = True,
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
        self.horizon = horizon
        self.batch_size = batch_size
        self.loss = loss
        self.feasible_set = feasible_set
        self.radius = radius
        self.mirror_map = mirror_map
        self.factorization = factorization
        self.gradient_clip = gradient_clip
        self.data_norm = data_norm
        self.learning_rate = learning_rate
        self.average = average
        self.shuffle = shuffle
        self.precision = precision
        self.nonfinite = nonfinite
        self.accountant = accountant
        self.random_state = random_state

    def partial_fit(self, X: Any, y: Any) -> DPFTRLRegressor:
        """Take in the next records of the stream, each of them once.

        However the same records are cut into chunks, the model after the last has the same
        law. Parameters are read at the first call. A call that is interrupted takes in the
        whole chunk or nothing of it; `n_seen_` tells which.

        Parameters
        ----------
        X : {array-like, CSR or CSC matrix} of shape (n_samples, n_features)
            Values outside `bounds_X` are clipped.
        y : array-like of shape (n_samples,)
            Values outside `bounds_y` are clipped.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a parameter or the shape of the data is wrong, X or y has a missing or
            infinite value, the columns are not those of the first call, the stream has
            ended, or this chunk reaches beyond `horizon`. Nothing is taken in then.
        PrivacyBudgetError
            At the first call, if the accountant refuses the charge.
        """
        progress = self._progress()
        with self._unchanged_on_error():
            X, y = self._validate_chunk(X, y, progress)
            if progress is None:
                progress = self._begin(X, n_models=1, targets=self._target_scaling())
        scaling, is_empty = progress.targets, is_missing(y)
        assert scaling is not None
        target = np.where(is_empty, 0.0, scaling.transform(y))
        (result,) = self._take(progress, X, [target], is_empty)
        self.coef_, self.intercept_ = scaling.unscale(result.coef, result.intercept)
        return self


class DPFTRLClassifier(_StreamingModel, DPClassifier):
    """Linear classification on a stream, private at every moment.

    Follows the regularized leader on noisy sums of the clipped gradients of
    l(m + <w, x - c> + b, y), in scaled units, y being -1 or +1, m the log-odds of the private
    mean of the first records' labels and c private means of their features. `partial_fit`
    takes the stream in chunks of any size. With K > 2 classes, one model for each against
    the rest, each with a K-th of the budget and its own random stream.

    Parameters
    ----------
    epsilon : float > 0, default=1.0
        Privacy loss. Smaller is more private and less accurate.
    delta : float in (0, 1), default=1e-6
        Slack of the guarantee, in units of probability: for any set of outcomes, its
        probability is at most e^epsilon times that on a neighbouring stream, plus delta.
        Should be well below 1 over the number of records. There is no form with delta=0.
    relation : {"replace-one", "zero-out"}, default="replace-one"
        Which streams the guarantee cannot tell apart: two that differ in the values of one
        record, or one where a record is replaced by one that contributes nothing. The
        number of records is public in both. Zero-out needs half the noise, and its
        (epsilon, delta) implies replace-one (2 epsilon, (1 + e^epsilon) delta).
    bounds_X : pair (low, high), dict or None, default=None
        Bounds of the features from domain knowledge, never from the data: scalars,
        arrays of shape (n_features,), or for a data frame ``{column: (low, high)}``.
        Values outside are clipped. A feature becomes (x - middle) / half width in
        [-1, 1]; one with an end at 0 is divided by the other end and not centred. Sparse
        X needs bounds with an end at 0 or symmetric about 0. None stands for (-1, 1) and
        warns `BoundsNotDeclaredWarning`.
    classes : list of labels or None, default=None
        The labels that may occur. None takes them from the first call of `partial_fit`;
        in `fit` it takes them from y, which is outside the guarantee, and warns
        `PrivacyLeakWarning`.
    fit_intercept : bool, default=True
        Whether to fit an intercept. The first records (two to thirty percent of a known
        horizon, else as many as the noise demands) then buy private means of the targets
        and the features, about which the others are centred, and serve for nothing else.
    horizon : int >= 1 or None, default=None
        Number of records that `partial_fit` will see in all, at most 2^40; more are
        refused. None: not known; the stream is cut into epochs that double, each with the
        full budget on records of its own, which costs some accuracy. `fit` knows its
        number of records.
    batch_size : "auto" or int >= 1, default="auto"
        Records per step. The model changes after every step. "auto" makes 256 steps of the
        stream, or of each epoch, but none of fewer than 4 records.
    loss : str or Loss, default="logistic"
        One of "logistic", "smoothed_hinge", "hinge", "squared_hinge"
        or an object. In scaled units; need not be smooth.
    feasible_set : {"l2", "l1", "linf", "simplex"} or Geometry, default="l2"
        Where the scaled coefficients live. "simplex" (non-negative, summing to the
        radius) needs ``fit_intercept=False``.
    radius : "auto" or float > 0, default="auto"
        Size of the feasible set, for targets and features scaled to [-1, 1]. It bounds the
        coefficients and the intercept's correction together; "auto" is 30.
        Must be "auto" with a Geometry object.
    mirror_map : "auto", "euclidean", "power" or "entropy", default="auto"
        The regularizer: half the squared l2 norm, half the squared l_p norm, or entropy
        (on "l1" and "simplex"). "auto" is "euclidean", or "power" where the noise in that
        many columns is large for so few records.
    factorization : {"toeplitz", "tree", "honaker"}, default="toeplitz"
        How the noise of the steps is correlated, see `mechanisms.PrefixSum`. Both trees
        have several times the noise.
    gradient_clip : "auto" or float > 0, default="auto"
        Bound c on the absolute derivative of the loss in the raw prediction, in scaled
        units; derivatives beyond it are clipped. Noise is proportional to c.
    data_norm : "auto" or float > 0, default="auto"
        Bound B on the l2 norm of a scaled row with the intercept's 1; the gradients of
        longer rows are scaled down. Noise is proportional to B. "auto" is
        max(1, sqrt(n_features + 1) / 2), half of the largest possible norm (without an
        intercept, the 1 under the root is left out).
    learning_rate : "auto" or float > 0, default="auto"
        Factor of a step's mean gradient; "auto" takes the largest that is stable and keeps
        the noise in the coefficients in bounds, by public facts.
    average : bool, default=True
        Whether the model is the average of the iterates, later ones weighing more, or the
        last iterate.
    shuffle : bool, default=True
        Whether `fit` takes the records in random order. `partial_fit` never changes it.
    precision : {"exact", "float"}, default="exact"
        Arithmetic of the noise. "exact" samples the stated law to the last bit. "float" is
        a little faster, and the low bits of what it publishes may betray a record.
    nonfinite : {"raise", "zero"}, default="raise"
        What is done with a record that holds NaN, an infinity or, in classification, a
        label that was not declared. "raise" raises a `ValueError`, which tells one bit of
        the data that lies outside the guarantee. "zero" makes it an empty record, which
        contributes nothing and is still counted; nothing shows, and the guarantee covers
        such records, too. `predict` always raises.
    accountant : None or BudgetAccountant, default=None
        Where `fit`, or the first call of `partial_fit`, charges the guarantee of the whole
        stream, in full and before it computes anything from the values. None stands for
        the accountant whose ``with`` block is open, if any.
    random_state : None, int or RandomState, default=None
        None draws noise from a cipher keyed by the operating system. An int makes the
        model reproducible and *not private*: whoever knows it can subtract the noise. Use
        it for tests only.

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        In the units of X, float64; private at every moment.
    intercept_ : ndarray of shape (1,) or (n_classes,)
    classes_ : ndarray of shape (n_classes,)
        The sorted labels.
    n_seen_ : int
        Records taken in so far; those of an unfinished step do not show in `coef_` yet.
    n_iter_ : int
        Number of steps, at least 1.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        If X had column names.
    plan_ : FTRLPlan
        Every sensitivity, noise scale, epoch and clip of the stream.
    guarantee_ : Guarantee
        epsilon, delta, relation, and `dp_event`, of what was released so far.
    noise_is_secret_ : bool
        False if `random_state` was given: then whoever knows it can subtract the noise,
        and `guarantee_` does not hold against them.

    Notes
    -----
    Noise: Gaussian, of standard deviation 2 c B sqrt(sum of c_k^2) / mu on what is released
    of each step's sum of gradients, where c_k, k < number of steps, are the coefficients of
    (1 - q)^(-1/2); half of that under zero-out. (epsilon, delta) holds for everything that
    is ever published of the stream, at all times together, provided that **each record is
    fed once**: one that is fed twice composes.

    A stream in progress holds un-noised sums over its records. So does a pickle or a copy of
    the estimator: keep it as you keep the data, or call `finish` first. A restored copy draws
    fresh noise; go on with one copy only, since two that go on release the past twice: they
    compose. Going back to an older pickle counts as a second copy, unless nothing that the
    later one gave was seen.

    References
    ----------
    Arora, Marinov, Ullah (2020) for the aim, whose own noise is too small; Fichtenberger,
    Henzinger, Upadhyay (2023) and Denisov et al. (2022) for the noise. Derivations:
    doc/privacy.rst, sections 2.4 and 6.
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
        horizon: Any = None,
        batch_size: Any = "auto",
        loss: Any = "logistic",
        feasible_set: Any = "l2",
        radius: Any = "auto",
        mirror_map: str = "auto",
        factorization: str = "toeplitz",
        gradient_clip: Any = "auto",
        data_norm: Any = "auto",
        learning_rate: Any = "auto",
        average: bool = True,
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
        self.horizon = horizon
        self.batch_size = batch_size
        self.loss = loss
        self.feasible_set = feasible_set
        self.radius = radius
        self.mirror_map = mirror_map
        self.factorization = factorization
        self.gradient_clip = gradient_clip
        self.data_norm = data_norm
        self.learning_rate = learning_rate
        self.average = average
        self.shuffle = shuffle
        self.precision = precision
        self.nonfinite = nonfinite
        self.accountant = accountant
        self.random_state = random_state

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> DPFTRLClassifier:
        """Take in the next records of the stream, each of them once.

        However the same records are cut into chunks, the model after the last has the same
        law. Parameters are read at the first call. A call that is interrupted takes in the
        whole chunk or nothing of it; `n_seen_` tells which.

        Parameters
        ----------
        X : {array-like, CSR or CSC matrix} of shape (n_samples, n_features)
            Values outside `bounds_X` are clipped.
        y : array-like of shape (n_samples,)
            Labels, all of them among the classes.
        classes : list of labels or None
            The labels that may occur: needed at the first call if the constructor was not
            given them. Given twice, they must agree.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a parameter or the shape of the data is wrong, the classes are missing or do
            not agree, X has a missing or infinite value or y another label, the columns are
            not those of the first call, the stream has ended, or this chunk reaches beyond
            `horizon`. Nothing is taken in then.
        PrivacyBudgetError
            At the first call, if the accountant refuses the charge.
        """
        progress = self._progress()
        declared = self._classes_of_stream(classes, progress)
        positives = range(declared.size) if declared.size > 2 else [1]
        with self._unchanged_on_error():
            X, y = self._validate_chunk(X, y, progress)
            codes = self._codes(y, declared)
            self.classes_ = declared
            if progress is None:
                progress = self._begin(X, n_models=len(positives))
        targets = [np.where(codes == code, 1.0, -1.0) for code in positives]
        results = self._take(progress, X, targets, codes < 0)
        self.coef_ = np.array([result.coef for result in results])
        self.intercept_ = np.array([result.intercept for result in results])
        return self

    def _classes_of_stream(self, classes: Any, progress: _Progress | None) -> NDArray[Any]:
        declared = self.classes_ if progress is not None else self._declared_classes()
        if classes is not None:
            given = check_classes(classes)
            if declared is None:
                return given
            if not np.array_equal(given, declared):
                raise ValueError("classes do not agree with those that were declared before")
        if declared is None:
            raise ValueError("classes must be given to the first call of partial_fit")
        return declared
