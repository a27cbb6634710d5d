"""Streams: any chunking, any storage, any moment; what is carried, refused and claimed."""

import copy
import dataclasses
import pickle
import sys
import threading
import warnings
from itertools import pairwise

import numpy as np
import pytest
from audit_cases import RELATIONS
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks
from support import recomputed_epsilon, scaled_table, solver_data, storage, stream

from sklearn_dpsco import (
    BudgetAccountant,
    DPFTRLClassifier,
    DPFTRLRegressor,
    PrivacyBudgetError,
    PrivacyLeakWarning,
)
from sklearn_dpsco._linear import Objective, make_rows
from sklearn_dpsco._random import RandomStream
from sklearn_dpsco.accounting import PrivacyBudget
from sklearn_dpsco.audit import audit_outcomes, check_sensitivity, neighbours
from sklearn_dpsco.geometry import L1Ball, L2Ball, LInfBall, Simplex
from sklearn_dpsco.losses import Absolute, Hinge, Logistic, Quantile, Squared
from sklearn_dpsco.solvers.base import Problem
from sklearn_dpsco.solvers.ftrl import FTRL, LONGEST_STREAM, FTRLRun

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


@pytest.mark.filterwarnings("ignore::sklearn_dpsco.BoundsNotDeclaredWarning")
@pytest.mark.filterwarnings("ignore::sklearn_dpsco.PrivacyLeakWarning")
@parametrize_with_checks(
    [
        DPFTRLRegressor(),
        DPFTRLRegressor(loss="absolute", relation="zero-out", average=False),
        DPFTRLRegressor(feasible_set="simplex", fit_intercept=False, batch_size=7),
        DPFTRLClassifier(),
        DPFTRLClassifier(loss="hinge", feasible_set="l1", factorization="honaker"),
    ],
    expected_failed_checks=lambda _: {
        "check_fit_score_takes_y": "it calls partial_fit after fit, which would spend twice"
    },
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


# ------------------------------------------------------------------------------ chunking


@both
@pytest.mark.parametrize("horizon", [300, 1000, None])
@pytest.mark.parametrize("batch_size", ["auto", 1, 7])
def test_any_chunking_gives_the_same_model(kind, horizon, batch_size):
    X, y = table(kind)
    settings = {"horizon": horizon, "batch_size": batch_size}
    whole = model_of(kind, **settings).partial_fit(X, y)
    rng = np.random.default_rng(1)
    for cuts in ([1, 2, 299], range(1, 300), np.sort(rng.integers(0, 300, 9))):
        chunks = feed(model_of(kind, **settings), X, y, cuts)
        np.testing.assert_allclose(chunks.coef_, whole.coef_, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(chunks.intercept_, whole.intercept_, rtol=1e-9, atol=1e-9)
        assert chunks.n_seen_ == whole.n_seen_ == 300
        assert chunks.n_iter_ == whole.n_iter_
        assert chunks.guarantee_ == whole.guarantee_


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
    fit = model_of(kind, shuffle=False).fit(X, y)
    one = model_of(kind, horizon=300).partial_fit(X, y)
    np.testing.assert_allclose(fit.coef_, one.coef_, rtol=1e-12)
    assert fit.guarantee_ == one.guarantee_
    assert fit.plan_ == one.plan_ == model_of(kind).plan(300, 3)
    shuffled = model_of(kind).fit(X, y)
    assert np.abs(shuffled.coef_ - fit.coef_).max() > 1e-6


def test_shuffling_helps_where_the_table_is_sorted():
    X, y = table(DPFTRLClassifier, n=4000)
    order = np.argsort(y)
    X, y = X[order], y[order]
    scores = [
        model_of(DPFTRLClassifier, shuffle=shuffle, **STRONG).fit(X, y).score(X, y)
        for shuffle in (True, False)
    ]
    assert scores[0] > 0.9 > scores[1]


@both
def test_records_of_an_unfinished_step_do_not_show(kind):
    X, y = table(kind)
    model = model_of(kind, horizon=300, batch_size=50, fit_intercept=False)
    model.partial_fit(X[:49], y[:49])
    assert model.n_seen_ == 49
    assert not np.any(model.coef_)
    model.partial_fit(X[49:50], y[49:50])
    before = model.coef_.copy()
    assert np.any(before)
    np.testing.assert_array_equal(model.partial_fit(X[50:99], y[50:99]).coef_, before)


# ---------------------------------------------------------------------- pickles and copies


@both
def test_a_restored_stream_goes_on(kind):
    X, y = table(kind, n=3000)
    model = model_of(kind, horizon=3000, random_state=None, **STRONG)
    for start in range(0, 3000, 500):
        model.partial_fit(X[start : start + 500], y[start : start + 500])
        restored = pickle.loads(pickle.dumps(model))
        np.testing.assert_array_equal(restored.coef_, model.coef_)
        model = restored
    assert model.n_seen_ == 3000
    assert model.noise_is_secret_
    whole = model_of(kind, **STRONG).fit(X, y)
    assert abs(model.score(X, y) - whole.score(X, y)) < 0.05
    assert model.score(X, y) > 0.85


@both
@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
@pytest.mark.parametrize("seed", [None, 0])
def test_a_restored_stream_draws_fresh_noise(kind, duplicate, seed):
    X, y = table(kind)
    model = model_of(kind, horizon=300, batch_size=20, random_state=seed)
    model.partial_fit(X[:200], y[:200])
    other = duplicate(model)
    first = model.partial_fit(X[200:], y[200:]).coef_
    second = other.partial_fit(X[200:], y[200:]).coef_
    assert np.abs(first - second).max() > 1e-9


def test_a_seed_that_is_set_later_does_not_make_the_noise_known():
    X, y = table(DPFTRLRegressor)
    model = model_of(DPFTRLRegressor, random_state=None).partial_fit(X, y)
    restored = pickle.loads(pickle.dumps(model)).set_params(random_state=0).partial_fit(X, y)
    assert restored.noise_is_secret_
    assert all(s.is_secure for s in restored._stream.noise)
    seeded = pickle.loads(pickle.dumps(model_of(DPFTRLRegressor).partial_fit(X, y)))
    assert not seeded.set_params(random_state=None).partial_fit(X, y).noise_is_secret_


def test_no_key_and_no_noise_in_a_pickle():
    X, y = table(DPFTRLRegressor)
    model = model_of(DPFTRLRegressor, random_state=None).partial_fit(X, y)
    assert all(isinstance(s, RandomStream) for s in model._stream.noise)
    keys = [s._key for s in model._stream.noise]
    assert not any(key in pickle.dumps(model) for key in keys)
    assert pickle.loads(pickle.dumps(model))._stream.noise is None


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


def three_classes(n):
    X, _ = table(DPFTRLClassifier, n=n)
    return X, np.array(["a", "b", "c"])[X.argmax(axis=1)]


@pytest.mark.parametrize("method", ["add", "result", "_release", "_add_gradients"])
@pytest.mark.parametrize("call", [1, 2, 3])
@pytest.mark.parametrize("horizon", [300, None])
def test_an_interrupted_chunk_can_be_fed_again(monkeypatch, method, call, horizon):
    X, y = three_classes(300)
    parameters = {"classes": ["a", "b", "c"], "horizon": horizon, "batch_size": 7, "epsilon": 1e9}
    model = model_of(DPFTRLClassifier, **parameters).partial_fit(X[:151], y[:151])
    before = {name: value for name, value in vars(model).items() if name != "_stream"}
    sums = [run._sum.copy() for run in model._stream.runs]
    with monkeypatch.context() as patch:
        interrupt(patch, method, call)
        with pytest.raises(KeyboardInterrupt):
            model.partial_fit(X[151:], y[151:])
    assert {name: value for name, value in vars(model).items() if name != "_stream"} == before
    assert [run.n_seen for run in model._stream.runs] == [151] * 3
    for run, old in zip(model._stream.runs, sums, strict=True):
        np.testing.assert_array_equal(run._sum, old)
    model.partial_fit(X[151:], y[151:])
    assert model.n_seen_ == 300
    whole = model_of(DPFTRLClassifier, **parameters).partial_fit(X, y)
    np.testing.assert_allclose(model.coef_, whole.coef_, atol=1e-3)


def test_an_interrupted_first_chunk_is_charged_once(monkeypatch):
    X, y = three_classes(100)
    accountant = BudgetAccountant(1.0, 1e-6)
    model = model_of(DPFTRLClassifier, classes=["a", "b", "c"], accountant=accountant)
    with monkeypatch.context() as patch:
        interrupt(patch, "add", 2)
        with pytest.raises(KeyboardInterrupt):
            model.partial_fit(X, y)
    assert model.n_seen_ == 0
    with pytest.raises(NotFittedError):
        model.predict(X)
    assert model.partial_fit(X, y).n_seen_ == 100
    assert len(accountant.ledger) == 1


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
    model = model_of(DPFTRLRegressor, horizon=401, batch_size=3, epsilon=1e9)
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
        for run, old in zip(after["_stream"].runs, before["_stream"].runs, strict=True):
            np.testing.assert_array_equal(run._sum, old._sum)
            assert run.n_seen == old.n_seen


@both
@pytest.mark.parametrize("begun", [True, False])
def test_bad_chunks(kind, begun):
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


@both
def test_after_the_horizon(kind):
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


BAD = [
    *[("horizon", v) for v in (0, -1, 1.5, "long", True, np.nan)],
    *[("batch_size", v) for v in (0, -1, 2.5, None, True)],
    *[("learning_rate", v) for v in (0, -0.1, np.nan, np.inf, "constant", None)],
    *[("gradient_clip", v) for v in (0, -1, "none")],
    *[("data_norm", v) for v in (0, np.inf)],
    *[("radius", v) for v in (0, -1, np.nan)],
    *[("mirror_map", v) for v in ("l2", None, 2)],
    *[("factorization", v) for v in ("fft", None)],
    *[("average", v) for v in ("yes", None, 1)],
    *[("shuffle", v) for v in ("yes", None, 1)],
    *[("epsilon", v) for v in (0, -1, np.nan)],
    *[("delta", v) for v in (0, 0.0, 1)],
    *[("loss", v) for v in ("l2", None)],
    *[("feasible_set", v) for v in ("ball", None, "simplex")],
    *[("precision", v) for v in ("double",)],
    *[("nonfinite", v) for v in ("drop",)],
    *[("random_state", v) for v in (-1, "0")],
]


@both
@pytest.mark.parametrize(("name", "value"), BAD, ids=str)
def test_bad_parameters(kind, name, value):
    X, y = table(kind, n=10)
    model = model_of(kind, **{name: value})
    for call in (model.fit, model.partial_fit):
        with pytest.raises(ValueError, match=name):
            call(X, y)
    assert not hasattr(model, "coef_")
    model.set_params(**{name: getattr(model_of(kind), name)}).partial_fit(X, y)


@both
def test_a_horizon_beyond_what_float_sums_bear(kind):
    X, y = table(kind, n=10)
    model = model_of(kind, horizon=LONGEST_STREAM + 1, delta=1e-20)
    with pytest.raises(ValueError, match="horizon"):
        model.partial_fit(X, y)
    assert not hasattr(model, "_stream")
    model.set_params(horizon=LONGEST_STREAM).partial_fit(X, y)
    assert all(r.mechanism.sensitivity > 0 for r in model.plan_.guarantee.releases)


def test_maps_that_the_set_does_not_have():
    X, y = table(DPFTRLRegressor, n=10)
    with pytest.raises(ValueError, match="mirror_map"):
        model_of(DPFTRLRegressor, feasible_set="l2", mirror_map="entropy").partial_fit(X, y)


def test_only_a_stream_can_be_finished():
    with pytest.raises(NotFittedError):
        model_of(DPFTRLRegressor).finish()


def test_classes_of_a_stream():
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


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"horizon": 77, "epsilon": 0.3},
        {"horizon": None, "epsilon": 5.0, "delta": 1e-9, "classes": [1, 2, 3, 4]},
        {"horizon": 5000, "factorization": "tree", "fit_intercept": False},
    ],
    ids=str,
)
def test_a_second_accountant_agrees(relation, facts):
    settings = {"bounds_X": (-1, 1), "classes": [0, 1]} | facts
    model = DPFTRLClassifier(relation=relation, **settings)
    X = np.zeros((60, 2))
    y = np.full(60, settings["classes"][0])
    model.partial_fit(X, y)
    for guarantee in (model.guarantee_, model.plan_.guarantee):
        assert guarantee.spent <= PrivacyBudget(model.epsilon, model.delta).mu ** 2 / 2 * (1 + 1e-9)
        assert recomputed_epsilon(guarantee) <= model.epsilon * (1 + 1e-4)
    assert recomputed_epsilon(model.plan_.guarantee) >= model.epsilon * 0.97


