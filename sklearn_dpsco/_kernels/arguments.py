"""Tuples of arguments that several kernels take, free of numba: callers import them at once.

Kernels that take them are compiled with `jit.njit`, since a compiled kernel knows a field by
its place in the tuple.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

__all__ = [
    "MULTINOMIAL",
    "TABULATED",
    "Change",
    "Compressed",
    "Move",
    "OfRecords",
    "RecordWalk",
    "RowForm",
    "Secant",
    "Slope",
    "Steps",
    "Tables",
]

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

    Clipping the derivative of a Moreau envelope gives that of the envelope of the clipped loss.

    Attributes
    ----------
    loss_id : int
        See `losses.Loss.loss_id`.
    parameter : float
        See `losses.Loss.kernel_parameter`.
    clip, offset : float
    beta : float
        Parameter of the Moreau envelope that replaces the loss; infinite for the loss itself.
        The logistic loss has no envelope.
    """

    loss_id: int
    parameter: float
    clip: float
    offset: float
    beta: float = math.inf


class Tables(NamedTuple):
    """A `Slope` in tables: functions of z, linear from knot to knot, constant beyond both ends.

    In the place of a target stands the number of its table.

    Attributes
    ----------
    knots, values : ndarray of shape (n_tables, n_knots)
    clip, offset : float
    loss_id : int
    """

    knots: Any
    values: Any
    clip: float
    offset: float
    loss_id: int = TABULATED


class OfRecords(NamedTuple):
    """What belongs to the rows of a matrix, row by row.

    Attributes
    ----------
    y : ndarray of shape (n, K)
    scale, factor : ndarray of shape (n,) or (0,)
        Factors on the row in a prediction, and on the clipped derivative; none stand for ones.
    bounds : ndarray of shape (n,) or (0,)
        On the l2 norm of the derivatives, beside the clip of the loss.
    """

    y: Any
    scale: Any
    factor: Any
    bounds: Any

    def part(self, which: slice) -> OfRecords:
        """Of a range of the rows."""
        return OfRecords(*(array[which] for array in self))


class RowForm(NamedTuple):
    """How a row r is formed from a record x: ``r = s [x - center, bias]``.

    ``s = scale min(1, bound / norm of [x - center, bias])``, with the record's scale.

    Attributes
    ----------
    center : ndarray of shape (d,)
    bias : float
        The last coordinate: 1 or less with an intercept, else 0.
    bound : float
        Bound on the l2 norm of a row.
    norm_error : float
        Relative error to add to a squared norm.
    """

    center: Any
    bias: float
    bound: float
    norm_error: float


class Steps(NamedTuple):
    """Steps of gradient descent over a sequence of records.

    Attributes
    ----------
    learning_rate : float
    radius : float
        Of the l2 ball onto which the coefficients are projected.
    block : int
        Number of records between two projections.
    first : int
        Iterates are averaged from this record on.
    """

    learning_rate: float
    radius: float
    block: int
    first: int


class Change(NamedTuple):
    """How far a derivative changes between two points: l'(z) - kept l'(z').

    Attributes
    ----------
    kept : float
        0 for l'(z) alone, which is not clipped once more.
    largest : float
        Bound on the result.
    """

    kept: float
    largest: float


class RecordWalk(NamedTuple):
    """Numbers of a run of Frank-Wolfe steps on single records, see `record_steps`.

    Attributes
    ----------
    kept : float
        q.
    clip : float
        Bound on what a record's derivative contributes.
    penalty : float
    scale : float
        Of the noise of a selection.
    most_words : int
        Words that a selection may read before another sampler takes over.
    """

    kept: float
    clip: float
    penalty: float
    scale: float
    most_words: int


class Secant(NamedTuple):
    """Where `vertex_steps` takes derivatives: at s (<x_i, u> + intercept), for two factors s.

    Attributes
    ----------
    left, right : float
        The factors.
    has_intercept : bool
    intercept : float
        The last coordinate of u.
    unit : float
        A power of 2 by which derivatives are multiplied before they are cut to integers.
    """

    left: float
    right: float
    has_intercept: bool
    intercept: float
    unit: float


class Move(NamedTuple):
    """The new coefficients ``decay * coef + amount * e_coordinate``.

    Attributes
    ----------
    decay : float
    coordinate : int
        The number of columns stands for the intercept.
    amount : float
    """

    decay: float
    coordinate: int
    amount: float
