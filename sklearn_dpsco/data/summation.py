"""Sums over records: their pieces, how far rounding carries them, and the threads that make them.

Every sum is accumulated in float64, in chunks of `chunk_rows(n, d)` rows or blocks of `BLOCK_ROWS`,
whose partial sums are added up. Plans add `summation_error` to their sensitivities.
"""

from __future__ import annotations

import functools
import math
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from contextvars import ContextVar
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from .._checks import during

UNIT_ROUNDOFF = 2.0**-53
_CHUNK_BYTES = 2**20  # a chunk stays in the cache between its two products
_DOUBLINGS = 128  # of the number of pieces
BLOCK_ROWS = 65536  # a block is summed by one product
# A public number of rows: the number of stored values in a piece depends on private data.
_SPARSE_PIECE = 8192

T = TypeVar("T")
R = TypeVar("R")


def chunk_rows(n_samples: int, n_features: int) -> int:
    """Rows per chunk; public facts only, since the bound on the summation error uses it."""
    fitting = _CHUNK_BYTES // (8 * max(1, n_features))
    return int(max(1, min(n_samples, max(256, min(fitting, BLOCK_ROWS)))))


def piece_rows(n_samples: int, n_features: int, is_sparse: bool) -> int:
    """Rows that a single pass takes at a time: few enough for the cache if dense."""
    return _SPARSE_PIECE if is_sparse else chunk_rows(n_samples, n_features)


def gamma(k: float) -> float:
    r""":math:`\gamma_k = k u / (1 - k u)`, the relative error of k roundings, for k u up to 1/2."""
    if not k * UNIT_ROUNDOFF <= 0.5:  # near 1 it says nothing; NaN must not pass
        raise ValueError(f"sums of {k:.3g} numbers have no bound on their float error")
    return k * UNIT_ROUNDOFF / (1 - k * UNIT_ROUNDOFF)


def sum_over_records(values: NDArray[np.float64]) -> Any:
    """Sums of the columns, or of a vector, each in blocks: over rows numpy adds one by one."""
    if values.ndim == 1:
        return values.sum()
    return np.array([np.ascontiguousarray(column).sum() for column in values.T])


def norm_error(n_columns: int) -> float:
    """Bound on the relative error of the squared norm of a row, centred or not, in any order."""
    # each of its sums errs by at most (d + 4) u times the sum of the absolute values
    return 4 * (n_columns + 8) * UNIT_ROUNDOFF


def summation_error(n_samples: int, n_features: int) -> float:
    r"""Relative error of a chunked float64 mean over the records.

    A sum of m terms in any order errs by at most :math:`\gamma_{m}` times the sum of
    their absolute values, :math:`\gamma_k = k u / (1 - k u)`, :math:`u = 2^{-53}`; the
    chunks' totals, which threads add up in groups, add their number and 1 to m, and forming each
    term and dividing adds 5. Pieces of a table elsewhere (`pieces`) have sums of their own, which
    are added pairwise: once for each doubling of their number (doc/privacy, section 2.5).
    """
    chunk, block = chunk_rows(n_samples, n_features), min(n_samples, BLOCK_ROWS)
    k = max(chunk + math.ceil(n_samples / chunk), block + math.ceil(n_samples / block))
    return gamma(k + 6 + _DOUBLINGS)


def slices(n: int, size: int) -> list[slice]:
    """Of range(n), each of this size but the last."""
    edges = [*range(0, n, size), n]
    return list(map(slice, edges, edges[1:]))


def row_slices(x: Any) -> list[slice]:
    """The rows of a matrix, some at a time; see `chunk_rows`."""
    return slices(x.shape[0], chunk_rows(*x.shape))


def on_threads(function: Callable[[T], Any], tasks: Sequence[T], *, uses_blas: bool = True) -> None:
    """Call the function with each task, on as many threads as numba may use.

    BLAS is `blas_alone` meanwhile, for which a function that does not use it need not wait. Calls
    from within a task, and those of a second fit at the same time, do one task after the other.
    """
    for _ in _results(function, tasks, uses_blas):
        pass


def sum_on_threads(
    function: Callable[[T], Any], tasks: Sequence[T], start: Any = 0.0, *, uses_blas: bool = True
) -> Any:
    """`start` plus what the function returns for each task, added in the order of the tasks."""
    total = start
    for result in _results(function, tasks, uses_blas):
        total = total + result
    return total


def _results(function: Callable[[T], R], tasks: Sequence[T], uses_blas: bool) -> Iterator[R]:
    """Results in order, of which no more are held than the threads need."""
    n_threads = len(tasks)
    if n_threads > 1:  # the import takes longer than many a task
        from .._kernels.jit import number_of_threads

        n_threads = min(n_threads, number_of_threads())
    if n_threads < 2 or _alone.get() or not _turn.acquire(blocking=False):
        yield from map(function, tasks)
        return
    settings: Any = np.geterr()  # which other threads do not share

    def run(task: T) -> R:
        with np.errstate(**settings):
            return function(task)

    pool, waiting = _pool(n_threads), deque[Future[R]]()
    try:
        # set and lifted by the same thread, as BLAS libraries want it
        with blas_alone() if uses_blas else nullcontext():
            for task in tasks:
                waiting.append(pool.submit(run, task))
                if len(waiting) > 2 * n_threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
        _turn.release()


_turn = threading.Lock()
_alone: ContextVar[bool] = ContextVar("alone", default=False)


# a block whose work stays on this thread, where others do the same for other records
alone = functools.partial(during, _alone, True)


def blas_alone() -> Any:
    """A block in which BLAS, whose own threads would be in the way of ours, has one."""
    return _blas().limit(limits=1, user_api="blas")


_pool = functools.cache(ThreadPoolExecutor)  # by the number of threads


@functools.cache
def _blas() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def _after_fork() -> None:
    """Threads do not survive a fork, nor does what they held."""
    global _turn
    _turn = threading.Lock()
    _pool.cache_clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
