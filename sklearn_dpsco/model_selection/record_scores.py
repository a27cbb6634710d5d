"""What a model loses on each record: numbers of that record alone, from a released model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier

from .._checks import check_choice
from ..data.records import label_codes
from .private_steps import last_step

__all__ = ["Targets", "losses", "scoring_of"]

Array = NDArray[np.float64]

_SCORINGS = {
    "classification": ("neg_log_loss", "accuracy"),
    "regression": ("neg_mean_squared_error", "neg_mean_absolute_error"),
}
_LEAST_PROBABILITY = 1e-12  # finite losses; the clip of a selection is far below


@dataclass(frozen=True)
class Targets:
    """Targets of a table, in public units.

    Attributes
    ----------
    values : ndarray of shape (n,) or (n, n_targets)
        The position of a label among the sorted classes, -1 for an invalid one; or numbers
        clipped to their bounds.
    low, high : ndarray or None
        Bounds of the numbers.
    """

    values: NDArray[Any]
    low: Any = None
    high: Any = None

    @classmethod
    def of(cls, estimator: Any, y: NDArray[Any]) -> Targets:
        """Those of a fit of the estimator, whose classes or bounds are declared."""
        last = last_step(estimator)
        if is_classifier(last):
            return cls(label_codes(y, np.unique(np.asarray(last.classes))))
        low, high = last.bounds_y if last.bounds_y is not None else (-1.0, 1.0)
        low, high = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
        return cls(np.clip(np.asarray(y, dtype=np.float64), low, high), low, high)

    @property
    def half(self) -> Any:
        """Half the width of the bounds."""
        return self.high / 2 - self.low / 2

    @property
    def present(self) -> NDArray[np.bool_]:
        """Flags the records whose target is valid."""
        if self.low is None:
            return np.asarray(self.values >= 0)
        return ~np.isnan(self.values.reshape(len(self.values), -1)).any(axis=1)


def scoring_of(estimator: Any, scoring: Any) -> str:
    """The name of the score, checked; "auto" is log loss if there are probabilities."""
    last = last_step(estimator)
    names = _SCORINGS["classification" if is_classifier(last) else "regression"]
    check_choice("scoring", scoring, ("auto", *names))
    if is_classifier(last) and not hasattr(last, "predict_proba"):
        if scoring == "neg_log_loss":
            raise ValueError("scoring='neg_log_loss' needs a loss that has probabilities")
        return "accuracy"
    return names[0] if scoring == "auto" else scoring


def losses(model: Any, X: Any, targets: Targets, scoring: str) -> Array:
    """Loss of each record, shape (n,), 0 for an invalid one.

    -log of the probability of its class, or 1 for a wrong one; or the sum over the targets of the
    squared or absolute residuals in units of half the width of their bounds, of predictions within
    the bounds.
    """
    values, present = targets.values, targets.present
    with np.errstate(all="ignore"):
        if scoring == "neg_log_loss":
            found = np.asarray(model.predict_proba(X))
            own = found[np.arange(len(found)), np.maximum(values, 0)]
            loss = -np.log(np.clip(np.nan_to_num(own), _LEAST_PROBABILITY, 1.0))
        elif scoring == "accuracy":
            loss = (label_codes(np.asarray(model.predict(X)), model.classes_) != values) * 1.0
        else:
            found = np.clip(np.nan_to_num(model.predict(X)), targets.low, targets.high)
            apart = np.abs(found - values) / targets.half
            apart = apart**2 if scoring == "neg_mean_squared_error" else apart
            loss = apart.reshape(len(apart), -1).sum(axis=1)
    return np.where(present, loss, 0.0)
