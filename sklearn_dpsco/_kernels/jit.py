"""`njit` for all kernels, which may call those of other files or take tuples with named fields.

numba keeps compiled code as long as the file of a function stays as it is. What the function
calls is compiled into it, and so are the places of the fields: a change in another file, of a
clip for example, would have no effect, not even after an update of the package. Here the code
is kept as long as all files of this folder stay as they are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from importlib.resources import files
from typing import Any

import numba

from .compilation import watch

__all__ = ["njit", "number_of_threads"]


def number_of_threads() -> int:
    """How many numba may use, which NUMBA_NUM_THREADS and joblib's workers bound.

    Not `numba.get_num_threads`, which starts numba's own threads: they may be missing, and a child
    process cannot use them after a fork.
    """
    return int(numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]


def _digest() -> str:
    sources = (file for file in files(__package__).iterdir() if file.name.endswith(".py"))
    total = hashlib.sha256()
    for source in sorted(sources, key=lambda file: file.name):
        total.update(source.read_bytes())
    return total.hexdigest()


_SOURCES = _digest()
watch()


def njit(*, cache: bool, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """`numba.njit`, whose cache depends on every file of this folder."""

    def compiled(function: Callable[..., Any]) -> Any:
        dispatcher = numba.njit(cache=cache, **options)(function)
        index = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
        if index is None:  # no cache, or plain Python
            return dispatcher
        if not hasattr(index, "_version"):  # a cache of another form: do without
            return numba.njit(**options)(function)
        # compared before the rest is read, which may name classes that no longer exist
        index._version = (index._version, _SOURCES)
        return dispatcher

    return compiled
