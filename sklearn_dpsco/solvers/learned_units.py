r"""Private units for a descent: where targets lie, how long rows are, which columns go together.

Bounds may be too wide, and columns ill-conditioned. A part of the budget buys, in this order, the
centre and spread of each target or the frequencies of the classes; the centre of the rows and
their typical length about it; and, where n is large against d, their second moments, by whose
inverse root they are multiplied. A descent in such units needs no bound that is tight, no radius
and few steps. Bounds remain what values are clipped to.

All released vectors are means of vectors of norm at most 1, one for each record, and all
scalars are medians, chosen by the exponential mechanism on a public grid: no sensitivity depends
on a released number. Derivations: doc/privacy, section 4.5.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ..data.rows import make_rows
from ..data.summation import UNIT_ROUNDOFF, chunk_rows, norm_error, sum_over_records
from ..data.threads import on_threads, slices, sum_on_threads
from ..mechanisms import Gaussian, Release, SelectVertex
from ..privacy.budget import Allowance, PrivacyBudget
from ..randomness.stream import RandomStream
from . import sensitivity
from .base import Part, Piece, Problem, SolverData, SolverResult
from .defaults import LearnedUnitsDefaults, has_units, is_wide, unit_rules
from .first_releases import Constant, Frame, constant_for_mean, mean_target, shrunk_vector
from .medians import median_on_grid, place_counts, scale_on_grid
from .whitening import isometric_vector, spectral_noise, spectrum, vector_size
from .wide_units import (
    Measured,
    about,
    measure,
    norm_counts,
    short_row_sum,
    wide_rows,
)

__all__ = [
    "LARGEST_ROW_GROWTH",
    "LearnedUnits",
    "Units",
    "accuracy",
    "pays",
    "plan_units",
    "whitens",
]

Array = NDArray[np.float64]

_CENTRES = np.linspace(-1.0, 1.0, 4097)  # candidates for the median of a target
LARGEST_ROW_GROWTH = 8.0  # of the bounds on rows, as noise vanishes
_LONGEST = 1 - 2.0**-22  # of rows before they are rounded to float32
_LEAST = 1e-6  # smaller moments count as this, so that steps are bounded


class Units(NamedTuple):
    """Rows and targets in released units.

    With the descent's coefficients w of shape (d + 1,) or (d + 1, K), its predictions are
    ``offset + <z_i, w>``, of the targets; ``z_i = unit * r_i`` has a norm of at most 1.

    Attributes
    ----------
    data : SolverData
        The targets, and as rows the r_i, the last coordinate 1 if there is an intercept.
    unit : ndarray of shape (dimension,)
    offset : float or ndarray of shape (K,)
    balance : float
        4 p (1 - p), p the frequency of the second of two classes; else 1. Where classes have
        weights, that of the weighted frequency, times the mean weight.
    top, trace : float
        About the largest eigenvalue and the trace of the second moments of the rows.
    longest : float
        Norm of the longest rows, before all were divided by it.
    growth : float
        By how much clips are larger than those that suit the largest noise, squared.
    transform : ndarray of shape (dimension, dimension) or (dimension,)
        z_i is about ``[x_i - center, 1] @ transform``, or that times it.
    center : ndarray of shape (n_features,)
    factor : float
        On the descent's coefficients, for the scaling down of long rows.
    target_center, target_scale : float or ndarray of shape (K,)
    """

    data: SolverData
    unit: Array
    offset: Any
    balance: float
    top: float
    trace: float
    longest: float
    growth: float
    transform: Array
    center: Array
    factor: float
    target_center: Any
    target_scale: Any

    def result(self, coef: Array, problem: Problem, n_iter: int) -> SolverResult:
        """The model for plain rows, from the descent's coefficients of shape (size,)."""
        coef, transform = problem.matrix(coef), self.transform
        solution = transform @ coef if transform.ndim == 2 else (transform * coef.T).T
        solution[: problem.n_features] *= self.factor
        frame = Frame(
            self.offset,
            self.center if problem.fit_intercept else None,
            target_center=self.target_center,
            target_scale=self.target_scale,
        )
        return frame.result(solution.ravel(), problem, n_iter)


