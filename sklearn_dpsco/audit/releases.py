r"""An audit of the releases of a plan of Gaussian noise, one run after the other.

A run on one table is followed by a replay on the other with the same answers, so that of every
release the difference of the two values is known. Along it, the noise over the stated scale is
:math:`N(0, \kappa^2)`, with :math:`\kappa = 1` if the plan is right (doc/privacy, section 9.2).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy.optimize import brentq

from .._types import Array
from ..privacy.budget import PrivacyBudget, mu_epsilon
from ..randomness.stream import RandomStream
from ..solvers.base import Plan
from .neighbours import Pair
from .outcomes import AuditResult
from .replay import Run, mechanisms, replay

_CLOSE = 0.9  # a bound this close to its estimate has little left to gain
_LEAST_CHANGE = 0.1  # of the sensitivity: releases that change less say nothing of the cost
_SMALLEST, _LARGEST = 1e-9, 1e9  # factors on the noise that are told apart
# how many times too large the scale under test may be: fine where errors are small
_FACTORS = np.array([*2 ** (np.arange(1, 9) / 8), 4.0, 8.0, 16.0, 64.0, 256.0, 65536.0])
_LOG_FACTORS = np.log(_FACTORS)


def evidence(log_scale: float, n_draws: int, energy: float, alpha: float) -> float:
    r"""How far draws of :math:`N(0, \kappa^2)` rule a scale out; from 0 on, they do.

    `energy` is the sum of their squares. Returned is log(alpha m), m the mean of likelihood ratios
    for several factors on the scale, which grows with the scale. At the true one m is a martingale
    of mean 1: it ever exceeds 1 / alpha with probability at most alpha (doc/privacy, section 9.2).
    """
    power = energy / (2 * math.exp(2 * log_scale))
    ratios = n_draws * _LOG_FACTORS - power * (_FACTORS**2 - 1)
    top = float(ratios.max())
    return top + math.log(float(np.exp(ratios - top).mean()) * alpha)


def upper_bound(*seen: Any) -> float:
    """Upper confidence bound on kappa, valid at any time: the least scale that is ruled out."""
    low, high = math.log(_SMALLEST), math.log(_LARGEST)
    if evidence(high, *seen) < 0:
        return math.inf
    if evidence(low, *seen) >= 0:
        return _SMALLEST
    return math.exp(float(brentq(evidence, low, high, args=seen))) * (1 + 1e-9)


def _transcript(plan: Plan, pair: Pair, stream_of: Callable[[], Any]) -> tuple[float, float, Array]:
    """Of a run and its replay on the other table: what it tells of which is which.

    Returns the log-likelihood ratio of the run's table to the other one and mu^2 of the releases,
    both by the stated noise, and the noise along each difference, over the stated scale.
    """
    run = Run(0, "own")
    other_run = Run(0, "own", answers=run.answers)
    for data, of_table in zip(pair, (run, other_run), strict=True):
        replay(plan, data, of_table, stream_of())
    loss, cost, draws = 0.0, 0.0, []
    for name, mechanism in mechanisms(plan).items():
        first, second = run.values[name], other_run.values[name]
        if [v.shape for v in first] != [v.shape for v in second]:
            raise ValueError(
                f"how often {name} is released depends on the data: see check_sensitivity"
            )
        scale = mechanism.scale
        for value, other, answer in zip(first, second, run.answers[name], strict=True):
            change, noise = (other - value) / scale, (answer - value) / scale
            size = float(np.linalg.norm(change))
            cost += size**2
            loss += size**2 / 2 - float(change @ noise)
            if size * scale >= _LEAST_CHANGE * mechanism.sensitivity:
                draws.append(float(change @ noise) / size)
    return loss, cost, np.array(draws)


def audit_releases(
    plan: Plan, pair: Pair, n_trials: int, confidence: float, root: RandomStream
) -> AuditResult:
    """See `audit_plan` with ``statistic="releases"``."""
    guarantee = plan.guarantee
    if not guarantee.delta > 0 or any(
        m.noise_multiplier is None or m.batches is not None or m.order != 2
        for m in mechanisms(plan).values()
    ):
        raise ValueError("statistic='releases' needs a plan whose noise is Gaussian throughout")
    claim = PrivacyBudget(guarantee.epsilon, guarantee.delta).mu
    n_draws, energy, largest = 0, 0.0, 0.0
    scores: tuple[list[float], list[float]] = ([], [])
    for k in range(2 * n_trials):
        side = k % 2
        tables = pair if side == 0 else (pair[1], pair[0])
        loss, cost, draws = _transcript(plan, tables, partial(root.substream, side, k // 2))
        scores[side].append(loss if side else -loss)  # of the neighbour against the table
        n_draws, energy = n_draws + draws.size, energy + float(draws @ draws)
        seen = n_draws, energy, 1 - confidence
        largest = max(largest, math.sqrt(cost))
        if n_draws:
            estimate = math.sqrt(energy / n_draws)
            scales = np.clip((largest / claim, estimate / _CLOSE), _SMALLEST, _LARGEST)
            if any(evidence(math.log(scale), *seen) >= 0 for scale in scales):
                break
    bound = largest / upper_bound(*seen)
    bounds = 0.0, mu_epsilon(bound, guarantee.delta), bound
    of_tables = np.array(scores[0]), np.array(scores[1])
    claimed = guarantee.epsilon, guarantee.delta
    return AuditResult(*claimed, *bounds, "releases", confidence, *of_tables)
