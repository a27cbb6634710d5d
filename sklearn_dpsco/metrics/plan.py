"""The plan of a private score, made from public facts alone."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._checks import auto_or, check_choice, check_count, check_real, check_size, shown
from .._fitting import Accounting
from .._overview import Overview, Overviewed
from .._types import Auto, Bounds, Precision, Relation, Scoring
from ..data.bounds import check_target_bounds
from ..mechanisms import Gaussian, Laplace, Release, additive_noise
from ..privacy.accountant import accountant_in_force
from ..privacy.budget import PrivacyBudget, check_delta
from ..privacy.guarantee import Guarantee
from ..randomness.stream import RandomStream
from ..solvers.base import plan_within
from .intervals import Law
from .releases import (
    FORMULAS,
    LARGEST_SAMPLE,
    SCORINGS,
    Answers,
    Estimate,
    Facts,
    Query,
    queries_for,
    sized,
)

__all__ = ["ScorePlan", "check_scorings", "plan_score"]

_NEEDS_BOUNDS = ("r2", "neg_mean_absolute_error", "neg_mean_squared_error")


@dataclass(frozen=True)
class ScorePlan(Overviewed):
    """All that private scores depend on besides the records; made before any is read.

    Attributes
    ----------
    scorings : tuple of str
    queries : tuple of Query
        What is released: the fewest sums that tell all of the scores.
    noises : tuple of Gaussian or Laplace
        On each of them.
    confidence : float
    guarantee : Guarantee
        Of all scores together.
    """

    scorings: tuple[str, ...]
    queries: tuple[Query, ...]
    noises: tuple[Gaussian | Laplace, ...]
    confidence: float
    guarantee: Guarantee

    def overview(self) -> Overview:
        """All releases, below a line that says of what."""
        return self.guarantee.overview().below(
            f"{', '.join(self.scorings)} on {self.n_samples} records"
        )

    @property
    def n_samples(self) -> int:
        """Number of records."""
        return self.queries[0].facts.n_samples

    @property
    def told(self) -> list[list[str]]:
        """The scores that each query tells."""
        tells = [FORMULAS[query.name].tells for query in self.queries]
        return [[name for name in self.scorings if name in told] for told in tells]

    @property
    def needs(self) -> set[str]:
        """What has to be known of the records: names of fields of `Answers`."""
        return {name for query in self.queries for name in FORMULAS[query.name].needs}

    def statistics(self, answers: Answers) -> list[NDArray[np.float64]]:
        """The sums to which noise is added. Not private."""
        return [query.statistic(answers) for query in self.queries]

    def release(
        self, statistics: Sequence[NDArray[np.float64]], stream: RandomStream
    ) -> list[NDArray[np.float64]]:
        """The sums with noise."""
        pairs = zip(self.noises, statistics, strict=True)
        return [noise.release(value, stream) for noise, value in pairs]

    def estimates(self, noisy: Sequence[NDArray[np.float64]]) -> dict[str, Estimate]:
        """Each score and its interval: functions of the noisy sums and of this plan."""
        found: dict[str, Estimate] = {}
        parts = zip(self.queries, self.noises, self.told, noisy, strict=True)
        for query, noise, names, sums in parts:
            law = Law(noise.variance, self.confidence, noise.noise_multiplier is not None)
            found.update({name: query.estimate(name, sums, law) for name in names})
        return {name: found[name] for name in self.scorings}


def check_scorings(scoring: Any) -> tuple[str, ...]:
    """The names of one scoring or of several."""
    names = (scoring,) if isinstance(scoring, str) else scoring
    if not isinstance(names, (list, tuple)) or not names or len(set(map(str, names))) < len(names):
        raise ValueError(
            f"scoring must be a name or a list of different names, got {shown(scoring)}"
        )
    return tuple(check_choice("scoring", name, SCORINGS) for name in names)


def plan_score(
    n_samples: int,
    *,
    scoring: Scoring | Sequence[Scoring] = "accuracy",
    n_classes: int = 2,
    epsilon: float = 1.0,
    delta: float | Auto = "auto",
    relation: Relation = "replace-one",
    confidence: float = 0.95,
    max_rows_per_user: int = 1,
    bounds_y: Bounds | None = None,
    max_error: float | Auto = "auto",
    max_log_loss: float = 5.0,
    n_thresholds: int | Auto = "auto",
    n_bins: int = 5,
    score_bounds: Any = (0.0, 1.0),
    precision: Precision = "exact",
    accountant: Any = None,
) -> ScorePlan:
    """The plan that `dp_score` follows on so many records; reads no data and spends nothing.

    Parameters
    ----------
    n_samples : int in [2, 2^32]
        Invalid records are counted.
    scoring : str, or list of str, default="accuracy"
        As in `dp_score`.
    n_classes : int in [2, 1e4], default=2
        Two for "roc_auc", "roc_curve" and "calibration_curve".
    epsilon, delta, relation, confidence, max_rows_per_user, bounds_y, max_error, max_log_loss, \
