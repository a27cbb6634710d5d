"""Heavy-tailed tables: the solver's plans and releases, the estimators, bad input."""

import dataclasses
import itertools
import math
import re
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import LinearRegression
from support import (
    assert_refuses,
    cells_of,
    half_is_enough,
    problem,
    recomputed_epsilon,
    rest_is_slow,
    solver_data,
    solver_of,
    storage,
    stream,
)

from sklearn_dpsco import (
    HeavyTailDPClassifier,
    HeavyTailDPRegressor,
    PrivacyParameterWarning,
    PublicEncoder,
)
from sklearn_dpsco.audit import check_sensitivity, map_mechanisms, neighbours, replay
from sklearn_dpsco.geometry import Geometry, L2Ball
from sklearn_dpsco.losses import Huber, Squared
from sklearn_dpsco.privacy.budget import RELATIONS, PrivacyBudget
from sklearn_dpsco.solvers import SCOF, SCOFSlices, UnboundedDescent
from sklearn_dpsco.solvers.heavy_tail import _slices
from sklearn_dpsco.solvers.heavy_tail.oracles import ORACLES, NormClipped

TASKS = ["regression", "classification"]
FORMS = ("scof", "scof-slices")


def of_two_buckets(oracle):
    return {"oracle": oracle} | ({"n_buckets": 2} if oracle == "median-of-means" else {})


def facts(n, d, task="regression", **others):
    return problem(n, d, task=task, feasible_set=L2Ball, **others)


def silent(plan):
    """The plan without noise: its mechanisms release what they are given, or the best."""

    class Silent:
        def __init__(self, mechanism):
            self.mechanism = mechanism

        def __getattr__(self, name):
            return getattr(self.mechanism, name)

        def release(self, value, _stream):
            return int(np.argmax(value)) if self.mechanism.selects else value

    return map_mechanisms(plan, lambda _, m: Silent(m))


def table(n=20_000, d=3, seed=0, task="regression"):
    """Heavy-tailed columns of very different units, far from 0."""
    rng = np.random.default_rng(seed)
    unit = 10.0 ** rng.integers(-3, 4, d)
    Z = rng.standard_t(3, (n, d))
    signal = Z @ np.linspace(1, -1, d) + rng.standard_t(3, n)
    X = unit * (Z + 10)
    return X, 1000 * signal + 5e4 if task == "regression" else np.where(signal > 0, "b", "a")


# --------------------------------------------------------------------------------- plans


@rest_is_slow(
    ("delta", "form", "relation", "task"),
    itertools.product((0.0, 1e-6), FORMS, RELATIONS, TASKS),
    (
        "0.0-scof-zero-out-regression",
        "1e-06-scof-replace-one-classification",
        "1e-06-scof-slices-zero-out-regression",
    ),
)
def test_plans_agree_with_the_second_accountant(delta, form, relation, task):
    # the second accountant of pure plans takes long for many releases
    sizes = [(1.0, 5000, 3, 1), (0.3, 40, 8, 1), (3.0, 2000, 2, 3)] if delta else [(1.0, 500, 1, 1)]
    for epsilon, n, d, n_outputs in sizes:
        solver = solver_of(form, max_iter=5 if delta else 2)
        budget = PrivacyBudget(epsilon, delta, relation)
        plan = solver.plan(facts(n, d, task, n_outputs=n_outputs), budget)
        assert recomputed_epsilon(plan.guarantee) <= epsilon * (1 + 1e-4), epsilon


def test_plans_spend_what_there_is():
    for delta, task, public in cells_of("half", [0.0, 1e-6], TASKS, [True, False]):
        case = f"delta={delta}, {task}, public={public}"
        private = dict.fromkeys(("private_scale_X", "private_scale_y"), not public)
        plan = SCOF().with_facts(**private).plan(facts(5000, 4, task), PrivacyBudget(1.0, delta))
        budget = plan.budget
        limit = {"pure": 1.0, "gdp": budget.mu**2 / 2}
        composition = plan.guarantee.composition
        assert composition == ("pure" if delta == 0 else "gdp"), case
        assert plan.guarantee.spent == pytest.approx(limit[composition], rel=1e-4), case


