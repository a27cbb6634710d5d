"""Runs the stages of a plan of mirror descent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..._progress import advance, steps
from ...randomness.stream import RandomStream
from ..batches import Records
from .stages import MirrorDescentPlan, Round, Stage, VectorNoise

__all__ = ["stage_points"]

Array = NDArray[np.float64]


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


def stage_points(
    part: Records,
    coef: Array,
    stage: Stage | Round,
    plan: MirrorDescentPlan,
    stream: RandomStream,
) -> Iterator[Array]:
    """The points of a stage from `coef` that may be the plan's result; the last starts the next."""
    if isinstance(stage, Round):
        yield from _round(part, coef, stage, plan, stream)
    else:
        run = _frank_wolfe if stage.batch else _descend
        yield run(part, coef, stage, plan, stream)


def _descend(
    part: Records,
    coef: Array,
    stage: Stage,
    plan: MirrorDescentPlan,
    stream: RandomStream,
) -> Array:
    """Weighted mean of the points of a descent from `coef`."""
    (noise,) = stage.noises
    gradient_at = _gradient_source(part, noise, stream)
    mirror_map, start = plan.mirror_map, coef
    center = start if stage.anchor > 0 else None
    total, weights, energy = np.zeros(coef.size), 0.0, 0.0
    for t in steps(range(stage.n_steps)):
        gradient = noise.release(gradient_at(coef), stream)
        if plan.l2_penalty > 0:
            gradient = gradient + plan.l2_penalty * coef
        if center is not None:
            gradient = gradient + stage.anchor * mirror_map.gradient(coef, center)
        energy += mirror_map.dual_norm(gradient) ** 2
        step = stage.step_size(t, energy)
        coef = mirror_map.step(coef, gradient, step, center, stage.within)
        weight = stage.weight(t)
        total += weight * coef
        weights += weight
    return total / weights


def _frank_wolfe(
    part: Records,
    coef: Array,
    stage: Stage,
    plan: MirrorDescentPlan,
    stream: RandomStream,
) -> Array:
    """Last point of a pass over disjoint batches with a recursive gradient estimate."""
    first, later = stage.noises
    estimate = np.zeros(coef.size)
    before, start = coef, 0
    for t in range(stage.n_steps + 1):
        stop = start + (stage.batch if t else stage.first_batch)
        batch = part.part(slice(start, stop))
        if t == 0:
            estimate = first.release(batch.mean_gradient(coef), stream)
        else:
            change = batch.mean_change(coef, before, stage.largest_change)
            estimate = estimate + later.release(change, stream)
        target = plan.geometry.extreme_point(estimate + plan.l2_penalty * coef)
        before, coef = coef, coef + stage.learning_rate * (target - coef)
        start = stop
        advance(int(t > 0))  # the start is no step of the plan
    return coef


def _round(
    part: Records,
    coef: Array,
    stage: Round,
    plan: MirrorDescentPlan,
    stream: RandomStream,
) -> Iterator[Array]:
    """The points of a pass whose estimate forgets: v_t = (1 - eta_t) v_{t-1} + what a batch adds.

    That is the mean over the batch of the gradients less (1 - eta_t) times those at the last point.
    """
    estimate, before, start = np.zeros(coef.size), coef, 0
    for t in steps(range(stage.n_steps)):
        stop = start + stage.batches[t]
        weight, batch = stage.weight(t), part.part(slice(start, stop))
        term = batch.mean_change(coef, before, stage.largest_terms[t], 1 - weight)
        estimate = (1 - weight) * estimate + stage.noises[t].release(term, stream)
        target = plan.geometry.extreme_point(estimate + plan.l2_penalty * coef)
        before, coef, start = coef, coef + weight * (target - coef), stop
        yield coef
