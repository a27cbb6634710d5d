"""Models with hard zeros: how many coefficients a selection leaves, and which."""

import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.feature_selection import SelectFromModel
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from support import problem, rest_is_slow, storage

from sklearn_dpsco import DPLassoFW, DPLassoFWClassifier, DPMirrorClassifier
from sklearn_dpsco.privacy.budget import PrivacyBudget
from sklearn_dpsco.solvers import Selection
from sklearn_dpsco.solvers.frank_wolfe import _without_rare

N, D = 4000, 600
TRUE = np.arange(6)


def words(n_rows=N, *, seed=0):
    """Zeros and ones, a twentieth of them ones, and a signal of the first six columns."""
    X = sparse.csr_array(sparse.random(n_rows, D, density=0.05, random_state=seed, format="csr"))
    X.data[:] = 1.0
    return X, X[:, :6] @ np.array([1, 1, 1, -1, -1, -1])


def classifier(**settings):
    common = {"epsilon": 4.0, "relation": "zero-out", "bounds_X": (0, 1), "random_state": 0}
    return DPLassoFWClassifier(**common | {"classes": [False, True]} | settings)


def regressor(**settings):
    common = {"epsilon": 4.0, "relation": "zero-out", "bounds_X": (0, 1), "random_state": 0}
    return DPLassoFW(**common | {"bounds_y": (-2, 2)} | settings)


# ---------------------------------------------------------------------------- the rule


def last_iterate(picks, rates, radius, size):
    """What steps of these rates to the vertices (coordinate, sign) lead to."""
    coef = np.zeros(size)
    for (coordinate, sign), rate in zip(picks, rates, strict=True):
        coef *= 1 - rate
        coef[coordinate] += rate * sign * radius
    return coef


