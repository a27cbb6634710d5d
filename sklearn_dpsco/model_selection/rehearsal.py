"""What a fit would do, up to the moment of its charge: its errors, and the plans of its steps.

An estimator checks its parameters and its data, makes its plan and only then spends. In a rehearsal
whoever takes the charge stops the fit, so that a search knows of every candidate that it can be
fitted, and exactly by which plan, before anything is spent.
"""

from __future__ import annotations

from typing import Any, NoReturn, Self

import numpy as np
from joblib import parallel_config
from scipy import sparse
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin

from .._checks import unwarned
from .._progress import silent
from ..data.cells import as_numbers
from ..privacy.allotment import Allotment
from .private_steps import last_step, private_steps

__all__ = ["fitted_alone", "rehearsed"]


class RehearsalOver(Exception):
    """A fit has come to its charge; its arguments are the plan, and whether it has groups."""


class _Rehearsal(Allotment):
    """A part of a budget that stops whoever spends it."""

    def spend(self, guarantee: Any, *_: Any, has_groups: bool = False, **__: Any) -> NoReturn:
        raise RehearsalOver(guarantee, has_groups)


class _StandIn(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """In the place of a private transformer: rehearses its fit, and lets columns through."""

    def __init__(self, step: Any, keep: Any, prefix: str) -> None:
        self.step, self.keep, self.prefix = step, keep, prefix

    def fit(self, X: Any, y: Any = None, **extras: Any) -> Self:
        try:
            self.step.fit(X, y, **extras)
        except RehearsalOver as over:
            self.keep(self.prefix, over)
        self.n_features_in_ = X.shape[1]
        if hasattr(X, "columns"):
            self.feature_names_in_ = np.asarray(X.columns, dtype=object)
        return self

    def transform(self, X: Any) -> Any:
        # within [-1, 1]: what a private transformer gives is bounded, whatever a cell holds
        X = as_numbers("X", X, strict=False)
        is_sparse = sparse.issparse(X)
        X = X.tocsr(copy=True) if is_sparse else X
        values = np.nan_to_num(np.asarray(X.data if is_sparse else X, dtype=np.float64))
        values = values / (1 + np.abs(values))
        if not is_sparse:
            return values
        X.data = values
        return X

    def get_metadata_routing(self) -> Any:
        return self.step.get_metadata_routing()


def fitted_alone(estimator: Any, X: Any, y: Any, **extras: Any) -> Any:
    """The estimator, fitted without the warnings of its rehearsal, in silence, in this process.

    There a part of a budget is a copy, which does not know whether the part was spent.
    """
    with unwarned(), silent(), parallel_config("sequential"):
        return estimator.fit(X, y, **extras)


def rehearsed(estimator: Any, X: Any, y: Any, **extras: Any) -> dict[str, Any]:
    """The plans of the private steps, by their prefix, when the estimator is fitted on data.

    The estimator is used up. A `ValueError` says if a private step comes to no charge, or without
    the groups that another one has.
    """
    nested = estimator.get_params(deep=True)
    # from a cache, no fit would come to its charge
    estimator.set_params(**{name: None for name in nested if name.rpartition("__")[2] == "memory"})
    last, steps = last_step(estimator), private_steps(estimator)
    found: dict[str, tuple[Any, bool]] = {}

    def keep(prefix: str, over: RehearsalOver) -> None:  # a copy of a function is the same one
        found[prefix] = over.args

    for prefix, step in steps.items():
        if isinstance(step.get_metadata_routing().fit.requests.get("groups"), str):
            raise ValueError(
                "a private step of a search requests groups under another name: the search claims "
                "what it claims of its own groups, so say set_fit_request(groups=True)"
            )
        step.set_params(accountant=_Rehearsal(step.accountant.budget))
        if step is not last:
            estimator.set_params(**{prefix.removesuffix("__"): _StandIn(step, keep, prefix)})
    try:
        with parallel_config("sequential"):  # as when it is fitted
            estimator.fit(X, y, **extras)
    except RehearsalOver as over:
        keep(next(prefix for prefix, step in steps.items() if step is last), over)
    missing = [prefix.removesuffix("__") for prefix in steps if prefix not in found]
    if missing:
        raise ValueError(
            f"the fits of the private steps {missing} cannot be planned: they are not fitted with "
            "the pipeline"
        )
    if len({has_groups for _, has_groups in found.values()}) > 1:
        raise ValueError(
            "groups must reach all private steps of a search or none, since it claims the same of "
            "all: request them of each, as by set_fit_request(groups=True)"
        )
    return {prefix: found[prefix][0] for prefix in steps}
