"""Settings chosen privately: searches that cost one budget, choice and best model together."""

from .search import DPGridSearchCV, DPRandomizedSearchCV

__all__ = ["DPGridSearchCV", "DPRandomizedSearchCV"]
