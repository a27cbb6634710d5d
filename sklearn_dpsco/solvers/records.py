"""Records that solvers read: sums over them, parts and batches, and what is minimized on them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy import sparse

from .._kernels.arguments import Change, read_only
from .._types import Array, Flags, Indices, Which
from ..data.compressed import slices, value_parts, with_values
from ..data.rows import (
    Rows,
    Terms,
    chunk_rows,
    joined_rows,
    make_rows,
    norm_error,
    on_threads,
    sum_on_threads,
    times_rows,
)
from ..losses import clipped_derivative, clipped_to
from .base import Problem, SolverResult


class Piece:
    """Records in this process, of which functions make sums (`sum`) or other records (`map`).

    The functions depend on nothing else. So records may as well lie in pieces elsewhere:
    `data.pieces.Pieces` has the same methods, and calls the functions with each piece.
    """

    is_local: ClassVar[bool] = True

    def sum(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The sum over all pieces of the array that the function makes of each."""
        return function(self, *arguments)

    def sum_numbered(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The sum of ``function(piece, first, ...)``, `first` the number of its first record."""
        return function(self, 0, *arguments)

    def map(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What the function makes of each piece, which it leaves as it is."""
        return function(self, *arguments)

    def kept(self) -> Any:
        """The same, computed now if it is read many times; see `Pieces.kept`."""
        return self


@dataclass(frozen=True)
class SolverData(Piece):
    """Clipped and scaled data."""

    rows: Rows
    # In [-1, 1], of labels -1 and +1, of several classes +1 for the record's own; shape
    # (n_samples,), or (n_samples, n_outputs) if there are several.
    y: Array

    @property
    def n_samples(self) -> int:
        return self.rows.n_samples

    @property
    def is_sparse(self) -> bool:
        """Whether the rows are stored as a sparse matrix."""
        return sparse.issparse(self.rows.X)

    def sum_over(self, which: Indices, function: Callable[..., Any], *arguments: Any) -> Any:
        """The sum of ``function(piece, numbers, ...)`` over the records `which`, in order."""
        return function(self, which, *arguments)

    def part(self, which: Which, *, is_drawn: bool = False) -> SolverData:
        """The records of a range or of a list of numbers, perhaps a random batch (`Rows.part`)."""
        return SolverData(self.rows.part(which, is_drawn=is_drawn), self.y[which])

    @staticmethod
    def joined(parts: Sequence[SolverData]) -> SolverData:
        """The records of several pieces, one after the other."""
        y = np.concatenate([part.y for part in parts])
        return SolverData(joined_rows([part.rows for part in parts]), y)

    def in_order(self, which: Which, size: int) -> Iterator[SolverData]:
        """Those records in the memory of this process, in that order, `size` at a time."""
        numbers: Any = range(*which.indices(self.n_samples)) if isinstance(which, slice) else which
        for part in slices(len(numbers), size):
            some = numbers[part]
            yield self.part(slice(some.start, some.stop) if isinstance(some, range) else some)

    def reweighted(self, class_weight: Array) -> SolverData:
        """The records, their weights times those of their classes."""
        y = self.y
        weights = class_weight[y.argmax(axis=1) if y.ndim == 2 else (y > 0) * 1]
        weights = times_rows(weights, self.rows.sample_weight)
        return SolverData(replace(self.rows, sample_weight=weights), y)

    def row_major(self) -> SolverData:
        """The same records in a storage of which parts are cheap."""
        return SolverData(self.rows.row_major(), self.y)


@dataclass(frozen=True)
class Frame:
    """Units and offsets that were released, and the way back to plain rows.

    With the descent's coefficients w, the model predicts the target
    ``(y - target_center) / target_scale`` as ``offset + factor <[(x - center) / scale, 1], w>``.
    """

    offset: Any = 0.0  # the constant prediction that the descent corrects, for each output
    center: Array | None = None  # None stands for zeros
    scale: Array | None = None  # None stands for ones
    factor: float = 1.0
    target_center: Any = 0.0
    target_scale: Any = 1.0
    intercept_unit: float = 1.0  # in the place of the 1 in [(x - center) / scale, 1]
    class_weight: Array | None = None  # of balanced classes, in [0, 1], still to be multiplied
    mean_weight: float = 1.0  # of all classes, declared or balanced, by released frequencies
    outer: Frame | None = None  # of the units in which all this is stated

    def weighted(self, data: SolverData) -> SolverData:
        """The records, their weights times those of their classes if classes are balanced."""
        if self.class_weight is None:
            return data
        return data.map(SolverData.reweighted, self.class_weight)

    def units(self, problem: Problem) -> Array:
        """What the coordinates of centred rows are multiplied by, shape (size,)."""
        units = np.ones(problem.dimension)
        if self.scale is not None:
            units[: problem.n_features] /= self.scale
        units[problem.n_features :] *= self.intercept_unit
        return np.repeat(units, problem.n_outputs)

    def result(self, solution: Array, problem: Problem, n_iter: int) -> SolverResult:
        """The model for plain rows, from the descent's coefficients of shape (size,)."""
        solution = (self.factor * solution).reshape(problem.shape).T
        coef, intercept = solution[..., : problem.n_features], self.offset
        if problem.fit_intercept:
            intercept = intercept + self.intercept_unit * solution[..., -1]
        coef, intercept = self.plain(coef, intercept)
        # a float, or an array over the outputs
        intercept = np.broadcast_to(intercept, (problem.n_outputs,))
        intercept = intercept if problem.n_outputs > 1 else float(intercept[0])
        return SolverResult(coef, intercept, max(1, n_iter), frame=self)

    def plain(self, coef: Array, intercept: Any) -> tuple[Array, Any]:
        """A model for (x - center) / scale as one for plain rows and targets."""
        if self.scale is not None:
            coef = coef / self.scale
        if self.center is not None:
            intercept = intercept - coef @ self.center
        coef = np.multiply(self.target_scale, coef.T).T
        intercept = self.target_center + self.target_scale * intercept
        return (coef, intercept) if self.outer is None else self.outer.plain(coef, intercept)


@dataclass(frozen=True)
class WithNumbers(Piece):
    """Records with numbers of each that were computed before."""

    data: SolverData
    numbers: Any

    @property
    def n_samples(self) -> int:
        return self.data.n_samples


class Users(NamedTuple):
    """Which rows are one user's."""

    of_rows: Indices  # the number of each row's user
    order: Indices  # rows, those of one user after those of the other
    starts: Indices  # where in this order those of each user begin
    ends: Indices
    present: Flags  # whether a row of theirs is not empty

    @classmethod
    def of(cls, rows: Rows) -> Users:
        """From the numbers of the rows' users."""
        if rows.users is None:
            raise ValueError("a plan for users of several rows needs to know whose each row is")
        of_rows = np.unique(rows.users, return_inverse=True)[1]
        order, ends = np.argsort(of_rows, kind="stable"), np.cumsum(np.bincount(of_rows))
        starts = np.append(0, ends[:-1])
        present = np.logical_or.reduceat(rows.present()[order], starts)
        return cls(of_rows, order, starts, ends, present)


@dataclass(frozen=True)
class Records:
    """Some of the records and the objective on them."""

    data: SolverData
    terms: Terms
    problem: Problem
    units: Any = 1.0  # by which `mean_over` multiplies the coordinates of the rows

    def part(self, which: Which) -> Records:
        """The records of a range or of a list of numbers."""
        return replace(self, data=self.data.part(which))

    def mean_gradient(self, coef: Array) -> Array:
        """At coefficients of shape (size,), and in that shape."""
        if self.data.n_samples == 0:
            return np.zeros(coef.size)
        total = self.data.sum(gradient_sum, coef.reshape(self.problem.shape), self.terms)
        return total.ravel() / self.data.n_samples

    def mean_over(
        self,
        which: Indices | None,
        coef: Array,
        before: Array | None = None,
        largest: float = np.inf,
        kept: float = 1.0,
    ) -> Array:
        """Mean of the gradients at `coef`, less `kept` times those at a point before, if any.

        The change of each record's derivative is clipped to `largest`, so that the sensitivity
        depends neither on the loss nor on float errors. Over the listed records, or all.
        """
        of_change = Change(0.0 if before is None else kept, largest), self.terms
        points = (coef, coef if before is None else before)
        points = tuple((self.units * point).reshape(self.problem.shape) for point in points)
        if which is None:
            total, n = self.data.sum(_change_sum, points, *of_change), self.data.n_samples
        else:
            which, n = np.sort(which), which.size  # rows in their order are read faster
            total = self.data.sum_over(which, _sum_of_some, points, *of_change)
        return self.units * (total / n)


def in_box(
    data: SolverData, center: Array, scale: Array, bound: float, dtype: Any = None
) -> SolverData:
    """A copy with features (x - center) / scale, clipped to [-bound, bound].

    CSR if sparse and uncentred, else dense and of this type, or that of dense features.
    """
    rows, is_sparse = data.rows.row_major(), data.is_sparse
    X: Any
    with np.errstate(over="ignore"):
        if is_sparse and not np.any(center):
            values = np.empty(rows.X.nnz)
            for part in value_parts(rows.X):
                scaled = rows.X.data[part] / scale[rows.X.indices[part]]
                values[part] = np.clip(scaled, -bound, bound)
            X = with_values(rows.X, values)
        else:
            X = np.empty(rows.X.shape, dtype or (np.float64 if is_sparse else rows.X.dtype))

            def fill(part: slice) -> None:
                X[part] = np.clip((rows.dense(part) - center) / scale, -bound, bound)

            on_threads(fill, slices(rows.n_samples, rows.chunk))
    made = make_rows(X, rows.has_intercept, rows.scale, rows.sample_weight)
    return SolverData(replace(made, users=rows.users), data.y)


def gradient_sum(data: SolverData, coef: Array, terms: Terms) -> Array:
    """See `Rows.gradient_sum`."""
    return data.rows.gradient_sum(coef, data.y, terms)


def user_gradients(
    data: SolverData, users: Users, unit: Array, point: Array, terms: Terms
) -> tuple[Array, Array]:
    """Sum of the users' gradients, those longer than ``terms.clip`` scaled down, and their norms.

    That of a user is the sum over the rows, whose derivatives are not clipped; norms are those of
    `unit` times it, rounded up. Tied classes, whose point is a vector, have a slope together, and
    an intercept each.
    """
    from .._kernels.products import shortened_user_sum

    rows, k = data.rows, point.size - 1
    is_tied = data.y.ndim > 1 and point.ndim == 1
    at = np.vstack((point[0] * np.eye(k), point[1:])) if is_tied else point
    z = times_rows(rows.product(at), rows.scale) + terms.offset
    r = times_rows(clipped_derivative(terms.loss, z, data.y, math.inf), rows.factor)
    x, r = rows.X, r.reshape(len(r), -1)
    if is_tied:
        x, r = read_only(np.column_stack(((r * x).sum(axis=1), r))), np.ones((len(r), 1))
    units = np.repeat(unit, point.size // len(unit))
    norms = np.full(users.starts.size, 1 + norm_error(units.size))  # by what they are rounded up

    def added(part: slice) -> Array:
        of_part = users.order, users.starts[part], users.ends[part], units, terms.clip, norms[part]
        return np.asarray(shortened_user_sum(x, r, *of_part))

    tasks = slices(norms.size, chunk_rows(norms.size, units.size))
    total = sum_on_threads(added, tasks, np.zeros(units.size), uses_blas=False)
    return np.asarray(total).reshape(point.shape), norms


def _change_sum(
    data: SolverData, points: tuple[Array, Array], change: Change, terms: Terms
) -> Array:
    """Sum of the gradients at one point, less `change.kept` times those at the other."""
    rows = data.rows

    def derivative(coef: Array) -> Array:
        z = times_rows(rows.centered_product(coef), rows.scale) + terms.offset
        return clipped_derivative(terms.loss, z, data.y, terms.clip)

    r = derivative(points[0])
    if change.kept > 0:
        r = clipped_to(r - change.kept * derivative(points[1]), change.largest)
    return rows.weighted_sum(times_rows(r, rows.factor)).ravel()


def _sum_of_some(
    data: SolverData, which: Indices, points: tuple[Array, Array], change: Change, terms: Terms
) -> Array:
    """`_change_sum` over the listed records. Where it is not compiled, copies some at a time."""
    if points[0].ndim == 1:
        total = data.rows.change_sum(which, points, change, data.y, terms)
        if total is not None:
            return total
    total = np.zeros(points[0].size)
    for part in slices(which.size, chunk_rows(which.size, data.rows.n_columns)):
        total = total + _change_sum(data.part(which[part]), points, change, terms)
    return total
