"""Frank-Wolfe: plans from public facts, and the method itself."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.metrics import log_loss
from support import (
    CONSTANT,
    LOSSES,
    cells_of,
    half_is_enough,
    problem,
    rest_is_slow,
    scaled_table,
    solver_data,
    solver_of,
    storage,
    stream,
    without_noise,
)

from sklearn_dpsco import DPLassoFW, DPLassoFWClassifier
from sklearn_dpsco.audit import check_sensitivity, mechanisms, neighbours
from sklearn_dpsco.geometry import AxisVertices, Geometry, L1Ball, L2Ball, Simplex, VertexMatrix
from sklearn_dpsco.losses import Envelope, Hinge, Huber, Loss, Quantile
from sklearn_dpsco.mechanisms import Gaussian, Laplace, SelectVertex
from sklearn_dpsco.privacy.budget import RELATIONS, PrivacyBudget
from sklearn_dpsco.solvers import FrankWolfe, Gradient, Selection, defaults
from sklearn_dpsco.solvers.defaults import smoothed_for

TASKS = ["regression", "classification"]
FORMS = ("selection", "gradient")  # a single pass: test_single_pass.py
every_form = pytest.mark.parametrize("form", FORMS)
BUDGET = PrivacyBudget(1.0, 1e-6)


# ------------------------------------------------------------------------------ the plan


def test_the_automatic_choice_bets_on_sparse_models_where_gradients_drown():
    def chosen(n, d, kind=L1Ball, units="auto"):
        facts = dataclasses.replace(problem(n, d), feasible_set=kind, units=units)
        return FrankWolfe().plan(facts, BUDGET).solver

    for units in ("auto", "bounds"):
        assert chosen(20_000, 80, units=units) == "gradient"
        assert chosen(5000, 500, units=units) == "selection"
        assert chosen(20_000, 2000, units=units) == "selection"
    assert chosen(40, 3) in ("gradient", "constant")
    assert chosen(2, 3) == "constant"
    assert chosen(5000, 500, kind=L2Ball) != "selection"  # it has no vertices


@every_form
def test_public_parameters_reach_the_plan(form):
    X, y = scaled_table(50, 12)
    solver = solver_of(form, max_iter=5, learning_rate=0.2, gradient_clip=0.7, data_norm=1.1)
    model = DPLassoFW(
        bounds_X=(-1, 1), bounds_y=(-1, 1), solver=solver, feasible_set=L1Ball(0.9),
        relation="zero-out", epsilon=3.0,
    )  # fmt: skip
    before = model.plan(50, 12)
    plan = model.fit(X, y).plan_
    assert plan == before
    assert model.guarantee_ == plan.guarantee
    assert (plan.solver, plan.max_iter, plan.learning_rate) == (form, 5, 0.2)
    assert (plan.gradient_clip, plan.geometry, plan.budget.epsilon) == (0.7, L1Ball(0.9), 3.0)
    assert model.guarantee_.relation == "zero-out"
    assert model.n_iter_ == 5
    if form == "gradient":
        assert plan.data_norm == 1.1


def test_many_classes_are_not_mostly_noise():
    rng, k = np.random.default_rng(0), 10
    X = rng.uniform(-1, 1, (3000, 8))
    y = (0.8 * X @ rng.normal(size=(8, k)) + rng.gumbel(size=(3000, k))).argmax(axis=1)
    facts = {"bounds_X": (-1, 1), "classes": range(k), "relation": "zero-out", "random_state": 0}
    probabilities = DPLassoFWClassifier(epsilon=0.5, **facts).fit(X, y).predict_proba(X)
    frequencies = np.tile(np.bincount(y) / len(y), (len(y), 1))
    assert log_loss(y, probabilities) < log_loss(y, frequencies) - 0.1


def test_noise_of_several_classes_adds_up_where_columns_are_few():
    """The radius falls with it, and not where columns are many."""

    def radius(d, k):
        model = DPLassoFWClassifier(delta=1e-6, classes=list(range(k)), bounds_X=(-1, 1))
        return model.plan(6000, d).geometry.radius / k

    assert radius(20, 5) < 0.7 * radius(60, 5) * np.sqrt(60 / 20)
    assert radius(60, 5) > 0.99 * radius(60, 3)


def test_noise_does_not_drive_the_iterates_about_the_minimum():
    """As it does where the momentum is a mean of all gradients: losses were twice these."""
    scores = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X, y = rng.uniform(-1, 1, (3000, 20)), rng.normal(size=3000).clip(-6, 6)
        facts = {"bounds_X": (-1, 1), "relation": "zero-out", "delta": 1e-6, "random_state": seed}
        model = DPLassoFW(epsilon=0.3, bounds_y=(-6, 6), **facts).fit(X, y)
        labels = DPLassoFWClassifier(epsilon=0.3, classes=[0, 1], **facts).fit(X, y > 0)
        truth = rng.uniform(-1, 1, (3000, 20)), rng.normal(size=3000)
        loss = log_loss(truth[1] > 0, labels.predict_proba(truth[0])) - math.log(2)
        scores.append((-model.score(*truth), loss))
    assert np.all(np.mean(scores, axis=0) < (0.16, 0.1))


def test_the_set_of_labels_grows_with_the_columns():
    """Where it did not, slopes of many columns were far too flat."""

    def size(task, d):
        facts = problem(5000, d, task=task)
        facts = dataclasses.replace(facts, feasible_set=L1Ball, units="bounds")
        norm = defaults.data_norm(facts)
        noise = defaults.gradient_noise(facts, BUDGET, norm, BUDGET.rho)
        return Gradient().plan(facts, BUDGET).geometry.radius * math.sqrt(noise)

    assert size("classification", 64) == pytest.approx(2**0.5 * size("classification", 16))
    assert size("regression", 64) == pytest.approx(size("regression", 16))


def test_clip_never_exceeds_the_bound_of_the_loss():
    for task in TASKS:
        plan = Selection(gradient_clip=1e9).plan(problem(10, 3, task=task), BUDGET)
        largest = 2.0 + abs(LOSSES[task].best_constant(1.0))
        assert plan.gradient_clip == LOSSES[task].derivative_bound(largest), task


def test_sensitivities_have_the_proved_form():
    n, d, clip, radius, norm = 1000, 20, 0.3, 1.5, 2.0
    for form, relation in itertools.product(FORMS, RELATIONS):
        solver = solver_of(form, max_iter=9, gradient_clip=clip, data_norm=norm)
        plan = solver.plan(problem(n, d, radius=radius), PrivacyBudget(1.0, 1e-6, relation))
        factor = 2 if relation == "replace-one" else 1
        expected = factor * clip * (2 * radius if form == "selection" else norm) / n
        # never below, and above it by no more than the float error of a sum
        for mechanism, exact in ((plan.step, expected), (plan.first.target, factor / n)):
            assert exact < mechanism.sensitivity < exact * (1 + 1e-8), f"{form}, {relation}"


def test_all_classes_together_have_the_budget():
    for form, n_outputs in itertools.product(FORMS, (1, 3)):
        case = f"{form}, {n_outputs}"
        solver = solver_of(form, max_iter=20)
        plan = solver.plan(problem(500, 8, task="classification", n_outputs=n_outputs), BUDGET)
        kind = plan.guarantee.composition
        limit = BUDGET.gaussian_allowance.amount if kind == "gdp" else BUDGET.rho
        if kind == "adaptive-range":
            assert BUDGET.delta * 0.99 <= plan.guarantee.spent <= BUDGET.delta, case
        else:
            assert plan.guarantee.spent == pytest.approx(limit, rel=1e-9), case
            assert plan.guarantee.spent <= limit, case
        counts = {id(r.mechanism): r.count for r in plan.guarantee.releases}
        assert counts[id(plan.step)] == 20, case
        # everything that the run uses is in the claim
        assert set(mechanisms(plan).values()) == {r.mechanism for r in plan.guarantee.releases}


def test_pure_budget_allows_selection_only():
    pure = PrivacyBudget(1.0, 0.0)
    with pytest.raises(ValueError, match="selection"):
        Gradient().check(LOSSES["regression"], L1Ball, pure)
    for solver in (Selection(max_iter=5), FrankWolfe()):
        plan = solver.plan(problem(100, 3), pure)
        assert plan.solver == "selection"
        assert plan.guarantee.composition == "pure"
        assert isinstance(plan.first.target, Laplace)
        assert plan.step.noise == "exponential"
        assert plan.guarantee.spent == pytest.approx(1.0, rel=1e-9)
    with pytest.raises(ValueError, match="selections of vertices alone, of which L2Ball has none"):
        FrankWolfe().check(LOSSES["regression"], L2Ball, pure)


def test_kinds_of_noise_under_approximate_dp():
    assert isinstance(Gradient().plan(problem(100, 3), BUDGET).step, Gaussian)
    plan = Selection(max_iter=50).plan(problem(100, 3), BUDGET)
    assert isinstance(plan.step, SelectVertex)
    assert plan.step.noise == "gumbel"


def test_constant_plan_spends_everything_on_the_intercept():
    for budget in (BUDGET, PrivacyBudget(1.0, 0.0)):
        plan = CONSTANT.plan(problem(50, 3), budget)
        assert list(mechanisms(plan)) == ["first.target"]
        (release,) = plan.guarantee.releases
        assert release.mechanism is plan.first.target
        assert plan.guarantee.spent == pytest.approx(budget.gaussian_allowance.amount, rel=1e-9)
        result = plan.run(solver_data(*scaled_table(50, 3)), stream())
        assert not np.any(result.coef)
        assert result.n_iter == 1


class OwnHinge(Loss):
    """A user's loss with a kink, and no closed form for its envelope."""

    task = "classification"
    smoothness = math.inf
    is_convex = True

    def derivative(self, z, y):
        return np.where(y * z < 1, -y, 0.0)

    def derivative_bound(self, prediction_bound, y_bound=1.0):
        return 1.0

    def best_constant(self, mean):
        return Hinge().best_constant(mean)


