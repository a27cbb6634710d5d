"""Some of the records with what is minimized on them, for solvers that read parts of a table."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..data.rows import Objective, Rows, times_rows
from ..data.summation import chunk_rows
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

    def take(self, which: slice | NDArray[np.intp]) -> Records:
        """The records of a range, or those of a random batch."""
        y, offset, loss, clip = self.objective
        rows = self.rows.part(which) if isinstance(which, slice) else self.rows.drawn(which)
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

        Copies some of them at a time.
        """
        which, total = np.sort(which), np.zeros(coef.size)  # rows in their order are read faster
        chunk = chunk_rows(which.size, self.rows.n_columns)
        for start in range(0, which.size, chunk):
            total += self.take(which[start : start + chunk])._sum(coef, before, largest, kept)
        return total / which.size

    def mean_gradient(self, coef: Array) -> Array:
        """At coefficients of shape (size,), and in that shape."""
        if self.rows.n_samples == 0:
            return np.zeros(coef.size)
        return self.rows.mean_gradient(self.problem.matrix(coef), self.objective).ravel()

    def derivative(self, coef: Array) -> Array:
        """Clipped derivative at every record, without the row's scale."""
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
        return self.rows.weighted_sum(times_rows(change, self.rows.scale)).ravel()
