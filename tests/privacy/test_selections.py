"""The optimal accounting of adaptive selections: closed forms, other recursions, real games."""

import itertools
import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize_scalar
from scipy.stats import norm
from support import cells_of, half_is_enough, lattice_delta, rest_is_slow

from sklearn_dpsco.privacy import selections
from sklearn_dpsco.privacy.budget import PrivacyBudget, mu_delta, zcdp_delta
from sklearn_dpsco.privacy.selections import (
    gaussian_delta,
    has_optimum,
    selection_delta,
    selection_epsilon,
    selections_mu,
    selections_of_mu,
)


def one_step(epsilon, eta):
    """H_1 in closed form: the best t is (epsilon + eta) / 2."""
    if epsilon < 0:
        return -math.expm1(epsilon) + math.exp(epsilon) * one_step(-epsilon, eta)
    return math.expm1((min(epsilon, eta) - eta) / 2) ** 2 / -math.expm1(-eta)


def two_steps(epsilon, eta):
    """H_2: the maximum over a fine grid of t, refined, of the mean of H_1."""

    def loss(t):
        likely = math.expm1(t - eta) / math.expm1(-eta)
        return -(
            likely * one_step(epsilon - t, eta) + (1 - likely) * one_step(epsilon - t + eta, eta)
        )

    grid = np.linspace(0, eta, 201)
    at = min(grid, key=loss)
    box = (max(0, at - eta / 200), min(eta, at + eta / 200))
    found = minimize_scalar(loss, bounds=box, method="bounded", options={"xatol": 1e-9})
    return -min(loss(at), found.fun)


def test_one_step_is_the_closed_form():
    # epsilon as a fraction of the largest loss, k eta; on the grid, where chords are exact
    for case in itertools.product((0.01, 0.5, 3.0, 20.0), (0.125, 0.5, 0.75, 0.875)):
        eta, fraction = case
        expected = one_step(fraction * eta, eta)
        found = selection_delta(fraction * eta, eta, 1)
        assert expected <= found <= expected * (1 + 1e-6), case


def test_two_steps_are_one_step_maximized():
    for case in itertools.product((0.01, 0.5, 3.0), (0.05, 0.25, 0.5, 0.7)):
        eta, fraction = case
        epsilon = 2 * eta * fraction
        expected = two_steps(epsilon, eta)
        assert expected <= selection_delta(epsilon, eta, 2) <= expected * (1 + 3e-3), case


def test_a_restricted_adversary_comes_close_from_below():
    for case in (
        (1.0, 0.233, 5), (1.0, 0.173, 8), (0.1, 0.02, 12), (8.0, 2.0, 6), (0.3, 1.0, 4), (0, 0.3, 7)
    ):  # fmt: skip
        lower = lattice_delta(*case, points=128)
        assert lower <= selection_delta(*case) <= lower * 1.01, case
    # with a Gaussian release before the selections
    for case in (
        (1.0, 0.15, 6, 0.1),
        (0.1, 0.02, 9, 0.01),
        (5.0, 1.0, 4, 0.8),
        (1.0, 0.05, 5, 0.3),
    ):
        lower = lattice_delta(*case, points=64)
        assert lower * (1 - 1e-9) <= selection_delta(*case) <= lower * 1.01, case


def test_a_gaussian_release_before_one_selection_by_quadrature():
    epsilon, eta, mu = 0.6, 0.3, 0.25

    def density(loss):
        return norm.pdf(loss, mu**2 / 2, mu) * one_step(epsilon - loss, eta)

    kinks = [epsilon - eta, epsilon, epsilon + eta]
    expected = quad(density, -4, 4, points=kinks, limit=400, epsabs=1e-14)[0]
    assert expected * (1 - 1e-9) <= selection_delta(epsilon, eta, 1, mu) <= expected * (1 + 1e-3)


def exponential_mechanisms(rng, eta, n_outcomes):
    """Laws of one selection on two neighbours whose scores differ by a range of eta."""
    scores = rng.uniform(-2, 2, n_outcomes)
    change = rng.uniform(0, 1, n_outcomes)
    change[rng.permutation(n_outcomes)[:2]] = 0, 1
    weights = np.exp(scores), np.exp(scores + eta * change)
    return [w / w.sum() for w in weights]


def tree_of_selections(rng, eta, depth):
    """Probabilities of all leaves where each node has a mechanism of its own."""
    laws = [np.ones(1), np.ones(1)]
    for _ in range(depth):
        children = [exponential_mechanisms(rng, eta, 3) for _ in laws[0]]
        laws = [
            np.concatenate([p * child[side] for p, child in zip(law, children, strict=True)])
            for side, law in enumerate(laws)
        ]
    return laws


def test_no_tree_of_exponential_mechanisms_exceeds_the_bound():
    depth = 5
    for eta in (0.1, 4.0):
        rng = np.random.default_rng(0)
        levels = eta * np.array([0.0, 0.3, 1.0, 2.2])
        bounds = np.array([selection_delta(e, eta, depth) for e in levels])
        largest = np.zeros(levels.size)
        for _ in range(40):
            p, q = tree_of_selections(rng, eta, depth)
            for first, second in ((p, q), (q, p)):
                found = [np.maximum(first - math.exp(e) * second, 0).sum() for e in levels]
                assert np.all(found <= bounds), eta
                largest = np.maximum(largest, found)
        # the games are serious: somewhere at least a third of what is possible
        assert np.max(largest / bounds) > 1 / 3, eta


