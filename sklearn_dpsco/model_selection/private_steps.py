"""The private steps of an estimator, the parts of a budget that they get, and their plans.

A rehearsal stops a fit at its charge, which comes after all checks and the plan: a search knows of
every candidate that it can be fitted, and by which plan, before anything is spent.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from joblib import parallel_config
from scipy import sparse
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.utils.validation import validate_data

from .._checks import unwarned
from .._progress import silent
from .._types import Disjoint
from ..data.cells import as_numbers
from ..data.compressed import with_values
from ..exceptions import PrivacyBudgetError
from ..preprocessing.declared import branches
from ..preprocessing.vocabulary import PrivateVocabulary
from ..privacy.branches import Account, ParallelGroup
from ..privacy.budget import ROUNDING, Composition, Currency, PrivacyBudget
from ..privacy.guarantee import Guarantee

# what a search sets in every private step
OWN = ("epsilon", "delta", "relation", "max_rows_per_user", "accountant")


class RehearsalOver(Exception):
    """A fit has come to its charge."""


@dataclass(eq=False, repr=False)
class Allotment(Account):
    """In the place of an accountant, it accepts one plan within a part that was charged already.

    In a rehearsal it stops whoever spends it. Its copies are the same object.
    """

    _budget: PrivacyBudget
    is_rehearsal: bool = False
    plan: Any = None  # that was to be charged in a rehearsal
    has_groups: bool = False
    _is_spent: bool = False  # known here alone: a copy may be sent to another process

    def _terms(self) -> tuple[PrivacyBudget, Currency, float | None, int]:
        budget = self._budget
        return budget, budget.currency, budget.order, budget.rows_per_user

    def remaining(self, delta: float | None = None, *, n_fits: int = 1) -> float:
        raise TypeError("a part of a search's budget is for one fit: ask the accountant")

    def parallel(self, disjoint: Disjoint = "rows") -> ParallelGroup:
        raise TypeError("a part of a search's budget is for one fit, and has no branches")

    def spend(self, guarantee: Any, *_: Any, has_groups: bool = False, **__: Any) -> None:
        """Accept a guarantee, or that of a plan, once; `PrivacyBudgetError` if it costs more."""
        if self.is_rehearsal:
            self.plan, self.has_groups = guarantee, has_groups
            raise RehearsalOver
        guarantee = getattr(guarantee, "guarantee", guarantee)
        if self._is_spent:
            raise PrivacyBudgetError(
                "this part of a search's budget was spent: within a search, a private estimator is "
                "fitted once for each candidate"
            )
        if not self.accepts(guarantee):
            raise PrivacyBudgetError("the fit costs more than its part of the budget")
        self._is_spent = True

    def accepts(self, guarantee: Guarantee) -> bool:
        """Whether it is within the part, in the part's currency."""
        budget = self.budget
        tells = bool(guarantee.slack) and budget.currency != "auto"  # parts share one delta
        is_of_kind = guarantee.relation == budget.relation and not tells
        if not is_of_kind or guarantee.rows_per_user < budget.rows_per_user:
            return False
        if budget.currency == "auto":
            return guarantee.epsilon <= budget.epsilon and guarantee.delta <= budget.delta
        if budget.is_pure:
            return guarantee.cost("pure") <= budget.epsilon
        squared = budget.rows_per_user**2  # allowances are those of a row
        if budget.currency == "gdp":
            most = squared * budget.mixed_allowance.amount * ROUNDING
            return guarantee.composes_in("gdp") and guarantee.cost("gdp") <= most
        cost = guarantee.cost("zcdp")
        if budget.order is not None:
            cost = min(cost, guarantee.renyi(budget.order) / budget.order)
        return cost <= squared * budget.rho * ROUNDING


def private_steps(estimator: Any) -> dict[str, Any]:
    """What has a budget of its own, by the prefix of its parameters; the estimator's is ""."""
    nested = estimator.get_params(deep=True)
    # one in the place of bounds is no step: it is not fitted
    steps = {name: value for name, value in nested.items() if not name.endswith("bounds_X")}
    found = {f"{name}__": value for name, value in steps.items() if _is_private(value)}
    return ({"": estimator} if _is_private(estimator) else {}) | found


def _is_private(value: Any) -> bool:
    """Whether an estimator or a transformer has a budget, and a plan."""
    if isinstance(value, type) or not hasattr(value, "get_params"):
        return False
    return set(OWN) <= set(value.get_params(deep=False)) and hasattr(value, "plan")


def fitted_steps(estimator: Any) -> Iterator[Any]:
    """The private steps that were fitted, which in a `ColumnTransformer` are copies."""
    if hasattr(estimator, "guarantee_"):
        yield estimator
    elif isinstance(estimator, Pipeline | ColumnTransformer | FeatureUnion):
        whole = estimator
        for _, part in whole.steps if isinstance(whole, Pipeline) else branches(whole):
            yield from fitted_steps(part)


def last_step(estimator: Any) -> Any:
    """The step of a pipeline that predicts, or the estimator."""
    while isinstance(estimator, Pipeline):
        estimator = estimator[-1]
    return estimator


