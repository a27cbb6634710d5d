"""Measured lower bounds on epsilon against the claims, for every estimator.

    python benchmarks/audit_table.py [--trials 5000]

One row each: the claim, the bound without assumptions, the bound for Gaussian noise (NaN
for pure DP; not a bound for selections), and the seconds for both tables. The record
flips its label. "sharp" is one step on tight clips without an intercept, where little is
lost; "default" leaves everything to the plan, whose many releases and clips hide much of
what a record does.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import sklearn_dpsco
from sklearn_dpsco.audit import audit

EPSILON = 4.0
ESTIMATORS = [
    name for name in sklearn_dpsco.__all__ if hasattr(getattr(sklearn_dpsco, name), "fit")
]
COMMON = {"epsilon": EPSILON, "bounds_X": (-1, 1), "bounds_y": (-1, 1), "classes": [-1, 1]}
# one step on tight clips without an intercept, known scales; whatever a class has of these
SHARP = {
    "max_iter": 1, "gradient_clip": 0.3, "data_norm": 1.0, "fit_intercept": False,
    "n_phases": 1, "batch_size": 20, "tau": 0.3, "scale_X": 1.0, "scale_y": 1.0,
    "center_X": 0.0, "center_y": 0.0,
}  # fmt: skip
VARIANTS = {"DPLassoFW": [{"solver": "selection"}, {"solver": "selection", "delta": 0.0}]}


def tables(n: int = 20, d: int = 2) -> tuple[tuple, tuple]:
    """Two records carry weight and balance each other; in the neighbour they agree."""
    X, y = np.zeros((n, d)), np.tile([1.0, -1.0], n // 2)
    X[:2, 0] = 1
    other = y.copy()
    other[0] = -1
    return (X, y), (X, other)


def estimators(run: str) -> dict[str, object]:
    """The estimators by name."""
    models = {}
    for name in ESTIMATORS:
        kind = getattr(sklearn_dpsco, name)
        known = kind().get_params()
        wanted = COMMON | (SHARP if run == "sharp" else {})
        if name.startswith("DPMirror"):
            wanted.pop("batch_size", None)  # there, 20 of 20 records are the full batch anyway
        for variant in [{}, *VARIANTS.get(name.removesuffix("Classifier"), [])]:
            settings = {key: value for key, value in wanted.items() if key in known} | variant
            label = " ".join([name, *(f"{key}={value}" for key, value in variant.items())])
            models[label] = kind(**settings)
    return models


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=5000)
    n_trials = parser.parse_args().trials
    print(f"{'estimator':42s} {'run':8s} claim  bound Gaussian seconds")
    for run in ("sharp", "default"):
        for name, model in estimators(run).items():
            start = time.perf_counter()
            found = audit(model, *tables(), n_trials, random_state=0)
            seconds = time.perf_counter() - start
            print(
                f"{name:42s} {run:8s} {EPSILON:5.2f} {found.epsilon_lower_bound:6.2f} "
                f"{found.gaussian_epsilon_lower_bound:8.2f} {seconds:7.1f}"
                + (" FLAGGED" if found.flagged else ""),
                flush=True,
            )


if __name__ == "__main__":
    main()
