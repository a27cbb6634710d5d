"""Privacy budgets, their conversion, and the guarantee that a plan exports.

The currency of composition is rho of zero-concentrated DP (zCDP) where delta > 0, and
epsilon of pure DP where delta = 0. This is the only module that imports `dp_accounting`,
and it does so when an event is asked for.
"""

from __future__ import annotations

import math
import os
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import erfcx, log_ndtr

from ._checks import check_choice, check_real
from ._selection_accounting import selection_delta, selection_epsilon
from .exceptions import PrivacyBudgetError

if TYPE_CHECKING:
    from .mechanisms import Release

__all__ = [
    "Allowance",
    "BudgetAccountant",
    "Guarantee",
    "ParallelGroup",
    "PrivacyBudget",
    "accountant_in_force",
    "active_accountant",
    "zcdp_delta",
]

RELATIONS = ("replace-one", "zero-out")
PRECISIONS = ("exact", "float")
CURRENCIES = ("auto", "zcdp")

Composition = Literal["zcdp", "gdp", "pure", "adaptive-range", "rdp", "pld"]
Precision = Literal["exact", "float"]


def zcdp_delta(rho: float, epsilon: float) -> float:
    r"""Smallest delta that the Renyi curve of rho-zCDP proves at `epsilon`.

    .. math:: \delta = \min_{\alpha > 1}
        \frac{e^{(\alpha - 1)(\alpha \rho - \epsilon)}}{\alpha - 1}
        \left(1 - \frac{1}{\alpha}\right)^{\alpha}

    Canonne, Kamath and Steinke (2020), Proposition 12. Every alpha gives a valid delta,
    so an inexact minimizer errs on the private side.
    """
    if rho <= 0:
        return 0.0

    log_gap = _best_log_gap(rho, epsilon)
    if log_gap is None:
        return 1.0  # rho so large that no alpha proves anything
    gap = math.exp(log_gap)
    alpha = 1 + gap
    log_ratio = -math.log1p(1 / gap)  # log(1 - 1 / alpha)
    log_delta = gap * (alpha * rho - epsilon) - math.log(gap) + alpha * log_ratio
    return math.exp(min(0.0, log_delta))


def _best_log_gap(rho: float, epsilon: float) -> float | None:
    """log(alpha - 1) of the order that gives the smallest delta, None if there is none."""

    # the derivative of log(delta) in alpha, increasing in alpha
    def slope(log_gap: float) -> float:
        gap = math.exp(log_gap)
        return (1 + 2 * gap) * rho - epsilon + log_gap - math.log1p(gap)

    low, high = -700.0, 40.0
    if slope(low) >= 0:
        return None
    while slope(high) < 0:
        high *= 2
    return float(brentq(slope, low, high, xtol=1e-12))


_SMALL_MU = 1e-4


def _gaussian_delta(mu: float, epsilon: float) -> float:
    a, b = -epsilon / mu + mu / 2, -epsilon / mu - mu / 2
    if mu < _SMALL_MU:
        # the Mills ratio at -a less that at -b = mu - a, under one density: in floats that
        # would be all error. The slope at -a times mu is above it by a factor of 1 + mu at most.
        mills = math.sqrt(math.pi / 2) * erfcx(-a / math.sqrt(2))
        return mu * max(0.0, 1 + a * mills) * math.exp(-a * a / 2) / math.sqrt(2 * math.pi)
    return math.exp(log_ndtr(a)) - math.exp(epsilon + log_ndtr(b))


def _largest(delta_of: Any, delta: float) -> float:
    """Largest x with delta_of(x) <= delta: the low end of a bisection bracket."""
    high = 1.0
    while delta_of(high) <= delta:
        high *= 2
    low = 0.0
    for _ in range(200):
        middle = (low + high) / 2
        if not low < middle < high or high - low <= 1e-13 * high:
            break
        if delta_of(middle) <= delta:
            low = middle
        else:
            high = middle
    return low


@lru_cache(maxsize=4096)
def _rho(epsilon: float, delta: float) -> float:
    # one part in 1e10 covers the float error of the conversion itself
    return _largest(lambda rho: zcdp_delta(rho, epsilon), delta) * (1 - 1e-10)


@lru_cache(maxsize=4096)
def _mu(epsilon: float, delta: float) -> float:
    return _largest(lambda mu: _gaussian_delta(mu, epsilon), delta) * (1 - 1e-10)


