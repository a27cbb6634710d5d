"""Some of the records with what is minimized on them, for solvers that read parts of a table."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..data.rows import Change, Objective, Rows, times_rows
from ..data.summation import chunk_rows
from ..data.threads import slices
from ..losses import clipped_derivative, clipped_to
from .base import Problem

__all__ = ["Records"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Records:
    """Some of the records and the objective on them."""

    rows: Rows
    objective: Objective
    problem: Problem

    def take(self, which: slice | NDArray[np.intp], *, is_drawn: bool = False) -> Records:
        """The records of a range or of a list of numbers, which may be a random batch."""
        y, offset, loss, clip = self.objective
        rows = self.rows.drawn(which) if is_drawn else self.rows.part(which)  # type: ignore[arg-type]
        return Records(rows, Objective(y[which], offset, loss, clip), self.problem)

    def mean_over(
        self,
        which: NDArray[np.intp],
        coef: Array,
        before: Array | None = None,
        largest: float = np.inf,
        kept: float = 1.0,
    ) -> Array:
        """`mean_change` over the listed records, or with no point before the mean gradient.

        Where it is not compiled, copies some of them at a time.
        """
        which = np.sort(which)  # rows in their order are read faster
        if coef.size == self.rows.dimension:
            change = Change(0.0 if before is None else kept, largest)
            points = coef, coef if before is None else before
            total = self.rows.change_sum(which, points, change, self.objective)
            if total is not None:
                return total / which.size

        def added(part: slice) -> Array:
            return self.take(which[part])._sum(coef, before, largest, kept)

        parts = slices(which.size, chunk_rows(which.size, self.rows.n_columns))
        return sum(map(added, parts), np.zeros(coef.size)) / which.size

    def mean_gradient(self, coef: Array) -> Array:
        """At coefficients of shape (size,), and in that shape."""
        if self.rows.n_samples == 0:
            return np.zeros(coef.size)
        return self.rows.mean_gradient(self.problem.matrix(coef), self.objective).ravel()

    def derivative(self, coef: Array) -> Array:
        """Clipped derivative at every record, without the record's `factor`."""
        y, offset, loss, clip = self.objective
        rows, coef = self.rows, self.problem.matrix(coef)
        z = rows.product(coef)
        if rows.center is not None:
            z = z - rows.center @ coef[: rows.n_columns]
        return clipped_derivative(loss, times_rows(z, rows.scale) + offset, y, clip)

    def mean_change(self, coef: Array, before: Array, largest: float, kept: float = 1.0) -> Array:
        """Mean of the gradients at `coef`, less `kept` times those at `before`.

        The change of each record's derivative is clipped to `largest`, so that the sensitivity
        depends neither on the loss nor on float errors.
        """
        return self._sum(coef, before, largest, kept) / self.rows.n_samples

    def _sum(self, coef: Array, before: Array | None, largest: float, kept: float) -> Array:
        """Sum of the gradients at `coef`, less `kept` times those at `before`."""
        change = self.derivative(coef)
        if before is not None:
            change = clipped_to(change - kept * self.derivative(before), largest)
        return self.rows.weighted_sum(times_rows(change, self.rows.factor)).ravel()
