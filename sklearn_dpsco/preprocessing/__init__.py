"""Preparing tables under differential privacy: released units, and released bounds."""
