"""Mechanisms: each holds a sensitivity and a noise scale, and releases a noisy value.

The scale that is used and the cost that is claimed are fields of one frozen object, so
that they cannot drift apart. A mechanism never chooses its own sensitivity: plans do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from ._random import RandomStream
from .accounting import Allowance

__all__ = ["Gaussian", "Laplace", "Mechanism", "Release", "SelectVertex"]

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
    """

    name: str
    mechanism: Mechanism
    count: int = 1


def _pure_event(epsilon: float) -> Any:
    """An event with exactly the trade-off curve of pure epsilon-DP (binary response)."""
    from dp_accounting import dp_event

    # 2 / (1 + e^epsilon), written so that a large epsilon does not overflow
    noise = 2 * math.exp(-epsilon) / (1 + math.exp(-epsilon))
    return dp_event.RandomizedResponseDpEvent(noise, 2)


def _unsupported(mechanism: object, composition: str) -> ValueError:
    return ValueError(f"{type(mechanism).__name__} has no {composition} guarantee")


@dataclass(frozen=True)
class Gaussian:
    r"""Add :math:`N(0, \sigma^2)` to every coordinate.

    With l2 sensitivity :math:`\Delta` one release is
    :math:`\Delta^2 / (2 \sigma^2)`-zCDP (doc/privacy.rst, section 2.1).

    Parameters
    ----------
    sensitivity : float > 0
        l2 sensitivity of the value.
    scale : float > 0
        Standard deviation of each coordinate's noise.
    """

    sensitivity: float
    scale: float

    @classmethod
    def calibrate(cls, sensitivity: float, allowance: Allowance, count: int = 1) -> Gaussian:
        """Least noise with which `count` releases stay within `allowance`."""
        if allowance.kind != "zcdp":
            raise ValueError("Gaussian noise has no pure-DP guarantee (delta=0)")
        scale = sensitivity * math.sqrt(count / (2 * allowance.amount)) * _UP
        return cls(sensitivity, scale)

    def cost(self, composition: str) -> float:
        """Rho of one release."""
        if composition != "zcdp":
            raise _unsupported(self, composition)
        return (self.sensitivity / self.scale) ** 2 / 2

    def dp_event(self, composition: str) -> Any:
        """`GaussianDpEvent` whose multiplier is relative to the full sensitivity."""
        from dp_accounting import dp_event

        if composition != "zcdp":
            raise _unsupported(self, composition)
        return dp_event.GaussianDpEvent(self.scale / self.sensitivity)

    def release(self, value: NDArray[np.float64], stream: RandomStream) -> NDArray[np.float64]:
        """`value` plus noise, shape (k,)."""
        return value + self.scale * stream.normal(value.size)


@dataclass(frozen=True)
class Laplace:
    r"""Add Laplace noise of scale b to every coordinate.

    With l1 sensitivity :math:`\Delta` one release is pure
    :math:`\Delta / b`-DP and :math:`(\Delta / b)^2 / 2`-zCDP.

    Parameters
    ----------
    sensitivity : float > 0
        l1 sensitivity of the value.
    scale : float > 0
        b; the standard deviation is sqrt(2) b.
    """

    sensitivity: float
    scale: float

    @classmethod
    def calibrate(cls, sensitivity: float, allowance: Allowance, count: int = 1) -> Laplace:
        """Least noise with which `count` releases stay within `allowance`."""
        if allowance.kind == "pure":
            scale = sensitivity * count / allowance.amount
        else:
            scale = sensitivity * math.sqrt(count / (2 * allowance.amount))
        return cls(sensitivity, scale * _UP)

    def cost(self, composition: str) -> float:
        """Epsilon ("pure") or rho ("zcdp") of one release."""
        epsilon = self.sensitivity / self.scale
        return epsilon if composition == "pure" else epsilon**2 / 2

    def dp_event(self, composition: str) -> Any:
        """The event of what was proved: pure epsilon, or rho."""
        from dp_accounting import dp_event

        cost = self.cost(composition)
        return _pure_event(cost) if composition == "pure" else dp_event.ZCDpEvent(cost)

    def release(self, value: NDArray[np.float64], stream: RandomStream) -> NDArray[np.float64]:
        """`value` plus noise, shape (k,)."""
        return value + self.scale * stream.laplace(value.size)


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
    """

    sensitivity: float
    scale: float
    noise: str = "gumbel"

    _LAWS: ClassVar[tuple[str, str]] = ("gumbel", "exponential")

    def __post_init__(self) -> None:
        if self.noise not in self._LAWS:
            raise ValueError(f"noise must be one of {self._LAWS}, got {self.noise!r}")

    @classmethod
    def calibrate(cls, sensitivity: float, allowance: Allowance, count: int = 1) -> SelectVertex:
        """Least noise with which `count` selections stay within `allowance`."""
        if allowance.kind == "pure":
            scale, noise = sensitivity * count / allowance.amount, "exponential"
        else:
            scale, noise = sensitivity * math.sqrt(count / (8 * allowance.amount)), "gumbel"
        return cls(sensitivity, scale * _UP, noise)

    def cost(self, composition: str) -> float:
        """Epsilon ("pure") or rho ("zcdp") of one selection."""
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
        """Index of the selected score."""
        draw = stream.gumbel if self.noise == "gumbel" else stream.exponential
        return int(np.argmax(scores + self.scale * draw(scores.size)))
