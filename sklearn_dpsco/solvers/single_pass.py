r"""Frank-Wolfe in a single pass: every record is read once, and each step selects a vertex.

A step corrects an estimate of the gradient by a batch of fresh records,

.. math:: v_k = q_k v_{b(k)} + \frac{1}{|S_k|} \sum_{i \in S_k}
          \big( \nabla l_i(w_k) - q_k \nabla l_i(w_{b(k)}) \big),

and moves to the vertex that minimizes <v, .> up to the noise. The forms differ in b and q:

``"rounds"``
    b(k) = k - 1 and q_k falls behind 1 by the weight of the new batch (BGM21 Algorithm 1).
``"tree"``
    q = 1, and b(k) is k without its lowest bit: the estimates are the leaves of a binary
    tree, a correction for each right child (AFKT21 Algorithm 3).
``"spider"``
    As "rounds", with constant weights and one record for each step after a first batch (BGN21
    Algorithm 1).

A record has a part in all estimates that are made of its own. Batches of "rounds" and "tree" are
as large as their influence: all records then cost the same, under one scale of the noise. That
is far less noise than with the sizes of the papers. Restarts are runs on disjoint slices, each
from the result of the one before.

The sensitivities are derived in doc/privacy, sections 3.2 to 3.4.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from .._kernels.arguments import Compressed, RecordWalk
from .._progress import advance, steps
from ..data.rows import Terms
from ..geometry import AxisVertices, Geometry, Vertices, moved
from ..mechanisms import Release, SelectSequence, softmax_scale
from ..privacy.budget import Allowance, PrivacyBudget
from ..privacy.guarantee import Guarantee
from ..randomness.exact import UNIFORM_ATTEMPTS, refuse
from ..randomness.stream import RandomStream
from . import defaults, sensitivity
from .base import Part, Plan, Problem, SolverData, SolverResult
from .batches import Records
from .defaults import SINGLE_PASS, SinglePassDefaults
from .first_releases import FirstReleases, plan_box, plan_offset
from .slices import fast_restarts, slices, smallest

__all__ = [
    "MOST_BATCHES",
    "SINGLE_PASS_FORMS",
    "BatchRun",
    "RecordRun",
    "SinglePassFacts",
    "SinglePassPlan",
    "plan_single_pass",
]

Array = NDArray[np.float64]

SINGLE_PASS_FORMS = ("spider", "tree", "rounds")

MOST_BATCHES = 2**16  # of a run, which a plan holds one by one
_COUNTS = (1, 2, 4, 8, 16, 32, 64, 128)  # of steps, that a plan chooses from
# Single records that are copied into their order at a time: what fits into a cache
_CHUNK_BYTES = 2**21
_CHUNK_ROWS = 2**14  # at most, and of CSR rows
_WORDS = 2**15  # that are drawn for them at a time


class BatchStep(NamedTuple):
    """One step of a `BatchRun`.

    Attributes
    ----------
    size : int
        Records of its batch.
    base : int
        The step whose estimate it corrects, -1 for none.
    kept : float
        q, the weight of that estimate.
    clip : float
        Bound on a record's derivative, or on its change since that step.
    rate : float
        Weight of the vertex in the new point.
    """

    size: int
    base: int
    kept: float
    clip: float
    rate: float


@dataclass(frozen=True)
class _SliceRun(Part):
    """A run on a slice of the records.

    Attributes
    ----------
    noise : SelectSequence
    records : tuple (start, stop)
        Slice of the secret order of the records.
    group : str or None
        Name of the slice; None if it holds all records.
    """

    noise: SelectSequence
    records: tuple[int, int]
    group: str | None

    @property
    def releases(self) -> tuple[Release, ...]:
        return (Release("vertices", self.noise, 1, self.group),)


@dataclass(frozen=True)
class BatchRun(_SliceRun):
    """Steps on batches; see `_SliceRun` for the common fields.

    Attributes
    ----------
    steps : tuple of BatchStep
    """

    steps: tuple[BatchStep, ...]

    @property
    def n_steps(self) -> int:
        return len(self.steps)

    def result(
        self,
        whole: Records,
        which: NDArray[np.intp],
        units: Array,
        plan: SinglePassPlan,
        coef: Array,
        stream: RandomStream,
    ) -> Array:
        """Mean of the second half of the points, or of a loss that is not convex one drawn from it.

        Coefficients are those of rows times the units.
        """
        counted = range(self.n_steps // 2, self.n_steps)
        if not plan.problem.loss.is_convex:
            drawn = counted[stream.substream("point", self.records[0]).integer(len(counted))]
            counted = range(drawn, drawn + 1)
        # those that a later step corrects: the last, or the leaf's ancestors in the tree
        stack: list[_Estimate] = []
        start, total = 0, np.zeros(coef.size)
        for k, step in enumerate(steps(self.steps)):
            batch = which[start : start + step.size]
            start += step.size
            while stack and stack[-1].step > step.base:
                stack.pop()
            if step.kept == 0:
                gradient = units * whole.mean_over(batch, units * coef)
            else:
                before = stack[-1]
                change = whole.mean_over(
                    batch, units * coef, units * before.coef, step.clip, step.kept
                )
                gradient = step.kept * before.gradient + units * change
            stack.append(_Estimate(k, coef, gradient))
            scores = plan.vertices.scores(gradient + plan.l2_penalty * coef)
            coef = moved(coef, plan.vertices.vertex(self.noise.release(scores, stream)), step.rate)
            if k in counted:
                total += coef
        return total / len(counted)


@dataclass(frozen=True)
class RecordRun(_SliceRun):
    """A first batch, and a step for every further record; see `_SliceRun` for the common fields.

    Attributes
    ----------
    first_batch : int
    rate : float
        eta: weight of the vertex in the new point, and of a record in the estimate.
    clip : float
        Bound on what a record's derivative contributes.
    first_scale, last_scale : float
        Of the noise of the first and of the last step, in units of that between.
    """

    first_batch: int
    rate: float
    clip: float
    first_scale: float
    last_scale: float

    @property
    def n_steps(self) -> int:
        return 1 + self.records[1] - self.records[0] - self.first_batch

    def result(
        self,
        whole: Records,
        which: NDArray[np.intp],
        _: Array,
        plan: SinglePassPlan,
        coef: Array,
        stream: RandomStream,
    ) -> Array:
        """The last point."""
        walk = _RecordWalk(whole, which, self, plan, coef)
        walk.select(self.first_scale, stream)
        advance(1)
        n, chunk = which.size, _CHUNK_ROWS
        if not whole.data.is_sparse:
            chunk = min(chunk, max(1, _CHUNK_BYTES // (8 * plan.problem.n_features)))
        for part in whole.in_order(which[self.first_batch : n - 1], chunk):
            walk.steps(part, stream)
            advance(part.n_samples)
        walk.correct(whole, which[n - 1 :])
        walk.select(self.last_scale, stream)
        advance(1)
        return walk.coef


@dataclass(frozen=True)
class SinglePassPlan(Plan):
    """Plan of a single pass; see `Plan` for the common fields.

    Attributes
    ----------
    geometry : Geometry
        The feasible set with its radius.
    vertices : Vertices
        What is chosen among, and what the scores are computed from.
    first : FirstReleases
        What is released before the descent.
    gradient_clip : float
        c: bound on abs(dl/dz).
    l2_penalty : float
        Weight of norm(w)^2 / 2.
    runs : tuple of BatchRun or of RecordRun
    """

    geometry: Geometry
    vertices: Vertices
    first: FirstReleases
    gradient_clip: float
    l2_penalty: float
    runs: tuple[BatchRun, ...] | tuple[RecordRun, ...]

    @property
    def bounded_set(self) -> Geometry:
        return self.geometry

    def run(self, data: SolverData, stream: RandomStream) -> SolverResult:
        """See `Plan.run`."""
        start = self.first.run(data, stream)
        problem = self.problem
        terms = Terms(start.frame.offset, problem.loss, self.gradient_clip)
        order = stream.substream("slices").permutation(problem.n_samples)
        whole = Records(start.data.row_major().kept(), terms, problem)
        coef = np.array(self.geometry.center(problem.size), dtype=np.float64)
        units = start.frame.units(problem)
        for run in self.runs:
            coef = run.result(whole, order[slice(*run.records)], units, self, coef, stream)
        return start.frame.result(coef, problem, self.max_iter)


# ------------------------------------------------------------------------------- planning


@dataclass(frozen=True)
class SinglePassFacts:
    """What a plan is made of; the settings are those of `frank_wolfe.FrankWolfe`."""

    form: str
    problem: Problem
    budget: PrivacyBudget
    geometry: Geometry
    vertices: Vertices
    clip: float
    penalty: float
    max_iter: int | None
    learning_rate: float | None
    n_restarts: int | None

    @property
    def rules(self) -> SinglePassDefaults:
        return SINGLE_PASS[self.problem.loss.task]

    @property
    def restarts(self) -> int:
        if self.n_restarts is not None:
            return self.n_restarts
        return fast_restarts(self.problem.n_samples) if self.penalty > 0 else 1

    def steps_of(self, run: int, n_steps: int) -> int:
        """Steps of a run, half as many as of the next one."""
        return max(1, n_steps >> (self.restarts - 1 - run))

    @property
    def radius(self) -> float:
        """Half of the l1 diameter of the set."""
        return self.vertices.l1_diameter / 2

    def smoothed(self, n_steps: int) -> SinglePassFacts:
        """The same facts, with the envelope of a loss that is not smooth."""
        loss = defaults.smoothed_for(self.problem.loss, self.clip, n_steps)
        return replace(self, problem=replace(self.problem, loss=loss))

    def change(self, kept: float, moved: float) -> float:
        """Bound on the change of a derivative where the point made a part of the way to vertices.

        l'(z) - q l'(z') = q (l'(z) - l'(z')) + (1 - q) l'(z).
        """
        # no prediction moves further than the diameter; most move much less
        reach = min(2.0, self.rules.change) * self.radius
        moving = kept * self.problem.loss.smoothness * moved * reach + (1 - kept) * self.clip
        # (a clip of 0 would have no noise to go with it)
        return max(min(moving, (1 + kept) * self.clip), 1e-6 * self.clip)


def plan_single_pass(facts: SinglePassFacts) -> SinglePassPlan:
    """The plan of a form, under the analysis and with the number of steps that err least.

    Raises
    ------
    ValueError
        If a slice has too few records.
    """
    _check_size(facts)
    plans = []
    for whole in _allowances(facts.budget):
        plan_runs = _plan_records if facts.form == "spider" else _plan_batches
        plan_first = plan_offset if facts.form == "spider" else plan_box
        first = plan_first(facts.problem, facts.budget, whole)
        plans.append((*plan_runs(facts, whole.share(first.left)), whole, first))
    _, problem, runs, whole, first = min(plans, key=lambda plan: plan[0])
    releases = [*first.releases, *(release for run in runs for release in run.releases)]
    return SinglePassPlan(
        problem,
        facts.budget,
        facts.form,
        sum(run.n_steps for run in runs),
        Guarantee.of(facts.budget, releases, whole.kind),
        geometry=facts.geometry,
        vertices=facts.vertices,
        first=first,
        gradient_clip=facts.clip,
        l2_penalty=facts.penalty,
        runs=runs,
    )


def _allowances(budget: PrivacyBudget) -> list[Allowance]:
    """The budget in its own currency, and in that of pure DP, which is better for few steps."""
    if budget.is_pure or budget.currency != "auto":
        return [budget.allowance]
    return [budget.allowance, replace(budget, delta=0.0).allowance]


def _check_size(facts: SinglePassFacts) -> None:
    def fits(n: int) -> bool:
        runs = slices(n, facts.restarts, growing=True)
        return all(_fits(facts, run, stop - start) for run, (start, stop) in enumerate(runs))

    n = facts.problem.n_samples
    if not fits(n):
        raise ValueError(
            f"n_samples={n} is too small for solver={facts.form!r}, max_iter={facts.max_iter}, "
            f"n_restarts={facts.restarts}: the smallest n that works with these settings is "
            f"{smallest(fits)}"
        )


def _fits(facts: SinglePassFacts, run: int, n: int) -> bool:
    """Whether a slice has a record for every batch; for "spider" also more than ln K."""
    if facts.form == "spider":
        return n >= 2 and (facts.learning_rate is not None or n > math.log(facts.vertices.size))
    n_steps = facts.max_iter or 1
    return n >= facts.steps_of(run, _whole_tree(facts, n_steps))


def _whole_tree(facts: SinglePassFacts, n_steps: int) -> int:
    """The number of steps, of a tree the largest power of 2 within it."""
    return 1 << (n_steps.bit_length() - 1) if facts.form == "tree" else n_steps


# ---------------------------------------------------------------- batches


def _plan_batches(
    facts: SinglePassFacts, left: Allowance
) -> tuple[float, Problem, tuple[BatchRun, ...]]:
    """A measure of the error, the smooth problem and the runs: the best of some plans."""
    n = facts.problem.n_samples
    counts = [count for count in _COUNTS if count <= n]
    if facts.max_iter is not None:
        counts = [_whole_tree(facts, facts.max_iter)]
    # what the batches weigh makes no difference in a tree
    weights = facts.rules.weights if facts.form == "rounds" else (math.nan,)
    plans = []
    for n_steps, weight in itertools.product(counts, weights):
        smooth, runs, done = facts.smoothed(n_steps), [], 0
        for run, records in enumerate(slices(n, facts.restarts, growing=True)):
            count = facts.steps_of(run, n_steps)
            if records[1] - records[0] < count:
                break
            runs.append(_batch_run(smooth, left, records, count, done, weight))
            done += count
        if len(runs) == facts.restarts:
            error = facts.rules.unfinished / done + _selection_error(facts, runs[-1].noise)
            error += facts.rules.variation * _sampling_error(facts, runs[-1])
            plans.append((error, smooth.problem, tuple(runs)))
    return min(plans, key=lambda plan: plan[0])


def _selection_error(facts: SinglePassFacts, noise: SelectSequence) -> float:
    """Expected error of a selection, in units of the radius times the clip."""
    flips = defaults.PERMUTE_AND_FLIP if noise.noise == "exponential" else 1.0
    return flips * noise.scale * math.log(noise.n_scores) / (facts.radius * facts.clip)


def _sampling_error(facts: SinglePassFacts, run: BatchRun) -> float:
    """The same for what batches vary, by their bounds."""
    variances: list[float] = []
    for step in run.steps:
        before = variances[step.base] if step.base >= 0 else 0.0
        variances.append(step.clip**2 / step.size + step.kept**2 * before)
    late = variances[run.n_steps // 2 :]
    return math.sqrt(2 * math.log(run.noise.n_scores) * sum(late) / len(late)) / facts.clip


def _batch_run(
    facts: SinglePassFacts, left: Allowance, records: tuple[int, int], n_steps: int, done: int,
    weight: float,
) -> BatchRun:  # fmt: skip
    """A run after `done` steps of earlier ones; of `weight`: see `SinglePassDefaults.weights`."""
    problem, budget = facts.problem, facts.budget
    norm = 1 if left.kind == "pure" else 2
    rates, corrections = _corrections(facts, n_steps, done, weight)
    n = records[1] - records[0]
    # as large as their influence, so that all records have the same
    sizes = _shared(n, corrections.clip * corrections.influence(norm))
    change = sensitivity.corrected_scores(
        problem, budget, facts.vertices, corrections, sizes, facts.penalty, norm
    )
    noise = SelectSequence.of_ranges(change, left, facts.vertices.size, flips=True)
    columns = (sizes, *corrections, rates)
    steps = tuple(BatchStep(*row) for row in zip(*(c.tolist() for c in columns), strict=True))
    group = None if n == problem.n_samples else f"records {records}"
    return BatchRun(noise, records, group, steps)


def _shared(n: int, weights: Array) -> NDArray[np.intp]:
    """N records in parts of at least one, in proportion to the weights."""
    left = n - weights.size
    sizes = 1 + np.floor(left * (1 - 1e-12) * weights / weights.sum()).astype(np.intp)
    most = np.argsort(-weights / sizes, kind="stable")[: n - int(sizes.sum())]
    sizes[most] += 1
    return sizes


def _corrections(
    facts: SinglePassFacts, n_steps: int, done: int, weight: float
) -> tuple[Array, sensitivity.Corrections]:
    """The weights of the steps, and which estimate each of them corrects."""
    rules, k = facts.rules, np.arange(n_steps)
    if facts.learning_rate is not None:
        rates = np.full(n_steps, float(facts.learning_rate))
    else:
        rates = 2 / (done + k + rules.late)
    if facts.form == "tree":
        base = np.where(k > 0, k - (k & -k), -1)
        kept = np.where(k > 0, 1.0, 0.0)
    else:
        base = k - 1
        kept = np.where(k > 0, np.maximum(0.0, 1 - weight * rates), 0.0)
    # how far the point went since the step that is corrected, as a part of the way to vertices
    gone = np.concatenate(([0.0], np.cumsum(np.log1p(-np.minimum(rates, 1 - 1e-15)))))
    moved = -np.expm1(gone[k] - gone[np.maximum(base, 0)])
    clip = [
        facts.change(float(q), float(way)) if b >= 0 else facts.clip
        for q, way, b in zip(kept, moved, base, strict=True)
    ]
    return rates, sensitivity.Corrections(base.astype(np.intp), kept, np.array(clip))


# ---------------------------------------------------------------- single records


def _plan_records(
    facts: SinglePassFacts, left: Allowance
) -> tuple[float, Problem, tuple[RecordRun, ...]]:
    """As `_plan_batches`."""
    n = facts.problem.n_samples
    facts = facts.smoothed(n)
    parts = slices(n, facts.restarts, growing=True)
    runs = tuple(_record_run(facts, left, records) for records in parts)
    return _selection_error(facts, runs[-1].noise), facts.problem, runs


def _record_run(facts: SinglePassFacts, left: Allowance, records: tuple[int, int]) -> RecordRun:
    problem, n = facts.problem, records[1] - records[0]
    norm = 1 if left.kind == "pure" else 2
    first_batch = max(1, n // 2)
    rate = facts.learning_rate
    if rate is None:
        # BGN21's step, for a run of n / 2
        rate = min(
            0.5, facts.rules.forgets * math.log(n / max(1.0, math.log(facts.vertices.size))) / n
        )
        rate = max(rate, 1 / n)
    rate = min(rate, 1 - 1e-9)
    clip = facts.change(1 - rate, rate)
    steps = sensitivity.RecordSteps(n - first_batch, first_batch, rate, facts.clip, clip)
    change, first, last = sensitivity.record_scores(
        problem, facts.budget, facts.vertices, steps, facts.penalty, norm
    )
    # so many steps are mostly noise, where both laws are the same
    noise = SelectSequence.of_ranges(change, left, facts.vertices.size, flips=False)
    group = None if n == problem.n_samples else f"records {records}"
    return RecordRun(noise, records, group, first_batch, rate, clip, first, last)


# -------------------------------------------------------------------------------- running


class _Estimate(NamedTuple):
    """What a later step may correct: the number of the step, its point and its estimate."""

    step: int
    coef: Array
    gradient: Array


class _RecordWalk:
    """The state of a run on single records."""

    def __init__(
        self, whole: Records, which: NDArray[np.intp], run: RecordRun, plan: SinglePassPlan,
        coef: Array,
    ) -> None:  # fmt: skip
        self.whole, self.run, self.plan = whole, run, plan
        self.coef = self.before = coef
        self.gradient = whole.mean_over(which[: run.first_batch], coef)
        self.number = 0  # of the vertex that was selected last
        self.compiled = self._kernel()
        self.state: Any = None  # of the compiled steps, with their w and v

    def correct(self, records: Records, which: NDArray[np.intp]) -> None:
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
        n, done = part.n_samples, 0
        if self.compiled is None:
            for k in range(n):
                self.correct(part, np.array([k]))
                self.select(1.0, stream)
            return
        if self.state is None:
            self.state = np.array([0.0, 0.0, 1.0, 1.0]), self.before.copy(), self.gradient.copy()
            self._move(self.number)
        while done < n:
            done += self._compiled_steps(part.part(slice(done, None)), stream)
            if done < n:  # the words did not decide the selection of this one
                self._move(self._settled(stream))
                done += 1
        last, w, v = self.state
        self.coef, self.gradient = last[2] * w, last[3] * v
        self.before = self.coef.copy()
        self.before[int(last[0])] -= last[1]
        self.before /= 1 - self.run.rate

    def _kernel(self) -> Any:
        """The compiled steps, if they know the loss, the set and the law of the noise."""
        vertices, slope = self.plan.vertices, self.whole.terms.slope
        scale, is_one = softmax_scale(self.run.noise), self.plan.problem.n_outputs == 1
        if slope is None or scale is None or not is_one or not isinstance(vertices, AxisVertices):
            return None
        from .._kernels.record_steps import csr_record_steps, dense_record_steps

        walk = RecordWalk(
            1 - self.run.rate, self.run.clip, self.plan.l2_penalty, scale, 2 * UNIFORM_ATTEMPTS
        )
        fixed = slope, walk, np.array(vertices.values, dtype=np.float64)

        def steps(part: Records, *state: Any) -> tuple[int, int]:
            rows = part.data.rows
            records = rows.scales(), rows.factors(), part.data.y, *fixed
            if sparse.issparse(rows.X):
                return csr_record_steps(Compressed.of(rows.X), *records, *state, rows.n_columns)
            return dense_record_steps(np.ascontiguousarray(rows.X), *records, *state)

        return steps

    def _compiled_steps(self, part: Records, stream: RandomStream) -> int:
        """As many steps as the words decide; the estimate is then that of the next one."""
        (state, w, v), words = self.state, stream.words(_WORDS)
        done, used = self.compiled(part, state, words, w, v)
        if used < 0:
            refuse()
        stream.unread(words.size - used)
        return done

    def _settled(self, stream: RandomStream) -> int:
        """A selection among the scores of the compiled steps, the same to the last bit."""
        (state, w, v), noise = self.state, self.run.noise
        scores = self.plan.vertices.scores(v + self.plan.l2_penalty * state[2] / state[3] * w)
        return replace(noise, scale=noise.scale / state[3]).release(scores, stream)

    def _move(self, number: int) -> None:
        from .._kernels.record_steps import move

        vertices: Any = self.plan.vertices
        state, w, _ = self.state
        move(w, state, 1 - self.run.rate, np.array(vertices.values, dtype=np.float64), number)
