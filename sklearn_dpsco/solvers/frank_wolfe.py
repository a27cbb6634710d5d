r"""Full-batch noisy Frank-Wolfe methods.

Each step of "selection" releases the vertex that minimizes the linearized loss, by
report-noisy-max; on wide sparse X it costs less than a pass over X (`sparse_walk`). "gradient"
releases the mean gradient; everything after it is post-processing: momentum, which averages the
noise of past steps, and a linear minimization, smoothed according to the noise that is left.

Both step from w to (1 - eta_t) w + eta_t u_t, where u_t is the vertex or the minimizer, and return
the mean of the second half of the iterates, or, where a sparse model is asked for, the last one
without rare vertices. Where the noise is above a public threshold, another plan, "constant", spends
all of the budget on an intercept.

The sensitivities are derived in doc/privacy, sections 2.1, 2.3, 2.7, 3.1 and 3.1b.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from .._checks import LARGEST, auto_or, check_count, check_size
from .._progress import steps
from .._types import Array, Auto
from ..data.rows import UNIT_ROUNDOFF, Move, SolverData, Terms, gamma, summation_error
from ..geometry import AnySet, Geometry, L1Ball, Vertex, Vertices, known_vertices, moved
from ..losses import Logistic, Loss, bounded_clip
from ..mechanisms import Gaussian, Release, SelectVertex
from ..privacy.budget import ROUNDING, Allowance, Composition, PrivacyBudget
from ..privacy.guarantee import Guarantee
from ..privacy.selections import has_optimum, selection_epsilon
from ..randomness.stream import RandomStream
from . import defaults, statistics
from .base import MOST_STEPS, Plan, Problem, Solver, SolverResult
from .defaults import FRANK_WOLFE
from .first_releases import (
    Box,
    FirstReleases,
    SetPlan,
    may_shrink,
    plan_constant,
    plan_first,
    plan_offset,
)
from .records import Records
from .sparse_walk import MOST_SPARSE_STEPS, SparseWalk, mean_weights, walk_pays


@dataclass(frozen=True)
class FrankWolfePlan(SetPlan):
    """Plan of `FrankWolfe`; see `Plan` and `SetPlan` for the common fields.

    Attributes
    ----------
    step : Gaussian, SelectVertex or None
        What releases each step.
    learning_rate : float or None
        A constant step eta in (0, 1], or None for eta_t = 2 / (t + 12).
    smoothing : float
        "gradient": u_t minimizes ``<v_t, u> + q_t / 2 norm(u - w_t)^2`` over the feasible
        set, ``q_t = smoothing / sqrt(t + 1) + curvature / (t + 2)``.
    curvature : float
    newest : float
        "gradient": weight of the newest gradient in the momentum v_t, at least; 2 / (t + 2) makes
        that a mean of all.
    vertices : Vertices or None
        "selection": what is chosen among, and what the scores are computed from.
    min_selections : int
        From 2 on, the last iterate is the result, without the coefficients that fewer
        selections can make.
    fades_by_frequency : bool
        "gradient": whether the set is smaller than `geometry` where one of two classes is rare.
    """

    step: Gaussian | SelectVertex | None = None
    learning_rate: float | None = None
    smoothing: float = 0.0
    curvature: float = 0.0
    newest: float = 0.0
    vertices: Vertices | None = None
    min_selections: int = 1
    fades_by_frequency: bool = False

    def run(self, data: SolverData, stream: RandomStream) -> SolverResult:
        """See `Plan.run`."""
        data, frame = self.first.run(data, stream)
        data, plan, problem = data.kept(), self, self.problem
        if self.fades_by_frequency:
            # Few records tell of a rare one of two classes: the noise that decides on the radius is
            # that of a gradient over the variance of the labels, whose root the radius is
            # proportional to. It follows from the released frequency, and no sensitivity from it.
            part = math.sqrt(max(frame.balance, 1e-6))
            geometry = replace(self.geometry, radius=self.geometry.radius * part)
            plan = replace(self, geometry=geometry, smoothing=self.smoothing / part)
        coef = np.array(plan.geometry.center(problem.size), dtype=np.float64)
        terms = Terms(frame.offset, problem.loss, self.gradient_clip)
        # the mean of the second half of the iterates, or the last one
        first = self.max_iter // 2 if self.min_selections == 1 else self.max_iter - 1
        rates = None  # where it pays, of a walk over sparse X, whose sums stay in this process
        is_free = self.l2_penalty == 0 and self.max_iter <= MOST_SPARSE_STEPS
        if self.vertices is not None and is_free and data.is_local:
            rates = _step_size(self, np.arange(self.max_iter))
            rates = rates if walk_pays(data, terms, self.vertices, rates) else None
        if rates is not None:
            coef = SparseWalk(data, terms, self, rates, coef).mean(first, stream)
        elif self.step is not None:
            kept, records = statistics.AveragedNoise(), Records(data, terms, problem)
            if self.step.selects:
                points = _vertex_iterates(records, plan, coef, stream)
            else:
                points = _gradient_iterates(records, plan, coef, stream, kept)
            total: Any = sum(itertools.islice(points, first, None))
            coef = total / (self.max_iter - first)
            if not self.step.selects and may_shrink(self.geometry, problem.loss):
                coef = kept.shrink(coef, problem)
        return frame.result(_without_rare(coef, self), problem, self.max_iter)


class FrankWolfe(Solver):
    """The solver that suits loss, set, sizes and budget: `Selection`, `Gradient`, or a constant.

    Selections have noise that grows with the logarithm of the number of features, gradients one
    that grows with the norm of a row: the former are a bet on a sparse model, and taken where
    gradients drown in their noise. Where both do, the whole budget buys an intercept, and the
    coefficients stay at the centre of the feasible set. Pure DP (delta=0) has selections only.
    """

    form = "auto"

    # what not every form has
    learning_rate: Any = None
    l2_penalty: Any = 0.0
    min_selections: Any = 1

    # a step is a weight
    checks = {
        "learning_rate": partial(auto_or, check_size, high=1),
        "min_selections": partial(check_count, high=MOST_STEPS),
    }

    # ---------------------------------------------------------------- planning

    def _check(self, loss: Loss, feasible_set: AnySet, budget: PrivacyBudget, units: str) -> None:
        if not math.isfinite(min(loss.smoothness, loss.weak_convexity)):
            raise ValueError(
                "the Frank-Wolfe solvers need a smooth loss, or a convex or weakly convex one "
                f"(`is_convex`, `weak_convexity`), which they smooth; got {loss!r}"
            )
        form = self.form
        geometry = feasible_set(1.0) if isinstance(feasible_set, type) else feasible_set
        if form == "gradient" and budget.is_pure:
            raise ValueError(
                "solver='gradient' has no pure-DP form (delta=0); solver='selection' has one"
            )
        if self.min_selections > 1 and not isinstance(geometry, L1Ball):
            raise ValueError(  # other sets may not hold what is left
                f"min_selections={self.min_selections} needs feasible_set='l1', got "
                f"{type(geometry).__name__}"
            )
        self._check_units(budget, units)
        if form == "auto" and budget.is_pure and not geometry.has_vertices:
            raise ValueError(
                "delta=0 has selections of vertices alone, of which "
                f"{type(geometry).__name__} has none: take feasible_set='l1', or delta='auto'"
            )
        if form == "auto":
            form = "selection" if geometry.has_vertices else "gradient"
        kind = type(geometry)
        if form != "gradient" and not kind.has_vertices:
            raise ValueError(f"solver={form!r} needs a set with vertices, {kind.__name__} has none")
        if form == "gradient" and kind.project is Geometry.project:
            raise ValueError(
                f"solver='gradient' needs a set with `project`, {kind.__name__} has none"
            )

    def _plan(self, problem: Problem, budget: PrivacyBudget) -> Plan:
        solver = self
        if self.form == "auto":
            solver = self._chosen(Box.of(self, problem, budget, auto=False)).resolved()
        # if units are "auto", gradients learn them where that pays
        return solver._plan_form(Box.of(solver, problem, budget, auto=solver.form == "gradient"))

    def _chosen(self, box: Box) -> FrankWolfe:
        """The solver that sizes and budget favour; this one stands for a constant."""
        problem, budget, rules = box.problem, box.budget, FRANK_WOLFE[box.problem.loss.task]
        selection, geometry = selection_facts(problem, budget)
        if type(geometry).project is Geometry.project:
            return Selection()
        if budget.is_pure:
            return self if selection > rules.selectable else Selection()
        norm = defaults.data_norm(problem)
        gradient = defaults.gradient_noise(problem, budget, norm, budget.rho)
        drowning = gradient > max(rules.noisy, rules.sparsity_bet * selection)
        if drowning and selection < rules.selectable and geometry.has_vertices:
            return Selection()
        return self if gradient > rules.hopeless else Gradient()

    def _plan_form(self, box: Box) -> Plan:
        """The plan of a constant."""
        problem, budget, allowance = box.problem, box.budget, box.budget.gaussian_allowance
        fields: dict[str, Any] = {"first": plan_constant(problem, budget, allowance)}
        fields["geometry"] = selection_facts(problem, budget)[1]
        return self._finish(problem, budget, allowance.kind, gradient_clip=0.0, **fields)

    def _finish(
        self,
        problem: Problem,
        budget: PrivacyBudget,
        composition: Composition,
        max_iter: int = 0,
        **fields: Any,
    ) -> FrankWolfePlan:
        """The plan, whose further `fields` are those of `FrankWolfePlan`."""
        releases, step = fields["first"].releases, fields.get("step")
        if step is not None:
            name = "vertex" if step.selects else "mean gradient"
            releases = (*releases, Release(name, step, max_iter))
        guarantee = Guarantee.of(budget, releases, composition)
        fields |= {"learning_rate": self.learning_rate, "l2_penalty": self.l2_penalty}
        fields |= {"min_selections": self.min_selections, "guarantee": guarantee}
        form = "constant" if step is None else self.form
        return FrankWolfePlan(problem, budget, form, max_iter, **fields)

    def _clip(self: Any, problem: Problem, reach: float, noise: float) -> float:
        """The declared or default clip, or the loss's own bound for predictions up to `reach`."""
        rules, loss, clip = FRANK_WOLFE[problem.loss.task], problem.loss, self.gradient_clip
        if clip is None:
            clip = defaults.growing_clip(problem, rules.smallest_clip, noise, rules.accurate)
            # that of its own derivative for a loss with a kink: a smaller one moves the minimizer
            clip = clip if math.isfinite(loss.smoothness) else math.inf
        clip = bounded_clip(loss, clip, reach)
        if clip > LARGEST:
            raise ValueError(
                "gradient_clip must be a number for a loss whose derivative is not bounded by "
                f"{LARGEST:g}; got 'auto' for {loss!r}"
            )
        return clip


