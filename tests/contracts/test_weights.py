"""Weights of records and of classes, for every estimator and form."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from registry import (
    CLASSIFIERS,
    ESTIMATORS,
    STORAGES,
    build,
    changes,
    descending_forms,
    each_classifier,
    each_form,
    each_form_of,
    each_form_of_classifiers,
    each_form_of_readers,
    each_reader,
    each_reader_of_labels,
    each_solver,
    entry,
    forms,
    is_classifier,
    main_form,
    nothing_is_released,
    outcome,
    readers,
    relation_of,
    statistics,
    table,
    targets_of,
)
from sklearn import config_context
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import AdaBoostClassifier, BaggingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from support import half_is_enough, problem
from test_audits import THREE, replay

from sklearn_dpsco import BudgetAccountant, PrivacyLeakWarning
from sklearn_dpsco.estimators import _records
from sklearn_dpsco.solvers import Localized
from sklearn_dpsco.solvers.statistics import constant_for_mean

SCALES = (0.25, 0.5, 1.0, 1.0)


def tables(name):
    """Pairs (parameters, X, y): one output, and several where an estimator takes them."""
    yield {}, *table(name)
    X, y = table(name, classes=("a", "b", "c"))
    if is_classifier(name):
        yield {"classes": ["a", "b", "c"]}, X, y
    elif not entry(name).of_rates:
        yield {}, X, np.column_stack((y, -0.5 * y))


def cases(name, form):
    """One output, and several on every second form; dense and CSR data by turns."""
    k = forms(name).index(form)
    for number, (settings, X, y) in enumerate(tables(name)):
        kind = "csr" if (k // 2 + k + number) % 2 else "C"
        further = entry(name).sparse if kind == "csr" else {}
        if number == 0 or k % 2 == 0:
            yield f"{kind} {np.shape(y)}", STORAGES[kind](X), y, settings | further


def fitted(name, form, X, y, sample_weight=None, **settings):
    # (an epsilon by which no centre is below its noise)
    model = build(name, form, **{"epsilon": 50.0} | settings)
    return outcome(model.fit(X, y, sample_weight=sample_weight))


# ------------------------------------------------------------------------- weights of records


@each_form
def test_weights_of_one_change_no_bit(name, form):
    turn = forms(name).index(form) // 2
    descends = hasattr(build(name, form, epsilon=50.0).plan(60, 3), "correction")
    has_levels = descends or (name.startswith("DPPhased") and form.startswith("learned"))
    if has_levels and is_classifier(name):
        pytest.skip("of labels with weights, the weights of the classes are released")
    for case, X, y, settings in cases(name, form):
        # (where units are learned, the number of valid records is released if some may be empty)
        is_learned = descends or form in entry(name).unlike_sums
        settings["nonfinite"] = "zero" if is_learned else ("raise", "zero")[turn % 2]
        without = fitted(name, form, X, y, **settings)
        weighted = fitted(name, form, X, y, np.ones(len(y)), **settings)
        np.testing.assert_array_equal(weighted, without, err_msg=case)


@each_form_of_readers
def test_only_the_ratio_to_the_largest_weight_counts(name, form):
    weights = np.random.default_rng(0).choice(SCALES, 60)
    for case, X, y, settings in cases(name, form):
        found = fitted(name, form, X, y, weights, **settings)
        scaled = fitted(name, form, X, y, 64 * weights, max_weight=64.0, **settings)
        np.testing.assert_array_equal(scaled, found, err_msg=case)
        larger = np.where(weights == 1, 7.5, weights)
        clipped = fitted(name, form, X, y, larger, **settings)
        np.testing.assert_array_equal(clipped, found, err_msg=case)
        without = fitted(name, form, X, y, **settings)
        # (few noisy selections may all be the same ones)
        assert form in entry(name).by_selection or np.any(found != without), case


@each_form_of_readers
def test_records_of_weight_zero_are_empty(name, form):
    weights = np.random.default_rng(0).choice([*SCALES, 0.0, 0.0], 60)
    for case, X, y, settings in cases(name, form):
        found = fitted(name, form, X, y, weights, **settings)
        other_X, other_weights = X.copy(), weights.copy()
        other_X = other_X.toarray() if not isinstance(X, np.ndarray) else other_X
        other_X[weights == 0], other_weights[weights == 0] = np.nan, 1.0
        other_X = other_X if isinstance(X, np.ndarray) else STORAGES["csr"](other_X)
        settings["nonfinite"] = "zero"
        empty = fitted(name, form, other_X, y, other_weights, **settings)
        np.testing.assert_array_equal(found, empty, err_msg=case)


BAD_WEIGHTS = (-1.0, np.nan, np.inf, -np.inf, None, "heavy", 1j, object())


@each_reader
def test_invalid_weights(name):
    X, y = table(name)
    good = [1.0, 0.5] * 30
    for bad in BAD_WEIGHTS:
        weights = [bad, *good[1:]]
        accountant = BudgetAccountant(100.0)
        for method in ("fit", "partial_fit"):
            model = build(name, main_form(name), accountant=accountant)
            if hasattr(model, method):
                with nothing_is_released(), pytest.raises(ValueError, match="sample_weight") as e:
                    getattr(model, method)(X, y, sample_weight=weights)
                assert "0.5" not in str(e.value)
        assert accountant.ledger == ()
        invalid = fitted(name, main_form(name), X, y, weights, nonfinite="zero")
        other_X = X.copy()
        other_X[0] = np.nan
        empty = fitted(name, main_form(name), other_X, y, good, nonfinite="zero")
        np.testing.assert_array_equal(invalid, empty)


@each_reader
def test_weights_of_another_shape_or_type(name):
    X, y = table(name)
    accountant = BudgetAccountant(1.0)
    for nonfinite in ("raise", "zero"):
        for bad, match in (
            (1.0, "must have the shape"),
            (np.ones((60, 1)), "must have the shape"),
            (pd.DataFrame({"w": np.ones(60)}), "must have the shape"),
            (np.ones(59), r"inconsistent numbers of samples: \[60, 59\], of X and sample_weight"),
            ("w", r"sample_weight must have the shape .* table\['sample_weight'\]"),
            (np.array(["1"] * 60), "sample_weight must hold numbers"),
            (np.ones(60) + 1j, "sample_weight must hold numbers"),
        ):
            with pytest.raises(ValueError, match=match):
                build(name, main_form(name), nonfinite=nonfinite, accountant=accountant).fit(
                    X, y, sample_weight=bad
                )
    assert accountant.ledger == ()
    weights = np.random.default_rng(0).choice(SCALES, 60)
    form = main_form(name)
    expected = fitted(name, form, X, y, weights)
    for same in (list(weights), pd.Series(weights), weights.astype(np.float32)):
        np.testing.assert_array_equal(fitted(name, form, X, y, same), expected)
    halves = fitted(name, form, X, y, (weights > 0.5).astype(float))
    for same in (weights > 0.5, (weights > 0.5).astype(int)):
        np.testing.assert_array_equal(fitted(name, form, X, y, same), halves)


@pytest.mark.parametrize("name", ["DPFTRLRegressor", "DPFTRLClassifier"])
def test_weights_of_a_stream(name):
    X, y = table(name)
    weights = np.random.default_rng(0).choice([*SCALES, 0.0], 60)
    settings = {"horizon": 60, "epsilon": 50.0}
    whole = build(name, **settings).partial_fit(X, y, sample_weight=weights)
    chunked = build(name, **settings)
    for part in (slice(0, 7), slice(7, 31), slice(31, 60)):
        chunked.partial_fit(X[part], y[part], sample_weight=weights[part])
    np.testing.assert_array_equal(outcome(chunked), outcome(whole))
    without = build(name, **settings).partial_fit(X, y)
    assert np.any(outcome(without) != outcome(whole))
    ones = build(name, **settings).partial_fit(X[:30], y[:30])
    ones.partial_fit(X[30:], y[30:], sample_weight=np.ones(30))
    np.testing.assert_array_equal(outcome(ones), outcome(without))
    model = build(name, **settings).partial_fit(X[:9], y[:9], sample_weight=weights[:9])
    before = model._stream.run
    with pytest.raises(ValueError, match="sample_weight"):
        model.partial_fit(X[9:], y[9:], sample_weight=-weights[9:] - 1)
    assert model._stream.run is before


# ---------------------------------------------------------------------------------- privacy


@each_form
def test_a_record_of_any_weight_moves_a_release_by_its_sensitivity(name, form):
    X, y = table(name)
    rng = np.random.default_rng(1)
    model = build(name, form, max_weight=0.5)
    weights = rng.choice([*SCALES, 0.0, 9.0], 60)
    other_X, other_y, other_weights = X.copy(), y.copy(), weights.copy()
    y = y.copy()
    y[3], other_y[3] = ("no", "yes") if is_classifier(name) else targets_of(name, [-1, 1])
    other_X[3], weights[3], other_weights[3] = rng.choice([-1.0, 1.0], 3), 1e9, 0.5
    first, second = (
        statistics(model, *data)
        for data in ((X, y, None, weights), (other_X, other_y, None, other_weights))
    )
    assert 0 < max(changes(first, second).values()) <= 1 + 1e-9


@each_form_of(ESTIMATORS, descending_forms, readers)
def test_replays_flag_weights_that_are_not_clipped(name, form, monkeypatch):
    def unclipped(sample_weight, largest, *, strict):
        return np.asarray(sample_weight, dtype=np.float64) * 5 / largest

    monkeypatch.setattr(_records.cells, "as_weights", unclipped)
    # (where coordinates are clipped after they are weighted, no weight does harm)
    is_clipped = form in ("guesses", "buckets")
    relation = relation_of(name, form)
    found = replay(name, form, relation, max_weight=2.0, n_pairs=6)
    assert found.passed == is_clipped
    assert is_clipped or any("sensitivity" in said for said in found.violations.values())


# -------------------------------------------------------------------------------- solutions


def two_clusters(name, n=2000):
    """One column of -1 and 1, where the targets of both clusters are high for half of the records.

    Without weights the model is 0; high targets weigh 4 times as much at 1, and low ones at -1.
    """
    x, high = np.repeat([1.0, -1.0], n // 2), np.arange(n) % 2 == 0
    weights = np.where(high == (x > 0), 4.0, 1.0)
    levels = (2.0, 0.25) if entry(name).of_rates else (0.5, -0.5)
    y = np.where(high, *(("yes", "no") if is_classifier(name) else levels))
    order = np.random.default_rng(0).permutation(n)
    return x[order, None], y[order], weights[order]


SOLVERS = {
    "DPLassoFW": ("auto", "gradient", "selection", "rounds", "tree"),
    "DPMirrorRegressor": ("auto", "noisy-md", Localized(max_iter=30), "proximal", "noisy-sfw"),
    "HeavyTailDPRegressor": ("descent", "scof", "scof-slices"),
}


@each_solver
def test_models_are_weighted_ones_where_there_is_hardly_noise(name):
    X, y, weights = two_clusters(name)
    solution = np.log(4) if is_classifier(name) else 0.3
    if entry(name).of_rates:  # means of 1.65 and .6
        solution = np.log(1.65 / 0.6) / 2
    regressor = name.replace("DPLassoFWClassifier", "DPLassoFW").replace("Classifier", "Regressor")
    for solver in SOLVERS.get(regressor, (None,)):
        settings = {} if solver is None else {"solver": solver}
        model = build(name, epsilon=1e6, max_weight=4.0, **settings)
        plain = np.ravel(model.fit(X, y).coef_)[0]
        found = np.ravel(model.fit(X, y, sample_weight=weights).coef_)[0]
        intercept = np.ravel(model.intercept_)[0]
        assert abs(plain) < 0.15 * solution, solver
        # (slices have a few short steps)
        is_short = solver == "scof-slices"
        assert found == pytest.approx(solution, rel=0.4 if is_short else 0.1), solver
        assert abs(intercept) < 0.25 * solution, solver


# ------------------------------------------------------------------------- weights of classes

BALANCING = [name for name in CLASSIFIERS if not name.startswith("DPFTRL")]
each_balancing = pytest.mark.parametrize("name", BALANCING)


@each_form_of_classifiers
def test_weights_of_classes_are_those_of_their_records(name, form):
    rng = np.random.default_rng(0)
    for number, (settings, X, y) in enumerate(tables(name)):
        weights = rng.choice(SCALES, 60)
        dictionary = {np.unique(y)[0]: 2, np.unique(y)[-1]: 0.5}  # a third class has 1
        by_record = np.array([dictionary.get(label, 1) for label in y])
        # without the intercept, whose start the weights of the classes move
        settings["fit_intercept"] = False
        # where weights are given, some may be 0, and their number is released
        given = (np.ones(60), weights)[(forms(name).index(form) + number) % 2]
        found = fitted(name, form, X, y, given, class_weight=dictionary, **settings)
        same = by_record * given
        expected = fitted(name, form, X, y, same, max_weight=2.0, **settings)
        np.testing.assert_array_equal(found, expected)
        equal = fitted(name, form, X, y, class_weight=dict.fromkeys(y, 3.0), **settings)
        np.testing.assert_array_equal(equal, fitted(name, form, X, y, **settings))


@each_classifier
def test_classes_of_weight_zero_are_left_out(name):
    X, y = table(name, classes=("a", "b", "c"))
    settings = {"classes": ["a", "b", "c"], "nonfinite": "zero", "fit_intercept": False}
    found = fitted(name, None, X, y, class_weight={"b": 0}, **settings)
    other_X = X.copy()
    other_X[y == "b"] = np.nan
    expected = fitted(name, None, other_X, y, np.ones(60), **settings)
    np.testing.assert_array_equal(found, expected)


@each_form_of_classifiers
def test_weights_of_classes_cost_nothing(name, form):
    for classes in (["no", "yes"], ["a", "b", "c"]):
        plans = [
            build(name, form, classes=classes, class_weight=weights).plan(60, 3)
            for weights in (None, {classes[0]: 0.1}, "balanced")[: 3 if name in BALANCING else 2]
        ]
        for plan in plans[1:]:
            assert plan.guarantee == plans[0].guarantee
    X, y = table(name)
    weighted = build(name, form, class_weight={"yes": 2.0}).fit(X, y)
    assert weighted.plan_ == build(name, form, class_weight={"yes": 2.0}).plan(60, 3)


@half_is_enough
@each_form_of_classifiers
def test_replays_of_weighted_classes_pass(name, form, cells):
    relation, two = relation_of(name, form), ["no", "yes"]
    cases = ((False, two), (True, THREE), (True, two))
    for balanced, classes in cases if cells == "all" else cases[CLASSIFIERS.index(name) % 3 :][:1]:
        weights = {classes[0]: 0.25} if name not in BALANCING or not balanced else "balanced"
        settings = {"n_pairs": 4, "classes": classes, "class_weight": weights}
        found = replay(name, form, relation, n=9, **settings)
        assert not found.violations, found


@each_classifier
def test_class_weights_that_cannot_be_meant(name):
    X, y = table(name)
    accountant = BudgetAccountant(1.0)
    undeclared = build(name, classes=None, class_weight={"maybe": 1}, accountant=accountant)
    unknown = pytest.raises(ValueError, match=r"not among the classes: .'maybe'")
    with pytest.warns(PrivacyLeakWarning), unknown:
        undeclared.fit(X, y)
    with pytest.raises(ValueError, match="classes must be declared for a plan"):
        build(name, classes=None, class_weight={"no": 1}).plan(60, 3)
    balanced = build(name, class_weight="balanced", fit_intercept=False, accountant=accountant)
    if name in BALANCING:
        with pytest.raises(ValueError, match="fit_intercept=True"):
            balanced.fit(X, y)
    else:
        for method in ("fit", "partial_fit"):
            with pytest.raises(ValueError, match=r"not for streams.*DPMirrorClassifier"):
                getattr(balanced, method)(X, y)
    assert accountant.ledger == ()


def rare_class(name, n=4000):
    """A tenth of the labels is "yes"; the table, and scikit-learn's balanced model of it."""
    rng = np.random.default_rng(0)
    y = np.where(rng.uniform(size=n) < 0.1, "yes", "no")
    X = 0.3 * rng.standard_normal((n, 2)) + np.where(y == "yes", 0.3, -0.1)[:, None]
    X = np.clip(X, -1, 1)
    balanced = LogisticRegression(C=1e6, class_weight="balanced").fit(X, y)
    return X, y, balanced


