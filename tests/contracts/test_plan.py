"""A plan needs sizes only, is the plan of the fit, and keeps within its budget."""

import dataclasses
import pickle

import numpy as np
import pytest
from dp_accounting.privacy_accountant import UnsupportedEventError
from registry import (
    build,
    each_classifier,
    each_form_or_default,
    each_solver,
    entry,
    is_classifier,
    main_form,
    nothing_is_released,
    table,
)
from support import half_is_enough

from sklearn_dpsco import BudgetAccountant, PrivacyBudget, mechanisms

RELATIONS = ("replace-one", "zero-out")


def stated_epsilon(guarantee):
    """By the accountants of dp_accounting, or None where they know no such composition."""
    try:
        return guarantee.second_opinion()
    except UnsupportedEventError:
        assert guarantee.composition == "adaptive-range"
        return None


@each_form_or_default
def test_the_plan_of_a_size_is_the_plan_of_the_fit(name, form):
    X, y = table(name)
    for relation in RELATIONS:
        settings = {"relation": relation}
        model = build(name, form, **settings)
        with nothing_is_released():
            plan = model.plan(60, 3)
        assert not [key for key in vars(model) if key.endswith("_")]
        model.fit(X, y)
        assert model.plan_ == plan == build(name, form, **settings).plan(60, 3)
        assert model.guarantee_ == plan.guarantee
        claim = (plan.guarantee.epsilon, plan.guarantee.delta, plan.guarantee.relation)
        assert claim == (1.0, 0 if form == "pure" else 1e-6, relation)
        # other values, the same plan; other facts, another
        assert build(name, form, **settings).fit(X[::-1] / 2, y[::-1]).plan_ == plan
        assert build(name, form, **settings).plan(60, 4) != plan
        assert pickle.loads(pickle.dumps(plan)) == plan
        with pytest.raises(dataclasses.FrozenInstanceError):
            plan.max_iter = 3


@half_is_enough
@each_form_or_default
def test_plans_spend_what_there_is_and_no_more(name, form, cells):
    grid = [
        (1.0, 60, 3, "replace-one", True),
        (0.1, 300, 5, "zero-out", False),
        (8.0, 20_000, 30, "zero-out", False),
    ]
    classes = {"classes": ["a", "b", "c"]} if is_classifier(name) else {}
    is_slow = form in ("batches", "pure")  # for the other accountant
    if cells == "half":  # where budgets are shared or not, under each relation by turns
        grid = [(*grid[0][:3], RELATIONS[len(name) % 2], True)]
    for epsilon, n, d, relation, is_shared in grid[: 1 if is_slow else 3]:
        case = (form, epsilon, n, d)
        settings = {"epsilon": epsilon, "relation": relation}
        model = build(name, form, **settings | (classes if is_shared else {}))
        guarantee = model.plan(n, d).guarantee
        opinion = stated_epsilon(guarantee)
        if opinion is not None:
            assert 0.85 * epsilon <= opinion <= epsilon * (1 + 1e-3), case
        else:
            assert 0.9 * guarantee.delta <= guarantee.spent <= guarantee.delta, case
        if is_shared and guarantee.composes_in("gdp"):
            with BudgetAccountant(epsilon, 1e-6, relation):
                of_shared = model.plan(n, d).guarantee
            assert stated_epsilon(of_shared) <= epsilon * (1 + 1e-3), case
            assert of_shared.composition in ("gdp", "pure"), case
            if of_shared.delta:
                half_mu_squared = PrivacyBudget(epsilon, 1e-6).mu ** 2 / 2
                assert 0 < of_shared.cost("gdp") <= half_mu_squared * (1 + 1e-9), case
        if is_shared:  # with others, whatever their mechanisms are
            with BudgetAccountant(epsilon, 1e-6, relation, composition="zcdp") as accountant:
                guarantee = model.plan(n, d).guarantee
            assert stated_epsilon(guarantee) <= epsilon * (1 + 1e-3), case
            assert guarantee.composition in ("zcdp", "pure", "pld"), case
            if guarantee.delta:
                order, rho = accountant.order, PrivacyBudget(epsilon, 1e-6).rho
                assert 0 < guarantee.renyi(order) <= order * rho * (1 + 1e-9), case
                if guarantee.composition != "pld":  # then at every order
                    assert guarantee.cost("zcdp") <= rho * (1 + 1e-9), case


@each_solver
def test_without_delta_a_plan_is_pure_or_the_refusal_names_one_that_can_be(name):
    refusal = entry(name).pure
    if refusal is not None:
        with pytest.raises(ValueError, match=f"(?s)delta.*{refusal}|{refusal}.*delta"):
            build(name, delta=0).plan(60, 3)
        return
    X, y = table(name)
    for epsilon in (0.5, 2.0):
        model = build(name, delta=0, epsilon=epsilon)
        guarantee = model.plan(60, 3).guarantee
        assert (guarantee.delta, guarantee.composition) == (0, "pure")
        assert guarantee.spent == pytest.approx(epsilon, rel=1e-6)
        assert guarantee.second_opinion() == pytest.approx(epsilon, rel=1e-3)
        kinds = {type(release.mechanism) for release in guarantee.releases}
        assert kinds <= {mechanisms.Laplace, mechanisms.SelectVertex, mechanisms.SelectSequence}
        assert model.fit(X, y).guarantee_ == guarantee
        accountant = BudgetAccountant(epsilon, 0.0)
        accountant.spend(guarantee)
        assert accountant.total_spent() == pytest.approx(epsilon)


@each_classifier
def test_plans_of_several_classes(name):
    form = main_form(name)
    undeclared = build(name, form, classes=None)
    plans = {k: undeclared.plan(300, 3, n_classes=k) for k in (2, 3, 7)}
    assert undeclared.plan(300, 3) == plans[2]
    for k, plan in plans.items():
        declared = build(name, form, classes=list(range(k)))
        assert declared.plan(300, 3) == declared.plan(300, 3, n_classes=k) == plan
        scales = [release.mechanism.scale for release in plan.guarantee.releases]
        assert all(np.isfinite(scales))
    # one model with one budget: the noise is that of a record, whatever the number of classes
    noise = [plan.guarantee.releases[-1].mechanism for plan in plans.values()]
    noise = [mechanism.scale / mechanism.sensitivity for mechanism in noise]
    assert max(noise) < 1.5 * min(noise)


@each_form_or_default
def test_a_plan_reads_as_a_table(name, form):
    plan = build(name, form).plan(60, 3)
    for text in (str(plan), str(plan.guarantee)):
        lines = text.splitlines()
        assert "epsilon = 1, delta = " in text
        assert max(map(len, lines)) < 100
        for release in plan.guarantee.releases:
            (line,) = [
                line
                for line in lines
                if release.name in line
                and f"{release.mechanism.scale:.4g}" in line
                and (release.group or "") in line
            ]
            assert f" {release.count} " in line
    assert "60 x 3" in str(plan)
