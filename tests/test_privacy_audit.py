"""Black-box audits: can the outputs of a plan tell two neighbours apart too well?

Thousands of runs on each of a worst-case pair of neighbours are projected to one number,
and thresholds on it give lower bounds on epsilon that hold at confidence 99.99 %. The
right plan must stay below its claim, and a plan with noise / sqrt 2 must be caught. All
streams are seeded, so each verdict is the same in every run.

The bounds see only what some thousand runs can show: an (epsilon, delta) claim with a tiny delta
is tested through the Gaussian curve that its noise has (privacy.md, section 9, item 4),
a pure claim by itself.
"""

import dataclasses
import math

import numpy as np
import pytest
from replay import mechanisms
from scipy.optimize import brentq
from scipy.stats import beta, norm
from support import problem, solver_data, stream

from sklearn_dpsco.accounting import PrivacyBudget
from sklearn_dpsco.solvers.frank_wolfe import FrankWolfe

CONFIDENCE = 0.9999
N_RUNS = 10_000  # half of them choose the threshold
EPSILON, DELTA = 4.0, 1e-6


# ------------------------------------------------------------------------- lower bounds


def error_rates(first, second):
    """Upper bounds on both error rates of a threshold test, the threshold chosen on one half.

    The test says "second" above the threshold. Clopper-Pearson, both at once.
    """
    first_half, second_half = first[::2], second[::2]
    candidates = np.quantile(np.concatenate((first_half, second_half)), np.linspace(0, 1, 201))

    def bounds(sample_1, sample_2, threshold):
        level = 1 - (1 - CONFIDENCE) / 2
        counts = (sample_1 > threshold).sum(), (sample_2 <= threshold).sum()
        sizes = sample_1.size, sample_2.size
        return [
            1.0 if k == m else beta.ppf(level, k + 1, m - k)
            for k, m in zip(counts, sizes, strict=True)
        ]

    return candidates, bounds, (first_half, second_half), (first[1::2], second[1::2])


def best_bound(first, second, value):
    """`value(false_positive, false_negative)` at the best threshold, in either direction."""
    best = -math.inf
    for sign in (1, -1):
        candidates, bounds, tuning, fresh = error_rates(sign * first, sign * second)
        threshold = max(candidates, key=lambda t: value(*bounds(*tuning, t)))
        best = max(best, value(*bounds(*fresh, threshold)))
    return best


def mu_lower_bound(first, second):
    """Lower bound on mu if the mechanism is mu-Gaussian-DP."""
    return best_bound(first, second, lambda a, b: norm.isf(a) - norm.ppf(b))


def epsilon_lower_bound(first, second, delta):
    """Lower bound on epsilon of (epsilon, delta)-DP, whatever the mechanism."""

    def value(a, b):
        pairs = ((1 - delta - b, a), (1 - delta - a, b))
        return max(math.log(p / q) if p > 0 else -math.inf for p, q in pairs)

    return best_bound(first, second, value)


def epsilon_of_mu(mu, delta):
    """Epsilon of mu-Gaussian-DP at delta; 0 for a mu that is not positive."""
    if mu <= 0:
        return 0.0

    def excess(epsilon):
        a, b = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
        return norm.cdf(a) - math.exp(epsilon + norm.logcdf(b)) - delta

    return brentq(excess, 0, 100) if excess(0) > 0 else 0.0


# -------------------------------------------------------------------------------- runs


def worst_case_pair(n, d, relation, task="regression"):
    """All weight on one feature; the record flips the sign of the whole mean gradient's tail.

    The other rows balance what the first table's record adds, so that a selection stands
    at a tie on one side and at the full range on the other.
    """
    X, y = np.zeros((n, d)), np.where(np.arange(n) % 2, 1.0, -1.0)
    X[:2, 0], y[:2] = 1.0, (1.0, -1.0)
    other_y, scale = y.copy(), None
    if relation == "zero-out":
        scale = np.ones(n)
        scale[0] = 0.0
    else:
        other_y[0] = -1.0
    return (X, y, None), (X, other_y, scale)


def planted(plan, factor):
    """The plan with all its noise divided by `factor`."""
    weaker = {
        name: dataclasses.replace(m, scale=m.scale / factor) for name, m in mechanisms(plan).items()
    }
    return dataclasses.replace(plan, **weaker)


