"""Preparing tables: by public schemas, or by released units and bounds; what a pipeline leaks."""
