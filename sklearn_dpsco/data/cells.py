"""Cells of tables and targets as numbers: one address for what is a number and what is none.

A cell that is no number becomes NaN, and decides about no other cell: neither about its value
nor about an error or a warning. What the type of a whole container says is public.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from .._checks import LARGEST, listed, shown

__all__ = [
    "NotANumberError",
    "as_numbers",
    "as_objects",
    "check_numbers",
    "is_missing_cell",
    "plain",
]

Array = NDArray[np.float64]

_NUMBERS = (Real, Decimal, np.bool_, str, bytes)  # `float` takes some others, and warns
_NO_NUMBERS = {
    "c": "Complex",
    "M": "Date",
    "m": "Time span",
    "S": "Byte",
    "T": "Text",
    "U": "Text",
    "V": "Structured",
}
_POLARS_KINDS = {"Date": "M", "Datetime": "M", "Time": "m", "Duration": "m"}


class NotANumberError(ValueError, TypeError):
    """A cell is neither a number nor missing. A `TypeError`, too, as scikit-learn has it."""


def as_numbers(name: str, values: Any, *, strict: bool) -> Any:
    """`values` with all cells numbers or NaN.

    Arrays, sparse matrices and data frames of numeric types are returned as they are: that
    their types are numeric is public. All else is converted cell by cell to a float64 array:
    numbers of any kind, and text that `float` reads as one, become the nearest float; those that
    are too large become infinite or NaN, and all else NaN.

    Types that hold no numbers, such as complex numbers or text, are a `ValueError`; a cell that is
    neither a number nor missing, or too large, is a `NotANumberError` with `strict`, and then only.
    """
    values = plain(values)
    kinds = {getattr(getattr(values, "dtype", None), "kind", "O")}
    if _is_frame(values):
        kinds = {_kind(column_type) for column_type in values.dtypes}
        # pandas makes a column complex for a single cell
        kinds = {"O" if kind == "c" else kind for kind in kinds}
    for kind in sorted(kinds & _NO_NUMBERS.keys()):
        raise ValueError(
            f"{_NO_NUMBERS[kind]} data not supported: {name} must hold numbers{_hint(name, values)}"
        )
    if "O" not in kinds:
        return values
    cells = as_objects(values)
    found = [_number(cell) for cell in cells.flat]
    if strict and any(
        number is None and not is_missing_cell(cell)
        for number, cell in zip(found, cells.flat, strict=True)
    ):
        raise NotANumberError(
            f"{name} must hold numbers within the range of floats: float's argument must be a "
            f"string or a real number{_hint(name, values)}"
        )
    out = np.empty_like(cells, dtype=np.float64)  # in the same order
    out[...] = np.reshape([np.nan if n is None else n for n in found], cells.shape)
    return out


def check_numbers(name: str, value: Any, *, low: float = -LARGEST, high: float = LARGEST) -> Array:
    """A parameter that is a number or numbers by column, as an array, if all are in the range.

    The default range is far beyond any use, and keeps products of parameters finite.
    """
    try:
        with np.errstate(over="ignore"):
            array = np.asarray(as_numbers(name, value, strict=True), dtype=np.float64)
    except (TypeError, ValueError):
        array = np.array(np.nan)
    if not np.all((array >= low) & (array <= high)):
        raise ValueError(
            f"{name} must hold finite numbers in [{low:g}, {high:g}], got {shown(value)}"
        )
    return array


def plain(values: Any) -> Any:
    """Whatever converts itself to an array as that array, where a masked cell is NaN.

    Lists, sparse matrices and data frames remain what they are.
    """
    if isinstance(values, np.ma.MaskedArray):
        return np.ma.filled(values.astype(object), np.nan)
    is_other = isinstance(values, np.ndarray) or sparse.issparse(values) or _is_frame(values)
    return np.asarray(values) if hasattr(values, "__array__") and not is_other else values


def is_missing_cell(cell: Any) -> bool:
    """Whether it is None, NaN or infinite, or does not let itself be compared, like `pandas.NA`."""
    if cell is None:
        return True
    try:
        return bool(cell != cell) or cell in (np.inf, -np.inf)
    except Exception:
        return True


def _is_frame(values: Any) -> bool:
    return hasattr(values, "columns") and hasattr(values, "dtypes")


def _kind(column_type: Any) -> str:
    """Of a column, as numpy abbreviates it; "O" for what it has no name for."""
    if hasattr(column_type, "base_type"):  # of polars, which hands out dates as whole numbers
        return _POLARS_KINDS.get(column_type.base_type().__name__, "O")
    return str(getattr(column_type, "kind", "O"))


def _hint(name: str, values: Any) -> str:
    """What to do about values that are no numbers, by the types of the columns alone.

    Only columns of types of no numbers are named that a single cell does not bring about. Readers
    of files make text or objects of a column of numbers for one odd cell: its name would tell more
    than that there is one.
    """
    if name == "y":
        return ". Labels are for classifiers"
    if not _is_frame(values):
        return ""
    found = []
    for column, column_type in zip(values.columns, values.dtypes, strict=True):
        of_polars = hasattr(column_type, "base_type")
        kind = (column_type.base_type() if of_polars else type(column_type)).__name__
        if kind in ("Categorical", "CategoricalDtype", "Enum") or _kind(column_type) in "Mm":
            found.append(column)
    which = f"Columns of other types: {listed(found)}" if found else "X.dtypes tells their types"
    return f". {which}; PublicEncoder makes numbers of text and categories"


def as_objects(values: Any) -> NDArray[np.object_]:
    """An array of objects. numpy would make text of a whole list, or raise, for one odd cell."""
    if not isinstance(values, (list, tuple)):
        return np.asarray(values, dtype=object)
    is_table = all(
        (isinstance(row, np.ndarray) and row.ndim == 1)
        or (isinstance(row, Sequence) and not isinstance(row, (str, bytes)))
        for row in values
    )
    is_table = is_table and len({len(row) for row in values}) == 1
    out = np.empty((len(values), len(values[0])) if is_table else len(values), dtype=object)
    for i, row in enumerate(values):
        if not is_table:
            out[i] = row
            continue
        for j, cell in enumerate(row):
            out[i, j] = cell
    return out


def _number(cell: Any) -> float | None:
    try:
        if isinstance(cell, complex) and cell.imag == 0:
            return float(cell.real)
        return float(cell) if isinstance(cell, _NUMBERS) else None
    except Exception:  # whatever an object of another package may raise
        return None
