"""The first releases, made before a descent, and the units and offsets that follow from them.

A private intercept gives the model the right mean from the start, private feature means
centre the rows, which makes the descent well conditioned, and the mean row factor corrects
for the scaling down of long rows. Sensitivities: doc/privacy, sections 3.1c to 3.1e.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..data.summation import sum_over_records
from ..losses import best_constants, largest_constant
from ..mechanisms import Gaussian, Laplace, Release, additive_noise
from ..privacy.budget import Allowance, PrivacyBudget
from ..randomness.stream import RandomStream
from . import sensitivity
from .base import Part, Problem, SolverData, SolverResult
from .defaults import FIRST_RELEASES as RULES
from .defaults import intercept_share

__all__ = [
    "FirstReleases",
    "Frame",
    "Start",
    "constant_for_mean",
    "counted_targets",
    "faded",
    "in_target_units",
    "mean_target",
    "plan_box",
    "plan_constant",
    "plan_first",
    "plan_mean",
    "plan_offset",
    "shrunk_mean",
    "shrunk_vector",
]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Frame:
    """Units and offsets that were released, and the way back to plain rows.

    With the descent's coefficients w, the model predicts the target
    ``(y - target_center) / target_scale`` as ``offset + factor <[(x - center) / scale, 1], w>``.

    `class_weight` is that of balanced classes, in [0, 1]: the records' weights are still to be
    multiplied by it. `mean_weight` is that of the classes, declared or balanced, by their released
    frequencies.
    """

    offset: Any = 0.0  # the constant prediction that the descent corrects, for each output
    center: Array | None = None  # None stands for zeros
    scale: Array | None = None  # None stands for ones
    factor: float = 1.0
    target_center: Any = 0.0
    target_scale: Any = 1.0
    intercept_unit: float = 1.0  # in the place of the 1 in [(x - center) / scale, 1]
    class_weight: Array | None = None
    mean_weight: float = 1.0
    outer: Frame | None = None  # of the units in which all this is stated

    def weighted(self, data: SolverData) -> SolverData:
        """The records, their weights times those of their classes if classes are balanced."""
        return data if self.class_weight is None else data.map(_weighted, self.class_weight)

    def units(self, problem: Problem) -> Array:
        """What the coordinates of centred rows are multiplied by, shape (size,)."""
        units = np.ones(problem.dimension)
        if self.scale is not None:
            units[: problem.n_features] /= self.scale
        units[problem.n_features :] *= self.intercept_unit
        return np.repeat(units, problem.n_outputs)

    def result(self, solution: Array, problem: Problem, n_iter: int) -> SolverResult:
        """The model for plain rows, from the descent's coefficients of shape (size,)."""
        solution = problem.matrix(self.factor * solution).T
        coef, intercept = solution[..., : problem.n_features], self.offset
        if problem.fit_intercept:
            intercept = intercept + self.intercept_unit * solution[..., -1]
        coef, intercept = self.plain(coef, intercept)
        # a float, or an array over the outputs
        intercept = np.broadcast_to(intercept, (problem.n_outputs,))
        intercept = intercept if problem.n_outputs > 1 else float(intercept[0])
        return SolverResult(coef, intercept, max(1, n_iter), frame=self)

    def plain(self, coef: Array, intercept: Any) -> tuple[Array, Any]:
        """A model for (x - center) / scale as one for plain rows and targets."""
        if self.scale is not None:
            coef = coef / self.scale
        if self.center is not None:
            intercept = intercept - coef @ self.center
        coef = np.multiply(self.target_scale, coef.T).T
        intercept = self.target_center + self.target_scale * intercept
        return (coef, intercept) if self.outer is None else self.outer.plain(coef, intercept)


