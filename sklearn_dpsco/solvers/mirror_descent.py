r"""Noisy mirror descent in l_p geometry, its localized form, and noisy stochastic Frank-Wolfe.

``"noisy-md"``
    Mirror descent on mean gradients with noise (BGN21 Algorithm 2; AFKT21 Algorithms 1
    and 5), over all records or over fresh random batches. With the Euclidean map it is
    projected noisy gradient descent.
``"localized"``
    Phases on disjoint slices of the records, each a mirror descent on the loss plus a
    regularizer about the last phase's result, within a ball that shrinks (AFKT21
    Algorithms 2 and 6).
``"noisy-sfw"``
    One pass of stochastic Frank-Wolfe with a recursive, noisy gradient estimate on
    disjoint batches (BGN21 Algorithm 3).

All of them start from a private intercept and private feature means, and all are a list
of stages: a stage has a slice of the records, its steps, and the noise that they need.
Slices come from a secret uniform permutation and compose in parallel. For p > 2 the map is
the Euclidean one (BGN21 Proposition 13).

The sensitivities are derived in doc/privacy.rst, sections 2.6, 3.5 and 4.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .._generalized_gaussian import mean_noise_norm
from .._linear import Objective, Rows, clipped, summation_error
from .._random import RandomStream
from .._subsampling import BatchGaussian, calibrate_batches, draw_batch
from ..accounting import Allowance, Composition, Guarantee, PrivacyBudget
from ..geometry import Geometry, L1Ball, L2Ball, LInfBall
from ..mechanisms import Gaussian, GeneralizedGaussian, Laplace, Release, vector_mechanism
from ..mirror_maps import MirrorMap
from .base import Plan, Problem, SolverData, SolverResult
from .preliminaries import (
    Preliminaries,
    default_data_norm,
    gradient_noise,
    growing_clip,
    mean_sensitivity,
    plan_preliminaries,
    prepare,
)

__all__ = ["FORMS", "MirrorDescent", "MirrorDescentPlan", "Stage", "default_feasible_set"]

Array = NDArray[np.float64]
VectorNoise = Gaussian | GeneralizedGaussian

FORMS = ("noisy-md", "localized", "noisy-sfw")

# The step rule (`Stage.step_size`). A run's steps are those of scalar AdaGrad: _REACH times
# the diameter over the root of the sum of squared gradient norms, at least that of the
# noise of all steps. _GRADIENT is the size of a gradient, in units of its clip, that is
# worth following: where the noise of the mean of all steps is far above it, the model
# fades into the trivial predictor.
_REACH = 0.5
_GRADIENT = {"regression": 1.2, "classification": 0.9}

# "noisy-sfw" steps towards the boundary whatever the size of the gradient: a smaller set,
# and shorter steps where the noise is above _DIRECTION, in units of the Lipschitz constant.
_BOUNDARY = 0.25
_DIRECTION = 0.05

# Size of the feasible set, clip of the derivative, and the noise of a single release of the
# mean gradient, with all of the budget and a clip of 1, below which the clip grows to 1, so
# that its bias vanishes with the noise. The five tables of benchmarks/utility.py helped to
# settle these and the numbers above, next to the cases of benchmarks/synthetic.py.
_RADIUS = {"regression": 2.0, "classification": 10.0}
_SMALLEST_CLIP = {"regression": 0.12, "classification": 0.3}
_ACCURATE = 0.02

# Noise, as above, beyond which a bet on a sparse truth has nothing to lose, and the least
# number of features where it has something to win.
_DROWNING = 0.5
_WIDE = 100

_MOST_PHASES = 6  # later ones could move the model by next to nothing
_MOST_STEPS = 400


@dataclass(frozen=True)
class Stage:
    """A descent on some of the records.

    Attributes
    ----------
    records : tuple (start, stop) or None
        Slice of the secret order of the records; None for all, in any order.
    n_steps : int
    learning_rate : float
        Bound on the step; for "noisy-sfw" the weight of the new point.
    reach, noise_energy : float
        A step is at most reach / sqrt(max(noise_energy, E)), E the sum of the squared dual
        norms of the gradients so far; an infinite reach leaves this bound out.
    strong_convexity : float
        lambda, relative to the mirror map: steps are at most 2 / (lambda (t + 2)).
    anchor : float
        Weight of the map about the stage's start as a regularizer.
    within : float or None
        Bound on the distance to the stage's start.
    first_batch, batch : int
        "noisy-sfw": sizes of the first and of each later batch.
    largest_change : float
        "noisy-sfw": clip of the change of a derivative between two steps.
    """

    records: tuple[int, int] | None
    n_steps: int
    learning_rate: float
    reach: float = math.inf
    noise_energy: float = 1.0
    strong_convexity: float = 0.0
    anchor: float = 0.0
    within: float | None = None
    first_batch: int = 0
    batch: int = 0
    largest_change: float = 0.0

    def step_size(self, t: int, energy: float) -> float:
        """Step t = 0, 1, ..., after gradients whose squared dual norms sum to `energy`."""
        step = self.learning_rate
        if self.reach < math.inf:
            step = min(step, self.reach / math.sqrt(max(self.noise_energy, energy)))
        if self.strong_convexity > 0:
            step = min(step, 2 / (self.strong_convexity * (t + 2)))
        return step

    def weight(self, t: int) -> float:
        """Weight of the point after step t in the result, up to a factor."""
        if self.strong_convexity > 0:
            return t + 1.0
        return float(t >= self.n_steps // 2)


@dataclass(frozen=True)
class MirrorDescentPlan(Plan):
    """Plan of `MirrorDescent`; see `Plan` for the common fields.

    Attributes
    ----------
    geometry : Geometry
        The feasible set with its radius.
    mirror_map : MirrorMap
    gradient_clip : float
        c: bound on abs(dl/dz).
    l2_penalty : float
        Weight of norm(w)^2 / 2.
    data_norm : float
        B, the bound on the l2 norm of a scaled row.
    stages : tuple of Stage
        What runs, each stage from the result of the one before.
    location_steps : int
        Noisy steps to the centre of the targets; 0 for their noisy mean.
    intercept, center, row_scale : mechanism or None
        What releases the mean target or these steps, the feature means and the mean row
        factor.
    steps : tuple of tuples of mechanisms
        What releases the gradients of each stage: one mechanism, or for "noisy-sfw"
        those of the first and of the later batches.
    """

    geometry: Geometry
    mirror_map: MirrorMap
    gradient_clip: float
    l2_penalty: float
    data_norm: float
    stages: tuple[Stage, ...]
    location_steps: int
    intercept: Gaussian | Laplace | None
    center: Gaussian | None
    row_scale: Gaussian | None
    steps: tuple[tuple[VectorNoise, ...], ...]


@dataclass(frozen=True)
class MirrorDescent:
    """Settings of the solver; `None` leaves a value to the plan.

    Parameters
    ----------
    form : {"auto", "noisy-md", "localized", "noisy-sfw"}
    max_iter : int or None
        Steps of each stage.
    learning_rate : float or None
    gradient_clip : float or None
    data_norm : float or None
    l2_penalty : float
    batch_size : int or None
        "noisy-md": None for all records in each step.
    mirror_map : {"power", "euclidean", "entropy"} or None
    n_phases : int or None
        "localized".
    n_restarts : int or None
        Runs on disjoint slices, each from the result of the one before. None stands for
        ceil(log2 log2 n) where a penalty makes the loss strongly convex and the form
        uses a record once, else 1.
    """

    form: str = "auto"
    max_iter: int | None = None
    learning_rate: float | None = None
    gradient_clip: float | None = None
    data_norm: float | None = None
    l2_penalty: float = 0.0
    batch_size: int | None = None
    mirror_map: str | None = None
    n_phases: int | None = None
    n_restarts: int | None = None

    # ---------------------------------------------------------------- planning

    def plan(self, problem: Problem, budget: PrivacyBudget) -> MirrorDescentPlan:
        """Everything that a run does, from public facts alone.

        Parameters
        ----------
        problem : Problem
        budget : PrivacyBudget

        Raises
        ------
        ValueError
            If delta is 0, the form cannot use the feasible set or a batch size, or n is
            too small for the batch or for the slices.
        """
        form = "noisy-md" if self.form == "auto" else self.form
        self._check(form, problem, budget)
        facts = self._facts(form, problem, budget)
        allowance = budget.gaussian_allowance.share(1 / problem.n_models)
        before = plan_preliminaries(
            problem, budget, facts.norm, allowance,
            may_shrink=facts.geometry.contains_origin,
        )  # fmt: skip
        left = allowance.share(before.left)
        if form == "noisy-md" and self._batch(problem) is not None:
            return self._plan_batches(facts, before, left)
        plan_run = {
            "noisy-md": self._plan_descent,
            "localized": self._plan_phases,
            "noisy-sfw": self._plan_frank_wolfe,
        }[form]
        runs = self._runs(form, problem.n_samples)
        parts = [part for run in runs for part in plan_run(facts, run, left)]
        return self._finish(facts, form, before, allowance.kind, parts)

    def _check(self, form: str, problem: Problem, budget: PrivacyBudget) -> None:
        if budget.is_pure:
            raise ValueError(
                "mirror descent has no pure-DP form (delta=0); "
                "DPLassoFW(solver='selection') and its classifier have one"
            )
        p = float(getattr(problem.feasible_set, "p", 1.0))
        if form == "noisy-sfw" and p > 2:
            raise ValueError(
                f"solver='noisy-sfw' needs p <= 2, got p={p:g}: use 'noisy-md' or 'localized'"
            )
        if self.batch_size is not None:
            if form != "noisy-md":
                raise ValueError(f"batch_size is for solver='noisy-md', not for {form!r}")
            if self.batch_size > problem.n_samples:
                raise ValueError(
                    f"batch_size={self.batch_size} is larger than the number of samples "
                    f"{problem.n_samples}; the smallest n that works is {self.batch_size}"
                )
        if not self._fits(form, problem.n_samples):
            raise ValueError(
                f"n_samples={problem.n_samples} leaves a slice of solver={form!r} empty; "
                f"the smallest n that works with these settings is {self.least_samples}"
            )

    @property
    def least_samples(self) -> int:
        """The least n whose slices and batches are not empty."""
        form = "noisy-md" if self.form == "auto" else self.form
        return max(self.batch_size or 1, _smallest(lambda n: self._fits(form, n)))

    def _fits(self, form: str, n: int) -> bool:
        """Whether no slice or batch is empty."""
        for start, stop in self._runs(form, n):
            if form == "localized":
                phases = _slices(stop - start, self.n_phases or 1, growing=False)
                if any(low == high for low, high in phases):
                    return False
            # a Frank-Wolfe run has one batch more than steps
            elif stop - start <= (self.max_iter or 1) * (form == "noisy-sfw"):
                return False
        return True

    def _runs(self, form: str, n: int) -> list[tuple[int, int]]:
        return _slices(n, self._restarts(form, n), growing=True)

    def _restarts(self, form: str, n: int) -> int:
        if self.n_restarts is not None:
            return self.n_restarts
        # a full-batch descent has the fast rate by its weighted average, without slices
        if self.l2_penalty == 0 or form == "noisy-md" or n < 32:
            return 1
        return math.ceil(math.log2(math.log2(n)))

    def _batch(self, problem: Problem) -> int | None:
        size = self.batch_size
        return None if size is None or size == problem.n_samples else size

    def _facts(self, form: str, problem: Problem, budget: PrivacyBudget) -> _Facts:
        norm = self.data_norm or default_data_norm(problem)
        geometry = _geometry(problem, form)
        mirror_map = geometry.mirror_map(self.mirror_map or _default_map(geometry))
        if form == "localized" and not mirror_map.has_center:
            raise ValueError(f"solver='localized' cannot use mirror_map={self.mirror_map!r}")
        noise = _gradient_noise(problem, budget, norm)
        smallest = _SMALLEST_CLIP[problem.loss.task]
        clip = self.gradient_clip or growing_clip(smallest, noise, _ACCURATE)
        largest = norm * _l2_radius(geometry, problem.dimension)
        largest += abs(problem.loss.best_constant(1.0))
        clip = min(clip, problem.loss.derivative_bound(largest))
        return _Facts(problem, budget, geometry, mirror_map, norm, clip, float(self.l2_penalty))

    def _plan_descent(self, facts: _Facts, run: tuple[int, int], left: Allowance) -> list[_Part]:
        n_steps = self.max_iter or _iterations(facts.problem)
        noise = facts.noise(run[1] - run[0], left, n_steps)
        records = None if run == (0, facts.problem.n_samples) else run
        stage = facts.stage(records, noise, n_steps, self.learning_rate)
        return [_Part(stage, (noise,))]

    def _plan_batches(
        self, facts: _Facts, before: Preliminaries, left: Allowance
    ) -> MirrorDescentPlan:
        """Noise on random batches, calibrated by an accountant that knows of the sampling."""
        problem, budget, size = facts.problem, facts.budget, int(self.batch_size or 0)
        n_steps = self.max_iter or _batch_iterations(problem, size)
        fixed = budget.relation == "replace-one"
        composition: Composition = "rdp" if fixed else "pld"

        def make(multiplier: float) -> BatchGaussian:
            allowance = Allowance("gdp", 1 / (2 * multiplier**2), budget.precision)
            noise = Gaussian.calibrate(
                facts.batch_sensitivity(size), allowance, dimension=problem.dimension
            )
            return BatchGaussian(
                noise.sensitivity, noise.scale, noise.dimension, noise.precision,
                problem.n_samples, size, "fixed" if fixed else "poisson",
            )  # fmt: skip

        def releases(noise: BatchGaussian) -> tuple[Release, ...]:
            return (*before.releases, Release("batch gradient", noise, n_steps))

        enough = math.sqrt(n_steps / (2 * left.amount))
        if budget.currency == "zcdp":
            noise, composition = make(enough), "zcdp"
        else:
            noise = calibrate_batches(budget, make, releases, composition, problem.n_models, enough)
        stage = facts.stage(None, noise, n_steps, self.learning_rate, size)
        return self._finish(facts, "noisy-md", before, composition, [_Part(stage, (noise,))])

    def _plan_phases(self, facts: _Facts, run: tuple[int, int], left: Allowance) -> list[_Part]:
        """Phase i = 0, 1, ...: about 2^-i of the records, and an eta that falls by 4^-i.

        AFKT21 let it fall by 16^-i, as their phases have a share of the budget that halves.
        """
        start, stop = run
        n = stop - start
        n_phases = self.n_phases or min(_MOST_PHASES, int(math.log2(n + 1)))
        n_steps = self.max_iter or _iterations(facts.problem)
        eta = self.learning_rate or facts.localized_step(n, left)
        power = facts.mirror_map.exponent(facts.problem.dimension)
        parts = []
        for i, (low, high) in enumerate(_slices(n, n_phases, growing=False)):
            noise = facts.noise(high - low, left, n_steps)
            horizon = eta * 4.0**-i * (high - low)
            anchor = 2 / horizon
            # where the regularizer outweighs what the loss can gain
            within = facts.lipschitz * horizon * (power - 1)
            size = facts.noise_size(noise)
            stage = Stage(
                (start + low, start + high), n_steps, math.inf,
                reach=_REACH * within / math.sqrt(power - 1), noise_energy=n_steps * size**2,
                strong_convexity=anchor + facts.strong_convexity, anchor=anchor, within=within,
            )  # fmt: skip
            parts.append(_Part(stage, (noise,)))
        return parts

    def _plan_frank_wolfe(
        self, facts: _Facts, run: tuple[int, int], left: Allowance
    ) -> list[_Part]:
        """The numbers of batches 1, 2, 4, ... up to the root of n, and what is best of them."""
        n = run[1] - run[0]
        counts = [2**k for k in range(1 + int(math.log2(math.isqrt(n))))]
        if self.max_iter is not None:
            counts = [self.max_iter]
        plans = [self._frank_wolfe_stage(facts, run, left, n_steps) for n_steps in counts]
        return [min(plans, key=lambda plan: plan[1])[0]]

    def _frank_wolfe_stage(
        self, facts: _Facts, run: tuple[int, int], left: Allowance, n_steps: int
    ) -> tuple[_Part, float]:
        """A pass in so many steps, and the sum of its two errors: of noise, and of stopping."""
        n = run[1] - run[0]
        batch = max(1, (n // 2) // n_steps)
        first = n - n_steps * batch
        eta = self.learning_rate or min(1.0, max(1.0, math.log(n)) / (2 * n_steps))
        first_noise = facts.noise(first, left, 1)

        def later(eta: float) -> tuple[float, VectorNoise, float]:
            """The clip of a derivative's change, its noise, and the noise of the last estimate."""
            smoothness = facts.problem.loss.smoothness
            change = min(2 * facts.clip, smoothness * eta * facts.largest_move)
            change = max(change, 1e-6 * facts.clip)  # a linear loss has none
            noise = facts.noise(batch, left, 1, change)
            walk = facts.noise_size(noise) * math.sqrt(n_steps)
            return change, noise, math.hypot(facts.noise_size(first_noise), walk) / facts.lipschitz

        change, noise, error = later(eta)
        if self.learning_rate is None and error > _DIRECTION:
            eta *= _DIRECTION / error  # a direction that is all noise is not followed
            change, noise, error = later(eta)
        stage = Stage(
            run, n_steps, eta, first_batch=first, batch=batch, largest_change=change
        )  # fmt: skip
        return _Part(stage, (first_noise, noise)), error + 1 / n_steps

    def _finish(
        self,
        facts: _Facts,
        form: str,
        before: Preliminaries,
        composition: Composition,
        parts: list[_Part],
    ) -> MirrorDescentPlan:
        problem, budget = facts.problem, facts.budget
        releases = [*before.releases]
        for part in parts:
            releases.extend(part.releases)
        guarantee = Guarantee(
            budget.epsilon, budget.delta, budget.relation, composition, tuple(releases),
            problem.n_models,
        )  # fmt: skip
        return MirrorDescentPlan(
            problem=problem, budget=budget, solver=form,
            max_iter=sum(part.stage.n_steps for part in parts), guarantee=guarantee,
            geometry=facts.geometry, mirror_map=facts.mirror_map, gradient_clip=facts.clip,
            l2_penalty=facts.penalty, data_norm=facts.norm,
            stages=tuple(part.stage for part in parts),
            location_steps=before.location_steps, intercept=before.intercept,
            center=before.center, row_scale=before.row_scale,
            steps=tuple(part.noises for part in parts),
        )  # fmt: skip

    # ----------------------------------------------------------------- running

    def solve(
        self, data: SolverData, plan: MirrorDescentPlan, stream: RandomStream
    ) -> SolverResult:
        """Run the plan.

        Parameters
        ----------
        data : SolverData
            Rows clipped to [-1, 1] and targets in [-1, 1].
        plan : MirrorDescentPlan
        stream : RandomStream

        Returns
        -------
        SolverResult
        """
        problem = plan.problem
        mechanisms = plan.intercept, plan.center, plan.row_scale
        prepared = prepare(data, problem, plan.data_norm, mechanisms, plan.location_steps, stream)
        rows = prepared.rows
        objective = Objective(data.y, prepared.offset, problem.loss, plan.gradient_clip)
        order = None
        if any(stage.records is not None for stage in plan.stages):
            order = stream.substream("slices").permutation(problem.n_samples)
            rows = rows.row_major()
        coef = plan.geometry.center(problem.dimension)
        run = _frank_wolfe if plan.solver == "noisy-sfw" else _descend
        for stage, noises in zip(plan.stages, plan.steps, strict=True):
            part = _Records(rows, objective)
            if order is not None and stage.records is not None:
                part = part.take(order[slice(*stage.records)])
            coef = run(part, coef, stage, noises, plan, stream)
        return prepared.result(coef, plan.max_iter)