def test_what_is_given_is_not_paid_for():
    names = lambda plan: {r.name for r in plan.guarantee.releases}  # noqa: E731
    size = {"n_samples": 20_000, "n_features": 3}
    given = {"scale_X": 1.0, "center_X": 0.0, "scale_y": 2.0, "center_y": 0.0}
    plan = HeavyTailDPRegressor(solver="scof", **given).plan(**size)
    assert names(plan) == {"mean log norm", "mean target", "mean gradient"}
    plan = HeavyTailDPRegressor(**given).plan(**size)
    assert plan.solver == "descent"
    assert not any("sizes" in name for name in names(plan) - {"column sizes"})
    plan = HeavyTailDPRegressor(solver="scof", fit_intercept=False).plan(**size)
    target = {"target scales", "target presence"}
    shared = {"shared feature scale"}
    assert names(plan) == {"feature scales", "mean gradient"} | shared | target
    plan = HeavyTailDPClassifier(solver="scof", classes=[0, 1]).plan(**size)
    features = {"feature scales", "feature centres"} | shared
    assert names(plan) == {"mean target", "mean gradient"} | features


def test_what_has_no_effect_beside_something_else_is_refused():
    of_scales, of_moments = SCOF(scale_share=0.2), SCOF(tau=1.0, moment_order=3.0)
    given, pattern = {"scale_X": 1.0, "center_X": 0.0}, "scale_share has no effect"
    through_0 = {"scale_X": 1.0, "fit_intercept": False}
    for parameters in (given, through_0):
        model = HeavyTailDPRegressor(**parameters, solver=of_scales)
        assert_refuses(model.plan, pattern, 5000, 3)
    model = HeavyTailDPRegressor(scale_X=1.0, solver=UnboundedDescent(scale_share=0.2))
    assert_refuses(model.plan, pattern, 5000, 3)
    pattern = "moment_order and moment_bound decide on tau"
    for model in (HeavyTailDPClassifier(classes=[0, 1]), HeavyTailDPRegressor(fit_intercept=False)):
        assert_refuses(model.set_params(solver=of_moments).plan, pattern, 5000, 3)
    # where they have one
    HeavyTailDPRegressor(scale_X=1.0, solver=of_scales).plan(5000, 3)
    encoder = PublicEncoder({"age": (0, 99), "sex": ["f", "m"]})
    HeavyTailDPRegressor(scale_X=[9.0, 1.0, 1.0]).plan(5000, encoder)
    HeavyTailDPRegressor(solver=of_moments).plan(5000, 3)


def test_the_share_for_scales_is_kept():
    for share in (0.1, 0.5):
        plan = HeavyTailDPRegressor(epsilon=0.3, solver=SCOF(scale_share=share)).plan(5000, 4)
        spent = sum(r.cost("gdp") for r in plan.guarantee.releases if r.name.startswith("feature"))
        assert spent <= share * plan.budget.mu**2 / 2


def test_the_largest_share_leaves_something_for_the_gradients():
    given = {"tau": 1.0, "max_iter": 5}  # nothing is left to rules that need a positive rest
    for delta, task in itertools.product([0.0, 1e-6], TASKS):
        for form, public in itertools.product(FORMS, [True, False]):
            case = f"{form}, delta={delta}, {task}, public={public}"
            solver = solver_of(form, scale_share=0.7, **given)
            solver = solver.with_facts(private_scale_X=not public)
            plan = solver.plan(facts(1000, 3, task), PrivacyBudget(1.0, delta, precision="float"))
            assert all(r.mechanism.scale > 0 for r in plan.guarantee.releases), case
            assert all(m.cost("pure" if delta == 0 else "gdp") > 0 for m in plan.steps), case
        for share in (0.71, 0.8, 1.0, -0.1):
            solver, budget = SCOF(scale_share=share, **given), PrivacyBudget(1.0, delta)
            with pytest.raises(ValueError, match="scale_share"):
                solver.check(facts(1000, 3, task).loss, L2Ball, budget)
            with pytest.raises(ValueError, match="scale_share"):
                solver.plan(facts(1000, 3, task), budget)


def test_the_largest_share_leaves_something_for_a_descent():
    model = HeavyTailDPRegressor(solver=UnboundedDescent(scale_share=0.6))
    for n in (60, 100, 150, 235):
        assert model.plan(n, 3).step.scale > 0
    with pytest.raises(ValueError, match="scale_share"):
        model.set_params(solver__scale_share=0.61).plan(100, 3)


def test_small_tables_learn_an_intercept_only():
    plan = HeavyTailDPRegressor().plan(100, 20)
    assert plan.oracle is None
    assert plan.first.features is None
    # unless the user gives the scales, or insists
    assert HeavyTailDPRegressor(scale_X=1.0, center_X=0.0, center_y=0.0).plan(200, 2).oracle
    assert HeavyTailDPRegressor(solver=SCOF(max_iter=3)).plan(100, 20).oracle is not None