@dataclass(frozen=True)
class LearnedUnits(Part):
    """What is released before the descent; None for what is not.

    Attributes
    ----------
    problem : Problem
    accuracy : float
        m = n mu / phi, that of a mean of numbers in [-1, 1] with the whole budget.
    target_median, target_spread : SelectVertex or None
        Of a regression, once for each target.
    target_mean : Gaussian or None
        For the deviations of the targets, or the frequencies of the classes.
    long, length : SelectVertex or None
        For the median norms of the rows, and of the centred rows.
    center : Gaussian or None
    moments : Gaussian or None
        For the second moments, of each of `n_rounds`.
    n_rounds : int
    top : Gaussian or None
        For their largest eigenvalue alone.
    row_factor : Gaussian or None
    median_share, left : float
        Of the budget: for a target's median, and for the descent.
    """

    problem: Problem
    accuracy: float
    target_median: SelectVertex | None
    target_spread: SelectVertex | None
    target_mean: Gaussian | None
    long: SelectVertex | None
    length: SelectVertex | None
    center: Gaussian | None
    moments: Gaussian | None
    n_rounds: int
    top: Gaussian | None
    row_factor: Gaussian | None
    median_share: float
    left: float

    @property
    def releases(self) -> tuple[Release, ...]:
        n_targets = self.problem.n_outputs
        named: tuple[tuple[str, Any, int], ...] = (
            ("target median", self.target_median, n_targets),
            ("target spread", self.target_spread, n_targets),
            ("mean target", self.target_mean, 1),
            ("row length", self.long, 1),
            ("feature means", self.center, 1),
            ("centred length", self.length, 1),
            ("second moments", self.moments, self.n_rounds),
            ("top eigenvalue", self.top, 1),
            ("mean row factor", self.row_factor, 1),
        )
        return tuple(Release(name, m, count) for name, m, count in named if m is not None)

    @property
    def rules(self) -> LearnedUnitsDefaults:
        """The numbers for the task."""
        return unit_rules(self.problem)

    def run(self, data: SolverData, stream: RandomStream) -> Units:
        """Make the releases, and bring rows and targets into their units."""
        data, constant, center_y, scale_y = self._release_targets(data, stream)
        offset = constant.offset
        data = Frame(class_weight=constant.class_weight).weighted(data)
        is_binary = self.problem.loss.task == "classification" and self.problem.n_outputs == 1
        # rare classes: fewer records carry information about the coefficients
        balance = float(4 * expit(offset) * expit(-offset)) if is_binary else 1.0
        balance *= constant.mean_weight
        growth = self.rules.growth * self.accuracy * balance / (self.problem.n_features + 1)
        growth = max(1.0, growth)
        found = self._release_rows(data, math.sqrt(growth), stream)
        return Units(
            offset=offset, balance=balance, growth=growth, target_center=center_y,
            target_scale=scale_y, **found,
        )  # fmt: skip

    # ---------------------------------------------------------------------- targets

    def _release_targets(self, data: SolverData, stream: RandomStream) -> tuple[Any, ...]:
        """Targets in released units, their `Constant`, and the targets' centre and scale."""
        problem, n = self.problem, data.n_samples
        if problem.loss.task == "classification":
            constant = Constant(0.0)
            if self.target_mean is not None:
                noisy = self.target_mean.release(mean_target(data, problem), stream)
                constant = constant_for_mean(problem, noisy, self.target_mean.variance)
            return data, constant, 0.0, 1.0
        centers, scales = np.zeros(problem.n_outputs), np.full(problem.n_outputs, 1.0)
        if self.target_median is not None:
            # anywhere within the bounds, or close to their middle on all scales
            prior = np.log1p(1 / (8 * np.abs(_CENTRES) + 2.0**-5))
            for k in range(problem.n_outputs):
                counts = functools.partial(data.sum, _target_counts, k)
                centers[k] = median_on_grid(counts, n, _CENTRES, prior, self.target_median, stream)
        # in a run of their own: selections of two ranges do not compose by turns
        for k in range(problem.n_outputs):
            counts = functools.partial(data.sum, _deviation_counts, k, float(centers[k]))
            scales[k] = scale_on_grid(counts, n, 2.0, 0.25, self.target_spread, stream)
        centers = self._moved_to_means(data, centers, scales, stream)
        found = (centers, scales) if problem.n_outputs > 1 else (centers[0], scales[0])
        return data.map(_in_target_units, *found), Constant(0.0), *found

    def _moved_to_means(
        self, data: SolverData, centers: Array, scales: Array, stream: RandomStream
    ) -> Array:
        """From the medians of the targets to their means; Huber's where the noise is large."""
        if self.target_mean is None:
            return centers
        k, rules = centers.size, self.rules
        clip = min(rules.widest_mean, max(1.0, self.accuracy / 20))
        mean = data.sum(_deviation_sum, centers, scales, clip) / data.n_samples
        noisy = self.target_mean.release(mean, stream)
        # the slope of Huber's mean where half of the deviations lie within 1
        unit = clip * math.sqrt(k) / min(1.0, 0.5 + (clip - 1) / 3)
        variance = self.target_mean.variance * unit**2
        prior = 0.09 + 9 / (self.accuracy**2 * self.median_share / k)
        moved: Array = centers + scales * noisy * unit / (1 + variance / prior)
        return moved

    # ------------------------------------------------------------------------- rows

    def _release_rows(
        self, data: SolverData, row_growth: float, stream: RandomStream
    ) -> dict[str, Any]:
        """The fields of `Units` that are about the rows."""
        n, longest = data.n_samples, math.sqrt(self.problem.n_features)
        row_growth = min(LARGEST_ROW_GROWTH, row_growth)
        if is_wide(self.problem):
            data = data.row_major()
        measured = data.map(measure)
        counts = functools.partial(measured.sum, norm_counts)
        median = scale_on_grid(counts, n, longest, longest / 2, self.long, stream)
        # to what rows are cut for the mean of them
        rough = min(1.3 * median, longest)
        release = self._release_wide if is_wide(self.problem) else self._release_copy
        return release(measured, rough, row_growth, stream)

    def _release_wide(
        self, measured: Measured, rough: float, row_growth: float, stream: RandomStream
    ) -> dict[str, Any]:
        """The same without a copy: see `wide_units`."""
        problem, rules = self.problem, self.rules
        mechanisms = self.center, self.length
        wide = wide_rows(measured, problem, rough, *mechanisms, row_growth, stream)
        top = 1.0
        if self.top is not None:
            top = self._upper(np.array([wide.moments_size()]), stream)
        usual = min(0.95, rules.row_bound * row_growth)
        factor = self._release_factor(wide.data, usual, stream)
        found = self._joined(wide.unit, top, 0.9 / row_growth**2, 0.5)
        data = wide.data if problem.fit_intercept else wide.data.map(_without_intercept)
        return found | {
            "data": data.kept(), "unit": found["transform"], "center": wide.center,
            "factor": factor,
        }  # fmt: skip

    def _release_copy(
        self, measured: Measured, rough: float, row_growth: float, stream: RandomStream
    ) -> dict[str, Any]:
        """The same of a dense copy of the rows, with their second moments."""
        problem, d = self.problem, self.problem.n_features
        center, norm = self._centre(measured, rough, row_growth, stream)
        usual = min(0.95, self.rules.row_bound * row_growth)
        transform = np.eye(d) / norm
        top, trace, last = 1.0, 0.6, 0.5
        copy = measured.map(_copied, center, norm).kept()
        for _ in range(self.n_rounds):
            step, top, trace = self._release_moments(_mean_moments(copy), row_growth, stream)
            copy = copy.map(_multiplied, step, copy.is_local).kept()
            transform = transform @ step
            usual *= 0.9 if row_growth < 2 else 1.0
            last = 1.0
        if self.top is not None:
            top = self._release_top(_mean_moments(copy), stream)
        factor = self._release_factor(copy, usual, stream)
        found = self._joined(transform, top, trace, last)
        unit = np.full(problem.dimension, 1 / found["longest"])
        unit[d:] = found["transform"][d:, -1]
        data = copy.map(_without_factors, problem.fit_intercept)
        return found | {"data": data, "unit": unit, "center": center, "factor": factor}

    def _joined(self, transform: Array, top: float, trace: float, last: float) -> dict[str, Any]:
        """Fields of `Units` for rows with the intercept's coordinate: `last`, or less."""
        d, dimension = self.problem.n_features, self.problem.dimension
        last = min(last, math.sqrt(top)) if dimension > d else 0.0
        size = math.sqrt(1 + last**2) / (1 - 8 * UNIT_ROUNDOFF)
        whole = np.zeros((dimension,) * transform.ndim)
        whole[(slice(d),) * transform.ndim] = transform / size
        whole[(slice(d, None),) * transform.ndim] = last / size
        return {
            "transform": whole, "longest": size,
            "top": max(top, last**2, _LEAST) / size**2,
            "trace": max(trace + last**2, _LEAST) / size**2,
        }  # fmt: skip

    def _centre(
        self, measured: Measured, rough: float, row_growth: float, stream: RandomStream
    ) -> tuple[Array, float]:
        """The released centre of the rows, and the bound on the norms of the centred ones."""
        center, n = np.zeros(self.problem.n_features), measured.n_samples
        counts = functools.partial(measured.sum, norm_counts)
        if self.center is not None:
            mean = measured.sum(short_row_sum, rough) / n
            center = rough * shrunk_vector(self.center.release(mean, stream), self.center.variance)
            measured = measured.map(about, center, None)
            counts = functools.partial(measured.sum, norm_counts)
        norm = scale_on_grid(counts, n, 2 * rough, rough / 2, self.length, stream)
        norm *= self.rules.row_bound * row_growth
        if self.length is None:
            norm = min(norm, rough + float(np.linalg.norm(center)))
        return center, norm

    def _release_moments(
        self, moments: Array, row_growth: float, stream: RandomStream
    ) -> tuple[Array, float, float]:
        """The matrix that whitens the rows; the top eigenvalue and the trace of their moments then.

        Its smallest singular values are those of the noise: what is lost in it is not blown up.
        """
        assert self.moments is not None
        d = len(moments)
        found = spectrum(self.moments.release(isometric_vector(moments), stream), d)
        # that of the noise, and above the float errors of the eigenvalues
        noise = spectral_noise(math.sqrt(self.moments.variance), d)
        ridge = max(noise, 1e-10 * float(found.values.max()), 1e-30)
        white = found.values / (found.values + ridge)
        bound = self.rules.white_bound * math.sqrt(max(float(white.sum()), 1e-12)) * row_growth
        bound = min(bound, 1 / math.sqrt(float(found.values.min()) + ridge))
        step = found.inverse_root(ridge) / bound
        return step, float(white.max()) / bound**2, float(white.sum()) / bound**2

    def _release_top(self, moments: Array, stream: RandomStream) -> float:
        """An upper bound on the largest eigenvalue of the rows' moments, as a rule."""
        return self._upper(np.asarray(np.linalg.eigvalsh(moments)[-1:], dtype=np.float64), stream)

    def _upper(self, found: Array, stream: RandomStream) -> float:
        """A number in [0, 1] plus noise, and a little more."""
        assert self.top is not None
        noisy = float(self.top.release(found, stream)[0])
        return min(1.0, max(0.0, noisy) + 1.5 * math.sqrt(self.top.variance))

    def _release_factor(self, records: Any, usual: float, stream: RandomStream) -> float:
        """The mean of the factors on the rows, and what is usual, by their precision."""
        if self.row_factor is None:
            return usual
        mean = records.sum(_factor_sum) / records.n_samples
        noisy = float(self.row_factor.release(mean, stream)[0])
        variance = self.row_factor.variance
        noisy = min(1.0, max(0.05, noisy + 0.5))
        return (usual * variance + noisy * 0.15**2) / (variance + 0.15**2)


