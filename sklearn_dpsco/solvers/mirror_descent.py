"""Noisy mirror descent in l_p geometry (BGN21 Algorithm 2; AFKT21 Algorithms 1 and 5).

For p > 2 the map is the Euclidean one (BGN21 Proposition 13). A plan is a list of stages, each with
a slice of the records (or all), its steps and their noise. Slices come from a secret uniform
permutation and compose in parallel. The forms of the papers that need slices are in `papers`.
Sensitivities: doc/privacy, sections 2.6, 3.5, 4 and 8.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from .._progress import advance, steps
from .._types import Array, Auto, MirrorMapName
from ..data.rows import SolverData, Terms, summation_error
from ..geometry import AnySet, Geometry, L1Ball, L2Ball, LInfBall, MirrorMap
from ..losses import Loss, bounded_clip
from ..mechanisms import Gaussian, GeneralizedGaussian, Release, vector_mechanism
from ..mechanisms.batch import calibrate_batches
from ..privacy.budget import Composition, PrivacyBudget
from ..privacy.guarantee import Guarantee
from ..randomness.stream import RandomStream
from ..randomness.subsets import RandomBatches
from . import base, defaults, statistics
from .base import Part, Problem, Solver, SolverResult, none_or_count, releases_of
from .first_releases import Box, SetPlan, may_shrink, plan_first
from .records import Records

VectorNoise = Gaussian | GeneralizedGaussian
Slice = tuple[int, int]  # of the secret order of the records: start and stop


@dataclass(frozen=True)
class Stage(Part):
    """A descent on some of the records, and its noise.

    Attributes
    ----------
    noise : mechanism
        What releases the gradients.
    records : tuple (start, stop) or None
        Slice of the secret order of the records; None for all, in any order.
    n_steps : int
    learning_rate : float
        Bound on the step.
    reach, noise_energy : float
        A step is at most reach / sqrt(max(noise_energy, E)), E the sum of the squared dual
        norms of the gradients so far; an infinite reach leaves this bound out.
    strong_convexity : float
        lambda, relative to the mirror map: steps are at most 2 / (lambda (t + 2)).
    anchor : float
        Weight of the regularizer, which is the map about the stage's start.
    within : float or None
        Bound on the distance to the stage's start.
    """

    n_results: ClassVar[int] = 1  # points among which the plan's result may be drawn: its last

    noise: VectorNoise
    records: Slice | None
    n_steps: int
    learning_rate: float
    reach: float = math.inf
    noise_energy: float = 1.0
    strong_convexity: float = 0.0
    anchor: float = 0.0
    within: float | None = None

    @property
    def releases(self) -> tuple[Release, ...]:
        """Releases that read one record: all steps."""
        group = None if self.records is None else f"records {self.records}"
        name = "mean gradient" if self.noise.batches is None else "batch gradient"
        return (Release(name, self.noise, self.n_steps, group),)

    def points(
        self, part: Records, coef: Array, plan: MirrorDescentPlan, stream: RandomStream
    ) -> Iterator[Array]:
        """The weighted mean of the points of a descent from `coef`; the next stage starts there."""
        noise, mirror_map = self.noise, plan.mirror_map
        center = coef if self.anchor > 0 else None
        total, energy, kept = np.zeros(coef.size), 0.0, statistics.AveragedNoise()
        for t in steps(range(self.n_steps)):
            gradient = noise.release(part.mean_gradient(coef, noise.batches, stream), stream)
            if plan.l2_penalty > 0:
                gradient = gradient + plan.l2_penalty * coef
            if center is not None:
                gradient = gradient + self.anchor * mirror_map.gradient(coef, center)
            energy += mirror_map.dual_norm(gradient) ** 2
            step, weight = self.learning_rate, float(t >= self.n_steps // 2)
            step = min(step, self.reach / math.sqrt(max(self.noise_energy, energy)))
            if self.strong_convexity > 0:
                step, weight = min(step, 2 / (self.strong_convexity * (t + 2))), t + 1.0
            coef = mirror_map.step(coef, gradient, step, center, self.within)
            total += weight * coef
            kept.add(plan.mean_curvature, step, noise.scale**2, weight)
        point = total / kept.weight
        is_linear = center is None and mirror_map.exponent(coef.size) == 2
        if is_linear and self is plan.stages[-1] and may_shrink(plan.geometry, plan.problem.loss):
            point = kept.shrink(point, plan.problem)
        yield point


@dataclass(frozen=True)
class Pass(Part):
    """Frank-Wolfe steps of "noisy-sfw", each on a batch of its own.

    With v = kept v + a batch's term, the mean of its gradients less `kept` times those at the last
    point, clipped. Of a convex loss all of v is kept, and the first batch makes the first v. Else
    step t = 0, 1, ... has the weight 1 / sqrt(t + 1), of the new point and of the new gradient.

    Attributes
    ----------
    noises : tuple of mechanisms
        What releases the batches' terms, the last of them all further ones as well; so with:
    batches : tuple of int
        Their sizes; records that are left over are not used.
    largest_terms : tuple of float or None
        Clips of what a record adds, over the norm of its row; None for a gradient alone.
    records : tuple (start, stop)
        Slice of the secret order of the records.
    n_steps : int
    learning_rate : float or None
        Weight of the new point, of a convex loss.
    """

    noises: tuple[VectorNoise, ...]
    batches: tuple[int, ...]
    largest_terms: tuple[float | None, ...]
    records: Slice
    n_steps: int
    learning_rate: float | None = None

    @property
    def n_results(self) -> int:
        """The points among which the plan's result may be drawn: all, or the last."""
        return self.n_steps if self.learning_rate is None else 1

    @property
    def releases(self) -> tuple[Release, ...]:
        """One for each batch that a record may be in."""
        named = [("mean gradient", "first"), ("gradient change", "later")]
        if self.learning_rate is None:
            named = [("gradient term", f"batch {t + 1}") for t in range(self.n_steps)]
        return tuple(
            Release(name, noise, 1, f"records {self.records}, {batch}")
            for (name, batch), noise in zip(named, self.noises, strict=True)
        )

    def points(
        self, part: Records, coef: Array, plan: MirrorDescentPlan, stream: RandomStream
    ) -> Iterator[Array]:
        """The points that may be the plan's result; the next stage starts at the last of them."""
        rate, estimate, before, start = self.learning_rate, np.zeros(coef.size), coef, 0
        of_batches = list(zip(self.batches, self.noises, self.largest_terms, strict=True))
        # of a convex loss, the start is no step of the plan
        for t in range(self.n_steps + (rate is not None)):
            size, noise, clip = of_batches[min(t, len(of_batches) - 1)]
            batch, start = part.part(slice(start, start + size)), start + size
            weight = 1 / math.sqrt(t + 1) if rate is None else rate
            kept = 1 - weight if rate is None else 1.0
            if clip is None:
                term = batch.mean_gradient(coef)
            else:
                term = batch.mean_over(None, coef, before, clip, kept)
            estimate = kept * estimate + noise.release(term, stream)
            target = plan.geometry.extreme_point(estimate + plan.l2_penalty * coef)
            before, coef = coef, coef + weight * (target - coef)
            if rate is None or t == self.n_steps:
                yield coef
            advance(int(rate is None or t > 0))


