"""How the defaults of the Frank-Wolfe solver were chosen: a reproducible study.

    python benchmarks/defaults_study.py              every table, about 20 minutes
    python benchmarks/defaults_study.py clip radius  some of them
    python benchmarks/defaults_study.py --quick      smaller cases, about 2 minutes

Each table moves one default and leaves the others alone. A number is the mean over the
cases of a model's skill: the R2 or 2 AUC - 1 on test data, divided by that of the truth
(1 is the truth, 0 the trivial predictor, at least -1), one column for each epsilon
(delta = 1e-6, replace-one). The row marked * is the default.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from constants import scaled_defaults
from sklearn.metrics import r2_score, roc_auc_score
from synthetic import Case, make

from sklearn_dpsco import DPLassoFW, DPLassoFWClassifier
from sklearn_dpsco.solvers import Gradient, Selection
from sklearn_dpsco.solvers.defaults import FIRST_RELEASES, FRANK_WOLFE

FORMS = (Gradient, Selection)
SETS = (FIRST_RELEASES, *FRANK_WOLFE.values())
EPSILONS = (0.1, 0.3, 1.0, 3.0, 8.0)


def cases(task: str, quick: bool) -> list[Case]:
    """Sizes from 200 x 5 to 60,000 x 20,000 (a million rows: `large`)."""
    small = [
        Case(200, 5, 5, "skewed", task),
        Case(200, 5, 5, "uniform", task, "narrow"),
        Case(1000, 5, 5, "uniform", task, "narrow"),
        Case(1000, 10, 10, "skewed", task),
        Case(3000, 30, 10, "signs", task),
        Case(3000, 50, 20, "skewed", task),
        Case(5000, 50, 50, "uniform", task),
        Case(5000, 200, 5, "uniform", task),
    ]
    if quick:
        return small
    return [
        *small,
        Case(2000, 300, 5, "signs", task),
        Case(10000, 10, 5, "skewed", task),
        Case(20000, 100, 10, "binary", task),
        Case(5000, 1000, 5, "uniform", task),
        Case(20000, 5000, 10, "bag", task),
        Case(60000, 20000, 10, "bag", task),
    ]


def large(task: str) -> list[Case]:
    """Up to a million rows and 100,000 columns; run by name only."""
    return [
        Case(200_000, 20, 20, "skewed", task),
        Case(1_000_000, 5, 5, "skewed", task),
        Case(200_000, 100_000, 20, "bag", task),
        Case(1_000_000, 100_000, 20, "bag", task),
    ]


def skill(case: Case, epsilon: float, seed: int, **settings: Any) -> float:
    """Skill of one private fit; the data and the noise follow from the seed."""
    X, y, X_test, y_test, truth = make(case, seed)
    common = {"epsilon": epsilon, "bounds_X": (-1, 1), "random_state": seed, **settings}
    if case.features in ("binary", "bag"):
        common["bounds_X"] = (0, 1)
    if case.task == "reg":
        model = DPLassoFW(bounds_y=(-1, 1), **common).fit(X, y)
        best = r2_score(y_test, truth)
        return max(-1.0, r2_score(y_test, model.predict(X_test)) / best)
    model = DPLassoFWClassifier(classes=[0, 1], **common).fit(X, y)
    best = 2 * roc_auc_score(y_test, truth) - 1
    return (2 * roc_auc_score(y_test, model.decision_function(X_test)) - 1) / best


def table(title: str, rows: dict[str, Any], on: Callable[[str], list[Case]], seeds: int) -> None:
    """Print the mean skill of each row: a pair (estimator settings, factors of defaults)."""
    for task in ("reg", "clf"):
        print(f"\n{title}, {task}: mean skill at epsilon = {EPSILONS}")
        for name, choose in rows.items():
            settings, factors = choose(task)
            with scaled_defaults(SETS, factors):
                means = [
                    np.mean([skill(c, e, s, **settings) for c in on(task) for s in range(seeds)])
                    for e in EPSILONS
                ]
            print(f"  {name:28s} {np.mean(means):.3f} |", " ".join(f"{m:6.3f}" for m in means))


def scaled(name: str, factor: float) -> Callable[[str], tuple[dict, dict]]:
    """The default of that name times a factor, for both tasks."""
    return lambda task: ({}, {name: factor})


def settings(**values: Any) -> Callable[[str], tuple[dict, dict]]:
    """Constructor parameters for every case."""
    return lambda task: (values, {})


DEFAULT = {"* default": settings()}

TABLES: dict[str, dict[str, Any]] = {
    "form": DEFAULT | {form: settings(solver=form) for form in ("gradient", "selection")},
    "clip": DEFAULT
    | {f"clip x {f}": scaled("smallest_clip", f) for f in (0.5, 1.5, 2.0)}
    | {f"{kind.form}, clip 1": settings(solver=kind(gradient_clip=1.0)) for kind in FORMS},
    "radius": DEFAULT
    | {f"gradient radius x {f}": scaled("gradient_radius", f) for f in (0.5, 0.75, 1.5, 2.0)}
    | {f"selection radius x {f}": scaled("selection_radius", f) for f in (0.5, 2.0)},
    "steps": DEFAULT
    | {
        f"{kind.form}, {n} steps": settings(solver=kind(max_iter=n))
        for kind in FORMS
        for n in (10, 25, 50, 100, 200, 400)
    },
    "smoothing": DEFAULT
    | {f"smoothing x {f}": scaled("smoothing", f) for f in (0.3, 0.5, 2.0, 10.0)}
    | {f"curvature x {f}": scaled("curvature", f) for f in (0.0, 2.0, 5.0)},
    "shares": DEFAULT
    | {f"intercept noise x {f}": scaled("target_noise", f) for f in (0.5, 2.0)}
    | {f"intercept prior x {f}": scaled("target_prior", f) for f in (0.5, 1e6)}
    | {f"centre share x {f}": scaled("means_share", f) for f in (0.2, 2.0)},
    "thresholds": DEFAULT
    | {f"noisy x {f}": scaled("noisy", f) for f in (0.5, 2.0)}
    | {f"hopeless x {f}": scaled("hopeless", f) for f in (0.3, 3.0)}
    | {f"selectable x {f}": scaled("selectable", f) for f in (0.3, 3.0)}
    | {f"sparsity bet x {f}": scaled("sparsity_bet", f) for f in (0.25, 4.0)},
    "large": DEFAULT | {form: settings(solver=form) for form in ("gradient", "selection")},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="*", help=f"of {', '.join(TABLES)}")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seeds", type=int, default=2)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in arguments.tables or [n for n in TABLES if n != "large"]:
        on = large if name == "large" else lambda task: cases(task, arguments.quick)
        table(name, TABLES[name], on, arguments.seeds)


if __name__ == "__main__":
    main()
