"""Noisy mirror descent: `solver` makes plans, of `stages`."""

from .solver import MirrorDescent, NoisyMD
from .stages import MirrorDescentPlan, Round, Stage

__all__ = ["MirrorDescent", "MirrorDescentPlan", "NoisyMD", "Round", "Stage"]