def test_a_loss_with_a_kink_that_is_not_convex_is_refused(monkeypatch):
    monkeypatch.setattr(OwnHinge, "is_convex", False)
    with pytest.raises(ValueError, match="convex"):
        FrankWolfe().check(OwnHinge(), L1Ball, BUDGET)
    with pytest.raises(ValueError, match="convex"):
        FrankWolfe().plan(problem(100, 3, loss=OwnHinge()), BUDGET)


@rest_is_slow(
    ("form", "relation"),
    itertools.product(FORMS, RELATIONS),
    ("selection-replace-one", "gradient-zero-out"),
)
def test_a_loss_with_a_kink_is_smoothed_and_a_users_own_as_well(form, relation):
    budget = PrivacyBudget(3.0, 1e-6, relation)
    results = []
    for loss in (Hinge(), OwnHinge()):
        solver = solver_of(form, max_iter=6)
        facts = dataclasses.replace(problem(40, 3, loss=loss), feasible_set=L1Ball)
        plan = solver.plan(facts, budget)
        assert plan.problem == smoothed_for(facts, 1.0, 6)
        assert isinstance(plan.problem.loss, Envelope)
        assert plan.gradient_clip == 1.0  # a smaller one would move the minimizer
        found = check_sensitivity(plan, neighbours(facts, relation, 3))
        assert not found.violations, found
        assert found.ratios["step"] > 0.5, found
        X, y = scaled_table(40, 3, task="classification")
        plan = without_noise(plan)
        results.append(plan.run(solver_data(X, y), stream()).coef)
    np.testing.assert_allclose(results[0], results[1], atol=1e-9)


