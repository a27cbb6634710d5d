"""Grid and random search under one budget, which covers data, choice and best model together."""

from __future__ import annotations

import inspect
import itertools
import sys
import warnings
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier
from sklearn.model_selection import ParameterGrid, ParameterSampler
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted

from .._checks import check_count, check_int, naming, shown, telling, unwarned, warn_user
from .._fitting import Accounting, PrivateFit, in_order, rows_of
from .._progress import check_verbose, progress_bar, steps
from .._types import SearchScoring
from ..data import cells
from ..data.bounds import is_declaring, largest_weight
from ..data.compressed import compressed
from ..exceptions import PrivacyLeakWarning, PrivacyParameterWarning
from ..preprocessing.declared import declared_columns
from ..preprocessing.leaks import leaks_before
from ..privacy.budget import Composition, PrivacyBudget
from ..randomness.stream import RandomStream, stream_from_random_state
from .choice import Table, losses, scoring_of
from .plan import Plans, SearchPlan, Settings, UnfitCurrencyError, plan_probes
from .private_steps import (
    OWN,
    Allotment,
    check_steps,
    fitted_alone,
    fitted_steps,
    last_step,
    private_steps,
    rehearsed,
    set_parts,
)

_MOST_SETTINGS = 1e6


def _of_best(method: str) -> Any:
    """A method of the best model, if that has it."""

    def call(self: Any, X: Any, **options: Any) -> Any:
        check_is_fitted(self)
        return getattr(self.best_estimator_, method)(X, **options)

    call.__name__, call.__doc__ = method, f"`{method}` of the best model, with its options."
    return available_if(
        lambda search: getattr(getattr(search, "best_estimator_", search.estimator), method)
    )(call)


_HINTS = {"cv": "there are no folds: all records are in each fit, and dp_score has the score"}
_HINTS |= {"refit": "the settings that are chosen are always fitted again"}
_OF_BEST = dict.fromkeys(
    ("summary", "conf_int", "wald_test", "t_test", "coef_", "intercept_", "coef_frame"),
    "see best_estimator_",
)
_OF_BEST |= {"predict_interval": "see the function sklearn_dpsco.predict_interval(search, X)"}
_OF_BEST |= dict.fromkeys(
    ("cv_results_", "best_score_"),
    "a private search releases a choice, and no scores. For the score of the best model take "
    "dp_score on records that were not in the fit; `candidates_` lists the settings",
)
_HINTS |= {"error_score": "an error is never a score", "return_train_score": "scores are private"}


