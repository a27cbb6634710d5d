"""Losses: derivatives, their bounds, proximal points and envelopes, and the compiled twins."""

import dataclasses
import itertools
import math
import re
import warnings

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import minimize_scalar
from scipy.special import erf, expit
from sklearn.metrics import mean_tweedie_deviance
from support import assert_refuses, problem, rest_is_slow

from sklearn_dpsco._kernels import derivatives
from sklearn_dpsco._kernels.arguments import Slope
from sklearn_dpsco.data.rows import Rows, Terms
from sklearn_dpsco.geometry import L1Ball, L2Ball
from sklearn_dpsco.losses import (
    USUAL,
    Absolute,
    Envelope,
    EpsilonInsensitive,
    Hinge,
    Huber,
    Joint,
    LogAbsolute,
    Logistic,
    Loss,
    MCPAbsolute,
    Quantile,
    Sigmoid,
    SmoothedHinge,
    Squared,
    SquaredHinge,
    Tweedie,
    Welsch,
    bounded_clip,
    check_loss,
    clipped_derivative,
    get_loss,
    kernel_id,
    smoothed,
)
from sklearn_dpsco.privacy.budget import PrivacyBudget
from sklearn_dpsco.solvers import FTRL, SCOF, FrankWolfe, Gradient, MirrorDescent, PhasedSGD

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
SMOOTH_WEAKLY_CONVEX = [Welsch(), Welsch(0.5), Welsch(2.0), Sigmoid()]
WEAKLY_CONVEX_KINKS = [LogAbsolute(), LogAbsolute(2.0), MCPAbsolute(), MCPAbsolute(0.4)]
WEAKLY_CONVEX = SMOOTH_WEAKLY_CONVEX + WEAKLY_CONVEX_KINKS
CONVEX = LOSSES + NON_SMOOTH
EVERY = CONVEX + WEAKLY_CONVEX
CLASSIFIERS = [loss for loss in CONVEX if loss.task == "classification"]
RATES = [Tweedie(), Tweedie(1.2), Tweedie(1.5), Tweedie(2.0)]  # of targets above 0, not named
every_loss = pytest.mark.parametrize("loss", EVERY, ids=repr)
every_known = pytest.mark.parametrize("loss", EVERY + RATES, ids=repr)
every_rate = pytest.mark.parametrize("loss", RATES, ids=repr)
every_smooth = pytest.mark.parametrize("loss", LOSSES + SMOOTH_WEAKLY_CONVEX, ids=repr)
every_weakly_convex = pytest.mark.parametrize("loss", WEAKLY_CONVEX, ids=repr)
WITH_ENVELOPE = [loss for loss in CONVEX if not isinstance(loss, Logistic)]
every_envelope = pytest.mark.parametrize("loss", WITH_ENVELOPE, ids=repr)
BETAS = [0.3, 4.0, 1000.0]


def sample(loss, size=4000, reach=4.0):
    """Predictions within `reach` and targets as the loss's task has them."""
    rng = np.random.default_rng(0)
    y = rng.uniform(-1, 1, size) if loss.task == "regression" else rng.choice([-1.0, 1.0], size)
    y = np.abs(rng.choice([0.0, 1.0, 20.0], size) * y) if loss.task == "rates" else y
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