def test_quantiles_have_their_share_of_the_targets_below():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (10_000, 4))
    y = np.clip(0.4 * X[:, 0] + 0.2 * rng.standard_normal(len(X)), -1, 1)
    for level in (0.2, 0.5, 0.9):
        model = DPLassoFW(
            epsilon=3.0, bounds_X=(-1, 1), bounds_y=(-1, 1), loss=Quantile(level), random_state=0
        )
        assert np.mean(y < model.fit(X, y).predict(X)) == pytest.approx(level, abs=0.03), level


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


def test_losses_with_a_kink_take_more_steps_where_noise_is_small_alone():
    def steps(loss, n, epsilon):
        settings = {"epsilon": epsilon, "delta": 1e-6, "bounds_X": (-1, 1), "classes": [0, 1]}
        return DPLassoFWClassifier(loss=loss, **settings).plan(n, 10).max_iter

    assert steps("hinge", 1000, 0.3) == steps("logistic", 1000, 0.3)
    assert steps("hinge", 10_000, 3.0) == 3 * steps("logistic", 10_000, 3.0)


def test_a_hinge_is_minimized_in_the_default_number_of_steps():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (10_000, 3))
    y = (X @ [2.0, -1.0, 0.5] + 0.3 + rng.logistic(size=10_000) > 0).astype(int)
    settings = {"bounds_X": (-1, 1), "classes": [0, 1], "random_state": 0}
    model = DPLassoFWClassifier(loss="hinge", epsilon=3.0, delta=1e-6, **settings).fit(X, y)
    found = Hinge().value(model.decision_function(X), 2 * y - 1.0).mean()
    assert found < 0.6232 + 0.01  # that of LinearSVC is .6232


