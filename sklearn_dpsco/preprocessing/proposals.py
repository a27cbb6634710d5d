"""A schema proposed from a public table. Reads values, and must never see a private one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .._checks import check_count
from .columns import Cells, read_column

__all__ = ["nice_bounds", "proposed_schema"]

_FEW_INTEGERS = 10


def proposed_schema(df: Any, max_categories: int) -> dict[str, Any]:
    """Bounds, categories or `bool` for each column of a data frame."""
    most = check_count("max_categories", max_categories)
    return {name: _proposal(name, read_column(df, name), most) for name in df.columns}


def _proposal(name: Any, cells: Cells, most: int) -> Any:
    if cells.kind == "other":
        raise ValueError(
            f"column {name!r} has the type {cells.type_name}, which no schema describes: drop or "
            "convert it"
        )
    if cells.type_name.lower() in ("bool", "boolean", "bool[pyarrow]"):
        return bool
    of_texts = cells.values if cells.kind != "numbers" else ()
    texts = [cell for cell in of_texts if isinstance(cell, str)]
    if cells.kind == "text" or (cells.kind == "objects" and any(texts)):
        categories = sorted({str(cell) for cell in texts})
        if not 1 <= len(categories) <= most:
            raise ValueError(
                f"column {name!r} has {len(categories)} categories, and max_categories={most}: "
                "drop it or declare it yourself"
            )
        return categories
    numbers = cells.numbers()
    is_present = ~np.isnan(numbers)
    if not is_present.any():
        raise ValueError(f"column {name!r} has no values: declare it yourself")
    if cells.kind == "objects" and all(isinstance(cell, bool) for cell in cells.values[is_present]):
        return bool
    values = np.unique(numbers[is_present])
    is_integer = bool(np.all(values == np.round(values)) and np.all(np.abs(values) < 2**53))
    if is_integer and 2 <= values.size <= _FEW_INTEGERS:
        return [int(value) for value in values]
    low, high = nice_bounds(float(values[0]), float(values[-1]))
    return (int(low), int(high)) if is_integer and low.is_integer() else (low, high)


def nice_bounds(low: float, high: float) -> tuple[float, float]:
    """Bounds about [low, high]: multiples of the largest of 1, 2, 5 times 10^k <= range / 5.

    For the range of a single value its size stands, or for 0 the number 5.
    """
    spread = high / 5 - low / 5 if high > low else (abs(low) or 5.0) / 5
    power = 10.0 ** math.floor(math.log10(spread))
    step = power * max(k for k in (1, 2, 5) if k * power <= spread * (1 + 1e-9) or k == 1)
    first, last = math.floor(low / step), math.ceil(high / step)
    if first == last:
        first, last = first - 1, last + 1
    # decimal digits of the step, so that 3 * 0.1 is 0.3
    digits = max(0, -math.floor(math.log10(step)))
    return round(first * step, digits), round(last * step, digits)
