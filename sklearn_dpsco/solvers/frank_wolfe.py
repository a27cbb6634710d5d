r"""Full-batch noisy Frank-Wolfe methods.

Two forms share one loop and differ in what is released at each step.

``"selection"``
    On sets with vertices: the vertex that minimizes the linearized loss, by report-noisy-max
    (Talwar, Thakurta and Zhang 2015; BGM21 Algorithm 5). Its noise grows with log d. On wide
    sparse X its steps cost less than a pass over X (`sparse_walk`).
``"gradient"``
    The mean gradient with Gaussian noise. Everything after it is post-processing:
    momentum, which averages the noise of all past steps, and a linear minimization,
    smoothed according to the noise that is left. Its noise grows with the row norm,
    about sqrt(d) / 2.

Both step from w to (1 - eta_t) w + eta_t u_t, where u_t is the vertex or the minimizer,
and return the mean of the second half of the iterates, or, where a sparse model is asked for, the
last one without rare vertices. Where nothing is declared, neither radius nor clip, row norm or
step, and columns are few or n is large against them, so that a bet on a sparse model does not pay,
the default is no Frank-Wolfe method but the descent of `unit_descent`.
Where the noise is above a public threshold, another plan, ``"constant"``, spends all of the budget
on a private intercept and leaves the coefficients at the centre of the set.

The sensitivities are derived in doc/privacy, sections 2.1, 2.3, 2.7, 3.1 and 3.1b.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._checks import LARGEST
from .._progress import steps
from ..data.rows import Move, Terms
from ..geometry import Geometry, L1Ball, Vertex, Vertices, known_vertices, moved
from ..losses import Loss, bounded_clip, has_envelope, largest_constant
from ..mechanisms import Gaussian, Release, SelectVertex
from ..privacy.budget import Allowance, Composition, PrivacyBudget
from ..privacy.guarantee import Guarantee
from ..privacy.selections import has_optimum, selection_epsilon
from ..randomness.stream import RandomStream
from . import defaults, sensitivity
from .base import Plan, Problem, SolverData, SolverResult
from .batches import Records
from .defaults import FRANK_WOLFE, FrankWolfeDefaults
from .first_releases import FirstReleases, plan_constant, plan_first, plan_offset
from .learned_units import whitens
from .single_pass import (
    MOST_BATCHES,
    SINGLE_PASS_FORMS,
    SinglePassFacts,
    SinglePassPlan,
    plan_single_pass,
)
from .sparse_walk import (
    MOST_SPARSE_STEPS,
    SparseSchedule,
    mean_weights,
    run_sparse_walk,
    sparse_schedule,
)
from .unit_descent import (
    UnitDescentPlan,
    check_free,
    is_best,
    plan_unit_descent,
)

__all__ = ["FORMS", "FrankWolfe", "FrankWolfePlan"]

Array = NDArray[np.float64]


FORMS = ("selection", "gradient", *SINGLE_PASS_FORMS)


@dataclass(frozen=True)
class FrankWolfePlan(Plan):
    """Plan of `FrankWolfe`; see `Plan` for the common fields.

    Attributes
    ----------
    geometry : Geometry
        The feasible set with its radius.
    first : FirstReleases
        What is released before the descent.
    step : Gaussian, SelectVertex or None
        What releases each step.
    gradient_clip : float
        c: bound on abs(dl/dz).
    learning_rate : float or None
        A constant step eta in (0, 1], or None for eta_t = 2 / (t + 12).
    smoothing : float
        "gradient": u_t minimizes ``<v_t, u> + q_t / 2 norm(u - w_t)^2`` over the feasible
        set, ``q_t = smoothing / sqrt(t + 1) + curvature / (t + 2)``.
    curvature : float
    vertices : Vertices or None
        "selection": what is chosen among, and what the scores are computed from.
    l2_penalty : float
        Weight of norm(w)^2 / 2.
    min_selections : int
        From 2 on, the last iterate is the result, without the coefficients that fewer
        selections can make.
    """

    geometry: Geometry
    first: FirstReleases
    step: Gaussian | SelectVertex | None = None
    gradient_clip: float = 0.0
    learning_rate: float | None = None
    smoothing: float = 0.0
    curvature: float = 0.0
    vertices: Vertices | None = None
    l2_penalty: float = 0.0
    min_selections: int = 1

    @property
    def data_norm(self) -> float | None:
        """B, the bound on the l2 norm of a scaled row ("gradient"), or None."""
        return self.first.norm

    @property
    def bounded_set(self) -> Geometry:
        return self.geometry

    def run(self, data: SolverData, stream: RandomStream) -> SolverResult:
        """See `Plan.run`."""
        start = self.first.run(data, stream)
        solution = _descend(start.data.kept(), start.frame.offset, self, stream)
        return start.frame.result(_without_rare(solution, self), self.problem, self.max_iter)


@dataclass(frozen=True)
class FrankWolfe:
    """Settings of the solver; `None` leaves a value to the plan.

    Parameters
    ----------
    form : {"auto", "selection", "gradient", "spider", "tree", "rounds", "constant", \
"learned-units"}
    max_iter : int or None
    learning_rate : float or None
    gradient_clip : float or None
    data_norm : float or None
    l2_penalty : float
    n_restarts : int or None
        Of a single pass; None stands for ceil(log2 log2 n) with a penalty, else 1.
    min_selections : int
        See `FrankWolfePlan`; from 2 on, "auto" is "selection".
    """

    form: str = "auto"
    max_iter: int | None = None
    learning_rate: float | None = None
    gradient_clip: float | None = None
    data_norm: float | None = None
    l2_penalty: float = 0.0
    n_restarts: int | None = None
    min_selections: int = 1

    # ---------------------------------------------------------------- planning

    def check(
        self, loss: Loss, feasible_set: Geometry | type[Geometry], budget: PrivacyBudget
    ) -> None:
        """See `Solver.check`."""
        if not has_envelope(loss):
            raise ValueError(
                "the Frank-Wolfe solvers need a smooth loss, or a convex or weakly convex one "
                f"(`is_convex`, `weak_convexity`), which they smooth; got {loss!r}"
            )
        if self.n_restarts is not None and self.form not in SINGLE_PASS_FORMS:
            raise ValueError(
                "n_restarts is for the solvers that read a record once, "
                f"{', '.join(map(repr, SINGLE_PASS_FORMS))}, not for {self.form!r}"
            )
        if self.form == "spider" and self.max_iter is not None:
            raise ValueError(
                "solver='spider' makes a step for each record of a half: it needs max_iter='auto'"
            )
        if self.form in ("rounds", "tree") and (self.max_iter or 1) > MOST_BATCHES:
            raise ValueError(
                f"max_iter must be at most {MOST_BATCHES} for solver={self.form!r}, "
                f"got {self.max_iter}"
            )
        if self.form == "gradient" and budget.is_pure:
            raise ValueError(
                "solver='gradient' has no pure-DP form (delta=0); solver='selection' has one"
            )
        geometry = feasible_set(1.0) if isinstance(feasible_set, type) else feasible_set
        self._check_min_selections(geometry)
        form = self.form
        if form == "learned-units":
            if budget.is_pure:
                raise ValueError("solver='learned-units' has no pure-DP form (delta=0)")
            check_free(loss, nothing_declared=self._declares_nothing(feasible_set))
            return
        if form == "auto":  # pure DP with steps that were asked for can only be "selection"
            is_selection = budget.is_pure and self.max_iter is not None
            form = "selection" if is_selection or geometry.has_vertices else "gradient"
        _check_support(geometry, form)

    def _check_min_selections(self, geometry: Geometry) -> None:
        if self.min_selections == 1:
            return
        if self.form not in ("auto", "selection"):
            raise ValueError(
                f"min_selections={self.min_selections} is for solver='selection', "
                f"not for {self.form!r}"
            )
        if not isinstance(geometry, L1Ball):  # other sets may not hold what is left
            raise ValueError(
                f"min_selections={self.min_selections} needs feasible_set='l1', got "
                f"{type(geometry).__name__}"
            )

    def plan(
        self, problem: Problem, budget: PrivacyBudget
    ) -> FrankWolfePlan | SinglePassPlan | UnitDescentPlan:
        """Everything that a run does, from public facts alone; see `Solver.plan`."""
        self.check(problem.loss, problem.feasible_set, budget)
        facts = self._facts(problem, budget)
        form = self._choose_form(facts)
        if form == "learned-units":
            return plan_unit_descent(problem, budget, self.max_iter)
        _check_support(facts.selection_geometry, form)
        if form in SINGLE_PASS_FORMS:
            return self._plan_single_pass(facts)
        plans = {
            "constant": self._plan_constant,
            "selection": self._plan_selection,
            "gradient": self._plan_gradient,
        }
        return plans[form](facts)

    def _declares_nothing(self, feasible_set: Geometry | type[Geometry]) -> bool:
        """Whether all but form and steps is left to the plan, on the l1 ball."""
        return self == FrankWolfe(self.form, self.max_iter) and feasible_set is L1Ball

    def _facts(self, problem: Problem, budget: PrivacyBudget) -> _Facts:
        norm = self.data_norm or defaults.data_norm(problem)
        return _Facts(problem, budget, norm, FRANK_WOLFE[problem.loss.task])

    def _choose_form(self, facts: _Facts) -> str:
        if self.form != "auto":
            return self.form
        if self.min_selections > 1:
            return "selection"
        if not _has_projection(type(facts.selection_geometry)):
            return "selection"
        rules, selection = facts.rules, facts.selection_noise
        if facts.budget.is_pure:
            is_hopeless = selection > rules.selectable and self.max_iter is None
            return "constant" if is_hopeless else "selection"
        gradient = facts.gradient_noise
        drowning = gradient > max(rules.noisy, rules.sparsity_bet * selection)
        may_select = facts.problem.feasible_set.has_vertices
        if drowning and selection < rules.selectable and may_select:
            return "selection"
        if self._is_dense(facts):
            return "learned-units"
        is_hopeless = gradient > rules.hopeless and self.max_iter is None
        return "constant" if is_hopeless else "gradient"

    def _is_dense(self, facts: _Facts) -> bool:
        """Whether the descent in learned units is better than the bet on a sparse model."""
        problem, budget = facts.problem, facts.budget
        if self.max_iter is not None or not self._declares_nothing(problem.feasible_set):
            return False
        is_narrow = problem.n_features < facts.rules.wide
        return is_best(problem, budget) and (is_narrow or whitens(problem, budget))

    def _plan_constant(self, facts: _Facts) -> FrankWolfePlan:
        problem, budget = facts.problem, facts.budget
        allowance = budget.gaussian_allowance
        target, steps = plan_constant(problem, budget, allowance)
        first = FirstReleases(problem, target=target, target_steps=steps)
        return self._finish(facts, "constant", allowance.kind, facts.selection_geometry, first)

    def _plan_selection(self, facts: _Facts) -> FrankWolfePlan:
        problem, budget, geometry = facts.problem, facts.budget, facts.selection_geometry
        vertices = known_vertices(geometry.vertices(problem.size), problem.size)
        clip = self._clip(facts, vertices.l1_norm, facts.selection_noise)
        max_iter = self.max_iter or facts.selection_steps
        if self.min_selections > max_iter:
            raise ValueError(
                f"min_selections must be at most the number of steps, {max_iter}, "
                f"got {self.min_selections}"
            )
        facts = facts.smoothed(clip, max_iter)
        change = sensitivity.vertex_scores(problem, budget, vertices, clip, self.l2_penalty)
        composition, first, step = _best_selections(problem, budget, change, max_iter)
        return self._finish(
            facts, "selection", composition, geometry, first,
            max_iter=max_iter, step=step, gradient_clip=clip, vertices=vertices,
        )  # fmt: skip

    def _plan_single_pass(self, facts: _Facts) -> SinglePassPlan:
        geometry, size = facts.selection_geometry, facts.problem.size
        vertices = known_vertices(geometry.vertices(size), size)
        clip = self._clip(facts, vertices.l1_norm, facts.selection_noise)
        return plan_single_pass(
            SinglePassFacts(
                self.form, facts.problem, facts.budget, geometry, vertices, clip,
                self.l2_penalty, self.max_iter, self.learning_rate, self.n_restarts,
            )
        )  # fmt: skip

    def _plan_gradient(self, facts: _Facts) -> FrankWolfePlan:
        problem, budget, geometry = facts.problem, facts.budget, facts.gradient_geometry
        clip = self._clip(facts, geometry.radius, facts.gradient_noise)
        max_iter = self.max_iter or defaults.affordable_steps(problem, facts.rules)
        facts = facts.smoothed(clip, max_iter)
        problem, allowance = facts.problem, budget.gaussian_allowance
        first = plan_first(
            problem, budget, facts.norm, allowance, may_shrink=geometry.contains_origin
        )
        change = clip * sensitivity.row_mean(problem, budget, facts.norm)
        left = allowance.share(first.left)
        step = Gaussian.calibrate(change, left, max_iter, problem.size)
        # the momentum's noise at step t has standard deviation scale sqrt(4 / (3 (t + 1)))
        # per coordinate; its l2 norm against the radius sets the smoothing
        noise = step.scale * math.sqrt(4 * problem.size / 3)
        return self._finish(
            facts, "gradient", allowance.kind, geometry, first,
            max_iter=max_iter, step=step, gradient_clip=clip,
            smoothing=noise / (facts.rules.smoothing * geometry.radius),
            curvature=facts.rules.curvature * problem.loss.smoothness + self.l2_penalty,
        )  # fmt: skip

    def _finish(
        self,
        facts: _Facts,
        form: str,
        composition: Composition,
        geometry: Geometry,
        first: FirstReleases,
        *,
        max_iter: int = 0,
        **fields: Any,
    ) -> FrankWolfePlan:
        """The plan, whose further `fields` are those of `FrankWolfePlan`."""
        releases, step = first.releases, fields.get("step")
        if step is not None:
            name = "vertex" if step.selects else "mean gradient"
            releases = (*releases, Release(name, step, max_iter))
        problem, budget = facts.problem, facts.budget
        guarantee = Guarantee.of(budget, releases, composition)
        fields |= {"geometry": geometry, "first": first, "learning_rate": self.learning_rate}
        fields |= {"l2_penalty": self.l2_penalty, "min_selections": self.min_selections}
        return FrankWolfePlan(problem, budget, form, max_iter, guarantee, **fields)

    def _clip(self, facts: _Facts, reach: float, noise: float) -> float:
        """The declared or default clip, or the loss's own bound where that is smaller.

        `reach` bounds the coefficients' predictions for rows in the box.
        """
        rules, loss, clip = facts.rules, facts.problem.loss, self.gradient_clip
        if clip is None:
            # that of its own derivative for a loss with a kink: a smaller one moves the minimizer
            clip = math.inf
            if math.isfinite(loss.smoothness):
                small = rules.smallest_clip
                clip = defaults.growing_clip(facts.problem, small, noise, rules.accurate)
        clip = bounded_clip(loss, clip, reach + largest_constant(loss))
        if clip > LARGEST:
            raise ValueError(
                "gradient_clip must be a number for a loss whose derivative is not bounded by "
                f"{LARGEST:g}; got 'auto' for {loss!r}"
            )
        return clip


class _Selections(NamedTuple):
    """The mechanisms of a plan by selection, and how their uses compose."""

    composition: Composition
    first: FirstReleases
    step: SelectVertex


def _best_selections(
    problem: Problem, budget: PrivacyBudget, change: float, max_iter: int
) -> _Selections:
    """The analysis with the least noise, of those that the budget may use."""

    def composed(budget: PrivacyBudget, whole: Allowance) -> _Selections:
        first = plan_offset(problem, budget, whole)
        step = SelectVertex.calibrate(change, whole.share(first.left), max_iter)
        return _Selections(whole.kind, first, step)

    basic = composed(budget, budget.allowance)
    if budget.is_pure or budget.currency == "zcdp":
        return basic
    if budget.currency == "gdp":
        return composed(budget, budget.mixed_allowance)
    pure = replace(budget, delta=0.0)
    found = [basic, composed(pure, pure.allowance)]
    if has_optimum(budget.epsilon, budget.delta, max_iter):
        gaussian = sum(release.cost("gdp") for release in basic.first.releases)
        # of all rows of a user
        mu = budget.rows_per_user * math.sqrt(2 * gaussian)
        eta = selection_epsilon(float(budget.epsilon), float(budget.delta), max_iter, mu)
        if eta > 0:
            step = SelectVertex.of_range(change, eta / budget.rows_per_user, budget.precision)
            found.append(_Selections("adaptive-range", basic.first, step))
    else:
        found.append(composed(budget, budget.mixed_allowance))

    def noise(selections: _Selections) -> float:
        is_gumbel = selections.step.noise == "gumbel"
        return selections.step.scale * (1.0 if is_gumbel else defaults.PERMUTE_AND_FLIP)

    return min(found, key=noise)


def _check_support(geometry: Geometry, form: str) -> None:
    """Raise unless the set has the methods that the form of the solver needs."""
    kind = type(geometry)
    if form not in ("gradient", "constant") and not kind.has_vertices:
        raise ValueError(f"solver={form!r} needs a set with vertices, {kind.__name__} has none")
    if form == "gradient" and not _has_projection(kind):
        raise ValueError(f"solver='gradient' needs a set with `project`, {kind.__name__} has none")


def _has_projection(kind: type[Geometry]) -> bool:
    return kind.project is not Geometry.project


@dataclass(frozen=True)
class _Facts:
    """Public facts that the plans of all forms use, and numbers that follow from them."""

    problem: Problem
    budget: PrivacyBudget
    norm: float
    rules: FrankWolfeDefaults

    def smoothed(self, clip: float, n_steps: int) -> _Facts:
        """The same facts, with the envelope of a loss that is not smooth."""
        loss = defaults.smoothed_for(self.problem.loss, clip, n_steps)
        return replace(self, problem=replace(self.problem, loss=loss))

    @property
    def gradient_noise(self) -> float:
        """`defaults.gradient_noise` under zCDP."""
        return defaults.gradient_noise(self.problem, self.budget, self.norm, self.budget.rho)

    @property
    def selection_noise(self) -> float:
        """Largest noise of one selection with the whole budget, for a clip of 1."""
        problem, budget = self.problem, self.budget
        change = 2 * budget.record_factor / problem.n_samples
        if budget.is_pure:
            scale = change / budget.allowance.amount
        else:
            scale = change / math.sqrt(8 * budget.rho)
        return scale * math.log(2 * problem.size)

    @property
    def gradient_geometry(self) -> Geometry:
        """The declared set, or one whose radius falls as the noise grows."""
        rules, noise = self.rules, self.gradient_noise
        fading = min(1.0, (rules.noisy / noise) ** 1.5)
        radius = min(rules.largest_radius, rules.gradient_radius / math.sqrt(noise)) * fading
        return defaults.sized_set(self.problem, radius * self.problem.n_outputs)

    @property
    def selection_geometry(self) -> Geometry:
        """The same, for selections."""
        fading = min(1.0, self.rules.selectable / self.selection_noise)
        radius = self.rules.selection_radius * fading * self.problem.n_outputs
        return defaults.sized_set(self.problem, radius)

    @property
    def selection_steps(self) -> int:
        """More steps come closer to the optimum and add noise to each."""
        power = -0.5 if self.budget.is_pure else -0.75
        return min(self.rules.most_steps, max(4, round(self.selection_noise**power)))


# -------------------------------------------------------------------------------- running


def _descend(data: SolverData, offset: Any, plan: FrankWolfePlan, stream: RandomStream) -> Array:
    """Mean of the second half of the iterates, or the last one, shape (size,)."""
    if plan.step is None:
        return plan.geometry.center(plan.problem.size)
    records = Records(data, Terms(offset, plan.problem.loss, plan.gradient_clip), plan.problem)
    first = plan.max_iter // 2 if plan.min_selections == 1 else plan.max_iter - 1
    schedule = _sparse_schedule(records, plan)
    if schedule is not None:
        objective = data.objective(records.terms)
        return run_sparse_walk(data.rows, objective, plan, schedule, first, stream)
    kind = _VertexWalk if plan.step.selects else _GradientWalk
    walk: _Walk = kind(records, plan, stream)
    total = np.zeros(plan.problem.size)
    for t in steps(range(plan.max_iter)):
        walk.step(t)
        if t >= first:
            total += walk.coef
    return total / (plan.max_iter - first)


def _sparse_schedule(records: Records, plan: FrankWolfePlan) -> SparseSchedule | None:
    """Of a walk by `sparse_walk` in place of `_VertexWalk`, if that pays."""
    if plan.vertices is None or plan.l2_penalty > 0 or plan.max_iter > MOST_SPARSE_STEPS:
        return None
    data = records.data
    if not data.is_local:  # whose sums stay in this process
        return None
    objective = data.objective(records.terms)
    return sparse_schedule(data.rows, objective, plan.vertices, _step_sizes(plan))


def _step_size(plan: FrankWolfePlan, t: Any) -> Any:
    # the usual step 2 / (t + 2) would make the first iterate a vertex
    return 2 / (t + 12) if plan.learning_rate is None else plan.learning_rate


def _step_sizes(plan: FrankWolfePlan) -> Array:
    """Of all steps, shape (max_iter,)."""
    return np.broadcast_to(_step_size(plan, np.arange(plan.max_iter)), plan.max_iter)


class _Walk:
    """The state of one run: the coefficients, and how to take a step."""

    def __init__(self, records: Records, plan: FrankWolfePlan, stream: RandomStream) -> None:
        self.records, self.plan, self.stream = records, plan, stream
        self.mechanism: Any = plan.step
        self.coef = np.array(plan.geometry.center(plan.problem.size), dtype=np.float64)

    def step(self, t: int) -> None:
        raise NotImplementedError


class _VertexWalk(_Walk):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.products = _Products(self.records, self.coef) if self.records.data.is_local else None

    def step(self, t: int) -> None:
        vertices = self.plan.vertices
        assert vertices is not None
        source: Any = self.records if self.products is None else self.products
        scores = vertices.scores(source.mean_gradient(self.coef) + self.plan.l2_penalty * self.coef)
        vertex = vertices.vertex(self.mechanism.release(scores, self.stream))
        eta = _step_size(self.plan, t)
        self.coef = moved(self.coef, vertex, eta)
        if self.products is not None:
            self.products.follow(self.coef, vertex, eta)


class _Products:
    """Products <[x_i, 1], coef> of records in this process, kept up to date by a column a step."""

    def __init__(self, records: Records, coef: Array) -> None:
        self.rows, self.problem = records.data.rows, records.problem
        self.objective = records.data.objective(records.terms)
        self._start(coef)

    def _start(self, coef: Array) -> None:
        self.product = self.rows.product(self.problem.matrix(coef))
        self.move = Move(1.0, 0, 0.0)

    def mean_gradient(self, coef: Array) -> Array:
        """As `Records.mean_gradient`, at the point that was last followed to."""
        total = self.rows.gradient_sum_after_move(self.product, self.move, self.objective)
        return total.ravel() / self.rows.n_samples

    def follow(self, coef: Array, vertex: Any, eta: float) -> None:
        """Note a step to `coef`, towards a vertex."""
        if isinstance(vertex, Vertex):
            self.move = Move(1 - eta, vertex.coordinate, eta * vertex.value)
        else:
            self._start(coef)


class _GradientWalk(_Walk):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.momentum = np.zeros_like(self.coef)

    def step(self, t: int) -> None:
        plan = self.plan
        noisy = self.mechanism.release(self.records.mean_gradient(self.coef), self.stream)
        noisy = noisy + plan.l2_penalty * self.coef
        # weights proportional to t: the momentum is a mean of all gradients so far
        self.momentum += 2 / (t + 2) * (noisy - self.momentum)
        q = plan.smoothing / math.sqrt(t + 1) + plan.curvature / (t + 2)
        target = plan.geometry.project(self.coef - self.momentum / q)
        self.coef = self.coef + _step_size(self.plan, t) * (target - self.coef)


def _without_rare(coef: Array, plan: FrankWolfePlan) -> Array:
    """The last iterate without the coefficients that fewer than `min_selections` can make.

    The share of each selection in it is public, so that this is post-processing.
    """
    if plan.min_selections == 1:
        return coef
    shares = np.sort(mean_weights(_step_sizes(plan), plan.max_iter - 1)[1])[::-1]
    largest = plan.geometry.radius * float(shares[: plan.min_selections - 1].sum())
    # the iterates' own rounding
    is_rare = np.abs(coef) <= largest * (1 + plan.max_iter * 2.0**-50)
    is_rare[plan.problem.n_features * plan.problem.n_outputs :] = False  # intercepts
    return np.where(is_rare, 0.0, coef)
