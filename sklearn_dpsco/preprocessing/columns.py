"""Columns of data frames, of pandas or polars, as arrays of numbers, of text or of any objects.

The type of a whole column is public and decides on its kind. Within a column of objects each
cell decides about itself alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data.cells import as_numbers

__all__ = ["Cells", "is_frame", "read_column"]

_POLARS_NUMBERS = {"Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64"}
_POLARS_NUMBERS |= {"Float32", "Float64"}
_POLARS_TEXT = {"String", "Utf8", "Categorical", "Enum"}
_POLARS_CELLS = {"Decimal", "Int128", "UInt128", "Float16", "Object", "Null"}


@dataclass(frozen=True)
class Cells:
    """The cells of a column."""

    kind: str  # "numbers", booleans included, "text", "objects" or "other", such as dates
    type_name: str  # of the column, for messages
    values: NDArray[Any]  # float64 with NaN for what is missing, or objects

    def numbers(self) -> NDArray[np.float64]:
        """The cells as numbers, NaN for what is missing, infinite or no number."""
        values = self.values
        if values.dtype == object:
            values = as_numbers("X", values, strict=False)
        return np.where(np.isfinite(values), values, np.nan)

    def codes(self, categories: Sequence[Any]) -> NDArray[np.int64]:
        """Position of each cell among the categories: -1 if it is none of them, -2 if missing.

        Text is compared with text, and numbers with numbers, 1.0 and True being 1.
        """
        if isinstance(categories[0], str):
            places = {category: k for k, category in enumerate(categories)}
            found = (places.get(c, -1) if isinstance(c, str) else -2 for c in self.values.flat)
            return np.fromiter(found, dtype=np.int64, count=self.values.size)
        numbers = self.numbers()
        codes = np.where(np.isnan(numbers), -2, -1)
        for position, category in enumerate(categories):
            codes[numbers == float(category)] = position
        return codes


def is_frame(X: Any) -> bool:
    """Whether it is a data frame with columns that are in memory."""
    # (of a lazy frame of polars the first is missing, and the others warn)
    return all(hasattr(X, name) for name in ("shape", "columns", "dtypes", "__getitem__"))


def read_column(X: Any, name: str) -> Cells:
    """One column of a frame."""
    column = X[name]
    if type(column).__module__.partition(".")[0] != "polars":
        kind, type_name = _kind_of(column.dtype), str(column.dtype)
        if kind == "numbers" and isinstance(column.dtype, np.dtype):
            return Cells(kind, type_name, column.to_numpy().astype(np.float64))
        cells = column.astype(object).to_numpy() if kind != "other" else ()
        return Cells(kind, type_name, _objects(cells))
    type_name = column.dtype.base_type().__name__
    if type_name in _POLARS_NUMBERS:
        return Cells("numbers", type_name, column.to_numpy().astype(np.float64))
    if type_name == "Boolean":
        values = as_numbers("X", _objects(column.to_list()), strict=False)
        return Cells("numbers", type_name, values)
    is_text, is_plain = type_name in _POLARS_TEXT, type_name in _POLARS_CELLS
    kind = "text" if is_text else "objects" if is_plain else "other"
    return Cells(kind, type_name, _objects(column.to_list() if kind != "other" else ()))


def _objects(cells: Any) -> NDArray[Any]:
    return np.fromiter(iter(cells), dtype=object, count=len(cells))


def _kind_of(dtype: Any) -> str:
    """Of a numpy or a pandas type."""
    name = getattr(dtype, "name", "")
    if name == "category":
        return _kind_of(dtype.categories.dtype)
    letter = getattr(dtype, "kind", "O")
    if name in ("str", "string") or letter in "UTS":
        return "text"
    if letter in "biuf":
        return "numbers"
    # pandas makes a column complex for a single cell
    return "objects" if letter in "Oc" else "other"
