"""Learned units of rows of many features, which are not copied."""

import dataclasses
import itertools
import math
import tracemalloc

import numpy as np
import pytest
from audit_cases import run_in_pieces
from scipy import sparse
from sklearn.metrics import log_loss
from support import (
    free_problem,
    quiet,
    recomputed_epsilon,
    rest_is_slow,
    solver_data,
    stream,
)

from sklearn_dpsco import (
    DPLinearRegression,
    DPLogisticRegression,
    DPMirrorClassifier,
    DPMirrorRegressor,
    DPPhasedSGDClassifier,
)
from sklearn_dpsco.audit import check_sensitivity, neighbours
from sklearn_dpsco.data.rows import Rows, SolverData
from sklearn_dpsco.mechanisms import Gaussian
from sklearn_dpsco.preprocessing.declared import declared_bounds
from sklearn_dpsco.privacy.budget import RELATIONS, PrivacyBudget
from sklearn_dpsco.solvers import Descent, MirrorDescent, base, wide_units
from sklearn_dpsco.solvers.defaults import WIDE_UNITS

TASKS = ("regression", "classification")


@pytest.fixture
def all_wide(monkeypatch):
    """Tables of any number of features count as wide."""
    monkeypatch.setattr(base, "MOST_COPIED_FEATURES", 0)


def facts(*args, **others):
    return free_problem(*args, **{"nonnegative": True} | others)


def planned(*args, epsilon=1.0, relation="zero-out", max_iter=None, **kwargs):
    budget = PrivacyBudget(epsilon, 1e-6, relation)
    solver = MirrorDescent() if max_iter is None else Descent(max_iter=max_iter)
    return solver.plan(facts(*args, **kwargs), budget)


def rare(n, d, density):
    """Numbers from 0 to 1 at random places; scipy.sparse.random permutes all places."""
    rng, count = np.random.default_rng(1), round(density * n * d)
    places = rng.integers(n, size=count), rng.integers(d, size=count)
    return sparse.csr_array((rng.random(count), places), shape=(n, d)).minimum(1.0)


def texts(n, d, seed=0, k=2):
    """0/1 rows of about 12 words of d, whose frequencies fall like 1 / rank, and classes."""
    rng = np.random.default_rng(seed)
    frequency = 1 / (np.arange(d) + 5)
    words = rng.choice(d, (n, 12), p=frequency / frequency.sum())
    X = sparse.csr_array((np.ones(words.size), words.ravel(), np.arange(n + 1) * 12), shape=(n, d))
    X.sum_duplicates()
    X.data[:] = 1.0
    z = X @ rng.standard_normal((d, k))
    z = 2 * (z - z.mean(axis=0)) / z.std(axis=0) + rng.gumbel(size=z.shape)
    return X, z


# ------------------------------------------------------------------------------- the plan


