r"""Follow the regularized leader on noisy prefix sums: models of a stream, private at all times.

The stream is cut into steps of a public number of records. Step t adds up the clipped
gradients of its records at the current coefficients, `PrefixSum` releases what is needed
for a noisy sum :math:`\tilde G_t` of all gradients so far, and

.. math:: w_{t+1} = \arg\min_{w} \; \langle \tilde G_t, w \rangle + D_\Psi(w, w_1) / \lambda

over the feasible set, :math:`D_\Psi` the Bregman divergence of a mirror map. Each record
enters one step, so that the whole sequence of iterates costs one release.

A stream of unknown length is cut into epochs that double. Each has its own records, and
therefore the full budget, and starts from the last result of the epoch before.

The first records are used for private means of the targets and the features, also with the
full budget, before the descent starts. Where their number allows it, the next ones give the
second moments of the features: in coordinates in which these are alike, the descent is well
conditioned.

This replaces the method of Arora, Marinov and Ullah (2020), whose noise is too small.
Sensitivities: doc/privacy, sections 2.4 and 6.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from .._progress import advance
from ..data.rows import Objective, Rows, make_rows
from ..data.summation import UNIT_ROUNDOFF, piece_rows
from ..geometry import Geometry, L2Ball, MirrorMap
from ..losses import Loss, bounded_clip, largest_constant
from ..mechanisms import Gaussian, PrefixSum, Release
from ..privacy.budget import Allowance, PrivacyBudget
from ..privacy.guarantee import Guarantee
from ..randomness.stream import RandomStream
from . import defaults, sensitivity
from .base import Part, Plan, Problem, SolverData, SolverResult
from .defaults import FTRLDefaults
from .first_releases import Frame, constant_for_mean, counted_targets, shrunk_vector
from .whitening import isometric_vector, spectral_noise, spectrum, vector_size

__all__ = ["FTRL", "LONGEST_STREAM", "Epoch", "FTRLPlan", "FTRLRun", "FirstMeans"]

Array = NDArray[np.float64]

_LARGEST_MOMENT = 4.0  # of whitened rows: half of the `whitened_curvature` that steps allow
LONGEST_STREAM = 2**40  # records; for many more, the bound on float errors would be useless


@dataclass(frozen=True)
class FirstMeans(Part):
    """One release of the means of targets and rows over the first records of a stream.

    It is the sum of [a t_i, b s_i x_i / B], a^2 + b^2 < 1, t_i the record's targets over the
    square root of their number or the unit vector of its class (y_i of two classes), and s_i the
    factor that bounds the norm of the row [x_i, 1] by B.

    Attributes
    ----------
    problem : Problem
    norm : float
        B.
    n_records : int
        0 if nothing is released.
    noise : Gaussian or None
    target_share : float
        a^2, nearly.
    """

    problem: Problem
    norm: float
    n_records: int
    noise: Gaussian | None
    target_share: float

    @property
    def releases(self) -> tuple[Release, ...]:
        if self.noise is None:
            return ()
        return (Release("first means", self.noise, 1, "first records"),)

    @property
    def width(self) -> int:
        """Length of the vector that is released."""
        return self.problem.n_features + self.problem.n_outputs

    @property
    def weights(self) -> tuple[float, float]:
        """The factors a and b."""
        down = 1 - 8 * UNIT_ROUNDOFF
        return down * math.sqrt(self.target_share), down * math.sqrt(1 - self.target_share)

    def add(self, total: Array, rows: Rows, y: Array) -> None:
        """Add the vectors of some records to `total`, shape (n_outputs + n_features,)."""
        scale, k = np.asarray(rows.with_norm_bound(self.norm).scale), self.problem.n_outputs
        for_targets, for_rows = self.weights
        targets = counted_targets(y[scale > 0], self.problem) / self.problem.target_norm(2)
        total[:k] += for_targets * targets.sum(axis=0)
        total[k:] += (for_rows / self.norm) * rows.weighted_sum(scale)[: rows.n_columns]

    def run(self, total: Array, stream: RandomStream) -> Frame:
        """Private means of the targets and features, shrunk by their noise."""
        assert self.noise is not None
        released, k = self.noise.release(total, stream), self.problem.n_outputs
        for_targets, for_rows = (weight * self.n_records for weight in self.weights)
        for_targets /= self.problem.target_norm(2)
        means = released[:k] / for_targets
        variance = (self.noise.scale / for_targets) ** 2
        offset = constant_for_mean(self.problem, means, variance).offset
        rows = shrunk_vector(released[k:], self.noise.variance) * (self.norm / for_rows)
        return Frame(offset, np.clip(rows, -1.0, 1.0))


@dataclass(frozen=True)
class SecondMoments(Part):
    """One release of the second moments of the records that follow the first ones.

    It is the sum of z z^T / B^2, z the centred row whose norm is bounded by B, as the isometric
    vector of its diagonal and sqrt(2) times what is above it.

    Attributes
    ----------
    n_features : int
    norm : float
        B.
    n_records : int
    noise : Gaussian
    """

    n_features: int
    norm: float
    n_records: int
    noise: Gaussian

    @property
    def releases(self) -> tuple[Release, ...]:
        return (Release("second moments", self.noise, 1, "moment records"),)

    def add(self, total: Array, rows: Rows) -> None:
        """Add the vectors of some records, whose centre is set, to `total`."""
        Z = _centred(rows) * np.asarray(rows.with_norm_bound(self.norm).scale)[:, None]
        total += isometric_vector(Z.T @ Z) / self.norm**2

    def run(self, total: Array, stream: RandomStream) -> Array:
        """A multiple of (G + lambda I)^(-1/2), G the noisy mean of z z^T and lambda its noise.

        The mean square norm of the rows becomes about d, also where the noise is above G.
        """
        unit = self.norm**2 / self.n_records
        found = spectrum(self.noise.release(total, stream) * unit, self.n_features)
        ridge = unit * spectral_noise(self.noise.scale, self.n_features)
        # where there is no noise, above the float errors of the eigenvalues
        ridge = max(ridge, 1e-10 * float(found.values.max()), 1e-30)
        white = found.values / (found.values + ridge)
        longest = _LARGEST_MOMENT / max(float(white.max()), 1e-6)
        size = min(self.n_features / max(float(white.sum()), 1e-6), longest)
        return math.sqrt(max(1.0, size)) * found.inverse_root(ridge)

    @property
    def width(self) -> int:
        """Length of the vector that is released."""
        return vector_size(self.n_features)


def _centred(rows: Rows) -> Array:
    """The rows minus their centre, dense."""
    X = rows.dense(slice(None))
    return X if rows.center is None else X - rows.center


@dataclass(frozen=True)
class Epoch(Part):
    """A part of the stream that has one factorization.

    Attributes
    ----------
    noise : PrefixSum
    n_records : int
    batch_size : int
        Records per step; the last step takes what is left.
    learning_rate : float
        lambda, the factor of the noisy sum of the gradients.
    group : str
        Name of its records.
    """

    noise: PrefixSum
    n_records: int
    batch_size: int
    learning_rate: float
    group: str

    @property
    def n_steps(self) -> int:
        return -(-self.n_records // self.batch_size)

    @property
    def releases(self) -> tuple[Release, ...]:
        return (Release("prefix sums", self.noise, 1, self.group),)


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
    average : bool
        Whether the model is the average of the iterates, or the last one.
    data_norm : float
        B: bound on the l2 norm of a row; gradients of longer rows are scaled down.
    first : FirstMeans
        Releases on the first records, which are used for nothing else.
    moments : SecondMoments or None
        Release on the records after these, of which the coordinates of all later rows are made.
    epochs : tuple of Epoch
    shuffle : bool
        Whether `run` takes the records in random order.
    """

    geometry: Geometry
    mirror_map: MirrorMap
    gradient_clip: float
    average: bool
    data_norm: float
    first: FirstMeans
    moments: SecondMoments | None
    epochs: tuple[Epoch, ...]
    shuffle: bool

    def run(self, data: SolverData, stream: RandomStream) -> SolverResult:
        """One stream over all records; see `Plan.run`."""
        data, n = data.row_major(), self.problem.n_samples
        order = stream.substream("order").permutation(n) if self.shuffle else slice(0, n)
        noise, run = stream.substream("noise"), FTRLRun(self)
        for part in data.in_order(order, piece_rows(n, self.problem.n_features, data.is_sparse)):
            run.add(part, noise)
            del part  # so that no two are held at a time
        return run.result()

    @property
    def parts(self) -> tuple[FirstMeans | SecondMoments | Epoch, ...]:
        """The parts of the stream in their order."""
        moments = () if self.moments is None else (self.moments,)
        return (self.first, *moments, *self.epochs)

    def guarantee_after(self, n_seen: int) -> Guarantee:
        """The guarantee of only those parts of the stream that begin within `n_seen` records."""
        begun: list[Release] = []
        start = 0
        for part in self.parts:
            if start < n_seen:
                begun.extend(part.releases)
            start += part.n_records
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
        Whether a run takes the records in random order.
    doubling : bool
        Epochs that double, instead of one for the whole stream.
    first_epoch : int or None
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
    first_epoch: int | None = None

    # ---------------------------------------------------------------- planning

    def check(
        self, loss: Loss, feasible_set: Geometry | type[Geometry], budget: PrivacyBudget
    ) -> None:
        """See `Solver.check`."""
        if budget.is_pure:
            raise ValueError(
                "the streaming solver has no pure-DP form (delta=0); DPLassoFW and "
                "DPLassoFWClassifier with solver='selection' have one"
            )
        geometry = feasible_set(1.0) if isinstance(feasible_set, type) else feasible_set
        geometry.mirror_map(self.mirror_map)

    def plan(self, problem: Problem, budget: PrivacyBudget) -> FTRLPlan:
        """Everything that a stream of ``problem.n_samples`` records does; see `Solver.plan`."""
        if problem.n_samples > LONGEST_STREAM:
            raise ValueError(
                f"a stream has at most {LONGEST_STREAM} records, got n_samples={problem.n_samples}"
            )
        self.check(problem.loss, problem.feasible_set, budget)
        facts = self._facts(problem, budget)
        first = self._plan_first(facts)
        left, moments = problem.n_samples - first.n_records, self._plan_moments(facts)
        if moments is not None:
            left -= moments.n_records
            facts = facts.whitened()
        sizes = self._epoch_sizes(left, facts.rules)
        epochs = tuple(self._epoch(facts, number, size) for number, size in enumerate(sizes))
        parts = (first, *epochs) if moments is None else (first, moments, *epochs)
        releases = [release for part in parts for release in part.releases]
        return FTRLPlan(
            problem,
            budget,
            "ftrl",
            sum(epoch.n_steps for epoch in epochs),
            guarantee=Guarantee.of(budget, releases, facts.allowance.kind),
            geometry=facts.geometry,
            mirror_map=facts.mirror_map,
            gradient_clip=facts.clip,
            average=self.average,
            data_norm=facts.norm,
            first=first,
            moments=moments,
            epochs=epochs,
            shuffle=self.shuffle,
        )

    def _facts(self, problem: Problem, budget: PrivacyBudget) -> _Facts:
        rules, loss = defaults.FTRL[problem.loss.task], problem.loss
        allowance = budget.gaussian_allowance
        norm = self.data_norm or defaults.data_norm(problem)
        geometry = defaults.sized_set(problem, rules.radius)
        mirror_map = self._mirror_map(problem, budget, allowance, geometry, norm, rules)
        # every l_p norm of the coefficients that bounds a prediction is at most this
        largest = geometry.radius * 2 * problem.dimension + largest_constant(loss)
        noise = defaults.gradient_noise(problem, budget, norm, budget.gaussian_allowance.amount)
        clip = self.gradient_clip
        clip = clip or defaults.growing_clip(problem, rules.clip, noise, rules.accurate)
        clip = bounded_clip(loss, clip, largest)
        return _Facts(problem, budget, rules, allowance, geometry, mirror_map, norm, clip, noise)

    def _mirror_map(
        self, problem: Problem, budget: PrivacyBudget, allowance: Allowance, geometry: Geometry,
        norm: float, rules: FTRLDefaults,
    ) -> MirrorMap:  # fmt: skip
        """The declared map, or "euclidean", or "power" where it has far less noise.

        In the dual norm of "power", noise in many coordinates is smaller, but gradients are,
        too, so that "power" is better only if the noise is large.
        """
        if self.mirror_map is not None or "euclidean" not in geometry.mirror_maps:
            return geometry.mirror_map(self.mirror_map)
        per_sum = budget.record_factor * norm / math.sqrt(2 * allowance.amount)
        relative = rules.prefix_noise * per_sum * math.sqrt(problem.size) / problem.n_samples
        is_noisy = relative > rules.relative_noise and "power" in geometry.mirror_maps
        return geometry.mirror_map("power" if is_noisy else "euclidean")

    def _plan_first(self, facts: _Facts) -> FirstMeans:
        problem, rules, factor = facts.problem, facts.rules, facts.budget.record_factor
        first = FirstMeans(problem, facts.norm, 0, None, rules.target_share)
        n_first = self._first_part(facts, *first.weights)
        if n_first == 0:
            return first
        noise = Gaussian.calibrate(
            sensitivity.row_and_target_sum(n_first, factor),
            facts.allowance,
            dimension=problem.n_features + problem.n_outputs,
        )
        return replace(first, n_records=n_first, noise=noise)

    def _first_part(self, facts: _Facts, for_targets: float, for_rows: float) -> int:
        """Number of records that brings the noise of the first means to the aims in `rules`."""
        problem, rules = facts.problem, facts.rules
        if not problem.fit_intercept:
            return 0
        noise = facts.budget.record_factor / math.sqrt(2 * facts.allowance.amount)
        wanted = max(
            noise / for_targets / rules.target_noise,
            noise / for_rows * facts.norm * math.sqrt(problem.n_features) / rules.means_noise,
        )
        least, most = (part * problem.n_samples for part in (rules.least_first, rules.most_first))
        # a least share makes no sense where the length of the stream is unknown
        return int(min(most, wanted if self.doubling else max(wanted, least)))

    def _plan_moments(self, facts: _Facts) -> SecondMoments | None:
        """None unless everything is left to the plan and the noise is well below the moments."""
        problem, rules, d = facts.problem, facts.rules, facts.problem.n_features
        chosen = (self.data_norm, self.mirror_map, self.learning_rate)
        is_free = problem.feasible_set is L2Ball and all(value is None for value in chosen)
        # the mean moment is about B^2 / (4 d) where the columns fill half of their bounds
        spread = facts.budget.record_factor / math.sqrt(2 * facts.allowance.amount)
        noise_of_one = 4 * d * spectral_noise(spread, d)
        n_records = self._moment_records(problem, rules, noise_of_one)
        if not is_free or d > rules.widest or noise_of_one > rules.clear_moments * n_records:
            return None
        change = sensitivity.second_moment_sum(n_records, facts.budget.record_factor)
        noise = Gaussian.calibrate(change, facts.allowance, dimension=vector_size(d))
        return SecondMoments(d, facts.norm, n_records, noise)

    def _moment_records(self, problem: Problem, rules: FTRLDefaults, noise_of_one: float) -> int:
        """Number of records that brings the noise of the second moments to what is aimed at."""
        least: float = rules.moments_per_column * problem.n_features
        if self.doubling:  # there is no model before, so as few as possible
            wanted = max(least, noise_of_one / rules.clear_moments + 1)
            return int(wanted) if wanted <= rules.longest_start else 0
        least = max(least, rules.least_moments * problem.n_samples)
        wanted = max(least, noise_of_one / rules.moment_noise)
        return int(min(wanted, rules.most_moments * problem.n_samples, rules.longest_moments))

    def _epoch_sizes(self, n_records: int, rules: FTRLDefaults) -> list[int]:
        if not self.doubling:
            return [n_records]
        sizes, size = [], self.first_epoch or 2 * rules.n_steps
        while n_records > 0:
            sizes.append(min(size, n_records))
            n_records -= sizes[-1]
            size *= 2
        return sizes

    def _epoch(self, facts: _Facts, number: int, size: int) -> Epoch:
        rules = facts.rules
        n_steps = max(rules.n_steps, min(rules.most_steps, size // rules.useful_batch))
        batch_size = self.batch_size or max(rules.smallest_batch, -(-size // n_steps))
        batch_size = min(size, batch_size)
        change, largest = sensitivity.gradient_sum(
            facts.problem, facts.budget, batch_size, facts.clip, facts.norm
        )
        noise = PrefixSum.calibrate(
            change,
            facts.allowance,
            n_steps=-(-size // batch_size),
            width=facts.problem.size,
            largest_norm=largest,
            factorization=self.factorization,
        )
        rate = self.learning_rate and self.learning_rate / batch_size
        rate = rate or facts.learning_rate(size, batch_size, noise)
        return Epoch(noise, size, batch_size, rate, f"epoch {number}")


@dataclass(frozen=True)
class _Facts:
    """Public facts that a plan uses."""

    problem: Problem
    budget: PrivacyBudget
    rules: FTRLDefaults
    allowance: Allowance
    geometry: Geometry
    mirror_map: MirrorMap
    norm: float
    clip: float
    noise: float  # of the mean of all gradients, for a clip of 1
    is_whitened: bool = False

    def whitened(self) -> _Facts:
        """With rows whose root mean square norm is at most sqrt(d + 1)."""
        rules = self.rules
        part = defaults.growing(rules.shortest_rows, self.noise, rules.accurate_rows)
        norm = rules.longest_rows * part * math.sqrt(self.problem.dimension)
        return replace(self, norm=norm, is_whitened=True)

    def learning_rate(self, n_records: int, batch_size: int, noise: PrefixSum) -> float:
        """The largest step that is stable and keeps the noise in the coefficients within bounds.

        Norms are the one in which the mirror map is strongly convex, and its dual.
        """
        width, norm, scale = self.problem.size, self.norm, noise.worst_scale
        q = self.mirror_map.dual_exponent(width)
        # a centred row has coordinates of at most 2, so ||x||_q <= ||x||_2^(2/q) 2^(1 - 2/q)
        row = min(norm, norm ** (2 / q) * 2 ** (1 - 2 / q))
        per_gradient = self._stable_step(row, -(-n_records // batch_size), batch_size) / batch_size
        if q == math.inf:
            size = scale * math.sqrt(2 * math.log(2 * width))
        else:
            size = scale * width ** (1 / q) * math.sqrt(q - 1)
        relative = size / (self.clip * n_records)
        reach = self.rules.whitened_reach if self.is_whitened else self.rules.reach
        allowed = reach / row * min(1.0, self.rules.noisy / relative)
        return min(per_gradient, allowed / size)

    def _stable_step(self, row: float, n_steps: int, batch_size: int) -> float:
        """Step along a mean gradient that does not overshoot, nor oscillate about a kink."""
        smoothness = self.problem.loss.smoothness
        if math.isfinite(smoothness):
            curvature = row**2
            if self.is_whitened:
                # second moments are about 1, at most `_LARGEST_MOMENT`, and those of a batch larger
                curvature = min(curvature, self.rules.whitened_curvature + row**2 / batch_size)
            return 1.9 / (smoothness * curvature)
        return self.rules.reach / (self.clip * row**2 * math.sqrt(n_steps))


# ------------------------------------------------------------------------------ a stream


@dataclass
class FTRLRun:
    """A stream in progress.

    Holds un-noised sums over the records: the gradients of the unfinished step and the state
    of `PrefixSum`. `result` is private at any time, the object itself never.

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

    _part: int = field(default=-1, init=False)
    _left: int = field(default=0, init=False)  # records until the next release
    _left_in_epoch: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        problem = self.plan.problem
        width = problem.size
        self._frame = Frame()
        self._whitening: Array | None = None
        self._coef = self._average = self._start = self.plan.geometry.center(width)
        self._n_averaged = 0
        self._next_part()

    def add(self, data: SolverData, stream: RandomStream) -> None:
        """Take in more records; noise comes from `stream`.

        Parameters
        ----------
        data : SolverData
            Its rows are uncentred; a record of scale 0 contributes nothing.
        stream : RandomStream

        Raises
        ------
        ValueError
            If the plan's stream is shorter. Nothing is taken in then.
        """
        if self.n_seen + data.n_samples > self.plan.problem.n_samples:
            raise ValueError("the stream is longer than its plan")
        start = 0
        while start < data.n_samples:
            stop = min(start + self._left, data.n_samples)
            part = data.part(slice(start, stop))
            self._take(part.rows, part.y)
            self.n_seen += stop - start
            self._left -= stop - start
            start = stop
            if self._left == 0:
                self._release(stream)

    def copy(self) -> FTRLRun:
        """A run in the same state. If both continue, earlier records are released in both."""
        other = copy.copy(self)
        other._sum = self._sum.copy()
        if hasattr(self, "_prefix_run"):
            other._prefix_run = copy.deepcopy(self._prefix_run)
        return other

    def result(self) -> SolverResult:
        """The model after the last release, in scaled units."""
        problem = self.plan.problem
        coef = self._average if self.plan.average else self._coef
        if self._whitening is not None:
            matrix = problem.matrix(coef.copy())
            matrix[: problem.n_features] = self._whitening @ matrix[: problem.n_features]
            coef = matrix.ravel()
        return self._frame.result(coef, problem, self.n_steps)

    def _take(self, rows: Rows, y: Array) -> None:
        """Add what records of the present part contribute."""
        plan, part = self.plan, self.plan.parts[self._part]
        if part is plan.first:
            plan.first.add(self._sum, rows, y)
            return
        rows = rows.centered(self._frame.center)
        if part is plan.moments:
            plan.moments.add(self._sum, rows)
            return
        if self._whitening is not None:
            white = _centred(rows) @ self._whitening
            rows = make_rows(white, rows.has_intercept, rows.scale, rows.sample_weight)
        self._add_gradients(rows, y)

    def _add_gradients(self, rows: Rows, y: Array) -> None:
        """Gradients of factor_i * l(offset + <row_i, w>, y_i), each of norm at most c B."""
        plan = self.plan
        objective = Objective(y, self._frame.offset, plan.problem.loss, plan.gradient_clip)
        coef = plan.problem.matrix(self._coef)
        self._sum += rows.clipped_gradient_sum(coef, objective, plan.data_norm).ravel()

    def _release(self, stream: RandomStream) -> None:
        plan, part = self.plan, self.plan.parts[self._part]
        if isinstance(part, Epoch):
            self._step(part, stream)
            return
        if part is plan.first:
            self._frame = plan.first.run(self._sum, stream)
        elif plan.moments is not None:
            self._whitening = plan.moments.run(self._sum, stream)
        self._next_part()

    def _step(self, epoch: Epoch, stream: RandomStream) -> None:
        plan = self.plan
        released = epoch.noise.release(self._prefix_run.encode(self._sum), stream)
        prefix = self._prefix_run.decode(released)
        self._coef = plan.mirror_map.step(self._start, prefix, epoch.learning_rate)
        n_records = min(epoch.batch_size, self._left_in_epoch)
        self._n_averaged += n_records
        power = defaults.FTRL[plan.problem.loss.task].average_power
        weight = (power + 1) * n_records / (self._n_averaged + power * n_records)
        self._average = self._average + weight * (self._coef - self._average)
        self.n_steps += 1
        advance(1)
        self._left_in_epoch -= n_records
        if self._left_in_epoch == 0:
            self._next_part()
        else:
            self._begin_step(epoch)

    def _next_part(self) -> None:
        self._part += 1
        if self._part == len(self.plan.parts):
            return
        part = self.plan.parts[self._part]
        if isinstance(part, Epoch):
            self._start, self._left_in_epoch = self._coef, part.n_records
            self._prefix_run = part.noise.start(self._coef.size)
            self._begin_step(part)
            return
        self._sum, self._left = np.zeros(part.width), part.n_records
        if part.n_records == 0:
            self._next_part()

    def _begin_step(self, epoch: Epoch) -> None:
        self._sum = np.zeros(self._coef.size)
        self._left = min(epoch.batch_size, self._left_in_epoch)