@telling(_OF_BEST)
@dataclass(repr=False, eq=False)
class _PrivateSearch(PrivateFit, MetaEstimatorMixin, BaseEstimator):
    """What both searches share; see `DPGridSearchCV`."""

    estimator: Any
    _: KW_ONLY
    scoring: SearchScoring = "auto"
    n_jobs: int | None = None
    verbose: int = 0

    _settings: ClassVar[Callable[..., list[Settings]]]  # candidates, without the default

    @property
    def _rows_per_user(self) -> int:
        most = super()._rows_per_user
        if self.max_rows_per_user != "auto":
            return most
        given = [step.max_rows_per_user for step in private_steps(self.estimator).values()]
        return max((rows_of(rows, None) for rows in given if rows != "auto"), default=most)

    def _accounting(self) -> Accounting:
        accounting = super()._accounting()
        if accounting.budget.is_infinite:
            raise ValueError(
                f"epsilon of {type(self).__name__} must be finite: for a search without noise take "
                "scikit-learn's, with epsilon=inf in the estimator"
            )
        return accounting

    def plan(self, n_samples: int, n_features: int, n_outputs: int | None = None) -> SearchPlan:
        """The plan that `fit` would follow on data of this size; spends nothing.

        Parameters
        ----------
        n_samples, n_features : int
            Numbers of records, and of columns that reach the private steps; of a step with an
            encoder for `bounds_X`, the number of the encoder's columns counts.
        n_outputs : int or None
            Number of classes, or of targets; None stands for the declared classes, or 1.

        Examples
        --------
        >>> from sklearn_dpsco import DPGridSearchCV, DPMirrorRegressor
        >>> model = DPMirrorRegressor(bounds_X=(-1, 1), bounds_y=(-1, 1))
        >>> search = DPGridSearchCV(model, {"loss": ["absolute", "welsch"]}, epsilon=2.0)
        >>> len(search.plan(n_samples=5000, n_features=3).candidates)  # with the default
        3
        """
        n = check_count("n_samples", n_samples, low=2)
        d = check_count("n_features", n_features)
        check_steps(self.estimator)
        last = last_step(self.estimator)
        declared = getattr(last, "classes", None)
        if n_outputs is None and is_classifier(last):
            n_outputs = 2 if declared is None else len(declared)
        outputs = check_count("n_outputs", 1 if n_outputs is None else n_outputs)

        def plans(estimator: Any) -> list[Any]:
            found = []
            for step in private_steps(estimator).values():
                more = (outputs,) if hasattr(step, "predict") else ()
                columns = declared_columns(getattr(step, "bounds_X", None)) or d
                found.append(step.plan(n, columns, *more))
            return found

        return self._plan(plans, n, outputs, None)

    def _plan(
        self, plans: Callable[[Any], list[Any]], n_samples: int, n_outputs: int, classes: Any
    ) -> SearchPlan:
        """The plan, where `plans` gives those of the private steps of an estimator.

        Raises `ValueError` unless all candidates predict the same.
        """
        candidates, made = self._candidates(), []
        for settings in candidates:
            try:
                made.append(self._made(settings, classes))
                check_steps(made[-1])
            except (AttributeError, TypeError, ValueError) as error:
                raise ValueError(f"the settings {shown(settings)} are wrong: {error}") from None
            first, last = last_step(made[0]), last_step(made[-1])
            # classes count as far as they are declared
            labels, others = (getattr(step, "classes", None) for step in (first, last))
            is_same = is_classifier(last) == is_classifier(first)
            if is_same and labels is not None and others is not None:
                is_same = np.array_equal(np.unique(labels), np.unique(others))
            if not is_same:
                raise ValueError(
                    f"the settings {shown(settings)} predict something else than the default: "
                    "all candidates need the same task and the same classes"
                )
        scoring = scoring_of(made, self.scoring)

        def plans_of(
            settings: Settings, budget: PrivacyBudget, currency: Composition, is_trial: bool
        ) -> Plans:
            estimator = set_parts(self._made(settings, classes, is_trial), budget, currency)
            parts = [step.accountant for step in private_steps(estimator).values()]
            found = plans(estimator)
            if not all(part.accepts(p.guarantee) for part, p in zip(parts, found, strict=True)):
                raise UnfitCurrencyError
            return tuple(found)

        budget = self._accounting().of_size(n_samples).budget
        return plan_probes(plans_of, candidates, budget, scoring, n_samples, n_outputs)

    def _candidates(self) -> list[Settings]:
        """The default's settings first, and all others once."""
        settings = [dict(candidate) for candidate in self._settings()]
        if not (names := sorted({name for candidate in settings for name in candidate})):
            raise ValueError("there are no settings to choose from: the grid is empty")
        forbidden = [name for name in names if name.rpartition("__")[2] in (*OWN, "random_state")]
        if forbidden:
            raise ValueError(f"{forbidden} are set by the search, which has one budget for all")
        own = self.estimator.get_params(deep=True)
        for name in (name for name in names if name not in own):
            parent, _, leaf = name.rpartition("__")
            meant = [nested for nested in own if nested.rpartition("__")[2] == name]
            hint = f": {shown(meant)}" if meant else ""
            owner = own.get(parent) if parent else last_step(self.estimator)
            if not meant and hasattr(owner, "plan"):
                try:  # its error says what stands for names of other packages
                    type(owner)(**{leaf: None})
                except TypeError as error:
                    hint = f": {error}"
            if hint or not parent:
                raise ValueError(f"{name!r} is no parameter of the estimator{hint}")
        default = {name: own[name] for name in names if name in own}
        others, seen = [], [default]
        for candidate in settings:
            whole = default | candidate
            if not any(
                whole.keys() == known.keys() and all(_is_same(whole[k], known[k]) for k in whole)
                for known in seen
            ):
                others.append(candidate)
                seen.append(whole)
        return [default, *others]

    def _made(self, settings: Settings, classes: Any, is_trial: bool = False) -> Any:
        """An estimator with these settings, none of which it shares with another one."""
        copied = {name: clone(value, safe=False) for name, value in settings.items()}
        made = clone(self.estimator).set_params(**copied)
        last = last_step(made)
        declaring = getattr(last_step(self.estimator), "bounds_X", None)
        is_own = any("bounds_X" in name.split("__") for name in settings)
        if is_declaring(declaring) and not is_own and isinstance(made, Pipeline):
            # of a step that declares the bounds, settings are those of what declares them as well
            for name, step in self.estimator.steps[:-1]:
                if _is_same(step, declaring) and type(made[name]) is type(step):
                    last.set_params(bounds_X=clone(made[name]))
        if classes is not None and getattr(last, "classes", classes) is None:
            last.set_params(classes=classes)
        if is_trial and getattr(last, "inference", False):
            last.set_params(inference=False)  # no choice looks at standard errors
        return made

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        groups: Any = None,
        sample_weight: Any = None,
        exposure: Any = None,
        **fit_params: Any,
    ) -> Self:
        """Choose settings and fit the best, under one budget.

        Before anything is spent every candidate's fit is rehearsed, up to its charge.

        Parameters
        ----------
        X, y, groups, sample_weight, exposure
            As the estimator's `fit` takes them; groups reach all private steps, weights the last
            one, and what the choice compares; so do exposures, of models of counts and costs.
        **fit_params
            The last three by the names of a pipeline, such as ``step__sample_weight``.

        Raises
        ------
        ValueError
            If a parameter, a setting of the grid or the data are wrong; or `PrivacyBudgetError` if
            the accountant refuses the charge of the whole search. Nothing is spent then.
        """
        is_rehearsed: list[bool] = []

        def plans(estimator: Any) -> list[Any]:
            with unwarned() if is_rehearsed else nullcontext():
                is_rehearsed.append(True)  # the first one warns
                return table.fitted(estimator, rehearsed)

        with self._until_spent():
            check_steps(self.estimator)
            self._accounting()  # a parameter that is wrong is named before the data
            self._check_own_settings()
            cells.check_in_memory("a private search", X)
            if y is None:
                raise ValueError("a search requires y to be passed, but the target y is None")
            cells.check_lengths(X=X, y=y)
            given = {"groups": groups, "sample_weight": sample_weight, "exposure": exposure}
            table = self._table(X, y, self._extras(given, fit_params))
            plan = self._plan(plans, len(table.y), table.n_outputs, table.classes)
            if plan.choice is None and len(plan.candidates) > 1:
                warn_user(
                    f"n_samples={plan.n_samples} is too small for a private choice, "
                    f"{plan.needed_for_choice}: the default settings are fitted with the whole "
                    "budget, and the grid is not used",
                    PrivacyParameterWarning,
                )
            stream = stream_from_random_state(self.random_state)
            account = self._accounting().accountant  # a block may have been opened since
            self._spend(account, plan, has_groups="groups" in table.extras)
        title = "fit", type(self).__name__
        with progress_bar(self.verbose, len(plan.probes) + 1, *title, plan) as bar:
            index, best = self._best(table, plan, stream, bar)
        account = None if isinstance(self.accountant, Allotment) else self.accountant
        for step in private_steps(best).values():  # whoever fits it again pays again
            step.set_params(accountant=account)
        self._keep_claim(plan, stream)
        self._pass_claim(best, was_chosen=plan.choice is not None)
        self.candidates_, self.best_estimator_ = list(plan.candidates), best
        self.best_index_, self.best_params_ = index, plan.candidates[index]
        for name in ("classes_", "n_features_in_", "feature_names_in_"):
            self.__dict__.pop(name, None)
            if hasattr(best, name):
                setattr(self, name, getattr(best, name))
        return self

    def _pass_claim(self, best: Any, *, was_chosen: bool) -> None:
        """Give the steps the search's claim: what was chosen tells of the other parts as well."""
        last = last_step(best)
        own = last.guarantee_.claim
        for step in fitted_steps(best):
            step.guarantee_ = self.guarantee_
        if (found := getattr(last, "_estimates", None)) is not None:
            title = found.title.replace(own, self.guarantee_.claim)
            chosen = "settings were chosen on the same records: intervals do not cover"
            void = chosen if was_chosen else found.void
            last._estimates = replace(found, title=title, void=void)

    def _check_own_settings(self) -> None:
        """Raise unless they are right, and the search alone is charged; warn of idle claims."""
        check_verbose(self.verbose)
        jobs = self.n_jobs
        if jobs is not None and check_int("n_jobs", jobs, low=-9999, high=9999) == 0:
            raise ValueError("n_jobs must not be 0: 1 fits one after the other, -1 on all cores")
        leaks: dict[str, None] = {}
        for settings in self._candidates():  # whatever steps they bring
            made = self._made(settings, None)
            leaks |= dict.fromkeys(map(str, leaks_before(made)))
            for prefix, step in private_steps(made).items():
                if step.accountant is not None and step.accountant != self.accountant:
                    raise ValueError(
                        f"{prefix}accountant is set, but the search is charged for all of its "
                        "fits: give the accountant to the search"
                    )
        for leak in leaks:
            warn_user(
                f"{leak}. The guarantee of a search is for what its private steps learn: this step "
                "learns from the records beside it, and is in best_estimator_",
                PrivacyLeakWarning,
            )
        steps = private_steps(self.estimator)
        # epsilons of several steps say how they share a fit
        names = ["delta", "relation", "max_rows_per_user"] + ["epsilon"] * (len(steps) == 1)
        # whoever seeds all that is in an estimator seeds the search as well
        names += ["random_state"] * (self.random_state is None)
        for (prefix, step), name in itertools.product(steps.items(), names):
            default = inspect.signature(type(step)).parameters[name].default
            given = getattr(step, name)
            used = self._rows_per_user if name == "max_rows_per_user" else getattr(self, name)
            if given not in (default, used):
                warn_user(
                    f"{prefix}{name}={shown(given)} of the estimator is not used: the search sets "
                    f"the budget and the noise of all fits, with {name}={shown(used)}. Give it to "
                    "the search",
                    PrivacyParameterWarning,
                )

    def _extras(self, given: dict[str, Any], fit_params: dict[str, Any]) -> dict[str, Any]:
        """What is given of each record, also by the names of a pipeline."""
        found = dict(given)
        for name, value in fit_params.items():
            step, _, short = name.rpartition("__")
            is_known = short in found and f"{step}__" in private_steps(self.estimator)
            if not is_known or found[short] is not None:
                raise TypeError(
                    "fit takes X, y, groups, sample_weight and exposure, or the last three as "
                    f"step__groups, step__sample_weight, ... of a private step, got {name!r}"
                )
            found[short] = value
        return {name: value for name, value in found.items() if value is not None}

    def _table(self, X: Any, y: Any, beside: dict[str, Any]) -> Table:
        cells.check_order(X=X, y=y, **beside)
        # lists as arrays of objects, in which no entry decides on the type of others
        extras = {
            name: value if hasattr(value, "shape") else cells.entries(value)
            for name, value in beside.items()
        }
        last, classes, low, high = last_step(self.estimator), None, None, None
        if is_classifier(last):
            y, declared = cells.checked(cells.as_labels, y), last.classes
            if declared is None:
                declared = classes = cells.labels_that_occur(y[~cells.is_missing(y)]).tolist()
            targets, n_outputs = cells.label_codes(y, np.unique(declared)), len(declared)
            is_valid = targets >= 0
        else:
            y = np.asarray(cells.as_numbers("y", y, strict=False), dtype=np.float64)
            ends = (-1.0, 1.0) if last.bounds_y is None else last.bounds_y
            low, high = (np.asarray(end, dtype=np.float64) for end in ends)
            targets, n_outputs = np.clip(y, low, high), 1 if y.ndim == 1 else y.shape[1]
            is_valid = ~cells.empty_rows(y.reshape(len(y), -1))
        exposure: Any = 1.0
        if "exposure" in extras:
            if not hasattr(last, "bounds_exposure"):
                raise TypeError("exposure is for models of counts and costs")
            facts: Any = {"rule": "", "strict": False, "above_zero": True}
            exposure = cells.numbers_of_records("exposure", extras["exposure"], **facts)
            cells.check_lengths(y=y, exposure=exposure)
            is_valid &= np.isfinite(exposure)
        weights = np.where(is_valid, 1.0, 0.0)
        if "groups" in extras:
            users, self._counted = cells.as_users(extras["groups"]), self._rows_per_user
            cells.check_lengths(y=y, groups=users)
            weights[cells.surplus_rows(users, self._counted, {})] = 0.0  # of which the fits warn
        if "sample_weight" in extras:
            largest = largest_weight(last.max_weight)
            given = cells.as_weights(extras["sample_weight"], largest, strict=False)
            cells.check_lengths(y=y, sample_weight=given)
            weights *= given
        X = compressed(X if hasattr(X, "shape") else cells.as_objects(X))
        return Table(X, y, extras, classes, n_outputs, targets, low, high, weights, exposure)

    def _best(
        self, table: Table, plan: SearchPlan, stream: RandomStream, bar: Any
    ) -> tuple[int, Any]:
        """The chosen candidate, and its model."""

        def made(candidate: int, budget: PrivacyBudget, fit: int) -> Any:
            """With the candidate's settings, its part of the budget, and noise of its own."""
            is_trial = fit < len(plan.probes)
            estimator = self._made(plan.candidates[candidate], table.classes, is_trial)
            set_parts(estimator, budget, plan.currency)
            steps = private_steps(estimator)
            words = stream.substream("fit", fit).words(len(steps))
            for step, word in zip(steps.values(), words, strict=True):
                # a step's own seed would draw the same noise in every fit
                seed = None if self.random_state is None else int(word % np.uint64(2**31))
                with unwarned():  # the search's own seed was asked for
                    step.set_params(random_state=seed)
            return estimator

        chosen, n = 0, len(plan.probes)
        if plan.choice is not None:
            # X and y are arguments of their own, so that a cluster gets them once
            fit = delayed(fitted_alone)
            fits = [table.fitted(made(k, plan.probe_budget, k), fit) for k in range(n)]
            # not every backend of joblib has generators
            kind = "generator" if self.verbose else "list"
            models = list(steps(Parallel(n_jobs=self.n_jobs, return_as=kind)(fits), bar))
            lost = np.stack([losses(model, table, plan.choice.scoring) for model in models], axis=1)
            chosen = plan.choice.run(lost, table.weights, stream.substream("choice", 0))
        best = table.fitted(made(chosen, plan.refit_budget, n), fitted_alone)
        bar.update(1)
        return chosen, best

    # -------------------------------------------------------------------- the best model

    predict = _of_best("predict")
    predict_proba = _of_best("predict_proba")
    predict_log_proba = _of_best("predict_log_proba")
    decision_function = _of_best("decision_function")

    def score(
        self, X: Any, y: Any, sample_weight: Any = None, *, exposure: Any = None, **options: Any
    ) -> float:
        """`score` of the best model, with its options: without noise, and outside the guarantee.

        Take `dp_score` for a score that may be shown.
        """
        check_is_fitted(self)
        given = {"sample_weight": sample_weight, "exposure": exposure}
        options |= {name: value for name, value in given.items() if value is not None}
        return float(self.best_estimator_.score(X, y, **options))

    def __sklearn_tags__(self) -> Any:
        tags, inner = super().__sklearn_tags__(), get_tags(self.estimator)
        tags.estimator_type = inner.estimator_type
        tags.classifier_tags, tags.regressor_tags = inner.classifier_tags, inner.regressor_tags
        tags.input_tags, tags.target_tags = inner.input_tags, inner.target_tags
        return tags


