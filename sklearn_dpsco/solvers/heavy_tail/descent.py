"""Gradient descent in learned units without bounds: first, how far each column reaches."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ..._checks import auto_or, check_real
from ..._types import Array, Auto
from ...mechanisms import Release
from ...privacy.budget import PrivacyBudget
from ...privacy.guarantee import Guarantee
from ...randomness.stream import RandomStream
from ..base import MOST_COPIED_FEATURES, Part, Problem, SolverResult, releases_of
from ..defaults import HEAVY_TAIL, MOST_SCALE_SHARE
from ..records import Frame, SolverData
from ..statistics import in_target_units
from ..unit_descent import Descent, UnitDescentPlan
from . import magnitudes


@dataclass(frozen=True)
class Reach(Part):
    """How far features and targets reach; None where scales are public guesses."""

    features: magnitudes.ReachSearch | None
    target: magnitudes.ReachSearch | None

    @property
    def releases(self) -> tuple[Release, ...]:
        return releases_of(self.features, self.target)

    def run(
        self, data: SolverData, problem: Problem, stream: RandomStream
    ) -> tuple[SolverData, Frame, Array, Array]:
        """Features and targets over how far they reach, in [-1, 1]; typical sizes; the reach."""
        d, target = problem.n_features, np.full(problem.n_outputs, magnitudes.BOX)
        typical, reach = np.ones(d), np.full(d, magnitudes.BOX)
        if self.target is not None:
            targets = data.map(magnitudes.targets_as_rows)
            _, target = self.target.run(targets, stream.substream("target"))
        if self.features is not None:
            typical, reach = self.features.run(data, stream.substream("features"))
        frame = Frame(center=np.zeros(d), scale=reach)
        data = data.map(magnitudes.in_released_units, frame, 1.0)
        if problem.loss.task == "regression":
            scale = target if problem.n_outputs > 1 else float(target[0])
            data = data.map(in_target_units, 0.0, scale, 1.0)
            frame = replace(frame, target_scale=scale)
        return data.kept(), frame, typical, reach


@dataclass(frozen=True)
class UnboundedDescentPlan(UnitDescentPlan):
    """Plan of `UnboundedDescent`; see `UnitDescentPlan` for the other fields.

    Attributes
    ----------
    reach : Reach
        What is released before the units.
    learns_center : bool
        Whether the centre of the rows is that of the model's units.
    """

    reach: Reach
    learns_center: bool

    def run(self, data: SolverData, stream: RandomStream) -> SolverResult:
        """See `Plan.run`."""
        found = self.reach.run(data, self.problem, stream.substream("reach"))
        data, frame, typical, reach = found
        result = super().run(data, stream)
        # where a user's guess is the centre, another one is found for the descent alone
        center = np.zeros(typical.size)
        if self.learns_center and result.frame.center is not None:
            center = reach * result.frame.center
        units = magnitudes.FeatureUnits(center, typical, -reach, reach)
        coef, intercept = frame.plain(result.coef, result.intercept)
        inner = replace(result.frame, outer=frame)
        return replace(result, coef=coef, intercept=intercept, frame=inner, units=units)


@dataclass(kw_only=True, repr=False, eq=False)
class UnboundedDescent(Descent):
    """`Descent` for data without bounds, which the typical sizes of the columns take the place of.

    A part of the budget buys, for each column and for the target, how large values typically are
    and, where n is large, the size that few exceed. Values are clipped to that, and all else is as
    in `Descent`: no coordinate of a gradient depends on how wide the clip is. Predictions clip the
    features as the fit did.

    Parameters
    ----------
    max_iter : "auto" or int in [1, 1e9], default="auto"
        As in `Descent`.
    scale_share : "auto" or float in [1e-6, 0.7], default="auto"
        Largest share of the budget for the sizes of the features; "auto" is 0.25. Less is spent
        where that is enough. Those of the target take at most another 0.06.
    """

    with_set = "scof"
    checks = {"scale_share": partial(auto_or, check_real, low=1e-6, high=MOST_SCALE_SHARE)}

    # what the plan releases; other sizes are 1, in the units of the data
    private_scale_X = private_center_X = private_scale_y = private_center_y = True

    max_iter: int | Auto = "auto"
    scale_share: float | Auto = "auto"

    def _plan(self: Any, problem: Problem, budget: PrivacyBudget) -> UnboundedDescentPlan:
        if problem.is_wide:
            raise ValueError(
                f"solver='descent' without bounds is for up to {MOST_COPIED_FEATURES} features: "
                "take solver='scof'"
            )
        allowance, rules = budget.mixed_allowance, HEAVY_TAIL[problem.loss.task]
        n, facts = problem.n_samples, (budget.record_factor, allowance, allowance)
        features, target = None, None
        if self.private_scale_X:
            columns = magnitudes.Columns("feature", n, problem.n_features, *facts)
            features = magnitudes.plan_reach(columns, self.scale_share or rules.reach_share)
        if self.private_scale_y and problem.loss.task == "regression":
            columns = magnitudes.Columns("target", n, problem.n_outputs, *facts)
            target = magnitudes.plan_reach(columns, rules.target_reach_share)
        spent = sum(search.share for search in (features, target) if search is not None)
        first = Reach(features, target)
        fields, releases = self._stages(problem, budget, allowance.share(1 - spent))
        guarantee = Guarantee.of(budget, (*first.releases, *releases), allowance.kind)
        fields |= {"guarantee": guarantee, "reach": first, "learns_center": self.private_center_X}
        return UnboundedDescentPlan(problem, budget, self.form, **fields)
