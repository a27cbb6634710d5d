"""Privacy budgets, their conversion, and the guarantee that a plan exports.

The currency of composition is rho of zero-concentrated DP (zCDP) where delta > 0, and
epsilon of pure DP where delta = 0. This is the only module that imports `dp_accounting`,
and it does so when an event is asked for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Literal

from scipy.optimize import brentq
from scipy.special import log_ndtr

from ._checks import check_choice, check_real

if TYPE_CHECKING:
    from .mechanisms import Release

__all__ = ["Allowance", "Guarantee", "PrivacyBudget", "zcdp_delta"]

RELATIONS = ("replace-one", "zero-out")


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

    # the derivative of log(delta) in alpha, increasing in alpha
    def slope(log_gap: float) -> float:
        gap = math.exp(log_gap)
        return (1 + 2 * gap) * rho - epsilon + log_gap - math.log1p(gap)

    low, high = -700.0, 40.0
    if slope(low) >= 0:
        return 1.0  # rho so large that no alpha proves anything
    while slope(high) < 0:
        high *= 2
    gap = math.exp(brentq(slope, low, high, xtol=1e-12))
    alpha = 1 + gap
    log_ratio = math.log(gap) - math.log1p(gap)  # log(1 - 1 / alpha)
    log_delta = gap * (alpha * rho - epsilon) - math.log(gap) + alpha * log_ratio
    return math.exp(min(0.0, log_delta))


def _gaussian_delta(mu: float, epsilon: float) -> float:
    a, b = -epsilon / mu + mu / 2, -epsilon / mu - mu / 2
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


@dataclass(frozen=True)
class Allowance:
    """A part of a budget in the currency that its mechanisms compose in.

    Parameters
    ----------
    kind : {"zcdp", "pure"}
    amount : float
        rho for "zcdp", epsilon for "pure".
    """

    kind: Literal["zcdp", "pure"]
    amount: float

    def share(self, fraction: float) -> Allowance:
        """The given fraction of this allowance."""
        return Allowance(self.kind, self.amount * fraction)


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
    """

    epsilon: float
    delta: float = 1e-6
    relation: str = "replace-one"

    def __post_init__(self) -> None:
        check_real("epsilon", self.epsilon, low=0, low_open=True)
        check_real("delta", self.delta, low=0, high=1, high_open=True)
        check_choice("relation", self.relation, RELATIONS)

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
        return Allowance("pure", self.epsilon) if self.is_pure else Allowance("zcdp", self.rho)

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
    composition : {"zcdp", "pure"}
        The analysis under which the releases compose.
    releases : tuple of Release
        Every mechanism that touches the data, with the number of its uses.
    repetitions : int
        How many times the whole list runs (the classes of one-vs-rest).
    """

    epsilon: float
    delta: float
    relation: str
    composition: Literal["zcdp", "pure"]
    releases: tuple[Release, ...]
    repetitions: int = 1

    def __post_init__(self) -> None:
        budget = PrivacyBudget(self.epsilon, self.delta, self.relation)
        limit = budget.epsilon if self.composition == "pure" else budget.rho
        # Guards against a plan that overspends: a defect here, never a user's error.
        if self.spent > limit * (1 + 1e-12):
            raise AssertionError("a plan spends more than its budget")

    @property
    def spent(self) -> float:
        """Total cost in the currency of `composition`: rho, or epsilon if pure."""
        per_run = sum(r.count * r.mechanism.cost(self.composition) for r in self.releases)
        return self.repetitions * per_run

    @property
    def dp_event(self) -> Any:
        """The releases as a `dp_accounting` event, for a second opinion on epsilon.

        For "zcdp" use the RDP accountant with orders up to 1e5, as its default orders are
        too coarse. For "pure" use the PLD accountant with the REPLACE_ONE relation and a
        tiny delta: each event is the binary response that has exactly this epsilon, which
        a claim under either relation of ours means by it.
        """
        from dp_accounting import dp_event

        events: list[Any] = []
        for release in self.releases:
            count = release.count * self.repetitions
            event = release.mechanism.dp_event(self.composition)
            if self.composition == "pure":
                # the PLD accountant ignores the count of a self-composed event here
                events.extend([event] * count)
            else:
                events.append(dp_event.SelfComposedDpEvent(event, count))
        return dp_event.ComposedDpEvent(events) if events else dp_event.NoOpDpEvent()
