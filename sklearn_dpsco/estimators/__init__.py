"""The public estimators."""
