"""Pairs of tables that differ in one record."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from .._checks import check_choice, check_int
from ..data.rows import make_rows
from ..privacy.budget import RELATIONS
from ..solvers.base import Plan, Problem, SolverData

__all__ = ["Pair", "check_pairs", "neighbours"]

Pair = tuple[SolverData, SolverData]


def check_pairs(plan: Plan, pairs: list[Pair]) -> None:
    shape = plan.problem.n_samples, plan.problem.n_features
    for data in (side for pair in pairs for side in pair):
        if not isinstance(data, SolverData):
            raise ValueError(f"tables must be SolverData, got {type(data).__name__}")
        if (data.rows.n_samples, data.rows.n_columns) != shape or data.y.shape != shape[:1]:
            raise ValueError(f"tables must have the plan's shape {shape}")


def neighbours(
    problem: Problem, relation: str, n_pairs: int = 24, *, random_state: int = 0
) -> list[Pair]:
    """Pairs of tables that differ in one record, which has extreme values.

    Its features are at a corner of the box, at the centre or on one axis, its target at
    an end of the interval. Under "zero-out" one table has a record of scale 0 in its
    place. Dense, CSR and CSC storage alternate.

    Parameters
    ----------
    problem : Problem
    relation : {"replace-one", "zero-out"}
    n_pairs : int, default=24
    random_state : int, default=0

    Returns
    -------
    list of (SolverData, SolverData)
    """
    check_choice("relation", relation, RELATIONS)
    check_int("n_pairs", n_pairs, low=1)
    rng = np.random.default_rng(check_int("random_state", random_state, low=0))
    storages = (np.ascontiguousarray, sparse.csr_array, sparse.csc_array)
    return [
        _neighbours(problem, relation, storages[k % len(storages)], rng) for k in range(n_pairs)
    ]


def _neighbours(problem: Problem, relation: str, storage: Any, rng: Any) -> Pair:
    n, d = problem.n_samples, problem.n_features
    X = rng.choice([-1.0, -0.2, 0.0, 0.5, 1.0], (n, d))
    is_regression = problem.loss.task == "regression"
    y = rng.uniform(-1, 1, n) if is_regression else rng.choice([-1.0, 1.0], n)
    i = rng.integers(n)
    corner = rng.choice([-1.0, 1.0], d)
    places = [
        (corner, corner),  # same place, other target
        (corner, -corner),
        (corner, np.zeros(d)),
        (corner * (np.arange(d) == 0), corner),
    ][rng.integers(4)]
    target = rng.choice([-1.0, 1.0])
    tables = []
    for place, sign in zip(places, (1, -1), strict=True):
        X[i], y[i] = place, sign * target
        rows = make_rows(storage(X.copy()), problem.fit_intercept)
        tables.append(SolverData(rows, y.copy()))
    if relation == "zero-out":
        tables[0].rows.scale = (np.arange(n) != i).astype(np.float64)
    return tables[0], tables[1]