@each_reader_of_labels
def test_the_models_of_weighted_classes(name):
    X, y, balanced = rare_class(name)
    inverse = {"yes": np.mean(y == "no") / np.mean(y == "yes")}
    plain = build(name, epsilon=1e6).fit(X, y)
    assert plain.intercept_[0] < balanced.intercept_[0] - 1.5
    for weights in (inverse, "balanced")[: 2 if name in BALANCING else 1]:
        model = build(name, epsilon=1e6, class_weight=weights).fit(X, y)
        np.testing.assert_allclose(model.coef_, balanced.coef_, rtol=0.2)
        np.testing.assert_allclose(model.intercept_, balanced.intercept_, atol=0.4)
    if name in BALANCING:  # at a usual epsilon
        few, positive = slice(0, 1500), y == "yes"
        model = build(name, epsilon=2.0, class_weight="balanced").fit(X[few], y[few])
        found = model.predict(X) == "yes"
        assert found[positive].mean() > 0.5
        assert found[~positive].mean() < 0.5


@pytest.mark.parametrize("n_classes", [2, 3, 10])
def test_no_noise_makes_a_balanced_weight_explode(n_classes):
    facts = problem(50, 2, task="classification", n_outputs=n_classes if n_classes > 2 else 1)
    facts = replace(facts, class_weight="balanced")
    rng = np.random.default_rng(0)
    for spread in (0.0, 0.01, 0.3, 30.0):
        for _ in range(50):
            noisy = rng.normal(0.2, 1e-9 + 3 * spread, facts.n_outputs)
            constant = constant_for_mean(facts, noisy, spread**2)
            weights = constant.class_weight
            assert weights.shape == (n_classes,)
            assert weights.max() == 1
            assert 0.02 / n_classes / 2 <= weights.min()
            assert 0 < constant.mean_weight <= 1
            # weighted frequencies are equal
            np.testing.assert_allclose(constant.offset, 0, atol=1e-9)
    for weights in ((1.0, 0.5), (0.0, 1.0), (1.0, 1e-300)):
        facts = replace(problem(50, 2, task="classification"), class_weight=weights)
        for mean in (-3.0, -1.0, 0.0, 0.98, 7.0):
            constant = constant_for_mean(facts, np.array([mean]), 1e-12)
            assert abs(constant.offset) <= np.log(99) * (1 + 1e-9)
            assert 0 < constant.mean_weight <= 1


