"""What a type checker says of a user's program, and that it agrees with the checks at run time."""

import inspect
import re
from typing import get_args, get_type_hints

import pytest

from sklearn_dpsco import (
    DPFTRLClassifier,
    DPFTRLRegressor,
    DPGridSearchCV,
    DPLassoFW,
    DPLassoFWClassifier,
    DPLinearRegression,
    DPLogisticRegression,
    DPMirrorClassifier,
    DPMirrorRegressor,
    DPPhasedSGDClassifier,
    DPPhasedSGDRegressor,
    HeavyTailDPClassifier,
    HeavyTailDPRegressor,
    PrivacyBudget,
    PublicEncoder,
    _types,
    solvers,
)
from sklearn_dpsco.geometry import L2Ball
from sklearn_dpsco.metrics.releases import SCORINGS

LINEAR = [
    DPFTRLClassifier,
    DPFTRLRegressor,
    DPLassoFW,
    DPLassoFWClassifier,
    DPLinearRegression,
    DPLogisticRegression,
    DPMirrorClassifier,
    DPMirrorRegressor,
    DPPhasedSGDClassifier,
    DPPhasedSGDRegressor,
    HeavyTailDPClassifier,
    HeavyTailDPRegressor,
]
SOLVERS = [getattr(solvers, name) for name in solvers.__all__]

PROGRAM = """
import numpy as np
from sklearn_dpsco import *
from sklearn_dpsco.geometry import L1Ball, L2Ball
from sklearn_dpsco.losses import Huber
from sklearn_dpsco.solvers import *

X, y = np.zeros((10, 2)), np.zeros(10)
accountant, encoder = BudgetAccountant(1.0), PublicEncoder({"a": (0, 1)})
reveal_type(DPMirrorRegressor(bounds_X=(0, 1), bounds_y=(0, 10), accountant=accountant).fit(X, y))
reveal_type(DPMirrorClassifier(bounds_X={"a": (0, 1)}, classes=["no", "yes"]).fit(X, y))
reveal_type(DPLassoFW(loss=Huber(0.2), solver="selection").fit(X, y))
reveal_type(DPLassoFW(solver=Selection(max_iter=20), feasible_set=L1Ball(2.0)).fit(X, y))
reveal_type(DPLassoFWClassifier(bounds_X=encoder, class_weight="balanced").fit(X, y))
reveal_type(DPLinearRegression(bounds_X=(0, 1), bounds_y=(0, 10)).fit(X, y))
reveal_type(DPLogisticRegression(classes=[0, 1]).fit(X, y))
DPLogisticRegression(classes=[0, 1], inference=True).plan(9000, 2).power(0.2, prevalence=0.1)
reveal_type(DPPhasedSGDRegressor(feasible_set="unconstrained").fit(X, y))
reveal_type(DPPhasedSGDClassifier(loss="hinge", bounds_X=([0, 0], [1, 2])).fit(X, y))
reveal_type(DPFTRLRegressor(horizon=1000).partial_fit(X, y))
reveal_type(DPFTRLClassifier(nonfinite="zero").fit(X, y))
reveal_type(HeavyTailDPRegressor(scale_X=[1.0, 2.0], scale_y=3.0).fit(X, y))
reveal_type(HeavyTailDPClassifier(delta=0.0).fit(X, y))
reveal_type(DPScaler(relation="zero-out").fit(X))
reveal_type(PrivateMoments(bounds_X=(0, 1)).fit(X))
reveal_type(PublicEncoder({"a": (0, 1)}, missing="indicator").fit(X))
reveal_type(PublicEncoder({"a": (0, 1), "b": bool}, missing={"a": 0.2, "b": "zero"}).fit(X))
reveal_type(DPGridSearchCV(DPLassoFW(), {"feasible_set": [L2Ball(1.0)]}, scoring="auto").fit(X, y))
reveal_type(DPRandomizedSearchCV(DPLassoFW(), {"feasible_set": [L2Ball(1.0)]}).fit(X, y))
dp_score(DPLassoFW().fit(X, y), X, y, scoring=["r2", "neg_mean_squared_error"], random_state=0)
"""
WRONG = """
from sklearn_dpsco import *; from sklearn_dpsco.geometry import L1Ball
from sklearn_dpsco.solvers import SCOF
DPMirrorRegressor(relation="replace_one")
DPMirrorRegressor(solver="saga")
DPMirrorRegressor(loss="logistic")
DPMirrorRegressor(precision="double")
DPLassoFWClassifier(nonfinite="ignore")
DPLassoFWClassifier(solver="noisy-md")
DPGridSearchCV(DPLassoFW(), {}, scoring="r2")
BudgetAccountant(1.0, relation="add-remove")
HeavyTailDPRegressor(solver=SCOF(oracle="median"))
DPLassoFW(solver=L1Ball(1.0))
DPMirrorRegressor(feasible_set=L1Ball)
PublicEncoder({}, missing="drop")
PublicEncoder({}, missing=0.5)
PublicEncoder({}, missing={"a": "drop"})
"""


