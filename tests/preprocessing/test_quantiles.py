"""Private bounds: sensitivity of the scores, law of the selection, what is found and refused."""

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chisquare
from support import assert_refuses, recomputed_epsilon, rest_is_slow, storage, stream

from sklearn_dpsco import (
    BudgetAccountant,
    DPMirrorRegressor,
    PrivacyBudgetError,
    plan_private_bounds,
    private_bounds,
)
from sklearn_dpsco.preprocessing import quantiles

RELATIONS = ("replace-one", "zero-out")
VALUES = [-1e300, -3.0, -1.0, -1e-30, 0.0, 1e-30, 1.0, 2.0, 2.1, 7.0, 1e9, 1e300]


# ------------------------------------------------------------------------------- privacy


def every_neighbour(relation, n, score):
    """Scores of columns of few values that differ in one record; one may be empty."""
    rng = np.random.default_rng(0)
    for _ in range(6):
        rest = rng.choice(VALUES, n - 1) if rng.uniform() < 0.7 else np.full(n - 1, 1.0)
        rest = rest[rng.uniform(size=n - 1) < rng.choice([0.3, 1.0])]
        scored = [score(np.append(rest, value)) for value in VALUES]
        if relation == "replace-one":
            yield from itertools.combinations(scored, 2)
        else:
            yield from itertools.product(scored, [score(rest)])


@pytest.mark.parametrize("within", [None, (-4.0, 10.0)])
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("levels", [(0.01, 0.99), (0.2, 0.5), (0.4, 0.9)])
def test_the_range_of_the_scores_is_what_is_claimed_and_is_attained(relation, within, levels):
    n = 12 if min(levels) > 0.1 else 300  # so that a record less is missed at either side
    settings = {"quantiles": levels, "relation": relation, "within": within}
    plan = plan_private_bounds(n, epsilon=1e5, **settings)
    largest = 0.0
    for first, second in every_neighbour(relation, n, plan.scores):
        for a, b in zip(first, second, strict=True):
            largest = max(largest, plan.select.distance(b - a), plan.select.distance(a - b))
    factor = 2 * max(*plan.levels, 1 - min(plan.levels))
    claimed = 2.0 if relation == "replace-one" else factor
    assert plan.select.sensitivity == pytest.approx(claimed, rel=2e-6)
    assert largest <= plan.select.sensitivity
    assert largest == pytest.approx(claimed, rel=1e-3)


@rest_is_slow(
    ("relation", "delta"),
    itertools.product(RELATIONS, (0.0, 1e-6)),
    ("replace-one-1e-06", "zero-out-0.0"),
)
def test_plans_cost_what_they_claim(relation, delta):
    for n, d in ((400, 1), (100_000, 7)):
        plan = plan_private_bounds(n, d, epsilon=2.0, delta=delta, relation=relation)
        guarantee = plan.guarantee
        assert guarantee.releases[0].count == 2 * d
        assert guarantee.spent == pytest.approx(guarantee.cost(guarantee.composition))
        assert recomputed_epsilon(guarantee) <= 2.0 * (1 + 2e-4)
        assert guarantee.second_opinion() <= 2.0 * (1 + 2e-4)


def test_ends_follow_the_law_of_the_exponential_mechanism():
    x = np.random.default_rng(0).integers(0, 9, 100).astype(float)
    plan = plan_private_bounds(100, epsilon=4.0, within=(0, 9), quantiles=(0.25, 0.75))
    expected = []
    for scores in plan.scores(x):
        weights = np.exp((scores - scores.max()) / plan.select.scale)
        expected.append(weights / weights.sum())
    source, present = stream(1), np.ones(100, dtype=bool)
    draws = [plan.release(x[:, None], present, source) for _ in range(2000)]
    grid = plan.grid(0)
    lower, upper = (np.searchsorted(grid, [draw[k][0] for draw in draws]) for k in (0, 1))
    # the ends are independent; those that cross are exchanged, which is rare here
    chance_up = np.cumsum(expected[1])
    chance_low = np.cumsum(expected[0][::-1])
    for found, chance in ((lower, chance_low), (upper, chance_up)):
        edges = np.unique(np.searchsorted(chance, np.arange(0.1, 0.95, 0.1)))
        bins = np.concatenate(([-1], edges, [grid.size]))
        wanted = np.diff(np.interp(edges, np.arange(grid.size), chance), prepend=0, append=1)
        counts = np.histogram(found, bins + 0.5)[0]
        assert chisquare(counts, wanted * len(draws)).pvalue > 1e-6
        tilted = wanted**1.6 / (wanted**1.6).sum()
        assert chisquare(counts, tilted * len(draws)).pvalue < 1e-6 or np.ptp(wanted) < 0.05


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_the_accountant_is_charged_before_anything_is_computed(delta, monkeypatch):
    X = np.random.default_rng(0).standard_normal((2000, 2))
    accountant = BudgetAccountant(epsilon=2.0, delta=delta)
    private_bounds(X, epsilon=1.5, delta=delta, accountant=accountant)
    assert [charge.estimator for charge in accountant.ledger] == ["private bounds"]
    spent = accountant.total_spent()
    assert 1.5 * 0.99 <= spent <= 1.5 * (1 + 1e-6)
    monkeypatch.setattr(quantiles.BoundsPlan, "release", lambda *_: pytest.fail("released"))
    with pytest.raises(PrivacyBudgetError):
        private_bounds(X, epsilon=1.9, delta=delta, accountant=accountant)
    with accountant, pytest.raises(PrivacyBudgetError):
        private_bounds(X, epsilon=1.9, delta=delta)
    assert accountant.total_spent() == spent


