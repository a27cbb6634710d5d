"""How the defaults of `NoisyMD` were chosen: a reproducible study.

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
from typing import Any

import numpy as np
from constants import scaled_defaults
from defaults_study import EPSILONS, cases
from sklearn.metrics import r2_score, roc_auc_score
from synthetic import Case, make

from sklearn_dpsco import DPMirrorClassifier, DPMirrorRegressor
from sklearn_dpsco.solvers import NoisyMD
from sklearn_dpsco.solvers.defaults import FIRST_RELEASES, MIRROR_DESCENT

DEFAULT: dict[str, Any] = {"* default": {}}
SETS = (FIRST_RELEASES, *MIRROR_DESCENT.values())

# what a row changes: constructor parameters, or after "=" a default's name, and its factor
TABLES: dict[str, dict[str, dict[str, Any]]] = {
    "reach": DEFAULT | {f"reach x {f}": {"=reach": f} for f in (0.5, 0.7, 1.5, 2.0)},
    "gradient": DEFAULT | {f"gradient x {f}": {"=gradient": f} for f in (0.5, 0.75, 1.5, 2.0)},
    "radius": DEFAULT | {f"radius x {f}": {"=radius": f} for f in (0.25, 0.5, 2.0)},
    "clip": DEFAULT | {f"clip x {f}": {"=smallest_clip": f} for f in (0.5, 1.5, 3.0)},
    "steps": DEFAULT | {f"{t} steps": {"solver": NoisyMD(max_iter=t)} for t in (25, 50, 100, 400)},
    "set": DEFAULT | {name: {"feasible_set": name} for name in ("l2", "l1", "linf")},
    "centre": DEFAULT | {f"centre's reach x {f}": {"=location_reach": f} for f in (0.5, 2.0, 5.0)},
}


def skill(case: Case, epsilon: float, seed: int, **settings: Any) -> float:
    """Skill of one private fit; the data and the noise follow from the seed."""
    X, y, X_test, y_test, truth = make(case, seed)
    bounds = (0, 1) if case.features in ("binary", "bag") else (-1, 1)
    common = {"epsilon": epsilon, "bounds_X": bounds, "random_state": seed, "solver": "noisy-md"}
    common |= {"precision": "float", **settings}  # the same law, drawn faster
    if case.task == "reg":
        model = DPMirrorRegressor(bounds_y=(-1, 1), **common).fit(X, y)
        return max(-1.0, r2_score(y_test, model.predict(X_test)) / r2_score(y_test, truth))
    model = DPMirrorClassifier(classes=[0, 1], **common).fit(X, y)
    best = 2 * roc_auc_score(y_test, truth) - 1
    return (2 * roc_auc_score(y_test, model.decision_function(X_test)) - 1) / best


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
                settings = {k: v for k, v in changes.items() if not k.startswith("=")}
                factors = {k[1:]: v for k, v in changes.items() if k.startswith("=")}
                with scaled_defaults(SETS, factors):
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
