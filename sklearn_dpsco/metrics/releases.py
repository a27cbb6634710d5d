"""What is released for a score: the numbers that a record adds to, and what is made of them.

Each release says how far one record moves its numbers (doc/privacy, section 2.17), adds them up,
and turns noisy ones into scores with their intervals. A record that is invalid adds nothing: where
scores leave it out, the number of the others is released, too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from .._types import Array, Flags
from ..mechanisms import SelectVertex
from ..solvers.statistics import TINY
from .intervals import (
    Law,
    auc_interval,
    mean_interval,
    r2_interval,
    rank_interval,
    ratio_interval,
    share_interval,
)

# Moments are rounded to multiples of this, so that integers are added up, exactly and in any
# order; the slack covers what that and the rounding of a record's own moments add to its norm.
_UNIT = 2.0**-30
_SLACK = 1 + 2.0**-20
LARGEST_SAMPLE = 2**32

_FEWEST_BINS, _MOST_BINS = 4, 1000
# Edges of bins of probabilities: tenths, of which the ends are cut for rare classes, at shares of
# the records that are more than so many standard deviations of the noise.
_RARE, _TELLING = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05), 20.0
_OF_SHARES = (0.0, *_RARE, *(k / 10 for k in range(1, 10)), *(1 - p for p in _RARE[::-1]), 1.0)


@dataclass(frozen=True)
class Facts:
    """The public facts that releases depend on, as of `plan_score`."""

    n_samples: int
    n_classes: int = 2
    low: float = -1.0  # bounds of the target
    high: float = 1.0
    max_error: float = 2.0
    max_log_loss: float = 5.0
    n_thresholds: Any = None  # without it, their number follows from the noise
    edges: tuple[float, ...] | None = None  # of bins of predictions; also follow from the noise
    low_score: float = 0.0  # ends of the range that thresholds divide
    high_score: float = 1.0
    excludes: bool = False  # whether scores are those of the valid records
    n_groups: int = 1  # disjoint ones, of each of which everything is released
    is_narrowed: bool = False  # whether the bounds are a range that was selected
    # the largest error in half widths of the bounds for which sums of R^2 are weighed
    weighed_error: float = 2.0
    target: int = 0  # which one, of several


# What an estimator says of the records, and the truth, as far as a release asks: "truth" and
# "predicted", positions among the classes; "score", the second class's probability, or what stands
# for it; "own_probability", the predicted one of the true class; "y" and "prediction", numbers.
Answers = dict[str, Any]
INVALID = {"truth": -1, "score": np.nan, "own_probability": np.nan, "y": np.nan}

# A score, "value" and "interval", and what else is known of it by the fields of a `DPScore`.
Estimate = dict[str, Any]


@dataclass(frozen=True)
class Sums:
    """What is released, under a name of `FORMULAS`: `dimension` numbers, the sums of a `statistic`.

    `sensitivity` says how far one record moves them, with `factor` 2 under replace-one, 1 under
    zero-out. From noisy ones `n_valid` tells how many records are valid, and the variance of that
    in units of a number's noise, and `estimate` one of the scores.
    """

    name: str
    facts: Facts
    order: float  # of the norm that the noise is calibrated to, 1 or 2


# ---------------------------------------------------------------------------------- counts


class Counts(Sums):
    """Counts of disjoint cells: a record adds 1 to one of them, or nothing."""

    @property
    def shape(self) -> tuple[int, int]:
        """Of the table: a row for each true class, or a single cell."""
        if self.name == "correct predictions":
            return 1, 2 if self.facts.excludes else 1
        if self.name.startswith("scores"):
            return 2, self.facts.n_thresholds or _FEWEST_BINS
        k = self.facts.n_classes
        return k, k if self.name == "confusion matrix" else 2

    @property
    def dimension(self) -> int:
        return math.prod(self.shape)

    def sensitivity(self, factor: float) -> float:
        return float((factor if self.dimension > 1 else 1.0) ** (1 / self.order))

    def statistic(self, answers: Answers) -> Array:
        (n_rows, n_columns), truth = self.shape, answers["truth"]
        # the column of each record, -1 for none
        if self.name.startswith("scores"):
            low, high = self.facts.low_score, self.facts.high_score
            share = (answers["score"] - low) / (high - low)
            is_valid = np.isfinite(share)
            bins = np.floor(np.where(is_valid, share, 0.0) * n_columns)
            # the outer bins hold what is outside
            column = np.where(is_valid, np.clip(bins, 0, n_columns - 1).astype(int), -1)
        elif self.name == "confusion matrix":
            column = answers["predicted"]
        else:
            column = np.where(answers["predicted"] >= 0, truth != answers["predicted"], -1)
        row = truth if n_rows > 1 else 0
        is_counted = (truth >= 0) & (column >= 0) & (column < n_columns)
        cells = (row * n_columns + column)[is_counted]
        return np.bincount(cells, minlength=n_rows * n_columns).astype(np.float64)

    def n_valid(self, noisy: Array) -> tuple[float, float]:
        return min(max(float(noisy.sum()), 0.0), float(self.facts.n_samples)), noisy.size

    def estimate(self, scoring: str, noisy: Array, law: Law) -> Estimate:
        table, n = noisy.reshape(self.shape), self.facts.n_samples
        if scoring == "roc_auc":
            negative, positive = table
            P, N, below = positive.sum(), negative.sum(), np.cumsum(negative) - negative / 2
            area = float(positive @ below / (P * N)) if min(P, N) > 0 else 0.5
            return _within(area, auc_interval(positive, negative, law))
        if scoring == "roc_curve":
            return _curve(table[0], table[1], self.facts, law)
        if scoring == "confusion_matrix":
            low, high = (n * end.reshape(self.shape) for end in share_interval(noisy, n, 1, law))
            found = _within(table, (low, high), most=float(n))
            return found | {"by_class": _by_class(table, law)}
        # the right predictions of each class, and how many numbers the wrong ones are made of
        right, wrong, terms = table[:, 0], table[:, -1], 1
        if self.name == "confusion matrix":
            right, terms = np.diagonal(table), len(table) - 1
            wrong = table.sum(axis=1) - right
        if scoring == "balanced_accuracy":
            found = _shares(right, wrong, (1, terms), law)
            recalls, (low, high) = found["value"], found["interval"]
            mean, k = float(recalls.mean()), right.size
            reaches = joint(recalls - low, low <= 0), joint(high - recalls, high >= 1)
            return _within(mean, (mean - reaches[0] / k, mean + reaches[1] / k))
        if self.facts.excludes:
            return _shares(right.sum(), wrong.sum(), (right.size, right.size * terms), law)
        return _within(right.sum() / n, share_interval(right.sum(), n, right.size, law))


class Bins(Counts):
    """Of each bin of the prediction, counts of its targets and where in the bin predictions are.

    A target at the share a of its range, from 0 to 1, counts as (1 - a)^2, 2 a (1 - a) and a^2,
    which add up to 1: these tell the number of records, the mean and the variance. Labels, which
    are 0 or 1, need no middle one. The place of a prediction is d in [-1, 1], from one end of its
    bin to the other, of which a record adds w d.
    """

    @property
    def bins(self) -> tuple[Array, tuple[Array, Array], Array]:
        """Their edges, the ranges of targets, and half the width of each in units of its range.

        Targets are labels, or what is within the largest error of the bin.
        """
        facts, edges = self.facts, np.array(self.facts.edges or _OF_SHARES)
        low, high, most = facts.low, facts.high, facts.max_error
        if self.name == "calibration":
            low, high, most = 0.0, 1.0, math.inf
        ends = np.clip(edges[:-1] - most, low, high), np.clip(edges[1:] + most, low, high)
        width = ends[1] - ends[0]
        # beyond the bounds there are no targets
        return edges, ends, np.diff(edges) / 2 / np.where(width > 0, width, np.inf)

    @property
    def shape(self) -> tuple[int, int]:
        """A row of counts for each part of a target, and one of places."""
        return 3 if self.name == "calibration" else 4, self.bins[0].size - 1

    @property
    def weight(self) -> float:
        """The w of about the least noise in observed less predicted means.

        With c half the width of the widest bin, w^2 is c, in l1 w^3 is c^2.
        """
        half = float(np.clip(self.bins[2].max(), 1e-9, 0.5))
        return half ** (1 / 2 if self.order == 2 else 2 / 3)

    def sensitivity(self, factor: float) -> float:
        # at most factor counts by 1, and factor w in the sums, in l2 all of it in one of them
        moved = [1.0] * int(factor) + [factor * self.weight]
        return float(np.linalg.norm(moved, self.order)) * _SLACK

    def statistic(self, answers: Answers) -> Array:
        edges, (low, high), _ = self.bins
        if self.name == "calibration":
            p = np.clip(answers["score"], 0, 1)
            y = np.where(answers["truth"] >= 0, answers["truth"], np.nan)
        else:
            p, y = np.clip(answers["prediction"], self.facts.low, self.facts.high), answers["y"]
        is_counted = np.isfinite(y) & (p >= edges[0]) & (p <= edges[-1])  # no NaN is
        p, y = p[is_counted], y[is_counted]
        k = np.minimum(np.searchsorted(edges, p, "right"), edges.size - 1) - 1
        a = np.clip((y - low[k]) / np.where(high > low, high - low, 1)[k], 0, 1)
        d = np.clip(2 * (p - edges[k]) / np.diff(edges)[k] - 1, -1, 1)
        parts = [(1 - a) ** 2, 2 * a * (1 - a), a**2][:: 2 if self.name == "calibration" else 1]
        sums = np.zeros(self.shape, dtype=np.int64)
        for own, part in zip(sums, [*parts, self.weight * d], strict=True):
            np.add.at(own, k, np.rint(part / _UNIT).astype(np.int64))
        return np.ravel(sums * _UNIT)

    def n_valid(self, noisy: Array) -> tuple[float, float]:
        return super().n_valid(noisy[: -self.shape[1]])

    def estimate(self, scoring: str, noisy: Array, law: Law) -> Estimate:
        """The mean observed in each bin, and the mean prediction, which is within its bin."""
        (edges, ranges, halves), table = self.bins, noisy.reshape(self.shape)
        counts, of_place = np.maximum(table[:-1], 0), halves / self.weight
        total = np.maximum(counts.sum(axis=0), 1e-9)
        place = np.clip(table[-1] / self.weight / total, -1, 1)
        # both are compared: the noise of both is in the interval
        if self.name == "calibration":
            found = _shares(counts[1], counts[0], (1, 1), law, of_place**2)
        else:
            found = _means(counts, ranges, law, of_place)
            if self.facts.max_error < self.facts.high - self.facts.low:
                most = f"{self.facts.max_error:g}"
                found["clipped"] = f"targets clipped at {most} from the ends of their bin"
        predicted = np.clip(edges[:-1] + (1 + place) * np.diff(edges) / 2, edges[:-1], edges[1:])
        more = {"bin_edges": edges, "bin_counts": counts.sum(axis=0), "prob_pred": predicted}
        return found | more | {"prob_true": found["value"]}


def _means(counts: Array, ranges: tuple[Array, Array], law: Law, of_compared: Array) -> Estimate:
    """Means of targets from the three counts that `Bins` has of each bin.

    Of u = 2 a - 1 the sum is the last count less the first, that of 1 - u^2 is twice the middle
    one, and the noise in sum u - m n has the variance v (2 + 3 m^2).
    """
    (below, between, above), n = counts, np.maximum(counts.sum(axis=0), 1.0)
    total, noise = above - below, 2 + 4 * of_compared**2
    own = replace(law, variance=noise * law.variance)
    found = total / n, *mean_interval(total, 2 * between, n, np.sqrt(3 / noise), own)
    widths = np.subtract(*ranges[::-1])
    mean, low, high = (ranges[0] + (1 + np.clip(u, -1, 1)) / 2 * widths for u in found)
    ends = np.minimum(low, mean), np.maximum(high, mean)
    return {"value": mean, "interval": ends, "limits": ranges}


def _within(value: Any, ends: tuple[Any, Any], most: float = 1.0) -> Estimate:
    """The value clipped to [0, most], with an interval that holds it."""
    value = np.clip(value, 0.0, most)
    low = np.clip(np.minimum(ends[0], value), 0, most)
    high = np.clip(np.maximum(ends[1], value), 0, most)
    if np.ndim(value) == 0:
        value, low, high = float(value), float(low), float(high)
    return {"value": value, "interval": (low, high), "limits": (0.0, most)}


def joint(distances: Array, is_vacuous: Flags) -> float:
    """How far a sum may be from its value, by how far its independent parts may be.

    Errors add up in squares (variance estimates recovery, Zou and Donner 2008), but for ends that
    tell nothing.
    """
    return float(np.linalg.norm(distances[~is_vacuous]) + distances[is_vacuous].sum())


def _shares(hits: Array, misses: Array, terms: Any, law: Law, of_compared: Any = 0.0) -> Estimate:
    """Shares of hits, and 1/2 where nothing is known, from sums of `terms` noisy counts each."""
    ends = ratio_interval(hits, misses, terms, law, of_compared)
    hits, misses = np.maximum(hits, 0), np.maximum(misses, 0)
    total = hits + misses
    return _within(np.where(total > 0, hits / np.where(total > 0, total, 1), 0.5), ends)


def _by_class(table: Array, law: Law) -> dict[str, tuple[Array, Array, Array]]:
    """Precision, recall, F1 and share of each class with intervals, from a confusion matrix."""
    right, k, size = np.diagonal(table), len(table), table.sum(axis=1)
    by_truth, by_prediction = size - right, table.sum(axis=0) - right
    parts = {
        "precision": (right, by_prediction, (1, k - 1)),
        "recall": (right, by_truth, (1, k - 1)),
        "f1": (right, by_truth + by_prediction, (1, 2 * (k - 1))),
        "share": (size, table.sum() - size, (k, k * (k - 1))),
    }
    found = {}
    for name, (hits, misses, terms) in parts.items():
        of = _shares(hits, misses, terms, law)
        shares = of["value"], *of["interval"]
        # F1 is a function of the right ones' share among all that are or are taken for the class
        found[name] = tuple(2 * r / (1 + r) if name == "f1" else r for r in shares)
    return found


def _curve(negative: Array, positive: Array, facts: Facts, law: Law) -> Estimate:
    """The shares of records at or above each threshold, from the highest one on."""
    rates = []
    for counts in (positive, negative):
        hits, total = np.cumsum(counts[::-1])[:-1], counts.sum()
        terms = np.arange(1, counts.size)
        low, high = ratio_interval(hits, total - hits, (terms, counts.size - terms), law)
        raw = np.clip(hits / total, 0, 1) if total > 0 else terms / counts.size
        # a rate rises: half way between the least rising curve above and the greatest one below
        up, down = np.maximum.accumulate(raw), np.minimum.accumulate(raw[::-1])[::-1]
        rate = np.r_[0.0, (up + down) / 2, 1.0]
        low, high = np.r_[0.0, low, 1.0], np.r_[0.0, high, 1.0]
        rates.append((rate, (np.minimum(low, rate), np.maximum(high, rate))))
    (tpr, interval), (fpr, fpr_interval) = rates
    steps = np.arange(positive.size)[::-1] / positive.size
    thresholds = np.r_[np.inf, facts.low_score + (facts.high_score - facts.low_score) * steps]
    curve = {"tpr": tpr, "fpr": fpr, "thresholds": thresholds, "fpr_interval": fpr_interval}
    return {"value": tpr, "interval": interval, **curve}


# ----------------------------------------------------------------------------------- range

# Candidates, as shares of the bounds: their widths, each of them in steps of about its quarter.
# Of sizes of errors, as shares of the largest, those that begin at 0.
_WIDTHS = 2.0 ** (-np.arange(29) / 4)
_LOW = [np.linspace(0.0, 1 - width, math.ceil(4 / width) - 3) for width in _WIDTHS]
_RANGES = np.array(
    [[low, low + width] for width, lows in zip(_WIDTHS, _LOW, strict=True) for low in lows]
)
# The selected range, which leaves out a few targets that are mostly near by; errors have heavier
# tails than that, and R^2 is too large by what is cut off.
WIDENED = {"targets": 1.15, "errors": 2.0}


@dataclass(frozen=True)
class Range:
    """One that holds most targets or sizes of errors, selected among public ones (2.17).

    The score of a range is minus the number of records outside of it, plus `worth` records for
    each factor e by which it is narrower than the widest; in all at most `most`, so that no more
    are left out than that, and what noise adds. Targets have no narrower ranges; sizes of errors
    are worth less and less as that is near, as those of a good model are very small.
    """

    of: str  # "targets", within their bounds, or "errors"
    worth: float
    most: float
    select: SelectVertex
    target: int = 0  # which one, of several

    @property
    def ranges(self) -> Array:
        """The lower and the upper end of each, as shares of the widest."""
        if self.of == "errors":
            return _RANGES[_RANGES[:, 0] == 0]
        return _RANGES[np.ptp(_RANGES, axis=1) > math.exp(-self.most / self.worth)]

    def scores(self, facts: Facts, answers: Answers) -> Array:
        """Of each range, an integer. Not private."""
        low, high = self.ranges.T
        gain = -self.worth * np.log(high - low)
        if self.of == "targets":
            y = answers["y"][np.isfinite(answers["y"])]
            t = (np.clip(y, facts.low, facts.high) - facts.low) / (facts.high - facts.low)
        else:
            t = np.abs(_errors(facts, answers))
            gain = -self.most * np.expm1(-gain / self.most)
        t = np.sort(t[np.isfinite(t)])
        inside = np.searchsorted(t, high, "right") - np.searchsorted(t, low, "left")
        return np.asarray(inside - t.size + np.rint(gain))

    def narrowed(self, facts: Facts, selected: int) -> Facts:
        """With a range for bounds, or for the largest error, somewhat widened."""
        ends = self.ranges[selected]
        if self.of == "errors":
            share = min(WIDENED["errors"] * float(ends[1]), 1.0)
            return replace(facts, max_error=share * facts.max_error)
        middle, half = ends.mean(), WIDENED["targets"] * np.ptp(ends) / 2
        ends = np.clip([middle - half, middle + half], 0, 1) * (facts.high - facts.low) + facts.low
        low, high = ends.tolist()
        is_given = facts.max_error < facts.high - facts.low
        most = min(facts.max_error, high - low) if is_given else high - low
        return replace(facts, low=low, high=high, max_error=most, is_narrowed=True)


# --------------------------------------------------------------------------------- moments


def _errors(facts: Facts, answers: Answers) -> Array:
    """Predictions less targets, both within the bounds, as shares of the largest error."""
    y, ends = answers["y"], (facts.low, facts.high)
    y = np.where(np.isfinite(y), y, np.nan)  # an infinity is no number
    error = np.clip(answers["prediction"], *ends) - np.clip(y, *ends)
    return np.clip(error / facts.max_error, -1, 1)


class Moments(Sums):
    """Sums of u in [-1, 1] and of w h, h = 1 - u^2: the second costs nothing (2.17).

    And of 1, if scores are those of the valid records.

    u is 2 loss / l - 1 with the largest loss l, or 2 difference / l where differences are within
    l / 2. For R^2 also those of the target t, in units in which it is in [-1, 1], of g = 1 - t^2,
    and of products of these, which tell the variance by sampling.
    """

    def _losses(self, of: Answers) -> Array:
        """Of each record, as a share of the largest; of differences, that and a half."""
        if self.name == "log loss":
            most, loss = self.facts.max_log_loss, -np.log(np.clip(of["own_probability"], 0, 1))
            return np.minimum(loss, most) / most
        if "probability less label" in self.name:
            difference = np.clip(of["score"], 0, 1) - of["truth"]
            share = difference**2 if "square" in self.name else (difference + 1) / 2
            return np.where(of["truth"] >= 0, share, np.nan)
        error = _errors(self.facts, of)
        if self.name == "error":
            return (error + 1) / 2
        return np.abs(error) if self.name == "absolute error" else error**2

    @property
    def scales(self) -> Array:
        """What u, h, h t, h g, t, g, g t and the last one are multiplied by.

        w is the largest for which (u, w h) stays in the unit ball of the norm; h t and h g have a
        part of it. Columns of R^2 are weighed for the least noise in the sums of e^2 and t^2
        together: that of a weight a is l / (2 a) in the former, in units of t, and of b it is
        1 / (b w) in the latter.
        """
        bend = 1.0 if self.order == 2 else 0.5
        if self.name != "squared error and target":
            return np.array([1.0, bend])
        a = (self.facts.weighed_error**2 / 2 * bend) ** (1 / 2 if self.order == 2 else 2 / 3)
        if self.order == 2:
            return np.array([a, 0.8 * a, 0.6 * a, 0.6 * a, 1.0, 1.0, 1.0, 1.0])
        return np.array([a, 0.375 * a, 0.1 * a, 0.1 * a, 1.0, 0.5, 1 / 32, 1 / 16])

    @property
    def dimension(self) -> int:
        return self.scales.size + self.facts.excludes

    def sensitivity(self, factor: float) -> float:
        sizes = self.scales[:5:4].copy()
        sizes[1:] *= 1 + (self.order == 1) / 256
        moved = factor * float(np.linalg.norm(sizes, self.order))
        if self.facts.excludes:  # the 1 of a record that is valid in one of the tables alone
            moved = max(moved, float(np.linalg.norm([*sizes, 1.0], self.order)))
        return moved * _SLACK

    def statistic(self, answers: Answers) -> Array:
        facts, scales = self.facts, self.scales
        u = 2 * self._losses(answers) - 1
        t, is_valid = np.zeros(u.size), np.isfinite(u)
        if scales.size > 2:  # of R^2
            middle, half = facts.high / 2 + facts.low / 2, facts.high / 2 - facts.low / 2
            t = (np.clip(answers["y"], facts.low, facts.high) - middle) / half
            is_valid &= np.isfinite(t)
        u, t = (np.clip(np.where(is_valid, of, 0.0), -1, 1) for of in (u, t))
        h, g = 1 - u**2, 1 - t**2
        last = g * t**2 if self.order == 2 else g**2
        columns = np.stack([u, h, h * t, h * g, t, g, g * t, last][: scales.size], axis=1)
        parts = np.where(is_valid[:, None], columns * scales, 0.0)
        sums = np.rint(parts / _UNIT).astype(np.int64).sum(axis=0) * _UNIT
        return np.append(sums, float(is_valid.sum())) if facts.excludes else sums

    def n_valid(self, noisy: Array) -> tuple[float, float]:
        return min(max(float(noisy[-1]), 1.0), float(self.facts.n_samples)), 1.0

    @property
    def clipped(self) -> str:
        """What losses are clipped to, in words; empty if to nothing but the bounds."""
        facts = self.facts
        if self.name == "log loss":
            return f"losses clipped at {facts.max_log_loss:g}"
        if "probability less label" in self.name:
            return ""
        ends = f"[{facts.low:.4g}, {facts.high:.4g}], a released range"
        found = [f"targets and predictions clipped to {ends}"] * facts.is_narrowed
        if facts.max_error < facts.high - facts.low:
            found.append(f"errors clipped at {facts.max_error:g}")
        return ", ".join(found)

    def estimate(self, scoring: str, noisy: Array, law: Law) -> Estimate:
        n, scales, width = float(self.facts.n_samples), self.scales, 0.0
        if self.facts.excludes:
            n, width, noisy = self.n_valid(noisy)[0], 1.0, noisy[:-1]
        (total, gap, *targets), widths = (noisy / scales).tolist(), (*(1 / scales).tolist(), width)
        about = {"clipped": self.clipped}
        if scoring != "r2":
            # the largest loss, or twice the largest difference
            e = self.facts.max_error
            others = {"log loss": self.facts.max_log_loss, "probability less label": 2.0}
            others |= {"absolute error": e, "error": 2 * e, "square of probability less label": 1.0}
            largest = others.get(self.name, e**2)
            law = replace(law, variance=law.variance * widths[0] ** 2)
            low, high = mean_interval(total, gap, n, width / widths[0], law)
            mean = min(max(total / n, -1.0), 1.0)
            low, high = min(float(low), mean), max(float(high), mean)
            found = np.array([mean, low, high, -1.0, 1.0])
            is_signed = scoring in ("mean_bias", "calibration_in_the_large")
            found = largest / 2 * found if is_signed else 0.0 - largest * (1 + found) / 2
            mean, *ends = found.tolist()
            interval, limits = tuple(sorted(ends[:2])), tuple(sorted(ends[2:]))
            return about | {"value": mean, "interval": interval, "limits": limits}
        t, t_gap = targets[2:4]
        largest = (self.facts.max_error / (self.facts.high / 2 - self.facts.low / 2)) ** 2
        squares = largest / 2 * min(max(n + total, 0.0), 2.0 * n)
        # no smaller than its noise: what noise alone decides is a number with a long interval
        noise = math.sqrt(law.variance) * math.hypot(widths[5], 2 * min(abs(t) / n, 1) * widths[4])
        value = 1 - squares / max(n - t_gap - t**2 / n, noise, TINY)
        sums, of = noisy / scales, np.array(widths)
        if self.order == 1:  # of g^2 = g - g t^2
            sums[7], of[7] = sums[5] - sums[7], math.hypot(of[5], of[7])
        low, high = r2_interval(sums, of, largest, n, law)
        ends = min(low, value), max(high, value)
        return about | {"value": value, "interval": ends, "limits": (-math.inf, 1.0)}


# ----------------------------------------------------------------------------------- ranks


class Ranks(Sums):
    """The pairs of a record of either class that are in order less those that are not, halved.

    And how many records are in either class. No bins are needed.
    """

    dimension = 3

    @property
    def scales(self) -> Array:
        """What the three numbers are multiplied by, such that a record moves the first by 1."""
        of_counts = 0.75 if self.order == 2 else 0.5
        return np.array([2 / (self.facts.n_samples - 1), of_counts, of_counts])

    def sensitivity(self, factor: float) -> float:
        one_more = [1.0, *self.scales[1:]][: int(factor) + 1]  # of the other class
        return max(factor, float(np.linalg.norm(one_more, self.order))) * _SLACK

    def statistic(self, answers: Answers) -> Array:
        is_valid = np.isfinite(answers["score"])
        negative = np.sort(answers["score"][is_valid & (answers["truth"] == 0)])
        positive = answers["score"][is_valid & (answers["truth"] == 1)]
        above = np.searchsorted(negative, positive, "left")
        below = negative.size - np.searchsorted(negative, positive, "right")
        signs = float(np.sum(above - below)) / 2
        return np.array([signs, positive.size, negative.size]) * self.scales

    def n_valid(self, noisy: Array) -> tuple[float, float]:
        total, of_counts = float(noisy[1:].sum()), float(self.scales[1])
        return min(max(total / of_counts, 0.0), float(self.facts.n_samples)), 2 / of_counts**2

    def estimate(self, scoring: str, noisy: Array, law: Law) -> Estimate:
        signs, P, N = (noisy / self.scales).tolist()
        if min(P, N) <= 0:
            return _within(0.5, (0.0, 1.0))
        widths = tuple((1 / self.scales[:2]).tolist())
        return _within(0.5 + signs / (P * N), rank_interval(signs, P, N, widths, law))


# -------------------------------------------------------------------------------- which ones

Query = Counts | Moments | Ranks


class Formula(NamedTuple):
    """Of a query that has a name: what it is, the scores that it tells, the answers it asks for."""

    kind: type[Query]
    tells: tuple[str, ...]
    needs: tuple[str, ...]


_LABELS, _SCORES, _NUMBERS = ("truth", "predicted"), ("truth", "score"), ("y", "prediction")
_MATRIX = ("accuracy", "balanced_accuracy", "confusion_matrix")
_SQUARES = ("r2", "neg_mean_squared_error")
# cheaper ones first
FORMULAS = {
    "ranks by class": Formula(Ranks, ("roc_auc",), _SCORES),
    "correct predictions": Formula(Counts, _MATRIX[:1], _LABELS),
    "right and wrong by class": Formula(Counts, _MATRIX[:2], _LABELS),
    "confusion matrix": Formula(Counts, _MATRIX, _LABELS),
    "scores by class": Formula(Counts, ("roc_curve",), _SCORES),
    # of a group, whose pairs are few against how many a record may change
    "scores by class and group": Formula(Counts, ("roc_auc", "roc_curve"), _SCORES),
    "calibration": Formula(Bins, ("calibration_curve",), _SCORES),
    "means by prediction": Formula(Bins, ("binned_means",), _NUMBERS),
    "log loss": Formula(Moments, ("neg_log_loss",), ("own_probability",)),
    "squared error": Formula(Moments, _SQUARES[1:], _NUMBERS),
    "squared error and target": Formula(Moments, _SQUARES, _NUMBERS),
    "absolute error": Formula(Moments, ("neg_mean_absolute_error",), _NUMBERS),
    "error": Formula(Moments, ("mean_bias",), _NUMBERS),
    "probability less label": Formula(Moments, ("calibration_in_the_large",), _SCORES),
    "square of probability less label": Formula(Moments, ("neg_brier_score",), _SCORES),
}
SCORINGS = tuple(dict.fromkeys(name for one in [*FORMULAS.values()][1:] for name in one.tells))


def queries_for(scorings: Sequence[str], facts: Facts, order: float) -> list[Query]:
    """The fewest releases that tell all of these scores."""
    left, chosen = list(scorings), []
    other = "ranks by class" if facts.n_groups > 1 else "scores by class and group"
    formulas = {name: formula for name, formula in FORMULAS.items() if name != other}
    while left:
        best = max(formulas, key=lambda name: len(set(left) & set(formulas[name].tells)))
        chosen.append(formulas[best].kind(best, facts, order))
        left = [name for name in left if name not in formulas[best].tells]
    return chosen


def sized(query: Query, deviation: float) -> Query:
    """With the number of bins that suits noise of this standard deviation on each number."""
    facts = query.facts
    records = facts.n_samples / facts.n_groups
    if query.name == "calibration" and facts.edges is None:
        least = min(_TELLING * deviation / records, 0.1)  # tenths stay
        edges = (p for p in _OF_SHARES if p in (0, 1) or min(p, 1 - p) > 0.999 * least)
        facts = replace(facts, edges=tuple(edges))
    elif "roc_curve" in FORMULAS[query.name].tells and facts.n_thresholds is None:
        # order within bins is not known: that costs an area about 1 / bins, noise s sqrt(bins) / n
        bins = round(0.4 * (records / deviation) ** (2 / 3))
        facts = replace(facts, n_thresholds=min(max(bins, _FEWEST_BINS), _MOST_BINS))
    return replace(query, facts=facts)
