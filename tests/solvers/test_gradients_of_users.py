"""Gradients that are added up over the rows of a user before they are clipped."""

import dataclasses
from functools import partial

import dask.array as da
import numpy as np
import pytest
from audit_cases import CORRECTED
from scipy import sparse
from sklearn.linear_model import LinearRegression, LogisticRegression, PoissonRegressor
from support import free_problem, problem, recomputed_epsilon, rest_is_slow

from sklearn_dpsco import (
    DPLinearRegression,
    DPLogisticRegression,
    DPMirrorClassifier,
    DPMirrorRegressor,
    DPPoissonRegressor,
    HeavyTailDPRegressor,
)
from sklearn_dpsco.audit import check_sensitivity, neighbours, replay
from sklearn_dpsco.data.rows import Rows, SolverData, Terms, gradient_sum
from sklearn_dpsco.privacy.budget import RELATIONS, PrivacyBudget
from sklearn_dpsco.solvers import Descent, Localized, UnboundedDescent, records, unit_descent
from sklearn_dpsco.solvers.records import Users, user_gradients
from sklearn_dpsco.solvers.statistics import tied_gradient_sum

ROWS = 4


def planned(
    n, d, task="regression", n_outputs=1, epsilon=1.0, relation="zero-out", rows=ROWS,
    solver=Descent, **settings,
):  # fmt: skip
    of_users = {"n_users": n // rows * (rows > 1), "may_be_empty": rows > 1}
    facts = free_problem(n, d, task, n_outputs, **of_users)
    budget = PrivacyBudget(epsilon, 1e-6, relation, rows_per_user=rows)
    return solver(**settings).plan(facts, budget)


# ------------------------------------------------------------------------------- the sums


@pytest.mark.parametrize(("k", "is_tied"), [(1, False), (3, False), (3, True)])
def test_vectors_are_sums_over_the_rows_of_a_user_and_cut_as_a_whole(k, is_tied):
    rng, n, d = np.random.default_rng(k), 500, 3
    task = "classification" if k > 1 else "regression"
    loss, d = problem(n, d, task=task, n_outputs=k).loss, k if is_tied else d
    X, y = rng.normal(size=(n, d)), rng.normal(size=(n, k) if k > 1 else n)
    weights, present = rng.random(n), (rng.random(n) > 0.1) * 1.0
    rows = dataclasses.replace(
        Rows(X.astype(np.float32), True, present, weights), users=rng.integers(0, 150, n)
    )
    size, shape = (d + 1, (d + 1, k) if k > 1 else d + 1)
    point = rng.normal(size=k + 1 if is_tied else shape)
    unit, data = rng.uniform(0.5, 2, size), SolverData(rows, y)
    added = tied_gradient_sum if is_tied else gradient_sum
    terms = Terms(0.3 if k == 1 else np.full(k, 0.3), loss, np.inf)
    some = np.unique(rows.users)
    each = np.array(
        [
            added(data.part(np.flatnonzero(rows.users == user)), point, terms).ravel()
            for user in some
        ]
    )
    users = Users.of(rows)
    np.testing.assert_array_equal(
        users.present, [present[rows.users == user].any() for user in some]
    )
    total, norms = user_gradients(data, users, unit, point, dataclasses.replace(terms, clip=1.5))
    units = np.repeat(unit, point.size // size)
    exact = np.linalg.norm(each * units, axis=1)
    np.testing.assert_allclose(norms, exact, rtol=1e-9, atol=1e-12)
    assert np.all(norms >= exact * (1 - 1e-15))  # rounded up
    assert 0.2 < (exact > 1.5).mean() < 0.98
    cut = each * np.minimum(1, 1.5 / np.maximum(exact, 1e-300))[:, None]
    np.testing.assert_allclose(total.ravel(), cut.sum(axis=0), rtol=1e-9, atol=1e-9)
    assert total.shape == point.shape


def test_a_vector_beyond_all_measure_counts_as_nothing():
    X, y = np.ones((6, 1)), np.zeros(6)
    y[:2], y[2:4] = 1e300, np.inf
    rows = dataclasses.replace(Rows(X, True), users=np.arange(6) // 2)
    facts = Users.of(rows), np.ones(2), np.zeros(2)
    terms = Terms(0.0, problem(6, 1).loss, 1.0)
    total, norms = user_gradients(SolverData(rows, y), *facts, terms)
    assert np.all(norms[:2] == np.inf)
    assert np.all(total == 0.0)


# ------------------------------------------------------------------------- sensitivities


@pytest.mark.parametrize("relation", RELATIONS)
def test_the_noise_is_that_of_a_row_and_the_claim_that_of_users(relation):
    for task, k in (("regression", 1), ("classification", 1), ("classification", 3)):
        one, many = (planned(80_000, 5, task, k, 1.0, relation, rows) for rows in (1, ROWS))
        assert one.of_users is None
        factor = many.budget.record_factor
        assert many.of_users.size.sensitivity == pytest.approx(factor / ROWS, rel=1e-5)
        for name in ("step", "correction.step"):
            was, found = (
                (plan if name == "step" else plan.correction).step for plan in (one, many)
            )
            assert was.sensitivity / ROWS <= found.sensitivity < was.sensitivity / ROWS * 1.001
            assert found.scale < 1.7 * was.scale, (task, k, name)
        assert 0.99 < recomputed_epsilon(many.guarantee) <= 1 + 1e-4
    # of rows whose users are not known, of wide ones and of a table in pieces it grows
    facts = free_problem(80_000, 5)
    budget = PrivacyBudget(1.0, 1e-6, relation, rows_per_user=ROWS)
    assert Descent().plan(facts, budget).step.scale > 2.5 * one.step.scale
    for n, d in ((80_000, 1200), (2**28, 5)):
        plan = planned(n, d, epsilon=20.0)
        assert plan.of_users is None
        assert not plan.problem.by_user


def replayed(plan, relation, n_pairs=6):
    if plan.correction is not None:  # a clip that users reach
        correction = dataclasses.replace(plan.correction, n_above=12)
        plan = dataclasses.replace(plan, correction=correction)
    return check_sensitivity(plan, neighbours(plan.problem, relation, n_pairs, rows_per_user=ROWS))


@rest_is_slow(
    ("task", "n_outputs", "d", "relation"),
    CORRECTED,
    [
        "regression-1-2-replace-one",
        "regression-2-2-zero-out",
        "classification-1-2-zero-out",
        "classification-4-30-replace-one",
    ],
)
def test_no_user_moves_a_release_beyond_what_the_claim_counts(task, n_outputs, d, relation):
    epsilon = 400.0 * ROWS * (4 if n_outputs == 4 else 1)
    plan = planned(80, d, task, n_outputs, epsilon, relation, max_iter=2)
    assert plan.correction is not None
    found = replayed(plan, relation, 4)
    assert not found.violations, found
    for name in ("of_users.size", "step", "correction.step", "correction.tail"):
        assert found.ratios[name] > 0.3, (name, found)


def test_plans_that_clip_rows_are_audited_on_rows(monkeypatch):
    monkeypatch.setattr(replay, "neighbours", partial(neighbours, n_pairs=6))
    facts = {"bounds_X": (-1, 1), "bounds_y": (-1, 1), "epsilon": 8, "max_rows_per_user": ROWS}
    plan = DPMirrorRegressor(**facts, solver=Localized(max_iter=1, n_phases=2)).plan(60, 2)
    assert not plan.clips_users
    assert check_sensitivity(plan).passed
    plan = DPMirrorRegressor(**facts, solver=Descent(max_iter=2)).plan(60, 2)
    assert plan.clips_users
    assert check_sensitivity(plan).passed


def test_a_replay_finds_rows_that_are_clipped_one_by_one(monkeypatch):
    plan = planned(80, 2, epsilon=400.0 * ROWS, max_iter=2)
    own = Users.of

    def each(rows):
        users = own(rows)
        numbers = np.arange(users.order.size)
        return users._replace(of_rows=users.order, starts=numbers, ends=numbers + 1)

    monkeypatch.setattr(records.Users, "of", each)
    found = replayed(plan, "zero-out", 3)
    assert {"of_users.size", "step", "correction.step"} <= set(found.violations), found


def test_users_go_along_where_features_have_no_bounds():
    plan = planned(80, 2, epsilon=400.0 * ROWS, solver=UnboundedDescent, max_iter=2)
    assert plan.problem.by_user
    found = check_sensitivity(plan, neighbours(plan.problem, "zero-out", 4, rows_per_user=ROWS))
    assert not found.violations, found
    assert found.ratios["step"] > 0.3, found


# ------------------------------------------------------------------------------ estimates


def visits(task, seed, alike=0.3, users=1500):
    """Some 2.5 rows of each user, at most 10, which have a part in common."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(users), np.minimum(10, rng.geometric(0.4, users)))
    n, common, own = groups.size, alike**0.5, (1 - alike) ** 0.5
    X = (common * rng.normal(size=(users, 5))[groups] + own * rng.normal(size=(n, 5))).clip(-3, 3)
    error = common * rng.normal(size=users)[groups] + own * rng.normal(size=n)
    z = X @ [0.6, -0.4, 0.2, 0.0, 0.5]
    if task == "regression":
        return X, z + error, groups
    if task == "labels":
        return X, (2 * z + 1.7 * error > 2.2) * 1, groups
    return X, rng.poisson(np.minimum(np.exp(0.6 * z - 0.3), 12)), groups


@rest_is_slow("task", ["regression", "labels", "counts"], ("regression", "labels"))
def test_fits_that_know_the_users_are_near_those_without_privacy(task):
    facts = {"epsilon": 2.0, "delta": 1e-6, "bounds_X": (-3, 3), "max_rows_per_user": 10}
    kinds = {
        "regression": (DPLinearRegression, {"bounds_y": (-8, 8)}, LinearRegression()),
        "labels": (DPLogisticRegression, {"classes": [0, 1]}, LogisticRegression(C=1e6)),
        "counts": (DPPoissonRegressor, {"bounds_y": (0, 20)}, PoissonRegressor(alpha=0)),
    }
    kind, own, plain = kinds[task]
    errors = {True: [], False: []}
    for seed in range(3):
        X, y, groups = visits(task, seed)
        exact = plain.fit(X, y).coef_
        for knows in errors:
            model = kind(**facts, **own, random_state=seed)
            model.fit(X, y, groups=groups if knows else None)
            errors[knows].append(np.linalg.norm(model.coef_ - exact) / np.linalg.norm(exact))
    assert np.median(errors[True]) < 0.25, errors
    assert np.median(errors[True]) < 0.5 * np.median(errors[False]), errors


def test_whose_rows_they_are_is_known_of_tables_in_one_place():
    X, y, groups = visits("regression", 0, users=400)
    facts = {"epsilon": 6.0, "bounds_X": (-3, 3), "bounds_y": (-8, 8), "max_rows_per_user": 10}

    def releases(model, X=X, y=y, **groups):
        named = [release.name for release in model.fit(X, y, **groups).guarantee_.releases]
        return named.count("user size")

    assert releases(DPLinearRegression(**facts), groups=groups) == 1
    assert releases(DPLinearRegression(**facts), sparse.csr_array(X), groups=groups) == 1
    assert releases(DPMirrorRegressor(**facts, loss="welsch"), groups=groups) == 1
    assert releases(DPLinearRegression(**facts)) == 0
    assert releases(DPLinearRegression(**{**facts, "max_rows_per_user": 1}), groups=groups) == 0
    there = da.from_array(X, chunks=(500, 5))
    assert releases(DPLinearRegression(**facts), there, groups=groups) == 0
    heavy = HeavyTailDPRegressor(epsilon=8.0, max_rows_per_user=10)
    assert releases(heavy, groups=groups) == 1
    # the order of the rows tells nothing but which are pairs, of which sizes of columns are
    order = np.random.default_rng(0).permutation(len(y))
    coefs = [
        DPLinearRegression(**facts, random_state=0).fit(X[o], y[o], groups=groups[o]).coef_
        for o in (np.arange(len(y)), order)
    ]
    np.testing.assert_allclose(*coefs, rtol=0.1)


def test_clips_of_the_last_steps_are_hardly_ever_far_beyond_all_gradients(monkeypatch):
    """Noise of the slope and the level grows with them; one in four was."""
    rng, clips, select = np.random.default_rng(0), [], unit_descent._user_clip

    def kept(*facts):
        clips.append(select(*facts))
        return clips[-1]

    monkeypatch.setattr(unit_descent, "_user_clip", kept)
    X, users = rng.uniform(-1, 1, (5000, 3)), np.repeat(np.arange(1000), 5)
    y = rng.random(5000) < 0.03
    for seed in range(20):
        facts = {"epsilon": 3.0, "delta": 1e-6, "relation": "zero-out", "max_rows_per_user": 5}
        facts |= {"bounds_X": (-1, 1), "classes": [False, True], "random_state": seed}
        DPLogisticRegression(**facts).fit(X, y, groups=users)
    first, last = np.reshape(clips, (-1, 2)).T
    assert np.mean(last > 2 * first) < 0.1, last


def test_without_noise_nothing_is_clipped():
    X, y, groups = visits("regression", 1)
    facts = {"epsilon": np.inf, "bounds_X": (-3, 3), "bounds_y": (-8, 8), "max_rows_per_user": 10}
    with pytest.warns(UserWarning, match="adds no noise"):
        model = DPLinearRegression(**facts).fit(X, y, groups=groups)
    np.testing.assert_allclose(model.coef_, LinearRegression().fit(X, y).coef_, atol=1e-3)
    _, labels, groups = visits("labels", 1)
    with pytest.warns(UserWarning, match="adds no noise"):
        model = DPMirrorClassifier(
            epsilon=np.inf, bounds_X=(-3, 3), classes=[0, 1], max_rows_per_user=10
        ).fit(X, labels, groups=groups)
    exact = LogisticRegression(C=1e9).fit(X, labels).coef_
    assert np.linalg.norm(model.coef_ - exact) < 0.03 * np.linalg.norm(exact)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_slopes_of_users_that_are_noise_are_made_smaller(n_classes):
    # by a clip far below the sums over rows, which few users tell, the loss is hardly curved, and
    # noise goes further: it had been taken for a signal in most fits
    spreads = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        X, y = rng.uniform(-1, 1, (4000, 5)), rng.integers(0, n_classes, 4000)
        facts = {"epsilon": 0.05, "delta": 1e-6, "relation": "zero-out", "random_state": seed}
        facts |= {"classes": list(range(n_classes)), "bounds_X": (-1, 1), "max_rows_per_user": 10}
        model = DPLogisticRegression(**facts).fit(X, y, groups=np.arange(4000) // 10)
        spreads.append(model.decision_function(X).std(axis=0).mean())
    assert np.median(spreads) < 0.3, spreads
