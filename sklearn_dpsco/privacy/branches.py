"""Branches of fits on disjoint records, and for which code each of them is in force."""

from __future__ import annotations

import inspect
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["BranchPath", "OpenBranches", "ParallelGroup"]

BranchPath = tuple[str, ...]  # group, branch, group, branch, ... from the outermost


class OpenBranches:
    """The branches whose blocks are open, each with the frame of the code that opened it.

    A frame that is on the call stack stands at a call inside of its open blocks. One that is
    suspended (of a generator or a coroutine), that has returned or that belongs to another
    thread is not on it. So the frames on the stack tell which blocks the running code is in,
    whatever else is open.
    """

    def __init__(self) -> None:
        self._open: list[tuple[BranchPath, FrameType | None]] = []

    @contextmanager
    def block(self, path: BranchPath) -> Iterator[None]:
        """Open a branch on behalf of the nearest caller outside this module and `contextlib`."""
        frame = inspect.currentframe()
        while frame is not None and frame.f_globals.get("__name__") in (__name__, "contextlib"):
            frame = frame.f_back
        branch = (path, frame)
        self._open.append(branch)
        try:
            yield
        finally:
            self._open.remove(branch)

    def in_force(self) -> BranchPath:
        """Path of the innermost branch that the caller is in, if it is in all that hold it, too."""
        branches = tuple(self._open)
        paths: list[BranchPath] = [()]
        stack, frame = [], inspect.currentframe() if branches else None
        while frame is not None:
            stack.append(frame)
            frame = frame.f_back
        for outer_to_inner in reversed(stack):
            for path, opener in branches:
                if opener is outer_to_inner and path[:-2] in paths:
                    paths.append(path)
        return paths[-1]


class ParallelGroup:
    """Branches that use disjoint records; made by `BudgetAccountant.parallel`."""

    def __init__(self, branches: OpenBranches) -> None:
        self._branches = branches
        self._path = (*branches.in_force(), secrets.token_hex(6))

    @contextmanager
    def branch(self) -> Iterator[None]:
        """Charges inside the ``with`` block fall on this branch's records only.

        The branch is in force for what the function that opened it calls while the block is open:
        directly or not, and with it whatever runs in between in the same thread, such as tasks
        of an event loop that is started inside. Everything else is charged as if the block were
        not there, which never charges too little: the caller of a generator or a coroutine that
        is suspended inside the block, tasks of an event loop outside, other threads, and worker
        processes. (Not covered: compiled generators, which have no frame on the call stack.)

        With `contextlib.ExitStack`, the function that calls ``enter_context`` opens the branch.
        One that opens it and returns or yields to its caller, such as a fixture, a cell of a
        notebook or a context manager of your own, has opened it for nobody else. A branch inside
        of another one needs that to be in force as well.
        """
        with self._branches.block((*self._path, secrets.token_hex(6))):
            yield