# ------------------------------------------------------------------------------- planning


def accuracy(problem: Problem, budget: PrivacyBudget) -> float:
    """The m = n mu / phi: a mean of numbers in [-1, 1] has noise 1 / m with the whole budget."""
    amount = budget.mixed_allowance.amount
    return problem.n_samples * math.sqrt(2 * amount) / budget.record_factor


def pays(problem: Problem, budget: PrivacyBudget) -> bool:
    """Whether units can be learned, and are better than those of the bounds."""
    if budget.is_pure or not has_units(problem):
        return False
    return accuracy(problem, budget) >= unit_rules(problem).least


def whitens(problem: Problem, budget: PrivacyBudget) -> bool:
    """Whether n is so large against d that second moments are released."""
    if is_wide(problem):
        return False
    return accuracy(problem, budget) / problem.n_features**1.5 > unit_rules(problem).whiten


def plan_units(problem: Problem, budget: PrivacyBudget) -> LearnedUnits:
    """The releases within the budget's mixed allowance, of which a part is left for a descent."""
    rules = unit_rules(problem)
    shares = _Shares(problem, budget)
    m, d, k = shares.accuracy, problem.n_features, problem.n_outputs
    unit = sensitivity.unit_mean(problem, budget)
    median_share, target_median, target_spread, target_mean = 0.0, None, None, None
    mean_share = max(rules.least_mean_share, shares.wanted(8, rules.most_mean_share))
    if problem.loss.task == "regression":
        if problem.fit_intercept:
            median_share = k * shares.wanted(12, rules.median_share / k)
            target_median = shares.selection(median_share, k)
        target_spread = shares.selection(k * shares.wanted(14, rules.spread_share / k, 2), k)
        # a loss that is not convex is for gross errors, which would move a mean
        if problem.fit_intercept and problem.loss.is_convex:
            target_mean = shares.mean(mean_share, unit, k)
    elif problem.fit_intercept:
        target_mean = shares.mean(mean_share, sensitivity.target_mean(problem, budget, 2), k)
    row_share = shares.wanted(12, rules.norm_share, rules.least_for_norms)
    long, length = shares.selection(row_share), shares.selection(row_share)
    center = None
    if m >= rules.least_for_center and (problem.fit_intercept or is_wide(problem)):
        center = shares.mean(rules.center_share, unit, d)
    moments, top, row_factor, n_rounds = None, None, None, 0
    if whitens(problem, budget):
        n_rounds = 2 if m / d**1.5 > rules.whiten_twice else 1
        change = sensitivity.second_moments(problem, budget)
        moments = shares.mean(rules.moments_share, change, vector_size(d), n_rounds)
    elif m >= rules.scalars:
        top = shares.mean(rules.scalar_share, _top_change(problem, budget))
    if m >= rules.scalars:
        row_factor = shares.mean(rules.scalar_share, 0.5 * unit)
    return LearnedUnits(
        problem, m, target_median, target_spread, target_mean, long, length, center, moments,
        n_rounds, top, row_factor, median_share, shares.left,
    )  # fmt: skip