@dataclass(kw_only=True, repr=False, eq=False)
class Selection(FrankWolfe):
    """Frank-Wolfe that selects vertices privately (Talwar, Thakurta, Zhang 2015; BGM21, 5).

    Each step releases the vertex that minimizes the linearized loss, by report-noisy-max. At most
    `max_iter` coefficients of all outputs together are not 0. Possible with delta=0.

    Parameters
    ----------
    max_iter : "auto" or int in [1, 1e9], default="auto"
        Number of steps T, each of which costs a part of the budget.
    min_selections : int in [1, 1e9], default=1
        From 2 on, the model is sparser: a coefficient that is not larger than one selection fewer
        can make it is 0, and the model is the last iterate instead of the mean of the second half.
        With 2, hardly any column is left that the noise alone selected, since among many vertices
        it selects few twice. Columns of small effect go, too; where steps are few or epsilon is
        small, all may go, and predictions be worse. With ``feasible_set="l1"`` only. At most the
        number of steps.
    learning_rate : "auto" or float in [1e-50, 1], default="auto"
        Step eta of (1 - eta) w + eta u; "auto" is 2 / (t + 12) at step t = 0, 1, ...
    gradient_clip : "auto" or float in [1e-50, 1e50], default="auto"
        Bound c on the absolute derivative of the loss in the raw prediction, in scaled units;
        derivatives beyond it are clipped. Noise is proportional to c. "auto" is 0.15 in regression
        and 0.5 in classification where the noise is large, and rises to 1 as it vanishes, times
        sqrt(2) for several classes, sqrt(K) for K targets; the derivative's own bound for a loss
        with a kink. A c above the largest derivative that the loss can have for a model of the
        feasible set is lowered to it.
    l2_penalty : float in [0, 1e50], default=0.0
        Weight of half the squared l2 norm of the scaled coefficients, intercept's correction
        included.

    Examples
    --------
    >>> from sklearn_dpsco import DPLassoFW
    >>> from sklearn_dpsco.solvers import Selection
    >>> model = DPLassoFW(solver=Selection(max_iter=30), bounds_X=(0, 1), bounds_y=(0, 1))
    >>> model.plan(n_samples=10_000, n_features=500).max_iter
    30
    """

    form = "selection"

    max_iter: int | Auto = "auto"
    min_selections: int = 1
    learning_rate: float | Auto = "auto"
    gradient_clip: float | Auto = "auto"
    l2_penalty: float = 0.0

    def _plan_form(self: Any, box: Box) -> Plan:
        problem, budget, rules = box.problem, box.budget, FRANK_WOLFE[box.problem.loss.task]
        noise, geometry = selection_facts(problem, budget)
        vertices = known_vertices(geometry.vertices(problem.size), problem.size)
        clip = self._clip(problem, vertices.l1_norm, noise)
        # more steps come closer to the optimum and add noise to each
        power = -0.5 if budget.is_pure else -0.75
        max_iter = self.max_iter or min(rules.most_steps, max(4, round(noise**power)))
        if self.min_selections > max_iter:
            raise ValueError(
                f"min_selections must be at most the number of steps, {max_iter}, "
                f"got {self.min_selections}"
            )
        change = vertex_scores(problem, budget, vertices, clip, self.l2_penalty)
        composition, first, step = _best_selections(box, change, max_iter)
        fields = {"geometry": geometry, "first": first, "step": step, "vertices": vertices}
        problem = defaults.smoothed_for(problem, clip, max_iter)
        return self._finish(problem, budget, composition, max_iter, gradient_clip=clip, **fields)