@dataclass(frozen=True)
class _Part:
    """A stage and its noise."""

    stage: Stage
    noises: tuple[VectorNoise, ...]

    @property
    def releases(self) -> tuple[Release, ...]:
        """What a stage costs a record: its steps, or the one batch that it is in."""
        stage = self.stage
        group = None if stage.records is None else f"records {stage.records}"
        if stage.batch:
            first, later = self.noises
            return (
                Release("mean gradient", first, 1, f"{group}, first"),
                Release("gradient change", later, 1, f"{group}, later"),
            )
        name = "batch gradient" if isinstance(self.noises[0], BatchGaussian) else "mean gradient"
        return (Release(name, self.noises[0], stage.n_steps, group),)


@dataclass(frozen=True)
class _Facts:
    """Public facts that every form's plan computes with."""

    problem: Problem
    budget: PrivacyBudget
    geometry: Geometry
    mirror_map: MirrorMap
    norm: float
    clip: float
    penalty: float

    @property
    def box(self) -> float:
        """Bound on the coordinates of a row: centred ones may be 2."""
        return 2.0 if self.problem.fit_intercept else 1.0

    @property
    def dual_exponent(self) -> float:
        return self.mirror_map.dual_exponent(self.problem.dimension)

    @property
    def row_norm(self) -> float:
        """Bound on the l_q norm of a row, q >= 2 the map's dual exponent."""
        return min(self.norm, self.box * self.problem.dimension ** (1 / self.dual_exponent))

    @property
    def lipschitz(self) -> float:
        return self.clip * self.row_norm

    @property
    def largest_move(self) -> float:
        """Bound on abs(<row, v - w>) over two points of the set."""
        diameter = 2 * _l2_radius(self.geometry, self.problem.dimension)
        return self.norm * diameter

    @property
    def strong_convexity(self) -> float:
        """Of the penalty, relative to the map; a power map below 2 has none to offer."""
        is_euclidean = self.mirror_map.exponent(self.problem.dimension) == 2
        return self.penalty if is_euclidean else 0.0

    # ------------------------------------------------------------- noise

    def noise(
        self, n: int, allowance: Allowance, count: int, clip: float | None = None
    ) -> VectorNoise:
        """Noise for `count` means over n records of rows times numbers up to `clip`.

        Gaussian on the l2 norm, or, where floating point is asked for and its expected
        dual norm is smaller, generalized Gaussian on the rows' dual norm.
        """
        clip = self.clip if clip is None else clip
        problem, d = replace(self.problem, n_samples=n), self.problem.dimension
        sensitivity = clip * mean_sensitivity(problem, self.budget, self.norm)
        gaussian = Gaussian.calibrate(sensitivity, allowance, count, d)
        q = self.dual_exponent
        if allowance.precision == "exact" or q == 2:
            return gaussian
        box = self.box * d ** (1 / q)
        numerical = 4 * box * summation_error(n, problem.n_features)
        sensitivity_q = clip * (self.budget.record_factor * self.row_norm / n + numerical)
        shaped = vector_mechanism(q, sensitivity_q, allowance, count, d)
        return min(gaussian, shaped, key=self.noise_size)

    def noise_size(self, noise: VectorNoise) -> float:
        """Expected dual norm of the noise."""
        if isinstance(noise, GeneralizedGaussian):
            return noise.mean_norm
        return noise.scale * mean_noise_norm(self.dual_exponent, 2.0, self.problem.dimension)

    def batch_sensitivity(self, size: int) -> float:
        """Of the sum over a random batch, over its (expected) size.

        Under replace-one a batch of fixed size gets another record in the place of one; a
        Poisson batch, under zero-out, gains or loses one, and has at most n.
        """
        problem, n = self.problem, self.problem.n_samples
        per_record = self.norm * self.budget.record_factor
        numerical = mean_sensitivity(problem, self.budget, self.norm) - per_record / n
        return self.clip * (per_record / size + numerical * n / size)

    # ------------------------------------------------------------- steps

    @property
    def reach(self) -> float:
        """Distance in which the start may be from the solution, in the map's units."""
        return math.sqrt(2 * self.mirror_map.bregman_diameter(self.problem.dimension))

    def stage(
        self,
        records: tuple[int, int] | None,
        noise: VectorNoise,
        n_steps: int,
        learning_rate: float | None,
        batch: int | None = None,
    ) -> Stage:
        """A whole descent, with the declared step or by the rule of `Stage.step_size`."""
        if learning_rate is not None:
            return Stage(records, n_steps, learning_rate, strong_convexity=self.strong_convexity)
        size = self.noise_size(noise)
        smoothness = min(1.0, self.problem.loss.smoothness)
        if batch is not None:  # what the choice of the batch adds
            size = math.hypot(size, self.lipschitz / math.sqrt(batch))
        gradient = _GRADIENT[self.problem.loss.task] * self.clip
        largest = (gradient / size) ** 2 / smoothness if smoothness > 0 else math.inf
        return Stage(
            records, n_steps, largest, _REACH * self.reach, n_steps * size**2,
            self.strong_convexity,
        )  # fmt: skip

    def localized_step(self, n: int, left: Allowance) -> float:
        """Eta of AFKT21, Theorem 13: D / L min(1 / sqrt(n), L / (n |noise|))."""
        single = self.noise_size(self.noise(n, left, 1))
        reach = max(self.reach, 1e-50)  # 0 for a set of one point
        return reach / self.lipschitz * min(1 / math.sqrt(n), self.lipschitz / (n * single))


