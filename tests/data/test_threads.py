"""Work on several ranges of rows at the same time."""

import os
import subprocess
import sys
import threading
import time
import warnings
from contextlib import contextmanager

import numba
import numpy as np
import pytest
from numba.np.ufunc import parallel
from scipy import sparse
from threadpoolctl import threadpool_info, threadpool_limits

from sklearn_dpsco import DPLinearRegression
from sklearn_dpsco._kernels.jit import number_of_threads
from sklearn_dpsco.data import rows
from sklearn_dpsco.data.compressed import slices
from sklearn_dpsco.data.rows import (
    BLOCK_ROWS,
    Rows,
    Terms,
    blas_alone,
    chunk_rows,
    on_threads,
    sum_on_threads,
)
from sklearn_dpsco.losses import Squared
from sklearn_dpsco.mechanisms import Gaussian


@pytest.fixture
def two_threads(monkeypatch):
    monkeypatch.setattr("sklearn_dpsco._kernels.jit.number_of_threads", lambda: 2)


def blas_threads():
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


def test_results_are_in_order_and_blas_has_its_threads_back(two_threads):
    before, barrier, seen = blas_threads(), threading.Barrier(2, timeout=20), []

    def work(task):
        barrier.wait()  # of two tasks at a time: nothing would pass it on one thread
        seen.append(blas_threads())
        return str(task)

    assert sum_on_threads(work, range(8), "") == "01234567"
    assert all(set(threads) <= {1} for threads in seen)
    assert blas_threads() == before


def test_blas_has_its_threads_back_whichever_of_two_blocks_ends_first(monkeypatch):
    n_threads, entered, left = 8, threading.Event(), threading.Event()

    class Library:
        @contextmanager
        def limit(self, limits, user_api):
            nonlocal n_threads
            before, n_threads = n_threads, limits
            yield
            n_threads = before

    def first():
        with blas_alone():
            entered.set()
            assert left.wait(20)

    monkeypatch.setattr(rows, "_blas", Library)
    thread = threading.Thread(target=first)
    thread.start()
    assert entered.wait(20)
    with blas_alone():
        assert n_threads == 1
        left.set()
        thread.join()
    assert n_threads == 8


def test_blas_is_alone_in_all_of_a_fit(monkeypatch):
    seen, release = set(), Gaussian.release
    watched = lambda *given: seen.update(blas_threads()) or release(*given)  # noqa: E731
    monkeypatch.setattr(Gaussian, "release", watched)
    model = DPLinearRegression(bounds_X=(0, 1), bounds_y=(0, 1), random_state=0)
    with threadpool_limits(2, "blas"):
        assert set(blas_threads()) == {2}
        model.fit(np.eye(40, 2), np.zeros(40))
        assert set(blas_threads()) == {2}
    assert seen == {1}


def test_few_results_are_held_at_a_time(two_threads):
    held, most, lock = 0, 0, threading.Lock()

    class Result(float):
        def __new__(cls):
            nonlocal held, most
            with lock:
                held, most = held + 1, max(most, held + 1)
            return super().__new__(cls, 1.0)

        def __radd__(self, other):
            nonlocal held
            with lock:
                held -= 1
            return other + 1.0

    assert sum_on_threads(lambda _: Result(), range(200)) == 200.0
    assert most <= 8


def test_a_second_fit_at_the_same_time_does_its_own_work(two_threads):
    before, inside, done = blas_threads(), threading.Event(), threading.Event()
    found = []

    def first(task):
        inside.set()
        assert done.wait(20)
        return task

    thread = threading.Thread(target=lambda: found.append(sum_on_threads(first, range(4))))
    thread.start()
    assert inside.wait(20)
    assert sum_on_threads(lambda task: task, range(100)) == 4950
    done.set()
    thread.join()
    assert found == [6]
    assert blas_threads() == before


def test_what_numpy_warns_of_is_that_of_the_caller(two_threads):
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("error")
        assert sum_on_threads(lambda _: np.array([1e308]) * 10, range(4)) == np.inf


