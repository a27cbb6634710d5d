"""Private means of heavy-tailed samples: influence, sensitivity, noise, accuracy."""

import itertools
import math
import warnings
from decimal import Decimal

import numba
import numpy as np
import pandas as pd
import pytest
from scipy.integrate import quad
from scipy.special import ndtr
from scipy.stats import kstest, laplace, norm
from support import assert_refuses, recomputed_epsilon, rest_is_slow, storage, stream

from sklearn_dpsco import BudgetAccountant, PrivacyBudgetError, means
from sklearn_dpsco._kernels import bounded_sums as kernels
from sklearn_dpsco._kernels.arguments import read_only
from sklearn_dpsco.audit import audit_outcomes
from sklearn_dpsco.data.rows import Rows
from sklearn_dpsco.means import plan_mean
from sklearn_dpsco.solvers.heavy_tail import oracles
from sklearn_dpsco.solvers.heavy_tail.oracles import MedianOfMeans, NormClipped

ORACLES = list(oracles.ORACLES)
FUNCTIONS = {
    "median-of-means": means.clipped_median_of_means,
    "smoothed": means.smoothed_truncated_mean,
    "coordinate-clipped": means.clipped_mean,
    "clipped": means.norm_clipped_mean,
}
every_oracle = pytest.mark.parametrize("oracle", ORACLES)
half_of_oracles_and_deltas = rest_is_slow(
    ("oracle", "delta"),
    itertools.product(ORACLES, (0.0, 1e-6)),
    [f"{oracle}-{(0.0, 1e-6)[k % 2]}" for k, oracle in enumerate(ORACLES)],
)


def smoothed_truncation(a):
    """The psi of KLZ22, Algorithm 4, in closed form (doc/privacy, section 7.2)."""
    a = np.asarray(a, dtype=np.float64)
    # near 0 the formula is 0 / 0, and far out its terms cancel
    size = np.clip(np.abs(a), 1e-8, 1e3)
    root = math.sqrt(2)
    k = size * math.sqrt(oracles._SMOOTHING)
    low, high = -(root + size) / k, (root - size) / k
    density_low, density_high = (np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi) for z in (low, high))
    m0 = ndtr(high) - ndtr(low)
    m1 = density_low - density_high
    m2 = m0 + low * density_low - high * density_high
    m3 = (low**2 + 2) * density_low - (high**2 + 2) * density_high
    psi = (
        2 * root / 3 * (ndtr(-high) - ndtr(low))
        + (size - size**3 / 6) * m0
        + (k - size**2 * k / 2) * m1
        - size * k**2 / 2 * m2
        - k**3 / 6 * m3
    )
    psi = np.where(
        np.abs(a) < 1e-8, np.abs(a), np.where(np.abs(a) > 1e3, oracles._SMOOTHED_BOUND, psi)
    )
    return np.copysign(np.minimum(psi, oracles._SMOOTHED_BOUND), a)


def expected_influence(a):
    """E phi(a (1 + N)) by quadrature, N of variance 1/3."""

    def phi(u):
        u = min(max(u, -math.sqrt(2)), math.sqrt(2))
        return u - u**3 / 6

    scale = math.sqrt(1 / 3)
    # the kinks and the peak, so that the quadrature sees them
    kinks = [sign * math.sqrt(2) / a - 1 for sign in (-1, 1)] if a else []
    points = [p for p in [*kinks, 0.0] if abs(p) < 12 * scale]
    value, _ = quad(
        lambda z: phi(a * (1 + z)) * norm.pdf(z, scale=scale),
        -12 * scale, 12 * scale, points=points, limit=400, epsabs=1e-13,
    )  # fmt: skip
    return value


def test_smoothed_truncation_is_the_expectation_that_it_claims():
    a = np.array([1e-12, 1e-6, 0.01, 0.3, 1.0, 1.5, 3.0, 20.0, 500.0])
    expected = [expected_influence(value) for value in a]
    np.testing.assert_allclose(smoothed_truncation(a), expected, rtol=1e-7, atol=1e-15)


