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

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ..data.rows import Rows, make_rows
from ..data.summation import UNIT_ROUNDOFF, chunk_rows, norm_error, sum_over_records
from ..data.threads import slices, sum_on_threads
from ..mechanisms import Gaussian, Release, SelectVertex
from ..privacy.budget import Allowance, PrivacyBudget
from ..randomness.stream import RandomStream
from . import sensitivity
from .base import Part, Problem, SolverData, SolverResult
from .defaults import LearnedUnitsDefaults, has_units, is_wide, unit_rules
from .first_releases import Constant, Frame, constant_for_mean, mean_target, shrunk_vector
from .medians import median_on_grid, scale_on_grid
from .whitening import isometric_vector, spectral_noise, spectrum, vector_size
from .wide_units import clipped_to, wide_rows

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
_LARGEST_PRIOR = 64.0  # above all logarithms of priors
_LONGEST = 1 - 2.0**-22  # of rows before they are rounded to float32
_LEAST = 1e-6  # smaller moments count as this, so that steps are bounded


class Units(NamedTuple):
    """Rows and targets in released units.

    With the descent's coefficients w of shape (d + 1,) or (d + 1, K), its predictions are
    ``offset + <z_i, w>``, of the targets `y`; ``z_i = unit * r_i`` has a norm of at most 1.

    Attributes
    ----------
    rows : Rows
        r_i, the last coordinate 1 if there is an intercept.
    unit : ndarray of shape (dimension,)
    y : ndarray of shape (n_samples,) or (n_samples, K)
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

    rows: Rows
    unit: Array
    y: Array
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
        y, constant, center_y, scale_y = self._release_targets(data, stream)
        offset, rows = constant.offset, data.rows
        if constant.class_weight is not None:
            rows = Frame(class_weight=constant.class_weight).weighted(rows, y)
        is_binary = self.problem.loss.task == "classification" and self.problem.n_outputs == 1
        # rare classes: fewer records carry information about the coefficients
        balance = float(4 * expit(offset) * expit(-offset)) if is_binary else 1.0
        balance *= constant.mean_weight
        growth = self.rules.growth * self.accuracy * balance / (self.problem.n_features + 1)
        growth = max(1.0, growth)
        found = self._release_rows(rows, math.sqrt(growth), stream)
        return Units(
            y=y, offset=offset, balance=balance, growth=growth, target_center=center_y,
            target_scale=scale_y, **found,
        )  # fmt: skip

    # ---------------------------------------------------------------------- targets

    def _release_targets(self, data: SolverData, stream: RandomStream) -> tuple[Any, ...]:
        """Targets in released units, their `Constant`, and the targets' centre and scale."""
        problem = self.problem
        if problem.loss.task == "classification":
            constant = Constant(0.0)
            if self.target_mean is not None:
                noisy = self.target_mean.release(mean_target(data, problem), stream)
                constant = constant_for_mean(problem, noisy, self.target_mean.variance)
            return data.y, constant, 0.0, 1.0
        columns = data.y.reshape(len(data.y), -1)
        centers, scales = np.zeros(columns.shape[1]), np.full(columns.shape[1], 1.0)
        present = data.rows.present()
        for k, column in enumerate(columns.T):
            if self.target_median is not None:
                # anywhere within the bounds, or close to their middle on all scales
                prior = np.log1p(1 / (8 * np.abs(_CENTRES) + 2.0**-5))
                centers[k] = median_on_grid(
                    column, present, _CENTRES, prior, self.target_median, stream
                )
            deviations = np.abs(column - centers[k])
            scales[k] = scale_on_grid(deviations, present, 2.0, 0.25, self.target_spread, stream)
        centers = self._moved_to_means(columns, centers, scales, present, stream)
        units = [array.reshape(data.y.shape[1:]) for array in (centers, scales)]
        return (data.y - units[0]) / units[1], Constant(0.0), *units

    def _moved_to_means(
        self, columns: Array, centers: Array, scales: Array, present: NDArray[np.bool_],
        stream: RandomStream,
    ) -> Array:  # fmt: skip
        """From the medians of the targets to their means; Huber's where the noise is large."""
        if self.target_mean is None:
            return centers
        k, rules = columns.shape[1], self.rules
        clip = min(rules.widest_mean, max(1.0, self.accuracy / 20))
        # deviations as vectors of norm at most 1
        units = np.clip((columns - centers) / scales, -clip, clip) / (clip * math.sqrt(k))
        mean = sum_over_records(units * present[:, None]) / len(units)
        noisy = self.target_mean.release(mean, stream)
        # the slope of Huber's mean where half of the deviations lie within 1
        unit = clip * math.sqrt(k) / min(1.0, 0.5 + (clip - 1) / 3)
        variance = self.target_mean.variance * unit**2
        prior = 0.09 + 9 / (self.accuracy**2 * self.median_share / k)
        moved: Array = centers + scales * noisy * unit / (1 + variance / prior)
        return moved

    # ------------------------------------------------------------------------- rows

    def _release_rows(self, rows: Rows, row_growth: float, stream: RandomStream) -> dict[str, Any]:
        """The fields of `Units` that are about the rows."""
        row_growth, longest = min(LARGEST_ROW_GROWTH, row_growth), math.sqrt(rows.n_columns)
        if is_wide(self.problem):
            rows = rows.row_major()
        norms = make_rows(rows.X, False).norms()
        median = scale_on_grid(norms, rows.present(), longest, longest / 2, self.long, stream)
        # to what rows are cut for the mean of them
        rough = min(1.3 * median, longest)
        release = self._release_wide if is_wide(self.problem) else self._release_copy
        return release(rows, norms, rough, row_growth, stream)

    def _release_wide(
        self, rows: Rows, norms: Array, rough: float, row_growth: float, stream: RandomStream
    ) -> dict[str, Any]:
        """The same without a copy: see `wide_units`."""
        problem, rules = self.problem, self.rules
        mechanisms = self.center, self.length
        wide = wide_rows(rows, norms, problem, rough, *mechanisms, row_growth, stream)
        top = 1.0
        if self.top is not None:
            top = self._upper(np.array([wide.moments_size()]), stream)
        usual, factors = min(0.95, rules.row_bound * row_growth), wide.rows.scales()
        factor = self._release_factor(factors, rows.present(), usual, stream)
        found = self._joined(wide.unit, top, 0.9 / row_growth**2, 0.5)
        bounded = wide.rows
        if not problem.fit_intercept:
            bounded = make_rows(bounded.X, False, factors, rows.sample_weight)
        center = wide.rows.center
        return found | {
            "rows": bounded, "unit": found["transform"], "center": center, "factor": factor,
        }  # fmt: skip

    def _release_copy(
        self, rows: Rows, norms: Array, rough: float, row_growth: float, stream: RandomStream
    ) -> dict[str, Any]:
        """The same of a dense copy of the rows, with their second moments."""
        problem, d = self.problem, self.problem.n_features
        present = rows.present()
        center, norm = self._centre(rows, norms, rough, row_growth, stream)
        factors, usual = present.astype(np.float64), min(0.95, self.rules.row_bound * row_growth)
        transform = np.eye(d) / norm
        top, trace, last = 1.0, 0.6, 0.5
        needed = self.n_rounds or int(self.top is not None)
        x, moments = _first_copy(rows, center, norm, factors, needed > 0)
        for k in range(self.n_rounds):
            step, top, trace = self._release_moments(moments, row_growth, stream)
            moments = _multiply(x, step, factors, k + 1 < needed)
            transform = transform @ step
            usual *= 0.9 if row_growth < 2 else 1.0
            last = 1.0
        if self.top is not None:
            top = self._release_top(moments, stream)
        factor = self._release_factor(factors, present, usual, stream)
        found = self._joined(transform, top, trace, last)
        unit = np.full(problem.dimension, 1 / found["longest"])
        unit[d:] = found["transform"][d:, -1]
        # whether a record is empty is private, whether one may be is not
        scale = None if rows.scale is None else present.astype(np.float64)
        bounded = make_rows(x, problem.fit_intercept, scale, rows.sample_weight)
        return found | {"rows": bounded, "unit": unit, "center": center, "factor": factor}

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
        self, rows: Rows, norms: Array, rough: float, row_growth: float, stream: RandomStream
    ) -> tuple[Array, float]:
        """The released centre of the rows, and the bound on the norms of the centred ones."""
        present, rows = rows.present(), make_rows(rows.X, False)
        center = np.zeros(rows.n_columns)
        if self.center is not None:
            factors = clipped_to(rough, norms) / rough
            mean = rows.weighted_sum(factors * present) / rows.n_samples
            center = rough * shrunk_vector(self.center.release(mean, stream), self.center.variance)
            norms = rows.centered(center).norms()
        norm = scale_on_grid(norms, present, 2 * rough, rough / 2, self.length, stream)
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

    def _release_factor(
        self, factors: Array, present: NDArray[np.bool_], usual: float, stream: RandomStream
    ) -> float:
        """The mean of the factors on the rows, and what is usual, by their precision."""
        if self.row_factor is None:
            return usual
        # an empty record is in the middle of [0, 1]: offsets, whose bound is a half
        offsets = (np.clip(factors, 0.0, 1.0) - 0.5) * present
        noisy = float(self.row_factor.release(np.array([offsets.mean()]), stream)[0])
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
        part = self._part(share)
        change = sensitivity.median_score(self.n_samples, self.factor, 0.0)
        # a first one without the prior, which is stated in units of the noise
        scale = SelectVertex.calibrate(change, part, count).scale
        change = sensitivity.median_score(self.n_samples, self.factor, _LARGEST_PRIOR * scale)
        return SelectVertex.calibrate(change, part, count)

    def _part(self, share: float) -> Allowance:
        self.left -= share
        return self.allowance.share(share)


