"""What the rules of `solver="descent"` reach, next to the units of the bounds.

    python benchmarks/learned_units.py                    synthetic families
    python benchmarks/learned_units.py --wider 10         with bounds ten times too wide
    python benchmarks/learned_units.py --set whiten=50    with other numbers in the rules
    python benchmarks/learned_units.py --vanishing        excess as the noise vanishes
    python benchmarks/learned_units.py --wrong 0.2        losses, where targets have gross errors

The share of what the best model without privacy gains over the trivial one, mean over the seeds,
at epsilon = 0.1 / 0.5 / 1 / 3 / 8, zero-out, delta = 1e-6.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import itertools
import warnings
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import log_loss, mean_squared_error, roc_auc_score

from sklearn_dpsco import DPMirrorClassifier, DPMirrorRegressor
from sklearn_dpsco.solvers import defaults

EPSILONS = (0.1, 0.5, 1.0, 3.0, 8.0)
N_TEST = 3000

# family, rows, columns, classes (0 for a regression)
CELLS = (
    ("skewed", 600, 8, 0), ("rotated", 600, 20, 0), ("scales", 3000, 10, 0),
    ("sparse truth", 3000, 50, 0), ("duplicates", 3000, 9, 0), ("rare flags", 10_000, 30, 0),
    ("off centre", 3000, 12, 0), ("rotated", 20_000, 50, 0), ("duplicates", 60_000, 30, 0),
    ("skewed", 600, 8, 2), ("rotated", 600, 20, 2), ("scales", 3000, 10, 2),
    ("sparse truth", 3000, 50, 2), ("rare flags", 10_000, 30, 2), ("off centre", 3000, 12, 2),
    ("rotated", 20_000, 50, 2), ("skewed", 3000, 15, 4), ("rotated", 3000, 30, 10),
    ("rare flags", 10_000, 30, 5), ("sparse truth", 20_000, 60, 10),
)  # fmt: skip


def features(family: str, n: int, d: int, rng: np.random.Generator) -> Any:
    """Rows in [-1, 1]."""
    normal = rng.standard_normal((n, d))
    if family == "skewed":
        return np.clip(np.exp(0.7 * normal + 0.4 * rng.standard_normal((n, 1))) / 12, 0, 1)
    if family == "rotated":
        axes = np.linalg.qr(rng.standard_normal((d, d)))[0]
        return np.clip(0.5 * (normal * np.exp(-3 * np.arange(d) / d)) @ axes.T + 0.2, -1, 1)
    if family == "scales":
        return rng.uniform(-1, 1, (n, d)) * 10 ** (-2 * rng.random(d))
    if family == "duplicates":
        copies = np.tile(0.3 * normal[:, : max(1, d // 3)], 4)[:, :d]
        return np.clip(copies + 0.02 * normal - 0.3, -1, 1)
    if family == "rare flags":
        flags = (rng.random((n, d)) < 10 ** (-0.5 - 1.7 * rng.random(d))).astype(float)
        flags[:, : d // 5] = np.clip(0.3 * normal[:, : d // 5], -1, 1)
        return flags
    if family == "off centre":
        return np.clip(0.7 + 0.08 * normal + 0.06 * rng.standard_normal((n, 1)), -1, 1)
    return rng.uniform(-1, 1, (n, d))


def table(cell: tuple[str, int, int, int], seed: int) -> tuple[Any, Any]:
    """X and y, of which the last rows are for the test."""
    family, n, d, k = cell
    rng = np.random.default_rng([seed, n, d, k])
    X = features(family, n + N_TEST, d, rng)
    coef = rng.standard_normal((d, max(1, k if k > 2 else 1))) / (X.std(axis=0) + 1e-9)[:, None]
    if family in ("sparse truth", "rare flags"):
        coef[rng.permutation(d)[max(3, d // 6) :]] = 0.0
    z = X @ coef
    z = (z - z.mean(axis=0)) / z.std(axis=0)
    if k == 0:
        noise = 0.08 * rng.standard_normal(len(X))
        return X, np.clip(0.15 * z[:, 0] + noise - 0.3, -1, 1)
    if k == 2:
        return X, (rng.random(len(X)) < expit(2 * z[:, 0] - 0.8)).astype(int)
    return X, (2 * z + rng.gumbel(size=z.shape) + np.linspace(0, 1, k)).argmax(axis=1)


def gain(model: Any, X: Any, y: Any, k: int) -> float:
    """R2, 2 AUC - 1, or accuracy above chance."""
    if k == 2:
        return float(2 * roc_auc_score(y, model.decision_function(X)) - 1)
    return float(model.score(X, y)) - (1 / k if k else 0)


def private(k: int, epsilon: float, seed: int, wider: float, **settings: Any) -> Any:
    common = {
        "epsilon": epsilon,
        "delta": 1e-6,
        "relation": "zero-out",
        "bounds_X": (-wider, wider),
        "random_state": seed,
    } | settings
    if k == 0:
        return DPMirrorRegressor(bounds_y=(-wider, wider), **common)
    return DPMirrorClassifier(classes=list(range(k)), **common)


def study(seeds: int, wider: float) -> None:
    for cell in CELLS:
        family, n, d, k = cell
        shares: dict[str, list[list[float]]] = {"descent": [], "noisy-md": []}
        for seed in range(seeds):
            X, y = table(cell, seed)
            train, test = (X[:n], y[:n]), (X[n:], y[n:])
            size = X[:n].std(axis=0) + 1e-9
            best = LogisticRegression(C=100, max_iter=500) if k else LinearRegression()
            most = gain(best.fit(X[:n] / size, y[:n]), X[n:] / size, y[n:], k)
            for solver, rows in shares.items():
                models = [private(k, e, seed, wider, solver=solver) for e in EPSILONS]
                rows.append([gain(model.fit(*train), *test, k) / most for model in models])
        for solver, rows in shares.items():
            means = "  ".join(f"{value:6.3f}" for value in np.mean(rows, axis=0))
            print(f"{family:13s}{n:7d} x{d:4d} K={k:<3d}{solver:14s}{means}", flush=True)


def gross_errors(seeds: int, wrong: float) -> None:
    """Regressions with this share of the targets at their upper bound; R2 on true targets."""
    losses = ("squared", "absolute", "welsch")
    for cell in CELLS:
        family, n, d, k = cell
        rows: dict[str, list[list[float]]] = {loss: [] for loss in losses}
        for seed in range(seeds if k == 0 else 0):
            X, y = table(cell, seed)
            is_wrong = np.random.default_rng(seed).random(n) < wrong
            train = X[:n], np.where(is_wrong, 1.0, y[:n])
            for loss, scores in rows.items():
                models = [private(0, e, seed, 1.0, loss=loss) for e in EPSILONS]
                scores.append([gain(model.fit(*train), X[n:], y[n:], 0) for model in models])
        for loss, scores in rows.items():
            if scores:
                means = "  ".join(f"{value:6.3f}" for value in np.mean(scores, axis=0))
                print(f"{family:13s}{n:7d} x{d:4d} {loss:12s}{means}", flush=True)


def vanishing() -> None:
    """Relative excess of the training loss at epsilon = 1e3, n = 20,000, d = 10."""
    families = ("sparse truth", "rotated", "scales", "skewed")
    for family, k in itertools.product(families, (0, 2)):
        X, y = table((family, 20_000 - N_TEST, 10, k), 0)
        size = X.std(axis=0) + 1e-9
        best = LogisticRegression(C=1e6, max_iter=5000) if k else LinearRegression()
        best.fit(X / size, y)
        model = private(k, 1e3, 0, 1.0).fit(X, y)
        if k:
            found, least = model.predict_proba(X), best.predict_proba(X / size)
            excess = log_loss(y, found) / log_loss(y, least) - 1
        else:
            found, least = model.predict(X), best.predict(X / size)
            excess = mean_squared_error(y, found) / mean_squared_error(y, least) - 1
        print(f"{family:13s} K={k}: {excess:.1e}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--wider", type=float, default=1.0)
    parser.add_argument("--vanishing", action="store_true")
    parser.add_argument("--wrong", type=float, metavar="SHARE")
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE")
    arguments = parser.parse_args()
    pairs = (setting.split("=") for setting in arguments.set)
    changed = {name: ast.literal_eval(value) for name, value in pairs}
    for task, rules in defaults.LEARNED_UNITS.items():
        defaults.LEARNED_UNITS[task] = dataclasses.replace(rules, **changed)
    warnings.simplefilter("ignore")
    if arguments.vanishing:
        vanishing()
    elif arguments.wrong is not None:
        gross_errors(arguments.seeds, arguments.wrong)
    else:
        study(arguments.seeds, arguments.wider)


if __name__ == "__main__":
    main()