@every_rate
def test_derivatives_of_rates(loss):
    z, y = sample(loss)
    y = y + 1e-3 * (loss.power == 2)
    h = 1e-5
    slope = (loss.value(z + h, y) - loss.value(z - h, y)) / (2 * h)
    np.testing.assert_allclose(loss.derivative(z, y), slope, rtol=1e-6, atol=1e-6)
    # least at the mean, up to what does not depend on z half the deviance of scikit-learn
    at_mean = np.log(np.maximum(y, 1e-12))
    np.testing.assert_allclose(loss.derivative(at_mean, y)[y > 0], 0, atol=1e-9)
    excess = loss.value(z, y) - loss.value(z + 0.3, y)
    deviances = [
        mean_tweedie_deviance(y[:50], np.exp(at[:50]), power=loss.power) for at in (z, z + 0.3)
    ]
    assert excess[:50].mean() == pytest.approx((deviances[0] - deviances[1]) / 2, rel=1e-9)
    # the information is the mean of second derivatives, where the mean of y is exp(z)
    mean = np.exp(z)
    curved = (loss.derivative(z + h, mean) - loss.derivative(z - h, mean)) / (2 * h)
    np.testing.assert_allclose(loss.information(z), curved, rtol=1e-6)
    far = np.array([-1e308, -np.inf, np.inf, 1e308])
    assert np.isfinite(loss.derivative(far, np.array([0.0, 20.0, 0.0, 20.0]))).all()
    assert np.isfinite(loss.information(far)).all()


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
def test_loss_is_weakly_convex_as_stated_and_non_negative(loss):
    z, y = sample(loss)
    assert np.all(loss.value(z, y) >= 0)
    rise = loss.derivative(z + 0.01, y) - loss.derivative(z, y)
    assert np.all(rise >= -0.01 * loss.weak_convexity - 1e-15)
    assert loss.is_convex == (loss.weak_convexity == 0) == (loss not in WEAKLY_CONVEX)


@every_weakly_convex
def test_weak_convexity_is_reached(loss):
    # within float32 of the steepest fall, on either side of the target or of the margin 0
    r = np.concatenate((np.geomspace(1e-5, 10, 20_000), -np.geomspace(1e-5, 10, 20_000)))
    for y in (-1.0, 1.0):
        z, h = r + (y if loss.task == "regression" else 0.0), 1e-6
        targets = np.full_like(z, y)
        fall = (loss.derivative(z - h, targets) - loss.derivative(z + h, targets)) / (2 * h)
        away = np.abs(r) > 2 * h  # no jump between the points
        assert fall[away].max() == pytest.approx(loss.weak_convexity, rel=1e-3)
        assert fall[away].max() <= loss.weak_convexity * (1 + 1e-6)


def test_a_loss_without_a_word_is_as_weakly_convex_as_it_is_smooth():
    assert Own(lambda z, y: z - y, smoothness=3.0).weak_convexity == 3.0
    assert Own(lambda z, y: z - y, smoothness=math.inf).weak_convexity == math.inf
    for loss in (Absolute(), Welsch(0.3), MCPAbsolute(0.5)):
        joint = loss.of_outputs(3)
        assert (joint.is_convex, joint.weak_convexity) == (loss.is_convex, loss.weak_convexity)


def test_kinks_and_values_of_the_weakly_convex_losses():
    z, y, far = np.array([0.2, 0.5, 0.2, 1e8]), np.array([0.2, 0.2, 0.5, 0.0]), slice(3, 4)
    np.testing.assert_allclose(LogAbsolute(0.3).derivative(z, y), [0, 0.5, -0.5, 0], atol=1e-7)
    np.testing.assert_allclose(LogAbsolute(0.3).value(z, y)[:3], [0, *[0.3 * np.log(2)] * 2])
    np.testing.assert_allclose(MCPAbsolute(0.4).derivative(z, y), [0, 0.25, -0.25, 0], atol=1e-12)
    np.testing.assert_allclose(MCPAbsolute(0.4).value(z, y)[far], 0.2)
    np.testing.assert_allclose(Welsch(0.4).value(z, y)[far], 0.08)
    labels = np.array([1.0, -1.0])
    np.testing.assert_allclose(Sigmoid().value(np.zeros(2), labels), 0.5)
    np.testing.assert_allclose(Sigmoid().derivative(np.zeros(2), labels), [-0.25, 0.25])


@every_loss
def test_derivative_bound_holds_and_is_reached(loss):
    for reach in (0.0, 0.3, 2.0, 4.0):
        z, y = sample(loss, reach=reach)
        z = np.clip(z, -reach, reach)
        y = np.concatenate((y, [1.0, -1.0, 1.0, -1.0]))
        z = np.concatenate((z, [reach, reach, -reach, -reach]))
        largest = np.abs(loss.derivative(z, y)).max()
        bound = loss.derivative_bound(reach)
        assert 0.99 * bound <= largest <= bound * (1 + 1e-15), reach


