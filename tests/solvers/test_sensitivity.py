"""How far one record moves a release: the record's own term, and the float error beside it."""

import math
from fractions import Fraction

import numpy as np
import pytest
from support import problem

from sklearn_dpsco._kernels import sgd_steps
from sklearn_dpsco.data.rows import UNIT_ROUNDOFF, gamma, summation_error
from sklearn_dpsco.geometry import AxisVertices
from sklearn_dpsco.mechanisms.laws import PRIOR_ROOM
from sklearn_dpsco.preprocessing import quantiles
from sklearn_dpsco.privacy.budget import RELATIONS, PrivacyBudget
from sklearn_dpsco.solvers import (
    frank_wolfe,
    ftrl,
    learned_units,
    mirror_descent,
    phased_sgd,
    statistics,
    wide_units,
)
from sklearn_dpsco.solvers.heavy_tail import magnitudes
from sklearn_dpsco.solvers.papers import single_pass

D, NORM, CLIP, ETA, SIZE = 5, 1.5, 0.3, 0.01, 7
STEPS = phased_sgd.GradientSteps(
    n_steps=40,
    learning_rate=ETA,
    beta=1.0,
    clip=CLIP,
    parameter=0.0,
    block=16,
    norm=NORM,
    start=0.5,
    radius=2.0,
)


BALL = AxisVertices(D + 1, (2.0, -2.0))  # of diameter 4


def corrected(n):
    """Two batches of n records, of which the second has a part in one estimate."""
    return [
        single_pass.BatchStep(n, -1, 0.0, CLIP, 0.1),
        single_pass.BatchStep(n, 0, 0.5, 0.0, 0.1),
    ]


def facts(n, **others):
    return problem(n, D, **others)  # with an intercept: d + 1 coordinates


# Each function as one of (n, budget), and the record's own term for a record factor of 1; without
# the factor that is for a prior.
EVERY = {
    "mean_of_numbers": (
        lambda n, budget: statistics.mean_of_numbers(n, D, budget.record_factor),
        lambda n: 1 / n,
    ),
    "unit_mean": (
        lambda n, budget: statistics.unit_mean(facts(n), budget.record_factor),
        lambda n: 1 / n,
    ),
    "coordinate_mean": (
        lambda n, budget: statistics.coordinate_mean(2.0, budget.record_factor / n, n, D, D + 1, 2),
        lambda n: 2.0 * math.sqrt(D + 1) / n,
    ),
    "row_mean": (
        lambda n, budget: statistics.row_mean(facts(n), budget, NORM),
        lambda n: NORM / n,
    ),
    "row_mean_in_norm": (
        lambda n, budget: mirror_descent.row_mean_in_norm(facts(n), budget, NORM, 2.0, 4.0),
        lambda n: NORM / n,
    ),
    "wide_mean": (lambda n, budget: wide_units.wide_mean(facts(n), budget), lambda n: 1 / n),
    "moments_size": (lambda n, budget: wide_units.moments_size(facts(n), budget), lambda n: 1 / n),
    "target_mean": (
        lambda n, budget: statistics.target_mean(facts(n, n_outputs=4), budget, 2),
        lambda n: 2 / n,
    ),
    "median_score": (
        lambda n, budget: statistics.median_score(n, budget.record_factor) / PRIOR_ROOM,
        lambda n: 1.0,
    ),
    "batch_mean": (
        lambda n, budget: mirror_descent.batch_mean(facts(n), budget, NORM, SIZE),
        lambda n: NORM / SIZE,
    ),
    "mean_row_factor": (
        lambda n, budget: statistics.mean_of_numbers(n, D, 0.2 * budget.record_factor),
        lambda n: 0.2 / n,
    ),
    "vertex_scores": (
        lambda n, budget: frank_wolfe.vertex_scores(facts(n), budget, BALL, CLIP),
        lambda n: 4.0 * CLIP / n,
    ),
    "corrected_scores": (
        lambda n, budget: single_pass.corrected_scores(
            facts(n), budget, BALL, corrected(n), 0.0, 2
        ),
        lambda n: 4.0 * CLIP / n * math.sqrt(1.25),
    ),
    "record_scores": (
        lambda n, budget: single_pass.record_scores(
            facts(n), budget, BALL, 5, n, 0.5, (CLIP, 1e-9), 0.0, 1
        )[0],
        lambda n: 4.0 * CLIP / n * (2 - 0.5**5),
    ),
    "octave_score": (
        lambda n, budget: magnitudes.octave_score(n, budget.record_factor) / PRIOR_ROOM,
        lambda n: 1 / n,
    ),
    "vector_sum": (
        lambda n, budget: ftrl.vector_sum(n, budget.record_factor),
        lambda n: 1.0,
    ),
    "gradient_sum": (
        lambda n, budget: ftrl.gradient_sum(facts(n), budget, n, CLIP, NORM)[0],
        lambda n: CLIP * NORM,
    ),
    "phase_mean": (
        lambda n, budget: phased_sgd.phase_mean(facts(n), budget, STEPS._replace(n_steps=n)),
        lambda n: ETA * CLIP * NORM,
    ),
}


