"""Mirror descent: plans from public facts, the methods themselves, and their calibration."""

import dataclasses
import functools
import itertools
import math

import numpy as np
import pytest
from audit_cases import assert_only_too_little_noise_is_flagged, flipped_label, weaker
from dp_accounting.pld import PLDAccountant
from scipy.optimize import minimize
from support import (
    LOSSES,
    batch_game,
    cells_of,
    half_is_enough,
    l2_problem,
    recomputed_epsilon,
    rest_is_slow,
    scaled_table,
    solver_data,
    solver_of,
    storage,
    stream,
    without_noise,
)

from sklearn_dpsco import BudgetAccountant, DPMirrorRegressor
from sklearn_dpsco.audit import audit_plan, check_sensitivity, mechanisms, neighbours
from sklearn_dpsco.geometry import Geometry, L1Ball, L2Ball, LInfBall, LpBall, Simplex
from sklearn_dpsco.losses import Absolute, Hinge, Huber, LogAbsolute, MCPAbsolute, Squared, Welsch
from sklearn_dpsco.mechanisms import GeneralizedGaussian
from sklearn_dpsco.privacy import events
from sklearn_dpsco.privacy.budget import RELATIONS, PrivacyBudget
from sklearn_dpsco.privacy.guarantee import Guarantee
from sklearn_dpsco.randomness.subsets import RandomBatches
from sklearn_dpsco.solvers import Localized, MirrorDescent, NoisyMD, NoisySFW, Proximal
from sklearn_dpsco.solvers.base import Problem
from sklearn_dpsco.solvers.records import Records

TASKS = ["regression", "classification"]
FORMS = ("noisy-md", "localized", "proximal", "noisy-sfw")
every_form = pytest.mark.parametrize("form", FORMS)
every_relation = pytest.mark.parametrize("relation", RELATIONS)
# one of them, by turns
one_relation = rest_is_slow("relation", RELATIONS, ("zero-out",))
the_other_relation = rest_is_slow("relation", RELATIONS, ("replace-one",))
BUDGET = PrivacyBudget(1.0, 1e-6)


class Ramp(Hinge):
    """A user's loss with a kink that says nothing of its convexity."""

    task = "regression"
    is_convex = False


class Undeclared(Squared):
    """A user's loss with large derivatives that says nothing of its convexity."""

    is_convex = False


# ------------------------------------------------------------------------------ the plan


@every_form
def test_public_parameters_reach_the_plan(form):
    X, y = scaled_table(50, 4)
    solver = solver_of(form, max_iter=5, learning_rate=0.2, gradient_clip=0.7, data_norm=1.1)
    model = DPMirrorRegressor(
        bounds_X=(-1, 1), bounds_y=(-1, 1), solver=solver, feasible_set=L1Ball(0.9),
        relation="zero-out", epsilon=3.0,
    )  # fmt: skip
    before = model.plan(50, 4)
    plan = model.fit(X, y).plan_
    assert plan == before
    assert plan.solver == form
    assert (plan.gradient_clip, plan.geometry, plan.first.norm) == (0.7, L1Ball(0.9), 1.1)
    assert model.guarantee_.relation == "zero-out"
    assert all(stage.n_steps == 5 for stage in plan.stages)
    if form != "localized":
        assert plan.stages[0].learning_rate == 0.2


@every_form
@every_relation
def test_sensitivities_have_the_proved_form(form, relation):
    n, clip, norm = 1000, 0.3, 2.0
    solver = solver_of(form, max_iter=9, gradient_clip=clip, data_norm=norm, n_phases=3)
    plan = solver.plan(l2_problem(n, 20), PrivacyBudget(1.0, 1e-6, relation))
    factor = 2 if relation == "replace-one" else 1
    sizes = {"noisy-md": [1000], "localized": [571, 286, 143], "proximal": [333, 333, 334]}
    if form == "noisy-sfw":
        (stage,) = plan.stages
        first, later = stage.batches
        assert first + 9 * later == n
        # derivatives change by at most smoothness * step * B * diameter of the set
        change = min(2 * clip, stage.learning_rate * norm * 2 * plan.geometry.radius)
        assert stage.largest_terms == (None, pytest.approx(change))
        expected = [clip * norm / first, stage.largest_terms[1] * norm / later]
    else:
        expected = [clip * norm / size for size in sizes[form]]
    found = [release.mechanism.sensitivity for s in plan.stages for release in s.releases]
    for sensitivity, exact in zip(found, expected, strict=True):
        # never below, and above it by no more than the float error of a sum
        assert factor * exact < sensitivity < factor * exact * (1 + 1e-8)


@every_form
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_disjoint_slices_get_the_full_budget(form, n_outputs):
    solver = solver_of(form, max_iter=20, n_phases=4)
    plan = solver.plan(l2_problem(500, 8, task="classification", n_outputs=n_outputs), BUDGET)
    releases = plan.guarantee.releases
    common = sum(r.count * r.mechanism.cost("gdp") for r in releases if r.group is None)
    groups = {}
    for r in releases:
        if r.group is not None:
            groups[r.group] = groups.get(r.group, 0) + r.count * r.mechanism.cost("gdp")
    assert len(groups) == {"noisy-md": 0, "localized": 4, "proximal": 4, "noisy-sfw": 2}[form]
    full = BUDGET.mu**2 / 2  # of all outputs together
    for spent in groups.values() or [0.0]:
        assert common + spent == pytest.approx(full, rel=1e-9)
    assert plan.guarantee.spent <= BUDGET.mu**2 / 2
    # everything that the run uses is in the claim
    assert set(mechanisms(plan).values()) == {r.mechanism for r in releases}


