"""Private scales and centres: what is found, in what columns, and what one record can do."""

import itertools

import numpy as np
import pytest
from scipy import sparse
from support import rest_is_slow, solver_data, storage, stream

from sklearn_dpsco.data.rows import Rows
from sklearn_dpsco.mechanisms import Laplace, SelectVertex
from sklearn_dpsco.privacy.budget import Allowance, PrivacyBudget
from sklearn_dpsco.solvers.base import Frame
from sklearn_dpsco.solvers.heavy_tail import magnitudes
from sklearn_dpsco.solvers.heavy_tail.magnitudes import Columns, plan_search
from sklearn_dpsco.solvers.records import in_box

N = 20_000


def planned_search(n, d, allowance, *, center=True, factor=2.0, noise=0.04):
    return plan_search(
        Columns("features", n, d, factor, allowance),
        private_center=center,
        private_scale=True,
        largest_share=0.3,
        largest_noise=noise,
    )


def search(X, *, epsilon=1.0, delta=1e-6, center=True, seed=0, present=None):
    budget = PrivacyBudget(epsilon, delta)
    factor = budget.record_factor
    planned = planned_search(*X.shape, budget.allowance, center=center, factor=factor)
    assert planned is not None
    return planned, planned.run(solver_data(X, np.zeros(X.shape[0]), scale=present), stream(seed))


def scaled_rows(X, found):
    data = solver_data(X, np.zeros(X.shape[0]))
    return in_box(data, found.center, found.scale, magnitudes.BOX).rows


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


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_scales_and_centres_are_found(delta):
    others = np.random.default_rng(1).standard_normal((N, 2))
    for name, (x, scale, center) in columns().items():
        _, found = search(np.column_stack((x, others)), delta=delta, epsilon=4.0)
        assert scale / 4 <= found.scale[0] <= 4 * scale, name
        # a centre that is near in units of the scale
        assert abs(found.center[0] - center) <= 1.5 * scale, name


def test_scales_are_powers_of_two_of_the_grid():
    _, found = search(np.random.default_rng(0).lognormal(0, 9, (N, 4)))
    np.testing.assert_array_equal(found.scale, 2.0 ** np.rint(np.log2(found.scale)))
    assert np.all((found.scale >= 2.0**-64) & (found.scale <= 2.0**64))


def test_constant_columns_do_no_harm():
    for value in (0.0, 7.0, 1e300, -1e300, np.inf, 1e-300):
        X = np.column_stack((np.full(N, value), np.random.default_rng(0).standard_normal(N)))
        planned, found = search(X)
        assert np.all(np.isfinite(found.center)), value
        assert np.all(found.scale > 0), value
        scaled = scaled_rows(X, found)
        assert np.all(np.isfinite(scaled.X)), value
        assert np.abs(scaled.X).max() <= magnitudes.BOX, value
        assert 0.25 <= found.scale[1] <= 4, value
        assert planned.share <= 0.3


