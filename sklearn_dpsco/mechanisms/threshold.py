"""Counts of keys that nobody declared: those that many users have (doc/privacy, section 2.19)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from .._types import Array
from ..privacy.budget import Allowance
from ..randomness.stream import RandomStream
from .additive import Gaussian


@dataclass(frozen=True)
class KeyedGaussian(Gaussian):
    r"""Noise on the counts of the keys that occur, of which those above a threshold are released.

    A user adds at most :math:`1 / \sqrt t` to each of t keys, :math:`t \le k`. Which keys
    occur is private: one that nobody else has is released with a probability of at most

    .. math:: 1 - \Phi\Big(\frac{\tau - 1 / \sqrt t}{\sigma}\Big),

    and the largest probability that one of t is, is the `slack`. All else is a function of counts
    with Gaussian noise, of which the two users in whom neighbours differ change at most 2 k.

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

    def select(self, counts: Array, stream: RandomStream) -> tuple[NDArray[np.intp], Array]:
        """Which of the keys are released, and their noisy counts; those that occur have counts > 0.

        Without noise that is all that occur.
        """
        noisy = self.with_noise(counts, stream)
        least = self.threshold if self.scale else -math.inf
        chosen = np.flatnonzero((noisy > least) & (counts > 0))
        return chosen, noisy[chosen]
