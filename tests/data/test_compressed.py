"""Compressed matrices: shared arrays, canonical form, broken structure."""

import tracemalloc

import numpy as np
import pytest
from scipy import sparse

from sklearn_dpsco.data.bounds import feature_scaling
from sklearn_dpsco.data.cells import checked_table
from sklearn_dpsco.data.compressed import (
    canonical,
    compressed,
    stored_places,
    value_parts,
    with_arrays,
    with_values,
)
from sklearn_dpsco.data.rows import Rows

KINDS = (sparse.csr_matrix, sparse.csc_matrix, sparse.csr_array, sparse.csc_array)
every_kind = pytest.mark.parametrize("kind", KINDS)


def random_table(kind, index=np.int32, dtype=np.float64, shape=(30, 7)):
    X = kind(sparse.random(*shape, density=0.4, random_state=0))
    X.data = np.round(X.data * 64).astype(dtype) / dtype(64)
    X.indices, X.indptr = X.indices.astype(index), X.indptr.astype(index)
    return X


def share(X, Y):
    return all(
        np.shares_memory(getattr(X, part), getattr(Y, part))
        for part in ("data", "indices", "indptr")
    )


@every_kind
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_arrays_are_shared_whatever_their_indices(kind, index):
    X = random_table(kind, index, np.float32)
    same = with_arrays(X, X.data, X.indices, X.indptr)
    for found in (same, canonical(X), feature_scaling((0, 1), 7).transform(X)):
        assert type(found) is kind
        assert share(found, X)
        assert found.indices.dtype == found.indptr.dtype == index
        np.testing.assert_array_equal(found.toarray(), X.toarray())
    doubled = with_values(X, 2.0 * X.data)
    np.testing.assert_array_equal(doubled.toarray(), 2 * X.toarray())
    assert np.shares_memory(doubled.indices, X.indices)


@every_kind
def test_files_are_shared(kind, tmp_path):
    X = random_table(kind)
    for part in ("data", "indices", "indptr"):
        np.save(tmp_path / f"{part}.npy", getattr(X, part))
        setattr(X, part, np.load(tmp_path / f"{part}.npy", mmap_mode="r"))
    found = canonical(X)
    assert share(found, X)
    assert type(found.data) is type(found.indices) is np.ndarray


@every_kind
def test_canonical_form_of_what_is_not(kind):
    X = random_table(kind)
    dense = X.toarray()
    assert X.has_canonical_format
    twice = kind((np.repeat(X.data / 2, 2), np.repeat(X.indices, 2), 2 * X.indptr), shape=X.shape)
    mixed = with_arrays(X, X.data, X.indices.astype(np.int64), X.indptr)
    mixed.indices = X.indices.astype(np.int64)
    stale = kind(X)
    assert stale.has_canonical_format
    stale.indices, stale.data = twice.indices, twice.data
    stale.indptr = twice.indptr
    # scipy allows more values than the last row or column ends with
    longer = kind(X)
    longer.data, longer.indices = np.append(X.data, 9.0), np.append(X.indices, X.indices[:1])
    for case in (twice, mixed, stale, longer):
        before = [case.data.copy(), case.indices.copy(), case.indptr.copy()]
        found = canonical(case)
        assert found.has_canonical_format
        assert found.data.size == found.indices.size == found.nnz == X.nnz
        np.testing.assert_array_equal(found.toarray(), dense)
        after = case.data, case.indices, case.indptr
        assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_the_order_of_the_entries_of_a_record_changes_no_other_record(form):
    # three entries of one place, whose sum is 1, 0 or 2 by their order
    own = [(0, 1e16), (0, -1e16), (0, 1.0), *((j, 0.1) for j in range(1, 20))]
    found = []
    for last in ([(0, 0.5), (1, 0.5)], [(1, 0.5), (0, 0.5)]):
        entries = [(i, *entry) for i in range(40) for entry in own]
        added = [(40, *entry) for entry in last]
        # of a CSC matrix, that of the last record comes first in column 0
        entries = added[::-1] + entries if form == "csc" and last[0][0] else entries + added
        rows, columns, values = map(np.array, zip(*entries, strict=True))
        X = sparse.coo_matrix((values, (rows, columns)), (41, 20))
        if form != "coo":
            lines, places = (rows, columns) if form == "csr" else (columns, rows)
            order = np.argsort(lines, kind="stable")
            indptr = np.append(0, np.cumsum(np.bincount(lines)))
            made = {"csr": sparse.csr_matrix, "csc": sparse.csc_matrix}[form](X.shape)
            X = with_arrays(made, values[order], places[order].astype(np.int32), indptr)
            X.indptr = X.indptr.astype(np.int32)
        found.append(canonical(compressed(X)).toarray())
    np.testing.assert_array_equal(*found)
    assert np.all(found[0][:40, 0] == 1.0)


