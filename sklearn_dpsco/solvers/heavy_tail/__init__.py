"""Heavy tails: `magnitudes` releases scales, `oracles` bounds gradients, `solver` plans."""

from .first import FirstMagnitudes
from .solver import FORMS, HeavyTail, HeavyTailPlan

__all__ = ["FORMS", "FirstMagnitudes", "HeavyTail", "HeavyTailPlan"]
