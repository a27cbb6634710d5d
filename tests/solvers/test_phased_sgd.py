"""Phased SGD: against a naive reference, its sensitivity, its plans and its bad input."""

import dataclasses
import itertools
import math
from dataclasses import dataclass

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import LinearRegression
from support import (
    cells_of,
    half_is_enough,
    l2_problem,
    quiet,
    recomputed_epsilon,
    rest_is_slow,
    scaled_table,
    solver_data,
    storage,
    stream,
)

from sklearn_dpsco import DPPhasedSGDClassifier, DPPhasedSGDRegressor
from sklearn_dpsco._kernels import sgd_steps as kernels
from sklearn_dpsco._kernels.arguments import RowForm, Slope, Steps, dense_or_stored
from sklearn_dpsco.audit import check_sensitivity, map_mechanisms, neighbours
from sklearn_dpsco.geometry import L1Ball, L2Ball, Unconstrained
from sklearn_dpsco.losses import (
    Absolute,
    EpsilonInsensitive,
    Hinge,
    Huber,
    Logistic,
    Quantile,
    SmoothedHinge,
    Squared,
    SquaredHinge,
    kernel_id,
)
from sklearn_dpsco.privacy.budget import RELATIONS, PrivacyBudget
from sklearn_dpsco.solvers import PhasedSGD, phased_sgd
from sklearn_dpsco.solvers.defaults import PHASED_SGD
from sklearn_dpsco.solvers.learned_units import LearnedUnits

LOSSES = [
    Squared(), Huber(0.3), Absolute(), Quantile(0.8), EpsilonInsensitive(0.2),
    Logistic(), SmoothedHinge(0.5), Hinge(), SquaredHinge(),
]  # fmt: skip
every_loss = pytest.mark.parametrize("loss", LOSSES, ids=repr)


def everything(_radius):
    return Unconstrained()


# ---------------------------------------------------------------------------- reference