@every_smooth
def test_smoothness_bounds_the_change_of_the_derivative(loss):
    for h in (1e-4, 0.3):
        z, y = sample(loss)
        ratio = np.abs(loss.derivative(z + h, y) - loss.derivative(z, y)).max() / h
        assert ratio <= loss.smoothness * (1 + 1e-9), h
        if h < 1e-3:
            assert ratio >= 0.99 * loss.smoothness, h


def test_losses_with_a_kink_say_so():
    for loss in NON_SMOOTH + WEAKLY_CONVEX_KINKS:
        assert loss.smoothness == np.inf
        plan = FrankWolfe().plan(problem(10, 2, loss=loss), PrivacyBudget(8.0))
        assert 1 < plan.problem.loss.smoothness < np.inf
        assert plan.problem.loss.beta >= 2 * loss.weak_convexity


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
def test_prox_and_envelope_are_the_minimizer_and_the_minimum_and_the_derivative_the_slope(loss):
    z, y = sample(loss, size=500)
    z[:10] = y[:10]
    for beta in BETAS:
        case = f"beta = {beta}"
        u = exact_prox(loss, z, y, beta)
        nearest = z - loss.envelope_derivative(z, y, beta) / beta
        np.testing.assert_allclose(nearest, u, atol=1e-10, err_msg=case)
        smallest = loss.value(u, y) + beta / 2 * (u - z) ** 2
        envelope = loss.envelope(z, y, beta)
        np.testing.assert_allclose(envelope, smallest, rtol=1e-10, atol=1e-10, err_msg=case)
        h = 1e-6
        slope = (loss.envelope(z + h, y, beta) - loss.envelope(z - h, y, beta)) / (2 * h)
        error = h * min(beta, loss.smoothness) + 1e-8
        derivative = loss.envelope_derivative(z, y, beta)
        np.testing.assert_allclose(derivative, slope, atol=error, err_msg=case)
        found = Loss.envelope_derivative(loss, z, y, beta)
        # by bisection: the interval is as long as the slope over beta, and z has last bits
        atol = 1e-15 + beta * 1e-15 * np.abs(z).max()
        np.testing.assert_allclose(found, derivative, rtol=1e-12, atol=atol, err_msg=case)


@every_envelope
def test_envelope_is_smooth_and_close(loss):
    z, y = sample(loss)
    for beta in BETAS:
        slope = loss.envelope_derivative(z, y, beta)
        for h in (1e-6, 1e-3, 0.3):
            change = loss.envelope_derivative(z + h, y, beta) - slope
            assert np.all(change >= -1e-12), (beta, h)
            assert change.max() <= min(beta, loss.smoothness) * h * (1 + 1e-6), (beta, h)
        bound = loss.derivative_bound(4.0)
        # in the range of the derivative exactly, with no allowance for rounding
        assert np.all(slope <= max(loss.derivative(z, y).max(), 0)), beta
        assert np.all(slope >= min(loss.derivative(z, y).min(), 0)), beta
        gap = loss.value(z, y) - loss.envelope(z, y, beta)
        assert gap.min() >= -1e-12, beta
        assert gap.max() <= bound**2 / (2 * beta) * (1 + 1e-9), beta


