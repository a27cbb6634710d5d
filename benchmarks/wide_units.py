"""What the units of wide rows reach on synthetic families, next to the units of the bounds.

    python benchmarks/wide_units.py                         all families
    python benchmarks/wide_units.py --families short dense  some of them
    python benchmarks/wide_units.py --set clear=1.5         with other numbers in the rules
    python benchmarks/wide_units.py --support 20            with 20 features that count

AUC, R2 or accuracy on 4000 other records, mean over the seeds, at epsilon = 0.1 / 0.5 / 1 / 3 / 8,
zero-out, delta = 1e-6. The rules of `WIDE_UNITS` were settled here; the real text tables of
`utility.py --folder` were looked at last.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import warnings
from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import expit
from sklearn.metrics import roc_auc_score

from sklearn_dpsco import (
    DPLassoFW,
    DPLassoFWClassifier,
    DPMirrorClassifier,
    DPMirrorRegressor,
)
from sklearn_dpsco.solvers import defaults

EPSILONS = (0.1, 0.5, 1.0, 3.0, 8.0)
N_TEST = 4000

# records, features; for texts the words of a record and the power of their frequencies
SIZES = {
    "short": (20_000, 20_000), "few": (3000, 5000), "long": (10_000, 20_000),
    "topics": (20_000, 10_000), "flat": (20_000, 20_000), "weighted": (10_000, 20_000),
    "groups": (30_000, 5000), "genomes": (2000, 3000), "dense": (2000, 3000),
    "signs": (20_000, 2000),
}  # fmt: skip
TEXTS = {
    "short": (9, 1.0), "few": (9, 1.0), "long": (100, 1.0), "topics": (40, 1.0),
    "flat": (30, 0.3), "weighted": (60, 1.0),
}  # fmt: skip


def words(family: str, n: int, d: int, rng: np.random.Generator) -> Any:
    """Rows of about so many words, whose frequencies fall like a power of their rank."""
    length, power = TEXTS[family]
    frequency = (np.arange(d) + 5.0) ** -power
    lengths = np.maximum(1, rng.poisson(rng.gamma(3, length / 3, n)))
    document = np.repeat(np.arange(n), lengths)
    n_topics = 8 if family == "topics" else 1
    topic, columns = rng.integers(0, n_topics, n), np.empty(document.size, dtype=np.int64)
    for t in range(n_topics):
        tilt = np.exp(0.9 * rng.standard_normal(d)) if n_topics > 1 else 1.0
        cumulative = np.cumsum(frequency * tilt)
        of_topic = topic[document] == t
        draws = rng.random(np.count_nonzero(of_topic)) * cumulative[-1]
        columns[of_topic] = np.minimum(np.searchsorted(cumulative, draws), d - 1)
    indptr = np.concatenate(([0], np.cumsum(lengths)))
    X = sparse.csr_array((np.ones(columns.size), rng.permutation(d)[columns], indptr), shape=(n, d))
    X.sum_duplicates()
    if family != "weighted":
        X.data[:] = 1.0
        return X
    occurs = np.bincount(X.indices, minlength=d) / n
    X.data = (1 + np.log(X.data)) * -np.log(occurs[X.indices] + 1e-9)
    norms = np.sqrt(X.power(2).sum(axis=1))
    X.data = np.minimum(X.data / np.repeat(norms, np.diff(X.indptr)), 1.0)
    return X


def features(family: str, n: int, d: int, rng: np.random.Generator) -> Any:
    if family in TEXTS:
        return words(family, n, d, rng)
    if family == "groups":  # one of d / 20 levels in each of 20 groups, few of them frequent
        levels = d // 20
        drawn = np.minimum(levels - 1, levels ** rng.random((n, 20)) - 1).astype(int)
        columns = (drawn + levels * np.arange(20)).ravel()
        return sparse.csr_array(
            (np.ones(columns.size), columns, np.arange(n + 1) * 20), shape=(n, d)
        )
    if family == "genomes":  # 0, 1 or 2 copies over 2, of two populations
        odds = np.log(rng.beta(0.6, 1.5, d) + 1e-9) - 0.7
        p = expit(odds + rng.standard_normal((n, 2)) @ (0.25 * rng.standard_normal((2, d))))
        return (rng.random((2, n, d)) < p).sum(axis=0) / 2
    if family == "signs":
        return rng.choice([-1.0, 1.0], (n, d))
    factors = rng.standard_normal((n, 15)) @ rng.standard_normal((15, d)) / np.sqrt(15)
    X = 0.12 * (1.2 * factors + rng.standard_normal((n, d))) * np.exp(0.7 * rng.standard_normal(d))
    return np.clip(X + 0.1 * rng.standard_normal(d), -1, 1)


def table(family: str, k: int, support: int | None, seed: int) -> tuple[Any, Any]:
    """X, and targets (k = 0) or k classes; the last records are for the test."""
    n, d = SIZES[family]
    rng = np.random.default_rng([seed, n, d, len(family)])
    X = features(family, n + N_TEST, d, rng)
    coef = rng.standard_normal((d, k if k > 2 else 1))
    if family == "dense" and support is None:
        coef = np.linalg.svd(X[:2000], full_matrices=False)[2][:15].T @ rng.standard_normal((15, 1))
    if support is not None:
        spread = np.sqrt(np.asarray((X**2).mean(axis=0) - X.mean(axis=0) ** 2)).ravel()
        coef[np.argsort(-spread * rng.random(d))[support:]] = 0.0
    z = np.asarray(X @ coef)
    z = (z - z.mean(axis=0)) / z.std(axis=0)
    if k == 0:
        noise = rng.standard_normal(len(z))
        return X, np.clip(0.2 * np.sqrt(0.5) * (z[:, 0] + noise) - 0.2, -1, 1)
    if k == 2:
        return X, (rng.random(len(z)) < expit(2 * z[:, 0])).astype(int)
    return X, (2 * z + rng.gumbel(size=z.shape)).argmax(axis=1)


def score(model: Any, X: Any, y: Any, k: int) -> float:
    return roc_auc_score(y, model.decision_function(X)) if k == 2 else model.score(X, y)


def private(kinds: tuple[Any, Any], family: str, k: int, epsilon: float, **settings: Any) -> Any:
    low = -1 if family in ("dense", "signs") else 0
    common = {"epsilon": epsilon, "delta": 1e-6, "relation": "zero-out", "bounds_X": (low, 1)}
    if k == 0:
        return kinds[0](bounds_y=(-1, 1), **common, **settings)
    return kinds[1](classes=list(range(k)), **common, **settings)


def study(families: list[str], k: int, support: int | None, seeds: int) -> None:
    mirror, lasso = (DPMirrorRegressor, DPMirrorClassifier), (DPLassoFW, DPLassoFWClassifier)
    ways: tuple[tuple[str, tuple[Any, Any], dict[str, Any]], ...] = (
        ("learned units", mirror, {}),
        ("bounds' units", mirror, {"solver": "noisy-md"}),
        ("selection", lasso, {"solver": "selection"}),
    )
    for family in families:
        n = SIZES[family][0]
        rows: dict[str, list[list[float]]] = {name: [] for name, *_ in ways}
        for seed in range(seeds):
            X, y = table(family, k, support, seed)
            for name, kinds, settings in ways:
                models = [
                    private(kinds, family, k, e, random_state=seed, **settings) for e in EPSILONS
                ]
                scores = [score(model.fit(X[:n], y[:n]), X[n:], y[n:], k) for model in models]
                rows[name].append(scores)
        for name, found in rows.items():
            means = "  ".join(f"{value:6.3f}" for value in np.mean(found, axis=0))
            print(f"{family:10s}K={k:<3d}{name:16s}{means}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--families", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--classes", nargs="+", type=int, default=[0, 2])
    parser.add_argument("--support", type=int)
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE")
    arguments = parser.parse_args()
    pairs = (setting.split("=") for setting in arguments.set)
    changed = {name: ast.literal_eval(value) for name, value in pairs}
    for task, rules in defaults.WIDE_UNITS.items():
        defaults.WIDE_UNITS[task] = dataclasses.replace(rules, **changed)
    warnings.simplefilter("ignore")
    for k in arguments.classes:
        study(arguments.families, k, arguments.support, arguments.seeds)


if __name__ == "__main__":
    main()
