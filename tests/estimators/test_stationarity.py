"""The Frank-Wolfe gap of fitted models."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import NotFittedError
from support import assert_refuses, scaled_table

from sklearn_dpsco import (
    DPFTRLRegressor,
    DPLassoFW,
    DPLassoFWClassifier,
    DPMirrorClassifier,
    DPMirrorRegressor,
    DPPhasedSGDClassifier,
    DPPhasedSGDRegressor,
)
from sklearn_dpsco.geometry import L1Ball, L2Ball, LInfBall
from sklearn_dpsco.losses import Logistic, Squared, Welsch
from sklearn_dpsco.solvers import NoisyMD, PhasedSGD

ONE_PASS = PhasedSGD(max_iter=1)
KINDS = [
    (DPLassoFW, {"solver": "gradient", "feasible_set": L1Ball(1.5)}, L1Ball(1.5)),
    (
        DPMirrorRegressor,
        {"feasible_set": L2Ball(0.8), "solver": NoisyMD(l2_penalty=0.2)},
        L2Ball(0.8),
    ),
    (DPMirrorRegressor, {"feasible_set": LInfBall(0.5), "loss": "welsch"}, LInfBall(0.5)),
    (DPMirrorRegressor, {"feasible_set": L1Ball(1.0), "fit_intercept": False}, L1Ball(1.0)),
    (DPPhasedSGDRegressor, {"feasible_set": L2Ball(2.0), "solver": ONE_PASS}, L2Ball(2.0)),
]


def fitted(kind, seed=0, n=300, epsilon=20.0, **settings):
    X, y = scaled_table(n, 3, seed=seed) if seed else scaled_table(n, 3)
    common = {"bounds_X": ([-2, -1, -1], [4, 1, 1]), "epsilon": epsilon, "random_state": 0}
    if issubclass(kind, (DPLassoFW, DPMirrorRegressor, DPPhasedSGDRegressor)):
        common["bounds_y"] = (-3, 1.5)
    else:
        common["classes"], y = [-1, 0, 1], np.digitize(y, np.quantile(y, (0.3, 0.7))) - 1
    return kind(**common | {"delta": 1e-6} | settings).fit(X, y), X, y


def by_hand(model, X, y, loss, geometry, penalty=0.0):
    """From the published attributes, and what was released of the centres."""
    low, high = np.array([-2.0, -1, -1]), np.array([4.0, 1, 1])
    scaled = (np.clip(X, low, high) - (low + high) / 2) / ((high - low) / 2)
    y = (np.clip(y, -3, 1.5) + 0.75) / 2.25
    coef = model.coef_ * (high - low) / 2 / 2.25
    z = (model.predict(np.clip(X, low, high)) + 0.75) / 2.25
    frame = model._scaled_model.frame
    if model.fit_intercept:
        scaled = np.column_stack((scaled - frame.center, np.ones(len(y))))
        coef = np.append(coef, z[0] - frame.offset - scaled[0, :-1] @ coef)
    gradient = scaled.T @ loss.derivative(z, y) / len(y) + penalty * coef
    return gradient @ coef + geometry.radius * geometry.dual_norm(gradient)


@pytest.mark.parametrize(("kind", "settings", "geometry"), KINDS)
def test_gap_is_the_largest_fall_of_the_tangent(kind, settings, geometry):
    model, X, y = fitted(kind, **settings)
    loss = Welsch() if settings.get("loss") == "welsch" else Squared()
    expected = by_hand(
        model, X, y, loss, geometry, getattr(settings.get("solver"), "l2_penalty", 0.0)
    )
    for store in (np.asarray, np.asfortranarray):
        assert model.stationarity_gap(store(X), y) == pytest.approx(expected, rel=1e-9)
    assert expected > 0


@pytest.mark.parametrize("kind", [DPMirrorClassifier, DPLassoFWClassifier, DPPhasedSGDClassifier])
def test_gap_of_several_classes(kind):
    settings = {"solver": "gradient", "units": "bounds"} if kind is DPLassoFWClassifier else {}
    if kind is not DPLassoFWClassifier:
        settings["feasible_set"] = L2Ball(3.0)
    if kind is DPPhasedSGDClassifier:
        settings["solver"] = ONE_PASS
    model, X, y = fitted(kind, bounds_X=(-1, 1), fit_intercept=False, **settings)
    labels = np.where(y[:, None] == np.array([-1, 0, 1]), 1.0, -1.0)
    loss, geometry = Logistic().of_outputs(3), model.plan_.geometry
    gradient = np.clip(X, -1, 1).T @ loss.derivative(np.clip(X, -1, 1) @ model.coef_.T, labels)
    gradient /= len(y)
    expected = np.sum(gradient * model.coef_.T)
    expected += geometry.radius * geometry.dual_norm(gradient.ravel())
    assert model.stationarity_gap(X, y) == pytest.approx(expected, rel=1e-9)
    assert model.stationarity_gap(sparse.csr_matrix(X), y) == pytest.approx(expected, rel=1e-9)
    # of the classes of the fit, whatever the labels at hand
    assert np.isfinite(model.stationarity_gap(X[y < 1], y[y < 1]))


def test_gap_falls_as_a_model_gets_better():
    settings = {"feasible_set": L2Ball(1.0), "bounds_X": (-1, 1), "relation": "zero-out"}
    solvers = (
        NoisyMD(max_iter=steps, gradient_clip=9.0, data_norm=3.0, learning_rate=0.5)
        for steps in (1, 400)
    )
    few, many = (
        fitted(DPMirrorRegressor, solver=solver, epsilon=1e8, **settings) for solver in solvers
    )
    assert many[0].stationarity_gap(*many[1:]) < 0.05 * few[0].stationarity_gap(*few[1:])


def test_gap_is_an_upper_bound_for_convex_losses():
    geometry = L2Ball(1.0)
    settings = {"feasible_set": geometry, "bounds_X": (-1, 1), "fit_intercept": False}
    model, X, y = fitted(DPMirrorRegressor, **settings)
    scaled_y, scaled = (np.clip(y, -3, 1.5) + 0.75) / 2.25, np.clip(X, -1, 1)

    def value(coef):
        return np.mean((scaled @ coef - scaled_y) ** 2) / 2

    gap = model.stationarity_gap(X, y)
    rng = np.random.default_rng(0)
    for _ in range(200):
        assert value(model.coef_ / 2.25) - value(geometry.project(rng.normal(size=3))) <= gap


def test_gap_needs_a_bounded_set_and_a_fit():
    for settings in (
        {"kind": DPMirrorRegressor},  # learned units
        {"kind": DPPhasedSGDRegressor, "feasible_set": "unconstrained", "solver": ONE_PASS},
        {"kind": DPPhasedSGDRegressor, "n": 4000},
    ):
        model, X, y = fitted(**settings)
        assert_refuses(model.stationarity_gap, "bounded feasible set", X, y)
    with pytest.raises(NotFittedError):
        DPLassoFW().stationarity_gap([[0.0]], [0.0])
    assert not hasattr(DPFTRLRegressor, "stationarity_gap")


def test_gap_checks_its_data_and_leaves_the_model_as_it_was():
    model, X, y = fitted(DPMirrorRegressor, feasible_set="l2")
    before = {name: np.copy(getattr(model, name)) for name in ("coef_", "intercept_")}
    model.stationarity_gap(X[:1], y[:1])
    assert_refuses(model.stationarity_gap, "features", X[:, :2], y)
    assert_refuses(model.stationarity_gap, "inconsistent numbers of samples", X, y[1:])
    assert_refuses(model.stationarity_gap, "1 targets", X, np.column_stack((y, y)))
    for name, value in before.items():
        np.testing.assert_array_equal(getattr(model, name), value)


def test_empty_records_count_as_nothing():
    settings = {"feasible_set": L2Ball(1.0), "nonfinite": "zero", "fit_intercept": False}
    model, X, y = fitted(DPMirrorRegressor, **settings)
    half = X.copy()
    half[::2] = np.nan
    expected = model.stationarity_gap(X[1::2], y[1::2]) / 2
    assert model.stationarity_gap(half, y) == pytest.approx(expected, rel=1e-9)
