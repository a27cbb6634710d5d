"""What parameters of other packages are called here, for the error that Python raises anyway."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable
from typing import Any

_HERE = {
    "C": ("l2_penalty", "feasible_set"),
    "alpha": ("l2_penalty", "feasible_set"),
    "penalty": ("feasible_set", "l2_penalty"),
    "radius": ("feasible_set",),
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
            if name in known:
                continue
            solvers = set(self._solvers.values()) if "solver" in known else set()
            places = {
                parameter: f"solver={kind.__name__}({parameter}=...)"
                for kind in sorted(solvers, key=lambda kind: kind.__name__, reverse=True)
                for parameter in inspect.signature(kind).parameters
            } | {here: repr(here) for here in known}
            found = [here for here in places if here.lower() == name.lower()]
            found = found or [here for here in _HERE.get(name, ()) if here in places]
            found = found or difflib.get_close_matches(name, places, n=1, cutoff=0.75)
            advice = ""
            if name == "n_jobs":
                advice = ": a fit runs on threads (NUMBA_NUM_THREADS)"
            elif found:
                advice = f"; see {' and '.join(places[here] for here in found)}"
            elif self._with_settings:
                advice = f"; settings are parameters of {self._with_settings}"
            raise TypeError(
                f"{type(self).__name__}.__init__() got an unexpected keyword argument {name!r}"
                f"{advice}"
            )
        init(self, *args, **parameters)

    return explained
