"""Prefix sums: the factorization as matrices, its sensitivity, the law of the noise."""

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import kstest
from support import rest_is_slow, stream

from sklearn_dpsco._kernels.prefix_sum import prefix_response
from sklearn_dpsco.audit import audit_outcomes
from sklearn_dpsco.mechanisms import Gaussian, PrefixSum, prefix_sum
from sklearn_dpsco.privacy.budget import Allowance, PrivacyBudget

LENGTHS = [1, 2, 3, 7, 16, 33, 100]
UNIT = Allowance("gdp", 0.5)  # mu = 1


def mechanism(n_steps, *, width=1, sensitivity=1.0, largest_norm=0.0):
    return PrefixSum.calibrate(
        sensitivity, UNIT, n_steps=n_steps, width=width, largest_norm=largest_norm
    )


def encoder(n_steps):
    """C as a matrix."""
    run = mechanism(n_steps, width=n_steps).start(n_steps)
    return np.array([run.encode(row) for row in np.eye(n_steps)])


def decoder(n_steps):
    """B as a matrix: the prefix sums from what is released."""
    run = mechanism(n_steps, width=n_steps).start(n_steps)
    return np.array([run.decode(row) for row in np.eye(n_steps)])


# ------------------------------------------------------------------------ the matrices


def test_decoding_inverts_encoding():
    for n_steps in LENGTHS:
        C = encoder(n_steps)
        np.testing.assert_allclose(decoder(n_steps) @ C, np.tri(n_steps), atol=1e-12)
        # what is released at a step depends on no later vector
        assert np.all(np.triu(C, 1) == 0), n_steps


def test_the_sensitivity_is_the_largest_column_norm_and_prefix_scales_the_row_norms():
    for n_steps in LENGTHS:
        largest = np.linalg.norm(encoder(n_steps), axis=0).max()
        claimed = mechanism(n_steps)
        assert largest <= claimed.sensitivity <= largest * (1 + 1e-9), n_steps
        of_rows = np.linalg.norm(decoder(n_steps), axis=1)
        np.testing.assert_allclose(claimed.prefix_scales(), claimed.scale * of_rows, rtol=1e-10)


def test_the_worst_scale_is_a_close_bound():
    for n_steps in (1, 7, 100, 513, 5000):
        claimed = mechanism(n_steps)
        largest = claimed.prefix_scales().max()
        assert largest <= claimed.worst_scale <= largest * 1.03, n_steps


def test_exponentials_cost_next_to_nothing():
    for n_steps in (2, 10, 512, 10_000, 1_000_000):
        # the exact square root has both factors of this squared norm
        k = np.arange(1, n_steps)
        coefficients = np.concatenate(([1.0], np.cumprod(1 - 1 / (2 * k))))
        exact = float(coefficients @ coefficients)
        worst = mechanism(n_steps).prefix_scales().max()
        # rounding onto the grid: 2^-12
        assert exact * (1 - 1e-9) <= worst <= exact * (1 + 4e-4), n_steps


def test_compiled_response_is_that_of_the_run():
    rates, weights = prefix_sum._exponentials(40)
    run = mechanism(40).start(1)
    expected = [run.decode(np.array([float(t == 0)]))[0] for t in range(40)]
    for function in (prefix_response, getattr(prefix_response, "py_func", prefix_response)):
        np.testing.assert_allclose(function(rates, weights, 40), expected, rtol=1e-12)


def test_memory_grows_with_the_logarithm_of_the_length():
    run = mechanism(2**40, width=50).start(50)
    arrays = [value for value in vars(run).values() if isinstance(value, np.ndarray)]
    assert sum(array.nbytes for array in arrays) < 50 * 8 * 100


# ---------------------------------------------------------------------- float arithmetic


def test_the_column_norm_against_rational_arithmetic():
    for n_steps in (1, 5, 60):
        rates, weights = prefix_sum._exponentials(n_steps)
        rates_q, weights_q = [Fraction(x) for x in rates], [Fraction(x) for x in weights]
        pairs = list(zip(rates_q, weights_q, strict=True))
        exact = sum(sum(w * r**k for r, w in pairs) ** 2 for k in range(n_steps))
        claimed = Fraction(prefix_sum._column_norm(n_steps)) ** 2
        assert exact <= claimed <= exact * (1 + Fraction(1, 10**11))


@pytest.mark.parametrize("n_steps", [3, 50, 300])
def test_float_errors_stay_within_what_the_sensitivity_counts(n_steps):
    rates, weights = prefix_sum._exponentials(n_steps)
    x = np.random.default_rng(0).uniform(0.5, 1, n_steps)  # one sign: the sums grow
    run = mechanism(n_steps).start(1)
    sums = [Fraction(0)] * rates.size
    rates_q, weights_q = [Fraction(r) for r in rates], [Fraction(w) for w in weights]
    scale = 2**200
    squared = 0.0
    for value in x:
        # exact in steps of 2^-200
        sums = [
            Fraction(round(s * r * scale), scale) + Fraction(value)
            for s, r in zip(sums, rates_q, strict=True)
        ]
        exact = sum((s * w for s, w in zip(sums, weights_q, strict=True)), Fraction(0))
        squared += float(Fraction(run.encode(np.array([value]))[0]) - exact) ** 2
    bound = prefix_sum._float_error(n_steps)
    assert math.sqrt(squared) <= bound
    # and the sensitivity counts it twice
    with_error = mechanism(n_steps, largest_norm=1e9).sensitivity
    assert with_error - mechanism(n_steps).sensitivity >= 2e9 * bound * 0.999