def _top_change(problem: Problem, budget: PrivacyBudget) -> float:
    """The sensitivity of what bounds the largest eigenvalue."""
    if is_wide(problem):
        return sensitivity.moments_size(problem, budget)
    return sensitivity.top_eigenvalue(problem)


class _Shares:
    """The mechanisms of a plan, and the share of the allowance that is left."""

    def __init__(self, problem: Problem, budget: PrivacyBudget) -> None:
        self.n_samples, self.factor = problem.n_samples, budget.record_factor
        self.allowance, self.left = budget.mixed_allowance, 1.0
        self.accuracy = accuracy(problem, budget)

    def wanted(self, aim: float, most: float, least: float = 0.0) -> float:
        """The share s, at most `most`, with m sqrt(s) = aim; 0 where m sqrt(s) is below `least`."""
        share = min(most, (aim / self.accuracy) ** 2)
        return share if self.accuracy * math.sqrt(share) >= least else 0.0

    def mean(self, share: float, change: float, dimension: int = 1, count: int = 1) -> Gaussian:
        """Noise on vectors of this sensitivity, `count` times."""
        return Gaussian.calibrate(change, self._part(share), count, dimension)

    def selection(self, share: float, count: int = 1) -> SelectVertex | None:
        """Selections of medians; None for no share."""
        if share == 0:
            return None
        change = sensitivity.median_score(self.n_samples, self.factor)
        return SelectVertex.calibrate(change, self._part(share), count)

    def _part(self, share: float) -> Allowance:
        self.left -= share
        return self.allowance.share(share)


