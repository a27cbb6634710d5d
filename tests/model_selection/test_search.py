"""Searches under one budget: what they cost, what they choose, what they refuse."""

import itertools
import pickle
import re
import warnings
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import sklearn
from joblib import Parallel, delayed, parallel_config
from scipy import sparse
from sklearn.base import clone, is_classifier
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.feature_selection import SelectFromModel
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, PolynomialFeatures, StandardScaler
from support import rest_is_slow

from sklearn_dpsco import (
    BudgetAccountant,
    DPFTRLRegressor,
    DPGridSearchCV,
    DPLassoFW,
    DPLassoFWClassifier,
    DPMirrorClassifier,
    DPMirrorRegressor,
    DPPhasedSGDRegressor,
    DPPoissonRegressor,
    DPRandomizedSearchCV,
    DPScaler,
    HeavyTailDPRegressor,
    PrivacyBudgetError,
    PrivacyLeakWarning,
    PrivacyParameterWarning,
    PublicEncoder,
)
from sklearn_dpsco.audit import audit, audit_outcomes
from sklearn_dpsco.geometry import L1Ball, L2Ball, Polytope
from sklearn_dpsco.mechanisms import SelectVertex
from sklearn_dpsco.model_selection import choice as choice_module
from sklearn_dpsco.model_selection import plan as plan_module
from sklearn_dpsco.model_selection import search as search_module
from sklearn_dpsco.model_selection.choice import Choice, losses, plan_choice
from sklearn_dpsco.privacy.budget import RELATIONS, PrivacyBudget
from sklearn_dpsco.randomness.stream import stream_from_random_state
from sklearn_dpsco.solvers import SCOF, Descent, NoisyMD, Rounds

BOUNDS = {"bounds_X": (-1, 1), "bounds_y": (-1, 1)}
LABELS = {"bounds_X": (-1, 1), "classes": ["a", "b"]}
FEW_STEPS = NoisyMD(max_iter=40)  # which take less time than the 200 of the default


def table(n=2000, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 3))
    return X, X @ [0.3, -0.2, 0.1] + 0.05 * rng.standard_normal(n)


def labelled(n=2000):
    X, y = table(n)
    return X, np.where(y > 0, "b", "a")


def search_of(estimator=None, grid=None, **settings):
    model = DPMirrorRegressor(**BOUNDS, feasible_set=L2Ball(0.01), solver=FEW_STEPS)
    estimator = model if estimator is None else estimator
    return DPGridSearchCV(
        estimator,
        grid or {"feasible_set": [L2Ball(0.1), L2Ball(1.0)]},
        **{"epsilon": 4.0, "random_state": 0, **settings},
    )


@pytest.fixture(scope="module")
def fitted():
    return search_of().fit(*table())


# ------------------------------------------------------------------- choice and attributes


def test_a_wrong_radius_is_mended_and_the_same_for_any_number_of_jobs(fitted):
    X, y = table()
    with parallel_config("threading"):  # tests/contracts/test_parallel.py has other workers
        search = search_of(n_jobs=2).fit(X, y)
    assert search.best_params_ == {"feasible_set": L2Ball(1.0)}
    assert search.candidates_ == [
        {"feasible_set": L2Ball(0.01)},
        {"feasible_set": L2Ball(0.1)},
        {"feasible_set": L2Ball(1.0)},
    ]
    assert search.best_index_ == 2
    assert search.score(X, y) > 0.8
    np.testing.assert_array_equal(search.predict(X), search.best_estimator_.predict(X))
    np.testing.assert_array_equal(fitted.best_estimator_.coef_, search.best_estimator_.coef_)


def test_settings_that_stand_in_two_grids_are_tried_once():
    one, two = {"feasible_set": [L2Ball(0.01), L2Ball(1.0)]}, {"feasible_set": [L2Ball(1.0)]}
    same = {"fit_intercept": [True], **two}  # as by default
    plan = search_of(grid=[one, two, same, {"fit_intercept": [False]}]).plan(2000, 3)
    assert list(plan.candidates) == [
        {"feasible_set": L2Ball(0.01), "fit_intercept": True},
        {"feasible_set": L2Ball(1.0)},
        {"fit_intercept": False},
    ]


def test_settings_that_differ_in_what_their_repr_leaves_out_are_all_tried():
    words = [f"w{k:03d}" for k in range(200)]
    lists = [CountVectorizer(vocabulary=v, binary=True) for v in (words, [*words[:-1], "other"])]
    hulls = [Polytope(points=points) for points in (np.eye(2000)[:9], 1 - np.eye(2000)[:9])]
    pipe = make_pipeline(lists[0], DPMirrorClassifier(bounds_X=(0, 1), classes=[0, 1]))
    assert len(search_of(pipe, {"countvectorizer": lists})._candidates()) == 2
    pairs = [[("words", one, "note")] for one in lists]
    pipe = make_pipeline(ColumnTransformer(pairs[0]), pipe[-1])
    grid = {"columntransformer__transformers": [*pairs, clone(pipe[0]).transformers]}
    assert len(search_of(pipe, grid)._candidates()) == 2
    assert len(search_of(grid={"feasible_set": [*hulls, *hulls]})._candidates()) == 3


def test_bounds_of_an_encoder_follow_its_settings():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"age": rng.uniform(20, 80, 2000), "sex": rng.choice(["f", "m"], 2000)})
    encoder = PublicEncoder({"age": (0, 80), "sex": ["f", "m"]})
    last = DPMirrorRegressor(bounds_X=encoder, bounds_y=(0, 100), solver=FEW_STEPS)
    wider = [{"age": (18, 80), "sex": ["f", "m"]}]  # of outputs in (-1, 1), not (0, 1)
    grid = [{"publicencoder__drop": ["first"]}, {"publicencoder__schema": wider}]
    search = clone(search_of(make_pipeline(encoder, last), grid)).fit(X, X["age"])
    for settings in search.candidates_:
        made = search._made(settings, None)
        assert repr(made[0]) == repr(made[1].bounds_X)
    own = {"publicencoder__drop": ["first"], "dpmirrorregressor__bounds_X": [encoder]}
    with pytest.raises(ValueError, match="bounds_X declares 3 columns and X has 2"):
        search_of(make_pipeline(encoder, last), own).fit(X, X["age"])


