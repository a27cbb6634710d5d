r"""The box in which a solver with a feasible set works: that of the bounds, or a learned one.

Rotations would change the set, so that learned units are diagonal: features and targets become
(value - centre) / width, clipped to [-1, 1]. From there on everything is as if these were the
declared bounds, the sensitivities too. Derivation: doc/privacy, section 4.5c.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from .._types import Array
from ..data.compressed import with_values
from ..data.rows import make_rows
from ..data.summation import chunk_rows, slices, sum_on_threads, sum_over_records
from ..losses import Absolute, Quantile, Squared, base_loss
from ..privacy.budget import Allowance, PrivacyBudget
from ..randomness.stream import RandomStream
from . import statistics
from .base import LARGEST_COPY, MOST_COPIED_FEATURES, Problem, Solver
from .defaults import BOX_UNITS, unit_rules
from .first_releases import FirstReleases
from .learned_units import LearnedUnits, accuracy, pays, plan_units
from .records import Frame, SolverData, WithNumbers, in_box
from .statistics import clipped_to

# parameters of solvers that are stated in units of the features and the targets
_IN_UNITS = ("data_norm", "gradient_clip", "l2_penalty", "learning_rate")


def learns_units(solver: Solver, problem: Problem, budget: PrivacyBudget) -> bool:
    """Whether learned units are asked for; "auto" stands for them where they pay.

    They do not if a number is stated in those of the bounds, or the loss has one in the targets'.
    """
    may_copy = not problem.is_wide and not problem.is_large
    if problem.units == "learned" and not may_copy:
        raise ValueError(
            f"units='learned' copies at most {LARGEST_COPY} numbers of X with up to "
            f"{MOST_COPIED_FEATURES} features: take units='bounds'"
        )
    if problem.units != "auto":
        return problem.units == "learned"
    loss = base_loss(problem.loss)
    is_free = loss.task == "classification" or type(loss) in (Squared, Absolute, Quantile)
    is_free = is_free and not any(getattr(solver, name, None) for name in _IN_UNITS)
    return may_copy and is_free and pays(problem, budget)


@dataclass(frozen=True)
class Box:
    """The units of a plan with a feasible set."""

    problem: Problem  # as the solver sees it: in learned units nothing is declared of the rows
    budget: PrivacyBudget
    whole: Problem  # as it was declared
    is_learned: bool

    @classmethod
    def of(cls, solver: Solver, problem: Problem, budget: PrivacyBudget, auto: bool) -> Box:
        """By the problem's `units`, "auto" for learned ones where they pay and `auto` allows it."""
        is_learned = learns_units(solver, problem, budget)
        if problem.units == "auto":
            # a radius and the length of a row are in the units of the bounds, too
            is_free = isinstance(problem.feasible_set, type) and problem.row_norm is None
            is_clear = accuracy(problem, budget) >= BOX_UNITS.clear * problem.n_features
            is_learned = auto and is_learned and is_free and is_clear
        inner = problem
        if is_learned:
            inner = replace(problem, row_norm=None, nonnegative=False)
        return cls(inner, budget, problem, is_learned)

    @property
    def allowance(self) -> Allowance:
        """The whole budget, for releases with Gaussian noise and, of learned units, medians."""
        return self.budget.mixed_allowance if self.is_learned else self.budget.gaussian_allowance

    def first(
        self, budget: PrivacyBudget, allowance: Allowance, plan: Callable[..., FirstReleases]
    ) -> FirstReleases:
        """The first releases, after the units': `plan(problem, budget, allowance)`."""
        if not self.is_learned:
            return plan(self.problem, budget, allowance)
        units = plan_units(self.whole, budget, allowance, DiagonalUnits)
        first = plan(self.problem, budget, allowance.share(units.left))
        return replace(first, left=units.left * first.left, units=units)


@dataclass(frozen=True)
class DiagonalUnits(LearnedUnits):
    """Centres and widths of the columns and of the targets; see `LearnedUnits` for the fields.

    `moments` is for the means of abs(z) and z^2, z a centred row over a length that nearly all
    have. A width is twice E z^2 / E abs(z), times a factor that grows as the noise falls: 2.5
    standard deviations of normal numbers, and all of a rare flag in rows up to that length.
    """

    def box(self, data: SolverData, stream: RandomStream) -> tuple[SolverData, Frame]:
        """The records in the box [-1, 1], and the way back."""
        rules, problem, slots, frame = BOX_UNITS, self.problem, data.n_samples, Frame()
        n = statistics.rows_present(data, self.present, stream)
        if problem.loss.task == "regression":
            data, frame = self._release_targets(data, n, stream)
            frame = replace(frame, target_scale=rules.target_width * frame.target_scale)
        data = data.row_major()
        measured, longest = data.map(statistics.measure), math.sqrt(problem.n_features)
        facts = longest, longest / 2, self.long, stream
        rough = 1.3 * statistics.scale_on_grid(measured, n, *facts)
        rough = min(rough, longest)
        center = np.zeros(problem.n_features)
        if self.center is not None:
            mean = measured.sum(statistics.short_row_sum, rough) / slots
            released = self.center.release(mean, stream)  # of sparse rows as well, as is planned
            if not data.is_sparse:  # whose zeros a centre would shift
                found = statistics.shrunk_vector(released, self.center.variance)
                center = rough * found * (slots / n)
                measured = data.map(statistics.measure, center)
        length = statistics.scale_on_grid(measured, n, 2 * rough, rough / 2, self.length, stream)
        length *= rules.row_bound
        assert self.moments is not None
        noisy = self.moments.release(measured.sum(_spread_sum, center, length) / slots, stream)
        growth = max(1.0, unit_rules(problem).growth * self.accuracy / (problem.n_features + 1))
        unit = rules.width * min(rules.longest, math.sqrt(growth)) * length
        width = np.minimum(unit * _ratios(noisy, self.moments.variance), 2.0)
        factor = 1 / rules.target_width if problem.loss.task == "regression" else None
        data = data.map(_in_box, factor, center, width)
        return data, replace(frame, center=center, scale=width)


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


def _spread_sum(measured: WithNumbers, center: Array, length: float) -> Array:
    """Sum of the vectors [abs(z), z^2] / sqrt(2), z a centred row, shortened to a length, over it.

    Their norms are at most 1, and no two of them are at an obtuse angle.
    """
    rows = measured.data.rows
    factors = clipped_to(length, measured.numbers) / length * rows.present()
    if sparse.issparse(rows.X):
        sizes = np.abs(rows.X.data).astype(np.float64)
        parts = ((sizes, factors), (sizes**2, factors**2))
        sums = [make_rows(with_values(rows.X, v), False).weighted_sum(w) for v, w in parts]
        return np.concatenate(sums) / math.sqrt(2)

    def added(part: slice) -> Array:
        z = np.abs((rows.dense(part) - center) * factors[part, None])
        return np.concatenate((sum_over_records(z), sum_over_records(z * z))) / math.sqrt(2)

    return np.asarray(sum_on_threads(added, slices(len(factors), chunk_rows(*rows.X.shape))))


def _in_box(
    data: SolverData, target_factor: float | None, center: Array, width: Array
) -> SolverData:
    """Features and targets in [-1, 1]."""
    y = data.y if target_factor is None else np.clip(data.y * target_factor, -1.0, 1.0)
    # dense rows in float32, which halves the time to read them
    return in_box(SolverData(data.rows, y), center, width, 1.0, np.float32)
