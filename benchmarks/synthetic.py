"""Synthetic tasks with known truths, for the study of the defaults.

The numbers that become defaults come from these. Where they left a choice open, the public
real tables of `utility.py` were looked at too, so the defaults' scores on those tables
flatter a little: see the note in `solvers/frank_wolfe.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import expit


@dataclass(frozen=True)
class Case:
    """One synthetic task."""

    n: int
    d: int
    support: int  # non-zero coefficients of the truth
    # "uniform"; "signs"; "skewed": most of the mass in a fifth of the bounds, off centre and
    # correlated, as where bounds come from domain knowledge; "binary": 0/1 with 10 % ones;
    # "bag": sparse rows with about 20 ones
    features: str
    task: str  # "reg" or "clf"
    target: str = "wide"  # "narrow": far from the middle of the bounds and close together

    def __str__(self) -> str:
        return f"{self.task} n={self.n} d={self.d} k={self.support} {self.features} {self.target}"


def _features(case: Case, n: int, rng: np.random.Generator) -> Any:
    d = case.d
    if case.features == "uniform":
        return rng.uniform(-1, 1, (n, d))
    if case.features == "signs":
        return rng.choice([-1.0, 1.0], size=(n, d))
    if case.features == "skewed":
        common = rng.normal(size=(n, 1))
        raw = 0.6 * common + 0.8 * rng.normal(size=(n, d))
        return np.clip(0.2 * raw - 0.5, -1, 1)
    if case.features == "binary":
        return (rng.random((n, d)) < 0.1).astype(float)
    ones = rng.poisson(20, n)
    indptr = np.concatenate(([0], np.cumsum(ones)))
    columns = (d * rng.random(indptr[-1]) ** 2).astype(np.int64)  # a few frequent words
    X = sparse.csr_matrix((np.ones(indptr[-1]), columns, indptr), shape=(n, d))
    X.sum_duplicates()
    X.data[:] = 1.0
    return X


def make(case: Case, seed: int, n_test: int = 4000) -> tuple[Any, ...]:
    """X, y, X_test, y_test and the truth's predictions on X_test.

    Features lie in [-1, 1] or [0, 1]; regression targets in [-1, 1] with an R2 of the
    truth of about 0.8; labels are 0 and 1 with an AUC of the truth of about 0.88.
    """
    rng = np.random.default_rng([seed, case.n, case.d, case.support])
    X = _features(case, case.n + n_test, rng)
    coef = np.zeros(case.d)
    if case.features == "bag":  # words that occur
        candidates = np.arange(min(case.d, 20 * case.support))
    else:
        candidates = np.arange(case.d)
    chosen = rng.choice(candidates, min(case.support, candidates.size), replace=False)
    coef[chosen] = rng.choice([-1, 1], chosen.size) * rng.uniform(0.5, 1, chosen.size)
    z = X @ coef
    z = (z - z.mean()) / z.std()
    if case.task == "reg":
        z *= 0.3
        y = np.clip(z + 0.15 * rng.normal(size=z.size), -1, 1)
        if case.target == "narrow":
            y, z = 0.6 + 0.4 * y, 0.6 + 0.4 * z
    else:
        z = 2 * z - 1
        y = (rng.random(z.size) < expit(z)).astype(int)
    n = case.n
    return X[:n], y[:n], X[n:], y[n:], z[n:]
