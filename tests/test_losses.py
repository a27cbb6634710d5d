"""Losses: derivatives, their bounds, proximal points and envelopes, and the compiled twins."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from support import problem

from sklearn_dpsco._kernels import pointwise
from sklearn_dpsco._linear import clipped
from sklearn_dpsco.accounting import PrivacyBudget
from sklearn_dpsco.losses import (
    Absolute,
    EpsilonInsensitive,
    Hinge,
    Huber,
    Logistic,
    Quantile,
    SmoothedHinge,
    Squared,
    SquaredHinge,
    get_loss,
)
from sklearn_dpsco.solvers.frank_wolfe import FrankWolfe

LOSSES = [
    Squared(),
    Huber(0.1),
    Huber(1.5),
    Logistic(),
    SmoothedHinge(1.0),
    SmoothedHinge(0.25),
    SmoothedHinge(3.0),
    SquaredHinge(),
]
NON_SMOOTH = [
    Absolute(),
    Quantile(),
    Quantile(0.9),
    EpsilonInsensitive(),
    EpsilonInsensitive(0.0),
    EpsilonInsensitive(0.4),
    Hinge(),
]
EVERY = LOSSES + NON_SMOOTH
CLASSIFIERS = [loss for loss in EVERY if loss.task == "classification"]
every_loss = pytest.mark.parametrize("loss", EVERY, ids=repr)
every_smooth = pytest.mark.parametrize("loss", LOSSES, ids=repr)
every_envelope = pytest.mark.parametrize(
    "loss", [loss for loss in EVERY if not isinstance(loss, Logistic)], ids=repr
)
BETAS = [0.3, 4.0, 1000.0]


def sample(loss, size=4000, reach=4.0):
    """Predictions within `reach` and targets as the loss's task has them."""
    rng = np.random.default_rng(0)
    y = rng.uniform(-1, 1, size) if loss.task == "regression" else rng.choice([-1.0, 1.0], size)
    # with the kinks of the piecewise losses and both ends among the points
    z = np.concatenate((rng.uniform(-reach, reach, size - 6), [0, 1, -1, reach, -reach, 0.75]))
    return z, y


@every_smooth
def test_derivative_against_finite_differences(loss):
    z, y = sample(loss)
    h = 1e-5
    slope = (loss.value(z + h, y) - loss.value(z - h, y)) / (2 * h)
    # where the derivative has a kink, the central difference is off by smoothness h / 2
    np.testing.assert_allclose(loss.derivative(z, y), slope, atol=loss.smoothness * h + 1e-9)


@pytest.mark.parametrize("loss", NON_SMOOTH, ids=repr)
def test_derivative_is_a_subgradient(loss):
    z, y = sample(loss)
    z[:200] = y[:200]  # and at the kinks
    slope = loss.derivative(z, y)
    for other in np.linspace(-4, 4, 41):
        tangent = loss.value(z, y) + slope * (other - z)
        assert np.all(loss.value(np.full_like(z, other), y) >= tangent - 1e-14)
    h = 1e-7
    between = loss.derivative(z - h, y) == loss.derivative(z + h, y)
    assert between.mean() > 0.9
    difference = (loss.value(z + h, y) - loss.value(z - h, y)) / (2 * h)
    np.testing.assert_allclose(slope[between], difference[between], atol=1e-7)


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


@every_smooth
@pytest.mark.parametrize("h", [1e-4, 0.3])
def test_smoothness_bounds_the_change_of_the_derivative(loss, h):
    z, y = sample(loss)
    ratio = np.abs(loss.derivative(z + h, y) - loss.derivative(z, y)).max() / h
    assert ratio <= loss.smoothness * (1 + 1e-9)
    if h < 1e-3:
        assert ratio >= 0.99 * loss.smoothness


