"""Releases as events of `dp_accounting`, and its accountants.

No other module imports that library. This one is imported inside the functions that need it,
since the library takes about a second to load.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import attr
import numpy as np
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant
from dp_accounting.privacy_accountant import NeighboringRelation
from dp_accounting.rdp import RdpAccountant

__all__ = [
    "AdaptiveSelectionsDpEvent",
    "composed",
    "fixed_batches",
    "gaussian",
    "pld_epsilon",
    "poisson_batches",
    "pure",
    "rdp_epsilon",
    "second_opinion",
    "with_selections",
    "zcdp",
]

# The accountant's default orders stop at 512, too early for small epsilon.
_DENSE_ORDERS = (*(1 + np.geomspace(1e-3, 1, 150)), *np.geomspace(2.01, 1e5, 1500))


@attr.s(frozen=True, slots=True, auto_attribs=True)
class AdaptiveSelectionsDpEvent(dp_event.DpEvent):
    """Selections of bounded range, each chosen after looking at the earlier outcomes.

    A mechanism has range eta if, for any two neighbours, the logarithm of the ratio of the
    probabilities stays in an interval of length eta over all outcomes: the exponential
    mechanism is one. The accountants of `dp_accounting` refuse this event.

    Attributes
    ----------
    log_range : float
        eta of each selection.
    count : int
        Number of selections.
    """

    log_range: float
    count: int


def gaussian(noise_multiplier: float) -> Any:
    """Gaussian noise; the multiplier is relative to the full sensitivity."""
    return dp_event.GaussianDpEvent(noise_multiplier)


def zcdp(rho: float) -> Any:
    """A release that was proved to be rho-zCDP."""
    return dp_event.ZCDpEvent(rho)


def pure(epsilon: float) -> Any:
    """Binary randomized response, whose trade-off curve is that of pure epsilon-DP."""
    # 2 / (1 + e^epsilon), written so that a large epsilon does not overflow
    noise = 2 * math.exp(-epsilon) / (1 + math.exp(-epsilon))
    return dp_event.RandomizedResponseDpEvent(noise, 2)


def fixed_batches(event: Any, n_samples: int, batch_size: int) -> Any:
    """The event on a uniform subset of `batch_size` records."""
    return dp_event.SampledWithoutReplacementDpEvent(n_samples, batch_size, event)


def poisson_batches(event: Any, probability: float) -> Any:
    """The event on a batch that each record joins with this probability."""
    return dp_event.PoissonSampledDpEvent(probability, event)


def composed(counted: Iterable[tuple[Any, int]], composition: str) -> Any:
    """All events, each as often as it is counted."""
    if composition == "pure":
        # the PLD accountant ignores the count of a self-composed binary response
        events = [event for event, count in counted for _ in range(count)]
    else:
        events = [dp_event.SelfComposedDpEvent(event, count) for event, count in counted]
    return dp_event.ComposedDpEvent(events) if events else dp_event.NoOpDpEvent()


def with_selections(counted: Iterable[tuple[Any, int]], log_range: float, count: int) -> Any:
    """Gaussian events, and `AdaptiveSelectionsDpEvent` next to them."""
    events = [dp_event.SelfComposedDpEvent(event, count) for event, count in counted]
    return dp_event.ComposedDpEvent([*events, AdaptiveSelectionsDpEvent(log_range, count)])


def rdp_epsilon(event: Any, delta: float, orders: Sequence[float]) -> float:
    """Epsilon by Renyi DP at the given orders, for replace-one neighbours."""
    accountant = RdpAccountant(list(orders), NeighboringRelation.REPLACE_ONE)
    return float(accountant.compose(event).get_epsilon(delta))


def pld_epsilon(event: Any, delta: float, interval: float) -> float:
    """Epsilon by privacy loss distributions, for a record that is added or removed.

    Any `interval` of the discretization errs on the safe side.
    """
    accountant = PLDAccountant(
        NeighboringRelation.ADD_OR_REMOVE_ONE, value_discretization_interval=interval
    )
    return float(accountant.compose(event).get_epsilon(delta))


def second_opinion(event: Any, composition: str, epsilon: float, delta: float) -> float:
    """Epsilon of an unsampled event at `delta`; `epsilon` sets the resolution."""
    grid = epsilon * 1e-4
    if composition == "gdp":
        accountant: Any = PLDAccountant(value_discretization_interval=grid)
    elif composition == "pure":
        grid /= 10 * (len(getattr(event, "events", ())) + 2)
        # binary response is not defined under add-or-remove
        accountant = PLDAccountant(
            NeighboringRelation.REPLACE_ONE, value_discretization_interval=grid
        )
        delta = 0.0
    else:
        accountant = RdpAccountant(list(_DENSE_ORDERS))
    return float(accountant.compose(event).get_epsilon(delta))
