"""Text tables without a download: first paragraphs of the docstrings of installed packages.

    python benchmarks/texts.py FOLDER                   docstrings*.npz in FOLDER
    python benchmarks/texts.py FOLDER --packages numpy scipy
    python benchmarks/texts.py FOLDER --reference       scores of linear models without privacy, too
    python benchmarks/texts.py FOLDER --vocabulary      a private vocabulary beside hashed words,
                                                        with several kinds of users; no files

A row is a function, method or class, read by `ast` (nothing is imported or run); of several
with the same paragraph one is kept. Its words are hashed to 2^16 columns of zeros and ones: the
vocabulary is the hash function, a public one. Three tables with the same rows, shuffled:

docstrings        classification: whether it belongs to a class (a class or a method) or is a
                  function of a module
docstrings_reg    regression: log10 of the lines of its source, without the docstring's, clipped to
                  (0, 2.5) and scaled to [-1, 1]
docstrings_multi  several classes: the package that it comes from

Arrays of a file: `indices`, `indptr`, `shape`, `y`, `task`; all stored values are 1. The rows
depend on the versions of the packages, so compare scores of one file only.
"""

from __future__ import annotations

import argparse
import ast
import math
import re
import sys
import sysconfig
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.feature_extraction.text import HashingVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import roc_auc_score

from sklearn_dpsco import DPLogisticRegression, PrivateVocabulary

PACKAGES = (
    "stdlib", "numpy", "scipy", "sklearn", "pandas", "matplotlib", "statsmodels", "sphinx", "numba",
    "docutils", "setuptools", "pip", "polars", "mypy", "fontTools",
)  # fmt: skip
LARGEST_LOG = 2.5  # of the lines of a source, base 10
COLUMNS = 2**16


class Docstring(NamedTuple):
    package: int
    module: int  # a number for each file
    in_class: bool
    n_lines: int  # without the docstring's own
    text: str


def folder_of(package: str) -> Path | None:
    """Where the sources of a package are, without importing it; None if it is not installed."""
    if package == "stdlib":
        return Path(sysconfig.get_paths()["stdlib"])
    spec = find_spec(package)
    return Path(spec.origin).parent if spec and spec.origin else None


def sources(folder: Path) -> Iterator[Path]:
    """The modules below a folder, without tests and without other packages."""
    for path in sorted(folder.rglob("*.py")):
        inner = path.relative_to(folder).parts
        if not {"tests", "test", "site-packages", "idlelib"} & set(inner):
            yield path


def paragraphs(
    tree: ast.AST, package: int, module: int, in_class: bool = False
) -> Iterator[Docstring]:
    """The first paragraph of each docstring below a node."""
    for node in ast.iter_child_nodes(tree):
        is_class = isinstance(node, ast.ClassDef)
        if is_class or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            text = ast.get_docstring(node) or ""
            first = re.split(r"\n\s*\n", text)[0]
            if len(re.findall(r"[A-Za-z]{2,}", first)) >= 4:
                n_lines = (node.end_lineno or 0) - node.lineno - text.count("\n")
                yield Docstring(package, module, in_class or is_class, max(1, n_lines), first)
        yield from paragraphs(node, package, module, is_class)


def docstrings(packages: list[str]) -> list[Docstring]:
    """All of the packages, one of each paragraph, in a random order."""
    found: dict[str, Docstring] = {}
    modules = count()
    for number, package in enumerate(packages):
        folder = folder_of(package)
        for path in sources(folder) if folder else ():
            try:
                tree = ast.parse(path.read_bytes())
            except (SyntaxError, ValueError):  # of templates
                continue
            for one in paragraphs(tree, number, next(modules)):
                found.setdefault(one.text, one)
    rows = list(found.values())
    return [rows[i] for i in np.random.default_rng(0).permutation(len(rows))]


def hashed(texts: list[str]) -> sparse.csr_matrix:
    """Zeros and ones, shape (n, 2^16)."""
    words = HashingVectorizer(
        n_features=COLUMNS, binary=True, norm=None, alternate_sign=False, token_pattern=r"[a-z]{2,}"
    )
    X = words.transform(texts)
    X.sort_indices()
    return X


