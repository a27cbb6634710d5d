"""What makes a class a public estimator: a complete docstring, and errors that name parameters.

A parameter or an attribute is described once, in the docstring of the class that owns it:
`DPLinearModel`, `DPRegressor` or `DPClassifier`, the mixin of an algorithm, or the concrete
class. When a concrete class is created, `merged` makes the text that readers see.
"""

from __future__ import annotations

import difflib
import inspect
import re
from typing import Any

# A paragraph of a class that begins like this is for readers of the file only.
FILE_NOTE = "Parameters that are not described here:"

# Begins a text that continues the text of the same name in a base class.
_CONTINUED = "..."

_FIRST_ATTRIBUTES = ("coef_", "intercept_", "classes_")

# What parameters of other packages are called here.
_MEANT = {
    "C alpha": "l2_penalty feasible_set",
    "penalty": "feasible_set l2_penalty",
    "radius l1_ratio": "feasible_set",
    "tol n_iter epochs early_stopping": "max_iter",
    "eta0": "learning_rate",
    "bounds range_X": "bounds_X scale_X",
    "bounds_X": "scale_X",
    "bounds_y": "scale_y classes",
    "range_y": "bounds_y scale_y",
    "labels": "classes",
    "l2_norm_clip max_grad_norm": "gradient_clip tau",
    "eps noise_multiplier": "epsilon",
    "seed": "random_state",
    "offset exposure": "bounds_exposure",
}
_HERE = {name: here.split() for names, here in _MEANT.items() for name in names.split()}


OF_INFERENCE = ["conf_int", "summary", "wald_test", "t_test", "predict_interval", "coef_std_"]
NO_INFERENCE = (
    "DPLinearRegression, DPLogisticRegression, DPMirror... and models of counts have standard "
    "errors, with inference=True"
)
_NOT_HERE = {"inference": NO_INFERENCE, "n_jobs": "a fit runs on threads (NUMBA_NUM_THREADS)"}
_NOT_HERE |= dict.fromkeys(("C", "alpha", "penalty"), "no penalty is needed beside the noise")
_LINK = "the model decides on it: those of counts and costs have a logarithmic one"
_NOT_HERE |= dict.fromkeys(("link", "family"), _LINK)
_STEPS = "the plan has as many steps as the budget allows for"
_NOT_HERE |= dict.fromkeys(("max_iter", "tol", "solver", "warm_start"), _STEPS)
_NOT_HERE |= {"fit_intercept": "there always is an intercept"}


# of an item such as ``scale_X_, center_X_ : ndarray`` this line, and those below it
Entry = tuple[str, list[str]]


def sections(docstring: str | None) -> dict[str, list[str]]:
    """The lines of each section by its title; "" stands for what precedes the first one."""
    text = "\n" + inspect.cleandoc(docstring or "")
    parts = ["", *re.split(r"\n(\S.*)\n-+$", text, flags=re.MULTILINE)]
    return {
        title: part[1:].rstrip().splitlines()
        for title, part in zip(parts[::2], parts[1::2], strict=True)
    }


def entries(lines: list[str]) -> dict[str, Entry]:
    """The items of a section of parameters or attributes, each by all of its names."""
    found: dict[str, Entry] = {}
    for item in re.split(r"\n(?=\S)", "\n".join(lines)) if lines else []:
        header, *text = item.rstrip().splitlines()
        names = header.partition(" : ")[0].split(",")
        found |= {name.strip(): (header, text) for name in names}
    return found


def merged(cls: type) -> str | None:
    """The complete docstring of an estimator's class; None under ``python -OO``.

    Parameters come in the order of `__init__`, each from the first class in the MRO that describes
    it, attributes of the model before those of all. A text that begins with ``...`` continues the
    one of the next class. Notes and References are those of the first class that has them.
    """
    if vars(cls).get("__doc__") is None:
        return None
    ours = [k for k in cls.__mro__ if k.__module__.partition(".")[0] not in ("sklearn", "builtins")]
    parts = [sections(vars(kind).get("__doc__")) for kind in ours]
    owners: dict[str, int] = {}
    for k, part in reversed(list(enumerate(parts))):
        found = entries(part.get("Attributes", []))
        owners |= {name: k for name in found if name not in owners}
    attributes = sorted(owners, key=lambda name: (name not in _FIRST_ATTRIBUTES, owners[name]))
    paragraphs = "\n".join(parts[0][""]).split("\n\n")
    kept = [text for text in paragraphs if not text.startswith(FILE_NOTE)]
    body = {
        "Parameters": _described(parts, "Parameters", list(inspect.signature(cls).parameters)),
        "Attributes": _described(parts, "Attributes", attributes),
    }
    for title in ("Notes", "References"):
        body[title] = next((part[title] for part in parts if title in part), [])
    body["Examples"] = parts[0].get("Examples", [])
    lines = "\n\n".join(kept).splitlines()
    for title, text in body.items():
        lines += ["", title, "-" * len(title), *text] if text else []
    return "\n".join(lines) + "\n"


def _described(parts: list[dict[str, list[str]]], title: str, names: list[str]) -> list[str]:
    """Headers and texts of the names; one that is described nowhere is left out."""
    by_class = [entries(part.get(title, [])) for part in parts]
    items: dict[str, list[str]] = {}  # by their headers, which several names may share
    for name in names:
        found = [described[name] for described in by_class if name in described]
        text: list[str] = []
        for _, own in found:  # of which each may continue the next one
            first, *rest = own or [""]
            indent, dots, more = first.partition(_CONTINUED)
            if indent.strip() or not dots:
                text = [*own, *text]
                break
            text = [*([indent + more.lstrip()] if more.strip() else []), *rest, *text]
        if found:
            items.setdefault(found[0][0], text)
    return [line for header, text in items.items() for line in (header, *text)]


def equivalent(cls: Any, name: str) -> str | None:
    """What stands for a parameter of another name, or why nothing does."""
    owner = cls._with_settings or cls
    there = inspect.signature(owner).parameters
    of_owner = "{}" if owner is cls else f"{owner.__name__}({{}})"
    solvers = list(owner._solvers.values()) if "solver" in there else []  # the usual ones first
    places = {
        parameter: of_owner.format(f"solver={kind.__name__}({parameter}=...)")
        for kind in reversed(solvers)
        for parameter in inspect.signature(kind).parameters
    }
    places |= {other: of_owner.format(f"{other}=...") for other in there}
    places |= {here: repr(here) for here in inspect.signature(cls).parameters}
    found = [here for here in places if here.lower() == name.lower()]
    found = found or [here for here in _HERE.get(name, ()) if here in places]
    found = found or difflib.get_close_matches(name, places, n=1, cutoff=0.75)
    if name in _NOT_HERE and not (found and (name in _HERE or name in places)):
        return _NOT_HERE[name]
    if found:
        return f"see {' and '.join(places[here] for here in found)}"
    return f"settings are parameters of {owner.__name__}" if cls._with_settings else None
