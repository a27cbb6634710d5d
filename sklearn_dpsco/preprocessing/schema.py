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
class _Field:
    """A column of the table, as the schema declares it, and the columns that it becomes.

    `output_columns` are what these stand for, and `facts` their lower and upper bounds and their
    largest sum of squares. `encode` gives entries of them: triples (column, rows, values), rows
    being indices or flags. `decode` makes cells of them, as objects; None where nothing is known.
    """

    name: str
    declared: Any

    def check(self, cells: Cells) -> None:
        """Raise `ValueError` if the type of the whole column holds no such values."""
        is_text = isinstance(self.declared, list) and isinstance(self.declared[0], str)
        if cells.kind not in ("text" if is_text else "numbers", "objects"):
            raise ValueError(
                f"column {self.name!r} has the type {cells.type_name}, which does not go with "
                f"its schema {shown(self.declared)}: convert the column"
            )

    def _missing(self, rule: Rule) -> list[OutputColumn]:
        return [OutputColumn(self.name, "missing")] if rule.missing == "indicator" else []


@dataclass(frozen=True)
class Number(_Field):
    """A number that is clipped to its bounds and scaled as the estimators scale features.

    Or a boolean: True is 1 and False is 0; numbers 1 and 0 are read as such, others as missing.
    """

    @property
    def _scaling(self) -> Any:
        return feature_scaling((0, 1) if self.declared is bool else self.declared, 1)

    @property
    def _ends(self) -> tuple[float, float]:
        """The bounds in output units."""
        low, high = (0, 1) if self.declared is bool else self.declared
        return 0.0 if low == 0 else -1.0, 0.0 if high == 0 else 1.0

    def output_columns(self, rule: Rule) -> list[OutputColumn]:
        shift, width = float(self._scaling.shift[0]), float(self._scaling.width[0])
        return [OutputColumn(self.name, None, shift, width), *self._missing(rule)]

    def facts(self, rule: Rule) -> tuple[Any, Any, float]:
        low, high = self._ends
        if rule.missing != "indicator":
            return [low], [high], 1.0
        # a missing value is the middle, 0 or +-1/2, and has a 1 in the column of its own
        return [low, 0.0], [high, 1.0], 1.0 + ((low + high) / 2) ** 2

    def encode(self, cells: Cells, rule: Rule) -> Iterator[tuple[int, Any, Any]]:
        values: Array = cells.numbers()
        if self.declared is bool:
            values = np.where((values == 0) | (values == 1), values, np.nan)
        else:
            values = self._scaling.transform(values[:, None])[:, 0]
        is_missing = np.isnan(values)
        values[is_missing] = 0.0 if rule.missing == "zero" else sum(self._ends) / 2
        yield 0, np.arange(values.size), values
        if rule.missing == "indicator":
            yield 1, np.flatnonzero(is_missing), 1.0

    def decode(self, block: Array, rule: Rule) -> NDArray[Any]:
        values, scaling = block[:, 0], self._scaling
        if self.declared is bool:
            cells = (values > 0.5).astype(object)
        else:
            low, high = map(float, self.declared)
            cells = np.clip(values * scaling.width[0] + scaling.shift[0], low, high).astype(object)
        if rule.missing == "indicator":
            cells[block[:, 1] > 0.5] = None
        return cells


@dataclass(frozen=True)
class Category(_Field):
    """One 0/1 column for each category, of which a row has at most one 1."""

    def output_columns(self, rule: Rule) -> list[OutputColumn]:
        other = ["other"] if rule.unknown == "other" else []
        columns = [OutputColumn(self.name, category) for category in [*self.declared, *other]]
        return [*columns, *self._missing(rule)]

    def facts(self, rule: Rule) -> tuple[Any, Any, float]:
        size = len(self.output_columns(rule))
        return [0.0] * size, [1.0] * size, 1.0

    def encode(self, cells: Cells, rule: Rule) -> Iterator[tuple[int, Any, Any]]:
        codes, size = cells.codes(self.declared), len(self.declared)
        has_other = rule.unknown == "other"
        if has_other:
            codes[codes == -1] = size
        if rule.missing == "indicator":
            # missing is one more category, and the only 1 of its group
            codes[codes == -2] = size + has_other
        elif rule.missing == "middle" and has_other:
            codes[codes == -2] = size
        for position in range(len(self.output_columns(rule))):
            yield position, np.flatnonzero(codes == position), 1.0

    def decode(self, block: Array, rule: Rule) -> NDArray[Any]:
        cells = np.full(len(block), None, dtype=object)
        for position, category in enumerate(self.declared):
            cells[block[:, position] > 0.5] = category
        return cells


Field = Number | Category

# ------------------------------------------------------------------------------ checks


def fields_of(schema: Any) -> tuple[Field, ...]:
    """The columns that a schema declares; errors name the column."""
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
        return Number(name, bool)
    if isinstance(declaration, list | np.ndarray):
        return Category(name, _categories(name, declaration))
    if not isinstance(declaration, tuple):
        raise ValueError(f"schema[{name!r}] must be {_FORMS}; got {shown(declaration)}")
    ends = tuple(_plain(end) for end in declaration)
    numbers = [
        None if type(end) is bool or not isinstance(end, int | float) else end for end in ends
    ]
    try:
        check_feature_bounds({name: numbers})
    except ValueError:
        raise ValueError(
            f"schema[{name!r}] must be two finite numbers (low, high) with low < high, at most "
            f"1e50 in size, or for categories a list; got {shown(declaration)}"
        ) from None
    return Number(name, ends)


def _plain(value: Any) -> Any:
    """A value of numpy as one of Python, which JSON has."""
    return value.item() if isinstance(value, np.generic) else value


def _categories(name: str, values: Any) -> list[Any]:
    table, where = np.asarray(values, dtype=object), f"schema[{name!r}]"
    categories = [_plain(value) for value in table.flat]
    kinds = {type(category) for category in categories}
    if not categories or table.ndim != 1:
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
    schema: dict[str, Any] = {}
    for field in fields:
        if field.declared is bool:
            schema[field.name] = {"type": "bool"}
        elif isinstance(field.declared, list):
            schema[field.name] = {"type": "category", "categories": field.declared}
        else:
            low, high = field.declared
            schema[field.name] = {"type": "number", "low": low, "high": high}
    return json.dumps({"format": _FORMAT, "version": 1, "schema": schema, **settings}, indent=2)


def from_json(text: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The schema and the settings of a text made by `to_json`."""
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
    declared: dict[str, Any] = {}
    for name, plain in schema.items():
        match plain:
            case {"type": "bool"}:
                declared[name] = bool
            case {"type": "number", "low": low, "high": high}:
                declared[name] = low, high
            case {"type": "category", "categories": list(categories)}:
                declared[name] = categories
            case _:
                raise ValueError(
                    f"schema[{name!r}] in the text is none of number, category and bool"
                )
    return declared, found
