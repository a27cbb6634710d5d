r"""Follow the regularized leader on noisy prefix sums: models of a stream, private at all times.

The stream is cut into steps of a public number of records. Step t adds up the clipped
gradients of its records at the current coefficients, `PrefixSum` releases what is needed
for a noisy sum :math:`\tilde G_t` of all gradients so far, and

.. math:: w_{t+1} = \arg\min_{w} \; \langle \tilde G_t, w \rangle + D_\Psi(w, w_1) / \lambda

over the feasible set, :math:`D_\Psi` the Bregman divergence of a mirror map. Each record
enters one step, so that the whole sequence of iterates costs one release. This replaces the method
of Arora, Marinov and Ullah (2020), whose noise is too small.

The first records buy units of the targets of a regression, the next ones private means of the
targets and the features, and where their number allows it others the second moments, each with the
full budget. A stream of unknown length is cut
into epochs that double; each has its own records, and starts from the last result.

Sensitivities: doc/privacy, sections 2.4 and 6.
"""

from __future__ import annotations

import copy
import itertools
import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from .._progress import advance
from .._types import Array, Auto, MirrorMapName
from ..data.rows import UNIT_ROUNDOFF, Rows, SolverData, Terms, gamma, piece_rows
from ..geometry import AnySet, Geometry, L2Ball, MirrorMap
from ..losses import Absolute, Logistic, Loss, Quantile, Squared, bounded_clip
from ..mechanisms import Gaussian, PrefixSum, SelectVertex
from ..privacy.budget import LONGEST_STREAM, Allowance, PrivacyBudget
from ..privacy.guarantee import Guarantee
from ..randomness.stream import RandomStream
from . import defaults, statistics
from .base import Frame, Part, Plan, Problem, Solver, SolverResult, releases_of
from .first_releases import may_shrink, usual_curvature

# of targets and of rows in a vector of norm at most 1, with room for roundings
_HALF = (1 - 8 * UNIT_ROUNDOFF) * math.sqrt(0.5)
_AVERAGED = 0.5  # of all steps, that averages of iterates have surely come
_NOISE = 10.0  # times the variance of a scatter, energies below which no slopes are sure
_USUAL_MOMENT = 1 / 3  # of columns within bounds that are not too wide
_LARGEST_MOMENT = 4.0  # of whitened rows: half of the `whitened_curvature` that steps allow
LONGEST_SELECTION = 2**24  # records of a selection, which are enough for any


@dataclass(frozen=True)
class TargetMedians(Part):
    """A selection for each target over the first records of a stream: of its median.

    Attributes
    ----------
    problem : Problem
    n_records : int
    noise : SelectVertex
    """

    release_name: ClassVar[str] = "target median"
    group: ClassVar[str] = "median records"

    problem: Problem
    n_records: int
    noise: SelectVertex

    @property
    def count(self) -> int:
        """Selections of a record."""
        return self.problem.n_outputs

    @cached_property
    def grids(self) -> list[Array]:
        """Of each target, the numbers between which records are counted."""
        return [self.problem.target_scaling.places(k) for k in range(self.count)]

    def add(self, total: Array, data: SolverData, frame: Frame) -> None:
        """Add the counts of some records, for one target after the other."""
        of_each = [statistics.target_counts(data, k, None, g) for k, g in enumerate(self.grids)]
        total += np.concatenate(of_each)

    def run(self, total: Array, frame: Frame, stream: RandomStream) -> Frame:
        """The frame, with the medians as the centres of the targets."""
        found = []
        for k, counts in self._each(total):
            facts = self.grids[k], statistics.target_prior(self.problem, k), self.noise, stream
            found.append(statistics.median_on_grid(counts, self.n_records, *facts))
        return replace(frame, target_center=_of_outputs(found))

    def _each(self, total: Array) -> Any:
        """The number of each target, and its counts."""
        ends = np.cumsum([grid.size + 1 for grid in self.grids])
        return enumerate(np.split(total, ends[:-1]))


@dataclass(frozen=True)
class TargetSpreads(TargetMedians):
    """Selections over the next records: of the spread of each target about its centre.

    Attributes
    ----------
    width : float
        The bound on the distance of a target from its centre, in spreads. Later records' targets
        are (y - centre) / (width spread), clipped to [-1, 1].
    """

    release_name: ClassVar[str] = "target spread"
    group: ClassVar[str] = "spread records"

    width: float

    @cached_property
    def grids(self) -> list[Array]:
        """Of distances from the centres."""
        return [statistics.SPREADS] * self.count

    def add(self, total: Array, data: SolverData, frame: Frame) -> None:
        """Add the counts of some records, for one target after the other."""
        centers = enumerate(np.broadcast_to(frame.target_center, self.count))
        of_each = [statistics.target_counts(data, k, float(c), self.grids[k]) for k, c in centers]
        total += np.concatenate(of_each)

    def run(self, total: Array, frame: Frame, stream: RandomStream) -> Frame:
        """The frame with units of the targets, those of the bounds if these are not too wide."""
        facts = self.n_records, self.noise, stream
        guess = defaults.FTRL["regression"].target_guess
        spreads = [statistics.spread_on_grid(c, *facts, guess) for _, c in self._each(total)]
        return statistics.bounded_frame(frame.target_center, _of_outputs(spreads), self.width)


