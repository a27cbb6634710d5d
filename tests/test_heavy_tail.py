"""Heavy-tailed tables: the solver's plans and releases, the estimators, bad input."""

import dataclasses
import itertools
import math
import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import LinearRegression
from sklearn.utils.estimator_checks import parametrize_with_checks
from support import problem, recomputed_epsilon, solver_data, storage, stream

from sklearn_dpsco import (
    BudgetAccountant,
    HeavyTailDPClassifier,
    HeavyTailDPRegressor,
    PrivacyBudgetError,
    means,
)
from sklearn_dpsco.accounting import PrivacyBudget
from sklearn_dpsco.audit import check_sensitivity, map_mechanisms
from sklearn_dpsco.geometry import L2Ball
from sklearn_dpsco.losses import Huber, Squared
from sklearn_dpsco.solvers.heavy_tail import FORMS, HeavyTail

ORACLES = list(means.ORACLES)
TASKS = ["regression", "classification"]
RELATIONS = ["replace-one", "zero-out"]


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
            return value if hasattr(self.mechanism, "dimension") else int(np.argmax(value))

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


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("relation", RELATIONS)
def test_plans_agree_with_the_second_accountant(form, delta, task, relation):
    # the second accountant of pure plans takes long for many releases
    sizes = [(1.0, 5000, 3, 1), (0.3, 40, 8, 1), (3.0, 2000, 2, 3)] if delta else [(1.0, 500, 1, 1)]
    for epsilon, n, d, n_models in sizes:
        solver = HeavyTail(form, max_iter=5 if delta else 2)
        plan = solver.plan(
            facts(n, d, task, n_models=n_models), PrivacyBudget(epsilon, delta, relation)
        )
        assert recomputed_epsilon(plan.guarantee) <= epsilon * (1 + 1e-4)


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_plans_spend_what_there_is(delta):
    for task, public in itertools.product(TASKS, [True, False]):
        private = dict.fromkeys(("private_scale_X", "private_scale_y"), not public)
        plan = HeavyTail(**private).plan(facts(5000, 4, task), PrivacyBudget(1.0, delta))
        budget = plan.budget
        limit = {"pure": 1.0, "zcdp": budget.rho, "gdp": budget.mu**2 / 2}
        composition = plan.guarantee.composition
        assert composition == ("pure" if delta == 0 else "gdp" if public else "zcdp")
        assert plan.guarantee.spent == pytest.approx(limit[composition], rel=1e-6)


def test_what_is_given_is_not_paid_for():
    names = lambda plan: {r.name for r in plan.guarantee.releases}  # noqa: E731
    size = {"n_samples": 20_000, "n_features": 3}
    plan = HeavyTailDPRegressor(scale_X=1.0, center_X=0.0, scale_y=2.0, center_y=0.0).plan(**size)
    assert names(plan) == {"mean log norm", "mean target", "mean gradient"}
    plan = HeavyTailDPRegressor(fit_intercept=False).plan(**size)
    assert names(plan) == {"feature scales", "target scales", "mean gradient"}
    plan = HeavyTailDPClassifier(classes=[0, 1]).plan(**size)
    assert names(plan) == {"feature scales", "feature centres", "mean target", "mean gradient"}


def test_the_share_for_scales_is_kept():
    for share in (0.1, 0.5):
        plan = HeavyTailDPRegressor(epsilon=0.3, scale_share=share).plan(5000, 10)
        spent = sum(
            r.count * r.mechanism.cost("zcdp")
            for r in plan.guarantee.releases
            if r.name.startswith("feature")
        )
        assert spent <= share * plan.budget.rho


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("public", [True, False])
def test_the_largest_share_leaves_something_for_the_gradients(delta, task, public):
    given = {"tau": 1.0, "max_iter": 5}  # nothing is left to rules that need a positive rest
    for form in FORMS:
        solver = HeavyTail(form, scale_share=0.7, private_scale_X=not public, **given)
        plan = solver.plan(facts(1000, 3, task), PrivacyBudget(1.0, delta, precision="float"))
        assert all(r.mechanism.scale > 0 for r in plan.guarantee.releases)
        assert all(m.cost(plan.guarantee.composition) > 0 for m in plan.step)
    for share in (0.71, 0.8, 1.0, -0.1):
        with pytest.raises(ValueError, match="scale_share"):
            HeavyTail(scale_share=share, **given).plan(
                facts(1000, 3, task), PrivacyBudget(1.0, delta)
            )