@every_form
def test_slices_are_disjoint_and_cover_the_records(form):
    for n_phases, penalty, n in itertools.product((1, 3), (0.0, 0.1), (50, 51, 1000)):
        case = f"n={n}, n_phases={n_phases}, l2_penalty={penalty}"
        solver = solver_of(form, n_phases=n_phases, l2_penalty=penalty)
        plan = solver.plan(l2_problem(n, 3), BUDGET)
        slices = [stage.records or (0, n) for stage in plan.stages]
        assert slices[0][0] == 0, case
        assert slices[-1][1] == n, case
        assert all(a[1] == b[0] for a, b in itertools.pairwise(slices)), case
        assert all(low < high for low, high in slices), case


def test_a_penalty_restarts_the_forms_that_use_a_record_once():
    counts = {}
    for form in FORMS:
        solver = solver_of(form, l2_penalty=0.1, n_phases=2)
        counts[form] = len(solver.plan(l2_problem(10_000, 3), BUDGET).stages)
    assert counts == {"noisy-md": 1, "localized": 2 * 4, "proximal": 2, "noisy-sfw": 4}
    runs = NoisyMD(n_restarts=3).plan(l2_problem(700, 3), BUDGET)
    assert [stage.records for stage in runs.stages] == [(0, 100), (100, 300), (300, 700)]


@every_form
def test_a_second_accountant_agrees(form):
    cases = zip(itertools.cycle(RELATIONS), [(0.1, 1), (1.0, 3), (8.0, 1)], strict=False)
    for relation, (epsilon, n_outputs) in cases:
        budget = PrivacyBudget(epsilon, 1e-6, relation)
        plan = solver_of(form).plan(l2_problem(300, 5, n_outputs=n_outputs), budget)
        assert plan.guarantee.composition == "gdp"
        found = recomputed_epsilon(plan.guarantee)
        assert 0.9 * epsilon < found <= epsilon * (1 + 1e-4), f"{relation}, {epsilon}"


def test_defaults_fade_with_the_noise():
    def plan(n, epsilon, task="regression"):
        facts = l2_problem(n, 10, task=task)
        return MirrorDescent().plan(facts, PrivacyBudget(epsilon, 1e-6))

    for task in TASKS:
        # what the model can move in all steps falls without end as n * epsilon does
        moves = [
            stage.learning_rate * stage.n_steps
            for n in (10, 100, 1000)
            for stage in plan(n, 0.1, task).stages
        ]
        assert moves[0] < moves[1] / 50 < moves[2] / 2500
        clips = [plan(n, 1.0, task).gradient_clip for n in (100, 10_000, 10**6, 10**8)]
        assert clips == sorted(clips)
        assert clips[0] < 0.5 < clips[-1]


def test_default_set_is_a_function_of_sizes_and_budget():
    for n, d, expected in ((10**5, 50, L2Ball), (100, 50, L2Ball), (500, 200, L1Ball)):
        facts = Problem(n, d, LOSSES["regression"], Geometry)
        assert type(NoisyMD().plan(facts, BUDGET).geometry) is expected
        model = DPMirrorRegressor(bounds_X=(-1, 1), solver="noisy-md")
        assert type(model.plan(n, d).geometry) is expected


def test_beyond_2_the_map_is_euclidean():
    for p in (1.5, 2.0, 3.0, math.inf):
        facts = Problem(100, 30, LOSSES["regression"], LpBall(1.0, p))
        for form in FORMS[: 3 if p <= 2 else 2]:
            plan = solver_of(form).plan(facts, BUDGET)
            assert plan.mirror_map.exponent(31) == min(p, 2.0), f"{form}, p={p}"


def test_generalized_noise_needs_floats_and_pays_where_rows_fill_the_box():
    facts = Problem(10**5, 20_000, LOSSES["regression"], L1Ball(1.0), fit_intercept=False)
    kinds = {}
    for precision, norm in itertools.product(("exact", "float"), ("auto", math.sqrt(20_000))):
        budget = PrivacyBudget(1.0, 1e-6, precision=precision)
        solver = NoisyMD(max_iter=3, data_norm=norm, mirror_map="entropy")
        noise = solver.plan(facts, budget).stages[0].noise
        kinds[precision, norm == "auto"] = isinstance(noise, GeneralizedGaussian)
    assert kinds.pop(("float", False))
    # clipping rows to half of their largest l2 norm gains more than another law
    assert not any(kinds.values())


# ---------------------------------------------------------------------------- bad input


