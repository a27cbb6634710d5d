"""The ledger of several fits: what it adds up, refuses, and shares.

How each estimator is charged is in contracts/test_accountant.py.
"""

import copy
import dataclasses
import functools
import itertools
import math
import os
import pickle
import re
import sys
import threading
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from joblib import parallel_backend
from scipy.special import ndtr, ndtri
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold
from support import (
    ORDERS,
    assert_refuses,
    cells_of,
    gaussian,
    problem,
    pure,
    regressor,
    scaled_table,
)

from sklearn_dpsco import (
    BudgetAccountant,
    DPGridSearchCV,
    DPLassoFW,
    DPMirrorRegressor,
    Guarantee,
    PrivacyBudget,
    PrivacyBudgetError,
    PrivacyParameterWarning,
)
from sklearn_dpsco.geometry import L1Ball
from sklearn_dpsco.means import plan_mean
from sklearn_dpsco.mechanisms import Release, SelectVertex
from sklearn_dpsco.privacy import accountant as accountant_module
from sklearn_dpsco.privacy.budget import pure_mu, pure_of_mu, size_epsilon
from sklearn_dpsco.privacy.ledger import Charge, Ledger, Snapshot
from sklearn_dpsco.randomness.stream import current_process
from sklearn_dpsco.solvers import NoisyMD
from sklearn_dpsco.solvers.frank_wolfe import FrankWolfe

DELTA = 1e-6


def charged(accountant):
    return [charge.guarantee for charge in accountant.ledger]


def search(model, **parameters):
    grid = {"feasible_set": [L1Ball(0.5), L1Ball(1.0), L1Ball(2.0)]}
    return GridSearchCV(model, grid, cv=KFold(2), error_score="raise", **parameters)


# ------------------------------------------------------------------------ composition


def test_releases_are_composed_and_not_epsilons():
    accountant = BudgetAccountant(1.0, DELTA, composition="zcdp")
    guarantees = [
        gaussian(0.3, 1e-7, composition="zcdp"),
        gaussian(0.2, composition="zcdp"),
        gaussian(0.2, composition="zcdp"),
        gaussian(0.4, 1e-8, composition="zcdp"),
    ]
    for guarantee in guarantees:
        accountant.spend(guarantee)
    assert charged(accountant) == guarantees
    second = RdpAccountant(ORDERS)
    for guarantee in guarantees:
        second.compose(guarantee.dp_event)
    total = accountant.total_spent()
    assert second.get_epsilon(DELTA) == pytest.approx(total, rel=1e-4)
    assert total < 0.3 + 0.2 + 0.2 + 0.4 - 0.3


def test_a_whole_budget_is_accepted_and_nothing_after_it():
    for whole in (gaussian(1.0), pure(1.0), pure(1.0, SelectVertex, 7, DELTA)):
        accountant = BudgetAccountant(1.0, DELTA)
        assert accountant.total_spent() == 0
        assert accountant.remaining() == pytest.approx(1.0, rel=1e-8)
        accountant.spend(whole)
        assert accountant.total_spent() == pytest.approx(1.0, rel=1e-8)
        for more in (gaussian(1e-3), pure(1e-3)):
            with pytest.raises(PrivacyBudgetError, match=r"epsilon=1, .*nothing was charged"):
                accountant.spend(more)
        assert charged(accountant) == [whole]


def test_pure_guarantees_add_up_among_themselves():
    accountant = BudgetAccountant(1.0, DELTA, composition="zcdp")
    for _ in range(10):
        accountant.spend(pure(0.1))
    assert accountant.total_spent() == pytest.approx(1.0)  # rho would be 0.05 of 0.024356
    # small ones are cheaper in zCDP: 0.01^2 / 2 each, 487.1 of which make 0.024356
    many = BudgetAccountant(1.0, DELTA, composition="zcdp")
    for _ in range(487):
        many.spend(pure(0.01))
    assert 0.999 < many.total_spent() < 1
    with pytest.raises(PrivacyBudgetError, match=r"0\.9998\d* of its .* it would be 1\.0009"):
        many.spend(pure(0.01))
    # their sum is the claim itself, which no rounding may exceed
    whole = BudgetAccountant(1.0, 0.0)
    whole.spend(pure(0.5))
    with pytest.raises(PrivacyBudgetError, match="would be exceeded"):
        whole.spend(pure(0.5 * (1 + 3e-12)))
    whole.spend(pure(whole.remaining()))


