"""Learned units of solvers with a feasible set: what is released, and the box that is made of it.

The proof is in doc/privacy, section 4.5c.
"""

import dataclasses
import itertools
import math
import warnings

import numpy as np
import pytest
from audit_cases import run_in_pieces
from support import (
    above_frequencies,
    problem,
    quiet,
    recomputed_epsilon,
    rest_is_slow,
    solver_data,
    solver_of,
    storage,
    stream,
)

from sklearn_dpsco import DPLassoFW, DPLassoFWClassifier, DPMirrorRegressor
from sklearn_dpsco.audit import check_sensitivity, mechanisms, neighbours
from sklearn_dpsco.exceptions import PrivacyLeakWarning
from sklearn_dpsco.geometry import L1Ball
from sklearn_dpsco.losses import EpsilonInsensitive, Huber, Quantile
from sklearn_dpsco.privacy.budget import RELATIONS, PrivacyBudget
from sklearn_dpsco.solvers import (
    FrankWolfe,
    Gradient,
    NoisyMD,
    Rounds,
    Selection,
    first_releases,
    statistics,
)
from sklearn_dpsco.solvers.defaults import BOX_UNITS, LEARNED_UNITS

TASKS = ("regression", "classification")
FORMS = ("selection", "gradient", "rounds", "noisy-md")
STORAGES = ("dense", "csr", "csc")
BUDGET = PrivacyBudget(1.0, 1e-6)


def facts(n, d, units="learned", kind=L1Ball, **others):
    return dataclasses.replace(problem(n, d, **others), feasible_set=kind, units=units)


def planned(form, n, d, epsilon=300.0, relation="replace-one", **others):
    """By default with so large an epsilon that even small tables make all releases."""
    budget = PrivacyBudget(epsilon, 1e-6, relation)
    return solver_of(form, max_iter=2).plan(facts(n, d, **others), budget)


def is_learned(plan):
    return plan.first.units is not None


def boxed(X, y, plan, kind="dense"):
    """The records in the box, and the way back."""
    data = solver_data(storage(X, kind), y, fit_intercept=plan.problem.fit_intercept)
    return first_releases.learned_box(plan.first.units, data, stream())[:2]


# -------------------------------------------------------------------------- sensitivities


@rest_is_slow(
    ("form", "relation", "task"), [*itertools.product(FORMS, RELATIONS, TASKS)],
    ("selection-zero-out-regression", "gradient-replace-one-classification",
     "rounds-replace-one-regression", "noisy-md-zero-out-classification"),
)  # fmt: skip
def test_no_record_moves_a_release_beyond_its_sensitivity(form, relation, task):
    other = ((3, True), (1, False))[FORMS.index(form) % 2]
    for n_outputs, fit_intercept in ((1, True), other):
        plan = planned(
            form, 40, 2, task=task, relation=relation, n_outputs=n_outputs,
            fit_intercept=fit_intercept,
        )  # fmt: skip
        assert is_learned(plan)
        pairs = neighbours(plan.problem, relation, 3, random_state=n_outputs + fit_intercept)
        found = check_sensitivity(plan, pairs)
        assert not found.violations, found
        assert found.ratios["first.units.moments"] > 0.4, found


@rest_is_slow("relation", RELATIONS, ("replace-one",))
def test_nor_does_a_record_of_pieces(relation):
    plan = run_in_pieces(planned("gradient", 20, 3, relation=relation))
    found = check_sensitivity(plan, neighbours(plan.problem, relation, 4))
    assert not found.violations, found


