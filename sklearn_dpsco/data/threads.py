"""Work on several ranges of rows at the same time."""

from __future__ import annotations

import functools
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, TypeVar

import numpy as np

from .summation import BLOCK_ROWS

__all__ = ["alone", "blas_alone", "on_threads", "slices", "sum_on_threads", "task_rows"]

T = TypeVar("T")
R = TypeVar("R")

_TASK_NUMBERS = 2**19  # of a dense task: many beside what it costs to hand it out


def task_rows(n_columns: int, chunk: int) -> int:
    """Rows of a task: whole chunks of this many, and at most a block.

    Public facts only, whatever the number of threads.
    """
    wanted = round(_TASK_NUMBERS / (chunk * max(1, n_columns)))
    return chunk * max(1, min(wanted, BLOCK_ROWS // chunk))


def slices(n: int, size: int) -> list[slice]:
    """Of range(n), each of this size but the last."""
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


def on_threads(function: Callable[[T], Any], tasks: Sequence[T], *, uses_blas: bool = True) -> None:
    """Call the function with each task, on as many threads as numba may use.

    Meanwhile BLAS, whose own threads would be in the way, has one; a function that does not use it
    need not wait until that is set. Calls from within a task, and those of a second fit at the same
    time, do their tasks one after the other.
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
    from .._kernels.jit import number_of_threads

    n_threads = min(len(tasks), number_of_threads())
    if n_threads < 2 or _alone.get() or not _turn.acquire(blocking=False):
        yield from map(function, tasks)
        return
    settings: Any = np.geterr()  # which other threads do not share

    def run(task: T) -> R:
        with np.errstate(**settings):
            return function(task)

    left, waiting = deque(tasks), deque[tuple[Future[R], T]]()
    try:
        # set and lifted by the same thread, as BLAS libraries want it
        with blas_alone() if uses_blas else nullcontext():
            while left or waiting:
                while left and len(waiting) <= 2 * n_threads:
                    task = left.popleft()
                    waiting.append((_pool(n_threads - 1).submit(run, task), task))
                # until the first result is there, this thread takes part in the work
                for place, (future, task) in enumerate(waiting):
                    if waiting[0][0].done():
                        break
                    if future.cancel():
                        mine: Future[R] = Future()
                        waiting[place] = mine, task
                        mine.set_result(run(task))
                yield waiting.popleft()[0].result()
    finally:
        for future, _ in waiting:
            future.cancel()
        _turn.release()


_turn = threading.Lock()
_alone: ContextVar[bool] = ContextVar("alone", default=False)


@contextmanager
def alone() -> Iterator[None]:
    """A block whose work stays on this thread, where others do the same for other records."""
    token = _alone.set(True)
    try:
        yield
    finally:
        _alone.reset(token)


def blas_alone() -> Any:
    """A block in which BLAS, whose own threads would be in the way of ours, has one."""
    return _blas().limit(limits=1, user_api="blas")


@functools.cache
def _pool(n_threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(n_threads)


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
