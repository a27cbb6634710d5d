"""Heavy tails: `magnitudes` releases scales, `oracles` bounds gradients, `solver` plans."""

from .descent import UnboundedDescent, UnboundedDescentPlan
from .solver import SCOF, FirstMagnitudes, HeavyTail, HeavyTailPlan, SCOFSlices

__all__ = [
    "SCOF",
    "FirstMagnitudes",
    "HeavyTail",
    "HeavyTailPlan",
    "SCOFSlices",
    "UnboundedDescent",
    "UnboundedDescentPlan",
]
