"""The contract of scikit-learn: checks, clones, pipelines, searches, frames, attributes."""

import pickle
import re
import warnings
from pathlib import Path
from zlib import crc32

import numpy as np
import pandas as pd
import pytest
from registry import (
    ESTIMATORS,
    ONE_OF_EACH_SOLVER,
    STORAGES,
    build,
    columns_as,
    descending_forms,
    each,
    each_classifier,
    each_descending_form,
    each_form,
    each_form_of_all,
    each_reader,
    each_reader_of_labels,
    each_solver,
    entry,
    fitted,
    is_classifier,
    kind_of,
    main_form,
    outcome,
    parameters_of,
    predictions_of,
    table,
)
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks
from support import rest_is_slow

from sklearn_dpsco import (
    BoundsNotDeclaredWarning,
    DPFTRLClassifier,
    DPFTRLRegressor,
    DPLassoFW,
    DPLassoFWClassifier,
    DPMirrorClassifier,
    DPMirrorRegressor,
    DPPhasedSGDClassifier,
    DPPhasedSGDRegressor,
    DPScaler,
    HeavyTailDPClassifier,
    HeavyTailDPRegressor,
    PrivacyLeakWarning,
    PrivacyParameterWarning,
    expected_failed_checks,
)
from sklearn_dpsco.solvers import (
    FTRL,
    SCOF,
    Gradient,
    Localized,
    NoisyMD,
    NoisySFW,
    PhasedSGD,
    SCOFSlices,
    Selection,
)

ROOT = Path(__file__).parents[2]
STRONG = {"epsilon": 100.0}

undeclared = pytest.mark.filterwarnings(
    "ignore::sklearn_dpsco.BoundsNotDeclaredWarning", "ignore::sklearn_dpsco.PrivacyLeakWarning"
)


def test_every_public_estimator_is_registered():
    assert len(ESTIMATORS) >= 10
    for name in ESTIMATORS:
        assert entry(name).forms, name


# -------------------------------------------------------------------- scikit-learn's checks


# what an estimator decides by the names and defaults of its parameters and its base classes
OF_THE_CLASS = {
    "check_do_not_raise_errors_in_init_or_set_params",
    "check_estimator_cloneable",
    "check_estimator_repr",
    "check_estimator_tags_renamed",
    "check_estimators_unfitted",
    "check_get_params_invariance",
    "check_mixin_order",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_set_params",
    "check_valid_tag_types",
}


def rest_of_checks_is_slow(checks):
    """Those that no estimator can pass, and but for the class those of all but one, by turns.

    As they are of tables, and of parameters that all estimators share; see `each_reader`.
    """
    names, cases = checks.args
    marked, solvers = [], {}
    for estimator, check in (getattr(case, "values", case) for case in cases):
        if type(estimator).__name__ in ONE_OF_EACH_SOLVER:
            check_name = getattr(check, "func", check).__name__
            solvers.setdefault(check_name, []).append(type(estimator).__name__)
    for case in cases:
        values, marks = getattr(case, "values", case), [*getattr(case, "marks", ())]
        estimator, check = values
        check_name = getattr(check, "func", check).__name__
        of_check = solvers[check_name]
        one = of_check[crc32(check_name.encode()) % len(of_check)]
        if marks or not (check_name in OF_THE_CLASS or type(estimator).__name__ == one):
            marks.append(pytest.mark.slow)
        marked.append(pytest.param(*values, marks=marks))
    return pytest.mark.parametrize(names, marked, **checks.kwargs)