def _of_outputs(values: Any) -> Any:
    """An array of the numbers of several targets, or the number of one."""
    return np.asarray(values) if len(values) > 1 else float(values[0])


@dataclass(frozen=True)
class FirstMeans(Part):
    """One release of the means of targets and rows over the first records of a stream.

    It is the sum of [t_i, s_i x_i / B] / sqrt(2), t_i the record's targets over the square root of
    their number or the unit vector of its class (y_i of two classes), and s_i the factor that
    bounds the norm of the row [x_i, 1] by B.

    Attributes
    ----------
    problem : Problem
    norm : float
        B.
    n_records : int
    noise : Gaussian
    """

    release_name: ClassVar[str] = "first means"
    group: ClassVar[str] = "first records"

    problem: Problem
    norm: float
    n_records: int
    noise: Gaussian

    def add(self, total: Array, data: SolverData, frame: Frame) -> None:
        """Add the vectors of some records to `total`, shape (n_outputs + n_features,)."""
        rows, k = data.rows, self.problem.n_outputs
        scale = np.asarray(rows.with_norm_bound(self.norm).scale)
        targets = data.y[scale > 0]
        if self.problem.has_frequencies:  # 1 for a record's own class
            targets = np.where(targets > 0, 1.0, 0.0)
        targets = targets / statistics.target_norm(self.problem, 2)
        total[:k] += _HALF * targets.sum(axis=0)
        total[k:] += (_HALF / self.norm) * rows.weighted_sum(scale)[: rows.n_columns]

    def run(self, total: Array, frame: Frame, stream: RandomStream) -> Frame:
        """The frame, with private means of the targets and features, shrunk by their noise."""
        released, k = self.noise.release(total, stream), self.problem.n_outputs
        for_rows = _HALF * self.n_records
        for_targets = for_rows / statistics.target_norm(self.problem, 2)
        means = released[:k] / for_targets
        variance = (self.noise.scale / for_targets) ** 2
        offset = statistics.constant_for_mean(self.problem, means, variance).offset
        rows = statistics.shrunk_vector(released[k:], self.noise.variance) * (self.norm / for_rows)
        return replace(frame, offset=offset, center=np.clip(rows, -1.0, 1.0))


@dataclass(frozen=True)
class SecondMoments(Part):
    """One release of the second moments of the records that follow the first ones.

    It is the `isometric_vector` of the sum of z z^T / B^2, z a centred row of norm at most B.
    """

    release_name: ClassVar[str] = "second moments"
    group: ClassVar[str] = "moment records"

    n_features: int
    norm: float  # B
    n_records: int
    noise: Gaussian

    def add(self, total: Array, data: SolverData, frame: Frame) -> None:
        """Add the vectors of some records, about the centre of the frame, to `total`."""
        rows = replace(data.rows, center=frame.center)
        Z = _centred(rows) * np.asarray(rows.with_norm_bound(self.norm).scale)[:, None]
        total += statistics.isometric_vector(Z.T @ Z) / self.norm**2

    def run(self, total: Array, stream: RandomStream) -> Array:
        """A multiple of (G + lambda I)^(-1/2), G the noisy mean of z z^T and lambda its noise.

        The mean square norm of the rows becomes about d, also where the noise is above G.
        """
        unit, d = self.norm**2 / self.n_records, self.n_features
        noisy = self.noise.release(total, stream) * unit
        root, (values, _), ridge = statistics.whitening(noisy, d, unit * self.noise.scale)
        white = values / (values + ridge)
        # they may be as large as their noise, where released ones are 0
        longest = _LARGEST_MOMENT / max(float(white.max()), 0.5)
        size = min(d / max(float(white.sum()), 0.5), longest)
        return math.sqrt(max(1.0, size)) * root


def _centred(rows: Rows) -> Array:
    """The rows minus their centre, dense."""
    X = rows.dense(slice(None))
    return X if rows.center is None else X - rows.center


