"""verbose: what is shown of long work, which is public, and changes nothing."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from joblib import parallel_config
from registry import (
    Unreadable,
    build,
    each_form,
    each_solver,
    fitted,
    main_form,
    outcome,
    table,
)

from sklearn_dpsco import (
    DPFTRLRegressor,
    DPGridSearchCV,
    DPMirrorRegressor,
    DPRandomizedSearchCV,
    _progress,
)
from sklearn_dpsco.audit import audit, audit_plan, neighbours
from sklearn_dpsco.geometry import L2Ball
from sklearn_dpsco.solvers import NoisyMD


class Bar:
    """In the place of tqdm: keeps what it is told."""

    made = ()

    def __init__(self, total, desc, unit, file):
        self.total, self.desc, self.unit = total, desc, unit
        self.updates, self.is_open = [], True
        assert file is sys.stderr
        Bar.made += (self,)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.is_open = False

    def update(self, n=1):
        assert self.is_open
        self.updates.append(n)

    def write(self, text, file):
        Bar.made += (text,)

    def set_postfix_str(self, text):
        """Remarks depend on what was compiled before."""


@pytest.fixture
def bars(monkeypatch):
    """Runs something; returns the bars that it made, and texts."""
    monkeypatch.setattr(_progress, "_tqdm", lambda: SimpleNamespace(tqdm=Bar))

    def run(call):
        Bar.made = ()
        call()
        return Bar.made

    return run


@each_form
def test_a_bar_counts_the_steps_of_the_plan_whatever_the_data_are(name, form, bars):
    X, y = table(name)
    model = build(name, form, verbose=True)
    (bar,) = bars(lambda m=model: m.fit(X, y))
    assert (bar.desc, bar.unit, bar.is_open) == (name, "step", False)
    assert sum(bar.updates) == bar.total == model.plan_.n_steps
    assert np.array_equal(outcome(model), outcome(fitted(name, form)))
    (other,) = bars(lambda m=model: m.fit(-0.1 * X, y[::-1]))
    assert other.updates == bar.updates


@each_solver
def test_nothing_is_shown_unless_it_is_wanted_and_before_data_are_read(name, bars, monkeypatch):
    X, y = table(name)
    assert bars(lambda: build(name, main_form(name)).fit(X, y)) == ()
    model = build(name, main_form(name), verbose=2)
    plan, bar = sorted(bars(lambda: model.fit(X, y)), key=lambda made: isinstance(made, Bar))
    assert plan == str(model.plan_)
    assert bar.total == model.plan_.n_steps
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    with pytest.raises(ImportError, match="verbose needs tqdm: pip install tqdm,"):
        model.fit(Unreadable(), Unreadable())
    model.set_params(verbose=0).fit(X, y)


def test_a_chunk_of_a_stream_counts_records(bars):
    X, y = table("DPFTRLRegressor")
    model = DPFTRLRegressor(bounds_X=(-1, 1), bounds_y=(-1, 1), verbose=1)
    (bar,) = bars(lambda: model.partial_fit(X, y))
    assert (bar.unit, bar.total, sum(bar.updates)) == ("record", 60, 60)


@pytest.mark.parametrize("n_jobs", [None, 2])
def test_searches_show_their_fits(n_jobs, bars):
    with parallel_config("threading"):
        _check_searches(n_jobs, bars)


def _check_searches(n_jobs, bars):
    X, y = table("DPMirrorRegressor", n=3000)
    bounds = {"bounds_X": (-1, 1), "bounds_y": (-1, 1)}
    model = DPMirrorRegressor(**bounds, verbose=2, solver=NoisyMD(max_iter=2))
    grid = {"feasible_set": [L2Ball(1.0), L2Ball(2.0)]}
    kind = DPGridSearchCV if n_jobs else DPRandomizedSearchCV  # which have one fit
    settings = {"epsilon": 4.0, "verbose": 2, "n_jobs": n_jobs, "random_state": 0}
    search = kind(model, grid, **settings)
    bar, plan = bars(lambda: search.fit(X, y))
    assert plan == str(search.plan_)
    assert (bar.unit, bar.total, sum(bar.updates)) == ("fit", 4, 4)
    quiet = kind(model, grid, **settings | {"verbose": 0})
    assert bars(lambda: quiet.fit(X, y)) == ()
    assert quiet.best_params_ == search.best_params_
    assert np.array_equal(quiet.best_estimator_.coef_, search.best_estimator_.coef_)
    with pytest.raises(ValueError, match="verbose"):
        search.set_params(verbose="yes").fit(X, y)


def test_audits_count_their_runs(bars):
    X, y = np.zeros((20, 1)), np.tile([1.0, -1.0], 10)
    X[:2], other = 1, y.copy()
    other[0] = -1
    model = DPMirrorRegressor(solver=NoisyMD(max_iter=2), bounds_X=(-1, 1), bounds_y=(-1, 1))
    (bar,) = bars(lambda: audit(model, (X, y), (X, other), 20, random_state=0, verbose=1))
    assert (bar.unit, bar.total, sum(bar.updates)) == ("run", 40, 40)
    plan = model.plan(20, 1)
    pair = neighbours(plan.problem, "replace-one")[0]
    (bar,) = bars(lambda: audit_plan(plan, *pair, 20, random_state=0, verbose=True))
    assert (bar.total, sum(bar.updates)) == (40, 40)
    assert bars(lambda: audit_plan(plan, *pair, 20, random_state=0)) == ()


def test_what_tqdm_writes(capsys):
    X, y = table("DPMirrorRegressor")
    build("DPMirrorRegressor", "learned-units", verbose=2).fit(X, y)
    said = capsys.readouterr()
    assert said.out == ""
    assert "DPMirrorRegressor: 100%" in said.err
    assert "4/4" in said.err
    assert "4 steps, 60 x 3" in said.err
