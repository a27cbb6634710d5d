"""Searches: all noise that is drawn in a run is in its guarantee."""

import numpy as np
import pytest
from registry import every_release

from sklearn_dpsco import DPGridSearchCV, DPLassoFWClassifier
from sklearn_dpsco.model_selection import search as search_module


@pytest.mark.parametrize("method", ["probe", "repeat"])
@pytest.mark.parametrize("delta", [0, 1e-6])
def test_every_noise_of_a_search_is_one_of_its_plan(method, delta, monkeypatch):
    """What is drawn in a run is what the guarantee counts, no more and no other."""
    X = np.random.default_rng(0).uniform(-1, 1, (1000, 3))
    y = np.where(X[:, 0] > 0, "b", "a")
    model = DPLassoFWClassifier(max_iter=3, bounds_X=(-1, 1), classes=["a", "b"])
    settings = {"method": method, "delta": delta, "epsilon": 8.0}
    search = DPGridSearchCV(model, {"radius": [1.0, 30.0]}, **settings)
    seen = []

    def answer(mechanism, value, release):
        seen.append(mechanism)
        return release()

    monkeypatch.setattr(search_module, "draw_trials", lambda mean, stream: 2)
    with every_release(answer):
        search.fit(X, y)
    plan = search.plan_
    if method == "probe":
        parts = [g for _, options in plan.guarantee.parts[:-1] for g in options]
        parts.append(plan.guarantee.parts[-1][1][search.best_index_])
        planned = [(r.mechanism, r.count) for g in parts for r in g.releases]
        assert len(seen) == sum(count for _, count in planned)
        assert set(map(repr, seen)) == {repr(mechanism) for mechanism, _ in planned}
    else:
        fits = {
            repr(r.mechanism) for plans in plan.fits for p in plans for r in p.guarantee.releases
        }
        assert set(map(repr, seen)) <= fits | {repr(plan.score)}
        assert sum(m == plan.score for m in seen) == 2
