"""Mirror descent in proximally guided rounds (BGM21, Algorithm 2; doc/privacy, 8)."""

from __future__ import annotations

import itertools
import math

from ..._types import Auto, MirrorMapName
from ...geometry import Geometry
from ...losses import Loss
from ...privacy.budget import Allowance, PrivacyBudget
from .. import base, defaults
from ..mirror_descent.solver import Facts, MirrorDescent
from ..mirror_descent.stages import Stage

__all__ = ["Proximal"]


class Proximal(MirrorDescent):
    """Mirror descent in rounds, for losses that are not convex (BGM21, Algorithm 2).

    Each round, on a part of the records of its own, minimizes the loss plus a proximal term about
    the last round's result that makes it strongly convex; the result of a round drawn uniformly is
    returned (of a convex loss, the last): near a stationary point in theory, and less accurate
    than `NoisyMD` on tables.

    Parameters
    ----------
    max_iter : "auto" or int in [1, 1e9], default="auto"
        Number of steps of each round. "auto" is that of `NoisyMD` over the number of rounds, but
        16 at least.
    n_phases : "auto" or int in [1, 100], default="auto"
        Rounds, on equal parts; "auto" balances their number and the noise of each.
    n_restarts : "auto" or int in [1, 100], default="auto"
        As in `NoisyMD`.
    mirror_map : {"auto", "power", "euclidean"}, default="auto"
        As in `NoisyMD`.
    learning_rate : "auto" or float in [1e-50, 1e50], default="auto"
        The largest step; "auto" follows from the noise.
    gradient_clip, data_norm, l2_penalty
        As in `NoisyMD`.
    """

    form = "proximal"
    is_anchored = may_draw = True

    def __init__(
        self,
        *,
        max_iter: int | Auto = "auto",
        n_phases: int | Auto = "auto",
        n_restarts: int | Auto = "auto",
        mirror_map: MirrorMapName = "auto",
        learning_rate: float | Auto = "auto",
        gradient_clip: float | Auto = "auto",
        data_norm: float | Auto = "auto",
        l2_penalty: float = 0.0,
    ) -> None:
        self._store(locals())

    def _check(
        self, loss: Loss, feasible_set: Geometry | type[Geometry], budget: PrivacyBudget, units: str
    ) -> None:
        if math.isinf(loss.weak_convexity):
            raise ValueError(
                "solver='proximal' needs a convex or weakly convex loss: declare `is_convex`, or a "
                f"finite `smoothness` or `weak_convexity`; got {loss!r}"
            )
        super()._check(loss, feasible_set, budget, units)

    def _fits_run(self, size: int) -> bool:
        return size >= (self.n_phases or 1)

    def _run_stages(self, facts: Facts, run: tuple[int, int], left: Allowance) -> list[Stage]:
        """Rounds on slices of equal size."""
        start, stop = run
        n = stop - start
        n_rounds = self.n_phases or _n_rounds(facts, n, left)
        affordable = defaults.affordable_steps(facts.problem, facts.rules)
        n_steps = self.max_iter or max(facts.rules.round_steps, affordable // n_rounds)
        anchor = 2 * _curvature(facts)
        most = self.learning_rate or math.inf
        ends = [start + n * k // n_rounds for k in range(n_rounds + 1)]
        return [
            facts.anchored_stage(
                (low, high), facts.noise(high - low, left, n_steps), n_steps, anchor, most
            )
            for low, high in itertools.pairwise(ends)
        ]


def _curvature(facts: Facts) -> float:
    """The weak convexity, or that of a term which is the loss's variation over the set.

    Below the latter a proximal term would hardly hold a model.
    """
    return max(facts.weak_convexity, facts.lipschitz / facts.diameter)


def _n_rounds(facts: Facts, n: int, left: Allowance) -> int:
    """R of BGM21, Theorem 16, with the noise of the plan in the place of the paper's."""
    kappa = 1 / (facts.mirror_map.exponent(facts.problem.size) - 1)
    ratio = facts.diameter * _curvature(facts) / facts.lipschitz
    single = facts.noise_size(facts.noise(n, left, 1)) / facts.lipschitz
    n_rounds = min(math.sqrt(n * ratio / kappa), (ratio / single**2) ** (1 / 3))
    return max(1, min(int(n_rounds), base.MOST_PHASES, n))
