"""The private scaler: scikit-learn's contract, what is charged, what one record moves."""

import inspect
import itertools
import pickle

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks
from support import (
    assert_refuses,
    cells_of,
    recomputed_epsilon,
    rest_is_slow,
    solver_data,
    storage,
)

from sklearn_dpsco import (
    BudgetAccountant,
    DPGridSearchCV,
    DPLassoFW,
    DPLinearRegression,
    DPMirrorRegressor,
    DPScaler,
    PrivacyBudget,
    PrivacyBudgetError,
    PrivacyParameterWarning,
)
from sklearn_dpsco.audit import audit_outcomes, map_mechanisms, mechanisms
from sklearn_dpsco.preprocessing import scaler
from sklearn_dpsco.preprocessing.scaler import ScalerPlan
from sklearn_dpsco.randomness.stream import stream_from_random_state

N = 5000
few = pytest.mark.filterwarnings("ignore::sklearn_dpsco.PrivacyParameterWarning")


def families(n=N):
    """Columns with the centre and the spread that should be found."""
    rng = np.random.default_rng(0)
    noise = rng.standard_normal(n)
    return {
        "tiny": (1e-6 * noise, 0.0, 1e-6),
        "huge": (1e9 * (noise + 1), 1e9, 1e9),
        "years": (2000 + 5 * noise, 2000.0, 5.0),
        "lognormal": (rng.lognormal(0, 1, n), 1.4, 0.9),
        "Student t": (5 + 10 * rng.standard_t(2, n), 5.0, 14.0),
        "counts": (rng.poisson(0.5, n) * 1.0, 0.5, 1.0),
        "binary": (rng.integers(0, 2, n) * 1.0, 0.5, 0.5),
    }


# ------------------------------------------------------------------------- what is found


@pytest.mark.parametrize(("delta", "epsilon"), [(1e-6, 1.0), (0.0, 4.0)])
@pytest.mark.parametrize("alone", [True, False])
def test_centres_and_scales_are_found(delta, epsilon, alone):
    found = families()
    tables = [[name] for name in found] if alone else [list(found)]
    for names in tables:
        X = np.column_stack([found[name][0] for name in names])
        fitted = DPScaler(epsilon=epsilon, delta=delta, random_state=0).fit(X)
        for name, center, scale in zip(names, fitted.center_, fitted.scale_, strict=True):
            _, expected, spread = found[name]
            assert spread / 4 <= scale <= 4 * spread, name
            assert abs(center - expected) <= 1.5 * spread, name


