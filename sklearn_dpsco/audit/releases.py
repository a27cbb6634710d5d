r"""An audit of the releases of a plan of Gaussian noise, one run after the other.

A run on one table is followed by a replay on the other with the same answers. So two things
are known of every release: the difference :math:`\delta_t` of the two values, and the noise.
Along :math:`\delta_t` the noise, over the scale :math:`\sigma_t` that the plan states, is
:math:`u_t \sim N(0, \kappa^2)`, with :math:`\kappa = 1` if the plan is right. The releases
of a run then cost :math:`\mu^2 = \sum_t \|\delta_t\|^2 / (\kappa \sigma_t)^2`
(doc/privacy, section 9.2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from ..privacy.budget import PrivacyBudget
from ..randomness.stream import RandomStream
from ..solvers.base import Plan, map_mechanisms
from .neighbours import Pair
from .outcomes import AuditResult, epsilon_of_mu
from .replay import mechanisms

__all__ = ["NoiseScale", "audit_releases"]

Array = NDArray[np.float64]

_CLOSE = 0.9  # a bound this close to its estimate has little left to gain
_LEAST_CHANGE = 0.1  # of the sensitivity: releases that change less say nothing of the cost
_SMALLEST, _LARGEST = 1e-9, 1e9  # factors on the noise that are told apart
# how many times too large the scale under test may be: fine where errors are small
_FACTORS = np.array([*2 ** (np.arange(1, 9) / 8), 4.0, 8.0, 16.0, 64.0, 256.0, 65536.0])
_LOG_FACTORS = np.log(_FACTORS)


@dataclass
class NoiseScale:
    r"""Upper confidence bound on kappa from draws of :math:`N(0, \kappa^2)`, valid at any time.

    For a factor g > 1 the likelihood ratio of :math:`N(0, (\kappa_0 / g)^2)` against
    :math:`N(0, \kappa_0^2)` after N draws of sum of squares S is
    :math:`\exp(N \log g - S (g^2 - 1) / (2 \kappa_0^2))`: a martingale of mean 1 if
    :math:`\kappa = \kappa_0`. So is the mean over several g, which exceeds 1 / alpha at any
    time with probability at most alpha (Ville). It grows with :math:`\kappa_0`; the bound is
    where it is 1 / alpha.
    """

    alpha: float
    n_draws: int = 0
    energy: float = 0.0

    def add(self, draws: Array) -> None:
        self.n_draws += draws.size
        self.energy += float(draws @ draws)

    @property
    def estimate(self) -> float:
        return math.sqrt(self.energy / self.n_draws) if self.n_draws else math.inf

    def rules_out(self, scale: float) -> bool:
        """Whether the draws are too small for this scale, and so for every larger one."""
        return self._evidence(math.log(scale)) >= 0

    @property
    def upper_bound(self) -> float:
        """The least scale that is ruled out, infinite while there is none."""
        low, high = math.log(_SMALLEST), math.log(_LARGEST)
        if not self.rules_out(_LARGEST):
            return math.inf
        if self.rules_out(_SMALLEST):
            return _SMALLEST
        return math.exp(float(brentq(self._evidence, low, high))) * (1 + 1e-9)

    def _evidence(self, log_scale: float) -> float:
        """Logarithm of alpha times the mean likelihood ratio."""
        power = self.energy / (2 * math.exp(2 * log_scale))
        ratios = self.n_draws * _LOG_FACTORS - power * (_FACTORS**2 - 1)
        top = float(ratios.max())
        return top + math.log(float(np.exp(ratios - top).mean()) * self.alpha)


@dataclass(eq=False)
class _Witness:
    """Stands for a mechanism: the first run gets its true answers, the second one the same."""

    mechanism: Any
    answers: list[Array] = field(default_factory=list)
    values: list[list[Array]] = field(default_factory=list)  # of each run

    def __getattr__(self, name: str) -> Any:
        return getattr(self.mechanism, name)

    def release(self, value: Array, stream: RandomStream) -> Array:
        # also in the second run, so that both read the same words for what follows
        answer = self.mechanism.release(value, stream)
        values = self.values[-1]
        values.append(np.array(value, dtype=np.float64))
        if len(self.answers) < len(values):
            self.answers.append(answer)
        return self.answers[len(values) - 1].copy()


def _transcript(
    plan: Plan, pair: Pair, root: RandomStream, names: tuple[int, int]
) -> tuple[float, float, Array]:
    """Of a run and its replay on the other table: what it tells of which is which.

    Returns the log-likelihood ratio of the run's table to the other one and mu^2 of the releases,
    both by the stated noise, and the noise along each difference, over the stated scale.
    """
    witnesses: dict[str, _Witness] = {}

    def witness(name: str, mechanism: Any) -> _Witness:
        return witnesses.setdefault(name, _Witness(mechanism))

    watched = map_mechanisms(plan, witness)
    for data in pair:
        for w in witnesses.values():
            w.values.append([])
        watched.run(data, root.substream(*names))
    loss, cost, draws = 0.0, 0.0, []
    for name, w in witnesses.items():
        first, second = w.values
        if [v.shape for v in first] != [v.shape for v in second]:
            raise ValueError(
                f"how often {name} is released depends on the data: see check_sensitivity"
            )
        for value, other, answer in zip(first, second, w.answers, strict=True):
            change, noise = (other - value) / w.scale, (answer - value) / w.scale
            size = float(np.linalg.norm(change))
            cost += size**2
            loss += size**2 / 2 - float(change @ noise)
            if size * w.scale >= _LEAST_CHANGE * w.sensitivity:
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
    noise, largest = NoiseScale(1 - confidence), 0.0
    scores: tuple[list[float], list[float]] = ([], [])
    for k in range(2 * n_trials):
        side = k % 2
        tables = pair if side == 0 else (pair[1], pair[0])
        loss, cost, draws = _transcript(plan, tables, root, (side, k // 2))
        scores[side].append(loss if side else -loss)  # of the neighbour against the table
        noise.add(draws)
        largest = max(largest, math.sqrt(cost))
        if noise.n_draws and any(
            noise.rules_out(min(max(scale, _SMALLEST), _LARGEST))
            for scale in (largest / claim, noise.estimate / _CLOSE)
        ):
            break
    bound = largest / noise.upper_bound
    bounds = 0.0, epsilon_of_mu(bound, guarantee.delta), bound
    of_tables = np.array(scores[0]), np.array(scores[1])
    claimed = guarantee.epsilon, guarantee.delta
    return AuditResult(*claimed, *bounds, "releases", confidence, *of_tables)
