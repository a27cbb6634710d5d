"""Gaussian noise on means over random batches, and its calibration (doc/privacy, section 2.6)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..privacy.budget import Allowance, Composition, PrivacyBudget
from ..privacy.guarantee import Release, composed_event, worst
from ..privacy.sampling import LEAST_DELTA, batch_renyi
from ..privacy.selections import bracketed
from ..randomness.subsets import RandomBatches
from .laws import Gaussian

_TOLERANCE = 2e-3  # of the calibration, on the private side
_LEAST_MULTIPLIER = 0.05
_LARGEST_EPSILON = 1e5  # beyond it, the losses of a grid's points have no finite exponential
_MOST_COMPOSED = 10**7  # releases: more would take a transform of too many points


@dataclass(frozen=True)
class BatchGaussian(Gaussian):
    """Gaussian noise on the mean over a secret random batch, fresh at every use.

    `sensitivity` and `scale` are those of the mean over one batch. A `cost` is that without
    amplification, as the random choice of the batch costs nothing.

    Parameters
    ----------
    sampling : RandomBatches
        "fixed" batches for replace-one, "poisson" ones for zero-out.
    """

    sampling: RandomBatches = field(kw_only=True)

    @property
    def batches(self) -> RandomBatches:  # type: ignore[override]
        return self.sampling

    def renyi(self, order: float) -> float:
        """Of one release, the sampling included."""
        z, sampling = self.noise_multiplier, self.sampling
        return batch_renyi(float(order), z, sampling.batch_size / sampling.n_samples, sampling.law)

    def dp_event(self, composition: str, count: int = 1, rows: int = 1) -> Any:
        """The events with their sampling ("pld"), or those of the full cost."""
        from ..privacy import events

        sampling = self.sampling
        if composition != "pld":
            return super().dp_event(composition, count, rows)
        if rows > 1:
            raise ValueError("random batches of rows are not amplified for users of several")
        n, size = sampling.n_samples, sampling.batch_size
        event: Any = events.dp_event.GaussianDpEvent(self.noise_multiplier)
        if sampling.law == "fixed":
            event = events.dp_event.SampledWithoutReplacementDpEvent(n, size, event)
        else:
            event = events.dp_event.PoissonSampledDpEvent(size / n, event)
        return events.dp_event.SelfComposedDpEvent(event, count)


def calibrate_batches(
    budget: PrivacyBudget,
    sampling: RandomBatches,
    sensitivity: float,
    dimension: int,
    count: int,
    others: Sequence[Release],
    left: Allowance,
) -> tuple[BatchGaussian, Composition]:
    """The least noise, to 0.2 %, with which a plan meets the budget, and how it composes.

    The plan uses it `count` times on batches, beside the `others` of its releases, which leave this
    allowance if nothing is sampled. If the budget has an `order`, what the plan costs there is kept
    within rho as well.
    """
    from ..privacy import events

    def make(multiplier: float) -> BatchGaussian:
        allowance = Allowance("gdp", 1 / (2 * multiplier**2), budget.precision)
        noise = Gaussian.calibrate(sensitivity, allowance, dimension=dimension)
        facts = sensitivity, noise.scale, dimension, budget.precision
        return BatchGaussian(*facts, sampling=sampling)

    enough = math.sqrt(count / (2 * left.amount))

    def is_enough(multiplier: float) -> bool:
        if multiplier >= enough:
            return True
        parts = (*others, Release("batch gradient", make(multiplier), count))
        event = composed_event(parts, "pld")
        if events.pld_delta(event, budget.epsilon, budget.epsilon) > budget.delta:
            return False
        if (order := budget.order) is None:
            return True
        borne = worst(parts, lambda release: release.renyi(order))
        return sum(release.renyi(order) for release in borne) <= order * budget.rho

    unsampled = make(enough), budget.gaussian_allowance.kind
    has_no_order = budget.currency != "auto" and budget.order is None
    # batches of rows are not batches of users
    is_out = budget.delta < LEAST_DELTA or budget.epsilon > _LARGEST_EPSILON
    n_composed = count + sum(release.count for release in others)
    if has_no_order or budget.rows_per_user > 1 or is_out or n_composed > _MOST_COMPOSED:
        return unsampled
    # the start: many releases are nearly Gaussian, and their variances add up
    ratio = enough * sampling.batch_size / sampling.n_samples
    start = 1.05 / math.sqrt(math.log1p(ratio**-2))
    high = bracketed(is_enough, _TOLERANCE, _LEAST_MULTIPLIER, max(start, 2 * _LEAST_MULTIPLIER))[1]
    return unsampled if high >= enough else (make(high), "pld")