def outcomes(form, *, relation, delta, max_iter, fit_intercept, factor, n=20, d=2, n_runs=N_RUNS):
    """The first coefficient of `n_runs` runs on each of the two neighbours."""
    solver = FrankWolfe(form, max_iter=max_iter, gradient_clip=0.3, data_norm=1.0)
    facts = problem(n, d, fit_intercept=fit_intercept)
    plan = solver.plan(facts, PrivacyBudget(EPSILON, delta, relation))
    plan = planted(plan, factor)
    out = []
    for side, (X, y, scale) in enumerate(worst_case_pair(n, d, relation)):
        data = solver_data(X, y, scale=scale, fit_intercept=fit_intercept)
        root = stream(side)
        runs = (solver.solve(data, plan, root.substream(k)) for k in range(n_runs))
        out.append(np.array([run.coef[0] for run in runs]))
    return out


RELATIONS = ["replace-one", "zero-out"]


@pytest.mark.parametrize("relation", RELATIONS)
def test_gradient_form(relation):
    # one release, whose outcome is a monotone function of the coefficient: no power is lost
    case = {"relation": relation, "delta": DELTA, "max_iter": 1, "fit_intercept": False}
    right, wrong = (
        epsilon_of_mu(mu_lower_bound(*outcomes("gradient", factor=f, **case)), DELTA)
        for f in (1.0, math.sqrt(2))
    )
    assert 0.5 * EPSILON < right <= EPSILON < wrong


@pytest.mark.parametrize("relation", RELATIONS)
def test_selection_form_with_pure_noise(relation):
    case = {"relation": relation, "delta": 0.0, "max_iter": 1, "fit_intercept": False, "d": 1}
    right, wrong = (
        epsilon_lower_bound(*outcomes("selection", factor=f, **case), 0.0)
        for f in (1.0, math.sqrt(2))
    )
    assert 0.5 * EPSILON < right <= EPSILON < wrong


@pytest.mark.parametrize("form", ["gradient", "selection"])
@pytest.mark.parametrize("relation", RELATIONS)
def test_whole_plans_are_not_flagged(form, relation):
    # several steps, the intercept and whatever else the plan releases
    case = {"relation": relation, "delta": DELTA, "max_iter": 4, "fit_intercept": True}
    first, second = outcomes(form, factor=1.0, n_runs=4000, **case)
    assert epsilon_lower_bound(first, second, DELTA) <= EPSILON
    if form == "gradient":
        assert epsilon_of_mu(mu_lower_bound(first, second), DELTA) <= EPSILON


@pytest.mark.parametrize("form", ["gradient", "selection"])
def test_noise_that_is_far_too_small_is_flagged_in_whole_plans(form):
    case = {"relation": "replace-one", "delta": DELTA, "max_iter": 4, "fit_intercept": True}
    first, second = outcomes(form, factor=20.0, **case)
    assert epsilon_lower_bound(first, second, DELTA) > EPSILON


@pytest.mark.slow
@pytest.mark.parametrize("form", ["gradient", "selection"])
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("max_iter", [2, 16])
def test_whole_plans_with_many_runs(form, relation, max_iter):
    case = {"relation": relation, "delta": DELTA, "max_iter": max_iter, "fit_intercept": True}
    first, second = outcomes(form, factor=1.0, n_runs=30_000, **case)
    assert epsilon_lower_bound(first, second, DELTA) <= EPSILON
    if form == "gradient":
        assert epsilon_of_mu(mu_lower_bound(first, second), DELTA) <= EPSILON


# ------------------------------------------------------- the bounds themselves


def test_bounds_hold_and_are_close_where_the_truth_is_known():
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((2, N_RUNS))
    found = mu_lower_bound(noise[0], noise[1] + 1.0)
    assert 0.75 <= found <= 1.0
    # randomized response at epsilon = 1
    p = 1 / (1 + math.exp(-1))
    answers = rng.uniform(size=(2, N_RUNS)) < [[p], [1 - p]]
    assert 0.7 <= epsilon_lower_bound(*answers.astype(float), 0.0) <= 1.0
    # and nothing is found between equals
    assert mu_lower_bound(*noise) < 0.05
    assert epsilon_of_mu(PrivacyBudget(EPSILON, DELTA).mu, DELTA) == pytest.approx(EPSILON)