@undeclared
@rest_of_checks_is_slow(
    parametrize_with_checks(
        [kind_of(name)() for name in ESTIMATORS],
        expected_failed_checks=expected_failed_checks,
    )
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


# other paths than the defaults take; the first two are always run
OTHER_FORMS = (
    DPLassoFWClassifier(solver=Gradient(max_iter=5), nonfinite="zero"),
    HeavyTailDPRegressor(solver=SCOFSlices(max_iter=2), center_X=0.0, delta=0),
    DPPhasedSGDRegressor(
        loss="absolute", feasible_set="unconstrained", solver=PhasedSGD(max_iter=1)
    ),
    DPMirrorRegressor(solver=Localized(max_iter=2), feasible_set="linf", relation="zero-out"),
    DPFTRLClassifier(loss="hinge", feasible_set="l1"),
    DPLassoFW(delta=0, fit_intercept=False),
    DPLassoFW(solver=Selection(max_iter=5)),
    DPLassoFW(solver="gradient", loss="huber", relation="zero-out"),
    DPLassoFW(feasible_set="simplex", fit_intercept=False, solver=Gradient(max_iter=5)),
    DPLassoFWClassifier(solver="selection", loss="smoothed_hinge"),
    DPLassoFWClassifier(delta=0),
    DPMirrorRegressor(solver=Localized(max_iter=2)),
    DPMirrorRegressor(solver=NoisySFW(l2_penalty=0.1)),
    DPMirrorRegressor(
        feasible_set="simplex", fit_intercept=False, solver=NoisyMD(mirror_map="entropy")
    ),
    DPMirrorClassifier(feasible_set="l1", solver=Localized(max_iter=2), precision="float"),
    DPPhasedSGDRegressor(fit_intercept=False, relation="zero-out", solver=PhasedSGD(n_phases=2)),
    DPPhasedSGDClassifier(solver=PhasedSGD(max_iter=1), fit_intercept=False, relation="zero-out"),
    DPPhasedSGDClassifier(loss="hinge", solver=PhasedSGD(max_iter=1)),
    HeavyTailDPClassifier(solver=SCOF(max_iter=3)),
    DPFTRLRegressor(loss="absolute", relation="zero-out", solver=FTRL(average=False)),
    DPFTRLRegressor(feasible_set="simplex", fit_intercept=False, solver=FTRL(batch_size=7)),
)


@pytest.mark.filterwarnings("ignore")
@rest_is_slow("number", range(len(OTHER_FORMS)), ("0", "1"))
def test_scikit_learn_checks_of_other_forms(number):
    model = OTHER_FORMS[number]
    found = check_estimator(model, on_skip=None, on_fail=None)
    failed = [(r["check_name"], r["exception"]) for r in found if r["status"] == "failed"]
    assert len(found) > 50
    names = {name for name, _ in failed}
    assert names <= set(expected_failed_checks(model)), failed
    takes_nan = model.nonfinite == "zero"
    assert takes_nan != ("check_estimators_nan_inf" in {r["check_name"] for r in found})
    assert ("check_fit_score_takes_y" in names) == hasattr(model, "partial_fit")


def test_checks_that_fail_are_told_with_reasons_in_the_guide():
    page, told = (ROOT / "doc" / "coming_from_scikit_learn.rst").read_text(), set()
    for name in ESTIMATORS:
        for mode in ("raise", "zero"):
            told |= set(expected_failed_checks(build(name, nonfinite=mode)))
    assert set(re.findall(r"``(check_\w+)``", page)) - {"check_estimator"} == told
    assert expected_failed_checks(DPScaler()) == expected_failed_checks(None) == {}


# -------------------------------------------------------------------------- parameters


@each_solver
def test_parameters_are_left_as_they_are(name):
    arrays = {"bounds_X": (-np.ones(3), [1, 1, 1]), "scale_X": np.ones(3)}
    arrays = {key: value for key, value in arrays.items() if key in parameters_of(name)}
    model = build(name, main_form(name), epsilon=np.float64(0.3), **arrays)
    identities = {key: id(value) for key, value in model.get_params().items()}
    copies = {key: repr(value) for key, value in model.get_params().items()}
    X, y = table(name)
    model.fit(X, y).predict(X)
    assert {key: id(value) for key, value in model.get_params().items()} == identities
    assert {key: repr(value) for key, value in model.get_params().items()} == copies
    assert model.guarantee_.epsilon == 0.3
    twin = clone(model)
    assert {key: repr(value) for key, value in twin.get_params().items()} == copies
    assert not hasattr(twin, "coef_")
    assert model.set_params(epsilon=2.0).fit(X, y).guarantee_.epsilon == 2.0
    assert f"{name}(" in repr(model)


@each_form
def test_pickles_hold_the_model(name, form):
    X, y = table(name)
    model = fitted(name, form)
    loaded = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    assert loaded.plan_ == model.plan_
    assert loaded.guarantee_ == model.guarantee_
    assert str(loaded.plan_) == str(model.plan_)
    again = loaded.fit(X, y)
    np.testing.assert_array_equal(outcome(again), outcome(model))


@each_solver
def test_no_target_of_a_record_is_kept(name):
    """Neither as an entry nor as the memory that a view of none of them holds."""
    kept = fitted(name)._targets.y
    assert kept.size == 0
    assert kept.base is None


@each_solver
def test_tags_say_what_is_accepted(name):
    X, y = table(name)
    dense, with_sparse = build(name), build(name, **entry(name).sparse)
    assert get_tags(with_sparse).input_tags.sparse
    if not get_tags(dense).input_tags.sparse:
        with pytest.raises(ValueError, match="sparse"):
            dense.fit(STORAGES["csr"](X), y)
    with_sparse.fit(STORAGES["csr"](X), y)
    for mode in ("raise", "zero"):
        assert get_tags(build(name, nonfinite=mode)).input_tags.allow_nan == (mode == "zero")
    tags = get_tags(dense)
    assert tags.target_tags.required
    assert tags.estimator_type == ("classifier" if is_classifier(name) else "regressor")


@each_descending_form
def test_a_seed_decides_the_noise(name, form):
    X, y = table(name)
    same = build(name, form).fit(X, y)
    np.testing.assert_array_equal(outcome(fitted(name, form)), outcome(same))
    # no grid on which two draws may meet, and too little noise for any to be clipped
    far_apart = {"precision": "float", **STRONG}
    models = [
        build(name, form, random_state=seed, **far_apart).fit(X, y)
        for seed in (0, 1, np.random.RandomState(0), None, None)
    ]
    intercepts = np.ravel([model.intercept_ for model in models])
    assert np.unique(intercepts).size == len(models)
    assert [m.noise_is_secret_ for m in models] == [False, False, False, True, True]


# -------------------------------------------------------------------- scikit-learn's tools


@each_reader
def test_data_frames_and_declarations_by_name(name):
    X, y = table(name)
    frame = columns_as(X)
    plain = fitted(name)
    model = build(name).fit(frame, pd.Series(y))
    np.testing.assert_allclose(outcome(model), outcome(plain), rtol=1e-9, atol=1e-12)
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    if is_classifier(name):
        np.testing.assert_array_equal(model.predict(frame), plain.predict(X))
    else:
        np.testing.assert_allclose(model.predict(frame), plain.predict(X), rtol=1e-9)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame.rename(columns={"a": "z"}))
    # other declarations for each column, by name in any order
    for key, value in entry(name).columns.items():
        by_column = [value, value, value]
        if np.ndim(value):
            by_column = [(2 * value[0], value[1]), value, (value[0], 3 * value[1])]
            in_arrays = tuple(np.transpose(by_column))
        else:
            by_column = in_arrays = [value + 1, value + 2, value + 4]
        named = {"c": by_column[2], "a": by_column[0], "b": by_column[1]}
        by_name = build(name, **{key: named}).fit(frame, y)
        in_order = build(name, **{key: in_arrays}).fit(frame, y)
        np.testing.assert_array_equal(outcome(by_name), outcome(in_order), err_msg=key)


