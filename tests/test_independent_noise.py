"""No two fits share noise: not after clone, copy, pickle or fork, in threads or in workers.

Every estimator of the package is fitted on data whose model is zero for certain, so that
two equal coefficients could only come from equal noise.
"""

import copy
import multiprocessing
import os
import pickle

import numpy as np
import pytest
from joblib import Parallel, delayed
from sklearn.base import clone
from sklearn.model_selection import cross_val_predict

from sklearn_dpsco import DPLassoFW, DPLassoFWClassifier

N, D = 40, 6
X = np.zeros((N, D))
Y = np.tile([1.0, -1.0], N // 2)


def regressor():
    return DPLassoFW(
        epsilon=50.0, bounds_X=(-1, 1), bounds_y=(-1, 1), max_iter=3, solver="gradient"
    )


def fitted(model):
    return model.fit(X, Y).coef_


def assert_all_differ(coefs):
    flat = np.ravel(coefs)
    assert flat.size == len(coefs) * np.size(coefs[0])
    assert np.unique(flat).size == flat.size


def test_clones_copies_and_pickles_draw_their_own_noise():
    model = regressor().fit(X, Y)
    others = [clone(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model)), model]
    assert_all_differ([model.coef_.copy()] + [fitted(other) for other in others])


@pytest.mark.parametrize("backend", ["threading", "loky"])
def test_joblib_workers_draw_their_own_noise(backend):
    model = regressor()
    assert_all_differ(Parallel(n_jobs=2, backend=backend)(delayed(fitted)(model) for _ in range(6)))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_forked_workers_draw_their_own_noise():
    model = regressor().fit(X, Y)  # everything is loaded and warm before the fork
    with multiprocessing.get_context("fork").Pool(2) as pool:
        coefs = pool.map(fitted, [model] * 4)
    assert_all_differ([*coefs, model.coef_, fitted(model)])


def test_folds_draw_their_own_noise():
    predictions = cross_val_predict(regressor(), X, Y, cv=4)
    assert np.unique(predictions).size == 4


def test_classes_draw_their_own_noise():
    labels = np.arange(N) % 4
    model = DPLassoFWClassifier(
        epsilon=50.0, bounds_X=(-1, 1), classes=range(4), max_iter=3, solver="gradient"
    )
    assert_all_differ(list(model.fit(X, labels).coef_))


def test_refits_with_a_seed_are_the_only_ones_that_agree():
    seeded = regressor().set_params(random_state=3)
    np.testing.assert_array_equal(fitted(clone(seeded)), fitted(clone(seeded)))
    assert not seeded.fit(X, Y).noise_is_secret_
    assert regressor().fit(X, Y).noise_is_secret_
