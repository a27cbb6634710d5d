"""How often the 95 % intervals of private scores cover, and how long they are.

    python benchmarks/scores.py                     all cells, 17 minutes on a core
    python benchmarks/scores.py --n 2000 --epsilon 0.5 --missing 0 0.1 --runs 1000

A cell is a score at one n, epsilon, relation and delta, with a share of invalid targets that are
missing at random or not ("hidden": those of the upper half alone, twice as often). Scores are those
of the valid records. "length" is the median of the intervals, "ideal" that of a normal one with
the standard deviation that the released value has over the runs. "below" and "above" are the shares
of intervals that end below the truth, or begin above it. Errors are clipped to five standard
deviations, those of "loose" and "rare" to a range that is released. Targets of "rare" are flags, of
which 2 % are 1, predicted by their probabilities; scores are those of targets within the range. All
cells of one n and share of invalid targets have the same records.
"""

from __future__ import annotations

import argparse
import functools
import itertools
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import expit, ndtri

from sklearn_dpsco import plan_score
from sklearn_dpsco.metrics.releases import Answers
from sklearn_dpsco.randomness.stream import stream_from_random_state

OF_LABELS = ["confusion_matrix", "accuracy", "balanced_accuracy"]
SCORINGS = {
    "labels": OF_LABELS,
    "right": ["accuracy"],
    "ranks": ["roc_auc"],
    "bins": ["roc_auc", "roc_curve"],
    "log loss": ["neg_log_loss"],
    "r2": ["r2", "neg_mean_squared_error"],
    "squared": ["neg_mean_squared_error"],
    "absolute": ["neg_mean_absolute_error"],
    "loose": ["r2", "neg_mean_squared_error"],
    "rare": ["r2", "neg_mean_squared_error"],
}
BY_CLASS = "precision", "recall", "f1"
N_POPULATION = 1_000_000


def risk(x: Any) -> Any:
    """Of a flag, 2 % in the mean."""
    return 0.02 * np.exp(0.8 * x - 0.32)


def draw(rng: np.random.Generator, n: int, missing: float, hidden: bool) -> tuple[Answers, Answers]:
    """Records of a classification and of a regression, and of flags."""
    score = expit(-0.5 + 1.6 * rng.standard_normal(n))
    label = (rng.random(n) < score).astype(int)
    x = rng.standard_normal(n)
    y = x + 0.6 * rng.standard_normal(n)
    flag = (rng.random(n) < risk(x)).astype(float)
    of_upper = 2 * np.array([label, y > 0, flag]) if hidden else 1
    lost = rng.random((3, n)) < missing * of_upper
    answers = {
        "truth": np.where(lost[0], -1, label),
        "predicted": (score > 0.5).astype(int),
        "score": score,
        "own_probability": np.where(lost[0], np.nan, np.where(label == 1, score, 1 - score)),
        "y": np.where(lost[1], np.nan, y),
        "prediction": 0.9 * x,
    }
    return answers, {"y": np.where(lost[2], np.nan, flag), "prediction": risk(x)}


def scores(plan: Any, sums: Any) -> dict[str, tuple[float, float, float]]:
    """Value and ends of the interval of each score that is a number."""
    found = {}
    for name, of in plan.estimates(sums).items():
        if name == "confusion_matrix":
            for measure in BY_CLASS:
                found[measure] = tuple(float(ends[1]) for ends in of["by_class"][measure])
        else:
            found[name] = (of["value"], *of["interval"])
    return found


def of_kind(kind: str) -> dict[str, Any]:
    is_clipped = kind in ("r2", "squared", "absolute")
    return {"scoring": SCORINGS[kind], "max_error": 3 if is_clipped else "auto"}


@functools.cache
def truths(kind: str, missing: float, hidden: bool) -> dict[str, float]:
    """Scores of the population."""
    facts: dict[str, Any] = {"bounds_y": (-5, 5), "invalid": "exclude" if missing else "count"}
    facts |= {"epsilon": 1e9, "delta": 0.0, "precision": "float", **of_kind(kind)}
    if "roc_curve" in SCORINGS[kind]:
        facts["n_thresholds"] = 10_000
    exact = plan_score(N_POPULATION, **facts)
    many, _ = draw(np.random.default_rng(10**6), N_POPULATION, missing, hidden)
    return {name: own[0] for name, own in scores(exact, exact.statistics(many)).items()}