def test_a_classifier_in_a_pipeline_with_labels_of_its_own():
    X, y = labelled()
    model = make_pipeline(
        FunctionTransformer(),
        DPMirrorClassifier(**LABELS, feasible_set=L2Ball(0.01), solver=FEW_STEPS),
    )
    search = search_of(model, {"dpmirrorclassifier__feasible_set": [L2Ball(10.0)]}).fit(X, y)
    assert is_classifier(search)
    assert search.best_params_ == {"dpmirrorclassifier__feasible_set": L2Ball(10.0)}
    assert list(search.classes_) == ["a", "b"]
    assert search.predict_proba(X).shape == (2000, 2)
    assert search.score(X, y) > 0.85
    assert search.decision_function(X).shape == (2000,)


def test_the_default_stays_unless_something_is_clearly_better():
    X, y = table(4000)
    for seed in range(3):
        search = search_of(
            DPMirrorRegressor(solver=Descent(), **BOUNDS),
            {"solver__max_iter": [30, 60]},
            random_state=seed,
        )
        assert search.fit(X, y).best_index_ == 0


def test_few_records_get_the_default_with_the_whole_budget():
    X, y = table(60)
    search = search_of(epsilon=1.0)
    plan = search.plan(60, 3)
    assert (plan.choice, plan.probes) == (None, ())
    assert "too few records" in str(plan)
    with pytest.warns(PrivacyParameterWarning, match="takes about .* the grid is not used"):
        search.fit(X, y)
    # the number that is named is the one that decides, and it grows with the rows of a user
    for rows in (1, 12):
        of_users = search_of(epsilon=1.0, delta=1e-6, max_rows_per_user=rows)
        told = str(of_users.plan(60, 3))
        assert ("max_rows_per_user=12, in proportion" in told) == (rows == 12)
        least = int(re.search(r"takes about (\d+) at", told).group(1))
        assert of_users.plan(least, 3).choice is not None
        assert of_users.plan(least - 101, 3).choice is None
    assert search.best_index_ == 0
    alone = clone(search.estimator).set_params(epsilon=1.0, delta=search.guarantee_.delta)
    assert search.best_estimator_.guarantee_ == alone.plan(60, 3).guarantee == search.guarantee_


def test_the_plan_is_that_of_the_fit_and_needs_no_data(fitted):
    plan = search_of().plan(2000, 3)
    assert str(plan) == str(fitted.plan_)
    assert plan.guarantee == fitted.guarantee_
    assert "trial fit 2" in str(plan)


def test_what_is_not_private_is_not_there(fitted):
    for name in ("cv_results_", "best_score_"):
        with pytest.raises(AttributeError, match=f"'{name}'; .*no scores.* take dp_score"):
            getattr(fitted, name)
    assert not any(len(np.atleast_1d(v)) == 2000 for v in vars(fitted).values() if v is not None)
    with pytest.raises(NotFittedError):
        search_of().predict(table()[0])


def test_it_is_an_estimator_of_scikit_learn():
    X, y = table(240)
    model = DPMirrorRegressor(**BOUNDS, solver=NoisyMD(max_iter=2))
    search = search_of(model, epsilon=200.0)
    assert clone(search).get_params()["epsilon"] == 200.0
    again = pickle.loads(pickle.dumps(search.fit(X, y)))
    np.testing.assert_array_equal(again.predict(X), search.predict(X))
    assert np.isfinite(cross_val_score(search, X, y, cv=2)).all()
    outer = GridSearchCV(search, {"scoring": ["neg_mean_absolute_error"]}, cv=2).fit(X, y)
    assert outer.best_estimator_.plan_.choice.scoring == "neg_mean_absolute_error"


def test_whoever_fits_the_best_model_again_pays_again():
    X, y = table()
    accountant = BudgetAccountant(20.0)
    search = search_of(accountant=accountant).fit(X, y)
    best = search.best_estimator_
    assert best.accountant is accountant
    # the model tells what was chosen by the whole search, which its last fit alone does not pay
    assert best.guarantee_ == search.guarantee_ == accountant.ledger[0].guarantee
    assert best.plan_.guarantee.epsilon == best.epsilon < 4.0
    assert best.fit(X, y).guarantee_.epsilon == best.epsilon
    clone(best).fit(X, y)
    assert len(accountant.ledger) == 3


def test_steps_may_be_exchanged_and_no_candidate_shares_one():
    X, y = labelled()
    good, bad = (
        DPMirrorClassifier(**LABELS, solver=FEW_STEPS),
        DPLassoFWClassifier(**LABELS, feasible_set=L1Ball(0.01)),
    )
    grid = [
        {"model": [good], "model__feasible_set": [L2Ball(0.01), L2Ball(10.0)]},
        {"model": [bad]},
    ]
    search = search_of(Pipeline([("model", bad)]), grid).fit(X, y)
    sets = [c.get("model__feasible_set") for c in search.candidates_]
    assert sets == [L1Ball(0.01), L2Ball(0.01), L2Ball(10.0)]
    assert search.best_params_ == {"model": good, "model__feasible_set": L2Ball(10.0)}
    assert (good.accountant, good.epsilon, good.feasible_set) == (None, 1.0, "auto")


