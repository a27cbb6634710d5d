r"""Gradient descent on a private mean of heavy-tailed gradients (KLZ22, Algorithms 1 and 2).

No bound on the data is needed. Before the descent, the plan may release a scale and a
centre for each column and for the target (`magnitudes`); in those units each step releases
the mean of the gradients l'(z_i, y_i) [x_i, 1] by an oracle that bounds what one record
adds (`oracles`), and takes a step of gradient descent with it.

``"scof"``
    Every step uses all records (the convex case of the paper).
``"scof-slices"``
    Every step uses new records, and has the whole budget for them (the strongly convex
    case).

The default oracle shrinks whole gradients to a norm tau. For rows times scalars that is a
bound tau / norm([x_i, 1]) on the derivative of record i: the descent minimizes a loss that
is l for ordinary records, and linear beyond the bound for records with extreme x or y.

The sensitivities are derived in doc/privacy, section 7.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._checks import check_real
from ..._progress import steps
from ...data.rows import Terms
from ...geometry import Geometry
from ...losses import Loss, bounded_clip
from ...mechanisms import Release, additive_noise
from ...privacy.budget import Composition, PrivacyBudget
from ...privacy.guarantee import Guarantee, selection_slack
from ...randomness.stream import RandomStream
from .. import sensitivity
from ..base import Piece, Plan, Problem, SolverData, SolverResult
from ..defaults import HEAVY_TAIL, affordable_steps
from .first import FirstMagnitudes, Noise, Units, row_smoothness
from .magnitudes import Columns, MagnitudeSearch, plan_search
from .oracles import Limits, MeanOracle, OracleFacts, default_threshold, make_oracle

__all__ = ["FORMS", "HeavyTail", "HeavyTailPlan"]

Array = NDArray[np.float64]

FORMS = ("scof", "scof-slices")

# Less noise by this factor is worth another analysis, as long as it is quickly found.
_WORTHWHILE, _MOST_STEPS = 1.005, 12
_LARGEST_DERIVATIVE = 2.0**300  # only keeps numbers finite: far beyond any useful clip


@dataclass(frozen=True)
class HeavyTailPlan(Plan):
    """Plan of `HeavyTail`; see `Plan` for the common fields.

    Attributes
    ----------
    geometry : Geometry
        The set that iterates are projected on, in released units, around the intercept.
    first : FirstMagnitudes
        What is released before the descent.
    oracle : MeanOracle or None
        The mean of the gradients; None if only an intercept is learned.
    steps : tuple of mechanisms
        What releases the mean gradients: one mechanism for all records, or one for each of
        the disjoint slices of them. Empty if only an intercept is learned.
    learning_rate : float
        For rows of the norm that they have in released units. Where the scales are guesses,
        `Units.speedup` corrects it.
    l2_penalty : float
    """

    geometry: Geometry
    first: FirstMagnitudes
    oracle: MeanOracle | None
    steps: tuple[Noise, ...]
    learning_rate: float
    l2_penalty: float

    def run(self, data: SolverData, stream: RandomStream) -> SolverResult:
        """See `Plan.run`."""
        problem = self.problem
        data, frame = self.first.run(data, stream)
        if not self.steps:
            return frame.result(np.zeros(problem.size), problem, 1)
        units = self.first.release_units(frame.weighted(data), stream.substream("magnitudes"))
        solution = _descend(units, frame.offset, self, stream)
        found = units.magnitudes
        frame = replace(frame, center=found.center, scale=found.scale)
        return replace(frame.result(solution, problem, self.max_iter), units=found)


@dataclass(frozen=True)
class HeavyTail:
    """Settings of the solver; `None` leaves a value to the plan.

    Parameters
    ----------
    form : {"scof", "scof-slices"}
    oracle : str
        One of `oracles.ORACLES`.
    moment_order : float >= 2
    moment_bound : float in [1e-50, 1e50]
    tau : float or None
    n_buckets : int or None
    max_iter : int or None
    learning_rate : float or None
    l2_penalty : float >= 0
    private_scale_X, private_center_X, private_scale_y, private_center_y : bool
        What the plan releases. Other scales are 1, other centres 0, in the units of the data.
    scale_share : float in [1e-6, 0.7] or None
        Largest share of the budget for the features' scales and centres.
    """

    form: str = "scof"
    oracle: str = "clipped"
    moment_order: float = 2.0
    moment_bound: float = 1.0
    tau: float | None = None
    n_buckets: int | None = None
    max_iter: int | None = None
    learning_rate: float | None = None
    l2_penalty: float = 0.0
    private_scale_X: bool = True
    private_center_X: bool = True
    private_scale_y: bool = True
    private_center_y: bool = True
    scale_share: float | None = None

    # ---------------------------------------------------------------- planning

    def check(
        self, loss: Loss, feasible_set: Geometry | type[Geometry], budget: PrivacyBudget
    ) -> None:
        """See `Solver.check`."""
        if not math.isfinite(loss.smoothness):
            raise ValueError(f"the heavy-tail solvers need a smooth loss, got {loss!r}")
        rules = HEAVY_TAIL[loss.task]
        if self.scale_share is not None:
            check_real("scale_share", self.scale_share, low=1e-6, high=rules.largest_share)
        geometry = feasible_set(1.0) if isinstance(feasible_set, type) else feasible_set
        if type(geometry).project is Geometry.project:
            raise ValueError(f"the heavy-tail solvers need a set with `project`, got {geometry!r}")

    def plan(self, problem: Problem, budget: PrivacyBudget) -> HeavyTailPlan:
        """Everything that a run does, from public facts alone; see `Solver.plan`."""
        self.check(problem.loss, problem.feasible_set, budget)
        draft, factor = self._draft(problem, budget), 1.0
        composition: Composition = draft.allowance.kind
        # few selections cost less than the Gaussian curve above them
        step = selection_slack(budget, draft.releases)
        for _ in range(_MOST_STEPS):
            if step <= _WORTHWHILE:
                break
            other = self._draft(problem, budget, factor * step)
            slack = selection_slack(budget, other.releases)
            if slack >= 1:
                draft, factor, step, composition = other, factor * step, slack, "adaptive-range"
            else:
                step = 1 + (step - 1) / 2
        return draft.finish(composition)

    def _draft(self, problem: Problem, budget: PrivacyBudget, factor: float = 1.0) -> _Draft:
        """A plan with all noise smaller by a factor than Gaussian DP alone allows."""
        draft = _Draft(problem, budget, self, factor)
        if not draft.plan_features() or draft.is_too_noisy():
            draft.forget_features()
        draft.plan_target()
        if draft.features is not None and draft.lacks_target_center():
            draft.forget_features()
            draft.plan_target()
        draft.plan_intercept()
        if draft.features is not None:
            draft.plan_row_norm()
            draft.plan_steps()
        return draft


class _Draft:
    """An unfinished plan: the decisions so far, and the share of the budget that is left."""

    def __init__(
        self, problem: Problem, budget: PrivacyBudget, solver: HeavyTail, factor: float
    ) -> None:
        self.problem, self.budget, self.solver = problem, budget, solver
        self.rules = HEAVY_TAIL[problem.loss.task]
        self.is_regression = problem.loss.task == "regression"
        selects = solver.private_scale_X or (self.is_regression and solver.private_scale_y)
        self.whole = budget.mixed_allowance if selects else budget.gaussian_allowance
        self.allowance = self.whole.share(factor**2)
        self.noise_kind = additive_noise(self.allowance)
        self.row_norm: Noise | None = None
        self.intercept: Noise | None = None
        self.oracle: MeanOracle | None = None
        self.steps: tuple[Noise, ...] = ()
        self.target_clip, self.learning_rate, self.max_iter = 0.0, 0.0, 0
        self.forget_features()

    def forget_features(self) -> None:
        """Back to the start, where nothing is released."""
        self.features: MagnitudeSearch | None = None
        self.target: MagnitudeSearch | None = None
        self.left = 1.0

    @property
    def has_given_steps(self) -> bool:
        """Whether the user set the number of steps, so that a descent is made in any case."""
        return self.solver.max_iter is not None

    def plan_features(self) -> bool:
        """Scales and centres of the features; False if their noise would be too large."""
        share = self.solver.scale_share or self.rules.feature_share
        self.features = self._search("X", self.problem.n_features, share, self.rules.guesswork)
        return self.features is not None

    def plan_target(self) -> None:
        """Scale and centre of the target."""
        if self.is_regression:
            rules = self.rules
            is_alone = self.features is None
            share = rules.target_share_alone if is_alone else rules.target_share
            n_targets = self.problem.n_outputs
            self.target = self._search("y", n_targets, share, rules.target_guesswork)

    def _search(
        self, which: str, n_columns: int, largest_share: float, guesswork: float
    ) -> MagnitudeSearch | None:
        solver, problem, factor = self.solver, self.problem, self.budget.record_factor
        what = "feature" if which == "X" else "target"
        search = plan_search(
            Columns(what, problem.n_samples, n_columns, factor, self.allowance, self.whole),
            private_center=getattr(solver, f"private_center_{which}") and problem.fit_intercept,
            private_scale=getattr(solver, f"private_scale_{which}"),
            largest_share=largest_share,
            largest_noise=math.inf if self.has_given_steps else guesswork,
        )
        self.left -= 0.0 if search is None else search.share
        return search

    def lacks_target_center(self) -> bool:
        """Whether the target's centre is to be released but too noisy with its share.

        The scale of a target that is not centred may be far above its spread, and so the noise.
        """
        is_wanted = self.solver.private_center_y and self.is_regression
        is_found = self.target is not None and self.target.n_rounds > 0
        return (
            is_wanted and self.problem.fit_intercept and not is_found and not self.has_given_steps
        )

    def plan_intercept(self) -> None:
        """The mean of the targets in units of their scale, or of the labels."""
        problem, rules, solver = self.problem, self.rules, self.solver
        if not problem.fit_intercept:
            return
        share = self.left if self.features is None else rules.intercept_share
        clip = 1.0
        if self.is_regression:
            noise = self._noise(1.0, 1)
            clip = default_threshold(noise, solver.moment_order, 4 * solver.moment_bound)
            clip = max(rules.least_target_clip, clip)
        self.target_clip = clip
        change = clip * sensitivity.target_mean(problem, self.budget, self.noise_kind.order)
        self.intercept = self.noise_kind.calibrate(
            change, self.allowance.share(share), dimension=problem.n_outputs
        )
        self.left -= share

    def plan_row_norm(self) -> None:
        """The mean logarithm of the norms, which shows how wrong guessed scales are."""
        if self.solver.private_scale_X or self.solver.learning_rate is not None:
            return
        part = self.allowance.share(self.rules.row_norm_share)
        change = self.rules.row_norm_octaves * sensitivity.unit_mean(self.problem, self.budget)
        self.row_norm = self.noise_kind.calibrate(change, part)
        self.left -= self.rules.row_norm_share

    def _noise(self, share: float, n_iter: int) -> float:
        """Noise in a coordinate of the mean of all gradients, if their norm is at most 1."""
        part = self.allowance.share(share)
        change = self.budget.record_factor / self.problem.n_samples
        if self.budget.is_pure:
            return change * math.sqrt(2 * n_iter) / part.amount
        return change / math.sqrt(2 * part.amount)

    def is_too_noisy(self) -> bool:
        """Whether the noise of the gradients is too large, and the user set no `max_iter`."""
        noise = self._noise(self.left, self._iterations()) * math.sqrt(self.problem.size)
        return noise > self.rules.too_noisy and not self.has_given_steps

    def _iterations(self) -> int:
        rules, problem = self.rules, self.problem
        if self.solver.form == "scof-slices":
            return min(self.solver.max_iter or rules.n_slices, problem.n_samples)
        if self.solver.max_iter is not None:
            return self.solver.max_iter
        if self.budget.is_pure:
            return rules.pure_steps
        return affordable_steps(problem, rules)

    def plan_steps(self) -> None:
        """The oracle, its noise, and the learning rate."""
        problem = self.problem
        self.max_iter = n_iter = self._iterations()
        n_slices = n_iter if self.solver.form == "scof-slices" else 1
        n_step = problem.n_samples // n_slices
        self.oracle = self._oracle(n_iter, n_step)
        change = self.oracle.sensitivity(
            n_step, problem.n_features, problem.size, self.budget.record_factor,
            self.noise_kind.order,
        )  # fmt: skip
        part = self.allowance.share(self.left)
        step = self.noise_kind.calibrate(change, part, n_iter // n_slices, dimension=problem.size)
        # a mechanism object for each slice, since audits identify mechanisms by object
        self.steps = tuple(replace(step) for _ in range(n_slices))
        self.learning_rate = self.solver.learning_rate or self._learning_rate(step, n_iter)

    def _oracle(self, n_iter: int, n_step: int) -> MeanOracle:
        problem, solver, rules = self.problem, self.solver, self.rules
        # the l2 norm of a row with second moments `second_moment`; for pure DP the l1 norm would
        # be larger, but a smaller clip was better in the benchmarks
        size = math.sqrt(rules.second_moment * problem.n_features + problem.fit_intercept)
        noise = self._noise(self.left, n_iter)
        tau, largest = solver.tau, bounded_clip(problem.loss, math.inf, math.inf)
        if tau is None and math.isfinite(largest):
            tau = rules.bounded_clip * largest * solver.moment_bound ** (1 / solver.moment_order)
            whole = noise * math.sqrt(problem.size)
            tau *= max(1.0, math.sqrt(rules.accurate / whole))
            tau *= size if solver.oracle == "clipped" else 1.0
        facts = OracleFacts(
            n_step, problem.size, noise, self.noise_kind.order, size,
            solver.moment_order, solver.moment_bound,
        )  # fmt: skip
        return make_oracle(solver.oracle, tau, solver.n_buckets, facts)

    def _learning_rate(self, step: Noise, n_iter: int) -> float:
        problem, rules = self.problem, self.rules
        smoothness = row_smoothness(problem.n_features, rules.smoothness)
        smoothness = problem.loss.smoothness * smoothness + self.solver.l2_penalty
        whole = math.sqrt(step.variance * problem.size)
        return min(
            1.9 / smoothness,
            rules.reach / (2 * whole * math.sqrt(n_iter)),
            rules.noise_energy**2 / (smoothness * whole**2),
        )

    @property
    def first(self) -> FirstMagnitudes:
        """What is released before the descent."""
        return FirstMagnitudes(
            self.problem, self.features, self.target, self.row_norm, self.intercept,
            self.target_clip,
        )  # fmt: skip

    @property
    def releases(self) -> list[Release]:
        """All of them."""
        return [*self.first.releases, *self._step_releases()]

    def finish(self, composition: Composition) -> HeavyTailPlan:
        """The plan, with the guarantee of all its releases."""
        problem, budget = self.problem, self.budget
        # A defect of the package: a negative share would lower the cost of a plan.
        if self.left < -1e-12:
            raise AssertionError("a plan spends more than its budget")
        kind = problem.feasible_set
        return HeavyTailPlan(
            problem,
            budget,
            self.solver.form,
            self.max_iter,
            guarantee=Guarantee.of(budget, self.releases, composition),
            geometry=kind if isinstance(kind, Geometry) else kind(self.rules.radius),
            first=self.first,
            oracle=self.oracle,
            steps=self.steps,
            learning_rate=self.learning_rate,
            l2_penalty=self.solver.l2_penalty,
        )

    def _step_releases(self) -> list[Release]:
        n_slices = len(self.steps)
        count = self.max_iter // n_slices if n_slices else 0
        return [
            Release("mean gradient", step, count, f"slice {k}" if n_slices > 1 else None)
            for k, step in enumerate(self.steps)
        ]


# ----------------------------------------------------------------------------- the descent


def _descend(units: Units, offset: Any, plan: HeavyTailPlan, stream: RandomStream) -> Array:
    """Mean of the second half of the iterates, shape (size,)."""
    rate, problem = plan.learning_rate * units.speedup, plan.problem
    coef = np.zeros(problem.size)
    total = np.zeros_like(coef)
    penalized = np.arange(problem.size) < problem.n_features * problem.n_outputs
    assert plan.oracle is not None
    terms = Terms(offset, problem.loss, _LARGEST_DERIVATIVE)
    parts = _slices(units.data, plan, stream.substream("slices"))
    stream = stream.substream("steps")
    for t in steps(range(plan.max_iter)):
        k = t % len(parts)
        sums = parts[k].sum_numbered(_gradient_sums, problem.matrix(coef), terms, plan.oracle)
        gradient = plan.oracle.mean_of(sums, parts[k].n_samples)
        noisy = plan.steps[k].release(gradient.ravel(), stream)
        moved = coef - rate * (noisy + plan.l2_penalty * np.where(penalized, coef, 0.0))
        coef = plan.geometry.project(moved)
        if t >= plan.max_iter // 2:
            total += coef
    return total / (plan.max_iter - plan.max_iter // 2)


def _slices(data: SolverData, plan: HeavyTailPlan, stream: RandomStream) -> list[Any]:
    """All records, or disjoint slices of them in a random order, with the oracle's limits."""
    limits = plan.oracle, plan.steps[0].order
    n_slices, n = len(plan.steps), data.n_samples
    if n_slices == 1:
        return [data.map(_limited, *limits).kept()]
    n_step, order = n // n_slices, stream.permutation(n)
    data = data.row_major().kept()
    slices = [np.sort(order[k * n_step : (k + 1) * n_step]) for k in range(n_slices)]
    return [data.part(which).map(_limited, *limits) for which in slices]


@dataclass(frozen=True)
class _Limited(Piece):
    """The records of a step, with numbers of each that the oracle needs."""

    data: SolverData
    limits: Limits | None

    @property
    def n_samples(self) -> int:
        return self.data.n_samples


def _limited(data: SolverData, oracle: MeanOracle, order: float) -> _Limited:
    return _Limited(data, oracle.limits(data.rows, order))


def _gradient_sums(
    part: _Limited, first: int, coef: Array, terms: Terms, oracle: MeanOracle
) -> Array:
    """The oracle's sums for l'(z_i, y_i) [x_i, 1]."""
    data = part.data
    return oracle.gradient_sums(data.rows, coef, data.objective(terms), part.limits, first)
