"""Fits of an estimator and its clones without an accountant: the guarantee of one tells of all."""

import copy
import gc
import pickle
import threading
import warnings
import weakref

import numpy as np
import pandas as pd
import pytest
from dp_accounting import GaussianDpEvent
from dp_accounting.rdp import RdpAccountant
from registry import build, each_reader, table
from sklearn.base import clone
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.model_selection import GridSearchCV, HalvingGridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from support import joined

from sklearn_dpsco import (
    BudgetAccountant,
    DPFTRLRegressor,
    DPGridSearchCV,
    DPLassoFW,
    DPMirrorRegressor,
    DPScaler,
    PrivacyLeakWarning,
    PublicEncoder,
)
from sklearn_dpsco.solvers import Descent

X, y = np.random.default_rng(0).uniform(0, 1, (600, 2)), np.linspace(0, 1, 600)
FACTS = {"bounds_X": (0, 1), "bounds_y": (0, 1), "delta": 1e-6}
GRID, FOLDS = {"epsilon": [0.1, 0.3]}, KFold(3)


def model_of(**settings):
    """One of few steps."""
    return DPMirrorRegressor(**FACTS, solver=Descent(max_iter=3), **settings)


def n_fits(model):
    fits = model.guarantee_.fits
    return 1 if fits is None else fits.n_fits


# ------------------------------------------------------------------- what is counted


@each_reader
def test_a_refit_and_a_clone_are_counted(name):
    data, target = table(name)
    model = build(name, random_state=None)
    assert model.fit(data, target).guarantee_.fits is None
    assert n_fits(clone(model).fit(data, target)) == 2
    assert n_fits(clone(clone(model)).fit(data, target)) == 3
    assert n_fits(model.fit(data, target)) == 4
    assert n_fits(build(name).fit(data, target)) == 1  # no clone
    claim = model.guarantee_
    assert claim.epsilon < claim.fits.epsilon <= 4 * claim.epsilon * (1 + 1e-9)


def test_searches_and_scores_of_scikit_learn_are_counted():
    search = GridSearchCV(model_of(), GRID, cv=FOLDS, error_score="raise").fit(X, y)
    fits = search.best_estimator_.guarantee_.fits
    assert (fits.n_fits, fits.has_copies) == (7, False)
    best = search.best_estimator_.guarantee_.epsilon
    assert best < fits.epsilon <= 3 * 0.1 + 3 * 0.3 + best
    assert fits.delta == pytest.approx(7e-6)
    html = search.best_estimator_._privacy().html()
    for text in (joined(search.best_estimator_.guarantee_), html):
        assert "one of 7 fits of this estimator and its clones" in text
    report = search.best_estimator_.guarantee_.report()
    assert "one of 7 fits of this estimator and its clones" in joined(report)
    assert report.facts["fits"] == {
        "n_fits": fits.n_fits,
        "epsilon": fits.epsilon,
        "delta": fits.delta,
        "has_copies": fits.has_copies,
        "noise_is_secret": fits.noise_is_secret,
    }

    pipeline = make_pipeline(PublicEncoder({"a": (0, 1), "b": (0, 1)}), model_of())
    frame = pd.DataFrame(X, columns=["a", "b"])
    assert len(cross_val_score(pipeline, frame, y, cv=FOLDS, error_score="raise")) == 3
    assert n_fits(pipeline.fit(frame, y)[-1]) == 4

    halving = HalvingGridSearchCV(
        model_of(), GRID, cv=FOLDS, min_resources=200, factor=2, error_score="raise"
    ).fit(X, y)
    n_iterations = sum(halving.n_candidates_) * 3
    assert n_fits(halving.best_estimator_) == n_iterations + 1


def test_what_an_accountant_counts_is_not_counted_twice():
    model, accountant = model_of(epsilon=0.2), BudgetAccountant(3.0)
    with accountant:
        assert model.fit(X, y).guarantee_.fits is None
        assert clone(model).fit(X, y).guarantee_.fits is None
    assert clone(model).set_params(accountant=accountant).fit(X, y).guarantee_.fits is None
    assert n_fits(model.fit(X, y)) == 1
    assert clone(model).set_params(accountant=accountant).fit(X, y).guarantee_.fits is None
    search = DPGridSearchCV(model_of(), {"fit_intercept": [False]}, epsilon=9.0, delta=1e-6).fit(
        X, y
    )
    assert search.guarantee_.fits is search.best_estimator_.guarantee_.fits is None
    assert n_fits(search.fit(X, y)) == 2
    scaler = DPScaler(delta=1e-6)
    assert [n_fits(scaler.fit(X)) for _ in range(2)] == [1, 2]


def test_what_fails_before_a_charge_is_not_counted():
    model = model_of()
    with pytest.raises(ValueError, match="NaN"):
        model.fit(np.full((600, 2), np.nan), y)
    assert n_fits(model.fit(X, y)) == 1


def test_a_stream_is_one_fit():
    settings = FACTS | {"horizon": 600, "random_state": 0}
    stream = DPFTRLRegressor(**settings)
    for part in range(3):
        stream.partial_fit(X[part::3], y[part::3])
    assert stream.guarantee_.fits is None
    other = clone(stream)
    for part in range(3):
        other.partial_fit(X[part::3], y[part::3])
        assert n_fits(other) == 2