WRONG = {
    "no probabilities": ({"loss": ["hinge"]}, {"scoring": "neg_log_loss"}, "probabilities"),
    "other classes": ({"classes": [["x", "y"]]}, {}, "predict something else"),
    "other task": (None, {}, "predict something else"),
    "nothing": ([{"model": ["passthrough"]}], {}, "are wrong: estimator must be a private"),
    "undeclared": ({"bounds_X": [DPScaler()]}, {}, "learns from data, with a budget"),
    "shifting zeros": ({"bounds_X": [(1, 2)]}, {}, "sparse X needs"),
    "random state": ({"random_state": [1, 2]}, {}, "set by the search"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_candidate_that_cannot_be_fitted_is_found_before_the_charge(name):
    grid, settings, message = WRONG[name]
    X, y = labelled()
    if name == "other task":
        grid = [{"model": [DPMirrorRegressor(**BOUNDS)]}]
    if isinstance(grid, dict):
        grid = {f"model__{key}": values for key, values in grid.items()}
    accountant = BudgetAccountant(4.0)
    pipe = Pipeline([("model", DPMirrorClassifier(**LABELS))])
    search = search_of(pipe, grid, accountant=accountant, **settings)
    with pytest.raises(ValueError, match=message):
        search.fit(sparse.csr_matrix(X), y)
    assert not accountant.ledger


def test_losses_without_probabilities_are_compared_by_accuracy():
    X, y = labelled()
    search = search_of(DPMirrorClassifier(**LABELS), {"loss": ["logistic", "smoothed_hinge"]})
    assert search.fit(X, y).plan_.choice.scoring == "accuracy"


def test_a_scaler_among_other_columns_has_its_part():
    X, y = labelled()
    frame = pd.DataFrame(X * [1, 50, 1], columns=["u", "v", "w"])
    prepare = ColumnTransformer(
        [("s", DPScaler(epsilon=0.5), ["v"]), ("e", PublicEncoder({"u": (-1, 1)}), ["u"])]
    )
    bounds_X = [-4, -1], [4, 1]
    model = make_pipeline(
        prepare, DPMirrorClassifier(bounds_X=bounds_X, classes=["a", "b"], solver=Descent())
    )
    accountant = BudgetAccountant(4.0)
    search = search_of(model, {"dpmirrorclassifier__solver__max_iter": [30]}, accountant=accountant)
    search.fit(frame, y)
    (charge,) = accountant.ledger
    assert charge.guarantee == search.guarantee_
    assert len(search.plan_.refits[0]) == 2
    scaler = search.best_estimator_[0].named_transformers_["s"]
    assert scaler.guarantee_ == search.guarantee_
    assert not hasattr(search.best_estimator_[0].transformers[0][1], "guarantee_")
    # the plan of a fit behind an encoder knows what the encoder declares
    planned = {str(plan) for plan in search.plan_.refits[search.best_index_]}
    assert planned == {str(scaler.plan_), str(search.best_estimator_[-1].plan_)}


def test_the_accountant_of_a_step_is_no_accountant_of_the_search():
    X, y = table(300)
    accountant = BudgetAccountant(1.0)
    search = search_of(DPMirrorRegressor(accountant=accountant, **BOUNDS), epsilon=50.0)
    with pytest.raises(ValueError, match="give the accountant to the search"):
        search.fit(X, y)
    assert search.plan(300, 3).guarantee.epsilon == 50.0
    assert search.estimator.accountant is accountant
    step = DPMirrorRegressor(accountant=accountant, **BOUNDS)
    pipe = Pipeline([("model", DPMirrorRegressor(**BOUNDS))])
    with pytest.raises(ValueError, match="model__accountant is set"):
        search_of(pipe, {"model": [step]}, epsilon=50.0).fit(X, y)
    assert not accountant.ledger


def test_lists_and_odd_cells_are_read_as_an_estimator_reads_them():
    X, y = table(300)
    rows = X.tolist()
    rows[3][1] = "no number"
    weights = np.ones(300).tolist()
    weights[5] = "none"
    few = {"nonfinite": "zero", "max_weight": 1.0, "solver": Descent(max_iter=3)}
    model = DPMirrorRegressor(**few, **BOUNDS)
    search = search_of(model, {"solver__max_iter": [4]}, epsilon=30.0)
    search.fit(rows, y.tolist(), sample_weight=weights)
    assert np.isfinite(search.predict(X)).all()
    weights = [[1.0] for _ in y]
    weights[5] = None
    again = search_of(model, {"solver__max_iter": [4]}, epsilon=30.0)
    again.fit(rows, y.tolist(), sample_weight=weights)
    np.testing.assert_array_equal(again.best_estimator_.coef_, search.best_estimator_.coef_)
    targets = [[target] for target in y.tolist()]
    targets[5] = None
    again.fit(rows, targets)
    np.testing.assert_array_equal(again.best_estimator_.coef_[0], search.best_estimator_.coef_)
    coo = sparse.coo_matrix(X)
    search = search_of(model, {"solver__max_iter": [4]}, epsilon=30.0)
    assert search.fit(coo, y).best_index_ in (0, 1)


def test_random_batches_under_an_accountant_of_a_larger_budget():
    model = DPMirrorRegressor(solver=NoisyMD(batch_size=200, max_iter=5), **BOUNDS)
    found = []
    for kind in ("zcdp", "gdp"):
        with BudgetAccountant(8.0, relation="zero-out", composition=kind) as accountant:
            grid = {"feasible_set": [L2Ball(1.0)]}
            search = search_of(model, grid, epsilon=1.0, relation="zero-out")
            plan = search.plan(5000, 3)
            accountant.spend(plan)
        assert accountant.total_spent() <= 1.3
        found.append(plan.guarantee.releases[-1].mechanism.scale)
    assert found[0] != found[1]
    # there they are as if they were not random, in all private steps of all candidates
    pipe = make_pipeline(DPScaler(), model.set_params(bounds_X=(-4, 4)))
    with BudgetAccountant(1.0, relation="zero-out") as accountant:
        grid = {"dpmirrorregressor__feasible_set": [L2Ball(1.0), L2Ball(2.0)]}
        plan = search_of(pipe, grid, epsilon=1.0, relation="zero-out").plan(5000, 3)
        accountant.spend(plan)
    assert plan.guarantee.composition == "gdp"


def test_random_batches_of_other_sizes_have_a_plan_at_a_large_epsilon():
    # (of one step: convolutions of a law with itself take longest)
    model = DPMirrorRegressor(solver=NoisyMD(batch_size=100, max_iter=1), **BOUNDS)
    guarantee = search_of(model, {"solver__batch_size": [50]}, epsilon=40.0).plan(3000, 3).guarantee
    assert guarantee.composition == "pld"
    assert 0.9 * 40 < guarantee.second_opinion() <= 40 * (1 + 1e-4)


def test_a_search_behind_an_encoder_finds_what_that_declares():
    X, y = labelled()
    frame = pd.DataFrame(X, columns=["u", "v", "w"])
    encoder = PublicEncoder(dict.fromkeys("uvw", (-1, 1)))
    model = DPMirrorClassifier(
        bounds_X=encoder, classes=["a", "b"], feasible_set=L2Ball(0.01), solver=FEW_STEPS
    )
    pipe = make_pipeline(encoder, search_of(model, {"feasible_set": [L2Ball(10.0)]})).fit(frame, y)
    assert pipe[-1].best_params_ == {"feasible_set": L2Ball(10.0)}
    assert pipe.score(frame, y) > 0.85


def test_a_plan_of_encoders_has_their_numbers_of_columns():
    small, large = (PublicEncoder(dict.fromkeys(names, (-1, 1))) for names in ("u", "uvw"))
    model = DPMirrorClassifier(bounds_X=small, classes=["a", "b"])
    pipe = Pipeline([("e", small), ("m", model)])
    search = search_of(pipe, [{"e": [large], "m__bounds_X": [large]}])
    plan = search.plan(5000, 6)
    assert [probe[0].problem.n_features for probe in plan.probes] == [1, 3]


@pytest.mark.slow  # tests/contracts/test_parallel.py has it of models
def test_in_a_worker_a_block_of_an_accountant_is_not_forgotten():
    X, y = table(300)
    with BudgetAccountant(1.0), pytest.raises(PrivacyBudgetError):
        Parallel(n_jobs=2)(delayed(search_of(epsilon=50.0).fit)(X, y) for _ in range(2))


def test_weights_reach_the_fits_and_the_choice_under_either_name():
    X, y = labelled()
    y[::2] = np.where(y[::2] == "a", "b", "a")  # wrong labels, of weight 0
    weight = np.tile([0.0, 1.0], 1000)
    model = DPMirrorClassifier(
        **LABELS, max_weight=1.0, feasible_set=L2Ball(0.01), solver=FEW_STEPS
    )
    pipe = Pipeline([("model", model)])
    search = search_of(pipe, {"model__feasible_set": [L2Ball(10.0)]}, epsilon=8.0)
    first = search.fit(X, y, sample_weight=weight)
    assert first.score(X[1::2], y[1::2]) > 0.85
    second = clone(search).fit(X, y, model__sample_weight=weight)
    np.testing.assert_array_equal(first.best_estimator_[0].coef_, second.best_estimator_[0].coef_)
    with sklearn.config_context(enable_metadata_routing=True):
        routed = clone(search)
        routed.estimator.named_steps["model"].set_fit_request(sample_weight=True)
        routed.fit(X, y, sample_weight=weight)
    np.testing.assert_array_equal(first.best_estimator_[0].coef_, routed.best_estimator_[0].coef_)
    with pytest.raises(TypeError, match="step__sample_weight"):
        search.fit(X, y, other__sample_weight=weight)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        search.fit(X, y, groups=[1, 2])


def test_exposures_reach_the_fits_and_the_choice_under_either_name():
    X, _ = table(6000)
    e = np.random.default_rng(1).uniform(0.1, 1, 6000)
    y = np.random.default_rng(2).poisson(e * np.exp(2 * X[:, 0]))
    model = DPPoissonRegressor(
        bounds_X=(-1, 1), bounds_y=(0, 1), bounds_exposure=(0.1, 1), nonfinite="zero"
    )
    steps = Pipeline([("same", FunctionTransformer()), ("model", model)])
    facts = {"scoring": "neg_mean_absolute_error", "epsilon": 8.0, "random_state": 0}
    search = DPGridSearchCV(steps, {"model__bounds_y": [(0, 30)]}, **facts)
    first = search.fit(X, y, exposure=e)
    assert first.plan_.choice is not None
    coef = first.best_estimator_[-1].coef_
    assert coef[0] == pytest.approx(2, abs=0.5)
    second = clone(search).fit(X, y, model__exposure=e)
    np.testing.assert_array_equal(second.best_estimator_[-1].coef_, coef)
    # what is compared are numbers of each record's exposure
    best = first.best_estimator_
    e[0] = -1
    compared = search._table(X, y, {"exposure": e})
    found = losses(best, compared, "neg_mean_absolute_error")
    expected = np.abs(np.clip(e * best.predict(X), 0, 1) - np.clip(y, 0, 1)) / 0.5
    np.testing.assert_allclose(found[1:], expected[1:])
    assert found[0] == 0


def test_options_reach_the_best_model():
    X, _ = table(6000)
    e = np.random.default_rng(1).uniform(0.1, 1, 6000)
    y = np.random.default_rng(2).poisson(e * np.exp(2 * X[:, 0]))
    model = DPPoissonRegressor(bounds_X=(-1, 1), bounds_y=(0, 1), bounds_exposure=(0.1, 1))
    facts = {"scoring": "neg_mean_absolute_error", "epsilon": 8.0, "random_state": 0}
    search = DPGridSearchCV(model, {"bounds_y": [(0, 30)]}, **facts).fit(X, y, exposure=e)
    best = search.best_estimator_
    np.testing.assert_array_equal(search.predict(X, exposure=e), e * best.predict(X))
    assert search.score(X, y, exposure=e) == best.score(X, y, exposure=e)
    with pytest.raises(ValueError, match="exposure must be given: the estimator has bounds_exp"):
        search.score(X, y)
    with pytest.raises(TypeError, match="exposures"):
        search.predict(X, exposures=e)
    with sklearn.config_context(enable_metadata_routing=True):
        routed = clone(search).set_fit_request(exposure=True).set_score_request(exposure=True)
        folds = {"cv": KFold(2), "params": {"exposure": e}, "error_score": "raise"}
        assert np.all(cross_val_score(routed, X, y, **folds) > 0.2)


def test_exposures_for_other_models_cost_nothing():
    X, y = table()
    accountant = BudgetAccountant(5.0, 1e-6)
    for model, match in (
        (DPMirrorRegressor(**BOUNDS), "for models of counts and costs"),
        (DPPoissonRegressor(bounds_X=(-1, 1), bounds_y=(0, 1)), "go together"),
    ):
        search = DPGridSearchCV(model, {"max_weight": [2.0]}, accountant=accountant)
        with pytest.raises((TypeError, ValueError), match=match):
            search.fit(X, np.abs(y), exposure=np.ones(len(y)))
    assert accountant.total_spent() == 0


def test_groups_that_do_not_reach_a_private_step_are_refused_before_the_charge():
    X, y = labelled()
    users, accountant = np.arange(len(y)) // 2, BudgetAccountant(4.0)
    with sklearn.config_context(enable_metadata_routing=True):
        for of_scaler, of_model, said in (
            (True, True, None),
            (False, True, "groups must reach"),
            (True, False, "must reach"),
            (None, True, "not explicitly set as requested"),
            ("sample_weight", True, "under another name"),
        ):
            scaler = DPScaler(bounds_X=(-1, 1)).set_fit_request(groups=of_scaler)
            model = DPMirrorClassifier(solver=Descent(), **LABELS)
            model.set_fit_request(groups=of_model)
            search = search_of(
                make_pipeline(scaler, model),
                {"dpmirrorclassifier__solver__max_iter": [3]},
                accountant=accountant,
            )
            if said is None:
                search.fit(X, y, groups=users)
                continue
            with pytest.raises(ValueError, match=said):
                search.fit(X, y, groups=users)
    assert len(accountant.ledger) == 1


# -------------------------------------------------------------------------- what it costs

ALL = {
    "gradient steps": (
        DPMirrorRegressor(**BOUNDS),
        {"feasible_set": [L2Ball(1.0)]},
        "gdp",
    ),
    "selections": (
        DPLassoFW(solver="selection", **BOUNDS),
        {"feasible_set": [L1Ball(1.0)]},
        "gdp",
    ),
    "single pass": (DPLassoFW(solver=Rounds(), **BOUNDS), {"solver__max_iter": [2]}, "zcdp"),
    "phases": (DPPhasedSGDRegressor(**BOUNDS), {"feasible_set": [L2Ball(1.0)]}, "gdp"),
    "stream": (DPFTRLRegressor(**BOUNDS), {"feasible_set": [L2Ball(1.0)]}, None),
    "heavy tails": (HeavyTailDPRegressor(solver=SCOF()), {"solver__max_iter": [5]}, None),
    "batches": (
        DPMirrorRegressor(solver=NoisyMD(batch_size=100, max_iter=20), **BOUNDS),
        {"solver__batch_size": [100, 200]},
        "pld",
    ),
}


@rest_is_slow(
    ("name", "relation"), [*itertools.product(ALL, RELATIONS)],
    # (batches: test_random_batches_under_an_accountant_of_a_larger_budget)
    ["gradient steps-replace-one", "selections-zero-out", "single pass-replace-one",
     "stream-replace-one"], "-".join,
)  # fmt: skip
def test_all_releases_together_are_within_the_budget_by_a_second_accountant(name, relation):
    estimator, grid, composition = ALL[name]
    plan = search_of(estimator, grid, relation=relation).plan(2000, 3)
    guarantee = plan.guarantee
    assert composition in (None, guarantee.composition)
    assert guarantee.second_opinion() <= 4.0 * (1 + 1e-4)
    # nothing is left over: what adds up is the budget
    share = {"gdp": PrivacyBudget(4.0, 1e-6).mu ** 2 / 2, "zcdp": PrivacyBudget(4.0, 1e-6).rho}
    if guarantee.composition in share:
        spent = guarantee.cost(guarantee.composition)
        assert 0.97 < spent / share[guarantee.composition] <= 1 + 1e-9
    if guarantee.composition == "pld":
        assert guarantee.second_opinion() > 0.97 * 4.0
    parts = [g.cost("zcdp") for _, options in guarantee.parts for g in options]
    assert guarantee.cost("zcdp") <= sum(parts) * (1 + 1e-12)


@pytest.mark.parametrize("seed", [None, 0])
def test_no_two_fits_draw_the_same_noise(seed, monkeypatch):
    X, y = table()
    pipe = make_pipeline(
        DPScaler(), DPMirrorRegressor(bounds_X=(-4, 4), bounds_y=(-1, 1), solver=Descent())
    )
    pipe.set_params(dpscaler__random_state=3, dpmirrorregressor__random_state=3)
    grid = {"dpmirrorregressor__solver__max_iter": [3, 4]}
    # so large that no scaler gives up and takes 0 as its centre
    search = search_of(pipe, grid, epsilon=100.0, random_state=seed)
    models = []

    def seen(model, *facts):
        models.append(model)
        return losses(model, *facts)

    monkeypatch.setattr(search_module, "losses", seen)
    says = pytest.warns(PrivacyParameterWarning, match="random_state=3 of the estimator is not")
    with says if seed is None else nullcontext():
        search.fit(X, y)
    models.append(search.best_estimator_)
    assert len({tuple(model[0].center_) for model in models}) == len(models) == 4
    assert search.noise_is_secret_ == (seed is None)


def test_a_cached_step_is_released_once_and_a_search_knows_all_its_plans(tmp_path, monkeypatch):
    X, y = table()
    model = DPMirrorRegressor(bounds_X=(-4, 4), bounds_y=(-1, 1), solver=Descent())
    # so much that no scaler gives up and takes 0 as its centre
    pipe = Pipeline([("s", DPScaler(epsilon=100.0)), ("m", model)], memory=str(tmp_path))
    accountant = BudgetAccountant(300.0)
    with accountant:
        first, again = (clone(pipe).fit(X, y)[0].center_ for _ in range(2))
    assert [charge.estimator for charge in accountant.ledger] == [
        "DPScaler",
        "DPMirrorRegressor",
        "DPMirrorRegressor",
    ]
    np.testing.assert_array_equal(first, again)
    with BudgetAccountant(300.0):
        assert not np.array_equal(first, clone(pipe).fit(X, y)[0].center_)
    models = []
    monkeypatch.setattr(
        search_module, "losses", lambda *facts: (models.append(facts[0]), losses(*facts))[1]
    )
    grid = {"m__solver__max_iter": [30]}
    search = search_of(pipe, grid, epsilon=100.0, random_state=None).fit(X, y)
    found = {tuple(model[0].center_) for model in (*models, search.best_estimator_)}
    assert len(found) == 2
    assert [len(plans) for plans in (*search.plan_.probes, *search.plan_.refits)] == [2] * 4


@pytest.mark.parametrize("n_jobs", [0, "all", 1.5, True])
def test_a_wrong_number_of_jobs_is_found_before_the_charge(n_jobs):
    search = search_of(n_jobs=n_jobs, accountant=BudgetAccountant(epsilon=10.0))
    with pytest.raises(ValueError, match="n_jobs must"):
        search.fit(*table())
    assert search.accountant.ledger == ()


def test_it_is_charged_once_in_full_and_before_anything_is_computed():
    X, y = table()
    accountant = BudgetAccountant(4.0)
    search = search_of(epsilon=3.0, accountant=accountant).fit(X, y)
    (charge,) = accountant.ledger
    assert charge.guarantee == search.guarantee_
    assert (charge.estimator, charge.n_samples) == ("DPGridSearchCV", 2000)
    again = search_of(epsilon=3.0, accountant=accountant)
    with pytest.raises(PrivacyBudgetError, match="would be exceeded"):
        again.fit(X, y)
    assert not hasattr(again, "best_estimator_")
    with accountant, pytest.raises(PrivacyBudgetError, match="would be exceeded"):
        search_of(epsilon=3.0).fit(X, y)
    assert len(accountant.ledger) == 1


def test_a_search_under_an_accountant_costs_what_it_claims():
    X, y = table()
    accountant = BudgetAccountant(4.0)
    search_of(accountant=accountant).fit(X, y)
    assert accountant.total_spent() <= 4.0
    assert accountant.total_spent() > 3.6


def test_a_search_that_was_charged_and_failed_leaves_no_model(monkeypatch):
    X, y = table()
    search = search_of().fit(X, y)
    with pytest.raises(ValueError, match="NaN"):
        search.fit(X * np.nan, y)
    assert search.best_params_ == {"feasible_set": L2Ball(1.0)}  # nothing was charged

    def fails(*facts):
        raise MemoryError

    monkeypatch.setattr(search_module, "losses", fails)
    with pytest.raises(MemoryError):
        search.fit(X, y)
    with pytest.raises(NotFittedError):
        search.predict(X)


def test_no_cell_in_front_of_a_private_step_decides_on_a_rehearsal():
    """A fit takes each of these tables, whose first private step clips its outputs.

    But a step that takes no NaN stops it before the charge, where there is an invalid record.
    """
    X, y = table(200)
    odd, large = X.astype(object), X.copy()
    odd[3, 1], large[3, 1] = "SECRET", 1e200
    gaps = sparse.csr_matrix(np.where(X > 0, X, 0.0))
    gaps.data[4] = np.nan
    model = DPMirrorRegressor(
        bounds_X=(-4, 4), bounds_y=(-1, 1), solver=NoisyMD(max_iter=3), nonfinite="zero"
    )
    for cells in (odd, pd.DataFrame(odd), large, gaps, gaps.tocsc()):
        scaler = DPScaler(with_centering=not sparse.issparse(cells), nonfinite="zero")
        step = PolynomialFeatures() if cells is large else FunctionTransformer(np.abs)
        pipe = Pipeline([("s", scaler), ("p", step), ("m", model)])
        search = search_of(pipe, {"m__feasible_set": [L2Ball(2.0)]}, epsilon=100.0)
        assert search.fit(cells, y).plan_.choice is not None
    accountant = BudgetAccountant(9.0)
    pipe.set_params(s__with_centering=True, p=PolynomialFeatures())
    search = search_of(pipe, {"m__feasible_set": [L2Ball(2.0)]}, accountant=accountant)
    with pytest.raises(ValueError, match="contains NaN"):
        search.fit(odd, y)
    assert not accountant.ledger


def test_bad_data_cost_nothing():
    X, y = table()
    accountant = BudgetAccountant(4.0)
    X[3, 1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        search_of(accountant=accountant).fit(X, y)
    assert not accountant.ledger


def test_two_private_steps_share_every_part():
    """A step that has twice the epsilon of another one gets four times its share, or so."""
    X, y = table()
    model = DPMirrorRegressor(epsilon=2.0, **BOUNDS, solver=NoisyMD(max_iter=2))
    pipe = make_pipeline(_Twice(epsilon=1.0, solver=NoisyMD(max_iter=2)), model)
    search = search_of(pipe, {"dpmirrorregressor__feasible_set": [L2Ball(1.0)]}).fit(X, y)
    scaler, model = search.best_estimator_
    assert scaler.guarantee_ == model.guarantee_ == search.guarantee_  # settings of both are chosen
    first, second = scaler.plan_.guarantee.cost("gdp"), model.plan_.guarantee.cost("gdp")
    assert 3.5 < second / first < 4.5
    budget = search.guarantee_.cost("gdp")
    assert (first + second) / budget == pytest.approx(
        1
        - search.guarantee_.parts[0][1][0].cost("gdp") * 2 / budget
        - search.guarantee_.parts[-2][1][0].cost("gdp") / budget,
        rel=1e-5,  # noise is rounded up
    )


def test_a_selector_by_a_private_model_is_refused_before_anything_is_spent():
    X, y = table()
    selector = SelectFromModel(DPLassoFW(solver="selection", **BOUNDS))
    pipe = make_pipeline(selector, DPMirrorRegressor(**BOUNDS))
    search = search_of(pipe, {"dpmirrorregressor__feasible_set": [L2Ball(1.0)]})
    with pytest.raises(ValueError, match="'selectfrommodel__estimator' is a private model within"):
        search.fit(X, y)


class _Twice(DPMirrorRegressor):
    """A private transformer: it charges what its plan says, and doubles."""

    def __init__(
        self, *, epsilon=1.0, delta="auto", relation="replace-one", max_rows_per_user=1,
        bounds_X=(-1, 1), bounds_y=(-1, 1), accountant=None, random_state=None, solver="auto",
    ):  # fmt: skip
        defaults = DPMirrorRegressor(solver=solver).get_params()
        self.__dict__.update(defaults)
        self.epsilon, self.delta, self.relation = epsilon, delta, relation
        self.max_rows_per_user, self.bounds_X, self.bounds_y = max_rows_per_user, bounds_X, bounds_y
        self.accountant, self.random_state = accountant, random_state

    def transform(self, X):
        return np.clip(2 * X, -1, 1)


# ------------------------------------------------------------- the choice, as a mechanism


def worst_pairs(rng, m):
    """Losses of a record and of another one, or of none."""
    for _ in range(200):
        yield rng.uniform(0, 2, m) * rng.integers(0, 2, m), rng.uniform(0, 2, m)
    high, low = np.zeros(m), np.zeros(m)
    high[0] = low[-1] = 2.0
    yield high, low


@pytest.mark.parametrize("relation", ["replace-one", "zero-out"])
def test_scores_change_by_the_stated_range_and_no_more(relation):
    rng, m, n = np.random.default_rng(0), 4, 50
    budget = PrivacyBudget(1.0, 1e-6, relation)
    choice = plan_choice("accuracy", n, 2, budget, budget.mixed_allowance)
    rest, present = rng.uniform(0, 2, (n, m)), rng.uniform(0, 1, n)
    found = []
    for own, other in worst_pairs(rng, m):
        tables, flags = [], []
        for record in (own, other):
            losses = rest.copy()
            losses[0] = record
            tables.append(losses)
            flags.append(present.copy())
            flags[-1][0] = 1.0
        flags[1][0] = relation == "replace-one"
        scores = [Choice.scores(t, f, 0.5) for t, f in zip(tables, flags, strict=True)]
        found.append(np.ptp(scores[0] - scores[1]))
    assert max(found) <= choice.select.sensitivity
    assert max(found) > 0.999 * choice.select.sensitivity


def test_the_bonus_of_the_default_is_not_so_large_that_rounding_moves_scores(monkeypatch):
    """Of noise that is large against all records it was: numbers of 5e18 are 1024 apart."""
    budget, seen = PrivacyBudget(1e-15, 0.0, "zero-out", rows_per_user=1000), []
    choice = plan_choice("accuracy", 600, 2, budget, budget.allowance)
    monkeypatch.setattr(SelectVertex, "release", lambda self, scores, _: seen.append(scores) or 0)
    for n_wrong in range(508, 517):
        losses = np.zeros((600, 2))
        losses[:n_wrong, 0] = 1.0
        choice.run(losses, np.ones(600), stream_from_random_state(0))
    moved = [np.ptp(one - other) for one, other in itertools.pairwise(seen)]
    assert 0.999 < min(moved) <= max(moved) <= choice.select.sensitivity


def tipping(n):
    """Losses of two models on two tables, the first record of which decides between them."""
    losses = np.zeros((n, 2))
    losses[::2, 0] = losses[1::2, 1] = 1.0
    other = losses.copy()
    other[0] = 0.0, 1.0
    return losses, other


def audited(run, n_trials, epsilon):
    """`run` of both tables and many streams; n is odd, so that a record tips the best."""
    root, tables = stream_from_random_state(0), tipping(401)
    found = [
        [run(table, np.ones(401), root.substream(side, k)) for k in range(n_trials)]
        for side, table in enumerate(tables)
    ]
    return audit_outcomes(*found, epsilon=epsilon)


def test_a_choice_is_not_flagged_and_one_that_looks_at_raw_scores_is(monkeypatch):
    budget = PrivacyBudget(0.1, 0.0, precision="float")
    choice = plan_choice("accuracy", 401, 2, budget, budget.allowance)
    # without the bonus, which would hide the difference
    monkeypatch.setattr(choice_module, "_BONUS", 0.0)
    monkeypatch.setitem(choice_module._RULES, "accuracy", (1.0, 0.0))
    assert not audited(choice.run, 600, 0.1).flagged

    def raw(losses, present, stream):
        return int(np.argmax(choice.scores(losses, present, 1.0)))

    assert audited(raw, 100, 0.1).flagged
    weak = replace(choice, select=replace(choice.select, scale=choice.select.scale / 40))
    assert audited(weak.run, 600, 0.1).flagged


@pytest.mark.slow
def test_whole_searches_are_not_flagged(monkeypatch):
    """Fits, choice and refit as one mechanism, on a table so small that a record shows."""
    monkeypatch.setattr(plan_module, "LEAST_ACCURACY", 0.0)
    X, y = np.zeros((20, 1)), np.tile([-1.0, 1.0], 10)
    X[0], other = 1.0, y.copy()
    y[0], other[0] = 1.0, -1.0
    model = DPMirrorRegressor(solver=NoisyMD(max_iter=2), **BOUNDS, feasible_set=L2Ball(1.0))
    search = DPGridSearchCV(model, {"feasible_set": [L2Ball(0.5)]}, epsilon=1.0, delta=1e-6)
    assert search.plan(20, 1).choice is not None

    def run(claim):
        return audit(
            search, (X, y), (X, other), 300, claim=claim, random_state=0,
            statistic=lambda fitted: float(fitted.best_estimator_.coef_[0]),
        )  # fmt: skip

    assert not run((1.0, 1e-6)).flagged
    search.set_params(epsilon=60.0)
    assert run((1.0, 1e-6)).flagged  # such an audit can see it


@pytest.mark.parametrize("scoring", ["neg_log_loss", "accuracy"])
def test_losses_of_labels_are_those_of_each_record(scoring):
    X, y = labelled(50)
    model = DPMirrorClassifier(epsilon=100.0, random_state=0, **LABELS).fit(X, y)
    compared = search_of(model)._table(X, np.append(y[:-1], "neither"), {})
    found = losses(model, compared, scoring)
    p = model.predict_proba(X)[np.arange(50), (y == "b").astype(int)]
    wanted = -np.log(p) if scoring == "neg_log_loss" else (model.predict(X) != y) * 1.0
    np.testing.assert_allclose(found[:-1], wanted[:-1])
    assert found[-1] == 0
    assert compared.weights[-1] == 0


def test_losses_of_numbers_are_in_half_widths_and_clipped_to_the_bounds():
    X, y = table(50)
    model = DPMirrorRegressor(epsilon=100.0, random_state=0, bounds_X=(-1, 1), bounds_y=(-0.1, 0.3))
    model.fit(X, y)
    y[0] = np.nan
    compared = search_of(model)._table(X, y, {})
    found = losses(model, compared, "neg_mean_squared_error")
    apart = np.clip(model.predict(X), -0.1, 0.3) - np.clip(y, -0.1, 0.3)
    np.testing.assert_allclose(found[1:], (apart[1:] / 0.2) ** 2)
    assert found[0] == 0


def test_a_random_search_draws_candidates_that_do_not_depend_on_the_data():
    X, y = labelled()
    model = DPMirrorClassifier(**LABELS, solver=NoisyMD(max_iter=2))
    settings = {"n_iter": 4, "epsilon": 4.0, "random_state": 0}
    sets = [L2Ball(radius) for radius in np.geomspace(0.1, 100, 50)]
    search = DPRandomizedSearchCV(model, {"feasible_set": sets}, **settings)
    first = search.fit(X, y).candidates_
    assert len(first) == 5
    assert clone(search).fit(-X, y[::-1]).candidates_ == first
    other = clone(search).set_params(candidates_seed=1).plan(2000, 3).candidates
    assert list(other) != first


# ------------------------------------------------------------------------------ bad input

MISTAKES = {
    "empty grid": ({"feasible_set": []}, {}, "grid"),
    "no grid": ({}, {}, "grid|settings"),
    "no such parameter": ({"raduis": [1.0]}, {}, "no parameter of the estimator"),
    "epsilon in the grid": ({"epsilon": [1.0, 2.0]}, {}, "set by the search"),
    "setting without a plan": ({"feasible_set": ["ball"]}, {}, "feasible_set must be"),
    "setting that cannot be": ({"feasible_set": ["simplex"]}, {}, "fit_intercept=False"),
    "scoring": ({"feasible_set": [L2Ball(1.0)]}, {"scoring": "r2"}, "scoring must be one of"),
    "log loss of numbers": (
        {"feasible_set": [L2Ball(1.0)]},
        {"scoring": "neg_log_loss"},
        "scoring must be",
    ),
    "epsilon": ({"feasible_set": [L2Ball(1.0)]}, {"epsilon": -1.0}, "epsilon must be"),
    "delta": ({"feasible_set": [L2Ball(1.0)]}, {"delta": 2.0}, "delta must be"),
    "relation": ({"feasible_set": [L2Ball(1.0)]}, {"relation": "one"}, "relation must be"),
    "precision": ({"feasible_set": [L2Ball(1.0)]}, {"precision": "double"}, "precision must be"),
    "random_state": ({"feasible_set": [L2Ball(1.0)]}, {"random_state": "a"}, "random_state"),
    "accountant": ({"feasible_set": [L2Ball(1.0)]}, {"accountant": 1.0}, "accountant must be"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_named_before_anything_is_spent(name):
    grid, settings, message = MISTAKES[name]
    X, y = table()
    accountant = BudgetAccountant(10.0)
    search = search_of(grid=grid, **{"accountant": accountant, **settings})
    search.param_grid = grid
    with pytest.raises(ValueError, match=message):
        search.fit(X, y)
    assert not accountant.ledger


def test_an_estimator_that_is_not_private_is_refused():
    X, y = table()
    for model in (LinearRegression(), make_pipeline(DPMirrorRegressor(), LinearRegression())):
        with pytest.raises(ValueError, match="private estimator of this package"):
            DPGridSearchCV(model, {"fit_intercept": [True]}).fit(X, y)


def test_classes_that_are_not_declared_are_taken_from_y_with_one_warning():
    X, y = labelled()
    model = DPMirrorClassifier(bounds_X=(-1, 1), solver=NoisyMD(max_iter=2))
    search = search_of(model, {"feasible_set": [L2Ball(10.0)]})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        search.fit(X, y)
    assert [w.category for w in caught] == [PrivacyLeakWarning]
    assert list(search.classes_) == ["a", "b"]


def test_frames_groups_and_invalid_records():
    X, y = table()
    frame = pd.DataFrame(X, columns=["u", "v", "w"])
    bounds = dict.fromkeys("uvw", (-1, 1))
    model = DPMirrorRegressor(
        bounds_X=bounds,
        bounds_y=(-1, 1),
        nonfinite="zero",
        feasible_set=L2Ball(0.01),
        solver=FEW_STEPS,
    )
    frame.loc[5, "u"], y[6] = np.nan, np.nan
    search = search_of(model, max_rows_per_user=2, epsilon=10.0)
    search.fit(frame, y, groups=np.arange(2000) // 2)
    assert search.best_params_ == {"feasible_set": L2Ball(1.0)}
    assert search.guarantee_.rows_per_user == 2
    assert list(search.feature_names_in_) == ["u", "v", "w"]
    assert isinstance(search.plan_.choice.select, SelectVertex)


def test_trial_fits_have_no_standard_errors_and_the_choice_is_noted():
    X, y = table(8000)
    model = DPMirrorRegressor(inference=True, bounds_X=(-1, 1), bounds_y=(-5, 5))
    search = DPGridSearchCV(model, {"bounds_y": [(-9, 9)]}, epsilon=1.2, random_state=0).fit(X, y)
    plan = search.plan_
    assert [p.problem.inference for (p,) in plan.probes + plan.refits] == [False] * 2 + [True] * 2
    note = "settings were chosen on the same records: intervals do not cover"
    best, alone = search.best_estimator_, model.set_params(epsilon=1.2, random_state=0).fit(X, y)
    assert best.summary().void == note
    assert note in str(best.summary())
    assert search.guarantee_.claim in str(best.summary()).replace("\n  ", " ")
    for asks in ("conf_int", "t_test", "wald_test", "predict_interval"):
        asked = {"conf_int": (), "predict_interval": (X[:2],)}.get(asks, (np.eye(X.shape[1] + 1),))
        with pytest.warns(PrivacyParameterWarning, match=note):
            getattr(best, asks)(*asked)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            getattr(alone, asks)(*asked)


def test_a_summary_has_the_claim_of_the_search_also_where_nothing_was_chosen():
    X, y = table(400)
    model = DPMirrorRegressor(inference=True, bounds_X=(-16, 16), bounds_y=(-5, 5))
    pipe = make_pipeline(DPScaler(), model)
    search = DPGridSearchCV(pipe, {"dpscaler__clip": [16.0]}, epsilon=60.0).fit(X, y)
    assert search.plan_.choice is None
    summary = search.best_estimator_[-1].summary()
    assert summary.void == ""
    assert search.guarantee_.claim in str(summary).replace("\n  ", " ")


@pytest.mark.parametrize("first", [StandardScaler(), "passthrough"])
def test_a_step_that_learns_without_privacy_is_named_before_anything_is_spent(first):
    X, y = table(600)
    pipe = Pipeline([("first", first), ("last", DPMirrorRegressor(**BOUNDS, solver=FEW_STEPS))])
    # also one that a setting brings
    grid = {"first": ["passthrough", StandardScaler()]}
    search = search_of(pipe, grid, epsilon=1.0, random_state=None, accountant=BudgetAccountant(1.0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyParameterWarning)
        warnings.simplefilter("error", PrivacyLeakWarning)
        with pytest.raises(PrivacyLeakWarning, match=r"first \(StandardScaler\) leaks"):
            search.fit(X, y)
        assert search.accountant.ledger == ()
        pipe.set_params(first=PolynomialFeatures(2, include_bias=False))
        search.set_params(param_grid={"last__fit_intercept": [True, False]}).fit(X, y)
