"""Budgets, guarantees and ledgers: how the costs of releases add up."""
