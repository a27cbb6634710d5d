"""Disjoint slices of the records, and restarts on them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable


def fast_restarts(n: int) -> int:
    """ceil(log2 log2 n): restarts with which strong convexity gives a faster rate (4.4)."""
    return 1 if n < 32 else math.ceil(math.log2(math.log2(n)))


def slices(n: int, count: int, *, growing: bool) -> list[tuple[int, int]]:
    """`count` slices of range(n), each about twice or half as long as the one before."""
    sizes = [2**i for i in range(count)]
    if not growing:
        sizes.reverse()
    ends = [n * total // (2**count - 1) for total in itertools.accumulate(sizes)]
    return list(zip([0, *ends[:-1]], ends, strict=True))


def smallest(fits: Callable[[int], bool]) -> int:
    """The least n with fits(n), where all larger n fit, too."""
    high = 1
    while not fits(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high
