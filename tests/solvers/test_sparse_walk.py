"""Frank-Wolfe on sparse X in few reads: exact sums, the error of the line, and the same law."""

import dataclasses
import itertools

import numpy as np
import pytest
from audit_cases import RELATIONS, flipped_label, weaker
from scipy import sparse, stats
from support import (
    cells_of,
    half_is_enough,
    p_value,
    problem,
    rest_is_slow,
    scaled_table,
    solver_data,
    storage,
    stream,
    without_noise,
)

from sklearn_dpsco import DPLassoFW
from sklearn_dpsco._kernels import sampling, vertex_steps
from sklearn_dpsco._kernels.derivatives import clipped_derivative
from sklearn_dpsco.audit import audit_plan, check_sensitivity, map_mechanisms, neighbours
from sklearn_dpsco.data.rows import Rows, SolverData, Terms
from sklearn_dpsco.geometry import AxisVertices, L1Ball, Simplex
from sklearn_dpsco.losses import (
    Absolute,
    EpsilonInsensitive,
    Hinge,
    Huber,
    LogAbsolute,
    Logistic,
    MCPAbsolute,
    Quantile,
    Sigmoid,
    SmoothedHinge,
    Squared,
    SquaredHinge,
    Welsch,
)
from sklearn_dpsco.mechanisms import SelectVertex, softmax_scale
from sklearn_dpsco.privacy.budget import PrivacyBudget
from sklearn_dpsco.randomness import stream as exact
from sklearn_dpsco.randomness.stream import GroupedScores
from sklearn_dpsco.solvers import Selection, frank_wolfe, sparse_walk
from sklearn_dpsco.solvers.sparse_walk import (
    SparseWalk,
    mean_weights,
    schedule,
    walk_pays,
)

LEVEL = 1e-8
BUDGET = PrivacyBudget(1.0, 1e-6)
LOSSES = [
    Absolute(), EpsilonInsensitive(0.1), Hinge(), Huber(0.3), LogAbsolute(), Logistic(),
    MCPAbsolute(), Quantile(0.3), Sigmoid(), SmoothedHinge(), Squared(), SquaredHinge(), Welsch(),
]  # fmt: skip
# of losses whose derivatives are small where targets are far off
CLIPS = {Welsch: 0.003, MCPAbsolute: 0.05, LogAbsolute: 0.2}


@pytest.fixture
def forced(monkeypatch):
    """Small tables take the walk as well; counts the walks."""
    monkeypatch.setattr(sparse_walk, "_LEAST_FEATURES", 1)
    monkeypatch.setattr(sparse_walk, "_EPOCH_COST", 0)
    monkeypatch.setattr(sparse_walk, "_START_COST", 0)
    walks, make = [], SparseWalk.__init__

    def counted(self, *arguments):
        walks.append(self)
        make(self, *arguments)

    monkeypatch.setattr(SparseWalk, "__init__", counted)
    return walks


def usual_rates(n_steps):
    return 2 / (np.arange(n_steps) + 12)


def awkward_table(rng, n=60, d=23):
    """With empty rows and columns, a column that all rows store, weights and empty records."""
    X = rng.uniform(-1, 1, (n, d)) * (rng.uniform(size=(n, d)) < 0.15)
    X[:, 4], X[:, 9], X[7], X[0, 0] = 0.0, 1.0, 0.0, -1.0
    y = np.clip(X @ rng.uniform(-1, 1, d), -1, 1)
    scale, weight = np.where(rng.uniform(size=n) < 0.1, 0.0, 1.0), rng.uniform(size=n)
    return X, y, scale, weight


def walk_on(rows, y, terms, rates, *, radius=2.0, center=None):
    size = rows.dimension
    plan = Selection(max_iter=2).plan(
        problem(rows.n_samples, rows.n_columns, radius=radius, fit_intercept=rows.has_intercept),
        BUDGET,
    )
    center = np.zeros(size) if center is None else center
    return SparseWalk(SolverData(rows, y), terms, plan, rates, center)


