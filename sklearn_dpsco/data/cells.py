"""Whether a table is in memory, its cells as numbers, and which records are invalid.

Each function decides about a record by that record alone: what one holds must not change what
another one contributes, nor an error or a warning. What the type of a container says is public.
"""

from __future__ import annotations

import itertools
import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from datetime import date, datetime, time
from decimal import Decimal
from numbers import Integral, Real
from typing import Any

import numpy as np
from scipy import sparse
from sklearn import config_context
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_consistent_length, column_or_1d

from .._checks import listed, shown, warn_user
from .._types import AnyArray, Array, Flags, Indices, Integers
from ..exceptions import PrivacyLeakWarning, PrivacyParameterWarning
from .compressed import canonical, compressed, slices, stored_places, value_parts, with_values

LARGEST_INTEGER = 2**53  # those below are told apart as floats
_LONGEST_NUMBER = 309  # digits, from which on a number without an exponent may be infinite
_BLOCK_BYTES = 2**22
_NUMBERS = (Real, Decimal, np.bool_, str, bytes)  # `float` takes some others, and warns
_NO_NUMBERS = {"c": "Complex", "M": "Date", "m": "Time span", "S": "Byte", "V": "Structured"}
_NO_NUMBERS |= dict.fromkeys("TU", "Text")
_TRUTHS = {"true": True, "false": False}
_HEXADECIMAL = re.compile(r"\s*0[xX]([0-9a-fA-F]{1,16})\s*")
# what readers of files take for a missing cell, pyarrow unless an odd one makes text of the column
_GAPS = {"", "NA", "#NA", "N/A", "n/a", "#N/A", "#N/A N/A", "<NA>", "None", "NULL", "null"}
_GAPS |= {"1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"}
_NAN = re.compile(r"\s*[+-]?nan(\(\w*\))?\s*", re.IGNORECASE)
_POLARS_KINDS = {"Date": "M", "Datetime": "M", "Time": "m", "Duration": "m"}
# what follows in messages of scikit-learn, in the place of advice that leaks
_ADVICE = {
    " y contains NaN.": "Dropping rows tells of them: say nonfinite='zero', so that records "
    "without a target contribute nothing, and dp_score scores the others.",
    " contains NaN.": "Imputers learn from all records, and dropping rows tells of them: say "
    "nonfinite='zero', so that such a record contributes nothing, or fill by a public rule "
    "(PublicEncoder).",
    " contains infinity": "Say nonfinite='zero', so that such a record contributes nothing, or "
    "put a large number in its place, which is clipped.",
    "Expected 2D array, got 1D array instead": "X must have the shape (n_samples, n_features): "
    "one column of a frame is X[['name']], of numbers X.reshape(-1, 1).",
    "y should be a 1d array": "Labels stand in one column: of columns of 0 and 1, one for each "
    "class, take y.argmax(axis=1); several targets are for MultiOutputClassifier.",
}


class NotANumberError(ValueError, TypeError):
    """A cell is neither a number nor missing. A `TypeError`, too, as scikit-learn has it."""


def column_names(table: Any) -> tuple[str, ...] | None:
    """Those of a frame, if all of them are text."""
    try:
        names = tuple(getattr(table, "columns", ()))
    except TypeError:  # of a delayed part, which has whatever is asked for
        return None
    return names if names and all(isinstance(name, str) for name in names) else None


def as_numbers(name: str, values: Any, *, strict: bool) -> Any:
    """`values` with all cells numbers or NaN.

    Arrays and sparse matrices of numeric types are returned as they are, but for long doubles;
    these become float64, as do data frames of such types, which become dense arrays. All else is
    converted cell by cell: numbers of any kind, and text that `float` reads as one, or such as
    "0x1F", become the nearest float, "true" and "false" 1 and 0; those that are too large become
    infinite or NaN, all else NaN.

    Types that hold no numbers, such as complex numbers or text, are a `ValueError`; a cell that is
    neither a number nor missing, or too large, is a `NotANumberError` with `strict`, and then only.
    """
    if type(values).__name__ == "LazyFrame":
        raise ValueError(f"{name} is a lazy frame: collect() it")
    values = plain(values)
    is_table = is_frame(values)  # also one with a column of the name "dtype"
    types = list(values.dtypes) if is_table else [getattr(values, "dtype", None)]
    # readers of files make a column of pandas complex, or text, for a single cell
    kinds = {"O" if is_table and kind in "cSTU" else kind for kind in map(_kind, types)}
    for kind in sorted(kinds & _NO_NUMBERS.keys()):
        raise ValueError(
            f"{_NO_NUMBERS[kind]} data not supported: {name} must hold numbers{_hint(name, values)}"
        )
    if "O" not in kinds:
        with np.errstate(all="ignore"):  # a warning would tell of some record
            if is_table:
                # Of pandas' sparse columns scikit-learn makes a sparse matrix if all are, and warns
                # if some are, unless one odd cell makes objects of another one.
                if any(type(kind).__name__ == "SparseDtype" for kind in types):
                    columns = (values.iloc[:, k] for k in range(values.shape[1]))
                    dense = [as_numbers(name, column, strict=False) for column in columns]
                    return np.column_stack(dense).astype(np.float64)
                # (numpy would raise for a missing cell of a column that may have some)
                return check_array(
                    values, dtype=np.float64, order="C", ensure_all_finite=False,
                    ensure_min_samples=0, ensure_min_features=0,
                )  # fmt: skip
            if np.longdouble not in types:
                return values
            return compressed(values) if sparse.issparse(values) else values.astype(np.float64)
    cells = as_objects(values, name)
    found = [_number(cell) for cell in cells.flat]
    if strict and any(
        number is None and not _is_missing_cell(cell)
        for number, cell in zip(found, cells.flat, strict=True)
    ):
        raise NotANumberError(
            f"{name} must hold numbers within the range of floats, and a cell does not: float's "
            f"argument must be a string of a number, or a real number{_hint(name, values)}"
        )
    out = np.empty_like(cells, dtype=np.float64)  # in the same order
    out[...] = np.reshape([np.nan if n is None else n for n in found], cells.shape)
    return out


