"""The first releases of the heavy-tail solver."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...data.rows import make_rows
from ...mechanisms import Gaussian, Laplace, Release
from ...randomness.stream import RandomStream
from ..base import Part, Problem, SolverData
from ..defaults import HEAVY_TAIL
from ..first_releases import Constant, Frame, constant_for_mean, mean_target
from .magnitudes import Magnitudes, MagnitudeSearch, scale_rows

__all__ = ["FirstMagnitudes", "Noise", "Units", "row_smoothness"]

Array = NDArray[np.float64]
Noise = Gaussian | Laplace

_TARGET_BOX = 2.0**100  # only keeps numbers finite: far beyond any useful clip


class Units(NamedTuple):
    """The releases about the features.

    Attributes
    ----------
    data : SolverData
        With rows in the released units.
    magnitudes : Magnitudes
    speedup : float
        Factor on the plan's learning rate.
    """

    data: SolverData
    magnitudes: Magnitudes
    speedup: float


@dataclass(frozen=True)
class FirstMagnitudes(Part):
    """The releases before the descent: scales, centres, intercept; None if not released.

    Attributes
    ----------
    problem : Problem
    features, target : MagnitudeSearch or None
        How scales and centres are released.
    row_norm : Gaussian, Laplace or None
        For the mean logarithm of the rows' norms.
    intercept : Gaussian, Laplace or None
        For the mean of the targets.
    target_clip : float
        Regression: bound on the centred and scaled targets in the intercept.
    """

    problem: Problem
    features: MagnitudeSearch | None
    target: MagnitudeSearch | None
    row_norm: Noise | None
    intercept: Noise | None
    target_clip: float

    @property
    def releases(self) -> tuple[Release, ...]:
        searches = [search for search in (self.features, self.target) if search is not None]
        out = [release for search in searches for release in search.releases]
        if self.intercept is not None:
            out.append(Release("mean target", self.intercept))
        if self.row_norm is not None:
            out.append(Release("mean log norm", self.row_norm))
        return tuple(out)

    def release_units(self, data: SolverData, stream: RandomStream) -> Units:
        """The features in released units; not where only an intercept is learned."""
        assert self.features is not None
        found = self.features.run(data, stream)
        scaled = data.map(_scaled, found)
        return Units(scaled, found, self._release_speedup(scaled, stream))

    def run(self, data: SolverData, stream: RandomStream) -> tuple[SolverData, Frame]:
        """Targets in released units, and the frame without its features."""
        center: Any = 0.0
        scale: Any = 1.0
        problem = self.problem
        if self.target is not None:
            found = self.target.run(data.map(_targets_as_rows), stream.substream("target"))
            is_single = problem.n_outputs == 1
            center, scale = (float(a[0]) if is_single else a for a in found)
        if problem.loss.task == "regression":
            data = data.map(_in_target_units, center, scale)
        constant = Constant(0.0)
        if self.intercept is not None:
            mean = mean_target(data, problem, self.target_clip)
            noisy = self.intercept.release(mean, stream.substream("intercept"))
            prior, variance = HEAVY_TAIL[problem.loss.task].target_prior, self.intercept.variance
            constant = constant_for_mean(problem, noisy, variance, prior, self.target_clip)
        frame = Frame(constant.offset, target_center=center, target_scale=scale)
        return data, replace(frame, class_weight=constant.class_weight)

    def _release_speedup(self, data: SolverData, stream: RandomStream) -> float:
        """Factor on the learning rate: the planned smoothness over that of the rows' norms."""
        if self.row_norm is None:
            return 1.0
        rules, d = HEAVY_TAIL[self.problem.loss.task], self.problem.n_features
        most = rules.row_norm_octaves
        mean = data.sum(_log_norm_sum, most) / data.n_samples
        released = self.row_norm.release(mean, stream)[0]
        found = float(np.clip(released, -most, most))
        smoothness = row_smoothness(d, rules.smoothness)
        return min(rules.largest_speedup, smoothness / row_smoothness(d, rules.smoothness, found))


def _scaled(data: SolverData, found: Magnitudes) -> SolverData:
    """Features in released units."""
    return SolverData(scale_rows(data.rows, found), data.y)


def _targets_as_rows(data: SolverData) -> SolverData:
    """The targets in the place of the features."""
    columns = data.y if data.y.ndim == 2 else data.y[:, None]
    return SolverData(make_rows(np.ascontiguousarray(columns), False, data.rows.scale), data.y)


def _in_target_units(data: SolverData, center: Any, scale: Any) -> SolverData:
    with np.errstate(over="ignore"):
        y = (data.y - center) / scale
    return SolverData(data.rows, np.clip(y, -_TARGET_BOX, _TARGET_BOX))


def _log_norm_sum(data: SolverData, most: float) -> Array:
    """Sum of the clipped logarithms of the rows' norms over sqrt(d), without the intercept."""
    norms = make_rows(data.rows.X, False).norms()
    octaves = np.log2(np.maximum(norms, 1e-300)) - math.log2(data.rows.n_columns) / 2
    return np.array([data.rows.without_empty(np.clip(octaves, -most, most)).sum()])


def row_smoothness(n_features: int, per_feature: float, octaves: float = 0.0) -> float:
    """About the top eigenvalue of the mean of [x, 1] [x, 1]^T, x too long by 2^octaves."""
    return per_feature * n_features * 4.0**octaves + 1