@pytest.mark.parametrize("kind", [HeavyTailDPRegressor, HeavyTailDPClassifier])
def test_tables_too_small_to_descend_warn(kind):
    classes = {"classes": [0, 1]} if kind is HeavyTailDPClassifier else {}
    for epsilon, relation in zip((0.5, 3.0), RELATIONS, strict=True):
        model = kind(epsilon=epsilon, relation=relation, **classes)
        warns = pytest.warns(PrivacyParameterWarning, match="too small to learn from")
        with warns as found:
            assert model.plan(20, 3).solver == "scof"
        first = float(re.search(r"about (\d+) rows", str(found[0].message))[1])
        with warns:
            assert model.plan(int(0.94 * first), 3).solver == "scof"
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert model.plan(math.ceil(1.06 * first), 3).solver == "descent"


@pytest.mark.parametrize(
    ("n", "far", "settings"), [(600, 20, {}), (2000, 1000, {"feasible_set": "l2"})]
)
def test_targets_far_from_0_are_found_in_small_tables(n, far, settings):
    scores = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((n, 3))
        y = X @ [1.0, -1.0, 0.5] + rng.standard_normal(n) + 1.8 * far
        model = HeavyTailDPRegressor(random_state=seed, **settings).fit(X, y)
        assert model.plan_.solver == ("scof" if settings else "descent")
        scores.append(model.score(X, y))
    assert np.median(scores) > 0.25, scores
    assert min(scores) > -1, scores


def test_noise_fades_from_a_scale_for_each_column_to_one_and_to_none():
    kinds = []
    for n in (200, 1400, 20_000):
        facts = {"classes": [0, 1], "epsilon": 0.1, "relation": "zero-out"}
        model = HeavyTailDPClassifier(solver="scof", **facts)
        search = model.plan(n, 64).first.features
        kinds.append(search and (search.n_shared > 0, search.n_scales > 0))
    assert kinds == [None, (True, False), (True, True)]


def test_features_need_the_centre_of_the_target():
    small = HeavyTailDPRegressor().plan(200, 2)
    assert small.oracle is None
    assert small.first.target.n_rounds > 0
    for settings in ({"center_y": 0.0}, {"fit_intercept": False}, {"solver": SCOF(max_iter=5)}):
        assert HeavyTailDPRegressor(**settings).plan(200, 2).oracle is not None
    # far from 0 in units of its spread, where the noise would be that of its size
    X, y = table(n=200, d=2)
    fits = [HeavyTailDPRegressor(random_state=k).fit(X, y).score(X, y) for k in range(5)]
    assert np.median(fits) > -3


def test_all_classes_are_in_the_same_releases():
    plan = HeavyTailDPClassifier(solver="scof", classes=range(4)).plan(20_000, 3)
    counts = {r.name: r.count for r in plan.guarantee.releases}
    assert counts["feature scales"] == 3 * plan.first.features.n_scales
    assert counts["mean target"] == 1
    assert counts["mean gradient"] == plan.max_iter
    assert plan.steps[0].dimension == 4 * 4


def test_slices_are_disjoint_and_have_the_whole_budget():
    full = SCOF(max_iter=4).plan(facts(1000, 2), PrivacyBudget(1.0))
    sliced = SCOFSlices(max_iter=4, tau=full.oracle.tau).plan(facts(1000, 2), PrivacyBudget(1.0))
    assert len({r.group for r in sliced.guarantee.releases if r.name == "mean gradient"}) == 4
    # four times the sensitivity, one release on each record in place of four
    assert 1.95 < sliced.steps[0].scale / full.steps[0].scale < 2.05
    rng = np.random.default_rng(0)
    data = solver_data(rng.standard_normal((1000, 2)), rng.standard_normal(1000))
    data = dataclasses.replace(data, y=np.arange(1000.0))
    parts = _slices(data, sliced, stream())
    seen = np.concatenate([part.y for part in parts])
    assert len(np.unique(seen)) == seen.size == 1000


# ----------------------------------------------------------------------------- sensitivity

EXTREMES = [1e300, -1e300, np.inf, -np.inf, 1e-300, 0.0, 1.0]


