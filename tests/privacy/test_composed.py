"""Guarantees of several parts, and the parts of a budget that were charged as a whole."""

import copy
import itertools
import math

import numpy as np
import pytest
from dp_accounting import dp_event as dp
from dp_accounting.pld import PLDAccountant
from scipy.stats import norm
from sklearn.base import clone

from sklearn_dpsco import Guarantee, PrivacyBudget, PrivacyBudgetError
from sklearn_dpsco.mechanisms import Gaussian, Laplace, Release, SelectVertex
from sklearn_dpsco.mechanisms.batch import BatchGaussian
from sklearn_dpsco.model_selection.private_steps import Allotment
from sklearn_dpsco.privacy import events
from sklearn_dpsco.privacy.budget import RELATIONS, size_epsilon
from sklearn_dpsco.privacy.sampling import mixture_delta
from sklearn_dpsco.privacy.selections import gaussian_delta
from sklearn_dpsco.randomness.subsets import RandomBatches

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
    whole = Guarantee.of_parts(WHOLE, "gdp", [("one", [cheap, dear]), ("two", [grouped])])
    assert whole.cost("gdp") == pytest.approx(WHOLE.mu**2 / 2, rel=1e-9)
    assert whole.cost("gdp") == dear.cost("gdp") + grouped.cost("gdp")
    assert whole.renyi(3.0) == dear.renyi(3.0) + grouped.renyi(3.0)
    assert whole.second_opinion() <= 2.0 * (1 + 1e-4)
    with pytest.raises(AssertionError, match="more than its budget"):
        Guarantee.of_parts(WHOLE, "gdp", [("one", [dear]), ("two", [dear]), ("3", [cheap])])


def test_of_groups_next_to_random_batches_the_worst_counts_whatever_costs_without_sampling_are():
    noise = BatchGaussian(1.0, 1.5, 1, "float", sampling=RandomBatches(1000, 10, "fixed"))
    batches = Release("batches", noise, 100, "one")
    plain = Release("mean", Gaussian(1.0, 8.0, 1, "float"), 1, "two")
    assert plain.cost("zcdp") < batches.cost("zcdp")
    first, second, whole = (
        Guarantee(3.0, 1e-6, "replace-one", "pld", some)
        for some in ((batches,), (plain,), (batches, plain))
    )
    assert first.epsilon_at(1e-6) < second.epsilon_at(1e-6)
    assert whole.epsilon_at(1e-6) == pytest.approx(second.epsilon_at(1e-6), rel=1e-3)
    assert whole.epsilon_at(1e-6) <= whole.second_opinion() * (1 + 1e-3)
    dear = Release("mean", Gaussian(1.0, 0.5, 1, "float"), 1, "two")
    with pytest.raises(AssertionError, match="more than its budget"):
        Guarantee(3.0, 1e-6, "replace-one", "pld", (batches, dear))


def borne(found, cost):
    """What each unit bears that has a choice of groups, and of alternatives, for itself."""
    if found.parts:
        forks = [[c for one in options for c in borne(one, cost)] for _, options in found.parts]
    else:
        groups = {r.group: 0.0 for r in found.releases if r.group is not None}
        for release in found.releases:
            if release.group is not None:
                groups[release.group] += cost(release)
        on_all = [[cost(r)] for r in found.releases if r.group is None]
        forks = on_all + [list(groups.values())] * bool(groups)
    return [sum(choice) for choice in itertools.product(*forks)]


@pytest.mark.parametrize("relation", RELATIONS)
def test_what_the_worst_unit_bears_is_what_a_tree_costs(relation):
    rng = np.random.default_rng(0)
    budget = PrivacyBudget(1e3, 1e-6, relation)

    def leaf(currency):
        releases = []
        for k in range(rng.integers(2, 6)):
            # next to each other, they compose in zCDP only
            kind = Laplace if currency == "zcdp" and k % 2 else Gaussian
            mechanism = kind(1.0, rng.uniform(3, 9))
            group = [None, "first", "second"][rng.integers(3)]
            releases.append(Release(str(k), mechanism, int(rng.integers(1, 4)), group))
        return Guarantee.of(budget, releases, currency)

    def tree(currency, depth):
        if depth == 0:
            return leaf(currency)
        options = [
            (str(k), [tree(currency, depth - 1) for _ in range(rng.integers(1, 3))])
            for k in range(rng.integers(1, 3))
        ]
        return Guarantee.of_parts(budget, currency, options)

    for k in range(18):
        currency = ("gdp", "zcdp")[k % 2]
        found = tree(currency, k % 3)
        most = max(borne(found, lambda release, kind=currency: release.cost(kind)))
        assert found.cost(currency) == pytest.approx(most, rel=1e-14)
        divergence = max(borne(found, lambda release: release.renyi(7.0)))
        assert found.renyi(7.0) == pytest.approx(divergence, rel=1e-14)
        # the epsilon of that unit alone, or more by its search
        if currency == "gdp":
            epsilon = size_epsilon("gdp", math.sqrt(2 * most), 1e-6)
        else:
            epsilon = size_epsilon("zcdp", most, 1e-6)
        assert epsilon * (1 - 1e-12) <= found.epsilon_at(1e-6) <= epsilon * (1 + 1e-9)


