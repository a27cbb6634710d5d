"""Heavy tails: `magnitudes` releases scales, `oracles` bounds gradients, `solver` plans."""

from .plan import FirstMagnitudes, HeavyTailPlan
from .solver import FORMS, HeavyTail

__all__ = ["FORMS", "FirstMagnitudes", "HeavyTail", "HeavyTailPlan"]
