"""The linear layer: rows [x, 1], their products with coefficients, and sums over records.

The intercept (a column of ones that is not stored, the last coordinate), the scale of the
rows and the storage of X are handled here alone; solvers see `Rows`. Sums over records are
cut into pieces as `summation` says.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from .._kernels.arguments import (
    MULTINOMIAL,
    Change,
    Compressed,
    Move,
    OfRecords,
    RowForm,
    Slope,
)
from ..losses import (
    Envelope,
    Loss,
    Multinomial,
    base_loss,
    clipped_derivative,
    clipped_rows,
    kernel_id,
)
from .compressed import row_range, stored_columns, value_parts
from .summation import BLOCK_ROWS, UNIT_ROUNDOFF, chunk_rows, norm_error, sum_over_records
from .threads import on_threads, slices, sum_on_threads, task_rows

__all__ = ["Change", "Move", "Objective", "Rows", "Terms", "joined_rows", "make_rows", "times_rows"]

Array = NDArray[np.float64]


_NONE = np.empty(0)  # in the place of factors that are all 1, and of bounds


class Terms(NamedTuple):
    """What is minimized, but for the targets: the mean of l(offset + prediction, y).

    Attributes
    ----------
    offset : float or ndarray of shape (K,)
        A constant outside the linear model.
    loss : Loss
    clip : float
        Bound on the l2 norm of a record's derivatives.
    """

    offset: Any
    loss: Loss
    clip: float

    @property
    def slope(self) -> Slope | None:
        """The derivative as compiled kernels take it; None for a loss that they do not know.

        Of a single output.
        """
        known = self._known(self.loss)
        return None if known is None else known._replace(offset=self.offset)

    @property
    def joint_slope(self) -> Slope | None:
        """The same of any number of outputs, without the offset."""
        if isinstance(self.loss, Multinomial):
            return Slope(MULTINOMIAL, 0.0, self.clip, 0.0)
        return self._known(base_loss(self.loss))

    def _known(self, loss: Loss) -> Slope | None:
        """Of a single output, without the offset."""
        if isinstance(loss, Envelope) and loss.is_closed_form:
            base, beta = loss.base, loss.beta
        else:
            base, beta = loss, math.inf
        loss_id = kernel_id(base)
        if loss_id is None:
            return None
        return Slope(loss_id, base.kernel_parameter, self.clip, 0.0, beta)


class Objective(NamedTuple):
    """`Terms` with the targets, of shape (n_samples,), or (n_samples, K) for K outputs."""

    y: Array
    offset: Any
    loss: Loss
    clip: float

    @property
    def slope(self) -> Slope | None:
        """See `Terms.slope`."""
        return Terms(*self[1:]).slope

    @property
    def joint_slope(self) -> Slope | None:
        """See `Terms.joint_slope`."""
        return Terms(*self[1:]).joint_slope


class Rows:
    """Rows ``scale_i * [x_i - center, 1]`` of a matrix, and sums over them.

    The centre is never subtracted from the stored values: a model on centred rows is one
    on plain rows with another intercept.

    Coefficients and gradients of K > 1 outputs are matrices of shape (dimension, K), with one
    product for all of them.

    Parameters
    ----------
    X : ndarray in C order, CSR or CSC matrix of shape (n, d)
        Scaled to [-1, 1] in every coordinate; float64 or float32. Indices of either type of
        integers. A column is added to predictions (`gradient_sum_after_move`) at the cost of its
        stored values in CSC, of n in dense, and in CSR of a look through all stored values.
    has_intercept : bool
        Whether the rows have a last coordinate of ones.
    scale : ndarray of shape (n,) or None
        Factor in [0, 1] on each row, 0 for a record that contributes nothing; None for
        ones.
    center : ndarray of shape (d,) or None
        None for zeros. Needs an intercept.
    sample_weight : ndarray of shape (n,) or None
        Factor in [0, 1] on each record's derivative, beside the scale: unlike the scale, it is
        in no prediction. None for ones.
    """

    def __init__(
        self,
        X: Any,
        has_intercept: bool,
        scale: Array | None = None,
        center: Array | None = None,
        sample_weight: Array | None = None,
    ) -> None:
        self.X = X
        self.has_intercept = has_intercept
        self.scale = scale
        self.center = center
        self.sample_weight = sample_weight
        self.n_samples, self.n_columns = X.shape
        self.chunk = chunk_rows(self.n_samples, self.n_columns)

    @property
    def dimension(self) -> int:
        """Number of coordinates of a row, the intercept's included."""
        return self.n_columns + self.has_intercept

    def scales(self) -> Array:
        """The scale of every row, shape (n,)."""
        return self._ones if self.scale is None else self.scale

    def sample_weights(self) -> Array:
        """The weight of every record, shape (n,)."""
        return self._ones if self.sample_weight is None else self.sample_weight

    @property
    def factor(self) -> Array | None:
        """What each clipped derivative is multiplied by: scale times weight; None for ones."""
        if self.sample_weight is None:
            return self.scale
        return self._weighted_scale

    def factors(self) -> Array:
        """`factor`, shape (n,); the array of `scales` itself without weights."""
        return self.scales() if self.sample_weight is None else self._weighted_scale

    @functools.cached_property
    def _weighted_scale(self) -> Array:
        return times_rows(self.sample_weights(), self.scale)

    @functools.cached_property
    def _ones(self) -> Array:
        return np.ones(self.n_samples)

    def without_empty(self, values: Array) -> Array:
        """Numbers of the records, with 0 for each record that contributes nothing."""
        return times_rows(values, None if self.scale is None else self.present())

    def present(self) -> NDArray[np.bool_]:
        """Flags the records that contribute something, shape (n,)."""
        return self.scales() > 0

    def dense(self, which: slice) -> Array:
        """The features of a range of rows, unscaled and uncentred, in float64."""
        X = self.X[which]
        return np.asarray(X.toarray() if sparse.issparse(X) else X, dtype=np.float64)

    def norms(self, unit: Array | None = None) -> Array:
        """l2 norms of the unscaled rows [unit (x - center), 1], shape (n,), rounded up.

        `unit` has shape (d,); None stands for ones.
        """
        raise NotImplementedError

    def product(self, coef: Array) -> Array:
        """<[x_i, 1], coef> for every row, shape (n,), without scale and centre."""
        if not np.any(coef):
            return np.zeros((self.n_samples, *coef.shape[1:]))
        intercept = coef[self.n_columns] if self.has_intercept else 0.0
        return self._product(coef[: self.n_columns]) + intercept

    def centered(self, center: Array | None) -> Rows:
        """The same rows about another centre."""
        return type(self)(self.X, self.has_intercept, self.scale, center, self.sample_weight)

    def with_norm_bound(self, bound: float) -> Rows:
        """The same rows, those longer than `bound` in l2 norm scaled down to it."""
        bound *= 1 - 8 * UNIT_ROUNDOFF  # the divisions and products to come
        shrink = bound / np.maximum(self.norms(), bound)
        scale = shrink if self.scale is None else self.scale * shrink
        return type(self)(self.X, self.has_intercept, scale, self.center, self.sample_weight)

    def reweighted(self, factors: Array) -> Rows:
        """The same rows, their weights times the factors in [0, 1]."""
        weight = times_rows(factors, self.sample_weight)
        return type(self)(self.X, self.has_intercept, self.scale, self.center, weight)

    def row_major(self) -> Rows:
        """The same rows in a storage of which parts are cheap."""
        return self

    def part(self, which: slice | NDArray[np.intp]) -> Rows:
        """The rows of a range or of a list of numbers."""
        scale = None if self.scale is None else self.scale[which]
        weight = None if self.sample_weight is None else self.sample_weight[which]
        return type(self)(self._taken(which), self.has_intercept, scale, self.center, weight)

    def drawn(self, which: NDArray[np.intp]) -> Rows:
        """The rows of a random batch, whose predictions do not depend on the batch."""
        return self.part(which)

    def clipped_gradient_sum(self, coef: Array, objective: Objective, bound: float) -> Array:
        r"""Sum of :math:`s_i l'(z_i, y_i) [x_i - m, 1]`, :math:`z_i = b + <[x_i - m, 1], w>`.

        :math:`s_i` is the record's `factor` times min(1, bound / norm of the row). Unlike in
        `gradient_sum`, the prediction is that of the row before it is scaled down: this is
        the gradient of a weighted mean of losses.

        Parameters
        ----------
        coef : ndarray of shape (dimension,) or (dimension, K)
            w, the intercept last.
        objective : Objective
            l, its clip, y and the offset b.
        bound : float
            On the l2 norm of a scaled row.

        Returns
        -------
        ndarray of the shape of `coef`
        """
        d, slope = self.n_columns, objective.slope
        compiled = None if slope is None else self._gradient_sum()
        if compiled is None:
            y, offset, loss, clip = objective
            z = self.product(coef) + offset
            if self.center is not None:
                z -= self.center @ coef[:d]
            r = clipped_derivative(loss, z, y, clip)
            return self.weighted_sum(times_rows(r, self.with_norm_bound(bound).factor))
        kernel, X = compiled
        center = np.zeros(d) if self.center is None else self.center
        bound *= 1 - 8 * UNIT_ROUNDOFF
        form = RowForm(center, float(self.has_intercept), bound, norm_error(d))
        total, point = np.zeros(d + 1), np.append(coef, np.zeros(d + 1 - coef.size))
        kernel(X, self.factors(), objective.y, form, slope, point, total)
        return total[: self.dimension]

    def weighted_sum(self, weights: Array) -> Array:
        """Sum of weights_i [x_i - m, 1] over the records, without the scale.

        Weights of shape (n,) give shape (dimension,), those of shape (n, K) (dimension, K).
        """
        return self._centered(self._transposed_product(weights))

    def _centered(self, total: Array) -> Array:
        """A sum over rows [x, 1] as that over rows [x - m, 1], in place."""
        if self.center is not None:
            total[: self.n_columns] -= np.multiply.outer(self.center, total[self.n_columns])
        return total

    def row_sum(self) -> Array:
        """Sum of scale_i * x_i over the records, without the centre, shape (d,)."""
        return self._transposed_product(self.scales())[: self.n_columns]

    def gradient_sum(self, coef: Array, objective: Objective, bounds: Array | None = None) -> Array:
        r"""Sum of :math:`v_i l'(z_i, y_i) s_i [x_i - m, 1]`, :math:`v_i` the record's weight.

        :math:`z_i = b + s_i <[x_i - m, 1], w>`, :math:`s_i` the row's scale.

        Parameters
        ----------
        coef : ndarray of shape (dimension,) or (dimension, K)
            w, the intercept last.
        objective : Objective
            l, its clip, y and the offset b.
        bounds : ndarray of shape (n,) or None
            On the l2 norms of the records' derivatives, beside the clip.

        Returns
        -------
        ndarray of the shape of `coef`
        """
        return self._centered(self._gradient_sum_at(self._plain(coef), objective, bounds))

    def _plain(self, coef: Array) -> Array:
        """Coefficients for rows [x, 1] that give the same predictions."""
        if self.center is None:
            return coef
        plain = coef.copy()
        plain[self.n_columns] -= self.center @ coef[: self.n_columns]
        return plain

    def gradient_sum_after_move(self, product: Array, move: Move, objective: Objective) -> Array:
        """`gradient_sum` at the coefficients after a move towards a vertex.

        `product` holds <[x_i, 1], w> and is updated in place, which costs one column of
        X instead of a product with all of it. The vertex's coordinate counts the entries of a
        matrix of coefficients row by row.
        """
        product *= move.decay
        outputs = product.reshape(self.n_samples, -1)
        coordinate, output = divmod(move.coordinate, outputs.shape[1])
        if coordinate == self.n_columns:
            outputs[:, output] += move.amount
        else:
            self._add_column(outputs[:, output], coordinate, move.amount)
        r = self._derivative(product, slice(None), objective)
        return self._transposed_product(r)

    def change_sum(
        self, which: NDArray[np.intp], points: tuple[Array, Array], change: Change,
        objective: Objective,
    ) -> Array | None:  # fmt: skip
        """Sum over the listed rows, of the clipped change of each derivative times weight and row.

        None where it is not compiled.

        Parameters
        ----------
        which : ndarray of int
            In increasing order.
        points : two ndarrays of shape (dimension,)
            The coefficients, and those before.
        change : Change
        objective : Objective
        """
        return None

    def _derivative(
        self, product: Array, part: slice, objective: Objective, bounds: Array | None = None
    ) -> Array:
        """`factor` times the clipped derivative, for the rows of one part."""
        scale, factor = (None if a is None else a[part] for a in (self.scale, self.factor))
        y, offset, loss, clip = objective
        r = clipped_derivative(loss, times_rows(product, scale) + offset, y[part], clip)
        r = r if bounds is None else clipped_rows(r, bounds[part], 2)
        return times_rows(r, factor)

    def _gradient_sum(self) -> tuple[Callable[..., None], Any] | None:
        """The compiled `clipped_gradient_sum` and X as it takes it, if there is one."""
        return None

    def _gradient_sum_at(self, coef: Array, objective: Objective, bounds: Array | None) -> Array:
        """`gradient_sum` without a centre."""
        raise NotImplementedError

    def _product(self, weights: Array) -> Array:
        """X @ weights in float64."""
        raise NotImplementedError

    def _add_column(self, product: Array, column: int, amount: float) -> None:
        """Add amount times a column of X to `product`."""
        raise NotImplementedError

    def _transposed_product(self, r: Array) -> Array:
        """Sum of r_i [x_i, 1] over the records, shape (dimension,) or (dimension, K)."""
        raise NotImplementedError

    def _taken(self, which: slice | NDArray[np.intp]) -> Any:
        """Rows of X."""
        return self.X[which]


