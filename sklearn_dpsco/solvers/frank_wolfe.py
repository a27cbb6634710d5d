r"""Full-batch noisy Frank-Wolfe methods over a polyhedral feasible set.

Two forms share one loop and differ in what is released at each step.

``"selection"``
    The vertex that minimizes the linearized loss, chosen by report-noisy-max
    (Talwar, Thakurta and Zhang 2015; BGM21 Algorithm 5). Its noise grows with log d.
``"gradient"``
    The mean gradient with Gaussian noise. Everything after it is free post-processing:
    momentum, which averages the noise of all past steps, and a linear minimization
    smoothed to the level of the noise that is left. Its noise grows with the row norm,
    about sqrt(d) / 2.

Both step from w to (1 - eta_t) w + eta_t u_t, where u_t is the vertex or the minimizer,
and return the mean of the second half of the iterates. Below a public threshold in
(n, d, epsilon) a third plan, ``"constant"``, spends all of the budget on a private
intercept and leaves the coefficients at 0.

The sensitivities are derived in doc/privacy.rst, sections 2.1, 2.3, 2.7, 3.1 and 3.1b.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._linear import Move, Objective, Rows, summation_error
from .._random import RandomStream
from .._selection_accounting import MOST_SELECTIONS, selection_epsilon
from ..accounting import Composition, Guarantee, PrivacyBudget
from ..geometry import Geometry
from ..mechanisms import Gaussian, Laplace, Release, SelectVertex
from .base import Plan, Problem, SolverData, SolverResult
from .preliminaries import (
    Preliminaries,
    default_data_norm,
    gradient_noise,
    growing_clip,
    intercept_share,
    mean_sensitivity,
    plan_constant,
    plan_intercept,
    plan_preliminaries,
    prepare,
)

__all__ = ["FrankWolfe", "FrankWolfePlan"]

Array = NDArray[np.float64]

# Width of the smoothing of the linear minimization, in units of the noise left in the
# momentum, and curvature of the loss along one feature, in units of its smoothness, which
# keeps the first steps of a run with little noise from overshooting.
_SMOOTHING = 0.2
_CURVATURE = 0.2

# The numbers above and below were chosen on synthetic data, see
# benchmarks/defaults_study.py. For _SMOOTHING, _NOISY, _SPARSITY_BET and the regression's
# radius and clip, where those data left a choice open, five public real tables decided
# (diabetes, computers, breast cancer, digits, fair); all are one value for every table.
#
# Levels of `_gradient_noise`. Above _NOISY the radius falls fast, so that the model fades
# into the trivial predictor, and a selection is preferred where its noise is below
# _SELECTABLE; above _HOPELESS only the intercept is learned; below _ACCURATE the clip grows
# to 1, so that its bias vanishes with the noise.
_NOISY = {"regression": 0.15, "classification": 0.2}
_HOPELESS = {"regression": 0.6, "classification": 1.5}
_ACCURATE = 0.02
_SELECTABLE = 0.15
# The two noises differ by a factor of about d / (2 log 2d). Where it is small (d < 80), a
# selection could win only by betting on a sparse truth, and loses if the truth is dense.
_SPARSITY_BET = 8.0

# Permute-and-flip errs as Gumbel noise of about 0.75 (few close scores) to 1 (noise
# dominates) times its scale does.
_PERMUTE_AND_FLIP = 0.9

_GRADIENT_RADIUS = {"regression": (0.65, 12.0), "classification": (4.0, 70.0)}  # scale, largest
_SELECTION_RADIUS = {"regression": 1.5, "classification": 7.0}
_SMALLEST_CLIP = {"regression": 0.15, "classification": 0.5}


@dataclass(frozen=True)
class FrankWolfePlan(Plan):
    """Plan of `FrankWolfe`; see `Plan` for the common fields.

    Attributes
    ----------
    geometry : Geometry
        The feasible set with its radius.
    gradient_clip : float
        c: bound on abs(dl/dz).
    learning_rate : float or None
        A constant step eta in (0, 1], or None for eta_t = 2 / (t + 12).
    smoothing : float
        "gradient": u_t minimizes ``<v_t, u> + q_t / 2 norm(u - w_t)^2`` over the feasible
        set, ``q_t = smoothing / sqrt(t + 1) + curvature / (t + 2)``.
    curvature : float
    data_norm : float or None
        "gradient": B, the bound on the l2 norm of a scaled row.
    location_steps : int
        Noisy steps to the centre of the targets; 0 for their noisy mean.
    intercept, center, row_scale, step : mechanism or None
        What releases the mean target or these steps, the feature means, the mean row
        factor, and each step.
    """

    geometry: Geometry
    gradient_clip: float
    learning_rate: float | None
    smoothing: float
    curvature: float
    data_norm: float | None
    location_steps: int
    intercept: Gaussian | Laplace | None
    center: Gaussian | None
    row_scale: Gaussian | None
    step: Gaussian | SelectVertex | None


@dataclass(frozen=True)
class FrankWolfe:
    """Settings of the solver; `None` leaves a value to the plan.

    Parameters
    ----------
    form : {"auto", "selection", "gradient", "constant"}
    max_iter : int or None
    learning_rate : float or None
    gradient_clip : float or None
    data_norm : float or None
    """

    form: str = "auto"
    max_iter: int | None = None
    learning_rate: float | None = None
    gradient_clip: float | None = None
    data_norm: float | None = None

    # ---------------------------------------------------------------- planning

    def plan(self, problem: Problem, budget: PrivacyBudget) -> FrankWolfePlan:
        """Everything that a run does, from public facts alone.

        Parameters
        ----------
        problem : Problem
        budget : PrivacyBudget

        Raises
        ------
        ValueError
            If the loss is not smooth, or ``form="gradient"`` is asked for with delta = 0.
        """
        if not math.isfinite(problem.loss.smoothness):
            raise ValueError(f"the Frank-Wolfe solvers need a smooth loss, got {problem.loss!r}")
        if self.form == "gradient" and budget.is_pure:
            raise ValueError(
                "solver='gradient' has no pure-DP form (delta=0); solver='selection' has one"
            )
        form = self._choose_form(problem, budget)
        _check_support(problem.feasible_set, form)
        plans = {
            "constant": self._plan_constant,
            "selection": self._plan_selection,
            "gradient": self._plan_gradient,
        }
        return plans[form](problem, budget)

    def _choose_form(self, problem: Problem, budget: PrivacyBudget) -> str:
        if self.form != "auto":
            return self.form
        selection = _selection_noise(problem, budget)
        if budget.is_pure:
            is_hopeless = selection > _SELECTABLE and self.max_iter is None
            return "constant" if is_hopeless else "selection"
        gradient = _gradient_noise(problem, budget, self.data_norm)
        task = problem.loss.task
        drowning = gradient > max(_NOISY[task], _SPARSITY_BET * selection)
        if drowning and selection < _SELECTABLE and problem.feasible_set.has_vertices:
            return "selection"
        is_hopeless = gradient > _HOPELESS[task] and self.max_iter is None
        return "constant" if is_hopeless else "gradient"

    def _plan_constant(self, problem: Problem, budget: PrivacyBudget) -> FrankWolfePlan:
        allowance = budget.gaussian_allowance.share(1 / problem.n_models)
        intercept, location_steps = None, 0
        if problem.fit_intercept:
            intercept, location_steps = plan_constant(problem, budget, allowance)
        before = Preliminaries(intercept, location_steps=location_steps)
        return self._finish(problem, budget, "constant", allowance.kind, before, max_iter=0)

    def _plan_selection(self, problem: Problem, budget: PrivacyBudget) -> FrankWolfePlan:
        geometry = _selection_geometry(problem, budget)
        clip = self._clip(problem, geometry, _selection_noise(problem, budget))
        max_iter = self.max_iter or _selection_iterations(problem, budget)
        # range of the change of the scores: diameter times the change of the mean
        # gradient in l-infinity, where every scaled feature is at most 1
        n, d = problem.n_samples, problem.n_features
        per_record = budget.record_factor * geometry.l1_diameter * clip / n
        numerical = 2 * geometry.l1_diameter * clip * summation_error(n, d)
        sensitivity = per_record + numerical
        composition, intercept, step = _best_selections(problem, budget, sensitivity, max_iter)
        return self._finish(
            problem, budget, "selection", composition, Preliminaries(intercept),
            max_iter=max_iter, geometry=geometry, gradient_clip=clip, step=step,
        )  # fmt: skip

    def _plan_gradient(self, problem: Problem, budget: PrivacyBudget) -> FrankWolfePlan:
        geometry = _gradient_geometry(problem, budget, self.data_norm)
        clip = self._clip(problem, geometry, _gradient_noise(problem, budget, self.data_norm))
        max_iter = self.max_iter or _gradient_iterations(problem)
        norm = self.data_norm or default_data_norm(problem)
        allowance = budget.gaussian_allowance.share(1 / problem.n_models)
        before = plan_preliminaries(
            problem, budget, norm, allowance, may_shrink=geometry.contains_origin
        )
        step = Gaussian.calibrate(
            clip * mean_sensitivity(problem, budget, norm),
            allowance.share(before.left), max_iter, problem.dimension,
        )  # fmt: skip
        # the momentum's noise at step t has standard deviation scale sqrt(4 / (3 (t + 1)))
        # per coordinate; its l2 norm against the radius sets the smoothing
        left = step.scale * math.sqrt(4 * problem.dimension / 3)
        return self._finish(
            problem, budget, "gradient", allowance.kind, before, max_iter=max_iter,
            geometry=geometry, gradient_clip=clip, data_norm=norm, step=step,
            smoothing=left / (_SMOOTHING * geometry.radius),
            curvature=_CURVATURE * problem.loss.smoothness,
        )  # fmt: skip

    def _clip(self, problem: Problem, geometry: Geometry, noise: float) -> float:
        """The declared or default clip, or the loss's own bound where that is smaller."""
        smallest = _SMALLEST_CLIP[problem.loss.task]
        clip = self.gradient_clip or growing_clip(smallest, noise, _ACCURATE)
        largest = geometry.radius + abs(problem.loss.best_constant(1.0))
        return min(clip, problem.loss.derivative_bound(largest))

    def _finish(
        self,
        problem: Problem,
        budget: PrivacyBudget,
        solver: str,
        composition: Composition,
        before: Preliminaries,
        *,
        max_iter: int,
        geometry: Geometry | None = None,
        gradient_clip: float = 0.0,
        smoothing: float = 0.0,
        curvature: float = 0.0,
        data_norm: float | None = None,
        step: Gaussian | SelectVertex | None = None,
    ) -> FrankWolfePlan:
        releases = before.releases
        if step is not None:
            name = "vertex" if solver == "selection" else "mean gradient"
            releases = (*releases, Release(name, step, max_iter))
        guarantee = Guarantee(
            budget.epsilon,
            budget.delta,
            budget.relation,
            composition,
            releases,
            problem.n_models,
        )
        return FrankWolfePlan(
            problem=problem, budget=budget, solver=solver, max_iter=max_iter,
            guarantee=guarantee, geometry=geometry or _selection_geometry(problem, budget),
            gradient_clip=gradient_clip, learning_rate=self.learning_rate, smoothing=smoothing,
            curvature=curvature, data_norm=data_norm, location_steps=before.location_steps,
            intercept=before.intercept, center=before.center, row_scale=before.row_scale,
            step=step,
        )  # fmt: skip

    # ----------------------------------------------------------------- running

    def solve(self, data: SolverData, plan: FrankWolfePlan, stream: RandomStream) -> SolverResult:
        """Run the plan.

        Parameters
        ----------
        data : SolverData
            Rows clipped to [-1, 1] and targets in [-1, 1].
        plan : FrankWolfePlan
        stream : RandomStream

        Returns
        -------
        SolverResult
        """
        mechanisms = plan.intercept, plan.center, plan.row_scale
        prepared = prepare(
            data, plan.problem, plan.data_norm, mechanisms, plan.location_steps, stream
        )
        solution = _descend(prepared.rows, data.y, prepared.offset, plan, stream)
        return prepared.result(solution, max(1, plan.max_iter))


