"""Invalid records as empty records, `nonfinite="zero"`: they contribute nothing, and nothing shows.

What a fit releases is compared with the answers of its mechanisms frozen, see `statistics`.
"""

import functools
import itertools
import warnings

import numpy as np
import pandas as pd
import pytest
from registry import (
    STORAGES,
    build,
    changes,
    columns_as,
    each_descending_form,
    each_form,
    each_form_of_readers,
    each_form_of_sums,
    each_reader,
    each_reader_of_labels,
    entry,
    is_classifier,
    known,
    main_form,
    outcome,
    parameters_of,
    releases_of,
    statistics,
    table,
    ways_to_store,
)
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.pipeline import make_pipeline
from sklearn.utils import get_tags
from support import half_is_enough, rest_is_slow

from sklearn_dpsco import (
    DPGammaRegressor,
    DPGridSearchCV,
    DPLinearRegression,
    DPLogisticRegression,
    DPMirrorRegressor,
    DPPoissonRegressor,
    DPScaler,
    PrivacyLeakWarning,
    PrivateMoments,
    PrivateVocabulary,
    PublicEncoder,
    dp_score,
    mechanisms,
    person_periods,
    private_bounds,
)
from sklearn_dpsco.losses import Squared, SquaredHinge
from sklearn_dpsco.privacy.budget import RELATIONS
from sklearn_dpsco.solvers import NoisyMD

BAD_VALUES = (np.nan, np.inf, -np.inf)
CORNER = 5  # of `extreme_table`, where a record is as far out as it may be


def model_of(name, form=None, **parameters):
    return build(name, form, **{"nonfinite": "zero"} | parameters)


def same(model, other, case="", *, rtol=1e-9, atol=1e-12):
    np.testing.assert_allclose(
        outcome(model), outcome(other), rtol=rtol, atol=atol, err_msg=str(case)
    )


def as_objects(name, y):
    return y.astype(object) if is_classifier(name) else y.copy()


def extreme_table(name):
    """A table with two records in opposite corners."""
    X, y = table(name)
    y = as_objects(name, y)
    X[CORNER], X[CORNER + 1] = 1.0, -1.0
    y[CORNER : CORNER + 2] = ("yes", "no") if is_classifier(name) else (1.0, -1.0)
    return X, y


def invalid_at(X, rows):
    """A copy whose records at `rows` are invalid."""
    out = X.copy()
    out[rows] = np.nan
    return out


# ------------------------------------------------------------- what an invalid record does


@each_form_of_readers
def test_what_an_invalid_record_holds_does_not_matter(name, form):
    X, y = table(name)
    y = as_objects(name, y)
    no_target = ["zebra", None, np.nan, 3, ("a",), b"yes"] if is_classifier(name) else BAD_VALUES
    for kind, settings in ways_to_store(name, form):
        storage, fits = STORAGES[kind], {}
        for row in ([np.nan] * 3, [1, np.inf, -1], [0, -np.inf, 1e300]):
            other = X.copy()
            other[8] = row
            fits[str(row)] = model_of(name, form, **settings).fit(storage(other), y)
        for target in no_target if kind == "C" else no_target[:1]:
            other = y.copy()
            other[8] = target
            fits[repr(target)] = model_of(name, form, **settings).fit(storage(X), other)
        (_, first), *others = fits.items()
        for case, fit in others:
            same(fit, first, (form, kind, case))
        # with an epsilon by which no centre is below its noise
        clear = settings | {"epsilon": 50.0}
        other = X.copy()
        other[8] = np.nan
        valid = model_of(name, form, **clear).fit(storage(X), y)
        invalid = model_of(name, form, **clear).fit(storage(other), y)
        assert np.any(outcome(valid) != outcome(invalid)), (form, kind)


@each_form_of_sums
def test_an_invalid_record_adds_nothing_to_what_is_released(name, form):
    # with all records of a half invalid, the sums of both halves make up those of the table
    X, y = extreme_table(name)
    half = np.arange(len(X)) % 2 == 0
    model = model_of(name, form)
    whole, even, odd, none = (
        statistics(model, invalid_at(X, rows), y)
        for rows in (~np.ones(60, dtype=bool), half, ~half, np.ones(60, dtype=bool))
    )
    for (mechanism, all_of_it), *parts in zip(whole, even, odd, none, strict=True):
        (_, first), (_, second), (_, empty) = parts
        size = np.abs(all_of_it).max() + np.abs(first).max()
        if not isinstance(mechanism, mechanisms.SelectVertex):
            assert np.all(empty == 0), (form, mechanism)
        error = np.abs(first + second - empty - all_of_it).max()
        assert error <= 1e-9 * size, (form, mechanism)
    assert any(np.any(value != 0) for _, value in whole)