def _is_same(first: Any, second: Any) -> bool:
    """Whether two values of a setting are equal, for all that is known of them."""
    if isinstance(first, np.ndarray) or isinstance(second, np.ndarray):
        return np.array_equal(np.asarray(first), np.asarray(second))
    if type(first) is not type(second):
        return False
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(map(_is_same, first, second))
    if hasattr(first, "get_params") and not isinstance(first, type):  # whose repr leaves much out
        first, second = (found.get_params(deep=False) for found in (first, second))
        return _is_same(list(first.items()), list(second.items()))
    with np.printoptions(threshold=sys.maxsize, floatmode="unique"):
        return repr(first) == repr(second)


@naming(_HINTS.get)
@in_order
@dataclass(repr=False, eq=False)
class DPGridSearchCV(_PrivateSearch):
    """Search over a grid of settings, with one guarantee for data, choice and best model.

    For users of `GridSearchCV`, whose choice looks at scores without noise, and whose every fit
    costs. Here the whole search costs `epsilon` and `delta`, and nothing of it is released but the
    best settings and the best model: each candidate is fitted on all records with a small part of
    the budget, without `inference`, one of them is chosen privately by the training losses of these
    models, and is fitted again with 87 % of the budget. Where there are too few records for a
    choice, n times mu below 500 under zero-out and 1000 under replace-one, the default is fitted
    with the whole budget; `plan` says so.

    Parameters
    ----------
    estimator : estimator
        A private estimator of this package, or a pipeline that ends with one. Its settings are
        the *default*, which is always among the candidates and is preferred unless another one is
        clearly better. `epsilon`, `delta`, `relation`, `max_rows_per_user`, `accountant` and
        `random_state` of its private steps are set by the search, which warns
        `PrivacyParameterWarning` if they are given others: epsilons only say how several private
        steps share a fit.
    param_grid : dict or list of dict
        As of `GridSearchCV`. Settings of a step of the pipeline that is `bounds_X` of the last one
        as well, such as ``publicencoder__drop``, are those of `bounds_X`, too.
    epsilon : float in [1e-15, 1e9], default=1.0
        Of the whole search.
    delta : "auto" or float in [0, 1), default="auto"
        "auto" is min(1e-6, 1 / (10 n)) for n records, or under an accountant the accountant's.
    relation : {"auto", "replace-one", "zero-out"}, default="auto"
        "auto" is the accountant's, or without one "replace-one".
    max_rows_per_user : "auto" or int in [1, 1e15], default="auto"
        "auto" is the largest that private steps are given, or else the accountant's, or 1.
    scoring : {"auto", "neg_log_loss", "accuracy", "neg_mean_squared_error", ...}, default="auto"
        Or "neg_mean_absolute_error". What the choice compares, record by record. "auto" is log loss
        where the estimator has probabilities, else accuracy, or the squared error.
    n_jobs : None or int, default=None
        Candidates that are fitted side by side by `joblib`, as in `GridSearchCV`, also by threads
        and on a Dask cluster. It changes no result. The budget is charged here, before
        any of them; a candidate is fitted as a whole in one process, under its part of the budget.
    precision : {"exact", "float"}, default="exact"
        Arithmetic of the choice's noise.
    accountant : None, BudgetAccountant or Branch, default=None
        Where the whole search is charged, once, before anything is computed from the data.
    random_state : None, int or RandomState, default=None
        An int makes the search reproducible and *not private*.
    verbose : int >= 0 or bool, default=0
        From 1 on, a bar on standard error counts the fits (needs tqdm); from 2 on the plan is
        shown first. Fits inside a search show nothing of their own.

    Attributes
    ----------
    best_params_ : dict
        Those of the grid's parameters that the best model has.
    best_estimator_ : estimator
        Fitted. The `guarantee_` of each private step is that of the search, as settings were chosen
        on the same records; its `plan_` has the last fit alone. It has the search's `accountant`,
        so that whoever fits it again pays again.
    best_index_ : int
        Position of the best settings in `candidates_`; 0 is the default.
    candidates_ : list of dict
    plan_ : SearchPlan
    guarantee_ : Guarantee
        Of the whole search.
    noise_is_secret_ : bool
    classes_, n_features_in_, feature_names_in_
        As of the best model.

    Notes
    -----
    Guarantee: doc/privacy, section 2.18. A record that is invalid in the fit of one candidate is
    left out of the choice. There is no `cv_results_`: scores of candidates are not released.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_dpsco import DPGridSearchCV, DPMirrorRegressor
    >>> from sklearn_dpsco.geometry import L2Ball
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (5000, 3))
    >>> y = X @ [0.3, -0.2, 0.1]
    >>> model = DPMirrorRegressor(bounds_X=(-1, 1), bounds_y=(-1, 1), feasible_set=L2Ball(0.01))
    >>> grid = {"feasible_set": [L2Ball(0.1), L2Ball(1.0)]}
    >>> DPGridSearchCV(model, grid, epsilon=2.0, random_state=0).fit(X, y).best_params_
    {'feasible_set': L2Ball(radius=1.0)}
    """

    param_grid: Any

    def _settings(self) -> list[Settings]:
        return _listed(ParameterGrid, "param_grid", self.param_grid)