def test_the_guarantee_counts_what_was_released_so_far():
    X, y = table(DPFTRLRegressor, n=3000)
    model = model_of(DPFTRLRegressor)
    names, n_seen = [], 0
    for size in (1, 10, 100, 1000, 1889):
        model.partial_fit(X[n_seen : n_seen + size], y[n_seen : n_seen + size])
        n_seen += size
        names.append([release.group for release in model.guarantee_.releases])
    assert names[0] == ["first records"]
    assert names[-1][:3] == ["first records", "epoch 0", "epoch 1"]
    assert all(len(a) <= len(b) for a, b in pairwise(names))
    sizes = [epoch.n_records for epoch in model.plan_.epochs]
    assert all(b == 2 * a for a, b in pairwise(sizes[:-1]))
    assert model.plan_.n_first + sum(sizes) == 2**40
    assert (model.guarantee_.epsilon, model.guarantee_.delta) == (1.0, 1e-6)


def test_an_accountant_is_charged_once():
    X, y = table(DPFTRLRegressor)
    accountant = BudgetAccountant(1.0, 1e-6)
    model = model_of(DPFTRLRegressor, accountant=accountant, epsilon=0.7, horizon=300)
    feed(model, X, y, [1, 50, 200])
    assert len(accountant.ledger) == 1
    assert model.guarantee_.composition == "zcdp"
    assert accountant.total_spent() == pytest.approx(0.7, rel=1e-3)
    second = clone(model)
    with pytest.raises(PrivacyBudgetError):
        second.partial_fit(X, y)
    assert not hasattr(second, "n_seen_")
    second.set_params(epsilon=0.1).partial_fit(X[:10], y[:10])
    assert len(accountant.ledger) == 2