def private_last(estimator: Any, what: str) -> Any:
    """The last step; a `ValueError` that begins with `what` if it is not private."""
    last = last_step(estimator)
    if not (_is_private(last) and hasattr(last, "predict")):
        raise ValueError(
            f"{what} of this package, or a pipeline that ends with one, got "
            f"{last if isinstance(last, str) else type(last).__name__}"
        )
    return last


def check_steps(estimator: Any) -> None:
    """Raise `ValueError` if what predicts is not private, or another step selects by a model."""
    last = private_last(estimator, "estimator must be a private estimator")
    for prefix, step in private_steps(estimator).items():
        if isinstance(step, PrivateVocabulary):
            raise ValueError(
                f"{prefix.removesuffix('__')!r} is a PrivateVocabulary: fit it before, and give "
                "the search its vectorizer_, whose words are public by then"
            )
        if hasattr(step, "predict") and step is not last and prefix.count("__") > 1:
            raise ValueError(
                f"{prefix.removesuffix('__')!r} is a private model within a step before the last: "
                "how many columns that leaves is not known when a search is planned. Fit it before"
            )


def set_parts(estimator: Any, budget: PrivacyBudget, currency: Composition) -> Any:
    """Give private steps parts in proportion to what their own epsilons cost in the currency."""
    steps = private_steps(estimator)
    costs: dict[str, float] = {}
    for prefix, step in steps.items() if len(steps) > 1 else ():
        asked = replace(budget, epsilon=step.epsilon)
        if asked.is_infinite:
            raise ValueError(
                f"{prefix}epsilon must be finite: epsilons of several steps say how they share a "
                "search"
            )
        of_noise = asked.mu**2 if currency in ("gdp", "pld") else asked.rho
        costs[prefix] = asked.epsilon if currency == "pure" else of_noise
    whole = sum(costs.values())
    for prefix, step in steps.items():
        part = budget.part(costs[prefix] / whole, currency) if costs else budget
        own = part.epsilon, part.delta, part.relation, part.rows_per_user, Allotment(part)
        step.set_params(**dict(zip(OWN, own, strict=True)))
    return estimator


def fitted_alone(estimator: Any, X: Any, y: Any, **extras: Any) -> Any:
    """The estimator, fitted without the warnings of its rehearsal, in silence, in this process."""
    # in another one a part of a budget is a copy, which does not know whether the part was spent
    with unwarned(), silent(), parallel_config("sequential"):
        return estimator.fit(X, y, **extras)


# --------------------------------------------------------------------------- rehearsals


@dataclass(eq=False, repr=False)
class _StandIn(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """In the place of a private transformer: rehearses its fit, and lets columns through."""

    step: Any

    def fit(self, X: Any, y: Any = None, **extras: Any) -> Self:
        with suppress(RehearsalOver):
            self.step.fit(X, y, **extras)
        validate_data(self, X, skip_check_array=True)  # the number and the names of columns
        return self

    def transform(self, X: Any) -> Any:
        # within [-1, 1]: what a private transformer gives is bounded, whatever a cell holds; or NaN
        # of what is not finite, of which a strict last step makes an error before the charge
        X = as_numbers("X", X, strict=False)
        is_sparse = sparse.issparse(X)
        X = X.tocsr() if is_sparse else X
        values = np.asarray(X.data if is_sparse else X, dtype=np.float64)
        with np.errstate(all="ignore"):
            values = values / (1 + np.abs(values))
        return with_values(X, values) if is_sparse else values

    def get_metadata_routing(self) -> Any:
        return self.step.get_metadata_routing()


def rehearsed(estimator: Any, X: Any, y: Any, **extras: Any) -> list[Any]:
    """The plans of the private steps of a fit to data; the estimator is used up."""
    nested = estimator.get_params(deep=True)
    # from a cache, no fit would come to its charge
    estimator.set_params(**{name: None for name in nested if name.rpartition("__")[2] == "memory"})
    last, steps = last_step(estimator), private_steps(estimator)
    parts = {prefix: step.accountant for prefix, step in steps.items()}
    for prefix, step in steps.items():
        if isinstance(step.get_metadata_routing().fit.requests.get("groups"), str):
            raise ValueError(
                "a private step of a search requests groups under another name: the search claims "
                "what it claims of its own groups, so say set_fit_request(groups=True)"
            )
        step.accountant.is_rehearsal = True
        if step is not last:
            estimator.set_params(**{prefix.removesuffix("__"): _StandIn(step)})
    with suppress(RehearsalOver), parallel_config("sequential"):  # as when it is fitted
        estimator.fit(X, y, **extras)
    missing = [prefix.removesuffix("__") for prefix, part in parts.items() if part.plan is None]
    if missing:
        raise ValueError(
            f"the fits of the private steps {missing} cannot be planned: they are not fitted with "
            "the pipeline"
        )
    if len({part.has_groups for part in parts.values()}) > 1:
        raise ValueError(
            "groups must reach all private steps of a search or none, since it claims the same of "
            "all: request them of each, as by set_fit_request(groups=True)"
        )
    return [part.plan for part in parts.values()]
