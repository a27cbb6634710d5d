"""Checks of parameters, whose errors name the parameter, the value and the range; warnings."""

from __future__ import annotations

import importlib
import inspect
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from contextvars import ContextVar
from decimal import ROUND_UP, Context
from functools import partial, wraps
from numbers import Integral, Real
from typing import Any, ParamSpec, TypeVar

import numpy as np

T = TypeVar("T")
P = ParamSpec("P")

# Sizes that may be declared: far beyond any use, and products of several of them are finite floats.
LARGEST, SMALLEST = 1e50, 1e-50
_LONGEST = 80  # characters of a value that a message shows
_CONTAINERS = (list, tuple, Set, Mapping)
_MOST_SHOWN = 20  # elements: what holds more may be a table in the place of a parameter


def shown(value: Any) -> str:
    """`value` for a message, cut if it is long; of what may be data the type and the size."""
    try:
        if _n_cells(value) > _MOST_SHOWN or hasattr(value, "to_numpy"):  # a column, or a frame
            shape = getattr(value, "shape", None)
            size = f"shape {shape}" if isinstance(shape, tuple) else f"length {len(value)}"
            return f"an object of type {type(value).__name__} and {size}"
        text = repr(value)
    except Exception:  # such as that of an integer with too many digits
        text = f"an object of type {type(value).__name__}"
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def listed(names: Sequence[Any]) -> str:
    """The first of some names, for a message."""
    return ", ".join(map(repr, names[:5])) + (", ..." if len(names) > 5 else "")


def first_of(names: Sequence[str]) -> str:
    """The first three of some names, and how many more there are, for people."""
    return ", ".join(names[:3]) + f" and {len(names) - 3} more" * (len(names) > 3)


def _n_cells(value: Any) -> int:
    """How many elements there are, also of arrays and containers within; beyond some, too few."""
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple):
        return math.prod(shape)
    if not isinstance(value, _CONTAINERS) or len(value) > _MOST_SHOWN:
        return len(value) if isinstance(value, _CONTAINERS) else 1
    inner = [*value, *value.values()] if isinstance(value, Mapping) else value
    return sum(map(_n_cells, inner))


def check_real(
    name: str,
    value: Any,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    low_open: bool = False,
    high_open: bool = False,
) -> float:
    """Return `value` as a float if it is a finite real number in the range."""
    try:
        is_real = isinstance(value, Real) and not isinstance(value, (bool, np.bool_))
        number = float(value) if is_real else math.nan
    except OverflowError:
        number = math.nan
    below = number <= low if low_open else number < low
    above = number >= high if high_open else number > high
    if not math.isfinite(number) or below or above:
        left, right = "(" if low_open else "[", ")" if high_open else "]"
        allowed = f"a finite number in {left}{low:g}, {high:g}{right}"
        raise ValueError(f"{name} must be {allowed}, got {shown(value)}")
    return number


# a float in [SMALLEST, LARGEST], so that products do not overflow
check_size = partial(check_real, low=SMALLEST, high=LARGEST)
# a float between 0 and 1, without these
check_share = partial(check_real, low=0, high=1, low_open=True, high_open=True)


def check_int(name: str, value: Any, *, low: int, high: float = math.inf) -> int:
    """Return `value` as an int if it is an integer in [low, high]."""
    is_integer = isinstance(value, Integral) and not isinstance(value, (bool, np.bool_))
    if not is_integer or not low <= value <= high:
        allowed = f">= {low}" if high == math.inf else f"in [{low}, {high:g}]"
        raise ValueError(f"{name} must be an integer {allowed}, got {shown(value)}")
    return int(value)


COVERS = "the probability that an interval covers, which is 1 - alpha"


def check_level(name: str, value: Any) -> float:
    """How sure an interval is: not alpha, of which .05 would be an interval that hardly covers."""
    try:
        return check_real(name, value, low=0.5, high=1, high_open=True)
    except ValueError as error:
        raise ValueError(f"{error}: {COVERS}") from None


_LEVELS = {"alpha", "level", "confidence", "confidence_level", "conf_level"}