def test_a_hundredth_of_gross_errors_changes_little():
    X = np.random.default_rng(0).standard_normal((N, 3))
    spoiled = X.copy()
    spoiled[: N // 100] = 1e300, -1e300, 1e6
    for table in (X, spoiled):
        fitted = DPScaler(random_state=0).fit(table)
        assert np.all((fitted.scale_ >= 0.5) & (fitted.scale_ <= 2))
        assert np.all(np.abs(fitted.center_) <= 0.3)


def test_the_default_clip_keeps_slopes_of_skewed_columns():
    rng = np.random.default_rng(0)
    X = np.column_stack((rng.exponential(100, N), rng.lognormal(5, 0.7, N)))
    fitted = DPScaler(random_state=0).fit(X)
    clipped = fitted.transform(X) * fitted.scale_
    slopes = [np.polyfit(z, x, 1)[0] for z, x in zip(clipped.T, X.T, strict=True)]
    np.testing.assert_allclose(slopes, 1, atol=0.005)


def test_constant_columns_do_no_harm():
    others = np.random.default_rng(1).standard_normal((N, 1))
    for value in (0.0, 7.0, 1e300, -1e-300):
        X = np.column_stack((np.full(N, value), others))
        fitted = DPScaler(random_state=0).fit(X)
        out = fitted.transform(X)
        assert np.isfinite(out).all()
        assert np.abs(out).max() <= fitted.clip
        assert 0.25 <= fitted.scale_[1] <= 4


def test_outer_bounds_help_where_records_are_few():
    rng = np.random.default_rng(0)
    X = np.column_stack((2000 + 5 * rng.standard_normal(400), rng.uniform(0, 100, 400)))
    fitted = DPScaler(bounds_X=([1900, 0], [2100, 1000]), random_state=0).fit(X)
    assert np.all(np.abs(fitted.center_ - [2000, 50]) <= [40, 100])
    assert np.all((fitted.scale_ >= 1) & (fitted.scale_ <= [100, 1000]))
    frame = pd.DataFrame(X, columns=["year", "x"])
    by_name = DPScaler(bounds_X={"x": (0, 1000), "year": (1900, 2100)}, random_state=0).fit(frame)
    np.testing.assert_array_equal(by_name.scale_, fitted.scale_)


def test_where_noise_would_choose_nothing_is_released():
    X = np.random.default_rng(0).standard_normal((50, 4)) * 100
    for bounds, center, scale in ((None, 0, 1), ((0, 500), 0, 500), ((100, 500), 300, 200)):
        model = DPScaler(epsilon=0.01, bounds_X=bounds, random_state=0)
        with pytest.warns(PrivacyParameterWarning, match="n_samples=50 is too small"):
            model.fit(X)
        assert model.plan_.search is None
        assert model.guarantee_.releases == ()
        np.testing.assert_array_equal(model.center_, np.full(4, center))
        np.testing.assert_array_equal(model.scale_, np.full(4, scale))


def test_large_tables_have_more_rounds_and_every_column_its_own_scale():
    plans = [DPScaler(epsilon=0.5).plan(n, 10).search for n in (300, 1000, 10**6)]
    assert [plan.n_scales for plan in plans] == [0, 3, 4]
    assert plans[-1].shared is None
    assert plans[0].n_rounds < plans[-1].n_rounds == 3
    assert DPScaler(with_centering=False).plan(2000, 10).search.n_rounds == 0
    assert DPScaler().plan(2000, 1).search.shared is None


# ------------------------------------------------------------------------------- privacy


@rest_is_slow(
    ("relation", "delta"),
    [*itertools.product(("replace-one", "zero-out"), (0.0, 1e-6))],
    ("replace-one-1e-06", "zero-out-0.0"),
)
@few
def test_plans_cost_what_they_claim(relation, delta):
    for k, (n, d, epsilon) in enumerate(cells_of("half", (60, 3000, 10**6), (1, 20), (0.3, 5.0))):
        plan = DPScaler(
            epsilon=epsilon, delta=delta, relation=relation, with_centering=k % 2 == 0
        ).plan(n, d)
        assert plan.guarantee.relation == relation
        if plan.search is None:
            assert plan.guarantee.spent == 0
            continue
        assert plan.search.share <= 1 + 1e-12
        assert plan.guarantee.spent > 0
    guarantee = DPScaler(delta=delta, relation=relation).plan(3000, 2).guarantee
    assert recomputed_epsilon(guarantee) <= 1 + 2e-4
    assert guarantee.second_opinion() <= 1 + 2e-4


class Recorder:
    """Stands for a mechanism: keeps what it is given, and answers from a stream of its own."""

    def __init__(self, name, mechanism, seen):
        self.name, self.mechanism, self.seen = name, mechanism, seen

    def __getattr__(self, name):
        return getattr(self.mechanism, name)

    def release(self, value, stream):
        self.seen.append((self.name, self.mechanism, value.copy()))
        rng = np.random.default_rng(len(self.seen))
        if self.mechanism.selects:  # a candidate that the exact selection might have found
            return int(rng.integers(len(value)))
        return rng.standard_normal(value.shape)


EXTREMES = [0.0, 1e-300, 1e-3, 1.0, -1.0, 2.5, 1e3, -1e9, 1e300, -1e300]


@rest_is_slow(
    ("relation", "delta"),
    [*itertools.product(("replace-one", "zero-out"), (0.0, 1e-6))],
    ("replace-one, 1e-06", "zero-out, 0.0"),
    lambda case: f"{case[0]}, {case[1]}",
)
def test_one_record_moves_what_is_released_by_the_sensitivity_at_most(relation, delta):
    rng, largest = np.random.default_rng(0), {}
    n = 7
    for d in (1, 4):
        # so large an epsilon that a table of seven records has all releases
        budget = PrivacyBudget(1e6 if delta == 0 else 1e4, delta, relation)
        plan = ScalerPlan.of(n, d, budget, True)
        assert plan.search.n_rounds == 3
        for trial in range(20):
            X = (
                rng.choice(EXTREMES, (n, d))
                if trial % 2
                else np.tile(rng.choice(EXTREMES, d), (n, 1))
            )
            other, weights = X.copy(), np.ones(n)
            other[0] = rng.choice(EXTREMES, d)
            if relation == "zero-out":
                other, weights[0] = X, 0.0
            runs = []
            for table, weight in ((X, None), (other, weights)):
                seen = []
                recorded = map_mechanisms(plan, lambda name, m, s=seen: Recorder(name, m, s))
                data = solver_data(table, np.zeros(n), fit_intercept=False, scale=weight)
                recorded.release(data, stream_from_random_state(trial))
                runs.append(seen)
            assert [name for name, *_ in runs[0]] == [name for name, *_ in runs[1]]
            for (name, mechanism, a), (_, _, b) in zip(*runs, strict=True):
                ratio = mechanism.distance(b - a) / mechanism.sensitivity
                largest[name] = max(largest.get(name, 0.0), ratio)
    assert set(largest) == set(mechanisms(ScalerPlan.of(n, 4, budget, True)))
    for name, ratio in largest.items():
        assert ratio <= 1 + 1e-12, name
        assert ratio >= 0.3, name  # the test does move it


@pytest.mark.slow  # what moves and its noise have tests of their own
def test_fits_on_neighbours_are_not_told_apart_beyond_the_claim():
    X = np.random.default_rng(0).standard_normal((40, 1))
    X[0], other = 1e3, X.copy()
    other[0] = -1e3
    outcomes = [
        [DPScaler(epsilon=3.0, random_state=1000 * k + i).fit(table).center_[0] for i in range(120)]
        for k, table in enumerate((X, other))
    ]
    result = audit_outcomes(*map(np.array, outcomes), epsilon=3.0, delta=1 / 400)
    assert not result.flagged


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_a_pipeline_is_charged_for_both_of_its_steps(delta):
    rng = np.random.default_rng(0)
    X = np.column_stack((2000 + 5 * rng.standard_normal(N), rng.lognormal(0, 1, N)))
    y = np.clip((X[:, 0] - 2000) / 10, -1, 1)
    accountant = BudgetAccountant(epsilon=4.0, delta=delta)
    first = DPScaler(epsilon=2.0, delta=delta, random_state=0)
    settings = {"epsilon": 1.5, "delta": delta, "bounds_X": (-4, 4), "bounds_y": (-1, 1)}
    second = DPMirrorRegressor(**settings, random_state=0)
    if delta == 0:  # which mirror descent cannot do
        second = DPLassoFW(**settings, solver="selection", random_state=0)
    with accountant:
        model = make_pipeline(first, second).fit(X, y)
    assert [charge.estimator for charge in accountant.ledger] == ["DPScaler", type(second).__name__]
    whole = BudgetAccountant(epsilon=4.0, delta=delta)
    for step in (first, second):
        whole.spend(step.guarantee_)
    assert accountant.total_spent() == pytest.approx(whole.total_spent(), rel=1e-12)
    if delta == 0:
        assert accountant.total_spent() == pytest.approx(3.5, rel=1e-9)
    else:
        assert model.score(X, y) > 0.8


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_a_refused_fit_learns_nothing(delta, monkeypatch):
    X = np.random.default_rng(0).standard_normal((N, 2))
    accountant = BudgetAccountant(epsilon=1.0, delta=delta)
    model = DPScaler(epsilon=0.9, delta=delta, accountant=accountant, random_state=0).fit(X)
    assert accountant.total_spent() <= 0.9 * (1 + 1e-9)
    before = model.scale_.copy()
    monkeypatch.setattr(ScalerPlan, "release", lambda *_: pytest.fail("released"))
    with pytest.raises(PrivacyBudgetError):
        model.fit(X * 100)
    np.testing.assert_array_equal(model.scale_, before)
    fresh = clone(model)
    assert fresh.accountant is accountant
    with pytest.raises(PrivacyBudgetError):
        fresh.fit(X)
    assert not hasattr(fresh, "scale_")


def test_an_interrupted_fit_leaves_no_scales(monkeypatch):
    X = np.random.default_rng(0).standard_normal((N, 2))
    model = DPScaler(random_state=0).fit(X)

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(ScalerPlan, "release", interrupt)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X)
    with pytest.raises(NotFittedError):
        model.transform(X)


