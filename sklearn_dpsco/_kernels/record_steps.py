"""Frank-Wolfe steps of one record each, with the selection of a vertex inside the loop.

The step for a record x corrects the estimate v of the gradient at the point w, of which the one
before was w',

    v <- q v + f clip(l'(s <x, w>) - q l'(s <x, w'>)) x,

with the record's scale s and factor f, the scale times its weight,
selects the vertex `values[m] e_j` with probability proportional to
``exp(-values[m] (v + penalty w)_j / scale)``, exactly, and moves to w <- q w + (1 - q) vertex.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .arguments import Compressed, RecordWalk, Slope
from .derivatives import clipped_derivative
from .jit import njit
from .products import inner_product
from .sampling import MORE_WORDS, UNCERTAIN, coin, exp_minus, index_of

# In place of the words read: a score was above the largest of all.
IMPOSSIBLE = -3

_SMALLEST = 1e-100  # of the factor of a point


@njit(cache=True, inline="always")
def _change(
    slope: Slope, walk: RecordWalk, factors: Any, product: float, moved: float, y: float
) -> float:
    """What the record's derivative contributes; `moved` is what the last move added to <x, w>."""
    scale, factor = factors
    before = (product - moved) / walk.kept
    change = clipped_derivative(slope, scale * product, y)
    change -= walk.kept * clipped_derivative(slope, scale * before, y)
    return factor * min(max(change, -walk.clip), walk.clip)


# No NaN is compared here, and the sign of 0 does not matter: with that the loops are vector code.
@njit(cache=True, fastmath={"nnan", "nsz"})
def _correct(v: Any, row: Any, kept: float, r: float) -> Any:
    """Set v to kept v + r row; its smallest and largest coordinate."""
    low, high = math.inf, -math.inf
    for i in range(row.size):
        value = kept * v[i] + r * row[i]
        v[i] = value
        low, high = min(low, value), max(high, value)
    return low, high


@njit(cache=True, fastmath={"nnan", "nsz"})
def _ends(v: Any, w: Any, penalty: float) -> Any:
    """Smallest and largest coordinate of v + penalty w; w is not read without a penalty."""
    low, high = math.inf, -math.inf
    if penalty > 0.0:
        for j in range(v.size):
            g = v[j] + penalty * w[j]
            low, high = min(low, g), max(high, g)
        return low, high
    for j in range(v.size):
        low, high = min(low, v[j]), max(high, v[j])
    return low, high


@njit(cache=True, inline="always")
def _select(
    v: Any, w: Any, form: Any, ends: Any, most_words: int, values: Any, words: Any, used: int
) -> Any:
    """(number of a vertex, words read so far), or a code if the words do not decide.

    With it comes the number of words read before, or `IMPOSSIBLE`. `form` is (penalty, scale).
    """
    penalty, scale = form
    top = -math.inf
    for m in range(values.size):
        top = max(top, -values[m] * ends[0], -values[m] * ends[1])
    size, start = np.uint64(v.size * values.size), used
    while used + 2 <= words.size and used - start < most_words:
        number = index_of(words[used], size)
        if number >= 0:
            block, j = number // v.size, number % v.size
            score = -values[block] * (v[j] + penalty * w[j])
            below = (top - score) / scale
            accepted = coin(words[used + 1], exp_minus(below))
            if accepted == UNCERTAIN:
                return np.int64(UNCERTAIN), start if below >= 0.0 else IMPOSSIBLE
            if accepted == 1:
                return number, used + 2
        used += 2
    return np.int64(MORE_WORDS), start


@njit(cache=True, inline="always")
def _shrink(w: Any, factor: float, kept: float) -> float:
    """The factor of w after a shrink by `kept`; one that comes near 0 is multiplied into w."""
    factor *= kept
    if factor > _SMALLEST:
        return factor
    w *= factor
    return 1.0


@njit(cache=True)
def move(w: Any, last: Any, kept: float, values: Any, number: int) -> None:
    """Move the point to a vertex; see `dense_record_steps`."""
    j, block = number % w.size, number // w.size
    last[0], last[1] = j, (1.0 - kept) * values[block]
    last[2] = _shrink(w, last[2], kept)
    w[j] += last[1] / last[2]


@njit(cache=True)
def dense_record_steps(
    X: Any, records: Any, slope: Slope, walk: RecordWalk, values: Any, state: Any, words: Any
) -> Any:
    """Steps over the rows of X in their order; w, v and the state are changed in place.

    The factors in the state are left where they are. Where the steps stop depends on the scores,
    which are private: if w were multiplied by its factor there, so would its roundings.

    `records` are scales, factors and y. `state` is (last, w, v), and `last` has the coordinate of
    the last move and what it added there; and the factors of w and of v, by which they are
    multiplied in the point and in the estimate.

    Returns the number of steps made, and of the words that they read, or `IMPOSSIBLE`. If the steps
    are fewer than the rows, v is that of the next step, whose selection the words did not decide:
    it is the caller's, with a `move`.
    """
    (scales, factors, y), (last, w, v) = records, state
    d, used = X.shape[1], 0
    for t in range(y.size):
        row, j, factor = X[t], int(last[0]), last[2]
        product = inner_product(row, w[:d])
        if w.size > d:
            product += w[d]
        moved = last[1] * (row[j] if j < d else 1.0)
        r = _change(slope, walk, (scales[t], factors[t]), factor * product, moved, y[t])
        low, high = _correct(v[:d], row, walk.kept, r)
        if w.size > d:
            v[d] = walk.kept * v[d] + r
            low, high = min(low, v[d]), max(high, v[d])
        penalty = walk.penalty * factor
        if penalty > 0.0:
            low, high = _ends(v, w, penalty)
        form = penalty, walk.scale
        number, used = _select(v, w, form, (low, high), walk.most_words, values, words, used)
        if number < 0:
            return t, used
        move(w, last, walk.kept, values, number)
    return y.size, used


@njit(cache=True)
def csr_record_steps(
    X: Compressed, records: Any, slope: Slope, walk: RecordWalk, values: Any, state: Any, words: Any
) -> Any:
    """As `dense_record_steps`, over the rows of a CSR matrix."""
    (scales, factors, y), (last, w, v) = records, state
    data, indices, indptr = X
    d, used = walk.n_columns, 0
    for t in range(y.size):
        j, factor = int(last[0]), last[2]
        product, moved = 0.0, last[1] if j == d else 0.0
        for k in range(indptr[t], indptr[t + 1]):
            product += data[k] * w[np.uint64(indices[k])]
            if indices[k] == j:
                moved += last[1] * data[k]
        if w.size > d:
            product += w[d]
        r = _change(slope, walk, (scales[t], factors[t]), factor * product, moved, y[t])
        v_factor = _shrink(v, last[3], walk.kept)
        last[3], r = v_factor, r / v_factor
        for k in range(indptr[t], indptr[t + 1]):
            v[np.uint64(indices[k])] += r * data[k]
        if w.size > d:
            v[d] += r
        # scores and noise over the factor of the estimate
        penalty, scale = walk.penalty * factor / v_factor, walk.scale / v_factor
        ends = _ends(v, w, penalty)
        form = penalty, scale
        number, used = _select(v, w, form, ends, walk.most_words, values, words, used)
        if number < 0:
            return t, used
        move(w, last, walk.kept, values, number)
    return y.size, used
