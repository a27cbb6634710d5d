r"""Phased stochastic gradient descent (BGM21, Algorithms 3 and 4).

The records are put into a secret random order and cut into phases. Each phase is one pass
of plain stochastic gradient descent over its slice,

.. math:: w \leftarrow \Pi (w - \eta \, v_i l'_\beta(\langle r_i, w \rangle, y_i) \, r_i),

v_i in [0, 1] the record's weight, and releases the mean of its last iterates with Gaussian noise.
There the next phase starts, with a smaller step. Each step is non-expansive, so one record moves
the mean by at most the length of its own step (twice that under replace-one), however long the
phase is. Non-smooth losses are replaced by their Moreau envelopes of parameter beta.

That needs derivatives that are non-decreasing in the prediction and no steeper than some beta,
which nobody can check of a user's code. So it is made true (`tables`): the derivative of a record
is asked for at a fixed grid of predictions about its target, what comes back is made
non-decreasing, and the steps take the piecewise linear function through these values, its knots
moved apart where it would be steeper than beta. Of a convex loss whose smoothness is at most beta
this is the derivative itself, up to the resolution of the grid, and of one with a kink that of its
Moreau envelope.

Several passes, the default for small tables, divide the budget.

The sensitivities are derived in doc/privacy, sections 4.5 and 5.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from .._kernels.arguments import (
    NORM_BLOCK,
    TABULATED,
    RowForm,
    Slope,
    Steps,
    Tables,
    dense_or_stored,
)
from .._progress import steps
from .._types import Array, Auto, Indices, Which
from ..data.rows import UNIT_ROUNDOFF, Rows, SolverData, Terms, gamma, norm_error, piece_rows
from ..geometry import AnySet, Geometry, L2Ball, Unconstrained
from ..losses import (
    Joint,
    Logistic,
    Loss,
    Multinomial,
    base_loss,
    bounded_clip,
    clipped_derivative,
    kernel_id,
    largest_constant,
)
from ..mechanisms import Gaussian
from ..privacy.budget import Allowance, PrivacyBudget
from ..privacy.guarantee import Guarantee
from ..randomness.stream import RandomStream
from . import defaults
from .base import Part, Plan, Problem, Solver, SolverResult, releases_of
from .defaults import LEARNED_UNITS, PHASED_SGD
from .first_releases import FirstReleases, learns_units, plan_first
from .learned_units import LARGEST_ROW_GROWTH, LearnedUnits, Purse, plan_units
from .unit_descent import Walk, move_toward_levels, restore_whole_means

_CHUNK_TABLES = 2**20  # bytes of tables, where each target has its own; they fit into a cache

_SHORT = 1 - 1e-9  # steps stay so far within what the proof allows
_LEAST_SMOOTHNESS = 1e-50  # of a linear loss, in rules that divide by it

# Distances of predictions from the target: 0.002 apart at the target itself, where the kink of most
# losses lies (that of a margin loss lies at z = y, too), and an eighth of the distance far from
# it. Beyond the ends, 1300 times the range of targets, derivatives are constant.
GRID: Array = 0.016 * np.sinh(np.arange(-96, 97) / 8)


@dataclass(frozen=True)
class Phase(Part):
    """Passes over a slice of the records, and the noise of their results.

    Attributes
    ----------
    noise : Gaussian
    start, stop : int
        Slice of the permuted records.
    learning_rate : float
        eta.
    beta : float
        Parameter of the Moreau envelope, or of the tables of a user's loss; infinite for the loss
        itself.
    count : int
        Number of passes.
    group : str or None
        Name of the slice; None for all records.
    """

    release_name: ClassVar[str] = "phase"

    noise: Gaussian
    start: int
    stop: int
    learning_rate: float
    beta: float
    count: int
    group: str | None

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
        Records of the slice of the first releases; 0 for all records.
    first : FirstReleases or LearnedUnits
        What is released before the descent.
    target_unit : float or None
        In learned units, targets of a regression are divided by this, and clipped to [-1, 1]. None
        for the units of the bounds.
    phases : tuple of Phase
    """

    geometry: Geometry
    start_radius: float
    gradient_clip: float
    data_norm: float
    shuffle: bool
    n_first: int
    first: Any
    target_unit: float | None
    phases: tuple[Phase, ...]

    @property
    def n_steps(self) -> int:
        return self.max_iter * len(self.phases)

    def run(self, data: SolverData, stream: RandomStream) -> SolverResult:
        problem = self.problem
        order = stream.permutation(problem.n_samples) if self.shuffle else None
        descent = _Descent(data, self, order, stream)
        results = []
        # kernels take a coordinate for the intercept in any case, the last
        coef = np.zeros((problem.n_features + 1) * problem.n_outputs)
        for _ in range(self.max_iter):
            for phase in steps(self.phases):
                mean = descent.run(phase, coef)
                coef[: problem.size] = phase.noise.release(mean[: problem.size], stream)
                coef *= min(1.0, self.start_radius / max(float(np.linalg.norm(coef)), 1e-300))
            results.append(coef.copy())
        # each pass was released, so their mean costs no privacy, and it has less noise
        coef = np.mean(results[self.max_iter // 2 :], axis=0)[: problem.size]
        if self.target_unit is not None:  # clipped derivatives pull levels towards medians
            coef *= self.target_unit
            restore_whole_means(descent.units, coef)
            if type(problem.base_loss) is Logistic and problem.fit_intercept:
                self._move_level(descent.units, coef)
            coef /= self.target_unit
            if self.geometry.radius < math.inf:
                coef = self.geometry.project(coef)
        return descent.units.result(coef, problem, self.max_iter)

    def _move_level(self, units: Any, coef: Array) -> None:
        """Move intercepts, in place, toward those of the released frequencies."""
        phase, unit = self.phases[-1], float(units.unit[-1])
        n, length = self.max_iter, phase.size * phase.learning_rate
        # a pass is as a step of length 1, and less is left where derivatives are not clipped
        curvature = min(1.0, 0.4 * units.curvature * length * unit**2)
        kept = Walk(phase.noise, 1.0, n, n, 0.0).kept_noise(curvature)
        noise = phase.noise.variance * unit**2 * kept
        move_toward_levels(units, coef, noise, self.gradient_clip, n * length)


@dataclass(kw_only=True, repr=False, eq=False)
class PhasedSGD(Solver):
    """Phased stochastic gradient descent (Feldman, Koren, Talwar 2020; BGM21, Algorithms 3 and 4).

    Parameters
    ----------
    max_iter : "auto" or int in [1, 1e9], default="auto"
        Number of passes over the records. More passes share the budget of each phase; the mean
        of the second half of their results is the model. "auto" takes what some tenths of a
        second allow: 40 passes for small tables, and a single one from about
        n_samples * n_features = 3e7 on.
    n_phases : "auto" or int in [1, 100], default="auto"
        Number of slices that the records are cut into. Each phase descends over one of them from
        the noisy result of the one before, with a third of its step, and has the whole budget of
        the phases, since no record is in two of them. "auto" is 3 for one pass and 1 for more.
    learning_rate : "auto" or float in [1e-50, 1e50], default="auto"
        Step of the last phase, for scaled rows. At most 2 over the product of the loss's
        smoothness and B^2, beyond which the proof fails; a non-smooth loss, or one of your own,
        is smoothed as little as its step allows. "auto" is a function of n, d and the noise.
    gradient_clip : "auto" or float in [1e-50, 1e50], default="auto"
        Bound c on the absolute derivative of the loss in the raw prediction, as in `NoisyMD`;
        "auto" is 0.35 in regression and 0.5 in classification for smooth losses, rising to 1 as the
        noise vanishes, and the derivative's own bound for the others and for several classes. In
        learned units it is in spreads of the targets, 0.5 to 6, and 0.3 to 1 in classification.
    data_norm : "auto" or float in [1e-50, 1e50], default="auto"
        Bound B on the l2 norm of a scaled row with the intercept's 1, as in `NoisyMD`.
    rank_bound : None or int in [1, 1e15], default=None
        For ``feasible_set="unconstrained"``: a bound on the rank of X that is known beforehand,
        at most n_features. The smaller it is, the larger is the default step, since noise
        outside the span of the rows does not change the predictions.
    shuffle : bool, default=True
        Whether the records are put into a secret random order first. The guarantee does not need
        it; the accuracy does where the order of the table is related to its values. Without it,
        a pass over a large table takes less than half of the time.
    """

    form = "phased-sgd"

    max_iter: int | Auto = "auto"
    n_phases: int | Auto = "auto"
    learning_rate: float | Auto = "auto"
    gradient_clip: float | Auto = "auto"
    data_norm: float | Auto = "auto"
    rank_bound: int | None = None
    shuffle: bool = True

    # ---------------------------------------------------------------- planning

    def _check(
        self: Any, loss: Loss, feasible_set: AnySet, budget: PrivacyBudget, units: str
    ) -> None:
        self._check_delta(budget)
        if not base_loss(loss).is_convex:
            raise ValueError(
                "phased SGD needs a convex loss, and a loss of your own that is one must declare "
                f"it by `is_convex = True`; got {loss!r}. DPMirrorRegressor, DPLassoFW and their "
                "classifiers take others"
            )
        is_sum = type(loss) in (Joint, Multinomial)
        if not is_sum and (isinstance(loss, Joint) or loss.n_outputs != 1):
            raise ValueError(
                "phased SGD needs a loss of one output, or losses.Joint or losses.Multinomial of "
                f"one, got {loss!r}"
            )
        kind = feasible_set if isinstance(feasible_set, type) else type(feasible_set)
        if kind not in (L2Ball, Unconstrained):
            raise ValueError(
                f"phased SGD needs feasible_set='l2' or 'unconstrained', got {kind.__name__}"
            )
        if self.rank_bound is not None and kind is not Unconstrained:
            raise ValueError("rank_bound must be None unless feasible_set='unconstrained'")
        is_clipped = (self.gradient_clip or math.inf) < loss.derivative_bound(math.inf)
        if isinstance(loss, Multinomial) and is_clipped:
            raise ValueError(
                "gradient_clip must be 'auto' or at least sqrt(2) for more than two classes: "
                "phased SGD needs the derivatives of a convex function, and those of the "
                f"multinomial loss are not if they are clipped; got {self.gradient_clip!r}"
            )
        self._check_units(budget, units)
        self._longest(loss, self.data_norm or 1.0, PHASED_SGD[loss.task])  # no default B is below 1

    def _plan(self: Any, problem: Problem, budget: PrivacyBudget) -> PhasedSGDPlan:
        draft = _Draft(self, problem, budget)
        first, n_first, whole = draft.first_releases()
        if problem.n_samples - n_first < draft.n_phases:
            raise ValueError(
                f"n_phases={draft.n_phases} needs n_samples >= {draft.n_phases}, "
                f"got {problem.n_samples}"
            )
        left = whole if n_first else whole.share(first.left)
        # standard deviation of the noise of a release of sensitivity 1 per record
        unit = budget.record_factor / math.sqrt(2 * left.amount)
        clip, rate, target_unit = (draft.in_units if draft.learns_units else draft.in_bounds)(unit)
        rate = self.learning_rate or rate
        start_radius, phases = draft.phases(n_first, rate, clip, left)
        guarantee = Guarantee.of(budget, releases_of(first, *phases), left.kind)
        common = problem, budget, self.form, draft.passes, guarantee, draft.geometry
        descent = start_radius, clip, draft.norm, self.shuffle
        return PhasedSGDPlan(*common, *descent, n_first, first, target_unit, phases)

    def _longest(self: Any, loss: Loss, norm: float, rules: Any) -> float:
        """The longest step; infinite for losses whose smoothing depends on the step."""
        if not math.isfinite(loss.smoothness):
            return math.inf
        if self.learning_rate is None:
            return rules.curved / (max(loss.smoothness, _LEAST_SMOOTHNESS) * norm**2)
        if is_tabulated(loss):
            return math.inf
        longest = 2 * _SHORT / (loss.smoothness * norm**2)
        if self.learning_rate > longest:
            raise ValueError(
                f"learning_rate must be at most {longest:.4g}, that is 2 over the smoothness of "
                f"the loss times data_norm^2, got {self.learning_rate!r}"
            )
        return longest


def _block(n_features: int) -> int:
    """Steps between two projections: few, but enough to make projections cheap."""
    return 16 + n_features // 16


class _Draft:
    def __init__(self, solver: Any, problem: Problem, budget: PrivacyBudget) -> None:
        self.solver, self.problem, self.budget = solver, problem, budget
        self.rules = PHASED_SGD[problem.loss.task]
        rank = problem.n_features if solver.rank_bound is None else solver.rank_bound
        if rank > problem.n_features:
            raise ValueError(
                f"rank_bound must be at most n_features={problem.n_features}, got {rank}"
            )
        self.rank = (rank + problem.fit_intercept) * problem.n_outputs  # of the rows
        is_bounded = problem.feasible_set is not Unconstrained
        self.geometry = defaults.sized_set(problem, self.rules.radius if is_bounded else math.inf)
        per_record = problem.size
        if is_tabulated(problem.loss) and problem.loss.task == "regression":
            per_record += GRID.size * problem.n_outputs
        passes = int(self.rules.affordable / (problem.n_samples * per_record))
        passes = min(passes, self.rules.most_passes) if passes >= self.rules.fewest_passes else 1
        self.passes = solver.max_iter or passes
        self.n_phases = solver.n_phases or 1
        if solver.n_phases is None and self.passes == 1:
            self.n_phases = min(self.rules.n_phases, problem.n_samples)
        # a single pass is for tables that are better not copied
        auto = self.passes > 1 and problem.feasible_set is L2Ball
        self.learns_units = learns_units(solver, problem, budget, auto)
        norm = 1.0 if self.learns_units else solver.data_norm
        self.norm = norm or defaults.data_norm(problem)

    def first_releases(self) -> tuple[FirstReleases | LearnedUnits, int, Allowance]:
        """The first releases, the records of their slice (0 for all), and the whole allowance."""
        problem, budget, rules = self.problem, self.budget, self.rules
        if self.learns_units:
            # steps along single records bring two models no further apart on short rows alone
            units = plan_units(Purse(problem, budget))
            return replace(units, cuts_rows=True), 0, budget.mixed_allowance
        allowance = budget.gaussian_allowance
        # without an intercept only the row factor is left, which needs little of a budget
        is_sliced = self.passes == 1 and problem.fit_intercept
        n_first = int(rules.first_slice * problem.n_samples) if is_sliced else 0
        noise = budget.record_factor / math.sqrt(2 * allowance.amount * rules.first_shares[0])
        if n_first and noise / n_first > rules.first_noise:
            n_first = 0
        settings: dict[str, Any] = {"may_shrink": True, "may_step": False}
        if n_first:
            problem = replace(problem, n_samples=n_first)
            settings |= {"shares": rules.first_shares, "group": "first slice"}
        return plan_first(problem, budget, allowance, self.norm, **settings), n_first, allowance

    def in_bounds(self, unit: float) -> tuple[float, float, None]:
        """The clip and the last step in the units of the bounds, see `defaults.PHASED_SGD`."""
        rules, n, passes, loss = self.rules, self.problem.n_samples, self.passes, self.problem.loss
        noise = unit * math.sqrt(self.rank) / n  # its norm after n steps of length 1 / n
        bound = bounded_clip(loss, math.inf, self.geometry.radius * self.norm)
        # the slope c_0 that steps are measured at, and the clip c
        slope, declared = min(rules.smallest_clip, bound), self.solver.gradient_clip
        if isinstance(loss, Multinomial):
            clip = bound
        elif declared is not None:
            slope = clip = min(declared, bound)
        elif math.isfinite(loss.smoothness):
            clip = min(defaults.growing_clip(self.problem, slope, noise, rules.accurate), bound)
        elif math.isfinite(bound):
            slope = clip = bound  # clipping the slopes of a kinked loss would move its minimizer
        else:
            raise ValueError(
                "gradient_clip must be a number for a loss with a kink whose derivative has no "
                f"finite bound; got 'auto' for {loss!r}"
            )
        excess = clip / slope
        noise *= excess
        length = min(
            rules.length / math.sqrt(n * math.sqrt(passes)),
            rules.reach / (noise * passes * n),
            rules.energy / (noise**2 * passes * n),
        )
        if passes == 1:
            # a bound for the noise of the first phase, whose steps are longer
            reach = rules.reach / (noise * n * rules.ratio ** (self.n_phases - 1))
            length = min(length, reach, rules.prediction_noise / (unit * excess))
        return clip, length / (slope * self.norm**2), None

    def in_units(self, unit: float) -> tuple[float, float, float]:
        """The clip and the last step in learned units, and the unit of the targets.

        A declared clip is in spreads of the targets. The step is that of `unit_descent` or less.
        """
        problem, loss, n = self.problem, self.problem.loss, self.problem.n_samples
        units, solver = LEARNED_UNITS[loss.task], self.solver
        m = Purse(problem, self.budget).accuracy
        # of rows and of clips, the root of `Units.growth`, for classes of the same size
        rates = units.growth, self.rules.clip_growth
        growth, of_clip = (math.sqrt(max(1.0, one * m / problem.dimension)) for one in rates)
        each = min(units.largest_clip, units.smallest_clip * of_clip)
        target_unit = self.rules.target_unit * each if loss.task == "regression" else 1.0
        clip = each / target_unit * problem.joint_unit
        if solver.gradient_clip is not None:
            clip = solver.gradient_clip / target_unit
        bound = bounded_clip(loss, math.inf, self.geometry.radius)
        # derivatives of a multinomial loss, or by default of a kinked one, are not: see `in_bounds`
        is_smooth = math.isfinite(loss.smoothness)
        is_bound = isinstance(loss, Multinomial) or not (is_smooth or solver.gradient_clip)
        clip = bound if is_bound else min(bound, clip)
        # a kinked loss curves where the residuals are, over one spread of the targets
        curvature = max(loss.smoothness, _LEAST_SMOOTHNESS) if is_smooth else target_unit
        # what is expected of the rows: with an intercept, half of their square belongs to it
        square = 1.0 + problem.fit_intercept
        share = 0.7 / min(LARGEST_ROW_GROWTH, max(1.0, math.sqrt(units.row_growth) * growth)) ** 2
        single, trace = clip * unit / n, (share + problem.fit_intercept) / square
        length = min(
            units.prediction_noise / target_unit * math.sqrt(1.5 / trace) / single,
            (units.signal * clip / single) ** 2 / (curvature * trace * square),
        )
        most = self.rules.unit_step / (share * curvature * math.sqrt(n * math.sqrt(self.passes)))
        if not is_smooth:  # the envelope of a longer step is a parabola over all residuals
            most = min(most, 1 / (self.rules.kink * target_unit))
        return clip, min(length / (n * self.passes), most), target_unit

    def phases(
        self, n_first: int, last: float, clip: float, left: Allowance
    ) -> tuple[float, tuple[Phase, ...]]:
        """The radius of the start, and phases on slices of equal size, steps falling to `last`."""
        problem, loss, norm = self.problem, self.problem.loss, self.norm
        n, count, ratio = problem.n_samples - n_first, self.n_phases, self.rules.ratio
        ends = [n_first + n * k // count for k in range(count + 1)]
        longest = self.solver._longest(loss, norm, self.rules)
        rates = [min(longest, last * ratio ** (count - 1 - k)) for k in range(count)]
        pieces = list(zip(ends[:-1], ends[1:], rates, strict=True))
        reach = self.passes * sum((stop - start) * eta for start, stop, eta in pieces)
        start_radius = min(self.geometry.radius, reach * clip * norm)
        is_own, is_smooth = is_tabulated(loss), math.isfinite(loss.smoothness)
        # as the kernel takes it
        known = None if is_own else Terms(0.0, loss, clip).joint_slope
        phases = []
        for k, (start, stop, rate) in enumerate(pieces):
            # Of a loss with a kink half of the largest beta that the step allows; a larger beta
            # would mean less bias. Of a user's smooth loss all of it, which changes nothing if the
            # smoothness is as stated.
            share = 2 * _SHORT if is_smooth else 1.0
            beta = share / (rate * norm**2) if is_own or not is_smooth else math.inf
            # nothing that a user's loss says of itself enters the sensitivity
            slope = beta if is_own else min(loss.smoothness, beta)
            parameter = 2 * clip / beta if known is None else known.parameter
            bounds = _block(problem.n_features), norm, start_radius, self.geometry.radius
            steps = GradientSteps(stop - start, rate, slope, clip, parameter, *bounds)
            change = phase_mean(problem, self.budget, steps)
            noise = Gaussian.calibrate(change, left, self.passes, problem.size)
            group = f"phase {k + 1}" if count > 1 or n_first else None
            phases.append(Phase(noise, start, stop, rate, beta, self.passes, group))
        return start_radius, tuple(phases)


# -------------------------------------------------------------------------------- running


class _Descent:
    """The records in their order and in the plan's units, and how to run a phase over a slice."""

    def __init__(
        self, data: SolverData, plan: PhasedSGDPlan, order: Indices | None, stream: RandomStream
    ) -> None:
        problem = plan.problem
        self.plan, self.order, self.block = plan, order, _block(problem.n_features)
        d = problem.n_features
        if plan.target_unit is None:
            before = data.part(self._which(0, plan.n_first)) if plan.n_first else data
            _, frame = plan.first.run(before, stream)
            center, error = np.zeros(d) if frame.center is None else frame.center, norm_error(d)
            bias, bound = float(problem.fit_intercept), plan.data_norm * (1 - error)
            self.form = RowForm(center, bias, bound, 2 * error if data.is_sparse else 0.0)
            self.units, self.data = frame, frame.weighted(data).kept()
        else:  # a record's row is ``unit * [r, 1]``, of norm at most 1
            units = plan.first.run(data, stream)
            frame, width = units.frame, None
            if problem.loss.task == "regression":
                width = plan.target_unit
                scale = frame.target_scale * width
                frame = replace(frame, offset=frame.offset / width, target_scale=scale)
            each = float(units.unit[0])
            bias = float(units.unit[-1]) / each if problem.fit_intercept else 0.0
            # the scales bound the rows; the kernel's own bound, of unscaled rows, has no effect
            self.form = RowForm(np.zeros(d), bias, 1e200, 0.0)
            self.units = units._replace(frame=frame)
            self.data = units.data.map(_in_step_units, each, width).kept()
        # Rows are copied, some whole blocks at a time, into the order in which the steps read them:
        # twice as fast as steps that read rows all over the table.
        loss, longest = problem.loss, max(phase.size for phase in plan.phases)
        fitting = piece_rows(longest, d, self.data.is_sparse)
        if is_tabulated(loss) and loss.task == "regression":
            fitting = min(fitting, _CHUNK_TABLES // (16 * GRID.size * loss.n_outputs))
        self.chunk = min(longest, max(1, fitting // self.block) * self.block)
        # the derivative as the kernel takes it, of several outputs with their offsets
        clip, offset, k = plan.gradient_clip, frame.offset, problem.n_outputs
        self.offsets = np.full(k, offset, dtype=np.float64)
        if k > 1:
            # each derivative's bound, so that all together have norm c
            clip, offset = clip / math.sqrt(k) * (1 - 8 * UNIT_ROUNDOFF), 0.0
        known = None if is_tabulated(loss) else Terms(offset, loss, clip).joint_slope
        self.slope = (known or Slope(TABULATED, 0.0, clip, offset))._replace(offset=offset)

    def _which(self, start: int, stop: int) -> Which:
        return slice(start, stop) if self.order is None else self.order[start:stop]

    def run(self, phase: Phase, start: Array) -> Array:
        """Mean of the last iterates of one pass over the phase's records from `start`."""
        from .._kernels import sgd_steps as kernels

        problem, radius = self.plan.problem, self.plan.geometry.radius
        k = problem.n_outputs
        shape = start.shape if k == 1 else (start.size // k, k)
        w, total, count, done = start.copy().reshape(shape), np.zeros(shape), 0, 0
        slope = self.slope._replace(beta=phase.beta)
        first = phase.size - math.ceil(PHASED_SGD[problem.loss.task].averaged * phase.size)
        for part in self.data.in_order(self._which(phase.start, phase.stop), self.chunk):
            steps = Steps(phase.learning_rate, radius, self.block, first - done)
            done += part.n_samples
            found: Slope | Tables = slope
            y, (X, stored) = part.y, dense_or_stored(part.rows.X)
            if slope.loss_id == TABULATED:
                # each target has a table, or each of the two labels, which are public
                targets, numbers = y.ravel(), np.arange(y.size, dtype=np.float64).reshape(y.shape)
                if problem.loss.task == "classification":
                    targets, numbers = np.array([-1.0, 1.0]), np.where(y > 0, 1.0, 0.0)
                table = tables(problem.base_loss, targets, slope.clip, slope.beta)
                found, y = Tables(*table, slope.clip, slope.offset), numbers
            records = part.rows.scales(), part.rows.sample_weights(), y
            rows, of_descent = (X, stored, records, self.form), (steps, w, total)
            if k == 1:
                count += kernels.single_steps(*rows, found, *of_descent)
            else:
                count += kernels.joint_steps(*rows, (found, self.offsets), *of_descent)
        return total.ravel() / count


def _in_step_units(data: SolverData, each: float, width: float | None) -> SolverData:
    """Rows whose scale holds the unit, and targets cut to [-1, 1] in units of `width`."""
    rows, y = data.rows, data.y
    y = y if width is None else np.clip(y / width, -1.0, 1.0)
    scaled = Rows(rows.X, rows.has_intercept, each * rows.scales(), rows.sample_weight)
    return SolverData(scaled, y)


# ------------------------------------------------------------ a user's loss, as the steps take it


def is_tabulated(loss: Loss) -> bool:
    """Whether the derivative of the loss, or of each output, is a user's own.

    That of the multinomial loss is the package's, whatever logistic loss it came from.
    """
    return type(loss) is not Multinomial and kernel_id(base_loss(loss)) is None


def tables(loss: Loss, targets: Array, clip: float, beta: float) -> tuple[Array, Array]:
    """Knots and values of the derivatives in z for each of the targets, shape (n, GRID.size).

    Of a loss of a single output, which is called once. The values, within the clip, are
    non-decreasing in each row, whatever the loss returns, and no steeper than beta.
    """
    from .._kernels.sgd_steps import lay_knots

    z = targets[:, None] + GRID
    y = np.repeat(targets, GRID.size)
    values = clipped_derivative(loss, z.ravel(), y, clip).reshape(z.shape)
    knots = np.empty_like(values)
    lay_knots(values, targets, GRID, beta, knots)
    return knots, values


# ------------------------------------------------------------------------------ sensitivities


class GradientSteps(NamedTuple):
    """A pass of single-record gradient steps: the numbers that `phase_mean` needs."""

    n_steps: int
    learning_rate: float
    beta: float  # bound on the slope of the derivative that the steps take
    clip: float  # bound on the derivative
    parameter: float  # bound on what it is computed from, beside predictions and targets
    block: int  # steps between two projections
    norm: float  # bound on that of a row
    start: float  # bound on the norm of the first iterate
    radius: float  # and on the norms after each projection


def phase_mean(problem: Problem, budget: PrivacyBudget, steps: GradientSteps) -> float:
    """l2 change of the mean iterate of a pass of non-expansive steps (section 5).

    It is that of one step plus the float error of all.
    """
    n_steps, eta, beta, clip, parameter, block, norm, start, radius = steps
    d, k = problem.dimension, problem.n_outputs
    # the largest coefficients, before the projection and in the form that CSR rows use
    size = min(radius + block * eta * clip * norm, start + n_steps * eta * clip * norm)
    size += 2 * block * eta * clip * math.sqrt(d)
    offset = math.sqrt(k) * largest_constant(problem.loss)
    prediction = gamma(2 * d + 6 * block + 40) * ((norm + 2 * math.sqrt(d)) * size + offset)
    slope = 8 * k * UNIT_ROUNDOFF * (1 + clip + beta * parameter)
    per_step = eta * norm * (beta * prediction + slope)
    per_step += 8 * UNIT_ROUNDOFF * (size + eta * clip * norm)
    # a projection has the norm of the coefficients of all outputs together
    blocks, numbers = math.ceil(n_steps / block), (problem.n_features + 1) * k
    additions = min(numbers, NORM_BLOCK) + math.ceil(numbers / NORM_BLOCK)
    numerical = n_steps * per_step + (blocks * gamma(additions + 8) + gamma(blocks + 4)) * size
    return budget.record_factor * eta * clip * norm + 2 * numerical
