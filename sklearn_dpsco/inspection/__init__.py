"""Displays in scikit-learn's way: what privacy costs, where the budget goes, what a model says."""
