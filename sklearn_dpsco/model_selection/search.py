"""Grid and random search under one budget, which covers data, choice and best model together."""

from __future__ import annotations

import inspect
import itertools
import warnings
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import nullcontext, suppress
from typing import Any, NamedTuple, NoReturn, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn import get_config
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier
from sklearn.model_selection import ParameterGrid, ParameterSampler
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from .._checks import check_count, check_size, shown, unwarned, warn_user
from .._fitting import Accounting, PrivateFit, checked
from .._progress import check_verbose, progress_bar, steps
from .._types import Auto, Precision, RandomState, Relation, SearchScoring
from ..data.blocks import check_in_memory
from ..data.cells import as_numbers, as_objects
from ..data.compressed import compressed
from ..data.records import (
    as_labels,
    as_users,
    as_weights,
    is_missing,
    labels_that_occur,
    surplus_rows,
)
from ..exceptions import PrivacyParameterWarning
from ..privacy.allotment import Allotment
from ..privacy.branches import Account
from ..privacy.budget import PrivacyBudget
from ..randomness.stream import RandomStream, check_random_state, stream_from_random_state
from .plan import SearchPlan, plan_probes
from .private_steps import OWN, Sizes, check_steps, last_step, private_steps, set_parts
from .record_scores import Targets, losses, scoring_of
from .rehearsal import fitted_alone, rehearsed

__all__ = ["DPGridSearchCV", "DPRandomizedSearchCV"]

_MOST_SETTINGS = 1e6


class _Table(NamedTuple):
    """What is fitted and scored."""

    X: Any
    y: Any
    targets: Targets
    weights: NDArray[np.float64]
    extras: dict[str, Any]

    def extras_for(self, estimator: Any) -> dict[str, Any]:
        """Groups for all private steps and weights for the last, by the names that `fit` takes."""
        if get_config()["enable_metadata_routing"]:
            return self.extras
        steps = private_steps(estimator)
        found = {}
        for name, value in self.extras.items():
            for prefix, step in steps.items():
                if name == "groups" or step is last_step(estimator):
                    found[f"{prefix}{name}"] = value
        return found


def _has(method: str) -> Callable[[Any], bool]:
    def check(search: Any) -> bool:
        getattr(getattr(search, "best_estimator_", search.estimator), method)
        return True

    return check


