"""The schema of a raw table: what is publicly known of each column, and how a row is encoded.

The type of a whole column is public and decides on its kind. Within a column of objects each
cell decides about itself alone.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from decimal import Decimal
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from .._checks import check_choice, check_real, shown
from .._types import AnyArray, Array, Integers
from ..data.bounds import check_feature_bounds, feature_scaling
from ..data.cells import (
    LARGEST_INTEGER,
    as_numbers,
    dates_of,
    days_of,
    is_of_bytes,
    is_of_polars,
    label_codes,
    texts_of_bytes,
)

MISSING = ("middle", "indicator", "zero", "keep")
OUTSIDE = ("clip", "missing")
UNKNOWN = ("none", "other")

_FORMS = (
    "a tuple (low, high) of numbers, a list of categories (all of them text, all integers or all "
    "booleans), or the type bool"
)
_FEW_INTEGERS = 10  # that are proposed as categories
_POLARS_KINDS = {
    "numbers": "Int8 Int16 Int32 Int64 UInt8 UInt16 UInt32 UInt64 Float32 Float64 Boolean",
    "text": "String Utf8 Categorical Enum Binary",
    "objects": "Decimal Int128 UInt128 Float16 Object Null",
}

# ------------------------------------------------------------------------------- cells


class Cells(NamedTuple):
    """The cells of a column."""

    kind: str  # "numbers", booleans included, "text", "objects" or "other", such as dates
    type_name: str  # of the column, for messages
    values: AnyArray  # float64 with NaN for what is missing, or objects

    def advice(self, name: Any) -> str:
        """How a column of another type than its schema is converted, by these types alone."""
        if "interval" in self.type_name:
            return "; pandas.cut(..., labels=[...]) makes text of numbers"
        if self.kind == "text":
            read = f"pandas.to_numeric(table[{name!r}], errors='coerce')"
            return f" (numbers by {read}, dates by pandas.to_datetime) or declare a list of texts"
        if self.kind == "numbers":  # as text, 1 may be "1.0", which is no category
            return ", or better declare a list of its numbers or booleans, such as [1, 2]"
        if self.type_name.lower().startswith(("timedelta", "duration")):
            return f": table[{name!r}].dt.days are days (of polars .dt.total_days())"
        is_date = self.kind == "other" and self.type_name.lower().startswith(("date", "timestamp"))
        return f"; {days_of(name)}" if is_date else ""

    def numbers(self) -> Array:
        """The cells as numbers, NaN for what is missing, infinite or no number."""
        values = as_numbers("X", self.values, strict=False)
        return np.where(np.isfinite(values), values, np.nan)

    def codes(self, categories: Sequence[Any]) -> Integers:
        """Position among the categories (1.0 and True are 1): -1 if none of them, -2 if missing."""
        if isinstance(categories[0], str):
            codes = label_codes(self.values, np.array(categories, dtype=object))
            # numbers and truth values, too, which one odd cell makes text of; missing ones are NaN
            told = [_is_told(cell) for cell in self.values]
            return np.where(np.array(told, dtype=bool), codes, -2)
        numbers = self.numbers()
        codes = np.where(np.isnan(numbers), -2, -1)
        for position, category in enumerate(categories):
            codes[numbers == float(category)] = position
        return codes


def _is_told(cell: Any) -> bool:
    """Whether it is text, a number, a truth value or a date, and not NaN."""
    if isinstance(cell, Decimal):  # of which some NaN raise where they are compared
        return not cell.is_nan()
    is_date = bool(dates_of(cell))
    return is_date or (isinstance(cell, (str, Real, np.bool_)) and bool(cell == cell))


def read_column(X: Any, name: str) -> Cells:
    """One column of a frame, of pandas or polars."""
    column = X[name]
    is_polars = is_of_polars(column)
    if is_polars:
        type_name = column.dtype.base_type().__name__
        kinds = (kind for kind, names in _POLARS_KINDS.items() if type_name in names.split())
        kind = next(kinds, "other")
        is_plain = kind == "numbers" and type_name != "Boolean"
    else:
        type_name, kind = str(column.dtype), _kind_of(column.dtype)
        if type_name == "category":
            type_name += f" of {column.dtype.categories.dtype}"
        is_plain = kind == "numbers" and isinstance(column.dtype, np.dtype)
    if is_plain:
        with np.errstate(all="ignore"):  # a warning would tell of some cell
            return Cells(kind, type_name, column.to_numpy().astype(np.float64))
    cells: Any = ()
    if is_of_bytes(column):
        cells = texts_of_bytes(column)
    elif kind != "other":
        cells = column.to_list() if is_polars else column.astype(object).to_numpy()
    return Cells(kind, type_name, np.fromiter(iter(cells), dtype=object, count=len(cells)))


def _kind_of(dtype: Any) -> str:
    """Of a numpy or a pandas type."""
    name = getattr(dtype, "name", "")
    if name == "category":
        return _kind_of(dtype.categories.dtype)
    letter = getattr(dtype, "kind", "O")
    if name.startswith(("period", "interval")):  # of objects that are neither numbers nor text
        return "other"
    if name in ("str", "string") or letter in "UTS":
        return "text"
    if letter in "biuf":
        return "numbers"
    # pandas makes a column complex for a single cell
    return "objects" if letter in "Oc" else "other"


# ------------------------------------------------------------------------------ fields


class OutputColumn(NamedTuple):
    """What an output column stands for.

    Attributes
    ----------
    source : str
        The table's column.
    category : object
        One of its categories, "other" or "missing"; None for a number or a boolean.
    shift, width : float
        The output for a cell x within the bounds is (x - shift) / width; of a 0/1 column 0 and 1.
    """

    source: str
    category: Any = None
    shift: float = 0.0
    width: float = 1.0

    @property
    def name(self) -> str:
        """As `get_feature_names_out` gives it."""
        return self.source if self.category is None else f"{self.source}_{self.category}"


class Field(NamedTuple):
    """A column of the table, as the schema declares it, and the columns that it becomes.

    A number is clipped and scaled as estimators do, and a boolean is a number of 0 to 1. Of a list,
    each category has a 0/1 column, and a row has at most one 1 in these.
    """

    name: str
    declared: Any  # (low, high), the type bool, or a list of categories
    missing: str | float  # one of `MISSING`, or of a number or a boolean what stands for it
    unknown: str  # one of `UNKNOWN`
    outside: str  # one of `OUTSIDE`
    reference: int | None  # position of the category that has no column
    scaling: Any  # of a number or a boolean, else None
    columns: list[OutputColumn]
    ends: list[tuple[float, float]]  # bounds of these columns
    square: float  # their largest sum of squares

    @classmethod
    def of(
        cls, name: str, declared: Any, missing: Any, unknown: str, outside: str, reference: Any
    ) -> Field:
        """What follows from the rules of a column."""
        more = ["missing"] * bool(missing == "indicator")
        scaling, columns, ends, square = None, [], [], 1.0
        if isinstance(declared, list):
            kept = [category for k, category in enumerate(declared) if k != reference]
            more = [*kept, *["other"] * (unknown == "other"), *more]
            if not more:
                raise ValueError(
                    f"drop leaves no column of schema[{name!r}], which names one category: leave "
                    "it out of the schema, or say drop={...} for other columns"
                )
        else:
            first, last = bounds = (0, 1) if declared is bool else declared
            if not isinstance(missing, str):
                missing = check_real(f"missing[{name!r}]", missing, low=first, high=last)
            scaling = feature_scaling(bounds, 1)
            columns = [OutputColumn(name, None, float(scaling.shift[0]), float(scaling.width[0]))]
            low, high = 0.0 if first == 0 else -1.0, 0.0 if last == 0 else 1.0
            ends = [(low, high)]
            # a missing value is the middle, 0 or +-1/2, and has a 1 in the column of its own
            square += ((low + high) / 2) ** 2 * len(more)
        columns += [OutputColumn(name, category) for category in more]
        ends += [(0.0, 1.0)] * len(more)
        rules = missing, unknown, outside, reference
        return cls(name, declared, *rules, scaling, columns, ends, square)

    def encode(self, cells: Cells) -> Iterator[tuple[int, Any, Any]]:
        """Entries of the columns: triples (column, rows, values)."""
        if self.scaling is None:
            codes, size = cells.codes(self.declared), len(self.declared)
            has_other = self.unknown == "other"
            if has_other:
                codes[codes == -1] = size
            elif self.outside == "missing":
                codes[codes == -1] = -2
            if self.missing == "indicator":
                # missing is one more category, and the only 1 of its group
                codes[codes == -2] = size + has_other
            elif self.missing == "middle" and has_other:
                codes[codes == -2] = size
            if self.reference is not None:
                codes[codes == self.reference] = -1
                codes[codes > self.reference] -= 1
            for position in range(len(self.columns)):
                yield position, np.flatnonzero(codes == position), 1.0
                if self.missing == "keep":
                    yield position, np.flatnonzero(codes == -2), np.nan
            return
        values = cells.numbers()
        if self.declared is bool:
            values = np.where((values == 0) | (values == 1), values, np.nan)
        elif self.outside == "missing":
            low, high = map(float, self.declared)
            values = np.where((values >= low) & (values <= high), values, np.nan)
        if not isinstance(self.missing, str):
            values = np.where(np.isnan(values), self.missing, values)
        values = self.scaling.transform(values[:, None])[:, 0]
        is_missing = np.isnan(values)
        if self.missing != "keep":
            values[is_missing] = 0.0 if self.missing == "zero" else sum(self.ends[0]) / 2
        yield 0, np.arange(values.size), values
        if self.missing == "indicator":
            yield 1, np.flatnonzero(is_missing), 1.0


def _rules(what: str, given: Any, known: Collection[str], kind: str, default: Any) -> Any:
    """The rule of each column, of a dict its own one or the default."""
    if not isinstance(given, Mapping):
        return defaultdict(lambda: given)
    if others := [name for name in given if name not in known]:
        raise ValueError(f"{what} has columns that are {kind}: {shown(others)}")
    return defaultdict(lambda: default, given)


def fields_of(schema: Any, missing: Any, unknown: Any, drop: Any, outside: Any) -> list[Field]:
    """The columns that a schema declares; errors name the column.

    `missing` is what is done with a missing cell, `outside` with a number out of its bounds, and
    `unknown` with a category that is not declared, of all columns or in a dict by their names,
    which may have the number that a missing one is; `drop` says which category has no column.
    """
    if not isinstance(schema, Mapping) or not schema:
        raise ValueError(
            "schema must be a dict with an entry for every column of the table, each of them "
            f"{_FORMS}; got {shown(schema)}"
        )
    if isinstance(missing, Real) and not isinstance(missing, bool):
        raise ValueError(
            "missing must be a dict {column: number} if a number stands for what is missing, got "
            f"{shown(missing)}"
        )
    if not isinstance(missing, Mapping):
        check_choice("missing", missing, MISSING)
    lists = {name for name, given in schema.items() if isinstance(given, list | np.ndarray)}
    several = {name for name, given in schema.items() if given is not bool}
    of_missing = _rules("missing", missing, schema, "not in the schema", MISSING[0])
    kind = "no numbers with bounds and no lists"
    of_outside = _rules("outside", outside, several, kind, OUTSIDE[0])
    of_unknown = _rules("unknown", unknown, lists, "no lists of categories", UNKNOWN[0])
    drop = {} if drop is None else drop
    if not isinstance(drop, Mapping):
        drop = dict.fromkeys(lists, check_choice("drop", drop, ("first",)))
    kind = "no lists of categories (a bool is one column by itself)"
    of_drop = _rules("drop", drop, lists, kind, None)
    fields = []
    for name, given in schema.items():
        if not isinstance(name, str):
            raise ValueError(f"schema must have text for column names, got {shown(name)}")
        if not isinstance(of_missing[name], Real):
            check_choice(f"missing[{name!r}]", of_missing[name], MISSING)
        elif name in lists:
            raise ValueError(
                f"missing[{name!r}] must be a name, as schema[{name!r}] is a list of categories; "
                f"got the number {shown(of_missing[name])}"
            )
        rules = of_unknown[name], of_outside[name]
        check_choice("unknown", rules[0], UNKNOWN)
        check_choice("outside", rules[1], OUTSIDE)
        if name in lists and isinstance(outside, Mapping) and rules == ("other", "missing"):
            raise ValueError(
                f"outside[{name!r}] is 'missing', and unknown gives a column to the same cells"
            )
        declared = _declared(name, given)
        reference = _reference(name, declared, of_drop)
        fields.append(Field.of(name, declared, of_missing[name], *rules, reference))
    return fields


def _plain(value: Any) -> Any:
    """A value of numpy as one of Python, which JSON has; dates stay, which some are integers of."""
    is_numpy = isinstance(value, np.generic) and value.dtype.kind not in "mM"
    return value.item() if is_numpy else value


def _declared(name: str, given: Any) -> Any:
    """What is declared of a column, of values of Python."""
    if isinstance(given, list | np.ndarray):
        return _categories(name, given)
    if given is bool:
        return bool
    if not isinstance(given, tuple):
        raise ValueError(f"schema[{name!r}] must be {_FORMS}; got {shown(given)}")
    ends = tuple(_plain(end) for end in given)
    # text that reads as a number, and booleans, are none here
    is_number = [isinstance(end, int | float) and type(end) is not bool for end in ends]
    numbers = [end if known else None for end, known in zip(ends, is_number, strict=True)]
    try:
        check_feature_bounds({name: numbers})
    except ValueError:
        more = "" if all(is_number) else f"; {days_of(name)}"
        raise ValueError(
            f"schema[{name!r}] must be two finite numbers (low, high) with low < high, at most "
            f"1e50 in size, or for categories a list; got {shown(given)}{more}"
        ) from None
    return ends


def _categories(name: str, given: Any) -> list[Any]:
    table = np.asarray(given, dtype=object)
    categories = [_plain(value) for value in table.flat]
    kinds = {type(category) for category in categories}
    fault = ""
    if not categories or table.ndim != 1:
        fault = "be a list of one category or more"
    elif len(kinds) > 1 or not kinds <= {str, int, bool}:
        fault = "hold categories of one type, all text, all integers or all booleans"
        fault += " (bounds of a number are a tuple, (low, high))" * (kinds <= {int, float})
    elif len(set(categories)) < len(categories):
        fault = "name each category once"
    elif int in kinds and max(map(abs, categories)) >= LARGEST_INTEGER:
        fault = "hold integers within 2^53"
    if fault:
        raise ValueError(f"schema[{name!r}] must {fault}; got {shown(given)}")
    return categories


def _reference(name: str, categories: list[Any], drop: Mapping[str, Any]) -> int | None:
    """Position of the category that a row of zeros stands for, if there is one."""
    if name not in drop:
        return None
    chosen = _plain(drop[name])
    if isinstance(chosen, str | int) and chosen in categories:
        return categories.index(chosen)
    if isinstance(chosen, str) and chosen == "first":
        return 0
    raise ValueError(
        f"drop[{name!r}] must be 'first' or one of the categories {shown(categories)}; got "
        f"{shown(chosen)}"
    )


# --------------------------------------------------------------------------- proposals


def proposed(name: Any, cells: Cells, most: int) -> Any:
    """Bounds, `most` categories or less, or `bool`. Reads values, and must see no private ones."""
    if cells.kind == "other":
        raise ValueError(
            f"column {name!r} has the type {cells.type_name}, which no schema describes: drop or "
            f"convert it{cells.advice(name)}"
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
    is_integer = bool(np.all((values == np.round(values)) & (np.abs(values) < LARGEST_INTEGER)))
    if is_integer and 2 <= values.size <= _FEW_INTEGERS:
        return [int(value) for value in values]
    low, high = nice_bounds(float(values[0]), float(values[-1]))
    return (int(low), int(high)) if is_integer and low.is_integer() else (low, high)


def nice_bounds(low: float, high: float) -> tuple[float, float]:
    """Bounds about [low, high]: multiples of the largest of 1, 2, 5 times 10^k <= range / 5."""
    # for the range of a single value its size stands
    spread = high / 5 - low / 5 if high > low else (abs(low) or 5.0) / 5
    power = 10.0 ** math.floor(math.log10(spread))
    step = power * max(k for k in (1, 2, 5) if k * power <= spread * (1 + 1e-9) or k == 1)
    first, last = math.floor(low / step), math.ceil(high / step)
    if first == last:
        first, last = first - 1, last + 1
    # decimal digits of the step, so that 3 * 0.1 is 0.3
    digits = max(0, -math.floor(math.log10(step)))
    return round(first * step, digits), round(last * step, digits)
