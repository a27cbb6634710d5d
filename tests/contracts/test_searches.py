"""Searches: all noise that is drawn in a run is in its guarantee."""

import numpy as np
import pytest
from registry import every_release

from sklearn_dpsco import DPGridSearchCV, DPLassoFWClassifier
from sklearn_dpsco.geometry import L1Ball
from sklearn_dpsco.solvers import Gradient, Selection


@pytest.mark.parametrize("delta", [0, 1e-6])
def test_every_noise_of_a_search_is_one_of_its_plan(delta):
    """What is drawn in a run is what the guarantee counts, no more and no other."""
    X = np.random.default_rng(0).uniform(-1, 1, (1000, 3))
    y = np.where(X[:, 0] > 0, "b", "a")
    solver = Gradient(max_iter=3) if delta else Selection(max_iter=3)
    model = DPLassoFWClassifier(bounds_X=(-1, 1), classes=["a", "b"], solver=solver)
    grid = {"feasible_set": [L1Ball(1.0), L1Ball(30.0)]}
    search = DPGridSearchCV(model, grid, delta=delta, epsilon=8.0)
    seen = []

    def answer(mechanism, value, release):
        seen.append(mechanism)
        return release()

    with every_release(answer):
        search.fit(X, y)
    plan = search.plan_
    parts = [g for _, options in plan.guarantee.parts[:-1] for g in options]
    parts.append(plan.guarantee.parts[-1][1][search.best_index_])
    planned = [(r.mechanism, r.count) for g in parts for r in g.releases]
    assert len(seen) == sum(count for _, count in planned)
    assert set(map(repr, seen)) == {repr(mechanism) for mechanism, _ in planned}