# -------------------------------------------------------------------------------- running


def _first_copy(
    rows: Rows, center: Array, norm: float, factors: Array, with_moments: bool
) -> tuple[NDArray[np.float32], Any]:
    """Dense rows (x - center) / norm, bounded, times their factors; and what `_bounded` returns."""
    rows = rows.row_major()
    x = np.empty((rows.n_samples, rows.n_columns), dtype=np.float32)

    def centred(part: slice) -> Array:
        return (rows.dense(part) - center) / norm

    return x, _bounded(centred, x, factors, with_moments)


def _multiply(x: NDArray[np.float32], matrix: Array, factors: Array, with_moments: bool) -> Any:
    """The rows times a matrix, bounded, in place; returns what `_bounded` does."""
    single = matrix.astype(np.float32)
    return _bounded(lambda part: x[part] @ single, x, factors, with_moments)


def _bounded(
    rows_of: Callable[[slice], Any], x: NDArray[np.float32], factors: Array, with_moments: bool
) -> Any:
    """Fill x with rows, those longer than 1 scaled down to it; the mean of z z^T, if asked for.

    `factors` are multiplied by those of the scaling. Rows of a factor of 0 become 0. Rows are
    stored in half of the space, which halves the time to read them; sums are not.
    """
    from .._kernels.products import bound_rows

    d = x.shape[1]

    def fill(part: slice) -> Any:
        bound_rows(rows_of(part), _LONGEST, norm_error(d), factors[part], x[part])
        if not with_moments:
            return 0.0
        z = x[part].astype(np.float64)
        return z.T @ z

    # small enough for the cache of a core
    return sum_on_threads(fill, slices(len(x), chunk_rows(*x.shape))) / len(x)