def saying(hints: Mapping[str, str]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Of a function, a `TypeError` that says what stands for arguments of other names."""

    def decorated(function: Callable[P, T]) -> Callable[P, T]:
        @wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> T:
            if wrong := hints.keys() & kwargs.keys():
                name = min(wrong)
                raise TypeError(f"{function.__name__}() has no {name}: say {hints[name]}")
            return function(*args, **kwargs)

        return checked

    return decorated


def says_level(function: Callable[P, T]) -> Callable[P, T]:
    """The function, with an error that says what stands for other names of its level."""
    [name] = _LEVELS & inspect.signature(function).parameters.keys()
    return saying(dict.fromkeys(_LEVELS - {name}, f"{name}=0.95, {COVERS}"))(function)


def telling(hints: Mapping[str, str]) -> Callable[[T], T]:
    """Of a class, an `AttributeError` that has hints for some names."""

    def decorated(cls: Any) -> Any:
        def explained(self: Any, name: str) -> Any:
            try:
                return object.__getattribute__(self, name)  # its own error, as of a property
            except AttributeError as error:
                if name not in hints:
                    raise
                raise AttributeError(f"{error}; {hints[name]}", name=name, obj=self) from None

        cls.__getattr__ = explained
        return cls

    return decorated


def naming(hint: Callable[[str], str | None]) -> Callable[[T], T]:
    """Of a class, a `TypeError` that has a hint for a parameter that it does not have."""

    def decorated(cls: Any) -> Any:
        init, known = cls.__init__, inspect.signature(cls).parameters

        @wraps(init)
        def explained(self: Any, *args: Any, **kwargs: Any) -> None:
            for name in kwargs:
                if name not in known and (advice := hint(name)):
                    raise TypeError(
                        f"{cls.__name__}.__init__() got an unexpected keyword argument {name!r}; "
                        f"{advice}"
                    )
            init(self, *args, **kwargs)

        cls.__init__ = explained
        return cls

    return decorated


# an int that is exact as a float, as are its sums
check_count = partial(check_int, low=1, high=1e15)


def check_bool(name: str, value: Any) -> bool:
    """Return `value` if it is a bool."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name} must be True or False, got {shown(value)}")
    return bool(value)


def check_string(name: str, value: Any) -> str:
    """Return `value` if it is a string."""
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a string, got {shown(value)}")
    return value


def rounded(value: float, digits: int, direction: str = ROUND_UP) -> float:
    """To so many significant digits, never to the other side: 0.1 stays 0.1."""
    return float(Context(digits, direction).create_decimal(repr(float(value))))


def stated(value: float, digits: int = 6, direction: str = ROUND_UP) -> str:
    """An epsilon or a delta as text that says no less; or no more, of what is left.

    But for the float error of sums: 0.1 + 0.2 is 0.3.
    """
    return f"{rounded(float(f'{value:.12g}'), digits, direction):.{digits}g}"


def check_choice(name: str, value: Any, choices: Sequence[str]) -> str:
    """Return `value` if it is one of the names in `choices`."""
    if not isinstance(value, str) or value not in choices:
        names = ", ".join(map(repr, choices))
        raise ValueError(f"{name} must be one of {names}, got {shown(value)}")
    return value


def auto_or(check: Callable[..., Any], name: str, value: Any, **limits: Any) -> Any:
    """`None` for "auto", else the value checked by `check(name, value, **limits)`."""
    if isinstance(value, str) and value == "auto":
        return None
    try:
        return check(name, value, **limits)
    except ValueError as error:
        raise ValueError(str(error).replace(" must be ", " must be 'auto' or ", 1)) from None


def imported(module: str, remedy: str, what: str) -> Any:
    """A module that is not required: an `ImportError` names what needs it, and the remedy."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"{what} needs {module.partition('.')[0]}: {remedy}") from error


import_pandas = partial(imported, "pandas", "install it")
import_pyplot = partial(imported, "matplotlib.pyplot", "pip install matplotlib")


@contextmanager
def during(variable: ContextVar[T], value: T) -> Iterator[None]:
    """A block in which, in this thread, the variable has this value."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


# not a filter of `warnings`: those are the process's, and threads that put them back mix them up
_is_unwarned: ContextVar[bool] = ContextVar("is_unwarned", default=False)
# a block in which `warn_user` does nothing: what it says was said before
unwarned = partial(during, _is_unwarned, True)


# packages through which users call this one, and those of Python that run their tasks
_BETWEEN = {"sklearn", "joblib", "dask", "distributed"}
_BETWEEN |= {"asyncio", "concurrent", "multiprocessing", "threading", "runpy"}


def warn_user(message: str, category: type[Warning]) -> None:
    """Warn at the line of the user, or without one, as in a thread, outside of this package."""
    if _is_unwarned.get():
        return
    ours, level, n_ours = __name__.partition(".")[0], 0, 0
    frame = inspect.currentframe()
    while frame is not None:
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package != ours and package not in _BETWEEN:
            break
        n_ours += n_ours == level and package == ours
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=1 + (n_ours if frame is None else level))