def _epsilon(rho: float, delta: float) -> float:
    """Largest epsilon whose (epsilon, delta) rho-zCDP just fails to prove; 0 if none."""
    return _largest(lambda epsilon: -zcdp_delta(rho, epsilon), -delta) if rho > 0 else 0.0


@dataclass(frozen=True)
class Allowance:
    """A part of a budget in the currency that its mechanisms compose in.

    Parameters
    ----------
    kind : {"zcdp", "gdp", "pure"}
    amount : float
        rho for "zcdp", mu^2 / 2 for "gdp" (Gaussian DP), epsilon for "pure". A Gaussian
        release of sensitivity Delta costs Delta^2 / (2 sigma^2) of either of the first two.
    precision : {"exact", "float"}
        Arithmetic of the noise that is bought with it.
    """

    kind: Composition
    amount: float
    precision: Precision = "exact"

    def __post_init__(self) -> None:
        # Guards against shares that add up to more than 1: a defect here, never a user's error.
        if not 0 <= self.amount < math.inf:
            raise AssertionError("an allowance must not be negative")

    def share(self, fraction: float) -> Allowance:
        """The given fraction of this allowance."""
        return Allowance(self.kind, self.amount * fraction, self.precision)


@dataclass(frozen=True)
class PrivacyBudget:
    """The guarantee that a user asks for.

    Parameters
    ----------
    epsilon : float > 0
    delta : float in [0, 1)
        0 asks for pure epsilon-DP.
    relation : {"replace-one", "zero-out"}
        Neighbouring tables have the same number of rows and differ in one row
        ("replace-one"), or one row is replaced by one that contributes nothing
        ("zero-out"). Zero-out (epsilon, delta) implies replace-one
        (2 epsilon, (1 + e^epsilon) delta).
    precision : {"exact", "float"}
        Arithmetic of the noise; "float" is not safe against attacks on low bits.
    currency : {"auto", "zcdp"}
        "zcdp" for plans that an accountant adds up with others of any kind; "auto" lets a
        plan take the analysis that is best for it alone.
    """

    epsilon: float
    delta: float = 1e-6
    relation: str = "replace-one"
    precision: Precision = "exact"
    currency: Literal["auto", "zcdp"] = "auto"

    def __post_init__(self) -> None:
        check_real("epsilon", self.epsilon, low=0, low_open=True)
        check_real("delta", self.delta, low=0, high=1, high_open=True)
        check_choice("relation", self.relation, RELATIONS)
        check_choice("precision", self.precision, PRECISIONS)
        check_choice("currency", self.currency, CURRENCIES)

    @property
    def is_pure(self) -> bool:
        """True if delta is 0."""
        return self.delta == 0

    @cached_property
    def rho(self) -> float:
        """Largest rho such that rho-zCDP implies (epsilon, delta)-DP; 0 if delta is 0."""
        return 0.0 if self.is_pure else _rho(float(self.epsilon), float(self.delta))

    @cached_property
    def mu(self) -> float:
        """Largest mu such that mu-Gaussian-DP implies (epsilon, delta)-DP; 0 if delta is 0."""
        return 0.0 if self.is_pure else _mu(float(self.epsilon), float(self.delta))

    @property
    def allowance(self) -> Allowance:
        """The whole budget: epsilon if delta is 0, else rho."""
        if self.is_pure:
            return Allowance("pure", self.epsilon, self.precision)
        return Allowance("zcdp", self.rho, self.precision)

    @property
    def gaussian_allowance(self) -> Allowance:
        """The whole budget for a plan whose releases are all Gaussian: mu^2 / 2 if allowed."""
        if self.is_pure or self.currency == "zcdp":
            return self.allowance
        return Allowance("gdp", self.mu**2 / 2, self.precision)

    @property
    def record_factor(self) -> float:
        """Factor on every term of a sensitivity that comes from a record: 2 or 1."""
        return 2.0 if self.relation == "replace-one" else 1.0


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

    def __post_init__(self) -> None:
        budget = PrivacyBudget(self.epsilon, self.delta, self.relation)
        if self.composition == "adaptive-range":
            spent, count, mu = self._selections()
            limit = selection_epsilon(float(self.epsilon), float(self.delta), count, mu)
        else:
            limits = {"zcdp": budget.rho, "gdp": budget.mu**2 / 2}
            spent, limit = self.spent, limits.get(self.composition, budget.epsilon)
        # Guards against a plan that overspends: a defect here, never a user's error.
        if not spent <= limit * (1 + 1e-12):  # NaN must not pass
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
            from ._subsampling import event_epsilon

            return event_epsilon(self.dp_event, composition, self.epsilon, self.delta)
        return self.repetitions * sum(
            r.count * r.mechanism.cost(composition) for r in self._worst(composition)
        )

    def _selections(self) -> tuple[float, int, float]:
        """Range and number of the selections, and mu of the Gaussian releases."""
        from .mechanisms import Gaussian, SelectVertex

        ranges, count, gaussian = [0.0], 0, 0.0
        for release in self.releases:
            mechanism = release.mechanism
            if release.group is None and isinstance(mechanism, Gaussian):
                gaussian += release.count * mechanism.cost("gdp")
            elif release.group is None and isinstance(mechanism, SelectVertex):
                ranges.append(mechanism.log_range)
                count += release.count
            else:
                raise ValueError(f"{release.name} has no adaptive-range guarantee")
        mu = math.sqrt(2 * (self.repetitions * gaussian))
        return max(ranges), self.repetitions * count, mu

    def _worst(self, composition: Composition) -> tuple[Release, ...]:
        """The releases on all records and those of the group that costs most."""
        groups: dict[Any, list[Release]] = {}
        for release in self.releases:
            groups.setdefault(release.group, []).append(release)
        common = groups.pop(None, [])
        largest: list[Release] = max(
            groups.values(),
            key=lambda group: sum(r.count * r.mechanism.cost(composition) for r in group),
            default=[],
        )
        return (*common, *largest)

    @property
    def dp_event(self) -> Any:
        """The releases as a `dp_accounting` event, for a second opinion on epsilon.

        For "zcdp" use the RDP accountant with orders up to 1e5, as its default orders are
        too coarse; for "gdp" the PLD accountant; for "rdp" the RDP accountant with the
        REPLACE_ONE relation; for "pld" the PLD accountant. For "pure" use the PLD accountant with
        the REPLACE_ONE relation and a tiny delta: each event is the binary response that
        has exactly this epsilon, which a claim under either relation of ours means by it.
        Of groups on disjoint records, the event holds the one that costs most.

        No accountant of that library knows the composition of "adaptive-range". Its event,
        an `AdaptiveSelectionsDpEvent` next to the Gaussian ones, says what was composed,
        and accountants refuse it (`UnsupportedEventError`) instead of guessing.
        """
        from dp_accounting import dp_event

        if self.composition == "adaptive-range":
            return self._selections_event()
        events: list[Any] = []
        for release in self._worst(self.composition):
            count = release.count * self.repetitions
            event = release.mechanism.dp_event(self.composition)
            if self.composition == "pure":
                # the PLD accountant ignores the count of a self-composed event here
                events.extend([event] * count)
            else:
                events.append(dp_event.SelfComposedDpEvent(event, count))
        return dp_event.ComposedDpEvent(events) if events else dp_event.NoOpDpEvent()

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
        from dp_accounting.pld import PLDAccountant
        from dp_accounting.privacy_accountant import NeighboringRelation
        from dp_accounting.rdp import RdpAccountant

        if self.composition in ("rdp", "pld"):
            return self.spent
        event, grid = self.dp_event, self.epsilon * 1e-4
        accountant: Any = PLDAccountant(value_discretization_interval=grid)
        if self.composition in ("zcdp", "adaptive-range"):
            # the default orders stop at 512, too coarse for small epsilon
            orders = [*(1 + np.geomspace(1e-3, 1, 150)), *np.geomspace(2.01, 1e5, 1500)]
            accountant = RdpAccountant(orders)
        elif self.composition == "pure":
            grid /= 10 * (len(getattr(event, "events", ())) + 2)
            # binary response is not defined under add-or-remove
            accountant = PLDAccountant(
                NeighboringRelation.REPLACE_ONE, value_discretization_interval=grid
            )
        delta = 0.0 if self.composition == "pure" else self.delta
        return float(accountant.compose(event).get_epsilon(delta))

    def _selections_event(self) -> Any:
        """The Gaussian releases, then all selections as one event."""
        from dp_accounting import dp_event

        from ._dp_events import AdaptiveSelectionsDpEvent
        from .mechanisms import Gaussian

        eta, count, _ = self._selections()
        events: list[Any] = [
            dp_event.SelfComposedDpEvent(
                release.mechanism.dp_event("gdp"), release.count * self.repetitions
            )
            for release in self.releases
            if isinstance(release.mechanism, Gaussian)
        ]
        return dp_event.ComposedDpEvent([*events, AdaptiveSelectionsDpEvent(eta, count)])


