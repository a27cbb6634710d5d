"""Plans of searches: every fit, every release and the whole guarantee, from public facts alone."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .._overview import Overview, Overviewed
from ..privacy.budget import Composition, PrivacyBudget
from ..privacy.composed import ComposedGuarantee
from ..privacy.guarantee import Guarantee
from .choice import Choice, plan_choice
from .private_steps import Sizes, UnfitCurrencyError, plans_of, set_parts

__all__ = ["SearchPlan", "plan_probes"]

LEAST_ACCURACY = 500.0  # n mu over the relation's factor, from which a choice pays
_PROBES, _CHOICE = 0.1, 0.03  # shares of the budget; the rest is for the last fit
# Of a search over random batches: how often other sizes of the parts are tried, the spare factor
# that is worth it, the care in it for the rounding of distributions, and a smaller size.
_ATTEMPTS, _ENOUGH, _CAREFUL, _SMALLER = 4, 1.01, 0.998, 0.98


@dataclass(frozen=True)
class SearchPlan(Overviewed):
    """The plan of a search.

    Attributes
    ----------
    n_samples, n_features : int
    budget : PrivacyBudget
    candidates : tuple of dict
        The settings, the default's first.
    probes : tuple of tuple of Plan
        For each candidate, the plans of its private steps; empty if the default is fitted with the
        whole budget.
    choice : Choice or None
    refits : tuple of tuple of Plan
        Plans of the last fit, for each candidate that may be chosen.
    guarantee : Guarantee
        For all of it together.
    probe_budget, refit_budget : PrivacyBudget
    currency : str
        In which the parts are added up.
    """

    n_samples: int
    n_features: int
    budget: PrivacyBudget
    candidates: tuple[dict[str, Any], ...]
    probes: tuple[tuple[Any, ...], ...]
    choice: Choice | None
    refits: tuple[tuple[Any, ...], ...]
    guarantee: Guarantee
    probe_budget: PrivacyBudget
    refit_budget: PrivacyBudget
    currency: Composition

    def overview(self) -> Overview:
        """What is done above what the guarantee shows."""
        head = f"search among {len(self.candidates)} settings on {self.n_samples} records: "
        if self.choice is None:
            how = (
                "too few records for a choice at this epsilon, so that the default is fitted with "
                "the whole budget"
            )
        else:
            how = f"{len(self.probes)} probes, a private choice, and a fit of what was chosen"
        return self.guarantee.overview().below(f"{head}{how}")


def pays(budget: PrivacyBudget, n_samples: int) -> bool:
    """Whether there are records enough for a choice."""
    if budget.is_pure:
        amount = budget.epsilon / budget.rows_per_user
    else:
        amount = math.sqrt(2 * budget.mixed_allowance.amount)
    return n_samples * amount / budget.record_factor >= LEAST_ACCURACY


def plan_probes(
    make: Callable[[dict[str, Any]], Any], candidates: Sequence[dict[str, Any]],
    budget: PrivacyBudget, scoring: str, sizes: Sizes,
) -> SearchPlan:  # fmt: skip
    """The plan of a search, or of a fit of the default if a choice cannot pay."""
    if len(candidates) < 2 or not pays(budget, sizes.n_samples):
        return _plan_default(make, candidates, budget, sizes)
    # the last way, with batches as if they were not random, is always possible
    ways: list[tuple[Composition, bool]] = [("pure" if budget.is_pure else "zcdp", False)]
    if not budget.is_pure:
        ways.insert(0, ("zcdp", True))
    if budget.mixed_allowance.kind == "gdp":
        ways[:0] = [("gdp", True), ("pld", False)]
    planned = functools.partial(_plan_in, make, candidates, budget, scoring, sizes)
    for way in ways:
        try:
            return planned(way) if way[0] != "pld" else _plan_in_losses(budget, planned)
        except UnfitCurrencyError:
            continue
    raise AssertionError("a plan does not fit its part of the budget")


def _plan_in_losses(budget: PrivacyBudget, planned: Callable[..., SearchPlan]) -> SearchPlan:
    """Parts as large as all of them together allow, by their privacy loss distributions."""
    found, fits, size = None, 0.0, _CAREFUL
    for _ in range(_ATTEMPTS):
        try:
            found, fits = planned(("pld", False), size), size
        except UnfitCurrencyError:
            # alternatives whose curves cross cost more than each of them
            size = _SMALLER * size if found is None else (fits + size) / 2
            continue
        spent = replace(budget, epsilon=found.guarantee.second_opinion())
        spare = (budget.mu / spent.mu) ** 2
        size *= _CAREFUL * spare
        if spare < _ENOUGH or size * (1 - _PROBES - _CHOICE) > 1:
            break
    if found is None:
        raise UnfitCurrencyError
    return found


def _plan_in(
    make: Callable[[dict[str, Any]], Any], candidates: Sequence[dict[str, Any]],
    budget: PrivacyBudget, scoring: str, sizes: Sizes, way: tuple[Composition, bool],
    size: float = 1.0,
) -> SearchPlan:  # fmt: skip
    currency, has_order = way
    shares = _PROBES / len(candidates), 1 - _PROBES - _CHOICE, _CHOICE
    probe, refit, of_choice = (
        part if has_order else replace(part, order=None)
        for part in (budget.part(size * share, currency) for share in shares)
    )
    probes = _plans(make, candidates, probe, currency, sizes)
    refits = _plans(make, candidates, refit, currency, sizes)
    kind: Composition = "gdp" if currency == "pld" else currency
    allowance = of_choice.mixed_allowance if kind == "gdp" else of_choice.allowance
    choice = plan_choice(scoring, sizes.n_samples, sizes.n_outputs, of_choice, allowance)
    named = [(f"probe {k}", [_together(probe, currency, plans)]) for k, plans in enumerate(probes)]
    parts = [
        *named,
        ("choice", [Guarantee.of(of_choice, choice.releases, kind)]),
        ("fit of what was chosen", [_together(refit, currency, plans) for plans in refits]),
    ]
    guarantee = _composed(budget, currency, parts)
    return SearchPlan(
        sizes.n_samples, _width(probes[0]), budget, tuple(candidates), probes, choice, refits,
        guarantee, probe, refit, currency,
    )  # fmt: skip


def _plans(
    make: Callable[[dict[str, Any]], Any], candidates: Iterable[dict[str, Any]],
    budget: PrivacyBudget, currency: Composition, sizes: Sizes,
) -> tuple[tuple[Any, ...], ...]:  # fmt: skip
    return tuple(plans_of(set_parts(make(c), budget, currency), sizes) for c in candidates)


def _width(plans: Sequence[Any]) -> int:
    """Number of columns that reach what predicts."""
    return next(int(plan.problem.n_features) for plan in plans if hasattr(plan, "problem"))


def _together(budget: PrivacyBudget, currency: Composition, plans: Sequence[Any]) -> Guarantee:
    """The guarantee of the private steps of one fit."""
    if len(plans) == 1:
        found: Guarantee = plans[0].guarantee
        return found
    return _composed(budget, currency, [(str(k), [p.guarantee]) for k, p in enumerate(plans)])


def _composed(
    budget: PrivacyBudget, currency: Composition, parts: Sequence[tuple[str, Sequence[Guarantee]]]
) -> ComposedGuarantee:
    """All parts together; under an accountant, random batches cost their part at one order only."""
    guarantees = [g for _, alternatives in parts for g in alternatives]
    if currency == "pld":
        if not all(g.composes_in("gdp") for g in guarantees):
            raise UnfitCurrencyError
    elif any(g.composition in ("pld", "renyi") for g in guarantees):
        currency = "renyi"
    try:
        return ComposedGuarantee.of_parts(budget, currency, parts)
    except AssertionError:  # the order of an accountant's larger budget need not prove this claim
        raise UnfitCurrencyError from None


def _plan_default(
    make: Callable[[dict[str, Any]], Any], candidates: Sequence[dict[str, Any]],
    budget: PrivacyBudget, sizes: Sizes,
) -> SearchPlan:  # fmt: skip
    """The plan of a fit of the default alone, in the currency that gives it the least noise."""
    currency: Composition = "pure" if budget.is_pure else "zcdp"
    (plans,) = _plans(make, candidates[:1], budget, currency, sizes)
    guarantee = _together(budget, currency, plans)
    return SearchPlan(
        sizes.n_samples, _width(plans), budget, tuple(candidates), (), None,
        (plans,), guarantee, budget, budget, currency,
    )  # fmt: skip
