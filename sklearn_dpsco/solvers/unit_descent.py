r"""Gradient descent in privately learned units, without a set, a radius or a tuned step.

After `learned_units`, T releases of the mean gradient follow, each record's derivatives clipped to
c; the mean of the second half of the iterates is the model. Clip, step and momentum follow from
public facts and from what was released. They take the model as far as the noise allows, which is
to the non-private one as the noise vanishes.

A release is the mean of vectors of norm at most 1, derivatives over the clip times rows, so that
its sensitivity does not depend on the clip (doc/privacy, section 4.5).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from .._progress import steps
from .._types import Auto
from ..data.rows import Terms
from ..geometry import Geometry
from ..losses import Logistic, Loss, Squared, Welsch, base_loss
from ..mechanisms import Gaussian, Release
from ..privacy.budget import PrivacyBudget
from ..privacy.guarantee import Guarantee
from ..randomness.stream import RandomStream
from . import statistics
from .base import Plan, Problem, Solver, SolverResult
from .defaults import (
    UNIT_DESCENT,
    affordable_steps,
    check_copy,
    is_wide,
    joint_unit,
    unit_rules,
)
from .learned_units import LearnedUnits, Units, pays, plan_units
from .records import SolverData, gradient_sum
from .wide_units import wide_mean

Array = NDArray[np.float64]


@dataclass(frozen=True)
class UnitDescentPlan(Plan):
    """Plan of a descent in learned units; see `Plan` for the common fields.

    Attributes
    ----------
    units : LearnedUnits
        What is released before the descent.
    step : Gaussian
        What releases the mean gradients, in units of the clip.
    """

    units: LearnedUnits
    step: Gaussian

    def run(self, data: SolverData, stream: RandomStream) -> SolverResult:
        """See `Plan.run`."""
        problem, n_steps = self.problem, self.max_iter
        units = self.units.run(data, stream)
        clip, length, momentum = _clip_and_length(self, units)
        unit = units.unit if problem.n_outputs == 1 else units.unit[:, None]
        coef = np.zeros(problem.size)
        total, direction = np.zeros_like(coef), np.zeros_like(coef)
        for t in steps(range(n_steps)):
            loss = _loss_at(problem.loss, t, n_steps)
            terms = Terms(units.offset, loss, clip)
            total_gradient = units.data.sum(gradient_sum, unit * problem.matrix(coef), terms)
            gradient = (unit * total_gradient).ravel() / (clip * problem.n_samples)
            direction = momentum * direction + clip * self.step.release(gradient, stream)
            coef = coef - (1 - momentum) * length / n_steps * direction
            if t >= n_steps // 2:
                total += coef
        return units.result(total / (n_steps - n_steps // 2), problem, n_steps)


class Descent(Solver):
    """Gradient descent in learned units: mirror descent with the Euclidean map, without a set.

    A part of the budget buys the units: centre and spread of the targets, centre and length of the
    rows and, where n is large against d, their second moments. The descent then needs no bounds
    that are tight, no set, no step and no clip, and has none as parameters. For the squared, the
    logistic and Welsch's loss. Up to 1000 features and 2^28 numbers of X are copied, densely;
    wider X, such as texts, stays as it is, and noisy frequencies of the features take the place of
    second moments.

    Parameters
    ----------
    max_iter : "auto" or int in [1, 1e9], default="auto"
        Number of steps, with momentum; more cost time and hardly change the accuracy. "auto" is 16
        to 100, as many as some tenths of a second allow.
    """

    form = "descent"

    def __init__(self, *, max_iter: int | Auto = "auto") -> None:
        self._store(locals())

    def _check(
        self, loss: Loss, feasible_set: Geometry | type[Geometry], budget: PrivacyBudget, units: str
    ) -> None:
        if budget.is_pure:
            raise ValueError("solver='descent' has no pure-DP form (delta=0)")
        if feasible_set is not Geometry:
            raise ValueError(
                "solver='descent' has no feasible set, which feasible_set='auto' stands for; "
                "solver='noisy-md' has one"
            )
        if units == "bounds":
            raise ValueError("solver='descent' learns its units: units='bounds' is for the others")
        if not _knows(loss):
            raise ValueError(
                "solver='descent' knows the squared, the logistic and Welsch's loss "
                f"(width='auto'), solver='noisy-md' others as well; got {loss!r}"
            )

    def _plan(self, problem: Problem, budget: PrivacyBudget) -> UnitDescentPlan:
        if not is_wide(problem):
            check_copy(problem, "solver='descent'", "another solver")
        allowance = budget.mixed_allowance
        units = plan_units(problem, budget, allowance, LearnedUnits)
        limits = UNIT_DESCENT.whitened if units.moments else UNIT_DESCENT.plain
        n_steps = self.max_iter or affordable_steps(problem, limits)
        sizes = problem.n_samples, problem.dimension
        change = statistics.mean_of_numbers(*sizes, budget.record_factor)
        if is_wide(problem):
            change = wide_mean(problem, budget)
        step = Gaussian.calibrate(change, allowance.share(units.left), n_steps, problem.size)
        releases = (*units.releases, Release("mean gradient", step, n_steps))
        guarantee = Guarantee.of(budget, releases, allowance.kind)
        facts = problem, budget, self.form, n_steps, guarantee
        return UnitDescentPlan(*facts, units=units, step=step)


def is_best(problem: Problem, budget: PrivacyBudget) -> bool:
    """Whether the descent is possible, and its units are better than those of the bounds."""
    is_free = problem.feasible_set is Geometry and problem.units != "bounds"
    return is_free and _knows(problem.loss) and pays(problem, budget)


def _knows(loss: Loss) -> bool:
    base = base_loss(loss)
    return type(base) in (Squared, Logistic) or (type(base) is Welsch and base.width == "auto")


def _loss_at(loss: Loss, t: int, n_steps: int) -> Loss:
    """The loss of step t; Welsch's is wide until iterates are averaged, so that all records pull.

    At once narrow, it would stay at a minimum near the start if many records are far from it.
    """
    if not isinstance(base_loss(loss), Welsch):
        return loss
    wider: float = UNIT_DESCENT.widening ** max(0.0, 1 - 2 * t / n_steps)
    return Welsch(UNIT_DESCENT.width * wider).of_outputs(loss.n_outputs)


def _clip_and_length(plan: UnitDescentPlan, units: Units) -> tuple[float, float, float]:
    """The clip, the sum of all steps and the momentum, from public facts and released numbers."""
    problem = plan.problem
    rules = unit_rules(problem)
    clip = min(rules.largest_clip, rules.smallest_clip * math.sqrt(units.growth))
    clip *= joint_unit(problem)
    last = _loss_at(problem.loss, plan.max_iter, plan.max_iter)
    clip = min(clip, last.derivative_bound(math.inf))
    if problem.n_outputs == 1 and plan.units.accuracy < rules.unbiased:
        # clipped derivatives of unequal classes do not cancel out, and where the centre of the rows
        # is not found, they push the model along it
        frequency = float(expit(units.offset))
        clip = max(clip, frequency, 1 - frequency)
    curvature = problem.loss.smoothness * min(1.0, 4 * units.balance)
    # standard deviation of the noise of a coordinate, if one step had all of the budget
    single = max(clip * plan.step.scale / math.sqrt(plan.max_iter), 1e-50)  # or there is none
    wanted = min(
        rules.prediction_noise * math.sqrt(1.5 / units.trace) / single,
        (rules.signal * clip * units.balance / single) ** 2
        / (curvature * units.trace * units.longest**2),
    )
    # that of plain steps that do not overshoot; with momentum, directions of small curvature go
    # further, and it dies away within the first half of the steps
    plain = plan.max_iter / (0.75 * curvature * units.top)
    gain = min(wanted / plain, plan.max_iter / UNIT_DESCENT.momentum_steps)
    gain = max(1.0, gain)
    return clip, min(wanted, gain * plain), 1 - 1 / gain
