"""What all estimators share: validate, plan, clip, solve, set attributes, predict.

A concrete estimator holds parameters and a docstring, and names its solver.
"""

from __future__ import annotations

import warnings
from abc import ABCMeta, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    check_array,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from .._checks import auto_or, check_bool, check_choice, check_int, check_size
from .._linear import Rows, make_rows
from .._random import RandomStream, check_random_state, stream_from_random_state
from .._records import as_labels, clear_rows, is_missing, label_codes, nonfinite_rows
from ..accounting import (
    BudgetAccountant,
    PrivacyBudget,
    accountant_in_force,
    active_accountant,
)
from ..bounds import (
    FeatureScaling,
    TargetScaling,
    canonical,
    check_feature_bounds,
    feature_scaling,
    target_scaling,
)
from ..exceptions import PrivacyLeakWarning, PrivacyParameterWarning
from ..geometry import Geometry, get_geometry
from ..losses import get_loss
from ..solvers.base import Plan, Problem, Solver, SolverData, SolverResult

__all__ = ["DPClassifier", "DPLinearModel", "DPRegressor", "check_classes"]

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

_ACCEPTED: dict[str, Any] = {
    "accept_sparse": ("csr", "csc"),
    "dtype": (np.float64, np.float32),
}


def _without_data(message: str) -> str:
    """scikit-learn's message without the values of the data that some of them quote."""
    if "could not convert" in message:
        return "X and y must hold numbers: could not convert a string to a number"
    for quote_follows in ("\narray=", "Complex data not supported"):
        head, found, _ = message.partition(quote_follows)
        if found:
            return head + found.replace("\narray=", "")
    return message