# -------------------------------------------------------------------------------- the sums


def recomputed(walk):
    """What `walk.sums` is defined as, record by record."""
    rows, (data, indices, indptr) = walk.rows, walk.X
    sums = np.zeros(walk.sums.shape, dtype=np.int64)
    for i, side in itertools.product(range(rows.n_samples), (0, 1)):
        s = walk.ends()[side]
        z = rows.scales()[i] * (s * (walk.product[i] + walk.intercept))
        r = rows.factors()[i] * clipped_derivative(walk.terms.slope, z, walk.y[i])
        own = slice(indptr[i], indptr[i + 1])
        sums[indices[own], side] += np.trunc(walk.unit * r * data[own]).astype(np.int64)
        if rows.has_intercept:
            sums[-1, side] += int(walk.unit * r)
    return sums


@rest_is_slow(
    ("kind", "fit_intercept"),
    [*itertools.product(("csr", "csc"), (True, False))],
    ("csr, True", "csc, False"),
    lambda case: f"{case[0]}, {case[1]}",
)
def test_sums_stay_those_of_a_whole_pass_to_the_last_bit(kind, fit_intercept):
    rng = np.random.default_rng(0)
    X, y, scale, weight = awkward_table(rng)
    rows = Rows(storage(X, kind), fit_intercept, scale, weight)
    for loss, n_steps in ((Squared(), 300), (Logistic(), 60), (Huber(0.2), 60)):
        target = y if loss.task == "regression" else np.where(y > 0, 1.0, -1.0)
        objective = target, Terms(0.1, loss, 0.3)
        rates = usual_rates(n_steps)
        walk, w = walk_on(rows, *objective, rates), np.zeros(rows.dimension)
        np.testing.assert_array_equal(walk.sums, recomputed(walk))
        assert np.any(walk.sums)
        for t in range(n_steps - 1):
            # now and then the same one, one that nobody stores, and the intercept
            j = int(rng.choice([rng.integers(rows.dimension), 3, 4, rows.dimension - 1]))
            vertex = walk.vertices.vertex(j + rows.dimension * int(rng.integers(2)))
            walk.move(t, vertex)
            w *= 1 - rates[t]
            w[j] += rates[t] * vertex.value
            if t % 25 == 0 or t + 2 == n_steps or t + 1 in walk.bounds:
                np.testing.assert_array_equal(walk.sums, recomputed(walk), err_msg=f"{loss} {t}")
        product = walk.factors[n_steps - 1] * (walk.product + walk.intercept)
        np.testing.assert_allclose(product, rows.product(w), rtol=0, atol=1e-12)


def test_a_contribution_that_is_not_taken_back_would_show(monkeypatch):
    X, y = scaled_table(20, 6, density=0.5)
    objective = y, Terms(0.0, Squared(), 0.3)
    kept = vertex_steps.contribute
    walk = walk_on(Rows(sparse.csr_array(X), True), *objective, usual_rates(9))
    monkeypatch.setattr(vertex_steps, "contribute", lambda *a: (a[5][0].fill(0.0), kept(*a)))
    walk.move(0, walk.vertices.vertex(2))
    assert not np.array_equal(walk.sums, recomputed(walk))


def test_no_sum_overflows_and_no_contribution_exceeds_the_clip():
    for n, clip in itertools.product((1, 2, 255, 256, 257), (1e-50, 0.3, 1.0, 1e50)):
        X, y = sparse.csr_array(np.ones((n, 2))), np.ones(n)
        objective = y, Terms(-1e60, Squared(), clip)
        walk = walk_on(Rows(X, True), *objective, usual_rates(4))
        exact = -n * int(clip * walk.unit)
        np.testing.assert_array_equal(walk.sums, np.full((3, 2), exact))
        assert 2**58 < -exact < 2**62, (n, clip)


def gradient_of(walk, t):
    left, right = walk.form(t)
    return left * walk.sums[:, 0] + right * walk.sums[:, 1]


