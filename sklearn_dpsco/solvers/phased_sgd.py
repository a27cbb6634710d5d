r"""Phased stochastic gradient descent (BGM21, Algorithms 3 and 4).

The records are put into a secret random order and cut into phases. Each phase is one pass
of plain stochastic gradient descent over its slice,

.. math:: w \leftarrow \Pi (w - \eta \, l'_\beta(\langle r_i, w \rangle, y_i) \, r_i),

and releases the mean of its last iterates with Gaussian noise, from where the next phase
starts with a smaller step. Each step is non-expansive, so one record moves the mean by no
more than the length of its own step, however long the phase; and since phases have no
record in common, each has the whole budget. Non-smooth losses are replaced by their Moreau
envelopes of parameter beta, whose derivatives have a closed form.

Where the table is small, time allows more: then the one phase is all of the table, it is
repeated, and the budget is divided among the passes.

The sensitivities are derived in doc/privacy.rst, section 5.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from .._linear import UNIT_ROUNDOFF, gamma
from .._random import RandomStream
from ..accounting import Allowance, Guarantee, PrivacyBudget
from ..geometry import Geometry, L2Ball, Unconstrained
from ..losses import Loss
from ..mechanisms import Gaussian, Laplace, Release
from .base import Plan, Problem, SolverData, SolverResult
from .preliminaries import (
    CENTER_SHARE,
    ROW_SCALE_SHARE,
    default_data_norm,
    growing_clip,
    intercept_share,
    plan_center,
    plan_intercept,
    plan_row_factor,
    prepare,
)

__all__ = ["PhasedSGD", "PhasedSGDPlan"]

Array = NDArray[np.float64]

# Rows are gathered in chunks, whose copies overlap, and are then read in their order: twice
# as fast as steps that jump through the table.
_CHUNK_BYTES = 2**21  # dense
_CHUNK_ROWS = 2**14  # CSR

# Default steps are given as lengths: what a step moves the prediction for a row of the largest
# norm at the slope c_0, learning_rate c_0 B^2, where c_0 is the smallest default clip. So they
# do not depend on the scales of the loss and the rows. The values come from runs on synthetic
# streams and five public tables; all are one value for every table.
_LENGTH = {"regression": 0.45, "classification": 4.5}  # times 1 / sqrt(n)
_CURVED = 0.2  # at most this over the smoothness of the loss, for learning_rate B^2
# All steps of a run together, by the l2 norm N of the noise that a run of total length 1
# ends with: at most _REACH / N, so that the noise cannot carry a model out of the set, and
# _ENERGY / N^2, so that the model fades into the intercept as the noise grows.
_REACH = {"regression": 1.5, "classification": 10.0}
_ENERGY = {"regression": 0.26, "classification": 0.72}
# One pass: the noise of the last phase in the prediction for a row of the largest norm.
_PREDICTION_NOISE = {"regression": 0.015, "classification": 0.075}
_N_PHASES = 3
_RATIO = 3.0  # of the steps of one phase and the next

_RADIUS = {"regression": 10.0, "classification": 100.0}
_SMALLEST_CLIP = {"regression": 0.35, "classification": 0.5}
_ACCURATE = 0.002  # the noise N below which the clip grows
_AVERAGED = 0.25  # share of a phase whose iterates are averaged

_AFFORDABLE = 1e8  # stored numbers read by all passes
_MOST_PASSES = 40
_FEWEST_PASSES = 3  # one pass over disjoint phases is better than two passes

# One pass: a slice of its own for the intercept, the centre and the row factor, if it is
# large enough for this noise of the mean target, and its budget's shares.
_FIRST_SLICE = 1 / 16
_FIRST_NOISE = 0.03
_FIRST_SHARES = {"intercept": 0.3, "center": 0.6, "row_scale": 0.1}


class Phase(NamedTuple):
    """Public facts of one phase.

    Attributes
    ----------
    start, stop : int
        Its slice of the permuted records.
    learning_rate : float
        eta.
    beta : float
        Parameter of the Moreau envelope; infinite for the loss itself.
    """

    start: int
    stop: int
    learning_rate: float
    beta: float

    @property
    def size(self) -> int:
        """Number of records."""
        return self.stop - self.start


@dataclass(frozen=True)
class PhasedSGDPlan(Plan):
    """Plan of `PhasedSGD`; see `Plan` for the common fields.

    Attributes
    ----------
    geometry : L2Ball or Unconstrained
        The feasible set with its radius.
    start_radius : float
        Radius of the public ball to which each release is clipped.
    gradient_clip : float
        c: bound on abs(dl/dz).
    data_norm : float
        B, the bound on the l2 norm of a scaled row.
    shuffle : bool
        Whether the records are put into a secret random order first.
    n_first : int
        Records of the slice on which intercept, centre and row factor are released; 0
        for all records.
    phases : tuple of Phase
    step : tuple of mechanism
        What releases the result of each phase.
    intercept, center, row_scale : mechanism or None
        What releases the mean target, the feature means and the mean row factor.
    """

    geometry: Geometry
    start_radius: float
    gradient_clip: float
    data_norm: float
    shuffle: bool
    n_first: int
    phases: tuple[Phase, ...]
    step: tuple[Gaussian, ...]
    intercept: Gaussian | Laplace | None
    center: Gaussian | None
    row_scale: Gaussian | None


class _Beside(NamedTuple):
    """The releases beside the phases, and what is left for those."""

    n_first: int
    intercept: Gaussian | Laplace | None
    center: Gaussian | None
    row_scale: Gaussian | None
    left: Allowance


@dataclass(frozen=True)
class PhasedSGD:
    """Settings of the solver; `None` leaves a value to the plan.

    Parameters
    ----------
    max_iter : int or None
        Passes over each phase's records.
    n_phases : int or None
    learning_rate : float or None
        Step of the last phase.
    gradient_clip : float or None
    data_norm : float or None
    rank_bound : int or None
        Bound on the rank of X, for an unconstrained problem.
    shuffle : bool
    """

    max_iter: int | None = None
    n_phases: int | None = None
    learning_rate: float | None = None
    gradient_clip: float | None = None
    data_norm: float | None = None
    rank_bound: int | None = None
    shuffle: bool = True

    # ---------------------------------------------------------------- planning

    def plan(self, problem: Problem, budget: PrivacyBudget) -> PhasedSGDPlan:
        """Everything that a run does, from public facts alone.

        Parameters
        ----------
        problem : Problem
        budget : PrivacyBudget

        Raises
        ------
        ValueError
            If delta is 0, the feasible set is neither an l2 ball nor everything, the loss
            is not one of the package's, there are fewer records than phases, or a step is
            too long for its proof.
        """
        self._check(problem, budget)
        norm = self.data_norm or default_data_norm(problem)
        geometry = _geometry(problem)
        passes, n_phases = self._passes(problem)
        beside = _plan_beside(problem, budget, norm, may_slice=passes == 1)
        if problem.n_samples - beside.n_first < n_phases:
            raise ValueError(
                f"n_phases={n_phases} needs n_samples >= {n_phases}, got {problem.n_samples}"
            )
        # standard deviation of the noise of a release of sensitivity 1 per record
        unit = budget.record_factor / math.sqrt(2 * beside.left.amount)
        noise = unit * math.sqrt(self._rank(problem)) / problem.n_samples
        slope, clip = self._slope_and_clip(problem, geometry, noise, norm)
        length = _last_length(problem, passes, n_phases, noise, unit, clip / slope)
        rate = self.learning_rate or length / (slope * norm**2)
        phases = self._phases(problem, n_phases, beside.n_first, rate, norm)
        reach = passes * sum(phase.size * phase.learning_rate for phase in phases) * clip * norm
        start_radius = min(geometry.radius, reach)
        step = tuple(
            Gaussian.calibrate(
                _sensitivity(problem, budget, phase, start_radius, geometry.radius, clip, norm),
                beside.left, passes, problem.dimension,
            )
            for phase in phases
        )  # fmt: skip
        return PhasedSGDPlan(
            problem=problem, budget=budget, solver="phased_sgd", max_iter=passes,
            guarantee=_guarantee(problem, budget, beside, step, passes),
            geometry=geometry, start_radius=start_radius, gradient_clip=clip, data_norm=norm,
            shuffle=self.shuffle, n_first=beside.n_first, phases=phases, step=step,
            intercept=beside.intercept, center=beside.center, row_scale=beside.row_scale,
        )  # fmt: skip

    def _check(self, problem: Problem, budget: PrivacyBudget) -> None:
        if budget.is_pure:
            raise ValueError("phased SGD has no pure-DP form (delta=0); DPLassoFW has one")
        if problem.loss.kernel_id is None:
            raise ValueError(
                "phased SGD needs a loss of this package, since its guarantee rests on the "
                f"loss being convex and smooth as stated; got {problem.loss!r}"
            )
        kind = problem.feasible_set
        if not isinstance(kind, type):
            kind = type(kind)
        if kind not in (L2Ball, Unconstrained):
            raise ValueError(
                f"phased SGD needs feasible_set='l2' or 'unconstrained', got {kind.__name__}"
            )
        if self.rank_bound is None:
            return
        if kind is not Unconstrained:
            raise ValueError("rank_bound must be None unless feasible_set='unconstrained'")
        if self.rank_bound > problem.n_features:
            raise ValueError(
                f"rank_bound must be at most n_features={problem.n_features}, got {self.rank_bound}"
            )

    def _passes(self, problem: Problem) -> tuple[int, int]:
        """Number of passes and of phases."""
        passes = self.max_iter
        if passes is None:
            affordable = int(_AFFORDABLE / (problem.n_samples * problem.dimension))
            passes = 1 if affordable < _FEWEST_PASSES else min(affordable, _MOST_PASSES)
        if self.n_phases is None:
            return passes, min(_N_PHASES, problem.n_samples) if passes == 1 else 1
        return passes, self.n_phases

    def _rank(self, problem: Problem) -> int:
        """Bound on the rank of the rows, that of the intercept included."""
        rank = problem.n_features if self.rank_bound is None else self.rank_bound
        return rank + problem.fit_intercept

    def _slope_and_clip(
        self, problem: Problem, geometry: Geometry, noise: float, norm: float
    ) -> tuple[float, float]:
        """The slope c_0 that steps are measured at, and the clip c."""
        loss = problem.loss
        bound = loss.derivative_bound(geometry.radius * norm + abs(loss.best_constant(1.0)))
        if self.gradient_clip is not None:
            clip = min(self.gradient_clip, bound)
            return clip, clip
        if not math.isfinite(loss.smoothness):
            return bound, bound  # to cut the slopes of a kinked loss would move its minimizer
        slope = min(_SMALLEST_CLIP[loss.task], bound)
        return slope, min(growing_clip(slope, noise, _ACCURATE), bound)

    def _phases(
        self, problem: Problem, n_phases: int, n_first: int, last: float, norm: float
    ) -> tuple[Phase, ...]:
        """Slices of equal size, with steps that fall to `last`."""
        n = problem.n_samples - n_first
        ends = [n_first + n * (k + 1) // n_phases for k in range(n_phases)]
        longest = self._longest(problem, norm)
        phases = []
        for k, (start, stop) in enumerate(zip([n_first, *ends[:-1]], ends, strict=True)):
            rate = min(longest, last * _RATIO ** (n_phases - 1 - k))
            phases.append(Phase(start, stop, rate, _envelope(problem.loss, rate, norm)))
        return tuple(phases)

    def _longest(self, problem: Problem, norm: float) -> float:
        """The longest step; infinite for losses that are smoothed to suit their step."""
        smoothness = problem.loss.smoothness
        if not math.isfinite(smoothness):
            return math.inf
        if self.learning_rate is None:
            return _CURVED / (smoothness * norm**2)
        longest = 2 * (1 - 1e-9) / (smoothness * norm**2)
        if self.learning_rate > longest:
            raise ValueError(
                f"learning_rate must be at most {longest:.4g}, that is 2 over the smoothness of "
                f"the loss times data_norm^2, got {self.learning_rate!r}"
            )
        return longest

    # ----------------------------------------------------------------- running

    def solve(self, data: SolverData, plan: PhasedSGDPlan, stream: RandomStream) -> SolverResult:
        """Run the plan.

        Parameters
        ----------
        data : SolverData
            Rows clipped to [-1, 1] and targets in [-1, 1].
        plan : PhasedSGDPlan
        stream : RandomStream

        Returns
        -------
        SolverResult
        """
        problem, d = plan.problem, plan.problem.n_features
        order = stream.permutation(problem.n_samples) if plan.shuffle else None
        data = SolverData(data.rows.row_major(), data.y)
        offset, center, factor = _release_beside(data, order, plan, stream)
        descent = _Descent(data, order, plan, offset, center)
        results = []
        coef = np.zeros(d + 1)
        for _ in range(plan.max_iter):
            for phase, mechanism in zip(plan.phases, plan.step, strict=True):
                mean = descent.run(phase, coef)
                coef[: problem.dimension] = mechanism.release(mean[: problem.dimension], stream)
                coef *= min(1.0, plan.start_radius / max(float(np.linalg.norm(coef)), 1e-300))
            results.append(coef.copy())
        # each pass was released: their mean is free, and averages out noise
        coef = factor * np.mean(results[plan.max_iter // 2 :], axis=0)
        intercept = offset + float(coef[d]) - float(center @ coef[:d])
        return SolverResult(coef[:d], intercept, plan.max_iter)


class _Descent:
    """The records in their order, and how to run a phase over a slice of them."""

    def __init__(
        self, data: SolverData, order: NDArray[np.intp] | None, plan: PhasedSGDPlan,
        offset: float, center: Array,
    ) -> None:  # fmt: skip
        X: Any = data.rows.X
        self.X: Any = X if sparse.issparse(X) else np.ascontiguousarray(X)
        self.y, self.scale, self.order = data.y, data.rows.scale, order
        self.plan, self.offset, self.center = plan, offset, center
        self.block = _block(plan.problem.n_features)
        # rows gathered at a time: whole blocks
        fitting = _CHUNK_ROWS if sparse.issparse(X) else _CHUNK_BYTES // (8 * X.shape[1])
        longest = max(phase.size for phase in plan.phases)
        self.chunk = min(longest, max(1, fitting // self.block) * self.block)
        self.gathered: Any = None

    def run(self, phase: Phase, start: Array) -> Array:
        """Mean of the last iterates of one pass over the phase's records from `start`."""
        plan, loss = self.plan, self.plan.problem.loss
        error = 4 * (plan.problem.n_features + 8) * UNIT_ROUNDOFF
        bias = float(plan.problem.fit_intercept)
        settings = (
            plan.data_norm * (1 - error), phase.learning_rate, plan.geometry.radius,
            loss.kernel_id, loss.kernel_parameter, phase.beta, plan.gradient_clip, self.block,
        )  # fmt: skip
        w, total, count = start.copy(), np.zeros_like(start), 0
        first = phase.size - math.ceil(_AVERAGED * phase.size)
        for done in range(0, phase.size, self.chunk):
            stop = min(phase.size, done + self.chunk)
            part = _taken(self.order, phase.start + done, phase.start + stop)
            weight = np.ones(stop - done) if self.scale is None else self.scale[part]
            count += self._steps(
                part, error, weight, self.y[part], self.center, bias, self.offset,
                *settings, first - done, w, total,
            )  # fmt: skip
        return total / count

    def _steps(self, part: slice | NDArray[np.intp], norm_error: float, *arguments: Any) -> int:
        from .._kernels.phased_sgd import csr_steps, dense_steps, gather_rows

        X = self.X
        if sparse.issparse(X):
            rows = X[part]
            return csr_steps(rows.data, rows.indices, rows.indptr, 2 * norm_error, *arguments)
        if isinstance(part, slice):
            return dense_steps(X[part], *arguments)
        if self.gathered is None:
            self.gathered = np.empty((self.chunk, X.shape[1]), dtype=X.dtype)
        gather_rows(X, part, self.gathered)
        return dense_steps(self.gathered, *arguments)