def test_the_rounding_of_the_whole_stream_is_paid_for():
    found = mechanism(1000, width=7)
    assert found.dimension == 7000
    rounded = found.sensitivity + found.grid * math.sqrt(7000)
    assert found.rounded_sensitivity == pytest.approx(rounded, rel=1e-12)
    assert found.cost("gdp") <= 0.5
    run = found.start(7)
    released = found.release(run.encode(np.linspace(-1, 1, 7)), stream())
    steps = (released - found.grid / 2) / found.grid
    np.testing.assert_array_equal(steps, np.rint(steps))


# ----------------------------------------------------------------- the law of the noise


def test_the_law_of_every_prefix():
    n_steps, width = 6, 40_000
    found = mechanism(n_steps, width=width)
    run, noise = found.start(width), stream(3)
    vectors = np.random.default_rng(0).normal(size=(n_steps, width))
    for t, scale in enumerate(found.prefix_scales()):
        prefix = run.decode(found.release(run.encode(vectors[t]), noise))
        draws = (prefix - vectors[: t + 1].sum(axis=0)) / scale
        assert kstest(draws, "norm").pvalue > 1e-6
        assert kstest(draws * 1.05, "norm").pvalue < 1e-6


def test_noise_of_different_steps_and_coordinates_is_independent():
    n_steps, width = 5, 50_000
    found = mechanism(n_steps, width=width)
    run, noise = found.start(width), stream(4)
    rows = [found.release(run.encode(np.zeros(width)), noise) for _ in range(n_steps)]
    correlation = np.corrcoef(rows)
    off_diagonal = correlation[~np.eye(len(rows), dtype=bool)]
    assert np.abs(off_diagonal).max() < 5.5 / math.sqrt(width)
    shifted = [np.corrcoef(row[1:], row[:-1])[0, 1] for row in rows]
    assert np.abs(shifted).max() < 5.5 / math.sqrt(width)


# ------------------------------------------------------------------------ the accounting


def test_half_the_budget_needs_sqrt_two_times_the_noise():
    whole = mechanism(100)
    half = PrefixSum.calibrate(1.0, UNIT.share(0.5), n_steps=100, width=1, largest_norm=0.0)
    assert half.scale == pytest.approx(math.sqrt(2) * whole.scale, rel=1e-3)
    assert isinstance(half, Gaussian)


def test_bad_parameters():
    good = {"n_steps": 4, "width": 2, "largest_norm": 1.0}
    with pytest.raises(ValueError, match="no pure guarantee"):
        PrefixSum.calibrate(1.0, Allowance("pure", 1.0), **good)
    for n_steps in (0, -1, 1.5, 2**41):
        with pytest.raises(ValueError, match="n_steps"):
            PrefixSum.calibrate(1.0, UNIT, **good | {"n_steps": n_steps})


# ----------------------------------------------------- a calibration that is not private


def last_iterate(z, scale, n_trials, mechanism, seed):
    """Final w of |w - z_t| on [-1, 1] for many runs at once, by leader following.

    `mechanism` is None for independent noise of standard deviation `scale` on every
    gradient, the calibration of Arora, Marinov and Ullah (2020), Theorem B.2; else the
    prefix sums are those of `PrefixSum`.
    """
    rng, noise = np.random.default_rng(seed), stream(seed)
    w, total = np.zeros(n_trials), np.zeros(n_trials)
    run = None if mechanism is None else mechanism.start(n_trials)
    for t, z_t in enumerate(z):
        gradient = np.sign(w - z_t)
        if mechanism is None:
            total += gradient + scale * rng.standard_normal(n_trials)
        else:
            total = run.decode(mechanism.release(run.encode(gradient), noise))
        w = np.clip(-total / math.sqrt(t + 1), -1, 1)
    return w


def claimed_scale(epsilon, delta, n_steps):
    """Sigma at which alpha s^2 / (T sigma^2), s = 2, is the best claim of (epsilon, delta)."""
    alphas = 1 + np.geomspace(1, 1e3, 2000)
    left = epsilon - math.log(1 / delta) / (alphas - 1)
    return float(np.min(2 * np.sqrt(alphas[left > 0] / (n_steps * left[left > 0]))))


def streams_that_differ_in(position, n_steps):
    # the record is the only one that says 1, or one more that says 0
    first = np.zeros(n_steps)
    other = first.copy()
    other[position] = 1.0
    return first, other


def test_the_calibration_of_amu20_is_flagged():
    n_steps, n_trials = 1000, 10_000
    scale = claimed_scale(1.0, 1e-6, n_steps)
    tables = streams_that_differ_in(-1, n_steps)
    outcomes = [last_iterate(z, scale, n_trials, None, k) for k, z in enumerate(tables)]
    result = audit_outcomes(*outcomes, epsilon=1.0, delta=1e-6)
    assert result.flagged
    assert result.epsilon_lower_bound > 3


@rest_is_slow("position", (0, 30, 63), ("63",))
def test_prefix_sums_are_not_flagged_there(position):
    n_steps, n_trials = 64, 20_000
    allowance = PrivacyBudget(1.0, 1e-6).gaussian_allowance
    one = PrefixSum.calibrate(2.0, allowance, n_steps=n_steps, width=1, largest_norm=1.0)
    # every trial is a coordinate with a budget of its own
    found = dataclasses.replace(one, dimension=one.dimension * n_trials)
    tables = streams_that_differ_in(position, n_steps)
    outcomes = [last_iterate(z, 0.0, n_trials, found, k) for k, z in enumerate(tables)]
    result = audit_outcomes(*outcomes, epsilon=1.0, delta=1e-6)
    assert not result.flagged
    assert result.gaussian_epsilon_lower_bound <= 1.0
