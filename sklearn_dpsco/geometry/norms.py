"""Norms of vectors."""

from __future__ import annotations

import math

import numpy as np
from scipy.linalg.blas import dnrm2

from .._types import Array


def lp_norm(x: Array, p: float) -> float:
    """The l_p norm for p in [1, inf], without overflow."""
    if p == 2:
        return float(dnrm2(x)) if x.size else 0.0
    size = np.abs(x)
    largest = float(size.max(initial=0.0))
    if largest == 0 or p == math.inf:
        return largest
    if p == 1:
        return float(size.sum())
    return largest * float(((size / largest) ** p).sum()) ** (1 / p)


def dual_exponent(p: float) -> float:
    """The q of the dual norm, 1 / p + 1 / q = 1, for p in [1, inf]."""
    if p in (1, math.inf):
        return math.inf if p == 1 else 1.0
    return p / (p - 1)