def test_what_cannot_work_is_refused_whatever_the_sizes_are():
    for p in (3.0, math.inf):
        for feasible_set in (LpBall(1.0, p), LInfBall(1.0), LInfBall):
            assert_refused(NoisySFW(), r"p <= 2.*'noisy-md'", feasible_set)
    for form in ("localized", "proximal"):
        entropy = solver_of(form, mirror_map="entropy")
        assert_refused(entropy, f"{form}.*entropy", L1Ball)
    assert_refused(Proximal(), "needs a convex or weakly convex loss", L2Ball, loss=Ramp())
    NoisyMD().check(Ramp(), L2Ball, BUDGET)
    assert_refused(NoisyMD(mirror_map="entropy"), "mirror_map", L2Ball)
    for form in FORMS:
        pure = PrivacyBudget(1.0, 0.0)
        assert_refused(solver_of(form), "no pure-DP form.*DPLassoFW", L2Ball, pure)


def assert_refused(solver, match, feasible_set, budget=BUDGET, loss=LOSSES["regression"]):
    """By `check`, and by `plan` as well."""
    with pytest.raises(ValueError, match=match):
        solver.check(loss, feasible_set, budget)
    with pytest.raises(ValueError, match=match):
        solver.plan(Problem(100, 3, loss, feasible_set), budget)


def test_too_few_samples_are_refused_with_the_number_that_works():
    for solver in (
        NoisyMD(batch_size=101),
        Localized(n_phases=20),
        Localized(n_phases=15, l2_penalty=0.1),
        NoisySFW(max_iter=100),
        NoisySFW(max_iter=90, l2_penalty=0.1),
    ):
        model = DPMirrorRegressor(bounds_X=(-1, 1), solver=solver)
        with pytest.raises(ValueError, match="smallest n that works") as error:
            model.plan(100, 3)
        smallest = int(str(error.value).split()[-1])
        assert smallest > 100, solver
        model.plan(smallest, 3)
        with pytest.raises(ValueError, match="smallest n that works"):
            model.plan(smallest - 1, 3)


# --------------------------------------------------------------------------- the method


def best_loss(X, y, offset, loss, geometry, *, fit_intercept, penalty=0.0):
    """Minimum of the mean loss plus penalty over a set, by a generic solver."""
    A = np.column_stack((X, np.ones(len(y)))) if fit_intercept else X
    k = A.shape[1]
    p = geometry.p

    def objective(w):
        z = offset + A @ w
        gradient = A.T @ loss.derivative(z, y) / len(y) + penalty * w
        return loss.value(z, y).mean() + penalty / 2 * (w @ w), gradient

    if p == 1:

        def split(w):
            value, gradient = objective(w[:k] - w[k:])
            return value, np.concatenate((gradient, -gradient))

        room = {"type": "ineq", "fun": lambda w: geometry.radius - w.sum()}
        found = minimize(
            split, np.full(2 * k, 0.01), jac=True, bounds=[(0, None)] * (2 * k),
            constraints=room, method="SLSQP", options={"maxiter": 500, "ftol": 1e-12},
        )  # fmt: skip
    elif p == math.inf:
        bounds = [(-geometry.radius, geometry.radius)] * k
        found = minimize(objective, np.zeros(k), jac=True, bounds=bounds, options={"ftol": 1e-14})
    else:  # an inactive ball of p = 2 included
        room = {"type": "ineq", "fun": lambda w: geometry.radius**p - (np.abs(w) ** p).sum()}
        found = minimize(
            objective, np.full(k, 0.01), jac=True, constraints=room, method="SLSQP",
            options={"maxiter": 500, "ftol": 1e-9},
        )  # fmt: skip
    assert found.success
    return found.fun


SETS = [
    (L2Ball(0.4), "auto"), (L2Ball(5.0), "auto"), (L1Ball(0.5), "power"), (L1Ball(0.5), "entropy"),
    (L1Ball(5.0), "euclidean"), (LpBall(0.5, 1.5), "auto"), (LpBall(0.4, 4.0), "auto"),
    (LInfBall(0.3), "auto"),
]  # fmt: skip


@half_is_enough
@pytest.mark.parametrize(("geometry", "mirror_map"), SETS, ids=str)
def test_without_noise_the_constrained_optimum_is_found(geometry, mirror_map, cells):
    n, d = 60, 4
    for task, fit_intercept in cells_of(cells, TASKS, (True, False)):
        case = f"{task}, fit_intercept={fit_intercept}"
        X, y = scaled_table(n, d, task=task)
        loss = LOSSES[task]
        facts = Problem(n, d, loss, geometry, fit_intercept)
        solver = NoisyMD(max_iter=500, gradient_clip=1e6, data_norm=3.0, mirror_map=mirror_map)
        plan = without_noise(solver.plan(facts, PrivacyBudget(1e5, 1e-6)))
        plan = dataclasses.replace(plan, first=dataclasses.replace(plan.first, row_factor=None))
        result = plan.run(solver_data(X, y, fit_intercept=fit_intercept), stream())
        offset = loss.best_constant(y.mean()) if fit_intercept else 0.0
        center = X.mean(axis=0) if fit_intercept else np.zeros(d)
        solution = result.coef
        if fit_intercept:  # the set is that of the coefficients about the centre
            solution = np.append(solution, result.intercept - offset + center @ result.coef)
        assert geometry.norm(solution) <= geometry.radius * (1 + 1e-9), case
        reached = loss.value(X @ result.coef + result.intercept, y).mean()
        best = best_loss(X - center, y, offset, loss, geometry, fit_intercept=fit_intercept)
        trivial = loss.value(np.full(n, offset), y).mean()
        assert best - 1e-9 <= reached <= best + 5e-3 * (trivial - best), case