def extreme_pairs(facts, relation, rng, n_pairs=8):
    """Neighbours whose record holds values without any bound."""
    n, d = facts.n_samples, facts.n_features
    for k in range(n_pairs):
        X = rng.choice([-1.0, 0.0, 0.5, 100.0], (n, d))
        y = rng.choice([-1.0, 1.0], n)
        i = rng.integers(n)
        first, second = rng.choice(EXTREMES, (2, d))
        X[i], y[i] = first, rng.choice([-1.0, 1.0])
        other, other_y, scale = X.copy(), y.copy(), None
        if facts.loss.task == "regression":
            y[i], other_y[i] = rng.choice(EXTREMES, 2)
        else:
            other_y[i] = -y[i]
        if k % 2:
            second = -first  # same magnitudes: the gradients turn around
        if relation == "zero-out":
            scale = (np.arange(n) != i).astype(np.float64)
        else:
            other[i] = second
        yield tuple(
            solver_data(*arrays, fit_intercept=facts.fit_intercept, scale=s)
            for *arrays, s in ((X, y, None), (other, other_y, scale))
        )


@rest_is_slow(
    ("oracle", "form", "relation"), itertools.product(ORACLES, FORMS, RELATIONS),
    ("clipped-scof-replace-one", "coordinate-clipped-scof-slices-zero-out",
     "median-of-means-scof-zero-out", "smoothed-scof-slices-replace-one"),
)  # fmt: skip
@half_is_enough
def test_records_of_any_size_stay_within_the_sensitivities(oracle, form, relation, cells):
    worst = {}
    for task, delta, fit_intercept in (
        ("regression", 0.0, True),
        ("classification", 1e-6, True),
        ("regression", 1e-6, False),
        ("classification", 0.0, False),
    )[: 2 if cells == "half" else 4]:
        n, d = (5 if task == "regression" else 8), 3
        case = f"{n} x {d}, {task}, delta={delta}, fit_intercept={fit_intercept}"
        solver = solver_of(form, **of_two_buckets(oracle), max_iter=3 if form == "scof" else 2)
        problem = facts(n, d, task, fit_intercept=fit_intercept)
        plan = solver.plan(problem, PrivacyBudget(1.0, delta, relation))
        found = check_sensitivity(plan, extreme_pairs(problem, relation, np.random.default_rng(0)))
        assert not found.violations, f"{case}: {found.violations}"
        for name, ratio in found.ratios.items():
            kind = name.partition("[")[0]  # of several slices, a record is in one
            worst[kind] = max(worst.get(kind, 0.0), ratio)
    assert all(0.75 < ratio <= 1 + 1e-12 for ratio in worst.values()), worst


@rest_is_slow("relation", RELATIONS, ("zero-out",))
def test_the_presence_of_the_target_stays_within_its_sensitivity(relation):
    problem, solver = facts(300, 2), SCOF(max_iter=2)
    plan = solver.plan(problem, PrivacyBudget(2.0, 1e-6, relation))
    pairs = extreme_pairs(problem, relation, np.random.default_rng(0), 4)
    found = check_sensitivity(plan, pairs)
    assert not found.violations, found.violations
    assert 0.9 < found.ratios["first.target.presence"] <= 1
    # the audit's own pairs reach it, too
    plan = solver.plan(facts(40, 2), PrivacyBudget(300.0, 1e-3, relation))
    assert not check_sensitivity(plan, neighbours(plan.problem, relation, 4)).untested


@dataclasses.dataclass(frozen=True)
class Overflowing(Squared):
    """A loss of the user's own whose derivative may be infinite or NaN."""

    def derivative(self, z, y):
        with np.errstate(all="ignore"):
            return np.exp(np.abs(y)) - np.exp(np.abs(z))


@half_is_enough
@rest_is_slow("oracle", ORACLES, ("clipped", "median-of-means"))
def test_a_derivative_that_is_not_finite_moves_no_more_than_another(oracle, cells, monkeypatch):
    monkeypatch.setattr(replay, "_ROUNDS", 2)  # the range of six rows is hardly ever moved
    rng = np.random.default_rng(0)
    base, taus = facts(6, 2), (1e-50, 1.0, 1e50)
    for tau in taus if cells == "all" else taus[oracle == "clipped" :: 2]:
        solver = SCOF(**of_two_buckets(oracle), tau=tau, max_iter=2)
        plan = solver.plan(dataclasses.replace(base, loss=Overflowing()), PrivacyBudget(1.0))
        assert not check_sensitivity(plan, extreme_pairs(base, "replace-one", rng, 4)).violations