def test_adaptivity_is_paid_for():
    # the best fixed choice of t in every step (Dong, Durfee and Rogers) stays below what an
    # adaptive choice reaches, so the non-adaptive optimum would be no bound here
    eta, count, epsilon = 1.0, 6, 1.5
    fixed = 0.0
    for t in np.linspace(0, eta, 401)[1:-1]:
        p = math.expm1(t - eta) / math.expm1(-eta)
        up = np.arange(count + 1)
        loss = up * t + (count - up) * (t - eta)
        weight = np.array([math.comb(count, u) for u in up]) * p**up * (1 - p) ** (count - up)
        fixed = max(fixed, float(weight @ np.maximum(0, -np.expm1(epsilon - loss))))
    adaptive = lattice_delta(epsilon, eta, count, points=64)
    assert fixed < adaptive * 0.999 < selection_delta(epsilon, eta, count)


def test_gain_over_zcdp_at_epsilon_one():
    for count, gain, tolerance in ((5, 1.179, 2e-3), (8, 1.11, 2e-3), (50, 1.075, 1e-3)):
        by_zcdp = math.sqrt(8 * PrivacyBudget(1.0, 1e-6).rho / count)
        eta = selection_epsilon(1.0, 1e-6, count)
        assert eta / by_zcdp == pytest.approx(gain, abs=tolerance), count


@half_is_enough
@rest_is_slow("count", (1, 3, 20), ("1", "20"))
def test_the_search_lands_on_the_private_side_and_beats_the_other_analyses(count, cells):
    epsilons = (0.01, 0.3, 1.0, 6.0, 20.0) if cells == "all" else (0.01, 20.0)
    for case in cells_of(cells, epsilons, (1e-12, 1e-6, 0.1), (0.0, 0.1, 0.5)):
        epsilon, delta, share = case
        budget = PrivacyBudget(epsilon, delta)
        mu = math.sqrt(2 * share * budget.rho)
        eta = selection_epsilon(epsilon, delta, count, mu)
        assert selection_delta(epsilon, eta, count, mu, delta) <= delta, case
        assert selection_delta(epsilon, eta * (1 + 2e-4), count, mu, delta) > delta, case
        by_zcdp = math.sqrt(8 * (1 - share) * budget.rho / count)
        assert eta >= by_zcdp * (1 - 1e-3), case
        if share == 0:
            assert eta >= epsilon / count * (1 - 1e-3), case


def test_the_optimum_is_below_every_other_bound():
    for case in itertools.product((1, 4, 30), (0.03, 0.4), (0.0, 0.2), (0.0, 0.2, 1.0, 3.0)):
        count, eta, mu, epsilon = case
        rho = count * eta**2 / 8 + mu**2 / 2
        bound = selection_delta(epsilon, eta, count, mu)
        assert bound <= zcdp_delta(rho, epsilon) * 1.01 + 1e-10, case
        if mu == 0 and epsilon >= count * eta:
            assert bound <= 1e-10, case
        # one selection alone can reach a total variation of tanh(eta / 4)
        if epsilon == 0 and mu == 0:
            assert bound >= math.tanh(eta / 4), case


def test_delta_is_monotone():
    def values(**changes):
        base = {"epsilon": 0.8, "eta": 0.2, "count": 5, "mu": 0.1}
        name, grid = next(iter(changes.items()))
        return [selection_delta(**base | {name: value}) for value in grid]

    assert np.all(np.diff(values(epsilon=(0, 0.1, 0.5, 1, 1.5))) < 0)
    assert np.all(np.diff(values(eta=(0.01, 0.05, 0.2, 0.4, 2))) > 0)
    assert np.all(np.diff(values(count=(1, 2, 5, 10, 40))) > 0)
    assert np.all(np.diff(values(mu=(0, 1e-3, 0.02, 0.1, 0.5, 3))) > 0)


@half_is_enough
def test_many_selections_are_nearly_gaussian(cells):
    for case in cells_of(cells, (0.01, 20.0), (1e-12, 0.1)):
        budget = PrivacyBudget(*case)
        mu = 0.5 * budget.mu
        eta = selection_epsilon(*case, 100, mu)
        limit = 2 * math.sqrt((budget.mu**2 - mu**2) / 100)
        assert eta == pytest.approx(limit, rel=0.03), case


def test_nothing_is_left_after_a_gaussian_release_of_the_whole_budget():
    mu = PrivacyBudget(1.0, 1e-6).mu
    assert selection_epsilon(1.0, 1e-6, 3, mu * 1.0001) == 0
    assert selection_epsilon(1.0, 1e-6, 3, mu * 0.999) > 0


