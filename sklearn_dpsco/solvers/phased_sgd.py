r"""Phased stochastic gradient descent (BGM21, Algorithms 3 and 4).

The records are put into a secret random order and cut into phases. Each phase is one pass
of plain stochastic gradient descent over its slice,

.. math:: w \leftarrow \Pi (w - \eta \, v_i l'_\beta(\langle r_i, w \rangle, y_i) \, r_i),

v_i in [0, 1] the record's weight, and releases the mean of its last iterates with Gaussian noise.
There the next phase starts, with a smaller step. Each step is non-expansive, so one record moves
the mean by at most the length of its own step (twice that under replace-one), however long the
phase is; and since phases have no record in common, each has the whole budget. Non-smooth losses
are replaced by their Moreau envelopes of parameter beta, whose derivatives have a closed form, and
a user's losses by tables (`tables`).

For small tables the default is several passes over one phase that holds all records; the
passes divide the budget. Their rows and targets are in learned units (`learned_units`) where
nothing but the loss is declared.

The sensitivities are derived in doc/privacy, sections 4.5 and 5.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from .._kernels.arguments import (
    MULTINOMIAL,
    TABULATED,
    Compressed,
    RowForm,
    Slope,
    Steps,
    Tables,
)
from .._progress import steps
from .._types import Auto
from ..data.rows import make_rows
from ..data.summation import UNIT_ROUNDOFF, norm_error, slices
from ..geometry import Geometry, L2Ball, Unconstrained
from ..losses import (
    Joint,
    Loss,
    Multinomial,
    base_loss,
    bounded_clip,
    kernel_id,
    largest_constant,
)
from ..mechanisms import Gaussian, Release
from ..privacy.budget import Allowance, PrivacyBudget
from ..privacy.guarantee import Guarantee
from ..randomness.stream import RandomStream
from . import defaults, sensitivity
from .base import Part, Plan, Problem, Solver, SolverResult
from .box_units import check_units, has_no_unit
from .defaults import LEARNED_UNITS, PHASED_SGD, PhasedSGDDefaults
from .first_releases import FirstReleases, plan_first
from .learned_units import LARGEST_ROW_GROWTH, LearnedUnits, Units, accuracy, pays, plan_units
from .records import Frame, SolverData, Which
from .tables import GRID, is_tabulated, tables

__all__ = ["Phase", "PhasedSGD", "PhasedSGDPlan"]

Array = NDArray[np.float64]

# Rows are copied in chunks into the order in which the steps read them: twice as fast as steps
# that read rows all over the table.
_CHUNK_BYTES = 2**21  # dense
_CHUNK_ROWS = 2**14  # CSR
_CHUNK_TABLES = 2**20  # bytes of tables, where each target has its own; they fit into a cache

_SHORT = 1 - 1e-9  # steps stay so far within what the proof allows
_LEAST_SMOOTHNESS = 1e-50  # of a linear loss, in rules that divide by it


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

    @property
    def releases(self) -> tuple[Release, ...]:
        return (Release("phase", self.noise, self.count, self.group),)


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

    @property
    def bounded_set(self) -> Geometry | None:
        return self.geometry if self.target_unit is None else None

    def run(self, data: SolverData, stream: RandomStream) -> SolverResult:
        """See `Plan.run`."""
        problem = self.problem
        order = stream.permutation(problem.n_samples) if self.shuffle else None
        begin = _start if self.target_unit is None else _start_in_units
        start = begin(data.row_major(), self, order, stream)
        descent = _Descent(start, order, self)
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
        coef = np.mean(results[self.max_iter // 2 :], axis=0)
        return start.units.result(coef[: problem.size], problem, self.max_iter)


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
        Bound c on the absolute derivative of the loss in the raw prediction, in scaled units;
        derivatives beyond it are clipped. Noise is proportional to c. "auto" is 0.35 in regression
        and 0.5 in classification for smooth losses, rising to 1 as the noise vanishes, and the
        derivative's own bound for the others and for several classes. A c above the largest
        derivative that the loss can have for a model of the feasible set is lowered to it.
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

    def __init__(
        self,
        *,
        max_iter: int | Auto = "auto",
        n_phases: int | Auto = "auto",
        learning_rate: float | Auto = "auto",
        gradient_clip: float | Auto = "auto",
        data_norm: float | Auto = "auto",
        rank_bound: int | None = None,
        shuffle: bool = True,
    ) -> None:
        self._store(locals())

    # ---------------------------------------------------------------- planning

    def _check(
        self, loss: Loss, feasible_set: Geometry | type[Geometry], budget: PrivacyBudget, units: str
    ) -> None:
        if budget.is_pure:
            raise ValueError("phased SGD has no pure-DP form (delta=0); DPLassoFW has one")
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
        check_units(self, budget, units)
        self._longest(loss, self.data_norm or 1.0, PHASED_SGD[loss.task])  # no default B is below 1

    def _plan(self, problem: Problem, budget: PrivacyBudget) -> PhasedSGDPlan:
        facts = self._facts(problem, budget)
        first, n_first, whole = facts.plan_first()
        if problem.n_samples - n_first < facts.n_phases:
            raise ValueError(
                f"n_phases={facts.n_phases} needs n_samples >= {facts.n_phases}, "
                f"got {problem.n_samples}"
            )
        left = whole if n_first else whole.share(first.left)
        # standard deviation of the noise of a release of sensitivity 1 per record
        unit = budget.record_factor / math.sqrt(2 * left.amount)
        target_unit: float | None = None
        if facts.learns_units:
            clip, target_unit = facts.unit_clip(self.gradient_clip)
            rate = self.learning_rate or facts.unit_rate(clip, target_unit, unit)
        else:
            noise = unit * math.sqrt(facts.rank) / problem.n_samples
            slope, clip = self._slope_and_clip(facts, noise)
            length = facts.last_length(noise, unit, clip / slope)
            rate = self.learning_rate or length / (slope * facts.norm**2)
        slices = self._slices(facts, n_first, rate)
        reach = facts.passes * sum((stop - start) * eta for start, stop, eta in slices)
        start_radius = min(facts.geometry.radius, reach * clip * facts.norm)
        phases = tuple(
            facts.phase(k, piece, start_radius, clip, left, is_all=len(slices) == 1 and not n_first)
            for k, piece in enumerate(slices)
        )
        releases = [*first.releases, *(r for phase in phases for r in phase.releases)]
        return PhasedSGDPlan(
            problem,
            budget,
            self.form,
            facts.passes,
            guarantee=Guarantee.of(budget, releases, left.kind),
            geometry=facts.geometry,
            start_radius=start_radius,
            gradient_clip=clip,
            data_norm=facts.norm,
            shuffle=self.shuffle,
            n_first=n_first,
            first=first,
            target_unit=target_unit,
            phases=phases,
        )

    def _facts(self, problem: Problem, budget: PrivacyBudget) -> _Facts:
        rules = PHASED_SGD[problem.loss.task]
        if self.rank_bound is not None and self.rank_bound > problem.n_features:
            raise ValueError(
                f"rank_bound must be at most n_features={problem.n_features}, got {self.rank_bound}"
            )
        kind = problem.feasible_set
        if isinstance(kind, Geometry):
            geometry = kind
        else:
            geometry = kind() if kind is Unconstrained else kind(rules.radius)
        rank = problem.n_features if self.rank_bound is None else self.rank_bound
        passes, n_phases = self._passes(problem, rules)
        learns_units = self._learns_units(problem, budget, passes)
        norm = 1.0 if learns_units else self.data_norm or defaults.data_norm(problem)
        rank = (rank + problem.fit_intercept) * problem.n_outputs
        return _Facts(problem, budget, rules, geometry, norm, rank, passes, n_phases, learns_units)

    def _learns_units(self, problem: Problem, budget: PrivacyBudget, passes: int) -> bool:
        """Whether learned units are possible and asked for, or pay."""
        if problem.units == "learned":
            defaults.check_copy(problem, "units='learned'", "units='bounds'")
        if problem.units != "auto":
            return problem.units == "learned"
        # a number is stated in the units of the bounds, and a single pass is for tables that are
        # better not copied
        is_free = problem.feasible_set is L2Ball and not self.numbers_in_units and passes > 1
        is_possible = defaults.may_copy(problem) and has_no_unit(problem.loss)
        return is_free and is_possible and pays(problem, budget)

    def _passes(self, problem: Problem, rules: PhasedSGDDefaults) -> tuple[int, int]:
        """Number of passes and of phases."""
        passes = self.max_iter
        if passes is None:
            per_record = problem.size
            if is_tabulated(problem.loss) and problem.loss.task == "regression":
                per_record += GRID.size * problem.n_outputs
            affordable = int(rules.affordable / (problem.n_samples * per_record))
            is_one = affordable < rules.fewest_passes
            passes = 1 if is_one else min(affordable, rules.most_passes)
        if self.n_phases is None:
            return passes, min(rules.n_phases, problem.n_samples) if passes == 1 else 1
        return passes, self.n_phases

    def _slope_and_clip(self, facts: _Facts, noise: float) -> tuple[float, float]:
        """The slope c_0 that steps are measured at, and the clip c."""
        loss, rules = facts.problem.loss, facts.rules
        largest = facts.geometry.radius * facts.norm + largest_constant(loss)
        bound = bounded_clip(loss, math.inf, largest)
        if isinstance(loss, Multinomial):
            return min(rules.smallest_clip, bound), bound
        if self.gradient_clip is not None:
            clip = min(self.gradient_clip, bound)
            return clip, clip
        if not math.isfinite(loss.smoothness):
            if not math.isfinite(bound):
                raise ValueError(
                    "gradient_clip must be a number for a loss with a kink whose derivative has no "
                    f"finite bound; got 'auto' for {loss!r}"
                )
            return bound, bound  # clipping the slopes of a kinked loss would move its minimizer
        slope = min(rules.smallest_clip, bound)
        clip = defaults.growing_clip(facts.problem, slope, noise, rules.accurate)
        return slope, min(clip, bound)

    def _slices(self, facts: _Facts, n_first: int, last: float) -> list[tuple[int, int, float]]:
        """Slices of equal size, with steps that fall to `last`."""
        n_phases, n = facts.n_phases, facts.problem.n_samples - n_first
        ends = [n_first + n * (k + 1) // n_phases for k in range(n_phases)]
        longest = self._longest(facts.problem.loss, facts.norm, facts.rules)
        rates = [
            min(longest, last * facts.rules.ratio ** (n_phases - 1 - k)) for k in range(n_phases)
        ]
        return list(zip([n_first, *ends[:-1]], ends, rates, strict=True))

    def _longest(self, loss: Loss, norm: float, rules: PhasedSGDDefaults) -> float:
        """The longest step; infinite for losses whose smoothing depends on the step."""
        if not math.isfinite(loss.smoothness):
            return math.inf
        if self.learning_rate is None:
            return rules.curved / (_curvature(loss) * norm**2)
        if is_tabulated(loss):
            return math.inf
        longest = 2 * _SHORT / (loss.smoothness * norm**2)
        if self.learning_rate > longest:
            raise ValueError(
                f"learning_rate must be at most {longest:.4g}, that is 2 over the smoothness of "
                f"the loss times data_norm^2, got {self.learning_rate!r}"
            )
        return longest


def _kernel_form(loss: Loss) -> tuple[int, float]:
    """`loss_id` and `parameter` of the loss in a `Slope`."""
    if is_tabulated(loss):
        return TABULATED, 0.0
    if isinstance(loss, Multinomial):
        return MULTINOMIAL, 0.0
    base = base_loss(loss)
    loss_id = kernel_id(base)
    assert loss_id is not None
    return loss_id, base.kernel_parameter


def _curvature(loss: Loss) -> float:
    """The smoothness of a loss, as rules for steps divide by it."""
    return max(loss.smoothness, _LEAST_SMOOTHNESS)


@dataclass(frozen=True)
class _Facts:
    """Public facts that a plan uses.

    `rank` bounds the rank of the rows, the intercept's column included.
    """

    problem: Problem
    budget: PrivacyBudget
    rules: PhasedSGDDefaults
    geometry: Geometry
    norm: float
    rank: int
    passes: int
    n_phases: int
    learns_units: bool

    def plan_first(self) -> tuple[FirstReleases | LearnedUnits, int, Allowance]:
        """The first releases, the number of records of their slice, and the whole allowance.

        0 stands for all records, where the first releases leave a share of the allowance.
        """
        problem, budget, rules = self.problem, self.budget, self.rules
        if self.learns_units:
            whole = budget.mixed_allowance
            return plan_units(problem, budget, whole, LearnedUnits), 0, whole
        allowance = budget.gaussian_allowance
        # without an intercept only the row factor is left, which needs little of a budget
        is_sliced = self.passes == 1 and problem.fit_intercept
        n_first = int(rules.first_slice * problem.n_samples) if is_sliced else 0
        if n_first:
            noise = budget.record_factor / math.sqrt(2 * allowance.amount * rules.first_shares[0])
            if noise / n_first > rules.first_noise:
                n_first = 0
        if not n_first:
            first = plan_first(
                problem, budget, self.norm, allowance, may_shrink=True, may_step=False
            )
            return first, 0, allowance
        first = plan_first(
            replace(problem, n_samples=n_first),
            budget,
            self.norm,
            allowance,
            may_shrink=True,
            may_step=False,
            shares=rules.first_shares,
            group="first slice",
        )
        return first, n_first, allowance

    @property
    def unit_growth(self) -> float:
        """The root of `Units.growth`, for classes of the same size."""
        units = LEARNED_UNITS[self.problem.loss.task]
        return math.sqrt(max(1.0, units.growth * self.unit_accuracy / self.problem.dimension))

    @property
    def unit_accuracy(self) -> float:
        """The m of `learned_units`."""
        return accuracy(self.problem, self.budget)

    def unit_clip(self, declared: float | None) -> tuple[float, float]:
        """The clip in learned units, and the unit of the targets; see `PhasedSGDPlan`.

        A declared clip is stated in the spreads of the targets.
        """
        problem, loss = self.problem, self.problem.loss
        units = LEARNED_UNITS[loss.task]
        each = min(units.largest_clip, units.smallest_clip * self.unit_growth)
        if self.unit_accuracy < units.unbiased:
            each = units.largest_clip  # as in `unit_descent`
        target_unit = self.rules.target_unit * each if loss.task == "regression" else 1.0
        bound = bounded_clip(loss, math.inf, self.geometry.radius + largest_constant(loss))
        # the derivatives of a multinomial or kinked loss are not clipped, see `_slope_and_clip`
        is_whole = isinstance(loss, Multinomial) or not math.isfinite(loss.smoothness)
        clip = each / target_unit * defaults.joint_unit(problem)
        clip = clip if declared is None else declared / target_unit
        return bound if is_whole else min(bound, clip), target_unit

    def unit_rate(self, clip: float, target_unit: float, unit: float) -> float:
        """The step in learned units: as long as that of `unit_descent`, or as passes allow.

        `unit` is as in `last_length`.
        """
        problem, n = self.problem, self.problem.n_samples
        units, smoothness = LEARNED_UNITS[problem.loss.task], _curvature(problem.loss)
        # a kinked loss curves where the residuals are, over one spread of the targets
        curvature = smoothness if math.isfinite(smoothness) else target_unit
        # what is expected of the rows: with an intercept, half of their square belongs to it
        square = 1.0 + problem.fit_intercept
        share = 0.7 / min(LARGEST_ROW_GROWTH, self.unit_growth) ** 2
        single, trace = clip * unit / n, (share + problem.fit_intercept) / square
        length = min(
            units.prediction_noise / target_unit * math.sqrt(1.5 / trace) / single,
            (units.signal * clip / single) ** 2 / (curvature * trace * square),
        )
        most = self.rules.unit_step / (share * curvature * math.sqrt(n * math.sqrt(self.passes)))
        return min(length / (n * self.passes), most)

    def phase(
        self,
        k: int,
        piece: tuple[int, int, float],
        start_radius: float,
        clip: float,
        left: Allowance,
        *,
        is_all: bool,
    ) -> Phase:
        """The phase over a slice, with its noise."""
        start, stop, rate = piece
        loss, is_own = self.problem.loss, is_tabulated(self.problem.loss)
        is_smooth = math.isfinite(loss.smoothness)
        # Of a loss with a kink half of the largest beta that the step allows; a larger beta would
        # mean less bias. Of a user's smooth loss all of it, which changes nothing if the smoothness
        # is as stated.
        share = 2 * _SHORT if is_smooth else 1.0
        beta = share / (rate * self.norm**2) if is_own or not is_smooth else math.inf
        # nothing that a user's loss says of itself enters the sensitivity
        slope = beta if is_own else min(loss.smoothness, beta)
        parameter = 2 * clip / beta if is_own else _kernel_form(loss)[1]
        block = _block(self.problem.n_features)
        steps = sensitivity.GradientSteps(stop - start, rate, slope, clip, parameter, block)
        change = sensitivity.phase_mean(
            self.problem, self.budget, steps, start_radius, self.geometry.radius, self.norm
        )
        noise = Gaussian.calibrate(change, left, self.passes, self.problem.size)
        group = None if is_all else f"phase {k + 1}"
        return Phase(noise, start, stop, rate, beta, self.passes, group)

    def last_length(self, noise: float, unit: float, excess: float) -> float:
        """Length of a step of the last phase, see `PhasedSGDDefaults`.

        `noise` is the norm of the noise after n steps of length 1 / n, `unit` its standard
        deviation in one direction after one step of length 1, `excess` the clip over c_0.
        """
        rules, n, passes = self.rules, self.problem.n_samples, self.passes
        noise *= excess
        length = min(
            rules.length / math.sqrt(n * math.sqrt(passes)),
            rules.reach / (noise * passes * n),
            rules.energy / (noise**2 * passes * n),
        )
        if passes > 1:
            return length
        # a bound for the noise of the first phase, whose steps are longer
        reach = rules.reach / (noise * n * rules.ratio ** (self.n_phases - 1))
        return min(length, reach, rules.prediction_noise / (unit * excess))


def _block(n_features: int) -> int:
    """Steps between two projections: few, but enough to make projections cheap."""
    return 16 + n_features // 16


# -------------------------------------------------------------------------------- running


class _Start(NamedTuple):
    """Input of the descent: records with rows of the form, their offset, and the way back."""

    data: SolverData
    form: RowForm
    offset: Any
    units: Frame | Units


def _start(
    data: SolverData, plan: PhasedSGDPlan, order: NDArray[np.intp] | None, stream: RandomStream
) -> _Start:
    """In the units of the bounds."""
    problem = plan.problem
    before = data.part(_taken(order, 0, plan.n_first)) if plan.n_first else data
    frame = plan.first.run(before, stream).frame
    center = np.zeros(problem.n_features) if frame.center is None else frame.center
    error = norm_error(problem.n_features)
    bound = plan.data_norm * (1 - error)
    bias, error = float(problem.fit_intercept), 2 * error if data.is_sparse else 0.0
    form = RowForm(center, bias, bound, error)
    return _Start(frame.weighted(data).kept(), form, frame.offset, frame)


def _start_in_units(data: SolverData, plan: PhasedSGDPlan, _: Any, stream: RandomStream) -> _Start:
    """In learned units: a record's row is ``unit * [r, 1]``, of norm at most 1."""
    units, problem, width = plan.first.run(data, stream), plan.problem, plan.target_unit
    units = units._replace(offset=units.offset / width, target_scale=units.target_scale * width)
    each = float(units.unit[0])
    bias = float(units.unit[-1]) / each if problem.fit_intercept else 0.0
    # no row is longer than sqrt(2): the bound has no effect
    form = RowForm(np.zeros(problem.n_features), bias, 2.0, 0.0)
    of_targets = width if problem.loss.task == "regression" else None
    data = units.data.map(_in_step_units, each, of_targets).kept()
    return _Start(data, form, units.offset, units)


