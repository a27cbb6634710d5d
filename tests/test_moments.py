"""One release of second moments, and the regressions that follow from it."""

import dataclasses
import functools
import json
import math
import warnings

import numpy as np
import pytest
from scipy import stats
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from support import recomputed_epsilon, rest_is_slow

from sklearn_dpsco import (
    BudgetAccountant,
    DPLinearRegression,
    PrivacyBudget,
    PrivacyBudgetError,
    PrivacyParameterWarning,
    PrivateMoments,
    PrivateVocabulary,
    PublicEncoder,
)
from sklearn_dpsco import moments as module
from sklearn_dpsco.audit import check_sensitivity, neighbours
from sklearn_dpsco.moments import MomentsPlan
from sklearn_dpsco.privacy.budget import RELATIONS

COMMON = {"delta": 1e-6, "relation": "zero-out", "bounds_X": (-12, 12), "random_state": 0}
pytestmark = pytest.mark.filterwarnings("ignore:epsilon=inf", "ignore:.*some intervals may be")


def table(n, seed=0):
    """Five columns; the fourth and fifth are linear in the first three, with noise 1 and 2."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3)).clip(-5, 5)
    X[:, 1] = 0.8 * X[:, 0] + 0.6 * X[:, 1] + 2
    Y = X @ SLOPES + [1, 0] + rng.normal(size=(n, 2)) * [1, 2]
    return np.column_stack((X, Y))


SLOPES = np.array([[1.0, 0.0], [-0.5, 0.3], [0.0, 0.7]])


@functools.cache
def released(n=20_000, epsilon=3.0, seed=0, **others):
    X = table(n, seed)
    return PrivateMoments(**{**COMMON, "epsilon": epsilon, "random_state": seed, **others}).fit(X)


# -------------------------------------------------------------------------------- privacy


@rest_is_slow(
    ("epsilon", "relation"),
    [(e, r) for e in (1.0, 400.0) for r in RELATIONS],
    ["1.0-zero-out", "400.0-replace-one"],
)
def test_no_record_moves_a_release_beyond_its_sensitivity(epsilon, relation):
    may_be_empty = relation == "zero-out"  # pairs under replace-one differ in no empty record
    plan = MomentsPlan.of(60, 3, PrivacyBudget(epsilon, 1e-6, relation), may_be_empty)
    assert plan.units.n_rounds == (0 if epsilon < 100 else 2)
    assert (plan.units.sizes is None) == (epsilon < 100)
    plan = dataclasses.replace(plan, n_far=30)  # so that rows reach the bound
    found = check_sensitivity(plan, neighbours(plan.problem, relation, 6))
    assert not found.violations, found
    found.ratios.pop("units.sizes", None)  # of numbers that are far smaller than these
    assert all(ratio > 0.3 for ratio in found.ratios.values()), found


def test_a_replay_finds_rows_that_are_not_weighed(monkeypatch):
    plan = MomentsPlan.of(60, 3, PrivacyBudget(400.0, 1e-6, "zero-out"))
    plan = dataclasses.replace(plan, n_far=30)
    monkeypatch.setattr(module, "clipped_to", lambda bound, norms: np.ones(norms.size))
    found = check_sensitivity(plan, neighbours(plan.problem, "zero-out", 4))
    assert "moments" in found.violations, found


def test_the_budget_is_spent_and_charged():
    for n, d, nonfinite in ((600, 4, "raise"), (5000, 8, "zero")):
        plan = PrivateMoments(**COMMON, nonfinite=nonfinite).plan(n, d)
        assert (plan.units.present is None) == (nonfinite == "raise")
        assert plan.guarantee.second_opinion() <= 1 + 1e-4
        assert 0.99 < recomputed_epsilon(plan.guarantee) <= 1 + 1e-4
    accountant = BudgetAccountant(epsilon=1.2, delta=1e-5, relation="zero-out")
    moments = released(2000, 1.0, accountant=accountant)
    moments.regression(3), moments.goodness_of_fit(3)  # cost nothing
    assert np.array_equal(moments.regression(3, 0).coef, moments.regression(3, [0]).coef)
    with pytest.raises(PrivacyBudgetError):
        moments.fit(table(2000))
    assert len(accountant.ledger) == 1


# ------------------------------------------------------------------------------ estimates


def test_without_noise_regressions_are_those_of_statsmodels():
    models = pytest.importorskip("statsmodels.api")
    X = table(3000)
    moments = released(3000, math.inf)
    np.testing.assert_allclose(moments.mean_, X.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(moments.covariance_, np.cov(X.T, bias=True), rtol=1e-5, atol=1e-6)
    for target, features in ((3, [0, 1, 2]), (4, [2, 0]), (0, [3])):
        for fit_intercept in (True, False):
            Z = X[:, features]
            Z = np.column_stack((Z, np.ones(len(Z)))) if fit_intercept else Z
            other = models.OLS(X[:, target], Z).fit()
            found = moments.regression(target, features, fit_intercept=fit_intercept)
            np.testing.assert_allclose(found.coef[0], other.params, rtol=1e-6, atol=1e-7)
            np.testing.assert_allclose(found.std[0], other.bse, rtol=1e-6)
        fit = moments.goodness_of_fit(target, features)
        other = models.OLS(X[:, target], models.add_constant(X[:, features])).fit()
        assert fit["r2"] == pytest.approx(other.rsquared, abs=1e-5)
        assert fit["r2_noise"] < 1e-9
        assert fit["r2_adjusted"] == pytest.approx(other.rsquared_adj, abs=1e-5)
        assert fit["aic"] == pytest.approx(other.aic, rel=1e-5)
        assert fit["bic"] == pytest.approx(other.bic, rel=1e-5)


@rest_is_slow(("n", "epsilon"), [(20_000, 1.0), (2500, 1.0)], ("2500-1.0",))
def test_standard_errors_are_those_of_repeated_tables(n, epsilon):
    errors, naive = [], []
    for seed in range(40):
        moments = released(n, epsilon, seed)
        for k in range(2):
            found = moments.regression(3 + k, [0, 1, 2])
            errors.append((found.coef[0, :3] - SLOPES[:, k]) / found.std[0, :3])
            naive.append((found.coef[0, :3] - SLOPES[:, k]) / found.std_sampling[0, :3])
    squares = (np.array(errors)[::2, 2] ** 2).sum()  # one of each table, which are independent
    assert stats.chi2(40).ppf(1e-7) * 0.85 < squares < stats.chi2(40).isf(1e-7) * 1.15
    assert (np.array(naive)[::2, 2] ** 2).mean() > (1.2 if n == 2500 else 0.5)
    assert np.mean(np.abs(errors) < 1.96) > 0.85


def test_rows_are_hardly_cut_by_a_skewed_target():
    common = {"epsilon": 1.0, "relation": "replace-one", "bounds_X": ([0] * 5, [1] * 4 + [50])}
    errors = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X = rng.uniform(size=(20_000, 4))
        mean = 0.05 * np.exp(0.8 * X[:, 0] - 0.4 * X[:, 1])
        y = np.where(rng.random(20_000) < 0.05, rng.gamma(2, mean / 0.1), 0)
        found = PrivateMoments(**common, random_state=seed).fit(np.column_stack((X, y)))
        one = found.regression(4)
        true = np.linalg.lstsq(np.column_stack((X, np.ones(20_000))), mean)[0]
        errors.append((one.coef[0] - true)[0] / one.std[0, 0])
    assert np.mean(errors) > -1.5, errors
    assert one.std[0, 0] < 4 * one.residual_std[0] / math.sqrt(20_000 / 12)


def test_a_length_by_chance_does_not_hide_usual_columns():
    common, smallest = {"relation": "replace-one", "epsilon": 1.0}, []
    for seed in range(30):
        X = np.random.default_rng(seed).normal(size=(1000, 5))
        facts = {**COMMON, **common, "bounds_X": (-6, 6), "random_state": seed}
        smallest.append(np.diag(PrivateMoments(**facts).fit(X).covariance_).min())
    assert min(smallest) > 0.3, smallest


def test_a_rare_flag_does_not_widen_intervals_of_other_columns():
    rng = np.random.default_rng(0)
    X = np.column_stack((table(20_000), rng.random(20_000) < 0.01))
    common = {**COMMON, "epsilon": 3.0}
    found = PrivateMoments(**common).fit(X).regression(3, [0, 1, 2, 5])
    without = PrivateMoments(**common).fit(X[:, :5]).regression(3, [0, 1, 2])
    assert np.all(found.std[0, :3] < 1.2 * without.std[0, :3])
    assert abs(found.coef[0, 3]) < 4 * found.std[0, 3] < 4


def test_several_rare_flags_do_not_widen_intervals_of_other_columns():
    ratios, bounds = [], ([0] * 6 + [-10], [1] * 6 + [10])
    common = {**COMMON, "relation": "replace-one", "epsilon": 1.0, "bounds_X": bounds}
    for seed in range(5, 14):
        rng = np.random.default_rng(seed)
        flags = rng.random((20_000, 6)) < [0.01] * 5 + [0.5]
        X = np.column_stack((flags, flags.sum(axis=1) + rng.normal(size=20_000)))
        found = PrivateMoments(**{**common, "random_state": seed}).fit(X).regression(6)
        ratios.append(found.std[0, 5] * math.sqrt(20_000 / 4))
    assert np.median(ratios) < 2, ratios  # whole lines, were each flag as long as others vary


def test_many_regressions_are_as_sure_as_one():
    one = released(20_000, 1.0).regression(3, [0, 1, 2])
    fortieth = released(20_000, 1.0 / 40).regression(3, [0, 1, 2])
    assert np.all(one.std[0] < 0.5 * fortieth.std[0])


def test_bounds_that_are_far_too_wide_cost_little():
    X = table(20_000) * [1, 1, 0.1, 10, 1]
    X[:, 2] += X[:, 0]  # ill-conditioned besides
    plain = ([-12, -12, -12, -120, -12], [12, 12, 12, 120, 12])
    wide = ([-40, -12, -300, -200, -100], [12, 300, 12, 200, 30])
    ratios = []
    for bounds in (plain, wide):
        moments = PrivateMoments(**{**COMMON, "epsilon": 3.0, "bounds_X": bounds}).fit(X)
        found = moments.regression(3)
        ratios.append(found.std / found.std_sampling)
    assert np.all(ratios[0] < 1.3), ratios
    assert np.all(ratios[1] < 2), ratios


def test_columns_that_are_hardly_seen_in_their_bounds_are_found():
    ratios, bounds = [], np.append(np.geomspace(10, 700, 8), 25.0)  # in standard deviations
    common = {**COMMON, "relation": "replace-one", "epsilon": 1.0, "bounds_X": (-bounds, bounds)}
    for seed in range(5):
        X = np.random.default_rng(seed).normal(size=(8000, 9))
        X[:, 8] += 0.3 * X[:, :8].sum(axis=1)
        found = PrivateMoments(**{**common, "random_state": seed}).fit(X).regression(8)
        ratios.append(found.std.max() * math.sqrt(8000))
    assert np.median(ratios) < 2.5, ratios


def test_rows_that_are_empty_leave_intervals_as_wide_as_fewer_rows_do():
    X = table(20_000)
    fewer = PrivateMoments(**COMMON, epsilon=3.0).fit(X[:12_000])
    X[12_000:, 0] = np.nan
    moments = PrivateMoments(**COMMON, epsilon=3.0, nonfinite="zero").fit(X)
    np.testing.assert_allclose(moments.mean_, X[:12_000].mean(axis=0), atol=0.1)
    ratio = moments.regression(3).std / fewer.regression(3).std
    assert np.all((ratio > 0.8) & (ratio < 1.3))
    ratio = moments.regression(3).std_sampling / fewer.regression(3).std_sampling
    np.testing.assert_allclose(ratio, 1, atol=0.05)


def test_columns_of_which_one_follows_from_others_are_not_told_apart():
    X = table(3000)
    X = np.column_stack((X, X[:, 0] - X[:, 2], np.full(3000, 5.0)))
    for epsilon in (math.inf, 5.0):
        moments = PrivateMoments(**COMMON, epsilon=epsilon).fit(X)
        found = moments.regression(3, [0, 1, 2, 5, 6])
        assert np.isinf(found.std).tolist() == [[True, False, True, True, True, True]]
        assert abs(found.coef[0, 1] + 0.5) < 6 * found.std[0, 1]
        functions = np.array([[1, 0, 0, 1, 0, 0], [0, 0, 1, -1, 0, 0.0]])  # which are identified
        std, _ = found.errors(functions)
        assert np.isfinite(std).all()
        assert np.all(np.abs(functions @ found.coef[0] - [1.0, 0.0]) < 6 * std)
        assert np.all(np.abs(found.coef) < 20)  # and nothing wild where nothing is known


def test_a_ridge_shrinks_and_says_so():
    X, moments = table(20_000), released(20_000, math.inf)
    widths = X[:, :3].std(axis=0)
    Z = (X[:, :3] - X[:, :3].mean(axis=0)) / widths
    y = X[:, 3] - X[:, 3].mean()
    path = moments.ridge_path(3, [0, 1, 2], [0.0, 0.5, 10.0])
    np.testing.assert_array_equal(moments.ridge_path(3, [0, 1, 2], 0.5), path[1:2])
    for alpha, coef in zip((0.0, 0.5, 10.0), path, strict=True):
        expected = np.linalg.solve(Z.T @ Z / len(Z) + alpha * np.eye(3), Z.T @ y / len(Z))
        np.testing.assert_allclose(coef * widths, expected, rtol=1e-3, atol=1e-4)
    plain, shrunk = moments.regression(3, [0, 1, 2]), moments.regression(3, [0, 1, 2], ridge=0.5)
    np.testing.assert_allclose(shrunk.coef[0, :3], path[1], rtol=1e-6)
    assert np.all(shrunk.std_sampling[0, :3] < plain.std_sampling[0, :3])
    assert "do not cover least squares" in str(shrunk)
    with pytest.warns(PrivacyParameterWarning, match="do not cover least squares"):
        shrunk.conf_int()
    assert "do not cover" not in str(plain)


def test_columns_that_hardly_vary_have_the_whole_line():
    X = np.column_stack((table(20_000), np.zeros(20_000)))
    moments = PrivateMoments(epsilon=1.0, **COMMON).fit(X)
    found = moments.regression(3, [0, 1, 2, 5])
    assert np.isinf(found.std).tolist() == [[False, False, False, True, False]]
    assert np.all(np.abs(found.coef[0, :3] - SLOPES[:, 0]) < 6 * found.std[0, :3])
    assert "of the coefficients of x5: noise" in found.notes[-1]
    assert "drop='first'" in found.notes[-1]
    assert "nothing is known" not in str(moments.regression(3, [0, 1, 2]))


def test_advice_that_is_followed_is_not_given():
    encoder = PublicEncoder({"a": (-12, 12), "b": (-12, 12), "c": ["u", "v"]}, drop="first")
    X = np.column_stack((table(20_000)[:, :2], np.zeros(20_000)))
    moments = PrivateMoments(**{**COMMON, "bounds_X": encoder}).fit(X)
    moments.set_params(bounds_X=(-1, 1))  # what the fit had is what counts
    note = moments.regression(0).notes[-1]
    assert "of the coefficients of c_v:" in note
    assert "drop" not in note
    assert "epsilon" in note


def test_a_column_of_the_table_stands_for_all_its_categories():
    pandas = pytest.importorskip("pandas")
    encoder = PublicEncoder({"a": (0, 10), "c": ["u", "v", "w"]}, drop="first", unknown="other")
    X = np.random.default_rng(0).uniform(0, 1, (20_000, 4))
    moments = PrivateMoments(**{**COMMON, "bounds_X": encoder}).fit(X)
    # also of what was written to a file
    for found in (moments, PrivateMoments.from_json(moments.to_json())):
        by_name = found.regression("a", "c")
        assert by_name.to_frame().index.tolist() == ["c_v", "c_w", "c_other", "(intercept)"]
        apart = found.regression("a", ["c_v", "c_w", "c_other"])
        assert by_name.to_frame().equals(apart.to_frame())
        assert by_name.wald_test("c") == apart.wald_test(["c_v", "c_w", "c_other"])
    with pytest.raises(ValueError, match="no column 'c'"):
        moments.regression("c", "a")
    moments.fit(pandas.DataFrame(X, columns=list("pqrs")))  # which it did not make
    with pytest.raises(ValueError, match="no column 'c'"):
        moments.regression("p", "c")


def test_columns_of_an_encoder_have_the_names_and_units_of_its_table():
    pandas = pytest.importorskip("pandas")
    raw = np.random.default_rng(1).uniform([0, -5], [10, 15], (20_000, 2))
    target = 2 * raw[:, 0] - raw[:, 1]
    encoder = PublicEncoder({"a": (0, 10), "b": (-5, 15), "t": (-20, 40)})
    cells = pandas.DataFrame(np.column_stack((raw, target)), columns=["a", "b", "t"])
    X = np.asarray(encoder.fit_transform(cells))
    moments = PrivateMoments(**{**COMMON, "bounds_X": encoder, "epsilon": math.inf}).fit(X)
    for found in (moments, PrivateMoments.from_json(moments.to_json())):
        line = found.regression("t", ["a", "b"])
        np.testing.assert_allclose(line.coef, [[2, -1, 0]], atol=1e-3)
        np.testing.assert_allclose(found.mean_, cells.mean(), atol=0.1)
    parts = [("one", PublicEncoder({"a": (0, 10), "b": (-5, 15)}), ["a", "b"])]
    parts.append(("two", PublicEncoder({"t": (-20, 40)}), ["t"]))
    for output in ("default", "pandas"):
        beside = ColumnTransformer(parts).set_output(transform=output)
        model = PrivateMoments(**{**COMMON, "bounds_X": clone(beside), "epsilon": math.inf})
        line = model.fit(beside.fit_transform(cells)).regression("two__t", ["one__a", "one__b"])
        np.testing.assert_allclose(line.coef, [[2, -1, 0]], atol=1e-3)
    # of the copy of a vocabulary nobody knows the words
    parts.append(("words", PrivateVocabulary(epsilon=math.inf), "text"))
    beside = ColumnTransformer(parts, sparse_threshold=0)
    X_words = beside.fit_transform(cells.assign(text="some words"))
    with pytest.raises(NotFittedError):
        DPLinearRegression(bounds_X=clone(beside), bounds_y=(0, 1)).plan(100, clone(beside))
    for copied in (beside, clone(beside)):
        model = PrivateMoments(**{**COMMON, "bounds_X": copied, "epsilon": math.inf}).fit(X_words)
        assert model.mean_.shape == (5,)
        assert hasattr(model, "feature_names_in_") == (copied is beside)
    renamed = pandas.DataFrame(X, columns=["u", "v", "w"])
    with_own = PrivateMoments(**{**COMMON, "bounds_X": encoder}).fit(renamed)
    assert with_own.to_frame().index.tolist() == ["u", "v", "w"]
    assert np.all(np.abs(with_own.mean_) < 1)  # those of the columns that were given


@pytest.mark.parametrize("method", ["forward", "best"])
def test_a_column_that_noise_hides_is_not_chosen(method):
    X = table(20_000)
    X[:, 1], X[:, 2] = 0.3, np.random.default_rng(1).normal(size=20_000)  # constant, and of no use
    for order in ([0, 1, 2, 3], [1, 0, 2, 3]):
        moments = PrivateMoments(**COMMON, epsilon=3.0).fit(X[:, order])
        assert math.isnan(moments.goodness_of_fit(3, [order.index(1)])["bic"])
        assert moments.select(3, method=method).names == (f"x{order.index(0)}",)


@pytest.mark.parametrize("criterion", ["aic", "bic"])
def test_without_noise_a_choice_is_that_by_the_usual_criteria(criterion):
    rng = np.random.default_rng(4)
    Z = rng.normal(size=(400, 6)) @ (np.eye(6) + 0.6)
    X = np.column_stack((Z, Z @ [0.1, -0.1, 0.07, 0.05, 0, 0] + rng.normal(size=400)))
    moments = PrivateMoments(**COMMON, epsilon=math.inf).fit(X)
    subsets = [[k for k in range(6) if i >> k & 1] for i in range(1, 64)]
    best = min(subsets, key=lambda some: moments.goodness_of_fit(6, some)[criterion])
    assert moments.select(6, criterion=criterion, method="best").names == tuple(
        f"x{k}" for k in best
    )
    chosen, least = [], math.inf
    while True:
        steps = [[*chosen, k] for k in range(6) if k not in chosen]
        scores = [moments.goodness_of_fit(6, some)[criterion] for some in steps]
        if not steps or min(scores) >= least:
            break
        chosen, least = steps[scores.index(min(scores))], min(scores)
    forward = moments.select(6, criterion=criterion)
    assert forward.names == tuple(f"x{k}" for k in chosen)


def test_noise_is_hardly_ever_chosen():
    rng = np.random.default_rng(0)
    L, n = rng.normal(size=(6000, 3)), 6000
    skills = 50 + 7 * (L[:, [0, 1, 2, 0, 1]] + rng.normal(size=(n, 5)))
    Z = np.column_stack((skills,
                         rng.uniform(20, 65, n), rng.random(n) < 0.5, rng.normal(38, 6, n),
    ))  # fmt: skip
    mean = 100 + 0.5 * np.outer(Z[:, 0] - 50, np.arange(40) % 3) - 3 * Z[:, 6:7]
    X = np.column_stack((Z, mean + rng.normal(0, 10, (n, 40))))
    ends = np.repeat([100, 70, 1, 80, 250], [5, 1, 1, 1, 40])
    common = {**COMMON, "epsilon": 1.0, "bounds_X": (0 * ends, ends)}
    moments = PrivateMoments(**common).fit(X)
    chosen = [set(moments.select(8 + k, range(8)).names) - {"x0", "x6"} for k in range(20)]
    assert sum(map(len, chosen)) <= 3, chosen


def test_a_choice_says_that_intervals_do_not_cover():
    moments = released(20_000, 3.0)
    chosen = moments.select(3)
    assert {"x0", "x1"} <= set(chosen.names)
    assert "do not cover" in str(chosen)
    assert "do not cover" not in str(moments.regression(3))


# --------------------------------------------------------------------------- what is told


def test_names_and_json():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(table(5000), columns=list("abcde"))
    bounds = dict.fromkeys("abcde", (-12, 12))
    moments = PrivateMoments(**{**COMMON, "bounds_X": bounds}).fit(frame)
    found = moments.regression("d", ["a", "c"])
    assert found.names == ("a", "c")
    assert found.title.startswith("d by least squares")
    text = moments.to_json()
    assert list(json.loads(text))[:4] == ["format", "columns", "n_samples", "epsilon"]
    again = PrivateMoments.from_json(text)
    assert again.to_json() == text
    other = again.regression("d", ["a", "c"])
    np.testing.assert_array_equal(other.coef, found.coef)
    np.testing.assert_array_equal(other.cov, found.cov)
    assert again.noise_is_secret_ is False
    with pytest.raises(AttributeError, match="claim is in epsilon, delta and relation"):
        _ = again.guarantee_
    facts = json.loads(text)
    assert (facts["epsilon"], facts["delta"], facts["relation"]) == (1.0, 1e-6, "zero-out")
    assert (facts["low"], facts["high"]) == ([-12.0] * 5, [12.0] * 5)
    assert facts["noise_scale"] == moments.plan_.moments.scale
    without = released(500, math.inf).to_json()
    assert json.loads(without)["epsilon"] is None
    assert PrivateMoments.from_json(without).epsilon == math.inf
    assert moments.to_frame().columns.tolist() == list("abcde")
    assert facts["precision"] == moments.precision == again.precision
    later = {"sources", "precision"} if moments.precision == "exact" else {"sources"}
    older = json.dumps({name: fact for name, fact in facts.items() if name not in later})
    assert PrivateMoments.from_json(older).to_json() == text
    for wrong in ("{}", "[1]", "moments.json", text.replace('"back"', '"front"')):
        with pytest.raises(ValueError, match="not a whole release of the format"):
            PrivateMoments.from_json(wrong)
    wrong = {"noise_scale": -1.0, "n_far": "few", "noise_is_secret": "no", "sources": ["a"]}
    wrong |= {"precision": "double"}
    for name, value in {**wrong, "moments": facts["moments"][:-1]}.items():
        with pytest.raises(ValueError, match="not a whole release of the format"):
            PrivateMoments.from_json(json.dumps(facts | {name: value}))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.regression("z"), "the table has no column 'z': it has x0, x1, x2 and 2 more"),
        (lambda m: m.regression(9), "the table has no column 9"),
        (lambda m: m.regression(3, [3]), "without the target"),
        (lambda m: m.regression(3, [0, 0]), "different columns"),
        (lambda m: m.regression(3, []), "at least one"),
        (lambda m: m.ridge_path(3, [0], [-1.0]), "ridge must be"),
        (lambda m: m.select(3, criterion="cp"), "criterion must be"),
        (lambda m: m.select(3, method="all"), "method must be"),
        (lambda m: m.regression(3, ridge=-1.0), "ridge must be"),
        (lambda m: m.regression(3, fit_intercept=2), "fit_intercept must be"),
    ],
)
def test_wrong_questions(call, message):
    with pytest.raises(ValueError, match=message):
        call(released(500, 5.0))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"delta": 0.0}, "no pure-DP form"),
        ({"max_rows_per_user": 2}, "needs max_rows_per_user=1"),
        ({"bounds_X": (1, 0)}, "bounds_X"),
        ({"nonfinite": "drop"}, "nonfinite must be"),
    ],
)
def test_wrong_parameters(parameters, message):
    with pytest.raises(ValueError, match=message):
        PrivateMoments(**{**COMMON, **parameters}).fit(table(100))


def test_wrong_tables_spend_nothing():
    accountant = BudgetAccountant(epsilon=1.5, delta=1e-5, relation="zero-out")
    moments = PrivateMoments(**COMMON, accountant=accountant)
    broken = table(100)
    broken[0, 0] = np.nan
    for X, y, message in (
        (broken, None, "nonfinite='zero'"),
        (table(100), np.zeros(100), "among the columns of X"),
        (table(1), None, "minimum of 2"),
        (table(6), None, "n_samples=6 must be larger"),
    ):
        with pytest.raises(ValueError, match=message):
            moments.fit(X, y)
    assert not accountant.ledger
    assert moments.set_params(nonfinite="zero").fit(np.tile(broken, (9, 1))).mean_.size == 5


@pytest.mark.filterwarnings("default:.*some intervals may be")
def test_few_rows_are_told():
    moments = PrivateMoments(**{**COMMON, "epsilon": 1.0})
    for n, told in ((500, "most"), (850, "some"), (2000, None)):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            moments.plan(n, 6)
        known = [
            f"n_samples={n} is too small for regressions on all of 6 columns",
            f"{told} intervals",
        ]
        assert len(said) == bool(told)
        for one in said:
            assert one.category is PrivacyParameterWarning
            assert all(part in str(one.message) for part in known)


@pytest.mark.filterwarnings("ignore::sklearn_dpsco.PrivacyParameterWarning")
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_no_number_that_noise_hides_warns():
    """In a table of empty records, by which sums are divided."""
    for seed in range(6):
        moments = PrivateMoments(bounds_X=(-1, 1), nonfinite="zero", random_state=seed)
        moments.fit(np.full((400, 2), np.nan))


@pytest.mark.filterwarnings("ignore::sklearn_dpsco.PrivacyParameterWarning")
def test_means_are_not_divided_by_a_number_of_rows_that_noise_hides():
    """It was next to 0 in a fifth of these releases, and means 1e300."""
    X, errors = np.random.default_rng(0).uniform(0, 1, (200, 5)), []
    for seed in range(60):
        fitted = PrivateMoments(epsilon=0.5, bounds_X=(0, 1), random_state=seed).fit(X)
        errors.append(fitted.mean_ - X.mean(axis=0))
        assert np.abs(fitted.covariance_).max() < 10.0
    assert np.sqrt(np.mean(np.square(errors))) < 0.8


def test_r2_tells_its_noise_and_nothing_where_noise_hides_a_direction():
    X = table(3000)
    true = released(3000, math.inf).goodness_of_fit(3, [0, 1, 2])["r2"]
    found = []
    for seed in range(20, 50):  # (noise hides a direction in one of 100)
        moments = PrivateMoments(**{**COMMON, "epsilon": 1.0, "random_state": seed}).fit(X)
        found.append(moments.goodness_of_fit(3, [0, 1, 2]))
    z = [(one["r2"] - true) / one["r2_noise"] for one in found]
    assert 0.6 < np.sqrt(np.mean(np.square(z))) < 1.6
    assert np.median([one["r2_noise"] for one in found]) > 1e-3
    still = np.column_stack((X, np.zeros(len(X))))
    hidden = PrivateMoments(**{**COMMON, "epsilon": 1.0, "random_state": 0}).fit(still)
    assert np.isnan([*hidden.goodness_of_fit(3, [0, 1, 5]).values()]).all()
    assert np.isfinite([*hidden.goodness_of_fit(3, [0, 1]).values()]).all()


def test_noise_of_criteria_is_that_of_repeated_releases():
    """Of one model, and against others: by a column of no use, not nested, by one of use."""
    X = np.column_stack((table(3000), np.random.default_rng(5).normal(size=3000)))
    all_moments = [
        PrivateMoments(**{**COMMON, "epsilon": epsilon, "random_state": seed}).fit(X)
        for epsilon, seed in ((math.inf, 0), *((3.0, seed) for seed in range(30)))
    ]

    def found(moments, features, against):
        one = moments.goodness_of_fit(3, features, against=against)
        other = 0 if against is None else moments.goodness_of_fit(3, against)["bic"]
        return one["bic"] - other, one["aic_noise"]

    for case in (([0, 1, 2], None), ([0, 1, 5], [0, 1]), ([0], [1]), ([0, 1], [1])):
        (true, told), *noisy = (found(moments, *case) for moments in all_moments)
        assert told < 1e-3, case
        z = [(bic - true) / noise for bic, noise in noisy]
        assert 0.5 < np.sqrt(np.mean(np.square(z))) < 1.8, case


def test_a_reference_category_that_noise_hides_moves_no_other_out_of_its_interval():
    held = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        places, effects = rng.choice(41, 10_000, p=[0.02, *[0.98 / 40] * 40]), rng.normal(size=41)
        effects = np.append(3.0, 0.5 * effects[1:])
        y = (effects[places] + rng.normal(size=10_000)).clip(-6, 6)
        X = np.column_stack((np.eye(41)[places][:, 1:], y))
        bounds = np.append(np.zeros(40), -6.0), np.append(np.ones(40), 6.0)
        facts = {**COMMON, "epsilon": 1.0, "bounds_X": bounds, "random_state": seed}
        found = PrivateMoments(**facts).fit(X).regression(40)
        least_squares = np.linalg.lstsq(np.column_stack((X[:, :40], np.ones(10_000))), y)[0]
        off = np.abs(found.coef[0] - least_squares)
        held.append(np.mean(off <= found.half_widths(np.eye(41))))
    assert min(held) > 0.9


@pytest.mark.parametrize("name", ["groups", "sample_weight"])
def test_moments_say_what_takes_groups_and_weights(name):
    with pytest.raises(TypeError, match=f"has no {name}: say .*DPLinearRegression"):
        PrivateMoments(bounds_X=(0, 1)).fit(np.zeros((9, 2)), **{name: np.ones(9)})