def test_small_tables_learn_an_intercept_only():
    plan = HeavyTailDPRegressor().plan(100, 20)
    assert plan.oracle is None
    assert plan.search_X is None
    # unless the user gives the scales, or insists
    assert HeavyTailDPRegressor(scale_X=1.0, center_X=0.0).plan(1000, 2).oracle is not None
    assert HeavyTailDPRegressor(max_iter=3).plan(100, 20).oracle is not None


def test_more_columns_need_clearer_scales():
    # one scale of many that is far off spoils the predictions
    chances = []
    for d in (1, 10, 100, 1000):
        plan = HeavyTailDPRegressor().plan(int(600 + 290 * math.sqrt(d)), d)
        noise = plan.select_X.scale
        chances.append(64 * d * math.exp(-1 / (2 * noise)))
    assert max(chances) <= 1e-3 * (1 + 1e-9)


def test_features_need_the_centre_of_the_target():
    small = HeavyTailDPRegressor().plan(400, 2)
    assert small.oracle is None
    assert small.search_y.n_rounds > 0
    for settings in ({"center_y": 0.0}, {"fit_intercept": False}, {"max_iter": 5}):
        assert HeavyTailDPRegressor(**settings).plan(400, 2).oracle is not None
    # far from 0 in units of its spread, where the noise would be that of its size
    X, y = table(n=400, d=2)
    fits = [HeavyTailDPRegressor(random_state=k).fit(X, y).score(X, y) for k in range(9)]
    assert np.median(fits) > -3


def test_classes_share_the_scales():
    plan = HeavyTailDPClassifier(classes=range(4)).plan(20_000, 3)
    counts = {r.name: r.count for r in plan.guarantee.releases}
    assert counts["feature scales"] == 3 * plan.search_X.n_scales
    assert counts["mean target"] == 4
    assert counts["mean gradient"] == 4 * plan.max_iter


def test_several_models_cannot_release_the_scales_again():
    rng = np.random.default_rng(0)
    data = solver_data(rng.standard_normal((50, 2)), np.ones(50))
    solver = HeavyTail(max_iter=2)
    plan = solver.plan(facts(50, 2, "classification", n_models=3), PrivacyBudget(1.0))
    with pytest.raises(ValueError, match="prepare"):
        solver.solve(data, plan, stream())
    prepared = dataclasses.replace(data, rows=solver.prepare(data.rows, plan, stream()))
    assert np.all(np.isfinite(solver.solve(prepared, plan, stream()).coef))


def test_slices_are_disjoint_and_have_the_whole_budget():
    full = HeavyTail("scof", max_iter=4).plan(facts(1000, 2), PrivacyBudget(1.0))
    sliced = HeavyTail("scof-slices", max_iter=4, tau=full.oracle.tau).plan(
        facts(1000, 2), PrivacyBudget(1.0)
    )
    assert len({r.group for r in sliced.guarantee.releases if r.name == "mean gradient"}) == 4
    # four times the sensitivity, one release on each record in place of four
    assert sliced.step[0].scale == pytest.approx(2 * full.step[0].scale, rel=1e-9)
    rng = np.random.default_rng(0)
    data = solver_data(rng.standard_normal((1000, 2)), rng.standard_normal(1000))
    rows = data.rows
    from sklearn_dpsco.solvers.heavy_tail import _parts

    parts = _parts(rows, np.arange(1000.0), sliced, stream())
    seen = np.concatenate([part.target for part in parts])
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


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("oracle", ORACLES)
@pytest.mark.parametrize("relation", RELATIONS)
def test_records_of_any_size_stay_within_the_sensitivities(form, oracle, relation):
    rng = np.random.default_rng(0)
    worst = {}
    sizes = itertools.product([5, 8], [3], TASKS, [0.0, 1e-6], [True, False])
    for n, d, task, delta, fit_intercept in sizes:
        solver = HeavyTail(form, oracle, max_iter=3 if form == "scof" else 2, n_buckets=2)
        problem = facts(n, d, task, fit_intercept=fit_intercept)
        plan = solver.plan(problem, PrivacyBudget(1.0, delta, relation))
        found = check_sensitivity(solver, plan, extreme_pairs(problem, relation, rng))
        assert not found.violations
        for name, ratio in found.ratios.items():
            kind = name.partition("[")[0]  # of several slices, a record is in one
            worst[kind] = max(worst.get(kind, 0.0), ratio)
    assert all(0.75 < ratio <= 1 + 1e-12 for ratio in worst.values()), worst


