"""Tables that lie in blocks elsewhere: collections of Dask, delayed parts, futures.

However the rows are cut and whoever holds them, a fit gives the model of the table in memory.
"""

import functools
import itertools
import multiprocessing
import os
import warnings
from pathlib import Path

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask.callbacks import Callback
from joblib import parallel_config
from registry import (
    ESTIMATORS,
    ONE_OF_EACH_SOLVER,
    READING_ORDER,
    build,
    columns_as,
    descending_forms,
    each_form_of,
    each_form_of_readers,
    each_main_form_of_readers,
    each_reader,
    entry,
    fitted,
    is_classifier,
    main_form,
    outcome,
    readers,
    table,
)
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold
from support import half_is_enough, in_pieces, rest_is_slow, solver_data

from sklearn_dpsco import (
    BlocksChangedError,
    BudgetAccountant,
    DPFTRLRegressor,
    DPGridSearchCV,
    DPLogisticRegression,
    DPMirrorClassifier,
    DPMirrorRegressor,
    DPScaler,
    HeavyTailDPRegressor,
    PrivacyLeakWarning,
    PrivateMoments,
    PublicEncoder,
    TasksLostError,
    dp_score,
)
from sklearn_dpsco.data import blocks, pieces
from sklearn_dpsco.estimators import _records as tables
from sklearn_dpsco.geometry import L2Ball
from sklearn_dpsco.solvers import FTRL, SCOF, NoisyMD, Selection, unit_descent
from sklearn_dpsco.solvers.statistics import row_sum

TOLERANCE = {"rtol": 1e-10, "atol": 1e-10}
FEW = "learned-units"  # the solver by default, of few steps


@pytest.fixture(autouse=True)
def one_after_the_other():
    """Tasks in this thread, which is fastest for small tables."""
    with dask.config.set(scheduler="synchronous"):
        yield


def in_parts(values, cuts=(0, 7, 7, 30, 60)):
    """Delayed parts, one of them empty."""
    return [dask.delayed(values[a:b]) for a, b in itertools.pairwise(cuts)]


def frame(X):
    return dd.from_pandas(columns_as(X), npartitions=3)


def without_sizes(values):
    """An array of Dask whose numbers of rows are not known."""
    return dd.from_pandas(pd.DataFrame(values), npartitions=4).to_dask_array()


# X, and y by what it becomes
WAYS = {
    "arrays cut in both directions": (
        lambda X: da.from_array(X, chunks=(17, 2)),
        lambda y: da.from_array(y, chunks=23),
    ),
    "persisted, y in memory": (lambda X: da.from_array(X, chunks=(13, 3)).persist(), np.asarray),
    "a frame and its series": (frame, lambda y: dd.from_pandas(pd.Series(y), npartitions=3)),
    "unknown lengths": (without_sizes, lambda y: without_sizes(y)[:, 0]),
    "delayed parts, one empty": (in_parts, in_parts),
    "delayed lists": (lambda X: in_parts(X.tolist(), (0, 20, 60)), np.asarray),
}


