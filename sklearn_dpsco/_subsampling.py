"""Gaussian noise on random batches: sampling, the mechanism, and its calibration.

Two laws have a tight accountant, one for each relation (doc/privacy.rst, section 2.6):
batches of a fixed size drawn without replacement under replace-one, by Renyi DP; Poisson
batches, normalized by their expected size, under zero-out, by privacy loss distributions.
`dp_accounting` is imported when a batch size is given.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._random import RandomStream
from .accounting import PrivacyBudget
from .mechanisms import Gaussian, Release

__all__ = [
    "BatchGaussian",
    "calibrate_batches",
    "composed_epsilon",
    "draw_batch",
    "event_epsilon",
]

Indices = NDArray[np.intp]

# Orders of Renyi DP. Any set of them is valid; a coarse one costs a little noise.
_ORDERS = (*range(2, 17), 20, 25, 32, 40, 50, 64, 80, 320, 512, 1024, 2048)
_TOLERANCE = 2e-3  # of the calibration, on the private side
_LEAST_MULTIPLIER = 0.05
_MOST_KNOWN = 1024
_BLOCK = 2**16
_COINS_PER_DRAW = 400  # a draw from a block costs about as much as so many coins
_EXPECTED_COUNT = 32


@dataclass(frozen=True)
class BatchGaussian(Gaussian):
    """Gaussian noise on the mean over a secret random batch, fresh at every use.

    `sensitivity` and `scale` are those of the mean over one batch of `batch_size` records.

    Parameters
    ----------
    n_samples : int
    batch_size : int
        Exact size ("fixed") or expected size ("poisson") of a batch.
    sampling : {"fixed", "poisson"}
        Without replacement, for replace-one; every record by a coin of its own, for
        zero-out.
    """

    n_samples: int = 1
    batch_size: int = 1
    sampling: str = "fixed"

    def cost(self, composition: str) -> float:
        """Rho of one release without amplification, which is what adds up with others."""
        # given the batch, it is a Gaussian release, and mixing over batches adds nothing
        if composition != "zcdp":
            raise ValueError(f"{type(self).__name__} has no {composition} cost by itself")
        return super().cost(composition)

    def dp_event(self, composition: str) -> Any:
        """The event with its sampling ("rdp", "pld"), or that of the full cost ("zcdp")."""
        from dp_accounting import dp_event

        noise = super().dp_event("zcdp")
        if composition == "zcdp":
            return noise
        if self.sampling == "fixed":
            return dp_event.SampledWithoutReplacementDpEvent(self.n_samples, self.batch_size, noise)
        return dp_event.PoissonSampledDpEvent(self.batch_size / self.n_samples, noise)


def composed_epsilon(event: Any, composition: str, delta: float, interval: float) -> float:
    """Epsilon of an event at `delta`, by the accountant that `composition` names.

    Parameters
    ----------
    event : DpEvent
    composition : {"rdp", "pld"}
    delta : float
    interval : float
        Discretization of the privacy loss, for "pld"; any value errs on the safe side.
    """
    from dp_accounting.pld import PLDAccountant
    from dp_accounting.privacy_accountant import NeighboringRelation
    from dp_accounting.rdp import RdpAccountant

    accountant: Any
    if composition == "rdp":
        accountant = RdpAccountant(list(_ORDERS), NeighboringRelation.REPLACE_ONE)
    else:
        accountant = PLDAccountant(
            NeighboringRelation.ADD_OR_REMOVE_ONE, value_discretization_interval=interval
        )
    return float(accountant.compose(event).get_epsilon(delta))


def calibrate_batches(
    budget: PrivacyBudget,
    make: Callable[[float], BatchGaussian],
    releases: Callable[[BatchGaussian], tuple[Release, ...]],
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
        event = _event(releases(make(multiplier)), composition, repetitions)
        return event_epsilon(event, composition, budget.epsilon, budget.delta) <= budget.epsilon

    low, high = enough / 2, enough
    while not is_enough(high):  # coarse orders may ask for a little more
        low, high = high, 2 * high
    while low > _LEAST_MULTIPLIER and is_enough(low):
        low, high = low / 2, low
    while high > low * (1 + _TOLERANCE):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return make(high)


def _event(releases: tuple[Release, ...], composition: str, repetitions: int) -> Any:
    """The event that `Guarantee.dp_event` exports."""
    from dp_accounting import dp_event

    return dp_event.ComposedDpEvent(
        [
            dp_event.SelfComposedDpEvent(r.mechanism.dp_event(composition), r.count * repetitions)
            for r in releases
        ]
    )


_known: dict[tuple[str, str, float, float], float] = {}


def event_epsilon(event: Any, composition: str, epsilon: float, delta: float) -> float:
    """`composed_epsilon`, cached, with a discretization fit for a claim of `epsilon`."""
    key = (repr(event), composition, float(epsilon), float(delta))
    if key not in _known:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        _known[key] = composed_epsilon(event, composition, delta, epsilon * 1e-3)
    return _known[key]


def draw_batch(mechanism: BatchGaussian, stream: RandomStream) -> Indices:
    """The numbers of the records of one batch, in increasing order."""
    if mechanism.sampling == "fixed":
        return _subset(mechanism.n_samples, mechanism.batch_size, stream)
    return _coins(mechanism.n_samples, mechanism.batch_size, stream)


# A map of n bytes finds repeated numbers fastest, unless it is mostly empty; and reading it
# off sorts the numbers fastest, unless they are few.
_LARGEST_MAP = 10_000
_DENSE_MAP = 50


def _subset(n: int, size: int, stream: RandomStream) -> Indices:
    """A uniform subset of range(n): the first `size` values that a uniform sequence takes."""
    if 2 * size > n:
        return np.sort(stream.permutation(n)[:size])
    if size == 1:
        return np.array([stream.integer(n)], dtype=np.intp)
    if n > _LARGEST_MAP * size:
        return _distinct(n, size, stream)
    from ._kernels.noise import distinct_indices

    is_in = np.zeros(n, dtype=bool)
    found, out = 0, np.empty(size, dtype=np.int64)
    while found < size:
        found = distinct_indices(stream.words(size - found + 4), is_in, out, found)
    return np.flatnonzero(is_in) if n < _DENSE_MAP * size else np.sort(out)


def _distinct(n: int, size: int, stream: RandomStream) -> Indices:
    """As `_subset`, without a map of all numbers."""
    seen: Indices = np.empty(0, dtype=np.intp)
    while seen.size < size:
        seen = np.concatenate((seen, _integers(n, size - seen.size, stream)))
        ordered = np.sort(seen)
        if not np.any(ordered[1:] == ordered[:-1]):
            continue
        first = np.unique(seen, return_index=True)[1]
        seen = seen[np.sort(first)]
    return np.sort(seen)


def _integers(high: int, size: int, stream: RandomStream) -> Indices:
    """At most `size` exactly uniform integers below `high`: words beyond its multiples go."""
    words = stream.words(size)
    largest = np.uint64(2**64 - 1 - 2**64 % high)
    return (words[words <= largest] % np.uint64(high)).astype(np.intp)


def _coins(n: int, size: int, stream: RandomStream) -> Indices:
    """Every number of range(n) with probability size / n, independently.

    A coin for each costs O(n). Where that is far more than the batch, the numbers that are
    in are counted first, block by block, and then drawn: the same law.
    """
    if n < _COINS_PER_DRAW * size:
        return _flip(n, size, stream)
    n_blocks = -(-size // _EXPECTED_COUNT)
    ends = [n * (i + 1) // n_blocks for i in range(n_blocks)]
    parts = [
        start + _subset(stop - start, count, stream)
        for start, stop in zip([0, *ends[:-1]], ends, strict=True)
        if (count := _count(stop - start, size, n, stream)) > 0
    ]
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.intp)


def _flip(n: int, size: int, stream: RandomStream) -> Indices:
    """One coin for each number; the probability is rounded down to a multiple of 2^-64."""
    threshold = np.uint64(size * 2**64 // n)
    parts = []
    for first in range(0, n, _BLOCK):
        words = stream.words(min(_BLOCK, n - first))
        parts.append(first + np.nonzero(words < threshold)[0])
    return np.concatenate(parts)


def _count(trials: int, size: int, n: int, stream: RandomStream) -> int:
    """A binomial number of successes with probability size / n, by inversion of 128 bits."""
    high, low = (int(word) for word in stream.words(2))
    return bisect_right(_cumulative(trials, size, n), high << 64 | low)


@lru_cache(maxsize=64)
def _cumulative(trials: int, size: int, n: int) -> list[int]:
    """P(successes <= k) for k = 0, 1, ..., in units of 2^-128, rounded down.

    Sixty digits carry the recursion, so that the law is off by less than 2^-100 in all.
    """
    with localcontext() as context:
        context.prec = 60
        odds = Decimal(size) / Decimal(n - size)
        mass = (Decimal(n - size) / Decimal(n)) ** trials
        total, unit, out = Decimal(0), Decimal(2**128), []
        for k in range(trials + 1):
            total += mass
            out.append(int(total * unit))
            mass *= odds * Decimal(trials - k) / Decimal(k + 1)
            if k * n > trials * size and mass * unit * trials < 1:
                break
    return out[:-1]  # whatever is beyond counts as the last
