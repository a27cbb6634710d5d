"""Plans of searches: every fit, every release and the whole guarantee, from public facts alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from .._checks import stated
from .._overview import Overview, Overviewed
from ..privacy.budget import Composition, PrivacyBudget
from ..privacy.guarantee import Forks, Guarantee
from .choice import Choice, plan_choice

# Maps settings, a part of the budget, its currency and whether it is for a trial fit to the plans
# of the private steps, or raises `UnfitCurrencyError`.
Settings = dict[str, Any]
Plans = tuple[Any, ...]
PlansOf = Callable[[Settings, PrivacyBudget, Composition, bool], Plans]

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
    budget: PrivacyBudget
    candidates: tuple[Settings, ...]
    probes: tuple[Plans, ...]
    choice: Choice | None
    refits: tuple[Plans, ...]
    guarantee: Guarantee
    probe_budget: PrivacyBudget
    refit_budget: PrivacyBudget
    currency: Composition

    @property
    def n_features(self) -> int:
        """Number of columns that reach what predicts."""
        return next(int(p.problem.n_features) for p in self.refits[0] if hasattr(p, "problem"))

    @property
    def needed_for_choice(self) -> str:
        """From how many records on there is one, in words."""
        budget, rows = self.budget, self.budget.rows_per_user
        of_users = f" and max_rows_per_user={rows}, in proportion to which it grows" * (rows > 1)
        least = math.ceil(rows_for_choice(budget) / 100) * 100
        return f"which takes about {least} at epsilon={stated(budget.epsilon)}{of_users}"

    def overview(self) -> Overview:
        """What the guarantee shows, with what is done."""
        if self.choice is None:
            how = (
                f"too few records for a choice, {self.needed_for_choice}, so that the default is "
                "fitted with the whole budget"
            )
        else:
            how = f"{len(self.probes)} trial fits, a private choice, and a fit of what was chosen"
        head = f"search among {len(self.candidates)} settings on {self.n_samples} records"
        return self.guarantee.overview().of(f"{head}: {how}")


class UnfitCurrencyError(Exception):
    """A plan does not add up in the currency that was tried."""


def rows_for_choice(budget: PrivacyBudget) -> float:
    """From how many records on a choice pays; as many times more as a user has rows."""
    allowed = budget.epsilon / budget.rows_per_user
    if not budget.is_pure:  # of a row
        allowed = math.sqrt(2 * budget.mixed_allowance.amount)
    return LEAST_ACCURACY * budget.record_factor / allowed


def plan_probes(
    plans_of: PlansOf,
    candidates: Sequence[Settings],
    budget: PrivacyBudget,
    scoring: str,
    n_samples: int,
    n_outputs: int,
) -> SearchPlan:
    """The plan of a search, or of a fit of the default if a choice cannot pay."""
    plain: Composition = "gdp" if budget.currency == "gdp" else "pure" if budget.is_pure else "zcdp"
    if len(candidates) < 2 or n_samples < rows_for_choice(budget):
        # the default alone, in the currency that gives it the least noise
        plans = plans_of(candidates[0], budget, plain, False)
        default = (), None, (plans,), _together(budget, plain, plans), budget, budget, plain
        return SearchPlan(n_samples, budget, tuple(candidates), *default)

    def planned(currency: Composition, *, has_order: bool = False, size: float = 1.0) -> SearchPlan:
        """With parts that add up in the currency, and have an accountant's order if so."""
        shares = _PROBES / len(candidates), 1 - _PROBES - _CHOICE, _CHOICE
        parts = [budget.part(size * share, currency) for share in shares]
        probe, refit, of_choice = (p if has_order else replace(p, order=None) for p in parts)
        probes = tuple(plans_of(settings, probe, currency, True) for settings in candidates)
        refits = tuple(plans_of(settings, refit, currency, False) for settings in candidates)
        kind: Composition = "gdp" if currency == "pld" else currency
        allowance = of_choice.mixed_allowance if kind == "gdp" else of_choice.allowance
        choice = plan_choice(scoring, n_samples, n_outputs, of_choice, allowance)
        named = [(f"trial fit {k}", [_together(probe, currency, p)]) for k, p in enumerate(probes)]
        named += [
            ("private choice of settings", [Guarantee.of(of_choice, choice.releases, kind)]),
            ("fit of what was chosen", [_together(refit, currency, plans) for plans in refits]),
        ]
        guarantee = _composed(budget, currency, named)
        given = n_samples, budget, tuple(candidates)
        return SearchPlan(*given, probes, choice, refits, guarantee, probe, refit, currency)

    ways: list[Callable[[], SearchPlan]] = []
    if budget.mixed_allowance.kind == "gdp":
        ways += [partial(planned, "gdp", has_order=True), partial(_plan_in_losses, budget, planned)]
    if not budget.is_pure:
        ways.append(partial(planned, "zcdp", has_order=True))
    for way in ways:
        with suppress(UnfitCurrencyError):
            return way()
    return planned(plain)  # with batches as if they were not random: always possible


def _plan_in_losses(budget: PrivacyBudget, planned: Callable[..., SearchPlan]) -> SearchPlan:
    """Parts as large as all of them together allow, by their privacy loss distributions."""
    found, fits, size = None, 0.0, _CAREFUL
    for _ in range(_ATTEMPTS):
        try:
            found, fits = planned("pld", size=size), size
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


def _together(budget: PrivacyBudget, currency: Composition, plans: Sequence[Any]) -> Guarantee:
    """The guarantee of the private steps of one fit."""
    if len(plans) == 1:
        return plans[0].guarantee
    return _composed(budget, currency, [(str(k), [p.guarantee]) for k, p in enumerate(plans)])


def _composed(budget: PrivacyBudget, currency: Composition, parts: Forks) -> Guarantee:
    """All parts together; under an accountant, random batches cost their part at one order only."""
    guarantees = [g for _, alternatives in parts for g in alternatives]
    if currency == "pld":
        if not all(g.composes_in("gdp") for g in guarantees):
            raise UnfitCurrencyError
    elif any(g.composition in ("pld", "renyi") for g in guarantees):
        currency = "renyi"
    try:
        return Guarantee.of_parts(budget, currency, parts)
    except AssertionError:  # the order of an accountant's larger budget need not prove this claim
        raise UnfitCurrencyError from None