def test_without_noise_single_passes_come_close_to_the_optimum():
    # all records alike, so that all slices pose one problem
    n = 2000
    X, y = np.tile([[0.5, -0.3]], (n, 1)), np.full(n, 0.4)
    for form, steps in (("localized", 120), ("proximal", 120), ("noisy-sfw", 200)):
        solver = solver_of(form, max_iter=steps, data_norm=1.0)
        plan = solver.plan(l2_problem(n, 2, fit_intercept=False), PrivacyBudget(1e5, 1e-6))
        result = without_noise(plan).run(solver_data(X, y, fit_intercept=False), stream())
        assert X[0] @ result.coef == pytest.approx(0.4, abs=0.03), form


def test_rounds_are_proximal_steps():
    # the loss is quadratic along its one feature, w^2 / 2 - w, so that each round ends at
    # (1 + a w) / (1 + a), where a is the weight of the proximal term and w where it began
    n, d = 3000, 1
    X, y = np.ones((n, d)), np.ones(n)
    solver = Proximal(max_iter=500, n_phases=3, gradient_clip=9.0, data_norm=1.0, learning_rate=0.3)
    facts = l2_problem(n, d, fit_intercept=False, radius=1.0)
    plan = without_noise(solver.plan(facts, PrivacyBudget(1e5, 1e-6)))
    (anchor,) = {stage.anchor for stage in plan.stages}
    # twice c B / D, since the loss is convex
    assert anchor == pytest.approx(2 * plan.gradient_clip * 1.0 / 2.0)
    expected = 0.0
    for stage in range(3):
        expected = (1 + anchor * expected) / (1 + anchor)
        part = dataclasses.replace(plan, stages=plan.stages[: stage + 1])
        found = part.run(solver_data(X, y, fit_intercept=False), stream())
        assert found.coef[0] == pytest.approx(expected, abs=2e-3)


def test_a_weakly_convex_loss_has_a_proximal_term_above_its_weak_convexity():
    for loss, feasible_set in itertools.product(
        (Welsch(0.4), LogAbsolute(0.2), MCPAbsolute(0.05), Welsch(0.4).of_outputs(3)),
        (L2Ball(2.0), L1Ball(2.0), LpBall(2.0, 1.5), LInfBall(2.0)),
    ):
        facts = Problem(5000, 6, loss, feasible_set)
        plan = Proximal(data_norm=1.5).plan(facts, BUDGET)
        p, norm = plan.mirror_map.exponent(plan.problem.size), 1.5
        # over rows of l_q norm at most B: q is 2 or more
        rho = loss.weak_convexity * norm**2
        for stage in plan.stages:
            assert stage.anchor >= 2 * rho * (1 - 1e-12)
            assert stage.strong_convexity == pytest.approx(stage.anchor - rho)
            slope = plan.gradient_clip * norm
            assert stage.within == pytest.approx(2 * slope * (p - 1) / stage.anchor)
        assert plan.draws_result
    plan = Proximal().plan(l2_problem(5000, 6), BUDGET)
    assert not plan.draws_result  # the last round of a convex loss


def test_the_round_is_drawn_uniformly_and_without_looking_at_the_data():
    n, rounds = 40, 4
    facts = l2_problem(n, 1, loss=Welsch(), fit_intercept=False)
    solver = Proximal(max_iter=2, n_phases=rounds, data_norm=1.0)
    plan = without_noise(solver.plan(facts, PrivacyBudget(1e4, 1e-6)))
    # rounds move the model on and on, so that the result tells the round
    data = [solver_data(np.ones((n, 1)), np.full(n, y), fit_intercept=False) for y in (0.5, -0.25)]
    # (of the second table 50 draws, which are all rounds as well)
    found = [
        [abs(plan.run(table, stream(seed)).coef[0]) for seed in range(n)]
        for table, n in zip(data, (200, 50), strict=True)
    ]
    # which fits end at the same round, whatever that round's result is
    firsts = []
    for row in found:
        _, first, which = np.unique(np.round(row, 9), return_index=True, return_inverse=True)
        firsts.append(first[which])
    np.testing.assert_array_equal(firsts[0][:50], firsts[1])
    counts = np.unique(firsts[0], return_counts=True)[1]
    # of 200 draws each round has 50 on average; beyond 15 or 95 is an accident of 1e-8
    assert counts.size == rounds
    assert counts.min() > 15
    assert counts.max() < 95


# --------------------------------------------- noisy-sfw for losses that are not convex


def growing(n, d=2, *, epsilon=1.0, relation="replace-one", loss=None, n_outputs=1, **facts):
    loss = (loss or Welsch(0.4)).of_outputs(n_outputs)
    solver = NoisySFW(data_norm=2.0, gradient_clip=0.1)
    plan = solver.plan(l2_problem(n, d, loss=loss, **facts), PrivacyBudget(epsilon, 1e-6, relation))
    return solver, plan


