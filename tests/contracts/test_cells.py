"""Cells and labels that are no numbers or no labels: each is an invalid record, and no more.

With `nonfinite="zero"` the fit equals, bit for bit, one whose record holds NaN in that place; with
"raise" there is one `ValueError`, which quotes nothing.
"""

import warnings
from decimal import Decimal
from fractions import Fraction
from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pytest
from registry import (
    ESTIMATORS,
    READING_ORDER,
    build,
    columns_as,
    each_main_form_of_readers,
    each_reader,
    each_reader_of_labels,
    is_classifier,
    known,
    main_form,
    nothing_is_released,
    outcome,
    table,
)
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from support import half_is_enough

from sklearn_dpsco import DPGridSearchCV, DPMirrorRegressor, DPScaler, dp_score

BAD_ROW = 5


class Hostile:
    """Whatever is asked of it raises."""

    def _raise(self, *args):
        raise RuntimeError("SECRET")

    __hash__ = __eq__ = __ne__ = __bool__ = __float__ = __repr__ = __len__ = __iter__ = _raise


NO_NUMBERS = (
    None, pd.NA, pd.NaT, np.datetime64("NaT"), np.datetime64("2020-01-01"), np.timedelta64(3, "D"),
    10**400, -(10**5000), Fraction(10**400, 3), Decimal("sNaN"), Decimal("NaN"),
    Decimal("Infinity"), Decimal("1e999999"), np.finfo(np.longdouble).max, 1j, np.complex128(1j),
    "SECRET", "", b"SECRET", "nan", [0.5], [], ["SECRET", "SECRET"], np.array([0.5, 0.5]),
    {"SECRET": 1}, object(), Hostile(),
)  # fmt: skip
NUMBERS = (
    np.float32(0.5), Fraction(1, 2), Decimal("0.5"), "0.5", b"0.5", np.longdouble(0.5),
    np.float16(0.5), 0.5 + 0j, np.array(0.5)[()],
)  # fmt: skip
NO_LABELS = (
    None, pd.NA, pd.NaT, np.nan, np.datetime64("NaT"), Decimal("sNaN"), Decimal("NaN"), 10**400,
    -np.inf, 1j, b"yes", [], ["no", "yes"], np.array(["no", "yes"]), {"yes"}, Hostile(),
    ("no", "yes"), "SECRET",
)  # fmt: skip


def as_list(cells):
    return [list(row) for row in cells]


def as_frame(cells):
    """A frame whose columns have the types that pandas finds."""

    def inferred(column):
        try:
            return column.infer_objects()
        except OverflowError:  # of old versions at an integer that no float holds
            return column

    return columns_as(cells).apply(inferred)


TABLES = (np.array, as_list, as_frame)
TARGETS = (np.array, list, lambda values: pd.Series(values, dtype=object))


def by_turns(name, values, ways=TABLES, cells="all"):
    """Pairs of a cell and a way to hand it in: of each estimator another one, or half of them."""
    turn = READING_ORDER.index(name) // 2
    pairs = [(value, ways[(k + turn) % len(ways)]) for k, value in enumerate(values)]
    return pairs if cells == "all" else pairs[turn % 2 :: 2]


def with_cell(X, cell):
    out = X.astype(object)
    out[BAD_ROW, 1] = cell
    return out


def with_nan(X):
    out = X.copy()
    out[BAD_ROW, 1] = np.nan
    return out