class _Selections(NamedTuple):
    """The two mechanisms of a plan by selection, and how their uses compose."""

    composition: Composition
    intercept: Gaussian | Laplace | None
    step: SelectVertex


def _best_selections(
    problem: Problem, budget: PrivacyBudget, sensitivity: float, max_iter: int
) -> _Selections:
    """The analysis that asks for the least noise, of those that the budget may use."""

    def composed(budget: PrivacyBudget) -> _Selections:
        allowance = budget.allowance.share(1 / problem.n_models)
        share = intercept_share(problem, budget) if problem.fit_intercept else 0.0
        intercept = plan_intercept(problem, budget, allowance.share(share))
        step = SelectVertex.calibrate(sensitivity, allowance.share(1 - share), max_iter)
        return _Selections(allowance.kind, intercept, step)

    basic = composed(budget)
    if budget.is_pure or budget.currency == "zcdp":
        return basic
    found = [basic, composed(replace(budget, delta=0.0))]
    runs = problem.n_models * max_iter
    if runs <= MOST_SELECTIONS:
        gaussian = 0.0 if basic.intercept is None else basic.intercept.cost("gdp")
        mu = math.sqrt(2 * (problem.n_models * gaussian))
        eta = selection_epsilon(float(budget.epsilon), float(budget.delta), runs, mu)
        if eta > 0:
            step = SelectVertex.of_range(sensitivity, eta, budget.precision)
            found.append(_Selections("adaptive-range", basic.intercept, step))

    def noise(selections: _Selections) -> float:
        is_gumbel = selections.step.noise == "gumbel"
        return selections.step.scale * (1.0 if is_gumbel else _PERMUTE_AND_FLIP)

    return min(found, key=noise)