@the_other_relation
def test_growing_rounds_have_disjoint_batches_proved_sensitivities_and_the_full_budget(relation):
    factor = 2 if relation == "replace-one" else 1
    for n, loss in itertools.product((2, 3, 7, 5000, 60_000), (Welsch(0.4), LogAbsolute(0.5))):
        _, plan = growing(n, relation=relation, loss=loss)
        assert [stage.n_steps for stage in plan.stages] == [2**r for r in range(len(plan.stages))]
        assert n < 100 or len(plan.stages) > 1
        assert plan.draws_result
        end = 0
        for stage in plan.stages:
            assert stage.records == (end, end + sum(stage.batches))
            end = stage.records[1]
            for t, noise in enumerate(stage.noises):
                assert stage.batches[t] == stage.batches[0] // (t + 1) >= 1
                term = largest_term(plan, t)
                assert stage.largest_terms[t] == pytest.approx(term)
                exact = factor * term * plan.data_norm / stage.batches[t]
                assert exact < noise.sensitivity < exact * (1 + 1e-6)
        assert end <= n
        releases = plan.guarantee.releases
        groups = [r.group for r in releases if r.group is not None]
        assert len(set(groups)) == len(groups) == sum(stage.n_steps for stage in plan.stages)
        common = sum(r.count * r.mechanism.cost("gdp") for r in releases if r.group is None)
        for stage in plan.stages:
            for noise in stage.noises:
                assert common + noise.cost("gdp") == pytest.approx(BUDGET.mu**2 / 2, rel=1e-9)
        assert n > 100 or recomputed_epsilon(plan.guarantee) <= 1 + 1e-4


def largest_term(plan, t):
    """What a record may add in step t, over the norm of its row."""
    clip = plan.gradient_clip
    if t == 0:
        return clip
    eta, last = 1 / math.sqrt(t + 1), 1 / math.sqrt(t)
    change = plan.problem.loss.smoothness * last * plan.data_norm * 2 * plan.geometry.radius
    return min((1 - eta) * change + eta * clip, (2 - eta) * clip)


@one_relation
def test_no_record_moves_a_growing_round_beyond_its_sensitivity(relation):
    for n_outputs in (1, 3):
        _, plan = growing(
            250, epsilon=800.0, relation=relation, n_outputs=n_outputs, loss=Undeclared()
        )
        assert len(plan.stages) > 2
        found = check_sensitivity(plan, neighbours(plan.problem, relation, 4))
        assert not found.violations, found
        ratios = [ratio for name, ratio in found.ratios.items() if name.startswith("stages")]
        # of several outputs no pair here moves all derivatives at once
        assert max(ratios) > (0.9 if n_outputs == 1 else 0.8)
        stages = tuple(
            dataclasses.replace(s, largest_terms=(math.inf,) * s.n_steps) for s in plan.stages
        )
        loose = dataclasses.replace(plan, stages=stages, gradient_clip=9.0)
        assert check_sensitivity(loose, neighbours(plan.problem, relation, 2)).violations


@one_relation
def test_black_box_audits_of_growing_rounds_flag_too_little_noise_and_nothing_else(relation):
    facts = l2_problem(20, 1, loss=Welsch(2.0), fit_intercept=False)
    solver = NoisySFW(gradient_clip=0.3, data_norm=1.0)
    plan = solver.plan(facts, PrivacyBudget(4.0, 1e-6, relation))
    pair = flipped_label(facts, relation)
    assert_only_too_little_noise_is_flagged(plan, pair, 250, 4.0)


def test_the_estimate_of_a_growing_round_is_the_gradient_where_all_records_are_alike(monkeypatch):
    n, seen = 5000, []
    _, plan = growing(n, epsilon=1e4, fit_intercept=False, radius=1.0)
    plan = dataclasses.replace(without_noise(plan), draws_result=False)
    extreme_point = L2Ball.extreme_point
    monkeypatch.setattr(
        L2Ball, "extreme_point", lambda self, g: seen.append(g) or extreme_point(self, g)
    )
    x, y = np.array([0.5, -0.3]), 0.4
    data = solver_data(np.tile(x, (n, 1)), np.full(n, y), fit_intercept=False)
    result = plan.run(data, stream())
    assert len(seen) == plan.max_iter > 10
    coef, directions = np.zeros(2), iter(seen)
    for stage in plan.stages:
        for t in range(stage.n_steps):
            slope = plan.problem.loss.derivative(np.array([x @ coef]), np.array([y]))
            gradient = np.clip(slope, -plan.gradient_clip, plan.gradient_clip) * x
            direction = next(directions)
            np.testing.assert_allclose(direction, gradient, atol=1e-9)
            coef = coef + (extreme_point(plan.geometry, direction) - coef) / math.sqrt(t + 1)
    np.testing.assert_allclose(result.coef, coef, atol=1e-9)


def test_the_result_of_growing_rounds_is_drawn_from_all_points():
    _, plan = growing(5000, epsilon=1e4)
    counts = np.bincount([plan.result_number(stream(seed)) for seed in range(2000)])
    assert counts.size == plan.max_iter
    # of 2000 draws the first half has its share within 8 standard deviations
    half = counts.size // 2
    assert abs(counts[:half].sum() / 2000 - half / counts.size) < 0.09
    assert min(counts[0], counts[-1]) > 0