def test_gaussian_dp_adds_up_in_squares_and_takes_whole_budgets():
    # the noise of four fits of a quarter of mu^2 is that of one fit of it all
    mu = PrivacyBudget(1.0, DELTA).mu
    accountant, second = BudgetAccountant(1.0, DELTA), PLDAccountant()
    for _ in range(4):
        accountant.spend(guarantee := gaussian(size_epsilon("gdp", mu / 2, DELTA)))
        second.compose(guarantee.dp_event)
    assert accountant.total_spent() == pytest.approx(1.0, rel=1e-6)
    assert second.get_epsilon(DELTA) == pytest.approx(1.0, rel=1e-3)
    assert accountant.remaining() < 1e-4
    with pytest.raises(PrivacyBudgetError):
        accountant.spend(gaussian(1e-3))


@pytest.mark.parametrize("epsilon", [1e-15, 1e-9, 0.01, 1.0, 20.0, 500.0])
def test_what_is_pure_is_below_a_gaussian_curve(epsilon):
    """Binary randomized response, the worst, at all levels of a test; and no smaller curve is."""
    mu = pure_mu(epsilon)
    assert pure_of_mu(mu) == pytest.approx(epsilon, rel=2e-14)
    at = 1 / (1 + math.exp(epsilon))  # where its trade-off curve bends
    assert ndtr(-ndtri(at) - mu) == pytest.approx(at, rel=1e-6)
    alpha = np.linspace(0, 1, 10_001)
    curve = np.maximum(1 - math.exp(epsilon) * alpha, math.exp(-epsilon) * (1 - alpha))
    assert np.all(ndtr(-ndtri(alpha) - mu) <= curve + 1e-12)


def test_a_pure_fit_of_what_remains_is_accepted():
    for k in range(20):
        accountant = BudgetAccountant(3e-4 * (1 + 3 * k / 100), DELTA)
        accountant.spend(plan_mean(1000, 2, epsilon=1.5e-4, accountant=accountant))
        left = accountant.remaining(0)
        accountant.spend(plan_mean(1000, 2, epsilon=left, delta=0, accountant=accountant))


def test_what_has_no_cost_in_gaussian_dp_is_refused_by_what_to_do():
    accountant, batches = BudgetAccountant(1.0, DELTA), NoisyMD(batch_size=6, max_iter=3)
    model = DPMirrorRegressor(bounds_X=(-1, 1), bounds_y=(-1, 1), solver=batches, units="bounds")
    alone = model.plan(60, 3).guarantee
    assert alone.composition == "pld"
    with pytest.raises(PrivacyBudgetError, match="composition='zcdp'"):
        accountant.spend(alone)
    # planned as if they were not random
    shared = model.set_params(accountant=accountant).plan(60, 3).guarantee
    assert shared.composition == "gdp"
    accountant.spend(shared)
    assert accountant.remaining() < 1e-4
    other = BudgetAccountant(1.0, DELTA, composition="zcdp")
    assert model.set_params(accountant=other).plan(60, 3).guarantee.composition == "pld"


def test_composition_is_checked():
    assert_refuses(BudgetAccountant, "composition must be one of", 1.0, composition="renyi")
    for epsilon, delta in ((1.0, 0.0), (100.0, DELTA)):
        assert_refuses(BudgetAccountant, "take 'auto'", epsilon, delta, composition="gdp")
        assert BudgetAccountant(epsilon, delta).currency == "zcdp"
    assert BudgetAccountant(40.0, DELTA).currency == "gdp"