def test_a_few_extreme_values_change_little():
    X = np.random.default_rng(0).standard_normal((N, 2))
    spoiled = X.copy()
    spoiled[: N // 100] = np.inf, -1e300
    for table in (X, spoiled):
        _, found = search(table)
        assert np.all((found.scale >= 0.5) & (found.scale <= 2))
        assert np.all(np.abs(found.center) <= 0.2)


def test_a_rare_flag_does_not_reach_far():
    # few records have a size at all, and a small part of those is less than the noise
    flags = (np.random.default_rng(0).random((N, 200)) < 0.03) * 1.0
    data, allowance = solver_data(flags, np.zeros(N)), PrivacyBudget(100.0, 1e-6).allowance
    planned = magnitudes.plan_reach(Columns("feature", N, 200, 1.0, allowance), 0.25)
    typical, reach = planned.run(data, stream(0))
    assert np.mean(reach > 4 * 8 * typical) < 0.04


def test_records_of_weight_zero_have_no_influence():
    X = np.random.default_rng(0).standard_normal((N, 2))
    present = (np.arange(N) % 2 == 0).astype(np.float64)
    other = X.copy()
    other[1::2] = 1e30
    found = [search(table, present=present)[1] for table in (X, other)]
    for name in ("center", "scale"):
        np.testing.assert_array_equal(*(getattr(frame, name) for frame in found))


@pytest.mark.parametrize("kind", ["csr", "csc"])
def test_sparse_tables_give_the_same_scales_and_stay_sparse(kind):
    rng = np.random.default_rng(0)
    X = rng.lognormal(3, 2, (N, 3)) * (rng.uniform(size=(N, 3)) < 0.2)
    _, dense = search(X, center=False)
    _, found = search(storage(X, kind), center=False)
    np.testing.assert_array_equal(found.scale, dense.scale)
    scaled = scaled_rows(storage(X, kind), found)
    assert sparse.issparse(scaled.X)
    expected = scaled_rows(X, dense).X
    np.testing.assert_allclose(scaled.X.toarray(), expected, rtol=1e-15)


def test_float32_tables_stay_float32():
    X = np.random.default_rng(0).standard_normal((200, 2)).astype(np.float32)
    scaled = scaled_rows(X, Frame(center=np.ones(2), scale=np.full(2, 2.0)))
    assert scaled.X.dtype == np.float32
    np.testing.assert_allclose(scaled.X, (X - 1) / 2, rtol=1e-6, atol=1e-7)


def test_sparse_values_that_overflow_do_so_in_silence():
    for kind in ("csr", "csc"):
        X = storage(np.array([[1e300, 0.0], [-1e300, 1.0]]), kind)
        found = Frame(center=np.zeros(2), scale=np.full(2, 2.0**-64))
        with np.errstate(all="raise"):
            boxed = scaled_rows(X, found).X.toarray()
        np.testing.assert_array_equal(np.abs(boxed), [[64.0, 0.0], [64.0, 64.0]])


# ------------------------------------------------------------------------ what it costs


def scores(X, center, present=None, q=0.5):
    """What the selections see, with the prior left out."""
    data = solver_data(X, np.zeros(X.shape[0]), scale=present)
    counts = magnitudes._octaves(data, np.full(X.shape[1], center))
    return -np.abs(counts @ (magnitudes._CLIPPED_SQUARE - q)) / len(X)


MAGNITUDES = [0.0, 1e-300, 1e-30, 1e-3, 0.5, 1.0, 3.0, 1e3, 1e19, 1e300, np.inf, -1e300, -2.0]


@rest_is_slow(
    ("q", "relation"),
    itertools.product((0.5, 0.03), ("replace-one", "zero-out")),
    ("0.5-replace-one", "0.03-zero-out"),
)
def test_the_range_of_the_scores_is_what_is_claimed(relation, q):
    rng = np.random.default_rng(0)
    # at another share than 1/2, what appears moves scores by up to 1 - q, up and down
    factor = PrivacyBudget(1.0, relation=relation).record_factor if q == 0.5 else 2.0
    largest = 0.0
    for n, center in itertools.product([1, 2, 5, 12 if q == 0.5 else 120], [0.0, 1.0, -0.3]):
        for _ in range(50):
            X = rng.choice([0.0, 0.01, 1.0, 30.0], (n, 1))
            i = rng.integers(n)
            X[i], other = rng.choice(MAGNITUDES), X.copy()
            present = np.ones(n)
            if relation == "zero-out":
                present[i] = 0.0
            else:
                other[i] = rng.choice(MAGNITUDES)
            change = scores(X, center, q=q) - scores(other, center, present, q)
            largest = max(largest, np.ptp(change) * n / factor)
    assert 0.9 < largest <= 1 + 1e-12


def test_a_shared_scale_sees_one_number_of_each_record():
    X = np.array([[3.0, 4.0], [np.inf, 0.0], [0.0, 0.0], [1e300, 1e300]])
    sizes = magnitudes._sizes(Rows(X, True), np.zeros(2)).X[:, 0]
    np.testing.assert_allclose(sizes[0], 5 / np.sqrt(2))
    assert not np.any(np.isnan(sizes))
    csr = magnitudes._sizes(Rows(storage(X, "csr"), True), np.zeros(2)).X[:, 0]
    np.testing.assert_array_equal(csr, sizes)


def test_the_presence_of_a_target_decides_on_its_scale():
    allowance = PrivacyBudget(1.0).allowance
    for n, is_hopeless in ((30, True), (10_000, False)):
        planned = planned_search(n, 1, allowance, center=False, noise=np.inf)
        assert planned.shared is None
        assert (planned.presence is None) == is_hopeless
        for share in (0.0, 1.0):
            y = np.full((n, 1), 1e6 * share)
            for seed in range(20):
                scale = planned.run(solver_data(y, y[:, 0]), stream(seed)).scale[0]
                assert scale <= 1.0 or share, (n, share, seed)
                if not is_hopeless:
                    assert scale == 2.0**-64 if share == 0 else 1e5 < scale < 1e7, (share, seed)
    # a record is there or not, under both relations
    assert planned.presence.sensitivity == pytest.approx(1 / n, rel=1e-6)


def test_influences_are_monotone_which_the_range_rests_on():
    influence = magnitudes._CLIPPED_SQUARE
    assert np.all(np.diff(influence, axis=0) >= 0)  # larger deviations count no less
    assert np.all(np.diff(influence, axis=1) <= 0)
    assert influence.min() >= 0
    assert influence.max() == 1


def test_the_log_prior_is_public_and_finite():
    assert np.all(np.isfinite(magnitudes._LOG_PRIOR))
    assert magnitudes._LOG_PRIOR.shape == magnitudes._EXPONENTS.shape


def test_a_search_stays_within_its_share_and_is_what_is_counted():
    grid = itertools.product(
        (0.0, 1e-6), (1, 50, 3000, 10**6), (1, 30), (np.inf, 0.04), (True, False)
    )
    for delta, n, d, noise, center in grid:
        case = (delta, n, d, noise, center)
        allowance = PrivacyBudget(1.0, delta).allowance
        planned = planned_search(n, d, allowance, center=center, noise=noise)
        if planned is None:
            assert noise == 0.04, case  # not if a search is insisted on
            continue
        assert 0 < planned.share <= 0.3, case
        named = (
            (planned.shared, planned.n_shared),
            (planned.select, planned.n_scales * d),
            (planned.presence, 1),
        )
        spent = sum(count * m.cost(allowance.kind) for m, count in named if m is not None)
        if planned.center is not None:
            assert isinstance(planned.center, Laplace) == (delta == 0), case
            spent += planned.n_rounds * planned.center.cost(allowance.kind)
        assert spent <= planned.share * allowance.amount * (1 + 1e-9), case
        counted = sum(release.cost(allowance.kind) for release in planned.releases)
        assert counted == pytest.approx(spent, rel=1e-12), case


def test_guesswork_is_refused():
    assert planned_search(100, 30, PrivacyBudget(0.1).allowance) is None


def test_the_two_mechanisms_are_calibrated_to_the_derived_sensitivities():
    planned = planned_search(1000, 9, Allowance("zcdp", 1.0), noise=np.inf)
    assert isinstance(planned.select, SelectVertex)
    assert planned.select.sensitivity == pytest.approx(2 / 1000, rel=2e-6)
    bound = 1.2 * 3
    assert planned.bound == bound
    assert planned.center.sensitivity == pytest.approx(2 * bound / 1000, rel=1e-9)
    named = [(r.name, r.mechanism, r.count) for r in planned.releases]
    assert named == [
        ("shared features scale", planned.shared, 1),
        ("features scales", planned.select, planned.n_scales * 9),
        ("features centres", planned.center, planned.n_rounds),
    ]