# ------------------------------------------------------------------------ scikit-learn


@pytest.mark.filterwarnings("ignore::sklearn_dpsco.PrivacyLeakWarning")
@few
@parametrize_with_checks([DPScaler(), DPScaler(with_centering=False, nonfinite="zero")])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_parameters_are_documented():
    lines = inspect.getdoc(DPScaler).splitlines()
    for name in inspect.signature(DPScaler).parameters:
        assert any(line.startswith(f"{name} : ") for line in lines), name


def test_names_frames_and_pickles():
    found = families()
    frame = pd.DataFrame({name: column for name, (column, *_) in found.items()})
    model = DPScaler(random_state=0).set_output(transform="pandas").fit(frame)
    out = model.transform(frame)
    assert list(out.columns) == list(frame.columns) == list(model.get_feature_names_out())
    again = pickle.loads(pickle.dumps(model)).transform(frame)
    pd.testing.assert_frame_equal(again, out)
    with pytest.raises(ValueError, match="feature names"):
        model.transform(frame[list(frame.columns[::-1])])
    assert not model.noise_is_secret_
    assert DPScaler().fit(frame).noise_is_secret_
    arrays = DPScaler(random_state=0).fit(frame.to_numpy())
    np.testing.assert_array_equal(arrays.scale_, model.scale_)


