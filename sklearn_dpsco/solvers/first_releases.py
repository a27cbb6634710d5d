"""The first releases, made before a descent, and the units and offsets that follow from them.

A private intercept gives the model the right mean from the start, private feature means
centre the rows, which makes the descent well conditioned, and the mean row factor corrects
for the scaling down of long rows. Sensitivities: doc/privacy, sections 3.1c to 3.1e.

A solver with a feasible set works in a box: that of the bounds, or a learned one. Rotations would
change the set, so that learned units are diagonal: features and targets become (value - centre) /
width, clipped to [-1, 1]. From there on everything is as if these were the declared bounds, the
sensitivities too. Derivation: doc/privacy, section 4.5c.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from .._types import Array
from ..data.compressed import with_values
from ..data.rows import Rows, SolverData, row_slices, sum_on_threads, sum_over_records
from ..geometry import Geometry, L1Ball, LpBall
from ..losses import Absolute, Loss, Quantile, Squared
from ..mechanisms import Gaussian, Laplace, Release, additive_noise
from ..privacy.budget import Allowance, PrivacyBudget
from ..randomness.stream import RandomStream
from . import base, statistics
from .base import Frame, Part, Plan, Problem, Solver, named_releases, releases_of
from .defaults import BOX_UNITS, CURVED, has_fixed_size, intercept_share, target_width, unit_rules
from .defaults import FIRST_RELEASES as RULES
from .learned_units import LearnedUnits, Purse, pays, plan_units
from .records import in_box
from .statistics import clipped_to

# parameters of solvers that are stated in units of the features and the targets
_IN_UNITS = ("data_norm", "gradient_clip", "l2_penalty", "learning_rate")


@dataclass(frozen=True)
class FirstReleases(Part):
    """The releases before a descent on rows of bounded norm; None for what is not released.

    Attributes
    ----------
    problem : Problem
        Public facts of the records that they read.
    norm : float or None
        Bound on the l2 norm of a row; None leaves the rows as they are.
    target, means, row_factor : mechanism or None
        For the mean or the centre of the targets, the means of the features and the mean row
        factor.
    target_steps : int
        Uses of `target` for the centre of the targets; 0 for one use for their mean.
    group : str or None
        Name of the slice of the records that they read; None for all.
    left : float
        Share of the allowance that is left for the descent.
    units : LearnedUnits or None
        Learned diagonal units, which come before all this and in which it is stated; None for those
        of the bounds.
    """

    problem: Problem
    norm: float | None = None
    target: Gaussian | Laplace | None = None
    means: Gaussian | Laplace | None = None
    row_factor: Gaussian | None = None
    target_steps: int = 0
    group: str | None = None
    left: float = 0.0
    units: LearnedUnits | None = None

    @property
    def releases(self) -> tuple[Release, ...]:
        target = "target's centre" if self.target_steps else "mean target"
        of_target = target, self.target, max(1, self.target_steps)
        of_rows = ("feature means", self.means, 1), ("mean row factor", self.row_factor, 1)
        own = named_releases(of_target, *of_rows, group=self.group)
        return (*releases_of(self.units), *own)

    def run(self, data: SolverData, stream: RandomStream) -> tuple[SolverData, Frame]:
        """Make the releases, and centre and scale the rows by them: these, and their frame.

        Without a bound on the norm, each coordinate of the rows stays within [-1, 1]: about a
        centre m, columns are divided by 1 + abs(m). The frame has that scale, not the rows.
        """
        outer, ratio = None, 1.0
        if self.units is not None:
            data, outer, n_present = learned_box(self.units, data, stream.substream("units"))
            ratio = data.n_samples / n_present  # of means of those that are not empty, over all
        frame = replace(self._release_constant(data, ratio, stream), outer=outer)
        data = frame.weighted(data)
        if self.means is not None:
            mean = data.sum(statistics.row_sum, self.norm) / data.n_samples
            found = statistics.shrunk_vector(self.means.release(mean, stream), self.means.variance)
            # a wrong centre only slows the descent: the intercept can make up for it
            center = np.clip(found, -1.0, 1.0)
            frame = replace(frame, center=center)
            if self.norm is None:
                unit = RULES.centered_intercept
                frame = replace(frame, scale=1 + np.abs(center), intercept_unit=unit)
        if self.means is not None or self.norm is not None:
            data = data.map(_bounded, frame.center, self.norm)
        if self.row_factor is not None:
            # The model is fitted on rows that were scaled down and predicts on rows that were not,
            # so its coefficients are too large by about the inverse of the mean factor. Released is
            # the offset from the middle of the range.
            assert self.norm is not None
            half_range = _row_factor_half_range(self.problem, self.norm)
            middle = 1 - half_range
            mean = data.sum(statistics.factor_sum, middle, half_range) / data.n_samples
            factor = middle + self.row_factor.release(mean, stream)[0]
            frame = replace(frame, factor=float(np.clip(factor, middle - half_range, 1.0)))
        return data, frame

    def _release_constant(self, data: SolverData, ratio: float, stream: RandomStream) -> Frame:
        """The best constant for the mean of the targets, or for their centre.

        The centre minimizes the mean of Huber's loss, by noisy gradient steps from 0. Their noise
        is proportional to `location_clip`, that of a mean to the range of the targets.
        """
        problem, target, n_steps = self.problem, self.target, self.target_steps
        if target is None:
            return Frame()
        if not n_steps:
            mean = data.sum(statistics.target_sum, problem) / data.n_samples
            noisy, variance = ratio * target.release(mean, stream), ratio**2 * target.variance
            if problem.loss.task == "regression":
                noisy = statistics.faded(noisy, variance)
            return statistics.constant_for_mean(problem, noisy, variance)
        clip = RULES.location_clip
        noise = max(target.scale * math.sqrt(n_steps), 1e-100)  # or there is none
        step = min(RULES.location_step, RULES.location_reach / noise)
        centres = total = np.zeros(target.dimension)
        for t in range(1, n_steps + 1):
            mean = data.sum(statistics.target_sum, problem, clip, centres) / data.n_samples
            centres = np.clip(centres - step * target.release(mean, stream), -1.0, 1.0)
            total = total + t * centres
        centres = 2 * total / (n_steps * (n_steps + 1))
        # the noise is at least that if all targets are close to each other
        centres = statistics.faded(centres, 4 / 3 * target.scale**2 / n_steps)
        return Frame(statistics.constants_for(problem, centres))


@dataclass(frozen=True)
class SetPlan(Plan):
    """Plan of a descent in a feasible set; see `Plan` for the common fields.

    Attributes
    ----------
    geometry : Geometry
        The feasible set with its radius.
    first : FirstReleases
        What is released before the descent.
    gradient_clip : float
        c: bound on abs(dl/dz).
    l2_penalty : float
        Weight of norm(w)^2 / 2.
    """

    geometry: Geometry
    first: FirstReleases
    gradient_clip: float
    l2_penalty: float

    @property
    def data_norm(self) -> float | None:
        """B, the bound on the l2 norm of a scaled row, or None."""
        return self.first.norm

    @property
    def mean_curvature(self) -> float:
        """Of the objective, see `usual_curvature`."""
        return usual_curvature(self.problem, self.first.norm or 1.0) + self.l2_penalty


def may_shrink(geometry: Geometry, loss: Loss) -> bool:
    """Whether the set keeps points whose slopes become smaller, and the loss is smooth."""
    return isinstance(geometry, (L1Ball, LpBall)) and math.isfinite(loss.smoothness)


def usual_curvature(problem: Problem, norm: float) -> float:
    """Of the loss along a direction, in `AveragedNoise`, for rows that are about so long."""
    return CURVED * problem.loss.smoothness * norm**2 / problem.dimension


# ------------------------------------------------------------------------------- planning


def plan_first(
    problem: Problem,
    budget: PrivacyBudget,
    allowance: Allowance,
    norm: float,
    *,
    may_shrink: bool,
    may_step: bool = True,
    shares: tuple[float, float, float] | None = None,
    group: str | None = None,
) -> FirstReleases:
    """Plan of target, means and row factor by their shares in an allowance, which is not pure.

    `may_shrink`: the feasible set keeps points times a factor below 1, or else the row factor is
    left out. `may_step`: the centre of the targets may be found by steps.
    """
    if shares is None:
        shares = intercept_share(problem, budget), RULES.means_share, RULES.row_factor_share
    first = plan_constant(problem, budget, allowance.share(shares[0]), may_step=may_step)
    means, row_factor, left = None, None, 1.0
    if problem.fit_intercept:
        change = statistics.row_mean(problem, budget, norm)
        means = Gaussian.calibrate(change, allowance.share(shares[1]), dimension=problem.n_features)
        left -= shares[0] + shares[1]
    half_range = _row_factor_half_range(problem, norm)
    if may_shrink and half_range > 0:
        # the mean of numbers in [-half_range, half_range] (section 3.1e)
        change = statistics.unit_mean(problem, budget.record_factor * half_range)
        row_factor = Gaussian.calibrate(change, allowance.share(shares[2]))
        left -= shares[2]
    return replace(first, norm=norm, means=means, row_factor=row_factor, group=group, left=left)


def plan_offset(
    problem: Problem, budget: PrivacyBudget, allowance: Allowance, *, may_center: bool = False
) -> FirstReleases:
    """Plan of the mean target and, where they are accurate, of the means of the features.

    For rows that have no bound on their norm; the allowance may be pure.
    """
    share = intercept_share(problem, budget) if problem.fit_intercept else 0.0
    first = plan_constant(problem, budget, allowance.share(share), may_step=False)
    first = replace(first, left=1 - share)
    if not (may_center and problem.fit_intercept):
        return first
    kind, n, d = additive_noise(allowance), problem.n_samples, problem.n_features
    change = statistics.coordinate_mean(1.0, budget.record_factor / n, n, d, d, kind.order)
    means = kind.calibrate(change, allowance.share(RULES.means_share), dimension=d)
    if math.sqrt(means.variance) > RULES.clear_means:
        return first
    return replace(first, means=means, left=first.left - RULES.means_share)


def plan_constant(
    problem: Problem, budget: PrivacyBudget, allowance: Allowance, *, may_step: bool = True
) -> FirstReleases:
    """Plan of the best constant prediction alone, for which all of the allowance is.

    By steps to the centre of the targets where the noise of their mean is large; none without an
    intercept.
    """
    if not problem.fit_intercept:
        return FirstReleases(problem)
    kind, n_steps = additive_noise(allowance), RULES.location_steps
    change = statistics.target_mean(problem, budget, kind.order)
    may_step = may_step and problem.loss.task == "regression" and allowance.kind != "pure"
    if may_step and intercept_share(problem, budget) > RULES.least_target_share:
        change *= RULES.location_clip
    else:
        n_steps = 0
    target = kind.calibrate(change, allowance, max(1, n_steps), problem.n_outputs)
    return FirstReleases(problem, target=target, target_steps=n_steps)


# ------------------------------------------------------------------------- units of a box


def learns_units(solver: Solver, problem: Problem, budget: PrivacyBudget, auto: bool) -> bool:
    """Whether learned units are asked for; "auto" stands for them where they pay and it allows it.

    They do not if a number is stated in those of the bounds, or the loss has one in the targets'.
    """
    may_copy = not problem.is_wide and not problem.is_large
    if problem.units == "learned" and not may_copy:
        raise ValueError(
            f"units='learned' copies at most {base.LARGEST_COPY} numbers of X with up to "
            f"{base.MOST_COPIED_FEATURES} features: take units='bounds'"
        )
    if problem.units != "auto":
        return problem.units == "learned"
    loss = problem.base_loss
    is_free = loss.task == "classification" or type(loss) in (Squared, Absolute, Quantile)
    is_free = is_free and not any(getattr(solver, name, None) for name in _IN_UNITS)
    return auto and may_copy and is_free and pays(problem, budget, BOX_UNITS.times)


@dataclass(frozen=True)
class Box:
    """The units of a plan with a feasible set."""

    problem: Problem  # as the solver sees it: in learned units nothing is declared of the rows
    budget: PrivacyBudget
    is_learned: bool
    allowance: Allowance  # all of it, for Gaussian noise and, of learned units, medians

    @classmethod
    def of(cls, solver: Solver, problem: Problem, budget: PrivacyBudget, auto: bool) -> Box:
        """By the problem's `units`, "auto" for learned ones where they pay and `auto` allows it."""
        # a radius and the length of a row are in the units of the bounds, too, and so is the size
        # of combinations that are convex, of the columns as they are
        auto = auto and isinstance(problem.feasible_set, type) and problem.row_norm is None
        auto = auto and not has_fixed_size(problem)
        auto = auto and Purse(problem, budget).accuracy >= BOX_UNITS.clear * problem.n_features
        if not learns_units(solver, problem, budget, auto):
            return cls(problem, budget, False, budget.gaussian_allowance)
        inner = replace(problem, row_norm=None, nonnegative=False)
        return cls(inner, budget, True, budget.mixed_allowance)

    def first(
        self, budget: PrivacyBudget, allowance: Allowance, plan: Callable[..., FirstReleases]
    ) -> FirstReleases:
        """The first releases, after the units': `plan(problem, budget, allowance)`."""
        if not self.is_learned:
            return plan(self.problem, budget, allowance)
        units = plan_units(Purse(self.problem, budget, allowance), is_diagonal=True)
        first = plan(self.problem, budget, allowance.share(units.left))
        return replace(first, left=units.left * first.left, units=units)