class Start(NamedTuple):
    """Input of a descent: records with centred rows of bounded norm, and their frame."""

    data: SolverData
    frame: Frame


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
    """

    is_in_bounds: ClassVar[bool] = True  # that is in the units of the bounds

    problem: Problem
    norm: float | None = None
    target: Gaussian | Laplace | None = None
    means: Gaussian | Laplace | None = None
    row_factor: Gaussian | None = None
    target_steps: int = 0
    group: str | None = None
    left: float = 0.0

    @property
    def releases(self) -> tuple[Release, ...]:
        target = "target's centre" if self.target_steps else "mean target"
        named = (
            (target, self.target, max(1, self.target_steps)),
            ("feature means", self.means, 1),
            ("mean row factor", self.row_factor, 1),
        )
        return tuple(Release(name, m, count, self.group) for name, m, count in named if m)

    def run(self, data: SolverData, stream: RandomStream) -> Start:
        """Make the releases, and centre and scale the rows by them.

        Without a bound on the norm, each coordinate of the rows stays within [-1, 1]: about a
        centre m, columns are divided by 1 + abs(m). The frame has that scale, not the rows.
        """
        frame = self._release_constant(data, stream)
        data = frame.weighted(data)
        if self.means is not None:
            mean = data.sum(_row_sum, self.norm) / data.n_samples
            found = shrunk_vector(self.means.release(mean, stream), self.means.variance)
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
            mean = data.sum(_factor_sum, middle, half_range) / data.n_samples
            factor = middle + self.row_factor.release(mean, stream)[0]
            frame = replace(frame, factor=float(np.clip(factor, middle - half_range, 1.0)))
        return Start(data, frame)

    def _release_constant(self, data: SolverData, stream: RandomStream) -> Frame:
        """The best constant for the mean of the targets, or for their centre.

        The centre minimizes the mean of Huber's loss, by noisy gradient steps from 0. Their noise
        is proportional to `location_clip`, that of a mean to the range of the targets.
        """
        problem, target, n_steps = self.problem, self.target, self.target_steps
        if target is None:
            return Frame()
        if not n_steps:
            noisy = target.release(mean_target(data, problem), stream)
            if problem.loss.task == "regression":
                noisy = faded(noisy, target.variance)
            return constant_for_mean(problem, noisy, target.variance)
        clip = RULES.location_clip
        noise = max(target.scale * math.sqrt(n_steps), 1e-100)  # or there is none
        step = min(RULES.location_step, RULES.location_reach / noise)
        centres = total = np.zeros(target.dimension)
        for t in range(1, n_steps + 1):
            mean = data.sum(_residual_sum, centres, clip) / data.n_samples
            centres = np.clip(centres - step * target.release(mean, stream), -1.0, 1.0)
            total = total + t * centres
        centres = 2 * total / (n_steps * (n_steps + 1))
        # the noise is at least that if all targets are close to each other
        centres = faded(centres, 4 / 3 * target.scale**2 / n_steps)
        return Frame(_offset(problem, centres))


# ------------------------------------------------------------------------------- planning


def plan_first(
    problem: Problem,
    budget: PrivacyBudget,
    norm: float,
    allowance: Allowance,
    *,
    may_shrink: bool,
    may_step: bool = True,
    shares: tuple[float, float, float] | None = None,
    group: str | None = None,
) -> FirstReleases:
    """Plan of all three releases within an allowance, which must not be pure.

    `may_shrink` tells whether the feasible set keeps points that are multiplied by a factor below
    1; if not, the row factor is left out. `may_step` tells whether the centre of the targets may be
    found by steps. `shares` are those of the target, the means and the row factor in the allowance.
    """
    if shares is None:
        shares = intercept_share(problem, budget), RULES.means_share, RULES.row_factor_share
    target: Gaussian | Laplace | None = None
    means, row_factor, target_steps, left = None, None, 0, 1.0
    if problem.fit_intercept:
        part = allowance.share(shares[0])
        if may_step:
            target, target_steps = plan_constant(problem, budget, part)
        else:
            target = plan_mean(problem, budget, part)
        change = sensitivity.row_mean(problem, budget, norm)
        means = Gaussian.calibrate(change, allowance.share(shares[1]), dimension=problem.n_features)
        left -= shares[0] + shares[1]
    half_range = _row_factor_half_range(problem, norm)
    if may_shrink and half_range > 0:
        change = sensitivity.row_factor_mean(problem, budget, half_range)
        row_factor = Gaussian.calibrate(change, allowance.share(shares[2]))
        left -= shares[2]
    return FirstReleases(
        problem, norm, target, means, row_factor, target_steps, group=group, left=left
    )


def plan_offset(problem: Problem, budget: PrivacyBudget, allowance: Allowance) -> FirstReleases:
    """Plan of the mean target alone; the allowance may be pure."""
    share = intercept_share(problem, budget) if problem.fit_intercept else 0.0
    target = plan_mean(problem, budget, allowance.share(share))
    return FirstReleases(problem, target=target, left=1 - share)


def plan_box(problem: Problem, budget: PrivacyBudget, allowance: Allowance) -> FirstReleases:
    """Plan of the mean target and, where that is accurate, of the means of the features.

    For rows that have no bound on their norm; the allowance may be pure.
    """
    first = plan_offset(problem, budget, allowance)
    if not problem.fit_intercept:
        return first
    kind, n, d = additive_noise(allowance), problem.n_samples, problem.n_features
    change = sensitivity.coordinate_mean(1.0, budget.record_factor / n, n, d, d, kind.order)
    means = kind.calibrate(change, allowance.share(RULES.means_share), dimension=d)
    if math.sqrt(means.variance) > RULES.clear_means:
        return first
    return replace(first, means=means, left=first.left - RULES.means_share)


def plan_constant(
    problem: Problem, budget: PrivacyBudget, allowance: Allowance
) -> tuple[Gaussian | Laplace | None, int]:
    """Mechanism for the best constant prediction, and `FirstReleases.target_steps`."""
    is_noisy = intercept_share(problem, budget) > RULES.least_target_share
    is_regression = problem.loss.task == "regression"
    if problem.fit_intercept and is_noisy and is_regression and allowance.kind != "pure":
        change = RULES.location_clip * sensitivity.target_mean(problem, budget, 2)
        n_steps = RULES.location_steps
        return Gaussian.calibrate(change, allowance, n_steps, problem.n_outputs), n_steps
    return plan_mean(problem, budget, allowance), 0


def plan_mean(
    problem: Problem, budget: PrivacyBudget, allowance: Allowance
) -> Gaussian | Laplace | None:
    """Mechanism for `mean_target`; None without an intercept."""
    if not problem.fit_intercept:
        return None
    kind = additive_noise(allowance)
    change = sensitivity.target_mean(problem, budget, kind.order)
    return kind.calibrate(change, allowance, dimension=problem.n_outputs)


def _row_factor_half_range(problem: Problem, norm: float) -> float:
    """Half the range of the factor min(1, B / |row|) over rows in the box."""
    return max(0.0, (1 - norm / math.sqrt(problem.dimension)) / 2)


# -------------------------------------------------------------------------------- running


def _weighted(data: SolverData, class_weight: Array) -> SolverData:
    """Weights times those of the classes."""
    y = data.y
    weights = class_weight[y.argmax(axis=1) if y.ndim == 2 else (y > 0) * 1]
    return SolverData(data.rows.reweighted(weights), y)


def in_target_units(
    data: SolverData, center: Any, scale: Any, largest: float = math.inf
) -> SolverData:
    """Targets as (y - center) / scale, clipped to [-largest, largest]."""
    with np.errstate(over="ignore"):
        y = (data.y - center) / scale
    return SolverData(data.rows, np.clip(y, -largest, largest))


def _bounded(data: SolverData, center: Array | None, norm: float | None) -> SolverData:
    """Rows about the centre, the longer ones scaled down to the norm."""
    rows = data.rows if center is None else data.rows.centered(center)
    return SolverData(rows if norm is None else rows.with_norm_bound(norm), data.y)


def _row_sum(data: SolverData, norm: float | None) -> Array:
    """Sum of the rows of x, of bounded norm."""
    return (data.rows if norm is None else data.rows.with_norm_bound(norm)).row_sum()


def _factor_sum(data: SolverData, middle: float, half_range: float) -> Array:
    """Sum of how far the rows' factors are from the middle of their range."""
    offsets = np.clip(np.asarray(data.rows.scale) - middle, -half_range, half_range)
    return np.array([data.rows.without_empty(offsets).sum()])


