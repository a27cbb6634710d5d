"""Grid and random search under one budget, which covers data, choice and best model together."""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, NamedTuple, NoReturn, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier
from sklearn.model_selection import ParameterGrid, ParameterSampler
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from .._checks import auto_or, check_choice, check_count, check_real, check_size, shown, warn_user
from .._fitting import PrivateFit
from ..data.cells import as_numbers
from ..data.records import as_labels, as_users, as_weights, is_missing, surplus_rows
from ..exceptions import PrivacyLeakWarning
from ..privacy.budget import PrivacyBudget
from ..privacy.repetition import MOST_TRIALS, draw_trials
from ..randomness.stream import RandomStream, check_random_state, stream_from_random_state
from .plan import RepeatPlan, SearchPlan, plan_probes, plan_trials
from .private_steps import (
    OWN,
    Sizes,
    check_steps,
    last_step,
    private_steps,
    set_parts,
    widths_of,
)
from .record_scores import Targets, losses, losses_shrunk, scoring_of

__all__ = ["DPGridSearchCV", "DPRandomizedSearchCV"]

_METHODS = ("probe", "repeat")


class _Table(NamedTuple):
    """What is fitted and scored."""

    X: Any
    y: Any
    targets: Targets
    weights: NDArray[np.float64]
    extras: dict[str, Any]

    def rows(self, which: NDArray[np.intp]) -> _Table:
        """Some of the records."""
        X = self.X.iloc[which] if hasattr(self.X, "iloc") else self.X[which]
        targets = replace(self.targets, values=self.targets.values[which])
        extras = {name: np.asarray(value)[which] for name, value in self.extras.items()}
        return _Table(X, self.y[which], targets, self.weights[which], extras)


def _has(method: str) -> Callable[[Any], bool]:
    def check(search: Any) -> bool:
        getattr(getattr(search, "best_estimator_", search.estimator), method)
        return True

    return check


def _fit(estimator: Any, table: _Table) -> Any:
    return estimator.fit(table.X, table.y, **table.extras)