def test_a_finer_grid_only_lowers_the_bound(monkeypatch):
    found = []
    for cells in (8, 16, 32, 128):
        monkeypatch.setattr(selections, "_cells", lambda count, cells=cells: cells)
        found.append(selection_delta(0.7, 0.12, 11, 0.07))
    assert np.all(np.diff(found) < 0)
    assert found[2] == pytest.approx(found[3], rel=0.02)


# ------------------------------------------------------------------- Gaussian curves above


def test_the_gaussian_curve_of_selections_is_nowhere_below_theirs():
    for case in itertools.product((1e-3, 0.3, 2.0), (1, 2, 3, 7, 20)):
        eta, count = case
        mu = selections_mu(eta, count)
        levels = eta * math.sqrt(count) / 2 * np.linspace(0, 5, 15)
        for epsilon in levels[levels < count * eta]:
            # a lower bound on the truth, by an adversary with fewer choices
            game = lattice_delta(epsilon, eta, count, points=16)
            assert game <= mu_delta(mu, epsilon), case
        # and no lower curve is above it: somewhere they touch
        gap = [
            selection_delta(epsilon, eta, count) / mu_delta(mu * 0.999, epsilon)
            for epsilon in levels
        ]
        assert max(gap) > 1, case


def test_one_selection_touches_its_gaussian_curve_where_it_should():
    # the total variation, tanh(eta / 4), against erf(mu / sqrt 8)
    for eta in (1e-4, 0.1, 1.0, 8.0):
        expected = 2 * norm.ppf((1 + math.tanh(eta / 4)) / 2)
        assert expected <= selections_mu(eta, 1) <= expected * 1.001, eta


@half_is_enough
def test_gaussian_curves_of_selections_tend_to_the_limit(cells):
    for eta in (1e-5, 0.2) if cells == "all" else (0.2,):
        for count, most in ((1, 1.2535), (16, 1.022), (128, 1.0045), (1000, 1.005), (10**7, 1.005)):
            ratio = selections_mu(eta, count) / (eta * math.sqrt(count) / 2)
            assert 1 <= ratio <= most, (eta, count)
    # in proportion, where floats could not tell the curves apart
    for eta in (1e-13, 1e-17, 1e-300):
        assert selections_mu(eta, 5) / eta == pytest.approx(selections_mu(1e-6, 5) / 1e-6, rel=1e-4)
    mus, counts = (1e-3, 0.2, 8.0), (1, 100, 129, 5000)
    for mu, count in cells_of(cells, mus, counts) if cells == "all" else ((8.0, 1), (0.2, 129)):
        eta = selections_of_mu(mu, count)
        assert mu * (1 - 1e-4) <= selections_mu(eta, count) <= mu, (mu, count)
    # two laws that a float cannot tell from disjoint ones have no curve
    assert selections_mu(20.0, 50) == selections_mu(1e6, 1) == math.inf
    with pytest.raises(ValueError, match="at most 8"):
        selections_of_mu(8.1, 5)


def test_a_gaussian_release_is_worst_before_the_selections():
    # after one selection: the largest mean of the Gaussian curve over its two outcomes
    for eta, mu, epsilon in itertools.product((0.1, 0.8), (0.05, 0.4), (0.0, 0.1, 0.5, 1.2)):
        t = np.linspace(0, eta, 301)
        likely = np.expm1(t - eta) / np.expm1(-eta)
        up, down = (gaussian_delta(epsilon - t + moved, mu) for moved in (0.0, eta))
        after = likely * up + (1 - likely) * down
        both = math.hypot(mu, selections_mu(eta, 1))
        before = selection_delta(epsilon, eta, 1, mu)
        assert max(after) <= before * (1 + 1e-9), (eta, mu, epsilon)
        assert before <= mu_delta(both, epsilon) * (1 + 1e-6), (eta, mu, epsilon)


def test_selections_between_gaussian_releases_stay_below_the_common_curve():
    for case in itertools.product((0.05, 0.5), (3, 12), (0.1, 0.5), (0.0, 0.3, 1.5)):
        eta, count, mu, epsilon = case
        both = math.hypot(mu, selections_mu(eta, count))
        bound = mu_delta(both, epsilon)
        assert lattice_delta(epsilon, eta, count, mu) <= bound * (1 + 1e-9), case
        assert selection_delta(epsilon, eta, count, mu) <= bound * 1.02 + 1e-12, case


@half_is_enough
@pytest.mark.filterwarnings("error")
def test_large_budgets_raise_and_warn_nothing(cells):
    few, many = ((20.0, 1), (99.0, 30), (100.0, 1)), ((20.0, 128), (99.0, 2), (100.0, 128))
    for epsilon, count in few + many if cells == "all" else few:
        assert has_optimum(epsilon, 1e-6, count)
        eta = selection_epsilon(epsilon, 1e-6, count)
        assert epsilon / count <= eta * 1.001
        assert selection_delta(epsilon, eta, count, scale=1e-6) <= 1e-6
    assert not has_optimum(700.0, 1e-6, 1)
    assert not has_optimum(1.0, 1e-6, 129)
    assert not has_optimum(1.0, 1e-200, 5)
    for epsilon in (1000.0, 1e4):  # numbers do not grow with e^epsilon
        assert selection_delta(epsilon, epsilon * 0.999, 1) == 0