class _PrivateSearch(PrivateFit, MetaEstimatorMixin, BaseEstimator, metaclass=ABCMeta):
    """What both searches share; see `DPGridSearchCV`."""

    estimator: Any
    scoring: Any
    n_jobs: Any

    @abstractmethod
    def _settings(self) -> Iterable[dict[str, Any]]:
        """The candidates, without the default."""

    # ------------------------------------------------------------------------- planning

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
        n_samples : int
        n_features : int
            Number of columns that reach the private steps.
        n_outputs : int or None
            Number of classes, or of targets; None stands for the declared classes, or 1.

        Returns
        -------
        SearchPlan

        Examples
        --------
        >>> from sklearn_dpsco import DPGridSearchCV, DPMirrorRegressor
        >>> model = DPMirrorRegressor(bounds_X=(-1, 1), bounds_y=(-1, 1))
        >>> search = DPGridSearchCV(model, {"radius": [0.1, 1.0]}, epsilon=2.0)
        >>> len(search.plan(n_samples=5000, n_features=3).candidates)  # with the default
        3
        """
        n = check_count("n_samples", n_samples, low=2)
        d = check_count("n_features", n_features)
        check_steps(self.estimator)
        last = last_step(self.estimator)
        if n_outputs is None:
            declared = getattr(last, "classes", None)
            n_outputs = 1 if not is_classifier(last) else 2 if declared is None else len(declared)

        outputs = check_count("n_outputs", n_outputs)

        def plans(estimator: Any) -> dict[str, Any]:
            found = {}
            for prefix, step in private_steps(estimator).items():
                more = (outputs,) if hasattr(step, "predict") else ()
                found[prefix] = step.plan(n, d, *more)
            return found

        return self._plan(Sizes(n, outputs, plans), None, self._accounting().budget_of(n))

    def _plan(self, sizes: Sizes, classes: Any, budget: PrivacyBudget) -> SearchPlan:
        candidates = self._candidates()
        scoring = self._check_candidates(candidates, classes)

        def make(settings: dict[str, Any]) -> Any:
            return self._made(settings, classes)

        return plan_probes(make, candidates, budget, scoring, sizes)

    def _candidates(self) -> list[dict[str, Any]]:
        """The default's settings first, and all others once."""
        settings = [dict(candidate) for candidate in self._settings()]
        names = sorted({name for candidate in settings for name in candidate})
        if not names:
            raise ValueError("there are no settings to choose from: the grid is empty")
        forbidden = [name for name in names if name.rpartition("__")[2] in (*OWN, "random_state")]
        if forbidden:
            raise ValueError(f"{forbidden} are set by the search, which has one budget for all")
        own = self.estimator.get_params(deep=True)
        for name in names:
            if name not in own and "__" not in name:
                meant = [nested for nested in own if nested.rpartition("__")[2] == name]
                hint = f": {shown(meant)}" if meant else ""
                raise ValueError(f"{name!r} is no parameter of the estimator{hint}")
        found = [{name: own[name] for name in names if name in own}]
        found += [c for c in settings if not _is_same({**found[0], **c}, found[0])]
        return found

    def _made(self, settings: dict[str, Any], classes: Any) -> Any:
        """An estimator with these settings, none of which it shares with another one."""
        copied = {name: clone(value, safe=False) for name, value in settings.items()}
        made = clone(self.estimator).set_params(**copied)
        last = last_step(made)
        if classes is not None and getattr(last, "classes", classes) is None:
            last.set_params(classes=classes)
        return made

    def _check_candidates(self, candidates: list[dict[str, Any]], classes: Any) -> str:
        """Raise `ValueError` unless all predict the same; returns the score that they share."""
        made = []
        for settings in candidates:
            try:
                made.append(self._made(settings, classes))
                check_steps(made[-1])
            except (AttributeError, TypeError, ValueError) as error:
                raise ValueError(f"the settings {shown(settings)} are wrong: {error}") from None
        first = last_step(made[0])
        for settings, estimator in zip(candidates, made, strict=True):
            last = last_step(estimator)
            is_same_task = is_classifier(last) == is_classifier(first)
            if not is_same_task or not _same_labels(first, last):
                raise ValueError(
                    f"the settings {shown(settings)} predict something else than the default: "
                    "all candidates need the same task and the same classes"
                )
        return scoring_of(made, self.scoring)

    # -------------------------------------------------------------------------- fitting

    def fit(
        self, X: Any, y: Any, *, groups: Any = None, sample_weight: Any = None, **fit_params: Any
    ) -> Self:
        """Choose settings and fit the best, under one budget.

        Before anything is spent every candidate's fit is rehearsed, up to its charge.

        Parameters
        ----------
        X, y, groups, sample_weight
            As the estimator's `fit` takes them; groups reach all private steps, weights the last
            one, and what the choice compares.
        **fit_params
            The last two by the names of a pipeline, such as ``step__sample_weight``.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a parameter, a setting of the grid or the data are wrong; nothing is spent then.
        PrivacyBudgetError
            If the accountant refuses the charge of the whole search; nothing is spent then.
        """
        with self._until_spent():
            run = self._charged(X, y, groups, sample_weight, fit_params)
        plan = run.plan
        n_fits = len(plan.probes) + 1
        with progress_bar(self.verbose, n_fits, "fit", type(self).__name__, plan) as run.bar:
            self._keep(plan, *run.best())
        self.noise_is_secret_ = self.random_state is None
        return self

    def _charged(
        self, X: Any, y: Any, groups: Any, sample_weight: Any, fit_params: dict[str, Any]
    ) -> _Run:
        """A run whose plan is charged; an error before that leaves an earlier fit as it was."""
        check_steps(self.estimator)
        self._accounting()
        self._check_accountants()
        self._warn_of_other_budgets()
        check_random_state(self.random_state)
        check_verbose(self.verbose)
        check_in_memory("a private search", X)
        if y is None:
            raise ValueError("a private search requires y to be passed, but the target y is None")
        check_consistent_length(X, y)
        extras = self._extras(groups, sample_weight, fit_params)
        table, classes = self._table(X, y, extras)
        accounting, last = self._accounting(), last_step(self._made({}, classes))
        n_outputs = len(last.classes) if is_classifier(last) else _n_columns(table.y)
        is_rehearsed: list[bool] = []

        def plans(estimator: Any) -> dict[str, Any]:
            with unwarned() if is_rehearsed else nullcontext():
                is_rehearsed.append(True)  # the first one warns
                return rehearsed(estimator, table.X, table.y, table.extras_for(estimator))

        sizes = Sizes(len(table.y), n_outputs, plans)
        plan = self._plan(sizes, classes, accounting.budget_of(sizes.n_samples))
        self._warn_if_nothing_is_chosen(plan)
        stream = stream_from_random_state(self.random_state)
        run = _Run(self, plan, classes, table, stream)
        if accounting.accountant is not None:
            name, has_groups = type(self).__name__, "groups" in extras
            accounting.accountant.spend(plan, estimator=name, has_groups=has_groups)
        return run

    def _check_accountants(self) -> None:
        """Raise unless the search alone is charged, whatever steps its settings bring."""
        for settings in self._candidates():
            for prefix, step in private_steps(self._made(settings, None)).items():
                if step.accountant is not None and step.accountant != self.accountant:
                    raise ValueError(
                        f"{prefix}accountant is set, but the search is charged for all of its "
                        "fits: give the accountant to the search"
                    )

    def _warn_of_other_budgets(self) -> None:
        """A `PrivacyParameterWarning` for what steps claim, or are seeded with, to no effect."""
        steps = private_steps(self.estimator)
        # epsilons of several steps say how they share a fit
        names = ["delta", "relation", "max_rows_per_user"] + ["epsilon"] * (len(steps) == 1)
        # whoever seeds all that is in an estimator seeds the search as well
        names += ["random_state"] * (self.random_state is None)
        for (prefix, step), name in itertools.product(steps.items(), names):
            default = inspect.signature(type(step)).parameters[name].default
            given, used = getattr(step, name), getattr(self, name)
            if given not in (default, used):
                warn_user(
                    f"{prefix}{name}={shown(given)} of the estimator is not used: the search sets "
                    f"the budget and the noise of all fits, with {name}={shown(used)}. Give it to "
                    "the search",
                    PrivacyParameterWarning,
                )

    @staticmethod
    def _warn_if_nothing_is_chosen(plan: SearchPlan) -> None:
        if plan.choice is None and len(plan.candidates) > 1:
            warn_user(
                f"n_samples={plan.n_samples} is too small for a private choice at epsilon="
                f"{plan.budget.epsilon:g}: the default settings are fitted with the whole budget, "
                "and the grid is not used",
                PrivacyParameterWarning,
            )

    def _extras(
        self, groups: Any, sample_weight: Any, fit_params: dict[str, Any]
    ) -> dict[str, Any]:
        """What is given of groups and weights, under these names."""
        found = {"groups": groups, "sample_weight": sample_weight}
        for name, value in fit_params.items():
            step, _, short = name.rpartition("__")
            is_known = short in found and f"{step}__" in private_steps(self.estimator)
            if not is_known or found[short] is not None:
                raise TypeError(
                    f"fit takes X, y, groups and sample_weight, or the last two as step__groups "
                    f"and step__sample_weight of a private step, got {name!r}"
                )
            found[short] = value
        return {name: _indexable(value) for name, value in found.items() if value is not None}

    def _table(self, X: Any, y: Any, extras: dict[str, Any]) -> tuple[_Table, Any]:
        """The table, and the classes if they were not declared."""
        last, classes = last_step(self.estimator), None
        if is_classifier(last):
            y = checked(as_labels, y)
            if last.classes is None:
                classes = labels_that_occur(y[~is_missing(y)]).tolist()
        else:
            y = np.asarray(as_numbers("y", y, strict=False), dtype=np.float64)
        targets = Targets.of(self._made({}, classes), y)
        weights = np.where(targets.present, 1.0, 0.0)
        if "groups" in extras:
            most = check_count("max_rows_per_user", self.max_rows_per_user)
            users = as_users(extras["groups"])
            check_consistent_length(y, users)
            weights[surplus_rows(users, most, {})] = 0.0
        if "sample_weight" in extras:
            largest = check_size("max_weight", last.max_weight)
            found = as_weights(extras["sample_weight"], largest, strict=False)
            check_consistent_length(y, found)
            weights *= found
        X = compressed(X) if sparse.issparse(X) else _indexable(X)
        return _Table(X, y, targets, weights, extras), classes

    def _keep(self, plan: SearchPlan, index: int, best: Any) -> None:
        given = None if isinstance(self.accountant, Allotment) else self.accountant
        for step in private_steps(best).values():  # whoever fits it again pays again
            step.set_params(accountant=given)
        self.plan_, self.guarantee_ = plan, plan.guarantee
        self.candidates_ = list(plan.candidates)
        self.best_index_, self.best_params_ = index, plan.candidates[index]
        self.best_estimator_ = best
        for name in ("classes_", "n_features_in_", "feature_names_in_"):
            self.__dict__.pop(name, None)
            if hasattr(best, name):
                setattr(self, name, getattr(best, name))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "best_estimator_")

    # --------------------------------------------------------------- what is not private

    @property
    def cv_results_(self) -> NoReturn:
        """Not there, and no `best_score_`: scores of candidates would have to be paid for."""
        raise AttributeError(
            "a private search has no cv_results_ and no best_score_: it releases a choice, and no "
            "scores. For the score of the best model take dp_score on records that were not in "
            "the fit; `candidates_` lists the settings"
        )

    best_score_ = cv_results_

    # -------------------------------------------------------------------- the best model

    @available_if(_has("predict"))
    def predict(self, X: Any) -> Any:
        """`predict` of the best model."""
        check_is_fitted(self)
        return self.best_estimator_.predict(X)

    @available_if(_has("predict_proba"))
    def predict_proba(self, X: Any) -> Any:
        """`predict_proba` of the best model."""
        check_is_fitted(self)
        return self.best_estimator_.predict_proba(X)

    @available_if(_has("predict_log_proba"))
    def predict_log_proba(self, X: Any) -> Any:
        """`predict_log_proba` of the best model."""
        check_is_fitted(self)
        return self.best_estimator_.predict_log_proba(X)

    @available_if(_has("decision_function"))
    def decision_function(self, X: Any) -> Any:
        """`decision_function` of the best model."""
        check_is_fitted(self)
        return self.best_estimator_.decision_function(X)

    def score(self, X: Any, y: Any) -> float:
        """`score` of the best model: without noise, and outside the guarantee.

        Take `dp_score` for a score that may be shown.
        """
        check_is_fitted(self)
        return float(self.best_estimator_.score(X, y))

    def __sklearn_tags__(self) -> Any:
        tags, inner = super().__sklearn_tags__(), get_tags(self.estimator)
        tags.estimator_type = inner.estimator_type
        tags.classifier_tags, tags.regressor_tags = inner.classifier_tags, inner.regressor_tags
        tags.input_tags, tags.target_tags = inner.input_tags, inner.target_tags
        return tags


