"""The laws of noise: what every mechanism states, noise that is added to numbers, and selections.

The scale that is used and the cost that is claimed are fields of one frozen object, so that they
cannot differ. Other modules read the attributes of `Mechanism` instead of asking for its class.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import gammainc, gammainccinv, gammaln, ndtr, ndtri

from .._types import Array, Indices, Precision
from ..geometry import lp_norm
from ..privacy.budget import ROUNDING, Allowance
from ..privacy.selections import selections_mu, selections_of_mu
from ..randomness.stream import RandomStream, floor_draws, permute_and_flip, sample_softmax
from ..randomness.subsets import RandomBatches


def releasable(value: Array, largest: float) -> Array:
    """`value` within [-largest, largest], which moves no two values apart."""
    # noise hides neither an infinity nor NaN, for which no sensitivity holds
    if np.isnan(value).any():
        raise ValueError("a value to be released must not hold NaN")
    return np.minimum(np.maximum(value, -largest), largest)


@dataclass(frozen=True)
class Mechanism:
    """Base class.

    Parameters
    ----------
    sensitivity : float > 0
        Largest `distance` of two values that neighbours can give.
    scale : float >= 0
        Of the noise. 0 releases the value as it is, which every guarantee of a finite epsilon
        refuses.

    Attributes
    ----------
    compositions : tuple of str
        The analyses under which one release has a cost.
    order : float
        Of the l_p norm that the sensitivity is stated in.
    selects : bool
        Whether a value is a vector of scores, and the index of one of them is released.
    is_joint : bool
        Whether one sensitivity holds for all releases of a run together.
    log_range : float or None
        Bounded range: length of an interval that holds all log ratios of probabilities. None where
        no such interval is part of the guarantee.
    noise_multiplier : float or None
        That of the Gaussian mechanism with the same guarantee; None if there is none.
    batches : RandomBatches or None
        The random batches that values are computed from; None if they are not random.
    slack : float
        Probability with which a release tells of a record what its costs do not cover. It is a part
        of delta, for all rows of a user together.

    Examples
    --------
    >>> from sklearn_dpsco.mechanisms import Laplace, Mechanism
    >>> noise = Laplace(sensitivity=0.01, scale=0.02)
    >>> isinstance(noise, Mechanism), noise.order, noise.compositions
    (True, 1.0, ('zcdp', 'pure'))
    """

    sensitivity: float
    scale: float

    compositions: ClassVar[tuple[str, ...]] = ()
    order: ClassVar[float] = 2.0
    selects: ClassVar[bool] = False
    is_joint: ClassVar[bool] = False
    log_range: ClassVar[float | None] = None
    noise_multiplier: ClassVar[float | None] = None
    batches: ClassVar[RandomBatches | None] = None
    slack: ClassVar[float] = 0.0

    def distance(self, difference: Array) -> float:
        """Size of the difference of two values, in the norm of the sensitivity."""
        return lp_norm(difference, self.order)

    def cost(self, composition: str, count: int = 1) -> float:
        """Cost of `count` releases: epsilon ("pure"), rho ("zcdp") or mu^2 / 2 ("gdp")."""
        raise NotImplementedError

    def dp_event(self, composition: str, count: int = 1, rows: int = 1) -> Any:
        """The event of `count` releases for so many rows of a user: Gaussian noise, or a cost."""
        from ..privacy import events

        if composition != "pld":  # the cost of a whole plan
            self.check(composition)
        if self.noise_multiplier is not None:
            noise = events.dp_event.GaussianDpEvent(self.noise_multiplier / rows)
            return events.dp_event.SelfComposedDpEvent(noise, count)
        if composition == "pure":  # binary responses, whose trade-off curve is the same
            factor = math.exp(-rows * self.cost(composition))
            # 2 / (1 + e^epsilon), written so that a large epsilon does not overflow
            response = events.dp_event.RandomizedResponseDpEvent(2 * factor / (1 + factor), 2)
            # one by one, as the PLD accountant ignores the count of a self-composed one
            return events.dp_event.ComposedDpEvent([response] * count)
        cost = rows**2 * self.cost(composition, count)
        if composition == "gdp":
            return events.dp_event.GaussianDpEvent(1 / math.sqrt(2 * cost))
        return events.dp_event.ZCDpEvent(cost)

    def renyi(self, order: float) -> float:
        """Bound on the Renyi divergence of this order (above 1) of one release."""
        pure = self.cost("pure") if "pure" in self.compositions else math.inf
        return min(order * self.cost("zcdp"), pure)

    def check(self, composition: str) -> None:
        """Raise `ValueError` if a release has no cost under this analysis."""
        if composition not in self.compositions:
            raise ValueError(f"{type(self).__name__} has no {composition} guarantee")

    def release(self, value: Array, stream: RandomStream) -> Any:
        """A noisy version of `value`.

        Raises `ValueError` if `value` holds NaN.
        """
        raise NotImplementedError


# ------------------------------------------------------------ noise that is added

# Rounding a value onto the grid adds at most this share to its sensitivity, unless the noise
# is so large that _MOST_STEPS_PER_SCALE decides; the scale is at least _STEPS_PER_SCALE units.
_ROUNDING_SHARE = 2.0**-12
_STEPS_PER_SCALE = 2.0**10
_MOST_STEPS_PER_SCALE = 2.0**55
_LARGEST_STEP = 2.0**61


@dataclass(frozen=True)
class AdditiveNoise(Mechanism):
    """Noise on every coordinate of a vector, drawn exactly on a grid or in floating point.

    Exact: the value is rounded to the nearest multiple of the width g of the grid, a power of two;
    the noise is the floor, in units of g, of a real variable of the stated law; and half a unit is
    added back. The result is a function of the rounded value plus real noise.

    Parameters
    ----------
    sensitivity, scale : float
        As in `Mechanism`; the sensitivity is that of the value before it is rounded.
    dimension : int >= 1, default=1
        d, number of coordinates of the value.
    precision : {"exact", "float"}, default="exact"
        "float" is faster and not safe against attacks on the low bits of what is released.

    Attributes
    ----------
    grid : float
        Width g of the grid, 0 for noise in floating point or none.
    rounded_sensitivity : float
        Sensitivity of the value on the grid.
    largest : float
        Larger coordinates are released as this, infinities too; at least 2^51 scales.

    Examples
    --------
    >>> from sklearn_dpsco import PrivacyBudget
    >>> from sklearn_dpsco.mechanisms import additive_noise
    >>> allowance = PrivacyBudget(epsilon=1.0, delta=0.0).gaussian_allowance
    >>> kind = additive_noise(allowance)  # Laplace noise, since delta is 0
    >>> noise = kind.calibrate(2 / 1000, allowance)  # a mean of 1000 values in [-1, 1]
    >>> kind.__name__, round(noise.scale, 4)
    ('Laplace', 0.002)
    """

    dimension: int = 1
    precision: Precision = "exact"
    grid: float = field(init=False, repr=False, compare=False)
    rounded_sensitivity: float = field(init=False, repr=False, compare=False)
    largest: float = field(init=False, repr=False, compare=False)

    _is_normal: ClassVar[bool]  # else Laplace; of no law unless a subclass says it

    def __post_init__(self) -> None:
        # the most that rounding adds to the distance of two vectors, in units of the grid
        factor = math.sqrt(self.dimension) if self._is_normal else float(self.dimension)
        wanted = min(_ROUNDING_SHARE * self.sensitivity / factor, self.scale / _STEPS_PER_SCALE)
        exponent = max(math.frexp(wanted)[1] - 1, math.frexp(self.scale / _MOST_STEPS_PER_SCALE)[1])
        width, has_noise = math.ldexp(1.0, exponent), self.scale != 0
        grid = width if has_noise and self.precision != "float" else 0.0
        self.__dict__.update(
            grid=grid,
            rounded_sensitivity=self.sensitivity + grid * factor,
            largest=min(_LARGEST_STEP * width if has_noise else math.inf, sys.float_info.max),
        )

    @classmethod
    def calibrate(
        cls, sensitivity: float, allowance: Allowance, count: int = 1, dimension: int = 1
    ) -> Self:
        """Least noise with which `count` releases stay within `allowance`."""
        ratio = count / allowance.amount
        multiplier = ratio if allowance.kind == "pure" else math.sqrt(ratio / 2)
        noise = cls(sensitivity, sensitivity * multiplier, dimension, allowance.precision)
        noise.check(allowance.kind)
        # the scale is `multiplier` times the sensitivity on a grid that the scale decides on
        for _ in range(64):
            grid, scale = noise.grid, noise.rounded_sensitivity * multiplier * ROUNDING
            noise = replace(noise, scale=scale)
            if math.isfinite(scale) and noise.grid <= grid:
                return noise
        raise ValueError(
            "noise this large cannot be drawn exactly: epsilon is too small, for so many rows of a "
            "user or at all; take a larger one, or precision='float'"
        )

    @property
    def variance(self) -> float:
        """Of each coordinate's noise."""
        return self.scale**2 if self._is_normal else 2 * self.scale**2

    def release(self, value: Array, stream: RandomStream) -> Array:
        """`value` plus noise, shape (dimension,).

        Raises `ValueError` if `value` holds NaN or has another number of coordinates.
        """
        if value.size != self.dimension and not self.is_joint:  # else it is a part of a run
            raise ValueError(f"value must have {self.dimension} coordinates, got {value.size}")
        return self.with_noise(value, stream)

    def with_noise(self, value: Array, stream: RandomStream) -> Array:
        """`release` without the check of the dimension."""
        grid, value = self.grid, releasable(value, self.largest)
        if self.scale == 0:
            return value
        if grid == 0:
            draw = stream.normal if self._is_normal else stream.laplace
            return value + self.scale * draw(value.size)
        # exact: the grid's width is a power of two
        steps = np.rint(value / grid).astype(np.int64)
        noise = floor_draws(self._is_normal, math.ceil(self.scale / grid), value.size, stream)
        return (steps + noise).astype(np.float64) * grid + grid / 2

    def cost(self, composition: str, count: int = 1) -> float:
        """Epsilon ("pure"), rho ("zcdp") or mu^2 / 2 ("gdp", the same) of `count` releases."""
        self.check(composition)
        ratio = self.rounded_sensitivity / self.scale
        return count * (ratio if composition == "pure" else ratio**2 / 2)


