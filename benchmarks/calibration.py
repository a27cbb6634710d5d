"""What the models say in numbers: means of skewed targets, and probabilities.

    python benchmarks/calibration.py                 DPLinearRegression and DPLogisticRegression
    python benchmarks/calibration.py --rows 5000     of other sizes
    python benchmarks/calibration.py --seeds 20

At epsilon = .5 / 1 / 3 / 8 (zero-out, delta = 1e-6), medians over seeds. Of a regression: R2 less
that of least squares, and the mean prediction less the mean target, in standard deviations of the
targets. Of a classification: log loss less that of logistic regression, and less that of a refit of
slope and intercept on the same scores, which pays for no privacy; and the slope of that refit.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import log_loss, r2_score

from sklearn_dpsco import DPLinearRegression, DPLogisticRegression

EPSILONS = (0.5, 1.0, 3.0, 8.0)
TARGETS = ("normal", "lognormal", "counts", "amounts, 90 % zeros")
CLASSES = {"1 %": -5.5, "5 %": -3.5, "30 %": -1.0, "half": 0.0}  # and the intercept
N_TEST = 10_000


def rows(n: int, d: int, rng: np.random.Generator) -> Any:
    """Columns in [-1, 1], and a signal of standard deviation 1 on the training rows."""
    X = rng.uniform(-1, 1, (n + N_TEST, d))
    z = X @ rng.standard_normal(d)
    return X, z / z[:n].std()


def target(law: str, z: Any, rng: np.random.Generator) -> tuple[Any, tuple[float, float]]:
    """Targets and their public bounds."""
    if law == "lognormal":
        return np.exp(0.5 * z + rng.standard_normal(z.size)).clip(0, 50), (0, 50)
    if law == "counts":
        return rng.poisson(np.exp((-1 + 0.6 * z).clip(-9, 4))).clip(0, 20), (0, 20)
    if law == "normal":
        return (z + rng.standard_normal(z.size)).clip(-10, 10), (-10, 10)
    amounts = np.where(rng.random(z.size) < expit(-2.2 + 0.5 * z), rng.gamma(2, 2000, z.size), 0.0)
    return amounts.clip(0, 50_000), (0, 50_000)


def of_regression(law: str, n: int, d: int, epsilon: float, seed: int) -> tuple[float, ...]:
    """R2 less that of least squares, and the bias of the mean."""
    rng = np.random.default_rng(seed)
    X, z = rows(n, d, rng)
    y, bounds = target(law, z, rng)
    settings: Any = {"delta": 1e-6, "relation": "zero-out", "random_state": seed}
    model = DPLinearRegression(epsilon=epsilon, bounds_X=(-1, 1), bounds_y=bounds, **settings)
    found = model.fit(X[:n], y[:n]).predict(X[n:])
    best = LinearRegression().fit(X[:n], y[:n]).predict(X[n:])
    bias = float(found.mean() - y[n:].mean()) / y[n:].std()
    return r2_score(y[n:], found) - r2_score(y[n:], best), bias


def of_classes(law: str, n: int, d: int, epsilon: float, seed: int) -> tuple[float, ...]:
    """Log loss less that of logistic regression and of a refit, and the refit's slope."""
    rng = np.random.default_rng(seed)
    X, z = rows(n, d, rng)
    y = (rng.random(z.size) < expit(2 * z + CLASSES[law])).astype(int)
    settings: Any = {"delta": 1e-6, "relation": "zero-out", "random_state": seed}
    model = DPLogisticRegression(epsilon=epsilon, bounds_X=(-1, 1), classes=[0, 1], **settings)
    model.fit(X[:n], y[:n])
    best = LogisticRegression(max_iter=1000).fit(X[:n], y[:n]).predict_proba(X[n:])[:, 1]
    scores, truth = model.decision_function(X[n:])[:, None], y[n:]
    refit = LogisticRegression(C=1e6).fit(scores, truth)
    own = log_loss(truth, expit(scores[:, 0]))
    again = log_loss(truth, refit.predict_proba(scores)[:, 1])
    return own - log_loss(truth, best), own - again, float(refit.coef_[0, 0])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=15_000)
    parser.add_argument("--columns", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=10)
    arguments = parser.parse_args()
    n, d = arguments.rows, arguments.columns
    heads = (
        "R2 less least squares'; bias of the mean",
        "log loss less logreg's; less a refit's; slope",
    )
    for laws, measure, head in (
        (TARGETS, of_regression, heads[0]),
        (CLASSES, of_classes, heads[1]),
    ):
        print(f"\n{n} x {d}: {head}, at epsilon {EPSILONS}")
        for law in laws:
            cells = []
            for epsilon in EPSILONS:
                found = [measure(law, n, d, epsilon, s) for s in range(arguments.seeds)]
                cells.append(" ".join(f"{v:7.3f}" for v in np.median(found, axis=0)))
            print(f"{law:22s}", " | ".join(cells), flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