@pytest.mark.parametrize("loss", [Squared(), Logistic(), Huber(0.1), SmoothedHinge()])
def test_the_error_of_the_line_is_within_its_bound(loss):
    rng = np.random.default_rng(1)
    X, y, scale, weight = awkward_table(rng)
    y = y if loss.task == "regression" else np.where(y > 0, 1.0, -1.0)
    rows = Rows(sparse.csr_array(X), True, scale, weight)
    objective = y, Terms(0.1, loss, 1e3)
    rates, worst = usual_rates(80), 0.0
    walk, w = walk_on(rows, *objective, rates), np.zeros(rows.dimension)
    for t in range(79):
        error = gradient_of(walk, t) - rows.gradient_sum(w, *objective) / rows.n_samples
        left, right = walk.ends()
        dz = np.abs((left - right) * (walk.product + walk.intercept))
        if isinstance(loss, Squared):
            bound = 0.0
        elif isinstance(loss, Logistic):
            bound = np.mean(rows.factors() * dz**2) / 8 * 0.0963
        else:
            bound = np.mean(rows.factors() * dz) / 4 * loss.smoothness
        assert np.abs(error).max() <= bound + 1e-12, t
        worst = max(worst, np.abs(error).max())
        j = int(rng.integers(rows.dimension))
        walk.move(t, walk.vertices.vertex(j))
        w *= 1 - rates[t]
        w[j] += rates[t] * walk.vertices.vertex(j).value
    assert worst > 1e-5 or isinstance(loss, Squared)


# ---------------------------------------------------------------------- the public schedule


def test_epochs_end_where_the_factor_has_fallen():
    for rates in (usual_rates(1), usual_rates(2), usual_rates(5000), np.full(300, 0.01)):
        factors, bounds = schedule(rates)
        np.testing.assert_allclose(factors[-1], np.prod(1 - rates), rtol=1e-9)
        assert (bounds[0], bounds[-1]) == (0, rates.size)
        for start, stop in itertools.pairwise(bounds):
            assert factors[start] / 1.5 < factors[stop - 1]
            assert factors[stop] <= factors[start] / 1.5 or stop == rates.size
    assert len(schedule(usual_rates(1000))[1]) == 1 + 22


def test_mean_weights_give_the_mean_of_the_iterates():
    rng = np.random.default_rng(0)
    for n_steps, first in ((1, 0), (2, 1), (7, 3), (40, 20), (40, 39), (40, 0)):
        rates, vertices = rng.uniform(0.01, 0.9, n_steps), rng.standard_normal((n_steps, 3))
        center, total = rng.standard_normal(3), 0.0
        w = center
        for t in range(n_steps):
            w = (1 - rates[t]) * w + rates[t] * vertices[t]
            total = total + w * (t >= first)
        weight, weights = mean_weights(rates, first)
        found = weight * center + weights @ vertices
        np.testing.assert_allclose(found, total / (n_steps - first), rtol=1e-12, atol=1e-13)


def pays(X, *, loss=None, n_steps=1000, rate=None, values=(1.0, -1.0)):
    rows = Rows(X, True)
    data, terms = SolverData(rows, np.zeros(rows.n_samples)), Terms(0.0, loss or Squared(), 1.0)
    vertices = AxisVertices(rows.dimension, values)
    rates = 2 / (np.arange(n_steps) + 12) if rate is None else np.full(n_steps, rate)
    return walk_pays(data, terms, vertices, rates)


def test_the_walk_is_taken_by_public_facts():
    empty = sparse.csr_array((3, 2000))
    full = sparse.csr_array(np.ones((3, 2000)))
    for X in (empty, full, empty.tocsc(), full.tocsc()):
        assert pays(X)
        for n_steps in (1, 10, 40):
            assert not pays(X, n_steps=n_steps)
        assert pays(X, n_steps=100)
        # s falls fast, or to nothing
        for rate in (0.2, 0.5, 1.0):
            assert not pays(X, rate=rate)
        assert pays(X, rate=0.01)
        assert not pays(X, rate=0.01, n_steps=10**5)
    assert not pays(full.toarray())
    assert not pays(sparse.csr_array((3, 1999)))

    class OwnLoss(Squared):
        pass

    assert not pays(full, loss=OwnLoss())