def test_smoothed_truncation_is_odd_bounded_and_finite():
    a = np.concatenate(([0.0, np.inf, 1e300, 1e-300], np.geomspace(1e-20, 1e20, 20001)))
    values = smoothed_truncation(a)
    assert values[0] == 0
    assert np.all(np.abs(values) <= oracles._SMOOTHED_BOUND)
    np.testing.assert_array_equal(smoothed_truncation(-a), -values)


def test_compiled_smoothed_truncation_is_close_to_the_closed_form():
    a = np.concatenate(([0.0, 1e-300, 1e-9, 1e100], np.geomspace(1e-6, 1e6, 3000)))
    a = np.concatenate((a, -a))
    total = np.zeros((1, a.size))
    table, bound = read_only(a[None, :]), oracles._SMOOTHED_BOUND
    kernels.bounded_sums(table, None, np.ones(1), False, 1.0, bound, 10, total)
    (total,) = total
    np.testing.assert_allclose(total, smoothed_truncation(a), rtol=0, atol=9e-5)
    assert total[0] == 0  # an empty record adds nothing
    assert np.all(np.abs(total) <= oracles._SMOOTHED_BOUND)


def reference(plan, X, name):
    """The statistic, written out."""
    V = (X - plan.center) / plan.scale
    oracle = plan.oracle
    if name == "clipped":
        order = 1 if plan.budget.is_pure else 2
        length = np.linalg.norm(V, order, axis=1, keepdims=True)
        return (V * np.minimum(1, oracle.tau / length)).mean(axis=0)
    if name == "smoothed":
        return oracle.tau * smoothed_truncation(V / oracle.tau).mean(axis=0)
    V = np.clip(V, -3 * oracle.tau, 3 * oracle.tau)
    if name == "coordinate-clipped":
        return V.mean(axis=0)
    m = oracle.n_buckets
    return np.median([V[k::m].mean(axis=0) for k in range(m)], axis=0)


def off(oracle):
    """How far a statistic may be from its formula, tau being about 1."""
    return 1.3e-4 if oracle == "smoothed" else 1e-13


@every_oracle
def test_statistics_are_what_they_claim(oracle):
    for delta, (n, d) in itertools.product((0.0, 1e-6), ((1, 1), (7, 3), (300, 2))):
        X = np.random.default_rng(0).standard_t(2, (n, d)) * 10 + 3
        buckets = {"n_buckets": min(n, 3)} if oracle == "median-of-means" else {}
        settings = {"center": 3.0, "scale": 5.0, "tau": 1.3} | buckets
        plan = plan_mean(n, d, oracle=oracle, delta=delta, **settings)
        np.testing.assert_allclose(
            plan.statistic(X), reference(plan, X, oracle), rtol=1e-9, atol=off(oracle)
        )


@every_oracle
def test_sums_of_rows_times_scalars_are_those_of_the_gradient_matrix(oracle):
    rng = np.random.default_rng(1)
    X, r = rng.standard_t(2, (50, 4)) * (rng.uniform(size=(50, 4)) < 0.5), rng.standard_normal(50)
    gradients = r[:, None] * np.column_stack((X, np.ones(50)))
    buckets = {"n_buckets": 4} if oracle == "median-of-means" else {}
    plan = plan_mean(50, 5, oracle=oracle, tau=0.8, **buckets)
    results = []
    for kind in ("dense", "csr"):
        rows = Rows(storage(X, kind), True)
        results.append(plan.oracle.mean(rows, r, plan.oracle.limits(rows, 2)))
    expected = reference(plan, gradients, oracle)
    np.testing.assert_allclose(results[0], expected, rtol=1e-9, atol=off(oracle))
    np.testing.assert_allclose(results[1], results[0], rtol=1e-12, atol=1e-15)


# --------------------------------------------------------------------------- sensitivity