def extreme_pairs(public, relation):
    """Neighbours with values of all sizes, in all storages; the other records are short or none."""
    d, rng = public.n_features, np.random.default_rng(0)
    corner, axes = np.ones(d), np.eye(2, d)
    places = [
        (corner, -corner), (axes[0], axes[1]), (axes[0], -axes[0]), (corner, 0 * corner),
        (1e-300 * corner, corner), (5e-324 * corner, -axes[1]), (corner, (-1.0) ** np.arange(d)),
        (np.geomspace(1e-200, 1, d), np.geomspace(1, 1e-200, d)),
    ]  # fmt: skip
    grid = itertools.product(*map(enumerate, (places, STORAGES, (0.0, 1e-160, 0.01, 1.0))))
    for (i, place), (j, kind), (k, size) in grid:
        if (i + j + k) % 4:  # one size of each place and storage, by turns
            continue
        X = size * rng.uniform(-1, 1, (public.n_samples, d))
        y = rng.choice([-1.0, 1.0], public.n_samples)
        tables = []
        for row, is_present in zip(place, (True, relation != "zero-out"), strict=True):
            X[0], scale = row, np.ones(public.n_samples)
            scale[0] = is_present
            tables.append(solver_data(storage(X.copy(), kind), y, scale=scale))
        yield tuple(tables)


@rest_is_slow("relation", RELATIONS, ("zero-out",))
def test_values_of_any_size_stay_within_the_sensitivities(relation):
    plan = planned("gradient", 8, 4, relation=relation)
    found = check_sensitivity(plan, extreme_pairs(plan.problem, relation))
    assert not found.violations, found
    assert 0.9 < found.ratios["first.units.moments"] <= 1, found


def test_vectors_of_sizes_and_squares_are_not_negative_and_have_norm_one_at_most():
    """So that two of them, at no obtuse angle, differ by the root of 2 at most."""
    for seed, kind in itertools.product(range(6), STORAGES):
        rng, d = np.random.default_rng(seed), 1 + seed % 6
        X = rng.uniform(-1, 1, (40, d)) * 10.0 ** rng.choice([0, 0, 0, -5, -160, -310], (40, d))
        center = np.zeros(d) if kind != "dense" else rng.uniform(-1, 1, d)
        length = 10.0 ** rng.uniform(-6, 1)
        vectors = []
        for row in X:
            data = solver_data(storage(row[None], kind), [0.0])
            measured = statistics.measure(data, center if kind == "dense" else None)
            vectors.append(first_releases._spread_sum(measured, center, length))
        V = np.array(vectors)
        assert V.min() >= 0, seed
        assert np.linalg.norm(V, axis=1).max() <= 1, seed


def test_rows_that_are_not_shortened_are_found(monkeypatch):
    plan = planned("gradient", 20, 3)
    pairs = neighbours(plan.problem, "replace-one", 3)
    monkeypatch.setattr(first_releases, "clipped_to", lambda bound, norms: np.ones_like(norms))
    assert "first.units.moments" in check_sensitivity(plan, pairs).violations
    monkeypatch.undo()
    monkeypatch.setattr(statistics, "clipped_to", lambda bound, norms: np.ones_like(norms))
    assert "first.units.center" in check_sensitivity(plan, pairs).violations


def test_records_that_leave_the_box_are_found(monkeypatch):
    clip = np.clip

    def not_to_the_box(values, low, high, **kwargs):
        is_box = np.ndim(values) == 2 and np.all(np.equal(low, -1.0))
        return values if is_box else clip(values, low, high, **kwargs)

    monkeypatch.setattr(first_releases.np, "clip", not_to_the_box)
    plan = planned("selection", 20, 3)
    pairs = neighbours(plan.problem, "replace-one", 4)
    assert "step" in check_sensitivity(plan, pairs).violations


# ------------------------------------------------------------------------------- the plan