class _DenseRows(Rows):
    def _taken(self, which: slice | NDArray[np.intp]) -> Any:
        # for few rows, `take` is twice as fast as an index
        return self.X[which] if isinstance(which, slice) else self.X.take(which, axis=0)

    def drawn(self, which: NDArray[np.intp]) -> Rows:
        taken = self.part(which)
        scale, center, weight = taken.scale, taken.center, taken.sample_weight
        return _DrawnRows(taken.X, taken.has_intercept, scale, center, weight)

    def norms(self, unit: Array | None = None) -> Array:
        from .._kernels.products import squared_norms

        squares = np.empty(self.n_samples)
        center = np.zeros(self.n_columns) if self.center is None else self.center

        def fill(part: slice) -> None:
            if unit is None:
                squared_norms(self.X[part], center, squares[part])
            else:
                squares[part] = (((self.dense(part) - center) * unit) ** 2).sum(axis=1)

        on_threads(fill, self._tasks())
        return np.sqrt(squares * (1 + norm_error(self.n_columns)) + self.has_intercept)

    def _predicted(self, block: Array, weights: Array) -> Array:
        return np.asarray(block @ weights)

    def _product(self, weights: Array) -> Array:
        out = np.empty((self.n_samples, *weights.shape[1:]))

        def fill(part: slice) -> None:
            out[part] = self._predicted(self.dense(part), weights)

        on_threads(fill, self._tasks())
        return out

    def _add_column(self, product: Array, column: int, amount: float) -> None:
        product += amount * np.asarray(self.X[:, column], dtype=np.float64)

    def _transposed_product(self, r: Array) -> Array:
        d = self.n_columns

        def added(part: slice) -> Array:
            total = np.empty((self.dimension, *r.shape[1:]))
            total[:d] = self.dense(part).T @ r[part]
            total[d:] = r[part].sum(axis=0)
            return total

        return sum_on_threads(added, self._tasks(), np.zeros((self.dimension, *r.shape[1:])))

    def _gradient_sum_at(self, coef: Array, objective: Objective, bounds: Array | None) -> Array:
        slope = objective.joint_slope
        if slope is None:
            return self._gradient_by_chunks(coef, objective, bounds)
        from .._kernels.gradient_sums import dense_gradient_at

        outputs = coef.reshape(self.dimension, -1)
        lines = np.zeros((outputs.shape[1], self.n_columns + 1))
        lines[:, : self.dimension] = outputs.T
        records = self._of_records(objective, bounds)
        point = lines, self._offsets(objective, len(lines)), slope
        total = self._sweep(lambda part: (dense_gradient_at, records.part(part), point), len(lines))
        return total.reshape(coef.shape)

    def gradient_sum_after_move(self, product: Array, move: Move, objective: Objective) -> Array:
        slope = objective.joint_slope
        if slope is None:
            return super().gradient_sum_after_move(product, move, objective)
        from .._kernels.gradient_sums import dense_gradient_after_move

        outputs = product.reshape(self.n_samples, -1)
        n_outputs = outputs.shape[1]
        coordinate, output = divmod(move.coordinate, n_outputs)
        records, move = self._of_records(objective, None), move._replace(coordinate=coordinate)
        point = move, output, self._offsets(objective, n_outputs), slope
        total = self._sweep(
            lambda part: (dense_gradient_after_move, records.part(part), (outputs[part], *point)),
            n_outputs,
        )
        return total.reshape(self.dimension, *product.shape[1:])

    def _of_records(self, objective: Objective, bounds: Array | None) -> OfRecords:
        y = np.ascontiguousarray(objective.y.reshape(self.n_samples, -1))
        factors = (self.scale, self.factor, bounds)
        return OfRecords(y, *(_NONE if array is None else array for array in factors))

    def _offsets(self, objective: Objective, n_outputs: int) -> Array:
        return np.array(np.broadcast_to(objective.offset, n_outputs), dtype=np.float64)

    def _sweep(
        self, call: Callable[[slice], tuple[Callable[..., None], OfRecords, tuple[Any, ...]]],
        n_outputs: int,
    ) -> Array:  # fmt: skip
        """One pass over the rows, shape (dimension, K).

        `call` gives the kernel for a part of them, and what it takes after the rows.
        """

        def added(part: slice) -> Array:
            total = np.zeros((n_outputs, self.n_columns + 1))
            kernel, records, point = call(part)
            kernel(self.X[part], records, *point, self.chunk, total)
            return total

        start = np.zeros((n_outputs, self.n_columns + 1))
        total = sum_on_threads(added, self._tasks(), start, uses_blas=False)
        return np.ascontiguousarray(total.T[: self.dimension])

    def _gradient_by_chunks(self, coef: Array, objective: Objective, bounds: Array | None) -> Array:
        """For a loss of the user's own."""
        d = self.n_columns
        weights, intercept = coef[:d], coef[d] if self.has_intercept else 0.0

        def added(part: slice) -> Array:
            total, block = np.empty(coef.shape), self.dense(part)
            z = self._predicted(block, weights) + intercept
            r = self._derivative(z, part, objective, bounds)
            total[:d] = block.T @ r
            total[d:] = r.sum(axis=0)
            return total

        tasks, start = slices(self.n_samples, self.chunk), np.zeros(coef.shape)
        # never two calls at once
        return sum(map(added, tasks), start)

    def change_sum(
        self, which: NDArray[np.intp], points: tuple[Array, Array], change: Change,
        objective: Objective,
    ) -> Array | None:  # fmt: skip
        slope = objective.slope
        if slope is None:
            return None
        from .._kernels.gradient_sums import dense_change_at

        d, factors = self.n_columns, (self.scales(), self.factors())
        points = self._plain(points[0]), self._plain(points[1])
        chunk = chunk_rows(which.size, d)

        def added(part: slice) -> Array:
            total = np.zeros(d + 1)
            total[d] = dense_change_at(
                self.X,
                which[part],
                *factors,
                objective.y,
                *points,
                change,
                slope,
                chunk,
                total[:d],
            )
            return total

        # rows that are far apart take longer: smaller tasks pay
        tasks = slices(which.size, 2 * chunk)
        total = sum_on_threads(added, tasks, np.zeros(d + 1), uses_blas=False)
        return self._centered(total[: self.dimension])

    def _tasks(self) -> list[slice]:
        return slices(self.n_samples, task_rows(self.n_columns, self.chunk))

    def _gradient_sum(self) -> tuple[Callable[..., None], Any]:
        from .._kernels.gradient_sums import dense_gradient_sum

        return dense_gradient_sum, self.X