n_thresholds, n_bins, score_bounds, precision, accountant
        As in `dp_score`. Here `bounds_y` must be given for scores of regressions.

    Returns
    -------
    ScorePlan

    Raises
    ------
    ValueError
        If a parameter is out of range.

    Examples
    --------
    How large is the noise in an accuracy on 500 records?

    >>> from sklearn_dpsco import plan_score
    >>> plan = plan_score(500, scoring="accuracy", epsilon=0.5)
    >>> plan.guarantee.epsilon, plan.guarantee.delta
    (0.5, 0.0)
    >>> round(plan.noises[0].scale / 500, 3)  # Laplace noise of this scale
    0.004
    """
    names = check_scorings(scoring)
    n = check_count("n_samples", n_samples, low=2, high=LARGEST_SAMPLE)
    needing = [name for name in names if name in _NEEDS_BOUNDS]
    if bounds_y is None and needing:
        raise ValueError(f"scoring={needing[0]!r} needs bounds_y, a pair (low, high)")
    low, high = (-1.0, 1.0) if bounds_y is None else _pair("bounds_y", bounds_y)
    n_classes = check_count("n_classes", n_classes, low=2, high=1e4)
    most = auto_or(check_size, "max_error", max_error, high=1e51)
    facts = Facts(
        n,
        n_classes,
        low,
        high,
        high - low if most is None else min(most, high - low),
        check_real("max_log_loss", max_log_loss, low=0.1, high=700),
        auto_or(check_count, "n_thresholds", n_thresholds, high=100_000),
        check_count("n_bins", n_bins, high=10_000),
        *_pair("score_bounds", score_bounds),
    )
    two = {"roc_auc", "roc_curve", "calibration_curve"} & set(names)
    if two and n_classes != 2:
        raise ValueError(f"scoring={min(two)!r} needs two classes, got n_classes={n_classes}")
    confidence = check_real("confidence", confidence, low=0.5, high=1 - 1e-9)
    if check_delta(delta) is None and accountant_in_force(accountant) is None:
        delta = 0.0  # Laplace noise is less for one release; next to others it costs more
    claim = epsilon, delta, relation, max_rows_per_user, precision
    accounting = Accounting.of(*claim, accountant)
    accounting.warn_if_weak(n)
    make = functools.partial(_plan, names, facts, confidence)
    return plan_within(accounting.budget_of(n), make)


def _plan(
    names: tuple[str, ...], facts: Facts, confidence: float, budget: PrivacyBudget
) -> ScorePlan:
    allowance, factor = budget.gaussian_allowance, budget.record_factor
    noise = additive_noise(allowance)
    queries = queries_for(names, facts, noise.order)
    share = allowance.share(1 / len(queries))
    noises = []
    for k, query in enumerate(queries):
        one = noise.calibrate(query.sensitivity(factor), share)
        queries[k] = query = sized(query, math.sqrt(one.variance))
        change = query.sensitivity(factor)
        noises.append(noise.calibrate(change, share, dimension=query.dimension))
    releases = [Release(query.name, law) for query, law in zip(queries, noises, strict=True)]
    guarantee = Guarantee.of(budget, releases, allowance.kind)
    return ScorePlan(names, tuple(queries), tuple(noises), confidence, guarantee)


def _pair(name: str, bounds: Any) -> tuple[float, float]:
    """Two numbers, the first one smaller."""
    try:
        check_target_bounds(bounds, 1)
    except ValueError as error:
        raise ValueError(str(error).replace("bounds_y", name)) from None
    low, high = (float(np.ravel(end)[0]) for end in bounds)
    return low, high