def reference(data, plan, order):
    """What `solve` computes without noise, written out in numpy."""
    facts, loss = plan.problem, plan.problem.loss
    X = data.rows.X
    X = (X.toarray() if sparse.issparse(X) else np.asarray(X)).astype(np.float64)
    y, n, d = data.y, facts.n_samples, facts.n_features
    weight, sample_weight = data.rows.scales(), data.rows.sample_weights()
    first = order[: plan.n_first] if plan.n_first else np.arange(n)
    ones = float(facts.fit_intercept) * np.ones((n, 1))

    def factors(X):
        norms = np.linalg.norm(np.hstack((X, ones)), axis=1)
        return weight * plan.data_norm / np.maximum(norms, plan.data_norm)

    offset, center, factor = 0.0, np.zeros(d), 1.0
    if facts.fit_intercept:
        offset = loss.best_constant(np.mean((weight > 0)[first] * y[first]))
        center = np.mean((factors(X)[:, None] * X)[first], axis=0)
    s = factors(X - center)
    if plan.first.row_factor is not None:
        middle = (1 + plan.data_norm / math.sqrt(facts.dimension)) / 2
        factor = middle + np.mean(np.where(weight > 0, s - middle, 0)[first])
    rows = s[:, None] * np.hstack((X - center, ones))
    block = 16 + d // 16
    w, results = np.zeros(d + 1), []
    for _ in range(plan.max_iter):
        for phase in plan.phases:
            iterates = []
            slice_ = order[phase.start : phase.stop]
            for t, i in enumerate(slice_, 1):
                z, yi = np.array([offset + rows[i] @ w]), y[i : i + 1]
                if phase.beta == np.inf:
                    slope = loss.derivative(z, yi)[0]
                else:
                    slope = loss.envelope_derivative(z, yi, phase.beta)[0]
                slope = np.clip(slope, -plan.gradient_clip, plan.gradient_clip)
                w = w - phase.learning_rate * sample_weight[i] * slope * rows[i]
                if t % block == 0 or t == slice_.size:
                    w = w * min(1.0, plan.geometry.radius / max(np.linalg.norm(w), 1e-300))
                    if t > slice_.size - math.ceil(slice_.size / 4):
                        iterates.append(w)
            w = np.mean(iterates, axis=0)
            w = w * min(1.0, plan.start_radius / max(np.linalg.norm(w), 1e-300))
        results.append(w)
    coef = factor * np.mean(results[plan.max_iter // 2 :], axis=0)
    return coef[:d], offset + coef[d] - center @ coef[:d]


def assert_matches_reference(solver, fact, data, atol=1e-9):
    plan = quiet(solver.plan(fact, PrivacyBudget(1.0)), 1e-12)
    result = plan.run(data, stream(3))
    n = fact.n_samples
    order = stream(3).permutation(n) if plan.shuffle else np.arange(n)
    coef, intercept = reference(data, plan, order)
    np.testing.assert_allclose(result.coef, coef, atol=atol)
    np.testing.assert_allclose(result.intercept, intercept, atol=atol)
    assert fact.n_samples == 1 or np.linalg.norm(coef) > 1e-4
    return result


@every_loss
def test_without_noise_it_is_averaged_sgd(loss):
    X, y = scaled_table(150, 5, task=loss.task, density=0.6)
    for kind in ("dense", "csr"):
        data = solver_data(storage(X, kind), y)
        solver = PhasedSGD(max_iter=1, learning_rate=0.02)
        assert_matches_reference(solver, l2_problem(150, 5, loss=loss), data)


ENDS = [
    ({"max_iter": 3}, 61, 4, 2.0, True),
    ({"max_iter": 2, "n_phases": 2}, 61, 4, 0.05, True),  # the ball is hit
    ({"max_iter": 1, "n_phases": 3}, 3, 2, 2.0, True),
    ({"max_iter": 1, "data_norm": 0.4}, 50, 40, 2.0, False),
    ({"max_iter": 1}, 1, 1, 2.0, True),
]


@pytest.mark.parametrize("kind", ["dense", "fortran", "csr", "csc"])
def test_storages_passes_and_ends(monkeypatch, kind):
    monkeypatch.setattr(phased_sgd, "piece_rows", lambda *_: 20)  # several pieces
    for settings, n, d, radius, fit_intercept in ENDS:
        X, y = scaled_table(n, d, density=0.5, seed=n)
        data = solver_data(storage(X, kind), y, fit_intercept=fit_intercept)
        fact = l2_problem(n, d, radius=radius, fit_intercept=fit_intercept)
        assert_matches_reference(PhasedSGD(learning_rate=0.05, **settings), fact, data)


def test_without_shuffling_it_goes_in_the_order_of_the_table():
    X, y = scaled_table(300, 4, density=0.6)
    solver = PhasedSGD(max_iter=1, n_phases=2, shuffle=False)
    for kind in ("dense", "csr"):
        assert_matches_reference(solver, l2_problem(300, 4), solver_data(storage(X, kind), y))


def test_the_first_slice_serves_for_the_first_releases_only(monkeypatch):
    rules = dataclasses.replace(PHASED_SGD["regression"], first_noise=10.0)
    monkeypatch.setitem(PHASED_SGD, "regression", rules)
    X, y = scaled_table(320, 3)
    solver, fact = PhasedSGD(max_iter=1, learning_rate=0.05), l2_problem(320, 3)
    assert solver.plan(fact, PrivacyBudget(1.0)).n_first == 20
    for kind in ("dense", "csc"):
        assert_matches_reference(solver, fact, solver_data(storage(X, kind), y))


def test_single_precision_is_the_same_numbers():
    X, y = scaled_table(90, 6)
    X = X.astype(np.float32)
    solver = PhasedSGD(max_iter=2, data_norm=0.5)
    for n_outputs, kind in itertools.product((1, 3), ("dense", "csr", "csc")):
        plan = solver.plan(l2_problem(90, 6, n_outputs=n_outputs), PrivacyBudget(1.0))
        plan = quiet(plan)  # exact noise would round both to the same grid
        targets = y if n_outputs == 1 else np.column_stack((y, -y, y**2))
        single, double = (
            plan.run(solver_data(storage(table, kind), targets), stream())
            for table in (X, X.astype(np.float64))
        )
        np.testing.assert_allclose(single.coef, double.coef, rtol=1e-12, atol=1e-14)


def test_records_of_weight_zero_are_identity_steps():
    rng = np.random.default_rng(0)
    X, y = scaled_table(60, 4, task="classification")
    scale = (rng.uniform(size=60) < 0.7).astype(float)
    fact = l2_problem(60, 4, task="classification")
    solver = PhasedSGD(max_iter=2, learning_rate=0.1)
    results = []
    for kind in ("dense", "csr"):
        data = solver_data(storage(X, kind), y, scale=scale)
        results.append(assert_matches_reference(solver, fact, data))
    # whatever such a record holds
    X[scale == 0], y[scale == 0] = 1.0, 1.0
    for kind, before in zip(("dense", "csr"), results, strict=True):
        plan = quiet(solver.plan(fact, PrivacyBudget(1.0)), 1e-12)
        data = solver_data(storage(X, kind), y, scale=scale)
        after = plan.run(data, stream(3))
        np.testing.assert_array_equal(before.coef, after.coef)


def test_unconstrained_is_a_ball_that_is_never_reached():
    X, y = scaled_table(100, 3)
    solver = PhasedSGD(max_iter=1, learning_rate=0.05)
    coefs = []
    for feasible_set in (everything, lambda _: L2Ball(1e6)):
        fact = l2_problem(100, 3, feasible_set=feasible_set)
        plan = quiet(solver.plan(fact, PrivacyBudget(1.0)), 1e-12)
        coefs.append(plan.run(solver_data(X, y), stream()).coef)
    np.testing.assert_allclose(*coefs, atol=1e-12)


def test_kernels_do_the_same_in_plain_python():
    rng = np.random.default_rng(0)
    X, y = scaled_table(9, 3, density=0.6)
    weight, center = (rng.uniform(size=9) < 0.8).astype(float), rng.uniform(-0.5, 0.5, 3)
    sample_weight = rng.uniform(size=9)
    settings = (RowForm(center, 1.0, 0.9, 0.0), Slope(0, 0.0, 0.5, 0.1), Steps(0.3, 0.2, 4, 5))
    kernel, outcomes = kernels.single_steps, []
    for table in (X, sparse.csr_array(X)):
        for function in (kernel, getattr(kernel, "py_func", kernel)):
            w, total, records = np.full(4, 0.05), np.zeros(4), (weight, sample_weight, y)
            count = function(*dense_or_stored(table), records, *settings, w, total)
            outcomes.append(np.concatenate((w, total, [count])))
    for outcome in outcomes[1:]:
        np.testing.assert_allclose(outcome, outcomes[0], rtol=1e-12)
    assert np.linalg.norm(outcomes[0][:4]) <= 0.2 * (1 + 1e-15)


# -------------------------------------------------------------------------- sensitivity


def distance_of_runs(loss, learning_rate, beta, clip, rng, *, relation, n=12, d=3, radius=1.0):
    """Largest distance of the coefficients after runs on neighbours, in units of the bound."""
    X = rng.choice([-1.0, 1.0], (n, d))
    y = rng.uniform(-1, 1, n) if loss.task == "regression" else rng.choice([-1.0, 1.0], n)
    i, bound = rng.integers(n), rng.choice([0.5, math.sqrt(d + 1)])
    w = []
    start = rng.normal(size=d + 1)
    start *= radius * rng.uniform() / np.linalg.norm(start)
    weight = np.repeat(rng.choice([0.3, 1.0, 1.0], (1, n)), 2, axis=0)
    weight[:, i] = 1.0, rng.choice([0.5, 1.0])
    for side in range(2):
        scale = np.ones(n)
        scale[i] = 1.0 if side == 0 or relation == "replace-one" else 0.0
        table, target = X.copy(), y.copy()
        if side == 0:
            table[i], target[i] = -X[i], rng.choice([-1.0, 1.0])
        w.append(start.copy())
        kernels.single_steps(
            *dense_or_stored(table),
            (scale, weight[side], target),
            RowForm(np.zeros(d), 1.0, bound, 0.0),
            Slope(kernel_id(loss), loss.kernel_parameter, clip, 0.1, beta),
            Steps(learning_rate / bound**2, radius, 4, 0),
            w[-1],
            np.zeros(d + 1),
        )
    factor = 2.0 if relation == "replace-one" else 1.0
    return np.linalg.norm(w[0] - w[1]) / (factor * learning_rate / bound * clip)


@every_loss
def test_steps_up_to_the_limit_are_non_expansive(loss):
    smooth = math.isfinite(loss.smoothness)
    clip = min(loss.derivative_bound(4.0), 0.3) if smooth else loss.derivative_bound(4.0)
    for relation in RELATIONS:
        rng = np.random.default_rng(0)
        for beta in [math.inf] if smooth else [1.0, 30.0]:
            longest = 2 / min(loss.smoothness, beta)
            worst = max(
                distance_of_runs(loss, longest, beta, clip, rng, relation=relation)
                for _ in range(60)
            )
            assert 0.5 < worst <= 1 + 1e-12, f"{relation}, beta={beta}"


@every_loss
def test_longer_steps_than_the_limit_would_expand(loss):
    """Two runs on the same record, where the slope changes fastest."""
    beta = 3.0 if loss.smoothness == math.inf else math.inf
    smoothness = min(loss.smoothness, beta)
    point = {"Logistic": 0.0, "Hinge": 1 - 0.5 / beta, "SmoothedHinge": 0.75, "SquaredHinge": 0.0}
    kink = loss.width if isinstance(loss, EpsilonInsensitive) else 0.0
    z = point.get(type(loss).__name__, 1.0 + kink + 1e-3)
    distances = []
    for length in (2.0, 2.2):
        w = []
        for start in (z, z + 1e-6):
            w.append(np.array([start, 0.0]))
            kernels.single_steps(
                *dense_or_stored(np.ones((1, 1))),
                (np.ones(1),) * 3,
                RowForm(np.zeros(1), 0.0, 1.0, 0.0),
                Slope(kernel_id(loss), loss.kernel_parameter, 10.0, 0.0, beta),
                Steps(length / smoothness, 1e9, 4, 0),
                w[-1],
                np.zeros(2),
            )
        distances.append(abs(w[0][0] - w[1][0]) / 1e-6)
    assert distances[0] == pytest.approx(1, abs=1e-6)
    assert distances[1] == pytest.approx(1.2, abs=1e-6)


@half_is_enough
@every_loss
@rest_is_slow("relation", RELATIONS, ("replace-one",))
def test_replays_of_every_loss_stay_within_the_sensitivities(loss, relation, cells):
    worst, forms = 0.0, enumerate([{"max_iter": 1, "n_phases": 2}, {"max_iter": 3}])
    for (k, settings), feasible_set in cells_of(cells, forms, (L2Ball, everything)):
        fact = l2_problem(11, 3, loss=loss, feasible_set=feasible_set)
        solver = PhasedSGD(learning_rate=0.3 + 0.3 * k, **settings)
        plan = solver.plan(fact, PrivacyBudget(1.0, 1e-6, relation))
        found = check_sensitivity(plan, neighbours(fact, relation, 3), random_state=k)
        assert not found.violations, f"{settings}: {found.violations}"
        ratios = found.ratios.items()
        worst = max(worst, *(v for name, v in ratios if name.startswith("phases")))
    assert worst > 0.5


def free(*args, **kwargs):
    """Facts with a radius that is left to the plan."""
    return dataclasses.replace(l2_problem(*args, **kwargs), feasible_set=L2Ball)


def in_units(loss, relation="replace-one", n=40, **kwargs):
    plan = PhasedSGD().plan(free(n, 2, loss=loss, **kwargs), PrivacyBudget(300.0, 1e-6, relation))
    assert isinstance(plan.first, LearnedUnits)
    return plan


@rest_is_slow("relation", RELATIONS, ("zero-out",))
@rest_is_slow("loss", [Squared(), Absolute(), Logistic(), Hinge()], ("Logistic()",), repr)
@rest_is_slow("n_outputs", (1, 3), ("3",))
def test_replays_in_learned_units_stay_within_the_sensitivities(loss, relation, n_outputs):
    plan = in_units(loss, relation, n=20, n_outputs=n_outputs)
    found = check_sensitivity(plan, neighbours(plan.problem, relation, 4))
    assert not found.violations, found.violations
    assert found.ratios["phases[0].noise"] > 0.4, found.ratios
    assert found.ratios["first.moments"] > 0.5, found.ratios


def test_a_replay_finds_rows_in_learned_units_that_are_not_bounded(monkeypatch):
    plan = in_units(Squared(), n=20)
    pairs = neighbours(plan.problem, plan.budget.relation, 3)
    with monkeypatch.context() as patch:
        patch.setattr("sklearn_dpsco.solvers.statistics.LONGEST", 9.0)
        assert check_sensitivity(plan, pairs).violations
    assert not check_sensitivity(plan, pairs).violations


def test_units_are_learned_where_nothing_is_declared_and_passes_are_many():
    def learns(fact, epsilon=1.0, **settings):
        plan = PhasedSGD(**settings).plan(fact, PrivacyBudget(epsilon))
        return isinstance(plan.first, LearnedUnits)

    for loss in LOSSES:
        has_unit = isinstance(loss, (Huber, EpsilonInsensitive))
        assert learns(free(2000, 4, loss=loss)) is not has_unit, loss
    fact = free(2000, 4)
    assert learns(fact, shuffle=False)
    assert not learns(fact, epsilon=1e-3)
    assert not learns(free(10**6, 60))
    assert not learns(l2_problem(2000, 4))
    for settings in ({"max_iter": 5}, {"n_phases": 2}):
        assert learns(fact, **settings), settings
    # a single pass, and numbers in the units of the bounds
    for declared in (
        {"max_iter": 1},
        {"learning_rate": 0.1},
        {"gradient_clip": 1.0},
        {"data_norm": 1.0},
    ):
        assert not learns(fact, **declared), declared
    assert not learns(l2_problem(2000, 4, feasible_set=everything))


@pytest.mark.parametrize("epsilon", [1e3, np.inf])
def test_with_little_noise_a_quantile_is_no_mean(epsilon):
    """A step that grows as noise vanishes has an envelope that is a parabola over all residuals."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (5000, 3))
    y = X @ [0.5, -0.3, 0.1] + rng.normal(0, 0.1, 5000)
    for level in (0.1, 0.9):
        model = DPPhasedSGDRegressor(
            epsilon=epsilon, bounds_X=(-1, 1), bounds_y=(-1, 1), loss=Quantile(level)
        ).fit(X, y)
        assert model.plan_.target_unit is not None
        assert np.mean(y <= model.predict(X)) == pytest.approx(level, abs=0.02)
    labels, losses = np.sign(y + 0.2 * rng.logistic(size=5000)), []
    for scale in (epsilon, 10.0):
        model = DPPhasedSGDClassifier(
            epsilon=scale, bounds_X=(-1, 1), classes=[-1, 1], loss="hinge", random_state=0
        ).fit(X, labels)
        losses.append(np.mean(Hinge().value(model.decision_function(X), labels)))
    assert losses[0] < 1.02 * losses[1]  # a budget that is larger is no harm


def test_in_learned_units_storage_and_the_bounds_do_not_matter():
    X, y = scaled_table(600, 4, seed=3)
    X = X * (np.abs(X) > 0.3)
    plan = quiet(PhasedSGD().plan(free(600, 4), PrivacyBudget(50.0)), 1e-12)
    assert plan.first.moments is not None
    results = [
        plan.run(solver_data(store(X), y), stream())
        for store in (np.ascontiguousarray, np.asfortranarray, sparse.csr_array, sparse.csc_array)
    ]
    for result in results[1:]:
        np.testing.assert_allclose(result.coef, results[0].coef, rtol=1e-9)
    # a target of another centre and size: the same model in its units
    other = plan.run(solver_data(X, 0.25 * y + 0.5), stream())
    np.testing.assert_allclose(other.coef, 0.25 * results[0].coef, rtol=0.05, atol=2e-3)
    np.testing.assert_allclose(other.intercept, 0.25 * results[0].intercept + 0.5, atol=5e-3)


def test_rows_in_learned_units_are_cut_once():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 3)) * np.exp(rng.standard_normal((400, 1)))
    data = solver_data(X / np.abs(X).max(), np.tanh(X @ [1.0, 2.0, 3.0]))
    plan = quiet(PhasedSGD().plan(free(400, 3), PrivacyBudget(50.0)), 1e-12)
    descent = phased_sgd._Descent(data, plan, None, stream())
    rows, form = descent.data.rows, descent.form
    norms = np.linalg.norm(np.column_stack((rows.X, np.full(400, form.bias))), axis=1)
    assert np.max(rows.scales() * norms) <= 1  # by their scales,
    assert norms.max() > 3
    assert form.bound > norms.max()  # and not by the kernel once more


def test_a_missing_row_clip_is_found():
    fact = l2_problem(9, 8)
    solver = PhasedSGD(max_iter=1, n_phases=1, gradient_clip=0.3)
    plan = dataclasses.replace(solver.plan(fact, PrivacyBudget(1.0)), data_norm=1e9)
    assert (
        "phases[0].noise" in check_sensitivity(plan, neighbours(fact, "replace-one", 4)).violations
    )


def test_a_record_takes_part_in_one_phase():
    n, d = 24, 2
    X, y = scaled_table(n, d)
    solver, fact = PhasedSGD(max_iter=1, n_phases=3), l2_problem(n, d, fit_intercept=False)
    plan = solver.plan(fact, PrivacyBudget(1.0))
    assert [r.group for r in plan.guarantee.releases[-3:]] == ["phase 1", "phase 2", "phase 3"]

    @dataclass
    class Recorder:
        seen: list

        def release(self, value, _stream):
            self.seen.append(value.copy())
            return np.full_like(value, 0.1)  # so that later phases do not see earlier ones

    touched = np.zeros((n, 3), dtype=bool)
    runs = []
    for i in range(-1, n):
        changed = y.copy()
        if i >= 0:
            changed[i] = -np.sign(y[i] + 1e-9)
        seen = []
        replayed = map_mechanisms(
            plan, lambda name, m, seen=seen: Recorder(seen) if name.startswith("phases") else m
        )
        data = solver_data(X, changed, fit_intercept=False)
        replayed.run(data, stream())
        runs.append(np.array(seen))
        if i >= 0:
            touched[i] = np.any(runs[-1] != runs[0], axis=1)
    assert np.all(touched.sum(axis=1) == 1)
    np.testing.assert_array_equal(touched.sum(axis=0), [8, 8, 8])


def test_float_error_stays_within_its_bound():
    """Against steps in extended precision, at a step where the error is least damped."""
    n, d = 400, 30
    clip = 0.3
    fact = l2_problem(n, d, radius=3.0, fit_intercept=True)
    solver = PhasedSGD(max_iter=1, n_phases=1, gradient_clip=clip)
    plan = solver.plan(fact, PrivacyBudget(1.0))
    phase = plan.phases[0]
    per_record = 2 * phase.learning_rate * clip * plan.data_norm
    allowed = (phase.noise.sensitivity - per_record) / 2
    assert 0 < allowed < 1e-6 * per_record
    rng = np.random.default_rng(0)
    X, center = rng.uniform(-1, 1, (n, d)), rng.uniform(-0.9, 0.9, d)
    y, start = rng.uniform(-1, 1, n), rng.normal(size=d + 1)
    block = 16 + d // 16
    bound = plan.data_norm * (1 - 1e-14)
    settings = (
        RowForm(center, 1.0, bound, 0.0),
        Slope(0, 0.0, clip, 0.1),
        Steps(phase.learning_rate, 3.0, block, n - n // 4),
    )
    exact = start.astype(np.longdouble)
    total, count = np.zeros(d + 1, dtype=np.longdouble), 0
    for t in range(n):
        row = np.append(X[t].astype(np.longdouble) - center, 1)
        row *= min(1, bound / np.sqrt(row @ row))
        slope = np.clip(np.longdouble(0.1) + row @ exact - y[t], -clip, clip)
        exact = exact - phase.learning_rate * slope * row
        if (t + 1) % block == 0 or t == n - 1:
            exact = exact * min(1, 3.0 / np.sqrt(exact @ exact))
            if t + 1 > n - n // 4:
                total, count = total + exact, count + 1
    for table in map(dense_or_stored, (X, sparse.csr_array(X))):
        w, mean, records = start.copy(), np.zeros(d + 1), (np.ones(n), np.ones(n), y)
        assert kernels.single_steps(*table, records, *settings, w, mean) == count
        error = float(np.sqrt(((mean / count - total / count) ** 2).sum()))
        assert 0 < error < allowed


# ------------------------------------------------------------------------------- plans


@pytest.mark.parametrize(
    ("settings", "n", "d", "n_outputs"),
    [
        ({}, 50, 3, 1),
        ({}, 400_000, 200, 1),
        ({"max_iter": 3, "n_phases": 2}, 1000, 30, 4),
        ({"max_iter": 1}, 5000, 1, 3),
    ],
)
@half_is_enough
def test_a_second_accountant_agrees(settings, n, d, n_outputs, cells):
    fact, claims = l2_problem(n, d, n_outputs=n_outputs), ((0.1, 1e-6), (1.0, 1e-3), (8.0, 1e-6))
    for (epsilon, delta), currency in cells_of(cells, claims, ("auto", "zcdp")):
        case = f"epsilon={epsilon}, delta={delta}"
        budget = PrivacyBudget(epsilon, delta, currency=currency)
        guarantee = PhasedSGD(**settings).plan(fact, budget).guarantee
        assert recomputed_epsilon(guarantee) <= epsilon * (1 + 1e-4), case
        assert guarantee.composition == ("gdp" if currency == "auto" else "zcdp"), case
        assert currency == "auto" or guarantee.spent >= 0.99 * budget.rho, case


@half_is_enough
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_a_second_accountant_agrees_in_learned_units(n_outputs, cells):
    claims = (
        (0.1, 1e-6, "auto"),
        (1.0, 1e-3, "zcdp"),
        (8.0, 1e-3, "auto"),
        (8.0, 1e-6, "zcdp"),
    )
    for epsilon, delta, currency in (
        claims if cells == "all" else claims[2 * (n_outputs == 3) :][:2]
    ):
        budget = PrivacyBudget(epsilon, delta, currency=currency)
        plan = PhasedSGD().plan(free(5000, 4, n_outputs=n_outputs), budget)
        assert isinstance(plan.first, LearnedUnits)
        assert 0.98 * epsilon < recomputed_epsilon(plan.guarantee) <= epsilon * (1 + 1e-4)


def test_the_sensitivity_is_that_of_one_step_whatever_the_length():
    for relation, n in itertools.product(RELATIONS, (3, 100, 10_000, 1_000_000)):
        factor = 2 if relation == "replace-one" else 1
        plan = PhasedSGD(max_iter=1).plan(l2_problem(n, 5), PrivacyBudget(1.0, 1e-6, relation))
        for phase in plan.phases:
            one = factor * phase.learning_rate * plan.gradient_clip * plan.data_norm
            assert one < phase.noise.sensitivity < one * (1 + 1e-3), f"{relation}, n={n}"


def test_phases_cover_the_records_once():
    for n, settings in ((7, {"n_phases": 7}), (100, {"max_iter": 1}), (2_000_000, {})):
        plan = PhasedSGD(**settings).plan(l2_problem(n, 50), PrivacyBudget(1.0))
        ends = [phase.stop for phase in plan.phases]
        assert [phase.start for phase in plan.phases] == [plan.n_first, *ends[:-1]]
        assert ends[-1] == n
        assert all(phase.size >= 1 for phase in plan.phases)


def test_steps_respect_their_limits():
    for loss in LOSSES:
        for n, epsilon in ((2, 1.0), (500, 0.1), (10**6, 100.0)):
            fact = l2_problem(n, 4, loss=loss)
            plan = PhasedSGD(max_iter=1).plan(fact, PrivacyBudget(epsilon))
            for phase in plan.phases:
                beta = min(loss.smoothness, phase.beta)
                assert phase.learning_rate * beta * plan.data_norm**2 <= 2
            rates = [phase.learning_rate for phase in plan.phases]
            assert rates == sorted(rates, reverse=True)


def test_number_of_passes_falls_with_the_size():
    def passes(n, d):
        return PhasedSGD().plan(l2_problem(n, d), PrivacyBudget(1.0)).max_iter

    assert [passes(100, 5), passes(100_000, 100), passes(10**6, 100)] == [40, 9, 1]


def test_smaller_rank_allows_longer_steps():
    def rate(rank_bound):
        fact = l2_problem(2000, 50, feasible_set=everything)
        plan = PhasedSGD(rank_bound=rank_bound).plan(fact, PrivacyBudget(0.5))
        return plan.phases[0].learning_rate

    assert rate(1) > rate(10) > rate(50) == rate(None)


def test_a_model_fades_where_noise_dominates():
    X, y = scaled_table(40, 5)
    for kind in (DPPhasedSGDRegressor, DPPhasedSGDClassifier):
        is_regressor = kind is DPPhasedSGDRegressor
        own = {"bounds_y": (-1, 1)} if is_regressor else {"classes": [-1, 1]}
        model = kind(epsilon=0.01, delta=1e-6, bounds_X=(-1, 1), random_state=0, **own)
        target = y if is_regressor else np.where(y > 0, 1, -1)
        assert np.linalg.norm(model.fit(X, target).coef_) < 0.1


# --------------------------------------------------------------------------- estimators


def regressor(**parameters):
    return DPPhasedSGDRegressor(
        **{"bounds_X": (-1, 1), "bounds_y": (-1, 1), "random_state": 0} | parameters
    )


def classifier(**parameters):
    defaults = {"bounds_X": (-1, 1), "classes": [-1, 1], "random_state": 0}
    return DPPhasedSGDClassifier(**defaults | parameters)


def test_defaults_learn():
    X, y = scaled_table(10_000, 10)
    label = np.where(y > 0, 1, -1)
    best = LinearRegression().fit(X, y).score(X, y)
    for max_iter in ("auto", 1):
        solver = PhasedSGD(max_iter=max_iter)
        assert regressor(solver=solver).fit(X, y).score(X, y) > best - 0.01, max_iter
        for loss in ("huber", "absolute", "epsilon_insensitive"):  # the median is another target
            model = regressor(loss=loss, solver=solver).fit(X, y)
            assert model.score(X, y) > best - 0.03, f"{loss}, {max_iter}"
        for loss in ("logistic", "hinge", "squared_hinge", "smoothed_hinge"):
            model = classifier(loss=loss, solver=solver).fit(X, label)
            assert model.score(X, label) > 0.9, f"{loss}, {max_iter}"


def test_sorted_records_do_no_harm():
    X, y = scaled_table(20_000, 5)
    order = np.argsort(y)
    best = LinearRegression().fit(X, y).score(X, y)
    assert regressor(solver=PhasedSGD(max_iter=1)).fit(X[order], y[order]).score(X, y) > best - 0.01


def test_quantile_loss_fits_the_quantile():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (20_000, 3))
    y = 0.3 * X[:, 0] + rng.uniform(-0.5, 0.5, 20_000)
    for level in (0.2, 0.5, 0.9):
        below = np.mean(y < regressor(loss=Quantile(level)).fit(X, y).predict(X))
        assert below == pytest.approx(level, abs=0.03)


def test_means_of_targets_most_of_which_are_one_value_are_kept():
    """Clipped derivatives pull predictions to that value: R2 was below 0, .1 without privacy."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (6000, 4))
    for y in (X.sum(axis=1) + rng.standard_normal(6000) > 2, rng.random(6000) < 0.1):
        for settings in ({}, {"feasible_set": "unconstrained", "units": "learned"}):
            model = regressor(bounds_y=(0, 1), epsilon=3.0, **settings).fit(X, y.astype(float))
            assert model.predict(X).mean() == pytest.approx(y.mean(), abs=0.03)


def test_mean_probabilities_are_the_frequencies_where_noise_is_large():
    """Clipped derivatives of unequal classes push the level, by .08 in the mean here."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-1, 1, (4000, 10))
        label = np.where(X[:, 0] + rng.logistic(size=4000) > 2.2, 1, -1)
        model = classifier(epsilon=0.3, delta=1e-6, relation="zero-out", random_state=seed)
        p = model.fit(X, label).predict_proba(X)[:, 1]
        assert p.mean() == pytest.approx(np.mean(label == 1), abs=0.04)


def test_levels_are_weighed_by_the_noise_that_they_have(monkeypatch):
    levels, noises = [], []

    def seen(units, coef, noise, *steps):
        levels.append(coef[-1] * units.unit[-1])
        noises.append(noise)

    monkeypatch.setattr(phased_sgd, "move_toward_levels", seen)
    X, label = np.random.default_rng(0).uniform(-1, 1, (3000, 3)), np.tile([-1, 1], 1500)
    for seed in range(25):
        classifier(epsilon=1.0, delta=1e-6, relation="zero-out", random_state=seed).fit(X, label)
    assert 0.5 < np.var(levels) / np.mean(noises) < 2  # classes are even: clips push nothing


def test_levels_that_are_moved_stay_within_the_set():
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (6000, 4)), 1.0 * (rng.random(6000) < 0.1)
    settings = {"bounds_y": (0, 1), "epsilon": 3.0, "units": "learned"}
    model = regressor(feasible_set=L2Ball(1e-6), **settings).fit(X, y)
    assert model.predict(X).mean() < 0.06  # where the clipped mean is


def test_levels_are_moved_where_there_are_probabilities_and_intercepts(monkeypatch):
    X = np.random.default_rng(0).uniform(-1, 1, (2000, 2))
    monkeypatch.delattr(phased_sgd.PhasedSGDPlan, "_move_level")
    for others in ({"loss": "hinge"}, {"fit_intercept": False}):
        classifier(units="learned", **others).fit(X, np.where(X[:, 0] > 0.5, 1, -1))


def test_defaults_learn_more_classes_than_two():
    X = np.random.default_rng(0).uniform(-1, 1, (6000, 3))
    y = np.array(["a", "b", "c"])[X.argmax(axis=1)]
    model = classifier(classes=["a", "b", "c"]).fit(X, y)
    assert model.score(X, y) > 0.85
    assert model.coef_.shape == (3, 3)


# ---------------------------------------------------------------------------- bad input


def test_steps_beyond_what_the_proof_allows_are_refused():
    for loss, beyond in ((Squared(), 9.0), (Logistic(), 50.0)):
        fact = l2_problem(100, 3, loss=loss)
        longest = 2 / (loss.smoothness * PhasedSGD().plan(fact, PrivacyBudget(1.0)).data_norm ** 2)
        PhasedSGD(learning_rate=longest * (1 - 1e-8)).plan(fact, PrivacyBudget(1.0))
        for rate in (longest, beyond):
            with pytest.raises(ValueError, match=f"learning_rate must be at most {longest:.4g}"):
                PhasedSGD(learning_rate=rate).plan(fact, PrivacyBudget(1.0))


def test_what_cannot_work_is_refused_whatever_the_sizes_are():
    def check(match, *, loss=LOSSES[0], feasible_set=L2Ball, delta=1e-6, **settings):
        with pytest.raises(ValueError, match=match):
            PhasedSGD(**settings).check(loss, feasible_set, PrivacyBudget(1.0, delta))

    for feasible_set in (L1Ball, L1Ball(1.0)):
        check("feasible_set='l2' or 'unconstrained', got L1Ball", feasible_set=feasible_set)
    for feasible_set in (L2Ball, L2Ball(1.0)):
        check("rank_bound must be None unless", feasible_set=feasible_set, rank_bound=2)
    check("no pure-DP form", delta=0.0)


def test_a_rank_bound_above_the_number_of_features_is_refused():
    X, y = scaled_table(30, 3)
    model = regressor(feasible_set="unconstrained", solver=PhasedSGD(rank_bound=4))
    with pytest.raises(ValueError, match="rank_bound must be at most n_features=3, got 4"):
        model.fit(X, y)
    assert model.set_params(solver__rank_bound=3).fit(X, y).coef_.shape == (3,)