def test_outputs_are_bounded_by_public_facts():
    X = np.random.default_rng(0).standard_t(1.5, (N, 3)) * [1, 1e6, 1e-6]
    for dtype in (np.float64, np.float32):
        table = X.astype(dtype)
        model = DPScaler(clip=2.5, random_state=0).fit(table)
        out = model.transform(table)
        # one odd cell may make objects of float32, and these float64: by numbers alone
        np.testing.assert_array_equal(model.transform(np.float64(table)), out)
        assert np.all(np.abs(out) <= 2.5)
        inside = np.abs(out) < 2.5
        back = out * model.scale_ + model.center_
        tolerance = 1e-5 if dtype == np.float32 else 1e-9
        np.testing.assert_allclose(back[inside], table[inside], rtol=tolerance, atol=1e-7)
    plain = DPScaler(with_scaling=False, clip=1e50, random_state=0).fit(X)
    np.testing.assert_array_equal(plain.scale_, 1.0)
    np.testing.assert_allclose(plain.transform(X), X - plain.center_)


@pytest.mark.parametrize("kind", ["csr", "csc"])
def test_sparse_tables(kind):
    rng = np.random.default_rng(0)
    X = rng.lognormal(3, 1, (N, 3)) * (rng.uniform(size=(N, 3)) < 0.3) * [1, 100, 1e-4]
    dense = DPScaler(with_centering=False, random_state=0).fit(X)
    model = DPScaler(with_centering=False, random_state=0).fit(storage(X, kind))
    np.testing.assert_array_equal(model.scale_, dense.scale_)
    np.testing.assert_array_equal(model.center_, 0)
    out = model.transform(storage(X, kind))
    assert sparse.issparse(out)
    assert out.format == kind
    np.testing.assert_allclose(out.toarray(), dense.transform(X))


