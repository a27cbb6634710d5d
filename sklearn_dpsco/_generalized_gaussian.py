"""The generalized Gaussian mechanism: noise shaped like the norm that it is measured in."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc, gammainccinv, gammaln

from ._random import RandomStream
from .accounting import Allowance, Precision
from .geometry import lp_norm

__all__ = ["GeneralizedGaussian", "best_exponent", "mean_noise_norm"]

_UP = 1 + 1e-12  # float error of the calibration lands on the private side
_STEP = 0.25  # of the exponents that are tried


@dataclass(frozen=True)
class GeneralizedGaussian:
    r"""Add noise of density proportional to :math:`\exp(-\|z\|_r^2 / (2 \sigma^2))`.

    With :math:`\ell_q` sensitivity :math:`\Delta`, :math:`2 \le r \le q` and
    :math:`\kappa = (r - 1) d^{2 (1/r - 1/q)}`, one release is
    :math:`\kappa \Delta^2 / (2 \sigma^2)`-zCDP and
    :math:`(\sqrt \kappa \Delta / \sigma)`-Gaussian-DP (doc/privacy.rst, section 2.2). r = 2
    is Gaussian noise of standard deviation :math:`\sigma` on each coordinate.

    There is no exact sampler: only ``precision="float"`` is offered, which is not safe
    against attacks on the low bits of what is released.

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
    """

    sensitivity: float
    scale: float
    q: float
    exponent: float
    dimension: int

    precision: Precision = "float"

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
        kappa = _regularity(q, exponent, dimension)
        scale = sensitivity * math.sqrt(kappa * count / (2 * allowance.amount)) * _UP
        return cls(sensitivity, scale, q, exponent, dimension, allowance.precision)

    @property
    def noise_multiplier(self) -> float:
        """Multiplier of the Gaussian with this guarantee, sigma / (sqrt(kappa) Delta)."""
        kappa = _regularity(self.q, self.exponent, self.dimension)
        return self.scale / (math.sqrt(kappa) * self.sensitivity)

    @property
    def mean_norm(self) -> float:
        """Expected l_q norm of the noise."""
        return self.scale * mean_noise_norm(self.q, self.exponent, self.dimension)

    def cost(self, composition: str) -> float:
        """Rho ("zcdp") or mu^2 / 2 ("gdp") of one release, which are the same number."""
        self._check(composition)
        return 1 / (2 * self.noise_multiplier**2)

    def dp_event(self, composition: str) -> Any:
        """The `GaussianDpEvent` whose guarantee was proved."""
        from dp_accounting import dp_event

        self._check(composition)
        return dp_event.GaussianDpEvent(self.noise_multiplier)

    def distance(self, difference: NDArray[np.float64]) -> float:
        """The l_q norm, in which the sensitivity is."""
        return lp_norm(difference, self.q)

    def release(self, value: NDArray[np.float64], stream: RandomStream) -> NDArray[np.float64]:
        """`value` plus noise, shape (dimension,)."""
        if value.size != self.dimension:
            raise ValueError(f"value must have {self.dimension} coordinates, got {value.size}")
        # |z|_r is chi with d degrees of freedom, and independent of the direction z / |z|_r,
        # which is that of independent coordinates of density exp(-|y|^r)
        radius = math.sqrt(2 * gammainccinv(self.dimension / 2, stream.uniform(1)[0]))
        r, sign_and_share = self.exponent, 2 * stream.uniform(self.dimension) - 1
        # a uniform share of Gamma(1 + 1/r)^(1/r) has the density exp(-y^r) / Gamma(1 + 1/r)
        y = _gamma(1 + 1 / r, self.dimension, stream) ** (1 / r) * sign_and_share
        return value + self.scale * radius * (y / lp_norm(y, r))

    def _check(self, composition: str) -> None:
        if composition not in ("zcdp", "gdp"):
            raise ValueError(f"{type(self).__name__} has no {composition} guarantee")


def _gamma(shape: float, size: int, stream: RandomStream) -> NDArray[np.float64]:
    """Gamma draws of a shape >= 1, by rejection (Marsaglia and Tsang 2000)."""
    d = shape - 1 / 3
    out = np.empty(size)
    filled = 0
    while filled < size:
        missing = size - filled
        x = stream.normal(missing)
        v = np.maximum(1 + x / math.sqrt(9 * d), 0.0) ** 3
        with np.errstate(divide="ignore"):
            log_accept = x**2 / 2 + d * (1 - v + np.log(v))
        accepted = v[np.log(stream.uniform(missing)) < log_accept]
        out[filled : filled + accepted.size] = d * accepted
        filled += accepted.size
    return out


def _regularity(q: float, r: float, dimension: int) -> float:
    """Kappa: |z|_r^2 / 2 is kappa-smooth in the l_q norm."""
    return (r - 1) * dimension ** (2 * (1 / r - 1 / q))


@lru_cache(maxsize=256)
def best_exponent(q: float, dimension: int) -> float:
    """The r, among 2, 2.25, ..., with the least expected l_q norm at the same guarantee.

    2 where the plain Gaussian is as good. A function of q and d alone: the guarantee and
    the sensitivity only scale the noise.
    """
    highest = min(q, 2 + 2 * math.log(dimension))
    candidates = np.arange(2.0, highest + 1e-9, _STEP)

    def size(r: float) -> float:
        return math.sqrt(_regularity(q, r, dimension)) * mean_noise_norm(q, r, dimension)

    return min((float(r) for r in candidates), key=size)


@lru_cache(maxsize=4096)
def mean_noise_norm(q: float, r: float, dimension: int) -> float:
    """E |z|_q for sigma = 1, by quadrature.

    z = R Y / |Y|_r with R chi-distributed, and Y of independent coordinates of density
    proportional to exp(-|y|^r). |Y|_r^r has the law Gamma(d / r) and is independent of
    Y / |Y|_r, so E |z|_q = E R * E |Y|_q / E |Y|_r.
    """
    d = dimension
    log_radius = math.log(2) / 2 + gammaln((d + 1) / 2) - gammaln(d / 2)
    log_length = gammaln((d + 1) / r) - gammaln(d / r)
    if r == q:
        return math.exp(log_radius)
    mean = _mean_largest(r, d) if q == math.inf else _mean_norm(q, r, d)
    return math.exp(log_radius - log_length) * mean


def _mean_largest(r: float, dimension: int) -> float:
    """E max_j |Y_j|: the integral of 1 - P(|Y| <= y)^d."""
    y, weight = _nodes(0.0, (math.log(dimension) + 40) ** (1 / r))
    return float(weight @ (1 - gammainc(1 / r, y**r) ** dimension))


def _mean_norm(q: float, r: float, dimension: int) -> float:
    """E S^s, S = sum_j |Y_j|^q, s = 1 / q, from the Laplace transform of |Y|^q.

    E S^s = s / Gamma(1 - s) * integral over x of (1 - E[exp(-t |Y|^q)]^d) exp(-s x),
    t = exp(x). Beyond the grid the integrand is that of its two limits.
    """
    s = 1 / q
    log_moment = gammaln((q + 1) / r) - gammaln(1 / r)  # of E |Y|^q
    middle = -log_moment - math.log(dimension)
    x = np.arange(middle - 40, middle + 40 + 80 * max(1.0, q / dimension), 0.25)
    # y = exp(w): the trapezoid rule converges exponentially
    w = np.linspace(-60.0, math.log(60) / r, 800)
    log_density = w - np.exp(r * w) - gammaln(1 + 1 / r)
    weight = np.exp(log_density) * (w[1] - w[0])
    weight[-1] /= 2
    loss = -np.expm1(-np.exp(np.minimum(x[:, None] + q * w[None, :], 700.0))) @ weight
    with np.errstate(divide="ignore"):
        alive = -np.expm1(dimension * np.log1p(-np.minimum(loss, 1.0)))
    scaled = alive * np.exp(-s * (x - middle))
    total = 0.25 * (scaled.sum() - (scaled[0] + scaled[-1]) / 2)
    total += scaled[0] / (1 - s) + scaled[-1] / s
    return float(math.exp(-s * middle - gammaln(1 - s)) * s * total)


@lru_cache(maxsize=8)
def _legendre(size: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    nodes, weights = np.polynomial.legendre.leggauss(size)
    return nodes, weights


def _nodes(low: float, high: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Gauss-Legendre nodes and weights on [low, high]."""
    nodes, weights = _legendre(300)
    half = (high - low) / 2
    return low + half * (nodes + 1), half * weights