def close(value, rel):
    """Without the absolute tolerance of `approx`, which is above many a float error."""
    return pytest.approx(value, rel=rel, abs=0)


every_function = pytest.mark.parametrize("name", EVERY)


def values(name, n):
    """Under zero-out and under replace-one."""
    function, _ = EVERY[name]
    by_relation = {
        relation: function(n, PrivacyBudget(1.0, 1e-6, relation)) for relation in RELATIONS
    }
    return by_relation["zero-out"], by_relation["replace-one"]


def test_the_range_of_a_quantiles_scores_depends_on_the_level_under_zero_out():
    for level in (0.5, 0.9, 1.0):
        for factor, expected in ((2.0, 2.0), (1.0, 2 * level)):
            exact = quantiles.quantile_score(1, factor, level) / PRIOR_ROOM
            assert expected < exact <= expected * (1 + 1e-14)
            large = quantiles.quantile_score(10**9, factor, level) / PRIOR_ROOM
            assert large - expected == close(16e9 * 2.0**-53, 1e-6)


@every_function
def test_the_relation_doubles_the_term_of_the_record_and_nothing_else(name):
    for n in (10, 1000, 20_000):
        zero_out, replace_one = values(name, n)
        record = EVERY[name][1](n)
        assert replace_one - zero_out == close(record, 1e-9), n
        # what is left of both is the float error, the same for both, which is never missing
        error = 2 * zero_out - replace_one
        assert 0 < error < 1e-5 * record, n
        assert zero_out - record == close(error, 1e-2), n


@every_function
def test_the_term_of_the_record_falls_with_the_number_of_records_or_not_at_all(name):
    (one, two), (many_one, many_two) = values(name, 100), values(name, 10_000)
    no_means = ("batch_mean", "vector_sum", "gradient_sum", "phase_mean", "median_score")
    is_mean = name not in no_means
    expected = (two - one) / (100 if is_mean else 1)
    assert many_two - many_one == close(expected, 1e-9)


@every_function
def test_float_errors_never_fall_with_the_number_of_records(name):
    errors = [
        2 * zero_out - replace_one
        for zero_out, replace_one in (values(name, n) for n in (10, 1000, 100_000))
    ]
    if name == "octave_score":  # counts are exact: only the score itself is rounded
        assert errors == close([errors[0]] * 3, 1e-2)
    else:
        assert errors[0] < errors[1] < errors[2]


# ------------------------------------------------------------------------ in simple cases


def test_second_moments_and_their_largest_eigenvalue():
    for n in (10, 1000, 20_000):
        for relation, apart in (("zero-out", 1), ("replace-one", 2**0.5)):
            found = statistics.second_moments(facts(n), PrivacyBudget(1.0, 1e-6, relation))
            assert apart / n < found < apart / n * (1 + 1e-6)
            factor = 2.0 if relation == "replace-one" else 1.0
            assert apart < ftrl.vector_sum(n, math.sqrt(factor)) < apart * (1 + 1e-6)
        assert 1 / n < statistics.top_eigenvalue(facts(n)) < 1 / n * (1 + 1e-6)


def test_the_classes_of_two_records_are_less_than_two_vectors_apart():
    n, several = 100, {"task": "classification", "n_outputs": 4}
    for relation, order, apart in (
        ("zero-out", 1, 1),
        ("zero-out", 2, 1),
        ("replace-one", 1, 2),
        ("replace-one", 2, 2**0.5),
    ):
        budget = PrivacyBudget(1.0, 1e-6, relation)
        assert statistics.target_mean(facts(n, **several), budget, order) == close(apart / n, 1e-9)
        # the two classes of one output are -1 and 1
        two = facts(n, task="classification")
        assert statistics.target_mean(two, budget, order) == statistics.unit_mean(
            two, budget.record_factor
        )


