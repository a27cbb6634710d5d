"""The plan of mirror descent and its stages."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..._progress import advance, steps
from ...data.rows import Terms
from ...geometry import Geometry, MirrorMap
from ...mechanisms import Gaussian, GeneralizedGaussian, Release
from ...randomness.stream import RandomStream
from ..base import Part, Plan, SolverResult
from ..first_releases import FirstReleases
from ..records import Records, SolverData

Array = NDArray[np.float64]
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
        run = self._frank_wolfe if self.batch else self._descend
        yield run(part, coef, plan, stream)

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

    def _frank_wolfe(
        self, part: Records, coef: Array, plan: MirrorDescentPlan, stream: RandomStream
    ) -> Array:
        """Last point of a pass over disjoint batches with a recursive gradient estimate."""
        first, later = self.noises
        estimate = np.zeros(coef.size)
        before, start = coef, 0
        for t in range(self.n_steps + 1):
            stop = start + (self.batch if t else self.first_batch)
            batch = part.part(slice(start, stop))
            if t == 0:
                estimate = first.release(batch.mean_gradient(coef), stream)
            else:
                change = batch.mean_change(coef, before, self.largest_change)
                estimate = estimate + later.release(change, stream)
            target = plan.geometry.extreme_point(estimate + plan.l2_penalty * coef)
            before, coef = coef, coef + self.learning_rate * (target - coef)
            start = stop
            advance(int(t > 0))  # the start is no step of the plan
        return coef


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
        """The points of a pass whose estimate forgets, v_t = (1 - eta_t) v_{t-1} + a batch's term.

        The term is the batch's mean of the gradients less (1 - eta_t) times those at the last
        point.
        """
        estimate, before, start = np.zeros(coef.size), coef, 0
        for t in steps(range(self.n_steps)):
            stop = start + self.batches[t]
            weight, batch = self.weight(t), part.part(slice(start, stop))
            term = batch.mean_change(coef, before, self.largest_terms[t], 1 - weight)
            estimate = (1 - weight) * estimate + self.noises[t].release(term, stream)
            target = plan.geometry.extreme_point(estimate + plan.l2_penalty * coef)
            before, coef, start = coef, coef + weight * (target - coef), stop
            yield coef


Stages = Sequence[Stage | Round]


@dataclass(frozen=True)
class MirrorDescentPlan(Plan):
    """Plan of `MirrorDescent`; see `Plan` for the common fields.

    Attributes
    ----------
    geometry : Geometry
        The feasible set with its radius.
    mirror_map : MirrorMap
    gradient_clip : float
        c: bound on abs(dl/dz).
    l2_penalty : float
        Weight of norm(w)^2 / 2.
    stages : tuple of Stage, or of Round
        What runs, each stage from the result of the one before.
    first : FirstReleases
        What is released before the descent.
    draws_result : bool
        Whether the result is one of those of the stages, drawn uniformly and without looking at
        the data, and not the last one.
    """

    geometry: Geometry
    mirror_map: MirrorMap
    gradient_clip: float
    l2_penalty: float
    stages: tuple[Stage | Round, ...]
    first: FirstReleases
    draws_result: bool = False

    def result_number(self, stream: RandomStream) -> int:
        """The number of the result among those of the stages, one after the other."""
        n_results = sum(stage.n_results for stage in self.stages)
        return stream.integer(n_results) if self.draws_result else n_results - 1

    @property
    def data_norm(self) -> float | None:
        """B, the bound on the l2 norm of a scaled row."""
        return self.first.norm

    @property
    def bounded_set(self) -> Geometry | None:
        return self.geometry if self.first.units is None else None

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