EXTREMES = [1e300, -1e300, np.inf, -np.inf, 1e-300, 0.0, 1.0, np.nan]


@half_of_oracles_and_deltas
def test_one_record_moves_the_statistic_by_its_sensitivity_at_most(oracle, delta):
    rng = np.random.default_rng(2)
    largest = 0.0
    buckets = [1, 2, 3] if oracle == "median-of-means" else ["auto"]
    for n, d, n_buckets in itertools.product([3, 8], [1, 4], buckets):
        plan = plan_mean(n, d, oracle=oracle, delta=delta, tau=0.7, n_buckets=n_buckets)
        order = 1 if delta == 0 else 2
        for _ in range(30):
            # bunched, so that a median has neighbours to move to
            X = rng.choice([-1e3, 1e3, 0.0], (n, d)) + rng.standard_normal((n, d))
            other = X.copy()
            i = rng.integers(n)
            X[i], other[i] = rng.choice(EXTREMES, d), rng.choice(EXTREMES, d)
            if rng.uniform() < 0.3:
                X[i], other[i] = 1e300, -1e300
            change = plan.statistic(X) - plan.statistic(other)
            assert np.all(np.isfinite(change))
            largest = max(largest, np.linalg.norm(change, order) / plan.noise.sensitivity)
    assert 0.95 < largest <= 1 + 1e-12


