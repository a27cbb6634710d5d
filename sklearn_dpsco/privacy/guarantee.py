"""The tree of what is released, and the guarantee that follows from it; doc/privacy, section 1.

A leaf is a `Release`, a node a `Guarantee`. What stands in it one after the other adds up. Where it
forks, into releases on disjoint records or into alternatives of which one is carried out, a record
bears one branch, and the costliest counts. Costs, divergences and events follow from this tree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from copy import copy as shallow_copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Integral
from operator import methodcaller
from typing import Any

from scipy.special import ndtr, ndtri

from .._checks import check_real, import_pandas, stated
from .._overview import Overview, Overviewed
from .._types import Relation
from .budget import ROUNDING, Composition, PrivacyBudget, cost_delta, renyi_delta
from .report import Fits, Report, of_guarantee, promise
from .selections import bracketed, has_optimum, selection_delta, selection_epsilon

_OF_DELTA = "adaptive-range", "pld", "renyi"
_LARGEST_EPSILON = 1e6  # that is looked for, in units of the claim
Forks = Sequence[tuple[str, Sequence["Guarantee"]]]  # parts by name, and their alternatives
_MOST_SHOWN = 40  # releases of a table that is read by people; `to_frame` has all of them


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

    Examples
    --------
    >>> from sklearn_dpsco import DPMirrorRegressor
    >>> from sklearn_dpsco.solvers import NoisyMD
    >>> model = DPMirrorRegressor(bounds_X=(0, 1), bounds_y=(0, 1), solver=NoisyMD(max_iter=50))
    >>> releases = model.plan(n_samples=5000, n_features=3).guarantee.releases
    >>> releases[-1].count  # the gradients
    50
    """

    name: str
    mechanism: Any
    count: int = 1
    group: str | None = None

    def cost(self, composition: str) -> float:
        """Of all its uses."""
        return self.mechanism.cost(composition, self.count)

    def renyi(self, order: float) -> float:
        """Renyi divergence of this order of all its uses."""
        return self.count * self.mechanism.renyi(order)

    def dp_event(self, composition: str, rows: int = 1) -> Any:
        """All its uses as one event, for so many rows of a user."""
        return self.mechanism.dp_event(composition, self.count, rows)


