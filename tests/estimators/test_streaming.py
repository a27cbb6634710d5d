"""Streams: any chunking, any storage, any moment; what is carried, refused and claimed."""

import copy
import itertools
import os
import pickle
import sys
import threading
import warnings
from contextlib import contextmanager, nullcontext
from itertools import pairwise

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import log_loss
from support import above_frequencies, recomputed_epsilon, rest_is_slow, scaled_table, storage

from sklearn_dpsco import (
    BudgetAccountant,
    DPFTRLClassifier,
    DPFTRLRegressor,
    PrivacyBudgetError,
    PrivacyLeakWarning,
    PrivacyParameterWarning,
)
from sklearn_dpsco.privacy.budget import LONGEST_STREAM, RELATIONS, PrivacyBudget
from sklearn_dpsco.randomness.stream import RandomStream
from sklearn_dpsco.solvers import FTRL
from sklearn_dpsco.solvers.ftrl import FTRLRun

REGRESSOR = {"bounds_X": (-1, 1), "bounds_y": (-1, 1), "random_state": 0}
CLASSIFIER = {"bounds_X": (-1, 1), "classes": [-1.0, 1.0], "random_state": 0}
KINDS = [DPFTRLRegressor, DPFTRLClassifier]
both = pytest.mark.parametrize("kind", KINDS)
STRONG = {"epsilon": 200.0}


def model_of(kind, **parameters):
    return kind(**(REGRESSOR if kind is DPFTRLRegressor else CLASSIFIER) | parameters)


def table(kind, n=300, d=3, seed=0):
    task = "regression" if kind is DPFTRLRegressor else "classification"
    return scaled_table(n, d, task=task, seed=seed)


def feed(model, X, y, cuts):
    """`partial_fit` on the parts between the cuts."""
    edges = [0, *cuts, X.shape[0]]
    for start, stop in pairwise(edges):
        if stop > start:
            model.partial_fit(X[start:stop], y[start:stop])
    return model


# ------------------------------------------------------------------------------ chunking


@rest_is_slow(
    ("kind", "horizon"),
    [(kind, n) for kind in (DPFTRLRegressor, DPFTRLClassifier) for n in (300, 1000, None)],
    ("DPFTRLRegressor, 300", "DPFTRLClassifier, None"),
    lambda case: f"{case[0].__name__}, {case[1]}",
)
def test_any_chunking_gives_the_same_model(kind, horizon):
    X, y = table(kind)
    for batch_size in ("auto", 1, 7):
        case = f"batch_size={batch_size}"
        settings = {"horizon": horizon, "solver": FTRL(batch_size=batch_size)}
        whole = model_of(kind, **settings).partial_fit(X, y)
        rng = np.random.default_rng(1)
        one_by_one = [range(1, 100)] * (batch_size == 7)
        for cuts in ([1, 2, 299], *one_by_one, np.sort(rng.integers(0, 300, 9))):
            chunks = feed(model_of(kind, **settings), X, y, cuts)
            for name in ("coef_", "intercept_"):
                found, expected = getattr(chunks, name), getattr(whole, name)
                np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9, err_msg=case)
            assert chunks.n_seen_ == whole.n_seen_ == 300, case
            assert chunks.n_iter_ == whole.n_iter_, case
            assert chunks.guarantee_ == whole.guarantee_, case


@both
def test_several_models_and_chunks_of_several_storages(kind):
    X, y = table(kind, n=400, d=5)
    X[np.random.default_rng(0).uniform(size=X.shape) < 0.5] = 0
    parameters = {"horizon": 400}
    if kind is DPFTRLClassifier:
        y = np.array(["a", "b", "c"])[X[:, :3].argmax(axis=1)]
        parameters["classes"] = ["c", "a", "b"]
    whole = model_of(kind, **parameters).partial_fit(X, y)
    mixed = model_of(kind, **parameters)
    for k, name in enumerate(["dense", "fortran", "csr", "csc"]):
        part = slice(100 * k, 100 * (k + 1))
        mixed.partial_fit(storage(X[part], name), y[part])
    np.testing.assert_allclose(mixed.coef_, whole.coef_, rtol=1e-8, atol=1e-8)
    dense, from_csr = (mixed.predict(table) for table in (X, sparse.csr_array(X)))
    if kind is DPFTRLRegressor:
        np.testing.assert_allclose(dense, from_csr, rtol=1e-12)
    else:
        np.testing.assert_array_equal(dense, from_csr)