@dataclass(frozen=True)
class Gaussian(AdditiveNoise):
    r"""Add :math:`N(0, \sigma^2)` to every coordinate.

    With l2 sensitivity :math:`\Delta` one release is :math:`\Delta^2 / (2 \sigma^2)`-zCDP and
    :math:`(\Delta / \sigma)`-Gaussian-DP (doc/privacy, section 2.1); rounding onto a grid of width
    g adds :math:`g \sqrt d` to :math:`\Delta` (section 2.5).

    Parameters
    ----------
    sensitivity : float > 0
        l2 sensitivity of the value, before it is rounded.
    scale : float > 0
        Standard deviation of each coordinate's noise.
    dimension, precision
        As in `AdditiveNoise`.

    Examples
    --------
    >>> from sklearn_dpsco import PrivacyBudget
    >>> from sklearn_dpsco.mechanisms import Gaussian
    >>> allowance = PrivacyBudget(epsilon=1.0, delta=1e-6).allowance
    >>> noise = Gaussian.calibrate(0.01, allowance, count=10)
    >>> noise.cost(allowance.kind, count=10) <= allowance.amount
    True
    """

    compositions: ClassVar[tuple[str, ...]] = ("zcdp", "gdp")
    _is_normal: ClassVar[bool] = True

    @property
    def noise_multiplier(self) -> float:  # type: ignore[override]
        return self.scale / self.rounded_sensitivity

    def expected_norm(self, q: float) -> float:
        """Expected l_q norm of the noise."""
        return self.scale * mean_noise_norm(q, 2.0, self.dimension)