def _in_step_units(data: SolverData, each: float, width: float | None) -> SolverData:
    """Rows whose scale holds the unit, and targets cut to [-1, 1] in units of `width`."""
    rows, y = data.rows, data.y
    y = y if width is None else np.clip(y / width, -1.0, 1.0)
    scaled = make_rows(rows.X, rows.has_intercept, each * rows.scales(), rows.sample_weight)
    return SolverData(scaled, y)


class _Descent:
    """The records in their order, and how to run a phase over a slice of them."""

    def __init__(self, start: _Start, order: NDArray[np.intp] | None, plan: PhasedSGDPlan) -> None:
        d, is_sparse = plan.problem.n_features, start.data.is_sparse
        self.data, self.order = start.data, order
        self.plan, self.offset, self.form = plan, start.offset, start.form
        self.block = _block(d)
        # rows gathered at a time: whole blocks
        fitting = _CHUNK_ROWS if is_sparse else _CHUNK_BYTES // (8 * d)
        longest = max(phase.size for phase in plan.phases)
        loss = plan.problem.loss
        if is_tabulated(loss) and loss.task == "regression":
            fitting = min(fitting, _CHUNK_TABLES // (16 * GRID.size * loss.n_outputs))
        self.chunk = min(longest, max(1, fitting // self.block) * self.block)
        self.ones = np.ones(self.chunk)  # in the place of scales or weights that are not there

    def run(self, phase: Phase, start: Array) -> Array:
        """Mean of the last iterates of one pass over the phase's records from `start`."""
        plan, radius, k = self.plan, self.plan.geometry.radius, self.plan.problem.n_outputs
        shape = start.shape if k == 1 else (start.size // k, k)
        w, total, count = start.copy().reshape(shape), np.zeros(shape), 0
        found: Slope | Tables
        slope, *offsets = self._slope(phase.beta)
        averaged = PHASED_SGD[plan.problem.loss.task].averaged
        first = phase.size - math.ceil(averaged * phase.size)
        done = 0
        for part in self._parts(_taken(self.order, phase.start, phase.start + phase.size)):
            steps = Steps(phase.learning_rate, radius, self.block, first - done)
            done += part.n_samples
            scale, weight = (
                self.ones[: part.n_samples] if array is None else array
                for array in (part.rows.scale, part.rows.sample_weight)
            )
            found, y = slope, part.y
            if slope.loss_id == TABULATED:
                found, y = self._tables(slope, y)
            records = scale, weight, y
            X = part.rows.X
            count += self._steps(X, records, self.form, found, *offsets, steps, w, total)
        return total.ravel() / count

    def _slope(self, beta: float) -> tuple[Any, ...]:
        """The derivative as the kernel takes it, for several outputs with their offsets."""
        loss, clip = self.plan.problem.loss, self.plan.gradient_clip
        k = loss.n_outputs
        loss_id, parameter = _kernel_form(loss)
        if k == 1:
            return (Slope(loss_id, parameter, clip, self.offset, beta),)
        # each derivative's bound, so that all together have norm c
        each = clip / math.sqrt(k) * (1 - 8 * UNIT_ROUNDOFF)
        offsets = np.ascontiguousarray(np.broadcast_to(self.offset, (k,)), dtype=np.float64)
        return Slope(loss_id, parameter, each, 0.0, beta), offsets

    def _tables(self, slope: Slope, y: Array) -> tuple[Tables, Array]:
        """Tables of the derivative for these targets, and the number of each one's table."""
        base = base_loss(self.plan.problem.loss)
        targets, numbers = y.ravel(), np.arange(y.size, dtype=np.float64).reshape(y.shape)
        if base.task == "classification":  # the two labels, which are public
            targets, numbers = np.array([-1.0, 1.0]), np.where(y > 0, 1.0, 0.0)
        knots, values = tables(base, targets, slope.clip, slope.beta)
        return Tables(knots, values, slope.clip, slope.offset), numbers

    def _parts(self, which: Which) -> Iterator[SolverData]:
        """The records in parts of whole blocks; dense rows that are gathered share one buffer."""
        data = self.data
        if not data.is_local or data.is_sparse or isinstance(which, slice):
            yield from data.in_order(which, self.chunk)
            return
        rows = data.rows
        buffer = np.empty((self.chunk, rows.n_columns), dtype=rows.X.dtype)
        for part in slices(which.size, self.chunk):
            some = which[part]
            # (in the mode "raise", numpy would copy to a buffer of its own first)
            rows.X.take(some, axis=0, out=buffer[: some.size], mode="clip")
            factors = (None if a is None else a[some] for a in (rows.scale, rows.sample_weight))
            taken = make_rows(buffer[: some.size], rows.has_intercept, *factors)
            yield SolverData(taken, data.y[some])

    def _steps(self, X: Any, *arguments: Any) -> int:
        """One call of the kernel; `arguments` are those after the rows."""
        from .._kernels import sgd_steps as kernels

        is_single = self.plan.problem.n_outputs == 1
        if sparse.issparse(X):
            csr_steps = kernels.csr_steps if is_single else kernels.joint_csr_steps
            return csr_steps(Compressed.of(X), *arguments)
        dense_steps = kernels.dense_steps if is_single else kernels.joint_dense_steps
        return dense_steps(np.ascontiguousarray(X), *arguments)


def _taken(order: NDArray[np.intp] | None, start: int, stop: int) -> Which:
    """Where the records of a slice are."""
    return slice(start, stop) if order is None else order[start:stop]
