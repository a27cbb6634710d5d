"""Compiled loops: arrays, scalars and tuples of them in, arrays out; no policy, no noise."""
