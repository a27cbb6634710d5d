"""The plan of mirror descent and its stages."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...geometry import Geometry, MirrorMap
from ...mechanisms import Gaussian, GeneralizedGaussian, Release
from ...randomness.stream import RandomStream
from ..base import Part, Plan
from ..first_releases import FirstReleases

__all__ = ["MirrorDescentPlan", "Round", "Stage", "VectorNoise"]

VectorNoise = Gaussian | GeneralizedGaussian


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

    noises: tuple[VectorNoise, ...]
    records: tuple[int, int] | None
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
    def n_results(self) -> int:
        """The points among which the plan's result may be drawn: its last."""
        return 1

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

    def step_size(self, t: int, energy: float) -> float:
        """Step t = 0, 1, ..., after gradients whose squared dual norms sum to `energy`."""
        step = self.learning_rate
        if self.reach < math.inf:
            step = min(step, self.reach / math.sqrt(max(self.noise_energy, energy)))
        if self.strong_convexity > 0:
            step = min(step, 2 / (self.strong_convexity * (t + 2)))
        return step

    def weight(self, t: int) -> float:
        """Weight of the point after step t in the result, up to a factor."""
        if self.strong_convexity > 0:
            return t + 1.0
        return float(t >= self.n_steps // 2)


@dataclass(frozen=True)
class Round(Part):
    """Frank-Wolfe steps t = 0, 1, ... of weight 1 / sqrt(t + 1), each on a batch of its own.

    Attributes
    ----------
    noises : tuple of mechanisms
        Those of the steps.
    records : tuple (start, stop)
        Slice of the secret order of the records.
    n_steps : int
    batches : tuple of int
        Their sizes; records that are left over are not used.
    largest_terms : tuple of float
        Clips of what a record adds to the estimate, over the norm of its row.
    """

    noises: tuple[VectorNoise, ...]
    records: tuple[int, int]
    n_steps: int
    batches: tuple[int, ...]
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