# -------------------------------------------------------------------------------- running


def _target_counts(data: SolverData, k: int, grid: Array) -> Array:
    """`place_counts` of target k."""
    return place_counts(_column(data, k), data.rows.present(), grid)


def _deviation_counts(data: SolverData, k: int, center: float, grid: Array) -> Array:
    """`place_counts` of the distances of target k from a centre."""
    return place_counts(np.abs(_column(data, k) - center), data.rows.present(), grid)


def _column(data: SolverData, k: int) -> Array:
    return data.y if data.y.ndim == 1 else data.y[:, k]


def _deviation_sum(data: SolverData, centers: Array, scales: Array, clip: float) -> Array:
    """Sum of the clipped deviations of the targets, as vectors of norm at most 1."""
    columns = data.y.reshape(len(data.y), -1)
    units = np.clip((columns - centers) / scales, -clip, clip) / (clip * math.sqrt(centers.size))
    return np.asarray(sum_over_records(units * data.rows.present()[:, None]))


def _in_target_units(data: SolverData, center: Any, scale: Any) -> SolverData:
    return SolverData(data.rows, (data.y - center) / scale)


def _without_intercept(data: SolverData) -> SolverData:
    """The rows without centre and last coordinate."""
    rows = data.rows
    return SolverData(make_rows(rows.X, False, rows.scales(), rows.sample_weight), data.y)


