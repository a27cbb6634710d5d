"""Models of a stream that are private at every moment: `fit`, and `partial_fit` in chunks."""

from __future__ import annotations

import os
import threading
from collections import ChainMap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal, Self
from uuid import uuid4

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from .._checks import check_count, warn_user
from .._fitting import Lineage
from .._progress import progress_bar
from .._types import AnyArray, ClassificationLoss, ClassLabels, RegressionLoss, SetName, Units
from ..data.bounds import FeatureScaling, largest_weight
from ..data.cells import check_classes, check_order, column_names
from ..data.compressed import slices
from ..data.rows import piece_rows
from ..exceptions import PrivacyLeakWarning
from ..geometry import Geometry
from ..losses import Loss
from ..privacy.accountant import accountant_in_force
from ..privacy.branches import Account
from ..privacy.budget import LONGEST_STREAM
from ..randomness.stream import RandomStream, stream_from_random_state
from ..solvers.base import Solver, by_name
from ..solvers.ftrl import FTRL, FTRLPlan, FTRLRun
from ._base import DPClassifier, DPLinearModel, DPRegressor, Settings, estimator
from ._records import BlocksTable, LocalTable, Targets

# By stream, the part of it that began last in this process; the rest are copies from before it.
_LAST_PARTS: dict[str, str] = {}
_LAST_PARTS_LOCK = threading.RLock()


def _after_fork_in_child() -> None:
    """The parent may go on with each stream, so that all are copies here."""
    global _LAST_PARTS_LOCK
    _LAST_PARTS_LOCK = threading.RLock()  # another thread may have held it
    _LAST_PARTS.update(dict.fromkeys(_LAST_PARTS, ""))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)

_ENDED = (
    "the stream of this model has ended (by fit, by finish or by its horizon): "
    "more records would cost more than its guarantee. Clone it to begin another."
)


@dataclass
class _Progress:
    """What `partial_fit` carries from one chunk to the next; never public.

    A pickle or a copy holds no key and no noise that is still to be added.
    """

    plan: FTRLPlan
    features: FeatureScaling
    targets: Any  # without records
    run: FTRLRun
    noise: RandomStream | None
    charged: list[Account]
    rows_of_users: ChainMap[Any, int] | None  # of the last chunk, before those of earlier ones
    lock: Any = field(repr=False, compare=False)
    name: str = field(default_factory=lambda: uuid4().hex)  # and that of its last part, in copies
    part: str = ""

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"noise": None, "lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, lock=threading.RLock())

    @property
    def is_behind(self) -> bool:
        """Whether a copy of this went on, in this process, from here or from a point before."""
        return _LAST_PARTS.get(self.name, self.part) != self.part

    def go_on(self) -> None:
        """Begin another part, of a stream of its own if a copy has gone on."""
        if self.is_behind:
            self.name = uuid4().hex
        self.part = _LAST_PARTS[self.name] = uuid4().hex

    def stream(self, random_state: Any) -> RandomStream:
        """The stream of noise; a fresh one after a pickle or a copy."""
        if self.noise is None:
            # with a seed, another part of the stream than any that was used before
            root = stream_from_random_state(random_state).substream("restored")
            self.noise = root.substream("model", 0).substream("noise", self.run.n_seen)
        return self.noise


