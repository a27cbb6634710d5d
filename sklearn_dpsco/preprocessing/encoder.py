"""Raw mixed tables as numbers, by a public schema: nothing is learned from the data."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, Self

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin

from .._checks import check_bool, check_choice, check_count, naming, shown, warn_user
from .._overview import DOCUMENTATION_LINK
from .._types import AnyArray, Array, Extra, Missing, Outside, Unknown
from ..data.cells import check_in_memory, check_order, check_spelling, is_frame
from ..exceptions import PrivacyParameterWarning
from .declared import DeclaredOutput, leaves, note_columns
from .schema import Cells, Field, OutputColumn, fields_of, proposed, read_column

_FORMAT = "sklearn_dpsco.PublicEncoder"


class BadParametersError(ValueError, AttributeError):
    """Wrong parameters leave attributes without a value: `hasattr` and `dir` work."""


_BY_BLOCKS = (
    "Fit the model to X.map_partitions(encoder.transform), after "
    "encoder.set_output(transform='pandas')"
)
_HINTS = {"handle_unknown": "see unknown and outside", "sparse": "see sparse_output"}
_HINTS |= dict.fromkeys(("categories", "bounds", "columns"), "see schema")
_HINTS |= {"remainder": "extra='drop' leaves columns out; others go beside it in ColumnTransformer"}


@naming(_HINTS.get)
@dataclass(repr=False, eq=False)
class PublicEncoder(TransformerMixin, BaseEstimator):
    """Encode a raw table by declared bounds and categories, without learning from it.

    Each row is encoded by itself. A number x with bounds (low, high) is clipped to them and
    becomes x / max(\\|low\\|, \\|high\\|) if one of them is 0, which keeps zeros zero, and else
    (x - middle) / half width: in [0, 1], [-1, 0] or [-1, 1], the units that the estimators of this
    package use by themselves, so that coefficients of all columns compare. A category becomes 0/1
    columns of which at most one is 1, and a boolean one 0/1 column.

    Transform works without `fit`, which does nothing but check. The parameters are public facts:
    never take bounds or categories from the private table.

    Parameters
    ----------
    schema : dict
        For each column of the table, whatever their order there: ``(low, high)`` for a number
        (a tuple; ends within [-1e50, 1e50]), a list of categories (all text, all integers within
        2^53 or all booleans), or the type ``bool``. Categories that are numbers are compared as
        numbers (1.0 and True are 1), text as it stands. Text of a truth value, in any case, is that
        value.
    missing : {"middle", "indicator", "zero", "keep"} or dict, default="middle"
        What stands for a cell that is missing or cannot be read: NaN, None, `pandas.NA`,
        infinities, text where a number should be, and what `outside` adds. "middle": of a number
        the middle of its bounds, of a boolean 1/2, and a category is unknown. "indicator": the
        same, and a 0/1 column
        ``<column>_missing``, which for a category is the only 1 of its group. "zero": 0 in all
        columns. "keep": NaN in all columns, of which a model makes an error, or with
        ``nonfinite="zero"`` leaves the record out of the fit, and predicts as if the cell were
        usual. A dict has a rule for some columns, ``{"age": "indicator"}``, and "middle" for the
        others; of a number (or a boolean) also the number within its bounds (of 0 to 1) that stands
        for what is missing, ``{"age": 30.0}``: a usual one, known without the private table.

        With "middle", coefficients and means are biased where gaps are many and the middle is far
        from usual values, and no interval shows it: of bounds (18, 100) the middle is 59, also if
        the mean is 29. For columns that may have gaps say "indicator" or a usual number; or "keep"
        where coefficients are to be read. The guide compares them ("Missing values").
    outside : {"clip", "missing"} or dict, default="clip"
        What a number out of its bounds is: "clip", the bound that is next to it, or "missing", for
        tables in which codes such as -1 or 999 stand for what is not known: then nothing outside
        of the bounds is a value, nor of a list, unless ``unknown="other"``. A dict has a rule for
        some columns, ``{"age": "missing"}``, and "clip" for the others.
    unknown : {"none", "other"} or dict, default="none"
        What a category that was not declared becomes: no column is 1, or a column
        ``<column>_other`` is. A dict has a rule for some lists, ``{"edu": "other"}``, and "none"
        for the others.
    drop : {"first"}, dict or None, default=None
        Which category of a list has no column, as the reference that the coefficients of the others
        are compared with: "first" is the first that is declared, of each list. A dict has a
        category, or "first", for some lists, ``{"edu": "ba"}``: name a common one, since all are
        compared with it, and of a rare one too little is known. Without a reference, the columns of
        a list and an intercept are sums of each other, which leaves standard errors
        (``inference=True``) infinite. A row of the reference has zeros. So has one of an unknown
        category with ``unknown="none"``, and a missing one with ``missing="zero"`` or, unless
        there is a column "other", "middle": they count as the reference. Where such cells
        occur, take ``unknown="other"``, and ``missing="indicator"`` for that column.
    extra : {"raise", "drop"}, default="raise"
        Whether a column of the table that is not in the schema is an error, or left out.
    sparse_output : bool, default=False
        Whether `transform` gives a CSR array in the place of a dense one.

    Attributes
    ----------
    n_features_in_, feature_names_in_ : int and ndarray of shape (n_columns,)
        The columns of the table, in the order of the schema.
    bounds_X : pair of ndarray of shape (n_outputs,)
        Bounds of the outputs. Estimators take the encoder itself, ``bounds_X=encoder``.
    row_norm : float
        The largest l2 norm of an output row: the root of the sum over the table's columns of 1,
        or with ``missing="indicator"`` of 1.25 for a boolean and a number one of whose bounds is
        0 (a missing one is 1/2 in its column, and 1 in the other). It is attained.

    Notes
    -----
    One cell decides about its own row only: what cannot be read counts as missing. The type of a
    whole column is public, and an error if it does not go with the schema, such as text for a
    number. Programs that read files may choose types by single cells (one odd cell makes text of
    a column): state the types there, such as ``object``, of which each cell is read by itself.

    Guarantee: none is needed, since an output row is a function of its own input row and
    of public facts; a private model of the outputs is private for the table, too.

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn_dpsco import PublicEncoder
    >>> encoder = PublicEncoder({"age": (18, 98), "edu": ["hs", "ba", "ma"], "member": bool})
    >>> table = pd.DataFrame(
    ...     {"age": [18, 78, None], "edu": ["ba", "phd", "hs"], "member": [True, False, True]}
    ... )
    >>> encoder.transform(table)
    array([[-1. ,  0. ,  1. ,  0. ,  1. ],
           [ 0.5,  0. ,  0. ,  0. ,  0. ],
           [ 0. ,  1. ,  0. ,  0. ,  1. ]])
    >>> encoder.get_feature_names_out().tolist()
    ['age', 'edu_hs', 'edu_ba', 'edu_ma', 'member']
    """

    _doc_link_module, _doc_link_template = DOCUMENTATION_LINK

    schema: Any
    _: KW_ONLY
    missing: Missing | Mapping[str, Missing | float] = "middle"
    outside: Outside | dict[str, Outside] = "clip"
    unknown: Unknown | dict[str, Unknown] = "none"
    drop: Literal["first"] | dict[str, Any] | None = None
    extra: Extra = "raise"
    sparse_output: bool = False

    def _fields(self) -> list[Field]:
        """The columns of the table; raises on parameters that are wrong."""
        try:
            check_choice("extra", self.extra, ("raise", "drop"))
            check_bool("sparse_output", self.sparse_output)
            fields = fields_of(self.schema, self.missing, self.unknown, self.drop, self.outside)
        except ValueError as error:
            raise BadParametersError(str(error)) from None
        names = [column.name for field in fields for column in field.columns]
        if len(set(names)) < len(names):
            twice = sorted({name for name in names if names.count(name) > 1})
            raise BadParametersError(
                f"schema gives two output columns the same name ({twice[:5]!r}): rename columns or "
                "categories"
            )
        return fields

    def declared_output(self) -> DeclaredOutput:
        """Bounds and row norm of the outputs, from the parameters alone."""
        fields = self._fields()
        low, high = np.transpose([pair for field in fields for pair in field.ends])
        row_norm = float(np.sqrt(sum(field.square for field in fields)))
        n_indicators = sum(field.missing == "indicator" for field in fields)
        return DeclaredOutput(low, high, row_norm, n_indicators)

    @property
    def bounds_X(self) -> tuple[Array, Array]:
        """(low, high) of the outputs."""
        return self.declared_output().bounds_X

    @property
    def row_norm(self) -> float:
        """The largest l2 norm of an output row."""
        return self.declared_output().row_norm

    @property
    def n_features_in_(self) -> int:
        """Number of columns of the table."""
        return len(self._fields())

    @property
    def feature_names_in_(self) -> AnyArray:
        """Their names, in the order of the schema."""
        return np.array([field.name for field in self._fields()], dtype=object)

    def get_feature_names_out(self, input_features: Any = None) -> AnyArray:
        """Names of the outputs: ``age``, ``edu_hs``, ``age_missing``, ``edu_other``.

        `input_features`, if given, are checked against the schema.
        """
        names = [column.name for column in self.output_columns()]
        if input_features is not None:
            self._check_names(list(input_features))
        return np.array(names, dtype=object)

    def output_columns(self) -> list[OutputColumn]:
        """What each output column stands for: the table's column, the category, and the units."""
        return [column for field in self._fields() for column in field.columns]

    def fit(self, X: Any = None, y: Any = None) -> Self:
        """Check the parameters, and the types of the columns of X. Learns nothing.

        Parameters
        ----------
        X : data frame of pandas or polars
        y : ignored, but for the index of a Series

        Raises
        ------
        ValueError
            If a parameter is wrong, or the columns of X are not those of the schema, or the type
            of a column does not go with it, or y has the row labels of X in another order. No
            message depends on a cell.
        """
        fields = self._fields()
        for field in fields:
            name, value = field.name, field.declared
            # two integers are probably meant as bounds
            is_list = isinstance(value, list) and len(value) == 2
            if is_list and all(type(end) is int for end in value) and value[1] - value[0] > 1:
                warn_user(
                    f"schema[{name!r}] names two categories, {value[0]} and {value[1]}, and no "
                    f"others; for bounds of a number write a tuple, {tuple(value)}",
                    PrivacyParameterWarning,
                )
            if isinstance(value, list):
                check_spelling(f"schema[{name!r}]", value)
        if X is not None:
            self._read(X, fields)
        check_order(X=X, y=y)
        return self

    def transform(self, X: Any) -> Any:
        """Encode a table; its errors are those of `fit`.

        Parameters
        ----------
        X : data frame of pandas or polars
            With the columns of the schema, in any order; with others for ``extra="drop"`` only.

        Returns
        -------
        ndarray or CSR array of shape (n_samples, n_outputs), or what `set_output` asked for
        """
        fields, columns, entries = self._fields(), list[OutputColumn](), []
        for field, column in zip(fields, self._read(X, fields), strict=True):
            entries += [(len(columns) + k, *entry) for k, *entry in field.encode(column)]
            columns += field.columns
        shape = X.shape[0], len(columns)
        if not self.sparse_output:
            out = np.zeros(shape)
            for position, rows, values in entries:
                out[rows, position] = values
            return note_columns(out, columns)
        # by public facts alone; kernels are compiled for each type of indices
        kind = np.int32 if math.prod(shape) < 2**31 else np.int64
        rows = np.concatenate([found for _, found, _ in entries], dtype=kind)
        positions = np.concatenate([np.full(len(found), k, kind) for k, found, _ in entries])
        values = np.concatenate([np.broadcast_to(v, len(found)) for _, found, v in entries])
        encoded = sparse.csr_array((values.astype(np.float64), (rows, positions)), shape=shape)
        encoded.eliminate_zeros()
        return note_columns(encoded, columns)

    def _read(self, X: Any, fields: list[Field]) -> list[Cells]:
        """The cells of each column of the schema, their types checked."""
        check_in_memory("PublicEncoder", X, _BY_BLOCKS)
        if not is_frame(X):
            remedy = "X.to_pandas() is one"  # as of a table of pyarrow
            if type(X).__name__ == "LazyFrame":
                remedy = "collect() it"
            elif not hasattr(X, "to_pandas"):
                remedy = (
                    "of an array make pandas.DataFrame(X, columns=[...]). Meta-estimators such as "
                    "BaggingClassifier hand on an array: put the encoder before them"
                )
            raise ValueError(
                "X must be a data frame of pandas or polars, whose columns have names; got "
                f"{type(X).__name__}: {remedy}"
            )
        self._check_names([n for n in X.columns if self.extra == "raise" or n in self.schema])
        columns = [read_column(X, field.name) for field in fields]
        for field, cells in zip(fields, columns, strict=True):
            is_text = isinstance(field.declared, list) and isinstance(field.declared[0], str)
            if cells.kind not in ("text" if is_text else "numbers", "objects"):
                raise ValueError(
                    f"column {field.name!r} has the type {cells.type_name}, which does not go with "
                    f"its schema {shown(field.declared)}: convert the column"
                    f"{cells.advice(field.name)}"
                )
        return columns

    def _check_names(self, names: list[Any]) -> None:
        counts = Counter(names)
        missing = [name for name in self.schema if name not in counts]
        unknown = [name for name in names if name not in self.schema]
        twice = sorted({str(name) for name, count in counts.items() if count > 1})
        faults = {"are missing": missing, "are not in the schema": unknown, "stand twice": twice}
        found = [f"{wrong[:5]!r} {what} ({len(wrong)})" for what, wrong in faults.items() if wrong]
        if found:
            advice = ". Say extra='drop', or select X[list(encoder.schema)]" if unknown else ""
            raise ValueError(
                f"X must have the columns of the schema, each of them once: {', '.join(found)}"
                f"{advice}"
            )

    def to_json(self) -> str:
        """Schema and parameters as JSON, from which `from_json` makes the same encoder.

        Examples
        --------
        >>> from sklearn_dpsco import PublicEncoder
        >>> encoder = PublicEncoder({"age": (18, 98), "edu": ["hs", "ba"]}, missing="indicator")
        >>> copy = PublicEncoder.from_json(encoder.to_json())
        >>> copy.missing, copy.fit().get_feature_names_out().tolist()[:2]
        ('indicator', ['age', 'age_missing'])
        """
        schema: dict[str, Any] = {}
        for field in self._fields():
            match field.declared:
                case list(categories):
                    schema[field.name] = {"type": "category", "categories": categories}
                case (low, high):
                    schema[field.name] = {"type": "number", "low": low, "high": high}
                case _:
                    schema[field.name] = {"type": "bool"}
        settings = {"format": _FORMAT, "version": 1, "schema": schema}
        for name in ("missing", "outside", "unknown", "drop", "extra", "sparse_output"):
            rule = getattr(self, name)
            settings[name] = dict(rule) if isinstance(rule, Mapping) else rule

        def of_python(number: Any) -> Any:  # such as one of numpy
            return number.item() if isinstance(number, np.generic) else float(number)

        return json.dumps(settings, indent=2, default=of_python)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The encoder of a text that `to_json` made; a `ValueError` for any other text."""
        try:
            found = json.loads(text)
        except (TypeError, ValueError) as error:
            raise ValueError(f"text must be JSON, as to_json gives it: {error}") from None
        is_ours = isinstance(found, dict) and found.pop("format", None) == _FORMAT
        if not is_ours or found.pop("version", None) != 1:
            raise ValueError(f"text must be JSON with format {_FORMAT!r} and version 1")
        if not isinstance(schema := found.pop("schema", None), dict):
            raise ValueError("text must be JSON with a schema")
        if unknown := found.keys() - cls._get_param_names():
            raise ValueError(f"text has parameters that an encoder does not have: {unknown}")
        for name, found_type in schema.items():
            match found_type:
                case {"type": "bool"}:
                    schema[name] = bool
                case {"type": "number", "low": low, "high": high}:
                    schema[name] = low, high
                case {"type": "category", "categories": list(categories)}:
                    schema[name] = categories
                case _:
                    raise ValueError(
                        f"schema[{name!r}] in the text is none of number, category and bool"
                    )
        encoder = cls(schema, **found)
        encoder._fields()
        return encoder

    @classmethod
    def from_public(cls, df: Any, *, max_categories: int = 20, **parameters: Any) -> Self:
        """Propose a schema from a table that is *public or synthetic*.

        **Never run this on the private table.** The schema is read off its values, smallest and
        largest included, so that it and all that is made with it would leak them; no guarantee
        covers that. It is the kind of leak that `PrivacyLeakWarning` is for, but nothing can tell
        a public table from a private one, so that there is no warning here. Look the proposal
        over (`schema`): bounds of a sample may be too narrow.

        Booleans become ``bool``; text, and integers of at most ten values, become categories;
        other numbers get the bounds that they lie in, rounded outwards to multiples of a twelfth to
        a fifth of their range (1, 2 or 5 times a power of ten). A column of dates or the like, with
        too many categories or without any value, is a `ValueError`.

        Parameters
        ----------
        df : data frame of pandas or polars
        max_categories : int, default=20
            Largest number of categories of text.
        **parameters
            Of the encoder: `missing`, `outside`, `unknown`, `drop`, `extra`, `sparse_output`.

        Examples
        --------
        >>> import pandas as pd
        >>> from sklearn_dpsco import PublicEncoder
        >>> made_up = pd.DataFrame({"age": range(20, 80), "edu": ["hs", "ba"] * 30})
        >>> encoder = PublicEncoder.from_public(made_up)
        >>> sorted(encoder.schema["edu"])
        ['ba', 'hs']
        """
        if not is_frame(df):
            raise ValueError(
                f"df must be a data frame of pandas or polars, got {type(df).__name__}"
            )
        most = check_count("max_categories", max_categories)
        schema = {name: proposed(name, read_column(df, name), most) for name in df.columns}
        encoder = cls(schema, **parameters)
        encoder._fields()
        return encoder

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.allow_nan = tags.input_tags.string = tags.input_tags.categorical = True
        return tags


def encoders_of(step: Any) -> Iterator[PublicEncoder]:
    """The encoders whose columns are those of a step, or among them."""
    return (part for _, part in leaves(step) if isinstance(part, PublicEncoder))


def references(encoder: Any) -> dict[str, Any] | None:
    """The category of each list that is left out, or None; None where no `PublicEncoder` is."""
    encoders = list(encoders_of(encoder))
    lists = (f for one in encoders for f in one._fields() if f.scaling is None)
    found = {f.name: None if f.reference is None else f.declared[f.reference] for f in lists}
    return found if encoders else None


def filled(encoder: Any) -> tuple[list[str], list[str]]:
    """What cells of encoders count as that are no value of their column, with its name.

    References, as which undeclared categories count; and middles of bounds, as which missing
    numbers do, but none if a dict says which columns have gaps, and what they count as.
    """
    references, middles = [], []
    fields = ((f, step.missing) for step in encoders_of(encoder) for f in step._fields())
    for f, rule in fields:
        is_told = f.outside == "missing" and f.missing in ("keep", "indicator")
        if f.reference is not None and f.unknown == "none" and not is_told:
            references.append(f"{f.name}: {f.declared[f.reference]}")
        is_middle = f.missing == "middle" or (f.missing == "zero" and sum(f.ends[0]) == 0)
        if isinstance(f.declared, tuple) and is_middle and not isinstance(rule, Mapping):
            middles.append(f"{f.name}: {sum(f.declared) / 2:g}")
    return references, middles