def test_a_quantile_is_minimized_in_the_default_number_of_steps():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (20_000, 10))
    y = X @ rng.normal(0, 0.3, 10) + rng.normal(0, 0.1, 20_000)
    model = DPLassoFW(
        solver="gradient", epsilon=3.0, delta=1e-6, bounds_X=(-1, 1), bounds_y=(-2, 2),
        loss=Quantile(0.9), random_state=0,
    ).fit(X, y)  # fmt: skip
    residual = y - model.predict(X)
    assert np.mean(np.maximum(0.9 * residual, -0.1 * residual)) < 0.0185  # .0175 is the least


@rest_is_slow(
    ("form", "task"),
    itertools.product(FORMS, TASKS),
    ("selection-regression", "gradient-classification"),
)
@half_is_enough
def test_without_noise_the_constrained_optimum_is_found(form, task, cells):
    n, d = 60, 4
    # a radius that is active and one that is not
    for radius, fit_intercept in cells_of(cells, (0.5, 5.0), (True, False)):
        case = f"radius={radius}, fit_intercept={fit_intercept}"
        X, y = scaled_table(n, d, task=task)
        loss = LOSSES[task]
        solver = solver_of(form, max_iter=512, gradient_clip=1e6, data_norm=1e6)
        facts = problem(n, d, task=task, radius=radius, fit_intercept=fit_intercept)
        # a budget so large that the offset is the plain mean of the targets
        plan = without_noise(solver.plan(facts, PrivacyBudget(50.0)), smoothing=0.5)
        result = plan.run(solver_data(X, y, fit_intercept=fit_intercept), stream())
        offset = loss.best_constant(y.mean()) if fit_intercept else 0.0
        # a plan that centres the features counts the intercept from their means
        center = np.zeros(d) if plan.first.means is None else X.mean(axis=0)
        free = result.intercept - offset + center @ result.coef
        assert np.abs(result.coef).sum() + abs(free) <= radius * (1 + 1e-12), case
        reached = loss.value(X @ result.coef + result.intercept, y).mean()
        best = best_loss(X - center, y, offset, loss, radius, fit_intercept=fit_intercept)
        trivial = loss.value(np.full(n, offset), y).mean()
        assert best - 1e-9 <= reached <= best + 2e-3 * (trivial - best), case


