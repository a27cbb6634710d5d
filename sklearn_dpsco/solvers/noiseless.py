"""Plans for an infinite epsilon: the same method without its noise.

Such a plan is that of the largest finite epsilon, so that its steps, clips and units are those of
the rules in their limit, with the scale of every mechanism set to 0. This is the only place that
does so; a guarantee with a finite epsilon refuses a mechanism without noise, and a guarantee with
an infinite one refuses a mechanism that has some.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, TypeVar

from ..privacy.budget import LARGEST_EPSILON, PrivacyBudget
from .base import Part

__all__ = ["map_mechanisms", "plan_within"]

P = TypeVar("P")


def map_mechanisms(plan: Any, change: Callable[[str, Any], Any]) -> Any:
    """The plan with each mechanism m of each field replaced by ``change(name, m)``.

    A mechanism is any object with a method `release`; to be replayed, it must state the facts of
    `mechanisms.Mechanism`. It is searched for in the fields of the plan, in their tuples, and in
    the fields of the plan's parts (`solvers.base.Part`). Its name is its path, for example
    ``"first.target"`` or ``"stages[0].noises[0]"``.

    Parameters
    ----------
    plan : Plan
    change : callable (str, mechanism) -> mechanism

    Returns
    -------
    Plan

    Examples
    --------
    A plan with half of the noise, which an audit should find:

    >>> from sklearn_dpsco import PrivacyBudget
    >>> from sklearn_dpsco.losses import Squared
    >>> from sklearn_dpsco.geometry import L2Ball
    >>> from sklearn_dpsco.solvers import NoisyMD
    >>> from sklearn_dpsco.solvers.base import Problem
    >>> problem = Problem(12, 2, Squared(), L2Ball(1.0))
    >>> plan = NoisyMD(max_iter=3).plan(problem, PrivacyBudget(1.0, 1e-3))
    >>> from dataclasses import replace
    >>> from sklearn_dpsco.audit import map_mechanisms, mechanisms
    >>> wrong = map_mechanisms(plan, lambda name, old: replace(old, scale=old.scale / 2))
    >>> name = list(mechanisms(plan))[-1]
    >>> mechanisms(wrong)[name].scale / mechanisms(plan)[name].scale
    0.5
    """

    def changed(name: str, value: Any) -> Any:
        if type(value) is tuple:
            return tuple(changed(f"{name}[{i}]", item) for i, item in enumerate(value))
        if isinstance(value, Part):
            return fields_changed(f"{name}.", value)
        return change(name, value) if hasattr(value, "release") else value

    def fields_changed(prefix: str, whole: Any) -> Any:
        names = [f.name for f in dataclasses.fields(whole)]
        values = {name: changed(prefix + name, getattr(whole, name)) for name in names}
        return dataclasses.replace(whole, **values)

    return fields_changed("", plan)


def plan_within(budget: PrivacyBudget, make: Callable[[PrivacyBudget], P]) -> P:
    """``make(budget)``, or for an infinite epsilon the plan of a finite one without its noise.

    Parameters
    ----------
    budget : PrivacyBudget
    make : callable
        Makes a plan: a frozen dataclass with a field `guarantee`, whose mechanisms
        `map_mechanisms` finds.
    """
    if not budget.is_infinite:
        return make(budget)
    plan: Any = make(dataclasses.replace(budget, epsilon=LARGEST_EPSILON))
    quiet: dict[int, Any] = {}  # a mechanism of several fields or releases stays one

    def silenced(_: str, mechanism: Any) -> Any:
        return quiet.setdefault(id(mechanism), dataclasses.replace(mechanism, scale=0.0))

    without_noise = map_mechanisms(plan, silenced)
    releases = plan.guarantee.releases
    if any(id(release.mechanism) not in quiet for release in releases):
        raise AssertionError("a release of the plan has a mechanism that is in none of its fields")
    guarantee = dataclasses.replace(
        plan.guarantee,
        epsilon=math.inf,
        composition="none",
        releases=tuple(dataclasses.replace(r, mechanism=quiet[id(r.mechanism)]) for r in releases),
    )
    changes: dict[str, Any] = {"guarantee": guarantee}
    if hasattr(plan, "budget"):
        changes["budget"] = budget
    return dataclasses.replace(without_noise, **changes)
