"""Frank-Wolfe: plans from public facts, and the method itself."""

import dataclasses
import inspect
import itertools
import math

import numpy as np
import pytest
from scipy.optimize import minimize
from support import LOSSES, problem, scaled_table, solver_data, storage, stream

from sklearn_dpsco import DPLassoFW, DPLassoFWClassifier
from sklearn_dpsco.accounting import PrivacyBudget
from sklearn_dpsco.audit import map_mechanisms, mechanisms
from sklearn_dpsco.geometry import L1Ball, Simplex
from sklearn_dpsco.losses import Loss
from sklearn_dpsco.mechanisms import Gaussian, Laplace, SelectVertex
from sklearn_dpsco.solvers.base import Problem
from sklearn_dpsco.solvers.frank_wolfe import FrankWolfe

FORMS = ["selection", "gradient"]
RELATIONS = ["replace-one", "zero-out"]
TASKS = ["regression", "classification"]
every_form = pytest.mark.parametrize("form", FORMS)
every_relation = pytest.mark.parametrize("relation", RELATIONS)
every_task = pytest.mark.parametrize("task", TASKS)
BUDGET = PrivacyBudget(1.0, 1e-6)


def without_noise(plan, **changes):
    """The same plan with next to no noise: the method itself."""
    plan = map_mechanisms(plan, lambda _, m: dataclasses.replace(m, scale=1e-13))
    return dataclasses.replace(plan, **changes)


# ------------------------------------------------------------------------------ the plan


@pytest.mark.parametrize("form", ["auto", "selection", "gradient", "constant"])
@pytest.mark.parametrize("n_models", [1, 4])
def test_a_plan_is_a_function_of_public_facts(form, n_models):
    assert list(inspect.signature(FrankWolfe.plan).parameters) == ["self", "problem", "budget"]
    for n, d in ((1, 1), (300, 7)):
        plans = [
            FrankWolfe(form=form).plan(problem(n, d, n_models=n_models), BUDGET) for _ in range(2)
        ]
        assert plans[0] == plans[1]
        with pytest.raises(dataclasses.FrozenInstanceError):
            plans[0].max_iter = 3


@every_form
def test_settings_are_honoured(form):
    solver = FrankWolfe(form, max_iter=11, learning_rate=0.25, gradient_clip=0.3, data_norm=1.7)
    plan = solver.plan(problem(100, 40, radius=1.5), BUDGET)
    assert (plan.solver, plan.max_iter, plan.learning_rate) == (form, 11, 0.25)
    assert (plan.gradient_clip, plan.geometry) == (0.3, L1Ball(1.5))
    if form == "gradient":
        assert plan.data_norm == 1.7


@every_form
def test_public_parameters_reach_the_plan(form):
    X, y = scaled_table(50, 12)
    model = DPLassoFW(
        bounds_X=(-1, 1), bounds_y=(-1, 1), solver=form, max_iter=5, learning_rate=0.2,
        gradient_clip=0.7, data_norm=1.1, radius=0.9, relation="zero-out", epsilon=3.0,
    )  # fmt: skip
    before = model.plan(50, 12)
    plan = model.fit(X, y).plan_
    assert plan == before
    assert model.guarantee_ is plan.guarantee
    assert (plan.solver, plan.max_iter, plan.learning_rate) == (form, 5, 0.2)
    assert (plan.gradient_clip, plan.geometry.radius, plan.budget.epsilon) == (0.7, 0.9, 3.0)
    assert model.guarantee_.relation == "zero-out"
    assert model.n_iter_ == 5
    if form == "gradient":
        assert plan.data_norm == 1.1


@every_task
def test_clip_never_exceeds_the_bound_of_the_loss(task):
    plan = FrankWolfe("selection", gradient_clip=1e9).plan(problem(10, 3, task=task), BUDGET)
    largest = 2.0 + abs(LOSSES[task].best_constant(1.0))
    assert plan.gradient_clip == LOSSES[task].derivative_bound(largest)


@every_form
@every_relation
def test_sensitivities_have_the_proved_form(form, relation):
    n, d, clip, radius, norm = 1000, 20, 0.3, 1.5, 2.0
    solver = FrankWolfe(form, max_iter=9, gradient_clip=clip, data_norm=norm)
    plan = solver.plan(problem(n, d, radius=radius), PrivacyBudget(1.0, 1e-6, relation))
    factor = 2 if relation == "replace-one" else 1
    expected = factor * clip * (2 * radius if form == "selection" else norm) / n
    # never below, and above it by no more than the float error of a sum
    for mechanism, exact in ((plan.step, expected), (plan.intercept, factor / n)):
        assert exact < mechanism.sensitivity < exact * (1 + 1e-8)