def test_a_second_accountant_agrees_and_the_budget_is_spent():
    for k, (form, task) in enumerate(itertools.product(FORMS, TASKS)):
        relation = RELATIONS[(k + k // 2) % 2]
        case = f"{form}, {relation}, {task}"
        plan = planned(form, 2000, 5, 1.0, relation, task=task)
        used = {release.mechanism for release in plan.guarantee.releases}
        assert set(mechanisms(plan).values()) == used, case
        # selections of a single pass that have one range together are counted under zCDP
        limit = plan.budget.rho if form == "rounds" else plan.budget.mixed_allowance.amount
        assert plan.guarantee.spent == pytest.approx(limit, rel=1e-4), case
        assert recomputed_epsilon(plan.guarantee) <= 1 + 1e-4, case


def test_units_are_learned_by_default_where_nothing_is_declared_and_noise_is_small():
    def learns(n=20_000, d=10, solver=None, budget=BUDGET, **declared):
        public = facts(n, d, **{"units": "auto"} | declared)
        return is_learned((solver or Gradient()).plan(public, budget))

    for solver in (FrankWolfe(), Gradient(), Gradient(max_iter=9)):
        assert learns(solver=solver), solver
    assert learns(task="classification", n_outputs=3)
    assert learns(loss=Quantile(0.3))
    assert not learns(units="bounds")
    # noise of d means
    assert not learns(n=200, solver=FrankWolfe())
    assert not learns(n=2000, d=79)
    # in the units of the bounds
    for name in ("gradient_clip", "learning_rate", "l2_penalty", "data_norm"):
        assert not learns(solver=Gradient(**{name: 0.5})), name
    assert not learns(kind=L1Ball(2.0))
    for loss in (Huber(0.1), EpsilonInsensitive(0.1)):
        assert not learns(loss=loss), loss
    row = dataclasses.replace(facts(20_000, 10, "auto"), row_norm=1.0)
    assert not is_learned(FrankWolfe().plan(row, BUDGET))
    # no pure form
    assert not learns(solver=FrankWolfe(), budget=PrivacyBudget(1.0, 0.0))
    # no copies
    assert learns(100_000, 1000, Gradient())
    assert not learns(100_000, 1001, Gradient())
    assert not learns(2**28, 3)
    # the others learn units where they are asked to
    for solver in (Selection(), Rounds(), NoisyMD()):
        assert not learns(solver=solver), solver
        assert learns(solver=solver, units="learned"), solver


def test_mixtures_are_of_the_columns_as_they_are():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (5000, 3))
    y = X @ [0.5, 0.3, 0.2] + 0.05 * rng.normal(size=5000)
    model = DPLassoFW(
        bounds_X=(0, 1), bounds_y=(0, 1), feasible_set="simplex", fit_intercept=False
    ).set_params(random_state=0, solver="gradient", epsilon=3.0)
    model.fit(X, y)
    assert model.coef_.sum() == pytest.approx(1)
    assert model.score(X, y) > 0.8
    # of a set whose size the plan chooses, units are free
    sizes = {"n_samples": 5000, "n_features": 3}
    assert model.plan(**sizes).first.units is None
    assert model.set_params(feasible_set="l1").plan(**sizes).first.units is not None


def test_a_rare_label_has_a_smaller_set_and_is_not_predicted_by_noise():
    model = DPLassoFWClassifier(
        epsilon=0.5, bounds_X=(-4, 4), classes=[False, True], relation="zero-out", solver="gradient"
    )
    losses = above_frequencies(model, 1000, 4)
    assert model.plan_.fades_by_frequency
    assert np.median(losses) < 0.03, losses  # .05 once

    # nor is it where a radius was declared
    model.set_params(feasible_set=L1Ball(2.0))
    assert not model.plan(1000, 2).fades_by_frequency


def test_learned_units_that_cannot_be_are_refused():
    for solver, public, budget, match in (
        (Selection(), facts(100, 3), PrivacyBudget(1.0, 0.0), "no pure-DP form"),
        (Gradient(data_norm=1.0), facts(100, 3), BUDGET, "data_norm"),
        (NoisyMD(data_norm=1.0), facts(100, 3), BUDGET, "data_norm"),
        (NoisyMD(batch_size=5), facts(100, 3), BUDGET, "batch_size"),
        (Selection(), facts(100, 1001), BUDGET, "copies at most"),
        (Selection(), facts(2**28, 3), BUDGET, "copies at most"),
    ):
        with pytest.raises(ValueError, match=match):
            solver.plan(public, budget)


# -------------------------------------------------------------------------------- the box


@rest_is_slow("kind", ["dense", "fortran", "csr", "csc"], ("dense", "csr"))
def test_records_are_in_the_box_whatever_the_columns_are(kind):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (200, 5)) * [1.0, 1e-3, 0.0, 0.0, 1.0]
    X[:, 3] = 0.7
    X[:, 4] = rng.random(200) < 0.02
    for table, y in itertools.product((X, 0 * X, X[:, [3] * 5]), (X[:, 0], np.full(200, 0.3))):
        for epsilon, is_quiet in itertools.product((0.1, 10.0, 1e4), (False, True)):
            plan = planned("gradient", 200, 5, epsilon)
            data, frame = boxed(table, y, quiet(plan) if is_quiet else plan, kind)
            values = data.rows.X.data if kind in STORAGES[1:] else data.rows.X
            assert np.all(np.abs(values) <= 1)
            assert np.all(np.abs(data.y) <= 1)
            assert np.all((frame.scale > 0) & (frame.scale <= 2))


