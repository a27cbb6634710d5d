"""Invalid records: how they are found and emptied, and that an empty one contributes nothing.

What becomes of them in a fit is in contracts/test_nonfinite.py.
"""

from datetime import date, datetime, time
from decimal import Decimal
from io import StringIO

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.exceptions import DataConversionWarning
from support import storage

from sklearn_dpsco import PrivateVocabulary, PublicEncoder
from sklearn_dpsco.data import cells, compressed
from sklearn_dpsco.data.cells import (
    as_labels,
    as_numbers,
    clear_rows,
    is_missing,
    label_codes,
    nonfinite_rows,
)
from sklearn_dpsco.data.compressed import canonical
from sklearn_dpsco.data.rows import Move, Rows, SolverData, Terms
from sklearn_dpsco.exceptions import PrivacyParameterWarning
from sklearn_dpsco.losses import Logistic, Squared
from sklearn_dpsco.solvers.statistics import row_sum

STORAGES = ["dense", "fortran", "csr", "csc"]
N = 60


def table(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.3, 1.3, (N, 4)) * (rng.uniform(size=(N, 4)) < 0.8)
    return np.clip(X, -1, 1)


# ------------------------------------------------------------------------------- the rows


@pytest.mark.parametrize("kind", STORAGES)
@pytest.mark.parametrize("loss", [Squared(), Logistic()], ids=repr)
def test_rows_of_scale_zero_contribute_nothing_to_any_sum(kind, loss):
    scale = np.ones(N)
    scale[[2, 30, 59]] = 0.0
    objective = np.ones(N), Terms(0.2, loss, 0.7)

    def sums(center, filling, y_filling):
        X, y = table(), objective[0].copy()
        X[scale == 0], y[scale == 0] = filling, y_filling
        rows = Rows(storage(X, kind), True, scale, center=center)
        bounded = rows.with_norm_bound(0.8)
        assert np.all(bounded.scale[scale == 0] == 0)
        filled, point = (y, objective[1]), np.linspace(-1, 1, 5)
        out = [row_sum(SolverData(rows, y), 0.8), bounded.gradient_sum(point, *filled)]
        out.append(rows.clipped_gradient_sum(point, *filled, 0.8))
        if center is None and not rows.is_sparse:
            product = rows.product(np.zeros(5))
            for move in (Move(1.0, 0, 0.5), Move(0.9, 4, 1.0)):
                out.append(rows.gradient_sum_after_move(product, move, *filled))
        return np.concatenate(out)

    for center in (None, np.array([0.3, -0.2, 0.1, 0.0])):
        expected = sums(center, 0.0, 1.0)
        np.testing.assert_array_equal(sums(center, 1.0, -1.0), expected)
        np.testing.assert_array_equal(sums(center, -0.7, 1.0), expected)
        assert np.any(expected != 0)


@pytest.mark.parametrize("block", [None, 7], ids=["one block", "many blocks"])
@pytest.mark.parametrize("kind", STORAGES)
def test_cleared_rows_are_zeros_also_where_they_held_nan(monkeypatch, kind, block):
    if block is not None:
        monkeypatch.setattr(cells, "_BLOCK_BYTES", 100)
        monkeypatch.setattr(compressed, "_PART_VALUES", block)
    X = table()
    X[7, 2], X[8, 0] = np.nan, np.inf
    stored = storage(X, kind)
    flags = nonfinite_rows(stored)
    assert list(np.flatnonzero(flags)) == [7, 8]
    flags[20] = True
    dense = np.where(flags[:, None], 0.0, X)
    for own in (stored, stored.copy()):  # which shares memory with the original, and not
        cleared = clear_rows(own, flags, stored)
        found = cleared if isinstance(cleared, np.ndarray) else cleared.toarray()
        np.testing.assert_array_equal(found, dense)
    assert np.isnan(stored[7, 2])
    assert clear_rows(stored, np.zeros(N, dtype=bool), stored) is stored


def test_finite_values_whose_sum_overflows_are_valid():
    X = np.full((4, 3), 1e308)
    assert not nonfinite_rows(X).any()