@pytest.mark.parametrize("loss", NON_SMOOTH, ids=repr)
def test_losses_with_a_kink_say_so(loss):
    assert loss.smoothness == np.inf
    with pytest.raises(ValueError, match="need a smooth loss"):
        FrankWolfe().plan(problem(10, 2, loss=loss), PrivacyBudget(1.0))


# ------------------------------------------------------- proximal points and envelopes


def exact_prox(loss, z, y, beta):
    """Bisection on the sign of the subgradient of the strongly convex objective."""
    reach = (loss.derivative_bound(np.abs(z).max()) + 1) / beta
    low, high = z - reach, z + reach
    for _ in range(100):
        middle = (low + high) / 2
        rising = loss.derivative(middle, y) + beta * (middle - z) > 0
        low, high = np.where(rising, low, middle), np.where(rising, middle, high)
    return (low + high) / 2


@every_envelope
@pytest.mark.parametrize("beta", BETAS)
def test_prox_minimizes(loss, beta):
    z, y = sample(loss, size=500)
    np.testing.assert_allclose(loss.prox(z, y, beta), exact_prox(loss, z, y, beta), atol=1e-10)


@every_envelope
@pytest.mark.parametrize("beta", BETAS)
def test_envelope_is_the_minimum_and_its_derivative_the_slope(loss, beta):
    z, y = sample(loss, size=500)
    u = exact_prox(loss, z, y, beta)
    smallest = loss.value(u, y) + beta / 2 * (u - z) ** 2
    np.testing.assert_allclose(loss.envelope(z, y, beta), smallest, rtol=1e-10, atol=1e-10)
    h = 1e-6
    slope = (loss.envelope(z + h, y, beta) - loss.envelope(z - h, y, beta)) / (2 * h)
    error = h * min(beta, loss.smoothness) + 1e-8
    np.testing.assert_allclose(loss.envelope_derivative(z, y, beta), slope, atol=error)


@every_envelope
@pytest.mark.parametrize("beta", BETAS)
def test_envelope_is_smooth_and_close(loss, beta):
    z, y = sample(loss)
    for h in (1e-6, 1e-3, 0.3):
        change = loss.envelope_derivative(z + h, y, beta) - loss.envelope_derivative(z, y, beta)
        assert np.all(change >= -1e-12)
        assert change.max() <= min(beta, loss.smoothness) * h * (1 + 1e-6)
    bound = loss.derivative_bound(4.0)
    slope = loss.envelope_derivative(z, y, beta)
    # in the range of the derivative exactly, with no allowance for rounding
    assert np.all(slope <= max(loss.derivative(z, y).max(), 0))
    assert np.all(slope >= min(loss.derivative(z, y).min(), 0))
    gap = loss.value(z, y) - loss.envelope(z, y, beta)
    assert gap.min() >= -1e-12
    assert gap.max() <= bound**2 / (2 * beta) * (1 + 1e-9)


@every_envelope
def test_clipping_the_envelope_is_the_envelope_of_the_clipped_loss(loss):
    z, y = sample(loss, size=500)
    beta, clip = 3.0, 0.3
    low, high = z - 2 * clip / beta, z + 2 * clip / beta
    for _ in range(100):
        middle = (low + high) / 2
        slope = np.clip(loss.derivative(middle, y), -clip, clip)
        rising = slope + beta * (middle - z) > 0
        low, high = np.where(rising, low, middle), np.where(rising, middle, high)
    clipped = np.clip(loss.envelope_derivative(z, y, beta), -clip, clip)
    np.testing.assert_allclose(clipped, beta * (z - low), atol=1e-10)


def test_envelopes_that_have_a_name():
    rng = np.random.default_rng(0)
    z, r = rng.uniform(-3, 3, (2, 200))
    y = np.sign(r)
    np.testing.assert_allclose(
        Hinge().envelope(z, y, 4.0), SmoothedHinge(0.25).value(z, y), atol=1e-14
    )
    np.testing.assert_allclose(Absolute().envelope(z, r, 5.0), 5 * Huber(0.2).value(z, r))
    np.testing.assert_allclose(2 * Quantile(0.5).value(z, r), Absolute().value(z, r))
    np.testing.assert_allclose(EpsilonInsensitive(0.0).value(z, r), Absolute().value(z, r))