# ----------------------------------------------------------------- several fits together

# Room for the float error of sums: as in `Guarantee`, covered by the margin on rho.
_ROUNDING = 1 + 1e-12


class _Branch:
    """Charges that may fall on the same record: its own, and the largest of each group.

    A charge is the vector (epsilon, rho, rho at one order) of `BudgetAccountant._cost`.
    """

    def __init__(self) -> None:
        self.own: NDArray[np.float64] = np.zeros(3)
        self.groups: list[list[_Branch]] = []

    def total(self) -> NDArray[np.float64]:
        total = self.own
        for group in self.groups:
            total = total + np.max([np.zeros(3), *(b.total() for b in group)], axis=0)
        return total


class ParallelGroup:
    """Branches that use disjoint records; made by `BudgetAccountant.parallel`."""

    def __init__(self, accountant: BudgetAccountant, branches: list[_Branch]) -> None:
        self._accountant = accountant
        self._branches = branches

    @contextmanager
    def branch(self) -> Iterator[None]:
        """Charges inside the ``with`` block fall on this branch's records only.

        The block covers the thread that it is opened in; what other threads spend
        meanwhile is charged outside the branch.
        """
        branch = _Branch()
        with self._accountant._locked():
            self._branches.append(branch)
        token = _open_branches.set((*_open_branches.get(), (self._accountant, branch)))
        try:
            yield
        finally:
            _open_branches.reset(token)


