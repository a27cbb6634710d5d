"""Private scales and centres: what is found, in what columns, and what one record can do."""

import itertools

import numpy as np
import pytest
from scipy import sparse
from support import storage, stream

from sklearn_dpsco import magnitudes
from sklearn_dpsco._linear import make_rows
from sklearn_dpsco.accounting import Allowance, PrivacyBudget
from sklearn_dpsco.magnitudes import plan_search, release_magnitudes, scale_rows
from sklearn_dpsco.mechanisms import Laplace, SelectVertex

N = 20_000


def search(X, *, epsilon=1.0, delta=1e-6, center=True, seed=0, share=0.3, present=None):
    rows = make_rows(X, True, present)
    budget = PrivacyBudget(epsilon, delta)
    planned = plan_search(
        *X.shape, budget.record_factor, budget.allowance,
        private_center=center, private_scale=True, largest_share=share, largest_noise=0.04,
    )  # fmt: skip
    assert planned is not None
    return planned, release_magnitudes(rows, *planned, stream(seed))


def columns():
    """Columns with the scale that is right within a factor, and their centre."""
    rng = np.random.default_rng(0)
    noise = rng.standard_normal(N)
    return {
        "unit normal": (noise, 1.0, 0.0),
        "tiny": (noise * 1e-6, 1e-6, 0.0),
        "huge": (noise * 1e9, 1e9, 0.0),
        "far off": (1e4 + 3 * noise, 3.0, 1e4),
        "year": (rng.integers(1990, 2020, N) * 1.0, 8.0, 2005.0),
        "Student t": (rng.standard_t(1.5, N) * 10, 15.0, 0.0),
        "mostly zeros": (np.where(rng.uniform(size=N) < 0.9, 0.0, 1000.0 + noise), 1000.0, 100.0),
        "binary": (rng.integers(0, 2, N) * 1.0, 0.5, 0.5),
        "rare binary": ((rng.uniform(size=N) < 0.05) * 1.0, 1.0, 0.05),
    }


@pytest.mark.parametrize("name", columns())
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_scales_and_centres_are_found(name, delta):
    x, scale, center = columns()[name]
    others = np.random.default_rng(1).standard_normal((N, 2))
    _, found = search(np.column_stack((x, others)), delta=delta, epsilon=4.0)
    assert scale / 4 <= found.scale[0] <= 4 * scale
    # a centre that is near in units of the scale
    assert abs(found.center[0] - center) <= 1.5 * scale


def test_scales_are_powers_of_two_of_the_grid():
    _, found = search(np.random.default_rng(0).lognormal(0, 9, (N, 4)))
    np.testing.assert_array_equal(found.scale, 2.0 ** np.rint(np.log2(found.scale)))
    assert np.all((found.scale >= 2.0**-64) & (found.scale <= 2.0**64))


@pytest.mark.parametrize("value", [0.0, 7.0, 1e300, -1e300, np.inf, 1e-300])
def test_constant_columns_do_no_harm(value):
    X = np.column_stack((np.full(N, value), np.random.default_rng(0).standard_normal(N)))
    planned, found = search(X)
    assert np.all(np.isfinite(found.center))
    assert np.all(found.scale > 0)
    scaled = scale_rows(make_rows(X, True), found)
    assert np.all(np.isfinite(scaled.X))
    assert np.abs(scaled.X).max() <= magnitudes._BOX
    assert 0.25 <= found.scale[1] <= 4
    assert planned.search.share <= 0.3


