"""The law of every mechanism's noise, accepted at the right scale and rejected at 5 % off.

All streams are seeded, so the suite has no false alarms; 1e-6 is the level of each test.
"""

import itertools
import math

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad
from support import rest_is_slow, stream

from sklearn_dpsco.mechanisms import Gaussian, Laplace, SelectVertex
from sklearn_dpsco.privacy.budget import Allowance

LEVEL = 1e-6
N_DRAWS = 100_000
N_SELECTIONS = 28_000
# too much noise where the draws are exact, too little where they are floats
FACTORS = {"exact": 1.05, "float": 1 / 1.05}
PRECISIONS = ["exact", "float"]


def test_additive_noise_has_its_law():
    laws = ((Gaussian, stats.norm), (Laplace, stats.laplace))
    for (kind, law), precision in itertools.product(laws, PRECISIONS):
        mechanism = kind(sensitivity=0.3, scale=1.7, dimension=N_DRAWS, precision=precision)
        noise = (mechanism.release(np.full(N_DRAWS, 5.0), stream(1)) - 5.0) / mechanism.scale
        for factor in (1.0, FACTORS[precision]):
            p = stats.kstest(factor * noise, law.cdf).pvalue
            assert (p > LEVEL) == (factor == 1.0), (kind, precision, factor)


def test_additive_noise_does_not_depend_on_the_value_and_is_fresh():
    for kind, precision in itertools.product((Gaussian, Laplace), PRECISIONS):
        mechanism = kind(1.0, 2.0, 3, precision)
        value = np.array([0.0, 10.0, -3.0])
        noisy, other = mechanism.release(value, stream(0)), mechanism.release(0 * value, stream(0))
        np.testing.assert_allclose(noisy - other, value, rtol=1e-12, atol=mechanism.grid)
        once = stream(0)
        first, second = mechanism.release(value, once), mechanism.release(value, once)
        assert not np.any(first == second), (kind, precision)


def softmax_law(scores, scale):
    weights = np.exp((scores - scores.max()) / scale)
    return weights / weights.sum()


def exponential_noise_law(scores, scale):
    """P(i wins) = integral over i's noise of the others staying below, by quadrature."""

    def wins(i):
        def density(e):
            below = [
                -math.expm1(-max(0.0, scores[i] + e - s) / scale) for s in np.delete(scores, i)
            ]
            return math.exp(-e / scale) / scale * math.prod(below)

        kinks = sorted({max(0.0, s - scores[i]) for s in scores})
        ends = [*kinks, kinks[-1] + 60 * scale]
        return sum(quad(density, *pair, epsabs=1e-13)[0] for pair in itertools.pairwise(ends))

    return np.array([wins(i) for i in range(scores.size)])


def permute_and_flip_law(scores, scale):
    """The algorithm itself: visit in random order, accept with e^((s - max) / b)."""
    accept = np.exp((scores - scores.max()) / scale)
    law = np.zeros(scores.size)
    orders = list(itertools.permutations(range(scores.size)))
    for order in orders:
        left = 1.0
        for i in order:
            law[i] += left * accept[i] / len(orders)
            left *= 1 - accept[i]
    return law


# apart by about the scale: there the probabilities depend most on it
SCORES = np.array([0.0, -2.0, 1.5, 0.3])
LAWS = {"gumbel": softmax_law, "exponential": exponential_noise_law}


def test_exponential_noise_is_permute_and_flip():
    law = exponential_noise_law(SCORES, 1.3)
    np.testing.assert_allclose(law, permute_and_flip_law(SCORES, 1.3), atol=1e-10)
    assert law.sum() == pytest.approx(1)


@rest_is_slow(
    ("noise", "precision"),
    [*itertools.product(LAWS, PRECISIONS)],
    ("gumbel-exact", "exponential-float"),
    "-".join,
)
def test_selection_has_its_law(noise, precision):
    scale = 1.3
    mechanism, one_stream = SelectVertex(1.0, scale, noise, precision), stream(2)
    chosen = [mechanism.release(SCORES, one_stream) for _ in range(N_SELECTIONS)]
    counts = np.bincount(chosen, minlength=SCORES.size)
    for factor in (1.0, FACTORS[precision]):
        expected = LAWS[noise](SCORES, scale / factor) * N_SELECTIONS
        assert (stats.chisquare(counts, expected).pvalue > LEVEL) == (factor == 1.0), factor


