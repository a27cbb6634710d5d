"""The plan of mirror descent and its stages."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from ..._progress import advance, steps
from ..._types import Array
from ...data.rows import Terms
from ...geometry import MirrorMap
from ...mechanisms import Gaussian, GeneralizedGaussian, Release
from ...randomness.stream import RandomStream
from ..base import Part, SolverResult
from ..first_releases import SetPlan
from ..records import Records, SolverData

VectorNoise = Gaussian | GeneralizedGaussian
Slice = tuple[int, int]  # of the secret order of the records: start and stop


@dataclass(frozen=True)
class Stage(Part):
    """A descent on some of the records, and its noise.

    Attributes
    ----------
    noises : tuple of mechanisms
        What releases the gradients: one mechanism, or for "noisy-sfw" those of the first and
        of the later batches.
    records : tuple (start, stop) or None
        Slice of the secret order of the records; None for all, in any order.
    n_steps : int
    learning_rate : float
        Bound on the step; for "noisy-sfw" the weight of the new point.
    reach, noise_energy : float
        A step is at most reach / sqrt(max(noise_energy, E)), E the sum of the squared dual
        norms of the gradients so far; an infinite reach leaves this bound out.
    strong_convexity : float
        lambda, relative to the mirror map: steps are at most 2 / (lambda (t + 2)).
    anchor : float
        Weight of the regularizer, which is the map about the stage's start.
    within : float or None
        Bound on the distance to the stage's start.
    first_batch, batch : int
        "noisy-sfw": sizes of the first and of each later batch.
    largest_change : float
        "noisy-sfw": clip of the change of a derivative between two steps.
    """

    n_results: ClassVar[int] = 1  # points among which the plan's result may be drawn: its last

    noises: tuple[VectorNoise, ...]
    records: Slice | None
    n_steps: int
    learning_rate: float
    reach: float = math.inf
    noise_energy: float = 1.0
    strong_convexity: float = 0.0
    anchor: float = 0.0
    within: float | None = None
    first_batch: int = 0
    batch: int = 0
    largest_change: float = 0.0

    @property
    def releases(self) -> tuple[Release, ...]:
        """Releases that read one record: all steps, or those of the one batch that it is in."""
        group = None if self.records is None else f"records {self.records}"
        if self.batch:
            first, later = self.noises
            return (
                Release("mean gradient", first, 1, f"{group}, first"),
                Release("gradient change", later, 1, f"{group}, later"),
            )
        (noise,) = self.noises
        name = "mean gradient" if noise.batches is None else "batch gradient"
        return (Release(name, noise, self.n_steps, group),)

    def points(
        self, part: Records, coef: Array, plan: MirrorDescentPlan, stream: RandomStream
    ) -> Iterator[Array]:
        """The point that may be the plan's result, from `coef`; the next stage starts there."""
        if not self.batch:
            yield self._descend(part, coef, plan, stream)
            return
        (first, later), rate = self.noises, self.learning_rate
        moves: list[Move] = [(self.first_batch, first, None, 0.0, rate)]
        moves += [(self.batch, later, self.largest_change, 1.0, rate)] * self.n_steps
        for t, point in enumerate(_frank_wolfe(part, coef, plan, stream, moves)):
            coef = point
            advance(int(t > 0))  # the start is no step of the plan
        yield coef

    def _descend(
        self, part: Records, coef: Array, plan: MirrorDescentPlan, stream: RandomStream
    ) -> Array:
        """Weighted mean of the points of a descent from `coef`."""
        (noise,) = self.noises
        gradient_at = _gradient_source(part, noise, stream)
        mirror_map, start = plan.mirror_map, coef
        center = start if self.anchor > 0 else None
        total, weights, energy = np.zeros(coef.size), 0.0, 0.0
        for t in steps(range(self.n_steps)):
            gradient = noise.release(gradient_at(coef), stream)
            if plan.l2_penalty > 0:
                gradient = gradient + plan.l2_penalty * coef
            if center is not None:
                gradient = gradient + self.anchor * mirror_map.gradient(coef, center)
            energy += mirror_map.dual_norm(gradient) ** 2
            step, weight = self.learning_rate, float(t >= self.n_steps // 2)
            step = min(step, self.reach / math.sqrt(max(self.noise_energy, energy)))
            if self.strong_convexity > 0:
                step, weight = min(step, 2 / (self.strong_convexity * (t + 2))), t + 1.0
            coef = mirror_map.step(coef, gradient, step, center, self.within)
            total += weight * coef
            weights += weight
        return total / weights


@dataclass(frozen=True)
class Round(Part):
    """Frank-Wolfe steps t = 0, 1, ... of weight 1 / sqrt(t + 1), each on a batch of its own."""

    noises: tuple[VectorNoise, ...]  # of the steps
    records: Slice
    n_steps: int
    batches: tuple[int, ...]  # their sizes; records that are left over are not used
    # clips of what a record adds to the estimate, over the norm of its row
    largest_terms: tuple[float, ...]

    @property
    def n_results(self) -> int:
        """The points among which the plan's result may be drawn: all."""
        return self.n_steps

    @property
    def releases(self) -> tuple[Release, ...]:
        """One for each batch."""
        return tuple(
            Release("gradient term", noise, 1, f"records {self.records}, batch {t + 1}")
            for t, noise in enumerate(self.noises)
        )

    @staticmethod
    def weight(t: int) -> float:
        """Of the new point and of the new gradient, in step t."""
        return 1 / math.sqrt(t + 1)

    def points(
        self, part: Records, coef: Array, plan: MirrorDescentPlan, stream: RandomStream
    ) -> Iterator[Array]:
        """The points of a pass whose estimate forgets."""
        weights = [self.weight(t) for t in range(self.n_steps)]
        kept = [1 - weight for weight in weights]
        moves = zip(self.batches, self.noises, self.largest_terms, kept, weights, strict=True)
        yield from _frank_wolfe(part, coef, plan, stream, steps(list(moves)))


Move = tuple[int, VectorNoise, float | None, float, float]


def _frank_wolfe(
    part: Records, coef: Array, plan: MirrorDescentPlan, stream: RandomStream, moves: Iterable[Move]
) -> Iterator[Array]:
    """The points of a pass over disjoint batches, v = kept v + a batch's term.

    A move has the batch's size, its noise, a clip, what is kept, and the new point's weight. The
    term is the batch's mean of the gradients less `kept` times those at the last point, clipped; of
    the gradients alone where there is no clip.
    """
    estimate, before, start = np.zeros(coef.size), coef, 0
    for size, noise, clip, kept, weight in moves:
        batch = part.part(slice(start, start + size))
        start += size
        if clip is None:
            term = batch.mean_gradient(coef)
        else:
            term = batch.mean_change(coef, before, clip, kept)
        estimate = kept * estimate + noise.release(term, stream)
        target = plan.geometry.extreme_point(estimate + plan.l2_penalty * coef)
        before, coef = coef, coef + weight * (target - coef)
        yield coef


Stages = Sequence[Stage | Round]


@dataclass(frozen=True)
class MirrorDescentPlan(SetPlan):
    """Plan of `MirrorDescent`; see `Plan` and `SetPlan` for the common fields.

    Attributes
    ----------
    mirror_map : MirrorMap
    stages : tuple of Stage, or of Round
        What runs, each stage from the result of the one before.
    draws_result : bool
        Whether the result is one of those of the stages, drawn uniformly and without looking at
        the data, and not the last one.
    """

    mirror_map: MirrorMap
    stages: tuple[Stage | Round, ...]
    draws_result: bool = False

    def result_number(self, stream: RandomStream) -> int:
        """The number of the result among those of the stages, one after the other."""
        n_results = sum(stage.n_results for stage in self.stages)
        return stream.integer(n_results) if self.draws_result else n_results - 1

    def run(self, data: SolverData, stream: RandomStream) -> SolverResult:
        """See `Plan.run`."""
        problem = self.problem
        data, frame = self.first.run(data, stream)
        terms = Terms(frame.offset, problem.loss, self.gradient_clip)
        order = None
        if any(stage.records is not None for stage in self.stages):
            order = stream.substream("slices").permutation(problem.n_samples)
            data = data.row_major()
        whole = Records(data.kept(), terms, problem)
        coef = result = self.geometry.center(problem.size)
        # all stages run in any case: what is released does not depend on the draw
        number = self.result_number(stream.substream("result"))
        for stage in self.stages:
            part = whole
            if order is not None and stage.records is not None:
                part = whole.part(order[slice(*stage.records)])
            for point in stage.points(part, coef, self, stream):
                coef, result = point, point if number == 0 else result
                number -= 1
        return frame.result(result, problem, self.max_iter)


def _gradient_source(
    part: Records, noise: VectorNoise, stream: RandomStream
) -> Callable[[Array], Array]:
    """The mean gradient at a point: over all records, or over a fresh batch at each call."""
    batches = noise.batches
    if batches is None:
        return part.mean_gradient
    part = replace(part, data=part.data.row_major())

    def batch_gradient(coef: Array) -> Array:
        batch = part.drawn(batches.draw(stream))
        return batch.mean_gradient(coef) * (batch.n_samples / batches.batch_size)

    return batch_gradient