def test_growing_rounds_have_steps_of_their_own():
    for name, value in (("max_iter", 9), ("learning_rate", 0.1)):
        solver = NoisySFW(**{name: value})
        assert_refused(solver, f"{name} must be 'auto'", L2Ball, loss=Welsch())
        solver.check(LOSSES["regression"], L2Ball, BUDGET)


def test_minibatches_without_noise_come_close_to_the_optimum():
    X, y = scaled_table(200, 3)
    for relation in RELATIONS:
        solver = NoisyMD(batch_size=20, max_iter=300, gradient_clip=5.0)
        plan = solver.plan(l2_problem(200, 3), PrivacyBudget(50.0, 1e-6, relation))
        plan = without_noise(plan)
        result = plan.run(solver_data(X, y), stream())
        residual = y - X @ result.coef - result.intercept
        least = np.linalg.lstsq(np.column_stack((X, np.ones(200))), y, rcond=None)[1][0] / 200
        assert (residual**2).mean() < least + 0.01


def test_the_penalty_is_that_of_ridge_regression():
    X, y = scaled_table(80, 3)
    for penalty in (0.05, 1.0):
        solver = NoisyMD(max_iter=400, gradient_clip=1e6, data_norm=2.0, l2_penalty=penalty)
        facts = l2_problem(80, 3, fit_intercept=False, radius=5.0)
        plan = without_noise(solver.plan(facts, PrivacyBudget(1e5, 1e-6)))
        result = plan.run(solver_data(X, y, fit_intercept=False), stream())
        exact = np.linalg.solve(X.T @ X / 80 + penalty * np.eye(3), X.T @ y / 80)
        np.testing.assert_allclose(result.coef, exact, atol=2e-3, err_msg=str(penalty))


def test_without_noise_the_optimum_on_the_simplex_is_found():
    X, _ = scaled_table(80, 4)
    y = X @ np.array([0.7, 0.3, 0.0, 0.0])
    facts = Problem(80, 4, LOSSES["regression"], Simplex(1.0), fit_intercept=False)
    for mirror_map in ("entropy", "power", "euclidean"):
        solver = NoisyMD(max_iter=500, data_norm=2.0, gradient_clip=1e6, mirror_map=mirror_map)
        plan = without_noise(solver.plan(facts, PrivacyBudget(1e5, 1e-6)))
        result = plan.run(solver_data(X, y, fit_intercept=False), stream())
        np.testing.assert_allclose(result.coef, [0.7, 0.3, 0, 0], atol=0.02)


def test_a_loss_that_is_not_smooth_works():
    X, y = scaled_table(100, 3)
    solver = NoisyMD(max_iter=2000, data_norm=2.0)
    plan = solver.plan(l2_problem(100, 3, loss=Absolute()), PrivacyBudget(1e5, 1e-6))
    result = without_noise(plan).run(solver_data(X, y), stream())
    reached = np.abs(y - X @ result.coef - result.intercept).mean()
    best = best_loss(X, y, 0.0, Huber(1e-3), L2Ball(5.0), fit_intercept=True) / 1e-3
    assert reached < 1.02 * best + 1e-3


# ---------------------------------------------------------------- what must not matter


@half_is_enough
@every_form
def test_tiny_sizes(form, cells):
    sizes, kinds = [(2, 1), (4, 5)], ("dense", "csc")
    for (n, d), fit_intercept, kind, steps in cells_of(
        cells, sizes, (True, False), kinds, (1, None)
    ):
        case = f"{n} x {d}, {kind}, fit_intercept={fit_intercept}, max_iter={steps}"
        X, y = scaled_table(n, d)
        solver = solver_of(form, max_iter=steps)
        plan = solver.plan(l2_problem(n, d, fit_intercept=fit_intercept), BUDGET)
        data = solver_data(storage(X, kind), y, fit_intercept=fit_intercept)
        result = plan.run(data, stream())
        assert np.linalg.norm(result.coef) <= 2.0 * (1 + 1e-12), case
        assert np.isfinite(result.intercept), case
        assert fit_intercept or result.intercept == 0, case


def test_one_record_is_enough():
    plan = NoisyMD(max_iter=3).plan(l2_problem(1, 1), BUDGET)
    result = plan.run(solver_data(np.ones((1, 1)), [1.0]), stream())
    assert np.isfinite(result.coef).all()


# ----------------------------------------------------------------------- random batches


CLIPPED = {"gradient_clip": 0.3, "data_norm": 2.0}


@functools.cache
def batch_plan(n, size, relation, *, epsilon=1.0, steps=30, n_outputs=1, **settings):
    solver = NoisyMD(batch_size=size, max_iter=steps, **settings)
    facts = l2_problem(n, 3, n_outputs=n_outputs)
    return solver, solver.plan(facts, PrivacyBudget(epsilon, 1e-6, relation))


@every_relation
def test_batches_have_the_proved_sensitivity(relation):
    _, plan = batch_plan(1000, 50, relation, **CLIPPED)
    noise = plan.stages[0].noise
    factor = 2 if relation == "replace-one" else 1
    assert factor * 0.3 * 2 / 50 < noise.sensitivity < factor * 0.3 * 2 / 50 * (1 + 1e-8)
    law = "fixed" if relation == "replace-one" else "poisson"
    assert noise.batches == noise.sampling == RandomBatches(1000, 50, law)
    assert plan.guarantee.composition == "pld"