def test_a_mix_of_pure_and_zcdp():
    # rho of the total at (1, 1e-6) is 0.024356
    accountant = BudgetAccountant(1.0, DELTA, composition="zcdp")
    accountant.spend(pure(0.1))
    accountant.spend(gaussian(0.8, composition="zcdp"))
    # gumbel selections recorded as pure cost an eighth of epsilon^2 each, not a half
    gumbel = Release("x", SelectVertex(1.0, 1 / 0.01), 20)
    accountant.spend(Guarantee(0.2, 0.0, "replace-one", "pure", (gumbel,)))
    rho = 0.1**2 / 2 + PrivacyBudget(0.8, DELTA).rho + 20 * 0.01**2 / 8
    assert rho < 0.024356
    spent = accountant.total_spent()
    # the pure ones cost less at the order of the budget
    assert 0.8 < spent < size_epsilon("zcdp", rho, DELTA)
    with pytest.raises(PrivacyBudgetError):
        accountant.spend(gaussian(0.4, composition="zcdp"))


def test_a_large_pure_guarantee_counts_at_the_order_of_the_budget():
    # 1^2 / 2 is more than rho of the total, 0.18507, but the Renyi divergence is at most 1
    accountant = BudgetAccountant(3.0, DELTA, composition="zcdp")
    accountant.spend(pure(1.0))
    accountant.spend(gaussian(1.0, composition="zcdp"))
    left = accountant.remaining()
    assert 0.5 < left < 2
    accountant.spend(gaussian(left, composition="zcdp"))
    assert accountant.total_spent() <= 3
    # the events at every order: a binary response is the worst pure mechanism
    alpha, rho = (
        accountant._state.order,
        PrivacyBudget(1.0, DELTA).rho + PrivacyBudget(left, DELTA).rho,
    )
    p, q = math.e / (1 + math.e), 1 / (1 + math.e)
    response = math.log(p**alpha * q ** (1 - alpha) + q**alpha * p ** (1 - alpha)) / (alpha - 1)
    renyi = response + alpha * rho
    log_delta = (alpha - 1) * (renyi - 3) - math.log(alpha - 1) + alpha * math.log1p(-1 / alpha)
    assert log_delta <= math.log(DELTA)


def test_the_order_is_the_best_one_for_the_total():
    accountant = BudgetAccountant(1.0, DELTA, composition="zcdp")
    rho = accountant.budget.rho

    def log_delta(alpha):
        gap = alpha - 1
        return gap * (alpha * rho - 1) - math.log(gap) + alpha * math.log1p(-1 / alpha)

    best = log_delta(accountant._state.order)
    assert best == pytest.approx(math.log(DELTA), abs=1e-6)
    assert best <= min(log_delta(accountant._state.order * factor) for factor in (0.9, 1.1))


def test_without_delta_only_pure_guarantees():
    accountant = BudgetAccountant(1.0, 0.0)
    with pytest.raises(PrivacyBudgetError, match="delta=0 accepts only"):
        accountant.spend(gaussian(0.01))
    assert accountant.ledger == ()
    accountant.spend(pure(0.7))
    assert accountant.total_spent() == pytest.approx(0.7)
    assert accountant.remaining() == pytest.approx(0.3)
    assert accountant.remaining(DELTA) == 0
    with pytest.raises(PrivacyBudgetError, match=r"0\.7 of its epsilon is spent, .* be 1\.1;"):
        accountant.spend(pure(0.4))


@pytest.mark.parametrize("kind", ["gdp", "zcdp"])
def test_what_remains_is_accepted_and_no_more(kind):
    make = functools.partial(gaussian, composition=kind)
    histories = ((), (pure(0.4 if kind == "zcdp" else 0.15),), (make(0.5),), (pure(0.1), make(0.6)))
    for before, delta, n_fits in cells_of("half", histories, (0.0, 1e-8, DELTA), (1, 5)):
        left = None
        for factor, accepted in ((1.0, True), (1 + 1e-6, False)):
            accountant = BudgetAccountant(1.0, DELTA, composition=kind)
            for guarantee in before:
                accountant.spend(guarantee)
            left = left or accountant.remaining(delta, n_fits=n_fits)
            epsilon = left * factor
            assert 0 < epsilon < 1.25
            more = make(epsilon, delta) if delta else pure(epsilon)
            for _ in range(n_fits - 1):
                accountant.spend(more)
            if accepted:
                accountant.spend(more)
            else:
                with pytest.raises(PrivacyBudgetError):
                    accountant.spend(more)