@dataclasses.dataclass(frozen=True)
class Overflowing(Squared):
    """A loss of the user's own whose derivative may be infinite or NaN."""

    def derivative(self, z, y):
        with np.errstate(all="ignore"):
            return np.exp(np.abs(y)) - np.exp(np.abs(z))


@pytest.mark.parametrize("oracle", ORACLES)
def test_a_derivative_that_is_not_finite_moves_no_more_than_another(oracle):
    rng = np.random.default_rng(0)
    base = facts(6, 2)
    for tau in (1.0, 1e-50, 1e50):
        solver = HeavyTail(oracle=oracle, tau=tau, max_iter=2, n_buckets=2)
        plan = solver.plan(dataclasses.replace(base, loss=Overflowing()), PrivacyBudget(1.0))
        assert not check_sensitivity(
            solver, plan, extreme_pairs(base, "replace-one", rng, 6)
        ).violations


def test_an_oracle_without_its_clip_is_found():
    solver = HeavyTail(max_iter=3)
    problem = facts(9, 2)
    plan = solver.plan(problem, PrivacyBudget(1.0))
    loose = dataclasses.replace(plan, oracle=means.NormClipped(2 * plan.oracle.tau))
    pairs = list(extreme_pairs(problem, "replace-one", np.random.default_rng(0)))
    assert not check_sensitivity(solver, plan, pairs).violations
    assert check_sensitivity(solver, loose, pairs).violations
    wide = dataclasses.replace(plan, target_clip=2 * plan.target_clip)
    assert check_sensitivity(solver, wide, pairs).violations


# ------------------------------------------------------------------------------- descents


def test_without_noise_and_clips_it_is_least_squares():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 3)) * [1.0, 10.0, 0.1] + [0.0, 50.0, 1.0]
    y = X @ [1.0, -0.2, 5.0] + 3 + rng.standard_normal(400)
    solver = HeavyTail(tau=1e6, max_iter=4000, learning_rate=0.5)
    plan = solver.plan(facts(400, 3), PrivacyBudget(1.0))
    result = solver.solve(solver_data(X, y), silent(plan), stream())
    exact = LinearRegression().fit(X, y)
    np.testing.assert_allclose(result.coef, exact.coef_, rtol=1e-6)
    assert result.intercept == pytest.approx(exact.intercept_, rel=1e-6)


@pytest.mark.parametrize("oracle", ORACLES)
def test_without_noise_every_oracle_agrees_on_light_tails(oracle):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((2000, 2))
    y = X @ [1.0, -1.0] + 0.1 * rng.standard_normal(2000)
    solver = HeavyTail(oracle=oracle, tau=100.0, n_buckets=2, max_iter=300)
    plan = solver.plan(facts(2000, 2), PrivacyBudget(50.0))
    result = solver.solve(solver_data(X, y), silent(plan), stream())
    np.testing.assert_allclose(result.coef, [1, -1], atol=0.02)


def test_a_penalty_shrinks_the_coefficients_and_not_the_intercept():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((500, 2)), rng.standard_normal(500) + 100.0
    results = []
    for penalty in (0.0, 5.0):
        solver = HeavyTail(
            tau=1e6, max_iter=2000, learning_rate=0.1, l2_penalty=penalty,
            private_scale_X=False, private_center_X=False,
        )  # fmt: skip
        plan = silent(solver.plan(facts(500, 2), PrivacyBudget(1.0)))
        results.append(solver.solve(solver_data(X, y + X[:, 0]), plan, stream()))
    free, shrunk = results
    second_moment = X.T @ X / 500
    expected = np.linalg.solve(second_moment + 5 * np.eye(2), second_moment @ free.coef)
    assert free.coef[0] == pytest.approx(1.0, abs=0.1)
    np.testing.assert_allclose(shrunk.coef, expected, atol=0.01)
    assert shrunk.intercept == pytest.approx(100.0, abs=0.3)