class _DrawnRows(_DenseRows):
    """A random batch of dense rows.

    BLAS rounds a product by the place of its row, and other records have other places in the
    batches that an analysis compares. At a kink, a last bit may turn a derivative. (The compiled
    mean gradient does not.)
    """

    def _predicted(self, block: Array, weights: Array) -> Array:
        from .._kernels.products import row_products

        columns = np.ascontiguousarray(weights.reshape(weights.shape[0], -1).T)
        out = np.empty((columns.shape[0], block.shape[0]))
        for column, products in zip(columns, out, strict=True):
            row_products(block, column, products)
        return out.T.reshape(block.shape[0], *weights.shape[1:])


class _SparseRows(Rows):
    def norms(self, unit: Array | None = None) -> Array:
        weights = np.ones(self.n_columns) if unit is None else unit**2
        squares = self._squared_norms(weights)
        largest = squares
        if self.center is not None:
            weighted = weights * self.center
            size = float(weighted @ self.center)
            squares = squares - 2 * self._product(weighted) + size
            largest = (np.sqrt(largest) + math.sqrt(size)) ** 2
        error = norm_error(self.n_columns)
        return np.sqrt(np.maximum(squares, 0.0) + error * largest + self.has_intercept)

    def _squared_norms(self, weights: Array) -> Array:
        """Sums of weights_j x_ij^2 over the columns, shape (n,)."""
        raise NotImplementedError

    def _product(self, weights: Array) -> Array:
        if self.X.dtype == np.float64:
            return self.X @ weights
        # scipy would make a copy in float64
        from .._kernels.sparse_sums import csc_product, csr_product

        out = np.zeros((self.n_samples, *weights.shape[1:]))
        kernel = csr_product if self.X.format == "csr" else csc_product
        columns = (as_columns(a) for a in (weights, out))
        kernel(Compressed.of(self.X), *columns)
        return out

    def _gradient_sum_at(self, coef: Array, objective: Objective, bounds: Array | None) -> Array:
        r = self._derivative(self.product(coef), slice(None), objective, bounds)
        return self._transposed_product(r)

    def _transposed_product(self, r: Array) -> Array:
        total = np.zeros((self.dimension, *r.shape[1:]))
        outputs = total.reshape(self.dimension, -1)
        # scipy's product would sum a whole column in one go, beyond the stated error
        kernel, columns = self._product_kernel(), outputs[: self.n_columns]
        kernel(Compressed.of(self.X), as_columns(r), BLOCK_ROWS, columns)
        if self.has_intercept:
            total[self.n_columns] += sum_over_records(r)
        return total

    def _product_kernel(self) -> Callable[..., None]:
        """The compiled X^T r for the storage."""
        raise NotImplementedError