@dataclass(frozen=True)
class Laplace(AdditiveNoise):
    r"""Add Laplace noise of scale b to every coordinate.

    With l1 sensitivity :math:`\Delta` one release is pure :math:`\Delta / b`-DP and
    :math:`(\Delta / b)^2 / 2`-zCDP; rounding onto a grid of width g adds :math:`g d` to
    :math:`\Delta` (doc/privacy, section 2.5).

    Parameters
    ----------
    sensitivity : float > 0
        l1 sensitivity of the value, before it is rounded.
    scale : float > 0
        b; the standard deviation is sqrt(2) b.
    dimension, precision
        As in `AdditiveNoise`.

    Examples
    --------
    >>> from sklearn_dpsco.mechanisms import Laplace
    >>> noise = Laplace(sensitivity=0.01, scale=0.02)
    >>> round(noise.cost("pure", count=3), 3)  # epsilons add up
    1.5
    """

    compositions: ClassVar[tuple[str, ...]] = ("zcdp", "pure")
    order: ClassVar[float] = 1.0
    _is_normal: ClassVar[bool] = False


@dataclass(frozen=True)
class KeyedGaussian(Gaussian):
    r"""Noise on the counts of the keys that occur, of which those above a threshold are released.

    A user adds at most :math:`1 / \sqrt t` to each of t keys, :math:`t \le k`. Which keys
    occur is private: one that nobody else has is released with a probability of at most

    .. math:: 1 - \Phi\Big(\frac{\tau - 1 / \sqrt t}{\sigma}\Big),

    and the largest probability that one of t is, is the `slack`. All else is a function of counts
    with Gaussian noise, of which the two users in whom neighbours differ change at most 2 k
    (doc/privacy, section 2.19).

    Parameters
    ----------
    sensitivity, scale, dimension, precision
        As in `Gaussian`; the dimension is the number of counts that neighbours can differ in.
    keys : int >= 1
        k, largest number of keys of a user.
    threshold : float
        :math:`\tau`.

    Examples
    --------
    >>> from sklearn_dpsco import PrivacyBudget
    >>> from sklearn_dpsco.mechanisms import KeyedGaussian
    >>> budget = PrivacyBudget(epsilon=1.0, delta=9e-7, relation="zero-out")
    >>> noise = KeyedGaussian.within(1.0, budget.gaussian_allowance, 1e-7, keys=20, changed=20)
    >>> noise.slack <= 1e-7, 20 < noise.threshold < 30  # users with one word each
    (True, True)
    """

    keys: int = 1
    threshold: float = 0.0

    @classmethod
    def within(
        cls, sensitivity: float, allowance: Allowance, slack: float, *, keys: int, changed: int
    ) -> Self:
        """Least noise within an allowance, and the least threshold with this slack."""
        noise = Gaussian.calibrate(sensitivity, allowance, dimension=changed)
        t = np.arange(1, keys + 1)
        # of each of t keys, so that all together have the slack
        tails = -np.expm1(np.log1p(-slack) / t)
        exact = cls(sensitivity, noise.scale, changed, allowance.precision, keys, 0.0)
        # the scale is rounded up to a multiple of the grid when it is drawn
        largest_scale = exact.scale + exact.grid
        threshold = float(np.max(1 / np.sqrt(t) - largest_scale * ndtri(tails)))
        return replace(exact, threshold=(threshold + exact.grid) * (1 + 1e-9))

    @property
    def slack(self) -> float:  # type: ignore[override]
        if self.scale == 0:
            return 0.0
        t = np.arange(1, self.keys + 1)
        # rounding moves a count up by at most a unit of the grid
        margin = self.threshold - self.grid - 1 / np.sqrt(t)
        tails = ndtr(-margin / (self.scale + self.grid))
        return float(np.max(-np.expm1(t * np.log1p(-tails))))

    def select(self, counts: Array, stream: RandomStream) -> tuple[Indices, Array]:
        """Which of the keys are released, and their noisy counts; those that occur have counts > 0.

        Without noise that is all that occur.
        """
        noisy = self.with_noise(counts, stream)
        least = self.threshold if self.scale else -math.inf
        chosen = np.flatnonzero((noisy > least) & (counts > 0))
        return chosen, noisy[chosen]