@pytest.mark.parametrize("noise", LAWS)
def test_selection_privacy_loss_is_at_most_its_cost(noise):
    # exact laws at scores that differ by the whole range, in the worst direction
    scale, shift = 0.8, 0.5
    mechanism = SelectVertex(shift, scale, noise)
    worst = 0.0
    for signs in itertools.product((0.0, shift), repeat=3):
        for base in ([0.0, 0.0, 0.0], [0.0, -3.0, -3.0], [0.0, -9.0, 0.0]):
            base = np.array(base)
            p, q = LAWS[noise](base, scale), LAWS[noise](base + np.array(signs), scale)
            worst = max(worst, np.abs(np.log(p / q)).max())
    assert 0.95 * mechanism.cost("pure") <= worst <= mechanism.cost("pure") * (1 + 1e-9)


def test_calibration_spends_the_allowance_and_no_more():
    calibrated = [
        (Gaussian, "zcdp"), (Gaussian, "gdp"), (Laplace, "zcdp"), (Laplace, "pure"),
        (SelectVertex, "zcdp"), (SelectVertex, "pure"),
    ]  # fmt: skip
    amounts = (1e-9, 1e-5, 0.3, 20.0, 1e9)
    for case in itertools.product(calibrated, (1, 7), amounts, (1, 10**6), PRECISIONS):
        (kind, composition), count, amount, dimension, precision = case
        size = {"dimension": dimension} if kind is not SelectVertex else {}
        mechanism = kind.calibrate(0.37, Allowance(composition, amount, precision), count, **size)
        assert mechanism.sensitivity == 0.37
        assert amount * (1 - 1e-9) <= count * mechanism.cost(composition) <= amount, case


def test_costs():
    for mechanism, composition, cost in (
        (Gaussian(2.0, 4.0, precision="float"), "zcdp", 1 / 8),
        (Gaussian(2.0, 4.0, precision="float"), "gdp", 1 / 8),
        (Laplace(2.0, 4.0, precision="float"), "zcdp", 1 / 8),
        (Laplace(2.0, 4.0, precision="float"), "pure", 1 / 2),
        (SelectVertex(2.0, 4.0, "gumbel"), "zcdp", 1 / 32),
        (SelectVertex(2.0, 4.0, "gumbel"), "pure", 1 / 2),
        # permute-and-flip has no bounded range: no factor 4 for it
        (SelectVertex(2.0, 4.0, "exponential"), "zcdp", 1 / 8),
        (SelectVertex(2.0, 4.0, "exponential"), "pure", 1 / 2),
    ):
        expected = pytest.approx(cost, rel=1e-14)
        assert mechanism.cost(composition) == expected, (mechanism, composition)


def test_noise_of_a_selection_follows_the_analysis():
    assert SelectVertex.calibrate(1.0, Allowance("zcdp", 1.0)).noise == "gumbel"
    assert SelectVertex.calibrate(1.0, Allowance("pure", 1.0)).noise == "exponential"
    with pytest.raises(ValueError, match="noise must be one of"):
        SelectVertex(1.0, 1.0, "normal")


def test_gaussian_event_is_relative_to_the_full_sensitivity():
    for composition in ("zcdp", "gdp"):
        assert Gaussian(0.5, 2.0, 1, "float").dp_event(composition).event.noise_multiplier == 4.0
        exact = Gaussian(0.5, 2.0, 100)
        with_rounding = 2.0 / (0.5 + 10 * exact.grid)
        assert exact.dp_event(composition).event.noise_multiplier == with_rounding


def test_noise_is_not_calibrated_under_an_analysis_that_its_law_does_not_have():
    for kind, analysis in ((Gaussian, "pure"), (Laplace, "gdp")):
        with pytest.raises(ValueError, match=f"{kind.__name__} has no {analysis} guarantee"):
            kind.calibrate(1.0, Allowance(analysis, 1.0))