@rest_is_slow(
    "loss",
    WEAKLY_CONVEX,
    map(repr, (Welsch(), Sigmoid(), LogAbsolute(2.0), MCPAbsolute(0.4))),
    repr,
)
def test_envelopes_of_weakly_convex_losses(loss):
    z, y = sample(loss, size=80)  # each is compared with all points of a grid
    z[:20] = y[:20]
    rho = loss.weak_convexity
    for beta in (1.05 * rho, 2 * rho, 10 * rho, 1e3):
        case = f"beta = {beta}"
        # the minimum over a fine grid is the envelope up to the grid's width, squared
        slope, envelope = loss.envelope_derivative(z, y, beta), loss.envelope(z, y, beta)
        grid = np.linspace(-1, 1, 8001) * (loss.derivative_bound(4.0) / beta + 1e-6)
        tried = z[:, None] + grid
        values = loss.value(tried, np.broadcast_to(y[:, None], tried.shape)) + beta / 2 * grid**2
        np.testing.assert_allclose(envelope, values.min(axis=1), atol=2e-4 / beta, err_msg=case)
        assert np.all(envelope <= values.min(axis=1) + 1e-12), case
        h = 1e-6
        rise = (loss.envelope(z + h, y, beta) - loss.envelope(z - h, y, beta)) / (2 * h)
        smooth = Envelope(loss, beta)
        np.testing.assert_allclose(slope, rise, atol=h * smooth.smoothness + 1e-8, err_msg=case)
        for h in (1e-4, 0.1):
            change = (loss.envelope_derivative(z + h, y, beta) - slope) / h
            assert change.max() <= min(beta, loss.smoothness) * (1 + 1e-6), case
            assert change.min() >= -smooth.weak_convexity * (1 + 1e-6), case
        gap = loss.value(z, y) - envelope
        assert gap.min() >= -1e-12, case
        assert gap.max() <= loss.derivative_bound(4.0) ** 2 / (2 * beta) * (1 + 1e-9), case
        found = Loss.envelope_derivative(loss, z, y, beta)
        atol = 1e-13 + 1e-14 * beta / (1 - rho / beta)
        np.testing.assert_allclose(found, slope, rtol=1e-9, atol=atol, err_msg=case)
    for beta in (rho, 0.5 * rho):
        for call in (Loss.envelope_derivative, type(loss).envelope_derivative):
            assert_refuses(call, "only for beta > weak_convexity", loss, z, y, beta)
        assert_refuses(Envelope, "only for beta > weak_convexity", loss, beta)


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


def test_logistic_loss_has_an_envelope_by_bisection():
    z, y = sample(Logistic(), size=300)
    for beta in (0.2, 3.0, 40.0):
        slope = Logistic().envelope_derivative(z, y, beta)
        np.testing.assert_allclose(Logistic().derivative(z - slope / beta, y), slope, rtol=1e-9)


def test_kernels_take_the_envelopes_that_they_know_and_no_other():
    z, y = np.array([0.3, -2.0]), np.array([1.0, -1.0])
    assert Terms(0.0, Envelope(Hinge(), 3.0), 1.0).slope.beta == 3.0
    for loss in (Envelope(Logistic(), 3.0), Envelope(Own(lambda z, y: z - y), 3.0)):
        assert Terms(0.0, loss, 1.0).slope is None
    rows = Rows(np.eye(2), False)
    expected = np.clip(Logistic().envelope_derivative(z, y, 3.0), -1, 1)
    found = rows.gradient_sum(z, y, Terms(0.0, Envelope(Logistic(), 3.0), 1.0))
    np.testing.assert_allclose(found, expected)


def test_only_weakly_convex_losses_have_an_envelope():
    wave = Own(lambda z, y: np.cos(z), smoothness=math.inf)
    assert_refuses(wave.envelope, "weak_convexity = inf", np.zeros(1), np.ones(1), 1.0)
    check = FrankWolfe().check
    for n_outputs in (1, 3):
        facts = L1Ball, PrivacyBudget(1.0)
        assert_refuses(check, "need a smooth loss", wave.of_outputs(n_outputs), *facts)
        for loss in EVERY:
            check(loss.of_outputs(n_outputs), *facts)


def test_phased_sgd_refuses_losses_that_are_not_convex():
    for loss, count in itertools.product(WEAKLY_CONVEX, (1, 3)):
        facts = problem(100, 3, loss=loss.of_outputs(count), feasible_set=L2Ball)
        assert_refuses(
            PhasedSGD().plan, "phased SGD needs a convex loss", facts, PrivacyBudget(1.0)
        )


