r"""Private units for a descent: where targets lie, how long rows are, which columns go together.

Bounds may be too wide, and columns ill-conditioned. A part of the budget buys, in this order, the
centre and spread of each target or the frequencies of the classes; the centre of the rows and
their typical length about it; and, where n is large against d, their second moments, by whose
inverse root they are multiplied. Bounds remain what values are clipped to. Rows that are long in
their units count less and keep their length, so that what they say about a linear model stays true.

All released vectors are means of vectors of norm at most 1, one for each record or pair of
records, and sizes are chosen by the exponential mechanism on a public grid: no sensitivity depends
on a released number. Derivations: doc/privacy, section 4.5.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import chdtri

from .._types import Array
from ..data.rows import UNIT_ROUNDOFF, SolverData
from ..losses import Multinomial, Squared, Tweedie
from ..mechanisms import Gaussian, Release, SelectVertex
from ..privacy.budget import PrivacyBudget
from ..randomness.stream import RandomStream
from . import statistics
from .base import Frame, Part, Problem, SolverResult, named_releases
from .defaults import BOX_UNITS, CORRECTION, INFERENCE, RATES, unit_rules
from .records import Users
from .statistics import LARGEST_PREDICTION, TINY, unit_mean
from .wide_units import LONGEST_CENTER, frequency_units, moments_size, size_of_moments, weighed_rows

LARGEST_ROW_GROWTH = 32.0  # of the bounds on rows, as noise vanishes
N_CENTERS = 3  # releases of the centre in units of columns, whose noise falls with each
_LENGTHS = np.arange(-32, 1)  # quarter octaves of the bounds on whitened rows
_RATE_SIZES = 2.0 ** np.arange(-40.0, 0.01, 0.5)  # of weighted rates, over the largest
_LARGEST_CLIP = 2.0**20  # of their derivatives, over the mean
_LEAST = 1e-6  # smaller moments count as this, so that steps are bounded
# Noise s of moments, of a ridge s sqrt(2 d), whose inverse root bounds what multiplies roundings u
# of float32: these add less than u^2 / (2 s^2) of the ridge to moments.
_ROUNDED = 1e-6
_FOR_PLACE = 16  # the m sqrt(share) of a selection that is hardly ever far off
# Octaves by which a standard deviation is above the mean octave of normal differences: .42, and .06
# more, as those of `mean_octaves` are linear between powers of two.
_OF_DEVIATION = 0.48
_RARELY = 1.4  # most rows are alike where pairs differ in fewer columns on average
_TILT = 0.25  # correlation of weights and predictions that is assumed
_NOTHING = 2.0**-40  # the spread of targets of which there may be none
_NOISY = 0.1  # scale of a selection, over the records, beyond which its prior falls faster


# records with targets in released units, the frame of these, and fields of `Units`
OfTargets = tuple[Any, Frame, dict[str, Any]]


class Doubts(NamedTuple):
    """Columns, and directions of whitened rows, that may hold nothing but noise.

    As columns that hardly ever occur, and as directions along which columns are equal, or add up to
    1. Coefficients of these are noise over a tiny length.
    """

    kept: Array  # of each column, how sure it is that its second moment is not noise, in [0, 1]
    moments: Array  # as far as that is sure
    axes: Array  # the directions, orthonormal
    unclear: Array  # of each of these, how far it is in doubt, in [0, 1]
    coefs: Array  # what 1 along each is in coefficients, of columns of about the same size


class Units(NamedTuple):
    """Rows and targets in released units.

    With the descent's coefficients w of shape (d + 1,) or (d + 1, K), its predictions are
    ``frame.offset + <z_i, w>``, of the targets; ``z_i = unit * r_i``.

    Where classes have weights, `balance` is that of the weighted frequency, times the mean weight.
    z_i is about ``[x_i - frame.center, 1] @ transform``, or times the transform if it is a vector.
    """

    problem: Problem
    n_present: int  # about how many records are not empty
    data: SolverData  # the targets, and as rows the r_i, the last coordinate 1 for an intercept,
    # with weights with which no z_i is longer than 1
    unit: Array  # of shape (dimension,)
    frame: Frame  # of the targets, and the centre of the rows
    balance: float  # 4 p (1 - p), p the frequency of the second of two classes; else 1
    curvature: float  # of the loss; rare classes have records of little information
    top: float  # about the largest eigenvalue of the second moments of the rows
    trace: float  # and their trace
    longest: float  # norm of the longest rows, before all were divided by it
    growth: float  # how much larger clips are than those that suit the largest noise, squared
    transform: Array
    doubts: Doubts | None = None
    top_noise: float = math.inf  # how far `top` may be above it
    copy: Any = None  # the r_i without the intercept's coordinate, not weighted
    spread: float = 0.0  # root mean square of the predictions of slopes of norm 1
    # Variances of the released means: of a target, in its units (of rates that of its logarithm),
    # or of a frequency, and of a column's.
    level_noise: Any = math.inf
    center_noise: Any = math.inf
    # of the targets of a regression in their units, the mean without a clip, and its variance
    whole: Any = 0.0
    whole_noise: Any = math.inf
    median: Any = 0.0  # of the targets of a regression in their units, whose 0 is the released mean
    # what few weighted derivatives of rates exceed at the start, or some of the users' gradients
    clip: float = math.inf
    largest: float = LARGEST_PREDICTION  # of rates
    # If the sums of gradients over the rows of users are clipped, and about how many have a row.
    users: Users | None = None
    n_users: int = 0
    n_positive: float = math.inf  # about how many rates are above 0
    # of rates, by how much that clip lowers their level, and what is added to one that lowers it
    # 1 / e times as much
    level_bias: float = 0.0
    tail: float = math.inf
    may_be_none: bool = False  # whether `n_present` is not clear of its noise
    # as weights of records may go with features: variance of the weighted mean of predictions about
    # the plain one, over the variance of predictions
    tilt: float = 0.0
    steps_noise: float = math.inf  # of rates, about the variance of their level after the descent
    shift: Any = 0.0, 0.0  # of the centre from the mean of the rows, plain and in the units

    def recentred(self, coef: Array, tilt: float) -> tuple[Units, Array]:
        """The copy about another centre, and coefficients that predict the same.

        Second derivatives differ with predictions. About the mean of the rows by them, slopes and
        the level do not depend on each other, and are clearer of noise. Of normal rows it is off
        the plain mean by the slopes, times their variance and a `tilt`.
        """
        d, unit = self.problem.n_features, float(self.unit[-1])
        if tilt == 0 or unit == 0:  # (then rows are 0, all of them and for certain)
            return self, coef
        shift = tilt * self.spread**2 * coef[:d] * (self.unit[:d] > 0)
        shift /= max(1.0, float(np.linalg.norm(shift)) / (INFERENCE.furthest * self.spread + TINY))
        copy = self.copy.map(statistics.moved, shift / np.maximum(self.unit[:d], TINY))
        plain = shift @ np.linalg.pinv(self.transform[:d, :d])
        frame = replace(self.frame, center=self.frame.center + plain)
        about = self._replace(copy=copy, frame=frame, shift=(plain, shift))
        return about, np.append(coef[:d], coef[d] + shift @ coef[:d] / unit)

    @property
    def ratio(self) -> float:
        """A mean over all records, times this, is one over those that are not empty."""
        return self.problem.n_samples / self.n_present

    def center_variance(self, slopes: Array) -> Any:
        """Of the predictions of slopes of shape (d,) or (d, K), by the centre of copied rows."""
        plain = self.transform[: len(slopes), : len(slopes)] @ slopes
        return (self.center_noise * (plain**2).T).sum(axis=-1)

    def near_mean(self, coef: Array, variance: float, wider: float = 0.0) -> Array:
        """Coefficients of rates whose level is between their own, of this variance, and the mean's.

        On the log scale, weighed by the errors of both. The own level errs by noise, and by what a
        clip takes away that is so much `wider` than the descent's; what it would take of shorter
        tails is given back. A level is that of the mean prediction, as if predictions were normal
        and directions alike. As they may not be, the mean's also errs by a part of the most that
        exponentials can add, of rows of norm 1 (Bennett).
        """
        unit, slopes = float(self.unit[-1]), coef[:-1]
        if unit < RATES.least_level_unit:
            return coef
        norm, moment = min(float(np.linalg.norm(slopes)), 300.0), self.trace / coef.size
        added, most = 0.5 * moment * norm**2, math.log1p(moment * (math.expm1(norm) - norm))
        not_normal = RATES.not_normal * (most - added)
        known = self.level_noise + self.center_variance(slopes) + not_normal**2
        known = known + 2 * added * self.tilt
        far, part = max(0.0, wider) / self.tail, RATES.lost
        bias = self.level_bias * math.exp(-far)
        kept = (known + TINY) / (variance + bias**2 + known + TINY)
        moved = float(np.sum(self.shift[1] * slopes))
        level = unit * coef[-1] - moved + added + part * self.level_bias * math.exp(-far / part)
        return np.append(slopes, (kept * level - added + moved) / unit)

    def result(self, coef: Array, problem: Problem, n_iter: int) -> SolverResult:
        """The model for plain rows, from the descent's coefficients of shape (size,)."""
        coef, transform = coef.reshape(problem.shape), self.transform
        solution = transform @ coef if transform.ndim == 2 else (transform * coef.T).T
        n_present = 0 if self.may_be_none else self.n_present
        found = replace(self.frame.result(solution.ravel(), problem, n_iter), n_present=n_present)
        if not isinstance(problem.loss, Multinomial):
            return found
        # a softmax tells differences of classes alone
        coef = found.coef - found.coef.mean(axis=0)
        return replace(found, coef=coef, intercept=found.intercept - found.intercept.mean())


