r"""What Gaussian noise on random batches costs.

Two laws of the batch, one for each relation (doc/privacy, section 2.6): batches of a fixed size
drawn without replacement under replace-one, and Poisson batches, normalized by their expected
size, under zero-out. Both are pairs of a mixture and one of its parts: with
:math:`Q = N(0, 1)`, z the noise multiplier and q the probability that a record is in the batch,

.. math:: P = (1 - q) Q + q N(1 / z, 1) .
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy.special import logsumexp

from .._types import Array
from .selections import gaussian_delta

# Below, privacy loss distributions are not asked: Fourier transforms round absolutely.
LEAST_DELTA = 1e-12

# Of the quadrature: its reach beyond the peak and its panels, in standard deviations of the
# noise, and a margin for its error.
_REACH, _PANELS_PER_UNIT, _MOST_PANELS = 40.0, 50, 10**6
_QUADRATURE = 1 + 1e-6


def mixture_delta(epsilon: Array, noise_multiplier: float, probability: float) -> Array:
    r"""Hockey-stick divergence of P and Q at e^epsilon, elementwise.

    :math:`q \, \delta_{1/z}(\ln(1 + (e^\epsilon - 1) / q))`, with the curve of Gaussian noise, and
    :math:`1 - e^\epsilon` up to :math:`\epsilon = \ln(1 - q)`. At epsilon >= 0 it is the delta of a
    batch of fixed size, for both orders of two neighbours.
    """
    q = probability
    with np.errstate(over="ignore"):
        ratio = np.expm1(epsilon) / q
    inside = ratio > -1
    amplified = np.log1p(np.where(inside, ratio, 0.0))
    # where the exponential overflows, ln((e^epsilon - 1 + q) / q) is epsilon - ln(q)
    amplified = np.where(np.isfinite(amplified), amplified, epsilon - math.log(q))
    found = q * gaussian_delta(amplified, 1 / noise_multiplier)
    return np.where(inside, found, -np.expm1(np.minimum(epsilon, 0.0)))


@lru_cache(maxsize=1024)
def batch_renyi(order: float, noise_multiplier: float, probability: float, law: str) -> float:
    r"""Renyi divergence of one release on a random batch, for the worst order of neighbours.

    z is the noise multiplier, q the probability that a record is in the batch, `law` "fixed" or
    "poisson". Poisson: :math:`\ln E_Q[r^\alpha] / (\alpha - 1)`, r = P / Q. Fixed size: with the
    symmetric curve of `mixture_delta`, :math:`\ln(1 + E_Q[(r^\alpha - r + r^{1 - \alpha} - 1)
    1_{r > 1}]) / (\alpha - 1)`. At most the cost without sampling.
    """
    z, q, a = noise_multiplier, probability, order - 1
    whole = order / (2 * z**2)
    end = order / z + _REACH  # the integrand is largest between 0 and order / z
    n_panels = 2 * math.ceil(_PANELS_PER_UNIT * (end + _REACH) / 2)
    if q >= 1 or n_panels > _MOST_PANELS:
        return whole
    start = 0.5 / z if law == "fixed" else -_REACH
    w = np.linspace(start, max(end, start + _REACH), n_panels + 1)
    log_ratio = np.logaddexp(math.log1p(-q), math.log(q) + w / z - 1 / (2 * z**2))
    with np.errstate(divide="ignore", over="ignore"):
        if law == "fixed":
            # (1 - r^-a) (r^alpha - 1), which is the sum above without cancellation
            log_ratio = np.maximum(log_ratio, 0.0)
            terms = np.log(-np.expm1(-a * log_ratio)) + np.log(-np.expm1(-order * log_ratio))
            terms += order * log_ratio
        else:
            # ln(r^alpha - 1 - alpha (r - 1)) at r = e^u, or more; its mean is E[r^alpha] - 1
            u, exponent = log_ratio, order * log_ratio
            near = np.abs(exponent) < 1e-5  # Taylor's remainder, free of cancellation
            remainder = order * (order - 1) / 2 * np.expm1(np.where(near, u, 1.0)) ** 2
            exact = np.expm1(np.minimum(exponent, 50.0)) - order * np.expm1(np.minimum(u, 50.0))
            remainder *= np.exp(np.where(near, np.abs(exponent), 0.0))
            middle = np.log(np.where(near, remainder, np.maximum(exact, 0.0)))
            # far out, ln(r^alpha) alone, which is much more for orders near 1
            terms = np.where(exponent > 40.0, exponent, middle)
    weights = np.ones(w.size)  # Simpson's
    weights[1:-1:2], weights[2:-1:2] = 4.0, 2.0
    weights *= (w[1] - w[0]) / 3
    log_density = -(w**2) / 2 - math.log(2 * math.pi) / 2
    excess = float(logsumexp(terms + log_density + np.log(weights)))
    return min(whole, float(np.logaddexp(0.0, excess)) * _QUADRATURE / a)
