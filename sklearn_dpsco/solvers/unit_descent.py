r"""Gradient descent in privately learned units, without a set, a radius or a tuned step.

After `learned_units` has put rows and targets into units of their own, T releases of the mean
gradient follow, each record's derivatives clipped to c, and the mean of the second half of the
iterates is the model. (Welsch's loss is wide at first and narrows in the first half.) Clip, step
and momentum follow from public facts and from what was released: they take the model as far as the
noise in a prediction, and the energy of the noise in the model, allow, without overshooting. As the
noise vanishes the clip grows, and the model becomes the non-private one.

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
from ..data.rows import Terms
from ..losses import Logistic, Loss, Squared, Welsch, base_loss
from ..mechanisms import Gaussian, Release
from ..privacy.budget import PrivacyBudget
from ..privacy.guarantee import Guarantee
from ..randomness.stream import RandomStream
from . import sensitivity
from .base import Plan, Problem, SolverData, SolverResult
from .batches import gradient_sum
from .defaults import (
    LARGEST_COPY,
    MOST_COPIED_FEATURES,
    UNIT_DESCENT,
    affordable_steps,
    has_units,
    is_wide,
    joint_unit,
    unit_rules,
)
from .learned_units import LearnedUnits, Units, pays, plan_units

__all__ = [
    "UnitDescentPlan",
    "check_free",
    "is_best",
    "plan_unit_descent",
]

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


def check_free(loss: Loss, *, nothing_declared: bool) -> None:
    """Raise unless the descent can do what is declared."""
    if not (nothing_declared and _knows(loss)):
        raise ValueError(
            "solver='learned-units' has no set, clip, row norm, step or penalty, and knows the "
            "squared, the logistic and Welsch's loss (width='auto'): leave the rest 'auto', or "
            "take another solver"
        )


def is_best(problem: Problem, budget: PrivacyBudget) -> bool:
    """Whether the descent is possible, and its units are better than those of the bounds."""
    return _knows(problem.loss) and pays(problem, budget)


def _knows(loss: Loss) -> bool:
    """Whether the rules are made for the loss."""
    base = base_loss(loss)
    return type(base) in (Squared, Logistic) or (type(base) is Welsch and base.width == "auto")


def _loss_at(loss: Loss, t: int, n_steps: int) -> Loss:
    """The loss of step t, in learned units; Welsch's gets narrow before iterates are averaged.

    All records pull at first, by their clipped derivatives; at once narrow, it would stay at a
    minimum near the start if the signal of many records is far from it.
    """
    if not isinstance(base_loss(loss), Welsch):
        return loss
    wider: float = UNIT_DESCENT.widening ** max(0.0, 1 - 2 * t / n_steps)
    return Welsch(UNIT_DESCENT.width * wider).of_outputs(loss.n_outputs)


def plan_unit_descent(
    problem: Problem, budget: PrivacyBudget, max_iter: int | None
) -> UnitDescentPlan:
    """Everything that a run does, from public facts alone.

    Raises
    ------
    ValueError
        If X is too large for a copy.
    """
    if not has_units(problem):
        raise ValueError(
            f"solver='learned-units' copies at most {LARGEST_COPY} numbers of X with up to "
            f"{MOST_COPIED_FEATURES} features: take another solver"
        )
    allowance = budget.mixed_allowance
    units = plan_units(problem, budget)
    limits = UNIT_DESCENT.whitened if units.moments else UNIT_DESCENT.plain
    n_steps = max_iter or affordable_steps(problem, limits)
    change = sensitivity.mean_of_numbers(problem.n_samples, problem.dimension, budget.record_factor)
    if is_wide(problem):
        change = sensitivity.wide_mean(problem, budget)
    step = Gaussian.calibrate(change, allowance.share(units.left), n_steps, problem.size)
    releases = (*units.releases, Release("mean gradient", step, n_steps))
    guarantee = Guarantee.of(budget, releases, allowance.kind)
    return UnitDescentPlan(
        problem, budget, "learned-units", n_steps, guarantee, units=units, step=step
    )


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