@pytest.mark.parametrize("kind", ["dense", "csr", "csc"])
def test_storages_agree_without_centres(kind):
    rng = np.random.default_rng(0)
    X = rng.lognormal(0, 2, (3000, 4)) * (rng.uniform(size=(3000, 4)) < 0.3)
    y = X[:, 0] + rng.standard_normal(3000)
    model = HeavyTailDPRegressor(center_X=0.0, random_state=0, max_iter=20)
    expected = clone(model).fit(X, y)
    got = model.fit(storage(X, kind), y)
    np.testing.assert_allclose(got.coef_, expected.coef_, rtol=1e-9)
    np.testing.assert_allclose(got.predict(storage(X, kind)), expected.predict(X), rtol=1e-9)


# ----------------------------------------------------------------------------- estimators


@pytest.mark.filterwarnings("ignore::sklearn_dpsco.PrivacyLeakWarning")
@pytest.mark.filterwarnings("ignore::sklearn_dpsco.PrivacyParameterWarning")
@parametrize_with_checks(
    [
        HeavyTailDPRegressor(),
        HeavyTailDPRegressor(
            center_X=0.0, delta=0, solver="scof-slices", max_iter=2, oracle="median-of-means"
        ),
        HeavyTailDPClassifier(max_iter=3, oracle="smoothed"),
    ]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


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


def test_three_classes():
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


@pytest.mark.parametrize("factor", [0.03, 0.3, 1.0, 3.0])
def test_public_guesses_may_be_off_by_some_factor(factor):
    X, y = table()
    guesses = {"scale_X": factor * X.std(axis=0), "center_X": np.median(X, axis=0)}
    model = HeavyTailDPRegressor(**guesses, scale_y=2000.0, center_y=5e4, random_state=0)
    assert model.fit(X, y).score(X, y) > 0.4


def test_outliers_of_any_size_do_not_break_the_model():
    X, y = table()
    rng = np.random.default_rng(0)
    spoiled, spoiled_y = X[:15_000].copy(), y[:15_000].copy()
    spoiled[rng.integers(0, 15_000, 15)] = 1e300
    spoiled_y[rng.integers(0, 15_000, 15)] = -1e300
    model = HeavyTailDPRegressor(random_state=0).fit(spoiled, spoiled_y)
    assert model.score(X[15_000:], y[15_000:]) > 0.4


def test_a_wide_table_and_constant_columns():
    rng = np.random.default_rng(0)
    X = rng.standard_t(3, (60, 100))
    X[:, :10] = 7.0
    y = X[:, -1]
    for settings in ({}, {"max_iter": 3}, {"scale_X": 1.0, "center_X": 0.0}):
        model = HeavyTailDPRegressor(random_state=0, **settings).fit(X, y)
        assert np.all(np.isfinite(model.coef_))
        assert math.isfinite(model.intercept_)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_records_that_are_not_finite(value):
    X, y = table(5000)
    spoiled = X.copy()
    spoiled[7, 1] = value
    with pytest.raises(ValueError, match="X contains"):
        HeavyTailDPRegressor().fit(spoiled, y)
    model = HeavyTailDPRegressor(nonfinite="zero", random_state=0).fit(spoiled, y)
    other = spoiled.copy()
    other[7] = np.nan
    again = HeavyTailDPRegressor(nonfinite="zero", random_state=0).fit(other, y)
    np.testing.assert_array_equal(model.coef_, again.coef_)
    assert model.score(X, y) > 0.4


def test_an_accountant_is_charged_once():
    X, y = table(5000)
    accountant = BudgetAccountant(1.0)
    HeavyTailDPRegressor(epsilon=0.8, accountant=accountant).fit(X, y)
    assert len(accountant.ledger) == 1
    with pytest.raises(PrivacyBudgetError):
        HeavyTailDPRegressor(epsilon=0.8, accountant=accountant).fit(X, y)


def test_a_huber_loss_of_the_users_size():
    X, y = table(5000)
    model = HeavyTailDPRegressor(loss=Huber(1.0), random_state=0).fit(X, y)
    assert model.score(X, y) > 0.4


BAD = [
    *[("scale_X", v) for v in (0, -1.0, np.nan, "auto", [1.0, 0.0], np.ones((2, 2)), None)],
    *[("center_X", v) for v in (np.inf, "mean", np.ones((2, 2)))],
    *[("scale_share", v) for v in (0, 0.71, 0.8, np.nan, "half")],
    *[("oracle", v) for v in ("mean", None)],
    *[("moment_order", v) for v in (1.5, np.nan, "2")],
    *[("moment_bound", v) for v in (0.0, -1.0)],
    *[("tau", v) for v in (0.0, -2, "big")],
    *[("n_buckets", v) for v in (0, 1.5)],
    *[("l2_penalty", v) for v in (-1.0, np.nan)],
    *[("solver", v) for v in ("auto", "noisy-md")],
    *[("max_iter", v) for v in (0, 2.5)],
    *[("learning_rate", v) for v in (0.0, np.inf)],
    *[("radius", v) for v in (0.0, "wide")],
]
BAD_TARGETS = [("scale_y", 0.0), ("scale_y", [1.0]), ("scale_y", "auto"), ("center_y", np.nan)]


@pytest.mark.parametrize(("name", "value"), BAD + BAD_TARGETS)
def test_bad_parameters_are_named_before_any_data(name, value):
    with pytest.raises(ValueError, match=name):
        HeavyTailDPRegressor(**{name: value}).fit(None, None)
    if (name, value) in BAD_TARGETS:
        return
    with pytest.raises(ValueError, match=name):
        HeavyTailDPClassifier(classes=[0, 1], **{name: value}).fit(None, None)


def test_guesses_by_column_name():
    pandas = pytest.importorskip("pandas")
    X, y = table(2000)
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    scale, center = {"c": 3.0, "a": 1.0, "b": 2.0}, {"c": 0.0, "a": 5.0, "b": 7.0}
    model = HeavyTailDPRegressor(scale_X=scale, center_X=center, random_state=0)
    expected = clone(model).set_params(scale_X=[1.0, 2.0, 3.0], center_X=[5.0, 7.0, 0.0])
    np.testing.assert_array_equal(model.fit(frame, y).coef_, expected.fit(frame, y).coef_)
    np.testing.assert_array_equal(model.center_X_, [5.0, 7.0, 0.0])
    with pytest.raises(ValueError, match="data frame"):
        model.fit(X, y)
    for wrong in ({"a": 1.0, "b": 1.0}, scale | {"d": 1.0}):
        with pytest.raises(ValueError, match="scale_X must name every column"):
            clone(model).set_params(scale_X=wrong).fit(frame, y)
    for value in ("private", 0.0, [1.0], None):
        with pytest.raises(ValueError, match=r"scale_X\['a'\]"):
            clone(model).set_params(scale_X=scale | {"a": value}).fit(frame, y)
    with pytest.raises(ValueError, match="center_X needs"):
        clone(model).set_params(fit_intercept=False).fit(frame, y)
    for name, value in (("scale_X", scale), ("center_X", [0.0, 1.0, 2.0])):
        with pytest.raises(ValueError, match=f"{name} has 3 columns"):
            HeavyTailDPRegressor(**{name: value}).plan(2000, 4)


def test_what_does_not_fit_together():
    X, y = table(40)
    with pytest.raises(ValueError, match="n_buckets=41"):
        HeavyTailDPRegressor(oracle="median-of-means", n_buckets=41, max_iter=2).fit(X, y)
    with pytest.raises(ValueError, match="center_X=0"):
        HeavyTailDPRegressor().fit(sparse.csr_array(X), y)
    with pytest.raises(ValueError, match="center_X=0"):
        HeavyTailDPRegressor(center_X=1.0).fit(sparse.csr_array(X), y)
    with pytest.raises(ValueError, match="scale_X"):
        HeavyTailDPRegressor(scale_X=[1.0, 2.0]).fit(X, y)
    for name in ("center_X", "center_y"):
        with pytest.raises(ValueError, match=name):
            HeavyTailDPRegressor(fit_intercept=False, **{name: 1.0}).fit(X, y)


def test_extreme_guesses_are_replayed():
    # the released norm of the rows, where the units are guesses
    rng = np.random.default_rng(0)
    worst = 0.0
    for relation, task in itertools.product(RELATIONS, TASKS):
        problem = facts(6, 2, task)
        solver = HeavyTail(max_iter=2, private_scale_X=False, private_center_X=False)
        plan = solver.plan(problem, PrivacyBudget(1.0, relation=relation))
        found = check_sensitivity(solver, plan, extreme_pairs(problem, relation, rng, 20))
        assert not found.violations
        worst = max(worst, found.ratios["row_norm"])
    assert 0.9 < worst <= 1 + 1e-12