class _CSCRows(_SparseRows):
    def row_major(self) -> Rows:
        X, scale, weight = self.X.tocsr(), self.scale, self.sample_weight
        return _CSRRows(X, self.has_intercept, scale, self.center, weight)

    def _squared_norms(self, weights: Array) -> Array:
        out = np.zeros(self.n_samples)
        for part in value_parts(self.X):
            values = self.X.data[part].astype(np.float64)
            squares = weights[stored_columns(self.X, part)] * values**2
            np.add.at(out, self.X.indices[part], squares)
        return out

    def _add_column(self, product: Array, column: int, amount: float) -> None:
        span = slice(self.X.indptr[column], self.X.indptr[column + 1])
        product[self.X.indices[span]] += amount * self.X.data[span].astype(np.float64)

    def _product_kernel(self) -> Callable[..., None]:
        from .._kernels.sparse_sums import csc_transposed_product

        return csc_transposed_product


class _CSRRows(_SparseRows):
    def _taken(self, which: slice | NDArray[np.intp]) -> Any:
        return row_range(self.X, which) if isinstance(which, slice) else self.X[which]

    def _gradient_sum(self) -> tuple[Callable[..., None], Any]:
        from .._kernels.gradient_sums import csr_gradient_sum

        return csr_gradient_sum, Compressed.of(self.X)

    def _squared_norms(self, weights: Array) -> Array:
        from .._kernels.sparse_sums import row_norms

        return row_norms(Compressed.of(self.X), weights)

    def _gradient_sum_at(self, coef: Array, objective: Objective, bounds: Array | None) -> Array:
        slope = objective.slope
        if slope is None or bounds is not None:
            return super()._gradient_sum_at(coef, objective, bounds)
        from .._kernels.sparse_sums import gradient_at

        return self._sweep(gradient_at, objective.y, coef, slope)

    def gradient_sum_after_move(self, product: Array, move: Move, objective: Objective) -> Array:
        slope = objective.slope
        if slope is None:
            return super().gradient_sum_after_move(product, move, objective)
        from .._kernels.sparse_sums import gradient_after_move

        return self._sweep(gradient_after_move, objective.y, product, move, slope)

    def _sweep(self, kernel: Callable[..., float], y: Array, *point: Any) -> Array:
        """One pass over the rows that predicts, differentiates and adds up."""
        X, total = Compressed.of(self.X), np.zeros(self.n_columns)
        total_b = kernel(X, self.scales(), self.factors(), y, *point, BLOCK_ROWS, total)
        if self.has_intercept:
            total = np.append(total, total_b)
        return total

    def _add_column(self, product: Array, column: int, amount: float) -> None:
        stored = self.X[:, [column]].tocoo()
        product[stored.row] += amount * stored.data.astype(np.float64)

    def _product_kernel(self) -> Callable[..., None]:
        from .._kernels.sparse_sums import csr_transposed_product

        return csr_transposed_product