@dataclass(kw_only=True, repr=False, eq=False)
class Gradient(FrankWolfe):
    """Frank-Wolfe on noisy mean gradients, averaged by momentum.

    Everything after the release is post-processing, so that sets without vertices will do, which
    have a projection. Its noise grows with the norm of a row, about sqrt(n_features) / 2. In balls,
    slopes are shrunk by what of it is left in the mean of the points.

    Parameters
    ----------
    max_iter : "auto" or int in [1, 1e9], default="auto"
        Number of steps, each of which costs a part of the budget.
    learning_rate : "auto" or float in [1e-50, 1], default="auto"
        As in `Selection`.
    gradient_clip : "auto" or float in [1e-50, 1e50], default="auto"
        As in `Selection`.
    data_norm : "auto" or float in [1e-50, 1e50], default="auto"
        Bound B on the l2 norm of a scaled row with the intercept's 1, as in `NoisyMD`.
    l2_penalty : float in [0, 1e50], default=0.0
        As in `Selection`.
    """

    form = "gradient"

    max_iter: int | Auto = "auto"
    learning_rate: float | Auto = "auto"
    gradient_clip: float | Auto = "auto"
    data_norm: float | Auto = "auto"
    l2_penalty: float = 0.0

    def _plan_form(self: Any, box: Box) -> Plan:
        problem, budget, rules = box.problem, box.budget, FRANK_WOLFE[box.problem.loss.task]
        norm = self.data_norm or defaults.data_norm(problem)
        noise = defaults.gradient_noise(problem, budget, norm, budget.rho)
        # Of a set that is not declared, the radius falls as the noise grows, which is that of all
        # outputs together: each class of many would else have slopes that are mostly noise. (That
        # of many columns hardly adds up in predictions.)
        of_all = math.sqrt(problem.n_outputs) * min(1.0, rules.few_columns / problem.n_features)
        joint = noise * max(1.0, of_all * problem.joint_unit)
        fading = min(1.0, (rules.noisy / joint) ** 1.5)
        radius = rules.gradient_radius / math.sqrt(joint)
        if problem.loss.task == "classification":
            radius *= (problem.n_features / 16) ** rules.widening
        radius = min(rules.largest_radius, radius) * fading
        geometry = defaults.sized_set(problem, radius * problem.n_outputs)
        clip = self._clip(problem, geometry.radius, noise)
        is_kinked = problem.loss.smoothness == math.inf and noise < rules.kinked_noise
        times = rules.kinked if is_kinked else 1
        max_iter = self.max_iter or times * defaults.affordable_steps(problem, rules)
        problem = defaults.smoothed_for(problem, clip, max_iter)
        plan = partial(plan_first, norm=norm, may_shrink=geometry.contains_origin)
        first = box.first(budget, box.allowance, plan)
        change = clip * statistics.row_mean(problem, budget, norm)
        step = Gaussian.calibrate(change, box.allowance.share(first.left), max_iter, problem.size)
        # the noise at step t of a momentum of all gradients has a standard deviation of
        # scale sqrt(4 / (3 (t + 1))) per coordinate; its l2 norm against the radius sets the
        # smoothing
        left_over = step.scale * math.sqrt(4 * problem.size / 3)
        smoothing = left_over / (rules.smoothing * geometry.radius)
        curvature = rules.curvature * problem.loss.smoothness + self.l2_penalty
        fields = {"geometry": geometry, "first": first, "step": step, "gradient_clip": clip}
        is_free = isinstance(problem.feasible_set, type) and problem.fit_intercept
        is_binary = type(problem.base_loss) is Logistic and problem.n_outputs == 1
        fields |= {"smoothing": smoothing, "curvature": curvature, "newest": rules.newest}
        fields |= {"fades_by_frequency": is_free and is_binary and box.is_learned}
        return self._finish(problem, budget, box.allowance.kind, max_iter, **fields)


