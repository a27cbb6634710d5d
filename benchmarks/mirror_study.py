"""How the defaults of mirror descent were chosen: a reproducible study.

    python benchmarks/mirror_study.py              every table, about 10 minutes
    python benchmarks/mirror_study.py reach clip   some of them
    python benchmarks/mirror_study.py --quick      smaller cases, about 2 minutes

Read as `defaults_study.py`: each row moves one default, a number is the mean skill over the
synthetic cases (1 is the truth, 0 the trivial predictor, at least -1), one column for each
epsilon (delta = 1e-6, replace-one). The row marked * is the default.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from defaults_study import EPSILONS, cases
from sklearn.metrics import r2_score, roc_auc_score
from synthetic import Case, make

from sklearn_dpsco import DPMirrorClassifier, DPMirrorRegressor
from sklearn_dpsco.solvers import mirror_descent, preliminaries

DEFAULT: dict[str, Any] = {"* default": {}}

# what a row changes: constructor parameters, or constants by their names times a factor
TABLES: dict[str, dict[str, dict[str, Any]]] = {
    "reach": DEFAULT | {f"reach x {f}": {"_REACH": f} for f in (0.5, 0.7, 1.5, 2.0)},
    "gradient": DEFAULT | {f"gradient x {f}": {"_GRADIENT": f} for f in (0.5, 0.75, 1.5, 2.0)},
    "radius": DEFAULT | {f"radius x {f}": {"_RADIUS": f} for f in (0.25, 0.5, 2.0)},
    "clip": DEFAULT | {f"clip x {f}": {"_SMALLEST_CLIP": f} for f in (0.5, 1.5, 3.0)},
    "steps": DEFAULT | {f"{t} steps": {"max_iter": t} for t in (25, 50, 100, 400)},
    "set": DEFAULT | {name: {"feasible_set": name} for name in ("l2", "l1", "linf")},
    "centre": DEFAULT | {f"centre's reach x {f}": {"_LOCATION_REACH": f} for f in (0.5, 2.0, 5.0)},
}


def skill(case: Case, epsilon: float, seed: int, **settings: Any) -> float:
    """Skill of one private fit; the data and the noise follow from the seed."""
    X, y, X_test, y_test, truth = make(case, seed)
    bounds = (0, 1) if case.features in ("binary", "bag") else (-1, 1)
    common = {"epsilon": epsilon, "bounds_X": bounds, "random_state": seed, **settings}
    common["precision"] = "float"  # the same law, drawn faster
    if case.task == "reg":
        model = DPMirrorRegressor(bounds_y=(-1, 1), **common).fit(X, y)
        return max(-1.0, r2_score(y_test, model.predict(X_test)) / r2_score(y_test, truth))
    model = DPMirrorClassifier(classes=[0, 1], **common).fit(X, y)
    best = 2 * roc_auc_score(y_test, truth) - 1
    return (2 * roc_auc_score(y_test, model.decision_function(X_test)) - 1) / best


def scaled(value: Any, factor: float) -> Any:
    """The constant times the factor, in every entry."""
    if isinstance(value, dict):
        return {key: scaled(entry, factor) for key, entry in value.items()}
    return type(value)(value * factor)


@contextmanager
def constants(changes: dict[str, float]) -> Iterator[None]:
    """The solver with some constants multiplied."""
    owners = {
        name: module
        for name in changes
        for module in (mirror_descent, preliminaries)
        if hasattr(module, name)
    }
    old = {name: getattr(module, name) for name, module in owners.items()}
    for name, module in owners.items():
        setattr(module, name, scaled(old[name], changes[name]))
    try:
        yield
    finally:
        for name, module in owners.items():
            setattr(module, name, old[name])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="*", help=f"of {', '.join(TABLES)}")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seeds", type=int, default=4)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    for title in arguments.tables or TABLES:
        for task in ("reg", "clf"):
            print(f"\n{title}, {task}: mean skill at epsilon = {EPSILONS}")
            for name, changes in TABLES[title].items():
                settings = {k: v for k, v in changes.items() if not k.startswith("_")}
                with constants({k: v for k, v in changes.items() if k.startswith("_")}):
                    means = [
                        np.mean(
                            [
                                skill(case, epsilon, seed, **settings)
                                for case in cases(task, arguments.quick)
                                for seed in range(arguments.seeds)
                            ]
                        )
                        for epsilon in EPSILONS
                    ]
                print(
                    f"  {name:22s} {np.mean(means):.3f} |",
                    " ".join(f"{m:6.3f}" for m in means),
                    flush=True,
                )


if __name__ == "__main__":
    main()