@both
def test_a_fit_without_shuffling_is_the_stream_in_one_chunk(kind):
    X, y = table(kind)
    fit = model_of(kind, solver=FTRL(shuffle=False)).fit(X, y)
    one = model_of(kind, horizon=300).partial_fit(X, y)
    np.testing.assert_allclose(fit.coef_, one.coef_, rtol=1e-12)
    assert fit.guarantee_ == one.guarantee_
    assert fit.plan_ == one.plan_ == model_of(kind, solver=FTRL(shuffle=False)).plan(300, 3)
    shuffled = model_of(kind).fit(X, y)
    assert np.abs(shuffled.coef_ - fit.coef_).max() > 1e-6


@both
def test_records_of_an_unfinished_step_do_not_show(kind):
    X, y = table(kind)
    model = model_of(kind, horizon=300, solver=FTRL(batch_size=50), fit_intercept=False)
    model.partial_fit(X[:49], y[:49])
    assert model.n_seen_ == 49
    assert not np.any(model.coef_)
    model.partial_fit(X[49:50], y[49:50])
    before = model.coef_.copy()
    assert np.any(before)
    np.testing.assert_array_equal(model.partial_fit(X[50:99], y[50:99]).coef_, before)


# ---------------------------------------------------------------------- pickles and copies


def restored(model):
    return pickle.loads(pickle.dumps(model))


@both
def test_a_restored_stream_goes_on(kind):
    X, y = table(kind, n=3000)
    model = model_of(kind, horizon=3000, random_state=None, **STRONG)
    for start in range(0, 3000, 500):
        model.partial_fit(X[start : start + 500], y[start : start + 500])
        loaded = restored(model)
        np.testing.assert_array_equal(loaded.coef_, model.coef_)
        model = loaded
    assert model.n_seen_ == 3000
    assert model.noise_is_secret_
    whole = model_of(kind, **STRONG).fit(X, y)
    assert abs(model.score(X, y) - whole.score(X, y)) < 0.05
    assert model.score(X, y) > 0.85


@both
def test_a_restored_stream_draws_fresh_noise(kind):
    X, y = table(kind)
    for duplicate, seed in itertools.product((copy.deepcopy, restored), (None, 0)):
        model = model_of(kind, horizon=300, solver=FTRL(batch_size=20), random_state=seed)
        model.partial_fit(X[:200], y[:200])
        other = duplicate(model)
        first = model.partial_fit(X[200:], y[200:]).coef_
        with pytest.warns(PrivacyLeakWarning, match=r"a copy of this stream has gone on"):
            second = other.partial_fit(X[200:], y[200:]).coef_
        assert np.abs(first - second).max() > 1e-9, f"{duplicate.__name__}, seed={seed}"


def test_a_seed_that_is_set_later_does_not_make_the_noise_known():
    X, y = table(DPFTRLRegressor)
    model = model_of(DPFTRLRegressor, random_state=None).partial_fit(X, y)
    loaded = restored(model).set_params(random_state=0).partial_fit(X, y)
    assert loaded.noise_is_secret_
    assert loaded._stream.noise.is_secure
    seeded = restored(model_of(DPFTRLRegressor).partial_fit(X, y))
    accountant = BudgetAccountant(9.0)  # which is charged for noise that the seed decided
    seeded.set_params(random_state=None, accountant=accountant)
    with pytest.warns(PrivacyLeakWarning, match="random_state was given"):
        assert not seeded.partial_fit(X, y).noise_is_secret_
    assert accountant.ledger[0].noise_is_secret is False


def test_no_key_and_no_noise_in_a_pickle():
    X, y = table(DPFTRLRegressor)
    model = model_of(DPFTRLRegressor, random_state=None).partial_fit(X, y)
    assert isinstance(model._stream.noise, RandomStream)
    assert model._stream.noise._key not in pickle.dumps(model)
    assert restored(model)._stream.noise is None


@both
def test_nothing_unnoised_outlives_the_stream(kind):
    X, y = table(kind)
    ended = [
        model_of(kind).fit(X, y),
        model_of(kind, horizon=300).partial_fit(X, y),
        model_of(kind).partial_fit(X, y).finish(),
    ]
    for model in ended:
        assert not any(isinstance(v, FTRLRun) for v in vars(model).values())
        assert model._stream is None
        before = model.coef_.copy()
        with pytest.raises(ValueError, match="has ended"):
            model.partial_fit(X, y)
        np.testing.assert_array_equal(model.coef_, before)
        assert hasattr(clone(model).partial_fit(X[:5], y[:5]), "coef_")


