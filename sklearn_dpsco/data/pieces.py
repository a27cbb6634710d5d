"""Records that lie in pieces elsewhere: sums over them by tasks of Dask.

Whoever holds the pieces gets functions and coefficients, and gives back sums; noise is added to
those in this process alone. A task that is computed again gives the same bits: functions depend on
a piece and on public or released numbers, and a piece that is not what it was stops the fit.
Partial sums are added up pairwise; `rows.summation_error` holds for any order.
"""

from __future__ import annotations

import functools
import itertools
import uuid
from asyncio import CancelledError
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .._types import Indices, Which
from ..exceptions import BlocksChangedError, TasksLostError
from .compressed import slices
from .rows import SolverData, alone, blas_alone, on_threads

Get = Callable[[dict[Any, Any], list[Any]], Any]
_Step = tuple[Callable[..., Any], Sequence[Any] | None, tuple[Any, ...]]

_NUMBERS_READ = 2**20  # of a piece in this process
_FAN_IN = 8  # partial sums that one task adds up
# of records that are brought to this process at a time; for those that are all over the table,
# parts of all pieces are read
_READ_BYTES, _READ_BYTES_OF_ALL = 2**25, 2**28


@dataclass(frozen=True)
class Pieces:
    """Records in pieces; see `rows.SolverData` for the methods.

    They come from tasks of `graph`, whose results are the arguments of `reads`.
    """

    graph: dict[Any, Any]
    groups: tuple[tuple[int, ...], ...]  # of pieces that one task reads
    inputs: tuple[tuple[Any, ...], ...]  # keys of each piece's arguments; if kept, of each group's
    # they make each piece, or raise `BlocksChangedError`; None if the groups are lists of pieces
    reads: Sequence[Callable[..., Any]] | None
    is_in_memory: bool
    get: Get  # the `scheduler`
    sizes: tuple[int, ...]  # numbers of records
    meta: SolverData  # a piece without records, which shows what `map` makes
    # what is made of a piece once it is read: functions of it, of an argument of its own from a
    # sequence if there is one, and of arguments that are the same for all
    steps: tuple[_Step, ...] = ()
    _whole: tuple[Pieces, Indices] | None = field(default=None, repr=False)

    is_local = False

    @property
    def n_samples(self) -> int:
        return sum(self.sizes)

    @property
    def is_sparse(self) -> bool:
        """Whether rows are stored as sparse matrices."""
        return self.meta.is_sparse

    # ----------------------------------------------------------------------- what is computed

    def sum(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The sum over the pieces of an array that the function makes of each."""
        return self._sum((function, None, arguments), self.sizes)

    def sum_numbered(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The sum of ``function(piece, first, ...)``, `first` the number of its first record."""
        firsts = [0, *itertools.accumulate(self.sizes)][:-1]
        return self._sum((function, firsts, arguments), self.sizes)

    def sum_over(self, which: Indices, function: Callable[..., Any], *arguments: Any) -> Any:
        """The sum of ``function(piece, numbers, ...)`` over pieces with some of the records."""
        by_piece = self._by_piece(which)
        return self._sum((function, by_piece, arguments), [some.size for some in by_piece])

    def _sum(self, last: _Step, counts: Sequence[int]) -> Any:
        if not any(counts):  # what it makes of a piece without records
            function, own, arguments = last
            return function(self.meta, *(() if own is None else (own[0] * 0,)), *arguments)
        graph, keys = self._tasks((*self.steps, last), counts, is_sum=True)
        while len(keys) > _FAN_IN:
            parts = [keys[part] for part in slices(len(keys), _FAN_IN)]
            keys = [new_key("sum") for _ in parts]
            graph.update({key: (_pairwise, part) for key, part in zip(keys, parts, strict=True)})
        return _pairwise(compute(graph, keys, self.get))

    def _tasks(
        self, steps: Sequence[_Step], counts: Sequence[int], *, is_sum: bool
    ) -> tuple[dict[Any, Any], list[Any]]:
        """A graph with a task for each group that has records, and the keys of these."""
        graph, keys = dict(self.graph), []
        for number, group in enumerate(self.groups):
            taken = tuple(k for k, i in enumerate(group) if counts[i] > 0)
            if not taken:
                continue
            pieces = [group[k] for k in taken]
            works = [
                [(f, given if own is None else (own[i], *given)) for f, own, given in steps]
                for i in pieces
            ]
            if self.reads is None:
                reads, inputs = None, [self.inputs[number][0]]
            else:
                reads = [self.reads[i] for i in pieces]
                inputs = [list(self.inputs[i]) for i in pieces]
            keys.append(new_key("piece"))
            graph[keys[-1]] = (functools.partial(_of_group, reads, taken, works, is_sum), *inputs)
        return graph, keys

    # ------------------------------------------------------------------------- other records

    def map(self, function: Callable[..., Any], *arguments: Any) -> Pieces:
        """The pieces that the function makes of each, when they are needed."""
        meta = function(self.meta, *arguments)
        steps = (*self.steps, (function, None, arguments))
        return replace(self, meta=meta, steps=steps, _whole=None)

    def part(self, which: Which, *, is_drawn: bool = False) -> Pieces:
        """The records of a range or of a list of numbers, perhaps a random batch."""
        if isinstance(which, slice):
            which = np.arange(*which.indices(self.n_samples))
        if self._whole is not None:  # a part of a part, whose numbers count the list
            whole, numbers = self._whole
            return whole.part(numbers[which], is_drawn=is_drawn)
        by_piece = self._by_piece(np.sort(which))
        step = functools.partial(SolverData.part, is_drawn=is_drawn), by_piece, ()
        sizes = tuple(numbers.size for numbers in by_piece)
        return replace(self, sizes=sizes, steps=(*self.steps, step), _whole=(self, which))

    def _by_piece(self, which: Indices) -> list[Indices]:
        """Increasing numbers of records, in each piece from 0."""
        firsts = [0, *itertools.accumulate(self.sizes)][:-1]
        parts = np.split(which, np.searchsorted(which, firsts[1:]))
        return [part - first for part, first in zip(parts, firsts, strict=True)]

    def kept(self, most: int = 0) -> Pieces:
        """The same pieces, computed and kept where they are if the inputs are in memory.

        Others are made anew whenever they are read, so that memory is bounded, unless they take
        at most so many bytes. (Pieces of an array in this process are made without tasks.)
        """
        size = 8 * (self.meta.rows.n_columns + 4) * self.n_samples
        is_small = size <= most and self.get is not _on_threads
        if (self.reads is None and not self.steps) or not (self.is_in_memory or is_small):
            return self
        graph, keys = self._tasks(self.steps, self.sizes, is_sum=False)
        groups = [tuple(i for i in group if self.sizes[i] > 0) for group in self.groups]
        filled, inputs = tuple(filter(None, groups)), tuple((key,) for key in keys)
        held = hold(graph, keys, self.get)
        return replace(self, graph=held, groups=filled, inputs=inputs, reads=None, steps=())

    def in_order(self, which: Which, size: int) -> Iterator[SolverData]:
        """Those records in the memory of this process, in that order, `size` at a time."""
        for part in self._portions(which, size):
            yield from self._gathered(part).in_order(slice(0, part.size), size)

    def _portions(self, which: Which, size: int) -> Iterator[Indices]:
        """Numbers that are brought here at a time, a multiple of `size` of them."""
        width = 8 * (self.meta.rows.n_columns + 4)
        if not isinstance(which, slice):
            portion = size * max(1, _READ_BYTES_OF_ALL // (width * size))
            yield from (which[part] for part in slices(which.size, portion))
            return
        start, stop, _ = which.indices(self.n_samples)
        ends = np.cumsum(self.sizes)
        while start < stop:
            # whole pieces, which are read as a whole in any case
            number = np.searchsorted(ends, min(stop, start + _READ_BYTES // width))
            end = min(stop, int(ends[number]))
            if end < stop:
                end = start + max(1, (end - start) // size) * size
            yield np.arange(start, min(stop, end))
            start = end

    def _gathered(self, which: Indices) -> SolverData:
        """Those records as one piece in this process."""
        order = np.argsort(which, kind="stable")
        by_piece = self._by_piece(which[order])
        counts = [some.size for some in by_piece]
        steps = (*self.steps, (SolverData.part, by_piece, ()))
        found = compute(*self._tasks(steps, counts, is_sum=False), self.get)
        numbers = [i for group in self.groups for i in group if counts[i] > 0]
        pieces = dict(zip(numbers, itertools.chain.from_iterable(found), strict=True))
        whole = SolverData.joined([pieces[i] for i in sorted(pieces)])
        is_in_order = np.array_equal(order, np.arange(order.size))
        return whole if is_in_order else whole.part(np.argsort(order))


def _of_group(
    reads: Sequence[Callable[..., Any]] | None,
    taken: tuple[int, ...],
    works: Any,
    is_sum: bool,
    *inputs: Any,
) -> Any:
    """Read pieces, do the work on each, and add up if that ends with a sum."""
    if isinstance(inputs[0], BlocksChangedError):
        return inputs[0]

    def results() -> Iterator[Any]:
        for k, work in enumerate(works):
            piece = inputs[0][taken[k]] if reads is None else reads[k](*inputs[k])
            for function, arguments in work:
                piece = function(piece, *arguments)
            yield piece

    with alone(), np.errstate(all="ignore"):
        try:
            return _pairwise(results()) if is_sum else list(results())
        except BlocksChangedError as error:
            # schedulers log what is raised together with the arguments
            return error.with_traceback(None)


def _pairwise(values: Iterable[Any]) -> Any:
    """The sum, in which no value is added more than about log2 of their number times."""
    sums: list[tuple[int, Any]] = []
    for value in values:
        if isinstance(value, BlocksChangedError):
            return value
        level = 0
        while sums and sums[-1][0] == level:
            value, level = sums.pop()[1] + value, level + 1
        sums.append((level, value))
    total = sums.pop()[1]
    while sums:
        total = sums.pop()[1] + total
    return total


def new_key(what: str) -> str:
    """A key that no other task has: never a token of arguments, so that no result is shared."""
    return f"dpsco-{what}-{uuid.uuid4().hex}"


def in_memory(read: Callable[[slice], Any], n_samples: int, n_columns: int) -> Pieces:
    """Records in the memory of this process, or mapped there, as pieces that `read` makes."""
    parts = slices(n_samples, max(1, _NUMBERS_READ // n_columns))
    of_each = tuple((k,) for k in range(len(parts))), ((),) * len(parts)
    reads = [functools.partial(read, part) for part in parts]
    sizes = tuple(part.stop - part.start for part in parts)
    return Pieces({}, *of_each, reads, False, _on_threads, sizes, read(slice(0, 0)))


def _on_threads(graph: dict[Any, Any], keys: list[Any]) -> list[Any]:
    """Results of tasks: those that read a piece on the threads of this process, then their sums."""
    results: dict[Any, Any] = {}

    def fill(key: Any) -> None:
        function, *inputs = graph[key]
        results[key] = function(*([results[name] for name in names] for names in inputs))

    on_threads(fill, [key for key, (_, *inputs) in graph.items() if not any(inputs)])
    for key in graph:  # a sum comes after its terms
        if key not in results:
            fill(key)
    return [results[key] for key in keys]


def scheduler() -> Get:
    """The scheduler of Dask in force; asked for once, as no fit may go on without its cluster."""
    import dask.threaded
    from dask.base import get_scheduler

    return get_scheduler() or dask.threaded.get


def compute(graph: dict[Any, Any], keys: list[Any], get: Get) -> list[Any]:
    """Results of tasks, in this process."""
    with blas_alone(), losses_told(graph, get):
        found = list(get(graph, keys))
    for result in found:
        if isinstance(result, BlocksChangedError):
            raise result
    return found


def hold(graph: dict[Any, Any], keys: list[Any], get: Get) -> dict[Any, Any]:
    """A graph of the results of tasks, which are kept where they are computed."""
    from dask.base import persist
    from dask.delayed import Delayed

    wanted, client = [Delayed(key, graph) for key in keys], _client_of(get)
    with blas_alone(), losses_told(graph, get):
        held: Any = persist(*wanted, scheduler=get) if client is None else client.persist(wanted)
    return {key: task for part in held for key, task in dict(part.__dask_graph__()).items()}


def _client_of(get: Get) -> Any:
    """The client whose method it is, if any."""
    owner = getattr(get, "__self__", None)
    return owner if hasattr(owner, "scheduler_info") else None


@contextmanager
def losses_told(graph: dict[Any, Any], get: Get) -> Iterator[None]:
    """A block in which errors of a lost cluster become a `TasksLostError`."""
    try:
        yield
    except (Exception, CancelledError) as error:
        client = _client_of(get)
        is_lost = (
            type(error).__module__.partition(".")[0] in ("distributed", "dask")
            or (client is not None and client.status != "running")
            or any(getattr(x, "status", None) in ("cancelled", "lost") for x in graph.values())
        )
        if not is_lost:
            raise
        raise TasksLostError(
            "the records could not be read, since workers or the scheduler of Dask were lost "
            f"({type(error).__name__}). What was charged stays charged: start the cluster "
            "again, and fit again under a new charge."
        ) from error