class _Run:
    """One run of a plan."""

    def __init__(
        self, search: _PrivateSearch, plan: Any, classes: Any, table: _Table,
        stream: RandomStream,
    ) -> None:  # fmt: skip
        self.search, self.plan, self.classes, self.table = search, plan, classes, table
        self.stream = stream
        self.bar: Any = None

    def _made(self, candidate: int, budget: PrivacyBudget, fit: int) -> Any:
        """An estimator with the candidate's settings, its part of the budget, noise of its own."""
        estimator = self.search._made(self.plan.candidates[candidate], self.classes)
        set_parts(estimator, budget, self.plan.currency)
        steps = private_steps(estimator)
        words = self.stream.substream("fit", fit).words(len(steps))
        for prefix, word in zip(steps, words, strict=True):
            # a step's own seed would draw the same noise in every fit
            seed = None if self.search.random_state is None else int(word % np.uint64(2**31))
            with unwarned():  # the search's own seed was asked for
                estimator.set_params(**{f"{prefix}random_state": seed})
        return estimator

    def _all_fitted(self, estimators: list[Any]) -> Iterable[Any]:
        """Side by side; X and y are arguments of their own, so that a cluster gets them once."""
        table = self.table
        fits = (
            delayed(fitted_alone)(e, table.X, table.y, **table.extras_for(e)) for e in estimators
        )
        # not every backend of joblib has generators
        kind = "generator" if self.search.verbose else "list"
        found: Iterable[Any] = Parallel(n_jobs=self.search.n_jobs, return_as=kind)(fits)
        return found

    def _fitted(self, candidate: int, budget: PrivacyBudget, fit: int) -> Any:
        estimator = self._made(candidate, budget, fit)
        extras = self.table.extras_for(estimator)
        found = fitted_alone(estimator, self.table.X, self.table.y, **extras)
        self.bar.update(1)
        return found

    def best(self) -> tuple[int, Any]:
        """The chosen candidate, and its model."""
        plan, table, n = self.plan, self.table, len(self.plan.probes)
        if n == 0:
            return 0, self._fitted(0, plan.refit_budget, 0)
        made = [self._made(k, plan.probe_budget, k) for k in range(n)]
        models = list(steps(self._all_fitted(made), self.bar))
        facts = table.X, table.targets, plan.choice.scoring, plan.choice.powers
        found = np.stack([losses(model, *facts) for model in models], axis=1)
        chosen = plan.choice.run(found, table.weights, self.stream.substream("choice", 0))
        return chosen, self._fitted(chosen, plan.refit_budget, n)


