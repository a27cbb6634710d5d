"""Plans of very large data: no array of that size, no overflow, no warning, in every form."""

import itertools
import math
import tracemalloc
import warnings

import numpy as np
import pytest
from registry import (
    build,
    each_form_or_default,
    each_solver,
    entry,
    forms_and_default,
    is_classifier,
    known,
    main_form,
)
from support import cells_of, half_is_enough

from sklearn_dpsco import DPGridSearchCV
from sklearn_dpsco.data.rows import gamma, summation_error
from sklearn_dpsco.losses import best_constants, get_loss, largest_constant
from sklearn_dpsco.solvers import Descent, NoisyMD

LARGE = (10**12, 10**8)
LARGEST_COPY = (2**18, 1000)  # that learned units take
LIMITS = ((10**15, 10), (100, 10**15), (10**15, 10**15))
LARGEST_PLAN = 30e6  # bytes, of a plan and of what it takes to make it

CLAIMS = (
    {},
    {"epsilon": 0.01, "relation": "zero-out"},
    {"epsilon": 100.0, "delta": 1e-13},
    {"epsilon": 10.0, "delta": 1e-9, "relation": "zero-out", "max_rows_per_user": 1000},
)
SETTINGS = (
    {}, {"data_norm": 1e3, "gradient_clip": 0.1}, {"max_iter": 10**6}, {"batch_size": 10**6},
    {"fit_intercept": False, "n_restarts": 20}, {"n_phases": 30},
)  # fmt: skip


def planned(model, *sizes):
    """The plan; None if a `ValueError` refuses it. Warnings of numpy are errors."""
    tracemalloc.start()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", RuntimeWarning)
        try:
            return model.plan(*sizes)
        except ValueError:
            return None
        finally:
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert peak < LARGEST_PLAN, (model, sizes, peak)


def check(plan, case):
    for release in plan.guarantee.releases:
        mechanism = release.mechanism
        assert 0 < mechanism.sensitivity < math.inf, case
        assert 0 < mechanism.scale < math.inf, case
        assert release.count >= 1, case
    lines = str(plan).splitlines()
    assert len(lines) < 60, case
    assert max(map(len, lines)) < 120, case


@half_is_enough
@each_form_or_default
def test_every_form_plans_at_a_trillion_records(name, form, cells):
    turn = forms_and_default(name).index(form)
    for k, claim in enumerate(CLAIMS):
        if cells == "half" and (k + turn) % 4:  # by turns
            continue
        is_many = turn % 2 if cells == "half" else (k + turn) % 2
        outputs = 1000 if is_many and not entry(name).of_rates else None
        own = entry(name).forms[form] if form else {}
        settings = {"classes": None} if is_classifier(name) else {}
        model = build(name, form, **settings | (claim if own.get("delta") != 0 else {}))
        copies = own.get("units") == "learned" or entry(name).of_rates
        sizes = LARGEST_COPY if copies else LARGE
        plan = planned(model, *sizes, *([outputs] if outputs else []))
        assert plan is not None, (claim, outputs)
        check(plan, (claim, outputs))


@half_is_enough
@each_solver
def test_settings_and_limits_plan_or_are_refused(name, cells):
    form = main_form(name)
    large = LARGEST_COPY if entry(name).of_rates else LARGE
    for settings, sizes in cells_of(cells, SETTINGS, (large, LIMITS[-1])):
        model = build(name, form, **known(name, settings, form))
        plan = planned(model, *sizes)
        if plan is not None:
            check(plan, (settings, sizes))
        else:
            assert settings or sizes != large


@each_solver
def test_as_many_outputs_as_are_allowed(name):
    classes = {"classes": None} if is_classifier(name) else {}
    plan = planned(build(name, **classes), *LARGE, 10**15)
    if plan is not None:
        check(plan, name)


@pytest.mark.slow
@pytest.mark.parametrize("relation", ["replace-one", "zero-out"])
def test_batches_of_few_of_many_records(relation):
    multipliers = []
    for steps in (7, 10**9):
        solver = NoisyMD(batch_size=10**4, max_iter=steps)
        model = build("DPMirrorRegressor", solver=solver, relation=relation, delta=1e-9)
        plan = planned(model, 10**12, 10)
        check(plan, steps)
        multipliers.append(plan.guarantee.releases[-1].mechanism.noise_multiplier)
        # so many releases have no privacy loss distribution
        assert plan.guarantee.composition == ("pld" if steps == 7 else "gdp")
    assert multipliers[0] < 1 < multipliers[1]


@half_is_enough
def test_a_search_plans_at_a_trillion_records(cells):
    models = (
        build("DPMirrorClassifier", solver=NoisyMD(), classes=[0, 1, 2]),
        build("DPMirrorRegressor", solver=Descent()),
    )
    for model, (n, d) in cells_of(cells, models, (LARGE, LIMITS[-1])):
        plan = planned(DPGridSearchCV(model, {"solver__max_iter": [10, 20]}), n, d)
        assert plan is None or max(map(len, str(plan).splitlines())) < 160
        assert plan is not None or (n, d) != LARGE


def test_float_errors_of_sums_stay_small_or_are_refused():
    for n, d in itertools.product((2, 10**6, 10**12, 10**15), (1, 10**8, 10**15)):
        assert 0 < summation_error(n, d) < 1e-3
    for k in (2.0**53, 2**53 + 1, 1e30, math.inf, math.nan):
        with pytest.raises(ValueError, match="float error"):
            gamma(k)


def test_the_bound_on_constants_is_that_of_the_worst_means():
    for name, task in (("logistic", "classification"), ("squared", "regression")):
        for k in (2, 3, 10, 1000):
            loss = get_loss(name, task).of_outputs(k)
            means = [np.full(k, end) for end in (-1.0, 1.0)]
            means += [np.where(np.arange(k) == 0, end, -end) for end in (-1.0, 1.0)]
            worst = max(float(np.abs(best_constants(loss, m)).max()) for m in means)
            found = largest_constant(loss)
            assert worst <= found <= worst * (1 + 1e-9), (name, k)