@dataclass(frozen=True)
class Guarantee(Overviewed):
    """What a fit costs: the claim, and the releases that prove it.

    Attributes
    ----------
    epsilon, delta, relation
        As in `PrivacyBudget`: the claim.
    composition : {"zcdp", "gdp", "pure", "adaptive-range", "pld", "renyi", "none"}
        The analysis under which the releases compose. "adaptive-range" is the optimum for
        adaptively chosen selections of one range and Gaussian releases; it proves this epsilon at
        this delta and no other pair. "pld" adds up privacy loss distributions, for Gaussian noise
        on random batches; "renyi" Renyi divergences of the best order. "none", if and only if
        `epsilon` is infinite: no noise, infinite costs, and nothing proved at any other epsilon.
    releases : tuple of Release
        Every mechanism that touches the data, with the number of its uses.
    rows_per_user : int
        The claim is for all rows of a user, of whom nobody has more. The releases state the
        sensitivity to one row; costs are those of so many.
    parts : tuple of (str, tuple of Guarantee)
        Of several fits on the same records: the name of each part, and its alternatives, of which
        one is carried out. Parts may be chosen after looking at the results of earlier ones, as
        long as what each costs was fixed before. `releases` are then those of the costliest.

    fits : Fits or None
        Of a fit without an accountant that is one of several of an estimator and its clones: what
        is known of them. None otherwise. Equal guarantees may differ in it.
    noise_is_secret : bool
        False if a `random_state` was given to the fit: then the claim does not hold against those
        who know or guess it, and the print begins with that. Equal guarantees may differ in it.
    has_groups : bool
        Whether the fit was told whose each row is. If not, that nobody has more than
        `rows_per_user` rows is a promise, which `report` asks for; so it does for a plan, which
        does not know. Equal guarantees may differ in it.

    Examples
    --------
    >>> from sklearn_dpsco import DPLinearRegression
    >>> model = DPLinearRegression(epsilon=1.0, delta=1e-6, bounds_X=(0, 1), bounds_y=(0, 1))
    >>> guarantee = model.plan(n_samples=5000, n_features=4).guarantee
    >>> guarantee.epsilon, guarantee.delta, guarantee.relation
    (1.0, 1e-06, 'replace-one')
    >>> guarantee.epsilon_at(1e-9) > 1.0  # the same fit, at a smaller delta
    True
    >>> guarantee.delta_at(0.5) > 1e-6  # and at a smaller epsilon
    True
    >>> 0.8 < guarantee.trade_off(0.05) < 0.95  # without any model: 0.95
    True
    >>> len(guarantee.to_frame()) == len(guarantee.releases)
    True
    >>> guarantee.second_opinion() <= 1.001  # by dp_accounting
    True
    """

    epsilon: float
    delta: float
    relation: Relation
    composition: Composition
    releases: tuple[Release, ...]
    rows_per_user: int = 1
    parts: tuple[tuple[str, tuple[Guarantee, ...]], ...] = field(default=(), repr=False)
    noise_is_secret: bool = field(default=True, compare=False, repr=False)
    fits: Fits | None = field(default=None, compare=False, repr=False)
    has_groups: bool = field(default=False, compare=False, repr=False)

    @classmethod
    def of(
        cls,
        budget: PrivacyBudget,
        releases: Iterable[Release],
        composition: Composition | None = None,
    ) -> Guarantee:
        """Of releases that were planned within a budget, by default in its own currency."""
        composition = composition or budget.allowance.kind
        claim = budget.epsilon, budget.delta, budget.relation
        return cls(*claim, composition, tuple(releases), budget.rows_per_user)

    @classmethod
    def of_parts(cls, budget: PrivacyBudget, composition: Composition, parts: Forks) -> Guarantee:
        """The guarantee of parts that were planned within shares of a budget."""
        named = tuple((name, tuple(alternatives)) for name, alternatives in parts)
        claim = budget.epsilon, budget.delta, budget.relation
        return cls(*claim, composition, (), budget.rows_per_user, named)

    def __post_init__(self) -> None:
        budget, is_void = PrivacyBudget(self.epsilon, self.delta, self.relation), self.is_void
        if budget.is_infinite != is_void:
            raise AssertionError("epsilon is infinite if and only if there is no noise")
        for name, alternatives in self.parts:
            if any(part.rows_per_user != self.rows_per_user for part in alternatives):
                raise AssertionError(f"{name} is for users of another number of rows")
        if self.parts:
            releases = tuple(release for _, part in self._costliest for release in part.releases)
            self.__dict__.update(releases=releases)
        # numbers for which a cost says nothing; NaN must not pass
        of_scale = "scale of 0" if is_void else "finite scale > 0"
        for release in self.releases:
            sensitivity, scale = release.mechanism.sensitivity, release.mechanism.scale
            is_right = scale == 0 if is_void else 0 < scale < math.inf
            if not 0 <= sensitivity < math.inf or not is_right:
                raise AssertionError(
                    f"the release {release.name!r} needs a finite sensitivity >= 0 and a "
                    f"{of_scale}, got {sensitivity!r} and {scale!r}"
                )
            if not isinstance(release.count, Integral) or release.count < 1:
                raise AssertionError(
                    f"the count of the release {release.name!r} must be an integer >= 1, "
                    f"got {release.count!r}"
                )
        rows = self.rows_per_user
        if not isinstance(rows, Integral) or rows < 1:
            raise AssertionError(f"rows_per_user must be an integer >= 1, got {rows!r}")
        if is_void:
            return
        if (slack := self.slack) and self.composition not in ("zcdp", "gdp"):
            raise AssertionError(f"no {self.composition} guarantee allows for slack")
        # what the costs may add up to next to it, which is not divided
        budget = replace(budget, delta=self.delta - slack)
        if self.composition == "adaptive-range":
            spent, count, mu = selections_game(self.releases, rows)
            if count and not has_optimum(self.epsilon, self.delta, count):
                raise ValueError("so many selections have no adaptive-range guarantee here")
            limit = selection_epsilon(float(self.epsilon), float(self.delta), count, mu)
        else:
            limits = {"zcdp": budget.rho, "gdp": budget.mu**2 / 2, "pure": budget.epsilon}
            spent, limit = self.cost(self.composition), limits.get(self.composition, budget.delta)
        # what is converted has room for that; an epsilon or a delta is the claim itself
        rounding = 1.0 if self.composition in ("pure", "pld", "renyi") else ROUNDING
        # A plan that overspends is a defect of the package, not a user's error.
        if not spent <= limit * rounding:  # NaN must not pass
            raise AssertionError("a plan spends more than its budget")

    def of_fit(self, **known: Any) -> Guarantee:
        """The same, which was checked, with what is known of a fit: see the last attributes."""
        found = shallow_copy(self)
        found.__dict__.update(known)
        return found

    @property
    def is_void(self) -> bool:
        """Whether there is no noise, and nothing is claimed."""
        return self.composition == "none"

    @property
    def noise_is_exact(self) -> bool:
        """Whether all noise on numbers has its law to the last bit, which may all be seen then.

        With ``precision="float"`` the last digits tell what the noise was added to. Also True where
        there is none.
        """
        if self.is_void:
            return True
        if self.parts:
            return all(part.noise_is_exact for _, options in self.parts for part in options)
        added = (r.mechanism for r in self.releases if not r.mechanism.selects)
        return all(getattr(noise, "precision", "exact") == "exact" for noise in added)

    @property
    def slack(self) -> float:
        """The part of delta with which releases may tell what their costs do not cover."""
        if self.parts:
            return sum(max(part.slack for part in options) for _, options in self.parts)
        return sum(release.count * release.mechanism.slack for release in self.releases)

    @property
    def claim(self) -> str:
        """Epsilon, delta and the relation in words, and against whom they do not hold."""
        text = self._sizes
        text += ", but not of the last digits (precision='float')" * (not self.noise_is_exact)
        return text + ", NOT PRIVATE: random_state was given" * (not self.noise_is_secret)

    @property
    def _sizes(self) -> str:
        sizes = f"epsilon = {stated(self.epsilon)}, delta = {stated(self.delta)}"
        return f"{sizes}, {self.relation} neighbours"

    def overview(self) -> Overview:
        """What is promised, the claim, and a row for each release, or for each part."""
        lines = [promise(self, self.noise_is_secret, self.noise_is_exact)]
        lines += self.fits.lines if self.fits else []
        of_parts = f" of {len(self.parts)} parts" if self.parts else ""
        if not self.is_void:
            lines.append(f"{self._sizes}, {self.composition} composition{of_parts}")
        if self.rows_per_user > 1:
            lines.append(f"  for users of up to {self.rows_per_user} rows")
        if self.slack:
            slack = stated(self.slack, 2)
            lines.append(f"  {slack} of delta is the risk that something is told outright")
        if self.parts:
            rows: list[tuple[str, ...]] = [
                (name, f"{share:.1%}", str(sum(release.count for release in part.releases)))
                for (name, part), (_, share) in zip(self._costliest, self.shares(), strict=True)
            ]
            layout = "  {:32s} {:>6s} {:>9s}"
            return Overview(tuple(lines), ("part", "share", "releases"), layout, rows)
        has_groups = any(release.group for release in self.releases)
        columns = ("release", "uses", "mechanism", "sensitivity", "noise scale", "records")
        rows = [
            (name, str(count), kind, f"{change:.4g}", f"{scale:.4g}", group or "")[: 5 + has_groups]
            for name, count, kind, change, scale, group in map(_facts, self.releases)
        ]
        name = max([16, *(len(row[0]) for row in rows)])
        kind = max([12, *(len(row[2]) for row in rows)])
        layout = f"  {{:{name}s}} {{:>5s}}  {{:{kind}s}} {{:>11s}} {{:>12s}}" + "  {}" * has_groups
        return Overview(tuple(lines), columns[: 5 + has_groups], layout, rows, _MOST_SHOWN)

    def report(self, *, dataset: str | None = None, purpose: str | None = None) -> Report:
        """One page for someone without mathematics: who is protected, against what, and how well.

        Parameters
        ----------
        dataset, purpose : str or None, default=None
            As in `BudgetAccountant.report`.

        Returns
        -------
        Report
            ``print`` shows it, as does a notebook, and ``to_json()`` has the facts.

        Examples
        --------
        >>> from sklearn_dpsco import DPLinearRegression
        >>> model = DPLinearRegression(epsilon=1.0, delta=1e-6, bounds_X=(0, 1), bounds_y=(0, 1))
        >>> guarantee = model.plan(5000, 4).guarantee
        >>> guarantee.report().overview().lines[1] == guarantee.overview().lines[0]
        True
        """
        found: list[tuple[str | None, Guarantee]] = [
            (f"part {k} of {len(self.parts)}: {name}", part)
            for k, (name, part) in enumerate(self._costliest, 1)
        ] or [(None, self)]
        releases = [(*_facts(r), part) for part, one in found for r in one.releases]
        return of_guarantee(self, releases, dataset=dataset, purpose=purpose)

    def shares(self) -> list[tuple[str, float]]:
        """What each release, or each part, takes of the plan's total.

        Returns
        -------
        list of (str, float)
            Names, with the records if they are not all, and shares as in `to_frame`. Those of
            parts with random batches are of what they would cost without their randomness.
        """
        if not self.parts:
            names = [f"{r.name} ({r.group})" if r.group else r.name for r in self.releases]
            return list(zip(names, self._shares_of_releases(), strict=True))
        currency = _additive(self.composition)
        total = self.cost(currency)
        return [(name, part.cost(currency) / total) for name, part in self._costliest]

    def _shares_of_releases(self) -> list[float]:
        if self.is_void:
            return [math.nan] * len(self.releases)
        currency: Composition = "pure" if self.composition == "pure" else "zcdp"
        # costs of releases are those of one row
        total = self.cost(currency) / self.rows_per_user ** (1 if currency == "pure" else 2)
        return [release.cost(currency) / total for release in self.releases]

    @property
    def spent(self) -> float:
        """Total cost in the currency of `composition`: rho, mu^2 / 2, or epsilon if pure.

        For "adaptive-range", "pld" and "renyi" it is the delta that is proved at `epsilon`.
        """
        return self.cost(self.composition)

    def cost(self, composition: Composition) -> float:
        """Total cost for the worst record under another composition."""
        if self.is_void:
            return math.inf
        if composition in _OF_DELTA:
            return self._delta(composition, self.epsilon)
        # parts count rows by themselves
        rows = 1 if self.parts else self.rows_per_user
        factor = rows ** (1 if composition == "pure" else 2)
        return factor * self._borne(methodcaller("cost", composition))

    def _delta(self, composition: Composition, epsilon: float) -> float:
        """Of `_OF_DELTA`, which have no costs that add up, the delta at `epsilon`."""
        if composition == "adaptive-range":
            game = selections_game(self.releases, self.rows_per_user)
            return selection_delta(epsilon, *game, self.delta)
        if composition == "pld":
            from . import events

            return events.pld_delta(self.dp_event, epsilon, self.epsilon)
        return renyi_delta(self.renyi, epsilon, PrivacyBudget(self.epsilon, self.delta).best_order)

    def _borne(self, cost: Callable[[Any], float]) -> float:
        """What the worst record bears, of the costliest alternative of each part or of releases."""
        if self.parts:
            return sum(max(map(cost, options)) for _, options in self.parts)
        return sum(map(cost, worst(self.releases, cost)))

    @property
    def _costliest(self) -> list[tuple[str, Guarantee]]:
        """Of the alternatives of each part the one that costs most in the currency of all."""
        cost = methodcaller("cost", _additive(self.composition))
        return [(name, max(options, key=cost)) for name, options in self.parts]

    def renyi(self, order: float) -> float:
        """Renyi divergence of this order (above 1), for the worst record; delta must be above 0.

        What a Renyi filter charges; at most `order` times the cost in rho.
        """
        if self.is_void:
            return math.inf
        if self.parts or self.rows_per_user == 1:
            return self._borne(methodcaller("renyi", order))
        pure = self.cost("pure") if self.composes_in("pure") else math.inf
        return min(order * self.cost("zcdp"), pure)

    # -------------------------------------------------------------- the whole privacy curve

    def delta_at(self, epsilon: float) -> float:
        """Smallest delta that is proved at another epsilon >= 0.

        The least over all analyses that hold for these releases: that of `composition`, and zCDP,
        Gaussian DP and pure DP where all have a cost there. At most `delta` from `epsilon` on.
        """
        epsilon = check_real("epsilon", epsilon, low=0)
        found = [1.0] if epsilon < self.epsilon else [1.0, self.delta]
        currencies: tuple[Composition, ...] = "pure", "zcdp", "gdp"
        for currency in filter(self.composes_in, currencies):
            found.append(self.slack + cost_delta(currency, self.cost(currency), epsilon))
        if self.composition in _OF_DELTA:
            found.append(math.nextafter(self._delta(self.composition, epsilon), 1.0))
        return min(found)

    def epsilon_at(self, delta: float) -> float:
        """Smallest epsilon that is proved at another delta in [0, 1); inf if none is.

        To one part in 1e9, from above.
        """
        delta = check_real("delta", delta, low=0, high=1, high_open=True)
        if delta == 0:
            return self.cost("pure") if self.composes_in("pure") else math.inf
        if self.is_void or delta <= self.slack:
            return math.inf
        low, high = 0.0, self.epsilon
        if self.delta_at(low) <= delta:
            return low
        while self.delta_at(high) > delta:
            low, high = high, 2 * high
            if high > _LARGEST_EPSILON * max(1.0, self.epsilon):
                return math.inf
        return bracketed(lambda epsilon: self.delta_at(epsilon) <= delta, 1e-9, low, high)[1]

    @property
    def mu(self) -> float | None:
        """Smallest mu of Gaussian DP that is proved; None where there is none."""
        if self.slack or not self.composes_in("gdp"):
            return None
        mu = math.sqrt(2 * self.cost("gdp"))
        return mu if math.isfinite(mu) else None

    def trade_off(self, alpha: float) -> float:
        r"""Least false-negative rate of a test of two neighbours, alpha in [0, 1] the other rate.

        A lower bound on the trade-off curve f: :math:`\Phi(\Phi^{-1}(1 - \alpha) - \mu)` where
        there is a `mu`, and :math:`\sup_\epsilon \max(1 - \delta - e^\epsilon \alpha,
        e^{-\epsilon} (1 - \delta - \alpha))` over the pairs of `delta_at`.
        """
        alpha = check_real("alpha", alpha, low=0, high=1)
        bounds, mu = [0.0], self.mu
        for epsilon, delta in self._pairs:
            # at alpha = 0 all but delta, and nothing where e^epsilon alpha is above 1
            lost = math.exp(min(epsilon + math.log(alpha), 0.0)) if alpha > 0 else 0.0
            bounds += [1 - delta - lost, math.exp(-epsilon) * (1 - delta - alpha)]
        if mu is not None:
            bounds.append(float(ndtr(-ndtri(alpha) - mu)))  # 1 - alpha would be rounded
        return max(bounds)

    @cached_property
    def _pairs(self) -> list[tuple[float, float]]:
        """Points of the curve, which are dense where trade-off curves bend."""
        if self.is_void:
            return []
        grid = [self.epsilon * k / 16 for k in range(17)]
        end = self.epsilon_at(max(self.delta * 1e-2, 1e-12)) if self.delta > 0 else 0.0
        if math.isfinite(end):
            grid += [end * k / 32 for k in range(1, 33)]
        return [(epsilon, self.delta_at(epsilon)) for epsilon in sorted(grid)]

    def composes_in(self, composition: str) -> bool:
        """Whether all releases have a cost in "zcdp", "gdp" or "pure"."""
        if self.is_void:  # also if nothing is released
            return False
        if self.parts:
            return all(one.composes_in(composition) for _, some in self.parts for one in some)
        return all(composition in r.mechanism.compositions for r in self.releases)

    def to_frame(self) -> Any:
        """The releases as a pandas data frame, one row each.

        Columns: release, uses, mechanism, sensitivity, scale, records (the group, None for all),
        and share, of the plan's total in rho (in epsilon for delta = 0). Shares on all records and
        of any one group add up to at most 1; without noise they are NaN.
        """
        columns = ("release", "uses", "mechanism", "sensitivity", "scale", "records", "share")
        shares = zip(self.releases, self._shares_of_releases(), strict=True)
        rows = [(*_facts(release), share) for release, share in shares]
        return import_pandas("Guarantee.to_frame").DataFrame(rows, columns=columns)

    @property
    def dp_event(self) -> Any:
        """The releases as a `dp_accounting` event, for a second opinion on epsilon.

        For "zcdp" use the RDP accountant with orders up to 1e5, as its default orders are too
        coarse; for "gdp" the PLD accountant, or, below a delta of 1e-13, `get_epsilon_gaussian`;
        for "pld" with Poisson batches the PLD accountant. Batches of a fixed size are only known to
        its RDP accountant, with the REPLACE_ONE relation, which asks for more than is needed. For
        "pure" use the PLD accountant with the REPLACE_ONE relation and a tiny delta: each event is
        a binary response with the epsilon of the release, whatever the relation of this guarantee.
        Selections in "gdp" are the Gaussian noise that bounds them.
        Of groups on disjoint records and of alternatives, the event holds the one that costs most;
        in "pld" an event that only `second_opinion` knows stands for all of them.

        That library has no event for `slack`: ask for epsilon at delta less `slack`.

        No accountant of it knows "adaptive-range": its `AdaptiveSelectionsDpEvent` says
        what was composed, and they refuse it (`UnsupportedEventError`). Without noise it is a
        `NonPrivateDpEvent`.
        """
        from . import events

        if self.is_void:
            return events.dp_event.NonPrivateDpEvent()
        if self.composition == "adaptive-range":
            eta, count, _ = selections_game(self.releases, self.rows_per_user)
            noise = [release for release in self.releases if release.mechanism.log_range is None]
            parts = [release.dp_event("gdp", self.rows_per_user) for release in noise]
            return events.composed([*parts, events.AdaptiveSelectionsDpEvent(eta, count)])
        if not self.parts:
            return composed_event(self.releases, self.composition, self.rows_per_user)
        if self.composition == "pld":
            forks = [[part._event_among_batches() for part in options] for _, options in self.parts]
            return events.composed([events.one_of(options) for options in forks])
        return events.composed([part.dp_event for _, part in self._costliest])

    def _event_among_batches(self) -> Any:
        """Next to random batches, what has none adds up with them as Gaussian noise."""
        if self.composition == "pld":
            return self.dp_event
        return composed_event(self.releases, "gdp", self.rows_per_user)

    def second_opinion(self) -> float:
        """Epsilon at `delta` that `dp_accounting` computes for `dp_event`.

        At most `epsilon`, up to the resolution of its accountants (a few parts in 1e4): Renyi DP
        with dense orders for "zcdp", all noise as one Gaussian for "gdp", privacy loss
        distributions for "pld" and each release of "pure". The distribution of batches of a fixed
        size is made here (doc/privacy, section 2.6). Next to random batches, what is not Gaussian
        counts as if it were. That library has no event for `slack`: it is taken from delta first.

        Raises
        ------
        dp_accounting.privacy_accountant.UnsupportedEventError
            For "adaptive-range", which that library does not know.
        """
        if self.is_void:
            return math.inf
        from . import events

        composition, delta = self.composition, self.delta - self.slack
        if composition == "renyi" and self.parts:
            borne = (
                max(options, key=lambda p: p.renyi(PrivacyBudget(p.epsilon, p.delta).best_order))
                for _, options in self.parts
            )
            composition, event = "pld", events.composed([p._event_among_batches() for p in borne])
        else:
            event = self.dp_event
        return events.second_opinion(event, composition, self.epsilon, delta)