@dataclass(kw_only=True, repr=False, eq=False)
class _StreamingModel(DPLinearModel):
    """What both models of a stream share: the solver's settings, and how a stream is run.

    Parameters
    ----------
    delta : "auto" or float in (0, 1), default="auto"
        ... Must be positive: no form is pure. For a stream of unknown length "auto" is 1e-6, which
        is below 1 / n for up to a million records: set it if there may be more.
    fit_intercept : bool, default=True
        Whether to fit an intercept. The first records (2 to 30 percent where the length of the
        stream is known, else as many as the noise demands) then buy private means of the targets
        and the features, about which the others are centred, and are used for nothing else.
    horizon : int in [1, 2^40] or None, default=None
        Number of records that `partial_fit` will see in all, at most 2^40; more are refused.
        None: not known; the stream is cut into epochs that double, each with the full budget on
        records of its own: the same accuracy takes up to three times as many records. `fit` takes
        the number of rows of its table instead.
    feasible_set : {"l2", "l1", "linf", "simplex"} or Geometry, default="l2"
        The set of the scaled coefficients. "simplex" (non-negative, summing to the radius) needs
        ``fit_intercept=False``.
    units : {"auto", "bounds", "learned"}, default="auto"
        In which the solver works: those of the bounds, or learned from records that are used for
        nothing else. Of features these are uncorrelated ones: up to a tenth of the records, after
        those of the intercept, buys second moments, where that many are enough, `feasible_set` is
        "l2" and `mirror_map`, `data_norm` and `learning_rate` of the solver are left to the plan;
        the set is then one of coefficients of uncorrelated features. "learned" asks for them. Of
        targets the unit is a multiple of their spread, which the first records tell (up to 16 %
        of a known length), if loss ("squared", "absolute", "quantile"), set, `learning_rate`
        and `gradient_clip` state nothing in those of the bounds. Where a third of the records are
        empty, it may be that of the bounds.
    solver : {"auto", "ftrl"} or FTRL, default="auto"
        `solvers.FTRL` has settings; both names stand for its defaults.
    accountant : None, BudgetAccountant or Branch, default=None
        ... The first call of `partial_fit` charges the guarantee of the whole stream, and so does
        the first one under another accountant, or for records outside of the branch it began in.

    Attributes
    ----------
    n_seen_ : int
        Records taken in so far; those of an unfinished step do not show in `coef_` yet.
    plan_ : FTRLPlan
        Every sensitivity, noise scale, epoch and clip of the stream.
    guarantee_ : Guarantee
        ... After `partial_fit`: of what was released so far, in the parts of the stream that have
        begun.

    Notes
    -----
    `fit` takes a whole table in one pass and forgets a stream in progress; `partial_fit` refuses
    more records afterwards, which would cost more.

    Noise: Gaussian, of standard deviation 2 c B sqrt(sum of c_k^2) / mu on what is released
    of each step's sum of gradients, where c_k, k < number of steps, are the coefficients of
    (1 - q)^(-1/2); half of that under zero-out. (epsilon, delta) holds for everything that
    is ever published of the stream, at all times together, provided that **each record is
    fed once**: one that is fed twice composes.

    A stream in progress holds un-noised sums over its records. So does a pickle or a copy of
    the estimator: keep it as you keep the data, or call `finish` first. A restored copy draws
    fresh noise; go on with one copy only, since two that go on release the past twice: they
    compose. Within a process, and in one that was forked from it, a second one is charged to the
    accountant again, in full, and without one warns and is counted among the fits. Going back to
    an older pickle counts as a second copy, unless nothing that the later one gave was seen.

    References
    ----------
    Arora, Marinov, Ullah (2020) for the aim, whose own noise is too small; Fichtenberger,
    Henzinger, Upadhyay (2023) and Denisov et al. (2022) for the noise. Derivations:
    doc/privacy, sections 2.4 and 6.
    """

    _solvers = by_name(FTRL)

    _stream: _Progress | None = field(init=False)

    horizon: int | None = None
    feasible_set: SetName | Geometry = "l2"
    units: Units = "auto"
    solver: Literal["auto", "ftrl"] | Solver = "auto"

    def _settings(self) -> Settings:
        if self.horizon is not None:
            check_count("horizon", self.horizon, high=LONGEST_STREAM)
        weights = getattr(self, "class_weight", None)  # of a classifier
        if isinstance(weights, str) and weights == "balanced":
            raise ValueError(
                "class_weight='balanced' is not for streams, the frequencies of whose classes are "
                "not known before they end: give a dict of public weights, or take "
                "DPLassoFWClassifier, DPMirrorClassifier, DPPhasedSGDClassifier or "
                "HeavyTailDPClassifier"
            )
        return super()._settings()

    def _solve(self, plan: Any, scaling: FeatureScaling, table: LocalTable | BlocksTable) -> None:
        super()._solve(plan, scaling, table)
        self.n_seen_ = plan.problem.n_samples

    def _between_chunks(self) -> Any:
        """A part of a call in which no other thread feeds the stream, if one is in progress."""
        stream = getattr(self, "_stream", None)
        return nullcontext() if stream is None else stream.lock

    @contextmanager
    def _until_spent(self) -> Iterator[None]:
        with self._between_chunks(), super()._until_spent():
            yield
            self._stream = None  # also if the fit is interrupted later on

    def finish(self) -> Any:
        """End the stream, and forget its un-noised sums.

        The model stays as it is. A pickle of it then holds nothing that is not private, and
        `partial_fit` refuses more records. A chunk that another thread feeds is waited for.

        Returns
        -------
        self

        Raises
        ------
        NotFittedError
            If no stream has begun.
        """
        check_is_fitted(self)
        with self._between_chunks():
            self._stream = None
        return self

    # ------------------------------------------------------------ parts of `partial_fit`

    def _progress(self) -> _Progress | None:
        """The stream in progress; None before the first chunk, of which parameters are checked."""
        if not hasattr(self, "_stream"):
            self._settings()
            return None
        if self._stream is None:
            raise ValueError(_ENDED)
        return self._stream

    def _take_in(
        self,
        X: Any,
        y: Any,
        groups: Any,
        sample_weight: Any,
        progress: _Progress | None,
        **classes: AnyArray,
    ) -> Self:
        """Take in a chunk; of a classifier, the first one has the declared `classes`."""
        largest_weight(self.max_weight, has_weights=sample_weight is not None)
        check_order(X=X, y=y, groups=groups, sample_weight=sample_weight)
        # threads take turns, also in counting the rows of users
        lock = threading.RLock() if progress is None else progress.lock
        with lock, np.errstate(all="ignore"):  # as in `fit`
            if progress is not None and self._stream is not progress:
                raise ValueError(_ENDED)  # while this thread waited
            with self._unchanged_on_error():
                given = column_names(y)
                X, y = self._validate(X, y, reset=progress is None, min_samples=1)
                if progress is None:
                    self._target_names, targets = given, self._read(y, **classes)
                    progress = self._begin(X[:0], targets, groups is not None, lock)
                else:
                    targets = progress.targets.of(self._reader, y)
                self._check_chunk(X, y, groups, progress)
                counted: ChainMap[Any, int] | None = None
                if progress.rows_of_users is not None:
                    last, earlier = progress.rows_of_users.maps
                    earlier.update(last)  # totals: after an interrupt it is done again
                    counted = ChainMap({}, earlier)
                rows = progress.plan.budget.rows_per_user
                is_surplus = self._surplus(X, groups, rows, counted)
                weight = self._reader.weights(X, sample_weight, targets)
                X = X.tocsr() if sparse.issparse(X) else X
                table = LocalTable(self._reader, X, targets, is_surplus, weight)
                with _LAST_PARTS_LOCK:
                    self._charge_stream(progress)
                    progress.go_on()
            self._feed(progress, table, counted)
        return self

    def _check_chunk(self, X: Any, y: Any, groups: Any, progress: _Progress) -> None:
        """Raise if it does not go with the chunks before it."""
        first, n_seen = progress.targets.y, progress.run.n_seen
        if y.shape[1:] != first.shape[1:]:
            raise ValueError(
                f"y has the shape {y.shape}, but that of the first chunk was "
                f"{('n', *first.shape[1:])}: each chunk needs the same targets"
            )
        if n_seen + X.shape[0] > (horizon := progress.plan.problem.n_samples):
            raise ValueError(
                f"{n_seen} records were seen and {X.shape[0]} more are given, which is beyond "
                f"horizon={horizon}"
            )
        if (groups is None) != (progress.rows_of_users is None):
            raise ValueError("groups must be given with every chunk of a stream, or with none")

    def _begin(self, empty: Any, targets: Targets, has_groups: bool, lock: Any) -> _Progress:
        """Plan the whole stream; `empty` is X without records, of which no value is read."""
        settings = self._settings()  # anew: a block may have been opened since
        has_horizon, horizon = self.horizon is not None, self.horizon or LONGEST_STREAM
        accounting = settings.accounting
        if not has_horizon:
            accounting = accounting._replace(sizes_delta=False)
        # without a horizon, no delta is known to be large, and no number of records small
        weak = self.horizon or 1, empty.shape[1] * has_horizon, self._least * has_horizon
        accounting.warn_if_weak(*weak)
        solver = settings.solver.with_facts(doubling=not has_horizon, shuffle=False)
        settings = settings._replace(solver=solver, accounting=accounting)
        plan, features = self._planned(settings, horizon, empty, targets)
        is_secret = self.random_state is None
        self.__dict__.update(noise_is_secret_=is_secret, plan_=plan, n_seen_=0)
        self.__dict__.update(self._units_used(features, None))
        users: ChainMap[Any, int] | None = ChainMap({}, {}) if has_groups else None
        public = plan, features, targets.without_records()
        self._stream = _Progress(*public, FTRLRun(plan), None, [], users, lock)
        return self._stream

    def _charge_stream(self, progress: _Progress) -> None:
        """Charge the stream in full, where a chunk releases what nobody has paid for.

        To the account in force, unless one that covers it was charged; and after a copy went on,
        whose releases of the same records compose with these, to all that were charged.
        """
        account, charged = accountant_in_force(self.accountant), progress.charged
        new: list[Account] = []
        if account is not None and not any(one.covers(account) for one in charged):
            new = [account]
        to_charge: list[Account | None] = [*new]
        if progress.is_behind:
            to_charge += charged
            if not to_charge:
                warn_user(
                    "a copy of this stream has gone on, and releases the same records a second "
                    "time: the guarantees of both compose. Go on with one copy only, or give an "
                    "accountant, which is charged for each",
                    PrivacyLeakWarning,
                )
                self.__dict__.setdefault("_lineage", Lineage()).has_copies = True
        is_first = not progress.part
        if not to_charge and (is_first or progress.is_behind):
            to_charge = [None]
        # of the seed that the stream began with, whatever is set now
        facts = {"has_groups": progress.rows_of_users is not None}
        for one in to_charge:
            self._spend(one, progress.plan, is_secret=self.noise_is_secret_, **facts)
        progress.charged = [*charged, *new]
        if is_first:
            progress.noise = self._noise_of("model").substream("noise")

    def _feed(
        self, progress: _Progress, table: LocalTable, counted: ChainMap[Any, int] | None
    ) -> None:
        """Feed one chunk to the model, and publish what it is now; needs the lock.

        An error or an interrupt leaves the stream before the chunk, and nothing has been
        published then: no record enters twice if the call is repeated.
        """
        plan, n = progress.plan, table.shape[0]
        with progress_bar(self.verbose, n, "record", type(self).__name__) as bar:
            stream = progress.stream(None if self.noise_is_secret_ else self.random_state)
            facts = progress.features, plan.problem.fit_intercept
            run = progress.run.copy()
            for part in slices(n, piece_rows(*table.shape, sparse.issparse(table.X))):
                run.add(table.part(part).records(*facts), stream)
                bar.update(part.stop - part.start)
            result = run.result()
            claim = {"noise_is_secret": self.noise_is_secret_, "has_groups": counted is not None}
            published = {
                "n_seen_": run.n_seen,
                "n_iter_": result.n_iter,
                "guarantee_": plan.guarantee_after(run.n_seen).of_fit(fits=self._fits, **claim),
                # nothing un-noised outlives the last release
                "_stream": None if run.n_seen == plan.problem.n_samples else progress,
                "_targets": table.targets.without_records(),
                **table.targets.model(result, progress.features),
            }
            # no interrupt comes between these: no call ends before the last of them
            if self._stream is not progress:
                raise ValueError(_ENDED)  # by a signal's handler, in this thread
            progress.run, progress.rows_of_users = run, counted
            self.__dict__.update(published)