@dataclass(frozen=True)
class Epoch(Part):
    """A part of the stream with prefix sums of its own.

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
    gradient_clip : float
        c: bound on abs(dl/dz).
    data_norm : float
        B: bound on the l2 norm of a row; gradients of longer rows are scaled down.
    whole_from : float
        The records for which the plan would allow this lambda. After n of fewer it is that times
        ``sqrt(n / whole_from)``: the first sums have nearly the noise of the last, and tell little.
    """

    release_name: ClassVar[str] = "prefix sums"

    noise: PrefixSum
    n_records: int
    batch_size: int
    learning_rate: float
    group: str
    gradient_clip: float
    data_norm: float
    whole_from: float = 0.0


@dataclass(frozen=True)
class FTRLPlan(Plan):
    """Plan of `FTRL`; see `Plan` for the common fields.

    Attributes
    ----------
    geometry : Geometry
        The feasible set with its radius.
    mirror_map : MirrorMap
    average : bool
        Whether the model is the average of the iterates, or the last one.
    targets : tuple of TargetMedians and TargetSpreads
        Selections on the first records of a regression, of the units of the targets of all later
        ones; none where the bounds are these.
    first : FirstMeans or None
        Release on the next records, which are used for nothing else; None without an intercept,
        or in a stream of very few records.
    moments : SecondMoments or None
        Release on the records after these, of which the coordinates of all later rows are made.
    epochs : tuple of Epoch
    shuffle : bool
        Whether `run` takes the records in random order.
    """

    geometry: Geometry
    mirror_map: MirrorMap
    average: bool
    targets: tuple[TargetMedians, ...]
    first: FirstMeans | None
    moments: SecondMoments | None
    epochs: tuple[Epoch, ...]
    shuffle: bool

    def run(self, data: SolverData, stream: RandomStream) -> SolverResult:
        """One stream over all records."""
        n = self.problem.n_samples
        order = stream.substream("order").permutation(n) if self.shuffle else slice(0, n)
        noise, run = stream.substream("noise"), FTRLRun(self)
        for part in data.in_order(order, piece_rows(n, self.problem.n_features, data.is_sparse)):
            run.add(part, noise)
            del part  # so that no two are held at a time
        return run.result()

    @property
    def parts(self) -> tuple[TargetMedians | FirstMeans | SecondMoments | Epoch, ...]:
        """The parts of the stream in their order."""
        before = (part for part in (self.first, self.moments) if part is not None)
        return (*self.targets, *before, *self.epochs)

    def guarantee_after(self, n_seen: int) -> Guarantee:
        """The guarantee of only those parts of the stream that begin within `n_seen` records."""
        starts = itertools.accumulate((part.n_records for part in self.parts), initial=0)
        begun = [part for part, start in zip(self.parts, starts, strict=False) if start < n_seen]
        return replace(self.guarantee, releases=releases_of(*begun))


