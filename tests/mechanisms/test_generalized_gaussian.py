"""Generalized Gaussian noise: its law, its calibration, its guarantee, its choice.

All streams are seeded, so the suite has no false alarms; 1e-7 is the level of each test.
"""

import functools
import itertools
import math

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad
from support import rest_is_slow, stream

from sklearn_dpsco.geometry import lp_norm
from sklearn_dpsco.mechanisms import Gaussian, GeneralizedGaussian, vector_mechanism
from sklearn_dpsco.mechanisms.laws import best_exponent, mean_noise_norm
from sklearn_dpsco.privacy.budget import Allowance

LEVEL = 1e-7
N_DRAWS = 8000
CASES = [(2.0, 5), (3.0, 1), (3.0, 4), (4.5, 3)]
PLANES = [case for case in CASES if case[1] > 1]
each_case = rest_is_slow(("r", "d"), CASES, ("3.0-4",))
each_plane = rest_is_slow(("r", "d"), PLANES, ("3.0-4",))


def float_allowance(kind, amount):
    return Allowance(kind, amount, "float")


@functools.cache
def draws(r, d, n_draws=N_DRAWS):
    """Noise of scale 1.7, one draw a row."""
    mechanism, one_stream = GeneralizedGaussian(1.0, 1.7, math.inf, r, d), stream(3)
    value = np.arange(d, dtype=float)
    return np.array([mechanism.release(value, one_stream) for _ in range(n_draws)]) - value


@each_case
def test_radial_law(r, d):
    # |z|_r / sigma is chi-distributed with d degrees of freedom
    radius = (np.abs(draws(r, d)) ** r).sum(axis=1) ** (1 / r) / 1.7
    for factor, accepted in ((1.0, True), (1.08, False), (1 / 1.08, False)):
        p = stats.kstest(factor * radius, stats.chi(d).cdf).pvalue
        assert (p > LEVEL) == accepted, factor


@each_plane
def test_angular_law(r, d):
    # |z_1|^r to the sum of the others is as one Gamma(1 / r) to d - 1 of them
    size = np.abs(draws(r, d))
    odds = size[:, 0] ** r / (size[:, 1:] ** r).sum(axis=1)
    for claimed, accepted in ((1.0, True), (1.2, False), (1 / 1.2, False)):
        law = stats.betaprime(1 / (claimed * r), (d - 1) / (claimed * r))
        assert (stats.kstest(odds, law.cdf).pvalue > LEVEL) == accepted, claimed