@dataclass(frozen=True)
class LearnedUnits(Part):
    """What is released before the descent; None for what is not."""

    problem: Problem
    accuracy: float  # m = n mu / phi, that of a mean of numbers in [-1, 1] with the whole budget
    left: float  # of the budget, for the descent
    median_share: float = 0.0  # and for a target's median
    n_rounds: int = 0
    cuts_rows: bool = False  # whether long rows become shorter in the place of counting less
    present: Gaussian | None = None  # the share of the records that are not empty, if some may be
    positive: Gaussian | None = None  # the share of rates above 0
    target_median: SelectVertex | None = None  # of a regression, once for each target
    target_spread: SelectVertex | None = None
    target_mean: Gaussian | None = None  # deviations of the targets, or frequencies of the classes
    long: SelectVertex | None = None  # norm that few rows exceed
    length: SelectVertex | None = None  # and of the centred rows
    center: Gaussian | None = None
    sizes: Gaussian | None = None  # of the columns, in octaves
    near: Gaussian | None = None  # how near the centre they are, where that is all that can be told
    moments: Gaussian | None = None  # second moments, of each round
    far: SelectVertex | None = None  # the length that few whitened rows exceed
    top: Gaussian | None = None  # their largest eigenvalue alone

    @property
    def releases(self) -> tuple[Release, ...]:
        n_targets = self.problem.n_outputs
        median = "target size" if self.problem.loss.task == "rates" else "target median"
        return named_releases(
            ("rows present", self.present, 1),
            ("positive targets", self.positive, 1),
            (median, self.target_median, n_targets),
            ("target spread", self.target_spread, n_targets),
            ("mean target", self.target_mean, 1),
            ("column sizes", self.sizes, 1),
            ("row length", self.long, 1),
            ("feature means", self.center, 1 if self.sizes is None else N_CENTERS),
            ("values near the centre", self.near, 1),
            ("centred length", self.length, 1),
            ("second moments", self.moments, self.n_rounds),
            ("whitened length", self.far, 1),
            ("top eigenvalue", self.top, 1),
        )

    def run(self, data: SolverData, stream: RandomStream) -> Units:
        """Make the releases, and bring rows and targets into their units."""
        problem, rules = self.problem, unit_rules(self.problem)
        n = statistics.rows_present(data, self.present, stream)
        is_rate = problem.loss.task == "rates"
        release_targets = self._release_rates if is_rate else self.release_targets
        data, frame, of_targets = release_targets(data, n, stream)
        data = frame.weighted(data)
        is_binary = problem.loss.task == "classification" and problem.n_outputs == 1
        # rare classes: fewer records carry information about the coefficients
        balance = frame.balance if is_binary else 1.0
        balance *= frame.mean_weight
        growth = rules.growth * self.accuracy * (n / data.n_samples) * balance
        growth = max(1.0, growth / (problem.n_features + 1))
        row_growth = min(LARGEST_ROW_GROWTH, max(1.0, math.sqrt(rules.row_growth * growth)))
        if problem.is_wide:
            center, found = self._release_wide(data, n, row_growth, stream)
        else:
            longer = row_growth
            if not (is_rate or self.cuts_rows):
                more = rules.long_rows * max(0.0, growth - rules.long_rows_from)
                longer = max(row_growth, min(rules.most_long_rows, math.sqrt(1 + more)))
            center, found = self._release_copy(data, n, row_growth, longer, stream)
        frame = replace(frame, center=center)  # which is 0 without an intercept
        curvature = problem.loss.smoothness * min(1.0, 4 * balance)
        if is_rate:
            curvature = RATES.curvature * balance
        found |= {"balance": balance, "curvature": curvature, "growth": growth}
        found["may_be_none"] = statistics.may_be_none(n, data.n_samples, self.present)
        return Units(problem, n, frame=frame, **found, **of_targets)

    # ---------------------------------------------------------------------- targets

    def release_targets(self, data: Any, n: int, stream: RandomStream) -> OfTargets:
        """Targets in released units, the frame without its features, and fields of `Units`.

        Of n present records.
        """
        problem, k, ratio = self.problem, self.problem.n_outputs, data.n_samples / n
        if problem.loss.task == "classification":
            if self.target_mean is None:
                return data, Frame(), {}
            sum_of = statistics.class_sum if problem.has_weights else statistics.target_sum
            mean = data.sum(sum_of, problem) / data.n_samples
            noisy = self.target_mean.release(mean, stream)
            found, tilt = (ratio * noisy, ratio**2 * self.target_mean.variance), 0.0
            if problem.has_weights:
                tilt = _tilt(float(found[0].sum()), math.sqrt(found[0].size * found[1]))
                found = statistics.weighted_mean(problem, *found)
            # two classes have targets of -1 and 1
            noise = found[1] if problem.has_frequencies else found[1] / 4
            of_means = {"level_noise": noise, "tilt": tilt}
            return data, statistics.constant_for_mean(problem, *found), of_means
        medians, scales = np.zeros(k), np.full(k, 0.25)
        if self.target_median is not None:
            for j in range(k):
                places = problem.target_scaling.places(j)
                counts = data.sum(statistics.target_counts, j, None, places)
                facts = places, statistics.target_prior(problem, j), self.target_median, stream
                medians[j] = statistics.median_on_grid(counts, n, *facts)
        # in a run of their own: selections of two ranges do not compose by turns
        if self.target_spread is not None:
            for j in range(k):
                of_one = j, float(medians[j]), statistics.SPREADS
                counts = data.sum(statistics.target_counts, *of_one)
                scales[j] = statistics.spread_on_grid(counts, n, self.target_spread, stream)
        centers, of_means = self._moved_to_means(data, ratio, medians, scales, stream)
        of_means["median"] = (medians - centers) / scales
        if statistics.may_be_none(n, data.n_samples, self.present) and not problem.inference:
            # the middle of the bounds, nearly
            centers, scales = np.zeros(k), np.full(k, _NOTHING)
        center, scale = (centers, scales) if k > 1 else (centers[0], scales[0])
        frame = Frame(target_center=center, target_scale=scale)
        data = data.map(statistics.in_target_units, center, scale)
        return data, frame, of_means

    def _release_rates(self, data: Any, n: int, stream: RandomStream) -> OfTargets:
        """Targets over their mean, the frame of its logarithm, and fields of `Units`."""
        assert self.target_mean is not None
        size, few, n_positive = self._rate_size(data, n, stream)
        has_weights = self.target_mean.dimension > 1
        parts = statistics.rate_parts(has_weights)
        noises = np.maximum(math.sqrt(self.target_mean.variance) / parts, TINY)
        # a clip beyond which tails of finite variance have no more than the noise that it makes
        wide = size * max(1.0, math.sqrt(few / data.n_samples / float(noises[0])))
        wide = min(wide, self.problem.largest_rate)
        sums = data.sum(statistics.rate_sum, wide, has_weights) / data.n_samples
        noisy = np.maximum(self.target_mean.release(sums, stream) / parts, noises)
        of_weights = float(noisy[1]) if has_weights else 1.0
        mean = wide * float(noisy[0]) / of_weights
        weight = min(1.0, of_weights * data.n_samples / n)
        variance = float(((noises / noisy) ** 2).sum())  # of the mean's logarithm
        # a few exceed their size, of counts by this on average if those above 0 are exponential
        tail = size / mean / math.log(max(n_positive / max(few, 1.0), math.e))
        tail *= 1.0 if self.problem.loss == Tweedie(1) else RATES.tail_of_costs

        few_beyond = math.floor(few) / n * tail / weight  # none without noise

        def beyond(clip: float, part: float = 1.0) -> float:
            """What is beyond with tails that are so much shorter."""
            return part * few_beyond * math.exp(-max(0.0, clip - size / mean) / (part * tail))

        most, lost = beyond(wide / mean), beyond(wide / mean, RATES.lost)
        if wide < self.problem.largest_rate:
            mean, variance = min(1.0, mean * (1 + lost)), variance + most**2
        data = data.map(statistics.in_target_units, 0.0, mean)
        # what few of the derivatives exceed, and hardly any of rates below the mean
        clip = min(_LARGEST_CLIP, max(size / mean - weight, min(1.0, 2 * weight)))
        reach = math.inf
        if noises[0] > TINY and not self.problem.inference:  # few means are far beyond a size
            # which is one of weighted rates: of short exposures, or of all if weights are small
            of_few = wide / min(self.problem.largest_rate, weight)
            reach = math.log(RATES.largest_mean) + max(0.0, math.log(of_few / mean))
        frame = Frame(target_center=math.log(mean), mean_weight=weight, reach=reach)
        found = {"clip": clip, "level_noise": variance}
        found["largest"] = min(reach, -frame.target_center)
        found |= {"level_bias": beyond(clip + weight), "tail": tail, "n_positive": n_positive}
        if self.problem.has_weights:
            ratio = data.n_samples / n
            found["tilt"] = _tilt(ratio * of_weights, ratio * float(noises[1]))
        return data, frame, found

    def _rate_size(self, data: Any, n: int, stream: RandomStream) -> tuple[float, float, float]:
        """A size of weighted rates, how many exceed it, few, but clear of noise, and are above 0.

        If it is not clear, as too few rates are above 0, it is likely to be near one that is usual
        for the bounds, and 0 exceed it, as nothing is known of these.
        """
        assert self.positive is not None
        assert self.target_median is not None
        slots, scale = self.problem.n_samples, self.target_median.scale
        sizes = self.problem.largest_rate * _RATE_SIZES
        counts = data.sum(statistics.rate_size_counts, sizes)
        share = self.positive.release(np.array([counts[1:].sum() / slots]), stream)
        # no more than there are, as a rule
        n_positive = slots * (float(share[0]) - math.sqrt(self.positive.variance))
        n_positive = min(max(n_positive, 0.0), float(n))
        hidden = 2 * math.sqrt(self.problem.dimension) * slots / self.accuracy
        few = min(max(hidden, math.sqrt(scale * n_positive)), n_positive / 3)
        # what rates over such a size add up to at least, of tails of finite variance
        least, octaves = math.sqrt(few * n_positive), np.log2(_RATE_SIZES)
        # the less that tells, the more a size is the usual one
        usual, is_clear = self.problem.usual_rate, least >= RATES.clear * scale
        slope = (1.0 if is_clear else RATES.usual) * min(1.0, scale / max(least, TINY))
        prior = -slope * np.abs(octaves - math.log2(usual))
        facts = sizes, prior, self.target_median, stream, math.ceil(few), math.ceil(least)
        size = statistics.median_on_grid(counts, n, *facts)
        return size, few if is_clear else 0.0, n_positive

    def _moved_to_means(
        self, data: SolverData, ratio: float, centers: Array, scales: Array, stream: RandomStream
    ) -> tuple[Array, dict[str, Any]]:
        """From the medians of the targets to their means; Huber's where the noise is large.

        And fields of `Units`: the variance of these, and the means without a clip.
        """
        if self.target_mean is None:
            return centers, {}
        k, m, rules = centers.size, self.accuracy / ratio, unit_rules(self.problem)
        clip = min(rules.widest_mean, max(1.0, m / 20))
        # no further than the bounds, which targets at one of them are close to
        ends = np.clip([centers - clip * scales, centers + clip * scales], -1.0, 1.0)
        middle, half = ends.mean(axis=0), (ends[1] - ends[0]) / 2
        is_whole = self.target_mean.dimension > k
        mean = data.sum(statistics.means_sum, middle, half, is_whole) / data.n_samples
        unit, slope = ratio * math.sqrt(self.target_mean.dimension), 0.5 + (clip - 1) / 3
        noisy, variance = unit * self.target_mean.release(mean, stream), self.target_mean.variance
        # the slope of Huber's mean where half of the deviations lie within 1
        deviations = (middle - centers + half * noisy[:k]) / min(1.0, slope)
        of_means = variance * (unit * half / scales / min(1.0, slope)) ** 2
        prior = 0.09 + 9 / (m**2 * self.median_share / k)
        moved = np.clip(centers + deviations / (1 + of_means / prior), -1.0, 1.0)
        found: dict[str, Any] = {"level_noise": of_means}
        if is_whole:
            found |= {"whole": (noisy[k:] - moved) / scales}
            found |= {"whole_noise": variance * (unit / scales) ** 2}
        return moved, found

    # ------------------------------------------------------------------------- rows

    def _release_wide(
        self, data: Any, n: int, growth: float, stream: RandomStream
    ) -> tuple[Array, dict[str, Any]]:
        """The centre, and fields of `Units`, of rows that are not copied: see `wide_units`.

        The unit of a feature that is left out is 0.
        """
        problem, rules = self.problem, unit_rules(self.problem)
        measured, rough = self._rough_length(data, n, 0.5, stream)
        d, ratio = problem.n_features, data.n_samples / n
        center, unit, usual = np.zeros(d), np.ones(d), rough
        if self.center is not None:
            # sizes in the place of means that may cancel out
            of_sizes = data.is_sparse and not problem.nonnegative
            mean = measured.sum(statistics.short_row_sum, rough, of_sizes) / data.n_samples
            noisy = rough * self.center.release(mean, stream) * ratio
            noise = rough * math.sqrt(self.center.variance) * ratio
            if not (data.is_sparse or problem.nonnegative):
                center = statistics.shrunk_vector(noisy, noise**2)
            else:
                unit, usual = frequency_units(noisy, noise, noise / rough, rules)
                center = noisy * (noisy > rules.sure * noise) if problem.nonnegative else center
        if not problem.fit_intercept:  # which would have to make up for the centre
            center = np.zeros(d)
        centred = data.map(statistics.measure, center, unit)
        longest = 2 * rough * max(float(unit.max()), TINY)
        usual = min(longest, max(usual, 1e-3 * longest))
        norm = statistics.scale_on_grid(centred, n, longest, usual, self.length, stream)
        norm *= rules.row_bound * growth
        # so that the rounding of the centre's part is small against the rows
        norm = max(norm, float(np.linalg.norm(unit * center)) / LONGEST_CENTER)
        rows, unit, top = centred.map(weighed_rows, center, norm), unit / norm, 1.0
        if self.top is not None:
            size = np.array([size_of_moments(rows, unit, center)])
            top = self._release_top(size, ratio, stream)
        found = self._joined(unit, top, 0.9 / growth**2, 0.5)
        data = rows.map(statistics.weighed, problem, self.cuts_rows).kept()
        return center, found | {"data": data, "unit": found["transform"]}

    def _release_copy(
        self, data: Any, n: int, growth: float, longer: float, stream: RandomStream
    ) -> tuple[Array, dict[str, Any]]:
        """The same, of a dense copy of the rows, with their second moments.

        In these rows are cut to lengths of one growth, and those of gradients are `longer`.
        """
        problem, rules, ratio = self.problem, unit_rules(self.problem), data.n_samples / n
        d, is_rate, bound = problem.n_features, problem.loss.task == "rates", 1.0
        # Moments of rows that are cut shorter than those of the gradients tell less of these.
        # Twice the usual length cuts few; only of exponentials are long rows worth more noise.
        wide = 1.0 if self.moments is None else rules.moment_growth
        cut = growth * wide if is_rate else max(growth, wide)
        center, by, (norm, noise, usual, occur) = self.release_columns(data, cut, n, stream)
        of_rows = center, by, cut, longer, occur
        by, top, trace, doubts = self._release_moments(data, n, stream, *of_rows)
        copy = data.map(statistics.copied, center, by).kept()
        if self.far is not None:
            # a few rows count less than others, however long they are
            share = rules.clear_count / math.sqrt(rules.far_share) / self.accuracy
            grid, few = 2.0 ** (_LENGTHS / 4), math.ceil(share * problem.n_samples)
            facts = n, grid, np.zeros(grid.size), self.far, stream, few
            bound = statistics.median_on_grid(copy.sum(statistics.norm_counts, grid), *facts)
            bound = min(1.0, max(bound, math.sqrt(trace)))  # if most rows are 0
            copy = copy.map(statistics.bounded, bound).kept()
        top, top_noise = top / bound**2, math.inf
        if self.top is not None:
            moments = np.asarray(copy.sum(statistics.moment_sum)) / data.n_samples
            eigenvalues = np.asarray(np.linalg.eigvalsh(moments)[-1:], dtype=np.float64)
            top = self._release_top(eigenvalues, ratio, stream)
            top_noise = 3 * ratio * math.sqrt(self.top.variance)
        transform = by.astype(np.float64) if self.n_rounds else by * np.eye(d)
        last = 1.0 if self.n_rounds else 0.5
        found = self._joined(transform / bound, top, trace / bound**2, last)
        spread = math.sqrt(found["trace"] / problem.dimension)
        if not self.n_rounds:  # of normal rows, half of which are longer than is usual
            spread = usual / norm / math.sqrt(chdtri(d, 0.5)) / found["longest"]
        unit = np.full(problem.dimension, 1 / (found["longest"] * bound))
        unit[d:] = found["transform"][d:, -1]
        data = copy.map(statistics.weighed, problem, self.cuts_rows)
        found |= {"data": data, "unit": unit, "doubts": doubts, "spread": spread}
        found["top_noise"] = top_noise
        if self.center is not None:
            found["center_noise"] = noise**2
        return center, found | {"copy": copy if problem.inference or is_rate else None}

    def release_columns(
        self, data: Any, cut: float, n: int, stream: RandomStream
    ) -> tuple[Array, Array, tuple[float, Any, float, Any]]:
        """The centre, what columns are multiplied by then, and sizes.

        These are what rows were divided by, the noise of the centre, the usual norm of rows, and
        the shares of pairs in which columns differ and how sure these are to be above 0, if columns
        have sizes of their own.
        """
        if self.sizes is not None:
            return self._release_in_sizes(data, cut, n, stream)
        rules, ratio, noise = unit_rules(self.problem), data.n_samples / n, 0.0
        center, unit, rough, usual = self.release_center(data, n, stream)
        norm = rules.row_bound * usual * cut
        if self.center is not None:
            noise = ratio * rough * math.sqrt(self.center.variance)
            # the centre of shorter rows is noise
            least = rules.clear_center * float(np.linalg.norm(noise * unit))
            norm = max(norm, min(least, 0.3 * rough))
        if self.length is None:
            norm = min(norm, rough + float(np.linalg.norm(center)))
        return center, unit / norm, (norm, noise, usual, None)

    def _release_in_sizes(
        self, data: Any, cut: float, n: int, stream: RandomStream
    ) -> tuple[Array, Array, tuple[float, Any, float, Any]]:
        """The same, of columns in released units, of which each is about as large as the others."""
        rules = unit_rules(self.problem)
        unit, differ, error = self._release_sizes(data, n, stream)
        # Of the noise of centres, in these units, the sum is least in the root of them, as columns
        # may lie anywhere in their bounds.
        by, longest = np.sqrt(unit), float(np.linalg.norm(unit))
        measured = data.map(statistics.measure, None, by)
        norm = float(np.linalg.norm(by))
        rough = 1.3 * statistics.scale_on_grid(measured, n, norm, norm / 2, self.long, stream, 1.0)
        center, noise = np.zeros(unit.size), np.zeros(unit.size)
        if self.center is not None:
            center, noise = self._release_centers(data, unit, rough, n, stream)
        # (intervals of rare flags hold with shorter rows)
        measured = measured.map(statistics.measure, center, unit, not self.problem.inference)
        guess = min(2.0 * float(np.linalg.norm(np.hypot(1.0, noise * unit))), longest)
        usual = statistics.scale_on_grid(measured, n, 2 * longest, guess, self.length, stream, 1.0)
        if float(differ.sum()) < _RARELY:
            # most rows are as long as the centre is off; about the root mean square of flags' rows
            usual = max(usual, 2.0 * float(np.linalg.norm(np.sqrt(differ))))
        least = rules.clear_center * float(np.linalg.norm(noise * unit))
        norm = cut * max(rules.row_bound * usual, min(least, 0.3 * longest))
        # Where hardly anything occurs, means are also near 0 or an end of the bounds. (The more is
        # known, the more second moments tell.)
        off = np.minimum(np.abs(center), 1 - np.abs(center)) / np.maximum(noise, TINY)
        known = self.accuracy * n / data.n_samples / unit.size**1.5 / rules.doubts_all
        clear = rules.clear_moment * max(0.0, 1 - known**2)
        sure = 1 - (clear / np.maximum(np.hypot(differ / error, off), clear + TINY)) ** 2
        return center, unit / norm, (norm, noise, usual, (differ, sure))

    def _rough_length(
        self, data: Any, n: int, fall: float, stream: RandomStream
    ) -> tuple[Any, float]:
        """Rows with their norms, and to what they are cut for the mean of them."""
        longest, measured = math.sqrt(self.problem.n_features), data.map(statistics.measure)
        facts = longest, longest / 2, self.long, stream, fall
        return measured, min(1.3 * statistics.scale_on_grid(measured, n, *facts), longest)

    def release_center(
        self, data: Any, n: int, stream: RandomStream, *, of_box: bool = False
    ) -> tuple[Array, Array, float, float]:
        """The centre of the rows, units, to what they were cut, and the usual norm in these units.

        Sparse rows of a box keep their zeros, which a centre would shift.
        """
        # between rows that are 0 and others, all sizes are alike to the selection
        fall = 0.5 if of_box else 1.0
        if self.long is not None and self.problem.loss.task == "regression" and not of_box:
            # much too short a norm, as noise finds, makes predictions as many times too long
            fall *= max(1.0, self.long.scale / (_NOISY * n))
        measured, rough = self._rough_length(data, n, fall, stream)
        center, unit = np.zeros(self.problem.n_features), np.ones(self.problem.n_features)
        if self.center is not None:
            mean = measured.sum(statistics.short_row_sum, rough) / data.n_samples
            noisy, variance = self.center.release(mean, stream), self.center.variance
            if not (of_box and data.is_sparse):
                center = rough * statistics.shrunk_vector(noisy, variance) * (data.n_samples / n)
                unit = self._release_near(data, n, center, stream)
                # (intervals of rare flags hold with shorter rows)
                zeros_stay = not self.problem.inference
                measured = measured.map(statistics.measure, center, unit, zeros_stay)
        facts = 2 * rough * float(unit.max()), rough / 2, self.length, stream, fall
        return center, unit, rough, statistics.scale_on_grid(measured, n, *facts)

    def _release_near(self, data: Any, n: int, center: Array, stream: RandomStream) -> Array:
        """Units of columns: larger than 1 where values are much nearer the centre than usual.

        As bounds are, of which some are far too wide. Smaller differences are left: columns may be
        skewed, and their far values tell most.
        """
        if self.near is None:
            return np.ones(center.size)
        mean = data.sum(statistics.near_sum, center) / data.n_samples
        longest = statistics.NEAREST * math.sqrt(center.size)
        near = longest * (data.n_samples / n) * self.near.release(mean, stream)
        rules = unit_rules(self.problem)
        apart = np.maximum((near - np.median(near)) / rules.per_octave, rules.apart)
        return np.minimum(2.0 ** (apart * (1 - (rules.apart / apart) ** 4)), rules.most_apart)

    def _joined(self, transform: Array, top: float, trace: float, last: float) -> dict[str, Any]:
        """Fields of `Units` for rows with the intercept's coordinate: `last`, or less."""
        d, dimension = self.problem.n_features, self.problem.dimension
        last = min(last, math.sqrt(top)) if dimension > d else 0.0
        size = math.sqrt(1 + last**2) / (1 - 8 * UNIT_ROUNDOFF)
        whole = np.zeros((dimension,) * transform.ndim)
        whole[(slice(d),) * transform.ndim] = transform / size
        whole[(slice(d, None),) * transform.ndim] = last / size
        top, trace = max(top, last**2, _LEAST) / size**2, max(trace + last**2, _LEAST) / size**2
        return {"transform": whole, "longest": size, "top": top, "trace": trace}

    def _release_sizes(self, data: Any, n: int, stream: RandomStream) -> tuple[Array, Array, float]:
        """Units of the columns, the inverse of their sizes, as far as these are above the noise.

        And the share p of the pairs in which each column differs, small for a rare flag, and the
        noise of that. Released is p times the octaves of these differences.
        """
        assert self.sizes is not None
        rules, d = unit_rules(self.problem), self.problem.n_features
        noise, is_centred = math.sqrt(d * self.sizes.variance), self.center is not None
        # vectors may be longer, as of bounds that are wider, where there is less noise
        most = min(rules.most_octaves, max(rules.octaves, rules.clear_octave / max(noise, TINY)))
        longest, ratio = most * math.sqrt(d), data.n_samples / n
        n_pairs = statistics.size_pairs(data.n_samples, d, self.accuracy)
        mean = statistics.mean_octaves(data, d, n_pairs, most, is_centred)
        scale = longest * ratio**2  # of pairs without an empty row
        noisy, equal = np.split(scale * self.sizes.release(mean, stream), 2)
        differ = np.clip(1 - equal / most, 0.0, 1.0)
        variance = max(scale**2 * self.sizes.variance, 1e-24)
        noisy = np.clip(noisy, -longest, longest)  # (by chance, most of few valid rows are pairs)
        if variance > 1:  # where most rows are empty, too little is known
            noisy = np.zeros(d)
        octaves, left = _shrunk_octaves(noisy, differ, variance, most, rules.octaves**2)
        # (where some rows are empty, p may be next to 0 by chance)
        octaves = np.clip(octaves, -longest, longest)
        # Units that are too large cost more than those that are too small; large numbers that are
        # rare make no long rows.
        sure = np.minimum(octaves + rules.size_doubt * np.sqrt(left), 0.0)
        octaves = np.where(octaves > 0, differ * octaves, sure)
        usual = float(octaves.mean())
        apart = octaves - usual
        # skewed columns in good bounds are small, too, and their long rows tell much; intervals of
        # rare flags need these as large as they are
        alike = rules.alike * np.where(apart > 0, 1 + self.problem.inference, 1)
        octaves = usual + apart * (1 - (alike / np.maximum(np.abs(apart), alike)) ** 4)
        octaves = np.maximum(octaves, octaves.max() - rules.most_enlarged)
        unit = 2.0 ** -(octaves + statistics.USUAL_OCTAVES + _OF_DEVIATION)
        return unit, differ, math.sqrt(variance) / most

    def _release_centers(
        self, data: Any, unit: Array, bound: float, n: int, stream: RandomStream
    ) -> tuple[Array, Array]:
        """The centre and its noise, by several means of rows cut to a bound in the units' root.

        Their noise falls with how far columns are thought to be from the last centre. The centre is
        the average by precision of all but the first, which is of rows that are cut most, shrunk as
        a whole: shrunk one by one, moves that are below the noise of all columns together would
        leave one of these far off.
        """
        assert self.center is not None
        by, center, noise = np.sqrt(unit), np.zeros(unit.size), np.zeros(unit.size)
        variance, ratio = self.center.variance, data.n_samples / n
        for t in range(N_CENTERS):
            if t > 0:
                away = np.hypot(1 / unit, 1.5 * noise)
                before, by = by, np.sqrt(unit / away)
                bound *= float((by / before).max())
                # (next to no noise is worth no cut)
                least = 0.1 / max(ratio * math.sqrt(variance), TINY)
                bound = min(bound, max(1.5 * float(np.linalg.norm(by * away)), least))
            mean = np.asarray(data.sum(statistics.centred_sum, center, by / bound))
            noisy = self.center.release(mean / data.n_samples, stream)
            if t < 2:
                total, precision = np.zeros((2, unit.size))
            own = (by / bound / ratio) ** 2 / max(variance, 1e-99)  # (its inverse is no infinity)
            total += own * (center + ratio * bound * noisy / by)
            precision += own
            noise = 1 / np.sqrt(precision)
            center = np.clip(statistics.shrunk_vector(total * noise, 1.0) * noise, -1.0, 1.0)
        return center, noise

    def _release_moments(
        self,
        data: Any,
        n: int,
        stream: RandomStream,
        center: Array,
        by: Array,
        cut: float,
        longer: float,
        occur: tuple[Array, Array] | None,
    ) -> tuple[Array, float, float, Doubts | None]:
        """What the rows are multiplied by, their top moment and trace then, and the doubts.

        The matrix that whitens them, by their second moments, if these are released. Its smallest
        singular values are those of the noise: what is lost in it is not blown up.
        """
        d, top, trace, doubts = self.problem.n_features, 1.0, 0.6, None
        ratio = data.n_samples / n
        for t in range(self.n_rounds):
            assert self.moments is not None
            moments = data.sum(statistics.turned_moment_sum, center, by) / data.n_samples
            noisy = ratio * self.moments.release(statistics.isometric_vector(moments), stream)
            scale = ratio * math.sqrt(self.moments.variance)
            # (rounded rows are much faster to multiply)
            kind = np.float32 if scale > _ROUNDED else np.float64
            root, axes, ridge = statistics.whitening(noisy, d, scale)
            values = axes[0]
            white = values / (values + ridge)
            trace = max(float(white.sum()), 0.7)  # one deviation of noise
            # rows over their root mean square
            bound = min(math.sqrt(trace) * cut, 1 / math.sqrt(float(values.min()) + ridge))
            is_last = t == self.n_rounds - 1
            bound *= longer / cut if is_last else 1.0
            before = by if np.ndim(by) == 2 else by * np.eye(d)
            by = (before @ (root / bound)).astype(kind)
            top, trace = float(white.max()) / bound**2, trace / bound**2
            if is_last and occur is not None:
                doubts = self._doubts(before, by * bound, occur[0], axes, ridge, ratio)
        if occur is not None:
            # what is not known to occur beside others may have no moment, whatever noise says
            differ, sure = occur
            kept, none = 1 - _rare(differ) * (1 - sure) * sure.mean(), np.zeros((d, 0))
            doubts = doubts or Doubts(np.ones(d), 2 * differ, none, none[0], none)
            moments = kept * doubts.moments
            doubts = doubts._replace(kept=np.minimum(doubts.kept, kept), moments=moments)
        return by, top, trace, doubts

    def _doubts(
        self,
        before: Array,
        white: Array,
        differ: Array,
        axes: tuple[Array, Array],
        ridge: float,
        ratio: float,
    ) -> Doubts | None:
        """What may hold noise alone, of rows that the matrix `white` whitens.

        Their released second moments, in the units of the rows times `before`, have these
        eigenvalues and eigenvectors, and this ridge.
        """
        assert self.moments is not None
        rules, scale = unit_rules(self.problem), ratio * math.sqrt(self.moments.variance)
        # with many columns, the least eigenvalues are small by noise, where all moments are alike
        (values, vectors), usual = axes, float(axes[0].mean())
        noise, known = rules.clear_usual * ridge, self.accuracy / ratio / len(white) ** 1.5
        if not scale or usual <= noise:
            return None
        # Of columns, by their moments: those with the ridge are on the diagonal of the inverse of
        # the product with its transpose. (Small differences of columns that go together do not
        # count there.)
        with_ridge, units = (
            (np.linalg.inv(of.astype(np.float64)) ** 2).sum(axis=0) for of in (white, before)
        )
        moments = np.maximum(with_ridge - ridge * units, TINY)
        # where signals are hardly above noise, those that are shrunk by chance cost most
        least = rules.clear_moment * min(1.0, known / rules.doubts_all)
        sure = 1 - np.minimum(least * scale * units / moments, 1.0) ** 2
        # none that differ in half of the pairs
        rare = (1 - (noise / usual) ** 2) * _rare(differ)
        # of directions, where most others are clear of the ridge
        parts = values / (values + ridge)
        unclear = np.clip(2 - parts / rules.unclear_part, 0.0, 1.0)
        unclear *= np.clip(5 * (np.quantile(parts, 0.6) - rules.usual_part), 0.0, 1.0)
        unclear *= known > rules.doubts_from
        coefs = np.sqrt(moments)[:, None] * (white @ vectors)
        return Doubts(1 - rare * (1 - sure), sure * moments, vectors, unclear, coefs)

    def _release_top(self, found: Array, ratio: float, stream: RandomStream) -> float:
        """As a rule an upper bound on `ratio` times the largest eigenvalue or more, in [0, 1]."""
        assert self.top is not None
        noisy = float(self.top.release(found, stream)[0])
        return min(1.0, ratio * (max(0.0, noisy) + 1.5 * math.sqrt(self.top.variance)))


