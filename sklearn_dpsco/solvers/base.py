"""What every solver shares: the public facts, the plan, the data and the result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .._linear import Rows
from .._random import RandomStream
from ..accounting import Guarantee, PrivacyBudget
from ..geometry import Geometry
from ..losses import Loss

__all__ = ["Plan", "Problem", "Solver", "SolverData", "SolverResult"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Problem:
    """Public facts of a fit. Holds no array of the user's data.

    Attributes
    ----------
    n_samples, n_features : int
    loss : Loss
    feasible_set : Geometry or subclass of Geometry
        The set of (coef, intercept) in scaled units; a class leaves the radius to the
        plan.
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

    @property
    def dimension(self) -> int:
        """Number of coefficients, the intercept included."""
        return self.n_features + self.fit_intercept


@dataclass(frozen=True)
class Plan:
    """Everything that decides a run, made before any data is read.

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


@dataclass(frozen=True)
class SolverData:
    """Clipped and scaled data of one model.

    Attributes
    ----------
    rows : Rows
    y : ndarray of shape (n_samples,)
        In [-1, 1] (regression) or -1 and +1 (classification).
    """

    rows: Rows
    y: Array

    @property
    def mean_target(self) -> float:
        """Mean of y over the records; one that contributes nothing counts as 0."""
        scale = self.rows.scale
        y = self.y if scale is None else self.y * (scale > 0)
        return float(y.mean())


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
    """`plan` sees public facts only; `solve` does what the plan says."""

    def plan(self, problem: Problem, budget: PrivacyBudget) -> Plan: ...

    def solve(self, data: SolverData, plan: Any, stream: RandomStream) -> SolverResult: ...
