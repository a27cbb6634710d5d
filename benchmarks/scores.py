"""How often the 95 % intervals of private scores cover, and how long they are.

    python benchmarks/scores.py                     all cells, an hour
    python benchmarks/scores.py --n 2000 --epsilon 0.5 --missing 0 0.1 --runs 300

A cell is a score at one n, epsilon, relation and delta, with a share of invalid targets that are
missing at random or not ("hidden": those of the upper half alone, twice as often). Scores are those
of the valid records. "length" is the median of the intervals, "ideal" that of a normal one with
the standard deviation that the released value has over the runs. "below" and "above" are the shares
of intervals that end below the truth, or begin above it. Errors are clipped to five standard
deviations, those of "loose" to a range that is released.
"""

from __future__ import annotations

import argparse
import functools
import itertools
from typing import Any

import numpy as np
from scipy.special import expit

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
}
BY_CLASS = "precision", "recall", "f1"
N_POPULATION = 1_000_000


def draw(rng: np.random.Generator, n: int, missing: float, hidden: bool) -> Answers:
    """Records of a classification and of a regression."""
    score = expit(-0.5 + 1.6 * rng.standard_normal(n))
    label = (rng.random(n) < score).astype(int)
    x = rng.standard_normal(n)
    y = x + 0.6 * rng.standard_normal(n)
    lost = rng.random((2, n)) < missing * (2 * np.array([label, y > 0]) if hidden else 1)
    return {
        "truth": np.where(lost[0], -1, label),
        "predicted": (score > 0.5).astype(int),
        "score": score,
        "own_probability": np.where(lost[0], np.nan, np.where(label == 1, score, 1 - score)),
        "y": np.where(lost[1], np.nan, y),
        "prediction": 0.9 * x,
    }


def scores(plan: Any, sums: Any) -> dict[str, tuple[float, float, float]]:
    """Value and ends of the interval of each score that is a number."""
    found = {}
    for name, of in plan.estimates(sums).items():
        if name == "confusion_matrix":
            for measure in BY_CLASS:
                found[measure] = tuple(float(ends[1]) for ends in of["by_class"][measure])
        elif name != "roc_curve":
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
    many = draw(np.random.default_rng(10**6), N_POPULATION, missing, hidden)
    return {name: own[0] for name, own in scores(exact, exact.statistics(many)).items()}


def measured(
    settings: dict[str, Any],
    n: int,
    missing: float,
    hidden: bool,
    given: argparse.Namespace,
    seed: int,
) -> Any:
    """Lines of the table: for each score coverage, misses and lengths."""
    facts = {**settings, "bounds_y": (-5, 5), "precision": "float"}
    facts["invalid"] = "exclude" if missing else "count"
    rng, stream = np.random.default_rng(seed), stream_from_random_state(seed)
    for kind in given.kinds:
        plan, truth = plan_score(n, **facts, **of_kind(kind)), truths(kind, missing, hidden)
        rows: dict[str, list[Any]] = {name: [] for name in truth}
        for _ in range(given.runs):
            records = draw(rng, n, missing, hidden)
            own = plan.narrowed(records, stream)
            for name, found in scores(own, own.release(own.statistics(records), stream)).items():
                rows[name].append(found)
        for name, found in rows.items():
            value, low, high = np.array(found).T
            below, above = np.mean(high < truth[name]), np.mean(low > truth[name])
            ideal = 2 * 1.96 * np.std(value[np.isfinite(value)])
            yield kind, name, 1 - below - above, below, above, np.median(high - low), ideal


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, nargs="+", default=[300, 2000, 20_000])
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.5, 2.0])
    parser.add_argument("--delta", type=float, nargs="+", default=[0.0, 1e-6])
    parser.add_argument("--relation", nargs="+", default=["replace-one", "zero-out"])
    parser.add_argument("--missing", type=float, nargs="+", default=[0, 0.01, 0.03, 0.1, 0.3])
    parser.add_argument("--kinds", nargs="+", default=list(SCORINGS), choices=SCORINGS)
    parser.add_argument("--runs", type=int, default=400)
    given = parser.parse_args()
    grid = given.n, given.epsilon, given.delta, given.relation, given.missing, (False, True)
    print("of, score, n, epsilon, delta, relation, missing, coverage, below, above, length, ideal")
    for seed, cell in enumerate(itertools.product(*grid)):
        n, epsilon, delta, relation, missing, hidden = cell
        if hidden and not missing:
            continue
        settings = {"epsilon": epsilon, "delta": delta, "relation": relation}
        of = f"{missing:g}{' hidden' if hidden else ''}"
        for kind, name, *numbers in measured(settings, n, missing, hidden, given, seed):
            shown = [f"{number:.4g}" for number in numbers]
            print(kind, name, n, epsilon, delta, relation, of, *shown, sep=", ", flush=True)


if __name__ == "__main__":
    main()