# ------------------------------------------------------------------------------- planning


def _shrunk_octaves(
    noisy: Array, differ: Array, variance: float, most: float, largest: float
) -> tuple[Array, Array]:
    """Octaves of columns of which `differ` times these are `noisy`, and variances of what is left.

    They are thought to be normal about a line in `differ`, as columns that are one number in most
    rows are often bounded alike. The line, and the deviations from it, of a variance that is at
    most the `largest`, are estimated from all columns, and each by what is told of itself.
    """
    powers = np.stack([differ, differ**2])
    weighed = powers / (variance + largest * powers[1])
    line = np.linalg.solve(weighed @ powers.T + np.eye(2) / largest, weighed @ noisy)
    middle = line[0] + line[1] * differ
    off, noises = noisy - differ * middle, variance * (1 + (middle / most) ** 2)
    told = np.maximum(powers[1] - variance / most**2, 0.0).sum()
    spread = min(max(float((off**2 - noises).sum()) / max(told, TINY), 0.0), largest)
    left = spread * noises / (spread * powers[1] + noises)
    return middle + left * differ * off / noises, left


def _rare(differ: Array) -> Array:
    """How rare values are in columns of which this share of pairs differ, in [0, 1]."""
    return np.asarray(1 - np.minimum(2 * differ, 1.0) ** 2)