def test_a_users_loss_is_never_called_twice_at_once(two_threads):
    entered = threading.Lock()

    class Slow(Squared):
        def derivative(self, z, y):
            assert entered.acquire(blocking=False)
            time.sleep(1e-3)
            entered.release()
            return z - y

    rows = Rows(np.ones((4000, 100)), False)
    rows.gradient_sum(np.zeros(100), np.zeros(4000), Terms(0.0, Slow(), 1.0))


def test_an_error_reaches_the_caller_and_blas_has_its_threads_back(two_threads):
    before = blas_threads()
    with pytest.raises(ZeroDivisionError):
        on_threads(lambda task: 1 / task, range(4))
    assert blas_threads() == before


def test_nobody_waits_for_a_task_that_failed(two_threads):
    """The other thread does, once it holds as many results as it may."""
    last, errors = threading.Event(), []

    def work(task):
        if task == 0:
            assert last.wait(20)
            raise ZeroDivisionError
        if task == 4:
            last.set()
        return task

    def caller():
        with pytest.raises(ZeroDivisionError) as error:
            sum_on_threads(work, range(40))
        errors.append(error)

    thread = threading.Thread(target=caller, daemon=True)
    thread.start()
    thread.join(20)
    assert len(errors) == 1


def test_tasks_may_have_tasks(two_threads):
    found = sum_on_threads(
        lambda task: [sum_on_threads(lambda k: k * task, range(3))], range(20), []
    )
    assert found == [3 * task for task in range(20)]


def test_tasks_are_whole_chunks_and_at_most_a_block():
    for d in (1, 3, 10, 60, 500, 10**6):
        chunk = chunk_rows(10**6, d)
        size = Rows(sparse.csr_array((10**6, d)), False).tasks[0].stop
        assert size % chunk == 0
        assert size <= BLOCK_ROWS
    assert slices(7, 3) == [slice(0, 3), slice(3, 6), slice(6, 7)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sums_do_not_depend_on_the_number_of_threads(monkeypatch, dtype):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (60_000, 40)).astype(dtype)
    rows = Rows(X, True, rng.uniform(0, 1, len(X)))
    objective = rng.uniform(-1, 1, len(X)), Terms(0.1, Squared(), 0.3)
    coef = rng.standard_normal(41)

    def results():
        return (
            rows.gradient_sum(coef, *objective),
            rows.weighted_sum(objective[0]),
            rows.norms(),
            rows.product(coef),
        )

    monkeypatch.setattr("sklearn_dpsco._kernels.jit.number_of_threads", lambda: 1)
    alone = results()
    monkeypatch.setattr("sklearn_dpsco._kernels.jit.number_of_threads", lambda: 3)
    for one, three in zip(alone, results(), strict=True):
        np.testing.assert_array_equal(one, three)
    z = np.asarray(rows.scale) * (X @ coef[:-1] + coef[-1])
    r = np.asarray(rows.scale) * np.clip(z + 0.1 - objective[0], -0.3, 0.3)
    expected = np.append(X.T.astype(float) @ r, r.sum())
    np.testing.assert_allclose(alone[0], expected, atol=1e-14 * len(X))


def test_there_are_as_many_threads_as_numba_has_and_none_of_its_own_is_started():
    rows = Rows(np.ones((30000, 40)), False)
    assert len(rows.tasks) > 1
    rows.norms()
    assert number_of_threads() == numba.config.NUMBA_NUM_THREADS
    assert not parallel._is_initialized


@pytest.mark.slow  # seconds to import it; tests/test_architecture.py looks at the imports
def test_a_layer_of_threads_that_is_not_there_is_not_missed():
    """In a process of its own, which also shows what the import of the package brings."""
    code = (
        "import sys\n"
        "import sklearn_dpsco\n"
        # both take long to import, and not every process needs them
        "assert not {'numba', 'tqdm', 'matplotlib'} & set(sys.modules)\n"
        "import numpy as np\n"
        "from sklearn_dpsco._kernels.jit import number_of_threads\n"
        "from sklearn_dpsco.data.rows import Rows\n"
        "rows = Rows(np.ones((30000, 40)), False)\n"
        "assert len(rows.tasks) > 1\n"
        "rows.norms()\n"
        "assert number_of_threads() == 2\n"
    )
    # a layer that is not there: starting it would raise
    environment = os.environ | {"NUMBA_NUM_THREADS": "2", "NUMBA_THREADING_LAYER": "tbb"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, timeout=120)