def test_users_of_several_rows_need_more_noise():
    one, three = (plan_private_bounds(10_000, max_rows_per_user=m) for m in (1, 3))
    assert three.select.scale / three.select.sensitivity > 2.9 * one.select.scale / 2
    assert three.guarantee.rows_per_user == 3


# ------------------------------------------------------------------------------ what is found


def tables():
    rng, n = np.random.default_rng(0), 20_000
    return {
        "normal": rng.standard_normal(n) * 1e-4,
        "far off": 1e9 + 1e8 * rng.standard_normal(n),
        "lognormal": rng.lognormal(3, 2, n),
        "counts": rng.poisson(0.3, n) * 1.0,
        "binary": rng.integers(0, 2, n) * 1.0,
        "Student t": rng.standard_t(1.5, n),
        "negative": -rng.lognormal(0, 1, n),
    }


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_bounds_cut_off_about_what_they_should_and_are_not_far_out(delta):
    for name, x in tables().items():
        for seed in range(3):
            found = private_bounds(x, epsilon=1.0, delta=delta, random_state=seed)
            low, high = found.low, found.high
            assert np.mean(x < low) <= 0.02, name
            assert np.mean(x > high) <= 0.02, name
            wide = np.quantile(x, [0.0005, 0.9995])
            octave = 2**0.26
            assert low >= min(wide[0] * octave, wide[0] / octave) - 1e-12, name
            assert high <= max(wide[1] * octave, wide[1] / octave) + 1e-12, name


def test_outer_bounds_make_ends_fine():
    x = 2000 + 5 * np.random.default_rng(0).standard_normal(5000)
    found = private_bounds(x, within=(0, 10_000), random_state=0)
    assert 1950 < found.low < 1992
    assert 2008 < found.high < 2050
    found = private_bounds(x, within=(1900, 2100), random_state=0)
    assert 1986 < found.low < 1992
    assert 2008 < found.high < 2014
    # near an end that is far from the other one
    x = np.random.default_rng(0).uniform(0, 0.5, 5000)
    assert private_bounds(x, within=(0, 1e6), random_state=0).high < 1.0
    assert private_bounds(x, within=(-1e6, 1e6), random_state=0).high < 1.0


def test_bounds_lie_so_far_beyond_the_quantiles_that_slopes_are_those_of_the_column():
    rng = np.random.default_rng(0)
    X = np.column_stack((rng.normal(0, 3, 5000), rng.exponential(1, 5000), rng.poisson(2, 5000)))
    low, high = private_bounds(X, random_state=0).bounds
    for x, z in zip(X.T, np.clip(X, low, high).T, strict=True):
        assert np.polyfit(z, x, 1)[0] == pytest.approx(1, abs=0.005)
    # not across 0, nor out of the outer bounds
    assert (low[1:] == 0).all()
    assert private_bounds(-X[:, 1], random_state=0).bounds[1] == 0
    found = private_bounds(X, within=(-8, 8), random_state=0)
    assert (found.bounds[0][0], found.bounds[1][0]) == (-8, 8)


def test_bounds_are_increasing_whatever_the_data():
    n = 400
    rng = np.random.default_rng(0)
    cases = [np.full(n, v) for v in (0.0, 8.0, -1e300, 1e300, 1e-300)]
    cases.append(np.where(rng.uniform(size=n) < 0.5, -8.0, 8.0))
    for x, within in itertools.product(cases, (None, (0, 8), (-1e50, 1e50))):
        for seed in range(2):
            found = private_bounds(
                x, epsilon=1.0, quantiles=(0.49, 0.51), within=within, random_state=seed
            )
            low, high = found.bounds
            assert low < high
            DPMirrorRegressor(bounds_X=(low, high), bounds_y=(low, high)).plan(100, 1)


