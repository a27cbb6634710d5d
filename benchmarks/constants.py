"""The numbers of `sklearn_dpsco.solvers.defaults`, multiplied for a while."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

__all__ = ["scaled_defaults"]


@contextmanager
def scaled_defaults(sets: Iterable[Any], factors: dict[str, float]) -> Iterator[None]:
    """Every field of that name, in every set that has it, times its factor."""
    found = [(s, f.name, getattr(s, f.name)) for s in sets for f in fields(s) if f.name in factors]
    if missing := set(factors) - {name for _, name, _ in found}:
        raise ValueError(f"no set of defaults has {sorted(missing)}")
    try:
        for owner, name, value in found:  # the sets are frozen for everybody else
            object.__setattr__(owner, name, type(value)(value * factors[name]))
        yield
    finally:
        for owner, name, value in found:
            object.__setattr__(owner, name, value)
