"""A lock between processes, on a file of its own."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["file_lock"]

# The package for this that is kept up makes some forks fail in the program that imports it. What is
# needed is one exclusive lock of the operating system, which ends with its process.
if sys.platform == "win32":
    import msvcrt

    def _try_to_lock(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

    def _unlock(descriptor: int) -> None:
        os.lseek(descriptor, 0, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _try_to_lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _unlock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


_held: set[int] = set()  # descriptors of this process


def _after_fork_in_child() -> None:
    # or the child would hold the lock on if the parent is killed; this does not unlock it
    for descriptor in _held:
        with suppress(OSError):
            os.close(descriptor)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


@contextmanager
def file_lock(path: Path, patience: float) -> Iterator[None]:
    """Exclude other threads and processes that take the lock of the same file.

    Parameters
    ----------
    path : Path
        Made if there is none, and never removed.
    patience : float
        Seconds to wait.

    Raises
    ------
    TimeoutError
        If others hold the lock all the time.
    OSError
        If the file cannot be opened, or its file system has no locks.
    """
    deadline = time.monotonic() + patience
    descriptor = _locked(path)
    while descriptor is None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"another process holds the lock {str(path)!r}")
        time.sleep(0.005)
        descriptor = _locked(path)
    try:
        yield
    finally:
        if descriptor in _held:  # not in a child
            _held.remove(descriptor)
            try:
                _unlock(descriptor)
            finally:
                os.close(descriptor)


def _locked(path: Path) -> int | None:
    """A descriptor that holds the lock of the file, None if others have it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    _held.add(descriptor)  # so that no child keeps it
    try:
        _try_to_lock(descriptor)
        if os.path.samestat(os.fstat(descriptor), os.stat(path)):
            return descriptor
    except (BlockingIOError, PermissionError, FileNotFoundError):
        pass  # held, as the systems say it; or removed a moment ago
    except BaseException:
        _close(descriptor)
        raise
    _close(descriptor)
    return None


def _close(descriptor: int) -> None:
    _held.discard(descriptor)
    os.close(descriptor)