@pytest.mark.parametrize("form", ["csr", "csc"])
@pytest.mark.parametrize("n_columns", [30, 2**20])
def test_repeated_entries_are_added_up_in_their_order(form, n_columns):
    rng = np.random.default_rng(0)
    rows, columns = rng.integers(0, 40, 600), rng.integers(0, 20, 600)
    values = rng.choice([1e16, -1e16, 1.0, 0.1], 600)
    lines, places = (rows, columns) if form == "csr" else (columns, rows)
    order, n_lines = np.argsort(lines, kind="stable"), 40 if form == "csr" else n_columns
    indptr = np.append(0, np.cumsum(np.bincount(lines, minlength=n_lines)))
    made = {"csr": sparse.csr_matrix, "csc": sparse.csc_matrix}[form]((40, n_columns))
    X = with_arrays(made, values[order], places[order], indptr)
    expected = np.zeros((40, n_columns))
    for i, j, value in zip(rows, columns, values, strict=True):
        expected[i, j] += value
    found = canonical(compressed(X))
    assert found.has_canonical_format
    np.testing.assert_array_equal(found.toarray(), expected)
    line = np.repeat(np.arange(n_lines), np.diff(found.indptr))
    order = np.lexsort((-found.indices, line))
    X = with_arrays(found, found.data[order], found.indices[order], found.indptr)
    np.testing.assert_array_equal(canonical(compressed(X)).indices, found.indices)


@pytest.mark.parametrize("dtype", [np.int64, np.uint64, np.longdouble])
@pytest.mark.parametrize("form", ["csr", "csc", "coo", "lil", "bsr"])
def test_the_order_of_the_entries_of_a_record_changes_no_other_record_of_other_types(form, dtype):
    # in float64 their sum is 2^54 or 2^54 + 4, by their order; scipy adds them up where it converts
    own = [(0, 2**54), *[(0, 1)] * 4, *((j, 1) for j in range(1, 20))]
    found = []
    for last in ([(0, 1), (1, 1)], [(1, 1), (0, 1)]):
        rows_of = [own] * 40 + [last]
        indptr = np.append(0, np.cumsum([len(row) for row in rows_of])).astype(np.int32)
        places = np.array([j for row in rows_of for j, _ in row], dtype=np.int32)
        values = np.array([value for row in rows_of for _, value in row], dtype=dtype)
        rows = np.repeat(np.arange(41, dtype=np.int32), np.diff(indptr))
        if form == "lil":
            X = sparse.lil_matrix((41, 20), dtype=dtype)
            for i, row in enumerate(rows_of):
                X.rows[i] = [j for j, _ in row]
                X.data[i] = [dtype(value) for _, value in row]
        elif form == "coo":
            X = sparse.coo_matrix((values, (rows, places)), (41, 20))
        elif form == "csc":
            order = np.argsort(places, kind="stable")
            if last[0][0]:  # the last record comes first in column 0
                order = np.append(order[rows[order] == 40], order[rows[order] != 40])
                order = order[np.argsort(places[order], kind="stable")]
            ends = np.append(0, np.cumsum(np.bincount(places))).astype(np.int32)
            X = with_arrays(
                sparse.csc_matrix((41, 20), dtype=dtype), values[order], rows[order], ends
            )
        elif form == "bsr":
            X = sparse.bsr_matrix((41, 20), dtype=dtype, blocksize=(1, 1))
            X.data, X.indices, X.indptr = values[:, None, None], places, indptr
        else:
            X = with_arrays(sparse.csr_matrix((41, 20), dtype=dtype), values, places, indptr)
        found.append(canonical(checked_table(X, strict=False)).toarray())
    np.testing.assert_array_equal(found[0][:40], found[1][:40])
    assert np.all(found[0][:40, 0] == 2.0**54)


@every_kind
def test_places_of_stored_values(kind):
    X = random_table(kind, shape=(900, 700))
    assert len(value_parts(X)) == 1
    coo = X.tocoo()
    parts = [slice(0, 1000), slice(1000, X.nnz)]
    found = np.concatenate([stored_places(X, part, 1) for part in parts])
    np.testing.assert_array_equal(found, coo.col)
    X = with_arrays(X, np.ones(2**18 + 5), np.zeros(2**18 + 5, np.int64), X.indptr * 0)
    X.indptr[-1] = 2**18 + 5
    assert value_parts(X) == [slice(0, 2**18), slice(2**18, 2**18 + 5)]
    assert value_parts(kind((3, 4))) == []


