"""Releases as events of `dp_accounting`, and its accountants.

This module alone imports that library, which takes about a second: it is imported inside functions.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import attr
import numpy as np
from dp_accounting import dp_event as dp_event
from dp_accounting import get_epsilon_gaussian
from dp_accounting.pld import PLDAccountant, pld_pmf, privacy_loss_distribution
from dp_accounting.privacy_accountant import NeighboringRelation
from dp_accounting.rdp import RdpAccountant

from .._types import Array
from . import sampling

# The accountant's default orders stop at 512, too early for small epsilon.
_DENSE_ORDERS = (*(1 + np.geomspace(1e-3, 1, 150)), *np.geomspace(2.01, 1e5, 1500))


@attr.s(frozen=True, slots=True, auto_attribs=True)
class AdaptiveSelectionsDpEvent(dp_event.DpEvent):
    """`count` selections of bounded range, each chosen after looking at the earlier outcomes.

    The accountants of `dp_accounting` refuse this event.
    """

    log_range: float
    count: int


@attr.s(frozen=True, slots=True, auto_attribs=True)
class OneOfDpEvent(dp_event.DpEvent):
    """One of several events, chosen after looking at earlier outcomes; known only here."""

    events: tuple[Any, ...]


def composed(parts: Sequence[Any]) -> Any:
    """All events together."""
    return dp_event.ComposedDpEvent(list(parts)) if parts else dp_event.NoOpDpEvent()


def one_of(alternatives: Sequence[Any]) -> Any:
    """The event that is all of the alternatives, or `OneOfDpEvent`."""
    different = tuple({repr(event): event for event in alternatives}.values())
    return different[0] if len(different) == 1 else OneOfDpEvent(different)


# ------------------------------------------------------------ privacy loss distributions

_POINTS_PER_EPSILON = 1000
_POINTS_PER_DEVIATION = 8  # of one release; coarser grids add noise to every step
_MOST_POINTS = 2**14  # of one release, where rare losses are far beyond the others
_MOST_SPREAD_POINTS = 2**12  # of all together: grids of more than 2^18 releases are coarser
_CURVE_POINTS, _BEND = 2**11 + 1, 7.0  # of the largest of several curves; how they crowd at 0
_LARGEST_LOSS = 600.0  # with an exponential
_TAIL = 10.0  # standard deviations of noise, whose tail is below the rounding of a transform


class _Noise(NamedTuple):
    """Gaussian noise on a batch that a record joins with a probability, and its privacy loss."""

    multiplier: float
    probability: float
    is_poisson: bool  # whether the two orders of neighbours have different curves
    deviation: float
    reach: float  # the largest loss that counts

    @classmethod
    def of(cls, event: Any) -> _Noise:
        q, noise = 1.0, event
        if isinstance(event, dp_event.PoissonSampledDpEvent):
            q, noise = event.sampling_probability, event.event
        elif isinstance(event, dp_event.SampledWithoutReplacementDpEvent):
            q, noise = event.sample_size / event.source_dataset_size, event.event
        z = noise.noise_multiplier
        reach = _TAIL / z + 1 / (2 * z**2)
        if q != 1:
            reach = float(np.logaddexp(math.log1p(-q), math.log(q) + reach))
        is_poisson = isinstance(event, dp_event.PoissonSampledDpEvent) and q < 1
        # about the standard deviation of the loss
        deviation = q * math.sqrt(math.expm1(min(700.0, z**-2)))
        return cls(z, q, is_poisson, deviation, reach)


_known: dict[tuple[str, float], tuple[list[Any], float]] = {}
_MOST_KNOWN = 256


def _composed(event: Any, epsilon: float) -> tuple[list[Any], float]:
    """The laws of the privacy loss for each order of neighbours, and their rounding in delta.

    Any grid is on the safe side; `epsilon` sets it. A law is made of `sampling.mixture_delta`, by
    the library's pessimistic discretization: the library has none for batches of a fixed size, and
    takes seconds for the others.
    """
    if (key := (repr(event), float(epsilon))) not in _known:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        flat = list(_flat(event, in_choices=True))
        parts = [_Noise.of(part) for part, _ in flat]
        finest = min((part.deviation for part in parts), default=math.inf)
        width = min(epsilon / _POINTS_PER_EPSILON, finest / _POINTS_PER_DEVIATION)
        width = max(width, max((part.reach for part in parts), default=0.0) / _MOST_POINTS)
        width = max(width, _whole_spread(event) / _MOST_SPREAD_POINTS)
        orders = (False, True) if any(part.is_poisson for part in parts) else (False,)
        # the error of a Fourier transform to the power T grows like T
        rounding = max(sampling.LEAST_DELTA / 10, sum(count for _, count in flat) * 2.0**-53)
        _known[key] = [_law(event, width, is_reversed) for is_reversed in orders], rounding
    return _known[key]


def _flat(event: Any, count: int = 1, *, in_choices: bool = False) -> Iterator[tuple[Any, int]]:
    """The releases, and how often each is made; a choice is one, or all that it is among."""
    if isinstance(event, dp_event.ComposedDpEvent) or (
        in_choices and isinstance(event, OneOfDpEvent)
    ):
        for part in event.events:
            yield from _flat(part, count, in_choices=in_choices)
    elif isinstance(event, dp_event.SelfComposedDpEvent):
        yield from _flat(event.event, count * event.count, in_choices=in_choices)
    elif not isinstance(event, dp_event.NoOpDpEvent):
        yield event, count


def _whole_spread(event: Any) -> float:
    """At least about the deviation of the loss of all releases together."""
    if isinstance(event, OneOfDpEvent):
        return max(map(_whole_spread, event.events))
    parts = list(_flat(event))
    if len(parts) == 1 and parts[0][0] is event:
        noise = _Noise.of(event)
        # the latter where the deviation is of losses too rare to occur
        return min(noise.deviation, math.sqrt(noise.probability) * noise.reach)
    return math.hypot(*(math.sqrt(count) * _whole_spread(part) for part, count in parts))


def _law(event: Any, width: float, is_reversed: bool) -> Any:
    """The privacy loss distribution of one order of neighbours on a grid of this width."""
    whole = privacy_loss_distribution.identity(width)
    for part, count in _flat(event):
        law_of = _law_of_choice if isinstance(part, OneOfDpEvent) else _law_of_noise
        law = law_of(part, width, is_reversed)
        # (with itself once it would be the same, but for a tail that is cut off and counted again)
        whole = whole.compose(law.self_compose(count) if count > 1 else law)
    return whole


def _law_of_choice(event: OneOfDpEvent, width: float, is_reversed: bool) -> Any:
    """A law whose curve lies above those of all alternatives."""
    laws = [_law(one, width, is_reversed) for one in event.events]
    # finer near 0; chords between these points, straight in e^loss, lie above a convex curve
    places = np.sinh(np.linspace(-_BEND, _BEND, _CURVE_POINTS)) / math.sinh(_BEND)
    most = min(_MOST_POINTS, int(_LARGEST_LOSS / width))
    places = np.unique(np.rint(places * most).astype(np.int64))
    curve: Any = np.max([law.get_delta_for_epsilon(places * width) for law in laws], axis=0)
    curve = np.minimum(curve, 1.0)  # which its roundings exceed where losses are large
    # beyond the end it is constant: up to where it is below the rounding of a transform
    is_far = (places > 0) & (curve < sampling.LEAST_DELTA / 100)
    end = int(places[is_far].min(initial=most))
    loss = np.arange(-end, end + 1) * width
    return _of_curve(width, -end, np.interp(np.exp(loss), np.exp(places * width), curve))


def _law_of_noise(event: Any, width: float, is_reversed: bool) -> Any:
    z, q, is_poisson, _, reach = _Noise.of(event)
    end = math.ceil(reach / width)
    # the mixture's loss in one order is at least ln(1 - q), in the other at most minus that
    start = min(end, math.ceil(-math.log1p(-q) / width)) if is_poisson else 0
    loss = np.arange(-start, end + 1, dtype=np.float64) * width
    delta = sampling.mixture_delta(loss, z, q)
    mirrored = -np.expm1(-loss[::-1]) + np.exp(-loss[::-1]) * delta[::-1]
    if not is_poisson:  # the same curve in both orders
        return _of_curve(width, -end, np.concatenate((mirrored[:-1], delta)))
    if is_reversed:
        return _of_curve(width, -end, np.maximum(0.0, mirrored))
    return _of_curve(width, -start, delta)


def _of_curve(width: float, first: int, curve: Array) -> Any:
    """A law whose curve lies above this one, which is given from ``first * width`` on."""
    last = first + curve.size - 1
    pmf = pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(width, first, last, curve)
    return privacy_loss_distribution.PrivacyLossDistribution(pmf)


_RELATIVE = 1 + 1e-8  # rounding of the curves that are composed


def pld_delta(event: Any, epsilon: float, grid_epsilon: float) -> float:
    """Delta at `epsilon` by privacy loss distributions; the claim `grid_epsilon` sets the grid."""
    laws, rounding = _composed(event, grid_epsilon)
    found = max(float(law.get_delta_for_epsilon(float(epsilon))) for law in laws)
    return min(1.0, max(0.0, found) * _RELATIVE + rounding)


def pld_epsilon(event: Any, delta: float, grid_epsilon: float) -> float:
    """Epsilon at `delta` by privacy loss distributions, inf if delta is below their rounding."""
    laws, rounding = _composed(event, grid_epsilon)
    left = (delta - rounding) / _RELATIVE
    if left <= 0:
        return math.inf
    return max(float(law.get_epsilon_for_delta(left)) for law in laws)


# ------------------------------------------------------------------------ second opinions


def second_opinion(event: Any, composition: str, epsilon: float, delta: float) -> float:
    """Epsilon of an event at `delta`; `epsilon` sets the resolution."""
    if composition == "pld":
        return pld_epsilon(event, delta, epsilon)
    if composition == "pure":
        # one by one and added: of many together the accountant cuts a tail off, which is not
        # possible at delta = 0. Binary response is not defined under add-or-remove.
        relation = NeighboringRelation.REPLACE_ONE
        total, grid = 0.0, epsilon * 1e-4
        for part, count in Counter(part for part, _ in _flat(event)).items():
            alone = PLDAccountant(relation, value_discretization_interval=grid / 10 / count)
            total += count * float(alone.compose(part).get_epsilon(0.0))
        return total
    if composition == "gdp":  # as one; privacy loss distributions have no digits below 1e-13
        squares = sum(count / part.noise_multiplier**2 for part, count in _flat(event))
        return float(get_epsilon_gaussian(squares**-0.5 if squares else math.inf, delta))
    return float(RdpAccountant(list(_DENSE_ORDERS)).compose(event).get_epsilon(delta))
