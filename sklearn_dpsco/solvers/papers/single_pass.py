r"""Frank-Wolfe in a single pass: every record is read once, and each step selects a vertex.

A step corrects an estimate of the gradient by a batch of fresh records,

.. math:: v_k = q_k v_{b(k)} + \frac{1}{|S_k|} \sum_{i \in S_k}
          \big( \nabla l_i(w_k) - q_k \nabla l_i(w_{b(k)}) \big),

and moves to the vertex that minimizes <v, .> up to the noise. In "rounds" b(k) = k - 1, and q_k
falls behind 1 by the weight of the new batch. In "tree" q = 1, and b(k) is k without its lowest
bit: the estimates are the leaves of a binary tree, a correction for each right child. "spider" is
as "rounds", with constant weights and one record for each step after a first batch.

A record has a part in all estimates that are made of its own. Batches of "rounds" and "tree" are
as large as their influence: all records then cost the same, under one scale of the noise. That
is far less noise than with the sizes of the papers. Restarts are runs on disjoint slices, each
from the result of the one before.

The sensitivities are derived in doc/privacy, sections 3.2 to 3.4.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ..._kernels.arguments import RecordWalk, Slope, dense_or_stored
from ..._progress import advance, steps
from ..._types import Array, Auto, Indices
from ...data.rows import UNIT_ROUNDOFF, SolverData, Terms, piece_rows, summation_error
from ...geometry import AnySet, AxisVertices, Vertices, known_vertices, moved
from ...losses import Loss
from ...mechanisms import SelectSequence, softmax_scale
from ...privacy.budget import Allowance, PrivacyBudget
from ...privacy.guarantee import Guarantee
from ...randomness.stream import UNIFORM_ATTEMPTS, RandomStream, refuse
from .. import defaults
from ..base import (
    Part,
    Problem,
    SolverResult,
    doubling_slices,
    fast_restarts,
    releases_of,
    smallest,
)
from ..defaults import SINGLE_PASS
from ..first_releases import Box, SetPlan, plan_offset
from ..frank_wolfe import FrankWolfe, score_error, selection_facts
from ..records import Records

Slice = tuple[int, int]
MOST_BATCHES = 2**16  # of a run, which a plan holds one by one
_COUNTS = (1, 2, 4, 8, 16, 32, 64, 128)  # of steps, that a plan chooses from
_WORDS = 2**15  # that are drawn for steps of single records at a time


class BatchStep(NamedTuple):
    """One step of a `BatchRun`."""

    size: int  # records of its batch
    base: int  # the step whose estimate it corrects, -1 for none
    kept: float  # q, the weight of that estimate
    clip: float  # bound on a record's derivative, or on its change since that step
    rate: float  # weight of the vertex in the new point


@dataclass(frozen=True)
class _Run(Part):
    """Steps on a slice of the records."""

    release_name: ClassVar[str] = "vertices"

    noise: SelectSequence
    records: Slice  # of their secret order, start and stop
    group: str | None  # name of the slice; None if it holds all records


@dataclass(frozen=True)
class BatchRun(_Run):
    """Steps on batches of a slice of the records."""

    steps: tuple[BatchStep, ...]

    @property
    def n_steps(self) -> int:
        return len(self.steps)

    def result(
        self, whole: Records, which: Indices, plan: SinglePassPlan, w: Array, stream: RandomStream
    ) -> Array:
        """Mean of the second half of the points w, or one of it if the loss is not convex."""
        counted = range(self.n_steps // 2, self.n_steps)
        if not plan.problem.loss.is_convex:
            drawn = counted[stream.substream("point", self.records[0]).integer(len(counted))]
            counted = range(drawn, drawn + 1)
        # Steps that a later one corrects, with their points and estimates: the last, or the leaf's
        # ancestors in the tree
        stack: list[tuple[int, Array, Array]] = []
        start, total = 0, np.zeros(w.size)
        for k, step in enumerate(steps(self.steps)):
            batch = which[start : start + step.size]
            start += step.size
            while stack and stack[-1][0] > step.base:
                stack.pop()
            if step.kept == 0:
                gradient = whole.mean_over(batch, w)
            else:
                _, before, estimate = stack[-1]
                change = whole.mean_over(batch, w, before, step.clip, step.kept)
                gradient = step.kept * estimate + change
            stack.append((k, w, gradient))
            scores = plan.vertices.scores(gradient + plan.l2_penalty * w)
            w = moved(w, plan.vertices.vertex(self.noise.release(scores, stream)), step.rate)
            if k in counted:
                total += w
        return total / len(counted)


@dataclass(frozen=True)
class RecordRun(_Run):
    """A first batch of a slice, and a step for every further record of it."""

    first_batch: int
    rate: float  # eta: weight of the vertex in the new point, and of a record in the estimate
    clip: float  # bound on what a record's derivative contributes
    first_scale: float  # of the noise of the first step, in units of that between
    last_scale: float  # and of the last

    @property
    def n_steps(self) -> int:
        return 1 + self.records[1] - self.records[0] - self.first_batch

    def result(
        self, whole: Records, which: Indices, plan: SinglePassPlan, w: Array, stream: RandomStream
    ) -> Array:
        """The last point."""
        walk = _RecordWalk(whole, which, self, plan, w)
        walk.select(self.first_scale, stream)
        advance(1)
        n = which.size
        at_a_time = piece_rows(n, plan.problem.n_features, whole.data.is_sparse)
        for part in whole.data.in_order(which[self.first_batch : n - 1], at_a_time):
            walk.steps(replace(whole, data=part), stream)
            advance(part.n_samples)
        walk.correct(whole, which[n - 1 :])
        walk.select(self.last_scale, stream)
        advance(1)
        return walk.coef


@dataclass(frozen=True)
class SinglePassPlan(SetPlan):
    """Plan of a single pass; see `Plan` and `SetPlan` for the common fields."""

    vertices: Vertices  # what is chosen among, and what the scores are computed from
    runs: tuple[BatchRun, ...] | tuple[RecordRun, ...]

    def run(self, data: SolverData, stream: RandomStream) -> SolverResult:
        data, frame = self.first.run(data, stream)
        problem = self.problem
        terms = Terms(frame.offset, problem.loss, self.gradient_clip)
        order = stream.substream("slices").permutation(problem.n_samples)
        whole = Records(data.kept(), terms, problem, frame.units(problem))
        coef = np.array(self.geometry.center(problem.size), dtype=np.float64)
        for run in self.runs:
            coef = run.result(whole, order[slice(*run.records)], self, coef, stream)
        return frame.result(coef, problem, self.max_iter)


# ------------------------------------------------------------------------------- planning


@dataclass(kw_only=True, repr=False, eq=False)
class Rounds(FrankWolfe):
    """Frank-Wolfe in a single pass with a corrected estimate of the gradient (BGM21, Algorithm 1).

    Every record is read once, and every step corrects the estimate by a batch of fresh records. It
    takes a hundredth to a tenth of the time of `Selection` on large tables. With epsilon = 1 under
    zero-out, it first explains half of what a model without privacy explains at 500 to 2000 records
    if five of 20 to 100 columns count (`Selection`: 250 to 2000), and at 4000 to 30,000 and more if
    forty do (`Selection`: 1000 to 4000). Possible with delta=0.

    Parameters
    ----------
    max_iter : "auto" or int in [1, 65536], default="auto"
        Number of steps of the last run.
    n_restarts : "auto" or int in [1, 100], default="auto"
        Runs on disjoint parts of the records, each with twice as many records and steps as the one
        before and from its result. "auto" is 1, or ceil(log2 log2 n) with an `l2_penalty`.
    learning_rate : "auto" or float in [1e-50, 1], default="auto"
        Step eta; "auto" is 2 / (t + 9) in regression and 2 / (t + 6) in classification.
    gradient_clip, l2_penalty
        As in `Selection`.
    """

    form = "rounds"

    max_iter: int | Auto = "auto"
    n_restarts: int | Auto = "auto"
    learning_rate: float | Auto = "auto"
    gradient_clip: float | Auto = "auto"
    l2_penalty: float = 0.0

    def _check(
        self: Any, loss: Loss, feasible_set: AnySet, budget: PrivacyBudget, units: str
    ) -> None:
        if self.form != "spider" and (self.max_iter or 1) > MOST_BATCHES:
            raise ValueError(
                f"max_iter must be at most {MOST_BATCHES} for solver={self.form!r}, "
                f"got {self.max_iter}"
            )
        super()._check(loss, feasible_set, budget, units)

    def _plan_form(self, box: Box) -> SinglePassPlan:
        """The plan under the analysis and with the number of steps that err least."""
        draft, n, budget = _Draft(self, box), box.problem.n_samples, box.budget
        if not draft.fits(n):
            raise ValueError(
                f"n_samples={n} is too small for solver={self.form!r}, "
                f"max_iter={self.max_iter}, n_restarts={draft.restarts}: the smallest n that "
                f"works with these settings is {smallest(draft.fits)}"
            )
        is_spider = self.form == "spider"
        plan_runs = draft.record_runs if is_spider else draft.batch_runs
        allowances = [budget.allowance]
        if not (budget.is_pure or box.is_learned) and budget.currency == "auto":
            # that of pure DP is better for few steps
            allowances.append(replace(budget, delta=0.0).allowance)
        plans = []
        for whole in allowances:
            first = box.first(budget, whole, partial(plan_offset, may_center=not is_spider))
            plans.append((*plan_runs(whole.share(first.left)), whole, first))
        _, problem, runs, whole, first = min(plans, key=lambda plan: plan[0])
        n_steps = sum(run.n_steps for run in runs)
        guarantee = Guarantee.of(budget, releases_of(first, *runs), whole.kind)
        common = problem, budget, self.form, n_steps, guarantee, draft.geometry, first
        return SinglePassPlan(*common, draft.clip, self.l2_penalty, draft.vertices, runs)


class Tree(Rounds):
    """Frank-Wolfe in a single pass whose corrections form a tree (AFKT21, Algorithm 3).

    As `Rounds`, but each estimate corrects that of an ancestor in a binary tree. It takes up to
    four times as many records.

    Parameters
    ----------
    max_iter : "auto" or int in [1, 65536], default="auto"
        Number of steps of the last run, rounded down to a power of 2.
    n_restarts, learning_rate
        As in `Rounds`.
    gradient_clip, l2_penalty
        As in `Selection`.
    """

    form = "tree"


@dataclass(kw_only=True, repr=False, eq=False)
class Spider(Rounds):
    """Frank-Wolfe in a single pass with steps of one record each (BGN21, Algorithm 1).

    As `Rounds`, but it takes 10,000 to several million records.

    Parameters
    ----------
    n_restarts
        As in `Rounds`.
    learning_rate : "auto" or float in [1e-50, 1], default="auto"
        Step eta; "auto" is a constant of about log(n) / (2 n).
    gradient_clip, l2_penalty
        As in `Selection`.
    """

    form = "spider"

    max_iter: Any = field(default=None, init=False)  # a step for each record


class _Draft:
    def __init__(self, solver: Any, box: Box) -> None:
        self.solver, self.problem, self.budget = solver, box.problem, box.budget
        self.rules, size = SINGLE_PASS[self.problem.loss.task], self.problem.size
        noise, self.geometry = selection_facts(self.problem, self.budget)
        self.vertices = known_vertices(self.geometry.vertices(size), size)
        self.clip = solver._clip(self.problem, self.vertices.l1_norm, noise)
        usual = fast_restarts(self.problem.n_samples) if solver.l2_penalty > 0 else 1
        self.restarts: int = solver.n_restarts or usual

    def fits(self, n: int, n_steps: int = 1) -> bool:
        """Whether no slice lacks a record for a batch, or for "spider" has no more than ln K.

        Of runs whose last one has the declared number of steps, or this.
        """
        solver, runs = self.solver, doubling_slices(n, self.restarts, growing=True)
        if solver.form == "spider":
            least = 0.0 if solver.learning_rate is not None else math.log(self.vertices.size)
            return all(stop - start >= 2 and stop - start > least for start, stop in runs)
        needed = (self.steps_of(run, solver.max_iter or n_steps) for run in range(len(runs)))
        return all(stop - start >= k for k, (start, stop) in zip(needed, runs, strict=True))

    def steps_of(self, run: int, n_steps: int) -> int:
        """Steps of a run, half as many as of the next one; of a tree a power of 2."""
        if self.solver.form == "tree":
            n_steps = 1 << (n_steps.bit_length() - 1)
        return max(1, n_steps >> (self.restarts - 1 - run))

    def change(self, loss: Loss, kept: float, moved: float) -> float:
        """Bound on the change of a derivative where the point made a part of the way to vertices.

        l'(z) - q l'(z') = q (l'(z) - l'(z')) + (1 - q) l'(z).
        """
        # no prediction moves further than the diameter in a whole step; most move much less
        reach = self.vertices.l1_diameter / 2
        moving = kept * loss.smoothness * moved * reach + (1 - kept) * self.clip
        # (a clip of 0 would have no noise to go with it)
        return max(min(moving, (1 + kept) * self.clip), 1e-6 * self.clip)

    def selection_error(self, noise: SelectSequence) -> float:
        """Expected error of a selection, in units of the radius times the clip."""
        flips = defaults.PERMUTE_AND_FLIP if noise.noise == "exponential" else 1.0
        radius = self.vertices.l1_diameter / 2
        return flips * noise.scale * math.log(noise.n_scores) / (radius * self.clip)

    # ------------------------------------------------------------ batches

    def batch_runs(self, left: Allowance) -> tuple[float, Problem, tuple[BatchRun, ...]]:
        """A measure of the error, the smooth problem and the runs: the best of some plans."""
        n, rules, solver = self.problem.n_samples, self.rules, self.solver
        counts = [count for count in _COUNTS if self.fits(n, count)]
        if solver.max_iter is not None:
            counts = [self.steps_of(self.restarts - 1, solver.max_iter)]
        # what the batches weigh makes no difference in a tree
        weights = rules.weights if solver.form == "rounds" else (math.nan,)
        plans = []
        for n_steps, weight in itertools.product(counts, weights):
            smooth, runs, done = defaults.smoothed_for(self.problem, self.clip, n_steps), [], 0
            for run, records in enumerate(doubling_slices(n, self.restarts, growing=True)):
                count = self.steps_of(run, n_steps)
                runs.append(self.batch_run(left, records, smooth.loss, count, done, weight))
                done += count
            # what batches vary, by their bounds
            variances: list[float] = []
            for step in runs[-1].steps:
                before = variances[step.base] if step.base >= 0 else 0.0
                variances.append(step.clip**2 / step.size + step.kept**2 * before)
            late, n_vertices = variances[len(variances) // 2 :], self.vertices.size
            sampling = math.sqrt(2 * math.log(n_vertices) * sum(late) / len(late)) / self.clip
            error = rules.unfinished / done + self.selection_error(runs[-1].noise)
            plans.append((error + rules.variation * sampling, smooth, tuple(runs)))
        return min(plans, key=lambda plan: plan[0])

    def batch_run(
        self, left: Allowance, records: Slice, loss: Loss, n_steps: int, done: int, weight: float
    ) -> BatchRun:
        """A run after `done` steps of other runs; `weight`: see `defaults.SINGLE_PASS`."""
        k = np.arange(n_steps)
        rates = 2 / (done + k + self.rules.late)
        if self.solver.learning_rate is not None:
            rates = np.full(n_steps, float(self.solver.learning_rate))
        if self.solver.form == "tree":
            base = np.where(k > 0, k - (k & -k), -1)
            kept = np.where(k > 0, 1.0, 0.0)
        else:
            base = k - 1
            kept = np.where(k > 0, np.maximum(0.0, 1 - weight * rates), 0.0)
        # how far the point went since the step that is corrected, as a part of the way to vertices
        gone = np.concatenate(([0.0], np.cumsum(np.log1p(-np.minimum(rates, 1 - 1e-15)))))
        moved = -np.expm1(gone[k] - gone[np.maximum(base, 0)])
        changes = map(self.change, itertools.repeat(loss), kept.tolist(), moved.tolist())
        clips = np.where(base >= 0, list(changes), self.clip)
        # batches as large as their influence, and at least one record, so that all have the same
        norm, n = 1 if left.kind == "pure" else 2, records[1] - records[0]
        wanted = clips * influence(base.tolist(), kept.tolist(), norm)
        sizes = 1 + np.floor((n - n_steps) * (1 - 1e-12) * wanted / wanted.sum()).astype(np.intp)
        sizes[np.argsort(-wanted / sizes, kind="stable")[: n - int(sizes.sum())]] += 1
        columns = (column.tolist() for column in (sizes, base, kept, clips, rates))
        steps = tuple(itertools.starmap(BatchStep, zip(*columns, strict=True)))
        facts = self.problem, self.budget, self.vertices
        change = corrected_scores(*facts, steps, self.solver.l2_penalty, norm)
        noise = SelectSequence.of_ranges(change, left, self.vertices.size, flips=True)
        group = None if n == self.problem.n_samples else f"records {records}"
        return BatchRun(noise, records, group, steps)

    # ------------------------------------------------------------ single records

    def record_runs(self, left: Allowance) -> tuple[float, Problem, tuple[RecordRun, ...]]:
        """As `batch_runs`."""
        problem, runs = defaults.smoothed_for(self.problem, self.clip, self.problem.n_samples), []
        norm, n_vertices = 1 if left.kind == "pure" else 2, self.vertices.size
        for records in doubling_slices(problem.n_samples, self.restarts, growing=True):
            n, rate = records[1] - records[0], self.solver.learning_rate
            first_batch = max(1, n // 2)
            if rate is None:
                # BGN21's step, for a run of n / 2
                wanted = math.log(n / max(1.0, math.log(n_vertices)))
                rate = max(min(0.5, self.rules.forgets * wanted / n), 1 / n)
            rate = min(rate, 1 - 1e-9)
            clip = self.change(problem.loss, 1 - rate, rate)
            facts = problem, self.budget, self.vertices, n - first_batch, first_batch, rate
            clips, penalty = (self.clip, clip), self.solver.l2_penalty
            change, *scales = record_scores(*facts, clips, penalty, norm)
            # so many steps are mostly noise, where both laws are the same
            noise = SelectSequence.of_ranges(change, left, n_vertices, flips=False)
            group = None if n == problem.n_samples else f"records {records}"
            runs.append(RecordRun(noise, records, group, first_batch, rate, clip, *scales))
        return self.selection_error(runs[-1].noise), problem, tuple(runs)


# -------------------------------------------------------------------------------- running


class _RecordWalk:
    def __init__(
        self, whole: Records, which: Indices, run: RecordRun, plan: SinglePassPlan, coef: Array
    ) -> None:
        self.whole, self.run, self.plan = whole, run, plan
        self.coef = self.before = coef
        self.gradient = whole.mean_over(which[: run.first_batch], coef)
        self.number = 0  # of the vertex that was selected last
        self.compiled = self._kernel()
        self.state: Any = None  # of the compiled steps, with their w and v

    def correct(self, records: Records, which: Indices) -> None:
        """The estimate at the new point, by some of the records."""
        run, kept = self.run, 1 - self.run.rate
        change = records.mean_over(which, self.coef, self.before, run.clip, kept)
        self.gradient = kept * self.gradient + change

    def select(self, scale: float, stream: RandomStream) -> None:
        """A vertex, and the move to it."""
        plan, vertices = self.plan, self.plan.vertices
        scores = vertices.scores(self.gradient + plan.l2_penalty * self.coef)
        self.number = self.run.noise.release(scores / scale, stream)
        vertex = vertices.vertex(self.number)
        self.before, self.coef = self.coef, moved(self.coef, vertex, self.run.rate)

    def steps(self, part: Records, stream: RandomStream) -> None:
        """A step for each of these records."""
        n, done = part.data.n_samples, 0
        if self.compiled is None:
            for k in range(n):
                self.correct(part, np.array([k]))
                self.select(1.0, stream)
            return
        from ..._kernels import record_steps as kernels

        slope, walk = self.compiled
        if self.state is None:
            self.state = np.array([0.0, 0.0, 1.0, 1.0]), self.before.copy(), self.gradient.copy()
            kernels.move(self.state[1], self.state[0], walk, self.number)
        last, w, v = self.state
        while done < n:
            # as many steps as the words decide; the estimate is then that of the next one
            words, rest = stream.words(_WORDS), part.data.part(slice(done, None))
            records = rest.rows.scales(), rest.rows.factors(), rest.y
            known = records, slope, walk, self.state, words
            count, used = kernels.record_steps(*dense_or_stored(rest.rows.X), *known)
            if used < 0:
                refuse()
            stream.unread(words.size - used)
            done += count
            if done < n:  # the words did not decide the selection of this one
                kernels.move(w, last, walk, self._settled(stream))
                done += 1
        self.coef, self.gradient = last[2] * w, last[3] * v
        self.before = self.coef.copy()
        self.before[int(last[0])] -= last[1]
        self.before /= walk.kept

    def _kernel(self) -> tuple[Slope, RecordWalk] | None:
        """What compiled steps need, if they know the loss, the set and the law of the noise."""
        vertices, slope = self.plan.vertices, self.whole.terms.slope
        scale, is_one = softmax_scale(self.run.noise), self.plan.problem.n_outputs == 1
        if slope is None or scale is None or not is_one or not isinstance(vertices, AxisVertices):
            return None
        facts = 1 - self.run.rate, self.run.clip, self.plan.l2_penalty, scale
        sizes = 2 * UNIFORM_ATTEMPTS, self.plan.problem.n_features
        return slope, RecordWalk(*facts, *sizes, np.array(vertices.values, dtype=np.float64))

    def _settled(self, stream: RandomStream) -> int:
        """A selection among the scores of the compiled steps, the same to the last bit."""
        (state, w, v), noise = self.state, self.run.noise
        scores = self.plan.vertices.scores(v + self.plan.l2_penalty * state[2] / state[3] * w)
        return replace(noise, scale=noise.scale / state[3]).release(scores, stream)


# ------------------------------------------------------------------------------ sensitivities


def influence(base: Sequence[int], kept: Sequence[float], norm: int) -> Array:
    """l1 or l2 norm, over all steps, of the weights that each batch has in their estimates."""
    total = np.ones(len(base))
    for k in range(len(base) - 1, 0, -1):
        if base[k] >= 0:
            total[base[k]] += kept[k] ** norm * total[k]
    return total ** (1 / norm)


def corrected_scores(
    problem: Problem,
    budget: PrivacyBudget,
    vertices: Vertices,
    steps: Sequence[BatchStep],
    penalty: float,
    norm: int,
) -> float:
    """Largest norm, over all records, of the ranges of a run's selections (section 3.3).

    A record of batch k moves its mean by up to clip_k record_factor / size_k in every coordinate,
    and every later estimate by its weight there times that.
    """
    sizes, bases, weights, clips, _ = zip(*steps, strict=True)
    own = budget.record_factor * np.array(clips) / sizes * influence(bases, weights, norm)
    # bounds on the estimates and on their float errors
    bound, error = np.zeros((2, len(steps)))
    for k, (size, b, kept, clip, _) in enumerate(steps):
        bound[k] = clip + (kept * bound[b] if b >= 0 else 0.0)
        error[k] = clip * summation_error(size, problem.n_features)
        error[k] += 8 * UNIT_ROUNDOFF * bound[k] + (kept * error[b] if b >= 0 else 0.0)
    scored = bound + penalty * vertices.l1_norm
    error += (score_error(vertices) + 4 * UNIT_ROUNDOFF) * scored
    numerical = 4 * vertices.l1_norm * float(np.linalg.norm(error, norm))
    return vertices.l1_diameter * float(own.max()) + numerical


def record_scores(
    problem: Problem,
    budget: PrivacyBudget,
    vertices: Vertices,
    n_steps: int,
    first_batch: int,
    rate: float,
    clips: tuple[float, float],
    penalty: float,
    norm: int,
) -> tuple[float, float, float]:
    """The same for `RecordRun`, and the scales of the first and the last noise (section 3.2).

    `n_steps` are those after the first, `rate` is 1 - q in (0, 1), and `clips` are of the first
    batch's and of a record's derivatives. Scales are in units of the noise between, and the scores
    are divided by them. They are such that the norm is the same for every record, where that is
    possible and lowers it.
    """
    first_clip, clip = clips
    change = vertices.l1_diameter * budget.record_factor
    first, each = change * first_clip / first_batch, change * clip
    log_decay = norm * math.log1p(-rate)
    decay, lasting = math.exp(log_decay), (-math.expm1(log_decay)) ** (1 / norm)
    # the first batch's weights over all steps, and those of the first record
    whole = [-math.expm1(count * log_decay) for count in (n_steps + 1, n_steps)]
    constant = max(first * whole[0] ** (1 / norm), each * whole[1] ** (1 / norm)) / lasting
    total, scales = constant, (1.0, 1.0)
    is_tight = first <= each or each / lasting <= constant
    share = first / each
    if is_tight and decay * share**norm < 1:
        rest = (1 - decay * share**norm) ** (1 / norm)
        total, scales = each / lasting, (share * lasting / rest, lasting)
    longest = min(1 / rate, n_steps + 1.0)
    bound = first_clip + clip * longest
    scored = bound + penalty * vertices.l1_norm
    error = 8 * UNIT_ROUNDOFF * scored
    of_first = first_clip * summation_error(first_batch, problem.n_features)
    error += max(of_first, clip * summation_error(1, problem.n_features))
    error = error * longest + score_error(vertices) * scored
    times = (n_steps + scales[0] ** -norm + scales[1] ** -norm) ** (1 / norm)
    return (total + 4 * vertices.l1_norm * error * times, *scales)
