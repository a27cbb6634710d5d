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

from sklearn_dpsco import DPLassoFW, DPLassoFWClassifier
from sklearn_dpsco.audit import audit

EPSILON = 4.0
SETTINGS = [("gradient", 1e-6), ("selection", 1e-6), ("selection", 0.0)]


def tables(n: int = 20, d: int = 2) -> tuple[tuple, tuple]:
    """Two records carry weight and balance each other; in the neighbour they agree."""
    X, y = np.zeros((n, d)), np.tile([1.0, -1.0], n // 2)
    X[:2, 0] = 1
    other = y.copy()
    other[0] = -1
    return (X, y), (X, other)


def estimators(run: str) -> dict[str, object]:
    """The estimators by name."""
    common = {"epsilon": EPSILON, "bounds_X": (-1, 1)}
    if run == "sharp":
        common |= {"max_iter": 1, "gradient_clip": 0.3, "data_norm": 1.0, "fit_intercept": False}
    kinds = {
        DPLassoFW: {"bounds_y": (-1, 1)},
        DPLassoFWClassifier: {"classes": [-1, 1]},
    }
    return {
        f"{kind.__name__} {solver} delta={delta:g}": kind(
            solver=solver, delta=delta, **common, **extra
        )
        for kind, extra in kinds.items()
        for solver, delta in SETTINGS
    }


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