# ------------------------------------------------------------------------------ interrupts

METHODS = ["add", "result", "_release", "_take"]


def interrupt(monkeypatch, method, call):
    """Let the call with that number (from 1) end after it has done its work."""
    original, calls = getattr(FTRLRun, method), []

    def interrupted(self, *args):
        calls.append(None)
        result = original(self, *args)
        if len(calls) == call:
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(FTRLRun, method, interrupted)


def public(model):
    """What the estimator holds beside the stream."""
    return {name: value for name, value in vars(model).items() if name != "_stream"}


def three_classes(n):
    X, _ = table(DPFTRLClassifier, n=n)
    return X, np.array(["a", "b", "c"])[X.argmax(axis=1)]


def test_an_interrupted_chunk_can_be_fed_again():
    X, y = three_classes(300)
    for horizon in (300, None):
        settings = {"classes": ["a", "b", "c"], "horizon": horizon, "epsilon": 1e9}
        settings["solver"] = FTRL(batch_size=7)
        whole = model_of(DPFTRLClassifier, **settings).partial_fit(X, y)
        # the chunk is one piece, of several releases
        cases = [(method, 1) for method in METHODS]
        for method, call in (*cases, *itertools.product(METHODS[2:], (2, 3))):
            case = f"{method}, call {call}, horizon={horizon}"
            model = model_of(DPFTRLClassifier, **settings).partial_fit(X[:151], y[:151])
            before = public(model)
            total = model._stream.run._sum.copy()
            with pytest.MonkeyPatch.context() as patch:
                interrupt(patch, method, call)
                with pytest.raises(KeyboardInterrupt):
                    model.partial_fit(X[151:], y[151:])
            assert public(model) == before, case
            assert model._stream.run.n_seen == 151, case
            np.testing.assert_array_equal(model._stream.run._sum, total, err_msg=case)
            model.partial_fit(X[151:], y[151:])
            assert model.n_seen_ == 300, case
            np.testing.assert_allclose(model.coef_, whole.coef_, atol=1e-3, err_msg=case)


def test_an_interrupted_first_chunk_is_charged_once(monkeypatch):
    X, y = three_classes(100)
    accountant = BudgetAccountant(1.0, 1e-6)
    model = model_of(DPFTRLClassifier, classes=["a", "b", "c"], accountant=accountant)
    with monkeypatch.context() as patch:
        interrupt(patch, "add", 1)
        with pytest.raises(KeyboardInterrupt):
            model.partial_fit(X, y)
    assert model.n_seen_ == 0
    with pytest.raises(NotFittedError):
        model.predict(X)
    assert model.partial_fit(X, y).n_seen_ == 100
    assert len(accountant.ledger) == 1


def test_after_an_interrupted_first_chunk_the_targets_keep_their_shape(monkeypatch):
    X, y = table(DPFTRLRegressor)
    for targets, other in ((y, y[:, None]), (np.c_[y, -y], y)):
        model = model_of(DPFTRLRegressor, bounds_y=(-1, 1))
        with monkeypatch.context() as patch:
            interrupt(patch, "add", 1)
            with pytest.raises(KeyboardInterrupt):
                model.partial_fit(X, targets)
        with pytest.raises(ValueError, match="needs the same targets"):
            model.partial_fit(X, other)
        assert model.partial_fit(X, targets).n_seen_ == 300


@contextmanager
def ctrl_c(at):
    """At so many moments of the streams' modules where Python may interrupt: after a call."""
    left, earlier = itertools.count(at, -1), sys.getprofile()
    modules = {f"sklearn_dpsco.estimators.{name}" for name in ("streaming", "_records")}

    def look(frame, event, _):
        is_here = frame.f_globals.get("__name__") in modules
        if is_here and event in ("call", "c_return") and next(left) == 0:
            raise KeyboardInterrupt

    sys.setprofile(look)
    try:
        yield
    finally:
        sys.setprofile(earlier)


