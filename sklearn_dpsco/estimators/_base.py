"""What all estimators share; a concrete one holds parameters and a docstring, and names solvers."""

from __future__ import annotations

import copy
import functools
import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Self, cast, dataclass_transform, get_type_hints

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import column_or_1d
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from .._checks import (
    check_bool,
    check_choice,
    check_count,
    first_of,
    import_pandas,
    naming,
    shown,
    telling,
    unwarned,
    warn_user,
)
from .._fitting import Accounting, C, PrivateEstimator, in_order
from .._progress import check_verbose, moving, progress_bar
from .._types import AnyArray, Array, Bounds, ClassLabels, ClassWeight, FeatureBounds
from ..data import bounds, cells
from ..data.blocks import here, map_blocks, without_rows
from ..data.compressed import with_values
from ..data.rows import blas_alone
from ..exceptions import PrivacyParameterWarning
from ..geometry import Geometry, get_geometry
from ..losses import Loss, base_loss, get_loss
from ..preprocessing.declared import check_maker, declared_bounds, output_names, table_columns
from ..preprocessing.encoder import references
from ..preprocessing.scaler import DPScaler
from ..solvers.base import Plan, Problem, Solver, plan_within
from ..solvers.defaults import LEARNED_UNITS
from ._public import NO_INFERENCE, OF_INFERENCE, equivalent, merged
from ._records import BlocksTable, LocalTable, Reader, Targets, class_weights, read_blocks

_SMALL = 2.0**-600  # any float times this times a coefficient is finite
# messages of metrics; others show a cell, or all labels that occur
_QUOTES_NOTHING = (
    "Found input variables",
    "Input contains",
    "Input sample_weight contains",
    "Mean Tweedie deviance",
    "Sample weights must",
    "y must hold",
    "y should be a 1d array",
    "y_true and y_pred have",
)


@dataclass_transform(kw_only_default=True, eq_default=False)
def estimator(cls: C) -> C:
    """A public estimator, whose fields are parameters: keywords that are kept untouched.

    Its docstring is made complete, and the error of an unknown parameter names what is meant.
    """
    doc, made = cls.__doc__, cast(Any, dataclass(kw_only=True, repr=False, eq=False)(cls))
    hints = get_type_hints(made)
    names = inspect.signature(in_order(made)).parameters
    made.__init__.__annotations__ = {name: hints[name] for name in names}
    naming(functools.partial(equivalent, made))(made)
    made.__doc__ = doc
    made.__doc__ = merged(made)
    return cls