@dataclass(frozen=True)
class MirrorDescentPlan(SetPlan):
    """Plan of mirror descent on a set; see `Plan` and `SetPlan` for the common fields.

    Attributes
    ----------
    mirror_map : MirrorMap
    stages : tuple of Stage, or of Pass
        What runs, each stage from the result of the one before.
    draws_result : bool
        Whether the result is one of those of the stages, drawn uniformly and without looking at
        the data, and not the last one.
    """

    mirror_map: MirrorMap
    stages: tuple[Stage | Pass, ...]
    draws_result: bool = False

    def result_number(self, stream: RandomStream) -> int:
        """The number of the result among those of the stages, one after the other."""
        n_results = sum(stage.n_results for stage in self.stages)
        return stream.integer(n_results) if self.draws_result else n_results - 1

    def run(self, data: SolverData, stream: RandomStream) -> SolverResult:
        problem = self.problem
        data, frame = self.first.run(data, stream)
        terms = Terms(frame.offset, problem.loss, self.gradient_clip)
        order: Any = None
        if any(stage.records is not None for stage in self.stages):
            order = stream.substream("slices").permutation(problem.n_samples)
        whole = Records(data.kept(), terms, problem)
        coef = result = self.geometry.center(problem.size)
        # all stages run in any case: what is released does not depend on the draw
        number = self.result_number(stream.substream("result"))
        for stage in self.stages:
            which = stage.records
            part = whole if which is None else whole.part(order[slice(*which)])
            for point in stage.points(part, coef, self, stream):
                coef, result = point, point if number == 0 else result
                number -= 1
        return frame.result(result, problem, self.max_iter)