@pytest.mark.slow
def test_what_mypy_says(tmp_path):
    api = pytest.importorskip("mypy.api")

    def lines(source):
        file = tmp_path / "program.py"
        file.write_text(source)
        options = ["--ignore-missing-imports", "--python-version", "3.12", "--no-color-output"]
        out, errors, _ = api.run([*options, "--cache-dir", str(tmp_path / "cache"), str(file)])
        assert not errors
        return out.splitlines()

    said = lines(PROGRAM)
    assert not [line for line in said if "error" in line]
    revealed = [re.search(r'type is "(.*)"', line) for line in said if "note" in line]
    built = re.findall(r"reveal_type\((\w+)\(", PROGRAM)
    assert [match[1].rpartition(".")[2] for match in revealed] == built
    refused = [re.search(r":(\d+): error", line) for line in lines(WRONG)]
    n_lines = len(WRONG.splitlines())  # the first is empty, then two of imports
    assert {int(match[1]) for match in refused if match} == set(range(4, n_lines + 1))


def names_in(hint):
    """All strings that a hint allows."""
    parts = get_args(hint)
    own = {part for part in parts if isinstance(part, str)}
    return own.union(*(names_in(part) for part in parts if not isinstance(part, str)))


@pytest.mark.parametrize("kind", LINEAR, ids=lambda kind: kind.__name__)
@pytest.mark.filterwarnings("ignore")
def test_names_are_those_that_an_estimator_takes(kind):
    hints = get_type_hints(kind.__init__)
    for name in inspect.signature(kind).parameters:
        allowed = names_in(hints[name])
        for value in allowed:
            # what a name asks for beside itself
            more = {"fit_intercept": False} if value == "simplex" else {}
            kind(**more, **{name: value})._settings()
        if name in ("solver", "units", "relation", "nonfinite"):
            with pytest.raises(ValueError, match=name) as raised:
                kind(**{name: "nothing"})._settings()
            assert set(re.findall(r"'([\w-]+)'", str(raised.value))) - {"nothing"} == allowed


@pytest.mark.parametrize("kind", SOLVERS, ids=lambda kind: kind.__name__)
def test_names_are_those_that_a_solver_takes(kind):
    hints = get_type_hints(kind.__init__)
    for name in inspect.signature(kind).parameters:
        allowed = names_in(hints[name])
        for value in allowed:
            kind(**{name: value}).resolved()
        with pytest.raises(ValueError, match=name) as raised:
            kind(**{name: "nothing"}).resolved()
        assert set(re.findall(r"'([\w-]+)'", str(raised.value))) - {"nothing"} == allowed


def test_names_are_those_that_other_signatures_take():
    assert set(get_args(_types.Scoring)) == set(SCORINGS)
    for precision in get_args(_types.Precision):
        PrivacyBudget(1.0, precision=precision)
    for missing in get_args(_types.Missing):
        for unknown in get_args(_types.Unknown):
            for outside in get_args(_types.Outside):
                facts = {"missing": missing, "unknown": unknown, "outside": outside}
                PublicEncoder({"a": (0, 1)}, **facts).fit()
    bounded = {"bounds_X": (0, 1), "epsilon": 4.0}
    regressor = DPMirrorRegressor(bounds_y=(0, 1), **bounded)
    classifier = DPMirrorClassifier(classes=[0, 1], **bounded)
    for scoring in get_args(_types.SearchScoring):
        model = regressor if scoring.startswith("neg_mean") else classifier
        DPGridSearchCV(model, {"feasible_set": [L2Ball(1.0), L2Ball(2.0)]}, scoring=scoring).plan(
            10_000, 2
        )