@dataclass(frozen=True)
class _Copy(Piece):
    """A dense copy of some rows in units, bounded: x, and the factors of the scaling down.

    Stored in float32, which halves the time to read it. `data` is what the copy is of.
    """

    x: NDArray[np.float32]
    factors: Array
    data: SolverData

    @property
    def n_samples(self) -> int:
        return len(self.x)


def _copied(measured: Measured, center: Array, norm: float) -> _Copy:
    """Dense rows (x - center) / norm, bounded."""
    data = measured.data.row_major()
    rows = data.rows
    x = np.empty((rows.n_samples, rows.n_columns), dtype=np.float32)
    factors = rows.present().astype(np.float64)

    def centred(part: slice) -> Array:
        return (rows.dense(part) - center) / norm

    return _bounded(centred, _Copy(x, factors, data))


def _multiplied(copy: _Copy, matrix: Array, is_in_place: bool) -> _Copy:
    """The rows times a matrix, bounded."""
    out = copy if is_in_place else _Copy(np.empty_like(copy.x), copy.factors.copy(), copy.data)
    # in float64, whose rounding by place in a block is lost in the rounding to float32
    return _bounded(lambda part: copy.x[part].astype(np.float64) @ matrix, out)


def _bounded(rows_of: Callable[[slice], Array], out: _Copy) -> _Copy:
    """Fill `out` with rows, those longer than 1 scaled down to it.

    Its factors are multiplied by those of the scaling. Rows of a factor of 0 become 0.
    """
    from .._kernels.products import bound_rows

    x = out.x

    def fill(part: slice) -> None:
        bound_rows(rows_of(part), _LONGEST, norm_error(x.shape[1]), out.factors[part], x[part])

    on_threads(fill, slices(len(x), chunk_rows(*x.shape)))  # for the cache of a core
    return out


def _mean_moments(copy: _Copy) -> Array:
    """The mean of z z^T over the rows."""
    return np.asarray(copy.sum(_moments)) / copy.n_samples


def _moments(copy: _Copy) -> Any:
    def added(part: slice) -> Array:
        z = copy.x[part].astype(np.float64)
        return z.T @ z

    return sum_on_threads(added, slices(len(copy.x), chunk_rows(*copy.x.shape)))


def _factor_sum(records: _Copy | SolverData) -> Array:
    """Sum of the rows' factors less 1/2; an empty record is in the middle of [0, 1]."""
    if isinstance(records, _Copy):
        factors, present = records.factors, records.data.rows.present()
    else:
        factors, present = records.rows.scales(), records.rows.present()
    return np.array([((np.clip(factors, 0.0, 1.0) - 0.5) * present).sum()])


def _without_factors(copy: _Copy, fit_intercept: bool) -> SolverData:
    """The copy in the place of the rows."""
    rows = copy.data.rows
    # whether a record is empty is private, whether one may be is not
    scale = None if rows.scale is None else rows.present().astype(np.float64)
    bounded = make_rows(copy.x, fit_intercept, scale, rows.sample_weight)
    return SolverData(bounded, copy.data.y)
