"""The docstrings of the estimators: complete, in order, each text in one place."""

import ast
import inspect
import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import MetaEstimatorMixin, is_regressor

import sklearn_dpsco
from sklearn_dpsco.estimators import _base
from sklearn_dpsco.estimators._public import FILE_NOTE, entries, merged, sections

PUBLIC = [getattr(sklearn_dpsco, name) for name in sklearn_dpsco.__all__]
ESTIMATORS = [
    kind for kind in PUBLIC if hasattr(kind, "predict") and not issubclass(kind, MetaEstimatorMixin)
]

DIRECTORY = Path(_base.__file__).parent
SOURCES = {path.stem: ast.parse(path.read_text()) for path in sorted(DIRECTORY.glob("*.py"))}
WRITTEN = {
    (module, node.name): sections(ast.get_docstring(node))
    for module, tree in SOURCES.items()
    for node in tree.body
    if isinstance(node, ast.ClassDef) and module != "_public"
}


def documented(estimator, title):
    lines = sections(estimator.__doc__)[title]
    found = entries(lines)
    headers = [header for header, _ in found.values()]
    assert [line for line in lines if line[:1].strip()] == list(dict.fromkeys(headers))  # once
    return found


def fitted(estimator, *, data_frame=False):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (60, 3))
    # counts and costs are above 0
    y = np.abs(X[:, 0]) if is_regressor(estimator()) else np.where(X[:, 0] > 0, "a", "b")
    X = pd.DataFrame(X, columns=["u", "v", "w"]) if data_frame else X
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # undeclared bounds, delta
        return estimator(random_state=0).fit(X, y)


def test_there_are_fifteen_estimators():
    assert len(ESTIMATORS) == 15


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_each_parameter_once_in_order_of_the_signature(estimator):
    found = documented(estimator, "Parameters")
    names = list(found)
    assert names == list(inspect.signature(estimator).parameters)
    for header, text in found.values():
        assert " : " in header
        assert "".join(text).strip(), header
        assert not any(line.strip().startswith("... ") for line in text), header
        assert "..." not in map(str.strip, text), header


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_stated_defaults_are_those_of_the_signature(estimator):
    defaults = inspect.signature(estimator).parameters
    for name, (header, _) in documented(estimator, "Parameters").items():
        stated = re.search(r"default=(.+)$", header)
        assert stated, header
        assert ast.literal_eval(stated[1]) == defaults[name].default, header


@pytest.mark.parametrize("data_frame", [False, True])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_fitted_attributes_are_those_documented(estimator, data_frame):
    names = list(documented(estimator, "Attributes"))
    assert len(names) == len(set(names))
    model = fitted(estimator, data_frame=data_frame)
    expected = set(names) - (set() if data_frame else {"feature_names_in_"})
    expected -= {"coef_std_", "coef_cov_"}  # of fits with inference=True
    assert {name for name in vars(model) if name.endswith("_")} == expected


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_whole_docstring(estimator):
    found = sections(estimator.__doc__)
    assert found[""][0].endswith(".")
    assert FILE_NOTE not in estimator.__doc__
    titles = [title for title in found if title not in ("", "Examples")]
    assert titles == ["Parameters", "Attributes", "Notes", "References"]
    assert all(len(line) <= 96 for line in estimator.__doc__.splitlines())


def test_nothing_is_described_that_no_estimator_has():
    of_class = {kind.__name__: set() for estimator in ESTIMATORS for kind in estimator.__mro__}
    for estimator in ESTIMATORS:
        for kind in estimator.__mro__:
            of_class[kind.__name__] |= set(inspect.signature(estimator).parameters)
    for (_, name), found in WRITTEN.items():
        if name in of_class:
            assert entries(found.get("Parameters", [])).keys() <= of_class[name], name


@pytest.mark.parametrize("algorithm", sorted(set(SOURCES) - {"_base", "_public", "__init__"}))
def test_no_text_is_written_twice(algorithm):
    seen = set()
    for (module, name), found in WRITTEN.items():
        if module in (algorithm, "_base"):
            items = [*entries(found.get("Parameters", [])).values()]
            items += entries(found.get("Attributes", [])).values()
            for header, lines in dict(items).items():  # several names may share a header
                text = " ".join(lines).strip()
                assert text not in seen, f"{name}: {header}"
                seen |= {text} - {"..."}


# -------------------------------------------------------------------- how they are merged


class Base:
    """Base.

    Parameters
    ----------
    a : int
        Of the base.
    b : int
        Of the base, too.

        In two paragraphs.

    Attributes
    ----------
    n_ : int
        Number.

    Notes
    -----
    Of the base.
    """


class Mixin:
    """Mixin.

    Parameters
    ----------
    b : float
        ... And of the mixin.

    Attributes
    ----------
    n_ : float
        ...
    x_, y_ : float or None
        Both.
    """


class Whole(Mixin, Base):
    """Whole.

    Second paragraph.

    Parameters that are not described here: see `Mixin`
    and `Base`.

    Parameters
    ----------
    c : str
        Its own.

    Attributes
    ----------
    coef_ : float

    Examples
    --------
    >>> 1
    1
    """

    def __init__(self, c, b, unknown, a):
        pass


MERGED = """Whole.

Second paragraph.

Parameters
----------
c : str
    Its own.
b : float
    Of the base, too.

    In two paragraphs.
    And of the mixin.
a : int
    Of the base.

Attributes
----------
coef_ : float
x_, y_ : float or None
    Both.
n_ : float
    Number.

Notes
-----
Of the base.

Examples
--------
>>> 1
1
"""


def test_merged():
    assert merged(Whole) == MERGED


def test_merged_without_docstring():
    class Bare(Whole):
        def __init__(self, a):
            pass

    assert merged(Bare) is None


def test_the_docstring_of_a_users_subclass_is_left_alone():
    class Mine(sklearn_dpsco.DPLassoFW):
        """Mine."""

        def __init__(self, *, epsilon=1.0, own=0):
            super().__init__(epsilon=epsilon)
            self.own = own

    class Silent(sklearn_dpsco.DPLassoFW):
        pass

    assert (Mine.__doc__, Silent.__doc__) == ("Mine.", None)
    assert (Mine(epsilon=2.0).epsilon, Mine().own) == (2.0, 0)


@pytest.mark.slow
def test_docstrings_that_python_strips():
    program = (
        "import sklearn_dpsco as s; print(s.DPLassoFW.__doc__, s.HeavyTailDPClassifier().loss)"
    )
    done = subprocess.run(
        [sys.executable, "-OO", "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["None", "logistic"]
