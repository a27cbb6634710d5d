"""Private releases that come before a descent, and the defaults that they share.

A private intercept makes the model right on average from the start, private feature means
centre the rows, which makes the descent well conditioned, and the mean row factor undoes
the shrinking of long rows. Sensitivities: doc/privacy.rst, sections 3.1c to 3.1e.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._linear import Rows, summation_error
from .._random import RandomStream
from ..accounting import Allowance, PrivacyBudget
from ..mechanisms import Gaussian, Laplace, Release, additive_noise
from .base import Problem, SolverData, SolverResult

__all__ = [
    "CENTER_SHARE",
    "ROW_SCALE_SHARE",
    "Preliminaries",
    "Prepared",
    "default_data_norm",
    "gradient_noise",
    "growing_clip",
    "intercept_share",
    "mean_sensitivity",
    "plan_center",
    "plan_constant",
    "plan_intercept",
    "plan_preliminaries",
    "plan_row_factor",
    "prepare",
    "release_center",
    "release_mean_target",
    "release_row_factor",
]

Array = NDArray[np.float64]

# Shares of the budget, chosen on synthetic data (benchmarks/defaults_study.py).
ROW_SCALE_SHARE = 0.02
CENTER_SHARE = 0.05
_INTERCEPT_SHARE = (0.1, 0.5)  # at least, at most
_INTERCEPT_NOISE = 0.12  # standard deviation that the intercept's share aims at
_INTERCEPT_PRIOR = 0.5  # standard deviation of the mean of targets in [-1, 1] over tasks

# Where a tenth of the budget is not enough for a mean in [-1, 1], the centre of the targets
# is found by steps on clipped residuals, whose noise is a fraction of it.
_LOCATION_CLIP = 0.12
_LOCATION_STEPS = 25
_LOCATION_STEP = 1.9
_LOCATION_REACH = 0.2  # bound on the random walk of the noise over all steps


def default_data_norm(problem: Problem) -> float:
    """Half of the largest possible norm of a row in the box, and at least 1."""
    return max(1.0, math.sqrt(problem.dimension) / 2)


def mean_sensitivity(problem: Problem, budget: PrivacyBudget, norm: float) -> float:
    """l2 change of a mean of rows, centred or not, whose norm is at most `norm`.

    The second term is the float error of the two sums, in which a centred row may be as
    long as twice the box.
    """
    n = problem.n_samples
    numerical = summation_error(n, problem.n_features) * (norm + 2 * math.sqrt(problem.dimension))
    return norm * budget.record_factor / n + 2 * numerical


def gradient_noise(problem: Problem, budget: PrivacyBudget, norm: float, amount: float) -> float:
    """l2 norm of the noise in the mean of all released gradients, for a clip of 1.

    `amount` is rho, or mu^2 / 2, of all of the problem's models.
    """
    spread = math.sqrt(2 * amount / problem.n_models)
    per_coordinate = budget.record_factor * norm / (problem.n_samples * spread)
    return per_coordinate * math.sqrt(problem.dimension)


def growing_clip(smallest: float, noise: float, accurate: float) -> float:
    """The smallest useful clip where noise dominates, 1 where it is far below `accurate`."""
    return min(1.0, smallest * max(1.0, math.sqrt(accurate / noise)))


def intercept_share(problem: Problem, budget: PrivacyBudget) -> float:
    """Share of the budget that brings the intercept's noise down to _INTERCEPT_NOISE."""
    least, most = _INTERCEPT_SHARE
    full = budget.record_factor / problem.n_samples
    if budget.is_pure:
        share = math.sqrt(2) * full * problem.n_models / budget.epsilon / _INTERCEPT_NOISE
    else:
        share = (full / _INTERCEPT_NOISE) ** 2 * problem.n_models / (2 * budget.rho)
    return min(most, max(least, share))


def plan_intercept(
    problem: Problem, budget: PrivacyBudget, allowance: Allowance
) -> Gaussian | Laplace | None:
    """Mechanism for the mean of the targets, each in [-1, 1]."""
    if not problem.fit_intercept:
        return None
    # numpy sums in blocks, well within the error of our own chunks
    numerical = 2 * summation_error(problem.n_samples, problem.n_features)
    sensitivity = budget.record_factor / problem.n_samples + numerical
    return additive_noise(allowance).calibrate(sensitivity, allowance)


