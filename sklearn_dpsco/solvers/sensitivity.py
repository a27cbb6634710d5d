r"""How far one record moves the released values: all sensitivities of the solvers.

Every function bounds the distance of the values on two neighbouring tables, float error
included. `record_factor` (2 under replace-one, 1 under zero-out) multiplies every term that
comes from a record's own contribution; float errors are counted once for each of the two
tables under both relations. `n` is the public number of slots, empty records included.
The sections named below are those of doc/privacy.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..data.summation import UNIT_ROUNDOFF, gamma, summation_error
from ..geometry import Vertices
from ..losses import largest_constant
from ..mechanisms.selection import PRIOR_ROOM
from ..privacy.budget import PrivacyBudget
from .base import Problem
from .statistics import row_mean

__all__ = [
    "Corrections",
    "GradientSteps",
    "RecordSteps",
    "batch_mean",
    "corrected_scores",
    "gradient_sum",
    "octave_score",
    "phase_mean",
    "quantile_score",
    "record_scores",
    "row_and_target_sum",
    "row_mean_in_norm",
    "second_moment_sum",
    "vertex_scores",
]


class GradientSteps(NamedTuple):
    """A pass of single-record gradient steps: the numbers that `phase_mean` needs.

    Attributes
    ----------
    n_steps : int
    learning_rate : float
    beta : float
        Bound on the slope of the derivative that the steps take.
    clip : float
        Bound on the derivative.
    parameter : float
        Bound on the numbers that it is computed from, beside predictions and targets.
    block : int
        Steps between two projections.
    """

    n_steps: int
    learning_rate: float
    beta: float
    clip: float
    parameter: float
    block: int


def row_mean_in_norm(
    problem: Problem, budget: PrivacyBudget, norm: float, box: float, q: float
) -> float:
    """l_q change of a mean of rows, l_q norms up to `norm`, coordinates up to `box` (4.1)."""
    n = problem.n_samples
    numerical = 4 * (box * problem.dimension ** (1 / q)) * summation_error(n, problem.n_features)
    return budget.record_factor * norm / n + numerical


def batch_mean(problem: Problem, budget: PrivacyBudget, norm: float, size: int) -> float:
    """l2 change of the sum over a random batch of rows, over its (expected) size (section 2.6).

    Under replace-one a batch of fixed size gets another record in the place of one; a
    Poisson batch, under zero-out, gains or loses one, and has at most n.
    """
    n = problem.n_samples
    per_record = norm * budget.record_factor
    numerical = row_mean(problem, budget, norm) - per_record / n
    return per_record / size + numerical * n / size


def vertex_scores(
    problem: Problem, budget: PrivacyBudget, vertices: Vertices, clip: float, penalty: float = 0.0
) -> float:
    """Range of the change of the scores of all vertices (sections 2.3 and 3.1).

    The l1 diameter of the set times the l-infinity change of the mean gradient, every scaled
    feature being at most 1.
    """
    n = problem.n_samples
    per_record = budget.record_factor * vertices.l1_diameter * clip / n
    error = clip * (summation_error(n, problem.n_features) + _score_error(vertices))
    if penalty > 0:  # its part is the same on both tables, but for the rounding of the sum
        error += (_score_error(vertices) + 4 * UNIT_ROUNDOFF) * (clip + penalty * vertices.l1_norm)
    return per_record + 4 * vertices.l1_norm * error


def _score_error(vertices: Vertices) -> float:
    """Relative float error of a score; that of one product is within the sums' own bound."""
    return gamma(vertices.width + 4) if vertices.width > 1 else 0.0