@every_envelope
def test_an_envelope_is_a_smooth_loss(loss):
    z, y = sample(loss, size=200)
    envelope = Envelope(loss, 3.0)
    assert smoothed(loss, 3.0) == (envelope if math.isinf(loss.smoothness) else loss)
    assert envelope.smoothness == min(3.0, loss.smoothness)
    assert (envelope.task, envelope.best_constant(0.3)) == (loss.task, loss.best_constant(0.3))
    rise = (envelope.value(z + 1e-6, y) - envelope.value(z - 1e-6, y)) / 2e-6
    np.testing.assert_allclose(envelope.derivative(z, y), rise, atol=1e-5)
    check_loss(envelope)
    joint = smoothed(loss.of_outputs(3), 3.0)
    several = np.column_stack((z, z[::-1], -z)), np.column_stack((y, y, y[::-1]))
    expected = smoothed(loss, 3.0).derivative(several[0].ravel(), several[1].ravel())
    if joint.n_outputs == 3 and type(joint) is Joint:
        np.testing.assert_array_equal(joint.derivative(*several).ravel(), expected)


# ------------------------------------------------------------------- the compiled twins


@every_known
def test_compiled_derivatives_are_those_of_arrays(loss):
    z, y = sample(loss, size=300)
    z[:10] = y[:10]
    z = np.concatenate((z, [1e3, -1e3, 1e3, -1e3]))
    y = np.concatenate((y, [1.0, 1.0, -1.0, -1.0]))
    betas = [np.inf]
    if type(loss).envelope_derivative is not Loss.envelope_derivative:
        betas += [beta for beta in BETAS if beta > loss.weak_convexity]
    for beta, clip, offset in itertools.product(betas, (np.inf, 0.2), (0.0, -0.3)):
        slope = Slope(kernel_id(loss), loss.kernel_parameter, clip, offset, beta)
        at = z + offset, y
        plain = loss.derivative(*at) if beta == np.inf else loss.envelope_derivative(*at, beta)
        expected, rules = np.clip(plain, -clip, clip), [derivatives.clipped_derivative]
        if type(loss) in USUAL:
            rules.append(derivatives.usual_derivative)
        for rule in rules:
            found = [rule(slope, zi, yi) for zi, yi in zip(z, y, strict=True)]
            np.testing.assert_allclose(found, expected, rtol=1e-14, atol=1e-15, err_msg=f"{beta}")


def test_best_constant_of_a_regression_is_the_mean():
    regressions = [loss for loss in EVERY if loss.task == "regression"]
    for loss, mean in itertools.product(regressions, (-1.0, -0.3, 0.0, 1.0)):
        assert loss.best_constant(mean) == mean, loss


def test_best_constant_of_a_classification_minimizes_the_expected_loss():
    means = (-0.97, -0.5, -0.1, 0.0, 0.01, 0.3, 0.9)
    for loss, mean in itertools.product(CLASSIFIERS, means):

        def expected_loss(z, loss=loss, mean=mean):
            positive, negative = loss.value(np.array([z, z]), np.array([1.0, -1.0]))
            return (1 + mean) / 2 * positive + (1 - mean) / 2 * negative

        best = minimize_scalar(expected_loss, bounds=(-8, 8), method="bounded").fun
        assert expected_loss(loss.best_constant(mean)) <= best + 1e-9, (loss, mean)


def test_best_constant_of_a_classification_is_odd_and_finite_at_the_ends():
    for loss, mean in itertools.product(CLASSIFIERS, (0.2, 0.999, 1.0)):
        constant = loss.best_constant(mean)
        assert np.isfinite(constant), (loss, mean)
        assert loss.best_constant(-mean) == pytest.approx(-constant), (loss, mean)