def test_what_the_walk_does_not_know_takes_the_plain_path(forced, monkeypatch):
    X, y = scaled_table(30, 5, density=0.5)
    csr = sparse.csr_array(X)
    with monkeypatch.context() as patch:  # more steps than have a schedule
        patch.setattr(frank_wolfe, "MOST_SPARSE_STEPS", 3)
        solver = Selection(max_iter=4)
        solver.plan(problem(30, 5), BUDGET).run(solver_data(csr, y), stream())
    assert not forced
    solver = Selection(max_iter=4, l2_penalty=0.1)
    plan = solver.plan(problem(30, 5), BUDGET)
    plan.run(solver_data(csr, y), stream())
    assert not forced
    labels = 2 * np.eye(3)[np.arange(30) % 3] - 1
    solver = Selection(max_iter=4)
    plan = solver.plan(problem(30, 5, task="classification", n_outputs=3), BUDGET)
    plan.run(solver_data(csr, labels), stream())
    assert not forced


# ---------------------------------------------------------------------------------- privacy


@rest_is_slow("loss", LOSSES, map(str, (Logistic(), Quantile(0.3))))
def test_every_selection_stays_within_its_sensitivity(forced, loss):
    for k, (relation, fit_intercept) in enumerate(zip(RELATIONS, (True, False), strict=True)):
        worst = 0.0
        for n, d, seed in ((2, 5, k), (9, 3, k + 4), (16, 8, k + 8)):
            facts = problem(n, d, loss=loss, fit_intercept=fit_intercept)
            facts = dataclasses.replace(facts, feasible_set=L1Ball)
            solver = Selection(max_iter=12, gradient_clip=CLIPS.get(type(loss), 0.3))
            plan = solver.plan(facts, PrivacyBudget(1.0, 1e-6, relation))
            pairs = neighbours(facts, relation, 4, random_state=seed)
            found = check_sensitivity(plan, pairs, random_state=seed)
            assert not found.violations, f"{relation}, {n} x {d}: {found.violations}"
            worst = max(worst, found.ratios["step"])
        assert 0.7 < worst <= 1 + 1e-12, f"{relation}, {fit_intercept}: {worst}"
    assert forced


def replayed(*, plant=lambda plan: plan):
    facts = problem(9, 4, task="classification")
    solver = Selection(max_iter=12, gradient_clip=0.3)
    plan = plant(solver.plan(facts, BUDGET))
    pairs = neighbours(facts, "replace-one", 6, random_state=0)
    pairs = [pair for pair in pairs if sparse.issparse(pair[0].rows.X)]
    return check_sensitivity(plan, pairs)


def test_bugs_of_the_walk_are_found(forced, monkeypatch):
    assert not replayed().violations
    assert (
        "step" in replayed(plant=lambda p: dataclasses.replace(p, gradient_clip=np.inf)).violations
    )
    kept = vertex_steps.contribute
    with monkeypatch.context() as patch:  # what a record contributed before is not taken back
        patch.setattr(vertex_steps, "contribute", lambda *a: (a[5][0].fill(0.0), kept(*a)))
        assert "step" in replayed().violations
    with monkeypatch.context() as patch:  # a line beyond its ends
        patch.setattr(SparseWalk, "form", lambda self, t: (2 / 9 / self.unit, 1 / 9 / self.unit))
        assert "step" in replayed().violations
    with monkeypatch.context() as patch:  # a mean over the records that are there
        form = SparseWalk.form
        patch.setattr(
            SparseWalk,
            "form",
            lambda self, t: tuple(2 * part for part in form(self, t)),
        )
        assert "step" in replayed().violations


def sparse_pair(facts, relation):
    pair = flipped_label(facts, relation)
    for data in pair:
        rows = Rows(sparse.csr_array(data.rows.X), facts.fit_intercept, data.rows.scale)
        object.__setattr__(data, "rows", rows)
    return pair