def test_the_other_relation_is_refused():
    accountant = BudgetAccountant(1.0, DELTA)
    with pytest.raises(PrivacyBudgetError, match=r"relation is 'replace-one'.*'zero-out'"):
        accountant.spend(gaussian(0.1, relation="zero-out"))
    assert accountant.ledger == ()


def test_what_decides_is_read_only():
    accountant = BudgetAccountant(0.5, DELTA)
    wide = PrivacyBudget(100.0, DELTA)
    for name, value in (("budget", wide), ("ledger", ())):
        with pytest.raises(AttributeError):
            setattr(accountant, name, value)
    for name in ("epsilon", "rho"):
        with pytest.raises(AttributeError):
            setattr(accountant.budget, name, 100.0)
    accountant.spend(gaussian(0.1))
    with pytest.raises(AttributeError):
        accountant.ledger[0].rho = 0.0
    with pytest.raises(PrivacyBudgetError):
        accountant.spend(gaussian(0.5))


def test_a_refusal_names_an_epsilon_that_fits():
    for before, more in (
        (gaussian(0.5), lambda epsilon: gaussian(epsilon, 1e-8)),
        (pure(0.1), pure),
        (gaussian(0.9), pure),
    ):
        accountant = BudgetAccountant(1.0, DELTA)
        branch = accountant.parallel().branch()
        branch.spend(before)
        with pytest.raises(PrivacyBudgetError) as refusal:
            branch.spend(more(1.1))
        fits = float(re.search(r"still fits is ([\d.]+),", str(refusal.value))[1])
        with pytest.raises(PrivacyBudgetError):
            branch.spend(more(fits * (1 + 2e-5)))
        branch.spend(more(fits))
        assert len(accountant.ledger) == 2


def test_a_refusal_tells_of_branches_where_they_help_or_would_have():
    def refusal(account, epsilon=0.9, **facts):
        with pytest.raises(PrivacyBudgetError, match="would be exceeded") as error:
            account.spend(gaussian(epsilon), **facts)
        return str(error.value)

    fresh, used = BudgetAccountant(1.0, DELTA), BudgetAccountant(1.0, DELTA)
    branch = used.parallel().branch("train")
    branch.spend(gaussian(0.9))
    beside = r"accountant\.branch\(name\)\.group\.branch\('test'\)"
    assert re.search(beside, refusal(used))
    for account, epsilon, facts in (
        (fresh, 2.0, {}),
        (branch, 0.9, {}),
        (used, 2.0, {}),
        (used, 0.9, {"has_groups": True}),  # refused there
    ):
        assert refusal(account, epsilon, **facts).endswith("delta=1e-06.")
    used.branch("train").group.branch().spend(gaussian(0.9))
    fresh.spend(gaussian(0.9))
    assert refusal(fresh).endswith(
        "each was charged to a branch of one group, accountant.parallel()"
    )


def test_the_same_fit_in_another_unnamed_branch_warns_before_it_is_charged():
    accountant, said = BudgetAccountant(1.0, DELTA), "the same line run again"
    group, plan = accountant.parallel(), regressor(epsilon=0.5).plan(60, 3)
    group.branch().spend(plan, estimator="a model")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(PrivacyParameterWarning, match=said):
            group.branch().spend(plan, estimator="a model")
        assert len(accountant.ledger) == 1
        group.branch("test").spend(plan, estimator="a model")
        group.branch().spend(plan, estimator="another model")
    with pytest.warns(PrivacyParameterWarning, match=said):
        group.branch().spend(plan, estimator="a model")
    with accountant.label("of a block"):
        group.branch().spend(plan, estimator="a model")
        with pytest.warns(PrivacyParameterWarning, match=said):
            group.branch().spend(plan, estimator="a model")
    group.branch("test").spend(plan, estimator="a model")  # a name is one branch
    left = "one search share a budget in a DPGridSearchCV"
    with pytest.raises(PrivacyBudgetError, match=left):
        group.branch("test").spend(regressor(epsilon=0.9).plan(60, 3), estimator="a model")


