r"""Gradient descent on a private mean of heavy-tailed gradients (KLZ22, Algorithms 1 and 2).

No bound on the data is needed. Before the descent, the plan may release a scale and a
centre for each column and for the target (`magnitudes`); in those units each step releases
the mean of the gradients l'(z_i, y_i) [x_i, 1] by an oracle that bounds what one record
adds (`means`), and takes a step of gradient descent with it.

``"scof"``
    Every step uses all records (the convex case of the paper).
``"scof-slices"``
    Every step uses fresh records, and may spend the whole budget on them (the strongly
    convex case).

The default oracle shrinks whole gradients to a norm tau. For rows times scalars that is a
bound tau / norm([x_i, 1]) on the derivative of record i: the descent minimizes a loss that
is l itself for ordinary records and linear for those that are far off, in x or in y.

The sensitivities are derived in doc/privacy.rst, section 7.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._checks import check_real
from .._linear import Rows, make_rows, summation_error
from .._random import RandomStream
from ..accounting import Guarantee, PrivacyBudget
from ..geometry import Geometry
from ..magnitudes import Magnitudes, MagnitudeSearch, plan_search, release_magnitudes, scale_rows
from ..means import MeanOracle, default_threshold, make_oracle
from ..mechanisms import Gaussian, Laplace, Mechanism, Release, SelectVertex, additive_noise
from .base import Plan, Problem, SolverData, SolverResult

__all__ = ["FORMS", "LARGEST_SCALE_SHARE", "HeavyTail", "HeavyTailPlan", "ScaledRows"]

Array = NDArray[np.float64]
Noise = Gaussian | Laplace

FORMS = ("scof", "scof-slices")

# Shares of the budget, at most. "Alone" is where only an intercept is learned. What is left
# beside the largest of the features', 0.07, is for the gradients.
LARGEST_SCALE_SHARE = 0.7
_FEATURE_SHARE = 0.3
_TARGET_SHARE = 0.12
_TARGET_SHARE_ALONE = 0.6
_INTERCEPT_SHARE = 0.1
_ROW_NORM_SHARE = 0.01
_ROW_NORM_OCTAVES = 8.0  # guesses that are off by more than 2^8 count as off by that
_LARGEST_SPEEDUP = 4.0

# Noise of a scale's score above which it is guesswork. A single feature that is far off in
# scale spoils the predictions, and the more there are, the more likely one is: a scale whose
# score is 1/2 below the best has e^(-1 / (2 noise)) times its weight. Without the target's
# scale there is no prediction at all, so that it is looked for under more noise.
_SPOILED = 1e-3
_WRONG_SCALES = 64
_TARGET_GUESSWORK = 0.1

# Above this noise in the mean of all gradients, per unit of tau, nothing but the intercept
# is learned.
_TOO_NOISY = 0.5

# The numbers of this block were chosen on real and synthetic heavy-tailed tables, see
# benchmarks/heavy_tails.py. A scale is where half of the squared deviations are within it,
# so that a scaled column has a second moment of about _SECOND_MOMENT or more.
_SECOND_MOMENT = 0.35
_SMOOTHNESS = 0.75  # top eigenvalue of the rows' second moments, per feature
_LEAST_TARGET_CLIP = 2.0
_TARGET_BOX = 2.0**100  # finite, and beyond any clip
_LARGEST_DERIVATIVE = 2.0**300  # likewise
_TRUST_RADIUS = {"regression": 20.0, "classification": 70.0}
_REACH = {"regression": 3.0, "classification": 20.0}  # of the noisy part of the step rule
_NOISE_ENERGY = 1.0  # norm of the noise in the model, in units of the target's scale
# A bounded derivative has light tails, so that little is gained from a wide clip.
_BOUNDED_CLIP = 0.3
_ACCURATE = 0.02
_ITERATIONS, _FEWEST_ITERATIONS, _AFFORDABLE = 400, 50, 2e9
_PURE_ITERATIONS = 12
_SLICES = 10
# James and Stein would need more than one coordinate; this is the prior of a mean of
# targets in units of their scale, and of labels in [-1, 1].
_INTERCEPT_PRIOR = {"regression": 1.0, "classification": 0.5}


class ScaledRows(Rows):
    """Rows in released units, which remember those.

    Parameters
    ----------
    rows : Rows
    magnitudes : Magnitudes
    speedup : float
        Factor on the plan's learning rate.
    """

    def __init__(self, rows: Rows, magnitudes: Magnitudes, speedup: float) -> None:
        super().__init__(rows.X, rows.has_intercept, rows.scale)
        self.scaled = rows
        self.magnitudes = magnitudes
        self.speedup = speedup


@dataclass(frozen=True)
class HeavyTailPlan(Plan):
    """Plan of `HeavyTail`; see `Plan` for the common fields.

    Attributes
    ----------
    oracle : MeanOracle or None
        The mean of the gradients; None if only an intercept is learned.
    geometry : Geometry
        The set that iterates are projected on, in released units, around the intercept.
    learning_rate : float
        For rows of the norm that the released units give them. Where the units are guesses,
        the released norm of the rows corrects it.
    l2_penalty : float
    n_slices : int
        1, or the number of disjoint parts of the records, one for each step.
    target_clip : float
        Regression: bound on the centred and scaled targets in the intercept.
    search_X, search_y : MagnitudeSearch or None
        How scales and centres are released.
    select_X, center_X, select_y, center_y, row_norm, intercept : mechanism or None
        What releases the features' scales and centres, those of the target, the mean
        logarithm of the rows' norms, and the mean target.
    step : tuple of mechanisms
        What releases the mean gradients of each slice. Empty if only an intercept is
        learned.
    """

    oracle: MeanOracle | None
    geometry: Geometry
    learning_rate: float
    l2_penalty: float
    n_slices: int
    target_clip: float
    search_X: MagnitudeSearch | None
    search_y: MagnitudeSearch | None
    select_X: SelectVertex | None
    center_X: Noise | None
    select_y: SelectVertex | None
    center_y: Noise | None
    row_norm: Noise | None
    intercept: Noise | None
    step: tuple[Noise, ...]


@dataclass(frozen=True)
class HeavyTail:
    """Settings of the solver; `None` leaves a value to the plan.

    Parameters
    ----------
    form : {"scof", "scof-slices"}
    oracle : str
        One of `means.ORACLES`.
    moment_order : float >= 2
    moment_bound : float in [1e-50, 1e50]
    tau : float or None
    n_buckets : int or None
    max_iter : int or None
    learning_rate : float or None
    l2_penalty : float >= 0
    private_scale_X, private_center_X, private_scale_y, private_center_y : bool
        What the plan releases; what it does not is 1 or 0 in the units that it is given.
    scale_share : float in (0, 0.7] or None
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

    def plan(self, problem: Problem, budget: PrivacyBudget) -> HeavyTailPlan:
        """Everything that a run does, from public facts alone.

        Parameters
        ----------
        problem : Problem
        budget : PrivacyBudget

        Raises
        ------
        ValueError
            If the loss is not smooth, the feasible set has no projection, or there are
            fewer records than slices or buckets.
        """
        if not math.isfinite(problem.loss.smoothness):
            raise ValueError(f"the heavy-tail solvers need a smooth loss, got {problem.loss!r}")
        if self.scale_share is not None:
            limits: dict[str, Any] = {"low": 0, "low_open": True, "high": LARGEST_SCALE_SHARE}
            check_real("scale_share", self.scale_share, **limits)
        draft = _Draft(problem, budget, self)
        if not draft.plan_features() or draft.is_too_noisy():
            draft.forget_features()
        draft.plan_target()
        if draft.learns_features and draft.lacks_target_center():
            draft.forget_features()
            draft.plan_target()
        draft.plan_intercept()
        if draft.learns_features:
            draft.plan_row_norm()
            draft.plan_steps()
        return draft.finish()

    # ----------------------------------------------------------------- running

    def prepare(self, rows: Rows, plan: HeavyTailPlan, stream: RandomStream) -> Rows:
        """The rows in released units; for all models of a plan, as it is paid for once."""
        if plan.search_X is None:
            return rows
        found = release_magnitudes(rows, plan.search_X, plan.select_X, plan.center_X, stream)
        scaled = scale_rows(rows, found)
        return ScaledRows(scaled, found, _release_speedup(scaled, plan, stream))

    def solve(self, data: SolverData, plan: HeavyTailPlan, stream: RandomStream) -> SolverResult:
        """Run the plan.

        Parameters
        ----------
        data : SolverData
            In the units of the public guesses, without bounds, or rows from `prepare`.
            Infinities are kept and clipped; NaN is not allowed.
        plan : HeavyTailPlan
        stream : RandomStream

        Returns
        -------
        SolverResult
        """
        problem = plan.problem
        target, center_y, scale_y = _scaled_target(data, plan, stream)
        offset = _release_intercept(data.rows, target, plan, stream)
        rows = data.rows
        coef = np.zeros(problem.n_features)
        if plan.step:
            if not isinstance(rows, ScaledRows):
                if problem.n_models > 1:
                    raise ValueError("several models need rows from `prepare`, paid for once")
                rows = self.prepare(rows, plan, stream)
            assert isinstance(rows, ScaledRows)
            solution = _descend(rows, target, offset, plan, stream)
            coef = solution[: problem.n_features] / rows.magnitudes.scale
            offset += float(solution[-1]) if problem.fit_intercept else 0.0
            offset -= float(rows.magnitudes.center @ coef)
        return SolverResult(scale_y * coef, center_y + scale_y * offset, max(1, plan.max_iter))