def test_no_pure_form():
    X, y = table(DPFTRLRegressor)
    with pytest.raises(ValueError, match="DPLassoFW"):
        model_of(DPFTRLRegressor, delta=0).partial_fit(X, y)


def test_zero_out_needs_half_the_noise():
    facts = problem(1000, 4, fit_intercept=False)
    plans = [FTRL().plan(facts, PrivacyBudget(1.0, 1e-6, relation)) for relation in RELATIONS]
    (one,), (half,) = (plan.prefix_sums for plan in plans)
    assert half.scale == pytest.approx(one.scale / 2, rel=1e-3)


# ------------------------------------------------------------------------------ the solver


def problem(n, d, *, loss=None, feasible_set=L2Ball, fit_intercept=True):
    return Problem(n, d, loss or Squared(), feasible_set, fit_intercept)


@pytest.mark.parametrize("factorization", ["toeplitz", "tree", "honaker"])
@pytest.mark.parametrize("loss", [Squared(), Logistic(), Hinge(), Quantile(0.3)], ids=repr)
@pytest.mark.parametrize("relation", RELATIONS)
def test_replayed_sensitivities(factorization, loss, relation):
    worst = {}
    for k, (n, d, doubling) in enumerate([(9, 3, False), (16, 8, True), (40, 2, True)]):
        solver = FTRL(
            factorization=factorization, batch_size=2, doubling=doubling, first_epoch=4,
            gradient_clip=0.4,
        )  # fmt: skip
        facts = problem(n, d, loss=loss)
        plan = solver.plan(facts, PrivacyBudget(50.0, 1e-6, relation))
        pairs = neighbours(facts, relation, 12, random_state=k)
        found = check_sensitivity(solver, plan, pairs, random_state=k)
        assert not found.violations
        for name, ratio in found.ratios.items():
            worst[name] = max(ratio, worst.get(name, 0.0))
    assert len(worst) > 3
    assert worst["first_means"] > 0.6
    assert max(ratio for name, ratio in worst.items() if name != "first_means") > 0.8


