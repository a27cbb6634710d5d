"""What a plan releases, and the guarantee that follows from it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from .budget import ROUNDING, Composition, PrivacyBudget
from .sampling import event_epsilon
from .selections import selection_delta, selection_epsilon

__all__ = ["Costed", "Guarantee", "Release", "composed_event"]


class Costed(Protocol):
    """What a guarantee reads of a mechanism: a part of `mechanisms.Mechanism`."""

    @property
    def sensitivity(self) -> float: ...

    @property
    def scale(self) -> float: ...

    @property
    def compositions(self) -> tuple[str, ...]: ...

    @property
    def log_range(self) -> float | None: ...

    def cost(self, composition: str) -> float: ...

    def dp_event(self, composition: str) -> Any: ...


@dataclass(frozen=True)
class Release:
    """A mechanism and how many times a plan uses it on any one record.

    Attributes
    ----------
    name : str
        What is released, for a reader of the plan.
    mechanism : mechanisms.Mechanism
    count : int
    group : str or None
        Releases of different groups are on disjoint records; None is for all records.
    """

    name: str
    mechanism: Costed
    count: int = 1
    group: str | None = None

    def cost(self, composition: str) -> float:
        """Of all its uses."""
        return self.count * self.mechanism.cost(composition)


@dataclass(frozen=True)
class Guarantee:
    """What a fit costs: the claim, and the releases that prove it.

    Attributes
    ----------
    epsilon, delta, relation
        As in `PrivacyBudget`: the claim.
    composition : {"zcdp", "gdp", "pure", "adaptive-range", "rdp", "pld"}
        The analysis under which the releases compose. "adaptive-range" is the optimum for
        adaptively chosen selections of one range after Gaussian releases that do not
        depend on them; it proves this epsilon at this delta and no other pair. "rdp" and
        "pld" are the accountants of `dp_accounting`, for Gaussian noise on random batches.
    releases : tuple of Release
        Every mechanism that touches the data, with the number of its uses. Releases of
        different groups are on disjoint records.
    repetitions : int
        How many times the whole list runs (the classes of one-vs-rest).
    """

    epsilon: float
    delta: float
    relation: str
    composition: Composition
    releases: tuple[Release, ...]
    repetitions: int = 1

    @classmethod
    def of(
        cls,
        budget: PrivacyBudget,
        releases: Iterable[Release],
        composition: Composition | None = None,
        repetitions: int = 1,
    ) -> Guarantee:
        """The guarantee of releases that were planned within a budget.

        `composition` None stands for the budget's own currency.
        """
        composition = composition or budget.allowance.kind
        return cls(
            budget.epsilon, budget.delta, budget.relation, composition, tuple(releases), repetitions
        )

    def __post_init__(self) -> None:
        budget = PrivacyBudget(self.epsilon, self.delta, self.relation)
        if self.composition == "adaptive-range":
            spent, count, mu = self._selections()
            limit = selection_epsilon(float(self.epsilon), float(self.delta), count, mu)
        else:
            limits = {"zcdp": budget.rho, "gdp": budget.mu**2 / 2}
            spent, limit = self.spent, limits.get(self.composition, budget.epsilon)
        # A plan that overspends is a defect of the package, not a user's error.
        if not spent <= limit * ROUNDING:  # NaN must not pass
            raise AssertionError("a plan spends more than its budget")

    def __str__(self) -> str:
        times = f", {self.repetitions} models" if self.repetitions > 1 else ""
        lines = [
            f"epsilon = {self.epsilon:g}, delta = {self.delta:g}, {self.relation} neighbours, "
            f"{self.composition} composition{times}",
            "  release           uses  mechanism    sensitivity  noise scale"
            + ("  records" if any(r.group for r in self.releases) else ""),
        ]
        for release in self.releases:
            mechanism = release.mechanism
            lines.append(
                f"  {release.name:16s} {release.count:5d}  {type(mechanism).__name__:12s} "
                f"{mechanism.sensitivity:11.4g} {mechanism.scale:12.4g}"
                + (f"  {release.group}" if release.group else "")
            )
        return "\n".join(lines)

    @property
    def spent(self) -> float:
        """Total cost in the currency of `composition`: rho, mu^2 / 2, or epsilon if pure.

        For "adaptive-range" it is the delta that is proved at `epsilon`, for "rdp" and
        "pld" the epsilon that is proved at `delta`.
        """
        return self.cost(self.composition)

    def cost(self, composition: Composition) -> float:
        """Total cost for the worst record under another composition."""
        if composition == "adaptive-range":
            eta, count, mu = self._selections()
            return selection_delta(self.epsilon, eta, count, mu, self.delta)
        if composition in ("rdp", "pld"):
            return event_epsilon(self.dp_event, composition, self.epsilon, self.delta)
        worst = _worst(self.releases, composition)
        return self.repetitions * sum(release.cost(composition) for release in worst)

    def _selections(self) -> tuple[float, int, float]:
        """Range and number of the selections, and mu of the releases with a Gaussian-DP cost."""
        ranges, count, gaussian = [0.0], 0, 0.0
        for release in self.releases:
            mechanism = release.mechanism
            if release.group is None and mechanism.log_range is not None:
                ranges.append(mechanism.log_range)
                count += release.count
            elif release.group is None and "gdp" in mechanism.compositions:
                gaussian += release.cost("gdp")
            else:
                raise ValueError(f"{release.name} has no adaptive-range guarantee")
        mu = math.sqrt(2 * (self.repetitions * gaussian))
        return max(ranges), self.repetitions * count, mu

    @property
    def dp_event(self) -> Any:
        """The releases as a `dp_accounting` event, for a second opinion on epsilon.

        For "zcdp" use the RDP accountant with orders up to 1e5, as its default orders are
        too coarse; for "gdp" the PLD accountant; for "rdp" the RDP accountant with the
        REPLACE_ONE relation; for "pld" the PLD accountant. For "pure" use the PLD accountant with
        the REPLACE_ONE relation and a tiny delta: each event is a binary response with exactly
        the epsilon of the release, whatever the relation of this guarantee.
        Of groups on disjoint records, the event holds the one that costs most.

        No accountant of that library knows the composition of "adaptive-range". Its event,
        an `AdaptiveSelectionsDpEvent` next to the Gaussian ones, says what was composed,
        and accountants refuse it (`UnsupportedEventError`).
        """
        if self.composition != "adaptive-range":
            return composed_event(self.releases, self.composition, self.repetitions)
        from . import events

        eta, count, _ = self._selections()
        gaussians = [release for release in self.releases if release.mechanism.log_range is None]
        return events.with_selections(_counted(gaussians, "gdp", self.repetitions), eta, count)

    def second_opinion(self) -> float:
        """Epsilon at `delta` that `dp_accounting` computes for `dp_event`.

        At most `epsilon`, up to the resolution of its accountants (a few parts in 1e4):
        Renyi DP with dense orders for "zcdp", privacy loss distributions for "gdp" and
        "pure", and the accountant of that name for "rdp" and "pld".

        Raises
        ------
        dp_accounting.privacy_accountant.UnsupportedEventError
            For "adaptive-range", which that library does not know.
        """
        if self.composition in ("rdp", "pld"):
            return self.spent
        from . import events

        return events.second_opinion(self.dp_event, self.composition, self.epsilon, self.delta)


def composed_event(releases: Sequence[Release], composition: str, repetitions: int) -> Any:
    """The releases that may read one record, `repetitions` times, as one event."""
    from . import events

    worst = _worst(releases, composition)
    return events.composed(_counted(worst, composition, repetitions), composition)


def _counted(
    releases: Sequence[Release], composition: str, repetitions: int
) -> list[tuple[Any, int]]:
    return [(r.mechanism.dp_event(composition), r.count * repetitions) for r in releases]


def _worst(releases: Sequence[Release], composition: str) -> tuple[Release, ...]:
    """The releases on all records and those of the group that costs most."""
    groups: dict[str | None, list[Release]] = {}
    for release in releases:
        groups.setdefault(release.group, []).append(release)
    common = groups.pop(None, [])
    largest: list[Release] = max(
        groups.values(),
        key=lambda group: sum(release.cost(composition) for release in group),
        default=[],
    )
    return (*common, *largest)
