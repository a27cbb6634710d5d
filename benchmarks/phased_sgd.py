"""Phased SGD: time against bare loops, and scores against its private and public rivals.

    python benchmarks/phased_sgd.py speed                  ratios, 1,000,000 x 100
    python benchmarks/phased_sgd.py stream                 a synthetic stream of 1e6 records
    python benchmarks/phased_sgd.py tables [--folder DIR]  as in benchmarks/utility.py

Scores are test R2 or AUC at delta = 1e-6, zero-out, defaults throughout.
"""

from __future__ import annotations

import argparse
import dataclasses
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from scipy import sparse
from sklearn.linear_model import LogisticRegression, Ridge, SGDClassifier, SGDRegressor
from sklearn.metrics import roc_auc_score
from speed import medians, report
from utility import EPSILONS, from_folder, packaged

from sklearn_dpsco import DPPhasedSGDClassifier, DPPhasedSGDRegressor
from sklearn_dpsco.data.rows import Rows, SolverData
from sklearn_dpsco.estimators.mirror import DPMirrorClassifier, DPMirrorRegressor
from sklearn_dpsco.randomness.stream import stream_from_random_state
from sklearn_dpsco.solvers import PhasedSGD

# ----------------------------------------------------------------------------------- time


@njit
def dense_pass(X: Any, order: Any, y: Any, rate: float, w: Any) -> None:
    """Predict and update, nothing else; an empty order stands for that of the table."""
    for t in range(y.size):
        i = order[t] if order.size else t
        product = 0.0
        for j in range(w.size):
            product += X[i, j] * w[j]
        step = rate * (product - y[i])
        for j in range(w.size):
            w[j] -= step * X[i, j]


@njit
def sparse_pass(
    data: Any, indices: Any, indptr: Any, order: Any, y: Any, rate: float, w: Any
) -> None:
    for t in range(y.size):
        i = order[t] if order.size else t
        product = 0.0
        for k in range(indptr[i], indptr[i + 1]):
            product += data[k] * w[indices[k]]
        step = rate * (product - y[i])
        for k in range(indptr[i], indptr[i + 1]):
            w[indices[k]] -= step * data[k]


def speed(n: int) -> None:
    rng = np.random.default_rng(0)
    dense = rng.uniform(-1, 1, (n, 100))
    columns = np.sort(rng.integers(0, 2000, (n, 20), dtype=np.int32), axis=1).ravel()
    ends = np.arange(0, 20 * n + 1, 20, dtype=np.int32)
    wide = sparse.csr_matrix((rng.uniform(-1, 1, 20 * n), columns, ends), shape=(n, 2000))
    wide.sum_duplicates()
    tables = {"dense, 100 columns": dense, "CSR, 2000 columns, 20 a row": wide}
    order, table_order = rng.permutation(n), np.zeros(0, dtype=np.intp)
    for label, X in tables.items():
        d = X.shape[1]
        y = np.clip(X @ rng.normal(0, 0.1, d), -1, 1)
        model = DPPhasedSGDRegressor(bounds_X=(-1, 1), bounds_y=(-1, 1))
        plan = model.plan(n, d)
        unshuffled = dataclasses.replace(plan, shuffle=False)
        data = SolverData(Rows(X, True), y)
        is_sparse = sparse.issparse(X)
        loop = sparse_pass if is_sparse else dense_pass
        parts = (X.data, X.indices, X.indptr) if is_sparse else (X,)

        def bare(chosen: Any, loop: Any = loop, parts: Any = parts, data: Any = data) -> None:
            loop(*parts, chosen, data.y, 1e-4, np.zeros(data.rows.n_columns))

        times = medians(
            {
                "table order": lambda run=bare: run(table_order),
                "random order": lambda run=bare: run(order),
                "solve": lambda p=plan, a=data: p.run(a, stream_from_random_state(None)),
                "in order": lambda p=unshuffled, a=data: p.run(a, stream_from_random_state(None)),
                "fit": lambda m=model, X=X, a=data: m.fit(X, a.y),
            },
            repeats=7,
        )
        print(f"{label}: solve takes {times['solve']:.3f} s")
        for rival in ("table order", "random order"):
            report(f"  solve / bare pass in {rival}", times["solve"] / times[rival], "2")
        report("  solve, shuffle=False / same", times["in order"] / times["table order"], "2")
        report("  fit / bare pass in table order", times["fit"] / times["table order"], "-")


# --------------------------------------------------------------------------------- scores


