"""Exact sampling from words of a cipher: integer and float arithmetic with guard bands.

Words are the leading bits of real random numbers. Where those bits do not determine the
result, a function stops (`UNCERTAIN`), and the caller decides with more bits. So it does where
a number that is meant to be a probability is none: then the caller refuses. Proofs: doc/privacy,
section 2.5.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .jit import njit

# What a kernel returns in place of a result.
MORE_WORDS = -1
UNCERTAIN = -2

# Far above the error of `exp_minus` and of its arguments, which stays below 2^-43.
_GUARD = 2.0**-40
_TO_UNIT = 2.0**-53
_LARGEST = 45.0  # exp(-45) < 2^-64
_WHOLE = 2.0**20  # the largest weight of a group
_RELEVANT = 14.0  # exp(-14) < 2^-20: scores further below the top have the least weight
_EXP = np.array([math.exp(-k / 16) for k in range(int(16 * _LARGEST) + 1)])


@njit(cache=True, inline="always")
def exp_minus(t: float) -> float:
    """exp(-t) for t >= 0 within 2^-48; 0 from 45 on; NaN for all other t."""
    if t >= _LARGEST:
        return 0.0
    if not t >= 0.0:
        return math.nan
    k = int(t * 16)
    r = t - k / 16
    # Taylor's polynomial of degree 8 on [0, 1/16]: its remainder is below (1/16)^9 / 9! < 2^-54.
    # Sixteen roundings, each of weight at most 1.1, and those of the table and of the product: the
    # relative error is below 2^-48. Tests check it against 50 digits.
    p = 1.0
    for degree in range(8, 0, -1):
        p = 1 - r / degree * p
    return float(_EXP[k] * p)


@njit(cache=True, inline="always")
def _high_product(a: Any, b: Any) -> Any:
    """Upper 64 bits of the 128-bit product of two uint64."""
    mask, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    a_low, a_high, b_low, b_high = a & mask, a >> half, b & mask, b >> half
    middle = a_high * b_low + ((a_low * b_low) >> half)
    other = a_low * b_high + (middle & mask)
    return a_high * b_high + (middle >> half) + (other >> half)


@njit(cache=True, inline="always")
def coin(word: Any, probability: float) -> int:
    """1 if the uniform that begins with `word` is below the probability, 0 if above."""
    u = float(word >> np.uint64(11)) * _TO_UNIT
    if u + _GUARD < probability <= 1.0:
        return 1
    if u > probability + _GUARD:
        return 0
    return UNCERTAIN  # also for what is no probability, NaN or above 1


@njit(cache=True)
def floor_draws(words: Any, table: Any, is_normal: bool, steps: Any, out: Any) -> Any:
    """Fill `out` with floor(steps * Z), Z a symmetric real variable.

    Z = +-(k + x): k has the cumulative probabilities `table` / 2^63, x in [0, 1) is
    uniform, and (k, x) is accepted with probability exp(-x (2 k + x) / 2) (normal) or
    exp(-x) (Laplace). Each attempt reads three words.

    Returns (draws made, words read by certain attempts, whether no attempt needs more bits).
    """
    filled, used = 0, 0
    one, last = np.uint64(1), np.uint64(table.size)
    while filled < out.size and used + 3 <= words.size:
        choice, x = words[used] >> one, words[used + 1]
        k = np.uint64(0)
        while k < last and choice > table[k] + one:
            k += one
        if k == last or choice + one >= table[k]:
            return filled, used, False
        fraction = float(x >> np.uint64(11)) * _TO_UNIT
        t = fraction * (2 * float(k) + fraction) / 2 if is_normal else fraction
        accepted = coin(words[used + 2], exp_minus(t))
        if accepted == UNCERTAIN:
            return filled, used, False
        if accepted == 1:
            low = steps * x
            if low > ~steps + one:  # the bits of x to come may carry
                return filled, used, False
            size = np.int64(steps * k + _high_product(steps, x))
            out[filled] = -size - 1 if words[used] & one else size
            filled += 1
        used += 3
    return filled, used, True


@njit(cache=True, inline="always")
def index_of(word: Any, size: Any) -> Any:
    """Uniform on range(size), or -1 for a word that would make some of them likelier."""
    if word * size < (~size + np.uint64(1)) % size:
        return np.int64(-1)
    return np.int64(_high_product(word, size))


@njit(cache=True)
def shuffle(words: Any, order: Any, left: int) -> int:
    """Continue the shuffle of Fisher and Yates; returns how many places are left."""
    used = 0
    while left > 1 and used < words.size:
        index = index_of(words[used], np.uint64(left))
        used += 1
        if index >= 0:
            left -= 1
            order[left], order[index] = order[index], order[left]
    return left


@njit(cache=True)
def propose_uniformly(
    words: Any, scores: Any, top: float, scale: float, rejected: Any, n_rejected: int
) -> Any:
    """Draw indices uniformly and accept one with probability exp(-(top - score) / scale).

    `rejected` has room for as many rejections as are wanted, and what was rejected is never
    proposed again; without room, all are proposed at any time. Returns (index, words used, number
    of rejections so far); the index is `MORE_WORDS` or `UNCERTAIN` where there is none, and in the
    latter case the words used are those before the attempt.
    """
    size, keeps = np.uint64(scores.size), rejected.size > 0
    used = 0
    while used + 2 <= words.size and not (keeps and n_rejected == rejected.size):
        index = index_of(words[used], size)
        for k in range(n_rejected):
            if rejected[k] == index:
                index = np.int64(-1)
        if index >= 0:
            accepted = coin(words[used + 1], exp_minus((top - scores[index]) / scale))
            if accepted == UNCERTAIN:
                return UNCERTAIN, used, n_rejected
            if accepted == 1:
                return index, used + 2, n_rejected
            if keeps:
                rejected[n_rejected] = index
                n_rejected += 1
        used += 2
    return MORE_WORDS, used, n_rejected


# No NaN is compared, and the sign of 0 does not matter: with that the loop is vector code.
@njit(cache=True, fastmath={"nnan", "nsz"})
def bound_groups(left: Any, right: Any, bits: int, bounds: Any) -> None:
    """Smallest and largest number of `left`, then of `right`, in every group of 2^bits places."""
    for group in range(bounds.shape[0]):
        start, end = group << bits, min(left.size, (group + 1) << bits)
        low_left, high_left = left[start], left[start]
        low_right, high_right = right[start], right[start]
        for j in range(start, end):
            low_left, high_left = min(low_left, left[j]), max(high_left, left[j])
            low_right, high_right = min(low_right, right[j]), max(high_right, right[j])
        bounds[group, 0], bounds[group, 1] = low_left, high_left
        bounds[group, 2], bounds[group, 3] = low_right, high_right


@njit(cache=True, inline="always")
def _top(low: float, high: float, values: Any) -> float:
    """The largest score for a direction between `low` and `high`."""
    top = -math.inf
    for value in values:
        top = max(top, -value * (low if value > 0 else high))
    return top


@njit(cache=True)
def top_groups(bounds: Any, a: float, b: float, values: Any, tops: Any) -> None:
    """Into `tops`: at least each score ``-value (a left_j + b right_j)`` of a group; a, b >= 0.

    The scores' own operations on ends of the numbers: rounding keeps their order.
    """
    for group in range(tops.size):
        low = a * bounds[group, 0] + b * bounds[group, 2]
        high = a * bounds[group, 1] + b * bounds[group, 3]
        tops[group] = _top(low, high, values)


@njit(cache=True)
def sharpen_groups(scores: Any, bounds: Any, is_loose: Any, tops: Any) -> bool:
    """Make `tops` the largest scores themselves, where they may be near the largest of all.

    `scores` are left, right, bits, a, b, values and scale, see `propose_in_groups`. The smallest
    left and the smallest right number of a group may be in two places. Loose bounds of these groups
    are made tight. Returns whether these held, and no score was above the top of its group.
    """
    left, right, bits, a, b, values, scale = scores
    best, first, held = -math.inf, np.argmax(tops), True
    for k in range(tops.size + 1):
        group = int(first) if k == 0 else k - 1
        if tops[group] > best - _RELEVANT * scale:
            places = slice(group << bits, min(left.size, (group + 1) << bits))
            if is_loose[group]:
                is_loose[group] = False
                before = bounds[group].copy()
                bound_groups(left[places], right[places], bits, bounds[group : group + 1])
                for end in range(0, 4, 2):
                    held &= before[end] <= bounds[group, end]
                    held &= before[end + 1] >= bounds[group, end + 1]
            directions = a * left[places] + b * right[places]
            top = _top(np.min(directions), np.max(directions), values)
            held &= top <= tops[group]
            tops[group] = top
            best = max(best, top)
    return held


@njit(cache=True)
def weigh_groups(tops: Any, scale: float, cumulative: Any) -> float:
    """Cumulative integer weights above 2^20 exp(-(m - top) / scale); returns m, the largest top."""
    reference, total = np.max(tops), np.int64(0)
    for group in range(tops.size):
        weight = _WHOLE * exp_minus((reference - tops[group]) / scale)
        total += np.int64(weight * (1 + _GUARD)) + np.int64(2)
        cumulative[group] = total
    return float(reference)


@njit(cache=True)
def propose_in_groups(words: Any, scores: Any, reference: float, cumulative: Any) -> Any:
    """Draw (k, j) and accept with probability proportional to exp(score / scale).

    The score is ``-values[k] (a left_j + b right_j)``. A group is proposed with a probability
    proportional to its weight, one of its places uniformly, and accepted with 2^20
    exp(-(reference - score) / scale) over the weight. Each attempt reads three words. Returns as
    `propose_uniformly`, with ``k * left.size + j`` for the index.
    """
    left, right, bits, a, b, values, scale = scores
    total, width = np.uint64(cumulative[-1]), np.uint64(values.size) << np.uint64(bits)
    mask, used = (1 << bits) - 1, 0
    while used + 3 <= words.size:
        place, within = index_of(words[used], total), index_of(words[used + 1], width)
        if place >= 0 and within >= 0:
            group = np.searchsorted(cumulative, place, "right")
            k, j = within >> bits, (group << bits) + (within & mask)
            if j < left.size:
                weight = cumulative[group] - (cumulative[group - 1] if group > 0 else 0)
                score = -values[k] * (a * left[j] + b * right[j])
                p = exp_minus((reference - score) / scale) * (_WHOLE / weight)
                accepted = coin(words[used + 2], p)
                if accepted == UNCERTAIN:
                    return np.int64(UNCERTAIN), used
                if accepted == 1:
                    return np.int64(k * left.size + j), used + 3
        used += 3
    return np.int64(MORE_WORDS), used


@njit(cache=True)
def flip_coins(
    words: Any, scores: Any, top: float, scale: float, factor: float, start: int, out: Any
) -> int:
    """out[i] = 1 with probability factor * exp(-(top - scores[i]) / scale), from i = start.

    Word i belongs to coin i. Returns where it stopped: the number of scores, or an index
    whose coin is uncertain.
    """
    for i in range(start, scores.size):
        flipped = coin(words[i], factor * exp_minus((top - scores[i]) / scale))
        if flipped == UNCERTAIN:
            return i
        out[i] = flipped
    return int(scores.size)


@njit(cache=True)
def distinct_indices(words: Any, is_taken: Any, out: Any, found: int) -> int:
    """Continue `out` with uniform indices that are not taken, and take them."""
    size = np.uint64(is_taken.size)
    for i in range(words.size):
        index = index_of(words[i], size)
        if found < out.size and index >= 0 and not is_taken[index]:
            is_taken[index] = True
            out[found] = index
            found += 1
    return found