@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csc_array, sparse.csr_matrix])
def test_repeated_entries_are_added_up_before_they_are_looked_at(kind):
    X = sparse.coo_array(table())
    # inf - inf = NaN; 1e308 + 1e308 = inf; and a sum that is fine
    row = np.concatenate((X.row, [6, 6, 9, 9, 12, 12]))
    col = np.concatenate((X.col, [1, 1, 2, 2, 3, 3]))
    values = np.concatenate((X.data, [np.inf, -np.inf, 1e308, 1e308, 40.0, -40.0]))
    major, minor = (col, row) if kind is sparse.csc_array else (row, col)
    order = np.lexsort((minor, major))
    size = 4 if kind is sparse.csc_array else N
    indptr = np.searchsorted(major[order], np.arange(size + 1))
    repeated = kind((values[order], minor[order], indptr), shape=X.shape)
    assert repeated.nnz == X.nnz + 6
    with np.errstate(over="ignore", invalid="ignore"):
        found = np.flatnonzero(nonfinite_rows(canonical(repeated)))
    assert list(found) == [6, 9]
    assert repeated.nnz == X.nnz + 6


# ----------------------------------------------------------------------------- the labels


@pytest.mark.parametrize("classes", [["0", "1"], ["00", "01"], ["1.5", "2.5"]])
def test_an_odd_label_of_a_chunk_changes_no_other_label(classes):
    # pandas infers types chunk by chunk: without an odd cell, those of a chunk are numbers
    chunk = classes * 3
    found, encoded = [], []
    for odd in ("x", classes[0]):
        chunks = [["?", *chunk], [odd, *chunk]]
        texts = ["\n".join(["a", *map(str, cells)]) for cells in chunks]
        column = pd.concat([pd.read_csv(StringIO(text))["a"] for text in texts])
        found.append(label_codes(as_labels(column), np.array(classes)))
        table = pd.DataFrame({"a": column.to_numpy(dtype=object)})
        encoded.append(PublicEncoder({"a": classes}, missing="indicator").transform(table))
    others = np.arange(found[0].size) != len(chunk) + 1
    np.testing.assert_array_equal(found[0][others], found[1][others])
    np.testing.assert_array_equal(found[0][1 : len(chunk) + 1], [0, 1] * 3)
    np.testing.assert_array_equal(encoded[0][others], encoded[1][others])


@pytest.mark.parametrize(
    ("classes", "column", "same"),
    [
        # 1 equals True, and its text is neither "True" nor "true"
        (["False", "True"], [1, 0, True], ["1", "0", "True"]),
        (["1", "2", "True"], [1, 2, True], ["1", "2", "True"]),
        # one missing label makes floats of the integers
        (["9007199254740993", "9"], [2**53 + 1, 9], [float(2**53 + 1), 9.0]),
        (["0.5", "2"], [Decimal("0.50"), Decimal(2)], ["0.50", "2"]),
        (["False", "True"], np.array([True, False]), ["True", "False"]),
    ],
)
def test_one_column_of_two_types_has_the_same_labels(classes, column, same):
    known = cells.check_classes(classes)
    found = label_codes(as_labels(column), known)
    np.testing.assert_array_equal(found, label_codes(as_labels(same), known))
    assert np.all(found[-1:] >= 0)
    objects = [pd.DataFrame({"a": pd.Series(list(of), dtype=object)}) for of in (column, same)]
    encoder = PublicEncoder({"a": classes}, missing="indicator", unknown="other")
    np.testing.assert_array_equal(*map(encoder.transform, objects))


@pytest.mark.parametrize("texts", [["1", "01"], ["1e3", "1000"], ["true", "True"]])
def test_texts_that_readers_of_files_do_not_tell_apart_are_named(texts):
    with pytest.warns(PrivacyParameterWarning, match=r"classes names the same twice"):
        cells.check_classes(texts)
    with pytest.warns(PrivacyParameterWarning, match=r"schema\['a'\] names the same twice"):
        PublicEncoder({"a": texts}).fit()


@pytest.mark.parametrize(
    "texts", [["1", "2", "NA"], ["", "0.5"], ["false", "None", "true"], ["1", "Nan"]]
)
def test_a_text_that_readers_of_files_take_for_a_missing_number_is_named(texts):
    for check in (cells.check_classes, lambda texts: PublicEncoder({"a": texts}).fit()):
        with pytest.warns(PrivacyParameterWarning, match="means a missing number"):
            check(texts)


