"""What every solver shares: the public facts, the plan, the data and the result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..data.rows import Rows
from ..geometry import Geometry
from ..losses import Loss, check_loss
from ..mechanisms import Release
from ..privacy.budget import PrivacyBudget
from ..privacy.guarantee import Guarantee
from ..randomness.stream import RandomStream

__all__ = ["Part", "Plan", "Problem", "Solver", "SolverData", "SolverResult"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Problem:
    """Public facts of a fit. Holds no array of the user's data.

    Attributes
    ----------
    n_samples, n_features : int
    loss : Loss
        Tried out by `losses.check_loss` if it is a user's own.
    feasible_set : Geometry or subclass of Geometry
        The set of (coef, intercept) in scaled units; a class leaves the radius to the
        plan, and `Geometry` itself the kind of set as well.
    fit_intercept : bool
    n_models : int
        Models trained on the same records: the classes of one-vs-rest, else 1.
    """

    n_samples: int
    n_features: int
    loss: Loss
    feasible_set: Geometry | type[Geometry]
    fit_intercept: bool = True
    n_models: int = 1

    def __post_init__(self) -> None:
        check_loss(self.loss)

    @property
    def dimension(self) -> int:
        """Number of coefficients, the intercept included."""
        return self.n_features + self.fit_intercept


@dataclass(frozen=True)
class Part:
    """A part of a plan that holds mechanisms; `audit` searches its fields for them."""

    @property
    def releases(self) -> tuple[Release, ...]:
        """Its releases, as the plan's guarantee counts them."""
        raise NotImplementedError


@dataclass(frozen=True)
class Plan:
    """All that a run depends on besides the data; made before any data is read.

    Attributes
    ----------
    problem : Problem
    budget : PrivacyBudget
    solver : str
        Name of the method.
    max_iter : int
    guarantee : Guarantee
        The claim and every release, over all of the problem's models.
    """

    problem: Problem
    budget: PrivacyBudget
    solver: str
    max_iter: int
    guarantee: Guarantee

    def __str__(self) -> str:
        problem = self.problem
        return (
            f"solver {self.solver!r}, {self.max_iter} steps, "
            f"{problem.n_samples} x {problem.n_features}\n{self.guarantee}"
        )

    def release_units(self, rows: Rows, stream: RandomStream) -> Any:
        """Releases made once for all models of a fit; None if each model makes its own."""
        return None


@dataclass(frozen=True)
class SolverData:
    """Clipped and scaled data of one model.

    Attributes
    ----------
    rows : Rows
    y : ndarray of shape (n_samples,)
        In [-1, 1] (regression) or -1 and +1 (classification).
    units : object
        The result of `Plan.release_units` for these rows; None leaves it to `solve`.
    """

    rows: Rows
    y: Array
    units: Any = None

    @property
    def mean_target(self) -> float:
        """Mean of y over the records; one that contributes nothing counts as 0."""
        return float(self.rows.without_empty(self.y).mean())


@dataclass(frozen=True)
class SolverResult:
    """Private coefficients in scaled units.

    Attributes
    ----------
    coef : ndarray of shape (n_features,)
    intercept : float
    n_iter : int
    """

    coef: Array
    intercept: float
    n_iter: int


class Solver(Protocol):
    """Settings of a method, `None` for what is left to the plan."""

    def check(
        self, loss: Loss, feasible_set: Geometry | type[Geometry], budget: PrivacyBudget
    ) -> None:
        """Raise `ValueError` on what cannot work, however many records and features there are."""

    def plan(self, problem: Problem, budget: PrivacyBudget) -> Plan:
        """Everything that a run does, from public facts alone.

        Raises
        ------
        ValueError
            As `check`, and if the sizes of the problem do not go with the settings.
        """
        ...

    def solve(self, data: SolverData, plan: Any, stream: RandomStream) -> SolverResult:
        """Do what the plan says; all noise and all random choices come from `stream`."""
        ...