def test_fits_are_told_to_share_a_search_and_searches_are_not():
    """By what is charged: a name says nothing."""
    grid = {"feasible_set": [L1Ball(1.0), L1Ball(2.0)]}
    searching = DPGridSearchCV(regressor(), grid, epsilon=0.5, delta=DELTA).plan(50_000, 3)
    for plan, is_told in ((regressor(epsilon=0.5).plan(60, 3), True), (searching, False)):
        accountant = BudgetAccountant(1.0, DELTA)
        spend = functools.partial(accountant.spend, plan, estimator="GridSearch of mine")
        with pytest.raises(PrivacyBudgetError) as caught:
            [spend() for _ in range(9)]
        assert ("one search share a budget" in str(caught.value)) == is_told


def test_the_noise_in_zcdp_is_what_the_docstring_says():
    def ratio(epsilon, delta):
        budget = PrivacyBudget(epsilon, delta)
        return budget.mu / math.sqrt(2 * budget.rho)

    assert ratio(1.0, 1e-6) == pytest.approx(1.07, abs=0.005)
    epsilons = [0.01, 0.1, 1.0, 10.0, 100.0]
    small = [ratio(e, d) for e in epsilons for d in (1e-10, 1e-8, 1e-6, 1e-5)]
    assert (min(small), max(small)) == pytest.approx((1.02, 1.13), abs=0.005)
    for delta, largest in ((1e-3, 1.28), (0.1, 1.51)):
        assert max(ratio(e, delta) for e in epsilons) == pytest.approx(largest, abs=0.005)


def test_extreme_budgets_can_be_spent_and_shown():
    for epsilon, delta in cells_of("half", (1e-12, 1e-3, 50.0, 1e6), (0.0, 1e-300, 0.1, 0.999)):
        accountant = BudgetAccountant(epsilon, delta)
        accountant.spend(pure(epsilon / 2))
        assert 0 <= accountant.total_spent() <= epsilon / 2 * (1 + 1e-9)
        assert accountant.remaining(0.0) >= epsilon / 2 * (1 - 1e-9)
        assert "charges=1" in repr(accountant)


def test_only_guarantees_and_plans_can_be_spent():
    accountant = BudgetAccountant(1.0)
    for value in (None, 0.5, PrivacyBudget(0.1), "plan"):
        assert_refuses(accountant.spend, "guarantee must be", value)
    plan = FrankWolfe().plan(problem(100, 3), PrivacyBudget(0.1))
    empty = SimpleNamespace(guarantee=plan.guarantee, n_samples=0, n_features=3)
    assert_refuses(accountant.spend, "n_samples must be", empty)
    assert_refuses(accountant.spend, "estimator must be a string", plan, estimator=5)
    accountant.spend(plan)
    assert charged(accountant) == [plan.guarantee]
    (charge,) = accountant.ledger
    assert (charge.n_samples, charge.n_features) == (100, 3)


# ---------------------------------------------------------------- disjoint records


def test_parallel_branches_cost_the_largest_of_them():
    accountant, one = BudgetAccountant(1.0, DELTA), BudgetAccountant(1.0, DELTA)
    first, second, third = (group.branch() for group in [accountant.parallel()] for _ in range(3))
    first.spend(gaussian(0.3))
    assert accountant.total_spent() == pytest.approx(0.3)
    for epsilon in (0.3, 0.5):
        second.spend(gaussian(epsilon))
    with pytest.raises(PrivacyBudgetError):
        second.spend(gaussian(0.9))
    third.spend(gaussian(0.4))
    for epsilon in (0.2, 0.1):  # in no branch
        accountant.spend(gaussian(epsilon))
    for epsilon in (0.3, 0.5, 0.2, 0.1):
        one.spend(gaussian(epsilon))
    assert accountant.total_spent() == pytest.approx(one.total_spent(), rel=1e-9)
    assert accountant.remaining() == pytest.approx(one.remaining(), rel=1e-9)
    assert len(accountant.ledger) == 6


