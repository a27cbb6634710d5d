"""Bounds that a transformer declares: every estimator behind an encoder, and the refusals."""

import math
import pickle
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from joblib import parallel_config
from registry import (
    ESTIMATORS,
    build,
    each_solver,
    is_classifier,
    kind_of,
    known,
    main_form,
    nothing_is_released,
    parameters_of,
    targets_of,
)
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.ensemble import BaggingRegressor
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from support import rest_is_slow

from sklearn_dpsco import (
    BudgetAccountant,
    DPFTRLRegressor,
    DPLinearRegression,
    DPMirrorRegressor,
    DPScaler,
    PublicEncoder,
)
from sklearn_dpsco.estimators._base import DPLinearModel
from sklearn_dpsco.preprocessing.declared import DeclaredOutput
from sklearn_dpsco.solvers import NoisyMD

SCHEMA = {"age": (20, 60), "income": (0, 100), "edu": ["hs", "ba", "ma", "phd"], "member": bool}
ENCODER = PublicEncoder(SCHEMA, unknown="other")
WITH_BOUNDS = [name for name in ESTIMATORS if "bounds_X" in parameters_of(name)]
each_with_bounds = pytest.mark.parametrize("name", WITH_BOUNDS)
FITS = ("fit", "partial_fit")


def table(n=300, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({
        "age": rng.uniform(20, 60, n), "income": rng.uniform(-10, 200, n),
        "edu": rng.choice([*SCHEMA["edu"], "none", None], n), "member": rng.uniform(size=n) > 0.5,
    })  # fmt: skip
    signal = (X["age"] - 40) / 40 + 0.5 * (X["edu"] == "phd") - 0.2
    return X, signal.to_numpy()


def targets(name, signal):
    return np.where(signal > 0, "yes", "no") if is_classifier(name) else targets_of(name, signal)


def box_rule(bounds_X=ENCODER, **parameters):
    settings = {"solver": NoisyMD(max_iter=3), "bounds_y": (-1, 1), "random_state": 0}
    return DPMirrorRegressor(bounds_X=bounds_X, **settings | parameters)


def behind(transformer, **parameters):
    return make_pipeline(transformer, box_rule(transformer, **parameters))


@each_solver
def test_every_estimator_behind_an_encoder(name):
    X, signal = table()
    y = targets(name, signal)
    declared = {"bounds_X": ENCODER} if name in WITH_BOUNDS else {}
    pipe = make_pipeline(ENCODER, build(name, main_form(name), **declared)).fit(X, y)
    settings = {"data_norm": max(1.0, math.hypot(ENCODER.row_norm, 1) / 2)}
    plain = build(name, main_form(name), **known(name, settings, main_form(name)))
    if declared:
        plain.set_params(bounds_X=ENCODER.bounds_X)
    plain.fit(ENCODER.transform(X), y)
    np.testing.assert_array_equal(pipe[-1].coef_, plain.coef_)
    assert pipe[-1].guarantee_.epsilon == plain.guarantee_.epsilon
    np.testing.assert_array_equal(pipe.predict(X), plain.predict(ENCODER.transform(X)))
    compact = clone(pipe).set_params(publicencoder__sparse_output=True)
    if name in WITH_BOUNDS:
        compact.fit(X, y)
        np.testing.assert_allclose(compact[-1].coef_, pipe[-1].coef_, atol=1e-10)


@each_with_bounds
def test_what_declares_nothing_is_refused_before_anything_is_spent(name):
    X, signal = table(40)
    y, accountant = targets(name, signal), BudgetAccountant(10.0, 1e-5)
    coded = ENCODER.transform(X)
    refused = {
        StandardScaler(): r"'StandardScaler' \(StandardScaler\) in it does not declare bounds",
        DPScaler(): r"learns from data, with a budget.*\(-clip, clip\)",
        numbers(): "declares 2 columns and X has 8",
        PublicEncoder: r"give an object, PublicEncoder\(\.\.\.\)",
    }
    for bounds, said in refused.items():
        model = build(name, main_form(name), bounds_X=bounds, accountant=accountant)
        methods = [model.plan] + [getattr(model, m) for m in FITS if hasattr(model, m)]
        with nothing_is_released():
            for method in methods:
                with pytest.raises(ValueError, match=said):
                    method(*((40, 8) if method == model.plan else (coded, y)))
        assert not hasattr(model, "coef_")
    assert accountant.ledger == ()


def test_the_norm_of_the_plan():
    X, y = table()
    pipe = make_pipeline(ENCODER, box_rule()).fit(X, y)
    problem = pipe[-1].plan_.problem
    assert problem.row_norm == 2.0
    again = box_rule().plan(len(X), problem.n_features)
    assert again.problem.row_norm == 2.0  # a plan knows what the fit will
    alone = box_rule(ENCODER.bounds_X).plan(len(X), problem.n_features)
    assert alone.problem.row_norm is None
    assert alone.data_norm == math.sqrt(problem.n_features + 1) / 2
    assert pipe[-1].plan_.data_norm == math.sqrt(5) / 2
    # the noise is in proportion
    noisy, less = (plan.stages[0].releases[0].mechanism for plan in (alone, pipe[-1].plan_))
    assert less.sensitivity / noisy.sensitivity == pytest.approx(math.sqrt(5 / 9), rel=1e-6)
    without = make_pipeline(ENCODER, box_rule(fit_intercept=False)).fit(X, y)
    assert without[-1].plan_.data_norm == 1.0
    given = make_pipeline(ENCODER, box_rule(solver=NoisyMD(max_iter=3, data_norm=1.25))).fit(X, y)
    assert given[-1].plan_.data_norm == 1.25
    # what is declared is never above what the bounds allow
    loose = behind(Loose(SCHEMA, unknown="other")).fit(X, y)
    assert loose[-1].plan_.data_norm == alone.data_norm


@pytest.mark.parametrize(
    ("schema", "drop", "is_told"),
    [
        ({"age": (18, 98)}, None, True),
        ({"age": (0, 98)}, None, False),
        ({"age": (18, 98), "sex": ["f", "m"]}, None, False),  # a whole list is an intercept
        ({"age": (18, 98), "sex": ["f", "m"]}, "first", True),
    ],
)
def test_a_model_through_0_says_where_an_encoder_puts_it(schema, drop, is_told):
    table = pd.DataFrame({"age": [20.0, 60.0] * 50, "sex": ["f", "m"] * 50})
    encoder = PublicEncoder(schema, drop=drop, extra="drop")
    facts = {"bounds_X": encoder, "bounds_y": (0, 98), "fit_intercept": False, "random_state": 0}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        DPLinearRegression(**facts).fit(encoder.fit_transform(table), table["age"])
    told = "through 0 of what the encoder makes, the middle of the bounds of age."
    assert any(told in str(one.message) for one in caught) == is_told


class Loose(PublicEncoder):
    def declared_output(self):
        return replace(super().declared_output(), row_norm=1e6)


class Clips(TransformerMixin, BaseEstimator):
    """A transformer whose outputs are clipped to public constants, not all of them symmetric."""

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return np.clip(np.asarray(X, dtype=float), [-2, 1], [3, 5])

    def declared_output(self):
        return DeclaredOutput.of_box([-2, 1], [3, 5])


def numbers(columns=("age", "income")):
    return PublicEncoder({name: SCHEMA[name] for name in columns})


def seen_bounds(transformer, X, y):
    """The bounds that an estimator behind it took, and the row norm."""
    found, whole = [], DPLinearModel._feature_scaling
    with pytest.MonkeyPatch.context() as patch:
        keep = lambda *given: found.append(whole(*given)) or found[-1]  # noqa: E731
        patch.setattr(DPLinearModel, "_feature_scaling", keep)
        model = behind(transformer).fit(X, y)[-1]
    scaling = found[-1]
    return scaling.low, scaling.high, model.plan_.problem.row_norm


def test_an_encoder_in_the_place_of_a_number_of_columns():
    assert box_rule().plan(300, ENCODER) == box_rule().plan(300, 8)


def test_ways_through_columns_unions_and_pipelines():
    X, y = table()
    one_hot = OneHotEncoder(categories=[SCHEMA["edu"]], handle_unknown="ignore")
    columns = ColumnTransformer(
        [
            ("left out", "drop", ["member"]),
            ("clips", Clips(), ["age", "income"]),
            ("none", StandardScaler(), []),
            ("edu", make_pipeline("passthrough", one_hot), ["edu"]),
            ("coded", numbers(), ["income", "age"]),
        ],
        transformer_weights={"coded": -3.0},
    )
    low, high, norm = seen_bounds(make_pipeline(columns, "passthrough"), X, y)
    assert low.tolist() == [-2, 1, 0, 0, 0, 0, -3, -3]
    assert high.tolist() == [3, 5, 1, 1, 1, 1, 3, 0]
    assert norm == pytest.approx(math.sqrt(2 + 1 + 2))
    named = ColumnTransformer([("a", PublicEncoder({"age": (20, 60)}), ["age"])])
    rows = behind(named).fit(X, y)[-1].coef_frame().index.tolist()
    assert rows == [("age", ""), ("(intercept)", "")]
    union = FeatureUnion([("a", ENCODER), ("no", "drop"), ("b", ENCODER)])
    low, _, norm = seen_bounds(union, X, y)
    assert low.size == 16
    assert norm == pytest.approx(math.sqrt(8))
    # what stands before a transformer that declares does not matter here
    late = make_pipeline(FunctionTransformer(), make_pipeline(ENCODER))
    assert seen_bounds(late, X, y)[2] == 2.0


def test_inner_pipelines_and_wrappers():
    X, y = table()
    expected = make_pipeline(ENCODER, box_rule()).fit(X, y)[-1].coef_
    inner = make_pipeline(ENCODER, make_pipeline("passthrough", None, box_rule())).fit(X, y)
    np.testing.assert_array_equal(inner[-1][-1].coef_, expected)
    wrapped = TransformedTargetRegressor(
        make_pipeline(ENCODER, box_rule()), func=np.copy, inverse_func=np.copy, check_inverse=False
    )
    np.testing.assert_array_equal(wrapped.fit(X, y).regressor_[-1].coef_, expected)
    grid = GridSearchCV(box_rule(), {"epsilon": [1.0]}, cv=KFold(2), error_score="raise")
    search = make_pipeline(ENCODER, grid).fit(X, y)
    np.testing.assert_array_equal(search[-1].best_estimator_.coef_, expected)


def test_what_a_fitted_model_does_outside_of_its_pipeline():
    X, y = table()
    pipe = make_pipeline(ENCODER, box_rule(nonfinite="zero")).fit(X, y)
    coded, plain = ENCODER.transform(X), box_rule(ENCODER.bounds_X, nonfinite="zero")
    plain.set_params(solver__data_norm=math.sqrt(5) / 2).fit(coded, y)
    coded[0, 0] = np.nan
    for model in (pipe[-1], pickle.loads(pickle.dumps(pipe[-1]))):
        np.testing.assert_array_equal(model.predict(coded), plain.predict(coded))


class UserPipeline(Pipeline):
    def fit(self, X, y):
        return super().fit(X, y)


class StepByStep(Pipeline):
    def fit(self, X, y):
        for _, step in self.steps[:-1]:
            X = step.fit_transform(X, y)
        self.steps[-1][1].fit(X, y)
        return self


@rest_is_slow("backend", ("threading", "loky"), ("threading",))
def test_searches_caches_workers_and_copies(tmp_path, backend):
    X, y = table()
    pipe = make_pipeline(ENCODER, box_rule())
    expected = pipe.fit(X, y)[-1].coef_
    for other in (
        clone(pipe),
        pickle.loads(pickle.dumps(pipe)),
        UserPipeline(pipe.steps),
        make_pipeline(ENCODER, box_rule(), memory=str(tmp_path)),
        make_pipeline(ENCODER, box_rule(), memory=str(tmp_path)),  # from the cache
        make_pipeline(ENCODER, MultiOutputRegressor(box_rule(), n_jobs=2)),
        StepByStep(pipe.steps),
    ):
        with parallel_config(backend):
            last = other.fit(X, y[:, None] if "multi" in other.steps[-1][0] else y)[-1]
        coef = last.estimators_[0].coef_ if hasattr(last, "estimators_") else last.coef_
        np.testing.assert_array_equal(coef, expected)
    scores = cross_val_score(pipe, X, y, cv=KFold(3), error_score="raise")
    with parallel_config(backend):
        others = cross_val_score(pipe, X, y, cv=KFold(3), n_jobs=2, error_score="raise")
    np.testing.assert_array_equal(scores, others)
    encoders = [PublicEncoder(SCHEMA, missing=missing) for missing in ("zero", "indicator")]
    both = [{"publicencoder": [e], "dpmirrorregressor__bounds_X": [e]} for e in encoders]
    search = GridSearchCV(pipe, both, cv=KFold(2), error_score="raise").fit(X, y)
    assert search.best_estimator_[-1].coef_.size in (7, 11)


@pytest.mark.parametrize(
    ("transformer", "pattern"),
    [
        (FunctionTransformer(np.tanh), "'FunctionTransformer' .*does not declare"),
        (make_pipeline(ENCODER, FunctionTransformer(np.tanh)), "Pipeline: functiontransformer'"),
        (ColumnTransformer([("a", numbers(), ["age", "income"])], remainder="passthrough"),
         "'ColumnTransformer: remainder'.*without any bounds"),
        (ColumnTransformer([("a", numbers(), ["age", "income"]),
                            ("b", "passthrough", ["member"])]),
         "'ColumnTransformer: b'"),
        (ColumnTransformer([("a", numbers(), ["age", "income"])],
                           transformer_weights={"a": 0.0}), "weight 0"),
        (FeatureUnion([("edu", ENCODER), ("b", make_pipeline(ENCODER, StandardScaler()))]),
         "'FeatureUnion: b: standardscaler'"),
        (ColumnTransformer([("edu", OneHotEncoder(), ["edu"])]), "edu.*OneHotEncoder"),
        (ColumnTransformer([("s", DPScaler(), ["age"])]), "'ColumnTransformer: s'.*a budget"),
        (make_pipeline("passthrough"), "'Pipeline' .*does not declare"),
    ],
)  # fmt: skip
def test_transformers_that_declare_nothing(transformer, pattern):
    with pytest.raises(ValueError, match=pattern):
        box_rule(transformer).plan(100, 8)


class DropsColumn(PublicEncoder):
    def transform(self, X):
        return super().transform(X)[:, 1:]


def test_columns_that_were_not_declared_are_refused():
    X, y = table(60)
    dropping = DropsColumn(SCHEMA, unknown="other")
    with pytest.raises(ValueError, match="declares 8 columns and X has 7"):
        behind(dropping).fit(X, y)
    bag = BaggingRegressor(box_rule().set_params(max_weight=1.0), 1, max_features=3)
    with pytest.raises(ValueError, match="declares 8 columns and X has 3"):
        make_pipeline(ENCODER, bag).fit(X, y)
    stream = DPFTRLRegressor(bounds_X=ENCODER, bounds_y=(-1, 1), random_state=0)
    with pytest.raises(ValueError, match="declares 8 columns and X has 7"):
        stream.partial_fit(dropping.transform(X), y)
    stream.partial_fit(ENCODER.transform(X), y).partial_fit(ENCODER.transform(X), y)


@each_with_bounds
def test_a_clone_whose_encoder_was_changed_alone_is_refused(name):
    """Its coefficients would have the names and units of the other encoder."""
    X, signal = table(60)
    y = targets(name, signal)
    for changed in ({"drop": {"edu": "ma"}}, {"schema": SCHEMA | {"age": (10, 90)}}):
        encoder = PublicEncoder(SCHEMA, drop={"edu": "hs"})
        pipeline = clone(make_pipeline(encoder, build(name, bounds_X=encoder)))
        pipeline[0].set_params(**changed)
        with nothing_is_released(), pytest.raises(ValueError, match="A clone of a pipeline has"):
            pipeline.fit(X, y)
    pipeline[-1].bounds_X.set_params(**changed)
    assert pipeline.fit(X, y)[-1].n_features_in_ == 6


def test_names_that_are_not_the_encoders_leave_its_units_aside_and_say_so():
    X, y = table(2000)
    encoder = clone(ENCODER).set_params(drop="first").set_output(transform="pandas")
    facts = {"bounds_y": (-1, 1), "epsilon": 3.0, "relation": "zero-out", "inference": True}
    model = DPLinearRegression(bounds_X=encoder, **facts)
    coded = encoder.transform(X)
    said = "in units of what reaches the model"
    assert said not in str(model.fit(coded, y).summary())
    assert said in str(model.fit(coded.add_prefix("of_"), y).summary())


def test_a_declaration_that_is_not_true_changes_no_guarantee():
    class Liar(PublicEncoder):
        def transform(self, X):
            return 1e6 * super().transform(X)

    X, y = table(60)
    pipe = behind(Liar(SCHEMA)).fit(X, y)
    again = behind(ENCODER).fit(X, y)
    assert pipe[-1].guarantee_.epsilon == again[-1].guarantee_.epsilon
    clipped = np.clip(1e6 * PublicEncoder(SCHEMA).transform(X), -1, 1)
    norm = max(1, math.hypot(2, 1) / 2)
    plain = box_rule(PublicEncoder(SCHEMA).bounds_X).set_params(solver__data_norm=norm)
    np.testing.assert_array_equal(plain.fit(clipped, y).coef_, pipe[-1].coef_)


def test_kinds_without_bounds_take_no_declaration():
    left = set(ESTIMATORS) - set(WITH_BOUNDS)
    assert left == {"HeavyTailDPRegressor", "HeavyTailDPClassifier"}
    for name in left:
        assert kind_of(name).bounds_X is None
