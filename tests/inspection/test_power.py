"""How many rows and which epsilon, before any data is read."""

import numpy as np
import pytest

from sklearn_dpsco import (
    DPLinearRegression,
    DPLogisticRegression,
    PowerDisplay,
    epsilon_needed,
    rows_needed,
)

LINEAR = DPLinearRegression(epsilon=1.0, delta=1e-6, bounds_X=(0, 1), bounds_y=(0, 1))
LOGISTIC = DPLogisticRegression(epsilon=1.0, delta=1e-6, bounds_X=(0, 1), classes=[0, 1])


def test_rows_needed_is_the_least_that_is_enough():
    n = rows_needed(LINEAR, 5, std=0.02)
    model = DPLinearRegression(**LINEAR.get_params()).set_params(inference=True)
    reached = [model.plan(k, 5).expected_std(safe=True) for k in (n, int(0.99 * n))]
    assert reached[0] <= 0.02 < reached[1]
    assert rows_needed(LINEAR, 5, std=0.01) > n
    by_power = rows_needed(LOGISTIC, 5, effect=0.1, power=0.9, prevalence=0.2)
    plan = DPLogisticRegression(**LOGISTIC.get_params()).set_params(inference=True)
    assert 0.9 <= plan.plan(by_power, 5).power(0.1, prevalence=0.2, safe=True) < 0.91
    assert LINEAR.inference is False


def test_epsilon_needed_is_the_least_that_is_enough():
    epsilon = epsilon_needed(LINEAR, 50_000, 5, effect=0.03, power=0.8)
    model = DPLinearRegression(**LINEAR.get_params()).set_params(inference=True)
    assert model.set_params(epsilon=epsilon).plan(50_000, 5).power(0.03, safe=True) >= 0.8
    assert model.set_params(epsilon=0.97 * epsilon).plan(50_000, 5).power(0.03, safe=True) < 0.8
    with pytest.raises(ValueError, match="more by sampling alone; rows_needed says"):
        epsilon_needed(LINEAR, 1000, 5, std=0.001)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({}, "give either std, or effect and power"),
        ({"std": 0.1, "effect": 0.1}, "give either std, or effect and power"),
        ({"std": 0}, "std must be"),
        ({"effect": 0.1, "power": 1.0}, "power must be"),
        ({"effect": "large"}, "effect must be"),
    ],
)
def test_wrong_wishes(asked, message):
    with pytest.raises(ValueError, match=message):
        rows_needed(LINEAR, 5, **asked)


def test_what_has_no_standard_errors_says_so():
    model = DPLinearRegression(bounds_X=(0, 1), bounds_y=(0, 1), max_rows_per_user=2)
    with pytest.raises(ValueError, match="max_rows_per_user=1"):
        rows_needed(model, 5, std=0.1)
    with pytest.raises(ValueError, match=r"10\^12 rows are not enough"):
        rows_needed(LINEAR.set_params(epsilon=1.0), 5, std=1e-9)


def test_displays_show_noise_above_sampling():
    pytest.importorskip("matplotlib")
    display = PowerDisplay.from_estimator(LINEAR, 20_000, 5, epsilons=[0.001, 0.5, 2.0], r2=0.3)
    assert np.isnan(display.std[0])  # too few rows for any standard error
    assert np.all(display.std[1:] > display.std_sampling[1:])
    assert display.std[1] > display.std[2]
    by_rows = PowerDisplay.from_estimator(LINEAR, [10_000, 40_000], 5)
    assert by_rows.ax_.get_xlabel() == "Number of rows"
    assert by_rows.std[0] > 2 * by_rows.std[1]  # noise falls faster than sampling