@rest_is_slow(
    ("relation", "n_outputs"),
    [("replace-one", 3), ("zero-out", 1)],
    ("zero-out",),
    lambda case: case[0],
)
def test_second_accountant_of_batches(relation, n_outputs):
    # a discretization that is not that of the calibration, on both sides of the truth
    _, plan = batch_plan(1000, 50, relation, n_outputs=n_outputs)
    step = plan.stages[0].noise
    first = sum(r.cost("gdp") for r in plan.guarantee.releases if r.count != 30)
    game = (step.noise_multiplier, 0.05, 30, math.sqrt(2 * first))
    law = step.sampling.law
    low, high = (batch_game(1.0, *game, law, roundup=up, width=3e-4) for up in (False, True))
    assert 0.85e-6 < low <= plan.guarantee.spent <= 1e-6  # no noise is wasted
    assert high < 1.2e-6
    if relation == "zero-out":
        accountant = PLDAccountant(value_discretization_interval=3e-4)
        epsilon = accountant.compose(plan.guarantee.dp_event).get_epsilon(1e-6)
        assert 0.995 < epsilon <= 1 + 1e-3
    # with a hundredth less noise the budget is exceeded
    weak = weaker(plan, 1.01).stages[0].noise
    releases = tuple(
        dataclasses.replace(r, mechanism=weak) if r.count == 30 else r
        for r in plan.guarantee.releases
    )
    with pytest.raises(AssertionError, match="more than its budget"):
        dataclasses.replace(plan.guarantee, releases=releases)


@half_is_enough
@rest_is_slow(
    ("epsilon", "n", "size", "steps"),
    [(0.1, 10**4, 256, "auto"), (1.0, 10**4, 9999, 50), (20.0, 100, 50, 5), (1e-3, 10**5, 30, 40)],
    ("0.1-10000-256-auto", "20.0-100-50-5"),
)
def test_batches_never_have_more_noise_than_without_sampling(epsilon, n, size, steps, cells):
    for relation, delta in cells_of(cells, RELATIONS, (1e-6, 1e-13)):
        budget = PrivacyBudget(epsilon, delta, relation)
        solver = NoisyMD(batch_size=size, max_iter=steps)
        plan = solver.plan(l2_problem(n, 10), budget)
        step, count = plan.stages[0].noise, plan.stages[0].n_steps
        first = sum(r.cost("gdp") for r in plan.guarantee.releases if r.mechanism != step)
        unsampled = math.sqrt(count / (budget.mu**2 - 2 * first))
        assert step.noise_multiplier <= unsampled * (1 + 1e-9), (relation, delta)
        assert plan.guarantee.spent > 0


@rest_is_slow(("relation", "epsilon"), zip(RELATIONS, (0.2, 1.0), strict=True), ("zero-out-1.0",))
def test_under_a_filter_batches_keep_their_amplification(relation, epsilon):
    # the divergence at the filter's order is what the filter has for this epsilon
    alone = PrivacyBudget(epsilon, 1e-6, relation)
    order = BudgetAccountant(1.0, 1e-6, relation, composition="zcdp").order
    shared = dataclasses.replace(alone, currency="zcdp", order=order)
    facts = l2_problem(10**4, 10)
    solver = NoisyMD(batch_size=100, max_iter=200)
    best, plan = solver.plan(facts, alone), solver.plan(facts, shared)
    ratio = plan.stages[0].noise.scale / best.stages[0].noise.scale
    assert 1 <= ratio < 1.45
    assert plan.guarantee.renyi(order) <= order * shared.rho * (1 + 1e-12)
    assert plan.guarantee.spent <= 1e-6


def test_amplification_lowers_the_noise():
    solver, plan = batch_plan(1000, 50, "zero-out", **CLIPPED)
    without = solver.plan(plan.problem, PrivacyBudget(1.0, 1e-6, "zero-out", currency="zcdp"))
    assert without.guarantee.composition == "zcdp"
    assert plan.stages[0].noise.scale < without.stages[0].noise.scale / 3
    assert recomputed_epsilon(without.guarantee) <= 1 + 1e-4


def test_a_batch_of_all_records_is_a_full_batch():
    _, plan = batch_plan(40, 40, "replace-one")
    assert plan.guarantee.composition == "gdp"


@the_other_relation
def test_batch_sensitivities_in_the_replay(relation):
    worst = 0.0
    for task, size in zip(TASKS, (1, 4), strict=True):
        solver = NoisyMD(batch_size=size, max_iter=6, gradient_clip=0.4)
        facts = l2_problem(9, 3, task=task)
        plan = solver.plan(facts, PrivacyBudget(1.0, 1e-6, relation))
        found = check_sensitivity(plan, neighbours(facts, relation, 5, random_state=1))
        assert not found.violations
        worst = max(worst, found.ratios["stages[0].noise"])
        wrong = dataclasses.replace(plan, gradient_clip=10.0)
        assert check_sensitivity(wrong, neighbours(facts, relation, 2)).violations
    assert 0.9 < worst <= 1 + 1e-12


