"""Mirror descent on disjoint slices, each from the result of the one before (doc/privacy, 4, 8)."""

from __future__ import annotations

import itertools
import math

from ..._types import Auto, MirrorMapName
from ...geometry import Geometry
from ...losses import Loss
from ...privacy.budget import Allowance, PrivacyBudget
from .. import defaults
from ..mirror_descent.solver import Facts, MirrorDescent
from ..mirror_descent.stages import Stage
from ..slices import slices

__all__ = ["Localized", "Proximal"]


class Localized(MirrorDescent):
    """Mirror descent in phases on disjoint parts of the records (AFKT21, Algorithms 2 and 6).

    Each phase minimizes the loss plus a regularizer about the last phase's result, within a ball
    that shrinks. Less accurate than `NoisyMD` unless n is in the tens of thousands.

    Parameters
    ----------
    max_iter : "auto" or int in [1, 1e9], default="auto"
        Number of steps of each phase.
    n_phases : "auto" or int in [1, 100], default="auto"
        Each has about half of the records of the one before. "auto" is log2(n + 1), rounded down
        and at most 6.
    n_restarts : "auto" or int in [1, 100], default="auto"
        As in `NoisyMD`; "auto" is 1, or with an `l2_penalty` ceil(log2 log2 n), which makes use of
        the strong convexity.
    mirror_map : {"auto", "power", "euclidean"}, default="auto"
        As in `NoisyMD`.
    learning_rate : "auto" or float in [1e-50, 1e50], default="auto"
        Eta of the first phase, which falls to a quarter from phase to phase; "auto" is a function
        of n, d and the noise.
    gradient_clip, data_norm, l2_penalty
        As in `NoisyMD`.
    """

    form = "localized"
    is_anchored = needs_restarts = True

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

    def _fits_run(self, size: int) -> bool:
        phases = slices(size, self.n_phases or 1, growing=False)
        return all(low < high for low, high in phases)

    def _run_stages(self, facts: Facts, run: tuple[int, int], left: Allowance) -> list[Stage]:
        """Phase i = 0, 1, ...: about 2^-i of the records, and an eta that falls by 4^-i.

        AFKT21 let it fall by 16^-i, as their phases have a share of the budget that halves.
        """
        start, n = run[0], run[1] - run[0]
        n_phases = self.n_phases or min(facts.rules.most_phases, int(math.log2(n + 1)))
        n_steps = self.max_iter or defaults.affordable_steps(facts.problem, facts.rules)
        eta = self.learning_rate
        if eta is None:  # AFKT21, Theorem 13: D / L min(1 / sqrt(n), L / (n |noise|))
            single = facts.noise_size(facts.noise(n, left, 1))
            reach = max(facts.reach, 1e-50)  # 0 for a set of one point
            eta = reach / facts.lipschitz * min(1 / math.sqrt(n), facts.lipschitz / (n * single))
        stages = []
        for i, (low, high) in enumerate(slices(n, n_phases, growing=False)):
            noise = facts.noise(high - low, left, n_steps)
            horizon = eta * 4.0**-i * (high - low)
            part = (start + low, start + high)
            stages.append(facts.anchored_stage(part, noise, n_steps, 2 / horizon))
        return stages


class Proximal(Localized):
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
    may_draw, needs_restarts = True, False

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
        start, n = run[0], run[1] - run[0]
        # Of the loss, or of a term which is its variation over the set: below the latter a
        # proximal term would hardly hold a model.
        curvature = max(facts.weak_convexity, facts.lipschitz / facts.diameter)
        n_rounds = self.n_phases
        if n_rounds is None:  # R of BGM21, Theorem 16, with this noise in the place of the paper's
            kappa = 1 / (facts.mirror_map.exponent(facts.problem.size) - 1)
            ratio = facts.diameter * curvature / facts.lipschitz
            single = facts.noise_size(facts.noise(n, left, 1)) / facts.lipschitz
            best = min(math.sqrt(n * ratio / kappa), (ratio / single**2) ** (1 / 3))
            n_rounds = max(1, min(int(best), defaults.MOST_PHASES, n))
        affordable = defaults.affordable_steps(facts.problem, facts.rules)
        n_steps = self.max_iter or max(facts.rules.round_steps, affordable // n_rounds)
        anchor, most = 2 * curvature, self.learning_rate or math.inf
        stages = []
        ends = [start + n * k // n_rounds for k in range(n_rounds + 1)]
        for low, high in itertools.pairwise(ends):
            noise = facts.noise(high - low, left, n_steps)
            stages.append(facts.anchored_stage((low, high), noise, n_steps, anchor, most))
        return stages
