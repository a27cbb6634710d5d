"""Mechanisms: each holds a sensitivity and a noise scale, and releases a noisy value.

The scale that is used and the cost that is claimed are fields of one frozen object, so
that they cannot drift apart. A mechanism never chooses its own sensitivity: plans do.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ._exact import floor_laplace, floor_normal, permute_and_flip, sample_softmax
from ._generalized_gaussian import GeneralizedGaussian, best_exponent
from ._random import RandomStream
from .accounting import Allowance, Precision

__all__ = [
    "Gaussian",
    "GeneralizedGaussian",
    "Laplace",
    "Mechanism",
    "PrefixSum",
    "Release",
    "SelectVertex",
    "vector_mechanism",
]

# One part in 1e12 more noise than the formula asks for: float error of the calibration
# lands on the private side.
_UP = 1 + 1e-12


class Mechanism(Protocol):
    """What a `Release` needs of a mechanism."""

    @property
    def sensitivity(self) -> float: ...

    @property
    def scale(self) -> float: ...

    def cost(self, composition: str) -> float: ...

    def dp_event(self, composition: str) -> Any: ...


@dataclass(frozen=True)
class Release:
    """A mechanism and how many times a plan uses it on any one record.

    Attributes
    ----------
    name : str
        What is released, for a reader of the plan.
    mechanism : Mechanism
    count : int
    group : str or None
        Releases of different groups are on disjoint records; None is for all records.
    """

    name: str
    mechanism: Mechanism
    count: int = 1
    group: str | None = None


def _pure_event(epsilon: float) -> Any:
    """An event with exactly the trade-off curve of pure epsilon-DP (binary response)."""
    from dp_accounting import dp_event

    # 2 / (1 + e^epsilon), written so that a large epsilon does not overflow
    noise = 2 * math.exp(-epsilon) / (1 + math.exp(-epsilon))
    return dp_event.RandomizedResponseDpEvent(noise, 2)


def _unsupported(mechanism: object, composition: str) -> ValueError:
    return ValueError(f"{type(mechanism).__name__} has no {composition} guarantee")


# The rounding of a value onto the grid adds at most this share to its sensitivity, and the
# grid is at least this much finer than the noise.
_ROUNDING_SHARE = 2.0**-12
_STEPS_PER_SCALE = 2.0**10
_MOST_STEPS_PER_SCALE = 2.0**55
_LARGEST_STEP = 2.0**61


@dataclass(frozen=True)
class _AdditiveNoise:
    """Noise on every coordinate of a vector, drawn exactly on a grid or in floating point.

    Exact: the value is rounded to the nearest multiple of the width g of the grid, a power
    of two; the noise is the floor, in units of g, of a real variable of the stated law; and
    half a unit is added back. That is a function of the rounded value plus real noise.
    """

    sensitivity: float
    scale: float
    dimension: int = 1
    precision: Precision = "exact"

    @cached_property
    def grid(self) -> float:
        """Width g of the grid, 0 for noise in floating point."""
        if self.precision == "float":
            return 0.0
        wanted = min(
            _ROUNDING_SHARE * self.sensitivity / self._rounding_factor,
            self.scale / _STEPS_PER_SCALE,
        )
        least = self.scale / _MOST_STEPS_PER_SCALE
        exponent = max(math.frexp(wanted)[1] - 1, math.frexp(least)[1])
        return math.ldexp(1.0, exponent)

    @property
    def variance(self) -> float:
        """Of each coordinate's noise."""
        raise NotImplementedError

    @property
    def rounded_sensitivity(self) -> float:
        """Sensitivity of the value on the grid."""
        return self.sensitivity + self.grid * self._rounding_factor

    @property
    def _rounding_factor(self) -> float:
        """Largest change by rounding both of two vectors, in grid units and the norm."""
        raise NotImplementedError

    def _floor_draws(self, steps: int, size: int, stream: RandomStream) -> NDArray[np.int64]:
        raise NotImplementedError

    def _float_draws(self, size: int, stream: RandomStream) -> NDArray[np.float64]:
        raise NotImplementedError

    def release(self, value: NDArray[np.float64], stream: RandomStream) -> NDArray[np.float64]:
        """`value` plus noise, shape (dimension,)."""
        if value.size != self.dimension:
            raise ValueError(f"value must have {self.dimension} coordinates, got {value.size}")
        return self._with_noise(value, stream)

    def _with_noise(self, value: NDArray[np.float64], stream: RandomStream) -> NDArray[np.float64]:
        """`release` for any part of the value."""
        grid = self.grid
        if grid == 0:
            return value + self.scale * self._float_draws(value.size, stream)
        # both exact: the grid's width is a power of two, and the limit is a multiple of it
        rounded = np.rint(value / grid)
        steps = np.minimum(np.maximum(rounded, -_LARGEST_STEP), _LARGEST_STEP).astype(np.int64)
        noise = self._floor_draws(math.ceil(self.scale / grid), value.size, stream)
        return (steps + noise).astype(np.float64) * grid + grid / 2


