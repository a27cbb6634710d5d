"""The parameter `solver`: an object with the settings of one algorithm, or its name."""

import inspect
import itertools
import pickle

import numpy as np
import pytest
from registry import (
    BAD_OF_SOLVERS,
    ESTIMATORS,
    build,
    each,
    entry,
    is_classifier,
    kind_of,
    nothing_is_released,
    outcome,
    parameters_of,
    solver_of,
    table,
)
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold
from support import rest_is_slow
from test_bad_input import calls_without_data

from sklearn_dpsco import BudgetAccountant
from sklearn_dpsco.solvers import FTRL, SCOF, Descent, NoisyMD, PhasedSGD, Selection
from sklearn_dpsco.solvers.frank_wolfe import FrankWolfePlan
from sklearn_dpsco.solvers.papers.single_pass import SinglePassPlan

WITH_SOLVER = [name for name in ESTIMATORS if "solver" in parameters_of(name)]
each_with_solver = pytest.mark.parametrize("name", WITH_SOLVER)
# all names of solvers; always run: those of one of the two models of a family
NAMED = [(name, solver) for name in WITH_SOLVER for solver in kind_of(name)._solvers]
each_named = rest_is_slow(
    ("name", "solver"), NAMED, {f"{n}-{s}" for n, s in NAMED if not is_classifier(n)}
)


def kind_of_solver(name, solver):
    return kind_of(name)._solvers[solver]


def data(name):
    return table(name, n=50)


def fitted(name, **parameters):
    return build(name, **parameters).fit(*data(name))


def assert_same_fit(one, two):
    np.testing.assert_array_equal(outcome(one), outcome(two))
    assert one.plan_ == two.plan_


# ------------------------------------------------------------------------------- bad values


@each_named
def test_bad_values_are_refused_by_name_before_anything_is_spent(name, solver):
    kind, accountant = kind_of_solver(name, solver), BudgetAccountant(10.0)
    for key in kind().get_params():
        for value in BAD_OF_SOLVERS[key]:
            model = build(name, solver=kind(**{key: value}), accountant=accountant)
            for call in calls_without_data(model).values():
                with nothing_is_released(), pytest.raises(ValueError, match=rf"\b{key}\b"):
                    call()
    assert accountant.ledger == ()


@each_with_solver
def test_what_is_no_solver_of_the_family_is_refused(name):
    kinds = set(kind_of(name)._solvers.values())
    others = [k() for k in (Selection, NoisyMD, PhasedSGD, FTRL, SCOF) if k not in kinds]
    for solver in (*others, *kinds, "no such name", 3, None):
        for call in calls_without_data(build(name, solver=solver)).values():
            with nothing_is_released(), pytest.raises(ValueError, match="solver must be one of"):
                call()


# ---------------------------------------------------------------------- names and objects


@each_named
def test_a_name_is_an_object_and_each_default_is_what_stands_for_it(name, solver):
    kind = kind_of_solver(name, solver)
    by_name = fitted(name, solver=solver)
    assert_same_fit(by_name, fitted(name, solver=kind(**kind().get_params())))
    assert build(name, solver=kind()).plan(50, 3) == by_name.plan_
    plan = str(by_name.plan_)
    for key, value in kind().get_params().items():
        assert str(build(name, solver=kind(**{key: value})).plan(50, 3)) == plan, key


@each_named
def test_a_solver_is_a_set_of_parameters(name, solver):
    kind = kind_of_solver(name, solver)
    own, parameters = kind(), kind().get_params()
    model = build(name, solver=own)
    assert model.get_params() == {**model.get_params(deep=False)} | {
        f"solver__{key}": value for key, value in parameters.items()
    }
    assert own.get_params() == parameters
    for twin in (clone(model), pickle.loads(pickle.dumps(model))):
        assert type(twin.solver) is kind
        assert twin.solver is not own
        assert str(twin.plan(50, 3)) == str(model.plan(50, 3))
    if "max_iter" in parameters:
        before = vars(own).copy()
        model.set_params(solver__max_iter=2).fit(*data(name))
        assert vars(own) == before | {"max_iter": 2}  # a fit keeps nothing in it
        kept = str(model.plan_)
        assert model.plan_ == build(name, solver=kind(max_iter=2)).plan(50, 3)
        own.set_params(max_iter=3)
        assert str(model.plan_) == kept
        assert_same_fit(model.fit(*data(name)), fitted(name, solver=kind(max_iter=3)))
        assert str(model.plan_) != kept or solver == "tree"  # whose depth is the same
        with pytest.raises(ValueError, match=rf"solver={kind.__name__}\(max_iter=...\)"):
            build(name, solver=solver).set_params(solver__max_iter=3)


def with_max_iter(name):
    """The first class of the family that has steps to be set; None if there is none."""
    kinds = kind_of(name)._solvers.values()
    return next((kind for kind in kinds if "max_iter" in kind().get_params()), None)


