"""Public bounds, and guesses in their place: clipping, scaling, and the way back."""

import itertools

import numpy as np
import pytest
from scipy import sparse
from support import assert_refuses, storage

from sklearn_dpsco.data.bounds import (
    TargetScaling,
    feature_scaling,
    guessed_feature_scaling,
    target_scaling,
)
from sklearn_dpsco.data.cells import checked_table
from sklearn_dpsco.exceptions import BoundsNotDeclaredWarning

SHIFTED = ([-1, 0, 2, -3, -2, 5], [1, 4, 6, 0, 1, 7])  # every branch, one column each


def table(n=40, d=6, seed=0):
    return np.random.default_rng(seed).uniform(-9, 9, (n, d))


def test_shift_and_width():
    for bounds, shift, width in (
        ((-1, 1), 0, 1),
        ((-5.0, 5.0), 0, 5),
        ((0, 4), 0, 4),  # one end at 0: zeros stay zeros
        ((-3, 0), 0, 3),
        ((2, 6), 4, 2),
        ((-2, 1), -0.5, 1.5),
        ((np.float32(0), np.int64(2)), 0, 2),
        (np.array([0.0, 2.0]), 0, 2),
        ([[0, 0], [2, 2]], 0, 2),
    ):
        scaling = feature_scaling(bounds, 2)
        np.testing.assert_array_equal(scaling.shift, [shift, shift], err_msg=str(bounds))
        np.testing.assert_array_equal(scaling.width, [width, width], err_msg=str(bounds))


def test_transform_clips_then_scales_into_the_box():
    scaling, X = feature_scaling(SHIFTED, 6), table()
    low, high = np.array(SHIFTED, dtype=float)
    out = scaling.transform(X)
    expected = (np.clip(X, low, high) - [0, 0, 4, 0, -0.5, 6]) / [1, 4, 2, 3, 1.5, 1]
    np.testing.assert_allclose(out, expected, rtol=1e-15)
    assert np.abs(out).max() == 1
    # ends map to the ends of the interval
    ends = scaling.transform(np.array([low, high]))
    np.testing.assert_array_equal(ends, [[-1, 0, -1, -1, -1, -1], [1, 1, 1, 0, 1, 1]])


def test_no_rounding_leads_out_of_the_box():
    rng = np.random.default_rng(0)
    for dtype in (np.float64, np.float32):
        low = rng.normal(size=500)
        high = low + rng.exponential(size=500)
        X = np.array([low, high, low - 1e9, high + 1e9]).astype(dtype)
        assert np.abs(feature_scaling((low, high), 500).transform(X)).max() <= 1


def test_a_column_without_width_is_refused():
    for bounds in (([0, 5], [1, 5]), ([0, 2], [1, 1]), (3, [4, 3])):
        assert_refuses(feature_scaling, "low < high in every column", bounds, 2)
    by_name = {"a": (0, 1), "b": (5, 5)}
    assert_refuses(feature_scaling, "low < high", by_name, 2, ["a", "b"])


def test_dense_is_in_c_order_and_leaves_the_input_alone():
    for dtype, kind in itertools.product((np.float32, np.float64), ("dense", "fortran")):
        X = storage(table().astype(dtype), kind)
        before = X.copy()
        out = feature_scaling(SHIFTED, 6).transform(X)
        np.testing.assert_array_equal(X, before)
        assert out.flags.c_contiguous, (dtype, kind)
        # one odd cell may make objects of float32, and these float64: by numbers alone
        np.testing.assert_array_equal(feature_scaling(SHIFTED, 6).transform(np.float64(X)), out)


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_value_out_of_bounds_does_not_show_in_the_products_of_other_rows(order):
    # where numbers do not lie at multiples of their size, as in a file behind a header
    values = np.random.default_rng(0).uniform(-1, 1, (300, 5))
    weights = np.random.default_rng(1).normal(size=5)
    products = []
    for first in (0.5, 5.0):
        X = np.zeros(values.nbytes + 4, dtype=np.uint8)[4:].view(np.float64)
        X = X.reshape(values.shape, order=order)
        X[...] = values
        X[0, 0] = first
        out = feature_scaling((-1, 1), 5).transform(X)
        assert out.flags.aligned
        products.append((out @ weights)[1:])
    np.testing.assert_array_equal(*products)


def test_what_needs_no_change_is_not_copied(tmp_path):
    for bounds in ((-1, 1), (0, 1), (-1, 0)):
        X = np.random.default_rng(0).uniform(*bounds, (1000, 3))
        scaling = feature_scaling(bounds, 3)
        assert scaling.transform(X) is X
        np.save(tmp_path / "X.npy", X)
        mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
        assert scaling.transform(mapped) is mapped
        X[-1, 2] = 1.5
        out = scaling.transform(X)
        assert out is not X
        assert out[-1, 2] == scaling.high[0], bounds
        assert X[-1, 2] == 1.5


