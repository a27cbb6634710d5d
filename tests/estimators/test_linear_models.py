"""What single estimators promise beyond the contracts: further forms, sets, losses, storages."""

import itertools

import numpy as np
import pytest
from scipy import sparse
from scipy.special import expit
from sklearn.base import clone
from support import scaled_table

from sklearn_dpsco import (
    DPLassoFW,
    DPLassoFWClassifier,
    DPMirrorClassifier,
    DPMirrorRegressor,
)
from sklearn_dpsco.estimators import _records
from sklearn_dpsco.geometry import Geometry
from sklearn_dpsco.losses import Hinge, Loss, SmoothedHinge, Squared
from sklearn_dpsco.solvers import Gradient, NoisyMD, Selection


def regressor(**parameters):
    return DPLassoFW(**{"bounds_X": (-1, 1), "bounds_y": (-1, 1), "random_state": 0} | parameters)


def classifier(classes=(-1.0, 1.0), **parameters):
    settings = {"classes": classes, "bounds_X": (-1, 1), "random_state": 0}
    return DPLassoFWClassifier(**settings | parameters)


def test_a_memmap_within_the_bounds_is_never_copied(tmp_path, monkeypatch):
    X, y = scaled_table(500, 4)
    path = tmp_path / "X.npy"
    np.save(path, X)
    mapped = np.load(path, mmap_mode="r")
    seen = []
    Rows = _records.Rows
    monkeypatch.setattr(_records, "Rows", lambda X, *a: seen.append(X) or Rows(X, *a))
    model = regressor().fit(mapped, y)
    assert np.shares_memory(seen[0], mapped)
    np.testing.assert_array_equal(model.coef_, regressor().fit(X, y).coef_)


def test_classes_are_learned_from_labels_of_all_kinds():
    for names in (["no", "yes"], [3, 1], [True, False], ["c", "a", "b"], [2, 0, 1]):
        X = np.random.default_rng(0).uniform(-1, 1, (1500, 3))
        y = np.asarray(names)[X[:, : len(names)].argmax(axis=1)]
        model = classifier(names, epsilon=100.0).fit(X, y)
        assert model.score(X, y) > 0.8, names
        assert model.coef_.shape == (1 if len(names) == 2 else 3, 3), names


def test_a_plan_knows_the_number_of_classes():
    declared, undeclared = classifier(["a", "b", "c"]), classifier(None)
    assert declared.plan(100, 3).problem.n_outputs == 3
    assert undeclared.plan(100, 3, n_classes=4).problem.n_outputs == 4
    assert undeclared.plan(100, 3).problem.n_outputs == 1


def test_what_an_invalid_record_holds_does_not_matter_to_any_of_several_classes():
    X = np.random.default_rng(0).uniform(-1, 1, (60, 4))
    y = np.asarray(["a", "b", "c"], dtype=object)[np.arange(60) % 3]
    for solver in (Selection(max_iter=4), Gradient(max_iter=4)):
        fits = []
        for row, label in (([np.nan] * 4, "a"), ([1, np.inf, 0, -1], "b"), ([0.5] * 4, "zebra")):
            broken, labels = X.copy(), y.copy()
            broken[8], labels[8] = row, label
            model = classifier(list("abc"), solver=solver, nonfinite="zero")
            fits.append(model.fit(broken, labels))
        for model in fits[1:]:
            np.testing.assert_allclose(model.coef_, fits[0].coef_, rtol=1e-12, atol=1e-14)
            np.testing.assert_allclose(model.intercept_, fits[0].intercept_, rtol=1e-12)


def test_a_smoothed_hinge_of_the_users_own_has_no_probabilities():
    assert hasattr(classifier(), "predict_proba")
    for method in ("predict_proba", "predict_log_proba"):
        assert not hasattr(classifier(loss=SmoothedHinge(0.5)), method)


@pytest.mark.parametrize(
    ("classes", "settings"),
    [
        ([0, 1], {"epsilon": 1.0, "relation": "replace-one"}),
        ([0, 1], {"epsilon": 0.5, "delta": 0}),
        ([0, 1, 2, 3], {"epsilon": 1.0, "relation": "zero-out"}),
        ([0, 1], {"epsilon": 0.001}),
    ],
)
def test_no_row_has_a_probability_that_no_number_of_records_can_tell(classes, settings):
    X, y = scaled_table(300, 3)
    labels = np.digitize(y, np.quantile(y, np.arange(1, len(classes)) / len(classes)))
    model = classifier(classes, **settings).fit(X, labels)
    far = 1e6 * np.vstack((np.eye(3), -np.eye(3)))
    found, budget = model.predict_proba(far), model.plan_.budget
    size = budget.epsilon if budget.is_pure else budget.mu
    m = 300 * size / (1 if budget.relation == "zero-out" else 2)
    least = min(1 / (2 * m), 1 / 4) / (len(classes) - 1)
    assert model.plan_.least_probability == pytest.approx(least, rel=1e-6)
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(far)), found, rtol=1e-12)
    assert np.all(found >= least * (1 - 1e-9))
    if least < 0.2:  # or coefficients are about 0
        np.testing.assert_allclose(found.min(axis=1), least, rtol=1e-6)
    np.testing.assert_array_equal(model.predict(far), model.classes_[found.argmax(axis=1)])
    z = np.asarray(X[:5])
    usual = model.predict_proba(z)
    if len(classes) == 2 and least < 0.01:
        np.testing.assert_allclose(usual[:, 1], expit(model.decision_function(z)), rtol=1e-12)