def test_groups_nest_and_stand_side_by_side():
    accountant = BudgetAccountant(10.0, 0.0)
    outer, other = accountant.parallel(), accountant.parallel()
    first, second = outer.branch(), outer.branch()
    inner = first.parallel()
    for epsilon in (1.0, 2.0):
        inner.branch().spend(pure(epsilon))
    first.spend(pure(0.5))
    second.spend(pure(1.0))
    for epsilon in (0.25, 0.125):
        other.branch().spend(pure(epsilon))
    assert accountant.total_spent() == pytest.approx(2.5 + 0.25)
    assert [len(charge.branch) for charge in accountant.ledger] == [4, 4, 2, 2, 2, 2]
    left = {account.remaining(0.0): account for account in (accountant, second, other.branch())}
    assert list(left) == pytest.approx([7.25, 10 - 1.25, 7.5])


def test_a_branch_is_given_and_not_entered():
    accountant = BudgetAccountant(1.0)
    for block in (accountant.parallel(), accountant.parallel().branch()):
        with pytest.raises(TypeError, match=r"accountant=group\.branch\(name\)"), block:
            pass
    with pytest.raises(ValueError, match="disjoint must be"):
        accountant.parallel("people")
    with pytest.raises(ValueError, match=r"give one of them, group\.branch\(name\)"):
        regressor(accountant=accountant.parallel()).plan(60, 3)


def test_what_remains_in_a_branch():
    for delta, make in ((0.0, pure), (DELTA, gaussian)):
        for factor in (1.0, 1 + 1e-6):
            accountant = BudgetAccountant(1.0, DELTA)
            accountant.spend(make(0.2))
            first, second = (g.branch() for g in [accountant.parallel()] * 2)
            first.spend(make(0.5))
            outside = accountant.remaining(delta)
            second.spend(make(0.1))
            left = second.remaining(delta)
            assert left > outside + 0.1
            if factor == 1:
                second.spend(make(left))
            else:
                with pytest.raises(PrivacyBudgetError):
                    second.spend(make(left * factor))


def test_each_unit_passes_a_test_of_its_own():
    accountant = BudgetAccountant(1.0, DELTA)
    fits, scores = (group.branch() for group in [accountant.parallel()] for _ in range(2))
    fits.spend(gaussian(1.0))
    # no record of a score is in the fit, whose releases have no pure epsilon
    assert scores.remaining(0.0) == 1.0
    for epsilon in (0.7, 0.3):
        scores.spend(pure(epsilon))
    assert accountant.total_spent() == pytest.approx(1.0, rel=1e-8)
    for account in (accountant, fits, scores):
        assert account.remaining(0.0) < 1e-4
        for more in (pure(1e-3), gaussian(1e-3)):
            with pytest.raises(PrivacyBudgetError):
                account.spend(more)
    # before its branches, a fit on all records is one of each of them
    accountant = BudgetAccountant(1.0, DELTA)
    accountant.spend(gaussian(0.5))
    assert accountant.parallel().branch().remaining(0.0) == accountant.remaining(0.0) < 0.5


def test_what_units_bear_is_that_of_the_largest_of_them():
    rng = np.random.default_rng(0)

    def borne(node, path):
        """What each unit bears, one for each choice of branches; of one there, with a path."""
        found = [node.own]
        for group, branches in node.groups.items():
            is_there = path[:1] == (group,)
            inner = [branches.get(name, Ledger()) for name in ([path[1]] if is_there else branches)]
            costs = [c for one in inner for c in borne(one, path[2:] if is_there else ())]
            found = [a + b for a in found for b in costs]
        return found

    n_many = 0
    for _ in range(200):
        ledger, paths = Ledger(), [()]
        for _ in range(rng.integers(1, 12)):
            path = paths[rng.integers(len(paths))]
            if rng.random() < 0.7 and len(path) < 4:
                path = (*path, f"g{rng.integers(2)}", f"b{rng.integers(3)}")
                paths.append(path)
            cost = rng.integers(0, 5, 5).astype(float)
            cost[0] = math.inf if rng.random() < 0.2 else cost[0]
            ledger = ledger._with(path, cost)
        for path in paths:
            all_of_them, largest = borne(ledger, path), ledger.units(path)
            assert {tuple(cost) for cost in largest} <= {tuple(cost) for cost in all_of_them}
            for cost in all_of_them:
                assert any(np.all(other >= cost) for other in largest)
            for one, other in itertools.permutations(largest, 2):
                assert not np.all(one >= other)
            n_many += len(largest) > 1
        np.testing.assert_array_equal(ledger.total(), np.max(ledger.units(), axis=0))
    assert n_many > 50
    # of very many, their maximum
    ledger = Ledger()
    for k in range(100):
        ledger = ledger._with(("g", f"b{k}"), np.array([k, 100 - k, 0.0, 0.0, 0.0]))
    np.testing.assert_array_equal(ledger.units(), [[99, 100, 0, 0, 0]])


