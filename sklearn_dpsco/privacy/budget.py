"""Privacy budgets, and their size in the currencies that releases compose in.

The currency of composition is rho of zero-concentrated DP (zCDP) where delta > 0, mu of
Gaussian DP where all noise is Gaussian, and epsilon of pure DP where delta = 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from numbers import Real
from typing import Literal, get_args

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from scipy.special import erfinv, expit, log_ndtr, ndtri

from .._checks import auto_or, check_choice, check_int, check_real
from .._types import Precision, Relation
from .selections import LARGEST_MU, bracketed, gaussian_delta

LARGEST_DEFAULT_DELTA = 1e-6
_LEAST_EPSILON = 1e-15
LARGEST_EPSILON = 1e9
LONGEST_STREAM = 2**40  # records; for many more, the bound on float errors would be useless
_NARROW = 1e-13  # of brackets of epsilons and sizes, whose low ends are taken

# Room for the float error of calibrations and of sums. Mechanisms have this much more noise
# than the formulas ask for; totals may exceed a budget by it, which the margin on rho covers.
ROUNDING = 1 + 1e-12

Composition = Literal["zcdp", "gdp", "pure", "adaptive-range", "pld", "renyi", "none"]
Currency = Literal["auto", "zcdp", "gdp"]
RELATIONS: tuple[str, ...] = get_args(Relation)


def _log_delta(gap: float, log_gap: float, divergence: float, epsilon: float) -> float:
    """Logarithm of a delta at `epsilon` of a Renyi divergence of the order alpha = 1 + gap.

    That of e^((alpha - 1) (divergence - epsilon)) (1 - 1 / alpha)^alpha / (alpha - 1): Canonne,
    Kamath and Steinke (2020), Proposition 12. Every alpha gives a valid delta, so an inexact
    minimizer errs on the private side.
    """
    return gap * (divergence - epsilon) - log_gap - (1 + gap) * math.log1p(1 / gap)


def zcdp_delta(rho: float, epsilon: float) -> float:
    """Smallest delta that the Renyi curve of rho-zCDP, alpha rho, proves at `epsilon`."""
    if rho <= 0:
        return 0.0
    if (log_gap := best_log_gap(rho, epsilon)) is None:
        return 1.0  # rho so large that no alpha proves a delta below 1
    gap = math.exp(log_gap)
    return math.exp(min(0.0, _log_delta(gap, math.log(gap), (1 + gap) * rho, epsilon)))


def best_log_gap(rho: float, epsilon: float) -> float | None:
    """log(alpha - 1) of the order that gives the smallest delta, None if there is none."""

    # the derivative of log(delta) in alpha, increasing in alpha
    def slope(log_gap: float) -> float:
        gap = math.exp(log_gap)
        # not log_gap - log1p(gap), whose rounding is above a tiny epsilon
        return (1 + 2 * gap) * rho - epsilon - math.log1p(math.exp(-log_gap))

    low, high = -700.0, 40.0
    if slope(low) >= 0:
        return None
    while slope(high) < 0:
        high *= 2
    return float(brentq(slope, low, high, xtol=1e-12))


def mu_delta(mu: float, epsilon: float) -> float:
    """Delta of mu-Gaussian DP: Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu)."""
    return float(gaussian_delta(np.array([epsilon]), mu)[0])  # Balle and Wang (2018)


# of a size: rho, or mu
_DELTA_OF: dict[str, Callable[[float, float], float]] = {"zcdp": zcdp_delta, "gdp": mu_delta}


def size_epsilon(currency: str, size: float, delta: float) -> float:
    """Epsilon at `delta` of rho or mu: the low end of a bracket; NaN if delta is 0."""
    if not delta > 0:
        return math.nan
    delta_of = _DELTA_OF[currency]
    return bracketed(lambda epsilon: not delta_of(size, epsilon) >= delta, _NARROW)[0]


def pure_mu(epsilon: float) -> float:
    """Least mu such that whatever is epsilon-DP is mu-Gaussian-DP (doc/privacy, section 1)."""
    part = math.tanh(epsilon / 2)
    if part < 0.9:  # next to 1/2 probabilities would lose digits
        return 2 * math.sqrt(2) * float(erfinv(part)) * (1 + 1e-14)
    return -2 * float(ndtri(expit(-epsilon)))


def pure_of_mu(mu: float) -> float:
    """The inverse of `pure_mu`."""
    part = math.erf(mu / math.sqrt(8))
    return 2 * math.atanh(part) if part < 0.9 else float(log_ndtr(mu / 2) - log_ndtr(-mu / 2))


def cost_delta(composition: Composition, cost: float, epsilon: float) -> float:
    """Smallest delta at `epsilon` of what costs so much in "zcdp", "gdp" or "pure"."""
    if composition == "pure":  # binary randomized response attains it
        return 0.0 if epsilon >= cost else -math.expm1(epsilon - cost) / (1 + math.exp(-cost))
    found = _DELTA_OF[composition](cost if composition == "zcdp" else math.sqrt(2 * cost), epsilon)
    return math.nextafter(found, 1.0) if cost else found  # what is below all floats is not 0


@lru_cache(maxsize=4096)
def _whole(currency: Currency, epsilon: float, delta: float) -> float:
    """Largest rho ("zcdp") or mu ("gdp") that implies (epsilon, delta)."""
    delta_of = _DELTA_OF[currency]
    # one part in 1e10 covers the float error of the conversion itself
    return bracketed(lambda size: not delta_of(size, epsilon) < delta, _NARROW)[0] * (1 - 1e-10)


# the parameter `delta` of whoever fits: `None` for "auto", else a number in [0, 1)
check_delta = partial(auto_or, check_real, "delta", low=0, high=1, high_open=True)


def default_delta(n_samples: int) -> float:
    """The delta that "auto" stands for: min(1e-6, 1 / (10 n)), below 1 / n at every n."""
    return min(LARGEST_DEFAULT_DELTA, 0.1 / n_samples)


def renyi_epsilon(order: float, divergence: float, delta: float) -> float:
    """Epsilon of a Renyi divergence > 0 of an order above 1 at `delta` > 0, as in `_log_delta`."""
    log_slack = -math.log(delta) - math.log(order - 1) + order * math.log1p(-1 / order)
    return max(0.0, divergence + log_slack / (order - 1))


def renyi_delta(divergence: Callable[[float], float], epsilon: float, order: float) -> float:
    """Delta of a Renyi curve at `epsilon`: the least of `order` and others."""

    def log_delta(log_gap: float) -> float:
        gap = math.exp(log_gap)
        found = _log_delta(gap, log_gap, divergence(1 + gap), epsilon)
        return found if not math.isnan(found) else math.inf

    grid = list(np.linspace(math.log(1e-2), math.log(1e5), 65))
    found = [log_delta(log_gap) for log_gap in grid]
    best = int(np.argmin(found))
    ends = grid[max(0, best - 1)], grid[min(len(grid) - 1, best + 1)]
    nearby = minimize_scalar(log_delta, bounds=ends, method="bounded", options={"xatol": 1e-6})
    return math.exp(min(0.0, found[best], float(nearby.fun), log_delta(math.log(order - 1))))


@dataclass(frozen=True)
class Allowance:
    """A part of a budget in the currency that its mechanisms compose in."""

    kind: Composition
    # rho ("zcdp"), mu^2 / 2 ("gdp") or epsilon ("pure"). A Gaussian release of sensitivity Delta
    # costs Delta^2 / (2 sigma^2) of either of the first two.
    amount: float
    precision: Precision = "exact"  # of the noise that is bought with it

    def __post_init__(self) -> None:
        # Shares that add up to more than 1 are a defect of the package, not a user's error.
        if not 0 <= self.amount < math.inf:
            raise AssertionError("an allowance must not be negative")

    def share(self, fraction: float) -> Allowance:
        """The given fraction of this allowance."""
        return Allowance(self.kind, self.amount * fraction, self.precision)


@dataclass(frozen=True)
class PrivacyBudget:
    """The guarantee that a user requests.

    Parameters
    ----------
    epsilon : float in [1e-15, 1e9] or inf
        inf asks for the same method without noise, and so for no privacy at all.
    delta : float in [0, 1), default=1e-6
        0 asks for pure epsilon-DP.
    relation : {"replace-one", "zero-out"}, default="replace-one"
        Neighbouring tables have the same number of records and differ in one record
        ("replace-one"), or one record is replaced by one that contributes nothing ("zero-out").
        Zero-out (epsilon, delta) implies replace-one (2 epsilon, (1 + e^epsilon) delta).
    precision : {"exact", "float"}, default="exact"
        Arithmetic of the noise; "float" is not safe against attacks on low bits.
    currency : {"auto", "zcdp", "gdp"}, default="auto"
        "zcdp" and "gdp" for plans that an accountant adds up with others in zCDP or in Gaussian DP;
        "auto" takes the analysis that gives a single plan the least noise.
    order : float > 1 (or 1, with delta 0) or None, default=None
        Order of the Renyi filter of that accountant, at which random batches cost less than in rho.
    rows_per_user : int >= 1, default=1
        The guarantee is for all rows of a user together, of whom nobody has more than this.
        `rho`, `mu` and the allowances are what is left for one row (doc/privacy, section 2.14).

    Attributes
    ----------
    is_pure, is_infinite : bool
        Whether delta is 0, and whether epsilon is infinite.
    record_factor : float
        Factor on every term of a sensitivity that comes from a record: 2 under "replace-one", else
        1.

    Examples
    --------
    >>> from sklearn_dpsco import PrivacyBudget
    >>> budget = PrivacyBudget(epsilon=1.0, delta=1e-6)
    >>> round(budget.mu, 3), round(budget.rho, 4)  # the noise of Gaussian releases follows
    (0.237, 0.0244)
    >>> PrivacyBudget(epsilon=1.0, delta=0.0).is_pure
    True
    """

    epsilon: float
    delta: float = 1e-6
    relation: Relation = "replace-one"
    precision: Precision = "exact"
    currency: Currency = "auto"
    order: float | None = None
    rows_per_user: int = 1
    is_pure: bool = field(init=False, repr=False, compare=False)
    is_infinite: bool = field(init=False, repr=False, compare=False)
    record_factor: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        rows, epsilon = check_int("rows_per_user", self.rows_per_user, low=1), math.inf
        if not (isinstance(self.epsilon, Real) and self.epsilon == math.inf):
            try:
                epsilon = check_real(
                    "epsilon", self.epsilon, low=_LEAST_EPSILON, high=LARGEST_EPSILON
                )
            except ValueError as error:
                raise ValueError(str(error).replace(" must be ", " must be inf or ", 1)) from None
        delta = check_real("delta", self.delta, low=0, high=1, high_open=True)
        check_choice("relation", self.relation, RELATIONS)
        check_choice("precision", self.precision, get_args(Precision))
        check_choice("currency", self.currency, get_args(Currency))
        order = self.order
        if order is not None:  # of order 1 there is no Renyi divergence to release a batch by
            order = check_real("order", order, low=1, low_open=delta > 0)
        # in Python's numbers: sums and scales of numpy's smaller types would be rounded to those
        self.__dict__.update(
            epsilon=epsilon,
            delta=delta,
            order=order,
            rows_per_user=rows,
            is_pure=delta == 0,
            is_infinite=epsilon == math.inf,
            record_factor=2.0 if self.relation == "replace-one" else 1.0,
        )

    @cached_property
    def rho(self) -> float:
        """Largest rho such that rho-zCDP for one of a user's m rows implies (epsilon, delta)-DP.

        That of the whole over m^2; 0 if delta is 0.
        """
        return self._size("zcdp") / self.rows_per_user**2

    @cached_property
    def mu(self) -> float:
        """As `rho`, for mu-Gaussian-DP: that of the whole over m."""
        return self._size("gdp") / self.rows_per_user

    def _size(self, currency: Currency) -> float:
        """Of the whole budget, for all rows of a user."""
        # what does not know of plans without noise must not take one for a private plan
        if self.is_infinite:
            raise ValueError("epsilon=inf claims nothing: it has no part, and no size to add up")
        return 0.0 if self.is_pure else _whole(currency, self.epsilon, self.delta)

    @property
    def allowance(self) -> Allowance:
        """The whole budget: epsilon if delta is 0, else rho."""
        rho = self.rho
        if self.is_pure:
            return Allowance("pure", self.epsilon / self.rows_per_user, self.precision)
        return Allowance("zcdp", rho, self.precision)

    @property
    def gaussian_allowance(self) -> Allowance:
        """The whole budget for a plan whose releases are all Gaussian: mu^2 / 2 if allowed."""
        if self.is_pure or self.currency == "zcdp":
            return self.allowance
        return Allowance("gdp", self.mu**2 / 2, self.precision)

    @property
    def mixed_allowance(self) -> Allowance:
        """The whole budget for a plan of Gaussian releases and selections with Gumbel noise."""
        is_large = self.rows_per_user * self.mu > LARGEST_MU
        return self.allowance if is_large else self.gaussian_allowance

    @property
    def best_order(self) -> float:
        """The Renyi order at which the conversion of `rho` is best; 1 if delta is 0."""
        rho = self._size("zcdp")
        log_gap = None if self.is_pure else best_log_gap(rho, self.epsilon)
        return 1.0 if log_gap is None else 1 + math.exp(log_gap)

    def part(self, fraction: float, currency: Composition) -> PrivacyBudget:
        """The budget of a plan that may cost this fraction of the whole in a currency.

        Plans within such parts whose fractions add up to 1 are together within this budget. Delta
        is that of the whole, and the epsilon that goes with it is rounded down. Parts in "pld" are
        those in "gdp", for plans whose privacy loss distributions are then added up: together they
        may cost a little more or less.

        Raises `ValueError` if the part is so small that delta alone allows it, or if the budget is
        pure and the currency is "gdp" or "pld".
        """
        fraction = check_real("fraction", fraction, low=0, high=1, low_open=True)
        delta, whole, rho = self.delta, self.epsilon, self._size("zcdp")
        if self.is_pure and currency in ("gdp", "pld"):
            raise ValueError(f"a budget with delta=0 has no parts in the currency {currency!r}")
        if currency == "pure":
            epsilon = whole * fraction
        elif currency in ("gdp", "pld"):
            epsilon = size_epsilon("gdp", self._size("gdp") * math.sqrt(fraction), delta)
        else:
            epsilon = size_epsilon("zcdp", rho * fraction, delta)
        if not epsilon >= _LEAST_EPSILON:  # also NaN, of delta=0
            raise ValueError(f"epsilon={whole!r} is too small to be divided")
        if currency == "pure":
            return replace(self, epsilon=epsilon)
        if currency == "pld":
            return replace(self, epsilon=epsilon, currency="auto", order=None)
        kind: Currency = "gdp" if currency == "gdp" else "zcdp"
        order = None if self.currency == "gdp" else self.order or self.best_order
        return replace(self, epsilon=epsilon, currency=kind, order=order)