def test_constant_columns_and_no_noise_at_all_give_finite_models():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (300, 4)) * [1.0, 1.0, 0.0, 0.0]
    X[:, 3] = 0.7
    solvers = (Selection(), Gradient(), Rounds(), NoisyMD())
    for k, (solver, epsilon) in enumerate(itertools.product(solvers, (0.1, math.inf))):
        kind = STORAGES[(k + k // 2) % 3]
        estimator = DPMirrorRegressor if isinstance(solver, NoisyMD) else DPLassoFW
        model = estimator(
            epsilon=epsilon, bounds_X=(-1, 1), bounds_y=(-1, 1), units="learned", solver=solver,
            random_state=0,
        )  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            warnings.simplefilter("ignore", PrivacyLeakWarning)
            for y in (0.5 * X[:, 0], np.full(300, 0.3)):
                model.fit(storage(X, kind), y)
                assert np.all(np.isfinite(model.coef_)), (kind, solver, epsilon)
                assert math.isfinite(model.intercept_), (kind, solver, epsilon)
            if epsilon == math.inf:
                assert model.predict(storage(X, kind)) == pytest.approx(0.3, abs=0.01)
                # units that are float errors would make coefficients of 1e9
                same = np.full((300, 4), 0.1)
                assert np.abs(model.fit(same, y).coef_).max() < 3, solver


def test_widths_are_those_of_flags_and_of_normal_numbers():
    n, sizes = 20_000, np.array([0.1, 0.03, 0.1, 0.02])
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 6)) * [*sizes, 0, 0]
    ranges = np.array([0.1, 0.15])
    X[:, 4:] = ranges * (rng.random((n, 2)) < [0.01, 0.3]) - 0.5
    for epsilon in (1.0, 30.0):
        plan = planned("gradient", n, 6, epsilon)
        growth = LEARNED_UNITS["regression"].growth * plan.first.units.accuracy / 7
        growth = min(BOX_UNITS.longest, math.sqrt(max(1.0, growth)))
        _, frame = boxed(np.clip(X, -1, 1), 0.3 * X[:, 0], quiet(plan))
        np.testing.assert_allclose(frame.scale[:4], 2.5 * growth * sizes, rtol=0.1)
        np.testing.assert_allclose(frame.scale[4:], growth * ranges, rtol=0.1)


# ------------------------------------------------------------------------------- accuracy


