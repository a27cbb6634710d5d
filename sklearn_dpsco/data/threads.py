"""Work on several ranges of rows at the same time."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from .summation import BLOCK_ROWS

__all__ = ["on_threads", "slices", "task_rows"]

T = TypeVar("T")
R = TypeVar("R")

_NAME = "sklearn_dpsco"  # of threads, which do not wait for each other
_TASK_NUMBERS = 2**20  # of a dense task: many beside what it costs to hand it out


def task_rows(n_columns: int, chunk: int) -> int:
    """Rows of a task: whole chunks of this many, and at most a block.

    Public facts only, whatever the number of threads.
    """
    wanted = round(_TASK_NUMBERS / (chunk * max(1, n_columns)))
    return chunk * max(1, min(wanted, BLOCK_ROWS // chunk))


def slices(n: int, size: int) -> list[slice]:
    """Of range(n), each of this size but the last."""
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


def on_threads(function: Callable[[T], R], tasks: Sequence[T]) -> list[R]:
    """``[function(task) for task in tasks]``, on as many threads as numba may use.

    Meanwhile BLAS, whose own threads would be in the way, has one.
    """
    from .._kernels.jit import number_of_threads

    n_threads = min(len(tasks), number_of_threads())
    if n_threads < 2 or threading.current_thread().name.startswith(_NAME):
        return [function(task) for task in tasks]
    with _one_blas_thread():
        return list(_pool(n_threads).map(function, tasks))


@functools.cache
def _pool(n_threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(n_threads, _NAME)


_lock = threading.Lock()
_users: list[Any] = []


def _after_fork() -> None:
    """Threads do not survive a fork, nor does what they held."""
    global _lock
    _lock = threading.Lock()
    _users.clear()
    _pool.cache_clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@contextmanager
def _one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread; the last one of those who asked for it lifts the limit."""
    with _lock:
        _users.append(_users[0] if _users else _blas().limit(limits=1, user_api="blas"))
    try:
        yield
    finally:
        with _lock:
            limit = _users.pop()
            if not _users:
                limit.restore_original_limits()


@functools.cache
def _blas() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
