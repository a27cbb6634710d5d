"""Models by selection with hard zeros: which columns they hold, and what dropping rare ones costs.

    python benchmarks/sparse_models.py [--families zipf corr] [--seeds 3]

Mean of R2 (regression) or AUC (two classes), precision and recall of the support, and its size, for
`min_selections` of 1, 2 and 3, under zero-out and the default delta. Families:

signs       1000 columns of -1 and 1, five of which count
corr        1000 normal columns in [-1, 1], neighbours correlated by 0.7, ten count
zipf        20,000 columns of zeros and ones, 20 ones in a row, by Zipf's law, twenty count
zipf dense  the same, all count
"""

from __future__ import annotations

import argparse
import math
import warnings
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.metrics import roc_auc_score

from sklearn_dpsco import DPLassoFW, DPLassoFWClassifier
from sklearn_dpsco.solvers import Selection

FAMILIES = ("signs", "corr", "zipf", "zipf dense")
TEST = 4000


def table(family: str, n: int, seed: int) -> tuple[Any, Any, np.ndarray]:
    """X, a signal of standard deviation 1, and the flags of the columns that count."""
    rng = np.random.default_rng(seed)
    if family.startswith("zipf"):
        d, length = 20_000, rng.poisson(20, n) + 1
        frequency = 1 / (np.arange(d) + 2.7)
        columns = rng.choice(d, length.sum(), p=frequency / frequency.sum())
        X: Any = sparse.csr_array(
            (np.ones(columns.size), (np.repeat(np.arange(n), length), columns)), shape=(n, d)
        )
        X.data[:] = 1.0
        w = rng.laplace(size=d)
        if family == "zipf":
            counts = rng.choice(np.arange(5, 200), 20, replace=False)
            w = np.where(np.isin(np.arange(d), counts), np.sign(w) * rng.uniform(0.5, 1.5, d), 0.0)
    else:
        d, k = 1000, 5 if family == "signs" else 10
        X = rng.standard_normal((n, d)).astype(np.float32)
        if family == "corr":
            for j in range(1, d):
                X[:, j] = 0.7 * X[:, j - 1] + math.sqrt(1 - 0.49) * X[:, j]
        X = np.sign(X) if family == "signs" else np.clip(X / 3, -1, 1)
        w = np.zeros(d)
        w[rng.choice(d, k, replace=False)] = np.linspace(1, 0.3, k) * rng.choice([-1, 1], k)
    signal = X @ w
    return X, (signal - signal.mean()) / signal.std(), w != 0


def measured(family: str, task: str, n: int, epsilon: float, seed: int) -> list[tuple[float, ...]]:
    """Score, precision, recall and size for each `min_selections`."""
    X, signal, counts = table(family, n + TEST, seed)
    rng, found = np.random.default_rng(seed + 99), []
    bounds = (0, 1) if family.startswith("zipf") else (-1, 1)
    common: dict[str, Any] = {
        "epsilon": epsilon,
        "relation": "zero-out",
        "bounds_X": bounds,
        "solver": Selection(),
        "random_state": seed,
    }
    y: Any = np.clip(0.25 * signal + 0.12 * rng.standard_normal(len(signal)), -1, 1)
    kind: Any = DPLassoFW(bounds_y=(-1, 1), **common)
    if task == "clf":
        y = rng.uniform(size=len(signal)) < 1 / (1 + np.exp(-2 * signal))
        kind = DPLassoFWClassifier(classes=[False, True], **common)
    for fewest in (1, 2, 3):
        model = kind.set_params(solver__min_selections=fewest).fit(X[:n], y[:n])
        score = model.score(X[n:], y[n:])
        if task == "clf":
            score = roc_auc_score(y[n:], model.decision_function(X[n:]))
        held = np.ravel(model.coef_) != 0
        both = np.count_nonzero(held & counts)
        found.append((score, both / max(1, held.sum()), both / counts.sum(), held.sum()))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=FAMILIES)
    parser.add_argument("--seeds", type=int, default=2)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    print("score/precision/recall/columns for min_selections = 1, 2, 3")
    for family in arguments.families:
        for task in ("reg", "clf"):
            for n in (2000, 10_000, 50_000 if family.startswith("zipf") else 30_000):
                for epsilon in (0.3, 1.0, 3.0, 8.0):
                    runs = [measured(family, task, n, epsilon, s) for s in range(arguments.seeds)]
                    means = np.mean(runs, axis=0)
                    cells = (f"{s:.2f}/{p:.2f}/{r:.2f}/{k:<4.0f}" for s, p, r, k in means)
                    print(f"{family:11s}{task} n={n:<6d} eps={epsilon:<4g}", *cells, flush=True)


if __name__ == "__main__":
    main()