def test_bounds_a_hundred_times_too_wide_cost_next_to_nothing():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((5000, 10)) * 10.0 ** np.linspace(-1, 1, 10)
    signal = (X / X.std(axis=0))[:, :4] @ [1.0, -1.0, 0.5, 0.5]
    y = signal + rng.standard_normal(5000)
    labels = np.where(y > 0, "b", "a")
    fitting = 4 * X.std(axis=0)
    for solver, units in (
        ("auto", "auto"),
        ("selection", "learned"),
        ("gradient", "auto"),
        ("noisy-md", "learned"),
    ):
        estimator = DPMirrorRegressor if solver == "noisy-md" else DPLassoFW
        scores = []
        for factor in (1, 100):
            bounds = (-factor * fitting, factor * fitting)
            model = estimator(
                bounds_X=bounds,
                bounds_y=(-8 * factor, 8 * factor),
                solver=solver,
                units=units,
                random_state=0,
            )
            scores.append(model.fit(X, y).score(X, y))
        assert scores[0] > 0.4, (solver, scores)
        assert scores[1] > scores[0] - 0.05, (solver, scores)
    scores = [
        DPLassoFWClassifier(
            bounds_X=(-factor * fitting, factor * fitting), classes=["a", "b"], random_state=0
        )
        .fit(X, labels)
        .score(X, labels)
        for factor in (1, 100)
    ]
    assert scores[1] > scores[0] - 0.03 > 0.7


def test_columns_in_which_most_rows_have_nothing_keep_their_slopes():
    # the usual row is 0: a box of its size would cut all others
    rng = np.random.default_rng(0)
    is_there = rng.random((20_000, 5))
    for X, high in (
        ((is_there < 0.01) * 1.0, 1.0),
        (np.where(is_there < 0.1, rng.lognormal(size=is_there.shape), 0).clip(0, 50), 50.0),
    ):
        y = (X / X.std(axis=0)) @ np.linspace(1, 0.2, 5) + rng.standard_normal(20_000)
        scores = [
            DPLassoFW(bounds_X=(0, high), bounds_y=(-10, 10), random_state=seed)
            .fit(X, y.clip(-10, 10))
            .score(X, y)
            for seed in range(2)
        ]
        assert min(scores) > 0.4, scores


def test_sets_of_all_norms_are_in_learned_units():
    X = np.random.default_rng(0).uniform(-1, 1, (2500, 3))
    y = X @ [0.4, -0.2, 0.1]
    for kind in ("l1", "l2", "linf"):
        model = DPMirrorRegressor(
            epsilon=4.0, bounds_X=(-100, 100), bounds_y=(-100, 100), feasible_set=kind,
            solver=NoisyMD(), units="learned", random_state=0,
        )  # fmt: skip
        assert model.fit(X, y).score(X, y) > 0.85, kind
        assert is_learned(model.plan_), kind


@pytest.mark.parametrize("how", ["weight", "gap"])
def test_the_mean_of_targets_is_that_of_records_that_are_not_empty(how):
    """Not that of all, empty ones at the centre: here .2 of a standard deviation too high."""
    off, bounds = [], ([-5, 0, 0, 0, 18, 0], [5, 20, 1, 1, 90, 12])
    for seed in range(6):
        rng, n = np.random.default_rng(1000 + seed), 20_000
        columns = rng.normal(size=n), rng.lognormal(sigma=0.8, size=n).clip(0, 20), rng.random(n)
        X = np.column_stack((*columns, rng.random(n), rng.integers(18, 90, n), rng.poisson(1.0, n)))
        X[:, 2:4] = X[:, 2:4] < [0.1, 0.5]
        y = X @ [0.5, 0.2, 0.8, -0.4, 0.01, -0.2] - 0.5 + rng.normal(size=n)
        kept = (y > 1) | (rng.random(n) < 0.2)
        model = DPLassoFW(epsilon=3.0, relation="zero-out", bounds_X=bounds, bounds_y=(-10, 20))
        model.set_params(max_weight=1.0, nonfinite="zero", random_state=seed)
        if how == "weight":
            model.fit(X, y, sample_weight=kept.astype(float))
        else:
            model.fit(X, np.where(kept, y, np.nan))
        assert model.plan_.first.units is not None
        off.append((model.predict(X[kept]).mean() - y[kept].mean()) / y[kept].std())
    assert abs(np.mean(off)) < 0.05, off