@rest_is_slow("name", WITH_SOLVER, [name for name in WITH_SOLVER if not is_classifier(name)])
def test_searches_over_a_setting(name):
    kind = with_max_iter(name)
    grid = {"solver__max_iter": [2, 3]} if kind else {"solver__average": [True, False]}
    model = build(name, solver=kind() if kind else solver_of(name))
    before = model.solver.get_params()
    search = GridSearchCV(model, grid, cv=KFold(2), error_score="raise").fit(*data(name))
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_estimator_.solver.get_params() == before | {
        key.removeprefix("solver__"): value for key, value in search.best_params_.items()
    }
    assert model.solver.get_params() == before


@each_with_solver
def test_settings_of_a_name_are_refused_with_the_class_to_write(name):
    kind = with_max_iter(name)
    if kind is not None:
        with pytest.raises(ValueError, match=rf"write solver={kind.__name__}\(max_iter=...\)"):
            build(name).set_params(solver__max_iter=3)
    with pytest.raises(ValueError, match="no solver here has 'radius'"):
        build(name).set_params(solver__radius=3)


# ------------------------------------------------- automatic values, and whose algorithm runs


@pytest.mark.parametrize(
    ("name", "solver"),
    [
        ("DPMirrorRegressor", "descent"),
        ("DPMirrorRegressor", Descent()),
        ("DPPhasedSGDRegressor", PhasedSGD(n_phases=1)),
        ("DPPhasedSGDRegressor", PhasedSGD(max_iter=40)),
        ("DPLassoFW", "gradient"),
    ],
)
def test_declaring_an_automatic_value_changes_nothing(name, solver):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (6000, 5))
    y = np.clip(X @ [0.5, -0.3, 0.2, 0, 0] + 0.1 * rng.standard_normal(6000), -1, 1)
    by_default = build(name).fit(X, y)
    assert_same_fit(build(name, solver=solver).fit(X, y), by_default)
    assert name != "DPLassoFW" or by_default.plan_.solver == "gradient"


@pytest.mark.parametrize("name", ["DPLassoFW", "DPLassoFWClassifier"])
def test_frank_wolfe_runs_frank_wolfe(name):
    sizes = ((300, 3), (3000, 10), (100_000, 60))
    solvers = kind_of(name)._solvers
    budgets = itertools.cycle((0.1, 1.0, 10.0))
    for ((n, d), solver), epsilon in zip(itertools.product(sizes, solvers), budgets, strict=False):
        plan = build(name, solver=solver, epsilon=epsilon).plan(n, d)
        assert type(plan) in (FrankWolfePlan, SinglePassPlan), (n, d, epsilon, solver)


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("DPLinearRegression", "DPMirrorRegressor"),
        ("DPLogisticRegression", "DPMirrorClassifier"),
    ],
)
def test_the_models_to_start_with_are_the_defaults_of_mirror_descent(name, other):
    for n, settings in ((100, {}), (2000, {}), (2000, {"epsilon": 0.1, "fit_intercept": False})):
        X, y = table(name, n)
        assert_same_fit(build(name, **settings).fit(X, y), build(other, **settings).fit(X, y))


# ------------------------------------------------------------------------------ signatures


@each
def test_parameters_are_few_and_in_one_order(name):
    order = [
        "epsilon", "delta", "relation", "max_rows_per_user", "max_weight", "bounds_X", "scale_X",
        "bounds_y", "bounds_exposure", "power", "scale_y", "center_X", "center_y", "classes",
        "class_weight", "fit_intercept",
        "inference", "horizon", "loss", "feasible_set", "units", "solver", "precision", "nonfinite",
        "accountant", "random_state", "verbose",
    ]  # fmt: skip
    found = list(inspect.signature(kind_of(name)).parameters)
    assert found == [key for key in order if key in found]
    assert len(found) <= (19 if "solver" in found else 16)


@each
@pytest.mark.parametrize("key", ["max_iter", "radius", "C"])
def test_an_unknown_keyword_says_where_it_lives(name, key):
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{key}'") as caught:
        kind_of(name)(**{key: 3})
    if entry(name).of_rates:
        return  # it lives nowhere
    if name not in WITH_SOLVER:
        other = "DPMirrorClassifier" if is_classifier(name) else "DPMirrorRegressor"
        lives = {"max_iter": "solver=", "radius": "", "C": "solver=NoisyMD(l2_penalty=...))"}
        assert f"; see {other}({lives[key]}" in str(caught.value)
        return
    kinds = {k.__name__: k().get_params() for k in kind_of(name)._solvers.values()}
    advice = str(caught.value).partition("; see ")[2]
    if key == "max_iter":
        named = any(f"solver={kind}(max_iter=...)" in advice for kind in kinds)
        assert named == any("max_iter" in parameters for parameters in kinds.values())
    else:
        assert "'feasible_set'" in advice