@each_form
@pytest.mark.parametrize("relation", RELATIONS)
def test_no_record_moves_a_release_beyond_its_sensitivity(name, form, relation):
    X, y = extreme_table(name)
    # the worst that a record can hold, against nothing, or under replace-one against another
    others = {
        "invalid features": (np.nan, y[CORNER]),
        "invalid target": (1.0, np.nan),
        "beyond all bounds": (1e300, "yes" if is_classifier(name) else 1e300),
        "mirrored": (-1.0, y[CORNER]),
        "mirrored beyond": (-1e300, "no" if is_classifier(name) else -1e300),
        "other target": (1.0, y[CORNER + 1]),
        "other target beyond": (1.0, "no" if is_classifier(name) else -1e300),
    }
    if relation == "zero-out":
        others = {case: what for case, what in others.items() if case.startswith("invalid")}
    worst = 0.0
    for kind in ("C", "csr"):
        settings = dict(entry(name).sparse) if kind == "csr" else {}
        if "scale_X" in parameters_of(name):
            settings["epsilon"] = 2.0  # enough for useful scales
        model = model_of(name, form, relation=relation, **settings)
        storage = STORAGES[kind]
        before = statistics(model, storage(X), y)
        for case, (row, target) in others.items():
            X_other, y_other = X.copy(), y.copy()
            X_other[CORNER], y_other[CORNER] = row, target
            after = statistics(model, storage(X_other), y_other)
            for mechanism, ratio in changes(before, after).items():
                assert ratio <= 1 + 1e-12, (kind, case, mechanism)
                worst = max(worst, ratio)
    # among these are the worst pairs of tables, or nearly
    sharpest = "tree" if name.startswith("DPFTRL") else main_form(name)
    assert worst > (0.8 if form == sharpest else 0.1)


def test_an_invalid_record_of_a_scaler_or_of_bounds_is_empty():
    settings = {"delta": 0.0, "relation": "zero-out", "nonfinite": "zero", "random_state": 0}
    levels = np.repeat([-5.0, 10.0, 50.0], (5, 2, 4))  # about the medians, and about 0
    largest = {}
    for sign, own in itertools.product((1, -1), (-1e3, 1e3)):
        pair = [np.append(sign * levels, last)[:, None] for last in (own, np.nan)]
        for call in (
            lambda X: DPScaler(epsilon=1e6, **settings).fit(X),
            lambda X: private_bounds(X, quantiles=(0.5, 0.51), epsilon=1e4, **settings),
        ):
            found = changes(*(releases_of(functools.partial(call, X)) for X in pair))
            for mechanism, ratio in found.items():
                largest[mechanism] = max(largest.get(mechanism, 0.0), ratio)
    assert len(largest) == 3  # scales, centres and ends
    assert 0.5 < min(largest.values()) <= max(largest.values()) <= 1, largest


def test_an_invalid_record_of_moments_is_empty():
    settings = {"relation": "zero-out", "nonfinite": "zero", "random_state": 0, "bounds_X": (-9, 9)}
    rest = np.random.default_rng(0).normal(size=(20, 2))
    found = {}
    for own, invalid in itertools.product((-9.0, 9.0), (np.nan, np.inf)):
        pair = [np.vstack((rest, last)) for last in ([own, 9.0], [invalid, 9.0])]
        for mechanism, ratio in changes(
            *(
                releases_of(functools.partial(PrivateMoments(epsilon=1e4, **settings).fit, X))
                for X in pair
            )
        ).items():
            found[mechanism] = max(found.get(mechanism, 0.0), ratio)
    assert len(found) == 8
    assert max(found.values()) <= 1, found
    # lengths of whitened rows, which these answers make very long, are all beyond the grid
    assert sorted(found.values())[1] > 0.5, found


@each_form_of_readers
def test_valid_tables_give_the_same_model_in_both_modes(name, form):
    """But for the release of how many records are valid, which weights bring as well."""
    X, y = table(name)
    for kind, settings in ways_to_store(name, form):
        storage = STORAGES[kind]
        zero, refuse = (
            build(name, form, nonfinite=mode, **settings).fit(
                storage(2 * X), y, sample_weight=np.ones(len(y))
            )
            for mode in ("zero", "raise")
        )
        np.testing.assert_array_equal(outcome(zero), outcome(refuse), err_msg=(form, kind))
        np.testing.assert_array_equal(zero.predict(storage(X)), refuse.predict(storage(X)))


