r"""Expected l_q norm of noise of density proportional to exp(-|z|_r^2 / (2 sigma^2))."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy.special import gammainc, gammaln

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
    highest = min(q, 2 + 2 * math.log(dimension))
    candidates = np.arange(2.0, highest + 1e-9, _STEP)
    sizes = [
        math.sqrt(regularity(q, float(r), dimension)) * mean_noise_norm(q, float(r), dimension)
        for r in candidates
    ]
    return float(candidates[int(np.argmin(sizes))])


@lru_cache(maxsize=4096)
def mean_noise_norm(q: float, r: float, dimension: int) -> float:
    """E |z|_q for sigma = 1: E R * E |Y|_q / E |Y|_r of doc/privacy, section 2.2, by quadrature."""
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
