"""Every solver under the two tools of `sklearn_dpsco.audit`, right and with planted bugs.

The solvers and the bugs are in `audit_cases`. All streams are seeded, so each verdict is
the same in every run.

The bounds see only what some thousand runs can show: an (epsilon, delta) claim with a tiny
delta is tested through the Gaussian curve that its noise has (privacy.md, section 9,
item 4), a pure claim by itself.
"""

import numpy as np
import pytest
from audit_cases import BUGS, CASES, DELTA, EPSILON, RELATIONS, weaker
from support import problem

from sklearn_dpsco._random import stream_from_random_state
from sklearn_dpsco.accounting import PrivacyBudget
from sklearn_dpsco.audit import audit_solver, check_sensitivity, mechanisms, neighbours
from sklearn_dpsco.mechanisms import Gaussian, _AdditiveNoise

# The default run has a fixed total of solves, however many solvers there are.
RUNS = min(5000, 100_000 // len(CASES))
MANY_RUNS = 20_000

# what a plan without an intercept does not release
OF_THE_INTERCEPT = {"intercept", "center", "center_X", "first_means"}

every_case = pytest.mark.parametrize("case", CASES, ids=str)
every_relation = pytest.mark.parametrize("relation", RELATIONS)


# ------------------------------------------------------------------------------- replay


def replay(case, relation, *, task="regression", fit_intercept=True, n_plans=12, plant=None):
    """Worst ratios and all violations, over plans of several sizes."""
    rng = np.random.default_rng(0)
    ratios, violations = {}, {}
    for k in range(n_plans):
        facts = problem(
            int(rng.choice([2, 3, 9, 16])), int(rng.choice([1, 3, 8])),
            task=task, fit_intercept=fit_intercept, feasible_set=case.feasible_set,
        )  # fmt: skip
        solver = case.solver
        plan = solver.plan(facts, PrivacyBudget(1.0, 1e-6, relation))
        if plant is not None:
            solver, plan = plant(solver, plan)
        pairs = neighbours(facts, relation, 6, random_state=k)
        found = check_sensitivity(solver, plan, pairs, random_state=k)
        violations |= found.violations
        for name, ratio in found.ratios.items():
            ratios[name] = max(ratios.get(name, 0.0), ratio)
    return ratios, violations


@every_case
@every_relation
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_every_release_stays_within_its_sensitivity(case, relation, fit_intercept):
    if not fit_intercept and case.releases == {"intercept"}:
        pytest.skip("nothing is released")
    worst = {}
    for task in ("regression", "classification"):
        ratios, violations = replay(case, relation, task=task, fit_intercept=fit_intercept)
        assert not violations
        worst = {name: max(ratio, worst.get(name, 0.0)) for name, ratio in ratios.items()}
    expected = case.releases if fit_intercept else case.releases - OF_THE_INTERCEPT
    assert set(worst) == expected
    # the lower end shows that the pairs are harmful enough for the upper to mean much
    assert all(0.49 <= ratio <= 1 + 1e-12 for ratio in worst.values()), worst
    assert worst.get("step", 1.0) >= 0.95


@every_case
def test_every_vector_that_is_released_lies_on_its_grid(case, monkeypatch):
    # whatever the data: so no output can occur under one table only
    found = []
    release = _AdditiveNoise._with_noise

    def recording(mechanism, value, stream):
        released = release(mechanism, value, stream)
        found.append((mechanism.grid, released))
        return released

    monkeypatch.setattr(_AdditiveNoise, "_with_noise", recording)
    facts = problem(16, 3, feasible_set=case.feasible_set)
    plan = case.solver.plan(facts, PrivacyBudget(1.0))
    for pair in neighbours(facts, "replace-one", 2, random_state=0):
        for data in pair:
            case.solver.solve(data, plan, stream_from_random_state(None))
    assert found
    for grid, released in found:
        steps = released / grid - 0.5
        assert grid > 0
        assert np.all(steps == np.rint(steps))


# -------------------------------------------------------------------------------- audit


def single_run(case, relation, n_trials=RUNS, plant=None):
    """The audit of one release on the worst pair."""
    solver = case.single
    plan = solver.plan(case.facts, PrivacyBudget(EPSILON, case.delta, relation))
    if plant is not None:
        solver, plan = plant(solver, plan)
    pair = case.pair(case.facts, relation)
    return audit_solver(solver, plan, *pair, n_trials, statistic=case.statistic, random_state=0)


def sharp_bound(case, result):
    return result.gaussian_epsilon_lower_bound if case.delta else result.epsilon_lower_bound


@every_case
@every_relation
def test_one_release_is_close_to_its_claim_and_not_beyond(case, relation):
    result = single_run(case, relation)
    assert not result.flagged
    assert 0.5 * EPSILON < sharp_bound(case, result) <= EPSILON


def whole_run(case, relation, n_trials, *, solver=None, factor=1.0):
    """The audit of several steps, the intercept and whatever else the plan releases."""
    solver = solver or case.solver
    facts = problem(20, 2, feasible_set=case.feasible_set)
    plan = weaker(solver.plan(facts, PrivacyBudget(EPSILON, DELTA, relation)), factor)
    result = audit_solver(solver, plan, *case.pair(facts, relation), n_trials, random_state=0)
    return plan, result


def assert_not_flagged(plan, result):
    assert not result.flagged
    if all(isinstance(m, Gaussian) for m in mechanisms(plan).values()):
        assert result.gaussian_epsilon_lower_bound <= EPSILON


@every_case
@every_relation
def test_whole_plans_are_not_flagged(case, relation):
    assert_not_flagged(*whole_run(case, relation, RUNS // 4))


@every_case
def test_noise_that_is_far_too_small_is_flagged_in_whole_plans(case):
    assert whole_run(case, "replace-one", RUNS // 2, factor=60.0)[1].flagged


@pytest.mark.slow
@every_case
@every_relation
def test_whole_plans_with_many_runs(case, relation):
    assert_not_flagged(*whole_run(case, relation, MANY_RUNS))


@pytest.mark.slow
@every_case
@every_relation
def test_one_release_with_many_runs(case, relation):
    result = single_run(case, relation, MANY_RUNS)
    assert not result.flagged
    assert sharp_bound(case, result) <= EPSILON


# -------------------------------------------------------------------------- planted bugs

PLANTED = [
    pytest.param(case, bug, relation, id=f"{case}-{bug}-{relation}")
    for case in CASES
    for bug, (_, relations) in BUGS.items()
    for relation in relations
    if bug not in case.immune
]


@pytest.mark.parametrize(("case", "bug", "relation"), PLANTED)
def test_planted_bugs_are_flagged(monkeypatch, case, bug, relation):
    plant = BUGS[bug][0](monkeypatch)
    if bug == "noise":
        # the replay takes the noise for granted
        assert sharp_bound(case, single_run(case, relation, plant=plant)) > EPSILON
    else:
        assert replay(case, relation, plant=plant)[1]