@each_form
def test_a_table_of_invalid_records_only(name, form):
    X, y = table(name)
    no_features = np.full(X.shape, np.nan)
    no_target = np.full(60, "zebra" if is_classifier(name) else np.inf)
    models = [model_of(name, form).fit(no_features, y), model_of(name, form).fit(X, no_target)]
    same(*models, form)
    assert np.all(np.isfinite(outcome(models[0])))
    assert len(np.unique(models[0].predict(no_features))) == 1


@each_reader
def test_repeated_entries_of_sparse_data_are_added_up_first(name):
    X, y = table(name)
    parts = sparse.coo_array(X)
    # inf - inf = NaN; 1e308 + 1e308 = inf; and a sum that is fine
    row = np.concatenate((parts.row, [6, 6, 9, 9, 12, 12]))
    col = np.concatenate((parts.col, [1, 1, 2, 2, 0, 0]))
    values = np.concatenate((parts.data, [np.inf, -np.inf, 1e308, 1e308, 40.0, -40.0]))
    single = X.copy()
    single[[6, 9]] = np.nan
    for kind, (major, minor), size in (
        (sparse.csr_array, (row, col), 60),
        (sparse.csc_array, (col, row), 3),
    ):
        order = np.lexsort((minor, major))
        indptr = np.searchsorted(major[order], np.arange(size + 1))
        repeated = kind((values[order], minor[order], indptr), shape=X.shape)
        assert repeated.nnz == parts.nnz + 6
        model, expected = (model_of(name, **entry(name).sparse) for _ in range(2))
        with np.errstate(over="ignore", invalid="ignore"):
            same(model.fit(repeated, y), expected.fit(kind(single), y))
            assert repeated.nnz == parts.nnz + 6


# --------------------------------------------------------------------------- what shows


@each_reader
def test_nothing_shows_of_an_invalid_record(name):
    X, y = table(name)
    signaling = np.array([0x7FF0000000000001], dtype=np.uint64).view(np.float64)[0]
    extended = np.finfo(np.longdouble).max  # that is not representable
    targets = (None, "zebra") if is_classifier(name) else (np.nan, signaling)
    wide = known(name, {"bounds_X": (-3, 3), "bounds_y": (-3, 3)})
    for form, settings in ((None, wide), (main_form(name), {}), (main_form(name), wide)):
        fits = []
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", ".*too small to learn from")
            for value, target in zip((np.nan, signaling), targets, strict=True):
                features, labels = X.copy(), as_objects(name, y)
                features[5, 1], labels[7] = value, target
                model = model_of(name, form, **settings).fit(features, labels)
                assert model.predict(features).shape == (60,)
                fits.append(model)
                features, labels = X.astype(np.longdouble), as_objects(name, y)
                features[5, 1], labels[7] = extended, target
                fits.append(model_of(name, form, **settings).fit(features, labels))
        valid = model_of(name, form, **settings).fit(X, y)
        for fit in fits:
            same(fit, fits[0], form)
            # neither in what is public
            assert fit.plan_ == valid.plan_ == model_of(name, form, **settings).plan(60, 3)
            assert fit.guarantee_ == valid.guarantee_
            assert set(vars(fit)) == set(vars(valid))
            assert fit.n_iter_ == valid.n_iter_


@each_reader
def test_the_other_mode_refuses_in_fit_and_predict(name):
    X, y = table(name)
    broken = X.copy()
    broken[3, 1] = np.nan
    model = model_of(name).fit(broken, y)
    model.predict(broken)
    assert get_tags(model).input_tags.allow_nan
    model.set_params(nonfinite="raise")
    assert not get_tags(model).input_tags.allow_nan
    with pytest.raises(ValueError, match="contains NaN"):
        model.predict(broken)
    with pytest.raises(ValueError, match="contains NaN"):
        build(name).fit(broken, y)


