"""Tuples of arguments that several kernels take, free of numba: callers import them at once.

Kernels that take them are compiled with `jit.njit`, since a compiled kernel knows a field by
its place in the tuple.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

# in the place of a loss_id
MULTINOMIAL = -1  # the loss of several classes together
TABULATED = -2  # a user's loss, whose derivatives are in `Tables`


class Compressed(NamedTuple):
    """The arrays of a matrix in CSR or CSC storage, of shapes (nnz,), (nnz,) and (n + 1,).

    Row (CSR) or column (CSC) k holds the values ``data[indptr[k]:indptr[k + 1]]``, and `indices`
    holds the column (CSR) or row (CSC) of each.
    """

    data: Any
    indices: Any
    indptr: Any

    @classmethod
    def of(cls, X: Any) -> Compressed:
        """The arrays of a scipy matrix."""
        return cls(X.data, X.indices, X.indptr)


class Slope(NamedTuple):
    """The derivative dl/dz of a loss at z = offset + prediction, clipped to [-clip, clip].

    `loss_id` and `parameter` are `losses.Loss.loss_id` and `kernel_parameter`; `beta` is that of
    the Moreau envelope that replaces the loss, infinite for the loss itself. (The logistic loss has
    no envelope.) Clipping the derivative of an envelope gives that of the envelope of the clipped
    loss.
    """

    loss_id: int
    parameter: float
    clip: float
    offset: float
    beta: float = math.inf


class Tables(NamedTuple):
    """A `Slope` in tables: functions of z, linear from knot to knot, constant beyond both ends.

    In the place of a target stands the number of its table, the row of `knots` and `values`.
    """

    knots: Any
    values: Any
    clip: float
    offset: float
    loss_id: int = TABULATED


class OfRecords(NamedTuple):
    """What belongs to the rows of a matrix, row by row; arrays of shape (0,) stand for ones.

    `y` has shape (n, K). `scale` and `factor` are factors on the row in a prediction, and on the
    clipped derivative; `bounds` are on the l2 norm of the derivatives, beside the loss's clip.
    """

    y: Any
    scale: Any
    factor: Any
    bounds: Any


class RowForm(NamedTuple):
    """How a row r is formed from a record x: ``r = s [x - center, bias]``.

    ``s = scale min(1, bound / norm of [x - center, bias])``, with the record's scale. `bias` is 1
    or less with an intercept, else 0; `norm_error` is relative, and added to a squared norm.
    """

    center: Any
    bias: float
    bound: float
    norm_error: float


class Steps(NamedTuple):
    """Steps of gradient descent over a sequence of records.

    Every `block` records the coefficients are projected onto the l2 ball of this radius; from the
    record `first` on they are averaged.
    """

    learning_rate: float
    radius: float
    block: int
    first: int


class Change(NamedTuple):
    """How far a derivative changes between two points: l'(z) - kept l'(z').

    If `kept` is 0, it is l'(z) alone, which is not clipped once more; else `largest` is a bound on
    the result.
    """

    kept: float
    largest: float


class RecordWalk(NamedTuple):
    """Numbers of a run of Frank-Wolfe steps on single records, see `record_steps`.

    `kept` is q, `clip` a bound on what a record's derivative contributes, and `scale` that of the
    noise of a selection, which may read `most_words` before another sampler takes over.
    """

    kept: float
    clip: float
    penalty: float
    scale: float
    most_words: int
    n_columns: int


class Secant(NamedTuple):
    """Where `vertex_steps` takes derivatives: at s (<x_i, u> + intercept), for two factors s.

    `left` and `right` are the factors, `intercept` the last coordinate of u, and `unit` a power of
    2 by which derivatives are multiplied before they are cut to integers.
    """

    left: float
    right: float
    has_intercept: bool
    intercept: float
    unit: float


class Move(NamedTuple):
    """The new coefficients ``decay * coef + amount * e_coordinate``.

    The number of columns as the coordinate stands for the intercept; a negative one for no move.
    """

    decay: float
    coordinate: int
    amount: float


NO_MOVE = Move(1.0, -1, 0.0)
