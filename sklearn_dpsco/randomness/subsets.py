"""Secret random batches of records; how exact they are: doc/privacy, section 2.6."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import lru_cache
from typing import Literal

import numpy as np

from .._types import Indices
from .stream import RandomStream

_BLOCK = 2**16
_COINS_PER_DRAW = 400  # a draw from a block takes about the time of this many coins
_EXPECTED_COUNT = 32


@dataclass(frozen=True)
class RandomBatches:
    """Batches of records, each drawn afresh."""

    n_samples: int
    batch_size: int  # the exact size ("fixed"), or the expected one ("poisson")
    # "fixed": a uniform subset; "poisson": each record by itself, with probability batch_size / n
    law: Literal["fixed", "poisson"]

    def draw(self, stream: RandomStream) -> Indices:
        """The numbers of the records of one batch, in increasing order."""
        take = _subset if self.law == "fixed" else _coins
        return take(self.n_samples, self.batch_size, stream)


_DENSE_MAP = 50  # times their count, up to which a map of n bytes sorts numbers fastest


def _subset(n: int, size: int, stream: RandomStream) -> Indices:
    """A uniform subset of range(n): the first `size` values that a uniform sequence takes."""
    if 2 * size > n:
        return np.sort(stream.permutation(n)[:size])
    if size == 1:
        return np.array([stream.integer(n)], dtype=np.intp)
    from .._kernels.sampling import distinct_indices

    # of which memory holds the pages that are written to
    is_in = np.zeros(n, dtype=bool)
    found, out = 0, np.empty(size, dtype=np.int64)
    while found < size:
        found = distinct_indices(stream.words(size - found + 4), is_in, out, found)
    return np.flatnonzero(is_in) if n < _DENSE_MAP * size else np.sort(out)


def _coins(n: int, size: int, stream: RandomStream) -> Indices:
    """Every number of range(n) with probability size / n, independently."""
    if size == n:
        return np.arange(n)
    if n < _COINS_PER_DRAW * size:
        # one for each number; the probability is rounded down to a multiple of 2^-64
        threshold, parts = np.uint64(size * 2**64 // n), []
        for first in range(0, n, _BLOCK):
            words = stream.words(min(_BLOCK, n - first))
            parts.append(first + np.nonzero(words < threshold)[0])
        return np.concatenate(parts)
    # coins cost O(n); the count of each block, and then a uniform subset of that size, have the
    # same law
    n_blocks = -(-size // _EXPECTED_COUNT)
    ends = [n * (i + 1) // n_blocks for i in range(n_blocks)]
    parts = [np.empty(0, dtype=np.intp)]
    for start, stop in zip([0, *ends[:-1]], ends, strict=True):
        # a binomial number of successes, by inversion of 128 bits
        high, low = (int(word) for word in stream.words(2))
        count = bisect_right(_cumulative(stop - start, size, n), high << 64 | low)
        if count > 0:
            parts.append(start + _subset(stop - start, count, stream))
    return np.concatenate(parts)


@lru_cache(maxsize=64)
def _cumulative(trials: int, size: int, n: int) -> list[int]:
    """P(successes <= k) for k = 0, 1, ..., in units of 2^-128, rounded down."""
    with localcontext() as context:
        context.prec = 60  # with so many digits the law is off by less than 2^-100 in all
        odds = Decimal(size) / Decimal(n - size)
        mass = (Decimal(n - size) / Decimal(n)) ** trials
        total, unit, out = Decimal(0), Decimal(2**128), []
        for k in range(trials + 1):
            total += mass
            out.append(int(total * unit))
            mass *= odds * Decimal(trials - k) / Decimal(k + 1)
            if k * n > trials * size and mass * unit * trials < 1:
                break
    return out[:-1]  # larger draws count as the last k