def _taken(order: NDArray[np.intp] | None, start: int, stop: int) -> slice | NDArray[np.intp]:
    """Where the records of a slice are."""
    return slice(start, stop) if order is None else order[start:stop]


# ------------------------------------------------------------- releases beside the phases


def _plan_beside(
    problem: Problem, budget: PrivacyBudget, norm: float, *, may_slice: bool
) -> _Beside:
    allowance = budget.gaussian_allowance.share(1 / problem.n_models)
    share = intercept_share(problem, budget) if problem.fit_intercept else 0.0
    shares = {"intercept": share, "center": CENTER_SHARE, "row_scale": ROW_SCALE_SHARE}
    # without an intercept only the row factor is left, which needs little of a budget
    is_sliced = may_slice and problem.fit_intercept
    n_first = int(_FIRST_SLICE * problem.n_samples) if is_sliced else 0
    if n_first:
        least = budget.record_factor / math.sqrt(2 * allowance.amount * _FIRST_SHARES["intercept"])
        n_first = n_first if least / n_first <= _FIRST_NOISE else 0
    if n_first:
        shares = _FIRST_SHARES
        problem = dataclasses.replace(problem, n_samples=n_first)
    intercept = center = None
    left = 1.0
    if problem.fit_intercept:
        intercept = plan_intercept(problem, budget, allowance.share(shares["intercept"]))
        center = plan_center(problem, budget, norm, allowance.share(shares["center"]))
        left -= shares["intercept"] + shares["center"]
    row_scale = plan_row_factor(problem, budget, norm, allowance.share(shares["row_scale"]))
    left -= 0.0 if row_scale is None else shares["row_scale"]
    return _Beside(
        n_first, intercept, center, row_scale, allowance if n_first else allowance.share(left)
    )


