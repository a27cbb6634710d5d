"""Heavy tails: `magnitudes` releases scales, `oracles` bounds gradients, `solver` plans."""

from .solver import SCOF, FirstMagnitudes, HeavyTailPlan, SCOFSlices

__all__ = ["SCOF", "FirstMagnitudes", "HeavyTailPlan", "SCOFSlices"]
