"""Fits side by side: on threads, in processes, and on a Dask cluster, with and without processes.

Whatever runs the tasks of joblib: no two draw the same noise, results for a seed are the same to
the last bit, and all are charged, to one budget that no race exceeds.
"""

import functools
import pickle
import threading
import warnings

import numpy as np
import pandas as pd
import pytest
from joblib import Parallel, delayed, parallel_config
from registry import ESTIMATORS, ONE_OF_EACH_SOLVER, build, main_form, outcome, table
from registry import fitted as alone
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import BaggingRegressor
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from support import half_is_enough, pure, rest_is_slow
from test_noise import assert_all_differ, fitted, models, zeros

from sklearn_dpsco import (
    BoundsNotDeclaredWarning,
    BudgetAccountant,
    DPFTRLRegressor,
    DPGridSearchCV,
    DPLassoFW,
    DPMirrorRegressor,
    DPScaler,
    PrivacyBudgetError,
)
from sklearn_dpsco.geometry import L2Ball
from sklearn_dpsco.privacy import accountant as accountant_module
from sklearn_dpsco.solvers import FTRL, Descent, NoisyMD, Selection

BOUNDS = {"bounds_X": (-1, 1), "bounds_y": (-1, 1)}
# so many records and so large an epsilon that a choice pays
ENOUGH = {"epsilon": 60.0, "relation": "zero-out"}
IN_PROCESS = ("threading", "dask threads")
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


def backends(*always):
    """The other ones are slow; a cluster of Dask is also used in test_elsewhere.py."""
    names = ("threading", "loky", "multiprocessing", "dask", "dask threads")
    return [pytest.param(one, marks=() if one in always else pytest.mark.slow) for one in names]


# for what is in processes as other tests state of them
on_threads = pytest.mark.parametrize(
    "backend", backends("threading"), indirect=True, scope="module"
)


@pytest.fixture(scope="module", params=backends("threading", "multiprocessing"))
def backend(request):
    """Its name; the tests of one run together, so that no process is forked beside a cluster."""
    return request.param


@pytest.fixture(scope="module")
def client(backend):
    """Of a cluster of two workers, if the backend is Dask."""
    if not backend.startswith("dask"):
        yield None
        return
    distributed = pytest.importorskip("distributed", reason="needs dask and distributed")
    size = {"n_workers": 2, "threads_per_worker": 1, "processes": backend == "dask"}
    quiet = {"dashboard_address": ":0", "silence_logs": 60}
    with (
        distributed.LocalCluster(**size, **quiet) as cluster,
        distributed.Client(cluster, set_as_default=False) as found,
    ):
        yield found


@pytest.fixture
def side_by_side(backend, client):
    """Within it, two tasks of joblib run at the same time."""
    if client is None:
        context = parallel_config(backend, n_jobs=2)
    else:
        client.wait_for_workers(2)
        context = parallel_config("dask", n_jobs=2, client=client)
    with context:
        yield


def kept(path, epsilon, delta=1e-6):
    accountant = BudgetAccountant(epsilon, delta)
    accountant.save(path / "budget.json")
    return accountant


def lasso(**parameters):
    few = {"epsilon": 0.1, "max_weight": 1.0, "solver": Selection(max_iter=2)}
    return DPLassoFW(**few | BOUNDS | parameters)


def private_search(**settings):
    model = DPMirrorRegressor(**BOUNDS, solver=NoisyMD(max_iter=3), feasible_set=L2Ball(0.01))
    return DPGridSearchCV(model, {"feasible_set": [L2Ball(0.1), L2Ball(1.0)]}, **ENOUGH | settings)


def regression(n=60):
    return table("DPLassoFW", n)


# ------------------------------------------------------------------------------------ noise


@half_is_enough
@pytest.mark.filterwarnings("ignore:most values of the target may lie beyond")  # by chance, rarely
def test_no_two_tasks_draw_the_same_noise(side_by_side, cells):
    begun = models(cells)
    before = [fitted(model) for model in begun]
    # one that is sent as it was fitted, twice; threads must not fit one object together
    sent = [
        one for m in begun for one in (clone(m), *(pickle.loads(pickle.dumps(m)) for _ in "ab"))
    ]
    found = Parallel()(delayed(fitted)(model) for model in sent)
    for k in range(len(begun)):
        assert_all_differ([before[k], *found[3 * k : 3 * k + 3]])