def learned_box(
    units: LearnedUnits, data: SolverData, stream: RandomStream
) -> tuple[SolverData, Frame, int]:
    """The records in the box [-1, 1] in diagonal units, the way back, and how many are present.

    `moments` is for the means of abs(z) and z^2, z a centred row over a length that nearly all
    have. A width is twice E z^2 / E abs(z), times a factor that grows as the noise falls: 2.5
    standard deviations of normal numbers, and all of a rare flag in rows up to that length.
    """
    rules, problem, slots, frame = BOX_UNITS, units.problem, data.n_samples, Frame()
    n = statistics.rows_present(data, units.present, stream)
    if problem.loss.task == "regression":
        _, frame, _ = units.release_targets(data, n, stream)
        width = target_width(problem, units.accuracy)
        frame = statistics.bounded_frame(frame.target_center, frame.target_scale, width)
        data = data.map(statistics.in_target_units, frame.target_center, frame.target_scale, 1.0)
    center, _, rough, length = units.release_center(data, n, stream, of_box=True)
    measured = data.map(statistics.measure, None if data.is_sparse else center)
    if max(length, float(np.linalg.norm(center))) < rough / 4:
        length = rough  # most rows are 0, as of rare flags, and tell nothing of the others
    length *= rules.row_bound
    assert units.moments is not None
    noisy = units.moments.release(measured.sum(_spread_sum, center, length) / slots, stream)
    growth = max(1.0, unit_rules(problem).growth * units.accuracy / (problem.n_features + 1))
    unit = rules.width * min(rules.longest, math.sqrt(growth)) * length
    width = np.minimum(unit * _ratios(noisy, units.moments.variance), 2.0)
    width[width < 1e-12] = 2.0  # float errors, without noise, of columns that are all constant
    # dense rows in float32, which halves the time to read them
    data = data.map(in_box, center, width, 1.0, np.float32)
    return data, replace(frame, center=center, scale=width), n


