"""Private scores of fitted models on held-out records."""

from .scores import DPScore, ScorePlan, dp_score, plan_score

__all__ = ["DPScore", "ScorePlan", "dp_score", "plan_score"]