def test_ctrl_c_at_any_moment_takes_in_a_chunk_and_its_users_or_nothing():
    X, y = table(DPFTRLRegressor, n=6)
    for moment in itertools.count():
        model = model_of(DPFTRLRegressor, horizon=20, max_rows_per_user=2)
        for rows in (slice(2), slice(2, 4)):
            model.partial_fit(X[rows], y[rows], groups=["a", "b"])
        try:
            with ctrl_c(moment):
                model.partial_fit(X[4:], y[4:], groups=["c", "c"])
        except KeyboardInterrupt:
            states = {4: {"a": 2, "b": 2}, 6: {"a": 2, "b": 2, "c": 2}}
            assert dict(model._stream.rows_of_users) == states[model.n_seen_], moment
            assert model._stream.run.n_seen == model.n_seen_, moment
        else:
            break
    assert moment > 20


@both
def test_an_interrupted_fit_forgets_the_stream(monkeypatch, kind):
    X, y = table(kind)
    model = model_of(kind).partial_fit(X, y)
    with monkeypatch.context() as patch:
        interrupt(patch, "add", 1)
        with pytest.raises(KeyboardInterrupt):
            model.fit(X, y)
    assert model._stream is None
    with pytest.raises(ValueError, match="has ended"):
        model.partial_fit(X, y)
    # one that was refused does not
    model = model_of(kind).partial_fit(X, y)
    with pytest.raises(ValueError, match="inconsistent"):
        model.fit(X, y[:-1])
    assert model.partial_fit(X, y).n_seen_ == 600


def test_threads_take_turns():
    X, y = table(DPFTRLRegressor, n=400)
    model = model_of(DPFTRLRegressor, horizon=401, solver=FTRL(batch_size=3), epsilon=1e9)
    model.partial_fit(X[:1], y[:1])
    parts = [slice(k, k + 10) for k in range(0, 400, 10)]
    threads = [threading.Thread(target=model.partial_fit, args=(X[p], y[p])) for p in parts]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert model.n_seen_ == 401
    assert model._stream is None


@pytest.mark.parametrize("end", ["finish", "fit"])
@pytest.mark.parametrize("during", ["chunk", "refused fit"])
def test_another_thread_ends_the_stream_for_good(monkeypatch, during, end):
    X, y = table(DPFTRLRegressor)
    model, begun = model_of(DPFTRLRegressor).partial_fit(X, y), []
    ending = threading.Thread(target=model.finish if end == "finish" else lambda: model.fit(X, y))

    def meanwhile(owner, name, then):
        def call(*args):
            if not begun:
                begun.append(True)
                ending.start()
                ending.join(0.2)  # it waits for this thread, whatever the time
                return then(*args)
            return original(*args)

        original = getattr(owner, name)
        monkeypatch.setattr(owner, name, call)

    def refuse(*args):
        raise PrivacyBudgetError("refused")

    if during == "chunk":
        meanwhile(FTRLRun, "add", FTRLRun.add)
        model.partial_fit(X, y)
    else:
        meanwhile(DPFTRLRegressor, "_planned", refuse)
        with pytest.raises(PrivacyBudgetError, match="refused"):
            model.fit(X, y)
    ending.join()
    assert model._stream is None
    assert (model.n_seen_ == 300) == (end == "fit" or during == "refused fit")


def test_a_chunk_that_waits_is_refused_if_the_stream_ends(monkeypatch):
    X, y = table(DPFTRLRegressor)
    accountant = BudgetAccountant(1.0)
    model, add = model_of(DPFTRLRegressor).partial_fit(X, y), FTRLRun.add

    class Lock:  # that the end of the stream held before
        def __enter__(self):
            waiting._stream = None

        def __exit__(self, *exception): ...

    waiting = copy.deepcopy(model).set_params(accountant=accountant)
    waiting._stream.lock = Lock()
    with pytest.raises(ValueError, match="has ended"):
        waiting.partial_fit(X, y)
    assert accountant.ledger == ()
    # as a signal's handler may do it
    monkeypatch.setattr(FTRLRun, "add", lambda *args: (add(*args), model.finish()))
    with pytest.raises(ValueError, match="has ended"):
        model.partial_fit(X, y)
    assert model._stream is None
    assert model.n_seen_ == 300


# -------------------------------------------------------------------------------- bad input


def assert_refused_and_usable(model, X, y, match, **keywords):
    """The call raises and changes nothing, and the stream goes on."""
    before = copy.deepcopy(vars(model))
    with pytest.raises(ValueError, match=match):
        model.partial_fit(X, y, **keywords)
    after = vars(model)
    assert set(after) == set(before)
    for name in ("coef_", "intercept_", "n_seen_", "n_iter_", "n_features_in_"):
        if name in before:
            np.testing.assert_array_equal(after[name], before[name])
    if before.get("_stream") is not None:
        run, old = after["_stream"].run, before["_stream"].run
        np.testing.assert_array_equal(run._sum, old._sum)
        assert run.n_seen == old.n_seen


