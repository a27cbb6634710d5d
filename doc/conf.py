"""Sphinx configuration: `python -m sphinx -W --keep-going -b html doc doc/_build/html`.

The pages need no network: formulas, fonts and scripts lie beside them. `-D plot_gallery=0` builds
without running the examples.
"""

from __future__ import annotations

import re
from pathlib import Path

from sklearn.utils.discovery import all_estimators
from sphinx.addnodes import pending_xref
from sphinx_gallery.sorting import ExplicitOrder

import sklearn_dpsco

project = "sklearn_dpsco"
author = "The sklearn_dpsco developers"
copyright = author
version = release = sklearn_dpsco.__version__
_citation = Path(__file__).parent.parent.joinpath("CITATION.cff").read_text()

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "myst_parser",
    "numpydoc",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "sphinxcontrib.katex",
]
exclude_patterns = ["_build", "_templates", "**.ipynb_checkpoints"]
templates_path = ["_templates"]

# `DPMirrorRegressor` is a link to its page; what names no object is shown as a literal.
default_role = "py:obj"
rst_prolog = ".. currentmodule:: sklearn_dpsco\n"

autosummary_generate = True
autodoc_typehints = "none"
toc_object_entries_show_parents = "hide"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

# Where a site is out of reach, an inventory of nothing: names that it has are literals, not links.
_nothing = "empty.inv"
intersphinx_mapping = {
    "python": ("https://docs.python.org/3/", (None, _nothing)),
    "numpy": ("https://numpy.org/doc/stable/", (None, _nothing)),
    "scipy": ("https://docs.scipy.org/doc/scipy/", (None, _nothing)),
    "sklearn": ("https://scikit-learn.org/stable/", (None, _nothing)),
    "pandas": ("https://pandas.pydata.org/docs/", (None, _nothing)),
    "dask": ("https://docs.dask.org/en/stable/", (None, _nothing)),
}
intersphinx_timeout = 5

# KaTeX's script comes with the extension, its style and fonts (npm package katex 0.16.22) lie here.
katex_css_path = "katex/katex.min.css"
html_static_path = ["_static"]
html_css_files = ["custom.css"]

html_theme = "pydata_sphinx_theme"
html_title = "sklearn_dpsco"
html_show_sourcelink = False
_alone = "index install faq glossary papers benchmarks extending changelog citation"
html_sidebars = {page: [] for page in _alone.split()}
html_theme_options = {
    "logo": {"text": "sklearn_dpsco"},
    "header_links_before_dropdown": 6,
    "navigation_with_keys": False,
    "show_nav_level": 1,
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"plot_",
    "abort_on_example_error": True,
    "within_subsection_order": ExplicitOrder(
        ["plot_quickstart.py", "plot_tutorial.py", "plot_workflow.py", "plot_pipeline.py", "*"]
    ),
    "backreferences_dir": "generated/backreferences",
    "doc_module": ("sklearn_dpsco",),
    "reference_url": {"sklearn_dpsco": None},
    "inspect_global_variables": False,
    "write_computation_times": False,
}


def _public_address(estimator):
    """`sklearn.decomposition.PCA` of the class that lies in `sklearn.decomposition._pca`."""
    return re.sub(r"\._.*", "", estimator.__module__) + "." + estimator.__name__


_elsewhere = {name: _public_address(estimator) for name, estimator in all_estimators()}
_elsewhere["Pipeline"] = "sklearn.pipeline.Pipeline"


def _find_bare_names(app, doctree):
    """`Polytope` and `PCA` need no module before them to be links, here and in scikit-learn."""
    for node in doctree.findall(pending_xref):
        target = node["reftarget"]
        if node["reftype"] != "obj" or node["refdomain"] != "py":
            continue
        if target in _elsewhere:
            node["reftarget"] = _elsewhere[target]
        elif target in sklearn_dpsco.__all__ or re.fullmatch(r"(\w+\.)*[A-Z]\w+(\.\w+)?", target):
            node["refspecific"] = True


def _inherited_as_text(app, env, node, contnode):
    """References of docstrings that come from scikit-learn, where its inventory is out of reach."""
    return contnode if "docstring of sklearn." in (node.source or "") else None


def _fill_in_citation(app, page, content):
    """Fields of CITATION.cff in the place of `|url|` and the like."""
    if page == "citation":
        facts = dict(re.findall(r'^(\w+): "?(.*?)"?$', _citation, re.M))
        facts |= {"author": author, "year": re.search(r"date-released: (\d+)", _citation)[1]}
        content[0] = re.sub(r"\|(\w+)\|", lambda field: facts[field[1]], content[0])


def setup(app):
    app.connect("source-read", _fill_in_citation)
    app.connect("doctree-read", _find_bare_names)
    app.connect("missing-reference", _inherited_as_text, priority=900)  # after intersphinx
