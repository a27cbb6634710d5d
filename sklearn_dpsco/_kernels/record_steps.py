"""Frank-Wolfe steps of one record each, with the selection of a vertex inside the loop.

The step for a record x corrects the estimate v of the gradient at the point w, of which the one
before was w',

    v <- q v + clip(l'(<x, w>) - q l'(<x, w'>)) x,

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

__all__ = ["csr_record_steps", "dense_record_steps"]


@njit(cache=True, inline="always")
def _change(slope: Slope, walk: RecordWalk, weight: float, product: float, moved: float,
            y: float) -> float:  # fmt: skip
    """What the record's derivative contributes; `moved` is what the last move added to <x, w>."""
    before = (product - moved) / walk.kept
    change = clipped_derivative(slope, weight * product, y)
    change -= walk.kept * clipped_derivative(slope, weight * before, y)
    return weight * min(max(change, -walk.clip), walk.clip)


@njit(cache=True, fastmath={"reassoc", "nnan"})
def _largest(v: Any, w: Any, penalty: float) -> Any:
    """Largest and smallest coordinate of v + penalty w."""
    high, low = v[0] + penalty * w[0], v[0] + penalty * w[0]
    for j in range(1, v.size):
        g = v[j] + penalty * w[j]
        high, low = max(high, g), min(low, g)
    return high, low


@njit(cache=True, inline="always")
def _select(v: Any, w: Any, walk: RecordWalk, values: Any, words: Any, used: int) -> Any:
    """(number of a vertex, words read so far), or a code if the words do not decide."""
    high, low = _largest(v, w, walk.penalty)
    top = -math.inf
    for m in range(values.size):
        top = max(top, -values[m] * high, -values[m] * low)
    size, start = np.uint64(v.size * values.size), used
    while used + 2 <= words.size and used - start < walk.most_words:
        number = index_of(words[used], size)
        if number >= 0:
            block, j = number // v.size, number % v.size
            score = -values[block] * (v[j] + walk.penalty * w[j])
            accepted = coin(words[used + 1], exp_minus((top - score) / walk.scale))
            if accepted == UNCERTAIN:
                return np.int64(UNCERTAIN), start
            if accepted == 1:
                return number, used + 2
        used += 2
    return np.int64(MORE_WORDS), start


@njit(cache=True, inline="always")
def _move(w: Any, walk: RecordWalk, j: int, value: float) -> float:
    """Move to the vertex; what this added to coordinate j."""
    added = (1.0 - walk.kept) * value
    for i in range(w.size):
        w[i] *= walk.kept
    w[j] += added
    return added


@njit(cache=True)
def dense_record_steps(
    X: Any, weight: Any, y: Any, slope: Slope, walk: RecordWalk, values: Any, last: Any,
    words: Any, w: Any, v: Any,
) -> Any:  # fmt: skip
    """Steps over the rows of X in their order; w and v are changed in place.

    Parameters
    ----------
    last : ndarray of shape (2,)
        Coordinate of the last move and what it added there; changed in place.

    Returns
    -------
    done : int
        Steps made. If they are fewer than the rows, v is that of the next step, whose selection
        the words did not decide.
    used : int
        Words read by the steps made.
    """
    d, used = X.shape[1], 0
    for t in range(y.size):
        row, j = X[t], int(last[0])
        product = inner_product(row, w[:d])
        moved = last[1] * (row[j] if j < d else 1.0)
        if w.size > d:
            product += w[d]
        r = _change(slope, walk, weight[t], product, moved, y[t])
        for i in range(d):
            v[i] = walk.kept * v[i] + r * row[i]
        if w.size > d:
            v[d] = walk.kept * v[d] + r
        number, used = _select(v, w, walk, values, words, used)
        if number < 0:
            return t, used
        last[0] = number % v.size
        last[1] = _move(w, walk, number % v.size, values[number // v.size])
    return y.size, used


@njit(cache=True)
def csr_record_steps(
    X: Compressed, weight: Any, y: Any, slope: Slope, walk: RecordWalk, values: Any, last: Any,
    words: Any, w: Any, v: Any, d: int,
) -> Any:  # fmt: skip
    """As `dense_record_steps`, over the rows of a CSR matrix with d columns."""
    data, indices, indptr = X
    used = 0
    for t in range(y.size):
        j = int(last[0])
        product, moved = 0.0, last[1] if j == d else 0.0
        for k in range(indptr[t], indptr[t + 1]):
            product += data[k] * w[np.uint64(indices[k])]
            if indices[k] == j:
                moved += last[1] * data[k]
        if w.size > d:
            product += w[d]
        r = _change(slope, walk, weight[t], product, moved, y[t])
        for i in range(v.size):
            v[i] *= walk.kept
        for k in range(indptr[t], indptr[t + 1]):
            v[np.uint64(indices[k])] += r * data[k]
        if w.size > d:
            v[d] += r
        number, used = _select(v, w, walk, values, words, used)
        if number < 0:
            return t, used
        last[0] = number % v.size
        last[1] = _move(w, walk, number % v.size, values[number // v.size])
    return y.size, used
