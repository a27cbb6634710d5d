"""Losses: derivatives, their bounds, and the compiled twins."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from sklearn_dpsco._kernels import pointwise
from sklearn_dpsco.losses import Huber, Logistic, SmoothedHinge, Squared, get_loss

LOSSES = [
    Squared(),
    Huber(0.1),
    Huber(1.5),
    Logistic(),
    SmoothedHinge(1.0),
    SmoothedHinge(0.25),
    SmoothedHinge(3.0),
]
CLASSIFIERS = [loss for loss in LOSSES if loss.task == "classification"]
every_loss = pytest.mark.parametrize("loss", LOSSES, ids=repr)


def sample(loss, size=4000, reach=4.0):
    """Predictions within `reach` and targets as the loss's task has them."""
    rng = np.random.default_rng(0)
    y = rng.uniform(-1, 1, size) if loss.task == "regression" else rng.choice([-1.0, 1.0], size)
    # with the kinks of the piecewise losses and both ends among the points
    z = np.concatenate((rng.uniform(-reach, reach, size - 6), [0, 1, -1, reach, -reach, 0.75]))
    return z, y


@every_loss
def test_derivative_against_finite_differences(loss):
    z, y = sample(loss)
    h = 1e-5
    slope = (loss.value(z + h, y) - loss.value(z - h, y)) / (2 * h)
    # where the derivative has a kink, the central difference is off by smoothness h / 2
    np.testing.assert_allclose(loss.derivative(z, y), slope, atol=loss.smoothness * h + 1e-9)


@every_loss
def test_loss_is_convex_and_non_negative(loss):
    z, y = sample(loss)
    assert np.all(loss.value(z, y) >= 0)
    assert np.all(loss.derivative(z + 0.01, y) >= loss.derivative(z, y) - 1e-15)


@every_loss
@pytest.mark.parametrize("reach", [0.0, 0.3, 2.0, 4.0])
def test_derivative_bound_holds_and_is_reached(loss, reach):
    z, y = sample(loss, reach=reach)
    z = np.clip(z, -reach, reach)
    y = np.concatenate((y, [1.0, -1.0, 1.0, -1.0]))
    z = np.concatenate((z, [reach, reach, -reach, -reach]))
    largest = np.abs(loss.derivative(z, y)).max()
    bound = loss.derivative_bound(reach)
    assert largest <= bound * (1 + 1e-15)
    assert largest >= 0.99 * bound


@every_loss
@pytest.mark.parametrize("h", [1e-4, 0.3])
def test_smoothness_bounds_the_change_of_the_derivative(loss, h):
    z, y = sample(loss)
    ratio = np.abs(loss.derivative(z + h, y) - loss.derivative(z, y)).max() / h
    assert ratio <= loss.smoothness * (1 + 1e-9)
    if h < 1e-3:
        assert ratio >= 0.99 * loss.smoothness


@every_loss
def test_compiled_derivative_is_the_same(loss):
    z, y = sample(loss, size=300)
    z = np.concatenate((z, [1e3, -1e3, 1e3, -1e3]))
    y = np.concatenate((y, [1.0, 1.0, -1.0, -1.0]))
    kernel = pointwise.clipped_derivative
    for function in (kernel, getattr(kernel, "py_func", kernel)):
        for clip in (np.inf, 0.2):
            compiled = [
                function(loss.loss_id, zi, yi, loss.kernel_parameter, clip)
                for zi, yi in zip(z, y, strict=True)
            ]
            expected = np.clip(loss.derivative(z, y), -clip, clip)
            np.testing.assert_allclose(compiled, expected, rtol=1e-14, atol=1e-15)


def test_loss_ids_differ():
    assert len({type(loss).loss_id for loss in LOSSES}) == len({type(loss) for loss in LOSSES})


@pytest.mark.parametrize("loss", [Squared(), Huber(0.1)], ids=repr)
@pytest.mark.parametrize("mean", [-1.0, -0.3, 0.0, 1.0])
def test_best_constant_of_a_regression_is_the_mean(loss, mean):
    assert loss.best_constant(mean) == mean


@pytest.mark.parametrize("loss", CLASSIFIERS, ids=repr)
@pytest.mark.parametrize("mean", [-0.97, -0.5, -0.1, 0.0, 0.01, 0.3, 0.9])
def test_best_constant_minimizes_the_expected_loss(loss, mean):
    def expected_loss(z):
        positive, negative = loss.value(np.array([z, z]), np.array([1.0, -1.0]))
        return (1 + mean) / 2 * positive + (1 - mean) / 2 * negative

    best = minimize_scalar(expected_loss, bounds=(-8, 8), method="bounded").fun
    assert expected_loss(loss.best_constant(mean)) <= best + 1e-9


@pytest.mark.parametrize("loss", CLASSIFIERS, ids=repr)
def test_best_constant_is_odd_and_finite_at_the_ends(loss):
    for mean in (0.2, 0.999, 1.0):
        constant = loss.best_constant(mean)
        assert np.isfinite(constant)
        assert loss.best_constant(-mean) == pytest.approx(-constant)


@every_loss
def test_far_predictions_neither_overflow_nor_lose_the_slope(loss):
    z = np.array([1e3, -1e3, 1e3, -1e3])
    y = np.array([1.0, 1.0, -1.0, -1.0])
    with np.errstate(all="raise", under="ignore"):
        value, derivative = loss.value(z, y), loss.derivative(z, y)
    assert np.all(np.isfinite(value))
    if loss.task == "classification":
        np.testing.assert_allclose(derivative, [0, -1, 1, 0], atol=1e-12)
        np.testing.assert_allclose(value, [0, 1e3, 1e3, 0], rtol=3e-3, atol=1e-12)


def test_logistic_probability_is_the_link():
    z = np.array([-800.0, -1.0, 0.0, 2.0, 800.0])
    p = Logistic().probability(z)
    assert np.all((p >= 0) & (p <= 1))
    np.testing.assert_allclose(p + Logistic().probability(-z), 1)
    # -log p is the loss of a positive label
    np.testing.assert_allclose(-np.log(p[1:]), Logistic().value(z, np.ones(5))[1:], atol=1e-12)


def test_get_loss():
    assert get_loss("squared", "regression") == Squared()
    assert get_loss("smoothed_hinge", "classification") == SmoothedHinge()
    mine = Huber(0.7)
    assert get_loss(mine, "regression") is mine


@pytest.mark.parametrize(
    ("loss", "task"),
    [
        ("hinge", "classification"),
        ("logistic", "regression"),
        ("squared", "classification"),
        (Squared(), "classification"),
        (Squared, "regression"),
        (None, "regression"),
    ],
)
def test_get_loss_refuses(loss, task):
    with pytest.raises(ValueError, match=f"loss must be a Loss for {task}"):
        get_loss(loss, task)


@pytest.mark.parametrize("bad", [0, -1.0, np.nan, np.inf, "1", None])
def test_bad_parameters(bad):
    with pytest.raises(ValueError, match="threshold must be"):
        Huber(bad)
    with pytest.raises(ValueError, match="width must be"):
        SmoothedHinge(bad)