# ------------------------------------------------------------------------------- planning


@dataclass(kw_only=True, repr=False, eq=False)
class SetDescent(Solver):
    """What the forms of mirror descent on a feasible set share; `NoisyMD` describes parameters.

    `_run_stages` of a form gives the stages of a run on a slice of the records.
    """

    is_anchored: ClassVar[bool] = False  # whether a regularizer about a stage's start is added
    may_draw: ClassVar[bool] = False  # whether of a loss that is not convex the result is drawn
    needs_restarts: ClassVar[bool] = False  # whether a strongly convex loss needs them
    steps_to_boundary: ClassVar[bool] = False

    max_iter: int | Auto = "auto"
    n_restarts: int | Auto = "auto"
    mirror_map: MirrorMapName = "auto"
    learning_rate: float | Auto = "auto"
    gradient_clip: float | Auto = "auto"
    data_norm: float | Auto = "auto"
    l2_penalty: float = 0.0

    # ---------------------------------------------------------------- planning

    def _check(self, loss: Loss, feasible_set: AnySet, budget: PrivacyBudget, units: str) -> None:
        self._check_delta(budget)
        self._check_units(budget, units)
        candidates: tuple[Any, ...] = (feasible_set,)
        if feasible_set is Geometry:  # the plan may choose either, which have the automatic map
            candidates = (L2Ball, L1Ball) if self.mirror_map or self.is_anchored else ()
        for candidate in candidates:
            self._map(candidate(1.0) if isinstance(candidate, type) else candidate)

    def _plan(self: Any, problem: Problem, budget: PrivacyBudget) -> MirrorDescentPlan:
        n = problem.n_samples
        if not self._fits(n):
            raise ValueError(
                f"n_samples={n} leaves a slice of solver={self.form!r}, "
                f"n_restarts={len(self._runs(n))} empty; "
                f"the smallest n that works with these settings is {base.smallest(self._fits)}"
            )
        facts = Facts(self, Box.of(self, problem, budget, auto=False))
        problem, first = facts.problem, facts.first
        stages = [stage for run in self._runs(n) for stage in self._run_stages(facts, run)]
        guarantee = Guarantee.of(budget, releases_of(first, *stages), facts.composition)
        n_steps = sum(stage.n_steps for stage in stages)
        common = problem, budget, self.form, n_steps, guarantee, facts.geometry, first
        draws_result = self.may_draw and not problem.loss.is_convex
        descent = facts.clip, facts.penalty, facts.mirror_map, tuple(stages), draws_result
        return MirrorDescentPlan(*common, *descent)

    def _map(self, geometry: Geometry) -> MirrorMap:
        """The declared mirror map, or "power" where the set has it."""
        kind = self.mirror_map or ("power" if "power" in geometry.mirror_maps else None)
        mirror_map = geometry.mirror_map(kind)
        if self.is_anchored and not mirror_map.has_center:
            raise ValueError(f"solver={self.form!r} cannot use mirror_map={self.mirror_map!r}")
        return mirror_map

    def _fits(self, n: int) -> bool:
        """Whether no slice is empty."""
        return all(self._fits_run(stop - start) for start, stop in self._runs(n))

    def _fits_run(self, size: int) -> bool:
        """The same of a run on so many records."""
        return size > 0

    def _runs(self: Any, n: int) -> list[Slice]:
        """The slices of the runs, of which each starts from the result of the one before."""
        # those that use all records in each step, and the rounds of "proximal", have the fast rate
        # without slices, by their step sizes and weights (section 4.4)
        is_fast = self.l2_penalty > 0 and self.needs_restarts
        count = self.n_restarts or (base.fast_restarts(n) if is_fast else 1)
        return base.doubling_slices(n, count, growing=True)


