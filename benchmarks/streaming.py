"""Streams: error of the prefix sums, scores against other methods, scores over time, speed.

    python benchmarks/streaming.py                 everything on packaged and synthetic data
    python benchmarks/streaming.py --folder DIR    also every DIR/*.npz with X, y, task
    python benchmarks/streaming.py --only speed    one part: sums, scores, excess, time, speed

delta = 1e-6, zero-out, one fixed configuration, no tuning.
"""

from __future__ import annotations

import argparse
import itertools
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from scipy import sparse
from sklearn.linear_model import (
    LinearRegression,
    LogisticRegression,
    SGDClassifier,
    SGDRegressor,
)
from sklearn.metrics import roc_auc_score
from speed import medians
from utility import from_folder, packaged

from sklearn_dpsco import (
    DPFTRLClassifier,
    DPFTRLRegressor,
    DPLassoFW,
    DPLassoFWClassifier,
    PrivacyBudget,
)
from sklearn_dpsco.mechanisms import PrefixSum
from sklearn_dpsco.solvers import FTRL

Array = Any
COMMON = {"relation": "zero-out"}


def sums() -> None:
    """Noise of the worst and of the last prefix, in units of sensitivity / mu."""
    budget = PrivacyBudget(1.0, 1e-6)
    print("noise multiplier of the worst prefix (of the mean square over all prefixes)")
    for n_steps in (10, 100, 512, 1_000, 10_000, 100_000, 1_000_000):
        facts = {"n_steps": n_steps, "width": 1, "largest_norm": 1.0}
        mechanism = PrefixSum.calibrate(1.0, budget.gaussian_allowance, **facts)
        scales = mechanism.prefix_scales() * budget.mu
        print(f"{n_steps:9d} {scales.max():9.2f} ({np.sqrt(np.mean(scales**2)):6.2f})")


# -------------------------------------------------------------------------------- scores


def synthetic(n: int, d: int, task: str, seed: int = 0) -> tuple[Array, Array]:
    """Features in [-1, 1] with a common factor, and a noisy linear signal."""
    rng = np.random.default_rng(seed)
    X = np.clip(0.5 * rng.normal(size=(n, d)) + 0.3 * rng.normal(size=(n, 1)) + 0.1, -1, 1)
    signal = X @ (rng.normal(size=d) / np.sqrt(d)) + 0.2
    if task == "reg":
        return X, np.clip(signal / 2 + 0.15 * rng.normal(size=n), -1, 1)
    return X, (3 * signal + rng.logistic(size=n) > 0).astype(int)


def tables(folder: Path | None, n_large: int) -> Iterator[tuple[str, Array, Array, str, Any, int]]:
    source = from_folder(folder) if folder else packaged()
    for name, X, y, task, bounds in source:
        yield name, X, y, task, bounds, 10
    for task in ("reg", "clf"):
        X, y = synthetic(n_large, 20, task)
        bounds = {"bounds_X": (-1, 1)} | ({"bounds_y": (-1, 1)} if task == "reg" else {})
        yield f"synthetic {task} {n_large:.0e}", X, y, task, bounds, 2