def test_parts_are_for_users_of_the_same_number_of_rows():
    other = guarantee(PrivacyBudget(1.0, 1e-6, rows_per_user=2))
    with pytest.raises(AssertionError, match="another number of rows"):
        Guarantee.of_parts(WHOLE, "gdp", [("one", [other])])


def test_what_is_shown_of_parts_says_of_whom():
    budget = PrivacyBudget(1.0, 1e-6, rows_per_user=2)
    whole = Guarantee.of_parts(budget, "gdp", [("one", [guarantee(budget)])])
    assert whole.overview().lines[-1] == "  for users of up to 2 rows"


@pytest.mark.parametrize("copied", [lambda a: a, copy.copy, copy.deepcopy, clone])
def test_a_part_is_spent_once_by_all_of_its_copies(copied):
    part = WHOLE.part(0.5, "gdp")
    allotment = Allotment(part)
    with pytest.raises(PrivacyBudgetError, match="costs more"):
        allotment.spend(guarantee(WHOLE))
    copied(allotment).spend(guarantee(part))
    with pytest.raises(PrivacyBudgetError, match="was spent"):
        allotment.spend(guarantee(part))
    for asked in (allotment.remaining, allotment.parallel):
        with pytest.raises(TypeError, match="for one fit"):
            asked()


def test_a_part_takes_no_other_relation_and_no_fewer_rows():
    part = Allotment(PrivacyBudget(1.0, 1e-6, rows_per_user=2).part(0.5, "zcdp"))
    small = {"epsilon": 0.01, "delta": 1e-6}
    assert part.accepts(guarantee(PrivacyBudget(**small, rows_per_user=2)))
    assert not part.accepts(guarantee(PrivacyBudget(**small, relation="zero-out", rows_per_user=2)))
    assert not part.accepts(guarantee(PrivacyBudget(**small)))


# ------------------------------------------------------------- random batches next to others


def batches(multiplier, count=20, law="fixed"):
    noise = dp.GaussianDpEvent(multiplier)
    if law == "poisson":
        return dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(0.01, noise), count)
    return dp.SelfComposedDpEvent(dp.SampledWithoutReplacementDpEvent(2000, 20, noise), count)


def test_a_choice_among_events_costs_what_the_best_choice_by_the_outcome_can_reach():
    # one step each: curves that cross, rare large losses against frequent small ones
    first, frequent, rare = 0.6, 0.28, batches(0.7, 1)
    event = events.composed([dp.GaussianDpEvent(1 / first)])
    both = events.one_of([dp.GaussianDpEvent(1 / frequent), rare])
    z = np.linspace(-9, 9, 20_001)
    loss, weight = first * z + first**2 / 2, norm.pdf(z) * (z[1] - z[0])
    for epsilon in (0.5, 1.5, 2.5):
        left = epsilon - loss
        curves = [gaussian_delta(left, frequent)]
        # of one batch, the same in both orders
        delta = mixture_delta(np.abs(left), 0.7, 0.01)
        curves.append(np.where(left >= 0, delta, -np.expm1(left) + np.exp(left) * delta))
        exact = float(weight @ np.maximum(*curves))
        alone = max(float(weight @ curve) for curve in curves)
        found = events.pld_delta(events.composed([event, both]), epsilon, 1.0)
        assert exact * (1 - 1e-6) <= found <= exact * 1.02
        assert alone < exact
    assert events.one_of([rare, batches(0.7, 1)]) == rare


def test_an_accountant_that_is_not_ours_agrees_on_poisson_batches_next_to_selections():
    budget = PrivacyBudget(2.0, 1e-6, "zero-out")
    part = budget.part(0.4, "gdp")
    selection = SelectVertex.calibrate(1.0, part.mixed_allowance)
    selected = Guarantee.of(part, [Release("choice", selection)], "gdp")
    sampling = RandomBatches(2000, 20, "poisson")

    def fit(multiplier):
        noise = BatchGaussian(1.0, multiplier * 1.001, sampling=sampling)
        return Guarantee.of(budget, [Release("steps", noise, 20)], "pld")

    def whole(*multipliers):
        parts = [("choice", [selected]), ("fit", list(map(fit, multipliers)))]
        return Guarantee.of_parts(budget, "pld", parts)

    found = whole(1.1)
    accountant = PLDAccountant(value_discretization_interval=1e-3)
    theirs = accountant.compose(found.dp_event).get_epsilon(1e-6)
    assert theirs == pytest.approx(found.second_opinion(), rel=1e-2)
    assert whole(1.1, 1.5).second_opinion() == pytest.approx(found.second_opinion(), rel=1e-3)
    assert found.cost("gdp") > budget.mu**2 / 2  # without amplification
    with pytest.raises(AssertionError, match="more than its budget"):
        whole(1.1, 0.75)