@every_form
def test_without_noise_and_with_a_clip_the_clipped_loss_is_minimized(form):
    # the squared loss with a clipped derivative is Huber's loss
    n, d = 60, 3
    X, y = scaled_table(n, d)
    y[:6] = -y[:6]
    solver = solver_of(form, max_iter=384, gradient_clip=0.2, data_norm=1e6)
    plan = without_noise(solver.plan(problem(n, d, fit_intercept=False), BUDGET), smoothing=0.5)
    result = plan.run(solver_data(X, y, fit_intercept=False), stream())
    best = best_loss(X, y, 0.0, Huber(0.2), 2.0, fit_intercept=False)
    reached = Huber(0.2).value(X @ result.coef, y).mean()
    assert best - 1e-9 <= reached <= best * 1.01


@every_form
def test_constant_learning_rate_is_used(form):
    X, y = scaled_table(30, 3)
    results = []
    for rate in (1.0, 0.05):
        solver = solver_of(form, max_iter=1, learning_rate=rate)
        plan = without_noise(solver.plan(problem(30, 3, fit_intercept=False), BUDGET))
        results.append(plan.run(solver_data(X, y, fit_intercept=False), stream()).coef)
    np.testing.assert_allclose(0.05 * results[0], results[1], rtol=1e-9)


@every_form
def test_tiny_sizes(form):
    sizes = [(1, 1), (1, 5), (2, 1), (3, 2), (5, 1)]
    kinds = (("dense", 1), ("csr", 2), ("csc", 3))
    for (n, d), fit_intercept, (kind, max_iter) in itertools.product(sizes, (True, False), kinds):
        case = f"{n} x {d}, {kind}, fit_intercept={fit_intercept}, max_iter={max_iter}"
        solver = solver_of(form, max_iter=max_iter)
        plan = solver.plan(problem(n, d, fit_intercept=fit_intercept), BUDGET)
        X, y = scaled_table(n, d)
        data = solver_data(storage(X, kind), y, fit_intercept=fit_intercept)
        result = plan.run(data, stream())
        assert result.coef.shape == (d,), case
        assert np.all(np.isfinite(result.coef)), case
        assert np.abs(result.coef).sum() <= 2.0 * (1 + 1e-12), case
        assert np.isfinite(result.intercept), case
        assert result.n_iter == max_iter, case
        assert fit_intercept or result.intercept == 0, case


@every_form
def test_the_model_stays_on_the_simplex(form):
    # a row bound below the largest row asks for a rescaling, which must not leave the set
    X = 0.9 * np.sign(scaled_table(80, 4)[0])
    y = np.clip(X @ [0.7, 0.3, 0, 0], -1, 1)
    facts = problem(80, 4, feasible_set=Simplex, radius=1.0, fit_intercept=False)
    for data_norm in (None, 0.8):
        solver = solver_of(form, max_iter=30, data_norm=data_norm)
        plan = solver.plan(facts, PrivacyBudget(50.0, 1e-6))
        result = plan.run(solver_data(X, y, fit_intercept=False), stream())
        assert np.all(result.coef >= 0), data_norm
        assert result.coef.sum() == pytest.approx(1.0), data_norm


@every_form
def test_without_noise_the_optimum_on_the_simplex_is_found(form):
    X, _ = scaled_table(80, 4)
    y = X @ np.array([0.7, 0.3, 0.0, 0.0])
    solver = solver_of(form, max_iter=256, data_norm=1e6, gradient_clip=1e6)
    facts = problem(80, 4, feasible_set=Simplex, radius=1.0, fit_intercept=False)
    plan = without_noise(solver.plan(facts, BUDGET), smoothing=0.5)
    result = plan.run(solver_data(X, y, fit_intercept=False), stream())
    np.testing.assert_allclose(result.coef, [0.7, 0.3, 0, 0], atol=0.02)


# ------------------------------------------------- what must not matter to the outcome


