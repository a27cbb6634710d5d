"""How often 95 % intervals of inference=True cover, and how wide they are.

    python benchmarks/intervals.py                  all designs, about a minute
    python benchmarks/intervals.py --designs flags --epsilon 1 3 --rows 50000 --columns 10

Slopes pooled, at delta = 1e-6 (under zero-out, if nothing is said), against the coefficients of
the population. "(se)" is of the coverage, over tables; "worst" the slope covered least often;
"width" the median of the intervals over those of a fit without privacy to the same rows (HC0; of
three classes those of statsmodels), "widest" that of the slope that pays most. "whole line" are
intervals without ends, left out of the rest. Of three classes they are of differences from the
first one.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from scipy import stats
from scipy.special import expit

from sklearn_dpsco import DPLinearRegression, DPLogisticRegression

REGRESSIONS = "normal", "varying", "misspecified", "flags", "skewed", "zeros", "uneven"
COMMON = {"logistic50": 0.0, "logistic20": -1.6, "logistic5": -3.4}  # the intercept
RELATIONS = "zero-out", "replace-one"
DESIGNS = (*REGRESSIONS, *COMMON, "three")
N_POPULATION = 1_000_000  # rows for coefficients that have no formula


def table(design: str, n: int, d: int, rng: np.random.Generator) -> tuple[Any, ...]:
    """X, y, public bounds of both (of labels None), and the slopes if they are known."""
    slopes = np.linspace(1, 0.2, d) / np.sqrt(d)
    if design == "flags":  # one of 1 %, half of 30 %, and numbers
        n_flags = 1 + d // 2
        rare, usual = rng.random((n, 1)) < 0.01, rng.random((n, d // 2)) < 0.3
        X = np.hstack((rare, usual, rng.normal(size=(n, d - n_flags)).clip(-5, 5)))
        slopes[0] += 1
        bounds_X: Any = (
            np.where(np.arange(d) < n_flags, 0, -5),
            np.where(np.arange(d) < n_flags, 1, 5),
        )
    elif design == "skewed":
        X, bounds_X = np.exp(0.8 * rng.normal(size=(n, d))).clip(0, 30), (0, 30)
    else:
        root = np.linalg.cholesky(0.7 * np.eye(d) + 0.3)
        X, bounds_X = (rng.normal(size=(n, d)) @ root.T).clip(-5, 5), (-5, 5)
        if design == "uneven":  # one column's bounds are 50 times wider than need be
            widths = 5 * np.where(np.arange(d) == 0, 50, 1)
            bounds_X = -widths, widths
    z = X @ slopes
    if design in COMMON:
        y = (rng.random(n) < expit(1.2 * z + COMMON[design])).astype(int)
        return X, y, bounds_X, None, 1.2 * slopes
    if design == "three":
        scores = np.column_stack((z, -z, 0.5 * X[:, -1]))
        last = 0.5 * np.eye(d)[-1]
        y = (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
        return X, y, bounds_X, None, np.concatenate((-2 * slopes, last - slopes))
    if design == "zeros":
        y = np.exp(rng.normal(size=n) + 0.5 * X[:, 0]) * (rng.random(n) > 0.85)
        return X, y.clip(0, 50), bounds_X, (0, 50), None
    if design == "varying":
        y = z + (0.3 + np.abs(X[:, 0])) * rng.normal(size=n)
    elif design == "misspecified":
        y = z + 0.5 * (X[:, 0] ** 2 - 1) + rng.normal(size=n)
    else:
        y = z + rng.normal(size=n)
    return X, y.clip(-20, 20), bounds_X, (-20, 20), slopes


def not_private(X: Any, y: Any, classes: Any) -> tuple[Any, Any]:
    """Slopes, and their standard errors."""
    Z, d = np.column_stack((X, np.ones(len(X)))), X.shape[1]
    if classes is not None and len(classes) > 2:
        import statsmodels.api as sm

        found = sm.MNLogit(y, Z).fit(disp=0)
        return found.params[:d].T.ravel(), found.bse[:d].T.ravel()
    coef = np.linalg.lstsq(Z, y, rcond=None)[0] if classes is None else np.zeros(d + 1)
    weights = np.ones(len(Z))
    for _ in range(0 if classes is None else 20):
        p = expit(Z @ coef)
        weights = p * (1 - p)
        coef += np.linalg.solve((Z.T * weights) @ Z, Z.T @ (y - p))
    residuals = y - (Z @ coef if classes is None else expit(Z @ coef))
    bread = np.linalg.inv((Z.T * weights) @ Z)
    return coef[:d], np.sqrt(np.diag(bread @ (Z.T * residuals**2) @ Z @ bread))[:d]


def fit(
    design: str, n: int, d: int, epsilon: float, relation: str, truth: Any, seed: int
) -> tuple[Any, Any]:
    """Whether the interval of each slope covers (NaN: the whole line), and its width."""
    X, y, bounds_X, bounds_y, _ = table(design, n, d, np.random.default_rng([seed, n, d]))
    classes = None if bounds_y else [*range(3 if design == "three" else 2)]
    common: Any = {"epsilon": epsilon, "delta": 1e-6, "relation": relation, "bounds_X": bounds_X}
    common |= {"inference": True, "random_state": seed}
    model: Any = (
        DPLinearRegression(bounds_y=bounds_y, **common)
        if classes is None
        else DPLogisticRegression(classes=classes, **common)
    )
    found = model.fit(X, y).summary()
    functions = np.eye(found.coef.size).reshape(*found.coef.shape, -1)
    if len(found.coef) > 1:  # less those of the first class
        functions = functions[1:] - functions[:1]
    functions = functions[:, :d].reshape(-1, found.coef.size)
    half = found.half_widths(functions)
    errors = functions @ found.coef.ravel() - truth
    known = np.where(np.isinf(half), np.nan, 1.0)
    width = known * half / (1.96 * not_private(X, y, classes)[1])
    return known * (np.abs(errors) <= half), width


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sets", type=int, default=40, help="tables of each design")
    parser.add_argument("--designs", nargs="+", choices=DESIGNS, default=DESIGNS)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[3.0])
    parser.add_argument("--relation", choices=RELATIONS, default="zero-out")
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--columns", type=int, default=5)
    args = parser.parse_args()
    print("design        epsilon  covered  (se)   worst  width  widest  whole line")
    for design in args.designs:
        *_, bounds_y, truth = table(design, 10, args.columns, np.random.default_rng(0))
        if truth is None:
            X, y, *_ = table(design, N_POPULATION, args.columns, np.random.default_rng(0))
            truth = not_private(X, y, None if bounds_y else [0, 1])[0]
        for epsilon in args.epsilon:
            try:
                runs = [
                    fit(design, args.rows, args.columns, epsilon, args.relation, truth, seed)
                    for seed in range(args.sets)
                ]
            except ValueError as refusal:  # too few rows
                print(f"{design:13s} {epsilon:7g}  {refusal}")
                continue
            covers, widths = map(np.array, zip(*runs, strict=True))
            by_table = np.nanmean(covers, axis=1)
            each = np.nanmedian(widths, axis=0)
            print(
                f"{design:13s} {epsilon:7g} {np.nanmean(covers):8.3f} {stats.sem(by_table):6.3f} "
                f"{np.nanmin(np.nanmean(covers, axis=0)):7.3f} {np.nanmedian(widths):6.2f} "
                f"{np.nanmax(each):7.2f} {np.isnan(covers).mean():11.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