def additive_noise(allowance: Allowance) -> type[Gaussian | Laplace]:
    """The class of noise for an allowance: Laplace for pure DP, else Gaussian."""
    return Laplace if allowance.kind == "pure" else Gaussian


# ------------------------------------------------------------ generalized Gaussian noise

_MOST_SCALES = 2.0**47  # beyond them, floats are too coarse to show the noise


@dataclass(frozen=True)
class GeneralizedGaussian(Mechanism):
    r"""Add noise of density proportional to :math:`\exp(-\|z\|_r^2 / (2 \sigma^2))`.

    With :math:`\ell_q` sensitivity :math:`\Delta`, :math:`2 \le r \le q` and
    :math:`\kappa = (r - 1) d^{2 (1/r - 1/q)}`, one release is :math:`\kappa \Delta^2 / (2
    \sigma^2)`-zCDP and :math:`(\sqrt \kappa \Delta / \sigma)`-Gaussian-DP (doc/privacy, section
    2.2). r = 2 is Gaussian noise of standard deviation :math:`\sigma` on each coordinate. There is
    no exact sampler: only ``precision="float"`` is offered, which is not safe against attacks on
    the low bits of what is released.

    Source: Bassily, Guzmán and Nandi (2021), Section 4, with the constants corrected.

    Parameters
    ----------
    sensitivity : float > 0
        l_q sensitivity of the value.
    scale : float > 0
        sigma.
    q : float in [2, inf]
        Norm of the sensitivity.
    exponent : float in [2, q], finite
        r.
    dimension : int >= 1
        d, number of coordinates of the value.

    Examples
    --------
    For gradients of 100,000 coordinates that are bounded one by one:

    >>> import math
    >>> from sklearn_dpsco import PrivacyBudget
    >>> from sklearn_dpsco.mechanisms import GeneralizedGaussian
    >>> allowance = PrivacyBudget(1.0, 1e-6, precision="float").allowance
    >>> noise = GeneralizedGaussian.calibrate(math.inf, 0.01, allowance, dimension=100_000)
    >>> noise.exponent > 2, noise.cost(allowance.kind) <= allowance.amount
    (True, True)
    """

    q: float
    exponent: float
    dimension: int
    precision: Precision = "float"

    compositions: ClassVar[tuple[str, ...]] = ("zcdp", "gdp")

    def __post_init__(self) -> None:
        if not 2 <= self.exponent <= self.q or self.exponent == math.inf:
            raise ValueError(f"exponent must be finite and in [2, {self.q}], got {self.exponent}")
        if self.precision != "float":
            raise ValueError("generalized Gaussian noise needs precision='float'")

    @classmethod
    def calibrate(
        cls,
        q: float,
        sensitivity: float,
        allowance: Allowance,
        count: int = 1,
        dimension: int = 1,
        exponent: float | None = None,
    ) -> GeneralizedGaussian:
        """Least noise with which `count` releases stay within `allowance`.

        `exponent` None means the one with the least expected l_q norm of the noise.
        """
        if allowance.kind == "pure":
            raise ValueError("generalized Gaussian noise has no pure-DP guarantee (delta=0)")
        if exponent is None:
            exponent = best_exponent(q, dimension)
        kappa = regularity(q, exponent, dimension)
        scale = sensitivity * math.sqrt(kappa * count / (2 * allowance.amount)) * ROUNDING
        return cls(sensitivity, scale, q, exponent, dimension, allowance.precision)

    @property
    def noise_multiplier(self) -> float:  # type: ignore[override]
        """Multiplier of the Gaussian with this guarantee, sigma / (sqrt(kappa) Delta)."""
        kappa = regularity(self.q, self.exponent, self.dimension)
        return self.scale / (math.sqrt(kappa) * self.sensitivity)

    @property
    def order(self) -> float:  # type: ignore[override]
        return self.q

    def expected_norm(self, q: float) -> float:
        """Expected l_q norm of the noise."""
        return self.scale * mean_noise_norm(q, self.exponent, self.dimension)

    def cost(self, composition: str, count: int = 1) -> float:
        """Rho ("zcdp") or mu^2 / 2 ("gdp") of `count` releases, which are the same number."""
        self.check(composition)
        return count / (2 * self.noise_multiplier**2)

    def release(self, value: Array, stream: RandomStream) -> Array:
        """`value` plus noise, shape (dimension,).

        Raises `ValueError` if `value` holds NaN or has another number of coordinates.
        """
        if value.size != self.dimension:
            raise ValueError(f"value must have {self.dimension} coordinates, got {value.size}")
        if self.scale == 0:
            return releasable(value, sys.float_info.max)
        value = releasable(value, _MOST_SCALES * self.scale)
        # |z|_r is chi with d degrees of freedom, and independent of the direction z / |z|_r,
        # which has the law of y / |y|_r, y of independent coordinates of density ~ exp(-|y|^r)
        radius = math.sqrt(2 * gammainccinv(self.dimension / 2, stream.uniform(1)[0]))
        r, sign_and_share = self.exponent, 2 * stream.uniform(self.dimension) - 1
        # Gamma draws of the shape 1 + 1/r, by rejection (Marsaglia and Tsang 2000)
        d, gamma, filled = 1 + 1 / r - 1 / 3, np.empty(self.dimension), 0
        while filled < gamma.size:
            missing = gamma.size - filled
            x = stream.normal(missing)
            v = np.maximum(1 + x / math.sqrt(9 * d), 0.0) ** 3
            with np.errstate(divide="ignore"):
                log_accept = x**2 / 2 + d * (1 - v + np.log(v))
            accepted = v[np.log(stream.uniform(missing)) < log_accept]
            gamma[filled : filled + accepted.size] = d * accepted
            filled += accepted.size
        # U Gamma(1 + 1/r)^(1/r), U uniform on [0, 1], has the density exp(-y^r) / Gamma(1 + 1/r)
        y = gamma ** (1 / r) * sign_and_share
        return value + self.scale * radius * (y / lp_norm(y, r))