@every_loss
def test_far_predictions_neither_overflow_nor_lose_the_slope(loss):
    z = np.array([1e3, -1e3, 1e3, -1e3])
    y = np.array([1.0, 1.0, -1.0, -1.0])
    with np.errstate(all="raise", under="ignore"):
        value, derivative = loss.value(z, y), loss.derivative(z, y)
    assert np.all(np.isfinite(value))
    if loss.task == "classification":
        # 1, about 1e3 for the squared hinge, and 0 where far errors count the same
        slope = loss.derivative_bound(1e3) if loss.is_convex else 0.0
        np.testing.assert_allclose(derivative, [0, -slope, slope, 0], atol=1e-12)
        size = max(1e3, slope**2 / 2) if loss.is_convex else 1.0
        np.testing.assert_allclose(value, [0, size, size, 0], rtol=3e-3, atol=1e-12)


def test_logistic_probability_is_the_link():
    z = np.array([-800.0, -1.0, 0.0, 2.0, 800.0])
    p = Logistic().probability(z)
    assert np.all((p >= 0) & (p <= 1))
    np.testing.assert_allclose(p + Logistic().probability(-z), 1)
    # -log p is the loss of a positive label
    np.testing.assert_allclose(-np.log(p[1:]), Logistic().value(z, np.ones(5))[1:], atol=1e-12)


def test_get_loss():
    kinds = Squared, Absolute, Quantile, EpsilonInsensitive, Welsch, LogAbsolute, MCPAbsolute
    for kind in (*kinds, SmoothedHinge, Hinge, SquaredHinge, Sigmoid):
        name = re.sub("(?<=[a-z])(?=[A-Z])|(?<=MCP)", "_", kind.__name__).lower()
        assert get_loss(name, kind.task) == kind()
    mine = Huber(0.7)
    assert get_loss(mine, "regression") is mine


def test_get_loss_refuses():
    for loss, task in (
        ("perceptron", "classification"),
        ("hinge", "regression"),
        ("logistic", "regression"),
        ("squared", "classification"),
        (Squared(), "classification"),
        (Squared, "regression"),
        (None, "regression"),
    ):
        assert_refuses(get_loss, f"loss must be a Loss for {task}", loss, task)


def test_bad_parameters():
    for bad in (0, -1.0, np.nan, np.inf, "1", None):
        assert_refuses(Huber, "threshold must be", bad)
        for kind in (SmoothedHinge, Welsch, LogAbsolute, MCPAbsolute):
            assert_refuses(kind, "width must be", bad)
        assert_refuses(Quantile, "level must be", bad)
        assert_refuses(Tweedie, "power must be", bad)
        if bad != 0:
            assert_refuses(EpsilonInsensitive, "width must be", bad)
    assert_refuses(Tweedie, "power must be", 2.5)
    assert_refuses(Quantile, "level must be", 1.0)
    assert_refuses(Welsch, "width must be", "wide")
    assert Welsch().kernel_parameter == Welsch(0.4).kernel_parameter == 0.4


class Own(Loss):
    """A user's loss with any derivative."""

    def __init__(self, rule, task="regression", *, smoothness=1.0, constant=0.0, bound=1.0):
        facts = {"rule": rule, "task": task, "constant": constant, "bound": bound}
        self.__dict__.update(facts, own_smoothness=smoothness)

    @property
    def smoothness(self):
        return self.own_smoothness

    def derivative(self, z, y):
        return self.rule(z, y)

    def derivative_bound(self, prediction_bound, y_bound=1.0):
        return self.bound

    def best_constant(self, mean):
        return self.constant


def test_derivatives_that_are_not_finite_are_clipped_too():
    infinite = np.array([np.nan, np.inf, -np.inf, 0.2])
    given = Own(lambda z, y: z)
    found = clipped_derivative(given, infinite, np.zeros(4), 0.5)
    np.testing.assert_array_equal(found, [0.0, 0.5, -0.5, 0.2])
    values = math.nan, math.inf, -math.inf
    for loss_id, z, y in itertools.product(range(13), values, (-1.0, 1.0)):
        slope = Slope(loss_id, 0.5, 0.25, 0.0)
        assert abs(derivatives.clipped_derivative(slope, z, y)) <= 0.25, (loss_id, z, y)
        slope = slope._replace(beta=3.0)
        assert abs(derivatives.clipped_derivative(slope, z, y)) <= 0.25, (loss_id, z, y)