def _with_grid(mechanism: _Noise, noise_multiplier: float) -> _Noise:
    """The mechanism with its scale raised for the rounding onto its grid."""
    for _ in range(64):
        grid = mechanism.grid
        scale = (mechanism.sensitivity + grid * mechanism._rounding_factor) * noise_multiplier
        mechanism = dataclasses.replace(mechanism, scale=scale * _UP)
        if mechanism.grid <= grid:
            return mechanism
    raise ValueError("noise this large cannot be drawn exactly: epsilon is too small")


_Noise = TypeVar("_Noise", bound=_AdditiveNoise)


@dataclass(frozen=True)
class Gaussian(_AdditiveNoise):
    r"""Add :math:`N(0, \sigma^2)` to every coordinate.

    With l2 sensitivity :math:`\Delta` one release is
    :math:`\Delta^2 / (2 \sigma^2)`-zCDP and :math:`(\Delta / \sigma)`-Gaussian-DP
    (doc/privacy.rst, section 2.1); rounding onto a grid of width g adds
    :math:`g \sqrt d` to :math:`\Delta` (section 2.5).

    Parameters
    ----------
    sensitivity : float > 0
        l2 sensitivity of the value, before it is rounded.
    scale : float > 0
        Standard deviation of each coordinate's noise.
    dimension : int >= 1, default=1
        d, number of coordinates of the value.
    precision : {"exact", "float"}, default="exact"
        "float" is faster and not safe against attacks on the low bits of what is released.
    """

    @classmethod
    def calibrate(
        cls, sensitivity: float, allowance: Allowance, count: int = 1, dimension: int = 1
    ) -> Gaussian:
        """Least noise with which `count` releases stay within `allowance`."""
        if allowance.kind == "pure":
            raise ValueError("Gaussian noise has no pure-DP guarantee (delta=0)")
        multiplier = math.sqrt(count / (2 * allowance.amount))
        noise = cls(sensitivity, sensitivity * multiplier, dimension, allowance.precision)
        return _with_grid(noise, multiplier)

    @property
    def variance(self) -> float:
        return self.scale**2

    @property
    def _rounding_factor(self) -> float:
        return math.sqrt(self.dimension)

    def _floor_draws(self, steps: int, size: int, stream: RandomStream) -> NDArray[np.int64]:
        return floor_normal(steps, size, stream)

    def _float_draws(self, size: int, stream: RandomStream) -> NDArray[np.float64]:
        return stream.normal(size)

    def cost(self, composition: str) -> float:
        """Rho ("zcdp") or mu^2 / 2 ("gdp") of one release, which are the same number."""
        if composition not in ("zcdp", "gdp"):
            raise _unsupported(self, composition)
        return (self.rounded_sensitivity / self.scale) ** 2 / 2

    def dp_event(self, composition: str) -> Any:
        """`GaussianDpEvent` whose multiplier is relative to the full sensitivity."""
        from dp_accounting import dp_event

        if composition not in ("zcdp", "gdp", "rdp", "pld"):
            raise _unsupported(self, composition)
        return dp_event.GaussianDpEvent(self.scale / self.rounded_sensitivity)


