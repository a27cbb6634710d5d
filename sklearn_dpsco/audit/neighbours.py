"""Pairs of tables that differ in one record."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse

from .._checks import check_choice, check_int
from .._types import Array, Flags
from ..data.rows import Rows, SolverData
from ..privacy.budget import RELATIONS
from ..solvers.base import Plan, Problem

Pair = tuple[SolverData, SolverData]

_EXTREMES = ("one label", "no signal", "all alike", "constant columns", "all tiny", "all empty")
_TINY = 1e-6  # of the box, so that units which are learned of other records make the one far
_WEIGHTS = (0.25, 0.5, 1.0)
_OWN_WEIGHTS = ((1.0, 1.0), (0.25, 1.0), (1.0, 0.5))
# of the record in the two tables, as factors on its corner; None for that corner on one axis
_PLACES = ((1.0, 1.0), (1.0, -1.0), (1.0, 0.0), (None, 1.0))


def check_pairs(plan: Plan, pairs: list[Pair]) -> None:
    n, d, k = plan.problem.n_samples, plan.problem.n_features, plan.problem.n_outputs
    shape, of_y = (n, d), (n,) if k == 1 else (n, k)
    for data in (side for pair in pairs for side in pair):
        if not isinstance(data, SolverData):
            raise ValueError(f"tables must be SolverData, got {type(data).__name__}")
        if (data.rows.n_samples, data.rows.n_columns) != shape or data.y.shape != of_y:
            raise ValueError(f"tables must have the plan's shapes {shape} and {of_y}")


def changed_record(pair: Pair) -> int:
    """The row in which two tables differ; `ValueError` if it is not one.

    In tables that tell users, the first row of the one user whose rows differ.
    """
    tables, n = [side.rows for side in pair], len(pair[0].y)
    beside = [np.column_stack((s.y, s.rows.scales(), s.rows.sample_weights())) for s in pair]
    rows = np.flatnonzero(differing_rows(*(table.X for table in tables)) | differing_rows(*beside))
    users, others = (np.arange(n) if table.users is None else table.users for table in tables)
    if not np.array_equal(users, others):
        raise ValueError("tables of a pair must have the same users")
    if np.unique(users[rows]).size != 1:
        raise ValueError(f"tables of a pair must differ in one record, got {rows.size}")
    return int(rows[0])


def differing_rows(first: Any, second: Any) -> Flags:
    """Flags the rows in which two matrices differ."""
    if sparse.issparse(first) or sparse.issparse(second):
        return np.diff((sparse.csr_array(first) != sparse.csr_array(second)).indptr) > 0
    return np.any(np.asarray(first) != np.asarray(second), axis=1)


def neighbours(
    problem: Problem,
    relation: str,
    n_pairs: int = 24,
    *,
    random_state: int = 0,
    rows_per_user: int = 1,
) -> list[Pair]:
    """Pairs of tables that differ in one record, which has extreme values.

    Its features are at a corner of the box, at the centre or on one axis, its targets at the ends
    of the interval, or one of them in the middle. Under "zero-out" one table has a record of scale
    0 in its place. The other records are random in every first of two pairs; in every second they
    are what may lead a solver onto a rare path: all of one label, without any signal, all alike,
    constant in every second column, tiny, or empty. Half of the pairs have weights. A third are of
    dense rows, the others of CSR.

    With `rows_per_user` above 1 tables tell users of so many rows, at random places, and the record
    that differs is one of them, all of whose rows are alike.

    Examples
    --------
    >>> from sklearn_dpsco import DPLinearRegression
    >>> from sklearn_dpsco.audit import neighbours
    >>> plan = DPLinearRegression(bounds_X=(0, 1), bounds_y=(0, 1)).plan(n_samples=12, n_features=2)
    >>> len(neighbours(plan.problem, "zero-out", n_pairs=4))
    4
    """
    check_choice("relation", relation, RELATIONS)
    check_int("n_pairs", n_pairs, low=1)
    rng = np.random.default_rng(check_int("random_state", random_state, low=0))
    of_weights = np.random.default_rng([random_state, 1])
    check_int("rows_per_user", rows_per_user, low=1)
    users = np.random.default_rng([random_state, 2]).permutation(problem.n_samples) // rows_per_user
    told = users if rows_per_user > 1 else None
    storages = (np.ascontiguousarray, sparse.csr_array, sparse.csc_array)
    pairs = []
    for k in range(n_pairs):
        X, y, corner, labels = _random_table(problem, rng)
        if problem.loss.task == "regression" and k % 3 == 2:
            labels = labels[0], 0.0 * labels[0]  # of two sizes
        present = np.ones(problem.n_samples, dtype=bool)
        if k % 2:
            kind = _EXTREMES[(k // 2 + random_state) % len(_EXTREMES)]
            _to_extreme(kind, X, y, present, corner, labels)
        weight, own_weights = None, (1.0, 1.0)
        if of_weights.uniform() < 0.5:
            weight = of_weights.choice(_WEIGHTS, problem.n_samples)
            own_weights = _OWN_WEIGHTS[of_weights.integers(len(_OWN_WEIGHTS))]
        places = _PLACES[(k + random_state) % len(_PLACES)]
        storage = storages[k % len(storages)]
        i = np.flatnonzero(users == users[rng.integers(problem.n_samples)])
        # also a valid record in the place of an invalid one
        is_missing = relation == "zero-out" or (problem.may_be_empty and k % 4 == 3)
        pair: list[SolverData] = []
        for place, label, own_weight in zip(places, labels, own_weights, strict=True):
            X[i] = corner * (np.arange(corner.size) == 0 if place is None else place)
            y[i], present[i] = label, bool(pair) or not is_missing
            if weight is not None:
                weight[i] = own_weight
            stored = storage(X.astype(np.float32 if k // len(storages) % 2 else np.float64))
            scale = None if np.all(present) else present.astype(np.float64)
            weights = None if weight is None else weight.copy()
            rows = Rows(stored, problem.fit_intercept, scale, weights)
            pair.append(SolverData(replace(rows, users=told), y.copy()))
        pairs.append((pair[0], pair[1]))
    return pairs


def _random_table(problem: Problem, rng: np.random.Generator) -> tuple[Array, Array, Array, Any]:
    """Features, targets, and of the record that differs a corner and its targets."""
    n, d, k = problem.n_samples, problem.n_features, problem.n_outputs
    shape = (n,) if k == 1 else (n, k)
    y: Array
    labels: Any
    if problem.loss.task == "regression":
        y, label = rng.uniform(-1, 1, shape), rng.choice([-1.0, 1.0], shape[1:])
        labels = label, -label
    elif problem.loss.task == "rates":  # most are far below the largest
        y, labels = rng.uniform(0, 1, n) ** 6, rng.permutation([1.0, 0.0])
    elif k == 1:
        y, label = rng.choice([-1.0, 1.0], n), rng.choice([-1.0, 1.0])
        labels = label, -label
    else:
        classes = 2 * np.eye(k) - 1
        y, labels = classes[rng.integers(k, size=n)], tuple(classes[rng.permutation(k)[:2]])
    X = rng.choice([-1.0, -0.2, 0.0, 0.5, 1.0], (n, d))
    return X, y, rng.choice([-1.0, 1.0], d), labels


def _to_extreme(kind: str, X: Array, y: Array, present: Any, corner: Array, labels: Any) -> None:
    """Change a table to one that may lead a solver onto a rare path."""
    are_labels = np.all(np.abs(y) == 1)
    if kind == "no signal":
        X[:] = 0.0
        # no residual for a regression, and labels that cancel out
        if are_labels:
            y[::2], y[1::2] = labels
        else:
            y[:] = 0.0
    elif kind == "constant columns":
        X[:, ::2] = corner[::2]
    elif kind == "all tiny":
        X *= _TINY
        y *= 1.0 if are_labels else _TINY
    elif kind == "all empty":
        present[:] = False
    else:
        y[:] = labels[0]
        if kind == "all alike":
            X[:] = corner
