"""The pipelines inside which an estimator is being fitted, found on the call stack.

scikit-learn tells a step nothing of the steps before it. What is found here decides on no
guarantee: an estimator clips to what is declared, and a warning costs nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from types import FrameType
from typing import Any, NamedTuple

from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline

from .declared import DeclaredOutput, UndeclaredError, output_of_steps

__all__ = ["Surrounding", "declared_for", "pipelines_around"]

_FITS = frozenset({"fit", "fit_transform", "fit_predict", "_fit"})
_KEEPS_COLUMNS = frozenset(  # meta-estimators that hand on the columns of X as they are
    {
        "CalibratedClassifierCV", "DPGridSearchCV", "DPRandomizedSearchCV",
        "FixedThresholdClassifier", "GridSearchCV",
        "HalvingGridSearchCV", "HalvingRandomSearchCV", "MultiOutputClassifier",
        "MultiOutputRegressor", "OneVsOneClassifier", "OneVsRestClassifier", "OutputCodeClassifier",
        "RandomizedSearchCV", "SelfTrainingClassifier", "TransformedTargetRegressor",
        "TunedThresholdClassifierCV",
    }
)  # fmt: skip


class Surrounding(NamedTuple):
    """A pipeline that is being fitted, and its steps before the one that is at work."""

    pipeline: Any
    before: Sequence[tuple[str, Any]]
    is_last: bool  # whether its last step is at work


def pipelines_around() -> list[Surrounding]:
    """The pipelines whose fits are on the call stack, from the inside out."""
    found: dict[int, Surrounding] = {}
    frame = inspect.currentframe()
    while frame is not None:
        pipeline = _fitting(frame)
        # `_fit` runs the steps before the last one, and stands inside of `fit`
        if pipeline is not None and id(pipeline) not in found:
            found[id(pipeline)] = _surrounding(pipeline, frame)
        frame = frame.f_back
    return list(found.values())


def _fitting(frame: FrameType) -> Any:
    """The pipeline that the frame is fitting; None if there is none."""
    code = frame.f_code
    if code.co_name not in _FITS or code.co_varnames[:1] != ("self",):
        return None
    owner = frame.f_locals.get("self")
    return owner if isinstance(owner, Pipeline) else None


def _surrounding(pipeline: Any, frame: FrameType) -> Surrounding:
    steps = list(pipeline.steps)
    if frame.f_code.co_name != "_fit":
        return Surrounding(pipeline, steps[:-1], True)
    position = frame.f_locals.get("step_idx", len(steps) - 1)
    return Surrounding(pipeline, steps[:position], False)


def declared_for(estimator: BaseEstimator, n_features: int) -> DeclaredOutput:
    """What the pipeline that fits the estimator declares of the estimator's features.

    Raises
    ------
    UndeclaredError
        If the estimator is not the last step of a pipeline (searches and the like may stand
        around it), or the step before it declares nothing, or another number of columns.
    """
    inner: Any = estimator
    for pipeline, before, is_last in pipelines_around():
        if not is_last or not _ends_with(pipeline.steps[-1][1], inner):
            break
        found = output_of_steps(before)
        if found is not None:
            return _of_size(found, n_features)
        inner = pipeline  # nothing but "passthrough" before it
    raise UndeclaredError(
        "bounds_X='declared', but the estimator is not being fitted as the last step of a Pipeline "
        "with a step before it that declares its outputs: put it behind a PublicEncoder in a "
        "Pipeline (with searches around the whole pipeline), or give bounds_X as numbers, such as "
        "bounds_X=encoder.bounds_X"
    )


def _ends_with(step: Any, inner: Any) -> bool:
    """Whether a last step is `inner` or its kind, or wraps one without changing its columns."""
    if step is inner or type(step) is type(inner):
        return True
    if type(step).__name__ not in _KEEPS_COLUMNS:
        return False
    wrapped = getattr(step, "estimator", getattr(step, "regressor", None))
    return _ends_with(wrapped, inner)


def _of_size(found: DeclaredOutput, n_features: int) -> DeclaredOutput:
    if found.n_outputs != n_features:
        raise UndeclaredError(
            f"bounds_X='declared', but the step before the estimator declares {found.n_outputs} "
            f"columns and X has {n_features}: give bounds_X as numbers"
        )
    return found
