"""Noisy mirror descent: `solver` makes plans, of `stages`."""

from .solver import FORMS, MirrorDescent
from .stages import MirrorDescentPlan, Round, Stage

__all__ = ["FORMS", "MirrorDescent", "MirrorDescentPlan", "Round", "Stage"]