@both
@pytest.mark.parametrize("begun", [True, False])
def test_bad_chunks_are_refused_and_change_nothing(kind, begun):
    X, y = table(kind, n=20)
    model = model_of(kind, horizon=100)
    if begun:
        model.partial_fit(X, y)
        assert_refused_and_usable(model, X[:, :2], y, "features")
        assert_refused_and_usable(model, np.hstack((X, X)), y, "features")
    assert_refused_and_usable(model, X.astype(str).astype(object) + "x", y, "numbers|string")
    assert_refused_and_usable(model, np.where(X > 2, X, np.nan), y, "NaN")
    assert_refused_and_usable(model, X[:0], y[:0], "0 sample")
    assert_refused_and_usable(model, X, y[:-1], "inconsistent")
    big = np.tile(X, (6, 1))
    assert_refused_and_usable(model, big, np.tile(y, 6), "beyond horizon=100")
    if kind is DPFTRLClassifier:
        assert_refused_and_usable(model, X, y + 5, "not among")
        assert_refused_and_usable(model, X, y.astype(str), "not among|label")
        assert_refused_and_usable(model, X, y, "do not agree", classes=[-1.0, 0.0])
        assert_refused_and_usable(model, X, y, "do not agree", classes=[-1.0, 0.0, 1.0])
        assert_refused_and_usable(model, X, y, "classes", classes=[1.0])
    model.partial_fit(X, y)
    assert model.n_seen_ == (40 if begun else 20)
    # a chunk of one record, and another floating-point type
    model.partial_fit(X[:1].astype(np.float32), y[:1])
    assert model.n_seen_ == (41 if begun else 21)


def test_a_horizon_of_numpy_is_a_number_like_any_other():
    # the product with the number of coefficients has no room in 32 bits
    X, y = np.zeros((2, 50)), np.zeros(2)
    plans = []
    for horizon in (np.int32(2 * 10**9), 2 * 10**9):
        model = DPFTRLRegressor(
            bounds_X=(-1, 1), bounds_y=(-1, 1), horizon=horizon, solver=FTRL(batch_size=1)
        )
        plans.append(model.partial_fit(X, y).plan_)
    assert plans[0].guarantee == plans[1].guarantee


@both
def test_after_the_horizon_the_data_are_not_read(kind):
    X, y = table(kind, n=50)
    model = model_of(kind, horizon=50).partial_fit(X, y)

    class Unreadable:
        def __array__(self, *args, **kwargs):
            raise AssertionError("the data were read")

    with pytest.raises(ValueError, match="has ended"):
        model.partial_fit(Unreadable(), Unreadable())
    assert model.n_seen_ == 50
    assert model.score(X, y) is not None


@both
def test_fit_begins_anew(kind):
    X, y = table(kind)
    model = model_of(kind, horizon=50).partial_fit(X[:20], y[:20])
    model.fit(X, y)  # of another length than the horizon of the stream
    np.testing.assert_array_equal(model.coef_, model_of(kind).fit(X, y).coef_)
    assert model.n_seen_ == 300


@both
def test_a_horizon_beyond_what_float_sums_bear_is_refused(kind):
    X, y = table(kind, n=10)
    model = model_of(kind, horizon=LONGEST_STREAM + 1, delta=1e-20)
    with pytest.raises(ValueError, match="horizon"):
        model.partial_fit(X, y)
    assert not hasattr(model, "_stream")
    model.set_params(horizon=LONGEST_STREAM).partial_fit(X, y)
    assert all(r.mechanism.sensitivity > 0 for r in model.plan_.guarantee.releases)


def test_only_a_stream_can_be_finished():
    with pytest.raises(NotFittedError):
        model_of(DPFTRLRegressor).finish()


def test_classes_of_a_stream_are_declared_at_its_first_call():
    X, y = table(DPFTRLClassifier, n=30)
    names = np.where(y > 0, "yes", "no")
    undeclared = model_of(DPFTRLClassifier, classes=None)
    with pytest.raises(ValueError, match="first call"):
        undeclared.partial_fit(X, names)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        undeclared.partial_fit(X[:1], names[:1], classes=["yes", "no"])
        undeclared.partial_fit(X[1:], names[1:]).partial_fit(X, names, classes=["no", "yes"])
    np.testing.assert_array_equal(undeclared.classes_, ["no", "yes"])
    with pytest.warns(PrivacyLeakWarning):
        clone(undeclared).fit(X, names)
    declared = model_of(DPFTRLClassifier, classes=["no", "yes"])
    declared.partial_fit(X, names, classes=["yes", "no"])
    with pytest.raises(NotFittedError):
        clone(declared).predict(X)