@each_reader
def test_pipelines_cross_validation_and_searches(name):
    X, y = table(name, n=200)
    step = name.lower()
    pipeline = make_pipeline(FunctionTransformer(np.tanh), build(name, main_form(name), **STRONG))
    assert pipeline.fit(X, y).predict(X).shape == (200,)
    scores = cross_val_score(pipeline, X, y, cv=3, error_score="raise")
    assert np.all(np.isfinite(scores))
    grid = {f"{step}__epsilon": [0.1, 100.0], f"{step}__max_weight": [1.0, 2.0]}
    search = GridSearchCV(pipeline, grid, cv=2, error_score="raise").fit(X, y)
    best = search.best_estimator_[-1]
    assert best.guarantee_.epsilon == search.best_params_[f"{step}__epsilon"]
    assert best.n_features_in_ == 3


# ---------------------------------------------------------------------------- attributes


@each_form_of_all
def test_attributes_and_linear_predictions(name, form):
    X, y = table(name)
    far = 50 * X  # predictions are linear wherever they are asked for
    # (where slopes may be left out as noise, with little of it)
    may_leave_out = entry(name).of_rates or form == "learned-units"
    may_leave_out |= name == "DPLogisticRegression"
    model = build(name, form, **STRONG).fit(X, y) if may_leave_out else fitted(name, form)
    shape = (1, 3) if is_classifier(name) else (3,)
    assert (model.coef_.shape, model.coef_.dtype) == (shape, np.float64)
    assert model.n_features_in_ == 3
    assert model.n_iter_ >= 1
    assert model.guarantee_ == model.plan_.guarantee
    if is_classifier(name):
        assert model.intercept_.shape == (1,)
        predict = model.decision_function
    else:
        assert isinstance(model.intercept_, float)
        predict = model.predict
    if getattr(model, "limits_X_", None) is not None:  # or in features within released limits
        far = np.clip(far, *model.limits_X_)
    for storage in STORAGES.values():
        rows = storage(far)  # dense ones are read in C order, whatever the table's
        rows = rows if sparse.issparse(rows) else np.ascontiguousarray(rows)
        expected = np.ravel(rows @ model.coef_.T + model.intercept_)
        found = predict(storage(50 * X))
        np.testing.assert_array_equal(found, predictions_of(name, expected, model))
    assert np.any(model.coef_ != 0) == (form in descending_forms(name))


