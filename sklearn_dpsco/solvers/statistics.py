r"""Statistics of records: what is summed, beside how far one record moves it.

A function that is named after a change bounds the distance of the released values on two
neighbouring tables, float error included. `record_factor` (2 under replace-one, 1 under zero-out)
multiplies every term that comes from a record's own contribution; float errors are counted once for
each of the two tables under both relations. `n` is the public number of slots, empty records
included. The sections named below are those of doc/privacy.
"""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from .._types import Array
from ..data.compressed import slices, with_values
from ..data.rows import (
    UNIT_ROUNDOFF,
    Rows,
    SolverData,
    Terms,
    gradient_sum,
    norm_error,
    on_threads,
    place_counts,
    row_slices,
    sum_on_threads,
    sum_over_records,
    summation_error,
    times_rows,
)
from ..losses import best_constants, clipped_derivative, largest_constant
from ..mechanisms import Gaussian, SelectVertex
from ..mechanisms.laws import PRIOR_ROOM
from ..privacy.budget import PrivacyBudget
from ..randomness.stream import RandomStream
from .base import Frame, Problem
from .defaults import FIRST_RELEASES as RULES

_OCTAVES = np.arange(-18.0, 0.01, 0.25)  # of the grid of norms
_SPREAD_OCTAVES = np.arange(-31.0, 1.01, 0.25)  # and of deviations, as bounds may be far too wide
SPREADS = 2.0**_SPREAD_OCTAVES
TINY = 1e-300  # in the place of 0 in a denominator
LARGEST_PREDICTION = 1e100  # so that no size overflows
LONGEST = 1 - 2.0**-22  # of rows before they are rounded to float32
_FEW, _CLEAR = 0.02, 16.0  # of the records that exceed a size: their share, and noises
_CLEAR_COUNT = 2.0  # of rows that are there, or missing, in standard deviations of its noise
_LEAST_CLIPPED = 0.05  # mean of clipped sizes at which a spread is sought, at least
USUAL_OCTAVES = -2.0  # binary logarithm of usual differences of numbers in [-1, 1]
_MOST_PAIRS = 2**21  # times columns, as rows are read in no order, from all blocks of a table
_ENOUGH_PAIRS = 2**14  # that are read in any case
_CLEAR_PAIRS = 1280.0  # the m of their mean, over sqrt(d), of which more would not be needed
_NEAR = (0.5, 0.25, 0.125)  # distances, in units of the bounds
NEAREST = len(_NEAR) / 2
_PAIRED_NUMBERS = 2**16  # at a time, which fit into a cache
_CLEAR_MOMENT = 3.0  # of second moments, in deviations of noise
_upper = functools.lru_cache(4)(np.triu_indices)  # places in a matrix
NORMAL_MEDIAN = float(ndtri(0.75))  # of the sizes of normal numbers


# --------------------------------------------------------------------------------- means of numbers


def mean_of_numbers(n_samples: int, n_features: int, record_factor: float) -> float:
    """Change of the mean of one number in [-1, 1] for each record (sections 3.1c and 7).

    numpy sums in blocks, whose error is far below that of our own chunks.
    """
    return record_factor / n_samples + 2 * summation_error(n_samples, n_features)


def of_users(change: float, problem: Problem, budget: PrivacyBudget) -> float:
    """That change of a mean, or of sums over users if the plan clips those (section 4.5e).

    A user of m rows moves it as far as a row would, and the float error of the user's own sum. The
    m-th part is stated, which `Guarantee` multiplies back.
    """
    if not problem.by_user:
        return change
    error = 2 * summation_error(problem.n_samples, problem.size)
    return (change + error) / budget.rows_per_user


def unit_mean(problem: Problem, record_factor: float) -> float:
    """`mean_of_numbers` over the records of a problem.

    Of numbers from 0 to 1, such as the share of records that are not empty, a record of either
    relation moves it as one of factor 1.
    """
    return mean_of_numbers(problem.n_samples, problem.n_features, record_factor)


def coordinate_mean(
    bound: float, change: float, n_samples: int, n_features: int, dimension: int, order: float
) -> float:
    """l1 or l2 change of a mean whose coordinates a record influences by `bound` (section 7).

    `change` is that of a coordinate in units of the bound, without the float error.
    """
    per_coordinate = bound * (change + 2 * summation_error(n_samples, n_features))
    return per_coordinate * (dimension if order == 1 else math.sqrt(dimension))


# ------------------------------------------------------------------------------------------ targets


def target_mean(problem: Problem, budget: PrivacyBudget, order: float) -> float:
    """l1 or l2 change of the mean of the targets' vectors (sections 2.11 and 3.1c).

    Of several classes a record has the unit vector of its own: two of them are sqrt(2) apart in
    l2, and 2 in l1. Other targets lie in [-1, 1], each.
    """
    apart = budget.record_factor ** (1 / order if problem.has_frequencies else 1)
    return target_norm(problem, order) * unit_mean(problem, apart)


