"""What is said while numba compiles a kernel, which takes seconds, once for each kind of data."""

from __future__ import annotations

import logging
from typing import Any

from numba.core import event

from .._progress import remark

__all__ = ["watch"]

_PACKAGE = __name__.partition(".")[0]
_logger = logging.getLogger(_PACKAGE)


class _Watch(event.Listener):
    """Tells of kernels of this package, and not of those that are compiled into another one.

    numba compiles under a lock, so one at a time.
    """

    def __init__(self) -> None:
        self.depth = 0

    def on_start(self, event: Any) -> None:
        function = event.data["dispatcher"].py_func
        self.depth += 1
        if self.depth == 1 and function.__module__.partition(".")[0] == _PACKAGE:
            _logger.info(
                "compiling the kernel %s for a new kind of data, which is done once; "
                "sklearn_dpsco.compile_kernels() does it beforehand",
                function.__name__,
            )
            remark(f"compiling {function.__name__}, once")

    def on_end(self, event: Any) -> None:
        self.depth -= 1
        if self.depth == 0:
            remark("")


def watch() -> None:
    """Listen from now on."""
    event.register("numba:compile", _Watch())  # type: ignore[no-untyped-call]