class Settings(NamedTuple):
    """The parameters of an estimator that decide a plan, checked and resolved once."""

    solver: Solver
    accounting: Accounting
    loss: Loss
    facts: dict[str, Any]  # what else parameters, or a table, say of the `Problem`

    def plan(self, shape: tuple[int, int], n_outputs: int, **declared: Any) -> Plan:
        """The plan of a fit on data of this size; facts of features and classes are `declared`."""
        budget = self.accounting.of_size(shape[0]).budget
        rows = budget.rows_per_user
        users = {"n_users": shape[0] // rows if rows > 1 else 0}  # as few as there may be
        facts = users | declared | self.facts
        problem = Problem(*shape, self.loss.of_outputs(n_outputs), **facts)
        return plan_within(budget, functools.partial(self.solver.plan, problem))


@telling(dict.fromkeys(OF_INFERENCE, NO_INFERENCE))
@dataclass(kw_only=True, repr=False, eq=False)
class DPLinearModel(PrivateEstimator, BaseEstimator):
    """Base of the linear models trained under differential privacy.

    The docstring of a public estimator is put together from those of its classes, see
    `_public.merged`: what all estimators share is described here.

    Parameters
    ----------
    epsilon : float in [1e-15, 1e9] or inf, default=1.0
        Privacy loss. Smaller is more private and less accurate. inf runs the same method, with its
        clips, without any noise, which shows what noise costs: nothing is private then,
        `guarantee_.epsilon` is inf, a `PrivacyLeakWarning` says so, and no accountant accepts it.
    delta : "auto" or float in [0, 1), default="auto"
        Slack of the guarantee, in units of probability: for any set of outcomes, its
        probability is at most e^epsilon times that on a neighbouring table, plus delta.
        Should be well below 1 over the number of records. "auto" is min(1e-6, 1 / (10 n)) for n
        records, or under an accountant the accountant's delta.
    relation : {"auto", "replace-one", "zero-out"}, default="auto"
        Which tables are neighbours (for a stream: which sequences of records): two that differ
        in the values of one record, or two of which one has, in the place of a record of the
        other, one that contributes nothing. "auto" is that of the accountant in force when a plan
        is made or a fit begins, or without one "replace-one". The number of records is public in
        both. Zero-out needs about half of the noise, and its (epsilon, delta) implies replace-one
        (2 epsilon, (1 + e^epsilon) delta).
    max_weight : float in [1e-50, 1e50] or None, default=None
        The largest weight that counts, if `fit` is given a `sample_weight`: weights are divided by
        it, and larger ones count as 1. Declare it from domain knowledge, never from the weights:
        noise is that of a table whose weights all are `max_weight`. None stands for 1, and a fit
        with weights warns `BoundsNotDeclaredWarning`.
    max_rows_per_user : "auto" or int in [1, 1e15], default="auto"
        The guarantee is for all rows of one person together, of whom nobody has more than this:
        a promise of yours, or kept by `groups` in `fit`. Neighbours then differ in all of them.
        Without `groups` the noise is this many times larger. With them the default solver clips
        what all rows of a person say together, and adds noise to hide that
        (:ref:`section-4.5e`): of tables in one place with at most 1000 columns. Random batches are
        not amplified. "auto" is the accountant's, or without one 1.
    bounds_X : pair (low, high), dict, transformer or None, default=None
        Bounds of the features from domain knowledge, never from the data: scalars; lists or arrays
        of shape (n_features,), in a tuple (lows, highs), but no list of pairs; or for a data frame
        ``{column: (low, high)}``. Values outside are clipped. Ends lie within [-1e50, 1e50], at
        least 1e-50 and 1e-12 times the larger one apart. In scaled units a feature is
        (x - middle) / half width, in [-1, 1]; one whose bounds have an end at 0 is divided by the
        size of the other end and not centred. Sparse X needs bounds with an end at 0 or symmetric
        about 0. A transformer that declares its outputs, such as the `PublicEncoder` before the
        estimator in a `Pipeline`, stands for their bounds and for the largest norm of a row:
        ``make_pipeline(encoder, DPMirrorRegressor(bounds_X=encoder))``. None stands
        for (-1, 1) and warns `BoundsNotDeclaredWarning`.
    precision : {"exact", "float"}, default="exact"
        Arithmetic of the noise. "exact" samples the stated laws to the last bit. "float" is a
        little faster, and the low bits of what it publishes may reveal something about a record.
    nonfinite : {"raise", "zero"}, default="raise"
        What is done in training with an invalid record: one that holds NaN, an infinity or
        no number at all (in a list, a data frame or an array of objects), a weight that is one of
        these or negative, or in classification a label that is missing or was not declared.
        "raise" raises a `ValueError`, which tells one bit of the data that lies outside the
        guarantee. "zero" makes it an empty record, which contributes nothing and is still counted;
        no error and no warning shows it, and the guarantee covers such records, too. With "zero",
        `predict` takes for a gap the released centre of its column, or if the model has none the
        middle of its bounds (0 if one of them is 0); with "raise" it raises.
    accountant : None, BudgetAccountant or Branch, default=None
        Where `fit` charges its guarantee, in full, after the data were checked and before
        anything else is computed from their values; a branch of `BudgetAccountant.parallel` is for
        fits on its records. None stands for the accountant whose ``with`` block is open, if any.
    random_state : None, int or RandomState, default=None
        None draws noise from a cipher keyed by the operating system. An int or a RandomState
        makes the result reproducible and *not private*: whoever knows it can subtract the
        noise. Use it for tests only.
    verbose : int >= 0 or bool, default=0
        From 1 on, a bar on standard error counts the steps of the plan, which are public, and
        nothing else; from 2 on the plan is shown first. Needs tqdm.

    Attributes
    ----------
    n_iter_ : int
        Number of steps; 1 if none was taken.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, if X had column names.
    plan_ : Plan
        Every sensitivity, noise scale, step and clip of the run.
    guarantee_ : Guarantee
        epsilon, delta, relation, and `dp_event` for `dp_accounting`.
    noise_is_secret_ : bool
        False if `random_state` was given: then whoever knows it can subtract the noise, and
        `guarantee_` does not hold against them.
    """

    _task: ClassVar[str]
    _read: ClassVar[Callable[..., Targets]]  # the targets of a fit from validated y
    # the m = n mu / phi below which noise hides all, over the root of the number of outputs
    _least: ClassVar[float] = 0.0
    _solvers: ClassVar[Mapping[str, type[Solver]]]  # by the names that stand for them
    _lowest: ClassVar[float] = -np.inf  # valid target of a regression
    _may_plan_set = False  # whether feasible_set="auto" is left to the plan
    _with_settings: ClassVar[Any] = None  # that has the parameters which this one does without

    max_weight: float | None = None
    bounds_X: FeatureBounds | None = None
    fit_intercept: bool = True
    verbose: int = 0

    # what each estimator has by a default, or a type, of its own
    inference: Any = field(default=False, init=False)
    loss: Any = field(init=False)
    feasible_set: Any = field(init=False)
    units: Any = field(init=False)
    solver: Any = field(init=False)

    def set_params(self, **params: Any) -> Self:
        """Set parameters, as scikit-learn's estimators do; ``solver__name`` those of the solver."""
        own = self.get_params(deep=False)
        solver = (own | params)["solver"] if "solver" in own else None
        inner = [name.partition("__")[2] for name in params if name.startswith("solver__")]
        if inner and isinstance(solver, str):
            named = self._solvers.get(solver, Solver)
            kinds = [k for k in (named, *self._solvers.values()) if inner[0] in k().get_params()]
            advice = f", and no solver here has {inner[0]!r}"
            if kinds:  # of "auto", whose class has no parameters, the first that has this one
                advice = f": write solver={kinds[0].__name__}({inner[0]}=...)"
                advice += ", from sklearn_dpsco.solvers"
            raise ValueError(f"solver={solver!r} is a name, which has no parameters{advice}")
        return super().set_params(**params)

    def _solver(self) -> Solver:
        kinds = tuple(self._solvers.values())
        if isinstance(self.solver, kinds):
            return self.solver.resolved()
        if not isinstance(self.solver, str) or self.solver not in self._solvers:
            names = dict.fromkeys(kind.__name__ for kind in kinds)
            raise ValueError(
                f"solver must be one of {', '.join(map(repr, self._solvers))}, or of "
                f"sklearn_dpsco.solvers an object of {', '.join(names)}; got {shown(self.solver)}"
            )
        return self._solvers[self.solver]().resolved()

    def _settings(self) -> Settings:
        """All parameters, checked; raises on any that is wrong whatever the data are."""
        bounds.check_feature_bounds(self.bounds_X)
        accounting, solver = self._accounting(), self._solver()
        loss = get_loss(self.loss, self._task)
        is_auto = isinstance(self.feasible_set, str) and self.feasible_set == "auto"
        # the plan chooses the set of "auto", and the radius of another name
        plans_set = is_auto and self._may_plan_set
        feasible_set = Geometry if plans_set else get_geometry(self.feasible_set)
        fit_intercept = check_bool("fit_intercept", self.fit_intercept)
        if fit_intercept and not feasible_set.allows_intercept:
            raise ValueError(
                f"feasible_set={self.feasible_set!r} needs fit_intercept=False: its points have "
                "no room for an intercept"
            )
        units = check_choice("units", self.units, ("auto", "bounds", "learned"))
        solver.check(loss, feasible_set, accounting.budget, units)
        inference = check_bool("inference", self.inference)
        if inference and solver.form not in ("auto", "descent"):
            raise ValueError(f"inference=True is for solver='descent', got {shown(self.solver)}")
        bounds.check_target_bounds(getattr(self, "bounds_y", None))  # of a regressor
        bounds.largest_weight(self.max_weight)
        check_verbose(self.verbose)
        facts = {"feasible_set": feasible_set, "fit_intercept": fit_intercept, "units": units}
        facts |= {"inference": inference, "may_be_empty": not self._is_strict}
        return Settings(solver, accounting, loss, facts)

    def _feature_scaling(self, ends: Any, empty: Any) -> bounds.FeatureScaling:
        """The public map of the features to scaled units; `empty` is X without records."""
        encoder: Any = self.bounds_X
        is_alone = hasattr(encoder, "output_columns")
        lists = references(encoder) if is_alone and not self.fit_intercept else None
        # (the columns of a whole list are an intercept by themselves)
        if lists is not None and None not in lists.values():
            middles = [one.source for one in encoder.output_columns() if one.shift]
            if middles:
                warn_user(
                    "fit_intercept=False: the model goes through 0 of what the encoder makes, the "
                    f"middle of the bounds of {first_of(middles)}. Those with an end at 0 keep 0",
                    PrivacyParameterWarning,
                )
        facts = ends, empty.shape[1], self._feature_names()
        return bounds.feature_scaling(*facts, through_zero=not self.fit_intercept)

    @property
    def _reader(self) -> Reader:
        # (a stream does not check its parameters again)
        largest = bounds.largest_weight(self.max_weight)
        return Reader(type(self).__name__, self._task, self._is_strict, largest, self._lowest)

    def _validate(
        self, X: Any, y: Any, *, reset: bool = True, min_samples: int = 2
    ) -> tuple[Any, Any]:
        """X and y as arrays; with nonfinite="zero" they may hold invalid records."""
        cells.check_in_memory("a fit of X in memory", y)
        check_maker(getattr(self, "bounds_X", None), X)
        if getattr(X, "ndim", 2) == 1 and getattr(y, "ndim", 1) == 2:
            raise ValueError("X has one dimension and y has two: fit takes X first, and then y")
        X = self._features(X, reset=reset, min_samples=min_samples)
        y = self._reader.targets(y)
        cells.check_lengths(X=X, y=y)
        return X, y

    def _table(
        self, X: Any, y: Any, groups: Any, sample_weight: Any, rows_per_user: int
    ) -> LocalTable | BlocksTable:
        """The validated arguments of a fit; of blocks of rows elsewhere, all `groups` come here."""
        reader, by_user = self._reader, self.inference and rows_per_user > 1
        if self.inference:
            own = (name for name in ("bounds_X", "bounds_y") if hasattr(self, name))
            bounds.check_declared("inference=True", **{name: getattr(self, name) for name in own})
        if by_user and groups is None:
            raise ValueError(
                "inference=True with max_rows_per_user > 1 needs groups, the user of each row: "
                "standard errors are those of users, whose rows are not independent"
            )
        if by_user and cells.is_elsewhere(X):
            raise ValueError(
                "inference=True with max_rows_per_user > 1 needs a table in memory: a user's rows "
                "may lie in several blocks. Take max_rows_per_user=1, or X as an array"
            )
        if y is None:  # which is refused, before X is read
            reader.targets(y)
        cells.check_order(X=X, y=y, groups=groups, sample_weight=sample_weight)
        if not cells.is_elsewhere(X):
            X, y = self._validate(X, y)
            targets = self._read(y)
            is_known = rows_per_user > 1 and groups is not None
            users = cells.user_numbers(cells.as_users(groups)) if is_known else None
            is_surplus = self._surplus(X, groups, rows_per_user, numbers=users)
            weight = reader.weights(X, sample_weight, targets)
            n_users = 0 if users is None else int(users.max()) + 1
            return LocalTable(reader, X, targets, is_surplus, weight, users, n_users)
        # groups elsewhere are read with X, whose order may change
        there = groups if cells.is_elsewhere(groups) else None
        given = {"y": y, "weight": sample_weight, "groups": there}
        found, bare, users = read_blocks(reader, X, given, self._declared_classes())
        validate_data(self, bare, "no_validation", reset=True, skip_check_array=True)
        if found.shape[0] < 2:
            raise ValueError(
                f"Found array with {found.shape[0]} sample(s) while a minimum of 2 is required."
            )
        users = groups if there is None else users
        return found.of(self._read(found.targets), self._surplus(users, users, rows_per_user))

    def _declared_classes(self) -> AnyArray | None:
        """Those of a classifier; None if there are none."""
        classes = getattr(self, "classes", None)
        return None if classes is None else cells.check_classes(classes)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "coef_")

    def _planned(
        self, settings: Settings, n_samples: int, empty: Any, targets: Targets
    ) -> tuple[Any, bounds.FeatureScaling]:
        """The plan of a fit, and the public map of the features.

        `empty` is X without its records; no value of X is read.
        """
        ends, declared = declared_bounds(self.bounds_X, empty.shape[1])
        shape, weights = (n_samples, empty.shape[1]), targets.class_weight
        plan = settings.plan(shape, targets.n_outputs, class_weight=weights, **declared)
        scaling = self._feature_scaling(ends, empty)
        scaling.transform(empty)  # bounds that do not suit sparse X: an error before the charge
        return plan, scaling

    def _solve(
        self: Any, plan: Plan, scaling: bounds.FeatureScaling, table: LocalTable | BlocksTable
    ) -> None:
        """Follow the plan, and set the attributes of the model."""
        stream, name = self._noise_of("model"), type(self).__name__
        bar = progress_bar(self.verbose, plan.n_steps, "step", name, plan)
        with blas_alone(), bar as shown, moving(shown):
            data: Any = table.data(scaling, plan.problem.fit_intercept, plan.reads_pieces)
            result = plan.run(data, stream)
        self._keep_claim(plan, stream)
        self.__dict__.update(
            n_iter_=result.n_iter,
            _scaled_model=result,
            _targets=table.targets.without_records(),
            _estimates=None,
            **self._units_used(scaling, result.units),
            **table.targets.model(result, scaling),
        )
        if result.estimate is not None:  # which plans of `Inference` alone have
            self._keep_estimate(result.estimate, scaling, table.targets)

    def _units_used(self, scaling: bounds.FeatureScaling, units: Any) -> dict[str, Any]:
        """Attributes that tell of the features' units: where scaled features are 0, and their 1.

        And by what they were encoded, a copy, as parameters may change after the fit; of other
        transformers the names, if they are fitted, and what encoders in them tell.
        """
        maker: Any = self.bounds_X
        encoder = copy.deepcopy(maker) if hasattr(maker, "output_columns") else None
        columns = None
        if encoder is None and bounds.is_declaring(maker):
            with suppress(Exception):  # some have no names
                columns, own = table_columns(maker), self._names
                is_known = columns is not None
                names = output_names(maker) if is_known else maker.get_feature_names_out()
                if len(names) == len(own):  # (a clone is not fitted and need not know all of them)
                    pairs = zip(names, own, strict=True)
                    encoder = [there if name is None else name for name, there in pairs]
        whole = (scaling.high - scaling.low) / scaling.width  # of the bounds, in their units
        units = {"_origin": scaling.shift, "_width": scaling.width}
        units["_whole"] = np.where(np.isfinite(whole), whole, 1.0)
        units["_references"] = references(maker) if bounds.is_declaring(maker) else None
        return units | {"_encoder": encoder, "_columns": columns}

    def fit(self, X: Any, y: Any, *, groups: Any = None, sample_weight: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : {array-like, CSR or CSC matrix, collection of Dask} of shape (n_samples, n_features)
            Values outside `bounds_X` are clipped. Blocks of rows elsewhere are an array or a frame
            of Dask, or a list of delayed parts or futures: see :ref:`scaling`.
        y : array-like of shape (n_samples,), of numbers also (n_samples, n_targets)
            Numbers, which are clipped to `bounds_y`, or labels, all of them among `classes` if
            those were declared. With blocks of X, those of the same rows, or an array in memory; so
            are `groups` and `sample_weight`. Rows of all of them go together by place, and two with
            the same pandas labels of rows in other orders are an error.
        groups : array-like of shape (n_samples,) or None, default=None
            The user whom each row belongs to: numbers or text; beyond 2^53 integers, since floats
            cannot tell those apart, and are an error. Of each user the first `max_rows_per_user`
            rows of the table count, and the others are empty records, which contribute nothing: a
            `PrivacyParameterWarning` says how many. A row without a label (missing, or one that
            cannot be compared) is an error, or with ``nonfinite="zero"`` an empty record. Which
            rows belong to one user is not protected. None: you promise that nobody has more rows,
            and with `max_rows_per_user` above 1 the noise is larger.
        sample_weight : array-like of shape (n_samples,) or None, default=None
            Weights of at least 0, private like the rest of a record; that they are given is public.
            Divided by `max_weight` and clipped to [0, 1], a weight multiplies what its record adds
            to the gradients, whose sums are over n all the same: many small weights mean a small
            signal in the same noise, and a larger `l2_penalty` of the solver in proportion. A
            record of weight 0 is empty. What is released besides gradients (means, centres, lengths
            and spreads of features and targets, and frequencies of classes) counts all other
            records alike: the intercept that follows from it is a start, which the descent
            corrects. But the default solver without a set, and phased SGD in learned units, release
            weights of classes in the place of frequencies. Weights by class are better a
            classifier's `class_weight`, which is public and needs no release.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a parameter or the shape of the data is wrong, or the indices of a sparse X point
            outside of it or are neither of int32 nor of int64, or, unless ``nonfinite="zero"``,
            if X, y or sample_weight has a value that is missing, infinite or no number, y a label
            that was not declared, or a weight is negative.
            Nothing is spent then. The errors tell one bit of the data that lies outside the
            guarantee: that it is invalid.
        PrivacyBudgetError
            If the accountant refuses the charge. Nothing is spent then, either.
        BlocksChangedError, TasksLostError
            If blocks are elsewhere, and are not the same when they are read again, or their workers
            or scheduler are lost; the charge stays.
        """
        bounds.largest_weight(self.max_weight, has_weights=sample_weight is not None)
        return self._fit(self._settings(), X, y, groups, sample_weight)

    def _fit(self, settings: Settings, X: Any, y: Any, groups: Any, sample_weight: Any) -> Self:
        """`fit` with weights of which nothing is left to say."""
        with np.errstate(all="ignore"):  # what numpy warns of may be the value of one record
            with self._until_spent():
                self._target_names = cells.column_names(y)
                rows = settings.accounting.budget.rows_per_user
                table = self._table(X, y, groups, sample_weight, rows)
                has_groups, has_weights = groups is not None, sample_weight is not None
                # a block may have been opened since
                accounting = self._accounting().of_size(table.shape[0])
                facts = settings.facts | {"n_users": table.n_users, "has_weights": has_weights}
                facts["target_scaling"] = table.targets.scaling or bounds.TargetScaling()
                # those of weight 0 are, and those beyond the rows of their user
                facts["may_be_empty"] |= has_groups or has_weights
                settings = settings._replace(accounting=accounting, facts=facts)
                least = self._least * math.sqrt(table.targets.n_outputs)
                times = accounting.warn_if_weak(*table.shape, least)
                n, empty = table.shape[0], table.X[:0]
                plan, scaling = self._planned(settings, n, empty, table.targets)
                self._spend(accounting.accountant, plan, has_groups=has_groups)
            self._solve(plan, scaling, table)
            n_present = self._scaled_model.n_present
            if n_present is not None:
                times = min(times, accounting.warn_if_weak(*table.shape, least, n_present))
            if times >= 3:
                # noise of columns' means is a few percent of their bounds then, and no sign of one
                for note in self._beyond(scaling if times >= 30 else None, table.targets.scaling):
                    wrong = "Is a unit wrong, or a bound?"
                    if not note.startswith("most values of the target "):
                        wrong += " Behind a PublicEncoder bounds_X=encoder is right"
                    warn_user(f"{note}. {wrong}", PrivacyParameterWarning)
        return self

    def _beyond(self, features: Any, target: Any) -> Iterable[str]:
        """Notes on released means of columns and targets that tell of bounds that do not suit."""
        return ()

    def _plan(
        self, settings: Settings, shape: tuple[Any, Any], n_outputs: int, class_weight: Any = None
    ) -> Plan:
        """The plan of a fit on data of this size, of which there are none yet."""
        n = check_count("n_samples", shape[0], low=2)
        is_step = hasattr(shape[1], "get_feature_names_out")
        d = check_count("n_features", len(output_names(shape[1])) if is_step else shape[1])
        bounds.check_feature_bounds(self.bounds_X, d)
        settings.accounting.warn_if_weak(n, d, self._least * math.sqrt(n_outputs))
        _, declared = declared_bounds(self.bounds_X, d)
        return settings.plan((n, d), n_outputs, class_weight=class_weight, **declared)

    @property
    def _usual_row(self) -> Array:
        """What predictions take for gaps: released centres, or where scaled features are 0."""
        result: Any = getattr(self, "_scaled_model", None)
        has_own = result is None or result.units is not None  # of which the origin is the centre
        center = None if has_own else getattr(result.frame, "center", None)
        # a mean of few rows may lie beyond the bounds by its noise
        within = 0.0 if center is None else np.clip(center, -1.0, 1.0)
        return np.asarray(self._origin + self._width * within)

    def _predicted(self, X: Any, made_of_scores: Callable[[Array], Any]) -> Any:
        """What is made of raw predictions; of blocks elsewhere, a lazy array of Dask."""
        facts = self.coef_, self.intercept_, self._usual_row, self._is_strict, made_of_scores
        # all that is sent to the blocks; only models without bounds clip
        predict = functools.partial(predicted, *facts, getattr(self, "limits_X_", None))
        if not cells.is_elsewhere(X):
            with np.errstate(all="ignore"):
                return predict(self._features(X, reset=False))
        columns = without_rows(X)
        if columns is not None:
            validate_data(self, columns, "no_validation", reset=False, skip_check_array=True)
        of_fit = self._reader, predict, self.n_features_in_, self._feature_names()
        read = functools.partial(read_and_predict, *of_fit)
        return map_blocks(read, X, predict(np.zeros((0, self.n_features_in_))))

    def _score(self: Any, metric: Callable[..., Any], X: Any, y: Any, sample_weight: Any) -> float:
        """A metric of the predictions; its errors say what can be done about missing targets."""
        cells.check_order(X=X, y=y, sample_weight=sample_weight)
        found, weight = here(self.predict(X)), here(sample_weight)
        try:
            return float(metric(here(y), found, sample_weight=weight))
        except (TypeError, ValueError) as error:
            what = str(error).partition("\n")[0].rstrip(".")
        if not what.startswith(_QUOTES_NOTHING):
            what = "y or sample_weight holds values of another kind"
        # not in the block above, whose error would go along as the context, which reports may show
        raise ValueError(
            f"{what}. Where targets are missing: dp_score leaves such records out, as a fit with "
            "nonfinite='zero' does"
        )

    def _units(self, encoder: Any, units: str) -> tuple[list[str], Any, Array, Array]:
        """Names of the features, what they stand for in an encoder's table, shift and width.

        Features are (z - shift) / width, of z the columns of the encoder's table if it tells of
        them (else they are None), or scaled features.
        """
        check_choice("units", units, ("data", "scaled"))
        own, is_given, columns = self._feature_names(), encoder is not None, None
        names, encoder = self._names, encoder if is_given else self._encoder
        if encoder is not None:
            is_list = isinstance(encoder, (list, tuple, np.ndarray))
            if not (is_list or hasattr(encoder, "get_feature_names_out")):
                raise ValueError(
                    "encoder must be a list of names or the transformer before the model, such as "
                    f"pipeline[0], got {shown(encoder)}"
                )
            found = list(encoder if is_list else encoder.get_feature_names_out())
            if len(found) != self.n_features_in_:
                raise ValueError(
                    f"encoder has {len(found)} {'names' if is_list else 'output columns'}, but the "
                    f"model has {self.n_features_in_} features: give the step right before it"
                )
            if is_given or own in (None, found):  # else X was renamed, or made otherwise
                names = found
                columns = self._columns if not is_given and is_list else table_columns(encoder)
        shift, width = np.zeros(len(names)), np.ones(len(names))
        if units == "scaled":
            shift, width = -self._origin / self._width, 1 / self._width
        elif columns is not None:
            shift, width = np.transpose([(column.shift, column.width) for column in columns])
        elif isinstance(encoder, DPScaler):
            shift, width = encoder.center_, encoder.scale_
        return names, columns, shift, width

    def coef_frame(self, encoder: Any = None, *, units: str = "data") -> Any:
        """The coefficients and the intercept as a pandas data frame, a row for each feature.

        They are those that predict best. Where there is noise they are shrunk, in small tables a
        good deal, and no estimates of effects, nor of their signs where columns go together: those,
        with intervals, are in `summary` of a fit with ``inference=True``. The frame's head says
        so (``frame.columns.name``).

        Parameters
        ----------
        encoder : PublicEncoder, other transformer, list of str or None, default=None
            The step before the estimator, such as ``model[0]`` of a pipeline `model`, by whose
            output columns the rows are named, or their names. A `PublicEncoder` gives an index of
            two levels, the table's column and the category ("" for a number or a boolean, "other",
            "missing"), and coefficients in the units of its table, for numbers within their bounds,
            also beside others in a `ColumnTransformer` without weights;
            so are those behind a `DPScaler`, alone or there, for numbers within its clip. None
            takes the encoder of `bounds_X`, as the fit found it, if it is a `PublicEncoder` and X
            had its names or none; else names are `feature_names_in_`, or x0, x1, ...
        units : {"data", "scaled"}, default="data"
            "data": what the raw prediction changes by as a feature grows by 1; in the last row its
            value where all features are 0. "scaled": the same for scaled features (see
            `bounds_X`): by half the width of the feature's bounds, or by all of it if they have an
            end at 0; in `HeavyTail...` by its scale, about its centre. With a `PublicEncoder` as
            `bounds_X` these are the encoded columns themselves.

        Returns
        -------
        pandas.DataFrame
            Its last row, "(intercept)", is the intercept. The columns are "coef"; of several
            targets their names in a frame y, or target_0, target_1, ...; of two classes the second
            one, for which a positive coefficient speaks; of more classes all of them.

        Raises
        ------
        ImportError
            If pandas is not installed.
        ValueError
            If `encoder` has another number of outputs than the model has features.
        """
        check_is_fitted(self)
        names, columns, shift, width = self._units(encoder, units)
        coef, intercept = np.atleast_2d(self.coef_) / width, np.atleast_1d(self.intercept_)
        intercept = intercept - coef @ shift
        rows, labels = np.vstack((coef.T, intercept)), self._output_labels()
        pandas = import_pandas("coef_frame")
        name = None if self.guarantee_.is_void else "for predictions, not effects"
        if columns is None:
            index = pandas.Index([*names, "(intercept)"], name="feature")
        else:
            pairs = [(c.source, "" if c.category is None else c.category) for c in columns]
            pairs, levels = [*pairs, ("(intercept)", "")], ["column", "category"]
            index = pandas.MultiIndex.from_tuples(pairs, names=levels)
        return pandas.DataFrame(rows, index, pandas.Index(labels, name=name))

    def _output_labels(self) -> list[Any]:
        """What the rows of `coef_` are called."""
        if hasattr(self, "classes_"):
            labels = self.classes_.tolist()
            return labels if len(labels) > 2 else labels[1:]
        if self.coef_.ndim == 1:
            return ["coef"]
        return list(self._target_names or [f"target_{k}" for k in range(len(self.coef_))])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = tags.input_tags.string = not self._is_strict
        return tags


@dataclass(kw_only=True, repr=False, eq=False)
class DPRegressor(RegressorMixin, DPLinearModel):
    """Base of the regressors: targets are clipped to `bounds_y` and scaled to [-1, 1].

    Parameters
    ----------
    bounds_y : pair (low, high) or None, default=None
        Bounds of the target from domain knowledge, as far out and apart as those of a feature
        may be: scalars, or of several targets lists or arrays of shape (n_targets,) in a tuple.
        Values outside are clipped. In scaled units a target is (y - middle) / half width, in
        [-1, 1], so that a raw prediction of 0 stands for the middle. None stands for (-1, 1) and
        warns `BoundsNotDeclaredWarning`.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,), or (n_targets, n_features) if y is a matrix
        In the units of X and y, float64. Several targets are one model: a record's derivatives
        are clipped together, so that the noise in a coefficient does not grow with their number.
    intercept_ : float, or ndarray of shape (n_targets,) if y is a matrix
        In the units of y.
    """

    _task = "regression"
    _least = LEARNED_UNITS["regression"].least

    bounds_y: Bounds | None = None

    def _read(self, y: Any) -> Targets:
        y = column_or_1d(y, warn=True) if self._task == "rates" else y
        return Targets(y, self._target_scaling(1 if y.ndim == 1 else y.shape[1]))

    def _target_scaling(self, n_targets: int) -> bounds.TargetScaling:
        """The public map of the targets to [-1, 1]."""
        through_zero = not self.fit_intercept
        return bounds.target_scaling(self.bounds_y, n_targets, through_zero=through_zero)

    def plan(self, n_samples: int, n_features: Any, n_targets: int = 1) -> Plan:
        """The plan that `fit` would follow on data of this size; spends nothing.

        Parameters
        ----------
        n_samples, n_features : int in [2, 1e15] and [1, 1e15]
            Or of a `PublicEncoder` as many as it makes. With `max_rows_per_user` above 1 the plan
            is that of a fit with `groups`.
        n_targets : int in [1, 1e15], default=1

        Returns
        -------
        Plan

        Examples
        --------
        >>> from sklearn_dpsco import DPMirrorRegressor
        >>> plan = DPMirrorRegressor(bounds_X=(0, 1), bounds_y=(0, 1)).plan(5000, 4)
        >>> plan.solver, plan.guarantee.epsilon
        ('descent', 1.0)
        """
        settings, n_targets = self._settings(), check_count("n_targets", n_targets)
        if n_targets > 1 and self._task == "rates":
            raise ValueError(f"{type(self).__name__} is for one target, got {n_targets}")
        bounds.check_target_bounds(self.bounds_y, n_targets)
        return self._plan(settings, (n_samples, n_features), n_targets)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R2 of the predictions, of blocks of rows elsewhere as well. **Not private**."""
        return self._score(r2_score, X, y, sample_weight)

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """``X @ coef_.T + intercept_`` within `bounds_y`, shape (n_samples,) or like y.

        In the units of y. All targets of a fit, and so their means, are within the bounds: a row
        far out, on which the model has not been fitted, is predicted at the end. With
        ``nonfinite="zero"``, gaps of a row count as `nonfinite` says. Of
        blocks of rows elsewhere (see :ref:`scaling`), predictions are a lazy array of Dask.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        return_std : bool, default=False
            Whether to return the standard errors of the predicted means as well, of the same shape.
            They need ``inference=True`` in the fit, and rows in memory.
        """
        check_is_fitted(self)
        if check_bool("return_std", return_std) and not hasattr(self, "_prediction_std"):
            raise ValueError(
                f"return_std=True needs inference=True, which {type(self).__name__} lacks"
            )
        scaling = self._targets.scaling
        within = functools.partial(np.clip, a_min=scaling.low, a_max=scaling.high)
        found = self._predicted(X, within)
        return (found, self._prediction_std(X)) if return_std else found

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        tags.target_tags.multi_output = self._task == "regression"
        tags.target_tags.positive_only = self._task == "rates"
        return tags


