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

from .arguments import RecordWalk, Slope
from .derivatives import derivative
from .jit import njit
from .products import inner_product
from .sampling import MORE_WORDS, UNCERTAIN, coin, exp_minus, index_of

# In place of the words read: a score was above the largest of all.
IMPOSSIBLE = -3

_SMALLEST = 1e-100  # of the factor of a point


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
def _select(v: Any, w: Any, form: Any, ends: Any, walk: RecordWalk, words: Any, used: int) -> Any:
    """(number of a vertex, words read so far), or a code if the words do not decide.

    With it comes the number of words read before, or `IMPOSSIBLE`. `form` is (penalty, scale).
    """
    (penalty, scale), values = form, walk.values
    top = -math.inf
    for m in range(values.size):
        top = max(top, -values[m] * ends[0], -values[m] * ends[1])
    size, start = np.uint64(v.size * values.size), used
    while used + 2 <= words.size and used - start < walk.most_words:
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
def move(w: Any, last: Any, walk: RecordWalk, number: int) -> None:
    """Move the point to a vertex; see `record_steps`."""
    j, block = number % w.size, number // w.size
    last[0], last[1] = j, (1.0 - walk.kept) * walk.values[block]
    last[2] = _shrink(w, last[2], walk.kept)
    w[j] += last[1] / last[2]


@njit(cache=True)
def record_steps(
    X: Any, stored: Any, records: Any, slope: Slope, walk: RecordWalk, state: Any, words: Any
) -> Any:
    """Steps over the rows in their order; w, v and the state are changed in place.

    For X and `stored` see `dense_or_stored`. `records` are scales, factors and y. `state` is (last,
    w, v), and `last` has the coordinate of the last move and what it added there; and the factors
    of w and of v, by which they are multiplied in the point and in the estimate; of dense rows that
    of v is 1. They are left where they are: where the steps stop depends on the scores, which are
    private. If w were multiplied by its factor there, so would its roundings.

    Returns the number of steps made, and of the words that they read, or `IMPOSSIBLE`. If the steps
    are fewer than the rows, v is that of the next step, whose selection the words did not decide:
    it is the caller's, with a `move`.
    """
    (scales, factors, y), (last, w, v) = records, state
    d, used, product, moved = walk.n_columns, 0, 0.0, 0.0
    for t in range(y.size):
        j, factor = int(last[0]), last[2]
        if X is not None:
            product = inner_product(X[t], w[:d])
            moved = last[1] * (X[t, j] if j < d else 1.0)
        if stored is not None:
            product, moved = 0.0, last[1] if j == d else 0.0
            for k in range(stored.indptr[t], stored.indptr[t + 1]):
                product += stored.data[k] * w[np.uint64(stored.indices[k])]
                if stored.indices[k] == j:
                    moved += last[1] * stored.data[k]
        if w.size > d:
            product += w[d]
        product *= factor
        before = (product - moved) / walk.kept
        r = derivative(slope, scales[t] * product, y[t])
        r -= walk.kept * derivative(slope, scales[t] * before, y[t])
        r = factors[t] * min(max(r, -walk.clip), walk.clip)
        ends = math.inf, -math.inf
        if X is not None:
            ends = _correct(v[:d], X[t], walk.kept, r)
            if w.size > d:
                v[d] = walk.kept * v[d] + r
                ends = min(ends[0], v[d]), max(ends[1], v[d])
        if stored is not None:
            last[3] = _shrink(v, last[3], walk.kept)
            r /= last[3]
            for k in range(stored.indptr[t], stored.indptr[t + 1]):
                v[np.uint64(stored.indices[k])] += r * stored.data[k]
            if w.size > d:
                v[d] += r
        # scores and noise over the factor of the estimate
        form = walk.penalty * factor / last[3], walk.scale / last[3]
        if X is None or form[0] > 0.0:
            ends = _ends(v, w, form[0])
        number, used = _select(v, w, form, ends, walk, words, used)
        if number < 0:
            return t, used
        move(w, last, walk, number)
    return y.size, used