def pays(problem: Problem, budget: PrivacyBudget, times: float = 1.0) -> bool:
    """Whether units can be learned, and are better than those of the bounds.

    From so many times the m of a descent on, each target having a part of the budget.
    """
    least = times * unit_rules(problem).least * math.sqrt(problem.n_outputs)
    return not budget.is_pure and Purse(problem, budget).accuracy >= least


@dataclass
class Purse:
    """What planning a fit in learned units has left of an allowance, as a share of it."""

    problem: Problem
    budget: PrivacyBudget
    allowance: Any = None  # an `Allowance`; None for the whole budget
    left: float = 1.0
    knows_sizes: bool = False  # of the columns, which all have about the same

    def __post_init__(self) -> None:
        problem, budget = self.problem, self.budget
        self.allowance = self.allowance or budget.mixed_allowance
        # m = n mu / phi: a mean of numbers in [-1, 1] has noise 1 / m with all of it
        m = problem.n_samples * math.sqrt(2 * self.allowance.amount) / budget.record_factor
        self.accuracy = self.user_accuracy = m
        self.n_records = problem.n_samples
        if problem.by_user:  # of what is released for users, whose gradients are added up
            self.n_records, rows = problem.n_users, budget.rows_per_user
            self.user_accuracy = m * problem.n_users * rows / problem.n_samples

    def noise(
        self, change: float, share: float, width: int = 1, count: int = 1, of_users: bool = False
    ) -> Gaussian:
        """For releases of vectors that one record moves by `change`, or as `rank` a user."""
        self.left -= share
        if of_users:
            change = statistics.of_users(change, self.problem, self.budget)
        return Gaussian.calibrate(change, self.allowance.share(share), count, width)

    def rank(self, share: float, count: int = 1, *, of_users: bool = False) -> Any:
        """For selections by ranks, of rows or, where gradients are added up by user, of users.

        None if there is no share.
        """
        if not share:
            return None
        self.left -= share
        change = statistics.median_score(self.problem.n_samples, self.budget.record_factor)
        if of_users and self.problem.by_user:
            change /= self.budget.rows_per_user
        return SelectVertex.calibrate(change, self.allowance.share(share), count)