@every_form
@pytest.mark.parametrize("n_models", [1, 3])
def test_classes_share_the_budget(form, n_models):
    solver = FrankWolfe(form, max_iter=20)
    plan = solver.plan(problem(500, 8, task="classification", n_models=n_models), BUDGET)
    assert plan.guarantee.repetitions == n_models
    kind = plan.guarantee.composition
    limit = BUDGET.gaussian_allowance.amount if kind == "gdp" else BUDGET.rho
    if kind == "adaptive-range":
        assert BUDGET.delta * 0.99 <= plan.guarantee.spent <= BUDGET.delta
    else:
        per_class = sum(r.count * r.mechanism.cost(kind) for r in plan.guarantee.releases)
        assert per_class == pytest.approx(limit / n_models, rel=1e-9)
        assert plan.guarantee.spent <= limit
    counts = {id(r.mechanism): r.count for r in plan.guarantee.releases}
    assert counts[id(plan.step)] == 20
    # everything that the run uses is in the claim
    assert set(mechanisms(plan).values()) == {r.mechanism for r in plan.guarantee.releases}


def test_pure_budget_allows_selection_only():
    pure = PrivacyBudget(1.0, 0.0)
    with pytest.raises(ValueError, match="selection"):
        FrankWolfe("gradient").plan(problem(100, 3), pure)
    for form in ("selection", "auto"):
        plan = FrankWolfe(form, max_iter=5).plan(problem(100, 3), pure)
        assert plan.solver == "selection"
        assert plan.guarantee.composition == "pure"
        assert isinstance(plan.intercept, Laplace)
        assert plan.step.noise == "exponential"
        assert plan.guarantee.spent == pytest.approx(1.0, rel=1e-9)


def test_kinds_of_noise_under_approximate_dp():
    assert isinstance(FrankWolfe("gradient").plan(problem(100, 3), BUDGET).step, Gaussian)
    plan = FrankWolfe("selection", max_iter=50).plan(problem(100, 3), BUDGET)
    assert isinstance(plan.step, SelectVertex)
    assert plan.step.noise == "gumbel"


def test_constant_plan_spends_everything_on_the_intercept():
    for n_models, budget in itertools.product((1, 3), (BUDGET, PrivacyBudget(1.0, 0.0))):
        plan = FrankWolfe("constant").plan(problem(50, 3, n_models=n_models), budget)
        assert list(mechanisms(plan)) == ["intercept"]
        (release,) = plan.guarantee.releases
        assert release.mechanism is plan.intercept
        assert plan.guarantee.spent == pytest.approx(budget.gaussian_allowance.amount, rel=1e-9)
        result = FrankWolfe("constant").solve(solver_data(*scaled_table(50, 3)), plan, stream())
        assert not np.any(result.coef)
        assert result.n_iter == 1


def test_a_loss_that_is_not_smooth_is_refused():
    class Hinge(Loss):
        task = "classification"
        smoothness = math.inf

    with pytest.raises(ValueError, match="smooth"):
        FrankWolfe().plan(problem(100, 3, loss=Hinge()), BUDGET)


# --------------------------------------------------------------------------- the method


def best_loss(X, y, offset, loss, radius, *, fit_intercept):
    """Minimum of the mean loss over the l1 ball, by a generic solver."""
    A = np.column_stack((X, np.ones(len(y)))) if fit_intercept else X
    k = A.shape[1]

    def parts(w):
        z = offset + A @ (w[:k] - w[k:])
        gradient = A.T @ loss.derivative(z, y) / len(y)
        return loss.value(z, y).mean(), np.concatenate((gradient, -gradient))

    found = minimize(
        parts, np.full(2 * k, radius / (4 * k)), jac=True, bounds=[(0, None)] * (2 * k),
        constraints={"type": "ineq", "fun": lambda w: radius - w.sum()},
        method="SLSQP", options={"maxiter": 500, "ftol": 1e-12},
    )  # fmt: skip
    assert found.success
    return found.fun


