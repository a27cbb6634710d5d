"""However dense X is stored, the model is the same, and the caller's data stay as they are."""

import warnings

import numpy as np
import pytest
from registry import (
    STORAGES,
    build,
    columns_as,
    each_form,
    each_form_of_readers,
    each_main_form_of_readers,
    each_reader,
    entry,
    is_classifier,
    known,
    main_form,
    outcome,
    table,
    ways_to_store,
)
from scipy import sparse

# float32 holds these numbers exactly
TOLERANCE = {"rtol": 1e-7, "atol": 1e-9}


def single(name, **settings):
    """A table of numbers that float32 holds exactly, some of them out of bounds."""
    X, y = table(name, **settings)
    return np.float64(np.float32(1.2 * X)), y


def read_only(X):
    X = X.copy()
    X.flags.writeable = False
    return X


def strided(X):
    """A view of every second row and column of a larger array."""
    out = np.zeros((2 * X.shape[0], 2 * X.shape[1]))
    out[::2, ::2] = X
    return out[::2, ::2]


# all become the same array in C order: not a bit may differ
LIKE_C = {
    "list": lambda X: X.tolist(),
    "read-only": read_only,
    "long double": np.longdouble,
    "Fortran": np.asfortranarray,
    "strided": strided,
    "data frame": columns_as,
    "big-endian": lambda X: X.astype(">f8"),
}
FLOAT32 = {
    "float32": np.float32,
    "float32 Fortran": lambda X: np.asfortranarray(X, dtype=np.float32),
}


@each_form_of_readers
def test_all_dense_storages_give_the_same_model(name, form, tmp_path):
    X, y = single(name)
    np.save(tmp_path / "X.npy", X)
    like_C = LIKE_C | {"memmap": lambda _: np.load(tmp_path / "X.npy", mmap_mode="r")}
    expected = build(name, form).fit(X, y)
    predictions = expected.predict(X)
    for kind, storage in (like_C | FLOAT32).items():
        case, stored = f"{form} {kind}", storage(X)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", ".*too small to learn from")
            model = build(name, form).fit(stored, y)
        tolerance = {"rtol": 0, "atol": 0} if kind in like_C else TOLERANCE
        np.testing.assert_allclose(outcome(model), outcome(expected), err_msg=case, **tolerance)
        if kind == "float32 Fortran":
            like = build(name, form).fit(X.astype(np.float32), y)
            np.testing.assert_array_equal(outcome(model), outcome(like), err_msg=case)
        found = model.predict(stored)
        if is_classifier(name):
            assert np.mean(found == predictions) > 0.98, case
        else:
            np.testing.assert_allclose(found, predictions, rtol=1e-5, atol=1e-6)


@each_reader
def test_whole_numbers_and_kinds_of_targets(name):
    X, y = single(name)
    X = np.rint(X)
    expected = build(name, main_form(name)).fit(X, y)
    for whole in (X.astype(int), X.astype(np.int8), X.astype(int).tolist(), columns_as(X)):
        model = build(name, main_form(name)).fit(whole, y)
        np.testing.assert_allclose(outcome(model), outcome(expected), **TOLERANCE)
    for target in (y.tolist(), columns_as(y[:, None])["a"], read_only(y), y.astype(object)):
        np.testing.assert_array_equal(
            outcome(build(name, main_form(name)).fit(X, target)), outcome(expected)
        )


@each_main_form_of_readers
@pytest.mark.parametrize("mode", ["raise", "zero"])
def test_the_data_of_the_caller_stay_as_they_are(name, form, mode):
    X, y = single(name)
    y = y.copy()
    if mode == "zero":  # in a row that is within the bounds: the scaling does not copy
        X[3], X[4, 1] = 0.5, np.nan
        y = y.astype(object) if is_classifier(name) else y
        y[3] = None if is_classifier(name) else np.nan
    wide = known(name, {"bounds_X": (-50, 50), "bounds_y": (-9, 9)})
    is_read_only = mode == "zero"  # by turns, the other way round in the other mode
    for kind, needed in ways_to_store(name, form):
        for settings in ({}, wide) if form == main_form(name) else ({},):
            settings = settings | needed
            stored, target = STORAGES[kind](X), y.copy()
            is_sparse = sparse.issparse(stored)
            parts = [stored.data, stored.indices, stored.indptr] if is_sparse else [stored]
            before = [part.tobytes("A") for part in (*parts, target)]
            is_read_only = not is_read_only
            for part in (*parts, target):
                part.flags.writeable = not is_read_only
            model = build(name, form, nonfinite=mode, **settings).fit(stored, target)
            model.predict(stored)
            after = [part.tobytes("A") for part in (*parts, target)]
            assert after == before, (form, kind, settings)


@each_reader
def test_small_and_degenerate_tables(name):
    for n, d in ((2, 1), (3, 1), (5, 2), (4, 7), (60, 1)):
        X, y = table(name, n=n, d=d)
        settings = {"form": main_form(name)} | dict(entry(name).sparse)
        plan = build(name, **settings).plan(n, d)
        models = [build(name, **settings).fit(storage(X), y) for storage in STORAGES.values()]
        for kind, model in zip(STORAGES, models, strict=True):
            assert np.all(np.isfinite(outcome(model))), (n, d)
            # (sparse rows of a box keep their zeros, which a centre would shift)
            is_other = name.startswith("DPLassoFW") and kind.startswith("cs")
            np.testing.assert_allclose(outcome(model), outcome(models[2 * is_other]), **TOLERANCE)
            assert model.predict(X).shape == (n,)
            assert model.plan_ == plan


@each_form
def test_out_of_bounds_values_are_clipped_without_a_word(name, form):
    bounds = known(name, {"bounds_X": (-1, 1), "bounds_y": entry(name).bounds_y})
    X, y = table(name)
    wild, y_wild = X.copy(), y.copy()
    wild[::5] *= 100
    if not is_classifier(name):
        y_wild[::7] *= 50
    tame = np.clip(wild, -1, 1)
    if not bounds:
        # there are no bounds, and no value is too large
        wild, tame = 1e300 * wild, 1e300 * wild
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", ".*too small to learn from")
        model = build(name, form).fit(wild, y_wild)
    expected = build(name, form).fit(
        tame, np.clip(y_wild, *bounds["bounds_y"]) if "bounds_y" in bounds else y_wild
    )
    np.testing.assert_array_equal(outcome(model), outcome(expected))
    assert np.all(np.isfinite(outcome(model)))
