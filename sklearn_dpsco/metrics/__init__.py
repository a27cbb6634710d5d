"""Private scores of fitted models on held-out records."""

from .plan import ScorePlan, plan_score
from .scores import DPScore, dp_score

__all__ = ["DPScore", "ScorePlan", "dp_score", "plan_score"]
