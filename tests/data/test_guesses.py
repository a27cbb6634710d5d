"""Public guesses of scales and centres: the map that they make, and no warning about values."""

import numpy as np
import pytest
from support import assert_refuses, storage

from sklearn_dpsco.data.bounds import guessed_feature_scaling, guessed_target_scaling


def test_the_map_is_that_of_the_guesses_and_neutral_for_private_ones():
    X = np.random.default_rng(0).standard_normal((20, 3))
    guessed = guessed_feature_scaling([1.0, 0.0, -2.0], 4.0, 3)
    np.testing.assert_allclose(guessed.transform(X), (X - [1, 0, -2]) / 4, rtol=1e-15)
    private = guessed_feature_scaling("private", "private", 3)
    assert private.transform(X) is X
    assert guessed_target_scaling("private", "private") == guessed_target_scaling(0.0, 1.0)
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
        guessed_target_scaling(0.0, 3.0).transform(values[:, 0])


def test_a_scale_that_is_small_beside_the_centre_is_kept():
    for center, scale in ((1e17, 1.0), (1e9, 1e-8), (1e308, 1e308)):
        scaling = guessed_target_scaling(center, scale)
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