def _release_beside(
    data: SolverData,
    order: NDArray[np.intp] | None,
    plan: PhasedSGDPlan,
    stream: RandomStream,
) -> tuple[float, Array, float]:
    """The offset, the centre of the rows, and the mean row factor."""
    problem = plan.problem
    if plan.n_first:
        problem = dataclasses.replace(problem, n_samples=plan.n_first)
        first = _taken(order, 0, plan.n_first)
        data = SolverData(data.rows.part(first), data.y[first])
    mechanisms = plan.intercept, plan.center, plan.row_scale
    prepared = prepare(data, problem, plan.data_norm, mechanisms, 0, stream)
    center = prepared.rows.center
    if center is None:
        center = np.zeros(problem.n_features)
    return prepared.offset, center, prepared.factor


def _guarantee(
    problem: Problem,
    budget: PrivacyBudget,
    beside: _Beside,
    step: tuple[Gaussian, ...],
    passes: int,
) -> Guarantee:
    named = {
        "mean target": beside.intercept,
        "feature means": beside.center,
        "mean row factor": beside.row_scale,
    }
    first = "first slice" if beside.n_first else None
    releases = [Release(name, m, group=first) for name, m in named.items() if m is not None]
    for k, mechanism in enumerate(step):
        is_all = len(step) == 1 and not beside.n_first
        releases.append(Release("phase", mechanism, passes, None if is_all else f"phase {k + 1}"))
    return Guarantee(
        budget.epsilon, budget.delta, budget.relation, beside.left.kind,
        tuple(releases), problem.n_models,
    )  # fmt: skip


