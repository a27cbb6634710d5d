"""What every solver shares: the public facts, the plan, the data and the result."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from .._overview import Overview, Overviewed
from ..data.rows import Objective, Rows, Terms, joined_rows
from ..data.threads import slices
from ..geometry import Geometry
from ..losses import Loss, check_loss
from ..mechanisms import Release
from ..privacy.budget import PrivacyBudget
from ..privacy.guarantee import Guarantee
from ..randomness.stream import RandomStream

__all__ = ["Part", "Piece", "Plan", "Problem", "SolverData", "SolverResult"]

Array = NDArray[np.float64]
Which = slice | NDArray[np.intp]


@dataclass(frozen=True)
class Problem:
    """Public facts of a fit. Holds no array of the user's data.

    Attributes
    ----------
    n_samples, n_features : int
    loss : Loss
        Of one or several outputs. Tried out by `losses.check_loss` if it is a user's own.
    feasible_set : Geometry or subclass of Geometry
        The set of (coef, intercept) in scaled units, all outputs' together; a class leaves the
        radius to the plan, and `Geometry` itself the kind of set as well.
    fit_intercept : bool
    row_norm : float or None
        The largest l2 norm of a scaled row without the intercept's 1, as declared; None if there
        are only bounds of each column. Used in default rules, never in a sensitivity: rows in the
        box that are longer may occur.
    class_weight : tuple of float, "balanced" or None
        Factors in [0, 1] on the weights of each class's records, the largest 1, which the records'
        weights hold already; or to be made of the released frequencies. None for ones.
    nonnegative : bool
        Whether no scaled feature is negative, as the bounds tell. Of wide rows it decides on the
        means that are released and on what is made of them; no sensitivity depends on it.
    units : {"auto", "bounds", "learned"}
        Of features and targets, in which the solver works.
    """

    n_samples: int
    n_features: int
    loss: Loss
    feasible_set: Geometry | type[Geometry]
    fit_intercept: bool = True
    row_norm: float | None = None
    class_weight: tuple[float, ...] | str | None = None
    nonnegative: bool = False
    units: str = "auto"

    def __post_init__(self) -> None:
        check_loss(self.loss)

    @property
    def dimension(self) -> int:
        """Number of coefficients of an output, the intercept included."""
        return self.n_features + self.fit_intercept

    @property
    def longest_row(self) -> float:
        """The largest l2 norm of a row, the intercept's 1 included: declared, or of the box."""
        if self.row_norm is None:
            return math.sqrt(self.dimension)
        return min(math.hypot(self.row_norm, self.fit_intercept), math.sqrt(self.dimension))

    @property
    def n_outputs(self) -> int:
        """Number of predictions for a record: K classes (1 if K = 2), or targets."""
        return self.loss.n_outputs

    @property
    def has_frequencies(self) -> bool:
        """Whether targets are one of several classes, whose mean is their frequencies."""
        return self.n_outputs > 1 and self.loss.task == "classification"

    def target_norm(self, order: float) -> float:
        """Bound on the l1 or l2 norm of a record's targets: a unit vector, or each in [-1, 1]."""
        return 1.0 if self.has_frequencies else self.n_outputs ** (1 / order)

    @property
    def size(self) -> int:
        """Number of coefficients of all outputs."""
        return self.dimension * self.n_outputs

    def matrix(self, coef: Array) -> Array:
        """The coefficients, shape (size,), as `Rows` takes them: a matrix if there are outputs."""
        return coef if self.n_outputs == 1 else coef.reshape(self.dimension, self.n_outputs)


@dataclass(frozen=True)
class Part:
    """A part of a plan that holds mechanisms; `audit` searches its fields for them."""

    @property
    def releases(self) -> tuple[Release, ...]:
        """Its releases, as the plan's guarantee counts them."""
        raise NotImplementedError


@dataclass(frozen=True)
class Plan(Overviewed):
    """All that a run depends on besides the data; made before any data is read.

    Attributes
    ----------
    problem : Problem
    budget : PrivacyBudget
    solver : str
        Name of the method.
    max_iter : int
    guarantee : Guarantee
        The claim and every release.
    """

    problem: Problem
    budget: PrivacyBudget
    solver: str
    max_iter: int
    guarantee: Guarantee

    @property
    def bounded_set(self) -> Geometry | None:
        """The set in the units of the bounds that holds the coefficients, if there is one."""
        return None

    @property
    def n_steps(self) -> int:
        """How many steps `run` reports to `_progress.steps`."""
        return self.max_iter

    def run(self, data: SolverData, stream: RandomStream) -> SolverResult:
        """Do what the plan says; all noise and all random choices come from `stream`."""
        raise NotImplementedError

    def overview(self) -> Overview:
        """The solver and the sizes above what the guarantee shows."""
        sizes = f"{self.problem.n_samples} x {self.problem.n_features}"
        return self.guarantee.overview().below(
            f"solver {self.solver!r}, {self.max_iter} steps, {sizes}"
        )


class Piece:
    """Records in the memory of this process, of which functions make sums or other records.

    Solvers ask for sums over records (`sum`) and for other records (`map`) by functions that
    depend on nothing else. So records may as well lie in pieces elsewhere: `data.pieces.Pieces` has
    the same methods, and calls the functions with each piece.
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
    """Clipped and scaled data.

    Attributes
    ----------
    rows : Rows
    y : ndarray of shape (n_samples,), or (n_samples, n_outputs) if there are several
        In [-1, 1] (regression), or -1 and +1 (classification: of several classes, +1 for the
        record's own).
    """

    rows: Rows
    y: Array

    @property
    def n_samples(self) -> int:
        return self.rows.n_samples

    @property
    def is_sparse(self) -> bool:
        """Whether the rows are stored as a sparse matrix."""
        return sparse.issparse(self.rows.X)

    def objective(self, terms: Terms) -> Objective:
        """What is minimized on these records."""
        return Objective(self.y, *terms)

    def sum_over(
        self, which: NDArray[np.intp], function: Callable[..., Any], *arguments: Any
    ) -> Any:
        """The sum over pieces of ``function(piece, numbers, ...)`` for some of the records.

        `which` lists them, in increasing order.
        """
        return function(self, which, *arguments)

    def part(self, which: Which) -> SolverData:
        """The records of a range or of a list of numbers."""
        return SolverData(self.rows.part(which), self.y[which])

    def drawn(self, which: NDArray[np.intp]) -> SolverData:
        """A random batch; see `Rows.drawn`."""
        return SolverData(self.rows.drawn(which), self.y[which])

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

    def row_major(self) -> SolverData:
        """The same records in a storage of which parts are cheap."""
        return SolverData(self.rows.row_major(), self.y)


@dataclass(frozen=True)
class SolverResult:
    """Private coefficients in scaled units.

    Attributes
    ----------
    coef : ndarray of shape (n_features,), or (n_outputs, n_features) if there are several
    intercept : float, or ndarray of shape (n_outputs,)
    n_iter : int
    units : object
        What was released about the features, if anything; see the solver.
    frame : Frame or None
        The offset and the centre of the rows that the descent worked with.
    """

    coef: Array
    intercept: Any
    n_iter: int
    units: Any = None
    frame: Any = None