@every_form
@every_task
@pytest.mark.parametrize("radius", [0.5, 5.0])  # active and inactive
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_without_noise_the_constrained_optimum_is_found(form, task, radius, fit_intercept):
    n, d = 60, 4
    X, y = scaled_table(n, d, task=task)
    loss = LOSSES[task]
    solver = FrankWolfe(form, max_iter=2500, gradient_clip=1e6, data_norm=1e6)
    facts = problem(n, d, task=task, radius=radius, fit_intercept=fit_intercept)
    # a budget so large that the offset is the plain mean of the targets
    plan = without_noise(solver.plan(facts, PrivacyBudget(50.0)), smoothing=0.5)
    result = solver.solve(solver_data(X, y, fit_intercept=fit_intercept), plan, stream())
    offset = loss.best_constant(y.mean()) if fit_intercept else 0.0
    # a plan that centres the features counts the intercept from their means
    center = X.mean(axis=0) if "center" in mechanisms(plan) else np.zeros(d)
    free = result.intercept - offset + center @ result.coef
    assert np.abs(result.coef).sum() + abs(free) <= radius * (1 + 1e-12)
    reached = loss.value(X @ result.coef + result.intercept, y).mean()
    best = best_loss(X - center, y, offset, loss, radius, fit_intercept=fit_intercept)
    trivial = loss.value(np.full(n, offset), y).mean()
    assert best - 1e-9 <= reached <= best + 2e-3 * (trivial - best)


@every_form
def test_without_noise_and_with_a_clip_the_clipped_loss_is_minimized(form):
    # the squared loss with a clipped derivative is Huber's loss
    n, d = 60, 3
    X, y = scaled_table(n, d)
    y[:6] = -y[:6]
    from sklearn_dpsco.losses import Huber

    solver = FrankWolfe(form, max_iter=2500, gradient_clip=0.2, data_norm=1e6)
    plan = without_noise(solver.plan(problem(n, d, fit_intercept=False), BUDGET), smoothing=0.5)
    result = solver.solve(solver_data(X, y, fit_intercept=False), plan, stream())
    best = best_loss(X, y, 0.0, Huber(0.2), 2.0, fit_intercept=False)
    reached = Huber(0.2).value(X @ result.coef, y).mean()
    assert best - 1e-9 <= reached <= best * 1.01


@every_form
def test_constant_learning_rate_is_used(form):
    X, y = scaled_table(30, 3)
    results = []
    for rate in (1.0, 0.05):
        solver = FrankWolfe(form, max_iter=1, learning_rate=rate)
        plan = without_noise(solver.plan(problem(30, 3, fit_intercept=False), BUDGET))
        results.append(solver.solve(solver_data(X, y, fit_intercept=False), plan, stream()).coef)
    np.testing.assert_allclose(0.05 * results[0], results[1], rtol=1e-9)


@every_form
@pytest.mark.parametrize(("n", "d"), [(1, 1), (1, 5), (2, 1), (3, 2), (5, 1)])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_tiny_sizes(form, n, d, fit_intercept):
    for kind, max_iter in itertools.product(("dense", "csr", "csc"), (1, 2, 3)):
        solver = FrankWolfe(form, max_iter=max_iter)
        plan = solver.plan(problem(n, d, fit_intercept=fit_intercept), BUDGET)
        X, y = scaled_table(n, d)
        data = solver_data(storage(X, kind), y, fit_intercept=fit_intercept)
        result = solver.solve(data, plan, stream())
        assert result.coef.shape == (d,)
        assert np.all(np.isfinite(result.coef))
        assert np.abs(result.coef).sum() <= 2.0 * (1 + 1e-12)
        assert np.isfinite(result.intercept)
        assert result.n_iter == max_iter
        assert fit_intercept or result.intercept == 0


@every_form
@pytest.mark.parametrize("data_norm", [None, 0.8])
def test_simplex(form, data_norm):
    # a row bound below the largest row asks for a rescaling, which must not leave the set
    X = 0.9 * np.sign(scaled_table(80, 4)[0])
    y = np.clip(X @ [0.7, 0.3, 0, 0], -1, 1)
    solver = FrankWolfe(form, max_iter=30, data_norm=data_norm)
    facts = Problem(80, 4, LOSSES["regression"], Simplex(1.0), fit_intercept=False)
    plan = solver.plan(facts, PrivacyBudget(50.0, 1e-6))
    result = solver.solve(solver_data(X, y, fit_intercept=False), plan, stream())
    assert np.all(result.coef >= 0)
    assert result.coef.sum() == pytest.approx(1.0)


