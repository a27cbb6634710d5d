"""Turns at a ledger: one thread after the other, and with a file one process after the other."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Any
from weakref import WeakSet

from ..randomness.stream import current_process

PATIENCE = 60.0  # seconds to wait for the lock of a file; a charge holds it for some milliseconds

# The package for this that is kept up makes some forks fail in the program that imports it. What is
# needed is one exclusive lock of the operating system, which ends with its process.
if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int, *, is_end: bool = False) -> None:
        os.lseek(descriptor, 0, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK if is_end else msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _lock(descriptor: int, *, is_end: bool = False) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN if is_end else fcntl.LOCK_EX | fcntl.LOCK_NB)


_files: WeakSet[FileIO] = WeakSet()  # of this process


def _after_fork_in_child() -> None:
    # or the child would hold the lock on if the parent is killed; this does not unlock it
    for file in list(_files):
        with suppress(OSError):
            file.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


class Turn:
    """One turn, taken inside of its own block: ``with turn, turn: turn.take()``.

    Ctrl-C may come between any two steps of the interpreter, and leaves nothing taken. Nothing is
    before the block, and its end gives back whatever is: each step that takes something tells at
    once who has it (`dict.setdefault`, or a file object, which closes its descriptor). It is two
    blocks, since the end of one may be interrupted: then that of the other one does the same again.
    `holder` says who has the turn, by process: after a fork, other threads never give theirs back.
    All who exclude one another share it.
    """

    def __init__(self, holder: dict[Any, Turn]) -> None:
        self._holder = holder
        self._file: FileIO | None = None

    def take(self, patience: float = math.inf) -> None:
        """Exclude other threads. Raises `TimeoutError` after so many seconds."""
        key = current_process()
        self._wait(
            lambda: self._holder.setdefault(key, self) is self, patience, "thread has the turn"
        )

    def take_file(self, path: Path) -> None:
        """Exclude whoever takes the same file, in any process. Raises as `take`, or `OSError`."""
        lock = Path(f"{path}.lock")
        self._wait(lambda: self._has_file(lock), PATIENCE, f"process holds the lock {str(lock)!r}")

    def __enter__(self) -> None: ...

    def __exit__(self, *exception: object) -> None:
        try:
            self._give_back_file()
        finally:
            key = current_process()
            if self._holder.get(key) is self:
                del self._holder[key]

    def _wait(self, has: Callable[[], bool], patience: float, other: str) -> None:
        deadline = time.monotonic() + patience
        while not has():
            if time.monotonic() > deadline:
                raise TimeoutError(f"another {other}")
            time.sleep(0.001)

    def _has_file(self, path: Path) -> bool:
        self._file = file = FileIO(path, "a+")
        _files.add(file)  # so that no child keeps it
        try:
            _lock(file.fileno())
            if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                return True
        except (BlockingIOError, PermissionError, FileNotFoundError):
            pass  # held, as the systems say it; or removed a moment ago
        self._give_back_file()
        return False

    def _give_back_file(self) -> None:
        if self._file is not None and not self._file.closed:  # as in a child
            with suppress(OSError):  # if it was not locked
                _lock(self._file.fileno(), is_end=True)
            self._file.close()
