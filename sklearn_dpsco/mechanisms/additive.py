"""Noise that is added to every coordinate of a vector, or to the counts of some keys."""

from __future__ import annotations

import dataclasses
import math
import sys
from dataclasses import dataclass, field
from typing import ClassVar, Self

import numpy as np
from scipy.special import ndtr, ndtri

from .._types import Array, Indices, Precision
from ..privacy.budget import ROUNDING, Allowance
from ..randomness.exact import floor_draws
from ..randomness.stream import RandomStream
from .base import Mechanism, releasable
from .noise_norms import mean_noise_norm

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
        share = _ROUNDING_SHARE * self.sensitivity / factor
        wanted = min(share, self.scale / _STEPS_PER_SCALE)
        least = self.scale / _MOST_STEPS_PER_SCALE
        exponent = max(math.frexp(wanted)[1] - 1, math.frexp(least)[1])
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
        if allowance.kind == "pure":
            multiplier = count / allowance.amount
        else:
            multiplier = math.sqrt(count / (2 * allowance.amount))
        noise = cls(sensitivity, sensitivity * multiplier, dimension, allowance.precision)
        noise.check(allowance.kind)
        # the scale is `multiplier` times the sensitivity on a grid that the scale decides on
        for _ in range(64):
            grid, scale = noise.grid, noise.rounded_sensitivity * multiplier * ROUNDING
            noise = dataclasses.replace(noise, scale=scale)
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
        return dataclasses.replace(exact, threshold=(threshold + exact.grid) * (1 + 1e-9))

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