@every_oracle
def test_sensitivities_are_those_of_the_derivation(oracle):
    n, d, tau = 100, 9, 0.5
    facts = {"oracle": oracle, "tau": tau}
    odd, eight = ({"n_buckets": m} if oracle == "median-of-means" else {} for m in (7, 8))
    got = plan_mean(n, d, **facts, **odd).noise.sensitivity
    even = plan_mean(n, d, **facts, **eight).noise.sensitivity
    bound = 2 * math.sqrt(2) / 3 * math.erf(1 / math.sqrt(2 / 3))
    expected = {
        "clipped": (2 * tau / n,) * 2,
        "coordinate-clipped": (3 * 6 * tau / n,) * 2,
        "smoothed": (3 * 2 * tau * bound / n,) * 2,
        "median-of-means": (3 * 6 * tau / (n // 7), 3 * 3 * tau / (n // 8)),
    }[oracle]
    np.testing.assert_allclose((got, even), expected, rtol=1e-10)
    zero_out = plan_mean(n, d, **facts, **odd, relation="zero-out").noise.sensitivity
    np.testing.assert_allclose(zero_out, expected[0] / 2, rtol=1e-10)


def test_rows_whose_squares_underflow_are_shrunk_too():
    oracle = NormClipped(1e-50)
    for order, size in itertools.product((1, 2), (1e-160, 1e-162, 1e-170, 5e-324)):
        rows = Rows(np.array([[size, -size]]), False)
        mean = oracle.mean(rows, np.array([1e200]), oracle.limits(rows, order))
        # a norm whose squares do not underflow
        assert np.linalg.norm(mean * 1e50, order) <= 1, (order, size)


# --------------------------------------------------------------------- plans and releases


@every_oracle
def test_plans_agree_with_the_second_accountant(oracle):
    for relation, budget, (n, d) in itertools.product(
        ("replace-one", "zero-out"),
        ({"epsilon": 0.3}, {"delta": 0.0}),
        ((30, 1), (1000, 20)),
    ):
        guarantee = plan_mean(n, d, oracle=oracle, relation=relation, **budget).guarantee
        assert recomputed_epsilon(guarantee) <= guarantee.epsilon * (1 + 1e-4), (budget, n, d)


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_noise_has_the_planned_law(delta):
    X = np.zeros((50, 2000))
    plan = plan_mean(50, 2000, delta=delta)
    draws = np.concatenate([plan.release(X, random_state=k) for k in range(40)])
    law = laplace if delta == 0 else norm
    assert kstest(draws, law(scale=plan.noise.scale).cdf).pvalue > 1e-7
    assert kstest(draws, law(scale=plan.noise.scale / 1.1).cdf).pvalue < 1e-7


@every_oracle
def test_means_of_heavy_tails_are_found(oracle):
    X = 1000 + 50 * np.random.default_rng(3).standard_t(3, (50_000, 3))
    found = FUNCTIONS[oracle](X, center=900.0, scale=100.0, random_state=0)
    assert np.abs(found - 1000).max() < 10


def test_more_records_and_higher_moments_help():
    def error(n, k):
        X = np.random.default_rng(4).standard_t(6, (n, 5))
        plan = plan_mean(n, 5, oracle="coordinate-clipped", moment_order=k, moment_bound=4.0)
        return np.mean([np.linalg.norm(plan.release(X, random_state=s)) for s in range(40)])

    assert error(20_000, 2) < 0.5 * error(2000, 2)
    assert error(2000, 4) < error(2000, 2)


def test_infinities_are_clipped_and_nan_counts_as_the_center():
    X = np.zeros((100, 2)) + 5.0
    X[0], X[1] = (np.inf, -np.inf), (np.nan, 5.0)
    for oracle in ORACLES:
        plan = plan_mean(100, 2, oracle=oracle, center=5.0)
        statistic = plan.statistic(X)
        assert np.all(np.isfinite(statistic))
        assert np.linalg.norm(statistic) <= 2 * plan.noise.sensitivity


def test_a_function_charges_its_accountant():
    X = np.zeros((100, 2))
    with BudgetAccountant(1.0) as accountant:
        means.clipped_mean(X, epsilon=0.9)
        assert len(accountant.ledger) == 1
        with pytest.raises(PrivacyBudgetError):
            means.clipped_mean(X, epsilon=0.9)
        with pytest.raises(ValueError, match="random_state"):
            means.clipped_mean(X, epsilon=0.05, random_state="0")
        assert len(accountant.ledger) == 1
    means.norm_clipped_mean(X, accountant=BudgetAccountant(1.0))


def test_bad_settings_are_named():
    for change, message in (
        ({"moment_order": 1.9}, "moment_order"),
        ({"moment_order": np.nan}, "moment_order"),
        ({"moment_bound": 0.0}, "moment_bound"),
        ({"tau": 0.0}, "tau"),
        ({"tau": -1}, "tau"),
        ({"n_buckets": 11, "oracle": "median-of-means"}, "n_buckets=11"),
        ({"n_buckets": 0}, "n_buckets"),
        ({"n_buckets": 2}, "for oracle='median-of-means'"),
        ({"oracle": "mean"}, "oracle"),
        ({"scale": 0.0}, "scale"),
        ({"scale": [1.0, 2.0, 3.0]}, "scale"),
        ({"scale": "private"}, "scale"),
        ({"center": np.inf}, "center"),
        ({"epsilon": 0.0}, "epsilon"),
    ):
        assert_refuses(plan_mean, message, 10, 2, **change)
    assert_refuses(plan_mean, "n_samples", 0, 2)
    for moment in ({"moment_order": 3.0}, {"moment_bound": 2.0}):
        assert_refuses(plan_mean, "decide on tau", 10, 2, tau=1.0, **moment)


def test_sizes_at_which_products_overflow_are_refused():
    for oracle, tau in itertools.product(ORACLES, (1e-51, 1e-308, 1e51, 1e308)):
        assert_refuses(plan_mean, "tau", 10, 2, oracle=oracle, tau=tau)
        assert_refuses(plan_mean, "moment_bound", 10, 2, oracle=oracle, moment_bound=tau)
    assert_refuses(MedianOfMeans, "tau", 1e-320)


@every_oracle
def test_moments_of_any_order_and_sizes_at_the_ends(oracle):
    X = np.full((10, 300), np.inf)
    for settings in ({"moment_order": 1e4}, {"tau": 1e-50}, {"tau": 1e50}):
        plan = plan_mean(10, 300, oracle=oracle, **settings)
        assert np.all(np.isfinite(plan.statistic(X)))
        assert np.all(np.isfinite(plan.release(X)))


def test_bad_samples_are_refused_without_their_values():
    plan = plan_mean(4, 2)
    for bad in (np.full((4, 2), "a"), np.zeros(4), np.zeros((3, 2))):
        with pytest.raises(ValueError, match="X must") as error:
            plan.statistic(bad)
        assert "'a'" not in str(error.value)
    with pytest.raises(ValueError, match="accountant"):
        means.clipped_mean(np.zeros((4, 2)), accountant=3)


@every_oracle
def test_cells_that_are_no_numbers_count_as_the_center(oracle):
    X = np.random.default_rng(0).uniform(-1, 1, (20, 2))
    plan = plan_mean(20, 2, oracle=oracle, center=[0.3, -2.0], scale=[1.0, 3.0])
    X[5, 1] = -2.0
    expected = plan.statistic(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for cell in (None, "?", 10**400, Decimal("sNaN"), 1j, [1.0], np.nan):
            table = X.astype(object)
            table[5, 1] = cell
            np.testing.assert_array_equal(plan.statistic(table), expected)
            np.testing.assert_array_equal(plan.statistic([list(row) for row in table]), expected)
        frame = pd.DataFrame(X, columns=["a", "b"]).convert_dtypes()
        frame.iloc[5, 1] = pd.NA
        np.testing.assert_array_equal(plan.statistic(frame), expected)


@every_oracle
def test_samples_near_the_largest_float(oracle):
    plan = plan_mean(20, 2, oracle=oracle)
    for value in (1.7e308, -1.7e308, 5e-324):
        X = np.zeros((20, 2))
        X[3:6] = [[value], [-value], [value]]
        with warnings.catch_warnings(), np.errstate(all="warn"):
            warnings.simplefilter("error")
            if numba.config.DISABLE_JIT:  # integers wrap round with a warning then
                warnings.filterwarnings("ignore", "overflow encountered in scalar")
            assert np.all(np.isfinite(plan.release(X, random_state=0)))


@half_of_oracles_and_deltas
def test_the_audit_finds_no_more_than_is_claimed_and_nearly_all_of_it(oracle, delta):
    # a record of any size against its mirror image
    X = np.zeros((12, 1))
    X[6:] = 0.01  # buckets that a median can move between
    tables = [np.vstack((X, [[value]])) for value in (1e300, -1e300)]
    buckets = {"n_buckets": 1} if oracle == "median-of-means" else {}
    plan = plan_mean(13, 1, oracle=oracle, epsilon=4.0, delta=delta, tau=1.0, **buckets)
    statistics = [plan.statistic(table) for table in tables]

    draws = [plan.noise.with_noise(np.zeros(8000), stream(side)) for side in range(2)]

    def bound(factor):
        outcomes = (s + factor * noise for s, noise in zip(statistics, draws, strict=True))
        result = audit_outcomes(*outcomes, epsilon=4.0, delta=delta)
        return result.gaussian_epsilon_lower_bound if delta else result.epsilon_lower_bound

    assert 0.65 * 4 < bound(1.0) <= 4
    assert bound(0.5) > 4


def test_numbers_without_columns_are_one():
    sample = np.random.default_rng(0).normal(5, 1, 2000)
    facts = {"epsilon": 1.0, "center": 4, "scale": 2, "random_state": 0}
    expected = means.clipped_mean(sample[:, None], **facts)
    for X in (sample, sample.tolist(), pd.Series(sample), pd.Series(sample, dtype="Float64")):
        np.testing.assert_array_equal(means.clipped_mean(X, **facts), expected)
    # no record decides whether others are numbers
    expected = means.clipped_mean([*sample[:-1], np.nan], **facts)
    rows = [*sample[:-1, None].tolist(), [1.0, 2.0]]
    for X in (rows, pd.Series(rows), np.fromiter(rows, dtype=object)):
        np.testing.assert_array_equal(means.clipped_mean(X, **facts), expected)
