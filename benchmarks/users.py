"""Persons with several rows: `python benchmarks/users.py [--tasks NAME ...] [--epsilons E ...]`.

Six tasks on seven kinds of tables: persons, most rows of one, columns (half of them flags), whether
all have as many rows or most few, and which part of a row and of its error is the person's. For
each cell and epsilon: the score on new persons of the fit without privacy, then the median and the
worst of ``--seeds`` private fits that are told whose rows are whose (``groups``), and of fits that
are only told how many there may be. Scores are R2, D2 of counts, or the part of the log loss of the
frequencies that is explained; replace-one, delta 1e-6.
"""

from __future__ import annotations

import argparse
import itertools
import warnings

import numpy as np
from scipy.special import log_ndtr
from sklearn.linear_model import LinearRegression, LogisticRegression, PoissonRegressor
from sklearn.metrics import d2_log_loss_score, d2_tweedie_score, r2_score

from sklearn_dpsco import DPLinearRegression, DPLogisticRegression, DPPoissonRegressor

TASKS = "linear", "costs", "half", "rare", "classes", "counts"
TABLES = (
    (2000, 5, 8, "all", 0.0),
    (1000, 20, 8, "all", 0.0),
    (1000, 20, 8, "all", 0.5),
    (2000, 5, 8, "all", 0.999),
    (3000, 10, 15, "few", 0.3),
    (20_000, 4, 10, "all", 0.3),
    (500, 10, 5, "all", 0.2),
)


def table(task, persons, most, d, kind, alike, seed):
    """X, y and the persons of the rows."""
    rng, of_d = np.random.default_rng(seed), np.random.default_rng(d)
    counts = np.full(persons, most)
    if kind == "few":
        counts = np.minimum(most, rng.geometric(0.4, persons))
    of_rows = np.repeat(np.arange(persons), counts)
    n = of_rows.size

    def mixed(*shape):
        own, common = rng.normal(size=(n, *shape)), rng.normal(size=(persons, *shape))[of_rows]
        return alike**0.5 * common + (1 - alike) ** 0.5 * own

    X, error = mixed(d), mixed()
    X[:, d // 2 :] = X[:, d // 2 :] > 0.5
    z = X @ of_d.normal(size=d) / d**0.5
    if task == "linear":
        y = z + error
    elif task == "costs":
        y = np.minimum(np.exp(0.8 * z + 0.8 * error), 60)
    elif task in ("half", "rare"):  # a logistic error
        logistic = log_ndtr(error) - log_ndtr(-error)
        y = (2 * z + logistic > 4 * (task == "rare")) * 1
    elif task == "classes":
        scores = X @ of_d.normal(size=(d, 4)) * 1.5 / d**0.5 + [0, 0.3, -0.3, -1]
        y = (scores + rng.gumbel(size=(n, 4))).argmax(axis=1)
    else:
        y = rng.poisson(np.minimum(np.exp(0.6 * z + 0.5 * error - 0.3), 15))
    return X.clip(-3, 3), y, of_rows


def models(task, d):
    """A private model, one without privacy, and the score of a fit on new rows."""
    low, high = [-3] * (d // 2) + [0] * (d - d // 2), [3] * (d // 2) + [1] * (d - d // 2)
    facts = {"delta": 1e-6, "bounds_X": (low, high), "precision": "float"}
    if task in ("linear", "costs"):
        own = DPLinearRegression(bounds_y=(-8, 8) if task == "linear" else (0, 60), **facts)
        return own, LinearRegression(), lambda fit, X, y: r2_score(y, fit.predict(X))
    if task == "counts":
        own = DPPoissonRegressor(bounds_y=(0, 30), **facts)
        plain = PoissonRegressor(alpha=0, max_iter=1000)
        return own, plain, lambda fit, X, y: d2_tweedie_score(y, fit.predict(X), power=1)
    own = DPLogisticRegression(classes=list(range(4 if task == "classes" else 2)), **facts)
    plain = LogisticRegression(C=1e6, max_iter=1000)
    return own, plain, lambda fit, X, y: d2_log_loss_score(y, fit.predict_proba(X))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", nargs="+", default=TASKS)
    parser.add_argument("--epsilons", nargs="+", type=float, default=(0.5, 1.0, 3.0))
    parser.add_argument("--seeds", type=int, default=10)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    print("task, persons, most rows, columns, rows of each, part in common, epsilon;")
    print("without privacy; median and worst with groups; median and worst without them")
    for task, facts in itertools.product(given.tasks, TABLES):
        own, plain, score = models(task, facts[2])
        for epsilon in given.epsilons:
            found = []
            for seed in range(given.seeds):
                X, y, persons = table(task, *facts, seed)
                new = table(task, 3000, *facts[1:], 1000 + seed)[:2]
                own.set_params(epsilon=epsilon, max_rows_per_user=facts[1], random_state=seed)
                scores = [score(plain.fit(X, y), *new)]
                for groups in (persons, None):
                    scores.append(score(own.fit(X, y, groups=groups), *new))
                found.append(scores)
            middle, worst = np.median(found, axis=0), np.min(found, axis=0)
            numbers = middle[0], middle[1], worst[1], middle[2], worst[2]
            cells = [task, *facts, epsilon, *(f"{number:7.3f}" for number in numbers)]
            print(*(f"{cell!s:>7}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