def go_on(stored):
    model = pickle.loads(stored)
    X, y = zeros("DPFTRLRegressor")
    return outcome(model.partial_fit(X[30:], y[30:]))


def test_streams_that_go_on_from_one_pickle_draw_noise_of_their_own(side_by_side):
    X, y = zeros("DPFTRLRegressor")
    settings = {"horizon": 60, "epsilon": 20.0, "precision": "float", "fit_intercept": False}
    model = DPFTRLRegressor(**settings, **BOUNDS, solver=FTRL(batch_size=5))
    stored = pickle.dumps(model.partial_fit(X[:30], y[:30]))
    found = [outcome(model.partial_fit(X[30:], y[30:])), *Parallel()([delayed(go_on)(stored)] * 3)]
    assert_all_differ([model[:-1] for model in found])  # no intercept


# -------------------------------------------------------------------- results for a seed


def fit(name):
    return outcome(build(name, main_form(name)).fit(*table(name)))


@half_is_enough
def test_seeded_fits_are_the_same_to_the_last_bit(side_by_side, cells):
    names = ESTIMATORS if cells == "all" else ONE_OF_EACH_SOLVER
    found = Parallel()(delayed(fit)(name) for name in names)
    for name, coefficients in zip(names, found, strict=True):
        expected = outcome(alone(name, main_form(name)))
        np.testing.assert_array_equal(coefficients, expected, err_msg=name)


def searched():
    """What searches and other meta-estimators give for seeds."""
    X, y = regression(200)
    model = lasso(random_state=1)
    grid = GridSearchCV(model, {"solver__max_iter": [2, 3]}, cv=KFold(2), error_score="raise")
    grid.fit(X, y)
    scores = cross_val_score(private_search(random_state=4), X, y, cv=KFold(2))
    found = [grid.cv_results_["mean_test_score"], scores]
    search = private_search(random_state=2).fit(X, y)
    assert search.plan_.candidates[0] == {"feasible_set": L2Ball(0.01)}
    found += [outcome(search.best_estimator_), [search.best_index_]]
    return np.concatenate(found)


@functools.cache
def searched_alone():
    with parallel_config("sequential"):
        return searched()


@on_threads
def test_seeded_searches_are_the_same_to_the_last_bit(side_by_side):
    np.testing.assert_array_equal(searched(), searched_alone())


# ---------------------------------------------------------------------------------- charges


@pytest.mark.filterwarnings("ignore:n_samples=30 is too small for a private choice")
def test_every_fit_of_every_worker_is_in_the_file(side_by_side, tmp_path):
    X, y = regression()
    accountant = kept(tmp_path, 60.0)
    model = lasso(accountant=accountant)
    GridSearchCV(model, {"solver__max_iter": [2, 3]}, cv=KFold(2), error_score="raise").fit(X, y)
    assert len(accountant.ledger) == 2 * 2 + 1
    BaggingRegressor(model, 3, bootstrap=False).fit(X, y)
    with accountant:
        cross_val_score(lasso(), X, y, cv=KFold(3), error_score="raise")
        search = private_search(epsilon=15.0, relation="replace-one")
        cross_val_score(search, X, y, cv=KFold(2), error_score="raise")
    assert len(accountant.ledger) == 5 + 3 + 3 + 2
    assert [c.estimator for c in accountant.ledger[-2:]] == ["DPGridSearchCV"] * 2


def is_charged(accountant, epsilon=0.05):
    try:
        accountant.spend(pure(epsilon))
    except PrivacyBudgetError:
        return False
    return True


def test_a_race_for_the_rest_does_not_exceed_the_budget(side_by_side, tmp_path):
    accountant = kept(tmp_path, 1.0, 0.0)
    found = Parallel(batch_size=1)(delayed(is_charged)(accountant, 0.1) for _ in range(15))
    assert sum(found) == len(accountant.ledger) == 10
    assert accountant.total_spent() == pytest.approx(1.0)


def refusal(model):
    """What the fit of a model says that is refused."""
    try:
        model.fit(*regression())
    except PrivacyBudgetError as error:
        return str(error)
    return ""


def test_without_a_file_workers_in_other_processes_spend_nothing(side_by_side, backend):
    accountant = BudgetAccountant(5.0)
    inside, named = lasso(), lasso(accountant=accountant)
    said = Parallel()(delayed(refusal)(clone(named)) for _ in range(3))
    with accountant:
        said += Parallel()(delayed(refusal)(clone(inside)) for _ in range(3))
    if backend in IN_PROCESS:
        assert said == [""] * 6
        assert len(accountant.ledger) == 6
    else:
        assert all("another process" in message for message in said)
        assert not accountant.ledger