@functools.cache
def truths_of_flags(facts: Any, missing: float, hidden: bool) -> dict[str, float]:
    """Scores of the population within a range, from quantiles of x."""
    p, ends = risk(ndtri((np.arange(4000) + 0.5) / 4000)), (facts.low, facts.high)
    weights = np.array([1 - p, p * (1 - 2 * missing * hidden)])
    y = np.clip([[0.0], [1.0]], *ends)
    error = np.clip(np.clip(p, *ends) - y, -facts.max_error, facts.max_error)
    squared = np.average(error**2, weights=weights)
    mean, square = (np.average(y**k + 0 * p, weights=weights) for k in (1, 2))
    return {"r2": 1 - squared / (square - mean**2), "neg_mean_squared_error": -squared}


def measured(
    n: int, missing: float, hidden: bool, cells: list[Any], given: argparse.Namespace, seed: int
) -> Any:
    """Lines of the table: for each cell and score coverage, misses and lengths."""
    facts = {"bounds_y": (-5, 5), "precision": "float"}
    facts["invalid"] = "exclude" if missing else "count"
    rng, stream = np.random.default_rng(seed), stream_from_random_state(seed)
    plans = {}
    for kind, (epsilon, delta, relation) in itertools.product(given.kinds, cells):
        budget = {"epsilon": epsilon, "delta": delta, "relation": relation}
        plans[kind, epsilon, delta, relation] = plan_score(n, **facts, **budget, **of_kind(kind))
    rows: dict[Any, list[Any]] = {}
    for _ in range(given.runs):
        answers, flags = draw(rng, n, missing, hidden)
        statistics: dict[Any, Any] = {}
        for (kind, *cell), plan in plans.items():
            records = flags if kind == "rare" else answers
            own = plan.narrowed(records, stream)
            of = kind, own.queries
            if of not in statistics:
                statistics[of] = own.statistics(records)
            sums = own.release(statistics[of], stream)
            # a curve has no coverage here, and would take most of the time
            shown = replace(own, scorings=tuple(s for s in own.scorings if s != "roc_curve"))
            truth = (
                truths_of_flags(own.queries[0].facts, missing, hidden)
                if kind == "rare"
                else truths(kind, missing, hidden)
            )
            for name, found in scores(shown, sums).items():
                rows.setdefault((kind, name, n, *cell), []).append((truth[name], *found))
    for about, found in rows.items():
        truth, value, low, high = np.array(found).T
        below, above = np.mean(high < truth), np.mean(low > truth)
        ideal = 2 * 1.96 * np.std((value - truth)[np.isfinite(value)])
        yield about, 1 - below - above, below, above, np.median(high - low), ideal


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, nargs="+", default=[300, 2000, 20_000])
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.5, 2.0])
    parser.add_argument("--delta", type=float, nargs="+", default=[0.0, 1e-6])
    parser.add_argument("--relation", nargs="+", default=["replace-one", "zero-out"])
    parser.add_argument("--missing", type=float, nargs="+", default=[0, 0.01, 0.03, 0.1, 0.3])
    parser.add_argument("--kinds", nargs="+", default=list(SCORINGS), choices=SCORINGS)
    parser.add_argument("--runs", type=int, default=200)
    given = parser.parse_args()
    print("of, score, n, epsilon, delta, relation, missing, coverage, below, above, length, ideal")
    cells = list(itertools.product(given.epsilon, given.delta, given.relation))
    grid = itertools.product(given.n, given.missing, (False, True))
    for seed, (n, missing, hidden) in enumerate(grid):
        if hidden and not missing:
            continue
        of = f"{missing:g}{' hidden' if hidden else ''}"
        for about, *numbers in measured(n, missing, hidden, cells, given, seed):
            shown = [f"{number:.4g}" for number in numbers]
            print(*about, of, *shown, sep=", ", flush=True)


if __name__ == "__main__":
    main()