def tables(rows: list[Docstring]) -> dict[str, tuple[Any, str]]:
    """Targets and task by the name of the file."""
    lines = np.array([min(math.log10(row.n_lines), LARGEST_LOG) for row in rows])
    return {
        "docstrings": (np.array([row.in_class for row in rows], dtype=np.int8), "clf"),
        "docstrings_reg": ((2 * lines / LARGEST_LOG - 1).astype(np.float32), "reg"),
        "docstrings_multi": (np.array([row.package for row in rows], dtype=np.int8), "multi"),
    }


def reference(X: Any, y: Any, task: str) -> str:
    """The score of a linear model without privacy on the last quarter."""
    from utility import scores

    cut = int(0.75 * len(y))
    model = Ridge(10.0) if task == "reg" else LogisticRegression(C=0.3, max_iter=300)
    found = scores(model.fit(X[:cut], y[:cut]), X[cut:], y[cut:], task)
    return "/".join(f"{value:.3f}" for value in found)


def compare_vocabularies(rows: list[Docstring], seeds: int = 5) -> None:
    """AUC ("docstrings") on the last quarter at epsilon = 1, 3, 8, zero-out, delta = 1e-6.

    A third of epsilon is for the vocabulary. Of a user with several rows, 20 count.
    """
    y, cut = np.array([row.in_class for row in rows]), int(0.75 * len(rows))
    texts = [row.text for row in rows]
    words = {"token_pattern": r"[a-z]{2,}", "binary": True}
    hashed_words = HashingVectorizer(n_features=COLUMNS, alternate_sign=False, **words)
    users = {
        "rows": (np.arange(len(rows)), 1),
        "modules": (np.array([row.module for row in rows]), 20),
        "packages": (np.array([row.package for row in rows]), 20),
    }
    for name, (user, most) in users.items():
        claim = {"relation": "zero-out", "delta": 1e-6, "max_rows_per_user": most}
        print(f"{name} as users: {len(np.unique(user[:cut]))}")
        for epsilon in (1.0, 3.0, 8.0):
            found: list[tuple[float, float, int]] = []
            for seed in range(seeds):
                aucs, size = [], 0
                for share in (0.0, 1 / 3):
                    vectorizer: Any = hashed_words
                    if share:
                        vectorizer = PrivateVocabulary(
                            TfidfVectorizer(use_idf=False, **words),
                            epsilon=share * epsilon, random_state=seed, **claim,
                        ).fit(texts[:cut], groups=user[:cut]).vectorizer_  # fmt: skip
                        size = 0 if vectorizer is None else len(vectorizer.vocabulary)
                    if vectorizer is None:
                        aucs.append(0.5)
                        continue
                    model = DPLogisticRegression(
                        epsilon=(1 - share) * epsilon,
                        bounds_X=vectorizer,
                        classes=[False, True],
                        random_state=seed,
                        **claim,
                    )
                    model.fit(vectorizer.transform(texts[:cut]), y[:cut], groups=user[:cut])
                    scores = model.decision_function(vectorizer.transform(texts[cut:]))
                    aucs.append(float(roc_auc_score(y[cut:], scores)))
                found.append((aucs[0], aucs[1], size))
            hashing, vocabulary, size = np.median(found, axis=0)
            print(
                f"  epsilon {epsilon:g}: hashed {hashing:.3f}, vocabulary {vocabulary:.3f} "
                f"({size:.0f} words)",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--packages", nargs="+", default=list(PACKAGES))
    parser.add_argument("--reference", action="store_true")
    parser.add_argument("--vocabulary", action="store_true")
    arguments = parser.parse_args()
    installed = [name for name in arguments.packages if folder_of(name)]
    rows = docstrings(installed)
    if arguments.vocabulary:
        warnings.simplefilter("ignore")
        return compare_vocabularies(rows)
    X = hashed([row.text for row in rows])
    counts = np.bincount([row.package for row in rows])
    print(f"{X.shape[0]} rows, {X.nnz / X.shape[0]:.1f} words a row, Python {sys.version[:6]}")
    print(", ".join(f"{name} {count}" for name, count in zip(installed, counts, strict=True)))
    for name, (y, task) in tables(rows).items():
        arrays = {"indices": X.indices, "indptr": X.indptr, "shape": X.shape, "y": y, "task": task}
        np.savez_compressed(arguments.folder / f"{name}.npz", **arrays)
        print(name, task, reference(X, y, task) if arguments.reference else "", flush=True)


if __name__ == "__main__":
    main()
