"""A part of a budget that was charged as a whole, for one fit among several."""

from __future__ import annotations

from typing import Any

from .._types import Disjoint
from ..exceptions import PrivacyBudgetError
from .branches import Account, ParallelGroup
from .budget import ROUNDING, Currency, PrivacyBudget
from .guarantee import Guarantee


class Allotment(Account):
    """In the place of an accountant, it accepts one plan within a part that was charged already."""

    def __init__(self, budget: PrivacyBudget) -> None:
        self._budget = budget
        self._is_spent = False  # known here alone: a copy may be sent to another process

    def _terms(self) -> tuple[PrivacyBudget, Currency, float | None, int]:
        budget = self._budget
        return budget, budget.currency, budget.order, budget.rows_per_user

    def remaining(self, delta: float | None = None) -> float:
        raise TypeError("a part of a search's budget is for one fit: ask the accountant")

    def parallel(self, disjoint: Disjoint = "rows") -> ParallelGroup:
        raise TypeError("a part of a search's budget is for one fit, and has no branches")

    def spend(self, guarantee: Any, *_: Any, **__: Any) -> None:
        """Accept a guarantee, or that of a plan, once; `PrivacyBudgetError` if it costs more."""
        guarantee = getattr(guarantee, "guarantee", guarantee)
        if self._is_spent:
            raise PrivacyBudgetError(
                "this part of a search's budget was spent: within a search, a private estimator is "
                "fitted once for each candidate"
            )
        if not self.accepts(guarantee):
            raise PrivacyBudgetError("the fit costs more than its part of the budget")
        self._is_spent = True

    def accepts(self, guarantee: Guarantee) -> bool:
        """Whether it is within the part, in the part's currency."""
        budget = self.budget
        tells = bool(guarantee.slack) and budget.currency != "auto"  # parts share one delta
        is_of_kind = guarantee.relation == budget.relation and not tells
        if not is_of_kind or guarantee.rows_per_user < budget.rows_per_user:
            return False
        if budget.currency == "auto":
            return guarantee.epsilon <= budget.epsilon and guarantee.delta <= budget.delta
        if budget.is_pure:
            return guarantee.cost("pure") <= budget.epsilon * ROUNDING
        squared = budget.rows_per_user**2  # allowances are those of a row
        if budget.currency == "gdp":
            most = squared * budget.mixed_allowance.amount * ROUNDING
            return guarantee.composes_in("gdp") and guarantee.cost("gdp") <= most
        cost = guarantee.cost("zcdp")
        if budget.order is not None:
            cost = min(cost, guarantee.renyi(budget.order) / budget.order)
        return cost <= squared * budget.rho * ROUNDING