@naming(_HINTS.get)
@in_order
@dataclass(repr=False, eq=False)
class DPRandomizedSearchCV(_PrivateSearch):
    """Search over settings that are drawn at random, with one guarantee for all of it.

    As `DPGridSearchCV`, whose parameters it shares, with candidates drawn from distributions as by
    `RandomizedSearchCV`.

    Parameters
    ----------
    estimator : estimator
    param_distributions : dict or list of dict
        As of `RandomizedSearchCV`.
    n_iter : int in [1, 1e6], default=10
        Number of candidates beside the default. They do not depend on the data.
    candidates_seed : int in [0, 2^32), default=0
        Of the draws of the candidates, which are public. Noise is not drawn from it.
    epsilon, delta, relation, max_rows_per_user, scoring, n_jobs, precision
        As of `DPGridSearchCV`.
    accountant, random_state, verbose
        As of `DPGridSearchCV`.

    Attributes
    ----------
    best_params_, best_estimator_, best_index_, candidates_, plan_, guarantee_
        As of `DPGridSearchCV`.
    noise_is_secret_, classes_, n_features_in_, feature_names_in_
        As of `DPGridSearchCV`.

    Examples
    --------
    The plan says what would be released and at what cost, before any data:

    >>> from scipy.stats import loguniform
    >>> from sklearn_dpsco import DPMirrorRegressor, DPRandomizedSearchCV
    >>> from sklearn_dpsco.solvers import NoisyMD
    >>> model = DPMirrorRegressor(bounds_X=(-1, 1), bounds_y=(-1, 1), solver=NoisyMD())
    >>> settings = {"solver__data_norm": loguniform(0.5, 2)}
    >>> search = DPRandomizedSearchCV(model, settings, n_iter=3, epsilon=2.0)
    >>> plan = search.plan(n_samples=5000, n_features=3)
    >>> len(plan.candidates), plan.guarantee.epsilon  # the default is one of them
    (4, 2.0)
    """

    param_distributions: Any
    _: KW_ONLY
    n_iter: int = 10
    candidates_seed: int = 0

    def _settings(self) -> list[Settings]:
        seed = check_count("candidates_seed", self.candidates_seed, low=0, high=2**32 - 1)
        n = check_count("n_iter", self.n_iter, high=_MOST_SETTINGS)
        given = self.param_distributions
        return _listed(ParameterSampler, "param_distributions", given, n_iter=n, random_state=seed)


def _listed(kind: Any, name: str, value: Any, **facts: Any) -> list[Settings]:
    """The settings of a grid or of a sampler."""
    found: list[Settings] | None = None
    # scikit-learn's errors quote what may be a table, also as the context of another error
    with suppress(TypeError, ValueError), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # few settings are no mistake
        settings = kind(value, **facts)
        found = list(settings) if len(settings) <= _MOST_SETTINGS else None
    if found is None or not all(isinstance(key, str) for one in found for key in one):
        raise ValueError(
            f"{name} must be a grid of settings, a dict such as {{'loss': ['squared', 'welsch']}} "
            f"of a list for each parameter, or a list of such dicts, of at most "
            f"{_MOST_SETTINGS:g} settings, got {type(value).__name__}"
        )
    return found
