"""Some of the records with what is minimized on them, for solvers that read parts of a table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data.rows import Change, Terms, times_rows
from ..data.summation import chunk_rows
from ..data.threads import slices
from ..losses import clipped_derivative, clipped_to
from .base import Piece, Problem, SolverData, Which

__all__ = ["Records", "WithNumbers", "gradient_sum"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class WithNumbers(Piece):
    """Records with numbers of each that were computed before."""

    data: SolverData
    numbers: Any

    @property
    def n_samples(self) -> int:
        return self.data.n_samples


@dataclass(frozen=True)
class Records:
    """Some of the records and the objective on them."""

    data: SolverData
    terms: Terms
    problem: Problem

    @property
    def n_samples(self) -> int:
        return self.data.n_samples

    def part(self, which: Which) -> Records:
        """The records of a range or of a list of numbers."""
        return replace(self, data=self.data.part(which))

    def drawn(self, which: NDArray[np.intp]) -> Records:
        """A random batch."""
        return replace(self, data=self.data.drawn(which))

    def in_order(self, which: Which, size: int) -> Iterator[Records]:
        """Those records in the memory of this process, in that order, `size` at a time."""
        return (replace(self, data=part) for part in self.data.in_order(which, size))

    def mean_gradient(self, coef: Array) -> Array:
        """At coefficients of shape (size,), and in that shape."""
        if self.n_samples == 0:
            return np.zeros(coef.size)
        total = self.data.sum(gradient_sum, self.problem.matrix(coef), self.terms)
        return total.ravel() / self.n_samples

    def mean_change(self, coef: Array, before: Array, largest: float, kept: float = 1.0) -> Array:
        """Mean of the gradients at `coef`, less `kept` times those at `before`.

        The change of each record's derivative is clipped to `largest`, so that the sensitivity
        depends neither on the loss nor on float errors.
        """
        points = self.problem.matrix(coef), self.problem.matrix(before)
        change = Change(kept, largest)
        return self.data.sum(_change_sum, points, change, self.terms) / self.n_samples

    def mean_over(
        self,
        which: NDArray[np.intp],
        coef: Array,
        before: Array | None = None,
        largest: float = np.inf,
        kept: float = 1.0,
    ) -> Array:
        """`mean_change` over the listed records, or with no point before the mean gradient."""
        change = Change(0.0 if before is None else kept, largest)
        points = self.problem.matrix(coef), self.problem.matrix(coef if before is None else before)
        which = np.sort(which)  # rows in their order are read faster
        return self.data.sum_over(which, _sum_of_some, points, change, self.terms) / which.size


def gradient_sum(data: SolverData, coef: Array, terms: Terms) -> Array:
    """See `Rows.gradient_sum`."""
    return data.rows.gradient_sum(coef, data.objective(terms))


def _change_sum(
    data: SolverData, points: tuple[Array, Array], change: Change, terms: Terms
) -> Array:
    """Sum of the gradients at one point, less `change.kept` times those at the other."""
    rows = data.rows

    def derivative(coef: Array) -> Array:
        z = rows.product(coef)
        if rows.center is not None:
            z = z - rows.center @ coef[: rows.n_columns]
        z = times_rows(z, rows.scale) + terms.offset
        return clipped_derivative(terms.loss, z, data.y, terms.clip)

    r = derivative(points[0])
    if change.kept > 0:
        r = clipped_to(r - change.kept * derivative(points[1]), change.largest)
    return rows.weighted_sum(times_rows(r, rows.factor)).ravel()


def _sum_of_some(
    data: SolverData,
    which: NDArray[np.intp],
    points: tuple[Array, Array],
    change: Change,
    terms: Terms,
) -> Array:
    """`_change_sum` over the listed records. Where it is not compiled, copies some at a time."""
    if points[0].ndim == 1:
        total = data.rows.change_sum(which, points, change, data.objective(terms))
        if total is not None:
            return total
    total = np.zeros(points[0].size)
    for part in slices(which.size, chunk_rows(which.size, data.rows.n_columns)):
        total = total + _change_sum(data.part(which[part]), points, change, terms)
    return total