@estimator
class DPFTRLRegressor(_StreamingModel, DPRegressor):
    """Linear regression on a stream, private at every moment.

    Follows the regularized leader on noisy sums of the clipped gradients of
    l(m + <w, x - c> + b, y), in scaled units, m and c being private means of the first records'
    targets and features. `partial_fit` takes the stream in chunks of any size.

    Parameters that are not described here: see `_StreamingModel`, and `DPRegressor` and
    `DPLinearModel` in `_base.py`.

    Parameters
    ----------
    loss : str or Loss, default="squared"
        One of "squared", "huber", "absolute", "quantile", "epsilon_insensitive", "welsch",
        "log_absolute", "mcp_absolute" or an object. In scaled units; need not be smooth or convex.
    feasible_set : {"l2", "l1", "linf", "simplex"} or Geometry, default="l2"
        ... Of a name, the radius is 3, or 1 for "simplex".

    Examples
    --------
    A stream that is told how long it is, read chunk by chunk, and ended:

    >>> import numpy as np
    >>> from sklearn_dpsco import DPFTRLRegressor
    >>> rng = np.random.default_rng(0)
    >>> model = DPFTRLRegressor(bounds_X=(-1, 1), bounds_y=(-2, 2), horizon=20000)
    >>> for _ in range(10):
    ...     X = rng.uniform(-1, 1, (2000, 3))
    ...     _ = model.partial_fit(X, X[:, 0])
    >>> model.n_seen_, model.guarantee_.epsilon
    (20000, 1.0)
    >>> bool(model.coef_[0] > 0.5)
    True
    """

    loss: RegressionLoss | Loss = "squared"

    def partial_fit(self, X: Any, y: Any, *, groups: Any = None, sample_weight: Any = None) -> Self:
        """Take in the next records of the stream, each of them once.

        However the same records are cut into chunks, the model after the last has the same
        law. Parameters are read at the first call. A call that is interrupted takes in the
        whole chunk or nothing of it; `n_seen_` tells which.

        Parameters
        ----------
        X : {array-like, CSR or CSC matrix} of shape (n_samples, n_features)
            Values outside `bounds_X` are clipped.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Values outside `bounds_y` are clipped.
        groups : array-like of shape (n_samples,) or None, default=None
            As in `fit`, over the whole stream: of each user the first `max_rows_per_user` rows
            count. With every chunk or with none; the stream in progress remembers the labels.
        sample_weight : array-like of shape (n_samples,) or None, default=None
            As in `fit`, over the `max_weight` of this call; None stands for weights of that.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a parameter or the shape of the data is wrong, X, y or sample_weight has an invalid
            value, the columns are not those of the first call, the stream has
            ended, or this chunk reaches beyond `horizon`. Nothing is taken in then.
        PrivacyBudgetError
            If an accountant is in force to which the stream was not charged yet (at the first
            call, in another block or branch), and it refuses the charge. Nothing is taken in then.
        """
        return self._take_in(X, y, groups, sample_weight, self._progress())


