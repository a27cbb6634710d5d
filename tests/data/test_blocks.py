"""Fingerprints of blocks: what tells that a block is not what it was."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from sklearn_dpsco.data.blocks import blocks_of_all, fingerprint
from sklearn_dpsco.data.compressed import canonical

WIDTHS = (1, 2, 3, 17, 63, 64, 65, 128, 30030)


def tables():
    rng = np.random.default_rng(0)
    for width in WIDTHS:
        yield rng.uniform(-1, 1, (max(10, 20000 // width), width))
    yield sparse.csr_array(rng.uniform(-1, 1, (3000, 17)))
    for store in (sparse.csr_array, sparse.csc_array, sparse.csr_matrix):
        yield store(sparse.random(3000, 400, 0.05, rng=rng))


@pytest.mark.parametrize("X", [*tables()], ids=lambda X: f"{type(X).__name__}-{X.shape[1]}")
def test_rows_that_move_come_or_go_are_noticed(X):
    n, mark = X.shape[0], fingerprint(X)
    places = np.arange(n)
    changed = [places[:-1], places[1:], np.append(places, 0), np.roll(places, 1), places[::-1]]
    if not sparse.issparse(X):
        # in a table that is stored in full, any two rows
        for i in np.random.default_rng(1).permutation(n)[:8]:
            swapped = places.copy()
            swapped[[i, i - 1]] = swapped[[i - 1, i]]
            changed.append(swapped)
    for order in changed:
        assert fingerprint(X[order]) != mark
    assert fingerprint(X.copy()) == mark


def test_each_column_is_looked_at():
    for width in (2, 3, 17, 63, 64, 128):
        X = np.zeros((40000 // width, width))
        mark = fingerprint(X)
        for j in range(width):
            X[:, j] = 1.0
            assert fingerprint(X) != mark
            X[:, j] = 0.0


def test_small_blocks_and_numbers_that_go_with_them_are_compared_in_full():
    X, y = np.zeros((50, 100)), np.zeros(50000)
    marks = {fingerprint(X, y)}
    for place in ((0, 0), (31, 7), (49, 99)):
        X[place] += 1.0
        marks.add(fingerprint(X, y))
    for place in (0, 31234, 49999):
        y[place] += 1.0
        marks.add(fingerprint(X, y))
    assert len(marks) == 7
    assert fingerprint(X, y[:10], y[:20]) != fingerprint(X, y[:20], y[:10])


def test_a_fingerprint_is_the_same_wherever_a_block_lies():
    X = np.random.default_rng(0).uniform(-1, 1, (500, 70))
    wide = np.zeros((500, 140))
    wide[:, ::2] = X
    frozen = X.copy()
    frozen.flags.writeable = False
    for other in (np.asfortranarray(X), wide[:, ::2], frozen, X[::-1].copy()[::-1]):
        assert fingerprint(other) == fingerprint(X)
    # what is behind the last entry of a sparse matrix is none
    A = sparse.csr_array(X[:50])
    longer = A.copy()
    longer.data, longer.indices = np.append(A.data, 7.0), np.append(A.indices, np.int32(3))
    assert fingerprint(canonical(longer)) == fingerprint(A)


def test_other_processes_find_the_same_for_text_and_for_what_is_no_label():
    labels = np.array(["no", "yes", None, float("nan"), 1, b"x", True], dtype=object)
    odd = labels.copy()
    odd[2] = object()
    X = np.zeros((7, 1))
    assert fingerprint(X, labels) == 1135719542
    marks = [fingerprint(X, labels), fingerprint(X, labels[::-1]), fingerprint(X, odd)]
    odd[2] = object()
    assert fingerprint(X, odd) == marks[2]
    assert len(set(marks)) == 3
    odd[2] = 10**5000  # of more digits than Python writes
    assert fingerprint(X, odd) != marks[0]


@pytest.mark.parametrize("name", ["key", "dask_graph", "columns", "to_delayed"])
def test_a_frame_is_told_whatever_its_columns_are_called(name):
    dd = pytest.importorskip("dask.dataframe")
    frame = dd.from_pandas(pd.DataFrame({name: range(10)}), npartitions=2)
    assert len(blocks_of_all(frame, {"y": np.zeros(10)})["X"].keys) == 2
