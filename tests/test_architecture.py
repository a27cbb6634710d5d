"""The rooms of the package: imports point one way, and no name starts a private life elsewhere."""

import ast
import functools
import re
from pathlib import Path

import sklearn_dpsco

ROOT = Path(sklearn_dpsco.__file__).parent

# From the ground up. A module imports from its own room and from those above it in this list.
ROOMS = [
    ["exceptions", "_checks", "_types", "_overview"],
    ["_progress"],
    ["losses"],
    ["_kernels"],
    ["geometry", "randomness", "estimates"],
    ["data"],
    ["privacy"],
    ["mechanisms"],
    ["solvers"],
    ["_fitting"],
    ["preprocessing"],
    ["means", "moments", "metrics", "audit", "estimators", "model_selection"],
    ["inspection", "compilation"],
    [""],
]
# Within a room whose order matters.
ORDERED = {
    "privacy": [
        "selections",
        "budget",
        "sampling",
        "events",
        "report",
        "guarantee",
        "branches",
        "ledger",
        "accountant",
    ],
    "preprocessing": ["schema", "declared", "scaler", "encoder", "leaks"],
    "geometry": ["mirror_maps", "sets"],
    "data": ["compressed", "cells", "rows", "bounds"],
}
# Of other libraries: who may import what, wherever in the file.
ONLY = {
    "dp_accounting": {"privacy.events"},
    "attr": {"privacy.events"},
    "cryptography": {"randomness.stream"},
    "matplotlib": {"_checks"},
    "numba": {"_kernels"},
    "tqdm": {"_progress"},
    "sklearn": {
        "_fitting",
        "audit",
        "compilation",
        "data.cells",
        "estimators",
        "inspection",
        "metrics",
        "model_selection",
        "moments",
        "preprocessing",
        "solvers.base",
    },
}


@functools.cache
def modules():
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).replace(".__init__", ""): path
        for path in ROOT.rglob("*.py")
    }


@functools.cache
def statements(path):
    """Imports and calls of a file."""
    nodes = ast.walk(ast.parse(path.read_text()))
    return [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom | ast.Call)]


def imports(name, path):
    """The modules of the package, and the names from them, that a module imports anywhere."""
    known = modules()
    is_package = path.name == "__init__.py"
    parts = [] if name == "__init__" else name.split(".")
    for node in statements(path):
        if isinstance(node, ast.ImportFrom) and node.level:
            up = node.level - (1 if is_package else 0)
            base = ".".join(parts[: len(parts) - up] + (node.module or "").split(".")).strip(".")
            for alias in node.names:
                deep = f"{base}.{alias.name}".strip(".")
                yield (deep, None) if deep in known else (base, alias.name)


def foreign(path):
    for node in statements(path):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module.partition(".")[0]


def rank(name):
    room = "" if name == "__init__" else name.partition(".")[0]
    return next(k for k, rooms in enumerate(ROOMS) if room in rooms)


@functools.cache
def graph():
    return {
        name: {base for base, _ in imports(name, path) if base != name}
        for name, path in modules().items()
    }


def test_every_module_is_in_a_room():
    for name in modules():
        rank(name)
    assert {"estimators._base", "privacy.budget", "solvers.statistics"} <= set(modules())


def test_imports_point_one_way():
    for name, base in ((name, base) for name, bases in graph().items() for base in bases):
        room, other = name.partition(".")[0], base.partition(".")[0]
        assert room == other or rank(base) < rank(name), f"{name} imports {base}"
        order = ORDERED.get(room, []) if room == other else []
        short, other_short = name.partition(".")[2], base.partition(".")[2]
        if short in order and other_short in order:
            assert order.index(other_short) < order.index(short), f"{name} imports {base}"


def test_there_is_no_circle():
    left = {name: set(bases) & set(graph()) for name, bases in graph().items()}
    while True:
        free = [name for name, bases in left.items() if not bases]
        if not free:
            break
        for name in free:
            del left[name]
        for bases in left.values():
            bases -= set(free)
    assert not left


def test_no_private_name_is_taken_from_another_module():
    for name, path in modules().items():
        for base, taken in imports(name, path):
            is_private = (taken or "").startswith("_") and not taken.startswith("__")
            assert not is_private, f"{name} takes {taken} from {base}"


def test_libraries_are_imported_in_one_place():
    for name, path in modules().items():
        for library in foreign(path):
            allowed = ONLY.get(library)
            assert allowed is None or any(
                name == room or name.startswith(room + ".") for room in allowed
            ), f"{name} imports {library}"


def test_what_takes_long_to_import_is_imported_by_who_needs_it():
    for name, path in modules().items():
        if not name.startswith("_kernels.") or name == "_kernels.arguments":
            for base in re.findall(r"(?m)^(?:from|import) +\.*([\w.]*)", path.read_text()):
                is_slow = base.partition(".")[0] in ("numba", "tqdm", "matplotlib", "_kernels")
                assert not is_slow or base == "_kernels.arguments", f"{name} imports {base}"


def test_nobody_asks_what_kind_a_mechanism_is():
    kinds = {"AdditiveNoise", "Gaussian", "Laplace", "SelectVertex", "GeneralizedGaussian"}
    kinds |= {"PrefixSum", "BatchGaussian", "Mechanism"}
    for name, path in modules().items():
        if name.startswith("mechanisms"):
            continue
        for node in statements(path):
            is_question = isinstance(node, ast.Call) and getattr(node.func, "id", "") in (
                "isinstance",
                "issubclass",
            )
            if is_question:
                asked = {leaf.id for leaf in ast.walk(node) if isinstance(leaf, ast.Name)}
                assert not asked & kinds, f"{name}:{node.lineno}"


def test_the_rules_can_be_broken(tmp_path):
    # the tests above would see a wrong import
    bad = tmp_path / "bounds.py"
    bad.write_text("from ..privacy.budget import _secret\n")
    assert list(imports("data.bounds", bad)) == [("privacy.budget", "_secret")]
    assert rank("privacy.budget") > rank("data.bounds")
