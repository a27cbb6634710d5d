"""Compiling ahead: what a fit needs is there, and what is compiled later is told of."""

import logging
import os
import shutil
import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import is_classifier, is_regressor

import sklearn_dpsco
from sklearn_dpsco import (
    BudgetAccountant,
    DPGammaRegressor,
    DPLinearRegression,
    DPLogisticRegression,
    DPMirrorRegressor,
    DPPoissonRegressor,
    DPTweedieRegressor,
    _progress,
    compilation,
)
from sklearn_dpsco._kernels.arguments import Compressed
from sklearn_dpsco._kernels.jit import njit
from sklearn_dpsco.data.bounds import feature_scaling, target_scaling
from sklearn_dpsco.data.rows import Rows
from sklearn_dpsco.estimators._records import LocalTable, Reader, Targets
from sklearn_dpsco.solvers import NoisyMD

PREDICTORS = {
    kind
    for name in sklearn_dpsco.__all__
    if hasattr(kind := getattr(sklearn_dpsco, name), "predict") and "Search" not in name
}

COUNTS = {DPGammaRegressor, DPPoissonRegressor, DPTweedieRegressor}

needs_numba = pytest.mark.skipif(
    os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="nothing is compiled"
)


def kernel(x):
    return x + 1


kernel.__module__ = "sklearn_dpsco._kernels.invented"


@needs_numba
def test_a_kernel_is_told_of_once_for_each_kind_of_data(caplog, monkeypatch):
    said = []
    monkeypatch.setattr("sklearn_dpsco._kernels.jit.remark", said.append)
    compiled = njit(cache=False)(kernel)
    with caplog.at_level(logging.INFO, "sklearn_dpsco"):
        for x in (1, 2, 1.5, 2.5):
            assert compiled(x) == x + 1
    assert [record.args for record in caplog.records] == [("kernel",)] * 2  # of int and of float
    assert "compile_kernels" in caplog.records[0].getMessage()
    assert said == ["compiling kernel, once", ""] * 2


A_KERNEL = """
from sklearn_dpsco._kernels.jit import njit

@njit(cache=True)
def doubled(x):
    return 2 * x
"""


@needs_numba
def test_files_of_the_cache_that_are_cut_off_are_made_anew(tmp_path, monkeypatch):
    numba = pytest.importorskip("numba")
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    source = tmp_path / "invented.py"
    source.write_text(A_KERNEL)

    def doubled_of_a_new_process():
        names = {"__name__": "invented"}
        exec(compile(A_KERNEL, source, "exec"), names)
        return names["doubled"]

    def hits(doubled=None):
        """How often what was kept is found."""
        doubled = doubled_of_a_new_process() if doubled is None else doubled
        assert (doubled(3), doubled(0.25)) == (6, 0.5)
        return sum(doubled.stats.cache_hits.values())

    assert [hits(), hits()] == [0, 2]
    files = sorted((tmp_path / "cache").rglob("*.nb?"))
    assert [file.suffix for file in files] == [".nbc", ".nbc", ".nbi"]
    for file in files[1:]:  # one of each kind
        for share in (0.0, 0.99):
            whole = file.read_bytes()
            file.write_bytes(whole[: int(share * len(whole))])
            assert hits() < 2
            assert hits() == 2
    # nor must files that can be neither read nor written
    (folder,), doubled = (tmp_path / "cache").iterdir(), doubled_of_a_new_process()
    shutil.rmtree(folder)
    folder.touch()
    assert hits(doubled) == 0


def test_remarks_are_shown_behind_open_bars(capsys):
    _progress.remark("nobody sees this")
    with _progress.progress_bar(1, 3, "step", "fit"):
        _progress.remark("compiling")
        _progress.remark("")
    said = capsys.readouterr().err
    assert "compiling" in said
    assert "nobody" not in said


def test_every_estimator_is_compiled_for_every_kind_of_data():
    fits = list(compilation._fits())
    # those of the front door and of counts run the kernels of others
    front_door = {DPLinearRegression, DPLogisticRegression}
    assert set(compilation._KINDS) == PREDICTORS - front_door - COUNTS
    kinds = {(type(m), type(X), X.dtype.name, np.ndim(y)) for m, X, y in fits if y is not None}
    for kind in compilation._KINDS:
        n_forms = 2 if is_regressor(kind()) else 1
        assert len([k for k in kinds if k[0] is kind]) == 2 * 2 * n_forms


def test_no_accountant_is_charged(monkeypatch):
    """Nor is anything shown or warned of, as of data of a user."""
    X = np.tile([[0.5], [-0.5]], (20, 1))
    model = DPMirrorRegressor(solver=NoisyMD(max_iter=1))
    monkeypatch.setattr(compilation, "_fits", lambda: [(model, X, X[:, 0])])
    with BudgetAccountant(1.0) as accountant, warnings.catch_warnings():
        warnings.simplefilter("error")
        sklearn_dpsco.compile_kernels()
    assert accountant.ledger == ()
    with pytest.raises(ValueError, match="verbose"):
        sklearn_dpsco.compile_kernels(verbose="yes")


@pytest.mark.slow
@needs_numba
def test_afterwards_default_fits_compile_nothing(caplog):
    sklearn_dpsco.compile_kernels()
    rng = np.random.default_rng(1)
    with caplog.at_level(logging.INFO, "sklearn_dpsco"):
        shapes = (60, 3), (2000, 12), (1500, 1300), (20_000, 3)  # the last learns sizes of columns
        for (n, d), dtype in zip(shapes, (float, np.float32, float, float), strict=True):
            X = (rng.uniform(-1, 1, (n, d)) * (rng.uniform(size=(n, d)) < 0.3)).astype(dtype)
            for kind in sorted(PREDICTORS - COUNTS, key=lambda kind: kind.__name__):
                y = (X[:, 0] > 0).astype(int) if is_classifier(kind()) else X[:, 0]
                for table in (X, np.asfortranarray(X), sparse.csr_matrix(X), sparse.csc_array(X)):
                    known = {"bounds_X": (-1, 1), "bounds_y": (-1, 1), "classes": [0, 1]}
                    known["center_X"] = 0.0 if sparse.issparse(table) else "private"
                    known = {name: known[name] for name in known.keys() & kind().get_params()}
                    kind(epsilon=8.0, **known).fit(table, y)
    assert [record.args for record in caplog.records] == []


@pytest.mark.parametrize("is_read_only", [False, True])
@pytest.mark.parametrize("cell", [0.5, 2.0, np.nan])
def test_no_record_decides_which_kernels_are_compiled(is_read_only, cell):
    # a table is copied if one value is out of bounds or invalid: what is compiled must not tell
    X, y = np.full((50, 2), 0.5), np.zeros(50)
    X[7, 0] = cell
    X.flags.writeable = not is_read_only
    scaling = feature_scaling((-1, 1), 2)
    reader, targets = Reader("test", "regression", False, 1.0), Targets(y, target_scaling((-1, 1)))
    data = LocalTable(reader, X, targets, None, None).records(scaling, True)
    assert not data.rows.X.flags.writeable


def test_copies_of_rows_and_arrays_of_files_need_no_kernels_of_their_own():
    rows = Rows(np.eye(5), True)
    arrays = [rows.X, rows.part(np.array([1, 3])).X, rows.dense(slice(2))]
    for form in (sparse.csr_array, sparse.csc_array):
        arrays += Compressed.of(form(rows.X))
    assert not any(array.flags.writeable for array in arrays)
