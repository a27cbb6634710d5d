r"""Follow the regularized leader on noisy prefix sums: models of a stream, private at all times.

The stream is cut into steps of a public number of records. Step t adds up the clipped
gradients of its records at the current coefficients, `PrefixSum` releases what is needed
for a noisy sum :math:`\tilde G_t` of all gradients so far, and

.. math:: w_{t+1} = \arg\min_{w} \; \langle \tilde G_t, w \rangle + D_\Psi(w, w_1) / \lambda

over the feasible set, :math:`D_\Psi` the Bregman divergence of a mirror map. Each record
enters one step, so that the whole sequence of iterates costs one release.

A stream of unknown length is cut into epochs that double. Each has records of its own, and
therefore the full budget, and starts from where the one before ended.

The first records buy private means of the targets and the features, with the full budget
as well, before the descent starts.

This replaces the method of Arora, Marinov and Ullah (2020), whose noise is too small.
Sensitivities: doc/privacy.rst, sections 2.4 and 6.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from .._linear import UNIT_ROUNDOFF, Objective, Rows, gamma, piece_rows
from .._random import RandomStream
from ..accounting import Allowance, Guarantee, PrivacyBudget
from ..geometry import Geometry
from ..losses import Loss
from ..mechanisms import Gaussian, PrefixSum, Release
from ..mirror_maps import MirrorMap
from .base import Plan, Problem, SolverData, SolverResult
from .preliminaries import default_data_norm

__all__ = ["FTRL", "LONGEST_STREAM", "Epoch", "FTRLPlan", "FTRLRun"]

Array = NDArray[np.float64]

LONGEST_STREAM = 2**40  # records; float sums over many more have no bound on their error

# All numbers below are one value for every table; where the synthetic data of
# benchmarks/streaming.py left a choice open, the five tables of benchmarks/utility.py
# decided.

_STEPS = 256  # of an epoch; more of them cost time and a little noise, and gain nothing
_PREFIX_NOISE = 2.8  # of the last of so many steps, in units of sensitivity / mu
_SMALLEST_BATCH = 4  # the gradients of fewer records point anywhere

# Share of the first release that goes to the targets, and the noise that it aims at: the
# standard deviation of the mean target, and the l2 norm for the means of the features.
_TARGET_SHARE = 0.5
_TARGET_NOISE = 0.1
_CENTER_NOISE = 0.5
_FIRST_PART = (0.02, 0.3)  # of the stream, at least and at most
_TARGET_PRIOR = 0.5  # standard deviation of the mean of targets in [-1, 1] over tasks

# Noise in the coefficients: the l2 norm that a prediction on the longest row may have, and
# the relative noise of the mean gradient above which even less is allowed, so that the
# model fades into the trivial predictor.
_REACH = {"regression": 1.0, "classification": 8.0}
_NOISY = {"regression": 0.15, "classification": 0.6}
_CLIP = {"regression": 0.3, "classification": 0.5}
_RADIUS = {"regression": 3.0, "classification": 30.0}
_AVERAGE_POWER = 2.0  # the average weighs the iterate after n records by about n^2


@dataclass(frozen=True)
class Epoch:
    """A part of the stream that has one factorization.

    Attributes
    ----------
    n_records : int
    batch_size : int
        Records per step; the last step takes what is left.
    learning_rate : float
        lambda, the factor of the noisy sum of the gradients.
    """

    n_records: int
    batch_size: int
    learning_rate: float

    @property
    def n_steps(self) -> int:
        return -(-self.n_records // self.batch_size)


@dataclass(frozen=True)
class FTRLPlan(Plan):
    """Plan of `FTRL`; see `Plan` for the common fields.

    Attributes
    ----------
    geometry : Geometry
        The feasible set with its radius.
    mirror_map : MirrorMap
    gradient_clip : float
        c: bound on abs(dl/dz).
    data_norm : float
        B: bound on the l2 norm of a row, by which its gradient is scaled down.
    average : bool
        Whether the model is the average of the iterates, or the last one.
    n_first : int
        Records that only go into the first means.
    first_means : Gaussian or None
        Releases the sum of [a y_i, b s_i x_i / B] over those records, a^2 + b^2 = 1.
    epochs : tuple of Epoch
    prefix_sums : tuple of PrefixSum
        One for each epoch.
    """

    geometry: Geometry
    mirror_map: MirrorMap
    gradient_clip: float
    data_norm: float
    average: bool
    n_first: int
    first_means: Gaussian | None
    epochs: tuple[Epoch, ...]
    prefix_sums: tuple[PrefixSum, ...]

    def guarantee_after(self, n_seen: int) -> Guarantee:
        """The guarantee with the parts of the stream that have begun after `n_seen` records."""
        begun, start = [], 0
        sizes = [self.n_first] * (self.first_means is not None)
        sizes += [epoch.n_records for epoch in self.epochs]
        for size, release in zip(sizes, self.guarantee.releases, strict=True):
            if start < n_seen:
                begun.append(release)
            start += size
        return replace(self.guarantee, releases=tuple(begun))


@dataclass(frozen=True)
class FTRL:
    """Settings of the solver; `None` leaves a value to the plan.

    Parameters
    ----------
    batch_size : int or None
        Records per step.
    learning_rate : float or None
        Factor of a step's mean gradient.
    gradient_clip : float or None
    data_norm : float or None
    mirror_map : str or None
        Kind of the map; None leaves it to the plan.
    factorization : {"toeplitz", "tree", "honaker"}
    average : bool
    shuffle : bool
        Whether `solve` takes the records in random order.
    doubling : bool
        Epochs that double, instead of one for the whole stream.
    first_epoch : int
        Records of the first of them.
    """

    batch_size: int | None = None
    learning_rate: float | None = None
    gradient_clip: float | None = None
    data_norm: float | None = None
    mirror_map: str | None = None
    factorization: str = "toeplitz"
    average: bool = True
    shuffle: bool = True
    doubling: bool = False
    first_epoch: int = 2 * _STEPS

    # ---------------------------------------------------------------- planning

    def plan(self, problem: Problem, budget: PrivacyBudget) -> FTRLPlan:
        """Everything that a stream of ``problem.n_samples`` records does.

        Raises
        ------
        ValueError
            If the budget is pure, the feasible set lacks the mirror map, or the stream is
            longer than `LONGEST_STREAM`.
        """
        if problem.n_samples > LONGEST_STREAM:
            raise ValueError(
                f"a stream has at most {LONGEST_STREAM} records, got horizon={problem.n_samples}"
            )
        if budget.is_pure:
            raise ValueError(
                "the streaming solver has no pure-DP form (delta=0); DPLassoFW and "
                "DPLassoFWClassifier with solver='selection' have one"
            )
        allowance = budget.gaussian_allowance.share(1 / problem.n_models)
        geometry = _geometry(problem)
        norm = self.data_norm or default_data_norm(problem)
        mirror_map = self._mirror_map(problem, budget, allowance, geometry, norm)
        clip = self._clip(problem, geometry)
        n_first = self._first_part(problem, budget, allowance, norm)
        releases, first_means = [], None
        if n_first:
            first_means = _plan_first_means(problem, budget, allowance, n_first)
            releases.append(Release("first means", first_means, 1, "first records"))
        epochs, prefix_sums = [], []
        for number, size in enumerate(self._epoch_sizes(problem.n_samples - n_first)):
            batch_size = min(size, self.batch_size or max(_SMALLEST_BATCH, -(-size // _STEPS)))
            prefix_sum = _plan_prefix_sum(
                problem, budget, allowance, norm, clip, size, batch_size, self.factorization
            )
            rate = self.learning_rate and self.learning_rate / batch_size
            rate = rate or _learning_rate(
                problem, mirror_map, norm, clip, size, batch_size, prefix_sum
            )
            epochs.append(Epoch(size, batch_size, rate))
            prefix_sums.append(prefix_sum)
            releases.append(Release("prefix sums", prefix_sum, 1, f"epoch {number}"))
        return FTRLPlan(
            problem=problem,
            budget=budget,
            solver="ftrl",
            max_iter=sum(epoch.n_steps for epoch in epochs),
            guarantee=Guarantee(
                budget.epsilon, budget.delta, budget.relation, allowance.kind,
                tuple(releases), problem.n_models,
            ),
            geometry=geometry, mirror_map=mirror_map, gradient_clip=clip, data_norm=norm,
            average=self.average, n_first=n_first, first_means=first_means,
            epochs=tuple(epochs), prefix_sums=tuple(prefix_sums),
        )  # fmt: skip

    def _mirror_map(
        self,
        problem: Problem,
        budget: PrivacyBudget,
        allowance: Allowance,
        geometry: Geometry,
        norm: float,
    ) -> MirrorMap:
        """The declared map, or "euclidean", or "power" where it has far less noise.

        Noise in many coordinates is shorter in the dual norm of "power", and gradients are,
        too, so that only more noise than the descent bears makes it the better choice.
        """
        if self.mirror_map is not None or "euclidean" not in geometry.mirror_maps:
            return geometry.mirror_map(self.mirror_map)
        width = problem.dimension
        per_sum = budget.record_factor * norm / math.sqrt(2 * allowance.amount)
        relative = _PREFIX_NOISE * per_sum * math.sqrt(width) / problem.n_samples
        if relative > _NOISY["regression"] and "power" in geometry.mirror_maps:
            return geometry.mirror_map("power")
        return geometry.mirror_map("euclidean")

    def _first_part(
        self, problem: Problem, budget: PrivacyBudget, allowance: Allowance, norm: float
    ) -> int:
        """Records that bring the noise of the first means down to its aim."""
        if not problem.fit_intercept:
            return 0
        noise = budget.record_factor / math.sqrt(2 * allowance.amount)
        for_targets, for_rows = _first_weights()
        wanted = max(
            noise / for_targets / _TARGET_NOISE,
            noise / for_rows * norm * math.sqrt(problem.n_features) / _CENTER_NOISE,
        )
        least, most = (part * problem.n_samples for part in _FIRST_PART)
        # where the end of the stream is not known, what is wanted is all that counts
        return int(min(most, wanted if self.doubling else max(wanted, least)))

    def _clip(self, problem: Problem, geometry: Geometry) -> float:
        """The declared or default clip, or the loss's own bound where that is smaller."""
        clip = self.gradient_clip or _CLIP[problem.loss.task]
        # every l_p norm of the coefficients that bounds a prediction is at most this
        largest = geometry.radius * 2 * problem.dimension + abs(problem.loss.best_constant(1.0))
        return min(clip, problem.loss.derivative_bound(largest))

    def _epoch_sizes(self, n_records: int) -> list[int]:
        if not self.doubling:
            return [n_records]
        sizes, size = [], self.first_epoch
        while n_records > 0:
            sizes.append(min(size, n_records))
            n_records -= sizes[-1]
            size *= 2
        return sizes

    # ----------------------------------------------------------------- running

    def solve(self, data: SolverData, plan: FTRLPlan, stream: RandomStream) -> SolverResult:
        """One stream over all records.

        Parameters
        ----------
        data : SolverData
        plan : FTRLPlan
        stream : RandomStream
        """
        rows, n = data.rows.row_major(), plan.problem.n_samples
        order = stream.substream("order").permutation(n) if self.shuffle else None
        noise, run = stream.substream("noise"), FTRLRun(plan)
        size = piece_rows(rows.X)
        for start in range(0, n, size):
            part = slice(start, min(start + size, n))
            which = part if order is None else order[part]
            run.add(rows.part(which), data.y[which], noise)
        return run.result()