def test_no_thread_finds_an_accountant_that_is_half_loaded(tmp_path, monkeypatch):
    """Two tasks of a worker unpickle the same accountant at the same time."""
    accountant = kept(tmp_path, 1.0, 0.0)
    accountant.spend(pure(0.6))
    stored, charged = pickle.dumps(accountant), []

    def other_task():
        charged.append(is_charged(pickle.loads(stored), 0.6))

    class Registry(dict):
        def __setitem__(self, key, value):
            is_first = key not in self
            super().__setitem__(key, value)
            if is_first:
                thread = threading.Thread(target=other_task)
                thread.start()
                thread.join()

    monkeypatch.setattr(accountant_module, "_accountants", Registry())  # as in another process
    loaded = pickle.loads(stored)
    assert charged == [False]
    assert len(loaded.ledger) == len(accountant.ledger) == 1


# --------------------------------------------------------------------------- private searches


def test_a_private_search_is_charged_once_and_here(side_by_side):
    X, y = regression(200)
    # without a file: no worker could charge it
    accountant = BudgetAccountant(80.0, relation="zero-out")
    search = private_search(accountant=accountant).fit(X, y)
    assert [charge.guarantee for charge in accountant.ledger] == [search.guarantee_]
    assert search.noise_is_secret_
    with pytest.raises(PrivacyBudgetError, match="would be exceeded"):
        clone(search).fit(X, y)
    assert len(accountant.ledger) == 1


class Failing(DPMirrorRegressor):
    """Fails in the middle of its fits, or spends its part twice."""

    def _solve(self, *data):
        if self.solver.max_iter == 4:
            raise MemoryError("in the middle")
        if self.solver.max_iter == 5:
            self.accountant.spend(self.plan(*data[-1].shape))
        super()._solve(*data)


@rest_is_slow(
    ("max_iter", "error", "message"),
    [(4, MemoryError, "in the middle"), (5, PrivacyBudgetError, "was spent")],
    ("in the middle",),
    lambda case: case[2],
)
# (a task that fails ends the processes of a backend, which take long to start)
@on_threads
def test_a_search_whose_worker_fails_stays_charged(side_by_side, max_iter, error, message):
    X, y = regression(200)
    accountant = BudgetAccountant(80.0, relation="zero-out")
    model = Failing(solver=Descent(max_iter=3), **BOUNDS)
    search = DPGridSearchCV(
        model, {"solver__max_iter": [max_iter]}, accountant=accountant, **ENOUGH
    )
    with pytest.raises(error, match=message):
        search.fit(X, y)
    assert len(accountant.ledger) == 1
    assert not hasattr(search, "best_estimator_")


@on_threads
def test_private_steps_side_by_side_in_a_candidate_are_fitted_where_the_candidate_is(side_by_side):
    X, y = regression(400)
    frame = pd.DataFrame(X, columns=["u", "v", "w"])
    prepare = ColumnTransformer([("s", DPScaler(), ["u"]), ("t", DPScaler(), ["v", "w"])], n_jobs=2)
    last = DPMirrorRegressor(bounds_X=(-4, 4), bounds_y=(-1, 1), solver=Descent())
    model = make_pipeline(prepare, last)
    accountant = BudgetAccountant(80.0, relation="zero-out")
    grid = {"dpmirrorregressor__solver__max_iter": [3]}
    search = DPGridSearchCV(model, grid, accountant=accountant, **ENOUGH).fit(frame, y)
    assert len(search.plan_.refits[0]) == 3
    assert len(accountant.ledger) == 1


@on_threads
def test_a_mistake_is_told_once_by_a_private_search(side_by_side):
    X, y = regression(200)
    search = DPGridSearchCV(
        DPMirrorRegressor(bounds_y=(-1, 1), solver=Descent(max_iter=3)),
        {"solver__max_iter": [4, 5, 6]},
        **ENOUGH,
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        search.fit(X, y)
        assert [w.category for w in caught].count(BoundsNotDeclaredWarning) == 1
        search.estimator.fit(X, y)  # no thread has left a filter behind
    assert [w.category for w in caught].count(BoundsNotDeclaredWarning) == 2
