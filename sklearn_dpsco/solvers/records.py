"""What is minimized on records, on all or on batches of them, and the gradients of their users."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from .._kernels.arguments import read_only
from .._types import Array, Flags, Indices, Which
from ..data.compressed import slices, value_parts, with_values
from ..data.rows import (
    Rows,
    SolverData,
    Terms,
    alone,
    chunk_rows,
    gradient_sum,
    norm_error,
    on_threads,
    sum_on_threads,
    times_rows,
)
from ..losses import clipped_derivative, clipped_to
from ..randomness.subsets import RandomBatches
from .base import Problem
from .statistics import tied_point


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

    def mean_gradient(
        self, coef: Array, batches: RandomBatches | None = None, stream: Any = None
    ) -> Array:
        """At coefficients of shape (size,), and in that shape; over all, or over a fresh batch."""
        data = self.data
        if batches is not None:
            data = data.part(batches.draw(stream), is_drawn=True)
        if data.n_samples == 0:
            return np.zeros(coef.size)
        total = data.sum(gradient_sum, coef.reshape(self.problem.shape), self.terms)
        mean = total.ravel() / data.n_samples
        return mean if batches is None else mean * (data.n_samples / batches.batch_size)

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
        points = [coef] if before is None or kept == 0 else [coef, before]
        points = [(self.units * point).reshape(self.problem.shape) for point in points]
        facts = points, kept, largest, self.terms
        if which is None:
            total, n = self.data.sum(_change_sum, *facts), self.data.n_samples
        else:
            which, n = np.sort(which), which.size  # rows in their order are read faster
            total = self.data.sum_over(which, _sum_of_some, *facts)
        return self.units * (total / n)


def in_box(
    data: SolverData, center: Array, scale: Array, bound: float, dtype: Any = None
) -> SolverData:
    """A copy with features (x - center) / scale, clipped to [-bound, bound].

    CSR if sparse and uncentred, else dense and of this type, or that of dense features.
    """
    rows, is_sparse = data.rows, data.is_sparse
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
    made = Rows(X, rows.has_intercept, rows.scale, rows.sample_weight)
    return SolverData(replace(made, users=rows.users), data.y)


def user_gradients(
    data: SolverData, users: Users, unit: Array, point: Array, terms: Terms
) -> tuple[Array, Array]:
    """Sum of the users' gradients, those longer than ``terms.clip`` scaled down, and their norms.

    That of a user is the sum over the rows, whose derivatives are not clipped; norms are those of
    `unit` times it, rounded up. Tied classes, whose point is a vector, have a slope together, and
    an intercept each.
    """
    from .._kernels.products import shortened_user_sum

    rows, k = data.rows, data.rows.n_columns
    is_tied = data.y.ndim > 1 and point.ndim == 1
    at = tied_point(point, k) if is_tied else point
    z = times_rows(rows.product(at), rows.scale) + terms.offset
    r = times_rows(clipped_derivative(terms.loss, z, data.y, math.inf), rows.factor)
    x, r = rows.X, r.reshape(len(r), -1)
    if is_tied:
        x = read_only(np.column_stack(((r * x).sum(axis=1), r[:, : point.size - 1])))
        r = np.ones((len(r), 1))
    units = np.repeat(unit, point.size // len(unit))
    norms = np.full(users.starts.size, 1 + norm_error(units.size))  # by what they are rounded up

    def added(part: slice) -> Array:
        of_part = users.order, users.starts[part], users.ends[part], units, terms.clip, norms[part]
        return np.asarray(shortened_user_sum(x, r, *of_part))

    tasks = slices(norms.size, chunk_rows(norms.size, units.size))
    total = sum_on_threads(added, tasks, np.zeros(units.size), uses_blas=False)
    return np.asarray(total).reshape(point.shape), norms


def _change_sum(
    data: SolverData, points: list[Array], kept: float, largest: float, terms: Terms
) -> Array:
    """Sum of the gradients at the first point, less `kept` times those at the other, if any."""
    rows = data.rows

    def derivative(coef: Array) -> Array:
        z = times_rows(rows.centered_product(coef), rows.scale) + terms.offset
        return clipped_derivative(terms.loss, z, data.y, terms.clip)

    r = derivative(points[0])
    for before in points[1:]:
        r = clipped_to(r - kept * derivative(before), largest)
    return rows.weighted_sum(times_rows(r, rows.factor)).ravel()


def _sum_of_some(
    data: SolverData, which: Indices, points: list[Array], kept: float, largest: float, terms: Terms
) -> Array:
    """`_change_sum` over copies of the listed records, some at a time."""

    def added(part: slice) -> Array:
        return _change_sum(data.part(which[part]), points, kept, largest, terms)

    tasks = slices(which.size, chunk_rows(which.size, data.rows.n_columns))
    # never two calls of a user's loss at once
    with alone() if terms.slope is None else nullcontext():
        return np.asarray(sum_on_threads(added, tasks, np.zeros(points[0].size)))