def checked(check: Callable[..., Any], data: Any, **settings: Any) -> Any:
    """What scikit-learn's check returns; its message comes without the values that it quotes."""
    try:
        # or an invalid record would be found after the charge, if it is
        with config_context(assume_finite=False):
            return check(data, **settings)
    except ValueError as error:
        head, quote, _ = str(error).partition("\narray=")
        for sign, advice in _ADVICE.items():
            if sign in head:
                head = f"{head.splitlines()[0].rstrip('.:')}. {advice}"
                break
    # not in the block above, whose error would go along as the context, which reports may show
    raise ValueError(f"{head} Reshape your data." if quote else head)


def checked_table(X: Any, *, strict: bool, **settings: Any) -> Any:
    """X as an array or a `canonical` matrix of finite numbers, or if not `strict` of any."""
    kind, is_sparse = type(X).__name__, sparse.issparse(X)  # some sparse matrices are dicts
    if X is None or isinstance(X, (str, bytes)) or (isinstance(X, dict) and not is_sparse):
        raise ValueError(f"X must be a table, such as an array or a data frame, got {kind}")
    table = as_numbers("X", X, strict=strict)
    # One cell may decide on the type and the layout that a frame has as an array, and so on
    # the rounding of products with other rows: only those of an array are kept.
    is_array = isinstance(X, np.ndarray) or is_sparse
    found = checked(
        check_array,
        compressed(table),
        accept_sparse=("csr", "csc"),
        input_name="X",
        dtype=(np.float64, np.float32) if is_array else np.float64,
        order=None if is_array else "C",
        ensure_all_finite=strict,
        **settings,
    )
    return canonical(found)


def is_elsewhere(values: Any) -> bool:
    """Whether it is a collection of Dask or holds parts; `ValueError` if a list is mixed."""
    if isinstance(values, np.ndarray) and values.dtype != object:
        return False
    return hasattr(values, "__dask_graph__") or parts_of(values) is not None


def parts_of(values: Any) -> list[Any] | None:
    """The parts of a list or an array of them, or a part alone; None for anything else."""
    if _is_part(values):
        return [values]
    if not isinstance(values, (list, tuple, np.ndarray)):
        return None
    cells = values.ravel() if isinstance(values, np.ndarray) else values
    first = next(iter(cells), None)
    if _is_part(first):
        parts = list(cells)
        if not all(map(_is_part, parts)):
            raise ValueError("a list of blocks must hold delayed parts or futures alone")
        return parts
    if hasattr(first, "__dask_graph__"):
        raise ValueError(
            "a list of collections is no table: join them by dask.array.concatenate or "
            "dask.dataframe.concat, or give a list of delayed parts"
        )
    return None


def _is_part(value: Any) -> bool:
    # not by attributes: a frame has those that its columns are called, and a delayed part has all
    is_future = type(value).__module__.partition(".")[0] == "distributed" and hasattr(value, "key")
    return is_future or any(kind.__name__ == "Delayed" for kind in type(value).__mro__)


def check_in_memory(name: str, X: Any, instead: str = "compute() it, or a block of it") -> None:
    """Raise `ValueError` for blocks elsewhere, which `fit` and predictions take alone."""
    if is_elsewhere(X):
        raise ValueError(
            f"{name} takes tables in memory; `fit`, `score` and predictions of an estimator take "
            f"collections of Dask, too. {instead}"
        )