# -------------------------------------------------------------------------- sensitivities


def _block(n_features: int) -> int:
    """Steps between two projections, often enough and yet cheap beside the steps."""
    return 16 + n_features // 16


def _sensitivity(
    problem: Problem, budget: PrivacyBudget, phase: Phase, start: float, radius: float,
    clip: float, norm: float,
) -> float:  # fmt: skip
    """l2 sensitivity of the mean iterate of a phase: of one step, and the float error.

    doc/privacy.rst, section 5.
    """
    eta, steps, d = phase.learning_rate, phase.size, problem.dimension
    block = _block(problem.n_features)
    # the largest coefficients, before the projection and in the form that CSR rows use
    size = min(radius + block * eta * clip * norm, start + steps * eta * clip * norm)
    size += 2 * block * eta * clip * math.sqrt(d)
    loss = problem.loss
    beta = min(loss.smoothness, phase.beta)
    offset = max(abs(loss.best_constant(1.0)), abs(loss.best_constant(-1.0)))
    prediction = gamma(2 * d + 6 * block + 40) * ((norm + 2 * math.sqrt(d)) * size + offset)
    slope = 8 * UNIT_ROUNDOFF * (1 + clip + beta * loss.kernel_parameter)
    per_step = eta * norm * (beta * prediction + slope)
    per_step += 8 * UNIT_ROUNDOFF * (size + eta * clip * norm)
    blocks = math.ceil(steps / block)
    numerical = steps * per_step + blocks * gamma(d + 8) * size + gamma(blocks + 4) * size
    return budget.record_factor * eta * clip * norm + 2 * numerical


