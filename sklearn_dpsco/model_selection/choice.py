r"""A private choice among models that were released already (doc/privacy, section 2.18).

The regret of a record under model j is :math:`\min(l_{ij} - \min_k l_{ik}, r)`, in [0, r], and the
score of j is minus the sum of the regrets. One record changes the scores of all models by a vector
within [-r, 0] against an empty record, and by the difference of two such vectors against another
one, so that their range changes by r under zero-out and by 2 r under replace-one. What all models
lose alike, the largest part of a loss, costs nothing. A model may stand for several versions of it,
less and less certain ones.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..data.summation import UNIT_ROUNDOFF
from ..mechanisms import Release, SelectVertex
from ..privacy.budget import Allowance, PrivacyBudget
from ..randomness.stream import RandomStream
from ..solvers.base import Part
from ..solvers.statistics import median_on_grid, median_score, place_counts

__all__ = ["Choice", "plan_choice"]

Array = NDArray[np.float64]

_GRID = 2.0 ** np.arange(-20.0, 2.01, 0.25)  # of losses in regression, in squared half widths
_UNIT_SHARE = 0.1  # of the choice's part, for the unit of losses
_BONUS = 5.0  # of the default, in units of the noise: e^5 against each other candidate


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
    """The releases of a choice: `select` selects a model, in units of the largest regret.

    `unit` selects the median loss of the default on a grid; None for losses with a public unit.
    """

    scoring: str
    unit: SelectVertex | None
    select: SelectVertex
    regret_factor: float = 1.0  # of classes: ln K / ln 2 for log loss

    @property
    def releases(self) -> tuple[Release, ...]:
        found = [] if self.unit is None else [Release("median loss", self.unit)]
        return (*found, Release("choice", self.select))

    def run(self, losses: Array, weights: Array, stream: RandomStream) -> int:
        """Index of the chosen model; the default is the first.

        Losses have shape (n, n_models, n_versions), and weights are in [0, 1], 0 for an empty
        record.
        """
        n, _, n_versions = losses.shape
        largest, margin = _RULES[self.scoring]
        if self.unit is None:
            largest *= self.regret_factor
        else:
            flat = np.zeros(_GRID.size)
            counts = functools.partial(place_counts, losses[:, 0, 0], weights > 0)
            largest *= median_on_grid(counts, n, _GRID, flat, self.unit, stream)
        scores = self.scores(losses.reshape(n, -1), weights, largest)
        scores[:n_versions] += _BONUS * self.select.scale + margin * n
        return self.select.release(scores, stream) // n_versions

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
    if scoring in ("neg_log_loss", "accuracy"):
        factor = math.log2(n_outputs) if scoring == "neg_log_loss" else 1.0
        return Choice(scoring, None, SelectVertex.calibrate(change, allowance), factor)
    of_median = median_score(n_samples, budget.record_factor)
    unit = SelectVertex.calibrate(of_median, allowance.share(_UNIT_SHARE))
    select = SelectVertex.calibrate(change, allowance.share(1 - _UNIT_SHARE))
    return Choice(scoring, unit, select)