@estimator
class DPFTRLClassifier(_StreamingModel, DPClassifier):
    """Linear classification on a stream, private at every moment.

    Follows the regularized leader on noisy sums of the clipped gradients of
    l(m + <w, x - c> + b, y), in scaled units, y being -1 or +1, m the best constant for the
    private mean of the first records' labels (its log-odds for the logistic loss) and c private
    means of their features. `partial_fit` takes the stream in chunks of any size.

    Parameters that are not described here: see `_StreamingModel`, and `DPClassifier` and
    `DPLinearModel` in `_base.py`.

    Parameters
    ----------
    classes : list of labels or None, default=None
        ... `partial_fit` never takes them from y: with None, its first call needs them as an
        argument.
    class_weight : dict {label: weight} or None, default=None
        Weights of at least 0 by which the records' weights are multiplied, 1 for a class that is
        not in the dict. They are public: never take them from the data. They are divided by the
        largest, so that the noise is that of records which all have that weight, and a class of
        weight 0 is left out. There is no "balanced": the frequencies of a stream's classes are not
        known before it ends.
    loss : str or Loss, default="logistic"
        One of "logistic", "smoothed_hinge", "hinge", "squared_hinge", "sigmoid" or an object. In
        scaled units; need not be smooth or convex.
    feasible_set : {"l2", "l1", "linf", "simplex"} or Geometry, default="l2"
        ... Of a name, the radius is 30.

    Examples
    --------
    Coefficients that may be published after every chunk, all of them under one epsilon:

    >>> import numpy as np
    >>> from sklearn_dpsco import DPFTRLClassifier
    >>> rng = np.random.default_rng(0)
    >>> model, published = DPFTRLClassifier(bounds_X=(-1, 1), classes=["no", "yes"]), []
    >>> for day in range(3):
    ...     X = rng.uniform(-1, 1, (3000, 2))
    ...     _ = model.partial_fit(X, np.where(X[:, 0] > 0, "yes", "no"))
    ...     published.append(model.coef_)
    >>> model.n_seen_, model.guarantee_.epsilon
    (9000, 1.0)
    >>> model.finish().predict([[1, 0]]).tolist()
    ['yes']
    """

    class_weight: Mapping[Any, float] | None = None
    loss: ClassificationLoss | Loss = "logistic"

    def partial_fit(
        self,
        X: Any,
        y: Any,
        classes: ClassLabels | None = None,
        *,
        groups: Any = None,
        sample_weight: Any = None,
    ) -> Self:
        """Take in the next records of the stream, each of them once.

        As `DPFTRLRegressor.partial_fit`, with labels.

        Parameters
        ----------
        X : {array-like, CSR or CSC matrix} of shape (n_samples, n_features)
            Values outside `bounds_X` are clipped.
        y : array-like of shape (n_samples,)
            Labels, all of them among the classes.
        classes : list of labels or None
            The labels that may occur: needed at the first call if the constructor was not
            given them. Given twice, they must agree.
        groups, sample_weight : array-like of shape (n_samples,) or None, default=None
            As in `DPFTRLRegressor.partial_fit`.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            As `DPFTRLRegressor.partial_fit`, or if the classes are missing or do not agree, or
            y has another label. Nothing is taken in then.
        PrivacyBudgetError
            If an accountant is in force to which the stream was not charged yet (at the first
            call, in another block or branch), and it refuses the charge. Nothing is taken in then.
        """
        progress = self._progress()
        declared = self._declared_classes() if progress is None else progress.targets.classes
        if classes is not None:
            given = check_classes(classes)
            if declared is not None and not np.array_equal(given, declared):
                raise ValueError("classes do not agree with those that were declared before")
            declared = given if declared is None else declared
        if declared is None:
            raise ValueError("classes must be given to the first call of partial_fit")
        return self._take_in(X, y, groups, sample_weight, progress, classes=declared)
