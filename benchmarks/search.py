"""Private choice of settings: the default, the search and the best candidate, at one total budget.

    python benchmarks/search.py                  tables that ship with packages, and synthetic ones
    python benchmarks/search.py --folder DIR     every DIR/*.npz with X, y, task, dense or sparse

Median test R2 or AUC over splits of 75/25, delta = 1e-6, zero-out. "oracle" is the candidate with
the best median of test scores and the whole budget, a choice that nobody may make. Other cases
start from a default that is structurally wrong: a ball that is far too small, or plain steps
where bounds are five times too wide, columns ill conditioned, or rows those of sparse text.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import clone
from sklearn.metrics import roc_auc_score
from utility import packaged, widened

from sklearn_dpsco import DPGridSearchCV, DPMirrorClassifier, DPMirrorRegressor
from sklearn_dpsco.geometry import L2Ball
from sklearn_dpsco.solvers import NoisyMD


def balls(*radii: float) -> dict[str, list[Any]]:
    """A part of a grid."""
    return {"feasible_set": [L2Ball(radius) for radius in radii]}


CLIPS = {"solver": [NoisyMD(gradient_clip=clip) for clip in (0.1, 1.0)]}
GRIDS: dict[str, tuple[dict[str, Any], dict[str, list[Any]]]] = {
    "good default": ({}, CLIPS | balls(1.0, 4.0, 16.0)),
    "wrong radius": ({"feasible_set": L2Ball(0.05)}, balls(0.5, 2.0, 8.0, 32.0)),
    "plain steps": ({"solver": "noisy-md"}, {"solver": ["noisy-md", "descent"]}),
}
TEXT = {
    "plain text": (
        {"solver": NoisyMD()},
        {"solver__data_norm": [2.0, 4.0, 8.0]} | balls(5.0, 20.0, 80.0),
    )
}


def synthetic() -> Iterator[tuple[str, Any, Any, str, dict[str, Any]]]:
    """Mixed columns of unequal spread and a linear truth."""
    for task in ("reg", "clf"):
        for n, d in ((2000, 10), (20_000, 40)):
            rng = np.random.default_rng(n)
            spread = rng.uniform(0.1, 1, d)
            X = np.clip(rng.standard_normal((n, d)) * spread / 3, -1, 1)
            X[:, ::3] = X[:, ::3] > 0.1
            z = X @ (rng.standard_normal(d) / spread)
            z /= z.std()
            y = np.clip((z + 0.7 * rng.standard_normal(n)) / 6, -1, 1)
            if task == "clf":
                y = (z - 0.8 + rng.logistic(size=n) > 0).astype(int)
            bounds = {"bounds_X": (-1, 1)} | ({"bounds_y": (-1, 1)} if task == "reg" else {})
            yield f"{task} {n} x {d}", X, y, task, bounds


def from_folder(folder: Path) -> Iterator[tuple[str, Any, Any, str, dict[str, Any]]]:
    """Dense or sparse tables scaled to [-1, 1]."""
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as file:
            y, task = file["y"], str(file["task"])
            if "X" in file:
                X = file["X"].astype(float)
            else:
                parts = np.ones(file["indices"].size), file["indices"], file["indptr"]
                X = sparse.csr_matrix(parts, shape=file["shape"])
        if task != "multi":
            yield (
                path.stem,
                X,
                y,
                task,
                {"bounds_X": (-1, 1)} | ({"bounds_y": (-1, 1)} if task == "reg" else {}),
            )


def score(model: Any, X: Any, y: Any, task: str) -> float:
    """R2 or AUC."""
    if task == "reg":
        return float(model.score(X, y))
    return float(roc_auc_score(y, model.decision_function(X)))


def compare(table: Any, case: Any, epsilon: float, seeds: int) -> tuple[float, ...]:
    """Medians of the default, of the search and of the best candidate; how often it was chosen."""
    _, X, y, task, bounds = table
    changed, grid = case
    common = {"relation": "zero-out", "delta": 1e-6}
    kind = DPMirrorRegressor if task == "reg" else DPMirrorClassifier
    declared = {} if task == "reg" else {"classes": sorted(set(y))}
    default = kind(**common, **bounds, **changed, **declared)
    found = []
    for seed in range(seeds):
        order = np.random.default_rng(seed).permutation(len(y))
        train, test = np.split(order, [int(0.75 * len(y))])
        search = DPGridSearchCV(default, grid, epsilon=epsilon, random_state=seed, **common).fit(
            X[train], y[train]
        )
        alone = [
            clone(default).set_params(**settings, epsilon=epsilon, random_state=1000 + seed)
            for settings in search.candidates_
        ]
        fitted = [model.fit(X[train], y[train]) for model in alone]
        scores = [score(model, X[test], y[test], task) for model in (search, *fitted)]
        found.append((*scores, search.best_index_ > 0))
    medians = np.median([row[:-1] for row in found], axis=0)
    return medians[1], medians[0], medians[1:].max(), float(np.mean([row[-1] for row in found]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 2.0, 4.0])
    parser.add_argument("--tables", nargs="+")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    tables = [*packaged(), *synthetic()]
    tables = list(from_folder(arguments.folder)) if arguments.folder else tables
    print(f"{'table':18s}{'case':16s}{'eps':>4s}  default search oracle  moved")
    for table in tables:
        name, X, y, task, bounds = table
        if arguments.tables and name not in arguments.tables:
            continue
        wide = {key: widened(pair, 5.0) for key, pair in bounds.items()}
        cases = TEXT if sparse.issparse(X) else {**GRIDS, "wide, plain": GRIDS["plain steps"]}
        for case, settings in cases.items():
            changed = (name, X, y, task, wide if case.startswith("wide") else bounds)
            for epsilon in arguments.epsilons:
                row = compare(changed, settings, epsilon, arguments.seeds)
                cells = "  ".join(f"{value:.3f}" for value in row[:3])
                print(f"{name:18s}{case:16s}{epsilon:4g}  {cells}  {row[3]:.1f}", flush=True)


if __name__ == "__main__":
    main()