def test_a_file_is_read_with_the_slack_that_was_accepted(tmp_path):
    path, budget, n_other = tmp_path / "ledger", PrivacyBudget(1.0, 1e-6), 0
    facts = {"relation": "replace-one", "rows_per_user": 1, "composition": "zcdp"}
    costs = {"pure_epsilon": math.inf, "rho": 0.01, "rho_at_order": 0.01}
    for parts in itertools.product((1e-8, 3e-8, 7e-8), repeat=3):
        branches = (), ("users-a", "b"), ("users-c", "d")
        charges = [
            Charge(0.1, 1e-7, **facts, **costs, slack=part, branch=branch)
            for part, branch in zip(parts, branches, strict=True)
        ]
        ledger = Ledger().plus(*charges)
        n_other += ledger.total()[-1] != ledger.slack  # by the last bit
        Snapshot("x", budget, 1, budget.best_order, ledger.slack, "zcdp", ledger).write(path)
        assert len(Snapshot.read(path).ledger.charges) == 3
    assert n_other > 0


def test_a_user_with_records_in_two_branches_bears_both():
    accountant = BudgetAccountant(1.0, DELTA)
    rows, users = accountant.parallel(), accountant.parallel("users")
    two_rows = dataclasses.replace(gaussian(0.2), epsilon=0.5, rows_per_user=2)
    for branch in (rows.branch(), rows.branch().parallel("users").branch()):
        for claim, has_groups in ((gaussian(0.5), True), (two_rows, False)):
            with pytest.raises(PrivacyBudgetError, match=r"parallel\(disjoint='users'\)"):
                branch.spend(claim, has_groups=has_groups)
        with pytest.raises(PrivacyBudgetError, match=r"parallel\(disjoint='users'\)"):
            users.branch().parallel().branch().spend(gaussian(0.5), has_groups=True)
    assert accountant.ledger == ()
    for _ in range(2):
        users.branch().spend(gaussian(0.9), has_groups=True)
        users.branch().parallel("users").branch().spend(two_rows)
    assert accountant.total_spent() == pytest.approx(0.9, rel=1e-6)
    of_users = BudgetAccountant(1.0, DELTA, max_rows_per_user=2)
    with pytest.raises(PrivacyBudgetError, match=r"parallel\(disjoint='users'\)"):
        of_users.parallel().branch().spend(two_rows)
    of_users.spend(two_rows, has_groups=True)


# ------------------------------------------------------------------- the open block


def test_plans_under_an_accountant_are_made_in_its_currency():
    alone = regressor().plan(60, 3)
    for kind in ("gdp", "zcdp"):
        with BudgetAccountant(1.0, DELTA, composition=kind) as accountant:
            shared = regressor().plan(60, 3)
        assert shared == regressor(accountant=accountant).plan(60, 3)
        assert shared.guarantee.composition == kind
        assert (shared.step.scale == alone.step.scale) == (kind == "gdp")
        assert shared.step.scale <= 1.1 * alone.step.scale


def test_the_block_charges_fits_that_name_no_accountant():
    X, y = scaled_table(60, 3)
    accountant, own = BudgetAccountant(1.0, DELTA), BudgetAccountant(1.0, DELTA)
    regressor().fit(X, y)
    with accountant as entered:
        assert entered is accountant
        regressor().fit(X, y)
        with accountant:
            regressor(accountant=own).fit(X, y)
        with pytest.raises(PrivacyBudgetError, match="another accountant is open"), own:
            pass
        with parallel_backend("threading"):
            search(regressor(), n_jobs=2).fit(X, y)
        thread = threading.Thread(target=regressor().fit, args=(X, y))
        thread.start()
        thread.join()
    regressor().fit(X, y)
    assert (len(accountant.ledger), len(own.ledger)) == (1 + 7 + 1, 1)