def check_order(**arguments: Any) -> None:
    """Raise `ValueError` where two arguments have the same pandas labels of rows in other orders.

    Rows go together by place, which is right for labels that are not the same: one table had its
    rows numbered anew. Where some labels are, and neither table was numbered anew, a warning says
    so: as of parts of a table that was shuffled before. Nothing but labels is read, and whether
    they repeat decides nothing, see :ref:`section-2.14`. A text in the place of what goes with X is
    an error, too.
    """
    for name, values in arguments.items():
        if name != "X" and isinstance(values, (str, bytes)):
            raise ValueError(
                f"{name} must have the shape (n_samples,), such as table[{name!r}] has: the name "
                "of a column alone says nothing"
            )
    pandas: Any = sys.modules.get("pandas")  # without it, there are no labels
    found = {name: getattr(values, "index", None) for name, values in arguments.items()}
    labels = {name: of for name, of in found.items() if pandas and isinstance(of, pandas.Index)}
    for (first, one), (name, other) in itertools.combinations(labels.items(), 2):
        if one.equals(other):
            continue
        try:  # labels may be of any type
            known = one.unique()
            places, theirs = known.get_indexer(one), known.get_indexer(other)
            order = known.get_indexer(other.unique())
        except Exception:
            continue
        what = f"has the row labels of {first} in another order, and rows go together by place"
        advice = f"give {name}.loc[{first}.index] if labels tell which rows belong together, and "
        advice += f"{name}.to_numpy() if places do"
        is_same = np.array_equal(places, theirs)
        if not is_same and np.array_equal(np.sort(places), np.sort(theirs)):
            raise ValueError(f"the index of {name} {what}: {advice}")
        is_numbered = any(isinstance(of, pandas.RangeIndex) for of in (one, other))
        if not is_numbered and np.any(np.diff(order[order >= 0]) < 0):
            warn_user(
                f"the index of {name} {what.replace('the', 'some', 1)}: bring them into one order "
                f"before they are split, or give {name}.to_numpy() if places are right",
                PrivacyParameterWarning,
            )


def check_lengths(**arguments: Any) -> None:
    """`check_consistent_length`, whose error names the arguments that are not None."""
    try:
        check_consistent_length(*arguments.values())
    except ValueError as error:
        given = [name for name, values in arguments.items() if values is not None]
        raise ValueError(f"{error}, of {' and '.join(given)}") from None


def plain(values: Any) -> Any:
    """What has `__array__` as an array, with NaN for masked cells; tables and lists as they are."""
    if isinstance(values, np.ma.MaskedArray):
        return np.ma.filled(values.astype(object), np.nan)
    is_other = isinstance(values, np.ndarray) or sparse.issparse(values) or is_frame(values)
    if is_other or not hasattr(values, "__array__"):
        return values
    if getattr(values, "num_columns", 0):  # a table of pyarrow
        return np.column_stack([plain(column) for column in values.columns])
    if is_of_bytes(values):
        return np.fromiter(texts_of_bytes(values), object, len(values))
    # numpy has no type for the former; of the latter pyarrow takes gaps for the last category
    is_wide = is_of_polars(values) and str(values.dtype).endswith("128")
    if is_wide or str(getattr(values, "type", "")).startswith("dictionary"):
        return entries(values)
    found = np.asarray(values)
    # a column is complex, or text, for a single cell
    return found.astype(object) if found.dtype.kind in "cSTU" else found


def is_of_bytes(values: Any) -> bool:
    """Whether the type of a column of pandas, polars or pyarrow is bytes.

    pyarrow and polars make that of a column of text for a single cell of bytes.
    """
    kind = getattr(values, "dtype", getattr(values, "type", ""))
    return "binary" in str(kind).lower().partition(",")[0]  # also of pyarrow's dictionaries


def texts_of_bytes(values: Any) -> list[Any]:
    """The cells of such a column, bytes as the text that they spell."""
    cells = values.to_pylist() if hasattr(values, "to_pylist") else list(values)
    return [*map(_decoded, cells)]


def _decoded(cell: Any) -> Any:
    """Bytes as the text that they spell; anything else as it is."""
    return cell.decode("utf-8", "surrogateescape") if isinstance(cell, bytes) else cell


def _integer_of(cell: Any) -> Any:
    """A hexadecimal text as the integer of 64 bits that pyarrow reads; anything else as it is."""
    found = _HEXADECIMAL.fullmatch(cell) if isinstance(cell, str) else None
    number = int(found[1], 16) if found else 0
    return number - (number >> 63 << 64) if found else cell


def only_column(values: Any) -> Any:
    """The column of a data frame or a table of pyarrow of one; anything else as it is."""
    if not is_frame(values):  # which may have a column of the name "num_columns"
        return values.column(0) if getattr(values, "num_columns", 0) == 1 else values
    if values.shape[1] != 1:
        return values
    return values.iloc[:, 0] if hasattr(values, "iloc") else values[:, 0]