@dataclass(frozen=True)
class Laplace(_AdditiveNoise):
    r"""Add Laplace noise of scale b to every coordinate.

    With l1 sensitivity :math:`\Delta` one release is pure
    :math:`\Delta / b`-DP and :math:`(\Delta / b)^2 / 2`-zCDP; rounding onto a grid of width
    g adds :math:`g d` to :math:`\Delta` (doc/privacy.rst, section 2.5).

    Parameters
    ----------
    sensitivity : float > 0
        l1 sensitivity of the value, before it is rounded.
    scale : float > 0
        b; the standard deviation is sqrt(2) b.
    dimension : int >= 1, default=1
        d, number of coordinates of the value.
    precision : {"exact", "float"}, default="exact"
        "float" is faster and not safe against attacks on the low bits of what is released.
    """

    @classmethod
    def calibrate(
        cls, sensitivity: float, allowance: Allowance, count: int = 1, dimension: int = 1
    ) -> Laplace:
        """Least noise with which `count` releases stay within `allowance`."""
        if allowance.kind == "gdp":
            raise ValueError("Laplace noise has no Gaussian-DP guarantee")
        if allowance.kind == "pure":
            multiplier = count / allowance.amount
        else:
            multiplier = math.sqrt(count / (2 * allowance.amount))
        noise = cls(sensitivity, sensitivity * multiplier, dimension, allowance.precision)
        return _with_grid(noise, multiplier)

    @property
    def variance(self) -> float:
        return 2 * self.scale**2

    @property
    def _rounding_factor(self) -> float:
        return float(self.dimension)

    def _floor_draws(self, steps: int, size: int, stream: RandomStream) -> NDArray[np.int64]:
        return floor_laplace(steps, size, stream)

    def _float_draws(self, size: int, stream: RandomStream) -> NDArray[np.float64]:
        return stream.laplace(size)

    def cost(self, composition: str) -> float:
        """Epsilon ("pure") or rho ("zcdp") of one release."""
        if composition not in ("zcdp", "pure"):
            raise _unsupported(self, composition)
        epsilon = self.rounded_sensitivity / self.scale
        return epsilon if composition == "pure" else epsilon**2 / 2

    def dp_event(self, composition: str) -> Any:
        """The event of what was proved: pure epsilon, or rho."""
        from dp_accounting import dp_event

        cost = self.cost(composition)
        return _pure_event(cost) if composition == "pure" else dp_event.ZCDpEvent(cost)


def additive_noise(allowance: Allowance) -> type[Gaussian | Laplace]:
    """The law that suits an allowance: Laplace for pure DP, else Gaussian."""
    return Laplace if allowance.kind == "pure" else Gaussian