def test_an_oracle_without_its_clip_is_found():
    solver = SCOF(max_iter=3)
    problem = facts(9, 2)
    plan = solver.plan(problem, PrivacyBudget(1.0))
    loose = dataclasses.replace(plan, oracle=NormClipped(2 * plan.oracle.tau))
    pairs = list(extreme_pairs(problem, "replace-one", np.random.default_rng(0)))
    assert check_sensitivity(loose, pairs).violations
    first = dataclasses.replace(plan.first, target_clip=2 * plan.first.target_clip)
    wide = dataclasses.replace(plan, first=first)
    assert check_sensitivity(wide, pairs).violations


# ---------------------------------------------------------------- descents in learned units


def unbounded(n, d, task="regression", epsilon=1.0, relation="replace-one", **others):
    budget = PrivacyBudget(epsilon, 1e-6, relation)
    settings = {k: others.pop(k) for k in ("max_iter", "scale_share") if k in others}
    given = {k: others.pop(k) for k in list(others) if k.startswith("private")}
    solver = UnboundedDescent(**settings).with_facts(**given)
    return solver.plan(
        dataclasses.replace(facts(n, d, task, **others), feasible_set=Geometry), budget
    )


@rest_is_slow("relation", RELATIONS, ("zero-out",))
def test_sizes_and_a_descent_spend_the_budget_and_no_more(relation):
    sizes, outputs = ((300, 3), (20_000, 40)), ((1, 0.5), (3, 4.0))
    for (n, d), task, (n_outputs, epsilon) in cells_of("half", sizes, TASKS, outputs):
        plan = unbounded(n, d, task, epsilon, relation, n_outputs=n_outputs)
        case = f"{n} x {d}, {task}, {epsilon}"
        assert recomputed_epsilon(plan.guarantee) <= epsilon * (1 + 1e-4), case
        assert plan.guarantee.spent == pytest.approx(plan.budget.mu**2 / 2, rel=1e-4), case
    for share in (0.01, 0.5):
        plan = unbounded(2000, 5, scale_share=share)
        spent = sum(r.cost("gdp") for r in plan.feature_reach.releases)
        assert spent <= share * plan.budget.mu**2 / 2


@rest_is_slow(
    ("relation", "task"),
    itertools.product(RELATIONS, TASKS),
    ("replace-one-regression", "zero-out-classification"),
)
def test_records_of_any_size_move_no_size_and_no_gradient_beyond_its_sensitivity(
    relation, task, monkeypatch
):
    monkeypatch.setattr(replay, "_ROUNDS", 2)  # more, if a release is never moved, as two are here
    plan = unbounded(40, 3, task, 300.0, relation, max_iter=3)
    assert plan.feature_reach.far is not None
    pairs = extreme_pairs(plan.problem, relation, np.random.default_rng(0), 8)
    found = check_sensitivity(plan, pairs)
    assert not found.violations, found.violations
    # what appears moves scores of a small share both up and down
    for name in ("feature_reach.typical", "step"):
        assert found.ratios[name] > 0.7, (name, found.ratios)
    assert found.ratios["feature_reach.far"] > 0.4, found.ratios
    if task == "regression":
        assert found.ratios["target_reach.presence"] > 0.9, found.ratios


def test_columns_that_hardly_vary_do_not_explode():
    """In 98 of 100 records they are one value, and anything in the others."""
    for n, epsilon, seed in itertools.product((3000, 20_000), (1.0, 100.0), range(2)):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((n, 8))
        X[:, :4] = np.where(rng.random((n, 4)) < 0.98, 3.7, rng.uniform(-50, 50, (n, 4)))
        y = X @ rng.standard_normal(8)
        y += y.std() * rng.standard_normal(n)
        model = HeavyTailDPRegressor(epsilon=epsilon, relation="zero-out", random_state=seed)
        half = n // 2
        exact = LinearRegression().fit(X[:half], y[:half]).score(X[half:], y[half:])
        score = model.fit(X[:half], y[:half]).score(X[half:], y[half:])
        assert score > (0.0 if n == 3000 else exact - 0.1), (n, epsilon, seed)
        far = np.full((1, 8), 1e12)
        np.testing.assert_array_equal(model.predict(far), model.predict(model.limits_X_[1][None]))


