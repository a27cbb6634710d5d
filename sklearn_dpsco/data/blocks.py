"""Blocks of rows of collections of Dask, as keys of tasks. Dask is imported where it is met."""

from __future__ import annotations

import functools
import itertools
import math
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date
from numbers import Number
from typing import Any

import numpy as np
from scipy import sparse

from .cells import check_order, entries, is_elsewhere, parts_of
from .pieces import Get, compute, losses_told, new_key, scheduler

# Cells of a table of which all are compared when it is read again, and of a larger one at least one
# of so many: they cost about a tenth of a pass that reads from memory.
_FEW, _MOST = 2**14, 64
_KNOWN = (str, bytes, Number, np.generic, date)  # labels whose text tells what they are


@dataclass(frozen=True)
class Blocks:
    """Blocks of rows elsewhere: tasks of Dask, a key for each block, numbers of rows if known."""

    graph: dict[Any, Any]
    keys: tuple[Any, ...]
    sizes: tuple[int, ...] | None
    get: Get = field(default_factory=scheduler)

    @property
    def is_in_memory(self) -> bool:
        """Whether it was persisted, or what it is made of: all that tasks begin with is held."""
        from dask.core import get_dependencies

        tasks = (key for key, value in self.graph.items() if _kind(value) == "task")
        return all(get_dependencies(self.graph, key) for key in tasks)

    def sizes_of(self, values: Any) -> tuple[int, ...]:
        """The numbers of rows, computed if they are not known, if the values have as many rows."""
        sizes = tuple(results(_n_rows, [self])) if self.sizes is None else self.sizes
        if sum(sizes) != _n_rows(values):
            raise ValueError(
                "Found input variables with inconsistent numbers of samples: "
                f"{[sum(sizes), _n_rows(values)]}"
            )
        return sizes

    def groups(self, sizes: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """Numbers of the blocks that one task reads: a few tasks a thread of those in memory."""
        if not self.is_in_memory:
            return tuple((i,) for i in range(len(self.keys)))
        out = []
        for blocks, n_threads in self._places():
            counts = np.take(sizes, blocks)
            middles, share = np.cumsum(counts) - counts / 2, counts.sum() / n_threads
            bins = np.minimum(n_threads - 1, (middles / max(share, 1e-300)).astype(int))
            parts = np.split(blocks, np.flatnonzero(np.diff(bins)) + 1)
            out += [tuple(part.tolist()) for part in parts]
        return tuple(out)

    def _places(self) -> list[tuple[list[int], int]]:
        """The blocks of each process, and the number of its threads."""
        from dask.core import get_dependencies

        futures = [value for value in self.graph.values() if type(value).__name__ == "Future"]
        if not futures:
            from dask.system import CPU_COUNT

            return [(list(range(len(self.keys))), CPU_COUNT)]
        from distributed import wait

        with losses_told(self.graph, self.get):
            wait(futures)
            client = futures[0].client
            held, n_threads = client.who_has(futures), client.nthreads()
        at: dict[str, list[int]] = {}
        for i, key in enumerate(self.keys):
            # to the future that it is made of
            while _kind(self.graph.get(key)) in ("task", "Alias"):
                key = min(get_dependencies(self.graph, key), key=str)
            workers = held.get(key) or held.get(str(key)) or [""]
            at.setdefault(next(iter(workers)), []).append(i)
        return [(blocks, n_threads.get(worker, 1)) for worker, blocks in at.items()]


def _kind(value: Any) -> str:
    """What a graph holds: a "task", or "Alias", "Future", "DataNode" or other data."""
    kind = type(value)
    if kind.__name__ in ("Future", "DataNode", "Alias"):
        return kind.__name__
    is_task = kind.__module__.startswith("dask._task_spec")
    is_task = is_task or (kind is tuple and bool(value) and callable(value[0]))
    return "task" if is_task else "data"


def _blocks_of(name: str, values: Any, like: Blocks | None = None) -> Blocks:
    """The blocks of rows of a collection; with `like`, they go with those of another one."""
    from dask.optimization import cull

    parts, sizes = _by_rows(name, values, like)
    graph: dict[Any, Any] = {}
    graphs = [p.__dask_graph__() if hasattr(p, "__dask_graph__") else {p.key: p} for p in parts]
    for tasks in {id(tasks): tasks for tasks in graphs}.values():  # most blocks share theirs
        graph.update(dict(tasks))
    keys = []
    for part in parts:
        key = part.key
        while _kind(graph.get(key)) == "Alias":
            key = graph[key].target
        keys.append(key)
    blocks = Blocks(dict(cull(graph, keys)[0]), tuple(keys), sizes)
    if like is not None and len(keys) != len(like.keys):
        raise ValueError(
            f"X has {len(like.keys)} blocks of rows and {name} has {len(keys)}: they must have the "
            "same blocks. Take both as columns of one frame, if persisted, then before columns are "
            "chosen, or arrays whose sizes are known (`compute_chunk_sizes`)"
        )
    return blocks


def _by_rows(
    name: str, values: Any, like: Blocks | None
) -> tuple[list[Any], tuple[int, ...] | None]:
    """Delayed blocks of rows, and their sizes if those are known."""
    parts, sizes = parts_of(values), None
    if parts is not None:
        return parts, sizes
    if hasattr(values, "chunks"):
        if values.ndim not in (1, 2):
            raise ValueError(f"{name} must have one or two dimensions, got {values.ndim}")
        if values.ndim == 2 and values.numblocks[1] > 1:
            values = values.rechunk({1: -1})  # a record is in one block
        is_known = not any(math.isnan(size) for size in values.chunks[0])
        if is_known and like is not None:
            values = values.rechunk({0: like.sizes_of(values)})
        sizes = tuple(int(size) for size in values.chunks[0]) if is_known else None
    # optimizing drops what is held by workers already, and may join the blocks of frames
    delayed = values.to_delayed(optimize_graph=not _is_held(values))
    if _is_frame(values) and len(delayed) != values.npartitions:
        delayed = values.to_delayed(optimize_graph=False)
    return list(np.ravel(delayed) if isinstance(delayed, np.ndarray) else delayed), sizes


def blocks_of_all(X: Any, others: dict[str, Any]) -> dict[str, Blocks]:
    """Blocks of rows of X, a collection, and of what goes with it; what is here is cut like X."""
    beside = {name: v for name, v in others.items() if _is_frame(v)} if _is_frame(X) else {}
    if _is_held(X) or any(v.npartitions != X.npartitions for v in beside.values()):
        beside = {}
    found = _frames_together(X, beside) if beside else {"X": _blocks_of("X", X)}
    for name, values in others.items():
        if name not in found:
            if is_elsewhere(values):
                found[name] = _blocks_of(name, values, like=found["X"])
            else:
                found[name] = split(values, found["X"])
    return {name: found[name] for name in ("X", *others)}


def _frames_together(X: Any, beside: dict[str, Any]) -> dict[str, Blocks]:
    """Blocks of frames that are read as one: each file once, and cut alike."""
    join = functools.partial(_side_by_side, list(beside))
    meta = join(X._meta, *(frame._meta for frame in beside.values()))
    joined = X.map_partitions(join, *beside.values(), align_dataframes=False, meta=meta)
    whole = _blocks_of("X", joined)
    out: dict[str, Blocks] = {}
    start = 0
    for name, frame in {"X": X, **beside}.items():
        stop = start + (frame.shape[1] if frame.ndim == 2 else 1)
        columns = slice(start, stop) if frame.ndim == 2 else start
        start = stop
        keys = tuple(new_key(name) for _ in whole.keys)
        tasks = {key: (_columns, of, columns) for key, of in zip(keys, whole.keys, strict=True)}
        out[name] = Blocks({**whole.graph, **tasks}, keys, whole.sizes)
    return out


def _side_by_side(names: list[str], X: Any, *others: Any) -> Any:
    """A frame with the columns of others behind its own, row by row."""
    import pandas as pd

    if len({len(X), *map(len, others)}) > 1:
        raise ValueError("Found input variables with inconsistent numbers of samples in a block")
    check_order(X=X, **dict(zip(names, others, strict=True)))
    out = pd.concat([X, *(other.set_axis(X.index) for other in others)], axis=1)
    names = [f"beside {k}" for k in range(out.shape[1] - X.shape[1])]
    return out.set_axis([*X.columns, *names], axis=1)


def _columns(block: Any, which: Any) -> Any:
    return block.iloc[:, which]


def _is_frame(values: Any) -> bool:
    """Whether it is a frame or a series of Dask."""
    return hasattr(values, "map_partitions") and hasattr(values, "npartitions")


def _is_held(values: Any) -> bool:
    """Whether a collection itself was persisted."""
    graph = dict(values.__dask_graph__()) if hasattr(values, "__dask_graph__") else {}
    return bool(graph) and all(_kind(value) != "task" for value in graph.values())


def split(values: Any, like: Blocks) -> Blocks:
    """Values in this process, cut like the blocks."""
    sizes = like.sizes_of(values)
    ends = np.cumsum([0, *sizes])
    take = values if hasattr(values, "shape") else entries(values)
    take = getattr(take, "iloc", take)
    parts = [take[a:b] for a, b in itertools.pairwise(ends)]
    keys = tuple(new_key("held") for _ in parts)
    return Blocks(dict(zip(keys, parts, strict=True)), keys, sizes)


def results(function: Callable[..., Any], blocks: Sequence[Blocks]) -> list[Any]:
    """What a function makes of each block, with those that go with it, in this process."""
    graph: dict[Any, Any] = {}
    for of_one in blocks:
        graph |= of_one.graph
    inputs = list(zip(*(of_one.keys for of_one in blocks), strict=True))
    keys = [new_key("block") for _ in inputs]
    graph |= {key: (function, *given) for key, given in zip(keys, inputs, strict=True)}
    return compute(graph, keys, blocks[0].get)


def fingerprint(X: Any, *beside: Any) -> int:
    """A checksum of a block, by which more rows, fewer, and rows in another order are told.

    It covers the number of rows; of X, which is canonical if sparse, what `_compared` takes of its
    cells, or of its stored entries and their places, with the ends of all lines; and of what goes
    with X row by row all numbers, and of Python objects those that `_compared` takes. Another
    process finds the same, and so does one in which the arrays lie differently. See
    :ref:`section-2.8`.
    """
    if sparse.issparse(X):
        n_lines = X.indptr.size - 1
        cells = [X.indptr, _compared(X.indices, n_lines), _compared(X.data, n_lines)]
    else:
        cells = [_compared(X, X.shape[0])]
    parts = [*cells, *map(np.asarray, beside)]
    forms = [X.shape, getattr(X, "format", None), *((part.dtype.str, part.shape) for part in parts)]
    mark = zlib.crc32(repr(forms).encode())
    for part in parts:
        if part.dtype.hasobject:  # of other objects, the text may be where they lie in memory
            texts = map(_text, _compared(part, 1).tolist())
            mark = zlib.crc32("\0".join(texts).encode("utf-8", "surrogatepass"), mark)
        else:
            mark = zlib.crc32(part.tobytes(), mark)
    return mark


def _text(cell: Any) -> str:
    with suppress(Exception):  # one cell must be no error: integers may have too many digits
        return repr(cell) if isinstance(cell, _KNOWN) else type(cell).__name__
    return type(cell).__name__


def _compared(values: Any, n_lines: int) -> Any:
    """Some of the values, which are in so many lines of the same length or about that.

    All of up to 2^14; else every k-th, with the largest k below the length of a line d, at most 64,
    that has no common factor with d, or all if d is at most 2. So each line has one of them, and d
    lines in turn have them in all places.
    """
    step = 1
    if values.size > _FEW:
        # each line has one, and the next line another one
        width = values.size // n_lines
        steps = range(min(width - 1, _MOST), 1, -1)
        step = next((step for step in steps if math.gcd(step, width) == 1), 1)
    return (values.reshape(-1) if values.flags.c_contiguous else values.flat)[::step]


def _n_rows(block: Any) -> int:
    return int(block.shape[0]) if hasattr(block, "shape") else len(block)


def map_blocks(function: Callable[[Any], Any], X: Any, like: Any) -> Any:
    """A lazy array of what a function makes of each block; `like` is such a result without rows."""
    import dask.array as da
    from dask.delayed import delayed

    parts, sizes = _by_rows("X", X, None)
    made: Any = delayed(function, pure=True)
    arrays = [
        da.from_delayed(made(part), (size, *like.shape[1:]), meta=like)
        for part, size in zip(parts, sizes or [math.nan] * len(parts), strict=True)
    ]
    return da.concatenate(arrays, allow_unknown_chunksizes=True)


def without_rows(X: Any) -> Any:
    """An empty table with the columns of a collection; None where they are not known."""
    if parts_of(X) is not None:
        return None
    if hasattr(X, "chunks"):
        return np.empty((0, *X.shape[1:]))
    return X._meta


def here(values: Any) -> Any:
    """Values of a collection as an array in this process; others as they are."""
    if not is_elsewhere(values):
        return values
    return np.concatenate(results(np.asarray, [_blocks_of("y", values)]))
