r"""Gradient descent on a private mean of heavy-tailed gradients (KLZ22, Algorithms 1 and 2).

No bound on the data is needed. The plan may release scales and centres of the columns and of the
target (`magnitudes`); in those units each step releases the mean of the gradients by an oracle
that bounds what one record adds (`oracles`). The default one shrinks whole gradients to a norm
tau, and so bounds the derivative of record i by tau / norm([x_i, 1]): the loss becomes linear
beyond that. Sensitivities: doc/privacy, section 7.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ..._checks import auto_or, check_choice, check_count, check_real
from ..._progress import steps
from ..._types import Array, Auto, Oracle
from ...data.bounds import FeatureScaling
from ...data.rows import Rows, SolverData, Terms
from ...geometry import AnySet, Geometry, L2Ball
from ...losses import Loss, bounded_clip
from ...mechanisms import Release, additive_noise
from ...privacy.budget import PrivacyBudget
from ...privacy.guarantee import Guarantee
from ...randomness.stream import RandomStream
from .. import base, statistics
from ..base import Frame, Part, Plan, Problem, Solver, SolverResult, named_releases, releases_of
from ..defaults import HEAVY_TAIL, MOST_SCALE_SHARE, MOST_SLICES, affordable_steps
from ..learned_units import Purse
from ..records import in_box
from ..unit_descent import Descent, UnitDescentPlan, knows
from . import magnitudes, oracles

# These only keep numbers finite: far beyond any useful clip
_LARGEST_DERIVATIVE, _TARGET_BOX = 2.0**300, 2.0**100


@dataclass(frozen=True)
class FirstMagnitudes(Part):
    """The releases before the descent: scales, centres, intercept; None if not released.

    Attributes
    ----------
    problem : Problem
    features, target : MagnitudeSearch or None
        How scales and centres are released.
    row_norm : Gaussian, Laplace or None
        For the mean logarithm of the rows' norms.
    intercept : Gaussian, Laplace or None
        For the mean of the targets.
    target_clip : float
        Regression: bound on the centred and scaled targets in the intercept.
    """

    problem: Problem
    features: magnitudes.MagnitudeSearch | None
    target: magnitudes.MagnitudeSearch | None
    row_norm: magnitudes.Noise | None
    intercept: magnitudes.Noise | None
    target_clip: float

    @property
    def releases(self) -> tuple[Release, ...]:
        noises = ("mean target", self.intercept, 1), ("mean log norm", self.row_norm, 1)
        return (*releases_of(self.features, self.target), *named_releases(*noises))

    def run(self, data: SolverData, stream: RandomStream) -> tuple[SolverData, Frame, float]:
        """Targets and features in released units, the frame, and a factor on the learning rate.

        Features as they are where only an intercept is learned. The factor is the planned
        smoothness over that of the rows' norms.
        """
        center: Any = 0.0
        scale: Any = 1.0
        problem = self.problem
        if self.target is not None:
            targets = data.map(magnitudes.targets_as_rows)
            found = self.target.run(targets, stream.substream("target"))
            center, scale = found.center, found.scale
            if problem.n_outputs == 1:
                center, scale = float(center[0]), float(scale[0])
        if problem.loss.task == "regression":
            data = data.map(statistics.in_target_units, center, scale, _TARGET_BOX)
        frame = Frame()
        if self.intercept is not None:
            mean = data.sum(statistics.target_sum, problem, self.target_clip) / data.n_samples
            noisy = self.intercept.release(mean, stream.substream("intercept"))
            prior, variance = HEAVY_TAIL[problem.loss.task].target_prior, self.intercept.variance
            frame = statistics.constant_for_mean(problem, noisy, variance, prior, self.target_clip)
        frame = replace(frame, target_center=center, target_scale=scale)
        if self.features is None:
            return data, frame, 1.0
        data, stream = frame.weighted(data), stream.substream("magnitudes")
        found = self.features.run(data, stream)
        frame = replace(frame, center=found.center, scale=found.scale)
        data = data.map(in_box, found.center, found.scale, magnitudes.BOX)
        if self.row_norm is None:
            return data, frame, 1.0
        rules = HEAVY_TAIL[problem.loss.task]
        most, smoothness = rules.row_norm_octaves, rules.smoothness * problem.n_features
        mean = data.sum(_log_norm_sum, most) / data.n_samples
        octaves = float(np.clip(self.row_norm.release(mean, stream)[0], -most, most))
        speedup = (smoothness + 1) / (smoothness * 4.0**octaves + 1)
        return data, frame, min(rules.largest_speedup, speedup)


@dataclass(frozen=True)
class HeavyTailPlan(Plan):
    """Plan of `SCOF`; see `Plan` for the common fields.

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
        `FirstMagnitudes.run` corrects it.
    l2_penalty : float
    """

    geometry: Geometry
    first: FirstMagnitudes
    oracle: oracles.MeanOracle | None
    steps: tuple[magnitudes.Noise, ...]
    learning_rate: float
    l2_penalty: float

    def run(self, data: SolverData, stream: RandomStream) -> SolverResult:
        problem = self.problem
        data, frame, speedup = self.first.run(data, stream)
        if self.oracle is None:
            return frame.result(np.zeros(problem.size), problem, 1)
        rate = self.learning_rate * speedup
        terms = Terms(frame.offset, problem.loss, _LARGEST_DERIVATIVE)
        parts = _slices(data, self, stream.substream("slices"))
        stream = stream.substream("steps")
        coef, total = np.zeros(problem.size), np.zeros(problem.size)
        penalized = np.arange(problem.size) < problem.n_features * problem.n_outputs
        for t in steps(range(self.max_iter)):
            k, point = t % len(parts), coef.reshape(problem.shape)
            sums = parts[k].sum_numbered(self.oracle.gradient_sums, point, terms)
            gradient = self.oracle.mean_of(sums, parts[k].n_samples)
            noisy = self.steps[k].release(gradient.ravel(), stream)
            moved = coef - rate * (noisy + self.l2_penalty * np.where(penalized, coef, 0.0))
            coef = self.geometry.project(moved)
            if t >= self.max_iter // 2:
                total += coef
        mean = total / (self.max_iter - self.max_iter // 2)
        center, scale = np.asarray(frame.center), np.asarray(frame.scale)
        far = magnitudes.BOX * scale
        units = FeatureScaling(center - far, center + far, center, scale)
        return replace(frame.result(mean, problem, self.max_iter), units=units)


@dataclass(frozen=True)
class UnboundedDescentPlan(UnitDescentPlan):
    """Plan of `UnboundedDescent`; see `UnitDescentPlan` for the other fields.

    Attributes
    ----------
    feature_reach, target_reach : ReachSearch or None
        How far features and targets reach, which is released before the units; None where scales
        are public guesses.
    learns_center : bool
        Whether the centre of the rows is that of the model's units.
    """

    feature_reach: magnitudes.ReachSearch | None
    target_reach: magnitudes.ReachSearch | None
    learns_center: bool

    def run(self, data: SolverData, stream: RandomStream) -> SolverResult:
        problem, of_reach = self.problem, stream.substream("reach")
        d, target = problem.n_features, np.full(problem.n_outputs, magnitudes.BOX)
        typical, reach = np.ones(d), np.full(d, magnitudes.BOX)
        if self.target_reach is not None:
            targets = data.map(magnitudes.targets_as_rows)
            _, target = self.target_reach.run(targets, of_reach.substream("target"))
        if self.feature_reach is not None:
            typical, reach = self.feature_reach.run(data, of_reach.substream("features"))
        # features and targets over how far they reach, in [-1, 1]
        frame = Frame(center=np.zeros(d), scale=reach)
        data = data.map(in_box, frame.center, frame.scale, 1.0)
        if problem.loss.task == "regression":
            scale = target if problem.n_outputs > 1 else float(target[0])
            data = data.map(statistics.in_target_units, 0.0, scale, 1.0)
            frame = replace(frame, target_scale=scale)
        result = super().run(data.kept(), stream)
        # where a user's guess is the centre, another one is found for the descent alone
        center = np.zeros(d)
        if self.learns_center and result.frame.center is not None:
            center = reach * result.frame.center
        units = FeatureScaling(-reach, reach, center, typical)
        coef, intercept = frame.plain(result.coef, result.intercept)
        inner = replace(result.frame, outer=frame)
        return replace(result, coef=coef, intercept=intercept, frame=inner, units=units)


@dataclass(kw_only=True, repr=False, eq=False)
class SCOF(Solver):
    """Gradient descent on private means of heavy-tailed gradients (KLZ22, Algorithms 1 to 4).

    Each step uses all records.

    Parameters
    ----------
    max_iter : "auto" or int in [1, 1e9], default="auto"
        Number of steps T. A number also has the coefficients learned however noisy they are.
    learning_rate : "auto" or float in [1e-50, 1e50], default="auto"
        Step size in scaled units. "auto" follows from the noise.
    oracle : {"clipped", "median-of-means", "smoothed", "coordinate-clipped"}, default="clipped"
        The mean of the gradients: whole gradients shrunk to the norm tau; or, coordinate by
        coordinate, medians of means of clipped values (KLZ22 Algorithm 3), smooth truncation
        (Algorithm 4), or clipping. The first needs the least noise.
    moment_order : float >= 2, default=2.0
        k, the order of the moments of the gradients' coordinates that are bounded. It decides on
        tau, unless that is declared, and in regression on the clip of the target's mean: the
        larger k, the smaller they usually are. For a loss whose derivative is bounded, tau depends
        on it only through moment_bound^(1 / k).
    moment_bound : float in [1e-50, 1e50], default=1.0
        Bound on the k-th moment of a coordinate, in scaled units.
    tau : "auto" or float in [1e-50, 1e50], default="auto"
        Size of the gradients that pass unchanged, in scaled units: for "clipped" their norm (l2,
        or l1 with delta=0); for "median-of-means" and "coordinate-clipped", coordinates pass up
        to 3 tau; for "smoothed", those far below tau pass nearly unchanged. "auto" balances the
        bias of the clipping with the noise.
    n_buckets : "auto" or int in [1, 1e15], default="auto"
        Number of the means of "median-of-means". "auto" grows like the logarithm of the number
        of features.
    scale_share : "auto" or float in [1e-6, 0.7], default="auto"
        Largest share of the budget for the scales and centres of the features, unless both are
        declared; "auto" is 0.3. Less is spent where that is enough; what was spent is in
        `guarantee_`. If the share is too small to tell the scales from noise, only an intercept is
        learned. In regression those of the target take at most another 0.12, or 0.6 where only an
        intercept is learned.
    l2_penalty : float in [0, 1e50], default=0.0
        Adds l2_penalty / 2 times the squared norm of the scaled coefficients, without the
        intercept.
    """

    form = "scof"
    checks = {
        "oracle": partial(check_choice, choices=oracles.ORACLES),
        "scale_share": partial(auto_or, check_real, low=1e-6, high=MOST_SCALE_SHARE),
    }

    # what the plan releases; other scales are 1, other centres 0, in the units of the data
    private_scale_X = private_center_X = private_scale_y = private_center_y = True

    max_iter: int | Auto = "auto"
    learning_rate: float | Auto = "auto"
    oracle: Oracle = "clipped"
    moment_order: float = 2.0
    moment_bound: float = 1.0
    tau: float | Auto = "auto"
    n_buckets: int | Auto = "auto"
    scale_share: float | Auto = "auto"
    l2_penalty: float = 0.0

    # ---------------------------------------------------------------- planning

    def _check(self, loss: Loss, feasible_set: AnySet, budget: PrivacyBudget, units: str) -> None:
        if not math.isfinite(loss.smoothness):
            raise ValueError(f"the heavy-tail solvers need a smooth loss, got {loss!r}")
        if self.n_buckets is not None and self.oracle != "median-of-means":
            raise ValueError(f"n_buckets={self.n_buckets} needs oracle='median-of-means'")
        kind = L2Ball if feasible_set is Geometry else feasible_set
        geometry = kind(1.0) if isinstance(kind, type) else kind
        if type(geometry).project is Geometry.project:
            raise ValueError(f"the heavy-tail solvers need a set with `project`, got {geometry!r}")

    def _plan(self: Any, problem: Problem, budget: PrivacyBudget) -> HeavyTailPlan:
        # in a regression, moments decide on the clip of the target's mean as well
        is_clipped = problem.loss.task == "regression" and problem.fit_intercept
        if self.tau is not None and not is_clipped:
            oracles.check_moments_decide((self.moment_order, self.moment_bound))
        learns_center = self.private_center_X and problem.fit_intercept
        if self.scale_share is not None and not (self.private_scale_X or learns_center):
            raise ValueError("scale_share has no effect where scale_X and center_X are declared")
        if problem.feasible_set is Geometry:
            problem = replace(problem, feasible_set=L2Ball)
        draft, kind = _Draft(problem, budget, self), problem.feasible_set
        first, left = draft.plan_first()
        descends = first.features is not None
        oracle, noises, rate = draft.plan_steps(left) if descends else (None, (), 0.0)
        releases, n_iter = list(first.releases), draft.n_iter if noises else 0
        for k, noise in enumerate(noises):
            group = f"slice {k}" if len(noises) > 1 else None
            releases.append(Release("mean gradient", noise, n_iter // len(noises), group))
        guarantee = Guarantee.of(budget, releases, draft.allowance.kind)
        geometry = kind if isinstance(kind, Geometry) else kind(draft.rules.radius)
        facts = problem, budget, self.form, n_iter, guarantee, geometry
        return HeavyTailPlan(*facts, first, oracle, noises, rate, self.l2_penalty)


@dataclass(kw_only=True, repr=False, eq=False)
class UnboundedDescent(Descent):
    """`Descent` for data without bounds, which the typical sizes of the columns take the place of.

    A part of the budget buys, for each column and for the target, how large values typically are
    and, where n is large, the size that few exceed. Values are clipped to that, and all else is as
    in `Descent`: no coordinate of a gradient depends on how wide the clip is. Predictions clip the
    features as the fit did.

    Parameters
    ----------
    max_iter : "auto" or int in [1, 1e9], default="auto"
        As in `Descent`.
    scale_share : "auto" or float in [1e-6, 0.6], default="auto"
        Largest share of the budget for the sizes of the features, unless `scale_X` is declared;
        "auto" is 0.25. Less is spent where that is enough. Those of the target take at most another
        0.06, or 0.38 where n times epsilon is so small that they would be guesses.
    """

    with_set = "scof"
    checks = {"scale_share": partial(auto_or, check_real, low=1e-6, high=0.6)}

    # what the plan releases; other sizes are 1, in the units of the data
    private_scale_X = private_center_X = private_scale_y = private_center_y = True

    scale_share: float | Auto = "auto"

    def _plan(self: Any, problem: Problem, budget: PrivacyBudget) -> UnboundedDescentPlan:
        if problem.is_wide:
            raise ValueError(
                f"solver='descent' without bounds is for up to {base.MOST_COPIED_FEATURES} "
                "features: take solver='scof'"
            )
        if self.scale_share is not None and not self.private_scale_X:
            raise ValueError("scale_share has no effect where scale_X is declared")
        allowance, rules = budget.mixed_allowance, HEAVY_TAIL[problem.loss.task]
        n, facts = problem.n_samples, (budget.record_factor, allowance)
        features, target = None, None
        if self.private_scale_X:
            columns = magnitudes.Columns("feature", n, problem.n_features, *facts)
            features = magnitudes.plan_reach(columns, self.scale_share or rules.reach_share)
        if self.private_scale_y and problem.loss.task == "regression":
            columns = magnitudes.Columns("target", n, problem.n_outputs, *facts)
            target = magnitudes.plan_reach(columns, rules.target_reach_share)
        spent = sum(search.share for search in (features, target) if search is not None)
        purse = Purse(problem, budget, allowance.share(1 - spent), knows_sizes=bool(features))
        known = {"feature_reach": features, "target_reach": target}
        known["learns_center"] = self.private_center_X
        return self._bought(UnboundedDescentPlan, purse, features, target, **known)


class HeavyTail(Solver):
    """The solver that suits loss, set, sizes and budget: `UnboundedDescent` or `SCOF`.

    `UnboundedDescent` if no set is declared and n times epsilon is not very small; else `SCOF`.
    """

    form = "auto"

    def _check(self, loss: Loss, feasible_set: AnySet, budget: PrivacyBudget, units: str) -> None:
        SCOF().check(loss, feasible_set, budget, units)

    def _plan(self, problem: Problem, budget: PrivacyBudget) -> Plan:
        rules, is_free = HEAVY_TAIL[problem.loss.task], problem.feasible_set is Geometry
        may_descend = is_free and knows(problem.loss) and not (budget.is_pure or problem.is_wide)
        enough = max(rules.descent, rules.descent_columns * problem.n_features**0.5)
        is_best = may_descend and Purse(problem, budget).accuracy >= enough
        facts = {name: value for name, value in vars(self).items() if name.startswith("private_")}
        solver = UnboundedDescent() if is_best else SCOF()
        return solver.with_facts(**facts).plan(problem, budget)


class SCOFSlices(SCOF):
    """The same with a slice of the records for each step, which has the whole budget of the steps.

    KLZ22's strongly convex case; nearly always noisier.

    Parameters
    ----------
    max_iter : "auto" or int in [1, 1e4], default="auto"
        Number of steps T, and of slices.
    learning_rate, oracle, moment_order, moment_bound, tau, n_buckets, scale_share, l2_penalty
        As in `SCOF`.
    """

    form = "scof-slices"
    checks = {**SCOF.checks, "max_iter": partial(auto_or, check_count, high=MOST_SLICES)}


class _Draft:
    def __init__(self, problem: Problem, budget: PrivacyBudget, solver: Any) -> None:
        self.problem, self.budget, self.solver = problem, budget, solver
        self.rules = rules = HEAVY_TAIL[problem.loss.task]
        self.is_regression = problem.loss.task == "regression"
        selects = solver.private_scale_X or (self.is_regression and solver.private_scale_y)
        self.allowance = budget.mixed_allowance if selects else budget.gaussian_allowance
        self.noise_kind = additive_noise(self.allowance)
        self.is_sliced = solver.form == "scof-slices"
        usual = rules.pure_steps if budget.is_pure else affordable_steps(problem, rules)
        self.n_iter: int = solver.max_iter or usual
        if self.is_sliced:
            self.n_iter = min(solver.max_iter or rules.n_slices, problem.n_samples)

    def plan_first(self) -> tuple[FirstMagnitudes, float]:
        """What is released before the descent, and the share of the budget for the rest."""
        problem, solver, rules, kind = self.problem, self.solver, self.rules, self.noise_kind
        n, factor = problem.n_samples, self.budget.record_factor
        features, target = self._searches()
        left, target_clip, intercept, row_norm = 1.0, 0.0, None, None
        for search in (features, target):
            left -= 0.0 if search is None else search.share
        if problem.fit_intercept:
            # the mean of the targets in units of their scale, or of the labels
            share = left if features is None else rules.intercept_share
            target_clip = 1.0
            if self.is_regression:
                noise = magnitudes.mean_noise(n, factor, self.allowance)
                moments = solver.moment_order, 4 * solver.moment_bound
                clip = oracles.default_threshold(noise, *moments)
                target_clip = max(rules.least_target_clip, clip)
            change = target_clip * statistics.target_mean(problem, self.budget, kind.order)
            part = self.allowance.share(share)
            intercept = kind.calibrate(change, part, dimension=problem.n_outputs)
            left -= share
        is_guessed = not solver.private_scale_X and solver.learning_rate is None
        if features is not None and is_guessed:
            # how wrong guessed scales are
            change = rules.row_norm_octaves * statistics.unit_mean(problem, factor)
            row_norm = kind.calibrate(change, self.allowance.share(rules.row_norm_share))
            left -= rules.row_norm_share
        return FirstMagnitudes(problem, features, target, row_norm, intercept, target_clip), left

    def _searches(self) -> tuple[magnitudes.MagnitudeSearch | None, ...]:
        """For scales and centres: of the features if their noise allows it, and of the target."""
        problem, solver = self.problem, self.solver
        # a descent is made in any case
        is_given = solver.max_iter is not None
        features = self._search("X")
        if features is not None and not is_given:
            noise = self._noise(1.0 - features.share) * math.sqrt(problem.size)
            features = None if noise > self.rules.too_noisy else features
        if not self.is_regression:
            return features, None
        target = self._search("y", features is None)
        wants_center = solver.private_center_y and problem.fit_intercept
        lacks_center = wants_center and (target is None or target.n_rounds == 0)
        if features is not None and lacks_center and not is_given:
            # the scale of a target that is not centred may be far above its spread, and the noise
            return None, self._search("y")
        return features, target

    def _search(self, which: str, is_alone: bool = True) -> magnitudes.MagnitudeSearch | None:
        """For the columns of X, or for those of y, alone or beside X."""
        solver, problem, rules = self.solver, self.problem, self.rules
        what, n_columns, guesswork = "feature", problem.n_features, rules.guesswork
        share = solver.scale_share or rules.feature_share
        if which == "y":
            what, n_columns, guesswork = "target", problem.n_outputs, rules.target_guesswork
            share = rules.target_share_alone if is_alone else rules.target_share
        facts = problem.n_samples, n_columns, self.budget.record_factor
        return magnitudes.plan_search(
            magnitudes.Columns(what, *facts, self.allowance),
            private_center=getattr(solver, f"private_center_{which}") and problem.fit_intercept,
            private_scale=getattr(solver, f"private_scale_{which}"),
            largest_share=share,
            largest_noise=guesswork if solver.max_iter is None else math.inf,
        )

    def _noise(self, share: float) -> float:
        """Noise in a coordinate of the mean of all gradients, if their norm is at most 1."""
        facts = self.problem.n_samples, self.budget.record_factor, self.allowance.share(share)
        return magnitudes.mean_noise(*facts, self.n_iter)

    def plan_steps(
        self, left: float
    ) -> tuple[oracles.MeanOracle, tuple[magnitudes.Noise, ...], float]:
        """The oracle, its noise in each slice, and the learning rate."""
        problem, rules, solver, n_iter = self.problem, self.rules, self.solver, self.n_iter
        n_slices = n_iter if self.is_sliced else 1
        n_step, order = problem.n_samples // n_slices, self.noise_kind.order
        # the l2 norm of a row with second moments `second_moment`; for pure DP the l1 norm would
        # be larger, but a smaller clip was better in the benchmarks
        size = math.sqrt(rules.second_moment * problem.n_features + problem.fit_intercept)
        noise, moments = self._noise(left), (solver.moment_order, solver.moment_bound)
        tau, largest = solver.tau, bounded_clip(problem.loss, math.inf, math.inf)
        if tau is None and math.isfinite(largest):
            tau = rules.bounded_clip * largest * solver.moment_bound ** (1 / solver.moment_order)
            tau *= max(1.0, math.sqrt(rules.accurate / (noise * math.sqrt(problem.size))))
            tau *= size if solver.oracle == "clipped" else 1.0
        facts: Any = {"n_samples": n_step, "dimension": problem.size, "order": order}
        facts |= {"noise": noise, "size": size, "moments": moments}
        oracle = oracles.make_oracle(solver.oracle, tau, solver.n_buckets, **facts)
        sizes = n_step, problem.n_features, problem.size
        change = oracle.sensitivity(*sizes, self.budget.record_factor, order)
        part = self.allowance.share(left)
        step = self.noise_kind.calibrate(change, part, n_iter // n_slices, dimension=problem.size)
        # about the top eigenvalue of the mean of [x, 1] [x, 1]^T
        rows = rules.smoothness * problem.n_features + 1
        smoothness = problem.loss.smoothness * rows + solver.l2_penalty
        whole = math.sqrt(step.variance * problem.size)
        rate = solver.learning_rate or min(
            1.9 / smoothness,
            rules.reach / (2 * whole * math.sqrt(n_iter)),
            # so that the noise in the model has a norm of about the target's scale
            1 / (smoothness * whole**2),
        )
        # a mechanism object for each slice, since audits identify mechanisms by object
        return oracle, tuple(replace(step) for _ in range(n_slices)), rate


# -------------------------------------------------------------------------------- running


def _slices(data: SolverData, plan: HeavyTailPlan, stream: RandomStream) -> list[Any]:
    """All records, or disjoint slices of them in a random order, with the oracle's limits."""
    limits = plan.oracle, plan.steps[0].order
    n_slices, n = len(plan.steps), data.n_samples
    if n_slices == 1:
        return [data.map(_limited, *limits).kept()]
    n_step, order = n // n_slices, stream.permutation(n)
    data = data.kept()
    slices = [np.sort(order[k * n_step : (k + 1) * n_step]) for k in range(n_slices)]
    return [data.part(which).map(_limited, *limits) for which in slices]


def _limited(data: SolverData, oracle: oracles.MeanOracle, order: float) -> SolverData:
    return replace(data, numbers=oracle.limits(data.rows, order))


def _log_norm_sum(data: SolverData, most: float) -> Array:
    """Sum of the clipped logarithms of the rows' norms over sqrt(d), without the intercept."""
    norms = Rows(data.rows.X, False).norms()
    octaves = np.log2(np.maximum(norms, 1e-300)) - math.log2(data.rows.n_columns) / 2
    return np.array([data.rows.without_empty(np.clip(octaves, -most, most)).sum()])