def _loss_has_probabilities(estimator: Any) -> bool:
    """Of the fitted model, or before a fit of the parameters."""
    is_fitted = hasattr(estimator, "plan_")
    loss = estimator.plan_.problem.loss if is_fitted else get_loss(estimator.loss, estimator._task)
    return hasattr(base_loss(loss), "probability")


@dataclass(kw_only=True, repr=False, eq=False)
class DPClassifier(ClassifierMixin, DPLinearModel):
    """Base of the classifiers, of two classes or of several in one model.

    Parameters
    ----------
    classes : list of labels or None, default=None
        The labels that may occur: integers within 2^53, other numbers or text. None takes them from
        y, which is outside the guarantee, and warns `PrivacyLeakWarning`. Inside of a
        meta-estimator that puts codes in the place of labels, such as `VotingClassifier`, the
        codes, which `fit` names if they are others. With two labels, y is -1 or +1 in scaled units.
        With K > 2 labels, the model is one matrix of K rows of coefficients: the logistic loss is
        the multinomial one, other losses are summed over the classes, each told from the rest. A
        record's K derivatives are clipped together, so that the noise in a coefficient does not
        grow with K.
    class_weight : dict {label: weight}, "balanced" or None, default=None
        Weights of at least 0 by which the records' weights are multiplied, 1 for a class that is
        not in the dict. They are public: never take them from the data. They are divided by the
        largest, so that the noise is that of records which all have that weight, and a class of
        weight 0 is left out. The start of the intercept follows the weighted frequencies.
        "balanced" weighs classes by the inverse of their private frequencies, over the largest of
        these weights. (A share of the budget buys frequencies wherever there is an intercept.) All
        classes then count as much as the rarest: a record of another one counts for little, in the
        same noise. A class counts as at least as frequent as the noise, and as 1 / (50 n_classes).
        It needs ``fit_intercept=True``, and is not for streams.

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        In the units of X, float64. Of several classes, those without a set have the mean 0 over
        the classes, as a softmax tells no more.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        In the units of the raw prediction, as `decision_function` gives it.
    classes_ : ndarray of shape (n_classes,)
        The sorted labels.
    """

    _task = "classification"

    classes: ClassLabels | None = None
    class_weight: ClassWeight | None = None

    def _read(self, y: Any, classes: AnyArray | None = None) -> Targets:
        classes = self._declared_classes() if classes is None else classes
        if classes is None:
            classes = cells.labels_that_occur(y if self._is_strict else y[~cells.is_missing(y)])
        weights = class_weights(self.class_weight, classes)
        return Targets(self._reader.codes(y, classes), None, classes, weights)

    def _settings(self) -> Settings:
        class_weights(self.class_weight, self._declared_classes())
        settings = super()._settings()
        if self.class_weight == "balanced" and not self.fit_intercept:
            raise ValueError(
                "class_weight='balanced' needs fit_intercept=True, with which the frequencies of "
                "the classes are released: give a dict of public weights"
            )
        return settings

    def plan(self, n_samples: int, n_features: Any, n_classes: int | None = None) -> Plan:
        """The plan that `fit` would follow on data of this size; spends nothing.

        Parameters
        ----------
        n_samples, n_features : int in [2, 1e15] and [1, 1e15]
            Or of a `PublicEncoder` as many as it makes.
        n_classes : int in [2, 1e15] or None
            None stands for the number of declared classes, or 2.

        Returns
        -------
        Plan

        Examples
        --------
        >>> from sklearn_dpsco import DPMirrorClassifier
        >>> model = DPMirrorClassifier(bounds_X=(0, 1), classes=["no", "yes", "unknown"])
        >>> model.plan(5000, 4).problem.n_outputs  # one model for the three classes
        3
        """
        settings, declared = self._settings(), self._declared_classes()
        if n_classes is None:
            n_classes = 2 if declared is None else declared.size
        n_classes = check_count("n_classes", n_classes, low=2)
        if declared is not None and n_classes != declared.size:
            raise ValueError(f"n_classes={n_classes} but classes has {declared.size} labels")
        if declared is None and isinstance(self.class_weight, dict):
            raise ValueError("classes must be declared for a plan with class_weight, got None")
        facts = 1 if n_classes == 2 else n_classes, class_weights(self.class_weight, declared)
        return self._plan(settings, (n_samples, n_features), *facts)

    def decision_function(self, X: Any) -> Array:
        """``X @ coef_.T + intercept_``.

        Returns
        -------
        ndarray of shape (n_samples,) for two classes, else (n_samples, n_classes)
        """
        check_is_fitted(self)
        return self._predicted(X, scores)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy of the predictions, of blocks of rows elsewhere as well. **Not private**.

        Labels are read as in `fit`: 1 is the class "1", where no class is a number.
        """
        check_is_fitted(self)
        return self._score(functools.partial(_accuracy, self.classes_), X, y, sample_weight)

    def predict(self, X: Any) -> AnyArray:
        """The class with the largest score, shape (n_samples,).

        Of blocks of rows elsewhere (see :ref:`scaling`), this and the methods below give a lazy
        array of Dask.
        """
        check_is_fitted(self)
        return self._predicted(X, functools.partial(likeliest, self.classes_))

    @available_if(_loss_has_probabilities)
    def predict_proba(self, X: Any) -> Array:
        """Probability of each class, shape (n_samples, n_classes).

        For the logistic loss the sigmoid of the score, or of several classes' the softmax, but at
        least ``plan_.least_probability``, so that they add up to 1: all records together are then
        off by half of the noise of one count at most, and a row far from all others is not certain.
        """
        check_is_fitted(self)
        facts = self.plan_.problem.loss, self.plan_.least_probability
        return self._predicted(X, functools.partial(probabilities, *facts))

    @available_if(_loss_has_probabilities)
    def predict_log_proba(self, X: Any) -> Array:
        """Logarithm of `predict_proba`, shape (n_samples, n_classes)."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True
        return tags