def mean_target(data: SolverData, problem: Problem, clip: float = math.inf) -> Array:
    """Mean of the targets over all slots, or of several classes their frequencies; (n_outputs,).

    Targets are clipped to [-clip, clip].
    """
    return data.sum(_target_sum, problem, clip) / data.n_samples


def _target_sum(data: SolverData, problem: Problem, clip: float) -> Array:
    counted = counted_targets(np.clip(data.y, -clip, clip), problem)
    return np.atleast_1d(sum_over_records(data.rows.without_empty(counted)))


def counted_targets(y: Array, problem: Problem) -> Array:
    """Targets whose mean is released: of several classes, 1 for a record's own and 0 else."""
    return np.where(y > 0, 1.0, 0.0) if problem.has_frequencies else y


def constant_for_mean(
    problem: Problem,
    noisy: Array,
    variance: float,
    prior: float = RULES.target_prior,
    bound: float = 1.0,
) -> Frame:
    """The best constant prediction for a noisy `mean_target`, which is shrunk by its noise.

    With the weights of classes. Frequencies then count as at least their noise, and as much as in
    the log-odds of a mean, so that balanced weights do not make a class that hardly occurs all that
    counts.
    """
    k = problem.n_outputs
    if problem.has_frequencies:
        # distances from equal frequencies, in units of these, as for two classes
        apart = np.array([shrunk_mean(k * mean - 1, k**2 * variance, prior, k) for mean in noisy])
        means, frequencies, spread = 2 / k * (1 + apart) - 1, (1 + apart) / k, math.sqrt(variance)
    else:
        means = np.array([shrunk_mean(mean, variance, prior, bound) for mean in noisy])
        of_second, spread = (1 + means[0]) / 2, math.sqrt(variance) / 2
        frequencies = np.array([1 - of_second, of_second])
    if problem.class_weight is None:
        return Frame(_offset(problem, means))
    frequencies = np.maximum(frequencies, max(spread, RULES.least_frequency / frequencies.size))
    frequencies /= frequencies.sum()
    is_balanced = problem.class_weight == "balanced"
    weights = frequencies.min() / frequencies if is_balanced else np.array(problem.class_weight)
    counted = weights * frequencies
    means = 2 * counted / counted.sum() - 1
    return Frame(
        _offset(problem, means if k > 1 else means[1:]),
        class_weight=weights if is_balanced else None,
        mean_weight=float(counted.sum()),
    )


