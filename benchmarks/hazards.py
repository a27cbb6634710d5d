"""Survival curves of hazard models by the number of periods: `python benchmarks/hazards.py`.

5,000 persons with piecewise constant hazards of about 5 % in each of 10 units of time, proportional
in four features; a third have the event, a fifth are censored before the end. 50 tables (seeds 0 to
49, of tables and of noise), zero-out, delta 1e-6. Each cell: median and worst table of the largest
error over the mean survival curve, or over the logarithms of the features' odds ratios. "whole":
the fit without privacy against the truth. With `--inference`, of fits with standard errors; with
`--poisson`, of the piecewise exponential model, a Poisson regression with exposure.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression, PoissonRegressor

from sklearn_dpsco import DPLogisticRegression, DPPoissonRegressor, person_periods, survival_curve

N, SEEDS = 5000, range(50)
EFFECTS = np.array([0.5, -0.3, 0.4, 0.0])
RATES = np.linspace(1.2, 0.8, 10) * 0.05 / np.exp(0.25)
GRIDS = {10: range(11), 5: range(0, 11, 2), 3: (0, 3, 6, 10)}
NAMES = ["a", "b", "c", "d"]


def table_of(seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Persons, and their true mean survival at times 0, 1, ..., 10."""
    rng = np.random.default_rng(seed)
    normal, flags = rng.normal(size=(N, 2)).clip(-3, 3), rng.random((N, 2)) < [0.4, 0.5]
    X = np.column_stack((normal, flags))
    ratio = np.exp(X @ EFFECTS)
    total = np.append(0, RATES.cumsum())
    times = np.interp(rng.exponential(size=N) / ratio, total, np.arange(11), right=99)
    seen = np.where(rng.random(N) < 0.28, rng.uniform(0, 10, N), 99)
    table = pd.DataFrame(X, columns=NAMES)
    table["time"], table["event"] = np.minimum(times, seen), times <= seen
    return table, np.exp(-np.outer(ratio, total)).mean(axis=0)


def errors(seed: int, epsilon: float, periods: int, inference: bool, poisson: bool) -> list[float]:
    """Of the curve against the fit without privacy and the truth, of it, and of log ratios."""
    grid, (table, truth) = GRIDS[periods], table_of(seed)
    rows = person_periods(table, "time", "event", periods=grid, exposure=poisson)
    flags = pd.get_dummies(rows["period"], prefix="period", dtype=float).iloc[:, 1:]
    rows = pd.concat((rows, flags), axis=1)
    features = [*NAMES, *flags.columns]
    X, y, is_known = rows[features], rows["event"], rows["event"].notna()
    settings = {
        "epsilon": epsilon,
        "delta": 1e-6,
        "relation": "zero-out",
        "bounds_X": {name: (-3, 3) if name in "ab" else (0, 1) for name in features},
        "max_rows_per_user": periods,
        "nonfinite": "zero",
        "precision": "float",
        "inference": inference,
        "random_state": seed,
    }
    lengths = (rows["stop"] - rows["start"]).to_numpy()
    if poisson:
        plain: Any = PoissonRegressor(alpha=0, max_iter=2000)
        of_known, years = X[is_known], rows["exposure"][is_known]
        plain.fit(of_known, y[is_known] / years, sample_weight=years)
        hazards = -np.expm1(-plain.predict(X) * lengths)
        bounds = {"bounds_y": (0, 1), "bounds_exposure": (0.05, lengths.max())}
        model: Any = DPPoissonRegressor(**settings, **bounds)
        model.fit(X, y, groups=rows["person"], exposure=rows["exposure"])
    else:
        plain = LogisticRegression(C=1e6, max_iter=2000).fit(X[is_known], y[is_known])
        hazards = plain.predict_proba(X)[:, 1]
        model = DPLogisticRegression(**settings, classes=[0, 1])
        model.fit(X, y, groups=rows["person"])
    reference = np.cumprod(1 - hazards.reshape(N, -1), axis=1).mean(axis=0)
    curve = survival_curve(model, rows, by=None).survival[0, 1:]
    coef = model.summary().coef.ravel() if inference else model.coef_.ravel()
    true, of_plain = truth[list(grid)[1:]], plain.coef_.ravel()
    gaps = curve - reference, curve - true, reference - true, coef[:4] - of_plain[:4]
    return [float(np.abs(gap).max()) for gap in gaps]


def main() -> None:
    flags = "--inference" in sys.argv, "--poisson" in sys.argv
    print("epsilon periods  curve, no privacy   curve, truth        whole           log ratios")
    for epsilon in (3.0, 1.0):
        for periods in GRIDS:
            found = np.array([errors(seed, epsilon, periods, *flags) for seed in SEEDS])
            cells = [f"{np.median(part):.4f} {part.max():.4f}" for part in found.T]
            print(f"{epsilon:7g} {periods:7}  ", "     ".join(cells), flush=True)


if __name__ == "__main__":
    main()
