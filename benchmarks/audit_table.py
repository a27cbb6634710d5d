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
from sklearn.base import MetaEstimatorMixin

import sklearn_dpsco
from sklearn_dpsco.audit import audit
from sklearn_dpsco.solvers import FTRL, SCOF, Gradient, NoisyMD, PhasedSGD, Selection

EPSILON = 4.0
ESTIMATORS = [
    name
    for name in sklearn_dpsco.__all__
    if hasattr(getattr(sklearn_dpsco, name), "predict")
    and not issubclass(getattr(sklearn_dpsco, name), MetaEstimatorMixin)
]
COMMON = {"epsilon": EPSILON, "bounds_X": (-1, 1), "bounds_y": (-1, 1), "classes": [-1, 1]}
# no intercept and known scales; whatever a class has of these
SHARP = {
    "fit_intercept": False, "scale_X": 1.0, "scale_y": 1.0, "center_X": 0.0, "center_y": 0.0,
}  # fmt: skip
# one step on tight clips
CLIPS = {"gradient_clip": 0.3, "data_norm": 1.0}
ONE_STEP = {
    "DPLassoFW": Gradient(max_iter=1, **CLIPS),
    "DPMirror": NoisyMD(max_iter=1, **CLIPS),
    "DPPhasedSGD": PhasedSGD(max_iter=1, n_phases=1, **CLIPS),
    "DPFTRL": FTRL(batch_size=20, **CLIPS),
    "HeavyTailDP": SCOF(max_iter=1, tau=0.3),
}


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
    is_sharp = run == "sharp"
    for name in ESTIMATORS:
        kind = getattr(sklearn_dpsco, name)
        known = kind().get_params()
        wanted = COMMON | (SHARP if is_sharp else {})
        steps = [solver for family, solver in ONE_STEP.items() if name.startswith(family)]
        wanted |= {"solver": steps[0]} if steps and is_sharp else {}
        settings = {key: value for key, value in wanted.items() if key in known}
        models[name] = kind(**settings)
        if name.startswith("DPLassoFW"):
            select = Selection(max_iter=1, gradient_clip=0.3) if is_sharp else Selection()
            for delta in ("auto", 0.0):
                chosen = settings | {"solver": select, "delta": delta}
                models[f"{name} selection, delta={delta}"] = kind(**chosen)
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