class Corrections(NamedTuple):
    """The estimates of a run in one pass, ``v_k = kept_k v_base(k) + a mean over batch k``.

    Arrays of shape (n_steps,).

    Attributes
    ----------
    base : ndarray of int
        The step whose estimate is corrected, below k; -1 for none.
    kept : ndarray
        q, in [0, 1].
    clip : ndarray
        Bound on what a record's derivative contributes.
    """

    base: NDArray[np.intp]
    kept: NDArray[np.float64]
    clip: NDArray[np.float64]

    def influence(self, norm: int) -> NDArray[np.float64]:
        """l1 or l2 norm, over all steps, of the weights that batch k has in their estimates."""
        total = np.ones(self.base.size)
        for k in range(self.base.size - 1, 0, -1):
            if self.base[k] >= 0:
                total[self.base[k]] += self.kept[k] ** norm * total[k]
        return total ** (1 / norm)


def corrected_scores(
    problem: Problem,
    budget: PrivacyBudget,
    vertices: Vertices,
    corrections: Corrections,
    sizes: NDArray[np.intp],
    penalty: float,
    norm: int,
) -> float:
    """Largest norm, over all records, of the ranges of a run's selections (section 3.3).

    A record of batch k moves its mean by up to clip_k record_factor / size_k in every coordinate,
    and every later estimate by its weight there times that.
    """
    base, kept, clip = corrections
    own = budget.record_factor * clip / sizes * corrections.influence(norm)
    # bounds on the estimates and on their float errors
    bound, error = np.zeros(base.size), np.zeros(base.size)
    for k in range(base.size):
        b = base[k]
        bound[k] = clip[k] + (kept[k] * bound[b] if b >= 0 else 0.0)
        error[k] = clip[k] * summation_error(int(sizes[k]), problem.n_features)
        error[k] += 8 * UNIT_ROUNDOFF * bound[k] + (kept[k] * error[b] if b >= 0 else 0.0)
    scored = bound + penalty * vertices.l1_norm
    error += (_score_error(vertices) + 4 * UNIT_ROUNDOFF) * scored
    numerical = 4 * vertices.l1_norm * float(np.linalg.norm(error, norm))
    return vertices.l1_diameter * float(own.max()) + numerical


class RecordSteps(NamedTuple):
    """A run whose first batch is followed by steps of one record each, of constant weights.

    Attributes
    ----------
    n_steps : int
        After the first.
    first_batch : int
    rate : float
        1 - q in (0, 1).
    first_clip, clip : float
        As in `Corrections`, of the first batch and of a record.
    """

    n_steps: int
    first_batch: int
    rate: float
    first_clip: float
    clip: float


def record_scores(
    problem: Problem,
    budget: PrivacyBudget,
    vertices: Vertices,
    steps: RecordSteps,
    penalty: float,
    norm: int,
) -> tuple[float, float, float]:
    """The same for `RecordSteps`, and the scales of the first and the last noise (section 3.2).

    Those are in units of the noise between, and the scores are divided by them. They are such that
    the norm is the same for every record, where that is possible and lowers it.
    """
    change = vertices.l1_diameter * budget.record_factor
    first, each = change * steps.first_clip / steps.first_batch, change * steps.clip
    log_decay = norm * math.log1p(-steps.rate)
    decay, lasting = math.exp(log_decay), (-math.expm1(log_decay)) ** (1 / norm)
    # the first batch's weights over all steps, and those of the first record
    whole = [-math.expm1(count * log_decay) for count in (steps.n_steps + 1, steps.n_steps)]
    constant = max(first * whole[0] ** (1 / norm), each * whole[1] ** (1 / norm)) / lasting
    total, scales = constant, (1.0, 1.0)
    is_tight = first <= each or each / lasting <= constant
    share = first / each
    if is_tight and decay * share**norm < 1:
        rest = (1 - decay * share**norm) ** (1 / norm)
        total, scales = each / lasting, (share * lasting / rest, lasting)
    longest = min(1 / steps.rate, steps.n_steps + 1.0)
    bound = steps.first_clip + steps.clip * longest
    scored = bound + penalty * vertices.l1_norm
    error = 8 * UNIT_ROUNDOFF * scored
    error += max(
        steps.first_clip * summation_error(steps.first_batch, problem.n_features),
        steps.clip * summation_error(1, problem.n_features),
    )
    error = error * longest + _score_error(vertices) * scored
    times = (steps.n_steps + scales[0] ** -norm + scales[1] ** -norm) ** (1 / norm)
    return (total + 4 * vertices.l1_norm * error * times, *scales)


