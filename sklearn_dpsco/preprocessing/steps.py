"""What the steps of a pipeline make of a table, and which rows its last model leaves out."""

from __future__ import annotations

from typing import Any

from .._types import Flags
from ..data.cells import checked_table, nonfinite_rows
from ..data.compressed import canonical
from .declared import is_passthrough


def opened(estimator: Any) -> tuple[Any, list[Any]]:
    """The last model of a pipeline or of a search's best, and the steps that are before it."""
    before: list[Any] = []
    while True:
        if hasattr(estimator, "best_estimator_"):
            estimator = estimator.best_estimator_
        elif isinstance(getattr(estimator, "steps", None), list) and estimator.steps:
            *first, estimator = (step for _, step in estimator.steps)
            before += [step for step in first if not is_passthrough(step)]
        else:
            return estimator, before


def reaching(estimator: Any, X: Any) -> tuple[Any, Any]:
    """The last model of a fitted estimator, and what its steps before make of X."""
    last, before = opened(estimator)
    for step in before:
        X = step.transform(X)
    return last, X


def empty_rows(X: Any) -> Flags:
    """Flags rows that a model with ``nonfinite="zero"`` takes for empty ones."""
    return nonfinite_rows(canonical(checked_table(X, strict=False)))