def test_a_record_that_enters_twice_is_found(monkeypatch):
    facts = problem(16, 3)
    solver = FTRL(batch_size=2, gradient_clip=0.4)
    plan = solver.plan(facts, PrivacyBudget(50.0))

    def with_replacement(self, size):
        return (self.words(size) % np.uint64(size)).astype(np.intp)

    monkeypatch.setattr(RandomStream, "permutation", with_replacement)
    pairs = neighbours(facts, "replace-one", 24)
    found = check_sensitivity(solver, plan, pairs)
    assert "groups" in found.violations
    assert "prefix_sums[0]" in found.violations


def reference_leader(X, y, plan, loss, batch_size):
    """The last iterate and the average without noise, written down plainly."""
    n = len(X)
    rows = np.column_stack((X, np.ones(n))) if plan.problem.fit_intercept else X
    factor = np.minimum(1, plan.data_norm / np.linalg.norm(rows, axis=1))
    rate, clip = plan.epochs[0].learning_rate, plan.gradient_clip
    w, total, average, n_done = np.zeros(rows.shape[1]), 0.0, 0.0, 0
    for start in range(0, n, batch_size):
        batch = slice(start, start + batch_size)
        r = np.clip(loss.derivative(rows[batch] @ w, y[batch]), -clip, clip)
        total = total + rows[batch].T @ (r * factor[batch])
        w = -rate * total
        w /= max(1.0, np.linalg.norm(w) / plan.geometry.radius)
        m = len(r)
        n_done += m
        weight = 3 * m / (n_done + 2 * m)
        average = average + weight * (w - average)
    return w, average


