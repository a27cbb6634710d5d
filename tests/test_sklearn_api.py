"""The contract of scikit-learn: checks, pipelines, searches, data frames, attributes."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks
from support import recomputed_epsilon, scaled_table, storage

from sklearn_dpsco import (
    BoundsNotDeclaredWarning,
    DPLassoFW,
    DPLassoFWClassifier,
    DPMirrorClassifier,
    DPMirrorRegressor,
    DPPhasedSGDClassifier,
    DPPhasedSGDRegressor,
    PrivacyLeakWarning,
    PrivacyParameterWarning,
    bounds,
)
from sklearn_dpsco.estimators import _base
from sklearn_dpsco.geometry import Geometry
from sklearn_dpsco.losses import SmoothedHinge, Squared

# what a careful user passes: no warning of ours is raised
REGRESSOR = {"bounds_X": (-1, 1), "bounds_y": (-1, 1), "random_state": 0}
CLASSIFIER = {"bounds_X": (-1, 1), "random_state": 0}
STRONG = {"epsilon": 50.0, "max_iter": 20}


def regressor(**parameters):
    return DPLassoFW(**REGRESSOR | parameters)


def classifier(classes=(-1.0, 1.0), **parameters):
    return DPLassoFWClassifier(classes=classes, **CLASSIFIER | parameters)


def labelled(names, n=300, d=3, seed=0):
    """A table whose label is the feature with the largest value."""
    X = np.random.default_rng(seed).uniform(-1, 1, (n, d))
    return X, np.asarray(names)[X[:, : len(names)].argmax(axis=1)]


@pytest.mark.filterwarnings("ignore::sklearn_dpsco.BoundsNotDeclaredWarning")
@pytest.mark.filterwarnings("ignore::sklearn_dpsco.PrivacyLeakWarning")
@parametrize_with_checks(
    [
        DPLassoFW(),
        DPLassoFW(solver="selection"),
        DPLassoFW(solver="gradient", loss="huber", relation="zero-out"),
        DPLassoFW(delta=0, fit_intercept=False),
        DPLassoFW(feasible_set="simplex", fit_intercept=False, max_iter=5),
        DPLassoFWClassifier(),
        DPLassoFWClassifier(solver="selection", loss="smoothed_hinge"),
        DPLassoFWClassifier(solver="gradient"),
        DPLassoFWClassifier(delta=0),
        DPPhasedSGDRegressor(),
        DPPhasedSGDRegressor(loss="absolute", feasible_set="unconstrained", max_iter=1),
        DPPhasedSGDRegressor(fit_intercept=False, relation="zero-out", n_phases=2),
        DPPhasedSGDClassifier(),
        DPPhasedSGDClassifier(loss="hinge", max_iter=1),
        DPMirrorRegressor(),
        DPMirrorRegressor(solver="localized", feasible_set="linf", relation="zero-out"),
        DPMirrorRegressor(solver="noisy-sfw", l2_penalty=0.1),
        DPMirrorRegressor(feasible_set="simplex", fit_intercept=False, mirror_map="entropy"),
        DPMirrorClassifier(),
        DPMirrorClassifier(feasible_set="l1", solver="localized", precision="float"),
        DPMirrorClassifier(batch_size=2, relation="zero-out", max_iter=20),
    ]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("make", [regressor, classifier])
def test_nothing_warns_when_everything_is_declared(make):
    X, y = scaled_table(50, 3, task="classification")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make().fit(X, y).predict(X)


def test_warnings_of_what_is_not_declared():
    X, y = scaled_table(50, 3, task="classification")
    with pytest.warns(BoundsNotDeclaredWarning, match="bounds_X"):
        regressor(bounds_X=None).fit(X, y)
    with pytest.warns(BoundsNotDeclaredWarning, match="bounds_y"):
        regressor(bounds_y=None).fit(X, y)
    with pytest.warns(PrivacyLeakWarning, match="Declare the classes"):
        classifier(classes=None).fit(X, y)
    for make in (regressor, classifier):
        with pytest.warns(PrivacyParameterWarning, match="delta=0.02"):
            make(delta=0.02).fit(X, y)
        with pytest.warns(PrivacyParameterWarning):
            make(delta=0.02).plan(50, 3)


# ------------------------------------------------------------- scikit-learn's own tools


def test_pipeline_and_cross_validation():
    X, y = scaled_table(400, 3)
    pipeline = make_pipeline(FunctionTransformer(np.tanh), regressor(**STRONG))
    assert pipeline.fit(X, y).score(X, y) > 0.5
    scores = cross_val_score(pipeline, X, y, cv=3, error_score="raise")
    assert scores.shape == (3,)
    assert scores.min() > 0.4


def test_grid_search_over_epsilon():
    X, y = labelled(["no", "yes"], n=300, d=2)
    search = GridSearchCV(
        make_pipeline(classifier(("no", "yes"), max_iter=20)),
        {"dplassofwclassifier__epsilon": [0.01, 50.0]},
        cv=3,
        error_score="raise",
    ).fit(X, y)
    assert search.best_params_ == {"dplassofwclassifier__epsilon": 50.0}
    assert search.best_estimator_[-1].guarantee_.epsilon == 50.0


@pytest.mark.parametrize("make", [regressor, classifier])
def test_clone_keeps_the_parameters_untouched(make):
    low = np.zeros(3)
    model = make(bounds_X=(low, [1, 1, 1]), epsilon=np.float64(0.3))
    copy = clone(model)
    assert copy.get_params().keys() == model.get_params().keys()
    assert copy.epsilon == 0.3
    X, y = scaled_table(40, 3, task="classification")
    before = {name: id(value) for name, value in model.get_params().items()}
    model.fit(X, y)
    assert {name: id(value) for name, value in model.get_params().items()} == before
    assert not hasattr(clone(model), "coef_")
    assert model.set_params(epsilon=2.0).fit(X, y).guarantee_.epsilon == 2.0


@pytest.mark.parametrize("make", [regressor, classifier])
def test_pickle_round_trip(make):
    X, y = scaled_table(60, 3, task="classification")
    model = make(**STRONG).fit(X, y)
    loaded = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    assert loaded.plan_ == model.plan_
    assert recomputed_epsilon(loaded.guarantee_) <= 50 * (1 + 1e-4)


def test_same_seed_same_model_and_no_seed_another():
    X, y = scaled_table(60, 3)
    coefs = [regressor(random_state=s).fit(X, y).coef_ for s in (0, 0, 1, None, None)]
    np.testing.assert_array_equal(coefs[0], coefs[1])
    for i, j in ((0, 2), (0, 3), (3, 4)):
        assert np.any(coefs[i] != coefs[j])


# ------------------------------------------------------------------- what goes in


def test_data_frame_and_bounds_by_name():
    X, y = scaled_table(80, 3)
    frame = pd.DataFrame(10 * X + 5, columns=["a", "b", "c"])
    bounds_by_name = {"c": (-5, 15), "b": (-5, 15), "a": (-5, 15)}
    model = regressor(bounds_X=bounds_by_name, **STRONG).fit(frame, pd.Series(y))
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    assert model.n_features_in_ == 3
    plain = regressor(bounds_X=(-5, 15), **STRONG).fit(frame.to_numpy(), y)
    np.testing.assert_array_equal(model.coef_, plain.coef_)
    # predictions are those of the scaled problem, up to the rounding of 10 x + 5
    scaled = regressor(**STRONG).fit(X, y)
    np.testing.assert_allclose(model.predict(frame), scaled.predict(X), atol=1e-9)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame.rename(columns={"a": "z"}))


@pytest.mark.parametrize("kind", ["dense", "fortran", "csr", "csc"])
@pytest.mark.parametrize("make", [regressor, classifier])
@pytest.mark.parametrize("scale", [1.0, 3.0])  # within the bounds, and clipped
def test_fit_leaves_the_data_alone(make, kind, scale):
    X, y = scaled_table(50, 3, task="classification", density=0.5)
    X = storage(scale * X, kind)
    before_X, before_y = X.copy(), y.copy()
    make().fit(X, y).predict(X)
    np.testing.assert_array_equal(y, before_y)
    if kind in ("csr", "csc"):
        for part in ("data", "indices", "indptr"):
            np.testing.assert_array_equal(getattr(X, part), getattr(before_X, part))
    else:
        np.testing.assert_array_equal(X, before_X)


@pytest.mark.parametrize("make", [regressor, classifier])
def test_values_out_of_bounds_are_clipped_silently(make):
    X, y = scaled_table(60, 3, task="classification")
    X[::5] *= 100
    y_wild = np.where(np.arange(60) % 7 == 0, 50 * y, y) if make is regressor else y
    wild = make().fit(X, y_wild)
    tame = make().fit(np.clip(X, -1, 1), y)
    np.testing.assert_array_equal(wild.coef_, tame.coef_)
    # and only in fit: a prediction is linear wherever it is asked for
    np.testing.assert_array_equal(wild._raw_prediction(X), X @ wild.coef_.T + wild.intercept_)


def test_a_memmap_within_the_bounds_is_never_copied(tmp_path, monkeypatch):
    X, y = scaled_table(500, 4)
    path = tmp_path / "X.npy"
    np.save(path, X)
    mapped = np.load(path, mmap_mode="r")
    seen = []
    make_rows = _base.make_rows
    monkeypatch.setattr(_base, "make_rows", lambda X, *a: seen.append(X) or make_rows(X, *a))
    model = regressor().fit(mapped, y)
    assert np.shares_memory(seen[0], mapped)
    assert bounds.feature_scaling((-1, 1), 4).transform(mapped) is mapped
    np.testing.assert_array_equal(model.coef_, regressor().fit(X, y).coef_)


def test_one_feature_and_lists():
    model = regressor().fit([[0.5], [-0.5], [0.2]], [1, -1, 0])
    assert model.coef_.shape == (1,)
    assert model.predict([[0.1]]).shape == (1,)


# ------------------------------------------------------------------ what comes out


@pytest.mark.parametrize("kind", ["dense", "csr", "csc"])
def test_regression_attributes_and_predictions(kind):
    X, y = scaled_table(80, 4)
    X = storage(X, kind)
    model = regressor(bounds_y=(-2, 7), **STRONG).fit(X, y)
    assert model.coef_.shape == (4,)
    assert model.coef_.dtype == np.float64
    assert isinstance(model.intercept_, float)
    assert (model.n_iter_, model.n_features_in_) == (20, 4)
    np.testing.assert_array_equal(model.predict(X), X @ model.coef_ + model.intercept_)


def test_a_strong_budget_learns_in_the_units_of_the_user():
    X, _ = scaled_table(3000, 2)
    y = 100 + 8 * X[:, 0] - 4 * X[:, 1]
    model = DPLassoFW(
        bounds_X=(-10, 10), bounds_y=(80, 120), epsilon=50, random_state=0, solver="gradient",
        max_iter=150, radius=2.0, gradient_clip=0.5, data_norm=2.0,
    )  # fmt: skip
    model.fit(10 * X, y)
    np.testing.assert_allclose(model.coef_, [0.8, -0.4], atol=0.08)
    assert model.intercept_ == pytest.approx(100, abs=0.5)
    assert model.score(10 * X, y) > 0.97


@pytest.mark.parametrize(
    ("names", "n_models"),
    [(["no", "yes"], 1), ([3, 1], 1), ([True, False], 1), (["c", "a", "b"], 3), ([2, 0, 1], 3)],
)
def test_labels_and_shapes(names, n_models):
    X, y = labelled(names, n=1500)
    model = classifier(names, epsilon=100.0, max_iter=60).fit(X, y)
    np.testing.assert_array_equal(model.classes_, np.sort(names))
    assert model.coef_.shape == (n_models, 3)
    assert model.intercept_.shape == (n_models,)
    assert model.guarantee_.repetitions == n_models
    assert recomputed_epsilon(model.guarantee_) <= 100 * (1 + 1e-4)
    scores = model.decision_function(X)
    raw = X @ model.coef_.T + model.intercept_
    np.testing.assert_array_equal(scores, raw if n_models > 1 else raw.ravel())
    predicted = model.predict(X)
    best = raw.argmax(axis=1) if n_models > 1 else (raw.ravel() > 0).astype(int)
    np.testing.assert_array_equal(predicted, model.classes_[best])
    assert model.score(X, y) > 0.8

    p = model.predict_proba(X)
    assert p.shape == (1500, len(names))
    assert np.all((p >= 0) & (p <= 1))
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_array_equal(model.classes_[p.argmax(axis=1)], predicted)
    np.testing.assert_array_equal(model.predict_log_proba(X), np.log(p))


def test_classes_of_one_fit_draw_different_noise():
    # the same targets twice: only the noise tells the models apart
    X = np.zeros((30, 3))
    y = np.arange(30) % 3
    model = classifier([0, 1, 2], solver="gradient", max_iter=3).fit(X, y)
    assert np.unique(model.coef_).size == model.coef_.size


def test_declared_classes_may_be_absent():
    X, y = labelled(["a", "b"], n=200)
    model = classifier(["z", "b", "a"]).fit(X, y)
    np.testing.assert_array_equal(model.classes_, ["a", "b", "z"])
    assert model.coef_.shape == (3, 3)
    assert model.predict_proba(X).shape == (200, 3)
    # even all but one: which ones occur is private
    assert classifier(["a", "b"]).fit(X, ["a"] * 200).coef_.shape == (1, 3)


def test_order_of_the_declared_classes_does_not_matter():
    X, y = labelled(["a", "b", "c"])
    models = [classifier(order).fit(X, y) for order in (["a", "b", "c"], ["c", "a", "b"])]
    np.testing.assert_array_equal(models[0].coef_, models[1].coef_)


def test_probabilities_only_where_the_loss_has_them():
    assert hasattr(classifier(), "predict_proba")
    for loss in ("smoothed_hinge", SmoothedHinge(0.5)):
        assert not hasattr(classifier(loss=loss), "predict_proba")
        assert not hasattr(classifier(loss=loss), "predict_log_proba")


@pytest.mark.parametrize("make", [regressor, classifier])
def test_not_fitted(make):
    with pytest.raises(NotFittedError):
        make().predict(np.zeros((2, 2)))


@pytest.mark.parametrize("make", [regressor, classifier])
def test_plan_before_the_data_is_the_plan_of_the_fit(make):
    X, y = scaled_table(70, 3, task="classification")
    model = make(epsilon=0.7)
    before = model.plan(70, 3)
    model.fit(X, y)
    assert model.plan_ == before
    assert model.guarantee_ == before.guarantee
    assert (model.guarantee_.epsilon, model.guarantee_.delta) == (0.7, 1e-6)


def test_plan_of_several_classes():
    model = classifier(["a", "b", "c"])
    assert model.plan(100, 3).guarantee.repetitions == 3
    assert classifier(None).plan(100, 3, n_classes=4).guarantee.repetitions == 4
    assert classifier(None).plan(100, 3).guarantee.repetitions == 1
    with pytest.raises(ValueError, match="n_classes=2"):
        model.plan(100, 3, n_classes=2)


def test_labels_of_another_kind_are_refused_however_many_classes():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 60, 400)
    model = classifier(classes=list(range(60)))
    with pytest.raises(ValueError, match="not among the declared classes"):
        model.fit(rng.uniform(-1, 1, (400, 2)), y.astype(str))


class Tilted(Squared):
    """A subclass whose derivative is not its parent's."""

    def derivative(self, z, y):
        return 0.5 * (z - y) - 0.1