class _Draft:
    """A plan in the making: what is decided, and what is left of the budget."""

    def __init__(self, problem: Problem, budget: PrivacyBudget, solver: HeavyTail) -> None:
        self.problem, self.budget, self.solver = problem, budget, solver
        self.is_regression = problem.loss.task == "regression"
        selects = solver.private_scale_X or (self.is_regression and solver.private_scale_y)
        self.allowance = budget.allowance if selects else budget.gaussian_allowance
        self.left = 1.0
        self.fields: dict[str, Any] = dict.fromkeys(
            ("oracle", "search_X", "search_y", "select_X", "center_X", "select_y", "center_y",
             "row_norm", "intercept")
        )  # fmt: skip
        self.fields |= {
            "step": (),
            "learning_rate": 0.0,
            "target_clip": 0.0,
            "n_slices": 1,
            "max_iter": 0,
        }
        self.releases: list[Release] = []
        self.learns_features = False

    @property
    def insists(self) -> bool:
        """Who sets the number of steps insists on them."""
        return self.solver.max_iter is not None

    @property
    def order(self) -> int:
        return 1 if self.budget.is_pure else 2

    @property
    def noise_kind(self) -> type[Noise]:
        return additive_noise(self.allowance)

    def _search(self, which: str, n_columns: int, largest_share: float) -> bool:
        solver, problem = self.solver, self.problem
        planned = plan_search(
            problem.n_samples, n_columns, self.budget.record_factor, self.allowance,
            private_center=getattr(solver, f"private_center_{which}") and problem.fit_intercept,
            private_scale=getattr(solver, f"private_scale_{which}"),
            largest_share=largest_share,
            largest_noise=math.inf if self.insists else _guesswork(which, n_columns),
        )  # fmt: skip
        if planned is None:
            return False
        search, select, center = planned
        self.fields |= {f"search_{which}": search, f"select_{which}": select}
        self.fields[f"center_{which}"] = center
        what = "feature" if which == "X" else "target"
        self._release(f"{what} scales", select, search.n_scales * n_columns)
        self._release(f"{what} centres", center, search.n_rounds)
        self.left -= search.share
        return True

    def _release(self, name: str, mechanism: Mechanism | None, count: int) -> None:
        if mechanism is not None and count > 0:
            self.releases.append(Release(name, mechanism, count))

    def plan_features(self) -> bool:
        """Scales and centres of the features; False if they would be guesswork."""
        share = self.solver.scale_share or _FEATURE_SHARE
        self.learns_features = self._search("X", self.problem.n_features, share)
        return self.learns_features

    def forget_features(self) -> None:
        names = ("search", "select", "center")
        self.fields |= dict.fromkeys(f"{name}_{which}" for name in names for which in "Xy")
        self.releases, self.left, self.learns_features = [], 1.0, False

    def plan_target(self) -> None:
        """Scale and centre of the target."""
        if self.is_regression:
            share = _TARGET_SHARE if self.learns_features else _TARGET_SHARE_ALONE
            self._search("y", 1, share)

    def lacks_target_center(self) -> bool:
        """Whether the target's centre is wanted and too noisy beside the features.

        In units of a target that is not centred, the noise may be far larger than the spread.
        """
        search, is_wanted = self.fields["search_y"], self.solver.private_center_y
        is_wanted = is_wanted and self.is_regression and self.problem.fit_intercept
        is_found = search is not None and search.n_rounds > 0
        return is_wanted and not is_found and not self.insists

    def plan_row_norm(self) -> None:
        """The mean logarithm of the norms, which tells how far off guessed scales are."""
        given = self.solver.learning_rate is not None
        if self.solver.private_scale_X or given:
            return
        problem = self.problem
        change = self.budget.record_factor / problem.n_samples
        change += 2 * summation_error(problem.n_samples, problem.n_features)
        part = self.allowance.share(_ROW_NORM_SHARE)
        mechanism = self.noise_kind.calibrate(_ROW_NORM_OCTAVES * change, part)
        self.fields["row_norm"] = mechanism
        self._release("mean log norm", mechanism, 1)
        self.left -= _ROW_NORM_SHARE

    def plan_intercept(self) -> None:
        """The mean of the targets in units of their scale, or of the labels."""
        problem = self.problem
        if not problem.fit_intercept:
            return
        share = _INTERCEPT_SHARE if self.learns_features else self.left
        clip = 1.0
        if self.is_regression:
            noise = self._noise(1.0, 1)
            clip = default_threshold(noise, self.solver.moment_order, 4 * self.solver.moment_bound)
            clip = max(_LEAST_TARGET_CLIP, clip)
        n = problem.n_samples
        change = self.budget.record_factor / n
        change += 2 * summation_error(n, problem.n_features)
        part = self.allowance.share(share / problem.n_models)
        intercept = self.noise_kind.calibrate(clip * change, part)
        self.fields |= {"intercept": intercept, "target_clip": clip}
        self._release("mean target", intercept, problem.n_models)
        self.left -= share

    def _noise(self, share: float, n_iter: int) -> float:
        """Noise in a coordinate of the mean of all gradients, if their norm is at most 1."""
        part = self.allowance.share(share / self.problem.n_models)
        change = self.budget.record_factor / self.problem.n_samples
        if self.budget.is_pure:
            return change * math.sqrt(2 * n_iter) / part.amount
        return change / math.sqrt(2 * part.amount)

    def is_too_noisy(self) -> bool:
        """Whether the gradients would be noise, and the user does not insist on steps."""
        noise = self._noise(self.left, self._iterations()) * math.sqrt(self.problem.dimension)
        return noise > _TOO_NOISY and not self.insists

    def _iterations(self) -> int:
        if self.solver.form == "scof-slices":
            return min(self.solver.max_iter or _SLICES, self.problem.n_samples)
        if self.solver.max_iter is not None:
            return self.solver.max_iter
        if self.budget.is_pure:
            return _PURE_ITERATIONS
        affordable = int(_AFFORDABLE / (self.problem.n_samples * self.problem.n_features))
        return min(_ITERATIONS, max(_FEWEST_ITERATIONS, affordable))

    def _oracle(self, n_iter: int, n_step: int) -> MeanOracle:
        problem, solver = self.problem, self.solver
        # the norm of a row with second moments of one half; for pure DP its l1 norm would be
        # larger, but a tight clip has proved better there
        size = math.sqrt(_SECOND_MOMENT * problem.n_features + problem.fit_intercept)
        noise = self._noise(self.left, n_iter)
        moments = {"moment_order": solver.moment_order, "moment_bound": solver.moment_bound}
        tau = solver.tau
        if tau is None and math.isfinite(problem.loss.derivative_bound(math.inf)):
            tau = _BOUNDED_CLIP * problem.loss.derivative_bound(math.inf)
            tau *= solver.moment_bound ** (1 / solver.moment_order)
            whole = noise * math.sqrt(problem.dimension)
            tau *= max(1.0, math.sqrt(_ACCURATE / whole))
            tau *= size if solver.oracle == "clipped" else 1.0
        return make_oracle(
            solver.oracle, tau, solver.n_buckets, n_samples=n_step,
            dimension=problem.dimension, noise=noise, order=self.order, size=size, **moments,
        )  # fmt: skip

    def plan_steps(self) -> None:
        """The oracle, its noise, and the learning rate."""
        problem, solver = self.problem, self.solver
        n_iter = self._iterations()
        n_slices = n_iter if solver.form == "scof-slices" else 1
        n_step = problem.n_samples // n_slices
        oracle = self._oracle(n_iter, n_step)
        sensitivity = oracle.sensitivity(
            n_step, problem.n_features, problem.dimension, self.budget.record_factor, self.order
        )
        part = self.allowance.share(self.left / problem.n_models)
        step = self.noise_kind.calibrate(
            sensitivity, part, n_iter // n_slices, dimension=problem.dimension
        )
        # a mechanism for each slice, so that a plan tells them apart
        steps = tuple(replace(step) for _ in range(n_slices))
        for k, mechanism in enumerate(steps):
            group = f"slice {k}" if n_slices > 1 else None
            count = problem.n_models * (n_iter // n_slices)
            self.releases.append(Release("mean gradient", mechanism, count, group))
        self.fields |= {
            "oracle": oracle, "step": steps, "n_slices": n_slices, "max_iter": n_iter,
            "learning_rate": solver.learning_rate or self._learning_rate(step, n_iter),
        }  # fmt: skip

    def _learning_rate(self, step: Noise, n_iter: int) -> float:
        problem, task = self.problem, self.problem.loss.task
        smoothness = problem.loss.smoothness * _row_smoothness(problem.n_features, 0.0)
        smoothness += self.solver.l2_penalty
        whole = math.sqrt(step.variance * problem.dimension)
        return min(
            1.9 / smoothness,
            _REACH[task] / (2 * whole * math.sqrt(n_iter)),
            _NOISE_ENERGY**2 / (smoothness * whole**2),
        )

    def finish(self) -> HeavyTailPlan:
        """The plan, with the guarantee of what was released on the way."""
        # Guards against a plan that overspends: what is negative would lower its cost.
        if self.left < -1e-12 or any(r.mechanism.scale <= 0 for r in self.releases):
            raise AssertionError("a plan spends more than its budget")
        budget, problem = self.budget, self.problem
        kind = problem.feasible_set
        if not isinstance(kind, Geometry):
            kind = kind(_TRUST_RADIUS[problem.loss.task])
        _check_projection(kind)
        guarantee = Guarantee(
            budget.epsilon, budget.delta, budget.relation, self.allowance.kind,
            tuple(self.releases),
        )  # fmt: skip
        return HeavyTailPlan(
            problem=problem, budget=budget, solver=self.solver.form, guarantee=guarantee,
            geometry=kind, l2_penalty=self.solver.l2_penalty, **self.fields,
        )  # fmt: skip


def _guesswork(which: str, n_columns: int) -> float:
    """Noise of a score above which the scale of one of the columns is likely far off."""
    if which == "y":
        return _TARGET_GUESSWORK
    return 1 / (2 * math.log(_WRONG_SCALES * n_columns / _SPOILED))


def _check_projection(geometry: Geometry) -> None:
    if type(geometry).project is Geometry.project:
        raise ValueError(f"the heavy-tail solvers need a set with `project`, got {geometry!r}")


# -------------------------------------------------------------------- what comes before


def _row_smoothness(n_features: int, octaves: float) -> float:
    """About the top eigenvalue of the mean of [x, 1] [x, 1]^T, rows 2^octaves too long."""
    return _SMOOTHNESS * n_features * 4.0**octaves + 1


def _release_speedup(rows: Rows, plan: HeavyTailPlan, stream: RandomStream) -> float:
    """The step that suits the rows' norm, over the one that suits the norm planned with."""
    if plan.row_norm is None:
        return 1.0
    d = rows.n_columns
    # a Rows without intercept has the norms of x alone
    norms = make_rows(rows.X, False).norms()
    octaves = np.log2(np.maximum(norms, 1e-300)) - math.log2(d) / 2
    octaves = np.clip(octaves, -_ROW_NORM_OCTAVES, _ROW_NORM_OCTAVES)
    if rows.scale is not None:
        octaves = octaves * (rows.scale > 0)
    released = plan.row_norm.release(np.array([octaves.mean()]), stream)[0]
    found = float(np.clip(released, -_ROW_NORM_OCTAVES, _ROW_NORM_OCTAVES))
    return min(_LARGEST_SPEEDUP, _row_smoothness(d, 0.0) / _row_smoothness(d, found))


def _scaled_target(
    data: SolverData, plan: HeavyTailPlan, stream: RandomStream
) -> tuple[Array, float, float]:
    """Targets in released units, the released centre and scale."""
    if plan.problem.loss.task == "classification":
        return data.y, 0.0, 1.0
    center, scale = 0.0, 1.0
    if plan.search_y is not None:
        column = _column(data.y, data.rows.scale)
        found = release_magnitudes(
            column, plan.search_y, plan.select_y, plan.center_y, stream.substream("target")
        )
        center, scale = float(found.center[0]), float(found.scale[0])
    with np.errstate(over="ignore"):
        target = (data.y - center) / scale
    return np.clip(target, -_TARGET_BOX, _TARGET_BOX), center, scale


def _column(y: Array, scale: Array | None) -> Rows:
    """The targets as rows of one column."""
    return make_rows(np.ascontiguousarray(y[:, None]), False, scale)


def _release_intercept(
    rows: Rows, target: Array, plan: HeavyTailPlan, stream: RandomStream
) -> float:
    """The best constant for the noisy mean of the clipped targets."""
    mechanism = plan.intercept
    if mechanism is None:
        return 0.0
    clipped = np.clip(target, -plan.target_clip, plan.target_clip)
    if rows.scale is not None:
        clipped = clipped * (rows.scale > 0)
    noisy = mechanism.release(np.array([clipped.mean()]), stream.substream("intercept"))[0]
    mean = float(np.clip(noisy, -plan.target_clip, plan.target_clip))
    mean /= 1 + mechanism.variance / _INTERCEPT_PRIOR[plan.problem.loss.task] ** 2
    return plan.problem.loss.best_constant(mean)


# ----------------------------------------------------------------------------- the descent


def _descend(
    rows: ScaledRows, target: Array, offset: float, plan: HeavyTailPlan, stream: RandomStream
) -> Array:
    """Mean of the second half of the iterates, shape (dimension,)."""
    rate = plan.learning_rate * rows.speedup
    coef = np.zeros(plan.problem.dimension)
    total = np.zeros_like(coef)
    penalty = np.zeros_like(coef)
    parts = _parts(rows.scaled, target, plan, stream.substream("slices"))
    stream = stream.substream("steps")
    for t in range(plan.max_iter):
        k = t % plan.n_slices
        noisy = plan.step[k].release(parts[k].mean_gradient(coef, offset), stream)
        penalty[: plan.problem.n_features] = coef[: plan.problem.n_features]
        moved = coef - rate * (noisy + plan.l2_penalty * penalty)
        coef = plan.geometry.project(moved)
        if t >= plan.max_iter // 2:
            total += coef
    return total / (plan.max_iter - plan.max_iter // 2)


def _parts(rows: Rows, target: Array, plan: HeavyTailPlan, stream: RandomStream) -> list[_Part]:
    """All records, or disjoint slices of them in a random order."""
    if plan.n_slices == 1:
        return [_Part(rows, target, plan)]
    n_step = rows.n_samples // plan.n_slices
    order = stream.permutation(rows.n_samples)
    rows = rows.row_major()
    slices = [order[k * n_step : (k + 1) * n_step] for k in range(plan.n_slices)]
    return [_Part(rows.part(which), target[which], plan) for which in slices]


class _Part:
    """The records of a step."""

    def __init__(self, rows: Rows, target: Array, plan: HeavyTailPlan) -> None:
        assert plan.oracle is not None
        self.rows, self.target = rows, target
        self.loss, self.oracle = plan.problem.loss, plan.oracle
        self.limits = plan.oracle.limits(rows, 1 if plan.budget.is_pure else 2)

    def mean_gradient(self, coef: Array, offset: float) -> Array:
        """The oracle's mean of l'(z_i, y_i) [x_i, 1], without noise."""
        r = self.loss.derivative(self.rows.product(coef) + offset, self.target)
        # a loss or a radius of the user's own may overflow: nothing then comes of a NaN
        r = np.clip(np.where(np.isnan(r), 0.0, r), -_LARGEST_DERIVATIVE, _LARGEST_DERIVATIVE)
        if self.rows.scale is not None:
            r = r * (self.rows.scale > 0)
        return self.oracle.mean(self.rows, r, self.limits)
