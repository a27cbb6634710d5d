"""Noisy mirror descent: `solver` makes plans, `stages` holds their parts, `run` runs them."""

from .solver import FORMS, MirrorDescent
from .stages import MirrorDescentPlan, Round, Stage

__all__ = ["FORMS", "MirrorDescent", "MirrorDescentPlan", "Round", "Stage"]
