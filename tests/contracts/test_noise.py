"""No two releases share noise: not within a fit, nor after clone, copy, pickle or fork.

All data are zeros, whose best model is zero, so that two equal coefficients could only come
from equal noise. The noise is that of the users, without a seed; two draws that do not
share anything come so close that a test fails about once in a million runs.
"""

import copy
import multiprocessing
import os
import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from registry import (
    ESTIMATORS,
    ONE_OF_EACH_SOLVER,
    build,
    each_descending_form,
    entry,
    every_release,
    is_classifier,
    main_form,
    outcome,
    table,
    targets_of,
)
from sklearn.base import clone
from sklearn.ensemble import AdaBoostRegressor, BaggingRegressor
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from support import half_is_enough

from sklearn_dpsco import PrivacyLeakWarning

N, D = 60, 4
CLASSES = ["a", "b", "c"]


def zeros(name):
    """A table of zeros; every label has the same number of records in it."""
    labels = is_classifier(name)
    y = np.tile(CLASSES, N // 3) if labels else np.tile(targets_of(name, [1, -1]), N // 2)
    return np.zeros((N, D)), y


def model_of(name, form, **parameters):
    classes = {"classes": CLASSES} if is_classifier(name) else {}
    return build(name, form, **{"random_state": None} | classes | parameters)


def recorded_noise(run):
    """The noise, in units of its scale, of every release of a vector while `run()` goes on."""
    found = []

    def answer(mechanism, value, release):
        released = release()
        if np.ndim(released):  # not the index of a selection
            found.append((np.array(released) - value) / mechanism.scale)
        return released

    with every_release(answer):
        run()
    return found


def fit_in_many_ways(model, X, y):
    """Fits that no two of may share noise."""
    model.fit(X, y)
    for other in (clone(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model)), model):
        other.fit(X, y)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: clone(model).fit(X, y), range(4)))
    cross_val_predict(model, X, y, cv=3)


@each_descending_form
def test_no_two_releases_share_noise(name, form):
    X, y = zeros(name)
    # in floating point, any two coordinates that are equal tell of one draw
    model = model_of(name, form, precision="float")
    noise = recorded_noise(lambda model=model: fit_in_many_ways(model, X, y))
    assert len(noise) >= 12
    drawn = np.sort(np.concatenate(noise))
    assert np.diff(drawn).min() > 1e-13
    # exact noise lies on a grid, where single coordinates may agree and vectors do not
    model = model_of(name, form)
    noise = recorded_noise(lambda model=model: fit_in_many_ways(model, X, y))
    vectors = [vector[:D] for vector in noise if vector.size >= D]
    if form not in entry(name).by_selection:
        assert len(vectors) > 10
    before = np.array(vectors)
    for i, vector in enumerate(vectors[1:]):
        assert np.abs(before[: i + 1] - vector).max(axis=1).min() > 1e-3


@each_descending_form
def test_refits_with_one_seed_share_all_their_noise(name, form):
    X, y = zeros(name)
    seeded = model_of(name, form, random_state=3)
    first = recorded_noise(lambda model=seeded: model.fit(X, y))
    twin = clone(seeded)
    again = recorded_noise(lambda model=twin: model.fit(X, y))
    np.testing.assert_array_equal(np.concatenate(first), np.concatenate(again))


# ---------------------------------------------------------------------- other processes


def fitted(model):
    name = type(model).__name__
    return outcome(model.fit(*zeros(name)))


def models(cells):
    """Of each estimator, or one of each solver's, a form whose coefficients hold additive noise."""
    # no grid on which two draws may meet, and too little noise for anything to be clipped
    far_apart = {"precision": "float", "epsilon": 20.0}
    names = ESTIMATORS if cells == "all" else ONE_OF_EACH_SOLVER
    return [model_of(name, main_form(name), **far_apart) for name in names]


def all_fitted(some):
    return [fitted(model) for model in some]


def assert_all_differ(outcomes):
    flat = np.concatenate(outcomes)
    # some models leave at zero what, by its noise, seems to hold nothing, but not their levels
    drawn = flat[flat != 0]
    assert all(np.any(one) for one in outcomes)
    assert np.unique(drawn).size == drawn.size


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:most values of the target may lie beyond")  # by chance, rarely
@half_is_enough
def test_forked_workers_draw_their_own_noise(cells):
    before = all_fitted(some := models(cells))  # everything is loaded and warm before the fork
    with multiprocessing.get_context("fork").Pool(2) as pool:
        outcomes = pool.map(all_fitted, [some] * 3, chunksize=1)
    for of_one in zip(before, all_fitted(some), *outcomes, strict=True):
        assert_all_differ(of_one)


def test_seeds_that_ensembles_draw_for_their_members_are_told():
    X, y = table("DPLassoFW")
    member = build("DPLassoFW")
    member.random_state = None
    for alone in (member, make_pipeline(member)):
        for ensemble in (
            BaggingRegressor(alone, 2, bootstrap=False),
            AdaBoostRegressor(alone, n_estimators=2),
        ):
            with pytest.warns(PrivacyLeakWarning, match="Fit the members one by one"):
                ensemble.fit(X, y)
            models = [getattr(m, "steps", [(0, m)])[-1][1] for m in ensemble.estimators_]
            assert not any(m.noise_is_secret_ for m in models)


def test_a_seed_is_set_wherever_it_is_set():
    class Ensemble(BaggingRegressor):
        def seeded(self):
            return clone(self.estimator).set_params(random_state=7)

    member = build("DPLassoFW")
    member.random_state = None
    with pytest.warns(PrivacyLeakWarning, match="set to a seed"):
        assert Ensemble(member).seeded().random_state == 7
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for seed in (3, None):  # it was one before, or there is none after
            assert build("DPLassoFW").set_params(random_state=seed).random_state == seed
        assert clone(member).set_params(epsilon=2.0).random_state is None
