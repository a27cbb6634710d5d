"""Frank-Wolfe in a single pass: the papers' recursions, what a record costs, and the method."""

import dataclasses
import functools
import itertools
import math

import numpy as np
import pytest
from scipy import sparse
from support import (
    LOSSES,
    p_value,
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
from sklearn_dpsco._kernels.arguments import RecordWalk, Slope, dense_or_stored
from sklearn_dpsco._kernels.record_steps import record_steps
from sklearn_dpsco.audit import check_sensitivity, mechanisms, neighbours
from sklearn_dpsco.data.rows import Terms
from sklearn_dpsco.geometry import AxisVertices, L1Ball, Polytope, Simplex
from sklearn_dpsco.losses import (
    Absolute,
    EpsilonInsensitive,
    Hinge,
    Huber,
    LogAbsolute,
    Loss,
    MCPAbsolute,
    Quantile,
    Sigmoid,
    Squared,
    SquaredHinge,
    Welsch,
)
from sklearn_dpsco.privacy.budget import RELATIONS, PrivacyBudget
from sklearn_dpsco.solvers import Rounds, Spider, Tree
from sklearn_dpsco.solvers.papers import single_pass
from sklearn_dpsco.solvers.papers.single_pass import BatchRun, BatchStep, RecordRun
from sklearn_dpsco.solvers.records import Records

BUDGET = PrivacyBudget(1.0, 1e-6)
SINGLE_PASS_FORMS = ("spider", "tree", "rounds")
PURE = PrivacyBudget(1.0, 0.0)
every_form = pytest.mark.parametrize("form", SINGLE_PASS_FORMS)
batch_form = pytest.mark.parametrize("form", ["tree", "rounds"])


def solve(solver, facts, data, budget=BUDGET, *, noise=True):
    plan = solver.plan(facts, budget)
    return (plan if noise else without_noise(plan)).run(data, stream())


class Linear(Loss):
    """A user's loss without curvature."""

    task = "regression"
    smoothness = 0.0
    is_convex = True

    def derivative(self, z, y):
        return -y + 0.0 * z

    def derivative_bound(self, prediction_bound, y_bound=1.0):
        return y_bound

    def best_constant(self, mean):
        return 0.0


# ------------------------------------------------------------------------ what is computed


@dataclasses.dataclass
class Literal:
    """An algorithm as its paper states it: without noise, on given batches of squared losses.

    Nothing is clipped, as radius and clip are large.
    """

    X: np.ndarray
    y: np.ndarray
    batches: list
    rates: np.ndarray
    radius: float

    def gradient(self, batch, w):
        return self.X[batch].T @ (self.X[batch] @ w - self.y[batch]) / len(batch)

    def move(self, w, v, k):
        j = int(np.argmax(np.abs(v)))
        vertex = np.zeros(w.size)
        vertex[j] = -math.copysign(self.radius, v[j])
        return (1 - self.rates[k]) * w + self.rates[k] * vertex

    def rounds(self, kept):
        """BGM21, Algorithm 1: v = (1 - a) (v + Delta) + a g."""
        points, w, before, v = [], np.zeros(self.X.shape[1]), None, None
        for k, batch in enumerate(self.batches):
            g = self.gradient(batch, w)
            if k == 0:
                v = g
            else:
                delta = g - self.gradient(batch, before)
                v = kept[k] * (v + delta) + (1 - kept[k]) * g
            before, w = w, self.move(w, v, k)
            points.append(w)
        return points

    def tree(self, depth):
        """AFKT21, Algorithm 3, a phase: depth-first, left children inherit, right ones correct."""
        points, batches = [], iter(self.batches)
        w = np.zeros(self.X.shape[1])

        def visit(level, v, parent_w):
            nonlocal w
            if level == depth:
                w = self.move(w, v, len(points))
                points.append(w)
                return
            visit(level + 1, v, parent_w)
            batch, here = next(batches), w
            corrected = v + self.gradient(batch, here) - self.gradient(batch, parent_w)
            visit(level + 1, corrected, here)

        visit(0, self.gradient(next(batches), w), w)
        return points


@pytest.mark.parametrize("n_steps", [1, 2, 8, 16])
@batch_form
def test_estimates_are_those_of_the_papers(form, n_steps, monkeypatch):
    n, d, radius = 400, 5, 30.0
    X, y = scaled_table(n, d)
    solver = solver_of(form, max_iter=n_steps, gradient_clip=1e6)
    facts = problem(n, d, radius=radius, fit_intercept=False)
    plan = without_noise(solver.plan(facts, BUDGET))
    (run,) = plan.runs
    assert run.n_steps == n_steps
    # the bounds of a correction hold in the worst case only with the largest possible change
    steps = tuple(step._replace(clip=1e9) for step in run.steps)
    plan = dataclasses.replace(plan, runs=(dataclasses.replace(run, steps=steps),))
    found = plan.run(solver_data(X, y, fit_intercept=False), stream())
    order = stream().substream("slices").permutation(n)
    ends = np.cumsum([0, *(step.size for step in steps)])
    assert ends[-1] == n
    batches = [order[a:b] for a, b in itertools.pairwise(ends)]
    literal = Literal(X, y, batches, [step.rate for step in steps], radius)
    if form == "tree":
        points = literal.tree(int(math.log2(n_steps)))
    else:
        points = literal.rounds([step.kept for step in steps])
    expected = np.mean(points[n_steps // 2 :], axis=0)
    np.testing.assert_allclose(found.coef, expected, atol=1e-12)


def test_the_steps_on_single_records_are_those_of_the_paper():
    n, d, radius = 60, 4, 30.0
    X, y = scaled_table(n, d)
    facts = problem(n, d, radius=radius, fit_intercept=False)
    solver = Spider(gradient_clip=1e6, learning_rate=0.1)
    plan = without_noise(solver.plan(facts, BUDGET))
    (run,) = plan.runs
    assert isinstance(run, RecordRun)
    plan = dataclasses.replace(plan, runs=(dataclasses.replace(run, clip=1e9),))
    found = plan.run(solver_data(X, y, fit_intercept=False), stream())
    order = stream().substream("slices").permutation(n)
    batches = [order[: run.first_batch], *order[run.first_batch :, None]]
    literal = Literal(X, y, batches, [0.1] * len(batches), radius)
    points = literal.rounds([0.9] * len(batches))
    assert len(points) == plan.max_iter
    np.testing.assert_allclose(found.coef, points[-1], atol=1e-12)


# ------------------------------------------------------------------- what a record may cost


def weights(steps, k):
    """Weight of batch k in the estimate of every step, by following the corrections."""
    found = np.zeros(len(steps))
    found[k] = 1.0
    for j in range(k + 1, len(steps)):
        if steps[j].base >= 0:
            found[j] = steps[j].kept * found[steps[j].base]
    return found


def costs(plan, run, norm):
    """What a record of each batch costs, from the definition, over the noise."""
    factor = plan.vertices.l1_diameter * plan.budget.record_factor
    found = []
    for k, step in enumerate(run.steps):
        ranges = factor * step.clip / step.size * weights(run.steps, k)
        found.append(np.linalg.norm(ranges, norm) / run.noise.scale)
    return np.array(found)


@batch_form
@pytest.mark.parametrize("budget", [BUDGET, PURE, PrivacyBudget(1.0, 1e-6, "zero-out")], ids=str)
def test_every_record_of_a_batch_costs_the_budget_and_no_more(form, budget):
    for n, n_steps, n_restarts in ((10**6, 32, 1), (10**6, 16, 3), (40, 16, 1)):
        solver = solver_of(form, max_iter=n_steps, n_restarts=n_restarts)
        plan = solver.plan(problem(n, 6, fit_intercept=False), budget)
        assert len(plan.runs) == n_restarts
        is_pure = plan.guarantee.composition == "pure"
        for run in plan.runs:
            found = costs(plan, run, 1 if is_pure else 2)
            spent = found if is_pure else found**2 / 8
            limit = budget.epsilon if is_pure else budget.rho
            assert spent.max() <= limit
            if n > 1000:  # batches are whole numbers of records
                assert spent.min() > 0.9 * limit
                assert spent.max() > 0.999 * limit
            sizes = [step.size for step in run.steps]
            assert sum(sizes) == run.records[1] - run.records[0]
            assert min(sizes) >= 1


@pytest.mark.parametrize("budget", [BUDGET, PURE], ids=str)
@pytest.mark.parametrize("first_clip", [0.3, 30.0])
def test_the_tight_schedule_costs_every_record_the_same(budget, first_clip):
    n = 2000
    solver = Spider(learning_rate=0.02, gradient_clip=first_clip)
    facts = problem(n, 4, fit_intercept=False, radius=2.0)
    plan = solver.plan(facts, budget)
    (run,) = plan.runs
    steps = [BatchStep(run.first_batch, -1, 0.0, plan.gradient_clip, run.rate)]
    steps += [BatchStep(1, k, 1 - run.rate, run.clip, run.rate) for k in range(run.n_steps - 1)]
    scales = np.ones(run.n_steps)
    scales[0], scales[-1] = run.first_scale, run.last_scale
    norm = 1 if plan.guarantee.composition == "pure" else 2
    factor = plan.vertices.l1_diameter * budget.record_factor
    found = np.array(
        [
            np.linalg.norm(factor * step.clip / step.size * weights(steps, k) / scales, norm)
            for k, step in enumerate(steps)
            if k < 3 or k % 97 == 0 or k > run.n_steps - 4
        ]
    )
    assert found.max() <= run.noise.sensitivity
    np.testing.assert_allclose(found, run.noise.sensitivity, rtol=1e-6)
    limit = budget.epsilon if norm == 1 else budget.rho
    cost = run.noise.sensitivity / run.noise.scale
    assert (cost if norm == 1 else cost**2 / 8) == pytest.approx(limit, rel=1e-6)


def test_a_first_batch_of_more_influence_has_constant_noise():
    # so few records that the first batch moves more than a single record does
    solver = Spider(learning_rate=1e-6, gradient_clip=1.0)
    plan = solver.plan(problem(10, 4, fit_intercept=False), BUDGET)
    (run,) = plan.runs
    assert (run.first_scale, run.last_scale) == (1.0, 1.0)
    whole = plan.vertices.l1_diameter * 2 * plan.gradient_clip / run.first_batch
    kept = 1 - run.rate
    exact = whole * math.sqrt(sum(kept ** (2 * t) for t in range(run.n_steps)))
    assert exact <= run.noise.sensitivity <= exact * (1 + 1e-6)


CONFIGURATIONS = [
    (task, relation, budget, form)
    for form in SINGLE_PASS_FORMS
    for task, relation, budget in (
        ("regression", "replace-one", 1e-6),
        ("classification", "zero-out", 1e-6),
        ("classification", "replace-one", 0.0),
        ("regression", "zero-out", 0.0),
    )
]


@rest_is_slow(
    ("task", "relation", "delta", "form"),
    CONFIGURATIONS,
    ("tree-zero-out-0.0", "rounds-zero-out-1e-06", "spider-replace-one-0.0"),
    lambda case: f"{case[3]}-{case[1]}-{case[2]}",
)
def test_a_record_moves_all_scores_together_by_no_more_than_is_claimed(task, relation, delta, form):
    budget = PrivacyBudget(2.0, delta, relation)
    for settings, others in (
        ({}, {}),
        ({"l2_penalty": 0.5, "n_restarts": 2}, {"n_outputs": 3}),
        ({"gradient_clip": 0.4}, {"fit_intercept": False}),
    ):
        solver = solver_of(form, max_iter=8, **settings)
        facts = problem(60, 3, task=task, **others)
        plan = solver.plan(facts, budget)
        found = check_sensitivity(plan, neighbours(facts, relation, 7))
        assert not found.violations, found
        for name, ratio in found.ratios.items():
            if name.endswith("noise"):
                assert ratio > 0.2, found


@every_form
def test_the_sensitivity_holds_for_every_kind_of_loss(form):
    losses = (
        Absolute(), Quantile(0.8), EpsilonInsensitive(), Huber(0.2), Welsch(0.4), LogAbsolute(),
        MCPAbsolute(), Hinge(), Sigmoid(), SquaredHinge(), Linear(),
    )  # fmt: skip
    for k, loss in enumerate(losses):
        if ("tree", "rounds", "spider")[k % 3] != form:
            continue  # by turns
        budget = PrivacyBudget(2.0, (1e-6, 0.0)[k % 2], RELATIONS[k // 2 % 2])
        solver = solver_of(form, max_iter=4)
        plan = solver.plan(problem(20, 2, loss=loss), budget)
        pairs = neighbours(plan.problem, budget.relation, 3, random_state=k)
        found = check_sensitivity(plan, pairs)
        assert not found.violations, (loss, found)
        assert found.ratios["runs[0].noise"] > 0.1, (loss, found)


@every_form
def test_a_record_may_not_move_later_scores_by_more(form, monkeypatch):
    """A run that counted a record's own step alone would be found."""
    rules = dataclasses.replace(single_pass.SINGLE_PASS["regression"], weights=(1.0,))
    monkeypatch.setitem(single_pass.SINGLE_PASS, "regression", rules)
    solver = solver_of(form, max_iter=8, gradient_clip=0.1)
    n, n_pairs = (40, 4) if form == "spider" else (60, 8)
    plan = solver.plan(problem(n, 3, fit_intercept=False), BUDGET)
    (run,) = plan.runs
    own = run.noise.sensitivity
    factor = plan.vertices.l1_diameter * BUDGET.record_factor
    if isinstance(run, BatchRun):
        own = max(factor * step.clip / step.size for step in run.steps)
    else:
        own = factor * run.clip
    wrong = dataclasses.replace(
        plan, runs=(dataclasses.replace(run, noise=dataclasses.replace(
            run.noise, sensitivity=own, scale=run.noise.scale)),),
    )  # fmt: skip
    releases = (dataclasses.replace(plan.guarantee.releases[0], mechanism=wrong.runs[0].noise),)
    wrong = dataclasses.replace(
        wrong, guarantee=dataclasses.replace(plan.guarantee, releases=releases)
    )
    found = check_sensitivity(wrong, neighbours(plan.problem, BUDGET.relation, n_pairs))
    assert "runs[0].noise" in found.violations


@pytest.mark.parametrize("is_sparse", [False, True])
def test_a_record_moves_the_compiled_steps_by_no_more_than_its_weights(is_sparse):
    """Estimates of two tables, the selected vertices the same: the words accept the first one."""
    rng = np.random.default_rng(0)
    n, d, kept, clip = 40, 4, 0.9, 0.05
    slope = Slope(0, 0.0, 1.0, 0.0, math.inf)
    walk = RecordWalk(kept, clip, 0.1, 1.0, 1024, d, np.ones(1))

    def estimates(X, y):
        w, v, found = np.zeros(d), np.zeros(d), []
        state, words = np.array([0.0, 0, 1, 1]), np.array([2**40, 0] * 8, dtype=np.uint64)
        for t in range(n):
            part = slice(t, t + 1)
            records = np.ones(1), np.ones(1), y[part]
            known = records, slope, walk, (state, w, v), words
            rows = sparse.csr_array(X[part]) if is_sparse else X[part]
            done, _ = record_steps(*dense_or_stored(rows), *known)
            assert done == 1
            found.append(state[3] * v)
        return np.array(found), w

    largest = 0.0
    X, y = np.sign(rng.standard_normal((n, d))), rng.uniform(-1, 1, n)
    for i in range(0, n, 7):
        other_X, other_y = X.copy(), y.copy()
        other_X[i], other_y[i] = -X[i], -np.sign(y[i])
        (one, end), (two, other_end) = estimates(X, y), estimates(other_X, other_y)
        apart = np.abs(one - two).max(axis=1)
        assert np.all(apart[:i] == 0)
        np.testing.assert_array_equal(end, other_end)
        bound = 2 * clip * kept ** np.arange(n - i)
        assert np.all(apart[i:] <= bound * (1 + 1e-9))
        largest = max(largest, (apart[i:] / bound).max())
    assert largest > 0.3


def test_the_rounding_of_a_large_penalty_is_counted():
    # scores of two vertices that are nearly the same, and sums of many terms
    n, d = 2, 1000
    points = np.full((2, d), 1e-3)
    points[1] = -points[1] + 2e-13
    points[:, 0] = 1.0
    polytope = Polytope(sparse.csr_array(points))
    facts = problem(n, d, fit_intercept=False)
    facts = dataclasses.replace(facts, feasible_set=polytope)
    X = np.ones((n, d))
    X[:, 0] = 0.0
    pairs = [
        tuple(
            solver_data(X, target * (np.arange(n) == i), fit_intercept=False)
            for target in (0.5, -0.5)
        )
        for i in range(n)
    ]
    for form in ("spider", "rounds", "selection"):
        solver = solver_of(form, l2_penalty=1e16, learning_rate=0.5, gradient_clip=1.0,
            max_iter=2,
            n_restarts=None if form == "selection" else 1,
        )  # fmt: skip
        found = check_sensitivity(solver.plan(facts, BUDGET), pairs)
        assert not found.violations, (form, found)


@every_form
def test_runs_on_disjoint_slices_have_the_whole_budget_each(form):
    solver = solver_of(form, n_restarts=3)
    plan = solver.plan(problem(700, 3), BUDGET)
    slices = [run.records for run in plan.runs]
    assert [a for a, _ in slices] == [0, *(b for _, b in slices[:-1])]
    assert slices[-1][1] == 700
    assert len({r.group for r in plan.guarantee.releases if r.group}) == 3
    assert plan.guarantee.spent <= BUDGET.epsilon
    assert set(mechanisms(plan).values()) == {r.mechanism for r in plan.guarantee.releases}
    for run in plan.runs:
        cost = run.noise.cost("pure" if run.noise.norm == 1 else "zcdp")
        first = plan.first.target.cost(plan.guarantee.composition)
        limit = BUDGET.epsilon if run.noise.norm == 1 else BUDGET.rho
        assert cost + first == pytest.approx(limit, rel=1e-9)


def test_a_penalty_asks_for_restarts():
    facts = problem(5000, 3)
    assert len(Rounds().plan(facts, BUDGET).runs) == 1
    assert len(Rounds(l2_penalty=0.1).plan(facts, BUDGET).runs) == 4
    assert len(Rounds(l2_penalty=0.1, n_restarts=1).plan(facts, BUDGET).runs) == 1


# ------------------------------------------------------------------------------ the method


@functools.cache
def coef_without_noise(form, task):
    X, y = scaled_table(3000, 4, task=task)
    solver = solver_of(form, max_iter=256, gradient_clip=5.0)
    facts = problem(3000, 4, task=task, radius=1.0, fit_intercept=False)
    return X, y, solve(solver, facts, solver_data(X, y, fit_intercept=False), noise=False).coef


@every_form
def test_without_noise_the_optimum_is_near(form):
    for task in ("regression", "classification"):
        X, y, coef = coef_without_noise(form, task)
        best, loss = coef_without_noise("selection", task)[2], LOSSES[task]
        risk = [loss.value(X @ w, y).mean() for w in (coef, best)]
        trivial = loss.value(np.zeros(y.size), y).mean()
        assert risk[0] <= risk[1] + 0.15 * (trivial - risk[1]), task


@every_form
def test_half_of_the_signal_is_found_where_it_is_said(form):
    n = 10**5 if form == "spider" else 4000
    rng = np.random.default_rng(0)
    X = np.sign(rng.standard_normal((n, 20)))
    y = np.clip(X[:, :3] @ [0.3, -0.2, 0.1] + 0.1 * rng.standard_normal(n), -1, 1)
    model = DPLassoFW(
        epsilon=1.0, relation="zero-out", bounds_X=(-1, 1), bounds_y=(-1, 1), solver=form,
        random_state=0,
    )  # fmt: skip
    assert model.fit(X, y).score(X, y) > 0.5


@rest_is_slow("settings", [
    {}, {"fit_intercept": False}, {"solver": Spider(l2_penalty=0.3)},
    {"epsilon": 1e3}, {"delta": 0.0}, {"feasible_set": "simplex", "fit_intercept": False},
    {"loss": "absolute"}, {"relation": "zero-out", "nonfinite": "zero"},
], ("solver", "delta", "feasible_set fit_intercept", "loss", "relation nonfinite"),
    " ".join)  # fmt: skip
def test_compiled_steps_are_the_steps(settings, monkeypatch):
    rng = np.random.default_rng(0)
    X, y = scaled_table(250, 6, density=0.5)
    if "nonfinite" in settings:
        y = np.where(rng.uniform(size=y.size) < 0.1, np.nan, y)
    results = []
    for kind in (np.asarray, sparse.csr_array):
        for is_compiled in (True, False):
            with monkeypatch.context() as patch:
                if not is_compiled:
                    patch.setattr(single_pass._RecordWalk, "_kernel", lambda self: None)
                # so few words at a time that some steps are made outside
                patch.setattr(single_pass, "_WORDS", 64)
                patch.setattr(single_pass, "piece_rows", lambda *_: 50)
                model = DPLassoFW(
                    bounds_X=(-1, 1),
                    bounds_y=(-1, 1),
                    random_state=0,
                    **{"solver": Spider()} | settings,
                ).fit(kind(X), y)
            results.append(np.append(model.coef_, model.intercept_))
    assert np.any(results[0] != 0)
    for other in results[1:]:
        np.testing.assert_allclose(other, results[0], atol=1e-11)


@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_where_the_compiled_steps_stop_moves_no_bit(kind, monkeypatch):
    """How many words a selection reads depends on private scores."""
    X, y = scaled_table(400, 6, density=0.5)
    solver = Spider(l2_penalty=0.3, n_restarts=1)
    plan = solver.plan(problem(400, 6), PrivacyBudget(50.0, 1e-6))
    coefs = []
    for n_words, n_rows in ((2**15, 2**14), (2**15, 30), (64, 2**14), (10, 2**14), (2, 30)):
        monkeypatch.setattr(single_pass, "_WORDS", n_words)
        monkeypatch.setattr(single_pass, "piece_rows", lambda *_, n=n_rows: n)
        coefs.append(plan.run(solver_data(storage(X, kind), y), stream()).coef)
    assert np.any(coefs[0] != 0)
    for other in coefs[1:]:
        np.testing.assert_array_equal(other, coefs[0])


def record_walk(kind, rate, n=40, d=5):
    """A walk on single records with a penalty, and the records in their order."""
    X, y = scaled_table(n, d)
    solver = Spider(learning_rate=rate, l2_penalty=0.2, n_restarts=1)
    plan = solver.plan(problem(n, d, fit_intercept=False), BUDGET)
    (run,) = plan.runs
    run = dataclasses.replace(run, noise=dataclasses.replace(run.noise, scale=0.4))
    data = solver_data(storage(X, kind), y, fit_intercept=False)
    whole = Records(data, Terms(0.0, plan.problem.loss, plan.gradient_clip), plan.problem)
    walk = single_pass._RecordWalk(whole, np.arange(n), run, plan, np.zeros(d))
    assert walk.compiled is not None
    return walk, X[run.first_batch :], y[run.first_batch :]


def p_value_of_steps(kind, rate, at, n_draws=800):
    """The least of the selections of some compiled steps, given the vertices before them."""
    walk, X, y = record_walk(kind, rate)
    run, penalty, source, found = walk.run, walk.plan.l2_penalty, stream(2), []
    walk.select(1.0, source)
    v, before, w = walk.gradient, walk.before, walk.coef
    for t in range(max(at) + 1):
        part, state = walk.whole.part(np.array([run.first_batch + t])), walk.state
        clip = walk.plan.gradient_clip
        slopes = [np.clip(X[t] @ point - y[t], -clip, clip) for point in (w, before)]
        change = np.clip(slopes[0] - (1 - run.rate) * slopes[1], -run.clip, run.clip)
        v = (1 - run.rate) * v + change * X[t]
        scores = walk.plan.vertices.scores(v + penalty * w) / run.noise.scale
        counts = np.zeros(scores.size)
        for _ in range(n_draws if t in at else 1):
            walk.state = state and tuple(array.copy() for array in state)
            walk.steps(part, source)
            coordinate, moved = walk.state[0][:2]
            block = walk.plan.vertices.values.index(math.copysign(2.0, moved))
            number = int(coordinate) + w.size * block
            counts[number] += 1
        law = np.exp(scores - scores.max())
        found += [p_value(counts, law / law.sum())] * (t in at)
        vertex = walk.plan.vertices.vertex(number)
        before, w = w, (1 - run.rate) * w
        w[vertex.coordinate] += run.rate * vertex.value
    return min(found)


@rest_is_slow("kind", ["dense", "csr"], ("csr",))
def test_compiled_selections_have_their_law_given_those_before(kind, monkeypatch):
    # half of them are settled outside
    monkeypatch.setattr(single_pass, "_WORDS", 4)
    assert p_value_of_steps(kind, 0.3, (1, 6)) > 1e-12
    # factors near 0 are multiplied in
    assert p_value_of_steps(kind, 1 - 1e-9, (11, 13)) > 1e-12
    # settled with other noise
    settled = single_pass._RecordWalk._settled

    def planted(self, source):
        kept = self.run
        self.run = dataclasses.replace(kept, noise=dataclasses.replace(kept.noise, scale=0.1))
        number, self.run = settled(self, source), kept
        return number

    monkeypatch.setattr(single_pass._RecordWalk, "_settled", planted)
    assert p_value_of_steps(kind, 0.3, (1, 6)) < 1e-12


@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_a_score_above_the_largest_stops_the_compiled_steps(kind):
    walk, _, _ = record_walk(kind, 0.3)
    walk.select(1.0, stream())
    walk.gradient = np.full(5, np.nan)
    with pytest.raises(RuntimeError, match="nothing is released"):
        walk.steps(walk.whole.part(slice(20, 40)), stream())


def test_compiled_steps_are_taken_where_they_can_be():
    facts = problem(100, 3, fit_intercept=False)
    X, y = scaled_table(100, 3)

    def compiled(budget=BUDGET, **others):
        solver = Spider()
        plan = solver.plan(dataclasses.replace(facts, **others), budget)
        seen = []
        data = solver_data(X, y, fit_intercept=False)
        with pytest.MonkeyPatch.context() as patch:
            original = single_pass._RecordWalk._kernel
            patch.setattr(
                single_pass._RecordWalk,
                "_kernel",
                lambda self: seen.append(original(self)) or seen[-1],
            )
            plan.run(data, stream())
        return seen[0] is not None

    assert compiled()
    assert compiled(PURE)
    assert not compiled(PrivacyBudget(1.0, 1e-6, precision="float"))
    polytope = Polytope(np.vstack((np.eye(3), -np.eye(3))))
    assert not compiled(feasible_set=polytope)


@batch_form
def test_columns_that_are_off_centre_are_centred_within_the_box(form):
    n, d = 20_000, 5
    rng = np.random.default_rng(0)
    X = np.clip(rng.uniform(-0.9, 0.9, d) + 0.2 * rng.standard_normal((n, d)), -1, 1)
    y = np.clip(X @ [0.4, -0.3, 0.2, 0.0, 0.1] + 0.3, -1, 1)
    for delta in (1e-6, 0.0):
        solver = solver_of(form, max_iter=32, gradient_clip=0.3)
        facts = problem(n, d, radius=2.0)
        plan = solver.plan(facts, PrivacyBudget(50.0, delta))
        assert plan.first.means in mechanisms(plan).values()
        for kind in ("dense", "csr"):
            result = plan.run(solver_data(storage(X, kind), y), stream())
            residual = y - X @ result.coef - result.intercept
            # (without the centre 0.95 of the variance is left)
            assert residual.var() < 0.5 * y.var(), (delta, kind)
            assert abs(residual.mean()) < 0.05
    # in units u = (x - m) / (1 + |m|), every coordinate of which is within [-1, 1]
    means = X.mean(axis=0)
    assert np.abs(result.coef * (1 + np.abs(means))).sum() <= 2.0 * (1 + 1e-2)
    noisy = solver.plan(problem(40, d), BUDGET)  # too few records for any mean
    assert noisy.first.means is None
    assert solver.plan(problem(n, d, fit_intercept=False), BUDGET).first.means is None


@rest_is_slow(
    ("form", "delta", "relation", "n_outputs"),
    [(*case, n_outputs) for case in (
        ("rounds", 1e-6, "replace-one"), ("tree", 0.0, "zero-out"), ("tree", 1e-6, "replace-one"),
    ) for n_outputs in (1, 3)],
    ("rounds-1e-06-replace-one-3", "tree-0.0-zero-out-1"),
)  # fmt: skip
def test_centred_scores_stay_within_the_sensitivity(form, delta, relation, n_outputs):
    solver = solver_of(form, max_iter=4)
    budget = PrivacyBudget(200.0, delta, relation)
    plan = solver.plan(problem(60, 3, n_outputs=n_outputs), budget)
    assert plan.first.means is not None
    found = check_sensitivity(plan, neighbours(plan.problem, relation, 6))
    assert not found.violations, found
    assert found.ratios["first.means"] > 0.5
    assert found.ratios["runs[0].noise"] > 0.2


def test_a_polytope_is_searched_by_every_selection():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(12, 4))
    mixture = rng.dirichlet(np.ones(12)) @ points
    X = rng.uniform(-1, 1, (3000, 4))
    y = X @ mixture / 4
    stored = sparse.csr_array(points)
    for form, matrix in (("selection", stored), ("rounds", points), ("tree", stored)):
        model = DPLassoFW(
            epsilon=1e5, delta=0.0, bounds_X=(-1, 1), bounds_y=(-1, 1), fit_intercept=False,
            feasible_set=Polytope(matrix, 0.25), random_state=0,
            solver=solver_of(form, max_iter=256, gradient_clip=3.0),
        ).fit(X, y)  # fmt: skip
        assert model.score(X, y) > 0.95, form
    auto = DPLassoFW(
        feasible_set=Polytope(points), fit_intercept=False, bounds_X=(-1, 1), bounds_y=(-1, 1)
    )
    assert auto.plan(1000, 4).solver == "selection"
    with pytest.raises(ValueError, match="solver='gradient' needs a set with `project`"):
        auto.set_params(solver="gradient").fit(X, y)
    with pytest.raises(ValueError, match="fit_intercept=False"):
        auto.set_params(solver="auto", fit_intercept=True).fit(X, y)
    with pytest.raises(ValueError, match="must have 3 coordinates"):
        auto.set_params(fit_intercept=False).fit(X[:, :3], y)


def test_the_replay_covers_polytopes():
    points = np.array([[3.0, 0.0, 0.0], [0.0, 3.0, 1.0], [2.0, 2.0, 2.0], [1.0, 0.0, 4.0]])
    for form in ("selection", "rounds", "tree", "spider"):
        solver = solver_of(form, max_iter=4)
        facts = problem(40, 3, fit_intercept=False)
        facts = dataclasses.replace(facts, feasible_set=Polytope(points))
        pairs = neighbours(facts, BUDGET.relation, 4)
        found = check_sensitivity(solver.plan(facts, BUDGET), pairs)
        assert not found.violations, form
        assert max(found.ratios.values()) > 0.2, form


def test_a_penalty_shrinks_the_model():
    X, y = scaled_table(5000, 3)
    for form in ("selection", "gradient", "rounds", "tree"):
        sizes = []
        for penalty in (0.0, 0.3, 3.0):
            model = DPLassoFW(
                epsilon=1e4, bounds_X=(-1, 1), bounds_y=(-1, 1), feasible_set=L1Ball(1.0),
                solver=solver_of(
                    form, max_iter=64, l2_penalty=penalty, n_restarts=1, gradient_clip=3.0
                ),
                random_state=0, fit_intercept=False,
            ).fit(X, y)  # fmt: skip
            sizes.append(np.abs(model.coef_).sum())
        gram = X.T @ X / len(y)
        expected = np.linalg.solve(gram + 3.0 * np.eye(3), X.T @ y / len(y))
        assert sizes[0] > sizes[1] > sizes[2], form
        np.testing.assert_allclose(model.coef_, expected, atol=0.03, err_msg=form)


# ------------------------------------------------------------------------------- bad input


def test_what_cannot_work_is_refused_with_the_smallest_n_that_does():
    for solver, n, least in (
        (Rounds(max_iter=50), 49, 50),
        (Tree(max_iter=40), 31, 32),
        (Rounds(max_iter=50, n_restarts=3), 80, 87),
        (Spider(), 1, 3),
    ):
        with pytest.raises(ValueError, match=f"smallest n that works .* is {least}$"):
            solver.plan(problem(n, 4), BUDGET)
        assert solver.plan(problem(least, 4), BUDGET).runs
    # as many records as the logarithm of the number of vertices
    with pytest.raises(ValueError, match="smallest n that works with these settings is 15"):
        Spider().plan(problem(14, 10**6), BUDGET)
    with pytest.raises(ValueError, match="max_iter must be at most 65536"):
        Tree(max_iter=2**17).check(Squared(), L1Ball, BUDGET)
    with pytest.raises(ValueError, match="needs a set with vertices"):
        DPLassoFW(solver="rounds", feasible_set="l2", bounds_X=(-1, 1), bounds_y=(-1, 1)).plan(
            100, 3
        )


@every_form
def test_plans_of_any_size_are_quick_and_finite(form):
    for n, d in ((10**12, 10), (10**6, 10**5)):
        for budget in (BUDGET, PURE, PrivacyBudget(0.01, 1e-9, "zero-out")):
            plan = solver_of(form).plan(problem(n, d), budget)
            for run in plan.runs:
                assert 0 < run.noise.scale < math.inf
                assert run.records == (0, n)


@every_form
def test_a_step_beyond_one_is_refused_and_one_is_not(form):
    X, y = scaled_table(50, 3)
    model = DPLassoFW(
        bounds_X=(-1, 1), bounds_y=(-1, 1), solver=solver_of(form, learning_rate=1.01)
    )
    with pytest.raises(ValueError, match="learning_rate"):
        model.fit(X, y)
    assert np.isfinite(model.set_params(solver__learning_rate=1.0).fit(X, y).coef_).all()


@every_form
def test_public_facts_at_their_ends(form):
    X, y = scaled_table(40, 2)
    # no curvature, so that nothing changes between two points
    for n_outputs in (1, 3):
        facts = problem(40, 2, loss=Linear().of_outputs(n_outputs))
        data = solver_data(X, y if n_outputs == 1 else np.tile(y[:, None], n_outputs))
        assert np.isfinite(solve(solver_of(form), facts, data).coef).all()
    # a single vertex, and slices of very few records
    one = problem(40, 1, feasible_set=Simplex, radius=1.0, fit_intercept=False)
    data = solver_data(X[:, :1], y, fit_intercept=False)
    np.testing.assert_allclose(solve(solver_of(form), one, data).coef, [1.0])
    for n in (6, 7, 9):
        data = solver_data(X[:n], y[:n])
        result = solve(solver_of(form, n_restarts=2), problem(n, 2), data)
        assert np.isfinite(result.coef).all()


def test_the_clip_of_a_polytope_follows_from_its_points():
    facts = problem(400, 2, fit_intercept=False)
    for form in ("selection", *SINGLE_PASS_FORMS):
        polytope = Polytope(10 * np.vstack((np.eye(2), -np.eye(2))))
        solver = solver_of(form, gradient_clip=8.0)
        plan = solver.plan(dataclasses.replace(facts, feasible_set=polytope), BUDGET)
        assert plan.gradient_clip == 8.0  # predictions up to 10, and targets up to 1


def test_a_kinked_loss_without_a_bound_needs_a_clip():
    class Steep(Linear):
        smoothness = math.inf

        def derivative_bound(self, prediction_bound, y_bound=1.0):
            return math.inf

    for form in ("gradient", "rounds"):
        with pytest.raises(ValueError, match="gradient_clip must be a number"):
            solver_of(form).plan(problem(100, 3, loss=Steep()), BUDGET)
        assert solver_of(form, gradient_clip=0.5).plan(problem(100, 3, loss=Steep()), BUDGET)


@every_form
def test_tiny_tables(form):
    for (n, d), task in itertools.product([(3, 1), (4, 3), (7, 2)], LOSSES):
        X, y = scaled_table(n, d, task=task)
        data = solver_data(X, y)
        result = solve(solver_of(form), problem(n, d, task=task), data)
        assert np.isfinite(result.coef).all()
        assert np.abs(result.coef).sum() <= 2.0 * (1 + 1e-12)


@every_form
def test_losses_with_a_kink_and_the_simplex(form):
    X, y = scaled_table(400, 4)
    facts = problem(400, 4, loss=Absolute(), fit_intercept=False)
    for feasible_set in (L1Ball(1.0), Simplex(1.0)):
        solver = solver_of(form)
        plan = solver.plan(dataclasses.replace(facts, feasible_set=feasible_set), BUDGET)
        assert plan.problem.loss.smoothness < math.inf
        assert isinstance(plan.vertices, AxisVertices)
        result = plan.run(solver_data(X, y, fit_intercept=False), stream())
        assert np.abs(result.coef).sum() <= 1 + 1e-12
        if isinstance(feasible_set, Simplex):
            assert result.coef.min() >= 0


@every_form
def test_labels_are_learned(form):
    n = 30_000 if form == "spider" else 3000
    rng = np.random.default_rng(0)
    X = np.sign(rng.standard_normal((n, 5)))
    y = np.where(X[:, 0] + 0.3 * rng.standard_normal(n) > 0, "yes", "no")
    model = DPLassoFWClassifier(
        epsilon=4.0, relation="zero-out", bounds_X=(-1, 1), classes=["no", "yes"], solver=form,
        random_state=0,
    )  # fmt: skip
    assert model.fit(X, y).score(X, y) > 0.9