@half_is_enough
@each_main_form_of_readers
def test_collections_give_the_model_of_the_table(name, form, cells):
    X, y = table(name)
    expected = fitted(name, form)
    ways = list(WAYS) if form == main_form(name) else list(WAYS)[:1]
    if cells == "half" and form == main_form(name):  # every second one, by turns
        ways = ways[READING_ORDER.index(name) // 2 % 2 :: 2]
    for way in ways:
        of_X, of_y = WAYS[way]
        if way == "unknown lengths" and is_classifier(name):
            continue  # text has no such arrays
        model = build(name, form).fit(of_X(X), of_y(y))
        np.testing.assert_allclose(outcome(model), outcome(expected), err_msg=way, **TOLERANCE)
        assert model.n_features_in_ == 3, way
        assert str(model.plan_) == str(expected.plan_), way
        if way == "a frame and its series":
            assert list(model.feature_names_in_) == ["a", "b", "c"]


@each_form_of_readers
def test_weights_users_and_invalid_records_in_blocks(name, form):
    X, y = table(name)
    rng = np.random.default_rng(1)
    X[[3, 40], 1], weight, users = np.nan, rng.uniform(0, 2, 60), rng.integers(0, 25, 60)
    weight[5] = np.nan
    y = y.astype(object)
    y[[8, 31]] = None
    settings = {"nonfinite": "zero", "max_rows_per_user": 2, "max_weight": 1.5}
    # of users whose rows may lie in several blocks, rows count as those of others do
    kept = pd.Series(users).groupby(users).cumcount().to_numpy() < 2
    own = np.where(kept[:, None], X, np.nan)
    expected = build(name, form, **settings).fit(own, y, sample_weight=weight)
    for users_there in (users, da.from_array(users, chunks=11)):
        model = build(name, form, **settings).fit(
            da.from_array(X, chunks=(17, 3)),
            y,
            groups=users_there,
            sample_weight=da.from_array(weight, chunks=60),
        )
        np.testing.assert_allclose(outcome(model), outcome(expected), **TOLERANCE)


def test_a_column_of_labels_with_a_complex_one_costs_that_record():
    X, y = table("DPMirrorClassifier")
    fits = []
    for odd in (np.nan, 1j):  # of which pandas makes a column of complex numbers
        labels = pd.DataFrame({"y": [odd, *np.where(y == "yes", 1, 0).tolist()[1:]]})
        fits.append(build("DPMirrorClassifier", FEW, classes=[0, 1], nonfinite="zero"))
        fits[-1].fit(frame(X), dd.from_pandas(labels, npartitions=3))
    np.testing.assert_array_equal(outcome(fits[0]), outcome(fits[1]))


@each_form_of(ESTIMATORS, descending_forms, readers)
def test_sparse_blocks_classes_and_targets(name, form):
    X, y = table(name, classes=("a", "b", "c"))
    settings = dict(entry(name).sparse)
    if is_classifier(name):
        settings["classes"] = ["a", "b", "c"]
    elif not entry(name).of_rates:
        y = np.column_stack((y, -y, X[:, 0]))
    expected = build(name, form, **settings).fit(X, y)
    dense = build(name, form, **settings).fit(in_parts(X), in_parts(y))
    np.testing.assert_allclose(outcome(dense), outcome(expected), **TOLERANCE)
    for store in (sparse.csr_array, sparse.csc_array):
        expected = build(name, form, **settings).fit(store(X), y)
        parts = [dask.delayed(store(X[a:b])) for a, b in ((0, 7), (7, 7), (7, 60))]
        model = build(name, form, **settings).fit(parts, in_parts(y, (0, 7, 7, 60)))
        np.testing.assert_allclose(outcome(model), outcome(expected), **TOLERANCE)


@each_reader
def test_predictions_of_blocks_are_lazy_and_the_same(name):
    X, y = table(name)
    model = build(name).fit(X, y)
    methods = ["predict"]
    if is_classifier(name):
        methods += ["decision_function", "predict_proba", "predict_log_proba"]
    for method in methods:
        expected = getattr(model, method)(X)
        for way in ("arrays cut in both directions", "delayed parts, one empty"):
            found = getattr(model, method)(WAYS[way][0](X))
            assert isinstance(found, da.Array)
            assert found.dtype == expected.dtype
            if expected.dtype.kind == "f":  # BLAS rounds by the place in a block
                np.testing.assert_allclose(found.compute(), expected, rtol=1e-12, atol=1e-15)
            else:
                np.testing.assert_array_equal(found.compute(), expected)
    named = build(name).fit(columns_as(X), y)
    np.testing.assert_array_equal(named.predict(frame(X)).compute(), named.predict(columns_as(X)))


def test_no_secret_is_sent_to_workers(monkeypatch, tmp_path):
    # whatever leaves this process: neither seeds nor keys, accountants or unfinished sums
    sent = []

    def recording(function):
        return lambda graph, keys, get: sent.append(graph) or function(graph, keys, get)

    for name in ("compute", "hold"):
        monkeypatch.setattr(pieces, name, recording(getattr(pieces, name)))
    monkeypatch.setattr(blocks, "compute", pieces.compute)
    accountant = BudgetAccountant(10.0, 1e-5)
    for name in ONE_OF_EACH_SOLVER:
        X, y = table(name)
        parts, secret = da.from_array(X, chunks=(20, 3)).persist(), 2**31 - 19
        with accountant:
            model = build(name, epsilon=0.1, random_state=secret).fit(parts, y)
            sent.append(dict(model.predict(parts).__dask_graph__()))
    assert len(sent) > 40
    import cloudpickle

    for graph in sent:
        data = cloudpickle.dumps(graph)
        for word in (
            b"random_state",
            b"RandomStream",
            b"Accountant",
            b"FTRLRun",
            str(secret).encode(),
        ):
            assert word not in data
        assert secret.to_bytes(4, "little") not in data
    for holder in (secret, np.int64(secret), functools.partial(print, secret)):
        assert secret.to_bytes(4, "little") in cloudpickle.dumps({"a": holder})


def test_a_column_of_labels_is_taken_for_a_vector_in_silence():
    X, y = table("DPMirrorClassifier")
    expected = build("DPMirrorClassifier", FEW).fit(X, y)
    for column in (in_parts(y[:, None]), dd.from_pandas(pd.DataFrame({"y": y}), npartitions=3)):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            parts = in_parts(X) if isinstance(column, list) else frame(X)
            model = build("DPMirrorClassifier", FEW).fit(parts, column)
        np.testing.assert_allclose(outcome(model), outcome(expected), **TOLERANCE)


def test_a_search_for_labels_warns_once():
    X, y = table("DPMirrorClassifier")
    with pytest.warns(PrivacyLeakWarning, match="classes was not given") as caught:
        model = DPMirrorClassifier(bounds_X=(-1, 1), random_state=0).fit(in_parts(X), in_parts(y))
    assert len(caught) == 1
    assert list(model.classes_) == ["no", "yes"]


# ----------------------------------------------------------------------------- bad input


def refused(X, y, match, error=ValueError, **arguments):
    accountant = BudgetAccountant(1.0, 1e-5)
    model = DPMirrorRegressor(
        max_weight=1.0, bounds_X=(-1, 1), bounds_y=(-1, 1), accountant=accountant
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(error, match=match):
            model.fit(X, y, **arguments)
    assert len(accountant.ledger) == 0
    assert not hasattr(model, "coef_")


def test_what_is_wrong_with_blocks_is_said_before_the_charge():
    X, y = table("DPMirrorRegressor")
    there = da.from_array(X, chunks=(20, 3))
    refused(there, None, "requires y")
    refused(there, y[:59], "inconsistent numbers of samples")
    refused(there, da.from_array(y[:59], chunks=20), "inconsistent numbers of samples")
    refused(there, in_parts(y), "X has 3 blocks of rows and y has 4")
    refused(in_parts(X), in_parts(y, (0, 7, 8, 30, 60)), "inconsistent numbers of samples")
    refused([dask.delayed(X[:30]), dask.delayed(X[30:, :2])], y, "the same columns")
    refused(
        [dask.delayed(X[:30]), dask.delayed(sparse.csr_array(X[30:]))], y, "all dense or all sparse"
    )
    renamed = columns_as(X[30:]).rename(columns={"a": "z"})
    refused([dask.delayed(columns_as(X[:30])), dask.delayed(renamed)], y, "with the same names")
    refused(da.from_array(X[:, 0], chunks=20), y, "2D array")
    refused(da.from_array(X[:1], chunks=20), y[:1], "minimum of 2")
    refused(da.from_array(X[None], chunks=20), y, "one or two dimensions")
    bad = X.copy()
    bad[41, 1] = np.nan
    refused(da.from_array(bad, chunks=(20, 3)), y, "contains NaN. Imputers")
    refused(there, np.where(np.arange(60) == 41, np.inf, y), "infinity")
    refused(there, y, "not negative", sample_weight=-np.ones(60))
    refused(there, y, "inconsistent", sample_weight=np.ones(59))
    refused(there, y, "inconsistent", groups=np.arange(59))
    refused(da.from_array(X.astype(complex), chunks=20), y, "Complex")
    text = dd.from_pandas(pd.DataFrame({"a": ["x"] * 60, "b": 1.0, "c": 1.0}), npartitions=2)
    refused(text, y, "numbers")


def test_a_single_invalid_cell_is_quoted_nowhere():
    X, y = table("DPMirrorRegressor")
    X = X.astype(object)
    X[41, 1] = "Bob's diagnosis"
    model = DPMirrorRegressor(bounds_X=(-1, 1), bounds_y=(-1, 1))
    with pytest.raises(ValueError, match="must hold numbers") as caught:
        model.fit([dask.delayed(X[:30]), dask.delayed(X[30:])], in_parts(y, (0, 30, 60)))
    assert "Bob" not in str(caught.value)


def test_blocks_of_mixed_types_are_read_each_as_it_is():
    X, y = table("DPMirrorRegressor")
    X = np.float64(np.float32(X))
    mixed = [dask.delayed(X[:30].astype(np.float32)), dask.delayed(X[30:])]
    for name in ("DPMirrorRegressor", "DPPhasedSGDRegressor", "DPFTRLRegressor"):
        expected = build(name, main_form(name)).fit(X, y)
        model = build(name, main_form(name)).fit(mixed, y)
        np.testing.assert_allclose(outcome(model), outcome(expected), rtol=1e-6, atol=1e-7)


def test_what_takes_no_blocks_says_so():
    X, y = table("DPFTRLRegressor")
    there, declared = da.from_array(X, chunks=(20, 3)), {"bounds_X": (-1, 1), "bounds_y": (-1, 1)}
    stream, model = DPFTRLRegressor(**declared), DPMirrorRegressor(**declared)
    search = DPGridSearchCV(model, {"feasible_set": [L2Ball(0.1), L2Ball(1.0)]})
    fitted = DPMirrorRegressor(**declared).fit(X, y)
    encoder = PublicEncoder({"a": (0, 1)})
    for call in (
        lambda: stream.partial_fit(there, y),
        lambda: search.fit(there, y),
        lambda: dp_score(fitted, there, y),
        lambda: DPScaler().fit(there),
        lambda: PrivateMoments().fit(there),
        lambda: encoder.fit(frame(X)),
        lambda: encoder.transform(frame(X)),
        lambda: model.fit(X, da.from_array(y)),
    ):
        with pytest.raises(ValueError, match="takes tables in memory"):
            call()
    raw = dd.from_pandas(pd.DataFrame({"a": X[:, 0]}), npartitions=2)
    with pytest.raises(ValueError, match=r"map_partitions\(encoder\.transform\)"):
        encoder.transform(raw)
    encoder.set_output(transform="pandas")  # as it says
    coded = raw.map_partitions(encoder.transform)
    encoded = coded, encoder.transform(raw.compute())
    fits = [DPMirrorRegressor(**declared, random_state=0).fit(x, y) for x in encoded]
    np.testing.assert_allclose(*(fit.coef_ for fit in fits), atol=1e-9)
    with pytest.raises(ValueError, match="delayed parts or futures alone"):
        model.fit([*in_parts(X), X], y)
    with pytest.raises(ValueError, match="a list of collections is no table"):
        model.fit([there, there], y)


def test_parts_may_be_listed_in_any_way():
    X, y = table("DPMirrorRegressor")
    expected = build("DPMirrorRegressor", FEW).fit(X, y)
    array = da.from_array(X, chunks=(20, 3)).to_delayed()
    for parts, of_y in (
        (array, y),
        (tuple(array.ravel()), in_parts(y, (0, 20, 40, 60))),
        (dask.delayed(X), dask.delayed(y)),
        ([dask.delayed(sparse.coo_array(X[a:b])) for a, b in ((0, 9), (9, 60))], y),
    ):
        model = build("DPMirrorRegressor", FEW).fit(parts, of_y)
        np.testing.assert_allclose(outcome(model), outcome(expected), rtol=1e-6, atol=1e-9)


def test_predictions_and_scores_know_the_columns_of_the_fit():
    X, y = table("DPMirrorRegressor")
    model, plain = (build("DPMirrorRegressor", FEW).fit(table, y) for table in (columns_as(X), X))
    there = frame(X)
    renamed = there.rename(columns={"a": "z"})
    for other in (there[["b", "a", "c"]], renamed, [dask.delayed(columns_as(X)[["b", "a", "c"]])]):
        with pytest.raises(ValueError, match="feature names should match"):
            np.asarray(model.predict(other))
    for other in (da.from_array(X[:, :2]), [dask.delayed(X[:, :2])], there["a"]):
        with pytest.raises(ValueError, match=r"features|2D|dimension"):
            np.asarray(plain.predict(other))
    ways = ((there, y), (in_parts(columns_as(X)), in_parts(y)), (there, frame(y[:, None])["a"]))
    for of_X, of_y in ways:
        assert model.score(of_X, of_y) == pytest.approx(model.score(columns_as(X), y))
    X, y = table("DPMirrorClassifier")
    model = build("DPMirrorClassifier", FEW).fit(X, y)
    weight = np.arange(60.0)
    found = model.score(in_parts(X), in_parts(y), sample_weight=in_parts(weight))
    assert found == pytest.approx(model.score(X, y, weight))


def test_columns_of_a_persisted_frame_are_in_memory():
    X, y = table("DPMirrorRegressor")
    whole = columns_as(X).assign(y=y)
    there = dd.from_map(lambda k: whole[20 * k : 20 * k + 20], range(3))
    for held in (there.persist(), there):
        found = blocks.blocks_of_all(held[["a", "b", "c"]], {"y": held["y"]})
        assert found["X"].is_in_memory == (held is not there)


@pytest.mark.slow
def test_frames_of_files_are_read_once_for_all_that_is_in_them(tmp_path):
    # Dask joins small files where few columns are read, and so cuts y in another way than X
    X, y = table("DPMirrorRegressor", n=400)
    whole = columns_as(X)
    whole["y"], whole["w"] = y, np.linspace(0, 1, 400)
    for k in range(20):
        whole[20 * k :][:20].to_parquet(tmp_path / f"{k:02}.parquet")
    there = dd.read_parquet(tmp_path)
    model = build("DPMirrorRegressor", FEW)
    expected = model.fit(whole[["a", "b", "c"]], y, sample_weight=whole["w"])
    expected = outcome(expected), expected.predict(whole[["a", "b", "c"]])
    for parts in (there, there.persist()):
        features = parts[["a", "b", "c"]]
        model.fit(features, parts["y"], sample_weight=parts["w"])
        np.testing.assert_allclose(outcome(model), expected[0], **TOLERANCE)
        assert list(model.feature_names_in_) == ["a", "b", "c"]
        np.testing.assert_allclose(model.predict(features).compute(), expected[1])
        model.fit(features, y, sample_weight=parts["w"])
        np.testing.assert_allclose(outcome(model), expected[0], **TOLERANCE)
    refused(there[["a", "b", "c"]], there["y"].partitions[:19], "before columns are chosen")


def test_a_check_keeps_no_block_in_memory():
    X, y = table("DPMirrorRegressor")
    found = []
    results = tables.results

    def recorded(check, given):
        found.append(results(check, given))
        return found[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "results", recorded)
        build("DPMirrorRegressor", FEW).fit(in_parts(X), in_parts(y))
    for _, _, given, empty, *_ in found[0]:
        assert given.base is None
        assert empty.base is None


# ------------------------------------------------------------------- blocks that change

CUTS = (0, 7, 7, 30, 60)


class Readings:
    """Delayed parts that are read each time: `changed`, once a part was read so many times."""

    def __init__(self, changed, after=1):
        self.changed, self.after, self.counts = changed, after, {}

    def parts(self, values):
        spans = enumerate(itertools.pairwise(CUTS))
        return [dask.delayed(self._read)((id(values), k), values[a:b]) for k, (a, b) in spans]

    def _read(self, key, part):
        self.counts[key] = self.counts.get(key, 0) + 1
        return part if self.counts[key] <= self.after else self.changed(part)


def as_it_is(part):
    return part


def backwards(part):
    return part[::-1]


def stopped(model, readings, X, y, **others):
    """A fit of which X is as it was said, and of the others those that `readings` have."""
    accountant = BudgetAccountant(100.0, 1e-2)
    model.set_params(accountant=accountant)
    with pytest.raises(BlocksChangedError, match="needs ORDER BY") as caught:
        model.fit(X, y, **others)
    assert caught.value.__context__ is None  # which would hold the arrays
    assert len(accountant.ledger) == 1
    assert not hasattr(model, "coef_")
    assert max(readings.counts.values()) == readings.after + 1


@each_form_of_readers
def test_a_fit_stops_where_blocks_are_read_in_another_order(name, form):
    X, y = table(name)
    readings = Readings(backwards)
    stopped(build(name, form), readings, readings.parts(X), readings.parts(y))
    readings = Readings(as_it_is)
    model = build(name, form).fit(readings.parts(X), readings.parts(y))
    np.testing.assert_allclose(outcome(model), outcome(fitted(name, form)), **TOLERANCE)


def another(part, at=(0, 0)):
    part = part.copy()
    if part.shape[0]:
        part[at[: part.ndim]] = 0.125
    return part


@pytest.mark.parametrize("is_held", [False, True])
def test_no_task_raises_where_blocks_change(is_held, monkeypatch):
    # schedulers log what is raised together with the arguments
    X, y = table("DPMirrorRegressor")
    readings, found = Readings(backwards), []
    if is_held:  # as what was persisted, and lost before it was kept
        monkeypatch.setattr(blocks.Blocks, "is_in_memory", True)
    with Callback(posttask=lambda key, value, *_: found.append(value)):
        stopped(build("DPMirrorRegressor", FEW), readings, readings.parts(X), in_parts(y))
    assert any(isinstance(value, BlocksChangedError) for value in found)


CHANGES = {
    "more": lambda part: np.concatenate((part, part[:1])),
    "fewer": lambda part: part[:-1],
    "another value": another,
    "an invalid value": lambda part: part * np.nan,
    "another column": lambda part: np.column_stack((part, part)),
}
NO_COLUMNS = ("weight", "another column")


@pytest.mark.parametrize(
    ("of", "change"),
    [pair for pair in itertools.product(("X", "y", "weight"), CHANGES) if pair != NO_COLUMNS],
)
def test_a_fit_stops_where_a_part_of_a_block_changes(of, change):
    X, y = table("DPLassoFW")
    values = {"X": X, "y": y, "weight": np.linspace(0, 1, 60)}
    readings, stable = Readings(CHANGES[change], after=2), Readings(as_it_is)
    given = {key: (readings if key == of else stable).parts(v) for key, v in values.items()}
    model = build("DPLassoFW", solver="selection")
    stopped(model, readings, given["X"], given["y"], sample_weight=given["weight"])


def test_a_fit_stops_where_labels_users_or_stored_values_change():
    X, labels = table("DPMirrorClassifier")
    for y in (labels, labels.astype(object)):
        readings = Readings(backwards)
        stopped(build("DPMirrorClassifier", FEW), readings, in_parts(X), readings.parts(y))
    for store in (sparse.csr_array, sparse.csc_array):
        settings = entry("DPMirrorClassifier").sparse
        readings = Readings(backwards)
        of_X, of_y = readings.parts(store(X).tocsr()), Readings(as_it_is).parts(labels)
        of_X = [dask.delayed(store)(part) for part in of_X]
        stopped(build("DPMirrorClassifier", FEW, **settings), readings, of_X, of_y)
    # users are counted in the pass in which their rows are checked
    whole = np.column_stack((*table("DPMirrorRegressor"), np.arange(60) // 2))
    readings = Readings(backwards)
    parts = readings.parts(whole)
    of_X, of_y, users = ([part[:, j] for part in parts] for j in (slice(3), 3, 4))
    stopped(build("DPMirrorRegressor", FEW), readings, of_X, of_y, groups=users)


def test_a_part_that_is_given_twice_is_refused():
    X, y = table("DPMirrorRegressor")
    parts, none = in_parts(X, (0, 30, 60)), dask.delayed(X[:0])
    refused([*parts, parts[0]], in_parts(np.append(y, y[:30]), (0, 30, 60, 90)), "given twice")
    model = build("DPMirrorRegressor", FEW).fit(
        [none, *parts, none], in_parts(y, (0, 0, 30, 60, 60))
    )
    assert hasattr(model, "coef_")


# -------------------------------------------------------------------------------- clusters


in_processes = pytest.param("processes", marks=pytest.mark.slow)


@pytest.fixture(scope="module", params=["threads", in_processes])
def cluster(request):
    """Two workers, on threads or in processes, whose start takes long."""
    distributed = pytest.importorskip("distributed", reason="needs dask and distributed")
    size = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": 60}
    settings = {"distributed.scheduler.active-memory-manager.start": False}
    if hasattr(os, "fork"):  # what all workers import is imported once
        settings["distributed.worker.multiprocessing-method"] = "forkserver"
    size["processes"] = request.param == "processes"
    # what both workers have stays with both, as one of them is killed
    with (
        dask.config.set(settings),
        distributed.LocalCluster(**size) as found,
        distributed.Client(found) as client,
    ):
        yield client


@pytest.fixture
def client(cluster):
    cluster.wait_for_workers(2)
    with dask.config.set(scheduler=None), cluster.as_current():
        yield cluster


MODELS = {
    "few steps": lambda: build("DPMirrorRegressor", FEW, epsilon=8.0),
    "learned units": lambda: DPMirrorRegressor(
        bounds_X=(-1, 1), bounds_y=(-1, 1), epsilon=8.0, random_state=0
    ),
    "FTRL": lambda: DPFTRLRegressor(bounds_X=(-1, 1), bounds_y=(-1, 1), random_state=0),
    "heavy tails": lambda: HeavyTailDPRegressor(random_state=0, solver=SCOF(max_iter=8)),
    "heavy tails, descent": lambda: HeavyTailDPRegressor(random_state=0, solver="descent"),
}


def large(n=4000, d=4):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n, d))
    return X, np.clip(X @ np.linspace(1, -0.5, d) + 0.1 * rng.standard_normal(n), -1, 1)


@rest_is_slow("kind", MODELS, ("few steps",))
def test_a_cluster_gives_the_model_of_the_table(client, kind):
    X, y = large()
    expected = MODELS[kind]().fit(X, y)
    there = da.from_array(X, chunks=(700, 4))
    lazy = MODELS[kind]().fit(there, y)
    held = MODELS[kind]().fit(there.persist(), da.from_array(y, chunks=900).persist())
    whole = dd.from_pandas(columns_as(X).assign(y=y), npartitions=4).persist()
    chosen = MODELS[kind]().fit(whole[list("abcd")], whole["y"])
    futures = client.scatter([X[:1500], X[1500:]])
    parts = MODELS[kind]().fit(futures, client.scatter([y[:1500], y[1500:]]))
    for model in (lazy, held, parts, chosen):
        np.testing.assert_allclose(outcome(model), outcome(expected), **TOLERANCE)
    np.testing.assert_allclose(held.predict(futures).compute(), expected.predict(X), rtol=1e-9)


of_processes = pytest.mark.parametrize("cluster", [in_processes], indirect=True, scope="module")


@of_processes
def test_a_worker_that_is_killed_in_mid_fit_changes_nothing(client, monkeypatch):
    X, y = large()
    expected = MODELS["learned units"]().fit(X, y)
    there = da.from_array(X, chunks=(500, 4)).persist()
    compute, calls = pieces.compute, []

    def killing(graph, keys, get):
        calls.append(None)
        if len(calls) == 12:
            workers = list(client.scheduler_info()["workers"])
            client.run(os._exit, 1, workers=workers[:1], nanny=False, on_error="ignore")
        return compute(graph, keys, get)

    monkeypatch.setattr(pieces, "compute", killing)
    model = MODELS["learned units"]().fit(there, y)
    assert len(calls) > 20
    np.testing.assert_allclose(outcome(model), outcome(expected), **TOLERANCE)


class Dying(DPMirrorRegressor):
    """The first worker that begins a fit dies in it."""

    def __init__(
        self, *, mark="", epsilon=0.1, delta="auto", relation="replace-one", max_rows_per_user=1,
        feasible_set="l2", accountant=None, random_state=None,
    ):  # fmt: skip
        shared = {"epsilon": epsilon, "delta": delta, "relation": relation}
        own = {"max_rows_per_user": max_rows_per_user, "random_state": random_state}
        own |= {"feasible_set": feasible_set, "solver": NoisyMD(max_iter=3)}
        bounds = {"bounds_X": (-1, 1), "bounds_y": (-1, 1)}
        super().__init__(accountant=accountant, **bounds, **shared, **own)
        self.mark = mark

    def _solve(self, *data):
        if multiprocessing.parent_process() is not None:
            try:
                Path(self.mark).touch(exist_ok=False)
            except FileExistsError:
                pass
            else:
                os._exit(1)
        super()._solve(*data)


@of_processes  # (test_parallel.py also has fits that are charged each time they run)
def test_a_fit_that_is_run_again_is_charged_again(client, tmp_path):
    X, y = table("DPLassoFW")
    accountant, mark = BudgetAccountant(20.0, 1e-6), tmp_path / "mark"
    accountant.save(tmp_path / "budget.json")
    model = Dying(mark=str(mark), accountant=accountant)
    search = GridSearchCV(
        model, {"feasible_set": [L2Ball(1.0), L2Ball(2.0)]}, cv=KFold(2), error_score="raise"
    )
    with parallel_config("dask", client=client, scatter=(X, y)):
        search.fit(X, y)
    assert mark.exists()
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert len(accountant.ledger) >= 2 * 2 + 1 + 1


@of_processes
def test_a_private_search_goes_on_when_a_worker_is_killed(client, tmp_path):
    X, y = table("DPLassoFW", 400)
    accountant, mark = BudgetAccountant(200.0, relation="zero-out"), tmp_path / "mark"
    model = Dying(mark=str(mark), feasible_set=L2Ball(0.01))
    settings = {"relation": "zero-out", "random_state": 0, "accountant": accountant}
    search = DPGridSearchCV(
        model, {"feasible_set": [L2Ball(0.1), L2Ball(1.0)]}, epsilon=60.0, **settings
    )
    with parallel_config("dask", client=client, scatter=(X, y)):
        search.fit(X, y)
    assert mark.exists()
    assert len(accountant.ledger) == 1
    alone = clone(search).fit(X, y)
    np.testing.assert_array_equal(outcome(search.best_estimator_), outcome(alone.best_estimator_))


def read_once(k, marks, X):
    """A block whose rows come in another order once it was read."""
    mark = marks / f"{k}"
    order = slice(None, None, -1 if mark.exists() else 1)
    mark.touch()
    return X[order]


def unstable(folder, X):
    folder.mkdir()
    cuts = itertools.pairwise((0, 700, 2500, 4000))
    return [dask.delayed(read_once)(k, folder, X[a:b]) for k, (a, b) in enumerate(cuts)]


@of_processes
def test_workers_notice_blocks_that_change(client, tmp_path, monkeypatch):
    X, y = large()
    model = MODELS["learned units"]()
    with pytest.raises(BlocksChangedError):
        model.fit(unstable(tmp_path / "lazy", X), in_parts(y, (0, 700, 2500, 4000)))
    futures = client.scatter([X[:1500], X[1500:]])
    refused([*futures, futures[0]], np.append(y, y[:1500]), "given twice")

    # what was persisted is read anew where its worker was lost
    parts = client.persist(unstable(tmp_path / "held", X))
    compute, calls = pieces.compute, []

    def killing(graph, keys, get):
        calls.append(None)
        if len(calls) == 12:
            for worker in client.scheduler_info()["workers"]:
                client.run(os._exit, 1, workers=[worker], nanny=False, on_error="ignore")
        return compute(graph, keys, get)

    monkeypatch.setattr(pieces, "compute", killing)
    with pytest.raises(BlocksChangedError):
        model.fit(parts, in_parts(y, (0, 700, 2500, 4000)))
    assert len(calls) >= 12


@rest_is_slow(
    ("when", "is_held"),
    [("charge", True), ("charge", False), ("kept", True), ("step", True), ("step", False)],
    ("charge-False", "kept-True", "step-True"),
)
def test_a_scheduler_that_goes_away_is_an_error_and_the_charge_stays(monkeypatch, is_held, when):
    distributed = pytest.importorskip("distributed", reason="needs dask and distributed")
    X, y = large(400)
    accountant = BudgetAccountant(10.0, 1e-5)
    model = MODELS["few steps"]().set_params(accountant=accountant)
    size = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "silence_logs": 60}
    with (
        dask.config.set(scheduler=None),
        distributed.LocalCluster(**size, dashboard_address=":0") as found,
        distributed.Client(found, timeout=2),
    ):
        there = da.from_array(X, chunks=(200, 4))
        there = there.persist() if is_held else there

        def ending(function, after):
            calls = []

            def closes(*arguments, **settings):
                calls.append(None)
                if len(calls) == after:
                    found.close()
                return function(*arguments, **settings)

            return closes

        if when == "charge":
            monkeypatch.setattr(type(model), "_spend", charged_and(found.close, type(model)))
        else:
            name, after = {"kept": ("hold", 1), "step": ("compute", 8)}[when]
            monkeypatch.setattr(pieces, name, ending(getattr(pieces, name), after))
        with pytest.raises(TasksLostError, match="stays charged"):
            model.fit(there, y)
    assert len(accountant.ledger) == 1
    assert not hasattr(model, "coef_")


def charged_and(then, kind):
    """The charge of that kind of model, and a call."""
    charge = kind._spend

    def both(self, *arguments, **facts):
        charge(self, *arguments, **facts)
        then()

    return both


def test_what_is_persisted_is_read_once(monkeypatch):
    X, y = table("DPLassoFW")
    read, calls = tables._read, []
    monkeypatch.setattr(tables, "_read", lambda *a: calls.append(None) or read(*a))
    for settings in ({"delta": 0}, {"units": "bounds"}, {"fit_intercept": False}):
        calls.clear()
        model = build("DPLassoFW", **{"solver": Selection(max_iter=9)} | settings)
        model.fit(da.from_array(X, chunks=(20, 3)).persist(), y)
        assert len(calls) == 4  # three blocks, and one without records


def test_last_steps_read_blocks_once_where_their_line_is_small(monkeypatch):
    X, y = large(4000)
    made, found = [dask.delayed(np.array)(part) for part in np.split(X, 2)], []
    read, calls = tables._read, []
    monkeypatch.setattr(tables, "_read", lambda *a: calls.append(None) or read(*a))
    for most in (unit_descent._LINE_BYTES, 4000 * 8 * 5 - 1):
        monkeypatch.setattr(unit_descent, "_LINE_BYTES", most)
        calls.clear()
        model = DPLogisticRegression(classes=[0, 1], bounds_X=(-1, 1), random_state=0)
        model.fit(made, (y > 0).astype(int))
        found.append((len(calls), model.coef_))
    (few, kept), (many, anew) = found
    (last,) = [r for r in model.guarantee_.releases if r.name == "last gradient"]
    assert many - few == 2 * (last.count - 1)
    np.testing.assert_array_equal(kept, anew)


def test_a_stream_reads_large_blocks_about_once(monkeypatch):
    X, y = large(4000)
    expected = MODELS["FTRL"]().set_params(solver=FTRL(shuffle=False)).fit(X, y)
    read, calls = tables._read, []
    monkeypatch.setattr(tables, "_read", lambda *a: calls.append(len(a[-1])) or read(*a))
    monkeypatch.setattr(pieces, "_READ_BYTES", 2**12)  # 64 records
    model = MODELS["FTRL"]().set_params(solver=FTRL(shuffle=False))
    model.fit(in_parts(X, (0, 1500, 1510, 4000)), in_parts(y, (0, 1500, 1510, 4000)))
    np.testing.assert_allclose(outcome(model), outcome(expected), **TOLERANCE)
    assert sum(calls) <= 2 * 4000 + 100


def test_a_sum_over_no_record_is_one_of_zeros():
    X, y = table("DPMirrorRegressor")
    data = in_pieces(solver_data(X, y), (0, 20, 60))
    nothing = data.part(np.arange(0), is_drawn=True)
    np.testing.assert_array_equal(nothing.sum(row_sum, None), np.zeros(3))
    np.testing.assert_allclose(data.sum(row_sum, None), X.sum(axis=0))