def _descend(
    rows: Rows, y: Array, offset: float, plan: FrankWolfePlan, stream: RandomStream
) -> Array:
    """Mean of the second half of the iterates, shape (dimension,)."""
    objective = Objective(y, offset, plan.problem.loss, plan.gradient_clip)
    walk: _VertexWalk | _GradientWalk
    if plan.step is None:
        return plan.geometry.center(plan.problem.dimension)
    if isinstance(plan.step, SelectVertex):
        walk = _VertexWalk(rows, objective, plan, stream)
    else:
        walk = _GradientWalk(rows, objective, plan, stream)
    first = plan.max_iter // 2
    total = np.zeros(plan.problem.dimension)
    for t in range(plan.max_iter):
        walk.step(t)
        if t >= first:
            total += walk.coef
    return total / (plan.max_iter - first)


class _Walk:
    """The state of one run: the coefficients, and how to take a step."""

    def __init__(
        self, rows: Rows, objective: Objective, plan: FrankWolfePlan, stream: RandomStream
    ) -> None:
        self.rows, self.objective, self.plan, self.stream = rows, objective, plan, stream
        self.mechanism: Any = plan.step
        self.coef = plan.geometry.center(plan.problem.dimension)

    def step_size(self, t: int) -> float:
        rate = self.plan.learning_rate
        # 2 / (t + 2), the textbook step, would put the first iterate onto a vertex
        return 2 / (t + 12) if rate is None else rate


