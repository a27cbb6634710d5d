"""Black-box audits of the estimators: whole fits on two neighbouring tables, many times.

The default run fits each a few times, to see that the audit works on it; the long run is
marked slow: 20,000 fits of each table.
"""

import numpy as np
import pytest

import sklearn_dpsco
from sklearn_dpsco.audit import audit
from sklearn_dpsco.mechanisms import _AdditiveNoise

EPSILON, DELTA, N = 4.0, 1e-6, 20
ESTIMATORS = sorted(
    name for name in sklearn_dpsco.__all__ if hasattr(getattr(sklearn_dpsco, name), "fit")
)
PUBLIC = {"epsilon": EPSILON, "delta": DELTA, "relation": "replace-one"}
DECLARED = {
    "bounds_X": (-1, 1), "bounds_y": (-1, 1), "classes": [-1.0, 1.0], "max_iter": 2,
    "shuffle": False,  # which would hide what the noise has to hide
}  # fmt: skip


def table():
    """All weight of the features on two rows, whose targets cancel out or add up."""
    X, y = np.zeros((N, 1)), np.where(np.arange(N) % 2, 1.0, -1.0)
    X[:2], y[:2] = 1.0, (1.0, -1.0)
    other = y.copy()
    other[0] = -1.0
    return (X, y), (X, other)


def estimator(name, epsilon=EPSILON):
    kind = getattr(sklearn_dpsco, name)
    known = kind().get_params()
    public = PUBLIC | {"epsilon": epsilon}
    return kind(**public, **{k: v for k, v in DECLARED.items() if k in known})


def run(name, n_trials, epsilon=EPSILON):
    return audit(estimator(name, epsilon), *table(), n_trials, random_state=0)


def test_every_estimator_is_audited():
    assert len(ESTIMATORS) >= 2
    assert {"DPLassoFW", "DPLassoFWClassifier"} <= set(ESTIMATORS)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_few_fits(name, monkeypatch):
    assert not run(name, 250, epsilon=1.0).flagged
    # and that these few would tell an estimator without noise
    monkeypatch.setattr(_AdditiveNoise, "_with_noise", lambda self, value, stream: value)
    assert run(name, 250, epsilon=1.0).flagged


@pytest.mark.slow
@pytest.mark.parametrize("name", ESTIMATORS)
def test_many_fits(name):
    result = run(name, 20_000)
    assert not result.flagged
    # the Gaussian bound is for plans of Gaussian noise
    if estimator(name).plan(N, 1).guarantee.composition == "gdp":
        assert result.gaussian_epsilon_lower_bound <= EPSILON