@each_plane
def test_coordinates_are_alike_and_signs_fair(r, d):
    z = draws(r, d)
    codes = (z > 0) @ (1 << np.arange(d))
    assert stats.chisquare(np.bincount(codes, minlength=2**d)).pvalue > LEVEL
    halves = np.abs(z[: N_DRAWS // 2, 0]), np.abs(z[N_DRAWS // 2 :, -1])
    assert stats.kstest(*halves).pvalue > LEVEL


def test_direction_is_independent_of_the_radius():
    z = draws(3.0, 4)
    radius = (np.abs(z) ** 3).sum(axis=1) ** (1 / 3)
    share = np.abs(z[:, 0]) / radius
    assert stats.spearmanr(radius, share).pvalue > LEVEL


@pytest.mark.slow  # the radius and the angles of four coordinates tell as much
@pytest.mark.parametrize("r", [2.5, 6.0])
def test_density_in_two_dimensions(r):
    # proportional to exp(-|z|_r^2 / 2), by cells of the plane
    edges = np.array([-np.inf, -1.0, -0.3, 0.3, 1.0, np.inf])
    z = draws(r, 2) / 1.7
    counts, _, _ = np.histogram2d(z[:, 0], z[:, 1], bins=(edges, edges))
    grid = (np.arange(-120, 120) + 0.5) / 20
    size = (np.abs(grid[:, None]) ** r + np.abs(grid[None, :]) ** r) ** (1 / r)
    weight, _, _ = np.histogram2d(
        np.repeat(grid, grid.size),
        np.tile(grid, grid.size),
        bins=(edges, edges),
        weights=np.exp(-(size**2) / 2).ravel(),
    )
    expected = weight / weight.sum() * len(z)
    assert stats.chisquare(counts.ravel(), expected.ravel()).pvalue > LEVEL


def test_r_2_is_the_gaussian():
    z = draws(2.0, 5, 2000)
    assert stats.kstest(z.ravel() / 1.7, stats.norm.cdf).pvalue > LEVEL


def test_calibration_spends_the_allowance_and_no_more():
    shapes = ((math.inf, 3.0, 10), (4.0, 2.5, 7), (3.0, 3.0, 1), (6.0, 2.0, 40))
    for case in itertools.product(("zcdp", "gdp"), (1, 7), shapes):
        kind, count, (q, r, d) = case
        mechanism = GeneralizedGaussian.calibrate(q, 0.37, float_allowance(kind, 0.3), count, d, r)
        assert 0.3 * (1 - 1e-9) <= count * mechanism.cost(kind) <= 0.3, case
        kappa = (r - 1) * d ** (2 * (1 / r - 1 / q))
        expected = kappa * 0.37**2 / (2 * mechanism.scale**2)
        assert mechanism.cost(kind) == pytest.approx(expected), case


@pytest.mark.parametrize(("r", "d"), [(2.5, 1), (3.0, 2), (6.0, 2)])
def test_renyi_divergence_of_a_shift_is_at_most_the_cost(r, d):
    # by integration over the plane (or line), in the directions that the norm is worst in
    q, scale, shift = math.inf, 1.3, 0.8
    mechanism = GeneralizedGaussian(shift, scale, q, r, d)
    grid = np.arange(-9, 9, 0.05) + 0.025
    axes = np.meshgrid(*([grid] * d), indexing="ij")

    def exponent(offset):
        size = sum(np.abs(axis - o) ** r for axis, o in zip(axes, offset, strict=True))
        return size ** (2 / r) / (2 * scale**2)

    start = exponent(np.zeros(d))
    for direction in np.unique([[1.0] * d, [1.0] + [0.0] * (d - 1)], axis=0):
        moved = exponent(shift * direction)
        for alpha in (1.5, 3.0, 10.0):
            moment = np.exp(-alpha * start - (1 - alpha) * moved).sum() / np.exp(-start).sum()
            divergence = math.log(moment) / (alpha - 1)
            assert 0 < divergence <= alpha * mechanism.cost("zcdp") * (1 + 1e-6)


@pytest.mark.parametrize("r", [2.5, 4.0, 9.0])
def test_trade_off_of_a_shift_is_at_least_that_of_the_gaussian(r):
    # along one coordinate of the plane, with the other one fixed: the line of the proof
    scale, shift = 1.0, 0.7
    mu = math.sqrt(r - 1) * shift / scale
    for other in (0.0, 0.5, 2.0):

        def density(t, other=other):
            return math.exp(-((abs(t) ** r + other**r) ** (2 / r)) / (2 * scale**2))

        total = quad(density, -12, 12, epsabs=1e-12)[0]
        for threshold in (-1.0, 0.0, 0.6, 1.5):
            error_1 = quad(density, threshold, 12, epsabs=1e-12)[0] / total
            error_2 = quad(density, -12, threshold - shift, epsabs=1e-12)[0] / total
            assert error_2 >= stats.norm.cdf(stats.norm.isf(error_1) - mu) - 1e-9


NORMS = [(math.inf, 3.0, 50), (math.inf, 2.0, 7), (4.0, 2.5, 30), (12.0, 4.0, 200), (3.0, 3.0, 9)]


@rest_is_slow(("q", "r", "d"), NORMS, ("inf-3.0-50", "inf-2.0-7", "12.0-4.0-200"))
def test_mean_norm_by_simulation(q, r, d):
    mechanism, one_stream = GeneralizedGaussian(1.0, 1.0, q, r, d), stream(4)
    norms = [lp_norm(mechanism.release(np.zeros(d), one_stream), q) for _ in range(1000)]
    error = np.std(norms) / math.sqrt(len(norms))
    assert mean_noise_norm(q, r, d) == pytest.approx(np.mean(norms), abs=5.4 * error)
    assert mechanism.expected_norm(q) == mean_noise_norm(q, r, d)


def ratio_to_gaussian(q, r, d):
    """Expected norm over that of the Gaussian, both calibrated to one guarantee."""
    allowance = float_allowance("zcdp", 1.0)
    noises = [GeneralizedGaussian.calibrate(q, 1.0, allowance, 1, d, e) for e in (r, 2.0)]
    return noises[0].expected_norm(q) / noises[1].expected_norm(q)


def test_how_much_noise_it_takes_relative_to_gaussian_noise():
    expected = {10: 1.19, 100: 1.09, 1000: 1.03, 10**4: 0.986, 10**5: 0.953, 10**6: 0.926}
    for d, ratio in expected.items():
        assert ratio_to_gaussian(math.inf, 3.0, d) == pytest.approx(ratio, abs=5e-3)
    best = {1000: (2.0, 1.0), 10**4: (3.5, 0.985), 10**5: (4.25, 0.936), 10**6: (5.0, 0.889)}
    for d, (r, ratio) in best.items():
        assert best_exponent(math.inf, d) == r
        assert ratio_to_gaussian(math.inf, r, d) == pytest.approx(ratio, abs=5e-4)
    assert ratio_to_gaussian(math.inf, 4.0, 10**6) == pytest.approx(0.896, abs=5e-4)
    # with r = q < infinity never, whatever d
    for q in (3.0, 4.0, 10.0):
        assert all(ratio_to_gaussian(q, q, d) > 1.2 for d in (10, 1000, 10**6))


def test_which_noise_is_chosen():
    wide = vector_mechanism(math.inf, 0.1, float_allowance("gdp", 0.3), 5, 20_000)
    assert isinstance(wide, GeneralizedGaussian)
    assert wide.exponent == best_exponent(math.inf, 20_000) > 2
    # never without an exact sampler
    exact = vector_mechanism(math.inf, 0.1, Allowance("gdp", 0.3), 5, 20_000)
    assert isinstance(exact, Gaussian)
    for q, d in ((math.inf, 1000), (4.0, 10**6), (2.0, 10**6)):
        noise = vector_mechanism(q, 0.1, float_allowance("gdp", 0.3), 5, d)
        assert isinstance(noise, Gaussian)
        assert noise.sensitivity == pytest.approx(0.1 * d ** (1 / 2 - 1 / q))
        assert noise.dimension == d
        assert 5 * noise.cost("gdp") <= 0.3


def test_refusals():
    with pytest.raises(ValueError, match="pure"):
        GeneralizedGaussian.calibrate(math.inf, 1.0, float_allowance("pure", 1.0))
    with pytest.raises(ValueError, match="precision='float'"):
        GeneralizedGaussian.calibrate(math.inf, 1.0, Allowance("zcdp", 1.0), dimension=5)
    # an l_q sensitivity below 2 would be divided where nothing allows it
    for kind, q in itertools.product((float_allowance, Allowance), (1.0, 1.5, math.nan)):
        with pytest.raises(ValueError, match="q must be at least 2"):
            vector_mechanism(q, 1.0, kind("zcdp", 1.0), dimension=5)
    for q, r in ((4.0, 4.5), (4.0, 1.9), (math.inf, math.inf), (math.inf, math.nan)):
        with pytest.raises(ValueError, match="exponent must be"):
            GeneralizedGaussian(1.0, 1.0, q, r, 3)
    with pytest.raises(ValueError, match="3 coordinates"):
        GeneralizedGaussian(1.0, 1.0, 4.0, 3.0, 3).release(np.zeros(2), stream())