def synthetic_stream(n: int, d: int, task: str, seed: int = 0) -> tuple[Any, Any]:
    """Correlated features of different spreads in the box, a quarter of them 0 or 1."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5)) @ rng.normal(0, 0.5, (5, d)) + rng.normal(size=(n, d))
    X = np.clip(X * rng.uniform(0.1, 0.5, d) + rng.uniform(-0.4, 0.4, d), -1, 1)
    X[:, : d // 4] = X[:, : d // 4] > rng.uniform(-0.3, 0.3, d // 4)
    signal = X @ rng.normal(size=d)
    signal = (signal - signal.mean()) / signal.std()
    if task == "reg":
        return X, np.clip(0.3 * signal + rng.normal(-0.2, 0.2, n), -1, 1)
    return X, (1.5 * signal - 0.7 + rng.logistic(size=n) > 0).astype(int)


def score(model: Any, X: Any, y: Any, task: str) -> float:
    if task == "reg":
        return float(model.score(X, y))
    return float(roc_auc_score(y, model.decision_function(X)))


def private_models(task: str, epsilon: float, seed: int, bounds: dict[str, Any]) -> dict[str, Any]:
    common = {"epsilon": epsilon, "relation": "zero-out", "random_state": seed} | bounds
    if task == "reg":
        phased, mirror, kinked = DPPhasedSGDRegressor, DPMirrorRegressor, "absolute"
    else:
        phased, mirror, kinked = DPPhasedSGDClassifier, DPMirrorClassifier, "hinge"
        common["classes"] = [0, 1]
    return {
        "default": phased(**common),
        "one pass": phased(**common, solver=PhasedSGD(max_iter=1)),
        kinked: phased(**common, loss=kinked),
        "unconstrained": phased(**common, feasible_set="unconstrained"),
        "full-batch noisy GD": mirror(**common, feasible_set="l2", solver="noisy-md"),
    }


def public_models(task: str) -> dict[str, Any]:
    one_pass = {"max_iter": 1, "tol": None, "random_state": 0}
    if task == "reg":
        sgd, best = SGDRegressor, Ridge(1e-6)
        loss = {}
    else:
        sgd, best = SGDClassifier, LogisticRegression(max_iter=500)
        loss = {"loss": "log_loss"}
    return {
        "SGD, one pass, no privacy": sgd(**one_pass, **loss),
        "averaged SGD, one pass, no privacy": sgd(**one_pass, **loss, average=True),
        "many passes, no privacy": best,
    }


def compare(task: str, splits: list[Any], bounds: dict[str, Any]) -> None:
    """Median scores over the splits (X, y, test X, test y)."""
    for name in private_models(task, 1.0, 0, bounds):
        row = []
        for epsilon in EPSILONS:
            found = []
            for seed, (X, y, X_test, y_test) in enumerate(splits):
                model = private_models(task, epsilon, seed, bounds)[name]
                found.append(score(model.fit(X, y), X_test, y_test, task))
            row.append(float(np.median(found)))
        print(f"  {name:36s}", "  ".join(f"{value:6.3f}" for value in row), flush=True)
    for name, model in public_models(task).items():
        found = [score(model.fit(X, y), Xt, yt, task) for X, y, Xt, yt in splits]
        print(f"  {name:36s} {np.median(found):6.3f}", flush=True)


def stream(n: int) -> None:
    for task, bounds in (
        ("reg", {"bounds_X": (-1, 1), "bounds_y": (-1, 1)}),
        ("clf", {"bounds_X": (-1, 1)}),
    ):
        X, y = synthetic_stream(n + 100_000, 50, task)
        print(f"stream of {n} x 50, {task}, epsilon = {', '.join(map(str, EPSILONS))}")
        compare(task, [(X[:n], y[:n], X[n:], y[n:])], bounds)


def tables(folder: Path | None, seeds: int) -> None:
    for name, X, y, task, bounds in from_folder(folder) if folder else packaged():
        print(f"{name}, epsilon = {', '.join(map(str, EPSILONS))}")
        splits = []
        for seed in range(seeds):
            order = np.random.default_rng(seed).permutation(len(y))
            train, test = np.split(order, [int(0.75 * len(y))])
            splits.append((X[train], y[train], X[test], y[test]))
        compare(task, splits, bounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("speed", "stream", "tables"))
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--rows", type=int, default=1_000_000)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if arguments.what == "speed":
        speed(arguments.rows)
    elif arguments.what == "stream":
        stream(arguments.rows)
    else:
        tables(arguments.folder, arguments.seeds)


if __name__ == "__main__":
    main()