class _PrivateSearch(PrivateFit, MetaEstimatorMixin, BaseEstimator, metaclass=ABCMeta):
    """What both searches share; see `DPGridSearchCV`."""

    estimator: Any
    scoring: Any
    method: Any
    n_trials: Any
    n_jobs: Any

    @abstractmethod
    def _settings(self) -> Iterable[dict[str, Any]]:
        """The candidates, without the default."""

    # ------------------------------------------------------------------------- planning

    def plan(
        self, n_samples: int, n_features: int, n_outputs: int | None = None
    ) -> SearchPlan | RepeatPlan:
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
        SearchPlan or RepeatPlan
        """
        n = check_count("n_samples", n_samples, low=2)
        d = check_count("n_features", n_features)
        check_steps(self.estimator)
        last = last_step(self.estimator)
        if n_outputs is None:
            declared = getattr(last, "classes", None)
            n_outputs = 1 if not is_classifier(last) else 2 if declared is None else len(declared)

        def widths(estimator: Any) -> dict[str, int]:
            return dict.fromkeys(private_steps(estimator), d)

        sizes = Sizes(n, check_count("n_outputs", n_outputs), widths)
        return self._plan(sizes, {}, self._accounting().budget_of(n))

    def _plan(
        self, sizes: Sizes, known: dict[str, Any], budget: PrivacyBudget
    ) -> SearchPlan | RepeatPlan:
        candidates = self._candidates()
        scoring = scoring_of(self.estimator, self.scoring)

        def make(settings: dict[str, Any]) -> Any:
            return clone(self.estimator).set_params(**known, **settings)

        if check_choice("method", self.method, _METHODS) == "probe":
            return plan_probes(make, candidates, budget, scoring, sizes)
        mean: Any = auto_or(check_real, "n_trials", self.n_trials, low=1.5, high=MOST_TRIALS)
        mean = min(MOST_TRIALS, max(2.0, float(len(candidates)))) if mean is None else mean
        return plan_trials(make, candidates, budget, scoring, sizes, mean)

    def _candidates(self) -> list[dict[str, Any]]:
        """The default's settings first, and all others once."""
        settings = [dict(candidate) for candidate in self._settings()]
        names = sorted({name for candidate in settings for name in candidate})
        if not names:
            raise ValueError("there are no settings to choose from: the grid is empty")
        forbidden = [name for name in names if name.rpartition("__")[2] in OWN]
        if forbidden:
            raise ValueError(f"{forbidden} are set by the search, which has one budget for all")
        own = self.estimator.get_params(deep=True)
        unknown = [name for name in names if name not in own]
        if unknown:
            raise ValueError(f"{unknown[:5]} are no parameters of the estimator")
        found = [{name: own[name] for name in names}]
        for candidate in settings:
            full = {**found[0], **candidate}
            if not any(_is_same(full, other) for other in found):
                found.append(full)
        return found

    # -------------------------------------------------------------------------- fitting

    def fit(self, X: Any, y: Any, groups: Any = None, sample_weight: Any = None) -> Self:
        """Choose settings and fit the best, under one budget.

        Parameters
        ----------
        X, y, groups, sample_weight
            As the estimator's `fit` takes them; groups reach all private steps, weights the last
            one, and what the choice compares.

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
        check_steps(self.estimator)
        check_random_state(self.random_state)
        check_consistent_length(X, y)
        table, known = self._table(X, y, groups, sample_weight)
        accounting = self._accounting()
        last = last_step(clone(self.estimator).set_params(**known))
        n_outputs = len(last.classes) if is_classifier(last) else _n_columns(table.y)
        sizes = Sizes(len(table.y), n_outputs, lambda e: widths_of(e, table.X, table.y))
        plan = self._plan(sizes, known, accounting.budget_of(sizes.n_samples))
        charged: list[bool] = []

        def charge() -> None:
            if accounting.accountant is not None and not charged:
                accounting.accountant.spend(plan, estimator=type(self).__name__)
            charged.append(True)

        stream = stream_from_random_state(self.random_state)
        run = _Run(self, plan, known, table, stream, charge)
        index, best, score = run.trials() if isinstance(plan, RepeatPlan) else run.probes()
        self._keep(plan, index, best, score, stream)
        return self

    def _table(
        self, X: Any, y: Any, groups: Any, sample_weight: Any
    ) -> tuple[_Table, dict[str, Any]]:
        """The table, and the settings that it decides: the classes, if they are not declared."""
        last, known = last_step(self.estimator), {}
        if is_classifier(last):
            y = as_labels(y)
            if last.classes is None:
                warn_user(
                    "classes was not given: the list of labels is taken from y, which is outside "
                    "the privacy guarantee. Declare the classes.",
                    PrivacyLeakWarning,
                )
                prefix = next(
                    p for p, step in private_steps(self.estimator).items() if step is last
                )
                known = {f"{prefix}classes": np.unique(y[~is_missing(y)]).tolist()}
        else:
            y = np.asarray(as_numbers("y", y, strict=False), dtype=np.float64)
        targets = Targets.of(clone(self.estimator).set_params(**known), y)
        extras: dict[str, Any] = {}
        weights = np.where(targets.present, 1.0, 0.0)
        if groups is not None:
            most = check_count("max_rows_per_user", self.max_rows_per_user)
            weights[surplus_rows(as_users(groups), most, {})] = 0.0
            extras |= self._routed("groups", groups, private_steps(self.estimator))
        if sample_weight is not None:
            largest = check_size("max_weight", last.max_weight)
            found = as_weights(sample_weight, largest, strict=False)
            check_consistent_length(y, found)
            weights *= np.nan_to_num(found)
            extras |= self._routed("sample_weight", sample_weight, {self._last_prefix(): last})
        table = _Table(X if hasattr(X, "shape") else np.asarray(X), y, targets, weights, extras)
        return table, known

    def _last_prefix(self) -> str:
        last = last_step(self.estimator)
        return next(p for p, step in private_steps(self.estimator).items() if step is last)

    @staticmethod
    def _routed(name: str, value: Any, steps: dict[str, Any]) -> dict[str, Any]:
        return {f"{prefix}{name}": value for prefix in steps}

    def _keep(
        self, plan: Any, index: int, best: Any, score: float | None, stream: RandomStream
    ) -> None:
        steps = private_steps(best)
        for prefix in steps:  # as the user had them, so that the model can be fitted again
            own = private_steps(self.estimator)[prefix].accountant
            best.set_params(**{f"{prefix}accountant": own})
        self.plan_, self.guarantee_ = plan, plan.guarantee
        self.candidates_ = list(plan.candidates)
        self.best_index_, self.best_params_ = index, plan.candidates[index]
        self.best_estimator_, self._best_score = best, score
        self.noise_is_secret_ = stream.is_secure and all(
            step.noise_is_secret_ for step in _fitted_steps(best)
        )
        for name in ("classes_", "n_features_in_", "feature_names_in_"):
            self.__dict__.pop(name, None)
            if hasattr(best, name):
                setattr(self, name, getattr(best, name))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "best_estimator_")

    # --------------------------------------------------------------- what is not private

    @property
    def cv_results_(self) -> NoReturn:
        """Not there: scores of all candidates would have to be paid for."""
        raise AttributeError(
            "a private search has no cv_results_: its scores are not released. For the score of "
            "the best model take dp_score on records that were not in the fit; `candidates_` "
            "lists the settings"
        )

    @property
    def best_score_(self) -> float:
        """The released score of the best model, with ``method="repeat"``."""
        check_is_fitted(self)
        if self._best_score is None:
            raise AttributeError(
                "method='probe' releases a choice and no score: take dp_score on records that "
                "were not in the fit"
            )
        return self._best_score

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
        self, search: _PrivateSearch, plan: Any, known: dict[str, Any], table: _Table,
        stream: RandomStream, charge: Callable[[], None],
    ) -> None:  # fmt: skip
        self.search, self.plan, self.known, self.table = search, plan, known, table
        self.stream, self.charge = stream, charge
        self.scoring = scoring_of(search.estimator, search.scoring)
        self.parallel = Parallel(n_jobs=search.n_jobs)

    def _made(self, candidate: int, budget: PrivacyBudget, fit: int) -> Any:
        """An estimator with the candidate's settings, its part of the budget, noise of its own."""
        estimator = clone(self.search.estimator)
        estimator.set_params(**self.known, **self.plan.candidates[candidate])
        set_parts(estimator, budget, self.plan.currency, self.charge if fit == 0 else None)
        if self.search.random_state is not None:
            words = self.stream.substream("fit", fit).words(len(private_steps(estimator)))
            for prefix, word in zip(private_steps(estimator), words, strict=True):
                seed = int(word % np.uint64(2**31))
                estimator.set_params(**{f"{prefix}random_state": seed})
        return estimator

    def _all_fitted(self, estimators: list[Any], table: _Table) -> list[Any]:
        """The first one here, since the whole is charged when it begins; then the others."""
        first, *others = estimators
        return [
            _fit(first, table),
            *self.parallel(delayed(_fit)(estimator, table) for estimator in others),
        ]

    def probes(self) -> tuple[int, Any, None]:
        """The chosen candidate, and its model."""
        plan, table, n = self.plan, self.table, len(self.plan.probes)
        if n == 0:
            return 0, _fit(self._made(0, plan.refit_budget, 0), table), None
        made = [self._made(k, plan.probe_budget, k) for k in range(n)]
        models = self._all_fitted(made, table)
        facts = table.X, table.targets, self.scoring, plan.choice.powers
        found = np.stack([losses_shrunk(model, *facts) for model in models], axis=1)
        chosen = plan.choice.run(found, table.weights, self.stream.substream("choice", 0))
        return chosen, _fit(self._made(chosen, plan.refit_budget, n), table), None

    def trials(self) -> tuple[int, Any, float]:
        """The best of a random number of trials, its model and its released score.

        Nothing but the best trial is kept: the number of trials must show in nothing.
        """
        plan = self.plan
        order = self.stream.substream("order", 0).permutation(plan.n_samples)
        fitted = self.table.rows(np.sort(order[: plan.n_fit]))
        scored = self.table.rows(np.sort(order[plan.n_fit :]))
        n_trials = draw_trials(plan.mean_trials, self.stream.substream("trials", 0))
        draws = self.stream.substream("candidates", 0)
        drawn = [draws.integer(len(plan.candidates)) for _ in range(n_trials)]
        made = [self._made(k, plan.trial_budget, t) for t, k in enumerate(drawn)]
        models = self._all_fitted(made, fitted)
        scores = [
            self._score(model, scored, self.stream.substream("score", t))
            for t, model in enumerate(models)
        ]
        best = int(np.argmax(scores))
        return drawn[best], models[best], scores[best]

    def _score(self, model: Any, table: _Table, stream: RandomStream) -> float:
        """1 - 2 * the mean clipped loss, with noise; back as minus the mean loss."""
        found = np.minimum(losses(model, table.X, table.targets, self.scoring), 1.0)
        found = (1 - 2 * found) * table.weights
        released = self.plan.score.release(np.array([found.mean()]), stream)[0]
        return float((released - 1) / 2)


