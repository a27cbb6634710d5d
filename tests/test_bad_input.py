"""Bad parameters and bad data: a clear `ValueError`, early, that quotes no data."""

import re

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from sklearn_dpsco import DPLassoFW, DPLassoFWClassifier, mechanisms
from sklearn_dpsco.geometry import L1Ball, Simplex
from sklearn_dpsco.losses import Logistic, Squared

REGRESSOR = {"bounds_X": (-1e6, 1e6), "bounds_y": (-1e6, 1e6)}
CLASSIFIER = {"bounds_X": (-1e6, 1e6), "classes": ["no", "yes"]}
SECRET = 12345.678  # stands in every table below and must stand in no message


def model_of(kind, **parameters):
    return kind(**(REGRESSOR if kind is DPLassoFW else CLASSIFIER) | parameters)


def table(kind, n=20, d=3):
    X = np.full((n, d), SECRET)
    return X, np.where(np.arange(n) % 2, "no", "yes") if kind is DPLassoFWClassifier else X[:, 0]


def quotes_data(message):
    return re.search(r"1234[0-9]|secret", message) is not None


@pytest.fixture(autouse=True)
def nothing_is_spent(monkeypatch):
    """No mechanism may run before the error."""

    def release(self, *args):
        raise AssertionError("budget was spent")

    for kind in (mechanisms.Gaussian, mechanisms.Laplace, mechanisms.SelectVertex):
        monkeypatch.setattr(kind, "release", release)


class Unreadable:
    """Data that must not be looked at."""

    def _touched(self, *args, **kwargs):
        raise AssertionError("the data were read")

    __array__ = __len__ = __getitem__ = __iter__ = _touched
    shape = property(_touched)
    dtype = property(_touched)


BAD_FOR_BOTH = [
    *[("epsilon", v) for v in (-1, 0, np.nan, np.inf, "1", None, True)],
    *[("delta", v) for v in (-1e-9, 1, 1.5, np.nan, "0", None)],
    *[("relation", v) for v in ("replace_one", None)],
    *[("radius", v) for v in (0, -1, np.nan, np.inf, "big", None, True)],
    *[("gradient_clip", v) for v in (0, -0.5, np.nan, "none")],
    *[("data_norm", v) for v in (0, -1, np.inf, "l2")],
    *[("solver", v) for v in ("sgd", None, 1, "constant")],
    *[("max_iter", v) for v in (0, -3, 1.5, "many", True, np.nan)],
    *[("learning_rate", v) for v in (0, -0.1, 1.1, np.nan, "constant")],
    *[("loss", v) for v in ("hinge", None, 3, Squared)],
    *[("feasible_set", v) for v in ("l3", None, L1Ball, "simplex", Simplex(1.0))],
    *[("fit_intercept", v) for v in ("yes", 1, None)],
    *[("random_state", v) for v in (-1, "0", 1.5, np.random.default_rng(0))],
    *[("bounds_X", v) for v in ((1, -1), (0, 0), (0,), (0, np.nan), (-np.inf, 1), "ab", 3)],
    *[("bounds_X", v) for v in (([0, 0, 1], [1, 1, 0]), ("low", "high"))],
]
BAD_FOR_ONE = [
    *[(DPLassoFW, "bounds_y", v) for v in ((1, -1), (0, 0), (0, np.nan), (0, 1, 2), 3, "ab")],
    *[(DPLassoFW, "bounds_y", v) for v in (([0, 0], [1, 1]), (-np.inf, 0))],
    *[(DPLassoFW, "loss", v) for v in ("logistic", Logistic(), "smoothed_hinge")],
    *[(DPLassoFWClassifier, "loss", v) for v in ("squared", "huber", Squared())],
    *[(DPLassoFWClassifier, "classes", v) for v in (["a"], [], ["a", "a"], 3, "ab", [["a", "b"]])],
]
BAD = [(kind, *case) for case in BAD_FOR_BOTH for kind in (DPLassoFW, DPLassoFWClassifier)]
BAD += BAD_FOR_ONE


@pytest.mark.parametrize(("kind", "name", "value"), BAD, ids=str)
def test_bad_parameters_are_refused_by_name_before_data_are_read(kind, name, value):
    model = model_of(kind, **{name: value})
    with pytest.raises(ValueError, match=name):
        model.fit(Unreadable(), Unreadable())
    with pytest.raises(ValueError, match=name):
        model.plan(100, 3)
    assert not hasattr(model, "coef_")


@pytest.mark.parametrize("kind", [DPLassoFW, DPLassoFWClassifier])
def test_combinations_that_make_no_sense(kind):
    cases = [
        ({"solver": "gradient", "delta": 0}, "selection"),
        ({"feasible_set": L1Ball(2.0), "radius": 2.0}, "radius"),
        ({"feasible_set": "simplex"}, "fit_intercept=False"),
    ]
    for parameters, match in cases:
        model = model_of(kind, **parameters)
        with pytest.raises(ValueError, match=match):
            model.fit(Unreadable(), Unreadable())
        with pytest.raises(ValueError, match=match):
            model.plan(100, 3)


@pytest.mark.parametrize("kind", [DPLassoFW, DPLassoFWClassifier])
@pytest.mark.parametrize(
    "sizes", [(1, 3), (0, 3), (100, 0), (-5, 3), (100.0, 3), ("100", 3), (100, None), (True, 3)]
)
def test_bad_sizes_of_a_plan(kind, sizes):
    with pytest.raises(ValueError, match=r"n_samples|n_features"):
        model_of(kind).plan(*sizes)


@pytest.mark.parametrize("n_classes", [1, 0, -1, 2.0, "3"])
def test_bad_number_of_classes(n_classes):
    with pytest.raises(ValueError, match="n_classes"):
        model_of(DPLassoFWClassifier, classes=None).plan(100, 3, n_classes=n_classes)


