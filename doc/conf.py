"""Sphinx configuration: `python -m sphinx -W --keep-going -b html doc doc/_build/html`."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import sklearn_dpsco

project = "sklearn_dpsco"
author = "The sklearn_dpsco developers"
copyright = author
version = release = sklearn_dpsco.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "numpydoc",
]
exclude_patterns = ["_build", "**.ipynb_checkpoints"]
default_role = "literal"
html_theme = "alabaster"
html_theme_options = {
    "description": "Linear models trained under differential privacy",
    "fixed_sidebar": True,
    "page_width": "1100px",
}

autosummary_generate = False
autodoc_typehints = "none"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

# The gallery is built where there are examples to build it from.
_examples = Path(__file__).parent.parent / "examples"
_has_examples = any(_examples.glob("plot_*.py"))
_has_header = any((*_examples.glob("GALLERY_HEADER.*"), *_examples.glob("README.*")))
if _has_examples and _has_header and importlib.util.find_spec("sphinx_gallery"):
    extensions.append("sphinx_gallery.gen_gallery")
    sphinx_gallery_conf = {
        "examples_dirs": "../examples",
        "gallery_dirs": "auto_examples",
        "filename_pattern": r"plot_",
        "abort_on_example_error": True,
    }
else:
    exclude_patterns.append("auto_examples")


def _add_gallery(app, docname, source):
    if docname == "index" and "sphinx_gallery.gen_gallery" in extensions:
        source[0] += "\n.. toctree::\n   :maxdepth: 1\n\n   auto_examples/index\n"


def setup(app):
    app.connect("source-read", _add_gallery)