def vector_mechanism(
    q: float, sensitivity: float, allowance: Allowance, count: int = 1, dimension: int = 1
) -> Gaussian | GeneralizedGaussian:
    r"""The vector noise with the least expected l_q norm, for an l_q sensitivity, q >= 2.

    Gaussian noise, with the l2 sensitivity :math:`d^{1/2 - 1/q} \Delta_q`; or generalized Gaussian
    noise, where that is smaller and the precision is "float" (doc/privacy, section 2.2).

    Parameters
    ----------
    q : float in [2, inf]
    sensitivity : float > 0
        l_q sensitivity of the value.
    allowance : Allowance
        "zcdp" or "gdp".
    count : int, default=1
        Number of releases within `allowance`.
    dimension : int >= 1, default=1
        d, number of coordinates of the value.

    Raises
    ------
    ValueError
        If q is below 2: the l2 norm may then be as large as the l_q norm.

    Examples
    --------
    >>> from sklearn_dpsco import PrivacyBudget
    >>> from sklearn_dpsco.mechanisms import vector_mechanism
    >>> allowance = PrivacyBudget(epsilon=1.0, delta=1e-6).allowance
    >>> type(vector_mechanism(4.0, 0.01, allowance, dimension=100)).__name__
    'Gaussian'
    """
    if not q >= 2:  # NaN must not pass
        raise ValueError(f"q must be at least 2, got {q!r}")
    if allowance.precision == "float" and best_exponent(q, dimension) > 2:
        return GeneralizedGaussian.calibrate(q, sensitivity, allowance, count, dimension)
    sensitivity_2 = dimension ** (1 / 2 - 1 / q) * sensitivity * ROUNDING
    return Gaussian.calibrate(sensitivity_2, allowance, count, dimension)