@pytest.mark.parametrize("loss", [Squared(), Logistic(), Absolute()], ids=repr)
@pytest.mark.parametrize("average", [True, False])
def test_without_noise_it_follows_the_leader(loss, average):
    X, y = scaled_table(103, 4, task=loss.task)
    solver = FTRL(batch_size=10, shuffle=False, average=average, learning_rate=0.5)
    facts = problem(103, 4, loss=loss, fit_intercept=False)
    plan = solver.plan(facts, PrivacyBudget(1e9, 1e-6))
    data = solver_data(X, y, fit_intercept=False)
    found = solver.solve(data, plan, stream()).coef
    last, mean = reference_leader(X, y, plan, loss, 10)
    np.testing.assert_allclose(found, mean if average else last, atol=1e-3)


@pytest.mark.parametrize("name", ["dense", "fortran", "csr", "csc"])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_gradient_sums_of_every_storage(name, fit_intercept):
    X, y = scaled_table(70, 5, density=0.6)
    center = np.linspace(-0.5, 0.5, 5) if fit_intercept else None
    weight = (np.arange(70) % 7 > 0).astype(float)
    rows = make_rows(storage(X, name), fit_intercept, weight).row_major().centered(center)
    coef = np.random.default_rng(1).normal(size=rows.dimension)
    full = X if center is None else np.column_stack((X - center, np.ones(70)))
    factor = weight * np.minimum(1, 1.3 / np.maximum(np.linalg.norm(full, axis=1), 1e-9))

    class Own(Squared):
        """No kernel knows it."""

    for loss in (Squared(), Own()):
        r = np.clip(loss.derivative(full @ coef + 0.2, y), -0.4, 0.4) * factor
        found = rows.clipped_gradient_sum(coef, Objective(y, 0.2, loss, 0.4), 1.3)
        np.testing.assert_allclose(found, full.T @ r, rtol=1e-10, atol=1e-12)
    part = np.array([5, 3, 60])
    halves = [rows.part(p).clipped_gradient_sum(coef, Objective(y[p], 0.2, loss, 0.4), 1.3)
              for p in (part, np.setdiff1d(np.arange(70), part))]  # fmt: skip
    np.testing.assert_allclose(halves[0] + halves[1], found, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("relation", RELATIONS)
def test_scaled_gradients_never_exceed_the_bound(relation):
    rng = np.random.default_rng(0)
    X = rng.choice([-1.0, 1.0, 0.3], (500, 6))
    y = rng.choice([-1.0, 1.0], 500)
    rows = make_rows(X, True).centered(rng.uniform(-1, 1, 6))
    coef = 10 * rng.normal(size=7)
    for i in range(500):
        one = rows.part(slice(i, i + 1))
        objective = Objective(y[i : i + 1], 0.0, Squared(), 0.3)
        gradient = one.clipped_gradient_sum(coef, objective, 1.1)
        assert np.linalg.norm(gradient) <= 0.3 * 1.1


@pytest.mark.parametrize(
    ("geometry", "mirror_map"),
    [
        (L2Ball(0.3), "euclidean"), (L1Ball(0.4), "entropy"), (L1Ball(0.4), "power"),
        (LInfBall(0.2), "euclidean"), (Simplex(1.0), "entropy"), (Simplex(1.0), "euclidean"),
    ],
    ids=str,
)  # fmt: skip
def test_iterates_stay_in_the_feasible_set(geometry, mirror_map):
    X, y = scaled_table(300, 4)
    solver = FTRL(mirror_map=mirror_map, average=False)
    facts = problem(300, 4, feasible_set=geometry, fit_intercept=False)
    plan = solver.plan(facts, PrivacyBudget(1.0))
    result = solver.solve(solver_data(X, y, fit_intercept=False), plan, stream())
    assert geometry.norm(result.coef) <= geometry.radius * (1 + 1e-9)
    if isinstance(geometry, Simplex):
        assert result.coef.min() >= 0
        assert result.coef.sum() == pytest.approx(1.0)


def test_the_regularizer_follows_the_noise():
    def kind(n, d, feasible_set=L1Ball):
        plan = FTRL().plan(problem(n, d, feasible_set=feasible_set), PrivacyBudget(1.0))
        return plan.mirror_map.exponent(d)

    assert kind(10**6, 100) == 2
    assert kind(10**4, 2000) < 1.2
    assert kind(10**4, 2000, L2Ball) == 2


@pytest.mark.parametrize(("n", "d"), [(1, 1), (2, 1), (3, 5), (513, 2), (1025, 1)])
@pytest.mark.parametrize("doubling", [True, False])
def test_ends(n, d, doubling):
    X, y = scaled_table(n, d)
    solver = FTRL(doubling=doubling, first_epoch=4)
    plan = solver.plan(problem(n, d), PrivacyBudget(1.0))
    assert plan.n_first + sum(epoch.n_records for epoch in plan.epochs) == n
    run = FTRLRun(plan)
    run.add(make_rows(X, True), y, stream())
    assert run.n_seen == n
    assert run.n_steps == plan.max_iter == sum(epoch.n_steps for epoch in plan.epochs)
    assert np.all(np.isfinite(run.result().coef))
    with pytest.raises(ValueError, match="longer"):
        run.add(make_rows(X[:1], True), y[:1], stream())


def test_a_plan_depends_on_no_data_and_reads_as_a_table():
    plan = FTRL().plan(problem(10_000, 20), PrivacyBudget(1.0))
    assert "prefix sums" in str(plan)
    assert "first means" in str(plan)
    assert plan.epochs[0].batch_size == -(-plan.epochs[0].n_records // 256)


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


# -------------------------------------------------------------------------------- audits

N_AUDIT, TRIALS, EPSILON = 6, 3000, 4.0


def iterates(position, value, n_trials, factor, seed):
    """All iterates of many runs on a stream whose record at `position` has that target.

    The derivative's clip is reached by every record, so the record turns its whole
    gradient around.
    """
    X, y = np.zeros((N_AUDIT, 1)), np.zeros(N_AUDIT)
    X[position], y[position] = 1.0, value
    facts = problem(N_AUDIT, 1, fit_intercept=False, feasible_set=L2Ball(1e6))
    solver = FTRL(batch_size=1, gradient_clip=0.3, data_norm=1.0, learning_rate=0.1, average=False)
    plan = solver.plan(facts, PrivacyBudget(EPSILON, 1e-6))
    (one,) = plan.prefix_sums
    weaker = dataclasses.replace(one, scale=one.scale / factor)
    plan = dataclasses.replace(plan, prefix_sums=(weaker,))
    root, out = stream(seed), np.empty((n_trials, N_AUDIT))
    rows = make_rows(X, False)
    for k in range(n_trials):
        run, noise = FTRLRun(plan), root.substream(k)
        for t in range(N_AUDIT):
            run.add(rows.part(slice(t, t + 1)), y[t : t + 1], noise)
            out[k, t] = run.result().coef[0]
    return out


@pytest.mark.parametrize("position", [0, N_AUDIT // 2, N_AUDIT - 1])
def test_all_iterates_together_are_within_the_claim(position):
    for factor, is_private in ((1.0, True), (2.0, False)):
        outcomes = [iterates(position, value, TRIALS, factor, k) for k, value in enumerate((1, -1))]
        result = audit_outcomes(*outcomes, epsilon=EPSILON, delta=1e-6)
        bound = result.gaussian_epsilon_lower_bound
        assert (bound <= EPSILON) == is_private
        assert bound > 0.3 * EPSILON