@rest_is_slow("relation", RELATIONS, ("zero-out",))
def test_one_draw_is_close_to_its_claim_and_not_beyond(forced, relation):
    facts = problem(20, 1, fit_intercept=False)
    solver = Selection(max_iter=1, gradient_clip=0.3)
    # as private as permute-and-flip, and what the walk draws itself
    plan, small = (
        map_mechanisms(
            solver.plan(facts, PrivacyBudget(epsilon, 0.0, relation)),
            lambda _, m: dataclasses.replace(m, noise="gumbel"),
        )
        for epsilon in (4.0, 2.0)
    )
    assert softmax_scale(plan.step) == plan.step.scale
    pair = sparse_pair(facts, relation)
    settings = {"statistic": lambda result: result.coef[0], "random_state": 0}
    found = audit_plan(plan, *pair, 1000, **settings)
    assert not found.flagged
    assert 2.0 < found.epsilon_lower_bound <= 4.0
    # what exceeds a small claim is seen in fewer runs
    assert audit_plan(weaker(small, 2.0), *pair, 1200, **settings).flagged
    assert forced


def test_whatever_stands_for_a_mechanism_is_called(monkeypatch):
    mechanism = SelectVertex(1.0, 0.5)
    assert softmax_scale(mechanism) == 0.5
    for other in (SelectVertex(1.0, 0.5, "exponential"), SelectVertex(1.0, 0.5, "gumbel", "float")):
        assert softmax_scale(other) is None

    class Own(SelectVertex):
        pass

    assert softmax_scale(Own(1.0, 0.5)) is None
    monkeypatch.setattr(SelectVertex, "release", lambda self, scores, stream: 0)
    assert softmax_scale(mechanism) is None


# ---------------------------------------------------------------------------------- the law


def chosen(plan, solver, data, seeds, monkeypatch):
    """The vertices of the steps of several runs, shape (n_runs, T)."""
    numbers, vertex = [], AxisVertices.vertex
    with monkeypatch.context() as patch:
        patch.setattr(
            AxisVertices, "vertex", lambda self, k: (numbers.append(int(k)), vertex(self, k))[1]
        )
        for seed in seeds:
            plan.run(data, stream(seed))
    return np.array(numbers).reshape(len(seeds), -1)


def bounds_hold(walk):
    bounds = walk.scores.bounds.repeat(1 << walk.scores.bits, axis=0)[: walk.sums.shape[0]]
    return np.all(bounds[:, ::2] <= walk.sums) and np.all(walk.sums <= bounds[:, 1::2])