@one_relation
def test_batches_that_are_not_fresh_are_flagged(relation, monkeypatch):
    _, plan = batch_plan(40, 4, relation, steps=6)
    pairs = neighbours(plan.problem, relation, 8)
    assert check_sensitivity(plan, pairs[:4]).passed
    draw, first = RandomBatches.draw, np.arange(4)

    def not_drawn(batches, stream):
        return first

    def drawn_and_forgotten(batches, stream):
        draw(batches, stream)
        return first

    def from_one_substream(batches, stream):
        return draw(batches, stream.substream("batch"))

    def plant(kind, name, bug, n_pairs=2):
        with monkeypatch.context() as patch:
            patch.setattr(kind, name, bug)
            return check_sensitivity(plan, pairs[:n_pairs]).violations

    noise = "stages[0].noise"
    assert "not drawn" in plant(RandomBatches, "draw", not_drawn)[noise]
    assert "the same in every step" in plant(RandomBatches, "draw", drawn_and_forgotten, 8)[noise]
    assert "used twice" in plant(RandomBatches, "draw", from_one_substream)["streams"]

    mean_gradient, held = Records.mean_gradient, {}

    def drawn_once(part, coef, batches, stream):
        if id(part) not in held:  # with the part, so that no other one has its number
            held[id(part)] = part, part.part(batches.draw(stream))
        batch = held[id(part)][1]
        return mean_gradient(batch, coef) * (batch.data.n_samples / batches.batch_size)

    def drawn_and_left(part, coef, batches, stream):
        found = drawn_once(part, coef, batches, stream)
        batches.draw(stream)
        return found

    assert "batch of its own" in plant(Records, "mean_gradient", drawn_once)[noise]
    assert "not in its batch" in plant(Records, "mean_gradient", drawn_and_left)[noise]


@the_other_relation
def test_replays_put_the_record_into_batches(relation):
    # one batch in a hundred would hold it
    _, plan = batch_plan(400, 4, relation, steps=2)
    found = check_sensitivity(plan, neighbours(plan.problem, relation, 4))
    assert found.ratios["stages[0].noise"] > 0.5


@rest_is_slow(
    ("relation", "fit_intercept"),
    itertools.product(RELATIONS, (True, False)),
    ("replace-one-True", "zero-out-False"),
)
def test_frank_wolfe_sensitivities_in_the_replay(relation, fit_intercept):
    worst = {}
    for task, n in ((TASKS[0], 4), (TASKS[1], 9), (TASKS[0], 16)):
        solver = NoisySFW(max_iter=3, gradient_clip=0.4, learning_rate=0.5)
        facts = l2_problem(n, 3, task=task, fit_intercept=fit_intercept)
        plan = solver.plan(facts, PrivacyBudget(1.0, 1e-6, relation))
        pairs = neighbours(facts, relation, 4, random_state=n)
        found = check_sensitivity(plan, pairs)
        assert not found.violations, found.violations
        for name, ratio in found.ratios.items():
            worst[name] = max(ratio, worst.get(name, 0.0))
    assert worst["stages[0].noises[0]"] > 0.9
    # derivatives rarely change by as much as they might
    assert worst["stages[0].noises[1]"] > 0.2
    stage = dataclasses.replace(plan.stages[0], largest_terms=(None, 10.0))
    loose = dataclasses.replace(plan, stages=(stage,), gradient_clip=10.0)
    assert check_sensitivity(loose, pairs[:2]).violations


@pytest.mark.slow
def test_black_box_audit_of_batches():
    # one step on half of the records, with a record that turns the tail of the gradient
    facts = l2_problem(20, 1, fit_intercept=False)
    solver = NoisyMD(max_iter=1, batch_size=10, gradient_clip=0.3, data_norm=1.0, learning_rate=1.0)
    X, y = np.zeros((20, 1)), np.tile([1.0, -1.0], 10)
    X[0] = 1.0
    other = y.copy()
    other[0] = -1.0
    pair = solver_data(X, y, fit_intercept=False), solver_data(X, other, fit_intercept=False)
    plan = solver.plan(facts, PrivacyBudget(4.0, 1e-6))

    def bound(plan):
        found = audit_plan(plan, *pair, 3000, statistic=lambda r: r.coef[0], random_state=0)
        return found.epsilon_lower_bound

    assert 0.1 < bound(plan) <= 4.0
    assert bound(weaker(plan, 20)) > 4


def test_guarantee_refuses_an_overspending_batch_plan():
    _, plan = batch_plan(1000, 50, "zero-out", **CLIPPED)
    half = mechanisms(weaker(plan, 2)).values()
    releases = tuple(
        dataclasses.replace(r, mechanism=m)
        for r, m in zip(plan.guarantee.releases, half, strict=True)
    )
    with pytest.raises(AssertionError, match="more than its budget"):
        Guarantee(1.0, 1e-6, "zero-out", "pld", releases)


def test_plans_without_batches_need_no_privacy_loss_distributions(monkeypatch):
    def refuse(*_):
        raise AssertionError("not needed")

    monkeypatch.setattr(events, "_composed", refuse)
    MirrorDescent().plan(l2_problem(100, 3), BUDGET)
    with pytest.raises(AssertionError, match="not needed"):
        batch_plan(100, 10, "zero-out")