# ------------------------------------------------------------------------------- running


@dataclass(frozen=True)
class _Records:
    """Some of the records and what is minimized on them."""

    rows: Rows
    objective: Objective

    def take(self, which: slice | NDArray[np.intp]) -> _Records:
        """Those of a range or of a list of numbers."""
        y, offset, loss, clip = self.objective
        return _Records(self.rows.part(which), Objective(y[which], offset, loss, clip))

    def mean_gradient(self, coef: Array) -> Array:
        if self.rows.n_samples == 0:
            return np.zeros(self.rows.dimension)
        return self.rows.mean_gradient(coef, self.objective)

    def derivative(self, coef: Array) -> Array:
        """Clipped derivative at every record, without the row's scale."""
        y, offset, loss, clip = self.objective
        rows = self.rows
        z = rows.product(coef)
        if rows.center is not None:
            z = z - rows.center @ coef[: rows.n_columns]
        if rows.scale is not None:
            z = z * rows.scale
        return clipped(loss.derivative(z + offset, y), clip)

    def mean_change(self, coef: Array, before: Array, largest: float) -> Array:
        """Mean of the change of the gradients, each record's derivative's within `largest`.

        The clip makes the sensitivity hold whatever the loss and the floats do.
        """
        change = clipped(self.derivative(coef) - self.derivative(before), largest)
        if self.rows.scale is not None:
            change = change * self.rows.scale
        return self.rows.weighted_sum(change) / self.rows.n_samples