# ----------------------------- predictions, by what may be sent to whoever holds the rows


def predicted(
    coef: Array,
    intercept: Any,
    usual: Array,
    is_strict: bool,
    made_of_scores: Callable[[Array], Any],
    limits: tuple[Array, Array] | None,
    X: Any,
) -> Any:
    """What is made of raw predictions of a fitted linear model for the rows of X.

    `coef` is in the user's units, as `intercept`, with a row for each output; `usual` has a
    number for gaps of each column, unless they are an error; features are clipped to `limits`.
    """
    # in one layout, by which products are rounded: a copy without invalid rows would have another
    X = X if sparse.issparse(X) else np.ascontiguousarray(X)
    with np.errstate(all="ignore"):
        if not is_strict:
            X = cells.filled_rows(X, usual)
        if limits is not None:
            low, high = limits
            if sparse.issparse(X) and np.all(low <= 0) and np.all(high >= 0):  # which stays so
                X = X.tocsr()
                X = with_values(X, np.clip(X.data, low[X.indices], high[X.indices]))
            else:
                X = np.clip(X.toarray() if sparse.issparse(X) else X, low, high)
        raw = safe_sparse_dot(X, coef.T, dense_output=True) + intercept
        beyond = ~np.isfinite(raw if raw.ndim == 2 else raw[:, None]).all(axis=1)
        if np.any(beyond):  # terms or partial sums overflow, even if their sum does not
            # of all rows: BLAS rounds a product by the row's place, which others must not move
            small = safe_sparse_dot(X.astype(np.float64) * _SMALL, coef.T, dense_output=True)
            raw[beyond] = small[beyond] / _SMALL + intercept
    return made_of_scores(raw)