def _is_missing_cell(cell: Any) -> bool:
    """Whether it is None, NaN or infinite, or does not let itself be compared, like `pandas.NA`."""
    try:
        return bool(cell is None or cell != cell or cell in (np.inf, -np.inf))
    except Exception:
        return True


def is_of_polars(values: Any) -> bool:
    """Whether it is a column or a data frame of polars that is in memory."""
    return type(values).__module__.partition(".")[0] == "polars" and hasattr(values, "to_numpy")


def is_frame(values: Any) -> bool:
    """Whether it is a data frame with columns that are in memory."""
    # a lazy frame of polars lacks the first, and the others warn
    return hasattr(values, "shape") and hasattr(values, "columns") and hasattr(values, "dtypes")


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
    if not is_frame(values):
        return "" if hasattr(values, "shape") else ". Rows in a list must have one length"
    found, dates = [], []
    for column, column_type in zip(values.columns, values.dtypes, strict=True):
        dates += [column] * (_kind(column_type) == "M")
        of_polars = hasattr(column_type, "base_type")
        kind = (column_type.base_type() if of_polars else type(column_type)).__name__
        if kind in ("Categorical", "CategoricalDtype", "Enum") or _kind(column_type) in "Mm":
            found.append(column)
    which = f"Columns of other types: {listed(found)}" if found else "X.dtypes tells their types"
    more = f"; {days_of(dates[0])}" if dates else ""
    return f". {which}; PublicEncoder makes numbers of text and categories{more}"


def days_of(column: Any) -> str:
    """What a column of dates has to be, for messages."""
    day = f"(table[{column!r}] - pd.Timestamp('2020-01-01')).dt.days"
    return f"dates must be days since a public date, such as {day}"


def entries(values: Any) -> AnyArray:
    """What a list holds of each record, shape (n,); of anything else an array of its own shape.

    numpy would make text of all that is in a list, or rows, or raise, for one odd entry. Of columns
    of polars it would make floats of integers beside a missing one, and raise for those that have
    128 bits, as all have in a column that one of them is too large for fewer. Of a frame, pandas
    would first make all columns of one type: of categories that are integers, if no other column
    holds an odd cell, integers of gaps.
    """
    if is_frame(values):
        cells, is_polars = np.empty(values.shape, object), is_of_polars(values)
        for k in range(values.shape[1]):
            cells[:, k] = entries(values[:, k] if is_polars else values.iloc[:, k])
        return cells
    if is_of_polars(values):
        return np.fromiter(values.to_list(), object, len(values))
    kind = str(getattr(values, "type", ""))
    if hasattr(values, "to_pylist") and ("int" in kind or kind.startswith("dictionary")):
        return np.fromiter(values.to_pylist(), object, len(values))  # of pyarrow, likewise
    is_list = hasattr(values, "__len__") and hasattr(values, "__getitem__")
    is_list = is_list and not (hasattr(values, "shape") or hasattr(values, "__array__"))
    is_list = is_list and not isinstance(values, (str, bytes, Mapping))
    return np.fromiter(values, object, len(values)) if is_list else np.asarray(values, object)


def one_each(values: Any) -> Any:
    """One cell of each record: among objects, that of a row of one stands for the row.

    Whatever another entry of a list is, it is the cell of its own record alone. A table of several
    columns is returned as one, for callers to refuse.
    """
    values = plain(values)
    if is_frame(values) or getattr(values, "dtype", np.dtype(object)).kind != "O":
        return values
    cells = entries(values)
    if cells.ndim != 1:
        return cells
    lengths = _lengths(cells)
    if _usual(lengths) not in (None, 1):
        return as_objects(list(cells))
    pairs = zip(cells, lengths, strict=True)
    return np.fromiter((cell[0] if n == 1 else cell for cell, n in pairs), object, cells.size)


def as_objects(values: Any, name: str = "X") -> AnyArray:
    """An array of objects: a list is a table if most of its entries are rows of one length.

    Any other entry of such a list is a row of cells that are no numbers. Targets in an array or a
    column are read alike.
    """
    cells = entries(values)
    if cells.ndim != 1 or (name != "y" and hasattr(values, "shape")):
        return cells
    lengths = _lengths(cells)
    if (usual := _usual(lengths)) is None:
        return cells
    pairs, odd = zip(cells, lengths, strict=True), [()] * usual
    whole = itertools.chain.from_iterable(cell if n == usual else odd for cell, n in pairs)
    return np.fromiter(whole, dtype=object).reshape(cells.size, usual)


def _usual(lengths: list[int | None]) -> int | None:
    """The most frequent one: a single entry must not decide on the shape of all."""
    return max(lengths, key=Counter(lengths).__getitem__, default=None)


def _lengths(cells: Any) -> list[int | None]:
    """Those of the entries that are rows; None for each other one."""
    rows = {kind for kind in set(map(type, cells)) if issubclass(kind, (Sequence, np.ndarray))}
    rows = {kind for kind in rows if not issubclass(kind, (str, bytes))}
    if not rows:
        return [None] * len(cells)
    return [len(c) if type(c) in rows and getattr(c, "ndim", 1) == 1 else None for c in cells]