def _indexable(values: Any) -> Any:
    """Lists as arrays of objects, in which no cell decides on the type of others."""
    return values if hasattr(values, "shape") else as_objects(values)


def _same_labels(first: Any, second: Any) -> bool:
    """Whether two estimators have the same classes, as far as they are declared."""
    labels, others = (getattr(last, "classes", None) for last in (first, second))
    if labels is None or others is None:
        return True
    return np.array_equal(np.unique(np.asarray(labels)), np.unique(np.asarray(others)))


def _n_columns(y: NDArray[Any]) -> int:
    return 1 if y.ndim == 1 else int(y.shape[1])


def _is_same(first: dict[str, Any], second: dict[str, Any]) -> bool:
    """Whether two settings are equal, for all that is known of their values."""
    return first.keys() == second.keys() and all(
        _equal(first[name], second[name]) for name in first
    )


def _equal(first: Any, second: Any) -> bool:
    if isinstance(first, np.ndarray) or isinstance(second, np.ndarray):
        return np.array_equal(np.asarray(first), np.asarray(second))
    return type(first) is type(second) and repr(first) == repr(second)


class DPGridSearchCV(_PrivateSearch):
    """Search over a grid of settings, with one guarantee for data, choice and best model.

    For users of `GridSearchCV`, whose choice looks at scores without noise, and whose every fit
    costs. Here the whole search costs `epsilon` and `delta`, and nothing of it is released but the
    best settings and the best model: each candidate is fitted on all records with a small part of
    the budget, one of them is chosen privately by the training losses of these models, and is
    fitted again with 87 % of the budget. Where there are too few records for a choice, n times mu
    below 500 under zero-out and 1000 under replace-one, the default is fitted with the whole
    budget; `plan` says so.

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
        As of `GridSearchCV`.
    epsilon : float in [1e-15, 1e9], default=1.0
        Of the whole search.
    delta : "auto" or float in [0, 1), default="auto"
        "auto" is min(1e-6, 1 / (10 n)) for n records, or under an accountant the accountant's.
    relation : {"replace-one", "zero-out"}, default="replace-one"
    max_rows_per_user : int in [1, 1e15], default=1
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
        Fitted. Its own `guarantee_` is that of the last fit alone. It has the search's
        `accountant`, so that whoever fits it again pays again.
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
    Guarantee: doc/privacy, section 2.18. There is no `cv_results_`: scores of candidates are not
    released.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_dpsco import DPGridSearchCV, DPMirrorRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (5000, 3))
    >>> y = X @ [0.3, -0.2, 0.1]
    >>> model = DPMirrorRegressor(bounds_X=(-1, 1), bounds_y=(-1, 1), radius=0.01)
    >>> search = DPGridSearchCV(model, {"radius": [0.1, 1.0]}, epsilon=2.0, random_state=0)
    >>> search.fit(X, y).best_params_
    {'radius': 1.0}
    """

    def __init__(
        self,
        estimator: Any,
        param_grid: Any,
        *,
        epsilon: float = 1.0,
        delta: float | Auto = "auto",
        relation: Relation = "replace-one",
        max_rows_per_user: int = 1,
        scoring: SearchScoring = "auto",
        n_jobs: int | None = None,
        precision: Precision = "exact",
        accountant: Account | None = None,
        random_state: RandomState = None,
        verbose: int = 0,
    ) -> None:
        self._store(locals())

    def _settings(self) -> Iterable[dict[str, Any]]:
        return _listed(ParameterGrid, "param_grid", self.param_grid)


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
    >>> model = DPMirrorRegressor(bounds_X=(-1, 1), bounds_y=(-1, 1))
    >>> settings = {"radius": loguniform(0.1, 10)}
    >>> search = DPRandomizedSearchCV(model, settings, n_iter=3, epsilon=2.0)
    >>> plan = search.plan(n_samples=5000, n_features=3)
    >>> len(plan.candidates), plan.guarantee.epsilon  # the default is one of them
    (4, 2.0)
    """

    def __init__(
        self,
        estimator: Any,
        param_distributions: Any,
        *,
        n_iter: int = 10,
        candidates_seed: int = 0,
        epsilon: float = 1.0,
        delta: float | Auto = "auto",
        relation: Relation = "replace-one",
        max_rows_per_user: int = 1,
        scoring: SearchScoring = "auto",
        n_jobs: int | None = None,
        precision: Precision = "exact",
        accountant: Account | None = None,
        random_state: RandomState = None,
        verbose: int = 0,
    ) -> None:
        self._store(locals())

    def _settings(self) -> Iterable[dict[str, Any]]:
        seed = check_count("candidates_seed", self.candidates_seed, low=0, high=2**32 - 1)
        n = check_count("n_iter", self.n_iter, high=_MOST_SETTINGS)
        given = self.param_distributions
        return _listed(ParameterSampler, "param_distributions", given, n_iter=n, random_state=seed)


def _listed(kind: Any, name: str, value: Any, **facts: Any) -> list[dict[str, Any]]:
    """The settings of a grid or of a sampler."""
    found: list[dict[str, Any]] | None = None
    # scikit-learn's errors quote what may be a table, also as the context of another error
    with suppress(TypeError, ValueError), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # few settings are no mistake
        settings = kind(value, **facts)
        found = list(settings) if len(settings) <= _MOST_SETTINGS else None
    if found is None or not all(isinstance(key, str) for one in found for key in one):
        raise ValueError(
            f"{name} must be a grid of settings, a dict such as {{'radius': [0.5, 2.0]}} of a list "
            f"for each parameter, or a list of such dicts, of at most {_MOST_SETTINGS:g} settings, "
            f"got {type(value).__name__}"
        )
    return found