def test_more_rows_than_one_block():
    X = np.random.default_rng(0).uniform(-2, 2, (300_000, 3))
    np.testing.assert_array_equal(feature_scaling((-1, 1), 3).transform(X), np.clip(X, -1, 1))


def test_sparse_equals_dense():
    dense = table(d=3) * (np.random.default_rng(1).uniform(size=(40, 3)) < 0.3)
    several = ((-1, 1), (0, 2), (-3, 0), ([-1, 0, -3], [1, 2, 0]))
    for kind, bounds in itertools.product(("csr", "csc"), several):
        X = storage(dense, kind)
        before = X.copy()
        scaling = feature_scaling(bounds, 3)
        out = scaling.transform(X)
        assert out.format == kind
        assert out.dtype == np.float64
        np.testing.assert_allclose(out.toarray(), scaling.transform(dense), rtol=1e-15)
        np.testing.assert_array_equal(X.toarray(), before.toarray())


def with_repeated_entries(kind):
    """Two entries of 0.8 in one place, and one of 0.3 elsewhere."""
    coordinates = ([0.8, 0.8, 0.3], ([0, 0, 1], [1, 1, 0]))
    X = storage(sparse.coo_array(coordinates, shape=(2, 2)), kind)
    if X.has_canonical_format:  # scipy sums on conversion to CSC and CSR: undo that
        X = type(X)(([0.8, 0.8, 0.3], [1, 1, 0], [0, 2, 3]), shape=(2, 2))
    return X


@pytest.mark.parametrize("kind", ["csr", "csc"])
def test_duplicates_are_summed_before_clipping_on_a_copy(kind):
    # 1.6, clipped to 1; clipped one by one they pass
    X = with_repeated_entries(kind)
    stored = X.nnz
    out = feature_scaling((-1, 1), 2).transform(checked_table(X, strict=True))
    assert stored == X.nnz == 3
    assert out.nnz == 2
    assert sorted(out.data) == [0.3, 1.0]


def test_sparse_refuses_bounds_that_shift():
    for bounds in ((-1, 2), (1, 2), ([0, -1], [1, 3]), (-2, -1)):
        transform = feature_scaling(bounds, 2).transform
        match = "sparse X needs bounds_X with one end at 0 or symmetric"
        assert_refuses(transform, match, sparse.csr_array(np.eye(2)))


def test_unscale_keeps_the_predictions():
    scaling, X = feature_scaling(SHIFTED, 6), table()
    X = np.clip(X, scaling.low, scaling.high)
    target = target_scaling((10.0, 50.0))
    scaled_coef, scaled_intercept = np.linspace(-1, 2, 6), 0.3
    scaled = scaling.transform(X) @ scaled_coef + scaled_intercept
    coef, intercept = target.unscale(*scaling.unscale(scaled_coef, scaled_intercept))
    np.testing.assert_allclose(X @ coef + intercept, 30 + 20 * scaled, rtol=1e-13)


def test_targets():
    scaling = target_scaling((10, 50))
    y = np.array([10, 50, 30, 0, 99])
    np.testing.assert_array_equal(scaling.transform(y), [-1, 1, 0, -1, 1])
    assert (scaling.middle, scaling.half) == (30, 20)
    np.testing.assert_array_equal(y, [10, 50, 30, 0, 99])
    # never centred at an end, unlike a feature
    assert target_scaling((0, 4)).middle == 2
    rng = np.random.default_rng(0)
    for _ in range(100):
        low = rng.normal()
        high = low + rng.exponential()
        assert np.abs(target_scaling((low, high)).transform([low, high])).max() <= 1


def test_bounds_as_dict_follow_the_names_not_the_order():
    scaling = feature_scaling({"b": (0, 4), "a": (2, 6)}, 2, ["a", "b"])
    np.testing.assert_array_equal(scaling.width, [2, 4])
    np.testing.assert_array_equal(scaling.shift, [4, 0])


def test_bad_bounds_by_name():
    for bounds, names in (
        ({"a": (0, 1)}, None),
        ({"a": (0, 1)}, ["a", "b"]),
        ({"a": (0, 1), "b": (0, 1), "c": (0, 1)}, ["a", "b"]),
        ({"a": (0, 1), "b": (1, 0)}, ["a", "b"]),
        ({"a": (0, 1), "b": ([0], [1])}, ["a", "b"]),
        ({"a": (0, 1), "b": 3}, ["a", "b"]),
    ):
        assert_refuses(feature_scaling, "bounds_X", bounds, 2, names)


def test_bad_pairs():
    for bounds in (
        (1, 0), (1, 1), (0, np.nan), (0, np.inf), (-np.inf, 0), (0,), (0, 1, 2), 3, "ab", {1},
        ("low", "high"), (None, 1), (0, 1j),
    ):  # fmt: skip
        assert_refuses(feature_scaling, "bounds_X must", bounds, 2)
        assert_refuses(target_scaling, "bounds_y must", bounds)