def read_and_predict(
    reader: Reader, predict: Callable[[Any], Any], n_features: int, names: list[str] | None, X: Any
) -> Any:
    """Predictions for a block, whose columns must be those of the fit."""
    found = list(X.columns) if hasattr(X, "columns") else None
    if names is not None and found is not None and found != names:
        raise ValueError("The feature names should match those that were passed during fit.")
    if np.ndim(X) == 2 and X.shape[1] != n_features:
        raise ValueError(
            f"X has {X.shape[1]} features, but {reader.name} is expecting {n_features} features "
            "as input"
        )
    return predict(reader.features(X))


def scores(raw: Array) -> Array:
    """Raw predictions as `decision_function` gives them."""
    return raw.ravel() if raw.shape[1] == 1 else raw


def _accuracy(classes: AnyArray, y: Any, found: AnyArray, **settings: Any) -> float:
    """Accuracy, of labels that are or spell the classes."""
    with unwarned():
        codes = cells.label_codes(cells.as_labels(y), classes)
    if (codes >= 0).all():  # which also fractions have, that scikit-learn takes for no labels
        y, found = codes, cells.label_codes(found, classes)
    return float(accuracy_score(y, found, **settings))


def likeliest(classes: AnyArray, raw: Array) -> AnyArray:
    """The class with the largest score."""
    found = scores(raw)
    return classes[(found > 0).astype(int) if found.ndim == 1 else found.argmax(axis=1)]


def probabilities(loss: Any, least: float, raw: Array) -> Array:
    """Probability of each class, at least `least`."""
    found: Array = loss.probability(scores(raw))
    found = np.column_stack((1 - found, found)) if found.ndim == 1 else found
    if least > 0:
        above = np.maximum(found - least, 0.0)
        found = least + above * ((1 - least * found.shape[1]) / above.sum(axis=1, keepdims=True))
    return found
