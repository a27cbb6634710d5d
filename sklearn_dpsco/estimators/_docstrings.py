"""Complete docstrings of the estimators, put together from those of their classes.

A parameter or an attribute is described once, in the docstring of the class that owns it:
`DPLinearModel`, `DPRegressor` or `DPClassifier`, the mixin of an algorithm, or the concrete
class. All of them are numpydoc. When a concrete class is created, `merged` makes the text
that `help` and the built pages show.
"""

from __future__ import annotations

import inspect
from typing import NamedTuple

__all__ = ["FILE_NOTE", "Entry", "entries", "merged", "sections"]

# A paragraph of a class that begins like this is for readers of the file only.
FILE_NOTE = "Parameters that are not described here:"

# Begins a text that continues the text of the same name in a base class.
_CONTINUED = "..."

_FIRST_ATTRIBUTES = ("coef_", "intercept_", "classes_")


class Entry(NamedTuple):
    """One item of a section, such as ``scale_X_, center_X_ : ndarray`` and its text.

    Attributes
    ----------
    names : tuple of str
    header : str
        The first line.
    text : list of str
        The lines that follow, indented, without blank lines at the end.
    """

    names: tuple[str, ...]
    header: str
    text: list[str]


def sections(docstring: str | None) -> dict[str, list[str]]:
    """The lines of each section by its title; "" stands for what precedes the first one."""
    lines = inspect.cleandoc(docstring or "").splitlines()
    found: dict[str, list[str]] = {"": []}
    title = ""
    for k, line in enumerate(lines):
        if k + 1 < len(lines) and line and lines[k + 1] == "-" * len(line):
            title = line
            found[title] = []
        elif not (title and not found[title] and line == "-" * len(title)):
            found[title].append(line)
    return {name: _without_blank_end(part) for name, part in found.items()}


def entries(lines: list[str]) -> list[Entry]:
    """The items of a section of parameters or attributes."""
    found: list[Entry] = []
    for line in lines:
        if line and not line[0].isspace():
            names = tuple(name.strip() for name in line.partition(" : ")[0].split(","))
            found.append(Entry(names, line, []))
        elif found:
            found[-1].text.append(line)
    return [Entry(names, header, _without_blank_end(text)) for names, header, text in found]


def merged(cls: type) -> str | None:
    """The complete docstring of an estimator's class; None under ``python -OO``.

    The parameters come in the order of `__init__`, each from the first class in the MRO that
    describes it. A text that begins with ``...`` continues the one of the next class. Notes
    and References are those of the first class that has them.
    """
    if vars(cls).get("__doc__") is None:
        return None
    parts = [sections(vars(kind).get("__doc__")) for kind in cls.__mro__ if _is_ours(kind)]
    parameters = [name for name in inspect.signature(cls).parameters if name != "self"]
    lines = _summary(parts[0])
    lines += _section("Parameters", _described(parts, "Parameters", parameters))
    lines += _section("Attributes", _described(parts, "Attributes", _attributes(parts)))
    for title in ("Notes", "References"):
        lines += _section(title, next((part[title] for part in parts if title in part), []))
    lines += _section("Examples", parts[0].get("Examples", []))
    return "\n".join(lines) + "\n"


def _is_ours(kind: type) -> bool:
    """Whether it is neither of scikit-learn nor built in."""
    return kind.__module__.partition(".")[0] not in ("sklearn", "builtins")


def _summary(part: dict[str, list[str]]) -> list[str]:
    paragraphs = "\n".join(part[""]).split("\n\n")
    kept = [text for text in paragraphs if not text.startswith(FILE_NOTE)]
    return "\n\n".join(kept).splitlines()


def _section(title: str, lines: list[str]) -> list[str]:
    return ["", title, "-" * len(title), *lines] if lines else []


def _attributes(parts: list[dict[str, list[str]]]) -> list[str]:
    """All documented attributes: the model, what the algorithm adds, and what all have."""
    owners: dict[str, int] = {}
    for k, part in reversed(list(enumerate(parts))):
        for entry in entries(part.get("Attributes", [])):
            for name in entry.names:
                owners.setdefault(name, k)
    return sorted(owners, key=lambda name: (name not in _FIRST_ATTRIBUTES, owners[name]))


def _described(parts: list[dict[str, list[str]]], title: str, names: list[str]) -> list[str]:
    """Headers and texts of the names; one that is described nowhere is left out."""
    by_class = [
        {name: entry for entry in entries(part.get(title, [])) for name in entry.names}
        for part in parts
    ]
    lines: list[str] = []
    done: set[str] = set()
    for name in names:
        found = [described[name] for described in by_class if name in described]
        if found and name not in done:
            lines += [found[0].header, *_whole_text(found)]
            done |= set(found[0].names)
    return lines


def _whole_text(found: list[Entry]) -> list[str]:
    """The text of the first entry, after those that it continues."""
    text = found[0].text
    if not text or not text[0].lstrip().startswith(_CONTINUED):
        return text
    indent, _, rest = text[0].partition(_CONTINUED)
    own = [indent + rest.lstrip(), *text[1:]] if rest.strip() else text[1:]
    return [*_whole_text(found[1:]), *own]


def _without_blank_end(lines: list[str]) -> list[str]:
    while lines and not lines[-1].strip():
        lines = lines[:-1]
    return lines