def test_a_subclassed_loss_gives_the_same_model_on_every_storage():
    X, y = scaled_table(200, 3)[:2]
    fits = [regressor(loss=Tilted(), max_iter=5).fit(kind(X), y) for kind in (np.array, csr_matrix)]
    np.testing.assert_allclose(fits[0].coef_, fits[1].coef_, rtol=1e-10)


def test_probabilities_are_those_of_the_fitted_loss():
    X, y = labelled([-1.0, 1.0])
    model = classifier().fit(X, y)
    before = model.predict_proba(X)
    np.testing.assert_array_equal(model.set_params(loss="smoothed_hinge").predict_proba(X), before)
    hinge = classifier(loss="smoothed_hinge").fit(X, y).set_params(loss="logistic")
    assert not hasattr(hinge, "predict_proba")


def test_a_seed_is_flagged_as_not_secret():
    X, y = scaled_table(50, 2)[:2]
    assert not regressor(random_state=0).fit(X, y).noise_is_secret_
    assert not regressor(random_state=np.random.RandomState(0)).fit(X, y).noise_is_secret_
    assert regressor(random_state=None).fit(X, y).noise_is_secret_


def test_a_plan_reads_as_a_table():
    plan = regressor(epsilon=2.0, solver="gradient", max_iter=7).plan(100, 3)
    for text in (str(plan), str(plan.guarantee)):
        lines = text.splitlines()
        assert "epsilon = 2" in text
        assert sum("mean gradient" in line and "7" in line for line in lines) == 1
        assert max(map(len, lines)) < 100


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
