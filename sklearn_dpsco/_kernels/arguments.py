"""Tuples of arguments that several kernels take, free of numba: callers import them at once.

Kernels that take them need `jit.njit`: compiled code knows a field by its place in the tuple.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

# in the place of a loss_id
MULTINOMIAL = -1  # the loss of several classes together
TABULATED = -2  # a user's loss, whose derivatives are in `Tables`

NORM_BLOCK = 256  # coefficients whose squares are added up at a time, which bounds the rounding


def read_only(values: Any) -> Any:
    """A view of an array that is not written to.

    So kernels are compiled for one kind of array: not once more for a copy of some rows or for a
    file that cannot be written to, and not because of one record for which a table was copied.
    """
    values = values.view()
    values.flags.writeable = False
    return values


class Compressed(NamedTuple):
    """The arrays of a matrix in CSR storage."""

    data: Any  # (nnz,)
    indices: Any  # (nnz,): the column of each value
    indptr: Any  # (n + 1,): the values of row k are indptr[k]:indptr[k + 1]

    @classmethod
    def of(cls, X: Any) -> Compressed:
        """The arrays of a scipy matrix."""
        return cls(*map(read_only, (X.data, X.indices, X.indptr)))


def dense_or_stored(X: Any) -> tuple[Any, Compressed | None]:
    """X and None if it is a dense array, None and the arrays of a matrix in CSR storage.

    Kernels for both take the two: a branch on whether one of them is not None is not compiled where
    it is.
    """
    return (None, Compressed.of(X)) if hasattr(X, "indptr") else (read_only(X), None)


class Slope(NamedTuple):
    """The derivative dl/dz of a loss at z = offset + prediction, clipped to [-clip, clip]."""

    loss_id: int  # `losses.kernel_id`
    parameter: float  # `losses.kernel_parameter`
    clip: float
    offset: float
    # of the Moreau envelope that replaces the loss (the logistic loss has none), infinite for the
    # loss itself; the clipped derivative is that of the envelope of the clipped loss
    beta: float = math.inf


class UsualSlope(Slope):
    """That of a loss of `losses.USUAL`, or `MULTINOMIAL`: code for it is compiled without the rest.

    The formulas of all losses together take as long as a kernel.
    """

    __slots__ = ()


class Tables(NamedTuple):
    """A `Slope` in tables: functions of z, linear from knot to knot, constant beyond both ends."""

    knots: Any  # a table in each row; its number stands in the place of a target
    values: Any
    clip: float
    offset: float
    loss_id: int = TABULATED


class RowForm(NamedTuple):
    """The row ``s [x - center, bias]`` that is formed from a record x."""

    center: Any
    bias: float  # 1 or less with an intercept, else 0
    bound: float  # s = scale min(1, bound / norm of [x - center, bias]), with the record's scale
    norm_error: float  # relative, and added to a squared norm


class Steps(NamedTuple):
    """Steps of gradient descent over a sequence of records."""

    learning_rate: float
    radius: float  # of the l2 ball onto which the coefficients are projected
    block: int  # records from one projection to the next
    first: int  # the record from which on coefficients are averaged


class RecordWalk(NamedTuple):
    """Numbers of a run of Frank-Wolfe steps on single records, see `record_steps`."""

    kept: float  # q
    clip: float  # a bound on what a record's derivative contributes
    penalty: float
    scale: float  # of the noise of a selection
    most_words: int  # that a selection may read before another sampler takes over
    n_columns: int
    values: Any  # of the vertices, for every coordinate