def plan_units(purse: Purse, *, is_diagonal: bool = False) -> LearnedUnits:
    """What is released before a descent, a part of the purse being left.

    Or, if units are diagonal, before the first releases of a solver with a set.
    """
    problem, budget, m = purse.problem, purse.budget, purse.accuracy
    rules, d = unit_rules(problem), problem.n_features
    empty = rules.present_share * problem.may_be_empty
    found = _plan_targets(purse, is_diagonal, empty)
    share = 0.0 if problem.is_wide or is_diagonal else _share(m, 160, rules.norm_share / 4)
    for_place = _for_box(m) if is_diagonal else _FOR_PLACE
    share = max(share, _share(m, for_place, rules.norm_share, rules.least_for_norms, empty))
    found |= {"long": purse.rank(share), "length": purse.rank(share)}
    if problem.may_be_empty:
        found["present"] = purse.noise(unit_mean(problem, 1.0), rules.present_share)
    if not (is_diagonal or problem.is_wide):
        found["sizes"] = plan_sizes(purse)
        found["near"] = None if found["sizes"] else plan_near(purse)
    if m >= rules.least_for_center and (problem.fit_intercept or problem.is_wide):
        of_mean = unit_mean(problem, budget.record_factor)
        count = N_CENTERS if found.get("sizes") else 1
        found["center"] = purse.noise(of_mean, rules.center_share, d, count)
    of_squares = statistics.second_moments(problem, budget)
    clear = max(rules.whiten * d**1.5, rules.least_to_whiten)
    if is_diagonal:
        found |= {"moments": purse.noise(of_squares, rules.moments_share, 2 * d), "n_rounds": 1}
    elif m > clear and not problem.is_wide:
        moments = purse.noise(of_squares, rules.moments_share, d * (d + 1) // 2, 2)
        found |= {"moments": moments, "n_rounds": 2, "far": purse.rank(rules.far_share)}
    elif m >= rules.scalars:
        of_top = statistics.top_eigenvalue(problem)
        if problem.is_wide:
            of_top = moments_size(problem, budget)
        found["top"] = purse.noise(of_top, rules.scalar_share)
    return LearnedUnits(problem, m, purse.left, **found)


def plan_sizes(purse: Purse) -> Gaussian | None:
    """For the sizes of columns, if they can be told."""
    problem, rules, d = purse.problem, unit_rules(purse.problem), purse.problem.n_features
    n_pairs = statistics.size_pairs(problem.n_samples, d, purse.accuracy)
    m = purse.accuracy * 2 * n_pairs / problem.n_samples / math.sqrt(d)
    least = rules.least_for_sizes
    if problem.inference:  # intervals need the budget more
        least = max(least, rules.least_for_intervals / math.sqrt(d))
    if n_pairs == 0 or m < least:
        return None
    share = max(rules.least_size_share, _share(m, rules.sizes_aim, rules.most_size_share))
    change = statistics.octaves_change(n_pairs, d, purse.budget)
    return purse.noise(change, share, 2 * d)


def plan_near(purse: Purse) -> Gaussian | None:
    """For how near the centre columns are, if that can be told of those that are much nearer."""
    problem, rules, d = purse.problem, unit_rules(purse.problem), purse.problem.n_features
    share = (statistics.NEAREST * math.sqrt(d) / rules.near_noise / purse.accuracy) ** 2
    is_known = purse.knows_sizes or not problem.fit_intercept
    if is_known or problem.inference or d < 3 or share > rules.most_near_share:
        return None
    change = unit_mean(problem, purse.budget.record_factor)
    return purse.noise(change, max(share, rules.least_size_share), d)


def _for_box(m: float) -> float:
    """The m sqrt(share) of a selection for a box, where few rows or targets may tell."""
    return max(BOX_UNITS.aim, m / 20)


def _tilt(mean_weight: float, noise: float) -> float:
    """`Units.tilt` for weights of this mean and noise, which vary most if all are 0 or 1."""
    return _TILT**2 * (1 / min(1.0, max(mean_weight + 2 * noise, TINY)) - 1)


def _plan_targets(purse: Purse, is_diagonal: bool, empty: float) -> dict[str, Any]:
    """What is released of the targets, as fields of `LearnedUnits`."""
    problem, m, k = purse.problem, purse.accuracy, purse.problem.n_outputs
    rules, found = unit_rules(problem), dict[str, Any]()
    # a box has a mean later
    has_mean = problem.fit_intercept and not is_diagonal
    if problem.loss.task == "classification":
        if has_mean:
            share = max(rules.least_mean_share, _share(m, 8, rules.most_mean_share))
            of_mean = statistics.target_mean(problem, purse.budget, 2)
            if problem.has_weights:
                of_mean, k = unit_mean(problem, math.sqrt(purse.budget.record_factor)), max(k, 2)
            found["target_mean"] = purse.noise(of_mean, share, k)
    elif problem.loss.task == "rates":
        of_one = unit_mean(problem, 1.0)
        # sizes that are far too wide are many, and one of them costs more than noise
        usual = max(_share(m, 170, 0.1), _share(m, 2500, rules.median_share))
        found["target_median"] = purse.rank(max(_share(m, 20, 0.25), usual))
        share = max(_share(m, 10, 0.1), _share(m, 2000, rules.positive_share))
        found["positive"] = purse.noise(of_one, share)
        share = max(_share(m, 20, 0.25), _share(m, 1500, rules.most_mean_share))
        if problem.base_loss not in (Tweedie(1), Tweedie(2)) and not problem.inference:
            # of costs among zeros, a level that is off costs more than slopes gain
            share = max(share, _share(m, 200, 0.15))
        n_numbers = 1 + (problem.has_weights or problem.may_be_empty)
        found["target_mean"] = purse.noise(of_one, share, n_numbers)
    else:
        median, spread, mean = _shares_of_targets(purse, is_diagonal, empty)
        found |= {"median_share": median, "target_median": purse.rank(median, k)}
        found["target_spread"] = purse.rank(spread, k)
        # a loss that is not convex is for gross errors, which would move a mean
        if has_mean and problem.loss.is_convex:
            of_mean = unit_mean(problem, purse.budget.record_factor)
            n_numbers = k * (1 + _tells_whole_means(purse))
            found["target_mean"] = purse.noise(of_mean, mean, n_numbers)
    return found


def _shares_of_targets(purse: Purse, is_diagonal: bool, empty: float) -> tuple[float, float, float]:
    """Of the budget, for medians, spreads and means of the targets of a regression."""
    problem, m, of_steps = purse.problem, purse.accuracy, purse.user_accuracy
    rules, k = unit_rules(problem), problem.n_outputs
    # hardly ever far off among some thousand places, once that costs next to nothing
    for_place, for_size = min(24.0, max(_FOR_PLACE, m / 12)), 14.0
    # more than the usual share only where a median would be of no use with it, at the cost of the
    # mean, which is noise there
    for_use, most, scarce = 11.0, 0.5, min(1.0, m**2 / (4 * k * 11**2))
    if is_diagonal:
        for_place = for_size = for_use = _for_box(m)
        most, scarce = 0.25, 1.0
    useful = _share(m, for_use, most / k)
    useful = max(useful, _share(m, for_place, rules.median_share / k, 0.0, empty))
    # Levels that go back to released means pay where no steps with a wide clip follow. (Of many
    # columns, slopes need the budget more.)
    is_whole, level, of_mean = _tells_whole_means(purse) and not is_diagonal, 0.0, 0.0
    has_none = of_steps < CORRECTION.least or k > 1
    is_plain = isinstance(problem.base_loss, Squared) and not (is_diagonal or problem.is_wide)
    if is_plain and has_none and (is_whole or of_steps >= 6 * problem.n_features):
        is_clear = is_whole or of_steps >= CORRECTION.least_for_spread
        is_known = of_steps >= CORRECTION.least_for_level and not problem.inference
        level = CORRECTION.level_share * is_clear
        of_mean = CORRECTION.level_share * (is_clear or is_known)
    # the last is enough for a spread that is not that of the zeros, if these are 90 %
    least = _share(m, 80, 0.005 / k, 0.0, empty), _share(m, 120, 0.012 / k, 45)
    spread = max(_share(m, for_size, rules.spread_share / k, 2), _share(m, 60, level / k), *least)
    most = rules.most_mean_share * (scarce if problem.fit_intercept else 1.0)
    mean = max(rules.least_mean_share, _share(m, 8, most), _share(m, 60, of_mean))
    if is_whole:
        mean = max(mean, _share(m, CORRECTION.mean_aim, CORRECTION.mean_share))
    return k * useful * problem.fit_intercept, k * spread, mean


def _tells_whole_means(purse: Purse) -> bool:
    """Whether the means of the targets are also released without a clip.

    Not where rows may be empty or have weights, nor if Newton steps find the level.
    """
    problem = purse.problem
    is_plain = not (problem.may_be_empty or problem.has_weights or problem.is_wide)
    least = max(CORRECTION.least_for_mean, 1.5 * problem.n_features**1.5)
    is_wanted = is_plain and not problem.inference and purse.user_accuracy >= least
    return is_wanted and isinstance(problem.base_loss, Squared)


def _share(m: float, aim: float, most: float, least: float = 0.0, empty: float = 0.0) -> float:
    """The share s, at most `most`, with m sqrt(s) = aim; 0 where m sqrt(s) is below `least`.

    But at least `empty`, for a table of which most may be empty.
    """
    share = min(most, max((aim / m) ** 2, empty))
    return share if m * math.sqrt(share) >= least else 0.0
