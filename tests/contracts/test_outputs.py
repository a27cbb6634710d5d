"""Several classes and several targets as one model."""

import itertools

import numpy as np
import pandas as pd
import pytest
from registry import (
    CLASSIFIERS,
    STORAGES,
    build,
    descending_forms,
    each_classifier,
    each_form_of,
    each_form_of_regressors,
    each_regressor,
    entry,
    fitted,
    main_form,
    outcome,
    parameters_of,
    relation_of,
    statistics,
    switch_noise_off,
    table,
    ways_to_store,
)
from sklearn.metrics import log_loss, r2_score

from sklearn_dpsco import BudgetAccountant
from sklearn_dpsco.audit import check_sensitivity, neighbours

THREE = ["a", "b", "c"]


def targets(name, n=60, m=3):
    """Features, and targets of different sizes, the first of them that of `table`."""
    X, y = table(name, n)
    return X, np.column_stack([y] + [10.0**k * np.roll(y, k) for k in range(1, m)])


def bounds(m=3):
    ends = 10.0 ** np.arange(m)
    return {"bounds_y": (-ends, ends)}


def declared(name, m=3):
    return bounds(m) if "bounds_y" in parameters_of(name) else {}


@each_form_of_regressors
def test_a_column_is_a_vector_and_its_model_has_one_row(name, form):
    X, y = table(name)
    vector, column = fitted(name, form), build(name, form).fit(X, y[:, None])
    np.testing.assert_array_equal(outcome(vector), outcome(column))
    assert (vector.coef_.shape, np.shape(vector.intercept_)) == ((3,), ())
    assert (column.coef_.shape, column.intercept_.shape) == ((1, 3), (1,))
    assert column.predict(X).shape == (60, 1)
    np.testing.assert_array_equal(column.predict(X)[:, 0], vector.predict(X))


@each_form_of_regressors
def test_several_targets_have_a_row_each(name, form):
    X, Y = targets(name)
    model = build(name, form, **declared(name)).fit(X, Y)
    assert (model.coef_.shape, model.intercept_.shape) == ((3, 3), (3,))
    X_far = np.vstack((X, 1e6 * X))  # where predictions are at the ends of the bounds
    ends = declared(name).get("bounds_y", (-np.inf, np.inf))
    if getattr(model, "limits_X_", None) is None:
        expected = np.clip(X_far @ model.coef_.T + model.intercept_, *ends)
        np.testing.assert_allclose(model.predict(X_far), expected)
    framed = build(name, form, **declared(name)).fit(X, pd.DataFrame(Y, columns=THREE))
    np.testing.assert_array_equal(outcome(model), outcome(framed))
    plan = build(name, form, **declared(name)).plan(60, 3, n_targets=3)
    assert plan.guarantee == model.guarantee_


@each_regressor
def test_each_of_several_targets_is_learned(name):
    X, Y = targets(name, n=500)
    Y = np.column_stack([Y[:, 0], -10 * Y[:, 0], 100 * X[:, 1]])
    model = build(name, epsilon=1e4, **declared(name)).fit(X, Y)
    scores = r2_score(Y, model.predict(X), multioutput="raw_values")
    assert scores.min() > 0.85, scores


@each_form_of_regressors
def test_replays_with_several_targets_pass(name, form):
    relation = relation_of(name, form)
    plan = build(name, form, epsilon=4.0, relation=relation).plan(12, 2, n_targets=3)
    found = check_sensitivity(plan, neighbours(plan.problem, relation, 4))
    # (that every release is moved by some record, the replays of one target show)
    assert not found.violations, found
    assert max(found.ratios.values()) > 0.2


# of answers that are made up
@pytest.mark.filterwarnings("ignore:most values of the target may lie beyond")
@each_form_of_regressors
def test_selections_of_one_range_follow_each_other(name, form):
    # as their composition in Gaussian DP asks for: none of another range between them
    X, Y = targets(name)
    model = build(name, form, epsilon=50.0, **declared(name))
    seen = statistics(model, X, Y)
    runs = [of for of, _ in itertools.groupby(id(m) for m, _ in seen if m.selects)]
    assert len(runs) == len(set(runs))


@each_regressor
def test_one_missing_target_makes_an_empty_record(name):
    X, Y = targets(name)
    Y[7, 1] = np.nan
    accountant = BudgetAccountant(1.0)
    with pytest.raises(ValueError, match="NaN"):
        build(name, accountant=accountant, **declared(name)).fit(X, Y)
    if declared(name):
        with pytest.raises(ValueError, match="bounds_y has the ends of 2 targets, y has 3"):
            build(name, accountant=accountant, **declared(name, 2)).fit(X, np.nan_to_num(Y))
    assert accountant.ledger == ()
    model = build(name, nonfinite="zero", **declared(name)).fit(X, Y)
    Y[7], X[7] = 3.0, np.nan
    empty = build(name, nonfinite="zero", **declared(name)).fit(X, Y)
    np.testing.assert_array_equal(outcome(model), outcome(empty))


def test_each_chunk_of_a_stream_has_the_same_targets():
    name = "DPFTRLRegressor"
    X, Y = targets(name)
    model = build(name, horizon=60, **bounds()).partial_fit(X[:20], Y[:20])
    for other in (Y[20:, :2], Y[20:, 0]):
        with pytest.raises(ValueError, match="same targets"):
            model.partial_fit(X[20:], other)
    model.partial_fit(X[20:], Y[20:])
    whole = build(name, horizon=60, **bounds()).partial_fit(X, Y)
    np.testing.assert_array_equal(outcome(model), outcome(whole))


@each_form_of(CLASSIFIERS, descending_forms)
def test_storage_of_several_classes_does_not_matter(name, form, monkeypatch):
    switch_noise_off(monkeypatch)
    X, y = table(name, classes=THREE)
    models = []
    for kind, settings in ways_to_store(name, form):
        model = build(name, form, classes=THREE, **entry(name).sparse | settings)
        models.append(model.fit(STORAGES[kind](X), y))
    for model in models[1:]:
        np.testing.assert_allclose(outcome(model), outcome(models[0]), atol=1e-10)


@each_classifier
def test_the_likeliest_class_is_the_predicted_one_however_far_a_row_is(name):
    X, y = table(name, classes=THREE)
    model = build(name, main_form(name), classes=THREE, epsilon=8.0).fit(X, y)
    rng = np.random.default_rng(0)
    model.coef_, model.intercept_ = rng.normal(size=(3, 3)), rng.normal(size=3)
    for scale in (1.0, 1e3, 1e30):
        far = scale * rng.uniform(-1, 1, (500, 3))
        found = model.predict_proba(far)
        np.testing.assert_allclose(found.sum(axis=1), 1.0)
        np.testing.assert_array_equal(model.classes_[found.argmax(axis=1)], model.predict(far))
    assert np.isfinite(log_loss(y, model.predict_proba(X)))


@each_classifier
def test_other_losses_of_several_classes_have_no_probabilities(name):
    if "loss" not in parameters_of(name):
        return  # it has that of its name
    X, y = table(name, classes=THREE)
    model = build(name, main_form(name), classes=THREE, loss="smoothed_hinge").fit(X, y)
    assert model.coef_.shape == (3, 3)
    assert not hasattr(model, "predict_proba")
    assert set(model.predict(X)) <= set(THREE)