def test_wide_tables_learn_units_by_default_and_spend_the_budget():
    sizes = ((400, 1001), (20_000, 30_000), (2**28, 1001))
    for k, ((n, d), task) in enumerate(itertools.product(sizes, TASKS)):
        relation = RELATIONS[k // 2 % 2]
        for epsilon, n_outputs in ((0.1, 1), (1.0, 3), (8.0, 1))[k % 2 :: 2]:
            case = f"{n} x {d}, {task}, {relation}, {epsilon}"
            plan = planned(n, d, task, n_outputs, epsilon=epsilon, relation=relation)
            if plan.solver != "descent":  # n mu is too small for a spread of the targets
                assert n == 400, case
                continue
            assert plan.units.moments is None, case
            assert recomputed_epsilon(plan.guarantee) <= epsilon * (1 + 1e-4), case
            assert plan.guarantee.spent == pytest.approx(plan.budget.mu**2 / 2, rel=1e-4), case


def test_frequencies_are_released_where_n_is_large_enough():
    assert planned(1000, 2000).units.center is None
    assert planned(10_000, 2000).units.center is not None
    # to whiten without an intercept, too
    assert planned(10_000, 2000, fit_intercept=False).units.center is not None


# ------------------------------------------------------------------------- sensitivities


@rest_is_slow(
    ("stored", "relation", "task"),
    [*itertools.product(("whole", "pieces"), RELATIONS, TASKS)],
    ("whole-zero-out-classification",),
)
def test_no_record_moves_a_release_beyond_its_sensitivity(stored, relation, task, all_wide):
    stored = {"whole": lambda plan: plan, "pieces": run_in_pieces}[stored]
    cases = ((1, True, True), (3, True, True), (1, False, True), (1, True, False))
    for k, (n_outputs, fit_intercept, nonnegative) in enumerate(cases):
        plan = planned(
            40, 3, task, n_outputs, epsilon=900.0, relation=relation, max_iter=4,
            fit_intercept=fit_intercept, nonnegative=nonnegative,
        )  # fmt: skip
        assert plan.units.center is not None
        pairs = neighbours(plan.problem, relation, 4, random_state=k)  # by turns
        found = check_sensitivity(stored(plan), pairs)
        assert not found.violations, found
        assert set(found.untested) <= {"units.length", "units.long", "units.target_spread"}, found
        assert found.ratios["step"] > 0.4, found
        assert found.ratios["units.center"] > 0.4, found
        assert found.ratios["units.top"] > 0, found


def test_a_replay_finds_rows_that_are_too_long_in_their_units(monkeypatch, all_wide):
    plan = planned(40, 3, epsilon=300.0, max_iter=4)
    monkeypatch.setattr(wide_units, "clipped_to", lambda bound, norms: np.full(norms.size, 0.9))
    found = check_sensitivity(plan, neighbours(plan.problem, "zero-out", 4))
    assert "step" in found.violations


def test_norms_in_units_are_those_of_the_rows_and_never_below():
    rng = np.random.default_rng(0)
    for scale in (1.0, 1e-9):
        X = rng.standard_normal((50, 7)) * (rng.random((50, 7)) < 0.4) * scale
        unit, center = rng.random(7) * 10 ** rng.uniform(-3, 3, 7), rng.standard_normal(7) * scale
        exact = np.linalg.norm((X - center) * unit, axis=1)
        for store in (np.ascontiguousarray, np.asfortranarray, sparse.csr_array, sparse.csc_array):
            found = Rows(store(X), False, center=center).norms(unit)
            assert np.all(found >= exact)
            np.testing.assert_allclose(found, exact, rtol=1e-6)


def in_units(X, unit, center):
    norms = Rows(X, True, center=center).norms(unit)
    weights = wide_units.clipped_to(1.0, np.sqrt(norms**2 - 1))
    data = SolverData(Rows(X, True, center=center), np.zeros(len(X)))
    return dataclasses.replace(data, numbers=(X, weights)), unit, center


def test_the_size_of_the_moments_moves_as_far_as_stated_and_bounds_the_top_eigenvalue():
    rng = np.random.default_rng(1)
    n, d, worst = 15, 3, 0.0
    for _ in range(150):
        X = rng.standard_normal((n + 1, d)) * rng.choice([0.01, 1.0])
        X[[0, n]] = 3 * rng.standard_normal((2, d))
        unit, center = rng.random(d) + 0.3, 0.1 * rng.standard_normal(d)
        tables = [in_units(X[[i, *range(1, n)]], unit, center) for i in (0, n, 0)]
        tables[2][0].numbers[1][0] = 0.0
        sizes = [wide_units.size_of_moments(*table) for table in tables]
        assert abs(sizes[2] - sizes[0]) <= 1 / n + 1e-12
        assert abs(sizes[1] - sizes[0]) <= 2 / n + 1e-12
        worst = max(worst, n * abs(sizes[2] - sizes[0]))
    assert worst > 0.7
    # of rows of norm 1 in one direction it is the moments' only eigenvalue
    X = np.outer(rng.choice([-1.0, 1.0], 400), np.eye(50)[3])
    whole = in_units(X, np.ones(50), np.zeros(50))
    assert wide_units.size_of_moments(*whole) == pytest.approx(1.0)
    X = rng.standard_normal((4000, 50))
    wide = in_units(X, np.full(50, 0.14), np.zeros(50))
    Z = 0.14 * X * wide[0].numbers[1][:, None]
    exact = np.linalg.norm(Z.T @ Z / 4000)
    assert wide_units.size_of_moments(*wide) == pytest.approx(exact, rel=0.2)


def test_the_sums_of_centred_rows_err_by_less_than_is_stated():
    # a centre as long as it may be, in units of the bound on the rows, and rows near it
    rng = np.random.default_rng(2)
    n, d = 3000, 40
    center = np.full(d, wide_units.LONGEST_CENTER / math.sqrt(d))
    X = center + rng.standard_normal((n, d)) / math.sqrt(d) / 3
    r = rng.choice([-1.0, 1.0], n)
    rows = Rows(X, True, center=center)
    found = rows.weighted_sum(r)[:d] / n
    exact = np.array([math.fsum(column) for column in ((X - center) * r[:, None]).T]) / n
    fact = facts(n, d)
    budget = PrivacyBudget(1.0, 1e-6, "zero-out")
    allowed = wide_units.wide_mean(fact, budget) - 1 / n
    assert 0 < np.linalg.norm(found - exact) < allowed / 2


# ------------------------------------------------------------------------------ the model


def test_the_model_predicts_what_the_descent_has_learned(all_wide):
    """Hardly any noise: coefficients that come near those of the best model."""
    X, z = texts(6000, 40)
    y = 0.05 * (z[:, 0] - z[:, 0].mean())
    for fit_intercept in (True, False):
        fact = facts(6000, 40, fit_intercept=fit_intercept)
        plan = Descent(max_iter=300).plan(fact, PrivacyBudget(1e3, 1e-6))
        result = quiet(plan, 1e-6).run(solver_data(X, y), stream())
        A = np.column_stack((X.toarray(), np.full(6000, float(fit_intercept))))
        least = np.mean((A @ np.linalg.lstsq(A, y, rcond=None)[0] - y) ** 2)
        found = np.mean((X @ result.coef + result.intercept - y) ** 2)
        assert found < least + 0.01 * y.var()


def test_storage_does_not_matter(all_wide):
    X, z = texts(500, 30)
    plan = planned(500, 30, epsilon=20.0)
    results = [
        plan.run(solver_data(store(X.toarray()), 0.1 * z[:, 0]), stream())
        for store in (np.ascontiguousarray, np.asfortranarray, sparse.csr_array, sparse.csc_array)
    ]
    for result in results[1:]:
        np.testing.assert_allclose(result.coef, results[0].coef, rtol=1e-9, atol=1e-12)
    assert np.any(results[0].coef)


@rest_is_slow("density", [0.01, 0.02], ("0.01",))
def test_columns_that_are_all_rare_share_a_unit(density):
    """Most drown in the noise of their frequencies, but together they tell."""
    rng = np.random.default_rng(0)
    X = rare(9000, 1200, density)
    z = X @ rng.standard_normal(1200)
    y = np.clip(z / z.std() + 0.5 * rng.standard_normal(z.size), -8, 8)
    common = {"epsilon": 3.0, "delta": 1e-6, "bounds_X": (0, 1), "random_state": 0}
    model = DPLinearRegression(bounds_y=(-8, 8), **common).fit(X[:8000], y[:8000])
    assert model.score(X[8000:], y[8000:]) > 0.25
    model = DPLogisticRegression(classes=[0, 1], **common).fit(X[:8000], y[:8000] > 0)
    assert model.score(X[8000:], y[8000:] > 0) > 0.62


def test_columns_that_drown_weigh_more_as_noise_falls_and_never_jump():
    """All units are functions of released frequencies, whose noise here is 2 % less each time."""
    rng, rules = np.random.default_rng(1), WIDE_UNITS["classification"]
    frequency = 4 / np.log(1000) / (np.arange(4000) + 5.0)
    errors, levels = rng.standard_normal(4000), []
    for of_rows in (3e-3, 1e-3, 3e-4):
        weights = []
        for scale in of_rows * 0.98 ** np.arange(30):
            noisy = frequency + scale * errors
            unit, usual = wide_units.frequency_units(noisy, scale, scale, rules)
            drowned = noisy <= rules.clear * scale
            mean = noisy[drowned].mean() + rules.ridge * scale
            weights.append(unit[drowned].max() ** 2 * mean)
            assert np.ptp(unit[drowned]) == 0
            trace = unit**2 @ np.where(drowned, noisy[drowned].mean(), noisy)
            assert usual == pytest.approx(math.sqrt(trace))
        # the largest change is by a column that becomes clear
        assert np.abs(np.diff(weights)).max() < 0.01
        levels += weights[:: len(weights) - 1]
    assert levels == sorted(levels)
    assert levels[0] > 0.2
    assert levels[-1] < 1
    # they are left out where they would add noise alone
    unit, _ = wide_units.frequency_units(frequency, 3e-3, 10.0, rules)
    assert unit[-1] == 0 < unit[0]


def test_text_is_learned_by_default_and_nothing_is_copied():
    X, z = texts(8000, 5000, k=3)
    common = {"epsilon": 4.0, "relation": "zero-out", "bounds_X": (0, 1), "random_state": 0}
    y = np.clip(0.1 * z[:, 0], -1, 1)
    regressor = DPMirrorRegressor(bounds_y=(-1, 1), **common).fit(X[:6000], y[:6000])
    assert regressor.score(X[6000:], y[6000:]) > 0.15
    assert regressor.plan_ == regressor.plan(6000, 5000)
    linear = DPLinearRegression(bounds_y=(-1, 1), **common).fit(X[:6000], y[:6000])
    np.testing.assert_array_equal(linear.coef_, regressor.coef_)
    two, three = (z[:, 0] > z[:, 1]).astype(int), z.argmax(axis=1)
    for kind, target, least in (
        (DPMirrorClassifier, two, 0.65),
        (DPLogisticRegression, two, 0.65),
        (DPMirrorClassifier, three, 0.5),
    ):
        model = kind(classes=list(range(target.max() + 1)), **common)
        assert model.plan(6000, 5000).solver == "descent"
        assert model.fit(X[:6000], target[:6000]).score(X[6000:], target[6000:]) > least
    # phased SGD has units for copies alone
    phased = DPPhasedSGDClassifier(classes=[0, 1], **common).fit(X[:6000], two[:6000])
    assert phased.plan_.target_unit is None


def test_without_noise_no_column_drowns():
    X = rare(2000, 1100, 0.02)
    y = np.clip(X[:, :5] @ np.ones(5), 0, 3)
    empty = sparse.hstack((X, sparse.csr_array((2000, 50))), format="csr")  # which no row has
    for rows in (X, empty):
        model = DPLinearRegression(epsilon=np.inf, bounds_X=(0, 1), bounds_y=(0, 3)).fit(rows, y)
        assert np.all(np.isfinite(model.coef_))
        assert model.score(rows, y) > 0.95


def test_nothing_is_copied():
    X, z = texts(4000, 1200)
    for rows in (X, X[:800].toarray()):
        y = z[: rows.shape[0], 0] / 20
        model = DPMirrorRegressor(bounds_X=(0, 1), bounds_y=(-1, 1), random_state=0)
        tracemalloc.start()
        model.fit(rows, y)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 0.6 * 8 * rows.shape[0] * rows.shape[1]


def test_what_is_made_of_features_of_both_signs(monkeypatch, all_wide):
    rng = np.random.default_rng(3)
    signs, used = np.sign(np.arange(20) - 9.5), []
    monkeypatch.setattr(
        "sklearn_dpsco.solvers.learned_units.size_of_moments",
        lambda *args: used.append(args) or wide_units.size_of_moments(*args),
    )

    def units(X, nonnegative):
        used.clear()
        plan = planned(2000, 20, epsilon=20.0, nonnegative=nonnegative)
        plan.run(solver_data(X, np.asarray(X[:, [0]].sum(axis=1)) / 2), stream())
        return used[0][1:]

    off_centre = (0.5 + 0.1 * rng.standard_normal((2000, 20))) * signs
    # dense: centred, none is left out, none is whitened
    unit, center = units(off_centre, False)
    np.testing.assert_allclose(center, 0.5 * signs, atol=0.05)
    assert np.ptp(unit) == 0
    # declared not to be negative
    unit, center = units(off_centre, True)
    np.testing.assert_array_equal(unit == 0, signs < 0)
    # sparse: by their sizes, whether signs cancel out or not
    rare = (rng.random((2000, 20)) < 0.02 * (1 + np.arange(20) % 2)) * rng.choice([-1, 1], 20)
    for X in (rare, rare * rng.choice([-1.0, 1.0], (2000, 1))):
        unit, center = units(sparse.csr_array(X.astype(float)), False)
        assert np.all(unit > 0)
        assert np.all(unit[::2] > unit[1::2])
        assert not np.any(center)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_labels_of_fewer_rows_than_words_are_not_certain(n_classes):
    """The last steps would take what each row adds to its own prediction for a slope."""
    gained = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = (rng.random((3000, 1200)) < 0.3 / np.arange(1, 1201) ** 0.7).astype(float)
        scores = X @ rng.standard_normal((1200, n_classes))
        scores = (scores - scores.mean(axis=0)) / scores.std(axis=0)
        y, train = (scores + rng.gumbel(size=scores.shape)).argmax(axis=1), slice(1000)
        facts = {"classes": range(n_classes), "bounds_X": (0, 1), "random_state": seed}
        model = DPLogisticRegression(epsilon=10.0, delta=1e-6, relation="zero-out", **facts)
        found = model.fit(sparse.csr_array(X[train]), y[train]).predict_proba(X[1000:])
        gained.append(math.log(n_classes) - log_loss(y[1000:], found))
    assert np.mean(gained) > 0, gained


def test_bounds_tell_whether_features_may_be_negative():
    for bounds in ((0, 1), ([0, 0], [3, 1]), {"a": (0, 1), "b": (0, 9)}):
        assert declared_bounds(bounds, 2)[1]["nonnegative"], bounds
    for bounds in (None, (-1, 1), ([0, -1], [1, 1]), {"a": (0, 1), "b": (1, 9)}):
        assert not declared_bounds(bounds, 2)[1]["nonnegative"], bounds


def test_a_table_of_no_entries_gives_the_constant_model():
    X = sparse.csr_array((5000, 2000))
    y = np.full(5000, 0.3)
    model = DPMirrorRegressor(epsilon=1.0, bounds_X=(0, 1), bounds_y=(-1, 1), random_state=0)
    assert np.abs(model.fit(X, y).predict(X) - 0.3).max() < 0.05


def test_the_release_of_frequencies_is_a_mean_of_rows_of_norm_one(monkeypatch, all_wide):
    seen = []

    class Recorder(Gaussian):
        def release(self, value, stream):
            seen.append(value)
            return value

    X = sparse.csr_array(np.eye(40)[:, :6] + np.eye(40)[:, 5:11])
    plan = planned(40, 6, epsilon=300.0, max_iter=2)
    center = plan.units.center
    recorder = Recorder(center.sensitivity, center.scale, center.dimension, center.precision)
    units = dataclasses.replace(plan.units, center=recorder)
    dataclasses.replace(plan, units=units).run(solver_data(X, np.zeros(40)), stream())
    assert len(seen) == 1
    assert np.linalg.norm(seen[0]) <= 1