# ------------------------------------------------------------ selections

# Of a prior that is added to scores: its largest size, in units of their sensitivity, and the
# factor on the sensitivity that covers the rounding of the sums (doc/privacy, section 2.5).
_LARGEST_PRIOR = 2.0**30
PRIOR_ROOM = 1 + 2.0**-20


@dataclass(frozen=True)
class SelectVertex(Mechanism):
    r"""Report the index of the largest noisy score.

    Only the range r of the change of the scores between neighbours matters,
    :math:`r = \max_v \Delta_v - \min_v \Delta_v` (doc/privacy, section 2.3).

    * Gumbel noise of scale b is the exponential mechanism: (r / b)-DP with bounded
      range, hence :math:`(r / b)^2 / 8`-zCDP.
    * Exponential noise of scale b is permute-and-flip: (r / b)-DP, never a larger
      expected error than Gumbel noise at the same pure epsilon, and of bounded range
      2 r / b only.

    Selections of bounded range eta are mu-Gaussian-DP as well, mu = `selections_mu`.

    Parameters
    ----------
    sensitivity : float > 0
        The range r.
    scale : float > 0
        b, in the units of the scores.
    noise : {"gumbel", "exponential"}, default="gumbel"
    precision : {"exact", "float"}, default="exact"
        "exact" draws from the exact law, the scores taken as real numbers without error.

    Examples
    --------
    >>> from sklearn_dpsco import PrivacyBudget
    >>> from sklearn_dpsco.mechanisms import SelectVertex
    >>> allowance = PrivacyBudget(epsilon=1.0, delta=0.0).allowance
    >>> noise = SelectVertex.calibrate(0.01, allowance, count=5)
    >>> noise.cost("pure", count=5) <= 1.0
    True
    """

    noise: str = "gumbel"
    precision: Precision = "exact"

    compositions: ClassVar[tuple[str, ...]] = ("zcdp", "gdp", "pure")
    selects: ClassVar[bool] = True
    _LAWS: ClassVar[tuple[str, str]] = ("gumbel", "exponential")

    def __post_init__(self) -> None:
        if self.noise not in self._LAWS:
            raise ValueError(f"noise must be one of {self._LAWS}, got {self.noise!r}")

    @classmethod
    def calibrate(cls, sensitivity: float, allowance: Allowance, count: int = 1) -> SelectVertex:
        """Least noise with which `count` selections stay within `allowance`."""
        noise = "exponential" if allowance.kind == "pure" else "gumbel"
        if allowance.kind == "gdp":
            scale = sensitivity / selections_of_mu(math.sqrt(2 * allowance.amount), count)
        elif allowance.kind == "pure":
            scale = sensitivity * count / allowance.amount
        else:
            scale = sensitivity * math.sqrt(count / (8 * allowance.amount))
        return cls(sensitivity, scale * ROUNDING, noise, allowance.precision)

    @property
    def log_range(self) -> float | None:  # type: ignore[override]
        """Of Gumbel noise; permute-and-flip is not of bounded range."""
        return self.sensitivity / self.scale if self.noise == "gumbel" else None

    def distance(self, difference: Array) -> float:
        """The range of the change of the scores."""
        return float(np.ptp(difference))

    def cost(self, composition: str, count: int = 1) -> float:
        """Epsilon ("pure"), rho ("zcdp") or mu^2 / 2 ("gdp") of `count` selections.

        Under "gdp" many cost less than one does times their number; only releases with Gaussian
        noise may come between them.
        """
        self.check(composition)
        epsilon = self.sensitivity / self.scale
        if composition == "pure":
            return count * epsilon
        eta = epsilon if self.noise == "gumbel" else 2 * epsilon
        return selections_mu(eta, count) ** 2 / 2 if composition == "gdp" else count * eta**2 / 8

    def with_prior(self, scores: Array, log_prior: Array) -> Array:
        """Scores for which candidates have public weights before anything is known.

        Logarithms of the weights are added in units of the noise's scale, as far as the rounding
        of the sums stays within `PRIOR_ROOM`: weights are drawn together where a scale is more
        than some million times the sensitivity.
        """
        below = log_prior - log_prior.max()
        most = _LARGEST_PRIOR * self.sensitivity / max(1.0, -float(below.min()))
        return scores + min(self.scale, most) * below

    def release(self, scores: Array, stream: RandomStream) -> int:
        """Index of the selected score.

        Raises `ValueError` if a score is not finite.
        """
        scores, is_gumbel = np.asarray(scores, dtype=np.float64), self.noise == "gumbel"
        if not np.isfinite(scores).all():
            raise ValueError("the scores of a selection must be finite")
        if self.scale > 0 and self.precision == "exact":
            sample = sample_softmax if is_gumbel else permute_and_flip
            return sample(scores, self.scale, stream)
        if self.scale > 0:
            draw = stream.gumbel if is_gumbel else stream.exponential
            scores = scores + self.scale * draw(scores.size)
        return int(np.argmax(scores))


