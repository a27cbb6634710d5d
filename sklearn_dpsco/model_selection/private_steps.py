"""The private steps of an estimator, their plans, and the parts of a budget that they get."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sklearn.pipeline import Pipeline

from ..privacy.allotment import Allotment
from ..privacy.budget import Composition, PrivacyBudget

__all__ = ["OWN", "check_steps", "last_step", "private_steps", "set_parts"]

# what a search sets in every private step
OWN = ("epsilon", "delta", "relation", "max_rows_per_user", "accountant")


def private_steps(estimator: Any) -> dict[str, Any]:
    """What has a budget of its own, by the prefix of its parameters; the estimator's is ""."""
    nested = estimator.get_params(deep=True)
    # (one in the place of bounds is no step: the estimator refuses it)
    steps = {name: value for name, value in nested.items() if not name.endswith("bounds_X")}
    found = {f"{name}__": value for name, value in steps.items() if _is_private(value)}
    return ({"": estimator} if _is_private(estimator) else {}) | found


def _is_private(value: Any) -> bool:
    """Whether an estimator or a transformer has a budget, and a plan."""
    if isinstance(value, type) or not hasattr(value, "get_params"):
        return False
    return set(OWN) <= set(value.get_params(deep=False)) and hasattr(value, "plan")


def last_step(estimator: Any) -> Any:
    """The step of a pipeline that predicts, or the estimator."""
    while isinstance(estimator, Pipeline):
        estimator = estimator[-1]
    return estimator


def check_steps(estimator: Any) -> None:
    """Raise `ValueError` if what predicts is not private, or another step selects by a model."""
    last = last_step(estimator)
    if not (_is_private(last) and hasattr(last, "predict")):
        raise ValueError(
            "estimator must be a private estimator of this package, or a pipeline that ends with "
            f"one, got {last if isinstance(last, str) else type(last).__name__}"
        )
    for prefix, step in private_steps(estimator).items():
        if hasattr(step, "predict") and step is not last and prefix.count("__") > 1:
            raise ValueError(
                f"{prefix.removesuffix('__')!r} is a private model within a step before the last: "
                "how many columns that leaves is not known when a search is planned. Fit it before"
            )


def set_parts(estimator: Any, budget: PrivacyBudget, currency: Composition) -> Any:
    """Give each private step its part of the budget, in proportion to what it asks for.

    With m private steps whose own epsilons cost c_1, ..., c_m in the currency, step k may cost
    the fraction c_k / (c_1 + ... + c_m) of the budget; a single one gets the budget as it is.
    """
    steps = private_steps(estimator)
    costs: dict[str, float] = {}
    several = steps if len(steps) > 1 else {}
    for prefix, step in several.items():
        asked = replace(budget, epsilon=step.epsilon)
        if asked.is_infinite:
            raise ValueError(
                f"{prefix}epsilon must be finite: epsilons of several steps say how they share a "
                "search"
            )
        if currency == "pure":
            costs[prefix] = asked.epsilon
        else:
            costs[prefix] = asked.mu**2 if currency in ("gdp", "pld") else asked.rho
    for prefix in steps:
        part = budget
        if costs:
            part = budget.part(costs[prefix] / sum(costs.values()), currency)
        own = part.epsilon, part.delta, part.relation, part.rows_per_user, Allotment(part)
        names = [f"{prefix}{name}" for name in OWN]
        estimator.set_params(**dict(zip(names, own, strict=True)))
    return estimator
