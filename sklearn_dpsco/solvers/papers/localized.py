"""Mirror descent in phases on disjoint slices (AFKT21, Algorithms 2 and 6; doc/privacy, 4)."""

from __future__ import annotations

import math

from ..._types import Auto, MirrorMapName
from ...privacy.budget import Allowance
from .. import defaults
from ..mirror_descent.solver import Facts, MirrorDescent
from ..mirror_descent.stages import Stage
from ..slices import slices

__all__ = ["Localized"]


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
        start, stop = run
        n = stop - start
        n_phases = self.n_phases or min(facts.rules.most_phases, int(math.log2(n + 1)))
        n_steps = self.max_iter or defaults.affordable_steps(facts.problem, facts.rules)
        eta = self.learning_rate or _first_step(facts, n, left)
        stages = []
        for i, (low, high) in enumerate(slices(n, n_phases, growing=False)):
            noise = facts.noise(high - low, left, n_steps)
            horizon = eta * 4.0**-i * (high - low)
            part = (start + low, start + high)
            stages.append(facts.anchored_stage(part, noise, n_steps, 2 / horizon))
        return stages


def _first_step(facts: Facts, n: int, left: Allowance) -> float:
    """Eta of AFKT21, Theorem 13: D / L min(1 / sqrt(n), L / (n |noise|))."""
    single = facts.noise_size(facts.noise(n, left, 1))
    reach = max(facts.reach, 1e-50)  # 0 for a set of one point
    return reach / facts.lipschitz * min(1 / math.sqrt(n), facts.lipschitz / (n * single))
