"""Releases as events of `dp_accounting`, and its accountants.

No other module imports that library. This one is imported inside the functions that need it,
since the library takes about a second to load.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import attr
import numpy as np
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant, pld_pmf, privacy_loss_distribution
from dp_accounting.privacy_accountant import NeighboringRelation
from dp_accounting.rdp import RdpAccountant
from numpy.typing import NDArray

from . import sampling

__all__ = [
    "AdaptiveSelectionsDpEvent",
    "composed",
    "fixed_batches",
    "gaussian",
    "pld_delta",
    "pld_epsilon",
    "poisson_batches",
    "pure",
    "repeat_and_select",
    "repeated",
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


def non_private() -> Any:
    """A release without noise, for which every accountant answers infinity."""
    return dp_event.NonPrivateDpEvent()


def zcdp(rho: float) -> Any:
    """A release that was proved to be rho-zCDP."""
    return dp_event.ZCDpEvent(rho)


def pure(epsilon: float, count: int) -> Any:
    """Binary randomized responses, whose trade-off curve is that of pure epsilon-DP."""
    # 2 / (1 + e^epsilon), written so that a large epsilon does not overflow
    noise = 2 * math.exp(-epsilon) / (1 + math.exp(-epsilon))
    # one by one, as the PLD accountant ignores the count of a self-composed binary response
    return dp_event.ComposedDpEvent([dp_event.RandomizedResponseDpEvent(noise, 2)] * count)


def fixed_batches(event: Any, n_samples: int, batch_size: int) -> Any:
    """The event on a uniform subset of `batch_size` records."""
    return dp_event.SampledWithoutReplacementDpEvent(n_samples, batch_size, event)


def poisson_batches(event: Any, probability: float) -> Any:
    """The event on a batch that each record joins with this probability."""
    return dp_event.PoissonSampledDpEvent(probability, event)


def repeated(event: Any, count: int) -> Any:
    """The event, so many times."""
    return dp_event.SelfComposedDpEvent(event, count)


def repeat_and_select(event: Any, mean: float) -> Any:
    """The best of a logarithmic number of trials, with this mean."""
    return dp_event.RepeatAndSelectDpEvent(event, mean, 0.0)


def composed(parts: Sequence[Any]) -> Any:
    """All events together."""
    return dp_event.ComposedDpEvent(list(parts)) if parts else dp_event.NoOpDpEvent()


def with_selections(parts: Sequence[Any], log_range: float, count: int) -> Any:
    """Gaussian events, and `AdaptiveSelectionsDpEvent` next to them."""
    return composed([*parts, AdaptiveSelectionsDpEvent(log_range, count)])


# ------------------------------------------------------------ privacy loss distributions

_POINTS_PER_EPSILON = 1000
_POINTS_PER_DEVIATION = 8  # of one release; coarser grids add noise to every step
_MOST_POINTS = 2**14  # of one release, where rare losses are far beyond the others
_MOST_SPREAD_POINTS = 2**12  # of all together: grids of more than 2^18 releases are coarser
_TAIL = 10.0  # standard deviations of noise, whose tail is below the rounding of a transform


def privacy_loss(event: Any, epsilon: float) -> Any:
    """The privacy loss distribution of a plan with random batches; any grid is on the safe side.

    Each is made of the curve of `sampling.mixture_delta`, by the library's own pessimistic
    discretization: the library has none for batches of a fixed size, and computes the other
    curves point by point, which takes seconds.
    """
    parts = list(_flat(event, 1))
    finest = min((_deviation(part) for part, _ in parts), default=math.inf)
    width = min(epsilon / _POINTS_PER_EPSILON, finest / _POINTS_PER_DEVIATION)
    width = max(width, max((_reach(part) for part, _ in parts), default=0.0) / _MOST_POINTS)
    spread = math.hypot(*(math.sqrt(count) * _spread(part) for part, count in parts))
    width = max(width, spread / _MOST_SPREAD_POINTS)
    whole = privacy_loss_distribution.identity(width)
    for part, count in parts:
        whole = whole.compose(_one_loss(part, width).self_compose(count))
    return whole


def _flat(event: Any, count: int) -> Iterator[tuple[Any, int]]:
    if isinstance(event, dp_event.ComposedDpEvent):
        for part in event.events:
            yield from _flat(part, count)
    elif isinstance(event, dp_event.SelfComposedDpEvent):
        yield from _flat(event.event, count * event.count)
    elif not isinstance(event, dp_event.NoOpDpEvent):
        yield event, count


def _sampled(event: Any) -> tuple[float, float]:
    """Noise multiplier and sampling probability of Gaussian noise."""
    if isinstance(event, dp_event.PoissonSampledDpEvent):
        return event.event.noise_multiplier, event.sampling_probability
    if isinstance(event, dp_event.SampledWithoutReplacementDpEvent):
        return event.event.noise_multiplier, event.sample_size / event.source_dataset_size
    return event.noise_multiplier, 1.0


def _deviation(event: Any) -> float:
    return sampling.loss_deviation(*_sampled(event))


def _spread(event: Any) -> float:
    """At least about its deviation, also where that is of losses too rare to occur."""
    return min(_deviation(event), math.sqrt(_sampled(event)[1]) * _reach(event))


def _reach(event: Any) -> float:
    """The largest loss that counts."""
    multiplier, probability = _sampled(event)
    largest = _TAIL / multiplier + 1 / (2 * multiplier**2)
    if probability == 1:
        return largest
    return float(np.logaddexp(math.log1p(-probability), math.log(probability) + largest))


def _one_loss(event: Any, width: float) -> Any:
    multiplier, probability = _sampled(event)
    is_poisson = isinstance(event, dp_event.PoissonSampledDpEvent) and probability < 1
    end = math.ceil(_reach(event) / width)
    # the mixture's loss in one order is at least ln(1 - q), in the other at most minus that
    start = min(end, math.ceil(-math.log1p(-probability) / width)) if is_poisson else 0
    loss = np.arange(-start, end + 1, dtype=np.float64) * width
    delta = sampling.mixture_delta(loss, multiplier, probability)
    mirrored = -np.expm1(-loss[::-1]) + np.exp(-loss[::-1]) * delta[::-1]
    if is_poisson:
        pmfs = [_pmf(width, -start, delta), _pmf(width, -end, np.maximum(0.0, mirrored))]
    else:  # the same curve in both orders
        pmfs = [_pmf(width, -end, np.concatenate((mirrored[:-1], delta)))]
    return privacy_loss_distribution.PrivacyLossDistribution(*pmfs)


def _pmf(width: float, first: int, curve: NDArray[np.float64]) -> Any:
    """A law whose curve lies above this one, which is given from ``first * width`` on."""
    last = first + curve.size - 1
    return pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(width, first, last, curve)


_known: dict[tuple[str, float], tuple[Any, float]] = {}
_MOST_KNOWN = 256


def _composed(event: Any, epsilon: float) -> tuple[Any, float]:
    """The privacy loss distribution of an event, and its rounding in delta; cached.

    `epsilon` sets the grid. The error of a Fourier transform to the power T grows like T.
    """
    key = (repr(event), float(epsilon))
    if key not in _known:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        n_releases = sum(count for _, count in _flat(event, 1))
        rounding = max(sampling.LEAST_DELTA / 10, n_releases * 2.0**-53)
        _known[key] = privacy_loss(event, epsilon), rounding
    return _known[key]


_RELATIVE = 1 + 1e-8  # rounding of the curves that are composed


def pld_delta(event: Any, epsilon: float, grid_epsilon: float) -> float:
    """Delta at `epsilon` by privacy loss distributions; the claim `grid_epsilon` sets the grid."""
    loss, rounding = _composed(event, grid_epsilon)
    found = float(loss.get_delta_for_epsilon(float(epsilon)))
    return min(1.0, max(0.0, found) * _RELATIVE + rounding)


def pld_epsilon(event: Any, delta: float, grid_epsilon: float) -> float:
    """Epsilon at `delta` by privacy loss distributions, inf if delta is below their rounding."""
    loss, rounding = _composed(event, grid_epsilon)
    left = (delta - rounding) / _RELATIVE
    return float(loss.get_epsilon_for_delta(left)) if left > 0 else math.inf


# ------------------------------------------------------------------------ second opinions


def second_opinion(event: Any, composition: str, epsilon: float, delta: float) -> float:
    """Epsilon of an unsampled event at `delta`; `epsilon` sets the resolution."""
    grid = epsilon * 1e-4
    if composition == "pure":
        # one by one and added: of many together the accountant cuts a tail off, which is not
        # possible at delta = 0. Binary response is not defined under add-or-remove.
        relation = NeighboringRelation.REPLACE_ONE
        total = 0.0
        for part, count in Counter(part for part, _ in _flat(event, 1)).items():
            alone = PLDAccountant(relation, value_discretization_interval=grid / 10 / count)
            total += count * float(alone.compose(part).get_epsilon(0.0))
        return total
    if composition == "gdp":
        accountant: Any = PLDAccountant(value_discretization_interval=grid)
    else:
        accountant = RdpAccountant(list(_DENSE_ORDERS))
    try:
        return float(accountant.compose(event).get_epsilon(delta))
    except OverflowError as error:
        raise ValueError(f"dp_accounting has no room for an epsilon of {epsilon:g}") from error
