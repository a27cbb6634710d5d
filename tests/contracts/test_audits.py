"""Black-box audits: whole fits on two neighbouring tables, many times.

The default run fits each a few times, to see that the audit works on every estimator; the
long run is marked slow: 20,000 fits of each table.
"""

import numpy as np
import pytest
from registry import build, each, is_classifier, known, switch_noise_off

from sklearn_dpsco.audit import audit

N = 20
# so that little else than the noise hides the record
SETTINGS = {"delta": 1e-6, "max_iter": 2, "shuffle": False}


def neighbours(name):
    """All weight of the features on two rows, whose targets cancel out or add up."""
    X, y = np.zeros((N, 1)), np.where(np.arange(N) % 2, 1.0, -1.0)
    X[:2], y[:2] = 1.0, (1.0, -1.0)
    other = y.copy()
    other[0] = -1.0
    if is_classifier(name):
        y, other = (np.where(target > 0, "yes", "no") for target in (y, other))
    return (X, y), (X, other)


def run(name, n_trials, epsilon, **settings):
    model = build(name, epsilon=epsilon, **known(name, SETTINGS), **settings)
    return audit(model, *neighbours(name), n_trials, random_state=0)


@each
def test_few_fits_flag_an_estimator_without_noise_and_no_other(name, monkeypatch):
    result = run(name, 60, 0.2)
    assert not result.flagged
    assert np.unique(result.scores).size > 1
    switch_noise_off(monkeypatch)
    assert run(name, 60, 0.2).flagged


@pytest.mark.slow
@each
def test_many_fits(name):
    result = run(name, 20_000, 4.0)
    assert not result.flagged
    # the Gaussian bound is for plans of Gaussian noise
    model = build(name, epsilon=4.0, **known(name, SETTINGS))
    if model.plan(N, 1).guarantee.composition == "gdp":
        assert result.gaussian_epsilon_lower_bound <= 4.0