@every_form
def test_simplex_without_noise(form):
    X, _ = scaled_table(80, 4)
    y = X @ np.array([0.7, 0.3, 0.0, 0.0])
    solver = FrankWolfe(form, max_iter=2000, data_norm=1e6, gradient_clip=1e6)
    facts = Problem(80, 4, LOSSES["regression"], Simplex(1.0), fit_intercept=False)
    plan = without_noise(solver.plan(facts, BUDGET), smoothing=0.5)
    result = solver.solve(solver_data(X, y, fit_intercept=False), plan, stream())
    np.testing.assert_allclose(result.coef, [0.7, 0.3, 0, 0], atol=0.02)


# ------------------------------------------------- what must not matter to the outcome


def fitted(kind, X, y, *, task, **parameters):
    if task == "regression":
        model = DPLassoFW(bounds_X=(-1, 1), bounds_y=(-1, 1), random_state=0, **parameters)
    else:
        model = DPLassoFWClassifier(
            bounds_X=(-1, 1), classes=np.unique(y), random_state=0, **parameters
        )
    model.fit(storage(X, kind), y)
    return np.append(model.coef_, model.intercept_)


@every_form
@every_relation
@every_task
def test_dense_and_sparse_agree(form, relation, task):
    X, y = scaled_table(150, 6, task=task, density=0.3)
    settings = {"solver": form, "relation": relation, "max_iter": 25, "task": task, "epsilon": 2.0}
    dense = fitted("dense", X, y, **settings)
    assert np.any(dense != 0)
    for kind in ("fortran", "csr", "csc"):
        np.testing.assert_allclose(fitted(kind, X, y, **settings), dense, atol=1e-10, rtol=0)


@every_form
@every_task
def test_the_order_of_the_rows_does_not_matter(form, task):
    X, y = scaled_table(151, 5, task=task)
    order = np.random.default_rng(0).permutation(151)
    settings = {"solver": form, "max_iter": 25, "task": task}
    first = fitted("dense", X, y, **settings)
    np.testing.assert_allclose(
        fitted("dense", X[order], y[order], **settings), first, atol=1e-9, rtol=0
    )


@every_form
def test_float32_data_lead_to_float64_coefficients(form):
    X, y = scaled_table(100, 4)
    X = X.astype(np.float32)
    settings = {"solver": form, "max_iter": 20, "task": "regression"}
    single, double = (fitted("dense", A, y, **settings) for A in (X, X.astype(np.float64)))
    assert single.dtype == np.float64
    np.testing.assert_allclose(single, double, atol=1e-9)


@every_form
def test_seed_decides_the_noise(form):
    data = solver_data(*scaled_table(40, 3))
    solver = FrankWolfe(form, max_iter=6)
    plan = solver.plan(problem(40, 3), BUDGET)
    first, same, other = (solver.solve(data, plan, stream(s)) for s in (0, 0, 1))
    np.testing.assert_array_equal(first.coef, same.coef)
    assert first.intercept == same.intercept
    assert first.intercept != other.intercept


@every_form
def test_the_data_are_left_alone(form):
    X, y = scaled_table(40, 3)
    data = solver_data(X, y)
    before = X.copy(), y.copy()
    solver = FrankWolfe(form, max_iter=6)
    solver.solve(data, solver.plan(problem(40, 3), BUDGET), stream())
    np.testing.assert_array_equal(X, before[0])
    np.testing.assert_array_equal(y, before[1])


@every_form
def test_an_empty_record_leaves_no_trace(form):
    # under zero-out a row of scale 0 must count as nothing, whatever stands in it
    X, y = scaled_table(30, 3)
    scale = np.ones(30)
    scale[4] = 0
    solver = FrankWolfe(form, max_iter=8)
    plan = solver.plan(problem(30, 3), PrivacyBudget(1.0, 1e-6, "zero-out"))
    results = []
    for x, target in ((-1.0, 1.0), (1.0, -1.0)):
        X[4], y[4] = x, target
        results.append(solver.solve(solver_data(X.copy(), y.copy(), scale=scale), plan, stream()))
    np.testing.assert_allclose(results[0].coef, results[1].coef, atol=1e-12)
    assert results[0].intercept == pytest.approx(results[1].intercept, abs=1e-12)
