"""What is seen of long work: how many steps of a planned number are done, and for how long.

Nothing else is shown, and nothing at all where the number of steps depends on data or is secret.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from types import SimpleNamespace
from typing import Any, TypeVar

from ._checks import check_int, during, imported

T = TypeVar("T")

_NO_BAR = SimpleNamespace(update=lambda n=1: None)
_bar: ContextVar[Any] = ContextVar("bar", default=_NO_BAR)  # that the steps of a solver move
_is_silent: ContextVar[bool] = ContextVar("is_silent", default=False)
_open_bars: list[Any] = []


def check_verbose(verbose: Any) -> int:
    """The parameter `verbose` as an integer; an `ImportError` if tqdm is needed and missing."""
    number = int(verbose) if isinstance(verbose, bool) else check_int("verbose", verbose, low=0)
    if number:
        _tqdm()
    return number


_tqdm = partial(imported, "tqdm.auto", "pip install tqdm, or take verbose=0", "verbose")


@contextmanager
def progress_bar(verbose: Any, total: int, unit: str, what: str, plan: Any = None) -> Iterator[Any]:
    """A bar on standard error, from 2 on below the plan; with 0 one that shows nothing."""
    if not verbose or _is_silent.get():
        yield _NO_BAR
        return
    with _tqdm().tqdm(total=total, desc=what, unit=unit, file=sys.stderr) as bar:
        _open_bars.append(bar)
        try:
            if verbose > 1 and plan is not None:
                bar.write(str(plan), file=sys.stderr)
            yield bar
        finally:
            # by what it is: bars of tqdm are equal if they are at the same place
            _open_bars[:] = [other for other in _open_bars if other is not bar]


moving = partial(during, _bar)  # a block in which the steps of a solver move this bar
silent = partial(during, _is_silent, True)  # a block in which nothing is shown


def steps(items: Iterable[T], bar: Any = None) -> Iterator[T]:
    """The items; after each the bar, or that in force, has moved by one step."""
    bar = _bar.get() if bar is None else bar
    for item in items:
        yield item
        bar.update(1)


def advance(n: int) -> None:
    """So many steps were taken at once."""
    _bar.get().update(n)


def remark(text: str) -> None:
    """Show this behind the bars of this process, if there are any, until the next remark."""
    for bar in list(_open_bars):
        bar.set_postfix_str(text)
