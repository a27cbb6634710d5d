"""Bad parameters and bad data: a clear `ValueError`, early, that quotes no data."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest
from registry import (
    BAD,
    BAD_LOSSES,
    STORAGES,
    Unreadable,
    build,
    columns_as,
    each,
    each_classifier,
    each_solver,
    entry,
    is_classifier,
    known,
    nothing_is_released,
    parameters_of,
)
from scipy import sparse
from sklearn import config_context

from sklearn_dpsco import BudgetAccountant

SECRET = 12345.678  # stands in every table below and must stand in no message
WIDE = {"bounds_X": (-1e6, 1e6), "bounds_y": (-1e6, 1e6)}
N, D = 40, 3


def model_of(name, **parameters):
    return build(name, **known(name, WIDE) | parameters)


def secret_table(name):
    X = np.full((N, D), SECRET)
    y = np.where(np.arange(N) % 2, "no", "yes") if is_classifier(name) else X[:, 0].copy()
    return X, y


@pytest.fixture(autouse=True)
def _nothing_is_spent():
    """No mechanism may run before the error."""
    with nothing_is_released():
        yield


# ---------------------------------------------------------------------------- parameters


def bad_values(name):
    """All bad values of every parameter, as pairs (parameter, value)."""
    own = entry(name).bad
    if missing := [key for key in parameters_of(name) if key not in BAD and key not in own]:
        pytest.fail(f"{name}: registry.py has no bad values of {missing}")
    task = "classification" if is_classifier(name) else "regression"
    values = {key: (*BAD.get(key, ()), *own.get(key, ())) for key in parameters_of(name)}
    if "loss" in values:
        values["loss"] += BAD_LOSSES[task]
    return [(key, value) for key in sorted(values) for value in values[key]]


def calls_without_data(model):
    """Each way to hand in the parameters without any data that could be read."""
    names = [method for method in ("fit", "partial_fit") if hasattr(model, method)]
    calls = {
        method: lambda method=method: getattr(model, method)(Unreadable(), Unreadable())
        for method in names
    }
    return calls | {"plan": lambda: model.plan(1000, 3)}


def refusal(call, *arguments):
    """What the `ValueError` of the call says; None if it raises none."""
    try:
        call(*arguments)
    except ValueError as error:
        return str(error)
    return None


@each_solver
def test_bad_parameters_are_refused_by_name_before_data_are_read(name):
    cases = bad_values(name)
    assert len(cases) > 70
    for key, value in cases:
        model = model_of(name, **{key: value})
        for method, call in calls_without_data(model).items():
            message = refusal(call)
            assert message is not None, f"{method} accepts {key}={value!r}"
            assert re.search(rf"\b{key}\b", message), f"{method}, {key}={value!r}: {message}"
        assert not hasattr(model, "coef_")


@each
def test_combinations_that_make_no_sense_are_refused_before_data_are_read(name):
    cases = [case for case in entry(name).nonsense if case[0].keys() <= parameters_of(name)]
    assert cases
    for parameters, pattern in cases:
        model = model_of(name, **parameters)
        for method, call in calls_without_data(model).items():
            message = refusal(call)
            assert message is not None, f"{method} accepts {parameters}"
            assert re.search(pattern, message), f"{method}, {parameters}: {message}"


@each_solver
def test_with_good_parameters_the_data_are_read(name):
    # what the two tests above rest on
    model = model_of(name)
    for method, call in calls_without_data(model).items():
        if method == "plan":
            call()
        else:
            with pytest.raises(AssertionError, match="the data were read"):
                call()
    with pytest.raises(AssertionError, match="budget was spent"):
        model.fit(*secret_table(name))


@each
def test_bad_sizes_of_a_plan(name):
    model = model_of(name)
    for sizes in (
        (1, 3), (0, 3), (100, 0), (-5, 3), (100.0, 3), ("100", 3), (100, None), (True, 3), (100, -1)
    ):  # fmt: skip
        message = refusal(model.plan, *sizes)
        assert message is not None, f"plan{sizes} is accepted"
        assert re.search("n_samples|n_features", message), f"plan{sizes}: {message}"
    for parameters, pattern in entry(name).too_small:
        model, (X, y) = model_of(name, **parameters), secret_table(name)
        with pytest.raises(ValueError, match=pattern):
            model.plan(N, D)
        assert_refused(model, X, y, pattern)


@each_classifier
def test_bad_numbers_of_classes(name):
    for n_classes in (1, 0, -1, 2.0, "3", True):
        with pytest.raises(ValueError, match="n_classes"):
            model_of(name, classes=None).plan(100, 3, n_classes=n_classes)
    with pytest.raises(ValueError, match="n_classes=2"):
        model_of(name, classes=["a", "b", "c"]).plan(100, 3, n_classes=2)


# ---------------------------------------------------------------------------------- data


def assert_refused(model, X, y, pattern=""):
    """A `ValueError` that nothing was charged for, and nothing in it quotes the data."""
    accountant = BudgetAccountant(model.epsilon, 1e-6, model._accounting().budget.relation)
    model.set_params(accountant=accountant)
    with (
        warnings.catch_warnings(record=True) as shown,
        pytest.raises(ValueError, match=pattern) as caught,
    ):
        model.fit(X, y)
    error = caught.value
    assert not hasattr(model, "coef_")
    assert accountant.ledger == ()
    messages = [str(warning.message) for warning in shown]
    # with all that a traceback shows: causes and contexts too
    while error is not None:
        messages.append(str(error))
        hidden = error.__suppress_context__
        error = error.__cause__ or (None if hidden else error.__context__)
    for message in messages:
        assert not re.search(r"1234[0-9]|1\.23|secret", message), message


@each_solver
def test_missing_and_infinite_values(name):
    takes_sparse = entry(name).sparse
    for bad in (np.nan, np.inf, -np.inf):
        X, y = secret_table(name)
        X[3, 1] = bad
        for storage in STORAGES.values():
            assert_refused(model_of(name, **takes_sparse), storage(X), y, "NaN|infinity")
        assert_refused(model_of(name), X.astype(np.float32), y, "NaN|infinity")
        assert_refused(model_of(name), columns_as(X), y, "NaN|infinity")
        X, y = secret_table(name)
        if is_classifier(name):
            y = np.where(np.arange(N) % 2, SECRET, 0.0)
            y[4] = bad
            assert_refused(model_of(name, classes=[0.0, SECRET]), X, y, "NaN|infinity")
        else:
            y[4] = bad
            assert_refused(model_of(name), X, y, "NaN|infinity")


@each
def test_values_are_looked_at_whatever_scikit_learn_is_set_to_assume(name):
    X, y = secret_table(name)
    X[3, 1] = np.nan
    with config_context(assume_finite=True):
        assert_refused(model_of(name), X, y, "NaN")


@each_solver
def test_tables_of_wrong_shapes_and_kinds(name):
    X, y = secret_table(name)
    text = np.full(N, "secret")
    cases = [
        (X[:1], y[:1], "minimum of 2|1 sample|one sample"),
        (X[:0], y[:0], "0 sample"),
        (X[:, :0], y, "0 feature"),
        (X, y[:-1], "inconsistent numbers of samples.*, of X and y"),
        (X[:, :, None], y, "dim 3|3D|<= 2"),
        (X[:, 0], y, "2D array"),
        (X, None, "y"),
        # scikit-learn's own messages quote the data in some of these
        (np.full(X.shape, "secret"), y, "numbers"),
        (X.astype(complex), y, "[Cc]omplex"),
        (sparse.csr_array(X.astype(complex)), y, "[Cc]omplex|sparse"),
        (X, text[:-1], ""),
        (X, np.column_stack((text, text)), ""),
    ]
    if is_classifier(name):
        cases += [(X, SECRET + np.arange(N) / 7, "continuous|label|among")]
        cases += [(X, [["secret", "a"]] * N, "")]
        cases += [(X, np.column_stack((y, y)), "1d array|shape")]
    else:
        cases += [(X, text, "numbers"), (X, y.astype(complex), "[Cc]omplex")]
        cases += [(X, y.astype("M8[s]"), "Date data"), (X, y[:, None, None], "dim 3|3D|<= 2|1d")]
        cases += [(X, np.zeros((N, 0)), "0 feature|0 column")]
    for mode in ("raise", "zero"):
        for X_bad, y_bad, pattern in cases:
            assert_refused(model_of(name, nonfinite=mode), X_bad, y_bad, pattern)
        model = model_of(name, nonfinite=mode, **entry(name).sparse)
        with pytest.raises((ValueError, TypeError)) as caught:
            model.fit(sparse.csr_array(X), sparse.csr_array(np.full((N, 1), SECRET)))
        assert "12345" not in str(caught.value)


@each_solver
def test_declarations_of_columns_that_do_not_fit_the_table(name):
    X, y = secret_table(name)
    frame = columns_as(X)
    for key, value in entry(name).columns.items():
        for size in (1, 2, 4):
            values = tuple([end] * size for end in value) if np.ndim(value) else [value] * size
            if size == 1 and not np.ndim(value):
                continue  # one number in a list may stand for all columns
            model = model_of(name, **{key: values})
            assert_refused(model, X, y, rf"{key}.*\b3\b")
            with pytest.raises(ValueError, match=rf"{key}.*\b3\b"):
                model_of(name, **{key: values}).plan(100, 3)
        good = dict.fromkeys("abc", value)
        assert_refused(model_of(name, **{key: good}), X, y, "data frame")
        for wrong in ({"a": value}, good | {"d": value}, dict.fromkeys("xyz", value)):
            assert_refused(model_of(name, **{key: wrong}), frame, y, f"{key} must name every")
        with pytest.raises(ValueError, match=key):
            model_of(name, **{key: good}).plan(100, 4)


@each
def test_sparse_data_are_never_shifted(name):
    X, y = secret_table(name)
    assert entry(name).shifting
    for parameters in entry(name).shifting:
        for kind in ("csr", "csc"):
            model = model_of(name, **parameters)
            assert_refused(model, STORAGES[kind](X), y, f"sparse X needs {next(iter(parameters))}")


@each_classifier
def test_labels_that_were_not_declared(name):
    X, _ = secret_table(name)
    more = np.array(["no", "yes", "secret"])[np.arange(N) % 3]
    cases = [
        (["no", "yes"], more, "not among the declared classes"),
        (["no", "yes"], np.full(N, SECRET), "declared|label|type|continuous"),
        (["no", "yes"], np.full(N, b"secret"), "declared|label|type"),
        (["no", "yes"], pd.Series(more).astype("category"), "not among the declared classes"),
        ([0, 1], np.where(np.arange(N) % 2, 12345, 12346), "not among the declared"),
        (list(range(60)), np.full(N, "12345"), "not among the declared"),
        (None, ["secret"] * N, "one class"),
    ]
    for classes, labels, pattern in cases:
        assert_refused(model_of(name, classes=classes), X, labels, pattern)
    # text against numbers is a mistake in the types, also where single labels may be wrong
    model = model_of(name, classes=[0, 1], nonfinite="zero")
    assert_refused(model, X, np.full(N, "secret"), "not among the declared")