@both
def test_invalid_records_can_count_as_empty(kind):
    X, y = table(kind, n=200)
    X[::5, 0] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        model_of(kind).partial_fit(X, y)
    cleared = model_of(kind, nonfinite="zero", horizon=200)
    feed(cleared, X, y, [50, 51, 133])
    assert cleared.n_seen_ == 200
    other = X.copy()
    other[::5] = np.inf
    again = feed(model_of(kind, nonfinite="zero", horizon=200), other, y, [100])
    np.testing.assert_allclose(again.coef_, cleared.coef_, rtol=1e-9, atol=1e-12)


# ----------------------------------------------------------------- plans and guarantees


def test_a_second_accountant_agrees():
    for relation, facts in zip(
        RELATIONS * 2,
        [
            {},
            {"horizon": 77, "epsilon": 0.3},
            {"horizon": 5000, "solver": FTRL(average=False), "fit_intercept": False},
            {"horizon": None, "epsilon": 5.0, "delta": 1e-9, "classes": [1, 2, 3, 4]},
        ],
        strict=True,
    ):
        case = f"{relation}, {facts}"
        settings = {"bounds_X": (-1, 1), "classes": [0, 1]} | facts
        model = DPFTRLClassifier(relation=relation, **settings)
        model.partial_fit(np.zeros((60, 2)), np.full(60, settings["classes"][0]))
        limit = PrivacyBudget(model.epsilon, model.plan_.budget.delta).mu ** 2 / 2
        for guarantee in (model.guarantee_, model.plan_.guarantee):
            assert guarantee.spent <= limit * (1 + 1e-9), case
            assert recomputed_epsilon(guarantee) <= model.epsilon * (1 + 1e-4), case
        assert recomputed_epsilon(model.plan_.guarantee) >= model.epsilon * 0.97, case


def test_the_guarantee_counts_what_was_released_so_far():
    X, y = table(DPFTRLRegressor, n=3000)
    model = model_of(DPFTRLRegressor)
    names, n_seen = [], 0
    for size in (1, 10, 100, 1000, 1889):
        model.partial_fit(X[n_seen : n_seen + size], y[n_seen : n_seen + size])
        n_seen += size
        names.append([release.group for release in model.guarantee_.releases])
    assert names[0] == ["median records"]
    before = ["median records", "spread records", "first records", "moment records"]
    assert names[-1][:5] == [*before, "epoch 0"]
    assert all(len(a) <= len(b) for a, b in pairwise(names))
    sizes = [epoch.n_records for epoch in model.plan_.epochs]
    assert all(b == 2 * a for a, b in pairwise(sizes[:-1]))
    assert sum(part.n_records for part in model.plan_.parts) == 2**40
    assert (model.guarantee_.epsilon, model.guarantee_.delta) == (1.0, 1e-6)


def test_an_accountant_is_charged_once():
    X, y = table(DPFTRLRegressor)
    accountant = BudgetAccountant(1.0, 1e-6)
    model = model_of(DPFTRLRegressor, accountant=accountant, epsilon=0.7, horizon=300)
    feed(model, X, y, [1, 50, 200])
    assert len(accountant.ledger) == 1
    assert model.guarantee_.composition == "gdp"
    assert accountant.total_spent() == pytest.approx(0.7, rel=1e-3)
    second = clone(model)
    with pytest.raises(PrivacyBudgetError):
        second.partial_fit(X, y)
    assert not hasattr(second, "n_seen_")
    second.set_params(epsilon=0.1).partial_fit(X[:10], y[:10])
    assert len(accountant.ledger) == 2