@each
def test_before_a_fit_and_with_other_columns(name):
    X, y = table(name)
    model = build(name)
    methods = [
        method
        for method in ("predict", "decision_function", "predict_proba", "predict_log_proba")
        if hasattr(model, method)
    ]
    assert "predict" in methods
    for method in methods:
        with pytest.raises(NotFittedError):
            getattr(model, method)(X)
    with pytest.raises(NotFittedError):
        model.score(X, y)
    assert not [key for key in vars(model) if key.endswith("_")]
    model = fitted(name)
    for method in methods:
        with pytest.raises(ValueError, match="2 features"):
            getattr(model, method)(X[:, :2])


@each
def test_a_large_budget_learns_in_the_units_of_the_user(name):
    rng = np.random.default_rng(0)
    X = rng.uniform(-10, 10, (4000, 2))
    signal = 3 * X[:, 0] - 2 * X[:, 1]
    begins_at_0 = entry(name).of_rates and name != "DPGammaRegressor"
    settings = {"bounds_X": (-10, 10), "bounds_y": (0 if begins_at_0 else 50, 150)}
    settings = {key: value for key, value in settings.items() if key in parameters_of(name)}
    y = np.where(signal > 0, "yes", "no") if is_classifier(name) else 100 + signal
    model = build(name, **STRONG, **settings).fit(X, y)
    assert model.score(X, y) > 0.9
    ratio = np.ravel(model.coef_)[0] / np.ravel(model.coef_)[1]
    assert ratio == pytest.approx(-1.5, abs=0.4)


# ------------------------------------------------------------------------------ warnings