def test_a_small_table_keeps_its_target_where_presence_could_not_show():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 1))
    y = 3 * X[:, 0] + 0.1 * rng.standard_normal(200)
    model = HeavyTailDPRegressor(solver="descent", epsilon=0.4, random_state=0).fit(X, y)
    assert model.plan_.target_reach.presence is None
    assert np.ptp(model.predict(X)) > 0.1
    zeros = [model.set_params(random_state=k).fit(X, 0 * y).predict(X) for k in range(5)]
    assert np.abs(zeros).max() < 100  # sizes are at most 1


def test_targets_may_be_0_or_of_very_different_sizes():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((5000, 3))
    rare = np.where(rng.random(5000) < 0.002, 1.0, 0.0)
    for seed, y in itertools.product(range(2), (np.zeros(5000), rare)):
        model = HeavyTailDPRegressor(random_state=seed, epsilon=2.0).fit(X, y)
        assert model.plan_.solver == "descent"
        assert np.abs(model.predict(X)).max() < 1e-3, seed
    # so that targets share no size where columns of the same number do
    plan = unbounded(1500, 3, n_outputs=3)
    assert plan.feature_reach.shared is not None
    assert plan.target_reach.shared is None
    signal = X @ [1.0, -1.0, 0.5]
    noise = 0.5 * rng.standard_normal((5000, 3))
    Y = (signal[:, None] + noise) * [1e6, 1.0, 1e-2]
    for seed in range(2):
        found = HeavyTailDPRegressor(random_state=seed, epsilon=2.0).fit(X, Y).predict(X)
        assert np.all(((Y - found) ** 2).mean(axis=0) < 0.3 * Y.var(axis=0)), seed


def test_sparse_and_dense_predictions_agree_where_0_is_beyond_a_limit():
    rng = np.random.default_rng(0)
    X = np.column_stack((rng.standard_normal(5000), 1000 + rng.standard_normal(5000)))
    model = HeavyTailDPRegressor(center_X=[0.0, 1000.0], random_state=0).fit(X, X.sum(axis=1))
    assert model.limits_X_[0][1] > 0
    rows = np.array([[0.0, 0.0], [1.0, 1001.0], [0.0, 1e6]])
    for kind in ("csr", "csc"):
        found = model.predict(storage(rows, kind))
        np.testing.assert_allclose(found, model.predict(rows), rtol=1e-12, err_msg=kind)


def test_limits_cover_what_is_seen_and_shrink_with_guesses():
    X, y = table()
    model = HeavyTailDPRegressor(epsilon=4.0, random_state=0).fit(X, y)
    assert model.plan_.solver == "descent"
    low, high = model.limits_X_
    np.testing.assert_array_equal(low, -high)
    assert np.all(np.mean(np.abs(X) > high, axis=0) < 0.01)
    assert np.all(high < 1e3 * np.abs(X).mean(axis=0))
    guessed = clone(model).set_params(scale_X=X.std(axis=0), center_X=X.mean(axis=0)).fit(X, y)
    np.testing.assert_allclose(guessed.limits_X_[1], X.mean(axis=0) + 64 * X.std(axis=0))
    np.testing.assert_array_equal(guessed.center_X_, X.mean(axis=0))
    assert guessed.score(X, y) > 0.9 * LinearRegression().fit(X, y).score(X, y)


# ------------------------------------------------------------------------------- descents


def test_without_noise_and_clips_it_is_least_squares():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 3)) * [1.0, 10.0, 0.1] + [0.0, 50.0, 1.0]
    y = X @ [1.0, -0.2, 5.0] + 3 + rng.standard_normal(400)
    solver = SCOF(tau=1e6, max_iter=2000, learning_rate=0.5)
    plan = solver.plan(facts(400, 3), PrivacyBudget(1.0))
    result = silent(plan).run(solver_data(X, y), stream())
    exact = LinearRegression().fit(X, y)
    np.testing.assert_allclose(result.coef, exact.coef_, rtol=1e-6)
    assert result.intercept == pytest.approx(exact.intercept_, rel=1e-6)


@pytest.mark.parametrize("oracle", ORACLES)
def test_without_noise_every_oracle_agrees_on_light_tails(oracle):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((2000, 2))
    y = X @ [1.0, -1.0] + 0.1 * rng.standard_normal(2000)
    solver = SCOF(**of_two_buckets(oracle), tau=100.0, max_iter=150)
    plan = solver.plan(facts(2000, 2), PrivacyBudget(50.0))
    result = silent(plan).run(solver_data(X, y), stream())
    np.testing.assert_allclose(result.coef, [1, -1], atol=0.02)


