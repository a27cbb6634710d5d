r"""A private choice among models that were released already (doc/privacy, section 2.18).

The regret of a record under model j is :math:`\min(l_{ij} - \min_k l_{ik}, r)`, in [0, r], and the
score of j is minus the sum of the regrets. One record changes the scores of all models by a vector
within [-r, 0] against an empty record, and by the difference of two such vectors against another
one, so that their range changes by r under zero-out and by 2 r under replace-one. What all models
lose alike, the largest part of a loss, costs nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..data.summation import UNIT_ROUNDOFF
from ..mechanisms import Release, SelectVertex
from ..privacy.budget import Allowance, PrivacyBudget
from ..randomness.stream import RandomStream
from ..solvers.base import Part
from ..solvers.learned_units import median_on_grid
from ..solvers.sensitivity import median_score

__all__ = ["Choice", "plan_choice"]

Array = NDArray[np.float64]

_GRID = 2.0 ** np.arange(-20.0, 2.01, 0.25)  # of losses in regression, in squared half widths
# The default's bonus, in units of the noise (e^5 against each other candidate), and in largest
# regrets of a record: what looks better by less is mostly the luck of a probe's noise.
_BONUS, _MARGIN = 5.0, 0.035
_UNIT_SHARE = 0.1  # of the choice's part, for the unit of losses
LARGEST_REGRET = {"neg_log_loss": 0.25, "accuracy": 1.0}
_REGRESSION_REGRET = 0.25  # in units of the median loss


@dataclass(frozen=True)
class Choice(Part):
    """The releases of a choice.

    Attributes
    ----------
    scoring : str
    unit : SelectVertex or None
        Selects the median loss of the default on a grid; None for losses with a public unit.
    select : SelectVertex
        Selects a model; its sensitivity is in units of the largest regret.
    """

    scoring: str
    unit: SelectVertex | None
    select: SelectVertex

    @property
    def releases(self) -> tuple[Release, ...]:
        found = [] if self.unit is None else [Release("median loss", self.unit)]
        return (*found, Release("choice", self.select))

    def run(self, losses: Array, present: NDArray[np.bool_], stream: RandomStream) -> int:
        """Index of the chosen model; losses have shape (n, n_models), the default's first."""
        largest = LARGEST_REGRET.get(self.scoring, 0.0)
        if self.unit is not None:
            flat = np.zeros(_GRID.size)
            median = median_on_grid(losses[:, 0], present, _GRID, flat, self.unit, stream)
            largest = _REGRESSION_REGRET * median
        scores = self.scores(losses, present, largest)
        scores[0] += _BONUS * self.select.scale + _MARGIN * len(losses)
        return self.select.release(scores, stream)

    @staticmethod
    def scores(losses: Array, present: NDArray[np.bool_], largest: float) -> Array:
        """Minus the sums of the regrets, in units of the largest; exactly rounded."""
        regrets = losses - losses.min(axis=1, keepdims=True)
        regrets = np.clip(regrets / largest, 0.0, 1.0)
        regrets[~present] = 0.0
        return -np.array([math.fsum(column) for column in regrets.T])


def plan_choice(
    scoring: str, n_samples: int, budget: PrivacyBudget, allowance: Allowance
) -> Choice:
    """The choice within an allowance."""
    # a sum is rounded once, and once more when the bonus is added, which is below 2 n
    change = budget.record_factor + 4 * UNIT_ROUNDOFF * (2 * n_samples)
    if scoring in LARGEST_REGRET:
        return Choice(scoring, None, SelectVertex.calibrate(change, allowance))
    of_median = median_score(n_samples, budget.record_factor, 0.0)
    unit = SelectVertex.calibrate(of_median, allowance.share(_UNIT_SHARE))
    select = SelectVertex.calibrate(change, allowance.share(1 - _UNIT_SHARE))
    return Choice(scoring, unit, select)