def test_float_errors_are_counted_for_both_tables():
    n, error = 10, summation_error(10, D)
    budget = PrivacyBudget(1.0, 1e-6, "zero-out")
    longest = math.sqrt(D + 1)  # the norm of a row in a corner of the box

    def assert_error(value, expected):
        assert value == close(expected, 1e-15)

    assert_error(statistics.mean_of_numbers(n, D, 1.0), 0.1 + 2 * error)
    assert_error(statistics.coordinate_mean(0.5, 0.1, n, D, 4, 1), 4 * 0.5 * (0.1 + 2 * error))
    assert_error(statistics.coordinate_mean(0.5, 0.1, n, D, 4, 2), 2 * 0.5 * (0.1 + 2 * error))
    # centred rows are differences of two sums, of twice the length together
    row_error = 2 * error * (1.0 + 2 * longest)
    assert_error(statistics.row_mean(facts(n), budget, 1.0), 0.1 + row_error)
    assert_error(statistics.mean_of_numbers(n, D, 0.5), 0.05 + 2 * error)
    scores = frank_wolfe.vertex_scores(facts(n), budget, BALL, 0.5)
    assert_error(scores, 2.0 * (0.1 + 2 * error))
    in_norm = mirror_descent.row_mean_in_norm(facts(n), budget, 1.0, 2.0, math.inf)
    assert_error(in_norm, 0.1 + 4 * 2.0 * error)
    # each term of a stream's sum may meet all others, twice, and sixteen roundings of its own
    assert_error(ftrl.vector_sum(n, 1.0), 1.0 + 2 * n * gamma(2 * n + 16))


def test_a_batch_of_all_records_is_the_mean_over_all():
    for relation in RELATIONS:
        budget = PrivacyBudget(1.0, 1e-6, relation)
        whole = statistics.row_mean(facts(50), budget, NORM)
        assert mirror_descent.batch_mean(facts(50), budget, NORM, 50) == close(whole, 1e-15)
        # a sum over a batch errs as one over all records may: it is divided by less
        half = mirror_descent.batch_mean(facts(50), budget, NORM, 25)
        assert half == close(2 * whole, 1e-15)


def test_the_orders_of_a_norm_differ_by_the_number_of_coordinates():
    one, two = (statistics.coordinate_mean(1.0, 0.1, 10, D, 9, order) for order in (1, 2))
    assert one == close(3 * two, 1e-15)


def test_roundings_and_the_prior_of_a_score_are_counted():
    for factor in (1.0, 2.0):
        # both scores of both neighbours, each with an error of its own
        more = magnitudes.octave_score(4, factor) / PRIOR_ROOM - factor / 4
        assert more == close(4 * 160 * UNIT_ROUNDOFF, 1e-2)


def test_sums_of_a_stream_have_a_bound_on_their_norm():
    for relation in RELATIONS:
        budget = PrivacyBudget(1.0, 1e-6, relation)
        change, largest = ftrl.gradient_sum(facts(50), budget, 50, CLIP, NORM)
        factor = 2 if relation == "replace-one" else 1
        assert factor * CLIP * NORM < change < factor * CLIP * NORM * (1 + 1e-9)
        assert 50 * CLIP * NORM < largest < 50 * CLIP * NORM * (1 + 1e-9)
        # the sum of either table errs
        assert change - factor * CLIP * NORM == close(2 * (largest - 50 * CLIP * NORM), 1e-2)


def test_a_phase_costs_one_step_whatever_it_starts_from():
    budget = PrivacyBudget(1.0, 1e-6)
    step = 2 * ETA * CLIP * NORM
    for n_steps, start, radius in ((1, 0.0, 1.0), (40, 0.5, 1.0), (10_000, 3.0, math.inf)):
        steps = STEPS._replace(n_steps=n_steps, start=start, radius=radius)
        change = phased_sgd.phase_mean(facts(20_000), budget, steps)
        assert step < change < step * (1 + 1e-6), (n_steps, start, radius)
    # longer coefficients err by more, as long as nothing holds them back
    short, long, held = (
        phased_sgd.phase_mean(facts(100), budget, STEPS._replace(start=start, radius=radius))
        for start, radius in ((1.0, math.inf), (100.0, math.inf), (100.0, 1.0))
    )
    assert max(short, held) < long


def test_the_projection_of_many_outputs_errs_by_less_than_a_phase_counts():
    many = problem(100, 1, n_outputs=320_000)
    # a phase of one block, whose steps have next to no length
    steps = STEPS._replace(n_steps=16, learning_rate=1e-30, start=1.0, radius=1.0)
    counted = phased_sgd.phase_mean(many, PrivacyBudget(1.0, 1e-6), steps) / 2
    for value in np.random.default_rng(0).uniform(1, 2, 12):
        w = np.full((2, 320_000), value)  # alike, so that partial sums are rounded alike
        sgd_steps._close_block(w, 1.0, False, w)
        assert 800 * abs(Fraction(w[0, 0]) - Fraction(1, 800)) < counted


def test_ratios_of_more_records_than_floats_hold_count_their_roundings():
    """Sums with a term for each size of a grid err by as many times u n, in four scores."""
    counted, most = statistics.median_score(10**15, 1.0) - 1.0, statistics.SPREADS.size
    assert most >= learned_units._RATE_SIZES.size
    assert counted > 4 * most * 2.0**-53 * 10**15
    assert statistics.median_score(10**9, 1.0) - 1.0 < 2.0**-19
