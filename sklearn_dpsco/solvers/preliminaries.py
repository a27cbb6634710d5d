"""Private releases that come before a descent, and the defaults that they share.

A private intercept makes the model right on average from the start, private feature means
centre the rows, which makes the descent well conditioned, and the mean row factor undoes
the shrinking of long rows. Sensitivities: doc/privacy.rst, sections 3.1c to 3.1e.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from .._linear import Rows, summation_error
from .._random import RandomStream
from ..accounting import Allowance, PrivacyBudget
from ..mechanisms import Gaussian, Laplace
from .base import Problem, SolverData

__all__ = [
    "CENTER_SHARE",
    "ROW_SCALE_SHARE",
    "default_data_norm",
    "intercept_share",
    "mean_sensitivity",
    "plan_center",
    "plan_intercept",
    "plan_row_factor",
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
    kind = Laplace if allowance.kind == "pure" else Gaussian
    return kind.calibrate(sensitivity, allowance)


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
    variance = mechanism.scale**2 * (2 if isinstance(mechanism, Laplace) else 1)
    return float(np.clip(noisy, -1.0, 1.0)) / (1 + variance / _INTERCEPT_PRIOR**2)


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
