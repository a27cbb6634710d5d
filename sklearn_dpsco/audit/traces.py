"""Streams of randomness that note who reads them."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..randomness.stream import RandomStream

__all__ = ["Path", "Reads", "TracedStream"]

Path = tuple[Any, ...]


class Reads:
    """What one run reads from its streams.

    Attributes
    ----------
    n_words : dict
        Words that the solver itself reads, by the path of the stream.
    """

    def __init__(self) -> None:
        self.n_words: dict[Path, int] = defaultdict(int)
        self._readers: dict[Path, set[int]] = defaultdict(set)
        self._n_streams = 0

    def new_reader(self) -> int:
        self._n_streams += 1
        return self._n_streams

    def note(self, path: Path, reader: int) -> None:
        self._readers[path].add(reader)

    @property
    def repeated(self) -> list[Path]:
        """Paths of which two streams were read: both gave the same words, from the first on."""
        return [path for path, readers in self._readers.items() if len(readers) > 1]


class TracedStream(RandomStream):
    """The stream of a run, or a substream of it, known by its path of names.

    Two streams of one path give the same words. Each is read from its start, so the same word
    is used twice exactly where two streams of one path are read at all.

    Parameters
    ----------
    seed : int
        Of the run; decides the words together with the path.
    reads : Reads
    path : tuple
    reader : int or None
        None for a stream of its own; else a twin of the stream of that number.
    """

    def __init__(self, seed: int, reads: Reads, path: Path = (), reader: int | None = None) -> None:
        key = hashlib.sha256(repr((seed, path)).encode()).digest()
        super().__init__(key, is_secure=False)
        self.path = path
        self.n_read = 0
        self._seed, self._reads, self._is_twin = seed, reads, reader is not None
        self._reader = reads.new_reader() if reader is None else reader

    def substream(self, *names: str | int) -> TracedStream:
        return TracedStream(self._seed, self._reads, (*self.path, names))

    def twin(self) -> TracedStream:
        """Counts as this stream, and leaves it where it is."""
        return TracedStream(self._seed, self._reads, self.path, self._reader)

    def words(self, size: int) -> NDArray[np.uint64]:
        if size > 0:
            self._reads.note(self.path, self._reader)
        self._count(size)
        return super().words(size)

    def unread(self, size: int) -> None:
        self._count(-size)
        super().unread(size)

    def _count(self, size: int) -> None:
        self.n_read += size
        if not self._is_twin:
            self._reads.n_words[self.path] += size