def test_invalid_records_are_empty_and_stay_invalid():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, 2)) + 3
    spoiled = X.copy()
    spoiled[::2] = [[np.nan, 1e9]]
    spoiled[1, 0] = np.inf
    model = DPScaler(nonfinite="zero", random_state=0).fit(spoiled)
    other = spoiled.copy()
    other[::2, 1] = -5.0
    np.testing.assert_array_equal(
        DPScaler(nonfinite="zero", random_state=0).fit(other).scale_, model.scale_
    )
    out = model.transform(spoiled)
    assert np.isnan(out[::2]).all()
    assert np.isnan(out[1]).all()
    assert np.abs(out[3::2]).max() <= model.clip
    stored = DPScaler(nonfinite="zero", with_centering=False, random_state=0).fit(spoiled)
    for kind in (sparse.csr_array, sparse.csc_array):
        np.testing.assert_array_equal(
            stored.transform(kind(spoiled)).toarray(), stored.transform(spoiled)
        )
    mixed = model.transform([["a", 1.0], [3.0, 3.0]])
    assert np.isnan(mixed[0]).all()
    empty = DPScaler(nonfinite="zero", random_state=0).fit(np.full((2000, 2), np.nan))
    assert np.isfinite(empty.transform(X)).all()
    last = DPLinearRegression(bounds_X=(-4, 4), bounds_y=(-1, 1))
    grid = {"dplinearregression__max_weight": [1.0, 2.0]}
    with pytest.raises(ValueError, match="nonfinite='zero'"):
        make_pipeline(model, last).fit(spoiled, X[:, 0])
    accountant = BudgetAccountant(epsilon=1.0)
    steps = make_pipeline(DPScaler(nonfinite="zero"), last)
    search = DPGridSearchCV(steps, grid, accountant=accountant)
    with pytest.raises(ValueError, match="nonfinite='zero'"):
        search.fit(spoiled, X[:, 0])
    assert not accountant.ledger


def test_groups_bound_what_a_user_contributes():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, 2))
    users = np.arange(N) // 2
    other = X.copy()
    other[1::2] = 1e9
    for table in (X, other):
        fitted = DPScaler(random_state=0).fit(table, groups=users)
        np.testing.assert_array_equal(
            fitted.scale_, DPScaler(random_state=0).fit(X, groups=users).scale_
        )
    assert DPScaler(max_rows_per_user=2).plan(N, 2).guarantee.rows_per_user == 2


# ----------------------------------------------------------------------------- bad input


def test_bad_input_is_refused_before_anything_is_spent():
    X = np.random.default_rng(0).standard_normal((N, 2))
    accountant = BudgetAccountant(epsilon=2.0, delta=1e-6)

    def fit(table=X, groups=None, **parameters):
        DPScaler(accountant=accountant, **parameters).fit(table, groups=groups)

    bad = {
        "epsilon": (-1, 0, np.nan, "1", None), "delta": (-1, 1, None), "clip": (0, -1, "auto"),
        "relation": ("add-or-remove", None), "max_rows_per_user": (0, 1.5),
        "bounds_X": ((1, 0), (0,), ([0] * 3, [1] * 3), {"a": (0, 1)}),
        "with_centering": ("yes", 1, None), "with_scaling": ("no", 0),
        "nonfinite": ("drop", None), "precision": ("double",), "random_state": ("0", -1),
    }  # fmt: skip
    for name, values in bad.items():
        for value in values:
            assert_refuses(fit, name, **{name: value})
    assert_refuses(fit, "nothing to learn", with_centering=False, with_scaling=False)
    tables = {
        "minimum of 2": X[:1],
        "NaN": np.full((N, 2), np.nan),
        "numbers": np.array([["a", "b"]]),
        "infinity": np.where(X > 3, np.inf, X),
        "with_centering=False": sparse.csr_array(X),
        "2D": X[:, 0],
    }
    for match, table in tables.items():
        assert_refuses(fit, match, table)
    assert_refuses(fit, "inconsistent", groups=[1, 2])
    bounded = {"with_centering": False, "bounds_X": (1, 2)}
    assert_refuses(fit, "sparse X needs", sparse.csr_array(X), **bounded)
    assert_refuses(DPScaler().plan, "n_samples", 1, 2)
    assert_refuses(DPScaler().plan, "n_features", 100, 0)
    assert accountant.total_spent() == 0
    model = DPScaler(random_state=0).fit(X)
    assert_refuses(model.transform, "3 features", np.ones((4, 3)))
    assert_refuses(model.transform, "with_centering=False", sparse.csr_array(X))
    assert scaler.DPScaler is DPScaler
