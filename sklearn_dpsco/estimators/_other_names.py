"""What parameters of other packages are called here, for the error that Python raises anyway."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["naming_equivalents"]

_HERE = {
    "C": ("l2_penalty", "radius"),
    "alpha": ("l2_penalty", "radius"),
    "penalty": ("feasible_set", "l2_penalty"),
    "l1_ratio": ("feasible_set",),
    "tol": ("max_iter",),
    "n_iter": ("max_iter",),
    "epochs": ("max_iter",),
    "early_stopping": ("max_iter",),
    "eta0": ("learning_rate",),
    "bounds": ("bounds_X", "scale_X"),
    "bounds_X": ("scale_X",),
    "bounds_y": ("scale_y", "classes"),
    "range_X": ("bounds_X", "scale_X"),
    "range_y": ("bounds_y", "scale_y"),
    "labels": ("classes",),
    "l2_norm_clip": ("gradient_clip", "tau"),
    "max_grad_norm": ("gradient_clip", "tau"),
    "noise_multiplier": ("epsilon",),
    "seed": ("random_state",),
}


def naming_equivalents(init: Callable[..., None]) -> Callable[..., None]:
    """The constructor, whose `TypeError` for an unknown parameter names the one that is meant."""
    known = list(inspect.signature(init).parameters)[1:]

    @functools.wraps(init)
    def explained(self: Any, *args: Any, **parameters: Any) -> None:
        for name in parameters:
            if name not in known:
                raise TypeError(
                    f"{type(self).__name__}.__init__() got an unexpected keyword argument {name!r}"
                    f"{_advice(name, known)}"
                )
        init(self, *args, **parameters)

    return explained


def _advice(name: str, known: Sequence[str]) -> str:
    if name == "n_jobs":
        return ": a fit runs on threads (NUMBA_NUM_THREADS)"
    found = [here for here in known if here.lower() == name.lower()]
    found = found or [here for here in _HERE.get(name, ()) if here in known]
    found = found or difflib.get_close_matches(name, known, n=1, cutoff=0.75)
    return f"; see {' and '.join(map(repr, found))}" if found else ""