@both
def test_a_stream_that_goes_on_under_another_accountant_is_charged_in_full(kind):
    X, y = table(kind)
    first, second = BudgetAccountant(2.0, 1e-6), BudgetAccountant(2.0, 1e-6)
    model = model_of(kind, horizon=300)
    model.partial_fit(X[:50], y[:50])  # without an accountant
    for accountant, rows in ((first, range(50, 70)), (second, range(70, 90)), (first, [90])):
        with accountant:
            for i in rows:
                model.partial_fit(X[[i]], y[[i]])
                assert [charge.guarantee for charge in accountant.ledger] == [model.plan_.guarantee]
    model.partial_fit(X[91:100], y[91:100])
    tight = BudgetAccountant(0.5, 1e-6)
    before = model.n_seen_, model.coef_.copy()
    with tight, pytest.raises(PrivacyBudgetError):
        model.partial_fit(X[100:], y[100:])
    assert (model.n_seen_, tight.ledger) == (before[0], ())
    np.testing.assert_array_equal(model.coef_, before[1])
    # also as a parameter, and after a pickle
    again = pickle.loads(pickle.dumps(model))
    with second:
        again.partial_fit(X[100:110], y[100:110])
    assert len(second.ledger) == 1
    with pytest.raises(PrivacyBudgetError):
        again.set_params(accountant=tight).partial_fit(X[110:], y[110:])


def test_a_stream_pays_on_every_branch_whose_records_it_takes():
    X, y = table(DPFTRLRegressor)
    accountant = BudgetAccountant(1.5, 1e-6)
    group, settings = accountant.parallel(), {"epsilon": 0.9, "horizon": 3000}
    models = [
        model_of(DPFTRLRegressor, accountant=group.branch(str(k)), **settings) for k in range(10)
    ]
    for k, model in enumerate(models):
        part = slice(10 * k, 10 * k + 10)
        model.partial_fit(X[part], y[part])
    assert accountant.total_spent() == pytest.approx(0.9, rel=1e-3)
    # all of them on the same further records: .9 each, on top of that of the branches
    for n_charges, model in enumerate(models[:3], start=11):
        model.set_params(accountant=accountant)
        with nullcontext() if n_charges == 11 else pytest.raises(PrivacyBudgetError):
            model.partial_fit(X[100:150], y[100:150])
        assert len(accountant.ledger) == 11
    assert [model.n_seen_ for model in models[:3]] == [60, 10, 10]


def test_a_stream_pays_once_for_a_branch_and_what_lies_in_it():
    X, y = table(DPFTRLRegressor)
    accountant = BudgetAccountant(9.0, 1e-6)
    group = accountant.parallel()
    first, second = group.branch("a"), group.branch("b")
    inside = first.parallel("users").branch()
    model = model_of(DPFTRLRegressor, accountant=first, horizon=300)
    paths = []
    for account in (first, inside, second, first, accountant, second.parallel().branch()):
        model.set_params(accountant=account).partial_fit(X[:5], y[:5])
        model = restored(model).partial_fit(X[:5], y[:5])  # has the same receipts
        paths.append(accountant.ledger[-1].branch)
    assert paths == [first.path] * 2 + [second.path] * 2 + [()] * 2
    assert len(accountant.ledger) == 3
    # one that was told its users needs branches that are disjoint in them, in its later turns, too
    users, (rows, one) = np.arange(5), (accountant.parallel(d).branch() for d in ("rows", "users"))
    model = model_of(DPFTRLRegressor, horizon=300).partial_fit(X[:5], y[:5], groups=users)
    with pytest.raises(PrivacyBudgetError, match="protects users"):
        model.set_params(accountant=rows).partial_fit(X[5:10], y[5:10], groups=users)
    model.set_params(accountant=one).partial_fit(X[5:10], y[5:10], groups=users)
    assert (model.n_seen_, len(accountant.ledger)) == (10, 4)