def _ratios(noisy: Array, variance: float) -> Array:
    """Mean squares over mean sizes, rather too large where unclear: narrow columns are clipped."""
    variance *= 2  # see `_spread_sum`
    found = []
    for part in math.sqrt(2) * noisy.reshape(2, -1):
        mean = max(float(part.mean()), math.sqrt(variance / part.size), 1e-200)
        apart = part - part.mean()
        kept = max(0.0, 1 - apart.size * variance / max(float(apart @ apart), 1e-300))
        # James and Stein: columns that are alike but for the noise share its mean
        error = math.sqrt(variance * (kept + 1 / part.size)) + 1e-9 * mean
        found.append((np.maximum(mean + kept * apart, 0.0), error))
    (sizes, in_size), (squares, in_square) = found
    ratios: Array = (squares + BOX_UNITS.doubt * in_square) / (sizes + in_size)
    return np.minimum(ratios, 1.0)


def _spread_sum(measured: SolverData, center: Array, length: float) -> Array:
    """Sum of the vectors [abs(z), z^2] / sqrt(2), z a centred row, shortened to a length, over it.

    Their norms are at most 1, and no two of them are at an obtuse angle.
    """
    rows = measured.rows
    factors = clipped_to(length, measured.numbers) / length * rows.present()
    if sparse.issparse(rows.X):
        sizes = np.abs(rows.X.data).astype(np.float64)
        parts = ((sizes, factors), (sizes**2, factors**2))
        sums = [Rows(with_values(rows.X, v), False).weighted_sum(w) for v, w in parts]
        return np.concatenate(sums) / math.sqrt(2)

    def added(part: slice) -> Array:
        z = np.abs((rows.dense(part) - center) * factors[part, None])
        return np.concatenate((sum_over_records(z), sum_over_records(z * z))) / math.sqrt(2)

    return np.asarray(sum_on_threads(added, row_slices(rows.X)))


# -------------------------------------------------------------------------------- running


def _bounded(data: SolverData, center: Array | None, norm: float | None) -> SolverData:
    """Rows about the centre, the longer ones scaled down to the norm."""
    rows = data.rows if center is None else replace(data.rows, center=center)
    return SolverData(rows if norm is None else rows.with_norm_bound(norm), data.y)


def _row_factor_half_range(problem: Problem, norm: float) -> float:
    """Half the range of the factor min(1, B / |row|) over rows in the box."""
    return max(0.0, (1 - norm / math.sqrt(problem.dimension)) / 2)