def test_a_penalty_shrinks_the_coefficients_and_not_the_intercept():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((500, 2)), rng.standard_normal(500) + 100.0
    results = []
    for penalty in (0.0, 5.0):
        solver = SCOF(tau=1e6, max_iter=1000, learning_rate=0.1, l2_penalty=penalty)
        solver = solver.with_facts(private_scale_X=False, private_center_X=False)
        plan = silent(solver.plan(facts(500, 2), PrivacyBudget(1.0)))
        results.append(plan.run(solver_data(X, y + X[:, 0]), stream()))
    free, shrunk = results
    second_moment = X.T @ X / 500
    expected = np.linalg.solve(second_moment + 5 * np.eye(2), second_moment @ free.coef)
    assert free.coef[0] == pytest.approx(1.0, abs=0.1)
    np.testing.assert_allclose(shrunk.coef, expected, atol=0.01)
    assert shrunk.intercept == pytest.approx(100.0, abs=0.3)


def test_storages_agree_without_centres():
    rng = np.random.default_rng(0)
    X = rng.lognormal(0, 2, (3000, 4)) * (rng.uniform(size=(3000, 4)) < 0.3)
    y = X[:, 0] + rng.standard_normal(3000)
    for solver in (SCOF(max_iter=20), UnboundedDescent(max_iter=5)):
        model = HeavyTailDPRegressor(center_X=0.0, random_state=0, solver=solver)
        expected = clone(model).fit(X, y)
        for kind in ("dense", "csr", "csc"):
            got = model.fit(storage(X, kind), y)
            np.testing.assert_allclose(got.coef_, expected.coef_, rtol=1e-9, err_msg=kind)
            found = got.predict(storage(100 * X, kind))
            np.testing.assert_allclose(found, expected.predict(100 * X), rtol=1e-9, err_msg=kind)


# ----------------------------------------------------------------------------- estimators


def test_the_defaults_need_no_bounds_and_beat_the_mean():
    X, y = table()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = HeavyTailDPRegressor(random_state=0).fit(X[:15_000], y[:15_000])
    exact = LinearRegression().fit(X[:15_000], y[:15_000])
    assert model.score(X[15_000:], y[15_000:]) > exact.score(X[15_000:], y[15_000:]) - 0.05
    trivial = DummyRegressor().fit(X[:15_000], y[:15_000])
    assert trivial.score(X[15_000:], y[15_000:]) < 0.01
    assert model.scale_X_.shape == model.center_X_.shape == (3,)


def test_the_classifier_finds_classes_without_bounds():
    X, y = table(task="classification")
    model = HeavyTailDPClassifier(classes=["a", "b"], random_state=0).fit(X[:15_000], y[:15_000])
    assert model.score(X[15_000:], y[15_000:]) > 0.75
    assert model.predict_proba(X[:5]).shape == (5, 2)


def test_the_classifier_tells_three_classes_apart():
    X, y = table()
    labels = np.digitize(y, [4.95e4, 5.05e4])
    model = HeavyTailDPClassifier(epsilon=3.0, classes=[0, 1, 2], random_state=0).fit(X, labels)
    assert model.coef_.shape == (3, 3)
    assert model.score(X, labels) > 0.5
    assert recomputed_epsilon(model.guarantee_) <= 3.0 * (1 + 1e-4)


def test_units_do_not_matter():
    X, y = table(5000)
    model = HeavyTailDPRegressor(random_state=0)
    base = clone(model).fit(X, y).predict(X)
    # the scales move along; the a-priori weights decide only where the data do not
    moved = clone(model).fit(X * 2.0**5, y * 2.0**-3).predict(X * 2.0**5) * 2.0**3
    np.testing.assert_allclose(moved, base, atol=0.1 * np.std(y))


def test_public_guesses_may_be_off_by_some_factor():
    X, y = table()
    for factor in (0.03, 0.3, 1.0, 3.0):
        guesses = {"scale_X": factor * X.std(axis=0), "center_X": np.median(X, axis=0)}
        model = HeavyTailDPRegressor(**guesses, scale_y=2000.0, center_y=5e4, random_state=0)
        assert model.fit(X, y).score(X, y) > 0.4, factor


def test_outliers_of_any_size_do_not_break_the_model():
    X, y = table()
    rng = np.random.default_rng(0)
    spoiled, spoiled_y = X[:15_000].copy(), y[:15_000].copy()
    spoiled[rng.integers(0, 15_000, 15)] = 1e300
    spoiled_y[rng.integers(0, 15_000, 15)] = -1e300
    model = HeavyTailDPRegressor(random_state=0).fit(spoiled, spoiled_y)
    assert model.score(X[15_000:], y[15_000:]) > 0.4


