"""What every solver shares: parameters that are checked when a plan is made, and the plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy as shallow_copy
from functools import partial
from typing import Any, ClassVar, Self

from sklearn.base import BaseEstimator

from .._checks import auto_or, check_bool, check_choice, check_count, check_real, check_size
from ..geometry import Geometry
from ..losses import Loss
from ..privacy.budget import PrivacyBudget
from .base import Plan, Problem
from .defaults import MOST_PHASES, MOST_STEPS

__all__ = ["Solver", "none_or_count"]

Check = Callable[[str, Any], Any]


def _auto(check: Callable[..., Any], **limits: Any) -> Check:
    return partial(auto_or, check, **limits)


def none_or_count(name: str, value: Any) -> int | None:
    """`None`, or the value checked by `check_count`."""
    return None if value is None else check_count(name, value)


# a parameter means the same in all solvers, but for what their own `checks` say
_CHECKS: Mapping[str, Check] = {
    "average": check_bool,
    "batch_size": _auto(check_count),
    "data_norm": _auto(check_size),
    "gradient_clip": _auto(check_size),
    "l2_penalty": partial(check_size, low=0),
    "learning_rate": _auto(check_size),
    "max_iter": _auto(check_count, high=MOST_STEPS),
    "mirror_map": partial(check_choice, choices=("auto", "power", "euclidean", "entropy")),
    "moment_bound": check_size,
    "moment_order": partial(check_real, low=2),
    "n_buckets": _auto(check_count),
    "n_phases": _auto(check_count, high=MOST_PHASES),
    "n_restarts": _auto(check_count, high=MOST_PHASES),
    "rank_bound": none_or_count,
    "shuffle": check_bool,
    "tau": _auto(check_size),
}
# numbers that are stated in units of the features and the targets
_IN_UNITS = ("data_norm", "gradient_clip", "l2_penalty", "learning_rate")


class Solver(BaseEstimator):
    """Settings of one algorithm, which make its plan; "auto" leaves a value to the plan.

    Parameters are checked when a plan is made, which keeps what follows from them and not the
    solver itself. So a solver may be changed between fits, also by ``solver__name`` in searches.
    """

    form: ClassVar[str]
    checks: ClassVar[Mapping[str, Check]] = {}
    _is_resolved = False

    def _store(self, arguments: dict[str, Any]) -> None:
        """Keep the arguments of `__init__` under their names, untouched as scikit-learn asks."""
        arguments.pop("self")
        self.__dict__.update(arguments)

    def resolved(self) -> Self:
        """A copy with checked parameters, None in the place of "auto"."""
        if self._is_resolved:
            return self
        copy = type(self)()
        for name, value in self.get_params(deep=False).items():
            value = {**_CHECKS, **self.checks}[name](name, value)
            setattr(copy, name, None if isinstance(value, str) and value == "auto" else value)
        copy._is_resolved = True
        return copy

    def with_facts(self, **facts: Any) -> Self:
        """A resolved copy with facts that are no parameters, such as what an estimator knows."""
        copy = shallow_copy(self.resolved())
        copy.__dict__.update(facts)
        return copy

    def check(
        self,
        loss: Loss,
        feasible_set: Geometry | type[Geometry],
        budget: PrivacyBudget,
        units: str = "auto",
    ) -> None:
        """Raise `ValueError` on what cannot work, however many records and features there are."""
        self.resolved()._check(loss, feasible_set, budget, units)

    def plan(self, problem: Problem, budget: PrivacyBudget) -> Plan:
        """Everything that a run does, from public facts alone.

        Raises
        ------
        ValueError
            As `check`, and if the sizes of the problem do not go with the settings.
        """
        solver = self.resolved()
        solver._check(problem.loss, problem.feasible_set, budget, problem.units)
        return solver._plan(problem, budget)

    def _check(
        self, loss: Loss, feasible_set: Geometry | type[Geometry], budget: PrivacyBudget, units: str
    ) -> None:
        raise NotImplementedError

    def _plan(self, problem: Problem, budget: PrivacyBudget) -> Any:
        raise NotImplementedError

    @property
    def numbers_in_units(self) -> list[str]:
        """Names of the declared parameters that are stated in units, when resolved."""
        return [name for name in _IN_UNITS if getattr(self, name, None)]