def test_quantile_loss_finds_the_quantile():
    y = np.random.default_rng(0).normal(size=20_001)
    for level in (0.1, 0.5, 0.75):
        loss = Quantile(level)
        best = minimize_scalar(lambda z, loss=loss: loss.value(z, y).mean(), (-2, 2)).x
        assert best == pytest.approx(np.quantile(y, level), abs=1e-3)


def test_logistic_loss_has_no_closed_form():
    with pytest.raises(NotImplementedError, match="Logistic has no closed-form"):
        Logistic().prox(np.zeros(1), np.ones(1), 1.0)


# ------------------------------------------------------------------- the compiled twins


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


@every_envelope
@pytest.mark.parametrize("beta", [*BETAS, np.inf])
def test_compiled_envelope_derivative_is_the_same(loss, beta):
    z, y = sample(loss, size=60)
    z[:10] = y[:10]
    kernel = pointwise.smoothed_derivative
    slope = loss.derivative(z, y) if beta == np.inf else loss.envelope_derivative(z, y, beta)
    for function in (kernel, getattr(kernel, "py_func", kernel)):
        for clip in (np.inf, 0.2):
            compiled = [
                function(loss.loss_id, zi, yi, loss.kernel_parameter, beta, clip)
                for zi, yi in zip(z, y, strict=True)
            ]
            np.testing.assert_allclose(
                compiled, np.clip(slope, -clip, clip), rtol=1e-13, atol=1e-15
            )


def test_loss_ids_differ():
    assert len({type(loss).loss_id for loss in EVERY}) == len({type(loss) for loss in EVERY})


REGRESSIONS = [loss for loss in EVERY if loss.task == "regression"]


@pytest.mark.parametrize("loss", REGRESSIONS, ids=repr)
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
        slope = loss.derivative_bound(1e3)  # 1, or about 1e3 for the squared hinge
        np.testing.assert_allclose(derivative, [0, -slope, slope, 0], atol=1e-12)
        size = max(1e3, slope**2 / 2)
        np.testing.assert_allclose(value, [0, size, size, 0], rtol=3e-3, atol=1e-12)


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
    assert get_loss("hinge", "classification") == Hinge()
    assert get_loss("squared_hinge", "classification") == SquaredHinge()
    assert get_loss("absolute", "regression") == Absolute()
    assert get_loss("quantile", "regression") == Quantile()
    assert get_loss("epsilon_insensitive", "regression") == EpsilonInsensitive()
    mine = Huber(0.7)
    assert get_loss(mine, "regression") is mine


@pytest.mark.parametrize(
    ("loss", "task"),
    [
        ("perceptron", "classification"),
        ("hinge", "regression"),
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
    with pytest.raises(ValueError, match="level must be"):
        Quantile(bad)
    if bad != 0:
        with pytest.raises(ValueError, match="width must be"):
            EpsilonInsensitive(bad)
    with pytest.raises(ValueError, match="level must be"):
        Quantile(1.0)


def test_derivatives_that_are_not_a_number_are_clipped_too():
    infinite = np.array([np.nan, np.inf, -np.inf, 0.2])
    np.testing.assert_array_equal(clipped(infinite, 0.5), [-0.5, 0.5, -0.5, 0.2])
    for loss_id in range(9):
        for z in (math.nan, math.inf, -math.inf):
            for y in (-1.0, 1.0):
                slope = pointwise.clipped_derivative(loss_id, z, y, 0.5, 0.25)
                smooth = pointwise.smoothed_derivative(loss_id, z, y, 0.5, 2.0, 0.25)
                assert abs(slope) <= 0.25
                assert abs(smooth) <= 0.25
