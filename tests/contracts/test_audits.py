"""Audits of whole fits, for every estimator: the replay, and black-box audits.

The black-box audits of the default run fit each a few times, to see that the audit works on
every estimator; the long run is marked slow: 20,000 fits of each table.
"""

import numpy as np
import pytest
from registry import (
    READING_ORDER,
    build,
    each_classifier,
    each_form,
    each_form_of_classifiers,
    each_reader,
    each_solver,
    entry,
    is_classifier,
    known,
    main_form,
    outcome,
    relation_of,
    switch_noise_off,
    targets_of,
)
from scipy import sparse
from sklearn.base import clone
from support import running

from sklearn_dpsco import _fitting, losses
from sklearn_dpsco.audit import audit, check_sensitivity
from sklearn_dpsco.audit import neighbours as pairs_of_tables
from sklearn_dpsco.data import rows
from sklearn_dpsco.estimators import _base
from sklearn_dpsco.solvers.base import SolverResult
from sklearn_dpsco.solvers.heavy_tail import oracles

# ------------------------------------------------------------------------------- replay


def whole_fit(model, plan):
    """The plan, run by the public `fit` of an estimator."""

    def run(self, data, stream):
        weight = data.rows.sample_weight
        weight = None if weight is None else model.max_weight * weight
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_fitting, "stream_from_random_state", lambda _: stream)
            patch.setattr(_base.Settings, "plan", lambda *_, **__: running(self, type(plan).run))
            fitted = clone(model).fit(*in_users_terms(model, data), sample_weight=weight)
        return SolverResult(outcome(fitted), 0.0, fitted.n_iter_)

    return running(plan, run)


def in_users_terms(model, data):
    """X and y, the targets of empty records invalid."""
    X, y = data.rows.X, data.y
    name = type(model).__name__
    if sparse.issparse(X) and entry(name).sparse:
        X = X.toarray()
    is_empty = data.rows.scales() == 0
    if not is_classifier(name):
        return X, np.where(is_empty, np.nan, y)
    classes = np.array([*model.classes, "none of them"])
    codes = (y > 0).astype(int) if y.ndim == 1 else y.argmax(axis=1)
    return X, classes[np.where(is_empty, -1, codes)]


def replay(name, form, relation, *, n=18, n_pairs=6, **settings):
    """Of the estimator's fits in one of its forms, on pairs that hold three of the extremes.

    Each estimator has other ones, by turns.
    """
    model = build(name, form, relation=relation, nonfinite="zero", epsilon=4.0, **settings)
    n_classes = [3] if len(settings.get("classes", ())) > 2 else []
    plan = model.plan(n, 2, *n_classes)
    turn = READING_ORDER.index(name)
    pairs = pairs_of_tables(plan.problem, relation, n_pairs, random_state=turn)
    return check_sensitivity(whole_fit(model, plan), pairs)


@each_form
def test_replays_of_every_form_pass(name, form):
    relation = relation_of(name, form)  # the solvers' own replays take both
    found = replay(name, form, relation)
    assert found.passed, f"{relation}: {found}"


THREE = ["a", "b", "c"]


def clip_one_by_one(monkeypatch):
    """Leave out that derivatives are clipped together, which compiled kernels would do."""
    monkeypatch.setattr(rows.Terms, "joint_slope", None)
    for module in (losses, oracles):
        monkeypatch.setattr(module, "clipped_rows", lambda values, clips, order: values)


REPLAY_THREE = {"n": 9, "n_pairs": 6, "classes": THREE}


@each_form_of_classifiers
def test_replays_of_several_classes_pass(name, form):
    relation = relation_of(name, form)
    found = replay(name, form, relation, **REPLAY_THREE)
    assert found.passed, f"{relation}: {found}"


@each_classifier
def test_replays_find_derivatives_that_are_clipped_one_by_one(name, monkeypatch):
    clip = {"tau": 0.01} if name.startswith("Heavy") else {"gradient_clip": 0.1}
    if name.startswith("DPPhased") or not known(name, clip, main_form(name)):
        return  # which does not clip them, or where its plan says
    clip_one_by_one(monkeypatch)
    found = replay(name, main_form(name), "zero-out", **REPLAY_THREE, **clip)
    assert any("times its sensitivity" in said for said in found.violations.values())


# ----------------------------------------------------------------------------- black box

N = 20
# so that little else than the noise hides the record
SETTINGS = {"delta": 1e-6, "max_iter": 2, "shuffle": False}


def neighbours(name):
    """All weight of the features on two rows, whose targets cancel out or add up."""
    X, y = np.zeros((N, 1)), np.where(np.arange(N) % 2, 1.0, -1.0)
    X[:2], y[:2] = 1.0, (1.0, -1.0)
    other = y.copy()
    other[0] = -1.0
    if is_classifier(name):
        y, other = (np.where(target > 0, "yes", "no") for target in (y, other))
        return (X, y), (X, other)
    return (X, targets_of(name, y)), (X, targets_of(name, other))


def few_steps(name, **settings):
    form = main_form(name)
    return build(name, form, **known(name, SETTINGS, form), **settings)


def run(name, n_trials, epsilon, **settings):
    model = few_steps(name, epsilon=epsilon, **settings)
    return audit(model, *neighbours(name), n_trials, random_state=0)


@each_reader  # an audit sees what fits give, whatever the solver
def test_few_fits_flag_an_estimator_without_noise_and_no_other(name, monkeypatch):
    result = run(name, 20, 0.02)
    assert not result.flagged
    assert np.unique(result.scores).size > 1
    if entry(name).of_rates:
        return  # whose clips still are selected with noise
    switch_noise_off(monkeypatch)
    # (sizes are selected with noise, of which small slopes are left, one in 40 like the other's)
    assert run(name, 80, 0.02).flagged


@pytest.mark.slow  # the replays above find them, too
def test_derivatives_of_classes_that_are_clipped_one_by_one_are_flagged(monkeypatch):
    """Eight derivatives, each at the clip: the gradient is sqrt(8) times too long."""
    classes = list("abcdefgh")
    X, y = np.zeros((N, 1)), np.array([classes[k % 8] for k in range(N)])
    X[0] = 1.0
    other = -X
    model = build(
        "DPLassoFWClassifier", "gradient", max_iter=1, gradient_clip=0.3, data_norm=1.0,
        epsilon=4.0, classes=classes, fit_intercept=False, loss="smoothed_hinge",
    )  # fmt: skip

    def found(n_trials):
        return audit(model, (X, y), (other, y), n_trials, random_state=0)

    right = found(120)
    assert not right.flagged
    assert right.decided_by == "gaussian"
    clip_one_by_one(monkeypatch)
    assert found(250).flagged


@pytest.mark.slow
@each_solver
def test_many_fits(name):
    result = run(name, 20_000, 4.0)
    assert not result.flagged
    is_gaussian = few_steps(name, epsilon=4.0).plan(N, 1).guarantee.composition == "gdp"
    assert result.decided_by == ("gaussian" if is_gaussian else "assumption-free")
