"""What is released for a score: the numbers that a record adds to, and what is made of them.

Each `Query` says how far one record moves its numbers (doc/privacy, section 2.17), adds them up,
and turns noisy ones into scores with their intervals. A record that is invalid adds nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from .intervals import (
    Law,
    auc_interval,
    mean_interval,
    r2_interval,
    ratio_interval,
    share_interval,
)

__all__ = ["SCORINGS", "Answers", "Estimate", "Facts", "Query", "queries_for"]

Array = NDArray[np.float64]
Codes = NDArray[np.int_]

# Moments are rounded to multiples of this, so that integers are added up, exactly and in any
# order; the slack covers what that and the rounding of a record's own moments add to its norm.
_UNIT = 2.0**-30
_SLACK = 1 + 2.0**-20
LARGEST_SAMPLE = 2**32

_FEWEST_CELLS, _MOST_CELLS = 4, 1000


@dataclass(frozen=True)
class Facts:
    """The public facts that queries depend on.

    `n_samples` records, `n_classes` classes, `low` and `high` bounds of the target, `max_error`
    in its units and `max_log_loss`, `n_thresholds` of a ROC curve (None: by a rule), `n_bins`
    of a calibration curve, `low_score` and `high_score` of the range that thresholds divide.
    """

    n_samples: int
    n_classes: int = 2
    low: float = -1.0
    high: float = 1.0
    max_error: float = 2.0
    max_log_loss: float = 5.0
    n_thresholds: int | None = None
    n_bins: int = 5
    low_score: float = 0.0
    high_score: float = 1.0


@dataclass(frozen=True, eq=False)
class Answers:
    """What an estimator says of the records, and the truth; None where no query asks.

    Attributes
    ----------
    truth, predicted : ndarray of int of shape (n_samples,)
        Positions among the classes, -1 for invalid ones.
    score : ndarray of shape (n_samples,)
        The second class's probability, or what stands for it; NaN if invalid.
    own_probability : ndarray of shape (n_samples,)
        The predicted probability of the true class; NaN if invalid.
    y, prediction : ndarray of shape (n_samples,)
        Numbers; NaN if invalid.
    """

    truth: Any = None
    predicted: Any = None
    score: Any = None
    own_probability: Any = None
    y: Any = None
    prediction: Any = None


@dataclass(frozen=True, eq=False)
class Estimate:
    """A score, its interval, and what else is known of it."""

    value: Any
    interval: tuple[Any, Any]
    more: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Query:
    """Base class: one vector of sums over the records.

    Parameters
    ----------
    facts : Facts
    order : {1, 2}
        Of the norm that the noise is calibrated to.
    """

    facts: Facts
    order: float

    name: ClassVar[str]
    needs: ClassVar[tuple[str, ...]]  # of the fields of Answers
    tells: ClassVar[tuple[str, ...]]  # the scores that the sums give

    @property
    def dimension(self) -> int:
        raise NotImplementedError

    def sensitivity(self, factor: float) -> float:
        """How far one record moves the sums; `factor` 2 for replace-one, 1 for zero-out."""
        raise NotImplementedError

    def statistic(self, answers: Answers) -> Array:
        """The sums. Not private."""
        raise NotImplementedError

    def estimate(self, scoring: str, noisy: Array, law: Law) -> Estimate:
        """One of the scores that the noisy sums tell."""
        raise NotImplementedError

    def sized(self, deviation: float) -> Query:
        """The query for noise of this standard deviation on each number."""
        return self


# ---------------------------------------------------------------------------------- counts


@dataclass(frozen=True)
class Cells(Query):
    """Counts of disjoint cells: a record adds 1 to one of them, or nothing."""

    def sensitivity(self, factor: float) -> float:
        moved = factor if self.dimension > 1 else 1.0
        return float(moved ** (1 / self.order))

    def cells(self, answers: Answers) -> Codes:
        """The cell of each record, -1 for none."""
        raise NotImplementedError

    def statistic(self, answers: Answers) -> Array:
        cells = self.cells(answers)
        return np.bincount(cells[cells >= 0], minlength=self.dimension).astype(np.float64)

    def _share(self, count: float, terms: int, law: Law) -> Estimate:
        n = self.facts.n_samples
        low, high = share_interval(np.array([count]), n, terms, law)
        return _within(count / n, (low[0], high[0]))


@dataclass(frozen=True)
class Correct(Cells):
    """How many predictions are right."""

    name: ClassVar[str] = "correct predictions"
    needs: ClassVar[tuple[str, ...]] = ("truth", "predicted")
    tells: ClassVar[tuple[str, ...]] = ("accuracy",)

    @property
    def dimension(self) -> int:
        return 1

    def cells(self, answers: Answers) -> Codes:
        is_right = (answers.truth >= 0) & (answers.truth == answers.predicted)
        return np.where(is_right, 0, -1)

    def estimate(self, scoring: str, noisy: Array, law: Law) -> Estimate:
        return self._share(float(noisy[0]), 1, law)


@dataclass(frozen=True)
class Recalls(Cells):
    """How many predictions are right and wrong, by class."""

    name: ClassVar[str] = "right and wrong by class"
    needs: ClassVar[tuple[str, ...]] = ("truth", "predicted")
    tells: ClassVar[tuple[str, ...]] = ("accuracy", "balanced_accuracy")

    @property
    def dimension(self) -> int:
        return 2 * self.facts.n_classes

    def cells(self, answers: Answers) -> Codes:
        is_valid = (answers.truth >= 0) & (answers.predicted >= 0)
        is_wrong = answers.truth != answers.predicted
        return np.where(is_valid, 2 * answers.truth + is_wrong, -1)

    def estimate(self, scoring: str, noisy: Array, law: Law) -> Estimate:
        right, wrong = noisy.reshape(-1, 2).T
        return self._accuracy(scoring, right, wrong, 1, law)

    def _accuracy(self, scoring: str, right: Array, wrong: Array, terms: int, law: Law) -> Estimate:
        if scoring == "accuracy":
            return self._share(float(right.sum()), right.size, law)
        return _mean_of_ratios(right, wrong, (1, terms), law)


@dataclass(frozen=True)
class Confusion(Recalls):
    """How many records of each class are predicted as each class."""

    name: ClassVar[str] = "confusion matrix"
    tells: ClassVar[tuple[str, ...]] = ("accuracy", "balanced_accuracy", "confusion_matrix")

    @property
    def dimension(self) -> int:
        return self.facts.n_classes**2

    def cells(self, answers: Answers) -> Codes:
        is_valid = (answers.truth >= 0) & (answers.predicted >= 0)
        return np.where(is_valid, answers.truth * self.facts.n_classes + answers.predicted, -1)

    def estimate(self, scoring: str, noisy: Array, law: Law) -> Estimate:
        n, n_classes = self.facts.n_samples, self.facts.n_classes
        matrix = noisy.reshape(n_classes, n_classes)
        if scoring != "confusion_matrix":
            right = np.diagonal(matrix)
            return self._accuracy(scoring, right, matrix.sum(axis=1) - right, n_classes - 1, law)
        low, high = share_interval(noisy, n, 1, law)
        ends = n * low.reshape(matrix.shape), n * high.reshape(matrix.shape)
        return _within(matrix, ends, most=float(n))


@dataclass(frozen=True)
class ScoreHistogram(Cells):
    """How many records of each class have a score in each bin of a public grid."""

    name: ClassVar[str] = "scores by class"
    needs: ClassVar[tuple[str, ...]] = ("truth", "score")
    tells: ClassVar[tuple[str, ...]] = ("roc_auc", "roc_curve")

    @property
    def n_cells(self) -> int:
        return self.facts.n_thresholds or _FEWEST_CELLS

    @property
    def dimension(self) -> int:
        return 2 * self.n_cells

    def sized(self, deviation: float) -> Query:
        """With the number of bins that makes the interval of the area short.

        Order within bins is not known, which costs about 1 / bins, and noise s sqrt(bins) / n.
        """
        if self.facts.n_thresholds is not None:
            return self
        bins = round(0.4 * (self.facts.n_samples / deviation) ** (2 / 3))
        bins = min(max(bins, _FEWEST_CELLS), _MOST_CELLS)
        return replace(self, facts=replace(self.facts, n_thresholds=bins))

    def cells(self, answers: Answers) -> Codes:
        low, high = self.facts.low_score, self.facts.high_score
        bins, is_valid = _bins((answers.score - low) / (high - low), self.n_cells)
        is_valid &= answers.truth >= 0
        return np.where(is_valid, answers.truth * self.n_cells + bins, -1)

    def estimate(self, scoring: str, noisy: Array, law: Law) -> Estimate:
        negative, positive = noisy.reshape(2, -1)
        if scoring == "roc_curve":
            return self._curve(positive, negative, law)
        P, N = positive.sum(), negative.sum()
        below = np.cumsum(negative) - negative / 2
        area = float(positive @ below / (P * N)) if min(P, N) > 0 else 0.5
        return _within(area, auc_interval(positive, negative, law))

    def _curve(self, positive: Array, negative: Array, law: Law) -> Estimate:
        tpr, tpr_interval = _rates(positive, law)
        fpr, fpr_interval = _rates(negative, law)
        low, high = self.facts.low_score, self.facts.high_score
        steps = np.arange(self.n_cells)[::-1] / self.n_cells
        thresholds = np.r_[np.inf, low + (high - low) * steps]
        more = {"tpr": tpr, "fpr": fpr, "thresholds": thresholds, "fpr_interval": fpr_interval}
        return Estimate(tpr, tpr_interval, more)


def _rates(counts: Array, law: Law) -> tuple[Array, tuple[Array, Array]]:
    """The share of records at or above each threshold, from the highest one on, and intervals."""
    hits = np.cumsum(counts[::-1])[:-1]
    terms = np.arange(1, counts.size)
    total = counts.sum()
    low, high = ratio_interval(hits, total - hits, (terms, counts.size - terms), law)
    raw = np.clip(hits / total, 0, 1) if total > 0 else terms / counts.size
    # a rate rises: half way between the least rising curve above and the greatest one below
    up, down = np.maximum.accumulate(raw), np.minimum.accumulate(raw[::-1])[::-1]
    rate = np.r_[0.0, (up + down) / 2, 1.0]
    low, high = np.r_[0.0, low, 1.0], np.r_[0.0, high, 1.0]
    return rate, (np.minimum(low, rate), np.maximum(high, rate))


@dataclass(frozen=True)
class Calibration(Cells):
    """How many records of each class have a score in each of a few bins."""

    name: ClassVar[str] = "calibration"
    needs: ClassVar[tuple[str, ...]] = ("truth", "score")
    tells: ClassVar[tuple[str, ...]] = ("calibration_curve",)

    @property
    def dimension(self) -> int:
        return 2 * self.facts.n_bins

    def cells(self, answers: Answers) -> Codes:
        bins, is_valid = _bins(answers.score, self.facts.n_bins)
        is_valid &= answers.truth >= 0
        return np.where(is_valid, answers.truth * self.facts.n_bins + bins, -1)

    def estimate(self, scoring: str, noisy: Array, law: Law) -> Estimate:
        negative, positive = noisy.reshape(2, -1)
        ends = ratio_interval(positive, negative, (1, 1), law)
        found = _within(_ratio(positive, negative), ends)
        middles = (np.arange(self.facts.n_bins) + 0.5) / self.facts.n_bins
        more = {"prob_true": found.value, "prob_pred": middles}
        return replace(found, more=more)


def _bins(score: Array, n_bins: int) -> tuple[Codes, NDArray[np.bool_]]:
    """The bin of each score, of which the outer ones hold what is outside; whether it has one."""
    is_valid = np.isfinite(score)
    scaled = np.where(is_valid, score, 0.0) * n_bins
    return np.clip(np.floor(scaled), 0, n_bins - 1).astype(int), is_valid


def _ratio(hits: Array, misses: Array) -> Array:
    """Share of hits, and 1/2 where nothing is known."""
    hits, misses = np.maximum(hits, 0), np.maximum(misses, 0)
    total = hits + misses
    return np.where(total > 0, hits / np.where(total > 0, total, 1), 0.5)


def _mean_of_ratios(hits: Array, misses: Array, terms: Any, law: Law) -> Estimate:
    """Mean of the classes' recalls: their errors are independent, and add up in squares.

    That is the method of variance estimates recovery (Zou and Donner 2008). Where an end of the
    interval is that of [0, 1], nothing is known on this side, and the distance is added as it is.
    """
    recalls = _ratio(hits, misses)
    low, high = ratio_interval(hits, misses, terms, law)
    low, high = np.minimum(low, recalls), np.maximum(high, recalls)
    down, up = recalls - low, high - recalls
    mean, k = float(recalls.mean()), recalls.size
    ends = mean - _joined(down, low <= 0) / k, mean + _joined(up, high >= 1) / k
    return _within(mean, ends)


def _joined(distances: Array, is_vacuous: NDArray[np.bool_]) -> float:
    known = distances[~is_vacuous]
    return float(distances[is_vacuous].sum() + math.sqrt(known @ known))


def _within(value: Any, ends: tuple[Any, Any], most: float = 1.0) -> Estimate:
    """The value clipped to [0, most], with an interval that holds it."""
    value = np.clip(value, 0.0, most)
    low, high = np.clip(np.minimum(ends[0], value), 0, most), np.maximum(ends[1], value)
    high = np.clip(high, 0, most)
    if np.ndim(value) == 0:
        return Estimate(float(value), (float(low), float(high)))
    return Estimate(value, (low, high))


# --------------------------------------------------------------------------------- moments


@dataclass(frozen=True)
class Moments(Query):
    """Sums of u and w (1 - u^2) for columns u in [-1, 1]: the second costs nothing (2.17)."""

    @property
    def weights(self) -> Array:
        """Of the columns."""
        return np.ones(1)

    @property
    def bend(self) -> float:
        """w: the largest for which (u, w (1 - u^2)) stays in the unit ball of the norm."""
        return 1.0 if self.order == 2 else 0.5

    @property
    def dimension(self) -> int:
        return 2 * self.weights.size

    def sensitivity(self, factor: float) -> float:
        return factor * float(np.linalg.norm(self.weights, self.order)) * _SLACK

    def columns(self, answers: Answers) -> tuple[Array, ...]:
        """The columns u; NaN in invalid records."""
        raise NotImplementedError

    def statistic(self, answers: Answers) -> Array:
        u = np.column_stack(self.columns(answers))
        is_valid: Any = np.isfinite(u).all(axis=1, keepdims=True)
        u = np.clip(np.where(is_valid, u, 0.0), -1, 1)
        parts = np.stack((u, self.bend * (1 - u**2)), axis=2) * self.weights[:, None]
        units = np.rint(np.where(is_valid[:, :, None], parts, 0.0) / _UNIT).astype(np.int64)
        return units.sum(axis=0).ravel() * _UNIT

    def _sums(self, noisy: Array) -> list[tuple[float, float]]:
        """Of u and 1 - u^2, for each column."""
        sums = noisy.reshape(-1, 2) / self.weights[:, None] / [1.0, self.bend]
        return [(float(first), float(second)) for first, second in sums]

    @property
    def largest_loss(self) -> float:
        """The largest loss of a record, l in u = 2 loss / l - 1 for the first column."""
        raise NotImplementedError

    def estimate(self, scoring: str, noisy: Array, law: Law) -> Estimate:
        """Minus the mean of the loss of the first column."""
        sums, largest = self._sums(noisy)[0], self.largest_loss
        n, noise = self.facts.n_samples, replace(law, variance=law.variance / self.weights[0] ** 2)
        low, high = mean_interval(*sums, n, 1 / self.bend, noise)
        mean = min(max(sums[0] / n, -1.0), 1.0)
        low, high = min(float(low[0]), mean), max(float(high[0]), mean)
        mean, low, high = (largest * (1 + u) / 2 for u in (mean, low, high))
        return Estimate(0.0 - mean, (0.0 - high, 0.0 - low))

    def _errors(self, answers: Answers) -> Array:
        """Absolute errors in [0, max_error], of targets and predictions within the bounds."""
        low, high = self.facts.low, self.facts.high
        y = np.where(np.isfinite(answers.y), answers.y, np.nan)  # an infinity is no number
        error = np.clip(y, low, high) - np.clip(answers.prediction, low, high)
        return np.minimum(np.abs(error), self.facts.max_error)


@dataclass(frozen=True)
class LogLoss(Moments):
    """-log of the predicted probability of the true class, at most `max_log_loss`."""

    name: ClassVar[str] = "log loss"
    needs: ClassVar[tuple[str, ...]] = ("own_probability",)
    tells: ClassVar[tuple[str, ...]] = ("neg_log_loss",)

    def columns(self, answers: Answers) -> tuple[Array, ...]:
        most = self.facts.max_log_loss
        loss = np.minimum(-np.log(np.clip(answers.own_probability, 0, 1)), most)
        return (2 * loss / most - 1,)

    @property
    def largest_loss(self) -> float:
        return self.facts.max_log_loss


@dataclass(frozen=True)
class AbsoluteError(Moments):
    """Absolute errors."""

    name: ClassVar[str] = "absolute error"
    needs: ClassVar[tuple[str, ...]] = ("y", "prediction")
    tells: ClassVar[tuple[str, ...]] = ("neg_mean_absolute_error",)

    def columns(self, answers: Answers) -> tuple[Array, ...]:
        return (2 * self._errors(answers) / self.facts.max_error - 1,)

    @property
    def largest_loss(self) -> float:
        return self.facts.max_error


@dataclass(frozen=True)
class SquaredError(Moments):
    """Squared errors."""

    name: ClassVar[str] = "squared error"
    needs: ClassVar[tuple[str, ...]] = ("y", "prediction")
    tells: ClassVar[tuple[str, ...]] = ("neg_mean_squared_error",)

    def columns(self, answers: Answers) -> tuple[Array, ...]:
        return (2 * (self._errors(answers) / self.facts.max_error) ** 2 - 1,)

    @property
    def largest_loss(self) -> float:
        return self.facts.max_error**2


@dataclass(frozen=True)
class RSquared(SquaredError):
    """Squared errors, and the target t in units in which it is in [-1, 1]."""

    name: ClassVar[str] = "squared error and target"
    tells: ClassVar[tuple[str, ...]] = ("r2", "neg_mean_squared_error")

    @property
    def half(self) -> float:
        """Half the width of the target's bounds."""
        return self.facts.high / 2 - self.facts.low / 2

    @property
    def largest(self) -> float:
        """The largest squared error in units of t."""
        return (self.facts.max_error / self.half) ** 2

    @property
    def weights(self) -> Array:
        """Those with the least noise in the sum of squared errors and that of squared t together.

        The noise of a weight a is largest / (2 a) in the former, of b is 1 / (b w) in the latter.
        """
        power = 1 / 2 if self.order == 2 else 2 / 3
        return np.array([(self.largest / 2 * self.bend) ** power, 1.0])

    def columns(self, answers: Answers) -> tuple[Array, ...]:
        facts = self.facts
        middle = facts.low / 2 + facts.high / 2
        target = (np.clip(answers.y, facts.low, facts.high) - middle) / self.half
        return (*super().columns(answers), target)

    def estimate(self, scoring: str, noisy: Array, law: Law) -> Estimate:
        if scoring != "r2":
            return super().estimate(scoring, noisy, law)
        errors, targets = self._sums(noisy)
        n, largest = self.facts.n_samples, self.largest
        squares = largest / 2 * min(max(n + errors[0], 0.0), 2.0 * n)
        variation = n - targets[1] - targets[0] ** 2 / n
        value = 1 - squares / variation if variation > 0 else -math.inf
        of_u, of_t = 1 / self.weights
        scales = (of_u, of_t, of_t / self.bend)
        low, high = r2_interval(errors, targets, largest, n, scales, law)
        return Estimate(value, (min(low, value), max(high, value)))


# -------------------------------------------------------------------------------- which ones

# Cheaper ones first.
_QUERIES: list[type[Query]] = [
    Correct, Recalls, Confusion, ScoreHistogram, Calibration, LogLoss, SquaredError, RSquared,
    AbsoluteError,
]  # fmt: skip
SCORINGS = tuple(dict.fromkeys(name for query in _QUERIES for name in query.tells))


def queries_for(scorings: tuple[str, ...]) -> tuple[type[Query], ...]:
    """The fewest queries that tell all of these scores."""
    left, chosen = list(scorings), []
    while left:
        query = max(_QUERIES, key=lambda query: sum(name in query.tells for name in left))
        chosen.append(query)
        left = [name for name in left if name not in query.tells]
    return tuple(chosen)