@each_reader
def test_predictions_take_gaps_for_released_centres_or_the_origin(name):
    X, y = table(name)
    X = 2 * X
    for settings, where in entry(name).origins:
        bounds = settings.get("bounds_X", (-1, 1))
        for kind, storage in STORAGES.items():
            if kind.startswith("cs"):
                if settings.keys() & known(name, {"bounds_X": 0, "center_X": 0}):
                    continue  # sparse X cannot be shifted
                settings = settings | entry(name).sparse
            model = model_of(name, **{"epsilon": 1e4} | settings).fit(storage(X), y)
            predict = model.decision_function if is_classifier(name) else model.predict
            broken = X.copy()
            broken[3, 1], broken[7] = np.nan, -np.inf
            found, expected = predict(storage(broken)), predict(X)
            origin = getattr(model, where) if isinstance(where, str) else np.array(where)
            usual, frame = model._usual_row, getattr(model, "_scaled_model", None)
            center = getattr(getattr(frame, "frame", None), "center", None)
            if center is None or "bounds_X" not in entry(name).columns:  # else their own
                np.testing.assert_allclose(usual, origin)
            elif name in ("DPLinearRegression", "DPLogisticRegression"):
                means = np.mean(np.clip(X, *np.reshape(bounds, (2, -1))), axis=0)
                np.testing.assert_allclose(usual, means, atol=0.1)
            gaps = np.array([[X[3, 0], usual[1], *X[3, 2:]], usual])
            expected[[3, 7]] = predict(gaps)
            np.testing.assert_allclose(
                found, expected, rtol=1e-9, atol=1e-12, err_msg=f"{settings} {kind}"
            )
            assert np.isnan(broken[3, 1])
            assert np.any(found != found[3])


LAYOUTS = {
    "every second row": lambda X: np.repeat(X, 2, axis=0)[::2],
    "of Fortran": lambda X: np.asfortranarray(np.repeat(X, 2, axis=0))[::2],
    "every second column": lambda X: np.repeat(X, 2, axis=1)[:, ::2],
    "backwards": lambda X: X[::-1].copy()[::-1],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("nonfinite", ["raise", "zero"])
def test_predictions_of_other_rows_keep_their_bits(layout, nonfinite):
    # a score that counts rows on one side of a boundary would otherwise move by many of them
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (400, 24))
    model = DPLogisticRegression(
        bounds_X=(-1, 1), classes=[False, True], nonfinite=nonfinite, random_state=0
    ).fit(X, X[:, 0] > 0)
    model.coef_ = np.tile(rng.uniform(2, 3, 12), (1, 2))
    X[-40:] = 1e308 - 1e305 * np.abs(X[-40:])  # whose products overflow, and not their sum
    X[-40:, 12:] *= -1
    changed = X.copy()
    changed[-40] = 0.0 if nonfinite == "raise" else np.nan
    found, expected = (model.decision_function(LAYOUTS[layout](table)) for table in (changed, X))
    others = np.arange(400) != 360
    np.testing.assert_array_equal(found[others], expected[others])


def test_long_doubles_beyond_all_floats_show_nowhere():
    rng = np.random.default_rng(0)
    X, rates = rng.uniform(-1, 1, (60, 2)), {"bounds_X": (-1, 1), "bounds_y": (0, 9)}
    many = np.ones(60, dtype=np.longdouble)
    many[3] = np.finfo(np.longdouble).max
    counts = DPPoissonRegressor(bounds_exposure=(0.5, 2), nonfinite="zero", **rates)
    search = DPGridSearchCV(counts, {"max_weight": [1.0, 2.0]}, epsilon=1e4, scoring=None)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        warnings.simplefilter("ignore", UserWarning)
        for model in (counts, search):
            model.fit(X, np.ones(60), exposure=many)
            model.fit(X, many, exposure=np.ones(60))
        table = pd.DataFrame({"duration": many, "event": many < 0})
        assert PublicEncoder({"duration": (0, 2)}, extra="drop").transform(table).shape == (60, 1)
        person_periods(table, "duration", "event", periods=[0, 1, 2])


# ------------------------------------------------------------- the forms of missing values


@each_reader
def test_missing_values_in_data_frames(name):
    X, y = table(name)
    whole = np.rint(2 * X)
    broken = whole.copy()
    broken[5, 1] = np.nan
    expected = model_of(name).fit(broken, y)
    frame = columns_as(whole).astype("Int64")
    frame.iloc[5, 1] = pd.NA
    objects = columns_as(broken).astype(object)
    objects.iloc[5, 1] = None
    for case in (frame, objects, columns_as(broken), broken.astype(np.float32)):
        same(model_of(name).fit(case, y), expected, type(case), rtol=1e-7)
    if is_classifier(name):
        return
    y_broken = y.copy()
    y_broken[9] = np.nan
    expected = model_of(name).fit(broken, y_broken)
    series = pd.Series(y).astype("Float64")
    series.iloc[9] = pd.NA
    as_list = [None if np.isnan(value) else value for value in y_broken]
    for target in (series, as_list, pd.Series(y_broken)):
        same(model_of(name).fit(broken, target), expected, type(target))