def quietly(call, *data, **more):
    """The call, in which each warning is an error but those of a table's size or shape."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", ".*too small to learn from")
        warnings.filterwarnings("ignore", "A column-vector y")  # by its shape, which is public
        # of old versions of pandas about numpy
        warnings.filterwarnings("ignore", "np.find_common_type", DeprecationWarning)
        return call(*data, **more)


def assert_same(model, other, case):
    np.testing.assert_array_equal(outcome(model), outcome(other), err_msg=repr(case)[:80])


@half_is_enough
@each_main_form_of_readers
def test_a_cell_that_is_no_number_is_like_nan(name, form, cells):
    X, y = table(name)
    whole = np.rint(3 * X)
    nan, bounds = with_nan(whole), known(name, {"bounds_X": (-3, 3)})
    expected = build(name, form, nonfinite="zero", **bounds).fit(nan, y)
    cases = [with_cell(whole, cell) for cell in NO_NUMBERS[:: 1 if form == main_form(name) else 5]]
    # what a table of integers becomes if one of them is not there
    cases += [with_cell(whole.astype(np.int64), None), nan.astype(object)]
    for number, (odd, pack) in enumerate(by_turns(name, cases, TABLES, cells)):
        model = build(name, form, nonfinite="zero", **bounds)
        quietly(model.fit, pack(odd), y)
        assert_same(model, expected, number)
        predicted = quietly(model.predict, pack(odd))
        np.testing.assert_array_equal(predicted, expected.predict(nan))


@half_is_enough
@each_reader
def test_numbers_of_all_kinds_are_taken_for_what_they_are(name, cells):
    X, y = table(name)
    X[BAD_ROW, 1] = 0.5
    for k, mode in enumerate(("zero", "raise")):
        expected = build(name, main_form(name), nonfinite=mode).fit(X, y)
        numbers = NUMBERS if cells == "all" else NUMBERS[k::2]
        for cell, pack in by_turns(name, numbers):
            model = build(name, main_form(name), nonfinite=mode)
            assert_same(quietly(model.fit, pack(with_cell(X, cell)), y), expected, cell)


@half_is_enough
@each_reader
def test_columns_of_one_type_do_not_depend_on_a_cell_of_another_column(name, cells):
    X, y = table(name)
    bounds = known(name, {"bounds_X": (-3, 3)})
    whole = np.rint(3 * X)
    types = ("int64", "float32", "int8", "Int64", "Float32", "object")
    for column_type in types if cells == "all" else types[READING_ORDER.index(name) // 2 % 2 :: 2]:
        fits = []
        for cell in (None, "SECRET", np.nan, 10**400):
            frame = columns_as(whole).astype(column_type)
            if cell is not None:
                frame["b"] = pd.Series(with_cell(whole, cell)[:, 1], dtype=object)
            else:
                frame = frame.astype({"b": float})
                frame.loc[BAD_ROW, "b"] = np.nan
            model = build(name, main_form(name), nonfinite="zero", **bounds)
            fits.append(quietly(model.fit, frame, y))
        for fit in fits[1:]:
            assert_same(fit, fits[0], column_type)
        assert list(fits[0].feature_names_in_) == ["a", "b", "c"]


@each_reader
def test_masked_cells_are_missing(name):
    X, y = table(name)
    for values in (X, X.astype(np.float32).astype(np.float64), np.rint(3 * X).astype(int)):
        mask = np.zeros(X.shape, dtype=bool)
        mask[BAD_ROW, 1] = True
        masked = np.ma.MaskedArray(values, mask)
        expected = build(name, main_form(name), nonfinite="zero").fit(
            with_nan(values.astype(float)), y
        )
        assert_same(
            build(name, main_form(name), nonfinite="zero").fit(masked, y), expected, values.dtype
        )
        with nothing_is_released(), pytest.raises(ValueError, match="NaN"):
            build(name, main_form(name)).fit(masked, y)


@half_is_enough
@each_main_form_of_readers
def test_a_target_that_is_none_is_like_nan(name, form, cells):
    X, y = table(name)
    missing = y.astype(object)
    missing[BAD_ROW] = None if is_classifier(name) else np.nan
    expected = build(name, form, nonfinite="zero").fit(X, missing)
    numbers = [cell for cell in NO_NUMBERS if not isinstance(cell, (list, np.ndarray))]
    some = NO_LABELS if is_classifier(name) else numbers
    some = some[:: 1 if form == main_form(name) else 5]
    for number, (target, pack) in enumerate(by_turns(name, some, TARGETS, cells)):
        targets = y.astype(object)
        targets[BAD_ROW] = target
        model = build(name, form, nonfinite="zero")
        quietly(model.fit, X, pack(targets))
        assert_same(model, expected, number)


@each_reader_of_labels
def test_numeric_labels_and_one_that_is_none(name):
    X, y = table(name)
    codes, turn = np.where(y == "yes", 1, 0), ESTIMATORS.index(name) // 2
    for k, classes in enumerate(([0, 1], [0.0, 1.0])):
        fits = []
        some = (*NO_LABELS, 2, 0.5)[(turn + k) % 2 :: 2]
        for target, pack in by_turns(name, some, TARGETS[:2]):
            labels = codes.astype(object)
            labels[BAD_ROW] = target
            model = build(name, main_form(name), classes=classes, nonfinite="zero")
            fits.append(quietly(model.fit, X, pack(labels)))
        for fit in fits[1:]:
            assert_same(fit, fits[0], classes)


@each_reader_of_labels
def test_numbers_are_the_classes_whose_text_spells_them(name):
    """Of which readers of files make a column unless one cell is odd."""
    X, y = table(name)
    codes = np.where(y == "yes", 1, 0)
    texts = codes.astype(str).astype(object)
    model = {"classes": ["0", "1"], "nonfinite": "zero"}
    expected = build(name, main_form(name), **model).fit(X, texts)
    truths = codes.astype(bool)  # which pyarrow makes of the codes for one cell of "True"
    kinds = codes, codes.astype(float), pd.Series(codes), pd.Series(texts, dtype="str"), truths
    for labels in (*kinds, truths.astype(object), truths.astype(str)):
        fitted = quietly(build(name, main_form(name), **model).fit, X, labels)
        assert_same(fitted, expected, labels.dtype)
        scores = [
            dp_score(fitted, X, given, epsilon=9.0, by=given, by_values=["0", "1"], random_state=0)
            for given in (labels, texts)
        ]
        assert str(scores[0]) == str(scores[1])
        assert fitted.score(X, labels) == fitted.score(X, texts)


@each_reader
def test_one_complex_cell_costs_its_own_record(name):
    X, y = table(name)
    model = {"nonfinite": "zero", "max_weight": 1.0}
    codes = (y == "yes").astype(int) if is_classifier(name) else np.rint(y)
    model |= known(name, {"classes": [0, 1]}) if is_classifier(name) else {}
    fits = []
    # of which pandas makes a column of complex numbers
    for odd, pack in ((np.nan, pd.Series), (1j, pd.Series), (1j, pd.DataFrame)):
        some = [*codes.tolist()[:BAD_ROW], odd, *codes.tolist()[BAD_ROW + 1 :]]
        weights = [odd, *[0.5, 1.0, 0.25] * 19, 1.0, 1.0]
        fits.append(build(name, main_form(name), **model))
        quietly(fits[-1].fit, X, pack(some), sample_weight=pd.Series(weights))
    for fit in fits[1:]:
        assert_same(fit, fits[0], name)


@each_reader
def test_text_of_polars_is_read_cell_by_cell(name):
    """Of which its reader makes a column for one odd cell."""
    X, y = table(name)
    numbers = (y == "yes").astype(int) if is_classifier(name) else np.rint(y)
    model = {"nonfinite": "zero"} | (
        known(name, {"classes": [0, 1]}) if is_classifier(name) else {}
    )
    some = [*map(str, numbers[:BAD_ROW]), "n/a", *map(str, numbers[BAD_ROW + 1 :])]
    fits = [
        quietly(build(name, main_form(name), **model).fit, X, pack(some))
        for pack in (pd.Series, pl.Series)
    ]
    assert_same(*fits, name)


@each_reader
def test_text_of_arrow_in_a_frame_is_read_cell_by_cell(name):
    """Of which readers of files make a column of X for one odd cell (`dtype_backend="pyarrow"`)."""
    pa = pytest.importorskip("pyarrow")
    X, y = table(name)
    expected = build(name, main_form(name), nonfinite="zero").fit(with_nan(X), y)
    for kind, odd in ((pa.string(), "SECRET"), (pa.large_string(), ""), (pa.binary(), "SECRET")):
        cells = [str(cell) for cell in X[:, 1]]
        cells[BAD_ROW] = odd
        frame = columns_as(X)
        frame["b"] = pd.array(cells, dtype=pd.ArrowDtype(pa.string())).astype(pd.ArrowDtype(kind))
        model = build(name, main_form(name), nonfinite="zero")
        assert_same(quietly(model.fit, frame, y), expected, kind)
        predicted = quietly(model.predict, frame)
        np.testing.assert_array_equal(predicted, expected.predict(with_nan(X)))


@pytest.mark.skipif(not hasattr(pl, "Int128"), reason="an older polars has no 128 bits")
@each_reader
def test_an_integer_that_only_128_bits_of_polars_hold_costs_its_own_record(name):
    """For which its reader takes as many for the whole column, of which numpy has no type."""
    X, y = table(name)
    labels = ((y == "yes").astype(int) if is_classifier(name) else np.rint(y)).astype(int).tolist()
    weights, columns = [1] * len(y), np.rint(X).astype(int).T.tolist()
    labels[3], weights[4], columns[0][BAD_ROW] = 2**70, 2**70, 2**70
    model = known(name, {"classes": [0, 1]}) if is_classifier(name) else {}
    fits = []
    for pack, frame in ((list, pd.DataFrame), (partial(pl.Series, strict=False), pl.DataFrame)):
        cells = frame({f"x{k}": pack(column) for k, column in enumerate(columns)})
        fits.append(build(name, main_form(name), nonfinite="zero", **model))
        quietly(fits[-1].fit, cells, pack(labels), sample_weight=pack(weights))
    assert_same(*fits, name)


def test_no_error_quotes_labels_beside_a_complex_one():
    X, y = table("DPMirrorClassifier")
    labels = [1j, *np.where(y == "yes", 37037, 0).tolist()[1:]]
    for pack in (list, pd.Series, pd.DataFrame):
        with pytest.raises(ValueError, match=r"complex .*Declare the classes") as caught:
            quietly(build("DPMirrorClassifier", None, classes=None).fit, X, pack(labels))
        assert "37037" not in str(caught.value)


def test_no_error_of_a_score_quotes_a_cell_or_labels():
    for name in ("DPMirrorRegressor", "DPPoissonRegressor", "DPMirrorClassifier"):
        X, y = table(name)
        model, ones = build(name, main_form(name)).fit(X, y), np.ones(len(y), dtype=object)
        other = np.full(len(y), 37037 + 1j)
        if is_classifier(name):
            other = np.where(np.arange(len(y)) == BAD_ROW, 37037, y.astype(str).astype(object))
        cases = [(other, ones), (y, np.where(np.arange(len(y)) == BAD_ROW, "SECRET", ones))]
        if not is_classifier(name):  # to which text is a label
            cases.append((np.where(np.arange(len(y)) == BAD_ROW, "SECRET", y.astype(object)), ones))
        for targets, weights in cases:
            with pytest.raises(ValueError, match="holds values of another kind") as caught:
                model.score(X, targets, sample_weight=weights)
            assert "SECRET" not in str(caught.value)
            assert "37037" not in str(caught.value)
            assert caught.value.__context__ is None
        ones[BAD_ROW] = np.nan
        try:
            found = str(model.score(X, y, sample_weight=ones.astype(float)))
        except ValueError as error:
            found = str(error)
        # (older scikit-learn does not look)
        assert found == "nan" or "sample_weight contains NaN" in found


def test_a_missing_cell_of_a_nullable_frame_costs_its_own_record_in_scores_and_searches():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.integers(0, 2, (200, 2)), columns=["a", "b"]).astype("Int8")
    X.iloc[5, 0] = pd.NA
    common = {"bounds_X": (-1, 1), "bounds_y": ([-1, -1], [1, 1]), "nonfinite": "zero"}
    model = DPMirrorRegressor(epsilon=500.0, **common)
    piped = make_pipeline(DPScaler(nonfinite="zero"), model)
    search = DPGridSearchCV(
        piped, {"dpmirrorregressor__fit_intercept": [True, False]}, epsilon=5000.0
    )
    quietly(search.fit, X, X)
    plain = pd.DataFrame(X.to_numpy(dtype=float, na_value=np.nan), columns=X.columns)
    model.set_params(random_state=0).fit(plain, plain)
    kinds = X, X.astype("Float32"), plain.astype(pd.SparseDtype(float, 0.0)), plain
    scores = [quietly(dp_score, model, plain, y, epsilon=2.0, random_state=0) for y in kinds]
    assert len(set(map(str, scores))) == 1


@each_reader
def test_a_cell_of_text_in_a_frame_of_sparse_columns_costs_its_own_record(name):
    X, y = table(name)
    plain = columns_as(X)
    plain.loc[BAD_ROW, "a"] = np.nan
    odd = plain.astype(pd.SparseDtype(float, 0.0))
    odd["a"] = plain["a"].astype(object).where(plain.index != BAD_ROW, "SECRET")
    fits = [
        quietly(build(name, main_form(name), nonfinite="zero").fit, X, y)
        for X in (plain, odd, plain.astype(pd.SparseDtype(float, 0.0)), plain.astype("Sparse"))
    ]
    for model in fits[1:]:
        assert_same(model, fits[0], "SECRET")
        # (also where others are scored by it)
        np.testing.assert_array_equal(model.predict(odd), fits[0].predict(plain))


def rows_with(values, odd, width=1):
    rows = [[value] * width for value in values.tolist()]
    rows[BAD_ROW] = odd
    return rows


def as_array(rows):
    """An array of objects, of one dimension, as numpy makes one if a row is odd."""
    out = np.empty(len(rows), dtype=object)
    out[:] = rows
    return out


@each_reader
def test_a_list_of_one_stands_for_what_it_holds_where_a_record_has_one_value(name):
    X, y = table(name)
    missing, weights = y.astype(object), np.tile([0.25, 1.0, 0.5], 20)
    missing[BAD_ROW], weights[BAD_ROW] = None, np.nan
    settings = {"nonfinite": "zero", "max_weight": 1.0}

    def fitted(targets, **given):
        return quietly(build(name, main_form(name), **settings).fit, X, targets, **given)

    expected = fitted(y, sample_weight=weights)
    for odd, pack in by_turns(name, (None, [], [0.5, 0.5], "SECRET"), (list, as_array)):
        model = fitted(y, sample_weight=pack(rows_with(weights, odd)))
        assert_same(model, expected, odd)
        if is_classifier(name):
            assert_same(fitted(pack(rows_with(y, odd))), fitted(missing), odd)


@each_reader
def test_an_entry_of_another_length_costs_its_own_record_alone(name):
    X, y = table(name)
    X = np.column_stack((X[:, 0], X[:, 0]))
    empty, missing = X.copy(), y.astype(object)
    empty[BAD_ROW], missing[BAD_ROW] = np.nan, None
    model = build(name, main_form(name), nonfinite="zero")
    expected = [quietly(clone(model).fit, *data) for data in ((empty, y), (X, missing))]
    found = set()
    odd_ones = (None, np.nan, "SECRET", 0.5, [], ["SECRET"], [0.1, 0.2, 0.3], {"SECRET": 1})
    odd_ones += (range(3), bytearray(b"123"), memoryview(b"123"), np.zeros(3), Hostile())
    for odd, pack in by_turns(name, odd_ones, (list, tuple, as_array)):
        tables = [(rows_with(X[:, 0], odd, 2), y)]
        if not is_classifier(name) and not isinstance(odd, float):
            numbers = [*y[:BAD_ROW].tolist(), odd, *y[BAD_ROW + 1 :].tolist()]
            tables += [(X, pack(numbers)), (X, pack(rows_with(y, odd)))]
        for data in tables:
            assert_same(quietly(clone(model).fit, *data), expected[data[0] is X], type(odd))
            strict = clone(model).set_params(nonfinite="raise")
            with nothing_is_released(), pytest.raises(ValueError, match=r"must hold|NaN") as caught:
                quietly(strict.fit, *data)
            found.add(str(caught.value))
    assert len(found) <= 4 - 2 * is_classifier(name)  # of X and y; in y a missing number is a gap


@each_reader
def test_the_other_mode_refuses_each_with_a_message_that_quotes_nothing(name):
    X, y = table(name)
    for cell, pack in by_turns(name, NO_NUMBERS):
        assert_refuses(
            build(name, main_form(name)),
            pack(with_cell(X, cell)),
            y,
            r"^(Input )?X .*(numb|NaN|inf)",
        )
    model = build(name, main_form(name)).fit(X, y)
    with pytest.raises(ValueError, match=r"X .*numbers"):
        model.predict(with_cell(X, 10**400))
    cells = NO_LABELS if is_classifier(name) else NO_NUMBERS
    for target, pack in by_turns(name, cells, TARGETS[:2]):
        targets = y.astype(object)
        targets[BAD_ROW] = target
        assert_refuses(
            build(name, main_form(name)),
            X,
            pack(targets),
            r"^(Input )?y (.*numb|.*NaN|.*inf|has l)",
        )


def assert_refuses(model, X, y, pattern):
    with nothing_is_released(), pytest.raises(ValueError, match=pattern) as caught:
        quietly(model.fit, X, y)
    assert "SECRET" not in str(caught.value)
    assert caught.value.__context__ is None or caught.value.__suppress_context__