@pytest.mark.parametrize("learning_rate", ["auto", 0.15, 1.0])
@pytest.mark.parametrize(("fewest", "n_outputs"), [(2, 1), (3, 1), (2, 3)])
def test_fewer_selections_never_make_a_coefficient(learning_rate, fewest, n_outputs):
    T, d, rng = 12, 30, np.random.default_rng(0)
    solver = Selection(max_iter=T, learning_rate=learning_rate, min_selections=fewest)
    facts = problem(50, d // n_outputs, radius=3.0, n_outputs=n_outputs)
    plan = solver.plan(facts, PrivacyBudget(1.0, 1e-6))
    assert plan.problem.size == d + n_outputs
    rates = [2 / (t + 12) if learning_rate == "auto" else learning_rate for t in range(T)]
    kept = 0
    for _ in range(200):
        some = rng.choice([2, 5, plan.problem.size])
        columns, signs = rng.integers(0, some, T), rng.choice([-1, 1], T)
        picks = list(zip(columns, signs, strict=True))
        coef = last_iterate(picks, rates, 3.0, plan.problem.size)
        found = _without_rare(coef, plan)
        kept += np.count_nonzero(found[:d])
        for j in range(d):
            n_picks = sum(coordinate == j for coordinate, _ in picks)
            assert found[j] in (0.0, coef[j])
            assert found[j] == 0 or n_picks >= fewest
        np.testing.assert_array_equal(found[d:], coef[d:])  # the intercepts' stay
    assert (kept > 20) == (learning_rate != 1.0)  # a whole step forgets what was before
    # those that no few selections can make are kept: the last ones weigh most
    latest = [(1, 1)] * (T - fewest) + [(0, 1)] * fewest
    if learning_rate == "auto":
        assert _without_rare(last_iterate(latest, rates, 3.0, plan.problem.size), plan)[0] > 0
    # one less is not enough, however late
    latest[T - fewest] = (1, 1)
    assert _without_rare(last_iterate(latest, rates, 3.0, plan.problem.size), plan)[0] == 0


def test_it_costs_nothing_and_changes_no_selection():
    plain, sparser = (classifier(solver=Selection(min_selections=k)) for k in (1, 2))
    assert plain.plan(N, D).guarantee.releases == sparser.plan(N, D).guarantee.releases
    X, signal = words(2000)
    plain, sparser = (model.fit(X, signal > 0.5) for model in (plain, sparser))
    assert set(np.flatnonzero(sparser.coef_)) < set(np.flatnonzero(plain.coef_))
    with pytest.raises(ValueError, match="min_selections must be at most the number of steps, "):
        classifier(solver=Selection(min_selections=500)).plan(N, D)


# ------------------------------------------------------------------------- the support


@rest_is_slow("stored", ("dense", "csr", "csc"), ("csr",))
def test_no_more_coefficients_than_steps(stored):
    X, signal = words()
    X, three = storage(X.toarray(), stored), np.select([signal > 0.5, signal < -0.5], [2, 0], 1)
    targets = np.column_stack((signal, -signal, np.abs(signal)))
    cases = [
        (classifier(), signal > 0.5),
        (classifier(classes=[0, 1, 2]), three),
        (regressor(), signal),
        (regressor(), targets),
    ]
    for k, (model, y) in enumerate(cases):
        for delta, max_iter in (((0, 1e-6)[k % 2], 9), (1e-6, "auto")):
            model.set_params(solver=Selection(max_iter=max_iter), delta=delta).fit(X, y)
            assert 0 < np.count_nonzero(model.coef_) <= model.n_iter_
            assert isinstance(model.coef_, np.ndarray)


TWICE = Selection(min_selections=2)


def test_what_is_selected_twice_is_no_noise():
    X, signal = words()
    signal = signal + 0.3 * np.random.default_rng(1).standard_normal(N)
    found, noise = [], []
    for seed in range(2):
        model = classifier(solver=Selection(min_selections=2), random_state=seed, epsilon=8.0).fit(
            X, signal > 0
        )
        support = np.flatnonzero(model.coef_)
        found.append(np.isin(TRUE, support).mean())
        noise.append(np.setdiff1d(support, TRUE).size)
        assert np.all(np.sign(model.coef_[0, TRUE]) * [1, 1, 1, -1, -1, -1] >= 0)
        # the noise of a small epsilon is above what labels without a signal show by chance
        at_random = np.random.default_rng(seed).uniform(size=N) < 0.5
        model.set_params(epsilon=0.5).fit(X, at_random)
        assert np.count_nonzero(model.coef_) <= 1
    assert np.mean(found) > 0.8
    assert np.mean(noise) <= 2


def test_select_from_model():
    X, signal = words()
    y = signal > 0.5
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pipe = make_pipeline(
            SelectFromModel(classifier(solver=TWICE, epsilon=8.0)),
            LogisticRegression(),
        ).fit(X, y)
    inner = pipe[0].estimator_
    # scikit-learn's own threshold for a Lasso keeps what is not 0
    np.testing.assert_array_equal(pipe[0].get_support(), inner.coef_[0] != 0)
    assert pipe[0].transform(X).shape == (N, np.count_nonzero(inner.coef_))
    assert pipe.score(X, y) > max(np.mean(y), np.mean(~y))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a private model before another one leaks nothing
        private = DPMirrorClassifier(classes=[False, True], bounds_X=(0, 1), random_state=0)
        make_pipeline(SelectFromModel(classifier(solver=TWICE, epsilon=8.0)), private).fit(X, y)


def test_select_from_a_model_of_several_outputs():
    X, signal = words(1000)
    three = np.select([signal > 0.5, signal < -0.5], [2, 0], 1)
    models = [
        classifier(classes=[0, 1, 2], solver="selection").fit(X, three),
        regressor(solver="selection").fit(X, np.column_stack((signal, -signal))),
    ]
    for model in models:
        chosen = SelectFromModel(model, prefit=True).get_support()
        np.testing.assert_array_equal(chosen, np.any(model.coef_ != 0, axis=0))
        assert 0 < chosen.sum() <= model.n_iter_