def _gradient_source(
    part: _Records, noise: VectorNoise, stream: RandomStream
) -> Callable[[Array], Array]:
    """The mean gradient at a point: over all records, or over a fresh batch at each call."""
    if not isinstance(noise, BatchGaussian):
        return part.mean_gradient
    part = _Records(part.rows.row_major(), part.objective)

    def batch_gradient(coef: Array) -> Array:
        batch = part.take(draw_batch(noise, stream))
        return batch.mean_gradient(coef) * (batch.rows.n_samples / noise.batch_size)

    return batch_gradient


def _descend(
    part: _Records,
    coef: Array,
    stage: Stage,
    noises: tuple[VectorNoise, ...],
    plan: MirrorDescentPlan,
    stream: RandomStream,
) -> Array:
    """Weighted mean of the points of a descent from `coef`."""
    (noise,) = noises
    gradient_at = _gradient_source(part, noise, stream)
    mirror_map, start = plan.mirror_map, coef
    center = start if stage.anchor > 0 else None
    total, weights, energy = np.zeros(coef.size), 0.0, 0.0
    for t in range(stage.n_steps):
        gradient = noise.release(gradient_at(coef), stream)
        if plan.l2_penalty > 0:
            gradient = gradient + plan.l2_penalty * coef
        if center is not None:
            gradient = gradient + stage.anchor * mirror_map.gradient(coef, center)
        energy += mirror_map.dual_norm(gradient) ** 2
        step = stage.step_size(t, energy)
        coef = mirror_map.step(coef, gradient, step, center, stage.within)
        weight = stage.weight(t)
        total += weight * coef
        weights += weight
    return total / weights