def streamed(model: Any, X: Array, y: Array) -> Any:
    """The model of a stream whose length is not known, fed in a thousand chunks."""
    size = max(1, len(y) // 1000)
    for start in range(0, len(y), size):
        model.partial_fit(X[start : start + size], y[start : start + size])
    return model


def competitors(
    task: str, bounds: Any, epsilon: float, seed: int
) -> dict[str, Callable[[Array, Array], Any]]:
    facts = COMMON | bounds | {"epsilon": epsilon, "random_state": seed}
    kinds: tuple[Any, Any] = (DPFTRLRegressor, DPLassoFW)
    sgd: Any = SGDRegressor(max_iter=1, tol=None, random_state=seed)
    if task == "clf":
        kinds, facts = (DPFTRLClassifier, DPLassoFWClassifier), facts | {"classes": [0, 1]}
        sgd = SGDClassifier(loss="log_loss", max_iter=1, tol=None, random_state=seed)
    ftrl, full_batch = kinds
    return {
        "FTRL fit": lambda X, y: ftrl(**facts).fit(X, y),
        "FTRL stream": lambda X, y: streamed(ftrl(**facts), X, y),
        "full batch": lambda X, y: full_batch(**facts).fit(X, y),
        "FTRL no noise": lambda X, y: ftrl(**facts | {"epsilon": 1e6}).fit(X, y),
        "SGD, 1 pass": lambda X, y: sgd.fit(X, y),
    }


def score(model: Any, X: Array, y: Array, task: str) -> float:
    if task == "reg":
        return float(model.score(X, y))
    return float(roc_auc_score(y, model.decision_function(X)))


def scores(folder: Path | None, n_large: int) -> None:
    """R2 or AUC at epsilon = 1 (and 8) beside a full-batch method and a pass of plain SGD."""
    for epsilon in (1.0, 8.0):
        print(f"\nmedian test R2 or AUC, epsilon = {epsilon:g}")
        for name, X, y, task, bounds, n_seeds in tables(folder, n_large):
            found: dict[str, list[float]] = {}
            for seed in range(n_seeds):
                order = np.random.default_rng(seed).permutation(len(y))
                train, test = np.split(order, [int(0.75 * len(y))])
                low, high = bounds["bounds_X"]
                for key, fit in competitors(task, bounds, epsilon, seed).items():
                    left, right = X[train], X[test]
                    if key.startswith("SGD"):  # on the scaled features that the others see
                        middle, half = (np.add(low, high) / 2, np.subtract(high, low) / 2)
                        left, right = (left - middle) / half, (right - middle) / half
                    model = fit(left, y[train])
                    found.setdefault(key, []).append(score(model, right, y[test], task))
            cells = "  ".join(f"{key} {np.median(v):6.3f}" for key, v in found.items())
            print(f"{name:22s} {cells}")


def family(n: int, d: int, kind: str, task: str, seed: int) -> tuple[Array, Array]:
    """Columns that are independent, or correlated, or fill less and less of their bounds."""
    rng = np.random.default_rng(seed)
    Z = rng.uniform(-1, 1, (n, d))
    if kind == "correlated":
        Z = 0.3 * Z + 0.7 * rng.uniform(-1, 1, (n, 1))
    X = Z * (np.geomspace(1, 0.03, d) if kind == "badly scaled" else 1)
    signal = (Z - Z.mean(axis=0)) @ rng.normal(size=d)
    signal /= signal.std()
    if task == "reg":
        return X, np.clip(0.3 * signal + 0.15 * rng.normal(size=n) + 0.1, -1, 1)
    return X, (2 * signal + 0.3 + rng.logistic(size=n) > 0).astype(int)


def excess(n_seeds: int = 3, d: int = 10) -> None:
    """Training loss above that of the non-private optimum, relative to it."""

    def loss(task: str, model: Any, X: Array, y: Array) -> float:
        if task == "reg":
            return float(np.mean((model.predict(X) - y) ** 2))
        return float(np.logaddexp(0, (1 - 2 * y) * model.decision_function(X)).mean())

    print("\nrelative excess of the training loss; second moments of so many records")
    grid = itertools.product((1.0, 3.0, 1e3), (20_000, 100_000), ("reg", "clf"))
    for epsilon, n, task in grid:
        for kind in ("independent", "correlated", "badly scaled"):
            found = []
            for seed in range(n_seeds):
                X, y = family(n, d, kind, task, seed)
                facts: Any = COMMON | {"bounds_X": (-1, 1), "epsilon": epsilon}
                best: Any = LinearRegression()
                model: Any = DPFTRLRegressor(**facts, bounds_y=(-1, 1), random_state=seed)
                if task == "clf":
                    best = LogisticRegression(C=1e6, max_iter=1000)
                    model = DPFTRLClassifier(**facts, classes=[0, 1], random_state=seed)
                least = loss(task, best.fit(X, y), X, y)
                found.append(loss(task, model.fit(X, y), X, y) / least - 1)
            moments = model.plan_.moments
            print(
                f"epsilon = {epsilon:g}, n = {n}, {task}, {kind:13s} {np.median(found):8.4f}   "
                f"{0 if moments is None else moments.n_records}",
                flush=True,
            )


def over_time(n: int = 64_000, d: int = 20) -> None:
    """One stream at a fixed epsilon, against refitting at each doubling with composition."""
    X, y = synthetic(n + 20_000, d, "reg")
    X, y, X_test, y_test = X[:n], y[:n], X[n:], y[n:]
    facts = COMMON | {"bounds_X": (-1, 1), "bounds_y": (-1, 1), "epsilon": 1.0, "random_state": 0}
    moments = [1000 * 2**k for k in range(20) if 1000 * 2**k <= n]
    open_stream, known = DPFTRLRegressor(**facts), DPFTRLRegressor(**facts, horizon=n)
    # epsilon of each refit so that all of them together cost the same rho
    share = PrivacyBudget(1.0, 1e-6).rho / len(moments)
    low, high = 1e-3, 1.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if PrivacyBudget(middle, 1e-6).rho < share else (low, middle)
    print(f"\ntest R2 over time, n = {n}, epsilon = 1; each of {len(moments)} refits: {low:.3f}")
    heads = ("open stream", "known length", "refits", "one refit")
    print(f"{'records':>9s}", *(f"{head:>13s}" for head in heads))
    start = 0
    for stop in moments:
        for model in (open_stream, known):
            model.partial_fit(X[start:stop], y[start:stop])
        refit = DPLassoFW(**facts | {"epsilon": low}).fit(X[:stop], y[:stop])
        once = DPLassoFW(**facts).fit(X[:stop], y[:stop])
        cells = [m.score(X_test, y_test) for m in (open_stream, known, refit, once)]
        print(f"{stop:9d}", *(f"{cell:13.3f}" for cell in cells))
        start = stop


# -------------------------------------------------------------------------------- speed


@njit(cache=True)
def one_pass(X: Array, y: Array, w: Array, rate: float) -> None:
    """A streaming pass that only computes the predictions and updates w."""
    for i in range(X.shape[0]):
        z = 0.0
        for j in range(X.shape[1]):
            z += X[i, j] * w[j]
        step = rate * y[i] / (1.0 + np.exp(y[i] * z))
        for j in range(X.shape[1]):
            w[j] += step * X[i, j]


@njit(cache=True)
def one_sparse_pass(
    X: Array, columns: Array, starts: Array, y: Array, w: Array, rate: float
) -> None:
    for i in range(y.size):
        z = 0.0
        for k in range(starts[i], starts[i + 1]):
            z += X[k] * w[columns[k]]
        step = rate * y[i] / (1.0 + np.exp(y[i] * z))
        for k in range(starts[i], starts[i + 1]):
            w[columns[k]] += step * X[k]


def timed(functions: dict[str, Callable[[], Any]], n: int) -> dict[str, float]:
    """Nanoseconds per record, the median of interleaved runs."""
    return {name: seconds / n * 1e9 for name, seconds in medians(functions, 5).items()}


def report(label: str, found: dict[str, float]) -> None:
    base = found.pop("one pass")
    print(f"{label}: one pass {base:.0f} ns per record")
    for name, value in found.items():
        print(f"    {name:28s} {value:7.0f} ns   {value / base:5.2f} passes")


def speed(n: int) -> None:
    d = 100
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n, d))
    y = np.where(X @ rng.normal(size=d) > 0, 1.0, -1.0)
    facts: Any = COMMON | {"bounds_X": (-1, 1), "classes": [-1.0, 1.0]}

    def stream(table: Array, **changes: Any) -> Any:
        return DPFTRLClassifier(**facts | {"horizon": n} | changes).partial_fit(table, y)

    print()
    found = {
        "one pass": lambda: one_pass(X, y, np.zeros(d), 1e-3),
        "partial_fit, one chunk": lambda: stream(X),
        "partial_fit, other bounds": lambda: stream(X, bounds_X=(-2, 2)),
        "partial_fit, unknown length": lambda: stream(X, horizon=None),
        "partial_fit, 4096 steps": lambda: stream(X, solver=FTRL(batch_size=-(-n // 4096))),
        "fit (shuffles)": lambda: DPFTRLClassifier(**facts).fit(X, y),
    }
    report(f"dense {n} x {d}", timed(found, n))
    S = sparse.random(n, 1000, density=0.02, random_state=0, format="csr")
    w = np.zeros(1000)
    found = {
        "one pass": lambda: one_sparse_pass(S.data, S.indices, S.indptr, y, w, 1e-3),
        "partial_fit, one chunk": lambda: stream(S),
    }
    report(f"CSR {n} x 1000, 2 %", timed(found, n))
    memory()


def memory(n_chunks: int = 1000, size: int = 10_000, d: int = 50) -> None:
    """A long stream in chunks that are made on the fly."""
    rng = np.random.default_rng(0)
    model = DPFTRLRegressor(bounds_X=(-1, 1), bounds_y=(-1, 1), horizon=n_chunks * size)
    X = rng.uniform(-1, 1, (size, d))
    model.partial_fit(X, X[:, 0])
    tracemalloc.start()
    start = time.perf_counter()
    for k in range(n_chunks - 1):
        if k == 10:
            tracemalloc.reset_peak()
        model.partial_fit(X, X[:, 0])
    seconds = time.perf_counter() - start
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    print(
        f"stream of {n_chunks * size:.0e} x {d}: {seconds:.0f} s, peak of new memory "
        f"{peak / 2**20:.1f} MiB, a chunk being {X.nbytes / 2**20:.1f} MiB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--only", choices=("sums", "scores", "excess", "time", "speed"))
    parser.add_argument("--rows", type=int, default=1_000_000)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    parts: dict[str, Callable[[], None]] = {
        "sums": sums,
        "scores": lambda: scores(arguments.folder, arguments.rows),
        "excess": excess,
        "time": over_time,
        "speed": lambda: speed(arguments.rows),
    }
    for name, part in parts.items():
        if arguments.only in (None, name):
            part()


if __name__ == "__main__":
    main()
