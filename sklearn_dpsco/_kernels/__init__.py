"""Compiled loops: arrays and scalars in, arrays out; no classes, no policy, no noise."""