@dataclass(frozen=True)
class SelectSequence(SelectVertex):
    r"""The selections of a run in which a record has a part in several scores.

    With :math:`r_j` the range of the change of the scores of selection j by one record, given the
    outcomes before, the run is :math:`\sum_j r_j / b`-DP, and with Gumbel noise
    :math:`\sum_j r_j^2 / (8 b^2)`-zCDP (doc/privacy, section 2.3): the sensitivity is the l1 or the
    l2 norm (`norm`) of the ranges. `n_scores` is the number of scores of one selection.
    """

    norm: int = 2
    n_scores: int = 1

    is_joint: ClassVar[bool] = True
    log_range: ClassVar[None] = None  # the selections of a run have several

    @classmethod
    def of_ranges(
        cls, sensitivity: float, allowance: Allowance, n_scores: int, *, flips: bool
    ) -> SelectSequence:
        """Least noise with which one run stays within `allowance`, "zcdp" or "pure".

        `flips`: whether a pure one may be made by permute-and-flip.
        """
        if allowance.kind == "pure":
            scale, norm = sensitivity / allowance.amount, 1
        else:
            scale, norm = sensitivity / math.sqrt(8 * allowance.amount), 2
        law = "exponential" if norm == 1 and flips else "gumbel"
        return cls(sensitivity, scale * ROUNDING, law, allowance.precision, norm, n_scores)

    @property
    def compositions(self) -> tuple[str, ...]:  # type: ignore[override]
        """Ranges that are only bounded in l2 have no sum."""
        return ("zcdp", "pure") if self.norm == 1 else ("zcdp",)

    def distance(self, difference: Array) -> float:
        """The norm of the ranges of the changes of a run's scores, one selection after another."""
        ranges = np.ptp(difference.reshape(-1, self.n_scores), axis=1)
        return float(np.linalg.norm(ranges, self.norm))