def test_a_derivative_in_single_precision_keeps_to_the_clip():
    # the float32 next to 0.1 is above it
    z = np.linspace(-3, 3, 50)
    found = clipped_derivative(Own(lambda z, y: z.astype(np.float32)), z, z, 0.1)
    assert found.dtype == np.float64
    assert np.abs(found).max() == 0.1


def test_a_warning_of_a_users_loss_tells_nothing_of_a_record():
    z = np.array([1e3, -1e3, 0.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = clipped_derivative(Own(lambda z, y: np.exp(z) / z), z, z, 2.0)
    np.testing.assert_array_equal(found, [2.0, 0.0, 2.0])


# ------------------------------------------------------------------------- losses of users


def calls():
    """A rule that has another value at each call."""
    count = itertools.count()
    return lambda z, y: z - y + 1e-9 * next(count)


def in_place(z, y):
    z -= y
    return z


def failing(z, y):
    raise RuntimeError("three records at least")


MIXED = {
    "mean": lambda z, y: z - y.mean(),
    "standardized": lambda z, y: (z - z.mean()) / (z.std() + 1),
    "maximum": lambda z, y: z / np.abs(z).max(),
    "softmax": lambda z, y: np.exp(z - 50) / np.exp(z - 50).sum() - (y > 0),
    "sorted": lambda z, y: np.sort(z) - y,
    "cumulated": lambda z, y: np.cumsum(z - y),
    "neighbour": lambda z, y: z - np.roll(y, 1),
    "ranked": lambda z, y: np.argsort(np.argsort(z)) - y,
    "trimmed": lambda z, y: np.minimum(z - y, np.quantile(z - y, 0.9)),
    "number of records": lambda z, y: (z - y) / z.size,
    "place": lambda z, y: (z - y) * np.linspace(0.5, 1, z.size),
    "random": lambda z, y: z - y + np.random.default_rng().normal(size=z.size),
    "state": calls(),
    "mean of infinities": lambda z, y: np.where(z.size > 1, np.inf, z - y),
}


@pytest.mark.parametrize("name", MIXED)
def test_a_loss_whose_records_have_to_do_with_each_other_is_refused(name):
    for task in ("regression", "classification"):
        loss = Own(MIXED[name], task)
        assert_refuses(check_loss, "treat each record by itself", loss)
        assert_refuses(get_loss, "treat each record by itself", loss, task)
        assert_refuses(problem, "treat each record by itself", 100, 3, loss=loss)


def test_a_loss_that_cannot_be_called_on_records_is_refused():
    for rule, match in (
        (lambda z, y: 1.0, "one number for each record"),
        (lambda z, y: (z - y)[:, None], "one number for each record"),
        (lambda z, y: (z - y)[1:], "one number for each record"),
        (lambda z, y: ["a"] * z.size, "one number for each record"),
        (failing, "three records at least"),
        (in_place, "must not change its arguments"),
        (lambda z, y: in_place(y, z), "must not change its arguments"),
    ):
        assert_refuses(check_loss, match, Own(rule))


def test_constants_of_a_users_loss_are_checked():
    def rule(z, y):
        return z - y

    check_loss(Own(rule))
    check_loss(Own(rule, smoothness=math.inf))
    for bad in (math.nan, -1.0):
        assert_refuses(check_loss, "smoothness must be in", Own(rule, smoothness=bad))
    for bad in (math.nan, -1.0):
        wave = type("Wave", (Own,), {"weak_convexity": bad})(rule)
        assert_refuses(check_loss, "weak_convexity must be in", wave)
    for bad in (math.nan, math.inf):
        assert_refuses(check_loss, "best_constant must be finite", Own(rule, constant=bad))
    assert_refuses(check_loss, "task", Own(rule, task="ranking"))
    assert_refuses(check_loss, "task", "squared")
    for bad in (math.nan, 0.0, -1.0):
        loss = Own(rule, bound=bad)
        assert_refuses(bounded_clip, "a positive Own.derivative_bound", loss, 1.0, 2.0)
        facts = problem(100, 3, loss=loss, feasible_set=L2Ball)
        for solver in (Gradient(), FTRL(), MirrorDescent(), SCOF(max_iter=2)):
            assert_refuses(
                solver.plan, "a positive Own.derivative_bound", facts, PrivacyBudget(1.0)
            )
    assert bounded_clip(Own(rule, bound=math.inf), 0.5, 2.0) == 0.5
    assert bounded_clip(Own(rule, bound=np.float64(0.2)), 0.5, 2.0) == 0.2


HONEST = {
    "exp": lambda z, y: -y / (1 + np.exp(y * z)),
    "poisson": lambda z, y: np.exp(z) - y,
    "tanh": lambda z, y: np.tanh(z - y),
    "where": lambda z, y: np.where(z > y, (z - y) ** 2, z - y),
    "expit": lambda z, y: -y * expit(-y * z),
    "erf": lambda z, y: erf(z - y),
    "hypot": lambda z, y: (z - y) / np.hypot(1, (z - y) / 0.1),
    "power": lambda z, y: np.sign(z - y) * np.abs(z - y) ** 1.5,
    "log": lambda z, y: np.sign(z - y) * np.log1p(np.abs(z - y)),
    "sine": lambda z, y: np.sin(np.clip(z - y, -1, 1)),
    "arctan": lambda z, y: np.arctan(z - y),
    "not a number": lambda z, y: np.sqrt(z - y),
    "infinite": lambda z, y: 1 / np.maximum(z, 0),
    "single": lambda z, y: (z - y).astype(np.float32),
    "python": np.vectorize(lambda z, y: math.tanh(z - y)),
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_losses_pass_at_every_length(name):
    rule = HONEST[name]
    for task in ("regression", "classification"):
        check_loss(Own(rule, task))
    # the bits that the check leaves to vector code are enough for arrays of other lengths
    rng = np.random.default_rng(0)
    for n in (2, 5, 8, 17, 33, 1000):
        z, y = rng.normal(size=n) * 4, rng.uniform(-1, 1, n)
        whole = clipped_derivative(Own(rule), z, y, 100.0)
        for which in (*np.arange(n)[:40, None], rng.permutation(n), np.arange(n)[1:]):
            found = clipped_derivative(Own(rule), z[which], y[which], 100.0)
            np.testing.assert_allclose(found, whole[which], rtol=2**-48, atol=2**-48)


@every_loss
def test_built_in_losses_pass_as_a_users(loss):
    kind = type(loss)
    own = type("Own" + kind.__name__, (kind,), {})(**dataclasses.asdict(loss))
    assert kernel_id(own) is None
    check_loss(own)


def test_the_kernels_know_the_classes_of_this_package_alone():
    assert sorted({kernel_id(loss) for loss in EVERY + RATES}) == list(range(14))

    class Tilted(Absolute):
        """What it says of itself is not that of its parent."""

        kernel_id = 4
        smoothness = 1.0

        def derivative(self, z, y):
            return 0.1 * (z - y)

    assert kernel_id(Tilted()) is None
    y, X = np.array([0.3, -0.2, 0.9]), np.array([[1.0], [0.5], [-1.0]])
    for storage in (np.array, sparse.csr_matrix, sparse.csc_matrix):
        rows = Rows(storage(X), False)
        objective = y, Terms(0.0, Tilted(), 5.0)
        found = rows.gradient_sum(np.zeros(1), *objective)
        np.testing.assert_allclose(found, X.T @ (-0.1 * y), rtol=1e-12)
        found = rows.clipped_gradient_sum(np.zeros(1), *objective, 9.0)
        np.testing.assert_allclose(found, X.T @ (-0.1 * y), rtol=1e-12)


@every_known
def test_nothing_can_be_put_on_a_loss_beside_its_fields(loss):
    # the kernels would not see it
    for name in ("derivative", "smoothness", "anything"):
        with pytest.raises(AttributeError):
            object.__setattr__(loss, name, 1.0)