@pytest.mark.filterwarnings("ignore:most values of the target may lie beyond")  # of (0.001, 1)
@each_reader
def test_warnings_tell_what_is_not_declared(name):
    X, y = table(name, n=300)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        build(name, main_form(name)).fit(X, y).predict(X)
    for key in ("bounds_X", "bounds_y"):
        if key in parameters_of(name):
            with pytest.warns(BoundsNotDeclaredWarning, match=key) as caught:
                build(name, main_form(name), **{key: None}).fit(X, y)
            told = [w for w in caught if w.category is BoundsNotDeclaredWarning]
            assert [w.filename for w in told] == [__file__]  # the line of the user
    if is_classifier(name):
        with pytest.warns(PrivacyLeakWarning, match="Declare the classes") as caught:
            build(name, main_form(name), classes=None).fit(X, y)
        assert [w.filename for w in caught] == [__file__]
    for call in (lambda model: model.fit(X, y), lambda model: model.plan(300, 3)):
        with pytest.warns(PrivacyParameterWarning, match=r"delta=0\.02") as caught:
            call(build(name, main_form(name), delta=0.02))
        assert [w.filename for w in caught] == [__file__]


# ------------------------------------------------------------------------------- classes


@each_reader_of_labels
def test_labels_of_all_kinds(name):
    for labels in (["no", "yes"], [3, 1], [True, False], [0.5, -1.0], ["c", "a", "b"], [2, 0, 1]):
        X, y = table(name, n=300, classes=labels)
        model = build(name, main_form(name), classes=labels, **STRONG).fit(X, y)
        n_outputs = 1 if len(labels) == 2 else 3
        np.testing.assert_array_equal(model.classes_, np.sort(labels))
        assert model.coef_.shape == (n_outputs, 3), labels
        assert model.intercept_.shape == (n_outputs,), labels
        raw = X @ model.coef_.T + model.intercept_
        scores = model.decision_function(X)
        np.testing.assert_array_equal(scores, raw if n_outputs > 1 else raw.ravel())
        best = raw.argmax(axis=1) if n_outputs > 1 else (raw.ravel() > 0).astype(int)
        predicted = model.predict(X)
        np.testing.assert_array_equal(predicted, model.classes_[best])
        assert model.score(X, y) == pytest.approx(np.mean(predicted == y), abs=1e-12)
        p = model.predict_proba(X)
        assert p.shape == (300, len(labels))
        assert np.all((p >= 0) & (p <= 1))
        np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-12)
        np.testing.assert_array_equal(model.classes_[p.argmax(axis=1)], predicted)
        np.testing.assert_array_equal(model.predict_log_proba(X), np.log(p))


@each_reader_of_labels
def test_declared_classes_may_be_absent_and_in_any_order(name):
    X, y = table(name, classes=("a", "b"))
    form = main_form(name)
    models = [build(name, form, classes=list(order)).fit(X, y) for order in ("baz", "zab")]
    np.testing.assert_array_equal(models[0].classes_, ["a", "b", "z"])
    np.testing.assert_array_equal(outcome(models[0]), outcome(models[1]))
    assert models[0].predict_proba(X).shape == (60, 3)
    # even all but one: which ones occur is private
    alone = build(name, form, classes=["a", "b"]).fit(X, ["a"] * 60)
    assert alone.coef_.shape == (1, 3)


@each_classifier
def test_probabilities_are_those_of_the_loss_of_the_fit(name):
    X, y = table(name)
    model = build(name).fit(X, y)
    before = model.predict_proba(X)
    if "loss" not in parameters_of(name):
        return  # it has that of its name
    np.testing.assert_array_equal(model.set_params(loss="smoothed_hinge").predict_proba(X), before)
    hinge = build(name, loss="smoothed_hinge")
    for found in (hinge, hinge.fit(X, y), hinge.set_params(loss="logistic")):
        assert not hasattr(found, "predict_proba")
        assert not hasattr(found, "predict_log_proba")
