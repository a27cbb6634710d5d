r"""Noisy mirror descent in l_p geometry, its localized and proximal forms, and noisy Frank-Wolfe.

``"noisy-md"``
    Mirror descent on mean gradients with noise (BGN21 Algorithm 2; AFKT21 Algorithms 1
    and 5), over all records or over fresh random batches. With the Euclidean map it is
    projected noisy gradient descent.
``"localized"``
    Phases on disjoint slices of the records, each a mirror descent on the loss plus a
    regularizer about the last phase's result, within a ball that shrinks (AFKT21
    Algorithms 2 and 6).
``"proximal"``
    Rounds on disjoint slices, for losses that are not convex: each a mirror descent on the loss
    plus a proximal term about the last round's result, which makes it strongly convex (BGM21
    Algorithm 2).
``"noisy-sfw"``
    One pass of stochastic Frank-Wolfe with a recursive, noisy gradient estimate on
    disjoint batches (BGN21 Algorithm 3); for losses that are not convex in rounds of growing
    length, whose estimate forgets (BGM21 Algorithm 6).

All of them start from a private intercept and private feature means, and all are a list
of stages: a stage has a slice of the records (or all), its steps, and their noise.
Slices come from a secret uniform permutation and compose in parallel. For p > 2 the map is
the Euclidean one (BGN21 Proposition 13).

The sensitivities are derived in doc/privacy, sections 2.6, 3.5, 4 and 8.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...geometry import Geometry, L1Ball, L2Ball, LInfBall, MirrorMap
from ...losses import Loss, bounded_clip, largest_constant
from ...mechanisms import BatchGaussian, Gaussian, Release, vector_mechanism
from ...mechanisms.batch import calibrate_batches
from ...privacy.budget import Allowance, Composition, PrivacyBudget
from ...privacy.guarantee import Guarantee
from ...randomness.subsets import RandomBatches
from .. import defaults, sensitivity
from ..base import Problem
from ..defaults import MIRROR_DESCENT, MirrorDescentDefaults
from ..first_releases import FirstReleases, plan_first
from ..slices import fast_restarts, slices, smallest
from ..unit_descent import (
    UnitDescentPlan,
    check_free,
    is_best,
    plan_unit_descent,
)
from .stages import MirrorDescentPlan, Round, Stage, VectorNoise

__all__ = ["FORMS", "MirrorDescent"]

FORMS = ("learned-units", "noisy-md", "localized", "proximal", "noisy-sfw")


@dataclass(frozen=True)
class MirrorDescent:
    """Settings of the solver; `None` leaves a value to the plan.

    Parameters
    ----------
    form : {"auto", "learned-units", "noisy-md", "localized", "proximal", "noisy-sfw"}
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
        "localized", and the rounds of "proximal".
    radius : float or None
        Radius of the set, where the plan chooses the kind of set.
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
    radius: float | None = None
    n_restarts: int | None = None

    # ---------------------------------------------------------------- planning

    def check(
        self, loss: Loss, feasible_set: Geometry | type[Geometry], budget: PrivacyBudget
    ) -> None:
        """See `Solver.check`."""
        form = self._form
        if budget.is_pure:
            raise ValueError(
                "mirror descent has no pure-DP form (delta=0); "
                "DPLassoFW(solver='selection') and its classifier have one"
            )
        p = float(getattr(feasible_set, "p", 1.0))
        if form == "learned-units":
            check_free(loss, nothing_declared=self._declares_nothing(feasible_set))
        if form == "noisy-sfw" and p > 2:
            raise ValueError(
                f"solver='noisy-sfw' needs p <= 2, got p={p:g}: use 'noisy-md' or 'localized'"
            )
        if form == "noisy-sfw" and not loss.is_convex:
            named = {"max_iter": self.max_iter, "learning_rate": self.learning_rate}
            for name, value in named.items():
                if value is not None:
                    raise ValueError(
                        f"{name} must be 'auto' with solver='noisy-sfw' and a loss that is not "
                        f"convex, whose rounds have steps of their own; got {value!r}"
                    )
        if form == "proximal" and math.isinf(loss.weak_convexity):
            raise ValueError(
                "solver='proximal' needs a convex or weakly convex loss: declare `is_convex`, or a "
                f"finite `smoothness` or `weak_convexity`; got {loss!r}"
            )
        if self.batch_size is not None and form != "noisy-md":
            raise ValueError(f"batch_size is for solver='noisy-md', not for {form!r}")
        if self.batch_size is not None and (self.n_restarts or 1) > 1:
            raise ValueError("n_restarts is not for random batches: it needs batch_size=None")
        candidates: tuple[Any, ...] = (feasible_set,)
        if feasible_set is Geometry:
            candidates = (L2Ball, L1Ball)  # the plan may choose either
        for candidate in candidates:
            self._map(candidate(1.0) if isinstance(candidate, type) else candidate)

    def plan(self, problem: Problem, budget: PrivacyBudget) -> MirrorDescentPlan | UnitDescentPlan:
        """Everything that a run does, from public facts alone; see `Solver.plan`."""
        self.check(problem.loss, problem.feasible_set, budget)
        if self._learns_units(problem, budget):
            return plan_unit_descent(problem, budget, self.max_iter)
        self._check_size(problem.n_samples)
        facts = self._facts(problem, budget)
        allowance = budget.gaussian_allowance
        first = plan_first(
            problem, budget, facts.norm, allowance, may_shrink=facts.geometry.contains_origin
        )
        left = allowance.share(first.left)
        stages: Sequence[Stage | Round]
        composition: Composition | None = None
        if self._form == "noisy-md" and self.batch_size not in (None, problem.n_samples):
            stages, composition = self._plan_batches(facts, first, left)
        else:
            plan_run: Callable[..., Sequence[Stage | Round]] = {
                "noisy-md": self._plan_descent,
                "localized": self._plan_phases,
                "proximal": self._plan_rounds,
                "noisy-sfw": self._plan_frank_wolfe,
            }[self._form]
            runs = self._runs(problem.n_samples)
            stages = [stage for run in runs for stage in plan_run(facts, run, left)]
        releases = [*first.releases, *(r for stage in stages for r in stage.releases)]
        guarantee = Guarantee.of(budget, releases, composition or allowance.kind)
        return MirrorDescentPlan(
            problem,
            budget,
            self._form,
            sum(stage.n_steps for stage in stages),
            guarantee,
            geometry=facts.geometry,
            mirror_map=facts.mirror_map,
            gradient_clip=facts.clip,
            l2_penalty=facts.penalty,
            stages=tuple(stages),
            first=first,
            draws_result=self._form in ("proximal", "noisy-sfw") and not problem.loss.is_convex,
        )

    @property
    def _form(self) -> str:
        return "noisy-md" if self.form == "auto" else self.form

    def _declares_nothing(self, feasible_set: Geometry | type[Geometry]) -> bool:
        """Whether set, clip, row norm, step, penalty and batches are left to the plan."""
        return self == MirrorDescent(self.form, self.max_iter) and feasible_set is Geometry

    def _learns_units(self, problem: Problem, budget: PrivacyBudget) -> bool:
        """Whether the descent is in learned units: by default, if that is possible and pays."""
        if self.form != "auto":
            return self.form == "learned-units"
        return self._declares_nothing(problem.feasible_set) and is_best(problem, budget)

    def _map(self, geometry: Geometry) -> MirrorMap:
        """The declared mirror map, or "power" where the set has it."""
        kind = self.mirror_map or ("power" if "power" in geometry.mirror_maps else None)
        mirror_map = geometry.mirror_map(kind)
        if self._form in ("localized", "proximal") and not mirror_map.has_center:
            raise ValueError(f"solver={self._form!r} cannot use mirror_map={self.mirror_map!r}")
        return mirror_map

    def _check_size(self, n: int) -> None:
        if self.batch_size is not None and self.batch_size > n:
            raise ValueError(
                f"batch_size={self.batch_size} is larger than the number of samples {n}; "
                f"the smallest n that works is {self.batch_size}"
            )
        if not self._fits(n):
            raise ValueError(
                f"n_samples={n} leaves a slice of solver={self._form!r}, "
                f"n_restarts={self._restarts(n)} empty; "
                f"the smallest n that works with these settings is {self.least_samples}"
            )

    @property
    def least_samples(self) -> int:
        """The least n whose slices and batches are not empty."""
        return max(self.batch_size or 1, smallest(self._fits))

    def _fits(self, n: int) -> bool:
        """Whether no slice or batch is empty."""
        for start, stop in self._runs(n):
            if self._form == "localized":
                phases = slices(stop - start, self.n_phases or 1, growing=False)
                if any(low == high for low, high in phases):
                    return False
            if self._form == "proximal" and stop - start < (self.n_phases or 1):
                return False
            # a Frank-Wolfe run has one batch more than steps
            if stop - start <= (self.max_iter or 1) * (self._form == "noisy-sfw"):
                return False
        return True

    def _runs(self, n: int) -> list[tuple[int, int]]:
        return slices(n, self._restarts(n), growing=True)

    def _restarts(self, n: int) -> int:
        if self.n_restarts is not None:
            return self.n_restarts
        # "noisy-md" and the rounds of "proximal" have the fast rate without slices, by their step
        # sizes and weights (section 4.4)
        if self.l2_penalty == 0 or self._form in ("noisy-md", "proximal"):
            return 1
        return fast_restarts(n)

    def _facts(self, problem: Problem, budget: PrivacyBudget) -> _Facts:
        rules = MIRROR_DESCENT[problem.loss.task]
        norm = self.data_norm or defaults.data_norm(problem)
        geometry = self._geometry(problem, budget, rules)
        noise = _gradient_noise(problem, budget, norm)
        clip = self.gradient_clip
        clip = clip or defaults.growing_clip(problem, rules.smallest_clip, noise, rules.accurate)
        largest = norm * _l2_radius(geometry, problem.size)
        largest += largest_constant(problem.loss)
        clip = bounded_clip(problem.loss, clip, largest)
        penalty = float(self.l2_penalty)
        return _Facts(problem, budget, rules, geometry, self._map(geometry), norm, clip, penalty)

    def _geometry(
        self, problem: Problem, budget: PrivacyBudget, rules: MirrorDescentDefaults
    ) -> Geometry:
        """The declared set, or one of the default kind and size."""
        kind, radius = problem.feasible_set, None
        if isinstance(kind, Geometry):
            return kind
        if kind is Geometry:
            kind, radius = _default_kind(problem, budget, rules), self.radius
        if not kind.contains_origin:
            return kind(1.0)  # convex combinations
        if radius is None:
            radius = rules.radius * (rules.boundary if self._form == "noisy-sfw" else 1.0)
            if issubclass(kind, LInfBall):
                radius *= 1.5 / math.sqrt(problem.size)
        return kind(radius)

    def _plan_descent(self, facts: _Facts, run: tuple[int, int], left: Allowance) -> list[Stage]:
        n_steps = self.max_iter or defaults.affordable_steps(facts.problem, facts.rules)
        noise = facts.noise(run[1] - run[0], left, n_steps)
        records = None if run == (0, facts.problem.n_samples) else run
        return [facts.stage(records, noise, n_steps, self.learning_rate)]

    def _plan_batches(
        self, facts: _Facts, first: FirstReleases, left: Allowance
    ) -> tuple[list[Stage], Composition]:
        """Noise on random batches, calibrated by an accountant that counts the sampling."""
        problem, budget, size = facts.problem, facts.budget, int(self.batch_size or 0)
        n_steps = self.max_iter or _batch_iterations(problem, size)
        fixed = budget.relation == "replace-one"
        sampling = RandomBatches(problem.n_samples, size, "fixed" if fixed else "poisson")
        change = facts.clip * sensitivity.batch_mean(problem, budget, facts.norm, size)

        def make(multiplier: float) -> BatchGaussian:
            allowance = Allowance("gdp", 1 / (2 * multiplier**2), budget.precision)
            noise = Gaussian.calibrate(change, allowance, dimension=problem.size)
            return BatchGaussian(
                noise.sensitivity, noise.scale, noise.dimension, noise.precision, sampling=sampling
            )

        def releases(noise: BatchGaussian) -> tuple[Release, ...]:
            return (*first.releases, Release("batch gradient", noise, n_steps))

        enough = math.sqrt(n_steps / (2 * left.amount))
        noise, composition = calibrate_batches(budget, make, releases, enough)
        return [facts.stage(None, noise, n_steps, self.learning_rate)], composition

    def _plan_phases(self, facts: _Facts, run: tuple[int, int], left: Allowance) -> list[Stage]:
        """Phase i = 0, 1, ...: about 2^-i of the records, and an eta that falls by 4^-i.

        AFKT21 let it fall by 16^-i, as their phases have a share of the budget that halves.
        """
        start, stop = run
        n = stop - start
        n_phases = self.n_phases or min(facts.rules.most_phases, int(math.log2(n + 1)))
        n_steps = self.max_iter or defaults.affordable_steps(facts.problem, facts.rules)
        eta = self.learning_rate or facts.localized_step(n, left)
        stages = []
        for i, (low, high) in enumerate(slices(n, n_phases, growing=False)):
            noise = facts.noise(high - low, left, n_steps)
            horizon = eta * 4.0**-i * (high - low)
            part = (start + low, start + high)
            stages.append(facts.anchored_stage(part, noise, n_steps, 2 / horizon))
        return stages

    def _plan_rounds(self, facts: _Facts, run: tuple[int, int], left: Allowance) -> list[Stage]:
        """Rounds on slices of equal size."""
        start, stop = run
        n = stop - start
        n_rounds = self.n_phases or facts.proximal_rounds(n, left)
        affordable = defaults.affordable_steps(facts.problem, facts.rules)
        n_steps = self.max_iter or max(facts.rules.round_steps, affordable // n_rounds)
        anchor = 2 * facts.proximal_curvature
        most = self.learning_rate or math.inf
        ends = [start + n * k // n_rounds for k in range(n_rounds + 1)]
        return [
            facts.anchored_stage(
                (low, high), facts.noise(high - low, left, n_steps), n_steps, anchor, most
            )
            for low, high in itertools.pairwise(ends)
        ]

    def _plan_frank_wolfe(
        self, facts: _Facts, run: tuple[int, int], left: Allowance
    ) -> list[Stage] | list[Round]:
        """The best number of batches among 1, 2, 4, ... up to about the root of n."""
        if not facts.problem.loss.is_convex:
            return _growing_rounds(facts, run, left)
        n = run[1] - run[0]
        counts = [2**k for k in range(1 + int(math.log2(math.isqrt(n))))]
        if self.max_iter is not None:
            counts = [self.max_iter]
        plans = [self._frank_wolfe_stage(facts, run, left, n_steps) for n_steps in counts]
        return [min(plans, key=lambda plan: plan[1])[0]]

    def _frank_wolfe_stage(
        self, facts: _Facts, run: tuple[int, int], left: Allowance, n_steps: int
    ) -> tuple[Stage, float]:
        """A pass in `n_steps` steps, and its error from noise plus that from few steps."""
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
        direction = facts.rules.direction
        if self.learning_rate is None and error > direction:
            eta *= direction / error  # shorter steps where the direction is mostly noise
            change, noise, error = later(eta)
        stage = Stage(
            (first_noise, noise), run, n_steps, eta,
            first_batch=first, batch=batch, largest_change=change,
        )  # fmt: skip
        return stage, error + 1 / n_steps


@dataclass(frozen=True)
class _Facts:
    """Public facts that the plans of all forms use."""

    problem: Problem
    budget: PrivacyBudget
    rules: MirrorDescentDefaults
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
        return self.mirror_map.dual_exponent(self.problem.size)

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
        diameter = 2 * _l2_radius(self.geometry, self.problem.size)
        return self.norm * diameter

    @property
    def weak_convexity(self) -> float:
        """That of the objective in the map's norm: abs(<row, v>) is at most row_norm norm(v)."""
        return self.problem.loss.weak_convexity * self.row_norm**2

    @property
    def strong_convexity(self) -> float:
        """That of the penalty, relative to the map; counted as 0 for maps with p < 2."""
        is_euclidean = self.mirror_map.exponent(self.problem.size) == 2
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
        problem, d = replace(self.problem, n_samples=n), self.problem.size
        change = clip * sensitivity.row_mean(problem, self.budget, self.norm)
        gaussian = Gaussian.calibrate(change, allowance, count, d)
        q = self.dual_exponent
        if allowance.precision == "exact" or q == 2:
            return gaussian
        change = clip * sensitivity.row_mean_in_norm(
            problem, self.budget, self.row_norm, self.box, q
        )
        shaped = vector_mechanism(q, change, allowance, count, d)
        return min(gaussian, shaped, key=self.noise_size)

    def noise_size(self, noise: VectorNoise) -> float:
        """Expected dual norm of the noise."""
        return noise.expected_norm(self.dual_exponent)

    # ------------------------------------------------------------- steps

    @property
    def reach(self) -> float:
        """Largest distance of the start from the solution, in the map's units."""
        return math.sqrt(2 * self.mirror_map.bregman_diameter(self.problem.size))

    def stage(
        self,
        records: tuple[int, int] | None,
        noise: VectorNoise,
        n_steps: int,
        learning_rate: float | None,
    ) -> Stage:
        """A whole descent, with the declared step or by the rule of `Stage.step_size`."""
        if learning_rate is not None:
            return Stage(
                (noise,), records, n_steps, learning_rate, strong_convexity=self.strong_convexity
            )
        size = self.noise_size(noise)
        smoothness = min(1.0, self.problem.loss.smoothness)
        if noise.batches is not None:  # plus the variation of the mean over the batch
            size = math.hypot(size, self.lipschitz / math.sqrt(noise.batches.batch_size))
        gradient = self.rules.gradient * self.clip
        largest = (gradient / size) ** 2 / smoothness if smoothness > 0 else math.inf
        return Stage(
            (noise,), records, n_steps, largest, self.rules.reach * self.reach,
            n_steps * size**2, self.strong_convexity,
        )  # fmt: skip

    def anchored_stage(
        self, records: tuple[int, int], noise: VectorNoise, n_steps: int, anchor: float,
        learning_rate: float = math.inf,
    ) -> Stage:  # fmt: skip
        """A descent on the loss plus `anchor` times the map about its start."""
        power = self.mirror_map.exponent(self.problem.size)
        # contains the minimizer: beyond it the regularizer grows more than the loss can fall
        within = 2 * self.lipschitz * (power - 1) / anchor
        reach = self.rules.reach * within / math.sqrt(power - 1)
        energy = n_steps * self.noise_size(noise) ** 2
        convexity = anchor + self.strong_convexity
        if self.weak_convexity < convexity:
            convexity -= self.weak_convexity
        else:  # too small an anchor to make the objective convex
            convexity = 0.0
        return Stage(
            (noise,), records, n_steps, learning_rate, reach, energy, convexity, anchor, within
        )

    def round(self, records: tuple[int, int], batches: tuple[int, ...], left: Allowance) -> Round:
        """The round on those batches, with its clips and noise."""
        smoothness, terms = self.problem.loss.smoothness, [self.clip]
        for t in range(1, len(batches)):
            weight = Round.weight(t)
            change = smoothness * Round.weight(t - 1) * self.largest_move
            most = (2 - weight) * self.clip
            terms.append(min(most, (1 - weight) * change + weight * self.clip))
        noises = tuple(
            self.noise(size, left, 1, term) for size, term in zip(batches, terms, strict=True)
        )
        return Round(noises, records, len(batches), batches, tuple(terms))

    def round_error(self, part: Round) -> float:
        """Root mean square of the estimate's error over its steps, in Lipschitz constants."""
        variance, total = 0.0, 0.0
        for t, (noise, size, term) in enumerate(
            zip(part.noises, part.batches, part.largest_terms, strict=True)
        ):
            kept = 1 - part.weight(t)
            variation = (term * self.row_norm) ** 2 / size
            variance = kept**2 * variance + self.noise_size(noise) ** 2 + variation
            total += variance
        return math.sqrt(total / part.n_steps) / self.lipschitz

    @property
    def diameter(self) -> float:
        """That of the set in the map's norm."""
        power = self.mirror_map.exponent(self.problem.size)
        return max(2 * self.reach * math.sqrt(power - 1), 1e-50)  # 0 for a set of one point

    @property
    def proximal_curvature(self) -> float:
        """The weak convexity, or that of a term which is the loss's variation over the set.

        Below the latter a proximal term would hardly hold a model.
        """
        return max(self.weak_convexity, self.lipschitz / self.diameter)

    def proximal_rounds(self, n: int, left: Allowance) -> int:
        """R of BGM21, Theorem 16, with the noise of the plan in the place of the paper's."""
        kappa = 1 / (self.mirror_map.exponent(self.problem.size) - 1)
        ratio = self.diameter * self.proximal_curvature / self.lipschitz
        single = self.noise_size(self.noise(n, left, 1)) / self.lipschitz
        n_rounds = min(math.sqrt(n * ratio / kappa), (ratio / single**2) ** (1 / 3))
        return max(1, min(int(n_rounds), defaults.MOST_PHASES, n))

    def localized_step(self, n: int, left: Allowance) -> float:
        """Eta of AFKT21, Theorem 13: D / L min(1 / sqrt(n), L / (n |noise|))."""
        single = self.noise_size(self.noise(n, left, 1))
        reach = max(self.reach, 1e-50)  # 0 for a set of one point
        return reach / self.lipschitz * min(1 / math.sqrt(n), self.lipschitz / (n * single))


# ------------------------------------------------- defaults: functions of public facts only


def _growing_rounds(facts: _Facts, run: tuple[int, int], left: Allowance) -> list[Round]:
    """Rounds r = 0, 1, ... of 2^r steps, step t on floor(b / (t + 1)) records.

    Their number is the best by the error of the estimate in the last round, from noise and from the
    variation of the records, plus that of few steps.
    """
    start, stop = run

    def batches(b: int, r: int) -> tuple[int, ...]:
        return tuple(b // (t + 1) for t in range(2**r))

    def used(b: int, count: int) -> int:
        return sum(sum(batches(b, r)) for r in range(count))

    best: tuple[float, list[Round]] = (math.inf, [])
    for count in range(1, facts.rules.growing_rounds + 1):
        if used(2 ** (count - 1), count) > stop - start:  # some batch would be empty
            break
        b = smallest(lambda b, count=count: used(b + 1, count) > stop - start)  # type: ignore[misc]
        ends = [start + used(b, r) for r in range(count + 1)]
        rounds = [
            facts.round(part, batches(b, r), left)
            for r, part in enumerate(itertools.pairwise(ends))
        ]
        error = facts.round_error(rounds[-1]) + 2 ** (-(count - 1) / 2)
        best = min(best, (error, rounds), key=lambda plan: plan[0])
    return best[1]


def _gradient_noise(problem: Problem, budget: PrivacyBudget, norm: float) -> float:
    """`defaults.gradient_noise` with the analysis that the plan uses."""
    return defaults.gradient_noise(problem, budget, norm, budget.gaussian_allowance.amount)


def _l2_radius(geometry: Geometry, dimension: int) -> float:
    """Largest l2 norm of a point of the set."""
    p = float(getattr(geometry, "p", 1.0))
    return geometry.radius * dimension ** max(0.0, 0.5 - 1 / p)


def _default_kind(
    problem: Problem, budget: PrivacyBudget, rules: MirrorDescentDefaults
) -> type[Geometry]:
    """The l1 ball for many features and large noise, which suits a sparse model; else l2."""
    if problem.n_features < rules.wide:
        return L2Ball
    noise = _gradient_noise(problem, budget, defaults.data_norm(problem))
    return L1Ball if noise > rules.drowning else L2Ball


def _batch_iterations(problem: Problem, size: int) -> int:
    """The steps of about ten passes over the records, but 200 to 2000."""
    return min(2000, max(200, 10 * problem.n_samples // size))
