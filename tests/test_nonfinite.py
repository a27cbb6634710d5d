"""Invalid records as empty records: `nonfinite="zero"`, and fits that are interrupted."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.exceptions import NotFittedError
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import check_estimator
from support import solver_data, storage, stream

from sklearn_dpsco import (
    BudgetAccountant,
    DPLassoFW,
    DPLassoFWClassifier,
    PrivacyBudgetError,
    mechanisms,
)
from sklearn_dpsco._linear import Objective, make_rows
from sklearn_dpsco._records import as_labels, clear_rows, is_missing, label_codes, nonfinite_rows
from sklearn_dpsco.bounds import canonical
from sklearn_dpsco.exceptions import PrivacyLeakWarning
from sklearn_dpsco.losses import Logistic, Squared

BAD_VALUES = [np.nan, np.inf, -np.inf]
STORAGES = ["dense", "fortran", "csr", "csc"]
FORMS = ["selection", "gradient"]
SECRET = 12345.678
N = 60


def regressor(**parameters):
    defaults = {"bounds_X": (-1, 1), "bounds_y": (-2, 2), "nonfinite": "zero", "max_iter": 4}
    return DPLassoFW(**defaults | {"random_state": 0, "epsilon": 3.0} | parameters)


def classifier(**parameters):
    defaults = {"bounds_X": (-1, 1), "nonfinite": "zero", "max_iter": 4, "epsilon": 3.0}
    return DPLassoFWClassifier(**defaults | {"random_state": 0, "classes": ["a", "b"]} | parameters)


def table(labels=None, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.3, 1.3, (N, 4)) * (rng.uniform(size=(N, 4)) < 0.8)
    if labels is None:
        return X, rng.uniform(-2.5, 2.5, N)
    return X, np.asarray(labels)[rng.integers(len(labels), size=N)]


def by_hand(model, X, target, empty, kind="dense"):
    """The solver on rows whose `empty` ones are nonsense of scale 0."""
    plan = model._plan(*X.shape, 1)
    X = np.clip(X, -1, 1)
    X[empty] = 0.9
    scale = np.ones(N)
    scale[empty] = 0.0
    data = solver_data(storage(X, kind), target, scale=scale)
    return model._solver().solve(data, plan, stream(0).substream("model", 0))


def same(model, other, **tolerance):
    tolerance = tolerance or {"rtol": 1e-12, "atol": 1e-14}
    np.testing.assert_allclose(model.coef_, other.coef_, **tolerance)
    np.testing.assert_allclose(model.intercept_, other.intercept_, **tolerance)


# ------------------------------------------------- an invalid record is a record of scale 0


@pytest.mark.parametrize("bad", BAD_VALUES)
@pytest.mark.parametrize("kind", STORAGES)
@pytest.mark.parametrize("solver", FORMS)
def test_regression_without_the_invalid_records(solver, kind, bad):
    X, y = table()
    broken, y_broken = X.copy(), y.copy()
    broken[[3, 20], [1, 2]] = bad
    broken[41] = bad
    y_broken[[7, 20]] = bad
    model = regressor(solver=solver).fit(storage(broken, kind), y_broken)
    target = np.clip(y / 2, -1, 1)
    empty = [3, 7, 20, 41]
    target[empty] = -1.0  # must not matter
    expected = by_hand(model, X, target, empty, kind)
    np.testing.assert_allclose(model.coef_, 2 * expected.coef, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(model.intercept_, 2 * expected.intercept, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("solver", [*FORMS, "auto"])
@pytest.mark.parametrize("dtype", [object, str])
def test_classification_without_the_invalid_records(solver, dtype):
    X, y = table(["a", "b"])
    broken, labels = X.copy(), y.astype(object)
    broken[5, 0] = np.nan
    labels[[9, 10, 11]] = "c", "", "other"
    if dtype is object:
        labels[[12, 13, 14, 15]] = None, np.nan, 3, ("a",)
    model = classifier(solver=solver).fit(broken, labels.astype(dtype))
    empty = [5, 9, 10, 11, *([12, 13, 14, 15] if dtype is object else [])]
    target = np.where(y == "b", 1.0, -1.0)
    target[empty] = 1.0
    expected = by_hand(model, X, target, empty)
    np.testing.assert_allclose(model.coef_[0], expected.coef, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(model.intercept_[0], expected.intercept, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("solver", FORMS)
@pytest.mark.parametrize("classes", [["a", "b"], ["a", "b", "c"]])
def test_what_an_invalid_record_holds_does_not_matter(solver, classes):
    X, y = table(classes)
    fits = []
    for row, label in (([np.nan] * 4, "a"), ([1, np.inf, 0, -1], "b"), ([0.5] * 4, "zebra")):
        broken, labels = X.copy(), y.astype(object)
        broken[8], labels[8] = row, label
        fits.append(classifier(solver=solver, classes=classes).fit(broken, labels))
    same(fits[0], fits[1])
    same(fits[0], fits[2])


@pytest.mark.parametrize("kind", STORAGES)
@pytest.mark.parametrize("model", [regressor, classifier])
def test_valid_tables_give_the_same_model_in_both_modes(model, kind):
    X, y = table() if model is regressor else table(["a", "b"])
    X = storage(X, kind)
    same(model().fit(X, y), model(nonfinite="raise").fit(X, y), rtol=0, atol=0)


@pytest.mark.parametrize("kind", STORAGES)
@pytest.mark.parametrize("bounds", [(-1, 1), (-2, 2), (-50, 50)])
def test_the_data_of_the_caller_stay_as_they_are(kind, bounds):
    X, y = table()
    y[3] = np.nan  # row 3 of X is within its bounds: the scaling does not copy
    broken = storage(np.clip(X, -1, 1), kind)
    for read_only in (False, True):
        data = broken if isinstance(broken, np.ndarray) else broken.data
        data.flags.writeable = not read_only
        before = broken.copy()
        regressor(bounds_X=bounds).fit(broken, y)
        assert (broken != before).sum() == 0


def test_float32_and_whole_numbers():
    X, y = table()
    X32 = X.astype(np.float32)
    X32[4, 1] = np.nan
    X64 = X32.astype(np.float64)
    same(regressor().fit(X32, y), regressor().fit(X64, y), rtol=1e-5, atol=1e-6)
    same(
        regressor().fit(np.rint(X).astype(int), np.rint(y).astype(int)),
        regressor().fit(np.rint(X), np.rint(y)),
    )


def test_a_table_of_invalid_records_only():
    X = np.full((N, 4), np.nan)
    for model, y in ((regressor(), np.zeros(N)), (classifier(), np.full(N, "a"))):
        model.fit(X, y)
        assert np.all(np.isfinite(model.coef_))
        assert np.all(np.isfinite(model.intercept_))


@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csc_array, sparse.csr_matrix])
def test_repeated_entries_are_added_up_before_anything_is_looked_at(kind):
    X, y = table()
    parts = sparse.coo_array(X)
    row = np.concatenate((parts.row, [6, 6, 9, 9, 12, 12]))
    col = np.concatenate((parts.col, [1, 1, 2, 2, 3, 3]))
    # inf - inf = NaN; 1e308 + 1e308 = inf; and a sum that is fine
    values = np.concatenate((parts.data, [np.inf, -np.inf, 1e308, 1e308, 40.0, -40.0]))
    coo = sparse.coo_array((values, (row, col)), shape=X.shape)
    order = np.lexsort((coo.col, coo.row) if kind is not sparse.csc_array else (coo.row, coo.col))
    major = coo.row if kind is not sparse.csc_array else coo.col
    minor = coo.col if kind is not sparse.csc_array else coo.row
    size = X.shape[0] if kind is not sparse.csc_array else X.shape[1]
    indptr = np.searchsorted(major[order], np.arange(size + 1))
    repeated = kind((coo.data[order], minor[order], indptr), shape=X.shape)
    assert repeated.nnz == parts.nnz + 6
    single = X.copy()
    single[[6, 9]] = np.nan
    with np.errstate(over="ignore", invalid="ignore"):
        model = regressor().fit(repeated, y)
    same(model, regressor().fit(storage(single, repeated.format), y))
    with np.errstate(over="ignore", invalid="ignore"):
        found = np.flatnonzero(nonfinite_rows(canonical(repeated)))
    assert list(found) == [6, 9]


def statistics(monkeypatch, model, X, y):
    """What a fit hands to its mechanisms, each of which answers the same in every fit."""
    seen = []

    def release(self, value, stream):
        seen.append((self, np.array(value)))
        if isinstance(self, mechanisms.SelectVertex):
            return len(seen) % value.size
        return np.sin(np.arange(value.size) + len(seen))

    with monkeypatch.context() as patch:
        for kind in (mechanisms.Gaussian, mechanisms.SelectVertex):
            patch.setattr(kind, "release", release)
        model.fit(X, y)
    return seen


@pytest.mark.parametrize("relation", ["replace-one", "zero-out"])
@pytest.mark.parametrize("solver", FORMS)
@pytest.mark.parametrize("kind", ["dense", "csr"])
@pytest.mark.parametrize("make", [regressor, classifier])
def test_a_record_that_turns_invalid_moves_no_statistic_beyond_its_sensitivity(
    monkeypatch, make, kind, solver, relation
):
    model = make(solver=solver, relation=relation, max_iter=8, delta=1e-6)
    X, y = table() if make is regressor else table(["a", "b"])
    # the worst that a record can hold, against nothing
    X[5], y[5] = 1.0, 2.0 if make is regressor else "b"
    X[6] = -1.0
    largest = 0.0
    for i, where in ((5, "X"), (5, "y"), (6, "X")):
        other, y_other = X.copy(), y.astype(object) if make is classifier else y.copy()
        if where == "X":
            other[i, 1] = np.nan
        else:
            y_other[i] = np.nan
        fits = [
            statistics(monkeypatch, model, storage(table_, kind), targets)
            for table_, targets in ((X, y), (other, y_other))
        ]
        assert len(fits[0]) == len(fits[1]) > 8
        for (mechanism, one), (_, two) in zip(*fits, strict=True):
            change = two - one
            if isinstance(mechanism, mechanisms.SelectVertex):
                moved = np.ptp(change)
            else:
                moved = np.linalg.norm(change)
            assert moved <= mechanism.sensitivity
            largest = max(largest, moved / mechanism.sensitivity)
    # under zero-out this is the worst pair of tables, or nearly
    assert largest > (0.9 if relation == "zero-out" else 0.45)


# ------------------------------------------------------------- nothing leaves a row of scale 0


@pytest.mark.parametrize("kind", STORAGES)
@pytest.mark.parametrize("loss", [Squared(), Logistic()], ids=repr)
@pytest.mark.parametrize("centered", [False, True])
def test_rows_of_scale_zero_contribute_nothing_to_any_sum(kind, loss, centered):
    rng = np.random.default_rng(1)
    scale = np.ones(N)
    scale[[2, 30, 59]] = 0.0

    def sums(filling, y_filling):
        X, y = np.clip(table()[0], -1, 1), np.where(rng.uniform(size=N) < 2, 1.0, -1.0)
        X[scale == 0], y[scale == 0] = filling, y_filling
        rows = make_rows(storage(X, kind), True, scale)
        if centered:
            rows = rows.centered(np.array([0.3, -0.2, 0.1, 0.0]))
        objective = Objective(y, 0.2, loss, 0.7)
        bounded = rows.with_norm_bound(0.8)
        assert np.all(bounded.scale[scale == 0] == 0)
        out = [bounded.mean(), bounded.mean_gradient(np.linspace(-1, 1, 5), objective)]
        if not centered:
            from sklearn_dpsco._linear import Move

            product = rows.product(np.zeros(5))
            for move in (Move(1.0, 0, 0.5), Move(0.9, 4, 1.0)):
                out.append(rows.mean_gradient_after_move(product, move, objective))
        return np.concatenate(out)

    expected = sums(0.0, 1.0)
    np.testing.assert_array_equal(sums(1.0, -1.0), expected)
    np.testing.assert_array_equal(sums(-0.7, 1.0), expected)
    assert np.any(expected != 0)


@pytest.mark.parametrize("kind", STORAGES)
def test_cleared_rows_are_zeros_also_where_they_held_nan(kind):
    X = np.clip(table()[0], -1, 1)
    X[7, 2], X[8, 0] = np.nan, np.inf
    stored = storage(X, kind)
    flags = nonfinite_rows(stored)
    assert list(np.flatnonzero(flags)) == [7, 8]
    flags[20] = True
    dense = np.where(flags[:, None], 0.0, X)
    for original, shared in ((stored, True), (stored.copy(), False)):
        cleared = clear_rows(stored.copy() if not shared else stored, flags, original)
        found = cleared if isinstance(cleared, np.ndarray) else cleared.toarray()
        np.testing.assert_array_equal(found, dense)
    assert np.isnan(stored[7, 2])
    assert clear_rows(stored, np.zeros(N, dtype=bool), stored) is stored


def test_rows_in_many_blocks(monkeypatch):
    from sklearn_dpsco import _records

    monkeypatch.setattr(_records, "_BLOCK_BYTES", 100)
    monkeypatch.setattr(_records, "_BLOCK_VALUES", 7)
    for kind in STORAGES:
        test_cleared_rows_are_zeros_also_where_they_held_nan(kind)


def test_finite_values_whose_sum_overflows_are_valid():
    X = np.full((4, 3), 1e308)
    assert not nonfinite_rows(X).any()


@pytest.mark.parametrize("kind", STORAGES)
@pytest.mark.parametrize("bounds", [(-1, 1), (-3, 3)])
def test_no_warning_tells_of_a_value(kind, bounds):
    X, y = table()
    signaling = np.array([0x7FF0000000000001], dtype=np.uint64).view(np.float64)[0]
    fits = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for value in (np.nan, signaling):
            features, target = X.copy(), y.copy()
            features[5, 1] = target[7] = value
            model = regressor(bounds_X=bounds, nonfinite="zero")
            fits.append(model.fit(storage(features, kind), target))
        if np.finfo(np.longdouble).max > np.finfo(np.float64).max and kind == "dense":
            features, target = X.astype(np.longdouble), y.astype(np.longdouble)
            features[5, 1] = target[7] = np.finfo(np.longdouble).max
            fits.append(regressor(bounds_X=bounds).fit(features, target))
    for fit in fits[1:]:
        same(fit, fits[0])


# --------------------------------------------------------------------------------- the labels


def test_codes_of_labels():
    text = np.array(["b", "zz", "a", ""])
    np.testing.assert_array_equal(label_codes(text, np.array(["a", "b"])), [1, -1, 0, -1])
    numbers = np.array([2.0, np.nan, -1.0, 5.0, 1.5, np.inf])
    np.testing.assert_array_equal(label_codes(numbers, np.array([-1, 2])), [1, -1, 0, -1, -1, -1])
    mixed = np.array([1, "1", None, np.nan, True, 1.0, [1], pd.NA], dtype=object)
    codes = label_codes(mixed, np.array([0, 1]))
    np.testing.assert_array_equal(codes, [1, -1, -1, -1, 1, 1, -1, -1])
    np.testing.assert_array_equal(label_codes(np.array([0, 1]), np.array(["0", "1"])), [-1, -1])
    for first in (b"a", b"\xff"):  # bytes are no text, whatever they hold
        labels = np.array([first, b"b"])
        np.testing.assert_array_equal(label_codes(labels, np.array(["a", "b"])), [-1, -1])


def test_missing_labels():
    values = [None, np.nan, pd.NA, pd.NaT, np.inf, "nan", "", 0, False]
    found = is_missing(np.array(values, dtype=object))
    np.testing.assert_array_equal(found, [True] * 5 + [False] * 4)
    assert list(is_missing(np.array([0.0, np.nan, -np.inf]))) == [False, True, True]
    assert list(is_missing(np.array(["2020", "NaT"], dtype="datetime64[Y]"))) == [False, True]
    assert not is_missing(np.array(["a", "nan"])).any()


def test_one_label_of_another_kind_does_not_turn_the_others_into_text():
    X, _ = table()
    y = [0, 1] * (N // 2)
    other = list(y)
    other[4] = "text"
    model = classifier(classes=[0, 1]).fit(X, other)
    other[4] = None
    same(model, classifier(classes=[0, 1]).fit(X, other))
    assert as_labels(other).dtype == object
    # which is what numpy would have done
    assert np.asarray([0, 1, "text"]).dtype.kind == "U"


@pytest.mark.parametrize(
    "labels",
    [
        pd.Series(["a", None, "b"] * 20),
        pd.Series(["a", None, "b"] * 20, dtype=object),
        pd.Series(["a", pd.NA, "b"] * 20, dtype="string"),
        pd.Series(pd.Categorical(["a", None, "b"] * 20)),
        ["a", None, "b"] * 20,
        np.array(["a", np.nan, "b"] * 20, dtype=object),
        np.array(["a", "?", "b"] * 20),
    ],
    ids=["series", "object", "string", "categorical", "list", "array", "text"],
)
def test_missing_labels_in_all_their_forms(labels):
    X, _ = table()
    expected = classifier().fit(X, ["a", "c", "b"] * 20)
    same(classifier().fit(X, labels), expected)


def test_missing_values_in_data_frames():
    X, y = table()
    whole = np.rint(X)
    broken = whole.copy()
    broken[5, 1] = np.nan
    y_broken = y.copy()
    y_broken[9] = np.nan
    expected = regressor().fit(broken, y_broken)
    frame = pd.DataFrame(whole, columns=list("pqrs")).astype("Int64")
    frame.iloc[5, 1] = pd.NA
    target = pd.Series(y).astype("Float64")
    target.iloc[9] = pd.NA
    same(regressor().fit(frame, target), expected)
    objects = pd.DataFrame(broken, columns=list("pqrs")).astype(object)
    objects.iloc[5, 1] = None
    as_list = [None if np.isnan(value) else value for value in y_broken]
    model = regressor(bounds_X=dict.fromkeys("pqrs", (-1, 1))).fit(objects, as_list)
    same(model, expected)
    assert list(model.feature_names_in_) == list("pqrs")


def test_classes_from_data_leave_out_missing_labels():
    X, y = table(["a", "b"])
    labels = y.astype(object)
    labels[[1, 2]] = None, np.nan
    with pytest.warns(PrivacyLeakWarning):
        model = classifier(classes=None).fit(X, labels)
    assert list(model.classes_) == ["a", "b"]
    same(model, classifier().fit(X, labels))
    numbers = np.where(y == "b", 1.0, 0.0)
    numbers[1:3] = np.nan, np.inf
    with pytest.warns(PrivacyLeakWarning):
        model = classifier(classes=None).fit(X, numbers)
    assert list(model.classes_) == [0, 1]


# ----------------------------------------------------------------------------- the contract


@pytest.mark.parametrize("model", [regressor, classifier])
def test_bad_modes(model):
    for bad in ("drop", None, True, 0, np.nan):
        with pytest.raises(ValueError, match="nonfinite"):
            model(nonfinite=bad).fit(*table())
        with pytest.raises(ValueError, match="nonfinite"):
            model(nonfinite=bad).plan(100, 3)


@pytest.mark.parametrize("model", [regressor, classifier])
def test_nothing_shows(model):
    X, y = table() if model is regressor else table(["a", "b"])
    X[3, 1], X[5] = np.nan, np.inf
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted = model().fit(X, y)
    assert fitted.plan_ == model().plan(*X.shape)
    assert get_tags(fitted).input_tags.allow_nan
    assert not get_tags(model(nonfinite="raise")).input_tags.allow_nan
    with pytest.raises(ValueError, match="contains"):
        model(nonfinite="raise").fit(X, y)
    with pytest.raises(ValueError, match="contains"):
        fitted.set_params(nonfinite="raise").predict(X)


@pytest.mark.parametrize("kind", STORAGES)
@pytest.mark.parametrize("bounds", [(-1, 1), (0, 3), ([-1, 2, 0, -3], [1, 4, 2, 3])])
def test_predictions_of_invalid_rows(kind, bounds):
    if np.ndim(bounds[0]) and kind.startswith("cs"):
        pytest.skip("sparse X cannot be shifted")
    X, y = table()
    model = regressor(bounds_X=bounds, epsilon=1e4).fit(storage(X, kind), y)
    broken = X.copy()
    broken[3, 1], broken[7] = np.nan, -np.inf
    origin = np.array([[0.0, 3.0 if np.ndim(bounds[0]) else 0.0, 0.0, 0.0]])
    found, expected = model.predict(storage(broken, kind)), model.predict(X)
    expected[[3, 7]] = model.predict(origin)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)
    assert np.isnan(broken[3, 1])


@pytest.mark.parametrize(
    ("model", "impossible"),
    [
        # it wants an error where the target is infinite
        (DPLassoFW(nonfinite="zero"), {"check_supervised_y_no_nan"}),
        (DPLassoFWClassifier(nonfinite="zero"), set()),
    ],
    ids=["regressor", "classifier"],
)
def test_scikit_learn_checks_of_an_estimator_that_takes_nan(model, impossible):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(model, on_skip=None, on_fail=None)
    assert {r["check_name"] for r in results if r["status"] == "failed"} == impossible
    assert "check_estimators_nan_inf" not in {r["check_name"] for r in results}


@pytest.mark.parametrize("mode", ["raise", "zero"])
def test_errors_that_remain_quote_no_data(mode):
    X, y = np.full((20, 3), SECRET), np.full(20, SECRET)
    text = np.full(20, "secret")
    cases = [
        (regressor, X[:1], y[:1]),
        (regressor, X, y[:-1]),
        (regressor, X, None),
        (regressor, X, text),
        (regressor, X, text.astype(object)),
        (regressor, X, np.column_stack((y, y))),
        (regressor, X[:, 0], y),
        (regressor, X.astype(complex), y),
        (regressor, X, y.astype(complex)),
        (regressor, np.full((20, 3), "secret"), y),
        (regressor, sparse.csr_array(X), sparse.csr_array(y[:, None])),
        (classifier, X, None),
        (classifier, X, y),
        (classifier, X, text[:-1]),
        (classifier, X, np.column_stack((text, text))),
        (classifier, X, [["secret", "a"]] * 20),
    ]
    for model, X_bad, y_bad in cases:
        with pytest.raises((ValueError, TypeError)) as caught:
            model(nonfinite=mode, bounds_X=(0, 1e5)).fit(X_bad, y_bad)
        assert not any(word in str(caught.value) for word in ("secret", "12345")), caught.value


def test_a_charge_covers_invalid_records():
    X, y = table()
    X[2], y[3] = np.nan, np.inf
    accountant = BudgetAccountant(3.0)
    regressor(accountant=accountant, epsilon=2.0).fit(X, y)
    assert accountant.total_spent() == pytest.approx(2.0)


# --------------------------------------------------------------------------- interrupted fits


class Interrupted(mechanisms.Gaussian):
    def release(self, *args):
        raise KeyboardInterrupt


@pytest.mark.parametrize("model", [regressor, classifier])
@pytest.mark.parametrize("was_fitted", [False, True])
def test_an_interrupted_fit_is_charged_and_leaves_no_model(monkeypatch, model, was_fitted):
    X, y = table() if model is regressor else table(["a", "b"])
    accountant = BudgetAccountant(10.0)
    estimator = model(accountant=accountant, solver="gradient", epsilon=1.0)
    if was_fitted:
        estimator.fit(X, y)
    before = len(accountant.ledger)
    monkeypatch.setattr(mechanisms.Gaussian, "release", Interrupted.release)
    with pytest.raises(KeyboardInterrupt):
        estimator.fit(X, y)
    assert len(accountant.ledger) == before + 1
    with pytest.raises(NotFittedError):
        estimator.predict(X)
    for name in ("coef_", "intercept_", "plan_", "guarantee_", "n_iter_"):
        assert not hasattr(estimator, name)
    monkeypatch.undo()
    assert estimator.fit(X, y).predict(X).shape == (N,)


@pytest.mark.parametrize("model", [regressor, classifier])
def test_a_fit_that_is_refused_leaves_the_earlier_model(model):
    X, y = table() if model is regressor else table(["a", "b"])
    accountant = BudgetAccountant(1.0)
    estimator = model(accountant=accountant, epsilon=0.9).fit(X, y)
    before, spent = dict(vars(estimator)), accountant.total_spent()
    with pytest.raises(PrivacyBudgetError):
        estimator.fit(X[:, :2], y)
    with pytest.raises(ValueError, match="inconsistent"):
        estimator.fit(X[:, :2], y[:-1])
    assert vars(estimator) == before
    assert accountant.total_spent() == spent
    assert estimator.predict(X).shape == (N,)


def test_an_estimator_that_was_never_fitted():
    with pytest.raises(NotFittedError):
        regressor().predict(table()[0])