def target_norm(problem: Problem, order: float) -> float:
    """Bound on the l1 or l2 norm of a record's targets: a unit vector, or each in [-1, 1]."""
    return 1.0 if problem.has_frequencies else problem.n_outputs ** (1 / order)


def n_present(
    total: Array, n_slots: int, most: int, mechanism: Gaussian, stream: RandomStream
) -> int:
    """About how many of `most` records are not empty, of which there are `total`.

    All, unless clearly more than noise are missing, and no fewer than its noise.
    """
    share = float(mechanism.release(total / n_slots, stream)[0])
    noise = _CLEAR_COUNT * math.sqrt(mechanism.variance)
    if most / n_slots - share <= noise:
        return most
    return min(most, max(2, round(n_slots * max(share, noise))))


def rows_present(data: SolverData, mechanism: Gaussian | None, stream: RandomStream) -> int:
    """`n_present` of rows, of which there are as many as slots; all if none may be empty."""
    n = data.n_samples
    return n if mechanism is None else n_present(data.sum(_n_present), n, n, mechanism, stream)


def may_be_none(n: int, n_slots: int, mechanism: Gaussian | None) -> bool:
    """Whether a released `n_present` of rows is not clear of its noise."""
    if mechanism is None:
        return False
    return n <= 2 + n_slots * _CLEAR_COUNT * math.sqrt(mechanism.variance)


def _n_present(data: SolverData) -> Array:
    return np.array([float(data.rows.present().sum())])


def target_sum(
    data: SolverData, problem: Problem, clip: float = math.inf, centres: Array | None = None
) -> Array:
    """Sum of the clipped targets, or of distances of centres from them; or counts of classes.

    Shape (n_outputs,).
    """
    y = data.y if centres is None else centres.reshape(data.y.shape[1:]) - data.y
    y = np.clip(y, -clip, clip)
    # of several classes, 1 for a record's own and 0 else
    counted = np.where(y > 0, 1.0, 0.0) if problem.has_frequencies else y
    return np.atleast_1d(sum_over_records(data.rows.without_empty(counted)))


def class_sum(data: SolverData, problem: Problem) -> Array:
    """Sum of the weights of the records of each class, without those of classes."""
    y = data.y.reshape(len(data.y), -1)
    own = np.hstack((y < 0, y > 0)) if y.shape[1] == 1 else y > 0
    weights = own * (data.rows.sample_weights() * data.rows.present())[:, None]
    if isinstance(problem.class_weight, tuple):
        weights = np.minimum(weights / np.maximum(problem.class_weight, TINY), 1.0)
    return np.asarray(sum_over_records(weights))


def weighted_mean(problem: Problem, noisy: Array, variance: float) -> tuple[Array, float]:
    """Means of targets as of `target_sum`, by noisy weights of classes, and their variance."""
    total = max(float(noisy.sum()), 2 * math.sqrt(noisy.size * variance), TINY)
    shares, variance = noisy / total, variance / total / total  # (a square may be 0)
    if problem.has_frequencies:
        return shares, variance
    second = min(max(float(shares[1]), 0.0), 1.0)
    return shares[1:] - shares[:1], 4 * variance * (second**2 + (1 - second) ** 2)


def means_sum(data: SolverData, middle: Array, half: Array, is_whole: bool) -> Array:
    """Sum of the targets clipped to [middle - half, middle + half], and of all of each.

    As vectors of norm at most 1.
    """
    y = data.y.reshape(len(data.y), -1)
    vectors = np.clip((y - middle) / half, -1.0, 1.0)
    if is_whole:
        vectors = np.hstack((vectors, np.clip(y, -1.0, 1.0)))
    vectors /= math.sqrt(vectors.shape[1])
    return np.asarray(sum_over_records(vectors * data.rows.present()[:, None]))


def rate_sum(data: SolverData, clip: float, with_weights: bool = True) -> Array:
    """Sum of vectors of norm at most 1: weights times clipped targets, and weights.

    All numbers of a record are from 0 to `rate_parts`, whose norm is 1, so that two of its vectors
    are no further apart than one may be from 0: the mean changes as one of shares, `unit_mean`.
    """
    weights = data.rows.sample_weights() * data.rows.present()
    sizes = np.minimum(weights * data.y, clip) / clip
    numbers = np.column_stack((sizes, weights)) if with_weights else sizes[:, None]
    return np.asarray(sum_over_records(rate_parts(with_weights) * numbers))


def rate_parts(with_weights: bool) -> Array:
    """The largest target, and the largest weight, which needs less: targets have long tails."""
    return np.sqrt([0.9, 0.1]) if with_weights else np.ones(1)


def rate_size_counts(data: SolverData, grid: Array) -> Array:
    """`place_counts` of the weighted targets."""
    return place_counts(data.rows.sample_weights() * data.y, data.rows.present(), grid)


def in_target_units(
    data: SolverData, center: Any, scale: Any, largest: float = math.inf
) -> SolverData:
    """Targets as (y - center) / scale, clipped to [-largest, largest]."""
    with np.errstate(over="ignore"):
        y = (data.y - center) / scale
    return SolverData(data.rows, np.clip(y, -largest, largest))