_Selections = tuple[Composition, FirstReleases, SelectVertex]


def _best_selections(box: Box, change: float, max_iter: int) -> _Selections:
    """What is released with the least noise, and the analysis, of those that the budget may use."""
    budget = box.budget

    def composed(budget: PrivacyBudget, whole: Allowance) -> _Selections:
        first = box.first(budget, whole, plan_offset)
        step = SelectVertex.calibrate(change, whole.share(first.left), max_iter)
        return whole.kind, first, step

    if box.is_learned:
        return composed(budget, box.allowance)
    basic = composed(budget, budget.allowance)
    if budget.is_pure or budget.currency == "zcdp":
        return basic
    if budget.currency == "gdp":
        return composed(budget, budget.mixed_allowance)
    pure = replace(budget, delta=0.0)
    found = [basic, composed(pure, pure.allowance)]
    if has_optimum(budget.epsilon, budget.delta, max_iter):
        first = basic[1]
        # of all rows of a user
        gaussian = sum(release.cost("gdp") for release in first.releases)
        mu = budget.rows_per_user * math.sqrt(2 * gaussian)
        eta = selection_epsilon(budget.epsilon, budget.delta, max_iter, mu)
        if eta > 0:
            scale = change / (eta / budget.rows_per_user) * ROUNDING
            step = SelectVertex(change, scale, "gumbel", budget.precision)
            found.append(("adaptive-range", first, step))
    else:
        found.append(composed(budget, budget.mixed_allowance))
    errors = {"gumbel": 1.0, "exponential": defaults.PERMUTE_AND_FLIP}
    return min(found, key=lambda selections: selections[2].scale * errors[selections[2].noise])


