"""What a run does, as noted by its streams of randomness and by what stands for its mechanisms."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..randomness.stream import RandomStream

__all__ = ["Run", "TracedStream"]

Array = NDArray[np.float64]
Path = tuple[Any, ...]


@dataclass
class Run:
    """What one run did: by the path of a stream, by the name of a mechanism, or as a whole."""

    n_words: dict[Path, int] = field(default_factory=lambda: defaultdict(int))  # the solver's own
    # the streams of each path that were read
    readers: dict[Path, set[object]] = field(default_factory=lambda: defaultdict(set))
    # every release and every draw of a batch, and the path of the stream that it was given
    events: list[tuple[str, Path | None]] = field(default_factory=list)
    # what each mechanism was given
    values: dict[str, list[Array]] = field(default_factory=lambda: defaultdict(list))
    # for each release from a batch: whether the record is not in it
    absent: dict[str, list[bool]] = field(default_factory=lambda: defaultdict(list))
    # the batches as drawn, before the record is put in or left out
    draws: dict[str, list[NDArray[np.intp]]] = field(default_factory=lambda: defaultdict(list))
    problems: dict[str, str] = field(default_factory=dict)  # what is wrong with this run alone
    outcome: Array = field(default_factory=lambda: np.empty(0))  # coefficients, intercept, steps


class TracedStream(RandomStream):
    """The stream of a run, or a substream of it, known by its path of names.

    Two streams of one path give the same words. Each is read from its start, so the same word
    is used twice exactly where two streams of one path are read at all. A twin has the `reader`
    of another stream.
    """

    def __init__(self, seed: int, run: Run, path: Path = (), reader: object = None) -> None:
        key = hashlib.sha256(repr((seed, path)).encode()).digest()
        super().__init__(key, is_secure=False)
        self.path, self.n_read = path, 0
        self._seed, self._run, self._is_twin = seed, run, reader is not None
        self._reader = reader or object()

    def substream(self, *names: str | int) -> TracedStream:
        return TracedStream(self._seed, self._run, (*self.path, names))

    def twin(self) -> TracedStream:
        """Counts as this stream, and leaves it where it is."""
        return TracedStream(self._seed, self._run, self.path, self._reader)

    def words(self, size: int) -> NDArray[np.uint64]:
        if size > 0:
            self._run.readers[self.path].add(self._reader)
        self._count(size)
        return super().words(size)

    def unread(self, size: int) -> None:
        self._count(-size)
        super().unread(size)

    def _count(self, size: int) -> None:
        self.n_read += size
        if not self._is_twin:
            self._run.n_words[self.path] += size