@pytest.mark.parametrize(
    "texts",
    [["1", "True"], ["nan", "NaN"], ["a", "b"], ["a", "NA"], ["1", "a", ""], [0, 1], [b"1", b"01"]],
)
def test_other_texts_are_not_named(texts):
    cells.check_classes(texts)


def test_text_of_a_truth_value_is_the_user_of_that_value():
    # readers of files make truth values of a column, or of a chunk, unless one cell is odd
    counted = {}
    clean = pd.read_csv(StringIO("user\nTrue\nfalse\nTRUE"))["user"]
    odd = pd.read_csv(StringIO("user\nTrue\nfalse\nTRUE\nx"))["user"]
    first = cells.surplus_rows(cells.as_users(clean), 1, counted)
    np.testing.assert_array_equal(first, [False, False, True])
    again = cells.surplus_rows(cells.as_users(odd), 1, counted)
    np.testing.assert_array_equal(again, [True, True, True, False])


def test_a_missing_user_of_arrow_makes_no_floats_of_the_others():
    pa = pytest.importorskip("pyarrow")
    large = [2**60 + k // 2 for k in range(6)]
    for odd in (7, None):
        array = pa.array([odd, *large])
        halves = pa.chunked_array([array[:2], array[2:]])
        for groups in (array, halves, array.dictionary_encode(), pa.table({"g": array})["g"]):
            users = cells.as_users(groups)
            assert cells.is_nameless(users).tolist() == [odd is None] + [False] * 6
            np.testing.assert_array_equal(np.diff(cells.user_numbers(users)[1:]), [0, 1, 0, 1, 0])


@pytest.mark.skipif(not hasattr(np.dtypes, "StringDType"), reason="an older numpy has no such type")
def test_missing_labels_of_variable_text_of_numpy():
    for nothing in (None, np.nan):
        kind = np.dtypes.StringDType(na_object=nothing)
        for odd in ("x", nothing):
            text = np.array(["b", "b", odd, "a"], dtype=kind)
            labels, users = as_labels(text), cells.as_users(text)
            np.testing.assert_array_equal(label_codes(labels, np.array(["a", "b"])), [1, 1, -1, 0])
            assert cells.is_nameless(users).tolist() == [False, False, odd is nothing, False]
            surplus = cells.surplus_rows(users, 1, {})
            np.testing.assert_array_equal(surplus, [False, True, odd is nothing, False])


def columns_of(cells):
    """Columns of several packages, of bytes if one of the cells is."""
    pa, pl = pytest.importorskip("pyarrow"), pytest.importorskip("polars")
    array = pa.array(cells)
    yield array
    yield array.dictionary_encode()
    yield pa.chunked_array([array[:1], array[1:]])
    yield pd.Series(pd.arrays.ArrowExtensionArray(array))
    yield pl.Series("a", array)


def test_one_cell_of_bytes_does_not_make_bytes_of_the_text_of_others():
    found = []
    for odd in ("b", b"b"):
        for column in columns_of(["a", odd, None, "a", "b", "1"]):
            labels, known = as_labels(column), np.array(["a", "b", "1"])
            found.append([label_codes(labels, known).tolist()])
            texts = PrivateVocabulary(nonfinite="zero")._texts(column)
            found[-1].append([texts.count(text) for text in ("a", "b", "1", None)])
            if isinstance(column, pd.Series) or hasattr(column, "to_frame"):
                table = column.to_frame("a") if hasattr(column, "index") else column.to_frame()
                encoder = PublicEncoder({"a": ["a", "b", "1"]}, missing="indicator")
                found[-1].append(encoder.transform(table).argmax(axis=1).tolist())
    assert [one[0] for one in found] == [[0, 1, -1, 0, 1, 2]] * 10
    assert [one[1] for one in found] == [[2, 2, 1, 1]] * 10
    assert [one[2] for one in found if one[2:]] == [[0, 1, 3, 0, 1, 2]] * 4


def test_one_cell_of_bytes_does_not_empty_truth_values_of_others():
    polars, pyarrow = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
    for odd in ("1", b"1", b"\xff"):
        column = ["true", "False", odd, None]
        tables = [
            polars.DataFrame({"a": polars.Series(column, strict=False)}),
            pyarrow.table([pyarrow.array(column)], ["a"]),
        ]
        tables += [tables[1].to_pandas(types_mapper=pd.ArrowDtype), np.array([column], object).T]
        of_odd = np.nan if odd == b"\xff" else 1.0
        for table in tables:
            found = cells.checked_table(table, strict=False)
            np.testing.assert_array_equal(found[:, 0], [1.0, 0.0, of_odd, np.nan])


def test_an_odd_cell_makes_no_other_text_of_hexadecimal_numbers():
    # of which pyarrow makes integers of 64 bits, unless one cell is odd
    pa, csv = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.csv")
    texts, found, counted = ["0x1F", "0XfF", " 0x01", "0x8000000000000000"], [], {}
    for odd in ("0x2", "x"):
        table = csv.read_csv(pa.BufferReader("\n".join(["a", *texts, odd]).encode()))
        assert (table["a"].type == pa.int64()) == (odd == "0x2")
        X = cells.checked_table(table, strict=False)[:4, 0]
        labels = label_codes(as_labels(table["a"]), np.sort(texts))[:4]
        found.append((X, labels, cells.surplus_rows(cells.as_users(table["a"]), 1, counted)[:4]))
    (X, labels, before), (same, codes, after) = found
    np.testing.assert_array_equal([X, same], [[31, 255, 1, -(2.0**63)]] * 2)
    np.testing.assert_array_equal(labels, codes)
    assert labels.min() >= 0
    assert after.all()
    assert not before.any()


@pytest.mark.parametrize("spelled", ["1e400", "inf", "-Infinity", " 1e999"])
def test_who_is_called_an_infinity_is_no_user_in_any_chunk(spelled):
    counted = {}
    for odd in ("3", "x"):  # which makes text of a chunk
        rows = pd.read_csv(StringIO("\n".join(["user", spelled, "1", spelled, "2", odd])))
        users = cells.as_users(rows["user"])
        surplus = cells.surplus_rows(users, 9, counted)
        np.testing.assert_array_equal(surplus, [True, False, True, False, False])
    for text in (np.array([spelled, "a"]), np.array([spelled.encode(), b"a"])):
        assert cells.is_nameless(text).tolist() == [True, False]
    names = [
        "Ines",
        "i",
        "infinite",
        "+",
        " ",
        "1e3",
        "Inf.",
        "10",
        "9" * 400,
        "Nancy",
        "none",
        "NaN.",
    ]
    assert not cells.is_nameless(np.array(names)).any()


def test_hexadecimal_text_is_the_integer_that_arrow_reads():
    pa, csv = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.csv")
    counted = {}
    for odd in ("3", "x"):  # which makes text of the column
        lines = ["a", "0x10", "16", "0xffffffffffffffff", "0", odd]
        column = csv.read_csv(pa.BufferReader("\n".join(lines).encode()))["a"]
        found = as_numbers("X", column, strict=False)
        np.testing.assert_array_equal(found[:4], [16, 16, -1, 0])
        surplus = cells.surplus_rows(cells.as_users(column), 9, counted)
        assert not surplus.any()
        codes = label_codes(as_labels(column), np.array([-1, 16]))
        np.testing.assert_array_equal(codes, [1, 1, 0, -1, -1])
    assert counted == {16: 4, -1: 2, 0: 2, 3: 1, "x": 1}


@pytest.mark.parametrize("gap", ["", "NA", "#N/A", "NULL", "nan", "Nan", " -NAN", "nan(1)"])
def test_who_has_no_name_is_no_user_in_any_table(gap):
    # pyarrow gives gaps in a column of numbers, and text in one that an odd label makes text
    pa, csv = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.csv")
    for odd in ("3", "x"):
        table = "\n".join(["user,x", f"{gap},1", "1,1", f"{gap},1", "2,1", f"{odd},1"])
        users = cells.as_users(csv.read_csv(pa.BufferReader(table.encode()))["user"])
        for labels in (users, users.astype(str).astype(object)):
            surplus = cells.surplus_rows(labels, 9)
            np.testing.assert_array_equal(surplus, [True, False, True, False, False])
    for text in (np.array([gap, "a"]), np.array([gap.encode(), b"a"])):
        assert cells.is_nameless(text).tolist() == [True, False]


def test_one_missing_label_does_not_decide_about_bytes_of_others():
    for odd, kind in ((b"x", "S"), (None, object)):
        labels = as_labels(np.array([b"0", b"1", odd, b"1.0"], dtype=kind))
        found = label_codes(labels, np.array(["0", "1"]))
        np.testing.assert_array_equal(found, [0, 1, -1, 1])


def test_one_label_of_bytes_does_not_make_bytes_of_the_text_of_others_in_a_table():
    pyarrow = pytest.importorskip("pyarrow")
    for odd in ("b", b"b"):
        table = pyarrow.table({"a": pyarrow.array(["a", odd, None, "a", "b"])})
        with pytest.warns(DataConversionWarning):
            labels = as_labels(table)
        np.testing.assert_array_equal(label_codes(labels, np.array(["a", "b"])), [0, 1, -1, 0, 1])


def test_labels_in_a_frame_whose_column_has_any_name():
    with pytest.warns(DataConversionWarning):
        labels = as_labels(pd.DataFrame({"num_columns": ["a", "b"]}))
    assert labels.tolist() == ["a", "b"]


def test_text_of_numpy_is_read_at_once_where_it_is_clear(monkeypatch):
    looked_at = []

    def counted(name):
        of_one = getattr(cells, name)
        monkeypatch.setattr(cells, name, lambda x: looked_at.append(x) or of_one(x))

    counted("_numbers_of")
    counted("_names_nobody")
    labels = np.array(["0", "1"] * 500 + ["1.0", "x"])
    expected = np.append(np.tile([0, 1], 500), [1, -1])
    np.testing.assert_array_equal(label_codes(labels, np.array(["0", "1"])), expected)
    for text in (labels, labels.astype("S")):
        assert not cells.is_nameless(text).any()
    assert len(looked_at) < 20
    long = ["9" * 400, "9" * 400 + ".", "1e400", "1e4", "-inf", "INF", "user"]
    for text in (np.array(long), np.array(long, "S"), np.array(long, object)):
        assert cells.is_nameless(text).tolist() == [False, True, True, False, True, True, False]


def test_codes_of_labels():
    text = np.array(["b", "zz", "a", ""])
    np.testing.assert_array_equal(label_codes(text, np.array(["a", "b"])), [1, -1, 0, -1])
    numbers = np.array([2.0, np.nan, -1.0, 5.0, 1.5, np.inf])
    np.testing.assert_array_equal(label_codes(numbers, np.array([-1, 2])), [1, -1, 0, -1, -1, -1])
    mixed = np.array([1, "1", None, np.nan, True, 1.0, [1], pd.NA, b"0", "True", "a"], dtype=object)
    codes = label_codes(mixed, np.array([0, 1]))
    np.testing.assert_array_equal(codes, [1, 1, -1, -1, 1, 1, -1, -1, 0, 1, -1])
    text = label_codes(np.array(["1", 1, "a"], dtype=object), np.array(["1", "a"]))
    np.testing.assert_array_equal(text, [0, 0, 1])
    np.testing.assert_array_equal(label_codes(np.array([0, 1]), np.array(["0", "1"])), [0, 1])
    np.testing.assert_array_equal(label_codes(np.array([0, 1]), np.array(["a", "b"])), [-1, -1])
    odd = np.array([1.5, True, "01.50", 2, "TRUE", np.nan], dtype=object)
    spelled = label_codes(odd, np.array(["1.50", "2"]))
    np.testing.assert_array_equal(spelled, [0, -1, 0, 1, -1, -1])
    # truth values, which one missing cell leaves as they are and one odd cell makes text of
    for read in ([True, False, None], ["TRUE", "False", "x"], [" true", "FALSE ", ""]):
        for classes in ([False, True], ["False", "True"], ["FALSE", "TRUE"], [0, 1]):
            codes = label_codes(np.array(read, dtype=object), np.array(classes))
            np.testing.assert_array_equal(codes, [1, 0, -1], err_msg=str((read, classes)))
    both = label_codes(np.array(["true", "True"], dtype=object), np.array(["True", "true"]))
    np.testing.assert_array_equal(both, [1, 0])
    # one missing cell makes objects of an array of text, and a complex one such numbers of others
    known = np.array(["00", "01"])
    for read in (np.array(["0", "1", "x"]), np.array(["0", "1", None])):
        np.testing.assert_array_equal(label_codes(read, known), [0, 1, -1])
    for last in (0.5, 1j):
        read = as_labels(pd.Series([0, 1, last]))
        np.testing.assert_array_equal(label_codes(read, known), [0, 1, -1])
        np.testing.assert_array_equal(label_codes(read, np.array(["False", "True"])), [-1] * 3)
    # dates are no numbers, of which numpy would say so if one is missing
    for last in ("2020-01-01", "NaT"):
        dates = np.array(["2020-01-01", last], dtype="datetime64[D]")
        np.testing.assert_array_equal(label_codes(dates, np.array([0, 1])), [-1, -1])
    for first in (b"a", b"\xff"):  # bytes are no text, whatever they hold
        labels = np.array([first, b"b"])
        np.testing.assert_array_equal(label_codes(labels, np.array(["a", "b"])), [-1, -1])


def test_text_of_truth_values_is_a_number_in_features():
    flags = pd.DataFrame({"a": ["True", "FALSE", " true "], "b": ["TRUE", "maybe", "0.5"]})
    found = as_numbers("X", flags, strict=False)
    np.testing.assert_array_equal(found, [[1, 1], [0, np.nan], [1, 0.5]])


def test_missing_labels():
    values = [None, np.nan, pd.NA, pd.NaT, np.inf, "nan", "", 0, False]
    found = is_missing(np.array(values, dtype=object))
    np.testing.assert_array_equal(found, [True] * 5 + [False] * 4)
    assert list(is_missing(np.array([0.0, np.nan, -np.inf]))) == [False, True, True]
    assert list(is_missing(np.array(["2020", "NaT"], dtype="datetime64[Y]"))) == [False, True]
    assert not is_missing(np.array(["a", "nan"])).any()


def test_one_label_of_another_kind_does_not_turn_the_others_into_text():
    labels = [0, 1, "text", None]
    assert as_labels(labels).dtype == object
    assert as_labels(labels).tolist() == labels
    # which is what numpy would have done
    assert np.asarray(labels[:3]).dtype.kind == "U"


def test_a_label_of_another_type_changes_no_other_user():
    # Decimal(1) == np.int8(1) raises, and Decimal(1) is 1 but not np.longdouble(1), which is 1, too
    others = [Decimal(1), np.longdouble(1), Decimal(2), 3, np.int8(1)]
    # (a time span is an integer of numpy that makes no integer)
    for label in (1, np.int8(1), np.uint64(7), np.timedelta64(5, "D"), Decimal(7), None, "1"):
        users = cells.as_users(np.array([label, *others], dtype=object))
        _, found = np.unique(cells.user_numbers(users)[1:], return_inverse=True)
        assert found[0] == found[1] == found[4] != found[2] != found[3], label
        surplus = cells.surplus_rows(users[1:], 1, {})
        np.testing.assert_array_equal(surplus, [False, True, False, False, True])


@pytest.mark.parametrize("spelled", ["{:06d}", "{:d}", "{:d}.0", "{:d}.50", "{:d}e2", " {:d}"])
def test_an_odd_user_of_a_chunk_makes_no_new_users_of_the_others(spelled):
    own = [spelled.format(user) for user in range(1, 40)]
    n_counted = []
    for odd in (spelled.format(40), "x1"):
        counted, n = {}, 0
        for last in (spelled.format(40), odd):  # two chunks of a file
            text = "\n".join(["user,x", *(f"{user},1" for user in [*own, last])])
            users = cells.as_users(pd.read_csv(StringIO(text))["user"])
            n += np.count_nonzero(~cells.surplus_rows(users, 1, counted)[:-1])
        n_counted.append(n)
    assert n_counted == [len(own)] * 2


@pytest.mark.parametrize(
    ("texts", "read"),
    [
        (["2020-01-01", "2021-05-06"], [date(2020, 1, 1), date(2021, 5, 6)]),
        (["11:00", "12:30"], [time(11), time(12, 30)]),
        (["11:00:00", "12:30:05"], [time(11), time(12, 30, 5)]),
    ],
)
def test_dates_are_the_texts_that_pyarrow_made_them_of(texts, read):
    """One odd cell leaves all of a column text."""
    some = np.array([read[1], read[0], None, datetime(2020, 1, 1), read[1]], dtype=object)
    found = label_codes(as_labels(some), np.array(texts))
    np.testing.assert_array_equal(found, [1, 0, -1, -1, 1])
    frames = (
        pd.DataFrame({"when": pd.Series(column, dtype=object)})
        for column in ([*read, date(1, 1, 1), None], [*texts, "SECRET", None])
    )
    encoder = PublicEncoder({"when": texts}, missing="indicator", unknown="other")
    of_dates, of_texts = (encoder.transform(frame) for frame in frames)
    np.testing.assert_array_equal(of_dates, of_texts)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("columns", ["abb", "abc"])
@pytest.mark.parametrize("n_sparse", [1, 2, 3])
def test_sparse_columns_are_read_one_by_one(columns, n_sparse):
    """Not by names, nor by how many of them are sparse: one odd cell makes objects of a column."""
    values = np.array([[0.0, 1.0, 0.0], [2.0, 0.0, 3.0]])
    parts = [pd.Series(column, dtype=pd.SparseDtype(float, 0.0)) for column in values.T[:n_sparse]]
    parts += [pd.Series(column) for column in values.T[n_sparse:]]
    frame = pd.concat(parts, axis=1).set_axis(list(columns), axis=1)
    found = cells.as_numbers("X", frame, strict=True)
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, values)
    odd = frame.astype({columns[-1]: object}) if columns == "abc" else frame
    np.testing.assert_array_equal(cells.as_numbers("X", odd, strict=True), values)