def test_a_few_extreme_values_change_little():
    X = np.random.default_rng(0).standard_normal((N, 2))
    spoiled = X.copy()
    spoiled[: N // 100] = np.inf, -1e300
    for table in (X, spoiled):
        _, found = search(table)
        assert np.all((found.scale >= 0.5) & (found.scale <= 2))
        assert np.all(np.abs(found.center) <= 0.2)


def test_records_of_weight_zero_have_no_influence():
    X = np.random.default_rng(0).standard_normal((N, 2))
    present = (np.arange(N) % 2 == 0).astype(np.float64)
    other = X.copy()
    other[1::2] = 1e30
    for a, b in zip(search(X, present=present)[1], search(other, present=present)[1], strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("kind", ["csr", "csc"])
def test_sparse_tables_give_the_same_scales_and_stay_sparse(kind):
    rng = np.random.default_rng(0)
    X = rng.lognormal(3, 2, (N, 3)) * (rng.uniform(size=(N, 3)) < 0.2)
    _, dense = search(X, center=False)
    _, found = search(storage(X, kind), center=False)
    np.testing.assert_array_equal(found.scale, dense.scale)
    scaled = scale_rows(make_rows(storage(X, kind), True), found)
    assert sparse.issparse(scaled.X)
    expected = scale_rows(make_rows(X, True), dense).X
    np.testing.assert_allclose(scaled.X.toarray(), expected, rtol=1e-15)


@pytest.mark.parametrize("kind", ["dense", "csr", "csc"])
def test_no_warning_tells_of_a_signaling_nan(kind):
    values = np.array([[0x7FF0000000000001], [0x3FF0000000000000]], dtype=np.uint64)
    X = storage(values.view(np.float64), kind)
    with np.errstate(all="raise"):
        magnitudes.FeatureMagnitudes.of(0.0, 3.0, 1).transform(X)
        magnitudes.TargetMagnitude.of(0.0, 3.0).transform(values.view(np.float64)[:, 0])


def test_float32_tables_stay_float32():
    X = np.random.default_rng(0).standard_normal((200, 2)).astype(np.float32)
    scaled = scale_rows(make_rows(X, True), magnitudes.Magnitudes(np.ones(2), np.full(2, 2.0)))
    assert scaled.X.dtype == np.float32
    np.testing.assert_allclose(scaled.X, (X - 1) / 2, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(("center", "scale"), [(1e17, 1.0), (1e9, 1e-8), (1e308, 1e308)])
def test_a_scale_that_is_small_beside_the_centre_is_kept(center, scale):
    scaling = magnitudes.TargetMagnitude.of(center, scale)
    np.testing.assert_array_equal(scaling.transform([center]), 0.0)
    assert np.all(np.isfinite(scaling.transform([center / 2, 0.0, -center / 2])))
    assert scaling.unscale(np.ones(1), 0.0) == (scale, center)


@pytest.mark.parametrize("kind", ["csr", "csc"])
def test_sparse_values_that_overflow_do_so_in_silence(kind):
    X = storage(np.array([[1e300, 0.0], [-1e300, 1.0]]), kind)
    with np.errstate(all="raise"):
        scaled = magnitudes.FeatureMagnitudes.of(0.0, 1e-10, 2).transform(X)
        found = magnitudes.Magnitudes(np.zeros(2), np.full(2, 2.0**-64))
        boxed = scale_rows(make_rows(X, True), found).X.toarray()
    np.testing.assert_array_equal(scaled.toarray()[:, 0], [np.inf, -np.inf])
    np.testing.assert_array_equal(np.abs(boxed), [[64.0, 0.0], [64.0, 64.0]])


# ------------------------------------------------------------------------ what it costs


def scores(X, center, present=None):
    """What the selections see, with the prior left out."""
    rows = make_rows(X, True, present)
    counts = magnitudes._octaves(rows, np.full(X.shape[1], center))
    return -np.abs(counts @ magnitudes._influence()) / len(X)


MAGNITUDES = [0.0, 1e-300, 1e-30, 1e-3, 0.5, 1.0, 3.0, 1e3, 1e19, 1e300, np.inf, -1e300, -2.0]


@pytest.mark.parametrize("relation", ["replace-one", "zero-out"])
def test_the_range_of_the_scores_is_what_is_claimed(relation):
    rng = np.random.default_rng(0)
    factor = PrivacyBudget(1.0, relation=relation).record_factor
    largest = 0.0
    for n, center in itertools.product([1, 2, 5, 12], [0.0, 1.0, -0.3]):
        for _ in range(300):
            X = rng.choice([0.0, 0.01, 1.0, 30.0], (n, 1))
            i = rng.integers(n)
            X[i], other = rng.choice(MAGNITUDES), X.copy()
            present = np.ones(n)
            if relation == "zero-out":
                present[i] = 0.0
            else:
                other[i] = rng.choice(MAGNITUDES)
            change = scores(X, center) - scores(other, center, present)
            largest = max(largest, np.ptp(change) * n / factor)
    assert 0.9 < largest <= 1 + 1e-12


def test_influences_are_monotone_which_the_range_rests_on():
    influence = magnitudes._influence()
    assert np.all(np.diff(influence, axis=0) >= 0)  # larger deviations count no less
    assert np.all(np.diff(influence, axis=1) <= 0)
    assert influence.min() >= -0.5
    assert influence.max() == 0.5


def test_the_log_prior_is_public_and_finite():
    assert np.all(np.isfinite(magnitudes._LOG_PRIOR))
    assert magnitudes._LOG_PRIOR.shape == magnitudes._EXPONENTS.shape


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("n", [1, 50, 3000, 10**6])
@pytest.mark.parametrize("d", [1, 30])
@pytest.mark.parametrize("insist", [False, True])
def test_a_search_stays_within_its_share(delta, n, d, insist):
    budget = PrivacyBudget(1.0, delta)
    for center in (True, False):
        planned = plan_search(
            n, d, 2.0, budget.allowance, private_center=center, private_scale=True,
            largest_share=0.3, largest_noise=np.inf if insist else 0.04,
        )  # fmt: skip
        if planned is None:
            assert not insist
            continue
        facts, select, mean = planned
        assert 0 < facts.share <= 0.3
        kind = budget.allowance.kind
        spent = facts.n_scales * d * select.cost(kind)
        if mean is not None:
            assert isinstance(mean, Laplace) == (delta == 0)
            spent += facts.n_rounds * mean.cost(kind)
        assert spent <= facts.share * budget.allowance.amount * (1 + 1e-9)


def test_guesswork_is_refused():
    allowance = PrivacyBudget(0.1).allowance
    assert (
        plan_search(
            100, 30, 2.0, allowance, private_center=True, private_scale=True,
            largest_share=0.3, largest_noise=0.04,
        )
        is None
    )  # fmt: skip


def test_the_two_mechanisms_are_calibrated_to_the_derived_sensitivities():
    planned = plan_search(
        1000, 9, 2.0, Allowance("zcdp", 1.0), private_center=True, private_scale=True,
        largest_share=0.3, largest_noise=np.inf,
    )  # fmt: skip
    assert isinstance(planned.select, SelectVertex)
    assert planned.select.sensitivity == pytest.approx(2 / 1000, rel=1e-9)
    bound = 1.2 * 3
    assert planned.search.bound == bound
    assert planned.center.sensitivity == pytest.approx(2 * bound / 1000, rel=1e-9)
