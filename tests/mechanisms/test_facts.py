"""What every mechanism says of itself, and that its costs and events agree with it."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
from dp_accounting.dp_event import (
    GaussianDpEvent,
    PoissonSampledDpEvent,
    SampledWithoutReplacementDpEvent,
    SelfComposedDpEvent,
)
from support import assert_refuses, recomputed_epsilon, stream

from sklearn_dpsco import mechanisms
from sklearn_dpsco.mechanisms import (
    BatchGaussian,
    Gaussian,
    GeneralizedGaussian,
    KeyedGaussian,
    Laplace,
    Mechanism,
    PrefixSum,
    SelectSequence,
    SelectVertex,
)
from sklearn_dpsco.privacy.budget import ROUNDING, Allowance, PrivacyBudget
from sklearn_dpsco.privacy.guarantee import Guarantee, Release
from sklearn_dpsco.randomness.subsets import RandomBatches

ANALYSES = ("zcdp", "gdp", "pure", "adaptive-range", "pld")
D = 3
FIXED, POISSON = RandomBatches(50, 5, "fixed"), RandomBatches(50, 5, "poisson")
EXAMPLES = [
    Gaussian(0.5, 4.0, D),
    Gaussian(0.5, 4.0, D, "float"),
    KeyedGaussian(0.5, 4.0, D, keys=D, threshold=30.0),
    Laplace(0.5, 4.0, D),
    Laplace(0.5, 4.0, D, "float"),
    SelectVertex(0.5, 4.0),
    SelectVertex(0.5, 4.0, "exponential"),
    SelectVertex(0.5, 4.0, "gumbel", "float"),
    SelectSequence(0.5, 4.0, n_scores=D),
    SelectSequence(0.5, 4.0, "exponential", norm=1, n_scores=D),
    GeneralizedGaussian(0.5, 4.0, math.inf, 3.0, D),
    GeneralizedGaussian(0.5, 4.0, 4.0, 2.5, D),
    BatchGaussian(0.5, 4.0, D, sampling=FIXED),
    BatchGaussian(0.5, 4.0, D, "float", sampling=POISSON),
    PrefixSum.calibrate(0.5, Allowance("gdp", 0.01), n_steps=4, width=D, largest_norm=1.0),
]
# of the norm of the sensitivity; a selection has no norm but the range
ORDERS = {Gaussian: 2, KeyedGaussian: 2, Laplace: 1, BatchGaussian: 2, PrefixSum: 2}
each = pytest.mark.parametrize("mechanism", EXAMPLES, ids=repr)


def test_there_is_an_example_of_every_mechanism():
    kinds, todo = set(), [Mechanism]
    while todo:
        todo += todo.pop().__subclasses__()
        kinds |= {kind for kind in todo if kind.__module__.startswith("sklearn_dpsco")}
    abstract = {mechanisms.AdditiveNoise}
    assert {type(mechanism) for mechanism in EXAMPLES} == kinds - abstract


@each
def test_a_mechanism_has_a_cost_under_the_analyses_that_it_names_and_no_other(mechanism):
    assert mechanism.compositions
    assert set(mechanism.compositions) <= set(ANALYSES)
    name = type(mechanism).__name__
    for composition in ANALYSES:
        if composition in mechanism.compositions:
            mechanism.check(composition)
            assert 0 < mechanism.cost(composition) < math.inf, composition
            many = mechanism.cost(composition, 7)
            assert many <= 7 * mechanism.cost(composition) * (1 + 1e-12), composition
        else:
            for ask in (mechanism.cost, mechanism.check):
                assert_refuses(ask, f"{name} has no {composition} guarantee", composition)


@each
def test_costs_under_several_analyses_follow_from_each_other(mechanism):
    costs = {composition: mechanism.cost(composition) for composition in mechanism.compositions}
    if "pure" in costs:  # pure DP is zCDP
        assert costs["zcdp"] <= costs["pure"] ** 2 / 2 * (1 + 1e-12)
    for order in (1.5, 20.0, 1e6):
        assert mechanism.renyi(order) <= order * costs["zcdp"] * (1 + 1e-12)
        assert mechanism.renyi(order) <= costs.get("pure", math.inf)
    if mechanism.noise_multiplier is not None:
        expected = 1 / (2 * mechanism.noise_multiplier**2)
        assert costs["zcdp"] == pytest.approx(expected, rel=1e-12)
        assert costs.get("gdp", costs["zcdp"]) == costs["zcdp"]
    elif "gdp" in costs:  # of Gaussian noise, the zCDP cost is the same; of others it is less
        assert costs["gdp"] > costs["zcdp"]
    # they depend on the sensitivity in units of the noise, which is what is calibrated
    twice = {"sensitivity": 2 * mechanism.sensitivity, "scale": 2 * mechanism.scale}
    larger = dataclasses.replace(mechanism, **twice)
    noisier = dataclasses.replace(mechanism, scale=2 * mechanism.scale)
    for composition, cost in costs.items():
        assert larger.cost(composition) == pytest.approx(cost, rel=1e-12), composition
        power = 1 if composition == "pure" else 2
        # the grid of exact noise is coarser with more of it, and the Gaussian curve above a
        # selection's is about in proportion
        expected = pytest.approx(cost / 2**power, rel=1e-2)
        assert noisier.cost(composition) == expected, composition


@each
def test_the_log_range_is_that_of_selections_by_gumbel_noise(mechanism):
    if mechanism.log_range is None:
        # one of several selections together has a range of its own
        assert mechanism.is_joint or getattr(mechanism, "noise", None) != "gumbel"
        return
    assert mechanism.selects
    assert mechanism.log_range == mechanism.sensitivity / mechanism.scale
    # an interval of length eta that holds 0: eta-DP, and eta^2 / 8 zCDP
    assert mechanism.cost("pure") == mechanism.log_range
    assert mechanism.cost("zcdp") == pytest.approx(mechanism.log_range**2 / 8, rel=1e-12)


@each
def test_the_distance_is_in_the_metric_of_the_sensitivity(mechanism):
    rng = np.random.default_rng(0)
    order = mechanism.q if hasattr(mechanism, "q") else ORDERS.get(type(mechanism))
    for change in (*rng.standard_normal((10, D)), np.zeros(D), np.ones(D), -np.eye(D)[1]):
        distance = mechanism.distance(change)
        if mechanism.selects:  # what all scores have in common does not matter
            assert distance == np.ptp(change)
            assert mechanism.distance(change + 7.0) == pytest.approx(distance, abs=1e-14)
        else:
            assert mechanism.order == order
            assert distance == pytest.approx(np.linalg.norm(change, order), rel=1e-14)
        assert mechanism.distance(-2 * change) == pytest.approx(2 * distance, rel=1e-14)


def test_the_ranges_of_a_run_of_selections_have_a_norm():
    changes = np.array([[0.0, 3.0, 1.0], [2.0, 2.0, 2.0], [-4.0, 0.0, 0.0]])  # ranges 3, 0 and 4
    for norm, expected in ((2, 5.0), (1, 7.0)):
        mechanism = SelectSequence(0.5, 4.0, norm=norm, n_scores=D)
        assert mechanism.distance(changes.ravel()) == pytest.approx(expected)
        alone = SelectVertex(0.5, 4.0)
        composition = {1: "pure", 2: "zcdp"}[norm]
        assert mechanism.cost(composition) == alone.cost(composition)


def test_a_change_of_the_size_of_the_sensitivity_costs_what_is_claimed():
    # log of the ratio of the densities at one point, against the pure cost; and the mean of it
    for kind, exponent in ((Laplace, 1), (Gaussian, 2)):
        mechanism = kind(0.5, 4.0, D, "float")
        change = np.array([0.3, -0.2, 0.7])
        change *= mechanism.sensitivity / mechanism.distance(change)
        if exponent == 1:
            assert np.abs(change).sum() / mechanism.scale == pytest.approx(mechanism.cost("pure"))
        else:  # the Kullback-Leibler divergence of two Gaussians
            divergence = change @ change / (2 * mechanism.scale**2)
            assert divergence == pytest.approx(mechanism.cost("zcdp"))
    scores = np.array([0.0, 0.1, -3.0])
    mechanism = SelectVertex(0.5, 4.0)
    change = np.array([0.0, 1.0, 0.3])
    change *= mechanism.sensitivity / mechanism.distance(change)
    laws = [np.exp(s / mechanism.scale) for s in (scores, scores + change)]
    ratios = np.log(laws[0] / laws[0].sum()) - np.log(laws[1] / laws[1].sum())
    assert np.ptp(ratios) == pytest.approx(mechanism.log_range)


@each
def test_releases_are_what_the_facts_say(mechanism):
    value = np.array([1.0, -2.0, 0.5])
    released = mechanism.release(value, stream())
    np.testing.assert_array_equal(value, [1.0, -2.0, 0.5])
    if mechanism.selects:
        assert isinstance(released, int)
        assert 0 <= released < D
    else:
        assert released.shape == (D,)
        assert released.dtype == np.float64
        assert not np.any(released == value)
    assert mechanism.selects == isinstance(mechanism, SelectVertex)
    assert mechanism.is_joint == isinstance(mechanism, PrefixSum | SelectSequence)
    assert mechanism.batches == getattr(mechanism, "sampling", None)


@each
def test_what_noise_does_not_hide_is_not_released(mechanism):
    for place in range(D):
        value = np.array([1.0, -2.0, 0.5])
        value[place] = np.nan
        with pytest.raises(ValueError, match=r"NaN|finite") as found:
            mechanism.release(value, stream())
        assert "2.0" not in str(found.value)
        for infinite in (np.inf, -np.inf):
            value[place] = infinite
            if mechanism.selects:
                assert_refuses(mechanism.release, "must be finite", value, stream())
                continue
            # as the largest number that is told apart from others, with noise that shows
            noisy = [mechanism.release(value, stream(seed)) for seed in range(20)]
            assert np.all(np.isfinite(noisy))
            assert np.all(np.sign([released[place] for released in noisy]) == np.sign(infinite))
            assert np.unique([released[place] for released in noisy]).size > 10
            # the other coordinates are released as always
            value[place] = 0.0
            plain = mechanism.release(value, stream(0))
            others = np.arange(D) != place
            np.testing.assert_array_equal(noisy[0][others], plain[others])


@pytest.mark.parametrize("mechanism", [m for m in EXAMPLES if not m.selects], ids=repr)
def test_clipping_large_values_moves_no_two_apart(mechanism):
    # the same noise, so that only the values differ
    rng = np.random.default_rng(0)
    for exponent in (10, 50, 55, 60, 70, 1000):
        value = rng.standard_normal(D) * 2.0**exponent
        change = rng.standard_normal(D) * 2.0 ** (exponent - 1)
        found = [mechanism.release(v, stream()) for v in (value, value + change)]
        distance = mechanism.distance(found[1] - found[0])
        assert distance <= mechanism.distance(change) * (1 + 1e-2)


def within_the_budget(mechanism, composition, budget):
    """The mechanism with noise for which one release costs the whole budget."""
    limits = {"zcdp": budget.rho, "gdp": budget.mu**2 / 2, "pure": budget.epsilon}
    power = 1 if composition == "pure" else 2
    precision = {"precision": "float"} if hasattr(mechanism, "precision") else {}
    mechanism = dataclasses.replace(mechanism, **precision)
    factor = (mechanism.cost(composition) / limits[composition]) ** (1 / power)
    return dataclasses.replace(mechanism, scale=mechanism.scale * factor * ROUNDING)


@each
def test_a_second_accountant_agrees_with_every_cost(mechanism):
    for composition in mechanism.compositions:
        budget = PrivacyBudget(1.0, 0.0 if composition == "pure" else 1e-6)
        release = Release("x", within_the_budget(mechanism, composition, budget))
        guarantee = Guarantee.of(budget, (release,), composition)
        assert 0.99 <= recomputed_epsilon(guarantee) <= 1 + 1e-4, composition


def test_events_are_of_gaussian_noise_or_of_an_analysis_that_there_is():
    for mechanism, composition in itertools.product(EXAMPLES, ANALYSES):
        if composition in mechanism.compositions or mechanism.batches is not None:
            continue
        if mechanism.noise_multiplier is not None and composition == "pld":
            # an accountant of sampled events takes unsampled ones, too
            noise = GaussianDpEvent(mechanism.noise_multiplier)
            assert mechanism.dp_event(composition, 3) == SelfComposedDpEvent(noise, 3)
        else:
            assert_refuses(mechanism.dp_event, "guarantee", composition)


def test_events_of_batches_hold_the_sampling_where_there_is_an_accountant_of_it():
    for batches in (FIXED, POISSON):
        mechanism = BatchGaussian(0.5, 4.0, D, sampling=batches)
        noise = GaussianDpEvent(mechanism.noise_multiplier)
        for whole in ("zcdp", "gdp"):
            assert mechanism.dp_event(whole, 4) == SelfComposedDpEvent(noise, 4)
        sampled = {
            "fixed": SampledWithoutReplacementDpEvent(50, 5, noise),
            "poisson": PoissonSampledDpEvent(0.1, noise),
        }[batches.law]
        assert mechanism.dp_event("pld", 4) == SelfComposedDpEvent(sampled, 4)
        for other in ("pure", "adaptive-range"):
            assert_refuses(mechanism.dp_event, "guarantee", other)