@pytest.mark.parametrize("values", [["b", None, "a"], [3, None, 1], [0.5, None, 0.25]])
@pytest.mark.parametrize("kind", ["array", "chunks", "table", "batch"])
def test_gaps_of_dictionaries_of_arrow_are_no_category(values, kind):
    """Of chunks numpy finds the last one for them, which may be that of a single record."""
    pyarrow = pytest.importorskip("pyarrow")
    column = pyarrow.array(values).dictionary_encode()
    if kind == "chunks":
        column = pyarrow.chunked_array([column[:2], column[2:]])
    if kind in ("table", "batch"):
        make = pyarrow.table if kind == "table" else pyarrow.record_batch
        column = make({"a": column})
        beside = make({"a": column["a"], "b": [1, 2, 3]})
        numbers = [v if isinstance(v, float | int) else np.nan for v in values]
        found = cells.as_numbers("X", beside, strict=False)
        np.testing.assert_array_equal(found, np.transpose([numbers, [1, 2, 3]]))
    labels = as_labels(cells.only_column(column))
    codes = label_codes(labels, np.array([values[2], values[0]]))
    np.testing.assert_array_equal(codes, [1, -1, 0])
    np.testing.assert_array_equal(cells.is_missing(labels), [False, True, False])


@pytest.mark.parametrize(
    "column",
    [[1, 2, 3], [1, None, 3], [1, "SECRET", 3], pd.Categorical(pd.Series([(1, 2), 0.5, 1.0]))],
    ids=["integers", "a gap", "text", "a pair"],
)
def test_gaps_of_categories_do_not_depend_on_a_cell_of_another_column(column):
    """Where all columns hold integers, pandas makes such of gaps."""
    own = {"a": pd.Categorical([1, None, 2]), "b": pd.Categorical([None, 3, 4])}
    frame = pd.DataFrame(own | {"c": column})
    found = cells.as_numbers("X", frame, strict=False)
    np.testing.assert_array_equal(found[:, :2], [[1, np.nan], [np.nan, 3], [2, 4]])
    with pytest.raises(ValueError, match=r"NaN|must hold numbers"):
        cells.checked_table(frame, strict=True)
