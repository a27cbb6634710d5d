"""Records that lie in pieces elsewhere: sums over them by tasks of Dask.

Whoever holds the pieces gets functions and coefficients, and gives back sums; noise is added to
those in this process alone. A task that is computed again, since a worker was lost or the pieces
are not kept, gives the same bits: functions depend on a piece and on public or released numbers,
and a piece that is not what it was stops the fit.

Partial sums are added up pairwise, in an order that follows from the numbers of rows; whatever it
is, `summation.summation_error` bounds what rounding does.
"""

from __future__ import annotations

import itertools
import uuid
from asyncio import CancelledError
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..exceptions import BlocksChangedError, TasksLostError
from .threads import alone, blas_alone

__all__ = ["Pieces", "Source", "compute", "hold", "losses_told", "new_key", "scheduler"]

Get = Callable[[dict[Any, Any], list[Any]], Any]
Numbers = NDArray[np.intp]
Which = slice | Numbers

_FAN_IN = 8  # partial sums that one task adds up
# of records that are brought to this process at a time; for those that are all over the table,
# parts of all pieces are read
_READ_BYTES, _READ_BYTES_OF_ALL = 2**25, 2**28


class _Step(NamedTuple):
    """A function of each piece, and of its own argument if there are any."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    of_pieces: Sequence[Any] | None = None

    def of_piece(self, i: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """The function, and its arguments for a piece."""
        own = () if self.of_pieces is None else (self.of_pieces[i],)
        return self.function, (*own, *self.arguments)

    def of_no_piece(self, meta: Any) -> Any:
        """What it makes of a piece without records."""
        own = () if self.of_pieces is None else (self.of_pieces[0] * 0,)
        return self.function(meta, *own, *self.arguments)


@dataclass(frozen=True)
class Source:
    """Where pieces come from: tasks whose results are the arguments of `reads`, in groups.

    Attributes
    ----------
    graph : dict
        Tasks of Dask.
    groups : tuple of tuple of int
        Numbers of the pieces that one task reads.
    inputs : tuple of tuple
        Keys of the arguments of `reads` for each piece; of kept pieces, that of each group.
    reads : sequence of callable or None
        What makes each piece, or raises `BlocksChangedError`; None if the groups are lists of
        pieces.
    is_in_memory : bool
        Whether the inputs are held in memory, here or by workers.
    get : callable
        The scheduler, see `scheduler`.
    """

    graph: dict[Any, Any]
    groups: tuple[tuple[int, ...], ...]
    inputs: tuple[tuple[Any, ...], ...]
    reads: Sequence[Callable[..., Any]] | None
    is_in_memory: bool
    get: Get


@dataclass(frozen=True)
class Pieces:
    """Records in pieces; see `solvers.base.Piece` and `SolverData` for the methods.

    Attributes
    ----------
    source : Source
    sizes : tuple of int
        Number of records of each piece.
    meta : object
        A piece without records, which shows what `map` makes.
    steps : tuple
        What is made of a piece once it is read.
    """

    source: Source
    sizes: tuple[int, ...]
    meta: Any
    steps: tuple[_Step, ...] = ()
    _whole: tuple[Pieces, Numbers] | None = field(default=None, repr=False)

    is_local = False

    @property
    def n_samples(self) -> int:
        return sum(self.sizes)

    @property
    def is_sparse(self) -> bool:
        """Whether rows are stored as sparse matrices."""
        return bool(self.meta.is_sparse)

    # ----------------------------------------------------------------------- what is computed

    def sum(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The sum over the pieces of an array that the function makes of each."""
        return self._sum(_Step(function, arguments))

    def sum_numbered(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The sum of ``function(piece, first, ...)``, `first` the number of its first record."""
        firsts = [0, *itertools.accumulate(self.sizes)][:-1]
        return self._sum(_Step(function, arguments, firsts))

    def sum_over(self, which: Numbers, function: Callable[..., Any], *arguments: Any) -> Any:
        """The sum of ``function(piece, numbers, ...)`` over pieces with some of the records."""
        by_piece = self._by_piece(which)
        counts = [numbers.size for numbers in by_piece]
        return self._sum(_Step(function, arguments, by_piece), counts)

    def _sum(self, last: _Step, counts: Sequence[int] | None = None) -> Any:
        counts = self.sizes if counts is None else counts
        if not any(counts):
            return last.of_no_piece(self.meta)
        graph, keys = dict(self.source.graph), []
        for key, inputs, group in self._tasks(last, counts):
            graph[key] = (group, *inputs)
            keys.append(key)
        while len(keys) > _FAN_IN:
            parts = [keys[k : k + _FAN_IN] for k in range(0, len(keys), _FAN_IN)]
            keys = [new_key("sum") for _ in parts]
            graph.update({key: (_pairwise, part) for key, part in zip(keys, parts, strict=True)})
        return _pairwise(compute(graph, keys, self.source.get))

    def _tasks(
        self, last: _Step | None, counts: Sequence[int]
    ) -> Iterator[tuple[Any, list[Any], _Group]]:
        """Key, inputs and work of a task for each group that has records."""
        source = self.source
        for number, group in enumerate(source.groups):
            taken = [k for k, i in enumerate(group) if counts[i] > 0]
            if not taken:
                continue
            pieces = [group[k] for k in taken]
            whole = self.steps if last is None else (*self.steps, last)
            steps = [[step.of_piece(i) for step in whole] for i in pieces]
            if source.reads is None:
                reads, inputs = None, [source.inputs[number][0]]
            else:
                reads = [source.reads[i] for i in pieces]
                inputs = [list(source.inputs[i]) for i in pieces]
            yield new_key("piece"), inputs, _Group(reads, tuple(taken), steps, last is not None)

    # ------------------------------------------------------------------------- other records

    def map(self, function: Callable[..., Any], *arguments: Any) -> Pieces:
        """The pieces that the function makes of each, when they are needed."""
        meta = function(self.meta, *arguments)
        steps = (*self.steps, _Step(function, arguments))
        return replace(self, meta=meta, steps=steps, _whole=None)

    def row_major(self) -> Pieces:
        """Each piece in a storage of which parts are cheap."""
        return self.map(_row_major)

    def part(self, which: Which) -> Pieces:
        """The records of a range or of a list of numbers."""
        return self._taken(which, is_drawn=False)

    def drawn(self, which: Numbers) -> Pieces:
        """A random batch."""
        return self._taken(which, is_drawn=True)

    def _taken(self, which: Which, *, is_drawn: bool) -> Pieces:
        if isinstance(which, slice):
            which = np.arange(*which.indices(self.n_samples))
        if self._whole is not None:  # a part of a part, whose numbers count the list
            whole, numbers = self._whole
            return whole._taken(numbers[which], is_drawn=is_drawn)
        by_piece = self._by_piece(np.sort(which))
        step = _Step(_drawn if is_drawn else _part, (), by_piece)
        sizes = tuple(numbers.size for numbers in by_piece)
        return replace(self, sizes=sizes, steps=(*self.steps, step), _whole=(self, which))

    def _by_piece(self, which: Numbers) -> list[Numbers]:
        """Increasing numbers of records, in each piece from 0."""
        ends = np.cumsum(self.sizes)
        places = np.searchsorted(which, [0, *ends])
        firsts = [0, *ends[:-1]]
        parts = itertools.pairwise(places)
        return [which[a:b] - first for (a, b), first in zip(parts, firsts, strict=True)]

    def kept(self) -> Pieces:
        """The same pieces, now computed and kept where they are, if the inputs are in memory.

        Else they are made anew each time they are needed, so that memory is bounded.
        """
        is_kept = self.source.reads is None and not self.steps
        if is_kept or not self.source.is_in_memory:
            return self
        tasks = list(self._tasks(None, self.sizes))
        graph = self.source.graph | {key: (group, *inputs) for key, inputs, group in tasks}
        found = hold(graph, [key for key, _, _ in tasks], self.source.get)
        groups = tuple(tuple(i for i in group if self.sizes[i] > 0) for group in self.source.groups)
        inputs = tuple((key,) for key, _, _ in tasks)
        source = Source(found, tuple(g for g in groups if g), inputs, None, True, self.source.get)
        return replace(self, source=source, steps=())

    def in_order(self, which: Which, size: int) -> Iterator[Any]:
        """Those records in the memory of this process, in that order, `size` at a time."""
        for part in self._portions(which, size):
            yield from self._gathered(part).in_order(slice(0, part.size), size)

    def _portions(self, which: Which, size: int) -> Iterator[Numbers]:
        """Numbers that are brought here at a time, a multiple of `size` of them."""
        width = 8 * (self.meta.rows.n_columns + 4)
        if not isinstance(which, slice):
            portion = size * max(1, _READ_BYTES_OF_ALL // (width * size))
            yield from (which[k : k + portion] for k in range(0, which.size, portion))
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

    def _gathered(self, which: Numbers) -> Any:
        """Those records as one piece in this process."""
        order = np.argsort(which, kind="stable")
        taken = replace(self, steps=(*self.steps, _Step(_part, (), self._by_piece(which[order]))))
        counts = [numbers.size for numbers in taken.steps[-1].of_pieces or ()]
        tasks = list(taken._tasks(None, counts))
        graph = dict(self.source.graph)
        graph.update({key: (group, *inputs) for key, inputs, group in tasks})
        found = compute(graph, [key for key, _, _ in tasks], self.source.get)
        numbers = [i for group in self.source.groups for i in group if counts[i] > 0]
        pieces = [piece for pieces in found for piece in pieces]
        in_turn = [pieces[k] for k in np.argsort(numbers, kind="stable")]
        whole = self.meta.joined(in_turn)
        if np.array_equal(order, np.arange(order.size)):
            return whole
        back = np.empty_like(order)
        back[order] = np.arange(order.size)
        return whole.part(back)


@dataclass(frozen=True)
class _Group:
    """The work of a task: reads pieces, follows the steps, and adds up if the last is a sum.

    That blocks changed is returned: schedulers log what is raised together with the arguments.
    """

    reads: Sequence[Callable[..., Any]] | None
    taken: tuple[int, ...]
    steps: list[list[tuple[Callable[..., Any], tuple[Any, ...]]]]
    is_sum: bool

    def __call__(self, *inputs: Any) -> Any:
        if isinstance(inputs[0], BlocksChangedError):
            return inputs[0]
        with alone(), np.errstate(all="ignore"):
            results = map(self._result, range(len(self.taken)), itertools.repeat(inputs))
            try:
                return _pairwise(results) if self.is_sum else list(results)
            except BlocksChangedError as error:
                return error.with_traceback(None)

    def _result(self, k: int, inputs: tuple[Any, ...]) -> Any:
        piece = inputs[0][self.taken[k]] if self.reads is None else self.reads[k](*inputs[k])
        for function, arguments in self.steps[k]:
            piece = function(piece, *arguments)
        return piece


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


def _part(piece: Any, which: Numbers) -> Any:
    return piece.part(which)


def _drawn(piece: Any, which: Numbers) -> Any:
    return piece.drawn(which)


def _row_major(piece: Any) -> Any:
    return piece.row_major()


def new_key(what: str) -> str:
    """A key that no other task has: never a token of arguments, so that no result is shared."""
    return f"dpsco-{what}-{uuid.uuid4().hex}"


def scheduler() -> Get:
    """The scheduler of Dask in force: of the current client of a cluster, or threads.

    Asked for once at the start of a fit: it must not go on elsewhere when its cluster is lost.
    """
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

    wanted = [Delayed(key, graph) for key in keys]
    client = _client_of(get)
    with blas_alone(), losses_told(graph, get):
        held: Any = persist(*wanted, scheduler=get) if client is None else client.persist(wanted)
    found: dict[Any, Any] = {}
    for delayed in held:
        found.update(dict(delayed.__dask_graph__()))
    return found


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
        if not _means_loss(error, graph, get):
            raise
        raise TasksLostError(
            "the records could not be read, since workers or the scheduler of Dask were lost "
            f"({type(error).__name__}). What was charged stays charged: start the cluster "
            "again, and fit again under a new charge."
        ) from error


def _means_loss(error: BaseException, graph: dict[Any, Any], get: Get) -> bool:
    """Whether it comes of Dask and not of what a task does."""
    if type(error).__module__.partition(".")[0] in ("distributed", "dask"):
        return True
    client = _client_of(get)
    if client is not None and client.status != "running":
        return True
    return any(getattr(value, "status", None) in ("cancelled", "lost") for value in graph.values())
