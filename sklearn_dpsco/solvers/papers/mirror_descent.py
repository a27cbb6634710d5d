"""Mirror descent and stochastic Frank-Wolfe on disjoint slices (doc/privacy, 3.5, 4 and 8)."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..._checks import auto_or, check_size
from ..._types import Auto, MirrorMapName
from ...geometry import AnySet
from ...losses import Loss
from ...privacy.budget import PrivacyBudget
from .. import base, defaults
from ..mirror_descent import Facts, Pass, SetDescent, Slice, Stage


@dataclass(kw_only=True, repr=False, eq=False)
class Localized(SetDescent):
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

    n_phases: int | Auto = "auto"
    mirror_map: MirrorMapName = "auto"  # of those that have a centre

    def _fits_run(self: Any, size: int) -> bool:
        phases = base.doubling_slices(size, self.n_phases or 1, growing=False)
        return all(low < high for low, high in phases)

    def _run_stages(self: Any, facts: Facts, run: Slice) -> list[Stage]:
        """Phase i = 0, 1, ...: about 2^-i of the records, and an eta that falls by 4^-i.

        AFKT21 let it fall by 16^-i, as their phases have a share of the budget that halves.
        """
        start, n = run[0], run[1] - run[0]
        n_phases = self.n_phases or min(facts.rules.most_phases, int(math.log2(n + 1)))
        eta = self.learning_rate
        if eta is None:  # AFKT21, Theorem 13: D / L min(1 / sqrt(n), L / (n |noise|))
            single = facts.noise(n).expected_norm(facts.dual_exponent)
            reach = max(facts.reach, 1e-50)  # 0 for a set of one point
            eta = reach / facts.lipschitz * min(1 / math.sqrt(n), facts.lipschitz / (n * single))
        stages = []
        for i, (low, high) in enumerate(base.doubling_slices(n, n_phases, growing=False)):
            part, horizon = (start + low, start + high), eta * 4.0**-i * (high - low)
            stages.append(facts.anchored_stage(part, facts.n_steps, 2 / horizon))
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

    def _check(self, loss: Loss, feasible_set: AnySet, budget: PrivacyBudget, units: str) -> None:
        if math.isinf(loss.weak_convexity):
            raise ValueError(
                "solver='proximal' needs a convex or weakly convex loss: declare `is_convex`, or a "
                f"finite `smoothness` or `weak_convexity`; got {loss!r}"
            )
        super()._check(loss, feasible_set, budget, units)

    def _fits_run(self: Any, size: int) -> bool:
        return size >= (self.n_phases or 1)

    def _run_stages(self: Any, facts: Facts, run: Slice) -> list[Stage]:
        """Rounds on slices of equal size."""
        start, n = run[0], run[1] - run[0]
        # Of the loss, or of a term which is its variation over the set: below the latter a
        # proximal term would hardly hold a model.
        curvature = max(facts.weak_convexity, facts.lipschitz / facts.diameter)
        n_rounds = self.n_phases
        if n_rounds is None:  # R of BGM21, Theorem 16, with this noise in the place of the paper's
            kappa = 1 / (facts.power - 1)
            ratio = facts.diameter * curvature / facts.lipschitz
            single = facts.noise(n).expected_norm(facts.dual_exponent) / facts.lipschitz
            best = min(math.sqrt(n * ratio / kappa), (ratio / single**2) ** (1 / 3))
            n_rounds = max(1, min(int(best), base.MOST_PHASES, n))
        affordable = defaults.affordable_steps(facts.problem, facts.rules)
        n_steps = self.max_iter or max(facts.rules.round_steps, affordable // n_rounds)
        anchor, most = 2 * curvature, self.learning_rate or math.inf
        parts = itertools.pairwise(start + n * k // n_rounds for k in range(n_rounds + 1))
        return [facts.anchored_stage(part, n_steps, anchor, most) for part in parts]


class NoisySFW(SetDescent):
    """One pass of stochastic Frank-Wolfe (BGN21, Algorithm 3; BGM21, Algorithm 6), p <= 2.

    Every step corrects a noisy estimate of the gradient by a batch of fresh records. For a loss
    that is not convex in rounds of growing length, whose result is drawn from all points, and
    whose steps are their own. Less accurate than `NoisyMD` unless n is in the tens of thousands.

    Parameters
    ----------
    max_iter : "auto" or int in [1, 1e9], default="auto"
        Number of steps. Must be "auto", like `learning_rate`, for a loss that is not convex.
    n_restarts : "auto" or int in [1, 100], default="auto"
        As in `Localized`.
    mirror_map : {"auto", "power", "euclidean", "entropy"}, default="auto"
        In whose dual norm the noise is measured; as in `NoisyMD`.
    learning_rate : "auto" or float in [1e-50, 1], default="auto"
        Weight of the new point; "auto" is a function of n, d and the noise.
    gradient_clip, data_norm, l2_penalty
        As in `NoisyMD`.
    """

    form = "noisy-sfw"
    may_draw = needs_restarts = steps_to_boundary = True
    # a Frank-Wolfe step is a weight
    checks = {"learning_rate": partial(auto_or, check_size, high=1)}

    def _check(self, loss: Loss, feasible_set: AnySet, budget: PrivacyBudget, units: str) -> None:
        p = float(getattr(feasible_set, "p", 1.0))
        if p > 2:
            raise ValueError(
                f"solver='noisy-sfw' needs p <= 2, got p={p:g}: use 'noisy-md' or 'localized'"
            )
        for name in ("max_iter", "learning_rate"):
            if (value := getattr(self, name)) is not None and not loss.is_convex:
                raise ValueError(
                    f"{name} must be 'auto' with solver='noisy-sfw' and a loss that is not "
                    f"convex, whose rounds have steps of their own; got {value!r}"
                )
        super()._check(loss, feasible_set, budget, units)

    def _fits_run(self: Any, size: int) -> bool:
        return size > (self.max_iter or 1)  # one batch more than steps

    def _run_stages(self, facts: Facts, run: Slice) -> list[Pass]:
        """The best number of batches among 1, 2, 4, ... up to about the root of n."""
        if not facts.problem.loss.is_convex:
            return _growing_rounds(facts, run)
        n = run[1] - run[0]
        counts = [2**k for k in range(1 + int(math.log2(math.isqrt(n))))]
        if self.max_iter is not None:
            counts = [self.max_iter]
        plans = [self._stage(facts, run, n_steps) for n_steps in counts]
        return [min(plans, key=lambda plan: plan[1])[0]]

    def _stage(self: Any, facts: Facts, run: Slice, n_steps: int) -> tuple[Pass, float]:
        """A pass in `n_steps` steps, and its error from noise plus that from few steps."""
        n = run[1] - run[0]
        batch = max(1, (n // 2) // n_steps)
        first = n - n_steps * batch
        eta = self.learning_rate or min(1.0, max(1.0, math.log(n)) / (2 * n_steps))
        first_noise, direction = facts.noise(first), facts.rules.direction
        q = facts.dual_exponent
        for is_final in (self.learning_rate is not None, True):
            # the clip of a derivative's change, its noise, and the noise of the last estimate
            change = min(2 * facts.clip, facts.problem.loss.smoothness * eta * facts.largest_move)
            change = max(change, 1e-6 * facts.clip)  # a linear loss has none
            noise = facts.noise(batch, clip=change)
            walk = noise.expected_norm(q) * math.sqrt(n_steps)
            error = math.hypot(first_noise.expected_norm(q), walk) / facts.lipschitz
            if is_final or error <= direction:
                break
            eta *= direction / error  # shorter steps where the direction is mostly noise
        made = Pass((first_noise, noise), (first, batch), (None, change), run, n_steps, eta)
        return made, error + 1 / n_steps


def _growing_rounds(facts: Facts, run: Slice) -> list[Pass]:
    """Rounds r = 0, 1, ... of 2^r steps, step t on floor(b / (t + 1)) records.

    Their number is the best by the error of the estimate in the last round, from noise and from the
    variation of the records, plus that of few steps.
    """
    start, stop = run

    def used(b: int, count: int) -> int:
        return sum(b // (t + 1) for r in range(count) for t in range(2**r))

    best: tuple[float, list[Pass]] = (math.inf, [])
    for count in range(1, facts.rules.growing_rounds + 1):
        if used(2 ** (count - 1), count) > stop - start:  # some batch would be empty
            break
        b = base.smallest(lambda b, count=count: used(b + 1, count) > stop - start)  # type: ignore[misc]
        ends = [start + used(b, r) for r in range(count + 1)]
        batches = [tuple(b // (t + 1) for t in range(2**r)) for r in range(count)]
        parts = zip(itertools.pairwise(ends), batches, strict=True)
        errors, rounds = zip(*(_round(facts, *part) for part in parts), strict=True)
        found = errors[-1] + 2 ** (-(count - 1) / 2), list(rounds)
        best = min(best, found, key=lambda plan: plan[0])
    return best[1]


def _round(facts: Facts, records: Slice, batches: tuple[int, ...]) -> tuple[float, Pass]:
    """The root mean square error of a round's estimate, in Lipschitz constants, and the round."""
    variance, total, terms, noises = 0.0, 0.0, [], []
    for t, size in enumerate(batches):
        weight, term = 1 / math.sqrt(t + 1), facts.clip
        if t:
            change = facts.problem.loss.smoothness * (1 / math.sqrt(t)) * facts.largest_move
            term = min((2 - weight) * facts.clip, (1 - weight) * change + weight * facts.clip)
        noise = facts.noise(size, clip=term)
        terms.append(term)
        noises.append(noise)
        variation = (term * facts.row_norm) ** 2 / size
        of_noise = noise.expected_norm(facts.dual_exponent) ** 2
        variance = (1 - weight) ** 2 * variance + of_noise + variation
        total += variance
    error = math.sqrt(total / len(batches)) / facts.lipschitz
    return error, Pass(tuple(noises), batches, tuple(terms), records, len(batches))
