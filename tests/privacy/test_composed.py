"""Guarantees of several parts, and the parts of a budget that were charged as a whole."""

import copy

import pytest
from sklearn.base import clone

from sklearn_dpsco import Guarantee, PrivacyBudget, PrivacyBudgetError
from sklearn_dpsco.mechanisms import Gaussian, Release
from sklearn_dpsco.privacy.allotment import Allotment
from sklearn_dpsco.privacy.composed import ComposedGuarantee

WHOLE = PrivacyBudget(2.0, 1e-6)


def guarantee(budget, currency="gdp", share=1.0, groups=(None,)):
    allowance = budget.gaussian_allowance.share(share)
    noise = Gaussian.calibrate(1.0, allowance)
    return Guarantee.of(budget, [Release("mean", noise, 1, g) for g in groups], currency)


@pytest.mark.parametrize("currency", ["gdp", "zcdp", "pure"])
def test_parts_of_a_budget_add_up_to_it(currency):
    whole = PrivacyBudget(2.0, 0.0 if currency == "pure" else 1e-6)
    shares = (0.1, 0.3, 0.6)
    parts = [whole.part(share, currency) for share in shares]
    amount = {
        "gdp": lambda budget: budget.mu**2,
        "zcdp": lambda budget: budget.rho,
        "pure": lambda budget: budget.epsilon,
    }[currency]
    spent = [amount(part) / amount(whole) for part in parts]
    assert spent == pytest.approx(shares, rel=1e-6)
    assert all(s <= share * (1 + 1e-12) for s, share in zip(spent, shares, strict=True))
    with pytest.raises(ValueError, match="fraction"):
        whole.part(0.0, currency)


def test_of_alternatives_the_costliest_counts_and_of_groups_the_worst_of_each_part():
    parts = [WHOLE.part(0.5, "gdp") for _ in range(2)]
    cheap, dear = (guarantee(parts[0], share=s) for s in (0.2, 1.0))
    grouped = guarantee(parts[1], groups=("first half", "second half"))
    whole = ComposedGuarantee.of_parts(WHOLE, "gdp", [("one", [cheap, dear]), ("two", [grouped])])
    assert whole.cost("gdp") == pytest.approx(WHOLE.mu**2 / 2, rel=1e-9)
    assert whole.cost("gdp") == dear.cost("gdp") + grouped.cost("gdp")
    assert whole.renyi(3.0) == dear.renyi(3.0) + grouped.renyi(3.0)
    assert whole.second_opinion() <= 2.0 * (1 + 1e-4)
    with pytest.raises(AssertionError, match="more than its budget"):
        ComposedGuarantee.of_parts(WHOLE, "gdp", [("one", [dear]), ("two", [dear]), ("3", [cheap])])


def test_parts_are_for_users_of_the_same_number_of_rows():
    other = guarantee(PrivacyBudget(1.0, 1e-6, rows_per_user=2))
    with pytest.raises(AssertionError, match="another number of rows"):
        ComposedGuarantee.of_parts(WHOLE, "gdp", [("one", [other])])


@pytest.mark.parametrize("copied", [lambda a: a, copy.copy, copy.deepcopy, clone])
def test_a_part_is_spent_once_by_all_of_its_copies(copied):
    part = WHOLE.part(0.5, "gdp")
    allotment = Allotment(part)
    with pytest.raises(PrivacyBudgetError, match="costs more"):
        allotment.spend(guarantee(WHOLE))
    copied(allotment).spend(guarantee(part))
    with pytest.raises(PrivacyBudgetError, match="was spent"):
        allotment.spend(guarantee(part))


def test_a_part_takes_no_other_relation_and_no_fewer_rows():
    part = Allotment(PrivacyBudget(1.0, 1e-6, rows_per_user=2).part(0.5, "zcdp"))
    small = {"epsilon": 0.01, "delta": 1e-6}
    assert part.accepts(guarantee(PrivacyBudget(**small, rows_per_user=2)))
    assert not part.accepts(guarantee(PrivacyBudget(**small, relation="zero-out", rows_per_user=2)))
    assert not part.accepts(guarantee(PrivacyBudget(**small)))
