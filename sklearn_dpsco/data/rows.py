"""The linear layer: rows [x, 1], with targets, their products with coefficients, and sums.

The intercept (a column of ones that is not stored), the scale of the rows and the storage of X are
handled here alone.

Every sum over records is accumulated in float64, in chunks of `chunk_rows(n, d)` rows or blocks of
`BLOCK_ROWS`, whose partial sums are added up. Plans add `summation_error` to their sensitivities.
"""

from __future__ import annotations

import functools
import math
import operator
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
from scipy import sparse
from threadpoolctl import ThreadpoolController

from .. import losses
from .._checks import during
from .._kernels.arguments import (
    MULTINOMIAL,
    Compressed,
    RowForm,
    Slope,
    UsualSlope,
    dense_or_stored,
    read_only,
)
from .._types import Array, Flags, Indices, Which
from .cells import clear_rows, nonfinite_rows
from .compressed import row_range, slices

_NONE = np.empty(0)  # in the place of factors that are all 1, and of bounds
_OF_RECORDS = ("scale", "sample_weight", "users")  # fields that are arrays, or None
TASK_NUMBERS = 2**19  # of a dense task: many beside what it costs to hand it out


class Move(NamedTuple):
    """The new coefficients ``decay * coef + amount * e_coordinate``."""

    decay: float
    coordinate: int  # the number of columns for the intercept
    amount: float


def _slope_of(terms: Terms, *, is_joint: bool = False) -> Slope | None:
    """The derivative as kernels take it, None if it is a user's; if `is_joint`, without offset."""
    loss, offset, beta = terms.loss, terms.offset, math.inf
    if is_joint and isinstance(loss, losses.Multinomial):
        return UsualSlope(MULTINOMIAL, 0.0, terms.clip, 0.0)
    if is_joint:
        loss, offset = losses.base_loss(loss), 0.0
    if isinstance(loss, losses.Envelope):
        own = type(loss.base).envelope_derivative
        if own is not losses.Loss.envelope_derivative:  # in closed form
            beta, loss = loss.beta, loss.base
    loss_id = losses.kernel_id(loss)
    if loss_id is None:
        return None
    kind = UsualSlope if type(loss) in losses.USUAL and beta == math.inf else Slope
    return kind(loss_id, loss.kernel_parameter, terms.clip, offset, beta)


@dataclass(frozen=True)
class Terms:
    """What is minimized: the mean of l(offset + prediction, y).

    The targets y have the shape (n_samples,), or (n_samples, K) for K outputs.
    """

    offset: Any  # a constant outside the linear model, or one for each of K outputs
    loss: losses.Loss
    clip: float  # a bound on the l2 norm of a record's derivatives

    slope = functools.cached_property(_slope_of)
    joint_slope = functools.cached_property(functools.partial(_slope_of, is_joint=True))