def test_results_fit_the_parameters_of_the_estimators():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(0, 1, 3000), "b": rng.normal(5, 100, 3000)})
    y = frame["a"] + frame["b"] / 100
    accountant = BudgetAccountant(epsilon=3.0, delta=1e-6)
    with accountant:
        X_bounds = private_bounds(frame, epsilon=1.0, random_state=0)
        y_bounds = private_bounds(y, epsilon=1.0, random_state=0)
        assert set(X_bounds.bounds) == {"a", "b"}
        model = DPMirrorRegressor(
            bounds_X=X_bounds.bounds, bounds_y=y_bounds.bounds, random_state=0
        ).fit(frame, y)
    assert model.score(frame, y) > 0.3
    assert len(accountant.ledger) == 3
    assert not X_bounds.noise_is_secret
    assert "NOT PRIVATE" in str(X_bounds)
    assert str(X_bounds.guarantee).startswith("NOT PRIVATE")
    secret = private_bounds(y)
    assert secret.noise_is_secret
    assert str(secret.guarantee).startswith("Protected")
    arrays = private_bounds(frame.to_numpy(), random_state=0).bounds
    np.testing.assert_array_equal(np.transpose(arrays), [*X_bounds.bounds.values()])
    again = plan_private_bounds(3000, 2, within={"a": (-9, 9), "b": (0, 1)})
    assert [grid[-1] for grid in again.grids] == [9.0, 1.0]


def test_what_is_shown_is_the_bounds_and_not_the_candidates():
    rng = np.random.default_rng(0)
    found = private_bounds(rng.normal(size=(9000, 30)), random_state=0)
    lines = str(found).splitlines()
    assert "30 columns (epsilon = 1" in lines[0]
    assert "random_state was given" in "".join(lines[:2])
    assert f"{found.bounds[0][0]:.6g}" in lines[3]
    assert lines[-1].strip() == "... and 10 more"
    assert len(repr(found)) < 200


def test_storage_changes_nothing():
    rng = np.random.default_rng(0)
    X = rng.lognormal(3, 2, (2000, 3)) * (rng.uniform(size=(2000, 3)) < 0.2)
    dense = private_bounds(X, random_state=0).bounds
    for kind in ("fortran", "csr", "csc"):
        np.testing.assert_array_equal(
            private_bounds(storage(X, kind), random_state=0).bounds, dense
        )


def test_empty_records_move_no_quantile_of_the_others():
    x = np.random.default_rng(0).standard_normal(3000)
    spoiled = np.append(x, np.full(3000, np.nan))
    plan = plan_private_bounds(6000, quantiles=(0.05, 0.95), epsilon=5.0)
    with_empty = private_bounds(
        spoiled, quantiles=(0.05, 0.95), epsilon=5.0, nonfinite="zero", random_state=0
    )
    scores = plan.scores(x)
    for scored, quantile in zip(scores, (-np.quantile(x, 0.05), np.quantile(x, 0.95)), strict=True):
        best = plan.grid(0)[np.argmax(scored)]
        assert quantile * 0.95 <= best <= quantile * 2**0.25 * 1.05
    assert 1.4 < with_empty.high < 3
    assert -3 < with_empty.low < -1.4
    everything = np.full((900, 1), np.nan)
    low, high = private_bounds(everything, nonfinite="zero", random_state=0).bounds
    assert np.isfinite([low, high]).all()


# ----------------------------------------------------------------------------- bad input


def test_bad_input_is_refused_before_anything_is_spent():
    x = np.random.default_rng(0).standard_normal(2000)
    accountant = BudgetAccountant(epsilon=2.0, delta=1e-6)
    bad = {
        "quantiles must be a finite number in": [(0, 0.9), (0.1, 1.0), (np.nan, 0.9), ("a", 0.9)],
        "quantiles must be increasing": [(0.9, 0.1), (0.5, 0.5)],
        "quantiles must be a pair": [0.5, (0.1,), (0.1, 0.5, 0.9), "ab", None],
    }
    for match, values in bad.items():
        for value in values:
            assert_refuses(private_bounds, match, x, quantiles=value, accountant=accountant)
    for value in ((1, 0), (0, 0), (0,), 3, (np.nan, 1), ([0, 0], [1, 1]), {"a": (0, 1)}):
        assert_refuses(private_bounds, "within", x, within=value, accountant=accountant)
    tables = {
        "minimum of 2": x[:1],
        "NaN": np.full(2000, np.nan),
        "numbers": np.array(["a"] * 2000),
        "infinity": np.where(x > 3, np.inf, x),
        "n_samples=100 is too small": x[:100],
        "dim": x.reshape(-1, 10, 10),
        "X must hold": [*x[1:, None].tolist(), None],
    }
    tables["X must hold numbers"] = np.array(tables["X must hold"], dtype=object)
    for match, table in tables.items():
        assert_refuses(private_bounds, match, table, accountant=accountant)
    assert_refuses(private_bounds, "nonfinite", x, nonfinite="drop", accountant=accountant)
    assert_refuses(private_bounds, "epsilon", x, epsilon=-1, accountant=accountant)
    assert_refuses(private_bounds, "random_state", x, random_state="0", accountant=accountant)
    assert_refuses(plan_private_bounds, "n_samples", 1)
    assert_refuses(plan_private_bounds, "n_features", 100, 0)
    assert accountant.total_spent() == 0
    with pytest.raises(ValueError, match="shape"):
        plan_private_bounds(2000).release(x[:10, None], np.ones(10, bool), stream())