@dataclass
class FTRLRun:
    """A stream in progress.

    Holds un-noised sums over the records: the gradients of the unfinished step and what
    `PrefixSum` has to encode. `result` is private at any time, the object itself never.

    Parameters
    ----------
    plan : FTRLPlan

    Attributes
    ----------
    n_seen, n_steps : int
        Records taken in, and steps released.
    """

    plan: FTRLPlan
    n_seen: int = 0
    n_steps: int = 0

    _epoch: int = field(default=-1, init=False)
    _left: int = field(default=0, init=False)  # records until the next release
    _left_in_epoch: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        problem = self.plan.problem
        width = problem.dimension
        self._sum: Array = np.zeros(problem.n_features + 1 if self.plan.n_first else width)
        self._offset = 0.0
        self._center: Array | None = None
        self._coef = self._average = self._start = self.plan.geometry.center(width)
        self._n_averaged = 0
        if self.plan.n_first:
            self._left = self.plan.n_first
        else:
            self._next_epoch()

    def add(self, rows: Rows, y: Array, stream: RandomStream) -> None:
        """Take in more records; noise comes from `stream`.

        Parameters
        ----------
        rows : Rows
            Uncentred; a record of scale 0 contributes nothing.
        y : ndarray of shape (n,)
        stream : RandomStream

        Raises
        ------
        ValueError
            If the plan's stream is shorter. Nothing is taken in then.
        """
        if self.n_seen + rows.n_samples > self.plan.problem.n_samples:
            raise ValueError("the stream is longer than its plan")
        start = 0
        while start < rows.n_samples:
            stop = min(start + self._left, rows.n_samples)
            part = slice(start, stop)
            if self._epoch < 0:
                self._add_means(rows.part(part), y[part])
            else:
                self._add_gradients(rows.part(part).centered(self._center), y[part])
            self.n_seen += stop - start
            self._left -= stop - start
            start = stop
            if self._left == 0:
                self._release(stream)

    def copy(self) -> FTRLRun:
        """A run in the same state. If both go on, a record of the past is released in both."""
        other = copy.copy(self)
        other._sum = self._sum.copy()
        if self._epoch >= 0:
            other._prefix_run = copy.deepcopy(self._prefix_run)
        return other

    def result(self) -> SolverResult:
        """The model after the last release, in scaled units."""
        weights = self._average if self.plan.average else self._coef
        d = self.plan.problem.n_features
        coef, intercept = weights[:d].copy(), self._offset
        if self.plan.problem.fit_intercept:
            intercept += float(weights[d])
        if self._center is not None:
            intercept -= float(coef @ self._center)
        return SolverResult(coef, intercept, max(1, self.n_steps))

    # ---------------------------------------------------------- the first records

    def _add_means(self, rows: Rows, y: Array) -> None:
        bound = self.plan.data_norm
        scale = np.asarray(rows.with_norm_bound(bound).scale)
        for_targets, for_rows = _first_weights()
        d = self.plan.problem.n_features
        self._sum[0] += for_targets * float(y[scale > 0].sum())
        self._sum[1:] += (for_rows / bound) * rows.weighted_sum(scale)[:d]

    def _release_means(self, stream: RandomStream) -> None:
        """Private means of the targets and features, shrunk by their noise."""
        mechanism, n = self.plan.first_means, self.plan.n_first
        assert mechanism is not None
        released = mechanism.release(self._sum, stream)
        for_targets, for_rows = (weight * n for weight in _first_weights())
        noise = mechanism.scale / for_targets
        mean = float(np.clip(released[0] / for_targets, -1.0, 1.0))
        mean /= 1 + (noise / _TARGET_PRIOR) ** 2
        self._offset = self.plan.problem.loss.best_constant(mean)
        noise = mechanism.scale * math.sqrt(released.size - 1)
        kept = max(0.0, 1 - noise**2 / max(float(released[1:] @ released[1:]), 1e-300))
        means = released[1:] * (kept * self.plan.data_norm / for_rows)
        self._center = np.clip(means, -1.0, 1.0)

    # ---------------------------------------------------------------- the descent

    def _add_gradients(self, rows: Rows, y: Array) -> None:
        """Gradients of scale_i * l(offset + <row_i, w>, y_i), each of norm at most c B."""
        plan = self.plan
        objective = Objective(y, self._offset, plan.problem.loss, plan.gradient_clip)
        self._sum += rows.clipped_gradient_sum(self._coef, objective, plan.data_norm)

    def _release(self, stream: RandomStream) -> None:
        if self._epoch < 0:
            self._release_means(stream)
            self._next_epoch()
            return
        plan = self.plan
        epoch, prefix_sum = plan.epochs[self._epoch], plan.prefix_sums[self._epoch]
        released = prefix_sum.release(self._prefix_run.encode(self._sum), stream)
        prefix = self._prefix_run.decode(released)
        self._coef = plan.mirror_map.step(self._start, prefix, epoch.learning_rate)
        n_records = min(epoch.batch_size, self._left_in_epoch)
        self._n_averaged += n_records
        weight = (_AVERAGE_POWER + 1) * n_records / (self._n_averaged + _AVERAGE_POWER * n_records)
        self._average = self._average + weight * (self._coef - self._average)
        self.n_steps += 1
        self._left_in_epoch -= n_records
        if self._left_in_epoch == 0:
            self._next_epoch()
        else:
            self._begin_step()

    def _next_epoch(self) -> None:
        self._epoch += 1
        if self._epoch == len(self.plan.epochs):
            return
        self._start = self._coef
        self._left_in_epoch = self.plan.epochs[self._epoch].n_records
        self._prefix_run = self.plan.prefix_sums[self._epoch].start(self._coef.size)
        self._begin_step()

    def _begin_step(self) -> None:
        self._sum = np.zeros(self._coef.size)
        self._left = min(self.plan.epochs[self._epoch].batch_size, self._left_in_epoch)


