r"""A private choice among models that were released already (doc/privacy, section 2.18).

The regret of a record under model j is :math:`\min(l_{ij} - \min_k l_{ik}, r)`, in [0, r], and the
score of j is minus the sum of the regrets. One record changes the scores by a vector of range r
under zero-out and of 2 r under replace-one; what all models lose alike costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from joblib import parallel_config
from sklearn import get_config
from sklearn.base import is_classifier

from .._checks import check_choice
from .._types import AnyArray, Array
from ..data.cells import empty_rows, label_codes
from ..data.rows import UNIT_ROUNDOFF, place_counts
from ..mechanisms import Release, SelectVertex
from ..preprocessing.declared import reaching
from ..privacy.budget import Allowance, PrivacyBudget
from ..randomness.stream import RandomStream
from ..solvers.base import Part, named_releases
from ..solvers.statistics import median_on_grid, median_score
from .private_steps import last_step, private_steps

_GRID = 2.0 ** np.arange(-20.0, 2.01, 0.25)  # of losses in regression, in squared half widths
_UNIT_SHARE = 0.1  # of the choice's part, for the unit of losses
_BONUS = 5.0  # of the default, in units of the noise: e^5 against each other candidate

_OF_CLASSES = "neg_log_loss", "accuracy"
_OF_NUMBERS = "neg_mean_squared_error", "neg_mean_absolute_error"
_LEAST_PROBABILITY = 1e-12  # finite losses; the clip of a selection is far below

# Constants of a choice, the same for every table, by what is compared:
# the largest regret of a record, in nats times ln K / ln 2, in wrong labels, or in units of the
#   default's median loss;
# what the default may lose on average, in largest regrets: what looks better by less is mostly the
#   luck of a probe's noise.
_RULES = {
    "neg_log_loss": (2.0, 0.0025),
    "accuracy": (1.0, 0.005),
    "neg_mean_squared_error": (1.0, 0.02),
    "neg_mean_absolute_error": (1.0, 0.02),
}


@dataclass(frozen=True)
class Choice(Part):
    """The releases of a choice."""

    scoring: str
    unit: SelectVertex | None  # of the default's median loss; None for losses with a public unit
    select: SelectVertex  # of a model, in units of the largest regret
    regret_factor: float = 1.0  # of classes: ln K / ln 2 for log loss

    @property
    def releases(self) -> tuple[Release, ...]:
        return named_releases(("median loss", self.unit, 1), ("choice", self.select, 1))

    def run(self, losses: Array, weights: Array, stream: RandomStream) -> int:
        """Index of the chosen model; weights are in [0, 1], and 0 for an empty record.

        So is a record with a loss of NaN, which is empty for one of the models.
        """
        is_empty = np.isnan(losses).any(axis=1)
        weights, losses = np.where(is_empty, 0.0, weights), np.nan_to_num(losses)
        n = len(losses)  # the second axis is that of models, the default first
        largest, margin = _RULES[self.scoring]
        largest *= self.regret_factor
        if self.unit is not None:
            flat = np.zeros(_GRID.size)
            counts = place_counts(losses[:, 0], weights > 0, _GRID)
            largest *= median_on_grid(counts, n, _GRID, flat, self.unit, stream)
        scores = self.scores(losses, weights, largest)
        # no more than the rounding of the sum is counted for; from `rows_for_choice` on it is less
        scores[0] += min(_BONUS * self.select.scale, n) + margin * n
        return self.select.release(scores, stream)

    @staticmethod
    def scores(losses: Array, weights: Array, largest: float) -> Array:
        """Minus the weighted sums of the regrets, in units of the largest; exactly rounded."""
        regrets = losses - losses.min(axis=1, keepdims=True)
        regrets = np.clip(regrets / largest, 0.0, 1.0) * weights[:, None]
        return -np.array([math.fsum(column) for column in regrets.T])


def plan_choice(
    scoring: str, n_samples: int, n_outputs: int, budget: PrivacyBudget, allowance: Allowance
) -> Choice:
    """The choice within an allowance; `n_outputs` is the number of classes or of targets."""
    # a sum is rounded once, and once more when the bonus is added, which is below 2 n
    change = budget.record_factor + 4 * UNIT_ROUNDOFF * (2 * n_samples)
    if scoring in _OF_CLASSES:
        factor = math.log2(n_outputs) if scoring == "neg_log_loss" else 1.0
        return Choice(scoring, None, SelectVertex.calibrate(change, allowance), factor)
    of_median = median_score(n_samples, budget.record_factor)
    unit = SelectVertex.calibrate(of_median, allowance.share(_UNIT_SHARE))
    select = SelectVertex.calibrate(change, allowance.share(1 - _UNIT_SHARE))
    return Choice(scoring, unit, select)


# ---------------------------------------------------- what a model loses on each record


class Table(NamedTuple):
    """What is fitted and compared."""

    X: Any
    y: Any
    extras: dict[str, Any]  # groups, weights and exposure, as they are given
    classes: Any  # if they were not declared
    n_outputs: int  # classes, or targets
    targets: AnyArray  # places among the sorted classes, or numbers within bounds_y
    low: Any  # bounds of numbers
    high: Any
    weights: Array  # 0 for an invalid record
    exposure: Any  # what predictions are multiplied by

    def fitted(self, estimator: Any, fit: Callable[..., Any]) -> Any:
        """``fit(estimator, X, y, **extras)``, groups for private steps, others for the last."""
        extras = self.extras
        if not get_config()["enable_metadata_routing"]:
            last = last_step(estimator)
            extras = {
                f"{prefix}{name}": value
                for name, value in self.extras.items()
                for prefix, step in private_steps(estimator).items()
                if name == "groups" or step is last
            }
        return fit(estimator, self.X, self.y, **extras)


def scoring_of(candidates: Sequence[Any], scoring: Any) -> str:
    """The name of the score, checked; "auto" is log loss if all candidates have probabilities."""
    steps = [last_step(candidate) for candidate in candidates]
    names = _OF_CLASSES if is_classifier(steps[0]) else _OF_NUMBERS
    scoring = "auto" if scoring is None else check_choice("scoring", scoring, ("auto", *names))
    if is_classifier(steps[0]) and not all(hasattr(step, "predict_proba") for step in steps):
        if scoring == "neg_log_loss":
            raise ValueError(
                "scoring='neg_log_loss' needs candidates whose losses all have probabilities"
            )
        return "accuracy"
    return names[0] if scoring == "auto" else scoring


def losses(model: Any, table: Table, scoring: str) -> Array:
    """Loss of each record under the model, shape (n,), 0 for an invalid one.

    NaN for one that is empty in a fit of this model: its features are invalid where they come to
    the last step, or its target is below the lowest.

    Residuals are in units of half the width of the bounds.
    """
    targets = table.targets
    with np.errstate(all="ignore"), parallel_config("sequential"):  # nothing is sent away
        model, X = reaching(model, table.X)
        is_empty = empty_rows(X)
        if scoring == "neg_log_loss":
            found = np.nan_to_num(np.asarray(model.predict_proba(X)))
            own = found[np.arange(len(found)), np.maximum(targets, 0)]
            loss = -np.log(np.clip(own, _LEAST_PROBABILITY, 1.0))
        elif scoring == "accuracy":
            loss = (label_codes(np.asarray(model.predict(X)), model.classes_) != targets) * 1.0
        else:
            read = replace(model._reader, is_strict=False).targets(table.y)
            is_empty |= empty_rows(read.reshape(len(targets), -1))
            found = np.nan_to_num(model.predict(X) * table.exposure)
            apart = np.abs(np.clip(found, table.low, table.high) - targets)
            apart = apart / (table.high / 2 - table.low / 2)
            apart = apart**2 if scoring == "neg_mean_squared_error" else apart
            loss = apart.reshape(len(apart), -1).sum(axis=1)
        loss = np.where(is_empty, np.nan, loss)
    return np.where(table.weights > 0, loss, 0.0)