class BudgetAccountant:
    r"""A total budget that fits on the same records share, and the ledger of its charges.

    An estimator with ``accountant=`` charges its guarantee in full, after X and y are
    validated and before anything is computed from their values. A charge that would exceed
    the budget raises `PrivacyBudgetError` and is not made; a charge that was made is never
    refunded, not even if the fit then fails.

    As a context manager, the accountant of all fits in this process, whatever their thread,
    whose estimator has ``accountant=None``. Only one accountant's block can be open at a
    time; it may be opened again inside itself.

    Parameters
    ----------
    epsilon : float > 0
    delta : float in [0, 1), default=1e-6
        0 accepts only guarantees that compose purely.
    relation : {"replace-one", "zero-out"}, default="replace-one"
        As in `PrivacyBudget`. Guarantees under the other relation are refused.

    Attributes
    ----------
    budget : PrivacyBudget
        The total.

    Notes
    -----
    Releases are composed, not the epsilons of the fits. A charge is accepted if the total
    passes one of two tests:

    * *pure*: all guarantees on the ledger compose purely, and
      :math:`\sum \varepsilon_i \le \varepsilon`;
    * *zCDP*: :math:`\sum \min(\rho_i, \varepsilon_i / \alpha) \le \rho`, where
      :math:`\rho` is `PrivacyBudget.rho` of the total and :math:`\alpha` the order at which
      its conversion is best. :math:`\rho_i` adds up the releases' costs in zCDP
      (:math:`\varepsilon_t^2 / 2` for a pure release, :math:`\varepsilon_t^2 / 8` for a
      selection with Gumbel noise), and :math:`\varepsilon_i` is infinite for guarantees
      that do not compose purely.

    Each summand of the second test, times alpha, bounds the Renyi divergence of order alpha,
    so that the sum is a Renyi filter (Feldman and Zrnic 2021): the budget holds also if fits
    are chosen after looking at the results of earlier ones. Outcomes that pass the pure test
    need no delta, so either test may be used.

    Plans of fits under an accountant are made in zCDP, so that they add up whatever their
    mechanisms are. A plan of Gaussian noise alone has up to 9 % more noise then than it would
    have by itself.

    Copies (`copy.copy`, `copy.deepcopy`, `sklearn.clone`) are the same object, so every fit
    of a search is charged. A pickle holds an identifier only. Loaded in the process of the
    accountant, it gives the accountant; elsewhere it gives an object that refuses every
    charge, so fits in other processes (``n_jobs > 1``) fail. An estimator that is pickled or
    copied while a block is open takes the block's accountant along as its `accountant`.

    Examples
    --------
    >>> from sklearn_dpsco import BudgetAccountant, DPLassoFW
    >>> accountant = BudgetAccountant(epsilon=1.0, delta=1e-6)
    >>> model = DPLassoFW(epsilon=0.5, accountant=accountant)
    """

    def __init__(self, epsilon: float, delta: float = 1e-6, relation: str = "replace-one") -> None:
        self.budget = PrivacyBudget(epsilon, delta, relation)
        log_gap = None if self.budget.is_pure else _best_log_gap(self.budget.rho, float(epsilon))
        self._order = 1.0 if log_gap is None else 1 + math.exp(log_gap)
        self._id = uuid.uuid4().hex
        self._pid: int | None = os.getpid()
        self._lock = threading.Lock()
        self._root = _Branch()
        self._ledger: list[Guarantee] = []
        _accountants[self._id] = self

    @property
    def ledger(self) -> tuple[Guarantee, ...]:
        """The guarantees that were charged, in order."""
        with self._locked():
            return tuple(self._ledger)

    def spend(self, guarantee: Any) -> None:
        """Charge a guarantee, or the guarantee of a plan.

        Parameters
        ----------
        guarantee : Guarantee or Plan

        Raises
        ------
        PrivacyBudgetError
            If the total would exceed the budget, the relation is not the budget's, the
            budget has delta=0 and the guarantee does not compose purely, or this is not
            the process of the accountant. Nothing is charged then.
        ValueError
            If `guarantee` is neither a guarantee nor a plan.
        """
        guarantee = getattr(guarantee, "guarantee", guarantee)
        if not isinstance(guarantee, Guarantee):
            raise ValueError(f"guarantee must be a Guarantee or a Plan, got {guarantee!r}")
        with self._locked():
            if guarantee.relation != self.budget.relation:
                raise PrivacyBudgetError(
                    f"the accountant's relation is {self.budget.relation!r}, that of the "
                    f"guarantee {guarantee.relation!r}"
                )
            branch = self._branch()
            before = branch.own
            branch.own = before + self._cost(guarantee)
            epsilon, _, rho = self._root.total()
            if not self._allows(epsilon, rho):
                branch.own = before
                raise PrivacyBudgetError(self._refusal(epsilon, rho))
            self._ledger.append(guarantee)

    def remaining(self, delta: float | None = None) -> float:
        """Largest epsilon of one more fit, outside every parallel branch; 0 if none.

        A fit with this epsilon and `delta`, and the budget's relation, is accepted if its
        guarantee composes in zCDP (delta > 0) or purely (delta = 0). A guarantee with
        delta > 0 may compose purely, too (few selections); next to others that compose in
        zCDP it costs more, and may be refused.

        Parameters
        ----------
        delta : float in [0, 1) or None
            delta of that fit. None stands for the budget's.
        """
        epsilon, _, rho = self._total()
        delta = self.budget.delta if delta is None else delta
        delta = check_real("delta", delta, low=0, high=1, high_open=True)
        left = max(0.0, self.budget.rho - rho)
        if delta > 0:
            return _epsilon(left, delta)
        return max(0.0, self.budget.epsilon - epsilon, math.sqrt(2 * left), self._order * left)

    def total_spent(self) -> float:
        """Epsilon of the ledger at the budget's delta, 0 if nothing was charged.

        The smaller of the sum of epsilons (if all compose purely) and the epsilon of the sum
        of rho, and never above the budget's. It holds where the fits were fixed in advance;
        if later ones were chosen after looking at the results of earlier ones, the budget
        itself is the guarantee.
        """
        epsilon, rho, _ = self._total()
        if not self.budget.is_pure:
            # one part in 1e12: the other end of the bracket
            epsilon = min(epsilon, _epsilon(rho, self.budget.delta) * (1 + 1e-12))
        return float(min(epsilon, self.budget.epsilon))

    @contextmanager
    def parallel(self) -> Iterator[ParallelGroup]:
        """A group of branches on disjoint records, which cost the largest of them.

        You state that no record is used in two branches, and that the branch of a record
        is fixed without looking at its values, for example by row number: a changed value
        must not move a record to another branch. The largest total so far is charged, so a
        later branch is free up to that. Charges in the group but in no branch add up.

        Examples
        --------
        >>> from sklearn_dpsco import BudgetAccountant
        >>> accountant = BudgetAccountant(epsilon=1.0)
        >>> with accountant.parallel() as group:
        ...     with group.branch():
        ...         pass  # fits on the first half of the rows
        ...     with group.branch():
        ...         pass  # fits on the second half
        """
        branches: list[_Branch] = []
        with self._locked():
            self._branch().groups.append(branches)
        yield ParallelGroup(self, branches)

    def _cost(self, guarantee: Guarantee) -> NDArray[np.float64]:
        """Pure epsilon, rho, and what counts as rho at the budget's order."""
        rho = guarantee.cost("zcdp")
        if guarantee.composition == "pure":
            epsilon = guarantee.spent
        else:
            epsilon = math.inf if rho > 0 else 0.0
        return np.array([epsilon, rho, min(rho, epsilon / self._order)])

    def _allows(self, epsilon: float, rho: float) -> bool:
        budget = self.budget
        return bool(epsilon <= budget.epsilon * _ROUNDING or rho <= budget.rho * _ROUNDING)

    def _refusal(self, epsilon: float, rho: float) -> str:
        budget, pure = self.budget, math.isfinite(epsilon)
        if budget.is_pure and not pure:
            return "a budget with delta=0 accepts only guarantees that compose purely (delta=0)"
        totals = [f"epsilon {epsilon:.6g} of {budget.epsilon:.6g}"] if pure else []
        if not budget.is_pure:
            totals.append(f"rho {rho:.6g} of {budget.rho:.6g}")
        return (
            f"the budget (epsilon={budget.epsilon:.6g}, delta={budget.delta:.6g}) would be "
            f"exceeded: with this charge the total would be {' and '.join(totals)}; nothing was "
            "charged"
        )

    def _branch(self) -> _Branch:
        """The innermost open branch of this accountant, or its root."""
        for accountant, branch in reversed(_open_branches.get()):
            if accountant is self:
                return branch
        return self._root

    def _total(self) -> NDArray[np.float64]:
        with self._locked():
            return self._root.total()

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            raise PrivacyBudgetError(
                "this accountant lives in another process, or no longer exists: nothing can "
                "be charged to it here. Use n_jobs=1, or threads."
            )

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self._check_process()  # first: after a fork the lock may be held for ever
        with self._lock:
            yield

    def __enter__(self) -> BudgetAccountant:
        self._check_process()
        with _active_lock:
            if any(accountant is not self for accountant in _active):
                raise PrivacyBudgetError("the block of another accountant is open")
            _active.append(self)
        return self

    def __exit__(self, *exception: object) -> None:
        _active.pop()

    def __copy__(self) -> BudgetAccountant:
        return self

    def __deepcopy__(self, memo: object) -> BudgetAccountant:
        return self

    def __sklearn_clone__(self) -> BudgetAccountant:
        return self

    def __reduce__(self) -> Any:
        return _find_accountant, (self._id,)

    def __repr__(self) -> str:
        if self._pid is None:
            return "BudgetAccountant(<of another process>)"
        budget = self.budget
        return f"BudgetAccountant({budget.epsilon!r}, {budget.delta!r}, {budget.relation!r})"


_accountants: WeakValueDictionary[str, BudgetAccountant] = WeakValueDictionary()
_active: list[BudgetAccountant] = []  # one entry for each open block, all the same object
_active_lock = threading.Lock()
_open_branches: ContextVar[tuple[tuple[BudgetAccountant, _Branch], ...]] = ContextVar(
    "_open_branches", default=()
)


def active_accountant() -> BudgetAccountant | None:
    """The accountant whose block is open in this process, if any."""
    return next(iter(_active), None)


def accountant_in_force(accountant: Any) -> BudgetAccountant | None:
    """The accountant that a parameter of that name asks for: None is for the open block's."""
    if accountant is None:
        return active_accountant()
    if not isinstance(accountant, BudgetAccountant):
        raise ValueError(f"accountant must be None or a BudgetAccountant, got {accountant!r}")
    return accountant


def _find_accountant(identifier: str) -> BudgetAccountant:
    """What a pickle loads: the accountant if it lives here, else one that refuses."""
    stranger = BudgetAccountant.__new__(BudgetAccountant)
    stranger._id, stranger._pid = identifier, None
    return _accountants.setdefault(identifier, stranger)