def softmax_scale(mechanism: Any) -> float | None:
    """The scale, if a release is an exact draw from the softmax of the scores over it, else None.

    For loops that make the draws themselves. Where something stands for a mechanism or for its
    method, as in an audit, that must be called.
    """
    kind = type(mechanism)
    if kind not in (SelectVertex, SelectSequence) or kind.release is not _RELEASE:
        return None
    is_softmax = mechanism.precision == "exact" and mechanism.noise == "gumbel"
    return mechanism.scale if is_softmax and mechanism.scale > 0 else None


_RELEASE = SelectVertex.release


# ------------------------------------------------------------ expected norms of noise
# of density proportional to exp(-|z|_r^2 / (2 sigma^2))

_gauss_legendre = lru_cache(maxsize=1)(np.polynomial.legendre.leggauss)
_STEP = 0.25  # of the exponents that are tried
# From here on the l_q norm is taken for its limit, the l_inf norm. It is larger by d^(1/q) at most;
# in the mean by a share of about r ln(d) / q^2, since few coordinates come near the largest: 3e-3
# for 1e8 of them. The sum below would need a time that grows with q.
_LARGEST_Q = 100.0


def regularity(q: float, r: float, dimension: int) -> float:
    """Kappa: |z|_r^2 / 2 is kappa-smooth in the l_q norm."""
    return (r - 1) * dimension ** (2 * (1 / r - 1 / q))


@lru_cache(maxsize=256)
def best_exponent(q: float, dimension: int) -> float:
    """The r among 2, 2.25, ... with the least `mean_noise_norm` at one guarantee; 2 on a tie."""
    d, highest = dimension, min(q, 2 + 2 * math.log(dimension))
    candidates: list[float] = np.arange(2.0, highest + 1e-9, _STEP).tolist()
    sizes = [math.sqrt(regularity(q, r, d)) * mean_noise_norm(q, r, d) for r in candidates]
    return candidates[int(np.argmin(sizes))]


@lru_cache(maxsize=4096)
def mean_noise_norm(q: float, r: float, dimension: int) -> float:
    """E |z|_q for sigma = 1: E R * E |Y|_q / E |Y|_r of doc/privacy, section 2.2, by quadrature.

    R, of a chi law, and |Y|_r, of which |Y|_r^r has the law Gamma(d / r), are independent of the
    direction of Y.
    """
    d = dimension
    log_radius = math.log(2) / 2 + gammaln((d + 1) / 2) - gammaln(d / 2)
    log_length = gammaln((d + 1) / r) - gammaln(d / r)
    if r == q or d == 1:
        return math.exp(log_radius)
    if q > _LARGEST_Q:  # E max_j |Y_j|: the integral of 1 - P(|Y| <= y)^d
        nodes, weights = _gauss_legendre(300)
        half = (math.log(d) + 40) ** (1 / r) / 2
        mean = float(half * weights @ (1 - gammainc(1 / r, (half * (nodes + 1)) ** r) ** d))
        return math.exp(log_radius - log_length) * mean
    # Else E S^s, S = sum_j |Y_j|^q, s = 1 / q, from the Laplace transform of |Y|^q:
    # E S^s = s / Gamma(1 - s) * integral over x of (1 - E[exp(-t |Y|^q)]^d) exp(-s x), t = exp(x).
    # Beyond the ends of the grid the two limits of the integrand are used.
    s = 1 / q
    log_moment = gammaln((q + 1) / r) - gammaln(1 / r)  # of E |Y|^q
    middle = -log_moment - math.log(d)
    x = np.arange(middle - 40, middle + 40 + 80 * max(1.0, q / d), 0.25)
    # y = exp(w): the trapezoid rule converges exponentially
    w = np.linspace(-60.0, math.log(60) / r, 800)
    log_density = w - np.exp(r * w) - gammaln(1 + 1 / r)
    weight = np.exp(log_density) * (w[1] - w[0])
    weight[-1] /= 2
    loss = -np.expm1(-np.exp(np.minimum(x[:, None] + q * w[None, :], 700.0))) @ weight
    with np.errstate(divide="ignore"):
        alive = -np.expm1(d * np.log1p(-np.minimum(loss, 1.0)))
    scaled = alive * np.exp(-s * (x - middle))
    total = 0.25 * (scaled.sum() - (scaled[0] + scaled[-1]) / 2)
    total += scaled[0] / (1 - s) + scaled[-1] / s
    mean = float(math.exp(-s * middle - gammaln(1 - s)) * s * total)
    return math.exp(log_radius - log_length) * mean