# ------------------------------------------------------------------------- sensitivities


def _sum_error(n_records: int) -> float:
    """Relative float error of a sum of that many terms in any order and grouping."""
    # a term meets at most n_records additions of parts that hold records, and up to ten
    # roundings on its way from the derivative into the centred sum
    return gamma(2 * n_records + 16)


def _first_weights() -> tuple[float, float]:
    """Weights of target and row in the first release; their squares sum to less than 1."""
    down = 1 - 8 * UNIT_ROUNDOFF
    return down * math.sqrt(_TARGET_SHARE), down * math.sqrt(1 - _TARGET_SHARE)


def _plan_first_means(
    problem: Problem, budget: PrivacyBudget, allowance: Allowance, n_first: int
) -> Gaussian:
    """Mechanism for the sum of vectors [a y_i, b s_i x_i / B] of norm at most 1."""
    sensitivity = budget.record_factor + 2 * n_first * _sum_error(n_first)
    return Gaussian.calibrate(sensitivity, allowance, dimension=problem.n_features + 1)


def _plan_prefix_sum(
    problem: Problem,
    budget: PrivacyBudget,
    allowance: Allowance,
    norm: float,
    clip: float,
    n_records: int,
    batch_size: int,
    factorization: str,
) -> PrefixSum:
    """Mechanism for the sums of gradients, each of norm at most c B."""
    # a centred row is formed as a difference of parts up to twice as long as the box
    error = batch_size * _sum_error(batch_size) * clip * 2 * math.sqrt(problem.dimension)
    return PrefixSum.calibrate(
        budget.record_factor * clip * norm + 2 * error,
        allowance,
        n_steps=-(-n_records // batch_size),
        width=problem.dimension,
        largest_norm=batch_size * clip * norm + error,
        factorization=factorization,
    )


# ------------------------------------------------- defaults: functions of public facts only


def _geometry(problem: Problem) -> Geometry:
    """The declared set, or one of a default size."""
    kind = problem.feasible_set
    if isinstance(kind, Geometry):
        return kind
    if problem.loss.task == "regression" and not kind.contains_origin:
        return kind(1.0)  # a set away from the origin: convex combinations
    return kind(_RADIUS[problem.loss.task])


def _learning_rate(
    problem: Problem,
    mirror_map: MirrorMap,
    norm: float,
    clip: float,
    n_records: int,
    batch_size: int,
    prefix_sum: PrefixSum,
) -> float:
    """The largest step that is stable, or that keeps the noise in the coefficients in bounds.

    All in the norm in which the mirror map is strongly convex, and its dual.
    """
    task, width = problem.loss.task, problem.dimension
    q = mirror_map.dual_exponent(width)
    # a centred row has coordinates of at most 2, so ||x||_q <= ||x||_2^(2/q) 2^(1 - 2/q)
    row = min(norm, norm ** (2 / q) * 2 ** (1 - 2 / q))
    per_gradient = _stable_step(problem.loss, row, clip, -(-n_records // batch_size)) / batch_size
    if q == math.inf:
        noise = prefix_sum.worst_scale * math.sqrt(2 * math.log(2 * width))
    else:
        noise = prefix_sum.worst_scale * width ** (1 / q) * math.sqrt(q - 1)
    relative = noise / (clip * n_records)
    allowed = _REACH[task] / row * min(1.0, _NOISY[task] / relative)
    return min(per_gradient, allowed / noise)


def _stable_step(loss: Loss, row: float, clip: float, n_steps: int) -> float:
    """Step along a mean gradient that neither overshoots nor, on a kink, swings for ever."""
    if math.isfinite(loss.smoothness):
        return 1.9 / (loss.smoothness * row**2)
    return _REACH[loss.task] / (clip * row**2 * math.sqrt(n_steps))