@dataclass(kw_only=True, repr=False, eq=False)
class NoisyMD(SetDescent):
    """Noisy mirror descent on all records, or on random batches.

    Each step releases a mean gradient with Gaussian noise. More steps cost time and hardly change
    the accuracy: the noise of each step grows with their number, and averages out. Slopes are
    shrunk by what of it is left in the mean of the points, of smooth losses in balls with the
    Euclidean map.

    Parameters
    ----------
    max_iter : "auto" or int in [1, 1e9], default="auto"
        Number of steps. "auto" is 60 to 400, as many as some tenths of a second allow.
    batch_size : None or int in [1, 1e15], default=None
        Records in each step. None takes all. Else batches are random: of this size under
        "replace-one", of this expected size under "zero-out". The budget is then tracked by
        `dp_accounting`, which takes seconds when a plan is made. Full batches need less noise in
        all; batches save time on large tables.
    n_restarts : "auto" or int in [1, 100], default="auto"
        Runs on disjoint parts of the records, each with twice as many as the one before and from
        its result. "auto" is 1. Not with batches.
    mirror_map : {"auto", "power", "euclidean", "entropy"}, default="auto"
        What measures a step: half the squared l_p norm with the p of the set (p = 1 + 1 / ln d
        for the l1 ball and the simplex, at most 2; 2 for p > 2), half the squared l2 norm, or, on
        the l1 ball and the simplex, the entropy (exponentiated gradient). "auto" is "power".
    learning_rate : "auto" or float in [1e-50, 1e50], default="auto"
        Step in scaled units. "auto" adapts to the released gradients (scalar AdaGrad), within
        bounds made of the noise.
    gradient_clip : "auto" or float in [1e-50, 1e50], default="auto"
        Bound c on the absolute derivative of the loss in the raw prediction, in scaled units;
        derivatives beyond it are clipped. Noise is proportional to c. "auto" is 0.12 in regression
        and 0.3 in classification where the noise is large, and rises to 1 as it vanishes; times
        sqrt(2) for several classes, sqrt(K) for K targets. A c above the largest derivative that
        the loss can have for a model of the feasible set is lowered to it.
    data_norm : "auto" or float in [1e-50, 1e50], default="auto"
        Bound B on the l2 norm of a scaled row with the intercept's 1; longer rows are scaled
        down. Noise is proportional to B. "auto" is max(1, sqrt(n_features + 1) / 2), half of the
        largest norm in the box, but at least 1 (without an intercept, the 1 under the root is left
        out); where `bounds_X` is a transformer, the largest squared norm of a row that it declares
        takes the place of n_features. Set it lower where rows are known to be short, such as
        counts of few words among many.
    l2_penalty : float in [0, 1e50], default=0.0
        Weight of half the squared l2 norm of the scaled coefficients, intercept's correction
        included.

    Examples
    --------
    >>> from sklearn_dpsco import DPMirrorRegressor
    >>> from sklearn_dpsco.solvers import NoisyMD
    >>> model = DPMirrorRegressor(solver=NoisyMD(batch_size=100), bounds_X=(0, 1), bounds_y=(0, 1))
    >>> model.set_params(solver__max_iter=50).plan(10_000, 4).max_iter
    50
    """

    form = "noisy-md"
    checks = {"batch_size": none_or_count}

    batch_size: int | None = None

    def _check(
        self: Any, loss: Loss, feasible_set: AnySet, budget: PrivacyBudget, units: str
    ) -> None:
        if self.batch_size is not None and (self.n_restarts or 1) > 1:
            raise ValueError("n_restarts is not for random batches: it needs batch_size=None")
        if self.batch_size is not None and units == "learned":
            raise ValueError("batch_size needs units='bounds': medians have no sampled guarantee")
        super()._check(loss, feasible_set, budget, units)

    def _run_stages(self: Any, facts: Facts, run: Slice) -> list[Stage]:
        problem, budget, size = facts.problem, facts.budget, self.batch_size
        n = problem.n_samples
        if size is None or size == n:
            noise: VectorNoise = facts.noise(run[1] - run[0], facts.n_steps)
            return [facts.stage(None if run == (0, n) else run, noise, facts.n_steps)]
        if size > n:
            raise ValueError(
                f"batch_size={size} is larger than the number of samples {n}; the smallest n that "
                f"works is {size}"
            )
        # noise on random batches, calibrated by an accountant that counts the sampling; of about
        # ten passes over the records
        n_steps = self.max_iter or min(2000, max(200, 10 * n // size))
        fixed = budget.relation == "replace-one"
        sampling = RandomBatches(n, size, "fixed" if fixed else "poisson")
        change = facts.clip * batch_mean(problem, budget, facts.norm, size)
        uses = problem.size, n_steps, facts.first.releases
        noise, facts.composition = calibrate_batches(budget, sampling, change, *uses, facts.left)
        return [facts.stage(None, noise, n_steps)]


class Facts:
    """Public facts that the plans of all forms use, and what comes before the descent."""

    def __init__(self, solver: Any, box: Box) -> None:
        problem, budget = box.problem, box.budget
        self.problem, self.budget, size = problem, budget, problem.size
        self.rules = rules = defaults.MIRROR_DESCENT[problem.loss.task]
        self.n_steps: int = solver.max_iter or defaults.affordable_steps(problem, rules)
        self.norm: float = solver.data_norm or defaults.data_norm(problem)
        self.geometry = geometry = self._chosen_set(solver.steps_to_boundary)
        self.mirror_map = solver._map(geometry)
        self.penalty, self.learning_rate = float(solver.l2_penalty), solver.learning_rate
        l2_radius = geometry.radius * size ** max(0.0, 0.5 - 1 / float(getattr(geometry, "p", 1.0)))
        amount, loss = budget.gaussian_allowance.amount, problem.loss
        noise = defaults.gradient_noise(problem, budget, self.norm, amount)
        usual = defaults.growing_clip(problem, rules.smallest_clip, noise, rules.accurate)
        self.clip = bounded_clip(loss, solver.gradient_clip or usual, self.norm * l2_radius)
        # bound on the coordinates of a row: centred ones may be 2
        self.box = 2.0 if problem.fit_intercept else 1.0
        self.power = self.mirror_map.exponent(size)
        self.dual_exponent = self.mirror_map.dual_exponent(size)  # q >= 2, of the map's dual norm
        # bounds on the l_q norm of a row, on the dual norm of a record's gradient, and on
        # abs(<row, v - w>) over two points of the set
        self.row_norm = min(self.norm, self.box * problem.dimension ** (1 / self.dual_exponent))
        self.lipschitz = self.clip * self.row_norm
        self.largest_move = self.norm * (2 * l2_radius)
        # of the objective in the map's norm: abs(<row, v>) is at most row_norm norm(v)
        self.weak_convexity = loss.weak_convexity * self.row_norm**2
        # of the penalty, relative to the map; counted as 0 for p < 2
        self.strong_convexity = self.penalty if self.power == 2 else 0.0
        # largest distance of the start from the solution, in the map's units
        self.reach = math.sqrt(2 * self.mirror_map.bregman_diameter(size))
        # of the set in the map's norm; not 0, as of a set of one point
        self.diameter = max(2 * self.reach * math.sqrt(self.power - 1), 1e-50)
        plan = partial(plan_first, norm=self.norm, may_shrink=geometry.contains_origin)
        self.first = box.first(budget, box.allowance, plan)
        self.left = box.allowance.share(self.first.left)  # for each record in the descent
        self.composition: Composition = box.allowance.kind

    def _chosen_set(self, steps_to_boundary: bool) -> Geometry:
        """The declared set, or one of the default kind and size."""
        problem, rules, kind = self.problem, self.rules, self.problem.feasible_set
        if isinstance(kind, Geometry):
            return kind
        if kind is Geometry:
            # the l1 ball for many features and large noise, which suits a sparse model
            kind = L2Ball
            if problem.n_features >= rules.wide:
                norm, amount = defaults.data_norm(problem), self.budget.gaussian_allowance.amount
                if defaults.gradient_noise(problem, self.budget, norm, amount) > rules.drowning:
                    kind = L1Ball
        if not kind.contains_origin:
            return kind(1.0)  # convex combinations
        radius = rules.radius * (rules.boundary if steps_to_boundary else 1.0)
        if issubclass(kind, LInfBall):
            radius *= 1.5 / math.sqrt(problem.size)
        return kind(radius)

    def noise(self, n: int, count: int = 1, clip: float | None = None) -> VectorNoise:
        """Noise for `count` means over n records of rows times numbers up to `clip`.

        Gaussian on the l2 norm, or, where floating point is asked for and its expected
        dual norm is smaller, generalized Gaussian on the rows' dual norm.
        """
        clip = self.clip if clip is None else clip
        problem, d = replace(self.problem, n_samples=n), self.problem.size
        change = clip * statistics.row_mean(problem, self.budget, self.norm)
        gaussian = Gaussian.calibrate(change, self.left, count, d)
        q = self.dual_exponent
        if self.left.precision == "exact" or q == 2:
            return gaussian
        change = clip * row_mean_in_norm(problem, self.budget, self.row_norm, self.box, q)
        shaped = vector_mechanism(q, change, self.left, count, d)
        return min(gaussian, shaped, key=lambda noise: noise.expected_norm(q))

    def stage(self, records: Slice | None, noise: VectorNoise, n_steps: int) -> Stage:
        """A whole descent, with the declared step or by that of `Stage`, from its noise."""
        convexity = self.strong_convexity
        if (rate := self.learning_rate) is not None:
            return Stage(noise, records, n_steps, rate, strong_convexity=convexity)
        size = noise.expected_norm(self.dual_exponent)
        smoothness = min(1.0, self.problem.loss.smoothness)
        if noise.batches is not None:  # plus the variation of the mean over the batch
            size = math.hypot(size, self.lipschitz / math.sqrt(noise.batches.batch_size))
        gradient = self.rules.gradient * self.clip
        largest = (gradient / size) ** 2 / smoothness if smoothness > 0 else math.inf
        reach, energy = self.rules.reach * self.reach, n_steps * size**2
        return Stage(noise, records, n_steps, largest, reach, energy, convexity)

    def anchored_stage(
        self, records: Slice, n_steps: int, anchor: float, rate: float = math.inf
    ) -> Stage:
        """A descent on the loss plus `anchor` times the map about its start."""
        noise = self.noise(records[1] - records[0], n_steps)
        # contains the minimizer: beyond it the regularizer grows more than the loss can fall
        within = 2 * self.lipschitz * (self.power - 1) / anchor
        reach = self.rules.reach * within / math.sqrt(self.power - 1)
        energy = n_steps * noise.expected_norm(self.dual_exponent) ** 2
        # 0 where the anchor is too small to make the objective convex
        convexity = max(0.0, anchor + self.strong_convexity - self.weak_convexity)
        return Stage(noise, records, n_steps, rate, reach, energy, convexity, anchor, within)


# ------------------------------------------------------------------------------ sensitivities


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
    numerical = statistics.row_mean(problem, budget, norm) - per_record / n
    return per_record / size + numerical * n / size
