"""Sparse X of any form and any emptiness: the model is that of the same dense table."""

import tracemalloc
import warnings

import numpy as np
import pytest
from registry import (
    READING_ORDER,
    build,
    each_descending_form,
    each_reader,
    each_solver,
    entry,
    is_classifier,
    known,
    main_form,
    nothing_is_released,
    outcome,
    parameters_of,
    table,
)
from scipy import sparse
from support import half_is_enough

TOLERANCE = {"rtol": 1e-7, "atol": 1e-9}
N, D = 60, 4


def numbers(name):
    """Numbers that float32 holds exactly, half of them 0, and some of them out of bounds."""
    X, y = table(name, n=N, d=D)
    X = np.float64(np.float32(1.2 * X))
    X[np.random.default_rng(1).uniform(size=X.shape) < 0.4] = 0.0
    return X, y


def fitted(name, X, y, form=None, **settings):
    """A fit without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "n_samples=.* is too small to learn")  # so it is
        return build(name, form, **entry(name).sparse, **settings).fit(X, y)


def like_stored(X, form):
    """What has the same model: learned units do not centre sparse columns, but dense ones."""
    return sparse.csr_array(X) if form.startswith("learned ") else X


def assert_same(name, stored, X, y, case, form=None, expected=None, **settings):
    """The model of the stored table is that of the dense one, and predicts the same of both."""
    model = fitted(name, stored, y, form, **settings)
    expected = expected or fitted(name, X, y, form, **settings)
    np.testing.assert_allclose(outcome(model), outcome(expected), err_msg=case, **TOLERANCE)
    found = model.predict(stored)
    assert found.shape == (X.shape[0],), case
    if is_classifier(name):
        assert np.mean(found == expected.predict(X)) > 0.98, case
    else:
        np.testing.assert_allclose(found, expected.predict(X), rtol=1e-5, atol=1e-6, err_msg=case)


# ---------------------------------------------------------------------- the same numbers


def with_indices(X, of_indices, of_indptr, kind=sparse.csr_matrix):
    """The same numbers in float32 with indices of these types, which scipy would unify."""
    X = kind(X.astype(np.float32))
    X.indices, X.indptr = X.indices.astype(of_indices), X.indptr.astype(of_indptr)
    return X


def shuffled(X):
    """The entries of each row in a random order."""
    X = sparse.csr_matrix(X)
    rows = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    order = np.lexsort((np.random.default_rng(0).uniform(size=X.nnz), rows))
    return sparse.csr_matrix((X.data[order], X.indices[order], X.indptr), shape=X.shape)


def halves(X):
    """Each entry in two equal parts."""
    X = sparse.csr_matrix(X)
    parts = np.repeat(X.data / 2, 2), np.repeat(X.indices, 2)
    return sparse.csr_matrix((*parts, 2 * X.indptr), shape=X.shape)


def far_halves(X):
    """Each entry in two parts that are out of bounds, in an order that is not sorted."""
    X = sparse.csr_matrix(X)
    data, indices = (np.split(part, X.indptr[1:-1]) for part in (X.data, X.indices))
    data = np.concatenate([part for v in data for part in (v + 64.0, np.full(v.size, -64.0))])
    indices = np.concatenate([part for j in indices for part in (j, j)])
    return sparse.csr_matrix((data, indices, 2 * X.indptr), shape=X.shape)


def with_zeros(X):
    """Every entry is stored, those that are 0 too."""
    stored = sparse.csr_matrix(X + 4.0)
    stored.data = np.ascontiguousarray(X).ravel()
    return stored


FORMATS = {
    f"{kind} {shape}": getattr(sparse, f"{kind}_{shape}")
    for kind in ("csr", "csc", "coo", "lil", "dok", "dia", "bsr")
    for shape in ("array", "matrix")
}
SAME = FORMATS | {
    "shuffled": shuffled,
    "shuffled csc": lambda X: shuffled(X.T).T,
    "halves": halves,
    "halves csc": lambda X: halves(X.T).T,
    "far halves": far_halves,
    "stored zeros": with_zeros,
    "stored zeros csc": lambda X: with_zeros(X.T).T,
    "coo twice": lambda X: sparse.coo_array(halves(X)),
    # (kernels are compiled for each pair of types: those that most differ from the usual ones)
    "single, int64": lambda X: with_indices(X, np.int64, np.int64),
    "single, int64 csc": lambda X: with_indices(X, np.int64, np.int64, sparse.csc_matrix),
    "mixed": lambda X: with_indices(X, np.int32, np.int64),
    "mixed csc": lambda X: with_indices(X, np.int64, np.int32, sparse.csc_matrix),
}


@each_reader
def test_all_forms_of_storage(name):
    X, y = numbers(name)
    form = main_form(name)
    expected = fitted(name, X, y, form)
    for case, storage in SAME.items():
        assert_same(name, storage(X), X, y, case, form, expected)
    whole = np.trunc(2 * X)
    assert_same(name, sparse.csr_array(whole.astype(np.int8)), whole, y, "whole numbers", form)


@each_descending_form
def test_a_messy_matrix_in_every_form_of_the_solver(name, form):
    X, y = numbers(name)
    X[[0, 1, 7, -2, -1]] = 0.0
    X[:, 2] = 0.0
    expected = fitted(name, like_stored(X, form), y, form)
    for storage in (far_halves, lambda X: with_indices(X, np.int64, np.int64)):
        assert_same(name, storage(X), X, y, form, form, expected)
    expected = fitted(name, like_stored(X, form), y, form, nonfinite="zero")
    assert_same(name, far_halves(X), X, y, form, form, expected, nonfinite="zero")


# ------------------------------------------------------------------------ little in them


def emptied(X, case):
    X = X.copy()
    if case == "empty column":
        X[:, 1] = 0.0
    elif case == "empty rows":
        X[::3] = 0.0
    elif case == "empty rows at the ends":
        X[[0, 1, -1]] = 0.0
    elif case == "one column":
        X[:, [0, 2, 3]] = 0.0
    elif case == "one entry":
        X[:] = 0.0
        X[5, 2] = 0.5
    elif case == "nothing":
        X[:] = 0.0
    elif case == "constant column":
        X[:, 1] = 0.75
    elif case == "equal columns":  # and equal scores in every step
        X[:] = X[:, [0]]
    elif case == "n x 1":
        X = X[:, :1]
    elif case == "n x 1, empty":
        X = 0 * X[:, :1]
    return X


EMPTY = (
    "empty column", "empty rows", "empty rows at the ends", "one column", "one entry", "nothing",
    "constant column", "equal columns", "n x 1", "n x 1, empty",
)  # fmt: skip


@half_is_enough
@each_descending_form
def test_empty_rows_and_columns(name, form, cells):
    X, y = numbers(name)
    storages = (sparse.csr_array, sparse.csc_array, with_zeros)
    for k, case in enumerate(EMPTY, READING_ORDER.index(name)):
        part = emptied(X, case)
        expected = fitted(name, like_stored(part, form), y, form)
        for storage in storages if cells == "all" else storages[k % 3 :][:1]:
            assert_same(name, storage(part), part, y, case, form, expected)


# ------------------------------------------------------------------------------ memory


@each_solver
def test_a_file_of_single_numbers_is_not_copied(name, tmp_path):
    """Neither values of the bounds' units nor indices, of 64 bits and read from files."""
    if entry(name).of_rates:
        return  # whose rows are copied, all of their numbers
    n, stored, d = 30_000, 80, 1600
    rng = np.random.default_rng(0)
    apart = d // stored
    indices = rng.integers(0, apart, (n, stored)) + apart * np.arange(stored)
    parts = {
        "data": rng.choice([-0.5, 1.0], n * stored).astype(np.float32),
        "indices": indices.ravel(),
        "indptr": stored * np.arange(n + 1),
    }
    X = sparse.csr_array((n, d), dtype=np.float32)
    for part, values in parts.items():
        np.save(tmp_path / f"{part}.npy", values)
        setattr(X, part, np.load(tmp_path / f"{part}.npy", mmap_mode="r"))
    y = np.where(np.arange(n) % 2, "no", "yes") if is_classifier(name) else np.arange(n) / n
    few = {"batch_size": 1000} if "horizon" in parameters_of(name) else {}  # steps of a stream
    model = build(name, main_form(name), **few, **entry(name).sparse)
    model.fit(X, y)  # compiles
    tracemalloc.start()
    model.fit(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # A copy of the values has 4 bytes for each, one of the indices 8. Scales that are found need
    # a copy, in float64; steps in an order that is drawn, and streams, copy a part at a time.
    more = {"scale_X": 8, "rank_bound": 12 * 2**14 / n, "horizon": 12 * 2**13 / n}
    more = sum(more[key] for key in known(name, more, main_form(name)))
    if name.startswith(("DPLinear", "DPLogistic")):  # wide rows are cut to a length that is learned
        more += 4
    assert peak / X.nnz < 3.5 + more


# --------------------------------------------------------------------------- refusals

BROKEN = (
    "negative index", "index too large", "indptr falls", "indptr beyond the end",
    "indptr too short", "indptr does not start", "values too few", "float64", "uint64", "int16",
    "bool",
)  # fmt: skip


def broken(case, kind):
    """A matrix that is none: its parts are set after scipy's own checks."""
    X = kind(np.eye(N, D) + np.eye(N, D)[::-1])
    if case == "negative index":
        X.indices[1] = -1
    elif case == "index too large":
        X.indices[1] = 12345
    elif case == "indptr falls":
        X.indptr[2] = 0
    elif case == "indptr beyond the end":
        X.indptr[-1] = 12345
    elif case == "indptr too short":
        X.indptr = X.indptr[:-1]
    elif case == "indptr does not start":
        X.indptr[0] = 1
    elif case == "values too few":
        X.data = X.data[:-1]
    else:
        X.indices = X.indices.astype(case)
    return X


@each_reader
def test_matrices_that_are_none_are_refused(name):
    """Instead of read and written beyond their ends."""
    X, y = numbers(name)
    model = fitted(name, X, y)
    for case in BROKEN:
        for kind in (sparse.csr_matrix, sparse.csc_array):
            wrong = broken(case, kind)
            for method, *arguments in (("fit", wrong, y), ("predict", wrong)):
                with nothing_is_released(), pytest.raises(ValueError, match="sparse X") as caught:
                    getattr(model, method)(*arguments)
                assert "12345" not in str(caught.value), case