def _number(cell: Any) -> float | None:
    try:
        # (bytes, as all text of a column of pyarrow or polars for one cell)
        cell = truth_of(_integer_of(_decoded(cell)))
        if isinstance(cell, complex) and cell.imag == 0:
            return float(cell.real)
        return float(cell) if isinstance(cell, _NUMBERS) else None
    except Exception:  # whatever an object of another package may raise
        return None


def nonfinite_rows(X: Any) -> Flags:
    """Flags rows with NaN or an infinity; sparse X must be `canonical`, as its entries add up."""
    out = np.zeros(X.shape[0], dtype=bool)
    if sparse.issparse(X):
        for part in value_parts(X):
            is_wrong = ~np.isfinite(X.data[part])
            if is_wrong.any():
                out[stored_places(X, part, 0)[is_wrong]] = True
        return out
    for part in slices(X.shape[0], max(1, _BLOCK_BYTES // (X.itemsize * max(1, X.shape[1])))):
        with np.errstate(all="ignore"):
            is_clean = np.isfinite(X[part].sum())  # usually enough, and far faster
        if not is_clean:
            out[part] = ~np.isfinite(X[part]).all(axis=1)
    return out


def empty_rows(X: Any) -> Flags:
    """Flags rows that a model with ``nonfinite="zero"`` takes for empty ones."""
    return nonfinite_rows(checked_table(X, strict=False))


def clear_rows(X: Any, which: Flags, original: Any, value: float = 0.0) -> Any:
    """X with a value in the flagged rows (of sparse X in what is stored of them).

    In place unless it shares memory with `original`.
    """
    if not which.any():
        return X
    if sparse.issparse(X):
        data = X.data.copy() if np.may_share_memory(X.data, original.data) else X.data
        for part in value_parts(X):
            data[part][which[stored_places(X, part, 0)]] = value
        return with_values(X, data)
    if np.may_share_memory(X, original):
        X = X.copy(order="K")
    X[which] = value
    return X


def filled_rows(X: Any, usual: Array) -> Any:
    """X with a number for each column in the place of NaN and infinities; sparse X canonical."""
    which = nonfinite_rows(X)
    if not which.any():
        return X
    usual = np.clip(usual, np.finfo(X.dtype).min, np.finfo(X.dtype).max)
    if sparse.issparse(X):
        data = X.data.copy()
        for part in value_parts(X):
            is_gap = ~np.isfinite(data[part])
            data[part][is_gap] = usual[stored_places(X, part, 1)[is_gap]]
        return with_values(X, data)
    X = X.copy(order="K")
    X[which] = np.where(np.isfinite(X[which]), X[which], usual)
    return X


def as_labels(y: Any) -> AnyArray:
    """Labels as an array of shape (n,), of objects if they are in a list: see `one_each`."""
    labels = one_each(only_column(y))
    if getattr(getattr(labels, "dtype", None), "kind", "") == "c":
        raise ValueError("y must hold labels that are numbers or text, got complex numbers")
    if getattr(y, "shape", ())[1:] == (1,):
        warn_user(
            "A column-vector y was passed when a 1d array was expected: y.ravel() makes one",
            DataConversionWarning,
        )
    return _without_gaps(np.asarray(column_or_1d(labels)))


def _without_gaps(labels: AnyArray) -> AnyArray:
    """Text of numpy that may have missing ones, which it does not compare, as objects."""
    return labels.astype(object) if labels.dtype.kind == "T" else labels


def as_users(groups: Any) -> AnyArray:
    """Users of rows as an array of shape (n,)."""
    # of objects if it was no array: one missing user turns no other one into a float, and a user of
    # one chunk is found again in the next
    users = one_each(groups if isinstance(groups, np.ndarray) else entries(groups))
    users = _without_gaps(users)
    if users.ndim != 1 or users.dtype.kind in "mM":
        raise ValueError(
            "groups must have the shape (n_samples,) and hold numbers or text, got an array of "
            f"shape {users.shape} and type {users.dtype}"
        )
    labels: Any = users if users.dtype.kind in "fc" else []
    if users.dtype.kind == "O":
        labels = [x for x in users.tolist() if isinstance(x, (float, complex, np.inexact))]
    with np.errstate(all="ignore"):  # half precision has no such numbers
        is_large = np.any(np.isfinite(labels) & (np.abs(labels) >= LARGEST_INTEGER))
    if is_large:
        raise ValueError(
            "groups holds floats of 2^53 or more, which do not tell such numbers apart: a missing "
            "label makes floats of the integers in a column. Give integers, in a list or in a "
            "column of a type that allows for missing ones, such as Int64 of pandas"
        )
    return users


def as_weights(sample_weight: Any, largest: float, *, strict: bool) -> Array:
    """Weights of records over the largest that counts, clipped to [0, 1], shape (n,).

    One that is negative, missing, infinite or no number counts as 0, or with `strict` is an error.
    """
    rule = "finite numbers that are not negative"
    weights = numbers_of_records("sample_weight", sample_weight, rule, strict=strict)
    with np.errstate(all="ignore"):  # a warning would tell of some record
        return np.where(np.isnan(weights), 0.0, np.minimum(np.abs(weights) / largest, 1.0))


def numbers_of_records(
    name: str, values: Any, rule: str, *, strict: bool, above_zero: bool = False
) -> Array:
    """A number of at least or above 0 for each record, shape (n,).

    NaN for another one, or what is missing, infinite or no number; with `strict` that is an error.
    """
    numbers = as_numbers(name, one_each(values), strict=strict)
    if np.ndim(numbers) != 1:
        raise ValueError(f"{name} must have the shape (n_samples,), got {np.shape(numbers)}")
    numbers = np.asarray(numbers, dtype=np.float64)
    with np.errstate(all="ignore"):
        is_valid = np.isfinite(numbers) & (numbers > 0 if above_zero else numbers >= 0)
    if strict and not is_valid.all():
        raise ValueError(f"{name} must hold {rule}")
    return np.where(is_valid, numbers, np.nan)


def is_missing(labels: AnyArray) -> Flags:
    """Whether a label is None, NaN, another missing value, or infinite, shape (n,)."""
    if labels.dtype.kind in "fc":
        return ~np.isfinite(labels)
    if labels.dtype.kind in "mM":
        return np.isnat(labels)
    if labels.dtype.kind != "O":
        return np.zeros(labels.shape, dtype=bool)
    return np.fromiter((_is_missing_cell(label) for label in labels), bool, labels.size)


def is_nameless(labels: AnyArray) -> Flags:
    """Whether a label is missing or cannot be compared, shape (n,).

    Text of an infinity, such as "1e400", is, and that of a missing cell, such as "" or "NA": of a
    chunk of numbers, readers of files give an infinity, and a missing cell.
    """
    found = is_missing(labels)
    if labels.dtype.kind in "US":  # most text has no letter of these, and loops take time
        letters = "nNeE" if labels.dtype.kind == "U" else (b"n", b"N", b"e", b"E")
        sizes = np.char.str_len(labels)
        may_be = (sizes == 0) | (sizes >= _LONGEST_NUMBER)
        for letter in letters:
            may_be |= np.char.find(labels, letter) >= 0
        at = np.flatnonzero(may_be)
        found[at] = np.fromiter(map(_names_nobody, labels[at].tolist()), bool, at.size)
    for i, label in enumerate(labels.tolist() if labels.dtype.kind == "O" else ()):
        try:
            found[i] |= not {label: True}.get(label, False) or _names_nobody(label)
        except Exception:
            found[i] = True
    return found


def surplus_rows(
    users: AnyArray,
    most: int,
    counted: MutableMapping[Any, int] | None = None,
    numbers: Indices | None = None,
) -> Flags:
    """Flags rows after a user's first `most`, or of no user.

    `counted`, the rows of users so far, is brought up to date; without it the table is whole, and
    a `PrivacyParameterWarning` says how many of its rows are beyond: `users` are public. `numbers`
    are their `user_numbers`, if these are known.
    """
    surplus = is_nameless(users)
    named = np.flatnonzero(~surplus)
    numbers = (user_numbers(users) if numbers is None else numbers)[named]
    order, sizes = np.argsort(numbers, kind="stable"), np.bincount(numbers)
    firsts = np.cumsum(sizes) - sizes
    # how many rows of its user come before each row
    before = np.arange(named.size) - np.repeat(firsts, sizes)
    if counted is not None:
        names = [user_of(label) for label in users[named[order[firsts]]].tolist()]
        seen = np.array([counted.get(name, 0) for name in names], dtype=np.intp)
        before += np.repeat(seen, sizes)
        counted.update(zip(names, np.minimum(seen + sizes, most).tolist(), strict=True))
    surplus[named[order]] = before >= most
    beyond = int(surplus[named].sum())
    if beyond and counted is None:
        warn_user(
            f"{beyond} of {users.size} rows count for nothing: they are beyond the first "
            f"max_rows_per_user={most} of their users in groups, who have up to {sizes.max()}. Set "
            "max_rows_per_user to as many rows as are to count",
            PrivacyParameterWarning,
        )
    return surplus


def user_numbers(users: AnyArray) -> Indices:
    """A number for the user of each row, from 0 on; of no user 0."""
    named, numbers = ~is_nameless(users), np.zeros(users.size, dtype=np.intp)
    places: Any = slice(None)
    some = users[named]
    if some.dtype.kind != "O":  # others may not be sortable
        some, places = np.unique(some, return_inverse=True)
    codes: dict[Any, int] = {}
    found = [codes.setdefault(user_of(label), len(codes)) for label in some.tolist()]
    numbers[named] = np.array(found, dtype=np.intp)[places]
    return numbers


def user_of(label: Any) -> Any:
    """The label, as a number or truth value if it is the text of one: files give both of a column.

    However it is spelled: a reader that finds numbers drops leading zeros, and in another chunk
    keeps them, where one odd label makes text of all. Two labels become one user at worst, of whom
    no more rows count than of each.
    """
    label = _integer_of(_decoded(label))
    if isinstance(label, (np.integer, np.longdouble)):
        # Decimal raises where it is compared with the first, and equals none of the second, which
        # equal integers: so that a third record could tell whether two are of one user
        with suppress(TypeError, ValueError, OverflowError):  # (time spans are such integers)
            if int(label) == label:
                return int(label)
    # (most text is none, and an exception takes time)
    if not isinstance(label, str) or label.lstrip()[:1] not in "+-.0123456789":
        return truth_of(label)
    with suppress(ValueError):
        return int(label)
    with suppress(ValueError):
        number = float(label)
        if abs(number) < LARGEST_INTEGER:  # others are no numbers of users, see `as_users`
            return number
    return label


def _is_gap(cell: Any) -> bool:
    """Whether it is the text of a missing cell; of "nan" in any case, as pyarrow has it."""
    return isinstance(cell, str) and (cell in _GAPS or _NAN.fullmatch(cell) is not None)


def _names_nobody(label: Any) -> bool:
    """Whether it is the text of an infinity or of a missing cell."""
    label = _decoded(label)
    if _is_gap(label):
        return True
    # (most text is none, and an exception takes time)
    if not isinstance(label, str) or (len(label) < _LONGEST_NUMBER and label.isdecimal()):
        return False
    if label.lstrip()[:1] not in "+-.0123456789iI":
        return False
    with suppress(ValueError):
        return math.isinf(float(label)) and not label.strip().lstrip("+-").isdigit()
    return False


def truth_of(cell: Any) -> Any:
    """True or False for their text, in any case; else the cell."""
    return _TRUTHS.get(cell.strip().lower(), cell) if isinstance(cell, str) else cell


def dates_of(cell: Any) -> list[str]:
    """The texts of files that pyarrow makes a date or a time of day of; none of other cells."""
    if isinstance(cell, time):
        return [cell.isoformat(), cell.isoformat("minutes")]
    return [cell.isoformat()] if isinstance(cell, date) and not isinstance(cell, datetime) else []


def _label_of(cell: Any) -> Any:
    """The label, as a number or a truth value if it is the text of one."""
    label = user_of(cell)
    return float(label) if isinstance(label, str) else label


def _is_number(label: Any) -> bool:
    return isinstance(label, (Real, Decimal)) and not isinstance(label, (bool, np.bool_))


def _numbers_of(cell: Any) -> list[Any]:
    """The number that a label is or spells, and the nearest float; none of a truth value."""
    with suppress(Exception):
        label = _label_of(cell)
        return [label, float(label)] if _is_number(label) else []
    return []


def check_spelling(name: str, labels: Any) -> None:
    """Warn of texts that readers of files make the same, or none: see `label_codes`."""
    known: dict[Any, str] = {}
    gaps = [text for text in labels if _is_gap(text)]
    said, are_spelled = "", bool(gaps)
    for text in labels:
        truth = truth_of(text)
        found = [str(truth)] if isinstance(truth, bool) else _numbers_of(text)[-1:]
        if text in gaps:
            continue
        are_spelled &= bool(found)
        if isinstance(text, str) and found and known.setdefault(found[0], text) != text:
            said = f"names the same twice, {shown(known[found[0]])} and {shown(text)}"
            instead = "declare one of the two"
    if known and are_spelled:
        said, instead = f"has {shown(gaps[0])}, which means a missing number", "name it otherwise"
    if said:
        warn_user(
            f"{name} {said}: readers of files, which make numbers or truth values of a column "
            "unless one cell is odd, do not tell these apart, so that one record decides about "
            f"others. Read the column as text (dtype=str), or {instead}",
            PrivacyParameterWarning,
        )


def check_classes(classes: Any, name: str = "classes") -> AnyArray:
    """The declared labels, sorted."""
    is_list, is_mixed = isinstance(classes, (list, tuple)), False
    try:
        declared = np.unique(np.asarray(classes))
        if is_list and declared.dtype.kind in "US":  # numpy makes text of the numbers of a list
            is_mixed = not all(isinstance(label, (str, bytes)) for label in classes)
    except (TypeError, ValueError):
        is_mixed = True
    if is_mixed and np.ndim(classes) == 1:
        raise ValueError(f"{name} must be of one kind, got {shown(classes)}")
    if is_mixed or np.ndim(classes) != 1 or declared.size != len(classes) or declared.size < 2:
        raise ValueError(
            f"{name} must be None or a list of at least two different labels, got {shown(classes)}"
        )
    # (of a list as it is: numpy may make floats of its integers)
    labels = classes if is_list else declared.tolist()
    if any(isinstance(x, Integral) and abs(int(x)) >= LARGEST_INTEGER for x in labels):
        raise ValueError(
            f"{name} must hold integers within 2^53: a missing label makes floats of a column, "
            "which do not tell larger ones apart. Make text of all labels"
        )
    check_spelling(name, labels)
    return declared


def labels_that_occur(y: AnyArray) -> AnyArray:
    """The labels of y, sorted, with a `PrivacyLeakWarning`: for classes that nobody declared."""
    y = np.asarray(y.tolist()) if y.dtype.kind == "O" else y
    if y.dtype.kind == "c":  # of which scikit-learn's error would show all
        raise ValueError(
            "y holds a complex number: labels are numbers or text. Declare the classes"
        )
    check_classification_targets(y)
    found = np.unique(y)
    if found.size < 2:
        raise ValueError("y has one class only; at least two classes are needed")
    warn_user(
        "classes was not given: the list of labels is taken from y, which is outside "
        "the privacy guarantee. Declare the classes.",
        PrivacyLeakWarning,
    )
    return found


def spell_values(classes: AnyArray) -> bool:
    """Whether one of the classes is the text of a number or of a truth value."""
    texts = classes.tolist() if classes.dtype.kind in "UO" else ()
    return any(
        isinstance(truth_of(text), bool) or bool(_numbers_of(text))
        for text in texts
        if isinstance(text, str)
    )


def label_codes(labels: AnyArray, classes: AnyArray) -> Integers:
    """Position of each label in the sorted `classes`, -1 for others, shape (n,).

    Among objects the text of a number is that number, if the classes are numbers, and that of a
    truth value, in any case, that value: readers of files make text of a whole column for one odd
    cell, and objects of truth values for a missing one, which must not empty the other records.
    Of classes that are text, a label that is or spells a number is the class that spells it, if
    none is that label: without an odd cell such readers make numbers of the column, or of a chunk.
    So are truth values, which are 0 and 1 there, and dates.
    """
    are_numbers, places = classes.dtype.kind in "biuf", range(classes.size)
    may_spell = labels.dtype.kind in "biufUS" and spell_values(classes)
    if may_spell and labels.dtype.kind == classes.dtype.kind == "U":
        # (as it stands comes first, and is found far faster)
        places_there = _places(labels, classes)
        rest = places_there < 0
        if rest.any():
            places_there[rest] = label_codes(labels[rest].astype(object), classes)
        return places_there
    if labels.dtype.kind == "O" or classes.dtype.kind == "O" or may_spell:
        read = _label_of if are_numbers else truth_of
        codes = dict(zip(map(read, classes.tolist()), places, strict=True))
        codes |= zip(classes.tolist(), places, strict=True)  # as it stands comes first
        texts = [] if are_numbers else [*enumerate(map(_numbers_of, classes.tolist()))]
        # of floats, too: one missing label makes such of a column of integers
        spelled = {float(x): place for place, numbers in texts[::-1] for x in numbers}
        spelled |= {numbers[0]: place for place, numbers in texts[::-1] if numbers}
        out = np.full(labels.size, -1)
        for i, label in enumerate(labels.tolist()):
            with suppress(Exception):  # what cannot be looked up is none of the classes
                if isinstance(label, complex) and label.imag == 0:
                    label = label.real  # pandas makes a column complex for a single cell
                # (1 is no truth value of text, since "1" is none: the dict would find it as True)
                if are_numbers or not _is_number(label):
                    out[i] = codes.get(label, codes.get(read(label), -1))
                if out[i] < 0 and spelled:
                    # (pyarrow makes truth values of a column of 0 and 1 for one cell of "True")
                    truth = truth_of(label)
                    numbers = [float(truth)] if isinstance(truth, bool) else _numbers_of(label)
                    out[i] = next((spelled[x] for x in numbers if x in spelled), -1)
                if out[i] < 0:
                    out[i] = next((codes[x] for x in dates_of(label) if x in codes), -1)
        return out
    # numpy would compare numbers with text as text, and raise for bytes that are no text, and for
    # numbers against dates of which one is missing
    kinds = {labels.dtype.kind, classes.dtype.kind}
    if len(kinds) > 1 and kinds & {"U", "S", "M", "m"}:
        return np.full(labels.shape, -1)
    return _places(labels, classes)


def _places(labels: AnyArray, classes: AnyArray) -> Integers:
    found = np.minimum(np.searchsorted(classes, labels), classes.size - 1)
    return np.where(classes[found] == labels, found, -1)