def bounded_frame(center: Any, spread: Any, width: float) -> Frame:
    """Units of targets so many spreads wide, or those of the bounds if these are narrower."""
    scale = width * np.asarray(spread)
    center = np.where(scale < 1, center, 0.0)
    return Frame(target_center=center[()], target_scale=np.minimum(scale, 1.0)[()])


def constant_for_mean(
    problem: Problem,
    noisy: Array,
    variance: float,
    prior: float = RULES.target_prior,
    bound: float = 1.0,
) -> Frame:
    """The best constant prediction for a noisy mean of the targets, which is shrunk by its noise.

    A frequency counts as at least one record and, without weights up to `least_frequency`, as its
    noise. With balanced weights it counts as at least that and as its noise: these must not make a
    class that hardly occurs all that counts.
    """
    k, spread = problem.n_outputs, math.sqrt(variance)
    if problem.has_frequencies:
        # distances from equal frequencies, in units of these, as for two classes
        noisy, variance, bound = k * noisy - 1, k**2 * variance, k
    # posterior means under a normal prior about 0 of standard deviation `prior`
    means = np.clip(noisy, -bound, bound) / (1 + variance / prior**2)
    if problem.has_frequencies:
        means, frequencies = 2 / k * (1 + means) - 1, (1 + means) / k
    else:
        of_second, spread = (1 + means[0]) / 2, spread / 2
        frequencies = np.array([1 - of_second, of_second])
    usual, least = RULES.least_frequency / frequencies.size, max(spread, 1 / problem.n_samples)
    balanced, mean_weight = None, 1.0
    if problem.class_weight is not None:
        is_balanced = problem.class_weight == "balanced"
        frequencies = np.maximum(frequencies, max(usual, spread) if is_balanced else least)
        frequencies /= frequencies.sum()
        weights = frequencies.min() / frequencies if is_balanced else np.array(problem.class_weight)
        counted, balanced = weights * frequencies, weights if is_balanced else None
        means, mean_weight = (2 * counted / counted.sum() - 1)[-k:], float(counted.sum())
    if problem.loss.task == "classification":
        most = 1 - 2 * min(usual, least)
        means = np.clip(means, -most, most)
    return Frame(constants_for(problem, means), class_weight=balanced, mean_weight=mean_weight)


def constants_for(problem: Problem, means: Array) -> Any:
    """The constants for these means: a float, or an array of shape (n_outputs,)."""
    # what float errors are counted for, whatever a user's loss returns between its ends
    largest = largest_constant(problem.loss)
    constants = np.clip(best_constants(problem.loss, means), -largest, largest)
    return constants if problem.n_outputs > 1 else float(constants[0])


def faded(released: Array, variance: float) -> Array:
    """Numbers shrunk to 0, the middle of the bounds, where they are not above their noise."""
    return released * np.maximum(0.0, 1 - variance / np.maximum(released**2, 1e-300))


def shrunk_vector(noisy: Array, variance: float) -> Array:
    """The estimate of James and Stein: shrunk, to 0 where it is not above its noise."""
    size = float(noisy @ noisy)
    return noisy * (max(0.0, 1 - noisy.size * variance / size) if size > 0 else 0.0)


def kept_part(slopes: Array, variance: float, done: float) -> float:
    """The factor of James and Stein, for slopes that are noise and a part `done` of those sought.

    What has not come far is short already: that counts as such a factor.
    """
    size, done = max(float(slopes @ slopes), 1e-300), min(1.0, max(done, 1e-9))
    return min(1.0, max(1 - done, (1 - slopes.size * variance / size) / done))


class AveragedNoise:
    """The noise of steps in the weighted mean of their points, by public facts and releases.

    As of a quadratic loss with the same curvature along all directions.
    """

    def __init__(self) -> None:
        self.steps: list[tuple[float, ...]] = []
        self.weight = 0.0

    def add(
        self,
        curvature: float,
        length: float,
        variance: float,
        weight: float,
        newest: float = 1.0,
        kept: float = 1.0,
    ) -> None:
        """Add a step ``w = kept w - length v``, v the momentum with the `newest` noisy gradient."""
        curvature = min(curvature, 1 / max(length, 1e-300))  # or it overshoots
        self.steps.append((curvature, length, variance, weight, newest, kept))
        self.weight += weight

    def found(self) -> tuple[float, float]:
        """The variance of a coordinate of the mean, and how far it comes, without, to one of 1."""
        point = momentum = noise = way = 0.0  # the first two: what 1 there adds to the mean
        for curvature, length, variance, weight, newest, kept in reversed(self.steps):
            point += weight / self.weight
            momentum -= length * point
            added = newest * momentum
            noise += variance * added**2
            way -= curvature * added
            point, momentum = kept * point + curvature * added, (1 - newest) * momentum
        return noise, way

    def shrink(self, coef: Array, problem: Problem) -> Array:
        """Coefficients of all outputs, their slopes times `kept_part`."""
        n = problem.n_features * problem.n_outputs
        return np.concatenate((kept_part(coef[:n], *self.found()) * coef[:n], coef[n:]))