def _offset(problem: Problem, means: Array) -> Any:
    """The constants for these means: a float, or an array of shape (n_outputs,)."""
    # what float errors are counted for, whatever a user's loss returns between its ends
    largest = largest_constant(problem.loss)
    constants = np.clip(best_constants(problem.loss, means), -largest, largest)
    return constants if problem.n_outputs > 1 else float(constants[0])


def shrunk_mean(released: float, variance: float, prior: float, bound: float = 1.0) -> float:
    """A noisy mean of targets within `bound`, shrunk towards 0, the middle of their bounds.

    The posterior mean under a normal prior of standard deviation `prior`, so that the intercept is
    not mostly noise.
    """
    return float(np.clip(released, -bound, bound)) / (1 + variance / prior**2)


def _residual_sum(data: SolverData, centres: Array, clip: float) -> Array:
    """Sum of the clipped distances of centres from the targets."""
    residual = np.clip(centres.reshape(data.y.shape[1:]) - data.y, -clip, clip)
    return np.atleast_1d(sum_over_records(data.rows.without_empty(residual)))


def faded(released: Array, variance: float) -> Array:
    """Numbers shrunk to 0, the middle of the bounds, where they are not above their noise."""
    return released * np.maximum(0.0, 1 - variance / np.maximum(released**2, 1e-300))


def shrunk_vector(noisy: Array, variance: float) -> Array:
    """The estimate of James and Stein: shrunk, to 0 where it is not above its noise."""
    size = float(noisy @ noisy)
    return noisy * (max(0.0, 1 - noisy.size * variance / size) if size > 0 else 0.0)