def plan_center(
    problem: Problem, budget: PrivacyBudget, norm: float, allowance: Allowance
) -> Gaussian:
    """Mechanism for the means of the features over rows of bounded norm."""
    sensitivity = mean_sensitivity(problem, budget, norm)
    return Gaussian.calibrate(sensitivity, allowance, dimension=problem.n_features)


def plan_row_factor(
    problem: Problem, budget: PrivacyBudget, norm: float, allowance: Allowance
) -> Gaussian | None:
    """Mechanism for the mean of min(1, norm / |row|); None if no row can be that long."""
    half_range = _row_factor_half_range(problem, norm)
    if half_range == 0:
        return None
    n = problem.n_samples
    numerical = 2 * summation_error(n, problem.n_features)
    return Gaussian.calibrate(budget.record_factor * half_range / n + numerical, allowance)


def release_mean_target(
    data: SolverData, mechanism: Gaussian | Laplace, stream: RandomStream
) -> float:
    """Noisy mean of the targets, shrunk towards the middle of their bounds.

    The shrinking is the posterior mean under a normal prior: where the noise is small it
    does nothing, where it is large it keeps the intercept from being noise.
    """
    noisy = mechanism.release(np.array([data.mean_target]), stream)[0]
    return float(np.clip(noisy, -1.0, 1.0)) / (1 + mechanism.variance / _INTERCEPT_PRIOR**2)


def release_center(rows: Rows, mechanism: Gaussian, stream: RandomStream) -> Array:
    """Noisy means of the features over rows of bounded norm, shrunk where noise dominates.

    The shrinking is that of James and Stein. A centre that is off costs only some speed of
    the descent, never the model's freedom: the intercept makes up for it.
    """
    noisy = mechanism.release(rows.mean(), stream)
    noise = noisy.size * mechanism.scale**2
    size = float(noisy @ noisy)
    return np.clip(noisy * max(0.0, 1 - noise / size), -1.0, 1.0)


def _row_factor_half_range(problem: Problem, norm: float) -> float:
    """Half the range of the factor min(1, B / |row|) over rows in the box."""
    return max(0.0, (1 - norm / math.sqrt(problem.dimension)) / 2)


def release_row_factor(
    rows: Rows, problem: Problem, norm: float, mechanism: Gaussian, stream: RandomStream
) -> float:
    """Noisy mean of the row factors, as an offset from the middle of their range.

    The model is fitted on rows that were scaled down and predicts on rows that were not,
    so its coefficients are too large by about the inverse of the mean factor.
    """
    half_range = _row_factor_half_range(problem, norm)
    middle = 1 - half_range
    scale = np.asarray(rows.scale)
    offsets = np.where(scale > 0, np.clip(scale - middle, -half_range, half_range), 0.0)
    released = mechanism.release(np.array([offsets.mean()]), stream)[0]
    return float(np.clip(middle + released, middle - half_range, 1.0))


class Prepared(NamedTuple):
    """What the descent starts from.

    Attributes
    ----------
    rows : Rows
        Centred and of bounded norm.
    offset : float
        The constant prediction that the descent corrects.
    factor : float
        What the descent's coefficients are multiplied by.
    """

    rows: Rows
    offset: float
    factor: float

    def result(self, solution: Array, n_iter: int) -> SolverResult:
        """The model for plain rows, from the descent's coefficients."""
        solution = self.factor * solution
        coef, intercept = solution[: self.rows.n_columns], self.offset
        if self.rows.has_intercept:
            intercept += float(solution[-1])
        if self.rows.center is not None:
            intercept -= float(self.rows.center @ coef)
        return SolverResult(coef, intercept, n_iter)


@dataclass(frozen=True)
class Preliminaries:
    """The mechanisms of the releases before a descent; None for what is not released.

    Attributes
    ----------
    intercept, center, row_scale : mechanism or None
        For the mean or the centre of the targets, the feature means and the mean row
        factor.
    location_steps : int
        Uses of `intercept` for the centre of the targets; 0 for one use for their mean.
    left : float
        Share of the allowance that is left for the descent.
    """

    intercept: Gaussian | Laplace | None
    center: Gaussian | None = None
    row_scale: Gaussian | None = None
    location_steps: int = 0
    left: float = 0.0

    @property
    def releases(self) -> tuple[Release, ...]:
        """What they cost every record."""
        intercept = "target's centre" if self.location_steps else "mean target"
        named = (
            (intercept, self.intercept, max(1, self.location_steps)),
            ("feature means", self.center, 1),
            ("mean row factor", self.row_scale, 1),
        )
        return tuple(Release(name, m, count) for name, m, count in named if m is not None)