def test_the_start_follows_the_weighted_frequencies():
    facts = replace(problem(50, 2, task="classification"), class_weight=(0.25, 1.0))
    constant = constant_for_mean(facts, np.array([-0.6]), 1e-12)  # 80 and 20 percent
    assert constant.offset == pytest.approx(0.0, abs=1e-6)  # 0.2 to 0.2
    assert constant.mean_weight == pytest.approx(0.4)
    assert constant.class_weight is None  # the records' weights hold it
    facts = problem(50, 2, task="classification", n_outputs=3)
    facts = replace(facts, class_weight=(1.0, 0.5, 1.0))
    constant = constant_for_mean(facts, np.array([0.2, 0.4, 0.4]), 1e-12)
    logs = np.log([0.2, 0.2, 0.4])
    np.testing.assert_allclose(constant.offset, logs - logs.mean(), atol=1e-6)


# -------------------------------------------------------------------- scikit-learn's tools


def test_weights_reach_a_model_in_pipelines_and_searches():
    X, y = table("DPMirrorRegressor")
    weights = np.random.default_rng(0).choice(SCALES, 60)
    alone = fitted("DPMirrorRegressor", "noisy-md", X, y, weights)
    model = build("DPMirrorRegressor", "noisy-md", epsilon=50.0)
    pipeline = make_pipeline(FunctionTransformer(), model)
    pipeline.fit(X, y, dpmirrorregressor__sample_weight=weights)
    np.testing.assert_array_equal(outcome(pipeline[-1]), alone)
    assert pipeline.score(X, y, sample_weight=weights) != pipeline.score(X, y)
    with config_context(enable_metadata_routing=True):
        routed = clone(model).set_fit_request(sample_weight=True)
        routed.set_score_request(sample_weight=True)
        scores = cross_val_score(routed, X, y, cv=3, params={"sample_weight": weights})
    assert np.all(np.isfinite(scores))


def test_meta_estimators_hand_in_weights():
    X, y, _ = rare_class("DPMirrorClassifier", 2000)
    y = (y == "yes").astype(int)  # bags recode their labels
    weights = np.where(y == 1, 9.0, 1.0)
    model = build("DPMirrorClassifier", epsilon=1e4, max_weight=9.0, classes=[0, 1])
    # its weights add up to 1
    small = clone(model).set_params(max_weight=20 / len(y))
    boosted = AdaBoostClassifier(small, n_estimators=3)
    bagged = BaggingClassifier(model, n_estimators=3, random_state=0)
    calibrated = CalibratedClassifierCV(model, cv=2)
    for whole in (boosted, bagged, calibrated):
        found = whole.fit(X, y, sample_weight=weights).predict(X)
        assert found[y == 1].mean() > 0.6, whole
        assert found[y == 0].mean() < 0.4, whole
