"""Scores of the defaults on real tables, one fixed configuration, no tuning.

    python benchmarks/utility.py                  tables that ship with packages
    python benchmarks/utility.py --folder DIR     every DIR/*.npz with X, y, task

Median test R2 (regression), or AUC and accuracy (classification), over splits of 75/25,
delta = 1e-6, zero-out, X and y scaled to [-1, 1] by bounds from domain knowledge. The
trivial predictor stands beside: the training mean, or the most frequent class.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.metrics import roc_auc_score

from sklearn_dpsco import DPLassoFW, DPLassoFWClassifier

EPSILONS = (0.1, 0.5, 1.0, 3.0, 8.0)

# domain bounds of the diabetes table, in its own units (age, sex, bmi, pressure, six sera)
DIABETES_LOW = np.array([0, 1, 10, 40, 50, 0, 0, 0, 2, 40])
DIABETES_HIGH = np.array([100, 2, 60, 180, 400, 300, 120, 12, 8, 200])


def packaged() -> Iterator[tuple[str, Any, Any, str, dict[str, Any]]]:
    """Name, X, y, task and bounds of the tables that scikit-learn ships."""
    X, y = load_diabetes(return_X_y=True, scaled=False)
    yield "diabetes", X, y, "reg", {"bounds_X": (DIABETES_LOW, DIABETES_HIGH), "bounds_y": (0, 400)}
    X, y = load_digits(return_X_y=True)
    yield "digits", X, y % 2, "clf", {"bounds_X": (0, 16)}
    X, y = load_breast_cancer(return_X_y=True)
    # bounds a pathologist would write: two significant digits above what is plausible
    high = np.array([40, 50, 250, 3000, 0.3, 1, 1, 0.5, 0.5, 0.2], dtype=float)
    error = np.array([5, 10, 40, 800, 0.1, 0.3, 1, 0.1, 0.2, 0.1])
    yield "breast_cancer", X, y, "clf", {"bounds_X": (0 * X[0], np.r_[high, error, 1.5 * high])}


def from_folder(folder: Path) -> Iterator[tuple[str, Any, Any, str, dict[str, Any]]]:
    """The same from files of arrays already scaled to [-1, 1]."""
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as file:
            X, y, task = file["X"], file["y"], str(file["task"])
        bounds = {"bounds_X": (-1, 1)} | ({"bounds_y": (-1, 1)} if task == "reg" else {})
        yield path.stem, X, y, task, bounds


def scores(model: Any, X: Any, y: Any, task: str) -> tuple[float, ...]:
    """R2, or AUC and accuracy."""
    if task == "reg":
        return (model.score(X, y),)
    ranking = model.predict_proba(X)[:, 1]
    return roc_auc_score(y, ranking), model.score(X, y)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--seeds", type=int, default=10)
    arguments = parser.parse_args()
    source = from_folder(arguments.folder) if arguments.folder else packaged()
    print(f"{'':14s}", "  ".join(f"eps={e:<9g}" for e in EPSILONS), " trivial")
    for name, X, y, task, bounds in source:
        results: dict[Any, list[tuple[float, ...]]] = {}
        for seed in range(arguments.seeds):
            order = np.random.default_rng(seed).permutation(len(y))
            train, test = np.split(order, [int(0.75 * len(y))])
            models: dict[Any, Any] = {}
            for epsilon in EPSILONS:
                common = {"epsilon": epsilon, "relation": "zero-out", "random_state": seed}
                if task == "reg":
                    models[epsilon] = DPLassoFW(**common, **bounds)
                else:
                    models[epsilon] = DPLassoFWClassifier(**common, **bounds, classes=[0, 1])
            trivial = DummyRegressor() if task == "reg" else DummyClassifier(strategy="prior")
            for key, model in (models | {"trivial": trivial}).items():
                fitted = model.fit(X[train], y[train])
                results.setdefault(key, []).append(scores(fitted, X[test], y[test], task))
        medians = [np.median(results[key], axis=0) for key in (*EPSILONS, "trivial")]
        print(f"{name:14s}", "  ".join(f"{'/'.join(f'{v:.3f}' for v in m):13s}" for m in medians))


if __name__ == "__main__":
    main()
