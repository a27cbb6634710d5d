"""Solvers: each makes a plan from public facts and runs it on data."""