def octave_score(n_samples: int, record_factor: float, roundings: int) -> float:
    """Range of the change of the scores of a magnitude's candidates, with a prior (section 7.4).

    The float scores of both neighbours err by `roundings` roundings of numbers below 1.
    """
    return (record_factor / n_samples + 4 * roundings * UNIT_ROUNDOFF) * PRIOR_ROOM


def quantile_score(n_samples: int, record_factor: float, level: float) -> float:
    """Range of the change of the scores of a quantile's candidates, with a prior (section 2.12).

    `level` is in [1/2, 1]; scores are computed with three roundings.
    """
    change = 2.0 if record_factor == 2 else 2 * level
    return (change + 16 * UNIT_ROUNDOFF * n_samples) * PRIOR_ROOM


def row_and_target_sum(n_records: int, record_factor: float) -> float:
    """l2 change of a sum of vectors of norm at most 1, one for each record (section 6.1)."""
    return record_factor + 2 * n_records * _stream_error(n_records)


def second_moment_sum(n_records: int, record_factor: float) -> float:
    """Frobenius change of a sum of z z^T, z of norm at most 1 (section 6.1b).

    The vector of z z^T has norm at most 1, and no two of them are at an obtuse angle.
    """
    return math.sqrt(record_factor) + 2 * n_records * _stream_error(n_records)


def gradient_sum(
    problem: Problem, budget: PrivacyBudget, n_records: int, clip: float, norm: float
) -> tuple[float, float]:
    """l2 change of the sum of the gradients of a step of a stream, and a bound on its norm.

    Each gradient has norm at most clip * norm (sections 2.4 and 6.2). The sum for centred rows is
    a difference of two sums, whose terms have together up to twice the largest norm in the box.
    Whitened rows may be longer.
    """
    longest = max(norm, 2 * math.sqrt(problem.dimension))
    error = n_records * _stream_error(n_records) * clip * longest
    return budget.record_factor * clip * norm + 2 * error, n_records * clip * norm + error


def _stream_error(n_records: int) -> float:
    """Relative float error of a sum of that many terms in any order and grouping.

    A term meets at most n_records additions of parts that hold records, and up to ten
    roundings on its way from the derivative into the centred sum.
    """
    return gamma(2 * n_records + 16)


def phase_mean(
    problem: Problem,
    budget: PrivacyBudget,
    step: GradientSteps,
    start: float,
    radius: float,
    norm: float,
) -> float:
    """l2 change of the mean iterate of a pass of non-expansive steps (section 5).

    It is that of one step plus the float error of all. `start` bounds the norm of the first
    iterate, `radius` the norms after each projection.
    """
    eta, steps, clip, block = step.learning_rate, step.n_steps, step.clip, step.block
    d, k, beta = problem.dimension, problem.n_outputs, step.beta
    # the largest coefficients, before the projection and in the form that CSR rows use
    size = min(radius + block * eta * clip * norm, start + steps * eta * clip * norm)
    size += 2 * block * eta * clip * math.sqrt(d)
    offset = math.sqrt(k) * largest_constant(problem.loss)
    prediction = gamma(2 * d + 6 * block + 40) * ((norm + 2 * math.sqrt(d)) * size + offset)
    slope = 8 * k * UNIT_ROUNDOFF * (1 + clip + beta * step.parameter)
    per_step = eta * norm * (beta * prediction + slope)
    per_step += 8 * UNIT_ROUNDOFF * (size + eta * clip * norm)
    blocks = math.ceil(steps / block)
    numerical = steps * per_step + blocks * gamma(d + 8) * size + gamma(blocks + 4) * size
    return budget.record_factor * eta * clip * norm + 2 * numerical
