r"""Repetition with a random number of trials: the best of them is released (doc/privacy, 2.16).

K trials, each private, are made, and the one with the best released score is kept. With a fixed
K, each trial would cost; with a random K that nothing shows, the whole costs little more than two.
K follows the logarithmic law, :math:`P(K = k) = (1 - \gamma)^k / (k \ln(1 / \gamma))`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Any

from scipy.optimize import brentq

from .._overview import Overview
from ..randomness.stream import RandomStream
from .budget import Composition, PrivacyBudget
from .guarantee import MOST_SHOWN, Guarantee

__all__ = ["RepeatedGuarantee", "draw_trials", "trial_budget"]

_WORD = 2**62  # the law's weights are integers that add up to about this
_WEIGHT_ERROR = 1e-13  # relative error of a weight in floating point, generously
MOST_TRIALS = 1000.0  # on average; the table of the law grows with it


@lru_cache(maxsize=64)
def _gamma(mean: float) -> float:
    """The gamma whose law has this mean above 1, (1 / gamma - 1) / ln(1 / gamma)."""

    def excess(log: float) -> float:  # of ln(1 / gamma)
        return math.expm1(log) / log - mean

    return math.exp(-float(brentq(excess, 1e-9, 50.0, xtol=1e-14)))


@lru_cache(maxsize=16)
def _weights(mean: float) -> tuple[int, ...]:
    """The law as integers, cut off where they are below 1/2."""
    gamma = _gamma(mean)
    log, weights, k = math.log(1 / gamma), [], 1
    while (weight := round(_WORD * (1 - gamma) ** k / (k * log))) > 0:
        weights.append(weight)
        k += 1
    return tuple(weights)


@lru_cache(maxsize=16)
def _law_error(mean: float) -> float:
    r"""A t with :math:`(1 - t) f' \le g' \le (1 + t) f'` on [0, 1], g and f as in `renyi`.

    f'(x) is at least P(K = 1). Rounding moves the weight of k by 1/2 and by its relative error,
    the cut leaves a geometric tail, and the total of the weights is not quite the word.
    """
    gamma, n = _gamma(mean), len(_weights(mean))
    first = (1 - gamma) / math.log(1 / gamma)
    rounding = n * (n + 1) / 4 / _WORD
    tail = (1 - gamma) ** (n + 1) / (gamma * math.log(1 / gamma))
    return 4 * ((rounding + tail) / first + _WEIGHT_ERROR)


def draw_trials(mean: float, stream: RandomStream) -> int:
    """K, from integers: its law is exactly that of `_weights`."""
    cumulated = list(accumulate(_weights(mean)))
    word = stream.integer(cumulated[-1])
    return next(k for k, total in enumerate(cumulated, 1) if word < total)


@dataclass(frozen=True)
class RepeatedGuarantee(Guarantee):
    r"""The guarantee of the best of a random number of trials.

    With :math:`\varepsilon(\lambda)` the Renyi divergence of a trial at the order
    :math:`\lambda`, the whole has at most (Papernot and Steinke 2022, Theorem 2, :math:`\eta = 0`)

    .. math:: \varepsilon(\lambda) + \min_{\hat\lambda \ge 1} \left((1 - 1 / \hat\lambda)
        \varepsilon(\hat\lambda) + \frac{\ln(1 / \gamma)}{\hat\lambda}\right)
        + \frac{\ln E K}{\lambda - 1},

    and twice the epsilon of a trial that is pure.

    Attributes
    ----------
    releases : tuple of Release
        Of the costliest trial.
    parts : tuple of tuple of Guarantee
        Of a trial: the parts, which are on disjoint records, and of each the alternatives.
    mean : float
        E K.
    """

    parts: tuple[tuple[Guarantee, ...], ...] = ()
    mean: float = 2.0

    @classmethod
    def of_trials(
        cls, budget: PrivacyBudget, parts: Iterable[Iterable[Guarantee]], mean: float
    ) -> RepeatedGuarantee:
        """The guarantee of a search whose trials were planned with `trial_budget`."""
        kept = tuple(tuple(alternatives) for alternatives in parts)
        currency: Composition = "pure" if budget.is_pure else "zcdp"
        releases = [max(part, key=lambda g: g.cost(currency)).releases for part in kept]
        return cls(
            budget.epsilon, budget.delta, budget.relation, "pure" if budget.is_pure else "renyi",
            tuple(release for part in releases for release in part), budget.rows_per_user, kept,
            mean,
        )  # fmt: skip

    def overview(self) -> Overview:
        """The claim, and a row for each release of a trial."""
        claim = f"{self.claim}: the best of a random number of trials, {self.mean:g} on average"
        rows = [(release.name, str(release.count)) for release in self.releases]
        heads = ("release of a trial", "uses")
        return Overview((claim,), heads, "  {:22s} {:>5s}", rows, MOST_SHOWN)

    def cost(self, composition: Composition) -> float:
        """Epsilon ("pure") or delta ("renyi"); infinite in currencies that it has no cost in."""
        if composition == "renyi":
            return super().cost(composition)
        return 2 * self._trial("pure") if composition == "pure" else math.inf

    def _trial(self, composition: Composition) -> float:
        return max(g.cost(composition) for part in self.parts for g in part)

    def _trial_renyi(self, order: float) -> float:
        return max(g.renyi(order) for part in self.parts for g in part)

    def renyi(self, order: float) -> float:
        """Renyi divergence of this order (above 1), for the worst record."""
        bounds = [self._repeated(order)]
        if self.composes_in("pure"):
            bounds.append(self.cost("pure"))
        return min(bounds)

    def _repeated(self, order: float) -> float:
        t = _law_error(self.mean)
        of_law = (order * math.log1p(t) - (order - 1) * math.log1p(-t)) / (order - 1)
        return self._trial_renyi(order) + self._second + math.log(self.mean) / (order - 1) + of_law

    @cached_property
    def _second(self) -> float:
        """The least of the second term over a grid of orders."""
        log = -math.log(_gamma(self.mean))
        orders = [1 + 10 ** (k / 16) for k in range(-32, 97)]
        found = [(1 - 1 / order) * self._trial_renyi(order) + log / order for order in orders]
        return min(log, *found)

    def composes_in(self, composition: str) -> bool:
        """Whether there is a cost in a currency that adds up: at most "pure"."""
        return composition == "pure" and all(
            g.composes_in("pure") for part in self.parts for g in part
        )

    @property
    def dp_event(self) -> Any:
        """The event of `dp_accounting`, of the costliest trial."""
        from . import events

        options = [g for part in self.parts for g in part]
        worst = max(options, key=lambda g: g.cost("pure" if self.delta == 0 else "zcdp"))
        return events.repeat_and_select(worst.dp_event, self.mean)

    def second_opinion(self) -> float:
        """As of `Guarantee`; of pure trials that library has no bound, and it is 2 epsilon."""
        if self.delta == 0:
            return 2 * max(g.second_opinion() for part in self.parts for g in part)
        return super().second_opinion()


def trial_budget(budget: PrivacyBudget, mean: float) -> PrivacyBudget:
    """The largest budget of a trial that is rho-zCDP, or pure, within a whole budget.

    Raises
    ------
    ValueError
        If none is: the least cost of repetition is beyond the budget.
    """
    if budget.is_pure:
        return budget.part(0.5, "pure")

    def is_enough(fraction: float) -> bool:
        trial = _Zcdp.of(budget.part(fraction, "zcdp"))
        try:
            whole = RepeatedGuarantee.of_trials(budget, [[trial]], mean)
        except AssertionError:
            return False
        order = budget.order
        return order is None or whole.renyi(order) <= order * budget.rows_per_user**2 * budget.rho

    low, high = 0.0, 1.0
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if is_enough(middle) else (low, middle)
    if low < 1e-4:
        raise ValueError(
            "epsilon and delta are too small for method='repeat', or they are a small part of an "
            "accountant's, whose order does not suit them"
        )
    return budget.part(low, "zcdp")


@dataclass(frozen=True)
class _Zcdp(Guarantee):
    """A guarantee that costs all of its rho."""

    rho: float = 0.0

    @classmethod
    def of(cls, budget: PrivacyBudget) -> _Zcdp:  # type: ignore[override]
        rho = budget.rho * budget.rows_per_user**2
        return cls(
            budget.epsilon, budget.delta, budget.relation, "zcdp", (), budget.rows_per_user, rho
        )

    def cost(self, composition: Composition) -> float:
        return self.rho if composition == "zcdp" else math.inf

    def renyi(self, order: float) -> float:
        return order * self.rho

    def composes_in(self, composition: str) -> bool:
        return composition == "zcdp"
