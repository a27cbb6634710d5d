"""Guarantees that are made of others: several fits on the same records, or one of several."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from .._overview import Overview
from .budget import Composition, PrivacyBudget
from .guarantee import Guarantee, Release, composed_event

__all__ = ["ComposedGuarantee"]


@dataclass(frozen=True)
class ComposedGuarantee(Guarantee):
    """The guarantee of several parts on the same records, in one currency that adds up.

    Costs of parts are added up, so that the parts may be chosen after looking at the results of
    earlier ones, as long as what each costs was fixed before. A part may be a set of
    alternatives, of which one is carried out: it costs what the costliest does.

    Attributes
    ----------
    composition : {"zcdp", "gdp", "pure", "pld", "renyi"}
    releases : tuple of Release
        Of the parts, in order; of alternatives those of the costliest.
    parts : tuple of (str, tuple of Guarantee)
        The name of each part and its alternatives.
    """

    parts: tuple[tuple[str, tuple[Guarantee, ...]], ...] = ()

    @classmethod
    def of_parts(
        cls,
        budget: PrivacyBudget,
        composition: Composition,
        parts: Iterable[tuple[str, Iterable[Guarantee]]],
    ) -> ComposedGuarantee:
        """The guarantee of parts that were planned within shares of a budget."""
        named = tuple((name, tuple(alternatives)) for name, alternatives in parts)
        currency: Composition = "zcdp" if composition in ("renyi", "pld") else composition
        releases: list[Release] = []
        for _, alternatives in named:
            worst = max(alternatives, key=lambda guarantee: guarantee.cost(currency))
            releases += worst.releases
        return cls(
            budget.epsilon, budget.delta, budget.relation, composition, tuple(releases),
            budget.rows_per_user, named,
        )  # fmt: skip

    def __post_init__(self) -> None:
        for name, alternatives in self.parts:
            if any(g.rows_per_user != self.rows_per_user for g in alternatives):
                raise AssertionError(f"{name} is for users of another number of rows")
        super().__post_init__()

    def overview(self) -> Overview:
        """The claim, and a row for each part."""
        costliest = [self._costliest(alternatives) for _, alternatives in self.parts]
        counts = [sum(release.count for release in part.releases) for part in costliest]
        return Overview(
            (f"{self.claim}, {self.composition} composition of {len(self.parts)} parts",),
            ("part", "share", "releases"),
            "  {:32s} {:>6s} {:>9s}",
            [
                (name, f"{share:.1%}", str(count))
                for (name, share), count in zip(self.shares(), counts, strict=True)
            ],
        )

    def shares(self) -> list[tuple[str, float]]:
        """What each part takes of the total: its name and its share.

        Of random batches, a share is of what they would cost without their randomness.
        """
        costs = [self._costliest(options).cost(self._additive) for _, options in self.parts]
        total = self.cost(self._additive)
        return [(name, cost / total) for (name, _), cost in zip(self.parts, costs, strict=True)]

    @property
    def _additive(self) -> Composition:
        """The currency in which the parts are compared."""
        return "zcdp" if self.composition in ("renyi", "pld") else self.composition

    def _costliest(self, alternatives: tuple[Guarantee, ...]) -> Guarantee:
        return max(alternatives, key=lambda guarantee: guarantee.cost(self._additive))

    def cost(self, composition: Composition) -> float:
        """Total cost for the worst record; "renyi" and "pld" are those of all parts together."""
        if composition in ("renyi", "pld"):
            return super().cost(composition)
        return sum(
            max(guarantee.cost(composition) for guarantee in alternatives)
            for _, alternatives in self.parts
        )

    def renyi(self, order: float) -> float:
        """Renyi divergence of this order (above 1), for the worst record."""
        return sum(
            max(guarantee.renyi(order) for guarantee in alternatives)
            for _, alternatives in self.parts
        )

    def _of_a_row(self, composition: Composition) -> float:
        power = 1 if composition == "pure" else 2
        return self.cost(composition) / self.rows_per_user**power

    def composes_in(self, composition: str) -> bool:
        if self.is_void:
            return False
        return all(g.composes_in(composition) for _, options in self.parts for g in options)

    def second_opinion(self) -> float:
        """As of `Guarantee`; next to random batches, what is not Gaussian counts as if it were."""
        if self.composition != "renyi":
            return super().second_opinion()
        from . import events

        found = []
        for _, options in self.parts:
            worst = max(
                options, key=lambda g: g.renyi(PrivacyBudget(g.epsilon, g.delta).best_order)
            )
            currency = "pld" if worst.composition == "pld" else "gdp"
            found.append(composed_event(worst.releases, currency, self.rows_per_user))
        return events.pld_epsilon(events.composed(found), self.delta, self.epsilon)

    @cached_property
    def dp_event(self) -> Any:
        """All parts as one `dp_accounting` event; of alternatives, the costliest.

        In "pld" no alternative need be the costliest at every epsilon: an event that only
        `Guarantee.second_opinion` knows stands for all of them.
        """
        from . import events

        if self.composition == "pld":
            parts = ([self._batches(g) for g in options] for _, options in self.parts)
            return events.composed([events.one_of(options) for options in parts])
        return events.composed([self._costliest(options).dp_event for _, options in self.parts])

    def _batches(self, guarantee: Guarantee) -> Any:
        """The event of a part by privacy loss distributions; random batches are amplified."""
        if guarantee.composition == "pld":
            return guarantee.dp_event
        return composed_event(guarantee.releases, "gdp", self.rows_per_user)
