"""Frank-Wolfe in a single pass: from how many records on it is of use, and its speed.

    python benchmarks/single_pass.py [--epsilon 1] [--seeds 3]   first useful n
    python benchmarks/single_pass.py --speed                     time and memory of a run

Useful: at least half of what least squares (or logistic regression) explains without privacy, R2 or
the part of the log loss of equal odds, in the median over the seeds, under zero-out and the default
delta. Tables have five relevant columns, of signs or of normal values in [-1, 1], or 40 relevant
ones. n doubles from 250 on.

Speed: a run on X of 1,000,000 x 100 as a ratio to ``X @ w`` and ``X.T @ r`` on the same X, in one
process, medians of interleaved runs; for CSR rows, 200,000 x 10,000 with 50 stored numbers each,
to the two products of scipy. Take it alone. Memory: the peak that Python's allocator sees during
a run, which numpy reports to, over the size of X.
"""

from __future__ import annotations

import argparse
import math
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import log_loss
from speed import medians

from sklearn_dpsco import DPLassoFW, DPLassoFWClassifier, PrivacyBudget
from sklearn_dpsco.data.rows import Rows, SolverData
from sklearn_dpsco.geometry import L1Ball
from sklearn_dpsco.losses import Squared
from sklearn_dpsco.randomness.stream import stream_from_random_state
from sklearn_dpsco.solvers import Rounds, Selection, Spider, Tree
from sklearn_dpsco.solvers.base import Problem

FORMS = ("selection", "rounds", "tree", "spider")
FAMILIES = ("5 signs", "5 normal", "40 normal")
TEST = 5000

SOLVERS = {kind.form: kind for kind in (Rounds, Tree, Spider, Selection)}


def table(family: str, n: int, d: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """X in [-1, 1] and a signal of standard deviation 1."""
    rng = np.random.default_rng(seed)
    count, kind = family.split()
    X = rng.standard_normal((n, d))
    X = np.sign(X) if kind == "signs" else np.clip(X / 3, -1, 1)
    w = np.zeros(d)
    k = min(d, int(count))
    w[:k] = np.linspace(1, 0.3, k) * np.resize([1, -1], k)
    signal = X @ w
    return X, signal / signal.std()


def explained(
    form: str | None, task: str, family: str, n: int, d: int, epsilon: float, seed: int
) -> float:
    """R2, or 1 - log loss / log 2, on fresh records; `form` None for a model without privacy."""
    X, signal = table(family, n + TEST, d, seed)
    rng = np.random.default_rng(seed + 1000)
    common: dict[str, Any] = {
        "epsilon": epsilon,
        "relation": "zero-out",
        "bounds_X": (-1, 1),
        "solver": form,
        "random_state": seed,
    }
    if task == "regression":
        y = np.clip(0.25 * signal + 0.12 * rng.standard_normal(len(X)), -1, 1)
        model: Any = LinearRegression() if form is None else DPLassoFW(bounds_y=(-1, 1), **common)
        return float(model.fit(X[:n], y[:n]).score(X[n:], y[n:]))
    y = rng.uniform(size=len(X)) < 1 / (1 + np.exp(-2 * signal))
    if form is None:
        model = LogisticRegression()
    else:
        model = DPLassoFWClassifier(classes=[False, True], **common)
    return 1 - log_loss(y[n:], model.fit(X[:n], y[:n]).predict_proba(X[n:])) / math.log(2)


def first_useful(form: str, task: str, family: str, d: int, epsilon: float, seeds: int) -> str:
    largest = 2**21 // max(1, d // 25) if form == "spider" else 2**17
    best = explained(None, task, family, 50_000, d, epsilon, 0)
    n = 250
    while n <= largest:
        found = [explained(form, task, family, n, d, epsilon, seed) for seed in range(seeds)]
        if np.median(found) >= best / 2:
            return f"{n}"
        n *= 2
    return f"> {n // 2}"


def usefulness(epsilon: float, seeds: int) -> None:
    print(f"epsilon = {epsilon:g}: first useful n\n{'':34s}" + "".join(f"{f:>12s}" for f in FORMS))
    for task in ("regression", "classification"):
        for family in FAMILIES:
            for d in (20, 100):
                found = [first_useful(form, task, family, d, epsilon, seeds) for form in FORMS]
                line = "".join(f"{n:>12s}" for n in found)
                print(f"{task:15s} {family:12s} d = {d:<4d} {line}", flush=True)


def runs(X: Any, y: np.ndarray) -> dict[str, Callable[[], Any]]:
    """A run of every form on a table."""
    n, d = X.shape
    data = SolverData(Rows(X, True), y)
    problem = Problem(n, d, Squared(), L1Ball, True)
    found: dict[str, Callable[[], Any]] = {}
    for form in FORMS[1:]:
        plan = SOLVERS[form]().plan(problem, PrivacyBudget(1.0, 1e-6))
        found[form] = lambda plan=plan: plan.run(data, stream_from_random_state(None))
    return found


def speed() -> None:
    rng = np.random.default_rng(0)
    n, d = 1_000_000, 100
    dense = rng.uniform(-1, 1, (n, d))
    sizes = 200_000, 10_000
    columns = rng.integers(0, sizes[1], (sizes[0], 50)).ravel()
    start = np.arange(0, columns.size + 1, 50)
    compressed = sparse.csr_array((rng.uniform(-1, 1, columns.size), columns, start), shape=sizes)
    compressed.sum_duplicates()
    for label, X in (("dense 1e6 x 100", dense), ("CSR 2e5 x 1e4, 50 a row", compressed)):
        y = np.clip(X @ rng.standard_normal(X.shape[1]) / 10, -1, 1)
        w = rng.standard_normal(X.shape[1])
        of_it = runs(X, y)
        times = medians({"pass": lambda X=X, w=w: X.T @ (X @ w), **of_it}, repeats=7)
        size = X.nbytes if isinstance(X, np.ndarray) else X.data.nbytes + X.indices.nbytes
        for form, run in of_it.items():
            tracemalloc.start()
            run()
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            ratio = times[form] / times["pass"]
            print(f"{label:26s} {form:8s} {ratio:6.2f} passes, memory {peak / size:.3f} of X")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--speed", action="store_true")
    arguments = parser.parse_args()
    if arguments.speed:
        speed()
    else:
        usefulness(arguments.epsilon, arguments.seeds)


if __name__ == "__main__":
    main()