def _fitted_steps(estimator: Any) -> list[Any]:
    """The fitted private steps: a pipeline keeps them among its steps."""
    return list(private_steps(estimator).values())


def _n_columns(y: NDArray[Any]) -> int:
    return 1 if y.ndim == 1 else int(y.shape[1])


def _is_same(first: dict[str, Any], second: dict[str, Any]) -> bool:
    """Whether two settings are equal; arrays among them by their text."""

    def key(value: Any) -> str:
        return value if isinstance(value, str) else repr(value)

    return all(key(first[name]) == key(second[name]) for name in first)


class DPGridSearchCV(_PrivateSearch):
    """Search over a grid of settings, with one guarantee for data, choice and best model.

    For users of `GridSearchCV`, whose choice looks at scores without noise, and whose every fit
    costs. Here the whole search costs `epsilon` and `delta`, and nothing of it is released but the
    best settings and the best model.

    Parameters
    ----------
    estimator : estimator
        A private estimator of this package, or a pipeline that ends with one. Its settings are
        the *default*, which is always among the candidates and is preferred unless another one is
        clearly better. `epsilon`, `delta`, `relation`, `max_rows_per_user` and `accountant` of its
        private steps are set by the search: epsilons only say how private steps share a fit.
    param_grid : dict or list of dict
        As of `GridSearchCV`.
    epsilon : float in [1e-15, 1e9]
        Of the whole search.
    delta : "auto" or float in [0, 1), default="auto"
        "auto" is min(1e-6, 1 / (10 n)) for n records, or under an accountant the accountant's.
    relation : {"replace-one", "zero-out"}, default="replace-one"
    max_rows_per_user : int in [1, 1e15], default=1
    scoring : {"auto", "neg_log_loss", "accuracy", "neg_mean_squared_error", ...}, default="auto"
        Or "neg_mean_absolute_error". What the choice compares, record by record. "auto" is log loss
        where the estimator has probabilities, else accuracy, or the squared error.
    method : {"probe", "repeat"}, default="probe"
        "probe": each candidate is fitted on all records with a small part of the budget, one of
        them is chosen privately by the training losses of these models, and is fitted again with
        87 % of the budget. Where there are too few records for a choice, n times mu below 500
        under zero-out and 1000 under replace-one, the default is fitted with the whole budget;
        `plan` says so. "repeat": a random number of trials, each with a candidate that is
        drawn at random, fitted on four fifths of the records and scored on the others; the best
        trial is the result (Papernot and Steinke 2022). What a trial costs hardly depends on how
        many candidates there are: for large grids. The time it takes tells the number of trials,
        which is not covered.
    n_trials : "auto" or float in [1.5, 1000], default="auto"
        Mean number of trials for "repeat"; "auto" is the number of candidates.
    n_jobs : None or int, default=None
        Fits that run side by side, by `joblib`.
    precision : {"exact", "float"}, default="exact"
        Arithmetic of the choice's noise.
    accountant : None or BudgetAccountant, default=None
        Where the whole search is charged, once, before anything is computed from the data.
    random_state : None, int or RandomState, default=None
        An int makes the search reproducible and *not private*.

    Attributes
    ----------
    best_params_ : dict
        Those of the grid's parameters that the best model has.
    best_estimator_ : estimator
        Fitted. Its own `guarantee_` is that of the last fit alone.
    best_index_ : int
        Position of the best settings in `candidates_`; 0 is the default.
    candidates_ : list of dict
    plan_ : SearchPlan or RepeatPlan
    guarantee_ : Guarantee
        Of the whole search.
    best_score_ : float
        With ``method="repeat"``: minus the mean clipped loss of the best trial, with noise; it is
        the best of several, and so too good. With "probe" there is none.
    noise_is_secret_ : bool
    classes_, n_features_in_, feature_names_in_
        As of the best model.

    Notes
    -----
    Guarantee: doc/privacy, sections 2.16 ("repeat") and 2.18 ("probe"). There is no `cv_results_`:
    scores of all candidates are not released.

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
        delta: Any = "auto",
        relation: str = "replace-one",
        max_rows_per_user: int = 1,
        scoring: str = "auto",
        method: str = "probe",
        n_trials: Any = "auto",
        n_jobs: Any = None,
        precision: Any = "exact",
        accountant: Any = None,
        random_state: Any = None,
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
    epsilon, delta, relation, max_rows_per_user, scoring, method, n_trials, n_jobs, precision
        As of `DPGridSearchCV`.
    accountant, random_state
        As of `DPGridSearchCV`.

    Attributes
    ----------
    best_params_, best_estimator_, best_index_, candidates_, plan_, guarantee_, best_score_
        As of `DPGridSearchCV`.
    noise_is_secret_, classes_, n_features_in_, feature_names_in_
        As of `DPGridSearchCV`.
    """

    def __init__(
        self,
        estimator: Any,
        param_distributions: Any,
        *,
        n_iter: int = 10,
        candidates_seed: int = 0,
        epsilon: float = 1.0,
        delta: Any = "auto",
        relation: str = "replace-one",
        max_rows_per_user: int = 1,
        scoring: str = "auto",
        method: str = "probe",
        n_trials: Any = "auto",
        n_jobs: Any = None,
        precision: Any = "exact",
        accountant: Any = None,
        random_state: Any = None,
    ) -> None:
        self._store(locals())

    def _settings(self) -> Iterable[dict[str, Any]]:
        seed = check_count("candidates_seed", self.candidates_seed, low=0, high=2**32 - 1)
        facts = {"n_iter": check_count("n_iter", self.n_iter, high=1e6), "random_state": seed}
        return _listed(ParameterSampler, "param_distributions", self.param_distributions, **facts)


def _listed(kind: Any, name: str, value: Any, **facts: Any) -> list[dict[str, Any]]:
    """The settings of a grid or of a sampler."""
    try:
        return list(kind(value, **facts))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} is no grid of settings, got {shown(value)}: {error}") from None