class Tilted(Squared):
    """A subclass whose derivative is not its parent's."""

    def derivative(self, z, y):
        return 0.5 * (z - y) - 0.1


def test_a_subclassed_loss_gives_the_same_model_on_every_storage():
    X, y = scaled_table(200, 3)
    kinds = (np.array, sparse.csr_matrix)
    fits = [regressor(loss=Tilted(), solver=Gradient(max_iter=5)).fit(kind(X), y) for kind in kinds]
    np.testing.assert_allclose(fits[0].coef_, fits[1].coef_, rtol=1e-10)


def test_a_loss_that_has_no_envelope_is_refused_before_data_are_read():
    class Ramp(Hinge):
        """A user's loss with a kink that is not convex."""

        is_convex = False

        def envelope_derivative(self, z, y, beta):
            return Loss.envelope_derivative(self, z, y, beta)

    for call in (lambda model: model.plan(100, 3), lambda model: model.fit(None, None)):
        with pytest.raises(ValueError, match=r"\bloss\b.*convex"):
            call(classifier(loss=Ramp()))


def test_losses_that_are_not_convex_learn_on_every_storage_and_with_several_outputs():
    X, y = scaled_table(400, 3)
    rest = np.column_stack((y, -y, 0.5 * y))
    solvers = {DPMirrorRegressor: NoisyMD(max_iter=20), DPLassoFW: Gradient(max_iter=20)}
    for kind, loss in itertools.product(solvers, ("welsch", "log_absolute", "mcp_absolute")):
        common = {"epsilon": 1e4, "delta": 1e-6, "bounds_X": (-1, 1), "bounds_y": (-1, 1)}
        model = kind(loss=loss, solver=solvers[kind], random_state=0, **common)
        coefs = [clone(model).fit(store(X), y).coef_ for store in (np.array, sparse.csr_matrix)]
        assert np.corrcoef(X @ coefs[0], y)[0, 1] > 0.8, (kind, loss)
        np.testing.assert_allclose(*coefs, rtol=1e-8, atol=1e-8)
        several = clone(model).fit(X, rest).predict(X)
        for found, wanted in zip(several.T, rest.T, strict=True):
            assert np.corrcoef(found, wanted)[0, 1] > 0.8, (kind, loss)
    three = np.digitize(y, np.quantile(y, (0.33, 0.67)))
    for kind in (DPMirrorClassifier, DPLassoFWClassifier):
        common = {"epsilon": 1e4, "delta": 1e-6, "bounds_X": (-1, 1)}
        for labels in (y > np.median(y), three):
            model = kind(loss="sigmoid", classes=list(np.unique(labels)), random_state=0, **common)
            assert model.fit(X, labels).score(X, labels) > 1.3 / len(model.classes_)
            assert not hasattr(model, "predict_proba")


def test_the_simplex_default_is_convex_combinations():
    X = np.random.default_rng(0).uniform(-1, 1, (2000, 4))
    model = regressor(feasible_set="simplex", fit_intercept=False)
    model.fit(X, X @ [0.7, 0.3, 0, 0])
    assert model.score(X, X @ [0.7, 0.3, 0, 0]) > 0.8


class Box(Geometry):
    """Neither vertices nor projection."""

    def center(self, n_features):
        return np.zeros(n_features)


@pytest.mark.parametrize("solver", ["selection", "gradient"])
def test_a_set_that_lacks_what_the_solver_needs_is_refused_in_the_plan(solver):
    with pytest.raises(ValueError, match="Box has none"):
        regressor(feasible_set=Box(1.0), solver=solver).plan(100, 3)


@pytest.mark.parametrize(
    ("bounds_X", "bounds_y"),
    [((0, 5), (-9, 9)), ((-5, 9), (0, 9)), ((1, 5), (1, 8)), ((-1, 9), None)],
)
@pytest.mark.parametrize("storage", [np.asarray, sparse.csr_array])
def test_a_model_without_an_intercept_goes_through_0(bounds_X, bounds_y, storage):
    X = np.random.default_rng(0).uniform(1, 5, (500, 2))
    facts = {"bounds_X": bounds_X, "epsilon": 1e4, "relation": "zero-out", "fit_intercept": False}
    if storage is sparse.csr_array and bounds_X[0] > 0:  # a 0 of an array would be clipped
        with pytest.raises(ValueError, match="without an intercept any that hold 0"):
            DPMirrorRegressor(bounds_y=bounds_y, **facts).fit(storage(X), X[:, 0])
        return
    if bounds_y is None:
        model = DPMirrorClassifier(classes=[False, True], random_state=0, **facts)
        model.fit(storage(X), X[:, 0] > X[:, 1])
        assert model.coef_[0, 0] == pytest.approx(-model.coef_[0, 1], rel=0.1)
    else:
        model = DPMirrorRegressor(bounds_y=bounds_y, random_state=0, **facts)
        model.fit(storage(X), X @ [0.5, 1.0])
        np.testing.assert_allclose(model.coef_, [0.5, 1.0], atol=0.02)
    assert model.intercept_ == 0