@rest_is_slow("seeds", (range(2), range(2, 8)), ("range(0, 2)",))
def test_a_scale_that_noise_has_chosen_carries_no_model_away(seeds):
    # nearly all targets are 0, so that every scale is as good as any other
    X = np.random.default_rng(0).standard_normal((2000, 5))
    for share in (0.0, 0.005, 0.02):
        y = np.where(np.random.default_rng(1).uniform(size=2000) < share, 1.0, 0.0)
        for epsilon, seed in itertools.product((0.1, 1.0), seeds):
            model = HeavyTailDPRegressor(epsilon=epsilon, random_state=seed).fit(X, y)
            assert np.abs(model.predict(X)).max() < 5, (share, epsilon, seed)


def test_one_scale_for_all_columns_is_enough_to_learn_from():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 1400)
    X = 100 * (rng.standard_normal((1400, 64)) + 0.5 * y[:, None])
    settings = {"solver": "scof", "classes": [0, 1], "epsilon": 0.1, "relation": "zero-out"}
    fits = [HeavyTailDPClassifier(**settings, random_state=k).fit(X, y) for k in range(9)]
    assert np.median([fit.score(X, y) for fit in fits]) > 0.7
    assert len(np.unique(fits[0].scale_X_)) == 1


def test_wide_tables_and_constant_columns_give_finite_models():
    rng = np.random.default_rng(0)
    X = rng.standard_t(3, (60, 100))
    X[:, :10] = 7.0
    y = X[:, -1]
    for settings in ({}, {"solver": SCOF(max_iter=3)}, {"scale_X": 1.0, "center_X": 0.0}):
        model = HeavyTailDPRegressor(random_state=0, **settings).fit(X, y)
        assert np.all(np.isfinite(model.coef_))
        assert math.isfinite(model.intercept_)


def test_a_huber_loss_may_have_the_size_that_the_user_wants():
    X, y = table(5000)
    model = HeavyTailDPRegressor(loss=Huber(1.0), random_state=0).fit(X, y)
    assert model.score(X, y) > 0.4


def test_guesses_by_column_name():
    pandas = pytest.importorskip("pandas")
    X, y = table(2000)
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    scale, center = {"c": 3.0, "a": 1.0, "b": 2.0}, {"c": 0.0, "a": 5.0, "b": 7.0}
    model = HeavyTailDPRegressor(scale_X=scale, center_X=center, random_state=0).fit(frame, y)
    expected = clone(model).set_params(scale_X=[1.0, 2.0, 3.0], center_X=[5.0, 7.0, 0.0])
    np.testing.assert_array_equal(model.coef_, expected.fit(frame, y).coef_)
    np.testing.assert_array_equal(model.center_X_, [5.0, 7.0, 0.0])
    for value in ("private", 0.0, [1.0], None):
        with pytest.raises(ValueError, match=r"scale_X\['a'\]"):
            clone(model).set_params(scale_X=scale | {"a": value}).fit(frame, y)
    with pytest.raises(ValueError, match="center_X needs"):
        clone(model).set_params(fit_intercept=False).fit(frame, y)
    for name, value in (("scale_X", scale), ("center_X", [0.0, 1.0, 2.0])):
        with pytest.raises(ValueError, match=f"{name} has 3 columns"):
            HeavyTailDPRegressor(**{name: value}).plan(2000, 4)


def test_centres_need_an_intercept():
    X, y = table(40)
    for name in ("center_X", "center_y"):
        with pytest.raises(ValueError, match=name):
            HeavyTailDPRegressor(fit_intercept=False, **{name: 1.0}).fit(X, y)


def test_the_released_norm_of_the_rows_stays_within_its_sensitivity():
    # released where the units are guesses
    rng = np.random.default_rng(0)
    worst = 0.0
    for relation, task in itertools.product(RELATIONS, TASKS):
        problem = facts(6, 2, task)
        solver = SCOF(max_iter=2).with_facts(private_scale_X=False, private_center_X=False)
        plan = solver.plan(problem, PrivacyBudget(1.0, relation=relation))
        found = check_sensitivity(plan, extreme_pairs(problem, relation, rng, 4))
        assert not found.violations
        worst = max(worst, found.ratios["first.row_norm"])
    assert 0.9 < worst <= 1 + 1e-12