def random_walk(seed, n_steps=30):
    """On a table in whose rows a few of few or of many columns are stored."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(2, 30)), int(rng.choice([30, 300, 1500]))
    X = sparse.random_array(
        (n, d),
        density=rng.integers(1, 9) / d,
        rng=rng,
        format="csr",
        data_sampler=lambda size: rng.choice([-1.0, 1.0], size),
    )
    rows = Rows(X, bool(rng.integers(2)))
    objective = rng.uniform(-1, 1, n), Terms(0.0, Squared(), 2.0)
    walk = walk_on(rows, *objective, usual_rates(n_steps))
    walk.mechanism = SelectVertex(1.0, 10 ** rng.uniform(-3, 0))
    return walk


@pytest.mark.parametrize(
    "seeds", [range(20), pytest.param(range(20, 4000), marks=pytest.mark.slow)], ids=str
)
def test_bounds_hold_before_every_selection(seeds, monkeypatch):
    ways, one = [], stream()
    tighten, sharpen = GroupedScores.tighten, sampling.sharpen_groups
    monkeypatch.setattr(GroupedScores, "tighten", lambda s: (ways.append("anew"), tighten(s)))
    monkeypatch.setattr(
        sampling, "sharpen_groups", lambda *a: (ways.append("sharpened"), sharpen(*a))[1]
    )
    widened = 0
    for seed in seeds:
        walk = random_walk(seed)
        for t in range(29):
            assert bounds_hold(walk), (seed, t)
            vertex, before = walk.select(t, one), len(ways)
            walk.move(t, vertex)
            widened += "anew" not in ways[before:] and (t + 1 in walk.bounds)
    # by passes over all rows of either kind, and between them
    assert widened > len(seeds)
    assert min(ways.count("anew") - len(seeds), ways.count("sharpened")) > len(seeds)


def p_value_of_selections(d, at=(0, 4, 10, 14, 20, 27), n_draws=300):
    """The least of some steps of a walk with given vertices.

    The first four fit the rows that store column 0. As s falls, their residuals come back with no
    step that reads them, until that column has a better score than column 8.
    """
    X, y = np.zeros((20, d)), np.repeat([1.0, 0.5], 10)
    X[:10, 0] = X[10:, 8] = 1.0
    walk = walk_on(Rows(sparse.csr_array(X), False), y, Terms(0.0, Squared(), 2.0), usual_rates(40))
    walk.mechanism, one, found = SelectVertex(1.0, 0.1), stream(1), []
    for t in range(max(at) + 1):
        if t in at:
            a, b = walk.form(t)
            scores = walk.vertices.scores(a * recomputed(walk)[:, 0] + b * recomputed(walk)[:, 1])
            law = np.exp((scores - scores.max()) / walk.mechanism.scale)
            drawn = [walk.select(t, one) for _ in range(n_draws)]
            numbers = [v.coordinate + d * walk.vertices.values.index(v.value) for v in drawn]
            found.append(p_value(np.bincount(numbers, minlength=2 * d), law / law.sum()))
        walk.move(t, walk.vertices.vertex(0 if t < 4 else d - 1))
    return min(found)


def test_selections_have_their_law_given_those_before(monkeypatch):
    for d in (60, 300):  # fewer and more columns than twice what a pass reads
        assert p_value_of_selections(d) > 1e-12, d
    # the left sums become the right ones, and their bounds do not
    monkeypatch.setattr(GroupedScores, "shift", lambda s: s.left.__setitem__(slice(None), s.right))
    with pytest.raises(RuntimeError, match="above its bound"):
        p_value_of_selections(300)
    monkeypatch.setattr(exact, "refuse", lambda: None)
    assert p_value_of_selections(300) < 1e-12


def test_a_walk_whose_bounds_do_not_hold_releases_nothing(forced, monkeypatch):
    X, y = scaled_table(20, 600, density=0.3)
    solver, data = Selection(max_iter=20), solver_data(sparse.csr_array(X), y)
    plan = solver.plan(problem(20, 600), BUDGET)
    # so much noise that no selection would meet a bound by which a place is too low
    plan = dataclasses.replace(plan, step=SelectVertex(1.0, 1e9))
    plan.run(data, stream())
    shift = GroupedScores.shift

    def planted(scores):
        shift(scores)
        scores.bounds[(np.argmax(np.abs(scores.bounds).max(axis=1)) + 1) % len(scores.bounds)] = 0

    monkeypatch.setattr(GroupedScores, "shift", planted)
    with pytest.raises(RuntimeError, match="nothing is released"):
        plan.run(data, stream())
    assert len(forced) == 2


def test_left_bounds_are_looked_at_before_they_give_way_to_others(forced, monkeypatch):
    X, y = scaled_table(20, 600, density=0.01)
    data = solver_data(sparse.csr_array(X), y)
    plan = Selection(max_iter=40).plan(problem(20, 600), BUDGET)
    plan = dataclasses.replace(plan, step=SelectVertex(1.0, 1e9))  # as above
    sample, drawn = GroupedScores.sample, []

    def planted(scores, *arguments):
        drawn.append(sample(scores, *arguments))
        if len(drawn) == 12:  # within an epoch of several steps, and healed by none of them
            group = int(np.argmax(scores.bounds[:, 1] - scores.bounds[:, 0]))
            scores.bounds[group, 0] = scores.bounds[group, 1]
        return drawn[-1]

    monkeypatch.setattr(GroupedScores, "sample", planted)
    with pytest.raises(RuntimeError, match="nothing is released"):
        plan.run(data, stream())


def test_sharpening_compares_the_bounds_that_it_makes_tight():
    rng = np.random.default_rng(0)
    left, right = rng.integers(-1000, 1000, (4000, 2)).T
    for wrong in (None, 0, 1, 2, 3):
        scores = GroupedScores(left, right, (-1.0, 1.0))
        scores.is_loose[:] = True
        if wrong is not None:  # one side alone, whose slack the other one's hides
            scores.bounds[:, wrong ^ 2] += 10**6 * (1 if wrong % 2 else -1)
            scores.bounds[3, wrong] = scores.bounds[3, wrong ^ 1]
        tops = np.full(len(scores.bounds), 1e9)
        known = left, right, scores.bits, 0.5, 0.5, scores.values, 1e9
        held = sampling.sharpen_groups(known, scores.bounds, scores.is_loose, tops)
        assert held == (wrong is None)


def same_law(first, second, size):
    """P-value of a chi-square test that two samples of indices have the same law."""
    counts = np.array([np.bincount(x, minlength=size) for x in (first, second)])
    rare = counts.sum(axis=0) < 20
    counts = np.column_stack((counts[:, ~rare], counts[:, rare].sum(axis=1) + 1))
    return stats.chi2_contingency(counts).pvalue


@rest_is_slow("task", ("regression", "classification"), ("classification",))
def test_selections_have_the_law_of_the_plain_path(forced, task, monkeypatch):
    n, d, n_steps, n_runs = 120, 20, 6, 500
    X, y = scaled_table(n, d, task=task, density=0.3)
    data = solver_data(sparse.csr_array(X), y)
    solver = Selection(max_iter=n_steps)
    plan = solver.plan(problem(n, d, task=task), PrivacyBudget(20.0, 1e-6))
    plan = dataclasses.replace(plan, step=SelectVertex(1.0, 0.02))
    walked = chosen(plan, solver, data, range(n_runs), monkeypatch)
    assert len(forced) == n_runs
    with monkeypatch.context() as patch:
        patch.setattr(sparse_walk, "_LEAST_FEATURES", 10**9)
        plain, wrong = (
            chosen(law, solver, data, range(n_runs, 2 * n_runs), monkeypatch)
            for law in (plan, weaker(plan, 2.0))
        )
    size = 2 * (d + 1)
    for t in range(n_steps):
        assert same_law(walked[:, t], plain[:, t], size) > 1e-6, t
    assert same_law(walked[:, 1], wrong[:, 1], size) < 1e-6


def test_the_model_depends_neither_on_the_storage_nor_on_the_order_of_the_rows(forced, tmp_path):
    rng = np.random.default_rng(2)
    X, y, _, _ = awkward_table(rng, n=80)
    X, order = np.float32(X), rng.permutation(80)
    csr = sparse.csr_array(X, dtype=np.float64)
    long = sparse.csr_array(csr)
    long.indices, long.indptr = csr.indices.astype(np.int64), csr.indptr.astype(np.int64)
    # read-only like a map of a file, which it is in part
    mapped = sparse.csr_array(csr)
    np.save(tmp_path / "data.npy", csr.data)
    mapped.data = np.load(tmp_path / "data.npy", mmap_mode="r")
    mapped.indices.flags.writeable = mapped.indptr.flags.writeable = False
    tables = {
        "csr": (csr, y),
        "csc": (csr.tocsc(), y),
        "float32": (csr.astype(np.float32), y),
        "long": (long, y),
        "mapped": (mapped, y),
        "shuffled": (csr[order], y[order]),
    }
    solver = Selection(max_iter=30)
    plan = solver.plan(problem(80, 23), PrivacyBudget(20.0, 1e-6))
    plan = dataclasses.replace(plan, step=SelectVertex(1.0, 0.01))
    results = {}
    for name, (stored, target) in tables.items():
        # targets' mean is released from a float sum, whose order matters
        target = np.rint(8 * target) / 8
        results[name] = plan.run(solver_data(stored, target), stream())
    for name, result in results.items():
        np.testing.assert_array_equal(result.coef, results["csr"].coef, err_msg=name)
    assert len(forced) == len(tables)
    assert np.count_nonzero(results["csr"].coef) > 3


@half_is_enough
def test_degenerate_tables(forced, cells):
    tables = [
        sparse.csr_array((5, 3)),
        sparse.csr_array(np.eye(5)[:, :3]),
        sparse.csr_array(np.eye(1)),
        sparse.csr_array(np.ones((5, 1))),
    ]
    one = stream(3)
    for X, (kind, fit_intercept), (max_iter, rate), precision, noise in cells_of(
        cells,
        tables,
        (("csr", True), ("csc", False)),
        ((1, "auto"), (2, "auto"), (30, "auto"), (3, 0.9), (3, 1e-3), (3, 1e-50)),
        ("exact", "float"),
        ("gumbel", "exponential"),
    ):
        n, d = X.shape
        solver = Selection(max_iter=max_iter, learning_rate=rate)
        plan = solver.plan(problem(n, d, fit_intercept=fit_intercept), BUDGET)
        data = solver_data(X.asformat(kind), np.ones(n), fit_intercept=fit_intercept)
        step = dataclasses.replace(plan.step, noise=noise, precision=precision)
        result = dataclasses.replace(plan, step=step).run(data, one)
        assert np.all(np.isfinite(result.coef))
        assert np.abs(result.coef).sum() <= 2.0 * (1 + 1e-12)
    # with all scores equal, every vertex is as likely
    plan = Selection(max_iter=1).plan(problem(5, 3, fit_intercept=False), BUDGET)
    walk = SparseWalk(
        SolverData(Rows(tables[0], False), np.ones(5)),
        Terms(0.0, Squared(), 1.0),
        plan,
        usual_rates(1),
        np.zeros(3),
    )
    drawn = [walk.scores.sample(walk.form(0), 1.0, one) for _ in range(3000)]
    assert stats.chisquare(np.bincount(drawn, minlength=6)).pvalue > LEVEL


def test_the_walk_starts_at_the_centre_of_the_set(forced):
    X, _ = scaled_table(80, 4)
    y = X @ np.array([0.7, 0.3, 0.0, 0.0])
    solver = Selection(max_iter=700, gradient_clip=1e6)
    facts = problem(80, 4, feasible_set=Simplex, radius=1.0, fit_intercept=False)
    plan = without_noise(solver.plan(facts, BUDGET))
    data = solver_data(sparse.csr_array(X), y, fit_intercept=False)
    result = plan.run(data, stream())
    assert len(forced) == 1
    np.testing.assert_allclose(result.coef, [0.7, 0.3, 0, 0], atol=0.02)


def test_a_wide_sparse_table_is_fitted():
    rng = np.random.default_rng(0)
    X = sparse.random(400, 3000, 0.01, format="csr", random_state=0, dtype=np.float64)
    X.data[:] = 1.0
    dense = rng.choice([0.0, 1.0], 400)
    X = sparse.hstack((X, dense[:, None]), format="csr")
    walks, make = [], SparseWalk.__init__
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SparseWalk, "__init__", lambda *a: (walks.append(a[0]), make(*a))[1])
        model, other = (
            DPLassoFW(
                epsilon=1e6, delta=1e-6, bounds_X=(0, 1), bounds_y=(-1, 1),
                solver=Selection(max_iter=400, gradient_clip=2.0), feasible_set=L1Ball(2.0),
                random_state=0,
            ).fit(stored, dense - 0.5)
            for stored in (X, X.tocsc())
        )  # fmt: skip
    np.testing.assert_array_equal(other.coef_, model.coef_)
    assert len(walks) == 2
    assert model.coef_[-1] == pytest.approx(1.0, abs=0.1)
    assert np.mean((model.predict(X) - dense + 0.5) ** 2) < 0.01