def _facts(release: Release) -> tuple[str, int, str, float, float, str | None]:
    mechanism = release.mechanism
    kind, change = type(mechanism).__name__, mechanism.sensitivity
    return release.name, release.count, kind, change, mechanism.scale, release.group


def selections_game(releases: Sequence[Release], rows: int) -> tuple[float, int, float]:
    """Range and number of the selections, and mu of the releases with Gaussian noise."""
    ranges, count, gaussian = [0.0], 0, 0.0
    for release in releases:
        mechanism = release.mechanism
        if release.group is None and mechanism.log_range is not None:
            ranges.append(mechanism.log_range)
            count += release.count
        elif release.group is None and mechanism.noise_multiplier is not None:
            gaussian += release.cost("gdp")
        else:
            raise ValueError(f"{release.name} has no adaptive-range guarantee")
    return rows * max(ranges), count, rows * math.sqrt(2 * gaussian)


def composed_event(releases: Sequence[Release], composition: str, rows: int = 1) -> Any:
    """The releases that may read one record as one event, for so many rows of a user."""
    from . import events

    def together(some: Iterable[Release]) -> Any:
        return events.composed([release.dp_event(composition, rows) for release in some])

    on_all, groups = _grouped(releases)
    if composition == "pld" and len(groups) > 1:  # costs leave out what sampling hides
        return events.composed([together(on_all), events.one_of([*map(together, groups)])])
    return together(worst(releases, lambda release: release.cost(_additive(composition))))


def worst(releases: Iterable[Release], cost: Callable[[Release], float]) -> list[Release]:
    """What the worst record bears: the releases on all records, and those of a costliest group."""
    on_all, groups = _grouped(releases)
    return on_all + max(groups, key=lambda group: sum(map(cost, group)), default=[])


def _grouped(releases: Iterable[Release]) -> tuple[list[Release], list[list[Release]]]:
    """The releases on all records, and those of each group."""
    groups: dict[str | None, list[Release]] = {None: []}
    for release in releases:
        groups.setdefault(release.group, []).append(release)
    return groups.pop(None), list(groups.values())


def _additive(composition: Any) -> Any:
    """The currency in which parts, and groups, are compared."""
    return "zcdp" if composition in ("renyi", "pld") else composition