class DPLinearModel(BaseEstimator, metaclass=ABCMeta):
    """Base of the linear models trained under differential privacy."""

    _task: str

    # parameters that every concrete estimator has
    epsilon: Any
    delta: Any
    relation: Any
    bounds_X: Any
    fit_intercept: Any
    loss: Any
    feasible_set: Any
    radius: Any
    precision: Any
    nonfinite: Any
    accountant: Any
    random_state: Any

    @abstractmethod
    def _solver(self) -> Solver:
        """The solver with this estimator's settings, checked."""

    def _radius(self) -> float | None:
        """The checked radius, `None` for "auto"."""
        radius: float | None = auto_or(check_size, "radius", self.radius)
        return radius

    def _budget(self) -> PrivacyBudget:
        return PrivacyBudget(
            self.epsilon, self.delta, self.relation, self.precision,
            # an accountant adds up plans of any kind, in the one currency that they share
            "auto" if self._accountant() is None else "zcdp",
        )  # fmt: skip

    def _accountant(self) -> BudgetAccountant | None:
        return accountant_in_force(self.accountant)

    def _feature_scaling(self, n_features: int) -> FeatureScaling:
        """The public map of the features to scaled units."""
        return feature_scaling(self.bounds_X, n_features, self._feature_names())

    def _feasible_set(
        self, n_samples: int, n_features: int, n_models: int
    ) -> Geometry | type[Geometry]:
        """The declared set, or its class if the plan is to choose the radius."""
        return get_geometry(self.feasible_set, self._radius())

    def _least_samples(self) -> int:
        """A number of samples that suits all parameters which are right by themselves."""
        return 2

    def _least_features(self) -> int:
        """A number of features that suits all parameters which are right by themselves."""
        return 1

    def _problem(self, n_samples: int, n_features: int, n_models: int) -> Problem:
        """The public facts of a fit."""
        feasible_set = self._feasible_set(n_samples, n_features, n_models)
        fit_intercept = check_bool("fit_intercept", self.fit_intercept)
        kind = type(feasible_set) if isinstance(feasible_set, Geometry) else feasible_set
        if fit_intercept and not kind.allows_intercept:
            raise ValueError(
                f"feasible_set={self.feasible_set!r} needs fit_intercept=False: its points have "
                "no room for an intercept"
            )
        return Problem(
            n_samples, n_features, get_loss(self.loss, self._task), feasible_set,
            fit_intercept, n_models,
        )  # fmt: skip

    def _plan(self, n_samples: int, n_features: int, n_models: int) -> Plan:
        budget = self._budget()
        return self._solver().plan(self._problem(n_samples, n_features, n_models), budget)

    def _check_parameters(self) -> None:
        """Raise on any parameter that is wrong whatever the data are."""
        self._plan(self._least_samples(), self._least_features(), n_models=1)
        check_choice("nonfinite", self.nonfinite, ("raise", "zero"))
        check_random_state(self.random_state)
        check_feature_bounds(self.bounds_X)

    def _warn_if_delta_is_large(self, n_samples: int) -> None:
        if self.delta >= 1 / n_samples:
            warnings.warn(
                f"delta={self.delta!r} is not below 1 / n_samples: such a guarantee lets a "
                "mechanism publish a whole record",
                PrivacyParameterWarning,
                stacklevel=3,
            )

    def _validate(
        self, X: Any, y: Any, *, reset: bool = True, min_samples: int = 2
    ) -> tuple[Any, Any]:
        """X and y as arrays; with nonfinite="zero" they may hold invalid records."""
        checks = _ACCEPTED | {"reset": reset, "ensure_min_samples": min_samples}
        try:
            if self.nonfinite == "zero":
                with np.errstate(all="ignore"):  # a cast may warn of a single value
                    return self._validate_with_gaps(X, y, checks)
            is_regression = self._task == "regression"
            X, y = validate_data(self, X, y, y_numeric=is_regression, **checks)
            return X, y.astype(np.float64) if is_regression else y
        except ValueError as error:
            raise ValueError(_without_data(str(error))) from None

    def _validate_with_gaps(self, X: Any, y: Any, checks: dict[str, Any]) -> tuple[Any, Any]:
        # by hand, since scikit-learn's validators never let NaN pass in y
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None"
            )
        X = validate_data(self, X, ensure_all_finite=False, **checks)
        if self._task == "classification":
            y = as_labels(y)
        else:
            y = check_array(y, dtype=np.float64, ensure_2d=False, ensure_all_finite=False)
            y = column_or_1d(y, warn=True)
        check_consistent_length(X, y)
        return X, y

    @contextmanager
    def _unchanged_on_error(self) -> Iterator[None]:
        """A part of a call after which an error leaves the estimator as it was."""
        state = self.__dict__
        before = dict(state)
        try:
            yield
        except BaseException:
            state.clear()
            state.update(before)
            raise

    @contextmanager
    def _until_spent(self) -> Iterator[None]:
        """The part of a fit that ends with the charge.

        An error inside leaves an earlier fit as it was. Afterwards the earlier fit is gone,
        so that a fit that is interrupted leaves no model.
        """
        earlier = [name for name in self.__dict__ if name.endswith("_")]
        with self._unchanged_on_error():
            yield
        for name in earlier:
            if name not in ("n_features_in_", "feature_names_in_"):
                self.__dict__.pop(name, None)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "coef_")

    def _rows(
        self, X: Any, scaling: FeatureScaling, fit_intercept: bool, is_empty: Flags | None
    ) -> Rows:
        """Scaled rows. With nonfinite="zero", invalid ones are zeros of weight 0.

        `is_empty` flags records whose target is invalid; those with invalid features are
        found here.
        """
        self._origin = scaling.shift
        if self.nonfinite != "zero":
            return make_rows(scaling.transform(X), fit_intercept)
        X = canonical(X) if sparse.issparse(X) else X
        empty = nonfinite_rows(X)
        if is_empty is not None:
            empty |= is_empty
        cleared = clear_rows(scaling.transform(X), empty, X)
        return make_rows(cleared, fit_intercept, np.where(empty, 0.0, 1.0))

    def _charge(self, X: Any, n_models: int) -> tuple[Plan, FeatureScaling]:
        """The plan, charged to the accountant, and the scaling; reads no value of X."""
        n_samples, n_features = X.shape
        self._warn_if_delta_is_large(n_samples)
        plan = self._plan(n_samples, n_features, n_models)
        return plan, self._spend(plan, X)

    def _spend(self, plan: Plan, X: Any) -> FeatureScaling:
        """Charge the plan to the accountant; the scaling of X, none of whose values is read."""
        scaling = self._feature_scaling(X.shape[1])
        scaling.transform(X[:0])  # bounds that do not suit sparse X: an error before the charge
        accountant = self._accountant()
        if accountant is not None:
            accountant.spend(plan.guarantee)
        return scaling

    def _fit_models(
        self,
        X: Any,
        targets: list[Array],
        plan: Plan,
        scaling: FeatureScaling,
        is_empty: Flags | None = None,
    ) -> list[SolverResult]:
        """Run one model per target; sets `plan_`, `guarantee_`, `n_iter_`.

        `is_empty` flags the records whose target is invalid.
        """
        rows = self._rows(X, scaling, plan.problem.fit_intercept, is_empty)
        stream = stream_from_random_state(self.random_state)
        solver = self._solver()
        rows = self._prepare(rows, solver, plan, stream)
        results = []
        for k, target in enumerate(targets):
            data = SolverData(rows, target)
            result = solver.solve(data, plan, stream.substream("model", k))
            coef, intercept = scaling.unscale(result.coef, result.intercept)
            results.append(SolverResult(coef, intercept, result.n_iter))
        self.plan_ = plan
        self.guarantee_ = plan.guarantee
        self.noise_is_secret_ = stream.is_secure
        self.n_iter_ = max(result.n_iter for result in results)
        return results

    def _prepare(self, rows: Rows, solver: Any, plan: Any, stream: RandomStream) -> Rows:
        """What is done to the rows once, before the models of one-vs-rest are trained."""
        return rows

    def _feature_names(self) -> list[str] | None:
        names = getattr(self, "feature_names_in_", None)
        return None if names is None else list(names)

    def _check_plan_sizes(self, n_samples: Any, n_features: Any) -> tuple[int, int]:
        n_samples = check_int("n_samples", n_samples, low=2)
        n_features = check_int("n_features", n_features, low=1)
        if isinstance(self.bounds_X, Mapping):
            if len(self.bounds_X) != n_features:
                raise ValueError(
                    f"bounds_X names {len(self.bounds_X)} columns, but n_features={n_features}"
                )
        elif self.bounds_X is not None:
            feature_scaling(self.bounds_X, n_features)
        self._warn_if_delta_is_large(n_samples)
        return n_samples, n_features

    def _raw_prediction(self, X: Any) -> Array:
        check_is_fitted(self)
        if self.nonfinite != "zero":
            X = validate_data(self, X, reset=False, **_ACCEPTED)
            return self._linear(X)
        X = validate_data(self, X, reset=False, ensure_all_finite=False, **_ACCEPTED)
        X = canonical(X) if sparse.issparse(X) else X
        invalid = nonfinite_rows(X)
        raw = self._linear(clear_rows(X, invalid, X))
        raw[invalid] = self._linear(self._origin)
        return raw

    def _linear(self, X: Any) -> Any:
        return safe_sparse_dot(X, self.coef_.T, dense_output=True) + self.intercept_

    def __getstate__(self) -> dict[str, Any]:
        # a block does not reach other processes: what is sent there takes its accountant
        # along, so that a fit in a worker fails instead of spending nothing
        state: dict[str, Any] = super().__getstate__()
        if state.get("accountant") is None and active_accountant() is not None:
            state = {**state, "accountant": active_accountant()}
        return state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self.nonfinite == "zero"
        return tags


