"""Scores with a prior, in exact arithmetic: what one record moves, however large the noise is."""

import itertools
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from support import Recorder, problem, stream

from sklearn_dpsco.audit import mechanisms
from sklearn_dpsco.data.bounds import TargetScaling
from sklearn_dpsco.geometry import Geometry, L2Ball
from sklearn_dpsco.mechanisms import SelectVertex
from sklearn_dpsco.privacy.budget import PrivacyBudget
from sklearn_dpsco.solvers import SCOF
from sklearn_dpsco.solvers.heavy_tail import magnitudes
from sklearn_dpsco.solvers.learned_units import Purse, plan_units
from sklearn_dpsco.solvers.statistics import (
    median_on_grid,
    scale_on_grid,
    spread_on_grid,
    target_prior,
)

N = 300_000


def heavy_tail(budget, **settings):
    """Its selections of the first scales, and what counts make of their scores."""
    facts = problem(N, 1, feasible_set=L2Ball)
    public = {"private_center_X": False, "private_center_y": False}
    plan = SCOF(max_iter=2).with_facts(**public, **settings).plan(facts, budget)

    def run(counts, mechanism):
        magnitudes._select(counts[None], N, magnitudes._LOG_PRIOR, mechanism, stream())

    kinds = [m for m in mechanisms(plan).values() if m.selects]
    return [(mechanism, magnitudes._EXPONENTS.size + 1, run) for mechanism in kinds]


def learned_units(budget):
    """The same of the centre and the spread of a target."""
    scaling = TargetScaling(-1.0, 1.0)
    facts = replace(problem(N, 3, feasible_set=Geometry), target_scaling=scaling)
    units, places = plan_units(Purse(facts, budget)), scaling.places(0)

    def center(counts, mechanism):
        median_on_grid(counts, N, places, target_prior(facts, 0), mechanism, stream())

    def spread(counts, mechanism):
        spread_on_grid(counts, N, mechanism, stream())

    def length(counts, mechanism):
        measured = SimpleNamespace(sum=lambda *_: counts)
        scale_on_grid(measured, N, 2.0, 0.25, mechanism, stream())

    found = [(units.target_median, places.size + 1, center)]
    # as many candidates as there are counts
    found += [(units.target_spread, 130, spread), (units.target_spread, 74, length)]
    return [case for case in found if case[0] is not None]


def changes(mechanism, size, run):
    """Exact ranges of the change of the scores, where rounding moves that of a candidate most.

    A table has k records in one cell and the others in another one.
    """
    recorder = Recorder(mechanism.sensitivity, mechanism.scale)

    def scores(k, cell, last):
        counts = np.zeros(size, dtype=np.int64)
        counts[cell] = k
        counts[last] += N - k
        run(counts, recorder)
        return recorder.scores

    # (of lengths, those in the first cell count as 0)
    pairs = itertools.product((size // 2, size - 2), (0, 1))
    for cell, last in (*pairs, (0, size - 2)):
        low, high = 0, N
        first, second = scores(low, cell, last), scores(high, cell, last)
        candidate = int(np.argmax(np.abs(second - first)))
        middle = (first[candidate] + second[candidate]) / 2
        is_rising = second[candidate] > first[candidate]
        while high - low > 1:  # to where the float score jumps
            k = (low + high) // 2
            is_above = scores(k, cell, last)[candidate] > middle
            low, high = (k, high) if is_above != is_rising else (low, k)
        pairs = zip(scores(low, cell, last), scores(high, cell, last), strict=True)
        moved = [Fraction(float(b)) - Fraction(float(a)) for a, b in pairs]
        yield max(moved) - min(moved)


EXTREMES = {
    "pure": lambda: heavy_tail(PrivacyBudget(1e-15, 0.0)),
    "users": lambda: heavy_tail(PrivacyBudget(1e-3, 0.0, rows_per_user=10**6), scale_share=1e-6),
    "tiny delta": lambda: learned_units(PrivacyBudget(1e-14, 1e-300)),
    "usual": lambda: [*learned_units(PrivacyBudget(1.0)), *heavy_tail(PrivacyBudget(1.0))],
}


@pytest.mark.parametrize("case", EXTREMES)
def test_rounding_of_a_prior_is_within_the_sensitivity(case):
    for mechanism, size, run in EXTREMES[case]():
        largest = max(changes(mechanism, size, run)) / Fraction(mechanism.sensitivity)
        assert Fraction(1, 4) < largest <= 1, float(largest)


def test_a_prior_has_its_weights_unless_noise_is_more_than_scores_can_hold():
    scores, log_prior = np.zeros(3), np.array([1.0, -2.0, 0.0])
    for scale in (0.0, 1e-9, 1.0, 1e8):
        found = SelectVertex(0.5, scale).with_prior(scores, log_prior)
        np.testing.assert_array_equal(found, scale * np.array([0.0, -3.0, -1.0]))
    far = SelectVertex(0.5, 1e12).with_prior(scores, log_prior)
    np.testing.assert_allclose(far, 2.0**29 / 3 * np.array([0.0, -3.0, -1.0]), rtol=1e-15)