@every_kind
def test_broken_structure(kind):
    for index in (np.int32, np.int64):
        compressed(random_table(kind, index))
    compressed(kind((4, 3)))
    compressed(kind((0, 3)))
    for name, place, value in (
        ("indices", 3, -1), ("indices", 5, 30), ("indices", -1, 2**31 - 1), ("indptr", 0, 1),
        ("indptr", 0, -1), ("indptr", 2, 10**6), ("indptr", -1, 10**6), ("indptr", 3, 0),
    ):  # fmt: skip
        X = random_table(kind)
        getattr(X, name)[place] = value
        with pytest.raises(ValueError, match="outside of it"):
            compressed(X)
    for name in ("data", "indices", "indptr"):
        X = random_table(kind)
        setattr(X, name, getattr(X, name)[:-1])
        with pytest.raises(ValueError, match="outside of it"):
            compressed(X)
    for name, wrong in (("indices", np.int16), ("indptr", np.float64), ("indices", ">i4")):
        X = random_table(kind)
        setattr(X, name, getattr(X, name).astype(wrong))
        with pytest.raises(ValueError, match="int32 or int64"):
            compressed(X)


@every_kind
def test_scaling_keeps_single_numbers_where_it_only_clips(kind):
    X = random_table(kind, dtype=np.float32)
    X.data[::3] *= 5
    for bounds in ((0, 1), (-1, 1), (-1, 0)):
        scaling = feature_scaling(bounds, 7)
        found, expected = (scaling.transform(A) for A in (X, X.astype(np.float64)))
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found.toarray(), expected.toarray())
        assert np.abs(found.data).max() <= 1
    # what is divided is float64: the same numbers of both
    for bounds in ((0, 3), ([0] * 7, [1] * 6 + [0.7])):
        scaling = feature_scaling(bounds, 7)
        found, expected = (scaling.transform(A) for A in (X, X.astype(np.float64)))
        assert found.dtype == np.float64
        np.testing.assert_array_equal(found.toarray(), expected.toarray())


@every_kind
@pytest.mark.parametrize("shape", [(), (3,)])
def test_products_of_single_numbers_are_those_of_double_ones(kind, shape):
    rng, X = np.random.default_rng(0), random_table(kind, dtype=np.float32)
    X.data = rng.uniform(-1, 1, X.nnz).astype(np.float32)
    single, double = (Rows(A, True) for A in (X, X.astype(np.float64)))
    coef, r = rng.standard_normal((8, *shape)), rng.standard_normal((30, *shape))
    np.testing.assert_array_equal(single.product(coef), double.product(coef))
    np.testing.assert_array_equal(single.weighted_sum(r), double.weighted_sum(r))
    np.testing.assert_array_equal(single.norms(), double.norms())


def test_a_product_makes_no_copy_of_the_values():
    X = random_table(sparse.csr_array, dtype=np.float32, shape=(2000, 500))
    rows, coef = Rows(X, False), np.ones(500)
    rows.product(coef)  # compiles
    tracemalloc.start()
    rows.product(coef)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < X.data.nbytes / 4


def test_other_formats_are_checked_before_they_are_converted():
    for convert in (sparse.coo_array, sparse.coo_matrix, sparse.lil_array, sparse.dia_array):
        X = compressed(convert(np.eye(5)))
        np.testing.assert_array_equal(X.toarray(), np.eye(5))
    for bad in (-1, 5, 10**6):
        X = sparse.coo_array(np.eye(5))
        X.col = X.col.copy()
        X.col[-1] = bad
        with pytest.raises(ValueError, match="outside of it"):
            compressed(X)
    X = sparse.bsr_array(np.eye(6), blocksize=(2, 2))
    X.indices = X.indices.copy()
    X.indices[-1] = 7
    with pytest.raises(ValueError, match="outside of it") as caught:
        compressed(X)
    assert caught.value.__context__ is None  # scipy's error quotes the place


@pytest.mark.parametrize("dtype", [np.float64, np.longdouble])
def test_lists_of_places_and_values_of_two_lengths_are_no_matrix(dtype):
    # scipy would read the values of all later rows one place further on
    for places, values in (([0, 1, 2], [1.0]), ([0], [1.0, 2.0])):
        X = sparse.lil_matrix(np.ones((5, 3), dtype=dtype))
        X.rows[1], X.data[1] = places, values
        with pytest.raises(ValueError, match="is no matrix"):
            checked_table(X, strict=False)
