"""What a model loses on each record: numbers of that record alone, from a released model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import parallel_config
from numpy.typing import NDArray
from scipy.special import logsumexp
from sklearn.base import is_classifier

from .._checks import check_choice
from ..data.cells import label_codes
from .private_steps import last_step

__all__ = ["Targets", "losses", "scoring_of"]

Array = NDArray[np.float64]

_SCORINGS = {
    "classification": ("neg_log_loss", "accuracy"),
    "regression": ("neg_mean_squared_error", "neg_mean_absolute_error"),
}
# Powers of the probabilities: a probe has little of the budget, and is too certain of what is
# noise, so that each candidate counts by the version that is certain enough.
_POWERS = (1.0, 0.5, 0.25)
_LEAST_PROBABILITY = 1e-12  # finite losses; the clip of a selection is far below


@dataclass(frozen=True)
class Targets:
    """Targets of a table: places of labels among the sorted classes, or numbers in their bounds."""

    values: NDArray[Any]  # -1 for an invalid label; or shape (n,) or (n, n_targets)
    present: NDArray[np.bool_]  # flags the records whose target is valid
    low: Any = None  # of the numbers
    high: Any = None

    @classmethod
    def of(cls, estimator: Any, y: NDArray[Any]) -> Targets:
        """Those of a fit of the estimator, whose classes or bounds are declared."""
        last = last_step(estimator)
        if is_classifier(last):
            codes = label_codes(y, np.unique(np.asarray(last.classes)))
            return cls(codes, codes >= 0)
        low, high = last.bounds_y if last.bounds_y is not None else (-1.0, 1.0)
        low, high = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
        values = np.clip(np.asarray(y, dtype=np.float64), low, high)
        present: Any = ~np.isnan(values.reshape(len(values), -1)).any(axis=1)
        return cls(values, present, low, high)


def scoring_of(candidates: Sequence[Any], scoring: Any) -> str:
    """The name of the score, checked; "auto" is log loss if all candidates have probabilities."""
    steps = [last_step(candidate) for candidate in candidates]
    names = _SCORINGS["classification" if is_classifier(steps[0]) else "regression"]
    scoring = "auto" if scoring is None else check_choice("scoring", scoring, ("auto", *names))
    if is_classifier(steps[0]) and not all(hasattr(step, "predict_proba") for step in steps):
        if scoring == "neg_log_loss":
            raise ValueError(
                "scoring='neg_log_loss' needs candidates whose losses all have probabilities"
            )
        return "accuracy"
    return names[0] if scoring == "auto" else scoring


def losses(model: Any, X: Any, targets: Targets, scoring: str) -> Array:
    """Loss of each record under versions of the model, shape (n, n_versions), 0 for an invalid one.

    -log of the probability of its class, or 1 for a wrong one; or the sum over the targets of the
    squared or absolute residuals in units of half the width of their bounds, of predictions within
    the bounds. The probabilities of a version are proportional to a power of the model's; of other
    scores there is one version.
    """
    values, present = targets.values, targets.present
    with np.errstate(all="ignore"), parallel_config("sequential"):  # nothing is sent away
        if scoring == "neg_log_loss":
            found = np.nan_to_num(np.asarray(model.predict_proba(X)))
            logs = np.log(np.clip(found, _LEAST_PROBABILITY, 1.0))
            own = logs[np.arange(len(logs)), np.maximum(values, 0)]
            versions = [logsumexp(t * logs, axis=1) - t * own for t in _POWERS]
            loss = np.column_stack(versions)
        elif scoring == "accuracy":
            loss = (label_codes(np.asarray(model.predict(X)), model.classes_) != values) * 1.0
        else:
            found = np.clip(np.nan_to_num(model.predict(X)), targets.low, targets.high)
            half = targets.high / 2 - targets.low / 2
            apart = np.abs(found - values) / half
            apart = apart**2 if scoring == "neg_mean_squared_error" else apart
            loss = apart.reshape(len(apart), -1).sum(axis=1)
    return np.where(present[:, None], loss.reshape(len(present), -1), 0.0)