class _VertexWalk(_Walk):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        # products <[x_i, 1], coef>, kept up to date by one column per step
        self.product = self.rows.product(self.coef)
        self.move = Move(1.0, 0, 0.0)

    def step(self, t: int) -> None:
        plan = self.plan
        gradient = self.rows.mean_gradient_after_move(self.product, self.move, self.objective)
        number = self.mechanism.release(plan.geometry.vertex_scores(gradient), self.stream)
        vertex = plan.geometry.vertex(number, self.coef.size)
        eta = self.step_size(t)
        self.move = Move(1 - eta, vertex.coordinate, eta * vertex.value)
        self.coef *= 1 - eta
        self.coef[vertex.coordinate] += eta * vertex.value


class _GradientWalk(_Walk):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.momentum = np.zeros_like(self.coef)

    def step(self, t: int) -> None:
        plan = self.plan
        gradient = self.rows.mean_gradient(self.coef, self.objective)
        noisy = self.mechanism.release(gradient, self.stream)
        # weights proportional to t: the momentum is a mean of all gradients so far
        self.momentum += 2 / (t + 2) * (noisy - self.momentum)
        q = plan.smoothing / math.sqrt(t + 1) + plan.curvature / (t + 2)
        target = plan.geometry.project(self.coef - self.momentum / q)
        self.coef = self.coef + self.step_size(t) * (target - self.coef)