def assert_refused(model, X, y, match=None):
    with pytest.raises(ValueError, match=match) as caught:
        model.fit(X, y)
    # with all that a traceback shows: causes and contexts too
    error = caught.value
    while error is not None:
        assert not quotes_data(str(error)), str(error)
        hidden = error.__suppress_context__
        error = error.__cause__ or (None if hidden else error.__context__)


@pytest.mark.parametrize("kind", [DPLassoFW, DPLassoFWClassifier])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array, sparse.csc_array, np.float32])
def test_missing_and_infinite_features(kind, bad, make):
    X, y = table(kind)
    X[3, 1] = bad
    assert_refused(model_of(kind), make(X), y, "NaN|infinity")


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_missing_and_infinite_targets(bad):
    X, y = table(DPLassoFW)
    y = y.copy()
    y[4] = bad
    assert_refused(model_of(DPLassoFW), X, y, "NaN|infinity")
    labels = np.where(np.arange(20) % 2, SECRET, 0.0)
    labels[2] = bad
    assert_refused(model_of(DPLassoFWClassifier, classes=[0.0, 1.0]), X, labels, "NaN|infinity")


@pytest.mark.parametrize("kind", [DPLassoFW, DPLassoFWClassifier])
def test_wrong_shapes(kind):
    X, y = table(kind)
    model = model_of(kind)
    assert_refused(model, X[:1], y[:1], "minimum of 2|1 sample|one sample")
    assert_refused(model, X[:0], y[:0], "0 sample")
    assert_refused(model, X[:, :0], y, "0 feature")
    assert_refused(model, X, y[:-1], "inconsistent")
    assert_refused(model, X[:, :, None], y, "dim 3|3D|<= 2")
    assert_refused(model, X, np.column_stack((y, y)), "1d array|shape")
    assert_refused(model, X, None, "y")


# scikit-learn's own messages quote the data in the next three


@pytest.mark.parametrize("kind", [DPLassoFW, DPLassoFWClassifier])
def test_features_in_one_dimension(kind):
    X, y = table(kind)
    assert_refused(model_of(kind), X[:, 0], y, "2D array")


@pytest.mark.parametrize("kind", [DPLassoFW, DPLassoFWClassifier])
def test_features_that_are_no_numbers(kind):
    X, y = table(kind)
    assert_refused(model_of(kind), np.full(X.shape, "secret"), y)
    assert_refused(model_of(kind), pd.DataFrame(X).astype(object).replace(SECRET, "secret"), y)
    assert_refused(model_of(kind), X.astype(complex), y, "[Cc]omplex")


def test_targets_that_are_no_numbers():
    X, y = table(DPLassoFW)
    assert_refused(model_of(DPLassoFW), X, np.full(20, "secret", dtype=object))
    assert_refused(model_of(DPLassoFWClassifier), X, y + np.arange(20) / 7, "continuous|label")


@pytest.mark.parametrize("kind", [DPLassoFW, DPLassoFWClassifier])
@pytest.mark.parametrize("size", [1, 2, 4])
def test_bounds_of_the_wrong_length(kind, size):
    X, y = table(kind)
    model = model_of(kind, bounds_X=([-1e6] * size, [1e6] * size))
    assert_refused(model, X, y, r"shape \(3,\)")
    with pytest.raises(ValueError, match=r"shape \(3,\)"):
        model.plan(100, 3)


@pytest.mark.parametrize("kind", [DPLassoFW, DPLassoFWClassifier])
def test_bounds_by_name(kind):
    X, y = table(kind)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    good = dict.fromkeys("abc", (-1e6, 1e6))
    assert_refused(model_of(kind, bounds_X=good), X, y, "data frame")
    for wrong in ({"a": (0, 1)}, good | {"d": (0, 1)}, good | {"a": (1, 0)}):
        assert_refused(model_of(kind, bounds_X=wrong), frame, y, "bounds_X")


@pytest.mark.parametrize("kind", [DPLassoFW, DPLassoFWClassifier])
@pytest.mark.parametrize("make", [sparse.csr_array, sparse.csc_array])
@pytest.mark.parametrize("bounds", [(-1e6, 2e6), (1, 1e6), ([0, -1, 0], [1e6, 3e6, 1])])
def test_sparse_data_are_never_shifted(kind, make, bounds):
    X, y = table(kind)
    assert_refused(model_of(kind, bounds_X=bounds), make(X), y, "sparse X needs bounds_X")


def test_labels_against_the_declared_classes():
    X, _ = table(DPLassoFWClassifier)
    for labels in (np.where(np.arange(20) % 2, "no", "secret"), np.full(20, SECRET)):
        assert_refused(model_of(DPLassoFWClassifier), X, labels, "declared|label|type")
    more = np.array(["no", "yes", "secret"])[np.arange(20) % 3]
    assert_refused(model_of(DPLassoFWClassifier), X, more, "not among the declared classes")
    with_numbers = np.where(np.arange(20) % 2, 12345, 12346)
    assert_refused(
        model_of(DPLassoFWClassifier, classes=[0, 1]), X, with_numbers, "not among the declared"
    )
    assert_refused(model_of(DPLassoFWClassifier, classes=None), X, ["secret"] * 20, "one class")


@pytest.mark.parametrize("kind", [DPLassoFW, DPLassoFWClassifier])
def test_unreadable_data_are_told_apart_from_bad_parameters(kind):
    # what the tests above rest on: with good parameters the data are read
    with pytest.raises(AssertionError, match="the data were read"):
        model_of(kind).fit(Unreadable(), Unreadable())
    X, y = table(kind)
    with pytest.raises(AssertionError, match="budget was spent"):
        model_of(kind).fit(X, y)