@each_reader_of_labels
def test_missing_and_undeclared_labels_in_all_their_forms(name):
    (X, _), form = table(name), main_form(name)
    expected = model_of(name, form).fit(X, ["no", "c", "yes"] * 20)
    some = ["no", None, "yes"] * 20
    for labels in (
        pd.Series(some),
        pd.Series(some, dtype=object),
        pd.Series(["no", pd.NA, "yes"] * 20, dtype="string"),
        pd.Series(pd.Categorical(some)),
        some,
        np.array(["no", np.nan, "yes"] * 20, dtype=object),
        np.array(["no", "?", "yes"] * 20),
        np.array(["no", 3, "yes"] * 20, dtype=object),
    ):
        same(model_of(name, form).fit(X, labels), expected, repr(labels)[:60])
    # one label of another kind does not turn the others into text, as numpy would
    numbers = [0, 1] * 30
    fits = []
    for other in ("text", None, 7, 0.5):
        labels = list(numbers)
        labels[4] = other
        fits.append(model_of(name, form, classes=[0, 1]).fit(X, labels))
        same(fits[-1], fits[0], other)
    # nor does the text that readers of files make of a whole column
    for spelled in (
        ("0", "1"),
        ("0.0", "1.0"),
        ("False", "True"),
        ("FALSE", "TRUE"),
        ("false", " true"),
    ):
        labels = pd.Series([spelled[number] for number in numbers])
        labels[4] = "text"
        same(model_of(name, form, classes=[0, 1]).fit(X, labels), fits[0], labels[0])
    whole = model_of(name, form, classes=[0, 1]).fit(X, numbers)
    assert np.any(outcome(fits[0]) != outcome(whole))


@each_reader_of_labels
def test_classes_that_are_taken_from_the_data_leave_out_missing_labels(name):
    X, y = table(name)
    labels = y.astype(object)
    labels[[1, 2]] = None, np.nan
    with pytest.warns(PrivacyLeakWarning):
        model = model_of(name, classes=None).fit(X, labels)
    assert list(model.classes_) == ["no", "yes"]
    same(model, model_of(name).fit(X, labels))
    numbers = np.where(y == "yes", 1.0, 0.0)
    numbers[1:3] = np.nan, np.inf
    with pytest.warns(PrivacyLeakWarning):
        assert list(model_of(name, classes=None).fit(X, numbers).classes_) == [0, 1]


# ----------------------------------------------------------------------- a user's own loss


def loss_with(name, value):
    """A user's loss with that derivative for about half of the targets, whatever their units."""

    class Own(SquaredHinge if is_classifier(name) else Squared):
        def derivative(self, z, y):
            slope = np.where(np.sin(1e6 * y) > 0, value, z - y)
            return np.where(np.sin(1e5 * y) > 0.9, -np.inf, slope)

    return Own()


@each_descending_form
def test_a_derivative_that_is_not_a_number_counts_as_zero_and_shows_nowhere(name, form):
    if "loss" not in parameters_of(name) or form == "learned-units":
        return  # it has that of its name, or takes no other than it knows
    X, y = table(name)
    for kind, settings in ways_to_store(name, form):
        fits = []
        for value in (np.nan, 0.0, 1.0):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                loss = loss_with(name, value)
                model = build(name, form, **settings, loss=loss, epsilon=20.0)
                fits.append(model.fit(STORAGES[kind](X), y))
        same(fits[0], fits[1], (form, kind))
        assert not np.array_equal(outcome(fits[0]), outcome(fits[2])), (form, kind)
        assert np.all(np.isfinite(outcome(fits[0])))


# ------------------------------------------- several releases that read the same records

ZERO_OUT = {"epsilon": 3.0, "delta": 1e-6, "relation": "zero-out", "random_state": 0}
EMPTIED, AT = {**ZERO_OUT, "nonfinite": "zero"}, 7  # where the two tables differ
COUNTS = {"bounds_X": (-1, 1), "bounds_y": (0, 9), "nonfinite": "zero"}


def search_of(model, **grid):
    return lambda X, y: DPGridSearchCV(model, grid, **ZERO_OUT).fit(X, y)


