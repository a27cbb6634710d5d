"""Public preprocessing: what a schema declares, and what a pipeline learns from data."""
