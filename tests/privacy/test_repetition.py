"""Repetition: the law of the number of trials, and what the best of them costs."""

import math

import numpy as np
import pytest
from scipy.stats import chisquare

from sklearn_dpsco import PrivacyBudget
from sklearn_dpsco.privacy import repetition
from sklearn_dpsco.privacy.repetition import RepeatedGuarantee, draw_trials, trial_budget
from sklearn_dpsco.randomness.stream import stream_from_random_state

MEANS = (1.5, 3.0, 20.0, 300.0)


def law(mean, n):
    gamma = repetition._gamma(mean)
    k = np.arange(1, n + 1)
    return (1 - gamma) ** k / (k * math.log(1 / gamma))


@pytest.mark.parametrize("mean", MEANS)
def test_the_law_is_logarithmic_with_its_mean_and_within_its_error(mean):
    weights = np.array([float(w) for w in repetition._weights(mean)])
    n, p = weights.size, weights / weights.sum()
    assert p @ np.arange(1, n + 1) == pytest.approx(mean, rel=1e-6)
    ideal, powers = law(mean, 2 * n), np.arange(2 * n)
    for x in np.linspace(0, 1, 21):
        of_ideal = np.sum(ideal * (powers + 1) * x**powers)
        of_drawn = np.sum(p * (powers[:n] + 1) * x ** powers[:n])
        # floats, of which this sum is made, are coarser than the stated error
        assert abs(of_drawn / of_ideal - 1) <= repetition._law_error(mean) + 1e-12


def test_trials_are_drawn_from_it():
    stream = stream_from_random_state(0)
    drawn = np.bincount([draw_trials(3.0, stream) for _ in range(20_000)], minlength=12)
    wanted = law(3.0, 11) * 20_000
    seen = np.append(drawn[1:12], drawn[12:].sum())
    wanted = np.append(wanted, 20_000 - wanted.sum())
    assert chisquare(seen, wanted).pvalue > 1e-8
    other = law(2.7, 11) * 20_000
    assert chisquare(seen, np.append(other, 20_000 - other.sum())).pvalue < 1e-8


@pytest.mark.parametrize("mean", MEANS)
@pytest.mark.parametrize("rows", [1, 3])
def test_the_whole_is_within_the_budget_and_a_larger_trial_is_not(mean, rows):
    budget = PrivacyBudget(2.0, 1e-6, rows_per_user=rows)
    trial = trial_budget(budget, mean)
    assert 0.3 < trial.mu / budget.mu < 0.9
    whole = RepeatedGuarantee.of_trials(budget, [[repetition._Zcdp.of(trial)]], mean)
    assert 0.999 < whole.epsilon_at(1e-6) / 2 <= 1 + 1e-9
    larger = repetition._Zcdp.of(PrivacyBudget(1.01 * trial.epsilon, 1e-6, rows_per_user=rows))
    with pytest.raises(AssertionError, match="more than its budget"):
        RepeatedGuarantee.of_trials(budget, [[larger]], mean)
    assert whole.cost("zcdp") == math.inf
    assert not whole.composes_in("gdp")