class DPRegressor(RegressorMixin, DPLinearModel):
    """Base of the regressors: targets are clipped to `bounds_y` and scaled to [-1, 1]."""

    _task = "regression"

    bounds_y: Any

    def fit(self, X: Any, y: Any) -> DPRegressor:
        """Fit the model.

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
            If a parameter or the shape of the data is wrong, or X or y has a missing or
            infinite value. Nothing is spent then. The errors tell one bit of the data
            that lies outside the guarantee: that it is invalid.
        PrivacyBudgetError
            If the accountant refuses the charge. Nothing is spent then, either.
        """
        self._check_parameters()
        with self._until_spent():
            X, y = self._validate(X, y)
            scaling = self._target_scaling()
            charged = self._charge(X, n_models=1)
        is_empty = is_missing(y)
        target = np.where(is_empty, 0.0, scaling.transform(y))
        (result,) = self._fit_models(X, [target], *charged, is_empty)
        self.coef_, self.intercept_ = scaling.unscale(result.coef, result.intercept)
        return self

    def _target_scaling(self) -> TargetScaling:
        """The public map of the targets to [-1, 1]."""
        return target_scaling(self.bounds_y)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.bounds_y is not None:
            target_scaling(self.bounds_y)

    def plan(self, n_samples: int, n_features: int) -> Plan:
        """The plan that `fit` would follow on data of this size; spends nothing.

        Parameters
        ----------
        n_samples, n_features : int

        Returns
        -------
        Plan
        """
        self._check_parameters()
        return self._plan(*self._check_plan_sizes(n_samples, n_features), 1)

    def predict(self, X: Any) -> Array:
        """``X @ coef_ + intercept_``, in the units of y, shape (n_samples,).

        With ``nonfinite="zero"``, a row with NaN or an infinity is taken for one whose
        scaled features are all 0.
        """
        return self._raw_prediction(X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags


def check_classes(classes: Any) -> NDArray[Any]:
    """The declared labels, sorted."""
    try:
        declared = np.unique(np.asarray(classes))
    except TypeError:
        raise ValueError(f"classes must be of one kind, got {classes!r}") from None
    if np.ndim(classes) != 1 or declared.size != len(classes) or declared.size < 2:
        raise ValueError(
            f"classes must be None or a list of at least two different labels, got {classes!r}"
        )
    return declared


def _classification_loss(estimator: Any) -> Any:
    """The loss of the fitted model, or before a fit that of the parameters."""
    if hasattr(estimator, "plan_"):
        return estimator.plan_.problem.loss
    return get_loss(estimator.loss, "classification")


def _loss_has_probabilities(estimator: Any) -> bool:
    return hasattr(_classification_loss(estimator), "probability")


class DPClassifier(ClassifierMixin, DPLinearModel):
    """Base of the classifiers: binary, or one-vs-rest with the budget split over classes."""

    _task = "classification"

    classes: Any

    def fit(self, X: Any, y: Any) -> DPClassifier:
        """Fit the model.

        Parameters
        ----------
        X : {array-like, CSR or CSC matrix} of shape (n_samples, n_features)
            Values outside `bounds_X` are clipped.
        y : array-like of shape (n_samples,)
            Labels, all of them among `classes` if those were declared.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a parameter or the shape of the data is wrong, X has a missing or infinite
            value, or y a label that was not declared. Nothing is spent then. The errors
            tell one bit of the data that lies outside the guarantee: that it is invalid.
        PrivacyBudgetError
            If the accountant refuses the charge. Nothing is spent then, either.
        """
        self._check_parameters()
        declared = self._declared_classes()
        with self._until_spent():
            X, y = self._validate(X, y)
            if declared is None:
                declared = self._classes_of(y)
            codes = self._codes(y, declared)
            positives = range(declared.size) if declared.size > 2 else [1]
            charged = self._charge(X, n_models=len(positives))
        self.classes_ = declared
        targets = [np.where(codes == code, 1.0, -1.0) for code in positives]
        results = self._fit_models(X, targets, *charged, codes < 0)
        self.coef_ = np.array([result.coef for result in results])
        self.intercept_ = np.array([result.intercept for result in results])
        return self

    def _classes_of(self, y: NDArray[Any]) -> NDArray[Any]:
        """The labels that occur, with a warning."""
        if self.nonfinite == "zero":
            y = y[~is_missing(y)]
            y = np.asarray(y.tolist()) if y.dtype.kind == "O" else y
        check_classification_targets(y)
        found = np.unique(y)
        if found.size < 2:
            raise ValueError("y has one class only; at least two classes are needed")
        warnings.warn(
            "classes was not given: the list of labels is taken from y, which is outside "
            "the privacy guarantee. Declare the classes.",
            PrivacyLeakWarning,
            stacklevel=3,
        )
        return found

    def _codes(self, y: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.int_]:
        """Position of each label among the classes, -1 for one that is not among them."""
        codes = label_codes(y, classes)
        # an array of text against numbers is a mistake in the types, not in some records
        of_other_type = (y.dtype.kind in "US") != (classes.dtype.kind in "US")
        of_other_type = of_other_type and "O" not in (y.dtype.kind, classes.dtype.kind)
        if of_other_type or (self.nonfinite == "raise" and np.any(codes < 0)):
            raise ValueError("y has labels that are not among the declared classes")
        return codes

    def _declared_classes(self) -> NDArray[Any] | None:
        return None if self.classes is None else check_classes(self.classes)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self._declared_classes()

    def plan(self, n_samples: int, n_features: int, n_classes: int | None = None) -> Plan:
        """The plan that `fit` would follow on data of this size; spends nothing.

        Parameters
        ----------
        n_samples, n_features : int
        n_classes : int or None
            None stands for the number of declared classes, or 2.

        Returns
        -------
        Plan
            That of one class if there are more than two; its guarantee covers all.
        """
        self._check_parameters()
        declared = self._declared_classes()
        if n_classes is None:
            n_classes = 2 if declared is None else declared.size
        n_classes = check_int("n_classes", n_classes, low=2)
        if declared is not None and n_classes != declared.size:
            raise ValueError(f"n_classes={n_classes} but classes has {declared.size} labels")
        n_models = 1 if n_classes == 2 else n_classes
        return self._plan(*self._check_plan_sizes(n_samples, n_features), n_models)

    def decision_function(self, X: Any) -> Array:
        """``X @ coef_.T + intercept_``.

        Returns
        -------
        ndarray of shape (n_samples,) for two classes, else (n_samples, n_classes)
        """
        scores = self._raw_prediction(X)
        return scores.ravel() if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """The class with the largest score, shape (n_samples,)."""
        scores = self.decision_function(X)
        index = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return self.classes_[index]

    @available_if(_loss_has_probabilities)
    def predict_proba(self, X: Any) -> Array:
        """Probability of each class, shape (n_samples, n_classes).

        The loss's link of the scores; with more than two classes, normalized to sum to 1.
        """
        positive = _classification_loss(self).probability(self.decision_function(X))
        if positive.ndim == 1:
            return np.column_stack((1 - positive, positive))
        total = positive.sum(axis=1, keepdims=True)
        uniform = np.full_like(positive, 1 / positive.shape[1])
        return np.divide(positive, total, out=uniform, where=total > 0)

    @available_if(_loss_has_probabilities)
    def predict_log_proba(self, X: Any) -> Array:
        """Logarithm of `predict_proba`, shape (n_samples, n_classes)."""
        return np.log(self.predict_proba(X))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True
        return tags
