"""`njit` for all kernels, which may call those of other files or take tuples with named fields.

numba keeps compiled code as long as the file of a function stays as it is. But what the function
calls is compiled into it, and so are the places of fields: a change in another file, of a clip for
example, would have no effect. Here code is kept as long as all files of this folder, and the
formulas of `losses`, stay as they are, and can be read: a damaged file of the cache must not end a
fit that was charged.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from contextlib import suppress
from importlib.resources import files
from typing import Any

import numba
from numba.core import event
from numba.core.caching import CompileResultCacheImpl, FunctionCache

from .._progress import remark

_PACKAGE = __name__.partition(".")[0]
_logger = logging.getLogger(_PACKAGE)
_sources = [files(_PACKAGE) / "losses.py", *files(__package__).iterdir()]
_texts = sorted(file.read_bytes() for file in _sources if file.name.endswith(".py"))
_DIGEST = hashlib.sha256(b"".join(_texts)).hexdigest()


def number_of_threads() -> int:
    """How many numba may use, which NUMBA_NUM_THREADS and joblib's workers bound."""
    # `numba.get_num_threads` would start numba's own threads: they may be missing, and a child
    # process cannot use them after a fork
    return int(numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]


class _Watch(event.Listener):
    """Tells of this package's kernels that numba compiles: seconds, once for each kind of data."""

    depth = 0  # of kernels compiled into one; numba compiles under a lock, so one at a time

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


event.register("numba:compile", _Watch())  # type: ignore[no-untyped-call]


class _Cache(FunctionCache):
    """What is kept of a kernel until a file that it may be of changes; a loss of it costs time."""

    def _impl_class(self, function: Any) -> Any:  # type: ignore[override]
        kept = CompileResultCacheImpl(function)  # type: ignore[no-untyped-call]
        kept.locator.get_source_stamp = lambda: _DIGEST
        return kept

    def load_overload(self, *key: Any) -> Any:
        try:
            return super().load_overload(*key)  # type: ignore[no-untyped-call]
        except Exception:  # pickle raises all kinds, also for classes that no longer exist
            return None

    def save_overload(self, *compiled: Any) -> None:
        try:
            super().save_overload(*compiled)  # type: ignore[no-untyped-call]
        except Exception:  # an index that cannot be read, or a disk that takes no file
            with suppress(OSError):
                self.flush()  # type: ignore[no-untyped-call]
                super().save_overload(*compiled)  # type: ignore[no-untyped-call]


def njit(*, cache: bool, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """`numba.njit`, whose cache depends on every file that kernels are of, and may be damaged."""

    def compiled(function: Callable[..., Any]) -> Any:
        dispatcher = numba.njit(**options | {"no_cfunc_wrapper": True})(function)
        if cache and hasattr(dispatcher, "_cache"):  # or plain Python
            dispatcher._cache = _Cache(function)  # type: ignore[no-untyped-call]
        return dispatcher

    return compiled
