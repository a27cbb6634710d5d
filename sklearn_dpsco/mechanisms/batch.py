"""Gaussian noise on the mean over a random batch, and its calibration.

An accountant of `dp_accounting` computes the cost of a whole plan with sampling
(`privacy.sampling`; doc/privacy, section 2.6).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ..privacy.budget import PrivacyBudget
from ..privacy.guarantee import Release, composed_event
from ..privacy.sampling import event_epsilon
from ..randomness.subsets import RandomBatches
from .additive import Gaussian

__all__ = ["BatchGaussian", "calibrate_batches"]

_TOLERANCE = 2e-3  # of the calibration, on the private side
_LEAST_MULTIPLIER = 0.05


@dataclass(frozen=True)
class BatchGaussian(Gaussian):
    """Gaussian noise on the mean over a secret random batch, fresh at every use.

    `sensitivity` and `scale` are those of the mean over one batch.

    Parameters
    ----------
    sampling : RandomBatches
        "fixed" batches for replace-one, "poisson" ones for zero-out.
    """

    sampling: RandomBatches = field(kw_only=True)

    # The cost without amplification, which adds up with other releases: given the batch, this
    # is a Gaussian release, and the random choice of the batch costs nothing.
    compositions: ClassVar[tuple[str, ...]] = ("zcdp",)

    @property
    def batches(self) -> RandomBatches:
        return self.sampling

    def dp_event(self, composition: str) -> Any:
        """The event with its sampling ("rdp", "pld"), or that of the full cost ("zcdp")."""
        from ..privacy import events

        noise, sampling = super().dp_event(composition), self.sampling
        if composition == "zcdp":
            return noise
        if sampling.law == "fixed":
            return events.fixed_batches(noise, sampling.n_samples, sampling.batch_size)
        return events.poisson_batches(noise, sampling.batch_size / sampling.n_samples)


def calibrate_batches(
    budget: PrivacyBudget,
    make: Callable[[float], BatchGaussian],
    releases: Callable[[BatchGaussian], Sequence[Release]],
    composition: str,
    repetitions: int,
    enough: float,
) -> BatchGaussian:
    """The least noise, to 0.2 %, with which a plan meets the budget.

    Parameters
    ----------
    budget : PrivacyBudget
    make : callable
        The mechanism with a given noise multiplier.
    releases : callable
        Every release of the plan with that mechanism.
    composition : {"rdp", "pld"}
    repetitions : int
        How many times the releases run.
    enough : float
        A multiplier to start from, such as the one without amplification.
    """

    def is_enough(multiplier: float) -> bool:
        event = composed_event(releases(make(multiplier)), composition, repetitions)
        return event_epsilon(event, composition, budget.epsilon, budget.delta) <= budget.epsilon

    low, high = enough / 2, enough
    while not is_enough(high):  # with few Renyi orders, more noise may be needed
        low, high = high, 2 * high
    while low > _LEAST_MULTIPLIER and is_enough(low):
        low, high = low / 2, low
    while high > low * (1 + _TOLERANCE):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return make(high)
