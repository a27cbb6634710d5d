"""Rows that `rows_needed` tells for a score, beside the fewest with which 9 of 10 fits reach it.

    python benchmarks/rows_needed.py [--families normal flags] [--columns 8] [--epsilons 1 3]

The tables are others than those that it simulates, but that some of its own have such flags and
tails where columns are one or two. A line is a family, an epsilon and the score to
reach: the rows told, the share of fits that reach the score with them, the fewest rows (to 20 %)
with which nine of ten do, and told over fewest. delta = 1e-6.
"""

from __future__ import annotations

import argparse
import functools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import brentq
from sklearn.metrics import get_scorer

from sklearn_dpsco import DPLinearRegression, DPLogisticRegression, rows_needed
from sklearn_dpsco.inspection.stand_ins import best_score, scoring_of

N_NEW = 10_000


def normal(rng: np.random.Generator, n: int, d: int) -> Any:
    """One correlation of .3."""
    common = np.sqrt(0.3) * rng.standard_normal((n, 1))
    return (common + np.sqrt(0.7) * rng.standard_normal((n, d))).clip(-5, 5)


def skewed(rng: np.random.Generator, n: int, d: int) -> Any:
    """Amounts, log-normal."""
    return np.exp(normal(rng, n, d)).clip(0, 100)


def flags(rng: np.random.Generator, n: int, d: int) -> Any:
    """Independent, the rarest one of 3 %."""
    return (rng.random((n, d)) < np.geomspace(0.03, 0.5, d)).astype(float)


Columns = Callable[[np.random.Generator, int, int], Any]
# columns, their bounds, classes, what is assumed, the score without privacy, scores to reach
FAMILIES: dict[str, tuple[Columns, Any, int, dict[str, float], float, tuple[float, float]]] = {
    "normal": (normal, (-5, 5), 0, {}, 0.5, (0.45, 0.35)),
    "skewed": (skewed, (0, 100), 0, {}, 0.5, (0.45, 0.35)),
    "flags": (flags, (0, 1), 0, {}, 0.5, (0.45, 0.35)),
    "weak": (normal, (-5, 5), 0, {}, 0.1, (0.08, 0.05)),
    "half": (normal, (-5, 5), 2, {"prevalence": 0.5}, 0.8, (0.77, 0.7)),
    "rare": (normal, (-5, 5), 2, {"prevalence": 0.1}, 0.8, (0.77, 0.7)),
    "clear": (normal, (-5, 5), 2, {"prevalence": 0.5}, 0.97, (0.95, 0.92)),
    "four": (normal, (-5, 5), 4, {}, 0.7, (0.67, 0.6)),
    "few": (normal, (-5, 5), 2, {"prevalence": 0.5}, 0.97, (0.95, 0.92)),  # two columns tell
    "few flags": (flags, (0, 1), 2, {"prevalence": 0.5}, 0.8, (0.77, 0.7)),
}


def signals(family: str, n: int, d: int, rng: np.random.Generator) -> tuple[Any, Any]:
    """X, and its best predictions: of mean 0 and variance 1, of several classes one each."""
    columns, _, n_classes, *_ = FAMILIES[family]
    X = columns(rng, n, d)
    weights = rng.standard_normal((d, n_classes if n_classes > 2 else 1))
    if family.startswith("few"):
        weights[:-2], weights[-2:] = 0, 1
    z = X @ (weights / X.std(axis=0)[:, None])
    return X, np.squeeze((z - z.mean(axis=0)) / z.std(axis=0))


def targets(family: str, strength: float, z: Any, rng: np.random.Generator) -> Any:
    _, _, n_classes, assumed, *_ = FAMILIES[family]
    if n_classes == 0:
        return strength * z + rng.standard_normal(z.size)
    if n_classes > 2:
        return (strength * z + rng.gumbel(size=z.shape)).argmax(axis=1)
    latent = strength * z + rng.logistic(size=z.size)
    return (latent > np.quantile(latent, 1 - assumed["prevalence"])).astype(int)


@functools.cache
def strength_of(family: str, d: int) -> float:
    """With which signals have the score without privacy."""
    _, _, n_classes, _, score, _ = FAMILIES[family]
    _, z = signals(family, 50_000, d, np.random.default_rng(0))

    def excess(strength: float) -> float:
        rng = np.random.default_rng(1)
        return best_score(n_classes > 0, targets(family, strength, z, rng), z) - score

    return float(brentq(excess, 0, 50, xtol=1e-2))


def share_of(family: str, model: Any, d: int, loss: float, n_fits: int, n: int) -> float:
    """Of fits to n rows, those that lose no more."""
    n_classes, scorer = FAMILIES[family][2], get_scorer(scoring_of(model)[0])
    n_hits = 0
    for seed in range(n_fits):
        rng = np.random.default_rng(10_000 + seed)
        X, z = signals(family, n + N_NEW, d, rng)
        y = targets(family, strength_of(family, d), z, rng)
        if n_classes == 0:
            y = y / y.std()
        model.set_params(random_state=seed).fit(X[:n], y[:n])
        n_hits += best_score(n_classes > 0, y[n:], z[n:]) - scorer(model, X[n:], y[n:]) <= loss
        if seed + 1 - n_hits > 0.3 * n_fits:  # far from nine of ten
            break
    return n_hits / (seed + 1)


def fewest(told: int, share: Callable[[int], float]) -> float:
    """The fewest rows, by halving."""
    high = float(told)
    while high > 32 and share(round(high / 2)) >= 0.9:
        high /= 2
    low = high / 2
    while high / low > 1.2:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if share(round(middle)) >= 0.9 else (middle, high)
    return high


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fits", type=int, default=40)
    parser.add_argument("--relation", default="zero-out")
    parser.add_argument("--columns", type=int, default=8)
    parser.add_argument("--families", nargs="+", default=list(FAMILIES))
    parser.add_argument("--epsilons", nargs="+", type=float, default=[1.0, 3.0])
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    settings: dict[str, Any] = {"relation": given.relation, "delta": 1e-6, "precision": "float"}
    print("family    epsilon score   told share  fewest ratio")
    for family in given.families:
        _, bounds, n_classes, assumed, at_best, scores = FAMILIES[family]
        for epsilon in given.epsilons:
            settings |= {"bounds_X": bounds, "epsilon": epsilon}
            model: Any = DPLinearRegression(bounds_y=(-5, 5), **settings)
            if n_classes:
                model = DPLogisticRegression(classes=np.arange(n_classes), **settings)
            for score in scores:
                asked = {"score": score, "score_without_privacy": at_best, **assumed}
                told = rows_needed(model, given.columns, **asked)
                facts = family, model, given.columns, at_best - score, given.fits
                share = functools.partial(share_of, *facts)
                n = fewest(told, share)
                print(
                    f"{family:10}{epsilon:7g}{score:6g}{told:7}{share(told):6.2f}{n:8.0f}"
                    f"{told / n:6.1f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
