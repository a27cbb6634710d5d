r"""Intercepts with which the mean probabilities of a model are the released frequencies.

Few noisy steps leave the intercepts of rare classes anywhere, and clipped derivatives of unequal
classes push them. The released frequencies and the slopes tell them as well, if predictions are
about normal about their intercepts: nothing else is released for it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp, ndtri, softmax

from .._types import Array
from .base import Problem
from .learned_units import Units
from .statistics import TINY

_N_POINTS = 200


def tells_levels(problem: Problem, units: Units) -> bool:
    """Whether frequencies were released of which the means of probabilities can be had."""
    is_told = problem.loss.task == "classification" and units.level_noise < math.inf
    return is_told and not (problem.is_wide or problem.has_weights)


def normal_points(slopes: Array, spread: float) -> Array:
    """Normal predictions of all classes, without intercepts; of two classes, 0 and the second's.

    Slopes of shape (d, K) of columns that are alike; the spread is the root mean square of the
    predictions, less their mean over several classes.
    """
    k = slopes.shape[1]
    if k == 1:
        return spread * np.outer(ndtri((np.arange(_N_POINTS) + 0.5) / _N_POINTS), [0.0, 1.0])
    slopes = slopes - slopes.mean(axis=1, keepdims=True)
    # directions of any number of classes, the same in all fits
    points = np.random.default_rng(0).standard_normal((_N_POINTS, len(slopes))) @ slopes
    size = math.sqrt(float((points**2).sum()) / _N_POINTS)
    return np.vstack((points, -points)) * (spread / max(size, TINY))


def levels(problem: Problem, units: Units, points: Array) -> Array:
    """What intercepts are above the constant prediction, shape (K,), for predictions about them.

    Weights of classes shift the intercepts of a model without them by their logarithms.
    """
    offset: Any = units.frame.offset
    if problem.n_outputs == 1:
        offset = np.array([0.0, offset])
    weights: Any = units.frame.class_weight
    weights = problem.class_weight if weights is None else weights
    shift = 0.0 if weights is None else np.log(np.maximum(weights, 1e-12))
    frequencies = softmax(offset - shift)

    def loss(at: Array) -> tuple[float, Array]:
        mean = softmax(points + at, axis=1).mean(axis=0)
        return logsumexp(points + at, axis=1).mean() - frequencies @ at, mean - frequencies

    found = (
        minimize(loss, np.log(frequencies), jac=True, method="BFGS", tol=1e-8).x + shift - offset
    )
    return found[1:] - found[0] if problem.n_outputs == 1 else found - found.mean()


def level_variance(problem: Problem, units: Units, slopes: Array) -> Array:
    """Variance of `levels` by the noise in the frequencies and in the centre of the rows."""
    offset = units.frame.offset
    frequencies = softmax(offset) if problem.n_outputs > 1 else softmax([0.0, offset])[1:]
    noise = math.sqrt(units.level_noise)
    unit = np.maximum(frequencies, noise) * np.maximum(1 - frequencies, noise)
    return np.asarray((noise / unit) ** 2 + units.center_variance(slopes))