# --------------------------------------------------------------------------------------------- rows


def row_mean(problem: Problem, budget: PrivacyBudget, norm: float) -> float:
    """l2 change of a mean of rows of norm at most `norm`, centred or not (3.1b, 3.1d, 4.1).

    The second term is the float error of the two sums, whose terms for a centred row may
    have twice the largest norm of a row in the box.
    """
    n = problem.n_samples
    numerical = summation_error(n, problem.n_features) * (norm + 2 * math.sqrt(problem.dimension))
    return norm * budget.record_factor / n + 2 * numerical


def row_sum(data: SolverData, norm: float | None) -> Array:
    """Sum of the rows of x, of bounded norm, without the centre, shape (n_features,)."""
    rows = data.rows if norm is None else data.rows.with_norm_bound(norm)
    return replace(rows, center=None).weighted_sum(rows.scales())[: rows.n_columns]


def factor_sum(data: SolverData, middle: float, half_range: float) -> Array:
    """Sum of how far the rows' factors are from the middle of their range."""
    offsets = np.clip(np.asarray(data.rows.scale) - middle, -half_range, half_range)
    return np.array([data.rows.without_empty(offsets).sum()])


def measure(
    data: SolverData, center: Any = None, unit: Any = None, zeros_stay: bool = False
) -> SolverData:
    """Records, whose scales are 1 or 0, with the norms of unit (x - center).

    To count only those, what was measured as 0 before, rows of 0, may stay 0 (4.5).
    """
    norms = Rows(data.rows.X, False, center=center).norms(unit)
    return replace(data, numbers=np.where(data.numbers > 0, norms, 0.0) if zeros_stay else norms)


def norm_counts(measured: SolverData, grid: Array) -> Array:
    """`place_counts` of the norms of the rows; where there are several numbers, of the last."""
    norms = measured.numbers
    norms = norms[-1] if isinstance(norms, tuple) else norms
    return place_counts(norms, measured.rows.present(), grid)


def short_row_sum(measured: SolverData, bound: float, of_sizes: bool = False) -> Array:
    """Sum of the rows over a bound, the longer ones scaled down to 1; or of the sizes of them."""
    rows = measured.rows
    factors = clipped_to(bound, measured.numbers) / bound * rows.present()
    X = with_values(rows.X, np.abs(rows.X.data)) if of_sizes else rows.X
    return Rows(X, False).weighted_sum(factors)


