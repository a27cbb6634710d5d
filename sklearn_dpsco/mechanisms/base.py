"""The base class of mechanisms: what every mechanism states about itself.

The scale that is used and the cost that is claimed are fields of one frozen object, so that they
cannot differ. Other modules read the attributes below instead of asking for a mechanism's class.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from .._types import Array
from ..geometry import lp_norm
from ..randomness.stream import RandomStream
from ..randomness.subsets import RandomBatches


def releasable(value: Array, largest: float) -> Array:
    """`value` within [-largest, largest], which moves no two values apart."""
    # noise hides neither an infinity nor NaN, for which no sensitivity holds
    if np.isnan(value).any():
        raise ValueError("a value to be released must not hold NaN")
    return np.minimum(np.maximum(value, -largest), largest)


@dataclass(frozen=True)
class Mechanism:
    """Base class.

    Parameters
    ----------
    sensitivity : float > 0
        Largest `distance` of two values that neighbours can give.
    scale : float >= 0
        Of the noise. 0 releases the value as it is, which every guarantee of a finite epsilon
        refuses.

    Attributes
    ----------
    compositions : tuple of str
        The analyses under which one release has a cost.
    order : float
        Of the l_p norm that the sensitivity is stated in.
    selects : bool
        Whether a value is a vector of scores, and the index of one of them is released.
    is_joint : bool
        Whether one sensitivity holds for all releases of a run together.
    log_range : float or None
        Bounded range: length of an interval that holds all log ratios of probabilities. None where
        no such interval is part of the guarantee.
    noise_multiplier : float or None
        That of the Gaussian mechanism with the same guarantee; None if there is none.
    batches : RandomBatches or None
        The random batches that values are computed from; None if they are not random.
    slack : float
        Probability with which a release tells of a record what its costs do not cover. It is a part
        of delta, for all rows of a user together.

    Examples
    --------
    >>> from sklearn_dpsco.mechanisms import Laplace, Mechanism
    >>> noise = Laplace(sensitivity=0.01, scale=0.02)
    >>> isinstance(noise, Mechanism), noise.order, noise.compositions
    (True, 1.0, ('zcdp', 'pure'))
    """

    sensitivity: float
    scale: float

    compositions: ClassVar[tuple[str, ...]] = ()
    order: ClassVar[float] = 2.0
    selects: ClassVar[bool] = False
    is_joint: ClassVar[bool] = False
    log_range: ClassVar[float | None] = None
    noise_multiplier: ClassVar[float | None] = None
    batches: ClassVar[RandomBatches | None] = None
    slack: ClassVar[float] = 0.0

    def distance(self, difference: Array) -> float:
        """Size of the difference of two values, in the norm of the sensitivity."""
        return lp_norm(difference, self.order)

    def cost(self, composition: str, count: int = 1) -> float:
        """Cost of `count` releases: epsilon ("pure"), rho ("zcdp") or mu^2 / 2 ("gdp")."""
        raise NotImplementedError

    def dp_event(self, composition: str, count: int = 1, rows: int = 1) -> Any:
        """The event of `count` releases for so many rows of a user: Gaussian noise, or a cost."""
        from ..privacy import events

        if composition != "pld":  # the cost of a whole plan
            self.check(composition)
        if self.noise_multiplier is not None:
            noise = events.dp_event.GaussianDpEvent(self.noise_multiplier / rows)
            return events.dp_event.SelfComposedDpEvent(noise, count)
        if composition == "pure":  # binary responses, whose trade-off curve is the same
            factor = math.exp(-rows * self.cost(composition))
            # 2 / (1 + e^epsilon), written so that a large epsilon does not overflow
            response = events.dp_event.RandomizedResponseDpEvent(2 * factor / (1 + factor), 2)
            # one by one, as the PLD accountant ignores the count of a self-composed one
            return events.dp_event.ComposedDpEvent([response] * count)
        cost = rows**2 * self.cost(composition, count)
        if composition == "gdp":
            return events.dp_event.GaussianDpEvent(1 / math.sqrt(2 * cost))
        return events.dp_event.ZCDpEvent(cost)

    def renyi(self, order: float) -> float:
        """Bound on the Renyi divergence of this order (above 1) of one release."""
        bounds = [order * self.cost("zcdp")]
        if "pure" in self.compositions:
            bounds.append(self.cost("pure"))
        return min(bounds)

    def check(self, composition: str) -> None:
        """Raise `ValueError` if a release has no cost under this analysis."""
        if composition not in self.compositions:
            raise ValueError(f"{type(self).__name__} has no {composition} guarantee")

    def release(self, value: Array, stream: RandomStream) -> Any:
        """A noisy version of `value`.

        Raises `ValueError` if `value` holds NaN.
        """
        raise NotImplementedError
