"""Extremes: values of the data near the largest float, and parameters of any size and kind."""

import warnings

import numpy as np
from registry import (
    STORAGES,
    build,
    columns_as,
    each,
    entry,
    forms,
    is_classifier,
    known,
    outcome,
    table,
    ways_to_store,
)

HUGE, TINY = 1.7e308, 5e-324
WIDE = {"bounds_X": (-1e50, 1e50), "bounds_y": (-1e50, 1e50)}


def quietly(call, *data):
    """The call, in which each warning is an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return call(*data)


def predictions(model, X):
    """All that it predicts of X, without a warning."""
    names = ("predict", "decision_function", "predict_proba", "predict_log_proba")
    return {name: quietly(getattr(model, name), X) for name in names if hasattr(model, name)}


def extreme_tables(name):
    """Tables whose sums overflow, or are inf - inf, or vanish."""
    X, y = table(name)
    for rows, values in (
        ([3], HUGE), ([3], -HUGE), ([3, 4], [[HUGE], [-HUGE]]), ([3], TINY),
        ([8], [HUGE, -HUGE, 1]),
        (range(60), [[HUGE], [HUGE], [-HUGE], [-HUGE]] * 15),
    ):  # fmt: skip
        features, targets = X.copy(), y.copy()
        features[rows] = values
        yield features, targets
        if not is_classifier(name):
            targets[rows] = np.broadcast_to(values, (len(rows), 3))[:, 0]
            yield X, targets
            yield features, targets


@each
def test_values_near_the_largest_float(name):
    with np.errstate(all="warn"):
        for form in forms(name):
            for number, (X, y) in enumerate(extreme_tables(name)):
                for kind, settings in ways_to_store(name, form):
                    for mode in ("raise", "zero"):
                        stored = STORAGES[kind](X)
                        model = build(name, form, nonfinite=mode, **settings)
                        quietly(model.fit, stored, y)
                        case = (form, number, kind, mode)
                        assert np.all(np.isfinite(outcome(model))), case
                        for method, found in predictions(model, stored).items():
                            is_number = found.dtype.kind == "f"
                            assert not (is_number and np.any(np.isnan(found))), (case, method)


@each
def test_other_containers_of_values_near_the_largest_float(name):
    X, y = table(name)
    X[[3, 4, 5]] = [[HUGE], [-HUGE], [HUGE]]
    single = np.where(np.abs(X) > 1, np.copysign(3.4e38, X), X).astype(np.float32)
    bounds = known(name, WIDE)
    containers = [
        columns_as(X), columns_as(X).astype(object), X.tolist(), X.astype(np.longdouble),
        single, np.asfortranarray(single), columns_as(single), STORAGES["csr"](single),
        STORAGES["csc"](single),
    ]  # fmt: skip
    for settings in ({}, bounds):
        for mode in ("raise", "zero"):
            for number, stored in enumerate(containers):
                model = build(name, nonfinite=mode, **settings | dict(entry(name).sparse))
                quietly(model.fit, stored, y)
                assert np.all(np.isfinite(outcome(model))), number
                predictions(model, stored)
                if hasattr(model, "partial_fit"):
                    stream = build(name, nonfinite=mode, **settings)
                    quietly(stream.partial_fit, stored, y)
                    quietly(stream.partial_fit, stored, y)
                    assert np.all(np.isfinite(outcome(stream))), number


@each
def test_predictions_of_rows_near_the_largest_float(name):
    X, y = table(name)
    model = build(name, epsilon=1e3).fit(X, y)
    # terms overflow, but not their sum
    small = np.array([[1.0, -2.0, 0.5]])
    coef, intercept = np.ravel(model.coef_), np.ravel(model.intercept_)[0]
    coef[...] = [4.0, 3.0, 4.0]  # a view: 4 - 6 + 2 = 0
    predict = model.decision_function if is_classifier(name) else model.predict
    X = np.vstack((0.8 * small, 0.4 * small, -0.8 * small, [[-1.5, -1.5, 1.0]])) * 1e308
    for kind in STORAGES.values():
        found = quietly(predict, kind(X))
        np.testing.assert_array_equal(found, [intercept] * 3 + [-np.inf])


def test_labels_near_the_largest_float_are_labels():
    for name, classes in (
        ("DPLassoFWClassifier", [0.0, HUGE]),
        ("DPFTRLClassifier", [-HUGE, TINY]),
    ):
        X, y = table(name)
        for mode in ("raise", "zero"):
            model = build(name, classes=classes, nonfinite=mode)
            labels = np.where(y == "yes", *classes)
            quietly(model.fit, X, labels)
            assert set(model.predict(X)) <= set(classes)