def selection_facts(problem: Problem, budget: PrivacyBudget) -> tuple[float, Geometry]:
    """Largest noise of one selection with the whole budget, for a clip of 1, and the feasible set.

    The declared one, or one whose radius falls as that noise grows.
    """
    rules, change = FRANK_WOLFE[problem.loss.task], 2 * budget.record_factor / problem.n_samples
    per_change = budget.allowance.amount if budget.is_pure else math.sqrt(8 * budget.rho)
    noise = change / per_change * math.log(2 * problem.size)
    radius = rules.selection_radius * min(1.0, rules.selectable / noise) * problem.n_outputs
    return noise, defaults.sized_set(problem, radius)


# -------------------------------------------------------------------------------- running


def _step_size(plan: FrankWolfePlan, t: Any) -> Any:
    if plan.learning_rate is not None:
        return np.full_like(t, plan.learning_rate, dtype=np.float64)
    return 2 / (t + 12)  # the usual step 2 / (t + 2) would make the first iterate a vertex


def _vertex_iterates(
    records: Records, plan: FrankWolfePlan, coef: Array, stream: RandomStream
) -> Iterator[Array]:
    """The points after each selection, from `coef`.

    Products with local dense rows are kept where these are wide, and moved by a column: for others
    the whole gradient takes no longer.
    """
    data, shape = records.data, plan.problem.shape
    is_kept = data.is_local and not data.is_sparse and plan.problem.is_wide
    mechanism: Any = plan.step
    vertices: Any = plan.vertices
    product, move = None, Move(1.0, 0, 0.0)
    for t in steps(range(plan.max_iter)):
        if is_kept:
            if product is None:
                product, move = data.rows.product(coef.reshape(shape)), Move(1.0, 0, 0.0)
            total = data.rows.gradient_sum_after_move(product, move, data.y, records.terms)
            gradient = total.ravel() / data.n_samples
        else:
            gradient = records.mean_gradient(coef)
        scores = vertices.scores(gradient + plan.l2_penalty * coef)
        vertex, rate = vertices.vertex(mechanism.release(scores, stream)), _step_size(plan, t)
        coef = moved(coef, vertex, rate)
        if isinstance(vertex, Vertex):
            move = Move(1 - rate, vertex.coordinate, rate * vertex.value)
        else:
            product = None
        yield coef