@dataclass(kw_only=True, repr=False, eq=False)
class FTRL(Solver):
    """Follow the regularized leader, on noisy prefix sums of the gradients of a stream.

    Parameters
    ----------
    batch_size : "auto" or int in [1, 1e15], default="auto"
        Records per step. The model changes after every step. "auto" makes up to 2048 steps of 16
        records or more of the stream, or of each epoch; if that were fewer than 256, it makes
        256, but none of fewer than 4 records.
    learning_rate : "auto" or float in [1e-50, 1e50], default="auto"
        Factor of a step's mean gradient; "auto" takes the largest that is stable and keeps the
        noise in the coefficients in bounds, by public facts.
    gradient_clip : "auto" or float in [1e-50, 1e50], default="auto"
        Bound c on the absolute derivative of the loss in the raw prediction, as in `NoisyMD`;
        "auto" is 0.3 in regression and 0.5 in classification where the noise is large, and grows
        to 1 as it falls, from one epoch to the next.
    data_norm : "auto" or float in [1e-50, 1e50], default="auto"
        Bound B on the l2 norm of a scaled row with the intercept's 1, as in `NoisyMD`; but a longer
        row stays as it is, and its gradient is scaled down. With second moments it bounds the rows
        that they are made of, and later rows are bounded by up to 3 times their root mean square
        norm.
    mirror_map : {"auto", "euclidean", "power", "entropy"}, default="auto"
        The regularizer: half the squared l2 norm, half the squared l_p norm with the p of the
        set, or entropy (on "l1" and "simplex"). "auto" is "euclidean", or "power" where the
        noise in that many columns is large for so few records.
    average : bool, default=True
        Whether the model is the average of the iterates, later ones weighing more, or the last
        iterate. Averages of labels, in the default set and of the logistic loss, are brought nearer
        to 0 by what the scatter of the iterates adds to them. Of smooth losses in balls, with the
        Euclidean map, slopes of both are shrunk by what of them is noise, at any time of a stream.
    shuffle : bool, default=True
        Whether `fit` takes the records in random order. `partial_fit` takes them as they come.
    """

    form = "ftrl"

    doubling = False  # of a stream of unknown length, whose epochs double

    batch_size: int | Auto = "auto"
    learning_rate: float | Auto = "auto"
    gradient_clip: float | Auto = "auto"
    data_norm: float | Auto = "auto"
    mirror_map: MirrorMapName = "auto"
    average: bool = True
    shuffle: bool = True

    # ---------------------------------------------------------------- planning

    def _check(self, loss: Loss, feasible_set: AnySet, budget: PrivacyBudget, units: str) -> None:
        self._check_delta(budget)
        geometry = feasible_set(1.0) if isinstance(feasible_set, type) else feasible_set
        geometry.mirror_map(self.mirror_map)
        if units != "learned":
            return
        for name in ("mirror_map", "learning_rate"):
            if (value := getattr(self, name)) is not None:
                raise ValueError(
                    f"{name} must be 'auto' with units='learned', whose steps are Euclidean and of "
                    f"the rows that were released; got {value!r}"
                )
        if feasible_set is not L2Ball:
            raise ValueError("units='learned' needs feasible_set='l2' in a stream")

    def _plan(self: Any, problem: Problem, budget: PrivacyBudget) -> FTRLPlan:
        if problem.n_samples > LONGEST_STREAM:
            raise ValueError(
                f"a stream has at most {LONGEST_STREAM} records, got n_samples={problem.n_samples}"
            )
        rules = defaults.FTRL[problem.loss.task]
        targets = self._plan_targets(problem, budget)
        allowance = budget.mixed_allowance if targets else budget.gaussian_allowance
        norm = self.data_norm or defaults.data_norm(problem)
        geometry = defaults.sized_set(problem, rules.radius)
        mirror_map = self._mirror_map(problem, budget, geometry, norm)
        first = self._plan_first(problem, budget, allowance, norm)
        moments = self._plan_moments(problem, budget, allowance, norm)
        common = problem, budget, self.form, 0, Guarantee.of(budget, ())
        before = targets, first, moments
        facts: Any = geometry, mirror_map, self.average, *before, (), self.shuffle
        plan = FTRLPlan(*common, *facts)
        left = problem.n_samples - sum(part.n_records for part in plan.parts)
        size = 2 * rules.n_steps if self.doubling else left
        epochs: list[Epoch] = []
        while left > 0:
            epochs.append(self._epoch(plan, allowance, len(epochs), min(size, left)))
            left, size = left - size, 2 * size
        n_steps = sum(epoch.noise.n_steps for epoch in epochs)
        releases = releases_of(*targets, first, moments, *epochs)
        guarantee = Guarantee.of(budget, releases, allowance.kind)
        return replace(plan, max_iter=n_steps, epochs=tuple(epochs), guarantee=guarantee)

    def _mirror_map(
        self, problem: Problem, budget: PrivacyBudget, geometry: Geometry, norm: float
    ) -> MirrorMap:
        """The declared map, or "euclidean", or "power" where its dual norm has far less noise."""
        if self.mirror_map is not None or "euclidean" not in geometry.mirror_maps:
            return geometry.mirror_map(self.mirror_map)
        rules, amount = defaults.FTRL[problem.loss.task], budget.gaussian_allowance.amount
        noise = defaults.gradient_noise(problem, budget, norm, amount)
        relative = rules.prefix_noise * noise * math.sqrt(problem.n_outputs)
        is_noisy = relative > rules.relative_noise and "power" in geometry.mirror_maps
        return geometry.mirror_map("power" if is_noisy else "euclidean")

    def _plan_targets(self, problem: Problem, budget: PrivacyBudget) -> tuple[TargetMedians, ...]:
        """Units of the targets, where few of the records are enough to tell them.

        None if a number or the size of a set is stated in those of the bounds.
        """
        loss, n = problem.base_loss, problem.n_samples
        is_free = type(loss) in (Squared, Absolute, Quantile) and problem.units != "bounds"
        is_free = is_free and {self.gradient_clip, self.learning_rate} == {None}
        is_free = is_free and isinstance(problem.feasible_set, type)
        if not is_free or defaults.has_fixed_size(problem):
            return ()
        rules, allowance = defaults.FTRL["regression"], budget.mixed_allowance
        # (what rounds in the scores of fewer records is less)
        change = statistics.median_score(min(n, LONGEST_SELECTION), budget.record_factor)
        noises = [SelectVertex.calibrate(change, allowance, problem.n_outputs) for _ in range(2)]
        scale = noises[0].scale
        noisy = rules.target_records_of_open if self.doubling else rules.target_records
        wanted = max(noisy * scale, rules.useful_target_records)
        if not self.doubling:
            wanted = min(max(wanted, rules.least_targets * n), rules.most_targets * n)
        n_records = int(min(wanted, LONGEST_SELECTION))
        if n_records <= rules.least_target_records * scale or n_records > n // 4:
            return ()
        m = 0.0 if self.doubling else n * math.sqrt(2 * allowance.amount) / budget.record_factor
        width = defaults.target_width(problem, m)
        medians = TargetMedians(problem, n_records, noises[0])
        spreads = TargetSpreads(problem, n_records, noises[1], width)
        return (medians, spreads) if problem.fit_intercept else (spreads,)

    def _plan_first(
        self, problem: Problem, budget: PrivacyBudget, allowance: Allowance, norm: float
    ) -> FirstMeans | None:
        """Of so many records that their noise is what `defaults.FTRL` aims at."""
        if not problem.fit_intercept:
            return None
        rules = defaults.FTRL[problem.loss.task]
        noise = budget.record_factor / math.sqrt(2 * allowance.amount) / _HALF
        aim = rules.target_noise_of_open if self.doubling else rules.target_noise
        wanted = max(noise / aim, noise * norm * math.sqrt(problem.n_features) / rules.means_noise)
        least, most = (part * problem.n_samples for part in (rules.least_first, rules.most_first))
        # a least share makes no sense where the length of the stream is unknown
        n_records = int(min(most, wanted if self.doubling else max(wanted, least)))
        if n_records == 0:
            return None
        change = vector_sum(n_records, budget.record_factor)
        width = problem.n_features + problem.n_outputs
        mechanism = Gaussian.calibrate(change, allowance, dimension=width)
        return FirstMeans(problem, norm, n_records, mechanism)

    def _plan_moments(
        self, problem: Problem, budget: PrivacyBudget, allowance: Allowance, norm: float
    ) -> SecondMoments | None:
        """None unless units may be learned and the noise is well below the moments."""
        rules, d, n = defaults.FTRL[problem.loss.task], problem.n_features, problem.n_samples
        is_wanted = problem.units == "learned"
        if not is_wanted:
            # a number is stated in the units of the bounds
            is_free = {self.data_norm, self.mirror_map, self.learning_rate} == {None}
            if not (is_free and problem.units == "auto" and problem.feasible_set is L2Ball):
                return None
        # the mean moment is about B^2 / (4 d) where the columns fill half of their bounds
        spread = budget.record_factor / math.sqrt(2 * allowance.amount)
        noise_of_one = 4 * d * (spread * math.sqrt(2 * d))
        least: float = rules.moments_per_column * d
        clear = rules.clear_moments_of_open if self.doubling else rules.clear_moments
        if self.doubling:  # there is no model before, so as few as possible
            wanted = max(least, noise_of_one / clear + 1)
            n_records = int(wanted) if wanted <= rules.longest_start else 0
        else:
            least = max(least, rules.least_moments * n)
            wanted = max(least, noise_of_one / rules.moment_noise)
            n_records = int(min(wanted, rules.most_moments * n, rules.longest_moments))
        is_possible = d <= rules.widest and noise_of_one <= clear * n_records
        if is_wanted and not is_possible:
            raise ValueError(
                "units='learned' needs a stream that is long enough for its second moments, of at "
                f"most {rules.widest} features: take units='auto'"
            )
        if not is_possible:
            return None
        change = vector_sum(n_records, math.sqrt(budget.record_factor))
        noise = Gaussian.calibrate(change, allowance, dimension=d * (d + 1) // 2)
        return SecondMoments(d, norm, n_records, noise)

    def _bounds(self: Any, plan: FTRLPlan, allowance: Allowance, size: int) -> tuple[float, float]:
        """The clip of derivatives and the bound on rows, of an epoch of so many records."""
        problem, rules = plan.problem, defaults.FTRL[plan.problem.loss.task]
        norm = self.data_norm or defaults.data_norm(problem)
        # of the mean of all gradients, for a clip of 1
        alone = replace(problem, n_samples=size if self.doubling else problem.n_samples)
        noise = defaults.gradient_noise(alone, plan.budget, norm, allowance.amount)
        if plan.moments is not None:  # rows whose root mean square norm is at most sqrt(d + 1)
            part = defaults.growing(rules.shortest_rows, noise, rules.accurate_rows)
            norm = rules.longest_rows * part * math.sqrt(problem.dimension)
        accurate = rules.accurate_of_open if self.doubling else rules.accurate
        clip = self.gradient_clip or defaults.growing_clip(problem, rules.clip, noise, accurate)
        # every l_p norm of the coefficients that bounds a prediction is at most this
        largest = plan.geometry.radius * 2 * problem.dimension
        return bounded_clip(problem.loss, clip, largest), norm

    def _epoch(self: Any, plan: FTRLPlan, allowance: Allowance, number: int, size: int) -> Epoch:
        problem, budget = plan.problem, plan.budget
        rules = defaults.FTRL[problem.loss.task]
        n_steps = max(rules.n_steps, min(rules.most_steps, size // rules.useful_batch))
        batch_size = self.batch_size or max(rules.smallest_batch, -(-size // n_steps))
        batch_size = min(size, batch_size)
        (clip, norm), width = self._bounds(plan, allowance, size), problem.size
        change, largest = gradient_sum(problem, budget, batch_size, clip, norm)
        facts: Any = {"n_steps": -(-size // batch_size), "width": width, "largest_norm": largest}
        noise = PrefixSum.calibrate(change, allowance, **facts)
        bounds = f"epoch {number}", clip, norm
        if self.learning_rate is not None:
            return Epoch(noise, size, batch_size, self.learning_rate / batch_size, *bounds)
        # The largest step that is stable and keeps the noise in the coefficients within bounds. The
        # norms are the one in which the mirror map is strongly convex, and its dual.
        q, is_whitened = plan.mirror_map.dual_exponent(width), plan.moments is not None
        # a centred row has coordinates of at most 2, so ||x||_q <= ||x||_2^(2/q) 2^(1 - 2/q)
        row = min(norm, norm ** (2 / q) * 2 ** (1 - 2 / q))
        # along a mean gradient, a step that does not overshoot, nor oscillate about a kink
        smoothness, curvature = problem.loss.smoothness, row**2
        if is_whitened:
            # second moments are about 1, at most `_LARGEST_MOMENT`, those of a batch larger
            curvature = min(curvature, rules.whitened_curvature + row**2 / batch_size)
        stable = 1.9 / (smoothness * curvature)
        if not math.isfinite(smoothness):
            # whitened rows are mostly far shorter than their bound
            square = min(row**2, problem.dimension) if is_whitened else row**2
            stable = rules.kinked / (clip * square * math.sqrt(noise.n_steps))
        noisy = noise.worst_scale * width ** (1 / q) * math.sqrt(q - 1)
        if q == math.inf:
            noisy = noise.worst_scale * math.sqrt(2 * math.log(2 * width))
        reach = rules.whitened_reach if is_whitened else rules.reach
        if problem.loss.task == "classification":
            reach *= math.sqrt(problem.n_outputs)
        allowed = reach / row * min(1.0, rules.noisy / (noisy / (clip * size)))
        rate = min(stable / batch_size, allowed / noisy)
        # (an epoch after the first goes on from a model, which is lost the slower)
        whole_from = 0.0 if number else rate * noisy**2 * row / (reach * rules.noisy * clip)
        return Epoch(noise, size, batch_size, rate, *bounds, whole_from)


# ------------------------------------------------------------------------------ a stream


class _PrefixNoise:
    """The noise of iterates and their average, as `statistics.AveragedNoise`.

    The state is the average, the iterate, the start of the epoch, the sum of gradients without
    noise, and of past noise by how it decays; `way` is that without noise to a solution of 1.
    """

    def __init__(self) -> None:
        self.covariance, self.way = np.zeros((4, 4)), np.zeros(4)

    def begin(self, noise: PrefixSum) -> None:
        """Start an epoch."""
        self._rates, self._weights = noise.response
        keep = np.zeros((4 + self._rates.size, self.way.size))
        keep[[0, 1, 2], [0, 1, 1]] = 1.0
        self.covariance, self.way = keep @ self.covariance @ keep.T, keep @ self.way
        self._facts, self._variance = (math.nan, math.nan), noise.scale**2

    def step(self, curvature: float, rate: float, weight: float) -> None:
        """Add a step; `curvature` is of the sum of its records, `weight` that in the average."""
        if (curvature, rate) != self._facts:
            self._facts = curvature, rate
            curvature = min(curvature, 1 / max(rate, 1e-300))  # or it overshoots
            # of the state, of a solution of 1 and of noise
            matrix = np.diag(np.concatenate(([1.0, 0.0, 1.0, 1.0], self._rates, [0.0, 0.0])))[:-2]
            matrix[3, [1, -2]], matrix[4:, -1] = (curvature, -curvature), 1.0
            matrix[1] = -rate * (matrix[3] + self._weights @ matrix[4:])
            matrix[1, 2] = 1.0
            self._matrix = matrix
        matrix = self._matrix.copy()
        matrix[0] = weight * matrix[1]
        matrix[0, 0] = 1 - weight
        linear, added = matrix[:, :-2], matrix[:, -1:]
        self.covariance = linear @ self.covariance @ linear.T + self._variance * (added * added.T)
        self.way = linear @ self.way + matrix[:, -2]


class FTRLRun:
    """A stream in progress.

    Holds un-noised sums over the records: the gradients of the unfinished step and the state
    of `PrefixSum`. `result` is private at any time, the object itself never.
    """

    def __init__(self, plan: FTRLPlan) -> None:
        self.plan = plan
        self.n_seen = 0  # records taken in
        self.n_steps = 0  # and steps released
        self._frame = Frame()
        self._whitening: Array | None = None
        self._coef = self._average = self._start = plan.geometry.center(plan.problem.size)
        self._n_averaged = 0
        # squared distances of the iterates from their average, and the length of the steps
        self._scatter, self._way = np.zeros_like(self._average), 0.0
        # that of the iterates, where slopes are shrunk by it
        is_linear = plan.mirror_map.exponent(plan.problem.size) == 2
        shrinks = is_linear and may_shrink(plan.geometry, plan.problem.loss)
        self._noise = _PrefixNoise() if shrinks else None
        self._prefix_run: Any = None
        # the present part, those after it, and the records up to its end
        self._part: Any = None
        self._ahead, self._end = plan.parts, 0
        self._begin()

    def add(self, data: SolverData, stream: RandomStream) -> None:
        """Take in more records, of uncentred rows, or refuse all if the stream is shorter."""
        if self.n_seen + data.n_samples > self.plan.problem.n_samples:
            raise ValueError("the stream is longer than its plan")
        start = 0
        while start < data.n_samples:
            stop = min(start + self._left, data.n_samples)
            self._take(data.part(slice(start, stop)))
            self.n_seen += stop - start
            self._left -= stop - start
            start = stop
            if self._left == 0:
                self._release(stream)
                self._begin()

    def copy(self) -> FTRLRun:
        """A run in the same state. If both continue, earlier records are released in both."""
        other = copy.copy(self)
        other._sum, other._prefix_run = self._sum.copy(), copy.deepcopy(self._prefix_run)
        other._noise = copy.copy(self._noise)
        return other

    def result(self) -> SolverResult:
        """The model after the last release, in scaled units."""
        problem = self.plan.problem
        coef = self._shrunk(self._settled() if self.plan.average else self._coef)
        if self._whitening is not None:
            matrix = coef.copy().reshape(problem.shape)
            matrix[: problem.n_features] = self._whitening @ matrix[: problem.n_features]
            coef = matrix.ravel()
        return self._frame.result(coef, problem, self.n_steps)

    def _shrunk(self, coef: Array) -> Array:
        """Coefficients with slopes that are shorter by what of the iterates is noise."""
        if (noise := self._noise) is None:
            return coef
        problem, k = self.plan.problem, 0 if self.plan.average else 1
        n = problem.n_features * problem.n_outputs
        slopes = (self._average, self._coef)[k][:n]
        part = statistics.kept_part(slopes, float(noise.covariance[k, k]), float(noise.way[k]))
        return np.concatenate((part * coef[:n], coef[n:]))

    def _settled(self) -> Array:
        """The average of the iterates, of labels nearer to 0 by what their scatter adds.

        Steps stand still where the mean probability of scattered predictions is right. With a
        normal scatter of variance v that has the log-odds z / sqrt(1 + pi v / 8), about.
        """
        problem = self.plan.problem
        d, k = problem.n_features, problem.n_outputs
        if problem.feasible_set is not L2Ball or not isinstance(problem.base_loss, Logistic):
            return self._average
        coef, scatter = (a.reshape(problem.shape) for a in (self._average, self._scatter))
        of_classes, is_white = 2 / k if k > 1 else 1.0, self._whitening is not None
        # (of columns without a release of their moments, it is not known)
        variance = of_classes * float(scatter[0 if is_white else d :].sum())
        shorter, offset = 1 / math.sqrt(1 + math.pi / 8 * variance), self._frame.offset * np.ones(k)
        # slopes of clear predictions, in which the loss is flat, may not have come so far yet
        moment = 1.0 if is_white else _USUAL_MOMENT
        energy = of_classes * moment * float((coef[:d] ** 2).sum())
        curvature = moment / 4 * (1 + math.pi / 8 * energy) ** -1.5
        done = max(-math.expm1(-_AVERAGED * self._way * curvature), 1e-9)
        sure = max(0.0, 1 - _NOISE * variance / max(energy, 1e-12))
        part = shorter + sure * (min(1.0, shorter / done) - shorter)
        return np.concatenate((part * coef[:d], shorter * (coef[d:] + offset) - offset)).ravel()

    def _take(self, data: SolverData) -> None:
        """Add what records of the present part contribute."""
        plan, part, frame = self.plan, self._part, self._frame
        if plan.targets and not isinstance(part, TargetMedians):
            data = statistics.in_target_units(data, frame.target_center, frame.target_scale, 1.0)
        if not isinstance(part, Epoch):
            part.add(self._sum, data, frame)
            return
        rows = replace(data.rows, center=frame.center)
        if self._whitening is not None:
            white = _centred(rows) @ self._whitening
            rows = Rows(white, rows.has_intercept, rows.scale, rows.sample_weight)
        # gradients of factor_i * l(offset + <row_i, w>, y_i), each of norm at most c B
        terms = Terms(frame.offset, plan.problem.loss, part.gradient_clip)
        coef = self._coef.reshape(plan.problem.shape)
        self._sum += rows.clipped_gradient_sum(coef, data.y, terms, part.data_norm).ravel()

    def _release(self, stream: RandomStream) -> None:
        """Finish a step, or a part before the steps."""
        plan, part = self.plan, self._part
        if isinstance(part, (TargetMedians, FirstMeans)):
            self._frame = part.run(self._sum, self._frame, stream)
            return
        if isinstance(part, SecondMoments):
            self._whitening = part.run(self._sum, stream)
            return
        encoded = part.noise.release(self._prefix_run.encode(self._sum), stream)
        prefix = self._prefix_run.decode(encoded)
        n_records = part.n_records - (self._end - self.n_seen)
        rate = part.learning_rate * math.sqrt(min(1.0, n_records / max(part.whole_from, 1.0)))
        self._coef = plan.mirror_map.step(self._start, prefix, rate)
        self._n_averaged += self._size
        power = defaults.FTRL[plan.problem.loss.task].average_power
        weight = (power + 1) * self._size / (self._n_averaged + power * self._size)
        apart = self._coef - self._average
        self._average = self._average + weight * apart
        self._scatter = (1 - weight) * (self._scatter + weight * apart**2)
        self._way += rate * self._size
        if self._noise is not None:
            longest = math.inf if self._whitening is None else math.sqrt(plan.problem.dimension)
            curvature = usual_curvature(plan.problem, min(part.data_norm, longest))
            self._noise.step(self._size * curvature, rate, weight)
        self.n_steps += 1
        advance(1)

    def _begin(self) -> None:
        """Get ready for the records of the next release, if there are any."""
        is_new = self.n_seen == self._end
        if is_new:
            if not self._ahead:
                return
            self._part, *ahead = self._ahead
            self._ahead, self._end = tuple(ahead), self._end + self._part.n_records
        part, size = self._part, self._end - self.n_seen
        if isinstance(part, Epoch):
            if is_new:
                self._start, self._prefix_run = self._coef, part.noise.start(self._coef.size)
                if self._noise is not None:
                    self._noise.begin(part.noise)
            size, width = min(part.batch_size, size), self._coef.size
        elif isinstance(part, TargetMedians):
            width = sum(grid.size + 1 for grid in part.grids)
        else:
            width = part.noise.dimension
        self._left, self._size, self._sum = size, size, np.zeros(width)


# ------------------------------------------------------------------------------ sensitivities
# Of a sum in any order and grouping, a term meets at most n_records additions of parts that hold
# records, and up to ten roundings on its way from the derivative into the centred sum.


def vector_sum(n_records: int, per_record: float) -> float:
    """l2 change of a sum of vectors of norm at most 1, one for each record (section 6.1).

    `per_record` is that by a record: the record factor, or the root of it where no two vectors are
    at an obtuse angle, as those of second moments (section 6.1b).
    """
    return per_record + 2 * n_records * gamma(2 * n_records + 16)


def gradient_sum(
    problem: Problem, budget: PrivacyBudget, n_records: int, clip: float, norm: float
) -> tuple[float, float]:
    """l2 change of the sum of the gradients of a step of a stream, and a bound on its norm.

    Each gradient has norm at most clip * norm (sections 2.4 and 6.2). The sum for centred rows is
    a difference of two sums, whose terms have together up to twice the largest norm in the box.
    Whitened rows may be longer.
    """
    longest = max(norm, 2 * math.sqrt(problem.dimension))
    error = n_records * gamma(2 * n_records + 16) * clip * longest
    return budget.record_factor * clip * norm + 2 * error, n_records * clip * norm + error