def plan_preliminaries(
    problem: Problem,
    budget: PrivacyBudget,
    norm: float,
    allowance: Allowance,
    *,
    may_shrink: bool,
) -> Preliminaries:
    """All three, each with its default share of the allowance of one model.

    `may_shrink` tells whether the feasible set keeps points that are multiplied by a
    factor below 1; if not, the row factor is left out. The allowance must not be pure.
    """
    intercept: Gaussian | Laplace | None = None
    center = row_scale = None
    left, location_steps = 1.0, 0
    if problem.fit_intercept:
        share = intercept_share(problem, budget)
        intercept, location_steps = plan_constant(problem, budget, allowance.share(share))
        center = plan_center(problem, budget, norm, allowance.share(CENTER_SHARE))
        left -= share + CENTER_SHARE
    if may_shrink:
        row_scale = plan_row_factor(problem, budget, norm, allowance.share(ROW_SCALE_SHARE))
        left -= 0 if row_scale is None else ROW_SCALE_SHARE
    return Preliminaries(intercept, center, row_scale, location_steps, left)


def plan_constant(
    problem: Problem, budget: PrivacyBudget, allowance: Allowance
) -> tuple[Gaussian | Laplace | None, int]:
    """Mechanism for the best constant prediction, and its uses if it takes several."""
    is_noisy = intercept_share(problem, budget) > _INTERCEPT_SHARE[0]
    if is_noisy and problem.loss.task == "regression" and allowance.kind != "pure":
        return _plan_location(problem, budget, allowance), _LOCATION_STEPS
    return plan_intercept(problem, budget, allowance), 0


def prepare(
    data: SolverData,
    problem: Problem,
    norm: float | None,
    mechanisms: tuple[Gaussian | Laplace | None, Gaussian | None, Gaussian | None],
    location_steps: int,
    stream: RandomStream,
) -> Prepared:
    """Run the preliminaries: `mechanisms` are (intercept, center, row_scale) of the plan.

    A `norm` of None leaves the rows as they are.
    """
    intercept, center, row_scale = mechanisms
    offset, factor, rows = 0.0, 1.0, data.rows
    if intercept is not None and location_steps:
        offset = problem.loss.best_constant(
            _release_location(data, intercept, location_steps, stream)
        )
    elif intercept is not None:
        mean = release_mean_target(data, intercept, stream)
        offset = problem.loss.best_constant(mean)
    if norm is None:
        return Prepared(rows, offset, factor)
    if center is not None:
        rows = rows.centered(release_center(rows.with_norm_bound(norm), center, stream))
    rows = rows.with_norm_bound(norm)
    if row_scale is not None:
        factor = release_row_factor(rows, problem, norm, row_scale, stream)
    return Prepared(rows, offset, factor)


def _plan_location(problem: Problem, budget: PrivacyBudget, allowance: Allowance) -> Gaussian:
    """Mechanism for means of residuals, each clipped to [-c, c]."""
    numerical = 2 * summation_error(problem.n_samples, problem.n_features)
    sensitivity = _LOCATION_CLIP * (budget.record_factor / problem.n_samples + numerical)
    return Gaussian.calibrate(sensitivity, allowance, _LOCATION_STEPS)


def _release_location(
    data: SolverData, mechanism: Gaussian | Laplace, n_steps: int, stream: RandomStream
) -> float:
    """Minimizer of the mean of Huber's loss of the targets, by noisy gradient steps from 0.

    The noise of a mean of targets is that of their range; here it is that of their spread.
    """
    scale = data.rows.scale
    present = 1.0 if scale is None else (scale > 0).astype(np.float64)
    step = min(_LOCATION_STEP, _LOCATION_REACH / (mechanism.scale * math.sqrt(n_steps)))
    centre, total = 0.0, 0.0
    for t in range(1, n_steps + 1):
        residual = np.clip(centre - data.y, -_LOCATION_CLIP, _LOCATION_CLIP) * present
        released = mechanism.release(np.array([residual.mean()]), stream)[0]
        centre = float(np.clip(centre - step * released, -1.0, 1.0))
        total += t * centre
    return 2 * total / (n_steps * (n_steps + 1))
