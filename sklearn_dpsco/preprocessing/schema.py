"""The schema of a raw table: what is publicly known of each column, and how a row is encoded."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._checks import shown
from ..data.bounds import check_feature_bounds, feature_scaling
from .columns import Cells

__all__ = [
    "MISSING",
    "UNKNOWN",
    "Field",
    "OutputColumn",
    "fields_of",
    "from_json",
    "to_json",
]

Array = NDArray[np.float64]

MISSING = ("middle", "indicator", "zero")
UNKNOWN = ("none", "other")

_FORMS = (
    "a tuple (low, high) of numbers, a list of categories (all of them text, all integers or all "
    "booleans), or the type bool"
)
_LARGEST_INTEGER = 2**53  # those below are told apart as floats
_FORMAT = "sklearn_dpsco.PublicEncoder"


class Rule(NamedTuple):
    """How missing values and unknown categories are encoded; one of `MISSING` and of `UNKNOWN`."""

    missing: str
    unknown: str


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


@dataclass(frozen=True)
class Field:
    """A column of the table, and the columns that it becomes.

    Attributes
    ----------
    name : str
    """

    name: str

    @property
    def accepts(self) -> tuple[str, ...]:
        """The kinds of columns of a frame that hold such values."""
        return "numbers", "objects"

    def outputs(self, rule: Rule) -> list[str]:
        """The names of its output columns."""
        return [column.name for column in self.output_columns(rule)]

    def output_columns(self, rule: Rule) -> list[OutputColumn]:
        """What its output columns stand for."""
        missing = [OutputColumn(self.name, "missing")] if rule.missing == "indicator" else []
        return [*self._columns(rule), *missing]

    def bounds(self, rule: Rule) -> tuple[list[float], list[float]]:
        """Lower and upper bounds of its output columns."""
        size = len(self.outputs(rule))
        return [0.0] * size, [1.0] * size

    def square_norm(self, rule: Rule) -> float:
        """The largest sum of squares of its output columns."""
        raise NotImplementedError

    def encode(self, cells: Cells, rule: Rule) -> Iterator[tuple[int, Any, Any]]:
        """Entries of the output: triples (column, rows, values), rows being indices or flags."""
        raise NotImplementedError

    def decode(self, block: Array, rule: Rule) -> NDArray[Any]:
        """The cells, as objects, of its output columns; None where nothing is known."""
        raise NotImplementedError

    def as_plain(self) -> dict[str, Any]:
        """Its facts as they stand in JSON."""
        raise NotImplementedError

    @property
    def declaration(self) -> Any:
        """Its facts as they stand in the schema."""
        raise NotImplementedError

    def _columns(self, rule: Rule) -> list[OutputColumn]:
        return [OutputColumn(self.name)]

    def check(self, cells: Cells) -> None:
        """Raise `ValueError` if the type of the whole column holds no such values."""
        if cells.kind not in self.accepts:
            raise ValueError(
                f"column {self.name!r} has the type {cells.type_name}, which does not go with "
                f"its schema {shown(self.declaration)}: convert the column"
            )


@dataclass(frozen=True)
class _Scalar(Field):
    """A number or a boolean: one column, and the value that a missing one gets."""

    def _fill(self, rule: Rule) -> float:
        return 0.0 if rule.missing == "zero" else self.middle

    @property
    def middle(self) -> float:
        """The middle of the bounds, in output units."""
        return 0.5

    def square_norm(self, rule: Rule) -> float:
        # a missing value is the middle, 0 or +-1/2, and has a 1 in the column of its own
        return 1.0 + self.middle**2 if rule.missing == "indicator" else 1.0

    def _scaled(self, cells: Cells) -> Array:
        raise NotImplementedError

    def encode(self, cells: Cells, rule: Rule) -> Iterator[tuple[int, Any, Any]]:
        values = self._scaled(cells)
        is_missing = np.isnan(values)
        values[is_missing] = self._fill(rule)
        yield 0, np.arange(values.size), values
        if rule.missing == "indicator":
            yield 1, np.flatnonzero(is_missing), 1.0

    def decode(self, block: Array, rule: Rule) -> NDArray[Any]:
        cells = self._unscaled(block[:, 0]).astype(object)
        if rule.missing == "indicator":
            cells[block[:, 1] > 0.5] = None
        return cells

    def _unscaled(self, values: Array) -> NDArray[Any]:
        raise NotImplementedError


@dataclass(frozen=True)
class Number(_Scalar):
    """A number that is clipped to its bounds and scaled as the estimators scale features."""

    low: Any
    high: Any

    @property
    def _scaling(self) -> Any:
        return feature_scaling((self.low, self.high), 1)

    def _columns(self, rule: Rule) -> list[OutputColumn]:
        scaling = self._scaling
        return [OutputColumn(self.name, None, float(scaling.shift[0]), float(scaling.width[0]))]

    @property
    def _ends(self) -> tuple[float, float]:
        """The bounds in output units."""
        low = 0.0 if self.low == 0 else -1.0
        return low, 0.0 if self.high == 0 else 1.0

    @property
    def middle(self) -> float:
        return sum(self._ends) / 2

    def bounds(self, rule: Rule) -> tuple[list[float], list[float]]:
        low, high = super().bounds(rule)
        low[0], high[0] = self._ends
        return low, high

    def _scaled(self, cells: Cells) -> Array:
        scaled: Array = self._scaling.transform(cells.numbers()[:, None])[:, 0]
        return scaled.copy()

    def _unscaled(self, values: Array) -> NDArray[Any]:
        scaling = self._scaling
        values = values * scaling.width[0] + scaling.shift[0]
        return np.clip(values, float(self.low), float(self.high))

    @property
    def declaration(self) -> Any:
        return self.low, self.high

    def as_plain(self) -> dict[str, Any]:
        return {"type": "number", "low": self.low, "high": self.high}


@dataclass(frozen=True)
class Boolean(_Scalar):
    """True is 1 and False is 0; numbers 1 and 0 are read as such, others as missing."""

    def _scaled(self, cells: Cells) -> Array:
        values = cells.numbers()
        return np.where((values == 0) | (values == 1), values, np.nan)

    def _unscaled(self, values: Array) -> NDArray[Any]:
        return values > 0.5

    @property
    def declaration(self) -> Any:
        return bool

    def as_plain(self) -> dict[str, Any]:
        return {"type": "bool"}


@dataclass(frozen=True)
class Category(Field):
    """One 0/1 column for each category, of which a row has at most one 1."""

    categories: tuple[Any, ...]

    @property
    def accepts(self) -> tuple[str, ...]:
        return ("text" if isinstance(self.categories[0], str) else "numbers", "objects")

    def _columns(self, rule: Rule) -> list[OutputColumn]:
        other = ["other"] if rule.unknown == "other" else []
        return [OutputColumn(self.name, category) for category in [*self.categories, *other]]

    def square_norm(self, rule: Rule) -> float:
        return 1.0

    def encode(self, cells: Cells, rule: Rule) -> Iterator[tuple[int, Any, Any]]:
        codes, size = cells.codes(self.categories), len(self.categories)
        has_other = rule.unknown == "other"
        if has_other:
            codes[codes == -1] = size
        if rule.missing == "indicator":
            # missing is one more category, and the only 1 of its group
            codes[codes == -2] = size + has_other
        elif rule.missing == "middle" and has_other:
            codes[codes == -2] = size
        for position in range(len(self.outputs(rule))):
            yield position, np.flatnonzero(codes == position), 1.0

    def decode(self, block: Array, rule: Rule) -> NDArray[Any]:
        cells = np.full(len(block), None, dtype=object)
        for position, category in enumerate(self.categories):
            cells[block[:, position] > 0.5] = category
        return cells

    @property
    def declaration(self) -> Any:
        return list(self.categories)

    def as_plain(self) -> dict[str, Any]:
        return {"type": "category", "categories": list(self.categories)}


# ------------------------------------------------------------------------------ checks


def fields_of(schema: Any) -> tuple[Field, ...]:
    """The columns that a schema declares.

    Raises
    ------
    ValueError
        If it declares none, or one in a way that makes no sense; names the column.
    """
    if not isinstance(schema, Mapping) or not schema:
        raise ValueError(
            "schema must be a dict with an entry for every column of the table, each of them "
            f"{_FORMS}; got {shown(schema)}"
        )
    return tuple(_field(name, declaration) for name, declaration in schema.items())


def _field(name: Any, declaration: Any) -> Field:
    if not isinstance(name, str):
        raise ValueError(f"schema must have text for column names, got {shown(name)}")
    if declaration is bool:
        return Boolean(name)
    if isinstance(declaration, tuple):
        return _number(name, declaration)
    if isinstance(declaration, list | np.ndarray):
        return Category(name, _categories(name, declaration))
    raise ValueError(f"schema[{name!r}] must be {_FORMS}; got {shown(declaration)}")


def _number(name: str, pair: tuple[Any, ...]) -> Number:
    ends = [_plain(end) for end in pair]
    try:
        check_feature_bounds({name: [end if _is_number(end) else None for end in ends]})
    except ValueError:
        raise ValueError(
            f"schema[{name!r}] must be two finite numbers (low, high) with low < high, at most "
            f"1e50 in size, or for categories a list; got {shown(pair)}"
        ) from None
    return Number(name, *ends)


def _plain(value: Any) -> Any:
    """A value of numpy as one of Python, which JSON has."""
    return value.item() if isinstance(value, np.generic) else value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _categories(name: str, values: Any) -> tuple[Any, ...]:
    categories = tuple(_plain(value) for value in np.asarray(values, dtype=object).flat)
    kinds = {type(category) for category in categories}
    where = f"schema[{name!r}]"
    if not categories or np.ndim(np.asarray(values, dtype=object)) != 1:
        raise ValueError(f"{where} must be a list of one category or more, got {shown(values)}")
    if len(kinds) > 1 or not kinds <= {str, int, bool}:
        raise ValueError(
            f"{where} must hold categories of one type, all text, all integers or all booleans; "
            f"got {shown(values)}"
        )
    if len(set(categories)) < len(categories):
        raise ValueError(f"{where} must name each category once, got {shown(values)}")
    if int in kinds and max(map(abs, categories)) >= _LARGEST_INTEGER:
        raise ValueError(f"{where} must hold integers within 2^53, got {shown(values)}")
    return categories


# -------------------------------------------------------------------------------- JSON


def to_json(fields: Sequence[Field], settings: Mapping[str, Any]) -> str:
    """Schema and settings as text."""
    schema = {field.name: field.as_plain() for field in fields}
    return json.dumps({"format": _FORMAT, "version": 1, "schema": schema, **settings}, indent=2)


def from_json(text: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The schema and the settings of a text made by `to_json`.

    Raises
    ------
    ValueError
        If it is no such text.
    """
    try:
        found = json.loads(text)
    except (TypeError, ValueError) as error:
        raise ValueError(f"text must be JSON, as to_json gives it: {error}") from None
    if not isinstance(found, dict) or found.get("format") != _FORMAT or found.get("version") != 1:
        raise ValueError(f"text must be JSON with format {_FORMAT!r} and version 1")
    del found["format"], found["version"]
    schema = found.pop("schema", None)
    if not isinstance(schema, dict):
        raise ValueError("text must be JSON with a schema")
    return {name: _declaration(name, plain) for name, plain in schema.items()}, found


def _declaration(name: str, plain: Any) -> Any:
    match plain:
        case {"type": "bool"}:
            return bool
        case {"type": "number", "low": low, "high": high}:
            return low, high
        case {"type": "category", "categories": list(categories)}:
            return categories
    raise ValueError(f"schema[{name!r}] in the text is none of number, category and bool")