def _gradient_iterates(
    records: Records,
    plan: FrankWolfePlan,
    coef: Array,
    stream: RandomStream,
    kept: statistics.AveragedNoise,
) -> Iterator[Array]:
    mechanism: Any = plan.step
    momentum = np.zeros_like(coef)
    for t in steps(range(plan.max_iter)):
        noisy = mechanism.release(records.mean_gradient(coef), stream)
        noisy = noisy + plan.l2_penalty * coef
        # weights proportional to t, of gradients that are not long ago: those of all would make
        # iterates swing slowly about the minimum, and noise drive them further from it
        newest, rate = max(plan.newest, 2 / (t + 2)), float(_step_size(plan, t))
        momentum += newest * (noisy - momentum)
        q = plan.smoothing / math.sqrt(t + 1) + plan.curvature / (t + 2)
        free = coef - momentum / q
        target = plan.geometry.project(free)
        coef = coef + rate * (target - coef)
        # a projection makes all shorter, noise as well
        part = float(np.linalg.norm(target)) / max(float(np.linalg.norm(free)), 1e-300)
        facts = plan.mean_curvature, rate * part / q, mechanism.scale**2
        kept.add(*facts, float(t >= plan.max_iter // 2), newest, 1 - rate * (1 - part))
        yield coef


def _without_rare(coef: Array, plan: FrankWolfePlan) -> Array:
    """The last iterate without the coefficients that fewer than `min_selections` can make.

    The share of each selection in it is public, so that this is post-processing.
    """
    if plan.min_selections == 1:
        return coef
    rates = _step_size(plan, np.arange(plan.max_iter))
    shares = np.sort(mean_weights(rates, plan.max_iter - 1)[1])[::-1]
    largest = plan.geometry.radius * float(shares[: plan.min_selections - 1].sum())
    # the iterates' own rounding
    is_rare = np.abs(coef) <= largest * (1 + plan.max_iter * 2.0**-50)
    is_rare[plan.problem.n_features * plan.problem.n_outputs :] = False  # intercepts
    return np.where(is_rare, 0.0, coef)


# ------------------------------------------------------------------------------ sensitivities


def vertex_scores(
    problem: Problem, budget: PrivacyBudget, vertices: Vertices, clip: float, penalty: float = 0.0
) -> float:
    """Range of the change of the scores of all vertices (sections 2.3 and 3.1).

    The l1 diameter of the set times the l-infinity change of the mean gradient, every scaled
    feature being at most 1.
    """
    n = problem.n_samples
    per_record = budget.record_factor * vertices.l1_diameter * clip / n
    error = clip * (summation_error(n, problem.n_features) + score_error(vertices))
    if penalty > 0:  # its part is the same on both tables, but for the rounding of the sum
        error += (score_error(vertices) + 4 * UNIT_ROUNDOFF) * (clip + penalty * vertices.l1_norm)
    return per_record + 4 * vertices.l1_norm * error


def score_error(vertices: Vertices) -> float:
    """Relative float error of a score; that of one product is within the sums' own bound."""
    return gamma(vertices.width + 4) if vertices.width > 1 else 0.0