def _check_support(feasible_set: Geometry | type[Geometry], form: str) -> None:
    """Raise unless the set has what the form of the solver asks of it."""
    kind = feasible_set if isinstance(feasible_set, type) else type(feasible_set)
    if form == "selection" and not kind.has_vertices:
        raise ValueError(f"solver='selection' needs a set with vertices, {kind.__name__} has none")
    if form == "gradient" and kind.project is Geometry.project:
        raise ValueError(f"solver='gradient' needs a set with `project`, {kind.__name__} has none")


# ------------------------------------------------- defaults: functions of public facts only


def _gradient_noise(problem: Problem, budget: PrivacyBudget, data_norm: float | None) -> float:
    """`gradient_noise` under zCDP."""
    return gradient_noise(problem, budget, data_norm or default_data_norm(problem), budget.rho)


def _selection_noise(problem: Problem, budget: PrivacyBudget) -> float:
    """Largest noise of a single selection in units of the gradient, for a clip of 1."""
    change = 2 * budget.record_factor / problem.n_samples
    if budget.is_pure:
        scale = change * problem.n_models / budget.epsilon
    else:
        scale = change * math.sqrt(problem.n_models / (8 * budget.rho))
    return scale * math.log(2 * problem.dimension)


def _gradient_geometry(
    problem: Problem, budget: PrivacyBudget, data_norm: float | None
) -> Geometry:
    """The declared set, or one whose radius falls as the noise grows."""
    kind = problem.feasible_set
    if isinstance(kind, Geometry):
        return kind
    task = problem.loss.task
    if _needs_unit_radius(problem):
        return kind(1.0)
    scale, largest = _GRADIENT_RADIUS[task]
    noise = _gradient_noise(problem, budget, data_norm)
    fading = min(1.0, (_NOISY[task] / noise) ** 1.5)
    return kind(min(largest, scale / math.sqrt(noise)) * fading)


def _needs_unit_radius(problem: Problem) -> bool:
    """A set away from the origin fixes the size of the model: convex combinations then."""
    return problem.loss.task == "regression" and not problem.feasible_set.contains_origin


def _selection_geometry(problem: Problem, budget: PrivacyBudget) -> Geometry:
    kind = problem.feasible_set
    if isinstance(kind, Geometry):
        return kind
    if _needs_unit_radius(problem):
        return kind(1.0)
    fading = min(1.0, _SELECTABLE / _selection_noise(problem, budget))
    return kind(_SELECTION_RADIUS[problem.loss.task] * fading)


def _gradient_iterations(problem: Problem) -> int:
    """More steps never hurt, as their noise averages out, but cost time."""
    affordable = int(8e7 / (problem.n_samples * problem.n_features))
    return min(200, max(affordable, 50 if problem.loss.task == "regression" else 16))


def _selection_iterations(problem: Problem, budget: PrivacyBudget) -> int:
    """More steps come closer to the optimum and add noise to each."""
    noise = _selection_noise(problem, budget)
    return min(200, max(4, round(noise ** (-0.5 if budget.is_pure else -0.75))))