def as_columns(values: Array) -> Array:
    """Values of shape (n,) or (n, K) as a view of shape (n, 1) or (n, K), also of no records."""
    return values if values.ndim == 2 else values.reshape(values.size, 1)


def times_rows(values: Array, factors: Any) -> Array:
    """Values of shape (n,) or (n, K), those of each record times its factor; None for ones."""
    if factors is None:
        return values
    return values * (factors if values.ndim == 1 else factors[:, None])


def make_rows(
    X: Any, has_intercept: bool, scale: Array | None = None, sample_weight: Array | None = None
) -> Rows:
    """`Rows` of a dense array, copied unless it is in C order, or a canonical CSR or CSC matrix."""
    kinds = {"csr": _CSRRows, "csc": _CSCRows}
    if sparse.issparse(X):
        return kinds[X.format](X, has_intercept, scale, None, sample_weight)
    # kernels are compiled for one kind of table, whatever the one that was given: of a table that
    # is read-only, only the copy that one record may ask for could be written to
    X = np.ascontiguousarray(X).view()
    X.flags.writeable = False
    return _DenseRows(X, has_intercept, scale, None, sample_weight)


def joined_rows(parts: Sequence[Rows]) -> Rows:
    """The rows of several tables, one after the other; of a single one, its own."""
    first = parts[0]
    if len(parts) == 1:
        return first
    matrices = [part.X for part in parts]
    stacked = (
        np.concatenate
        if not sparse.issparse(first.X)
        else functools.partial(sparse.vstack, format=first.X.format)
    )
    scales = [part.scales() for part in parts]
    weights = [part.sample_weights() for part in parts]
    scale = None if first.scale is None else np.concatenate(scales)
    weight = None if first.sample_weight is None else np.concatenate(weights)
    return type(first)(stacked(matrices), first.has_intercept, scale, first.center, weight)
