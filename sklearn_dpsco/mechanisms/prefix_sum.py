r"""Noisy sums of the first t vectors of a stream, for every t, in bounded memory.

A lower triangular matrix C of public numbers and a left inverse turn the prefix sums A x into
:math:`A C^{-1} (C x + z)` with independent Gaussian z. The rows of C x + z are released one by one;
the rest is post-processing. A record that changes one vector of the stream changes C x by at most
the largest column norm of C times that change (doc/privacy, section 2.4).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import numpy as np

from .._checks import check_int
from .._types import Array
from ..data.rows import UNIT_ROUNDOFF
from ..privacy.budget import ROUNDING, Allowance
from .laws import Gaussian

_MOST_STEPS = 2**40  # the largest rate must be told apart from 1
# Quadrature of the arcsine law in the logit of 1 - theta: width of a panel, and how far it
# reaches beyond 1 / n_steps and 1 / 2. Finer ones lower the noise by less than 1e-4 of it.
_PANEL = 2.0
_REACH = (1.0, 2.0)


# ---------------------------------------------------- the square root of the prefix sum, Toeplitz


@lru_cache(maxsize=256)
def _exponentials(n_steps: int) -> tuple[Array, Array]:
    r"""Rates and weights with :math:`c_k \approx \sum_j w_j \theta_j^k` for k < n_steps.

    The coefficients of :math:`(1 - q)^{-1/2}`, the square root of the prefix sum, are the
    moments of the arcsine law, :math:`c_k = \frac1\pi \int_0^1 \theta^k
    (\theta (1 - \theta))^{-1/2} d\theta`. The logit of 1 - theta makes the integrand smooth
    and its tails light; the mass beyond each end is put on one point.
    """
    low, high = -math.log(max(2, n_steps)) - _REACH[0], _REACH[1]
    n_panels = math.ceil((high - low) / _PANEL)
    width = (high - low) / n_panels
    gaps = 1 / (1 + np.exp(-(low + width * (np.arange(n_panels) + 0.5))))
    weights = width / math.pi * np.sqrt(gaps * (1 - gaps))
    first, last = 1 / (1 + math.exp(-low)), 1 / (1 + math.exp(-high))
    gaps = np.concatenate(([first / 3], gaps, [1 - (1 - last) / 3]))
    near_one = 2 / math.pi * math.asin(math.sqrt(first))
    near_zero = 2 / math.pi * math.acos(math.sqrt(last))
    return 1 - gaps, np.concatenate(([near_one], weights, [near_zero]))


def _column_norm(n_steps: int) -> float:
    """sqrt(sum of c_k^2 over k < n_steps), rounded up."""
    rates, weights = _exponentials(n_steps)
    gaps = 1 - rates  # exact for rates above 1/2, and harmless below
    product_gaps = gaps[:, None] + gaps - gaps[:, None] * gaps
    # sums of geometric series; all terms are positive, so nothing cancels
    series = -np.expm1(n_steps * np.log1p(-product_gaps)) / product_gaps
    return math.sqrt(float(weights @ series @ weights)) * ROUNDING


def _float_error(n_steps: int) -> float:
    """l2 norm over the stream of the float error of C x, for vectors of norm at most 1."""
    rates, weights = _exponentials(n_steps)
    sums = np.minimum(n_steps, 1 / (1 - rates))
    # two roundings at each update of a sum, whose errors decay as the sum does, and those of
    # the weighted total; 3 in place of 2 for terms of second order
    update = 3 * UNIT_ROUNDOFF * sums**2
    total = (rates.size + 4) * UNIT_ROUNDOFF * sums
    return math.sqrt(n_steps) * float(weights @ (update + total))


class PrefixRun:
    """A stream: exponentially weighted sums, O(log n_steps) vectors of memory."""

    def __init__(self, n_steps: int, width: int) -> None:
        rates, self._weights = _exponentials(n_steps)
        self._rates = rates[:, None]
        self._sums = np.zeros((rates.size, width))
        self._noisy_sums = np.zeros((rates.size, width))
        self._prefix = np.zeros(width)

    def encode(self, vector: Array) -> Array:
        """What has to be released at this step, shape (width,); uses un-noised sums."""
        self._sums *= self._rates
        self._sums += vector
        return self._weights @ self._sums

    def decode(self, released: Array) -> Array:
        """The noisy prefix sum, shape (width,), from what was released at this step alone."""
        # solves for the only vector that gives this release, given the earlier ones
        self._noisy_sums *= self._rates
        noisy = (released - self._weights @ self._noisy_sums) / self._weights.sum()
        self._noisy_sums += noisy
        self._prefix = self._prefix + noisy
        return self._prefix


# ------------------------------------------------------------------------- the mechanism


@dataclass(frozen=True)
class PrefixSum(Gaussian):
    r"""Gaussian noise on an encoded stream, from which every prefix sum can be estimated.

    C has the coefficients of the square root of the prefix sum, up to an approximation by
    O(log n_steps) exponentials that costs less than 0.01 % of noise.

    ``run = mechanism.start(width)`` begins a stream. At each step,
    ``run.decode(mechanism.release(run.encode(vector), stream))`` is the noisy sum of the vectors so
    far, which may depend on earlier results (doc/privacy, section 2.4).

    Parameters
    ----------
    sensitivity : float > 0
        l2 change of the whole encoded stream by one record, before it is rounded.
    scale : float > 0
        Standard deviation of the noise on each encoded coordinate.
    dimension : int >= 1, default=1
        Number of encoded coordinates over the whole stream.
    precision : {"exact", "float"}, default="exact"
    n_steps : int >= 1, default=1
        Length of the stream.

    Examples
    --------
    >>> from sklearn_dpsco import PrivacyBudget
    >>> from sklearn_dpsco.mechanisms import PrefixSum
    >>> allowance = PrivacyBudget(epsilon=1.0, delta=1e-6).allowance
    >>> noise = PrefixSum.calibrate(1.0, allowance, n_steps=1024, width=3, largest_norm=1.0)
    >>> first, last = noise.prefix_scales()[[0, -1]]  # of the sums after 1 and 1024 steps
    >>> bool(first < last < 32 * first)  # independent noise would grow by the root of 1024
    True
    """

    n_steps: int = 1

    is_joint: ClassVar[bool] = True

    @classmethod
    def calibrate(  # type: ignore[override]
        cls,
        sensitivity: float,
        allowance: Allowance,
        *,
        n_steps: int,
        width: int,
        largest_norm: float,
    ) -> PrefixSum:
        """Least noise with which one stream stays within `allowance`.

        Parameters
        ----------
        sensitivity : float > 0
            l2 change of a step's vector by a record, which may enter one step only.
        allowance : Allowance
        n_steps : int >= 1
        width : int >= 1
            Number of coordinates of a step's vector.
        largest_norm : float >= 0
            Bound on the l2 norm of a step's vector; decides what float errors add.

        Raises
        ------
        ValueError
            If the allowance is pure, or a parameter is out of range.
        """
        if check_int("n_steps", n_steps, low=1) > _MOST_STEPS:
            raise ValueError(f"n_steps must be at most {_MOST_STEPS}, got {n_steps}")
        error = 2 * largest_norm * _float_error(n_steps)
        total = (sensitivity * _column_norm(n_steps) + error) * ROUNDING
        noise = super().calibrate(total, allowance, dimension=n_steps * width)
        return replace(noise, n_steps=n_steps)

    def start(self, width: int) -> PrefixRun:
        """A new run over vectors of shape (width,)."""
        return PrefixRun(self.n_steps, width)

    @property
    def worst_scale(self) -> float:
        """Largest of `prefix_scales`, or a little more, without computing them all."""
        # both factors of the square root are the same
        return self.scale * _column_norm(self.n_steps) * 1.001

    @property
    def response(self) -> tuple[Array, Array]:
        """Rates r and weights w: of a step's noise, the k-th sum after it has w times r^k."""
        return _exponentials(self.n_steps)

    def prefix_scales(self) -> Array:
        """Standard deviation of each coordinate's noise in every prefix sum, shape (n_steps,)."""
        from .._kernels.prefix_sum import prefix_response

        response = prefix_response(*_exponentials(self.n_steps), self.n_steps)
        return self.scale * np.sqrt(np.cumsum(response**2))
