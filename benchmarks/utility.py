"""Scores of the defaults on real tables, one fixed configuration, no tuning.

    python benchmarks/utility.py                      tables that ship with packages
    python benchmarks/utility.py --folder DIR         every DIR/*.npz with X, y, task, and sparse
                                                      ones as `texts.py` makes them
    python benchmarks/utility.py --estimators DPLinear DPLassoFW
                                                      some of the families
    python benchmarks/utility.py --estimators DPMirror --set solver=noisy-md
                                                      with other settings than the defaults
    python benchmarks/utility.py --wider 10           with bounds that are ten times too wide

Median test R2 (regression), AUC and accuracy (two classes), or accuracy, over splits of 75/25,
delta = 1e-6, zero-out, X and y scaled to [-1, 1] by bounds from domain knowledge. The
trivial predictor stands beside: the training mean, or the most frequent class.
"""

from __future__ import annotations

import argparse
import ast
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.metrics import roc_auc_score

import sklearn_dpsco

FAMILIES = {  # name: regressor and classifier
    "DPLinear": ("DPLinearRegression", "DPLogisticRegression"),
    "DPMirror": ("DPMirrorRegressor", "DPMirrorClassifier"),
    "DPLassoFW": ("DPLassoFW", "DPLassoFWClassifier"),
    "DPPhasedSGD": ("DPPhasedSGDRegressor", "DPPhasedSGDClassifier"),
    "DPFTRL": ("DPFTRLRegressor", "DPFTRLClassifier"),
    "HeavyTailDP": ("HeavyTailDPRegressor", "HeavyTailDPClassifier"),
}
DEFAULT = [name for name in FAMILIES if name != "DPMirror"]  # which does what "DPLinear" does
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
    """The same from files of dense arrays scaled to [-1, 1], or of sparse zeros and ones."""
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as file:
            X = file["X"] if "X" in file else zeros_and_ones(file)
            y, task = file["y"], str(file["task"])
        bounds = {"bounds_X": (0, 1) if sparse.issparse(X) else (-1, 1)}
        yield path.stem, X, y, task, bounds | ({"bounds_y": (-1, 1)} if task == "reg" else {})


def zeros_and_ones(file: Any) -> sparse.csr_matrix:
    """The matrix with ones in the stored places."""
    places = file["indices"], file["indptr"]
    return sparse.csr_matrix((np.ones(file["indices"].size), *places), shape=file["shape"])


def scores(model: Any, X: Any, y: Any, task: str) -> tuple[float, ...]:
    """R2, AUC and accuracy, or the accuracy of several classes."""
    if task != "clf":
        return (model.score(X, y),)
    ranking = (
        model.decision_function(X)
        if hasattr(model, "decision_function")
        else model.predict_proba(X)[:, 1]
    )
    return roc_auc_score(y, ranking), model.score(X, y)


def widened(bounds: tuple[Any, Any], factor: float) -> tuple[Any, Any]:
    """Bounds so many times as wide about their middle, or away from an end at 0."""
    low, high = (np.asarray(end, dtype=float) for end in bounds)
    one_sided = (low == 0) | (high == 0)
    middle, half = np.where(one_sided, 0.0, (low + high) / 2), (high - low) / 2
    below = np.where(one_sided, low * factor, middle - factor * half)
    return below, np.where(one_sided, high * factor, middle + factor * half)


def accepted(kind: type, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings that the estimator has; a family may need no bounds."""
    names = kind().get_params()
    return {name: value for name, value in settings.items() if name in names}


def row(family: str, table: tuple[Any, ...], seeds: int, changed: dict[str, Any]) -> list[Any]:
    """Median scores at every epsilon, or of the trivial predictor."""
    _, X, y, task, bounds = table
    results: list[list[tuple[float, ...]]] = []
    for seed in range(seeds):
        order = np.random.default_rng(seed).permutation(len(y))
        train, test = np.split(order, [int(0.75 * len(y))])
        models: list[Any]
        if family == "trivial":
            models = [DummyRegressor() if task == "reg" else DummyClassifier(strategy="prior")]
        else:
            kind = getattr(sklearn_dpsco, FAMILIES[family][task != "reg"])
            classes = sorted(set(y)) if task != "reg" else None
            common = {
                "relation": "zero-out",
                "delta": 1e-6,
                "random_state": seed,
                "classes": classes,
            }
            settings = accepted(kind, common | bounds | changed)
            models = [kind(epsilon=epsilon, **settings) for epsilon in EPSILONS]
        fitted = [model.fit(X[train], y[train]) for model in models]
        results.append([scores(model, X[test], y[test], task) for model in fitted])
    return list(np.median(results, axis=0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--estimators", nargs="+", choices=FAMILIES, default=DEFAULT)
    parser.add_argument("--wider", type=float, default=1.0)
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE")
    arguments = parser.parse_args()
    changed = {}
    for setting in arguments.set:
        name, _, value = setting.partition("=")
        try:
            changed[name] = ast.literal_eval(value)
        except ValueError:
            changed[name] = value
    warnings.simplefilter("ignore")
    families = [f for f in arguments.estimators if hasattr(sklearn_dpsco, FAMILIES[f][0])]
    source = from_folder(arguments.folder) if arguments.folder else packaged()
    print(f"{'':31s}", "  ".join(f"eps={e:<9g}" for e in EPSILONS))
    for name, X, y, task, bounds in source:
        bounds = {key: widened(pair, arguments.wider) for key, pair in bounds.items()}
        table = name, X, y, task, bounds
        for family in ("trivial", *families):
            values = row(family, table, arguments.seeds, changed)
            cells = (f"{'/'.join(f'{v:.3f}' for v in value):13s}" for value in values)
            print(f"{table[0]:17s}{family:14s}", "  ".join(cells), flush=True)


if __name__ == "__main__":
    main()