# ------------------------------------------------- defaults: functions of public facts only


def _geometry(problem: Problem) -> Geometry:
    kind = problem.feasible_set
    if isinstance(kind, Geometry):
        return kind
    return kind() if kind is Unconstrained else kind(_RADIUS[problem.loss.task])


def _last_length(
    problem: Problem, passes: int, n_phases: int, noise: float, unit: float, excess: float
) -> float:
    """Length of a step of the last phase, see `_LENGTH`.

    `noise` is the norm of the noise after n steps of length 1 / n, `unit` its standard
    deviation in one direction after one step of length 1, `excess` the clip over c_0.
    """
    task, n = problem.loss.task, problem.n_samples
    noise *= excess
    length = min(
        _LENGTH[task] / math.sqrt(n * math.sqrt(passes)),
        _REACH[task] / (noise * passes * n),
        _ENERGY[task] / (noise**2 * passes * n),
    )
    if passes > 1:
        return length
    # the first phase, whose steps are longer, has noise of its own
    reach = _REACH[task] / (noise * n * _RATIO ** (n_phases - 1))
    return min(length, reach, _PREDICTION_NOISE[task] / (unit * excess))


def _envelope(loss: Loss, learning_rate: float, norm: float) -> float:
    """Smoothing of a non-smooth loss: the bias falls with beta, and the step allows 2 beta."""
    return math.inf if math.isfinite(loss.smoothness) else 1 / (learning_rate * norm**2)