# ------------------------------------------------------------------- what they cost


def test_the_total_covers_what_others_compute():
    model, spent = model_of(), []
    for epsilon in (0.5, 0.1, 0.3, 0.5):
        spent.append(clone(model).set_params(epsilon=epsilon).fit(X, y).guarantee_)
    accountant = RdpAccountant(1 + np.geomspace(1e-2, 1e4, 2000))
    for guarantee in spent:
        accountant.compose(GaussianDpEvent(1 / np.sqrt(2 * guarantee.cost("zcdp"))))
    fits = spent[-1].fits
    assert fits.delta == pytest.approx(4e-6)
    assert fits.epsilon == pytest.approx(accountant.get_epsilon(fits.delta), rel=1e-4)
    assert fits.epsilon < 0.8  # of 1.4
    # where nothing but epsilons can be added
    pure = DPLassoFW(**FACTS | {"delta": 0}, solver="selection", epsilon=0.5)
    pure.fit(X, y)
    fits = pure.set_params(epsilon=0.25).fit(X, y).guarantee_.fits
    assert (fits.epsilon, fits.delta) == (0.75, 0.0)
    told = "cost up to epsilon = 0.75 together, if they were fixed beforehand"
    assert told in joined(pure.guarantee_)


def test_totals_that_are_not_known_are_not_told():
    others = {"relation": "zero-out"}, {"epsilon": float("inf")}, {"max_rows_per_user": 2}
    for other in others:
        model = model_of(epsilon=0.5)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyLeakWarning)
            clone(model).set_params(**other).fit(X, y)
        fitted = model.fit(X, y)
        fits = fitted.guarantee_.fits
        assert (fits.n_fits, fits.epsilon) == (2, None)
        assert "cost up to an unknown epsilon" in joined(fitted.guarantee_)
        assert fitted.guarantee_.report().facts["fits"].get("epsilon") is None


def test_a_seed_leaves_no_total():
    model = model_of(epsilon=0.5)
    fits = clone(model.fit(X, y)).fit(X, y).guarantee_.fits
    assert fits.noise_is_secret
    assert fits.epsilon < 1
    with pytest.warns(PrivacyLeakWarning):
        seeded = clone(model).set_params(random_state=0).fit(X, y)
    for n, last in ((3, seeded), (4, model.fit(X, y))):
        fits = last.guarantee_.fits
        assert (fits.n_fits, fits.epsilon, fits.noise_is_secret) == (n, None, False)
        assert "unknown epsilon, delta" in joined(last.guarantee_)
        assert "together, since one of them had a seed" in joined(last.guarantee_)


# ----------------------------------------------------------- copies, threads, memory


def test_copies_elsewhere_are_told_of():
    model = model_of()
    for copied in (lambda one: pickle.loads(pickle.dumps(one)), copy.deepcopy):
        template = clone(model)
        fits = copied(template).fit(X, y).guarantee_.fits
        assert (fits.n_fits, fits.has_copies) == (1, True)  # it begins anew
    fits = model.fit(X, y).guarantee_.fits
    assert (fits.n_fits, fits.has_copies) == (1, True)
    assert "was copied or pickled, as for" in joined(model.guarantee_)
    assert "one of" not in joined(model.guarantee_)
    for copied in (pickle.dumps, copy.copy):
        model = model_of()  # never cloned
        copied(model)
        assert model.fit(X, y).guarantee_.fits.has_copies
    # a model that was stored brings its guarantee along, and does not count as a copy to be fitted
    fitted = model_of().fit(X, y).fit(X, y)
    loaded = pickle.loads(pickle.dumps(fitted))
    assert loaded.guarantee_.fits == fitted.guarantee_.fits
    assert not fitted.fit(X, y).guarantee_.fits.has_copies
    # and is one of the family where its fits are seen
    for count, again in enumerate((loaded, copy.deepcopy(fitted), copy.copy(loaded)), 4):
        assert n_fits(again.fit(X, y)) == count


def test_a_model_stored_by_skops_is_one_of_the_family_where_its_fits_are_seen():
    skops = pytest.importorskip("skops.io")
    fitted = model_of().fit(X, y)
    stored = skops.dumps(fitted)
    untrusted = skops.get_untrusted_types(data=stored)
    loaded = skops.loads(stored, trusted=untrusted)
    np.testing.assert_array_equal(loaded.coef_, fitted.coef_)
    for count, one in enumerate((loaded, fitted, clone(loaded)), 2):
        assert n_fits(one.fit(X, y)) == count
    del fitted, loaded, one
    gc.collect()  # as in another process
    loaded = skops.loads(stored, trusted=untrusted)
    assert [n_fits(one.fit(X, y)) for one in (loaded, clone(loaded))] == [1, 2]


def test_fits_of_all_threads_are_counted():
    model, found, start = model_of(), [], threading.Barrier(8)

    def work():
        start.wait()
        for _ in range(2):
            found.append(n_fits(clone(model).fit(X, y)))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(found) == 16
    assert n_fits(model.fit(X, y)) == 17


def test_clones_keep_no_models_in_memory():
    model = model_of()
    fitted = clone(model).fit(X, y)
    gone = weakref.ref(fitted)
    del fitted
    gc.collect()
    assert gone() is None
    assert b"_lineage" not in pickle.dumps(model)