def size_pairs(n_samples: int, n_features: int, accuracy: float) -> int:
    """Of how many pairs of records the sizes of columns are the mean: all, or what noise needs."""
    enough = _CLEAR_PAIRS * math.sqrt(n_features) / accuracy * n_samples / 2
    most = max(_ENOUGH_PAIRS, min(enough, _MOST_PAIRS / n_features))
    return min(n_samples // 2, math.ceil(most))


def octaves_change(n_pairs: int, n_features: int, budget: PrivacyBudget) -> float:
    """l2 change of the mean of vectors of norm at most 1, one for each pair (section 4.5)."""
    return mean_of_numbers(n_pairs, 2 * n_features, budget.record_factor)


def mean_octaves(data: Any, d: int, n_pairs: int, most: float, is_centred: bool) -> Array:
    """Mean over pairs of how many octaves their differences are above `USUAL_OCTAVES`.

    Whatever the centre is; without one, of the larger of both. Those that are 0, as of flags, say
    nothing, and are counted: a second half of the vector has `most` for each. Vectors are shortened
    to the norm of one that has `most` in each column, and over it. Pairs are drawn at random, the
    same in all fits, as tables may be sorted. Octaves are linear between powers of two: logarithms
    would take most of the time.
    """
    from .._kernels.products import octave_sum

    which = np.random.default_rng(0).choice(data.n_samples, 2 * n_pairs, replace=False)
    size, facts = 2 * max(1, _PAIRED_NUMBERS // d), (is_centred, USUAL_OCTAVES, most)

    def added(some: SolverData) -> Array:
        x, total = some.rows.dense(slice(0, some.n_samples)), np.zeros((2, d))
        octave_sum(x, some.rows.present(), *facts, norm_error(2 * d), total)
        return total

    if data.is_local:
        parts = [which[part] for part in slices(which.size, size)]
        total = sum_on_threads(lambda part: added(data.part(part)), parts, uses_blas=False)
    else:
        total = sum(map(added, data.in_order(which, size)))
    return np.asarray(total).ravel() / n_pairs


def near_sum(data: SolverData, center: Array) -> Array:
    """Sum over the records of how near the centre each column is, over the norm that is longest.

    Of how many of `_NEAR` the distance is below, less half of their number. It is below none where
    a value is 0 or at a bound, as of flags, whose bounds fit.
    """
    rows, present = data.rows, data.rows.present()[:, None]

    def added(part: slice) -> Any:
        x, total = rows.dense(part), 0
        size = np.abs(x)
        may_be_near = (size > 0) & (size < 1 - 2.0**-20) & present[part]
        for some in _NEAR:
            total = total + ((np.abs(x - center) < some) & may_be_near).sum(axis=0)
        return total - NEAREST * present[part].sum()

    total = sum_on_threads(added, row_slices(rows.X), uses_blas=False)
    return np.asarray(total / (NEAREST * math.sqrt(center.size)))


def clipped_to(bound: float, norms: Array) -> Array:
    """min(1, bound / norm), such that rows times it stay within the bound."""
    return np.minimum(1.0, bound / np.maximum(norms, TINY)) * (1 - 8 * UNIT_ROUNDOFF)


# ------------------------------------------------------------------------ predictions and gradients


def limited_gradient_sum(data: SolverData, coef: Array, terms: Terms) -> Array:
    """Sum of the gradients, of which weight times derivative is clipped, and not this alone."""
    if data.numbers is None:  # without weights
        return gradient_sum(data, coef, terms)
    free = replace(terms, clip=math.inf)
    return data.rows.gradient_sum(coef, data.y, free, terms.clip * data.numbers)


def tied_point(coef: Array, n_classes: int) -> Array:
    """Coefficients of classes that have one slope, and intercepts, if any, of their own."""
    return np.vstack((coef[0] * np.eye(n_classes), coef[1:].reshape(-1, n_classes)))


def tied_gradient_sum(data: SolverData, coef: Array, terms: Terms) -> Array:
    """Sum of the gradients in a slope of all classes' features, and in their intercepts."""
    k = data.rows.n_columns
    total = gradient_sum(data, tied_point(coef, k), terms).reshape(-1, k)
    return np.append(total[:k].trace(), total[k:])


def of_predictions(data: SolverData, point: Array, own: Any = None) -> SolverData:
    """Records whose features are <x, point>, without the intercepts' part; limits, and norms.

    Of classes less their mean, which changes no probability. With `own` about as if each record had
    been left out: steps of those terms added its derivative times its squared norm and a factor.
    """
    rows = data.rows
    point = np.vstack((point, np.zeros((rows.dimension - len(point), point.shape[1]))))
    values = rows.centered_product(point)
    if own is not None:
        terms, unit, factor = own
        halfway = values.reshape(data.y.shape) / 2 + terms.offset
        r = times_rows(clipped_derivative(terms.loss, halfway, data.y, terms.clip), rows.factor)
        norms = Rows(rows.X, False, center=rows.center).norms(unit)
        values -= times_rows(r, factor * np.minimum(norms, 1e50) ** 2).reshape(values.shape)
    values = np.clip(values, -1e100, 1e100)  # so that norms do not overflow
    if values.shape[1] > 1:
        values -= values.mean(axis=1, keepdims=True)
    line = Rows(values, rows.has_intercept, rows.scale, rows.sample_weight)
    return SolverData(line, data.y, (data.numbers, _norms(values)))


def _norms(values: Array) -> Array:
    """The l2 norms of rows, rounded up; of few columns, where numpy's are slow."""
    return np.sqrt(np.einsum("ij,ij->i", values, values)) * (1 + norm_error(values.shape[1]))


def on_line(sizes: SolverData, unit: float, center: Any) -> SolverData:
    """The records, their features about a centre in a unit, weighed to norms of at most sqrt(2)."""
    rows, (limits, _) = sizes.rows, sizes.numbers
    values = rows.X + center
    norms = _norms(values) / unit
    values *= (1 / unit / np.maximum(1.0, norms / LARGEST_PREDICTION))[:, None]
    norms = np.sqrt(np.minimum(norms, LARGEST_PREDICTION) ** 2 + rows.has_intercept)
    weights = times_rows(clipped_to(math.sqrt(2), norms), rows.sample_weight)
    line = Rows(values, rows.has_intercept, rows.scale, sample_weight=weights)
    return SolverData(line, sizes.y, limits)


def residuals(data: SolverData, point: Array, offset: Any) -> SolverData:
    """Records with the l2 norms of their residuals."""
    sizes = np.abs(data.rows.centered_product(point) + offset - data.y)
    return replace(data, numbers=sizes if sizes.ndim == 1 else np.linalg.norm(sizes, axis=1))


# ----------------------------------------------------------------------------------- second moments


def second_moments(problem: Problem, budget: PrivacyBudget) -> float:
    """Frobenius change of the mean of z z^T over rows z of norm at most 1 (section 4.5)."""
    n = problem.n_samples
    apart = math.sqrt(budget.record_factor)
    return apart / n + 2 * (summation_error(n, problem.n_features) + 4 * UNIT_ROUNDOFF)


def scaled(x: Any, factors: Array, dimension: int) -> Array:
    """Rows [x, 1], or x, of that dimension, times factors."""
    from .._kernels.products import scaled_rows

    rows = np.empty((len(x), dimension))
    scaled_rows(x, factors, rows)
    return rows


def moment_sum(copy: SolverData) -> Any:
    """Sum of z z^T over the rows of a copy times their weights."""
    x, weights, _ = copy.numbers

    def added(part: slice) -> Array:
        z = scaled(x[part], weights[part], x.shape[1])
        return z.T @ z

    return sum_on_threads(added, row_slices(x))


def turned_moment_sum(data: SolverData, center: Array, by: Any) -> Any:
    """`moment_sum` of what `copied` makes of the rows, some at a time."""
    from .._kernels.products import shortened_rows

    rows, present = data.rows, data.rows.present()
    d, error = rows.n_columns, norm_error(rows.n_columns)

    def added(part: slice) -> Any:
        # one memory for all, as fresh one takes longer than the sums
        total: Any = 0.0
        x, whole = np.empty((rows.chunk, d), np.float32), np.empty((rows.chunk, d))
        for some in slices(part, rows.chunk):
            z = whole[: some.stop - some.start]
            _copy(rows.dense(some), center, by, x[: len(z)])
            shortened_rows(x, present[some], error, LONGEST, z)
            total = total + z.T @ z
        return total

    with np.errstate(over="ignore", invalid="ignore"):  # a warning would reveal a record
        return sum_on_threads(added, rows.tasks)


def centred_sum(data: SolverData, center: Array, by: Array) -> Any:
    """Sum of the rows (x - center) by, shortened to a norm of 1."""
    from .._kernels.products import shortened_sum

    rows, present = data.rows, data.rows.present()
    error = norm_error(rows.n_columns)

    def added(part: slice) -> Any:
        total: Any = 0.0
        for some in slices(part, rows.chunk):
            facts = center, by, present[some], error, LONGEST
            total = total + shortened_sum(rows.dense(some), *facts)
        return total

    return sum_on_threads(added, rows.tasks, uses_blas=False)


def copied(data: SolverData, center: Array, by: Any) -> SolverData:
    """A dense copy of the rows, centred and multiplied, by a matrix in the floats of that.

    The numbers are x, in float32, which halves the time to read it; weights with which no row is
    longer than 1, those of empty records 0; and norms, those of empty records infinite.
    """
    from .._kernels.products import measure_rows

    rows, present, error = data.rows, data.rows.present(), norm_error(data.rows.n_columns)
    x = np.empty((rows.n_samples, rows.n_columns), dtype=np.float32)
    norms = np.empty(len(x))

    def fill(part: slice) -> None:
        for some in slices(part, rows.chunk):  # for the cache of a core
            _copy(rows.dense(some), center, by, x[some])
            measure_rows(x[some], present[some], error, norms[some])

    with np.errstate(over="ignore", invalid="ignore"):  # a warning would reveal a record
        on_threads(fill, rows.tasks)
    return bounded(replace(data, numbers=(x, norms, norms)), 1.0)


def _copy(x: Array, center: Array, by: Any, out: Array) -> None:
    """(x - center) by, into `out`."""
    from .._kernels.products import centered_rows

    if np.ndim(by) < 2:
        centered_rows(x, center, np.full(center.shape, by), out)
    else:
        centred = np.empty(x.shape, by.dtype)
        centered_rows(x, center, np.ones(center.shape), centred)
        np.matmul(centred, by, out=out, casting="same_kind")


def moved(copy: SolverData, shift: Array) -> SolverData:
    """The copy about another centre, whose norms are to be found anew."""
    x = copy.numbers[0]
    return replace(copy, numbers=(x - shift.astype(x.dtype),))


def bounded(copy: SolverData, bound: float) -> SolverData:
    """The copy with weights with which no row is longer than this."""
    x, _, norms = copy.numbers
    return replace(copy, numbers=(x, LONGEST * clipped_to(bound, norms), norms))


def weighed(copy: SolverData, problem: Problem, cuts_rows: bool) -> SolverData:
    """The copy in the place of the rows, their weights times those; or rows and targets times.

    Of rates with limits of derivatives in units of the clip, that of the weighted ones.
    """
    (x, weights), rows, y, limits = copy.numbers[:2], copy.rows, copy.y, None
    scale, counted = weights, rows.sample_weight
    if problem.loss.task == "rates" and counted is not None:
        # (roundings here are far below what rows are shorter than 1 by, see `LONGEST`)
        limits = 1 / np.maximum(counted, TINY)
    if cuts_rows:
        y = times_rows(y, weights) if problem.loss.task == "regression" else y
    else:
        # whether a record is empty is private, whether one may be is not
        scale = None if rows.scale is None else rows.present().astype(np.float64)
        counted = times_rows(weights, counted)
    center = rows.center if problem.fit_intercept else None
    return SolverData(Rows(x, problem.fit_intercept, scale, counted, center), y, limits)


def top_eigenvalue(problem: Problem) -> float:
    """Change of the largest eigenvalue of that mean, the same under both relations (4.5).

    The second term is the error of the sum and that of LAPACK's solver, a few d u.
    """
    n, d = problem.n_samples, problem.n_features
    return 1 / n + 2 * (summation_error(n, d) + 32 * d * UNIT_ROUNDOFF)


def symmetric_matrix(vector: Array, n_columns: int) -> Array:
    """The matrix of which this is the `isometric_vector`."""
    upper, matrix = _upper(n_columns), np.zeros((n_columns, n_columns))
    vector = vector / np.where(upper[0] == upper[1], 1.0, math.sqrt(2))
    matrix[upper] = matrix[upper[::-1]] = vector
    return matrix


def isometric_vector(matrix: Array) -> Array:
    """The diagonal of a symmetric matrix and sqrt(2) times what is above it.

    Distances of such vectors are the Frobenius distances of the matrices.
    """
    upper = _upper(len(matrix))
    return matrix[upper] * np.where(upper[0] == upper[1], 1.0, math.sqrt(2))


def whitening(
    vector: Array, n_columns: int, scale: float
) -> tuple[Array, tuple[Array, Array], float]:
    """(G + ridge I)^(-1/2), the eigenvalues of G, negative ones as 0, its eigenvectors, the ridge.

    G has this `isometric_vector`, each number with noise of this scale; the ridge is about the
    spectral norm of the noise in G. Products with a column are left out if neither they, together,
    nor its square are clear of noise: they would couple the coefficient of a column in which
    nothing occurs, which no record says anything of, to those of others.
    """
    matrix = symmetric_matrix(vector, n_columns)
    squares, d = np.diag(matrix).copy(), n_columns - 1
    products = (matrix**2).sum(axis=1) - squares**2
    usual = scale**2 / 2 * (d + _CLEAR_MOMENT * math.sqrt(2 * d))
    is_noise = (squares < _CLEAR_MOMENT * scale) & (products < usual)
    matrix[is_noise] = matrix[:, is_noise] = 0.0
    np.fill_diagonal(matrix, squares)
    values, vectors = np.linalg.eigh(matrix)
    values = np.maximum(values, 0.0)
    # where there is no noise, above the float errors of the eigenvalues
    ridge = max(scale * math.sqrt(2 * n_columns), 1e-10 * float(values.max()), 1e-30)
    lengths = np.sqrt(values + ridge)
    if not scale:  # along which columns add up to a constant, say, float errors are not made larger
        lengths[values <= 1e-12 * values.max()] = lengths[-1]
    root = (vectors / lengths) @ vectors.T
    return np.asarray(root), (values, vectors), ridge


# ------------------------------------------------------------------------------------------ medians


def median_score(n_samples: int, record_factor: float) -> float:
    """Range of the change of the scores of a median's candidates, with a prior (section 4.5).

    Scores are multiples of 1/2 down to -n/2, exact but for the sum with the prior. Those by sums of
    ratios, multiples of 2^-20 of at most as many counts as `SPREADS`, are exact up to 2^31 records,
    too.
    """
    roundings = 4 if n_samples <= 2**31 else 4 + 4 * SPREADS.size
    return (record_factor + roundings * UNIT_ROUNDOFF * n_samples) * PRIOR_ROOM


def missed_ranks(counts: Array, rank: float, n_before: float = 0.0) -> Array:
    """By how many records the interval that ends on each number of a grid misses a rank."""
    upper = np.cumsum(counts[:-1]) + n_before
    lower = np.concatenate(([n_before], upper[:-1]))
    return np.maximum(0.0, np.maximum(lower - rank, rank - upper))


def target_counts(data: SolverData, k: int, center: float | None, grid: Array) -> Array:
    """`place_counts` of target k, or of its distances from a centre."""
    values = data.y if data.y.ndim == 1 else data.y[:, k]
    values = values if center is None else np.abs(values - center)
    return place_counts(values, data.rows.present(), grid)


def median_on_grid(
    counts: Array,
    n_samples: int,
    grid: Array,
    log_prior: Array,
    mechanism: SelectVertex,
    stream: RandomStream,
    n_above: float | None = None,
    least: int | None = None,
) -> float:
    r"""A private median on an increasing grid, by the `place_counts` of that.

    Or the place above which `n_above` records are. The score of a candidate is minus the number of
    records by which the interval from the candidate below it misses that. An empty record counts
    as a half on either side, unless `n_samples` is without them (`rows_present`): where few are to
    be above, halves of many would be more than those.

    All places that are too far miss the rank by `n_above` alone. With `least`, no score of a place
    s is above minus that by which :math:`\sum_i \min(1, y_i / s)` is below it, y_i >= 0.
    """
    rank = n_samples / 2 if n_above is None else n_samples - n_above
    half_empty = (n_samples - counts.sum()) / 2
    missed = missed_ranks(counts, rank, half_empty)
    if least is not None:
        # numbers count as the middle of their interval, those in the first one as 0; ratios as
        # multiples of 2^-20, so that sums are exact
        middles = np.append(np.sqrt(grid[1:] * grid[:-1]), grid[-1])
        ratios = np.floor(np.minimum(1.0, middles / grid[:, None]) * 2.0**20) / 2.0**20
        missed = np.maximum(missed, least - (ratios @ counts[1:] + half_empty))
    return float(grid[mechanism.release(mechanism.with_prior(-missed, log_prior), stream)])


def target_prior(problem: Problem, k: int) -> Array:
    """Log prior of the median of target k on the places of its scaling."""
    places, one = problem.target_scaling.places(k), problem.target_scaling.of(k)
    # anywhere within the bounds, or close to their middle on all scales
    weights = 1 + 1 / (8 * np.abs(places) + 2.0**-5)
    # or to 0 or an end, which may be most targets: no other place would do then
    for usual in np.unique(one.transform([one.low, 0.0, one.high])):
        weights += 1 / (8 * np.abs(places - usual) + 2.0**-10)
    return np.asarray(np.log(weights))


def clip_prior(octaves: Array, widest: float) -> Array:
    """Log prior of sizes 2^octaves of a clip, about 1.

    Far too wide ones, which cost most, are as likely by chance as others.
    """
    return -0.25 * np.abs(octaves) - 2.0 * np.maximum(octaves - widest, 0.0)


def few_longer(n_samples: int, mechanism: SelectVertex) -> int:
    """How many records may exceed a size: clear of the noise of its selection, at most half.

    As few as that, as the median is 0, or the noise of a centre, where half of the rows are 0.
    """
    few = min(0.5 * n_samples, max(_FEW * n_samples, _CLEAR * mechanism.scale))
    return max(1, math.floor(few))


def scale_on_grid(
    measured: Any,
    n_samples: int,
    largest: float,
    guess: float,
    mechanism: SelectVertex | None,
    stream: RandomStream,
    fall: float = 0.5,
) -> float:
    """A norm up to `largest` that few of the measured rows exceed, at most half, or the guess.

    At most half of those that are not 0, as 0 may be most of them. The log prior falls from the
    guess by `fall` an octave.
    """
    if mechanism is None:
        return guess
    grid = largest * (1 + 2.0**-20) * 2.0**_OCTAVES  # norms are rounded up
    log_prior = -fall * np.abs(_OCTAVES - math.log2(guess / largest))
    counts = measured.sum(norm_counts, grid)
    few = min(few_longer(n_samples, mechanism), (n_samples - counts[0]) / 2)
    found = median_on_grid(counts, n_samples, grid, log_prior, mechanism, stream, few)
    # nearly all are 0, and say nothing about the others
    return guess if found <= grid[0] else found


def spread_on_grid(
    counts: Array,
    n_samples: int,
    mechanism: SelectVertex,
    stream: RandomStream,
    guess: float = 0.25,
) -> float:
    r"""A private spread of deviations, by the `place_counts` of their sizes on `SPREADS`.

    By the mean of clipped sizes: the s with :math:`\sum_i \min(1, |v_i| / s) = q n`, in units in
    which it is the median size of normal deviations. q is .5 where the noise is large, so that no
    single records matter, and smaller where it is small: then s is about 1 / q times the mean size,
    which is not 0 where most values are the same, as long as more than q n differ. Sizes count as
    the middle of their interval on the grid, and ratios as multiples of 2^-20, so that scores are
    exact; an empty record counts as 1/2.
    """
    # (last those that only targets in far too wide bounds have)
    sizes, candidates = _SPREAD_OCTAVES, np.arange(-17.0, 6.01, 0.25)
    candidates = np.append(candidates, sizes[sizes < candidates[0]])
    # twelve noises of the selection, or ten where that is more than a sixth of the records
    noise = mechanism.scale / n_samples
    q = min(0.5, max(_LEAST_CLIPPED, min(12 * noise, 0.15), 10 * noise))
    counts = counts[:-1]
    # of an interval's middle over each candidate; sizes in the first interval count as 0
    ratios = 2.0 ** (sizes - candidates[:, None] - 0.125)
    ratios[:, 0] = 0.0
    ratios = np.floor(np.minimum(1.0, ratios) * 2.0**20) / 2.0**20
    total = ratios @ counts + (n_samples - counts.sum()) / 2
    # or half of those that differ, where they are too few
    beyond = np.maximum(total - round(q * n_samples), ratios @ counts - counts[1:].sum() / 2)
    # s is far too large where half of these are below a sixteenth of the mean size it stands for
    above = sizes - 0.125 >= candidates[:, None] + math.log2(q / 16)
    above[:, 0] = False
    scores = -np.maximum(np.abs(beyond), counts[1:].sum() / 2 - above @ counts)

    def excess(s: float) -> float:
        """The mean of min(1, |v| / s) over normal numbers v, beyond q."""
        inside = math.sqrt(2 / math.pi) * -math.expm1(-(s**2) / 2)
        return inside / s + 2 * float(ndtr(-s)) - q

    unit = float(brentq(excess, 0.1, 1 / q)) / NORMAL_MEDIAN
    # Noise is in units of the spread: one that is far too large, as by chance where next to all
    # values are the same, costs more than one that is too small. (Targets may be at both ends.)
    above_guess = candidates - math.log2(guess * unit)
    # (less up to the usual guess, where that of a stream is below it: few records tell)
    usual = max(0.0, -2.0 - math.log2(guess))
    prior = -np.where(above_guess > 0, 0.5, -0.5) * above_guess
    prior -= 1.5 * np.maximum(0.0, above_guess - usual)
    found = mechanism.release(mechanism.with_prior(scores, prior), stream)
    # no more than that of targets at both ends of their bounds
    return min(1.0, float(2.0 ** candidates[found] / unit))