def test_each_copy_of_a_stream_that_goes_on_is_charged():
    X, y = table(DPFTRLRegressor)
    accountant = BudgetAccountant(9.0, 1e-6)
    model = model_of(DPFTRLRegressor, accountant=accountant, horizon=300).partial_fit(X[:5], y[:5])
    first, second = copy.deepcopy(model), restored(model)
    turns = first, second, model, first, second, model
    for turn, n_charges in zip(turns, (1, 2, 3, 3, 3, 3), strict=True):
        turn.partial_fit(X[5:10], y[5:10])
        assert len(accountant.ledger) == n_charges
    # one that cannot be paid releases nothing, however often it is tried
    poor = BudgetAccountant(1.0, 1e-6)
    model = model_of(DPFTRLRegressor, epsilon=0.7, accountant=poor, horizon=300)
    older = copy.deepcopy(model.partial_fit(X[:5], y[:5]))
    model.partial_fit(X[5:10], y[5:10])
    for _ in range(2):
        with pytest.raises(PrivacyBudgetError):
            older.partial_fit(X[5:10], y[5:10])
    assert older.n_seen_ == 5
    # without an accountant they are fits of one family
    model = model_of(DPFTRLRegressor, horizon=300).partial_fit(X[:5], y[:5])
    older = restored(model)
    assert model.partial_fit(X[5:10], y[5:10]).guarantee_.fits is None
    with pytest.warns(PrivacyLeakWarning, match=r"the guarantees of both compose"):
        older.partial_fit(X[5:10], y[5:10])
    assert older.guarantee_.fits.n_fits == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_stream_that_goes_on_in_a_forked_process_is_a_copy():
    X, y = table(DPFTRLRegressor)
    accountant = BudgetAccountant(9.0, 1e-6)  # which nothing can be charged to elsewhere
    expected = {accountant: PrivacyBudgetError, None: PrivacyLeakWarning}
    for account, error in expected.items():
        settings = {"accountant": account, "horizon": 300, "random_state": None}
        model = model_of(DPFTRLRegressor, **settings).partial_fit(X[:5], y[:5])
        child = os.fork()
        if child == 0:  # pragma: no cover
            status = 1
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("error", PrivacyLeakWarning)
                    model.partial_fit(X[5:10], y[5:10])
            except error:
                status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        with warnings.catch_warnings():
            warnings.simplefilter("error", PrivacyLeakWarning)
            model.partial_fit(X[5:10], y[5:10])
    assert len(accountant.ledger) == 1


# ------------------------------------------------------------------------------ learning


def test_shuffling_helps_where_the_table_is_sorted():
    X, y = table(DPFTRLClassifier, n=4000)
    order = np.argsort(y)
    X, y = X[order], y[order]
    losses = []
    for shuffle in (True, False):
        model = model_of(DPFTRLClassifier, solver=FTRL(shuffle=shuffle), **STRONG).fit(X, y)
        losses.append(log_loss(y, model.predict_proba(X)))
    assert losses[0] < 0.85 * losses[1]


def test_more_records_and_more_epsilon_help():
    scores = {}
    for n in (500, 20_000):
        X, y = scaled_table(n, 5, seed=1)
        for epsilon in (0.1, 5.0):
            model = model_of(DPFTRLRegressor, epsilon=epsilon).fit(X, y)
            scores[n, epsilon] = model.score(X, y)
    assert scores[20_000, 5.0] > 0.9
    assert scores[20_000, 5.0] + 0.03 > scores[500, 5.0] > scores[500, 0.1] + 0.1
    assert scores[20_000, 0.1] > scores[500, 0.1]


def test_a_stream_of_unknown_length_improves_with_time():
    X, y = scaled_table(12_000, 5, seed=1)
    model = model_of(DPFTRLRegressor, epsilon=3.0)
    scores = []
    for start in range(0, 12_000, 1000):
        model.partial_fit(X[start : start + 1000], y[start : start + 1000])
        scores.append(model.score(X, y))
    assert min(scores[3:]) > 0.8
    assert scores[-1] > 0.9
    assert scores[-1] > scores[0]


def test_without_a_horizon_what_is_known_of_the_target_is_kept():
    scores = []
    for seed in range(7):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(1000, 4)).clip(-4, 4)
        y = 20 + X[:, 0] + rng.normal(size=1000)
        model = DPFTRLRegressor(bounds_X=(-4, 4), bounds_y=(0, 100), random_state=seed)
        scores.append(model.partial_fit(X, y).score(X, y))
    assert np.median(scores) > -5, scores


def test_labels_of_small_tables_are_not_predicted_by_noise():
    model = DPFTRLClassifier(
        epsilon=0.5, bounds_X=(-4, 4), classes=[False, True], relation="zero-out"
    )
    losses = above_frequencies(model, 800, 2.2)
    assert np.median(losses) < 0.15, losses  # .34 once


def test_a_horizon_that_is_too_small_warns():
    facts = {"bounds_X": (-1, 1), "bounds_y": (-1, 1), "random_state": 0}
    X, y = np.zeros((10, 3)), np.zeros(10)
    with pytest.warns(PrivacyParameterWarning, match="n_samples=100 is too small to learn"):
        DPFTRLRegressor(**facts, horizon=100).partial_fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DPFTRLRegressor(**facts, horizon=150).partial_fit(X, y)
        DPFTRLRegressor(**facts).partial_fit(X, y)