@dataclass(frozen=True)
class SelectVertex:
    r"""Report the index of the largest noisy score.

    Only the range r of the change of the scores between neighbours matters,
    :math:`r = \max_v \Delta_v - \min_v \Delta_v` (doc/privacy.rst, section 2.3).

    * Gumbel noise of scale b is the exponential mechanism: (r / b)-DP with bounded
      range, hence :math:`(r / b)^2 / 8`-zCDP.
    * Exponential noise of scale b is permute-and-flip: (r / b)-DP, never a larger
      expected error than Gumbel noise at the same pure epsilon, but not bounded-range.

    Parameters
    ----------
    sensitivity : float > 0
        The range r.
    scale : float > 0
        b, in the units of the scores.
    noise : {"gumbel", "exponential"}
    precision : {"exact", "float"}, default="exact"
        "exact" draws from the law itself, for the scores as the real numbers that they are.
    """

    sensitivity: float
    scale: float
    noise: str = "gumbel"
    precision: Precision = "exact"

    _LAWS: ClassVar[tuple[str, str]] = ("gumbel", "exponential")

    def __post_init__(self) -> None:
        if self.noise not in self._LAWS:
            raise ValueError(f"noise must be one of {self._LAWS}, got {self.noise!r}")

    @classmethod
    def calibrate(cls, sensitivity: float, allowance: Allowance, count: int = 1) -> SelectVertex:
        """Least noise with which `count` selections stay within `allowance`."""
        if allowance.kind == "gdp":
            raise ValueError("a selection has no Gaussian-DP guarantee")
        if allowance.kind == "pure":
            scale, noise = sensitivity * count / allowance.amount, "exponential"
        else:
            scale, noise = sensitivity * math.sqrt(count / (8 * allowance.amount)), "gumbel"
        return cls(sensitivity, scale * _UP, noise, allowance.precision)

    @classmethod
    def of_range(cls, sensitivity: float, log_range: float, precision: Precision) -> SelectVertex:
        """Gumbel noise with which `log_range` is not exceeded."""
        return cls(sensitivity, sensitivity / log_range * _UP, "gumbel", precision)

    @property
    def log_range(self) -> float:
        """Length of the interval of the log of the probability ratio, over all outcomes."""
        if self.noise != "gumbel":
            raise _unsupported(self, "adaptive-range")
        return self.sensitivity / self.scale

    def cost(self, composition: str) -> float:
        """Epsilon ("pure") or rho ("zcdp") of one selection."""
        if composition not in ("zcdp", "pure"):
            raise _unsupported(self, composition)
        epsilon = self.sensitivity / self.scale
        if composition == "pure":
            return epsilon
        return epsilon**2 / (8 if self.noise == "gumbel" else 2)

    def dp_event(self, composition: str) -> Any:
        """The event of what was proved: pure epsilon, or rho."""
        from dp_accounting import dp_event

        cost = self.cost(composition)
        return _pure_event(cost) if composition == "pure" else dp_event.ZCDpEvent(cost)

    def release(self, scores: NDArray[np.float64], stream: RandomStream) -> int:
        """Index of the selected score; the scores must be finite."""
        is_gumbel = self.noise == "gumbel"
        if self.precision == "exact":
            sample = sample_softmax if is_gumbel else permute_and_flip
            return sample(scores, self.scale, stream)
        draw = stream.gumbel if is_gumbel else stream.exponential
        return int(np.argmax(scores + self.scale * draw(scores.size)))


def vector_mechanism(
    q: float, sensitivity: float, allowance: Allowance, count: int = 1, dimension: int = 1
) -> Gaussian | GeneralizedGaussian:
    r"""The vector noise with the least expected l_q norm, for an l_q sensitivity, q >= 2.

    Gaussian noise, with the l2 sensitivity :math:`d^{1/2 - 1/q} \Delta_q`, or, where it is
    smaller and noise in floating point is asked for, generalized Gaussian noise
    (doc/privacy.rst, section 2.2).

    Parameters
    ----------
    q : float in [2, inf]
    sensitivity : float > 0
        l_q sensitivity of the value.
    allowance : Allowance
        "zcdp" or "gdp".
    count : int
        Number of releases within `allowance`.
    dimension : int >= 1
        d, number of coordinates of the value.
    """
    if allowance.precision == "float" and best_exponent(q, dimension) > 2:
        return GeneralizedGaussian.calibrate(q, sensitivity, allowance, count, dimension)
    sensitivity_2 = dimension ** (1 / 2 - 1 / q) * sensitivity * _UP
    return Gaussian.calibrate(sensitivity_2, allowance, count, dimension)


# at the end: it is built on what stands above
from ._prefix_sum import PrefixSum  # noqa: E402