def _frank_wolfe(
    part: _Records,
    coef: Array,
    stage: Stage,
    noises: tuple[VectorNoise, ...],
    plan: MirrorDescentPlan,
    stream: RandomStream,
) -> Array:
    """Last point of a pass over disjoint batches with a recursive gradient estimate."""
    first, later = noises
    estimate = np.zeros(coef.size)
    before, start = coef, 0
    for t in range(stage.n_steps + 1):
        stop = start + (stage.batch if t else stage.first_batch)
        batch = part.take(slice(start, stop))
        if t == 0:
            estimate = first.release(batch.mean_gradient(coef), stream)
        else:
            change = batch.mean_change(coef, before, stage.largest_change)
            estimate = estimate + later.release(change, stream)
        target = plan.geometry.extreme_point(estimate + plan.l2_penalty * coef)
        before, coef = coef, coef + stage.learning_rate * (target - coef)
        start = stop
    return coef


# ------------------------------------------------- defaults: functions of public facts only


def _slices(n: int, count: int, *, growing: bool) -> list[tuple[int, int]]:
    """`count` slices of range(n), each about twice or half as long as the one before."""
    sizes = [2**i for i in range(count)]
    if not growing:
        sizes.reverse()
    ends = [n * total // (2**count - 1) for total in itertools.accumulate(sizes)]
    return list(zip([0, *ends[:-1]], ends, strict=True))


def _smallest(fits: Callable[[int], bool]) -> int:
    """The least n with fits(n), for a condition that larger n meet."""
    high = 1
    while not fits(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def _gradient_noise(problem: Problem, budget: PrivacyBudget, norm: float) -> float:
    """`gradient_noise` with the analysis that the plan uses."""
    return gradient_noise(problem, budget, norm, budget.gaussian_allowance.amount)


def _l2_radius(geometry: Geometry, dimension: int) -> float:
    """Largest l2 norm of a point of the set."""
    p = float(getattr(geometry, "p", 1.0))
    return geometry.radius * dimension ** max(0.0, 0.5 - 1 / p)


def default_feasible_set(problem: Problem, budget: PrivacyBudget) -> type[Geometry]:
    """The set of ``feasible_set="auto"``: the l1 ball where the noise drowns a dense truth."""
    if problem.n_features < _WIDE or budget.is_pure:
        return L2Ball
    noise = _gradient_noise(problem, budget, default_data_norm(problem))
    return L1Ball if noise > _DROWNING else L2Ball


def _geometry(problem: Problem, form: str) -> Geometry:
    """The declared set, or one of the default size."""
    kind = problem.feasible_set
    if isinstance(kind, Geometry):
        return kind
    if not kind.contains_origin:
        return kind(1.0)  # convex combinations
    radius = _RADIUS[problem.loss.task] * (_BOUNDARY if form == "noisy-sfw" else 1.0)
    if issubclass(kind, LInfBall):
        radius *= 1.5 / math.sqrt(problem.dimension)
    return kind(radius)


def _default_map(geometry: Geometry) -> str | None:
    return "power" if "power" in geometry.mirror_maps else None


def _iterations(problem: Problem) -> int:
    """More steps never hurt, as their noise averages out, but cost time."""
    affordable = int(4e8 / (problem.n_samples * problem.n_features))
    return min(_MOST_STEPS, max(affordable, 60))


def _batch_iterations(problem: Problem, size: int) -> int:
    """About ten passes over the records, within 200 to 2000 steps."""
    return min(2000, max(200, 10 * problem.n_samples // size))
