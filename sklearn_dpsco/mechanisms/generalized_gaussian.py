"""The generalized Gaussian mechanism: noise whose density depends on its l_r norm."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import gammainccinv

from .._types import Array, Precision
from ..geometry import lp_norm
from ..privacy.budget import ROUNDING, Allowance
from ..randomness.stream import RandomStream
from .laws import Gaussian, Mechanism, best_exponent, mean_noise_norm, regularity, releasable

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