def solved(X, y, kind="dense", *, form, task="regression", relation="replace-one", epsilon=1.0):
    solver = solver_of(form, max_iter=25)
    plan = solver.plan(problem(*X.shape, task=task), PrivacyBudget(epsilon, 1e-6, relation))
    result = plan.run(solver_data(storage(X, kind), y), stream())
    return np.append(result.coef, result.intercept)


@every_form
def test_the_order_of_the_rows_does_not_matter(form):
    for task in TASKS:
        X, y = scaled_table(151, 5, task=task)
        order = np.random.default_rng(0).permutation(151)
        first, other = (solved(X[o], y[o], form=form, task=task) for o in (slice(None), order))
        np.testing.assert_allclose(other, first, atol=1e-9, rtol=0, err_msg=task)


# ------------------------------------------------------------------------- a user's own set


@dataclasses.dataclass(frozen=True)
class Corners(Geometry):
    """0 and a multiple of each unit vector, on the first axis a longer one."""

    has_vertices = True
    l1_diameter = 1e-6  # nobody asks

    def vertices(self, n_features):
        longer = np.zeros((2, n_features))
        longer[1, 0] = 3 * self.radius
        return VertexMatrix(np.vstack((self.radius * np.eye(n_features), longer)))

    def vertex_scores(self, direction):
        return -1e6 * direction

    def vertex(self, number, n_features):
        return 0, 1e6


def test_the_range_of_a_selection_is_that_of_the_vertices_whatever_a_set_says():
    n, d = 200, 4
    for relation in ("replace-one", "zero-out"):
        budget = PrivacyBudget(1.0, relation=relation)
        fact = problem(n, d, feasible_set=Corners, radius=0.5)
        solver = Selection(max_iter=3, gradient_clip=0.3)
        plan = solver.plan(fact, budget)
        # the longest vertex, of length 1.5, and any other
        assert plan.vertices.l1_diameter == pytest.approx(2.0, rel=1e-12)
        expected = budget.record_factor * 2.0 * 0.3 / n
        assert plan.step.sensitivity == pytest.approx(expected, rel=1e-6)
        found = check_sensitivity(plan, neighbours(fact, budget.relation, 6))
        assert not found.violations
        assert 0.4 < found.ratios["step"] <= 1


def test_a_set_of_the_users_own_is_searched_as_it_is():
    X, _ = scaled_table(400, 3)
    model = DPLassoFW(
        epsilon=1e6, delta=0, bounds_X=(-1, 1), bounds_y=(-1, 1), feasible_set=Corners(0.3),
        solver=Selection(max_iter=200, gradient_clip=2.0), random_state=0, fit_intercept=False,
    ).fit(X, X @ [0.5, 0.1, 0.0])  # fmt: skip
    np.testing.assert_allclose(model.coef_, [0.5, 0.1, 0.0], atol=0.05)


def test_vertices_that_state_their_own_range_are_refused_before_anything_is_spent():
    class Narrow(AxisVertices):
        l1_diameter = 1e-6

    class Stated(Corners):
        def vertices(self, n_features):
            return Narrow(n_features, (1.0, -1.0))

    fact = problem(100, 3, feasible_set=Stated)
    with pytest.raises(ValueError, match="must be AxisVertices or a VertexMatrix"):
        Selection().plan(fact, BUDGET)


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_kept_products_of_wide_dense_rows_give_the_same_steps(n_outputs):
    rng = np.random.default_rng(0)
    X, y = rng.choice([-1.0, 0.0, 0.5], (60, 1001)), rng.uniform(-1, 1, (60, n_outputs))
    facts = problem(60, 1001, n_outputs=n_outputs)
    plan = Selection(max_iter=12).plan(facts, PrivacyBudget(20.0, 1e-3))
    results = [
        plan.run(solver_data(storage(X, kind), y.squeeze()), stream(1)) for kind in ("dense", "csr")
    ]
    coef, whole = (result.coef for result in results)
    assert np.count_nonzero(coef) > 5
    np.testing.assert_allclose(coef, whole, rtol=1e-12)