@dataclass(eq=False, repr=False)
class Rows:
    """Rows ``scale_i * [x_i - center, 1]`` of a matrix, and sums over them.

    Coefficients and gradients of K > 1 outputs are matrices of shape (dimension, K), with one
    product for all of them.
    """

    # (n, d), float64 or float32, in [-1, 1]: canonical CSR, or an ndarray in C order; canonical CSC
    # and other arrays are copied
    X: Any
    has_intercept: bool
    scale: Array | None = None  # in [0, 1], 0 for a record that contributes nothing; None for ones
    # in [0, 1], a factor on each record's derivative, in no prediction; None for ones
    sample_weight: Array | None = None
    # needs an intercept, and is never subtracted from the stored values: a model on centred rows is
    # one on plain rows with another intercept
    center: Array | None = None
    is_drawn: bool = False  # whether the rows are a random batch, see `part`
    users: Indices | None = None  # a number for the user of each row; public

    def __post_init__(self) -> None:
        self.n_samples, self.n_columns = self.X.shape
        self.dimension = self.n_columns + self.has_intercept  # of a row, with the intercept's
        self.chunk = chunk_rows(self.n_samples, self.n_columns)
        self.is_sparse = sparse.issparse(self.X)
        self.X = self.X.tocsr() if self.is_sparse else read_only(np.ascontiguousarray(self.X))
        weight = self.sample_weight
        # on each clipped derivative; None for ones
        self.factor = self.scale if weight is None else times_rows(weight, self.scale)

    @functools.cached_property
    def _ones(self) -> Array:
        return np.ones(self.n_samples)

    @functools.cached_property
    def tasks(self) -> list[slice]:
        """The rows of each task: whole chunks of them, of which a task has at most a block.

        By public facts alone, whatever the number of threads.
        """
        wanted = round(TASK_NUMBERS / (self.chunk * max(1, self.n_columns)))
        return slices(self.n_samples, self.chunk * max(1, min(wanted, BLOCK_ROWS // self.chunk)))

    def scales(self) -> Array:
        """The scale of every row, shape (n,)."""
        return self._ones if self.scale is None else self.scale

    def sample_weights(self) -> Array:
        """The weight of every record, shape (n,)."""
        return self._ones if self.sample_weight is None else self.sample_weight

    def factors(self) -> Array:
        """Scale times weight, shape (n,); the array of `scales` itself without weights."""
        return self._ones if self.factor is None else self.factor

    def present(self) -> Flags:
        """Flags the records that contribute something, shape (n,)."""
        return np.ones(self.n_samples, dtype=bool) if self.scale is None else self.scale > 0

    def without_empty(self, values: Array) -> Array:
        """Numbers of the records, 0 for each that contributes nothing."""
        return values if self.scale is None else times_rows(values, self.present())

    # ----------------------------------------------------------------------------- other rows

    def with_norm_bound(self, bound: float) -> Rows:
        """The same rows, those longer than `bound` in l2 norm scaled down to it."""
        bound *= 1 - 8 * UNIT_ROUNDOFF  # the divisions and products to come
        shrink = bound / np.maximum(self.norms(), bound)
        return replace(self, scale=times_rows(shrink, self.scale))

    def part(self, which: Which, *, is_drawn: bool = False) -> Rows:
        """The rows of a range or of a list of numbers, perhaps of a random batch.

        The predictions of such a row do not depend on the batch. BLAS rounds a product by the place
        of its row, and other records have other places in the batches that an analysis compares.
        At a kink, a last bit may turn a derivative.
        """
        if isinstance(which, slice):
            X = row_range(self.X, which)
        else:  # for few rows, `take` is twice as fast as an index
            X = self.X[which] if self.is_sparse else self.X.take(which, axis=0)
        arrays = {name: getattr(self, name) for name in _OF_RECORDS}
        some = {name: array[which] for name, array in arrays.items() if array is not None}
        return replace(self, X=X, is_drawn=is_drawn or self.is_drawn, **some)

    # ---------------------------------------------------------------------- norms and products

    def dense(self, which: slice) -> Array:
        """The features of a range of rows, unscaled and uncentred, in float64 and read-only."""
        X = self.X[which]
        X = np.asarray(X.toarray() if self.is_sparse else X, dtype=np.float64)
        return read_only(X)

    def norms(self, unit: Array | None = None) -> Array:
        """l2 norms of the unscaled rows [unit (x - center), 1], rounded up; `unit` is optional."""
        error = norm_error(self.n_columns)
        unit = np.ones(self.n_columns) if unit is None else unit
        if not self.is_sparse:
            from .._kernels.products import squared_norms

            squares = np.empty(self.n_samples)
            center = np.zeros(self.n_columns) if self.center is None else self.center
            on_threads(
                lambda part: squared_norms(self.X[part], center, unit, squares[part]), self.tasks
            )
            return np.sqrt(squares * (1 + error) + self.has_intercept)
        from .._kernels.sparse_sums import row_norms

        weights = unit**2
        largest = squares = row_norms(Compressed.of(self.X), weights)
        if self.center is not None:
            point = np.zeros(self.dimension)
            point[: self.n_columns] = weights * self.center
            size = float(point[: self.n_columns] @ self.center)
            squares = squares - 2 * self.product(point) + size
            largest = (np.sqrt(largest) + math.sqrt(size)) ** 2
        return np.sqrt(np.maximum(squares, 0.0) + error * largest + self.has_intercept)

    def product(self, coef: Array) -> Array:
        """<[x_i, 1], coef> for every row, shape (n,), without scale and centre."""
        weights = coef[: self.n_columns]
        intercept = coef[self.n_columns] if self.has_intercept else 0.0
        if self.is_sparse and self.X.dtype == np.float64:
            return self.X @ weights + intercept
        out = np.zeros((self.n_samples, *weights.shape[1:]))

        def fill(part: slice) -> None:
            out[part] = self._predicted(self.X[part], weights)

        if self.is_sparse:  # scipy would make a copy in float64
            from .._kernels.sparse_sums import add_product

            add_product(Compressed.of(self.X), _columns(weights), _columns(out))
        else:
            on_threads(fill, self.tasks)
        return out + intercept

    def centered_product(self, coef: Array) -> Array:
        """<[x_i - m, 1], coef> for every row, without scale."""
        product = self.product(coef)
        return product if self.center is None else product - self.center @ coef[: self.n_columns]

    def _predicted(self, block: Array, weights: Array) -> Array:
        # BLAS would need a copy of single numbers
        if not self.is_drawn and (weights.ndim > 1 or block.dtype == np.float64):
            return np.asarray(block @ weights)
        from .._kernels.products import row_products

        columns = np.ascontiguousarray(weights.reshape(weights.shape[0], -1).T)
        out = np.empty((columns.shape[0], block.shape[0]))
        for column, products in zip(columns, out, strict=True):
            row_products(block, column, products)
        return out.T.reshape(block.shape[0], *weights.shape[1:])

    # ------------------------------------------------------------------------------------ sums

    def weighted_sum(self, weights: Array) -> Array:
        """Sum of weights_i [x_i - m, 1], without the scale; (n, K) weights give (dimension, K)."""
        d, shape = self.n_columns, (self.dimension, *weights.shape[1:])

        def added(part: slice) -> Array:
            total = np.empty(shape)
            total[:d] = self.dense(part).T @ weights[part]
            total[d:] = weights[part].sum(axis=0)
            return total

        if not self.is_sparse:
            return self._centered(sum_on_threads(added, self.tasks, np.zeros(shape)))
        from .._kernels.sparse_sums import add_transposed_product

        total = np.zeros(shape)
        # scipy's product would sum a whole column in one go, beyond the stated error
        facts = _columns(weights), BLOCK_ROWS, _columns(total[:d])
        add_transposed_product(Compressed.of(self.X), *facts)
        total[d:] += sum_over_records(weights)
        return self._centered(total)

    def _centered(self, total: Array) -> Array:
        """A sum over rows [x, 1] as that over rows [x - m, 1], in place."""
        if self.center is not None:
            total[: self.n_columns] -= np.multiply.outer(self.center, total[self.n_columns])
        return total

    def _derivative(
        self, product: Array, y: Array, terms: Terms, bounds: Array | None = None
    ) -> Array:
        """`factor` times the clipped derivative."""
        z = times_rows(product, self.scale) + terms.offset
        r = losses.clipped_derivative(terms.loss, z, y, terms.clip)
        r = r if bounds is None else losses.clipped_rows(r, bounds, 2)
        return times_rows(r, self.factor)

    def gradient_sum(
        self, coef: Array, y: Array, terms: Terms, bounds: Array | None = None
    ) -> Array:
        r"""Sum of :math:`v_i l'(z_i, y_i) s_i [x_i - m, 1]`, :math:`v_i` the record's weight.

        :math:`z_i = b + s_i <[x_i - m, 1], w>`, :math:`s_i` the row's scale, w the coefficients of
        shape (dimension,) or (dimension, K) with the intercept last. The terms are l, its clip and
        the offset b. `bounds` of shape (n,) are on the l2 norms of the records' derivatives,
        beside the clip.
        """
        coef = coef.copy()
        if self.center is not None:  # those with which rows [x, 1] have the same predictions
            coef[self.n_columns] -= self.center @ coef[: self.n_columns]
        slope = terms.slope if self.is_sparse else terms.joint_slope
        if slope is None or (self.is_sparse and bounds is not None):
            return self.weighted_sum(self._derivative(self.product(coef), y, terms, bounds))
        if self.is_sparse:
            return self._centered(self._csr_sweep(coef, y, slope))
        return self._centered(self._dense_sweep(coef, y, terms, slope, bounds))

    def clipped_gradient_sum(self, coef: Array, y: Array, terms: Terms, bound: float) -> Array:
        r"""Sum of :math:`s_i l'(z_i, y_i) [x_i - m, 1]`, :math:`z_i = b + <[x_i - m, 1], w>`.

        :math:`s_i` is the record's `factor` times min(1, `bound` / norm of the row). Unlike in
        `gradient_sum`, the prediction is that of the row before it is scaled down: this is
        the gradient of a weighted mean of losses.
        """
        d, slope = self.n_columns, terms.slope
        if slope is None:
            z = self.centered_product(coef) + terms.offset
            r = losses.clipped_derivative(terms.loss, z, y, terms.clip)
            return self.weighted_sum(times_rows(r, self.with_norm_bound(bound).factor))
        from .._kernels import gradient_sums as kernels

        center = np.zeros(d) if self.center is None else self.center
        bound *= 1 - 8 * UNIT_ROUNDOFF
        form = RowForm(center, float(self.has_intercept), bound, norm_error(d))
        total, point = np.zeros(d + 1), np.append(coef, np.zeros(d + 1 - coef.size))
        X = dense_or_stored(self.X)
        kernels.gradient_sum(*X, self.factors(), y, form, slope, point, total)
        return total[: self.dimension]

    def gradient_sum_after_move(self, product: Array, move: Move, y: Array, terms: Terms) -> Array:
        """`gradient_sum` of dense rows at the coefficients after a move towards a vertex.

        `product` holds <[x_i, 1], w> and is updated in place, which costs one column of X instead
        of a product with all of it. The coordinate counts the entries of a matrix row by row.
        """
        outputs = product.reshape(self.n_samples, -1)
        coordinate, output = divmod(move.coordinate, outputs.shape[1])
        product *= move.decay
        column: Any = 1.0
        if coordinate < self.n_columns:
            column = self.X[:, coordinate].astype(np.float64)
        outputs[:, output] += move.amount * column
        return self.weighted_sum(self._derivative(product, y, terms))

    def _dense_sweep(
        self, coef: Array, y: Array, terms: Terms, slope: Slope, bounds: Array | None
    ) -> Array:
        """One pass over dense rows that differentiates and adds up."""
        from .._kernels.gradient_sums import dense_gradient_at

        outputs, y = coef.reshape(self.dimension, -1), y.reshape(self.n_samples, -1)
        lines = np.zeros((outputs.shape[1], self.n_columns + 1))
        lines[:, : self.dimension] = outputs.T
        factors = self.scale, self.factor, bounds
        records = np.ascontiguousarray(y), *(_NONE if a is None else a for a in factors)
        of_loss = np.full(len(lines), terms.offset, dtype=np.float64), slope

        def added(part: slice) -> Any:
            chunks = part.start, part.stop, self.chunk
            return dense_gradient_at(self.X, records, chunks, lines, of_loss)

        total = sum_on_threads(added, self.tasks, uses_blas=False)
        return np.ascontiguousarray(total.T[: self.dimension]).reshape(coef.shape)

    def _csr_sweep(self, coef: Array, y: Array, slope: Slope) -> Array:
        """The same over sparse rows, of a single output."""
        from .._kernels.sparse_sums import gradient_at

        X, total, records = self.X, np.zeros(self.n_columns), (self.scales(), self.factors(), y)
        total_b = gradient_at(Compressed.of(X), records, coef, slope, BLOCK_ROWS, total)
        return np.append(total, total_b) if self.has_intercept else total


def _columns(values: Array) -> Array:
    """A view of numbers of one output or several, shape (n, K)."""
    return values if values.ndim == 2 else values[:, None]


def times_rows(values: Array, factors: Any) -> Array:
    """Values of shape (n,) or (n, K), those of each record times its factor; None for ones."""
    if factors is None:
        return values
    return values * (factors if values.ndim == 1 else factors[:, None])


def scaled_rows(
    X: Any, scaling: Any, has_intercept: bool, is_empty: Any, sample_weight: Array | None = None
) -> Rows:
    """Rows of a table by its `FeatureScaling`; those flagged, and those with NaN, are empty."""
    empty = nonfinite_rows(X) | is_empty
    cleared = clear_rows(scaling.transform(X), empty, X)
    return Rows(cleared, has_intercept, np.where(empty, 0.0, 1.0), sample_weight)


# ------------------------------------------------------------------------- rows with their targets


@dataclass(frozen=True)
class SolverData:
    """Clipped and scaled records, of which functions make sums (`sum`) or other records (`map`).

    The functions depend on nothing else. So records may as well lie in pieces elsewhere:
    `pieces.Pieces` has the same methods, and calls the functions with each piece.
    """

    rows: Rows
    # In [-1, 1], of labels -1 and +1, of several classes +1 for the record's own; shape
    # (n_samples,), or (n_samples, n_outputs) if there are several.
    y: Array
    numbers: Any = None  # of each record, that were computed before

    is_local: ClassVar[bool] = True

    def sum(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The sum over all pieces of the array that the function makes of each."""
        return function(self, *arguments)

    map = sum  # what the function makes of each piece, of which there is one here

    def sum_numbered(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The sum of ``function(piece, first, ...)``, `first` the number of its first record."""
        return function(self, 0, *arguments)

    def kept(self, most: int = 0) -> SolverData:
        """The same, computed now if it is read many times; see `Pieces.kept`."""
        return self

    @property
    def n_samples(self) -> int:
        return self.rows.n_samples

    @property
    def is_sparse(self) -> bool:
        """Whether the rows are stored as a sparse matrix."""
        return self.rows.is_sparse

    def sum_over(self, which: Indices, function: Callable[..., Any], *arguments: Any) -> Any:
        """The sum of ``function(piece, numbers, ...)`` over the records `which`, in order."""
        return function(self, which, *arguments)

    def part(self, which: Which, *, is_drawn: bool = False) -> SolverData:
        """The records of a range or of a list of numbers, perhaps a random batch (`Rows.part`)."""
        assert self.numbers is None  # which may be bounds that must not get lost
        return SolverData(self.rows.part(which, is_drawn=is_drawn), self.y[which])

    @staticmethod
    def joined(parts: Sequence[SolverData]) -> SolverData:
        """The records of several pieces, one after the other."""
        if len(parts) == 1:
            return parts[0]
        first = parts[0].rows
        arrays: dict[str, Any] = {
            name: np.concatenate([getattr(part.rows, name) for part in parts])
            for name in _OF_RECORDS
            if getattr(first, name) is not None
        }
        X: Any = [part.rows.X for part in parts]
        X = sparse.vstack(X, format="csr") if first.is_sparse else np.concatenate(X)
        rows = replace(first, X=X, **arrays)
        return SolverData(rows, np.concatenate([part.y for part in parts]))

    def in_order(self, which: Which, size: int) -> Iterator[SolverData]:
        """Those records in the memory of this process, in that order, `size` at a time."""
        if isinstance(which, slice):
            yield from map(self.part, slices(which, size))
        else:
            yield from (self.part(which[part]) for part in slices(which.size, size))

    def reweighted(self, class_weight: Array) -> SolverData:
        """The records, their weights times those of their classes."""
        y = self.y
        weights = class_weight[y.argmax(axis=1) if y.ndim == 2 else (y > 0) * 1]
        weights = times_rows(weights, self.rows.sample_weight)
        return SolverData(replace(self.rows, sample_weight=weights), y)


def gradient_sum(data: SolverData, coef: Array, terms: Terms) -> Array:
    """See `Rows.gradient_sum`."""
    return data.rows.gradient_sum(coef, data.y, terms)


# ------------------------------------------------------------ pieces of sums, their errors, threads

UNIT_ROUNDOFF = 2.0**-53
_CHUNK_BYTES = 2**20  # a chunk stays in the cache between its two products
_DOUBLINGS = 128  # of the number of pieces
BLOCK_ROWS = 65536  # a block is summed by one product
# A public number of rows: the number of stored values in a piece depends on private data.
_SPARSE_PIECE = 8192

T = TypeVar("T")


def chunk_rows(n_samples: int, n_features: int) -> int:
    """Rows per chunk; public facts only, since the bound on the summation error uses it."""
    fitting = _CHUNK_BYTES // (8 * max(1, n_features))
    return int(max(1, min(n_samples, max(256, min(fitting, BLOCK_ROWS)))))


def piece_rows(n_samples: int, n_features: int, is_sparse: bool) -> int:
    """Rows that a single pass takes at a time: few enough for the cache if dense."""
    return _SPARSE_PIECE if is_sparse else chunk_rows(n_samples, n_features)


def gamma(k: float) -> float:
    r""":math:`\gamma_k = k u / (1 - k u)`, the relative error of k roundings, for k u up to 1/2."""
    if not k * UNIT_ROUNDOFF <= 0.5:  # near 1 it says nothing; NaN must not pass
        raise ValueError(f"sums of {k:.3g} numbers have no bound on their float error")
    return k * UNIT_ROUNDOFF / (1 - k * UNIT_ROUNDOFF)


def sum_over_records(values: Array) -> Any:
    """Sums of the columns, or of a vector, each in blocks: over rows numpy adds one by one."""
    return np.ascontiguousarray(values.T).sum(axis=-1)


def place_counts(values: Array, present: Flags, grid: Array) -> Array:
    """Counts of the values of present records by interval that ends on a grid, and beyond it."""
    from .._kernels.products import count_places

    values, filled = np.ascontiguousarray(values), np.full(2 ** grid.size.bit_length() - 1, np.inf)
    filled[: grid.size] = grid

    def counted(part: slice) -> Array:
        counts = np.zeros(grid.size + 1)
        count_places(values[part], present[part], filled, counts)
        return counts

    tasks = slices(values.size, BLOCK_ROWS)
    return np.asarray(sum_on_threads(counted, tasks, np.zeros(grid.size + 1), uses_blas=False))


def norm_error(n_columns: int) -> float:
    """Bound on the relative error of the squared norm of a row, centred or not, in any order."""
    # each of its sums errs by at most (d + 4) u times the sum of the absolute values
    return 4 * (n_columns + 8) * UNIT_ROUNDOFF


def summation_error(n_samples: int, n_features: int) -> float:
    r"""Relative error of a chunked float64 mean over the records.

    A sum of m terms in any order errs by at most :math:`\gamma_{m}` times the sum of
    their absolute values, :math:`\gamma_k = k u / (1 - k u)`, :math:`u = 2^{-53}`; the
    chunks' totals, which threads add up in groups, add their number and 1 to m, and forming each
    term and dividing adds 5. Pieces of a table elsewhere (`pieces`) have sums of their own, which
    are added pairwise: once for each doubling of their number (doc/privacy, section 2.5).
    """
    chunk, block = chunk_rows(n_samples, n_features), min(n_samples, BLOCK_ROWS)
    k = max(chunk + math.ceil(n_samples / chunk), block + math.ceil(n_samples / block))
    return gamma(k + 6 + _DOUBLINGS)


def row_slices(x: Any) -> list[slice]:
    """The rows of a matrix, some at a time; see `chunk_rows`."""
    return slices(x.shape[0], chunk_rows(*x.shape))


def on_threads(function: Callable[[T], Any], tasks: Sequence[T], *, uses_blas: bool = True) -> None:
    """Call the function with each task, on as many threads as numba may use.

    BLAS is `blas_alone` meanwhile, for which a function that does not use it need not wait. Calls
    from within a task, and those of a second fit at the same time, do one task after the other.
    """

    def done(task: T) -> int:
        function(task)
        return 0

    sum_on_threads(done, tasks, uses_blas=uses_blas)


def sum_on_threads(
    function: Callable[[T], Any], tasks: Sequence[T], start: Any = 0.0, *, uses_blas: bool = True
) -> Any:
    """`start` plus what the function returns for each task, added in the order of the tasks."""
    n_threads = len(tasks)
    if n_threads > 1:  # the import takes longer than many a task
        from .._kernels.jit import number_of_threads

        n_threads = min(n_threads, number_of_threads())
    if n_threads < 2 or _alone.get() or not _turn.acquire(blocking=False):
        return functools.reduce(operator.add, map(function, tasks), start)
    settings: Any = np.geterr()  # which other threads do not share
    todo, total, n_added, changed = enumerate(tasks), start, 0, threading.Condition()
    held: dict[int, Any] = {}  # results of which one before is missing

    def work() -> None:
        nonlocal total, n_added
        try:
            with np.errstate(**settings):
                for k, task in todo:
                    result = function(task)
                    with changed:
                        held[k] = result
                        while n_added in held:
                            total, n_added = total + held.pop(n_added), n_added + 1
                        changed.notify_all()
                        changed.wait_for(lambda: len(held) < 2 * n_threads)
        except BaseException:
            with changed:  # no more tasks, and nobody is to wait
                deque(todo, maxlen=0)
                held.clear()
                changed.notify_all()
            raise

    try:
        with blas_alone() if uses_blas else nullcontext():
            others = [_pool(n_threads - 1).submit(work) for _ in range(n_threads - 1)]
            try:
                work()  # a thread that only waits would be in their way
            finally:
                for other in others:
                    other.result()
    finally:
        _turn.release()
    return total


_turn, _limit = threading.Lock(), threading.Lock()
_alone: ContextVar[bool] = ContextVar("alone", default=False)


# a block whose work stays on this thread, where others do the same for other records
alone = functools.partial(during, _alone, True)


@contextmanager
def blas_alone() -> Iterator[None]:
    """A block in which BLAS has one thread; its own would be in the way of ours, also afterwards.

    Set and lifted by the same thread, as BLAS libraries want it, and by one at a time.
    """
    if not _limit.acquire(blocking=False):
        yield
        return
    try:
        with _blas().limit(limits=1, user_api="blas"):
            yield
    finally:
        _limit.release()


_blas = functools.cache(ThreadpoolController)
_pool = functools.cache(ThreadPoolExecutor)  # by the number of threads


def _after_fork() -> None:
    """Threads do not survive a fork, nor does what they held."""
    global _turn, _limit
    _turn, _limit = threading.Lock(), threading.Lock()
    _pool.cache_clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