def scaled_and_fitted(X, y):
    last = DPLogisticRegression(bounds_X=(-4, 4), classes=[-1, 1], **EMPTIED)
    make_pipeline(DPScaler(**EMPTIED), last).fit(X, np.sign(y))


def read_and_fitted(X, y):
    texts = np.where(X[:, 0] > 0, "some words", "a word")
    texts = np.where(np.isnan(X[:, 0]), None, texts.astype(object)).tolist()
    last = DPLogisticRegression(bounds_X=(0, 1), classes=[-1, 1], **EMPTIED)
    make_pipeline(PrivateVocabulary(**EMPTIED), last).fit(texts, np.sign(y))


@functools.cache
def fitted_to_score():
    """A model of a strong slope, whose prediction of an invalid row is 0."""
    X = np.random.default_rng(0).uniform(-1, 1, (800, 2))
    model = DPLinearRegression(bounds_X=(-1, 1), bounds_y=(-1, 1), nonfinite="zero", delta=1e-6)
    return make_pipeline(model.set_params(epsilon=1e6, random_state=0)).fit(X, X[:, 0])


def scored(scoring, delta=1e-6):
    facts = {**ZERO_OUT, "delta": delta, "scoring": scoring, "max_error": 1.0}
    return lambda X, y: dp_score(fitted_to_score(), X, y, **facts)


class Rates(BaseEstimator):
    bounds_y, bounds_exposure = (-1, 1), (0, 1)

    def predict(self, X):
        return X[:, 0]


def scored_rates(X, y):
    facts = {"scoring": "r2", "exposure": X[:, 1] + 2, "invalid": "exclude"}
    dp_score(Rates(), X, y, **facts, **ZERO_OUT)


MIRROR = DPMirrorRegressor(
    bounds_X=(-1, 1), bounds_y=(-1, 1), nonfinite="zero", solver=NoisyMD(max_iter=2)
)
LOSS = {"loss": ["absolute", "huber"]}
# what reads the records, and how one of them is made invalid: its features, or its target
READERS = {
    "choice, features": (search_of(MIRROR, **LOSS), (np.nan, None)),
    "choice, infinite target": (search_of(MIRROR, **LOSS), (None, np.inf)),
    "choice, count below 0": (
        search_of(DPPoissonRegressor(**COUNTS), max_weight=[1.0, 2.0]), (None, -1.0)
    ),
    "choice, amount of 0": (
        search_of(DPGammaRegressor(**{**COUNTS, "bounds_y": (0.1, 9)}), max_weight=[1.0, 2.0]),
        (None, 0.0),
    ),
    "choice behind a scaler": (
        search_of(make_pipeline(DPScaler(nonfinite="zero"), MIRROR),
                  dpmirrorregressor__loss=LOSS["loss"]), (np.nan, None)
    ),
    "scaler": (scaled_and_fitted, (np.inf, None)),
    "vocabulary": (read_and_fitted, (np.nan, None)),
    **{f"score: {name}": (scored(name), (np.nan, None))
       for name in ("neg_mean_squared_error", "binned_means")},
    "score: r2, pure": (scored("r2", 0.0), (np.nan, None)),
    "score: exposures": (scored_rates, (-5.0, -0.9)),
}  # fmt: skip


# (an amount of 0 is like a count below it, and an infinite target)
@half_is_enough
@rest_is_slow("name", READERS, READERS.keys() - {"choice, amount of 0", "choice, infinite target"})
def test_a_record_made_invalid_is_the_empty_slot_of_all_that_reads_it(name, cells):
    """It moves each release by what is planned for zero-out, and by twice that in none of them."""
    call, spoil = READERS[name]
    fitted_to_score()
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (800, 2))
    y = np.clip(X[:, 0] + 0.1 * rng.normal(size=800), -1, 1)
    y = np.rint(5 * np.abs(y)) if "count" in name or "amount" in name else y
    largest = 0.0
    for corner in ((1, 1), (1, -1))[: 2 if cells == "all" else 1]:
        first, second = ((X.copy(), y.copy()) for _ in range(2))
        first[0][AT] = second[0][AT] = 1e9 * corner[0]
        first[1][AT] = second[1][AT] = corner[1] * (1 if y.min() < 0 else 9)
        for values, value in zip(second, spoil, strict=True):
            values[AT] = values[AT] if value is None else value
        moved = changes(*(releases_of(lambda t=t: call(*t)) for t in (first, second)))
        largest = max(largest, *moved.values())
    assert 0.5 < largest <= 1 + 1e-9