def test_bounds_of_wrong_shape():
    for bounds in (([0, 0], [1, 1]), ([0] * 4, [1] * 4), (0, [1, 1]), ([[0]], 1)):
        assert_refuses(feature_scaling, "scalars or arrays of shape", bounds, 3)
    for bounds in (([0, 0], [1, 1, 1]), ([[0]], [[1]]), ([0, 2], [1, 1])):
        assert_refuses(target_scaling, "bounds_y must be two numbers", bounds, 2)
    assert_refuses(target_scaling, "bounds_y has the ends of 2 targets", ([0, 0], [1, 1]), 3)


def test_undeclared_bounds_warn_with_a_fixed_text():
    with pytest.warns(BoundsNotDeclaredWarning, match=r"bounds_X .* clipped to \(-1, 1\)") as seen:
        first = feature_scaling(None, 3)
    with pytest.warns(BoundsNotDeclaredWarning) as again:
        feature_scaling(None, 50)
    assert str(seen[0].message) == str(again[0].message)
    assert (first.low == -1).all()
    assert (first.high == 1).all()
    with pytest.warns(BoundsNotDeclaredWarning, match=r"bounds_y .* clipped to \(-1, 1\)"):
        assert target_scaling(None) == target_scaling((-1, 1))


# ----------------------------------------------------------------------------- guesses


def test_the_map_is_that_of_the_guesses_and_neutral_for_private_ones():
    X = np.random.default_rng(0).standard_normal((20, 3))
    guessed = guessed_feature_scaling([1.0, 0.0, -2.0], 4.0, 3)
    np.testing.assert_allclose(guessed.transform(X), (X - [1, 0, -2]) / 4, rtol=1e-15)
    private = guessed_feature_scaling("private", "private", 3)
    assert private.transform(X) is X
    assert_refuses(guessed_feature_scaling, "center_X must hold", np.zeros(2), 1.0, 3)
    assert_refuses(guessed_feature_scaling, "scale_X must hold", 0.0, np.ones(4), 3)
    for kind in ("csr", "csc"):
        assert_refuses(guessed.transform, "sparse X needs center_X=0", storage(X, kind))


def test_no_warning_tells_of_a_signaling_nan():
    values = np.array([[0x7FF0000000000001], [0x3FF0000000000000]], dtype=np.uint64)
    values = values.view(np.float64)
    with np.errstate(all="raise"):
        for kind in ("dense", "csr", "csc"):
            guessed_feature_scaling(0.0, 3.0, 1).transform(storage(values, kind))
        TargetScaling(half=3.0).transform(values[:, 0])


def test_a_scale_that_is_small_beside_the_centre_is_kept():
    for center, scale in ((1e17, 1.0), (1e9, 1e-8), (1e308, 1e308)):
        scaling = TargetScaling(middle=center, half=scale)
        np.testing.assert_array_equal(scaling.transform([center]), 0.0)
        assert np.all(np.isfinite(scaling.transform([center / 2, 0.0, -center / 2])))
        assert scaling.unscale(np.ones(1), 0.0) == (scale, center)


@pytest.mark.parametrize("kind", ["dense", "csr", "csc"])
def test_values_that_overflow_do_so_in_silence(kind):
    X = storage(np.array([[1e300, 0.0], [-1e300, 1.0]]), kind)
    with np.errstate(all="raise"):
        scaled = guessed_feature_scaling(0.0, 1e-10, 2).transform(X)
    scaled = scaled if kind == "dense" else scaled.toarray()
    np.testing.assert_array_equal(scaled[:, 0], [np.inf, -np.inf])


def test_places_are_round_numbers_to_the_last_bit():
    """What most targets are must be a candidate of their median, and not lie beside one."""
    cases = (
        ((-50, 200), (0.0, -12.5, 40.0, 199.9)),
        ((0, 100), (40.0, 0.05, 99.95)),
        ((0, 200_000), (30_000.0, 12_350.0)),
        ((0, 1), (0.3, 0.7, 0.1235)),
        ((1013.25, 1013.75), (1013.3, 1013.5)),
        ((-1e50, 1e50), (0.0, 2e49)),
        ((0, 1e-50), (0.0, 3e-51)),
    )
    for bounds, values in cases:
        scaling = target_scaling(bounds, 1)
        places = scaling.places(0)
        assert 1600 <= places.size <= 4100, bounds
        assert (places[0], places[-1]) == (-1, 1), bounds
        assert np.all(np.diff(places) > 0), bounds
        assert np.isin(scaling.transform(list(values)), places).all(), bounds
    several = target_scaling(([-50, 0], [200, 100]), 2)
    scaled = several.transform([[0.0, 40.0], [12.5, 0.05]])
    for k in range(2):
        assert np.isin(scaled[:, k], several.places(k)).all()
    same = target_scaling((0, 100), 3)
    assert np.isin(same.transform([[40.0] * 3])[0], same.places(2)).all()
    assert TargetScaling().places(0).size > 4000  # of targets without bounds