def test_the_block_closes_after_an_error():
    X, y = scaled_table(60, 3)
    accountant = BudgetAccountant(0.01, DELTA)
    with pytest.raises(PrivacyBudgetError), accountant:
        regressor().fit(X, y)
    regressor().fit(X, y)
    assert accountant.ledger == ()


# ------------------------------------------------------- copies, threads and processes


def test_copies_are_the_same_object():
    accountant = BudgetAccountant(1.0)
    copies = (copy.copy(accountant), copy.deepcopy([accountant])[0], clone(accountant))
    assert all(other is accountant for other in copies)
    model = regressor(accountant=accountant)
    assert model.get_params()["accountant"] is accountant
    loaded = pickle.loads(pickle.dumps(model))
    for other in (copy.copy(model), copy.deepcopy(model), clone(model), loaded):
        assert other.accountant is accountant
    assert pickle.loads(pickle.dumps(accountant)) is accountant
    group = accountant.parallel()
    branch = group.branch()
    assert copy.copy(branch) is copy.deepcopy([branch])[0] is clone(branch) is branch
    assert pickle.loads(pickle.dumps(branch)) == branch
    assert len({branch, group.branch(), pickle.loads(pickle.dumps(branch))}) == 2
    assert regressor(accountant=branch).get_params()["accountant"] is branch
    assert "BudgetAccountant(epsilon=1, delta=1e-06, " in repr(model)


def test_threads_cannot_spend_the_same_budget_twice():
    accountant = BudgetAccountant(1.0, 0.0)
    start, refused = threading.Barrier(8), []

    def work():
        start.wait()
        for _ in range(20):
            try:
                accountant.spend(pure(0.01))
            except PrivacyBudgetError:
                refused.append(1)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert (len(accountant.ledger), len(refused)) == (100, 60)


@pytest.mark.slow  # tests/contracts/test_parallel.py has it for every kind of workers
def test_fits_in_other_processes_fail():
    # the pickles of an open block take its accountant along
    X, y = scaled_table(60, 3)
    accountant = BudgetAccountant(1.0, DELTA)
    with accountant, pytest.raises(PrivacyBudgetError, match="another process"):
        search(regressor(), n_jobs=2).fit(X, y)
    assert accountant.ledger == ()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_refuses():
    accountant = BudgetAccountant(1.0, DELTA)
    pickled = pickle.dumps(accountant)
    accountant._turn[current_process()] = object()  # as if another thread had it
    child = os.fork()
    if child == 0:
        refused = 0
        for known in (accountant, pickle.loads(pickled)):
            try:
                known.spend(gaussian(0.1))
            except PrivacyBudgetError:
                refused += 1
        os._exit(refused)
    _, status = os.waitpid(child, 0)
    accountant._turn.clear()
    assert os.waitstatus_to_exitcode(status) == 2
    assert accountant.ledger == ()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_later_process_with_the_number_of_this_one_refuses():
    accountant, number = BudgetAccountant(1.0, DELTA), os.getpid()
    accountant_module._opening["turn"] = object()  # as if another thread were opening a block
    child = os.fork()
    if child == 0:
        os.getpid = lambda: number  # numbers are used again
        refused = 0
        for call in (lambda: accountant.spend(gaussian(0.1)), accountant.__enter__):
            try:
                call()
            except PrivacyBudgetError:
                refused += 1
        with BudgetAccountant(1.0) as own:
            own.spend(gaussian(0.5))
        os._exit(refused + 10 * len(own.ledger) + 100 * ("another" in repr(accountant)))
    accountant_module._opening.clear()
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 112
    assert accountant.ledger == ()


def test_a_branch_is_shown_by_its_names():
    accountant = BudgetAccountant(1.0)
    branch = accountant.parallel().branch("train").parallel().branch()
    assert repr(branch) == f"<branch train > unnamed of {accountant!r}>"
    assert "train" in repr(DPLassoFW(accountant=branch))
